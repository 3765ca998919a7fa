"""Edits of places: flipped, moved, halves for pairs of neighbours."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

from derive.checker.edits.indices import find_access_sites
from derive.checker.edits.sites import Change, Site, World, exchange_nodes, kind, show
from derive.ir.nodes import (
    MINUS_ONE,
    ONE,
    TRUE,
    ZERO,
    Access,
    Add,
    And,
    Call,
    Compare,
    Equation,
    Expr,
    Index,
    Mul,
    Number,
    Reduce,
    System,
    Where,
)
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_free, rewrite_bottom_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Turn = Callable[[Expr, Expr], Expr]


_STEPS = (1, -1, 2, -2)


def put_place(access: Access, at: int, place: Expr) -> Access:
    """The access at another place."""
    return Access(access.tensor, (*access.places[:at], place, *access.places[at + 1 :]))


@kind(
    formula="x[B, T]; w[K]; index t < T; y[b, t] = sum[k, k <= t](x[b, t - k] * w[k])",
    code="x = F.pad(x, (0, w.shape[0] - 1))\nreturn F.conv1d(x[:, None], w.view(1, 1, -1))[:, 0]",
    words="read x[b,t - k], not x[b,t + k]",
    cost=1.3,
)
def find_moved_places(world: World, number: int) -> Iterator[Change]:
    """A position on the other side, off by one, or around the end; outside is nothing."""
    for site, access in find_access_sites(world, number):
        for at, place in enumerate(access.places):
            extent = access.tensor.shape[at]
            for new, extra in _find_moves(place, extent):
                other = put_place(access, at, new)
                words = f"READ {show(access)}, not {show(other)}"
                yield world.change(site, other, words, extra)
                moved = _move_conditions(world, site, other)
                yield Change(moved, words, number, extra + 0.005)
                inside = And((Compare("<=", ZERO, new), Compare("<", new, extent)))
                guarded = Where(inside, other, ZERO)
                yield world.change(site, guarded, words, extra + 0.01)
                free = _drop_conditions(site, guarded)
                if free is not None:
                    system = world.with_value(number, free)
                    yield Change(system, words, number, extra + 0.02)


def _find_moves(place: Expr, extent: Expr) -> Iterator[tuple[Expr, float]]:
    """Other positions, and how much less likely each is."""
    indices = find_free(place)
    if not indices:
        return
    if not isinstance(place, Index):
        for index in indices:
            if len(indices) > 1:
                yield tidy(exchange_nodes(place, {index: Mul((MINUS_ONE, index))})), 0.0
                yield tidy(exchange_nodes(place, {index: Mul((Number(Fraction(2)), index))})), 0.2
    for step in _STEPS:
        extra = 0.1 if not isinstance(place, Index) else 0.4
        moved = tidy(Add((place, Number(Fraction(step)))))
        yield moved, extra + 0.1 * (abs(step) > 1)
        yield Call("mod", (moved, extent)), extra + 0.15
    if not isinstance(place, Index):
        yield Call("mod", (place, extent)), 0.1
        yield Call("clip", (place, ZERO, Add((extent, MINUS_ONE)))), 0.1


def tidy(place: Expr) -> Expr:
    """The position multiplied out, its indices in the order they had."""
    order = find_free(place)
    found = Polynomial.of(place).to_expr()
    if not isinstance(found, Add):
        return found

    def rank(term: Expr) -> int:
        return min((order.index(index) for index in find_free(term)), default=len(order))

    return Add(tuple(sorted(found.terms, key=rank)))


def _move_conditions(world: World, site: Site, other: Access) -> System:
    """The formula with the same position moved in the conditions of its equation too."""
    old = site.node
    assert isinstance(old, Access)
    pairs: dict[Expr, Expr] = {
        one: two for one, two in zip(old.places, other.places, strict=True) if one is not two
    }

    def act(expr: Expr) -> Expr:
        if isinstance(expr, Compare):
            return exchange_nodes(expr, pairs)
        return other if expr is old else expr

    old_value = world.system.equations[site.number].value
    return world.with_value(site.number, rewrite_bottom_up(old_value, act))


def _drop_conditions(site: Site, node: Expr) -> Expr | None:
    """The equation with another node, and without the conditions of the sums around it."""
    whole = site.put(node)
    found = False

    def act(expr: Expr) -> Expr:
        nonlocal found
        match expr:
            case Reduce(kind_, bound, condition, body) if condition != TRUE:
                found = True
                return Reduce(kind_, bound, TRUE, body)
            case Mul(factors):
                kept = tuple(f for f in factors if not _is_bracket(f, node))
                found |= len(kept) < len(factors)
                return Mul(kept) if len(kept) > 1 else kept[0] if kept else ONE
        return expr

    made = rewrite_bottom_up(whole, act)
    return made if found else None


def _is_bracket(factor: Expr, kept: Expr) -> bool:
    match factor:
        case Where(_, then, other):
            return factor is not kept and then == ONE and other == ZERO
    return False


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
    indices = [place for t in targets for place in t.places if isinstance(place, Index)]
    for extent in dict.fromkeys(index.extent for index in indices if not world.extent(index) % 2):
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
