"""The tensors of a formula: arguments by their shapes, results by the reach of their places."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sympy
from sympy import Indexed, IndexedBase

from derive.analysis.facts import find_range, is_nonnegative
from derive.errors import refuse
from derive.frontend.sympy.names import find_extent, find_label, walk
from derive.frontend.sympy.nodes import Context, find_index, to_extent, to_node
from derive.ir.nodes import Expr, Index, Tensor
from derive.ir.polynomial import Polynomial
from derive.notation.functions import argmax
from derive.notation.words import TensorBase

if TYPE_CHECKING:
    from derive.notation.formula import Formula


def find_tensors(formula: Formula, context: Context) -> None:
    """Enter every tensor of the formula into the context, arguments first."""
    names = context.names
    declared = formula.declarations.arguments if formula.declarations is not None else ()
    given = {find_label(argument) for argument in declared if isinstance(argument, IndexedBase)}
    for name, base in names.bases.items():
        if name not in names.defined or name in given:
            shape = _find_shape(name, base, formula, context, is_scalar=name in given)
            context.tensors[name] = _to_tensor(name, base, shape, context)
    for name in names.defined:
        if name not in context.tensors:
            context.tensors[name] = _define(name, formula, context)


def _find_shape(
    name: str, base: Any, formula: Formula, context: Context, *, is_scalar: bool
) -> tuple[Expr, ...]:
    """The shape that an argument declares, or that its first use tells."""
    if base.shape is not None:
        return tuple(to_extent(extent, context) for extent in base.shape)
    if is_scalar:
        return ()
    if isinstance(base, TensorBase):
        raise refuse(
            "tensor-undefined",
            f"tensor {name} has no shape and no equation defines it",
            help=f'give it a shape, tensors("{name}", ...), or an equation',
        )
    for equation in formula.equations:
        for value in walk(equation):
            if isinstance(value, Indexed) and find_label(value.base) == name:
                extents = [find_extent(place) for place in value.indices]
                if None not in extents:
                    return tuple(to_extent(extent, context) for extent in extents)
    raise refuse(
        "shape-unknown",
        f"nothing tells the shape of {name}",
        help=f'write IndexedBase("{name}", shape=(...)), or index it with Idx("i", S)',
    )


def _to_tensor(name: str, base: Any, shape: tuple[Expr, ...], context: Context) -> Tensor:
    if not isinstance(base, TensorBase):
        return Tensor(name, shape)
    bound = to_extent(base.below, context) if base.below is not None else None
    low, high, *relations = base.domain or (-sympy.oo, sympy.oo, "<=", "<=")
    return Tensor(
        name,
        shape,
        base.kind,
        bound,
        None if low == -sympy.oo else to_node(low, context),
        None if high == sympy.oo else to_node(high, context),
        (str(relations[0]) == "<", str(relations[1]) == "<"),
    )


def _define(name: str, formula: Formula, context: Context) -> Tensor:
    """A tensor that equations define: each place is as long as their places reach."""
    base = context.names.bases.get(name)
    if base is not None and base.shape is not None:
        return _to_tensor(
            name, base, _find_shape(name, base, formula, context, is_scalar=False), context
        )
    shapes = [
        tuple(_find_reach(place, context) for place in getattr(equation.lhs, "indices", ()))
        for equation in formula.equations
        if find_label(getattr(equation.lhs, "base", equation.lhs)) == name
    ]
    shape = shapes[0]
    for other in shapes[1:]:
        if len(other) == len(shape):
            shape = tuple(map(_find_longer, shape, other))
    value = context.names.defined[name].rhs
    if isinstance(value, argmax) and len(value.bound) == 1:
        return Tensor(name, shape, "int", find_index(value.bound[0], context).extent)
    if base is not None:
        return _to_tensor(name, base, shape, context)
    return Tensor(name, shape)


def _find_reach(place: Any, context: Context) -> Expr:
    """One more than the largest value of a place."""
    made = to_node(place, context)
    if isinstance(made, Index):
        return made.extent
    high = find_range(made).high
    return (high + Polynomial.of(1)).to_expr() if high is not None else made


def _find_longer(one: Expr, other: Expr) -> Expr:
    return other if is_nonnegative(Polynomial.of(other) - Polynomial.of(one)) else one
