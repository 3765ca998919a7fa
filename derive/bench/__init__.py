"""The benchmark on one page: a formula's generated function against what people write by hand.

    candidates   the generated function, code by hand, one einsum call      each checked against it
    measure      medians over interleaved runs, forward and backward
    memory       the most that one call takes beyond its inputs, in a child process
    roofline     how fast this machine multiplies and moves, measured in the same run

A ratio of medians from one run means something on a busy machine; a time alone does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from derive.bench.candidates import find_candidates
from derive.bench.measure import measure_all
from derive.bench.memory import find_peak
from derive.bench.roofline import Roofline, find_bound, measure_roofline
from derive.compiler import build
from derive.verify.samples import draw_inputs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.notation.formula import Formula

RUNS = 7


@dataclass(frozen=True)
class Row:
    """One way to compute the formula: median seconds, bytes beyond the inputs."""

    name: str
    forward: float
    backward: float | None  # forward and backward together
    peak: int | None


@dataclass(frozen=True)
class Report:
    """What was measured: rows, the generated function first, and the machine's limit."""

    name: str
    sizes: Mapping[str, int]
    threads: int
    rows: tuple[Row, ...]
    roofline: Roofline
    bound: float  # seconds that the operations and the moved bytes take at the least
    skipped: tuple[str, ...] = ()

    def find_ratio(self, row: Row) -> float:
        """How many times the generated function's time a row takes, forward."""
        return row.forward / self.rows[0].forward

    def to_data(self) -> dict[str, Any]:
        """The report for JSON; times in seconds."""
        return {
            "name": self.name,
            "sizes": dict(self.sizes),
            "threads": self.threads,
            "roofline": {
                "flops_per_second": self.roofline.flops,
                "bytes_per_second": self.roofline.bytes,
                "seconds": self.bound,
            },
            "rows": [
                {
                    "name": row.name,
                    "forward": row.forward,
                    "backward": row.backward,
                    "peak_bytes": row.peak,
                    "ratio": self.find_ratio(row),
                }
                for row in self.rows
            ],
            "skipped": list(self.skipped),
        }


def bench(  # noqa: PLR0913 - one for each option of the command line
    formula: Formula,
    against: str = "",
    sizes: Mapping[str, int] | None = None,
    *,
    name: str | None = None,
    backward: bool = False,
    threads: int = 1,
    runs: int = RUNS,
) -> Report:
    """The generated function timed against code by hand (`against`, FILE.py:FUNCTION) in float32.

    `sizes` are those of the run, else the formula's typical ones. `backward` times the gradients by
    every real input too. Raises DeriveError for code that gives other values.
    """
    import torch

    built = build(formula, sizes=dict(sizes) if sizes else None, name=name)
    plan = built.plan
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        inputs = draw_inputs(built.system, plan.sizes, seed=0, dtype=torch.float32)
        candidates, skipped = find_candidates(built, against, inputs)
        peaks = {each.name: find_peak(each.call) for each in candidates}
        forward = measure_all(candidates, runs)
        both = measure_all(candidates, runs, backward=True) if backward else {}
        roofline = measure_roofline()
    finally:
        torch.set_num_threads(before)
    rows = tuple(
        Row(each.name, forward[each.name], both.get(each.name), peaks[each.name])
        for each in candidates
    )
    bound = find_bound(roofline, plan.at_sizes(plan.flops), candidates[0])
    return Report(built.name, dict(plan.sizes), threads, rows, roofline, bound, skipped)
