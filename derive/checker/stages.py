"""The stages of a check after the code is loaded: judged, proved, then remarked on or explained."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from derive.checker.judge import (
    CLEAR,
    FINITE_MASK,
    Further,
    Outcome,
    judge_fields,
    judge_floats,
    judge_further,
    judge_gradients,
)
from derive.checker.judge.circumstances import judge_circumstances, run_all
from derive.checker.judge.precision import (
    RULES_OUT_PROOF,
    find_loss,
    find_unstable,
    is_growing,
    judge_far,
    judge_lowered,
    judge_short,
    pass_full,
)
from derive.checker.load import Code, find_literals, has_loops
from derive.checker.pick import Choice, pick_program
from derive.checker.processes import CannotRunError, find_kind, log_error
from derive.checker.program import Program, evaluate_source, find_names, find_tensors, lift_program
from derive.checker.reading import say_line
from derive.checker.runs import TOO_LONG, Answer, How, has_dropout
from derive.checker.samples import (
    MOST_ELEMENTS,
    find_other_sides,
    make_samples,
    pass_bounds,
    pass_limits,
    vary_inputs,
    vary_sizes,
)
from derive.checker.slots import Slot, find_slots
from derive.checker.subjects import construct, find_outside
from derive.errors import DeriveError, Diagnostic
from derive.ir import nodes as ir
from derive.ir.walk import find_accesses
from derive.judge.compare import TOLERANCE
from derive.judge.evaluate import evaluate_system
from derive.judge.samples import find_sizes
from derive.prove import prove

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from derive.checker.runs.modes import Lowering
    from derive.checker.samples import Sample
    from derive.checker.verdict import Job, Progress, Verdict
    from derive.frontend.torch.numbers import Condition


def find_remarks(system: ir.System, choice: Choice) -> Iterator[Diagnostic]:
    """What a reader of the verdict has to know about the call that was judged."""
    program = choice.program
    taken = {name for source in program.sources.values() for name in find_names(source)}
    read = {each.tensor for equation in system.equations for each in find_accesses(equation.value)}
    for tensor in find_tensors(system):
        if tensor.name not in taken and tensor in read:
            yield Diagnostic(
                "not-taken",
                f"{tensor.name} of the formula is given to nothing in the code",
                help=f"bind it, as in --bind ARGUMENT={tensor.name}, if an argument stands for it",
            )
    for slot in find_unbound(program, choice.samples[0]):
        if slot.shape is not None:
            says = f"the code's parameter {slot.name} stands for nothing in the formula"
            advice = f"bind it, --bind {slot.name}=NAME, if it does"
            if slot.name.endswith("bias"):
                advice = f"make its layer with bias=False, or add it to the formula and {advice}"
            yield Diagnostic("not-given", says, help=advice)
    yield from _find_undefined(program)


def find_missing(system: ir.System, choice: Choice) -> str:
    """The results of the formula that the code does not return, in words."""
    sample = choice.samples[0]
    results = choice.program.run(sample.make_inputs(), sample.sizes).results
    missing = [tensor.name for tensor in system.results[len(results) :]]
    if not missing:
        return ""
    kept = ", ".join(tensor.name for tensor in system.results[: len(results)])
    return f"the code does not return {', '.join(missing)}" + (
        f"; if that is meant, end the formula with: return {kept}" if kept else ""
    )


def find_stop(choice: Choice) -> str:
    """Sizes at which the code stops though the formula has a value there, in words."""
    for sample, error in choice.stops:
        found = evaluate_system(sample.system, sample.make_inputs(), sample.sizes)
        wanted = (found[tensor.name] for tensor in sample.system.results)
        if not any(bool((value != value).any()) for value in wanted):
            at = " ".join(f"{name}={size}" for name, size in sample.sizes.items())
            return f"at {at} the code stops, {error}, where the formula has a value"
    return ""


def find_loose_ends(system: ir.System, program: Program, sample: Sample) -> str:
    """Why a difference may be one of bindings alone: both sides have names that nothing binds."""
    taken = {name for source in program.sources.values() for name in find_names(source)}
    tensors = [tensor.name for tensor in find_tensors(system) if tensor.name not in taken]
    slots = [slot.name for slot in find_unbound(program, sample)]
    if not tensors or not slots:
        return ""
    return (
        f"{', '.join(tensors)} of the formula and {', '.join(slots)} of the code are bound to "
        f"nothing; say what goes with what, --bind {slots[0]}={tensors[0]}"
    )


def find_unbound(program: Program, sample: Sample) -> list[Slot]:
    """The parameters of a module, and the arguments without a number as default, left unbound."""
    target = program.code.target
    if target is None:
        return []
    kind = find_kind(target)
    if kind == "class":
        made = {
            name: evaluate_source(source, sample.make_inputs(), sample.sizes, {})
            for name, source in program.constructor.items()
        }
        target, kind = construct(target, made, program.code.path), "module"
    arguments, parameters = find_slots(target)
    free = [slot for slot in arguments if slot.default is None and not slot.is_number]
    if kind != "module":
        parameters = []
    return [slot for slot in (*free, *parameters) if slot.name not in program.sources]


def _find_undefined(program: Program) -> Iterator[Diagnostic]:
    """What a script uses and never makes, and how it was read."""
    script = program.code.script
    if script is None:
        return
    for name, line in script.free.items():
        source = program.arguments.get(name)
        if source is not None and not (program.assumed and name in script.filled):
            where = say_line(line, program.code.places)
            meant = f"the formula's {source}" if source == name else source
            yield Diagnostic("undefined", f"{where}: {name} is not made: it is read as {meant}")


@dataclass(frozen=True)
class Proof:
    """What is proved: in words, and by sample the conditions under which code was lifted."""

    words: str
    ways: tuple[tuple[Sample, tuple[Condition, ...]], ...] = ()


def find_proof(job: Job, choice: Choice) -> Proof | None:
    """What the proof holds for; None where there is none."""
    program = choice.program
    if program.results:
        return None  # results in another layout than the formula's
    names = find_sizes(job.system)
    numbers: list[str] = []
    ways: list[tuple[Sample, tuple[Condition, ...]]] = []
    for sample in choice.samples[::2]:  # the one between has a size 1
        lifted = lift_program(program, job.system.inputs, dict(sample.sizes))
        if prove(lifted.system, job.system, lifted.fixed) is None:
            return None
        ways.append((sample, lifted.notes))
        given = f" with {' and '.join(map(str, lifted.notes))}" if lifted.notes else ""
        if not lifted.fixed:
            return Proof(f"for all sizes{given}", tuple(ways))
        if all(name in lifted.fixed for name in names):
            return None
        numbers.append(" ".join(f"{name}={value}" for name, value in lifted.fixed.items()))
    told = "; ".join(dict.fromkeys(numbers))
    words = f"at {told}, which the code takes as numbers, for all other sizes"
    return Proof(words, tuple(ways))


MOST_WAYS = 12  # that the code takes by its sizes, which are followed


def judge_other_ways(
    job: Job, choice: Choice, verdict: Verdict, proof: Proof
) -> tuple[Choice, Verdict]:
    """The verdict after the ways that code takes where the conditions of its proof do not hold."""
    left = [(*way, frozenset[tuple[ir.Expr, ir.Expr]]()) for way in proof.ways]
    met: dict[str, dict[str, None]] = {}  # by condition, the sizes at which float64 agrees
    seen = {(*sample.sizes.items(),) for sample, _ in proof.ways}
    first = choice.samples[0].sizes
    for _ in range(MOST_WAYS):
        if not left:
            break
        sample, path, crossed = left.pop(0)
        fresh = [
            (condition, other)
            for condition, other in find_other_sides(sample, path)
            if (*other.sizes.items(),) not in seen
            and (condition.left, condition.right) not in crossed  # back to where it came from
        ]
        seen |= {(*other.sizes.items(),) for _, other in fresh}
        choice, verdict, agreed = _judge_samples(job, choice, verdict, [each for _, each in fresh])
        if not verdict.same:
            return choice, verdict
        for other in agreed:
            moved = (f"{name}={n}" for name, n in other.sizes.items() if n != first[name])
            met.setdefault(other.reason, {})[" ".join(moved)] = None
        for condition, other in dict(reversed(fresh)).items():  # one a condition
            with suppress(CannotRunError, DeriveError):
                lifted = lift_program(choice.program, job.system.inputs, dict(other.sizes))
                both = (condition.left, condition.right)
                left.append((other, lifted.notes, crossed | {both}))
    if met:
        told = "; ".join(f"{where} at {', '.join(sizes)}" for where, sizes in met.items())
        verdict = replace(verdict, reasons=(f"{proof.words}; float64 agrees {told}",))
    return choice, verdict


def add_findings(verdict: Verdict, findings: Iterable[Diagnostic]) -> Verdict:
    """The verdict with the findings whose code it has not yet."""
    known = {each.code: each for each in reversed((*verdict.findings, *findings))}
    new = [each for code, each in known.items() if all(code != f.code for f in verdict.findings)]
    return replace(verdict, findings=(*verdict.findings, *reversed(new)))


def judge_exactly(job: Job, choice: Choice, verdict: Verdict, floats: Outcome) -> Verdict:
    """The verdict after random fields; `floats` is what float64 says."""
    exactness = judge_fields(choice.program, choice.samples, backward=job.backward)
    if exactness.soft_mask:
        verdict = add_findings(verdict, [FINITE_MASK])
    if exactness.same:
        reasons = [f"whatever {', '.join(exactness.opaque)} may be"] if exactness.opaque else []
        findings = verdict.findings
        if not verdict.same:
            says = f"exact arithmetic agrees, float64 is off by {floats.off:.1e}"
            findings = (*findings, Diagnostic("rounding", says, facts=verdict.reasons))
        return replace(
            verdict, same=True, grade="identical", reasons=tuple(reasons), findings=findings
        )
    if exactness.same is None:
        return replace(verdict, reasons=(*verdict.reasons, exactness.reason))
    # Another value over fields is a difference, unless chance or a hash may have made it.
    if exactness.opaque or exactness.is_chancy or exactness.soft_mask:
        what = ", ".join(exactness.opaque) or "the order or the sign of values"
        reason = f"not told over random fields, where {what} is left to chance"
        return replace(verdict, reasons=(*verdict.reasons, reason))
    if any(each.code == FINITE_MASK.code for each in verdict.findings):
        return verdict  # which tells why
    if verdict.same:
        says = "in exact arithmetic the code is not quite the formula"
        help = "look for a small constant on one side alone, such as an epsilon"
        found = Diagnostic("not-quite", says, facts=(exactness.difference,), help=help)
        return replace(verdict, findings=(*verdict.findings, found))
    difference = floats.difference or exactness.difference
    return replace(verdict, same=False, grade="different", difference=difference)


_NOTHING = (
    "every element of {} is nan by the formula, so that nothing can be compared: "
    "declare what the tensors may hold, x[N] > 0"
)


def judge(job: Job, code: Code, verdict: Verdict, send: Progress) -> tuple[Choice, Verdict]:
    """The verdict by values: float64 against the loops, then further samples."""
    send.begin("the first run")
    choice = pick_program(code, job.system, job.binds, job.sizes, job.making)
    code_findings = verdict.findings
    verdict = replace(
        verdict,
        bindings=choice.program.describe(),
        sizes=tuple(dict(sample.sizes) for sample in choice.samples),
        findings=(*verdict.findings, *choice.findings, *find_remarks(job.system, choice)),
        source=choice.program.code.source,
    )
    if choice.same_if is not None:
        verdict = replace(verdict, findings=(choice.same_if, *verdict.findings))
    if choice.failure is not None:
        verdict = replace(
            verdict,
            bindings=(),
            sizes=(dict(choice.failed_at),),
            difference=f"the code stops where the formula has a value: {choice.failure}",
            line=choice.failure.line,
            findings=tuple(
                filter(None, (choice.same_if, *code_findings, *_find_undefined(choice.program)))
            ),
        )
        return choice, _say(verdict, send, False, "different")
    if choice.is_open:
        return choice, _say(verdict, send, None, "unknown", "nobody has said which sizes are meant")
    send.begin("the runs in float64")
    calls = judge_circumstances(choice.program, choice.samples)
    if calls.is_random or calls.chance:
        random = calls.chance or _say_random(choice.program.code, choice.program)
        return choice, _say(verdict, send, None, "unknown", random)
    floats = _judge_all_floats(job, choice)
    changes = [
        Diagnostic("changes-argument", f"the code {reason}, which it was given")
        for reason in floats.reasons
    ]
    verdict = replace(verdict, findings=(*verdict.findings, *changes))
    if floats.same is False and floats.off > CLEAR:
        verdict = replace(verdict, difference=floats.difference)
        loose = find_loose_ends(job.system, choice.program, choice.samples[0])
        if loose:
            return choice, _say(verdict, send, None, "unknown", loose)
        return choice, _say(verdict, send, False, "different")
    if not floats.same:  # in digits that rounding may have changed, or not
        verdict = _say(verdict, send, None, "unknown", f"float64: {floats.difference}")
        choice, verdict, _ = _judge_samples(job, choice, verdict, choice.samples, TOLERANCE)
        if verdict.same is False:
            send(verdict)
            return choice, verdict
    lacking = find_missing(job.system, choice) or find_stop(choice)
    if lacking:
        verdict = replace(verdict, difference=lacking)
        return choice, _say(verdict, send, False, "different")
    if calls.difference:
        verdict = replace(verdict, difference=calls.difference, line=calls.line)
        choice = replace(choice, in_circumstance=True)
        return choice, _say(verdict, send, False, "different")
    outside = _find_outside(choice.program.code.target)
    verdict = replace(verdict, findings=(*verdict.findings, *calls.findings, *outside))
    send.begin("further inputs and sizes")
    verdict = replace(verdict, same=True, grade="agrees", reasons=())
    choice, verdict = _judge_further(job, choice, verdict, send)
    if not verdict.same:
        return choice, verdict
    send.begin("the runs in short floats")
    short = judge_short(choice, job.formula)
    verdict = replace(verdict, findings=(*verdict.findings, *short.findings))
    if short.same is False:
        return choice, _say(replace(verdict, difference=short.difference), send, False, "different")
    known = _require_numbers(verdict, floats)
    send(known)  # all its samples are done
    send.begin("random fields")
    exact = judge_exactly(job, choice, verdict, floats)
    if exact.grade == "identical" and not _may_be_exact(verdict):
        exact = replace(exact, grade="agrees", reasons=())
    verdict = _require_numbers(exact, floats)
    send(verdict)
    return choice, verdict


def _require_numbers(verdict: Verdict, floats: Outcome) -> Verdict:
    """Unknown, where float64 alone agrees and a result of the formula holds no number."""
    if verdict.grade != "agrees" or not floats.always_nan:
        return verdict
    reason = _NOTHING.format(", ".join(sorted(floats.always_nan)))
    return replace(verdict, same=None, grade="unknown", reasons=(reason,))


def _may_be_exact(verdict: Verdict) -> bool:
    """May more be said than that numbers agree? Not of types that exact judges do not know."""
    return not any(finding.code in RULES_OUT_PROOF for finding in verdict.findings)


def _judge_further(
    job: Job, choice: Choice, verdict: Verdict, send: Progress
) -> tuple[Choice, Verdict]:
    """Special inputs and sizes, then gradients if asked for."""
    first = choice.samples[0]
    numbers = find_literals(choice.program.code)
    inputs = vary_inputs(choice.samples, numbers)
    choice, verdict, _ = _judge_samples(job, choice, verdict, inputs)
    if verdict.same:
        sizes = vary_sizes(first, numbers)
        choice, verdict, _ = _judge_samples(job, choice, verdict, sizes)
    if verdict.same:
        loops = has_loops(choice.program.code)
        beyond, missed = pass_bounds(first, MOST_ELEMENTS * (1 if loops else 8))
        choice, verdict, _ = _judge_samples(job, choice, verdict, beyond)
        if not verdict.same:  # too large to be explained there
            choice = replace(choice, shown=None, in_circumstance=True)
        says = "not tried beyond the {} of the formula, which takes sizes that are too large"
        found = tuple(Diagnostic("not-beyond", says.format(number)) for number in missed)
        verdict = replace(verdict, findings=(*verdict.findings, *found))
    if not verdict.same:
        send(verdict)
    for sample in choice.samples if job.backward and verdict.same else ():
        outcome = judge_gradients(choice.program, sample)
        if outcome.same is not True:
            verdict = replace(verdict, difference=outcome.difference)
            grade = "different" if outcome.same is False else "unknown"
            return choice, _say(verdict, send, outcome.same, grade, *outcome.reasons)
    return choice, verdict


_AT_ONCE = 16  # runs that are asked for at once


def _judge_samples(
    job: Job, choice: Choice, verdict: Verdict, samples: Iterable[Sample], least: float = CLEAR
) -> tuple[Choice, Verdict, list[Sample]]:
    """The verdict after these samples, and those at which the code agrees."""
    program, agreed = choice.program, []
    usual: set[Lowering] | None = None
    left = iter(samples)
    parts = iter(lambda: list(islice(left, _AT_ONCE)), [])
    calls = (
        (sample, call.answer)
        for part in parts
        for sample, call in zip(
            part, run_all(program, [(each, How(), "") for each in part]), strict=True
        )
    )
    for sample, answer in calls:
        outcome = judge_further(program, job.formula, sample, least, answer)
        verdict = add_findings(verdict, outcome.findings)
        difference = outcome.difference if outcome.same is False else ""
        if outcome.same:
            agreed.append(sample)
            if isinstance(answer, Answer) and answer.shorter:
                if usual is None:
                    runs = (program.run(each.make_inputs(), each.sizes) for each in choice.samples)
                    usual = {each for run in runs for each in run.shorter}
                if not usual.issuperset(answer.shorter):
                    usual |= {*answer.shorter}
                    short = judge_lowered(program, sample)
                    verdict = add_findings(verdict, short.findings)
                    difference = short.difference
        if difference:
            return replace(choice, shown=sample), _differ(verdict, sample, difference), agreed
    return choice, verdict, agreed


def _differ(verdict: Verdict, sample: Sample, difference: str) -> Verdict:
    """The verdict that the code is another function, with the sizes at which it is."""
    sizes = dict(sample.sizes)
    shown = () if sizes in verdict.sizes else (sizes,)
    verdict = replace(verdict, difference=difference, sizes=(*verdict.sizes, *shown), reasons=())
    return replace(verdict, same=False, grade="different")


MOST_LINES = 20_000  # of the code that run at a size far beyond the others
_SURE = 300  # a size up to which the code is the formula, or the verdict says up to which


def _judge_far(job: Job, choice: Choice, verdict: Verdict) -> tuple[Choice, Verdict, str]:
    """The verdict after each size was far larger than the others; beyond which none was tried."""
    program, first = choice.program, choice.samples[0]
    how = How(is_watched=True, most_lines=MOST_LINES)
    near = program.run(first.make_inputs(), first.sizes, how)
    plan = dict(pass_limits(first, has_loops=has_loops(program.code)))
    reached = {name: first.sizes[name] for name in plan}

    def run(sample: Sample) -> Answer | CannotRunError:
        try:
            return program.run(sample.make_inputs(), sample.sizes, how)
        except CannotRunError as error:
            return error

    def judge_there(sample: Sample, answer: Answer | CannotRunError) -> Further:
        found = judge_far(program, job.formula, sample, first, answer)
        grows = isinstance(answer, Answer) and is_growing(near, answer)
        loss = find_loss(program, sample, sample.describe()) if grows and found.same else None
        return replace(found, findings=(*found.findings, loss)) if loss is not None else found

    for name, fars in plan.items():
        farthest: tuple[Sample, Answer] | None = None
        left, is_full = fars[::-1], False
        while left or (farthest is not None and not is_full):
            if not left:  # those at which its types would be full
                assert farthest is not None
                left = pass_full(*farthest, name, near, first.sizes[name])
                is_full = True
                continue
            sample = left.pop(0)
            answer = run(sample)
            if isinstance(answer, CannotRunError) and str(answer) == TOO_LONG.format(MOST_LINES):
                continue
            found = judge_there(sample, answer)
            verdict = add_findings(verdict, found.findings)
            if found.same is False:
                least, said = _find_least(choice, name, sample, lambda d: judge_there(d, run(d)))
                verdict = _differ(verdict, least, said or found.difference)
                return replace(choice, in_circumstance=True), verdict, ""  # too far to be explained
            if farthest is None and isinstance(answer, Answer):
                farthest = sample, answer
            if bool(found.findings) is is_full:  # nearer ones may show more, farther ones do not
                left.clear()
            reached[name] = max(reached[name], sample.sizes[name])
    untried = [f"{name}={size}" for name, size in reached.items() if size < _SURE]
    said = f"not tried beyond {', '.join(untried)}: too many steps, or no such size"
    return choice, verdict, said if untried else ""


def _find_least(
    choice: Choice, name: str, high: Sample, judge_there: Callable[[Sample], Further]
) -> tuple[Sample, str]:
    """The smallest size that halving finds at which the code differs, and how it does there."""
    one, other = choice.samples[0].sizes[name], high.sizes[name]
    difference = ""
    while other - one > 1:
        middle = (one + other) // 2
        near = high.resize(**{name: middle})
        if near is not None:
            near = replace(near, reason=f"{name} is {middle}")
            found = judge_there(near)
            if found.same is False:
                other, high, difference = middle, near, found.difference
                continue
        one = middle
    return high, difference


def _find_outside(target: Any) -> list[Diagnostic]:
    """What the code reads beside its arguments, so that no run tells of all others."""
    read = ", ".join(find_outside(target)) if target is not None else ""
    says = f"the code reads {read}: what it gives may be another at another time"
    return [Diagnostic("outside", says)] if read else []


def _say(verdict: Verdict, send: Progress, same: bool | None, grade: str, *reasons: str) -> Verdict:
    verdict = replace(verdict, same=same, grade=grade, reasons=reasons)
    send(verdict)
    return verdict


def _judge_all_floats(job: Job, choice: Choice) -> Outcome:
    """Every sample; the first difference counts, the largest stands."""
    total = Outcome(True)
    for number, sample in enumerate(choice.samples):
        one = judge_floats(choice.program, job.formula, sample)
        total.always_nan = total.always_nan & one.always_nan if number else one.always_nan
        total.off = max(total.off, one.off)
        total.reasons += [reason for reason in one.reasons if reason not in total.reasons]
        if one.same is not True and total.same:
            total.same, total.difference = one.same, one.difference
    return total


def _say_random(code: Code, program: Program) -> str:
    """Why the code gives something else at each call."""
    if code.script is not None:
        needed = code.script.sources.get(code.answer, ())
        strange = [n for n in code.script.made if n in needed and n not in program.arguments]
        if strange:
            made = f"the result is made from {', '.join(strange)}, which the script draws at random"
            return f"{made} and which stands for nothing in the formula"
    if "dropout" in code.source.lower() or has_dropout(code.target):
        return "the code draws random numbers: dropout in training mode; call .eval()"
    return "the code gives something else at each call: random numbers, or a state that it keeps"


def judge_compiled(job: Job, choice: Choice, verdict: Verdict, send: Progress) -> Verdict:
    """The verdict on the graph that inductor makes of code that is the formula."""
    send.begin("what inductor makes of the code")
    program = replace(choice.program, is_compiled=True)
    names = find_sizes(job.system)
    alike = [dict.fromkeys(names, _EQUAL), *({**dict.fromkeys(names, _EQUAL), n: 1} for n in names)]
    made = (make_samples(job.system, {**each, **job.sizes}) for each in alike)
    samples = [*choice.samples, *(each.first for each in made if each is not None)]
    says, verdict = "as inductor makes it", replace(verdict, reasons=())
    stops: list[str] = []
    for sample in samples:
        try:
            outcome = judge_floats(program, job.formula, sample)
            if outcome.same is not True:
                guilty = ", ".join(program.run(sample.make_inputs(), sample.sizes).guilty)
                found = _differ(verdict, sample, outcome.difference)
                reason = f"the code is the formula, {says} it is not: {guilty}"
                return replace(found, reasons=(reason,))
        except CannotRunError as error:
            stops.append(f"{error}, {sample.describe()}")
    if stops:
        return replace(verdict, same=None, grade="unknown", reasons=(stops[0],))
    exactness = judge_fields(program, choice.samples)
    if exactness.same is False and not (exactness.opaque or exactness.is_chancy):
        found = replace(verdict, same=False, grade="different", difference=exactness.difference)
        return replace(found, reasons=(f"the code is the formula, {says} it is not",))
    grade = "identical" if exactness.same and not exactness.opaque else "agrees"
    reasons = (f"{says}, after its passes", exactness.reason)
    return replace(verdict, grade=grade, reasons=tuple(filter(None, reasons)))


_EQUAL = 4  # each size, or each but one


def refine(job: Job, choice: Choice, verdict: Verdict, send: Progress) -> None:
    """What comes after the judgement: findings and a proof, or an explanation."""
    if verdict.same:
        send.begin("the runs in short floats")
        found = (*find_unstable(choice.program, choice.samples[0]), *_find_empty_rows(job, choice))
        verdict = replace(verdict, findings=(*verdict.findings, *found))
        send(verdict)
        send.begin("the sizes far beyond")
        choice, verdict, untried = _judge_far(job, choice, verdict)
        send(verdict)
        if verdict.same:
            choice, verdict = _prove(job, choice, verdict, send)
        if verdict.grade in {"proved", "identical"} and not _may_be_exact(verdict):
            verdict = replace(verdict, grade="agrees", reasons=())
        if verdict.same and verdict.grade != "proved" and untried:
            verdict = replace(verdict, reasons=(*verdict.reasons, untried))
        send(verdict)
    if verdict.same is False:
        _explain(job, choice, verdict, send)


def _prove(job: Job, choice: Choice, verdict: Verdict, send: Progress) -> tuple[Choice, Verdict]:
    """Proved, if the code can be lifted and both sides have one normal form."""
    if job.backward or not _may_be_exact(verdict):
        return choice, verdict
    send.begin("the proof")
    proof = None
    try:
        proof = find_proof(job, choice)
    except (CannotRunError, DeriveError):
        pass
    except Exception as error:  # a mistake of ours takes nothing from what is known already
        log_error(error)
    if proof is None:
        return choice, verdict
    verdict = replace(verdict, grade="proved", reasons=(proof.words,))
    return judge_other_ways(job, choice, verdict, proof)


def _find_empty_rows(job: Job, choice: Choice) -> list[Diagnostic]:
    """What happens on a row with every entry masked."""
    if not any(getattr(entry, "kind", "") == "bool" for entry in job.system.inputs):
        return []
    sample = choice.samples[-1]
    with suppress(CannotRunError, DeriveError):
        outcome = judge_floats(choice.program, job.formula, sample, empty_row=True)
        if not outcome.same:
            says = "a row with every entry masked is treated in another way"
            return [Diagnostic("empty-row", says, facts=(outcome.difference,))]
    return []


def _explain(job: Job, choice: Choice, verdict: Verdict, send: Progress) -> None:
    """The line and the edit of code that differs; where it raises, as it is where it runs."""
    from derive.checker.explain import explain_verdict

    send.begin("the explanation", has_own_runs=True)
    if (choice.failure is not None and choice.same_if is not None) or choice.in_circumstance:
        return
    with suppress(CannotRunError):
        own = None if choice.failure is not None else send
        told = explain_verdict(job, choice, verdict, own)
        if choice.failure is not None:
            told = replace(told, difference=verdict.difference, line=told.line or verdict.line)
        send(told)
