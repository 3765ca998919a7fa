"""Reading a tensor through its places: plain letters, diagonals, fixed positions, merged letters.

`read` gives the views that turn `W[h*D + d, m]` into a tensor with axes h, d, m.
"""

from __future__ import annotations

from functools import lru_cache

from derive.analysis.ranges import is_nonnegative
from derive.errors import refuse
from derive.ir.nodes import MINUS_ONE, Access, Expr, Index
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.text import to_text
from derive.ir.walk import find_free
from derive.plan.ops import (
    Cell,
    Diagonal,
    Flatten,
    Num,
    Op,
    Select,
    Slice,
    Source,
    Unflatten,
    axes_of,
)


def read(
    access: Access, layout: tuple[int, ...], stored: tuple[tuple[Index, ...], ...] | None
) -> Op:
    """The tensor as a chain of views whose axes are distinct indices.

    `layout` is the order of its places in storage. A tensor that an equation defines keeps letters
    that its left side merges apart; `stored` has them, place by place.
    """
    shape = access.tensor.shape
    places = [access.places[k] for k in layout]
    extents = [shape[k] for k in layout]
    parts = [stored[k] for k in layout] if stored else [()] * len(places)
    axes: list[Index] = []
    merge: list[tuple[int, int, int]] = []  # place, first and last axis
    for k, (place, extent, letters) in enumerate(zip(places, extents, parts, strict=True)):
        if len(letters) < 2:
            axes.append(_hold_place(k, place, extent))
            continue
        found = split_merged(place, extent)
        if [i.extent for i in found] == [i.extent for i in letters]:
            places[k] = found[0]
            axes += found
        else:
            merge.append((k, len(axes), len(axes) + len(letters) - 1))
            axes += (Index(f"#{k}.{n}", i.extent) for n, i in enumerate(letters))
    op: Op = Source(access.tensor.name, tuple(axes), access.tensor.kind)
    for k, start, end in reversed(merge):
        op = Flatten(op, start, end, _hold_place(k, places[k], extents[k]))
    return _take_diagonals(_take_places(op, places, access))


def _take_places(op: Op, places: list[Expr], access: Access) -> Op:
    """Views for the places that are no plain letter: their stand-ins are named by position."""
    for k in reversed(range(len(places))):
        place = places[k]
        names = [axis.name for axis in axes_of(op)]
        if f"#{k}" not in names:
            continue
        at = names.index(f"#{k}")
        if isinstance(place, Index):
            op = _cut(op, at, place)
            continue
        parts = split_merged(place, axes_of(op)[at].extent)
        if parts:
            op = Unflatten(op, at, parts)
        elif not find_free(place):
            op = Select(op, at, place)
        else:
            raise _not_yet(access, place)
    return op


def _cut(op: Op, at: int, index: Index) -> Op:
    """The first positions of a place, as many as the index has.

    Where there may be fewer, zeros follow: a condition leaves them out.
    """
    cut = Slice(op, at, index)
    axes = axes_of(op)
    missing = Polynomial.of(index.extent) - Polynomial.of(axes[at].extent)
    if is_nonnegative(missing * Polynomial.of(MINUS_ONE)):
        return cut
    pairs = ", ".join(["0, 0"] * (len(axes) - 1 - at) + ["0, {1}"])
    call = f"torch.nn.functional.pad({{0}}, ({pairs}))"
    return Cell(call, (op, Num(missing.to_expr())), cut, axes_of(cut))


def _hold_place(position: int, place: Expr, extent: Expr) -> Index:
    """The index of a plain place, or a stand-in for a place that a view takes apart or cuts."""
    if isinstance(place, Index) and is_same_extent(place.extent, extent):
        return place
    return Index(f"#{position}", extent)


def _take_diagonals(op: Op) -> Op:
    while True:
        axes = axes_of(op)
        twice = next((k for k, a in enumerate(axes) if a in axes[:k]), None)
        if twice is None:
            return op
        op = Diagonal(op, axes.index(axes[twice]), twice)


@lru_cache(maxsize=1 << 12)
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
