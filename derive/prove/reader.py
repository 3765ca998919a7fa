"""The values of expressions as sums of terms, with intermediates inlined.

A reader has the equations of one system. An environment maps the indices of an expression to index
expressions over fresh indices. Values are cached by expression and environment.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction

from derive.analysis.affine import relate, to_linear, unravel
from derive.analysis.facts import is_integer
from derive.analysis.places import split_merged
from derive.ir import nodes as ir
from derive.ir.definitions import unfold
from derive.ir.functions import ROWS, is_complex
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_free, split_guards, substitute, walk
from derive.prove import conditions as cond
from derive.prove import terms as nf
from derive.prove.algebra import (
    apply,
    exponential,
    fold,
    logarithm,
    multiply,
    power,
    scale,
    to_number,
)
from derive.prove.sums import decide


class Reader:
    """The values of one system's expressions, as sums of terms."""

    def __init__(self, algebra: nf.Algebra, system: ir.System) -> None:
        self.algebra = algebra
        self.empty_row = system.empty_row
        self.equations: dict[str, ir.Equation] = {}
        for equation in system.equations:
            name = equation.target.tensor.name
            if name in self.equations:
                raise nf.GivesUp("a tensor that several equations fill")
            self.equations[name] = equation
        self._known: dict[tuple[ir.Expr, tuple[Polynomial, ...]], nf.Poly] = {}
        self._open: list[str] = []

    def read_value(self, expr: ir.Expr, env: nf.Env) -> nf.Poly:
        """The value of an expression, its free indices replaced as `env` has them."""
        free = find_free(expr)
        under = expr, tuple(env.get(index, to_linear(index)) for index in free)
        found = self._known.get(under)
        if found is None:
            self.algebra.step()
            found = self._known[under] = self._read_node(expr, env)
        return found

    def _read_node(self, expr: ir.Expr, env: nf.Env) -> nf.Poly:
        match expr:
            case ir.Number(value):
                return to_number(Polynomial.of(value))
            case ir.Infinity(negative):
                sign = Fraction(-1 if negative else 1)
                return nf.single(nf.Infinite(), coefficient=sign)
            case ir.Size() | ir.Scalar():
                return nf.single(nf.Symbol(expr))
            case ir.Index():
                return to_number(env.get(expr, to_linear(expr)))
            case ir.Access():
                return self._read_access(expr, env)
            case ir.Add(terms):
                parts = [self.read_value(term, env) for term in terms]
                return tuple(term for part in parts for term in part)
            case ir.Mul():
                return self._read_product(expr, env)
            case ir.Pow(base, exponent):
                return self._read_power(base, exponent, env)
            case ir.Call():
                return self._read_call(expr, env)
            case ir.Where(condition, then, other):
                return self._read_where(condition, then, other, env)
            case ir.Reduce():
                return read_reduce(self, expr, env)
            case ir.Along():
                return read_along(self, expr, env)
            case ir.Truth() | ir.Compare() | ir.And() | ir.Or() | ir.Not():
                return cond.guard(self.read_condition(expr, env), nf.ONE)

    def read_condition(self, expr: ir.Expr, env: nf.Env) -> cond.Cubes:
        """The condition as cubes, conjunctions of literals of which at most one holds."""
        match expr:
            case ir.Truth(value):
                return cond.ALWAYS if value else cond.NEVER
            case ir.And(parts):
                return cond.all_of(*[self.read_condition(part, env) for part in parts])
            case ir.Or(parts):
                return cond.none_of(
                    cond.conjoin([cond.deny(self.read_condition(part, env)) for part in parts])
                )
            case ir.Not(part):
                return cond.none_of(self.read_condition(part, env))
            case ir.Access():
                if expr.tensor.name in self.equations:
                    raise nf.GivesUp("a condition that an equation defines")
                places = tuple(self.read_place(place, env) for place in expr.places)
                return ((nf.Literal("read", nf.Read(expr.tensor, places)),),)
            case ir.Where():
                asked, chosen, left = (self.read_condition(e, env) for e in expr.children)
                return cond.check_count(
                    (*cond.conjoin([asked, chosen]), *cond.conjoin([cond.deny(asked), left]))
                )
            case ir.Compare(relation, left, right):
                one, two = self.read_index(left, env), self.read_index(right, env)
                if one is not None and two is not None:
                    return _compare_indices(relation, one, two)
                sides = self.read_value(left, env), self.read_value(right, env)
                return _compare_values(self.algebra, relation, *sides)
        raise nf.GivesUp("a condition of an unknown kind")

    def read_index(self, expr: ir.Expr, env: nf.Env) -> Polynomial | None:
        """The linear form of an integer expression over indices and sizes; None for any other."""
        if not is_integer(Polynomial.of(expr)):
            return None
        for here in walk(expr):
            match here:
                case ir.Access(tensor, _) if tensor.name in self.equations:
                    return None
                case ir.Reduce() | ir.Along() | ir.Where():
                    return None
        return to_linear(
            substitute(expr, {i: env[i].to_expr() for i in find_free(expr) if i in env})
        )

    def read_place(self, expr: ir.Expr, env: nf.Env) -> Polynomial:
        """The linear form of a position; GivesUp where it has none."""
        if isinstance(expr, ir.Index):
            return env.get(expr, to_linear(expr))
        found = self.read_index(expr, env)
        if found is None:
            raise nf.GivesUp("a position that is no index expression")
        return found

    def open_row(
        self, expr: ir.Reduce | ir.Along, env: nf.Env
    ) -> tuple[nf.Indices, dict[ir.Index, Polynomial], cond.Cubes]:
        """Fresh indices for the bound ones, the environment with them, and the condition.

        The condition of a running sum covers the entries up to the current one.
        """
        fresh = {index: self.algebra.make_index(index.extent) for index in expr.indices}
        inner = {**env, **{old: to_linear(new) for old, new in fresh.items()}}
        cubes = self.read_condition(expr.condition, inner)
        if isinstance(expr, ir.Along) and ROWS[expr.kind].is_linear:
            ahead = env.get(expr.index, to_linear(expr.index)) - inner[expr.index]
            cubes = cond.all_of(cubes, cond.decide_linear("least", ahead))
        return tuple(fresh.values()), inner, cubes

    def _read_access(self, access: ir.Access, env: nf.Env) -> nf.Poly:
        name = access.tensor.name
        places = tuple(self.read_place(place, env) for place in access.places)
        if name in self.equations:
            return self.read_tensor(name, places)
        if access.tensor.kind == "complex":
            raise nf.GivesUp("complex numbers")
        read = nf.Read(access.tensor, places)
        if access.tensor.kind == "bool":
            return cond.guard(((nf.Literal("read", read),),), nf.ONE)
        return nf.single(read)

    @contextmanager
    def enter_equation(
        self, name: str, places: tuple[Polynomial, ...]
    ) -> Iterator[tuple[ir.Expr, dict[ir.Index, Polynomial]]]:
        """Within the context: an equation's right side, its index values; GivesUp if it recurs."""
        if name in self._open:
            raise nf.GivesUp("a recurrence")
        equation = self.equations[name]
        env: dict[ir.Index, Polynomial] = {}
        target = equation.target
        for side in zip(target.places, target.tensor.shape, places, strict=True):
            env |= _solve_place(*side)
        self._open.append(name)
        try:
            yield equation.value, env
        finally:
            self._open.pop()

    def read_tensor(self, name: str, places: tuple[Polynomial, ...]) -> nf.Poly:
        """The value of an equation's tensor at these places."""
        with self.enter_equation(name, places) as (value, env):
            if self.equations[name].target.tensor.kind == "bool":
                return cond.guard(self.read_condition(value, env), nf.ONE)
            return self.read_value(value, env)

    def _read_product(self, expr: ir.Mul, env: nf.Env) -> nf.Poly:
        guards, others = split_guards(expr.factors)
        found: nf.Poly = nf.ONE
        for factor in others:
            found = multiply(self.algebra, found, self.read_value(factor, env))
        cubes = cond.all_of(*[self.read_condition(each, env) for each in guards])
        return cond.guard(cubes, found) if guards else found

    def _read_power(self, base: ir.Expr, exponent: ir.Expr, env: nf.Env) -> nf.Poly:
        if isinstance(exponent, ir.Number):
            return power(self.algebra, self.read_value(base, env), exponent.value)
        argument = self.read_value(exponent, env)
        below = self.algebra.finish(self.read_value(base, env))
        if not cond.is_above(below):
            return apply(self.algebra, "power", (below.terms, argument))
        log = logarithm(self.algebra, below.terms)
        return exponential(self.algebra, multiply(self.algebra, argument, log))

    def _read_call(self, expr: ir.Call, env: nf.Env) -> nf.Poly:
        if expr.function == "pi":
            return nf.single(nf.Symbol(expr))
        if expr.function in {"floordiv", "mod", "clip", "abs", "max", "min"}:
            form = self.read_index(expr, env)
            if form is not None:
                return to_number(form)
        if expr.function in {"floordiv", "mod"}:
            raise nf.GivesUp("a whole quotient of values")
        if is_complex(expr) or any(map(is_complex, expr.arguments)):
            raise nf.GivesUp("complex numbers")
        arguments = tuple(self.read_value(each, env) for each in expr.arguments)
        if expr.function in {"conj", "re"}:
            return arguments[0]
        meaning = unfold(expr)
        if meaning is not None:
            for argument in arguments:
                cond.refuse_infinite(argument)
            return self.read_value(meaning, env)
        return apply(self.algebra, expr.function, arguments)

    def _read_where(
        self, condition: ir.Expr, then: ir.Expr, other: ir.Expr, env: nf.Env
    ) -> nf.Poly:
        if then is ir.ONE and other is ir.ZERO:
            return cond.guard(self.read_condition(condition, env), nf.ONE)
        relu = self._find_relu(condition, then, other, env)
        if relu is not None:
            return relu
        cubes = self.read_condition(condition, env)
        found: list[nf.Term] = []
        for chosen, branch in ((cubes, then), (cond.none_of(cubes), other)):
            if chosen:
                found += cond.guard(chosen, self.read_value(branch, env))
        return tuple(found)

    def _find_relu(
        self, condition: ir.Expr, then: ir.Expr, other: ir.Expr, env: nf.Env
    ) -> nf.Poly | None:
        """where(p > 0, a, b) as b + k * relu(p) where a - b is k * p; else None."""
        match condition:
            case ir.Compare(">" | ">=", left, right) | ir.Compare("<" | "<=", right, left):
                pass
            case _:
                return None
        if self.read_index(left, env) is not None and self.read_index(right, env) is not None:
            return None
        algebra = self.algebra
        branches = [self.read_value(branch, env) for branch in (then, other)]
        if any(isinstance(f.atom, nf.Infinite) for b in branches for t in b for f in t.factors):
            return None
        gap = algebra.finish((*self.read_value(left, env), *scale(self.read_value(right, env), -1)))
        step = algebra.finish((*branches[0], *scale(branches[1], -1)))
        if not gap.terms or len(gap.terms) != len(step.terms):
            return None
        share = step.terms[0].coefficient / gap.terms[0].coefficient
        if algebra.key(algebra.finish(scale(gap.terms, share))) != algebra.key(step):
            return None
        return (*branches[1], *scale(apply(algebra, "max", (gap.terms, ())), share))


def _solve_place(place: ir.Expr, extent: ir.Expr, wanted: Polynomial) -> dict[ir.Index, Polynomial]:
    """The index values at which a left side's place is as wanted; GivesUp for uncommon places."""
    if isinstance(place, ir.Index):
        return {place: wanted}
    indices = split_merged(place, extent)
    if not indices:
        raise nf.GivesUp("a place that is filled in an uncommon way")
    return dict(zip(indices, unravel(wanted, [i.extent for i in indices]), strict=True))


# Reductions over bound indices, and functions along an index that stays free, expanded to sums.
#
# mean_j x = sum_j x / J            var_j x = mean_j x**2 - (mean_j x)**2
# logsumexp_j x = log(sum_j exp(x_j))                 cumsum_j x = sum_k [k <= j] x_k
# softmax_j x = exp(x_j) / sum_k exp(x_k)             log_softmax_j x = x_j - logsumexp_k x_k


def sum_over(poly: nf.Poly, bound: nf.Indices) -> nf.Poly:
    """The terms, with the indices added as summed; no term may have them yet."""
    return tuple(replace(term, bound=(*term.bound, *bound)) for term in poly)


def read_reduce(reader: Reader, expr: ir.Reduce, env: nf.Env) -> nf.Poly:
    """The value of a reduction such as `mean[j](x[j])`; GivesUp for a sum with infinite terms."""
    algebra = reader.algebra
    bound, inner, cubes = reader.open_row(expr, env)
    body = reader.read_value(expr.body, inner)
    match expr.kind:
        case "det":
            return fold(algebra, "det", bound, body, cubes)
        case "logdet":
            return logarithm(algebra, fold(algebra, "det", bound, body, cubes))
        case "sum":
            if any(map(cond.is_infinite, body)):
                raise nf.GivesUp("a sum of what is infinite")
            return _sum_guarded(algebra, cubes, body, bound)
        case "mean" | "var" | "sample_var":
            return _find_moment(algebra, expr.kind, cubes, body, bound)
        case "logsumexp":
            powers = exponential(algebra, body)
            return logarithm(algebra, _sum_guarded(algebra, cubes, powers, bound))
    return fold(algebra, expr.kind, bound, body, cubes)


def _sum_guarded(
    algebra: nf.Algebra, cubes: cond.Cubes, body: nf.Poly, bound: nf.Indices
) -> nf.Poly:
    return algebra.finish(sum_over(cond.guard(cubes, body), bound)).terms


def _find_moment(
    algebra: nf.Algebra, kind: str, cubes: cond.Cubes, body: nf.Poly, bound: nf.Indices
) -> nf.Poly:
    """The mean, or a variance: the mean of the squares minus the square of the mean."""
    entries = _sum_guarded(algebra, cubes, nf.ONE, bound)
    share = power(algebra, entries, Fraction(-1))
    total = _sum_guarded(algebra, cubes, body, bound)
    if kind == "mean":
        return multiply(algebra, total, share)
    squares = _sum_guarded(algebra, cubes, multiply(algebra, body, body), bound)
    middle = multiply(algebra, multiply(algebra, total, total), share)
    if kind == "sample_var":
        share = power(algebra, (*entries, *scale(nf.ONE, -1)), Fraction(-1))
    return multiply(algebra, (*squares, *scale(middle, -1)), share)


def read_along(reader: Reader, expr: ir.Along, env: nf.Env) -> nf.Poly:
    """The value of a function along an index that stays free: `softmax[j](x[j])`."""
    algebra = reader.algebra
    if expr.columns is not None:
        return _read_entry(reader, expr, env)
    bound, row, cubes = reader.open_row(expr, env)
    body = reader.read_value(expr.body, row)
    if ROWS[expr.kind].is_linear:
        return _sum_guarded(algebra, cubes, body, bound)
    powers = exponential(algebra, body)
    total = _sum_guarded(algebra, cubes, powers, bound)
    own = reader.read_condition(expr.condition, env)
    entry = reader.read_value(expr.body, env)
    if expr.kind == "log_softmax":
        left_out = scale(nf.single(nf.Infinite()), -1)
        logs = (*entry, *scale(logarithm(algebra, total), -1))
        return (*cond.guard(own, logs), *cond.guard(cond.none_of(own), left_out))
    chosen = cond.guard(own, exponential(algebra, entry))
    if reader.empty_row == "nan":
        return multiply(algebra, chosen, power(algebra, total, Fraction(-1)))
    return multiply(algebra, chosen, apply(algebra, "share", (total,)))


def _read_entry(reader: Reader, expr: ir.Along, env: nf.Env) -> nf.Poly:
    """An entry of the inverse or the Cholesky factor of a matrix, as a fold over rows and columns.

    The body pairs each entry of the matrix with a 1 at the wanted place. So the inverse of a
    transpose is the transpose of the inverse. The body for a Cholesky factor has the row as well.
    """
    algebra = reader.algebra
    bound, inner, _ = reader.open_row(expr, env)
    body = reader.read_value(expr.body, inner)
    gaps = (env.get(index, to_linear(index)) - inner[index] for index in expr.indices)
    here = cond.all_of(*(cond.decide_linear("zero", gap) for gap in gaps))
    parts = [body, cond.guard(here, nf.ONE)]
    if expr.kind == "cholesky":
        parts.append(to_number(to_linear(bound[0])))
    return fold(algebra, expr.kind, bound, apply(algebra, "entry", tuple(parts)), cond.ALWAYS)


def _compare_indices(relation: str, left: Polynomial, right: Polynomial) -> cond.Cubes:
    kind, subject, holds = relate(relation, left, right)
    opened = cond.split_abs(kind, subject)
    return cond.decide_linear(kind, subject, holds) if opened is None else opened


def _compare_values(
    algebra: nf.Algebra, relation: str, left: nf.Poly, right: nf.Poly
) -> cond.Cubes:
    cond.refuse_infinite((*left, *right))
    if relation in {"<", ">="}:  # >= is the negation of <, as neither side is nan
        left, right = right, left
    gap = algebra.finish((*left, *scale(right, -1)))
    kind = "equal" if relation in {"==", "!="} else "above"
    found = decide(algebra, nf.Literal(kind, gap))
    return cond.deny(found) if relation in {"!=", "<=", ">="} else found
