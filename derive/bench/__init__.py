"""Measuring: the generated function against code by hand, einsum and torch.compile.

    derive bench NAME|FILE
    --against FILE.py:FUNCTION      code by hand; code that gives other values is refused
    --compile                       torch.compile of both
    --backward                      with gradients
    --dtype float32|bfloat16|float64, --threads 1,all
    --over S=32..256                at doubled values of one size, and the slope of the seconds

Seconds are medians over interleaved runs. Memory is measured in a child process. The limit of the
machine is estimated from rates measured in the same run. A ratio of medians from one run means
something on a busy machine; a time alone does not.

Modules
    run         inputs, rows and tables at one choice of sizes, as data; several, and slopes
    candidates  the generated function, code by hand, one einsum call, torch.compile of the first
                two; each checked against the first
    timing      medians, rates of this machine, memory
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.bench.candidates import load_hand
from derive.bench.run import Over, Sweep, Wishes, find_dtype, measure
from derive.bench.timing import refuse_too_large
from derive.compiler import Built, build_file
from derive.errors import refuse
from derive.judge.samples import is_possible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from derive.bench.run import Report
    from derive.notation.formula import Formula

USUAL = Wishes()


def bench(
    formula: Formula,
    against: str = "",
    sizes: Mapping[str, int] | None = None,
    *,
    name: str | None = None,
    wishes: Wishes = USUAL,
) -> Report:
    """The generated function timed against code by hand (`against`, FILE.py:FUNCTION).

    `sizes` are those of the run, else the formula's typical ones. Raises DeriveError for code that
    gives other values. Values are compared in float32, or float64 if that is asked for.
    """
    built = _build(formula, sizes or {}, name, wishes)
    hand = load_hand(against, built.system) if against else None
    return measure(built, hand, wishes)


def sweep(  # noqa: PLR0913 - the last two are for the command line
    formula: Formula,
    over: Over,
    against: str = "",
    sizes: Mapping[str, int] | None = None,
    *,
    name: str | None = None,
    wishes: Wishes = USUAL,
    track: Callable[[Sequence[Built]], Iterable[Built]] = iter,
) -> Sweep:
    """The measurements at each value of one size; the function is planned for each.

    All sizes are looked at before the first is measured. `track` may show how far it has come.
    """
    at = [{**(sizes or {}), over.size: value} for value in over.values]
    points = [_build(formula, each, name, wishes) for each in at]
    hand = load_hand(against, points[0].system) if against else None
    reports = tuple(measure(built, hand, wishes) for built in track(points))
    texts = [built.source for built in points]
    return Sweep(over, reports, is_one_text=all(text == texts[0] for text in texts))


def _build(formula: Formula, sizes: Mapping[str, int], name: str | None, wishes: Wishes) -> Built:
    """The function for these sizes, which have to be possible and to fit."""
    built = build_file(formula, wishes.options.at(sizes), name)
    if not is_possible(built.system, built.plan.sizes):
        at = ", ".join(f"{size}={number}" for size, number in built.plan.sizes.items())
        raise refuse(
            "sizes-impossible",
            f"{built.name} has no meaning at {at}",
            facts=("an extent is negative or no whole number, or a place is outside",),
            help="give other sizes with --sizes",
        )
    refuse_too_large(built, find_dtype(wishes.dtype).itemsize)
    return built
