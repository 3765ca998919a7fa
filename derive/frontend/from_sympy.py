"""From SymPy equations to the index language.

    Indexed               Access                 Piecewise        Where, nested
    Idx, integer Symbol   Index                  KroneckerDelta   Where(i == j, 1, 0)
    Symbol                Size or Scalar         floor(i/r)       floordiv(i, r)
    Sum, Product          Reduce                 softmax(e, j)    Along
    Sum with (j, 0, i)    its condition j <= i   -oo              Infinity(negative)

Laws:
- `show(parse(text)) == text` for a text in canonical form: what was written stays.
- Equations made with SymPy, which sorts, come out in the readable order of `sympy_order`.
- Nothing is judged here but what SymPy alone can tell; `analysis.checks` judges the system.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sympy import Indexed, IndexedBase, Rational

from derive.analysis.extents import find_open_sizes
from derive.analysis.names import check_names
from derive.analysis.scopes import find_missing
from derive.errors import DeriveError, refuse, suggest
from derive.frontend.sympy.names import Names, find_label, find_names, find_order
from derive.frontend.sympy.nodes import Context, to_node
from derive.frontend.sympy.tensors import find_tensors
from derive.ir.nodes import (
    Access,
    Equation,
    Expr,
    ScalarInput,
    SizeInput,
    System,
    Tensor,
)
from derive.ir.numbers import to_exact
from derive.ir.text import find_winning, to_lines
from derive.notation.formula import check_formula

if TYPE_CHECKING:
    from derive.notation.formula import Formula


def from_sympy(formula: Formula) -> System:
    """The system of a formula; DeriveError where the SymPy objects say nothing usable."""
    names = find_names(formula)
    context = Context(names, is_ordered=formula.declarations is not None)
    find_tensors(formula, context)
    equations = tuple(_to_equation(equation, context) for equation in formula.equations)
    system = System(
        formula.name or "formula",
        _find_inputs(formula, context),
        _find_sizes(formula),
        equations,
        _find_results(formula, context, equations[-1]),
        formula.empty_row,
    )
    if formula.declarations is None:
        open_sizes = (SizeInput(name) for name in find_open_sizes(system))
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


def _to_equation(equation: Any, context: Context) -> Equation:
    left = equation.lhs
    if isinstance(left, Indexed):
        tensor = context.tensors[find_label(left.base)]
        target = Access(tensor, tuple(to_node(place, context) for place in left.indices))
    else:
        target = Access(context.tensors[find_label(left)], ())
    return Equation(target, to_node(equation.rhs, context))


def _find_inputs(formula: Formula, context: Context) -> tuple[Tensor | ScalarInput, ...]:
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


def _to_scalar(name: str, names: Names) -> ScalarInput:
    return ScalarInput(name, _to_default(name, names.scalars.get(name)))


def _to_default(name: str, value: Any) -> Expr | None:
    if value is None:
        return None
    if isinstance(value, Rational):
        return to_exact(Fraction(int(value.p), int(value.q)))
    try:
        return to_exact(Fraction(str(value)))
    except ValueError:
        says = f"the default of {name} is no number: {value}"
        raise refuse("default-form", says, help="write a finite number, 1e-5") from None


def _find_sizes(formula: Formula) -> tuple[SizeInput, ...]:
    if formula.declarations is None:
        return ()
    return tuple(
        SizeInput(find_label(symbol), None if default is None else int(default))
        for symbol, default in formula.declarations.sizes
    )


def _find_results(formula: Formula, context: Context, last: Equation) -> tuple[Tensor, ...]:
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
