"""The parts of a tree of LaTeX, how names are written, and what the indices in it count from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, TypeAlias

from derive.errors import DeriveError, refuse
from derive.ir.functions import FUNCTIONS, ROWS


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
    above: Tree | None = None  # the end of the range below


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
    if isinstance(tree, Tree):
        yield tree
    for part in find_parts(tree):
        yield from walk(part)


def find_parts(tree: Any) -> Iterator[Tree]:
    """The parts right below a part, or several parts."""
    is_tree = isinstance(tree, Tree)
    for part in (getattr(tree, each.name) for each in fields(tree)) if is_tree else tree:
        if isinstance(part, Tree):
            yield part
        elif isinstance(part, tuple):
            yield from find_parts(part)


def map_parts(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """The tree with each part right below it changed."""

    def visit(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(map(visit, part))
        return change(part) if isinstance(part, Tree) else part

    return replace(tree, **{each.name: visit(getattr(tree, each.name)) for each in fields(tree)})


# Norms over the axes of a vector or matrix.
NORMS = dict.fromkeys(("norm", "norm_2", "norm_F"), "norm[{}]({})")
NORMS |= {"norm_1": "sum[{}](abs({}))", "norm_oo": "max[{}](abs({}))"}
USUAL = {"sigma": "sigmoid"}  # functions that papers write as a letter
DOTS = {"ldots", "dots", "cdots"}
# Commands that are no names, and what to write for them.
_SET = "write the range of the index; of a set, its mask as a factor: \\sum_k A_{ik} x_k"
UNREAD = {
    "int iint oint lim": "write the sum or the value that it stands for",
    "partial nabla": "write the derivative out",
    "pm mp": "write an equation for each sign",
    "sup limsup": "write \\max_i",
    "inf liminf": "write \\min_i",
    "binom": "declare it as a tensor or a scalar",
    "pmod": "write \\bmod",
    "lceil": "write -\\lfloor -x \\rfloor",
    "in": f"{_SET}, with A_{{ik}} 1 where k is in the set of i and 0 elsewhere",
}
UNREAD = {f"\\{word}": advice for words, advice in UNREAD.items() for word in words.split()}
# Functions by the command or the word that people write, capitals and lines aside.
WORDS = {name.replace("_", ""): name for name in (*FUNCTIONS, *ROWS)}
WORDS |= {"ln": "log", "arctan": "atan", "arcsin": "asin", "arccos": "acos", "swish": "silu"}
WORDS |= {"concat": "concat", "concatenate": "concat"}
WORDS |= {"average": "mean", "variance": "var", "tr": "trace", "trace": "trace", "sgn": "sign"}
_UNNAMED = {"LN", "Norm", "NORM"}  # layer norm to most, and not the function of that name


def find_function(word: str) -> str | None:
    """The function of the notation that a word means."""
    plain = word.replace("_", "").replace(" ", "")
    return None if plain in _UNNAMED else WORDS.get(plain.lower())


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
    fixed: Set[str],
    stated: int | None = None,
) -> tuple[set[str], DeriveError | None]:
    """The indices that count from 1, if it is not stated for all; the question that is left.

    The least place that a sum reads says what its index counts from: 1, or 0 if it is not above.
    Indices that are compared, or stand alone at one place of a tensor, count alike; so does t of
    `h_t` where `h_0` is given. Where the least place is above 1 and nothing else tells, it is open;
    so it is for an index that is a number, and for fixed places, none of them 0.
    """
    least: dict[str, int] = {}
    links, bound = list[set[str]](), list[Tree]()
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
        bound += (e.first if isinstance(e, Relation) else e for e in tree.below)
        for below in tree.below:
            for index, start in find_starts(below):
                inside = tree.body if isinstance(tree, Big) else tree.arguments
                first = start + min(find_shifts(inside, index, starts), default=0)
                least[index] = min(least.get(index, start), start, first)
            if isinstance(below, Relation) or tree.above is not None:
                links.append({to_word(part) for part in walk((below, tree.above or below))})
    kept = set(ranges)
    kept |= {to_word(left.below[0]) for left in targets if left.base in starts}
    links += places.values()
    indices = {word for link in [*links, {*least}] for word in link if word[:1].isalpha()} - numbers
    early = [index for index, least_place in least.items() if least_place < (stated or 0)]
    if early:
        says = f"{early[0]} starts below {stated or 0}, where indices count from {stated or 0}"
        raise refuse("latex-form", says, help="let its sum start there, and shift its places")
    if stated is not None:  # the sign for all numbers is in it, too
        return {*indices, "1"} if stated else set(), None
    links = [link & indices for link in links]
    alike = [place & indices for place in places.values()]
    zero = spread({index for index, place in least.items() if place < 1}, alike, kept)
    counted = {index for index, place in least.items() if place == 1} - zero
    counted = spread((counted | kept) & (indices | {*ranges}), links, zero)
    zero = spread(zero, links, counted)
    told = counted | zero
    alone = {to_word(e) for e in bound} | {word for place in places.values() for word in place}
    valued = {word for _, right in equations for word in find_valued(right, indices & alone)}
    entry = "" if told or "0" in fixed else min(fixed, default="")
    which = min({*least} - told, default="") or min(valued - told, default=f"the place {entry}")
    says = f"it is open whether {which} counts from 0 or from 1"
    advice = "add a line: indices count from 0, or: indices count from 1"
    question = refuse("latex-form", says, help=advice)
    if {*least} - told:
        raise question
    return counted, question if valued - told or entry else None


def find_valued(tree: Tree, indices: Set[str]) -> Iterator[str]:
    """The indices whose first value matters: they are numbers, and no differences of indices."""
    match tree:
        case Name(base, _, above, below):
            yield from [base] if not below and base in indices else []
            yield from find_valued(above, indices) if above is not None else []
        case Relation(first, rest):
            for one, other in pairwise((first, *(side for _, side in rest))):
                yield from find_valued(Sum((("+", one), ("-", other))), indices)
        case Sum(terms):
            flat = [(s, t) for sign, term in terms for s, t in _flatten(sign, term)]
            plain = [(sign, term) for sign, term in flat if to_word(term) in indices]
            if sum(-1 if sign == "-" else 1 for sign, _ in plain):
                yield from (to_word(term) for _, term in plain)
            for _, part in (each for each in flat if each not in plain):
                yield from find_valued(part, indices)
        case _:
            below = tree.below if isinstance(tree, (Big, Call)) else ()
            for part in find_parts(tree):
                is_start = isinstance(part, Relation) and part.rest[0][0] == "=="
                is_bound = part in below and (is_start or isinstance(part, Name))
                yield from find_valued(part, indices) if not is_bound else []


def _flatten(sign: str, term: Tree) -> Iterator[tuple[str, Tree]]:
    """The terms of a sum of sums."""
    if not isinstance(term, Sum):
        yield sign, term
        return
    for inner, each in term.terms:
        yield from _flatten("-" if (sign == "-") != (inner == "-") else "+", each)


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
        if isinstance(part, (Big, Call)) and (end := to_word(part.above)):
            starts = (index for below in part.below for index, _ in find_starts(below))
            found |= dict.fromkeys(starts, end)
        for place in part.below if isinstance(part, Name) else ():
            word = to_word(place)
            if word.islower() and word.upper() in sizes:
                found.setdefault(word, word.upper())
    return found


def find_limits(
    below: tuple[Tree, ...], above: Tree | None
) -> tuple[tuple[Tree, ...], Tree | None]:
    r"""The starts, conditions and limit of `\sum_{i, j = 1}^N` and `\sum_{1 \le i < j \le N}`."""
    match below[-1]:
        case Relation(Name(), (("==", least),)) if above is not None:
            starts = [Relation(i, (("==", least),)) if isinstance(i, Name) else i for i in below]
            return tuple(starts), above
        case Relation(Number(least), rest) if above is None and len(below) == 1 < len(rest):
            inside = [side for _, side in rest[:-1]]
            signs = [sign for sign, _ in rest]
            if not {*signs} <= {"<", "<="} or not all(isinstance(each, Name) for each in inside):
                return below, above
            first = Number(str(int(least) + (signs[0] == "<")))
            last = rest[-1][1]
            above = Sum((("+", last), ("-", Number("1")))) if signs[-1] == "<" else last
            between = Relation(inside[0], rest[1:-1])
            starts = [Relation(each, (("==", first),)) for each in inside]
            return (*starts, *([between] if between.rest else [])), above
    return below, above
