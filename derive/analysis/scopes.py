"""Where each index may stand: on the left, or bound around it, and bound only once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from derive.analysis.extents import find_broadcast, say_extent
from derive.analysis.places import fills_once
from derive.errors import Diagnostic
from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.ir.polynomial import is_same_extent
from derive.ir.recurrences import find_start
from derive.ir.text import find_free_marks, find_marks, to_count, to_text, write_extent
from derive.ir.walk import (
    find_accesses,
    find_all_indices,
    find_children,
    find_free,
    rename_apart,
    walk,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

# Reductions that an index can be counted by: what does not hold it is only multiplied, or raised.
_COUNTING = {"sum", "prod", "logsumexp"}


def find_scope_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """Indices that repeat on the left, dangle, are bound twice, or are not where they are bound."""
    counts = Counter(equation.target.tensor for equation in system.equations)
    for equation in system.equations:
        yield from _find_left_mistakes(equation, system, is_part=counts[equation.target.tensor] > 1)
        yield from _find_rank_mistakes(equation)
        indices = {index.name for place in equation.target.places for index in find_free(place)}
        yield from _find_binding_mistakes(equation.value, equation, indices, system)
        yield from _find_dangling(equation, system)


def find_missing(system: ir.System, declared: Collection[str]) -> Iterator[Diagnostic]:
    """Indices that only the left side holds, unless they are declared: a reader must know of it."""
    for equation in system.equations:
        is_start = find_start(equation.target) is not None  # the equation behind it tells of them
        for index in () if is_start else find_broadcast(equation):
            if index.name not in declared:
                yield Diagnostic(
                    "index-missing",
                    f"index {index.name} stands on the left but not on the right",
                    find_marks(equation, equation.target, index),
                    (say_extent(index, system),),
                    f"use {index.name} on the right; to repeat the values along {index.name}, "
                    f"add the line: index {index.name} < {write_extent(index.extent)}",
                )


def _find_left_mistakes(
    equation: ir.Equation, system: ir.System, *, is_part: bool
) -> Iterator[Diagnostic]:
    target = equation.target
    if len(target.places) != len(target.tensor.shape):
        return
    met: dict[str, None] = {}
    for number, place in enumerate(target.places):
        free = find_free(place)
        if free and not is_part and not fills_once(place, target.tensor.shape[number]):
            yield Diagnostic(
                "left-side",
                f"the place {write_extent(place)} does not fill every position of "
                f"{target.tensor.name} once",
                find_marks(equation, target, place),
                tuple(say_extent(index, system) for index in free),
                "a place of the left side is an index, or indices merged like h*D + d",
            )
        for index in free:
            if index.name in met:
                yield Diagnostic(
                    "index-repeats",
                    f"index {index.name} stands twice on the left side",
                    find_marks(equation, target),
                    (f"places off the diagonal of {target.tensor.name} would have no value",),
                    _propose_diagonal(equation, number, index),
                )
            met[index.name] = None


def _propose_diagonal(equation: ir.Equation, number: int, index: ir.Index) -> str:
    fresh = rename_apart(index, {i.name for i in _find_all(equation)})
    places = [*equation.target.places]
    if places[number] is not index:
        return "take another name for one of them"
    places[number] = fresh
    target = to_text(ir.Access(equation.target.tensor, tuple(places)))
    return f"write {target} and multiply by [{index.name} == {fresh.name}] for a diagonal"


def _find_all(equation: ir.Equation) -> tuple[ir.Index, ...]:
    return find_all_indices(ir.System("", (), (), (equation,), ()))


def _find_rank_mistakes(equation: ir.Equation) -> Iterator[Diagnostic]:
    for access in (equation.target, *find_accesses(equation.value)):
        tensor = access.tensor
        if len(access.places) != len(tensor.shape):
            wanted = to_count(len(tensor.shape), "place")
            shape = ", ".join(map(write_extent, tensor.shape))
            yield Diagnostic(
                "wrong-rank",
                f"{tensor.name} has {wanted}, not {len(access.places)}",
                find_marks(equation, access),
                (f"{tensor.name} has shape [{shape}]",),
                f"give {wanted} to {tensor.name}" if tensor.shape else f"write {tensor.name} alone",
            )


def _find_binding_mistakes(
    expr: ir.Expr, equation: ir.Equation, scope: set[str], system: ir.System
) -> Iterator[Diagnostic]:
    """What is wrong with the indices that reductions inside bind, given the indices around them."""
    inner = scope
    match expr:
        case ir.Reduce(kind, bound, _, _):
            inner = set(scope)
            for index in bound:
                if index.name in inner:
                    yield _bound_again(expr, index, equation, system)
                inner.add(index.name)
            yield from _find_absent(expr, kind, bound, equation)
            yield from _find_matrix_mistakes(expr, bound, equation)
        case ir.Along(kind):
            inner = scope | {index.name for index in expr.indices}
            yield from _find_absent(expr, kind, expr.indices, equation)
            yield from _find_matrix_mistakes(expr, expr.indices, equation)
    for child in find_children(expr):
        yield from _find_binding_mistakes(child, equation, inner, system)


def _bound_again(
    expr: ir.Expr, index: ir.Index, equation: ir.Equation, system: ir.System
) -> Diagnostic:
    fresh = rename_apart(index, {i.name for i in find_all_indices(system)} | {index.name})
    return Diagnostic(
        "index-bound-again",
        f"index {index.name} is bound again where it already has a meaning",
        find_marks(equation, expr, index),
        help=f"take a fresh name here, {fresh.name}",
    )


def _find_absent(
    expr: ir.Reduce | ir.Along, kind: str, bound: tuple[ir.Index, ...], equation: ir.Equation
) -> Iterator[Diagnostic]:
    """An index that is reduced over and does not occur in what is reduced."""
    if kind in _COUNTING:
        return
    inside = {index.name for index in (*find_free(expr.body), *find_free(expr.condition))}
    for index in bound:
        if index.name not in inside:
            yield Diagnostic(
                "index-absent",
                f"{kind} runs over {index.name}, which does not occur in what it is taken of",
                find_marks(equation, expr, index),
                (f"{to_text(expr.body)} holds {_list(find_free(expr.body))}",),
                f"name an index of it, or leave {kind}[{index.name}] out",
            )


def _find_matrix_mistakes(
    expr: ir.Reduce | ir.Along, indices: tuple[ir.Index, ...], equation: ir.Equation
) -> Iterator[Diagnostic]:
    """A function of a matrix that is not square, or of some of its entries alone."""
    if not ROWS[expr.kind].is_matrix:
        return
    rows, columns = indices
    if not is_same_extent(rows.extent, columns.extent):
        yield Diagnostic(
            "matrix-not-square",
            f"{expr.kind}[{rows.name}, {columns.name}] is of a square matrix",
            find_marks(equation, expr, columns),
            tuple(f"{i.name} has extent {write_extent(i.extent)}" for i in indices),
            f"give {rows.name} and {columns.name} one extent",
        )
    if expr.condition is not ir.TRUE:
        yield Diagnostic(
            "matrix-condition",
            f"{expr.kind} takes all entries of its matrix",
            find_marks(equation, expr, expr.condition),
            help=f"write {expr.kind}[{rows.name}, {columns.name}](where(.., .., 0))",
        )


def _list(indices: tuple[ir.Index, ...]) -> str:
    names = [index.name for index in indices]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names) or "none"


def _find_dangling(equation: ir.Equation, system: ir.System) -> Iterator[Diagnostic]:
    left = {index.name for place in equation.target.places for index in find_free(place)}
    dangling = [index for index in find_free(equation.value) if index.name not in left]
    for index in dangling:
        use = _find_free_use(equation.value, index)
        marks = find_free_marks(equation, use or index, index)
        others = [other for other in dangling if other is not index]
        facts = [say_extent(index, system)]
        facts += [say_extent(other, system) for other in others[:1]]
        facts += [
            f"{to_text(idle)} adds up what does not hold {', '.join(i.name for i in idle.bound)}"
            for idle in find_idle_sums(equation)
        ]
        yield Diagnostic(
            "index-dangles",
            f"index {index.name} stands on the right but is neither summed nor on the left",
            marks,
            tuple(facts),
            _propose_end(index, use, others, equation),
        )


def _find_free_use(expr: ir.Expr, index: ir.Index) -> ir.Access | ir.Along | None:
    """The first access or kept index through which the index is free."""
    match expr:
        case ir.Reduce(_, bound, _, _) if index in bound:
            return None
        case ir.Access(_, places) if index in places:
            return expr
        case ir.Along() if index in expr.indices:
            return expr
    found = (_find_free_use(child, index) for child in find_children(expr))
    return next((use for use in found if use is not None), None)


def _propose_end(
    index: ir.Index, use: ir.Access | ir.Along | None, others: list[ir.Index], equation: ir.Equation
) -> str:
    """Another index of the same extent in this place, a sum, or a place on the left."""
    name = index.name
    if isinstance(use, ir.Access):
        known = [(other, equation.value) for other in others]
        known += [pair for pair in _find_around(equation.value, use) if pair[0] not in use.places]
        for other, scope in known:
            partner = _find_partner(scope, other, use)
            if partner is not None and is_same_extent(other.extent, index.extent):
                swapped = tuple(other if place is index else place for place in use.places)
                return (
                    f"write {to_text(ir.Access(use.tensor, swapped))} to contract with "
                    f"{partner.tensor.name}, or sum[{name}](...) to add it up"
                )
    places = ",".join([*map(to_text, equation.target.places), name])
    target = f"{equation.target.tensor.name}[{places}]"
    return f"write sum[{name}](...) to add it up, or {target} = ... to keep it"


def _find_around(expr: ir.Expr, use: ir.Access) -> tuple[tuple[ir.Index, ir.Expr], ...]:
    """The indices bound around the first place where the access stands, and their scopes."""
    bound = tuple((i, expr.body) for i in expr.bound) if isinstance(expr, ir.Reduce) else ()
    for child in find_children(expr):
        if child is use:
            return bound
        if use in walk(child):
            return (*bound, *_find_around(child, use))
    return ()


def _find_partner(value: ir.Expr, index: ir.Index, use: ir.Access) -> ir.Access | None:
    """Another access that holds the index."""
    inside = (access for access in find_accesses(value) if access is not use)
    return next((access for access in inside if index in access.places), None)


def find_idle_sums(equation: ir.Equation) -> tuple[ir.Reduce, ...]:
    """The sums over an index that their body does not hold: they multiply by its extent."""
    return tuple(
        here
        for here in walk(equation.value)
        if isinstance(here, ir.Reduce)
        and here.kind in _COUNTING
        and not set(here.bound) & {*find_free(here.body), *find_free(here.condition)}
    )
