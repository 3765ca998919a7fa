"""Precision and range: runs in shorter floats, and at sizes at which types overflow.

The code also runs in float32, float16 and bfloat16. The tolerance there is the formula's own
condition: its loss in the shorter type, and its change under roundings of the inputs. Code beyond
the tolerance that takes another path than in float64 is different. Shorter floats and narrow
integers that the code makes itself are findings and rule out a proof: neither fields nor equations
model them. At logits of 1 and of 1e4 the code has to be finite where the formula is.

The growth of the code's numbers from ordinary sizes to a far larger one shows the size at which a
type overflows: integers wrap, a short float skips whole numbers, products leave the range.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice, product
from typing import Any

from derive.checker.judge import CLEAR, Mismatch
from derive.checker.judge.digits import Further, judge_further
from derive.checker.judge.inputs import fill_largest, place_integers, scale, set_signs
from derive.checker.pick import Choice
from derive.checker.processes import CannotRunError
from derive.checker.program import Program
from derive.checker.runs import Answer, RunOptions, modes
from derive.checker.samples import (
    MOST_TOGETHER,
    Sample,
    count_elements,
    evaluate_parts,
    lengthen,
    list_tensors,
)
from derive.errors import Diagnostic
from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.libraries import torch
from derive.notation.formula import Formula

Values = Mapping[str, Any]

RULES_OUT_PROOF = {
    *("lower-precision", "narrow-integer", "type-branch", "not-quite", "asks-chance"),
    "not-beyond",
}
_SLACK = 16.0  # times the formula's own loss
_LOST = 0.05  # relative error above which a run is wrong rather than rounded
_NEAR_NUMBER = 1e-4  # relative difference of the code's numbers in float32
_MORE = 4.0  # times the error at ordinary sizes
_TYPES = ("float32", "float16", "bfloat16")
_SHORT = RunOptions(double=False, is_watched=True)
_AS_ASKED = replace(_SHORT, asked=True)
_WIDE = 2.0**40  # held by int64, but not by shorter types
_DRAWS = 8  # samples of inputs at which results are whole numbers
_FROM_WHOLE = replace(_SHORT, from_whole=True, most_lines=20_000, most_elements=1 << 24)


def judge_short(choice: Choice, formula: Formula) -> Further:
    """The outcome in float32 and shorter types, also at inputs beyond a type's limit."""
    program, first = choice.program, choice.samples[0]
    usual = program.run(first.make_inputs(), first.sizes, RunOptions(is_watched=True))
    findings: dict[str, Diagnostic] = {}

    def keep_first(found: Iterable[Diagnostic]) -> None:
        for each in found:
            findings.setdefault(f"{each.code} {each.says}", each)

    runs = [(first, name) for name in _TYPES]
    for sample, name in (*runs, *((sample, "float32") for sample in choice.samples[1:])):
        found = _run_rounded(program, sample, name, _SHORT)
        if found is None:
            continue
        answer, worst, where = found
        takes_other_path = sample is first and not _takes_same_path(usual, answer)
        if where and (takes_other_path or (name == "float32" and worst > _LOST)):
            return Further(False, where)
        if takes_other_path:
            says = f"the code takes another path in {name} than in float64"
            findings.setdefault("type-branch", Diagnostic("type-branch", says))
        if name != "float32":
            continue
        keep_first(_name_lowerings(answer.lowered, worst))
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
    keep_first(_find_narrowed(program, first))
    short, asked = Further(True), set[modes.Lowering]()
    for sample in choice.samples:
        run = usual if sample is first else program.run(sample.make_inputs(), sample.sizes)
        if not asked.issuperset(run.shorter) and short.same:
            asked |= {*run.shorter}
            short = judge_lowered(program, sample)
            keep_first(short.findings)
    return replace(short, findings=tuple(findings.values()))


def _find_narrowed(program: Program, sample: Sample) -> Iterator[Diagnostic]:
    """Findings for types that do not hold all integers; for floats if the results are integers."""
    for far in place_integers(sample, _WIDE):
        draws = (replace(sample, seed=seed) for seed in range(_DRAWS))
        results = (r for each in draws for r in each.evaluate(each.make_inputs()).values())
        is_whole = all(bool((r == r.real.round()).all()) for r in results)
        try:
            answer = program.run(far.make_inputs(), far.sizes, _FROM_WHOLE)
        except CannotRunError:  # the code itself bounds its integers
            continue
        full = [e for e in answer.full if (is_whole if e.is_float else e.dtype != "int64")]
        first = {e.dtype: e for e in reversed(full)}.values()  # later calls may inherit the type
        full = [e for e in full if e in first or e in answer.lowered or not e.is_float]
        for what, told in zip(full, _name_lowerings(full, 0.0), strict=True):
            limit = modes.find_limit(getattr(torch, what.dtype))
            fact = f"it holds whole numbers up to {limit:.0f}; the formula's have no such bound"
            yield replace(told, facts=(fact,))


def judge_lowered(program: Program, sample: Sample) -> Further:
    """The outcome for the shorter floats that the code requests, at one sample."""
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
            _find_own_loss(sample, sample.make_inputs(), torch.finfo(torch.float64).eps).values()
        ):
            single = [each for each in answer.lowered if each.dtype == "float32"]
            fact = f"with float64 arguments the results are off by {off:.1e}{told}"
            harmless = "float32 arguments lose no digits there"
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
    program: Program, sample: Sample, name: str, how: RunOptions
) -> tuple[Answer, float, str] | None:
    """The triple (run on rounded inputs, largest error, words if too large); None if it fails."""
    given = _round(sample.make_inputs(), getattr(torch, name))
    try:
        answer = program.run(given, sample.sizes, how)
    except CannotRunError:
        return None
    floats = [getattr(torch, each.dtype) for each in answer.lowered if each.is_float]
    eps = max(torch.finfo(each).eps for each in (getattr(torch, name), *floats))
    lost = _find_own_loss(sample, given, eps)
    worst, where = 0.0, ""
    for result, found, value in program.pair(answer, sample.evaluate(_round(given, torch.float64))):
        if value.is_floating_point() and found.shape == value.shape:
            off = _measure(found, value)
            worst = max(worst, off)
            if off > _SLACK * lost[result] and not where:
                where = f"in {name}, {result} is off by {off:.1e} of its largest element"
    return answer, worst, where


def _run_as_asked(program: Program, sample: Sample) -> tuple[Answer | None, float]:
    """The run with the types that the code requests, and its error; None and 0 if it fails."""
    values = sample.make_inputs()
    try:
        answer = program.run(values, sample.sizes, _AS_ASKED)
    except CannotRunError:
        return None, 0.0
    pairs = program.pair(answer, sample.evaluate(values))
    return answer, max((_measure(f, v) for _, f, v in pairs if f.shape == v.shape), default=0.0)


def _judge_as_asked(program: Program, far: Sample, near: Sample) -> str:
    """The difference if the code's shorter floats do not hold its whole numbers, else ""."""
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
    """The outcome of the run `answer` at a far larger size, with overflows of the code's types."""
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
    """The first wrong element, however small, after an overflow of whole numbers; "" for none."""
    for name, result, value in program.pair(answer, far.evaluate(far.make_inputs())):
        if result.shape != value.shape or result.is_complex() or value.is_complex():
            continue
        one, other = result.detach().double(), value.double()
        off = other.isfinite() & ~((one - other).abs() <= _LOST * other.abs())
        if bool(off.any()):
            place = tuple(int(k) for k in off.nonzero()[0])
            what = answer.full[0]
            full = f"line {what.line}: {what.call} makes {what.dtype}, which overflows there"
            shown = Mismatch(name, place, float(one[place]), float(other[place]))
            return f"{shown}, {far.describe()}; {full}"
    return ""


def is_growing(near: Answer, far: Answer) -> bool:
    """Whether numbers of the code grow or vanish with a size faster than a power of it."""
    one, other = (each.reach.get("float64", (1.0, 1.0)) for each in (near, far))
    return any(abs(math.log(there / here)) > _GROWN for here, there in zip(one, other, strict=True))


def list_overflows(far: Sample, there: Answer, name: str, near: Answer, start: int) -> list[Sample]:
    """Samples at which the code's types would overflow, extrapolated from size `start` to `far`."""
    found: list[float] = []
    end = far.sizes[name]
    longer = math.log(end / start)
    single = torch.finfo(torch.float32)
    for kind, (least, most) in there.reach.items():
        low, high = near.reach.get(kind, (least, most))
        if kind != "float64":  # plus 1, as positions start at 0
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
    samples = (each for one in fars for each in (one, fill_largest(one)) if each is not None)
    return [each for each in samples if count_elements(each) <= MOST_TOGETHER][:_MOST_FULL]


_MOST_FULL = 6  # samples
_BEYOND = (1.02, 1.3)  # times the extrapolated size, which may be somewhat off
_STEEPEST = 12.0  # largest power of a size that counts as polynomial growth
_GROWN = 14.0  # natural logarithm of the growth that is extrapolated
_LONGEST = 1 << 20


def _round(values: Mapping[str, Any], dtype: Any) -> dict[str, Any]:
    """The values with real tensors cast to a type, and complex ones to at least complex64."""
    found, parts = dict(values), torch.promote_types(dtype, torch.float32)
    for name, value in values.items():
        if getattr(value, "is_floating_point", bool)():
            found[name] = value.to(dtype)
        elif getattr(value, "is_complex", bool)():
            found[name] = value.to(parts.to_complex())
    return found


def _find_own_loss(sample: Sample, given: Values, eps: float) -> dict[str, float]:
    """The formula's own loss in a type and under roundings of its inputs, by result."""

    def perturb(value: Any) -> Any:
        """Elements alternately larger and smaller by a rounding."""
        if not getattr(value, "is_floating_point", bool)():
            return value
        signs = torch.arange(value.numel()).reshape(value.shape) % 2 * 2 - 1
        return value * (1 + eps * signs)

    exact = _round(given, torch.float64)
    wanted = sample.evaluate(exact)
    moved = sample.evaluate({name: perturb(value) for name, value in exact.items()})
    try:
        own = sample.evaluate(given)
    except (RuntimeError, TypeError):  # torch lacks an operation in this type
        own = moved
    return {
        name: max(eps, _measure(own[name], value), _measure(moved[name], value))
        for name, value in wanted.items()
    }


def _measure(found: Any, wanted: Any) -> float:
    """The largest difference of elements finite in both, relative to the largest of them."""
    one, other = found.detach().cdouble(), wanted.cdouble()
    told = one.isfinite() & other.isfinite()
    if not bool(told.any()):
        return 0.0
    return float((one - other)[told].abs().max() / other[told].abs().max().clamp(min=1e-300))


def _takes_same_path(usual: Answer, answer: Answer) -> bool:
    """Whether two runs make the same calls at the same lines, with the same numbers."""
    # The extreme numbers of all float types count as equal: masks use them.
    ends = {torch.finfo(getattr(torch, t)).max for t in (*_TYPES, "float64")}
    # as_tensor of a number is no step of the code
    one, other = ([c for c in each.calls if c[0] != "as_tensor"] for each in (usual, answer))
    return one == other and not any(
        abs(one - other) > _NEAR_NUMBER * max(abs(one), abs(other))  # nan compares as equal
        and not (abs(one) in ends and abs(other) in ends and (one > 0) == (other > 0))
        for one, other in zip(usual.numbers, answer.numbers, strict=True)
    )


def _name_lowerings(
    lowered: Iterable[modes.Lowering], off: float, told: str = " of their largest element"
) -> Iterator[Diagnostic]:
    """Yield a finding for each call that lowers the precision; `off` is the error of the run."""
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
                f"{at}{each.call} makes {each.dtype}, which overflows",
                help="use torch.int64" if each.dtype != "int64" else "use real numbers",
            )


_COMMON = 1000.0  # added to all inputs; float32 keeps four digits of their differences


def find_cancelling(program: Program, sample: Sample) -> Iterator[Diagnostic]:
    """Yield a finding if, at inputs far from 0, terms cancel in float32 but not in the formula."""
    far = scale(sample, 1.0, more=_COMMON)
    found = _run_rounded(program, far, "float32", _SHORT)
    if found is not None and found[2] and not found[0].lowered:
        says = "large terms cancel in the code, and digits are lost that the formula keeps"
        advice = "subtract first what the inputs have in common, as the formula does"
        yield Diagnostic("cancels", says, facts=(f"{found[2]}, {far.describe()}",), help=advice)


LARGE = 1e4  # a logit within float32 whose exponential is beyond it
_MOST_SIGNS = 16  # combinations of signs that are tried to make all logits negative
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
    """The least tried factor of the inputs at which a logit is 1e4 or more in size; 1 if none."""
    for factor in _SCALES:
        for values in _find_logits(scale(sample, factor)):
            finite = values[values.isfinite()] if values.numel() else values
            if finite.numel() and float(finite.abs().max()) >= LARGE:
                return factor
    return 1.0


def _find_logits(sample: Sample) -> Iterator[Any]:
    """Yield the logits: arguments of exp, and of reductions such as softmax that take exps."""
    for part, evaluator in evaluate_parts(sample):
        match part:
            case ir.Along(kind, _, _, body) | ir.Reduce(kind, _, _, body) if ROWS[kind].is_slow:
                yield evaluator.evaluate_node(body).tensor
            case ir.Call("exp", (body,)):
                yield evaluator.evaluate_node(body).tensor


def find_loss(program: Program, sample: Sample, at: str, dtype: Any = None) -> Diagnostic | None:
    """A finding if the code is not finite in a type that holds the formula's value; else None."""
    dtype = dtype or torch.float32
    given = _round(sample.make_inputs(), dtype)
    wanted = sample.evaluate(_round(given, torch.float64))
    short = str(dtype).removeprefix("torch.")
    try:
        answer = program.run(given, sample.sizes, RunOptions(double=False))
    except CannotRunError as error:  # code that does not run in float32 is a finding of its own
        with suppress(CannotRunError):
            if dtype is torch.float32:
                program.run(sample.make_inputs(), sample.sizes)  # it runs in float64
                text = " ".join(str(error).split())
                return Diagnostic("not-in-float32", f"the code does not run in float32: {text}")
        return None
    top = torch.finfo(dtype).max / 4
    for name, result, value in program.pair(answer, wanted):
        if not result.is_floating_point() or result.shape != value.shape:
            continue
        lost = value.isfinite() & (value.abs() < top) & ~result.double().isfinite()
        if bool(lost.any()):  # not where the code has a pole, without an overflow
            exact = program.run(
                _round(given, torch.float64), sample.sizes, RunOptions(is_watched=True)
            )
            there = next(each for n, each, _ in program.pair(exact, wanted) if n == name)
            lost &= there.isfinite() | exact.left_range
        if bool(lost.any()):
            place = tuple(lost.nonzero()[0].tolist())
            shown = f"{name}[{', '.join(map(str, place))}] is {float(result[place])}"
            help = "keep repeated factors near 1, or sum their logarithms"
            if "logits" in at:
                help = "subtract the maximum before exp, or use torch.softmax or torch.logsumexp"
            return Diagnostic(
                "unstable",
                f"right in exact arithmetic, not finite in {short} at {at}",
                facts=(f"{shown}, the formula says {float(value[place]):.6g}",),
                help=help,
            )
    return None
