"""Arithmetic on sums of terms: products, powers, exp, log, other functions, and reductions.

A guard covers all of its term.

The content of a sum is drawn out of its powers: its number, sizes, the factors that all terms
share, and the shared part of their exps that is free of the summed indices. So the shift of a
normalized row cancels, and `1 + exp(x)` and `1 + exp(-x)` have one base.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from math import floor, gcd, lcm

from derive.ir import nodes as ir
from derive.ir import polynomial
from derive.ir.functions import FUNCTIONS
from derive.ir.polynomial import factor_number, is_varying
from derive.prove import conditions as cond
from derive.prove import terms as nf

_MOST_EXPANDED = 24  # terms of a power that is multiplied out


def multiply(algebra: nf.Algebra, one: nf.Poly, other: nf.Poly) -> nf.Poly:
    """The product of two sums, multiplied out."""
    found: list[nf.Term] = []
    for left in one:
        for right in other:
            found += _times(algebra, left, right)
    return algebra.finish(tuple(found)).terms if len(found) > 8 else tuple(found)


def _times(algebra: nf.Algebra, one: nf.Term, other: nf.Term) -> nf.Poly:
    algebra.step()
    other = rename_apart(algebra, other, one)
    guards = cond.unite(one.guards, other.guards)
    if guards is None:
        return ()
    power = one.power or other.power
    if one.power and other.power:
        power = algebra.finish((*one.power.terms, *other.power.terms))
        power = power if power.terms else None
    number = one.coefficient * other.coefficient
    bound, factors = (*one.bound, *other.bound), (*one.factors, *other.factors)
    if one.factors and other.factors:
        return collect(algebra, nf.Term(number, bound, guards, (), power), factors)
    return (nf.Term(number, bound, guards, factors, power),)


def rename_apart(algebra: nf.Algebra, term: nf.Term, other: nf.Term) -> nf.Term:
    """The term, its bound indices fresh where the other uses them; GivesUp if that splits it."""
    clash = [index for index in term.bound if index in other.inner or index in other.bound]
    if not clash:
        return term
    new = {index: algebra.make_index(index.extent) for index in clash}
    made = algebra.replace(
        (replace(term, bound=()),), {old: polynomial.Polynomial.of(i) for old, i in new.items()}
    )
    if len(made) != 1:
        raise nf.GivesUp("a term that falls apart when its letters are renamed")
    bound = tuple(new.get(index, index) for index in term.bound)
    return replace(made[0], bound=(*bound, *made[0].bound))


def collect(algebra: nf.Algebra, term: nf.Term, factors: Iterable[nf.Factor]) -> nf.Poly:
    """A term times more factors: powers of one atom merged, small integer powers multiplied out."""
    atoms: dict[str, nf.Atom] = {}
    exponents: dict[str, Fraction] = {}
    for factor in (*term.factors, *factors):
        key = algebra.key(factor.atom)
        atoms.setdefault(key, factor.atom)
        exponents[key] = exponents.get(key, Fraction(0)) + factor.exponent
    number = term.coefficient
    merged: list[nf.Factor] = []
    opened: list[nf.Poly] = []
    for key, atom in atoms.items():
        exponent = exponents[key]
        inside: nf.Poly = ()
        match atom:
            case nf.Function("abs", (inner,)) if exponent % 2 == 0:
                inside = inner.terms  # |x|**2 = x**2
            case nf.Base(normal) if exponent.denominator == 1:
                inside = normal.terms
            case nf.Symbol(ir.Number(prime)):
                number *= prime ** floor(exponent)
                exponent -= floor(exponent)
        if inside and exponent > 0 and len(inside) ** int(exponent) <= _MOST_EXPANDED:
            opened.append(expand(algebra, inside, int(exponent)))
        elif exponent:
            merged.append(nf.Factor(atom, exponent))
    made: nf.Poly = (replace(term, coefficient=number, factors=tuple(merged)),)
    for poly in opened:
        made = multiply(algebra, made, poly)
    return made


def expand(algebra: nf.Algebra, poly: nf.Poly, exponent: int) -> nf.Poly:
    """An integer power, multiplied out."""
    found = nf.ONE
    for _ in range(exponent):
        found = multiply(algebra, found, poly)
    return found


_MOST_POWER = 8
_MOST_CHOICES = 4


def power(algebra: nf.Algebra, poly: nf.Poly, exponent: Fraction) -> nf.Poly:
    """The power with a constant exponent."""
    if exponent == 0:
        return nf.ONE
    cond.refuse_infinite(poly)
    if exponent.denominator == 1 and 0 < exponent <= _MOST_POWER and len(poly) ** exponent <= 200:
        return expand(algebra, poly, int(exponent))

    def act(case: nf.Poly) -> nf.Poly | None:
        found = algebra.finish(case)
        if found.terms:
            return _power_case(algebra, found, exponent)
        return () if exponent > 0 else None

    return cond.by_cases(poly, act) or _make_power(algebra.finish(poly), exponent)


def _power_case(algebra: nf.Algebra, base: nf.Normal, exponent: Fraction) -> nf.Poly:
    if len(base.terms) == 1 and _is_plain(base.terms[0]):
        return _power_term(algebra, base.terms[0], exponent)
    content, rest = find_content(algebra, base, any_sign=exponent.denominator == 1)
    if content is None:
        return _make_power(base, exponent)
    drawn = _power_term(algebra, content, exponent)
    return multiply(algebra, drawn, _make_power(rest, exponent))


def _make_power(base: nf.Normal, exponent: Fraction) -> nf.Poly:
    """The power of a sum as one atom; GivesUp for a power of 0."""
    if not base.terms:
        raise nf.GivesUp("a power of 0")
    return nf.single(nf.Base(base), exponent)


def _is_plain(term: nf.Term) -> bool:
    return not (term.bound or term.guards)


def _power_term(algebra: nf.Algebra, term: nf.Term, exponent: Fraction) -> nf.Poly:
    """The power of a monomial: nonnegative factors one by one, the others together."""
    number, factors = power_number(abs(term.coefficient), exponent)
    argument = None
    if term.power:
        argument = algebra.finish(tuple(each.times(exponent) for each in term.power.terms))
    left: list[nf.Factor] = []
    negative = term.coefficient < 0
    if exponent.denominator == 1:
        factors += [nf.Factor(f.atom, f.exponent * exponent) for f in term.factors]
        sign = -1 if negative and exponent % 2 else 1
        return collect(algebra, nf.Term(number * sign, power=argument), factors)
    for factor in term.factors:
        if factor.exponent.denominator != 1 or cond.is_nonnegative(factor.atom):
            factors.append(nf.Factor(factor.atom, factor.exponent * exponent))
        else:
            left.append(factor)
    drawn = collect(algebra, nf.Term(number, power=argument), factors)
    if not left and not negative:
        return drawn
    whole = nf.Term(Fraction(-1 if negative else 1), factors=tuple(left))
    return multiply(algebra, drawn, _make_power(algebra.finish((whole,)), exponent))


def power_number(number: Fraction, exponent: Fraction) -> tuple[Fraction, list[nf.Factor]]:
    """The pair (rational, roots of primes) whose product is a power of a positive number."""
    if exponent.denominator == 1:
        return number**exponent.numerator, []
    found: list[nf.Factor] = []
    rational = Fraction(1)
    for prime, times in factor_number(number).items():
        share = times * exponent
        whole = share.numerator // share.denominator
        rational *= Fraction(prime) ** whole
        if share != whole:
            found.append(nf.Factor(symbol(prime), share - whole))
    return rational, found


def symbol(number: int) -> nf.Symbol:
    """A prime number as an atom."""
    return nf.Symbol(ir.Number(Fraction(number)))


def find_content(
    algebra: nf.Algebra, base: nf.Normal, *, any_sign: bool
) -> tuple[nf.Term | None, nf.Normal]:
    """The pair (common factor or None, the rest); only positive factors unless `any_sign`."""
    if not base.terms:
        return None, base
    shared = _find_shared_factors(algebra, base.terms, any_sign=any_sign)
    inverse = nf.Term(factors=tuple(nf.Factor(f.atom, -f.exponent) for f in shared))
    terms = base.terms
    if shared:
        terms = algebra.finish(multiply(algebra, terms, (inverse,))).terms
    argument, rest = _draw_out_exp(algebra, terms)
    number = _find_number(algebra, rest, any_sign=any_sign)
    if not shared and argument is None and number == 1:
        return None, base
    if number != 1:
        rest = algebra.finish(tuple(term.times(1 / number) for term in rest.terms))
    return nf.Term(number, (), (), tuple(shared), argument), rest


def _find_shared_factors(algebra: nf.Algebra, terms: nf.Poly, *, any_sign: bool) -> list[nf.Factor]:
    """The factors to take out: powers in every term, and divisors that are sizes or elements."""
    found: dict[str, nf.Factor] = {}
    exponents: dict[str, list[Fraction]] = {}
    for term in terms:
        for factor in term.factors:
            match factor.atom:
                case nf.Infinite() | nf.Symbol(ir.Number()):
                    continue
            if factor.free.isdisjoint(term.bound) and (any_sign or cond.is_above(factor.atom)):
                key = algebra.key(factor.atom)
                found[key] = factor
                exponents.setdefault(key, []).append(factor.exponent)
    shared = []
    for key in sorted(found):
        atom = found[key].atom
        known = exponents[key]
        if len(known) < len(terms):
            if not isinstance(atom, (nf.Symbol, nf.Read)):
                continue
            known = [*known, Fraction(0)]
        least = min(known)
        if least and (least.denominator == 1 or cond.is_size(found[key])):
            shared.append(nf.Factor(atom, least))
    return shared


def _draw_out_exp(algebra: nf.Algebra, terms: nf.Poly) -> tuple[nf.Normal | None, nf.Normal]:
    """The pair (s, the terms divided by exp(s)): s is drawn out of the exps' arguments, or None."""
    whole = algebra.finish(terms)
    choices: dict[str, nf.Poly] = {}
    for term in whole.terms:
        power = term.power.terms if term.power else ()
        free = tuple(e for e in power if e.coefficient and e.free.isdisjoint(term.bound))
        choices.setdefault(algebra.key(algebra.finish(free)), free)
    if not any(choices.values()):
        return None, whole
    tried = [
        (free, algebra.finish(_divide_exp(algebra, whole.terms, free)) if free else whole)
        for free in islice(choices.values(), _MOST_CHOICES)
    ]
    free, rest = min(tried, key=lambda pair: algebra.coarse_key(pair[1]))
    return (algebra.finish(free) if free else None), rest


def _divide_exp(algebra: nf.Algebra, terms: nf.Poly, free: nf.Poly) -> nf.Poly:
    """The terms divided by exp(free), where terms that cancel leave no 0."""
    found: list[nf.Term] = []
    for term in terms:
        left = {algebra.key(each): each for each in (term.power.terms if term.power else ())}
        for each in free:
            key = algebra.key(each)
            own = left.pop(key, None)
            number = (own.coefficient if own else Fraction(0)) - each.coefficient
            if number:
                left[key] = each.times(number / each.coefficient)
        power = algebra.finish(tuple(left.values()))
        bare = replace(term, power=None)
        found += multiply(algebra, (bare,), (nf.Term(power=power),)) if power.terms else (bare,)
    return tuple(found)


def _find_number(algebra: nf.Algebra, base: nf.Normal, *, any_sign: bool) -> Fraction:
    """The common divisor of all coefficients; it is negative only with `any_sign`."""
    top = gcd(*(term.coefficient.numerator for term in base.terms))
    bottom = lcm(*(term.coefficient.denominator for term in base.terms))
    number = Fraction(top or 1, bottom)
    return -number if any_sign and find_orientation(algebra, base) < 0 else number


def find_orientation(algebra: nf.Algebra, base: nf.Normal) -> int:
    """1 or -1, the opposite for the negated normal form; the names of indices do not matter."""
    sums: dict[str, Fraction] = {}
    for term in base.terms:
        key = algebra.coarse_key(term)
        sums[key] = sums.get(key, Fraction(0)) + term.coefficient
    return next((1 if sums[key] > 0 else -1 for key in sorted(sums) if sums[key]), 1)


def exponential(algebra: nf.Algebra, poly: nf.Poly) -> nf.Poly:
    """The exp of a sum: one term with an exp where the sum is finite, 0 where it is -oo."""
    finite, regions = cond.find_regions(poly)
    found: list[nf.Term] = []
    for region in regions:
        part = cond.by_cases(cond.assume(finite, region), lambda p: _exp_case(algebra, p))
        found += cond.guard((region,), part or ())
    return tuple(found)


def _exp_case(algebra: nf.Algebra, poly: nf.Poly) -> nf.Poly:
    argument = algebra.finish(poly)
    drawn: nf.Poly = nf.ONE
    left: list[nf.Term] = []
    for term in argument.terms:
        inner = _find_log(term)
        if inner is None:
            left.append(term)
        else:
            drawn = multiply(algebra, drawn, power(algebra, inner.terms, term.coefficient))
    if not left:
        return drawn
    rest = argument if len(left) == len(argument.terms) else algebra.finish(tuple(left))
    return multiply(algebra, drawn, (nf.Term(power=rest),))


def _find_log(term: nf.Term) -> nf.Normal | None:
    """The A of a term c * log(A) with positive A; None for any other term."""
    match term:
        case nf.Term(_, (), (), (nf.Factor(nf.Function("log", (inner,)), exponent),), None):
            return inner if exponent == 1 and cond.is_above(inner) else None
    return None


def logarithm(algebra: nf.Algebra, poly: nf.Poly) -> nf.Poly:
    """The log of a sum: logs of its common positive factors, plus the log of the rest; -oo at 0."""
    cond.refuse_infinite(poly)

    def act(case: nf.Poly) -> nf.Poly:
        found = algebra.finish(case)
        if not found.terms:
            return nf.single(nf.Infinite(), coefficient=Fraction(-1))
        if len(found.terms) == 1 and _is_plain(found.terms[0]):
            return _log_term(algebra, found.terms[0])
        content, rest = find_content(algebra, found, any_sign=False)
        drawn = _log_term(algebra, content) if content else ()
        return (*drawn, *_make_log(rest))

    return cond.by_cases(poly, act) or ()


def _log_term(algebra: nf.Algebra, term: nf.Term) -> nf.Poly:
    found: list[nf.Term] = []
    for prime, times in factor_number(abs(term.coefficient)).items():
        inner = algebra.finish(nf.single(symbol(prime)))
        found += [each.times(Fraction(times)) for each in _make_log(inner)]
    left: list[nf.Factor] = []
    for factor in term.factors:
        if cond.is_above(factor.atom) or (
            isinstance(factor.atom, nf.Base) and cond.is_nonnegative(factor.atom)
        ):
            base = factor.atom.normal if isinstance(factor.atom, nf.Base) else None
            inner = base or algebra.finish(nf.single(factor.atom))
            found += [each.times(factor.exponent) for each in _make_log(inner)]
        else:
            left.append(factor)
    if term.power:
        found += term.power.terms
    if left or term.coefficient < 0:
        sign = Fraction(1 if term.coefficient > 0 else -1)
        found += _make_log(algebra.finish((nf.Term(sign, factors=tuple(left)),)))
    return tuple(found)


def _make_log(inner: nf.Normal) -> Sequence[nf.Term]:
    return nf.single(nf.Function("log", (inner,)))


# Primitive functions, and reductions other than sums.
#
# max(a, b) = (a + b + |a - b|)/2   min(a, b) = (a + b - |a - b|)/2
# max_j (c*a_j + b) = c * max_j a_j + b where c > 0

_HALF = Fraction(1, 2)


def scale(poly: nf.Poly, number: Fraction | int) -> nf.Poly:
    """The terms times a number."""
    return tuple(term.times(Fraction(number)) for term in poly)


def apply(algebra: nf.Algebra, name: str, arguments: tuple[nf.Poly, ...]) -> nf.Poly:
    """The value of an elementwise function; "share" is 1/x, and 0 at 0."""
    if name == "exp":
        return exponential(algebra, arguments[0])
    if name == "log":
        return logarithm(algebra, arguments[0])
    if name in {"max", "min"}:
        arguments = _drop_infinite(arguments, negative=name == "max")
    for argument in arguments:
        cond.refuse_infinite(argument)
    if name == "share":
        return _divide_or_zero(algebra, arguments)
    if name in {"max", "min"}:
        return _choose_extreme(algebra, arguments, Fraction(1 if name == "max" else -1))
    if len(arguments) == 1:
        return cond.by_cases(arguments[0], lambda p: _apply_case(algebra, name, p)) or ()
    return nf.single(nf.Function(name, tuple(algebra.finish(argument) for argument in arguments)))


def _apply_case(algebra: nf.Algebra, name: str, poly: nf.Poly) -> nf.Poly:
    inner = algebra.finish(poly)
    parity = FUNCTIONS[name].parity if name in FUNCTIONS else ""
    if not inner.terms and (parity == "odd" or name in {"abs", "floor"}):
        return ()
    if name == "abs":
        return _take_abs(algebra, inner)
    sign = 1
    if parity and find_orientation(algebra, inner) < 0:
        inner = algebra.finish(scale(inner.terms, -1))
        sign = -1 if parity == "odd" else 1
    return scale(nf.single(nf.Function(name, (inner,))), sign)


def _take_abs(algebra: nf.Algebra, inner: nf.Normal) -> nf.Poly:
    """The absolute value, with positive content drawn out and the sign dropped."""
    if cond.is_nonnegative(inner):
        return inner.terms
    content, rest = find_content(algebra, inner, any_sign=False)
    if find_orientation(algebra, rest) < 0:
        rest = algebra.finish(scale(rest.terms, -1))
    found = nf.single(nf.Function("abs", (rest,)))
    return found if content is None else multiply(algebra, (content,), found)


def _drop_infinite(arguments: tuple[nf.Poly, ...], *, negative: bool) -> tuple[nf.Poly, ...]:
    """The arguments without a plain -oo of a max, or oo of a min."""
    kept = []
    for argument in arguments:
        plain = len(argument) == 1 and cond.is_infinite(argument[0]) and not argument[0].guards
        bare = plain and len(argument[0].factors) == 1
        if not bare or (argument[0].coefficient < 0) is not negative:
            kept.append(argument)
    return tuple(kept) or arguments


def _choose_extreme(algebra: nf.Algebra, arguments: tuple[nf.Poly, ...], sign: Fraction) -> nf.Poly:
    """The maximum (sign 1) or the minimum (sign -1) of the arguments."""
    best = arguments[0]
    for other in arguments[1:]:
        gap = apply(algebra, "abs", ((*best, *scale(other, -1)),))
        best = (*scale(best, _HALF), *scale(other, _HALF), *scale(gap, sign * _HALF))
        best = algebra.finish(best).terms
    return best


def _divide_or_zero(algebra: nf.Algebra, arguments: tuple[nf.Poly, ...]) -> nf.Poly:
    """1 / x for a nonnegative x, and 0 where x is 0."""

    def act(case: nf.Poly) -> nf.Poly:
        inner = algebra.finish(case)
        if not inner.terms:
            return ()
        if cond.is_above(inner):
            return power(algebra, inner.terms, Fraction(-1))
        content, rest = find_content(algebra, inner, any_sign=False)
        found = nf.single(nf.Function("share", (rest,)))
        if content is None:
            return found
        return multiply(algebra, power(algebra, (content,), Fraction(-1)), found)

    return cond.by_cases(arguments[0], act) or ()


def fold(
    algebra: nf.Algebra, kind: str, bound: nf.Indices, poly: nf.Poly, cubes: cond.Cubes
) -> nf.Poly:
    """The value of a reduction other than a sum where a cube holds; GivesUp for several cubes."""
    if kind == "min":
        return scale(fold(algebra, "max", bound, scale(poly, -1), cubes), -1)
    if kind in {"max", "argmax"}:
        finite, regions = cond.find_regions(poly)
        cubes = cond.all_of(cubes, regions)
        return _fold_order(algebra, kind, bound, finite, cubes)
    cond.refuse_infinite(poly)
    if len(cubes) != 1:
        raise nf.GivesUp("a product over several cases")
    body = algebra.finish(cond.assume(poly, cubes[0]))
    return nf.single(nf.Fold(kind, bound, cubes[0], body))


def _fold_order(
    algebra: nf.Algebra, kind: str, bound: nf.Indices, poly: nf.Poly, cubes: cond.Cubes
) -> nf.Poly:
    if len(cubes) != 1:
        raise nf.GivesUp("a largest entry over several cases, or over none")
    if kind == "argmax" and len(bound) != 1:
        raise nf.GivesUp("a position of several letters")
    (cube,) = cubes
    body = algebra.finish(cond.assume(poly, cube))
    outer = [t for t in body.terms if not any(i in t.free for i in bound)]
    inner = algebra.finish(tuple(term for term in body.terms if term not in outer))
    if not inner.terms and kind == "max":
        return tuple(outer)
    content, rest = find_content(algebra, inner, any_sign=False)
    if content is not None and content.free.intersection(bound):
        content, rest = None, inner
    asked = {index for each in cube for index in each.free} | rest.free
    kept = tuple(i for i in bound if i in asked or not cond.is_filled((i,), ()))
    found = nf.single(nf.Fold(kind, kept, cube, rest))
    if kind == "argmax":
        return found
    drawn = multiply(algebra, (content,), found) if content else found
    return (*drawn, *outer)


def to_number(value: polynomial.Polynomial) -> nf.Poly:
    """A polynomial over sizes, indices and atoms of index expressions as a sum of terms."""
    found = []
    for monomial, times in value.terms.items():
        factors = (nf.Factor(_to_atom(atom), Fraction(power)) for atom, power in monomial)
        found.append(nf.Term(times, factors=tuple(factors)))
    return tuple(found)


def _to_atom(atom: ir.Expr) -> nf.Atom:
    return nf.Value(polynomial.Polynomial.of(atom)) if is_varying(atom) else nf.Symbol(atom)
