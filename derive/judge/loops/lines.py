"""Statements of generated code, broken where they are too long: at their outermost bracket."""

from __future__ import annotations

import re
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
    """The lines of a statement, broken if it is too long."""
    if len(indent + line) <= WIDTH:
        return [indent + line]
    left, sign, right = line.partition(" = ")
    if sign and "(" not in left and not _is_bracketed(right):
        line = f"{left} = ({right})"
    return _break_bracket(line, indent) or [indent + line]


def _fold_inside(text: str, indent: str) -> list[str]:
    """The lines of the inside of a bracket, where Python allows breaks anywhere."""
    if len(indent + text) <= WIDTH:
        return [indent + text]
    for cut in _CUTS:
        pieces = list(_split_pieces(text, cut))
        if len(pieces) > 1:
            return [line for piece in pieces for line in _fold_inside(piece, indent)]
    return _break_bracket(text, indent) or [indent + text]


def _break_bracket(text: str, indent: str) -> list[str] | None:
    """The lines of a text broken at its longest outermost bracket: head, indented inside, tail."""
    spans = list(_find_brackets(text))
    start, end = max(spans, key=lambda span: (span[1] - span[0], -span[0]), default=(0, 0))
    if end - start < 3:
        return None
    head, inside, tail = text[: start + 1], text[start + 1 : end], text[end:]
    return [indent + head, *_fold_inside(inside, indent + INDENT), indent + tail]


def _is_bracketed(text: str) -> bool:
    """Whether a text is one bracket, after an optional name and before a short tail."""
    spans = list(_find_brackets(text))
    if not spans:
        return False
    start, end = max(spans, key=lambda span: span[1] - span[0])
    return re.fullmatch(r"[\w.]*", text[:start]) is not None and len(text) - end < 30


def _find_brackets(text: str) -> Iterator[tuple[int, int]]:
    """The positions of the outermost brackets, as pairs (opening, closing)."""
    depth, start = 0, 0
    for place, index in enumerate(text):
        if index in "([":
            start = place if depth == 0 else start
            depth += 1
        elif index in ")]":
            depth -= 1
            if depth == 0:
                yield start, place


def _split_pieces(text: str, cut: re.Pattern[str]) -> Iterator[str]:
    """The pieces of a text between cuts outside brackets."""
    last = 0
    spans = list(_find_brackets(text))
    for found in cut.finditer(text):
        if not any(start < found.start() < end for start, end in spans):
            yield text[last : found.start()]
            last = found.end()
    yield text[last:]
