"""A proof for all sizes: the code is lifted, and both sides have one normal form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from derive.checker.program import Program
from derive.checker.remote import where_it_lives
from derive.frontend.torch.lift import lift
from derive.ir.nodes import Size, System
from derive.judge.samples import find_sizes
from derive.prove import prove

if TYPE_CHECKING:
    from derive.checker.job import Job
    from derive.checker.pick import Picked
    from derive.frontend.torch.numbers import Condition


@dataclass(frozen=True)
class Proof:
    """What a proof holds for: in words, and the conditions on sizes among it."""

    words: str
    conditions: tuple[Condition, ...] = ()


def find_proof(job: Job, picked: Picked) -> Proof | None:
    """What the proof holds for; None where there is none.

    DeriveError for code that cannot be lifted.
    """
    program = picked.program
    if program.results:
        return None  # results in another layout than the formula's
    names = find_sizes(job.system)
    numbers: list[str] = []
    conditions: dict[Condition, None] = {}
    for draw in picked.draws[::2]:  # the one between has a size 1
        lifted = lift_program(program, job.system.inputs, dict(draw.sizes))
        if prove(lifted.system, job.system, lifted.fixed) is None:
            return None
        given = f" with {' and '.join(map(str, lifted.notes))}" if lifted.notes else ""
        if not lifted.fixed:
            return Proof(f"for all sizes{given}", lifted.notes)
        if all(name in lifted.fixed for name in names):
            return None
        conditions |= dict.fromkeys(lifted.notes)
        numbers.append(" ".join(f"{name}={value}" for name, value in lifted.fixed.items()))
    told = "; ".join(dict.fromkeys(numbers))
    words = f"at {told}, which the code takes as numbers, for all other sizes"
    return Proof(words, tuple(conditions))


@dataclass(frozen=True)
class Equations:
    """The system that code computes; sizes that it takes as numbers; what it asks of the others."""

    system: System
    fixed: Mapping[str, int]
    notes: tuple[Condition, ...]


@where_it_lives
def lift_program(program: Program, inputs: Sequence[Any], sizes: Mapping[str, int]) -> Equations:
    """The equations of code, traced at these sizes; DeriveError where it cannot be."""

    def call(**given: Any) -> Any:
        values = {name: value for name, value in given.items() if name not in sizes}
        return program.call(values, {name: given[name] for name in sizes})

    call.__wrapped__ = program.code.target  # type: ignore[attr-defined]
    arguments: dict[str, Any] = {entry.name: entry for entry in inputs}
    arguments |= {name: Size(name) for name in sizes}
    lifted = lift(call, arguments, sizes, path=program.code.path)
    return Equations(lifted.system, dict(lifted.fixed), lifted.notes)
