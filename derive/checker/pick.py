"""The search for the program to judge and its sizes, most certain candidates first.

    1. sizes free       bindings by name and order, at pairwise distinct sizes; a module instance
                        has the sizes that it was made for
    2. sizes stated     a product in a view or an assertion of the code that failed: E = H*D
    3. sizes by name    a number of the code with the name of a size, H = 3; at free sizes the code
                        may run and fit by chance, or differ
    4. a literal        a number of the code as a size, where the code does not fit at free sizes

Of several assignments of numbers, those with the best name matches decide; of these the programs
that run with the formula's shapes. If some agree with the formula and some do not, the choice is
open and the verdict unknown. Layouts and coincidences of sizes that are not stated are tried only
for the report to suggest: a guess never gives the verdict "same".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, islice

from derive.checker import load, runs, subjects
from derive.checker.bind import find_constructor, find_layouts
from derive.checker.judge import MOST_STEPS, count_steps
from derive.checker.processes import CannotRunError, find_kind
from derive.checker.program import Program, find_number_names
from derive.checker.relations import (
    Relations,
    Statement,
    find_coincidences,
    find_merged,
    guess_relations,
)
from derive.checker.samples import Sample, Samples, make_samples, show_number
from derive.checker.slots import NAMED, rank_size
from derive.errors import Diagnostic
from derive.ir import nodes as ir
from derive.ir.text import to_text
from derive.judge.compare import compare_values
from derive.judge.samples import find_sizes

MOST_RELATIONS = 3  # relations of sizes at one sample
MOST_STATED = 16  # samples at sizes that the code states
MOST_FIXED = 60  # assignments of a literal to a size
MOST_GUESSED = 100  # layouts to try, and coincidences of sizes
MOST_AT_GUESSES = 4  # programs to try with each


@dataclass(frozen=True)
class Choice:
    """A program that runs at these samples, with findings and doubts.

    It `fits` if its results have the formula's shapes. `failure` is the error at the sizes
    `failed_at`, if it runs only at others or with other arguments. `same_if` is an unstated
    condition under which it would be the same.
    """

    program: Program
    samples: tuple[Sample, ...]
    findings: tuple[Diagnostic, ...] = ()
    stops: tuple[tuple[Sample, CannotRunError], ...] = ()  # samples at which the code does not run
    shown: Sample | None = None  # a further sample with a difference
    failure: CannotRunError | None = None
    failed_at: Mapping[str, int] = field(default_factory=dict)
    same_if: Diagnostic | None = None
    fits: bool = True
    agrees: bool = True  # at the first sample

    @property
    def is_open(self) -> bool:
        """Whether there is no answer without the condition, since other programs fit too."""
        return self.fits and self.same_if is not None and self.failure is None


@dataclass(frozen=True)
class Trial:
    """A program that ran at the first of its samples, with its agreement there."""

    program: Program
    samples: Samples
    first: Sample
    fits: bool  # whether the results have the formula's shapes
    agrees: bool  # whether they have its values too
    same_if: Diagnostic | None = None
    is_chance: bool = False  # whether it fits at its first sample alone

    def is_by_default(self, other: Trial) -> bool:
        """Whether the programs differ only in numbers that have a default."""
        here, there = self.program.numbers, other.program.numbers
        apart = {n for n in (*here, *there) if here.get(n) != there.get(n)}
        return self.first.fixed == other.first.fixed and apart <= {*self.program.optional}


def pick_program(
    code: load.Code, system: ir.System, binds: Mapping[str, str], sizes: Mapping[str, int]
) -> Choice:
    """The program to judge, with samples on which it runs; CannotRunError if there is none."""
    return _Search(subjects.Task(code, system, binds, sizes)).find_program()


@dataclass
class _Search:
    """One search, with the errors so far."""

    task: subjects.Task
    errors: list[CannotRunError] = field(default_factory=list)
    tried: Samples | None = None  # the first with a program whose parameters fit
    taken: set[str] = field(default_factory=set)  # sizes passed as arguments, by name or --bind
    failed_at: Mapping[str, int] = field(default_factory=dict)  # sizes of the first error

    def find_program(self) -> Choice:
        """The choice of the certain program, else of a guess that runs."""
        self.taken |= {n for source in self.task.binds.values() for n in find_number_names(source)}
        best: Trial | None = None
        for subject in subjects.find_subjects(self.task):
            best = _choose(best, self._find_certain(subject))
            if best is not None and best.fits and (best.agrees or not subject.is_wide):
                break
        if best is not None and best.fits:
            return self._make_choice(best)
        undefined = (error for error in self.errors if runs.is_undefined(error))
        error = next(iter((*undefined, *self.errors)), None)
        guess = None if self._is_incurable() else self._find_guess()
        if best is not None:
            if guess is not None and guess.agrees:
                best = replace(best, same_if=guess.same_if)
            return self._make_choice(best)
        if guess is None or guess.same_if is None:
            lacks = f"no sizes and no arguments were found for it: {self._ask()}"
            raise error or CannotRunError(lacks)
        needs = guess.same_if.says
        lacks = f"its parameters have other shapes than the formula's tensors: {needs}"
        if not guess.agrees:  # enough to run, no more
            says = f"{needs.replace('the same', 'it runs', 1)}, and is still not the same"
            guess = replace(guess, same_if=replace(guess.same_if, says=says, help=""))
        failure = error or CannotRunError(lacks)
        return replace(self._make_choice(guess), failure=failure, failed_at=self.failed_at)

    def _ask(self) -> str:
        """The advice on how to give the arguments that are unknown."""
        task = self.task
        if find_kind(task.code.target) != "class":
            return "give --bind ARGUMENT=NAME for each, and --sizes"
        slots = find_constructor(task.code, task.system, task.binds)
        names = [slot.name for slot in slots if slot.name not in task.binds]
        made = ", ".join(f"{name}=.." for name in names)
        return f'its constructor takes {", ".join(names) or "nothing"}: give --init "{made}"'

    def _is_incurable(self) -> bool:
        """Whether the code fails at all sizes and arguments."""
        undefined = any(runs.is_undefined(error) for error in self.errors)
        return undefined or (bool(self.errors) and self.errors[0].is_incurable)

    def _find_certain(self, subject: subjects.Subject) -> Trial | None:
        """The best trial of a program with stated bindings, at stated sizes."""
        best: Trial | None = None
        fixed: Mapping[str, int] = {}
        for group in subject.groups:
            trials = [trial for base in group for trial in self._try_stated(subject, base)]
            best = _choose(best, _resolve(trials))
            fixed = best.first.fixed if best is not None else group[0]
            if best is not None and best.fits:
                break
        if best is not None and best.agrees and not best.is_chance:
            return best
        # A size that is an argument stays free, unless the code refuses all drawn sizes.
        is_refused = best is None and any(e.refusal for e in self.errors)
        taken = {*fixed, *(() if is_refused else self.taken)}
        names = [n for n in find_sizes(self.task.system) if n not in taken]
        named = subjects.find_sizes_by_name(subject.numbers, names)
        untold = {size.name for size in self.task.system.sizes}  # sizes in no shape
        values = dict.fromkeys((*subject.numbers.values(), *subject.literals))
        own = ({n: value} for n in names for value in values if value not in fixed.values())
        if best is not None and best.fits and not best.is_chance and not untold & {*named}:
            return best
        for group in ([named] * bool(named), list(islice(own, MOST_FIXED))):
            if self._is_incurable():
                break
            trials = [t for one in group for t in self._try_stated(subject, {**fixed, **one})]
            best = _choose(best, _resolve(trials))
            if best is not None and best.fits and not best.is_chance:
                break
        return best

    def _try_stated(self, subject: subjects.Subject, fixed: Mapping[str, int]) -> list[Trial]:
        """Trials at free sizes, then at sizes related by statements of the code that failed."""
        pending: list[Relations] = [()]
        unsure: list[Trial] = []
        extents = find_merged(self.task.system)
        for _ in range(MOST_STATED):
            if not pending:
                break
            relations = pending.pop(0)
            samples = make_samples(self.task.system, fixed, relations)
            if samples is None:
                continue
            statements: list[list[Statement]] = []
            trials = [*map(_confirm, self._try_samples(subject, samples, statements))]
            if not all(trial.is_chance for trial in trials):
                return trials
            if any(map(runs.is_undefined, self.errors)):
                break  # the code fails at all sizes
            unsure = unsure or trials
            found = guess_relations(statements, samples.first.sizes, relations, fixed, extents)
            pending += [each for each in found if len(each) <= MOST_RELATIONS]
        return unsure

    def _try_samples(
        self, subject: subjects.Subject, samples: Samples, statements: list[list[Statement]]
    ) -> list[Trial]:
        """The trials with the fewest doubts that fit; else all that run."""
        ran: list[Trial] = []
        likely: Program | None = None
        try:
            for _, group in groupby(
                subject.make(samples.first, statements), key=lambda program: program.doubt
            ):
                programs = list(group)
                self.tried = self.tried or samples
                found = list(self._try_programs(programs, samples, statements))
                if likely is not None and not likely.doubt:  # contradicts the names
                    found = [trial for trial in found if trial.agrees]
                fits = [trial for trial in found if trial.fits]
                if fits:
                    return fits if likely is None else [_ask(trial, likely) for trial in fits]
                ran += found
                likely = likely or programs[0]
                if found and not likely.doubt:
                    break  # all names match
        except CannotRunError as error:  # the class cannot be constructed
            self._add_error(error, samples.first)
        return ran

    def _add_error(self, error: CannotRunError, sample: Sample) -> None:
        self.failed_at = self.failed_at if self.errors else sample.sizes
        self.errors.append(error)

    def _try_programs(
        self, programs: Iterable[Program], samples: Samples, statements: list[list[Statement]]
    ) -> Iterator[Trial]:
        for program in programs:
            self.taken |= {
                size
                for name, source in program.numbers.items()
                for size in find_number_names(source)
                if rank_size(name, size) < NAMED
            }
            first = _fix_scalars(program, samples.first)
            try:
                ran, fits, agrees = _try_program(program, first)
            except CannotRunError as error:
                self._add_error(error, first)
                statements.append([*error.statements])
                if runs.is_undefined(error):
                    return  # the code fails with all arguments
                continue
            yield Trial(ran, samples, first, fits, agrees)

    def _find_guess(self) -> Trial | None:
        """The first trial that agrees under an unstated assumption, else the best."""
        kept, best = list(self.errors), None
        for subject in subjects.find_subjects(self.task):
            for trial in chain(self._guess_layouts(subject), self._guess_coincidences(subject)):
                best = _choose(best, trial)
                if trial.agrees:
                    break
            if best is not None and best.agrees:
                break
        self.errors = kept
        return best

    def _guess_layouts(self, subject: subjects.Subject) -> Iterator[Trial]:
        """Yield trials with the bindings of other layouts, as if a --bind gave them."""
        task = self.task
        samples = self._find_tried(subject)
        fitting = subject.make(samples.first, []) if samples else ()
        known = [*islice(fitting, MOST_AT_GUESSES)] or subject.unfit
        layouts = (
            tuple(f"{name}={source}" for name, source in moved.items())
            for program in known
            for moved in (() if task.code.is_einsum else find_layouts(program, task.system))
        )
        for given in dict.fromkeys(islice(layouts, MOST_GUESSED)):
            moved = dict(each.split("=", 1) for each in given)
            for other in subjects.find_subjects(replace(task, binds={**task.binds, **moved})):
                if samples := self._find_tried(other):
                    few = islice(other.make(samples.first, []), MOST_AT_GUESSES)
                    for trial in self._try_programs(few, samples, []):
                        yield replace(trial, same_if=_say_bind(given))

    def _find_tried(self, subject: subjects.Subject) -> Samples | None:
        """The samples at which parameters fitted, else those at the subject's first sizes."""
        base, tried = subject.find_base(), self.tried
        if base is not None and tried is not None and base.items() <= tried.first.sizes.items():
            return tried
        return None if base is None else make_samples(self.task.system, base)

    def _guess_coincidences(self, subject: subjects.Subject) -> Iterator[Trial]:
        system, base = self.task.system, subject.find_base()
        stated = self.tried.first.relations if self.tried is not None else ()
        dependent = {*(base or ()), *(name for name, _ in stated)}
        names = [name for name in find_sizes(system) if name not in dependent]
        for relations in islice(find_coincidences(names, find_merged(system)), MOST_GUESSED):
            samples = None if base is None else make_samples(system, base, (*stated, *relations))
            if samples is None:
                continue
            programs = islice(subject.make(samples.first, []), MOST_AT_GUESSES)
            said = " and ".join(f"{name} = {'*'.join(map(str, made))}" for name, made in relations)
            same_if = Diagnostic(
                "same-if",
                f"the same only where {said}, which the code does not state",
                help=f"assert {said.replace(' = ', ' == ')} in the code if that is meant",
            )
            for trial in self._try_programs(programs, samples, []):
                yield replace(trial, same_if=same_if)

    def _make_choice(self, trial: Trial) -> Choice:
        """The program of a trial and the samples on which it runs."""
        kept, stops = [trial.first], []
        is_long = count_steps(trial.first) > MOST_STEPS  # one run at these sizes is enough
        for sample in trial.samples.make_others():
            if is_long and sample.sizes == trial.first.sizes:
                continue
            fixed = _fix_scalars(trial.program, sample)
            try:
                trial.program.run(fixed.make_inputs(), fixed.sizes)
                kept.append(fixed)
            except CannotRunError as error:
                stops.append((fixed, error))
        findings = [*explain_samples(kept, [sample for sample, _ in stops], trial.samples.told)]
        findings += _explain_sizes(trial.first, self.task)
        findings += _explain_scalars(trial.program, self.task.system)
        return Choice(
            trial.program,
            tuple(kept),
            tuple(findings),
            tuple(stops),
            same_if=trial.same_if,
            fits=trial.fits,
            agrees=trial.agrees,
        )


def _choose(one: Trial | None, other: Trial | None) -> Trial | None:
    """The better trial; the earlier one of equals."""
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda trial: (trial.fits, trial.agrees, not trial.is_chance))


def _confirm(trial: Trial) -> Trial:
    """The trial checked at further samples: agreement at the first may be a coincidence.

    It fits by chance if it fits at no sample where the related sizes differ from the first. It
    agrees if it does at any of those where it fits.
    """
    first = trial.first
    names = {name for _, made in first.relations for name in made if isinstance(name, str)}
    runs, fitting = list[bool](), list[bool]()
    for sample in trial.samples.make_others() if names or trial.agrees else ():
        if all(sample.sizes[name] != first.sizes[name] for name in names):
            runs.append(False)
            with suppress(CannotRunError):
                _, fits, agrees = _try_program(trial.program, _fix_scalars(trial.program, sample))
                runs[-1] = fits or bool(names)
                fitting += [agrees] if fits else []
    is_chance = bool(runs) and not any(runs)
    return replace(trial, is_chance=is_chance, agrees=trial.agrees and any(fitting or [True]))


def _resolve(trials: Sequence[Trial]) -> Trial | None:
    """The trial to judge, of equally certain ones; open if they disagree."""
    fits = [trial for trial in trials if trial.fits]
    if not fits:
        return trials[0] if trials else None
    good, bad = ([t for t in fits if t.agrees is agrees] for agrees in (True, False))
    bad = [t for t in bad if not good or not good[0].is_by_default(t)]
    if not good or not bad:
        return good[0] if good else replace(fits[0], same_if=None)
    return replace(bad[0], same_if=_ask(good[0], bad[0].program).same_if)


def _ask(trial: Trial, other: Program) -> Trial:
    """The open trial, with a --bind for the numbers that distinguish it from a program."""
    sources, others = trial.program.numbers, other.numbers
    given = [f"{name}={source}" for name, source in sources.items() if others.get(name) != source]
    return replace(trial, same_if=_say_bind(given))


def _say_bind(binds: Sequence[str]) -> Diagnostic:
    parts = [bind.split("=", 1) for bind in binds]
    said = " and ".join(
        f"the result is taken as {source}" if name == "return" else f"{name} is given as {source}"
        for name, source in parts
    )
    return Diagnostic(
        "same-if",
        f"the same if {said}",
        help=f"give --bind {','.join(f'{name}={source}' for name, source in parts)}",
    )


def _explain_sizes(sample: Sample, task: subjects.Task) -> Iterator[Diagnostic]:
    """Yield findings on sizes that the code fixes or relates."""
    stated = {entry.name: entry.default for entry in task.system.sizes} | dict(task.sizes)
    own = (each for each in sample.fixed.items() if stated.get(each[0]) != each[1])
    if said := ", ".join(f"{name} = {size}" for name, size in own):
        yield Diagnostic("fixed-sizes", f"judged for {said}, which the code fixes")
    made = [f"{name} = {'*'.join(map(str, p))}" for name, p in sample.relations if len(p) > 1]
    if made:
        yield Diagnostic("stated-sizes", f"judged where {', '.join(made)}, as the code states")


def _explain_scalars(program: Program, system: ir.System) -> Iterator[Diagnostic]:
    """Yield findings on scalars that the code does not take."""
    taken = program.find_taken() | program.find_read()
    for scalar in system.scalars:
        if scalar.name not in taken:
            says = f"the code takes no {scalar.name}"
            if scalar.default is not None:
                says += f": judged with the formula's default, {show_default(scalar.default)}"
            mend = "take it as an argument if it may vary"
            yield Diagnostic("scalar-fixed", says, help=mend)


def show_default(default: ir.Expr) -> str:
    """The text of a scalar's default."""
    return show_number(default.value) if isinstance(default, ir.Number) else to_text(default)


def _fix_scalars(program: Program, sample: Sample) -> Sample:
    """The sample with defaults for the scalars that the code does not take."""
    taken = program.find_taken()
    scalars = (s for s in sample.system.scalars if s.default is not None)
    return replace(sample, defaulted=tuple(s.name for s in scalars if s.name not in taken))


def _try_program(program: Program, sample: Sample) -> tuple[Program, bool, bool]:
    """The program that ran, whether its shapes fit, and whether its values agree."""
    values = sample.make_inputs()
    try:
        answer = program.run(values, sample.sizes)
    except CannotRunError as error:
        # Retry with scalars as tensors, for code that needs them.
        scalars = {entry.name for entry in sample.system.scalars}
        own = {n: f"tensor({s})" if s in scalars else s for n, s in program.arguments.items()}
        if own == program.arguments or not error.is_incurable:
            raise
        with suppress(CannotRunError):
            return _try_program(replace(program, arguments=own), sample)
        raise
    pairs = [*program.pair(answer, sample.evaluate(values))]
    fits = bool(pairs) and all(one.shape == value.shape for _, one, value in pairs)
    return program, fits, fits and not any(compare_values(*each)[1] for each in pairs)


def explain_samples(
    kept: Sequence[Sample], lost: Sequence[Sample], told: frozenset[str]
) -> Iterator[Diagnostic]:
    """Yield findings on sizes that the samples cannot tell apart."""
    classes: dict[tuple[int, ...], list[str]] = {}  # sizes by their values in every sample
    for name in kept[0].sizes:
        classes.setdefault(tuple(sample.sizes[name] for sample in kept), []).append(name)
    equal = []  # sizes that cannot differ: fixed, dependent, or the code stops there
    for names in classes.values():
        apart = any(len({sample.sizes[name] for name in names}) > 1 for sample in lost)
        equal.append(names if apart else [name for name in names if name in told])
    equal = [names for names in equal if len(names) > 1]
    if equal:
        said = " and ".join(" = ".join(names) for names in equal)
        hidden = " and ".join(", ".join(names) for names in equal)
        yield Diagnostic(
            "equal-sizes",
            f"the code is judged only where {said}",
            facts=(f"equal sizes hide exchanges of indices of {hidden}",),
        )
