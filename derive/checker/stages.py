"""The stages of a check after loading: judgements, proof, then findings or an explanation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice

from derive.checker import load
from derive.checker import samples as draws
from derive.checker.judge import (
    CLEAR,
    Outcome,
    judge_fields,
    judge_floats,
    judge_gradients,
    precision,
    remarks,
)
from derive.checker.judge.circumstances import Circumstances, judge_circumstances, run_all
from derive.checker.judge.digits import (
    FINITE_MASK,
    Further,
    describe_stop,
    is_at_poles,
    judge_further,
)
from derive.checker.judge.inputs import vary_inputs
from derive.checker.pick import Choice, pick_program
from derive.checker.processes import CannotRunError
from derive.checker.program import Program, lift_program
from derive.checker.runs import Answer, RunOptions, modes
from derive.checker.samples import Sample
from derive.checker.verdict import Job, Progress, Verdict
from derive.errors import DeriveError, Diagnostic
from derive.ir import nodes as ir
from derive.ir.pieces import to_text
from derive.judge.compare import TOLERANCE, write_sizes
from derive.judge.samples import find_sizes
from derive.prove import prove

MOST_LINES = 20_000  # lines executed at a size far beyond the others
MOST_MADE = 1 << 24  # elements of a tensor of the code at other than ordinary sizes
MOST_WAYS = 12  # size-dependent paths of the code to follow
_SURE = 300  # least size to reach; the verdict names sizes that stay below
_AT_ONCE = 16  # runs per request
_NOTHING = (
    "every element of {} is nan by the formula, so that nothing can be compared: "
    "declare the range of the tensors, x[N] > 0"
)


def describe_choice(system: ir.System, choice: Choice, verdict: Verdict) -> Verdict:
    """The verdict with the bindings, sizes and findings of a program, before it is judged."""
    runs, program = choice.failure is None, choice.program
    new = remarks.find_remarks(system, choice) if runs else remarks.find_undefined(program)
    asked = () if choice.same_if is None else (choice.same_if,)
    return replace(
        verdict,
        bindings=program.describe() if choice.failure is None else choice.failure.bindings,
        sizes=tuple(dict(each.sizes) for each in choice.samples) if runs else (choice.failed_at,),
        findings=(*asked, *verdict.findings, *(choice.findings if runs else ()), *new),
        source=program.code.source,
    )


@dataclass(frozen=True)
class Proof:
    """A proof: its scope in words, and the conditions of the lifted code at each sample."""

    words: str
    ways: tuple[tuple[Sample, tuple[ir.Compare, ...]], ...] = ()


def find_proof(job: Job, choice: Choice) -> Proof | None:
    """The proof that the code equals the formula, or None; DeriveError if it cannot be lifted."""
    program = choice.program
    if program.results:
        return None  # results in another layout than the formula's
    numbers: list[str] = []
    ways: list[tuple[Sample, tuple[ir.Compare, ...]]] = []
    for sample in choice.samples[::2]:  # the second has a size 1
        lifted = lift_program(program, job.system.inputs, dict(sample.sizes))
        if prove(lifted.system, job.system, lifted.fixed) is None:
            return None
        ways.append((sample, lifted.notes))
        given = f" with {' and '.join(map(to_text, lifted.notes))}" if lifted.notes else ""
        if not lifted.fixed:
            return Proof(f"for all sizes{given}", tuple(ways))
        if lifted.fixed.keys() >= {*find_sizes(job.system)}:
            return None
        numbers.append(write_sizes(lifted.fixed, " "))
    told = "; ".join(dict.fromkeys(numbers))
    words = f"at {told}, which the code takes as numbers, for all other sizes"
    return Proof(words, tuple(ways))


def _limit_run() -> RunOptions:
    """The options of a run at far sizes."""
    return RunOptions(is_watched=True, most_lines=MOST_LINES, most_elements=MOST_MADE)


@dataclass(frozen=True)
class Found:
    """The result of one stage; an empty field leaves the verdict as it is."""

    grade: str = ""
    reasons: tuple[str, ...] = ()  # with a grade instead of the earlier ones, else after them
    difference: str = ""
    findings: tuple[Diagnostic, ...] = ()
    once: tuple[Diagnostic, ...] = ()  # findings that count unless their code is known
    line: int | None = None
    sample: Sample | None = None  # the further sample with the difference
    is_final: bool = False  # whether the way of calling or large sizes make the difference


def conclude(start: Verdict, stages: Iterable[Found]) -> Verdict:
    """The verdict from the stages' results: the last grade that one gave, and all findings."""
    verdict = start
    for each in stages:
        findings = [*verdict.findings]
        for finding in each.once:
            if finding.code not in {known.code for known in findings}:
                findings.append(finding)
        sizes = () if each.sample is None else (dict(each.sample.sizes),)
        verdict = replace(
            verdict,
            grade=each.grade or verdict.grade,
            reasons=each.reasons if each.grade else (*verdict.reasons, *each.reasons),
            difference=each.difference or verdict.difference,
            findings=(*findings, *each.findings),
            line=each.line or verdict.line,
            sizes=(*verdict.sizes, *(n for n in sizes if n not in verdict.sizes)),
        )
        if verdict.grade in {"proved", "identical"} and not may_be_exact(verdict):
            verdict = replace(verdict, grade="agrees", reasons=())
    same = {"different": False, "unknown": None}.get(verdict.grade, True)
    return replace(verdict, same=same)


def may_be_exact(verdict: Verdict) -> bool:
    """Whether a grade above "agrees" is possible: exact judges do not model all types."""
    return not any(each.code in precision.RULES_OUT_PROOF for each in verdict.findings)


@dataclass
class Stages:
    """One check: its program, the results of its stages, and the receiver of the verdict."""

    job: Job
    choice: Choice
    start: Verdict
    send: Progress
    found: list[Found] = field(default_factory=list)

    @property
    def program(self) -> Program:
        """The code with its bindings."""
        return self.choice.program

    @property
    def verdict(self) -> Verdict:
        """The verdict so far."""
        return conclude(self.start, self.found)

    def run_stages(self, stages: Iterable[Found]) -> Stages:
        """Run stages up to a first difference or unknown; send the verdict if there is a grade."""
        for found in stages:
            self.found.append(found)
            if any(each.grade or each.reasons for each in self.found):
                self.send(self.verdict)
            if found.grade in {"different", "unknown"}:
                break
        return self

    def judge(self) -> Iterator[Found]:
        """Judge by values: float64 against loops, further samples, short floats, fields."""
        choice, send, formula = self.choice, self.send, self.job.formula
        if choice.failure is not None:
            says = f"the code stops where the formula has a value: {choice.failure}"
            yield Found("different", difference=says, line=choice.failure.line)
        if choice.is_open:
            yield Found("unknown", (choice.unsure,))
        if lacking := remarks.find_nothing(self.job.system, choice):
            yield Found("unknown", (lacking,))
        send.begin("the runs in float64")
        calls = judge_circumstances(self.program, formula, choice.samples)
        if calls.chance:
            yield Found("unknown", (calls.chance,), line=calls.line)
        floats = self.judge_all_floats()
        yield from self.judge_ordinary(floats)
        yield self.judge_calls(calls)
        send.begin("further inputs and sizes")
        yield from self.judge_further()
        send.begin("the runs in short floats")
        short = precision.judge_short(choice, formula)
        if short.same is False:
            yield Found("different", difference=short.difference, findings=short.findings)
        names = ", ".join(sorted(floats.always_nan))
        nothing = (_NOTHING.format(names),) if names else ()
        yield Found("" if nothing else "agrees", nothing, findings=short.findings)
        send.begin("random fields")
        exact = self.judge_exactly()
        if nothing and not (exact.grade and may_be_exact(self.verdict)):
            exact = replace(exact, grade="unknown", reasons=nothing)
        yield exact

    def judge_all_floats(self) -> Outcome:
        """The outcome at the first sample that differs, else the first; its error the largest."""
        every = [judge_floats(self.program, self.job.formula, each) for each in self.choice.samples]
        total = next((each for each in every if each.same is not True), every[0])
        reasons = dict.fromkeys(reason for each in every for reason in each.reasons)
        always_nan = set.intersection(*(each.always_nan for each in every))
        off = max(each.off for each in every)
        return replace(total, off=off, reasons=[*reasons], always_nan=always_nan)

    def judge_ordinary(self, floats: Outcome) -> Iterator[Found]:
        """Judge the outcome in float64; digits decide where rounding may explain a difference."""
        program, samples = self.program, self.choice.samples
        changes = (f"the code {each}, which it was given" for each in floats.reasons)
        findings = tuple(Diagnostic("changes-argument", says) for says in changes)
        is_far = floats.same is False and floats.off > CLEAR
        if is_far and not is_at_poles(program, self.job.formula, samples):
            loose = remarks.find_loose_ends(self.job.system, program, samples[0])
            grade, reasons = ("unknown", (loose,)) if loose else ("different", ())
            yield Found(grade, reasons, floats.difference, findings)
        if floats.same:
            yield Found(findings=findings)
        else:
            yield Found(reasons=(f"float64: {floats.difference}",), findings=findings)
            yield self.judge_samples(samples, TOLERANCE)[1]

    def judge_calls(self, calls: Circumstances) -> Found:
        """The result for code that stops, lacks a result or depends on how it is called."""
        choice, system = self.choice, self.job.system
        refused = [(s, e) for s, e in choice.stops if e.refusal and e.is_incurable]
        if refused:  # because of values, not sizes
            where = f"{refused[0][0].describe()} the code stops, {refused[0][1]}"
            return Found("unknown", (f"{where}: the check got no further",))
        if lacking := remarks.find_lacking(system, choice):
            return Found("different", difference=lacking)
        if calls.difference:
            return Found("different", difference=calls.difference, line=calls.line, is_final=True)
        defaults = remarks.find_other_defaults(system, self.program, choice.samples[0])
        stops = (describe_stop(*each) for each in choice.stops if each[1].is_of_one)
        return Found(findings=(*calls.findings, *defaults, *stops))

    def judge_exactly(self) -> Found:
        """The findings and grade by exact comparison over random prime fields."""
        exactness = judge_fields(self.program, self.choice.samples, backward=self.job.backward)
        once = (FINITE_MASK,) if exactness.soft_mask else ()
        opaque = ", ".join(exactness.opaque)
        if exactness.same:
            return Found("identical", (f"whatever {opaque} may be",) if opaque else (), once=once)
        if exactness.same is None:
            return Found(reasons=(exactness.reason,), once=once)
        # A different value over fields is a difference, unless chance or a hash may cause it.
        if opaque or exactness.is_chancy or once:
            what = opaque or "the order or the sign of values"
            reason = f"undecided over random fields, where {what} is random"
            return Found(reasons=(reason,), once=once)
        if any(each.code == FINITE_MASK.code for each in self.verdict.findings):
            return Found()  # the finding explains it
        says = "in exact arithmetic the code is not quite the formula"
        help = "look for a small constant on one side alone, such as an epsilon"
        facts = (exactness.difference,)
        return Found(findings=(Diagnostic("not-quite", says, facts=facts, help=help),))

    def judge_further(self) -> Iterator[Found]:
        """Judge at special inputs and sizes, then the gradients if requested."""
        samples, code = self.choice.samples, self.program.code
        numbers = load.find_literals(code)
        yield self.judge_samples(vary_inputs(samples, numbers))[1]
        yield self.judge_samples(draws.vary_sizes(samples[0], numbers))[1]
        most = draws.MOST_ELEMENTS * (1 if load.has_loops(code) else 8)
        beyond, missed = draws.list_exceeding(samples[0], most)
        says = "not tried beyond the {} of the formula, which takes sizes that are too large"
        findings = tuple(Diagnostic("not-beyond", says.format(number)) for number in missed)
        yield replace(self.judge_samples(beyond)[1], findings=findings, is_final=True)
        for sample in samples if self.job.backward else ():
            outcome = judge_gradients(self.program, sample)
            if outcome.same is not True:
                grade = "unknown" if outcome.same is None else "different"
                reasons = tuple(outcome.reasons)
                yield Found(grade, reasons, outcome.difference, line=outcome.line, is_final=True)

    def judge_samples(
        self, samples: Iterable[Sample], least: float = CLEAR
    ) -> tuple[list[Sample], Found]:
        """The samples at which the code agrees, up to the first with a difference, and the result.

        Where the code lowers the precision in a call that it does not make at ordinary inputs, it
        is judged there in that precision too.
        """
        program, formula, ordinary = self.program, self.job.formula, self.choice.samples
        own_sizes = [each.sizes for each in ordinary]
        agreed, findings = list[Sample](), list[Diagnostic]()

        def plan(sample: Sample) -> tuple[Sample, RunOptions, str]:
            most = 0 if sample.sizes in own_sizes else MOST_MADE
            return sample, RunOptions(most_elements=most), ""

        usual: set[modes.Lowering] | None = None
        left = iter(samples)
        parts = iter(lambda: list(islice(left, _AT_ONCE)), [])
        calls = (
            (sample, call.answer)
            for part in parts
            for sample, call in zip(part, run_all(program, [*map(plan, part)]), strict=True)
        )
        for sample, answer in calls:
            outcome = judge_further(program, formula, sample, least, answer)
            findings += outcome.findings
            difference = outcome.difference if outcome.same is False else ""
            if outcome.same:
                agreed.append(sample)
                shorter = answer.shorter if isinstance(answer, Answer) else ()
                if usual is None and shorter:
                    runs = (program.run(each.make_inputs(), each.sizes) for each in ordinary)
                    usual = {each for run in runs for each in run.shorter}
                if usual is not None and not usual.issuperset(shorter):
                    usual |= {*shorter}
                    short = precision.judge_lowered(program, sample)
                    findings += short.findings
                    difference = short.difference
            if difference:
                found = Found("different", difference=difference, once=(*findings,), sample=sample)
                return agreed, found
        return agreed, Found(once=tuple(findings))

    def judge_far(self) -> Found:
        """The result at sizes far larger than the others; a reason names sizes that stay small.

        Tried are the largest sizes within the limit of lines, and sizes at which growing numbers
        would overflow their types. A difference is reported at the smallest size that bisection
        finds.
        """
        program, first = self.program, self.choice.samples[0]
        near = program.run(first.make_inputs(), first.sizes, _limit_run())
        plan = draws.list_far_samples(first, has_loops=load.has_loops(program.code))
        reached, findings = {name: first.sizes[name] for name in plan}, list[Diagnostic]()
        for name, fars in plan.items():
            for sample, further in self._run_beyond(name, fars, near):
                findings += further.findings
                if further.same is False:
                    where, says = self._find_nearest(name, sample, further.difference, near)
                    once = tuple(findings)  # too far to be explained there
                    return Found("different", (), says, once=once, sample=where, is_final=True)
                reached[name] = max(reached[name], sample.sizes[name])
        untried = write_sizes({n: size for n, size in reached.items() if size < _SURE})
        says = f"not tried beyond {untried}: too many steps, or no such size"
        return Found(reasons=(says,) if untried else (), once=tuple(findings))

    def _run_far(
        self, sample: Sample, near: Answer
    ) -> tuple[Answer | CannotRunError, Further] | None:
        """The run at a far size, and its outcome; None where it takes too long."""
        program, first = self.program, self.choice.samples[0]
        answer: Answer | CannotRunError
        try:
            answer = program.run(sample.make_inputs(), sample.sizes, _limit_run())
        except CannotRunError as error:
            answer = error
            if error.is_beyond:
                return None
        found = precision.judge_far(program, self.job.formula, sample, first, answer)
        if found.same and isinstance(answer, Answer) and precision.is_growing(near, answer):
            loss = precision.find_loss(program, sample, sample.describe())
            found = replace(found, findings=(*found.findings, *filter(None, [loss])))
        return answer, found

    def _run_beyond(
        self, name: str, fars: Sequence[Sample], near: Answer
    ) -> Iterator[tuple[Sample, Further]]:
        """Yield pairs (sample, outcome): largest values of a size, then where types overflow."""
        farthest: tuple[Sample, Answer] | None = None
        for sample in reversed(fars):
            if tried := self._run_far(sample, near):
                answer, found = tried
                yield sample, found
                if farthest is None and isinstance(answer, Answer):
                    farthest = sample, answer
                if not found.findings:
                    break  # no nearer size shows more
        size = self.choice.samples[0].sizes[name]
        for sample in precision.list_overflows(*farthest, name, near, size) if farthest else ():
            if tried := self._run_far(sample, near):
                yield sample, tried[1]
                if tried[1].findings:
                    break

    def _find_nearest(
        self, name: str, sample: Sample, difference: str, near: Answer
    ) -> tuple[Sample, str]:
        """The pair (sample at the least size that bisection finds to differ, its difference)."""
        low = self.choice.samples[0].sizes[name]
        while sample.sizes[name] - low > 1:
            middle = (low + sample.sizes[name]) // 2
            nearer = sample.resize(**{name: middle})
            nearer = nearer and replace(nearer, reason=f"{name} is {middle}")
            there = self._run_far(nearer, near) if nearer is not None else None
            if nearer is not None and there is not None and there[1].same is False:
                sample, difference = nearer, there[1].difference
            else:
                low = middle
        return sample, difference

    def refine(self) -> None:
        """Add findings and a proof, or an explanation."""
        if self.verdict.same:
            self.run_stages(self.confirm())
        if self.verdict.same is False:
            self.explain()

    def confirm(self) -> Iterator[Found]:
        """For code that agrees: judge it in short floats and at far sizes, then prove it."""
        samples, formula = self.choice.samples, self.job.formula
        self.send.begin("the runs in short floats")
        yield Found(findings=precision.find_unstable(self.program, samples[0]))
        yield Found(findings=tuple(precision.find_cancelling(self.program, samples[0])))
        if any(getattr(entry, "kind", "") == "bool" for entry in self.job.system.inputs):
            with suppress(CannotRunError, DeriveError):
                outcome = judge_floats(self.program, formula, samples[-1], empty_row=True)
                if not outcome.same:
                    says = "a row with every entry masked is treated in another way"
                    finding = Diagnostic("empty-row", says, facts=(outcome.difference,))
                    yield Found(findings=(finding,))
        self.send.begin("the sizes far beyond")
        yield self.judge_far()
        if not self.job.backward and may_be_exact(self.verdict):
            self.send.begin("the proof")
            proof = None
            with suppress(Exception):  # a refusal, or a bug in derive: keep the verdict so far
                proof = find_proof(self.job, self.choice)
            if proof is not None:
                yield from self.judge_other_ways(proof)

    def judge_other_ways(self, proof: Proof) -> Iterator[Found]:
        """Judge the paths of the code where the conditions of its proof fail.

        Each path has its own conditions, whose negation may lead to another path.
        """
        left = [(*way, frozenset[tuple[ir.Expr, ir.Expr]]()) for way in proof.ways]
        met: dict[str, dict[str, None]] = {}  # sizes at which float64 agrees, by condition
        seen = {(*sample.sizes.items(),) for sample, _ in proof.ways}
        first = self.choice.samples[0].sizes
        for _ in range(MOST_WAYS):
            if not left:
                break
            sample, path, crossed = left.pop(0)
            fresh = [
                (condition, other)
                for condition, other in draws.find_other_sides(sample, path)
                if (*other.sizes.items(),) not in seen
                and (condition.left, condition.right) not in crossed  # no return to a previous path
            ]
            seen |= {(*other.sizes.items(),) for _, other in fresh}
            agreed, found = self.judge_samples([each for _, each in fresh])
            yield found
            for other in agreed:
                moved = {name: n for name, n in other.sizes.items() if n != first[name]}
                met.setdefault(other.reason, {})[write_sizes(moved, " ")] = None
            for condition, other in dict(reversed(fresh)).items():  # one per condition
                with suppress(CannotRunError, DeriveError):
                    lifted = lift_program(self.program, self.job.system.inputs, dict(other.sizes))
                    both = (condition.left, condition.right)
                    left.append((other, lifted.notes, crossed | {both}))
        told = "; ".join(f"{where} at {', '.join(sizes)}" for where, sizes in met.items())
        yield Found("proved", (f"{proof.words}; float64 agrees {told}" if met else proof.words,))

    def explain(self) -> None:
        """Send the verdict with line and edit; code that raises is explained where it runs."""
        from derive.checker.explain import explain_verdict

        choice, verdict, last = self.choice, self.verdict, self.found[-1]
        self.send.begin("the explanation", has_own_runs=True)
        differs = not choice.agrees and bool(choice.samples[0].relations)  # at related sizes too
        is_known = choice.failure is not None and choice.same_if is not None and not differs
        if is_known or last.is_final:
            return
        with suppress(CannotRunError):
            own = None if choice.failure is not None else self.send
            told = explain_verdict(self.job, replace(choice, shown=last.sample), verdict, own)
            if choice.failure is not None:
                told = replace(told, difference=verdict.difference, line=told.line or verdict.line)
            self.send(told)


def judge(job: Job, code: load.Code, verdict: Verdict, send: Progress) -> Stages:
    """The stages of loaded code, judged by values."""
    send.begin("the first run")
    choice = pick_program(code, job.system, job.binds, job.sizes)
    stages = Stages(job, choice, describe_choice(job.system, choice, verdict), send)
    return stages.run_stages(stages.judge())
