"""Reads of a tensor at index expressions, as views without a copy where torch has them.

A place that is affine in its indices, offset + sum of step * index, becomes

    pad, slice        the range from the least to the largest position that is read
    flip              for an index with a negative step
    slice             for one index, start:stop:step
    unflatten         for steps that are products of the following extents, h*D + d
    unfold            for other steps, z*t + k: windows
    flatten, slice    for k - i with another place i: rows that are each shifted by one position

A function of one affine form, clip(j - i, -c, c), is gathered once per value of the form, and the
form is read as above. Any other place, and every data-dependent place, is gathered by a tensor of
integers.

Outside of the tensor a view reads zeros, and integers are clipped: conditions around the read
exclude these values.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise

from derive.analysis.affine import simplify_place, to_linear, to_place
from derive.analysis.extents import find_guard, is_above_zero
from derive.analysis.facts import find_facts, find_range, is_never_negative, is_positive
from derive.analysis.places import split_merged
from derive.ir import nodes as ir
from derive.ir.polynomial import ONE, Polynomial, is_same_extent, split_steps
from derive.ir.walk import exchange, find_accesses, find_free
from derive.plan import ops
from derive.plan.lower.condition import lower_index
from derive.plan.lower.context import Context, layout_of
from derive.plan.lower.forms import AffineForm, find_form
from derive.plan.lower.patterns import make_cell
from derive.plan.steps import free_name

Remaining = tuple[tuple[ir.Index, ir.Expr], ...]  # pairs (temporary index, place to be gathered)


@lru_cache(maxsize=1 << 14)
def read_tensor(
    access: ir.Access, layout: tuple[int, ...], stored: tuple[tuple[ir.Index, ...], ...] | None
) -> tuple[ops.Op, Remaining]:
    """Return (the tensor as a chain of views over distinct indices, the places left to gather).

    `layout` is the storage order of the axes. If the tensor's equation merges indices in a place,
    they are stored as separate axes; `stored` has them, place by place. A place that no view can
    read has a temporary index.
    """
    shape = access.tensor.shape
    places = [access.places[k] for k in layout]
    extents = [shape[k] for k in layout]
    parts: list[tuple[ir.Index, ...]] = [stored[k] if stored else () for k in layout]
    axes: list[ir.Index] = []
    merge: list[tuple[int, int, int]] = []  # (place, first axis, last axis)
    for k, (place, extent, indices) in enumerate(zip(places, extents, parts, strict=True)):
        if len(indices) < 2:
            axes.append(_hold_place(k, place, extent))
            continue
        found = split_merged(place, extent)
        if [i.extent for i in found] == [i.extent for i in indices]:
            places[k] = found[0]
            axes += found
        else:
            merge.append((k, len(axes), len(axes) + len(indices) - 1))
            axes += (ir.Index(f"#{k}.{n}", i.extent) for n, i in enumerate(indices))
    op: ops.Op = ops.Source(access.tensor.name, tuple(axes), access.tensor.kind)
    for k, start, end in reversed(merge):
        op = ops.Flatten(op, start, end, _hold_place(k, places[k], extents[k]))
    left: dict[ir.Index, ir.Expr] = {}
    forms: dict[ir.Index, AffineForm] = {}
    for k, place in reversed(list(enumerate(places))):
        axis = next((axis for axis in op.axes if axis.name == f"#{k}"), None)
        if axis is None:
            continue
        at = op.axes.index(axis)
        if not find_free(place) and not find_accesses(place):
            op = ops.Select(op, at, place)
        elif (form := find_form(place, axis.extent)) is None:
            left = {axis: place, **left}
        else:
            forms[axis] = form
    for is_windowed in (False, True):  # a skewed place needs the axis of its rows first
        cut: dict[ir.Index, AffineForm] = {}
        for axis, form in forms.items():
            if form.is_windowed is is_windowed:
                at, read = op.axes.index(axis), {i for each in cut.values() for i, _ in each.steps}
                whole = replace(form, row=_find_row(form, {*op.axes, *read}))
                op, form_there = _cut_axis(op, at, whole, is_made=stored is not None)
                cut[op.axes[at]] = form_there
        for axis, form in cut.items():
            op = _read_form(op, op.axes.index(axis), form)
    return _take_diagonals(op), tuple(left.items())


def _hold_place(position: int, place: ir.Expr, extent: ir.Expr) -> ir.Index:
    """Return the index of a plain place, else a temporary index."""
    if isinstance(place, ir.Index) and is_same_extent(place.extent, extent):
        return place
    return ir.Index(f"#{position}", extent)


def _take_diagonals(op: ops.Op) -> ops.Op:
    while True:
        axes = op.axes
        twice = next((k for k, a in enumerate(axes) if a in axes[:k]), None)
        if twice is None:
            return op
        op = ops.Diagonal(op, axes.index(axes[twice]), twice)


def _find_row(form: AffineForm, axes: Set[ir.Index]) -> ir.Index | None:
    """Return the row k of a form i - k or i + k, if k alone is an axis already; else None."""
    plain = len(form.steps) == 2 and all(step == ONE for _, step in form.steps)
    known = [index for index, _ in form.steps if index in axes]
    return known[0] if plain and len(known) == 1 else None


def _flip_skewed(op: ops.Op, at: int, form: AffineForm) -> tuple[ops.Op, AffineForm]:
    """Flip the axis of a skewed form k - i; return (the tensor, the form in the new axis)."""
    if form.row is None or all(index == form.row for index in form.down):
        return op, form
    axis = op.axes[at]
    down = () if form.row in form.down else (form.row,)
    low = Polynomial.of(axis.extent) - form.low - form.length
    op = ops.Flip(op, at, ir.Index(f"{axis.name}-", axis.extent))
    return op, replace(form, down=down, low=low)


def _cut_axis(
    op: ops.Op, at: int, form: AffineForm, *, is_made: bool = False
) -> tuple[ops.Op, AffineForm]:
    """Cut or pad an axis to the range of a form, and return (the tensor, the form in that range).

    Torch needs at least one window, so a square form gets a spare position if the tensor is padded
    anyway or is intermediate (`is_made`).
    """
    op, form = _flip_skewed(op, at, form)
    axis = op.axes[at]
    is_inside = _is_in_bounds(axis, form)
    if form.row is not None:
        rows = Polynomial.of(form.row.extent)  # fewer than two rows have no position to spare
        if form.down and not _has_positions(rows - ONE - ONE):
            form = replace(form, low=form.low - ONE, length=form.length + ONE + ONE, spare=-1)
        elif not _has_positions(form.length):
            form = replace(form, length=form.length + ONE)
    elif form.is_square and (is_made or not is_inside):
        spare = 1 if is_never_negative(form.low) else -1
        low = form.low if spare > 0 else form.low - ONE
        form = replace(form, low=low, length=form.length + ONE, spare=spare)
    return _pad_axis(op, at, form), form


def _pad_axis(op: ops.Op, at: int, form: AffineForm) -> ops.Op:
    axis = op.axes[at]
    length = Polynomial.of(axis.extent)
    if form.low == Polynomial.of(0) and form.length == length:
        return op
    index = ir.Index(f"{axis.name}'", form.length.to_expr())
    if _is_in_bounds(axis, form):
        return ops.Slice(op, at, index, form.low.to_expr())
    (last, step), *others = form.steps
    if not others and step != ONE:  # whole steps only, so that an extent of 0 reads nothing
        rest = step - ONE
        low = form.low - rest if last in form.down else form.low
        form = replace(form, low=low, length=step * Polynomial.of(last.extent))
        index = ir.Index(index.name, form.length.to_expr())
    # A side that may be shorter than the cut is padded first and sliced afterwards.
    before = Polynomial.of(0) - form.low
    extents = [Polynomial.of(form.steps[0][0].extent)] if form.is_windowed else []
    if is_never_negative(before) and not _has_positions(form.length - before, *extents):
        start, long = Polynomial.of(0), form.length + before
    elif is_never_negative(form.low) and not _has_positions(length - form.low, *extents):
        start, before, long = form.low, Polynomial.of(0), form.low + form.length
    else:
        start, long = before, form.length
    if long == form.length:
        return ops.Pad(op, at, index, before.to_expr())
    op = ops.Pad(op, at, ir.Index(f"{axis.name}''", long.to_expr()), before.to_expr())
    return ops.Slice(op, at, index, start.to_expr())


def _is_in_bounds(axis: ir.Index, form: AffineForm) -> bool:
    """Whether all positions of a form are in bounds; an extent max(n, 0) is taken as n."""
    rest = Polynomial.of(axis.extent) - form.low - form.length
    for atom in rest.atoms:
        match atom, rest.split_linear(atom):
            case ir.Call("max", (count, ir.ZERO)), (slope, other) if slope == -ONE:
                rest = other - Polynomial.of(count)
    return is_never_negative(form.low) and is_never_negative(rest)


def _has_positions(rest: Polynomial, *extents: Polynomial) -> bool:
    """Whether a remainder is >= 0 even where sizes are 0; the extents are known to be >= 0."""
    found = (rest + ONE - extent for extent in (Polynomial.of(0), *extents))
    return any(is_above_zero(each.to_expr()) for each in found)


def _read_form(op: ops.Op, at: int, form: AffineForm) -> ops.Op:
    """Replace an axis, cut to the range of a form, by the indices of the form."""
    down = form.down
    if form.row is not None:
        return _skew(op, at, form, form.row)
    if len(down) == len(form.steps):
        axis = op.axes[at]
        op, down = ops.Flip(op, at, ir.Index(f"{axis.name}-", axis.extent)), ()
    made = {i: ir.Index(f"{i.name}-", i.extent) if i in down else i for i, _ in form.steps}
    steps = [(made[i], step) for i, step in form.steps]
    if form.spare:
        (outer, step), (inner, _) = steps
        more = ir.Index(f"{outer.name}'", (Polynomial.of(outer.extent) + ONE).to_expr())
        is_before = (form.spare < 0) != (form.down != down)  # a flip moves the spare position
        start = ir.ONE if is_before else ir.ZERO
        op = ops.Slice(ops.Unfold(op, at, more, inner, step.to_expr()), at, outer, start)
    else:
        op = _unfold(op, at, steps)
    for index in down:
        op = ops.Flip(op, op.axes.index(made[index]), index)
    return op


def _skew(op: ops.Op, at: int, form: AffineForm, down: ir.Index) -> ops.Op:
    """Shift each row (index `down`) by one more position, x[i,k - i], by flattening and reshaping.

    For x[i,k + i] rows become longer by one position, and zeros are appended.
    """
    axis = op.axes[at]
    op = _take_diagonals(op)
    (along,) = (index for index, _ in form.steps if index != down)
    axes = [each for each in op.axes if each is not axis]
    at = axes.index(down)
    op = ops.arrange(op, (*axes[: at + 1], axis, *axes[at + 1 :]))
    more = Polynomial.of(-1 if form.down else 1)
    rows = (down, ir.Index(f"{axis.name}.", (Polynomial.of(axis.extent) + more).to_expr()))
    op = ops.Flatten(op, at, at + 1, ops.merge_indices((down, axis)))
    if form.down:
        start = Polynomial.of(down.extent) - (Polynomial.of(0) if form.spare else ONE)
        op = ops.Slice(op, at, ops.merge_indices(rows), start.to_expr())
    else:
        op = ops.Pad(op, at, ops.merge_indices(rows), ir.ZERO)
    op = ops.Unflatten(op, at, rows)
    return ops.Slice(op, at + 1, along)


def _skip_entries(op: ops.Op, at: int, index: ir.Index, step: ir.Expr) -> ops.Op | None:
    """Return the operation with a step in its slice of an axis; None if no slice cuts that axis."""
    match op:
        case ops.Slice(arg, place, _, start, each) if place == at and each is ir.ONE:
            return ops.Slice(arg, at, index, start, step)
        case ops.Slice(arg, place, other, start, each) if place != at:
            inner = _skip_entries(arg, at, index, step)
            return inner and ops.Slice(inner, place, other, start, each)
    return None


def _unfold(op: ops.Op, at: int, steps: list[tuple[ir.Index, Polynomial]]) -> ops.Op:
    """Replace an axis that is exactly the range of positive steps from 0 by their indices."""
    (index, step), *inner = steps
    if not inner:
        if step == ONE:
            return ops.rename_indices(op, {op.axes[at]: index})
        return _skip_entries(op, at, index, step.to_expr()) or ops.Slice(
            op, at, index, ir.ZERO, step.to_expr()
        )
    size = ONE
    for each, by in inner:
        size = size + by * (Polynomial.of(each.extent) - ONE)
    (last, by), *more = inner
    is_whole = not more and by == ONE
    window = last if is_whole else ir.Index(f"{op.axes[at].name}.", size.to_expr())
    if size == step and Polynomial.of(op.axes[at].extent) == step * Polynomial.of(index.extent):
        op, at = ops.Unflatten(op, at, (index, window)), at + 1
    else:
        op = ops.Unfold(op, at, index, window, step.to_expr())
        at = len(op.axes) - 1
    return op if is_whole else _unfold(op, at, inner)


def take_places(
    op: ops.Op, left: Mapping[ir.Index, ir.Expr], context: Context, order: tuple[ir.Index, ...]
) -> ops.Op:
    """Replace the temporary axes in `left` by a gather at the place of each."""
    by: dict[ir.Index, ops.Op] = {}
    if len({*op.axes}) == len(op.axes):
        at_once = _take_by_data(op, left, context)
        if at_once is not None:
            return at_once
    for axis, place in left.items():
        rolled = _lower_roll(op, axis, place, context)
        form = _find_core(place)
        low, high = find_range(to_linear(form)) if form is not None else (None, None)
        if rolled is not None:
            op = rolled
        elif form is None or low is None or high is None:
            by[axis] = _lower_position(place, axis.extent, context, order)
        else:
            taken = {*context.names, *(index.name for index in find_free(place))}
            run = ir.Index(free_name("shift", taken), (high - low + ONE).to_expr())
            along = exchange(place, form, to_place(Polynomial.of(run) + low))
            at = op.axes.index(axis)
            op = take_positions(
                op, {axis: _lower_position(along, axis.extent, context, (run,))}, order
            )
            rest = ir.Add((form, (-low).to_expr()))
            found = find_form(rest, run.extent)
            assert found is not None
            op, found = _cut_axis(op, at, replace(found, row=_find_row(found, {*op.axes})))
            op = _read_form(op, at, found)
        op = _take_diagonals(op)
    if not by:
        return op
    indices = {i for each in by.values() for i in each.axes}
    by |= {axis: lower_index(axis, context) for axis in op.axes if axis in indices}
    return take_positions(op, by, order)


def take_positions(
    op: ops.Op, by: Mapping[ir.Index, ops.Op], order: tuple[ir.Index, ...]
) -> ops.Op:
    """Gather along the axes in `by`, each at the positions that its integers have."""
    axes = op.axes
    places = tuple(k for k, axis in enumerate(axes) if axis in by)
    union = ops.find_union([by[axes[k]] for k in places], order)
    integers = tuple(ops.arrange(by[axes[k]], union) for k in places)
    kept = [axis for axis in axes if axis not in by]
    is_one_block = places[-1] - places[0] + 1 == len(places)
    start = places[0] if is_one_block else 0
    return ops.Take(op, places, integers, (*kept[:start], *union, *kept[start:]))


def _join_neighbours(
    op: ops.Op, left: Mapping[ir.Index, ir.Expr]
) -> tuple[ops.Op, Mapping[ir.Index, ir.Expr]]:
    """(op, left) with adjacent axes at data-dependent places merged, if there are other axes."""
    axes = op.axes
    for at, (one, other) in enumerate(pairwise(axes) if len(left) < len(axes) else ()):
        if one in left and other in left and all(find_accesses(left[i]) for i in (one, other)):
            joined = ops.merge_indices((one, other))
            place = _join_places((left[one], left[other]), (one, other))
            rest = {i: p for i, p in left.items() if i not in (one, other)}
            return _join_neighbours(ops.flatten(op, at, at + 1), {joined: place, **rest})
    return op, left


def _join_places(places: Sequence[ir.Expr], axes: Sequence[ir.Index]) -> ir.Expr:
    """Return the position in a merged axis of places in its parts, each clipped to its extent."""
    whole: ir.Expr = ir.ZERO
    for place, axis in zip(places, axes, strict=True):
        last = simplify_place(ir.Add((axis.extent, ir.MINUS_ONE)))
        is_inside = find_guard(place, axis.extent) is ir.TRUE
        inside = place if is_inside else ir.Call("clip", (place, ir.ZERO, last))
        before = ir.Mul((whole, axis.extent))
        whole = inside if whole is ir.ZERO else ir.Add((before, inside))
    return whole


def _take_by_data(op: ops.Op, left: Mapping[ir.Index, ir.Expr], context: Context) -> ops.Op | None:
    """Gather at the places in `left`, of one axis or adjacent ones, by one call; or return None.

    The positions may depend on other axes. Whole rows are gathered by index_select, else by gather.
    """
    source, joined = _join_neighbours(op, left)
    ((axis, place), *more), axes = joined.items(), source.axes
    at, free = axes.index(axis), find_free(place)
    lead, new = tuple(i for i in axes if i in free), tuple(i for i in free if i not in axes)
    is_wide = len(left) > 1 if not lead else axis is not axes[-1]
    is_rows = is_wide and axes[max(at - len(lead), 0) : at] == lead
    if more or not (is_rows or (lead and new)):
        return None
    start, run = (at - len(lead), (*lead, *new)) if is_rows else (at, new)
    full = (*axes[:start], *run, *axes[at + 1 :])
    order = ops.sort_axes(free, full)
    given = {i: _lower_position(p, i.extent, context, order) for i, p in left.items()}
    given |= {i: lower_index(i, context) for i in lead}
    whole = ops.arrange(take_positions(op, given, order), full)
    number = _join_places(*((*lead, place), (*lead, axis)) if is_rows else ((place,), (axis,)))
    by = ops.strip_casts(context.lower(number, order))
    by = ops.arrange(by, ops.sort_axes(by.axes, full))
    if is_rows:
        source = ops.flatten(source, start, at) if lead else source
        by = ops.Expand(by, run) if by.axes != run else by
    index = run[0]
    if len(run) > 1:
        index, first = ops.merge_indices(run), by.axes.index(run[0])
        by = ops.Flatten(by, first, first + len(run) - 1, index)
        whole = ops.flatten(whole, start, start + len(run) - 1)
    made = (*axes[:start], index, *axes[at + 1 :])
    by = ops.Expand(by, made) if not is_rows and by.axes != made else by
    text = f"x.{'index_select' if is_rows else 'gather'}({start}, by)"
    cell = make_cell(text, {"x": source, "by": by}, whole, made)
    return ops.Unflatten(cell, start, run) if len(run) > 1 else cell


def _find_core(place: ir.Expr) -> ir.Expr | None:
    """Return the affine form over several indices that a position is a function of, or None."""
    while True:
        parts = [part for part in place.children if find_free(part) or find_accesses(part)]
        if len(parts) != 1:
            break
        place = parts[0]
    steps = split_steps(to_linear(place))[0]
    is_affine = all(isinstance(atom, ir.Index) for atom in steps)
    signs = [is_positive(step) or is_positive(-step) for step in steps.values()]
    return place if len(steps) > 1 and is_affine and all(signs) else None


def _lower_position(
    place: ir.Expr, extent: ir.Expr, context: Context, order: tuple[ir.Index, ...]
) -> ops.Op:
    """Lower a position to integers, clipped to the extent unless it is in bounds."""
    op = ops.strip_casts(context.lower(place, order))
    numbers: dict[ops.Op, ops.Op] = {
        n: ops.Num(n.value) for n in ops.walk_ops(op) if isinstance(n, ops.NumTensor)
    }
    op = ops.exchange(op, numbers)  # divisors are extents, which are not 0 where a position exists
    if find_guard(place, extent) is ir.TRUE:
        return op
    last = simplify_place(ir.Add((extent, ir.MINUS_ONE)))
    return ops.Apply("clip", (op, ops.Num(ir.ZERO), ops.Num(last)), op.axes)


def _lower_roll(op: ops.Op, axis: ir.Index, place: ir.Expr, context: Context) -> ops.Op | None:
    """Lower a cyclic read, (form + shift) mod extent, to torch.roll, or return None.

    The form may have several indices, as in h*D + d.
    """
    match place:
        case ir.Call("mod", (over, under)) if is_same_extent(under, axis.extent):
            form = to_linear(over)
            steps, constant = split_steps(form)
        case _:
            return None
    found = find_form(to_place(form - constant), axis.extent) if steps else None
    length = Polynomial.of(axis.extent)
    if found is None or found.low.terms or found.length != length or found.is_windowed:
        return None
    at, indices = op.axes.index(axis), [index for index, _ in found.steps]
    run = indices[0]
    if len(indices) > 1:
        taken = {*context.names, *(index.name for index in indices)}
        run = ir.Index(free_name("shift", taken), axis.extent)
    run_place = ir.Call("mod", (to_place(Polynomial.of(run) + constant), axis.extent))
    whole = take_positions(
        op, {axis: _lower_position(run_place, axis.extent, context, (run,))}, (run,)
    )
    shift = (-constant).to_expr()
    rolled = make_cell(f"x.roll(shift, {at})", {"x": op, "shift": ops.Num(shift)}, whole)
    return rolled if len(indices) == 1 else _read_form(rolled, at, found)


def drop_padded(condition: ir.Expr, factor: ir.Expr, context: Context) -> ir.Expr:
    """Remove bounds checks from the condition of a read whose padding is zero anyway."""
    if condition is ir.TRUE or not isinstance(factor, ir.Access) or factor.tensor.kind != "real":
        return condition
    stored = context.stored.get(factor.tensor.name)
    op, left = read_tensor(factor, layout_of(factor.tensor, context), stored)
    views = list(ops.walk_ops(op))[1:]
    if left or not all(isinstance(view, (*ops.VIEWS, ops.Pad, ops.Flip)) for view in views):
        return condition
    parts = ir.split_and(condition)
    ends: set[Polynomial] = set()
    for place, extent in zip(factor.places, factor.tensor.shape, strict=True):
        value = Polynomial.of(place)
        ends |= {value, Polynomial.of(extent) - ONE - value}
    return ir.all_of(*(p for p in parts if not (f := find_facts(p)) or not ends.issuperset(f)))
