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
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.strip() and not line.startswith("# ")]
    cells = [tuple(cell.strip() for cell in f"{row} ".split("| ")) for row in rows]
    return [pytest.param(*c[1:], marks=pytest.mark.slow) if c[0] == "slow" else c for c in cells]
