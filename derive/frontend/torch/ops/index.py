"""Subscripts, writes through them, gathers, joins, repeats, rolls, borders, triangles, choices."""

from __future__ import annotations

from dataclasses import dataclass
from operator import ge, le
from typing import TYPE_CHECKING, Any

from derive.analysis.affine import find_range, to_affine
from derive.analysis.facts import is_never_negative
from derive.errors import refuse
from derive.frontend.torch.call import Call, composite, op, write
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
from derive.frontend.torch.numbers import plain, to_expr
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
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
) -> tuple[list[ir.Index], list[ir.Expr]]:
    """The indices of what is gathered, and the places that they stand for."""
    axes = [each.axis for each in gathers]
    common = trace.broadcast(*(each.places for each in gathers))
    olds: list[ir.Expr] = [at(index) for index in shadow.indices]
    for each in gathers:
        place = trace.spread(each.places, common)
        extent = shadow.shape[each.axis]
        if isinstance(place, ir.Access) and place.tensor.below is not None:
            trace.merge(Polynomial.of(extent) - Polynomial.of(place.tensor.below))
        olds[each.axis] = _wrap_negative(place, extent) if each.wraps else place
    rest = [index for k, index in enumerate(shadow.indices) if k not in axes]
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    first = sum(1 for k in range(axes[0]) if k not in axes) if together else 0
    return [*rest[:first], *common, *rest[first:]], olds


def _wrap_negative(place: ir.Expr, extent: ir.Expr) -> ir.Expr:
    """Places that may lie below zero count from the end there."""
    if isinstance(place, ir.Number):
        return add(place, extent) if place.value < 0 else place
    low = find_range(to_affine(place))[0] if is_whole(place) else None
    if low is not None and is_never_negative(low):
        return place
    return ir.Call("mod", (place, extent))


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
        if any(isinstance(part, ir.Access) for place in olds for part in walk(place)):
            raise call.trace.refuse("lift-write", "a write at places of a tensor is not known")
        target = remap(target, indices, olds)
    write(call.trace, target, call.trace.shadow(call.get(2, "value")))
    return call.shadow(0)


def _concatenate(call: Call) -> Shadow:
    trace = call.trace
    parts = [trace.shadow(tensor) for tensor in call.get(0, "tensors")]
    parts = [part for part in parts if part.rank != 1 or trace.number(part.shape[0])]
    return join(trace, parts, call.axis(1, parts[0].rank, call.named.get("axis", 0)))


def _put_side_by_side(axis: int, vectors: int) -> Callable[..., Any]:
    """Joined along an axis; vectors as rows or columns of a matrix, or as they are."""

    def run(tensors: Any) -> Any:
        import torch

        if all(each.dim() == 1 for each in tensors) and vectors < 0:
            return torch.cat(tensors, 0)
        wide = [each.unsqueeze(vectors) if each.dim() == 1 else each for each in tensors]
        return torch.cat(wide, axis)

    return run


def join(trace: Trace, parts: Sequence[Shadow], axis: int) -> Shadow:
    """Parts one after the other along an axis."""
    total = 0
    starts = []
    for part in parts:
        starts.append(total)
        total = total + trace.to_int(part.shape[axis])
    indices = list(trace.like(*parts[0].indices))
    indices[axis] = trace.index(trace.extent(total))
    kinds = {part.kind for part in parts}
    kind = "real" if "real" in kinds else "int" if "int" in kinds else "bool"
    value: ir.Expr | None = None
    end: int = 0
    for part, start in reversed(list(zip(parts, starts, strict=True))):
        olds: list[ir.Expr] = [at(index) for index in indices]
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


def _stack(tensors: Any, dim: int = 0) -> Any:
    import torch

    return torch.cat([each.unsqueeze(dim) for each in tensors], dim)


def _take(call: Call) -> Shadow:
    """index_select, embedding: whole slices at places of one axis."""
    if call.name == "embedding":
        places, shadow, axis = *_read_embedding(call), 0
    else:
        shadow, places = call.shadow(0), call.shadow(2, "index")
        axis = call.axis(1, shadow.rank)
    return gather_all(call.trace, shadow, [Gather(axis, places, wraps=False)])


def _read_embedding(call: Call) -> tuple[Shadow, Shadow]:
    """Places and rows: the layer's function and torch's own have them in opposite order."""
    first = call.args[0] if call.args else None
    if "indices" in call.named or (first is not None and call.trace.shadow(first).kind == "real"):
        return call.shadow(1, "indices"), call.shadow(0, "weight")
    if call.get(3, "max_norm") is not None:
        raise call.trace.refuse("lift-op", "an embedding with max_norm writes into its weight")
    return call.shadow(0), call.shadow(1, "weight")


def _gather(call: Call) -> Shadow:
    trace, shadow, places = call.trace, call.shadow(0), call.shadow(2, "index")
    axis = call.axis(1, shadow.rank)
    indices = trace.like(*places.indices)
    olds: list[ir.Expr] = [
        ir.ZERO if shadow.shape[k] is ir.ONE else at(index) for k, index in enumerate(indices)
    ]
    for k, index in enumerate(indices):
        if k != axis:
            trace.unify(shadow.shape[k], index.extent)
    olds[axis] = trace.read(places, [at(index) for index in indices])
    return trace.make(indices, trace.read(shadow, olds), shadow.kind)


def _one_hot(tensor: Any, num_classes: Any = -1) -> Any:
    import torch

    if num_classes < 0:
        raise refuse("lift-op", "one_hot without num_classes depends on data")
    return (tensor[..., None] == torch.arange(num_classes)).long()


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
        olds.append(ir.Call("mod", (indices[-1], index.extent)))
    return trace.make(indices, trace.read(shadow, olds), shadow.kind)


def _repeat_each(input: Any, repeats: Any, dim: Any = None, **_: Any) -> Any:
    """Each element several times in a row."""
    if not isinstance(repeats, int) or dim is None:
        raise refuse("lift-op", "repeat_interleave without a dimension is not known")
    axis = dim % input.dim()
    lengths = [-1] * (input.dim() + 1)
    lengths[axis + 1] = repeats
    return input.unsqueeze(axis + 1).expand(lengths).flatten(axis, axis + 1)


def _flip(input: Any, *dims: Any) -> Any:
    import torch

    for dim in dims[0] if isinstance(dims[0], (tuple, list)) else dims:
        length = input.shape[dim]
        input = input.index_select(dim, length - 1 - torch.arange(length))
    return input


def _roll(input: Any, shifts: Any, dims: Any = None) -> Any:
    """The elements moved on, and the last ones first."""
    import torch

    if dims is None or dims in ((), []):
        return input.flatten().roll(shifts, 0).view(input.shape)
    pairs = zip(
        shifts if isinstance(shifts, (tuple, list)) else (shifts,),
        dims if isinstance(dims, (tuple, list)) else (dims,),
        strict=True,
    )
    for shift, dim in pairs:
        length = input.shape[dim]
        input = input.index_select(dim, (torch.arange(length) - shift) % length)
    return input


def _pad(call: Call) -> Shadow:
    """A border of one number, of the last axes first."""
    trace, shadow = call.trace, call.shadow(0)
    widths = list(call.get(1, "pad"))
    if call.get(2, "mode", "constant") != "constant":
        raise trace.refuse("lift-op", "only a constant border is known")
    value = call.get(3, "value")
    indices = list(trace.like(*shadow.indices))
    olds: list[ir.Expr] = [at(index) for index in indices]
    inside: list[ir.Expr] = []
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
    return trace.make(indices, choose(ir.all_of(*inside), found, border), shadow.kind)


def _keep(input: Any, inside: Any) -> Any:
    """The elements there, and 0 elsewhere."""
    import torch

    return torch.where(inside, input, False if input.dtype is torch.bool else 0)


def _triangle(keep: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def run(input: Any, diagonal: Any = 0) -> Any:
        import torch

        rows, columns = (torch.arange(length) for length in input.shape[-2:])
        inside = keep(columns - rows[:, None], diagonal)
        return _keep(input, inside)

    return run


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
    mask, *parts = [trace.shadow(each) for each in _read_choice(call)]
    indices = trace.broadcast(mask, *parts)
    condition = to_condition(trace.spread(mask, indices), mask.kind)
    values = [trace.spread(part, indices) for part in parts]
    if call.kind == "bool":
        return trace.make(indices, choose_truth(condition, *values), "bool")
    one, other = (to_number(v, p.kind) for v, p in zip(values, parts, strict=True))
    return trace.make(indices, choose(condition, one, other), call.kind)


def _fill_masked(input: Any, mask: Any, value: Any) -> Any:
    import torch

    return torch.where(mask, value, input)


def _mesh(*tensors: Any, indexing: str = "ij") -> Any:
    given = tensors[0] if isinstance(tensors[0], (tuple, list)) else tensors
    order = list(range(len(given)))
    if indexing == "xy":
        order[:2] = order[:2][::-1]
    lengths = [given[k].numel() for k in order]
    return tuple(
        each.reshape([-1 if k == number else 1 for k in order]).expand(lengths)
        for number, each in enumerate(given)
    )


def _add_at(call: Call) -> Shadow:
    """index_add, scatter_add: what arrives at a place is summed up."""
    trace, shadow, places = call.trace, call.shadow(0), call.shadow(2, "index")
    axis, is_scatter = call.axis(1, shadow.rank), call.name.startswith("scatter")
    source = call.shadow(3, "src" if is_scatter else "source")
    indices = trace.like(*shadow.indices)
    inner = trace.like(*(places if is_scatter else source).indices)
    own = [at(index if k != axis else inner[k]) for k, index in enumerate(indices)]
    for k, index in enumerate(indices):
        if k != axis:
            trace.unify(index.extent, inner[k].extent)
    taken = trace.read(places, own if is_scatter else [own[axis]])
    arrives = choose(
        compare("==", taken, at(indices[axis])), trace.read_number(source, own), ir.ZERO
    )
    bound = [inner[axis]] if inner[axis].extent is not ir.ONE else []
    total = ir.Reduce("sum", tuple(bound), ir.TRUE, arrives) if bound else arrives
    factor = to_expr(call.named.get("alpha", 1))
    old = trace.read_number(shadow, [at(index) for index in indices])
    return trace.make(indices, add(old, multiply(factor, total)), call.kind)


def _diagonal_matrix(input: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    """A matrix with these elements on its diagonal."""
    import torch

    if offset or (dim1, dim2) != (-2, -1):
        raise refuse("lift-op", "diag_embed beside the diagonal is not known")
    same = torch.eye(input.shape[-1], dtype=torch.bool)
    return _keep(input.unsqueeze(-1), same)


def _diagonal(input: Any, diagonal: int = 0) -> Any:
    """Of a vector the matrix, of a matrix the diagonal."""
    return input.diag_embed(diagonal) if input.dim() == 1 else input.diagonal(diagonal).clone()


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
        "cat concat concatenate",
        _concatenate,
        "x[B, S]; y[B, T]: torch.cat((x, y), 1)",
        "x[B, S]; y[B, S]: torch.cat((x, y, x), -1)",
        "int t[S] < 3; int u[S] < 3: torch.cat((t > 1, u))",
    ),
    composite("hstack", _put_side_by_side(1, -1), "x[B, S]; y[B, T]: torch.hstack((x, y))"),
    composite("vstack row_stack", _put_side_by_side(0, 0), "x[S]; y[S]: torch.vstack((x, y))"),
    composite("column_stack", _put_side_by_side(1, 1), "x[S]; y[S]: torch.column_stack((x, y))"),
    composite("stack", _stack, "x[B, S]; y[B, S]: torch.stack((x, y), -1)"),
    op(
        "index_add scatter_add",
        _add_at,
        "x[N, D]; m[E, D]; int t[E] < N: x.index_add(0, t, m)",
        "x[N, D]; m[E, D]; int t[E, D] < N: x.scatter_add(0, t, m)",
        "x[N, D]; m[E, D]; int t[E] < N: torch.zeros_like(x).index_add_(0, t, m)",
    ),
    composite("diag_embed", _diagonal_matrix, "x[B, S]: x.diag_embed()"),
    composite("diag", _diagonal, "x[S]: torch.diag(x)", "x[S, S]: torch.diag(x, 1)"),
    composite(
        "take", lambda input, index: input.flatten()[index], "x[B, V]; int t[S] < V: x.take(t)"
    ),
    composite("fliplr", lambda input: input.flip(1), "x[B, S]: x.fliplr()"),
    composite("flipud", lambda input: input.flip(0), "x[B, S]: x.flipud()"),
    op("index_select", _take, "x[S, D]; int t[B] < S: torch.index_select(x, 0, t)"),
    op("embedding", _take, "E[V, D]; int t[B, S] < V: torch.nn.functional.embedding(t, E)"),
    op("gather", _gather, "x[B, V]; int t[B] < V: x.gather(1, t[:, None])[:, 0]"),
    composite(
        "take_along_dim",
        lambda input, indices, dim: input.gather(dim, indices),
        "x[B, V]; int t[B] < V: x.take_along_dim(t[:, None], 1)[:, 0]",
    ),
    composite(
        "one_hot", _one_hot, "int t[B] < V; E[V, D]: torch.nn.functional.one_hot(t, E.shape[0])"
    ),
    op("repeat tile", _repeat, "x[B, S]: x.repeat(1, 2)"),
    composite("repeat_interleave", _repeat_each, "x[B, S]: x.repeat_interleave(2, dim=1)"),
    composite("flip", _flip, "x[B, S]: x.flip(1)"),
    composite("roll", _roll, "x[B, S]: x.roll(1, 1)", "x[B, S]: x.roll(-2)"),
    op("pad", _pad, "x[B, S]: torch.nn.functional.pad(x, (1, 2))"),
    composite("tril", _triangle(le), "x[S, T]: x.tril()"),
    composite("triu", _triangle(ge), "x[S, T]: x.triu(1)"),
    op(
        "where",
        _where,
        "x[B, S]; y[B, S]; bool m[S]: torch.where(m, x, y)",
        "x[B, S]; bool m[S]: x.where(m, 0.0)",
        "x[B, S]; y[B, S]; bool m[S]: (x > 1).where(m, y > 1)",
        "x[B, S]; y[B, S]; bool m[S]: torch.where(m, x > 1, y > 1)",
    ),
    composite("masked_fill", _fill_masked, "x[B, S]; bool m[S]: x.masked_fill(m, 0.5)"),
    composite(
        "meshgrid",
        _mesh,
        "x[S]; y[T]: sum(torch.meshgrid(x, y, indexing='ij'))",
        "x[S]: torch.meshgrid(x, x, indexing='ij')[1]",
        "x[S]: torch.meshgrid(x, x, indexing='xy')[1]",
    ),
)
