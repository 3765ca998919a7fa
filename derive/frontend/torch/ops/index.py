"""Subscripts, writes through them, gathers, joins, repeats, rolls, borders, triangles, choices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from derive.analysis.affine import find_range, ravel, to_affine, unravel
from derive.analysis.facts import is_never_negative
from derive.frontend.torch.call import Call, composite, op
from derive.frontend.torch.exprs import (
    add,
    choose,
    choose_truth,
    compare,
    decide,
    is_whole,
    multiply,
    put,
    subtract,
    to_condition,
    to_number,
    within,
)
from derive.frontend.torch.memory import write
from derive.frontend.torch.numbers import plain, to_expr
from derive.frontend.torch.trace import (
    Shadow,
    at,
    clamp,
    drop_axis,
    find_axis,
    find_place,
    insert_axis,
    is_symbolic,
    kind_of,
    narrow,
    remap,
)
from derive.ir.nodes import ONE, TRUE, ZERO, Access, Expr, Index, Number, Reduce, all_of
from derive.ir.nodes import Call as Function
from derive.ir.polynomial import Polynomial
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
    indices, olds = _find_gathered(trace, shadow, gathers)
    fresh = trace.like(*indices)
    value = trace.read(shadow, olds)
    moved = put(value, tuple(indices), tuple(at(index) for index in fresh))
    return trace.make(fresh, moved, shadow.kind)


def _find_gathered(
    trace: Trace, shadow: Shadow, gathers: Sequence[Gather]
) -> tuple[list[Index], list[Expr]]:
    """The indices of what is gathered, and the places that they stand for."""
    axes = [each.axis for each in gathers]
    common = trace.broadcast(*(each.places for each in gathers))
    olds: list[Expr] = [at(index) for index in shadow.indices]
    for each in gathers:
        place = trace.spread(each.places, common)
        extent = shadow.shape[each.axis]
        if isinstance(place, Access) and place.tensor.below is not None:
            trace.merge(Polynomial.of(extent) - Polynomial.of(place.tensor.below))
        olds[each.axis] = _wrap_negative(place, extent) if each.wraps else place
    rest = [index for k, index in enumerate(shadow.indices) if k not in axes]
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
    indices = trace.like(*target.indices)
    for own, index in zip(mask.indices, indices, strict=False):
        trace.unify(own.extent, index.extent)
    condition = trace.read(mask, [at(index) for index in indices[: mask.rank]])
    old = trace.read_number(target, [at(index) for index in indices])
    new = choose(condition, trace.read_number(value, ()), old)
    write(trace, target, trace.make(indices, new, target.kind))
    return target


def _set(call: Call) -> Shadow:
    key = call.get(1, "index")
    if getattr(key, "dtype", None) is not None and kind_of(key) == "bool":
        return _set_masked(call, call.trace.shadow(key))
    target, gathers = subscript(call.trace, call.shadow(0), call.get(1, "index"))
    if gathers:
        indices, olds = _find_gathered(call.trace, target, gathers)
        if any(isinstance(part, Access) for place in olds for part in walk(place)):
            raise call.trace.refuse("lift-write", "a write at places of a tensor is not known")
        target = remap(target, indices, olds)
    write(call.trace, target, call.trace.shadow(call.get(2, "value")))
    return call.shadow(0)


def _concatenate(call: Call) -> Shadow:
    trace = call.trace
    parts = [trace.shadow(tensor) for tensor in call.get(0, "tensors")]
    parts = [part for part in parts if part.rank != 1 or trace.number(part.shape[0])]
    default = 0
    if call.name in _RAISED:
        parts = [_raise(trace, part, _RAISED[call.name]) for part in parts]
        default = _RAISED[call.name]
    elif call.name == "hstack":
        default = 1 if parts[0].rank > 1 else 0
    axis = find_axis(call.get(1, "dim", call.named.get("axis", default)), parts[0].rank)
    return join(trace, parts, axis)


_RAISED = {"vstack": 0, "row_stack": 0, "column_stack": 1}


def _raise(trace: Trace, part: Shadow, axis: int) -> Shadow:
    """A vector as a row or a column."""
    return insert_axis(trace, part, axis) if part.rank == 1 else part


def join(trace: Trace, parts: Sequence[Shadow], axis: int) -> Shadow:
    """Parts one after the other along an axis."""
    total = 0
    starts = []
    for part in parts:
        starts.append(total)
        total = total + trace.to_int(part.shape[axis])
    indices = list(trace.like(*parts[0].indices))
    indices[axis] = trace.index(trace.extent(total))
    kind = _find_kind(parts)
    value: Expr | None = None
    end: int = 0
    for part, start in reversed(list(zip(parts, starts, strict=True))):
        olds: list[Expr] = [at(index) for index in indices]
        olds[axis] = subtract(at(indices[axis]), to_expr(start))
        for k, index in enumerate(indices):
            if k != axis:
                trace.unify(part.shape[k], index.extent)
        here = trace.read(part, olds)
        here = here if kind == "bool" else to_number(here, part.kind)
        if value is not None:
            inside = decide("<", at(indices[axis]), to_expr(end))
            here = (choose_truth if kind == "bool" else choose)(inside, here, value)
        value, end = here, start
    assert value is not None
    return trace.make(indices, value, kind)


def _find_kind(parts: Sequence[Shadow]) -> str:
    """What tensors of several kinds hold together."""
    kinds = {part.kind for part in parts}
    return "real" if "real" in kinds else "int" if "int" in kinds else "bool"


def _stack(call: Call) -> Shadow:
    trace = call.trace
    parts = [trace.shadow(tensor) for tensor in call.get(0, "tensors")]
    axis = find_axis(call.get(1, "dim", 0), parts[0].rank + 1)
    return join(trace, [insert_axis(trace, part, axis) for part in parts], axis)


def _take(call: Call) -> Shadow:
    """index_select, embedding: whole slices at places of one axis."""
    if call.name == "embedding":
        places, shadow, axis = *_read_embedding(call), 0
    else:
        shadow, places = call.shadow(0), call.shadow(2, "index")
        axis = find_axis(call.get(1, "dim"), shadow.rank)
    return gather_all(call.trace, shadow, [Gather(axis, places, wraps=False)])


def _read_embedding(call: Call) -> tuple[Shadow, Shadow]:
    """Places and rows: the layer's function and torch's own have them in contrary order."""
    first = call.args[0] if call.args else None
    if "indices" in call.named or (first is not None and call.trace.shadow(first).kind == "real"):
        return call.shadow(1, "indices"), call.shadow(0, "weight")
    if call.get(3, "max_norm") is not None:
        raise call.trace.refuse("lift-op", "an embedding with max_norm writes into its weight")
    return call.shadow(0), call.shadow(1, "weight")


def _gather(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    name = "indices" if call.name == "take_along_dim" else "index"
    position, where = (1, 2) if call.name == "take_along_dim" else (2, 1)
    places = call.shadow(position, name)
    axis = find_axis(call.get(where, "dim"), shadow.rank)
    indices = trace.like(*places.indices)
    taken = trace.read(places, [at(index) for index in indices])
    olds: list[Expr] = [
        ZERO if shadow.shape[k] is ONE else at(index) for k, index in enumerate(indices)
    ]
    for k, index in enumerate(indices):
        if k != axis:
            trace.unify(shadow.shape[k], index.extent)
    olds[axis] = taken
    return trace.make(indices, trace.read(shadow, olds), shadow.kind)


def _one_hot(call: Call) -> Shadow:
    trace, places = call.trace, call.shadow(0)
    count = call.get(1, "num_classes", -1)
    if plain(count) < 0:
        raise trace.refuse("lift-op", "one_hot without num_classes depends on data")
    last = trace.index(trace.extent(count))
    indices = (*trace.like(*places.indices), last)
    value = compare("==", trace.read(places, [at(i) for i in indices[:-1]]), at(last))
    return trace.make(indices, choose(value, ONE, ZERO), "int")


def _repeat(call: Call) -> Shadow:
    """Whole copies one after the other along each axis."""
    trace, shadow = call.trace, call.shadow(0)
    counts = list(call.spread_args(1, "repeats" if call.name == "repeat" else "dims"))
    while shadow.rank < len(counts):
        shadow = insert_axis(trace, shadow, 0)
    counts = [1] * (shadow.rank - len(counts)) + counts
    indices, olds = [], []
    for index, count in zip(shadow.indices, counts, strict=True):
        if not is_symbolic(count) and count == 1:
            indices.append(trace.indices.copy(index))
            olds.append(at(indices[-1]))
            continue
        length = trace.to_int(index.extent)
        indices.append(trace.index(trace.extent(length * count)))
        olds.append(Function("mod", (indices[-1], index.extent)))
    return trace.make(indices, trace.read(shadow, olds), shadow.kind)


def _repeat_each(call: Call) -> Shadow:
    """Each element several times in a row."""
    trace, shadow = call.trace, call.shadow(0)
    count, asked = call.get(1, "repeats"), call.get(2, "dim")
    if not isinstance(count, int) or asked is None:
        raise trace.refuse("lift-op", "repeat_interleave without a dimension is not known")
    axis = find_axis(asked, shadow.rank)
    indices = list(trace.like(*shadow.indices))
    olds: list[Expr] = [at(index) for index in indices]
    length = trace.to_int(shadow.shape[axis])
    indices[axis] = trace.index(trace.extent(length * count))
    olds[axis] = Function("floordiv", (indices[axis], to_expr(count)))
    return trace.make(indices, trace.read(shadow, olds), shadow.kind)


def _flip(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    axes = {find_axis(k, shadow.rank) for k in call.spread_args(1, "dims")}
    indices = trace.like(*shadow.indices)
    olds = [
        subtract(subtract(index.extent, ONE), at(index)) if k in axes else at(index)
        for k, index in enumerate(indices)
    ]
    return trace.make(indices, trace.read(shadow, olds), shadow.kind)


def _roll(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    shifts, axes = call.get(1, "shifts"), call.get(2, "dims")
    if axes is None:
        return _roll_flat(trace, shadow, shifts)
    pairs = zip(
        shifts if isinstance(shifts, (tuple, list)) else (shifts,),
        axes if isinstance(axes, (tuple, list)) else (axes,),
        strict=True,
    )
    indices = trace.like(*shadow.indices)
    olds: list[Expr] = [at(index) for index in indices]
    for shift, axis in pairs:
        k = find_axis(axis, shadow.rank)
        moved = subtract(olds[k], to_expr(shift))
        olds[k] = Function("mod", (moved, indices[k].extent))
    return trace.make(indices, trace.read(shadow, olds), shadow.kind)


def _roll_flat(trace: Trace, shadow: Shadow, shift: Any) -> Shadow:
    """The elements in order, moved on, and the last ones first."""
    indices = trace.like(*shadow.indices)
    shape = [index.extent for index in indices]
    flat = subtract(ravel([at(index) for index in indices], shape).to_expr(), to_expr(shift))
    total = math.prod(map(Polynomial.of, shape), start=Polynomial.of(1))
    places = unravel(Function("mod", (flat, total.to_expr())), shape)
    return trace.make(indices, trace.read(shadow, [p.to_expr() for p in places]), shadow.kind)


def _pad(call: Call) -> Shadow:
    """A border of one number, of the last axes first."""
    trace, shadow = call.trace, call.shadow(0)
    widths = list(call.get(1, "pad"))
    if call.get(2, "mode", "constant") != "constant":
        raise trace.refuse("lift-op", "only a constant border is known")
    value = call.get(3, "value")
    indices = list(trace.like(*shadow.indices))
    olds: list[Expr] = [at(index) for index in indices]
    inside: list[Expr] = []
    for number in range(len(widths) // 2):
        before, after = widths[2 * number], widths[2 * number + 1]
        k = shadow.rank - 1 - number
        if not is_symbolic(before) and not is_symbolic(after) and before == 0 == after:
            continue
        length = trace.to_int(shadow.shape[k]) + before + after
        indices[k] = trace.index(trace.extent(length))
        olds[k] = subtract(at(indices[k]), to_expr(before))
        inside.append(within(olds[k], shadow.shape[k]))
    border = to_expr(0 if value is None else value)
    found = trace.read_number(shadow, olds)
    return trace.make(indices, choose(all_of(*inside), found, border), shadow.kind)


def _triangle(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    offset = call.get(1, "diagonal", 0)
    indices = trace.like(*shadow.indices)
    places = [at(index) for index in indices]
    gap = subtract(places[-1], places[-2])
    relation = "<=" if call.name == "tril" else ">="
    inside = decide(relation, gap, to_expr(offset))
    value = trace.read(shadow, places)
    if shadow.kind == "bool":
        return trace.make(indices, all_of(inside, value), "bool")
    return trace.make(indices, choose(inside, value, ZERO), shadow.kind)


def _read_choice(call: Call) -> tuple[Any, Any, Any]:
    """Condition and values: `torch.where(m, x, y)` and `x.where(m, y)` have the same name."""
    if call.args and "condition" in call.named:
        return call.named["condition"], call.args[0], call.get(1, "other")
    given = tuple(call.get(k, name) for k, name in enumerate(("condition", "input", "other")))
    if any(each is None for each in given):
        raise call.trace.refuse("lift-op", "where of a condition alone depends on data")
    one, two, three = given
    if not _is_mask(two):
        return one, two, three
    if not _is_mask(one):
        return two, one, three
    if one is two or (three is False and one.dtype == two.dtype):  # both are one function
        return one, two, three
    ways = [way for way in (given, (two, one, three)) if _gives(way, call.out)]
    if len(ways) != 1:
        raise call.trace.refuse("lift-unsure", "which mask is the condition of where is not seen")
    return ways[0]


def _is_mask(value: Any) -> bool:
    import torch

    return getattr(value, "dtype", None) in (torch.bool, torch.uint8)


def _gives(given: tuple[Any, Any, Any], out: Any) -> bool:
    import torch

    return torch.equal(torch.where(*given), out)


def _where(call: Call) -> Shadow:
    trace = call.trace
    parts = [trace.shadow(each) for each in _read_choice(call)]
    indices = trace.broadcast(*parts)
    condition = to_condition(trace.spread(parts[0], indices), parts[0].kind)
    return _choose(call, indices, condition, parts[1:])


def _choose(
    call: Call, indices: Sequence[Index], condition: Expr, parts: Sequence[Shadow]
) -> Shadow:
    trace = call.trace
    values = [trace.spread(part, indices) for part in parts]
    if call.kind == "bool":
        return trace.make(indices, choose_truth(condition, *values), "bool")
    one, other = (to_number(v, p.kind) for v, p in zip(values, parts, strict=True))
    return trace.make(indices, choose(condition, one, other), call.kind)


def _masked_fill(call: Call) -> Shadow:
    trace = call.trace
    shadow, mask = call.shadow(0), call.shadow(1, "mask")
    value = trace.shadow(call.get(2, "value"))
    indices = trace.broadcast(shadow, mask)
    condition = to_condition(trace.spread(mask, indices), mask.kind)
    return _choose(call, indices, condition, [value, shadow])


def _mesh(call: Call) -> tuple[Shadow, ...]:
    trace = call.trace
    given: Any = call.args[0] if isinstance(call.args[0], (tuple, list)) else call.args
    parts = [trace.shadow(tensor) for tensor in given]
    order = list(range(len(parts)))
    if call.named.get("indexing") == "xy":
        order[:2] = [1, 0]
    axes = [parts[k].indices[0] for k in order]
    found = []
    for number, part in enumerate(parts):
        indices = trace.like(*axes)
        own = indices[order.index(number)]
        found.append(trace.make(indices, trace.read(part, [at(own)]), part.kind))
    return tuple(found)


def _add_at(call: Call) -> Shadow:
    """index_add, scatter_add: what arrives at a place is summed up."""
    trace, shadow, axis_at = call.trace, call.shadow(0), call.get(1, "dim")
    axis = find_axis(axis_at, shadow.rank)
    places = call.shadow(2, "index")
    source = call.shadow(3, "src" if call.name.startswith("scatter") else "source")
    indices = trace.like(*shadow.indices)
    inner = list(trace.like(*source.indices))
    if call.name.startswith("index"):
        taken = trace.read(places, [at(inner[axis])])
        bound, kept = [inner[axis]], [k for k in range(shadow.rank) if k != axis]
    else:
        inner = list(trace.like(*places.indices))
        taken = trace.read(places, [at(index) for index in inner])
        bound, kept = [inner[axis]], [k for k in range(shadow.rank) if k != axis]
    for k in kept:
        trace.unify(indices[k].extent, inner[k].extent)
    own = [at(inner[k]) if k == axis else at(indices[k]) for k in range(shadow.rank)]
    value = put(trace.read_number(source, own), (), ())
    taken = put(taken, [inner[k] for k in kept], [at(indices[k]) for k in kept])
    arrives = choose(compare("==", taken, at(indices[axis])), value, ZERO)
    bound = [index for index in bound if index.extent is not ONE]
    total = Reduce("sum", tuple(bound), TRUE, arrives) if bound else arrives
    factor = to_expr(call.named.get("alpha", 1))
    old = trace.read_number(shadow, [at(index) for index in indices])
    return trace.make(indices, add(old, multiply(factor, total)), call.kind)


def _diagonal_matrix(call: Call) -> Shadow:
    """A matrix with these elements on its diagonal."""
    trace, shadow = call.trace, call.shadow(0)
    axes = (call.get(2, "dim1", -2), call.get(3, "dim2", -1))
    if int(call.get(1, "offset", 0)) or axes != (-2, -1):
        raise trace.refuse("lift-op", "diag_embed beside the diagonal is not known")
    indices = (*trace.like(*shadow.indices), trace.indices.copy(shadow.indices[-1]))
    same = compare("==", at(indices[-2]), at(indices[-1]))
    value = trace.read_number(shadow, [at(index) for index in indices[:-1]])
    return trace.make(indices, choose(same, value, ZERO), call.kind)


def _diagonal(input: Any, diagonal: int = 0) -> Any:
    """Of a vector the matrix, of a matrix the diagonal."""
    if input.dim() == 1:
        return input.diag_embed(diagonal)
    return input.diagonal(diagonal).clone()


def _take_flat(input: Any, index: Any) -> Any:
    return input.flatten()[index]


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
    op(
        "cat concat concatenate hstack vstack row_stack column_stack",
        _concatenate,
        "x[B, S]; y[B, T]: torch.cat((x, y), 1)",
        "x[B, S]; y[B, S]: torch.cat((x, y, x), -1)",
        "x[S]; y[S]: torch.vstack((x, y))",
        "x[S]; y[S]: torch.column_stack((x, y))",
        "int t[S] < 3; int u[S] < 3: torch.cat((t > 1, u))",
    ),
    op("stack", _stack, "x[B, S]; y[B, S]: torch.stack((x, y), -1)"),
    op(
        "index_add scatter_add",
        _add_at,
        "x[N, D]; m[E, D]; int t[E] < N: x.index_add(0, t, m)",
        "x[N, D]; m[E, D]; int t[E, D] < N: x.scatter_add(0, t, m)",
        "x[N, D]; m[E, D]; int t[E] < N: torch.zeros_like(x).index_add_(0, t, m)",
    ),
    op("diag_embed", _diagonal_matrix, "x[B, S]: x.diag_embed()"),
    composite("diag", _diagonal, "x[S]: torch.diag(x)", "x[S, S]: torch.diag(x, 1)"),
    composite("take", _take_flat, "x[B, V]; int t[S] < V: x.take(t)"),
    composite("fliplr", lambda input: input.flip(1), "x[B, S]: x.fliplr()"),
    composite("flipud", lambda input: input.flip(0), "x[B, S]: x.flipud()"),
    op("index_select", _take, "x[S, D]; int t[B] < S: torch.index_select(x, 0, t)"),
    op("embedding", _take, "E[V, D]; int t[B, S] < V: torch.nn.functional.embedding(t, E)"),
    op("gather take_along_dim", _gather, "x[B, V]; int t[B] < V: x.gather(1, t[:, None])[:, 0]"),
    op("one_hot", _one_hot, "int t[B] < V; E[V, D]: torch.nn.functional.one_hot(t, E.shape[0])"),
    op("repeat tile", _repeat, "x[B, S]: x.repeat(1, 2)"),
    op("repeat_interleave", _repeat_each, "x[B, S]: x.repeat_interleave(2, dim=1)"),
    op("flip", _flip, "x[B, S]: x.flip(1)"),
    op("roll", _roll, "x[B, S]: x.roll(1, 1)", "x[B, S]: x.roll(-2)"),
    op("pad", _pad, "x[B, S]: torch.nn.functional.pad(x, (1, 2))"),
    op("tril triu", _triangle, "x[S, T]: x.tril()", "x[S, T]: x.triu(1)"),
    op(
        "where",
        _where,
        "x[B, S]; y[B, S]; bool m[S]: torch.where(m, x, y)",
        "x[B, S]; bool m[S]: x.where(m, 0.0)",
        "x[B, S]; y[B, S]; bool m[S]: (x > 1).where(m, y > 1)",
        "x[B, S]; y[B, S]; bool m[S]: torch.where(m, x > 1, y > 1)",
    ),
    op("masked_fill", _masked_fill, "x[B, S]; bool m[S]: x.masked_fill(m, 0.5)"),
    op(
        "meshgrid",
        _mesh,
        "x[S]; y[T]: sum(torch.meshgrid(x, y, indexing='ij'))",
        "x[S]: torch.meshgrid(x, x, indexing='ij')[1]",
        "x[S]: torch.meshgrid(x, x, indexing='xy')[1]",
    ),
)
