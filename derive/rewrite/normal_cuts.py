"""Cut points: intermediates of two systems that agree, replaced by one symbol in both.

A cut says what a reader puts for an intermediate: a symbol at permuted places, times a factor.
What may be nan stays so: its symbol is no finite number.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, permutations
from typing import TYPE_CHECKING

from derive.analysis.affine import to_affine
from derive.ir.nodes import ZERO, Index, System, Tensor
from derive.rewrite.normal_labels import write_extent
from derive.rewrite.normal_powers import find_content
from derive.rewrite.normal_signs import is_total
from derive.rewrite.normal_terms import Algebra, Factor, GivesUp, Normal, Poly, Read, Term

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from derive.analysis.affine_form import Affine
    from derive.rewrite.normal_values import Reader

_MOST_ORDERS = 24


@dataclass(frozen=True, slots=True)
class Cut:
    """The symbol of an intermediate, the order of its places, and the factor before it."""

    symbol: Tensor
    order: tuple[int, ...]
    factor: Term

    def read(self, algebra: Algebra, places: Sequence[Affine]) -> Poly:
        """The intermediate at these places."""
        read = Read(self.symbol, tuple(places[k] for k in self.order))
        return algebra.collect(self.factor, (Factor(read, Fraction(1)),))


@dataclass(frozen=True, slots=True)
class Stage:
    """An intermediate's normal form over letters of its own, without its factor."""

    name: str
    letters: tuple[Index, ...]
    factor: Term
    normal: Normal
    coarse: str


def find_cuts(
    algebra: Algebra, code: System, formula: System, readers: tuple[Reader, Reader]
) -> tuple[tuple[str, str], ...]:
    """The intermediates of code and formula that agree, after telling both readers to cut them."""
    names = [_find_intermediates(system) for system in (code, formula)]
    stages: dict[str, Stage] = {}
    found: list[tuple[str, str]] = []
    for tensor in names[1]:
        wanted = find_stage(algebra, readers[1], tensor)
        if wanted is None or not _is_worth(wanted):
            continue
        pairs = list(_find_equal(algebra, readers[0], names[0], wanted, stages))
        if not pairs:
            continue
        symbol = _make_symbol(algebra, len(found), wanted)
        order = tuple(range(len(wanted.letters)))
        readers[1].cut(wanted.name, Cut(symbol, order, wanted.factor))
        for stage, permuted in pairs:
            readers[0].cut(stage.name, Cut(symbol, permuted, stage.factor))
            found.append((stage.name, wanted.name))
        stages.clear()
    return tuple(found)


def _find_intermediates(system: System) -> list[Tensor]:
    """The real tensors that equations define, in order."""
    targets = [equation.target.tensor for equation in system.equations]
    once = Counter(tensor.name for tensor in targets)
    return [t for t in targets if once[t.name] == 1 and t.kind == "real"]


def _is_worth(stage: Stage) -> bool:
    """Is it more than one element of an input?"""
    terms = stage.normal.terms
    return bool(terms) and not (len(terms) == 1 and not terms[0].bound and not terms[0].power)


def find_stage(algebra: Algebra, reader: Reader, tensor: Tensor) -> Stage | None:
    """The normal form of an intermediate over letters of its own; None where it has none."""
    letters = tuple(algebra.make_index(extent) for extent in tensor.shape)
    try:
        whole = algebra.finish(reader.define(tensor.name, tuple(map(to_affine, letters))))
    except GivesUp:
        return None
    content, rest = find_content(algebra, whole, whole=True)
    if content is None or content.free or content.power is not None or not is_total(content):
        content, rest = Term(), whole
    return Stage(tensor.name, letters, content, rest, algebra.coarse_key(rest))


def _find_equal(
    algebra: Algebra,
    reader: Reader,
    tensors: list[Tensor],
    wanted: Stage,
    stages: dict[str, Stage],
) -> Iterator[tuple[Stage, tuple[int, ...]]]:
    """The code's intermediates that agree with one of the formula, and in which order of places."""
    extents = sorted(map(write_extent, wanted.letters))
    for tensor in tensors:
        if len(tensor.shape) != len(extents) or reader.is_cut(tensor.name):
            continue
        stage = stages.get(tensor.name)
        if stage is None:
            made = find_stage(algebra, reader, tensor)
            if made is None:
                continue
            stage = stages[tensor.name] = made
        if stage.coarse == wanted.coarse and sorted(map(write_extent, stage.letters)) == extents:
            order = _find_order(algebra, stage, wanted)
            if order is not None:
                yield stage, order


def _find_order(algebra: Algebra, stage: Stage, wanted: Stage) -> tuple[int, ...] | None:
    """Which of the code's letters stands at each place of the formula's intermediate."""
    ranks = range(len(stage.letters))
    target = [write_extent(letter) for letter in wanted.letters]
    fitting = (
        order
        for order in permutations(ranks)
        if [write_extent(stage.letters[k]) for k in order] == target
    )
    key = algebra.key(wanted.normal)
    for order in islice(fitting, _MOST_ORDERS):
        new: Mapping[Index, Affine] = {
            stage.letters[k]: to_affine(letter)
            for k, letter in zip(order, wanted.letters, strict=True)
        }
        if algebra.key(algebra.finish(algebra.replace(stage.normal.terms, new))) == key:
            return order
    return None


def _make_symbol(algebra: Algebra, number: int, stage: Stage) -> Tensor:
    """A tensor that stands for the intermediate; its name is no one else's."""
    shape = tuple(letter.extent for letter in stage.letters)
    kind = "real" if is_total(stage.normal) else "rough"
    positive = algebra.is_positive(stage.normal)
    low = ZERO if positive or algebra.is_nonnegative(stage.normal) else None
    return Tensor(f"={number}", shape, kind, None, low, None, (positive, False))
