"""Precision is part of the code: it runs in float32, float16 and bfloat16 too, as people run it.

The formula is evaluated in float64 at the same rounded inputs. How far a run may be from it is told
by the formula's own condition there: by what it loses itself in the shorter type, and by how much
it moves when its inputs do. Beyond that, code that takes another way than in float64 is different.
What it makes of shorter floats or of narrow integers by itself is named, and rules out a proof:
fields and equations know neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from derive.checker.further import vary_sizes
from derive.checker.judge import Outcome, find_expected, judge_at
from derive.checker.load import CannotRunError
from derive.checker.runs import How, Lowering
from derive.errors import Diagnostic
from derive.judge.evaluate import evaluate_system

if TYPE_CHECKING:
    from derive.checker.draws import Draw
    from derive.checker.pick import Picked
    from derive.checker.program import Program
    from derive.checker.runs import Answer

RULES_OUT_PROOF = frozenset({"lower-precision", "narrow-integer", "type-branch"})
_SLACK = 16.0  # times what the formula itself loses
_LOST = 0.05  # off by so much, the digits of a run are no rounding
_NEAR = 1e-4  # numbers that code computes differ by less in float32
_MOST_FAR = 8  # draws at sizes that a narrow integer does not hold
_TYPES = ("float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Short:
    """What the runs in shorter floats showed."""

    outcome: Outcome
    findings: tuple[Diagnostic, ...] = ()


def judge_short(picked: Picked) -> Short:
    """The code in each shorter type at the first draw, in float32 at every draw."""
    import torch

    program, first = picked.program, picked.draws[0]
    usual = program.run(first.make_inputs(), first.sizes, How(is_watched=True))
    runs = [(first, name) for name in _TYPES] + [(draw, "float32") for draw in picked.draws[1:]]
    findings: dict[str, Diagnostic] = {}
    for draw, name in runs:
        dtype = getattr(torch, name)
        given = _round(draw.make_inputs(), dtype)
        try:
            answer = program.run(given, draw.sizes, How(double=False, is_watched=True))
        except CannotRunError:  # torch itself does not have every operation in every type
            continue
        worst, where = _compare(program, draw, given, answer, name)
        other_way = draw is first and not _is_same_way(usual, answer)
        if where and (other_way or (name == "float32" and worst > _LOST)):
            return Short(Outcome(False, where, worst))
        if other_way:
            says = f"the code takes another way in {name} than in float64"
            findings.setdefault("type-branch", Diagnostic("type-branch", says))
        if name != "float32":
            continue
        for each in _name_lowerings(answer, worst):
            findings.setdefault(f"{each.code} {each.says}", each)
        if where and not answer.lowered:
            findings.setdefault("rounding", _say_rounding(where, worst))
    return _judge_narrow(program, first, usual, tuple(findings.values()))


def _judge_narrow(
    program: Program, draw: Draw, usual: Answer, findings: tuple[Diagnostic, ...]
) -> Short:
    """Sizes beyond what the narrow integers of the code hold."""
    import torch

    narrow = [each.dtype for each in usual.lowered if not _is_float(each)]
    most = sorted({torch.iinfo(getattr(torch, name)).max for name in narrow})
    beyond = (each for each in vary_sizes(draw, most) if each.is_limit)
    for far in islice(beyond, _MOST_FAR):
        outcome = judge_at(program, far)
        if outcome.is_clear:
            return Short(replace(outcome, difference=outcome.describe(far)), findings)
    return Short(Outcome(True), findings)


def _round(values: Mapping[str, Any], dtype: Any) -> dict[str, Any]:
    """Real tensors in a shorter type."""
    return {
        name: value.to(dtype) if getattr(value, "is_floating_point", bool)() else value
        for name, value in values.items()
    }


def _compare(
    program: Program, draw: Draw, given: Mapping[str, Any], answer: Answer, name: str
) -> tuple[float, str]:
    """How far the results are off, as a part of the largest element; and where, if that is far."""
    import torch

    floats = [getattr(torch, each.dtype) for each in answer.lowered if _is_float(each)]
    eps = max(torch.finfo(each).eps for each in (getattr(torch, name), *floats))
    exact = _round(given, torch.float64)
    wanted = _evaluate(draw, exact)
    moved = _evaluate(draw, _move(exact, eps))
    try:
        own = _evaluate(draw, given)
    except (RuntimeError, TypeError):  # an operation that torch does not have in this type
        own = moved
    worst, where = 0.0, ""
    expected = zip(find_expected(program, wanted), answer.results, strict=False)
    for (result, value), found in expected:
        if not value.is_floating_point() or found.shape != value.shape:
            continue
        off = _measure(found, value)
        lost = max(
            eps, _measure(own[result], wanted[result]), _measure(moved[result], wanted[result])
        )
        worst = max(worst, off)
        if off > _SLACK * lost and not where:
            where = f"in {name}, {result} is off by {off:.1e} of its largest element"
    return worst, where


def _evaluate(draw: Draw, values: Mapping[str, Any]) -> dict[str, Any]:
    found = evaluate_system(draw.system, values, draw.sizes)
    return {tensor.name: found[tensor.name] for tensor in draw.system.results}


def _move(values: Mapping[str, Any], eps: float) -> dict[str, Any]:
    """Each element a little larger or smaller, in turn."""
    import torch

    def move(value: Any) -> Any:
        signs = torch.arange(value.numel()).reshape(value.shape) % 2 * 2 - 1
        return value * (1 + eps * signs)

    return {
        name: move(value) if getattr(value, "is_floating_point", bool)() else value
        for name, value in values.items()
    }


def _measure(found: Any, wanted: Any) -> float:
    """The largest difference of finite elements, as a part of the largest one."""
    one, other = found.detach().double(), wanted.double()
    told = one.isfinite() & other.isfinite()
    if not bool(told.any()):
        return 0.0
    return float((one - other)[told].abs().max() / other[told].abs().max().clamp(min=1e-300))


def _is_same_way(usual: Answer, answer: Answer) -> bool:
    """Do two runs make the same calls at the same lines, with the same numbers?"""
    return usual.calls == answer.calls and all(
        _is_end(one) and _is_end(other) and (one > 0) == (other > 0)
        if abs(one - other) > _NEAR * max(abs(one), abs(other))  # nan is near anything
        else True
        for one, other in zip(usual.numbers, answer.numbers, strict=True)
    )


def _is_end(number: float) -> bool:
    """Is it the least or the largest number of a type, as masks have it?"""
    import torch

    return abs(number) in {torch.finfo(getattr(torch, t)).max for t in (*_TYPES, "float64")}


def _is_float(lowering: Lowering) -> bool:
    return "float" in lowering.dtype


def _name_lowerings(answer: Answer, off: float) -> Iterator[Diagnostic]:
    for each in answer.lowered:
        at = f"line {each.line}: " if each.line else ""
        if _is_float(each):
            yield Diagnostic(
                "lower-precision",
                f"{at}{each.call} computes in {each.dtype}",
                facts=(f"in float32 the results are off by {off:.1e} of their largest element",),
            )
        else:
            yield Diagnostic(
                "narrow-integer",
                f"{at}{each.call} makes {each.dtype}, which begins again where it is full",
                help="use torch.int64",
            )


def _say_rounding(where: str, off: float) -> Diagnostic:
    return Diagnostic(
        "rounding",
        f"{where}, more than the formula loses there",
        facts=() if off < _LOST else ("hardly a digit is left",),
        help="another order of the same operations may keep more digits",
    )
