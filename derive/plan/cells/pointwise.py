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

from fractions import Fraction

from derive.ir import functions
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.walk import walk
from derive.plan import ops
from derive.plan.calls import CellArgument, Subscript, TorchCall
from derive.plan.cells.matching import (
    Definitions,
    expand_stored,
    is_same,
    join_sum,
    split_sum,
    strip,
)
from derive.plan.cost import find_strides, find_true_axes
from derive.plan.lower.condition import expand
from derive.plan.lower.product import split_sign

GIVEN = tuple(map(CellArgument, range(4)))
LONG = 16  # extent of the last index from which addcmul pays even if an operand lacks that index
TWO = ir.Number(Fraction(2))
LEAKY = "torch.nn.functional.leaky_relu"


def match_leaky_relu(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """Match a choice between a tensor and its multiple, by the sign of the tensor."""
    match op:
        case ops.Choose(condition, then, ops.Apply("*", (one, other)), axes):
            pass
        case _:
            return None
    match definitions.unwrap(condition):
        case ops.Apply(">" | ">=", (tested, ops.Num(bound))) if bound is ir.ZERO:
            pass
        case _:
            return None
    for slope, scaled in ((one, other), (other, one)):
        if isinstance(slope, ops.Num) and is_same(tested, then) and is_same(scaled, then):
            arg = strip(then)
            call = TorchCall(LEAKY, (CellArgument(0), CellArgument(1)))
            when = (CellArgument(1),) if _has_scalar(slope) else ()
            return ops.arrange(ops.Cell(call, (arg, slope), op, arg.axes, when), axes)
    return None


def match_triangle(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """Match a tensor that is set to 0 above or below a diagonal of two indices."""
    match op:
        case ops.Fill(arg, mask, ops.Num(value), where) if value is ir.ZERO:
            pass
        case ops.Apply("*", (ops.Cast(mask) | ops.Arrange(ops.Cast(mask)), arg)):
            where = False
        case ops.Apply("*", (arg, ops.Cast(mask) | ops.Arrange(ops.Cast(mask)))):
            where = False
        case _:
            return None
    triangle, axes = definitions.definition_of(strip(mask)), op.axes
    if not isinstance(triangle, ops.Triangle) or ops.is_boolean(arg) or ops.is_integral(arg):
        return None
    ends, offset, upper = (triangle.rows, triangle.columns), triangle.offset, triangle.upper
    if not set(ends) <= set(find_true_axes(arg)) or set(arg.axes) != set(axes):
        return None
    if where:  # the mask marks the zeros: complement the triangle
        offset = (Polynomial.of(offset) + Polynomial.of(-1 if upper else 1)).to_expr()
        upper = not upper
    strides = dict(zip(arg.axes, find_strides(arg, definitions.memory), strict=True))
    if strides[ends[0]] < strides[ends[1]]:
        offset = (Polynomial.of(offset) * Polynomial.of(-1)).to_expr()
        ends, upper = ends[::-1], not upper
    inner = (*(i for i in axes if i not in ends), *ends)
    at = () if offset == ir.ZERO else (ops.Num(offset),)
    call = TorchCall("torch.triu" if upper else "torch.tril", GIVEN[: 1 + len(at)])
    arg, mask = ops.arrange(arg, inner), ops.arrange(ops.Triangle(*ends, offset, upper), inner)
    whole = ops.Fill(arg, mask, ops.Num(ir.ZERO), False)
    step = 1
    scratch: tuple[tuple[ir.Index, ...], ...] = ()
    for index in reversed(inner):  # torch copies an operand that is not contiguous in this order
        if strides[index] != step and definitions.memory.extent(index) > 1:
            scratch = (inner,)
        step *= definitions.memory.extent(index)
    cell = ops.Cell(call, (arg, *at), whole, inner, volume=inner, scratch=scratch)
    return ops.arrange(cell, axes)


def match_index_equality(
    mask: ops.Op, definitions: Definitions
) -> tuple[str, ir.Index, ir.Index] | None:
    """Return (== or !=, row, column) if the mask compares two indices of one extent."""
    match definitions.definition_of(strip(mask)):
        case ops.Apply("==" | "!=" as relation, (left, right)):
            row, column = (definitions.definition_of(strip(side)) for side in (left, right))
        case _:
            return None
    if (
        not isinstance(row, ops.Iota)
        or not isinstance(column, ops.Iota)
        or row.index is column.index
    ):
        return None
    if not is_same_extent(row.index.extent, column.index.extent):
        return None
    return relation, row.index, column.index


def match_diagonal(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """Match a value over at most one of two indices where these are equal, 0 elsewhere."""
    match op:
        case ops.Choose(mask, then, ops.Num(other), axes) if other is ir.ZERO and not isinstance(
            then, ops.Num
        ):
            found, then = match_index_equality(mask, definitions), strip(then)
        case _:
            return None
    if found is None or found[0] == "!=":
        return None
    ends = found[1:]
    own = [i for i in ends if i in then.axes]
    if len(own) > 1:
        return None
    kept = own[0] if own else ends[0]
    rest = tuple(i for i in axes if i not in ends)
    arg = ops.arrange(then, (*(i for i in rest if i in then.axes), *own))
    if arg.axes != (*rest, kept):
        arg = ops.Expand(arg, (*rest, kept))
    places = sorted(map(axes.index, ends))  # place the diagonal directly, without a permutation
    is_last = places == [len(axes) - 2, len(axes) - 1]
    keywords = () if is_last else (("dim1", places[0]), ("dim2", places[1]))
    call = TorchCall("torch.diag_embed", (CellArgument(0),), keywords)
    return ops.Cell(call, (arg,), op, axes, volume=axes)


def match_diagonal_scatter(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """Match a tensor with other values where two of its indices are equal."""
    choice, added = _split_choice(op), _split_masked_addend(op)
    if choice is not None:
        mask, *pieces = choice
    elif added is not None:
        mask, then, arg = added
        sign = "+"
        if isinstance(then, ops.NumTensor):
            negative, size = split_sign(then.value)
            then, sign = ops.Num(size), "-" if negative else "+"
        pieces = [ops.Apply(sign, (arg, then), op.axes), arg]
    else:
        return None
    found, axes = match_index_equality(mask, definitions), op.axes
    if found is None:
        return None
    other, arg = pieces if found[0] == "==" else pieces[::-1]
    row, column = ends = found[1:]
    if ops.is_boolean(arg) or ops.is_integral(arg) or not set(ends) <= set(find_true_axes(arg)):
        return None
    kept = (*(i for i in axes if i not in ends), row)
    given = _read_diagonal(other, ends, kept)
    if given is None or arg.axes != axes:
        return None
    given = expand(given, kept)
    dims = tuple((f"dim{k}", axes.index(end)) for k, end in enumerate(ends, 1))
    is_made = isinstance(arg, ops.Apply) and arg.function in {"+", "-", "*", "/"}
    # torch copies the strides of the operand, in which entries may overlap
    dense = GIVEN[0] if is_made else TorchCall(".contiguous", GIVEN[:1])
    places = dims if len(axes) > 2 else ()
    call = TorchCall("torch.diagonal_scatter", (dense, GIVEN[1]), places)
    chosen = other if isinstance(other, ops.Num) else ops.arrange(other, axes)
    whole = ops.Choose(write_equality_mask(row, column, axes), chosen, arg, axes)
    return ops.Cell(call, (arg, given), whole, axes, volume=axes)


def _split_choice(op: ops.Op) -> tuple[ops.Op, ops.Op, ops.Op] | None:
    """Return (the mask, the value where it is True, the value elsewhere)."""
    match op:
        case ops.Fill(arg, mask, value, where):
            return (mask, value, arg) if where else (mask, arg, value)
        case ops.Choose(mask, then, other):
            return mask, then, other
    return None


def _split_masked_addend(op: ops.Op) -> tuple[ops.Op, ops.Op, ops.Op] | None:
    """Return (the mask, the value added where it is True, the other term) of a sum."""
    if not isinstance(op, ops.Apply) or op.function not in {"+", "-"}:
        return None
    is_less = op.function == "-"
    for added, arg in (op.args[::-1], op.args)[: 1 if is_less else 2]:
        scaled = added.args if isinstance(added, ops.Apply) and added.function == "*" else ()
        match scaled or (added, ops.Num(ir.ONE)):
            case (ops.Cast(mask) | ops.Arrange(ops.Cast(mask)), ops.Num(ir.Number(value))):
                return mask, ops.NumTensor(ir.Number(-value if is_less else value)), arg
            case (ops.Choose(mask, then, ops.Num(ir.ZERO)), _) if not is_less and not scaled:
                return mask, then, arg
    return None


def match_label_scatter(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """Match a tensor whose entry at an integer label in each row is replaced or added to."""
    choice, added = _split_choice(op), _split_masked_addend(op)
    parts = choice or added
    found = None if parts is None else _match_label_equality(parts[0], definitions)
    if parts is None or found is None:
        return None
    relation, column, labels = found
    there, arg = parts[1:] if relation == "==" else parts[:0:-1]
    axes, value = op.axes, strip(there)
    kept = tuple(i for i in axes if i is not column)
    is_number, at = isinstance(value, ops.Num), axes.index(column)
    if {*find_true_axes(arg)} != {*axes} or ops.is_boolean(arg) or ops.is_integral(arg):
        return None
    if not {*labels.axes, *value.axes} <= {*kept} or _has_scalar(value):
        return None  # torch requires a number, and a scalar may be a tensor
    if choice is None and relation == "!=":
        return None
    behind = (*(":" for _ in axes[:at]), None)
    place = Subscript(TorchCall(".long", GIVEN[1:2]), behind)  # torch requires int64
    new = GIVEN[2] if is_number else Subscript(GIVEN[2], behind)
    name = "torch.scatter" if added is None else "torch.scatter_add"
    args = (
        ops.arrange(arg, axes),
        expand(labels, kept),
        value if is_number else expand(value, kept),
    )
    call = TorchCall(name, (GIVEN[0], at, place, new))
    return ops.Cell(call, args, op, axes, volume=axes)


def _has_scalar(op: ops.Op) -> bool:
    """Whether the operation is a number that contains a scalar."""
    parts = walk(op.value) if isinstance(op, ops.Num) else ()
    return any(isinstance(part, ir.Scalar) for part in parts)


def _match_label_equality(
    mask: ops.Op, definitions: Definitions
) -> tuple[str, ir.Index, ops.Source] | None:
    """Return (== or !=, index, labels) if the mask compares an index with bounded integers."""
    match definitions.definition_of(strip(mask)):
        case ops.Apply("==" | "!=" as relation, (left, right)):
            pass
        case _:
            return None
    for one, other in ((left, right), (right, left)):
        place, labels = definitions.definition_of(strip(one)), strip(other)
        if not isinstance(place, ops.Iota) or not isinstance(labels, ops.Source):
            continue
        below = definitions.labels.get(labels.name)
        if below is not None and is_same_extent(below, place.index.extent):
            return (relation, place.index, labels)
    return None


def match_off_diagonal_sum(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """Match a sum over i != j of a matrix that is contiguous: the sum of a view.

    Without its first entry, the flat matrix of N**2 entries has N - 1 rows of N + 1, each of which
    ends with an entry of the diagonal.
    """
    match op:
        case ops.Reduction("sum", ops.Apply("exp", (filled,)), over):
            is_exp = True
        case ops.Reduction("sum", filled, over):
            is_exp = False
        case _:
            return None
    match _split_choice(filled):
        case (mask, then, ops.Num(value)):
            is_left = True
        case (mask, ops.Num(value), then):
            is_left = False
        case _:
            return None
    found = match_index_equality(mask, definitions)
    if value is not (ir.MINUS_INFINITY if is_exp else ir.ZERO) or found is None:
        return None
    if (found[0] == "!=") is not is_left:
        return None
    then = ops.Apply("exp", (then,), then.axes) if is_exp else then
    ends, axes = found[1:], then.axes
    if not {*ends} <= {*over} & {*find_true_axes(then)} or not {*over} <= {*axes}:
        return None
    if ops.is_boolean(then) or ops.is_integral(then):
        return None
    strides = dict(zip(axes, find_strides(then, definitions.memory), strict=True))
    row, column = sorted(ends, key=lambda index: -strides[index])
    if strides[row] != strides[column] * definitions.memory.extent(column):
        return None
    kept = tuple(i for i in axes if i not in over)
    inner = (*kept, *(i for i in axes if i in over and i not in ends), row, column)
    then = ops.arrange(then, inner)
    every = ops.Choose(write_equality_mask(row, column, inner), ops.Num(ir.ZERO), then, inner)
    whole = ops.Reduction("sum", every, inner[len(kept) :])
    rows = Subscript(TorchCall(".flatten", (GIVEN[0], -2)), ("...", "1:"))
    length = ops.Num((Polynomial.of(column.extent) + Polynomial.of(1)).to_expr())
    rows = Subscript(TorchCall(".unflatten", (rows, -1, (-1, GIVEN[1]))), ("...", ":-1"))
    places = () if not kept else (tuple(range(len(kept) - len(inner), 0)),)
    call = TorchCall(".sum", (rows, *places))
    cell = ops.Cell(call, (then, length), whole, kept, volume=inner)
    return ops.arrange(cell, op.axes)


def write_equality_mask(row: ir.Index, column: ir.Index, axes: tuple[ir.Index, ...]) -> ops.Op:
    """Return the mask that is True where two indices are equal."""
    ends = (row, column)
    one, other = (ops.Arrange(ops.Iota(index), ends) for index in ends)
    return ops.arrange(ops.Apply("==", (one, other), ends), axes)


def _read_diagonal(
    op: ops.Op, ends: tuple[ir.Index, ir.Index], kept: tuple[ir.Index, ...]
) -> ops.Op | None:
    """Return the diagonal of an elementwise value, computed from the diagonals of its operands."""
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
    """Match the product of two tensors, or a quotient by a root, plus all other terms.

    Torch is slow over a transposed operand, or if an operand lacks a short last index. Other
    quotients are not matched: gradients of addcdiv take a third more time and round worse.
    """
    axes = op.axes
    if not isinstance(op, ops.Apply) or op.function not in {"+", "-"} or not axes:
        return None
    terms = split_sum(op, lambda each: each)
    is_long = definitions.memory.extent(axes[-1]) >= LONG
    for place, term in reversed(list(enumerate(terms))):
        found = _read_product(term.op)
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
        if any(not p.axes or ops.is_boolean(p) or ops.is_integral(p) for p in parts):
            continue  # an operand without indices may be a number
        # torch fails to broadcast operands with fewer axes under symbolic sizes of fake tensors
        parts = tuple(expand_stored(part, axes) for part in parts)
        if any(find_strides(p, definitions.memory)[-1:] > (1,) for p in parts[1:] if is_long):
            continue
        places, parts = GIVEN[:3], (*parts[:2], *(p for p in parts[2:] if p is not parts[1]))
        places = places if len(parts) == len(places) else (*GIVEN[:2], GIVEN[1])
        scale = ops.Num(ir.Number(-value if term.negative else value))
        if scale.value is ir.ONE:
            return ops.Cell(TorchCall("torch.addcmul", places), parts, op, axes)
        call = TorchCall("torch.addcmul", places, (("value", GIVEN[len(parts)]),))
        return ops.Cell(call, (*parts, scale), op, axes)
    return None


def _read_product(op: ops.Op) -> tuple[ops.Op, ops.Op, Fraction] | None:
    """Return (two tensors, the coefficient of their product); x / sqrt(y) is x times rsqrt(y)."""
    match op:
        case ops.Apply("*", (ops.Apply("pow", (base, ops.Num(two))), ops.Num(by))) if (
            two is TWO and not isinstance(by, ir.Number)
        ):
            return base, ops.with_args(op, (base, op.args[1])), Fraction(1)
        case ops.Apply("*", (inner, ops.Num(ir.Number(value)))):
            found = _read_product(inner)
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
    """Match x + c y or x - c y for a constant c and a tensor y with all indices."""
    match op:
        case ops.Apply("+", (one, other), axes) if axes:
            pairs, name = [(one, other), (other, one)], "torch.add"
        case ops.Apply("-", (one, other), axes) if axes:
            pairs, name = [(one, other)], "torch.sub"
        case _:
            return None
    for added, product in pairs:
        match product:
            case ops.Apply("*", (scaled, ops.Num(ir.Number()) as scale)):
                pass
            case _:
                continue
        parts = (added, scaled)
        if any(isinstance(p, ops.Num) or ops.is_boolean(p) or ops.is_integral(p) for p in parts):
            continue
        if set(find_true_axes(scaled)) == set(axes):
            call = TorchCall(name, GIVEN[:2], (("alpha", GIVEN[2]),))
            return ops.Cell(call, (*parts, scale), op, axes)
    return None


def match_root(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """Match a quotient by a root without other readers: torch's rsqrt is faster than its sqrt."""
    match op:
        case ops.Apply("/", (over, ops.Apply("sqrt", (arg,), under)), axes) if under:
            root = ops.Apply("rsqrt", (arg,), under)
            parts = (root, over) if isinstance(over, ops.Num) else (over, root)
            is_plain = isinstance(over, ops.Num) and over.value is ir.ONE
            return root if is_plain else ops.combine("*", parts, axes)
    return None
