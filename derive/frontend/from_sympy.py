"""From SymPy equations to the index language.

    Indexed               Access                 Piecewise        Where, nested
    Idx, integer Symbol   Index                  KroneckerDelta   Where(i == j, 1, 0)
    Symbol                Size or Scalar         floor(i/r)       floordiv(i, r)
    Sum, Product          Reduce                 softmax(e, j)    Along
    Sum with (j, 0, i)    its condition j <= i   -oo              Infinity(negative)

Laws:
- `show(parse(text)) == text` for a text in canonical form: what was written stays.
- Equations made with SymPy, which sorts, come out in the readable order of `sympy_order`.
- The tensors are arguments by their shapes, results by the reach of their places.
- Nothing is judged here but what SymPy alone can tell; `analysis.checks` judges the system.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import sympy
from sympy import Indexed, IndexedBase, Rational

from derive.analysis.extents import find_open_sizes
from derive.analysis.facts import find_range, is_nonnegative
from derive.analysis.names import check_names
from derive.analysis.scopes import find_missing
from derive.errors import DeriveError, refuse, suggest
from derive.frontend.sympy.names import Names, find_extent, find_label, find_names, find_order, walk
from derive.frontend.sympy.nodes import Context, find_index, to_extent, to_node
from derive.ir import nodes as ir
from derive.ir.numbers import to_exact
from derive.ir.polynomial import Polynomial
from derive.ir.text import find_winning, to_lines
from derive.notation.formula import check_formula
from derive.notation.functions import argmax
from derive.notation.words import TensorBase

if TYPE_CHECKING:
    from collections.abc import Sequence

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
) -> tuple[ir.Expr, ...]:
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


def _to_tensor(name: str, base: Any, shape: tuple[ir.Expr, ...], context: Context) -> ir.Tensor:
    if not isinstance(base, TensorBase):
        return ir.Tensor(name, shape)
    bound = to_extent(base.below, context) if base.below is not None else None
    low, high, *relations = base.domain or (-sympy.oo, sympy.oo, "<=", "<=")
    return ir.Tensor(
        name,
        shape,
        base.kind,
        bound,
        None if low == -sympy.oo else to_node(low, context),
        None if high == sympy.oo else to_node(high, context),
        (str(relations[0]) == "<", str(relations[1]) == "<"),
    )


def _define(name: str, formula: Formula, context: Context) -> ir.Tensor:
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
    alike = [shape for shape in shapes if len(shape) == len(shapes[0])]
    shape = tuple(_find_longest(column) for column in zip(*alike, strict=True))
    value = context.names.defined[name].rhs
    if isinstance(value, argmax) and len(value.bound) == 1:
        return ir.Tensor(name, shape, "int", find_index(value.bound[0], context).extent)
    if base is not None:
        return _to_tensor(name, base, shape, context)
    return ir.Tensor(name, shape)


def _find_reach(place: Any, context: Context) -> ir.Expr:
    """One more than the largest value of a place."""
    made = to_node(place, context)
    if isinstance(made, ir.Index):
        return made.extent
    high = find_range(made).high
    return (high + Polynomial.of(1)).to_expr() if high is not None else made


def _find_longest(extents: Sequence[ir.Expr]) -> ir.Expr:
    """The extent that is no less than all others, as far as it is known; no number beside sizes."""
    each = [extent for extent in extents if not isinstance(extent, ir.Number)] or extents
    values = [Polynomial.of(extent) for extent in each]
    for extent, value in zip(each, values, strict=True):
        if all(is_nonnegative(value - other) for other in values):
            return extent
    return each[0]


def from_sympy(formula: Formula) -> ir.System:
    """The system of a formula; DeriveError where the SymPy objects say nothing usable."""
    names = find_names(formula)
    context = Context(names, is_ordered=formula.declarations is not None)
    find_tensors(formula, context)
    equations = tuple(_to_equation(equation, context) for equation in formula.equations)
    system = ir.System(
        formula.name or "formula",
        _find_inputs(formula, context),
        _find_sizes(formula),
        equations,
        _find_results(formula, context, equations[-1]),
        formula.empty_row,
    )
    if formula.declarations is None:
        open_sizes = (ir.SizeInput(name) for name in find_open_sizes(system))
        system = replace(system, sizes=tuple(open_sizes))
    else:
        declared = find_winning(system, formula.declarations.indices)
        system = replace(system, declared=declared)
    check_names(system)
    if formula.declarations is not None:
        for mistake in find_missing(system, formula.declarations.indices):
            raise DeriveError(mistake)
    return system


def show(formula: Formula) -> str:
    """The formula in the notation, as `derive.parse` reads it back."""
    return "\n".join(to_lines(from_sympy(check_formula(formula))))


def _to_equation(equation: Any, context: Context) -> ir.Equation:
    left = equation.lhs
    if isinstance(left, Indexed):
        tensor = context.tensors[find_label(left.base)]
        target = ir.Access(tensor, tuple(to_node(place, context) for place in left.indices))
    else:
        target = ir.Access(context.tensors[find_label(left)], ())
    return ir.Equation(target, to_node(equation.rhs, context))


def _find_inputs(formula: Formula, context: Context) -> tuple[ir.Tensor | ir.ScalarInput, ...]:
    """The arguments: as declared, else the tensors that nothing defines and then the scalars."""
    names = context.names
    if formula.declarations is not None:
        return tuple(
            context.tensors[find_label(argument)]
            if isinstance(argument, IndexedBase)
            else _to_scalar(find_label(argument), names)
            for argument in formula.declarations.arguments
        )
    given = sorted(
        (name for name in names.bases if name not in names.defined),
        key=lambda name: _rank_argument(name, names),
    )
    scalars = (_to_scalar(name, names) for name in names.scalars)
    return (*(context.tensors[name] for name in given), *scalars)


def _rank_argument(name: str, names: Names) -> tuple[bool, int]:
    base = names.bases[name]
    return (not hasattr(base, "declared"), find_order(names, name)[1])


def _to_scalar(name: str, names: Names) -> ir.ScalarInput:
    return ir.ScalarInput(name, _to_default(name, names.scalars.get(name)))


def _to_default(name: str, value: Any) -> ir.Expr | None:
    if value is None:
        return None
    if isinstance(value, Rational):
        return to_exact(Fraction(int(value.p), int(value.q)))
    try:
        return to_exact(Fraction(str(value)))
    except ValueError:
        says = f"the default of {name} is no number: {value}"
        raise refuse("default-form", says, help="write a finite number, 1e-5") from None


def _find_sizes(formula: Formula) -> tuple[ir.SizeInput, ...]:
    if formula.declarations is None:
        return ()
    return tuple(
        ir.SizeInput(find_label(symbol), None if default is None else int(default))
        for symbol, default in formula.declarations.sizes
    )


def _find_results(formula: Formula, context: Context, last: ir.Equation) -> tuple[ir.Tensor, ...]:
    if formula.outputs is None:
        return (last.target.tensor,)
    defined = context.names.defined
    for name in formula.outputs:
        if name not in defined:
            raise refuse(
                "output-unknown",
                f"no equation defines the output {name}",
                facts=[f"defined are {', '.join(defined)}"],
                help=suggest(name, defined) or "name a tensor that stands left of an equation",
            )
    return tuple(context.tensors[name] for name in formula.outputs)
