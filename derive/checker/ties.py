"""Sizes that code ties together, E = H*D or C = E, guessed from the numbers at which it fails.

    The size of tensor a (6) must match the size of tensor b (21) ...    at E=6 H=3 D=7: E = H*D

The sizes of a draw are distinct, and as far as can be had from their products too, so a number has
a name. What a guess leads to is run again: with one tie made, the next clash tells the next one.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from derive.checker.load import CannotRunError

Names: TypeAlias = tuple[str, ...]
Tie: TypeAlias = tuple[str, Names]  # a size, and those whose product it is; one that it is equal to
Ties: TypeAlias = tuple[Tie, ...]  # the size of a later tie may stand in the product of an earlier

MOST_NAMES = 4  # in the product that a number may be
MOST_GUESSES = 4  # that follow from the failures at one draw
_SHAPE = re.compile(r"\[([\d, *]+)\]")
_CLASHES = (
    re.compile(r"size of tensor a \((\d+)\) must match the size of tensor b \((\d+)\)"),
    re.compile(r"cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)"),
    re.compile(r"mat \(\d+x(\d+)\), vec \((\d+)\)"),
    re.compile(r"first has size (\d+) in dim .* second has size (\d+)"),
    re.compile(r"normalized_shape=\[(\d+)\].*size\[(?:\d+, )*(\d+)\]"),
    re.compile(r"embedding dimension of (\d+), but got (\d+)"),
    re.compile(r"has size (\d+) .* does not broadcast with previously seen size (\d+)"),
    re.compile(r"Expected size (\d+) but got size (\d+)"),
    re.compile(r"expanded size of the tensor \((\d+)\) must match the existing size \((\d+)\)"),
    re.compile(r"to have (\d+) channels, but got (\d+) channels"),
    re.compile(r"input batch_size \((\d+)\) to match target batch_size \((\d+)\)"),
)
_UNDEFINED = re.compile(r"NameError: |AttributeError: '(\w+)' object has no attribute")
_BUILTIN = ("Tensor", "NoneType", "bool", "int", "float", "str", "tuple", "list", "dict")
_TWO_SHAPES = ("to be: [", "same number of elements", "equal size", "shape of the mask")


@dataclass
class Failures:
    """What was said by the tries that failed at one draw, and whether sizes are the reason."""

    clashes: list[tuple[int, int]] = field(default_factory=list)
    first: CannotRunError | None = None  # of all draws
    _calls: int = 0
    _misfits: int = 0
    _blind: int = 0  # calls that failed for what no sizes cure
    _strikes: int = 0

    @property
    def is_hopeless(self) -> bool:
        """Would the code fail at whatever sizes? Two draws say so, or one that fits everywhere."""
        return self._strikes >= (1 if not self._misfits else 2)

    def end(self) -> None:
        """The draw is done."""
        self._strikes += 0 < self._calls == self._blind

    def start(self) -> None:
        """Another draw is tried."""
        self.clashes.clear()
        self._calls = self._misfits = self._blind = 0

    def add(self, error: CannotRunError, *, counts: bool = True) -> None:
        """Keep an error of a call and, if it counts, the numbers that clash in it."""
        if self.first is None or (is_undefined(error) and not is_undefined(self.first)):
            self.first = error
        self._calls += 1
        self._blind += error.is_incurable
        if counts:
            self.clashes += read_clashes(str(error))

    def add_misfit(self, clashes: Sequence[tuple[int, int]]) -> None:
        """Keep the numbers that clash where a parameter is not as large as its tensor."""
        self._misfits += 1
        self.clashes += clashes


def is_undefined(error: CannotRunError) -> bool:
    """Does the code read a name, or an attribute of an object of its own, that nothing sets?"""
    found = _UNDEFINED.search(str(error))
    return found is not None and found[1] not in _BUILTIN


def read_clashes(text: str) -> Iterator[tuple[int, int]]:
    """The two numbers that differ and should not, as torch's shape errors name them."""
    for pattern in _CLASHES:
        for one, other in pattern.findall(text):
            yield int(one), int(other)
    shapes = [
        tuple(int(n) for n in shape.split(",") if n.strip().isdigit())
        for shape in _SHAPE.findall(text)
    ]
    if "is invalid for input of size" in text and shapes:
        yield prod(shapes[0]), int(text.split("input of size ")[1].split(maxsplit=1)[0])
    elif len(shapes) == 2 and any(words in text for words in _TWO_SHAPES):
        yield from compare_shapes(*shapes)


def compare_shapes(one: Sequence[int], other: Sequence[int]) -> Iterator[tuple[int, int]]:
    """What is left of two shapes without what they have in common, as one number each."""
    common = Counter(one) & Counter(other)
    left = prod((Counter(one) - common).elements()), prod((Counter(other) - common).elements())
    if left[0] != left[1]:
        yield left


def guess_ties(
    clashes: Sequence[tuple[int, int]], sizes: Mapping[str, int], ties: Ties, told: Collection[str]
) -> list[Tie]:
    """Ties that would make the numbers agree that clash at these sizes, the likeliest first."""
    tied = {name for name, _ in ties}
    names = _find_products({n: s for n, s in sizes.items() if n not in tied and s > 1})
    votes: Counter[Tie] = Counter()
    for one, other in clashes:
        made = (_make_tie(a, b, told) for a in names.get(one, ()) for b in names.get(other, ()))
        found = sorted({tie for tie in made if tie is not None}, key=_measure)
        votes.update(tie for tie in found if len(tie[1]) == len(found[0][1]))
    return [tie for tie, _ in votes.most_common(MOST_GUESSES)]


def _measure(tie: Tie) -> tuple[int, Tie]:
    return len(tie[1]), tie


def _find_products(sizes: Mapping[str, int]) -> dict[int, list[Names]]:
    """The names whose product each number is."""
    found: dict[int, list[Names]] = {}
    for count in range(1, MOST_NAMES + 1):
        for names in combinations(sizes, count):
            found.setdefault(prod(sizes[name] for name in names), []).append(names)
    return found


def _make_tie(one: Names, other: Names, told: Collection[str]) -> Tie | None:
    """The tie under which two products agree; None if there is none with one size on its left."""
    left = tuple(name for name in one if name not in other)
    right = tuple(name for name in other if name not in one)
    for a, b in ((right, left), (left, right)):
        if len(a) == 1 and b and len(b) <= 2 and a[0] not in told:
            return a[0], b
    return None


def set_sizes(sizes: Mapping[str, int], ties: Ties) -> dict[str, int]:
    """The sizes with those that are tied as the ties have them."""
    found = dict(sizes)
    for name, product in reversed(ties):
        found[name] = prod(found[each] for each in product)
    return found


def find_likely_ties(names: Sequence[str], extents: Sequence[Names]) -> Iterator[Ties]:
    """Ties to try without a clue: E = H*D and other products that the formula has, equal sizes.

    After them come a product together with two equal sizes, and products of any two.
    """
    usual = [(whole, ("H", "D")) for whole in "EMCT"]
    known = [(whole, product) for product in extents for whole in names if whole not in product]
    products = [tie for tie in (*usual, *known) if {tie[0], *tie[1]} <= {*names}]
    equal = [(other, (one,)) for one, other in combinations(names, 2)]
    yield from ((tie,) for tie in (*products, *equal))
    if len(names) > 2:
        yield tuple((name, (names[0],)) for name in names[1:])
    for whole, product in products[:2]:
        yield from (((whole, product), tie) for tie in equal if whole not in {tie[0], *tie[1]})
    for whole in names:
        yield from (((whole, pair),) for pair in combinations(names, 2) if whole not in pair)
