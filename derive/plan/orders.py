"""Orders of contraction, told: the pairs in which the factors of a sum of products meet.

Compared with what a person may type: all factors multiplied and then summed, or pair by pair from
left to right.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from derive.ir.nodes import TRUE, Access, Equation, Mul, Reduce, Tensor
from derive.ir.polynomial import Polynomial, add_all, evaluate_atom
from derive.ir.text import to_text
from derive.plan.costs import count_elements
from derive.plan.log import Costs, Entry
from derive.plan.meaning import to_expr
from derive.plan.ops import axes_of
from derive.plan.path import OUTER

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from derive.ir.nodes import Expr, Index
    from derive.plan.path import Order, Path

NAME = "contract_in_pairs"
BEST = "no order of the factors takes fewer operations at these sizes"
GOOD = "an order of few operations at these sizes; there are too many orders to try them all"


@dataclass(frozen=True, slots=True)
class _Part:
    """An operand, or several that have met: over `spanned`, of which `kept` are left."""

    value: Expr
    spanned: tuple[Index, ...]
    kept: tuple[Index, ...]

    @property
    def operations(self) -> Polynomial:
        each = 2 if set(self.spanned) != set(self.kept) else 1
        return count_elements(self.spanned) * Polynomial.of(each)


def tell_order(order: Order, sizes: Mapping[str, int]) -> Entry:
    """The pairs, and what they cost beside the whole product at once."""
    parts = [_Part(to_expr(op), axes_of(op), axes_of(op)) for op in order.operands]
    whole = _join(parts, order.axes)
    named = _meet(parts, order, order.path, named=True)
    spanned = count_elements(whole.spanned)
    old = _count([spanned * Polynomial.of(len(parts))], [spanned], sizes)
    made = [count_elements(part.kept) for part in named]
    new = _count([part.operations for part in named], made, sizes)
    remarks = [
        f"{to_text(Equation(_name(number, part), part.value))}: {_write(part.operations)}"
        for number, part in enumerate(named, 1)
    ]
    return Entry(
        NAME,
        BEST if len(parts) <= OUTER else GOOD,
        order.equation,
        whole.value,
        _meet(parts, order, order.path, named=False)[-1].value,
        old=old,
        new=new,
        remarks=(*remarks, _compare(parts, order, new, sizes)),
    )


def _meet(parts: Sequence[_Part], order: Order, path: Path, *, named: bool) -> list[_Part]:
    """What is made, pair by pair; earlier ones stand in later ones, or by their number."""
    left, made = list(parts), []
    for pair in path:
        met = [left[k] for k in pair]
        left = [part for k, part in enumerate(left) if k not in pair]
        needed = {*order.axes, *(i for part in left for i in part.kept)}
        part = _join(met, needed)
        made.append(part)
        left.append(_Part(_name(len(made), part), part.kept, part.kept) if named else part)
    return made


def _join(met: Sequence[_Part], needed: Collection[Index]) -> _Part:
    """The product of some parts, summed over what is not needed any more."""
    spanned = tuple(dict.fromkeys(i for part in met for i in part.kept))
    kept = tuple(i for i in spanned if i in needed)
    bound = tuple(i for i in spanned if i not in needed)
    product = Mul(tuple(part.value for part in met)) if len(met) > 1 else met[0].value
    value = Reduce("sum", bound, TRUE, product) if bound else product
    return _Part(value, spanned, kept)


def _name(number: int, part: _Part) -> Access:
    return Access(Tensor(f"({number})", tuple(index.extent for index in part.kept)), part.kept)


def _compare(parts: Sequence[_Part], order: Order, new: Costs, sizes: Mapping[str, int]) -> str:
    """What the order as it is written takes."""
    last = len(parts) - 1
    path = ((0, 1), *((0, last - k) for k in range(1, last)))
    written = add_all(part.operations for part in _meet(parts, order, path, named=True))
    if _evaluate(written, sizes) == new.operations_at:
        return "from left to right it would be as many"
    count = f"{_evaluate(written, sizes):,}"
    return f"from left to right it would be {_write(written)} = {count} operations"


def _count(
    operations: Sequence[Polynomial], elements: Sequence[Polynomial], sizes: Mapping[str, int]
) -> Costs:
    total = add_all(operations)
    largest = max(elements, key=lambda each: _evaluate(each, sizes))
    return Costs(total, largest, _evaluate(total, sizes), _evaluate(largest, sizes))


def _write(polynomial: Polynomial) -> str:
    return to_text(polynomial.to_expr()).replace(" * ", "*")


def _evaluate(polynomial: Polynomial, sizes: Mapping[str, int]) -> int:
    return int(polynomial.evaluate(lambda atom: evaluate_atom(atom, sizes)))
