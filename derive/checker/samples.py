"""Samples: the sizes and the seeded inputs at which code is judged.

    samples      distinct sizes that satisfy the relations stated by the code, and seeded inputs
    sizes        each 1 in turn, each two equal in turn, around each whole number of the code,
                 beyond each condition under which code was lifted, each far larger than the others

Special inputs are made in judge/inputs. The number of samples is bounded in steps and elements,
never in time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import combinations, islice, product
from math import prod
from typing import Any, TypeAlias

from derive.checker.relations import Relations, set_sizes
from derive.ir import nodes as ir
from derive.ir import polynomial
from derive.ir.pieces import to_text
from derive.ir.recurrences import find_recurrences
from derive.ir.walk import find_size_names, walk
from derive.judge import samples as draws
from derive.judge.compare import write_sizes
from derive.judge.evaluate import Evaluator, evaluate_system
from derive.libraries import torch

Values = dict[str, Any]
Pool: TypeAlias = Callable[[draws.Domain, bool], list[float]]  # for reals, or for integers

FACTORS = ((3, 2, 4, 5), (2, 4, 3, 5), (1, 5, 2, 3))  # factors of merged sizes, by sample
COUNT = 3  # samples; the second has a size 1 where the code runs
_SCALARS = (1.5, 0.75, 1.25, 0.625, 2.5)  # small fractions, exact in fields


@dataclass(frozen=True)
class Sample:
    """Sizes and seeded inputs; `change` alters the drawn ones, `reason` says what is special."""

    system: ir.System
    sizes: Mapping[str, int]
    seed: int
    defaulted: tuple[str, ...] = ()  # scalars at their default, not taken by the code
    fixed: Mapping[str, int] = field(default_factory=dict)  # sizes that cannot vary
    relations: Relations = ()  # dependent sizes, E = H*D
    change: Callable[[Sample, dict[str, Any]], dict[str, Any]] | None = None
    reason: str = ""
    is_defined: bool = False  # whether it counts only where the formula is finite
    is_limit: bool = False  # whether its sizes are near a number that may be a limit of the code

    @property
    def is_ordinary(self) -> bool:
        """Whether the inputs are as drawn, without a special change."""
        return self.change is None or not self.reason

    @property
    def unvarying(self) -> frozenset[str]:
        """The sizes that cannot vary: the fixed ones, and those that equal another size."""
        equal = (str(n) for name, made in self.relations if len(made) == 1 for n in (name, *made))
        return frozenset((*self.fixed, *equal))

    def make_others(self) -> list[Sample]:
        """The further samples, up to COUNT - 1, at other sizes but the fixed and related ones."""
        numbers = range(1, COUNT)
        found = (make_sample(self.system, self.fixed, self.relations, n) for n in numbers)
        return [sample for sample in found if sample is not None]

    def resize(self, **sizes: int) -> Sample | None:
        """The sample at other sizes; None for fixed, dependent or impossible ones."""
        if any(name in self.fixed or name in dict(self.relations) for name in sizes):
            return None
        moved = set_sizes({**self.sizes, **sizes}, self.relations)
        return replace(self, sizes=moved) if draws.is_possible(self.system, moved) else None

    def make_inputs(self, *, empty_row: bool = False) -> dict[str, Any]:
        """Fresh inputs of the formula, by name; with `empty_row`, masks have an empty row."""
        values = draws.draw_inputs(self.system, self.sizes, self.seed, empty_row=empty_row)
        plain = draws.draw_inputs(self.system, self.sizes) if self.defaulted else {}
        values |= {name: plain[name] for name in self.defaulted}
        for name, value in () if empty_row else values.items():
            if getattr(value, "dtype", None) is torch.bool and 1 in value.shape:
                values[name] = torch.ones_like(value)  # otherwise a row would be empty
        for number, entry in enumerate(self.system.scalars):
            if entry.name not in self.defaulted and (entry.default is None or self.seed):
                turn = (number + self.seed) % len(_SCALARS)
                domain = draws.find_domain(entry, self.sizes)
                held = filter(domain.holds, (*_SCALARS[turn:], *_SCALARS[:turn]))
                values[entry.name] = next(held, values[entry.name])
        return values if self.change is None else self.change(self, values)

    def evaluate(self, values: Mapping[str, Any], *, is_regular: bool = False) -> dict[str, Any]:
        """The formula's results by name; with `is_regular`, a singular matrix is an error."""
        found = evaluate_system(self.system, values, self.sizes, is_regular=is_regular)
        return {tensor.name: found[tensor.name] for tensor in self.system.results}

    def describe(self) -> str:
        """The sample in words: its reason, its sizes and drawn scalars."""
        names = [s.name for s in self.system.scalars if s.name not in self.defaulted]
        values = self.make_inputs() if names else {}
        drawn = {name: f"{values[name]:g}" for name in names if isinstance(values[name], float)}
        at = f"at {write_sizes({**self.sizes, **drawn}, ' ')}" if self.sizes or drawn else ""
        return ", ".join(filter(None, (self.reason, at)))


def show_number(number: Fraction) -> str:
    """The number as Python writes it: `2`, `0.5`."""
    return str(number) if number.denominator == 1 else repr(float(number))


def make_sample(
    system: ir.System, fixed: Mapping[str, int], relations: Relations = (), number: int = 0
) -> Sample | None:
    """The sample `number`, at distinct sizes except the fixed and related; None if impossible."""
    dependent = {name for name, _ in relations}
    merged = (n for _, made in relations if len(made) > 1 for n in made if isinstance(n, str))
    roots = [n for n in dict.fromkeys(merged) if n not in dependent and n not in fixed]
    told = {**dict(zip(roots, FACTORS[number], strict=False)), **fixed}
    if roots:
        known = set_sizes({**dict.fromkeys(draws.find_sizes(system), 1), **told}, relations)
        told |= {
            name: known[name]
            for name, made in relations
            if all(isinstance(n, int) or n in told for n in made)
        }
        free = draws.choose_sizes(system, 1, seed=number, fixed=told)[0]
    else:
        free = draws.choose_sizes(system, number + 1, fixed=fixed)[number]
    sizes = set_sizes(free, relations)
    sample = Sample(system, sizes, number, fixed=fixed, relations=relations)
    return sample if draws.is_possible(system, sizes) else None


MOST_SIZES = 80  # samples at other sizes
MOST_ELEMENTS = 500_000  # elements that the formula computes at one sample
MOST_TOGETHER = 5_000_000  # elements at all samples
TURN = 300  # elements in the time of one turn of a recurrence, 0.3 to 0.7 ms
_EVERY, _DOUBLINGS = 130, 12  # sizes tried one by one, then by doubling
_LEAST = 2  # largest number of a formula that every sample exceeds
_FARTHEST = 1 << 14  # longest index to try
_MOST_PLACED = 1 << 24  # points at which one condition is evaluated
_FAR = (71, 303, 5003)  # sizes always tried, if cheap
_BESIDE = 4  # smallest sizes to try, since code may depend on remainders


def find_ends(domain: draws.Domain) -> tuple[int, int]:
    """The least and the largest integer of a domain; -1000, 1000 for a bound that it lacks."""
    low = -1000 if domain.low is None else int(domain.low)
    return low, 1000 if domain.high is None else max(int(domain.high), low)


def select_values(pool: Pool, sample: Sample, entry: ir.Tensor) -> list[float]:
    """The values of a pool that are in the domain of a tensor."""
    domain = draws.find_domain(entry, sample.sizes)
    return [value for value in pool(domain, entry.kind == "int") if domain.holds(value)]


def place_values(pool: Pool, turn: int, sample: Sample, values: Values) -> Values:
    """The inputs with values of a pool at random places; `turn` selects the part of the pool."""
    generator = torch.Generator().manual_seed(sample.seed + turn)
    for entry in list_tensors(sample.system, "real", "int"):
        if found := select_values(pool, sample, entry):
            value = values[entry.name]
            count = value.numel()
            places = torch.randperm(count, generator=generator)[: len(found)]
            chosen = [found[(turn * count + k) % len(found)] for k in range(len(places))]
            flat = value.reshape(-1).clone()
            flat[places] = torch.tensor(chosen, dtype=value.dtype)
            values[entry.name] = flat.reshape(value.shape)
    return values


def vary_sizes(sample: Sample, numbers: Sequence[float]) -> Iterator[Sample]:
    """Yield samples at other sizes, cheapest kinds first; `numbers` are those of the code."""
    left = MOST_TOGETHER
    seen = [dict(sample.sizes)]
    for changed, reason in islice(_list_sizes(sample, numbers), 4 * MOST_SIZES):
        varied = sample.resize(**changed)
        if varied is None or dict(varied.sizes) in seen or len(seen) > MOST_SIZES:
            continue
        work = count_elements(varied)
        if work <= min(left, MOST_ELEMENTS):
            left -= work
            seen.append(dict(varied.sizes))
            yield replace(varied, reason=reason, is_limit="of the code" in reason)


def list_far_samples(sample: Sample, *, has_loops: bool) -> dict[str, list[Sample]]:
    """For each size, samples at which it is far larger than the others, nearest first."""
    every = {
        name: [lengthen(sample, name, far) for far in _FAR[: -1 if has_loops else None]]
        for name in find_free_sizes(sample)
    }
    return {
        n: [f for f in fars if f and count_elements(f) <= MOST_ELEMENTS]
        for n, fars in every.items()
    }


def lengthen(sample: Sample, name: str, size: int) -> Sample | None:
    """The sample with one size far larger, the others small if possible; None if impossible."""
    free = find_free_sizes(sample)
    small = {other: min(sample.sizes[other], 2 + k % 2) for k, other in enumerate(free)}
    tries = (sample.resize(**{**rest, name: size}) for rest in (small, {}))
    far = next((each for each in tries if each is not None), None)
    if far is None:
        return None

    def find_pool(domain: draws.Domain, is_integer: bool) -> list[float]:
        return [*find_ends(domain)] if is_integer else []

    change = partial(place_values, find_pool, 0) if list_tensors(sample.system, "int") else None
    return replace(far, change=change, reason=f"{name} is {size}", is_limit=True)


def find_free_sizes(sample: Sample) -> list[str]:
    """The sizes that are neither fixed nor dependent."""
    return [name for name in sample.sizes if name not in {*sample.fixed, *dict(sample.relations)}]


def list_exceeding(sample: Sample, most: int = MOST_ELEMENTS) -> tuple[list[Sample], list[int]]:
    """The pair (samples whose indices pass numbers of conditions or calls, numbers none passes)."""
    found: dict[tuple[int, ...], Sample] = {}
    missed: dict[int, None] = {}
    for part in list_parts(sample.system):
        inside = list(walk(part)) if isinstance(part, (ir.Compare, ir.Call)) else []
        told = [abs(n.value) for n in inside if isinstance(n, ir.Number) and abs(n.value) > _LEAST]
        extents = (index.extent for index in inside if isinstance(index, ir.Index))
        names = find_size_names(*extents)
        if not told or not names or any(isinstance(each, ir.Access) for each in inside):
            continue
        if {*names} <= {*sample.fixed} or _is_beyond(part, sample):
            continue
        far = int(max(told))
        lengths = dict.fromkeys((far + 3, 2 * far + 3, min(int(prod(told)), _FARTHEST) + 2))
        small = {name: min(size, 2) for name, size in sample.sizes.items() if name not in names}
        tries = (
            sample.resize(**{n: size for n, size in given.items() if sample.resize(**{n: size})})
            for length in lengths
            for given in (small | dict.fromkeys(names, length), dict.fromkeys(names, length))
        )
        fits = (each for each in tries if each is not None and count_elements(each) <= most)
        beyond = next((each for each in fits if _is_beyond(part, each)), None)
        if beyond is None:
            missed[far] = None
        else:
            reason = f"beyond the {far:g} of the formula"
            found.setdefault((*beyond.sizes.values(),), replace(beyond, reason=reason))
    return list(found.values())[:MOST_SIZES], list(missed)


def _is_beyond(part: ir.Expr, sample: Sample) -> bool:
    """Whether a condition on indices is true and false, or an index exceeds a call's numbers."""
    inside = list(walk(part))
    indices = dict.fromkeys(each for each in inside if isinstance(each, ir.Index))
    lengths = [polynomial.evaluate_extent(index.extent, sample.sizes) for index in indices]
    if isinstance(part, ir.Call):
        return max(lengths) > max(abs(n.value) for n in inside if isinstance(n, ir.Number))
    if prod(lengths) > _MOST_PLACED:
        return False
    held = Evaluator({}, sample.sizes, sample.system.empty_row).condition(part).tensor
    return bool(held.any()) and not bool(held.all())


def find_other_sides(
    sample: Sample, path: Sequence[ir.Compare]
) -> Iterator[tuple[ir.Compare, Sample]]:
    """Yield pairs (condition, sample at which it fails and those before it in the path hold)."""
    sizes = (*range(1, _EVERY), *(_EVERY << k for k in range(_DOUBLINGS)))

    def holds(condition: ir.Compare, **size: int) -> bool:
        """Whether the condition holds at another size; True where unknown."""
        try:
            return polynomial.holds_at(condition, {**sample.sizes, **size})
        except (KeyError, ZeroDivisionError):
            return True

    for k, condition in enumerate(path):
        for name in find_size_names(condition):
            fitting = (
                {name: n}
                for n in sizes
                if not holds(condition, **{name: n})
                and all(holds(each, **{name: n}) for each in path[:k])
            )
            varied = (sample.resize(**each) for each in fitting)
            found = (e for e in varied if e is not None and count_elements(e) <= MOST_ELEMENTS)
            first = list(islice(found, _BESIDE))
            twice = (each for each in found if each.sizes[name] >= 2 * first[0].sizes[name])
            for each in (*first, *islice(twice, 1)):
                other = replace(each, reason=f"where not {to_text(condition)}", is_limit=True)
                yield condition, other


def count_elements(sample: Sample) -> int:
    """The number of elements computed at a sample; each turn of a recurrence counts as many."""
    work = draws.count_work(sample.system, sample.sizes)
    turns = sum(
        prod(polynomial.evaluate_extent(loop.index.extent, sample.sizes) for loop in each.loops)
        for each in find_recurrences(sample.system)
    )
    return int(max(work, prod(sample.sizes.values()), TURN * turns))


def _list_sizes(sample: Sample, numbers: Sequence[float]) -> Iterator[tuple[dict[str, int], str]]:
    """Yield pairs (sizes to change, reason such as "N is 1"), cheapest kinds first."""
    names = find_free_sizes(sample)
    for size, name in product((1, 2), names):
        yield {name: size}, f"{name} is {size}"
    for one, other in combinations(names, 2):
        yield {other: sample.sizes[one]}, f"{one} equals {other}"
    if len(names) > 2:
        yield dict.fromkeys(names, max(sample.sizes.values())), "all sizes are equal"
    every = [(n, "the formula") for n in find_numbers(sample.system)]
    every += [(n, "the code") for n in numbers]
    whole = ((abs(int(n)), w) for n, w in every if math.isfinite(n) and n == int(n) and abs(n) > 2)
    numbered = sorted(dict(whole).items())
    for (number, whose), name in product(numbered, names):
        shown = f"{name} is above the {number} of {whose}"
        yield {name: 2 * number + 1}, shown
        if len(names) > 1:
            yield (
                {**dict.fromkeys(names, 1), name: 2 * number + 1},
                f"{shown}, the other sizes are 1",
            )
    for (number, whose), name in product(numbered, names):
        for size in (number - 1, number, number + 1):
            yield {name: size}, f"{name} is {size}, for the {number} of {whose}"
    # Products that code may compare with a number: of two sizes, and of a tensor's sizes.
    inside = [find_size_names(*tensor.shape) for tensor in list_tensors(sample.system)]
    shapes = (tuple(name for name in names if name in own) for own in inside)
    products = [p for p in dict.fromkeys((*combinations(names, 2), *shapes)) if len(p) > 1]
    for (number, whose), others in product(numbered, products):
        for name in others:
            rest = prod(sample.sizes[other] for other in others if other != name)
            size = number // max(rest, 1) + 1
            if size > sample.sizes[name]:
                yield {name: size}, f"{' * '.join(others)} is above the {number} of {whose}"


def find_numbers(system: ir.System) -> list[float]:
    """The numbers of the formula."""
    return [float(part.value) for part in list_parts(system) if isinstance(part, ir.Number)]


def list_parts(system: ir.System) -> list[ir.Expr]:
    """Every node of every equation's value, outermost first."""
    return [part for each in system.equations for part in walk(each.value)]


def list_tensors(system: ir.System, *kinds: str) -> list[ir.Tensor]:
    """The input tensors of a formula, of some kinds if any are named."""
    return [tensor for tensor in system.tensors if not kinds or tensor.kind in kinds]


def evaluate_parts(sample: Sample) -> Iterator[tuple[ir.Expr, Evaluator]]:
    """Pairs (node of the formula, evaluator at the sample's inputs), for every node."""
    evaluator = Evaluator(sample.make_inputs(), sample.sizes, sample.system.empty_row)
    for equation in sample.system.equations:
        evaluator.define(equation)
    return ((part, evaluator) for part in list_parts(sample.system))
