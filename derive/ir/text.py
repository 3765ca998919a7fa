"""The text of the index language: the notation that all stages print and `derive.parse` reads back.

`to_text` gives a line; `find_span` tells where in it a given node stands, for the carets of an
error; `to_lines` gives a whole system: declarations, sizes, index lines, what an empty row
is, equations, results.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import groupby

from derive.errors import Mark
from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.ir.pieces import find_span, find_spans, to_compact, to_text
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.walk import as_written, find_accesses, find_all_indices, find_free, walk

__all__ = ["find_span", "to_declaration", "to_lines", "to_text"]


def to_lines(system: ir.System) -> tuple[str, ...]:
    """The declarations and equations of a system as they were written, a line each."""
    system = as_written(system)
    declarations = "; ".join(_declare(system))
    lines = [declarations] if declarations else []
    for size in system.sizes:
        lines.append(f"size {size.name}" + (f" = {size.default}" if size.default else ""))
    lines += _tell_extents(system)
    lines += tell_rows(system)
    lines += [to_text(equation) for equation in system.equations]
    last = system.equations[-1].target.tensor if system.equations else None
    if system.results != (last,):
        lines.append("return " + ", ".join(tensor.name for tensor in system.results))
    return tuple(lines)


def to_declaration(tensor: ir.Tensor) -> str:
    """The line that declares one tensor."""
    return _declaration((tensor,))


def _declare(system: ir.System) -> Iterator[str]:
    """The inputs in order of declaration, neighbours that are alike in one statement."""
    for _, alike in groupby(system.inputs, key=_find_alike):
        group = tuple(alike)
        tensors = tuple(entry for entry in group if isinstance(entry, ir.Tensor))
        scalars = [entry for entry in group if isinstance(entry, ir.ScalarInput)]
        ends = (f" = {to_text(s.default)}" if s.default is not None else "" for s in scalars)
        written = map(str.__add__, (_bound(scalar, scalar.name) for scalar in scalars), ends)
        yield _declaration(tensors) if tensors else f"scalar {', '.join(written)}"


def _find_alike(entry: ir.Tensor | ir.ScalarInput) -> tuple[object, ...]:
    """What inputs have in common that one statement declares."""
    match entry:
        case ir.Tensor(_, shape, kind, below, _, _, strict):
            return (shape, kind, below, *_find_bounds(entry), strict)
        case ir.ScalarInput():  # a bound stands for one name
            return (entry if entry.lower or entry.upper else None,)


def _find_bounds(tensor: ir.Tensor | ir.ScalarInput) -> tuple[ir.Expr | None, ...]:
    """The numbers that its values keep between; that it may be infinite the notation cannot say."""
    ends = tensor.lower, tensor.upper
    return tuple(None if isinstance(end, ir.Infinity) else end for end in ends)


def _tell_extents(system: ir.System) -> Iterator[str]:
    """The index lines, indices of one extent together."""
    every = [index.name for index in find_all_indices(system)]  # two places may tell two extents
    told = replace(system, declared=(*system.declared, *find_winning(system, every)))
    for extent, group in groupby(find_untold(told), key=lambda index: index.extent):
        names = ", ".join(index.name for index in group)
        yield f"index {names} < {write_extent(_order_terms(extent))}"


def tell_rows(system: ir.System) -> Iterator[str]:
    """What a normalized row of nothing is, where one is taken and it is not nan."""
    parts = (part for equation in system.equations for part in walk(equation.value))
    kinds = {part.kind for part in parts if isinstance(part, ir.Along)}
    if system.empty_row != "nan" and any(ROWS[kind].normalizes for kind in kinds):
        yield f"empty rows are {system.empty_row}"


def _order_terms(extent: ir.Expr) -> ir.Expr:
    """The extent with what is taken off behind what is there, and numbers last."""
    if not isinstance(extent, ir.Add):
        return extent
    return ir.Add(
        tuple(sorted(extent.terms, key=lambda t: (isinstance(t, ir.Number), _is_less(t))))
    )


def _is_less(term: ir.Expr) -> bool:
    match term:
        case ir.Mul((ir.Number(value), *_)) | ir.Number(value):
            return value < 0
    return False


def _declaration(group: tuple[ir.Tensor, ...]) -> str:
    tensor = group[0]
    names = ", ".join(t.name for t in group)
    shape = write_extent(*tensor.shape) if tensor.shape else ""
    kind = "" if tensor.kind == "real" else f"{tensor.kind} "
    below = f" < {to_text(tensor.below)}" if tensor.below is not None else ""
    return f"{kind}{_bound(tensor, f'{names}[{shape}]')}{below}"


def _bound(entry: ir.Tensor | ir.ScalarInput, named: str) -> str:
    """What is declared between its bounds."""
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


# Which indices of a system need a line that says their extent.
#
# A reader of the text takes the extent of an index from its first plain use, alone in a place of a
# tensor whose extent there is known, declared tensors before defined ones; where that gives another
# extent, or none, an `index` line must tell it. The reading is repeated here, so that the text has
# the lines that it needs and no others.
# An index that stands on a left side only has such a line in any case: a reader could think that it
# was forgotten on the right.


def find_untold(system: ir.System) -> tuple[ir.Index, ...]:
    """The indices whose extent no plain use tells, in order of appearance."""
    uses = tuple(_find_uses(system))
    indices = {index.name: index for index in reversed(find_all_indices(system))}
    ordered = dict.fromkeys(index.name for index in find_all_indices(system))
    untold = {index.name: index for e in system.equations for index in _find_left_only(e)}
    untold |= {name: indices[name] for name in system.declared if name in indices}
    while True:
        told = _read_extents(system, uses, {n: i.extent for n, i in untold.items()})
        is_told = {n: is_same_extent(indices[n].extent, told[n]) for n in ordered if n in told}
        missing = (n for n in ordered if not is_told.get(n))
        name = next((n for n in missing if n not in untold), None)
        if name is None:
            return tuple(indices[n] for n in ordered if n in untold)
        untold[name] = indices[name]


def find_winning(system: ir.System, declared: Collection[str]) -> tuple[str, ...]:
    """The declared indices whose line wins: a place that one reads has another extent."""
    reads = (
        (place, access.tensor.shape[number])
        for access in _find_uses(system)
        for number, place in enumerate(access.places)
        if isinstance(place, ir.Index) and number < len(access.tensor.shape)
    )
    known = ((i, extent) for i, extent in reads if i.name in declared)
    winning = (i.name for i, extent in known if not is_same_extent(i.extent, extent))
    return tuple(dict.fromkeys(winning))


def _find_left_only(equation: ir.Equation) -> Iterator[ir.Index]:
    """The indices of the left side that the right side does not hold; a start has no need to."""
    if any(isinstance(place, ir.Number) and place.value < 0 for place in equation.target.places):
        return
    free = find_free(equation.value)
    for place in equation.target.places:
        yield from (index for index in find_free(place) if index not in free)


def _find_uses(system: ir.System) -> Iterator[ir.Access]:
    """The accesses in the order of the text, the left side behind the value."""
    for equation in system.equations:
        yield from find_accesses(equation.value)
        yield equation.target


def _read_extents(
    system: ir.System, uses: tuple[ir.Access, ...], given: Mapping[str, ir.Expr]
) -> dict[str, ir.Expr]:
    """What plain uses tell of each index, in rounds until nothing more is told."""
    told = dict(given)
    left: dict[str, list[ir.Access]] = {}
    for equation in system.equations:
        left.setdefault(equation.target.tensor.name, []).append(equation.target)

    def is_known(tensor: ir.Tensor, number: int) -> bool:
        """Whether a place has an extent that is declared, or told by the indices on the left."""
        sides = [side.places for side in left.get(tensor.name, ())]
        if any(number >= len(each) for each in (tensor.shape, *sides)):
            return False
        return all(index.name in told for side in sides for index in find_free(side[number]))

    plain = [
        (place.name, access.tensor, number)
        for access in sorted(uses, key=lambda access: access.tensor.name in left)
        for number, place in enumerate(access.places)
        if isinstance(place, ir.Index)
    ]
    before = -1
    while before < (before := len(told)):
        for name, tensor, number in plain:
            if name not in told and is_known(tensor, number):
                told[name] = tensor.shape[number]
    return told


# Where in an equation's text a node stands, for the carets of a message.


def find_marks(equation: ir.Equation, *path: ir.Expr) -> tuple[Mark, ...]:
    """The mark under the last node of a path that leads to it: an access, then its place."""
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
    """The mark under the index in its first use that stands outside of what binds it."""
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
    """Extents or positions as declarations write them; the terms of a polynomial in their order."""
    exprs = (_order_terms(e.to_expr()) if isinstance(e, Polynomial) else e for e in extents)
    return to_compact(*exprs)


def to_count(number: int, noun: str) -> str:
    """`1 place`, `2 places`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
