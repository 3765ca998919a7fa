"""A notebook's code cells as one module, so that a cell knows the imports of those before it.

Lines of IPython (`%time`, `!ls`, `x?`) are left blank; so is a cell in another language (`%%bash`)
and one that is no Python. Cells are numbered from 1, those of text among them.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from dataclasses import dataclass
from typing import Any

_IPYTHON = re.compile(r"\s*(?:[%!?]|[\w.]+\s*=\s*[%!]|[\w.]+\?{1,2}\s*$)")
_PYTHON_CELLS = ("time", "timeit", "capture", "prun", "memit", "python3")


@dataclass(frozen=True, slots=True)
class Cells:
    """The Python of a notebook, and for each of its lines the cell and the line there."""

    text: str
    places: tuple[tuple[int, int], ...]
    shown: frozenset[int]  # lines of expressions at the end of a cell, whose value is shown
    broken: tuple[tuple[int, str], ...]  # line in the text and what is wrong there


def read_cells(data: bytes) -> Cells:
    """The code of a notebook; ValueError where it is none."""
    try:
        notebook = json.loads(data)
        cells = notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]
        codes = [(k, _read_code(cell)) for k, cell in enumerate(cells, 1)]
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError("it is no notebook") from error
    lines: list[str] = []
    places: list[tuple[int, int]] = []
    shown: set[int] = set()
    broken: list[tuple[int, str]] = []
    for number, code in codes:
        if code is None:
            continue
        text = code if _is_python(code) else _to_python(code)
        rows = text.split("\n")
        try:
            last = _find_shown(text)
        except SyntaxError as error:
            at = min(max(error.lineno or 1, 1), len(rows))
            broken.append((len(lines) + at, error.msg))
            rows, last = [""] * len(rows), None
        except (ValueError, RecursionError, MemoryError) as error:
            broken.append((len(lines) + 1, str(error) or "it is nested too deeply"))
            rows, last = [""] * len(rows), None
        if last is not None:
            shown.add(len(lines) + last)
        places += [(number, k) for k in range(1, len(rows) + 1)]
        lines += rows
    return Cells("\n".join(lines), tuple(places), frozenset(shown), tuple(broken))


def _read_code(cell: dict[str, Any]) -> str | None:
    """The text of a code cell."""
    if cell["cell_type"] != "code":
        return None
    source = cell["source"] if "source" in cell else cell["input"]
    text = source if isinstance(source, str) else "".join(source)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _is_python(code: str) -> bool:
    """Whether the cell can be parsed as it stands."""
    try:
        _find_shown(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _to_python(code: str) -> str:
    """The cell with IPython's own lines left blank, each where it stood."""
    lines = code.split("\n")
    first = next((k for k, line in enumerate(lines) if line.strip()), 0)
    if lines[first].startswith("%%"):
        magic = lines[first][2:].split()
        if not magic or magic[0] not in _PYTHON_CELLS:
            return "\n" * (len(lines) - 1)
        lines[first] = ""
    return "\n".join(_to_blank(line) if _IPYTHON.match(line) else line for line in lines)


def _to_blank(line: str) -> str:
    """A line that does nothing, as deep as the one it replaces."""
    lead = line[: len(line) - len(line.lstrip())]
    return f"{lead}pass" if lead else ""


def _find_shown(text: str) -> int | None:
    """The first line of the expression at the end of a cell."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        body = ast.parse(text).body
    return body[-1].lineno if body and isinstance(body[-1], ast.Expr) else None
