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

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby, islice
from typing import Any, TypeAlias

from derive.checker import load, runs, subjects
from derive.checker.bind import Task, find_constructor, find_layouts
from derive.checker.judge import MOST_STEPS, count_steps
from derive.checker.processes import CannotRunError, find_kind
from derive.checker.program import Program, find_names, find_number_names
from derive.checker.relations import (
    Relations,
    Statement,
    find_coincidences,
    find_merged,
    guess_relations,
)
from derive.checker.samples import Sample, make_sample, show_number
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
MOST_AT_OTHERS = 16  # programs to try with each other choice of arguments


@dataclass(frozen=True)
class Choice:
    """A program that runs at these samples, with findings and doubts.

    It `fits` if its results have the formula's shapes. `failure` is the error at the sizes
    `failed_at`, if it runs only at others or with other arguments. `same_if` is an unstated
    condition under which it would be the same.
    """

    program: Program
    samples: tuple[Sample, ...]
    fits: bool = True
    agrees: bool = True  # at the first sample
    is_chance: bool = False  # whether it fits at its first sample alone
    same_if: Diagnostic | None = None
    unsure: str = ""  # what its bindings or sizes leave open
    findings: tuple[Diagnostic, ...] = ()
    stops: tuple[tuple[Sample, CannotRunError], ...] = ()  # samples at which the code does not run
    shown: Sample | None = None  # a further sample with a difference
    failure: CannotRunError | None = None
    failed_at: Mapping[str, int] = field(default_factory=dict)

    @property
    def first(self) -> Sample:
        """The sample at which the program was tried."""
        return self.samples[0]

    @property
    def is_open(self) -> bool:
        """Whether it fits only under the assumption `same_if`, so that it shows no difference."""
        return self.fits and self.same_if is not None and self.failure is None

    @property
    def rank(self) -> tuple[bool, bool, bool]:
        """The triple (it fits, it agrees, it does not depend on chance); a larger one is better."""
        return self.fits, self.agrees, not self.is_chance

    def is_by_default(self, other: Choice) -> bool:
        """Whether the programs differ only in numbers that have a default."""
        here, there = self.program.numbers, other.program.numbers
        apart = {n for n in (*here, *there) if here.get(n) != there.get(n)}
        return self.first.fixed == other.first.fixed and apart <= {*self.program.optional}


def pick_program(
    code: load.Code, system: ir.System, binds: Mapping[str, str], sizes: Mapping[str, int]
) -> Choice:
    """The program to judge, with samples on which it runs; CannotRunError if there is none."""
    return _Search(Task(code, system, binds, sizes)).find_program()


@dataclass
class _Search:
    """One search for the program to judge, with the errors so far."""

    task: Task
    errors: list[CannotRunError] = field(default_factory=list)
    tried: Sample | None = None  # the first with a program whose parameters fit
    taken: set[str] = field(default_factory=set)  # sizes passed as arguments, by name or --bind
    failed_at: Mapping[str, int] = field(default_factory=dict)  # sizes of the first error
    seen: set[tuple[Any, ...]] = field(default_factory=set)  # sources and sizes of programs tried
    is_other: bool = False  # whether programs in `seen` are passed over

    def find_program(self) -> Choice:
        """The choice of a program whose bindings are certain, else of a guess that runs."""
        self.taken |= {n for source in self.task.binds.values() for n in find_number_names(source)}
        best: Choice | None = None
        for subject in subjects.find_subjects(self.task):
            best = _choose(best, self._find_certain(subject))
            if best is not None and best.fits and (best.agrees or not subject.is_provisional):
                break
        best = self._find_other(best)
        if best is not None and best.fits:
            return self._complete(best)
        error = max(self.errors, key=runs.is_undefined, default=None)
        guess = None if self._is_incurable() else self._find_guess()
        if best is not None:
            if guess is not None and guess.agrees:
                best = replace(best, same_if=guess.same_if)
            return self._complete(best)
        if guess is None or guess.same_if is None:
            lacks = f"no sizes and no arguments were found for it: {self._advise()}"
            error = error or CannotRunError(lacks)
            error.findings = (*error.findings, *_explain_globals(self.task.code))
            raise error
        needs = guess.same_if.says
        lacks = f"its parameters have other shapes than the formula's tensors: {needs}"
        if not guess.agrees:  # enough to run, no more
            says = f"{needs.replace('the same', 'it runs', 1)}, and is still not the same"
            guess = replace(guess, same_if=replace(guess.same_if, says=says, help=""))
        failure = error or CannotRunError(lacks)
        return replace(self._complete(guess), failure=failure, failed_at=self.failed_at)

    def _find_other(self, best: Choice | None) -> Choice | None:
        """The choice, or one with other arguments if it does not run; open if only that agrees.

        A likeness of names is a guess: the arguments are also taken in order, and where the code
        does not run, others are taken as numbers.
        """
        if self._is_undefined() or (best is not None and (best.agrees or best.is_open)):
            return best
        taken = self._find_tensors(best.program) if best is not None and best.fits else {}
        found: Choice | None = None
        for task in islice(self.task.list_others(), 1 if taken else None):
            other = _Search(task, seen=self.seen, is_other=True)
            for subject in subjects.find_subjects(task):
                few = replace(subject, make=partial(_make_few, subject))
                for fixed in subject.groups[0] if subject.groups else ():
                    for choice in other._try_stated(few, fixed):
                        is_new = choice.agrees and self._find_tensors(choice.program) != taken
                        if choice.fits and (is_new or not taken):
                            found = _choose(found, choice)
            if found is not None and found.agrees:
                break
        if best is None or not best.fits or found is None:
            return found or best
        return _as_open(best, found)

    def _find_tensors(self, program: Program) -> dict[str, str]:
        """The sources of a program that read a tensor of the formula, by name of the argument."""
        tensors = {tensor.name for tensor in self.task.system.tensors}
        return {n: s for n, s in program.sources.items() if not tensors.isdisjoint(find_names(s))}

    def _advise(self) -> str:
        """The advice on how to give the arguments that are unknown."""
        if find_kind(self.task.code.target) != "class":
            return "give --bind ARGUMENT=NAME for each, and --sizes"
        slots, _ = find_constructor(self.task)
        names = [slot.name for slot in slots if slot.name not in self.task.binds]
        made = ", ".join(f"{name}=.." for name in names)
        return f'its constructor takes {", ".join(names) or "nothing"}: give --init "{made}"'

    def _is_undefined(self) -> bool:
        """Whether an error is an undefined name, which no other arguments would cure."""
        return any(runs.is_undefined(error) for error in self.errors)

    def _is_incurable(self) -> bool:
        """Whether the first error would come at all sizes, so that trying others is vain."""
        return self._is_undefined() or (bool(self.errors) and self.errors[0].is_incurable)

    def _find_certain(self, subject: subjects.Subject) -> Choice | None:
        """The best choice of a program with stated bindings, at stated sizes; None if none runs."""
        best: Choice | None = None
        fixed: Mapping[str, int] = {}
        for group in subject.groups:
            best = _choose(best, self._try_group(subject, group))
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
        if best is not None and best.fits and not best.is_chance and not untold & {*named}:
            return best
        values = dict.fromkeys((*subject.numbers.values(), *subject.literals))
        own = ({n: value} for n in names for value in values if value not in fixed.values())
        for assigned in ([named] * bool(named), list(islice(own, MOST_FIXED))):
            if self._is_incurable():
                break
            both = [{**fixed, **one} for one in assigned]
            best = _choose(best, self._try_group(subject, both))
            if best is not None and best.fits and not best.is_chance:
                break
        return best

    def _try_group(
        self, subject: subjects.Subject, group: Sequence[Mapping[str, int]]
    ) -> Choice | None:
        """The choice among equally certain sizes, open if answers disagree; None if none runs."""
        choices = [choice for fixed in group for choice in self._try_stated(subject, fixed)]
        fits = [choice for choice in choices if choice.fits]
        if not fits:
            return choices[0] if choices else None
        good, bad = ([c for c in fits if c.agrees is agrees] for agrees in (True, False))
        good.sort(key=lambda choice: len(choice.first.defaulted))  # one that takes most scalars
        bad = [c for c in bad if not good or not good[0].is_by_default(c)]
        if not good or not bad:
            return good[0] if good else replace(fits[0], same_if=None)
        return _as_open(bad[0], good[0])

    def _try_stated(self, subject: subjects.Subject, fixed: Mapping[str, int]) -> list[Choice]:
        """Choices at free sizes, then at sizes related by statements of the code that failed."""
        pending: list[Relations] = [()]
        unsure: list[Choice] = []
        extents = find_merged(self.task.system)
        for _ in range(MOST_STATED):
            if not pending:
                break
            relations = pending.pop(0)
            sample = make_sample(self.task.system, fixed, relations)
            if sample is None:
                continue
            statements: list[list[Statement]] = []
            choices = [*map(_confirm, self._try_sample(subject, sample, statements))]
            if not all(choice.is_chance for choice in choices):
                return choices
            if self._is_undefined():
                break
            unsure = unsure or choices
            found = guess_relations(statements, sample.sizes, relations, fixed, extents)
            pending += [each for each in found if len(each) <= MOST_RELATIONS]
        return unsure

    def _try_sample(
        self, subject: subjects.Subject, sample: Sample, statements: list[list[Statement]]
    ) -> list[Choice]:
        """The choices that fit, of the least doubtful programs with any; else all that ran."""
        ran: list[Choice] = []
        likely: Program | None = None
        try:
            made = subject.make(sample, statements)
            for _, group in groupby(made, key=lambda program: program.doubt):
                programs = list(group)
                self.tried = self.tried or sample
                found = list(self._try_programs(programs, sample, statements))
                if likely is not None and not likely.doubt:  # contradicts the names
                    found = [choice for choice in found if choice.agrees]
                fits = [choice for choice in found if choice.fits]
                if fits:
                    return fits if likely is None else [_as_open(c, c, likely) for c in fits]
                ran += found
                likely = likely or programs[0]
                if found and not likely.doubt:
                    break  # all names match
        except CannotRunError as error:  # the class cannot be constructed
            self._add_error(error, sample)
        return ran

    def _add_error(self, error: CannotRunError, sample: Sample) -> None:
        self.failed_at = self.failed_at if self.errors else sample.sizes
        self.errors.append(error)

    def _try_programs(
        self, programs: Iterable[Program], sample: Sample, statements: list[list[Statement]]
    ) -> Iterator[Choice]:
        """Yield the choices of the programs that run; the errors of others are recorded."""
        for program in programs:
            key = (*program.numbers.items(), *program.sources.items(), *sample.sizes.items())
            if self.is_other and key in self.seen:
                continue
            self.seen.add(key)
            self.taken |= {
                size
                for name, source in program.numbers.items()
                for size in find_number_names(source)
                if rank_size(name, size) < NAMED
            }
            first = _fix_scalars(program, sample)
            try:
                yield _try_program(program, first)
            except CannotRunError as error:
                error.bindings = program.describe()
                self._add_error(error, first)
                statements.append([*error.statements])
                if runs.is_undefined(error):
                    return  # the code fails with all arguments

    def _find_guess(self) -> Choice | None:
        """The best choice under an unstated assumption, or the first that agrees; None if none."""
        kept, best = list(self.errors), None
        for subject in subjects.find_subjects(self.task):
            for other, sample, same_if in chain(
                self._list_layouts(subject), self._list_coincidences(subject)
            ):
                few = islice(other.make(sample, []), MOST_AT_GUESSES)
                for choice in self._try_programs(few, sample, []):
                    best = _choose(best, replace(choice, same_if=same_if))
                    if choice.agrees:
                        self.errors = kept
                        return best
        self.errors = kept
        return best

    def _list_layouts(self, subject: subjects.Subject) -> Iterator[_Guess]:
        """Yield subjects with the bindings of other layouts, as if a --bind gave them."""
        task, sample = self.task, self._find_tried(subject)
        fitting = subject.make(sample, []) if sample and not task.code.is_einsum else ()
        known = [*islice(fitting, MOST_AT_GUESSES)] or subject.unfit
        every = (moved for program in known for moved in find_layouts(program, task))
        layouts = dict.fromkeys(tuple(moved.items()) for moved in islice(every, MOST_GUESSED))
        for given in layouts if not task.code.is_einsum else ():
            for other in subjects.find_subjects(replace(task, binds={**task.binds, **dict(given)})):
                if sample := self._find_tried(other):
                    yield other, sample, _say_bind(dict(given))

    def _find_tried(self, subject: subjects.Subject) -> Sample | None:
        """A sample at the subject's first sizes, the one tried if it has them; None without any."""
        base, tried = subject.find_base(), self.tried
        if base is not None and tried is not None and base.items() <= tried.sizes.items():
            return tried
        return None if base is None else make_sample(self.task.system, base)

    def _list_coincidences(self, subject: subjects.Subject) -> Iterator[_Guess]:
        """Yield samples at sizes that are equal or products of others, though not stated."""
        system, base = self.task.system, subject.find_base()
        stated = self.tried.relations if self.tried is not None else ()
        dependent = {*(base or ()), *(name for name, _ in stated)}
        names = [name for name in find_sizes(system) if name not in dependent]
        for relations in islice(find_coincidences(names, find_merged(system)), MOST_GUESSED):
            sample = None if base is None else make_sample(system, base, (*stated, *relations))
            said = " and ".join(f"{name} = {'*'.join(map(str, made))}" for name, made in relations)
            same_if = Diagnostic(
                "same-if",
                f"the same only where {said}, which the code does not state",
                help=f"assert {said.replace(' = ', ' == ')} in the code if that is meant",
            )
            if sample is not None:
                yield subject, sample, same_if

    def _complete(self, choice: Choice) -> Choice:
        """The choice with findings, the samples at which its program runs, and the other stops."""
        kept, stops = [choice.first], []
        is_long = count_steps(choice.first) > MOST_STEPS  # one run at these sizes is enough
        for sample in choice.first.make_others():
            if is_long and sample.sizes == choice.first.sizes:
                continue
            fixed = _fix_scalars(choice.program, sample)
            try:
                choice.program.run(fixed.make_inputs(), fixed.sizes)
                kept.append(fixed)
            except CannotRunError as error:
                stops.append((fixed, error))
        findings = (
            *explain_samples(kept, [sample for sample, _ in stops]),
            *_explain_sizes(choice.first, self.task),
            *_explain_scalars(choice.program, self.task.system),
        )
        return replace(choice, samples=tuple(kept), findings=findings, stops=tuple(stops))


def _make_few(
    subject: subjects.Subject, sample: Sample, statements: list[list[Statement]]
) -> Iterator[Program]:
    """The first MOST_AT_OTHERS programs of a subject at a sample, likeliest first."""
    return islice(subject.make(sample, statements), MOST_AT_OTHERS)


_Guess: TypeAlias = tuple[subjects.Subject, Sample, Diagnostic]  # with its unstated condition


def _choose(one: Choice | None, other: Choice | None) -> Choice | None:
    """The better of two choices, the first if they are equal; None for two None."""
    return max(filter(None, (one, other)), key=lambda choice: choice.rank, default=None)


def _confirm(choice: Choice) -> Choice:
    """The choice checked at further samples: agreement at the first may be a coincidence.

    It fits by chance if it fits at no sample where the related sizes differ from the first. It
    agrees if it does at any of those where it fits.
    """
    first = choice.first
    names = {name for _, made in first.relations for name in made if isinstance(name, str)}
    ran, fitting = list[bool](), list[bool]()
    for sample in first.make_others() if names or choice.agrees else ():
        if all(sample.sizes[name] != first.sizes[name] for name in names):
            ran.append(False)
            with suppress(CannotRunError):
                there = _try_program(choice.program, _fix_scalars(choice.program, sample))
                ran[-1] = there.fits or bool(names)
                fitting += [there.agrees] if there.fits else []
    is_chance = bool(ran) and not any(ran)
    return replace(choice, is_chance=is_chance, agrees=choice.agrees and any(fitting or [True]))


def _as_open(shown: Choice, good: Choice, other: Program | None = None) -> Choice:
    """The shown choice as open: the same only with the bindings or sizes that `good` has.

    Those of the other program, if that is not the shown one's, are as likely.
    """
    first, second = good.program, other or shown.program
    here, there = ({**each.numbers, **each.parameters} for each in (first, second))
    given = {name: source for name, source in here.items() if there.get(name) != source}
    option, fixed = ("--bind", {}) if given else ("--sizes", good.first.fixed)
    given |= {n: str(size) for n, size in fixed.items() if shown.first.fixed.get(n) != size}
    says = f"it is open what {' and '.join(given)} {'is' if len(given) == 1 else 'are'}"
    return replace(shown, same_if=_say_bind(given, option), unsure=f"{says}: give {option}")


def _say_bind(binds: Mapping[str, str], option: str = "--bind") -> Diagnostic:
    said = " and ".join(
        f"the result is taken as {source}" if name == "return" else f"{name} is given as {source}"
        for name, source in binds.items()
    )
    help = f"give {option} {','.join(f'{name}={source}' for name, source in binds.items())}"
    return Diagnostic("same-if", f"the same if {said}", help=help)


def _explain_sizes(sample: Sample, task: Task) -> Iterator[Diagnostic]:
    """Yield findings on sizes that the code fixes or relates."""
    stated = {entry.name: entry.default for entry in task.system.sizes} | dict(task.sizes)
    own = (each for each in sample.fixed.items() if stated.get(each[0]) != each[1])
    if said := ", ".join(f"{name} = {size}" for name, size in own):
        yield Diagnostic("fixed-sizes", f"judged for {said}, which the code fixes")
    made = [f"{name} = {'*'.join(map(str, p))}" for name, p in sample.relations if len(p) > 1]
    if made:
        yield Diagnostic("stated-sizes", f"judged where {', '.join(made)}, as the code states")


def _explain_globals(code: load.Code) -> Iterator[Diagnostic]:
    """Yield the finding on tensors of the file that a function reads."""
    own = (part for node in code.find_definitions() for part in ast.walk(node))
    read = (part.id for part in own if isinstance(part, ast.Name))
    names = [name for name in sorted({*read}) if hasattr(code.names.get(name), "shape")]
    if names:
        says = f"it reads {', '.join(names)} of the file, which have shapes of their own"
        help = "make them arguments, or check a name that the script computes, FILE.py:NAME"
        yield Diagnostic("reads-globals", says, help=help)


def _explain_scalars(program: Program, system: ir.System) -> Iterator[Diagnostic]:
    """Yield findings on scalars that the code does not take."""
    taken = program.find_taken() | program.find_read()
    for scalar in system.scalars:
        if scalar.name not in taken:
            says = f"the code takes no {scalar.name}"
            if scalar.default is not None:
                says += f": judged with the formula's default, {show_default(scalar.default)}"
            free = [name for name in program.optional if name not in program.numbers]
            bind = f"bind it, as in --bind {free[0]}={scalar.name}, or " if free else ""
            mend = f"{bind}take it as an argument if it may vary"
            yield Diagnostic("scalar-fixed", says, help=mend)


def show_default(default: ir.Expr) -> str:
    """The text of a scalar's default."""
    return show_number(default.value) if isinstance(default, ir.Number) else to_text(default)


def _fix_scalars(program: Program, sample: Sample) -> Sample:
    """The sample with defaults for the scalars that the code does not take."""
    taken = program.find_taken()
    scalars = (s for s in sample.system.scalars if s.default is not None)
    return replace(sample, defaulted=tuple(s.name for s in scalars if s.name not in taken))


def _try_program(program: Program, sample: Sample) -> Choice:
    """The choice of a program at one sample, if need be with scalars as tensors."""
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
    agrees = fits and not any(compare_values(*each)[1] for each in pairs)
    return Choice(program, (sample,), fits, agrees)


def explain_samples(kept: Sequence[Sample], lost: Sequence[Sample]) -> Iterator[Diagnostic]:
    """Yield findings on sizes that the samples cannot tell apart."""
    classes: dict[tuple[int, ...], list[str]] = {}  # sizes by their values in every sample
    for name in kept[0].sizes:
        classes.setdefault(tuple(sample.sizes[name] for sample in kept), []).append(name)
    equal = []  # sizes that cannot differ: fixed, dependent, or the code stops there
    for names in classes.values():
        apart = any(len({sample.sizes[name] for name in names}) > 1 for sample in lost)
        equal.append(names if apart else [name for name in names if name in kept[0].unvarying])
    equal = [names for names in equal if len(names) > 1]
    if equal:
        said = " and ".join(" = ".join(names) for names in equal)
        hidden = " and ".join(", ".join(names) for names in equal)
        yield Diagnostic(
            "equal-sizes",
            f"the code is judged only where {said}",
            facts=(f"equal sizes hide exchanges of indices of {hidden}",),
        )
