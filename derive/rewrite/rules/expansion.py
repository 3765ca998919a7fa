"""Expansion of sums: polynomials are multiplied out, contracted term by term, and factored again.

    sum_k (a_ik * r_ik * c_nk - b_ik * s_ik * c_nk)  =  sum_k (a_ik * r_ik - b_ik * s_ik) * c_nk

The body of a sum or a mean is read as a polynomial: sums, differences, products, natural powers,
numbers, brackets, and sums and means inside. Anything else is an atom. So is a sum with one term
that has all of its indices, because a plan computes that tensor anyway. Like terms are collected up
to the names of bound indices.

Digits: a difference of two sums loses digits against a sum of differences, by the ratio of the
values to their differences. Under a root, a logarithm or a quotient the sum is not expanded. A
product of differences would lose twice as much. So the mean of the points is subtracted first,
which keeps the differences: (x_i - x_j) is (x_i - m) - (x_j - m). Where there is no mean, the
product stays, unless the expanded sum has no difference.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import permutations

from derive.analysis.safety import is_finite_where_defined, is_safe
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.text import to_text
from derive.ir.walk import (
    find_accesses,
    find_free,
    map_children,
    rename_apart,
    rewrite_bottom_up,
    substitute,
    walk,
)
from derive.rewrite import guards, rounding
from derive.rewrite.rule import apply_rules, put_value, rename_all, rule, system_rule
from derive.rewrite.rules import deltas, products, sums
from derive.rewrite.rules.sums import find_factors, is_constant, is_contraction
from derive.rewrite.rules.terms import Term, factor_terms, is_composite, is_expandable, to_sum

MOST_TERMS = 64  # the longest polynomial
MOST_RENAMED = 4  # bound indices of which every order is tried
MOST_NODES = 512  # the largest equation after inlining, shared nodes repeated
MOST_PARTS = 12  # equations inlined into one
MOST_POWER = 4  # up to which a power of a sum is multiplied out


class TooLongError(Exception):
    """A polynomial has too many terms."""


_ONE = Term(Fraction(1), (), ir.TRUE, ())


@dataclass
class Reader:
    """Reads an expression as a sum of terms; a node that is not expanded is a factor.

    `steps`: 0 expands nested sums and products only, 1 also sums that no tensor spans, 2 all sums.
    """

    taken: set[str]
    bound: set[ir.Index]
    names: frozenset[str] = frozenset()  # index names of the expression, which no mean may bind
    steps: int = 0
    is_centred: bool = False
    is_apart: bool = True  # a mean was subtracted in each difference, if `is_centred`
    is_lossy: bool = False  # differences of two kinds of points are centred, which loses digits
    is_mean: bool = False  # the expression is the body of a mean
    is_changed: bool = False  # a node was expanded

    def read_polynomial(self, expr: ir.Expr) -> tuple[list[Term], int]:
        """(terms of an expression, its degree: the most differences multiplied in one of them)."""
        match expr:
            case ir.Number(value):
                return [replace(_ONE, number=value)], 0
            case ir.Pow(ir.Number(value), ir.Number(power)) if value and power.denominator == 1:
                return [replace(_ONE, number=value ** int(power))], 0
            case ir.Add(parts) if self.steps and is_expandable(
                expr, self.bound, deep=self.steps > 1
            ):
                return self.read_terms(parts)
            case ir.Mul(factors):
                return self._multiply([self._read_factor(f, factors) for f in factors])
            case ir.Pow(base, ir.Number(power)) if (
                power.denominator == 1 and 1 < power <= MOST_POWER
            ):
                if self._is_open(base):
                    self.is_changed = True
                    return self._multiply([self.read_polynomial(base) for _ in range(int(power))])
                if isinstance(base, ir.Mul) and any(map(self._is_open, base.factors)):
                    return self.read_polynomial(
                        ir.Mul(tuple(ir.Pow(f, expr.exponent) for f in base.factors))
                    )
                return [replace(_ONE, factors=(base,) * int(power))], 0
            case ir.Reduce() if _adds_up(expr):
                return self._read_sum(expr)
            case ir.Where(condition, then, other) if other is ir.ZERO:
                terms, degree = self.read_polynomial(then)
                return [term.times(replace(_ONE, condition=condition)) for term in terms], degree
            case ir.Call("cos" | "sin" as name, (argument,)) if self.steps:
                return self._read_angle(expr, name, argument)
        return _make_atom(expr)

    def read_root(self, expr: ir.Expr) -> tuple[list[Term], int]:
        """(terms, degree), as of `read_polynomial`; the indices of an outermost sum keep names."""
        if isinstance(expr, ir.Reduce) and _adds_up(expr):
            self.bound |= {*expr.bound}
            self.is_mean = expr.kind == "mean"
            match expr.body:
                case ir.Add(parts) if self.steps and any(
                    is_contraction(p, expr.bound) for p in parts
                ):
                    terms, degree = self.read_terms(parts)
                case body:
                    terms, degree = self.read_polynomial(body)
            return _sum_terms(expr, expr.bound, expr.condition, terms), degree
        factors = find_factors(expr)
        sums = [factor for factor in factors if isinstance(factor, ir.Add)]
        if self.steps and len(sums) == 1 and all(f is sums[0] or is_constant(f) for f in factors):
            numbers = ir.product_of([f for f in factors if f is not sums[0]])
            return self._multiply([self.read_polynomial(numbers), self.read_terms(sums[0].terms)])
        return self.read_polynomial(expr)

    def read_terms(self, parts: Sequence[ir.Expr]) -> tuple[list[Term], int]:
        """(terms, degree) of an expanded sum, with a mean subtracted if `is_centred`."""
        self.is_changed = True
        read = [self.read_polynomial(part) for part in parts]
        terms = [term for part, _ in read for term in part]
        if len(terms) > MOST_TERMS:
            raise TooLongError
        degree = max(each for _, each in read)
        if not _is_difference(terms):
            return terms, degree
        if self.is_centred:
            centred = _subtract_means(terms, self.names, is_lossy=self.is_lossy)
            self.is_apart = self.is_apart and centred is not None
            terms = centred or terms
        return terms, max(degree, 1)

    def _is_open(self, base: ir.Expr) -> bool:
        if not self.steps:
            return False
        match base:
            case ir.Add():
                return is_expandable(base, self.bound, deep=self.steps > 1)
            case ir.Reduce("sum"):
                return self.steps > 1 or is_composite(base)
        return False

    def _read_factor(self, factor: ir.Expr, others: Sequence[ir.Expr]) -> tuple[list[Term], int]:
        """(terms, degree) of a factor; a sum that may be empty is an atom if another is unsafe."""
        if isinstance(factor, ir.Reduce) and factor.condition is not ir.TRUE:
            rest = [other for other in others if other is not factor]
            if not all(map(is_safe, rest)):
                return _make_atom(factor)
        return self.read_polynomial(factor)

    def _read_sum(self, expr: ir.Reduce) -> tuple[list[Term], int]:
        new = rename_all(expr.bound, self.taken)
        bound = tuple(new.values())
        self.bound |= {*bound}
        condition, body = substitute(expr.condition, new), substitute(expr.body, new)
        self.is_changed = self.is_changed or self.is_mean or expr.kind == "mean"
        terms, degree = self.read_polynomial(body)
        return _sum_terms(expr, bound, condition, terms), degree

    def _read_angle(self, expr: ir.Expr, name: str, argument: ir.Expr) -> tuple[list[Term], int]:
        """(terms, degree) of cos(a + b), as cos(a) cos(b) - sin(a) sin(b) if no part spans all."""
        terms, _ = Reader(self.taken, self.bound, self.names, self.steps).read_polynomial(argument)
        own = {*find_free(argument)}
        parts = [{*find_free(term.to_expr())} for term in terms]
        if len(terms) < 2 or any(own <= part for part in parts):
            return _make_atom(expr)
        self.is_changed = True
        first = [t for t, part in zip(terms, parts, strict=True) if part <= parts[0]]
        rest = [t for t in terms if t not in first]
        one = to_sum(first)
        sign = -1 if all(term.number < 0 for term in rest) else 1
        other = to_sum([replace(t, number=sign * t.number) for t in rest])
        pairs = (("cos", "cos", 1), ("sin", "sin", -sign))
        if name == "sin":
            pairs = (("sin", "cos", 1), ("cos", "sin", sign))
        found: list[Term] = []
        for left, right, number in pairs:
            angles = (ir.Call(left, (one,)), ir.Call(right, (other,)))
            found += self.read_polynomial(ir.Mul((ir.Number(Fraction(number)), *angles)))[0]
        return found, 1

    def _multiply(self, parts: Sequence[tuple[list[Term], int]]) -> tuple[list[Term], int]:
        product = [_ONE]
        for terms, _ in parts:
            if len(product) * len(terms) > MOST_TERMS:
                raise TooLongError
            product = [one.times(other) for one in product for other in terms]
        return product, sum(degree for _, degree in parts)


def _adds_up(expr: ir.Reduce) -> bool:
    """Whether the reduction is a sum, or a mean without a condition."""
    return expr.kind == "sum" or (expr.kind == "mean" and expr.condition is ir.TRUE)


def _sum_terms(
    expr: ir.Reduce, bound: tuple[ir.Index, ...], condition: ir.Expr, terms: Sequence[Term]
) -> list[Term]:
    """The terms, each summed over these indices, and divided by the extents for a mean."""
    counts = [ir.Pow(i.extent, ir.MINUS_ONE) for i in bound] if expr.kind == "mean" else []
    around = Term(Fraction(1), bound, condition, tuple(counts))
    return [around.times(term) for term in terms]


def _make_atom(expr: ir.Expr) -> tuple[list[Term], int]:
    return [replace(_ONE, factors=(expr,))], 0


def _is_difference(terms: Sequence[Term]) -> bool:
    reads = any(find_accesses(factor) for term in terms for factor in term.factors)
    return reads and len({term.number < 0 for term in terms}) > 1


def _subtract_means(
    terms: Sequence[Term], names: frozenset[str], *, is_lossy: bool
) -> list[Term] | None:
    """The sides of a difference, each minus the mean of the second over its own index; or None."""
    plus = [term for term in terms if term.number > 0]
    minus = [replace(term, number=-term.number) for term in terms if term.number < 0]
    one, other = to_sum(plus), to_sum(minus)
    mine = [i for i in find_free(one) if i not in find_free(other)]
    its = [i for i in find_free(other) if i not in find_free(one)]
    if len(mine) != 1 or len(its) != 1 or not is_safe(other):
        return None
    is_alike = mine[0].extent is its[0].extent and substitute(other, {its[0]: mine[0]}) is one
    if not (is_alike or is_lossy):
        return None
    index = rename_apart(its[0], {*names})
    mean = sums.find_centre((index,), substitute(other, {its[0]: index}), mine)
    sides = ((1, sums.subtract_centre(one, mean)), (-1, sums.subtract_centre(other, mean)))
    return [Term(Fraction(n), (), ir.TRUE, (side,)) for n, side in sides]


def _is_zero(term: Term) -> bool:
    """Whether the term is 0: a sum of points minus their mean."""
    for index in term.bound:
        having = [f for f in term.factors if index in find_free(f)]
        if len(having) == 1 and index not in find_free(term.condition):
            match having[0]:
                case ir.Add((one, ir.Mul((_, ir.Reduce(_, (other,), _, body), *_)))):
                    centres = (sums.find_centre((other,), body, its) for its in ((), (other,)))
                    is_centred = any(sums.subtract_centre(one, c) is having[0] for c in centres)
                    if is_centred and substitute(body, {other: index}) is one:
                        return True
    return False


def tidy(terms: Sequence[Term]) -> list[Term]:
    """The terms with deltas sifted, unused indices counted, like terms collected, zeros dropped."""
    tidied: list[Term] = []
    for term in terms:
        found = [replace(term, number=Fraction(1))]
        if term.bound:
            plain = apply_rules(found[0].to_expr(), (deltas.sift_index, products.count_unused))
            found = Reader({i.name for i in find_free(plain)}, set()).read_polynomial(plain)[0]
        tidied += [replace(each, number=term.number * each.number) for each in found]
    alike: dict[object, list[Term]] = {}
    for term in map(_count_sizes, tidied):
        if not _is_zero(term):
            alike.setdefault(_outline(term), []).append(term)
    found_terms: dict[object, Term] = {}
    for group in alike.values():
        for term in group:
            key: object = _find_key(term) if len(group) > 1 else term
            known = found_terms.setdefault(key, replace(term, number=Fraction(0)))
            found_terms[key] = replace(known, number=known.number + term.number)
    return [term for term in found_terms.values() if term.number]


def _count_sizes(term: Term) -> Term:
    """The term with the powers of a size joined; unchanged if a size occurs elsewhere in it too."""
    sizes, rest = Polynomial.of(1), list[ir.Expr]()
    for factor in term.factors:
        one = Polynomial.of(factor)
        is_size = all(isinstance(atom, ir.Size) for atom in one.atoms)
        if is_constant(factor) and len(one.terms) == 1 and is_size:
            sizes = sizes * one
        else:
            rest.append(factor)
    ((monomial, number),) = sizes.terms.items()
    own = {part for f in term.factors for part in walk(f) if isinstance(part, ir.Size)}
    if not own <= {*sizes.atoms}:
        return term
    powers = (b if p == 1 else ir.Pow(b, ir.Number(Fraction(p))) for b, p in monomial)
    return replace(term, number=term.number * number, factors=(*rest, *powers))


def _outline(term: Term) -> object:
    """A key that is equal for terms that differ in numbers and in names of bound indices alone."""
    return (len(term.bound), frozenset(Counter(map(_outline_factor, term.factors)).items()))


def _outline_factor(factor: ir.Expr) -> tuple[str, ...]:
    return (type(factor).__name__, *(a.tensor.name for a in find_accesses(factor)))


def _find_key(term: Term) -> object:
    """A key of a term without its number, equal up to names of bound indices (if these are few)."""
    if len(term.bound) > MOST_RENAMED:
        return (term.bound, term.condition, frozenset(Counter(term.factors).items()))
    keys: list[tuple[list[str], object]] = []
    for order in permutations(term.bound):
        new: dict[ir.Expr, ir.Expr] = {i: ir.Index(f"@{k}", i.extent) for k, i in enumerate(order)}
        named = term.rename(new)
        parts = ir.split_and(named.condition)
        text = sorted(to_text(f) for f in (*named.factors, *parts, *new.values()))
        keys.append((text, (frozenset(parts), frozenset(Counter(named.factors).items()))))
    return min(keys, key=lambda key: key[0])[1]


def expand_reduction(expr: ir.Expr, *, differences: bool, is_lossy: bool = False) -> ir.Expr | None:
    """A sum or a mean multiplied out and factored again; None where nothing expands.

    Without `differences`, sums alone. `is_lossy`: also differences between two kinds of points.
    """
    match expr:
        case ir.Reduce() if _adds_up(expr) and not _is_squared_distance(expr.body):
            found = _expand_polynomial(expr, steps=1, is_lossy=is_lossy)
            return found[0] if found is not None and (found[1] > 0) == differences else None
    return None


@lru_cache(maxsize=1 << 10)
def _expand_polynomial(
    expr: ir.Expr, *, steps: int, is_lossy: bool = False
) -> tuple[ir.Expr, int] | None:
    """(the factored polynomial, its degree), or None; `steps`, `is_lossy` are those of Reader."""
    free = find_free(expr)
    taken = {i.name for i in (*free, *(expr.bound if isinstance(expr, ir.Reduce) else ()))}
    inner = (part.body for part in walk(expr) if isinstance(part, (ir.Reduce, ir.Along)))
    names = frozenset(i.name for body in inner for i in find_free(body)) | taken
    for is_centred in (False, True):
        reader = Reader({*taken}, set(), names, steps, is_centred, is_lossy=is_lossy)
        try:
            terms, degree = reader.read_root(expr)
        except TooLongError:
            return None
        if degree < 2 or steps > 1:
            break
    if not reader.is_changed or not reader.is_apart:
        return None
    if not all(is_finite_where_defined(f) for term in terms for f in term.factors):
        return None
    tidied = tidy(terms)
    if steps > 1 and degree > 0 and _is_difference(tidied):
        return None
    new = to_sum(factor_terms(tidied, deep=False))
    return None if new is expr else (new, degree)


def _is_squared_distance(body: ir.Expr) -> bool:
    """Whether the body is a number times the square of a difference of points: a distance."""
    match [factor for factor in find_factors(body) if not is_constant(factor)]:
        case [ir.Pow(ir.Add(terms), ir.Number(power))]:
            return power == 2 and not any(map(is_composite, terms))
    return False


@rule(
    law="sum_k (a_k + b_k) * c_k = sum_k a_k * c_k + sum_k b_k * c_k",
    before="u, v[M, D]; d[M]; x[M, N]; "
    "z[i,n] = sum[j]((d[i] * [i == j] + sum[k](u[i,k] * v[j,k])) * x[j,n])",
    after="u, v[M, D]; d[M]; x[M, N]; z[i,n] = d[i] * x[i,n] + sum[j, k](u[i,k] * v[j,k] * x[j,n])",
    refuses="a[M, D]; c[D]; z[i] = sum[k]((a[i,k] + 1) * c[k])",
)
def expand_sum(expr: ir.Reduce) -> ir.Expr | None:
    """Multiply out the body of a sum, contract each term by itself, and factor again."""
    return expand_reduction(expr, differences=False)


@rule(
    law="sum_k (a_k - b_k) * c_k = sum_k a_k * c_k - sum_k b_k * c_k",
    before="x[N, D]; w[N, N]; z[i,d] = sum[j]((x[i,d] - x[j,d]) * w[i,j])",
    after="x[N, D]; w[N, N]; z[i,d] = sum[j](x[i,d] * w[i,j]) - sum[j](x[j,d] * w[i,j])",
    refuses="x[N, D]; w[N, N]; z[i,d] = sum[j]((x[i,d] - 1) * w[i,j])",
    loses="digits where a is near b: it rounds as the larger of the two sums does",
)
def expand_difference(expr: ir.Reduce) -> ir.Expr | None:
    """Expand a sum with differences, where rounding below zero is harmless.

    A mean is subtracted in products of differences between two kinds of points; squares stay.
    """
    return expand_reduction(expr, differences=True, is_lossy=sums.multiply_out(expr) is None)


@system_rule(
    law="y = p(x), z = q(y): z = q(p(x)), where p and q are sums of products",
    before="x[M, D]; k[i,j] = sum[d](x[i,d] * x[j,d]); s = sum[i, j](k[i,j]**2)",
    after="x[M, D]; s = sum[i, j, d, e](x[i,d] * x[j,d] * x[i,e] * x[j,e])",
    refuses="x[M, D]; k[i,j] = sum[d](x[i,d] * x[j,d]); s = sum[i, j](exp(k[i,j]))",
)
def expand_equations(system: ir.System) -> Iterator[ir.System]:
    """Inline polynomials that one equation alone reads, and expand its sums.

    All equations are expanded at once too. Where terms cancel, one product may be left.
    """
    nonfinite = guards.find_nonfinite(system, signs=True)
    names = rounding.find_sensitive_names(system)
    values = {e.target: guards.mark_tensors(e.value, nonfinite) for e in system.equations}

    def replace_values(
        changed: Mapping[ir.Access, ir.Expr], without: Sequence[ir.Equation] = ()
    ) -> ir.System:
        kept = (e for e in system.equations if e not in without)
        found = (
            ir.Equation(e.target, guards.unmark_tensors(changed[e.target], nonfinite))
            if changed[e.target] is not values[e.target]
            else e
            for e in kept
        )
        return replace(system, equations=tuple(found))

    every = {
        target: expand_all(ir.Equation(target, value), names) for target, value in values.items()
    }
    if sum(every[target] is not value for target, value in values.items()) > 1:
        yield replace_values(every)
    readers: dict[ir.Tensor, list[ir.Equation]] = {}
    for equation in system.equations:
        for tensor in dict.fromkeys(access.tensor for access in find_accesses(equation.value)):
            readers.setdefault(tensor, []).append(equation)
    for reader in system.equations:
        parts = _find_private(reader, system, readers)
        value = values[reader.target]
        for part in reversed(parts):
            value = put_value(value, ir.Equation(part.target, values[part.target]))
        gone = {p.target.tensor for p in parts}
        gone |= {nonfinite[tensor] for tensor in gone if tensor in nonfinite}
        if not parts or any(access.tensor in gone for access in find_accesses(value)):
            continue  # one of them cannot be inlined, or may be infinite
        if _count_written(value) > MOST_NODES:
            continue
        factored = rewrite_bottom_up(value, _factor_here)
        whole = _expand_polynomial(value, steps=2)
        forms = [expand_all(ir.Equation(reader.target, factored), names)]
        if whole is not None and not (whole[1] and reader.target.tensor.name in names[0]):
            forms.insert(0, whole[0])
        if any(expand_difference(part) is not None for part in walk(value)):
            # for the rule `expand_difference`
            yield replace_values({**values, reader.target: value}, parts)
        for form in forms:
            if form is not value:
                yield replace_values({**values, reader.target: form}, parts)


@lru_cache(maxsize=1 << 14)
def _count_written(expr: ir.Expr) -> int:
    """The number of nodes of an expression, with shared nodes repeated."""
    return 1 + sum(map(_count_written, expr.children))


def _find_private(
    reader: ir.Equation, system: ir.System, readers: Mapping[ir.Tensor, list[ir.Equation]]
) -> list[ir.Equation]:
    """The polynomial equations that only `reader` reads, through each other too; [] if too many."""
    found: list[ir.Equation] = []
    inside = {reader}
    before = system.equations[: system.equations.index(reader)]
    for equation in reversed(before):
        tensor = equation.target.tensor
        if tensor in system.results or not inside.issuperset(readers.get(tensor, (None,))):
            continue
        if tensor.kind != "int" and is_polynomial(equation.value):
            inside.add(equation)
            found.insert(0, equation)
            if len(found) > MOST_PARTS:
                return []
    return found


def is_polynomial(expr: ir.Expr) -> bool:
    """Whether an expression is made of powers of reads by +, *, means, guards, natural powers."""
    match expr:
        case _ if is_constant(expr):
            return True
        case ir.Add(parts) | ir.Mul(parts):
            return all(map(is_polynomial, parts))
        case ir.Pow(base, exponent) if guards.is_natural(exponent):
            return is_polynomial(base)
        case ir.Pow(ir.Pow() as base, _):
            return is_polynomial(base)
        case ir.Pow(base):
            return isinstance(base, ir.Access)
        case ir.Reduce("sum" | "mean", _, _, body):
            return is_polynomial(body)
        case ir.Where(_, then, other):
            return other is ir.ZERO and is_polynomial(then)
        case ir.Access():
            return expr.tensor.kind == "real"
    return False


@rule(
    law="sum_e u * k + sum_e q * k = sum_e (u + q) * k",
    before="q[M, D]; u, w[D]; k, r[N, D]; s[i,j] = sum[e](q[i,e] * k[j,e])"
    " + sum[e](q[i,e] * r[j,e]) + sum[d](u[d] * k[j,d]) + sum[d](w[d] * r[j,d])",
    after="q[M, D]; u, w[D]; k, r[N, D]; s[i,j] = sum[e]((q[i,e] + u[e]) * k[j,e])"
    " + sum[e]((q[i,e] + w[e]) * r[j,e])",
    refuses="q[M, D]; u[N, D]; k[N, D]; s[i,j] = sum[e](q[i,e] * k[j,e]) + sum[e](u[j,e] * k[j,e])",
)
def factor_sum(expr: ir.Add) -> ir.Expr | None:
    """Factor out what terms share: they become one product with the sum of the other factors.

    The sum is no wider than the widest of its terms, so that an expansion is not undone.
    """
    return _factor(expr, deep=True)


def _factor_here(expr: ir.Expr) -> ir.Expr:
    """A sum with its common factors taken out; any other expression as it is."""
    return (isinstance(expr, ir.Add) and _factor(expr, deep=False)) or expr


def _factor(expr: ir.Add, *, deep: bool) -> ir.Expr | None:
    names = {i.name for i in find_free(expr)}
    try:
        read = [Reader({*names}, set()).read_polynomial(term)[0] for term in expr.terms]
    except TooLongError:
        return None
    terms = [term for part in read for term in part]
    if not all(is_finite_where_defined(f) for term in terms for f in term.factors):
        return None
    factored = factor_terms([term for term in terms if term.number], deep=deep)
    return to_sum(factored) if len(factored) < len(terms) else None


def expand_all(equation: ir.Equation, names: rounding.Names) -> ir.Expr:
    """The value with all its sums expanded, apart from sensitive differences."""
    sensitive, _ = rounding.find_sensitive(equation, names)

    def expand_sums(here: ir.Expr) -> ir.Expr:
        new = expand_reduction(here, differences=False)
        if new is None and here not in sensitive:
            new = expand_reduction(here, differences=True)
        return map_children(here, expand_sums) if new is None else new

    return expand_sums(equation.value)
