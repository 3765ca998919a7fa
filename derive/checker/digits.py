"""Which side is right where float64 differs far out: the formula's element with many digits.

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
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from derive.checker.judge import CLEAR, Apart, find_expected, judge_at
from derive.checker.load import CannotRunError
from derive.checker.runs import How
from derive.errors import Diagnostic
from derive.ir.polynomial import evaluate_extent
from derive.judge.loops.digits import prepare_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from derive.checker.draws import Draw
    from derive.checker.program import Program
    from derive.notation.formula import Formula

    Values = Mapping[str, Any]
    Truth = Callable[..., float | None]

_ULPS = 64 * 2.0**-52  # what a stable evaluation may be off, beside the change of its inputs
_SMALL = (1e-8, 1e-4)  # errors at which rounding is told from another function
_HALVINGS = 20
_NEARBY, _NEAR = 12, 1e-2  # inputs beside one of these, and how far away
_ALIKE = 30  # the largest error by the smallest that counts beside it
_FEWEST = 2  # errors of either sign


@dataclass(frozen=True)
class Further:
    """What a special draw shows."""

    same: bool | None
    difference: str = ""
    findings: tuple[Diagnostic, ...] = ()


@dataclass
class Ruling:
    """What many digits say of the elements that differ at one draw."""

    difference: str = ""
    findings: dict[str, Diagnostic] = field(default_factory=dict)  # by code, the first of each


def rule(program: Program, formula: Formula, draw: Draw, apart: Sequence[Apart]) -> Ruling:
    """The first element in which the code is another function, else which side loses digits."""
    ruling = Ruling()
    entries: dict[str, Any] = {}
    values = draw.make_inputs()
    largest = {each.name: 0.0 for each in apart}
    for each in apart:
        if math.isfinite(each.wanted):
            largest[each.name] = max(largest[each.name], abs(each.wanted))
    for each in apart:
        if each.name not in entries:
            entries[each.name] = prepare_entry(formula, each.name)
        place = _find_place(program, draw, each)
        truth = partial(entries[each.name], place=place)
        element = _Element(program, draw, each, truth)
        said = element.judge(values, CLEAR * largest[each.name])
        if isinstance(said, str):
            ruling.difference = said
            return ruling
        if said is not None:
            ruling.findings.setdefault(said.code, said)
    return ruling


def judge_further(program: Program, formula: Formula, draw: Draw) -> Further:
    """Is the code the formula at a special draw, and what is to be said of it there?"""
    outcome = judge_at(program, draw)
    if outcome.error is not None:
        return _judge_error(program, draw, outcome.error)
    if not outcome.apart:
        return Further(outcome.same, outcome.difference)
    ruling = rule(program, formula, draw, outcome.apart)
    difference = ruling.difference
    if difference and draw.change is None:
        difference = outcome.describe(draw)
    return Further(not difference, difference, tuple(ruling.findings.values()))


def _judge_error(program: Program, draw: Draw, error: CannotRunError) -> Further:
    """Different where the code stops, unless it says itself that it does."""
    line = error.line or 0
    rows = program.code.source.splitlines()
    said = rows[line - 1].split() if 0 < line <= len(rows) else []
    if draw.is_limit or (said and said[0].strip("(").startswith(("raise", "assert"))):
        says = f"the code does not run with {draw.describe()}"
        return Further(None, findings=(Diagnostic("stops", says, facts=(str(error),)),))
    return Further(False, f"the code stops, {error}; {draw.describe()}")


def _find_place(program: Program, draw: Draw, apart: Apart) -> tuple[int, ...]:
    """The place in the formula's result of an element of the code's."""
    import torch

    if apart.name not in program.results:
        return apart.place
    tensor = next(t for t in draw.system.results if t.name == apart.name)
    shape = [evaluate_extent(extent, draw.sizes) for extent in tensor.shape]
    places = torch.arange(math.prod(shape)).reshape(shape)
    ((_, laid),) = find_expected(program, {apart.name: places})
    return tuple(int(k) for k in torch.unravel_index(laid[apart.place], shape))


@dataclass(frozen=True)
class _Element:
    """An element of a result that differs, by the code and with many digits."""

    program: Program
    draw: Draw
    apart: Apart
    truth: Truth

    def judge(self, values: Values, least: float) -> Diagnostic | str | None:
        """A finding, the difference in words, or None where nothing can be said."""
        found, wanted = self.apart.found, self.apart.wanted
        truth = self.truth(values)
        is_ordinary = self.draw.change is None
        if truth is None:
            return str(self.apart) if is_ordinary else None
        if not math.isfinite(truth):
            return self._say_undefined(truth) if math.isfinite(found) else None
        unit = max(abs(truth), least, CLEAR**2)
        off = abs(found - truth)
        if off <= CLEAR * unit:
            return self._say_digits("the formula as it is written", truth, wanted, unit)
        if off <= 2 * abs(wanted - truth) or off <= self._find_stable(values, truth):
            return self._say_digits("the code, as the formula does,", truth, found, unit)
        if is_ordinary:  # no rounding of the code makes a difference so large
            return self._show(truth)
        if not math.isfinite(found) and self._leaves_range(values):
            return Diagnostic(
                "out-of-range",
                "the code leaves the range of float64 where the formula does not",
                facts=(self._show(truth),),
            )
        if self._loses_digits(values):
            return self._say_digits("the code", truth, found, unit)
        return self._show(truth)

    def _show(self, truth: float) -> str:
        return f"{replace(self.apart, wanted=truth)}, {self.draw.describe()}"

    def _say_undefined(self, truth: float) -> Diagnostic:
        return Diagnostic(
            "undefined",
            f"the formula has no value at some inputs where the code has one: {truth}",
            facts=(self._show(truth),),
        )

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
                f"formula, {truth!r} with many digits, {self.draw.describe()}",
            ),
        )

    def _find_stable(self, values: Values, truth: float) -> float:
        """How far off a stable evaluation may be: by what a rounding of its inputs changes."""
        steps = []
        for near in (1e-10, 1e-13):
            moved = [self.truth(_move(values, near, seed), most=1) for seed in (1, 2)]
            known = [abs(each - truth) / near for each in moved if each is not None]
            steps.append(max(known, default=math.inf))
        if not all(map(math.isfinite, steps)) or steps[1] > 100 * steps[0]:
            return 0.0  # a jump
        return _ULPS * (steps[0] + abs(truth))

    def _loses_digits(self, values: Values) -> bool:
        """Does its error set in gradually, on the way from ordinary inputs, with either sign?"""
        start = replace(self.draw, change=None).make_inputs()
        near = [2.0**-k for k in range(0, _HALVINGS, 2)]
        low = 0.0
        for part in sorted({*near, *(1 - each for each in near[1:])}):
            off = self._find_error(_blend(start, values, part))
            high = part
            for _ in range(_HALVINGS):
                if off <= _SMALL[1]:
                    break
                middle = (low + high) / 2
                here = self._find_error(_blend(start, values, middle))
                low, high, off = (middle, high, off) if here < _SMALL[0] else (low, middle, here)
            if off >= _SMALL[0]:  # it sets in here, or at once
                return off <= _SMALL[1] and self._is_erratic(_blend(start, values, high))
            low = part
        return False

    def _find_error(self, values: Values) -> float:
        """The relative error of the code; infinite where it or the truth is not known."""
        error = self._find_signed(values)
        return math.inf if error is None else abs(error)

    def _find_signed(self, values: Values) -> float | None:
        found = self._run(values)
        truth = self.truth(values, most=1) if found is not None else None
        if truth is None or found is None or not math.isfinite(truth) or not math.isfinite(found):
            return None
        return (found - truth) / max(abs(truth), CLEAR**2)

    def _run(self, values: Values) -> float | None:
        try:
            results = self.program.run(values, self.draw.sizes).results
        except CannotRunError:
            return None
        names = [tensor.name for tensor in self.draw.system.results]
        return float(results[names.index(self.apart.name)][self.apart.place])

    def _is_erratic(self, values: Values) -> bool:
        """Do the errors at inputs nearby have either sign, those among them that are not small?"""
        errors = [self._find_signed(_move(values, _NEAR, seed)) for seed in range(_NEARBY)]
        known = [error for error in errors if error is not None]
        largest = max(map(abs, known), default=math.inf)
        above, below = (sum(sign * e > largest / _ALIKE for e in known) for sign in (1, -1))
        return min(above, below) >= _FEWEST and largest < _ALIKE * _SMALL[1]

    def _leaves_range(self, values: Values) -> bool:
        """Does an operation of the code overflow, or an exponential become 0?"""
        try:
            return self.program.run(values, self.draw.sizes, How(is_watched=True)).left_range
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
