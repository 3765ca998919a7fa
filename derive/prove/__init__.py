"""A proof that two systems give equal results, for all sizes, by their normal forms.

    prove(code, formula) -> Proof | None

Inputs are matched by name, results by order. The first attempt multiplies out both systems as a
whole. The next one replaces each pair of intermediates that agree by one shared symbol, a cut.

Laws:
- Sound, not complete: unequal systems are never proved equal; equal ones may stay unproved.
- The budget is counted in steps, so the answer does not depend on the speed of the machine.
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
_FEW = 8  # extent up to which every value of an index is tried
_MOST_UNROLLED = 8  # extent up to which a sum is unrolled
_LARGEST = 120  # terms of the largest difference that is examined


def is_equal(algebra: nf.Algebra, ours: nf.Normal, theirs: nf.Normal, indices: nf.Indices) -> bool:
    """Whether both are equal for all values of the indices; False means not shown."""
    ours, theirs, indices = _split_quotients(algebra, ours, theirs, indices)
    if algebra.key(ours) == algebra.key(theirs):
        return True
    gap = algebra.finish((*ours.terms, *(term.times(Fraction(-1)) for term in theirs.terms)))
    if not gap.terms:
        return True
    if len(gap.terms) > _LARGEST:
        return False
    return _is_zero(algebra, gap, indices)


def is_finite_alike(algebra: nf.Algebra, ours: Needs, theirs: Needs, indices: nf.Indices) -> bool:
    """Whether both are finite at the same places, and the same infinity or nan elsewhere."""
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


def _split_quotients(
    algebra: nf.Algebra, ours: nf.Normal, theirs: nf.Normal, indices: nf.Indices
) -> tuple[nf.Normal, nf.Normal, nf.Indices]:
    """Both normal forms, with indices that a quotient divides split in two."""
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
    """The difference with its sums over short constant extents unrolled."""
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
    """The difference times a positive denominator of some of its terms; None without one."""
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
    """Whether the factor is 1/K**n for a positive K that is free of the summed indices."""
    whole = isinstance(factor.atom, nf.Base) and factor.exponent.denominator == 1
    if not whole or factor.exponent >= 0 or factor.free.intersection(term.bound):
        return False
    return cond.is_above(factor.atom)


# Cut points: intermediates of two systems that agree, replaced by one symbol in both.
#
# A cut replaces an intermediate by a symbol at permuted places, times a factor. The symbol of an
# intermediate that may be nan or infinite has the need "undefined".

_MOST_ORDERS = 24
_LEAST_WEIGHT = 5
_MOST_STEPS = 4000  # for one intermediate


@dataclass(frozen=True, slots=True)
class Stage:
    """The normal form of an intermediate over fresh indices, without its constant factor."""

    name: str
    indices: nf.Indices
    factor: nf.Term
    normal: nf.Normal
    needs: Needs
    coarse: str

    @property
    def may_be_cut(self) -> bool:
        """Whether no written infinity is inside: exp could not see it in a symbol."""
        return not any(what in {"-oo", "oo"} for _, what in self.needs.values())


class Stages:
    """The normal forms of one system's intermediates; a cut discards those that it changes."""

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

    def get_stage(self, tensor: ir.Tensor) -> Stage | None:
        """The intermediate's stage; None where it has no normal form within the budget."""
        name = tensor.name
        if name not in self._known:
            needs = self._find_dependencies(name)
            hard = any(self._known.get(n, self) is None for n in needs)
            self._known[name] = None if hard else self._make_stage(tensor)
        return self._known[name]

    def add_cut(self, name: str, cut: reader.Cut) -> None:
        """Cut the intermediate in the reader, and discard all that depends on it."""
        known = self._known.items()
        self._known = {n: stage for n, stage in known if name not in self._find_dependencies(n)}
        self.reader.add_cut(name, cut)
        self._definedness.forget()

    def _find_dependencies(self, name: str) -> set[str]:
        """The intermediates that it depends on, not looking inside those that are cut."""
        found: set[str] = set()
        todo = [name]
        while todo:
            for need in self._needs[todo.pop()]:
                if need not in found:
                    found.add(need)
                    if need not in self.reader.cuts:
                        todo.append(need)
        return found

    def _make_stage(self, tensor: ir.Tensor) -> Stage | None:
        try:
            return self._algebra.limited(_MOST_STEPS, lambda: make_stage(self._definedness, tensor))
        except nf.GivesUp:
            return None


def find_cuts(
    code: ir.System, formula: ir.System, layers: tuple[Definedness, Definedness]
) -> tuple[tuple[str, str], ...]:
    """Cut the intermediates that agree in both readers; return their pairs of names."""
    ours, theirs = Stages(layers[0], code), Stages(layers[1], formula)
    algebra = ours.reader.algebra
    found: list[tuple[str, str]] = []
    for tensor in theirs.tensors:
        wanted = theirs.get_stage(tensor)
        if wanted is None or not wanted.may_be_cut or _weigh(wanted.normal) < _LEAST_WEIGHT:
            continue  # a small one stays inlined: a mean, say, is recognised by its argument
        pairs = list(_find_equal(algebra, ours, wanted))
        if not pairs:
            continue
        symbol = _make_symbol(len(found), wanted)
        order = tuple(range(len(wanted.indices)))
        theirs.add_cut(wanted.name, reader.Cut(symbol, order, wanted.factor, bool(wanted.needs)))
        for stage, permuted in pairs:
            ours.add_cut(stage.name, reader.Cut(symbol, permuted, stage.factor, bool(stage.needs)))
            found.append((stage.name, wanted.name))
    return tuple(found)


def _weigh(piece: nf.Part | Affine) -> int:
    """The number of tensor reads in a piece, conditions aside."""
    match piece:
        case nf.Normal() | nf.Term() | nf.Base() | nf.Function() | nf.Fold():
            return sum(_weigh(each) for each in piece.inside if not isinstance(each, nf.Literal))
        case nf.Factor(atom):
            return _weigh(atom)
    return 1


def make_stage(definedness: Definedness, tensor: ir.Tensor) -> Stage:
    """The stage of an intermediate over fresh indices."""
    algebra = definedness.reader.algebra
    indices = tuple(algebra.make_index(extent) for extent in tensor.shape)
    places = tuple(map(to_affine, indices))
    whole = algebra.finish(definedness.reader.read_tensor(tensor.name, places))
    needs = definedness.find_tensor_needs(tensor.name, places)
    content, rest = find_content(algebra, whole, whole=True)
    if content is None or content.free or content.power is not None:
        content, rest = nf.Term(), whole
    return Stage(tensor.name, indices, content, rest, needs, algebra.coarse_key(rest))


def _find_equal(
    algebra: nf.Algebra, stages: Stages, wanted: Stage
) -> Iterator[tuple[Stage, tuple[int, ...]]]:
    """The code's intermediates equal to one of the formula, each with its order of places."""
    extents = sorted(map(nf.write_extent, wanted.indices))
    for tensor in stages.tensors:
        if len(tensor.shape) != len(extents) or tensor.name in stages.reader.cuts:
            continue
        stage = stages.get_stage(tensor)
        if stage is None or stage.coarse != wanted.coarse:
            continue
        if sorted(map(nf.write_extent, stage.indices)) == extents:
            order = _find_order(algebra, stage, wanted)
            if order is not None:
                yield stage, order


def _find_order(algebra: nf.Algebra, stage: Stage, wanted: Stage) -> tuple[int, ...] | None:
    """The code's index at each place of the formula's intermediate; None where they differ."""
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
    """A tensor for the intermediate; no input has a name that begins with "="."""
    shape = tuple(index.extent for index in stage.indices)
    positive = cond.is_above(stage.normal)
    low = ir.ZERO if positive or cond.is_nonnegative(stage.normal) else None
    kind = "complex" if stage.normal.is_complex else "real"
    return ir.Tensor(f"={number}", shape, kind, None, low, None, (positive, False))


ATTEMPTS = ((8_000, False), (60_000, True), (40_000, False))  # steps, whether to cut
FEW = 12  # equations up to which the third attempt is made
STEPS_EACH = 2_000  # added per equation of the code where intermediates are cut


@dataclass(frozen=True, slots=True)
class Proof:
    """The scope of a proof, every size or the given ones, and the intermediates that were cut."""

    every_size: bool
    cuts: tuple[tuple[str, str], ...] = ()


def prove(
    code: ir.System, formula: ir.System, sizes: Mapping[str, int] | None = None
) -> Proof | None:
    """A proof that the results are equal; None where none was found.

    `sizes` gives the formula's sizes that are numbers in the code.
    """
    given: dict[ir.Expr, ir.Expr] = {
        ir.Size(name): ir.Number(Fraction(number)) for name, number in (sizes or {}).items()
    }
    matched = _match_sizes(code, formula)
    if matched is None:
        return None
    fixed = {**matched, **given}
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
    """The cuts under which all results agree; None where one differs."""
    algebra = sums.NormalAlgebra(steps)
    layers = Definedness(reader.Reader(algebra, code)), Definedness(reader.Reader(algebra, formula))
    cuts = find_cuts(code, formula, layers) if cutting else ()
    for one, other in zip(code.results, formula.results, strict=True):
        indices = tuple(ir.Index(f"@{k}", extent) for k, extent in enumerate(other.shape))
        places = tuple(map(to_affine, indices))
        named = list(zip(layers, (one, other), strict=True))
        ours, theirs = (
            algebra.finish(_absorb(layer.reader.read_tensor(tensor.name, places)))
            for layer, tensor in named
        )
        if ours.free.union(theirs.free).difference(indices):
            raise nf.GivesUp("a letter that was left over")
        if not is_equal(algebra, ours, theirs, indices):
            return None
        mine, needs = (layer.find_tensor_needs(tensor.name, places) for layer, tensor in named)
        if not is_finite_alike(algebra, mine, needs, indices):
            return None
    return cuts


def _absorb(poly: nf.Poly) -> nf.Poly:
    """The value without its finite terms at the places where it is -oo."""
    infinite = tuple(filter(cond.is_infinite, poly))
    if not infinite or any(term.coefficient > 0 for term in infinite):
        return poly
    finite, regions = cond.find_regions(poly)
    return (*cond.guard(regions, finite), *infinite)


def _pair_inputs(code: ir.System, formula: ir.System) -> list[tuple[ir.Tensor, ir.Tensor]]:
    """The pairs of input tensors that have one name."""
    ours, theirs = (
        {entry.name: entry for entry in system.inputs if isinstance(entry, ir.Tensor)}
        for system in (code, formula)
    )
    return [(entry, theirs[name]) for name, entry in ours.items() if name in theirs]


def _match_sizes(code: ir.System, formula: ir.System) -> dict[ir.Expr, ir.Expr] | None:
    """The formula's sizes that are numbers in the code; None where the inputs do not match."""
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
    """Whether paired inputs, and the results in order, have equal shapes."""
    if len(code.results) != len(formula.results):
        return False
    results = zip(code.results, formula.results, strict=True)
    pairs = [*_pair_inputs(code, formula), *results]
    shapes = [[tuple(map(simplify_place, tensor.shape)) for tensor in pair] for pair in pairs]
    return all(
        len(one) == len(other) and all(map(is_same_extent, one, other)) for one, other in shapes
    )
