"""Reshapes: the elements in order under other axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from derive.analysis.affine import ravel, unravel
from derive.frontend.torch.call import Call, op
from derive.frontend.torch.numbers import divide_sizes, plain
from derive.frontend.torch.trace import Shadow, at, find_axis, remap
from derive.ir.nodes import Expr, Index
from derive.ir.polynomial import Polynomial

if TYPE_CHECKING:
    from derive.frontend.torch.trace import Trace


def _reshape(call: Call) -> Shadow:
    shape = call.spread_args(1, "shape" if "shape" in call.named else "size")
    if len(shape) == 1 and hasattr(shape[0], "shape"):
        return _like(call)
    return reshape(call.trace, call.shadow(0), shape)


def _like(call: Call) -> Shadow:
    return reshape(call.trace, call.shadow(0), call.trace.shadow(call.get(1, "other")).shape)


def reshape(trace: Trace, shadow: Shadow, shape: Sequence[Any]) -> Shadow:
    """The elements in order under other axes; letters that stay stay themselves."""
    extents = _fill_shape(trace, shadow, shape)
    kept = _match_axes(shadow, extents)
    letters: list[Index] = []
    olds: dict[Index, Expr] = {}
    for own, new in kept:
        if len(own) == 1 and len(new) == 1:
            letters.append(own[0])
            olds[own[0]] = own[0]
            continue
        if len(new) == 1:
            fresh = [trace.letter(new[0])]
        else:
            fresh = [trace.letter(extent) for extent in new]
        letters += fresh
        flat = ravel([at(letter) for letter in fresh], [letter.extent for letter in fresh])
        places = unravel(flat, [letter.extent for letter in own])
        olds |= {letter: place.to_expr() for letter, place in zip(own, places, strict=True)}
    return remap(shadow, letters, [olds[letter] for letter in shadow.letters])


def _fill_shape(trace: Trace, shadow: Shadow, shape: Sequence[Any]) -> list[Expr]:
    """The new extents, the one that is -1 found from the others."""
    extents: list[Expr | None] = []
    rest = Polynomial.of(1)
    for each in shape:
        if isinstance(each, int) and plain(each) == -1:
            extents.append(None)
            continue
        extent = trace.extent(each)
        extents.append(extent)
        rest = rest * Polynomial.of(extent)
    if None in extents:
        whole = Polynomial.of(1)
        for extent in shadow.shape:
            whole = whole * Polynomial.of(extent)
        return [trace.extent(divide_sizes(whole, rest)) if e is None else e for e in extents]
    return [extent for extent in extents if extent is not None]


def _match_axes(
    shadow: Shadow, extents: Sequence[Expr]
) -> list[tuple[tuple[Index, ...], tuple[Expr, ...]]]:
    """Groups of old and new axes with the same product, as small as they can be seen to be."""
    groups: list[tuple[tuple[Index, ...], tuple[Expr, ...]]] = []
    old, new = list(shadow.letters), list(extents)
    while old or new:
        best = _find_group(old, new)
        groups.append((tuple(old[: best[0]]), tuple(new[: best[1]])))
        old, new = old[best[0] :], new[best[1] :]
    return groups


def _find_group(old: Sequence[Index], new: Sequence[Expr]) -> tuple[int, int]:
    for total in range(1, len(old) + len(new) + 1):
        for one in range(max(0, total - len(new)), min(len(old), total) + 1):
            left = right = Polynomial.of(1)
            for letter in old[:one]:
                left = left * Polynomial.of(letter.extent)
            for extent in new[: total - one]:
                right = right * Polynomial.of(extent)
            if not (left - right).terms:
                return one, total - one
    return len(old), len(new)


def _flatten(call: Call) -> Shadow:
    shadow = call.shadow(0)
    start = find_axis(call.get(1, "start_dim", 0), shadow.rank)
    end = find_axis(call.get(2, "end_dim", -1), shadow.rank)
    shape: list[Any] = [*shadow.shape[:start], -1, *shadow.shape[end + 1 :]]
    return reshape(call.trace, shadow, shape if shadow.rank else [-1])


def _unflatten(call: Call) -> Shadow:
    shadow = call.shadow(0)
    axis = find_axis(call.get(1, "dim"), shadow.rank)
    sizes = call.spread_args(2, "sizes")
    part = Shadow((shadow.letters[axis],), (), shadow.buffer)
    extents = _fill_shape(call.trace, part, sizes)
    return reshape(call.trace, shadow, [*shadow.shape[:axis], *extents, *shadow.shape[axis + 1 :]])


OPS = (
    op(
        "view reshape",
        _reshape,
        "x[B, S, D]: x.reshape(-1, x.shape[-1])",
        "x[B, S, D]: x.reshape(x.shape[0] * x.shape[1], -1).view(x.shape[0], -1, x.shape[2])",
        is_view=True,
    ),
    op("view_as reshape_as", _like, "x[B, S]; y[B, S]: (x + 1).view_as(y)", is_view=True),
    op("flatten ravel", _flatten, "x[B, S, D]: x.flatten(1)", is_view=True),
    op(
        "unflatten",
        _unflatten,
        "x[B, S, D]: x.flatten(1).unflatten(1, (x.shape[1], x.shape[2]))",
        is_view=True,
    ),
)
