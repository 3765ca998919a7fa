"""The syntax tree of LaTeX equations: its nodes, traversals, and the names written in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeAlias

from derive.errors import DeriveError, Mark, refuse
from derive.ir.functions import FUNCTIONS, ROWS


@dataclass(frozen=True, slots=True)
class Token:
    """A number, a letter, a word, a command or a sign, with its columns in a line."""

    kind: str
    text: str
    start: int
    end: int
    line: str


@dataclass(frozen=True, slots=True)
class Number:
    """A decimal."""

    text: str


@dataclass(frozen=True, slots=True)
class Name:
    """A name with its superscript and its subscripts."""

    base: str
    token: Token = field(compare=False)  # equal names differ in position
    above: Tree | None = None
    below: tuple[Tree, ...] = ()
    label: str = ""  # the subscript's text, if it may be a part of the name: Q of W_Q
    upper: str = ""  # the first place, if it is a word in a superscript in parentheses: x^{(q)}


@dataclass(frozen=True, slots=True)
class Sum:
    """Terms with their signs."""

    terms: tuple[tuple[str, Tree], ...]


@dataclass(frozen=True, slots=True)
class Product:
    """Factors, each with the sign before it: "", `odot`, `cdot` or `/`."""

    factors: tuple[tuple[str, Tree], ...]


@dataclass(frozen=True, slots=True)
class Power:
    """A power of a part other than a name; a name has its power in `above`."""

    base: Tree
    exponent: Tree


@dataclass(frozen=True, slots=True)
class Call:
    r"""A call in LaTeX: a function, or a reduction with what stands below and above, `\sum_j`."""

    function: str
    token: Token = field(compare=False)
    arguments: tuple[Tree, ...]
    below: tuple[Tree, ...] = ()
    above: Tree | None = None  # the end of the range below, N of `i=1` and N


@dataclass(frozen=True, slots=True)
class Relation:
    """A chain of comparisons, `a < b <= c`."""

    first: Tree
    rest: tuple[tuple[str, Tree], ...]


@dataclass(frozen=True, slots=True)
class Logic:
    """The `and` or `or` of several conditions, or the `not` of one."""

    word: str
    parts: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Bracket:
    """The number 1 where a condition holds, else 0: `[i = j]`."""

    condition: Tree


Tree: TypeAlias = Number | Name | Sum | Product | Power | Call | Relation | Logic | Bracket


class Equation(NamedTuple):
    """Both sides of an equation, and its line in the text."""

    line: str
    left: Tree
    right: Tree


def find_targets(equations: Iterable[Equation]) -> list[Name]:
    """Return the names that are left sides of equations."""
    return [each.left for each in equations if isinstance(each.left, Name)]


def refuse_at(says: str, token: Token | str | None, help: str = "") -> DeriveError:
    """Return an error that marks a token, or a whole line."""
    mark = Mark(token, 0, len(token)) if isinstance(token, str) else None
    if isinstance(token, Token):
        mark = Mark(token.line, token.start, token.end)
    return refuse("latex-form", says, marks=[mark] if mark else [], help=help)


def walk_parts(tree: Tree | Iterable[object]) -> Iterator[Tree]:
    """Yield a tree, or several in nested tuples, and all their descendants."""
    if isinstance(tree, Tree):
        yield tree
    for part in find_parts(tree):
        yield from walk_parts(part)


def find_names(tree: Tree | Iterable[object]) -> Iterator[Name]:
    """Yield the names in a tree, or in several."""
    return (part for part in walk_parts(tree) if isinstance(part, Name))


def find_binders(tree: Tree | Iterable[object]) -> Iterator[Call]:
    """Yield the sum signs, product signs and functions in a tree: these may bind an index."""
    return (part for part in walk_parts(tree) if isinstance(part, Call))


def to_words(tree: Tree | Iterable[object]) -> set[str]:
    """Return the words and integers, such as names of indices, in a tree or several."""
    return {*map(to_word, walk_parts(tree))} - {""}


def find_parts(tree: Any) -> Iterator[Tree]:
    """Yield the children of a tree, or the trees in nested tuples."""
    is_tree = isinstance(tree, Tree)
    for part in (getattr(tree, each.name) for each in fields(tree)) if is_tree else tree:
        if isinstance(part, Tree):
            yield part
        elif isinstance(part, tuple):
            yield from find_parts(part)


def map_parts(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """Return the tree with `change` applied to each child."""

    def visit(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(map(visit, part))
        return change(part) if isinstance(part, Tree) else part

    return replace(tree, **{each.name: visit(getattr(tree, each.name)) for each in fields(tree)})


# Norms over the axes of a vector or matrix.
NORMS = dict.fromkeys(("norm", "norm_2", "norm_F"), "norm[{}]({})")
NORMS |= {"norm_1": "sum[{}](abs({}))", "norm_oo": "max[{}](abs({}))"}
# Letters that papers use without a declaration, and the advice for each.
USUAL = {"sigma": "write \\operatorname{sigmoid}(..) for the function"}
USUAL |= {"I": "write the identity with its indices, \\delta_{ij}"}
USUAL |= dict.fromkeys("ij", "write \\imath for the imaginary unit")
DOTS = {"ldots", "dots", "cdots"}
# Commands outside the grammar, and the advice for each.
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
# Functions by their command or word, in lower case and without underscores.
WORDS = {name.replace("_", ""): name for name in (*FUNCTIONS, *ROWS)}
WORDS |= {"ln": "log", "arctan": "atan", "arcsin": "asin", "arccos": "acos", "swish": "silu"}
WORDS |= {"average": "mean", "variance": "var", "tr": "trace", "trace": "trace", "sgn": "sign"}
_UNNAMED = {"LN", "Norm", "NORM"}  # names of layer norm in papers; not the function `norm`


def find_function(word: str) -> str | None:
    """Return the function of the notation that a word names; None if there is none."""
    plain = word.replace("_", "").replace(" ", "")
    return None if plain in _UNNAMED else WORDS.get(plain.lower())


def is_label(word: str) -> bool:
    """Whether a word looks like a label in a name, not like an index or a number."""
    return word[:1].isalpha() and (word[0].isupper() or len(word) > 1)


def has_label(name: Name) -> bool:
    """Whether the subscript of a name is a label, not places; adjacent capitals are one word."""
    return is_label(name.label) and (len(name.below) == 1 or name.label.isupper())


def to_word(tree: Tree | None) -> str:
    """Return the text of a script that is one word or number, and may be part of a name; or ""."""
    match tree:
        case Name(base, _, None, ()):
            return base
        case Number(text) if text.isdigit():
            return text
    return ""


def write_name(name: Name, *, has_places: bool = False) -> tuple[str, tuple[Tree, ...]]:
    """Return (name in the notation with its labels, its places): ("W_Q", ()) of `W_Q`.

    With `has_places` a subscript that does not look like a label is a place.
    """
    is_part = not has_places or has_label(name)
    label = name.label if is_part else ""
    upper = "" if has_places else name.upper
    word = "_".join(filter(None, (name.base, to_word(name.above), upper, label)))
    return word, () if is_part else name.below
