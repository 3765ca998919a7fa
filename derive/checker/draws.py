"""The sizes and inputs at which code is judged.

    ties     E = H*D, which the code states where it fails: a view, an assertion, a shape
    draws    distinct sizes that respect the ties, and inputs by seed
    inputs   zeros and equal values, large ones, the ends of a domain, around each number of code
             and formula, so large that parts of the formula reach that number
    sizes    each 1 in turn, each two equal in turn, around each whole number of the code, and the
             other side of each condition under which code was lifted; each far beyond the others

How many there are is bounded in steps and elements, never in time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, islice
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias

from derive.checker.ties import Ties, set_sizes
from derive.ir.nodes import (
    TRUE,
    Access,
    Along,
    Call,
    Compare,
    Expr,
    Index,
    Infinity,
    Number,
    Pow,
    Reduce,
    ScalarInput,
    Size,
    System,
    Tensor,
)
from derive.ir.polynomial import evaluate_extent
from derive.ir.walk import walk
from derive.judge.evaluate import Evaluator
from derive.judge.samples import (
    choose_sizes,
    count_work,
    draw_inputs,
    find_domain,
    find_sizes,
    is_possible,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from derive.frontend.torch.numbers import Condition

    Values = dict[str, Any]

Way: TypeAlias = Callable[[Any], Any]  # what is made of the entries of a tensor


FACTORS = ((3, 2, 4, 5), (2, 4, 3, 5), (1, 5, 2, 3))  # sizes whose product is tied, by draw
COUNT = 3  # draws; the second has a size 1, if the code can bear it
_SCALARS = (1.5, 0.75, 1.25, 0.625, 2.5)  # small fractions, which fields have exactly


@dataclass(frozen=True)
class Draw:
    """Sizes, and inputs by seed.

    `change` is what is done to the inputs, `reason` what is special of it all; `resize` is the way
    to the same draw at other sizes.
    """

    system: System
    sizes: Mapping[str, int]
    seed: int
    defaulted: tuple[str, ...] = ()  # scalars that the code does not take keep their default
    fixed: Mapping[str, int] = field(default_factory=dict)  # sizes that cannot be otherwise
    ties: Ties = ()  # sizes that others make, E = H*D
    change: Callable[[Draw, dict[str, Any]], dict[str, Any]] | None = None
    reason: str = ""
    is_defined: bool = False  # does it say something only where the formula has finite values?
    is_limit: bool = False  # are its sizes around a number of the code, which may be a limit of it?
    is_remark: bool = False  # is a difference there no more than a finding?

    def resize(self, **sizes: int) -> Draw | None:
        """The draw at other sizes; None where they are fixed, tied, or none of the formula's."""
        if any(name in self.fixed or name in dict(self.ties) for name in sizes):
            return None
        moved = set_sizes({**self.sizes, **sizes}, self.ties)
        return replace(self, sizes=moved) if is_possible(self.system, moved) else None

    def make_inputs(self, dtype: Any = None, *, empty_row: bool = False) -> dict[str, Any]:
        """Inputs of the formula by name, new ones at every call."""
        values = draw_inputs(self.system, self.sizes, self.seed, dtype, empty_row=empty_row)
        plain = draw_inputs(self.system, self.sizes) if self.defaulted else {}
        values |= {name: plain[name] for name in self.defaulted}
        if not empty_row:
            values = {name: _keep_rows(value) for name, value in values.items()}
        scalars = [entry for entry in self.system.inputs if isinstance(entry, ScalarInput)]
        for number, entry in enumerate(scalars):
            if entry.name not in self.defaulted and (entry.default is None or self.seed):
                values[entry.name] = _SCALARS[(number + self.seed) % len(_SCALARS)]
        return values if self.change is None else self.change(self, values)

    def describe(self) -> str:
        """What is special about it, and its sizes."""
        sizes = " ".join(f"{name}={size}" for name, size in self.sizes.items())
        return ", ".join(filter(None, (self.reason, f"at {sizes}" if sizes else "")))


def _keep_rows(value: Any) -> Any:
    """A mask with an index of extent 1 is all true: else a row along that index would be empty."""
    import torch

    if isinstance(value, torch.Tensor) and value.dtype is torch.bool and 1 in value.shape:
        return torch.ones_like(value)
    return value


@dataclass(frozen=True)
class Draws:
    """The first of some draws; the others are made when they are asked for."""

    first: Draw
    make_others: Callable[[], list[Draw]]
    told: frozenset[str] = frozenset()  # sizes that cannot be otherwise


def make_draws(system: System, fixed: Mapping[str, int], ties: Ties = ()) -> Draws | None:
    """Draws at sizes that are free but for those fixed and tied; None where there are none such."""
    tied = {name for name, _ in ties}
    merged = [n for _, product in ties if len(product) > 1 for n in product if isinstance(n, str)]
    roots = list(dict.fromkeys(name for name in merged if name not in tied and name not in fixed))

    def make(number: int) -> Draw:
        told = {**dict(zip(roots, FACTORS[number], strict=False)), **fixed}
        if roots:
            known = set_sizes({**dict.fromkeys(find_sizes(system), 1), **told}, ties)
            told |= {n: known[n] for n, made in ties if all(_is_told(m, told) for m in made)}
            free = choose_sizes(system, 1, seed=number, fixed=told)[0]
        else:
            free = choose_sizes(system, number + 1, fixed=fixed)[number]
        return Draw(system, set_sizes(free, ties), number, fixed=fixed, ties=ties)

    first = make(0)
    if not is_possible(system, first.sizes):
        return None

    def make_others() -> list[Draw]:
        return [d for d in map(make, range(1, COUNT)) if is_possible(system, d.sizes)]

    equal = {str(name) for tie in ties if len(tie[1]) == 1 for name in (tie[0], *tie[1])}
    return Draws(first, make_others, frozenset({*fixed, *equal}))


def _is_told(name: str | int, told: Mapping[str, int]) -> bool:
    return isinstance(name, int) or name in told


SCALES = (20.0, 1e3, 1e6)  # factors of the inputs at which clamps and caps have a say
MOST_NUMBERS = 16  # of code and formula that are tried
MOST_ALIKE = 80  # draws in which the entries of tensors have something in common
MOST_PLACES = 6  # draws that spread a few values over tensors with fewer elements
MOST_FACTORS = 4  # of the inputs, that make parts of the formula reach a number
MOST_SIZES = 80  # draws at other sizes
MOST_ELEMENTS = 500_000  # that the formula computes at one of them
MOST_TOGETHER = 5_000_000  # and at all of them
_EVERY, _DOUBLINGS = 130, 12  # sizes that are tried one by one, then so often twice as large
_LEAST = 2  # numbers of a formula beyond which every draw goes
_FARTHEST = 1 << 14  # the longest index that is tried
_MOST_PLACED = 1 << 24  # values of indices for which one condition is looked at
_FAR = (71, 303, 5003)  # sizes that are tried whatever the code has, if they are cheap
_NEAR = 1e-6  # how far below and above a number is just beside it
_LEAST_FLOAT = 1e-37  # about the least that float32 holds
_BESIDE = 4  # sizes beside one another, since what holds at one may hang on its remainder
_STEPWISE = {"floor", "ceiling", "mod", "floordiv"}


def vary_inputs(draws: Sequence[Draw], numbers: Sequence[float]) -> Iterator[Draw]:
    """Draws with inputs that are special; `numbers` are those of the code."""
    first, system = draws[0], draws[0].system
    is_stepwise = _is_stepwise(system)
    if _find_steps(system) and not is_stepwise:
        yield replace(first, change=partial(_make_whole, 4), reason="inputs with halves, quarters")
    for draw in draws if not is_stepwise else ():
        change = partial(_make_whole, 1)
        yield replace(draw, change=change, reason="inputs that are whole numbers")
        yield replace(draw, change=partial(_make_equal, 0.0), reason="inputs that are all 0")
        yield replace(draw, change=partial(_make_equal, 1.0), reason="inputs that are all equal")
    for factor in SCALES:
        yield scale(first, factor)
    for sign, what in ((-1, "negative"), (1, "positive")):
        for draw in draws:
            change = partial(set_signs, sign, 0.0)
            yield replace(draw, change=change, reason=f"inputs that are all {what}")
    if not is_stepwise:
        yield replace(first, change=_make_zero, reason="a slice of zeros in every input")
        yield from _spread(first, _find_edges, "inputs at the ends of their domains and 0")
        for tiny in _spread(first, _find_tiny, "inputs above 0 that float32 does not hold"):
            yield replace(tiny, is_remark=True)
    else:
        yield replace(first, change=_make_pairs, reason="inputs of which every two are equal")
    for end, what in ((0, "smallest"), (1, "largest")):
        if any(getattr(entry, "kind", "") == "int" for entry in system.inputs):
            yield replace(first, change=partial(_make_end, end), reason=f"integers at their {what}")
    for draw in draws if any(getattr(e, "kind", "") == "bool" for e in system.inputs) else ():
        for truth in (True, False)[: 1 if _has_rows(system) else 2]:
            reason = f"truth values that are all {str(truth).lower()}"
            yield replace(draw, change=partial(_make_truth, truth), reason=reason)
    yield from _make_alike(first)
    yield from _vary_scalars(first, numbers)
    for number in select_numbers((*numbers, *find_numbers(system))):
        if not is_stepwise:
            pool = partial(_surround, number)
            yield from _spread(first, pool, f"inputs at and around {number:g}")
        for sign, what in ((-1, "below"), (1, "above")):
            change = partial(set_signs, sign, abs(number))
            yield replace(first, change=change, reason=f"inputs all {what} {sign * abs(number):g}")
        for factor in _find_factors(first, number) if abs(number) >= _NEAR else ():
            yield scale(first, factor)


def _vary_scalars(draw: Draw, numbers: Sequence[float]) -> Iterator[Draw]:
    """Each scalar in turn at 0 and 1, negative, small and large, and at numbers of either sign."""
    told = (*numbers, *find_numbers(draw.system))
    near = [each for n in select_numbers(told) for each in (n, 1.5 * n + 0.375)]
    near += [-each for each in near]
    values = dict.fromkeys((0.0, 1.0, -1.0, -0.375, _NEAR, 1 / _NEAR, *near))
    for entry in draw.system.inputs:
        if not isinstance(entry, ScalarInput) or entry.name in draw.defaulted:
            continue
        for value in values:
            change = partial(_set_scalar, entry.name, value)
            reason = f"{entry.name} = {value:g}"
            yield replace(draw, change=change, reason=reason, is_limit=True)


def _set_scalar(name: str, value: float, draw: Draw, values: Values) -> Values:
    return values | {name: value}


def scale(draw: Draw, factor: float) -> Draw:
    """The draw with its real inputs that have no domain so many times as large."""
    if factor == 1:
        return draw
    return replace(draw, change=partial(_scale, factor), reason=f"inputs {factor:g} times as large")


def select_numbers(numbers: Iterable[float]) -> list[float]:
    """The numbers that are worth a try: 0, 1 and 2 are met in any case."""
    kept = dict.fromkeys(n for n in numbers if _LEAST_FLOAT <= abs(n) <= 1 / _NEAR**2)
    return [n for n in kept if n not in {-2, -1, 1, 2}][:MOST_NUMBERS]


def find_numbers(system: System) -> list[float]:
    """The numbers of the formula."""
    parts = (part for each in system.equations for part in walk(each.value))
    return [float(part.value) for part in parts if isinstance(part, Number)]


def _find_steps(system: System) -> list[Expr]:
    """Where values jump: the place of the largest of equals, a floor."""
    parts = (part for each in system.equations for part in walk(each.value))
    return [
        part
        for part in parts
        if (isinstance(part, Reduce) and part.kind.startswith("arg"))
        or (isinstance(part, Call) and part.function in _STEPWISE)
    ]


def _is_stepwise(system: System) -> bool:
    """Does rounding decide on which side of a jump its values are, at special inputs?

    Where sums and products of dyadic numbers alone are compared, nothing is rounded there.
    """
    inside = [part for step in _find_steps(system) for part in walk(step)]
    if any(isinstance(part, Access) and part.tensor not in system.inputs for part in inside):
        inside = [part for each in system.equations for part in walk(each.value)]
    return any(_is_rounded(part) for part in inside)


def _has_rows(system: System) -> bool:
    """Are entries left out of rows? What an empty one gives is told beside the verdict."""
    parts = [part for each in system.equations for part in walk(each.value)]
    left = (part.condition for part in parts if isinstance(part, (Along, Reduce)))
    return any(each != TRUE for each in left) or any(isinstance(p, Infinity) for p in parts)


def _is_rounded(part: Expr) -> bool:
    """May its value at small whole numbers be rounded?"""
    match part:
        case Number(value):
            return value.denominator & (value.denominator - 1) != 0
        case Call(function, _):
            return function not in {*_STEPWISE, "abs", "max", "min", "relu", "sign", "clip"}
        case Reduce(kind, _, _, _):
            return kind not in {"sum", "max", "min", "argmax", "argmin", "prod"}
        case Pow(_, exponent):
            return not isinstance(exponent, Number) or exponent.value < 0
        case Along(kind, _, _, _):
            return kind != "cumsum"
    return False


def _list_reals(draw: Draw, values: Values) -> list[tuple[Tensor, Any]]:
    """The real tensors with what they hold."""
    tensors = [entry for entry in draw.system.inputs if isinstance(entry, Tensor)]
    return [(entry, values[entry.name]) for entry in tensors if entry.kind == "real"]


def _make_whole(parts: int, draw: Draw, values: Values) -> Values:
    """Small whole numbers or such parts of 1, as far as a domain has them: zeros, equal values."""
    import torch

    generator = torch.Generator().manual_seed(draw.seed)
    for entry, value in _list_reals(draw, values):
        domain = find_domain(entry, draw.sizes)
        pool = [n / parts for n in range(-2 * parts, 2 * parts + 1) if domain.holds(n / parts)]
        if pool:
            place = torch.randint(len(pool), value.shape, generator=generator)
            values[entry.name] = torch.tensor(pool, dtype=value.dtype)[place]
    return values


def _make_equal(number: float, draw: Draw, values: Values) -> Values:
    """One number in every real input that may hold it."""
    for entry, value in _list_reals(draw, values):
        if find_domain(entry, draw.sizes).holds(number):
            values[entry.name] = value * 0 + number
    return values


def set_signs(signs: Mapping[str, int] | int, least: float, draw: Draw, values: Values) -> Values:
    """Each of these tensors on its side of 0, and so far from it, where it has no domain."""
    for entry, value in _list_reals(draw, values):
        if find_domain(entry, draw.sizes).is_everything:
            beyond = least * (1.5 + value.abs()) if least else value.abs()
            sign = signs if isinstance(signs, int) else signs[entry.name]
            values[entry.name] = sign * beyond
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


def _make_truth(truth: bool, draw: Draw, values: Values) -> Values:
    masks = [e.name for e in draw.system.inputs if getattr(e, "kind", "") == "bool"]
    return values | {name: (values[name] & False) | truth for name in masks}


def _make_pairs(draw: Draw, values: Values) -> Values:
    """Whole numbers, the same at every two places along every index: equals, and no rounding."""
    import torch

    generator = torch.Generator().manual_seed(draw.seed)
    for entry, value in _list_reals(draw, values):
        domain = find_domain(entry, draw.sizes)
        pool = [n for n in range(-40, 41) if domain.holds(n)]
        if len(pool) > 2:
            made = torch.tensor(pool, dtype=value.dtype)
            made = made[torch.randint(len(pool), value.shape, generator=generator)]
            for axis, extent in enumerate(value.shape):
                made = made.index_select(axis, torch.arange(extent) // 2 * 2)
            values[entry.name] = made
    return values


def _make_alike(draw: Draw) -> Iterator[Draw]:
    """Each tensor in turn with entries that have something in common; so have every second row's.

    That all tensors have it together is tried at every draw.
    """
    tensors = [entry for entry in draw.system.inputs if isinstance(entry, Tensor)]
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
    if not _has_rows(draw.system):
        ways["false"] = partial(_fill, False)
        plan += [({name: "false"}, step) for name in masks for step in (1, 2)]
    for given, step in plan[:MOST_ALIKE]:
        words = " and ".join(dict.fromkeys(given.values()))
        whose = f"{', '.join(given)} all" if step == 1 else "every second row"
        change = partial(_change_alike, {name: ways[way] for name, way in given.items()}, step)
        yield replace(draw, change=change, reason=f"inputs with {whose} {words}", is_defined=True)


def _fill(value: bool, mask: Any) -> Any:
    return (mask & False) | value


def _change_alike(ways: Mapping[str, Way], step: int, draw: Draw, values: Values) -> Values:
    """The inputs with these tensors so, or every so many rows of them, where a domain has it."""
    found = dict(values)
    for entry in draw.system.inputs:
        if isinstance(entry, Tensor) and entry.name in ways:
            value = values[entry.name]
            made = ways[entry.name](value)
            domain = find_domain(entry, draw.sizes)
            if made.numel() and domain.holds(float(made.min())) and domain.holds(float(made.max())):
                found[entry.name] = made
                if step > 1 and value.dim():
                    found[entry.name] = value.clone()
                    found[entry.name][::step] = made[::step]
    return found


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


def _find_tiny(draw: Draw, entry: Tensor) -> list[float]:
    """Numbers above 0 that float64 holds and float32 does not, where a domain begins at 0."""
    is_above = entry.kind == "real" and find_domain(entry, draw.sizes).low == 0
    return [1e-50, 1e-100, 1e-300] if is_above else []


def pass_whole(draw: Draw, limit: float) -> Iterator[Draw]:
    """The draw with integers about a number, where they have no bound."""

    def list_near(draw: Draw, entry: Tensor) -> list[float]:
        is_free = entry.kind == "int" and find_domain(entry, draw.sizes).is_everything
        return [limit, limit + 1] * _BESIDE if is_free else []

    yield from islice(_spread(draw, list_near, f"integers about {limit:.0f}"), 1)


def cut_beyond(draw: Draw, limit: float) -> Draw:
    """The draw with real inputs beyond a number."""
    return replace(scale(draw, 4.0 * limit), reason=f"inputs beyond {limit:g}")


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
    one, two = (find_magnitudes(scale(draw, factor)) for factor in (1.0, 2.0))
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


def find_magnitudes(draw: Draw) -> list[float]:
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
        work = count(varied)
        if work <= min(left, MOST_ELEMENTS):
            left -= work
            seen.append(dict(varied.sizes))
            yield replace(varied, reason=reason, is_limit="of the code" in reason)


def pass_limits(draw: Draw, *, has_loops: bool) -> Iterator[tuple[str, list[Draw]]]:
    """Each size with draws at which it is far larger than the others, from near to far.

    What rounds of a loop, an alphabet or a table bound stands in the code as no number.
    """
    for name in _find_free(draw):
        fars = (lengthen(draw, name, far) for far in _FAR[: -1 if has_loops else None])
        yield name, [far for far in fars if far is not None and count(far) <= MOST_ELEMENTS]


def lengthen(draw: Draw, name: str, size: int) -> Draw | None:
    """The draw with one size far larger than the others, small ones if it can be.

    Integers that look up are at both ends of their range.
    """
    small = {other: min(draw.sizes[other], 2 + k % 2) for k, other in enumerate(_find_free(draw))}
    tries = (draw.resize(**{**rest, name: size}) for rest in (small, {}))
    far = next((each for each in tries if each is not None), None)
    if far is None:
        return None
    is_whole = any(getattr(entry, "kind", "") == "int" for entry in draw.system.inputs)
    change = partial(_put, _find_integer_ends, 0) if is_whole else None
    return replace(far, change=change, reason=f"{name} is {size}", is_limit=True)


def fill(draw: Draw) -> Draw | None:
    """The draw with all truth values true and all integers at their largest; None without them."""
    kinds = {getattr(entry, "kind", "") for entry in draw.system.inputs}
    if not kinds & {"bool", "int"}:
        return None

    def change(draw: Draw, values: Values) -> Values:
        return _make_end(1, draw, _make_truth(True, draw, values))

    return replace(draw, change=change, reason=f"{draw.reason}, truth values and integers alike")


def _find_free(draw: Draw) -> list[str]:
    """The sizes that may be otherwise."""
    return [name for name in draw.sizes if name not in {*draw.fixed, *dict(draw.ties)}]


def _find_integer_ends(draw: Draw, entry: Tensor) -> list[float]:
    return list(_find_ends(draw, entry)) if entry.kind == "int" else []


def pass_bounds(draw: Draw, most: int = MOST_ELEMENTS) -> tuple[list[Draw], list[int]]:
    """Draws in which indices go beyond the numbers of the formula, and those not gone beyond.

    A number bounds or divides an index where both stand in one condition or function; the other
    sizes are small. At most so many elements are computed.
    """
    found: dict[tuple[int, ...], Draw] = {}
    missed: dict[int, None] = {}
    for part in (part for each in draw.system.equations for part in walk(each.value)):
        inside = list(walk(part)) if isinstance(part, (Compare, Call)) else []
        told = [abs(n.value) for n in inside if isinstance(n, Number) and abs(n.value) > _LEAST]
        extents = (each for i in inside if isinstance(i, Index) for each in walk(i.extent))
        names = dict.fromkeys(each.name for each in extents if isinstance(each, Size))
        if not told or not names or any(isinstance(each, Access) for each in inside):
            continue
        if names.keys() <= {*draw.fixed} or _is_beyond(part, draw):
            continue
        far = int(max(told))
        lengths = dict.fromkeys((far + 3, 2 * far + 3, min(int(prod(told)), _FARTHEST) + 2))
        small = {name: min(size, 2) for name, size in draw.sizes.items() if name not in names}
        tries = (
            draw.resize(**{n: size for n, size in given.items() if draw.resize(**{n: size})})
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


def _is_beyond(part: Expr, draw: Draw) -> bool:
    """Is a condition on indices true and false, or does an index go beyond what a function has?"""
    inside = list(walk(part))
    indices = dict.fromkeys(each for each in inside if isinstance(each, Index))
    lengths = [evaluate_extent(index.extent, draw.sizes) for index in indices]
    if isinstance(part, Call):
        return max(lengths) > max(abs(n.value) for n in inside if isinstance(n, Number))
    if prod(lengths) > _MOST_PLACED:
        return False
    held = Evaluator({}, draw.sizes, draw.system.empty_row).condition(part).tensor
    return bool(held.any()) and not bool(held.all())


def find_other_sides(draw: Draw, path: Sequence[Condition]) -> Iterator[tuple[Condition, Draw]]:
    """The draw at sizes at which a condition does not hold and those before it do.

    One size is changed: to the smallest such, those after it, and one about twice as large.
    """
    sizes = (*range(1, _EVERY), *(_EVERY << k for k in range(_DOUBLINGS)))
    for k, condition in enumerate(path):
        for name in condition.sizes:
            varied = (
                draw.resize(**{name: n})
                for n in sizes
                if not _holds(condition, draw, name, n)
                and all(_holds(each, draw, name, n) for each in path[:k])
            )
            found = (each for each in varied if each is not None and count(each) <= MOST_ELEMENTS)
            first = list(islice(found, _BESIDE))
            twice = (each for each in found if each.sizes[name] >= 2 * first[0].sizes[name])
            for each in (*first, *islice(twice, 1)):
                other = replace(each, reason=f"where not {condition}", is_limit=True)
                yield condition, other


def _holds(condition: Condition, draw: Draw, name: str, size: int) -> bool:
    """Does it hold at another size, as far as can be told?"""
    try:
        return condition.holds({**draw.sizes, name: size})
    except (KeyError, ZeroDivisionError):
        return True


def count(draw: Draw) -> int:
    """How many elements are computed at a draw."""
    return int(max(count_work(draw.system, draw.sizes), prod(draw.sizes.values())))


def _list_sizes(draw: Draw, numbers: Sequence[float]) -> Iterator[tuple[dict[str, int], str]]:
    names = _find_free(draw)
    for size, name in itertools.product((1, 2), names):
        yield {name: size}, f"{name} is {size}"
    for one, other in combinations(names, 2):
        yield {other: draw.sizes[one]}, f"{one} equals {other}"
    if len(names) > 2:
        yield dict.fromkeys(names, max(draw.sizes.values())), "all sizes are equal"
    owners = dict.fromkeys(_find_lengths(find_numbers(draw.system)), "the formula")
    owners |= dict.fromkeys(_find_lengths(numbers), "the code")
    for number, whose in sorted(owners.items()):
        for name in names:
            yield {name: 2 * number + 1}, f"{name} is above the {number} of {whose}"
            small = {other: 1 for other in names if other != name}
            if small:
                shown = f"{name} is above the {number} of {whose}, the other sizes are 1"
                yield {**small, name: 2 * number + 1}, shown
    for number, whose in sorted(owners.items()):
        for name in names:
            for size in (number - 1, number, number + 1):
                yield {name: size}, f"{name} is {size}, for the {number} of {whose}"
    for number, whose in sorted(owners.items()):
        for others in _list_products(draw, names):
            for name in others:
                rest = prod(draw.sizes[other] for other in others if other != name)
                size = number // max(rest, 1) + 1
                if size > draw.sizes[name]:
                    shown = " * ".join(others)
                    yield {name: size}, f"{shown} is above the {number} of {whose}"


def _find_lengths(numbers: Iterable[float]) -> set[int]:
    return {abs(int(n)) for n in numbers if math.isfinite(n) and n == int(n) and abs(n) > 2}


def _list_products(draw: Draw, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Products of sizes that code may compare with a number: of two, and of a whole tensor."""
    tensors = [entry for entry in draw.system.inputs if isinstance(entry, Tensor)]
    parts = [{getattr(part, "name", "") for x in e.shape for part in walk(x)} for e in tensors]
    whole = [tuple(name for name in names if name in inside) for inside in parts]
    return [each for each in dict.fromkeys((*combinations(names, 2), *whole)) if len(each) > 1]
