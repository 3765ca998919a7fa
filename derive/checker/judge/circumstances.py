"""Repeated calls of one object: with other values in between, and in other circumstances.

    again      the same values give the same results, whatever was computed in between; other
               values, and other sizes, give the formula's results
    layout     the same values elsewhere in memory: other strides, an offset, an expanded tensor
    gradients  arguments that require them, no_grad, inference_mode
    chance     random numbers from another seed, and all at one end of their range; a later time

A difference by layout or gradients makes the code different. Results that depend on chance cannot
be judged. A module is judged in the mode in which it was given.
"""

import random
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from derive.checker.judge import judge_at
from derive.checker.judge.digits import judge_further
from derive.checker.judge.remarks import explain_chance
from derive.checker.processes import CannotRunError, EndedError, run_remotely
from derive.checker.program import Program, check_answer, find_names
from derive.checker.runs import (
    Answer,
    Given,
    RunOptions,
    is_same,
    make_module,
    prepare,
    run_target,
    trace_lines,
)
from derive.checker.samples import Sample, find_free_sizes
from derive.errors import Diagnostic
from derive.judge.compare import compare_values
from derive.libraries import torch
from derive.notation.formula import Formula

Planned = tuple[Sample, RunOptions, str]  # with the name of a circumstance, or ""
Values = Mapping[str, Any]
Judge = tuple[Program, Formula]

PROMISED = {  # circumstances in which code has to return the same, in words
    "strided": "where its arguments are not contiguous",
    "shifted": "where its arguments are parts of longer tensors",
    "tracked": "where its arguments require gradients",
    "no_grad": "under torch.no_grad()",
    "inference": "under torch.inference_mode()",
}
# The word of a Mersenne twister whose 32 output bits are all 0, and all 1.
ENDS = {"lowest": 0, "highest": 0x12DD9BB3}
_LATER = 1.0e8 + 0.637  # seconds
_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")


@dataclass(frozen=True)
class PlannedRun:
    """One call among several of one object: its inputs, options and circumstance."""

    given: Given
    how: RunOptions
    circumstance: str = ""


@dataclass(frozen=True)
class RunOutcome:
    """The results or the failure of a call."""

    answer: Answer | CannotRunError
    asked: tuple[str, ...] = ()  # uses of chance and changes of the module's state, in words

    def get_answer(self) -> Answer:
        """The results; raises the CannotRunError of a failed call."""
        if isinstance(self.answer, CannotRunError):
            raise self.answer
        return self.answer


@run_remotely
def call_all(
    target: Any, calls: tuple[PlannedRun, ...], path: str, once: bool
) -> tuple[RunOutcome, ...]:
    """The outcomes of the calls in order; with `once`, a class is instantiated once for all."""
    if once and isinstance(target, type):
        with prepare(RunOptions()):
            target = make_module(target, calls[0].given.constructor)
    found, kept = list[RunOutcome](), Given()
    for call in calls:
        given = _with_layouts(call.given, call.circumstance)
        if call.circumstance == "left":  # parameters as the previous call left them
            given = replace(given, parameters=kept.parameters)
        found.append(_make_call(target, given, call, path))
        kept = given
    return tuple(found)


def _with_layouts(given: Given, circumstance: str) -> Given:
    """The inputs in the layout of a circumstance; tensors that share memory stay as they are."""
    both = (given.arguments, given.parameters)
    tensors = {v: v for part in both for v in part.values() if isinstance(v, torch.Tensor)}
    shared = Counter(each.untyped_storage().data_ptr() for each in tensors)
    for each in tensors:
        if shared[each.untyped_storage().data_ptr()] == 1:
            tensors[each] = _with_layout(each, circumstance)
    arguments, parameters = (
        {n: tensors[v] if isinstance(v, torch.Tensor) else v for n, v in part.items()}
        for part in both
    )
    return replace(given, arguments=arguments, parameters=parameters)


def _make_call(target: Any, given: Given, call: PlannedRun, path: str) -> RunOutcome:
    """The outcome of one call, made in its circumstance."""
    at = call.circumstance
    before = _find_generators() if at == "noted" else {}
    asked: dict[str, None] = {}
    try:
        with _enter_circumstance(target, at, path, asked):
            found = run_target(target, given, call.how, path)
    except CannotRunError as error:
        return RunOutcome(error)
    if at != "noted":
        return RunOutcome(found, tuple(asked))
    after = _find_generators()
    asked |= {f"the random numbers of {n}": None for n in after if after[n] != before.get(n)}
    return RunOutcome(found, tuple(asked))


def _with_layout(value: Any, circumstance: str) -> Any:
    """A tensor with the same values in the memory layout of a circumstance."""
    if circumstance == "strided" and value.dim():
        if value.dim() == 1:
            return torch.stack([value, value], 1)[:, 0]
        turn = [*reversed(range(value.dim()))]
        return value.permute(turn).clone(memory_format=torch.contiguous_format).permute(turn)
    if circumstance == "shifted" and value.dim():
        longer = torch.cat([value[..., :1], value, value[..., :1]], -1)
        return longer[..., 1:-1]
    if circumstance == "expanded":
        heads = (value.narrow(k, 0, 1) for k, n in enumerate(value.shape) if n > 1)
        return next((h.expand(value.shape) for h in heads if bool((h == value).all())), value)
    if circumstance == "tracked" and value.is_floating_point():
        return value.clone().requires_grad_()
    return value


@contextmanager
def _enter_circumstance(target: Any, at: str, path: str, asked: dict[str, None]) -> Iterator[None]:
    """Within the context, set torch, the generators and module for a run, or note in `asked`."""

    def watch(frame: FrameType, event: str, function: Any) -> None:
        """Record calls that ask for the time, or the system for random bytes."""
        if event == "c_call" and frame.f_code.co_filename == path:
            module = getattr(function, "__module__", None)
            owner = getattr(getattr(function, "__self__", None), "__module__", None)
            name = getattr(function, "__name__", "")
            if "time" in {module, owner} or owner == "datetime" or name in {"urandom", "getpid"}:
                asked["the clock or the system"] = None

    with ExitStack() as stack:
        if at == "no_grad":
            stack.enter_context(torch.no_grad())
        elif at == "inference":
            stack.enter_context(torch.inference_mode())
        elif at == "later":
            for name in _CLOCKS:
                by = int(_LATER * 1e9) if name.endswith("_ns") else _LATER
                stack.callback(setattr, time, name, clock := getattr(time, name))
                setattr(time, name, lambda clock=clock, by=by: clock() + by)
        elif at in ENDS:
            before = _find_generators()
            stack.callback(_set_generators, before)
            _set_ends(before, ENDS[at])
        elif at == "written":
            stack.enter_context(_watch_writes(target, path, asked))
        elif at == "noted":
            stack.callback(sys.setprofile, sys.getprofile())
            sys.setprofile(watch)
        yield


@contextmanager
def _watch_writes(module: Any, path: str, asked: dict[str, None]) -> Iterator[None]:
    """Within the context, add to `asked` each line that changes a parameter or a buffer."""
    first: dict[str, Any] = {}
    last = 0

    def record_change(frame: Any, event: str) -> None:
        nonlocal last
        for kind, named in (("parameter", "named_parameters"), ("buffer", "named_buffers")):
            for name, value in getattr(module, named, dict)():
                old = first.setdefault(name, value.detach().clone())
                if not is_same(old, value):
                    asked[f"line {last} changes the {kind} {name}"] = None
                    first[name] = value.detach().clone()
        is_left = event == "return" and frame.f_back.f_code.co_filename == path
        last = (frame.f_back if is_left else frame).f_lineno  # the next line to run

    with trace_lines(path, record_change):
        yield


def _find_generators() -> dict[str, Any]:
    """The states of the global random generators."""
    found = {"random": random.getstate(), "torch": bytes(torch.get_rng_state().tolist())}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, words, *others = numpy.random.get_state()
        found["numpy"] = (kind, words.tolist(), *others)
    return found


def _set_generators(states: Mapping[str, Any]) -> None:
    random.setstate(states["random"])
    torch.set_rng_state(torch.tensor(list(states["torch"]), dtype=torch.uint8))
    if "numpy" in states:
        sys.modules["numpy"].random.set_state(states["numpy"])


def _set_ends(before: Mapping[str, Any], word: int) -> None:
    """Make every generator put out this word of a Mersenne twister, tempered, from now on."""
    states = dict(before)
    words = [word] * 624
    states["random"] = (3, (*words, 0), None)
    state = bytearray(states["torch"])
    struct.pack_into("<iiQ624Q", state, 8, 624, 1, 0, *words)  # left, seeded, next, words
    states["torch"] = bytes(state)
    if "numpy" in states:
        states["numpy"] = ("MT19937", words, 0)
    _set_generators(states)


@dataclass(frozen=True)
class Circumstances:
    """The outcome of many calls of one object: chance, a difference, or findings."""

    chance: str = ""  # why the results depend on chance, so that they cannot be judged
    difference: str = ""
    line: int | None = None  # the first line at which the code takes another path
    findings: tuple[Diagnostic, ...] = ()


def run_all(program: Program, plan: Sequence[Planned], *, once: bool = False) -> list[RunOutcome]:
    """The outcomes of planned runs, in one request; with `once`, of one object."""
    found: dict[int, RunOutcome] = {}
    calls: list[PlannedRun] = []
    for number, (sample, how, at) in enumerate(plan):
        try:
            given = program.find_given_on_copies(sample.make_inputs(), sample.sizes)
        except CannotRunError as error:
            found[number] = RunOutcome(error)
        else:
            calls.append(PlannedRun(given, replace(how, names=program.names), at))
    code = program.code
    outcomes = call_all(code.target, tuple(calls), code.path, once) if calls else ()
    if not isinstance(outcomes, tuple) or len(outcomes) != len(calls):
        raise EndedError("the process that ran the code sent a malformed result")
    for each in outcomes:
        if not isinstance(found_answer := getattr(each, "answer", None), CannotRunError):
            check_answer(found_answer)
    answers = iter(outcomes)
    return [found.get(number) or next(answers) for number in range(len(plan))]


_SEED = 101  # added to a sample's seed for other values at its sizes
_AGAIN = "when it is called again, after a call with other values"


def _plan_calls(program: Program, samples: Sequence[Sample]) -> list[Planned]:
    """The calls of one object: twice alike, with other values, and in all circumstances."""
    first = samples[0]
    values = first.make_inputs()
    read = {n for each in program.parameters.values() for n in find_names(each)}
    own = {name: value for name, value in values.items() if name in read}
    free = find_free_sizes(first)
    larger = first.resize(**{name: 1 + max(d.sizes[name] for d in samples) for name in free})

    def keep_parameters(_: Sample, values: dict[str, Any]) -> dict[str, Any]:
        """The inputs with the first sample's values of the module's parameters, where they fit."""
        shapes = {name: getattr(value, "shape", ()) for name, value in values.items()}
        return values | {n: v for n, v in own.items() if getattr(v, "shape", ()) == shapes[n]}

    others = [
        replace(sample, seed=sample.seed + _SEED, change=keep_parameters)
        for sample in (*samples, *(() if larger is None or not free else (larger,)))
    ]
    if program.constructor:  # only for samples with the same constructor arguments
        made = program.find_given(values, first.sizes).constructor
        found = (program.find_given(d.make_inputs(), d.sizes).constructor for d in others)
        others = [
            sample
            for sample, given in zip(others, found, strict=True)
            if all(type(v) is type(given[n]) and (v == given[n]) is True for n, v in made.items())
        ]
    plan = [(first, RunOptions(seed=1), ""), (first, RunOptions(seed=2), "left")]
    plan += [(sample, RunOptions(), "again") for sample in others]
    plan += [(first, RunOptions(), at) for at in PROMISED]
    plan.append((replace(first, change=_repeat_first, reason=_EXPANDED), RunOptions(), "expanded"))
    return [*plan, *[(first, RunOptions(), "noted")] * 2]


def judge_circumstances(
    program: Program, formula: Formula, samples: Sequence[Sample]
) -> Circumstances:
    """The outcome of repeated calls of one object, with other values and in all circumstances."""
    first, plan = samples[0], _plan_calls(program, samples)
    calls = run_all(program, plan, once=True)
    usual, again = (call.get_answer().results for call in calls[:2])
    is_random = len(usual) != len(again) or not all(map(is_same, usual, again))
    is_changed = not program.parameters.keys().isdisjoint(calls[0].get_answer().changed)
    chance = _name_write(program, first, is_random) if is_random or is_changed else ""
    if is_random:
        chance = chance or explain_chance(program)
    if chance := chance or _find_chance(program, first, calls[-1].asked):
        return Circumstances(chance=chance)
    findings = [
        Diagnostic(
            "asks-chance",
            f"the code uses {what}; at the tried values its results do not depend on it",
        )
        for what in calls[-1].asked
    ]
    both = sorted(zip(plan[2:], calls[2:], strict=True), key=lambda each: each[0][2] not in _CALLED)
    judge = program, formula
    for planned, call in both:  # repeated calls first: their failures are not due to a circumstance
        at = planned[2]
        failed = call.answer if isinstance(call.answer, CannotRunError) else None
        if failed and at in _CALLED and failed.refusal:
            says = f"the code stops at other inputs, {failed}: later lines were not checked there"
            return Circumstances(chance=says, line=failed.line)
        where = _find_difference(judge, planned, usual, call)
        if where:
            return Circumstances(difference=where)
    return Circumstances(findings=tuple(findings))


def _find_difference(judge: Judge, planned: Planned, usual: Sequence[Any], call: RunOutcome) -> str:
    """The difference of a call from the usual results, or from the formula's; "" for none."""
    program, formula = judge
    sample, _, at = planned
    if isinstance(call.answer, CannotRunError):
        return f"the code stops, {call.answer}, {_AGAIN}" if at in _CALLED else ""
    if at in {"again", "expanded"}:
        outcome = judge_at(program, sample, answer=call.answer)
        where = outcome.describe(sample) if outcome.is_clear else ""
        if where and judge_further(program, formula, sample, answer=call.answer).same:
            return ""  # only rounding is left where terms cancel
        return where if at == "expanded" else where and f"{where}, {_AGAIN}"
    where = _compare(program, usual, call.answer.results)
    return where and f"{where}, {PROMISED.get(at, _AGAIN)}"


def _name_write(program: Program, sample: Sample, is_random: bool) -> str:
    """The first line that changes a parameter, or if `is_random` a buffer too, in words; or ""."""
    (call,) = run_all(program, [(sample, RunOptions(), "written")], once=True)
    for says in call.asked:
        if is_random or "the parameter" in says:
            return f"{says}: the results depend on more than its arguments"
    return ""


_CALLED = ("again", "noted")  # circumstances without a change other than previous calls
_EXPANDED = "where its arguments are expanded"


def _compare(program: Program, usual: Sequence[Any], found: Sequence[Any]) -> str:
    """The first element that differs from the usual call, in words; "" for none."""
    if len(usual) != len(found):
        return f"the code returns {len(found)} results, not {len(usual)}"
    names = (*program.names, *(f"result {k + 1}" for k in range(len(program.names), len(usual))))
    pairs = zip(names, found, usual, strict=False)
    said = (compare_values(name, one, other)[1] for name, one, other in pairs)
    return next(filter(None, said), "").replace("the formula says", "and usually")


def _repeat_first(sample: Sample, values: dict[str, Any]) -> dict[str, Any]:
    """The inputs with the first entry of each one repeated along its first axis."""
    return {
        name: value[:1].expand(value.shape).clone() if getattr(value, "shape", ()) else value
        for name, value in values.items()
    }


def _find_chance(program: Program, sample: Sample, asked: Sequence[str]) -> str:
    """The cause of changing results, the time or random numbers, in words; "" without one."""
    plan = [(sample, RunOptions(), at) for at in ("", "later", *ENDS)] if asked else []
    calls = run_all(program, plan, once=True)
    for (_, _, at), call in zip(plan[1:], calls[1:], strict=True):
        with suppress(CannotRunError):
            usual, found = calls[0].get_answer(), call.get_answer()
            if _compare(program, usual.results, found.results):
                what = "at another time" if at == "later" else "with other random numbers"
                return f"the code gives other results {what}"
    return ""
