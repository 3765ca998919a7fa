"""Powers, exp and log of sums of terms.

What can be drawn out of a power of a sum is: its number, sizes, factors that all terms share, and
what all their exps share that is free of the summed indices. So the shift of a softmax cancels, and
`1 + exp(x)` and `1 + exp(-x)` are one base.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import gcd
from typing import TYPE_CHECKING

from derive.ir import nodes as ir
from derive.ir.functions import FUNCTIONS
from derive.prove.conditions import (
    Cubes,
    assume,
    by_cases,
    check_count,
    find_regions,
    is_above,
    is_filled,
    is_infinite,
    is_nonnegative_atom,
    is_size,
    join,
    refuse_infinite,
)
from derive.prove.products import collect, expand
from derive.prove.terms import (
    ONE,
    Algebra,
    Base,
    Factor,
    Fold,
    Function,
    GivesUp,
    Infinite,
    Normal,
    Poly,
    Read,
    Symbol,
    Term,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


_MOST_POWER = 8
_MOST_CHOICES = 4
_LARGEST_PRIME = 1000


def power(algebra: Algebra, poly: Poly, exponent: Fraction) -> Poly:
    """The power with a number as its exponent."""
    if exponent == 0:
        return ONE
    refuse_infinite(poly)
    if exponent.denominator == 1 and 0 < exponent <= _MOST_POWER and len(poly) ** exponent <= 200:
        return expand(algebra, poly, int(exponent))

    def act(case: Poly) -> Poly | None:
        found = algebra.finish(case)
        if found.terms:
            return _power_plainly(algebra, found, exponent)
        return () if exponent > 0 else None

    return by_cases(algebra, poly, act) or _keep(algebra, algebra.finish(poly), exponent)


def _power_plainly(algebra: Algebra, base: Normal, exponent: Fraction) -> Poly:
    if len(base.terms) == 1 and _is_plain(base.terms[0]):
        return _power_term(algebra, base.terms[0], exponent)
    content, rest = find_content(algebra, base, whole=exponent.denominator == 1)
    if content is None:
        return _keep(algebra, base, exponent)
    drawn = _power_term(algebra, content, exponent)
    return algebra.multiply(drawn, _keep(algebra, rest, exponent))


def _keep(algebra: Algebra, base: Normal, exponent: Fraction) -> Poly:
    """The power as an atom."""
    if not base.terms:
        raise GivesUp("a power of 0")
    atom = Base(base)
    return (Term(factors=(Factor(atom, exponent),)),)


def _is_plain(term: Term) -> bool:
    return not (term.bound or term.guards)


def _power_term(algebra: Algebra, term: Term, exponent: Fraction) -> Poly:
    """The power of a monomial: what is positive by itself, the rest together."""
    number, factors = power_number(abs(term.coefficient), exponent)
    argument = None
    if term.power:
        argument = algebra.finish(tuple(each.times(exponent) for each in term.power.terms))
    left: list[Factor] = []
    negative = term.coefficient < 0
    if exponent.denominator == 1:
        factors += [Factor(f.atom, f.exponent * exponent) for f in term.factors]
        sign = -1 if negative and exponent % 2 else 1
        return collect(algebra, Term(number * sign, power=argument), factors)
    for factor in term.factors:
        if factor.exponent.denominator != 1 or is_nonnegative_atom(factor.atom):
            factors.append(Factor(factor.atom, factor.exponent * exponent))
        else:
            left.append(factor)
    drawn = collect(algebra, Term(number, power=argument), factors)
    if not left and not negative:
        return drawn
    return algebra.multiply(drawn, _power_left(algebra, left, negative, exponent))


def _power_left(algebra: Algebra, left: list[Factor], negative: bool, exponent: Fraction) -> Poly:
    """A root of what may be negative."""
    if len(left) == 1 and not negative and left[0].exponent.denominator == 1:
        (factor,) = left
        base: Poly = (Term(factors=(Factor(factor.atom, Fraction(1)),)),)
        if factor.exponent % 2 == 0:
            size = algebra.apply("abs", (base,))
            return algebra.power(size, factor.exponent * exponent)
        if factor.exponent == 1:
            return (Term(factors=(Factor(factor.atom, exponent),)),)
    whole = Term(Fraction(-1 if negative else 1), factors=tuple(left))
    return _keep(algebra, algebra.finish((whole,)), exponent)


def power_number(number: Fraction, exponent: Fraction) -> tuple[Fraction, list[Factor]]:
    """A power of a positive number: a rational, and roots of primes."""
    if exponent.denominator == 1:
        return number**exponent.numerator, []
    found: list[Factor] = []
    rational = Fraction(1)
    for prime, times in factor_number(number).items():
        share = times * exponent
        whole = share.numerator // share.denominator
        rational *= Fraction(prime) ** whole
        if share != whole:
            found.append(Factor(symbol(prime), share - whole))
    return rational, found


def symbol(number: int) -> Symbol:
    """A prime number as an atom."""
    return Symbol(ir.Number(Fraction(number)))


def factor_number(number: Fraction) -> dict[int, int]:
    """The primes of a positive rational and how often each divides it; a large rest stays whole."""
    found: dict[int, int] = {}
    for part, sign in ((number.numerator, 1), (number.denominator, -1)):
        left, prime = part, 2
        while left > 1:
            while left % prime == 0:
                found[prime] = found.get(prime, 0) + sign
                left //= prime
            prime += 1
            if prime > _LARGEST_PRIME and left > 1:
                found[left] = found.get(left, 0) + sign
                break
    return found


def find_content(algebra: Algebra, base: Normal, *, whole: bool) -> tuple[Term | None, Normal]:
    """A monomial that all terms share, and what is left of them; None where there is none."""
    if not base.terms:
        return None, base
    shared = _find_shared(algebra, base.terms, whole=whole)
    inverse = Term(
        factors=tuple(Factor(f.atom, -f.exponent) for f in shared),
    )
    terms = _draw(algebra, base.terms, inverse) if shared else base.terms
    argument, rest = _draw_exp(algebra, terms)
    number = _find_number(algebra, rest, whole=whole)
    if not shared and argument is None and number == 1:
        return None, base
    if number != 1:
        rest = algebra.finish(tuple(term.times(1 / number) for term in rest.terms))
    return Term(number, (), (), tuple(shared), argument), rest


def _draw(algebra: Algebra, terms: Poly, inverse: Term) -> Poly:
    return algebra.finish(algebra.multiply(terms, (inverse,))).terms


def _find_shared(algebra: Algebra, terms: Poly, *, whole: bool) -> list[Factor]:
    """The powers in every term; of sizes also those that only divide some."""
    found: dict[str, Factor] = {}
    exponents: dict[str, list[Fraction]] = {}
    for term in terms:
        for factor in term.factors:
            if not _may_be_drawn(factor, term, whole=whole):
                continue
            key = algebra.key(factor.atom)
            found[key] = factor
            exponents.setdefault(key, []).append(factor.exponent)
    shared = []
    for key in sorted(found):
        atom = found[key].atom
        known = exponents[key]
        if len(known) < len(terms):
            if not isinstance(atom, (Symbol, Read)):
                continue
            known = [*known, Fraction(0)]
        least = min(known)
        if least and (least.denominator == 1 or is_size(found[key])):
            shared.append(Factor(atom, least))
    return shared


def _may_be_drawn(factor: Factor, term: Term, *, whole: bool) -> bool:
    if any(index in factor.free for index in term.bound):
        return False
    if isinstance(factor.atom, Infinite) or _is_prime(factor):
        return False
    return whole or is_above(factor.atom)


def _is_prime(factor: Factor) -> bool:
    return isinstance(factor.atom, Symbol) and isinstance(factor.atom.expr, ir.Number)


def _draw_exp(algebra: Algebra, terms: Poly) -> tuple[Normal | None, Normal]:
    """What the exps of all terms share, and the terms without it."""
    whole = algebra.finish(terms)
    choices: dict[str, Poly] = {}
    for term in whole.terms:
        free = _find_free_part(term)
        choices.setdefault(algebra.key(algebra.finish(free)), free)
    if list(choices) in ([], [algebra.key(algebra.finish(()))]):
        return None, whole
    best: tuple[str, Poly, Normal] | None = None
    for free in list(choices.values())[:_MOST_CHOICES]:
        rest = algebra.finish(_divide_exp(algebra, whole.terms, free)) if free else whole
        key = algebra.coarse_key(rest)
        if best is None or key < best[0]:
            best = key, free, rest
    assert best is not None
    return (algebra.finish(best[1]) if best[1] else None), best[2]


def _divide_exp(algebra: Algebra, terms: Poly, free: Poly) -> Poly:
    """The terms divided by an exp; what an exp has of it goes without a trace."""
    found: list[Term] = []
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
        found += algebra.multiply((bare,), (Term(power=power),)) if power.terms else (bare,)
    return tuple(found)


def _find_free_part(term: Term) -> Poly:
    """The terms in its exp that are free of its summed indices."""
    if term.power is None:
        return ()
    return tuple(
        each
        for each in term.power.terms
        if each.coefficient and not any(index in each.free for index in term.bound)
    )


def _find_number(algebra: Algebra, base: Normal, *, whole: bool) -> Fraction:
    """The number that all coefficients share, with a sign where signs may be drawn out."""
    top, bottom = 0, 1
    for term in base.terms:
        top = gcd(top, term.coefficient.numerator)
        bottom = bottom * term.coefficient.denominator // gcd(bottom, term.coefficient.denominator)
    number = Fraction(top or 1, bottom)
    return -number if whole and find_sign(algebra, base) < 0 else number


def find_sign(algebra: Algebra, base: Normal) -> int:
    """A sign that changes with the normal's, and not with the names of its indices."""
    sums: dict[str, Fraction] = {}
    for term in base.terms:
        key = algebra.coarse_key(term)
        sums[key] = sums.get(key, Fraction(0)) + term.coefficient
    for key in sorted(sums):
        if sums[key]:
            return 1 if sums[key] > 0 else -1
    return 1


def exponential(algebra: Algebra, poly: Poly) -> Poly:
    """The exp of it: a monomial where it is finite, 0 where it is -oo."""
    finite, regions = find_regions(poly, negative=True)
    found: list[Term] = []
    for region in regions:
        part = by_cases(algebra, assume(finite, region), lambda p: _exp_plainly(algebra, p))
        assert part is not None
        found += algebra.guard((region,), part)
    return tuple(found)


def _exp_plainly(algebra: Algebra, poly: Poly) -> Poly:
    argument = algebra.finish(poly)
    drawn: Poly = ONE
    left: list[Term] = []
    for term in argument.terms:
        inner = _find_log(term)
        if inner is None:
            left.append(term)
        else:
            drawn = algebra.multiply(drawn, algebra.power(inner.terms, term.coefficient))
    if not left:
        return drawn
    rest = argument if len(left) == len(argument.terms) else algebra.finish(tuple(left))
    return algebra.multiply(drawn, (Term(power=rest),))


def _find_log(term: Term) -> Normal | None:
    """The A of a term c * log(A), where A is positive."""
    if not _is_plain(term) or term.power or len(term.factors) != 1:
        return None
    factor = term.factors[0]
    match factor.atom:
        case Function("log", (inner,)) if factor.exponent == 1 and is_above(Base(inner)):
            return inner
    return None


def logarithm(algebra: Algebra, poly: Poly) -> Poly:
    """The log of it: of a product where its parts are positive, -oo of 0."""
    refuse_infinite(poly)

    def act(case: Poly) -> Poly:
        found = algebra.finish(case)
        if not found.terms:
            return (Term(Fraction(-1), factors=(Factor(Infinite(), Fraction(1)),)),)
        if len(found.terms) == 1 and _is_plain(found.terms[0]):
            return _log_term(algebra, found.terms[0])
        content, rest = find_content(algebra, found, whole=False)
        drawn = _log_term(algebra, content) if content else ()
        return (*drawn, *_make_log(rest))

    found = by_cases(algebra, poly, act)
    assert found is not None
    return found


def _log_term(algebra: Algebra, term: Term) -> Poly:
    found: list[Term] = []
    for prime, times in factor_number(abs(term.coefficient)).items():
        inner = algebra.finish((Term(factors=(Factor(symbol(prime), Fraction(1)),)),))
        found += [each.times(Fraction(times)) for each in _make_log(inner)]
    left: list[Factor] = []
    for factor in term.factors:
        if is_above(factor.atom) or (
            isinstance(factor.atom, Base) and is_nonnegative_atom(factor.atom)
        ):
            inner = _open_base(algebra, factor)
            found += [each.times(factor.exponent) for each in _make_log(inner)]
        else:
            left.append(factor)
    if term.power:
        found += term.power.terms
    if left or term.coefficient < 0:
        sign = Fraction(1 if term.coefficient > 0 else -1)
        found += _make_log(algebra.finish((Term(sign, factors=tuple(left)),)))
    return tuple(found)


def _open_base(algebra: Algebra, factor: Factor) -> Normal:
    if isinstance(factor.atom, Base):
        return factor.atom.normal
    return algebra.finish((Term(factors=(Factor(factor.atom, Fraction(1)),)),))


def _make_log(inner: Normal) -> Sequence[Term]:
    return (Term(factors=(Factor(Function("log", (inner,)), Fraction(1)),)),)


# Primitive functions, and reductions that are no sums.
#
# max(a, b) = (a + b + |a - b|)/2   min(a, b) = (a + b - |a - b|)/2
# max_j (c*a_j + b) = c * max_j a_j + b where c > 0


_HALF = Fraction(1, 2)


def scale(poly: Poly, number: Fraction | int) -> Poly:
    """The terms times a number."""
    return tuple(term.times(Fraction(number)) for term in poly)


def apply(algebra: Algebra, name: str, arguments: tuple[Poly, ...]) -> Poly:
    """An elementwise function of its arguments."""
    if name == "exp":
        return algebra.exponential(arguments[0])
    if name == "log":
        return algebra.logarithm(arguments[0])
    if name in {"max", "min"}:
        arguments = _drop_infinite(arguments, negative=name == "max")
    for argument in arguments:
        refuse_infinite(argument)
    if name == "share":
        return _share(algebra, arguments)
    if name in {"max", "min"}:
        return _choose(algebra, arguments, Fraction(1 if name == "max" else -1))
    if len(arguments) == 1:
        found = by_cases(algebra, arguments[0], lambda p: _apply_plainly(algebra, name, p))
        assert found is not None
        return found
    return _atom(Function(name, tuple(algebra.finish(argument) for argument in arguments)))


def _atom(atom: Function | Fold) -> Poly:
    return (Term(factors=(Factor(atom, Fraction(1)),)),)


def _apply_plainly(algebra: Algebra, name: str, poly: Poly) -> Poly:
    inner = algebra.finish(poly)
    parity = FUNCTIONS[name].parity if name in FUNCTIONS else ""
    if not inner.terms and (parity == "odd" or name in {"abs", "floor"}):
        return ()
    if name == "abs":
        return _find_size(algebra, inner)
    sign = 1
    if parity and find_sign(algebra, inner) < 0:
        inner = algebra.finish(scale(inner.terms, -1))
        sign = -1 if parity == "odd" else 1
    return scale(_atom(Function(name, (inner,))), sign)


def _find_size(algebra: Algebra, inner: Normal) -> Poly:
    """The absolute value: what is positive is drawn out, the sign is let go."""
    if is_nonnegative_atom(Base(inner)):
        return inner.terms
    content, rest = find_content(algebra, inner, whole=False)
    if find_sign(algebra, rest) < 0:
        rest = algebra.finish(scale(rest.terms, -1))
    found = _atom(Function("abs", (rest,)))
    if content is None:
        return found
    return algebra.multiply((content,), found)


def _drop_infinite(arguments: tuple[Poly, ...], *, negative: bool) -> tuple[Poly, ...]:
    """The arguments without a plain -oo of a max, or oo of a min."""
    kept = []
    for argument in arguments:
        plain = len(argument) == 1 and is_infinite(argument[0]) and not argument[0].guards
        bare = plain and len(argument[0].factors) == 1
        if not bare or (argument[0].coefficient < 0) is not negative:
            kept.append(argument)
    return tuple(kept) or arguments


def _choose(algebra: Algebra, arguments: tuple[Poly, ...], sign: Fraction) -> Poly:
    """The largest (sign 1) or the smallest (sign -1) of the arguments."""
    best = arguments[0]
    for other in arguments[1:]:
        gap = apply(algebra, "abs", ((*best, *scale(other, -1)),))
        best = (*scale(best, _HALF), *scale(other, _HALF), *scale(gap, sign * _HALF))
        best = algebra.finish(best).terms
    return best


def number(value: Fraction | int) -> Poly:
    """A number as a term."""
    return (Term(Fraction(value)),) if value else ()


def _share(algebra: Algebra, arguments: tuple[Poly, ...]) -> Poly:
    """1 / x, and 0 where x is 0, of what is never negative."""

    def act(case: Poly) -> Poly:
        inner = algebra.finish(case)
        if not inner.terms:
            return ()
        if algebra.is_positive(inner):
            return algebra.power(inner.terms, Fraction(-1))
        content, rest = find_content(algebra, inner, whole=False)
        found = _atom(Function("share", (rest,)))
        if content is None:
            return found
        return algebra.multiply(algebra.power((content,), Fraction(-1)), found)

    found = by_cases(algebra, arguments[0], act)
    assert found is not None
    return found


def fold(
    algebra: Algebra, kind: str, bound: tuple[ir.Index, ...], poly: Poly, cubes: Cubes
) -> Poly:
    """A reduction that is no sum over the entries where a cube holds."""
    if kind == "min":
        return scale(fold(algebra, "max", bound, scale(poly, -1), cubes), -1)
    if kind in {"max", "argmax"}:
        finite, regions = find_regions(poly, negative=True)
        cubes = check_count(join([cubes, regions]))
        return _fold_order(algebra, kind, bound, finite, cubes)
    refuse_infinite(poly)
    if len(cubes) != 1:
        raise GivesUp("a product over several cases")
    body = algebra.finish(assume(poly, cubes[0]))
    return _atom(Fold(kind, bound, cubes[0], body))


def _fold_order(
    algebra: Algebra, kind: str, bound: tuple[ir.Index, ...], poly: Poly, cubes: Cubes
) -> Poly:
    if len(cubes) != 1:
        raise GivesUp("a largest entry over several cases, or over none")
    if kind == "argmax" and len(bound) != 1:
        raise GivesUp("a position of several letters")
    (cube,) = cubes
    body = algebra.finish(assume(poly, cube))
    outer = [t for t in body.terms if not any(i in t.free for i in bound)]
    inner = algebra.finish(tuple(term for term in body.terms if term not in outer))
    if not inner.terms and kind == "max":
        return tuple(outer)
    content, rest = find_content(algebra, inner, whole=False)
    if content is not None and content.free.intersection(bound):
        content, rest = None, inner
    asked = {index for each in cube for index in each.free} | rest.free
    kept = tuple(i for i in bound if i in asked or not is_filled((i,), ()))
    found = _atom(Fold(kind, kept, cube, rest))
    if kind == "argmax":
        return found
    drawn = algebra.multiply((content,), found) if content else found
    return (*drawn, *outer)
