"""A proof for all sizes: the code is lifted, and both sides have one normal form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from derive.frontend.from_torch import lift
from derive.ir.nodes import Size
from derive.judge.samples import find_sizes
from derive.prove import prove

if TYPE_CHECKING:
    from derive.checker.job import Job
    from derive.checker.pick import Picked


def find_proof(job: Job, picked: Picked) -> str | None:
    """What the proof holds for, in words; None where there is none.

    DeriveError for code that cannot be lifted.
    """
    program = picked.program
    if program.results:
        return None  # results in another layout than the formula's
    names = find_sizes(job.system)

    def call(**given: Any) -> Any:
        values = {name: value for name, value in given.items() if name not in names}
        return program.call(values, {name: given[name] for name in names})

    call.__wrapped__ = program.code.target  # type: ignore[attr-defined]
    arguments: dict[str, Any] = {entry.name: entry for entry in job.system.inputs}
    arguments |= {name: Size(name) for name in names}
    numbers: list[str] = []
    for draw in picked.draws[::2]:  # the one between has a size 1
        lifted = lift(call, arguments, dict(draw.sizes), path=program.code.path)
        if prove(lifted.system, job.system, lifted.fixed) is None:
            return None
        given = f" with {' and '.join(lifted.notes)}" if lifted.notes else ""
        if lifted.every_size:
            return f"for all sizes{given}"
        if all(name in lifted.fixed for name in names):
            return None
        numbers.append(" ".join(f"{name}={value}" for name, value in lifted.fixed.items()))
    told = "; ".join(dict.fromkeys(numbers))
    return f"at {told}, which the code takes as numbers, for all other sizes"
