"""One expression of the text as Python's syntax tree, with places in the source; never evaluated.

Only the shape of the tree is Python's: what the nodes mean, and which are allowed, is said where
they are read.
"""

from __future__ import annotations

import ast
import warnings
from typing import TYPE_CHECKING, NamedTuple

from derive.frontend.text.lines import find_span

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from derive.errors import DeriveError
    from derive.frontend.text.lines import Source, Token


class Call(NamedTuple):
    """`word[places](arguments)` or, without brackets, `word(arguments)`."""

    word: str
    brackets: tuple[ast.expr, ...] | None
    arguments: tuple[ast.expr, ...]
    keywords: tuple[ast.keyword, ...]
    name: ast.Name


def read_expression(source: Source, tokens: Sequence[Token]) -> ast.expr:
    """The tree of the tokens; `col_offset` and `end_col_offset` are places in the whole source."""
    start, end = find_span(tokens)
    piece = "".join(" " if c.isspace() else c for c in _without_comments(source, tokens))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(piece, mode="eval").body
    except SyntaxError as error:
        at = min(start + max((error.offset or 1) - 1, 0), end - 1)
        raise source.refuse(
            "syntax",
            "this is no expression",
            (at, at + 1),
            help="compare with: sum[j](A[i, j] * x[j])",
        ) from None
    except (RecursionError, MemoryError, ValueError, OverflowError):
        raise too_deep(source, start, end) from None
    _place(tree, piece, start)
    return tree


def span(node: ast.expr | ast.keyword) -> tuple[int, int]:
    """Where a node stands in the source."""
    return node.col_offset, node.end_col_offset or node.col_offset + 1


def too_deep(source: Source, start: int, end: int) -> DeriveError:
    """The refusal of an expression that holds too many levels or terms."""
    return source.refuse(
        "too-deep",
        "this expression has more levels than can be followed",
        (start, end),
        help="give a part its own equation",
    )


def read_elements(bracket: ast.expr) -> tuple[ast.expr, ...]:
    """What stands in a subscript, one or several."""
    return tuple(bracket.elts) if isinstance(bracket, ast.Tuple) else (bracket,)


def match_call(node: ast.expr) -> Call | None:
    """The node as a call of a word, if it is one."""
    match node:
        case ast.Call(ast.Subscript(ast.Name(word) as name, bracket), arguments, keywords):
            return Call(word, read_elements(bracket), tuple(arguments), tuple(keywords), name)
        case ast.Call(ast.Name(word) as name, arguments, keywords):
            return Call(word, None, tuple(arguments), tuple(keywords), name)
        case _:
            return None


def walk_in_order(node: ast.expr) -> Iterator[ast.expr]:
    """The node and all inside it in the order of the text, outer ones first."""
    found = [n for n in ast.walk(node) if isinstance(n, ast.expr)]
    return iter(sorted(found, key=lambda n: (n.col_offset, -(n.end_col_offset or 0))))


def _without_comments(source: Source, tokens: Sequence[Token]) -> str:
    """The stretch of text with blanks for all that is no token, so that columns stay."""
    out: list[str] = []
    at = tokens[0].start
    for token in tokens:
        out += [" " * (token.start - at), source.text[token.start : token.end]]
        at = token.end
    return "".join(out)


def _place(tree: ast.expr, piece: str, start: int) -> None:
    """Columns count bytes of UTF-8 inside the piece; make them places in the source."""
    if piece.isascii():
        place_of = range(len(piece) + 1)
    else:
        counts = [len(c.encode()) for c in piece]
        place_of = [k for k, count in enumerate(counts) for _ in range(count)]  # type: ignore[assignment]
        place_of = [*place_of, len(piece)]  # type: ignore[assignment]
    for node in ast.walk(tree):
        if isinstance(node, (ast.expr, ast.keyword)):
            node.col_offset = start + place_of[node.col_offset]
            node.end_col_offset = start + place_of[node.end_col_offset or 0]
