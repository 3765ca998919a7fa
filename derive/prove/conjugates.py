"""Complex conjugates, distributed over sums and products down to elements of complex tensors."""

from dataclasses import replace
from fractions import Fraction

from derive.ir.functions import FUNCTIONS
from derive.prove import terms as nf
from derive.prove.algebra import multiply, power, symbol

IMAGINARY: nf.Poly = (nf.Term(factors=(nf.Factor(symbol(-1), Fraction(1, 2)),)),)


def conjugate(algebra: nf.Algebra, poly: nf.Poly) -> nf.Poly:
    """The complex conjugate."""
    found: list[nf.Term] = []
    for term in poly:
        if not term.is_complex:
            found.append(term)
            continue
        power = term.power and algebra.finish(conjugate(algebra, term.power.terms))
        made: nf.Poly = (replace(term, factors=(), power=power),)
        for factor in term.factors:
            made = multiply(algebra, made, _conjugate_factor(algebra, factor))
        found += made
    return tuple(found)


def _conjugate_factor(algebra: nf.Algebra, factor: nf.Factor) -> nf.Poly:
    atom, exponent = factor.atom, factor.exponent
    is_real = isinstance(atom, nf.Function) and atom.name in FUNCTIONS and atom.name != "conj"
    if is_real or not atom.is_complex:
        return nf.single(atom, exponent)

    def conjugate_normal(normal: nf.Normal) -> nf.Normal:
        return algebra.finish(conjugate(algebra, normal.terms))

    match atom:
        case nf.Symbol():
            return nf.single(atom, exponent, Fraction(-1))
        case nf.Read() if exponent.denominator == 1:
            return nf.single(nf.Function("conj", (algebra.finish(nf.single(atom)),)), exponent)
        case nf.Function("conj", (inner,)) if exponent.denominator == 1:
            return power(algebra, inner.terms, exponent)
        case nf.Function("sum", (inner,)) if exponent.denominator == 1:
            return nf.single(nf.Function("sum", (conjugate_normal(inner),)), exponent)
        case nf.Base(inner) if exponent.denominator == 1:
            return power(algebra, conjugate_normal(inner).terms, exponent)
        case nf.Base(inner) if conjugate_normal(inner) == inner:  # the root of a real number
            return nf.single(atom, exponent)
        case nf.Fold("prod", bound, literals, body) if exponent.denominator == 1:
            return nf.single(nf.Fold("prod", bound, literals, conjugate_normal(body)), exponent)
        case nf.Fold("max" | "argmax"):
            return nf.single(atom, exponent)
    raise nf.GivesUp("the conjugate of what may be complex")
