"""Long lines broken at brackets, as people break them.

A line that is too long is opened at its outermost bracket; what stands inside goes to lines of its
own, cut where it holds together least: `for`, `if`, a comma, + and -, * and /.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH = 96
INDENT = "    "

_CUTS = (
    re.compile(r" (?=for )"),
    re.compile(r" (?=if )| (?=else )"),
    re.compile(r"(?<=,) "),
    re.compile(r" (?=or )"),
    re.compile(r" (?=and )"),
    re.compile(r" (?=[+-] )"),
    re.compile(r" (?=[*/%] |// )"),
)


def fold_line(line: str, indent: str = "") -> list[str]:
    """A statement on as few lines as the width allows."""
    if len(indent + line) <= WIDTH:
        return [indent + line]
    left, sign, right = line.partition(" = ")
    if sign and "(" not in left and not _is_bracketed(right):
        line = f"{left} = ({right})"
    opened = _open(line, indent)
    return opened if opened is not None else [indent + line]


def _fold_inside(text: str, indent: str) -> list[str]:
    """The inside of a bracket, where a line may end anywhere."""
    if len(indent + text) <= WIDTH:
        return [indent + text]
    for cut in _CUTS:
        pieces = list(_cut(text, cut))
        if len(pieces) > 1:
            return [line for piece in pieces for line in _fold_inside(piece, indent)]
    opened = _open(text, indent)
    return opened if opened is not None else [indent + text]


def _open(text: str, indent: str) -> list[str] | None:
    """The longest outermost bracket opened: its head, its inside further in, its tail."""
    spans = list(_find_brackets(text))
    if not spans:
        return None
    start, end = max(spans, key=lambda span: (span[1] - span[0], -span[0]))
    if end - start < 3:
        return None
    head, inside, tail = text[: start + 1], text[start + 1 : end], text[end:]
    return [indent + head, *_fold_inside(inside, indent + INDENT), indent + tail]


def _is_bracketed(text: str) -> bool:
    """Is all of it, but a name before and a short tail behind, in one bracket?"""
    spans = list(_find_brackets(text))
    if not spans:
        return False
    start, end = max(spans, key=lambda span: span[1] - span[0])
    return re.fullmatch(r"[\w.]*", text[:start]) is not None and len(text) - end < 30


def _find_brackets(text: str) -> Iterator[tuple[int, int]]:
    """The outermost brackets, as places of the opening and the closing one."""
    depth, start = 0, 0
    for place, letter in enumerate(text):
        if letter in "([":
            start = place if depth == 0 else start
            depth += 1
        elif letter in ")]":
            depth -= 1
            if depth == 0:
                yield start, place


def _cut(text: str, cut: re.Pattern[str]) -> Iterator[str]:
    """The pieces between the cuts that stand in no bracket."""
    last = 0
    spans = list(_find_brackets(text))
    for found in cut.finditer(text):
        if not any(start < found.start() < end for start, end in spans):
            yield text[last : found.start()]
            last = found.end()
    yield text[last:]
