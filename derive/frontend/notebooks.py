"""The Python text of a file or a notebook; a notebook's code cells are joined.

Lines of IPython (`%time`, `!ls`, `x?`) become blank. So do cells in another language (`%%bash`)
and, unless `keep_broken`, cells that are not Python. Cells are numbered from 1; text cells count
too. A notebook that was pasted as text has a prompt, `In [3]:`, on the line before each cell.
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
    """The Python text of a notebook; `places` are (cell, line in it) for each line."""

    text: str
    places: tuple[tuple[int, int], ...]
    shown: frozenset[int]  # first lines of the cells' final expressions, whose values are shown
    broken: tuple[tuple[int, str], ...]  # (line in the text, message) of syntax errors
    prompts: tuple[str, ...]  # for each line "In [3]", or "cell 2" if that was never run

    def name_lines(self) -> tuple[str, ...]:
        """The name of each line, `In [3] line 2`."""
        pairs = zip(self.prompts, self.places, strict=True)
        return tuple(f"{prompt} line {line}" for prompt, (_, line) in pairs)


def is_file(text: str) -> bool:
    """Whether the text is the path of a file; False for texts that are no valid path."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False


def read_text(path: Path, shown: str, read: Callable[[bytes], Any] | None = None) -> Any:
    """Return the file's text, or `read` of its bytes, else DeriveError; it is called `shown`."""
    try:
        return path.read_text(encoding="utf-8-sig") if read is None else read(path.read_bytes())
    except UnicodeDecodeError as error:
        raise refuse("file-unreadable", f"{shown} is not UTF-8 text") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise refuse("file-unreadable", f"cannot read {shown}: {reason}") from error


def is_pasted(text: str) -> bool:
    """Whether the text is a notebook pasted as text."""
    return _PROMPT.search(text) is not None


def blank_magics(text: str) -> str:
    """The text, with IPython's own lines blank if the first that is no Python is one of them."""
    try:
        _find_shown(text)
    except SyntaxError as error:
        return _to_python(text) if _IPYTHON.match(error.text or "") else text
    except (ValueError, RecursionError, MemoryError):
        pass
    return text


def read_pasted(text: str) -> Cells:
    """Return the code of a notebook that was pasted as text, without the outputs."""
    parts = _PROMPT.split(text.replace("\r\n", "\n"))
    cells = zip(parts[1::2], parts[2::2], strict=True)
    codes = [
        (_cut_output(body.removeprefix("\n")), (number or "").strip()) for number, body in cells
    ]
    return _join_cells(
        [(k, code, number) for k, (code, number) in enumerate(codes, 1)], keep_broken=True
    )


def _cut_output(body: str) -> str:
    """Return the code of a cell without its output.

    Output starts at the first paragraph that is no Python, or that has expressions only and follows
    a shown expression.
    """
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
    """Return the code of a notebook; ValueError if the bytes are no notebook."""
    try:
        codes = [(k, *_read_cell(cell)) for k, cell in enumerate(json.loads(data)["cells"], 1)]
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise ValueError("it is no notebook") from error
    return _join_cells(codes, keep_broken)


def _join_cells(codes: Iterable[tuple[int, str | None, str]], keep_broken: bool) -> Cells:
    """Return the joined cells; each is (number, code or None for text, execution count as text)."""
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
    """Return the text of a code cell (None for other cells) and its execution count as text."""
    if cell["cell_type"] != "code":
        return None, ""
    count = cell.get("execution_count")
    run = str(count) if isinstance(count, int) else ""
    text = "".join(cell["source"])
    return text.replace("\r\n", "\n").replace("\r", "\n"), run


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
    """Return the first line of the expression that ends a cell; None for another ending."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        body = ast.parse(text).body
    return body[-1].lineno if body and isinstance(body[-1], ast.Expr) else None
