"""Code against formula at a sample: float64 against the loops, and random towers of prime fields.

Over fields every entry is compared exactly.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from math import inf, isfinite, prod
from random import Random
from typing import TYPE_CHECKING, Any

from derive.checker.program import find_names
from derive.checker.runs import How, weigh_results
from derive.checker.source.load import CannotRunError
from derive.ir import nodes as ir
from derive.ir.polynomial import evaluate_extent
from derive.ir.walk import walk
from derive.judge.compare import (
    compare_values,
    copy_values,
    draw_over,
    evaluate_over,
    find_difference,
)
from derive.judge.evaluate import evaluate_system
from derive.judge.loops import evaluate_entries, evaluate_loops

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from derive.checker.program import Program
    from derive.checker.runs import Answer
    from derive.checker.samples import Sample
    from derive.judge.fields import Usage
    from derive.notation.formula import Formula

CLEAR = 1e-6  # a relative difference in float64 that no rounding at ordinary inputs explains
MOST_APART = 6  # elements of a result that are looked at, where it differs
MOST_CUTS = 3  # of a gradient that are told
MOST_STEPS = 300_000  # of the direct loops at one sample, about a second
MOST_ENTRIES = 64  # of each result that are computed by loops where all of them take longer


@dataclass(frozen=True)
class Apart:
    """An element in which code and formula differ in float64."""

    name: str
    place: tuple[int, ...]
    found: float
    wanted: float

    def __str__(self) -> str:
        element = f"{self.name}[{', '.join(map(str, self.place))}]" if self.place else self.name
        return f"{element} is {self.found!r}, the formula says {self.wanted!r}"


@dataclass
class Outcome:
    """What one judge found."""

    same: bool | None
    difference: str = ""
    off: float = 0.0  # the largest relative difference
    reasons: list[str] = field(default_factory=list)
    apart: list[Apart] = field(default_factory=list)  # not yet judged with many digits
    error: CannotRunError | None = None
    always_nan: set[str] = field(default_factory=set)  # results that are nan by the formula

    def describe(self, sample: Sample) -> str:
        """The first difference of finite values, with its sample."""
        finite = (e for e in self.apart if isfinite(e.found) and isfinite(e.wanted))
        shown = next((f"{each}, {sample.describe()}" for each in finite), "")
        return self.difference or shown

    @property
    def is_clear(self) -> bool:
        """Do shapes or finite values differ?"""
        finite = any(isfinite(each.found) and isfinite(each.wanted) for each in self.apart)
        return self.same is False and (finite or not self.apart)


def find_expected(program: Program, found: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The formula's results by name, in the layout that the code has."""
    from derive.checker.program import evaluate_source

    return tuple(
        (name, evaluate_source(program.results.get(name, name), {name: value}, {}, {}))
        for name, value in found.items()
    )


def judge_floats(
    program: Program, formula: Formula, sample: Sample, *, empty_row: bool = False
) -> Outcome:
    """float64 against the direct loops at one sample."""
    values = sample.make_inputs(empty_row=empty_row)
    answer = program.run(values, sample.sizes)
    outcome = compare_results(program, answer.results, find_wanted(formula, sample, values))
    given = [n for slot in answer.changed for n in find_names(program.sources[slot])]
    changed = [name for name in given if name in values]
    outcome.reasons = [f"changes {name}" for name in dict.fromkeys(changed)]
    if outcome.difference:
        outcome.difference += f", {sample.describe()}"
    return outcome


def find_wanted(formula: Formula, sample: Sample, values: Mapping[str, Any]) -> dict[str, Any]:
    """The formula's results by the loops; of long loops single entries, the others evaluated."""
    names = [tensor.name for tensor in sample.system.results]
    if count_steps(sample) <= MOST_STEPS:
        expected = evaluate_loops(formula, values)
        return dict(zip(names, expected if len(names) > 1 else (expected,), strict=True))
    found = evaluate_system(sample.system, values, sample.sizes)
    wanted = {name: found[name].clone() for name in names}
    chooser = Random(sample.seed)
    places = {
        name: [tuple(chooser.randrange(n) for n in value.shape) for _ in range(MOST_ENTRIES)]
        for name, value in wanted.items()
        if value.numel()
    }
    for name, entries in evaluate_entries(formula, values, places, MOST_STEPS).items():
        for place, entry in entries.items():
            wanted[name][place] = entry
    return wanted


def count_steps(sample: Sample) -> int:
    """How many steps the loops over all indices of each equation take."""
    total = 0
    for equation in sample.system.equations:
        nodes = (*walk(equation.value), *(i for p in equation.target.places for i in walk(p)))
        indices = dict.fromkeys(node for node in nodes if isinstance(node, ir.Index))
        total += prod(evaluate_extent(index.extent, sample.sizes) for index in indices)
    return total


def count_results(sample: Sample) -> int:
    """How many elements the results have."""
    shapes = (tensor.shape for tensor in sample.system.results)
    return sum(prod(evaluate_extent(extent, sample.sizes) for extent in each) for each in shapes)


def compare_results(program: Program, results: Sequence[Any], wanted: dict[str, Any]) -> Outcome:
    """The results one by one; what the code returns beyond the formula's is left alone."""
    if not results:
        return Outcome(False, "the code returns no tensor", float("inf"))
    worst, said = 0.0, ""
    always_nan = {name for name, value in wanted.items() if value.numel() and value.isnan().all()}
    for (name, value), found in zip(find_expected(program, wanted), results, strict=False):
        off, where = compare_values(name, found, value)
        worst = max(worst, off)
        said = said or where
    return Outcome(not said, said, worst, always_nan=always_nan)


def judge_at(
    program: Program,
    sample: Sample,
    run: Callable[[Any, Any], Answer] | None = None,
    least: float = CLEAR,
    answer: Answer | CannotRunError | None = None,
) -> Outcome:
    """float64 against the evaluator at a special sample: a clear difference, or a loss of digits.

    `run` is how the code is run, if it is run in another way than usual; `answer` is what it gave
    there, if it has run already.
    """
    import torch

    values = sample.make_inputs()
    try:
        found = evaluate_system(sample.system, values, sample.sizes, is_regular=True)
    except (RuntimeError, ArithmeticError):  # a matrix that has no inverse, say
        return Outcome(None)
    wanted = {tensor.name: found[tensor.name] for tensor in sample.system.results}
    if sample.is_defined and not all(bool(value.isfinite().all()) for value in wanted.values()):
        return Outcome(None)
    expected = find_expected(program, wanted)
    try:
        answer = answer or (run or program.run)(values, sample.sizes)
    except CannotRunError as error:
        answer = error
    if isinstance(answer, CannotRunError):
        is_finite = all(bool(value.isfinite().all()) for value in wanted.values())
        return Outcome(None, error=answer if is_finite else None)
    results = answer.results
    apart: list[Apart] = []
    for (name, value), result in zip(expected, results, strict=False):
        if tuple(result.shape) != tuple(value.shape):
            says = f"{name} has shape {list(result.shape)}, the formula {list(value.shape)}"
            return Outcome(False, f"{says}, {sample.describe()}", float("inf"))
        one, other = result.detach().double(), value.double()
        same = (one == other) | (one.isnan() & other.isnan())
        finite = torch.where(other.isfinite(), other.abs(), 0.0)
        size = torch.maximum(finite, finite.max() * least) if finite.numel() else finite
        off = torch.where(same, 0.0, ((one - other).abs() / (size + CLEAR**2)).nan_to_num(inf, inf))
        worst = off.reshape(-1).argsort(descending=True, stable=True)
        for flat in worst[: min(MOST_APART, int((off > least).sum()))].tolist():
            place = tuple(int(k) for k in torch.unravel_index(torch.tensor(flat), off.shape))
            apart.append(Apart(name, place, float(one[place]), float(other[place])))
    return Outcome(not apart, apart=apart)


def judge_gradients(program: Program, sample: Sample) -> Outcome:
    """The gradients of the results, weighted at random, by every real tensor, in float64."""
    import torch

    values = sample.make_inputs()
    how = How(weights=sample.seed, most=len(sample.system.results))
    try:
        answer, pairs = _pair_gradients(program, sample, how, values)
    except CannotRunError as error:  # whatever the user's backward raises
        return Outcome(None, reasons=[f"no gradient: {error}"])
    for name, one, other in pairs:
        nothing = torch.zeros((one if one is not None else other).shape, dtype=torch.float64)
        own, right = (nothing if grad is None else grad for grad in (one, other))
        weigh = (how, len(answer.results))
        right = _differ_where_undefined(sample, (values, name), own, right, weigh)
        off, where = compare_values(f"gradient by {name}", own, right)
        if where:
            said = [f"at line {line} by {call}" for line, call in answer.cuts if line]
            cuts = f"; the code cuts the gradient {', '.join(said[:MOST_CUTS])}" if said else ""
            return Outcome(False, f"{where}, {sample.describe()}{cuts}", off)
    return Outcome(True)


def _pair_gradients(
    program: Program, sample: Sample, how: How, values: Mapping[str, Any]
) -> tuple[Answer, list[tuple[str, Any, Any]]]:
    """What the code gave, and its gradient and the formula's by each tensor that has one.

    It is that of the weighted sum of the results, over numbers or over a field.
    """
    import torch

    from derive.judge.fields import FieldTensor, draw_tower

    kind = torch.Tensor if how.tower is None else FieldTensor
    reals = {n: v for n, v in values.items() if isinstance(v, kind)}
    names = [n for n, v in reals.items() if how.tower is not None or v.is_floating_point()]

    def make_leaves() -> dict[str, Any]:
        leaves = copy_values(values)
        return leaves | {name: leaves[name].detach().requires_grad_() for name in names}

    answer, here = program.differentiate(make_leaves(), sample.sizes, how)
    leaves = make_leaves()
    if how.tower is None:
        known = evaluate_system(sample.system, leaves, sample.sizes)
    else:
        known = evaluate_over(draw_tower(*how.tower), sample.system, leaves, sample.sizes)
    wanted = {tensor.name: known[tensor.name] for tensor in sample.system.results}
    results = [value for _, value in find_expected(program, wanted)][: len(answer.results)]
    total = weigh_results(results, how)
    there: tuple[Any, ...] = (None,) * len(names)
    if total.requires_grad:
        there = torch.autograd.grad(total, [leaves[name] for name in names], allow_unused=True)
    every = zip(names, (here[name] for name in names), there, strict=True)
    return answer, [each for each in every if each[1] is not None or each[2] is not None]


def _differ_where_undefined(
    sample: Sample, at: tuple[dict[str, Any], str], own: Any, right: Any, weigh: tuple[How, int]
) -> Any:
    """The formula's gradient, by differences of its values where autograd gives nan.

    Through a branch that is not taken autograd multiplies 0 by infinity. The code's own number is
    taken where differences come near it, and nan stays where two steps do not agree.
    """
    import torch

    values, name = at
    found = right.clone()

    def step(place: tuple[int, ...], by: float) -> float:
        moved = values | {name: values[name].clone()}
        moved[name][place] += by
        here = evaluate_system(sample.system, moved, sample.sizes)
        results = [here[tensor.name] for tensor in sample.system.results]
        return float(weigh_results(results[: weigh[1]], weigh[0]))

    for row in right.isnan().nonzero()[:MOST_APART].tolist():
        place = tuple(row)
        slopes = [(step(place, h) - step(place, -h)) / (2 * h) for h in _STEPS]
        near = _SLOPE * (1 + abs(slopes[0]))
        if abs(slopes[0] - slopes[1]) <= near:  # false for nan
            known = torch.tensor(slopes[0], dtype=right.dtype)
            found[place] = own[place] if abs(float(own[place]) - slopes[0]) <= near else known
    return found


_STEPS = (1e-5, 2e-6)  # of an input, to either side
_SLOPE = 1e-4  # differences that far from each other, of 1 and their size, are one slope


_TOWERS = 2  # random towers at each sample
_ORDERED_TOWERS = 8  # where a random order decides, each tower is but one trial
_REDRAWS = 5  # after an accident


@dataclass
class Exactness:
    """What the judge over fields found: the same, another value, or that it cannot tell."""

    same: bool | None = True
    difference: str = ""
    reason: str = ""
    opaque: dict[str, None] = field(default_factory=dict)
    is_chancy: bool = False  # an order or the sign of a root was random: a difference says nothing
    ordered: bool = False
    soft_mask: bool = False
    has_numbers: bool = False  # was anything compared that is finite?

    def take(self, usage: Usage) -> None:
        """What one run rested on."""
        self.opaque |= usage.opaque
        self.ordered |= usage.ordered
        self.soft_mask |= usage.soft_mask
        self.is_chancy |= usage.ordered or usage.rooted


def judge_fields(
    program: Program,
    samples: Sequence[Sample],
    *,
    backward: bool = False,
) -> Exactness:
    """The code and the formula over random towers at every sample."""
    total = Exactness()
    for sample in samples:
        number = 0
        towers = _TOWERS if count_steps(sample) <= MOST_STEPS else 1
        while number < (_ORDERED_TOWERS if total.ordered else towers):
            _judge_tower(total, program, sample, 97 * sample.seed + number, backward)
            if total.same is not True:
                return total
            number += 1
    if not total.has_numbers:
        total.same, total.reason = None, "no result is a finite number"
    return total


def _judge_tower(
    total: Exactness, program: Program, sample: Sample, seed: int, backward: bool
) -> None:
    """One sample over one tower; deeper towers where exponentials nest deeper."""
    from derive.judge.fields import DEEPEST, NotModelledError, TooDeepError, UnluckyError

    total.reason = "exponentials nest deeper than random fields allow"
    for depth in range(1, DEEPEST + 1):
        for attempt in range(_REDRAWS):
            try:
                _run_tower(total, program, sample, (seed + 1000 * attempt, depth, backward))
            except UnluckyError:
                continue
            except TooDeepError:
                break
            except NotModelledError as error:
                total.reason = f"{error} is not modelled over fields"
            except CannotRunError as error:
                total.reason = f"over fields the code stops: {error}"
            else:
                return
            total.same = None
            return
    total.same = None


def _run_tower(
    total: Exactness, program: Program, sample: Sample, how: tuple[int, int, bool]
) -> None:
    import torch

    from derive.judge.fields import draw_tower, exact, has_finite, to_field

    seed, depth, backward = how
    tower = draw_tower(seed, depth)
    run = How(tower=(seed, depth), most=len(sample.system.results))
    with warnings.catch_warnings(), exact(tower) as usage:
        warnings.simplefilter("ignore")
        try:
            values = draw_over(tower, sample.system, sample.make_inputs(), seed)
            found = evaluate_over(tower, sample.system, values, sample.sizes)
            answer = program.run(values, sample.sizes, run)
            total.take(answer.usage or usage)
            wanted = {tensor.name: found[tensor.name] for tensor in sample.system.results}
            said = "" if answer.results else "the code returns no tensor"
            pairs = zip(find_expected(program, wanted), answer.results, strict=False)
            every = (find_difference(name, one, value) for (name, value), one in pairs)
            said = said or next(filter(None, every), "")
            total.has_numbers |= any(has_finite(value) for value in wanted.values())
            if backward and not said:
                weighed = replace(run, weights=7 * sample.seed)
                _, gradients = _pair_gradients(program, sample, weighed, values)
                for name, one, other in gradients:
                    nothing = to_field(tower, torch.zeros((other if one is None else one).shape))
                    here, there = (nothing if each is None else each for each in (one, other))
                    said = said or find_difference(f"the gradient by {name}", here, there)
        finally:
            total.take(usage)
    total.same, total.difference, total.reason = not said, said, ""
