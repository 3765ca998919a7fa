"""sqrt(sum_d (x_nd - y_md)**2) is torch's cdist, and the squared distance its square.

By differences, which keep the digits of points that lie close together. By products it is faster by
far, and loses them: that is for a rule that may lose digits. torch's function is for float32 and
float64, so half precision is widened for it, and has no second derivatives.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from derive.ir.nodes import Number
from derive.plan.cells.matching import CellRule, is_same, strip
from derive.plan.ops import (
    Apply,
    Cell,
    Given,
    Local,
    Num,
    Op,
    Operand,
    Reduction,
    TorchCall,
    arrange,
    axes_of,
    is_integral,
    rename_indices,
    walk_ops,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.ir.nodes import Index
    from derive.plan.cells.matching import Definitions

NAME = "torch.cdist"
MODE = ("compute_mode", "donot_use_mm_for_euclid_dist")
LACKS = "it has no second and no forward derivatives; what --no-cells builds has them"
NOTE = f"{NAME}: {LACKS}"
TWO = Number(Fraction(2))

Found: TypeAlias = tuple[Op, Op, tuple["Index", ...], tuple["Index", ...]]


def match_distance(op: Op, definitions: Definitions) -> Op | None:
    """A root of a sum of squared differences, or that sum, where nothing else reads its parts."""
    match op:
        case Apply("sqrt", (arg,)):
            total, is_square = definitions.unwrap(arg), False
        case Reduction("sum") as total:
            is_square = True
        case _:
            return None
    if not isinstance(total, Reduction) or not definitions.is_alone(total, axes_of(op)):
        return None
    found = _find_difference(definitions.spell(total))
    if found is None or any(map(is_integral, found[:2])):
        return None  # torch takes no integers
    if _is_self(*found) and definitions.has_any(_may_lack_slope):
        return None
    return arrange(_make_cell(*found, is_square=is_square), axes_of(op))


def _is_self(one: Op, other: Op, axes: tuple[Index, ...], _: tuple[Index, ...]) -> bool:
    """Are these the points' distances from each other, 0 from themselves?"""
    return rename_indices(one, {axes[-2]: axes[-1]}) is other


def _may_lack_slope(op: Op) -> bool:
    """May it have no slope at 0?

    Of a distance of 0 torch takes the slope for 0, whatever is made of it. The formula's root has
    none there, and passes nan on. Of a squared distance the slope is 0 either way.
    """
    match op:
        case Apply("pow", (_, Num(Number(exponent)))):
            return exponent.denominator != 1 or exponent < 0
        case Apply("/", (_, Num())):
            return False
        case Apply(function):
            return function in {"sqrt", "rsqrt", "log", "/", "pow"}
        case _:
            return False


def _find_difference(whole: Op) -> Found | None:
    """The two sets of points, the indices of their distances, and the one that is summed."""
    axes = axes_of(whole)
    for one, other in _list_differences(whole):
        first, second = axes_of(one), axes_of(other)
        summed = tuple(i for i in first if i in second and i not in axes)
        batch = tuple(i for i in axes if i in first and i in second)
        rows = tuple(i for i in axes if i in first and i not in second)
        columns = tuple(i for i in axes if i in second and i not in first)
        counts = (len(summed), len(rows), len(columns), len(first), len(second), len(axes))
        points = len(batch) + 2
        is_pairs = counts == (1, 1, 1, points, points, points)
        if not is_pairs or axes.index(rows[0]) > axes.index(columns[0]):
            continue
        spanned = (*batch, *rows, *columns)
        if is_same(whole, _spell(one, other, spanned, summed)):
            return one, other, spanned, summed
    return None


def _list_differences(whole: Op) -> Iterator[tuple[Op, Op]]:
    """What is subtracted from what, either way round."""
    for part in dict.fromkeys(walk_ops(whole)):
        if isinstance(part, Apply) and part.function == "-":
            one, other = map(strip, part.args)
            yield one, other
            yield other, one


def _spell(one: Op, other: Op, axes: tuple[Index, ...], summed: tuple[Index, ...]) -> Op:
    """The sum of the squared differences."""
    wide = (*axes, *summed)
    difference = Apply("-", (arrange(one, wide), arrange(other, wide)), wide)
    return Reduction("sum", Apply("pow", (difference, Num(TWO)), wide), summed)


def _make_cell(
    one: Op, other: Op, axes: tuple[Index, ...], summed: tuple[Index, ...], *, is_square: bool
) -> Cell:
    """The call for the distances; where it does not do they are computed as they are spelled."""
    *batch, row, column = axes
    points = (arrange(one, (*batch, row, *summed)), arrange(other, (*batch, column, *summed)))
    square = _spell(*points, axes, summed)
    whole: Op = square if is_square else Apply("sqrt", (square,), axes)
    scratch = (axes,) if is_square else ()

    def call(*given: Operand) -> TorchCall:
        distance = TorchCall(NAME, given, (MODE,))
        return TorchCall("**", (distance, 2)) if is_square else distance

    wide = call(Given(0), Given(1))
    narrow = call(*(TorchCall(".float", (Given(k),)) for k in (0, 1)))
    cast = TorchCall(".to", (narrow, Local("dtype")))
    whole = Cell(cast, points, whole, axes, ("real",), note=NOTE, scratch=scratch)
    return Cell(wide, points, whole, axes, ("wide",), note=NOTE, scratch=scratch)


CELLS = (
    CellRule(
        call=NAME,
        computes="x[N, D]; y[M, D]\ns[n,m] = sqrt(sum[d]((x[n,d] - y[m,d])**2))",
        refuses="x[N, D]; y[M, D]\ns[n,m] = sum[d]((x[n,d] + y[m,d])**2)",
        lacks=LACKS,
        match=match_distance,
    ),
)
