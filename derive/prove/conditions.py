"""Conditions as cubes of literals, cubes that exclude each other."""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING

from derive.analysis.affine import to_affine
from derive.analysis.affine_form import Affine
from derive.analysis.ranges import is_integer
from derive.ir.nodes import (
    Access,
    And,
    Compare,
    Expr,
    Not,
    Or,
    Truth,
    Where,
)
from derive.ir.polynomial import Polynomial
from derive.prove.cases import refuse_endless
from derive.prove.literals import (
    ALWAYS,
    NEVER,
    Cubes,
    check_count,
    decide_affine,
    deny,
    join,
    split_abs,
    to_cubes,
)
from derive.prove.powers import find_content, find_sign
from derive.prove.signs import is_total
from derive.prove.terms import Algebra, Cube, GivesUp, Literal, Normal, Read

if TYPE_CHECKING:
    from collections.abc import Callable

    from derive.prove.terms import Poly

_MINUS_ONE = Polynomial.of(-1)
_CONTRARY = {"<": ">=", ">": "<=", "!=": "=="}


def decide_normal(algebra: Algebra, literal: Literal) -> bool | Cube:
    """A comparison of a normal form with 0 in its one form, or its truth."""
    subject = literal.subject
    assert isinstance(subject, Normal)
    if not subject.terms:
        return (literal.kind != "above") is literal.positive
    if is_total(subject):
        if algebra.is_positive(subject):
            return (literal.kind != "equal") is literal.positive
        if literal.kind == "from":  # x >= 0 is the contrary of -x > 0
            away = algebra.finish(tuple(term.times(Fraction(-1)) for term in subject.terms))
            return decide_normal(algebra, Literal("above", away, not literal.positive))
    content, rest = find_content(algebra, subject, whole=False)
    del content  # it is positive
    if literal.kind == "equal" and find_sign(algebra, rest) < 0:
        rest = algebra.finish(tuple(term.times(Fraction(-1)) for term in rest.terms))
    return (Literal(literal.kind, rest, literal.positive),)


def to_condition(
    algebra: Algebra,
    expr: Expr,
    to_index: Callable[[Expr], Affine | None],
    to_poly: Callable[[Expr], Poly],
    to_read: Callable[[Access], Read],
) -> Cubes:
    """The cubes of a condition."""

    def visit(here: Expr) -> Cubes:
        match here:
            case Truth(value):
                return ALWAYS if value else NEVER
            case And(parts):
                return check_count(join([visit(part) for part in parts]))
            case Or(parts):
                return check_count(deny(join([deny(visit(part)) for part in parts])))
            case Not(part):
                return check_count(deny(visit(part)))
            case Access():
                return ((Literal("read", to_read(here)),),)
            case Where(condition, then, other):
                asked = visit(condition)
                return check_count(
                    (*join([asked, visit(then)]), *join([deny(asked), visit(other)]))
                )
            case Compare(relation, left, right):
                one, two = to_index(left), to_index(right)
                if one is not None and two is not None:
                    return _compare_indices(relation, one, two)
                return _compare_values(algebra, relation, to_poly(left), to_poly(right))
        raise GivesUp("a condition of an unknown kind")

    return visit(expr)


def _compare_indices(relation: str, left: Affine, right: Affine) -> Cubes:
    match relation:
        case "<=":
            return _find_least(right - left)
        case ">=":
            return _find_least(left - right)
        case "<":
            return _find_least(right - left, strict=True)
        case ">":
            return _find_least(left - right, strict=True)
        case "==":
            return to_cubes(decide_affine("zero", left - right))
        case _:
            return deny(to_cubes(decide_affine("zero", left - right)))


def _find_least(subject: Affine, *, strict: bool = False) -> Cubes:
    """Subject >= 0, or subject > 0, which is subject - 1 >= 0 once it is whole."""
    parts = (*subject.terms.values(), subject.constant)
    scale = lcm(1, *(n.denominator for part in parts for n in part.terms.values()))
    subject = subject.scale(Polynomial.of(scale))
    if strict:
        subject = subject + Affine({}, _MINUS_ONE)
    opened = split_abs("least", subject)
    return to_cubes(decide_affine("least", subject)) if opened is None else opened


def _compare_values(algebra: Algebra, relation: str, left: Poly, right: Poly) -> Cubes:
    refuse_endless((*left, *right))
    if relation in {"<", "<="}:
        left, right = right, left
        relation = {"<": ">", "<=": ">="}[relation]
    gap = algebra.finish((*left, *(term.times(Fraction(-1)) for term in right)))
    kind = {">": "above", ">=": "from", "==": "equal", "!=": "equal"}[relation]
    found = to_cubes(algebra.decide(Literal(kind, gap)))
    return deny(found) if relation == "!=" else found


def find_index(expr: Expr, env: Callable[[Expr], Expr | None]) -> Affine | None:
    """The affine of an integer expression over indices and sizes; None of any other."""
    if not is_integer(Polynomial.of(expr)):
        return None
    put = env(expr)
    return None if put is None else to_affine(put)
