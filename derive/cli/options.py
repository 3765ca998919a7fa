"""What is asked of a plan on the command line, and how the header of a file says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from derive.cli.sizes import parse_sizes, to_option

if TYPE_CHECKING:
    from derive.plan.machine import Machine


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `derive build`, `show` and `bench` that change the code."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    memory: str = ""
    fast_math: bool = False
    cells: bool = True
    machine: Path | None = None
    dispatch: bool = False

    def at(self, sizes: Mapping[str, int]) -> Options:
        """The same for other sizes."""
        return replace(self, sizes=dict(sizes))

    def to_arguments(self) -> dict[str, Any]:
        """The arguments of `derive.build` beside the formula and the sizes."""
        return {
            "memory": self.memory or None,
            "fast_math": self.fast_math,
            "cells": self.cells,
            "machine": self.find_machine(),
            "dispatch": self.dispatch,
        }

    def find_machine(self) -> Machine | None:
        """The constants of the file that is named; None for those that derive has."""
        from derive.plan.machine import read_machine

        return None if self.machine is None else read_machine(self.machine)

    def to_text(self) -> str:
        """The options as they are typed, each after a blank."""
        from derive.cli.files import show_path

        parts = [
            f" --sizes {to_option(self.sizes)}" if self.sizes else "",
            f" --memory {quote(self.memory)}" if self.memory else "",
            " --fast-math" if self.fast_math else "",
            "" if self.cells else " --no-cells",
            " --dispatch" if self.dispatch else "",
            "" if self.machine is None else f" --machine {quote(show_path(self.machine))}",
        ]
        return "".join(parts)


NONE = Options()


def read_options(  # noqa: PLR0913, PLR0917 - one for each option
    sizes: str,
    memory: str,
    fast_math: bool,
    no_cells: bool,
    machine: str | Path | None,
    dispatch: bool,
) -> Options:
    """The options as they were typed; DeriveError for sizes that are none."""
    path = None if machine is None else Path(machine)
    return Options(parse_sizes(sizes), memory, fast_math, not no_cells, path, dispatch)
