"""Readers of the text files with test cases.

A text file has parts that begin with `[title]`; empty lines separate the entries of a part; a line
that starts with `# ` is a comment. A part that is code or a formula begins with indented entries.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

TITLE = re.compile(r"^\[(.*)\]$", re.MULTILINE)


def read_text(file: str | Path, name: str = "") -> str:
    """The text of a file, or of the one of a name beside it."""
    path = Path(file)
    return (path.with_name(name) if name else path).read_text(encoding="utf-8")


def read_parts(file: str | Path, name: str = "") -> dict[str, list[str]]:
    """Read the entries of each part, by title and in the order of the file."""
    text = re.sub(r"^# .*\n", "", read_text(file, name), flags=re.MULTILINE)
    _, *found = TITLE.split(text)
    return {
        title: [entry.strip("\n") for entry in re.split(r"\n\s*\n", body) if entry.strip()]
        for title, body in zip(found[::2], found[1::2], strict=True)
    }


def read_lists(file: str | Path, name: str = "") -> dict[str, list[str]]:
    """Read the lines of each part, by title; an indented line continues the line above it."""
    parts = read_parts(file, name).items()
    return {title: _join_lines("\n".join(entries)) for title, entries in parts}


def read_blocks(file: str | Path, name: str = "") -> dict[str, dict[str, tuple[str, ...]]]:
    """Read, of each part, lines `name: first` with the lines indented below them, by name.

    A line that is indented by 8 continues the line above it.
    """
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    for title, entries in read_parts(file, name).items():
        blocks = re.split(r"\n(?! )", re.sub(r"\n {8}", " ", "\n".join(entries)))
        lines = (block.split("\n    ") for block in blocks)
        heads = ((*first.split(": ", 1), *rest) for first, *rest in lines)
        found[title] = {name: tuple(rest) for name, *rest in heads}
    return found


def read_named(file: str | Path, name: str = "") -> dict[str, str]:
    """Read lines `name: text` by name; an indented line continues the line above it."""
    lines = _join_lines("\n".join(_find_lines(read_text(file, name))))
    return dict(line.split(": ", 1) for line in lines)


def _join_lines(text: str) -> list[str]:
    return re.split(r"\n(?! )", re.sub(r"\n +", "\n ", text))


def read_rows(file: str | Path, name: str = "") -> list[Any]:
    """Read the lines of a file, each as a tuple of cells that are separated by `| `.

    A first cell `slow` marks the case as slow.
    """
    return list(map(_to_row, _find_lines(read_text(file, name))))


def read_tables(file: str | Path, name: str = "") -> dict[str, list[Any]]:
    """Read the rows of each part, by title."""
    parts = {title: "\n".join(entries) for title, entries in read_parts(file, name).items()}
    return {title: list(map(_to_row, _find_lines(text))) for title, text in parts.items()}


class Expressions:
    """The rows of a part by its title, each a line of Python over names known when it is read.

    A function's code is the line that it stands in. A line that begins and ends with square
    brackets, as a title does, stands in parentheses.
    """

    def __init__(self, file: str | Path, name: str, names: dict[str, Any] | None = None) -> None:
        self.path, self.names = Path(file).with_name(name), names or {}
        titles = TITLE.findall(read_text(self.path))
        assert not (rows := [t for t in titles if _is_list(t)]), f"rows taken for titles: {rows}"

    def __getitem__(self, title: str) -> list[Any]:
        lines = read_text(self.path).splitlines()
        first = lines.index(f"[{title}]") + 1
        part = takewhile(lambda line: not TITLE.match(line), lines[first:])
        return [
            eval(compile("\n" * number + line, str(self.path), "eval"), self.names)
            for number, line in enumerate(part, first)
            if _find_lines(line)
        ]


def _is_list(title: str) -> bool:
    """Is it a list of literals or calls? Words alone may be an expression too."""
    try:
        nodes = ast.walk(ast.parse(f"[{title}]"))
    except SyntaxError:
        return False
    return any(isinstance(node, (ast.Constant, ast.Call)) for node in nodes)


def _find_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip() and not line.startswith("# ")]


def _to_row(line: str) -> Any:
    cells = tuple(cell.strip() for cell in f"{line} ".split("| "))
    return pytest.param(*cells[1:], marks=pytest.mark.slow) if cells[0] == "slow" else cells


@dataclass(frozen=True)
class Section:
    """A part of a file that is code or a formula, with the entries above it."""

    title: str
    text: str
    entries: Mapping[str, str]


def read_sections(file: str | Path, name: str = "") -> Iterator[Section]:
    """Read the parts that are code or formulas; a repeated entry is joined by newlines."""
    text = re.sub(r"(?:^# .*\n)+(?=\[)", "", read_text(file, name), flags=re.MULTILINE)
    _, *found = TITLE.split(text)
    for title, body in zip(found[::2], found[1::2], strict=True):
        above = re.match(r"\n(?:# .*\n)*((?: {4}.*\n)*)", body)
        assert above, title
        entries: dict[str, str] = {}
        for each in re.findall(r"^ {4}(\w.*(?:\n {5}.*)*)", above[1], re.MULTILINE):
            name, value = re.sub(r"\s*\n\s*", " ", each).split(": ", 1)
            entries[name] = f"{entries[name]}\n{value}" if name in entries else value
        yield Section(title, body[above.end() :].strip("\n"), entries)
