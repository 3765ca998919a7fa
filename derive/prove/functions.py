"""Elementwise functions brought to a common base, and reductions that are no sums.

sigmoid(x) = 1/(1 + exp(-x))      tanh(x) = 1 - 2/(1 + exp(2*x))     silu(x) = x * sigmoid(x)
softplus(x) = log(1 + exp(x))     relu(x) = (x + |x|)/2              gelu by erf
max(a, b) = (a + b + |a - b|)/2   min(a, b) = (a + b - |a - b|)/2
max_j (c*a_j + b) = c * max_j a_j + b where c > 0
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from derive.ir.nodes import Index
from derive.prove.cases import (
    assume,
    by_cases,
    find_regions,
    is_endless,
    refuse_endless,
)
from derive.prove.literals import Cubes, check_count, deny, join, to_cubes
from derive.prove.powers import find_content, find_sign
from derive.prove.signs import is_filled, is_nonnegative_atom, is_total
from derive.prove.terms import (
    ONE,
    Algebra,
    Base,
    Factor,
    Fold,
    Function,
    GivesUp,
    Literal,
    Normal,
    Poly,
    Term,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_HALF = Fraction(1, 2)
_ODD = {"sin", "erf", "sign"}
_EVEN = {"cos", "abs"}


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
        arguments = _drop_endless(arguments, negative=name == "max")
    for argument in arguments:
        refuse_endless(argument)
    opened = _OPENED.get(name)
    if opened is not None:
        return opened(algebra, arguments)
    if name in {"max", "min"}:
        return _choose(algebra, arguments, Fraction(1 if name == "max" else -1))
    if name == "clip":
        value, low, high = arguments
        return apply(algebra, "min", (apply(algebra, "max", (value, low)), high))
    if len(arguments) == 1:
        found = by_cases(algebra, arguments[0], lambda p: _apply_plainly(algebra, name, p))
        assert found is not None
        return found
    return _atom(Function(name, tuple(algebra.finish(argument) for argument in arguments)))


def _atom(atom: Function | Fold) -> Poly:
    return (Term(factors=(Factor(atom, Fraction(1)),)),)


def _apply_plainly(algebra: Algebra, name: str, poly: Poly) -> Poly:
    inner = algebra.finish(poly)
    if not inner.terms and name in {"sin", "erf", "abs", "sign", "floor"}:
        return ()
    if name == "abs":
        return _find_size(algebra, inner)
    sign = 1
    if name in _ODD | _EVEN and find_sign(algebra, inner) < 0:
        inner = algebra.finish(scale(inner.terms, -1))
        sign = -1 if name in _ODD else 1
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


def _drop_endless(arguments: tuple[Poly, ...], *, negative: bool) -> tuple[Poly, ...]:
    """The arguments without a plain -oo of a max, or oo of a min."""
    kept = []
    for argument in arguments:
        plain = len(argument) == 1 and is_endless(argument[0]) and not argument[0].guards
        bare = plain and len(argument[0].factors) == 1 and not argument[0].numeric
        if not bare or (argument[0].coefficient < 0) is not negative or not argument[0].coefficient:
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


def _sigmoid(algebra: Algebra, arguments: tuple[Poly, ...]) -> Poly:
    exp = algebra.exponential(scale(arguments[0], -1))
    return algebra.power((*ONE, *exp), Fraction(-1))


def _tanh(algebra: Algebra, arguments: tuple[Poly, ...]) -> Poly:
    exp = algebra.exponential(scale(arguments[0], 2))
    return (*ONE, *scale(algebra.power((*ONE, *exp), Fraction(-1)), -2))


def _silu(algebra: Algebra, arguments: tuple[Poly, ...]) -> Poly:
    return algebra.multiply(arguments[0], _sigmoid(algebra, arguments))


def _softplus(algebra: Algebra, arguments: tuple[Poly, ...]) -> Poly:
    return algebra.logarithm((*ONE, *algebra.exponential(arguments[0])))


def _relu(algebra: Algebra, arguments: tuple[Poly, ...]) -> Poly:
    (value,) = arguments
    return scale((*value, *apply(algebra, "abs", (value,))), _HALF)


def _leaky_relu(algebra: Algebra, arguments: tuple[Poly, ...]) -> Poly:
    value = arguments[0]
    slope = arguments[1] if len(arguments) > 1 else number(Fraction(1, 100))
    positive = _relu(algebra, (value,))
    negative = (*value, *scale(positive, -1))
    return (*positive, *algebra.multiply(slope, negative))


def _gelu(algebra: Algebra, arguments: tuple[Poly, ...]) -> Poly:
    (value,) = arguments
    root = algebra.power(number(2), -_HALF)
    inner = apply(algebra, "erf", (algebra.multiply(value, root),))
    return scale(algebra.multiply(value, (*ONE, *inner)), _HALF)


def _share(algebra: Algebra, arguments: tuple[Poly, ...]) -> Poly:
    """1 / x, and 0 where x is 0, of what is never negative."""

    def act(case: Poly) -> Poly:
        inner = algebra.finish(case)
        if not inner.terms:
            return ()
        if algebra.is_positive(inner):
            return algebra.power(inner.terms, Fraction(-1))
        content, rest = find_content(algebra, inner, whole=False)
        if content is not None and not is_total(content):
            content, rest = None, inner
        found = _atom(Function("share", (rest,)))
        if content is None:
            return found
        return algebra.multiply(algebra.power((content,), Fraction(-1)), found)

    found = by_cases(algebra, arguments[0], act)
    assert found is not None
    return found


def _elu(algebra: Algebra, arguments: tuple[Poly, ...]) -> Poly:
    value = arguments[0]
    slope = arguments[1] if len(arguments) > 1 else ONE
    above = to_cubes(algebra.decide(Literal("above", algebra.finish(value))))
    grown = algebra.multiply(slope, (*algebra.exponential(value), *number(-1)))
    return (*algebra.guard(above, value), *algebra.guard(deny(above), grown))


_OPENED: dict[str, Callable[[Algebra, tuple[Poly, ...]], Poly]] = {
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "silu": _silu,
    "softplus": _softplus,
    "relu": _relu,
    "leaky_relu": _leaky_relu,
    "gelu": _gelu,
    "elu": _elu,
    "share": _share,
}


def fold(algebra: Algebra, kind: str, bound: tuple[Index, ...], poly: Poly, cubes: Cubes) -> Poly:
    """A reduction that is no sum over the entries where a cube holds."""
    if kind == "min":
        return scale(fold(algebra, "max", bound, scale(poly, -1), cubes), -1)
    if kind in {"max", "argmax"}:
        finite, regions, rough = find_regions(poly, negative=True)
        if rough:
            raise GivesUp("-oo plus what may be infinite")
        cubes = check_count(join([cubes, regions]))
        return _fold_order(algebra, kind, bound, finite, cubes)
    refuse_endless(poly)
    if len(cubes) != 1:
        raise GivesUp("a product over several cases")
    body = algebra.finish(assume(poly, cubes[0]))
    return _atom(Fold(kind, bound, cubes[0], body))


def _fold_order(
    algebra: Algebra, kind: str, bound: tuple[Index, ...], poly: Poly, cubes: Cubes
) -> Poly:
    if len(cubes) != 1:
        raise GivesUp("a largest entry over several cases, or over none")
    if kind == "argmax" and len(bound) != 1:
        raise GivesUp("a position of several letters")
    (cube,) = cubes
    body = algebra.finish(assume(poly, cube))
    outer = [t for t in body.terms if not any(i in t.free for i in bound) and is_total(t)]
    inner = algebra.finish(tuple(term for term in body.terms if term not in outer))
    if not inner.terms and is_filled(bound, cube) and kind == "max":
        return tuple(outer)
    content, rest = find_content(algebra, inner, whole=False)
    if content is not None and not _is_size(content, bound):
        content, rest = None, inner
    asked = {index for each in cube for index in each.free} | rest.free
    kept = tuple(i for i in bound if i in asked or not is_filled((i,), ()))
    found = _atom(Fold(kind, kept, cube, rest))
    if kind == "argmax":
        return found
    drawn = algebra.multiply((content,), found) if content else found
    return (*drawn, *outer)


def _is_size(content: Term, bound: tuple[Index, ...]) -> bool:
    """Is it positive and free of the bound letters?"""
    return not content.free.intersection(bound)
