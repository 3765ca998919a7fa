"""The one way from a formula to its checked system of equations."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from derive.analysis import names, places
from derive.errors import DeriveError, refuse
from derive.frontend.from_sympy import from_sympy
from derive.ir import functions, recurrences
from derive.ir import nodes as ir
from derive.notation.formula import Formula, check_formula, check_name


def to_system(formula: Formula, name: str | None = None) -> ir.System:
    """The checked system of a formula; DeriveError for every mistake that it holds."""
    check_formula(formula)
    if name is not None:
        check_name(name)
    with refuse_depth():
        system = from_sympy(formula)
        names.check_system(system)
        system = places.join_parts(recurrences.open_starts(recurrences.lift_alongs(system)))
        system = recurrences.order_recurrences(system)
        for mistake in recurrences.find_recurrence_mistakes(system):
            raise DeriveError(mistake)
    return replace(system, name=name) if name else system


@contextmanager
def refuse_depth() -> Iterator[None]:
    """A diagnostic in place of Python's limit of recursion."""
    try:
        yield
    except RecursionError:
        raise refuse(
            "too-deep",
            "an expression is nested too deeply",
            help="give its parts names: write them as equations of their own",
        ) from None


def check_real(system: ir.System) -> ir.System:
    """The system; DeriveError where something in it is complex."""
    if any(functions.holds_complex(equation.value) for equation in system.equations):
        raise refuse(
            "not-yet",
            "the gradients of complex numbers have no formula yet",
            help="let autograd go through the generated function, or write the real and the "
            "imaginary part as real tensors",
        )
    return system
