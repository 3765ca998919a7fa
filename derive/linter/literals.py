"""Text that stands in the source as literals, and where each of its characters stands.

Read are a literal, literals side by side, literals joined by +, both branches of a conditional, and
a name that is assigned such a text once. An f-string is not read.
"""

from __future__ import annotations

import ast
import re
import tokenize
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING

from derive.linter.scopes import find_only

if TYPE_CHECKING:
    from collections.abc import Sequence

    from derive.linter.scopes import Scope

_OPENING = re.compile(r"([A-Za-z]*)('''|\"\"\"|'|\")")
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class Text:
    """A text, the literals that make it up, and the expression that gives it to the call."""

    value: str
    pieces: tuple[ast.Constant, ...]
    node: ast.expr

    @property
    def is_at_call(self) -> bool:
        """Whether the literals stand in the call itself."""
        first, last = self.pieces[0], self.pieces[-1]
        start = (self.node.lineno, self.node.col_offset)
        end = (self.node.end_lineno or 0, self.node.end_col_offset or 0)
        return (
            start <= (first.lineno, first.col_offset)
            and (last.end_lineno or 0, last.end_col_offset or 0) <= end
        )


def find_texts(node: ast.expr, scope: Scope, depth: int = 0) -> list[Text]:
    """All texts that an expression may be; none where that is not known."""
    match node:
        case ast.Constant(value=str(value)):
            return [Text(value, (node,), node)]
        case ast.BinOp(left=left, op=ast.Add(), right=right) if depth < _DEEPEST:
            lefts = find_texts(left, scope, depth + 1)
            rights = find_texts(right, scope, depth + 1)
            if len(lefts) == len(rights) == 1:
                (one,), (other,) = lefts, rights
                return [Text(one.value + other.value, one.pieces + other.pieces, node)]
            return []
        case ast.IfExp(body=body, orelse=other) if depth < _DEEPEST:
            return find_texts(body, scope, depth + 1) + find_texts(other, scope, depth + 1)
        case ast.Name(id=name) if depth < _DEEPEST and (only := find_only(name, scope)):
            found = find_texts(*only, depth + 1)
            return [Text(text.value, text.pieces, node) for text in found]
        case _:
            return []


def find_characters(text: Text, lines: Sequence[str]) -> list[tuple[int, int]]:
    """The line (from 1) and column (from 0) of each character; nothing where escapes hide it."""
    places: list[tuple[int, int]] = []
    for piece in text.pieces:
        found = _find_in_literal(piece, lines)
        if found is None:
            return []
        places += found
    return places if len(places) == len(text.value) else []


def to_column(line: str, offset: int) -> int:
    """The column of an offset that Python counts in bytes."""
    return offset if line.isascii() else len(line.encode()[:offset].decode(errors="replace"))


def _find_in_literal(piece: ast.Constant, lines: Sequence[str]) -> list[tuple[int, int]] | None:
    first, last = piece.lineno, piece.end_lineno or piece.lineno
    rows = list(lines[first - 1 : last])
    rows[-1] = rows[-1][: to_column(rows[-1], piece.end_col_offset or 0)]
    lead = to_column(rows[0], piece.col_offset)
    rows[0] = rows[0][lead:]
    places: list[tuple[int, int]] = []
    found = ""
    try:
        # the bracket lets literals stand on several lines
        tokens = list(tokenize.generate_tokens(StringIO("(" + "\n".join(rows) + ")").readline))
    except (tokenize.TokenError, SyntaxError):
        return None
    for token in tokens:
        if token.type != tokenize.STRING:
            continue
        opening = _OPENING.match(token.string)
        if opening is None or ("\\" in token.string and "r" not in opening[1].lower()):
            return None
        row, column = token.start
        column += opening.end() - (1 if row == 1 else 0)
        body = token.string[opening.end() : -len(opening[2])]
        for character in body:
            places.append((first + row - 1, column + (lead if row == 1 else 0)))
            row, column = (row + 1, 0) if character == "\n" else (row, column + 1)
        found += body
    return places if found == piece.value else None
