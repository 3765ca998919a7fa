"""Where code can be edited: the expressions on the lines that ran, and what is known there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Rewrite:
    """Another text for a stretch of the source."""

    start: int
    end: int
    text: str
    words: str
    cost: float
    line: int = 0
    bare: bool = True  # does it need no brackets, whatever it is?
    is_exchange: bool = False  # is it a tensor's name for another's?
    others: tuple[Rewrite, ...] = ()  # of the same kind, further on

    def apply(self, source: str) -> str:
        """The source with it."""
        for other in reversed(self.others):
            source = other.apply(source)
        text = self.text if self.bare or _is_atom(self.text) else f"({self.text})"
        return source[: self.start] + text + source[self.end :]


def repeat_rewrites(rewrites: Sequence[Rewrite], more: float) -> Iterator[Rewrite]:
    """The same slip mended wherever it was made, at a higher cost."""
    groups: dict[str, list[Rewrite]] = {}
    for rewrite in rewrites:
        groups.setdefault(rewrite.words, []).append(rewrite)
    for group in groups.values():
        apart: list[Rewrite] = []
        for each in sorted(group, key=lambda each: (each.start, each.cost)):
            if not apart or each.start >= apart[-1].end:
                apart.append(each)
        if len(apart) > 1:
            cost = min(each.cost for each in apart) + more
            yield replace(apart[0], cost=cost, others=tuple(apart[1:]))


_UNDOES: dict[type, type] = {
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}


def find_closing(text: str, start: int) -> int:
    """Where the bracket that opens at a place is closed."""
    depth = 0
    for place in range(start, len(text)):
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if not depth:
            return place
    return len(text)


def count_contrived(source: str) -> int:
    """How many signs are doubled in a text, and operations undone, as nobody writes them."""
    return sum(_is_contrived(node) for node in ast.walk(ast.parse(source)))


def _is_contrived(node: ast.AST) -> bool:
    match node:
        case ast.BinOp(_, ast.Add() | ast.Sub(), ast.UnaryOp(ast.USub())):
            return True
        case ast.UnaryOp(ast.USub(), ast.UnaryOp(ast.USub())):
            return True
        case ast.BinOp(one, ast.Sub() | ast.Div(), other) if is_same(one, other):
            return True
        case ast.BinOp(ast.BinOp(first, inner, second), outer, other) if _UNDOES.get(
            type(inner)
        ) is type(outer):
            is_either = isinstance(inner, (ast.Add, ast.Mult)) and is_same(first, other)
            return is_either or is_same(second, other)
        case ast.BinOp(ast.Constant(), ast.Mult(), ast.BinOp(ast.Constant(), ast.Mult())):
            return True
        case ast.BinOp(
            ast.BinOp(ast.Constant(), ast.Mult()), ast.Mult() | ast.Div(), ast.Constant()
        ):
            return True
        case ast.Call(ast.Attribute(ast.Call(ast.Attribute(_, inner), one), outer), other):
            return inner == outer and len(one) == len(other) and all(map(is_same, one, other))
    return False


def is_same(one: ast.AST, other: ast.AST) -> bool:
    """Are two nodes written alike?"""
    return ast.dump(one) == ast.dump(other)


class Source:
    """A text, and where its nodes stand in it, in characters."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._starts = [0]
        for row in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(row))
        self._rows = text.splitlines(keepends=True)

    @cached_property
    def unused(self) -> frozenset[str]:
        """The names, of attributes too, that the text never reads."""
        made = {n.arg for n in ast.walk(self.tree) if isinstance(n, ast.arg)}
        read: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, (ast.Name, ast.Attribute)):
                name = node.id if isinstance(node, ast.Name) else node.attr
                (read if isinstance(node.ctx, ast.Load) else made).add(name)
        return frozenset(made - read)

    def spread(self, lines: set[int]) -> set[int]:
        """All lines of the innermost statements on these lines."""
        found = set(lines)
        for statement, _ in _find_statements(self.tree, ()):
            own = set(range(statement.lineno, (statement.end_lineno or 0) + 1))
            if own & lines and not hasattr(statement, "body"):
                found |= own
        return found

    def find_plain(self, lines: set[int], told: set[int]) -> set[int]:
        """The lines where names that are read on some lines are given what is no tensor."""
        statements = [each for each, _ in _find_statements(self.tree, ())]
        read = {
            node.id
            for each in statements
            for node in ast.walk(each)
            if isinstance(node, ast.Name) and node.lineno in lines
        }
        return {
            each.lineno
            for each in statements
            if isinstance(each, ast.Assign) and each.lineno not in told
            if any(isinstance(t, ast.Name) and t.id in read for t in each.targets)
        }

    def span(self, node: Any) -> tuple[int, int]:
        """Where a node begins and ends."""
        return (
            self._find(node.lineno, node.col_offset),
            self._find(node.end_lineno, node.end_col_offset),
        )

    def _find(self, line: int, column: int) -> int:
        row = self._rows[line - 1] if line <= len(self._rows) else ""
        return self._starts[line - 1] + len(row.encode()[:column].decode())

    def get(self, node: Any) -> str:
        """The text of a node."""
        start, end = self.span(node)
        return self.text[start:end]


@dataclass(frozen=True)
class Site:
    """One expression of the code that ran."""

    source: Source
    node: ast.expr
    parents: tuple[ast.AST, ...]  # the nearest last
    names: Mapping[str, Any]  # and their values when the line was reached
    line: int

    @property
    def parent(self) -> ast.AST:
        """What it is directly part of."""
        return self.parents[-1]

    @property
    def text(self) -> str:
        """How it is written."""
        return self.source.get(self.node)

    @property
    def is_open(self) -> bool:
        """Does it need no brackets, whatever it is: a whole value or an argument?"""
        return isinstance(
            self.parent,
            (
                *(ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.keyword),
                *(ast.GeneratorExp, ast.ListComp, ast.Tuple, ast.List),
            ),
        ) or (isinstance(self.parent, ast.Call) and self.node is not self.parent.func)

    @property
    def is_branch(self) -> bool:
        """Does it decide what runs?"""
        statement = next((p for p in reversed(self.parents) if isinstance(p, ast.stmt)), None)
        return isinstance(statement, ast.If)

    @property
    def is_value(self) -> bool:
        """Is it a value that is computed with: a whole one, an argument, an operand?"""
        if isinstance(self.parent, (ast.BinOp, ast.UnaryOp)):
            return True
        if isinstance(self.parent, ast.Attribute):  # what a method is called on
            return len(self.parents) > 1 and isinstance(self.parents[-2], ast.Call)
        return self.is_open

    def replace(self, text: str, words: str, cost: float) -> Rewrite:
        """Another text in its place."""
        start, end = self.source.span(self.node)
        return Rewrite(start, end, text, words, cost, self.line)

    def join(self, text: str, words: str, cost: float) -> Rewrite:
        """An expression in its place, in brackets where it needs them."""
        start, end = self.source.span(self.node)
        return Rewrite(start, end, text, words, cost, self.line, self.is_open)


def _is_atom(text: str) -> bool:
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        return False
    return isinstance(node, (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.Constant))


def find_sites(source: Source, lines: Mapping[int, Mapping[str, Any]]) -> Iterator[Site]:
    """The expressions of the statements that ran, outer ones first."""
    for statement, parents in _find_statements(source.tree, ()):
        line = next(
            (n for n in range(statement.lineno, (statement.end_lineno or 0) + 1) if n in lines),
            None,
        )
        if line is None:
            continue
        names = lines[line]
        for child in ast.iter_child_nodes(statement):
            if isinstance(child, ast.expr):
                yield from _descend(source, child, (*parents, statement), names)


def _find_statements(node: ast.AST, parents: tuple[ast.AST, ...]) -> Iterator[Any]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            yield from _find_statements(child, (*parents, child))
        elif isinstance(child, ast.While):
            continue  # an edit might never end
        elif isinstance(child, (ast.If, ast.For, ast.With, ast.Try)):
            yield child, parents  # its own expressions
            yield from _find_statements(child, (*parents, child))
        elif isinstance(child, ast.stmt):
            yield child, parents
        elif isinstance(child, (ast.ExceptHandler,)):
            yield from _find_statements(child, parents)


def _descend(
    source: Source, node: ast.expr, parents: tuple[ast.AST, ...], names: Mapping[str, Any]
) -> Iterator[Site]:
    stored = isinstance(getattr(node, "ctx", None), ast.Store)
    if isinstance(node, (ast.JoinedStr, ast.Lambda)) or (
        stored and not isinstance(node, ast.Tuple)
    ):
        return  # what is assigned to stays, though names of a tuple may change places
    yield Site(source, node, parents, names, node.lineno)
    for child in ast.iter_child_nodes(node):
        inner = (*parents, node)
        if isinstance(child, ast.keyword):
            yield from _descend(source, child.value, (*inner, child), names)
        elif isinstance(child, ast.comprehension):
            for each in (child.iter, *child.ifs):
                yield from _descend(source, each, (*inner, child), names)
        elif isinstance(child, ast.expr):
            yield from _descend(source, child, inner, names)
