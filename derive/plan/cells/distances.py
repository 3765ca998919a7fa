"""sqrt(sum_d (x_nd - y_md)**2) is torch's cdist, and the squared distance its square.

By differences, which keep the digits of points that lie close together. By products it is faster by
far, and loses them: that is for a rule that may lose digits. torch's function is for float32 and
float64, so half precision is widened for it, and has no second derivatives.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from derive.ir import nodes as ir
from derive.plan import ops
from derive.plan.cells.matching import CellRule, is_same, strip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.plan.cells.matching import Definitions

NAME = "torch.cdist"
MODE = ("compute_mode", "donot_use_mm_for_euclid_dist")
LACKS = "it has no second and no forward derivatives; what --no-cells builds has them"
NOTE = f"{NAME}: {LACKS}"
TWO = ir.Number(Fraction(2))

Found: TypeAlias = tuple[ops.Op, ops.Op, tuple["ir.Index", ...], tuple["ir.Index", ...]]


def match_distance(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A root of a sum of squared differences, or that sum, where nothing else reads its parts."""
    match op:
        case ops.Apply("sqrt", (arg,)):
            total, is_square = definitions.unwrap(arg), False
        case ops.Reduction("sum") as total:
            is_square = True
        case _:
            return None
    if not isinstance(total, ops.Reduction) or not definitions.is_alone(total, ops.axes_of(op)):
        return None
    found = _find_difference(definitions.spell(total))
    if found is None or any(map(ops.is_integral, found[:2])):
        return None  # torch takes no integers
    if _is_self(*found) and definitions.has_any(_may_lack_slope):
        return None
    return ops.arrange(_make_cell(*found, is_square=is_square), ops.axes_of(op))


def _is_self(
    one: ops.Op, other: ops.Op, axes: tuple[ir.Index, ...], _: tuple[ir.Index, ...]
) -> bool:
    """Are these the points' distances from each other, 0 from themselves?"""
    return ops.rename_indices(one, {axes[-2]: axes[-1]}) is other


def _may_lack_slope(op: ops.Op) -> bool:
    """May it have no slope at 0?

    Of a distance of 0 torch takes the slope for 0, whatever is made of it. The formula's root has
    none there, and passes nan on. Of a squared distance the slope is 0 either way.
    """
    match op:
        case ops.Apply("pow", (_, ops.Num(ir.Number(exponent)))):
            return exponent.denominator != 1 or exponent < 0
        case ops.Apply("/", (_, ops.Num())):
            return False
        case ops.Apply(function):
            return function in {"sqrt", "rsqrt", "log", "/", "pow"}
        case _:
            return False


def _find_difference(whole: ops.Op) -> Found | None:
    """The two sets of points, the indices of their distances, and the one that is summed."""
    axes = ops.axes_of(whole)
    for one, other in _list_differences(whole):
        first, second = ops.axes_of(one), ops.axes_of(other)
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


def _list_differences(whole: ops.Op) -> Iterator[tuple[ops.Op, ops.Op]]:
    """What is subtracted from what, either way round."""
    for part in dict.fromkeys(ops.walk_ops(whole)):
        if isinstance(part, ops.Apply) and part.function == "-":
            one, other = map(strip, part.args)
            yield one, other
            yield other, one


def _spell(
    one: ops.Op, other: ops.Op, axes: tuple[ir.Index, ...], summed: tuple[ir.Index, ...]
) -> ops.Op:
    """The sum of the squared differences."""
    wide = (*axes, *summed)
    difference = ops.Apply("-", (ops.arrange(one, wide), ops.arrange(other, wide)), wide)
    return ops.Reduction("sum", ops.Apply("pow", (difference, ops.Num(TWO)), wide), summed)


def _make_cell(
    one: ops.Op,
    other: ops.Op,
    axes: tuple[ir.Index, ...],
    summed: tuple[ir.Index, ...],
    *,
    is_square: bool,
) -> ops.Cell:
    """The call for the distances; where it does not do they are computed as they are spelled."""
    *batch, row, column = axes
    points = (
        ops.arrange(one, (*batch, row, *summed)),
        ops.arrange(other, (*batch, column, *summed)),
    )
    square = _spell(*points, axes, summed)
    whole: ops.Op = square if is_square else ops.Apply("sqrt", (square,), axes)
    scratch = (axes,) if is_square else ()

    def call(*given: ops.Operand) -> ops.TorchCall:
        distance = ops.TorchCall(NAME, given, (MODE,))
        return ops.TorchCall("**", (distance, 2)) if is_square else distance

    wide = call(ops.Given(0), ops.Given(1))
    narrow = call(*(ops.TorchCall(".float", (ops.Given(k),)) for k in (0, 1)))
    cast = ops.TorchCall(".to", (narrow, ops.Local("dtype")))
    whole = ops.Cell(cast, points, whole, axes, ("real",), note=NOTE, scratch=scratch)
    return ops.Cell(wide, points, whole, axes, ("wide",), note=NOTE, scratch=scratch)


CELLS = (
    CellRule(
        call=NAME,
        computes="x[N, D]; y[M, D]\ns[n,m] = sqrt(sum[d]((x[n,d] - y[m,d])**2))",
        refuses="x[N, D]; y[M, D]\ns[n,m] = sum[d]((x[n,d] + y[m,d])**2)",
        lacks=LACKS,
        match=match_distance,
    ),
)
