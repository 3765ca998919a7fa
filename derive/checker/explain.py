"""The explanation of a difference: the first element, the line, the edit.

    1. trace     every tensor of the code, with its line
    2. nodes     every part of the formula, with its value; a tensor equal to one annotates its line
    3. results   differences visible in the results: shapes, permuted axes, an index too many
    4. edits     changes of the formula, until one gives the code's values
    5. code      edits of the code, until one gives the formula's values

The line is that of the edited code. Where only the formula could be edited, it is the first line
whose value is a part of the edited formula alone; else the first whose value is no part of the
formula, though all its operands are. An edit is confirmed at every sample.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, islice, permutations
from math import inf
from operator import methodcaller
from typing import Any

from derive.checker import load, processes
from derive.checker.edits import code_edits, sites
from derive.checker.edits.search import (
    Budget,
    CorrectionSearch,
    EditSearch,
    Judge,
    find_tensor_names,
)
from derive.checker.edits.source import Rewrite, SourceText
from derive.checker.judge import judge_at
from derive.checker.judge.inputs import SCALES, scale, vary_inputs
from derive.checker.lines import Lines, find_changed_line, find_lines, find_match
from derive.checker.pick import Choice
from derive.checker.program import Program
from derive.checker.runs.trace import ERRORS, Example, Trace, is_close, record_program
from derive.checker.samples import Sample, vary_sizes
from derive.checker.verdict import Job, Progress, Verdict
from derive.ir import nodes as ir
from derive.ir.polynomial import evaluate_extent
from derive.ir.text import to_text
from derive.ir.walk import find_free, walk
from derive.judge.compare import compare_values
from derive.judge.evaluate import Evaluator, evaluate_formula

DRAWS = (0, 1, 2)
STEPS = 6500  # steps of a whole explanation, about a millisecond each
# Shares of the remaining budget: edits of the formula, edits of the code, more of the formula.
_FORMULA, _CODE, _AFTER = 0.2, 0.5, 0.3
# The cost of an edit on a line that is not suspected: in general, and where an edit of the
# formula has located the line.
_UNSUSPECTED, _UNTOLD = 0.2, 1.0
_ENOUGH = 4  # extent at which a shifted condition shows
# The work of one step: calls of torch, and elements of their results.
_CALLS, _ELEMENTS = 40, 200_000


@dataclass(frozen=True)
class Case:
    """Code that differs from its formula, with its bindings and samples of several sizes.

    The first sample is explained; the others check an edit, which must hold at all sizes.
    `confirm` is a further check that the code computes an edited formula, `confirm_text` that an
    edited text computes the formula.
    """

    program: Program
    samples: tuple[Sample, ...]
    confirm: Callable[[ir.System], bool] = lambda _: True
    confirm_text: Callable[[str], bool] = lambda _: True
    report: Callable[[Explanation], None] = lambda _: None
    tell: Callable[[str], None] = lambda _: None  # progress on edits tried

    @property
    def system(self) -> ir.System:
        """The formula."""
        return self.samples[0].system

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes of the first sample."""
        return self.samples[0].sizes

    @property
    def source(self) -> str:
        """The text of the code."""
        return self.program.code.source

    def draw_samples(self) -> Iterator[Sample]:
        """Yield several inputs at the first sizes, its own seed first, and one at each other."""
        first, *others = self.samples
        yield from (replace(first, seed=seed) for seed in dict.fromkeys((first.seed, *DRAWS)))
        yield from (replace(other, seed=DRAWS[1]) for other in others)

    def record(self, sample: Sample) -> Trace:
        """The trace of one run of the program on the sample's inputs."""
        return record_program(self.program, sample.make_inputs(), sample.sizes)


@dataclass(frozen=True)
class Explanation:
    """The first difference, the first differing line, the edit, and the annotated lines.

    `corrected` has the corrected lines of the code, where known; `tried` describes the search
    where no edit was found.
    """

    difference: str = ""
    line: int | None = None
    edit: str = ""
    edited: ir.System | None = None
    annotations: tuple[tuple[int, str], ...] = ()
    corrected: tuple[tuple[int, str], ...] = ()
    tried: str = ""
    placed: int | None = None  # the line whose value an edit of the formula changes
    about: str = ""  # the subject of the edit of the formula


def explain(case: Case, steps: int = STEPS) -> Explanation:
    """The explanation of a case, found within a number of steps."""
    found = Explanation()
    budget = Budget(steps)
    for turned in _put_each_first(case):
        found = _Inquiry(turned, budget).explain()
        if found.difference:  # for a difference at some sizes only, name these
            at = replace(turned.samples[0], reason="").describe()
            found = replace(found, difference=", ".join(filter(None, (found.difference, at))))
            break
    unread = find_unread(case.system, case.program.find_read())
    said = ""
    if unread:
        said = f"no edit of the code makes it right: it does not take {', '.join(unread)}"
    elif budget.edits:
        said = f"no single edit makes it right ({budget.edits:,} tried)"
    return found if found.edit or not found.difference else replace(found, tried=said)


def find_unread(system: ir.System, given: Collection[str]) -> list[str]:
    """The tensors that the formula's results depend on and that are not given."""
    made = {tensor.name for tensor in system.results}
    for equation in reversed(system.equations):
        made |= find_tensor_names(equation.value) if equation.target.tensor.name in made else set()
    tensors = (entry.name for entry in system.inputs if isinstance(entry, ir.Tensor))
    return [name for name in tensors if name in made and name not in given]


@dataclass
class _Inquiry:
    """One explanation at the sizes of a case's first sample; the others check an edit."""

    case: Case
    budget: Budget

    @cached_property
    def trace(self) -> Trace:
        """The trace of the code at the first sample."""
        return self.case.record(next(self.case.draw_samples()))

    @cached_property
    def judge(self) -> Judge:
        """The formula, with the code's results for each sample."""
        runs = []
        for sample in self.case.draw_samples():
            values = sample.make_inputs()
            with suppress(Exception):  # skip samples on which the code raises
                results = self.case.program.run(values, sample.sizes).results
                runs.append(Example(values, results, sample.sizes))
        return Judge(self.case.system, runs)

    @cached_property
    def lines(self) -> Lines:
        """The recorded tensors of the code, matched with nodes of the formula."""
        return find_lines(self.case.system, self.judge.bases[0], self.trace, self.case.sizes)

    @cached_property
    def search(self) -> EditSearch:
        """The search for an edit of the formula."""
        given = self.case.program.find_read()
        return EditSearch(
            self.judge,
            lambda system: self.lines.count_unexplained(system, self.judge.evaluate),
            self.case.confirm,
            self.lines.order_equations(),
            sites.SizedFormula(self.case.system, self.case.sizes),
            lambda system: not find_unread(system, given),
        )

    @cached_property
    def code_search(self) -> CorrectionSearch | None:
        """The search for an edit of the code; None where no edit can help."""
        case, code = self.case, self.case.program.code
        unread = find_unread(case.system, case.program.find_read())
        if code.target is None or not code.source or unread:
            return None
        trials = []
        for sample in case.draw_samples():
            values = sample.make_inputs()
            with suppress(*ERRORS):
                base = evaluate_formula(case.system, values, sample.sizes)
                wanted = tuple(base.values[tensor.name] for tensor in case.system.results)
                trials.append(Example(values, wanted, sample.sizes))
        if not trials:
            return None
        events = self.trace.events
        made = sum(event.value.numel() for event in events) // _ELEMENTS
        weight = 1 + (code.script is not None) + len(events) // _CALLS + made  # scripts recompile
        stock = code_edits.Stock.of(case.system, case.sizes, case.samples[0].defaulted)
        return CorrectionSearch(
            case.program, stock, trials, case.confirm_text, self.score_agreement, weight, case.tell
        )

    def score_agreement(self) -> int:
        """`Lines.score_agreement` of the code as it is now; 0 where it raises."""
        case = self.case
        trace = case.record(next(case.draw_samples()))
        if trace.error:
            return 0
        return find_lines(case.system, self.judge.bases[0], trace, case.sizes).score_agreement()

    def explain(self) -> Explanation:
        """The explanation: the first difference, the line and the edit."""
        case, judge = self.case, self.judge
        try:
            base = judge.bases[0]
        except ERRORS:  # no value of the formula, or no sample on which the code runs
            return Explanation()
        lines = self.lines
        difference = find_difference(case.system, base, judge.runs[0].results)
        elsewhere: Lines | None = None  # other sizes, to reject coincidences of numbers
        for other in (each for each in case.samples if each.sizes != case.sizes):
            with suppress(*ERRORS):
                other = replace(other, seed=DRAWS[1])  # noqa: PLW2901
                base = evaluate_formula(case.system, other.make_inputs(), other.sizes)
                elsewhere = find_lines(case.system, base, case.record(other), other.sizes)
                break
        annotations = lines.annotate(elsewhere)
        if not difference:
            return Explanation(annotations=annotations)
        wrong = lines.find_first_wrong()
        plain = Explanation(difference, wrong.line if wrong else None, annotations=annotations)
        if self.budget.left <= 0:
            return plain
        words = find_result_edit(case.system, judge)
        line = plain.line or lines.result_line
        found, suspects = replace(plain, line=line, edit=words, placed=line), {line or 0}
        if not words:
            found, suspects = self.edit_formula(plain, _FORMULA)
        case.report(found)
        more = _UNSUSPECTED
        if found.edit:  # the line is known; a wrong shape is wrong where it is made
            more = inf if found.edited is None else _UNTOLD
        correction = self.edit_code(suspects, more)
        if correction is not None:
            return self.add_correction(found, correction)
        if not found.edit:
            found, _ = self.edit_formula(plain, _AFTER)
        return found if found.line else replace(found, line=lines.result_line)

    def edit_formula(self, plain: Explanation, share: float) -> tuple[Explanation, set[int]]:
        """The pair (explanation by an edit found in a share of the budget, or `plain`; lines)."""
        lines, judge = self.lines, self.judge
        self.case.tell("edits of the formula")
        with self.budget.split(share) as judge.budget:
            edit = self.search.find_change()
        if edit is None:
            words, line = find_inner_survivor(lines)
            found = replace(plain, line=line, edit=words, placed=line) if words else plain
            return found, {found.line or 0}
        placed = find_changed_line(lines, edit.system, judge.evaluate)
        line = placed or plain.line or lines.result_line
        if edit.system.results != judge.system.results:  # only the choice of results differs
            placed = line
        if edit.about == "a place" and plain.line is not None:  # the layout is made before the read
            line = min(line or plain.line, plain.line)
        known = replace(plain, line=line, placed=placed, about=edit.about)
        return replace(known, edit=edit.words, edited=edit.system), {line or 0, plain.line or 0}

    def edit_code(self, suspects: set[int], more: float) -> Rewrite | None:
        """The edit that makes the code right, or None; on an unsuspected line it costs `more`."""
        lines, mender = self.lines, self.code_search
        if mender is None:
            return None
        suspects = mender.original.find_statement_lines(suspects)
        suspects |= mender.original.find_number_lines(suspects, {*lines.last})

        def weigh(line: int) -> float:
            """The cost of an edit on a line."""
            return 0.0 if line in suspects else more

        with self.budget.split(_CODE) as own:
            return mender.find_correction(weigh, own)

    def add_correction(self, found: Explanation, correction: Rewrite) -> Explanation:
        """The explanation with the corrected code."""
        source, told = self.case.source, {*self.lines.last}
        here = SourceText(source).find_statement_lines({correction.line})
        is_about = found.placed in here or (found.placed is None and not here & told)
        rows = zip(source.splitlines(), correction.apply(source).splitlines(), strict=False)
        return replace(
            found,
            line=correction.line,
            edit=found.edit if found.edit and is_about else correction.words,
            corrected=tuple((n, new) for n, (old, new) in enumerate(rows, 1) if old != new),
        )


def _put_each_first(case: Case) -> Iterator[Case]:
    """Yield the case with each sample first; those with long indices in conditions come early."""
    nodes = (node for equation in case.system.equations for node in walk(equation.value))
    extents = {i.extent for node in nodes if isinstance(node, ir.TRUTHS) for i in find_free(node)}

    def measure(sample: Sample) -> int:
        return min((*(evaluate_extent(extent, sample.sizes) for extent in extents), _ENOUGH))

    for best in sorted(case.samples, key=measure, reverse=True):  # equals keep their order
        others = (sample for sample in case.samples if sample is not best)
        yield replace(case, samples=(best, *others))


def find_difference(system: ir.System, base: Evaluator, results: Sequence[Any]) -> str:
    """The first differing element with both values, or the differing shapes, in words; or ""."""
    if len(results) < len(system.results):
        return f"the code returns {len(results)} tensors, the formula has {len(system.results)}"
    for tensor, found in zip(system.results, results, strict=False):
        wanted = base.values[tensor.name]
        if tuple(found.shape) != tuple(wanted.shape):
            indices = find_target_indices(system, tensor.name)
            told = ", ".join(f"{n}={s}" for n, s in zip(indices, wanted.shape, strict=True))
            formula = f"{tensor.name}[{told}]" if indices else f"{tensor.name}, a number"
            return f"{tensor.name} has shape {list(found.shape)}, the formula has {formula}"
        _, where = compare_values(tensor.name, found, wanted)
        if where:
            return where
    return ""


def find_target_indices(system: ir.System, name: str) -> tuple[str, ...]:
    """The places on a tensor's left side, as texts; () for a tensor without an equation."""
    for equation in system.equations:
        if equation.target.tensor.name == name:
            return tuple(to_text(place) for place in equation.target.places)
    return ()


def find_result_edit(system: ir.System, judge: Judge) -> str:
    """The words of an edit of a result's axes alone; "" where none is right."""
    both = [*zip(judge.runs, judge.bases, strict=True)]
    for at, tensor in enumerate(system.results):
        pairs = [(r.results[at], b.values[tensor.name]) for r, b in both if at < len(r.results)]
        if pairs and not all(is_close(found, wanted) for found, wanted in pairs):
            edits = _list_axis_edits(*pairs[0], judge, find_target_indices(system, tensor.name))
            for act, words in edits:
                if all(is_close(act(one), other) for one, other in pairs):
                    return words
    return ""


def _list_axis_edits(
    found: Any, wanted: Any, judge: Judge, indices: tuple[str, ...]
) -> Iterator[tuple[Callable[[Any], Any], str]]:
    """Yield pairs (edit, words): permute a result, or sum, average or squeeze one of its axes."""
    rank = found.dim()
    for order in permutations(range(rank)) if rank == wanted.dim() <= 5 else ():
        now = ", ".join(indices[order.index(k)] for k in range(rank))
        spelt = ".T" if rank == 2 else f".permute({', '.join(map(str, order))})"
        words = f"TRANSPOSE the result: {spelt}, since it is [{now}]"
        yield methodcaller("permute", order), words
    for axis, extent in enumerate(found.shape) if rank == wanted.dim() + 1 else ():
        index = find_lost(judge.system, extent, judge.runs[0].sizes, indices)
        for act in ("sum", "mean"):
            says = f"index {index} SURVIVES: {act.upper()} over it is missing"
            yield methodcaller(act, axis), f"{says}, .{act}({axis - rank})"
        words = f"a place of length {extent} is too many: .squeeze({axis - rank})"
        yield methodcaller("select", axis, 0), words


def find_inner_survivor(lines: Lines) -> tuple[str, int | None]:
    """The pair (edit for a tensor that lacks a sum or diagonal, its line); or ("", None)."""
    wrong = lines.find_first_wrong()
    if wrong is None:
        return "", None
    value = wrong.value
    met = {match.node for match in lines.matches.values()}
    left = [node for node in lines.nodes if node not in met]  # nodes that no line computes
    for axis, extent in enumerate(value.shape):
        if found := find_match(value.sum(axis), left, lines.sizes):
            kept = tuple(index.name for index in found.node.indices)
            says = f"index {find_lost(lines.system, extent, lines.sizes, kept)} SURVIVES"
            missing = f"SUM over it is missing in {found.node.name}, .sum({axis - value.dim()})"
            return f"{says}: {missing}", wrong.line
    for (one, length), (two, other) in combinations(enumerate(value.shape), 2):
        diagonal = value.diagonal(dim1=one, dim2=two) if length == other > 1 else None
        found = None if diagonal is None else find_match(diagonal, left, lines.sizes)
        if found is not None:
            node = found.node
            extents = ((i.name, evaluate_extent(i.extent, lines.sizes)) for i in node.indices)
            name = next((index for index, extent in extents if extent == length), "?")
            bound = (index.name for n in walk(node.expr) for index in getattr(n, "bound", ()))
            summed = ", ".join(dict.fromkeys(bound)) or "the last"
            return (
                f"index {name} SURVIVES twice: each {name} is paired with each other one, where "
                f"the formula has {node.name}: multiply elementwise, then SUM over {summed}",
                wrong.line,
            )
    return "", wrong.line


def find_lost(
    system: ir.System, number: int, sizes: Mapping[str, int], kept: tuple[str, ...]
) -> str:
    """The name of an index of this extent that a sum binds, not in `kept`; else "of extent N"."""
    for equation in reversed(system.equations):
        for expr in walk(equation.value):
            for index in getattr(expr, "bound", ()):
                if evaluate_extent(index.extent, sizes) == number and index.name not in kept:
                    return str(index.name)
    names = [name for name, size in sizes.items() if size == number]
    return f"of extent {names[0] if names else number}"


MOST_FAR = 40  # samples at other sizes that confirm a corrected line
MOST_INPUTS = 16  # special inputs that confirm a corrected line


def explain_verdict(
    job: Job, choice: Choice, verdict: Verdict, send: Progress | None = None
) -> Verdict:
    """The verdict with its line, its annotations, and an edit that is confirmed at every sample."""
    program, first = choice.program, choice.samples[0]
    system = job.system
    results = program.run(first.make_inputs(), first.sizes).results
    if 0 < len(results) < len(system.results):  # the code does not return the others
        system = replace(system, results=system.results[: len(results)])
    samples = (*(() if choice.shown is None else (choice.shown,)), *choice.samples)

    def with_explanation(found: Explanation) -> Verdict:
        kept = verdict.difference if choice.shown is not None else found.difference
        return replace(
            verdict,
            difference=kept or verdict.difference,
            line=found.line,
            edit=found.edit,
            annotations=found.annotations,
            corrected=found.corrected,
            reasons=(*verdict.reasons, *filter(None, [found.tried])),
        )

    def report(found: Explanation) -> None:
        if send is not None:
            send(with_explanation(replace(found, difference=verdict.difference)))

    def confirm(edited: ir.System, samples: Sequence[Sample] = samples) -> bool:
        """Whether the edited formula agrees with the code at every sample."""
        try:
            moved = (replace(sample, system=edited) for sample in samples)
            return not any(judge_at(program, sample).is_clear for sample in moved)
        except ERRORS:  # no value at one of the samples
            return False

    start = replace(first, system=system)
    larger = {scale(start, each).reason for each in SCALES[1:]}  # digits are lost there

    def find_special(text: str) -> tuple[list[Sample], Sequence[float]]:
        """The pair (special inputs for a text of the code, the numbers in that text)."""
        numbers = load.find_literals(replace(program.code, source=text))
        inputs = (each for each in vary_inputs([start], numbers) if each.reason not in larger)
        return [*islice(inputs, MOST_INPUTS)], numbers

    special = find_special(program.code.source)[0]
    infinite = _count_infinite(program, special)

    def confirm_text(text: str) -> bool:
        """Whether a text agrees also at special inputs and far sizes, without new infinities."""
        inputs, numbers = find_special(text)
        far = (*inputs, *islice(vary_sizes(start, numbers), MOST_FAR))
        return confirm(system, (*samples, *far)) and _count_infinite(program, special) <= infinite

    every = tuple(replace(sample, system=system) for sample in samples)
    tell = send.tell if send is not None else lambda _: None
    case = Case(program, every, confirm, confirm_text, report, tell)
    return with_explanation(explain(case))


def _count_infinite(program: Program, samples: Sequence[Sample]) -> int:
    """The number of non-finite elements, over all samples, where the formula is finite."""
    count = 0
    for sample in samples:
        values = sample.make_inputs()
        with suppress(processes.CannotRunError, *ERRORS):
            wanted = sample.evaluate(values).values()
            results = program.run(values, sample.sizes).results
            pairs = zip(results, wanted, strict=False)
            both = ((one, other) for one, other in pairs if one.shape == other.shape)
            count += sum(int((~one.isfinite() & other.isfinite()).sum()) for one, other in both)
    return count
