"""Subscripts: integers, slices, None, an ellipsis, and integer tensors; and writes through them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from derive.analysis.affine import find_range, to_affine
from derive.analysis.affine_sizes import is_never_negative
from derive.frontend.torch.call import Call, op
from derive.frontend.torch.exprs import add, choose, is_whole, put
from derive.frontend.torch.memory import write
from derive.frontend.torch.numbers import plain
from derive.frontend.torch.trace import (
    Shadow,
    at,
    clamp,
    drop_axis,
    find_place,
    insert_axis,
    is_symbolic,
    kind_of,
    narrow,
    remap,
)
from derive.ir.nodes import Access, Expr, Index, Number
from derive.ir.nodes import Call as Function
from derive.ir.walk import walk

if TYPE_CHECKING:
    from derive.frontend.torch.trace import Trace


@dataclass(frozen=True)
class Gather:
    """An axis that integer tensors take elements of; in subscripts -1 is its end."""

    axis: int
    places: Shadow
    wraps: bool = True


def subscript(trace: Trace, shadow: Shadow, key: Any) -> tuple[Shadow, list[Gather]]:
    """The view that the basic part of a subscript makes, and what the tensors in it take."""
    keys = _complete(shadow, key if isinstance(key, tuple) else (key,))
    gathers: list[Gather] = []
    axis = 0
    for each in keys:
        if each is None:
            shadow = insert_axis(trace, shadow, axis)
            axis += 1
        elif isinstance(each, slice):
            shadow = _slice(trace, shadow, axis, each)
            axis += 1
        elif isinstance(each, bool):
            raise trace.refuse("lift-op", "a truth value as a subscript is not known")
        elif isinstance(each, int):
            shadow = drop_axis(shadow, axis, find_place(each, shadow.shape[axis]))
        else:
            gathers.append(Gather(axis, _read_places(trace, each)))
            axis += 1
    return shadow, gathers


def _complete(shadow: Shadow, keys: Sequence[Any]) -> list[Any]:
    """With full slices in place of the ellipsis, and for what is not named."""
    import torch

    keys = [torch.tensor(each) if isinstance(each, list) else each for each in keys]
    used = sum(1 for each in keys if each is not None and each is not Ellipsis)
    rest = [slice(None)] * (shadow.rank - used)
    for number, each in enumerate(keys):
        if each is Ellipsis:
            return [*keys[:number], *rest, *keys[number + 1 :]]
    return [*keys, *rest]


def _read_places(trace: Trace, tensor: Any) -> Shadow:
    places = trace.shadow(tensor)
    if places.kind != "int":
        says = "a mask as a subscript gives a shape that depends on data"
        raise trace.refuse("lift-op", says, "use torch.where or a product with the mask")
    return places


def _slice(trace: Trace, shadow: Shadow, axis: int, key: slice) -> Shadow:
    step = 1 if key.step is None else int(key.step)
    total = trace.to_int(shadow.shape[axis])
    start = 0 if key.start is None else clamp(key.start, total)
    stop = total if key.stop is None else clamp(key.stop, total)
    if step == 1 and not is_symbolic(start) and start == 0 and stop is total:
        return shadow
    gap = stop - start
    length = gap if step == 1 else -(-gap // step) if plain(gap) > 0 else 0
    if length < 0 or (plain(length) == 0 and not is_symbolic(length)):
        raise trace.refuse("lift-op", "a slice with nothing in it is not known")
    return narrow(trace, shadow, axis, length, (start, step))


def _get(call: Call) -> Shadow:
    shadow, gathers = subscript(call.trace, call.shadow(0), call.get(1, "index"))
    return gather_all(call.trace, shadow, gathers) if gathers else shadow


def gather_all(trace: Trace, shadow: Shadow, gathers: Sequence[Gather]) -> Shadow:
    """Elements at integer places; their common axes stand where torch puts them."""
    letters, olds = _find_gathered(trace, shadow, gathers)
    fresh = trace.like(*letters)
    value = trace.read(shadow, olds)
    moved = put(value, tuple(letters), tuple(at(letter) for letter in fresh))
    return trace.make(fresh, moved, shadow.kind)


def _find_gathered(
    trace: Trace, shadow: Shadow, gathers: Sequence[Gather]
) -> tuple[list[Index], list[Expr]]:
    """The indices of what is gathered, and the places that they stand for."""
    axes = [each.axis for each in gathers]
    common = trace.broadcast(*(each.places for each in gathers))
    olds: list[Expr] = [at(letter) for letter in shadow.letters]
    for each in gathers:
        place = trace.spread(each.places, common)
        extent = shadow.shape[each.axis]
        olds[each.axis] = _wrap_negative(place, extent) if each.wraps else place
    rest = [letter for k, letter in enumerate(shadow.letters) if k not in axes]
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    first = sum(1 for k in range(axes[0]) if k not in axes) if together else 0
    return [*rest[:first], *common, *rest[first:]], olds


def _wrap_negative(place: Expr, extent: Expr) -> Expr:
    """Places that may lie below zero count from the end there."""
    if isinstance(place, Number):
        return add(place, extent) if place.value < 0 else place
    low = find_range(to_affine(place))[0] if is_whole(place) else None
    if low is not None and is_never_negative(low):
        return place
    return Function("mod", (place, extent))


def _set_masked(call: Call, mask: Shadow) -> Shadow:
    """`x[mask] = number`: a choice, written over the whole."""
    trace, target = call.trace, call.shadow(0)
    value = trace.shadow(call.get(2, "value"))
    if value.rank or mask.rank > target.rank:
        raise trace.refuse("lift-write", "a write of many values at a mask is not known")
    letters = trace.like(*target.letters)
    for own, letter in zip(mask.letters, letters, strict=False):
        trace.unify(own.extent, letter.extent)
    condition = trace.read(mask, [at(letter) for letter in letters[: mask.rank]])
    old = trace.read_number(target, [at(letter) for letter in letters])
    new = choose(condition, trace.read_number(value, ()), old)
    write(trace, target, trace.make(letters, new, target.kind))
    return target


def _set(call: Call) -> Shadow:
    key = call.get(1, "index")
    if getattr(key, "dtype", None) is not None and kind_of(key) == "bool":
        return _set_masked(call, call.trace.shadow(key))
    target, gathers = subscript(call.trace, call.shadow(0), call.get(1, "index"))
    if gathers:
        letters, olds = _find_gathered(call.trace, target, gathers)
        if any(isinstance(part, Access) for place in olds for part in walk(place)):
            raise call.trace.refuse("lift-write", "a write at places of a tensor is not known")
        target = remap(target, letters, olds)
    write(call.trace, target, call.trace.shadow(call.get(2, "value")))
    return call.shadow(0)


OPS = (
    op(
        "__getitem__",
        _get,
        "x[B, S]: x[0]",
        "x[B, S]: x[:, -1]",
        "x[B, S]: x[:, 1:]",
        "x[B, S]: x[..., None]",
        "x[B, S]: x[:, ::2]",
        "x[B, S]: x[:, :-1] + x[:, 1:]",
        "E[V, D]; int t[B, S] < V: E[t]",
        "E[V, D]; int t[S] < V: E[t - 1]",
        "x[B, S]: x[:, [0, -1]]",
        "x[S]: x[torch.arange(x.shape[0]) - 1]",
        "x[S, T]: x[torch.arange(x.shape[0])[:, None], torch.arange(x.shape[1])]",
        is_view=True,
    ),
    op(
        "__setitem__",
        _set,
        "x[B, S]: y = x.clone(); y[:, 0] = 0; y",
        "x[B, S]: y = torch.zeros_like(x); y[:, 1:] = x[:, :-1]; y",
        "x[B, S]; bool m[B]: y = x.clone(); y[m] = 2.0; y",
        "x[S, S]: y = x.clone(); i = torch.arange(x.shape[0]); y[i, i] = 0; y",
        is_write=True,
    ),
)
