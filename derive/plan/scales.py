"""A number that scales a product goes to the smallest operand that the product is made of.

Where q = X W is read as c q alone, c q = X (c W): the weights are fewer than what they make, and
one large tensor less is written and kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.plan.cells.opening import count_reads, rename
from derive.plan.naming import free_name
from derive.plan.ops import Apply, Einsum, Num, Op, Source, axes_of, exchange
from derive.plan.steps import Step, find_reads, walk_ops

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from derive.plan.strides import Memory

WORTH = 2  # times as large as its operand a product has to be


def absorb_scales(
    steps: Sequence[Step], results: Sequence[Op], memory: Memory, taken: Collection[str]
) -> tuple[Step, ...]:
    """The steps with such products scaled where they are made; new names are not `taken`."""
    done = tuple(steps)
    names = {*taken, *(step.name for step in steps)}
    reads = count_reads(steps, results)
    for product in steps:
        if reads[product.name] != 1 or not isinstance(product.op, Einsum):
            continue
        counts = [memory.count(axes_of(arg)) for arg in product.op.args]
        place = counts.index(min(counts))
        for reader in done:
            if product.name not in find_reads(reader.op):
                continue
            scaled = _find_scaled(reader.op, product.name)
            if scaled is not None and memory.count(product.axes) >= WORTH * counts[place]:
                done = _move(done, product, place, (reader, scaled), names)
                names |= {step.name for step in done}
    return done


def _find_scaled(op: Op, name: str) -> Apply | None:
    """The part that multiplies, or divides, this tensor as it stands by a number."""
    for part in walk_ops(op):
        match part:
            case Apply("*" | "/", (Source() as read, Num()), axes):
                if read.name == name and read.axes == axes:
                    return part
    return None


def _move(
    steps: tuple[Step, ...],
    product: Step,
    place: int,
    read: tuple[Step, Apply],
    taken: Collection[str],
) -> tuple[Step, ...]:
    """The steps with one operand of the product scaled, and what is made of it read as it is."""
    reader, scaled = read
    assert isinstance(product.op, Einsum)
    args = list(product.op.args)
    args[place] = Apply(scaled.function, (args[place], scaled.args[1]), axes_of(args[place]))
    op = rename(
        Einsum(tuple(args), product.op.axes), dict(zip(product.axes, scaled.axes, strict=True))
    )
    is_all = reader.op is scaled
    made = Step(reader.name if is_all else free_name(f"{product.name}_scaled", taken), op)
    done = [made if step is product else step for step in steps if step is not reader or not is_all]
    left = exchange(reader.op, {scaled: Source(made.name, scaled.axes)})
    return tuple(Step(reader.name, left) if step is reader else step for step in done)
