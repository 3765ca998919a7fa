"""Where an expression is finite: the second layer of a proof, beside equality of normal forms.

    Definedness(reader).find(expr, env) -> Needs

A need is a term that is never negative and is 0 wherever the expression is finite, as far as this
one need goes: `[not m[j]]` for a masked -oo, `zero(x[i])` for 1/x[i], `negative(x[i])` for a root,
`zero(sum_j [m[j]])` for a row that may be empty; with it, what the expression is instead.

    what    -oo, oo     a written infinity, which exp and max can see in the normal form
            ~-oo, ~oo   an infinity that a function gave: log of 0, max over nothing
            nan         nan, or an infinity of unknown sign
            f(-oo)      what f makes of it

Laws:
- Normal forms are equal wherever both expressions are finite; they are equal everywhere if their
  needs are, too.
- Inputs are finite real numbers.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from derive.analysis.affine import Affine, to_affine
from derive.ir import functions, walk
from derive.ir import nodes as ir
from derive.prove import conditions as cond
from derive.prove import terms as nf
from derive.prove.algebra import apply, exponential, find_content, fold, scale, to_number
from derive.prove.reader import Reader, sum_over
from derive.prove.sums import NormalAlgebra

Needs: TypeAlias = "dict[str, tuple[nf.Term, str]]"  # by the key of the term

_TURNED = {"-oo": "oo", "oo": "-oo", "~-oo": "~oo", "~oo": "~-oo"}


class Definedness:
    """The needs of one system's expressions."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._algebra = reader.algebra
        self._known: dict[tuple[ir.Expr, tuple[Affine, ...]], Needs] = {}

    def forget(self) -> None:
        """Find everything anew: an intermediate was cut."""
        self._known.clear()

    def find(self, expr: ir.Expr, env: Mapping[ir.Index, Affine]) -> Needs:
        """The needs of an expression, its free indices read as they are in `env`."""
        under = expr, tuple(env.get(index, to_affine(index)) for index in walk.find_free(expr))
        found = self._known.get(under)
        if found is None:
            self._algebra.step()
            found = self._known[under] = self._find(expr, env)
        return found

    def define(self, name: str, places: tuple[Affine, ...]) -> Needs:
        """The needs of an equation's tensor at these places."""
        with self.reader.enter(name, places) as (value, env):
            return self.find(value, env)

    def _find(self, expr: ir.Expr, env: Mapping[ir.Index, Affine]) -> Needs:
        match expr:
            case ir.Number() | ir.Size() | ir.Scalar() | ir.Index() | ir.Truth():
                return {}
            case ir.Infinity(negative):
                return self._collect([(nf.ONE, "-oo" if negative else "oo")])
            case ir.Compare() | ir.And() | ir.Or() | ir.Not():
                return self._check(expr, env)
            case ir.Access(tensor, places):
                if tensor.name not in self.reader.equations:
                    return {}
                return self._read(tensor.name, tuple(self.reader.place(p, env) for p in places))
            case ir.Add(terms):
                return _add([self.find(term, env) for term in terms])
            case ir.Mul():
                return self._multiply(expr, env)
            case ir.Pow(base, exponent):
                return self._power(base, exponent, env)
            case ir.Call():
                return self._call(expr, env)
            case ir.Where(condition, then, other):
                one, two = self.find(then, env), self.find(other, env)
                asked = self._ask(condition, env)
                if not one.keys() >= asked.keys() <= two.keys():
                    raise nf.GivesUp("a choice by what may be nan")
                cubes = self.reader.condition(condition, env)
                denied = cond.none_of(cubes)
                return _unite([asked, self._guard(cubes, one), self._guard(denied, two)])
            case ir.Reduce():
                return self._reduce(expr, env)
            case ir.Along():
                return self._along(expr, env)
        raise AssertionError(expr)

    def _ask(self, condition: ir.Expr, env: Mapping[ir.Index, Affine]) -> Needs:
        """Where what a condition compares is not finite."""
        match condition:
            case ir.Compare(_, left, right):
                parts = tuple(e for e in (left, right) if self.reader.index(e, env) is None)
                return _change(_unite(self.find(e, env) for e in parts), lambda what: "nan")
            case ir.And(parts) | ir.Or(parts):
                return _unite(self._ask(part, env) for part in parts)
            case ir.Not(part):
                return self._ask(part, env)
            case ir.Where(inner, then, other):
                return _unite(self._ask(part, env) for part in (inner, then, other))
        return {}

    def _check(self, condition: ir.Expr, env: Mapping[ir.Index, Affine]) -> Needs:
        """No needs: nf.GivesUp where a condition compares what may be nan."""
        if self._ask(condition, env):
            raise nf.GivesUp("a comparison of what may be nan")
        return {}

    def _read(self, name: str, places: tuple[Affine, ...]) -> Needs:
        cut = self.reader.cuts.get(name)
        if cut is None:
            return self.define(name, places)
        if not cut.is_partial:
            return {}
        read = nf.Read(cut.symbol, tuple(places[k] for k in cut.order))
        return self._collect([(self._say("undefined", read), "nan")])

    def _multiply(self, expr: ir.Mul, env: Mapping[ir.Index, Affine]) -> Needs:
        guards, others = walk.split_guards(expr.factors)
        needs = [self.find(factor, env) for factor in others]
        for each in guards:
            self._check(each, env)
        found: list[Needs] = []
        for k, own in enumerate(needs):
            if not own:
                continue
            beside = ir.Mul((*others[:k], *others[k + 1 :]))
            sign = 0 if any(needs[:k] + needs[k + 1 :]) else self._find_sign(beside, env)
            found.append(_change(own, lambda what, sign=sign: _scale(what, sign)))  # type: ignore[misc]
        cubes = cond.all_of(*[self.reader.condition(each, env) for each in guards])
        return self._guard(cubes, _unite(found))

    def _find_sign(self, factor: ir.Expr, env: Mapping[ir.Index, Affine]) -> int:
        """1 where it is > 0 for all inputs, -1 where it is < 0, else 0."""
        normal = self._algebra.finish(self.reader.read(factor, env))
        if cond.is_above(normal):
            return 1
        return -1 if cond.is_above(self._negate(normal)) else 0

    def _negate(self, normal: nf.Normal) -> nf.Normal:
        return self._algebra.finish(scale(normal.terms, -1))

    def _power(self, base: ir.Expr, exponent: ir.Expr, env: Mapping[ir.Index, Affine]) -> Needs:
        own = self.find(base, env)
        if not isinstance(exponent, ir.Number):
            both = _unite([own, self.find(exponent, env)])
            found = _change(both, lambda what: "nan")
            if self._find_sign(base, env) > 0:
                return found
            return self._undefined("power", found, (base, exponent), env)
        power = exponent.value
        if power == 1 or (not own and power >= 0 and power.denominator == 1):
            return own
        value = self.reader.read(base, env)
        found = _change(own, lambda what: f"({what})^{power}")
        asked: list[tuple[nf.Poly, str]] = []
        if power.denominator != 1:
            asked.append((self._violate(value, self._negative), "nan"))
        if power < 0:
            asked.append((self._violate(value, self._zero), "nan"))
        return _unite([found, self._collect(asked)])

    def _call(self, expr: ir.Call, env: Mapping[ir.Index, Affine]) -> Needs:
        name, arguments = expr.function, expr.arguments
        if name in {"pi", "I"} or self.reader.index(expr, env) is not None:
            return {}
        if name == "exp":
            return _exponentiate(self.find(arguments[0], env))
        if name == "log":
            return self._log(self.find(arguments[0], env), self.reader.read(arguments[0], env))
        if name in {"max", "min"}:
            lost = "-oo" if name == "max" else "oo"
            kept = [each for each in arguments if each is not ir.Infinity(name == "max")]
            found = _unite([self.find(each, env) for each in kept or arguments])
            return _change(found, lambda what: f"{name}({what})" if what.endswith(lost) else what)
        meaning = functions.unfold(expr)
        if meaning is not None:
            return self.find(meaning, env)
        found = _unite([self.find(each, env) for each in arguments])
        found = _change(found, lambda what: f"{name}({what})")
        if name in functions.FUNCTIONS and not functions.FUNCTIONS[name].is_partial:
            return found
        return self._undefined(name, found, arguments, env)

    def _undefined(
        self, name: str, needs: Needs, arguments: Iterable[ir.Expr], env: Mapping[ir.Index, Affine]
    ) -> Needs:
        """The needs, and that the function has a value at the arguments."""
        inner = tuple(self._algebra.finish(self.reader.read(each, env)) for each in arguments)
        missing = nf.single(nf.Function(f"undefined {name}", inner))
        return _unite([needs, self._collect([(missing, "nan")])])

    def _log(self, own: Needs, value: nf.Poly) -> Needs:
        """Of what may be negative nan, of 0 -oo."""
        asked = [
            (self._violate(value, self._negative), "nan"),
            (self._violate(value, self._zero), "~-oo"),
        ]
        return _unite([_change(own, lambda what: f"log({what})"), self._collect(asked)])

    def _reduce(self, expr: ir.Reduce, env: Mapping[ir.Index, Affine]) -> Needs:
        algebra, reader = self._algebra, self.reader
        bound, inner, cubes = reader.open(expr, env)
        self._check(expr.condition, inner)
        body = self.find(expr.body, inner)
        match expr.kind:
            case "sum":
                return self._over(body, bound, cubes)
            case "logsumexp":
                powers = exponential(algebra, reader.read(expr.body, inner))
                total = sum_over(cond.guard(cubes, powers), bound)
                return self._log(self._over(_exponentiate(body), bound, cubes), total)
            case "max" | "min":
                sign = 1 if expr.kind == "max" else -1
                lost = "-oo" if sign > 0 else "oo"
                value = scale(reader.read(expr.body, inner), sign)
                rows = cond.check_count(cond.join([cubes, cond.find_regions(value)[1]]))
                empty = self._collect([(self._find_empty(rows, bound), f"~{lost}")])
                rest = {key: need for key, need in body.items() if need[1] != lost}
                rest = _change(rest, lambda what: f"max({what})")
                return _unite([empty, self._over(rest, bound, cubes)])
        found = self._over(_change(body, lambda what: "nan"), bound, cubes)
        if expr.kind in {"det", "prod"}:
            return found
        if expr.kind == "logdet":
            matrix = reader.read(expr.body, inner)
            return self._log(found, fold(algebra, "det", bound, matrix, cubes))
        less = 1 if expr.kind == "sample_var" else 0
        return _unite([found, self._collect([(self._find_empty(cubes, bound, less), "nan")])])

    def _along(self, expr: ir.Along, env: Mapping[ir.Index, Affine]) -> Needs:
        reader = self.reader
        if expr.columns is not None:
            return self._take_entry(expr, env)
        bound, row, cubes = reader.open(expr, env)
        self._check(expr.condition, row)
        body = self.find(expr.body, row)
        if functions.ROWS[expr.kind].is_linear:
            return self._over(body, bound, cubes)
        regions = cond.find_regions(reader.read(expr.body, row))[1]
        rows = cond.all_of(cubes, regions)
        rest = {key: need for key, need in body.items() if need[1] != "-oo"}
        found = self._over(_change(rest, lambda what: "nan"), bound, cubes)
        empty = self._collect([(self._find_empty(rows, bound), "nan")])
        own = reader.condition(expr.condition, env)
        entry = self.find(expr.body, env)
        if expr.kind == "log_softmax":
            inside = self._guard(own, _unite([found, entry]))
            left_out = cond.guard(cond.none_of(own), nf.ONE)
            return _unite([inside, self._collect([(left_out, "-oo")]), empty])
        if reader.empty_row != "nan":
            empty = {}
        entry = self._guard(own, _change(_exponentiate(entry), lambda what: "nan"))
        return _unite([found, entry, empty])

    def _take_entry(self, expr: ir.Along, env: Mapping[ir.Index, Affine]) -> Needs:
        """Of a singular matrix there is none, nor of one with an entry that is not finite."""
        bound, inner, _ = self.reader.open(expr, env)
        found = self._over(
            _change(self.find(expr.body, inner), lambda what: "nan"), bound, cond.ALWAYS
        )
        matrix = self.reader.read(expr.body, inner)
        if expr.kind == "cholesky":  # a pivot that is not above 0
            matrix = apply(
                self._algebra, "entry", (matrix, to_number(self._algebra, to_affine(bound[0])))
            )
        number = fold(self._algebra, f"undefined {expr.kind}", bound, matrix, cond.ALWAYS)
        return _unite([found, self._collect([(number, "nan")])])

    def _over(self, needs: Needs, bound: nf.Indices, cubes: cond.Cubes) -> Needs:
        """The needs at all values of the bound indices for which the condition holds."""
        return self._collect(
            (sum_over(cond.guard(cubes, (term,)), bound), what) for term, what in needs.values()
        )

    def _guard(self, cubes: cond.Cubes, needs: Needs) -> Needs:
        return needs if cubes == cond.ALWAYS else self._over(needs, (), cubes)

    def _collect(self, asked: Iterable[tuple[nf.Poly, str]]) -> Needs:
        return collect_needs(self._algebra, asked)

    def _violate(self, value: nf.Poly, act: Callable[[nf.Normal], nf.Poly]) -> nf.Poly:
        """Where the value is 0, or negative: a sum of terms that are 0 where it is not."""
        finite = tuple(term for term in value if not cond.is_infinite(term))
        return cond.by_cases(finite, lambda case: act(self._algebra.finish(case))) or ()

    def _say(self, what: str, atom: nf.Atom) -> nf.Poly:
        inner = self._algebra.finish(nf.single(atom))
        return nf.single(nf.Function(what, (inner,)))

    def _zero(self, value: nf.Normal) -> nf.Poly:
        """Where it is 0: one of its factors is, or all of its terms that are never negative are."""
        if not value.terms:
            return nf.ONE
        if any(cond.is_above(each) for each in (value, self._negate(value))):
            return ()
        content, rest = find_content(self._algebra, value, whole=True)
        found: nf.Poly = ()
        if len(value.terms) == 1 and not value.terms[0].bound:
            content, rest = value.terms[0], self._algebra.finish(nf.ONE)
            found = cond.guard(cond.none_of((content.guards,)), nf.ONE)
        content = content or nf.Term()
        for factor in content.factors:
            is_unit = isinstance(factor.atom, nf.Symbol) and factor.atom.is_complex
            if factor.exponent < 0 or is_unit or cond.is_above(factor.atom):
                continue
            atom = factor.atom
            zero = self._zero(atom.normal) if isinstance(atom, nf.Base) else self._say("zero", atom)
            found += cond.guard((content.guards,), zero)
        if cond.is_above(rest):
            return found
        if cond.is_nonnegative(rest):
            rest = self._algebra.finish(tuple(map(_find_support, rest.terms)))
            if cond.is_above(rest):
                return found
        return (*found, *nf.single(nf.Function("zero", (rest,))))

    def _negative(self, value: nf.Normal) -> nf.Poly:
        """Where it is < 0."""
        if not value.terms or cond.is_nonnegative(value):
            return ()
        rest = find_content(self._algebra, value, whole=False)[1]
        return nf.single(nf.Function("negative", (rest,)))

    def _find_empty(self, cubes: cond.Cubes, bound: nf.Indices, less: int = 0) -> nf.Poly:
        """Where a row has no entries, or no more than so many."""
        count = sum_over(cond.guard(cubes, nf.ONE), bound)
        return self._violate((*count, *scale(nf.ONE, -less)), self._zero)


def collect_needs(algebra: nf.Algebra, asked: Iterable[tuple[nf.Poly, str]]) -> Needs:
    """What is violated, as needs: a sum of terms that are never negative is one need a term."""
    found: Needs = {}
    for poly, what in asked:
        terms = algebra.finish(poly).terms if poly else ()
        if any(term.coefficient < 0 for term in terms):
            terms = nf.single(nf.Function("any", (algebra.finish(terms),)))
        for term in terms:
            factors = tuple(factor for factor in term.factors if not cond.is_size(factor))
            bare = nf.Term(bound=term.bound, guards=term.guards, factors=factors)
            key = algebra.key(bare)
            known = found.get(key, (bare, what))
            found[key] = bare, what if known[1] == what else "nan"
    return found


def _find_support(term: nf.Term) -> nf.Term:
    """The term without what is positive: 0 where the term is."""
    factors = tuple(factor for factor in term.factors if not cond.is_above(factor.atom))
    return nf.Term(bound=term.bound, guards=term.guards, factors=factors)


def _exponentiate(needs: Needs) -> Needs:
    """Exp is 0 at -oo; where something else is not finite besides, nothing is known of it."""
    found = {key: need for key, need in needs.items() if need[1] != "-oo"}
    if len(found) < len(needs):
        return _change(found, lambda what: "nan")
    return _change(found, lambda what: what if what in {"nan", "~oo"} else f"exp({what})")


def _scale(what: str, sign: int) -> str:
    return {1: what, -1: _TURNED.get(what, what)}.get(sign, "nan")


def _change(needs: Needs, act: Callable[[str], str]) -> Needs:
    """The needs with what is there instead changed; nan stays nan."""
    return {
        key: (term, what if what == "nan" else act(what)) for key, (term, what) in needs.items()
    }


def _unite(parts: Iterable[Needs]) -> Needs:
    """All needs, of parts that are looked at for themselves."""
    found: Needs = {}
    for part in parts:
        for key, (term, what) in part.items():
            known = found.get(key, (term, what))[1]
            found[key] = term, what if known == what else "nan"
    return found


def _add(parts: Iterable[Needs]) -> Needs:
    """The needs of a sum: beside -oo, oo is nan."""
    found = _unite(parts)
    signs = {what.lstrip("~") for _, what in found.values()}
    if {"-oo", "oo"} <= signs:
        return _change(found, lambda what: "nan" if what.endswith("~oo") or what == "oo" else what)
    return found


def to_key(expr: ir.Expr, *, steps: int = nf.MOST_STEPS) -> str:
    """What expressions that are equal wherever they are finite, which is at the same places, share.

    nf.GivesUp where it is not found, or where it takes too long.
    """
    reader = Reader(NormalAlgebra(steps), ir.System("", (), (), (), ()))
    needs = Definedness(reader).find(expr, {})
    asked = sorted(f"{what} where {key}" for key, (_, what) in needs.items())
    return "; ".join((reader.algebra.finish(reader.read(expr, {})).key, *asked))
