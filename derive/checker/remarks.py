"""Remarks on how code and formula were put together: what is not taken, not returned, laid anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.checker.judge import run_quietly
from derive.checker.sources import find_names, find_tensors
from derive.errors import Diagnostic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.checker.pick import Picked
    from derive.checker.program import Program
    from derive.ir.nodes import System


def find_remarks(system: System, picked: Picked) -> Iterator[Diagnostic]:
    """What a reader of the verdict has to know about the call that was judged."""
    program = picked.program
    sources = {**program.arguments, **program.parameters}
    taken = {name for source in sources.values() for name in find_names(source)}
    for tensor in find_tensors(system):
        if tensor.name not in taken:
            yield Diagnostic(
                "not-taken",
                f"{tensor.name} of the formula is given to nothing in the code",
                help=f"bind it, as in --bind ARGUMENT={tensor.name}, if an argument stands for it",
            )
    yield from _find_layouts(program)
    draw = picked.draws[0]
    results, _ = run_quietly(program, draw.make_inputs(), draw.sizes)
    missing = [tensor.name for tensor in system.results[len(results) :]]
    if missing and results:
        yield Diagnostic("not-returned", f"the code does not return {', '.join(missing)}")


def _find_layouts(program: Program) -> Iterator[Diagnostic]:
    """Arguments that the code runs with only in another layout."""
    masks = {n: s for n, s in program.arguments.items() if ".unsqueeze(" in s and "(" in s}
    for name, source in masks.items():
        yield Diagnostic(
            "mask-alignment",
            f"the code aligns {name} with its last indices: it runs with {source}",
            facts=("as the formula has it, the first index would be taken for another one",),
            help=f"say in the code that {name} has an index of extent 1 there, or add it inside",
        )
    moved = {n: s for n, s in program.arguments.items() if ".permute(" in s or s.endswith(".T")}
    if moved:
        given = ", ".join(f"{name} = {source}" for name, source in moved.items())
        yield Diagnostic("layout", f"the code takes another layout than the formula: {given}")
