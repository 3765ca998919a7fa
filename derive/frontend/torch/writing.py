"""Index arithmetic as a person writes it: `2*h + k - 1`, `(l - k)//2`, `0 <= h + k - 1 < H`.

What is simplified by ranges has one form for each value, `(l + k)//2 - k`, and a condition on it
turns into one between indices. Here a place is written with the index of the result first, a
quotient with all of its index under it, and a guard with the place that it guards.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, TypeGuard

from derive.analysis.facts import fold_remainders
from derive.frontend.torch.exprs import decide, is_whole
from derive.ir.nodes import ZERO, Access, Add, And, Call, Compare, Expr, Index, Number, all_of
from derive.ir.polynomial import Polynomial
from derive.ir.walk import map_children, walk

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from derive.ir.polynomial import Monomial


def write_place(place: Expr, first: Collection[Index]) -> Expr:
    """The same place; `first` are the indices that go before others."""
    inner = map_children(place, lambda part: write_place(part, first))
    if not is_whole(inner) or isinstance(inner, (Index, Number)):
        return inner
    whole = Polynomial.of(inner)
    if any(isinstance(part, Call) for part in walk(inner)):
        whole = _fill_quotients(fold_remainders(whole), first)
    return _order(whole, first)


def _fill_quotients(whole: Polynomial, first: Collection[Index]) -> Polynomial:
    """`(l + k)//2 - k` as `(l - k)//2`: what stands under a quotient does so with all of it."""
    for monomial, share in whole.terms.items():
        match monomial:
            case ((Call("floordiv", (over, Number(divisor))), 1),) if share == 1:
                inside, rest = Polynomial.of(over), whole - Polynomial({monomial: share})
                for key, number in rest.terms.items():
                    old = inside.terms.get(key, Fraction(0))
                    if old and abs(old + number * divisor) <= abs(old):
                        inside += Polynomial({key: number * divisor})
                        rest -= Polynomial({key: number})
                quotient = Call("floordiv", (_order(inside, first), Number(divisor)))
                return rest + Polynomial.of(quotient)
    return whole


def _order(whole: Polynomial, first: Collection[Index]) -> Expr:
    """Terms with these indices, with others, of sizes, numbers; what is taken off behind.

    Of two alike the one with a factor is first: `D*h + d`.
    """

    def rank(term: tuple[Monomial, Fraction]) -> tuple[bool, bool, int, bool]:
        monomial, number = term
        parts = [part for atom, _ in monomial for part in walk(atom) if isinstance(part, Index)]
        place = 0 if any(part in first for part in parts) else 1 if parts else 2
        return not monomial, number < 0, place, len(monomial) == abs(number) == 1

    terms = [Polynomial({m: n}).to_expr() for m, n in sorted(whole.terms.items(), key=rank)]
    return Add(tuple(terms)) if len(terms) > 1 else whole.to_expr()


def write_guards(value: Expr, first: Collection[Index]) -> Expr:
    """The value with conditions on places written as the places are."""
    known: dict[Expr, tuple[int, Expr]] = {}
    reads = (part for part in walk(value) if isinstance(part, Access))
    pairs = (pair for each in reads for pair in zip(each.places, each.tensor.shape, strict=True))
    for number, (place, extent) in enumerate(pairs):
        if isinstance(place, (Index, Number)) or not is_whole(place):
            continue
        written = write_place(place, first)
        for part in walk(written):
            match part:
                case Call("floordiv", (over, under)):
                    rest = Call("mod", (over, under))
                    known[decide("==", rest, ZERO)] = number, Compare("==", rest, ZERO)
        known[decide("<=", ZERO, place)] = number, Compare("<=", ZERO, written)
        known[decide("<", place, extent)] = number, Compare("<", written, extent)
    return _exchange(value, {old: new for old, new in known.items() if isinstance(old, Compare)})


def _exchange(value: Expr, known: Mapping[Expr, tuple[int, Expr]]) -> Expr:
    """The value with known conditions, those of one place together: `0 <= h - k < H`."""
    match value:
        case Compare() if value in known:
            return known[value][1]
        case And(parts):
            groups: dict[int, list[Expr]] = {}
            for part in sorted(parts, key=lambda each: known[each][0] if each in known else -1):
                number, new = known.get(part, (-1, part))
                groups.setdefault(number, []).append(_exchange(new, known))
            found = []
            for group in groups.values():
                equal = [e for e in group if not _is_bound(e)]
                found += equal
                bounds = sorted(
                    (e for e in group if _is_bound(e)), key=lambda e: e.left is not ZERO
                )
                found += bounds
            return all_of(*found)
    return map_children(value, lambda part: _exchange(part, known)) if known else value


def _is_bound(condition: Expr) -> TypeGuard[Compare]:
    return isinstance(condition, Compare) and condition.relation in {"<", "<="}
