"""Readers of files and notebooks; a notebook's code cells are joined into one text.

Lines of IPython (`%time`, `!ls`, `x?`) become blank. So do cells in another language (`%%bash`)
and, unless `keep_broken`, cells that are not Python. Cells are numbered from 1; text cells count
too.
"""

import ast
import json
import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from derive.errors import refuse

_IPYTHON = re.compile(r"\s*(?:[%!?]|[\w.]+\s*=\s*[%!]|[\w.]+\?{1,2}\s*$)")
_PYTHON_CELLS = ("time", "timeit", "capture", "prun", "memit", "python3")


@dataclass(frozen=True, slots=True)
class Cells:
    """The Python text of a notebook; `places` are (cell, line in it) for each line."""

    text: str
    places: tuple[tuple[int, int], ...]
    shown: frozenset[int]  # first lines of the cells' final expressions, whose values are shown
    broken: tuple[tuple[int, str], ...]  # (line in the text, message) of syntax errors

    def name_lines(self) -> tuple[str, ...]:
        """The name of each line, `cell 3 line 2`."""
        return tuple(f"cell {cell} line {line}" for cell, line in self.places)


def is_file(text: str) -> bool:
    """Whether the text is the path of a file; False for texts that are no valid path."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False


def read_text(path: Path, shown: str, read: Callable[[bytes], Any] | None = None) -> Any:
    """Return the file's text, or `read` of its bytes; DeriveError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig") if read is None else read(path.read_bytes())
    except UnicodeDecodeError as error:
        raise refuse("file-unreadable", f"{shown} is not UTF-8 text") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise refuse("file-unreadable", f"cannot read {shown}: {reason}") from error


def read_cells(data: bytes, *, keep_broken: bool = False) -> Cells:
    """Return the code of a notebook; ValueError if the bytes are no notebook."""
    try:
        codes = list(map(_read_cell, json.loads(data)["cells"]))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError("it is no notebook") from error
    return _join_cells(codes, keep_broken)


def _join_cells(codes: Iterable[str | None], keep_broken: bool) -> Cells:
    """Join the code of cells; None stands for a text cell."""
    lines: list[str] = []
    places: list[tuple[int, int]] = []
    shown: set[int] = set()
    broken: list[tuple[int, str]] = []
    for number, code in enumerate(codes, 1):
        if code is None:
            continue
        text = code if _is_python(code) else _to_python(code)
        rows = text.split("\n")
        try:
            last = _find_shown(text)
        except SyntaxError as error:
            at = min(max(error.lineno or 1, 1), len(rows))
            broken.append((len(lines) + at, error.msg))
            rows, last = (rows if keep_broken else [""] * len(rows)), None
        except (ValueError, RecursionError, MemoryError) as error:
            broken.append((len(lines) + 1, str(error) or "it is nested too deeply"))
            rows, last = [""] * len(rows), None
        if last is not None:
            shown.add(len(lines) + last)
        places += [(number, k) for k in range(1, len(rows) + 1)]
        lines += rows
    text = "\n".join(lines)
    return Cells(text, tuple(places), frozenset(shown), tuple(broken))


def _read_cell(cell: dict[str, Any]) -> str | None:
    """Return the text of a code cell, None for other cells."""
    if cell["cell_type"] != "code":
        return None
    text = "".join(cell["source"])
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _is_python(code: str) -> bool:
    """Whether the cell is valid Python without rewriting."""
    try:
        _find_shown(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _to_python(code: str) -> str:
    """Return the cell with blank lines or `pass` for IPython's own lines."""
    lines = code.split("\n")
    first = next((k for k, line in enumerate(lines) if line.strip()), 0)
    if lines[first].startswith("%%"):
        magic = lines[first][2:].split()
        if not magic or magic[0] not in _PYTHON_CELLS:
            return "\n" * (len(lines) - 1)
        lines[first] = ""
    for k, line in enumerate(lines):
        if _IPYTHON.match(line):  # with the indentation of the replaced line
            lead = line[: len(line) - len(line.lstrip())]
            lines[k] = f"{lead}pass" if lead else ""
    return "\n".join(lines)


def _find_shown(text: str) -> int | None:
    """Return the first line of the expression that ends a cell."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        body = ast.parse(text).body
    return body[-1].lineno if body and isinstance(body[-1], ast.Expr) else None
