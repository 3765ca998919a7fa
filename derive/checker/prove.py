"""A proof for all sizes: the code is lifted, and both sides have one normal form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from derive.frontend.from_torch import lift
from derive.ir.nodes import Size
from derive.rewrite.prove import prove
from derive.verify.samples import find_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from derive.checker.job import Job
    from derive.checker.pick import Picked
    from derive.ir.nodes import System


def find_proof(job: Job, picked: Picked) -> tuple[str, ...] | None:
    """What the proof rests on, in words; None where there is none.

    DeriveError for code that cannot be lifted.
    """
    program, said = picked.program, []
    for draw in picked.draws:
        names = find_sizes(job.system)

        def call(*, names: Sequence[str] = names, **given: Any) -> Any:
            values = {name: value for name, value in given.items() if name not in names}
            sizes = {name: given[name] for name in names}
            return program.call(values, sizes)

        arguments: dict[str, Any] = {entry.name: entry for entry in job.system.inputs}
        arguments |= {name: Size(name) for name in names}
        lifted = lift(call, arguments, dict(draw.sizes), path=program.code.path)
        proof = prove(lifted.system, _with_layouts(job.system, picked))
        if proof is None:
            return None
        if lifted.every_size:
            return ("for all sizes",)
        said.append(dict(draw.sizes))
    return ("at these sizes, which the code takes as numbers",)


def _with_layouts(system: System, picked: Picked) -> System:
    """The formula's system; its results in the layout that the code has."""
    if picked.program.results:
        from derive.errors import refuse

        raise refuse("lift-layout", "results in another layout are not proved")
    return system
