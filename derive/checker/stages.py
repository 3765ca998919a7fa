"""The stages of a check after loading: judgements, proof, then findings or an explanation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from derive.checker import load, subjects
from derive.checker import samples as draws
from derive.checker.judge import (
    CLEAR,
    FINITE_MASK,
    Further,
    Outcome,
    is_at_poles,
    judge_at,
    judge_fields,
    judge_floats,
    judge_further,
    judge_gradients,
    precision,
    say_ties,
)
from derive.checker.judge.circumstances import judge_circumstances, run_all
from derive.checker.pick import Choice, pick_program, show_default
from derive.checker.processes import CannotRunError, find_kind, log_error
from derive.checker.program import Program, lift_program
from derive.checker.reading import say_line
from derive.checker.runs import Answer, RunOptions, has_dropout, is_same, modes
from derive.checker.samples import Sample
from derive.checker.slots import Slot, find_constructor_slots, find_slots
from derive.checker.verdict import Job, Progress, Verdict
from derive.errors import DeriveError, Diagnostic
from derive.frontend.torch.numbers import Condition
from derive.ir import nodes as ir
from derive.ir.pieces import to_text
from derive.ir.walk import find_accesses
from derive.judge.compare import TOLERANCE
from derive.judge.samples import find_sizes
from derive.prove import prove

MOST_LINES = 20_000  # lines executed at a size far beyond the others
MOST_MADE = 1 << 24  # elements of a tensor of the code at other than ordinary sizes
MOST_WAYS = 12  # size-dependent paths of the code to follow
_SURE = 300  # least size to reach; the verdict names sizes that stay below
_AT_ONCE = 16  # runs per request
_EQUAL = 4  # value of all sizes but at most one in the check of inductor's code
_NOTHING = (
    "every element of {} is nan by the formula, so that nothing can be compared: "
    "declare what the tensors may hold, x[N] > 0"
)


def find_remarks(system: ir.System, choice: Choice) -> Iterator[Diagnostic]:
    """Yield findings on unbound tensors and parameters and on undefined names."""
    taken = choice.program.find_read()
    read = {each.tensor for equation in system.equations for each in find_accesses(equation.value)}
    for tensor in system.tensors:
        if tensor.name not in taken and tensor in read:
            yield Diagnostic(
                "not-taken",
                f"{tensor.name} of the formula is given to nothing in the code",
                help=f"bind it, as in --bind ARGUMENT={tensor.name}, if an argument stands for it",
            )
    for slot in find_unbound(choice.program, choice.samples[0]):
        if slot.shape is not None:
            says = f"the code's parameter {slot.name} stands for nothing in the formula"
            advice = f"bind it, --bind {slot.name}=NAME, if it does"
            if slot.name.endswith("bias"):
                advice = f"make its layer with bias=False, or add it to the formula and {advice}"
            yield Diagnostic("not-given", says, help=advice)
    yield from _find_undefined(choice.program)


def find_unbound(program: Program, sample: Sample) -> list[Slot]:
    """The unbound parameters of a module, and unbound arguments without a default."""
    target = program.code.target
    if target is None:
        return []
    kind = find_kind(target)
    if kind == "class":
        made = program.find_given(sample.make_inputs(), sample.sizes).constructor
        target, kind = subjects.construct(target, made, program.code.path), "module"
    arguments, parameters = find_slots(target)
    free = [slot for slot in arguments if slot.default is None and not slot.is_number]
    every = (*free, *(parameters if kind == "module" else ()))
    return [slot for slot in every if slot.name not in program.sources]


def _find_undefined(program: Program) -> Iterator[Diagnostic]:
    """Yield findings on undefined names of a script with their bindings."""
    script = program.code.script
    for name, line in script.free.items() if script is not None else ():
        source = program.arguments.get(name)
        if script and source is not None and not (program.assumed and name in script.filled):
            where = say_line(line, program.code.places)
            meant = f"the formula's {source}" if source == name else source
            yield Diagnostic("undefined", f"{where}: {name} is not made: it is read as {meant}")


def find_lacking(system: ir.System, choice: Choice) -> str:
    """The missing results, or sizes at which only the code fails, in words; "" for none."""
    sample = choice.samples[0]
    count = len(choice.program.run(sample.make_inputs(), sample.sizes).results)
    names = [tensor.name for tensor in system.results]
    if names[count:]:
        advice = f"; if that is meant, end the formula with: return {', '.join(names[:count])}"
        return f"the code does not return {', '.join(names[count:])}{advice if count else ''}"
    for sample, error in choice.stops:
        wanted = sample.evaluate(sample.make_inputs()).values()
        if not any(bool((value != value).any()) for value in wanted):
            at = draws.show_sizes(sample.sizes)
            return f"at {at} the code stops, {error}, where the formula has a value"
    return ""


def find_loose_ends(system: ir.System, program: Program, sample: Sample) -> str:
    """The reason why missing bindings may explain a difference; "" for none."""
    taken = program.find_read()
    tensors = [tensor.name for tensor in system.tensors if tensor.name not in taken]
    slots = [slot.name for slot in find_unbound(program, sample)]
    if not tensors or not slots:
        return ""
    return (
        f"{', '.join(tensors)} of the formula and {', '.join(slots)} of the code are bound to "
        f"nothing; say what goes with what, --bind {slots[0]}={tensors[0]}"
    )


def find_surroundings(system: ir.System, program: Program, first: Sample) -> Iterator[Diagnostic]:
    """Yield findings on outside modules and on defaults that differ from the formula's."""
    target = program.code.target
    if read := ", ".join(subjects.find_outside(target)) if target is not None else "":
        says = f"the code reads {read}: what it gives may be another at another time"
        yield Diagnostic("outside", says)
    slots = [] if target is None else find_slots(target)[0]
    slots += find_constructor_slots(target) if find_kind(target) == "class" else ()
    taken = {program.numbers.get(slot.name): slot for slot in slots if not slot.required}
    for scalar in system.scalars:
        slot = taken.get(scalar.name) or taken.get(f"tensor({scalar.name})")
        if scalar.default is None or slot is None:
            continue
        parts = (program.arguments, program.constructor)
        arguments, made = ({n: s for n, s in part.items() if n != slot.name} for part in parts)
        without = replace(program, arguments=arguments, constructor=made)
        with suppress(CannotRunError):
            values = replace(first, seed=0).make_inputs()
            runs = (each.run(values, first.sizes) for each in (program, without))
            if not all(map(is_same, *(run.results for run in runs))):
                shown = show_default(scalar.default)
                says = f"{slot.name} is {slot.default!r} by default in the code"
                says = f"{says}, in the formula {scalar.name} is {shown}"
                fact = "judged with equal numbers: where none is given, the values differ"
                yield Diagnostic("scalar-default", says, facts=(fact,))


def _say_random(program: Program) -> str:
    """The reason why results vary between calls, in words."""
    code = program.code
    if code.script is not None:
        needed = code.script.sources.get(code.answer, ())
        strange = [n for n in code.script.made if n in needed and n not in program.arguments]
        if strange:
            made = f"the result is made from {', '.join(strange)}, which the script draws at random"
            return f"{made} and which stands for nothing in the formula"
    if "dropout" in code.source.lower() or has_dropout(code.target):
        return "the code draws random numbers: dropout in training mode; call .eval()"
    return "the code gives something else at each call: random numbers, or a state that it keeps"


@dataclass(frozen=True)
class Proof:
    """A proof: its scope in words, and the conditions of the lifted code at each sample."""

    words: str
    ways: tuple[tuple[Sample, tuple[Condition, ...]], ...] = ()


def find_proof(job: Job, choice: Choice) -> Proof | None:
    """The proof; None where there is none, DeriveError where the code cannot be lifted."""
    program = choice.program
    if program.results:
        return None  # results in another layout than the formula's
    numbers: list[str] = []
    ways: list[tuple[Sample, tuple[Condition, ...]]] = []
    for sample in choice.samples[::2]:  # the second has a size 1
        lifted = lift_program(program, job.system.inputs, dict(sample.sizes))
        if prove(lifted.system, job.system, lifted.fixed) is None:
            return None
        ways.append((sample, lifted.notes))
        given = f" with {' and '.join(map(str, lifted.notes))}" if lifted.notes else ""
        if not lifted.fixed:
            return Proof(f"for all sizes{given}", tuple(ways))
        if lifted.fixed.keys() >= {*find_sizes(job.system)}:
            return None
        numbers.append(draws.show_sizes(lifted.fixed))
    told = "; ".join(dict.fromkeys(numbers))
    words = f"at {told}, which the code takes as numbers, for all other sizes"
    return Proof(words, tuple(ways))


@dataclass
class Stages:
    """One check: its program, the verdict so far, and the receiver of progress."""

    job: Job
    choice: Choice
    verdict: Verdict
    send: Progress

    @property
    def program(self) -> Program:
        """The code with its bindings."""
        return self.choice.program

    @property
    def may_be_exact(self) -> bool:
        """Whether a grade above "agrees" is possible: exact judges do not model all types."""
        return not any(each.code in precision.RULES_OUT_PROOF for each in self.verdict.findings)

    def agrees(self) -> bool:
        """Whether the code agrees with the formula so far."""
        return self.verdict.same is True

    def update(self, **changes: Any) -> None:
        """Replace fields of the verdict."""
        self.verdict = replace(self.verdict, **changes)

    def add_findings(self, findings: Iterable[Diagnostic], *, only_new: bool = False) -> None:
        """Add findings; with `only_new`, the first of each code that the verdict lacks."""
        known = {each.code for each in self.verdict.findings}
        first = {each.code: each for each in reversed([*findings])} if only_new else {}
        new = [f for f in reversed(first.values()) if f.code not in known] if only_new else findings
        self.update(findings=(*self.verdict.findings, *new))

    def conclude(self, same: bool | None, *reasons: str, **changes: Any) -> Stages:
        """Set and send the answer, different or unknown."""
        grade = "different" if same is False else "unknown"
        self.update(same=same, grade=grade, reasons=reasons, **changes)
        self.send(self.verdict)
        return self

    def differ(self, sample: Sample, difference: str) -> None:
        """Set the answer to different, with the sizes of the sample."""
        sizes = dict(sample.sizes)
        shown = () if sizes in self.verdict.sizes else (sizes,)
        self.update(difference=difference, sizes=(*self.verdict.sizes, *shown), reasons=())
        self.update(same=False, grade="different")

    def judge(self) -> Stages:
        """Judge by values: float64 against loops, further samples, short floats, fields."""
        choice, send, system = self.choice, self.send, self.job.system
        code_findings = self.verdict.findings
        self.update(
            bindings=self.program.describe(),
            sizes=tuple(dict(sample.sizes) for sample in choice.samples),
            findings=(*code_findings, *choice.findings, *find_remarks(system, choice)),
            source=self.program.code.source,
        )
        asked = () if choice.same_if is None else (choice.same_if,)
        if choice.failure is not None:
            return self.conclude(
                False,
                bindings=(),
                sizes=(dict(choice.failed_at),),
                difference=f"the code stops where the formula has a value: {choice.failure}",
                line=choice.failure.line,
                findings=(*asked, *code_findings, *_find_undefined(self.program)),
            )
        self.update(findings=(*asked, *self.verdict.findings))
        if choice.is_open:
            return self.conclude(None, "nobody has said which sizes are meant")
        send.begin("the runs in float64")
        calls = judge_circumstances(self.program, self.job.formula, choice.samples)
        if calls.is_random or calls.chance:
            return self.conclude(None, calls.chance or _say_random(self.program), line=calls.line)
        floats = self.judge_all_floats()
        changes = (f"the code {each}, which it was given" for each in floats.reasons)
        self.add_findings(Diagnostic("changes-argument", says) for says in changes)
        at_poles = is_at_poles(self.program, self.job.formula, choice.samples)
        if floats.same is False and floats.off > CLEAR and not at_poles:
            loose = find_loose_ends(system, self.program, choice.samples[0])
            same, reasons = (None, [loose]) if loose else (False, [])
            return self.conclude(same, *reasons, difference=floats.difference)
        if not floats.same:  # a difference that rounding may explain
            self.conclude(None, f"float64: {floats.difference}")
            self.judge_samples(choice.samples, TOLERANCE)
            if self.verdict.same is False:
                send(self.verdict)
                return self
        refused = [(s, e) for s, e in choice.stops if e.refusal and e.is_incurable]
        if refused:  # because of values, not sizes
            where = f"{refused[0][0].describe()} the code stops, {refused[0][1]}"
            return self.conclude(None, f"{where}: the check got no further")
        if lacking := find_lacking(system, choice):
            return self.conclude(False, difference=lacking)
        if calls.difference:
            self.choice = replace(choice, in_circumstance=True)
            return self.conclude(False, difference=calls.difference, line=calls.line)
        self.add_findings(calls.findings)
        self.add_findings(find_surroundings(system, self.program, choice.samples[0]))
        send.begin("further inputs and sizes")
        self.update(same=True, grade="agrees", reasons=())
        self.judge_further()
        if not self.verdict.same:
            return self
        send.begin("the runs in short floats")
        short = precision.judge_short(self.choice, self.job.formula)
        self.add_findings(short.findings)
        if short.same is False:
            return self.conclude(False, difference=short.difference)
        known = self.verdict
        self.require_numbers(floats)
        send(self.verdict)  # all its samples are done
        self.verdict = known
        send.begin("random fields")
        self.judge_exactly(floats)
        if self.verdict.grade == "identical" and not self.may_be_exact:
            self.update(grade="agrees", reasons=())
        self.require_numbers(floats)
        send(self.verdict)
        return self

    def judge_all_floats(self) -> Outcome:
        """The first difference over all samples, with the largest error."""
        every = [judge_floats(self.program, self.job.formula, each) for each in self.choice.samples]
        total = next((each for each in every if each.same is not True), every[0])
        reasons = dict.fromkeys(reason for each in every for reason in each.reasons)
        always_nan = set.intersection(*(each.always_nan for each in every))
        off = max(each.off for each in every)
        return replace(total, off=off, reasons=[*reasons], always_nan=always_nan)

    def require_numbers(self, floats: Outcome) -> None:
        """Set the answer to unknown if a result is all nan and only float64 agrees."""
        if self.verdict.grade == "agrees" and floats.always_nan:
            reason = _NOTHING.format(", ".join(sorted(floats.always_nan)))
            self.update(same=None, grade="unknown", reasons=(reason,))

    def judge_exactly(self, floats: Outcome) -> None:
        """Judge over random fields; `floats` is the outcome in float64."""
        exactness = judge_fields(self.program, self.choice.samples, backward=self.job.backward)
        verdict = self.verdict
        if exactness.soft_mask:
            self.add_findings([FINITE_MASK], only_new=True)
        if exactness.same:
            if not verdict.same:
                says = f"exact arithmetic agrees, float64 is off by {floats.off:.1e}"
                self.add_findings([Diagnostic("rounding", says, facts=verdict.reasons)])
            reasons = [f"whatever {', '.join(exactness.opaque)} may be"] if exactness.opaque else []
            self.update(same=True, grade="identical", reasons=tuple(reasons))
        elif exactness.same is None:
            self.update(reasons=(*verdict.reasons, exactness.reason))
        # A different value over fields is a difference, unless chance or a hash may cause it.
        elif exactness.opaque or exactness.is_chancy or exactness.soft_mask:
            what = ", ".join(exactness.opaque) or "the order or the sign of values"
            reason = f"not told over random fields, where {what} is left to chance"
            self.update(reasons=(*verdict.reasons, reason))
        elif any(each.code == FINITE_MASK.code for each in verdict.findings):
            return  # the finding explains it
        elif verdict.same:
            says = "in exact arithmetic the code is not quite the formula"
            help = "look for a small constant on one side alone, such as an epsilon"
            facts = (exactness.difference,)
            self.add_findings([Diagnostic("not-quite", says, facts=facts, help=help)])
        else:
            difference = floats.difference or exactness.difference
            self.update(same=False, grade="different", difference=difference)

    def judge_further(self) -> None:
        """Judge at special inputs and sizes, then the gradients if requested."""
        first, code = self.choice.samples[0], self.program.code
        numbers = load.find_literals(code)
        self.judge_samples(draws.vary_inputs(self.choice.samples, numbers))
        if self.agrees():
            self.judge_samples(draws.vary_sizes(first, numbers))
        if self.agrees():
            most = draws.MOST_ELEMENTS * (1 if load.has_loops(code) else 8)
            beyond, missed = draws.pass_bounds(first, most)
            self.judge_samples(beyond)
            if not self.agrees():  # too large to be explained there
                self.choice = replace(self.choice, shown=None, in_circumstance=True)
            says = "not tried beyond the {} of the formula, which takes sizes that are too large"
            self.add_findings(Diagnostic("not-beyond", says.format(number)) for number in missed)
        if not self.agrees():
            self.send(self.verdict)
        for sample in self.choice.samples if self.job.backward and self.agrees() else ():
            outcome = judge_gradients(self.program, sample)
            if outcome.same is not True:
                self.conclude(outcome.same, *outcome.reasons, difference=outcome.difference)
                self.mend_cuts(outcome.cuts)
                return

    def mend_cuts(self, cuts: Sequence[tuple[int, str]]) -> None:
        """Set the line that cuts a gradient, and the call to leave out if that mends it."""
        from derive.checker.explain import find_uncut

        if cuts:
            self.choice = replace(self.choice, in_circumstance=True)  # the values are right
            found = find_uncut(self.program, self.choice.samples, cuts)
            self.update(line=found.line, edit=found.edit, corrected=found.corrected)
            self.send(self.verdict)

    def judge_samples(self, samples: Iterable[Sample], least: float = CLEAR) -> list[Sample]:
        """The samples at which the code agrees, up to the first with a difference.

        The sample with the difference is kept. Where the code lowers the precision in a call that
        it does not make at ordinary inputs, it is judged there in that precision too.
        """
        program, agreed = self.program, list[Sample]()
        own_sizes = [each.sizes for each in self.choice.samples]

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
            outcome = judge_further(program, self.job.formula, sample, least, answer)
            self.add_findings(outcome.findings, only_new=True)
            difference = outcome.difference if outcome.same is False else ""
            if outcome.same:
                agreed.append(sample)
                shorter = answer.shorter if isinstance(answer, Answer) else ()
                if usual is None and shorter:
                    ordinary = self.choice.samples
                    runs = (program.run(each.make_inputs(), each.sizes) for each in ordinary)
                    usual = {each for run in runs for each in run.shorter}
                if usual is not None and not usual.issuperset(shorter):
                    usual |= {*shorter}
                    short = precision.judge_lowered(program, sample)
                    self.add_findings(short.findings, only_new=True)
                    difference = short.difference
            if difference:
                self.choice = replace(self.choice, shown=sample)
                self.differ(sample, say_ties(program, self.job.formula, sample, difference))
                break
        return agreed

    def judge_far(self) -> str:
        """Judge at sizes far larger than the others; the result names sizes that stay small.

        Tried are the largest sizes within the limit of lines, and sizes at which growing numbers
        would overflow their types. A difference is reported at the smallest size that bisection
        finds.
        """
        program, first = self.program, self.choice.samples[0]
        how = RunOptions(is_watched=True, most_lines=MOST_LINES, most_elements=MOST_MADE)
        near = program.run(first.make_inputs(), first.sizes, how)
        plan = draws.pass_limits(first, has_loops=load.has_loops(program.code))
        reached = {name: first.sizes[name] for name in plan}

        def run_far(sample: Sample) -> tuple[Answer | CannotRunError, Further] | None:
            answer: Answer | CannotRunError
            try:
                answer = program.run(sample.make_inputs(), sample.sizes, how)
            except CannotRunError as error:
                answer = error
                if error.is_beyond:
                    return None
            found = precision.judge_far(program, self.job.formula, sample, first, answer)
            if found.same and isinstance(answer, Answer) and precision.is_growing(near, answer):
                loss = precision.find_loss(program, sample, sample.describe())
                found = replace(found, findings=(*found.findings, *filter(None, [loss])))
            return answer, found

        for name, fars in plan.items():
            farthest: tuple[Sample, Answer] | None = None
            left, is_full = fars[::-1], False
            while left or (farthest is not None and not is_full):
                if not left:  # sizes of overflow
                    assert farthest is not None
                    left = precision.pass_full(*farthest, name, near, first.sizes[name])
                    is_full = True
                    continue
                sample = left.pop(0)
                tried = run_far(sample)
                if tried is None:
                    continue
                answer, found = tried
                self.add_findings(found.findings, only_new=True)
                if found.same is False:
                    low, difference = first.sizes[name], found.difference
                    while sample.sizes[name] - low > 1:  # bisection
                        middle = (low + sample.sizes[name]) // 2
                        nearer = sample.resize(**{name: middle})
                        nearer = nearer and replace(nearer, reason=f"{name} is {middle}")
                        there = run_far(nearer) if nearer is not None else None
                        if nearer is not None and there is not None and there[1].same is False:
                            sample, difference = nearer, there[1].difference
                        else:
                            low = middle
                    self.differ(sample, difference)
                    self.choice = replace(self.choice, in_circumstance=True)  # too far to explain
                    return ""
                if farthest is None and isinstance(answer, Answer):
                    farthest = sample, answer
                if bool(found.findings) is is_full:  # nearer sizes may show more, farther ones not
                    left.clear()
                reached[name] = max(reached[name], sample.sizes[name])
        untried = draws.show_sizes({n: size for n, size in reached.items() if size < _SURE}, ",")
        return untried and f"not tried beyond {untried}: too many steps, or no such size"

    def judge_compiled(self) -> None:
        """Judge inductor's output for code that agrees with the formula.

        A pattern that confuses two indices matches where their extents are equal, and often where
        one is 1: such sizes are tried beside distinct ones.
        """
        self.send.begin("what inductor makes of the code")
        program = replace(self.program, is_compiled=True)
        equal = dict.fromkeys(find_sizes(self.job.system), _EQUAL)
        alike = [equal, *({**equal, name: 1} for name in equal)]
        made = (draws.make_samples(self.job.system, {**each, **self.job.sizes}) for each in alike)
        samples = [*self.choice.samples, *(each.first for each in made if each is not None)]
        says = "as inductor makes it"
        other = f"the code is the formula, {says} it is not"
        self.update(reasons=())
        stops: list[str] = []
        for sample in samples:
            try:
                outcome = judge_floats(program, self.job.formula, sample)
                if outcome.same is not True:
                    guilty = ", ".join(program.run(sample.make_inputs(), sample.sizes).guilty)
                    self.differ(sample, outcome.difference)
                    self.conclude(False, f"{other}: {guilty}")
                    return
            except CannotRunError as error:
                stops.append(f"{error}, {sample.describe()}")
        if stops:
            self.conclude(None, stops[0])
            return
        exactness = judge_fields(program, self.choice.samples)
        if exactness.same is False and not (exactness.opaque or exactness.is_chancy):
            self.conclude(False, other, difference=exactness.difference)
            return
        grade = "identical" if exactness.same and not exactness.opaque else "agrees"
        reasons = (f"{says}, after its passes", exactness.reason)
        self.update(grade=grade, reasons=tuple(filter(None, reasons)))
        self.send(self.verdict)

    def refine(self) -> None:
        """Add findings and a proof, or an explanation."""
        send, choice = self.send, self.choice
        if self.verdict.same:
            send.begin("the runs in short floats")
            self.add_findings(precision.find_unstable(self.program, choice.samples[0]))
            self.add_findings(precision.find_cancelling(self.program, choice.samples[0]))
            if any(getattr(entry, "kind", "") == "bool" for entry in self.job.system.inputs):
                with suppress(CannotRunError, DeriveError):
                    sample = choice.samples[-1]
                    outcome = judge_floats(self.program, self.job.formula, sample, empty_row=True)
                    if not outcome.same:
                        says = "a row with every entry masked is treated in another way"
                        facts = (outcome.difference,)
                        self.add_findings([Diagnostic("empty-row", says, facts=facts)])
            send(self.verdict)
            send.begin("the sizes far beyond")
            untried = self.judge_far()
            send(self.verdict)
            if self.verdict.same and not self.job.backward and self.may_be_exact:
                self.prove()
            if self.verdict.grade in {"proved", "identical"} and not self.may_be_exact:
                self.update(grade="agrees", reasons=())
            if self.verdict.same and self.verdict.grade != "proved" and untried:
                self.update(reasons=(*self.verdict.reasons, untried))
            send(self.verdict)
        if self.verdict.same is False:
            self.explain()
            shown = self.choice.shown
            if not self.send.verdict.edit and shown is not None and not shown.is_ordinary:
                self.suggest_domain(shown)

    def prove(self) -> None:
        """Set the grade to proved if the lifted code and the formula have one normal form."""
        self.send.begin("the proof")
        proof = None
        try:
            proof = find_proof(self.job, self.choice)
        except (CannotRunError, DeriveError):
            pass
        except Exception as error:  # a bug in derive: keep the verdict so far
            log_error(error)
        if proof is not None:
            self.update(grade="proved", reasons=(proof.words,))
            self.judge_other_ways(proof)

    def judge_other_ways(self, proof: Proof) -> None:
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
            agreed = self.judge_samples([each for _, each in fresh])
            if not self.verdict.same:
                return
            for other in agreed:
                moved = {name: n for name, n in other.sizes.items() if n != first[name]}
                met.setdefault(other.reason, {})[draws.show_sizes(moved)] = None
            for condition, other in dict(reversed(fresh)).items():  # one per condition
                with suppress(CannotRunError, DeriveError):
                    lifted = lift_program(self.program, self.job.system.inputs, dict(other.sizes))
                    both = (condition.left, condition.right)
                    left.append((other, lifted.notes, crossed | {both}))
        if met:
            told = "; ".join(f"{where} at {', '.join(sizes)}" for where, sizes in met.items())
            self.update(reasons=(f"{proof.words}; float64 agrees {told}",))

    def explain(self) -> None:
        """Add the line and the edit to the verdict; code that raises is explained where it runs."""
        from derive.checker.explain import explain_verdict

        choice, verdict = self.choice, self.verdict
        self.send.begin("the explanation", has_own_runs=True)
        is_told = choice.failure is not None and choice.same_if is not None
        if is_told and not choice.agrees and choice.samples[0].relations:
            is_told = False  # the code runs at related sizes and differs there too
        if is_told or choice.in_circumstance:
            return
        with suppress(CannotRunError):
            own = None if choice.failure is not None else self.send
            told = explain_verdict(self.job, choice, verdict, own)
            if choice.failure is not None:
                told = replace(told, difference=verdict.difference, line=told.line or verdict.line)
            self.send(told)

    def suggest_domain(self, shown: Sample) -> None:
        """Add a finding for each tensor whose declaration as >= 0 or > 0 makes the code the same.

        A difference at special inputs may never occur in the user's data.
        """
        told, system = self.send.verdict, self.job.system
        silent = Progress(lambda _: None, told)
        silent.grant = self.send.grant
        for entry in draws.list_tensors(system, "real"):
            for sign in (">=", ">") if entry.lower is entry.upper is None else ():
                bounded = replace(entry, lower=ir.ZERO, strict=(sign == ">", False))
                inputs = tuple(bounded if each is entry else each for each in system.inputs)
                job = replace(self.job, system=replace(system, inputs=inputs))
                with suppress(CannotRunError, DeriveError):
                    if judge_at(self.program, replace(shown, system=job.system)).is_clear:
                        continue  # a difference in this domain, too
                    if judge(job, self.program.code, job.start(), silent).verdict.same:
                        shape = ",".join(map(to_text, entry.shape))
                        says = f"with {entry.name}[{shape}] {sign} 0 it is the same"
                        found = Diagnostic("domain", says, help="declare it, if it is so")
                        told = replace(told, findings=(*told.findings, found))
                        break
        if told.findings != self.send.verdict.findings:
            self.send(told)


def judge(job: Job, code: load.Code, verdict: Verdict, send: Progress) -> Stages:
    """The stages of loaded code, judged by values."""
    send.begin("the first run")
    choice = pick_program(code, job.system, job.binds, job.sizes, job.making)
    return Stages(job, choice, verdict, send).judge()
