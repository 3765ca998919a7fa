"""The rules that simplify the sums of a term, and substitution of indices."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations, product

from derive.analysis.affine import substitute_indices, to_linear
from derive.analysis.facts import is_never_negative
from derive.ir import nodes as ir
from derive.ir.polynomial import NOTHING, Polynomial, divide_wholly, split_steps
from derive.ir.polynomial import ONE as UNIT
from derive.ir.walk import walk
from derive.prove import conditions as cond
from derive.prove import terms as nf
from derive.prove.algebra import (
    apply,
    collect,
    exponential,
    find_content,
    find_orientation,
    fold,
    multiply,
    power,
    scale,
    to_number,
)


@lru_cache(maxsize=20000)
def find_forms(piece: nf.Part) -> tuple[Polynomial, ...]:
    """Every index expression inside a piece, each once."""
    inner = ((e,) if isinstance(e, Polynomial) else find_forms(e) for e in piece.inside)
    return tuple(dict.fromkeys(form for each in inner for form in each))


@lru_cache(maxsize=20000)
def find_read_places(piece: nf.Part) -> tuple[Polynomial, ...]:
    """The positions of the tensor reads in a part, apart from those in conditions."""
    if isinstance(piece, nf.Read):
        return piece.places
    inside = (e for e in piece.inside if not isinstance(e, (Polynomial, nf.Literal)))
    return tuple(dict.fromkeys(place for each in inside for place in find_read_places(each)))


def find_quotients(form: Polynomial) -> Iterator[tuple[Polynomial, Polynomial]]:
    """Yield the pair (dividend, divisor) of each `a // b` inside the atoms of a form."""
    for atom in form.atoms:
        for here in walk(atom):
            match here:
                case ir.Call("floordiv", (over, under)):
                    yield to_linear(over), to_linear(under)


def split_quotient(
    algebra: nf.Algebra, index: ir.Index, forms: Sequence[Polynomial]
) -> tuple[ir.Index, ir.Index, Polynomial] | None:
    """Quotient and remainder indices for an index, and the index in terms of both, or None.

    The index is divided somewhere by a divisor of its extent.
    """
    extent = Polynomial.of(index.extent)
    for form in forms:
        if index not in nf.find_form_indices(form):
            continue
        for over, divisor in find_quotients(form):
            if over != Polynomial.of(index):
                continue
            times = divide_wholly(extent, divisor)
            if times is None or not is_never_negative(times) or not is_never_negative(divisor):
                continue
            high = algebra.make_index(times.to_expr())
            low = algebra.make_index(divisor.to_expr())
            return high, low, to_linear(high) * divisor + to_linear(low)
    return None


# A sum over a part of a range is a difference of sums from the start of the range.
#
# sum_{v < E} f(v + c) = sum_{v < c + E} f(v) - sum_{v < c} f(v)


def extend_range(algebra: nf.Algebra, term: nf.Term) -> nf.Poly | None:
    """A sum that starts later as a difference of two that start at 0; None for other terms."""
    if not term.bound or cond.is_infinite(term):
        return None
    places = find_read_places(term)
    for index in term.bound:
        start = _find_start(index, places)
        if start is None:
            continue
        extent = Polynomial.of(index.extent)
        found: list[nf.Term] = []
        for end, sign in ((start + extent, 1), (start, -1)):
            fresh = algebra.make_index(end.to_expr())
            place = to_linear(fresh) - start
            made = _substitute_term(algebra, term.without(index), {index: place}, fresh)
            found += [each.times(sign) for each in made]
        return tuple(found)
    return None


def _find_start(index: ir.Index, places: tuple[Polynomial, ...]) -> Polynomial | None:
    """The least offset c in the places index + c; None if it is not above 0 or not shown least."""
    least: Polynomial | None = None
    for place in places:
        if index not in nf.find_form_indices(place):
            continue
        offset = place - Polynomial.of(index)
        if split_steps(offset)[0]:
            return None
        if least is None or is_never_negative(least - offset):
            least = offset
        elif not is_never_negative(offset - least):
            return None
    if least is None or least == NOTHING or not is_never_negative(least):
        return None
    return least


# Rules that simplify the sums of a term, applied until none fits.
#
# sum_j [j = a] f(j)         = [0 <= a < J] f(a)
# sum_j [c <= j] f(j)        = sum_{j < J - c} f(j + c)
# sum_x f(x // D, x % D)     = sum_{h, d} f(h, d)              where D divides the extent of x
# sum_j f                    = J * f                           where j is not in f
# [not c] f                  = f - [c] f

_MOST_SPLIT = 5  # negations expanded in one term


def _substitute_term(algebra: nf.Algebra, term: nf.Term, new: nf.Env, *bound: ir.Index) -> nf.Poly:
    """The term with indices replaced, summed over further ones."""
    made = algebra.replace((term,), new)
    return tuple(replace(each, bound=(*each.bound, *bound)) for each in made)


def _assume_inside(algebra: nf.Algebra, term: nf.Term) -> nf.Poly | None:
    """The term, its exp simplified where the guards hold; None if that changes nothing."""
    if term.power is None or not term.guards:
        return None
    inner = cond.assume(term.power.terms, term.guards)
    if inner == term.power.terms:
        return None
    power = exponential(algebra, inner)
    return multiply(algebra, (replace(term, power=None),), power)


def _count_unused(algebra: nf.Algebra, term: nf.Term) -> nf.Poly | None:
    """The term with the extents of unused summed indices as factors; None without such."""
    idle = [index for index in term.bound if index not in term.inner]
    if not idle:
        return None
    found: nf.Poly = (replace(term, bound=tuple(i for i in term.bound if i not in idle)),)
    for index in idle:
        found = multiply(algebra, found, to_number(Polynomial.of(index.extent)))
    return found


def _substitute_summed(algebra: nf.Algebra, term: nf.Term) -> nf.Poly | None:
    """The term without a summed index that a guard equates with an index expression, or None."""
    for literal in term.guards:
        for index in term.bound:
            place = cond.solve(literal, index)
            if place is None:
                continue
            rest = replace(term.without(literal), bound=())
            last = Polynomial.of(index.extent) - UNIT
            inside: list[nf.Literal] = []
            for side in (place, last - place):
                cubes = decide(algebra, nf.Literal("least", side))
                if not cubes:
                    return ()
                inside += cubes[0]
            left = term.without(index).bound
            return cond.guard(
                (tuple(inside),), _substitute_term(algebra, rest, {index: place}, *left)
            )
    return None


def _shorten_range(algebra: nf.Algebra, term: nf.Term) -> nf.Poly | None:
    """The term with a shorter range of a summed index, by a guard on it alone; or None."""
    for literal, index in product(term.guards, term.bound):
        found = cond.read_least(literal).find_edge(index) if literal.kind == "least" else None
        if found is None or split_steps(found[1])[0]:
            continue
        extent, (is_lower, edge) = Polynomial.of(index.extent), found
        start = edge if is_lower else NOTHING
        left = extent - start if is_lower else edge + UNIT
        if not all(map(is_never_negative, (start, left, extent - start - left))):
            continue
        fresh = algebra.make_index(left.to_expr())
        place = to_linear(fresh) + start
        return _substitute_term(algebra, term.without(index, literal), {index: place}, fresh)
    return None


def _split_index(algebra: nf.Algebra, term: nf.Term) -> nf.Poly | None:
    """The term with a summed index x of x // D split into quotient and remainder; or None."""
    for index in term.bound:
        parts = split_quotient(algebra, index, find_forms(term))
        if parts is not None:
            high, low, place = parts
            return _substitute_term(algebra, term.without(index), {index: place}, high, low)
    return None


def _expand_negation(algebra: nf.Algebra, term: nf.Term) -> nf.Poly | None:
    """The term with a negated guard expanded, [not c] f = f - [c] f; None without one."""
    if sum(not each.positive for each in term.guards) > _MOST_SPLIT or cond.is_infinite(term):
        return None
    for literal in term.guards:
        if not literal.positive:
            rest = (term.without(literal),)
            return (*rest, *scale(cond.guard(((literal.negation,),), rest), -1))
    return None


def _substitute_free(algebra: nf.Algebra, term: nf.Term) -> nf.Poly | None:
    """The term with the value of a free index that a guard gives put in; None without one."""
    for literal in term.guards:
        if literal.kind != "zero" or not literal.positive:
            continue
        bare = term.without(literal)
        for index in sorted(literal.free, key=lambda i: (i.name[0] == "@", i.name), reverse=True):
            place = cond.solve(literal, index)
            if place is None or index not in bare.free:
                continue
            if all(
                isinstance(a, ir.Index)
                and a.name[0]
                == "@"  # an index of the result; the replaced one is none or a later one
                and (index.name[0] != "@" or a.name < index.name)
                for a in split_steps(place)[0]
            ):
                return cond.guard(((literal,),), algebra.replace((bare,), {index: place}))
    return None


def _expand_pair(algebra: nf.Algebra, term: nf.Term) -> nf.Poly | None:
    """[a] [c] f = [a] f + [c] f - f for guards of which one always holds; None without such."""
    if cond.is_infinite(term):
        return None
    for one, other in combinations(term.guards, 2):
        if cond.compare(one.negation, other.negation) == "excludes":
            rest = term.without(one, other)
            either = (replace(rest, guards=(*rest.guards, each)) for each in (one, other))
            return (*either, rest.times(-1))
    return None


_RULES: tuple[Callable[[nf.Algebra, nf.Term], nf.Poly | None], ...] = (
    _assume_inside,
    _substitute_summed,
    _substitute_free,
    _shorten_range,
    _split_index,
    extend_range,
    _count_unused,
    _expand_negation,
    _expand_pair,
)


# Substitution of indices in a sum of terms; the parts that change are simplified again.


def _replace_term(algebra: nf.Algebra, term: nf.Term, new: nf.Env) -> nf.Poly:
    new = {index: value for index, value in new.items() if index in term.free}
    if not new:
        return (term,)
    algebra.step()
    bound, new = _rename_bound(algebra, term.bound, new)
    guards = replace_cube(algebra, term.guards, new)
    if guards is None:
        return ()
    plain: list[nf.Factor] = []
    parts: list[nf.Poly] = []
    for factor in term.factors:
        if not any(index in new for index in factor.free):
            plain.append(factor)
        elif isinstance(factor.atom, nf.Read):
            plain.append(nf.Factor(_replace_places(factor.atom, new), factor.exponent))
        else:
            parts.append(_replace_factor(algebra, factor, new))
    power = term.power
    if power is not None and any(index in new for index in power.free):
        parts.append(exponential(algebra, algebra.replace(power.terms, new)))
        power = None
    body: nf.Poly = collect(algebra, nf.Term(term.coefficient, power=power), tuple(plain))
    for part in parts:
        body = multiply(algebra, body, part)
    return tuple(
        replace(made, bound=(*bound, *made.bound), guards=(*guards, *made.guards)) for made in body
    )


def _rename_bound(
    algebra: nf.Algebra, bound: nf.Indices, new: nf.Env
) -> tuple[nf.Indices, dict[ir.Index, Polynomial]]:
    """The bound indices and the replacements, renamed where a replacement contains one."""
    coming = {index for value in new.values() for index in nf.find_form_indices(value)}
    kept = []
    changed = dict(new)
    for index in bound:
        fresh = algebra.make_index(index.extent) if index in coming else index
        if fresh is not index:
            changed[index] = Polynomial.of(fresh)
        kept.append(fresh)
    return tuple(kept), changed


def replace_cube(algebra: nf.Algebra, cube: nf.Cube, new: nf.Env) -> nf.Cube | None:
    """The literals with indices replaced; None where they exclude each other."""
    found: nf.Cube = ()
    for literal in cube:
        is_new = any(index in new for index in literal.free)
        cubes = decide(algebra, replace_literal(algebra, literal, new)) if is_new else ((literal,),)
        united = cond.unite(found, cubes[0]) if cubes else None
        if united is None:
            return None
        found = united
    return found


def replace_literal(algebra: nf.Algebra, literal: nf.Literal, new: nf.Env) -> nf.Literal:
    """The literal with indices replaced."""
    subject = literal.subject
    if isinstance(subject, Polynomial):
        subject = substitute_indices(subject, new)
    elif isinstance(subject, nf.Read):
        subject = _replace_places(subject, new)
    else:
        subject = algebra.finish(algebra.replace(subject.terms, new))
    return replace(literal, subject=subject)


def _replace_places(read: nf.Read, new: nf.Env) -> nf.Read:
    return nf.Read(read.tensor, tuple(substitute_indices(place, new) for place in read.places))


def _replace_factor(algebra: nf.Algebra, factor: nf.Factor, new: nf.Env) -> nf.Poly:
    atom: nf.Atom = factor.atom
    match atom:
        case nf.Value(form):
            return power(algebra, to_number(substitute_indices(form, new)), factor.exponent)
        case nf.Base(normal):
            inner = algebra.finish(algebra.replace(normal.terms, new))
            if inner.terms and _is_like(inner.terms, normal.terms):
                return nf.single(nf.Base(inner), factor.exponent)
            return power(algebra, inner.terms, factor.exponent)
        case nf.Function(name, arguments):
            parts = tuple(algebra.replace(each.terms, new) for each in arguments)
            made = apply(algebra, name, parts)
        case nf.Fold(kind, bound, literals, body):
            kept_bound, changed = _rename_bound(algebra, bound, new)
            cube = replace_cube(algebra, literals, changed)
            if cube is None:
                raise nf.GivesUp("a largest entry of nothing")
            inner_poly = algebra.replace(body.terms, changed)
            made = fold(algebra, kind, kept_bound, inner_poly, (cube,))
        case nf.Symbol() | nf.Infinite() | nf.Read():
            return (nf.Term(factors=(factor,)),)
    return made if factor.exponent == 1 else power(algebra, made, factor.exponent)


def _is_like(one: nf.Poly, other: nf.Poly) -> bool:
    """Whether two sums have, term by term, equal numbers of indices, guards and factors."""

    def measure(poly: nf.Poly) -> list[tuple[int, int, int, bool]]:
        return [(len(t.bound), len(t.guards), len(t.factors), t.power is None) for t in poly]

    return measure(one) == measure(other)


def decide(algebra: nf.Algebra, literal: nf.Literal) -> cond.Cubes:
    """The literal as cubes: ALWAYS or NEVER where it is decided, else itself in canonical form."""
    subject = literal.subject
    if isinstance(subject, Polynomial):
        return cond.decide_linear(literal.kind, subject, literal.positive)
    if isinstance(subject, nf.Read):
        return ((literal,),)
    is_zero = not subject.terms
    if is_zero or cond.is_above(subject):
        holds = (literal.kind == "equal") is is_zero
        return cond.ALWAYS if holds is literal.positive else cond.NEVER
    rest = find_content(algebra, subject, any_sign=False)[1]  # the content drawn out is positive
    if literal.kind == "equal" and find_orientation(algebra, rest) < 0:
        rest = algebra.finish(scale(rest.terms, -1))
    return ((nf.Literal(literal.kind, rest, literal.positive),),)


class NormalAlgebra(nf.Algebra):
    """The operations on normal forms that call each other."""

    def tidy(self, term: nf.Term) -> nf.Poly:
        """The terms to which no rule applies any more."""
        todo, done = [term], []
        while todo:
            self.step()
            here = todo.pop()
            for rule in _RULES:
                found = rule(self, here)
                if found is not None:
                    todo += found
                    break
            else:
                done.append(here)
        return tuple(done)

    def replace(self, poly: nf.Poly, new: nf.Env) -> nf.Poly:
        """The terms with indices replaced."""
        return tuple(made for term in poly for made in _replace_term(self, term, new))
