"""Rows of views, subscripts, writes through them, concatenation, padding and `where`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from derive.analysis import affine
from derive.frontend.torch import exprs
from derive.frontend.torch.call import Call, op, write_through
from derive.frontend.torch.numbers import is_symbolic, to_expr, to_form
from derive.frontend.torch.trace import Shadow, Trace, at, hint_of, kind_of, remap
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, divide_wholly
from derive.ir.walk import find_size_names, is_whole, walk
from derive.libraries import torch


def to_list(value: Any) -> list[Any]:
    """Return one value or several as a list."""
    return list(value) if isinstance(value, (tuple, list)) else [value]


def insert_axis(trace: Trace, shadow: Shadow, axis: int) -> Shadow:
    """Return the view with a new axis of length 1 before `axis`."""
    indices = list(shadow.indices)
    indices.insert(axis, trace.index(ir.ONE))
    return replace(shadow, indices=tuple(indices))


def drop_axis(shadow: Shadow, axis: int, place: ir.Expr = ir.ZERO) -> Shadow:
    """Return the view at one place of an axis, without that axis."""
    indices = tuple(index for k, index in enumerate(shadow.indices) if k != axis)
    olds = [place if k == axis else index for k, index in enumerate(shadow.indices)]
    return remap(shadow, indices, olds)


def narrow(
    trace: Trace, shadow: Shadow, axis: int, length: Any, line: tuple[ir.Expr, int]
) -> Shadow:
    """Return the view at positions start + step * index of an axis; `line` is (start, step)."""
    fresh = trace.index(trace.extent(length), hint_of(shadow.indices[axis]))
    indices, olds = list(shadow.indices), list[ir.Expr](shadow.indices)
    indices[axis] = fresh
    olds[axis] = exprs.add(exprs.multiply(to_expr(line[1]), at(fresh)), line[0])
    return remap(shadow, indices, olds)


def find_place(number: int, extent: ir.Expr) -> ir.Expr:
    """Return a position on an axis; a negative one counts from the end."""
    place = to_expr(number)
    return exprs.add(place, extent) if number < 0 else place


def is_rest(length: Any) -> bool:
    """Whether a length is -1, which stands for the remaining elements."""
    return not is_symbolic(length) and length == -1


def clamp(value: Any, total: int) -> int:
    """Return a bound of a slice, clamped to 0 .. total; a negative one counts from the end."""
    if value < 0:
        value = total + value
    if value > total:
        return total
    number: int = 0 if value < 0 else value
    return number


@op(
    "permute transpose swapaxes swapdims t T movedim moveaxis",
    "x[B, S, D]: x.permute(2, 0, 1)",
    "x[B, S]: x.transpose(-1, 0)",
    "x[B, S]: x.T",
    "x[B, S]: x.H",
    "x[B, S]: x.t()",
    "x[B, S, D]: x.movedim(0, -1)",
    is_view=True,
)
def _permute(call: Call) -> Shadow:
    """Return the permuted view; torch permutes an empty tensor of shape (1, 2, ..) to find it."""
    shadow = call.shadow(0)
    lengths = tuple(range(1, shadow.rank + 1))
    found = getattr(torch.empty(lengths, device="meta"), call.name)
    if callable(found):  # `x.T` is no method
        found = found(*call.args[1:], **{k: each for k, each in call.named.items() if k != "input"})
    return replace(shadow, indices=tuple(shadow.indices[length - 1] for length in found.shape))


@op("unsqueeze", "x[B, S]: x.unsqueeze(-1)", is_view=True)
def _unsqueeze(call: Call) -> Shadow:
    shadow = call.shadow(0)
    return insert_axis(call.trace, shadow, int(call.argument(1, "dim")) % (shadow.rank + 1))


@op(
    "squeeze",
    "x[B, S]: x.unsqueeze(1).squeeze(1)",
    "x[B, S]: x.unsqueeze(1).squeeze()",
    "x[B, S]: x.squeeze(-1)",
    is_view=True,
)
def _squeeze(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    asked = call.argument(1, "dim")
    axes = range(shadow.rank) if asked is None else to_list(asked)
    for axis in sorted((int(k) % max(shadow.rank, 1) for k in axes), reverse=True):
        if trace.to_int(shadow.shape[axis]) == 1:
            trace.unify(shadow.shape[axis], ir.ONE)
            shadow = drop_axis(shadow, axis)
    return shadow


@op("expand broadcast_to", "x[S]: x.expand(2, -1)", is_view=True)
def _expand(call: Call) -> Shadow:
    """Return the view with repeated axes of length 1, and more axes in front."""
    trace, shadow, shape = call.trace, call.shadow(0), call.list_numbers(1, "size")
    extra = len(shape) - shadow.rank
    indices: list[ir.Index] = []
    olds: list[ir.Expr] = []
    for number, asked in enumerate(shape):
        if number < extra:
            indices.append(trace.index(trace.extent(asked)))
            continue
        own = shadow.indices[number - extra]
        extent = own.extent if is_rest(asked) else trace.extent(asked)
        if trace.number(own.extent) == 1 and trace.number(extent) != 1:
            trace.unify(own.extent, ir.ONE)
            indices.append(trace.index(extent))
            olds.append(ir.ZERO)
        else:
            trace.unify(own.extent, extent)
            indices.append(own)
            olds.append(own)
    return remap(shadow, indices, olds)


def _multiply(extents: Sequence[ir.Expr]) -> Polynomial:
    return Polynomial.of(ir.product_of(extents))


@op(
    "view reshape",
    "x[B, S, D]: x.reshape(-1, x.shape[-1])",
    "x[B, S, D]: x.reshape(x.shape[0] * x.shape[1], -1).view(x.shape[0], -1, x.shape[2])",
    is_view=True,
)
def _reshape(call: Call) -> Shadow:
    """Return the reshaped view; an axis with the same extent before and after keeps its index."""
    trace, shadow = call.trace, call.shadow(0)
    asked = call.list_numbers(1, "shape" if "shape" in call.named else "size")
    extents = [None if is_rest(each) else trace.extent(each) for each in asked]
    rest = _multiply([each for each in extents if each is not None])
    new = [
        trace.extent(affine.divide(_multiply(shadow.shape), rest)) if each is None else each
        for each in extents
    ]
    old = list(shadow.indices)
    indices: list[ir.Index] = []
    olds: dict[ir.Index, ir.Expr] = {}
    while old or new:  # the smallest groups of old and new axes with equal products
        total = len(old) + len(new)
        pairs = ((a, n - a) for n in range(1, total + 1) for a in range(min(len(old), n) + 1))
        count, more = next(
            (a, b)
            for a, b in pairs
            if (a == len(old) and b == len(new))
            or (b <= len(new) and _multiply([i.extent for i in old[:a]]) == _multiply(new[:b]))
        )
        own, shape = old[:count], new[:more]
        old, new = old[count:], new[more:]
        if len(own) == 1 and len(shape) == 1:
            indices.append(own[0])
            olds[own[0]] = own[0]
            continue
        whole, parts = _multiply([index.extent for index in own]), _multiply(shape)
        is_plain = all(isinstance(atom, ir.Size) for atom in (whole - parts).atoms)
        sides = whole.to_expr(), parts.to_expr()
        named, others = ({*find_size_names(side)} for side in sides)
        if is_plain or named != others:  # otherwise the extents may be D and H*(D//H)
            trace.unify(*sides)
        fresh = [trace.index(extent) for extent in shape]
        indices += fresh
        flat = affine.ravel([at(index) for index in fresh], [index.extent for index in fresh])
        places = affine.unravel(flat, [index.extent for index in own])
        olds |= zip(own, map(affine.to_place, places), strict=True)
    return remap(shadow, indices, [olds[index] for index in shadow.indices])


@op(
    "narrow",
    "x[B, S]: x.narrow(1, 1, x.shape[1] - 1)",
    "x[B, S]: x.narrow(-1, -1, 1)",
    is_view=True,
)
def _narrow(call: Call) -> Shadow:
    shadow = call.shadow(0)
    axis = call.axis(1, shadow.rank)
    line = (find_place(call.argument(2, "start"), shadow.shape[axis]), 1)
    return narrow(call.trace, shadow, axis, call.argument(3, "length"), line)


@op("diagonal", "x[S, S]: x.diagonal()", "x[S, S]: x.diagonal(1)", is_view=True)
def _diagonal(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    offset = int(call.argument(1, "offset", 0))
    one, other = call.axis(2, shadow.rank, 0, "dim1"), call.axis(3, shadow.rank, 1, "dim2")
    length = trace.to_int(trace.unify(shadow.shape[one], shadow.shape[other])) - abs(offset)
    fresh = trace.index(trace.extent(length))
    olds: list[ir.Expr] = list(shadow.indices)
    olds[one] = exprs.add(at(fresh), to_expr(max(-offset, 0)))
    olds[other] = exprs.add(at(fresh), to_expr(max(offset, 0)))
    indices = [index for k, index in enumerate(shadow.indices) if k not in {one, other}]
    return remap(shadow, [*indices, fresh], olds)


@op("unfold", "x[B, S]: x.unfold(1, 2, 1)", is_view=True)
def _unfold(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    axis = call.axis(1, shadow.rank, None, "dimension")
    size, step = call.argument(2, "size"), call.argument(3, "step")
    count = (trace.to_int(shadow.shape[axis]) - size) // step + 1
    outer, inner = trace.index(trace.extent(count)), trace.index(trace.extent(size))
    indices, olds = list(shadow.indices), list[ir.Expr](shadow.indices)
    indices[axis] = outer
    olds[axis] = exprs.add(exprs.multiply(to_expr(step), at(outer)), at(inner))
    return remap(shadow, [*indices, inner], olds)


@op("split split_with_sizes", "x[B, S]: x.split(1, 1)[0]", is_view=True)
def _split_axis(call: Call) -> tuple[Shadow, ...]:
    trace, shadow = call.trace, call.shadow(0)
    word = "split_size" if "split_size" in call.named else "split_size_or_sections"
    asked, axis = call.argument(1, word), call.axis(2, shadow.rank, 0)
    total = trace.to_int(shadow.shape[axis])
    if isinstance(asked, (tuple, list)):
        lengths = list(asked)
    else:  # the number of pieces is fixed by this run
        if divide_wholly(to_form(total), to_form(asked)) is None:
            total, asked = int(total), int(asked)
        more = int(-(-total // asked)) - 1
        lengths = [asked] * more + [total - more * asked]
    start: int = 0
    found = []
    for length in lengths:
        found.append(narrow(trace, shadow, axis, length, (to_expr(start), 1)))
        start = start + length
    return tuple(found)


@op(
    "as_strided",
    "x[B, S]: x.as_strided((x.shape[0], x.shape[1] - 1, 2), (x.shape[1], 1, 1))",
    is_view=True,
)
def _stride(call: Call) -> Shadow:
    """Return as_strided of a contiguous tensor; DeriveError for other tensors."""
    trace, shadow = call.trace, call.shadow(0)
    tensor, size, steps = call.args[0], call.argument(1, "size"), call.argument(2, "stride")
    start = call.argument(3, "storage_offset", 0) or 0
    if not tensor.is_contiguous() or tensor.storage_offset():
        raise trace.refuse("lift-op", "as_strided of a view is not known")
    indices = [trace.index(trace.extent(length)) for length in size]
    terms = [exprs.multiply(to_expr(s), at(i)) for s, i in zip(steps, indices, strict=True)]
    places = affine.unravel(exprs.add(*terms, to_expr(start)), shadow.shape)
    return remap(shadow, indices, [*map(affine.to_place, places)])


# Subscripts.


@dataclass(frozen=True)
class Gather:
    """An axis read at positions of an integer tensor; `wraps`: negative ones count from the end."""

    axis: int
    places: Shadow
    wraps: bool = True


def subscript(trace: Trace, shadow: Shadow, key: Any) -> tuple[Shadow, list[Gather]]:
    """Return (the view by slices and numbers of a subscript, the gathers by tensors of it)."""
    keys: list[Any] = list(key) if isinstance(key, tuple) else [key]
    keys = [torch.tensor(each) if isinstance(each, list) else each for each in keys]
    rest = [slice(None)] * (shadow.rank - sum(k is not None and k is not Ellipsis for k in keys))
    dots = next((k for k, each in enumerate(keys) if each is Ellipsis), len(keys))
    gathers: list[Gather] = []
    axis = 0
    for each in (*keys[:dots], *rest, *keys[dots + 1 :]):
        if isinstance(each, bool):
            raise trace.refuse("lift-op", "a truth value as a subscript is not known")
        if isinstance(each, int):
            shadow = drop_axis(shadow, axis, find_place(each, shadow.shape[axis]))
            continue
        if each is None:
            shadow = insert_axis(trace, shadow, axis)
        elif isinstance(each, slice):
            shadow = _slice(trace, shadow, axis, each)
        else:
            gathers.append(Gather(axis, trace.shadow(each)))
            if gathers[-1].places.kind != "int":
                says = "a mask as a subscript gives a shape that depends on data"
                raise trace.refuse("lift-op", says, "use torch.where or a product with the mask")
        axis += 1
    return shadow, gathers


def _slice(trace: Trace, shadow: Shadow, axis: int, key: slice) -> Shadow:
    step = 1 if key.step is None else int(key.step)
    total = trace.to_int(shadow.shape[axis])
    start = 0 if key.start is None else clamp(key.start, total)
    stop = total if key.stop is None else clamp(key.stop, total)
    if step == 1 and not is_symbolic(start) and start == 0 and stop is total:
        return shadow
    gap = stop - start
    length = gap if step == 1 else -(-gap // step)
    if length < 0 or (not is_symbolic(length) and length == 0):
        raise trace.refuse("lift-op", "a slice with nothing in it is not known")
    return narrow(trace, shadow, axis, length, (to_expr(start), step))


def gather_all(trace: Trace, shadow: Shadow, gathers: Sequence[Gather]) -> Shadow:
    """Return the tensor of the elements at the positions of `gathers`, with torch's axis order."""
    indices, olds = _find_gathered(trace, shadow, gathers)
    fresh = trace.fresh_indices(*indices)
    moved = exprs.substitute_at(
        trace.read_element(shadow, olds), tuple(indices), tuple(map(at, fresh))
    )
    return trace.make_tensor(fresh, moved, shadow.kind)


def _find_gathered(
    trace: Trace, shadow: Shadow, gathers: Sequence[Gather]
) -> tuple[list[ir.Index], list[ir.Expr]]:
    """Return (indices of the result, the place on each axis of the tensor that is read)."""
    axes = [each.axis for each in gathers]
    common = trace.broadcast(*(each.places for each in gathers))
    olds: list[ir.Expr] = [at(index) for index in shadow.indices]
    for each in gathers:
        place = trace.read_broadcast(each.places, common)
        extent = shadow.shape[each.axis]
        if each.wraps and isinstance(place, ir.Number):
            place = exprs.add(place, extent) if place.value < 0 else place
        elif each.wraps:  # a position that may be negative counts from the end
            is_inside = is_whole(place) and affine.find_truth("least", affine.to_linear(place))
            place = place if is_inside else ir.Call("mod", (place, extent))
        olds[each.axis] = place
    rest = [index for k, index in enumerate(shadow.indices) if k not in axes]
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    first = sum(1 for k in range(axes[0]) if k not in axes) if together else 0
    return [*rest[:first], *common, *rest[first:]], olds


@op(
    "__getitem__",
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
)
def _index_tensor(call: Call) -> Shadow:
    shadow, gathers = subscript(call.trace, call.shadow(0), call.argument(1, "index"))
    return gather_all(call.trace, shadow, gathers) if gathers else shadow


@op(
    "__setitem__",
    "x[B, S]: y = x.clone(); y[:, 0] = 0; y",
    "x[B, S]: y = torch.zeros_like(x); y[:, 1:] = x[:, :-1]; y",
    "x[B, S]; bool m[B]: y = x.clone(); y[m] = 2.0; y",
    "x[S, S]: y = x.clone(); i = torch.arange(x.shape[0]); y[i, i] = 0; y",
    is_write=True,
)
def _set(call: Call) -> Shadow:
    trace, target, key = call.trace, call.shadow(0), call.argument(1, "index")
    value = trace.shadow(call.argument(2, "value"))
    if getattr(key, "dtype", None) is not None and kind_of(key) == "bool":
        mask = trace.shadow(key)  # `x[mask] = number` is a write of a choice to the whole tensor
        if value.rank or mask.rank > target.rank:
            raise trace.refuse("lift-write", "a write of many values at a mask is not known")
        indices, old = trace.read_fresh(target)
        for own, index in zip(mask.indices, indices, strict=False):
            trace.unify(own.extent, index.extent)
        condition = trace.read_element(mask, [at(index) for index in indices[: mask.rank]])
        new = exprs.choose(condition, trace.read_number(value, ()), old)
        write_through(trace, target, trace.make_tensor(indices, new, target.kind))
        return target
    view, gathers = subscript(trace, target, key)
    if gathers:
        places, olds = _find_gathered(trace, view, gathers)
        if any(isinstance(part, ir.Access) for place in olds for part in walk(place)):
            raise trace.refuse("lift-write", "a write at places of a tensor is not known")
        view = remap(view, places, olds)
    write_through(trace, view, value)
    return target


@op(
    "index_select embedding",
    "x[S, D]; int t[B] < S: torch.index_select(x, 0, t)",
    "E[V, D]; int t[B, S] < V: torch.nn.functional.embedding(t, E)",
)
def _gather_slices(call: Call) -> Shadow:
    """Return the slices at integer positions of one axis.

    `nn.functional.embedding` takes (positions, rows), `torch.embedding` takes (rows, positions).
    """
    trace = call.trace
    if call.name == "index_select":
        shadow, places = call.shadow(0), call.shadow(2, "index")
        axis = call.axis(1, shadow.rank)
    elif "indices" in call.named or (call.args and call.shadow(0).kind == "real"):
        shadow, axis, places = call.shadow(0, "weight"), 0, call.shadow(1, "indices")
    elif call.argument(3, "max_norm") is not None:
        raise trace.refuse("lift-op", "an embedding with max_norm writes into its weight")
    else:
        shadow, axis, places = call.shadow(1, "weight"), 0, call.shadow(0)
    return gather_all(trace, shadow, [Gather(axis, places, wraps=False)])


@op("gather", "x[B, V]; int t[B] < V: x.gather(1, t[:, None])[:, 0]")
def _gather(call: Call) -> Shadow:
    trace, shadow, places = call.trace, call.shadow(0), call.shadow(2, "index")
    axis = call.axis(1, shadow.rank)
    indices = trace.fresh_indices(*places.indices)
    olds: list[ir.Expr] = [
        ir.ZERO if shadow.shape[k] is ir.ONE else at(index) for k, index in enumerate(indices)
    ]
    for k, index in enumerate(indices):
        if k != axis:
            trace.unify(shadow.shape[k], index.extent)
    olds[axis] = trace.read_element(places, [at(index) for index in indices])
    return trace.make_tensor(indices, trace.read_element(shadow, olds), shadow.kind)


@op(
    "index_add scatter_add",
    "x[N, D]; m[E, D]; int t[E] < N: x.index_add(0, t, m)",
    "x[N, D]; m[E, D]; int t[E, D] < N: x.scatter_add(0, t, m)",
    "x[N, D]; m[E, D]; int t[E] < N: torch.zeros_like(x).index_add_(0, t, m)",
)
def _add_at(call: Call) -> Shadow:
    """Return the tensor plus, at each position, the sum of the source elements with that index."""
    trace, shadow, places = call.trace, call.shadow(0), call.shadow(2, "index")
    axis, is_scatter = call.axis(1, shadow.rank), call.name.startswith("scatter")
    source = call.shadow(3, "src" if is_scatter else "source")
    indices, old = trace.read_fresh(shadow)
    inner = trace.fresh_indices(*(places if is_scatter else source).indices)
    own = [at(index if k != axis else inner[k]) for k, index in enumerate(indices)]
    for k, index in enumerate(indices):
        if k != axis:
            trace.unify(index.extent, inner[k].extent)
    taken = trace.read_element(places, own if is_scatter else [own[axis]])
    is_there = exprs.compare("==", taken, at(indices[axis]))
    arrives = exprs.choose(is_there, trace.read_number(source, own), ir.ZERO)
    total = exprs.reduce_over("sum", [inner[axis]], arrives)
    factor = to_expr(call.named.get("alpha", 1))
    return trace.make_tensor(indices, exprs.add(old, exprs.multiply(factor, total)), call.kind)


# Concatenation, padding, choices.


@op(
    "cat concat concatenate",
    "x[B, S]; y[B, T]: torch.cat((x, y), 1)",
    "x[B, S]; y[B, S]: torch.cat((x, y, x), -1)",
    "int t[S] < 3; int u[S] < 3: torch.cat((t > 1, u))",
)
def _concatenate(call: Call) -> Shadow:
    """Return the concatenation along an axis."""
    trace = call.trace
    parts = [trace.shadow(tensor) for tensor in call.argument(0, "tensors")]
    parts = [part for part in parts if part.rank != 1 or trace.number(part.shape[0])]
    axis = call.axis(1, parts[0].rank, call.named.get("axis", 0))
    total, starts = 0, []
    for part in parts:
        starts.append(total)
        total = total + trace.to_int(part.shape[axis])
    indices = list(trace.fresh_indices(*parts[0].indices))
    indices[axis] = trace.index(trace.extent(total))
    kind = call.kind
    value: ir.Expr | None = None
    end: int = 0
    for part, start in reversed(list(zip(parts, starts, strict=True))):
        olds: list[ir.Expr] = [at(index) for index in indices]
        olds[axis] = exprs.subtract(at(indices[axis]), to_expr(start))
        for k, index in enumerate(indices):
            if k != axis:
                trace.unify(part.shape[k], index.extent)
        here = trace.read_element(part, olds)
        here = here if kind == "bool" else exprs.to_number(here)
        if value is not None:
            inside = exprs.decide("<", at(indices[axis]), to_expr(end))
            here = exprs.choose(inside, here, value)
        value, end = here, start
    assert value is not None
    return trace.make_tensor(indices, value, kind)


@op("constant_pad_nd", "x[B, S]: torch.constant_pad_nd(x, (1, 2), 0.5)")
def _pad(call: Call) -> Shadow:
    """Return the tensor padded by a constant; the widths of the last axis come first."""
    trace, shadow = call.trace, call.shadow(0)
    widths = list(call.argument(1, "pad"))
    value = call.argument(2, "value")
    indices = list(trace.fresh_indices(*shadow.indices))
    olds: list[ir.Expr] = [at(index) for index in indices]
    inside: list[ir.Expr] = []
    for number, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=False)):
        k = shadow.rank - 1 - number
        if not is_symbolic(before) and not is_symbolic(after) and before == 0 == after:
            continue
        length = trace.to_int(shadow.shape[k]) + before + after
        indices[k] = trace.index(trace.extent(length))
        olds[k] = exprs.subtract(at(indices[k]), to_expr(before))
        inside.append(exprs.within(olds[k], shadow.shape[k]))
    border = to_expr(0 if value is None else value)
    found = trace.read_number(shadow, olds)
    return trace.make_tensor(indices, exprs.choose(ir.all_of(*inside), found, border), shadow.kind)


@op(
    "where where_of_tensor",
    "x[B, S]; y[B, S]; bool m[S]: torch.where(m, x, y)",
    "x[B, S]; bool m[S]: x.where(m, 0.0)",
    "x[B, S]; y[B, S]; bool m[S]: (x > 1).where(m, y > 1)",
    "x[B, S]; y[B, S]; bool m[S]: torch.where(m, x > 1, y > 1)",
)
def _where(call: Call) -> Shadow:
    trace, words = call.trace, ["condition", "input", "other"]
    words[:2] = reversed(words[:2]) if call.name == "where_of_tensor" else words[:2]
    given = {word: call.argument(k, word) for k, word in enumerate(words)}
    if any(each is None for each in given.values()):
        raise trace.refuse("lift-op", "where of a condition alone depends on data")
    mask, *parts = (trace.shadow(given[word]) for word in ("condition", "input", "other"))
    indices = trace.broadcast(mask, *parts)
    condition = exprs.to_condition(trace.read_broadcast(mask, indices))
    values = [trace.read_broadcast(part, indices) for part in parts]
    values = values if call.kind == "bool" else [*map(exprs.to_number, values)]
    return trace.make_tensor(indices, exprs.choose(condition, *values), call.kind)
