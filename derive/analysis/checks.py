"""Every check of a formula, in the order in which a person would mend what they find.

names, definitions, letters and places, kinds of values, extents, reads, sizes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.analysis.extents import find_extent_mistakes, find_size_mistakes
from derive.analysis.kinds import find_kind_mistakes
from derive.analysis.names import find_name_mistakes, find_order_mistakes
from derive.analysis.places import find_unplanned
from derive.analysis.reads import find_read_mistakes
from derive.analysis.scopes import find_scope_mistakes
from derive.errors import DeriveError, Diagnostic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.ir.nodes import System

__all__ = ["check_system", "find_mistakes", "find_unplanned"]


def check_system(system: System) -> None:
    """Raise the first mistake of the formula, if it holds one."""
    for mistake in find_mistakes(system):
        raise DeriveError(mistake)


def find_mistakes(system: System) -> Iterator[Diagnostic]:
    """The mistakes of the formula; those of a stage only if the stages before it found none."""
    if not system.equations:
        yield Diagnostic(
            "formula-empty",
            "the formula has no equation",
            help="write at least one, y[i] = sum[j](A[i,j] * x[j])",
        )
        return
    for stage in (
        find_name_mistakes,
        find_order_mistakes,
        find_scope_mistakes,
        find_kind_mistakes,
        find_extent_mistakes,
        find_read_mistakes,
        find_size_mistakes,
    ):
        found = tuple(stage(system))
        if found:
            yield from found
            return
