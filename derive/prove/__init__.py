"""A proof that two systems give equal results, for all sizes, by their normal forms.

    prove(code, formula) -> Proof | None

Inputs are matched by name, results by order. Both systems are multiplied out as a whole.

Laws:
- Sound, not complete: unequal systems are never proved equal; equal ones may stay unproved.
- The budget is counted in steps, so the answer does not depend on the speed of the machine.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from derive.analysis.affine import simplify_place, to_linear
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.walk import resize_system
from derive.prove import conditions as cond
from derive.prove import reader, sums
from derive.prove import terms as nf
from derive.prove.algebra import multiply, power
from derive.prove.definedness import Definedness, Needs

_MOST_SPLITS = 8
_MOST_CLEARED = 4
_FEW = 8  # extent up to which every value of an index is tried
_MOST_UNROLLED = 8  # extent up to which a sum is unrolled
_LARGEST = 120  # terms of the largest difference that is examined


def is_equal(algebra: nf.Algebra, ours: nf.Normal, theirs: nf.Normal, indices: nf.Indices) -> bool:
    """Whether two normal forms are equal for all values of the indices; False means not shown."""
    ours, theirs, indices = _split_quotients(algebra, ours, theirs, indices)
    if algebra.key(ours) == algebra.key(theirs):
        return True
    gap = algebra.finish((*ours.terms, *(term.times(Fraction(-1)) for term in theirs.terms)))
    return len(gap.terms) <= _LARGEST and _is_zero(algebra, gap, indices)


def is_finite_alike(algebra: nf.Algebra, ours: Needs, theirs: Needs, indices: nf.Indices) -> bool:
    """Whether each need of one has an equal one of the other: both are infinite or nan alike."""
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
    """Both forms and the indices, an index i of `i // n` split into i = n*high + low."""
    for _ in range(_MOST_SPLITS):
        if algebra.key(ours) == algebra.key(theirs):
            break
        forms = [*sums.find_forms(ours), *sums.find_forms(theirs)]
        for index in indices:
            parts = sums.split_quotient(algebra, index, forms)
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
    """Whether a difference is 0 for all values of the indices; False means not shown."""
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
        places = (Polynomial.of(value) for value in range(int(extent)))
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
            places = [Polynomial.of(value) for value in range(count)]
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
    is_integral = isinstance(factor.atom, nf.Base) and factor.exponent.denominator == 1
    if not is_integral or factor.exponent >= 0 or factor.free.intersection(term.bound):
        return False
    return cond.is_above(factor.atom)


STEPS = 110_000  # steps of one proof


@dataclass(frozen=True, slots=True)
class Proof:
    """A found proof: it holds at every size, or only at those that were given."""

    every_size: bool


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
    formula = resize_system(formula, fixed, simplify_place) if fixed else formula
    if not _is_same_shape(code, formula):
        return None
    try:
        return Proof(not fixed) if _is_proved(code, formula) else None
    except (nf.GivesUp, RecursionError):
        return None


def _is_proved(code: ir.System, formula: ir.System) -> bool:
    """Whether all results are shown to agree, also where they are infinite or nan."""
    algebra = sums.NormalAlgebra(STEPS)
    layers = Definedness(reader.Reader(algebra, code)), Definedness(reader.Reader(algebra, formula))
    for one, other in zip(code.results, formula.results, strict=True):
        indices = tuple(ir.Index(f"@{k}", extent) for k, extent in enumerate(other.shape))
        places = tuple(map(to_linear, indices))
        named = list(zip(layers, (one, other), strict=True))
        ours, theirs = (
            algebra.finish(_absorb(layer.reader.read_tensor(tensor.name, places)))
            for layer, tensor in named
        )
        if ours.free.union(theirs.free).difference(indices):
            raise nf.GivesUp("a letter that was left over")
        if not is_equal(algebra, ours, theirs, indices):
            return False
        mine, needs = (layer.find_tensor_needs(tensor.name, places) for layer, tensor in named)
        if not is_finite_alike(algebra, mine, needs, indices):
            return False
    return True


def _absorb(poly: nf.Poly) -> nf.Poly:
    """The value without its finite terms where a term is -oo; unchanged if a term may be +oo."""
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
