"""Values of parts of LaTeX equations: texts of the notation with axes that have no index yet."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from derive.errors import DeriveError
from derive.frontend.latex import nodes as tree
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial

_MARK = re.compile(r"<(\d+)>")  # an index without a name yet
TERM, FACTOR, POWER, ATOM = range(4)  # operator precedence of a text


class MisfitError(DeriveError):
    """The error of a choice that does not fit the equations; `of_extents`: two extents differ."""

    def __init__(
        self,
        says: str,
        token: tree.Token | None = None,
        help: str = "",
        *,
        of_extents: bool = False,
    ) -> None:
        super().__init__(tree.refuse_at(says, token, help).diagnostic)
        self.of_extents = of_extents


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a vector or a matrix: its extent, and a number that stands for its index."""

    extent: str
    mark: int


class Axes:
    """The axes of one interpretation; equal ones are merged in a union-find structure."""

    def __init__(self) -> None:
        self.extents: list[str] = []  # extents by mark
        self.same: dict[int, int] = {}
        self.pools: dict[str, list[str]] = {}  # names of indices, by extent

    def mark(self, extent: str) -> Axis:
        """Return a new axis of this extent."""
        self.extents.append(extent)
        return Axis(extent, len(self.extents) - 1)

    def root(self, mark: int) -> int:
        """Return the mark that stands for all marks merged with this one."""
        while mark in self.same:
            mark = self.same[mark]
        return mark

    def unify_axes(self, some: Sequence[Axis], others: Sequence[Axis]) -> None:
        """Give each pair of axes one index; MisfitError if their extents differ."""
        for one, other in zip(some, others, strict=False):
            if one.extent != other.extent:
                says = f"an extent {one.extent} meets an extent {other.extent}"
                raise MisfitError(says, of_extents=True)
            low, high = sorted((self.root(one.mark), self.root(other.mark)))
            if low != high:
                self.same[high] = low

    def name_indices(self, line: str, make: Callable[[str], str]) -> str:
        """Return the line with indices for marks; `make` names a new index of an extent."""
        names: dict[int, str] = {}
        for mark in map(int, _MARK.findall(line)):
            root = self.root(mark)
            if root not in names:
                pool = self.pools.setdefault(self.extents[root], [])
                free = [name for name in pool if name not in names.values()]
                if not free:
                    pool.append(make(self.extents[root]))
                names[root] = free[0] if free else pool[-1]
        return _MARK.sub(lambda found: names[self.root(int(found[1]))], line)


@dataclass(frozen=True, slots=True)
class Value:
    """The value of a part: its text in the notation, its axes, and its free indices."""

    text: str
    holds: int = ATOM  # precedence of the text
    axes: tuple[Axis, ...] = ()  # none for a number, one for a vector, two for a matrix
    free: tuple[str, ...] = ()
    is_row: bool | None = None  # whether a vector is a row; None for other values
    is_curved: bool = False  # a vector made elementwise, not by matrix products

    def within(self, holds: int) -> str:
        """Return the text, in parentheses if its precedence is below `holds`."""
        return self.text if self.holds >= holds else f"({self.text})"


@dataclass(frozen=True, slots=True)
class Layout:
    """The axes of a tensor with a written index, and the number of those of a vector or matrix."""

    extents: tuple[str, ...]
    written: tuple[int, ...]  # the axes with a written index
    axes: int  # number of last axes: 0 for a number, 1 for a vector, 2 for a matrix


def write_linear(terms: Mapping[str, int], less: int = 0) -> str:
    """Return the text of integer multiples of names minus a number: `2*i + 1`."""
    text = ""
    for name, factor in {**terms, "": terms.get("", 0) - less}.items():
        size = abs(factor)
        part = f"{size}*{name}" if name and size > 1 else name or str(size)
        sign = "-" if factor < 0 else "+"
        if factor:
            text += f" {sign} {part}" if text else f"-{part}" if factor < 0 else part
    return text or "0"


def add_number(extent: str, number: int) -> str:
    """Return the text of an extent plus a number: `N` for `N - 1` and 1."""
    found = re.fullmatch(r"(.*?)(?: ([+-]) (\d+))?", extent)
    assert found is not None
    number += int(f"{found[2]}{found[3]}") if found[2] else 0
    if found[1].isdigit():
        return str(int(found[1]) + number)
    return f"{found[1]} {'+' if number > 0 else '-'} {abs(number)}" if number else found[1]


def to_polynomial(extent: str) -> Polynomial:
    """Return an extent as a polynomial."""

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


def refuse_undefined(name: str) -> MisfitError:
    """Return the error of a tensor that is read before its shape is known."""
    advice = f"say its shape: {name}: [T, N]"
    return MisfitError(f"{name} is read before it is defined", help=advice)


def transpose(value: Value, token: tree.Token | None = None) -> Value:
    """Return the transposed matrix or vector; MisfitError for one with other axes."""
    if not value.axes:
        says = "what is transposed has neither rows nor columns here"
        raise MisfitError(says, token, "leave its indices out, or exchange them yourself")
    is_row = None if value.is_row is None else not value.is_row
    return replace(value, axes=value.axes[::-1], is_row=is_row)


def refuse_entry(name: tree.Tree, value: Value, place: tree.Tree, scope: frozenset[str]) -> None:
    """Raise MisfitError for `x(j)` of a tensor x, which may be an entry or a product."""
    words = {part.base for part in tree.find_names(place)}
    is_place = words and words <= scope and (value.axes or tree.to_word(place))
    if is_place and isinstance(name, tree.Name) and "[" in value.text:
        says = f"it is open whether {name.base}(..) is an entry or a product"
        raise MisfitError(says, name.token, f"write {name.base}_{{..}}, or \\cdot between them")


def ask_rows(token: tree.Token, advice: str) -> DeriveError:
    """Return the error that asks whether a function applies to a matrix or to each row."""
    says = "it is open whether this runs over the whole matrix or over each row"
    return tree.refuse_at(says, token, f"write {advice}")


def find_words(places: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct names in places."""
    return tuple(dict.fromkeys(w for place in places for w in re.findall(r"[^\W\d]\w*", place)))


def refuse_further(index: str, limit: str, extent: str | None, shift: int) -> None:
    """Raise MisfitError for a limit of a sum beyond the extent of its index, if that is known."""
    if extent is not None:
        further = to_polynomial(add_number(limit, shift)) - to_polynomial(extent)
        if (further.constant or 0) > 0:
            says = f"{index} runs to a place {limit} of an extent {extent}"
            advice = "add a line: indices count from 1, or let the sum end before"
            raise MisfitError(says, help=advice)


class Every(frozenset[str]):
    """A scope that contains every name, so that a place may use any index."""

    def __contains__(self, _: object) -> bool:
        return True


EVERY = Every()
