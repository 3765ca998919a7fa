"""Axes in another order, of length 1 or repeated; reshapes; slices, pieces, diagonals, windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from derive.analysis.affine import ravel, unravel
from derive.errors import refuse
from derive.frontend.torch.call import Call, composite, op
from derive.frontend.torch.exprs import add, multiply
from derive.frontend.torch.numbers import divide_sizes, plain, to_expr, to_form
from derive.frontend.torch.trace import (
    Shadow,
    at,
    clamp,
    drop_axis,
    expand,
    find_axis,
    find_place,
    insert_axis,
    narrow,
    remap,
    reorder,
)
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, divide_wholly

if TYPE_CHECKING:
    from derive.frontend.torch.trace import Trace


def _permute(call: Call) -> Shadow:
    shadow = call.shadow(0)
    order = call.spread_args(1, "dims")
    return reorder(shadow, [find_axis(k, shadow.rank) for k in order])


def _transpose(call: Call) -> Shadow:
    shadow = call.shadow(0)
    names = ("dim0", "dim1") if "dim0" in call.named else ("axis0", "axis1")
    one, other = (find_axis(call.get(k + 1, names[k]), shadow.rank) for k in range(2))
    order = list(range(shadow.rank))
    if order:
        order[one], order[other] = order[other], order[one]
    return reorder(shadow, order)


def _move(call: Call) -> Shadow:
    shadow = call.shadow(0)
    names = ("source", "destination")
    given = [call.get(k + 1, names[k]) for k in range(2)]
    source, target = (
        [find_axis(k, shadow.rank) for k in (each if isinstance(each, (tuple, list)) else (each,))]
        for each in given
    )
    order: dict[int, int] = dict(zip(target, source, strict=True))
    rest = iter(k for k in range(shadow.rank) if k not in source)
    return reorder(shadow, [order[k] if k in order else next(rest) for k in range(shadow.rank)])


def _unsqueeze(call: Call) -> Shadow:
    shadow = call.shadow(0)
    return insert_axis(call.trace, shadow, find_axis(call.get(1, "dim"), shadow.rank + 1))


def _squeeze(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    asked = call.get(1, "dim")
    if asked is None:
        axes = list(range(shadow.rank))
    else:
        axes = [
            find_axis(k, shadow.rank)
            for k in (asked if isinstance(asked, (tuple, list)) else (asked,))
        ]
    for axis in sorted(axes, reverse=True):
        if trace.to_int(shadow.shape[axis]) == 1:
            if shadow.shape[axis] is not ir.ONE:
                trace.unify(shadow.shape[axis], ir.ONE)
            shadow = drop_axis(shadow, axis)
    return shadow


def _expand(call: Call) -> Shadow:
    return expand(call.trace, call.shadow(0), call.spread_args(1, "size"))


def _reshape(call: Call) -> Shadow:
    shape = call.spread_args(1, "shape" if "shape" in call.named else "size")
    return reshape(call.trace, call.shadow(0), shape)


def reshape(trace: Trace, shadow: Shadow, shape: Sequence[Any]) -> Shadow:
    """The elements in order under other axes; indices that stay stay themselves."""
    extents = _fill_shape(trace, shadow, shape)
    kept = _match_axes(shadow, extents)
    indices: list[ir.Index] = []
    olds: dict[ir.Index, ir.Expr] = {}
    for own, new in kept:
        if len(own) == 1 and len(new) == 1:
            indices.append(own[0])
            olds[own[0]] = own[0]
            continue
        whole = prod((Polynomial.of(index.extent) for index in own), start=Polynomial.of(1))
        parts = prod(map(Polynomial.of, new), start=Polynomial.of(1))
        if all(isinstance(atom, ir.Size) for atom in (whole - parts).atoms):
            trace.unify(whole.to_expr(), parts.to_expr())
        fresh = [trace.index(new[0])] if len(new) == 1 else [trace.index(extent) for extent in new]
        indices += fresh
        flat = ravel([at(index) for index in fresh], [index.extent for index in fresh])
        places = unravel(flat, [index.extent for index in own])
        olds |= {index: place.to_expr() for index, place in zip(own, places, strict=True)}
    return remap(shadow, indices, [olds[index] for index in shadow.indices])


def _fill_shape(trace: Trace, shadow: Shadow, shape: Sequence[Any]) -> list[ir.Expr]:
    """The new extents, the one that is -1 found from the others."""
    extents: list[ir.Expr | None] = []
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
    shadow: Shadow, extents: Sequence[ir.Expr]
) -> list[tuple[tuple[ir.Index, ...], tuple[ir.Expr, ...]]]:
    """Groups of old and new axes with the same product, as small as they can be seen to be."""
    groups: list[tuple[tuple[ir.Index, ...], tuple[ir.Expr, ...]]] = []
    old, new = list(shadow.indices), list(extents)
    while old or new:
        best = _find_group(old, new)
        groups.append((tuple(old[: best[0]]), tuple(new[: best[1]])))
        old, new = old[best[0] :], new[best[1] :]
    return groups


def _find_group(old: Sequence[ir.Index], new: Sequence[ir.Expr]) -> tuple[int, int]:
    for total in range(1, len(old) + len(new) + 1):
        for one in range(max(0, total - len(new)), min(len(old), total) + 1):
            left = right = Polynomial.of(1)
            for index in old[:one]:
                left = left * Polynomial.of(index.extent)
            for extent in new[: total - one]:
                right = right * Polynomial.of(extent)
            if not (left - right).terms:
                return one, total - one
    return len(old), len(new)


def _flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    rank = max(input.dim(), 1)
    start, end = start_dim % rank, end_dim % rank
    return input.reshape((*input.shape[:start], -1, *input.shape[end + 1 :]))


def _unflatten(input: Any, dim: int, sizes: Any) -> Any:
    axis = dim % input.dim()
    return input.reshape((*input.shape[:axis], *sizes, *input.shape[axis + 1 :]))


def _narrow(call: Call) -> Shadow:
    shadow = call.shadow(0)
    axis = call.axis(1, shadow.rank)
    line = (find_place(call.get(2, "start"), shadow.shape[axis]), 1)
    return narrow(call.trace, shadow, axis, call.get(3, "length"), line)


def _diagonal(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    offset = int(call.get(1, "offset", 0))
    one = find_axis(call.get(2, "dim1", 0 if call.name != "diagonal_last" else -2), shadow.rank)
    other = call.axis(3, shadow.rank, 1, "dim2")
    length = trace.to_int(trace.unify(shadow.shape[one], shadow.shape[other])) - abs(offset)
    fresh = trace.index(trace.extent(length))
    olds: list[ir.Expr] = list(shadow.indices)
    olds[one] = add(at(fresh), to_expr(max(-offset, 0)))
    olds[other] = add(at(fresh), to_expr(max(offset, 0)))
    indices = [index for k, index in enumerate(shadow.indices) if k not in {one, other}]
    return remap(shadow, [*indices, fresh], olds)


def _unfold(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    axis = call.axis(1, shadow.rank, None, "dimension")
    size, step = call.get(2, "size"), call.get(3, "step")
    count = (trace.to_int(shadow.shape[axis]) - size) // step + 1
    outer, inner = trace.index(trace.extent(count)), trace.index(trace.extent(size))
    olds: list[ir.Expr] = list(shadow.indices)
    olds[axis] = add(multiply(to_expr(step), at(outer)), at(inner))
    indices = list(shadow.indices)
    indices[axis] = outer
    return remap(shadow, [*indices, inner], olds)


def _split(call: Call) -> tuple[Shadow, ...]:
    trace, shadow = call.trace, call.shadow(0)
    asked = call.get(
        1, "split_size_or_sections" if "split_size" not in call.named else "split_size"
    )
    axis = call.axis(2, shadow.rank, 0)
    total = trace.to_int(shadow.shape[axis])
    lengths = list(asked) if isinstance(asked, (tuple, list)) else _cut(trace, total, asked)
    start: int = 0
    found = []
    for length in lengths:
        found.append(narrow(trace, shadow, axis, length, (start, 1)))
        start = start + length
    return tuple(found)


def _cut(trace: Trace, total: int, each: int) -> list[int]:
    """Lengths of pieces of one size; how many there are is a matter of this run."""
    number = -(-int(plain(total)) // int(plain(each)))
    count = divide_wholly(to_form(total), to_form(each))
    if count is not None:
        trace.watch.fix(count.to_expr())
        return [each] * number
    trace.watch.fix(to_expr(total), to_expr(each))
    left = int(plain(total)) - (number - 1) * int(plain(each))
    return [int(plain(each))] * (number - 1) + [left]


def _chunk(input: Any, chunks: int, dim: int = 0) -> Any:
    total = input.shape[dim]
    if total % chunks == 0:
        return input.split([total // chunks] * chunks, dim)
    return input.split(-(-int(total) // chunks), dim)


def _split_evenly(input: Any, indices_or_sections: Any, dim: int = 0) -> Any:
    """tensor_split: into so many pieces, the first ones longer by one, or at places."""
    total = input.shape[dim]
    if isinstance(indices_or_sections, (tuple, list)):
        ends = [*(clamp(each, total) for each in indices_or_sections), total]
        lengths = [end - start for start, end in zip((0, *ends), ends, strict=False)]
        if any(length < 0 for length in lengths):
            raise refuse("lift-op", "pieces that overlap are not known")
        return input.split(lengths, dim)
    count = int(indices_or_sections)
    if total % count == 0:
        return input.split([total // count] * count, dim)
    each, more = divmod(int(total), count)
    return input.split([each + 1] * more + [each] * (count - more), dim)


def _stride(call: Call) -> Shadow:
    """as_strided of a tensor that lies in memory in order."""
    trace, shadow = call.trace, call.shadow(0)
    tensor, size, steps = call.args[0], call.get(1, "size"), call.get(2, "stride")
    start = call.get(3, "storage_offset", 0) or 0
    if not tensor.is_contiguous() or tensor.storage_offset():
        raise trace.refuse("lift-op", "as_strided of a view is not known")
    indices = [trace.index(trace.extent(length)) for length in size]
    terms = [multiply(to_expr(s), at(i)) for s, i in zip(steps, indices, strict=True)]
    places = unravel(add(*terms, to_expr(start)), shadow.shape)
    return remap(shadow, indices, [place.to_expr() for place in places])


OPS = (
    op("permute", _permute, "x[B, S, D]: x.permute(2, 0, 1)", is_view=True),
    op("transpose swapaxes swapdims", _transpose, "x[B, S]: x.transpose(-1, 0)", is_view=True),
    op(
        "t T H",
        lambda call: reorder(call.shadow(0), range(call.shadow(0).rank)[::-1]),
        "x[B, S]: x.T",
        "x[B, S]: x.H",
        "x[B, S]: x.t()",
        is_view=True,
    ),
    composite(
        "mT mH adjoint",
        lambda input: input.transpose(-2, -1),
        "x[B, S, D]: x.mT",
        "x[B, S, D]: x.mH",
    ),
    op("movedim moveaxis", _move, "x[B, S, D]: x.movedim(0, -1)", is_view=True),
    op("unsqueeze", _unsqueeze, "x[B, S]: x.unsqueeze(-1)", is_view=True),
    op(
        "squeeze",
        _squeeze,
        "x[B, S]: x.unsqueeze(1).squeeze(1)",
        "x[B, S]: x.unsqueeze(1).squeeze()",
        "x[B, S]: x.squeeze(-1)",
        is_view=True,
    ),
    op("expand broadcast_to", _expand, "x[S]: x.expand(2, -1)", is_view=True),
    composite(
        "expand_as",
        lambda input, other: input.expand(other.shape),
        "x[S]; y[B, S]: x.expand_as(y) * y",
    ),
    op(
        "view reshape",
        _reshape,
        "x[B, S, D]: x.reshape(-1, x.shape[-1])",
        "x[B, S, D]: x.reshape(x.shape[0] * x.shape[1], -1).view(x.shape[0], -1, x.shape[2])",
        is_view=True,
    ),
    composite(
        "view_as", lambda input, other: input.view(other.shape), "x, y[B, S]: (x + 1).view_as(y)"
    ),
    composite(
        "reshape_as",
        lambda input, other: input.reshape(other.shape),
        "x[B, S]; y[S, B]: x.reshape_as(y)",
    ),
    composite("flatten ravel", _flatten, "x[B, S, D]: x.flatten(1)"),
    composite(
        "unflatten",
        _unflatten,
        "x[B, S, D]: x.flatten(1).unflatten(1, (x.shape[1], x.shape[2]))",
    ),
    op(
        "narrow",
        _narrow,
        "x[B, S]: x.narrow(1, 1, x.shape[1] - 1)",
        "x[B, S]: x.narrow(-1, -1, 1)",
        is_view=True,
    ),
    composite(
        "select",
        lambda input, dim, index: input.movedim(dim, 0)[index],
        "x[B, S]: x.select(1, -1)",
    ),
    op("diagonal", _diagonal, "x[S, S]: x.diagonal()", "x[S, S]: x.diagonal(1)", is_view=True),
    op("unfold", _unfold, "x[B, S]: x.unfold(1, 2, 1)", is_view=True),
    op("split split_with_sizes", _split, "x[B, S]: x.split(1, 1)[0]", is_view=True),
    composite("chunk", _chunk, "x[B, S]: torch.cat((x, x), 1).chunk(2, 1)[1]"),
    composite("tensor_split", _split_evenly, "x[B, S]: torch.cat((x, x), 1).tensor_split(2, 1)[1]"),
    op(
        "as_strided",
        _stride,
        "x[B, S]: x.as_strided((x.shape[0], x.shape[1] - 1, 2), (x.shape[1], 1, 1))",
        is_view=True,
    ),
    composite(
        "unbind",
        lambda input, dim=0: tuple(input.select(dim, k) for k in range(int(input.shape[dim]))),
        "x[B, S]: x.unbind(0)[1]",
    ),
    composite("trace", lambda input: input.diagonal().sum(), "x[S, S]: x.trace()"),
)
