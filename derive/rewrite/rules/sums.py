"""Rules on sums: constant factors are hoisted; squares are expanded.

sum_j a_i * f_j = a_i * sum_j f_j
"""

from collections.abc import Collection, Sequence
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import TypeAlias

from derive.analysis.extents import is_filled, is_never_empty
from derive.analysis.facts import is_never_negative
from derive.analysis.safety import is_finite_where_defined, is_safe
from derive.ir import nodes as ir
from derive.ir.functions import REDUCTIONS, holds_complex
from derive.ir.polynomial import is_same_extent
from derive.ir.walk import find_accesses, find_brackets, find_free, is_bracket
from derive.rewrite.needs import find_need
from derive.rewrite.rule import rule
from derive.rewrite.rules.products import rename_bound

_LINEAR = ("sum", "mean")
_SHIFTED = ("mean", *(row.name for row in REDUCTIONS if "+" in row.passes.split()))


def find_factors(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """The factors of a product and of products inside it."""
    if isinstance(expr, ir.Mul):
        return tuple(inner for factor in expr.factors for inner in find_factors(factor))
    return (expr,)


def is_constant(expr: ir.Expr) -> bool:
    """Whether the expression is free of indices and tensors."""
    return not find_free(expr) and not find_accesses(expr)


def is_contraction(term: ir.Expr, bound: tuple[ir.Index, ...]) -> bool:
    """Whether the term is a product of several factors that depend on the bound indices."""
    return sum(bool(set(find_free(f)) & set(bound)) for f in find_factors(term)) > 1


@rule(
    law="sum_j a_i * f_j = a_i * sum_j f_j",
    before="A[M, N]; y[M]; z[i] = sum[j](y[i] * A[i,j] / 2)",
    after="A[M, N]; y[M]; z[i] = y[i] / 2 * sum[j](A[i,j])",
    refuses="A[M, N]; y[M]; z[i] = sum[j, j < i](A[i,j] * y[i - 1])",
)
def hoist_factor(expr: ir.Reduce) -> ir.Expr | None:
    """Hoist factors that do not depend on the bound indices out of a sum or a mean.

    Under a condition, a factor is hoisted only if it is readable and finite everywhere.
    """
    match expr:
        case ir.Reduce(kind, bound, condition, ir.Mul() as body) if kind in _LINEAR:
            factors = find_factors(body)
        case _:
            return None
    outside = [f for f in factors if not set(find_free(f)) & set(bound)]
    if condition is not ir.TRUE or any(find_brackets(f) for f in factors if f not in outside):
        inner = (part.condition for f in factors if f not in outside for part in find_brackets(f))
        entries = ir.all_of(condition, *inner)
        outside = [f for f in outside if is_safe(f) or find_need(entries, f) is ir.TRUE]
        if kind == "mean":  # the mean of an empty row is nan, which a bracket outside would hide
            outside = [f for f in outside if not find_brackets(f)]
    inside = [f for f in factors if f not in outside]
    if not outside or not inside or not all(map(is_finite_where_defined, factors)):
        return None
    if kind == "sum" and all(map(is_constant, outside)):
        return None  # a plan puts numbers where they cost least
    guards = [f.condition for f in outside if is_bracket(f)]
    free = [f for f in outside if not is_bracket(f)]
    whole = ir.product_of([*free, ir.Reduce(kind, bound, condition, ir.product_of(inside))])
    # A guard of this sum alone: as a factor it would guard what the sum is multiplied by.
    return ir.Where(ir.all_of(*guards), whole, ir.ZERO) if guards else whole


def find_centre(
    bound: tuple[ir.Index, ...], body: ir.Expr, others: Collection[ir.Index]
) -> ir.Expr:
    """The mean of one side of a difference, to be subtracted from both sides.

    It is 0 where this side is empty and the other side, over `others`, may have entries.
    """
    if all(
        is_filled(index) or any(is_same_extent(index.extent, other.extent) for other in others)
        for index in bound
    ):
        return ir.Reduce("mean", bound, ir.TRUE, body)
    counts = [ir.Call("max", (index.extent, ir.ONE)) for index in bound]
    total = ir.Reduce("sum", bound, ir.TRUE, body)
    return ir.Mul((total, *(ir.Pow(count, ir.MINUS_ONE) for count in counts)))


def subtract_centre(expr: ir.Expr, centre: ir.Expr) -> ir.Expr:
    """The expression minus a centre, see `find_centre`."""
    return ir.sum_of([expr, ir.product_of([ir.MINUS_ONE, *find_factors(centre)])])


def _number_factors(number: Fraction | int) -> list[ir.Expr]:
    """The number as a list of factors, empty for 1."""
    return [] if number == 1 else [ir.Number(Fraction(number))]


def _split_numbers(term: ir.Expr) -> tuple[Fraction, list[ir.Expr]]:
    """(the product of the rational factors, the others)."""
    factors = find_factors(term)
    numbers = (factor.value for factor in factors if isinstance(factor, ir.Number))
    return prod(numbers, start=Fraction(1)), [f for f in factors if not isinstance(f, ir.Number)]


def negate_term(term: ir.Expr) -> ir.Expr:
    """The negated term."""
    number, rest = _split_numbers(term)
    return ir.product_of([*_number_factors(-number), *rest])


@rule(
    law="max_j (a_i + f_j) = a_i + max_j f_j, and so for min, mean and logsumexp",
    before="a[M]; f[M, N]; y[i] = logsumexp[j](f[i,j] + a[i])",
    after="a[M]; f[M, N]; y[i] = a[i] + logsumexp[j](f[i,j])",
    refuses="a[M]; f[M, N]; y[i] = logsumexp[j](f[i,j] + where(a[i] > 0, 0, -oo))",
)
def hoist_term(expr: ir.Reduce) -> ir.Expr | None:
    """Hoist terms free of the bound indices out of a reduction that commutes with shifts."""
    match expr:
        case ir.Reduce(kind, bound, condition, ir.Add(terms)) if kind in _SHIFTED:
            outside = [t for t in terms if is_safe(t) and not {*find_free(t)} & {*bound}]
            inside = [t for t in terms if t not in outside]
            if outside and inside:
                return ir.Add((*outside, ir.Reduce(kind, bound, condition, ir.sum_of(inside))))
    return None


# Functions that never decrease in the first argument if the others are nonnegative.
RISING = "exp expm1 log log1p erf atan tanh sigmoid logsigmoid relu leaky_relu elu softplus"


@rule(
    law="max_j f(x_j) = f(max_j x_j) where f never falls, and so for min",
    before="a[M]; x[M, N]; y[i] = max[j](relu(x[i,j] + a[i]))",
    after="a[M]; x[M, N]; y[i] = relu(max[j](x[i,j] + a[i]))",
    refuses="a[N]; x[M, N]; y[i] = max[j](leaky_relu(x[i,j], a[j]))",
)
def hoist_rising(expr: ir.Reduce) -> ir.Expr | None:
    """Apply a function that never decreases to the largest, or least, entry alone."""
    match expr:
        case ir.Reduce("max" | "min" as kind, bound, condition, ir.Call(name, (body, *rest))):
            is_full = all(is_never_empty(condition, index) for index in bound)
            is_rising = all(is_constant(each) and is_never_negative(each) for each in rest)
            if name in {"max", "min"}:  # a bound on either side
                sides = [part for part in (body, *rest) if {*find_free(part)} & {*bound}] or [body]
                rest = [part for part in (body, *rest) if part not in sides]
                is_rising = len(sides) == len(rest) == 1
                body = sides[0]
            elif name not in RISING.split():
                return None
            if is_full and is_rising and {*bound} <= {*find_free(body)}:
                return ir.Call(name, (ir.Reduce(kind, bound, condition, body), *rest))
    return None


# A sum of squared differences becomes a sum of contractions.
#
#     sum_d (x_id - y_jd)**2 = max(sum_d u_id**2 + sum_d v_jd**2 - 2 * sum_d u_id * v_jd, 0)
#
# with u = x - c and v = y - c for the mean c_d of the y_jd. The error is a few units in the last
# place of the largest u**2 and v**2. So a common offset of x and y costs nothing, while points much
# closer together than the spread of all points lose the digits of their distance. A value that may
# have no mean is not shifted.

MOST_TERMS = 4  # in a square; four terms give ten products
TWO = ir.Number(Fraction(2))

_Terms: TypeAlias = tuple[tuple[Fraction, ir.Expr], ...]


@rule(
    law="sum_d (x - y)**2 = sum_d x**2 + sum_d y**2 - 2 * sum_d x * y",
    before="x[M, D]; y[N, D]; z[i,j] = sum[d]((x[i,d] - y[j,d])**2)",
    after="x[M, D]; y[N, D]; m(d) = sum[k](y[k,d]) / max(N, 1); "
    "z[i,j] = max(sum[d]((x[i,d] - m(d))**2) + sum[d]((y[j,d] - m(d))**2) "
    "- 2 * sum[d]((x[i,d] - m(d)) * (y[j,d] - m(d))), 0)",
    refuses="x[M, D]; y[D]; z[i] = sum[d]((x[i,d] - y[d])**2)",
    loses="digits where x is near y: it rounds as the largest of all the distances does",
    keeps_sign=True,
)
def expand_square(expr: ir.Reduce) -> ir.Expr | None:
    """Multiply out, under a sum or a mean, a square that is wider than each of its terms.

    First all terms are shifted so that the means of all but one are 0. If the other factors are
    nonnegative, a max with 0 keeps the sum nonnegative.
    """
    found = multiply_out(expr)
    if found is None or holds_complex(expr):
        return None
    outer, rest, terms = found
    whole = ir.Call("max", (terms, ir.ZERO)) if all(map(is_never_negative, rest)) else terms
    return ir.product_of([*outer, whole])


def multiply_out(expr: ir.Expr) -> tuple[list[ir.Expr], list[ir.Expr], ir.Expr] | None:
    """(factors free of the summed indices, the others, the sum of a square multiplied out).

    None if no factor is the square of a sum that is wider than its terms.
    """
    match expr:
        case ir.Reduce("sum" | "mean", bound, condition, body):
            factors = find_factors(body)
        case _:
            return None
    if not all(map(is_finite_where_defined, factors)):
        return None
    for k, factor in enumerate(factors):
        again = next((m for m, f in enumerate(factors) if m > k and f is factor), k)
        terms = _find_terms(factor if again == k else ir.Pow(factor, TWO))
        if terms is not None:
            others = [f for m, f in enumerate(factors) if m not in {k, again}]
            inside = {*bound, *find_free(condition)}
            outer = [f for f in others if condition is ir.TRUE and not inside & {*find_free(f)}]
            rest = [f for f in others if f not in outer]
            return outer, rest, _expand_square(expr, rest, _subtract_means(terms, expr))
    return None


def _subtract_means(terms: _Terms, square: ir.Reduce) -> _Terms:
    """The terms minus their means over their own indices; the first term gets the means back."""
    common = set.intersection(*({*find_free(term)} for _, term in terms))
    taken = {i.name for i in (*square.bound, *find_free(square))}
    moved, shifts = [terms[0]], list[ir.Expr]()
    for number, term in terms[1:]:
        own = tuple(i for i in find_free(term) if i not in common)
        if not own or not is_safe(term):
            moved.append((number, term))
            continue
        bound, _, body = rename_bound(ir.Reduce("mean", own, ir.TRUE, term), taken)
        centre = find_centre(bound, body, find_free(terms[0][1]))
        moved.append((number, subtract_centre(term, centre)))
        scale = number / terms[0][0]
        shifts.append(ir.product_of([*_number_factors(scale), *find_factors(centre)]))
    if shifts:
        moved[0] = (terms[0][0], ir.Add((terms[0][1], *shifts)))
    return tuple(moved)


def _find_terms(factor: ir.Expr) -> _Terms | None:
    """The terms (number, rest) of a squared sum that is wider than its terms, else None."""
    match factor:
        case ir.Pow(ir.Add(terms) as whole, ir.Number(power)) if power == 2:
            own, parts = {*find_free(whole)}, (f for term in terms for f in find_factors(term))
            is_wide = not any(own <= {*find_free(part)} for part in parts)
            split = map(_split_numbers, terms) if is_wide and len(terms) <= MOST_TERMS else ()
            return tuple((number, ir.product_of(others)) for number, others in split) or None
    return None


def _expand_square(square: ir.Reduce, rest: Sequence[ir.Expr], terms: _Terms) -> ir.Expr:
    """`square` multiplied out: sums of `rest` times each squared term, or twice a product."""

    def make_term(number: Fraction, *factors: ir.Expr) -> ir.Expr:
        kept = [f for f in (*rest, *factors) if f is not ir.ONE] or [ir.ONE]
        whole = ir.Reduce(square.kind, square.bound, square.condition, ir.product_of(kept))
        return whole if number == 1 else ir.Mul((ir.Number(number), whole))

    squares = [make_term(number**2, ir.Pow(term, TWO)) for number, term in terms]
    products = [make_term(2 * a * b, one, other) for (a, one), (b, other) in combinations(terms, 2)]
    return ir.Add((*squares, *products))
