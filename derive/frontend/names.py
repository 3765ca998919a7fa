"""The kind of each name of a formula, and the extent of each index.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sympy import Add, Integer, Symbol, expand

Span = tuple[int, int]
# A use of a tensor: its name, an axis, and the place there. The indices of a place are plain
# symbols. It is None for a place other than a sum of products of indices and sizes.
Use = tuple[str, int, Any]


@dataclass(frozen=True, slots=True)
class Claim:
    """The kind of a name, and the part of the text that it follows from."""

    kind: str  # tensor | size | scalar | function | index
    how: str  # "declared with a shape"
    span: Span | None = None


@dataclass
class Extents:
    """The extents of indices and of places, from declarations and uses."""

    known: dict[str, Any]  # extents of indices
    shapes: Mapping[str, Sequence[Any]]  # shapes of declared tensors
    lefts: Mapping[str, Sequence[Sequence[Any]]]  # the places of the equations of each tensor
    uses: Sequence[Use]

    def infer(self) -> Extents:
        """Add the extents that follow from plain uses to `known`; return self."""
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
        """The extent of one axis of a tensor; None if not known."""
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
        """The pair (n, m) if the places are the first n and last m values of the index; or None."""
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
        if {*indices} - {*self.known}:
            return None
        for index in indices:  # one with a positive step is at its last value
            steps = Add.make_args(expand(place.coeff(Symbol(index))))  # T and -M in T - M
            is_back = all(step.as_coeff_Mul()[0].is_negative for step in steps)
            last = Integer(0) if is_back else self.known[index] - 1
            place = place.subs(Symbol(index), last)
        return expand(place) + 1


def _is_index(place: Any) -> bool:
    return isinstance(place, Symbol) and place == Symbol(place.name)


def find_indices(place: Any) -> list[str]:
    """The names of the indices of a place, sorted; none for the place None."""
    symbols = () if place is None else place.free_symbols
    return sorted(symbol.name for symbol in symbols if _is_index(symbol))
