"""What parts of LaTeX say: the text of each in the notation, with the axes that it has left."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.frontend.latex.tree import Token

ANY, TERM, FACTOR, ATOM = range(4)  # how tightly a text holds together


class MisfitError(Exception):
    """The equations cannot be read so; `token` is where."""

    def __init__(
        self, says: str, token: Token | None = None, help: str = "", *, of_extents: bool = False
    ) -> None:
        super().__init__(says)
        self.token, self.help, self.of_extents = token, help, of_extents


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a vector or a matrix: its extent, and its index as a mark."""

    extent: str
    mark: int


@dataclass(frozen=True, slots=True)
class Value:
    """The text of a part, its axes, and the indices that it has besides."""

    text: str
    holds: int = ATOM
    axes: tuple[Axis, ...] = ()
    free: tuple[str, ...] = ()
    is_row: bool | None = None  # of a vector
    is_curved: bool = False  # a vector by its elements, as no product of matrices gives it
    parts: tuple[tuple[Value, str, str], ...] = ()  # of a concatenation: index of each, and start

    def within(self, holds: int) -> str:
        """The text, in parentheses where it holds less than its place asks for."""
        return self.text if self.holds >= holds else f"({self.text})"


@dataclass(frozen=True)
class Choice:
    """Where written indices stand, how many axes each tensor has left, and what vectors are."""

    places: Mapping[str, tuple[int, ...]]
    axes: Mapping[str, int]
    extents: Mapping[str, str]  # of the indices that are written
    has_rows: bool = True
    is_strict: bool = True  # no product of two rows, which people write for the inner product


@dataclass(frozen=True, slots=True)
class Layout:
    """The extents of a tensor, which of its places are written, and how many axes come last."""

    extents: tuple[str, ...]
    written: tuple[int, ...]
    axes: int


def write_linear(terms: Mapping[str, int], number: int) -> str:
    """The text of multiples of names and a number."""
    text = ""
    for name, factor in terms.items():
        part = name if abs(factor) == 1 else f"{abs(factor)}*{name}"
        sign = "-" if factor < 0 else "+"
        text += f" {sign} {part}" if text else f"-{part}" if factor < 0 else part
    if number or not text:
        text += f" {'-' if number < 0 else '+'} {abs(number)}" if text else str(number)
    return text


def to_polynomial(extent: str) -> Polynomial:
    """An extent of sizes and numbers."""

    def read(node: ast.expr) -> Polynomial:
        match node:
            case ast.BinOp(left, ast.Add(), right):
                return read(left) + read(right)
            case ast.BinOp(left, ast.Sub(), right):
                return read(left) - read(right)
            case ast.BinOp(left, ast.Mult(), right):
                return read(left) * read(right)
            case ast.Constant(int(number)):
                return Polynomial.of(number)
        return Polynomial.of(ir.Size(ast.unparse(node)))

    return read(ast.parse(extent, mode="eval").body)
