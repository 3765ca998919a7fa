"""Names and extents of a formula in text or SymPy: one kind for a name, one extent for an index.

    tensor     declared with a shape, or the left side of an equation
    size       in a shape, in the extent of an index, in a bound, or declared as one
    scalar     declared as one
    function   defined by `phi(x) = ..`
    index      declared; bound by `sum[j](..)`; on a left side; or a name that nothing else claims,
               alone in a place of a tensor

A name claimed in two ways is refused, and both claims are shown. The extent of an index is, in this
order: the declared one; else that of the first place in which it stands alone, of a tensor whose
extent there is known: a declared one, or one that equations define, which reaches as far as their
left sides. A later equation may give an extent that one leaves open. A merged place `h*D + d` on
a left side has the extent H*D.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sympy import Add, Integer, Poly, S, Symbol, cancel, expand, floor, fraction, together

from derive.analysis.names import to_article
from derive.errors import DeriveError, refuse

Span = tuple[int, int]
# A place of a tensor: its indices as plain symbols, its sizes as they are; None for no sum of
# products of these.
Use = tuple[str, int, Any]


@dataclass(frozen=True, slots=True)
class Claim:
    """The kind of a name, and the place that establishes it."""

    kind: str  # tensor | size | scalar | function | index
    how: str  # "declared with a shape"
    span: Span | None = None


@dataclass
class Claims:
    """The claim on each name, in order of appearance."""

    refuse: Callable[..., DeriveError] = lambda code, says, *spans, **more: refuse(
        code, says, **more
    )
    claims: dict[str, Claim] = field(default_factory=dict)

    def kind(self, name: str) -> str:
        """The kind of the name; "" if it is free."""
        return self.claims[name].kind if name in self.claims else ""

    def claim(self, name: str, kind: str, how: str, place: Span | None = None) -> None:
        """Enter one claim; DeriveError if the name has another kind already."""
        known = self.claims.setdefault(name, Claim(kind, how, place))
        if known.kind != kind:
            one, other = to_article(known.kind), to_article(kind)
            raise self.refuse(
                "name-clash",
                f"{name} is {one} and {other}",
                known.span,
                place,
                facts=[f"{name} is {one}: {known.how}", f"{name} is {other}: {how}"],
                help="give one of them another name",
            )


@dataclass
class Extents:
    """The extents of indices and of places, from declarations and uses."""

    known: dict[str, Any]  # extents of indices
    shapes: Mapping[str, Sequence[Any]]  # shapes of declared tensors
    lefts: Mapping[str, Sequence[Sequence[Any]]]  # the places of the equations of each tensor
    uses: Sequence[Use]

    def spread(self) -> Extents:
        """Infer extents from plain uses up to a fixed point, from declared tensors first."""
        is_open, uses = True, sorted(self.uses, key=lambda use: use[0] not in self.shapes)
        while is_open:
            is_open = False
            for tensor, number, place in uses:
                if not _is_index(place) or place.name in self.known:
                    continue
                extent = self.find_extent(tensor, number)
                if extent is not None:
                    self.known[place.name] = extent
                    is_open = True
        return self

    def find_extent(self, tensor: str, number: int) -> Any:
        """The extent of one place of a tensor; None if not known."""
        if tensor in self.shapes:
            shape = self.shapes[tensor]
            return shape[number] if number < len(shape) else None
        reaches = [self._find_reach(places, number) for places in self.lefts.get(tensor, ())]
        if not reaches or None in reaches:
            return None
        each = [r for r in reaches if not r.is_Number] or reaches
        longest = [r for r in each if all((r - other).is_nonnegative for other in each)]
        return longest[0] if longest else each[0]

    def find_ends(self, index: str, places: Sequence[Any]) -> tuple[int, int] | None:
        """The numbers of first and of last values of the index, if the places are just these."""
        first, last = (
            [k for k in range(len(places)) if any(expand(end - k * step - p) == 0 for p in places)]
            for end, step in ((Integer(0), -1), (self.known[index] - 1, 1))
        )
        is_row = [*first, *last] == [*range(len(first)), *range(len(last))]
        return (len(first), len(last)) if is_row and len(first) + len(last) == len(places) else None

    def _find_reach(self, places: Sequence[Any], number: int) -> Any:
        """The largest position of one place of a left side, plus one; None if not known."""
        place = places[number] if number < len(places) else None
        if place is None or _is_index(place):
            return self.known.get(getattr(place, "name", ""))
        indices = find_indices(place)
        return None if {*indices} - {*self.known} else self._find_last(place, indices) + 1

    def _find_last(self, value: Any, indices: Sequence[str]) -> Any:
        """The largest value of a place: every index with a positive step at its last value."""
        for index in indices:
            steps = Add.make_args(expand(value.coeff(Symbol(index))))  # T and -M in T - M
            is_back = all(step.as_coeff_Mul()[0].is_negative for step in steps)
            last = Integer(0) if is_back else self.known[index] - 1
            value = value.subs(Symbol(index), last)
        return expand(value)

    def propose(self, name: str) -> Any:
        """The extent implied by the accesses of an index; None where they do not agree."""
        found = list(dict.fromkeys(e for e in map(partial(self._fit, name), self.uses) if e))
        found = [] if S.NaN in found else found
        return next((e for e in found if all((o - e).is_nonnegative for o in found)), None)

    def _fit(self, name: str, use: Use) -> Any:
        """The extent for which an access fills a place: of x[t + k] it is T - K + 1.

        Of merged indices, x[h*D + d] in a place of H*D, each runs as far as the next one steps.
        None where the access implies no extent, nan where no other access may imply one either.
        """
        tensor, number, value = use
        extent, indices = self.find_extent(tensor, number), find_indices(value)
        if extent is None or name not in indices:
            return None
        step = value.coeff(Symbol(name))
        others = [index for index in indices if index != name]
        rest = expand(value - step * Symbol(name))
        if step.is_Integer and not {*others} - {*self.known}:
            if step < 0:
                least = -self._find_last(expand(-rest), others)
                return least + 1 if step == -1 and least.free_symbols else None
            last = self._find_last(rest, others)
            last = Integer(0) if last.is_negative else last  # x[t - 1] has a guard at the start
            found = _divide(expand(extent - 1 - last), step) + 1
            return found if _is_plausible(found) else None
        steps = [value.coeff(Symbol(index)) for index in others]
        if expand(rest - sum(a * Symbol(b) for a, b in zip(steps, others, strict=True))) != 0:
            return S.NaN  # H*D + h*D + d: an unknown part of the place
        ratios = [cancel(other / step) for other in (*steps, extent)]
        whole = [ratio for ratio in ratios if ratio.is_polynomial() and ratio != 1]
        nearest = [r for r in whole if all(cancel(o / r).is_polynomial() for o in whole)]
        return nearest[0] if nearest else None


def _is_index(place: Any) -> bool:
    return isinstance(place, Symbol) and place == Symbol(place.name)


def find_indices(place: Any) -> list[str]:
    """The indices of a place, sorted; none if it is no sum of products."""
    symbols = () if place is None else place.free_symbols
    return sorted(symbol.name for symbol in symbols if _is_index(symbol))


def _divide(value: Any, step: Any) -> Any:
    """The whole part of a quotient, without a // where only a number is left over."""
    number, sizes = value.as_coeff_Add()
    if all(term.as_coeff_Mul()[0] % step == 0 for term in Add.make_args(sizes)):
        return expand(sizes / step) + number // step
    return floor(value / step)


def _is_plausible(extent: Any) -> bool:
    """Whether the extent may be positive for large sizes: T - K + 1 may, M + N - M*N may not."""
    degrees = {True: 0, False: 0}  # degrees of the positive and of the negative terms
    for term in Add.make_args(expand(extent)):
        number, rest = term.as_coeff_Mul()
        is_plain = rest.free_symbols and rest.is_polynomial()
        degree = int(Poly(rest).total_degree()) if is_plain else len(rest.free_symbols)
        degrees[number > 0] = max(degrees[number > 0], degree)
    return degrees[False] <= max(1, degrees[True])


def write_extent(extent: Any) -> str:
    """An extent in the notation, multiplied out, positive terms first."""
    extent = expand(extent)
    quotients = {}
    for part in extent.atoms(floor):
        sides = [write_extent(side) for side in fraction(together(part.args[0]))]
        above, below = (each if each.isalnum() else f"({each})" for each in sides)
        quotients[part] = Symbol(f"({above}//{below})")
    terms = [str(term) for term in Add.make_args(extent.xreplace(quotients))]
    whole = {str(name): str(name)[1:-1] for name in quotients.values()}  # without parentheses
    terms.sort(key=lambda text: (text.isdigit() or text[1:].isdigit(), text[0] == "-", text))
    signed = [("-", each[1:]) if each[0] == "-" else ("+", each) for each in terms]
    out = " ".join(f"{sign} {whole.get(text, text)}" for sign, text in signed)
    return out[2:] if out.startswith("+ ") else f"-{out[2:]}"
