"""Names."""

from __future__ import annotations

from derive.ir.nodes import System


def check_names(system: System) -> None:
    """Refuse."""
