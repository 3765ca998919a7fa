"""One namespace: what each name of the text is, from the declarations and from where it stands.

    tensor     declared with a shape, or the left side of an equation
    size       in a shape, in the extent of an index line, in a bound, or on a size line
    scalar     on a scalar line
    function   defined by `phi(x) = ..`
    index      on an index line; bound by `sum[j](..)`; on a left side; or a name that nothing else
               claims, alone in a place of a tensor

A name claimed in two ways is refused, and both claims are shown.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from derive.frontend.text.build import (
    BINDING,
    CONSTANTS,
    ELEMENTWISE,
    KEEPING,
)
from derive.frontend.text.lines import read_elements, walk_in_order
from derive.ir.functions import FUNCTIONS, ROWS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from derive.frontend.text.lines import Source
    from derive.frontend.text.statements import EquationLine, FunctionLine

FUNCTION_WORDS = (*ELEMENTWISE, "where", *BINDING, *KEEPING)
RESERVED = {"True", "False", "None"}

PLACED = ("declared with a shape", "the left side of an equation, with places")

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Claim:
    """What a name is, and the place that says so."""

    kind: str  # tensor | size | scalar | function | index
    how: str  # "declared with a shape"
    span: Span


@dataclass
class Names:
    """The names of one text; insertion order is the order of the text."""

    source: Source
    claims: dict[str, Claim] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)  # name: IndexedBase or Symbol
    defaults: dict[str, Any] = field(default_factory=dict)  # scalar: exact number or None
    sizes: dict[str, int | None] = field(default_factory=dict)  # those on size lines
    shapes: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # of declared tensors
    ranges: dict[str, Any] = field(default_factory=dict)  # index: the extent its line gives
    functions: dict[str, FunctionLine] = field(default_factory=dict)
    equations: dict[str, list[EquationLine]] = field(default_factory=dict)
    bases: dict[str, Any] = field(default_factory=dict)

    def kind(self, name: str) -> str:
        """What the name is; nothing if it is free."""
        return self.claims[name].kind if name in self.claims else ""

    def claim(self, name: str, kind: str, how: str, place: Span) -> None:
        """Enter one claim; DeriveError where the name is something else already."""
        known = self.claims.get(name)
        if name in RESERVED or (name in CONSTANTS and how not in PLACED):
            says = f"{name} has a meaning of its own in the notation"
            raise self.source.refuse("name-reserved", says, place, help=f"write {name.lower()}_")
        if known is None:
            self.claims[name] = Claim(kind, how, place)
        elif known.kind != kind:
            raise self.source.refuse(
                "name-clash",
                f"{name} is {to_article(known.kind)} and {to_article(kind)}",
                known.span,
                place,
                facts=[
                    f"{name} is {to_article(known.kind)}: {known.how}",
                    f"{name} is {to_article(kind)}: {how}",
                ],
                help="give one of them another name",
            )
        elif kind not in {"size", "index"}:
            raise self.source.refuse(
                "declared-twice",
                f"{name} is declared twice",
                known.span,
                place,
                help="give one of them another name",
            )


def is_composite(name: str) -> bool:
    """Is it a word that only abbreviates others, so that a user may give it another meaning?"""
    rows = FUNCTIONS.get(name), ROWS.get(name)
    return any(row and row.definition and (row is rows[0] or not row.is_kept) for row in rows)


def find_places(tree: ast.expr) -> Iterable[tuple[str, int, ast.expr]]:
    """Give (tensor, number, place) for each place of each access, in the order of the text."""
    heads = {n.func for n in ast.walk(tree) if isinstance(n, ast.Call)}
    for node in walk_in_order(tree):
        match node:
            case ast.Subscript(ast.Name(tensor), bracket) if node not in heads:
                for number, place in enumerate(read_elements(bracket)):
                    yield tensor, number, place


def to_article(kind: str) -> str:
    """`a size`, `an index`."""
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
