"""Files as texts; a notebook's code cells as one, so that a cell knows the imports before it.

Lines of IPython (`%time`, `!ls`, `x?`) are left blank; so is a cell in another language (`%%bash`)
and, unless it is asked for, one that is no Python. Cells are numbered from 1, those of text among
them. A notebook that was pasted as text has a prompt, `In [3]:`, on the line before each cell.
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
_PROMPT = re.compile(r"^In \[(\d+| |\*)?\]:[ \t]*$", re.MULTILINE)
_PYTHON_CELLS = ("time", "timeit", "capture", "prun", "memit", "python3")


@dataclass(frozen=True, slots=True)
class Cells:
    """The Python of a notebook, and for each of its lines the cell and the line there."""

    text: str
    places: tuple[tuple[int, int], ...]
    shown: frozenset[int]  # lines of expressions at the end of a cell, whose value is shown
    broken: tuple[tuple[int, str], ...]  # line in the text and what is wrong there
    prompts: tuple[str, ...]  # of each line: "In [3]", or its cell where that was never run

    def name_lines(self) -> tuple[str, ...]:
        """Each line as people tell it, `In [3] line 2`."""
        pairs = zip(self.prompts, self.places, strict=True)
        return tuple(f"{prompt} line {line}" for prompt, (_, line) in pairs)


def is_file(text: str) -> bool:
    """Is it the path of a file? Not where it is too long for one, or holds what no path may."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False


def read_text(path: Path, shown: str, read: Callable[[bytes], Any] | None = None) -> Any:
    """The file's text, or what `read` makes of its bytes; DeriveError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig") if read is None else read(path.read_bytes())
    except UnicodeDecodeError as error:
        raise refuse("file-unreadable", f"{shown} is not UTF-8 text") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise refuse("file-unreadable", f"cannot read {shown}: {reason}") from error


def is_pasted(text: str) -> bool:
    """Is it a notebook pasted as text?"""
    return _PROMPT.search(text) is not None


def read_pasted(text: str) -> Cells:
    """The code of a notebook that was pasted as text; what stands below a cell is no code."""
    parts = _PROMPT.split(text.replace("\r\n", "\n"))
    cells = zip(parts[1::2], parts[2::2], strict=True)
    codes = [
        (_cut_output(body.removeprefix("\n")), (number or "").strip()) for number, body in cells
    ]
    return _join([(k, code, number) for k, (code, number) in enumerate(codes, 1)], keep_broken=True)


def _cut_output(body: str) -> str:
    """The paragraphs that are code: output is no Python, or follows a value as a value alone."""
    first, *others = re.split(r"(\n[ \t]*\n+)", body)
    code, is_shown = first, _is_python(first) and _find_shown(first) is not None
    for gap, part in zip(others[::2], others[1::2], strict=True):
        if not _is_python(part):
            break
        if is_shown and all(isinstance(node, ast.Expr) for node in ast.parse(part).body):
            break
        code += gap + part
        is_shown = _is_python(code) and _find_shown(code) is not None
    return code


def read_cells(data: bytes, *, keep_broken: bool = False) -> Cells:
    """The code of a notebook; ValueError where it is none."""
    try:
        notebook = json.loads(data)
        cells = notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]
        codes = [(k, *_read_cell(cell)) for k, cell in enumerate(cells, 1)]
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError("it is no notebook") from error
    return _join(codes, keep_broken)


def _join(codes: Iterable[tuple[int, str | None, str]], keep_broken: bool) -> Cells:
    """The cells below each other; each has its number, its code, and its count when it was run."""
    lines: list[str] = []
    places: list[tuple[int, int]] = []
    prompts: list[str] = []
    shown: set[int] = set()
    broken: list[tuple[int, str]] = []
    for number, code, run in codes:
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
        prompts += [f"In [{run}]" if run else f"cell {number}"] * len(rows)
        lines += rows
    text = "\n".join(lines)
    return Cells(text, tuple(places), frozenset(shown), tuple(broken), tuple(prompts))


def _read_cell(cell: dict[str, Any]) -> tuple[str | None, str]:
    """The text of a code cell, and how many had been run when it was, as its prompt has it."""
    if cell["cell_type"] != "code":
        return None, ""
    count = cell.get("execution_count", cell.get("prompt_number"))  # the name in older files
    run = str(count) if isinstance(count, int) else ""
    source = cell["source"] if "source" in cell else cell["input"]
    text = source if isinstance(source, str) else "".join(source)
    return text.replace("\r\n", "\n").replace("\r", "\n"), run


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
    for k, line in enumerate(lines):
        if _IPYTHON.match(line):  # as deep as the one it replaces
            lead = line[: len(line) - len(line.lstrip())]
            lines[k] = f"{lead}pass" if lead else ""
    return "\n".join(lines)


def _find_shown(text: str) -> int | None:
    """The first line of the expression at the end of a cell."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        body = ast.parse(text).body
    return body[-1].lineno if body and isinstance(body[-1], ast.Expr) else None
