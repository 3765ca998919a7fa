"""The text of the index language: the notation that all stages print and `derive.parse` reads back.

`to_text` returns an expression's line, `find_span` the columns of a node in it, for the carets of
an error. `to_lines` returns the lines of a system: declarations, sizes, index lines, the value of
empty rows, equations, results.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import groupby

from derive.errors import Mark
from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.ir.pieces import find_span, find_spans, to_compact, to_text
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.walk import (
    as_written,
    find_accesses,
    find_all_indices,
    find_broadcast,
    find_free,
    find_start,
    walk,
)

__all__ = ["find_span", "to_declaration", "to_lines", "to_text"]


def to_lines(system: ir.System) -> tuple[str, ...]:
    """The lines of a system: its declarations, and its equations as they were written."""
    system = as_written(system)
    declarations = "; ".join(_declare(system))
    lines = [declarations] if declarations else []
    for size in system.sizes:
        lines.append(f"size {size.name}" + (f" = {size.default}" if size.default else ""))
    lines += _write_index_lines(system)
    lines += write_empty_row(system)
    lines += [to_text(equation) for equation in system.equations]
    last = system.equations[-1].target.tensor if system.equations else None
    if system.results != (last,):
        lines.append("return " + ", ".join(tensor.name for tensor in system.results))
    return tuple(lines)


def to_declaration(tensor: ir.Tensor) -> str:
    """The line that declares one tensor."""
    return _declaration((tensor,))


def _declare(system: ir.System) -> Iterator[str]:
    """The declarations of the inputs in order; neighbours that differ in name only share one."""
    for _, alike in groupby(system.inputs, key=_find_shared):
        group = tuple(alike)
        tensors = tuple(entry for entry in group if isinstance(entry, ir.Tensor))
        scalars = [entry for entry in group if isinstance(entry, ir.ScalarInput)]
        ends = (f" = {to_text(s.default)}" if s.default is not None else "" for s in scalars)
        written = map(str.__add__, (_bound(scalar, scalar.name) for scalar in scalars), ends)
        yield _declaration(tensors) if tensors else f"scalar {', '.join(written)}"


def _find_shared(entry: ir.Tensor | ir.ScalarInput) -> tuple[object, ...]:
    """The properties that the inputs of one declaration share: `Q, K[N, D]`."""
    match entry:
        case ir.Tensor(_, shape, kind, below, _, _, strict):
            return (shape, kind, below, *_find_bounds(entry), strict)
        case ir.ScalarInput():  # a scalar with a bound has a statement of its own
            return (entry if entry.lower or entry.upper else None,)


def _find_bounds(tensor: ir.Tensor | ir.ScalarInput) -> tuple[ir.Expr | None, ...]:
    """The pair (lower, upper) of bounds; None for no bound and for an infinite one."""
    ends = tensor.lower, tensor.upper
    return tuple(None if isinstance(end, ir.Infinity) else end for end in ends)


def _write_index_lines(system: ir.System) -> Iterator[str]:
    """The lines such as `index i, j < N`; neighbours with equal extents share one."""
    every = [index.name for index in find_all_indices(system)]
    declared = (*system.declared, *find_contradicted(system, every))
    undeduced = find_undeduced(replace(system, declared=declared))
    for extent, group in groupby(undeduced, key=lambda index: index.extent):
        names = ", ".join(index.name for index in group)
        yield f"index {names} < {write_extent(order_terms(extent))}"


def write_empty_row(system: ir.System) -> Iterator[str]:
    """The line `empty rows are zeros`, if it is so and the system has a softmax; else nothing."""
    parts = (part for equation in system.equations for part in walk(equation.value))
    kinds = {part.kind for part in parts if isinstance(part, ir.Along)}
    if system.empty_row != "nan" and any(ROWS[kind].normalizes for kind in kinds):
        yield f"empty rows are {system.empty_row}"


def order_terms(value: ir.Expr | Polynomial) -> ir.Expr:
    """The expression; the terms of a sum in the usual order, `i - j + N - 1`."""
    expr = value.to_expr() if isinstance(value, Polynomial) else value

    def rank(term: ir.Expr) -> tuple[bool, bool, bool]:
        number = ir.split_product(term)[0]
        is_negative = isinstance(number, ir.Number) and number.value < 0
        return not find_free(term), isinstance(term, ir.Number), is_negative

    return ir.Add(tuple(sorted(expr.terms, key=rank))) if isinstance(expr, ir.Add) else expr


def _declaration(group: tuple[ir.Tensor, ...]) -> str:
    tensor = group[0]
    names = ", ".join(t.name for t in group)
    shape = write_extent(*tensor.shape) if tensor.shape else ""
    kind = "" if tensor.kind == "real" else f"{tensor.kind} "
    below = f" < {to_text(tensor.below)}" if tensor.below is not None else ""
    return f"{kind}{_bound(tensor, f'{names}[{shape}]')}{below}"


def _bound(entry: ir.Tensor | ir.ScalarInput, named: str) -> str:
    """The text `named`, a name and shape, between its bounds: `0 <= u[N] < 1`, `x[N] > 0`."""
    excluded = entry.strict
    low = high = ""
    under, over = _find_bounds(entry)
    if over is not None:
        high = f" {'<' if excluded[1] else '<='} {to_text(over)}"
    if under is not None and high:
        low = f"{to_text(under)} {'<' if excluded[0] else '<='} "
    elif under is not None:
        high = f" {'>' if excluded[0] else '>='} {to_text(under)}"
    return f"{low}{named}{high}"


# Which indices need an `index` line? The parser deduces an extent from the first plain use: the
# index alone in a place of a tensor whose extent there is known, declared tensors before defined
# ones. An index needs a line where this deduction, repeated here, finds another extent or none, and
# where it occurs on the left side only: else a reader could think it forgotten on the right.


def find_undeduced(system: ir.System) -> tuple[ir.Index, ...]:
    """The indices that need an `index` line, in order of appearance."""
    uses = tuple(_find_uses(system))
    indices = {index.name: index for index in reversed(find_all_indices(system))}
    ordered = dict.fromkeys(index.name for index in find_all_indices(system))
    whole = (e for e in system.equations if not find_start(e.target))
    lines = {index.name: index for e in whole for index in find_broadcast(e)}
    lines |= {name: indices[name] for name in system.declared if name in indices}
    while True:
        extents = _deduce_extents(system, uses, {n: i.extent for n, i in lines.items()})
        right = {n for n, e in extents.items() if is_same_extent(indices[n].extent, e)}
        name = next((n for n in ordered if n not in right and n not in lines), None)
        if name is None:
            return tuple(indices[n] for n in ordered if n in lines)
        lines[name] = indices[name]


def find_contradicted(system: ir.System, declared: Collection[str]) -> tuple[str, ...]:
    """The names in `declared` that are indices at a place whose extent differs from their own."""
    reads = (
        (place, access.tensor.shape[number])
        for access in _find_uses(system)
        for number, place in enumerate(access.places)
        if isinstance(place, ir.Index) and number < len(access.tensor.shape)
    )
    known = ((i, extent) for i, extent in reads if i.name in declared)
    found = (i.name for i, extent in known if not is_same_extent(i.extent, extent))
    return tuple(dict.fromkeys(found))


def _find_uses(system: ir.System) -> Iterator[ir.Access]:
    """The accesses of each equation: those of the value, then the left side."""
    for equation in system.equations:
        yield from find_accesses(equation.value)
        yield equation.target


def _deduce_extents(
    system: ir.System, uses: tuple[ir.Access, ...], given: Mapping[str, ir.Expr]
) -> dict[str, ir.Expr]:
    """The extents of indices by name: those given, and those that follow from plain uses."""
    extents = dict(given)
    left: dict[str, list[ir.Access]] = {}
    for equation in system.equations:
        left.setdefault(equation.target.tensor.name, []).append(equation.target)

    def is_known(tensor: ir.Tensor, axis: int) -> bool:
        """Whether the extent of an axis is declared or follows from indices on left sides."""
        sides = [side.places for side in left.get(tensor.name, ())]
        if any(axis >= len(each) for each in (tensor.shape, *sides)):
            return False
        return all(index.name in extents for side in sides for index in find_free(side[axis]))

    plain = [
        (place.name, access.tensor, axis)
        for access in sorted(uses, key=lambda access: access.tensor.name in left)
        for axis, place in enumerate(access.places)
        if isinstance(place, ir.Index)
    ]
    before = -1
    while before < (before := len(extents)):
        for name, tensor, axis in plain:
            if name not in extents and is_known(tensor, axis):
                extents[name] = tensor.shape[axis]
    return extents


def find_marks(equation: ir.Equation, *path: ir.Expr) -> tuple[Mark, ...]:
    """The mark under the last node of `path` in the text: an access, then its place; or empty."""
    whole: ir.Equation | ir.Expr = equation
    column, end = 0, 0
    for part in path:
        span = find_span(whole, part)
        if span is None:
            return ()
        column, end = column + span[0], column + span[1]
        whole = part
    return (Mark(to_text(equation), column, end),)


def find_free_marks(equation: ir.Equation, use: ir.Expr, index: ir.Index) -> tuple[Mark, ...]:
    """The mark under an index in the first `use` that is outside all reductions binding it."""
    binders = (
        here
        for here in walk(equation.value)
        if isinstance(here, ir.Reduce) and any(bound.name == index.name for bound in here.bound)
    )
    closed = [span for binder in binders for span in find_spans(equation, binder)]
    for start, end in find_spans(equation, use):
        if not any(low <= start and end <= high for low, high in closed):
            within = find_span(use, index) or (0, end - start)
            return (Mark(to_text(equation), start + within[0], start + within[1]),)
    return find_marks(equation, use, index)


def write_extent(*extents: ir.Expr | Polynomial) -> str:
    """The text of extents or positions as in declarations; polynomials with ordered terms."""
    exprs = (order_terms(e) if isinstance(e, Polynomial) else e for e in extents)
    return to_compact(*exprs)


def to_count(number: int, noun: str) -> str:
    """The noun with its number: `1 place`, `2 places`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
