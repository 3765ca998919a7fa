"""The one way from a formula to its checked system of equations."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from derive.analysis.names import check_system
from derive.analysis.places import join_parts
from derive.errors import DeriveError, refuse
from derive.frontend.from_sympy import from_sympy
from derive.ir.recurrences import (
    find_recurrence_mistakes,
    lift_alongs,
    open_starts,
    order_recurrences,
)
from derive.notation.formula import check_formula, check_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.ir import nodes as ir
    from derive.notation.formula import Formula


def to_system(formula: Formula, name: str | None = None) -> ir.System:
    """The checked system of a formula; DeriveError for every mistake that it holds."""
    check_formula(formula)
    if name is not None:
        check_name(name)
    with refuse_depth():
        system = from_sympy(formula)
        check_system(system)
        system = join_parts(open_starts(lift_alongs(system)))
        for mistake in find_recurrence_mistakes(system):
            raise DeriveError(mistake)
        system = order_recurrences(system)
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
