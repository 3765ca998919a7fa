"""The options of `build`: one record from the command line to the planner, the judge and a header.

A field's metadata is the text of `--help`; the command line has a flag for each field, `--no-cells`
for one that is on by default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from shlex import quote
from typing import Any


def option(
    default: Any, help: str, metavar: str | None = None, name: str = "", **more: object
) -> Any:
    """A field of a dataclass that is an option, called like the field if it has no other name."""
    described = {"help": help, "metavar": metavar, "name": name, **more}
    if default == {}:
        return field(default_factory=dict, metadata=described)
    return field(default=default, metadata=described)


@dataclass(frozen=True)
class Options:
    """The settings that change a generated file.

    `sizes` are the numbers that the plan is made for. `memory` is a number of bytes, or text such
    as "256MiB".
    """

    sizes: Mapping[str, int] = option({}, "Numbers to plan and count for.", "S=4096,...")
    memory: int | str | None = option(
        None,
        "The most that intermediates may take: forward, without gradients, not compiled.",
        "256MiB",
        type=str,
    )
    exact: bool = option(False, "Use no rule that rounds worse.")
    cells: bool = option(True, "No torch call without second derivatives.")
    backward: bool = option(False, "With a backward of its own, which keeps little.")
    einsum: bool = option(True, "Products of matrices instead, as for ONNX.")

    def at(self, sizes: Mapping[str, int]) -> Options:
        """The options at other sizes."""
        return replace(self, sizes=dict(sizes))

    def to_text(self) -> str:
        """The options as they are typed, each after a blank."""
        text = ""
        for each in fields(self):
            value, flag = getattr(self, each.name), each.name.replace("_", "-")
            if isinstance(value, bool):
                flag = flag if value else f"no-{flag}"
                text += "" if value == each.default else f" --{flag}"
            elif value:
                text += f" --{flag} {to_word(value)}"
        return text


NONE = Options()


def to_word(value: object) -> str:
    """A value as it is typed behind its option."""
    if isinstance(value, Mapping):
        return ",".join(f"{name}={number}" for name, number in value.items())
    return quote(show_path(value) if isinstance(value, Path) else str(value))


def show_path(path: Path) -> str:
    """The path as it was given; an absolute one from the working folder, else its name alone."""
    if not path.is_absolute():
        return path.as_posix()
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name
