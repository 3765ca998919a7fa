"""Cut points: intermediates of two systems that agree, replaced by one symbol in both.

A cut says what a reader puts for an intermediate: a symbol at permuted places, times a factor.
What may be nan stays so: its symbol is no finite number there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import islice, permutations
from typing import TYPE_CHECKING

from derive.analysis.affine import to_affine
from derive.ir import nodes as ir
from derive.ir.walk import find_accesses
from derive.prove.definedness import collect
from derive.prove.functions import find_content
from derive.prove.reader import Cut
from derive.prove.terms import (
    Algebra,
    Base,
    Factor,
    Fold,
    Function,
    GivesUp,
    Normal,
    Term,
    write_extent,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from derive.analysis.affine import Affine
    from derive.prove.definedness import Definedness, Needs

_MOST_ORDERS = 24
_LEAST_WEIGHT = 5
_EASIER = 0.7  # what took too long is tried again when so much of it is left open
_MOST_STEPS = 4000  # for one intermediate


@dataclass(frozen=True, slots=True)
class Stage:
    """An intermediate's normal form over indices of its own, without its factor."""

    name: str
    indices: tuple[ir.Index, ...]
    factor: Term
    normal: Normal
    needs: Needs  # where it is finite
    coarse: str

    @property
    def may_be_cut(self) -> bool:
        """Is there no infinity in it, which exp would not see in a symbol?"""
        return not any(what in {"-oo", "oo"} for _, what in self.needs.values())


class Stages:
    """The normal forms of one system's intermediates, found anew where a cut changes them."""

    def __init__(self, definedness: Definedness, system: ir.System) -> None:
        self._definedness = definedness
        self.reader = definedness.reader
        self._algebra = self.reader.algebra
        targets = [equation.target.tensor for equation in system.equations]
        once = Counter(tensor.name for tensor in targets)
        self.tensors = [t for t in targets if once[t.name] == 1 and t.kind == "real"]
        self._needs = _find_needs(system)
        self._known: dict[str, Stage | None] = {}
        self._failed: dict[str, int] = {}  # how much it was made of when it took too long

    def find(self, tensor: ir.Tensor) -> Stage | None:
        """The normal form; None where it has none, or where it takes too long."""
        name = tensor.name
        if name not in self._known:
            needs = self._find_open(name)
            hard = any(self._known.get(n, self) is None for n in needs)
            if name in self._failed and len(needs) > _EASIER * self._failed[name]:
                hard = True
            self._known[name] = None if hard else self._make(tensor)
            if self._known[name] is None and not hard:
                self._failed[name] = len(needs)
        return self._known[name]

    def cut(self, name: str, cut: Cut) -> None:
        """Tell the reader, and forget what hangs on the intermediate."""
        touched = [n for n in self._known if name in self._find_open(n)]
        self.reader.cut(name, cut)
        self._definedness.forget()
        for each in touched:
            del self._known[each]

    def _find_open(self, name: str) -> set[str]:
        """The intermediates that it is made of, as far as they are not cut."""
        found: set[str] = set()
        todo = [name]
        while todo:
            for need in self._needs[todo.pop()]:
                if need not in found:
                    found.add(need)
                    if self.reader.find_cut(need) is None:
                        todo.append(need)
        return found

    def _make(self, tensor: ir.Tensor) -> Stage | None:
        try:
            return self._algebra.limited(_MOST_STEPS, lambda: find_stage(self._definedness, tensor))
        except GivesUp:
            return None


def _find_needs(system: ir.System) -> dict[str, tuple[str, ...]]:
    """The intermediates that each of them reads."""
    names = {equation.target.tensor.name for equation in system.equations}
    found: dict[str, tuple[str, ...]] = {}
    for equation in system.equations:
        reads = (access.tensor.name for access in find_accesses(equation.value))
        name = equation.target.tensor.name
        found[name] = (*found.get(name, ()), *(read for read in reads if read in names))
    return found


def find_cuts(
    code: ir.System, formula: ir.System, layers: tuple[Definedness, Definedness]
) -> tuple[tuple[str, str], ...]:
    """The intermediates of code and formula that agree, which both readers cut from then on."""
    ours, theirs = Stages(layers[0], code), Stages(layers[1], formula)
    algebra = ours.reader.algebra
    found: list[tuple[str, str]] = []
    for tensor in theirs.tensors:
        wanted = theirs.find(tensor)
        if wanted is None or not wanted.may_be_cut or _weigh(wanted.normal) < _LEAST_WEIGHT:
            continue  # what is small stays open: a mean, say, is told by what it is the mean of
        pairs = list(_find_equal(algebra, ours, wanted))
        if not pairs:
            continue
        symbol = _make_symbol(algebra, len(found), wanted)
        order = tuple(range(len(wanted.indices)))
        theirs.cut(wanted.name, Cut(symbol, order, wanted.factor, bool(wanted.needs)))
        for stage, permuted in pairs:
            ours.cut(stage.name, Cut(symbol, permuted, stage.factor, bool(stage.needs)))
            found.append((stage.name, wanted.name))
    return tuple(found)


def _weigh(piece: Normal | Term | Factor) -> int:
    """How many elements are read in it, each as often as it is written."""
    match piece:
        case Normal(terms):
            return sum(map(_weigh, terms))
        case Term():
            return sum(map(_weigh, piece.factors)) + (_weigh(piece.power) if piece.power else 0)
        case Factor(Base(normal)):
            return _weigh(normal)
        case Factor(Function(_, arguments)):
            return sum(map(_weigh, arguments))
        case Factor(Fold(_, _, _, body)):
            return _weigh(body)
        case _:
            return 1


def find_stage(definedness: Definedness, tensor: ir.Tensor) -> Stage:
    """The normal form of an intermediate over indices of its own."""
    algebra = definedness.reader.algebra
    indices = tuple(algebra.make_index(extent) for extent in tensor.shape)
    places = tuple(map(to_affine, indices))
    whole = algebra.finish(definedness.reader.define(tensor.name, places))
    needs = definedness.define(tensor.name, places)
    content, rest = find_content(algebra, whole, whole=True)
    if content is None or content.free or content.power is not None:
        content, rest = Term(), whole
    return Stage(tensor.name, indices, content, rest, needs, algebra.coarse_key(rest))


def _find_equal(
    algebra: Algebra, stages: Stages, wanted: Stage
) -> Iterator[tuple[Stage, tuple[int, ...]]]:
    """The code's intermediates that agree with one of the formula, and in which order of places."""
    extents = sorted(map(write_extent, wanted.indices))
    for tensor in stages.tensors:
        if len(tensor.shape) != len(extents) or stages.reader.find_cut(tensor.name):
            continue
        stage = stages.find(tensor)
        if stage is None or stage.coarse != wanted.coarse:
            continue
        if sorted(map(write_extent, stage.indices)) == extents:
            order = _find_order(algebra, stage, wanted)
            if order is not None:
                yield stage, order


def _find_order(algebra: Algebra, stage: Stage, wanted: Stage) -> tuple[int, ...] | None:
    """Which of the code's indices stands at each place of the formula's intermediate."""
    ranks = range(len(stage.indices))
    target = [write_extent(index) for index in wanted.indices]
    fitting = (
        order
        for order in permutations(ranks)
        if [write_extent(stage.indices[k]) for k in order] == target
    )
    key = algebra.key(wanted.normal)
    needs = {key: what for key, (_, what) in wanted.needs.items()}
    for order in islice(fitting, _MOST_ORDERS):
        new: Mapping[ir.Index, Affine] = {
            stage.indices[k]: to_affine(index)
            for k, index in zip(order, wanted.indices, strict=True)
        }
        if algebra.key(algebra.finish(algebra.replace(stage.normal.terms, new))) == key:
            put = [(algebra.replace((term,), new), what) for term, what in stage.needs.values()]
            if {k: what for k, (_, what) in collect(algebra, put).items()} == needs:
                return order
    return None


def _make_symbol(algebra: Algebra, number: int, stage: Stage) -> ir.Tensor:
    """A tensor that stands for the intermediate; its name is no one else's."""
    shape = tuple(index.extent for index in stage.indices)
    positive = algebra.is_positive(stage.normal)
    low = ir.ZERO if positive or algebra.is_nonnegative(stage.normal) else None
    return ir.Tensor(f"={number}", shape, "real", None, low, None, (positive, False))
