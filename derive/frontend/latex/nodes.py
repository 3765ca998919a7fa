"""The parts of a tree of LaTeX, and how names are written that have scripts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Token:
    """A number, a letter, a word, a command or a sign, at its columns."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Number:
    """A decimal."""

    text: str


@dataclass(frozen=True, slots=True)
class Name:
    """A name with what stands above and below it."""

    base: str
    token: Token = field(compare=False)  # where it stands says nothing of what it means
    above: Tree | None = None
    below: tuple[Tree, ...] = ()
    label: str = ""  # what stands below, as part of a name


@dataclass(frozen=True, slots=True)
class Sum:
    """Terms with their signs."""

    terms: tuple[tuple[str, Tree], ...]


@dataclass(frozen=True, slots=True)
class Product:
    """Factors, each after its sign: none, `odot`, `cdot` or `/`."""

    factors: tuple[tuple[str, Tree], ...]


@dataclass(frozen=True, slots=True)
class Power:
    """A power of what is no name."""

    base: Tree
    exponent: Tree


@dataclass(frozen=True, slots=True)
class Call:
    """A function, or a word over indices: `softmax_j(..)`."""

    function: str
    token: Token = field(compare=False)  # where it stands says nothing of what it means
    arguments: tuple[Tree, ...]
    below: tuple[Tree, ...] = ()


@dataclass(frozen=True, slots=True)
class Big:
    """A sum or product sign with its range."""

    kind: str
    token: Token = field(compare=False)  # where it stands says nothing of what it means
    below: tuple[Tree, ...]
    above: Tree | None
    body: Tree


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain of comparisons."""

    first: Tree
    rest: tuple[tuple[str, Tree], ...]


@dataclass(frozen=True, slots=True)
class Logic:
    """`and` and `or` of parts, `not` of one."""

    word: str
    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Bracket:
    """1 where the relation holds, else 0."""

    condition: Tree


@dataclass(frozen=True, slots=True)
class Cases:
    """Values, each with its condition; the last one may have none."""

    rows: tuple[tuple[Tree, Tree | None], ...]


Tree: TypeAlias = (
    Number | Name | Sum | Product | Power | Call | Big | Relation | Logic | Bracket | Cases
)


def walk(tree: Tree | tuple[Tree, ...]) -> Iterator[Tree]:
    """A part, or several, and all their parts."""
    stack: list[Any] = [tree]
    while stack:
        part = stack.pop()
        if isinstance(part, tuple):
            stack += reversed(part)
        elif isinstance(part, Tree):
            yield part
            stack += [getattr(part, each.name) for each in reversed(fields(part))]


# Norms over the axes of a vector or matrix.
NORMS = dict.fromkeys(("norm", "norm_2", "norm_F"), "norm[{}]({})")
NORMS |= {"norm_1": "sum[{}](abs({}))", "norm_oo": "max[{}](abs({}))"}
USUAL = {"sigma": "sigmoid"}  # functions that papers write as a letter
DOTS = {"ldots", "dots", "cdots"}


def is_label(word: str) -> bool:
    """Does a word look like part of a name, and not like an index or a number?"""
    return word[:1].isalpha() and (word[0].isupper() or len(word) > 1)


def has_label(name: Name) -> bool:
    """Is what stands below the name part of it? Capitals side by side are one word."""
    return is_label(name.label) and (len(name.below) == 1 or name.label.isupper())


def to_word(tree: Tree | None) -> str:
    """The text of a sub- or superscript that may be part of a name."""
    match tree:
        case Name(base, _, None, ()):
            return base
        case Number(text) if text.isdigit():
            return text
    return ""


def write_name(name: Name, *, has_places: bool = False) -> tuple[str, tuple[Tree, ...]]:
    """The name with what stands above and below it, and its places.

    Of one that `has_places` what stands below is a place where it does not look like a label.
    """
    is_part = not has_places or has_label(name)
    label = name.label if is_part else ""
    word = "_".join(filter(None, (name.base, to_word(name.above), label)))
    return word, () if is_part else name.below
