"""Elementwise functions of torch that replace several operations by one pass.

    leaky_relu          where(x > 0, x, slope x)             Maas, Hannun, Ng 2013
    diag_embed          d_i [i = j]
    diagonal_scatter    where(i = j, d_i, x_ij), and x_ij + d_i [i = j]
    tril, triu          x_ij [j <= i + c]
    addcmul, add        x y + z, x + 2 y
    scatter             where(c = t_n, r_n, x_nc) for integers t_n
    scatter_add         x_nc + [c = t_n]

The slope of leaky_relu must be a number. A scalar may also be a tensor, so it gets a condition.
"""

from dataclasses import dataclass
from fractions import Fraction

from derive.ir import functions
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.walk import walk
from derive.plan import ops
from derive.plan.cells.matching import Definitions, is_floating, is_same, join_sum, split_sum, strip
from derive.plan.cost import find_strides, find_true_axes
from derive.plan.lower.condition import expand
from derive.plan.lower.patterns import make_cell
from derive.plan.lower.product import split_sign

LONG = 16  # extent of the last index from which addcmul pays even if an operand lacks that index
TWO = ir.Number(Fraction(2))
NOTHING = ops.Num(ir.ZERO)


def match_leaky_relu(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """where(x > 0, x, slope * x) as leaky_relu, or None."""
    match op:
        case ops.Choose(condition, then, ops.Apply("*", scaled), axes):
            tested = definitions.unwrap(condition)
        case _:
            return None
    if not isinstance(tested, ops.Apply) or tested.function not in {">", ">="}:
        return None
    for slope, other in (scaled, scaled[::-1]):
        same = isinstance(slope, ops.Num) and tested.args[1] is NOTHING
        if same and is_same(tested.args[0], then) and is_same(other, then):
            given = {"x": strip(then), "slope": slope}
            when = ("slope",) if _has_scalar(slope) else ()
            text = "torch.nn.functional.leaky_relu(x, slope)"
            return ops.arrange(make_cell(text, given, op, given["x"].axes, when=when), axes)
    return None


@dataclass(frozen=True, slots=True)
class Choice:
    """`there` where a mask is True, `elsewhere` else; if `is_added`, `there` is added to it."""

    mask: ops.Op
    there: ops.Op
    elsewhere: ops.Op
    is_added: bool = False


def _split_choice(op: ops.Op) -> Choice | None:
    match op:
        case ops.Fill(arg, mask, value, where):
            return Choice(mask, value, arg) if where else Choice(mask, arg, value)
        case ops.Choose(mask, then, other):
            return Choice(mask, then, other)
        case ops.Apply("+" | "-" as sign, args):
            for added, arg in (args[::-1], args)[: 1 if sign == "-" else 2]:
                is_scaled = isinstance(added, ops.Apply) and added.function == "*"
                match added.args if is_scaled else (added, ops.Num(ir.ONE)):
                    case (ops.Cast(mask) | ops.Arrange(ops.Cast(mask)), ops.Num(ir.Number(size))):
                        number = ir.Number(size if sign == "+" else -size)
                        return Choice(mask, ops.NumTensor(number), arg, is_added=True)
                    case (ops.Choose(mask, then, zero), _) if (
                        zero is NOTHING and sign == "+" and not is_scaled
                    ):
                        return Choice(mask, then, arg, is_added=True)
    return None


def match_equality(
    mask: ops.Op, definitions: Definitions
) -> tuple[bool, ir.Index, ir.Index | ops.Op] | None:
    """Return (is_equal, an index, another one or integers below its extent) of a mask, or None.

    `is_equal` is whether the mask is True where both are equal: `==`, not `!=`.
    """
    match definitions.definition_of(strip(mask)):
        case ops.Apply("==" | "!=" as relation, sides):
            pass
        case _:
            return None
    for one, other in (sides, sides[::-1]):
        place, column = (definitions.definition_of(strip(side)) for side in (one, other))
        found: ir.Index | ops.Op = strip(other)
        below = definitions.labels.get(found.name) if isinstance(found, ops.Source) else None
        if isinstance(column, ops.Iota):
            found, below = column.index, column.index.extent
        if below is None or not isinstance(place, ops.Iota) or found is place.index:
            continue
        if is_same_extent(below, place.index.extent):
            return relation == "==", place.index, found
    return None


def match_choice(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A tensor with entries replaced, or added to, where a mask is True, as one call; or None.

    The mask is a triangle, or compares an index with another one or with integers.
    """
    choice = _split_choice(op)
    is_product = isinstance(op, ops.Apply) and op.function == "*"
    for factor, arg in (op.args, op.args[::-1]) if is_product else ():
        if choice is None and isinstance(strip(factor), ops.Cast):
            choice = Choice(strip(factor).args[0], arg, NOTHING)
    if choice is None:
        return None
    there, elsewhere = choice.there, choice.elsewhere
    triangle = definitions.definition_of(strip(choice.mask))
    if isinstance(triangle, ops.Triangle):
        return None if choice.is_added else _write_triangle(op, choice, triangle, definitions)
    found = None if is_product else match_equality(triangle, definitions)
    if found is None:
        return None
    is_equal, index, other = found
    if not isinstance(other, ir.Index):
        able = is_equal or not choice.is_added
        pair = (there, elsewhere)[:: 1 if is_equal else -1]
        is_added = choice.is_added
        return _write_labels(op, (index, other), pair, is_added=is_added) if able else None
    if choice.is_added:
        sign = "+"
        if isinstance(there, ops.NumTensor):
            negative, size = split_sign(there.value)
            there, sign = ops.Num(size), "-" if negative else "+"
        there = ops.Apply(sign, (elsewhere, there), op.axes)
    pair = (there, elsewhere)[:: 1 if is_equal else -1]
    return _write_scatter(op, (index, other), *pair) or _write_diagonal(op, (index, other), *pair)


def _write_triangle(
    op: ops.Op, choice: Choice, triangle: ops.Triangle, definitions: Definitions
) -> ops.Op | None:
    """Return tril or triu for a tensor that is 0 above or below a diagonal, or None."""
    is_outside = choice.there is NOTHING  # the mask marks the zeros: complement the triangle
    zero, arg = (choice.there, choice.elsewhere)[:: 1 if is_outside else -1]
    axes, memory, ends = op.axes, definitions.memory, (triangle.rows, triangle.columns)
    if zero is not NOTHING or not is_floating(arg):
        return None
    if not {*ends} <= {*find_true_axes(arg)} or {*arg.axes} != {*axes}:
        return None
    upper, offset = triangle.upper is not is_outside, Polynomial.of(triangle.offset)
    if is_outside:
        offset += Polynomial.of(1 if upper else -1)
    strides = dict(zip(arg.axes, find_strides(arg, memory), strict=True))
    if strides[ends[0]] < strides[ends[1]]:
        ends, upper, offset = ends[::-1], not upper, offset * Polynomial.of(-1)
    inner = (*(i for i in axes if i not in ends), *ends)
    at = offset.to_expr()
    arg, mask = ops.arrange(arg, inner), ops.arrange(ops.Triangle(*ends, at, upper), inner)
    # torch copies an operand that is not contiguous in this order
    dense = dict(zip(inner, memory.find_dense(inner), strict=True))
    is_copied = any(strides[i] != dense[i] and memory.extent(i) > 1 for i in inner)
    given = {"x": arg} if at == ir.ZERO else {"x": arg, "at": ops.Num(at)}
    name, whole = "triu" if upper else "tril", ops.Fill(arg, mask, NOTHING, False)
    text = f"torch.{name}({', '.join(given)})"
    scratch = (inner,) if is_copied else ()
    cell = make_cell(text, given, whole, inner, volume=inner, scratch=scratch)
    return ops.arrange(cell, axes)


def _write_diagonal(
    op: ops.Op, ends: tuple[ir.Index, ir.Index], then: ops.Op, other: ops.Op
) -> ops.Op | None:
    """Return the call for `then` where two indices are equal and 0 elsewhere; None if unfit."""
    axes, then = op.axes, strip(then)
    own = [i for i in ends if i in then.axes]
    if other is not NOTHING or isinstance(then, ops.Num) or len(own) > 1:
        return None
    rest = tuple(i for i in axes if i not in ends)
    arg = ops.arrange(then, (*(i for i in rest if i in then.axes), *own))
    kept = (*rest, own[0] if own else ends[0])
    if arg.axes != kept:
        arg = ops.Expand(arg, kept)
    first, last = sorted(map(axes.index, ends))  # directly, without a permutation
    is_last = (first, last) == (len(axes) - 2, len(axes) - 1)
    given = {"x": arg, "a": None if is_last else first, "b": None if is_last else last}
    return make_cell("torch.diag_embed(x, dim1=a, dim2=b)", given, op, volume=axes)


def _write_scatter(
    op: ops.Op, ends: tuple[ir.Index, ir.Index], other: ops.Op, arg: ops.Op
) -> ops.Op | None:
    """Return `arg` with entries of `other` where two indices are equal, by one call; or None."""
    axes = op.axes
    if not is_floating(arg) or not {*ends} <= {*find_true_axes(arg)} or arg.axes != axes:
        return None
    kept = (*(i for i in axes if i not in ends), ends[0])
    diagonal = _read_diagonal(other, ends, kept)
    if diagonal is None:
        return None
    is_made = isinstance(arg, ops.Apply) and arg.function in {"+", "-", "*", "/"}
    # torch copies the strides of the operand, in which entries may overlap
    dense = "x" if is_made else "x.contiguous()"
    first, last = map(axes.index, ends) if len(axes) > 2 else (None, None)
    given = {"x": arg, "d": expand(diagonal, kept), "a": first, "b": last}
    chosen = other if isinstance(other, ops.Num) else ops.arrange(other, axes)
    whole = ops.Choose(write_equality_mask(*ends, axes), chosen, arg, axes)
    text = f"torch.diagonal_scatter({dense}, d, dim1=a, dim2=b)"
    return make_cell(text, given, whole, volume=axes)


def _write_labels(
    op: ops.Op, ends: tuple[ir.Index, ops.Op], pair: tuple[ops.Op, ...], *, is_added: bool
) -> ops.Op | None:
    """Return the tensor of `pair` with its value put, or added, at each row's label; or None."""
    (column, labels), (value, arg), axes = ends, map(strip, pair), op.axes
    kept = tuple(i for i in axes if i is not column)
    if {*find_true_axes(arg)} != {*axes} or not is_floating(arg):
        return None
    if not {*labels.axes, *value.axes} <= {*kept} or _has_scalar(value):
        return None  # torch requires a number, and a scalar may be a tensor
    is_number, at = isinstance(value, ops.Num), axes.index(column)
    behind = (*(":" for _ in axes[:at]), None)
    name = "scatter_add" if is_added else "scatter"
    text = f"torch.{name}(x, {at}, t.long()[at], y[own])"  # torch requires int64
    given = {"x": ops.arrange(arg, axes), "t": expand(labels, kept), "at": behind}
    given["y"] = value if is_number else expand(value, kept)
    given["own"] = () if is_number else behind
    return make_cell(text, given, op, volume=axes)


def _has_scalar(op: ops.Op) -> bool:
    """Whether the operation is a number that contains a scalar."""
    parts = walk(op.value) if isinstance(op, ops.Num) else ()
    return any(isinstance(part, ir.Scalar) for part in parts)


def match_off_diagonal_sum(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A sum over i != j of a contiguous matrix as the sum of a view, or None.

    Without its first entry, N**2 entries are N - 1 rows of N + 1 that end with a diagonal entry.
    """
    match op:
        case ops.Reduction("sum", ops.Apply("exp", (filled,)), over):
            gone: ir.Expr = ir.MINUS_INFINITY
        case ops.Reduction("sum", filled, over):
            gone = ir.ZERO
        case _:
            return None
    choice = _split_choice(filled)
    found = choice and not choice.is_added and match_equality(choice.mask, definitions)
    if not choice or not found or not isinstance(found[2], ir.Index):
        return None
    is_equal, ends = found[0], (found[1], found[2])
    zero, then = (choice.there, choice.elsewhere)[:: 1 if is_equal else -1]
    if zero is not ops.Num(gone):
        return None
    then = then if gone is ir.ZERO else ops.Apply("exp", (then,), then.axes)
    axes, memory = then.axes, definitions.memory
    if not {*ends} <= {*over} & {*find_true_axes(then)} or not {*over} <= {*axes}:
        return None
    strides = dict(zip(axes, find_strides(then, memory), strict=True))
    row, column = sorted(ends, key=lambda index: -strides[index])
    if not is_floating(then) or strides[row] != strides[column] * memory.extent(column):
        return None
    kept = tuple(i for i in axes if i not in over)
    inner = (*kept, *(i for i in axes if i in over and i not in ends), row, column)
    then = ops.arrange(then, inner)
    every = ops.Choose(write_equality_mask(row, column, inner), NOTHING, then, inner)
    whole = ops.Reduction("sum", every, inner[len(kept) :])
    given = {"x": then, "n": ops.Num((Polynomial.of(column.extent) + Polynomial.of(1)).to_expr())}
    places = tuple(range(len(kept) - len(inner), 0)) if kept else ""
    text = f"x.flatten(-2)[..., 1:].unflatten(-1, (-1, n))[..., :-1].sum({places})"
    return ops.arrange(make_cell(text, given, whole, volume=inner), op.axes)


def write_equality_mask(row: ir.Index, column: ir.Index, axes: tuple[ir.Index, ...]) -> ops.Op:
    """Return the mask that is True where two indices are equal."""
    ends = (row, column)
    one, other = (ops.Arrange(ops.Iota(index), ends) for index in ends)
    return ops.arrange(ops.Apply("==", (one, other), ends), axes)


def _read_diagonal(
    op: ops.Op, ends: tuple[ir.Index, ir.Index], kept: tuple[ir.Index, ...]
) -> ops.Op | None:
    """Return the entries where row is column, from those of the operands; None if unsupported."""
    row, column = ends
    match op:
        case ops.Num(value):
            return None if _has_scalar(op) else ops.NumTensor(value)
        case ops.Arrange(arg):
            return _read_diagonal(arg, ends, kept)
        case ops.Source(_, own) if {row, column} <= set(own):
            return ops.rename_indices(
                ops.Diagonal(op, own.index(row), own.index(column)), {column: row}
            )
        case ops.Source():
            return ops.rename_indices(op, {column: row})
        case ops.Apply(function, args):
            parts = [a if isinstance(a, ops.Num) else _read_diagonal(a, ends, kept) for a in args]
            found = [part for part in parts if part is not None]
            return ops.combine(function, found, kept) if len(found) == len(parts) else None
        case ops.Reduction(kind, arg, over) if not functions.ROWS[kind].is_matrix:
            inside = _read_diagonal(arg, ends, (*kept, *over))
            return None if inside is None else ops.Reduction(kind, inside, over)
    return None


def match_sum_of_product(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A sum x * y + z, or x / sqrt(y) + z, as addcmul, or None.

    Torch is slow over a transposed operand, or if an operand lacks a short last index. Other
    quotients are not matched: gradients of addcdiv take a third more time and round worse.
    """
    axes, memory = op.axes, definitions.memory
    if not isinstance(op, ops.Apply) or op.function not in {"+", "-"} or not axes:
        return None
    terms = split_sum(op, lambda each: each)
    is_long = memory.extent(axes[-1]) >= LONG
    for place, term in reversed(list(enumerate(terms))):
        found = _split_scaled_product(term.op)
        others = [*terms[:place], *terms[place + 1 :]]
        if found is None or set(find_true_axes(term.op)) != set(axes):
            continue
        left, right, value = found
        added = join_sum(others, axes)
        if all(each.negative for each in others) and {*find_true_axes(added)} == {*axes}:
            continue
        parts: tuple[ops.Op, ...] = (added, left, right)
        if not is_long and any(axes[-1] not in find_true_axes(part) for part in parts):
            continue
        if not all(part.axes and is_floating(part) for part in parts):
            continue  # an operand without indices may be a number
        # torch fails to broadcast operands with fewer axes under symbolic sizes of fake tensors
        parts = tuple(
            ops.arrange(p, axes) if {*find_true_axes(p)} == {*axes} else ops.Expand(strip(p), axes)
            for p in parts
        )
        if any(find_strides(part, memory)[-1:] > (1,) for part in parts[1:] if is_long):
            continue
        value = -value if term.negative else value
        scale = None if value == 1 else ops.Num(ir.Number(value))
        square = parts[1] is parts[2]
        given = dict(zip("zxy", parts[: 2 if square else 3], strict=False))
        text = f"torch.addcmul(z, x, {'x' if square else 'y'}, value=value)"
        return make_cell(text, {**given, "value": scale}, op)
    return None


def _split_scaled_product(op: ops.Op) -> tuple[ops.Op, ops.Op, Fraction] | None:
    """Return (two tensors, their product's number), x / sqrt(y) as x times rsqrt(y); or None."""
    match op:
        case ops.Apply("*", (ops.Apply("pow", (base, ops.Num(two))), ops.Num(by))) if (
            two is TWO and not isinstance(by, ir.Number)
        ):
            return base, ops.with_args(op, (base, op.args[1])), Fraction(1)
        case ops.Apply("*", (inner, ops.Num(ir.Number(value)))):
            found = _split_scaled_product(inner)
            return found and (*found[:2], found[2] * value)
        case ops.Apply("pow", (base, ops.Num(two))) if two is TWO:
            return base, base, Fraction(1)
        case ops.Apply("/", (left, ops.Apply("sqrt", (arg,), under))) if under:
            right: ops.Op = ops.Apply("rsqrt", (arg,), under)
        case ops.Apply("*", (left, right)):
            pass
        case _:
            return None
    match left:
        case ops.Apply("*", (inner, ops.Num(ir.Number(value)))):
            return inner, right, value
    return left, right, Fraction(1)


def match_scaled_sum(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A sum x + c * y or x - c * y, with a constant c, as one call; None if y lacks an index."""
    match op:
        case ops.Apply("+" | "-" as sign, args, axes) if axes:
            pairs = (args, args[::-1])[: 2 if sign == "+" else 1]
        case _:
            return None
    for added, product in pairs:
        match product:
            case ops.Apply("*", (scaled, ops.Num(ir.Number()) as scale)):
                is_able = is_floating(added) and is_floating(scaled)
                if is_able and set(find_true_axes(scaled)) == set(axes):
                    text = f"torch.{'add' if sign == '+' else 'sub'}(x, y, alpha=c)"
                    return make_cell(text, {"x": added, "y": scaled, "c": scale}, op)
    return None


def match_root(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A quotient x / sqrt(y) as x * rsqrt(y), which is faster in torch, or None."""
    match op:
        case ops.Apply("/", (over, ops.Apply("sqrt", (arg,), under)), axes) if under:
            root = ops.Apply("rsqrt", (arg,), under)
            parts = (root, over) if isinstance(over, ops.Num) else (over, root)
            is_plain = isinstance(over, ops.Num) and over.value is ir.ONE
            return root if is_plain else ops.combine("*", parts, axes)
    return None
