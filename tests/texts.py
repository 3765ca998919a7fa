"""Tables of examples as text, beside the tests that read them.

`[title]` begins a part; its entries are parted by empty lines; a line that starts with `# ` is a
comment.
"""

import re
from pathlib import Path
from typing import Any

import pytest


def read_parts(path: Path) -> dict[str, list[str]]:
    """The entries of each part by its title, in the order of the file."""
    text = re.sub(r"^# .*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    _, *found = re.split(r"^\[(.*)\]$", text, flags=re.MULTILINE)
    return {
        title: [entry.strip("\n") for entry in re.split(r"\n\s*\n", body) if entry.strip()]
        for title, body in zip(found[::2], found[1::2], strict=True)
    }


def read_rows(path: Path) -> list[Any]:
    """The lines of a file, each in its cells, which are parted by `| `.

    A line whose first cell is `slow` is a case of the slow tests.
    """
    return list(map(_to_row, _find_lines(path.read_text(encoding="utf-8"))))


def read_tables(path: Path) -> dict[str, list[Any]]:
    """The rows of each part by its title."""
    parts = {title: "\n".join(entries) for title, entries in read_parts(path).items()}
    return {title: list(map(_to_row, _find_lines(text))) for title, text in parts.items()}


def _find_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not line.startswith("# ")]


def _to_row(line: str) -> Any:
    cells = tuple(cell.strip() for cell in f"{line} ".split("| "))
    return pytest.param(*cells[1:], marks=pytest.mark.slow) if cells[0] == "slow" else cells
