"""Common factors of contractions, over all equations, factored out where that saves work.

    r[i,a] = sum_ld x_ld * u_lida + sum_ldm x_ld * y_md * w_lima
    p[i,a,l,d] = u_lida + sum_m y_md * w_lima;   r[i,a] = sum_ld x_ld * p_iald

Terms that share a factor are grouped: the factor times the sum of the other factors, which becomes
a part. The group with the largest saving is taken first, until none saves operations. Parts that
are equal up to the order of indices and a number are computed once.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import count
from math import prod
from typing import Any, TypeAlias

from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.text import to_text
from derive.ir.walk import Names, find_all_indices, rename_apart
from derive.plan.cost import Storage
from derive.plan.path import count_operations, find_path
from derive.rewrite.guards import find_nonfinite
from derive.rewrite.rules.chains import split_term
from derive.rewrite.rules.terms import FEW, Term, to_sum

# Summed indices are named #0, #1, ..; indices that a factor shares with the rest of its term are
# named @0, @1, .. They get names of the formula's indices when the equations are written.
Indices: TypeAlias = tuple[ir.Index, ...]
Factors: TypeAlias = tuple[ir.Access, ...]
Terms: TypeAlias = dict[Factors, Fraction]
Sum: TypeAlias = tuple[ir.Access, Terms]  # the left side, and the products with their numbers
Group: TypeAlias = tuple[ir.Access, Indices]  # a common factor, and the free indices of the rest


def find_places(access: ir.Access) -> Indices:
    """The positions of an access, all of which are indices."""
    return access.places  # type: ignore[return-value]


def list_indices(factors: Iterable[ir.Access]) -> Indices:
    """The indices of factors, in order."""
    return tuple(dict.fromkeys(index for factor in factors for index in find_places(factor)))


def rename_factors(factors: Iterable[ir.Access], new: Mapping[ir.Index, ir.Index]) -> Factors:
    """The factors with renamed indices."""
    named = ((f.tensor, tuple(new.get(i, i) for i in find_places(f))) for f in factors)
    return tuple(ir.Access(tensor, places) for tensor, places in named)


@lru_cache(maxsize=1 << 16)
def normalize_factors(factors: Factors, kept: frozenset[ir.Index]) -> tuple[Factors, Indices]:
    """(the factors in canonical order, with new names for all indices but `kept`; the old names).

    Colour refinement tells indices apart by position; of alike ones, any may come first.
    """
    marks: dict[ir.Index, tuple[Any, ...]] = {
        i: (i in kept, to_text(i.extent), i.name if i in kept else "")
        for i in list_indices(factors)
    }
    while True:
        order = {mark: k for k, mark in enumerate(sorted({*marks.values()}))}
        colours = {index: order[mark] for index, mark in marks.items()}
        seen: dict[ir.Index, list[tuple[Any, ...]]] = {index: [] for index in colours}
        for factor in factors:
            outline = (factor.tensor.name, *(colours[i] for i in find_places(factor)))
            for k, index in enumerate(find_places(factor)):
                seen[index].append((k, *outline))
        marks = {i: (colour, *sorted(seen[i])) for i, colour in colours.items()}
        if len({*marks.values()}) > len(order):
            continue
        first = {colour: index for index, colour in reversed(colours.items())}
        alike = [c for i, c in colours.items() if i not in kept and first[c] is not i]
        if not alike:
            break
        chosen = first[min(alike)]
        marks = {index: (colour, index is not chosen) for index, colour in colours.items()}
    ranked = sorted((i for i in colours if i not in kept), key=colours.__getitem__)
    new = {index: ir.Index(f"#{k}", index.extent) for k, index in enumerate(ranked)}

    def rank(factor: ir.Access) -> tuple[str, list[int]]:
        return factor.tensor.name, [colours[index] for index in find_places(factor)]

    return rename_factors(sorted(factors, key=rank), new), tuple(ranked)


def outline_sum(whole: Sum, scale: Fraction) -> tuple[Factors, Indices]:
    """A sum divided by a number, written as one product, in canonical form; equal sums get one.

    All factors of a term share an index of their own. Its number is a tensor at that index twice.
    """
    target, terms = whole
    marked = ir.Tensor("free", ())
    rows: list[ir.Access] = [ir.Access(marked, (i, i)) for i in target.places]
    for k, (factors, number) in enumerate(terms.items()):
        row = ir.Index(f"row {k}", ir.ONE)
        others = (i for i in list_indices(factors) if i not in target.places)
        new = {i: ir.Index(f"{i.name} {k}", i.extent) for i in others}
        rows.append(ir.Access(ir.Tensor(f"{number / scale}", ()), (row, row)))
        rows += [ir.Access(f.tensor, (*f.places, row)) for f in rename_factors(factors, new)]
    return normalize_factors(tuple(rows), frozenset())


@dataclass
class Factoring:
    """The factoring of a system's sums; `parts` are the sums that were given a name so far."""

    memory: Storage
    names: Names
    parts: list[Sum] = field(default_factory=list)
    # By canonical form: the part, the number by which it was divided, and its indices in order.
    forms: dict[Factors, tuple[ir.Access, Fraction, Indices]] = field(default_factory=dict)
    costs: dict[tuple[Factors, frozenset[ir.Expr]], int] = field(default_factory=dict)

    def find_cost(self, factors: Factors, free: Iterable[ir.Expr]) -> int:
        """The operations of a product summed, in its best contraction order."""
        indices = list_indices(factors)
        key = factors, frozenset(free).intersection(indices)
        if len(factors) > 1 and key not in self.costs:
            inputs = [find_places(factor) for factor in factors]
            output = [i for i in indices if i in key[1]]
            extents = {i: self.memory.extent(i) for i in indices}
            path = find_path(inputs, output, extents)
            self.costs[key] = count_operations(path, inputs, output, extents)
        return self.costs.get(key, 0)

    def count_all(self, sums: Iterable[Sum]) -> int:
        """The operations of sums of products; equal products are computed once."""
        costs = {
            normalize_factors(factors, frozenset())[0]: self.find_cost(factors, target.places)
            for target, terms in sums
            for factors in terms
        }
        return sum(costs.values())

    def split_factors(self, factors: Factors, target: ir.Access) -> Iterator[tuple[Group, Factors]]:
        """Yield (group, the other factors) for each way to split off one factor."""
        free = find_places(target)
        for k, factor in enumerate(factors):
            rest = factors[:k] + factors[k + 1 :]
            inner = [i for i in list_indices([factor]) if i not in free]
            if rest and {*inner} <= {*list_indices(rest)}:
                numbers = (n for n in count() if all(i.name != f"@{n}" for i in free))
                shared = {i: ir.Index(f"@{n}", i.extent) for i, n in zip(inner, numbers)}  # noqa: B905
                left, *named = rename_factors((factor, *rest), shared)
                kept = [i for i in list_indices(named) if i in free or i in shared.values()]
                kept.sort(key=lambda i: i.name)
                yield (left, tuple(kept)), normalize_factors(tuple(named), frozenset(kept))[0]

    def factor_sum(self, whole: Sum) -> Sum:
        """The sum, with common factors times new parts."""
        target, terms = whole
        left, free, size = dict(terms), {*target.places}, self.memory.count(find_places(target))
        split: dict[Factors, list[tuple[Group, Factors, int]]] = {}

        def find_splits(factors: Factors) -> list[tuple[Group, Factors, int]]:
            """Triples (a group that a product may join, its rest there, the operations saved)."""
            if factors not in split:
                most = self.find_cost(factors, free) + size
                rests = self.split_factors(factors, target)
                gains = (
                    (g, rest, most - self.find_cost(rest, g[1]) - self.memory.count(g[1]))
                    for g, rest in rests
                )
                split[factors] = [each for each in gains if each[-1] > 0]
            return split[factors]

        while True:
            groups: dict[Group, dict[Factors, tuple[Factors, int]]] = defaultdict(dict)
            for factors in left:
                for group, rest, gain in find_splits(factors):
                    groups[group].setdefault(factors, (rest, gain))

            def rank(group: Group) -> tuple[Any, ...]:
                (factor, own), members = group, groups[group].values()  # noqa: B023
                spanned = {*find_places(factor), *own}
                extra = self.memory.count(spanned) * (1 if spanned <= free else 2)
                saved = sum(gain for _, gain in members) + self.memory.count(own) - size - extra
                return saved, factor.tensor.name, to_text(factor), [i.name for i in own]

            several = [group for group, members in groups.items() if len(members) > 1]
            best = max(several, key=rank, default=None)
            if best is None or rank(best)[0] <= 0:
                return target, left
            inner: Terms = {}
            for factors, (rest, _) in groups[best].items():
                inner[rest] = inner.get(rest, Fraction(0)) + left.pop(factors)
            number, part = self.make_part(best[1], inner)
            product, _ = normalize_factors((best[0], part), frozenset(free))
            left[product] = left.get(product, Fraction(0)) + number

    def make_part(self, free: Indices, terms: Terms) -> tuple[Fraction, ir.Access]:
        """A number and a part, new or known, whose product is the sum of the terms."""
        target = ir.name_axes("part", free)
        most = max(map(abs, terms.values())) or Fraction(1)
        for scale in (-most, most):
            form, order = outline_sum((target, terms), scale)
            if form in self.forms:
                known, its_scale, its_order = self.forms[form]
                new = dict(zip(its_order, order, strict=True))
                return scale / its_scale, rename_factors([known], new)[0]
        made = self.factor_sum((target, terms))
        target = ir.name_axes(self.names.take("part"), free)
        self.forms[form] = target, scale, order
        self.parts.append((target, made[1]))
        return Fraction(1), target


def factor_system(system: ir.System, sizes: Mapping[str, int]) -> ir.System | None:
    """The system with common factors taken out into parts; None if that saves nothing."""
    nonfinite, indices = find_nonfinite(system), find_all_indices(system)
    read = {equation: read_sum(equation, nonfinite) for equation in system.equations}
    sums = [found[0] for found in read.values() if found is not None]
    if sum(len(factors) > 1 for _, terms in sums for factors in terms) <= FEW:
        return None
    factoring = Factoring(Storage(sizes), Names.of(system))
    equations, made = list[ir.Equation](), list[Sum]()
    for equation, found in read.items():
        if found is None:
            equations.append(equation)
            continue
        done = len(factoring.parts)
        made.append(factoring.factor_sum(found[0]))
        parts = [write_sum(part, (), indices) for part in factoring.parts[done:]]
        equations += [*parts, write_sum(made[-1], found[1], indices)]
    if factoring.count_all([*made, *factoring.parts]) >= factoring.count_all(sums):
        return None
    return replace(system, equations=tuple(equations))


def read_sum(
    equation: ir.Equation, nonfinite: Collection[ir.Tensor]
) -> tuple[Sum, list[ir.Expr]] | None:
    """The equation as (sum of plain products, its other terms); None unless it is a sum."""
    target, value = equation.target, equation.value
    if not isinstance(value, ir.Add) or not all(isinstance(p, ir.Index) for p in target.places):
        return None
    free, terms, others = frozenset(find_places(target)), Terms(), list[ir.Expr]()
    for term in value.terms:
        chain = split_term(term)
        constants = [Polynomial.of(factor).constant for factor in chain.factors]
        number = prod(constant for constant in constants if constant is not None)
        left = [f for f, known in zip(chain.factors, constants, strict=True) if known is None]
        factors = tuple(f for f in left if isinstance(f, ir.Access) and _is_plain(f, nonfinite))
        own = {*list_indices(factors)}
        is_sum = chain.condition is ir.TRUE and free <= own and own - free == {*chain.bound}
        if factors and is_sum and len(factors) == len(left):
            product, _ = normalize_factors(factors, free)
            terms[product] = terms.get(product, Fraction(0)) + number
        else:
            others.append(term)
    return (target, {product: number for product, number in terms.items() if number}), others


def _is_plain(access: ir.Access, nonfinite: Collection[ir.Tensor]) -> bool:
    """Whether an access is one of finite real numbers, at indices."""
    is_finite = access.tensor.kind == "real" and access.tensor not in nonfinite
    return is_finite and all(isinstance(place, ir.Index) for place in access.places)


def name_indices(
    own: Indices, known: Mapping[ir.Index, ir.Index], indices: Sequence[ir.Index]
) -> dict[ir.Index, ir.Index]:
    """Each of `own` with an index of the formula: a known one, itself, or a free one."""
    found = {i: known.get(i, i) for i in own if i in known or i in indices}
    taken = {index.name for index in found.values()}
    for index in own:
        if index not in found:
            alike = [each for each in indices if each.extent is index.extent]
            made = next((each for each in alike if each.name not in taken), None)
            found[index] = made or rename_apart(alike[0], taken | {i.name for i in indices})
            taken.add(found[index].name)
    return found


def write_sum(whole: Sum, others: Sequence[ir.Expr], indices: Sequence[ir.Index]) -> ir.Equation:
    """An equation of `whole` plus `others`, with names from the formula's `indices`."""
    target, terms = whole
    names = name_indices(find_places(target), {}, indices)
    written = []
    for factors, number in terms.items():
        own = list_indices(factors)
        named = name_indices(own, names, indices)
        bound = tuple(named[index] for index in own if index not in names)
        written.append(Term(number, bound, ir.TRUE, rename_factors(factors, named)))
    (left,) = rename_factors([target], names)
    return ir.Equation(left, ir.sum_of([*others, *ir.split_sum(to_sum(written))]))
