"""Edits of layout: heads split or merged without transposing, halves for pairs, repeats."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from derive.checker.edits.kind import kind
from derive.checker.edits.sites import Change, World, exchange_nodes
from derive.ir.nodes import Access, Add, Call, Equation, Expr, Index, Mul, Number
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_free, rewrite_bottom_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Turn = Callable[[Expr, Expr], Expr]

TWO = Number(Fraction(2))


@kind(
    formula="x[N, 2*P]; index p < P\n"
    "a[n, p] = x[n, 2*p]; b[n, p] = x[n, 2*p + 1]; y[n, p] = a[n, p] * b[n, p]",
    code="a, b = x.chunk(2, -1)\nreturn a * b",
    words="interleaved, not halved",
    cost=1.2,
)
def find_halves(world: World, number: int) -> Iterator[Change]:
    """Pairs of neighbours for pairs of halves, in all places of the formula at once."""
    if number:
        return
    for turn, words in (
        (_to_half, "INTERLEAVED, not halved"),
        (_to_pair, "HALVED, not interleaved"),
    ):
        made = []
        for equation in world.system.equations:
            value = rewrite_bottom_up(equation.value, partial(_turn_places, turn))
            target = _turn_places(turn, equation.target)
            assert isinstance(target, Access)
            made.append(Equation(target, value))
        if tuple(made) != world.system.equations:
            yield Change(world.with_equations(tuple(made)), words, 0)


@kind(
    formula="x[S, 2*D]; c[S, D]; index m < 2*D\n"
    "r[t, m] = where(m % 2 == 0, -x[t, 2*(m // 2) + 1], x[t, 2*(m // 2)])\n"
    "y[t, m] = x[t, m] * c[t, m // 2] + r[t, m]",
    code="a, b = x.chunk(2, -1)\nreturn torch.cat((a * c - b, b * c + a), -1)",
    words="interleaved, not halved",
    cost=1.25,
)
def find_turned_halves(world: World, number: int) -> Iterator[Change]:
    """The same where conditions say what happens to each half, in all equations at once."""
    if number:
        return
    targets = (e.target for e in world.system.equations)
    letters = [place for t in targets for place in t.places if isinstance(place, Index)]
    for extent in dict.fromkeys(index.extent for index in letters if not world.extent(index) % 2):
        for words, there, back in (
            ("INTERLEAVED, not halved", _join, _part),
            ("HALVED, not interleaved", _part, _join),
        ):
            made = [_turn(equation, extent, there, back) for equation in world.system.equations]
            yield Change(world.with_equations(tuple(made)), words, 0)


def _turn(equation: Equation, extent: Expr, there: Turn, back: Turn) -> Equation:
    """The equation in the other layout of all that has this extent."""
    value = equation.value
    for index in equation.target.places:
        if isinstance(index, Index) and index.extent == extent:
            value = exchange_nodes(value, {index: there(index, extent)})
            value = rewrite_bottom_up(value, partial(_read_back, index, back))
    return Equation(equation.target, value)


def _halve(extent: Expr) -> Expr:
    return Call("floordiv", (extent, TWO))


def _join(place: Expr, extent: Expr) -> Expr:
    """Where pairs of neighbours have what lies here in halves."""
    half = _halve(extent)
    return Add((Mul((TWO, Call("mod", (place, half)))), Call("floordiv", (place, half))))


def _part(place: Expr, extent: Expr) -> Expr:
    """Where halves have what lies here in pairs of neighbours."""
    odd = Mul((_halve(extent), Call("mod", (place, TWO))))
    return Add((Call("floordiv", (place, TWO)), odd))


def _read_back(index: Index, back: Turn, expr: Expr) -> Expr:
    """The access in the code's layout, where a place runs over the same extent."""
    if not isinstance(expr, Access):
        return expr
    whole = Polynomial.of(index.extent)
    pairs = zip(expr.places, expr.tensor.shape, strict=True)
    places = (
        back(place, extent)
        if index in find_free(place) and Polynomial.of(extent) == whole
        else place
        for place, extent in pairs
    )
    return Access(expr.tensor, tuple(places))


def _turn_places(turn: Callable[[Expr, Expr], Expr | None], expr: Expr) -> Expr:
    if not isinstance(expr, Access):
        return expr
    pairs = zip(expr.places, expr.tensor.shape, strict=True)
    return Access(expr.tensor, tuple(turn(place, extent) or place for place, extent in pairs))


def _to_half(place: Expr, extent: Expr) -> Expr | None:
    """P for 2*p, and p + P for 2*p + 1."""
    match place:
        case Mul((Number(value), Index() as index)) if value == 2:
            return index
        case Add((Mul((Number(value), Index() as index)), Number(one))) if value == 2 and one == 1:
            return Add((index, index.extent))
    return None


def _to_pair(place: Expr, extent: Expr) -> Expr | None:
    """2*p + 1 for p + P; a plain p is 2*p where its tensor is twice as long there."""
    match place:
        case Add((Index() as index, half)) if index.extent == half:
            return Add((Mul((TWO, index)), Number(Fraction(1))))
        case Index(_, half) if Polynomial.of(extent) == Polynomial.of(Mul((TWO, half))):
            return Mul((TWO, place))
    return None
