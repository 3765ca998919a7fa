"""Where in the user's code a torch call stands, and which variable takes its result."""

from __future__ import annotations

import dis
import linecache
import os
import sys
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from derive.errors import Mark

if TYPE_CHECKING:
    from types import CodeType, FrameType

_STORES = {"STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR"}


@dataclass(frozen=True)
class Spot:
    """Where in the user's code a call stands, and the variable that takes its result."""

    path: str = ""
    line: int = 0
    name: str = ""
    site: int = 0
    op: str = ""


def find_spot(path: str, op: str) -> Spot:
    """The innermost frame of the user's code; in the file `path` where that is given."""
    frame: FrameType | None = sys._getframe(1)
    first: FrameType | None = None
    while frame is not None:
        file = frame.f_code.co_filename
        if path and file == path:
            return _to_spot(frame, op)
        if first is None and not _is_foreign(file):
            first = frame
        frame = frame.f_back
    return _to_spot(first, op) if first is not None else Spot(op=op)


def _to_spot(frame: FrameType, op: str) -> Spot:
    name = _find_stores(frame.f_code).get(frame.f_lasti, "")
    return Spot(frame.f_code.co_filename, frame.f_lineno or 0, name, frame.f_lasti, op)


@lru_cache(maxsize=512)
def _find_stores(code: CodeType) -> dict[int, str]:
    """The variable that an instruction's result goes into at once, by the instruction's offset."""
    found = {}
    before = None
    for instruction in dis.get_instructions(code):
        if before is not None and instruction.opname in _STORES:
            found[before.offset] = str(instruction.argval)
        before = instruction
    return found


@lru_cache(maxsize=512)
def _is_foreign(file: str) -> bool:
    """Does a file belong to torch, to Python, or to this package's own lifting?"""
    import torch

    here = os.path.dirname(os.path.abspath(__file__))
    roots = (
        os.path.dirname(torch.__file__),
        here,
        os.path.join(os.path.dirname(here), "checker"),
        sysconfig.get_paths()["stdlib"],
    )
    if file.startswith("<frozen"):
        return True
    if os.sep + "site-packages" + os.sep in file:
        return file.startswith(roots[0])
    return any(os.path.abspath(file).startswith(root + os.sep) for root in roots)


def mark_spot(spot: Spot) -> list[Mark]:
    """The line of the code under carets, where it can be read."""
    line = linecache.getline(spot.path, spot.line).rstrip("\n") if spot.line else ""
    text = line.strip()
    return [Mark(text, 0, len(text))] if text else []
