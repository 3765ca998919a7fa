"""The compiler on one page: formula -> equations -> plan -> source -> comparison with loops."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from derive.analysis.extents import drop_false_reads
from derive.backend.to_function import to_function
from derive.backend.to_module import Header, to_module
from derive.errors import refuse, refuse_depth
from derive.formulas import read_formula
from derive.frontend.from_sympy import to_system
from derive.ir import nodes as ir
from derive.ir import polynomial
from derive.ir.text import to_lines, to_text
from derive.ir.walk import find_all_indices, find_sizes, walk
from derive.options import NONE, Options
from derive.plan import search
from derive.plan.backward import Passes, name_compared, plan_passes
from derive.plan.machine import WIDTH, parse_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from derive.judge.compare import Judgement
    from derive.notation.formula import Formula
    from derive.plan.plan import Plan

LONGEST = 1 << 63  # limit of torch's 64-bit positions
TYPICAL = 64  # extent that a plan assumes where the formula has no typical size
ALONE = "one_by_one"  # the keyword with which a judge computes each gradient in a call of its own
SHORT = 4  # default for K in extents such as L - K + 1


@dataclass(frozen=True)
class Built:
    """A formula's generated file: its text, the plan behind it, and the function to call."""

    name: str
    formula: Formula
    system: ir.System
    plan: Plan
    source: str
    options: Options = NONE
    passes: Passes | None = None  # where the file has a backward of its own
    remarks: tuple[str, ...] = ()  # why options such as `backward` were not followed

    def __repr__(self) -> str:
        return f"<Built {self.plan.describe()}>"

    def __str__(self) -> str:
        """The equations, the plan with its costs, the notes."""
        return "\n".join((*to_lines(self.system), "", str(self.plan), *self.notes))

    @property
    def notes(self) -> tuple[str, ...]:
        """One line for each law that the plan used, other than simplifications, and warnings."""
        own = self.remarks if self.passes is None else (self.passes.describe_costs(),)
        return (*self.plan.notes, *own)

    @property
    def variants(self) -> tuple[dict[str, int], ...]:
        """The keyword arguments of each call that a judge makes: none, and block lengths 1, 2, 3.

        First one loop at a time, then all together with lengths that differ. Last blocks are short.
        """
        names = [tile.block for tile in self.plan.tiles]
        found = [{name: length} for name in names for length in (1, 2, 3)]
        if len(names) > 1:
            found += [{n: 1 + (k + at) % 3 for at, n in enumerate(names)} for k in range(3)]
        return ({}, *found, *({name: length} for name in self.plan.chunks for length in (2, 3)))

    @property
    def _backward_variants(self) -> tuple[dict[str, Any], ...]:
        """The keyword arguments of calls of the backward: one or all gradients, block lengths."""
        blocks = () if self.passes is None else self.passes.blocks.values()
        found = [{name: length} for name in blocks for length in (1, 2, 3)]
        return ({}, {ALONE: True}, *found)

    @cached_property
    def function(self) -> Callable[..., Any]:
        """The generated function, called by name or in order of declaration."""
        from derive.judge.compare import load_function

        return load_function(self.source, self.name)

    def judge(self, count: int = 3) -> Judgement:
        """Run the file on `count` samples and compare with loops; DeriveError where they differ."""
        from derive.frontend.gradient import find_backward
        from derive.judge.compare import BackwardCase, judge_source, raise_unless_agrees
        from derive.judge.samples import choose_sizes

        with refuse_depth():
            draws = choose_sizes(self.system, count)
            parts = self.source, self.name, self.formula, self.system, draws
            judgement = judge_source(*parts, variants=self.variants)
            raise_unless_agrees(judgement, self.name)
            if self.passes is not None:
                found = find_backward(self.formula)
                inputs = self.system.inputs
                given = {e.name: 1.0 for e in inputs if isinstance(e, ir.ScalarInput)}
                made = to_system(found.formula)
                pull = BackwardCase(found.given, found.made, given)
                parts = self.source, self.name, found.formula, made, choose_sizes(made, count)
                backward = judge_source(*parts, variants=self._backward_variants, pull=pull)
                raise_unless_agrees(backward, f"the backward of {self.name}")
            return judgement

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the equations and the plan in a notebook."""
        printer.text(str(self))

    def write(self, directory: str | Path) -> Path:
        """Judge the file, then write it as NAME.py; DeriveError, and no file, if it is wrong."""
        self.judge()
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.py"
        beside = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            beside.write_text(self.source, encoding="utf-8")
            beside.replace(path)  # so that no reader meets half a file
        finally:
            beside.unlink(missing_ok=True)
        return path


def build(  # noqa: PLR0913 - the options, by name
    formula: Formula | str,
    sizes: Mapping[str, int] | None = None,
    memory: int | str | None = None,
    name: str | None = None,
    *,
    exact: bool = False,
    cells: bool = True,
    backward: bool = False,
    einsum: bool = True,
) -> Built:
    """The generated file of a formula, planned for `sizes` (else its typical sizes).

    formula     a Formula, a text in the notation, or the name of a formula of the library
    memory      bytes, or text such as "256MiB", that the tensors alive at once may take at those
                sizes in float32, without the arguments
    exact       use no rule that rounds worse than the formula, such as a**2 - 2*a*b + b**2 for
                (a - b)**2
    cells       False: use no call of torch that lacks second derivatives
    backward    write a backward of its own, planned from the formula's gradients; left out, with a
                note, where autograd on the usual file is far cheaper
    Raises DeriveError for a formula that cannot be used, and if no plan fits into the memory.
    """
    options = Options(
        sizes=dict(sizes or {}),
        memory=memory,
        exact=exact,
        cells=cells,
        backward=backward,
        einsum=einsum,
    )
    return build_file(formula, options, name)


def build_file(
    formula: Formula | str,
    options: Options,
    name: str | None = None,
    origin: str = "a formula",
    rebuild: str = "",
) -> Built:
    """The generated file of a formula under these options; errors are those of `build`.

    The file's header names `origin`, where the formula is from, and `rebuild`, the command that
    makes the file again.
    """
    formula = read_formula(formula)
    elements = None if options.memory is None else parse_memory(options.memory) // WIDTH
    request = search.Request(elements, options.exact, options.cells, not options.einsum)
    with refuse_depth():
        system = to_system(formula, name)
        _refuse_long(system)
        typical = _find_typical(system, formula, options.sizes)
        command = rebuild or f"derive build {system.name}"
        header = Header(formula.title, formula.source, origin, command)
        planned = drop_false_reads(system)
        plan = search.find_plan(planned, typical, request, regimes=True)
        built = Built(system.name, formula, system, plan, "", options)
        if options.backward:
            passes = _plan_passes(formula, system, typical, request)
            remarks = passes.compare(plan)
            if not remarks:
                source = to_function(passes, planned, system.name, header)
                plan = replace(passes.forward, system=system)
                return replace(built, plan=plan, source=source, passes=passes)
            built = replace(built, remarks=remarks)
        return replace(built, source=to_module(plan, system.name, header, built.remarks))


def evaluate_loops(formula: Formula, tensors: Mapping[str, Any]) -> Any:
    """The results of the formula for these values, by direct loops.

    `tensors` maps the names of tensors, scalars and keyword sizes to torch tensors, arrays, nested
    lists or numbers. The results have the type of the given tensors: torch (float64, or int64 for
    integers), NumPy, or nested lists; a tuple if the formula has several results.

    Raises DeriveError for a formula that cannot be used, where values are missing or do not fit,
    and where a read is out of range.
    """
    from derive.judge import loops

    to_system(formula)
    return loops.evaluate_loops(formula, tensors)


def typeset(formula: Formula) -> str:
    """The equations as display LaTeX, for a notebook."""
    from derive.backend.to_latex import to_rows

    return f"$$\\begin{{aligned}}\n{to_rows(to_system(formula))}\n\\end{{aligned}}$$"


def _plan_passes(
    formula: Formula, system: ir.System, sizes: Mapping[str, int], request: search.Request
) -> Passes:
    """The plans of both passes: the forward one of the results, the backward one of gradients."""
    from derive.frontend.gradient import find_backward

    system, compared = name_compared(system)
    found = find_backward(formula, system)
    gradients = drop_false_reads(to_system(found.formula))
    names = found.given, found.made
    return plan_passes(drop_false_reads(system), gradients, names, sizes, request, compared)


def _refuse_long(system: ir.System) -> None:
    """Raise DeriveError for an extent that contains a number of 2**63 or more."""
    tensors = [entry for entry in system.inputs if isinstance(entry, ir.Tensor)]
    indices = (
        part for e in system.equations for part in walk(e.value) if isinstance(part, ir.Index)
    )
    extents = [extent for tensor in tensors for extent in tensor.shape]
    for part in (part for e in (*extents, *(i.extent for i in indices)) for part in walk(e)):
        if isinstance(part, ir.Number) and abs(part.value) >= LONGEST:
            raise refuse(
                "extent-too-large",
                f"{part.value} is no extent of a tensor",
                facts=("torch counts positions in 64 bits",),
                help="write the extent as a size, or as a number below 2**63",
            )


def _find_typical(system: ir.System, formula: Formula, sizes: Mapping[str, int]) -> dict[str, int]:
    """The number that the plan assumes for each size: of `sizes`, else typical, else a default."""
    for size, number in sizes.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:
            raise refuse("sizes-range", f"a size is a whole number above 0, {size} is {number!r}")
    wanted = {**formula.typical, **sizes}
    known = find_sizes(system)
    unknown = [size for size in wanted if size not in known]
    if unknown:
        raise refuse(
            "size-unknown",
            f"{unknown[0]} is no size of {system.name}",
            facts=(f"its sizes are {', '.join(known)}",),
            help="leave it out, or correct its name",
        )
    defaults = {entry.name: entry.default for entry in system.sizes if entry.default}
    found = {size: wanted.get(size, defaults.get(size, TYPICAL)) for size in known}
    indices = find_all_indices(system)
    extents = [polynomial.Polynomial.of(index.extent) for index in indices]
    taken = [size for extent in extents for size in extent.find_decreasing(found)]
    found |= {size: SHORT for size in taken if size not in wanted and size not in defaults}
    for index in indices:
        sizes_in = [part.name for part in walk(index.extent) if isinstance(part, ir.Size)]
        if polynomial.evaluate_extent(index.extent, found) < 0:
            at = ", ".join(f"{size}={found[size]}" for size in dict.fromkeys(sizes_in))
            raise refuse(
                "sizes-impossible",
                f"index {index.name} < {to_text(index.extent)} ends below 0 at {at}",
                help="give larger sizes, or smaller ones where they are taken away",
            )
    return found
