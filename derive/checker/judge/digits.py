"""Which digits count: rounding told from another function, and runs in shorter floats.

Where float64 differs, the formula's element with many digits decides:

    the code is right      the formula, evaluated as it is written, loses digits: a finding
    the code loses digits  its error sets in gradually and has either sign nearby: a finding
    the code overflows     an exponential or a product of it leaves the range: a finding
    the formula has none   nan, or a pole, where the code has a number: a finding
    else                   it is another function: different

Rounding is told from another function on the way from ordinary inputs to the special ones: where an
error is still small, that of another function has one sign and changes smoothly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from derive.checker.inputs import find_magnitudes
from derive.checker.judge import (
    CLEAR,
    Apart,
    count_results,
    count_steps,
    find_expected,
    judge_at,
)
from derive.checker.runs import How
from derive.checker.source.load import CannotRunError
from derive.errors import Diagnostic
from derive.ir import nodes as ir
from derive.ir.polynomial import evaluate_extent
from derive.ir.walk import walk
from derive.judge.evaluate import Evaluator
from derive.judge.loops.entries import prepare_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from derive.checker.program import Program
    from derive.checker.runs import Answer
    from derive.checker.samples import Sample
    from derive.notation.formula import Formula

    Values = Mapping[str, Any]
    Truth = Callable[..., float | None]


_UNIT = 2.0**-53  # what one operation may be off
_SMALL = (_UNIT ** (1 / 2), _UNIT ** (1 / 4))  # errors that leave half and a quarter of the digits
_HALVINGS = 20
_NEARBY, _NEAR = 12, 1e-2  # inputs beside one of these, and how far away
_ALIKE = 30  # the largest error by the smallest that counts beside it
_FEWEST = 2  # errors of either sign


@dataclass(frozen=True)
class Further:
    """What a special sample or a run in shorter floats shows."""

    same: bool | None
    difference: str = ""
    findings: tuple[Diagnostic, ...] = ()


def rule(
    program: Program, formula: Formula, sample: Sample, apart: Sequence[Apart], least: float = CLEAR
) -> Further:
    """The first element in which the code is another function, else which side loses digits.

    Elements that differ by less than `least` of their size are left alone.
    """
    findings: dict[str, Diagnostic] = {}  # by code, the first of each
    entries: dict[str, Any] = {}
    values = sample.make_inputs()
    largest = {each.name: 0.0 for each in apart}
    for each in apart:
        if math.isfinite(each.wanted):
            largest[each.name] = max(largest[each.name], abs(each.wanted))
    for each in apart:
        if each.name not in entries:
            entries[each.name] = prepare_entry(formula, each.name)
        place = _find_place(program, sample, each)
        truth = partial(entries[each.name], place=place)
        element = _Element(program, sample, each, truth, least)
        said = element.judge(values, CLEAR * largest[each.name])
        if isinstance(said, str):
            return Further(False, said, tuple(findings.values()))
        if said is not None:
            findings.setdefault(said.code, said)
    return Further(True, findings=tuple(findings.values()))


def judge_further(
    program: Program,
    formula: Formula,
    sample: Sample,
    least: float = CLEAR,
    answer: Answer | CannotRunError | None = None,
) -> Further:
    """Is the code the formula at a special sample, and what is to be said of it there?

    `answer` is what the code gave there, if it has run already.
    """
    outcome = judge_at(program, sample, least=least, answer=answer)
    if outcome.error is not None:
        return _judge_error(program, sample, outcome.error)
    if not outcome.apart:
        return Further(outcome.same, outcome.difference)
    soft = _find_finite_mask(program, sample) if sample.change is not None else None
    if soft is not None:
        return Further(True, findings=(soft,))
    found = rule(program, formula, sample, outcome.apart, least)
    if found.difference and sample.change is None:
        found = replace(found, difference=outcome.describe(sample))
    if found.difference and sample.is_remark:
        says = "the code is not the formula at inputs so near 0 that float32 does not hold them"
        return Further(True, findings=(Diagnostic("far-below", says, facts=(found.difference,)),))
    return found


FINITE_MASK = Diagnostic(
    "finite-mask",
    "a finite number stands for -inf in the mask",
    facts=("a row with nothing left gives an average of what is masked, not nan or zeros",),
    help='use float("-inf"), or be sure that every row keeps an entry',
)


def _find_finite_mask(program: Program, sample: Sample) -> Diagnostic | None:
    """The finding, where a finite number in a mask makes all the difference at this sample."""
    values = sample.make_inputs()
    usual = replace(sample, change=None).make_inputs()
    reals = {n: v for n, v in usual.items() if getattr(v, "is_floating_point", bool)()}
    ordinary = program.find_own({**values, **reals}, sample.sizes)
    masked: list[float] = []

    def run(values: Values, sizes: Mapping[str, Any]) -> Answer:
        answer = program.run(values, sizes, How(ordinary=ordinary))
        masked.extend(() if answer.masked is None else [answer.masked])
        return answer

    try:
        is_same = judge_at(program, sample, run).same
    except CannotRunError:
        return None
    if not masked or not is_same:
        return None
    fact = f"{masked[0]:.0e} or less: it counts where scores come near it, {sample.describe()}"
    return replace(FINITE_MASK, facts=(*FINITE_MASK.facts, fact))


def _judge_error(program: Program, sample: Sample, error: CannotRunError) -> Further:
    """Different where the code stops, unless it says itself that it does."""
    line = error.line or 0
    rows = program.code.source.splitlines()
    said = rows[line - 1].split() if 0 < line <= len(rows) else []
    if sample.is_limit or (said and said[0].strip("(").startswith(("raise", "assert"))):
        says = f"the code does not run with {sample.describe()}"
        return Further(None, findings=(Diagnostic("stops", says, facts=(str(error),)),))
    if sample.change is not None and "ValueError: " in str(error) and _overflows(sample):
        says = "the code leaves the range of float64 where the formula does not, and stops there"
        fact = f"{error}; {sample.describe()}"
        return Further(None, findings=(Diagnostic("out-of-range", says, facts=(fact,)),))
    return Further(False, f"the code stops, {error}; {sample.describe()}")


def _overflows(sample: Sample) -> bool:
    """Is a part of the formula infinite there, or an exponential 0, at a plain number?"""
    evaluator = Evaluator(sample.make_inputs(), sample.sizes, sample.system.empty_row)
    for equation in sample.system.equations:
        evaluator.define(equation)
    parts = (part for each in sample.system.equations for part in walk(each.value))
    for part in parts:
        if isinstance(part, ir.Call) and part.function in {"exp", "sigmoid", "softplus", "erfc"}:
            values = evaluator.find(part).tensor
            if bool((values.isinf() | (values == 0)).any()):
                return True
    return any(math.isinf(size) for size in find_magnitudes(sample))


def _find_place(program: Program, sample: Sample, apart: Apart) -> tuple[int, ...]:
    """The place in the formula's result of an element of the code's."""
    import torch

    if apart.name not in program.results:
        return apart.place
    tensor = next(t for t in sample.system.results if t.name == apart.name)
    shape = [evaluate_extent(extent, sample.sizes) for extent in tensor.shape]
    places = torch.arange(math.prod(shape)).reshape(shape)
    ((_, laid),) = find_expected(program, {apart.name: places})
    return tuple(int(k) for k in torch.unravel_index(laid[apart.place], shape))


@dataclass(frozen=True)
class _Element:
    """An element of a result that differs, by the code and with many digits."""

    program: Program
    sample: Sample
    apart: Apart
    truth: Truth
    least: float = CLEAR  # of its size, by which it has to differ

    def judge(self, values: Values, least: float) -> Diagnostic | str | None:
        """A finding, the difference in words, or None where nothing can be said."""
        found, wanted = self.apart.found, self.apart.wanted
        truth = self.truth(values)
        is_ordinary = self.sample.change is None
        if truth is None:
            if is_ordinary:
                return str(self.apart)
            if not math.isfinite(found) or not math.isfinite(wanted):
                return None
            says = "code and formula differ in float64 far out, where no digits tell which is right"
            return Diagnostic("untold", says, facts=(f"{self.apart}, {self.sample.describe()}",))
        if not math.isfinite(truth):
            says = f"the formula has no value at some inputs where the code has one: {truth}"
            undefined = Diagnostic("undefined", says, facts=(self._show(truth),))
            return undefined if math.isfinite(found) else None
        unit = max(abs(truth), least, CLEAR**2)
        off = abs(found - truth)
        if off <= self.least * unit:
            return self._say_digits("the formula as it is written", truth, wanted, unit)
        leaves = not math.isfinite(found) and (not is_ordinary or self.sample.is_limit)
        if leaves and self._leaves_range(values):
            return Diagnostic(
                "out-of-range",
                "the code leaves the range of float64 where the formula does not",
                facts=(self._show(truth),),
            )
        if off <= 2 * abs(wanted - truth) or off <= self._find_stable(values, truth):
            return self._say_digits("the code, as the formula does,", truth, found, unit)
        if is_ordinary and off > CLEAR * unit:  # no rounding of the code makes so much
            return self._show(truth)
        if self._is_erratic(values) if is_ordinary else self._loses_digits(values):
            return self._say_digits("the code", truth, found, unit)
        return self._show(truth)

    def _show(self, truth: float) -> str:
        return f"{replace(self.apart, wanted=truth)}, {self.sample.describe()}"

    def _say_digits(self, who: str, truth: float, value: float, unit: float) -> Diagnostic:
        off = abs(value - truth) / unit
        size = f"is off by {off:.0e} of the value" if math.isfinite(off) else f"gives {value}"
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
        """How far off a stable evaluation may be: a rounding of its inputs for each step."""
        steps = []
        for near in (1e-10, 1e-13):
            moved = [self.truth(_move(values, near, seed), most=1) for seed in (1, 2)]
            known = [abs(each - truth) / near for each in moved if each is not None]
            steps.append(max(known, default=math.inf))
        if not all(map(math.isfinite, steps)) or steps[1] > 100 * steps[0]:
            return 0.0  # a jump
        steps_of_one = count_steps(self.sample) / max(1, count_results(self.sample))
        return _UNIT * max(1.0, steps_of_one) * (steps[0] + abs(truth))

    def _loses_digits(self, values: Values) -> bool:
        """Does its error set in gradually, on the way from ordinary inputs, with either sign?"""
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
            if off >= _SMALL[0]:  # it sets in here, or at once
                return off <= _SMALL[1] and self._is_erratic(_blend(start, values, high))
            low = part
        return False

    def _find_error(self, values: Values) -> float:
        """The relative error of the code; infinite where it or the truth is not known."""
        try:
            results = self.program.run(values, self.sample.sizes).results
        except CannotRunError:
            return math.inf
        names = [tensor.name for tensor in self.sample.system.results]
        found = float(results[names.index(self.apart.name)][self.apart.place])
        truth = self.truth(values, most=1)
        if truth is None or not math.isfinite(truth) or not math.isfinite(found):
            return math.inf
        return (found - truth) / max(abs(truth), CLEAR**2)

    def _is_erratic(self, values: Values) -> bool:
        """Do the errors at inputs nearby have either sign, those among them that are not small?"""
        errors = [self._find_error(_move(values, _NEAR, seed)) for seed in range(_NEARBY)]
        known = [error for error in errors if error < math.inf]
        largest = max(map(abs, known), default=math.inf)
        above, below = (sum(sign * e > largest / _ALIKE for e in known) for sign in (1, -1))
        return min(above, below) >= _FEWEST and largest < _ALIKE * _SMALL[1]

    def _leaves_range(self, values: Values) -> bool:
        """Does an operation of the code overflow, or an exponential become 0?"""
        try:
            return self.program.run(values, self.sample.sizes, How(is_watched=True)).left_range
        except CannotRunError:
            return False


def _move(values: Values, near: float, seed: int) -> dict[str, Any]:
    """Inputs beside these, each real number changed by about this part of it."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    moved = dict(values)
    for name, value in values.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            steps = 2 * torch.rand(value.shape, generator=generator, dtype=value.dtype) - 1
            moved[name] = value * (1 - near * steps)
    return moved


def _blend(start: Values, end: Values, part: float) -> dict[str, Any]:
    """Inputs on the way from the ones to the others."""
    import torch

    found = dict(end)
    for name, value in end.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point() and part < 1:
            found[name] = start[name] + (value - start[name]) * part
    return found
