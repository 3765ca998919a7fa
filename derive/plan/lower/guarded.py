"""Reductions with guards: what is reduced, where, and what of it has no part in an index.

    reduce over `bound`, where all `guards` hold, of the product of the factors

Each spelling of a guard is one of `guards`: a condition, a bracket, a choice, a name for one of
these. An index is eliminated by a structure of its guards: `orders` and `segments`. What has no
such index is multiplied by what that makes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from derive.ir import nodes as ir
from derive.ir.walk import find_accesses, find_free
from derive.plan import ops
from derive.plan.lower.condition import lower_condition
from derive.plan.lower.context import Context
from derive.plan.lower.product import NEUTRAL

FOLDED = ("sum", "prod", "max", "min", "logsumexp")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an operation is wanted for: the order of its axes, and is it `counted` in integers?

    It may lose digits where it is `roundable`. `lower` makes one of an expression.
    """

    context: Context
    order: tuple[ir.Index, ...]
    counted: bool
    roundable: bool
    lower: Callable[[ir.Expr], ops.Op]


@dataclass(frozen=True, slots=True)
class Guarded:
    """One reduction; a product of several factors is a sum's alone, which a mean is of all places.

    Where the guard `is_named`, it is a number under a name: it multiplies by 0 and guards nothing.
    """

    kind: str
    bound: tuple[ir.Index, ...]
    guards: tuple[ir.Expr, ...]
    factors: tuple[ir.Expr, ...]
    is_mean: bool = False
    is_named: bool = False

    def to_expr(self) -> ir.Reduce:
        """The reduction as an expression."""
        body, condition = ir.product_of(self.factors), ir.all_of(*self.guards)
        if self.is_mean:
            return ir.Reduce("mean", self.bound, ir.TRUE, ir.sum_over((), body, condition))
        return ir.Reduce(self.kind, self.bound, condition, body)

    def distribute(self) -> Iterator[Guarded]:
        """The sums of which it is one, where a factor is a sum of terms with guards."""
        for factor in self.factors if self.kind == "sum" else ():
            rest = [each for each in self.factors if each is not factor]
            for term in _find_terms(factor):
                yield _collect(replace(self, factors=tuple(rest)), [term], ir.TRUE)
            if _find_terms(factor):
                return

    def part(
        self, indices: Collection[ir.Index]
    ) -> tuple[tuple[list[ir.Expr], list[ir.Expr]], tuple[list[ir.Expr], list[ir.Expr]]]:
        """The guards and the factors that have some of these indices, and those that have none."""
        found = [
            [e for e in each if bool({*find_free(e)} & {*indices}) is has]
            for has in (True, False)
            for each in (self.guards, self.factors)
        ]
        return (found[0], found[1]), (found[2], found[3])


def _find_terms(factor: ir.Expr) -> Sequence[ir.Expr]:
    """The terms of a sum each of which has a guard."""
    terms = factor.terms if isinstance(factor, ir.Add) else ()
    return terms if all(any(_find_guards(term)) for term in terms) else ()


def read_guarded(reduce: ir.Reduce, context: Context) -> Iterator[Guarded]:
    """The reduction as it stands, then with the names of factors that have guards opened."""
    is_mean = reduce.kind == "mean" and reduce.condition is ir.TRUE
    kind, parts = "sum" if is_mean else reduce.kind, [reduce.body]
    if kind not in FOLDED:
        return
    form = _collect(Guarded(kind, reduce.bound, (), (), is_mean), parts, reduce.condition)
    if form.guards or any(isinstance(f, ir.Along) or _find_terms(f) for f in form.factors):
        yield form
    opened = [_open(factor, reduce.bound, context) for factor in form.factors]
    if kind == "sum" and any(opened):
        named = [f for f, value in zip(form.factors, opened, strict=True) if value is None]
        form = replace(form, factors=tuple(named), is_named=True)
        yield _collect(form, [value for value in opened if value is not None], ir.TRUE)


def _collect(form: Guarded, parts: list[ir.Expr], condition: ir.Expr) -> Guarded:
    """The form with the guards and factors of some more parts."""
    guards, factors = dict.fromkeys((*form.guards, *ir.split_and(condition))), [*form.factors]
    while parts:
        match parts.pop(0):
            case ir.Where(told, then, other) if other is NEUTRAL[form.kind].value:
                guards |= dict.fromkeys(ir.split_and(told))
                parts.insert(0, then)
            case ir.Mul(inner) if form.kind == "sum":
                parts[:0] = inner
            case ir.Number(value) if value == 1 and form.kind == "sum":
                pass
            case part:
                factors.append(part)
    guards.pop(ir.TRUE, None)
    return replace(form, guards=tuple(guards), factors=tuple(factors))


def _open(factor: ir.Expr, bound: Sequence[ir.Index], context: Context) -> ir.Expr | None:
    """The value of a name over a bound index and another one, if that has a guard over both."""
    free = {*find_free(factor)}
    if not isinstance(factor, ir.Access) or not free & {*bound} or free <= {*bound}:
        return None
    value = context.find_definition(factor)
    return value if value is not None and any(_find_guards(value)) else None


def _find_guards(value: ir.Expr) -> Iterator[ir.Expr]:
    """The conditions without which a product is 0."""
    match value:
        case ir.Where(condition, _, ir.ZERO):
            yield condition
        case ir.Along("softmax", _, condition) if condition is not ir.TRUE:
            yield condition
        case ir.Mul(factors):
            for factor in factors:
                yield from _find_guards(factor)


def name_value(op: ops.Op, context: Context) -> ir.Access:
    """An operation as a tensor of its own, read at its axes."""
    return read_source(context.add_step(op), context)


def read_source(source: ops.Source, context: Context) -> ir.Access:
    """A step as a tensor, read at its axes."""
    axes, kind = ops.axes_of(source), "int" if source.kind == "int" else "real"
    context.stored[source.name] = tuple((index,) for index in axes)
    return ir.name_axes(source.name, axes, kind)


def finish_made(
    form: Guarded,
    made: ops.Op,
    count: ir.Expr | None,
    indices: Collection[ir.Index],
    wanted: Wanted,
) -> ops.Op:
    """The same of an operation, which is a tensor of its own where there is something else."""
    left = form.part(indices)[1]
    if {*form.bound} <= {*indices} and not any(left):
        return _divide(made, form)
    return finish(form, name_value(made, wanted.context), count, indices, wanted)


def finish(
    form: Guarded,
    made: ir.Expr,
    count: ir.Expr | None,
    indices: Collection[ir.Index],
    wanted: Wanted,
) -> ops.Op:
    """What is made of the indices with all else: a reduction over the other ones.

    A factor that may not be finite is read only where there is something that it multiplies: where
    the `count` is above 0.
    """
    _, (guards, factors) = form.part(indices)
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
    """The sum over the number of places, if it is a mean; that of no places is nan."""
    for index in form.bound if form.is_mean else ():
        op = ops.Cast(op) if ops.is_integral(op) else op  # torch would have them in its default
        args, axes = (op, ops.Num(index.extent)), ops.axes_of(op)
        call = ops.TorchCall("/", (ops.Given(0), ops.Given(1)))
        op = ops.Cell(call, args, ops.Apply("/", args, axes), axes, volume=axes)
    return op


def find_row(form: Guarded, indices: Collection[ir.Index]) -> ir.Along | None:
    """The factor of a sum that is a softmax along a bound index, over some of its places."""
    for factor in form.factors if form.kind == "sum" else ():
        match factor:
            case ir.Along("softmax", along, condition) if condition is not ir.TRUE:
                if along in indices:
                    return factor
    return None


def lower_masked(
    kind: str, parts: tuple[ir.Expr, Sequence[ir.Expr]], order: tuple[ir.Index, ...], wanted: Wanted
) -> ops.Op | None:
    """A body with the neutral number where a mask does not hold; None of nothing but 1."""
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
        value = choose(kind, shown, value, axes)
    return value


def choose(kind: str, mask: ops.Op, value: ops.Op, axes: tuple[ir.Index, ...]) -> ops.Choose:
    """A value where a mask holds, and the neutral number of a reduction where it does not."""
    shown, taken = ops.align((mask, value), axes)
    return ops.Choose(shown, taken, NEUTRAL[kind], axes)


def take_where(
    numbers: ops.Op, place: ir.Index, value: ops.Op, over: ir.Index, axes: tuple[ir.Index, ...]
) -> ops.Op:
    """The values at the entries of an index whose numbers are a place, added up."""
    is_here = ops.combine("==", (numbers, ops.Iota(place)), axes)
    return ops.Reduction("sum", choose("sum", is_here, value, axes), (over,))


def is_data(expr: ir.Expr) -> bool:
    """Does it read a tensor, and is it no index as it stands?"""
    return bool(find_accesses(expr))


def is_real(op: ops.Op) -> bool:
    """Does it hold real numbers?"""
    return not (ops.is_boolean(op) or ops.is_integral(op) or ops.is_complex(op))
