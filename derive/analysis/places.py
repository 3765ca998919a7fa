"""Places that meet every position once: an index, merged indices, an index counted back."""

from __future__ import annotations

from functools import lru_cache

from derive.ir.nodes import Expr, Index
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_free


def fills_once(place: Expr, extent: Expr) -> bool:
    """Does a place of a left side meet every position once?"""
    return bool(split_merged(place, extent)) or find_reversed(place, extent) is not None


def find_reversed(place: Expr, extent: Expr) -> Index | None:
    """The index of a place that runs from the last position to the first, N - 1 - n."""
    indices = () if isinstance(place, Index) else find_free(place)
    if len(indices) != 1 or Polynomial.of(indices[0].extent) != Polynomial.of(extent):
        return None
    last = Polynomial.of(extent) - Polynomial.of(1)
    return indices[0] if Polynomial.of(place) == last - Polynomial.of(indices[0]) else None


@lru_cache(maxsize=1 << 12)
def split_merged(place: Expr, extent: Expr) -> tuple[Index, ...]:
    """The indices of a merged place, slowest first, or () where it is no mixed-radix number.

    `h*D + d` is one if d runs over D and the whole over H*D, so that every position is met once.
    """
    parts: list[tuple[Index, Polynomial]] = []
    rest = Polynomial.of(place)
    for index in find_free(place):
        halves = rest.split(index)
        if halves is None or any(isinstance(a, Index) for a in halves[0].atoms):
            return ()
        parts.append((index, halves[0]))
        rest = halves[1]
    if rest.terms:
        return ()
    ordered: list[Index] = []
    stride = Polynomial.of(1)
    while parts:
        found = next((p for p in parts if p[1] == stride), None)
        if found is None:
            return ()
        parts.remove(found)
        ordered.insert(0, found[0])
        stride = stride * Polynomial.of(found[0].extent)
    return tuple(ordered) if stride == Polynomial.of(extent) else ()
