"""Reading a tensor through its places: plain letters, diagonals, fixed positions, merged letters.

`read` gives the views that turn `W[h*D + d, m]` into a tensor with axes h, d, m.
"""

from __future__ import annotations

from derive.errors import refuse
from derive.ir.nodes import Access, Expr, Index
from derive.ir.polynomial import Polynomial
from derive.ir.text import to_text
from derive.ir.walk import find_free
from derive.plan.ops import Diagonal, Op, Select, Source, Unflatten, axes_of


def read(access: Access, name: str, shape: tuple[Expr, ...]) -> Op:
    """The tensor as a chain of views whose axes are distinct indices."""
    places = [_hold_place(k, place, shape) for k, place in enumerate(access.places)]
    op: Op = Source(name, tuple(places), access.tensor.kind)
    for k in reversed(range(len(places))):
        place = access.places[k]
        if isinstance(place, Index):
            continue
        parts = split_merged(place, places[k].extent)
        if parts:
            op = Unflatten(op, k, parts)
        elif not find_free(place):
            op = Select(op, k, place)
        else:
            raise _not_yet(access, place)
    return _take_diagonals(op)


def _hold_place(position: int, place: Expr, shape: tuple[Expr, ...]) -> Index:
    """The index of a plain place, or a stand-in for a place that a view takes apart."""
    return place if isinstance(place, Index) else Index(f"#{position}", shape[position])


def _take_diagonals(op: Op) -> Op:
    while True:
        axes = axes_of(op)
        twice = next((k for k, a in enumerate(axes) if a in axes[:k]), None)
        if twice is None:
            return op
        op = Diagonal(op, axes.index(axes[twice]), twice)


def split_merged(place: Expr, extent: Expr) -> tuple[Index, ...]:
    """The letters of a merged place, slowest first, or () where it is no mixed-radix number.

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


def _not_yet(access: Access, place: Expr) -> Exception:
    return refuse(
        "not-yet",
        f"the position {to_text(place)} in {to_text(access)} has a meaning but no code yet",
        help="plain, fixed, repeated and fully merged positions are built; shifted, strided, "
        "divided, cyclic, clipped and gathered ones come later",
    )
