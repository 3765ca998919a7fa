"""Which function of torch is called, under one name, and where in the user's code.

`q @ k`, `torch.bmm` and `Tensor.__matmul__` have names that a table knows once; a call stands on a
line, and a variable takes its result.
"""

from __future__ import annotations

import dis
import linecache
import os
import sys
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from derive.errors import Mark

if TYPE_CHECKING:
    from types import CodeType, FrameType


_OPERATORS = "add sub mul truediv div floordiv mod pow matmul and or xor"
_OTHERS = "neg abs eq ne lt le gt ge invert"
_NAMES = {
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    **{name: f"bitwise_{name}" for name in ("and", "or", "xor")},
    "invert": "bitwise_not",
}
_COMMUTING = ("add", "mul", "bitwise_and", "bitwise_or", "bitwise_xor")
_DUNDERS = {f"__{word}__": _NAMES.get(word, word) for word in _OTHERS.split()}
for _word in _OPERATORS.split():
    _name = _NAMES.get(_word, _word)
    _DUNDERS[f"__{_word}__"], _DUNDERS[f"__i{_word}__"] = _name, f"{_name}_"
    _DUNDERS[f"__r{_word}__"] = _name if _name in _COMMUTING else f"r{_name}"


@lru_cache(maxsize=4096)
def name_of(function: Any) -> str:
    """The last part of a function's name in torch, `shape` for the getter of a property."""
    from torch.overrides import resolve_name

    whole = resolve_name(function) or ""
    own = getattr(function, "__name__", "") or ""
    parts = whole.split(".") if whole else [own]
    if parts[-1] in {"__get__", "__set__", "__delete__"}:
        name = parts[-2] if parts[-1] == "__get__" else f"{parts[-2]}:{parts[-1].strip('_')}"
    elif own in {"__get__", "__set__"}:
        owner = getattr(function, "__self__", None)
        name = getattr(owner, "__name__", own)
    else:
        name = parts[-1] if own in {"", parts[-1]} or own.startswith("__") else own
    return _DUNDERS.get(name, name)


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
        if first is None and not is_foreign(file):
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
def is_foreign(file: str) -> bool:
    """Does a file belong to torch, to Python, or to this package?"""
    import torch

    own = str(Path(__file__).resolve().parents[2])
    roots = (os.path.dirname(torch.__file__), own, sysconfig.get_paths()["stdlib"])
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
