"""Precision and range: runs in shorter floats, and at sizes at which types are full.

Precision is part of the code: it runs in float32, float16 and bfloat16 too, as people run it. How
far such a run may be from the formula is told by the formula's own condition there: by what it
loses itself in the shorter type, and by how much it moves when its inputs do. Beyond that, code
that takes another way than in float64 is different. What it makes of shorter floats or of narrow
integers by itself is named, and rules out a proof: fields and equations know neither. At logits of
1 and of 1e4 it has to be finite where the formula is.

How the code's numbers grow from ordinary sizes to one far beyond tells at which size a type of its
would be full: integers begin again, a short float counts no further, factors leave the range.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice, product
from typing import Any

from derive.checker.judge import CLEAR, Apart, Further, judge_further
from derive.checker.pick import Choice
from derive.checker.processes import CannotRunError
from derive.checker.program import Program
from derive.checker.runs import Answer, How, modes
from derive.checker.samples import (
    MOST_TOGETHER,
    Sample,
    count,
    evaluate_parts,
    fill_whole,
    lengthen,
    list_tensors,
    place_integers,
    scale,
    set_signs,
)
from derive.errors import Diagnostic
from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.libraries import torch
from derive.notation.formula import Formula

Values = Mapping[str, Any]

RULES_OUT_PROOF = {
    *("lower-precision", "narrow-integer", "type-branch", "not-quite", "far-below"),
    *("outside", "asks-chance", "keeps-state", "not-beyond"),
}
_SLACK = 16.0  # times what the formula itself loses
_LOST = 0.05  # off by so much, the digits of a run are no rounding
_NEAR_NUMBER = 1e-4  # numbers that code computes differ by less in float32
_MORE = 4.0  # times the error at ordinary sizes
_TYPES = ("float32", "float16", "bfloat16")
_SHORT = How(double=False, is_watched=True)
_AS_ASKED = replace(_SHORT, asked=True)
_WIDE = 2.0**40  # an integer that int64 holds, and also its parts are beyond shorter types
_DRAWS = 8  # of inputs, at which results are whole numbers
_FROM_WHOLE = replace(_SHORT, from_whole=True, most_lines=20_000, most_elements=1 << 24)


def judge_short(choice: Choice, formula: Formula) -> Further:
    """The code in each shorter type at the first sample, in float32 at every sample."""
    program, first = choice.program, choice.samples[0]
    usual = program.run(first.make_inputs(), first.sizes, How(is_watched=True))
    findings: dict[str, Diagnostic] = {}

    def keep(found: Iterable[Diagnostic]) -> None:
        for each in found:
            findings.setdefault(f"{each.code} {each.says}", each)

    runs = [(first, name) for name in _TYPES]
    for sample, name in (*runs, *((sample, "float32") for sample in choice.samples[1:])):
        found = _run_rounded(program, sample, name, _SHORT)
        if found is None:
            continue
        answer, worst, where = found
        other_way = sample is first and not _is_same_way(usual, answer)
        if where and (other_way or (name == "float32" and worst > _LOST)):
            return Further(False, where)
        if other_way:
            says = f"the code takes another way in {name} than in float64"
            findings.setdefault("type-branch", Diagnostic("type-branch", says))
        if name != "float32":
            continue
        keep(_name_lowerings(answer.lowered, worst))
        if where and not answer.lowered:
            rounding = Diagnostic(
                "rounding",
                f"{where}, more than the formula loses there",
                facts=() if worst < _LOST else ("hardly a digit is left",),
                help="another order of the same operations may keep more digits",
            )
            findings.setdefault("rounding", rounding)
    for dtype in usual.cuts_to:
        limit = modes.find_limit(getattr(torch, dtype))
        far = replace(scale(first, 4.0 * limit), reason=f"inputs beyond {limit:g}")
        further = judge_further(program, formula, far)
        if further.same is False and dtype != "int64":
            return Further(False, further.difference)
        if further.same is False:
            says = "the code cuts real numbers to int64, which does not hold all of them"
            told = Diagnostic("narrow-integer", says, facts=(further.difference,))
            findings.setdefault("cut", told)
    keep(_find_narrowed(program, first))
    short, asked = Further(True), set[modes.Lowering]()
    for sample in choice.samples:
        run = usual if sample is first else program.run(sample.make_inputs(), sample.sizes)
        if not asked.issuperset(run.shorter) and short.same:
            asked |= {*run.shorter}
            short = judge_lowered(program, sample)
            keep(short.findings)
    return replace(short, findings=tuple(findings.values()))


def _find_narrowed(program: Program, sample: Sample) -> Iterator[Diagnostic]:
    """Findings for types that do not hold the integers which nothing bounds.

    Shorter floats count where the formula's results are whole numbers.
    """
    for far in place_integers(sample, _WIDE):
        draws = (replace(sample, seed=seed) for seed in range(_DRAWS))
        results = (r for each in draws for r in each.evaluate(each.make_inputs()).values())
        is_whole = all(bool((r == r.real.round()).all()) for r in results)
        try:
            answer = program.run(far.make_inputs(), far.sizes, _FROM_WHOLE)
        except CannotRunError:  # of integers that the code bounds itself
            continue
        full = [e for e in answer.full if (is_whole if e.is_float else e.dtype != "int64")]
        first = {e.dtype: e for e in reversed(full)}.values()  # the others may have it from it
        full = [e for e in full if e in first or e in answer.lowered or not e.is_float]
        for what, told in zip(full, _name_lowerings(full, 0.0), strict=True):
            limit = modes.find_limit(getattr(torch, what.dtype))
            fact = f"it holds whole numbers up to {limit:.0f}; the formula's have no such bound"
            yield replace(told, facts=(fact,))


def judge_lowered(program: Program, sample: Sample) -> Further:
    """What comes of the shorter floats that the code asks for, at one sample."""
    findings: list[Diagnostic] = []
    told = f" of their largest element{f', {sample.reason}' if sample.reason else ''}"
    for name, how in (("float32", _SHORT), ("float64", _AS_ASKED)):
        run = _run_rounded(program, sample, name, how)
        if run is None:
            continue
        answer, off, where = run
        if where and off > _LOST:
            return Further(False, f"{where}, {sample.describe()}")
        if name == "float32":
            findings += _name_lowerings(answer.lowered, off, told)
        elif off > _SLACK * max(
            _find_lost(sample, sample.make_inputs(), torch.finfo(torch.float64).eps).values()
        ):
            single = [each for each in answer.lowered if each.dtype == "float32"]
            fact = f"with float64 arguments the results are off by {off:.1e}{told}"
            harmless = "arguments in float32 lose nothing by it"
            named = _name_lowerings(single, off)
            findings += [replace(each, facts=(fact, harmless)) for each in named]
    if not sample.reason:
        usual, _ = _run_as_asked(program, sample)
        dtypes = dict.fromkeys(e.dtype for e in usual.lowered if e.is_float) if usual else ()
        limits = [modes.find_limit(getattr(torch, name)) for name in dtypes]
        for far in (each for limit in limits for each in place_integers(sample, limit)):
            difference = _judge_as_asked(program, far, sample)
            if difference:
                return Further(False, difference, tuple(findings))
    return Further(True, findings=tuple(findings))


def _run_rounded(
    program: Program, sample: Sample, name: str, how: How
) -> tuple[Answer, float, str] | None:
    """A run in a type, how far it is off, and where; None where torch lacks an operation in it."""
    given = _round(sample.make_inputs(), getattr(torch, name))
    try:
        answer = program.run(given, sample.sizes, how)
    except CannotRunError:
        return None
    floats = [getattr(torch, each.dtype) for each in answer.lowered if each.is_float]
    eps = max(torch.finfo(each).eps for each in (getattr(torch, name), *floats))
    lost = _find_lost(sample, given, eps)
    worst, where = 0.0, ""
    for result, found, value in program.pair(answer, sample.evaluate(_round(given, torch.float64))):
        if value.is_floating_point() and found.shape == value.shape:
            off = _measure(found, value)
            worst = max(worst, off)
            if off > _SLACK * lost[result] and not where:
                where = f"in {name}, {result} is off by {off:.1e} of its largest element"
    return answer, worst, where


def _run_as_asked(program: Program, sample: Sample) -> tuple[Answer | None, float]:
    """The run in which the code gets the types that it asks for, and how far it is off."""
    values = sample.make_inputs()
    try:
        answer = program.run(values, sample.sizes, _AS_ASKED)
    except CannotRunError:
        return None, 0.0
    pairs = program.pair(answer, sample.evaluate(values))
    return answer, max((_measure(f, v) for _, f, v in pairs if f.shape == v.shape), default=0.0)


def _judge_as_asked(program: Program, far: Sample, near: Sample) -> str:
    """The difference where shorter floats of the code do not hold its whole numbers."""
    answer, off = _run_as_asked(program, far)
    short = [each for each in answer.full if each.is_float] if answer is not None else []
    if not short or off <= _MORE * _run_as_asked(program, near)[1] + CLEAR:
        return ""
    place = f"line {short[0].line}: {short[0].call}" if short[0].line else short[0].call
    says = f"{place} makes {short[0].dtype}, which does not hold all whole numbers there"
    return f"the results are off by {off:.1e} of their largest element, {far.describe()}; {says}"


def judge_far(
    program: Program, formula: Formula, far: Sample, near: Sample, answer: Answer | CannotRunError
) -> Further:
    """A size far beyond the others: also where the code's integers and short floats are full."""
    further = judge_further(program, formula, far, CLEAR, answer)
    if further.same is False or isinstance(answer, CannotRunError):
        return further
    difference = _find_wrapped(program, far, answer) if answer.full else ""
    if not difference and answer.shorter:
        difference = _judge_as_asked(program, far, near)
    findings = (*further.findings, *_name_lowerings(answer.full, 0.0, far.describe()))
    if difference:
        return Further(False, difference)
    return replace(further, findings=findings)


def _find_wrapped(program: Program, far: Sample, answer: Answer) -> str:
    """An element, however small, that is another where whole numbers did not fit their type."""
    for name, result, value in program.pair(answer, far.evaluate(far.make_inputs())):
        if result.shape != value.shape or result.is_complex() or value.is_complex():
            continue
        one, other = result.detach().double(), value.double()
        off = other.isfinite() & ~((one - other).abs() <= _LOST * other.abs())
        if bool(off.any()):
            place = tuple(int(k) for k in off.nonzero()[0])
            what = answer.full[0]
            full = f"line {what.line}: {what.call} makes {what.dtype}, which is full there"
            shown = Apart(name, place, float(one[place]), float(other[place]))
            return f"{shown}, {far.describe()}; {full}"
    return ""


def is_growing(near: Answer, far: Answer) -> bool:
    """Do numbers of the code grow or vanish with a size, as a power of it would not?"""
    one, other = (each.reach.get("float64", (1.0, 1.0)) for each in (near, far))
    return any(abs(math.log(there / here)) > _GROWN for here, there in zip(one, other, strict=True))


def pass_full(far: Sample, there: Answer, name: str, near: Answer, start: int) -> list[Sample]:
    """The sample at sizes beyond which a type of the code's would be full, by how numbers grew."""
    found: list[float] = []
    end = far.sizes[name]
    longer = math.log(end / start)
    single = torch.finfo(torch.float32)
    for kind, (least, most) in there.reach.items():
        low, high = near.reach.get(kind, (least, most))
        if kind != "float64":  # one more, as positions are counted from 0
            pairs = [(high + 1, most + 1, modes.find_limit(getattr(torch, kind)))]
        elif is_growing(near, there):
            pairs = [(low, least, single.smallest_normal * single.eps), (high, most, single.max)]
        else:
            pairs = []
        for one, other, limit in pairs:
            steps = math.log(other / one) if one > 0 < other else 0.0
            left = math.log(limit / other) if other > 0 else 0.0
            if steps * left > 0 and steps <= _STEEPEST * longer and kind != "float64":
                found.append(end * math.exp(min(left * longer / steps, 40.0)))
            elif steps * left > 0:
                found.append(end + left * (end - start) / steps)
    found = [more * size for size in found for more in _BEYOND if end < size < _LONGEST]
    sizes = sorted({int(size) + 2 for size in found})
    fars = filter(None, (lengthen(far, name, size) for size in sizes))
    samples = (each for one in fars for each in (one, fill_whole(one)) if each is not None)
    return [each for each in samples if count(each) <= MOST_TOGETHER][:_MOST_FULL]


_MOST_FULL = 6  # such samples
_BEYOND = (1.02, 1.3)  # times what is expected to be the last size, which may be somewhat off
_STEEPEST = 12.0  # the power of a size that whole numbers grow with, rather than by factors
_GROWN = 14.0  # natural logarithm by which floats grow or vanish before more is feared
_LONGEST = 1 << 20


def _runs(program: Program, sample: Sample) -> bool:
    """Does the code run in float64 there, or does it refuse such inputs itself?"""
    with suppress(CannotRunError):
        program.run(sample.make_inputs(), sample.sizes)
        return True
    return False


def _round(values: Mapping[str, Any], dtype: Any) -> dict[str, Any]:
    """Real tensors in a shorter type, complex ones with parts of it, but none below float32."""
    found, parts = dict(values), torch.promote_types(dtype, torch.float32)
    for name, value in values.items():
        if getattr(value, "is_floating_point", bool)():
            found[name] = value.to(dtype)
        elif getattr(value, "is_complex", bool)():
            found[name] = value.to(parts.to_complex())
    return found


def _find_lost(sample: Sample, given: Values, eps: float) -> dict[str, float]:
    """What the formula loses by itself in a type, and by roundings of its inputs; by result."""

    def move(value: Any) -> Any:
        """Each element a little larger or smaller, in turn."""
        if not getattr(value, "is_floating_point", bool)():
            return value
        signs = torch.arange(value.numel()).reshape(value.shape) % 2 * 2 - 1
        return value * (1 + eps * signs)

    exact = _round(given, torch.float64)
    wanted = sample.evaluate(exact)
    moved = sample.evaluate({name: move(value) for name, value in exact.items()})
    try:
        own = sample.evaluate(given)
    except (RuntimeError, TypeError):  # an operation that torch does not have in this type
        own = moved
    return {
        name: max(eps, _measure(own[name], value), _measure(moved[name], value))
        for name, value in wanted.items()
    }


def _measure(found: Any, wanted: Any) -> float:
    """The largest difference of finite elements, as a part of the largest one."""
    one, other = found.detach().cdouble(), wanted.cdouble()
    told = one.isfinite() & other.isfinite()
    if not bool(told.any()):
        return 0.0
    return float((one - other)[told].abs().max() / other[told].abs().max().clamp(min=1e-300))


def _is_same_way(usual: Answer, answer: Answer) -> bool:
    """Do two runs make the same calls at the same lines, with the same numbers?"""
    # The least and the largest number of a type, as masks have them, are alike.
    ends = {torch.finfo(getattr(torch, t)).max for t in (*_TYPES, "float64")}
    # A number that becomes a tensor of the type that it meets is no step.
    one, other = ([c for c in each.calls if c[0] != "as_tensor"] for each in (usual, answer))
    return one == other and not any(
        abs(one - other) > _NEAR_NUMBER * max(abs(one), abs(other))  # nan is near anything
        and not (abs(one) in ends and abs(other) in ends and (one > 0) == (other > 0))
        for one, other in zip(usual.numbers, answer.numbers, strict=True)
    )


def _name_lowerings(
    lowered: Iterable[modes.Lowering], off: float, told: str = " of their largest element"
) -> Iterator[Diagnostic]:
    for each in lowered:
        at = f"line {each.line}: " if each.line else ""
        if each.is_float:
            yield Diagnostic(
                "lower-precision",
                f"{at}{each.call} computes in {each.dtype}",
                facts=(f"in float32 the results are off by {off:.1e}{told}",) if off else (),
            )
        else:
            yield Diagnostic(
                "narrow-integer",
                f"{at}{each.call} makes {each.dtype}, which begins again where it is full",
                help="use torch.int64" if each.dtype != "int64" else "use real numbers",
            )


_COMMON = 1000.0  # that inputs have in common; float32 holds what they differ by to four digits


def find_cancelling(program: Program, sample: Sample) -> Iterator[Diagnostic]:
    """A finding where terms cancel in float32 that the formula does not take apart."""
    far = scale(sample, 1.0, more=_COMMON)
    found = _run_rounded(program, far, "float32", _SHORT)
    if found is not None and found[2] and not found[0].lowered:
        says = "large terms cancel in the code, and digits are lost that the formula keeps"
        advice = "subtract first what the inputs have in common, as the formula does"
        yield Diagnostic("cancels", says, facts=(f"{found[2]}, {far.describe()}",), help=advice)


LARGE = 1e4  # the size of a logit that float32 holds easily and whose exponential it does not
_MOST_SIGNS = 16  # of the inputs, that are tried to have all logits below 0
_SCALES = (1.0, 10.0, 100.0, 1000.0, 10_000.0)


def find_unstable(program: Program, sample: Sample) -> tuple[Diagnostic, ...]:
    """A finding for each type in which the code is not finite where the formula is."""
    factor = _find_scale(sample)
    places = [(sample, "logits of 1")]
    if factor != 1.0:
        places.append((scale(sample, factor), "logits of 1e4"))
        names = [entry.name for entry in list_tensors(sample.system, "real")]
        for signs in islice(product((-1, 1), repeat=len(names)), _MOST_SIGNS):
            low = replace(sample, change=set_signs(dict(zip(names, signs, strict=True)), factor))
            if any(v.numel() and float(v.max()) <= -LARGE / 10 for v in _find_logits(low)):
                places.append((low, "logits of -1e4 alone"))
                break
    found = (
        next(filter(None, (find_loss(program, *place, dtype) for place in places)), None)
        for dtype in (torch.float32, torch.bfloat16)
    )
    return tuple(filter(None, found))


def _find_scale(sample: Sample) -> float:
    """The factor of the inputs at which the logits reach 1e4; 1 where there are none."""
    for factor in _SCALES:
        for values in _find_logits(scale(sample, factor)):
            finite = values[values.isfinite()] if values.numel() else values
            if finite.numel() and float(finite.abs().max()) >= LARGE:
                return factor
    return 1.0


def _find_logits(sample: Sample) -> Iterator[Any]:
    """The values of what is exponentiated, as far as it is open to view."""
    for part, evaluator in evaluate_parts(sample):
        match part:
            case ir.Along(kind, _, _, body) | ir.Reduce(kind, _, _, body) if ROWS[kind].is_slow:
                yield evaluator.evaluate_node(body).tensor
            case ir.Call("exp", (body,)):
                yield evaluator.evaluate_node(body).tensor


def find_loss(program: Program, sample: Sample, at: str, dtype: Any = None) -> Diagnostic | None:
    """A finding where code is not finite in a type, float32, and the formula is a number of it."""
    dtype = dtype or torch.float32
    given = _round(sample.make_inputs(), dtype)
    wanted = sample.evaluate(_round(given, torch.float64))
    short = str(dtype).removeprefix("torch.")
    try:
        answer = program.run(given, sample.sizes, How(double=False))
    except CannotRunError as error:  # a type that the code cannot run in is a remark of its own
        if dtype is torch.float32 and _runs(program, sample):
            text = " ".join(str(error).split())
            return Diagnostic("not-in-float32", f"the code does not run in float32: {text}")
        return None
    top = torch.finfo(dtype).max / 4
    for name, result, value in program.pair(answer, wanted):
        if not result.is_floating_point() or result.shape != value.shape:
            continue
        lost = value.isfinite() & (value.abs() < top) & ~result.double().isfinite()
        if bool(lost.any()):  # at a pole of the formula it is not, without an overflow
            exact = program.run(_round(given, torch.float64), sample.sizes, How(is_watched=True))
            there = next(each for n, each, _ in program.pair(exact, wanted) if n == name)
            lost &= there.isfinite() | exact.left_range
        if bool(lost.any()):
            place = tuple(lost.nonzero()[0].tolist())
            shown = f"{name}[{', '.join(map(str, place))}] is {float(result[place])}"
            help = "keep what is multiplied over and over near 1, or add up its logarithms"
            if "logits" in at:
                help = "subtract the maximum before exp, or use torch.softmax or torch.logsumexp"
            return Diagnostic(
                "unstable",
                f"right in exact arithmetic, not finite in {short} at {at}",
                facts=(f"{shown}, the formula says {float(value[place]):.6g}",),
                help=help,
            )
    return None
