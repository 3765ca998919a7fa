"""The names of a lifted system: tensors as the code calls them, letters by their sizes.

Each name is used once, and each letter has one extent in the whole system.
"""

from __future__ import annotations

from itertools import count
from keyword import iskeyword
from typing import TYPE_CHECKING

from derive.analysis.ranges import fold_remainders
from derive.frontend.torch.places import is_whole
from derive.frontend.torch.shadow import hint_of
from derive.ir.nodes import (
    Access,
    Along,
    Call,
    Compare,
    Equation,
    Expr,
    Index,
    Reduce,
    Scalar,
    ScalarInput,
    Size,
    SizeInput,
    System,
    Tensor,
)
from derive.ir.polynomial import Polynomial
from derive.ir.walk import map_children, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from derive.frontend.torch.draft import Draft

_WORDS = "sum prod max min mean var softmax cumsum exp log sqrt oo pi where delta index size"
_NEXT = 3  # letters after the first one that are tried before numbers


class _Names:
    """One namespace: tensors, sizes, scalars, and letters, of which each has one extent."""

    def __init__(self, taken: Sequence[str], sizes: Sequence[str]) -> None:
        self.taken = dict.fromkeys((*taken, *_WORDS.split()))
        self.wishes = dict.fromkeys((*(size.lower() for size in sizes), "i"))
        self.extents: dict[str, Expr] = {}

    def make(self, wish: str) -> str:
        """A new name for a tensor."""
        wish = wish if wish.isidentifier() and not iskeyword(wish) else "t"
        wish = wish.lstrip("_") or "t"
        number, name = 1, wish
        while name in self.taken or name in self.extents:
            number += 1
            name = f"{wish}_{number}"
        self.taken[name] = None
        return name

    def letter(self, index: Index, used: Mapping[str, None]) -> str:
        """A letter for an index, not used in this equation, of the index's extent."""
        wishes = self._list_wishes(hint_of(index) or _wish(index.extent))
        name = next(wish for wish in wishes if wish not in used and self._is_free(wish, index))
        self.extents[name] = index.extent
        return name

    def _is_free(self, name: str, index: Index) -> bool:
        """Is a name no tensor's, and no letter's with another extent?"""
        return name not in self.taken and self.extents.get(name, index.extent) is index.extent

    def _list_wishes(self, wish: str) -> Iterator[str]:
        """The letter itself, the next ones of the alphabet that no size would like, numbers."""
        yield wish
        if len(wish) == 1:
            following = (chr(ord(wish) + step) for step in range(1, _NEXT + 1))
            yield from (each for each in following if each <= "z" and each not in self.wishes)
        yield from (f"{wish}{number}" for number in count(1))


def _wish(extent: Expr) -> str:
    if isinstance(extent, Size) and extent.name[0].lower() != extent.name[0]:
        return extent.name.lower()
    return "i"


def rename(
    draft: Draft, inputs: tuple[Tensor | ScalarInput, ...], sizes: tuple[str, ...], name: str
) -> tuple[System, dict[str, int]]:
    """The system under names for people, and the line of each equation."""
    names = _Names([*(entry.name for entry in inputs), *_list_names(draft), *sizes, name], sizes)
    tensors: dict[Tensor, Tensor] = {}
    equations, lines = [], {}
    for tensor, value in draft.values.items():
        step = draft.steps[tensor]
        wish = step.spot.name or ("out" if tensor in draft.results else "t")
        tensors[tensor] = Tensor(names.make(wish), tensor.shape, tensor.kind)
        lines[tensors[tensor].name] = step.spot.line
        equations.append(_rename_equation(names, tensors, tensor, step.letters, value))
    told = {
        a.name
        for e in inputs
        if isinstance(e, Tensor)
        for s in e.shape
        for a in walk(s)
        if isinstance(a, Size)
    }
    free = tuple(
        SizeInput(size) for size in sizes if size not in told and _is_used(equations, size)
    )
    results = tuple(tensors[tensor] for tensor in draft.results)
    return System(name, inputs, free, tuple(equations), results), lines


def _write_remainders(expr: Expr) -> Expr:
    """Index arithmetic with `l % n` for `l - n*(l // n)`, at every depth."""
    inner = map_children(expr, _write_remainders)
    if not is_whole(inner) or not any(isinstance(part, Call) for part in walk(inner)):
        return inner
    whole = Polynomial.of(inner)
    folded = fold_remainders(whole)
    return inner if folded == whole else folded.to_expr()


def _list_names(draft: Draft) -> list[str]:
    """Sizes and scalars that the equations read."""
    atoms = (part for value in draft.values.values() for part in walk(value))
    return [part.name for part in atoms if isinstance(part, (Size, Scalar))]


def _is_used(equations: Sequence[Equation], size: str) -> bool:
    return any(
        isinstance(part, Size) and part.name == size
        for equation in equations
        for side in (equation.target, equation.value)
        for part in walk(side)
    )


def _rename_equation(
    names: _Names,
    tensors: Mapping[Tensor, Tensor],
    tensor: Tensor,
    letters: Sequence[Index],
    value: Expr,
) -> Equation:
    new: dict[Index, Index] = {}
    used: dict[str, None] = {}

    def rename(index: Index) -> Index:
        if index not in new:
            letter = names.letter(index, used)
            used[letter] = None
            new[index] = Index(letter, index.extent)
        return new[index]

    def visit(here: Expr) -> Expr:
        match here:
            case Index():
                return rename(here)
            case Access(read, places):
                written = (visit(_write_remainders(place)) for place in places)
                return Access(tensors.get(read, read), tuple(written))
            case Compare(relation, left, right):
                sides = (visit(_write_remainders(side)) for side in (left, right))
                return Compare(relation, *sides)
            case Reduce(kind, bound, condition, body):
                return Reduce(kind, tuple(map(rename, bound)), visit(condition), visit(body))
            case Along(kind, index, condition, body):
                return Along(kind, rename(index), visit(condition), visit(body))
        return map_children(here, visit)

    target = Access(tensors[tensor], tuple(rename(letter) for letter in letters))
    return Equation(target, visit(value))
