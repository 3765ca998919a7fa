"""Code against formula at a sample: in float64 against loops, and over random prime fields.

Over fields every entry is compared exactly.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf, isfinite, prod
from random import Random
from typing import TYPE_CHECKING, Any

from derive.checker.processes import CannotRunError
from derive.checker.program import Program, find_names
from derive.checker.runs import Answer, RunOptions, weigh_results
from derive.checker.samples import Sample
from derive.ir import nodes as ir
from derive.ir.polynomial import evaluate_extent
from derive.ir.walk import walk
from derive.judge import compare, loops
from derive.libraries import by_default, torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from derive.judge.fields import Usage
    from derive.notation.formula import Formula

    Values = Mapping[str, Any]
    Truth = Callable[..., float | None]

CLEAR = 1e-6  # relative difference in float64 that rounding at ordinary inputs does not reach
MOST_APART = 6  # differing elements of a result that are examined
MOST_CUTS = 3  # cuts of a gradient that the message names
MOST_STEPS = 300_000  # loop steps at one sample, about a second
MOST_ENTRIES = 64  # entries of each result that loops compute, where all would take longer


@dataclass(frozen=True)
class Mismatch:
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
    """Whether code and formula agree at a sample, and where not; `same` is None for unknown."""

    same: bool | None
    difference: str = ""
    off: float = 0.0  # the largest relative difference
    reasons: list[str] = field(default_factory=list)
    apart: list[Mismatch] = field(default_factory=list)  # the farthest ones first, of each result
    error: CannotRunError | None = None
    always_nan: set[str] = field(default_factory=set)  # results that are nan by the formula
    line: int | None = None  # the first line at which a gradient ends

    def describe(self, sample: Sample) -> str:
        """The difference in words, else the first differing finite element; "" for neither."""
        finite = (e for e in self.apart if isfinite(e.found) and isfinite(e.wanted))
        shown = next((f"{each}, {sample.describe()}" for each in finite), "")
        return self.difference or shown

    @property
    def is_clear(self) -> bool:
        """Whether a difference is in the shapes or in finite values, not only in inf or nan."""
        finite = any(isfinite(each.found) and isfinite(each.wanted) for each in self.apart)
        return self.same is False and (finite or not self.apart)


def judge_floats(
    program: Program, formula: Formula, sample: Sample, *, empty_row: bool = False
) -> Outcome:
    """The outcome in float64 against direct loops; with `empty_row`, masks have an empty row."""
    values = sample.make_inputs(empty_row=empty_row)
    answer = program.run(values, sample.sizes)
    wanted = _evaluate_loops(formula, sample, values)
    always_nan = {name for name, value in wanted.items() if value.numel() and value.isnan().all()}
    held = program.sources  # a list has one source for all of its tensors, ts.0 and ts.1
    told = (held.get(slot) or held[slot.rpartition(".")[0]] for slot in answer.changed)
    given = [name for source in told for name in find_names(source)]
    changed = [f"changes {name}" for name in dict.fromkeys(given) if name in values]
    if not answer.results:
        says = f"the code returns no tensor, {sample.describe()}"
        return Outcome(False, says, inf, changed)
    found = [compare.compare_values(*each) for each in program.pair(answer, wanted)]
    said = next((f"{where}, {sample.describe()}" for _, where in found if where), "")
    worst = max((off for off, _ in found), default=0.0)
    return Outcome(not said, said, worst, changed, always_nan=always_nan)


def _evaluate_loops(formula: Formula, sample: Sample, values: Mapping[str, Any]) -> dict[str, Any]:
    """The formula's results by loops; where those take long, only some entries are by loops."""
    names = [tensor.name for tensor in sample.system.results]
    if count_steps(sample) <= MOST_STEPS:
        expected = loops.evaluate_loops(formula, values)
        with by_default(torch.float64):  # without tensors the loops return lists and numbers
            found = map(torch.as_tensor, expected if len(names) > 1 else (expected,))
            return dict(zip(names, found, strict=True))
    wanted = {name: value.clone() for name, value in sample.evaluate(values).items()}
    chooser = Random(sample.seed)
    places = {
        name: [tuple(chooser.randrange(n) for n in value.shape) for _ in range(MOST_ENTRIES)]
        for name, value in wanted.items()
        if value.numel()
    }
    for name, entries in loops.evaluate_entries(formula, values, places, MOST_STEPS).items():
        for place, entry in entries.items():
            wanted[name][place] = entry
    return wanted


def count_steps(sample: Sample) -> int:
    """The number of steps of the loops over all indices, summed over the equations."""
    total = 0
    for equation in sample.system.equations:
        nodes = (*walk(equation.value), *(i for p in equation.target.places for i in walk(p)))
        indices = dict.fromkeys(node for node in nodes if isinstance(node, ir.Index))
        total += prod(evaluate_extent(index.extent, sample.sizes) for index in indices)
    return total


def judge_at(
    program: Program,
    sample: Sample,
    least: float = CLEAR,
    answer: Answer | CannotRunError | None = None,
) -> Outcome:
    """The outcome in float64, of `answer` if it has run; differences up to `least` are rounding."""
    values = sample.make_inputs()
    try:
        wanted = sample.evaluate(values, is_regular=True)
    except (RuntimeError, ArithmeticError):  # such as a singular matrix
        return Outcome(None)
    is_finite = all(bool(value.isfinite().all()) for value in wanted.values())
    if sample.is_defined and not is_finite:
        return Outcome(None)
    try:
        answer = answer or program.run(values, sample.sizes)
    except CannotRunError as error:
        answer = error
    if isinstance(answer, CannotRunError):
        return Outcome(None, error=answer if is_finite else None)
    apart: list[Mismatch] = []
    for name, result, value in program.pair(answer, wanted):
        if tuple(result.shape) != tuple(value.shape):
            says = f"{name} has shape {list(result.shape)}, the formula {list(value.shape)}"
            return Outcome(False, f"{says}, {sample.describe()}", float("inf"))
        if result.is_complex() or value.is_complex():
            far, where = compare.compare_values(name, result, value)
            if far > least:
                return Outcome(False, f"{where}, {sample.describe()}", far)
            continue
        one, other = result.detach().double(), value.double()
        same = (one == other) | (one.isnan() & other.isnan())
        finite = torch.where(other.isfinite(), other.abs(), 0.0)
        size = torch.maximum(finite, finite.max() * least) if finite.numel() else finite
        off = torch.where(same, 0.0, ((one - other).abs() / (size + CLEAR**2)).nan_to_num(inf, inf))
        worst = off.reshape(-1).argsort(descending=True, stable=True)
        for flat in worst[: min(MOST_APART, int((off > least).sum()))].tolist():
            place = tuple(int(k) for k in torch.unravel_index(torch.tensor(flat), off.shape))
            apart.append(Mismatch(name, place, float(one[place]), float(other[place])))
    return Outcome(not apart, apart=apart)


def judge_gradients(program: Program, sample: Sample) -> Outcome:
    """The outcome for the gradients of a random weighted sum of the results."""
    values = sample.make_inputs()
    how = RunOptions(weights=sample.seed, most=len(sample.system.results))
    try:
        answer, pairs = _pair_gradients(program, sample, how, values)
    except CannotRunError as error:  # whatever the user's backward raises
        return Outcome(None, reasons=[f"no gradient: {error}"])
    for name, own, other in pairs:
        right = _replace_nan_gradients(
            sample, (values, name), own, other, (how, len(answer.results))
        )
        off, where = compare.compare_values(f"gradient by {name}", own, right)
        if where:
            said = [f"at line {line} by {call}" for line, call in answer.cuts if line]
            cuts = f"; the code cuts the gradient {', '.join(said[:MOST_CUTS])}" if said else ""
            line = next((line for line, _ in answer.cuts if line), None)
            return Outcome(False, f"{where}, {sample.describe()}{cuts}", off, line=line)
    return Outcome(True)


def _pair_gradients(
    program: Program, sample: Sample, how: RunOptions, values: Mapping[str, Any]
) -> tuple[Answer, list[tuple[str, Any, Any]]]:
    """The code's answer, and triples: a tensor's name, the code's gradient, the formula's."""
    from derive.judge.fields import FieldTensor, draw_tower, to_field

    kind = torch.Tensor if how.tower is None else FieldTensor
    reals = {n: v for n, v in values.items() if isinstance(v, kind)}
    names = [n for n, v in reals.items() if how.tower is not None or v.is_floating_point()]
    tower = None if how.tower is None else draw_tower(*how.tower)

    def make_leaves() -> dict[str, Any]:
        leaves = compare.copy_values(values)
        return leaves | {name: leaves[name].detach().requires_grad_() for name in names}

    answer, here = program.differentiate(make_leaves(), sample.sizes, how)
    leaves = make_leaves()
    if tower is None:
        known = sample.evaluate(leaves)
    else:
        known = compare.evaluate_over(tower, sample.system, leaves, sample.sizes)
    wanted = {tensor.name: known[tensor.name] for tensor in sample.system.results}
    total = weigh_results([value for _, _, value in program.pair(answer, wanted)], how)
    there: tuple[Any, ...] = (None,) * len(names)
    if total.requires_grad:
        there = torch.autograd.grad(total, [leaves[name] for name in names], allow_unused=True)

    def fill(one: Any, other: Any) -> Any:
        """The gradient `one`, or zeros where only the other side has one."""
        zeros = torch.zeros((other if one is None else one).shape, dtype=torch.float64)
        nothing = zeros if tower is None else to_field(tower, zeros)
        return nothing if one is None else one

    both = {n: (here[n], grad) for n, grad in zip(names, there, strict=True)}
    some = {n: pair for n, pair in both.items() if any(each is not None for each in pair)}
    return answer, [(n, fill(one, other), fill(other, one)) for n, (one, other) in some.items()]


def _replace_nan_gradients(
    sample: Sample,
    at: tuple[dict[str, Any], str],
    own: Any,
    right: Any,
    weigh: tuple[RunOptions, int],
) -> Any:
    """The gradient `right` at (inputs, name), with difference quotients in place of nan."""
    values, name = at
    found = right.clone()

    def step(place: tuple[int, ...], by: float) -> float:
        moved = values | {name: values[name].clone()}
        moved[name][place] += by
        results = [*sample.evaluate(moved).values()]
        return float(weigh_results(results[: weigh[1]], weigh[0]))

    # autograd multiplies 0 by infinity in the branch that where() does not take
    for row in right.isnan().nonzero()[:MOST_APART].tolist():
        place = tuple(row)
        slopes = [(step(place, h) - step(place, -h)) / (2 * h) for h in _STEPS]
        near = _SLOPE * (1 + abs(slopes[0]))
        if abs(slopes[0] - slopes[1]) <= near:  # false for nan
            known = torch.tensor(slopes[0], dtype=right.dtype)
            found[place] = own[place] if abs(float(own[place]) - slopes[0]) <= near else known
    return found


_STEPS = (1e-5, 2e-6)  # steps of the difference quotient
_SLOPE = 1e-4  # relative difference of quotients below which the slope counts as known

_TOWERS = 2  # random towers at each sample
_ORDERED_TOWERS = 8  # where orders are random, one tower proves little


@dataclass
class Exactness:
    """The outcome over fields; `same` is None where fields cannot decide."""

    same: bool | None = True
    difference: str = ""
    reason: str = ""
    opaque: dict[str, None] = field(default_factory=dict)  # functions with random values
    is_chancy: bool = False  # an order or a sign was random, so a difference proves nothing
    ordered: bool = False  # a result depends on the random order of the elements
    soft_mask: bool = False  # a large finite number was used as minus infinity
    has_numbers: bool = False  # a finite number was compared

    def add_usage(self, usage: Usage) -> None:
        """Add the record of one run over fields."""
        self.opaque |= usage.opaque
        self.ordered |= usage.ordered
        self.soft_mask |= usage.soft_mask
        self.is_chancy |= usage.ordered or usage.rooted


def judge_fields(
    program: Program, samples: Sequence[Sample], *, backward: bool = False
) -> Exactness:
    """The outcome of code and formula over random towers at every sample."""
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
    """Judge one sample over one tower, and add the outcome to `total`."""
    from derive.judge import fields

    def judge(tower: Any, usage: Usage, how: tuple[int, int]) -> str:
        run = RunOptions(tower=how, most=len(sample.system.results))
        try:
            values = compare.draw_over(tower, sample.system, sample.make_inputs(), how[0])
            found = compare.evaluate_over(tower, sample.system, values, sample.sizes)
            answer = program.run(values, sample.sizes, run)
            total.add_usage(answer.usage or usage)
            wanted = {tensor.name: found[tensor.name] for tensor in sample.system.results}
            said = "" if answer.results else "the code returns no tensor"
            every = (compare.find_difference(*each) for each in program.pair(answer, wanted))
            said = said or next(filter(None, every), "")
            total.has_numbers |= any(fields.has_finite(value) for value in wanted.values())
            if backward and not said:
                weighed = replace(run, weights=7 * sample.seed)
                _, gradients = _pair_gradients(program, sample, weighed, values)
                for name, here, there in gradients:
                    said = said or compare.find_difference(f"the gradient by {name}", here, there)
        finally:
            total.add_usage(usage)
        return said

    reason = ""
    try:
        total.difference = compare.use_tower(seed, judge)
    except fields.TooDeepError:
        reason = "exponentials nest deeper than random fields allow"
    except fields.NotModelledError as error:
        reason = f"{error} is not modelled over fields"
    except CannotRunError as error:
        reason = f"over random fields the code stops: {error}"
    total.same, total.reason = None if reason else not total.difference, reason
