"""The side that is wrong where float64 differs at a special sample.

The element of the formula with many digits decides:

    the code is right      the formula, evaluated as written, loses digits: a finding
    the code loses digits  its error grows gradually and has both signs nearby: a finding
    the code overflows     an exponential or a product leaves the range: a finding
    the formula has none   nan, or a pole, where the code has a number: a finding
    else                   the code computes another function: different
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite, prod
from typing import TYPE_CHECKING, Any

from derive.checker.judge import CLEAR, MOST_APART, Mismatch, count_steps, judge_at
from derive.checker.judge.inputs import find_magnitudes
from derive.checker.processes import CannotRunError
from derive.checker.program import Program, find_expected
from derive.checker.runs import Answer, RunOptions
from derive.checker.samples import Sample, evaluate_parts
from derive.errors import Diagnostic
from derive.ir import nodes as ir
from derive.ir.polynomial import evaluate_extent
from derive.ir.walk import walk
from derive.judge.loops.entries import prepare_entry
from derive.libraries import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from derive.notation.formula import Formula

    Values = Mapping[str, Any]
    Truth = Callable[..., float | None]

_UNIT = 2.0**-53  # relative error of one operation
_SMALL = (_UNIT ** (1 / 2), _UNIT ** (1 / 4))  # errors that leave half and a quarter of the digits
_HALVINGS = 20
_NEARBY, _NEAR = 12, 1e-2  # nearby inputs, and their relative distance
_ALIKE = 30  # ratio of the largest error to the smallest one that counts
_FEWEST = 2  # errors of either sign


@dataclass(frozen=True)
class Further:
    """The outcome at a special sample or in shorter floats; `same` is None for unknown."""

    same: bool | None
    difference: str = ""
    findings: tuple[Diagnostic, ...] = ()


def judge_further(
    program: Program,
    formula: Formula,
    sample: Sample,
    least: float = CLEAR,
    answer: Answer | CannotRunError | None = None,
) -> Further:
    """The outcome at a special sample: of `answer`, if it has run; `least` is the tolerance."""
    outcome = judge_at(program, sample, least=least, answer=answer)
    if outcome.error is not None and outcome.error.is_beyond:
        return Further(None)
    if outcome.error is not None:
        if sample.is_limit or outcome.error.refusal or outcome.error.is_of_one:
            return Further(None, findings=(describe_stop(sample, outcome.error),))
        return Further(False, f"the code stops, {outcome.error}; {sample.describe()}")
    if not outcome.apart:
        return Further(outcome.same, outcome.difference)
    soft = None if sample.is_ordinary else _find_finite_mask(program, sample)
    if soft is not None:
        return Further(True, findings=(soft,))
    findings: dict[str, Diagnostic] = {}  # the first of each code
    names = dict.fromkeys(each.name for each in outcome.apart)
    entries = {name: prepare_entry(formula, name) for name in names}
    values, largest = sample.make_inputs(), dict.fromkeys(entries, 0.0)
    for each in outcome.apart:
        if isfinite(each.wanted):
            largest[each.name] = max(largest[each.name], abs(each.wanted))
    for each in outcome.apart:  # a real difference first, else the side that loses digits
        truth = partial(entries[each.name], place=_find_place(program, sample, each))
        element = _Element(program, sample, each, truth, least)
        said = element.judge(values, CLEAR * largest[each.name])
        if isinstance(said, str):
            said = (sample.is_ordinary and outcome.describe(sample)) or said
            return Further(False, said, tuple(findings.values()))
        if said is not None:
            findings.setdefault(said.code, said)
    return Further(True, findings=tuple(findings.values()))


def is_at_poles(program: Program, formula: Formula, samples: Sequence[Sample]) -> bool:
    """Whether all differences are at poles, where only rounding gives the formula a number."""
    every = [(judge_at(program, sample).apart, sample) for sample in samples]
    told = all(
        isfinite(each.wanted) and len(apart) < MOST_APART for apart, _ in every for each in apart
    )
    return told and all(judge_further(program, formula, s).same for apart, s in every if apart)


_POLE = 1e200  # ratio of the exact value to float64's that shows a division by 0
FINITE_MASK = Diagnostic(
    "finite-mask",
    "the mask has a finite number instead of -inf",
    facts=("a fully masked row averages the masked entries, instead of nan or zeros",),
    help='use float("-inf"), or be sure that every row keeps an entry',
)


def _find_finite_mask(program: Program, sample: Sample) -> Diagnostic | None:
    """The finding if masking by a finite number explains the sample's difference; else None."""
    values = sample.make_inputs()
    usual = replace(sample, change=None).make_inputs()
    reals = {n: v for n, v in usual.items() if getattr(v, "is_floating_point", bool)()}
    try:
        ordinary = program.find_given_on_copies({**values, **reals}, sample.sizes)
        answer = program.run(values, sample.sizes, RunOptions(ordinary=ordinary))
    except CannotRunError:
        return None
    if answer.masked is None or not judge_at(program, sample, answer=answer).same:
        return None
    fact = f"{answer.masked:.0e} or less: it matters where scores come near it, {sample.describe()}"
    return replace(FINITE_MASK, facts=(*FINITE_MASK.facts, fact))


def _find_largest(values: Values) -> float:
    """The largest absolute value among the inputs."""
    tensors = [torch.as_tensor(value).detach() for value in values.values()]
    return max(
        (float(t.abs().max()) for t in tensors if t.is_floating_point() and t.numel()), default=0.0
    )


def _divides_by_zero(sample: Sample) -> bool:
    """Whether a divisor made of scalars is 0; False if a condition on scalars may exclude that."""
    found = False
    for part, evaluator in evaluate_parts(sample):
        inside = [*walk(part)]
        if not any(isinstance(each, ir.Scalar) for each in inside):
            continue
        match part:
            case ir.Compare():
                return False
            case ir.Pow(base, ir.Number(exponent)) if exponent < 0:
                if all(isinstance(each, _OF_NUMBERS) for each in inside):
                    found |= bool(evaluator.evaluate_node(base).tensor == 0)
    return found


_OF_NUMBERS = (ir.Scalar, ir.Number, ir.Size, ir.Add, ir.Mul, ir.Pow)


def describe_stop(sample: Sample, error: CannotRunError) -> Diagnostic:
    """The finding on code that stops near a limit of its sizes, or refuses sizes or values."""
    says = f"the code does not run {'with ' if sample.reason else ''}{sample.describe()}"
    return Diagnostic("stops", says, facts=(str(error),))


def _find_place(program: Program, sample: Sample, apart: Mismatch) -> tuple[int, ...]:
    """The position in the formula's result of an element of the code's result."""
    if apart.name not in program.results:
        return apart.place
    tensor = next(t for t in sample.system.results if t.name == apart.name)
    shape = [evaluate_extent(extent, sample.sizes) for extent in tensor.shape]
    places = torch.arange(prod(shape)).reshape(shape)
    ((_, positions),) = find_expected(program, {apart.name: places})
    return tuple(int(k) for k in torch.unravel_index(positions[apart.place], shape))


@dataclass(frozen=True)
class _Element:
    """A differing element of a result, with its value to many digits."""

    program: Program
    sample: Sample
    apart: Mismatch
    truth: Truth  # its value to many digits at given inputs, None if unknown
    least: float = CLEAR  # least relative difference

    def judge(self, values: Values, least: float) -> Diagnostic | str | None:
        """A finding (no difference), the difference in words, or None if neither is known."""
        found, wanted = self.apart.found, self.apart.wanted
        truth = self.truth(values)
        is_ordinary = self.sample.is_ordinary
        if truth is None:
            is_finite = isfinite(found) and isfinite(wanted)
            is_lost = self.sample.is_limit and not is_finite  # either side may have overflowed
            if is_ordinary and not (is_lost and self._leaves_range(values)):
                return str(self.apart)
            return None  # extreme inputs, and more digits do not decide
        if not isfinite(truth) or abs(truth) > _POLE * abs(wanted):
            says = f"the formula has no value at some inputs where the code has one: {truth}"
            undefined = Diagnostic("undefined", says, facts=(self._show_element(truth),))
            return undefined if isfinite(found) else None
        if self.sample.is_limit and not isfinite(found) and _divides_by_zero(self.sample):
            says = "the formula divides by a number that is 0, and the code has no value there"
            return Diagnostic("undefined", says, facts=(self._show_element(truth),))
        unit = max(abs(truth), least, CLEAR**2)
        off = abs(found - truth)
        if off <= self.least * unit:
            return self._say_digits("the formula as it is written", truth, wanted, unit)
        leaves = not isfinite(found) and (not is_ordinary or self.sample.is_limit)
        if leaves and self._leaves_range(values):
            return Diagnostic(
                "out-of-range",
                "the code leaves the range of float64 where the formula does not",
                facts=(self._show_element(truth),),
            )
        if off <= 2 * abs(wanted - truth) or off <= self._find_stable(values, truth):
            return self._say_digits("the code, as the formula does,", truth, found, unit)
        if is_ordinary and off > CLEAR * unit:  # more than rounding in the code explains
            return self._show_element(truth)
        if self._is_erratic(values) if is_ordinary else self._loses_digits(values):
            return self._say_digits("the code", truth, found, unit)
        return self._show_element(truth)

    def _show_element(self, truth: float) -> str:
        return f"{replace(self.apart, wanted=truth)}, {self.sample.describe()}"

    def _say_digits(self, who: str, truth: float, value: float, unit: float) -> Diagnostic:
        off = abs(value - truth) / unit
        size = f"is off by {off:.0e} of the value" if isfinite(off) else f"gives {value}"
        code = "digits-formula" if "written" in who else "digits-code"
        element = str(self.apart).split(" is ", maxsplit=1)[0]
        return Diagnostic(
            code,
            f"{who} loses digits in float64",
            facts=(
                f"{element} {size}: {self.apart.found!r} by the code, {self.apart.wanted!r} by the "
                f"formula, {truth!r} with many digits, {self.sample.describe()}",
            ),
        )

    def _find_stable(self, values: Values, truth: float) -> float:
        """The error that a backward stable evaluation may have, by moving inputs; 0 near a jump."""
        steps = []
        for near in (1e-10, 1e-13):
            moved = [self.truth(_perturb(values, near, seed), most=1) for seed in (1, 2)]
            known = [abs(each - truth) / near for each in moved if each is not None]
            steps.append(max(known, default=inf))
        if not all(map(isfinite, steps)) or steps[1] > 100 * steps[0]:
            return 0.0  # a discontinuity
        shapes = (tensor.shape for tensor in self.sample.system.results)
        sizes = [[evaluate_extent(n, self.sample.sizes) for n in shape] for shape in shapes]
        steps_of_one = count_steps(self.sample) / max(1, sum(map(prod, sizes)))
        # Cancelling parts, at inputs of the usual size, leave the rounding of the parts.
        usual = _find_largest(replace(self.sample, change=None).make_inputs())
        parts = find_magnitudes(self.sample) if _find_largest(values) <= usual else ()
        reach = max(filter(isfinite, parts), default=0.0)
        return _UNIT * max(1.0, steps_of_one) * (steps[0] + abs(truth) + reach)

    def _loses_digits(self, values: Values) -> bool:
        """Whether the error grows gradually on the way from ordinary inputs, with both signs."""
        start = replace(self.sample, change=None).make_inputs()
        near = [2.0**-k for k in range(0, _HALVINGS, 2)]
        low = 0.0
        for part in sorted({*near, *(1 - each for each in near[1:])}):
            off = abs(self._find_error(_blend(start, values, part)))
            high = part
            for _ in range(_HALVINGS):
                if off <= _SMALL[1]:
                    break
                middle = (low + high) / 2
                here = abs(self._find_error(_blend(start, values, middle)))
                low, high, off = (middle, high, off) if here < _SMALL[0] else (low, middle, here)
            if off >= _SMALL[0]:  # the error starts here, or at once
                return off <= _SMALL[1] and self._is_erratic(_blend(start, values, high))
            low = part
        return False

    def _find_error(self, values: Values) -> float:
        """The signed relative error of the code; infinite where it or the exact value is lost."""
        try:
            results = self.program.run(values, self.sample.sizes).results
        except CannotRunError:
            return inf
        names = [tensor.name for tensor in self.sample.system.results]
        found = float(results[names.index(self.apart.name)].detach()[self.apart.place])
        truth = self.truth(values, most=1)
        if truth is None or not isfinite(truth) or not isfinite(found):
            return inf
        return (found - truth) / max(abs(truth), CLEAR**2)

    def _is_erratic(self, values: Values) -> bool:
        """Whether the errors at nearby inputs have both signs, small errors aside."""
        errors = [self._find_error(_perturb(values, _NEAR, seed)) for seed in range(_NEARBY)]
        known = [error for error in errors if error < inf]
        largest = max(map(abs, known), default=inf)
        above, below = (sum(sign * e > largest / _ALIKE for e in known) for sign in (1, -1))
        return min(above, below) >= _FEWEST and largest < _ALIKE * _SMALL[1]

    def _leaves_range(self, values: Values) -> bool:
        """Whether an operation of the code overflows, or an exponential underflows."""
        try:
            return self.program.run(
                values, self.sample.sizes, RunOptions(is_watched=True)
            ).left_range
        except CannotRunError:
            return False


def _perturb(values: Values, near: float, seed: int) -> dict[str, Any]:
    """Nearby inputs: each real number changed by about this fraction of it."""
    generator = torch.Generator().manual_seed(seed)
    moved = dict(values)
    for name, value in values.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            steps = 2 * torch.rand(value.shape, generator=generator, dtype=value.dtype) - 1
            moved[name] = value * (1 - near * steps)
    return moved


def _blend(start: Values, end: Values, part: float) -> dict[str, Any]:
    """Inputs at a part of the way from `start` to `end`; only real ones move."""
    found = dict(end)
    for name, value in end.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point() and part < 1:
            found[name] = start[name] + (value - start[name]) * part
    return found
