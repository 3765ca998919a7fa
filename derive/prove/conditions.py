"""The signs of pieces, and conditions as cubes: sets of literals that hold together.

A condition holds where one of its cubes does; no two cubes of one condition hold together.

Laws:
- Inputs are finite numbers; sizes are at least 1.
- Sound, not complete: False means not shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from math import gcd, lcm

from derive.analysis import facts
from derive.analysis.affine import find_truth, is_never_empty, to_linear
from derive.analysis.facts import Sign, find_range, is_never_negative, is_positive
from derive.ir import functions
from derive.ir import nodes as ir
from derive.ir.polynomial import ONE, Polynomial, split_steps
from derive.prove import terms as nf


def find_sign(piece: nf.Atom | nf.Normal) -> Sign:
    """The sign of a piece for all inputs; UNKNOWN where none is shown."""
    if isinstance(piece, nf.Normal):  # not cached: equal texts may have tensors of other domains
        return facts.add_signs(map(find_term_sign, piece.terms))
    return _find_atom_sign(piece)


@lru_cache(maxsize=50000)
def _find_atom_sign(atom: nf.Atom) -> Sign:
    match atom:
        case nf.Symbol(expr):
            return facts.find_sign(expr)
        case nf.Read(tensor, _):
            return facts.find_sign(ir.Access(tensor, ()))
        case nf.Value(form):
            return facts.find_sign(form.to_expr())
        case nf.Base(inner):
            return find_sign(inner)
        case nf.Function("share", (inner,)):
            return min(find_sign(inner), Sign.NEVER_NEGATIVE)
        case nf.Function(name, arguments) if name in functions.FUNCTIONS:
            return facts.apply_sign(name, map(find_sign, arguments))
        case nf.Fold(kind, bound, literals, body):
            filled = is_filled(bound, literals)
            return facts.reduce_sign(kind, find_sign(body), is_filled=filled)
    return Sign.UNKNOWN


def find_term_sign(term: nf.Term) -> Sign:
    """The sign of a term, wherever it is finite."""
    if term.coefficient < 0:
        return Sign.UNKNOWN
    factors = (facts.raise_sign(find_sign(f.atom), f.exponent) for f in term.factors)
    is_there = term.coefficient > 0 and is_filled(term.bound, term.guards)
    return min((Sign.POSITIVE if is_there else Sign.NEVER_NEGATIVE, *factors))


def is_above(piece: nf.Atom | nf.Normal) -> bool:
    """Whether the piece is shown to be > 0 for all inputs."""
    return find_sign(piece) is Sign.POSITIVE


def is_nonnegative(piece: nf.Atom | nf.Normal) -> bool:
    """Whether the piece is shown to be >= 0, or nan, for all inputs."""
    return find_sign(piece) >= Sign.NEVER_NEGATIVE


def is_filled(bound: nf.Indices, literals: nf.Cube) -> bool:
    """Whether, for all free indices, the bound ones are shown to satisfy the literals somewhere."""
    if not all(is_positive(Polynomial.of(index.extent)) for index in bound):
        return False
    asked = [index for index in bound if any(index in each.free for each in literals)]
    relations = [
        (each.kind, each.subject, each.positive)
        for each in literals
        if isinstance(each.subject, Polynomial)
    ]
    if len(asked) > 1 or len(relations) < len(literals):
        return False
    return is_never_empty(asked[0] if asked else None, relations)


def guard(cubes: Cubes, poly: nf.Poly) -> nf.Poly:
    """The terms where a cube holds, else 0; no two of the cubes hold together."""
    united = ((term, unite(term.guards, cube)) for cube in cubes for term in poly)
    return tuple(replace(term, guards=guards) for term, guards in united if guards is not None)


def is_size(factor: nf.Factor) -> bool:
    """Whether the factor is a power of a positive symbol."""
    return isinstance(factor.atom, nf.Symbol) and is_above(factor.atom)


# Literals in one form, and the implications between them.
#
# Laws:
# - A condition and its negation share one subject: of `a >= 0` and `-a - 1 >= 0` the one whose
#   constant is not negative.
# - Cubes of one condition exclude each other.

Cubes = tuple[nf.Cube, ...]  # one of them holds
ALWAYS: Cubes = ((),)
NEVER: Cubes = ()
_MOST_CUBES = 12


def decide_linear(kind: str, subject: Polynomial, positive: bool = True) -> Cubes:
    """`form >= 0` or `form = 0` as one canonical literal, or as ALWAYS or NEVER."""
    short = _divide_common(kind, subject)
    truth = find_truth(kind, short) if short is not None else False
    if truth is not None or short is None:
        return ALWAYS if bool(truth) is positive else NEVER
    subject = short
    low, high = find_range(subject)
    if high is not None and not high.terms:  # 0 at most
        if kind == "least":
            return decide_linear("zero", subject, positive)
        if low == -ONE:
            subject, positive = subject + ONE, not positive
    if kind == "least" and _is_mirrored(split_steps(subject)[1]):
        subject = -ONE - subject
        positive = not positive
    return ((nf.Literal(kind, subject, positive),),)


def _divide_common(kind: str, subject: Polynomial) -> Polynomial | None:
    """The subject over its common integer factor; None for a `zero` that no integers fulfil."""
    scale = lcm(*(number.denominator for number in subject.terms.values()))
    subject = subject * Polynomial.of(scale)
    common = gcd(*(int(number) for monomial, number in subject.terms.items() if monomial))
    if common > 1:
        number = subject.terms.get((), Fraction(0)) / common
        if kind == "zero" and number.denominator != 1:
            return None
        subject = subject * Polynomial.of(Fraction(1, common)) - Polynomial.of(number % 1)
    return subject


def _is_mirrored(constant: Polynomial) -> bool:
    """Whether -1 - c, not c, is the canonical one of the two: a negative constant or lead of c."""
    if constant.constant is not None:
        return constant.constant < 0
    lead = max((m for m in constant.terms if m), key=repr)
    return constant.terms[lead] < 0


def split_abs(kind: str, subject: Polynomial) -> Cubes | None:
    """`n - |a| >= 0` as two conditions, `|a| - n >= 0` as a negation; None without abs."""
    for atom, each in split_steps(subject)[0].items():
        match atom:
            case ir.Call("abs", (inside,)) if kind == "least" and each.constant is not None:
                rest = subject - Polynomial.of(atom) * each
                slope = to_linear(inside) * each
                if each.constant < 0:
                    parts = [rest + slope, rest - slope]
                    return conjoin(decide_linear(kind, part) for part in parts)
                negated = -ONE - subject
                inner = split_abs(kind, negated)
                return deny(inner) if inner is not None else None
    return None


def conjoin(parts: Iterable[Cubes]) -> Cubes:
    """The conjunction of conditions, each given as cubes, as cubes."""
    found = ALWAYS
    for part in parts:
        found = tuple(
            made for one in found for other in part if (made := unite(one, other)) is not None
        )
    return found


def deny(cubes: Cubes) -> Cubes:
    """The negation of a condition that is given as cubes, as cubes."""
    found = ALWAYS
    for cube in cubes:
        negated = tuple((*cube[:k], literal.negation) for k, literal in enumerate(cube))
        found = conjoin([found, negated])
    return found


def unite(one: nf.Cube, other: nf.Cube) -> nf.Cube | None:
    """The cube of all literals of both, each once; None where they exclude each other."""
    found = list(one)
    for literal in other:
        relation = _add_literal(found, literal)
        if relation is None:
            return None
        found = relation
    return tuple(found)


def _add_literal(known: list[nf.Literal], new: nf.Literal) -> list[nf.Literal] | None:
    """The literals with one more; None where they contradict it."""
    for old in known:
        relation = compare(old, new)
        if relation == "excludes":
            return None
        if relation in {"same", "implies"}:
            return known
        if relation == "equals":
            rest = [each for each in known if each is not old]
            cubes = decide_linear("zero", read_least(old))
            united = unite(tuple(rest), cubes[0]) if cubes else None
            return None if united is None else [*united]
    kept = [old for old in known if compare(new, old) != "implies"]
    return [*kept, new]


def read_least(literal: nf.Literal) -> Polynomial:
    """The linear form that is >= 0 where a `least` literal holds."""
    assert isinstance(literal.subject, Polynomial)
    return literal.subject if literal.positive else -ONE - literal.subject


def compare(known: nf.Literal, asked: nf.Literal) -> str:
    """The relation of a known literal to another: same, excludes, implies, equals, or ""."""
    one, other = known.subject, asked.subject
    if not isinstance(one, Polynomial) or not isinstance(other, Polynomial):
        is_alike = not isinstance(one, Polynomial) and not isinstance(other, Polynomial)
        if not is_alike or known.kind != asked.kind or _write_subject(one) != _write_subject(other):
            return ""
        return "same" if known.positive == asked.positive else "excludes"
    is_zero = known.kind == "zero"
    if is_zero and asked.kind == "zero" and one in (other, -other):
        return "same" if known.positive == asked.positive else "excludes"
    if (is_zero and not known.positive) or (not is_zero and asked.kind == "zero"):
        return ""
    facts = (one, -one) if is_zero else (read_least(known),)  # linear forms that are >= 0
    if asked.kind == "zero":
        sides = (other, -other)
        if not any(_is_implied(side - ONE, facts) for side in sides):
            return ""
        return "excludes" if asked.positive else "implies"
    wanted = read_least(asked)
    if _is_implied(wanted, facts):
        return "same" if not is_zero and wanted == facts[0] else "implies"
    negated = -wanted
    if not is_zero and negated == facts[0]:
        return "equals"
    return "excludes" if _is_implied(negated - ONE, facts) else ""


def _is_implied(value: Polynomial, facts: tuple[Polynomial, ...]) -> bool:
    """Whether the value is >= 0 because it is no less than one of the facts."""
    gaps = (value - fact for fact in facts)
    return any(not split_steps(gap)[0] and is_never_negative(gap) for gap in gaps)


@lru_cache(maxsize=20000)
def _write_subject(subject: Polynomial | nf.Read | nf.Normal) -> str:
    assert not isinstance(subject, Polynomial)
    return nf.Labeller(lambda: None).write_key(subject, {})


def solve(literal: nf.Literal, index: ir.Index) -> Polynomial | None:
    """The value of an index where `form = 0` holds; None if its slope is not 1 or -1."""
    is_equation = literal.kind == "zero" and literal.positive
    if not is_equation or not isinstance(literal.subject, Polynomial):
        return None
    found = literal.subject.find_edge(index)
    return found and found[1]


def check_count(cubes: Cubes) -> Cubes:
    """The cubes; GivesUp where there are too many."""
    if len(cubes) > _MOST_CUBES:
        raise nf.GivesUp("a condition of too many cases")
    return cubes


def all_of(*parts: Cubes) -> Cubes:
    """The conjunction of conditions as cubes; GivesUp where there are too many."""
    return check_count(conjoin(parts))


def none_of(cubes: Cubes) -> Cubes:
    """The negation of a condition as cubes; GivesUp where there are too many."""
    return check_count(deny(cubes))


# Cases: a function applied under each truth value of the guards of its argument.
#
# f(where(c, a, b)) = [c] f(a) + [not c] f(b)

_MOST_CASES = 4  # conditions that are distinguished; with more they stay inside


def assume(poly: nf.Poly, cube: nf.Cube) -> nf.Poly:
    """The terms simplified under the assumption that the literals hold."""
    if not cube:
        return poly
    found = []
    for term in poly:
        relations = [_decide_literal(cube, literal) for literal in term.guards]
        if False in relations:
            continue
        pairs = zip(term.guards, relations, strict=True)
        left = tuple(literal for literal, relation in pairs if relation is None)
        found.append(term if len(left) == len(relations) else replace(term, guards=left))
    return tuple(found)


def _decide_literal(cube: nf.Cube, literal: nf.Literal) -> bool | None:
    """The truth of a literal where all of a cube holds; None if unknown."""
    found = {"same": True, "implies": True, "excludes": False}
    relations = (compare(known, literal) for known in cube)
    return next((found[each] for each in relations if each in found), None)


def by_cases(poly: nf.Poly, act: Callable[[nf.Poly], nf.Poly | None]) -> nf.Poly | None:
    """`act` applied for each truth value of the guards; None where it gives None for one."""
    literals = _find_literals(poly)
    if not 0 < len(literals) <= _MOST_CASES:
        return act(poly)
    literal = literals[0]
    found: list[nf.Term] = []
    for each in (literal, literal.negation):
        part = by_cases(assume(poly, (each,)), act)
        if part is None:
            return None
        found += guard(((each,),), part)
    return tuple(found)


def _find_literals(poly: nf.Poly) -> list[nf.Literal]:
    """The guards that are free of summed indices, each once."""
    found: list[nf.Literal] = []
    for term in poly:
        for literal in term.guards:
            if any(index in literal.free for index in term.bound):
                continue
            if not any(compare(known, literal) in {"same", "excludes"} for known in found):
                found.append(literal)
    return found


def is_infinite(term: nf.Term) -> bool:
    """Whether the term is infinite where its guards hold."""
    return any(isinstance(factor.atom, nf.Infinite) for factor in term.factors)


def refuse_infinite(poly: nf.Poly) -> None:
    """Raise GivesUp where a term is infinite: the caller has no rule for it."""
    if any(map(is_infinite, poly)):
        raise nf.GivesUp("infinity as an argument")


def find_regions(poly: nf.Poly) -> tuple[nf.Poly, Cubes]:
    """The finite terms, and the condition that no -oo term is there; GivesUp for a +oo."""
    regions = ALWAYS
    for term in filter(is_infinite, poly):
        others = [f for f in term.factors if not isinstance(f.atom, nf.Infinite)]
        plain = not term.bound and term.power is None and len(term.factors) - len(others) == 1
        if not plain or term.coefficient > 0:
            raise nf.GivesUp("infinity that is not plain")
        if not all(is_above(f.atom) for f in others):
            raise nf.GivesUp("infinity times what may be 0")
        regions = all_of(regions, deny((term.guards,)))
    return tuple(term for term in poly if not is_infinite(term)), regions
