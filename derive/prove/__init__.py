"""A proof that two systems give equal results, for all sizes, by their normal forms.

    prove(code, formula) -> Proof | None

Inputs are matched by name, results one by one. First both are multiplied out as a whole; where that
does not do, intermediates that agree are cut: both are replaced by one symbol.

Laws:
- Unequal systems are never proved equal; that equal ones are is not promised.
- The budget is counted in steps, so that the answer hangs on no clock.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import islice, permutations

from derive.analysis.affine import Affine, simplify_place, to_affine
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.walk import find_accesses, resize_system
from derive.prove import conditions as cond
from derive.prove import reader, sums
from derive.prove import terms as nf
from derive.prove.algebra import find_content, multiply, power
from derive.prove.definedness import Definedness, Needs, collect_needs

_MOST_SPLITS = 8
_MOST_CLEARED = 4
_FEW = 8  # values of an index that are tried one by one
_MOST_UNROLLED = 8  # entries of a sum that are written out
_LARGEST = 120  # terms of a difference that is looked at


def is_equal(algebra: nf.Algebra, ours: nf.Normal, theirs: nf.Normal, indices: nf.Indices) -> bool:
    """Are both equal for all values of the indices, as far as is seen?"""
    ours, theirs, indices = _split(algebra, ours, theirs, indices)
    if algebra.key(ours) == algebra.key(theirs):
        return True
    gap = algebra.finish((*ours.terms, *(term.times(Fraction(-1)) for term in theirs.terms)))
    if not gap.terms:
        return True
    if len(gap.terms) > _LARGEST:
        return False
    return _is_zero(algebra, gap, indices)


def is_finite_alike(algebra: nf.Algebra, ours: Needs, theirs: Needs, indices: nf.Indices) -> bool:
    """Are both finite at the same places, and the same infinity or nan elsewhere?"""
    one, other = (
        {(key, what.lstrip("~")): term for key, (term, what) in needs.items()}
        for needs in (ours, theirs)
    )
    left, right = (
        [(under[1], algebra.finish((term,))) for under, term in mine.items() if under not in known]
        for mine, known in ((one, other), (other, one))
    )
    return all(
        any(what == wanted and is_equal(algebra, value, other, indices) for wanted, other in others)
        for needs, others in ((left, right), (right, left))
        for what, value in needs
    )


def _split(
    algebra: nf.Algebra, ours: nf.Normal, theirs: nf.Normal, indices: nf.Indices
) -> tuple[nf.Normal, nf.Normal, nf.Indices]:
    """Both with the indices that quotients divide in either split in two."""
    for _ in range(_MOST_SPLITS):
        if algebra.key(ours) == algebra.key(theirs):
            break
        affines = [*sums.find_affines(ours), *sums.find_affines(theirs)]
        for index in indices:
            parts = sums.split_quotient(algebra, index, affines)
            if parts is not None:
                break
        else:
            break
        high, low, place = parts
        indices = (*(each for each in indices if each is not index), high, low)
        ours, theirs = (
            algebra.finish(algebra.replace(side.terms, {index: place})) for side in (ours, theirs)
        )
    return ours, theirs, indices


def _is_zero(algebra: nf.Algebra, gap: nf.Normal, indices: nf.Indices) -> bool:
    gap = _unroll(algebra, gap)
    for _ in range(_MOST_CLEARED):
        cleared = _clear_divisor(algebra, gap)
        if cleared is None:
            break
        gap = cleared
    if not gap.terms:
        return True
    for index in indices:
        extent = Polynomial.of(index.extent).constant
        if extent is None or not 1 < extent <= _FEW or index not in gap.free:
            continue
        rest = tuple(each for each in indices if each is not index)
        places = (Affine({}, Polynomial.of(value)) for value in range(int(extent)))
        put = (algebra.finish(algebra.replace(gap.terms, {index: place})) for place in places)
        return all(_is_zero(algebra, each, rest) for each in put)
    return False


def _unroll(algebra: nf.Algebra, gap: nf.Normal) -> nf.Normal:
    """The difference with its sums over a few numbers written out."""
    found: list[nf.Term] = []
    for term in gap.terms:
        extents = {index: Polynomial.of(index.extent).constant for index in term.bound}
        few = {i: int(n) for i, n in extents.items() if n is not None and 1 < n <= _MOST_UNROLLED}
        poly: nf.Poly = (term.without(*few),)
        for index, count in few.items():
            places = [Affine({}, Polynomial.of(value)) for value in range(count)]
            poly = tuple(t for place in places for t in algebra.replace(poly, {index: place}))
        found += poly
    return algebra.finish(tuple(found)) if len(found) > len(gap.terms) else gap


def _clear_divisor(algebra: nf.Algebra, gap: nf.Normal) -> nf.Normal | None:
    """The difference times a positive divisor of some of its terms; None where there is none."""
    found: dict[str, nf.Factor] = {}
    for term in gap.terms:
        for factor in term.factors:
            if _is_divisor(factor, term):
                key = algebra.key(factor.atom)
                known = found.get(key)
                if known is None or factor.exponent < known.exponent:
                    found[key] = factor
    if not found:
        return None
    key = min(found)
    times = -found[key].exponent
    base = found[key].atom
    assert isinstance(base, nf.Base)
    terms: list[nf.Term] = []
    for term in gap.terms:
        own = [factor for factor in term.factors if algebra.key(factor.atom) == key]
        left = times + sum(factor.exponent for factor in own)
        if left.denominator != 1 or left < 0:
            return None
        rest = tuple(factor for factor in term.factors if factor not in own)
        bare: nf.Poly = (replace(term, factors=rest),)
        terms += multiply(algebra, bare, power(algebra, base.normal.terms, left))
    return algebra.finish(tuple(terms))


def _is_divisor(factor: nf.Factor, term: nf.Term) -> bool:
    """Is it 1/K**n of a positive K that is free of the summed indices?"""
    whole = isinstance(factor.atom, nf.Base) and factor.exponent.denominator == 1
    if not whole or factor.exponent >= 0 or factor.free.intersection(term.bound):
        return False
    return cond.is_above(factor.atom)


# Cut points: intermediates of two systems that agree, replaced by one symbol in both.
#
# A cut says what a reader puts for an intermediate: a symbol at permuted places, times a factor.
# What may be nan stays so: its symbol is no finite number there.

_MOST_ORDERS = 24
_LEAST_WEIGHT = 5
_MOST_STEPS = 4000  # for one intermediate


@dataclass(frozen=True, slots=True)
class Stage:
    """An intermediate's normal form over indices of its own, without its factor."""

    name: str
    indices: nf.Indices
    factor: nf.Term
    normal: nf.Normal
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
        self.tensors = [tensor for tensor in targets if tensor.kind == "real"]
        names = {tensor.name for tensor in targets}
        self._needs = {  # the intermediates that each of them reads
            e.target.tensor.name: names & {a.tensor.name for a in find_accesses(e.value)}
            for e in system.equations
        }
        self._known: dict[str, Stage | None] = {}

    def find(self, tensor: ir.Tensor) -> Stage | None:
        """The normal form; None where it has none, or where it takes too long."""
        name = tensor.name
        if name not in self._known:
            needs = self._find_open(name)
            hard = any(self._known.get(n, self) is None for n in needs)
            self._known[name] = None if hard else self._make(tensor)
        return self._known[name]

    def cut(self, name: str, cut: reader.Cut) -> None:
        """Tell the reader, and forget what hangs on the intermediate."""
        known = self._known.items()
        self._known = {n: stage for n, stage in known if name not in self._find_open(n)}
        self.reader.cut(name, cut)
        self._definedness.forget()

    def _find_open(self, name: str) -> set[str]:
        """The intermediates that it is made of, as far as they are not cut."""
        found: set[str] = set()
        todo = [name]
        while todo:
            for need in self._needs[todo.pop()]:
                if need not in found:
                    found.add(need)
                    if need not in self.reader.cuts:
                        todo.append(need)
        return found

    def _make(self, tensor: ir.Tensor) -> Stage | None:
        try:
            return self._algebra.limited(_MOST_STEPS, lambda: find_stage(self._definedness, tensor))
        except nf.GivesUp:
            return None


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
        symbol = _make_symbol(len(found), wanted)
        order = tuple(range(len(wanted.indices)))
        theirs.cut(wanted.name, reader.Cut(symbol, order, wanted.factor, bool(wanted.needs)))
        for stage, permuted in pairs:
            ours.cut(stage.name, reader.Cut(symbol, permuted, stage.factor, bool(stage.needs)))
            found.append((stage.name, wanted.name))
    return tuple(found)


def _weigh(piece: nf.Part | Affine) -> int:
    """How many elements are read in it, each as often as it is written; conditions do not count."""
    match piece:
        case nf.Normal() | nf.Term() | nf.Base() | nf.Function() | nf.Fold():
            return sum(_weigh(each) for each in piece.inside if not isinstance(each, nf.Literal))
        case nf.Factor(atom):
            return _weigh(atom)
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
        content, rest = nf.Term(), whole
    return Stage(tensor.name, indices, content, rest, needs, algebra.coarse_key(rest))


def _find_equal(
    algebra: nf.Algebra, stages: Stages, wanted: Stage
) -> Iterator[tuple[Stage, tuple[int, ...]]]:
    """The code's intermediates that agree with one of the formula, and in which order of places."""
    extents = sorted(map(nf.write_extent, wanted.indices))
    for tensor in stages.tensors:
        if len(tensor.shape) != len(extents) or tensor.name in stages.reader.cuts:
            continue
        stage = stages.find(tensor)
        if stage is None or stage.coarse != wanted.coarse:
            continue
        if sorted(map(nf.write_extent, stage.indices)) == extents:
            order = _find_order(algebra, stage, wanted)
            if order is not None:
                yield stage, order


def _find_order(algebra: nf.Algebra, stage: Stage, wanted: Stage) -> tuple[int, ...] | None:
    """Which of the code's indices stands at each place of the formula's intermediate."""
    ranks = range(len(stage.indices))
    target = [nf.write_extent(index) for index in wanted.indices]
    fitting = (
        order
        for order in permutations(ranks)
        if [nf.write_extent(stage.indices[k]) for k in order] == target
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
            if {k: what for k, (_, what) in collect_needs(algebra, put).items()} == needs:
                return order
    return None


def _make_symbol(number: int, stage: Stage) -> ir.Tensor:
    """A tensor that stands for the intermediate; its name is no one else's."""
    shape = tuple(index.extent for index in stage.indices)
    positive = cond.is_above(stage.normal)
    low = ir.ZERO if positive or cond.is_nonnegative(stage.normal) else None
    kind = "complex" if stage.normal.is_complex else "real"
    return ir.Tensor(f"={number}", shape, kind, None, low, None, (positive, False))


# Steps, and whether intermediates are cut: small systems go as a whole, large ones by parts.
ATTEMPTS = ((8_000, False), (60_000, True), (40_000, False))
FEW = 12  # equations; more are not multiplied out as a whole at length
STEPS_EACH = 2_000  # more for each equation of the code


@dataclass(frozen=True, slots=True)
class Proof:
    """What a proof rests on: all sizes or the given ones, and the intermediates that were cut."""

    every_size: bool
    cuts: tuple[tuple[str, str], ...] = ()


def prove(
    code: ir.System, formula: ir.System, sizes: Mapping[str, int] | None = None
) -> Proof | None:
    """A proof that the results are equal; None where none was found.

    `sizes` are those of the formula that are numbers in the code.
    """
    told: dict[ir.Expr, ir.Expr] = {
        ir.Size(name): ir.Number(Fraction(number)) for name, number in (sizes or {}).items()
    }
    matched = _match_sizes(code, formula)
    if matched is None:
        return None
    fixed = {**matched, **told}
    formula = resize_system(formula, fixed, simplify=simplify_place) if fixed else formula
    if not _is_same_shape(code, formula):
        return None
    few = len(code.equations) <= FEW
    for steps, cutting in ATTEMPTS if few else ATTEMPTS[:2]:
        try:
            more = STEPS_EACH * len(code.equations) if cutting else 0
            found = _prove(code, formula, steps + more, cutting=cutting)
        except (nf.GivesUp, RecursionError):
            continue
        if found is not None:
            return Proof(not fixed, found)
    return None


def _prove(
    code: ir.System, formula: ir.System, steps: int, *, cutting: bool
) -> tuple[tuple[str, str], ...] | None:
    """The cuts with which all results agree."""
    algebra = sums.NormalAlgebra(steps)
    layers = Definedness(reader.Reader(algebra, code)), Definedness(reader.Reader(algebra, formula))
    cuts = find_cuts(code, formula, layers) if cutting else ()
    for one, other in zip(code.results, formula.results, strict=True):
        indices = tuple(ir.Index(f"@{k}", extent) for k, extent in enumerate(other.shape))
        places = tuple(map(to_affine, indices))
        named = list(zip(layers, (one, other), strict=True))
        ours, theirs = (
            algebra.finish(_absorb(layer.reader.define(tensor.name, places)))
            for layer, tensor in named
        )
        if ours.free.union(theirs.free).difference(indices):
            raise nf.GivesUp("a letter that was left over")
        if not is_equal(algebra, ours, theirs, indices):
            return None
        mine, needs = (layer.define(tensor.name, places) for layer, tensor in named)
        if not is_finite_alike(algebra, mine, needs, indices):
            return None
    return cuts


def _absorb(poly: nf.Poly) -> nf.Poly:
    """The value without the finite terms that stand beside -oo."""
    infinite = tuple(filter(cond.is_infinite, poly))
    if not infinite or any(term.coefficient > 0 for term in infinite):
        return poly
    finite, regions = cond.find_regions(poly)
    return (*cond.guard(regions, finite), *infinite)


def _pair_inputs(code: ir.System, formula: ir.System) -> list[tuple[ir.Tensor, ir.Tensor]]:
    """The tensors of one name among the inputs of both."""
    ours, theirs = (
        {entry.name: entry for entry in system.inputs if isinstance(entry, ir.Tensor)}
        for system in (code, formula)
    )
    return [(entry, theirs[name]) for name, entry in ours.items() if name in theirs]


def _match_sizes(code: ir.System, formula: ir.System) -> dict[ir.Expr, ir.Expr] | None:
    """The formula's sizes that the code has as numbers; None where inputs do not fit."""
    fixed: dict[ir.Expr, ir.Expr] = {}
    for entry, other in _pair_inputs(code, formula):
        if len(entry.shape) != len(other.shape) or entry.kind != other.kind:
            return None
        for ours, wanted in zip(entry.shape, other.shape, strict=True):
            number = simplify_place(ours)
            if not isinstance(wanted, ir.Size) or not isinstance(number, ir.Number):
                continue
            if fixed.setdefault(wanted, number) is not number:
                return None
    return fixed


def _is_same_shape(code: ir.System, formula: ir.System) -> bool:
    """Have inputs of one name, and the results in order, one shape?"""
    if len(code.results) != len(formula.results):
        return False
    results = zip(code.results, formula.results, strict=True)
    pairs = [*_pair_inputs(code, formula), *results]
    shapes = [[tuple(map(simplify_place, tensor.shape)) for tensor in pair] for pair in pairs]
    return all(
        len(one) == len(other) and all(map(is_same_extent, one, other)) for one, other in shapes
    )
