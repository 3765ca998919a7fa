"""Samples: the sizes and the seeded inputs at which code is judged.

    samples      distinct sizes that satisfy the relations stated by the code, and seeded inputs
    sizes        each 1 in turn, each two equal in turn, around each whole number of the code,
                 beyond each condition under which code was lifted, each far larger than the others
    inputs       zeros, equal, whole and large numbers, the ends of a domain, every second row
                 alike; around each number of code and formula, and scaled so that parts of the
                 formula reach it

The number of samples is bounded in steps and elements, never in time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, islice, product
from math import prod
from typing import Any, TypeAlias

from derive.checker.relations import Relations, set_sizes
from derive.frontend.torch.numbers import Condition
from derive.ir import functions, polynomial
from derive.ir import nodes as ir
from derive.ir.walk import walk
from derive.judge import samples as draws
from derive.judge.evaluate import Evaluator, evaluate_system
from derive.libraries import torch

Values = dict[str, Any]

FACTORS = ((3, 2, 4, 5), (2, 4, 3, 5), (1, 5, 2, 3))  # factors of merged sizes, by sample
COUNT = 3  # samples; the second has a size 1 where the code runs
_SCALARS = (1.5, 0.75, 1.25, 0.625, 2.5)  # small fractions, exact in fields


@dataclass(frozen=True)
class Sample:
    """Sizes and seeded inputs.

    `change` alters the drawn inputs; `reason` names the special property of the sample.
    """

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
    is_remark: bool = False  # whether a difference is only a finding

    @property
    def is_ordinary(self) -> bool:
        """Whether the inputs are drawn ones, at any sizes."""
        return self.change is None or not self.reason

    def resize(self, **sizes: int) -> Sample | None:
        """The sample at other sizes; None for fixed, dependent or impossible ones."""
        if any(name in self.fixed or name in dict(self.relations) for name in sizes):
            return None
        moved = set_sizes({**self.sizes, **sizes}, self.relations)
        return replace(self, sizes=moved) if draws.is_possible(self.system, moved) else None

    def make_inputs(self, *, empty_row: bool = False) -> dict[str, Any]:
        """The formula's inputs by name, fresh tensors at every call."""
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
        """The formula's results on these inputs, by name."""
        found = evaluate_system(self.system, values, self.sizes, is_regular=is_regular)
        return {tensor.name: found[tensor.name] for tensor in self.system.results}

    def describe(self) -> str:
        """The sample in words: its reason, its sizes and drawn scalars."""
        names = [s.name for s in self.system.scalars if s.name not in self.defaulted]
        values = self.make_inputs() if names else {}
        drawn = {name: f"{values[name]:g}" for name in names if isinstance(values[name], float)}
        at = f"at {show_sizes({**self.sizes, **drawn})}" if self.sizes or drawn else ""
        return ", ".join(filter(None, (self.reason, at)))


def show_sizes(sizes: Mapping[str, object], between: str = "") -> str:
    """Sizes as text: D=2 N=3."""
    return f"{between} ".join(f"{name}={size}" for name, size in sizes.items())


@dataclass(frozen=True)
class Samples:
    """The first sample; the others are made on demand."""

    first: Sample
    make_others: Callable[[], list[Sample]]
    told: frozenset[str] = frozenset()  # sizes that cannot vary


def make_samples(
    system: ir.System, fixed: Mapping[str, int], relations: Relations = ()
) -> Samples | None:
    """Samples at free sizes except the fixed and related; None where impossible."""
    dependent = {name for name, _ in relations}
    merged = (n for _, made in relations if len(made) > 1 for n in made if isinstance(n, str))
    roots = [n for n in dict.fromkeys(merged) if n not in dependent and n not in fixed]

    def make_sample(number: int) -> Sample:
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
        return Sample(system, set_sizes(free, relations), number, fixed=fixed, relations=relations)

    first = make_sample(0)
    if not draws.is_possible(system, first.sizes):
        return None

    def make_others() -> list[Sample]:
        return [d for d in map(make_sample, range(1, COUNT)) if draws.is_possible(system, d.sizes)]

    equal = (str(n) for name, made in relations if len(made) == 1 for n in (name, *made))
    return Samples(first, make_others, frozenset((*fixed, *equal)))


MOST_SIZES = 80  # samples at other sizes
MOST_ELEMENTS = 500_000  # elements that the formula computes at one sample
MOST_TOGETHER = 5_000_000  # elements at all samples
_EVERY, _DOUBLINGS = 130, 12  # sizes tried one by one, then by doubling
_LEAST = 2  # largest number of a formula that every sample exceeds
_FARTHEST = 1 << 14  # longest index to try
_MOST_PLACED = 1 << 24  # points at which one condition is evaluated
_FAR = (71, 303, 5003)  # sizes always tried, if cheap
_BESIDE = 4  # smallest sizes to try, since code may depend on remainders


def find_ends(sample: Sample, entry: ir.Tensor) -> tuple[int, int]:
    """The least and the largest integer that a tensor may hold."""
    domain = draws.find_domain(entry, sample.sizes)
    low = -1000 if domain.low is None else int(domain.low)
    return low, 1000 if domain.high is None else max(int(domain.high), low)


def place_values(
    pool: Callable[[Sample, ir.Tensor], list[float]], turn: int, sample: Sample, values: Values
) -> Values:
    """The inputs with the values of a pool at random places of each tensor."""
    generator = torch.Generator().manual_seed(sample.seed + turn)
    for entry in list_tensors(sample.system, "real", "int"):
        if found := pool(sample, entry):
            value = values[entry.name]
            count = value.numel()
            places = torch.randperm(count, generator=generator)[: len(found)]
            chosen = [found[(turn * count + k) % len(found)] for k in range(len(places))]
            flat = value.reshape(-1).clone()
            flat[places] = torch.tensor(chosen, dtype=value.dtype)
            values[entry.name] = flat.reshape(value.shape)
    return values


def vary_sizes(sample: Sample, numbers: Sequence[float]) -> Iterator[Sample]:
    """Samples at other sizes, the cheapest kinds first."""
    left = MOST_TOGETHER
    seen = [dict(sample.sizes)]
    for changed, reason in islice(_list_sizes(sample, numbers), 4 * MOST_SIZES):
        varied = sample.resize(**changed)
        if varied is None or dict(varied.sizes) in seen or len(seen) > MOST_SIZES:
            continue
        work = count(varied)
        if work <= min(left, MOST_ELEMENTS):
            left -= work
            seen.append(dict(varied.sizes))
            yield replace(varied, reason=reason, is_limit="of the code" in reason)


def pass_limits(sample: Sample, *, has_loops: bool) -> dict[str, list[Sample]]:
    """For each size, samples at which it is far larger than the others, nearest first."""
    every = {
        name: [lengthen(sample, name, far) for far in _FAR[: -1 if has_loops else None]]
        for name in find_free_sizes(sample)
    }
    return {
        name: [f for f in fars if f and count(f) <= MOST_ELEMENTS] for name, fars in every.items()
    }


def lengthen(sample: Sample, name: str, size: int) -> Sample | None:
    """The sample with one size far larger than the others, which are small if possible."""
    free = find_free_sizes(sample)
    small = {other: min(sample.sizes[other], 2 + k % 2) for k, other in enumerate(free)}
    tries = (sample.resize(**{**rest, name: size}) for rest in (small, {}))
    far = next((each for each in tries if each is not None), None)
    if far is None:
        return None

    def find_pool(sample: Sample, entry: ir.Tensor) -> list[float]:
        return list(find_ends(sample, entry)) if entry.kind == "int" else []

    change = partial(place_values, find_pool, 0) if list_tensors(sample.system, "int") else None
    return replace(far, change=change, reason=f"{name} is {size}", is_limit=True)


def find_free_sizes(sample: Sample) -> list[str]:
    """The sizes that are neither fixed nor dependent."""
    return [name for name in sample.sizes if name not in {*sample.fixed, *dict(sample.relations)}]


def pass_bounds(sample: Sample, most: int = MOST_ELEMENTS) -> tuple[list[Sample], list[int]]:
    """Samples whose indices exceed numbers of the formula, and the numbers not exceeded."""
    found: dict[tuple[int, ...], Sample] = {}
    missed: dict[int, None] = {}
    for part in list_parts(sample.system):
        inside = list(walk(part)) if isinstance(part, (ir.Compare, ir.Call)) else []
        told = [abs(n.value) for n in inside if isinstance(n, ir.Number) and abs(n.value) > _LEAST]
        extents = (each for i in inside if isinstance(i, ir.Index) for each in walk(i.extent))
        names = dict.fromkeys(each.name for each in extents if isinstance(each, ir.Size))
        if not told or not names or any(isinstance(each, ir.Access) for each in inside):
            continue
        if names.keys() <= {*sample.fixed} or _is_beyond(part, sample):
            continue
        far = int(max(told))
        lengths = dict.fromkeys((far + 3, 2 * far + 3, min(int(prod(told)), _FARTHEST) + 2))
        small = {name: min(size, 2) for name, size in sample.sizes.items() if name not in names}
        tries = (
            sample.resize(**{n: size for n, size in given.items() if sample.resize(**{n: size})})
            for length in lengths
            for given in (small | dict.fromkeys(names, length), dict.fromkeys(names, length))
        )
        fits = (each for each in tries if each is not None and count(each) <= most)
        beyond = next((each for each in fits if _is_beyond(part, each)), None)
        if beyond is None:
            missed[far] = None
        else:
            reason = f"beyond the {far:g} of the formula"
            found.setdefault((*beyond.sizes.values(),), replace(beyond, reason=reason))
    return list(found.values())[:MOST_SIZES], list(missed)


def _is_beyond(part: ir.Expr, sample: Sample) -> bool:
    """Whether a condition on indices takes both values, or an index exceeds a call's numbers."""
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
    sample: Sample, path: Sequence[Condition]
) -> Iterator[tuple[Condition, Sample]]:
    """Yield samples at which a condition fails and those before it hold."""
    sizes = (*range(1, _EVERY), *(_EVERY << k for k in range(_DOUBLINGS)))

    def holds(condition: Condition, **size: int) -> bool:
        """Whether the condition holds at another size; True where unknown."""
        try:
            return condition.holds({**sample.sizes, **size})
        except (KeyError, ZeroDivisionError):
            return True

    for k, condition in enumerate(path):
        for name in condition.sizes:
            fitting = (
                {name: n}
                for n in sizes
                if not holds(condition, **{name: n})
                and all(holds(each, **{name: n}) for each in path[:k])
            )
            varied = (sample.resize(**each) for each in fitting)
            found = (each for each in varied if each is not None and count(each) <= MOST_ELEMENTS)
            first = list(islice(found, _BESIDE))
            twice = (each for each in found if each.sizes[name] >= 2 * first[0].sizes[name])
            for each in (*first, *islice(twice, 1)):
                other = replace(each, reason=f"where not {condition}", is_limit=True)
                yield condition, other


def count(sample: Sample) -> int:
    """The number of elements computed at a sample."""
    return int(max(draws.count_work(sample.system, sample.sizes), prod(sample.sizes.values())))


def _list_sizes(sample: Sample, numbers: Sequence[float]) -> Iterator[tuple[dict[str, int], str]]:
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
    tensors = list_tensors(sample.system)
    inside = [{getattr(p, "name", "") for x in e.shape for p in walk(x)} for e in tensors]
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
    """Every node of every equation's value."""
    return [part for each in system.equations for part in walk(each.value)]


def list_tensors(system: ir.System, *kinds: str) -> list[ir.Tensor]:
    """The input tensors of a formula, of some kinds if any are named."""
    return [tensor for tensor in system.tensors if not kinds or tensor.kind in kinds]


def evaluate_parts(sample: Sample) -> Iterator[tuple[ir.Expr, Evaluator]]:
    """Every node of the formula, with an evaluator at the sample's inputs."""
    evaluator = Evaluator(sample.make_inputs(), sample.sizes, sample.system.empty_row)
    for equation in sample.system.equations:
        evaluator.define(equation)
    return ((part, evaluator) for part in list_parts(sample.system))


# Special inputs.

Way: TypeAlias = Callable[[Any], Any]  # a function of a tensor's entries
Change: TypeAlias = Callable[[Sample, dict[str, Any]], dict[str, Any]]  # of inputs
SCALES = (20.0, 1e3, 1e6)  # factors of the inputs at which clamps and caps take effect
MOST_NUMBERS = 16  # numbers of code and formula to try
MOST_ALIKE = 80  # samples with tensors of zeros, equal entries or one sign
MOST_PLACES = 6  # samples that spread a pool of values over small tensors
MOST_FACTORS = 4  # factors with which parts of the formula reach a number
_NEAR = 1e-6  # relative distance of numbers just below and above
_ALTERNATIONS = 4  # repeats of two integers in a tensor
_LEAST_FLOAT = 1e-37  # about the least positive normal float32
_STEPWISE = {"floor", "ceiling", "mod", "floordiv"}


def vary_inputs(samples: Sequence[Sample], numbers: Sequence[float]) -> Iterator[Sample]:
    """Yield samples with special inputs; `numbers` are those of the code."""
    first, system = samples[0], samples[0].system
    # Whether rounding decides the side of a jump at special inputs.
    inside = [part for step in _find_steps(system) for part in walk(step)]
    if any(isinstance(part, ir.Access) and part.tensor not in system.inputs for part in inside):
        inside = list_parts(system)
    is_stepwise = any(_is_rounded(part) for part in inside)
    if _find_steps(system) and not is_stepwise:
        own = (abs(n) for n in (*numbers, *find_numbers(system)) if abs(math.frexp(n)[0]) == 0.5)
        pool = partial(_find_ties, sorted({1.0, *own})[:MOST_NUMBERS])
        yield from _spread(first, pool, "inputs with halves, quarters")
    for sample in samples if not is_stepwise else ():
        yield _make_whole(sample, "inputs that are whole numbers")
        for number, what in ((0.0, "0"), (1.0, "equal")):
            yield replace(sample, change=_fill(number), reason=f"inputs that are all {what}")
    yield from (scale(first, factor) for factor in SCALES)
    for (sign, what), sample in product(((-1, "negative"), (1, "positive")), samples):
        reason = f"inputs that are all {what}"
        yield replace(sample, change=set_signs(sign, 0.0), reason=reason)
    if not is_stepwise:
        zeros = alter("real", _zero_slice)
        yield replace(first, change=zeros, reason="a slice of zeros in every input")
        yield from _spread(first, _find_edges, "inputs at the ends of their domains and 0")
        for tiny in _spread(first, _find_tiny, "inputs above 0 that float32 does not hold"):
            yield replace(tiny, is_remark=True)
    else:
        yield _make_whole(first, "inputs of which every two are equal", is_paired=True)
    for end, what in ((0, "smallest"), (1, "largest")) if list_tensors(system, "int") else ():
        yield replace(first, change=partial(_set_ends, end), reason=f"integers at their {what}")
    truths = (True, False)[: 1 if _has_rows(system) else 2]
    for sample, truth in product(samples, truths) if list_tensors(system, "bool") else ():
        reason = f"truth values that are all {str(truth).lower()}"
        yield replace(sample, change=_set_truth(truth), reason=reason)
    yield from _make_alike(first)
    yield from _vary_scalars(first, numbers)
    for number in select_numbers((*numbers, *find_numbers(system))):
        if not is_stepwise:
            reason = f"inputs at and around {number:g}"
            yield from _spread(first, partial(_surround, number), reason)
        for sign, what in ((-1, "below"), (1, "above")):
            reason = f"inputs all {what} {sign * abs(number):g}"
            yield replace(first, change=set_signs(sign, abs(number)), reason=reason)
        for factor in _find_factors(first, number) if abs(number) >= _NEAR else ():
            yield scale(first, factor, within=True)


def _vary_scalars(sample: Sample, numbers: Sequence[float]) -> Iterator[Sample]:
    """Yield samples with one scalar at 0, 1, small, large, and at the numbers, of either sign."""
    told = select_numbers((*numbers, *find_numbers(sample.system)))
    near = [each for n in told for each in (n, 1.5 * n + 0.375)]
    values = dict.fromkeys((0.0, 1.0, -1.0, -0.375, _NEAR, 1 / _NEAR, *near, *(-n for n in near)))
    entries = (e for e in sample.system.scalars if e.name not in sample.defaulted)
    for entry, value in product(entries, values):
        name = entry.name
        if not draws.find_domain(entry, sample.sizes).holds(value):
            continue
        change = partial(lambda own, _, values: values | own, {name: value})
        yield replace(sample, change=change, reason=f"{name} = {value:g}", is_limit=True)


def scale(sample: Sample, factor: float, *, within: bool = False, more: float = 0) -> Sample:
    """The sample with real inputs without a domain scaled by `factor`, plus `more`.

    With `within`, inputs whose domain contains the scaled values are scaled too.
    """

    def act(_: ir.Tensor, domain: draws.Domain, value: Any) -> Any:
        ends = (value * factor).aminmax() if within and value.numel() else ()
        is_held = bool(ends) and all(domain.holds(float(end)) for end in ends)
        return value * factor + more if domain.is_everything or is_held else value

    reason = f"inputs with {more:g} added" if more else f"inputs {factor:g} times as large"
    is_same = factor == 1 and not more
    return sample if is_same else replace(sample, change=alter("real", act), reason=reason)


def select_numbers(numbers: Iterable[float]) -> list[float]:
    """The numbers to try, without 0, 1 and 2, which other samples cover."""
    kept = dict.fromkeys(n for n in numbers if _LEAST_FLOAT <= abs(n) <= 1 / _NEAR**2)
    return [n for n in kept if n not in {-2, -1, 1, 2}][:MOST_NUMBERS]


def _find_steps(system: ir.System) -> list[ir.Expr]:
    """The discontinuous nodes: argmax and the like, and floor and the like."""
    return [
        part
        for part in list_parts(system)
        if (isinstance(part, ir.Reduce) and part.kind.startswith("arg"))
        or (isinstance(part, ir.Call) and part.function in _STEPWISE)
    ]


def _is_rounded(part: ir.Expr) -> bool:
    """Whether the node's value at small whole numbers may be rounded."""
    match part:
        case ir.Number(value):
            return value.denominator & (value.denominator - 1) != 0
        case ir.Call(function, _):
            return function not in {*_STEPWISE, "abs", "max", "min", "relu", "sign", "clip"}
        case ir.Reduce(kind) | ir.Along(kind):
            return bool(functions.ROWS[kind].definition) or functions.ROWS[kind].is_matrix
        case ir.Pow(ir.Number(base), ir.Number()) if abs(math.frexp(base)[0]) == 0.5:
            return False
        case ir.Pow(_, exponent):
            return not isinstance(exponent, ir.Number) or exponent.value < 0
    return False


def _has_rows(system: ir.System) -> bool:
    """Whether rows leave out entries; empty rows are a finding beside the verdict."""
    parts = list_parts(system)
    left = (part.condition for part in parts if isinstance(part, (ir.Along, ir.Reduce)))
    return any(each != ir.TRUE for each in left) or any(isinstance(p, ir.Infinity) for p in parts)


def alter(kind: str, act: Callable[[ir.Tensor, draws.Domain, Any], Any]) -> Change:
    """The change that applies a function to each tensor of a kind."""

    def change(sample: Sample, values: Values) -> Values:
        for entry in list_tensors(sample.system, kind):
            values[entry.name] = act(
                entry, draws.find_domain(entry, sample.sizes), values[entry.name]
            )
        return values

    return change


def _make_whole(sample: Sample, reason: str, *, is_paired: bool = False) -> Sample:
    """The sample with small whole numbers in each domain, so with zeros and equal values."""
    most, fewest = (40, 3) if is_paired else (2, 1)
    generator = torch.Generator()

    def act(_: ir.Tensor, domain: draws.Domain, value: Any) -> Any:
        pool = [n for n in range(-most, most + 1) if domain.holds(n)]
        if len(pool) < fewest:
            return value
        places = torch.randint(len(pool), value.shape, generator=generator)
        made = torch.tensor(pool, dtype=value.dtype)[places]
        for axis, extent in enumerate(value.shape if is_paired else ()):
            made = made.index_select(axis, torch.arange(extent) // 2 * 2)
        return made

    def change(sample: Sample, values: Values) -> Values:
        generator.manual_seed(sample.seed)
        return alter("real", act)(sample, values)

    return replace(sample, change=change, reason=reason)


def _fill(number: float) -> Change:
    """The change that fills every real input with a number in its domain."""
    return alter("real", lambda _, domain, v: v * 0 + number if domain.holds(number) else v)


def set_signs(signs: Mapping[str, int] | int, least: float) -> Change:
    """The change that gives tensors without a domain one sign and a least distance from 0."""

    def act(entry: ir.Tensor, domain: draws.Domain, value: Any) -> Any:
        sign = signs if isinstance(signs, int) else signs[entry.name]
        beyond = least * (1.5 + value.abs()) if least else value.abs()
        return sign * beyond if domain.is_everything else value

    return alter("real", act)


def _zero_slice(_: ir.Tensor, domain: draws.Domain, value: Any) -> Any:
    if domain.holds(0):
        value[slice(1) if value.dim() else ...] = 0
    return value


def _set_ends(end: int, sample: Sample, values: Values) -> Values:
    """The inputs with every integer at one end of its range."""
    return alter("int", lambda entry, _, v: v * 0 + find_ends(sample, entry)[end])(sample, values)


def _set_truth(truth: bool) -> Change:
    return alter("bool", lambda _, __, value: (value & False) | truth)


def _make_alike(sample: Sample) -> Iterator[Sample]:
    """Yield samples with uniform entries in one tensor, or in every second row of tensors."""
    reals, masks = ([e.name for e in list_tensors(sample.system, k)] for k in ("real", "bool"))
    ways: dict[str, Way] = {
        "zeros": lambda value: value * 0,
        "equal": lambda value: value * 0 + 1.5,
        "negative": lambda value: -value.abs() - _NEAR,
        "positive": lambda value: value.abs() + _NEAR,
        "false": lambda value: value & False,
    }
    plan: list[tuple[dict[str, str], int]] = []
    if len(reals) > 1:
        plan += [({name: way}, 1) for name in reals for way in ("zeros", "equal", "negative")]
        for turn in (("negative", "positive"), ("positive", "negative")):
            plan.append(({name: turn[k % 2] for k, name in enumerate(reals)}, 1))
    plan += [(dict.fromkeys(reals, "zeros"), 2)] if reals else []
    if not _has_rows(sample.system):
        plan += [({name: "false"}, step) for name in masks for step in (1, 2)]
    for given, step in plan[:MOST_ALIKE]:
        words = " and ".join(dict.fromkeys(given.values()))
        whose = f"{', '.join(given)} all" if step == 1 else "every second row"
        change = partial(_change_alike, {name: ways[way] for name, way in given.items()}, step)
        yield replace(sample, change=change, reason=f"inputs with {whose} {words}", is_defined=True)


def _change_alike(ways: Mapping[str, Way], step: int, sample: Sample, values: Values) -> Values:
    """The inputs with tensors, or every `step`-th row, changed within their domains."""
    found = dict(values)
    for entry in (each for each in list_tensors(sample.system) if each.name in ways):
        value, domain = values[entry.name], draws.find_domain(entry, sample.sizes)
        made = ways[entry.name](value)
        if made.numel() and domain.holds(float(made.min())) and domain.holds(float(made.max())):
            found[entry.name] = made
            if step > 1 and value.dim():
                found[entry.name] = value.clone()
                found[entry.name][::step] = made[::step]
    return found


def _spread(
    sample: Sample, pool: Callable[[Sample, ir.Tensor], list[float]], reason: str
) -> Iterator[Sample]:
    """Yield samples in which each tensor has the values of its pool somewhere."""
    tensors = list_tensors(sample.system, "real", "int")
    if not any(pool(sample, entry) for entry in tensors):
        return
    values = sample.make_inputs()
    turns = max(-(-len(pool(sample, e)) // max(1, values[e.name].numel())) for e in tensors)
    for turn in range(min(turns, MOST_PLACES)):
        yield replace(sample, change=partial(place_values, pool, turn), reason=reason)


def _find_edges(sample: Sample, entry: ir.Tensor) -> list[float]:
    """The ends of a domain and numbers near them; large values and 0 without ends."""
    if entry.kind == "int":
        return list(find_ends(sample, entry))
    domain = draws.find_domain(entry, sample.sizes)
    low, high = domain.low, domain.high
    steps = [0.0, _LEAST_FLOAT, 1e-20, 1e-12, _NEAR, 1e-4, 1e-2]
    far = [1.0, 1e2, 1e4, 1 / _NEAR]
    pool = [low + step for step in steps] if low is not None else []
    pool += [high - step for step in steps] if high is not None else []
    pool += [(low or 0.0) + step for step in far] if high is None else []
    pool += [(high or 0.0) - step for step in far] if low is None else []
    pool += [0.0, 0.0, 1.0, _NEAR, -_NEAR] if domain.is_everything else []
    return [value for value in pool if domain.holds(value)]


def _find_ties(factors: Sequence[float], sample: Sample, entry: ir.Tensor) -> list[float]:
    """Halves and quarters, also divided by each of some powers of 2."""
    parts = [k / 4 for n in (2, 1, 4) for k in range(-10, 11) if math.gcd(k, 4) == n]
    every = (part / factor for part in parts for factor in factors)
    domain = draws.find_domain(entry, sample.sizes)
    return [n for n in dict.fromkeys(every) if entry.kind == "real" and domain.holds(n)]


def _find_tiny(sample: Sample, entry: ir.Tensor) -> list[float]:
    """Positive numbers that underflow in float32, where a domain begins at 0."""
    is_above = entry.kind == "real" and draws.find_domain(entry, sample.sizes).low == 0
    return [1e-50, 1e-100, 1e-300] if is_above else []


def place_integers(sample: Sample, limit: float) -> Iterator[Sample]:
    """Yield the sample with integers about a limit, where the domain allows it."""

    def list_near(sample: Sample, entry: ir.Tensor) -> list[float]:
        domain = draws.find_domain(entry, sample.sizes)
        is_held = entry.kind == "int" and domain.holds(limit) and domain.holds(limit + 1)
        return [limit, limit + 1] * _ALTERNATIONS if is_held else []

    yield from islice(_spread(sample, list_near, f"integers about {limit:.0f}"), 1)


def _surround(number: float, sample: Sample, entry: ir.Tensor) -> list[float]:
    """A number and others just below, above and beyond it, within the domain."""
    pool = [number, number * (1 - _NEAR), number * (1 + _NEAR)]
    pool += [number - 1, number + 1, 2 * number, 10 * number, number / 2, -number]
    if entry.kind == "int":
        pool = [int(number) + step for step in (-1, 0, 1)] if number == int(number) else []
    return [value for value in pool if draws.find_domain(entry, sample.sizes).holds(value)]


def _find_factors(sample: Sample, number: float) -> list[float]:
    """Factors of the inputs with which parts of the formula reach a number."""
    half, one = (find_magnitudes(scale(sample, factor, within=True)) for factor in (0.5, 1.0))
    found: dict[int, float] = {}
    for there, here in zip(half, one, strict=True):
        if not (0 < here < math.inf and 0 < there < math.inf):
            continue
        degree = math.log2(here / there)
        if 0.2 < abs(degree) < 8:
            power = math.log10(1.5 * abs(number) / here) / degree
            if 0.3 < abs(power) < 6:
                found.setdefault(round(2 * power), 10**power)
    return sorted(found.values())[:MOST_FACTORS]


def find_magnitudes(sample: Sample) -> list[float]:
    """The largest absolute value of each part of the formula; 0 where unknown."""
    found = []
    for part, evaluator in evaluate_parts(sample):
        tensor = evaluator.recall(part)
        is_told = tensor is not None and tensor.is_floating_point() and tensor.numel()
        found.append(float(tensor.abs().max()) if is_told else 0.0)
    return found


def fill_whole(sample: Sample) -> Sample | None:
    """The sample with all booleans true and integers at their largest; None without them."""
    if not list_tensors(sample.system, "bool", "int"):
        return None
    reason = f"{sample.reason}, truth values and integers alike"
    return replace(
        sample, change=lambda s, v: _set_ends(1, s, _set_truth(True)(s, v)), reason=reason
    )
