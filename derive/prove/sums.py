"""The sums of a term simplified, until nothing changes.

sum_j [j = a] f(j)         = [0 <= a < J] f(a)
sum_j [c <= j] f(j)        = sum_{j < J - c} f(j + c)
sum_x f(x // D, x % D)     = sum_{h, d} f(h, d)              where D divides the extent of x
sum_{h, d} f(h*D + d)      = sum_{x < H*D} f(x)              where h and d stand nowhere else
sum_{i, j} [i >= j] f(i,j) = (sum_{i, j} f + sum_i f(i,i))/2 where f(i, j) = f(j, i)
sum_j f                    = J * f                           where j is not in f
[not c] f                  = f - [c] f                       where f is finite
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING

from derive.analysis.affine import to_affine
from derive.analysis.affine_form import Affine
from derive.analysis.affine_sizes import ONE as UNIT
from derive.analysis.affine_sizes import is_never_negative, negate
from derive.ir.nodes import Expr, Index, Size
from derive.ir.polynomial import Polynomial
from derive.prove.cases import assume
from derive.prove.letters import find_affines, split_quotient
from derive.prove.literals import compare, solve, unite
from derive.prove.merge import merge_letters, put_in
from derive.prove.prefix import open_range
from derive.prove.shift import drop_shift
from derive.prove.signs import is_tame, is_total
from derive.prove.terms import (
    Algebra,
    Factor,
    Function,
    Literal,
    Poly,
    Symbol,
    Term,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_SPLIT = 5  # contraries opened in one term


def tidy(algebra: Algebra, term: Term) -> Poly:
    """The term with its sums simplified."""
    todo, done = [term], []
    while todo:
        algebra.step()
        here = todo.pop()
        for rule in _RULES:
            found = rule(algebra, here)
            if found is not None:
                todo += found
                break
        else:
            done.append(here)
    return tuple(done)


def count(value: Polynomial) -> Poly:
    """A polynomial over sizes as a sum of terms."""
    found = []
    for monomial, number in value.terms.items():
        factors = []
        for atom, power in monomial:
            if not isinstance(atom, Size):
                factors.append(Factor(_write_atom(atom), Fraction(power)))
            else:
                factors.append(Factor(Symbol(atom), Fraction(power)))
        found.append(Term(number, factors=tuple(factors)))
    return tuple(found)


def _write_atom(atom: Expr) -> Symbol:
    return Symbol(atom)


def _settle_numeric(algebra: Algebra, term: Term) -> Poly | None:
    """Conditions that came in by numbers guard the term, once it is finite."""
    if not term.numeric or not is_total(term):
        return None
    guards = unite(term.guards, term.numeric)
    return () if guards is None else (put_in(term, guards=guards, numeric=()),)


def _check_guards(algebra: Algebra, term: Term) -> Poly | None:
    """Guards that exclude each other leave nothing; of two alike one is enough."""
    found = unite((), term.guards)
    if found is None:
        return ()
    if len(found) < len(term.guards) or any(
        one is not other for one, other in zip(found, term.guards, strict=True)
    ):
        return (put_in(term, guards=found),)
    return None


def _assume_inside(algebra: Algebra, term: Term) -> Poly | None:
    """What stands in an exp under guards stands there where they hold."""
    cube = (*term.guards, *term.numeric)
    if term.power is None or not cube:
        return None
    if not is_total(term.power):
        cube = term.guards
    inner = assume(term.power.terms, cube)
    if len(inner) == len(term.power.terms) and all(
        a is b for a, b in zip(inner, term.power.terms, strict=True)
    ):
        return None
    power = algebra.exponential(inner)
    return algebra.multiply((put_in(term, power=None),), power)


def _count_idle(algebra: Algebra, term: Term) -> Poly | None:
    """A letter that does not occur counts the entries of its range."""
    idle = [index for index in term.bound if index not in term.inner]
    if not idle:
        return None
    found: Poly = (put_in(term, bound=tuple(i for i in term.bound if i not in idle)),)
    for index in idle:
        found = algebra.multiply(found, count(Polynomial.of(index.extent)))
    return found


def _open_whole(algebra: Algebra, term: Term) -> Poly | None:
    """A guarded term that was kept as one atom is opened where all beside it is finite."""
    for factor in term.factors:
        if not isinstance(factor.atom, Function) or factor.atom.name != "whole":
            continue
        (inner,) = factor.atom.arguments
        rest = tuple(each for each in term.factors if each is not factor)
        bare = put_in(term, factors=rest)
        if len(inner.terms) == 1 and factor.exponent == 1 and is_total(bare) and not term.numeric:
            return algebra.multiply((bare,), inner.terms)
    return None


def _sift(algebra: Algebra, term: Term) -> Poly | None:
    """A summed letter that a condition ties to others is put there."""
    for literal in term.guards:
        for index in term.bound:
            place = solve(literal, index)
            if place is None:
                continue
            left = tuple(i for i in term.bound if i is not index)
            guards = tuple(each for each in term.guards if each is not literal)
            rest = put_in(term, bound=(), guards=guards)
            last = Affine({}, Polynomial.of(index.extent) - UNIT)
            inside: list[Literal] = []
            for side in (place, last - place):
                answer = algebra.decide(Literal("least", side))
                if answer is False:
                    return ()
                inside += answer if isinstance(answer, tuple) else ()
            put = algebra.replace((rest,), {index: place})
            bound = tuple(put_in(each, bound=(*left, *each.bound)) for each in put)
            return algebra.guard((tuple(inside),), bound)
    return None


def _narrow(algebra: Algebra, term: Term) -> Poly | None:
    """A condition on a summed letter alone shortens its range."""
    for literal in term.guards:
        index = _find_alone(literal, term.bound)
        if index is None:
            continue
        assert isinstance(literal.subject, Affine)
        subject = literal.subject
        if not literal.positive:
            subject = subject.scale(Polynomial.of(-1)) + Affine({}, Polynomial.of(-1))
        extent = Polynomial.of(index.extent)
        rises = subject.terms[index].constant == 1
        start = negate(subject.constant) if rises else Polynomial({})
        left = extent - start if rises else subject.constant + UNIT
        if not all(map(is_never_negative, (start, left, extent - start - left))):
            continue
        fresh = algebra.make_index(left.to_expr())
        rest = put_in(
            term,
            bound=tuple(i for i in term.bound if i is not index),
            guards=tuple(each for each in term.guards if each is not literal),
        )
        place = to_affine(fresh) + Affine({}, start)
        made = algebra.replace((rest,), {index: place})
        return tuple(put_in(each, bound=(*each.bound, fresh)) for each in made)
    return None


def _find_alone(literal: Literal, bound: tuple[Index, ...]) -> Index | None:
    """The one summed letter of `j + c >= 0` or `c - j >= 0`."""
    subject = literal.subject
    if literal.kind != "least" or not isinstance(subject, Affine) or len(subject.terms) != 1:
        return None
    ((atom, slope),) = subject.terms.items()
    if not isinstance(atom, Index) or atom not in bound or slope.constant not in (1, -1):
        return None
    return atom


def _split_letter(algebra: Algebra, term: Term) -> Poly | None:
    """A summed letter that occurs as x // D and x % D is split in two."""
    for index in term.bound:
        parts = split_quotient(algebra, index, find_affines(term))
        if parts is not None:
            high, low, place = parts
            rest = put_in(term, bound=tuple(i for i in term.bound if i is not index))
            made = algebra.replace((rest,), {index: place})
            return tuple(put_in(each, bound=(*each.bound, high, low)) for each in made)
    return None


def _halve(algebra: Algebra, term: Term) -> Poly | None:
    """A sum over half of a symmetric square is half of the square and of its diagonal."""
    for literal in term.guards:
        pair = _find_pair(literal, term.bound)
        if pair is None:
            continue
        one, other = pair
        guards = tuple(each for each in term.guards if each is not literal)
        rest = put_in(term, guards=guards)
        if not literal.positive and not is_total(rest):
            continue  # the diagonal is left out, and may be nan
        inner = (put_in(rest, bound=tuple(i for i in term.bound if i not in pair)),)
        swapped = algebra.replace(inner, {one: to_affine(other), other: to_affine(one)})
        opened = algebra.finish(inner)
        if algebra.key(algebra.finish(swapped)) != algebra.key(opened):
            continue
        half = Fraction(1, 2) * term.coefficient
        diagonal = Literal("zero", to_affine(one) - to_affine(other))
        sign = 1 if literal.positive else -1
        return (
            put_in(rest, coefficient=half),
            put_in(rest, coefficient=half * sign, guards=(*guards, diagonal)),
        )
    return None


def _find_pair(literal: Literal, bound: tuple[Index, ...]) -> tuple[Index, Index] | None:
    """The two summed letters of `i - j >= 0`, of one extent."""
    subject = literal.subject
    if literal.kind != "least" or not isinstance(subject, Affine) or subject.constant.terms:
        return None
    atoms = list(subject.terms)
    if len(atoms) != 2 or not all(isinstance(a, Index) and a in bound for a in atoms):
        return None
    one, other = atoms
    assert isinstance(one, Index)
    assert isinstance(other, Index)
    if sorted(str(each.constant) for each in subject.terms.values()) != ["-1", "1"]:
        return None
    same = Polynomial.of(one.extent) == Polynomial.of(other.extent)
    return (one, other) if same else None


def _open_contrary(algebra: Algebra, term: Term) -> Poly | None:
    """[not c] f = f - [c] f."""
    if sum(not each.positive for each in term.guards) > _MOST_SPLIT or not is_total(term):
        return None
    for literal in term.guards:
        if not literal.positive:
            rest = tuple(each for each in term.guards if each is not literal)
            without = put_in(term, guards=rest)
            found = [without]
            guards = unite(rest, (literal.contrary,))
            if guards is not None:
                found.append(put_in(term, coefficient=-term.coefficient, guards=guards))
            return tuple(found)
    return None


def _put_known(algebra: Algebra, term: Term) -> Poly | None:
    """A free letter that a guard ties to a number, or to a letter of the result, is put there."""
    for literal in term.guards:
        if literal.kind != "zero" or not literal.positive:
            continue
        rest = tuple(each for each in term.guards if each is not literal)
        bare = put_in(term, guards=rest)
        for index in sorted(literal.free, key=lambda i: (i.name[0] == "@", i.name), reverse=True):
            place = solve(literal, index)
            if place is None or index not in bare.free:
                continue
            if all(isinstance(a, Index) and _is_before(a, index) for a in place.terms):
                return algebra.guard(((literal,),), algebra.replace((bare,), {index: place}))
    return None


def _is_before(one: Index, other: Index) -> bool:
    """Is the first one a letter of the result, and the other none or a later one?"""
    return one.name[0] == "@" and (other.name[0] != "@" or one.name < other.name)


def _open_pair(algebra: Algebra, term: Term) -> Poly | None:
    """[a] [c] f = [a] f + [c] f - f, where one of a and c holds at least."""
    if not is_total(term):
        return None
    for one, other in combinations(term.guards, 2):
        if compare(one.contrary, other.contrary) == "excludes":
            rest = tuple(each for each in term.guards if each is not one and each is not other)
            return (
                put_in(term, guards=(*rest, one)),
                put_in(term, guards=(*rest, other)),
                put_in(term, guards=rest, coefficient=-term.coefficient),
            )
    return None


def _drop_zero(algebra: Algebra, term: Term) -> Poly | None:
    """Nothing is left of 0 times what is finite."""
    return () if term.coefficient == 0 and is_tame(term) else None


_RULES: tuple[Callable[[Algebra, Term], Poly | None], ...] = (
    _drop_zero,
    _settle_numeric,
    _check_guards,
    drop_shift,
    _assume_inside,
    _open_whole,
    _sift,
    _put_known,
    _narrow,
    _split_letter,
    merge_letters,
    _halve,
    open_range,
    _count_idle,
    _open_contrary,
    _open_pair,
)
