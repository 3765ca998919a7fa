"""Edits of layout: heads split or merged without transposing, halves for pairs, repeats."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import combinations, permutations
from typing import TYPE_CHECKING

from derive.checker.edits.indices import find_access_sites
from derive.checker.edits.kind import kind
from derive.checker.edits.sites import Change, World, exchange_nodes, show
from derive.ir.nodes import Access, Add, Call, Equation, Expr, Index, Mul, Number, Tensor
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_accesses, find_free, rewrite_bottom_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Turn = Callable[[Expr, Expr], Expr]

TWO = Number(Fraction(2))


@kind(
    formula="x[B, H, N, D]; y[b, n, h*D + d] = x[b, h, n, d]",
    code="B, H, N, D = x.shape\nreturn x.reshape(B, N, H * D)",
    words="transpose heads before merging",
    cost=1.3,
)
def find_reinterpreted(world: World, number: int) -> Iterator[Change]:
    """Elements in the memory order of some letters, read as if in another."""
    equation = world.system.equations[number]
    merged = not all(isinstance(place, Index) for place in equation.target.places)
    letters = tuple(dict.fromkeys(i for p in equation.target.places for i in find_free(p)))
    for order, new in find_orders(world, letters):
        value = replace_indices(equation.value, new)
        if value is None:
            continue
        made = Equation(equation.target, value)
        yield Change(world.with_equation(number, made), _say(order, letters, merged), number)
    for site, access in find_access_sites(world, number):
        mine = tuple(place for place in access.places if isinstance(place, Index))
        if access.tensor in world.inputs and len(mine) == len(access.places):
            continue
        for order, new in find_orders(world, mine):
            places = tuple(new.get(place, place) for place in access.places)
            words = _say(order, mine, True)
            yield world.change(site, Access(access.tensor, places), words, 0.1)


@kind(
    formula="x[B, N, H*D]; size H = 2; index h < H; index d < D\n"
    "y[b, h, i, j] = sum[d](x[b, i, h*D + d] * x[b, j, h*D + d])",
    code="B, N, E = x.shape\nx = x.view(B, H, N, E // H)\nreturn x @ x.mT",
    words="transpose heads after splitting",
    cost=1.4,
)
def find_torn_inputs(world: World, number: int) -> Iterator[Change]:
    """An input reinterpreted wherever it is read."""
    for tensor in world.inputs if number == 0 else ():
        letters = [_find_letters(a) for a in _find_reads(world, tensor)]
        if len(tensor.shape) < 2 or not letters:
            continue
        for turn, (order, _) in enumerate(find_orders(world, letters[0])):

            def act(expr: Expr, tensor: Tensor = tensor, turn: int = turn) -> Expr:
                if not isinstance(expr, Access) or expr.tensor is not tensor:
                    return expr
                lie = _find_letters(expr)
                read = [order for order, _ in find_orders(world, lie)]
                return exchange_nodes(expr, _decode(read[turn], lie)) if turn < len(read) else expr

            equations = tuple(
                Equation(each.target, rewrite_bottom_up(each.value, act))
                for each in world.system.equations
            )
            yield Change(world.with_equations(equations), _say(letters[0], order, False), 0)


def _find_reads(world: World, tensor: Tensor) -> list[Access]:
    return [a for e in world.system.equations for a in find_accesses(e.value) if a.tensor is tensor]


def _find_letters(access: Access) -> tuple[Index, ...]:
    return tuple(dict.fromkeys(index for place in access.places for index in find_free(place)))


def _say(order: tuple[Index, ...], letters: tuple[Index, ...], merged: bool) -> str:
    """What has to be transposed: `order` is how elements lie, `letters` how they are read."""
    from_, to = (", ".join(i.name for i in each) for each in (order, letters))
    if merged:
        return f"TRANSPOSE heads before merging: they lie as [{from_}], and are read otherwise"
    return f"TRANSPOSE heads after splitting: view as [{from_}], then transpose to [{to}]"


def find_orders(
    world: World, letters: tuple[Index, ...]
) -> Iterator[tuple[tuple[Index, ...], dict[Expr, Expr]]]:
    """Orders in which elements may lie, and which letter is read where if they are reinterpreted.

    Letters that keep their place before and behind do so; two or three in the middle move.
    """
    for count in (2, 3):
        for start in range(len(letters) - count + 1):
            inside = letters[start : start + count]
            for order in permutations(inside):
                if order[0] is inside[0] or order[-1] is inside[-1]:
                    continue
                whole = (*letters[:start], *order, *letters[start + count :])
                yield whole, _decode(inside, order)
    if len(letters) >= 3:
        for one, two in combinations(range(len(letters)), 2):
            if two > one + 1:
                inside = letters[one : two + 1]
                order = (inside[-1], *inside[1:-1], inside[0])
                yield (*letters[:one], *order, *letters[two + 1 :]), _decode(inside, order)


def _decode(read: tuple[Index, ...], lie: tuple[Index, ...]) -> dict[Expr, Expr]:
    """Each letter by the position that is read, decoded in the order in which they lie."""
    flat: Expr = read[0]
    for index in read[1:]:
        flat = Add((Mul((flat, index.extent)), index))
    found: dict[Expr, Expr] = {}
    for index in reversed(lie):
        found[index] = Call("mod", (flat, index.extent))
        flat = Call("floordiv", (flat, index.extent))
    return found


def replace_indices(expr: Expr, new: Mapping[Expr, Expr]) -> Expr | None:
    """The expression at other places; None where a softmax runs along one of the letters."""
    try:
        return exchange_nodes(expr, new)
    except ValueError:
        return None


@kind(
    formula="x[N, H*D]; index h < H; index d < D; size H = 2; y[n, h, d] = x[n, h*D + d]",
    code="N, E = x.shape\nreturn x.reshape(N, -1, H).transpose(1, 2)",
    words="merge x[n,h*d + d], not x[n,d*h + h]",
    cost=1.35,
)
def find_exchanged_merges(world: World, number: int) -> Iterator[Change]:
    """Merged letters in the other order, d*H + h for h*D + d: in one place, or in all."""
    equation = world.system.equations[number]
    for site in world.sites[number]:
        other = turn_merge(site.node)
        if other is not None and isinstance(site.parent, Access):
            access = site.parent
            places = tuple(other if place is site.node else place for place in access.places)
            words = f"MERGE {show(access)}, not {show(Access(access.tensor, places))}"
            yield world.change(site, other, words)
    places = tuple(turn_merge(place) or place for place in equation.target.places)
    if places != equation.target.places:
        target = Access(equation.target.tensor, places)
        words = f"MERGE {show(equation.target)}, not {show(target)}"
        made = Equation(target, equation.value)
        yield Change(world.with_equation(number, made), words, number)


def turn_merge(expr: Expr) -> Expr | None:
    """d*H + h for h*D + d."""
    match expr:
        case Add((Mul((Index() as outer, extent)), Index() as inner)) if inner.extent == extent:
            return Add((Mul((inner, outer.extent)), outer))
    return None


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
