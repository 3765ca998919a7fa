"""What is asked of a plan on the command line, and how the header of a file says so."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `derive build` and `derive show` that change the code."""

    memory: str = ""
    fast_math: bool = False
    cells: bool = True
    machine: Path | None = None
    dispatch: bool = False

    def to_arguments(self) -> dict[str, Any]:
        """The arguments of `derive.build`."""
        from derive.plan.machine import read_machine

        machine = None if self.machine is None else read_machine(self.machine)
        return {
            "memory": self.memory or None,
            "fast_math": self.fast_math,
            "cells": self.cells,
            "machine": machine,
            "dispatch": self.dispatch,
        }

    def to_text(self) -> str:
        """The options as they are typed, each after a blank."""
        from derive.cli.files import show_path

        parts = [
            f" --memory {quote(self.memory)}" if self.memory else "",
            " --fast-math" if self.fast_math else "",
            "" if self.cells else " --no-cells",
            " --dispatch" if self.dispatch else "",
            "" if self.machine is None else f" --machine {quote(show_path(self.machine))}",
        ]
        return "".join(parts)


NONE = Options()
