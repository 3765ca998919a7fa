"""sqrt(sum_d (x_nd - y_md)**2) is torch's cdist, and the squared distance its square.

By differences, which keep the digits of points that lie close together. By products it is faster by
far, and loses them: that is for a rule that may lose digits, and for a root that is read by nothing
but what is smooth in the square. torch's function is for float32 and float64, so half precision is
widened for it, and has no second derivatives. Its slope at a distance of 0 is 0, as that of any
norm. What is made of it may have none there: of points' distances from each other those from
themselves are then computed as they are spelled, and put on the diagonal. The sum of absolute
differences is its distance with p = 1. The mean of squared differences of two tensors is its
mse_loss.

Any other sqrt(sum x**2) is its vector_norm, whose slope at 0 is 0, where that of a root is not
finite. Torch takes half the time for it along entries that lie side by side, and up to 50 times as
long where they lie apart; norms with other powers, or of the largest, take it 2 to 10 times as long
as their operations do (CPU, float32).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial

from derive.analysis.facts import is_finite_where_defined
from derive.ir import nodes as ir
from derive.ir.text import to_text
from derive.ir.walk import rewrite_bottom_up, substitute
from derive.plan import ops
from derive.plan.cells.matching import CellRule, Definitions, is_equal, is_same, sort_stored, strip
from derive.plan.cells.pointwise import match_exchanged, spell_equal
from derive.plan.meaning import to_expr

NAME, NORM = "torch.cdist", "torch.linalg.vector_norm"
MODE, ONE = ("compute_mode", "donot_use_mm_for_euclid_dist"), ("p", 1)
PRODUCTS = ("compute_mode", "use_mm_for_euclid_dist")
LACKS = "it has no second and no forward derivatives; what --no-cells builds has them"
NOTE = f"{NAME}: {LACKS}"
LOSES = f"{NOTE}; by products: its square rounds as the largest of all does"
TWO = ir.Number(Fraction(2))


def match_distance(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A root of a sum of squared differences, or that sum, or one of absolute differences.

    Nothing else reads its parts.
    """
    total, scale = _find_total(op, definitions)
    if not isinstance(total, ops.Reduction) or total.kind != "sum":
        return None
    if not definitions.is_alone(total, ops.axes_of(op)):
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
            spanned, wide = (*batch, *rows, *columns), (*batch, *rows, *columns, *summed)
            if axes.index(rows[0]) > axes.index(columns[0]):
                continue
            of = next((f for f in OF if is_same(whole, f("sum", one, other, wide, summed))), None)
            if of is None or (of is _spell_sizes and total is not op):
                continue
            # of the points' distances from each other some are 0; torch takes no integers
            is_self = ops.rename_indices(one, {rows[0]: columns[0]}) is other
            forgives = (
                total is not op
                and of is _spell
                and not definitions.exact
                and is_finite_where_defined(to_expr(definitions.spell(other)))
                and _is_even(op, definitions)
            )
            is_steep = of is _spell and is_self and not forgives
            if ops.is_integral(one) or ops.is_integral(other):
                return None
            points = (
                ops.arrange(one, (*batch, *rows, *summed)),
                ops.arrange(other, (*batch, *columns, *summed)),
            )
            points = _centre(points) if forgives else points
            bare = of("sum", *points, wide, summed)
            bare = bare if total is op else ops.Apply("sqrt", (bare,), spanned)
            keyword = ONE if of is _spell_sizes else PRODUCTS if forgives else MODE
            cell: ops.Op = _write_distance(points, bare, summed, keyword, is_square=total is op)
            if is_steep and _lacks_slope(total, definitions):
                equal = spell_equal(rows[0], columns[0], spanned)
                found = match_exchanged(ops.Choose(equal, bare, cell, spanned), definitions)
                if found is None:
                    return None
                cell = found
            scaled = ops.Apply("*", (cell, scale), spanned) if scale is not None else cell
            return ops.arrange(scaled, ops.axes_of(op))
    return None


def _find_total(op: ops.Op, definitions: Definitions) -> tuple[ops.Op, ops.Num | None]:
    """What the root is of, without a number that is taken out; or the operation itself."""
    match op:
        case ops.Apply("sqrt", (arg,)):
            match definitions.unwrap(arg):
                case ops.Apply("*", (total, ops.Num(ir.Number(value)))) if value > 0:
                    root = ir.Pow(ir.Number(value), ir.Number(Fraction(1, 2)))
                    return definitions.unwrap(total), ops.Num(root)
                case total:
                    return total, None
        case _:
            return op, None


def _find_differences(whole: ops.Op) -> Iterator[ops.Apply]:
    for part in dict.fromkeys(ops.walk_ops(whole)):
        if isinstance(part, ops.Apply) and part.function == "-":
            yield part


def _spell(  # noqa: PLR0913 - what a sum is of, over, and made by
    kind: str,
    one: ops.Op,
    other: ops.Op,
    wide: tuple[ir.Index, ...],
    over: tuple[ir.Index, ...],
    *,
    squares: bool = True,
) -> ops.Op:
    """The sum or the mean of the squared differences, or of the absolute ones."""
    difference = ops.Apply("-", (ops.arrange(one, wide), ops.arrange(other, wide)), wide)
    square = ops.Apply("pow", (difference, ops.Num(TWO)), wide)
    return ops.Reduction(kind, square if squares else ops.Apply("abs", (difference,), wide), over)


_spell_sizes = partial(_spell, squares=False)
OF = (_spell, _spell_sizes)


def _write_distance(
    points: tuple[ops.Op, ops.Op],
    bare: ops.Op,
    summed: tuple[ir.Index, ...],
    keyword: tuple[str, ops.Operand],
    *,
    is_square: bool,
) -> ops.Cell:
    """The call for the distances; where it does not do they are computed as they are spelled."""
    axes, is_square = ops.axes_of(bare), is_square and keyword is not ONE
    scratch = (axes,) if is_square else ()

    def call(*given: ops.Operand) -> ops.TorchCall:
        distance = ops.TorchCall(NAME, given, (keyword,))
        return ops.TorchCall("**", (distance, 2)) if is_square else distance

    def write(made: ops.Operand, whole: ops.Op, when: ops.Condition) -> ops.Cell:
        if keyword is PRODUCTS:
            return ops.Cell(made, points, whole, axes, (when,), (*axes, *summed), LOSES)
        return ops.Cell(made, points, whole, axes, (when,), (), NOTE, scratch, single=summed)

    wide = call(ops.Given(0), ops.Given(1))
    narrow = call(*(ops.TorchCall(".float", (ops.Given(k),)) for k in (0, 1)))
    cast = ops.TorchCall(".to", (narrow, ops.Local("dtype")))
    return write(wide, write(cast, bare, "real"), "wide")


def _centre(points: tuple[ops.Op, ops.Op]) -> tuple[ops.Op, ops.Op]:
    """Both less the mean of the others, so that an offset that they share costs no digits."""
    mean = ops.Reduction("mean", points[1], (ops.axes_of(points[1])[-2],))
    one, other = (ops.combine("-", (point, mean), ops.axes_of(point)) for point in points)
    return one, other


def _is_even(root: ops.Op, definitions: Definitions) -> bool:
    """Is all that reads a root smooth in what the root is of, also where that is 0?

    Then it rounds as that does. Such a function of the root r has no slope by r at 0: that of
    (1 + r) exp(-r) is -r exp(-r). What is made of it is not to be steep there in turn.
    """
    by_name: dict[str, tuple[ir.Expr, ir.Expr]] = {}  # at r = 0: the value and the slope of each
    for name, step in definitions.steps.items():
        found = _find_slope(step.op, root, by_name, definitions)
        if found is None:
            return False
        if not is_equal(rewrite_bottom_up(found[1], _name_inverse), ir.ZERO):
            by_name[name] = found
    read = {name for op in definitions.results for name in ops.find_reads(op)}
    if not by_name or read & set(by_name):
        return False
    return not any(
        _may_be_zero(arg, definitions) and root in definitions.walk(arg)
        for step in definitions.steps.values()
        for op in ops.walk_ops(step.op)
        for arg in (_find_steep(op) if op is not root else ())
    )


def _name_inverse(expr: ir.Expr) -> ir.Expr:
    """A power of a divisor as one of a scalar: it cancels, whether it is defined or not."""
    match expr:
        case ir.Pow(base, ir.Number(power)) if power < 0:
            return ir.Pow(ir.Scalar(f"1/({to_text(base)})"), ir.Number(-power))
        case _:
            return expr


def _find_slope(
    op: ops.Op,
    root: ops.Op,
    by_name: Mapping[str, tuple[ir.Expr, ir.Expr]],
    definitions: Definitions,
) -> tuple[ir.Expr, ir.Expr] | None:
    """The value and the slope by a root where that is 0; None where they are not known."""
    if op is root:
        return ir.ZERO, ir.ONE
    if isinstance(op, ops.Source) and op.name in by_name:
        axes: tuple[ir.Expr, ...] = definitions.steps[op.name].axes
        value, slope = (
            substitute(each, dict(zip(axes, op.axes, strict=True))) for each in by_name[op.name]
        )
        return value, slope
    parts = ops.walk_ops(op)
    if not any(p is root or (isinstance(p, ops.Source) and p.name in by_name) for p in parts):
        return to_expr(op), ir.ZERO
    args = [_find_slope(arg, root, by_name, definitions) for arg in ops.args_of(op)]
    known = [arg for arg in args if arg is not None]
    if len(known) < len(args):
        return None
    if all(slope is ir.ZERO for _, slope in known):
        return to_expr(op), ir.ZERO
    match op, known:
        case (ops.Arrange(), [one]):
            return one
        case (ops.Apply("+", _), [(a, s), (b, t)]):
            return ir.Add((a, b)), ir.Add((s, t))
        case (ops.Apply("-", _), [(a, s), (b, t)]):
            return ir.Add((a, ir.Mul((ir.MINUS_ONE, b)))), ir.Add((s, ir.Mul((ir.MINUS_ONE, t))))
        case (ops.Apply("neg", _), [(a, s)]):
            return ir.Mul((ir.MINUS_ONE, a)), ir.Mul((ir.MINUS_ONE, s))
        case (ops.Apply("*", _), [(a, s), (b, t)]):
            return ir.Mul((a, b)), ir.Add((ir.Mul((s, b)), ir.Mul((a, t))))
        case (ops.Apply("/", _), [(a, s), (b, t)]) if t is ir.ZERO:
            under = ir.Pow(b, ir.MINUS_ONE)
            return ir.Mul((a, under)), ir.Mul((s, under))
        case (ops.Apply("exp", _), [(a, s)]):
            value = ir.Call("exp", (a,))
            return value, ir.Mul((value, s))
        case (ops.Apply("pow", (_, ops.Num(ir.Number(n)))), [(a, s), _]) if n >= 2:
            return ir.Pow(a, ir.Number(n)), ir.Mul((ir.Number(n), ir.Pow(a, ir.Number(n - 1)), s))
        case _:
            return None


def _lacks_slope(total: ops.Op, definitions: Definitions) -> bool:
    """May something have no slope where these squared distances of points from each other are 0?

    Of a distance of 0 torch takes the slope for 0, whatever is made of it. That is the slope of
    their root, a norm, and of themselves. Anything else passes nan on, to each point by its
    distance from itself: so that distance is computed as it is spelled.
    """
    return any(
        _may_be_zero(arg, definitions) and total in definitions.walk(arg)
        for step in definitions.steps.values()
        for part in ops.walk_ops(step.op)
        if _find_root(part, definitions) is not total
        for arg in _find_steep(part)
    )


def _find_root(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """What it is the root of."""
    match op:
        case ops.Apply("sqrt", (arg,)):
            return definitions.unwrap(arg)
        case _:
            return None


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


def match_vector_norm(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """The root of a sum of squares that nothing else reads, or one over it."""
    match op:
        case ops.Apply("sqrt" | "rsqrt" as root, (total,), axes):
            pass
        case _:
            return None
    match definitions.unwrap(total):
        case ops.Reduction("sum", ops.Apply("pow", (arg, ops.Num(two))), over) if two is TWO:
            pass
        case _:
            return None
    arg = ops.arrange(arg, sort_stored(arg, definitions.memory))
    inner = ops.axes_of(arg)
    is_close = set(inner[-len(over) :]) == {*over}
    if not is_close or ops.is_integral(arg) or ops.is_boolean(arg) or ops.is_complex(arg):
        return None
    places = tuple(range(-len(over), 0)) if len(over) > 1 else -1
    call = ops.TorchCall(NORM, (ops.Given(0),), (("dim", places),) * (len(over) < len(inner)))
    square = ops.Reduction("sum", ops.Apply("pow", (arg, ops.Num(TWO)), inner), inner[-len(over) :])
    made = ops.axes_of(square)
    whole = ops.Apply(root, (square,), made)
    if root == "rsqrt":
        call = ops.TorchCall(".reciprocal", (call,))
    return ops.arrange(ops.Cell(call, (arg,), whole, made), axes)


CELLS = (
    CellRule(
        call=NAME,
        computes="x[N, D]; y[M, D]\ns[n,m] = sqrt(sum[d]((x[n,d] - y[m,d])**2))",
        refuses="x[N, D]; y[M, D]\ns[n,m] = sum[d]((x[n,d] + y[m,d])**2)",
        lacks=LACKS,
        match=match_distance,
    ),
    CellRule(
        call=NORM,
        computes="x, y[N, D]\nz[n] = norm[d](x[n,d] - y[n,d]) + 1",
        refuses="x, y[N, D]\nz[d] = norm[n](x[n,d] - y[n,d]) + 1",
        match=match_vector_norm,
    ),
    CellRule(
        call="torch.nn.functional.mse_loss",
        computes="x, y[N, D]\nL = mean[n,d]((x[n,d] - y[n,d])**2)",
        refuses="x, y[N, D]\nL = mean[n,d]((x[n,d] - y[n,d])**2 * x[n,d])",
        match=match_squared_loss,
    ),
)
