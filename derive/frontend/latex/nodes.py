"""The parts of a tree of LaTeX, how names are written, and what the indices in it count from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from derive.errors import refuse


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
    upper: str = ""  # the first place, where it is a word in parentheses above: x^{(q)}


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
    upper = "" if has_places else name.upper
    word = "_".join(filter(None, (name.base, to_word(name.above), upper, label)))
    return word, () if is_part else name.below


def find_counted(
    equations: Sequence[tuple[Tree, Tree]],
    ranges: Iterable[str],
    numbers: Set[str],
    stated: int | None = None,
) -> set[str]:
    """The indices that count from 1, if it is not stated for all.

    The least place that a sum reads says what its index counts from: 1, or 0 if it is not above.
    Indices that are compared, or stand alone at one place of a tensor, count alike; so does t of
    `h_t` where `h_0` is given. Where the least place is above 1 and nothing else tells, it is open.
    """
    least: dict[str, int] = {}
    links = list[set[str]]()
    places: dict[tuple[str, int], set[str]] = {}
    targets = [left for left, _ in equations if isinstance(left, Name) and left.below]
    starts = {left.base for left in targets if to_word(left.below[0]) == "0"}
    for tree in (part for sides in equations for part in walk(sides)):
        if isinstance(tree, Name):
            for k, place in enumerate(tree.below):
                places.setdefault((tree.base, k), set()).add(to_word(place))
        if isinstance(tree, Relation):
            compared = (tree.first, *(side for _, side in tree.rest))
            links.append({to_word(part) for part in walk(compared)})
        if not isinstance(tree, (Big, Call)):
            continue
        above = tree.above if isinstance(tree, Big) else None
        for below in tree.below:
            for index, start in find_starts(below):
                inside = tree.body if isinstance(tree, Big) else tree.arguments
                first = start + min(find_shifts(inside, index, starts), default=0)
                least[index] = min(least.get(index, start), start, first)
            if isinstance(below, Relation) or above is not None:
                links.append({to_word(part) for part in walk((below, above or below))})
    kept = set(ranges)
    kept |= {to_word(left.below[0]) for left in targets if left.base in starts}
    links += places.values()
    indices = {word for link in [*links, {*least}] for word in link if word[:1].isalpha()} - numbers
    if stated is not None:
        return indices if stated else set()
    links = [link & indices for link in links]
    alike = [place & indices for place in places.values()]
    zero = spread({index for index, place in least.items() if place < 1}, alike, kept)
    counted = {index for index, place in least.items() if place == 1} - zero
    counted = spread((counted | kept) & (indices | {*ranges}), links, zero)
    zero = spread(zero, links, counted)
    for index in least:
        if index not in counted | zero:
            says = f"it is open whether {index} counts from 0 or from 1"
            raise refuse("latex-form", says, help="add a line: indices count from 1")
    return counted


def spread(found: set[str], links: Sequence[set[str]], kept: Set[str]) -> set[str]:
    """What is found, and what is linked to it and not kept out."""
    found = set(found)
    while also := {word for link in links if link & found for word in link - found - kept}:
        found |= also
    return found


def find_starts(below: Tree) -> Iterator[tuple[str, int]]:
    """The indices below a sign that are not less than a number, and the least one of each."""
    if not isinstance(below, Relation):
        return
    sides = [below.first, *(side for _, side in below.rest)]
    for one, (sign, _), other in zip(sides, below.rest, sides[1:], strict=False):
        match one, sign, other:
            case Name() as name, "==" | ">=" | ">", Number(number):
                pass
            case Number(number), "<=" | "<", Name() as name:
                pass
            case _:
                continue
        if number.isdigit():
            yield to_word(name), int(number) + (sign in {"<", ">"})


def find_shifts(body: Tree | tuple[Tree, ...], index: str, starts: Set[str]) -> Iterator[int]:
    """How far from an index the places are that are read with it, if no condition guards them.

    An entry before the first one is given for what `starts`.
    """
    parts = [*walk(body)]
    if any(isinstance(part, (Bracket, Cases)) for part in parts):
        return
    for part in parts:
        for place in part.below if isinstance(part, Name) and part.base not in starts else ():
            match place:
                case Sum((("+", Name() as name), (sign, Number(number)))) if number.isdigit():
                    if to_word(name) == index:
                        yield int(f"{sign}{number}")


def find_ends(equations: Sequence[tuple[Tree, Tree]], sizes: Set[str]) -> dict[str, str]:
    """How far an index goes, as a sum from its first value says it, or the size of its letter."""
    found: dict[str, str] = {}
    for part in (part for sides in equations for part in walk(sides)):
        if isinstance(part, Big) and (end := to_word(part.above)):
            starts = (index for below in part.below for index, _ in find_starts(below))
            found |= dict.fromkeys(starts, end)
        for place in part.below if isinstance(part, Name) else ():
            word = to_word(place)
            if word.islower() and word.upper() in sizes:
                found.setdefault(word, word.upper())
    return found
