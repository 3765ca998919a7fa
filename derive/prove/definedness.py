"""The conditions under which an expression is finite: the second part of a proof.

    Definedness(reader).find_needs(expr, env) -> Needs

A need is a nonnegative term and a value. Where the term is not 0, the expression is not finite but
has that value. Examples of terms: `[not m[j]]` for a masked -oo, `zero(x[i])` for 1/x[i],
`negative(x[i])` for a root, `zero(sum_j [m[j]])` for a row that may be empty.

    value   -oo, oo     a written infinity, which exp and max can see in the normal form
            ~-oo, ~oo   an infinity that a function returns: log of 0, max of an empty row
            nan         nan, or an infinity of unknown sign
            f(-oo)      the function f applied to a value

Laws:
- Expressions with equal normal forms are equal wherever both are finite. With equal needs they are
  equal everywhere.
- Inputs are finite real numbers.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

from derive.analysis.affine import to_linear
from derive.ir import definitions, functions, walk
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.prove import conditions as cond
from derive.prove import terms as nf
from derive.prove.algebra import apply, exponential, find_content, fold, scale, to_number
from derive.prove.reader import Reader, sum_over
from derive.prove.sums import NormalAlgebra

Needs: TypeAlias = "dict[str, tuple[nf.Term, str]]"  # term and value by the key of the term

_NEGATED = {"-oo": "oo", "oo": "-oo", "~-oo": "~oo", "~oo": "~-oo"}


class Definedness:
    """The cases in which expressions of a system are not finite, and their values there."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._algebra = reader.algebra
        self._known: dict[tuple[ir.Expr, tuple[Polynomial, ...]], Needs] = {}

    def find_needs(self, expr: ir.Expr, env: nf.Env) -> Needs:
        """The cases in which an expression over `env` is not finite, and its value there."""
        under = expr, tuple(env.get(index, to_linear(index)) for index in walk.find_free(expr))
        found = self._known.get(under)
        if found is None:
            self._algebra.step()
            found = self._known[under] = self._find_node_needs(expr, env)
        return found

    def find_tensor_needs(self, name: str, places: tuple[Polynomial, ...]) -> Needs:
        """The cases in which a tensor at these places is not finite, and its value there."""
        with self.reader.enter_equation(name, places) as (value, env):
            return self.find_needs(value, env)

    def _find_node_needs(self, expr: ir.Expr, env: nf.Env) -> Needs:
        match expr:
            case ir.Number() | ir.Size() | ir.Scalar() | ir.Index() | ir.Truth():
                return {}
            case ir.Infinity(negative):
                return self._add_need({}, nf.ONE, "-oo" if negative else "oo")
            case ir.Compare() | ir.And() | ir.Or() | ir.Not():
                return self._refuse_partial(expr, env)
            case ir.Access(tensor, places):
                if tensor.name not in self.reader.equations:
                    return {}
                return self.find_tensor_needs(
                    tensor.name, tuple(self.reader.read_place(p, env) for p in places)
                )
            case ir.Add(terms):
                return _add_needs([self.find_needs(term, env) for term in terms])
            case ir.Mul():
                return self._find_product_needs(expr, env)
            case ir.Pow(base, exponent):
                return self._find_power_needs(base, exponent, env)
            case ir.Call():
                return self._find_call_needs(expr, env)
            case ir.Where(condition, then, other):
                one, two = self.find_needs(then, env), self.find_needs(other, env)
                asked = self._find_compared_needs(condition, env)
                if not one.keys() >= asked.keys() <= two.keys():
                    raise nf.GivesUp("a choice by a condition that may be nan")
                cubes = self.reader.read_condition(condition, env)
                denied = cond.none_of(cubes)
                return _unite_needs(
                    [asked, self._guard_needs(cubes, one), self._guard_needs(denied, two)]
                )
            case ir.Reduce():
                return self._find_reduce_needs(expr, env)
            case ir.Along():
                return self._find_along_needs(expr, env)

    def _find_compared_needs(self, condition: ir.Expr, env: nf.Env) -> Needs:
        """The cases in which a condition compares a value that is not finite; {} for none."""
        match condition:
            case ir.Compare(_, left, right):
                parts = tuple(e for e in (left, right) if self.reader.read_index(e, env) is None)
                return _map_values(_unite_needs(self.find_needs(e, env) for e in parts))
            case ir.And(parts) | ir.Or(parts):
                return _unite_needs(self._find_compared_needs(part, env) for part in parts)
            case ir.Not(part):
                return self._find_compared_needs(part, env)
            case ir.Where(inner, then, other):
                return _unite_needs(
                    self._find_compared_needs(part, env) for part in (inner, then, other)
                )
        return {}

    def _refuse_partial(self, condition: ir.Expr, env: nf.Env) -> Needs:
        """An empty dict; GivesUp if a condition compares a value that may be nan."""
        if self._find_compared_needs(condition, env):
            raise nf.GivesUp("a comparison of a value that may be nan")
        return {}

    def _find_product_needs(self, expr: ir.Mul, env: nf.Env) -> Needs:
        guards, others = walk.split_guards(expr.factors)
        needs = [self.find_needs(factor, env) for factor in others]
        for each in guards:
            self._refuse_partial(each, env)
        found: list[Needs] = []
        for k, own in enumerate(needs):
            if not own:
                continue
            beside = ir.Mul((*others[:k], *others[k + 1 :]))
            sign = 0 if any(needs[:k] + needs[k + 1 :]) else self._find_sign(beside, env)
            found.append(_map_values(own, lambda value, sign=sign: _scale_value(value, sign)))  # type: ignore[misc]
        cubes = cond.all_of(*[self.reader.read_condition(each, env) for each in guards])
        return self._guard_needs(cubes, _unite_needs(found))

    def _find_sign(self, factor: ir.Expr, env: nf.Env) -> int:
        """The sign of a factor: 1 or -1 where it is the same for all inputs, else 0."""
        normal = self._algebra.finish(self.reader.read_value(factor, env))
        if cond.is_above(normal):
            return 1
        return -1 if cond.is_above(self._negate(normal)) else 0

    def _negate(self, normal: nf.Normal) -> nf.Normal:
        return self._algebra.finish(scale(normal.terms, -1))

    def _find_power_needs(self, base: ir.Expr, exponent: ir.Expr, env: nf.Env) -> Needs:
        own = self.find_needs(base, env)
        if not isinstance(exponent, ir.Number):
            found = _map_values(_unite_needs([own, self.find_needs(exponent, env)]))
            if self._find_sign(base, env) > 0:
                return found
            return self._add_domain_need("power", found, (base, exponent), env)
        power = exponent.value
        if power == 1 or (not own and power >= 0 and power.denominator == 1):
            return own
        value = self.reader.read_value(base, env)
        found = _map_values(own, lambda value: f"({value})^{power}")
        if power.denominator != 1:
            found = self._add_need(found, self._test_cases(value, self._below_zero))
        return self._add_need(found, self._test_cases(value, self._at_zero)) if power < 0 else found

    def _find_call_needs(self, expr: ir.Call, env: nf.Env) -> Needs:
        name, arguments = expr.function, expr.arguments
        if name in {"pi", "I"} or self.reader.read_index(expr, env) is not None:
            return {}
        if name == "exp":
            return _exponentiate(self.find_needs(arguments[0], env))
        if name == "log":
            return self._log_needs(
                self.find_needs(arguments[0], env), self.reader.read_value(arguments[0], env)
            )
        if name in {"max", "min"}:
            lost = "-oo" if name == "max" else "oo"
            kept = [each for each in arguments if each is not ir.Infinity(name == "max")]
            found = _unite_needs([self.find_needs(each, env) for each in kept or arguments])
            return _map_values(
                found, lambda value: f"{name}({value})" if value.endswith(lost) else value
            )
        meaning = definitions.unfold(expr)
        if meaning is not None:
            return self.find_needs(meaning, env)
        found = _unite_needs([self.find_needs(each, env) for each in arguments])
        found = _map_values(found, lambda value: f"{name}({value})")
        if name in functions.FUNCTIONS and not functions.FUNCTIONS[name].is_partial:
            return found
        return self._add_domain_need(name, found, arguments, env)

    def _add_domain_need(
        self, name: str, needs: Needs, arguments: Iterable[ir.Expr], env: nf.Env
    ) -> Needs:
        """The needs of the arguments, and nan outside the function's domain."""
        inner = tuple(self._algebra.finish(self.reader.read_value(each, env)) for each in arguments)
        missing = nf.single(nf.Function(f"undefined {name}", inner))
        return self._add_need(needs, missing)

    def _log_needs(self, own: Needs, value: nf.Poly) -> Needs:
        """The needs of a log: nan for a negative argument, -oo for 0."""
        found = _map_values(own, lambda value: f"log({value})")
        found = self._add_need(found, self._test_cases(value, self._below_zero))
        return self._add_need(found, self._test_cases(value, self._at_zero), "~-oo")

    def _find_reduce_needs(self, expr: ir.Reduce, env: nf.Env) -> Needs:
        algebra, reader = self._algebra, self.reader
        bound, inner, cubes = reader.open_row(expr, env)
        self._refuse_partial(expr.condition, inner)
        body = self.find_needs(expr.body, inner)
        match expr.kind:
            case "sum":
                return self._sum_needs(body, bound, cubes)
            case "logsumexp":
                powers = exponential(algebra, reader.read_value(expr.body, inner))
                total = sum_over(cond.guard(cubes, powers), bound)
                return self._log_needs(self._sum_needs(_exponentiate(body), bound, cubes), total)
            case "max" | "min":
                sign = 1 if expr.kind == "max" else -1
                lost = "-oo" if sign > 0 else "oo"
                value = scale(reader.read_value(expr.body, inner), sign)
                rows = cond.all_of(cubes, cond.find_regions(value)[1])
                rest = {key: need for key, need in body.items() if need[1] != lost}
                rest = _map_values(rest, lambda value: f"max({value})")
                found = self._sum_needs(rest, bound, cubes)
                return self._add_need(found, self._find_empty(rows, bound), f"~{lost}")
        found = self._sum_needs(_map_values(body), bound, cubes)
        if expr.kind in {"det", "prod"}:
            return found
        if expr.kind == "logdet":
            matrix = reader.read_value(expr.body, inner)
            return self._log_needs(found, fold(algebra, "det", bound, matrix, cubes))
        less = 1 if expr.kind == "sample_var" else 0
        return self._add_need(found, self._find_empty(cubes, bound, less))

    def _find_along_needs(self, expr: ir.Along, env: nf.Env) -> Needs:
        reader = self.reader
        if expr.columns is not None:
            return self._find_entry_needs(expr, env)
        bound, row, cubes = reader.open_row(expr, env)
        self._refuse_partial(expr.condition, row)
        body = self.find_needs(expr.body, row)
        if functions.ROWS[expr.kind].is_linear:
            return self._sum_needs(body, bound, cubes)
        regions = cond.find_regions(reader.read_value(expr.body, row))[1]
        rows = cond.all_of(cubes, regions)
        rest = {key: need for key, need in body.items() if need[1] != "-oo"}
        found = self._sum_needs(_map_values(rest), bound, cubes)
        empty = self._find_empty(rows, bound)
        own = reader.read_condition(expr.condition, env)
        entry = self.find_needs(expr.body, env)
        if expr.kind == "log_softmax":
            inside = self._guard_needs(own, _unite_needs([found, entry]))
            left_out = cond.guard(cond.none_of(own), nf.ONE)
            return self._add_need(self._add_need(inside, left_out, "-oo"), empty)
        entry = self._guard_needs(own, _map_values(_exponentiate(entry)))
        found = _unite_needs([found, entry])
        return self._add_need(found, empty) if reader.empty_row == "nan" else found

    def _find_entry_needs(self, expr: ir.Along, env: nf.Env) -> Needs:
        """The needs of an entry of an inverse or Cholesky factor.

        All entries of the matrix are finite and the matrix is regular.
        """
        bound, inner, _ = self.reader.open_row(expr, env)
        found = self._sum_needs(_map_values(self.find_needs(expr.body, inner)), bound, cond.ALWAYS)
        matrix = self.reader.read_value(expr.body, inner)
        if expr.kind == "cholesky":  # undefined where a pivot is not above 0
            matrix = apply(self._algebra, "entry", (matrix, to_number(to_linear(bound[0]))))
        number = fold(self._algebra, f"undefined {expr.kind}", bound, matrix, cond.ALWAYS)
        return self._add_need(found, number)

    def _sum_needs(self, needs: Needs, bound: nf.Indices, cubes: cond.Cubes) -> Needs:
        """The needs of a sum over the bound indices of entries with these needs."""
        pairs = needs.values()
        summed = ((sum_over(cond.guard(cubes, (term,)), bound), value) for term, value in pairs)
        return collect_needs(self._algebra, summed)

    def _guard_needs(self, cubes: cond.Cubes, needs: Needs) -> Needs:
        return needs if cubes == cond.ALWAYS else self._sum_needs(needs, (), cubes)

    def _add_need(self, needs: Needs, poly: nf.Poly, value: str = "nan") -> Needs:
        """The needs, and one for each term of `poly`: where it is not 0, the result is `value`."""
        return _unite_needs([needs, collect_needs(self._algebra, [(poly, value)])])

    def _test_cases(self, value: nf.Poly, act: Callable[[nf.Normal], nf.Poly]) -> nf.Poly:
        """The terms that `act` gives for the finite part of a value, case by case."""
        finite = tuple(term for term in value if not cond.is_infinite(term))
        return cond.by_cases(finite, lambda case: act(self._algebra.finish(case))) or ()

    def _at_zero(self, value: nf.Normal) -> nf.Poly:
        """Terms that are not 0 where the value is 0.

        A product is 0 where a factor is. A sum of nonnegative terms is 0 where all of them are.
        """
        if not value.terms:
            return nf.ONE
        if any(cond.is_above(each) for each in (value, self._negate(value))):
            return ()
        content, rest = find_content(self._algebra, value, any_sign=True)
        found: nf.Poly = ()
        if len(value.terms) == 1 and not value.terms[0].bound:
            content, rest = value.terms[0], self._algebra.finish(nf.ONE)
            found = cond.guard(cond.none_of((content.guards,)), nf.ONE)
        content = content or nf.Term()
        for factor in content.factors:
            if factor.exponent < 0 or cond.is_above(factor.atom):
                continue
            atom = factor.atom
            if isinstance(atom, nf.Base):
                zero = self._at_zero(atom.normal)
            else:
                zero = nf.single(nf.Function("zero", (self._algebra.finish(nf.single(atom)),)))
            found += cond.guard((content.guards,), zero)
        if cond.is_above(rest):
            return found
        if cond.is_nonnegative(rest):
            rest = self._algebra.finish(tuple(map(_find_support, rest.terms)))
            if cond.is_above(rest):
                return found
        return (*found, *nf.single(nf.Function("zero", (rest,))))

    def _below_zero(self, value: nf.Normal) -> nf.Poly:
        """A term that is not 0 exactly where the value is < 0; () if it never is."""
        if not value.terms or cond.is_nonnegative(value):
            return ()
        rest = find_content(self._algebra, value, any_sign=False)[1]
        return nf.single(nf.Function("negative", (rest,)))

    def _find_empty(self, cubes: cond.Cubes, bound: nf.Indices, less: int = 0) -> nf.Poly:
        """Terms that are not 0 where a row has exactly `less` entries."""
        count = sum_over(cond.guard(cubes, nf.ONE), bound)
        return self._test_cases((*count, *scale(nf.ONE, -less)), self._at_zero)


def collect_needs(algebra: nf.Algebra, asked: Iterable[tuple[nf.Poly, str]]) -> Needs:
    """The needs of pairs (sum, value): one for each term; one in all if a coefficient is < 0."""
    found: Needs = {}
    for poly, value in asked:
        terms = algebra.finish(poly).terms if poly else ()
        if any(term.coefficient < 0 for term in terms):
            terms = nf.single(nf.Function("any", (algebra.finish(terms),)))
        for term in terms:
            factors = tuple(factor for factor in term.factors if not cond.is_size(factor))
            bare = nf.Term(bound=term.bound, guards=term.guards, factors=factors)
            key = algebra.key(bare)
            known = found.get(key, (bare, value))
            found[key] = bare, value if known[1] == value else "nan"
    return found


def _find_support(term: nf.Term) -> nf.Term:
    """The term without its positive factors and its exp, which is 0 at the same places."""
    factors = tuple(factor for factor in term.factors if not cond.is_above(factor.atom))
    return nf.Term(bound=term.bound, guards=term.guards, factors=factors)


def _exponentiate(needs: Needs) -> Needs:
    """The needs of exp(x) from those of x: none at -oo, where it is 0; nan beside a -oo."""
    found = {key: need for key, need in needs.items() if need[1] != "-oo"}
    if len(found) < len(needs):
        return _map_values(found)
    return _map_values(found, lambda value: value if value in {"nan", "~oo"} else f"exp({value})")


def _scale_value(value: str, sign: int) -> str:
    return {1: value, -1: _NEGATED.get(value, value)}.get(sign, "nan")


def _map_values(needs: Needs, act: Callable[[str], str] = lambda _: "nan") -> Needs:
    """The needs with their values changed, by default to nan; nan stays nan."""
    pairs = needs.items()
    return {key: (term, v if v == "nan" else act(v)) for key, (term, v) in pairs}


def _unite_needs(parts: Iterable[Needs]) -> Needs:
    """The needs of all parts together; two values at one place become nan."""
    found: Needs = {}
    for part in parts:
        for key, (term, value) in part.items():
            known = found.get(key, (term, value))[1]
            found[key] = term, value if known == value else "nan"
    return found


def _add_needs(parts: Iterable[Needs]) -> Needs:
    """The needs of a sum, with oo replaced by nan where a -oo may occur too."""
    found = _unite_needs(parts)
    signs = {value.lstrip("~") for _, value in found.values()}
    if {"-oo", "oo"} <= signs:
        return _map_values(
            found, lambda value: "nan" if value.endswith("~oo") or value == "oo" else value
        )
    return found


def to_key(expr: ir.Expr, *, steps: int = nf.MOST_STEPS) -> str:
    """A key that equal expressions share: the normal form and the needs.

    Raises GivesUp where the expression has no normal form, or none within the steps.
    """
    reader = Reader(NormalAlgebra(steps), ir.System("", (), (), (), ()))
    needs = Definedness(reader).find_needs(expr, {})
    asked = sorted(f"{value} where {key}" for key, (_, value) in needs.items())
    return "; ".join((reader.algebra.finish(reader.read_value(expr, {})).key, *asked))
