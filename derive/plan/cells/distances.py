"""sqrt(sum_d (x_nd - y_md)**2) is torch's cdist, and the squared distance its square.

By differences, which keep the digits of points that lie close together. By products it is faster by
far, and loses them: that is for a rule that may lose digits. torch's function is for float32 and
float64, so half precision is widened for it, and has no second derivatives. The mean of squared
differences of two tensors is its mse_loss.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

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
    whole = definitions.spell(total)
    axes = ops.axes_of(whole)
    for difference in _find_differences(whole):
        for one, other in (difference.args, difference.args[::-1]):
            one, other = strip(one), strip(other)  # noqa: PLW2901 - the points without an order
            first, second = ops.axes_of(one), ops.axes_of(other)
            summed = tuple(i for i in first if i in second and i not in axes)
            batch = tuple(i for i in axes if i in first and i in second)
            rows = tuple(i for i in axes if i in first and i not in second)
            columns = tuple(i for i in axes if i in second and i not in first)
            counts = (len(summed), len(rows), len(columns), len(first), len(second), len(axes))
            if counts != (1, 1, 1, *(len(batch) + 2,) * 3):
                continue
            spanned = (*batch, *rows, *columns)
            if axes.index(rows[0]) > axes.index(columns[0]) or not is_same(
                whole, _spell("sum", one, other, (*spanned, *summed), summed)
            ):
                continue
            # of the points' distances from each other some are 0; torch takes no integers
            is_self = ops.rename_indices(one, {rows[0]: columns[0]}) is other
            if is_self and _lacks_slope(total, definitions):
                return None
            if ops.is_integral(one) or ops.is_integral(other):
                return None
            points = (
                ops.arrange(one, (*batch, *rows, *summed)),
                ops.arrange(other, (*batch, *columns, *summed)),
            )
            bare = _spell("sum", *points, (*spanned, *summed), summed)
            bare = bare if is_square else ops.Apply("sqrt", (bare,), spanned)
            return ops.arrange(_write_distance(points, bare, spanned, is_square), ops.axes_of(op))
    return None


def _find_differences(whole: ops.Op) -> Iterator[ops.Apply]:
    for part in dict.fromkeys(ops.walk_ops(whole)):
        if isinstance(part, ops.Apply) and part.function == "-":
            yield part


def _spell(
    kind: str,
    one: ops.Op,
    other: ops.Op,
    wide: tuple[ir.Index, ...],
    over: tuple[ir.Index, ...],
) -> ops.Op:
    """The sum or the mean of the squared differences."""
    difference = ops.Apply("-", (ops.arrange(one, wide), ops.arrange(other, wide)), wide)
    return ops.Reduction(kind, ops.Apply("pow", (difference, ops.Num(TWO)), wide), over)


def _write_distance(
    points: tuple[ops.Op, ops.Op], bare: ops.Op, axes: tuple[ir.Index, ...], is_square: bool
) -> ops.Cell:
    """The call for the distances; where it does not do they are computed as they are spelled."""
    scratch = (axes,) if is_square else ()

    def call(*given: ops.Operand) -> ops.TorchCall:
        distance = ops.TorchCall(NAME, given, (MODE,))
        return ops.TorchCall("**", (distance, 2)) if is_square else distance

    wide = call(ops.Given(0), ops.Given(1))
    narrow = call(*(ops.TorchCall(".float", (ops.Given(k),)) for k in (0, 1)))
    cast = ops.TorchCall(".to", (narrow, ops.Local("dtype")))
    inner = ops.Cell(cast, points, bare, axes, ("real",), note=NOTE, scratch=scratch)
    return ops.Cell(wide, points, inner, axes, ("wide",), note=NOTE, scratch=scratch)


def _lacks_slope(total: ops.Op, definitions: Definitions) -> bool:
    """May something have no slope where these squared distances of points from each other are 0?

    Of a distance of 0 torch takes the slope for 0, whatever is made of it. The formula's root has
    none there, and passes nan on. Of a squared distance the slope is 0 either way.
    """
    return any(
        _may_be_zero(arg, definitions) and total in definitions.walk(arg)
        for step in definitions.steps.values()
        for part in ops.walk_ops(step.op)
        for arg in _find_steep(part)
    )


def _find_steep(op: ops.Op) -> tuple[ops.Op, ...]:
    """The arguments at which an operation has no slope at 0."""
    match op:
        case ops.Apply("pow", (_, ops.Num(ir.Number(exponent)))) if (
            exponent.denominator == 1 and exponent >= 0
        ):
            return ()
        case ops.Apply("/", (_, under)):
            return () if isinstance(under, ops.Num) else (under,)
        case ops.Apply("sqrt" | "rsqrt" | "log" | "pow", args):
            return args
        case _:
            return ()


def _may_be_zero(op: ops.Op, definitions: Definitions) -> bool:
    """May it be 0 where a distance is? Not what a number is added to, or put for a diagonal."""
    match definitions.look(strip(op)):
        case ops.Num(number) | ops.NumTensor(number):
            return number == ir.ZERO
        case ops.Apply("+", args) if any(isinstance(arg, ops.Num) for arg in args):
            return False
        case ops.Apply("*" | "pow" | "sqrt" | "/" as function, args):
            made = args if function == "*" else args[:1]
            return any(_may_be_zero(arg, definitions) for arg in made)
        case ops.Fill(arg, _, value):
            return _may_be_zero(arg, definitions) or _may_be_zero(value, definitions)
        case ops.Cell(ops.TorchCall("torch.diagonal_scatter"), (_, given)):
            inner = given.arg if isinstance(given, ops.Expand) else given
            return _may_be_zero(inner, definitions)
        case _:
            return True


def match_squared_loss(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """The mean of the squared differences of two tensors over all their indices."""
    is_number = isinstance(op, (ops.Apply, ops.Reduction)) and not ops.axes_of(op)
    if not is_number or not definitions.is_alone(op):
        return None
    whole = definitions.spell(op)
    for difference in _find_differences(whole):
        axes, args = difference.axes, [strip(arg) for arg in difference.args]
        if any(set(ops.axes_of(arg)) != set(axes) or ops.is_integral(arg) for arg in args):
            continue  # torch would warn of sizes that broadcast, and takes no integers
        one, other = (ops.arrange(arg, axes) for arg in args)
        mean = _spell("mean", one, other, axes, axes)
        if is_same(whole, mean):
            call = ops.TorchCall("torch.nn.functional.mse_loss", (ops.Given(0), ops.Given(1)))
            return ops.Cell(call, (one, other), mean, (), scratch=(axes,))
    return None


CELLS = (
    CellRule(
        call=NAME,
        computes="x[N, D]; y[M, D]\ns[n,m] = sqrt(sum[d]((x[n,d] - y[m,d])**2))",
        refuses="x[N, D]; y[M, D]\ns[n,m] = sum[d]((x[n,d] + y[m,d])**2)",
        lacks=LACKS,
        match=match_distance,
    ),
    CellRule(
        call="torch.nn.functional.mse_loss",
        computes="x, y[N, D]\nL = mean[n,d]((x[n,d] - y[n,d])**2)",
        refuses="x, y[N, D]\nL = mean[n,d]((x[n,d] - y[n,d])**2 * x[n,d])",
        match=match_squared_loss,
    ),
)
