"""Inputs at which code is judged beside random ones.

values   zeros, equal and whole ones, large ones, the ends of a domain, every second row alike
numbers  around each number of code and formula, and so large that parts of the formula reach it
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from derive.checker.samples import Sample, find_ends, find_numbers, place_values
from derive.ir import nodes as ir
from derive.ir.walk import walk
from derive.judge.evaluate import Evaluator
from derive.judge.samples import find_domain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from derive.judge.samples import Domain

    Values = dict[str, Any]


Way: TypeAlias = Callable[[Any], Any]  # what is made of the entries of a tensor
Change: TypeAlias = Callable[[Sample, dict[str, Any]], dict[str, Any]]  # of the inputs of a sample
SCALES = (20.0, 1e3, 1e6)  # factors of the inputs at which clamps and caps have a say
MOST_NUMBERS = 16  # of code and formula that are tried
MOST_ALIKE = 80  # samples in which the entries of tensors have something in common
MOST_PLACES = 6  # samples that spread a few values over tensors with fewer elements
MOST_FACTORS = 4  # of the inputs, that make parts of the formula reach a number
_NEAR = 1e-6  # how far below and above a number is just beside it
_ALTERNATIONS = 4  # of two integers in a tensor
_LEAST_FLOAT = 1e-37  # about the least that float32 holds
_STEPWISE = {"floor", "ceiling", "mod", "floordiv"}


def vary_inputs(samples: Sequence[Sample], numbers: Sequence[float]) -> Iterator[Sample]:
    """Samples with inputs that are special; `numbers` are those of the code."""
    first, system = samples[0], samples[0].system
    is_stepwise = _is_stepwise(system)
    if _find_steps(system) and not is_stepwise:
        yield replace(first, change=partial(_make_whole, 4), reason="inputs with halves, quarters")
    for sample in samples if not is_stepwise else ():
        reason = "inputs that are whole numbers"
        yield replace(sample, change=partial(_make_whole, 1), reason=reason)
        yield replace(sample, change=_make_equal(0.0), reason="inputs that are all 0")
        yield replace(sample, change=_make_equal(1.0), reason="inputs that are all equal")
    for factor in SCALES:
        yield scale(first, factor)
    for sign, what in ((-1, "negative"), (1, "positive")):
        for sample in samples:
            reason = f"inputs that are all {what}"
            yield replace(sample, change=set_signs(sign, 0.0), reason=reason)
    if not is_stepwise:
        yield replace(
            first, change=_alter("real", _make_zero), reason="a slice of zeros in every input"
        )
        yield from _spread(first, _find_edges, "inputs at the ends of their domains and 0")
        for tiny in _spread(first, _find_tiny, "inputs above 0 that float32 does not hold"):
            yield replace(tiny, is_remark=True)
    else:
        yield replace(first, change=_make_pairs, reason="inputs of which every two are equal")
    for end, what in ((0, "smallest"), (1, "largest")):
        if any(getattr(entry, "kind", "") == "int" for entry in system.inputs):
            yield replace(first, change=partial(_make_end, end), reason=f"integers at their {what}")
    for sample in samples if any(getattr(e, "kind", "") == "bool" for e in system.inputs) else ():
        for truth in (True, False)[: 1 if _has_rows(system) else 2]:
            reason = f"truth values that are all {str(truth).lower()}"
            yield replace(sample, change=_make_truth(truth), reason=reason)
    yield from _make_alike(first)
    yield from _vary_scalars(first, numbers)
    for number in select_numbers((*numbers, *find_numbers(system))):
        if not is_stepwise:
            pool = partial(_surround, number)
            yield from _spread(first, pool, f"inputs at and around {number:g}")
        for sign, what in ((-1, "below"), (1, "above")):
            reason = f"inputs all {what} {sign * abs(number):g}"
            yield replace(first, change=set_signs(sign, abs(number)), reason=reason)
        for factor in _find_factors(first, number) if abs(number) >= _NEAR else ():
            yield scale(first, factor)


def _vary_scalars(sample: Sample, numbers: Sequence[float]) -> Iterator[Sample]:
    """Each scalar in turn at 0 and 1, negative, small and large, and at numbers of either sign."""
    told = (*numbers, *find_numbers(sample.system))
    near = [each for n in select_numbers(told) for each in (n, 1.5 * n + 0.375)]
    near += [-each for each in near]
    values = dict.fromkeys((0.0, 1.0, -1.0, -0.375, _NEAR, 1 / _NEAR, *near))
    for entry in sample.system.inputs:
        if not isinstance(entry, ir.ScalarInput) or entry.name in sample.defaulted:
            continue
        for value in values:
            change = partial(lambda own, _, values: values | own, {entry.name: value})
            reason = f"{entry.name} = {value:g}"
            yield replace(sample, change=change, reason=reason, is_limit=True)


def scale(sample: Sample, factor: float) -> Sample:
    """The sample with its real inputs that have no domain so many times as large."""
    if factor == 1:
        return sample
    change = _alter("real", lambda _, domain, v: v * factor if domain.is_everything else v)
    return replace(sample, change=change, reason=f"inputs {factor:g} times as large")


def select_numbers(numbers: Iterable[float]) -> list[float]:
    """The numbers that are worth a try: 0, 1 and 2 are met in any case."""
    kept = dict.fromkeys(n for n in numbers if _LEAST_FLOAT <= abs(n) <= 1 / _NEAR**2)
    return [n for n in kept if n not in {-2, -1, 1, 2}][:MOST_NUMBERS]


def _find_steps(system: ir.System) -> list[ir.Expr]:
    """Where values jump: the place of the largest of equals, a floor."""
    parts = (part for each in system.equations for part in walk(each.value))
    return [
        part
        for part in parts
        if (isinstance(part, ir.Reduce) and part.kind.startswith("arg"))
        or (isinstance(part, ir.Call) and part.function in _STEPWISE)
    ]


def _is_stepwise(system: ir.System) -> bool:
    """Does rounding decide on which side of a jump its values are, at special inputs?

    Where sums and products of dyadic numbers alone are compared, nothing is rounded there.
    """
    inside = [part for step in _find_steps(system) for part in walk(step)]
    if any(isinstance(part, ir.Access) and part.tensor not in system.inputs for part in inside):
        inside = [part for each in system.equations for part in walk(each.value)]
    return any(_is_rounded(part) for part in inside)


def _has_rows(system: ir.System) -> bool:
    """Are entries left out of rows? What an empty one gives is told beside the verdict."""
    parts = [part for each in system.equations for part in walk(each.value)]
    left = (part.condition for part in parts if isinstance(part, (ir.Along, ir.Reduce)))
    return any(each != ir.TRUE for each in left) or any(isinstance(p, ir.Infinity) for p in parts)


def _is_rounded(part: ir.Expr) -> bool:
    """May its value at small whole numbers be rounded?"""
    match part:
        case ir.Number(value):
            return value.denominator & (value.denominator - 1) != 0
        case ir.Call(function, _):
            return function not in {*_STEPWISE, "abs", "max", "min", "relu", "sign", "clip"}
        case ir.Reduce(kind, _, _, _):
            return kind not in {"sum", "max", "min", "argmax", "argmin", "prod"}
        case ir.Pow(_, exponent):
            return not isinstance(exponent, ir.Number) or exponent.value < 0
        case ir.Along(kind, _, _, _):
            return kind != "cumsum"
    return False


def _list_reals(sample: Sample, values: Values) -> list[tuple[ir.Tensor, Any]]:
    """The real tensors with what they hold."""
    tensors = [entry for entry in sample.system.inputs if isinstance(entry, ir.Tensor)]
    return [(entry, values[entry.name]) for entry in tensors if entry.kind == "real"]


def _make_whole(parts: int, sample: Sample, values: Values) -> Values:
    """Small whole numbers or such parts of 1, as far as a domain has them: zeros, equal values."""
    import torch

    generator = torch.Generator().manual_seed(sample.seed)
    for entry, value in _list_reals(sample, values):
        domain = find_domain(entry, sample.sizes)
        pool = [n / parts for n in range(-2 * parts, 2 * parts + 1) if domain.holds(n / parts)]
        if pool:
            place = torch.randint(len(pool), value.shape, generator=generator)
            values[entry.name] = torch.tensor(pool, dtype=value.dtype)[place]
    return values


def _alter(kind: str, act: Callable[[ir.Tensor, Domain, Any], Any]) -> Change:
    """The change that makes something of what each tensor of a kind holds."""

    def change(sample: Sample, values: Values) -> Values:
        for entry in sample.system.inputs:
            if isinstance(entry, ir.Tensor) and entry.kind == kind:
                domain = find_domain(entry, sample.sizes)
                values[entry.name] = act(entry, domain, values[entry.name])
        return values

    return change


def _make_equal(number: float) -> Change:
    """One number in every real input that may hold it."""
    return _alter("real", lambda _, domain, v: v * 0 + number if domain.holds(number) else v)


def set_signs(signs: Mapping[str, int] | int, least: float) -> Change:
    """Each of these tensors on its side of 0, and so far from it, where it has no domain."""

    def act(entry: ir.Tensor, domain: Domain, value: Any) -> Any:
        sign = signs if isinstance(signs, int) else signs[entry.name]
        beyond = least * (1.5 + value.abs()) if least else value.abs()
        return sign * beyond if domain.is_everything else value

    return _alter("real", act)


def _make_zero(_: ir.Tensor, domain: Domain, value: Any) -> Any:
    """Zeros in the first slice of a tensor that may hold them."""
    if domain.holds(0):
        value[slice(1) if value.dim() else ...] = 0
    return value


def _make_end(end: int, sample: Sample, values: Values) -> Values:
    """Every integer at one end of its range."""
    return _alter("int", lambda entry, _, v: v * 0 + find_ends(sample, entry)[end])(sample, values)


def _make_truth(truth: bool) -> Change:
    return _alter("bool", lambda _, __, value: (value & False) | truth)


def _make_pairs(sample: Sample, values: Values) -> Values:
    """Whole numbers, the same at every two places along every index: equals, and no rounding."""
    import torch

    generator = torch.Generator().manual_seed(sample.seed)
    for entry, value in _list_reals(sample, values):
        domain = find_domain(entry, sample.sizes)
        pool = [n for n in range(-40, 41) if domain.holds(n)]
        if len(pool) > 2:
            made = torch.tensor(pool, dtype=value.dtype)
            made = made[torch.randint(len(pool), value.shape, generator=generator)]
            for axis, extent in enumerate(value.shape):
                made = made.index_select(axis, torch.arange(extent) // 2 * 2)
            values[entry.name] = made
    return values


def _make_alike(sample: Sample) -> Iterator[Sample]:
    """Each tensor in turn with entries that have something in common; so have every second row's.

    That all tensors have it together is tried at every sample.
    """
    tensors = [entry for entry in sample.system.inputs if isinstance(entry, ir.Tensor)]
    reals, masks = ([e.name for e in tensors if e.kind == kind] for kind in ("real", "bool"))
    ways: dict[str, Way] = {
        "zeros": lambda value: value * 0,
        "equal": lambda value: value * 0 + 1.5,
        "negative": lambda value: -value.abs() - _NEAR,
        "positive": lambda value: value.abs() + _NEAR,
    }
    plan: list[tuple[dict[str, str], int]] = []
    if len(reals) > 1:
        plan += [({name: way}, 1) for name in reals for way in ("zeros", "equal", "negative")]
        for turn in (("negative", "positive"), ("positive", "negative")):
            plan.append(({name: turn[k % 2] for k, name in enumerate(reals)}, 1))
    plan += [(dict.fromkeys(reals, "zeros"), 2)] if reals else []
    if not _has_rows(sample.system):
        ways["false"] = lambda value: value & False
        plan += [({name: "false"}, step) for name in masks for step in (1, 2)]
    for given, step in plan[:MOST_ALIKE]:
        words = " and ".join(dict.fromkeys(given.values()))
        whose = f"{', '.join(given)} all" if step == 1 else "every second row"
        change = partial(_change_alike, {name: ways[way] for name, way in given.items()}, step)
        yield replace(sample, change=change, reason=f"inputs with {whose} {words}", is_defined=True)


def _change_alike(ways: Mapping[str, Way], step: int, sample: Sample, values: Values) -> Values:
    """The inputs with these tensors so, or every so many rows of them, where a domain has it."""
    found = dict(values)
    for entry in sample.system.inputs:
        if isinstance(entry, ir.Tensor) and entry.name in ways:
            value = values[entry.name]
            made = ways[entry.name](value)
            domain = find_domain(entry, sample.sizes)
            if made.numel() and domain.holds(float(made.min())) and domain.holds(float(made.max())):
                found[entry.name] = made
                if step > 1 and value.dim():
                    found[entry.name] = value.clone()
                    found[entry.name][::step] = made[::step]
    return found


def _spread(
    sample: Sample, pool: Callable[[Sample, ir.Tensor], list[float]], reason: str
) -> Iterator[Sample]:
    """Samples in which each tensor holds each value of its pool somewhere."""
    tensors = [e for e in sample.system.inputs if isinstance(e, ir.Tensor) and e.kind != "bool"]
    if not any(pool(sample, entry) for entry in tensors):
        return
    values = sample.make_inputs()
    turns = max(-(-len(pool(sample, e)) // max(1, values[e.name].numel())) for e in tensors)
    for turn in range(min(turns, MOST_PLACES)):
        yield replace(sample, change=partial(place_values, pool, turn), reason=reason)


def _find_edges(sample: Sample, entry: ir.Tensor) -> list[float]:
    """The ends of a domain and what is near them; without ends large values, zeros and equals."""
    domain = find_domain(entry, sample.sizes)
    if entry.kind == "int":
        return list(find_ends(sample, entry))
    if entry.kind == "bool":
        return []
    steps = [0.0, _LEAST_FLOAT, 1e-20, 1e-12, _NEAR, 1e-4, 1e-2]
    far = [1.0, 1e2, 1e4, 1 / _NEAR]
    pool: list[float] = []
    if domain.low is not None:
        pool += [domain.low + step for step in steps]
    if domain.high is not None:
        pool += [domain.high - step for step in steps]
    if domain.high is None:
        pool += [(domain.low or 0.0) + step for step in far]
    if domain.low is None:
        pool += [(domain.high or 0.0) - step for step in far]
    if domain.is_everything:
        pool += [0.0, 0.0, 1.0, _NEAR, -_NEAR]
    return [value for value in pool if domain.holds(value)]


def _find_tiny(sample: Sample, entry: ir.Tensor) -> list[float]:
    """Numbers above 0 that float64 holds and float32 does not, where a domain begins at 0."""
    is_above = entry.kind == "real" and find_domain(entry, sample.sizes).low == 0
    return [1e-50, 1e-100, 1e-300] if is_above else []


def pass_whole(sample: Sample, limit: float) -> Iterator[Sample]:
    """The sample with integers about a number, where they have no bound."""

    def list_near(sample: Sample, entry: ir.Tensor) -> list[float]:
        is_free = entry.kind == "int" and find_domain(entry, sample.sizes).is_everything
        return [limit, limit + 1] * _ALTERNATIONS if is_free else []

    yield from islice(_spread(sample, list_near, f"integers about {limit:.0f}"), 1)


def cut_beyond(sample: Sample, limit: float) -> Sample:
    """The sample with real inputs beyond a number."""
    return replace(scale(sample, 4.0 * limit), reason=f"inputs beyond {limit:g}")


def _surround(number: float, sample: Sample, entry: ir.Tensor) -> list[float]:
    """A number, what is just below and above it and beyond it, as far as a domain has them."""
    domain = find_domain(entry, sample.sizes)
    if entry.kind == "bool":
        return []
    if entry.kind == "int":
        whole = [int(number) + step for step in (-1, 0, 1)] if number == int(number) else []
        return [n for n in whole if domain.holds(n)]
    near = [number, number * (1 - _NEAR), number * (1 + _NEAR)]
    far = [number - 1, number + 1, 2 * number, 10 * number, number / 2, -number]
    return [value for value in (*near, *far) if domain.holds(value)]


def _find_factors(sample: Sample, number: float) -> list[float]:
    """Factors of the inputs that make parts of the formula as large as a number."""
    one, two = (find_magnitudes(scale(sample, factor)) for factor in (1.0, 2.0))
    found: dict[int, float] = {}
    for here, there in zip(one, two, strict=True):
        if not (0 < here < math.inf and 0 < there < math.inf):
            continue
        degree = math.log2(there / here)
        if 0.2 < abs(degree) < 8:
            power = math.log10(1.5 * abs(number) / here) / degree
            if 0.3 < abs(power) < 6:
                found.setdefault(round(2 * power), 10**power)
    return sorted(found.values())[:MOST_FACTORS]


def find_magnitudes(sample: Sample) -> list[float]:
    """The largest size of each part of the formula."""
    evaluator = Evaluator(sample.make_inputs(), sample.sizes, sample.system.empty_row)
    found = []
    for equation in sample.system.equations:
        evaluator.define(equation)
        for part in walk(equation.value):
            tensor = evaluator.recall(part)
            if tensor is not None and tensor.is_floating_point() and tensor.numel():
                found.append(float(tensor.abs().max()))
            else:
                found.append(0.0)
    return found


def fill(sample: Sample) -> Sample | None:
    """The sample with truth values true and integers at their largest; None without them."""
    kinds = {getattr(entry, "kind", "") for entry in sample.system.inputs}
    if not kinds & {"bool", "int"}:
        return None

    def change(sample: Sample, values: Values) -> Values:
        return _make_end(1, sample, _make_truth(True)(sample, values))

    return replace(
        sample, change=change, reason=f"{sample.reason}, truth values and integers alike"
    )
