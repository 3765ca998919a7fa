"""Common factors of contractions, over all equations, factored out where that saves work.

    r[i,a] = sum_ld x_ld * u_lida + sum_ldm x_ld * y_md * w_lima
    p[i,a,l,d] = u_lida + sum_m y_md * w_lima;   r[i,a] = sum_ld x_ld * p_iald

Terms that share a factor are grouped: the factor times the sum of the other factors, which becomes
a part. The group with the largest saving is taken first, until none saves operations. Parts that
are equal up to the order of indices and a number are computed once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import permutations, product
from math import factorial, prod
from typing import TypeAlias

from derive.ir import nodes as ir
from derive.ir.functions import kind_of
from derive.ir.polynomial import Polynomial, evaluate_extent
from derive.ir.walk import Names, find_all_indices, rename_apart
from derive.plan.path import count_operations, find_path
from derive.rewrite.guards import find_nonfinite
from derive.rewrite.rules.chains import split_term
from derive.rewrite.rules.terms import FEW, Term, to_sum

# An index is a pair: the number of its extent, and a number of its own. Numbers from SHARED on are
# for indices that a factor shares with the rest of its term, from BOUND on for summed indices.
Place: TypeAlias = tuple[int, int]
Factor: TypeAlias = tuple[int, tuple[Place, ...]]  # the number of a tensor, and its indices
Factors: TypeAlias = tuple[Factor, ...]
Terms: TypeAlias = dict[Factors, Fraction]
SHARED, BOUND = 1 << 10, 1 << 20
MOST_FACTORS = 6  # factors of a product with a tolerable number of permutations
MOST_ORDERS = factorial(MOST_FACTORS)  # permutations of the indices of a part


def list_places(factors: Iterable[Factor]) -> tuple[Place, ...]:
    """The indices of factors, in order."""
    return tuple(dict.fromkeys(place for _, places in factors for place in places))


def rename(factors: Factors, new: Mapping[Place, Place]) -> Factors:
    """The factors with renamed indices."""
    return tuple((tensor, tuple(new.get(p, p) for p in places)) for tensor, places in factors)


@lru_cache(maxsize=1 << 16)
def normalize(factors: Factors, kept: frozenset[Place]) -> Factors:
    """The factors in canonical order, with canonical names for all indices but the kept ones.

    Colour refinement tells indices apart by position; ties are broken by trying each index.
    """
    marks = {p: (p in kept, p if p in kept else (p[0], 0)) for p in list_places(factors)}
    order = sorted({*marks.values()})
    return _refine(factors, kept, {place: order.index(mark) for place, mark in marks.items()})


def _refine(factors: Factors, kept: frozenset[Place], colours: dict[Place, int]) -> Factors:
    while True:
        seen: dict[Place, list[tuple[object, ...]]] = {place: [] for place in colours}
        for tensor, places in factors:
            outline = (tensor, *(colours[place] for place in places))
            for k, place in enumerate(places):
                seen[place].append((k, *outline))
        marks = {place: (colours[place], sorted(each)) for place, each in seen.items()}
        order = sorted({(colour, tuple(each)) for colour, each in marks.values()})
        number = {mark: k for k, mark in enumerate(order)}
        finer = {place: number[colour, tuple(each)] for place, (colour, each) in marks.items()}
        if len(order) == len({*colours.values()}):
            break
        colours = finer
    alike: dict[int, list[Place]] = defaultdict(list)
    for place, colour in finer.items():
        if place not in kept:
            alike[colour].append(place)
    several = min((colour for colour, each in alike.items() if len(each) > 1), default=None)
    if several is not None:
        tried: list[Place] = []
        for place in alike[several]:  # skip indices that are symmetric to a tried one
            exchanged = (rename(factors, {place: other, other: place}) for other in tried)
            if not any(sorted(each) == sorted(factors) for each in exchanged):
                tried.append(place)
        return min(
            _refine(factors, kept, {p: 2 * c + (p == chosen) for p, c in finer.items()})
            for chosen in tried
        )
    ranked = sorted((p for p in finer if p not in kept), key=lambda place: finer[place])
    return tuple(sorted(rename(factors, {p: (p[0], BOUND + k) for k, p in enumerate(ranked)})))


@dataclass(frozen=True, slots=True)
class Group:
    """The key of terms with a common factor: the factor, and the indices of the rest."""

    factor: Factor
    free: tuple[Place, ...]  # the free indices of the rest


@dataclass
class Factoring:
    """The extents by number, and the parts so far, each as indices and terms."""

    extents: list[int] = field(default_factory=list)
    known: int = 0  # the number of tensors that are not parts
    parts: dict[int, tuple[tuple[Place, ...], Terms]] = field(default_factory=dict)
    costs: dict[tuple[object, ...], int] = field(default_factory=dict)

    def count_elements(self, places: Iterable[Place]) -> int:
        """The number of elements over these indices."""
        return prod(self.extents[place[0]] for place in places)

    def find_cost(self, factors: Factors, free: frozenset[Place]) -> int:
        """The operations of a product summed, in its best contraction order."""
        if len(factors) < 2:
            return 0
        number: dict[Place, Place] = {}
        for place in list_places(factors):
            number[place] = (place[0], len(number))
        shape = tuple(tuple(number[p] for p in places) for _, places in factors)
        output = tuple(sorted(number[p] for p in free if p in number))
        if (shape, output) not in self.costs:
            extents = {place: self.extents[place[0]] for place in number.values()}
            inputs: list[ir.Index] = [*shape]  # type: ignore[list-item]
            path = find_path(inputs, output, extents)  # type: ignore[arg-type]
            self.costs[shape, output] = count_operations(path, inputs, output, extents)  # type: ignore[arg-type]
        return self.costs[shape, output]

    def count_all(self, wholes: Iterable[tuple[frozenset[Place], Terms]]) -> int:
        """The operations of sums of products; equal products are computed once."""
        costs = {
            normalize(factors, frozenset()): self.find_cost(factors, free)
            for free, terms in wholes
            for factors in terms
        }
        return sum(costs.values())

    def split_factors(
        self, factors: Factors, free: frozenset[Place]
    ) -> Iterator[tuple[Group, Factors]]:
        """Each way to split off one factor: the group's key, and the rest."""
        start = max((SHARED, *(place[1] + 1 for place in sorted(free))))
        for k, (tensor, places) in enumerate(factors):
            rest = factors[:k] + factors[k + 1 :]
            others = {*list_places(rest)}
            inner = [p for p in dict.fromkeys(places) if p not in free]
            if rest and all(p in others for p in inner):
                shared = {p: (p[0], start + n) for n, p in enumerate(inner)}
                left = (tensor, tuple(shared.get(p, p) for p in places))
                named = rename(rest, shared)
                own = frozenset(
                    p for p in list_places(named) if p in free or SHARED <= p[1] < BOUND
                )
                yield Group(left, tuple(sorted(own))), normalize(named, own)

    def factor(self, free: frozenset[Place], terms: Terms) -> Terms:
        """The terms, with common factors times new parts."""
        left = dict(terms)
        groups: dict[Group, dict[Factors, tuple[Factors, int]]] = defaultdict(dict)
        places: dict[Factors, list[tuple[Group, Factors]]] = {}
        size = self.count_elements(free)

        def enter_product(factors: Factors) -> None:
            places[factors] = []
            alone = self.find_cost(factors, free)
            for group, rest in self.split_factors(factors, free):
                own = frozenset(group.free)
                gain = alone + size - self.find_cost(rest, own) - self.count_elements(own)
                if gain > 0 and all(each[0] != factors for each in groups[group].values()):
                    groups[group][rest] = (factors, gain)
                    places[factors].append((group, rest))

        def remove_product(factors: Factors) -> Fraction:
            for group, rest in places.pop(factors):
                del groups[group][rest]
            return left.pop(factors)

        def find_saving(group: Group) -> int:
            members = groups[group]
            if len(members) < 2:
                return 0
            spanned = {*group.factor[1], *group.free}
            whole = self.count_elements(spanned) * (1 if spanned <= free else 2)
            gain = sum(each for _, each in members.values())
            return gain - whole + self.count_elements(group.free) - size

        for factors in left:
            enter_product(factors)
        while groups:
            best = max(groups, key=lambda group: (find_saving(group), group.factor, group.free))
            if find_saving(best) <= 0:
                break
            members = [(rest, factors) for rest, (factors, _) in groups[best].items()]
            inner = {rest: remove_product(factors) for rest, factors in members}
            number, part = self.make_part(best.free, inner)
            whole = normalize((best.factor, part), free)
            if whole not in left:
                left[whole] = Fraction(0)
                enter_product(whole)
            left[whole] += number
        return left

    def make_part(self, free: tuple[Place, ...], terms: Terms) -> tuple[Fraction, Factor]:
        """A number and a part, new or known, whose product is the sum of the terms."""
        for tensor, (its_free, its_terms) in self.parts.items():
            found = match_parts((free, terms), (its_free, its_terms))
            if found is not None:
                return found[0], (tensor, found[1])
        tensor = self.known + len(self.parts)
        self.parts[tensor] = (free, terms)
        return Fraction(1), (tensor, free)


Part: TypeAlias = tuple[tuple[Place, ...], Terms]


def match_parts(one: Part, other: Part) -> tuple[Fraction, tuple[Place, ...]] | None:
    """The number and the permutation of indices that turn one part into another, if any."""
    (free, terms), (its_free, its_terms) = one, other
    if len(free) != len(its_free) or _outline(terms) != _outline(its_terms):
        return None
    profiles = _profile(free, terms), _profile(its_free, its_terms)
    if sorted(profiles[0].values()) != sorted(profiles[1].values()):
        return None
    alike: dict[object, tuple[list[Place], list[Place]]] = {}
    for k, each in enumerate((free, its_free)):
        for place in each:
            alike.setdefault(repr(profiles[k][place]), ([], []))[k].append(place)
    if prod(factorial(len(mine)) for mine, _ in alike.values()) > MOST_ORDERS:
        return None
    ways = [
        [dict(zip(theirs, order, strict=True)) for order in permutations(mine)]
        for mine, theirs in alike.values()
    ]
    kept = frozenset(free)
    for way in product(*ways):
        new = {theirs: mine for each in way for theirs, mine in each.items()}
        named = {normalize(rename(factors, new), kept): c for factors, c in its_terms.items()}
        if named.keys() == terms.keys():
            ratios = {terms[factors] / named[factors] for factors in terms}
            if len(ratios) == 1:
                return ratios.pop(), tuple(new[place] for place in its_free)
    return None


def _outline(terms: Terms) -> Counter[tuple[int, ...]]:
    return Counter(tuple(sorted(tensor for tensor, _ in factors)) for factors in terms)


def _profile(free: tuple[Place, ...], terms: Terms) -> dict[Place, list[tuple[object, ...]]]:
    """The positions at which each free index occurs, as a key for matching."""
    found: dict[Place, list[tuple[object, ...]]] = {place: [] for place in free}
    for factors in terms:
        names = tuple(sorted(tensor for tensor, _ in factors))
        for tensor, places in factors:
            for k, place in enumerate(places):
                if place in found:
                    found[place].append((tensor, k, names))
    return {place: [(place[0],), *sorted(each)] for place, each in found.items()}


def factor_system(system: ir.System, sizes: Mapping[str, int]) -> ir.System | None:
    """The system with common factors taken out into parts; None if that saves nothing."""
    reader = _Reader(system, sizes)
    sums = [
        found for equation in system.equations if (found := reader.read_sum(equation)) is not None
    ]
    if sum(len(factors) > 1 for each in sums for factors in each.terms) <= FEW:
        return None
    factoring = reader.factoring
    factored = [replace(each, terms=factoring.factor(each.free, each.terms)) for each in sums]
    parts: dict[int, Terms] = {}
    while len(parts) < len(factoring.parts):  # parts may be factored again
        for tensor, (free, terms) in list(factoring.parts.items())[len(parts) :]:
            parts[tensor] = factoring.factor(frozenset(free), terms)
    before = factoring.count_all((each.free, each.terms) for each in sums)
    wholes = [(frozenset(factoring.parts[tensor][0]), terms) for tensor, terms in parts.items()]
    wholes += [(each.free, each.terms) for each in factored]
    if factoring.count_all(wholes) >= before:
        return None
    return reader.write_system(system, factored, parts)


@dataclass(frozen=True, slots=True)
class _Sum:
    """An equation as a sum: products of tensors, and other terms."""

    equation: ir.Equation
    free: frozenset[Place]
    terms: Terms
    others: tuple[ir.Expr, ...]


class _Reader:
    """A converter between equations and numbered terms."""

    def __init__(self, system: ir.System, sizes: Mapping[str, int]) -> None:
        self.factoring = Factoring()
        self.places: dict[ir.Index, Place] = {}
        self.classes: list[ir.Expr] = []
        self.numbers: dict[ir.Tensor, int] = {}
        self.tensors: dict[int, ir.Tensor] = {}
        self.indices = find_all_indices(system)
        self.nonfinite = find_nonfinite(system)
        for index in self.indices:
            if index.extent not in self.classes:
                self.classes.append(index.extent)
                self.factoring.extents.append(max(1, evaluate_extent(index.extent, sizes)))
            self.places[index] = (self.classes.index(index.extent), len(self.places))

    def read_sum(self, equation: ir.Equation) -> _Sum | None:
        """The equation as a sum of products; None if it is not a sum."""
        target, value = equation.target.places, equation.value
        if not isinstance(value, ir.Add) or not all(isinstance(p, ir.Index) for p in target):
            return None
        free = frozenset(self.places[p] for p in target if isinstance(p, ir.Index))
        terms: Terms = {}
        others: list[ir.Expr] = []
        for term in value.terms:
            found = self._read_term(term, free)
            if found is None:
                others.append(term)
            else:
                terms[found[1]] = terms.get(found[1], Fraction(0)) + found[0]
        kept = {factors: number for factors, number in terms.items() if number}
        return _Sum(equation, free, kept, tuple(others))

    def _read_term(self, term: ir.Expr, free: frozenset[Place]) -> tuple[Fraction, Factors] | None:
        chain = split_term(term)
        number, factors = Fraction(1), list[Factor]()
        for factor in chain.factors:
            match factor:
                case _ if (value := Polynomial.of(factor).constant) is not None:
                    number *= value
                case ir.Access(ir.Tensor(kind="real") as tensor, places) if (
                    tensor not in self.nonfinite
                ):
                    at = tuple(self.places[p] for p in places if isinstance(p, ir.Index))
                    if len(at) < len(places):
                        return None
                    factors.append((self._number_tensor(tensor), at))
                case _:
                    return None
        read = {*list_places(factors)}
        bound = {self.places.get(i) for i in chain.bound}
        is_whole = chain.condition is ir.TRUE and read - free == bound and free <= read
        return (number, normalize(tuple(factors), free)) if factors and is_whole else None

    def _number_tensor(self, tensor: ir.Tensor) -> int:
        number = self.numbers.setdefault(tensor, len(self.numbers))
        self.tensors[number] = tensor
        self.factoring.known = len(self.numbers)
        return number

    def write_system(
        self, system: ir.System, sums: Sequence[_Sum], parts: Mapping[int, Terms]
    ) -> ir.System:
        """The system with an equation for each part, before its first reader."""
        taken = Names.of(system)
        changed = {each.equation: each for each in sums}
        back = {place: index for index, place in self.places.items()}
        equations: list[ir.Equation] = []

        def define_parts(terms: Terms) -> None:
            for tensor in dict.fromkeys(tensor for factors in terms for tensor, _ in factors):
                if tensor in parts and tensor not in self.tensors:
                    define_parts(parts[tensor])
                    free = self.factoring.parts[tensor][0]
                    names = self._name_places(free, back)
                    name = taken.take("part")
                    shape = tuple(self.classes[place[0]] for place in free)
                    kind = kind_of(self._write_terms(parts[tensor], names))
                    self.tensors[tensor] = ir.Tensor(name, shape, kind)
                    target = ir.Access(self.tensors[tensor], tuple(names[p] for p in free))
                    equations.append(ir.Equation(target, self._write_terms(parts[tensor], names)))

        for equation in system.equations:
            value = equation.value
            if equation in changed:
                define_parts(changed[equation].terms)
                whole = self._write_terms(changed[equation].terms, back)
                terms = ir.split_sum(whole)
                value = ir.sum_of([*changed[equation].others, *terms])
            equations.append(ir.Equation(equation.target, value))
        return replace(system, equations=tuple(equations))

    def _name_places(
        self, places: Iterable[Place], names: Mapping[Place, ir.Index]
    ) -> dict[Place, ir.Index]:
        """An index for each place: its own, or an unused one of the same extent."""
        found = {place: names[place] for place in places if place in names}
        taken = {index.name for index in found.values()}
        for place in places:
            if place not in found:
                extent = self.classes[place[0]]
                alike = [i for i in self.indices if i.extent is extent]
                index = next((i for i in alike if i.name not in taken), None)
                found[place] = index or rename_apart(
                    alike[0], taken | {i.name for i in self.indices}
                )
                taken.add(found[place].name)
        return found

    def _write_terms(self, terms: Terms, names: Mapping[Place, ir.Index]) -> ir.Expr:
        written = []
        for factors, number in terms.items():
            places = list_places(factors)
            named = self._name_places(places, names)
            bound = tuple(named[place] for place in places if place not in names)
            accesses = tuple(
                ir.Access(self.tensors[tensor], tuple(named[place] for place in at))
                for tensor, at in factors
            )
            written.append(Term(number, bound, ir.TRUE, accesses))
        return to_sum(written)
