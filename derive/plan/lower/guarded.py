"""Reductions with guards in a normal form, from which structures eliminate index by index.

    reduce over `bound`, where all `guards` hold, of the product of `factors`

A guard may be written as a condition, a bracket, a choice, or a name for one of these. `orders` and
`segments` eliminate an index by the structure of its guards. Guards and factors without that index
are applied to the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from derive.ir import nodes as ir
from derive.ir.walk import find_accesses, find_free
from derive.plan import ops
from derive.plan.lower.condition import lower_condition
from derive.plan.lower.context import Context
from derive.plan.lower.contraction import NEUTRAL
from derive.plan.lower.patterns import make_cell

FOLDED = ("sum", "prod", "max", "min", "logsumexp")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The required result of `lower`: the order of axes, and integer values if `counted`."""

    context: Context
    order: tuple[ir.Index, ...]
    counted: bool
    lower: Callable[[ir.Expr], ops.Op]


@dataclass(frozen=True, slots=True)
class Guarded:
    """A reduction in normal form. Only a sum has several factors; a mean is a sum with `is_mean`.

    If the guards come from a definition (`is_named`), the formula multiplies by its 0, so infinite
    factors become nan and need no protection.
    """

    kind: str
    bound: tuple[ir.Index, ...]
    guards: tuple[ir.Expr, ...]
    factors: tuple[ir.Expr, ...]
    is_mean: bool = False
    is_named: bool = False

    def partition(
        self, indices: Collection[ir.Index]
    ) -> tuple[tuple[list[ir.Expr], list[ir.Expr]], tuple[list[ir.Expr], list[ir.Expr]]]:
        """Return ((guards, factors) with any of the indices, (guards, factors) without them).

        A factor of a prod, max, min or logsumexp is the value of an entry: it counts as with them.
        """
        found = [
            [e for e in each if bool({*find_free(e)} & {*indices} or is_entry) is has]
            for has in (True, False)
            for each, is_entry in ((self.guards, False), (self.factors, self.kind != "sum"))
        ]
        return (found[0], found[1]), (found[2], found[3])


def read_guarded(reduce: ir.Reduce, context: Context) -> Iterator[Guarded]:
    """Yield the reduction if it has guards or rows, then with guarded definitions inlined."""
    is_mean = reduce.kind == "mean" and reduce.condition is ir.TRUE
    kind, parts = "sum" if is_mean else reduce.kind, [reduce.body]
    if kind not in FOLDED:
        return
    form = _collect(Guarded(kind, reduce.bound, (), (), is_mean), parts, reduce.condition)
    if form.guards or any(isinstance(f, ir.Along) for f in form.factors):
        yield form
    opened = [_find_guarded_definition(factor, reduce.bound, context) for factor in form.factors]
    if kind == "sum" and any(opened):
        named = [f for f, value in zip(form.factors, opened, strict=True) if value is None]
        form = replace(form, factors=tuple(named), is_named=True)
        yield _collect(form, [value for value in opened if value is not None], ir.TRUE)


def _collect(form: Guarded, parts: list[ir.Expr], condition: ir.Expr) -> Guarded:
    """Add a condition and the guards and factors of further parts to a reduction."""
    guards, factors = dict.fromkeys((*form.guards, *ir.split_and(condition))), [*form.factors]
    while parts:
        match parts.pop(0):
            case ir.Where(guard, then, other) if other is NEUTRAL[form.kind].value:
                guards |= dict.fromkeys(ir.split_and(guard))
                parts.insert(0, then)
            case ir.Mul(inner) if form.kind == "sum":
                parts[:0] = inner
            case ir.Number(value) if value == 1 and form.kind == "sum":
                pass
            case part:
                factors.append(part)
    guards.pop(ir.TRUE, None)
    return replace(form, guards=tuple(guards), factors=tuple(factors))


def _find_guarded_definition(
    factor: ir.Expr, bound: Sequence[ir.Index], context: Context
) -> ir.Expr | None:
    """Return the definition of a factor over a bound and a free index if it has a guard, or None.

    An example is the one-hot h[m,n] = [t[m] == n] in sum[m](h[m,n] * x[m]).
    """
    free = {*find_free(factor)}
    if not isinstance(factor, ir.Access) or not free & {*bound} or free <= {*bound}:
        return None
    value = context.find_definition(factor)
    return value if value is not None and any(_find_guards(value)) else None


def _find_guards(value: ir.Expr) -> Iterator[ir.Expr]:
    """Yield the conditions that make a product 0 where they are false."""
    match value:
        case ir.Where(condition, _, ir.ZERO):
            yield condition
        case ir.Along("softmax", _, condition) if condition is not ir.TRUE:
            yield condition
        case ir.Mul(factors):
            for factor in factors:
                yield from _find_guards(factor)


def name_operation(op: ops.Op, context: Context) -> ir.Access:
    """Add a step for an operation and return a read of it at its own axes."""
    source = context.add_step(op)
    axes, kind = source.axes, "int" if source.kind == "int" else "real"
    context.stored[source.name] = tuple((index,) for index in axes)
    return ir.name_axes(source.name, axes, kind)


def finish_operation(
    form: Guarded,
    made: ops.Op,
    count: ir.Expr | None,
    indices: Collection[ir.Index],
    wanted: Wanted,
) -> ops.Op:
    """Apply the guards and factors without the eliminated indices to `made`; see `finish`."""
    left = form.partition(indices)[1]
    if {*form.bound} <= {*indices} and not any(left):
        return _divide(made, form)
    return finish(form, name_operation(made, wanted.context), count, indices, wanted)


def finish(
    form: Guarded,
    made: ir.Expr,
    count: ir.Expr | None,
    indices: Collection[ir.Index],
    wanted: Wanted,
) -> ops.Op:
    """Apply guards and factors without the eliminated indices to `made`; reduce over the others.

    Factors that may be infinite are used only where they multiply any entry: where `count` > 0.
    """
    _, (guards, factors) = form.partition(indices)
    rest = tuple(index for index in form.bound if index not in indices)
    is_safe = form.is_named or all(map(wanted.context.is_finite, factors))
    if count is not None and not is_safe:
        guards.append(ir.Compare(">", count, ir.ZERO))
    body, condition = ir.product_of([made, *factors]), ir.all_of(*guards)
    if rest:
        body = ir.Reduce(form.kind, rest, condition, body)
    elif condition is not ir.TRUE:
        body = ir.Where(condition, body, NEUTRAL[form.kind].value)
    return _divide(wanted.lower(body), form)


def _divide(op: ops.Op, form: Guarded) -> ops.Op:
    """Divide the sum of a mean by the number of positions; without positions the mean is nan."""
    for index in form.bound if form.is_mean else ():
        op = ops.Cast(op) if ops.is_integral(op) else op  # torch would divide in its default dtype
        whole = ops.Apply("/", (op, ops.Num(index.extent)), op.axes)
        op = make_cell("x / n", dict(zip("xn", whole.args, strict=True)), whole, volume=op.axes)
    return op


def find_row(form: Guarded, indices: Collection[ir.Index]) -> ir.Along | None:
    """Return the factor that is a conditional softmax along one of the indices, or None."""
    for factor in form.factors if form.kind == "sum" else ():
        match factor:
            case ir.Along("softmax", along, condition) if condition is not ir.TRUE:
                if along in indices:
                    return factor
    return None


def lower_masked(
    kind: str, parts: tuple[ir.Expr, Sequence[ir.Expr]], order: tuple[ir.Index, ...], wanted: Wanted
) -> ops.Op | None:
    """Lower (body, conditions), neutral for `kind` where one fails; None for 1 without any."""
    body, masks = parts
    value: ops.Op | None = None
    if body is not ir.ONE:
        value = wanted.context.lower(body, order)
        value = ops.strip_casts(value) if wanted.counted else value
    for mask in masks:
        shown = lower_condition(mask, wanted.context, order)
        if value is None:
            value = ops.Cast(shown, "int" if wanted.counted else "real")
            continue
        axes = ops.find_union((value, shown), order)
        value = keep_where(kind, shown, value, axes)
    return value


def keep_where(kind: str, mask: ops.Op, value: ops.Op, axes: tuple[ir.Index, ...]) -> ops.Choose:
    """Return a value where a mask is True, the neutral element of a reduction elsewhere."""
    shown, taken = ops.align((mask, value), axes)
    return ops.Choose(shown, taken, NEUTRAL[kind], axes)


def take_where(
    numbers: ops.Op, place: ir.Index, value: ops.Op, over: ir.Index, axes: tuple[ir.Index, ...]
) -> ops.Op:
    """Return the sum of the values over `over` whose numbers equal the position `place`."""
    is_here = ops.combine("==", (numbers, ops.Iota(place)), axes)
    return ops.Reduction("sum", keep_where("sum", is_here, value, axes), (over,))


def is_data(expr: ir.Expr) -> bool:
    """Whether an expression reads a tensor."""
    return bool(find_accesses(expr))


def is_real(op: ops.Op) -> bool:
    """Whether an operation has real values."""
    return not (ops.is_boolean(op) or ops.is_integral(op) or ops.is_complex(op))
