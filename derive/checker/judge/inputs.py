"""Special inputs at which code is judged.

Zeros, equal, whole and large numbers, the ends of a domain, every second row alike; around each
number of code and formula, and scaled so that parts of the formula reach it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice, product
from typing import Any, TypeAlias

from derive.checker.samples import (
    Pool,
    Sample,
    Values,
    evaluate_parts,
    find_ends,
    find_numbers,
    list_parts,
    list_tensors,
    place_values,
    select_values,
)
from derive.ir import functions
from derive.ir import nodes as ir
from derive.ir.walk import walk
from derive.judge import samples as draws
from derive.libraries import torch

Act: TypeAlias = Callable[[draws.Domain, Any], Any]  # a tensor's new values
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
    flat: list[tuple[Change, str]] = [(_make_whole, "inputs that are whole numbers")]
    flat += [(_fill(n), f"inputs that are all {what}") for n, what in ((0.0, "0"), (1.0, "equal"))]
    for sample, (change, reason) in product(() if is_stepwise else samples, flat):
        yield replace(sample, change=change, reason=reason)
    yield from (scale(first, factor) for factor in SCALES)
    for (sign, what), sample in product(((-1, "negative"), (1, "positive")), samples):
        reason = f"inputs that are all {what}"
        yield replace(sample, change=set_signs(sign, 0.0), reason=reason)
    if not is_stepwise:
        zeros = alter({"*real": _zero_slice})
        yield replace(first, change=zeros, reason="a slice of zeros in every input")
        yield from _spread(first, _find_edges, "inputs at the ends of their domains and 0")
    for end, what in ((0, "smallest"), (1, "largest")) if list_tensors(system, "int") else ():
        yield replace(first, change=alter(_set_ends(end)), reason=f"integers at their {what}")
    truths = (True, False)[: 1 if _has_rows(system) else 2]
    for sample, truth in product(samples, truths) if list_tensors(system, "bool") else ():
        reason = f"truth values that are all {str(truth).lower()}"
        yield replace(sample, change=alter(_set_truth(truth)), reason=reason)
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

    def act(domain: draws.Domain, value: Any) -> Any:
        return value * factor + more if domain.is_everything or within else value

    reason = f"inputs with {more:g} added" if more else f"inputs {factor:g} times as large"
    is_same = factor == 1 and not more
    return sample if is_same else replace(sample, change=alter({"*real": act}), reason=reason)


def select_numbers(numbers: Iterable[float]) -> list[float]:
    """The first numbers to try, without 0, 1, 2, their negatives, and very large or small ones."""
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
    """Whether a condition or -inf leaves out entries of rows, which may then be empty."""
    parts = list_parts(system)
    left = (part.condition for part in parts if isinstance(part, (ir.Along, ir.Reduce)))
    return any(each != ir.TRUE for each in left) or any(isinstance(p, ir.Infinity) for p in parts)


def alter(acts: Mapping[str, Act], step: int = 1) -> Change:
    """The change that applies acts to tensors, or to every `step`-th row, within their domains.

    An act has the name of a tensor, or a kind behind a star: `*real` are all real tensors.
    """

    def change(sample: Sample, values: Values) -> Values:
        found = dict(values)
        for entry in list_tensors(sample.system):
            act = acts.get(entry.name) or acts.get(f"*{entry.kind}")
            if act is None:
                continue
            domain, value = draws.find_domain(entry, sample.sizes), values[entry.name]
            made = act(domain, value)
            if made.numel() and domain.holds(float(made.min())) and domain.holds(float(made.max())):
                found[entry.name] = made
                if step > 1 and value.dim():
                    found[entry.name] = value.clone()
                    found[entry.name][::step] = made[::step]
        return found

    return change


def _make_whole(sample: Sample, values: Values) -> Values:
    """The inputs with small whole numbers for real ones, so with zeros and equal values."""
    generator = torch.Generator().manual_seed(sample.seed)

    def act(domain: draws.Domain, value: Any) -> Any:
        pool = [n for n in range(-2, 3) if domain.holds(n)]
        if not pool:
            return value
        places = torch.randint(len(pool), value.shape, generator=generator)
        return torch.tensor(pool, dtype=value.dtype)[places]

    return alter({"*real": act})(sample, values)


def _fill(number: float) -> Change:
    """The change that fills every real input with a number in its domain."""
    return alter({"*real": lambda _, value: value * 0 + number})


def set_signs(signs: Mapping[str, int] | int, least: float) -> Change:
    """The change that gives tensors without a domain one sign and a least distance from 0."""

    def act(sign: int, domain: draws.Domain, value: Any) -> Any:
        beyond = least * (1.5 + value.abs()) if least else value.abs()
        return sign * beyond if domain.is_everything else value

    given = {"*real": signs} if isinstance(signs, int) else signs
    return alter({name: partial(act, sign) for name, sign in given.items()})


def _zero_slice(_: draws.Domain, value: Any) -> Any:
    """The tensor with zeros at the first place of its first axis."""
    changed = value.clone()
    changed[slice(1) if value.dim() else ...] = 0
    return changed


def _set_ends(end: int) -> dict[str, Act]:
    """The act that sets integers to the least (`end` 0) or largest (1) value of their range."""
    return {"*int": lambda domain, value: value * 0 + find_ends(domain)[end]}


def _set_truth(truth: bool) -> dict[str, Act]:
    return {"*bool": lambda _, value: (value & False) | truth}


def _make_alike(sample: Sample) -> Iterator[Sample]:
    """Yield samples with uniform entries in one tensor, or in every second row of tensors."""
    reals, masks = ([e.name for e in list_tensors(sample.system, k)] for k in ("real", "bool"))
    ways: dict[str, Act] = {
        "zeros": lambda _, value: value * 0,
        "equal": lambda _, value: value * 0 + 1.5,
        "negative": lambda _, value: -value.abs() - _NEAR,
        "positive": lambda _, value: value.abs() + _NEAR,
        "false": lambda _, value: value & False,
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
        change = alter({name: ways[way] for name, way in given.items()}, step)
        yield replace(sample, change=change, reason=f"inputs with {whose} {words}", is_defined=True)


def _spread(sample: Sample, pool: Pool, reason: str) -> Iterator[Sample]:
    """Yield samples in which each tensor has the values of its pool, some in each sample."""
    tensors = list_tensors(sample.system, "real", "int")
    counts = {entry.name: len(select_values(pool, sample, entry)) for entry in tensors}
    values = sample.make_inputs() if any(counts.values()) else {}
    turns = (-(-counts[n] // max(1, value.numel())) for n, value in values.items() if n in counts)
    for turn in range(min(max(turns, default=0), MOST_PLACES)):
        yield replace(sample, change=partial(place_values, pool, turn), reason=reason)


def _find_edges(domain: draws.Domain, is_integer: bool) -> list[float]:
    """The ends of a domain and numbers near them; large values and 0 without ends."""
    low, high = domain.low, domain.high
    if is_integer:
        return [*find_ends(domain)]
    steps = [0.0, _LEAST_FLOAT, 1e-20, 1e-12, _NEAR, 1e-4, 1e-2]
    far = [1.0, 1e2, 1e4, 1 / _NEAR]
    pool = [low + step for step in steps] if low is not None else []
    pool += [high - step for step in steps] if high is not None else []
    pool += [(low or 0.0) + step for step in far] if high is None else []
    pool += [(high or 0.0) - step for step in far] if low is None else []
    return pool + [0.0, 0.0, 1.0, _NEAR, -_NEAR] * domain.is_everything


def _find_ties(factors: Sequence[float], _: draws.Domain, is_integer: bool) -> list[float]:
    """Multiples of 1/4, each divided by every factor: inputs that hit jumps exactly."""
    parts = [k / 4 for n in (2, 1, 4) for k in range(-10, 11) if math.gcd(k, 4) == n]
    every = (part / factor for part in parts for factor in factors)
    return [] if is_integer else list(dict.fromkeys(every))


def place_integers(sample: Sample, limit: float) -> Iterator[Sample]:
    """Yield the sample with integers at and just above a limit, where the domain allows them."""

    def list_near(domain: draws.Domain, is_integer: bool) -> list[float]:
        is_held = is_integer and domain.holds(limit) and domain.holds(limit + 1)
        return [limit, limit + 1] * _ALTERNATIONS if is_held else []

    yield from islice(_spread(sample, list_near, f"integers about {limit:.0f}"), 1)


def _surround(number: float, _: draws.Domain, is_integer: bool) -> list[float]:
    """A number and others just below, above and beyond it; no integers around a fraction."""
    if is_integer:
        return [int(number) + step for step in (-1, 0, 1)] if number == int(number) else []
    pool = [number, number * (1 - _NEAR), number * (1 + _NEAR)]
    return [*pool, number - 1, number + 1, 2 * number, 10 * number, number / 2, -number]


def _find_factors(sample: Sample, number: float) -> list[float]:
    """Factors for all inputs, with which some part of the formula just exceeds a number."""
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
    """The largest absolute value of each node of the formula; 0 where unknown."""
    found = []
    for part, evaluator in evaluate_parts(sample):
        grid = evaluator.known.get(part)
        is_real = grid and grid.tensor.is_floating_point() and grid.tensor.numel()
        found.append(float(grid.tensor.abs().max()) if grid and is_real else 0.0)
    return found


def fill_largest(sample: Sample) -> Sample | None:
    """The sample with all booleans true and integers at their largest; None without them."""
    if not list_tensors(sample.system, "bool", "int"):
        return None
    both = _set_ends(1) | _set_truth(True)
    reason = f"{sample.reason}, truth values and integers alike"
    return replace(sample, change=alter(both), reason=reason)
