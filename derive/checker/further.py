"""Draws beyond the first ones, at which code may take another way than at ordinary inputs.

    inputs   zeros and equal values, large ones, the ends of a domain, around each number of code
             and formula, so large that parts of the formula reach that number
    sizes    each 1 in turn, each two equal in turn, around each whole number of the code, and the
             other side of each condition under which code was lifted

How many there are is bounded in steps and elements, never in time.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from itertools import combinations, islice
from math import prod
from typing import TYPE_CHECKING, Any

from derive.checker.draws import Draw
from derive.ir.nodes import Call, Number, Reduce, Tensor
from derive.ir.walk import walk
from derive.judge.evaluate import Evaluator
from derive.judge.samples import count_work, find_domain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from derive.frontend.torch.numbers import Condition
    from derive.ir.nodes import System

    Values = dict[str, Any]

SCALES = (20.0, 1e3, 1e6)  # factors of the inputs at which clamps and caps have a say
MOST_NUMBERS = 16  # of code and formula that are tried
MOST_PLACES = 6  # draws that spread a few values over tensors with fewer elements
MOST_FACTORS = 4  # of the inputs, that make parts of the formula reach a number
MOST_SIZES = 80  # draws at other sizes
MOST_ELEMENTS = 500_000  # that the formula computes at one of them
MOST_TOGETHER = 5_000_000  # and at all of them
_EVERY, _DOUBLINGS = 130, 12  # sizes that are tried one by one, then so often twice as large
_NEAR = 1e-6  # how far below and above a number is just beside it
_STEPWISE = {"floor", "ceiling", "mod", "floordiv"}


def vary_inputs(draws: Sequence[Draw], numbers: Sequence[float]) -> Iterator[Draw]:
    """Draws with inputs that are special; `numbers` are those of the code."""
    first, system = draws[0], draws[0].system
    if not _is_stepwise(system):
        for draw in draws:
            yield replace(draw, change=_make_whole, reason="inputs that are whole numbers")
    for factor in SCALES:
        yield scale(first, factor)
    if not _is_stepwise(system):
        yield replace(first, change=_make_zero, reason="a slice of zeros in every input")
        yield from _spread(first, _find_edges, "inputs at the ends of their domains and 0")
    for end, what in ((0, "smallest"), (1, "largest")):
        if any(getattr(entry, "kind", "") == "int" for entry in system.inputs):
            yield replace(first, change=partial(_make_end, end), reason=f"integers at their {what}")
    if any(getattr(entry, "kind", "") == "bool" for entry in system.inputs):
        yield replace(first, change=_make_true, reason="truth values that are all true")
    for number in select_numbers((*numbers, *_find_numbers(system))):
        if not _is_stepwise(system):
            pool = partial(_surround, number)
            yield from _spread(first, pool, f"inputs at and around {number:g}")
        for factor in _find_factors(first, number):
            yield scale(first, factor)


def scale(draw: Draw, factor: float) -> Draw:
    """The draw with its real inputs that have no domain so many times as large."""
    if factor == 1:
        return draw
    return replace(draw, change=partial(_scale, factor), reason=f"inputs {factor:g} times as large")


def select_numbers(numbers: Iterable[float]) -> list[float]:
    """The numbers that are worth a try: 0, 1 and 2 are met in any case."""
    kept = dict.fromkeys(n for n in numbers if math.isfinite(n) and _NEAR <= abs(n) <= 1 / _NEAR**2)
    return [n for n in kept if n not in {-2, -1, 1, 2}][:MOST_NUMBERS]


def _find_numbers(system: System) -> list[float]:
    """The numbers of the formula."""
    parts = (part for each in system.equations for part in walk(each.value))
    return [float(part.value) for part in parts if isinstance(part, Number)]


def _is_stepwise(system: System) -> bool:
    """Does rounding decide its values at special inputs: the largest of equals, a floor?"""
    parts = [part for each in system.equations for part in walk(each.value)]
    return any(
        (isinstance(part, Reduce) and part.kind.startswith("arg"))
        or (isinstance(part, Call) and part.function in _STEPWISE)
        for part in parts
    )


def _list_reals(draw: Draw, values: Values) -> list[tuple[Tensor, Any]]:
    """The real tensors with what they hold."""
    tensors = [entry for entry in draw.system.inputs if isinstance(entry, Tensor)]
    return [(entry, values[entry.name]) for entry in tensors if entry.kind == "real"]


def _make_whole(draw: Draw, values: Values) -> Values:
    """Small whole numbers, as far as a domain has them: zeros, ones and equal values."""
    import torch

    generator = torch.Generator().manual_seed(draw.seed)
    for entry, value in _list_reals(draw, values):
        pool = [n for n in range(-2, 3) if find_domain(entry, draw.sizes).holds(n)] or []
        if pool:
            place = torch.randint(len(pool), value.shape, generator=generator)
            values[entry.name] = torch.tensor(pool, dtype=value.dtype)[place]
    return values


def _make_zero(draw: Draw, values: Values) -> Values:
    """Zeros in the first slice of every tensor that may hold them."""
    for entry, value in _list_reals(draw, values):
        if find_domain(entry, draw.sizes).holds(0):
            value[:1] = 0 if value.dim() else value
            values[entry.name] = value if value.dim() else value * 0
    return values


def _scale(factor: float, draw: Draw, values: Values) -> Values:
    for entry, value in _list_reals(draw, values):
        if find_domain(entry, draw.sizes).is_everything:
            values[entry.name] = value * factor
    return values


def _make_end(end: int, draw: Draw, values: Values) -> Values:
    """Every integer at one end of its range."""
    for entry in draw.system.inputs:
        if isinstance(entry, Tensor) and entry.kind == "int":
            pool = _find_ends(draw, entry)
            values[entry.name] = values[entry.name] * 0 + pool[end]
    return values


def _find_ends(draw: Draw, entry: Tensor) -> tuple[int, int]:
    domain = find_domain(entry, draw.sizes)
    low = -1000 if domain.low is None else int(domain.low)
    return low, 1000 if domain.high is None else max(int(domain.high), low)


def _make_true(draw: Draw, values: Values) -> Values:
    masks = [e.name for e in draw.system.inputs if getattr(e, "kind", "") == "bool"]
    return values | {name: values[name] | True for name in masks}


def _spread(draw: Draw, pool: Callable[[Draw, Tensor], list[float]], reason: str) -> Iterator[Draw]:
    """Draws in which each tensor holds each value of its pool somewhere."""
    tensors = [e for e in draw.system.inputs if isinstance(e, Tensor) and e.kind != "bool"]
    if not any(pool(draw, entry) for entry in tensors):
        return
    values = draw.make_inputs()
    turns = max(-(-len(pool(draw, e)) // max(1, values[e.name].numel())) for e in tensors)
    for turn in range(min(turns, MOST_PLACES)):
        yield replace(draw, change=partial(_put, pool, turn), reason=reason)


def _put(
    pool: Callable[[Draw, Tensor], list[float]], turn: int, draw: Draw, values: Values
) -> Values:
    import torch

    generator = torch.Generator().manual_seed(draw.seed + turn)
    for entry in draw.system.inputs:
        found = pool(draw, entry) if isinstance(entry, Tensor) else []
        if isinstance(entry, Tensor) and found:
            value = values[entry.name]
            count = value.numel()
            places = torch.randperm(count, generator=generator)[: len(found)]
            chosen = [found[(turn * count + k) % len(found)] for k in range(len(places))]
            flat = value.reshape(-1).clone()
            flat[places] = torch.tensor(chosen, dtype=value.dtype)
            values[entry.name] = flat.reshape(value.shape)
    return values


def _find_edges(draw: Draw, entry: Tensor) -> list[float]:
    """The ends of a domain and what is near them; without ends large values, zeros and equals."""
    domain = find_domain(entry, draw.sizes)
    if entry.kind == "int":
        return list(_find_ends(draw, entry))
    if entry.kind == "bool":
        return []
    steps = [0.0, _NEAR, 1e-4, 1e-2]
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


def _surround(number: float, draw: Draw, entry: Tensor) -> list[float]:
    """A number, what is just below and above it and beyond it, as far as a domain has them."""
    domain = find_domain(entry, draw.sizes)
    if entry.kind == "bool":
        return []
    if entry.kind == "int":
        whole = [int(number) + step for step in (-1, 0, 1)] if number == int(number) else []
        return [n for n in whole if domain.holds(n)]
    near = [number, number * (1 - _NEAR), number * (1 + _NEAR)]
    far = [number - 1, number + 1, 2 * number, 10 * number, number / 2, -number]
    return [value for value in (*near, *far) if domain.holds(value)]


def _find_factors(draw: Draw, number: float) -> list[float]:
    """Factors of the inputs that make parts of the formula as large as a number."""
    one, two = (_find_largest(scale(draw, factor)) for factor in (1.0, 2.0))
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


def _find_largest(draw: Draw) -> list[float]:
    """The largest size of each part of the formula."""
    evaluator = Evaluator(draw.make_inputs(), draw.sizes, draw.system.empty_row)
    found = []
    for equation in draw.system.equations:
        evaluator.define(equation)
        for part in walk(equation.value):
            tensor = evaluator.recall(part)
            if tensor is not None and tensor.is_floating_point() and tensor.numel():
                found.append(float(tensor.abs().max()))
            else:
                found.append(0.0)
    return found


def vary_sizes(draw: Draw, numbers: Sequence[float]) -> Iterator[Draw]:
    """Draws at other sizes, the cheapest kinds first."""
    left = MOST_TOGETHER
    seen = [dict(draw.sizes)]
    for changed, reason in islice(_list_sizes(draw, numbers), 4 * MOST_SIZES):
        varied = draw.resize(**changed)
        if varied is None or dict(varied.sizes) in seen or len(seen) > MOST_SIZES:
            continue
        work = _count(varied)
        if work <= min(left, MOST_ELEMENTS):
            left -= work
            seen.append(dict(varied.sizes))
            yield replace(varied, reason=reason, is_limit="of the code" in reason)


def find_other_sides(draw: Draw, conditions: Iterable[Condition]) -> Iterator[Draw]:
    """The draw at the smallest sizes at which each condition does not hold, one size changed."""
    sizes = (*range(1, _EVERY), *(_EVERY << k for k in range(_DOUBLINGS)))
    for condition in conditions:
        for name in condition.sizes:
            varied = (
                draw.resize(**{name: n}) for n in sizes if not _holds(condition, draw, name, n)
            )
            found = next((each for each in varied if each is not None), None)
            if found is not None and _count(found) <= MOST_ELEMENTS:
                yield replace(found, reason=f"where not {condition}", is_limit=True)


def _holds(condition: Condition, draw: Draw, name: str, size: int) -> bool:
    """Does it hold at another size, as far as can be told?"""
    try:
        return condition.holds({**draw.sizes, name: size})
    except (KeyError, ZeroDivisionError):
        return True


def _count(draw: Draw) -> int:
    """How many elements are computed at a draw."""
    return int(max(count_work(draw.system, draw.sizes), prod(draw.sizes.values())))


def _list_sizes(draw: Draw, numbers: Sequence[float]) -> Iterator[tuple[dict[str, int], str]]:
    names = [name for name in draw.sizes if name not in {*draw.fixed, *dict(draw.ties)}]
    for name in names:
        yield {name: 1}, f"{name} is 1"
    for one, other in combinations(names, 2):
        yield {other: draw.sizes[one]}, f"{one} equals {other}"
    if len(names) > 2:
        yield dict.fromkeys(names, max(draw.sizes.values())), "all sizes are equal"
    lengths = sorted({int(n) for n in numbers if n == int(n) and n > 2})
    for number in lengths:
        for name in names:
            for size in (2 * number + 1, number - 1, number, number + 1):
                yield {name: size}, f"{name} is {size}, for the {number} of the code"
            small = {other: 1 for other in names if other != name}
            if small:
                shown = f"{name} is above the {number} of the code, the other sizes are 1"
                yield {**small, name: 2 * number + 1}, shown
    for number in lengths:
        for others in _list_products(draw, names):
            for name in others:
                rest = prod(draw.sizes[other] for other in others if other != name)
                size = number // max(rest, 1) + 1
                if size > draw.sizes[name]:
                    shown = " * ".join(others)
                    yield {name: size}, f"{shown} is above the {number} of the code"


def _list_products(draw: Draw, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Products of sizes that code may compare with a number: of two, and of a whole tensor."""
    tensors = [entry for entry in draw.system.inputs if isinstance(entry, Tensor)]
    parts = [{getattr(part, "name", "") for x in e.shape for part in walk(x)} for e in tensors]
    whole = [tuple(name for name in names if name in inside) for inside in parts]
    return [each for each in dict.fromkeys((*combinations(names, 2), *whole)) if len(each) > 1]
