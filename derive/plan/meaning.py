"""The meaning of an operation in the index language: the comment over its line.

The comment is derived from the operation, not from the user's text, so it says what the line does.
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction

from derive.analysis.affine import simplify_place
from derive.analysis.extents import find_guard
from derive.analysis.places import merge_place
from derive.ir import nodes as ir
from derive.ir.walk import find_accesses, map_children, substitute
from derive.plan import ops
from derive.plan.steps import Step
from derive.rewrite.rules.products import is_negative, rename_bound

POWERS = {"sqrt": ir.Number(Fraction(1, 2)), "rsqrt": ir.Number(Fraction(-1, 2))}
RELATIONS = {"<", "<=", ">", ">=", "==", "!="}


def to_step_equation(step: Step) -> ir.Equation:
    """The step as an equation between its named tensors."""
    target = ir.name_axes(step.name, step.axes)
    if not isinstance(step.op, ops.Recur):
        return ir.Equation(target, to_expr(step.op))
    before = substitute(target, {step.op.index: ir.Add((step.op.index, ir.MINUS_ONE))})
    once: dict[ir.Expr, ir.Expr] = {i: ir.ZERO for i in step.op.decay.axes if i not in step.op.axes}
    decayed = ir.Mul((substitute(to_expr(step.op.decay), once), before))
    return ir.Equation(target, ir.Add((decayed, to_expr(step.op.added))))


def find_values(steps: Iterable[Step]) -> dict[str, ir.Expr]:
    """The values of the steps by name, without recurrences."""
    return {step.name: to_expr(step.op) for step in steps if not isinstance(step.op, ops.Recur)}


def to_expr(op: ops.Op) -> ir.Expr:
    """The value of an operation at its axes; TypeError for a recurrence."""
    match op:
        case ops.Source(name, (index,), "int") if name == index.name:
            return index
        case ops.Source(name, axes, kind):
            return ir.name_axes(name, axes, kind)
        case ops.Num(value) | ops.NumTensor(value):
            return value
        case ops.Iota(index):
            return index
        case ops.Triangle(rows, columns, offset, is_upper):
            shifted = rows if offset is ir.ZERO else ir.Add((rows, offset))
            return ir.Compare(">=" if is_upper else "<=", columns, shifted)
        case _ if isinstance(op, ops.View | ops.Copy):
            return _index_operand(op)
        case ops.Cast(arg):
            inside = to_expr(arg)
            is_boolean = isinstance(inside, (ir.Compare, ir.And, ir.Or, ir.Not))
            is_boolean |= isinstance(inside, ir.Access) and inside.tensor.kind == "bool"
            return ir.Where(inside, ir.ONE, ir.ZERO) if is_boolean else inside
        case ops.Einsum(args, axes):
            merged = dict(pair for a in args for pair in _find_merged(a))
            summed = (i for a in args for i in a.axes if i not in axes)
            bound = tuple(dict.fromkeys(part for i in summed for part in merged.get(i, (i,))))
            body = to_expr(args[0]) if len(args) == 1 else ir.Mul(tuple(map(to_expr, args)))
            return ir.sum_over(bound, body)
        case ops.Apply(function, args):
            return _apply_function(function, *map(to_expr, args))
        case ops.Reduction(kind, arg, over):
            return ir.Reduce(kind, over, ir.TRUE, to_expr(arg))
        case ops.Along(kind, arg, index, columns):
            return ir.Along(kind, index, ir.TRUE, to_expr(arg), columns)
        case ops.Fill(arg, mask, value, where):
            chosen = (value.value, to_expr(arg)) if where else (to_expr(arg), value.value)
            return ir.Where(to_expr(mask), *chosen)
        case ops.Choose(condition, then, other):
            return ir.Where(to_expr(condition), to_expr(then), to_expr(other))
        case ops.Cell(whole=whole, axes=axes):
            meaning = to_expr(whole)
            tensors = {access.tensor.name for access in find_accesses(meaning)}
            return _rename_apart(meaning, tensors | {index.name for index in axes})
        case ops.Gated(value=meaning):
            return meaning
        case ops.Fourier():
            return _expand_transform(op)
        case ops.Recur():
            raise TypeError("a recurrence has no expression: use the equation of its step")


def _index_operand(op: ops.View | ops.Copy) -> ir.Expr:
    """The value of a view, or of a copy, as its operand at other positions."""
    match op:
        case ops.Select(arg, place, position):
            return substitute(to_expr(arg), {arg.axes[place]: position})
        case ops.Slice(arg, place, index, start, step):
            return _read_at(arg, place, ir.Add((ir.Mul((step, index)), start)))
        case ops.Flip(arg, place, index):
            back = (index.extent, ir.Mul((ir.MINUS_ONE, index)), ir.MINUS_ONE)
            return _read_at(arg, place, ir.Add(back))
        case ops.Unfold(arg, place, outer, inner, step):
            return _read_at(arg, place, ir.Add((ir.Mul((step, outer)), inner)))
        case ops.Pad(arg, place, index, before, value):
            position = simplify_place(ir.Add((index, ir.Mul((ir.MINUS_ONE, before)))))
            length = arg.axes[place].extent
            inside = find_guard(position, length)
            read = _read_at(arg, place, position)
            return ir.Where(inside, read, value) if inside is not ir.TRUE else read
        case ops.Take(arg, places, by):
            taken = [arg.axes[k] for k in places]
            new: dict[ir.Expr, ir.Expr] = dict(zip(taken, map(to_expr, by), strict=True))
            return substitute(to_expr(arg), new)
        case ops.Unflatten(arg, place, parts):
            return substitute(to_expr(arg), {arg.axes[place]: merge_place(parts)})
        case ops.Flatten(arg, start, end, index):
            parts = arg.axes[start : end + 1]
            if not _is_named(index, parts):
                return substitute(to_expr(arg), _split_position(index, parts))
    return to_expr(op.arg)


def _find_merged(op: ops.Op) -> Iterator[tuple[ir.Index, tuple[ir.Index, ...]]]:
    """Pairs (merged index, its parts) of the flattens of an operand."""
    while isinstance(op, (ops.Flatten, ops.Arrange)):
        if isinstance(op, ops.Flatten):
            parts = op.arg.axes[op.start : op.end + 1]
            yield from [(op.index, parts)] if _is_named(op.index, parts) else ()
        op = op.arg


def _expand_transform(op: ops.Fourier) -> ir.Expr:
    """A Fourier transform as a sum; irfft counts most of its frequencies twice."""
    index, is_back = op.index, op.kind in {"ifft", "irfft"}
    over = ir.Pow(op.length, ir.MINUS_ONE)
    turn = (ir.Number(Fraction(2)), ir.Call("pi", ()), ir.Call("I", ()))
    sign = () if is_back else (ir.MINUS_ONE,)
    wave = ir.Call("exp", (ir.Mul((*sign, *turn, op.to, index, over)),))
    factors: tuple[ir.Expr, ...] = (to_expr(op.arg), wave)
    if op.kind == "irfft":
        twice = ir.Mul((ir.Number(Fraction(2)), index))
        ends = (ir.Compare("==", each, end) for each, end in ((index, ir.ZERO), (twice, op.length)))
        factors = (ir.Where(ir.Or(tuple(ends)), ir.ONE, ir.Number(Fraction(2))), *factors)
    found: ir.Expr = ir.Reduce("sum", (index,), ir.TRUE, ir.Mul(factors))
    found = ir.Call("re", (found,)) if op.kind == "irfft" else found
    return ir.Mul((found, over)) if is_back and not op.is_plain else found


def _read_at(arg: ops.Op, place: int, position: ir.Expr) -> ir.Expr:
    """The value of `arg` with its axis `place` at a position."""

    def sort_terms(expr: ir.Expr) -> ir.Expr:
        """Move negative terms to the end: N - n."""
        whole = map_children(expr, sort_terms)
        match whole:
            case ir.Add(terms):
                return ir.Add(tuple(sorted(terms, key=is_negative)))
        return whole

    new: dict[ir.Expr, ir.Expr] = {arg.axes[place]: position}
    if isinstance(arg, ops.Flatten) and arg.start == place:  # positions on the merged axes
        new |= _split_position(position, arg.arg.axes[place : arg.end + 1])
    return sort_terms(simplify_place(substitute(to_expr(arg), new)))


def _is_named(index: ir.Index, parts: tuple[ir.Index, ...]) -> bool:
    return index.name == ops.merge_indices(parts).name


def _split_position(position: ir.Expr, parts: tuple[ir.Index, ...]) -> dict[ir.Expr, ir.Expr]:
    """The position of each of some merged indices, given the merged position."""
    found: dict[ir.Expr, ir.Expr] = {}
    length: ir.Expr = ir.ONE
    for index in reversed(parts):
        rest = ir.Call("floordiv", (position, length)) if length is not ir.ONE else position
        found[index] = ir.Call("mod", (rest, index.extent))
        length = ir.Mul((index.extent, length)) if length is not ir.ONE else index.extent
    return {**found, parts[0]: rest}


def _apply_function(function: str, *args: ir.Expr) -> ir.Expr:
    match function, args:
        case "+" | "-", (one, other):
            terms = ir.split_sum(one)
            return ir.Add((*terms, other if function == "+" else ir.Mul((ir.MINUS_ONE, other))))
        case "*" | "/", (one, other):
            factors = ir.split_product(one)
            return ir.Mul((*factors, other if function == "*" else ir.Pow(other, ir.MINUS_ONE)))
        case "neg", (arg,):
            return ir.Mul((ir.MINUS_ONE, arg))
        case "pow", (base, exponent):
            return ir.Pow(base, exponent)
        case "sqrt" | "rsqrt", (arg,):
            return ir.Pow(arg, POWERS[function])
        case "and", _:
            return ir.And(args)
        case "or", _:
            return ir.Or(args)
        case "not", (arg,):
            return ir.Not(arg)
        case relation, (left, right) if relation in RELATIONS:
            return ir.Compare(relation, left, right)
    return ir.Call(function, args)


def _rename_apart(expr: ir.Expr, taken: set[str]) -> ir.Expr:
    """The expression with bound indices renamed apart from names around them."""
    if isinstance(expr, ir.Reduce):
        bound, condition, body = rename_bound(expr, taken)
        body = _rename_apart(body, taken | {index.name for index in bound})
        return ir.Reduce(expr.kind, bound, condition, body)
    return map_children(expr, lambda child: _rename_apart(child, taken))
