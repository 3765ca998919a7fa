"""sqrt(sum_d (x_nd - y_md)**2) as torch's cdist, and the squared distance as its square.

cdist has two algorithms. By matrix products it is fast, but small distances lose digits; the mean
of the points is subtracted first, so that a common offset costs none. By differences it takes many
times as long and has no second derivatives. Products are used for roots, except:

- where a reader magnifies the error of a small distance,
- where digits must be kept (`exact`),
- where different points may coincide, such as rows selected by data or clipped by relu.

The distance of a point from itself is 0 either way. A squared distance by products is left to a
rewrite rule that may lose digits. Sums of a few squares are written out over contiguous
coordinates: exact, in a third of the time, and with three coordinates as fast as products.

cdist takes float32 and float64, so half precision is widened. Its gradient at a distance of 0 is 0.
Where a function of the distances has no derivative at 0, the distances of points from themselves
are computed by the original operations and scattered onto the diagonal. A sum of absolute
differences is cdist with p = 1, a mean of squared differences mse_loss.

Any other sqrt(sum x**2) is vector_norm, whose gradient at 0 is 0 instead of infinite. It takes half
the time of the operations along contiguous entries, and up to 50 times as long along others. Norms
with other exponents and maximum norms are not matched: they take 2 to 10 times as long as their
operations (CPU, float32).
"""

from collections.abc import Collection, Iterator
from fractions import Fraction
from typing import Any

from derive.analysis.extents import is_filled
from derive.analysis.safety import is_finite_where_defined
from derive.ir import nodes as ir
from derive.ir.definitions import is_flat
from derive.ir.norms import is_norm
from derive.ir.polynomial import is_same_extent
from derive.ir.walk import find_accesses, find_free
from derive.plan import ops
from derive.plan.cells.matching import LACKS, Definitions, is_floating, is_same, sort_stored, strip
from derive.plan.cells.pointwise import match_choice, match_equality, write_equality_mask
from derive.plan.cost import time_op
from derive.plan.lower.patterns import make_cell, make_op
from derive.plan.machine import LAUNCH
from derive.plan.meaning import find_values, to_expr

SQUARES, ABSOLUTES = "sum[over]((x - y) ** 2)", "sum[over](abs(x - y))"
MODE, ONE = "compute_mode='donot_use_mm_for_euclid_dist'", "p=1"
PRODUCTS = "compute_mode='use_mm_for_euclid_dist'"
NOTE = f"torch.cdist: {LACKS}"
LOSES = (
    "torch.cdist: by products, its square rounds as the largest of all does; "
    "it may lack forward derivatives"
)
CALLS = 5  # extra calls for distances by products: 15 microseconds for 16 points and for 64
TWO = ir.Number(Fraction(2))
FEW = 4  # the most squares that are written out
PASSES = 3  # over the distances per coordinate: subtract, square, add


def match_distance(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A Euclidean distance, its square, or a sum of absolute differences as a cdist, or None.

    Its parts have no other readers. sqrt(where(c, sum, 1)) is rewritten as where(c, sqrt(sum), 1).
    """
    match op:
        case ops.Apply("sqrt", (arg,), axes):
            match definitions.unwrap(arg):
                case ops.Fill(total, mask, ops.Num(ir.ONE) as one, where):
                    bare = ops.Apply("sqrt", (total,), axes)
                    equality = None if where else match_equality(mask, definitions)
                    is_apart = equality is not None and not equality[0]
                    root = _match_distance(bare, op, definitions, excludes_diagonal=is_apart)
                    found = root and ops.Fill(root, mask, one, where)
                    return found and (match_choice(found, definitions) or found)
    return _match_distance(op, op, definitions, excludes_diagonal=False)


def _match_distance(
    op: ops.Op, read: ops.Op, definitions: Definitions, *, excludes_diagonal: bool
) -> ops.Op | None:
    """A distance as a cdist, or None; readers see `read`, which may guard its root."""
    total, scale = _find_sum(op, definitions)
    is_square, memory = total is op, definitions.memory
    if not isinstance(total, ops.Reduction) or total.kind != "sum":
        return None
    if not definitions.is_only_reader(total, op.axes):
        return None
    whole = definitions.inline_elementwise(total)
    for points in _find_points(whole):
        *_, row, index = points[0].axes
        column, summed = points[1].axes[-2], (index,)
        wide, spanned = (*points[0].axes[:-1], column, index), (*points[0].axes[:-1], column)
        given = {"x": points[0], "y": points[1], "over": summed}
        forms = (make_op(text, wide, **given) for text in (SQUARES, ABSOLUTES))
        square = next((form for form in forms if is_same(whole, form)), None)
        is_euclidean = square is make_op(SQUARES, wide, **given)
        if square is None or not (is_euclidean or is_square):
            continue
        if any(map(ops.is_integral, points)):
            return None
        is_self = ops.rename_indices(points[0], {row: column}) is points[1]  # 0 on the diagonal
        tolerates_rounding = (
            not is_square
            and not definitions.exact
            and is_finite_where_defined(to_expr(definitions.inline_elementwise(points[1])))
            and not any(_find_singular_readers(read, definitions, near=True))
            and not _may_coincide(*points, is_self=is_self, definitions=definitions)
        )
        bare = square if is_square else ops.Apply("sqrt", (square,), spanned)
        mode = MODE if is_euclidean else ONE
        cell: ops.Op = _write_distance(points, bare, summed, mode, is_square=is_square)
        own: ops.Op | None = None  # the diagonal, where the values of cdist do not do
        fast = _write_distance(points, bare, summed, PRODUCTS, is_square=False)
        direct, by_products = time_op(cell, memory), time_op(fast, memory) + CALLS * LAUNCH
        is_fast = tolerates_rounding and by_products < direct
        short = _write_squares(points, square, index) if is_euclidean else None
        if short and time_op(short, memory) < (by_products if is_fast else direct):
            if read is not op:  # the gradient of a guarded root is that of its square
                return None
            cell = short if is_square else ops.Apply("sqrt", (short,), spanned)
        elif is_fast:
            cell, own = fast, ops.Num(ir.ZERO)
        elif is_euclidean and is_self and _needs_exact_diagonal(total, definitions):
            own = bare
        if own is not None and is_self and not excludes_diagonal:
            equal = write_equality_mask(row, column, spanned)
            found = match_choice(ops.Choose(equal, own, cell, spanned), definitions)
            if found is None:
                return None
            cell = found
        scaled = ops.Apply("*", (cell, scale), spanned) if scale is not None else cell
        return ops.arrange(scaled, op.axes)
    return None


def _find_points(whole: ops.Op) -> Iterator[tuple[ops.Op, ops.Op]]:
    """Yield the pairs x[batch, row, d] and y[batch, column, d] whose difference is read."""
    axes = whole.axes
    for difference in _find_differences(whole):
        for one, other in (difference.args, difference.args[::-1]):
            first, second = strip(one).axes, strip(other).axes
            summed = tuple(i for i in first if i in second and i not in axes)
            batch = tuple(i for i in axes if i in first and i in second)
            rows = tuple(i for i in axes if i in first and i not in second)
            columns = tuple(i for i in axes if i in second and i not in first)
            counts = (len(summed), len(rows), len(columns), len(first), len(second), len(axes))
            if counts != (1, 1, 1, *(len(batch) + 2,) * 3):
                continue
            if axes.index(rows[0]) < axes.index(columns[0]):
                yield (
                    ops.arrange(strip(one), (*batch, *rows, *summed)),
                    ops.arrange(strip(other), (*batch, *columns, *summed)),
                )


def _find_sum(op: ops.Op, definitions: Definitions) -> tuple[ops.Op, ops.Num | None]:
    """For sqrt(c * s), return (s, sqrt(c)); for sqrt(s), (s, None); for others, (op, None)."""
    match op:
        case ops.Apply("sqrt", (arg,)):
            match definitions.unwrap(arg):
                case ops.Apply("*", (total, ops.Num(ir.Number(value)))) if value > 0:
                    root = ir.Pow(ir.Number(value), ir.Number(Fraction(1, 2)))
                    return definitions.unwrap(total), ops.Num(root)
                case total:
                    return total, None
    return op, None


def _find_differences(whole: ops.Op) -> Iterator[ops.Apply]:
    for part in dict.fromkeys(ops.walk_ops(whole)):
        if isinstance(part, ops.Apply) and part.function == "-":
            yield part


def _write_squares(
    points: tuple[ops.Op, ops.Op], whole: ops.Op, summed: ir.Index
) -> ops.Cell | None:
    """Return the sum of squares written out as one call if there are at most FEW, else None.

    Each coordinate is made contiguous. Torch sums squares of half precision in float32, which a sum
    written out does not, so the call is for wide dtypes only.
    """
    if not isinstance(summed.extent, ir.Number) or summed.extent.value > FEW:
        return None
    x, y = map(_put_coordinates_first, points)
    given = {"x": x, "y": y} if x is not y else {"x": x}
    axes, batch = whole.axes, ":, " * (len(whole.axes) - 2)
    text = " + ".join(
        f"(x[{k}, {batch}:, None] - {list(given)[-1]}[{k}, {batch}{'None' if batch else ''}]) ** 2"
        for k in range(int(summed.extent.value))
    )
    volume = (*axes, ir.Index("passes", ir.Number(PASSES * summed.extent.value)))
    scratch = (axes, axes)
    return make_cell(text, given, whole, when=("wide",), volume=volume, scratch=scratch)


def _put_coordinates_first(points: ops.Op) -> ops.Op:
    """Return a contiguous copy of the points with the coordinates as the first axis."""
    *rest, summed = points.axes
    turned = ops.arrange(points, (summed, *rest))
    return make_cell("x.contiguous()", {"x": turned}, turned, (summed, *rest), volume=turned.axes)


def _write_distance(
    points: tuple[ops.Op, ops.Op],
    bare: ops.Op,
    summed: tuple[ir.Index, ...],
    mode: str,
    *,
    is_square: bool,
) -> ops.Cell:
    """Return the call of cdist in this mode; for other dtypes the operations `bare` are kept.

    By products, the mean of one set of points is subtracted from both, so that a common offset
    costs no digits. Not in half precision, whose values are rounded already.
    """
    end = " ** 2" if is_square and mode is not ONE else ""
    given = dict(zip("xy", points, strict=True))
    fields: dict[str, Any] = {"note": NOTE, "single": summed}
    fields["scratch"] = (bare.axes,) if end else ()
    wide = f"torch.cdist(x, y, {mode}){end}"
    direct = ONE if mode is ONE else MODE
    narrow = f"(torch.cdist(x.float(), y.float(), {direct}){end}).to(dtype)"
    if mode is PRODUCTS:
        given["c"] = _find_mean_point(points[1], points[0].axes[-2])
        mean = "c.unsqueeze(-2)" if given["c"].axes[1:] else "c"
        wide = f"torch.cdist(x - {mean}, y - {mean}, {mode})"
        fields = {"note": LOSES, "volume": (*bare.axes, *summed)}
    other = make_cell(narrow, given, bare, when=("real",), **fields)
    return make_cell(wide, given, other, when=("wide",), **fields)


def _find_mean_point(points: ops.Op, other: ir.Index) -> ops.Op:
    """Return the mean of the points, or 0 where there are none but the other set may have some."""
    index = points.axes[-2]
    if is_filled(index) or is_same_extent(index.extent, other.extent):
        return ops.Reduction("mean", points, (index,))
    total = ops.Reduction("sum", points, (index,))
    count = ops.Num(ir.Call("max", (index.extent, ir.ONE)))
    return ops.combine("/", (total, count), total.axes)


def _may_coincide(one: ops.Op, other: ops.Op, *, is_self: bool, definitions: Definitions) -> bool:
    """Whether two different points may be equal: read from one tensor, or clipped alike.

    By products their distance would be a rounding error instead of 0.
    """
    first, second = ({*point.axes} for point in (one, other))
    read = [
        {*_list_varying_inputs(point, axes, definitions)}
        for point, axes in ((one, first - second), (other, second - first))
    ]
    return (not is_self and not read[0].isdisjoint(read[1])) or any(
        isinstance(part, (ops.Choose, ops.Fill))
        or (isinstance(part, ops.Apply) and is_flat(part.function))
        or ((ops.is_integral(part) or ops.is_boolean(part)) and part.axes != ())
        for point in (one, other)
        for part in definitions.walk_parts(point)
    )


def _list_varying_inputs(
    op: ops.Op, indices: Collection[ir.Index], definitions: Definitions
) -> Iterator[str]:
    """Yield the inputs whose entries read by the operation depend on the indices."""
    for access in find_accesses(to_expr(op)):
        name, places = access.tensor.name, list(map(find_free, access.places))
        step = definitions.steps.get(name)
        if step is not None:
            inner = [i for i, free in zip(step.axes, places, strict=True) if {*indices} & {*free}]
            yield from _list_varying_inputs(step.op, inner, definitions) if inner else ()
        elif any({*indices} & {*free} for free in places):
            yield name


def _find_singular_readers(op: ops.Op, definitions: Definitions, *, near: bool) -> Iterator[ops.Op]:
    """Yield the operations that divide by a function of `op`, or take its root or logarithm.

    Only functions that may be 0 where `op` is 0 count; with `near`, close to 0.
    """
    for step in definitions.steps.values():
        for part in ops.walk_ops(step.op):
            for arg in _find_singular_args(part) if part is not op else ():
                may_be_zero = _may_be_zero(arg, definitions, near=near)
                if may_be_zero and op in definitions.walk_parts(arg):
                    yield part


def _needs_exact_diagonal(total: ops.Op, definitions: Definitions) -> bool:
    """Whether a reader other than a norm has no derivative where these squared distances are 0.

    Torch's gradient of cdist at 0 is 0, as it is for the square and for norms. Any other one makes
    it nan, so a point's distance to itself is computed by the original operations.
    """
    known = find_values(definitions.steps.values())
    readers = _find_singular_readers(total, definitions, near=False)
    return any(not is_norm(to_expr(part), known) for part in readers)


def _find_singular_args(op: ops.Op) -> tuple[ops.Op, ...]:
    """Return the arguments of an operation whose derivative is undefined or infinite at 0."""
    match op:
        case ops.Apply("pow", (_, ops.Num(ir.Number(exponent)))) if (
            exponent.denominator == 1 and exponent >= 0
        ):
            return ()
        case ops.Apply("/", (_, under)):
            return () if isinstance(under, ops.Num) else (under,)
        case ops.Apply("sqrt" | "rsqrt" | "log" | "pow", args):
            return args
    return ()


def _may_be_zero(op: ops.Op, definitions: Definitions, *, near: bool = False) -> bool:
    """Whether a function of a distance may be 0 where the distance is: not if a constant is added.

    With `near`, whether it may be close to 0: not if the added constant is at least 1.
    """
    match definitions.definition_of(strip(op)):
        case ops.Num(number) | ops.NumTensor(number):
            return number == ir.ZERO
        case ops.Apply("+", args) if any(
            isinstance(arg, ops.Num)
            and (not near or (isinstance(arg.value, ir.Number) and arg.value.value >= 1))
            for arg in args
        ):
            return False
        case ops.Apply("*" | "pow" | "sqrt" | "/" as function, args):
            made = args if function == "*" else args[:1]
            return any(_may_be_zero(arg, definitions, near=near) for arg in made)
        case ops.Fill(arg, _, value):
            return any(_may_be_zero(each, definitions, near=near) for each in (arg, value))
    return True


def match_squared_loss(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """The mean of squared differences of two tensors over all indices as mse_loss, or None."""
    is_number = isinstance(op, (ops.Apply, ops.Reduction)) and not op.axes
    if not is_number or not definitions.is_only_reader(op):
        return None
    whole = definitions.inline_elementwise(op)
    for difference in _find_differences(whole):
        axes, args = difference.axes, [strip(arg) for arg in difference.args]
        if any(set(arg.axes) != set(axes) or ops.is_integral(arg) for arg in args):
            continue  # mse_loss warns of broadcasting and takes no integers
        given = {name: ops.arrange(arg, axes) for name, arg in zip("xy", args, strict=True)}
        mean = make_op("mean[over]((x - y) ** 2)", axes, over=axes, **given)
        if is_same(whole, mean):
            text = "torch.nn.functional.mse_loss(x, y)"
            return make_cell(text, given, mean, scratch=(axes,))
    return None


def match_vector_norm(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """The root, or reciprocal root, of a sum of squares as vector_norm, or None."""
    match op:
        case ops.Apply("sqrt" | "rsqrt" as root, (total,), axes):
            inside = definitions.unwrap(total)
        case _:
            return None
    match inside:
        case ops.Reduction("sum", ops.Apply("pow", (arg, ops.Num(two))), over) if two is TWO:
            arg = ops.arrange(arg, sort_stored(arg, definitions.memory))
        case _:
            return None
    inner = arg.axes
    last = inner[-len(over) :]
    if {*last} != {*over} or not is_floating(arg) or ops.is_complex(arg):
        return None
    places = tuple(range(-len(over), 0)) if len(over) > 1 else -1
    given = {"x": arg, "dim": places if len(over) < len(inner) else None}
    end = ".reciprocal()" if root == "rsqrt" else ""
    whole = make_op(f"{root}(sum[over](x ** 2))", inner, x=arg, over=last)
    text = f"torch.linalg.vector_norm(x, dim=dim){end}"
    return ops.arrange(make_cell(text, given, whole), axes)
