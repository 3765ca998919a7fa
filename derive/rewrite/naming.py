"""Indices that rules made, settled: none is called like a name, or bound inside its own scope.

    sum_k x_k * sum_k l_k   becomes   sum_{k,m} x_k * l_m:  l is a tensor, and m the next index

A rule looks at one node, and knows of no names but those in it. What it leaves is settled at the
end, when all names are known: those of tensors, sizes and scalars, and indices of other extents.

An index of the user's that a rule drew into its own scope means what it did before; it gets another
name only where somebody is to read the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from derive.ir import nodes as ir
from derive.ir.polynomial import is_same_extent
from derive.ir.walk import find_free, map_children, rename_apart, substitute, walk


def rename_clashes(system: ir.System, start: ir.System) -> ir.System:
    """The system with no index called like something else in `start`, which it was made from."""
    indices = IndexNames(start)
    equations = []
    for equation in system.equations:
        settled = ir.Equation(equation.target, indices.tell_apart(equation.value))
        indices.meet(settled)
        equations.append(settled)
    return replace(system, equations=tuple(equations))


def settle_indices(equation: ir.Equation, system: ir.System) -> ir.Expr:
    """The value of an equation of a system, with no index called like something else in scope."""
    return IndexNames(system).settle(equation.value, equation)


class IndexNames:
    """The names of a system: what an index that a rule made must not be called."""

    def __init__(self, system: ir.System) -> None:
        inputs = (*system.inputs, *system.sizes)
        names = [entry.name for entry in inputs]
        names += [equation.target.tensor.name for equation in system.equations]
        shapes = [t.shape for t in inputs if isinstance(t, ir.Tensor)]
        sizes = (part for shape in shapes for extent in shape for part in walk(extent))
        names += [part.name for part in sizes if isinstance(part, ir.Size)]
        self._names = dict.fromkeys(names)
        self._extents: dict[str, ir.Expr] = {}
        self._new: dict[str, ir.Expr] = {}  # of indices that got a name here: one each, wherever
        for equation in system.equations:
            self.meet(equation)

    def meet(self, equation: ir.Equation) -> None:
        """Take note of the indices of an equation: each keeps its extent from now on."""
        for index in _find_indices((*equation.target.places, equation.value)):
            self._extents.setdefault(index.name, index.extent)

    def settle(self, value: ir.Expr, equation: ir.Equation) -> ir.Expr:
        """The value with no index bound inside its own scope, or called like something else."""
        scope = {i.name: None for place in equation.target.places for i in find_free(place)}
        return self._settle(value, scope)

    def tell_apart(self, value: ir.Expr) -> ir.Expr:
        """The value with no index called like something else; one may be bound in its scope."""
        return self._settle(value, None)

    def _settle(self, expr: ir.Expr, scope: Mapping[str, None] | None) -> ir.Expr:
        if not isinstance(expr, ir.Reduce):
            return map_children(expr, lambda part: self._settle(part, scope))
        inner = dict(scope or {})
        new: dict[ir.Expr, ir.Expr] = {}
        for index in expr.bound:
            kept = index
            if index.name in inner or not self._is_free(index):
                inside = {i.name for i in _find_indices((expr.condition, expr.body))}
                inside |= {i.name for i in expr.bound}
                inside |= {n for n, e in self._new.items() if not is_same_extent(e, index.extent)}
                kept = rename_apart(index, {*inner, *self._names, *self._extents, *inside})
                self._new.setdefault(kept.name, kept.extent)
                new[index] = kept
            inner[kept.name] = None
        bound_now = tuple(new.get(i, i) for i in expr.bound)
        parts = (substitute(part, new) for part in (expr.condition, expr.body))
        around = None if scope is None else inner
        condition, body = (self._settle(part, around) for part in parts)
        return ir.Reduce(expr.kind, bound_now, condition, body)  # type: ignore[arg-type]

    def _is_free(self, index: ir.Index) -> bool:
        """Does the name stand for nothing else in the system?"""
        known = self._extents.get(index.name)
        told = known is None or is_same_extent(known, index.extent)
        return told and index.name not in self._names


def _find_indices(exprs: Sequence[ir.Expr]) -> Iterator[ir.Index]:
    """The indices in order of appearance, bound ones with them."""
    for expr in exprs:
        for here in walk(expr):
            if isinstance(here, ir.Index):
                yield here
            elif isinstance(here, (ir.Reduce, ir.Along)):
                yield from here.indices
