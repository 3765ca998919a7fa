"""Medians over interleaved runs: what slows the machine for a while slows all calls alike.

The order changes from run to run, and a short call is made once before it is timed: what ran before
it has filled the caches with other things.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from derive.bench.candidate import to_backward, to_forward

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from derive.bench.candidate import Candidate

LEAST = 2e-3  # seconds of one measurement; shorter calls are repeated within it
MOST_CALLS = 2000
_FEW = 10
_SHORT = 0.05  # seconds, below which caches count


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call: the first one, which also warms up; the median and least of others."""

    first: float
    median: float
    least: float

    @property
    def warming(self) -> float:
        """What the first call took longer than others; of compiled code that is the compiler."""
        return max(0.0, self.first - self.median)


def measure_all(
    candidates: Sequence[Candidate], runs: int, *, backward: bool = False
) -> dict[str, float]:
    """The median seconds of one call of each candidate."""
    make = to_backward if backward else to_forward
    found = find_timings({each.name: make(each) for each in candidates}, runs)
    return {name: timing.median for name, timing in found.items()}


def find_timings(calls: Mapping[str, Callable[[], Any]], runs: int) -> dict[str, Timing]:
    """The timing of each call."""
    firsts = {name: time_calls(call, 1) for name, call in calls.items()}
    counts = {name: _find_count(call) for name, call in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for run in range(runs):
        turn = run % len(names) if names else 0
        for name in (*names[turn:], *names[:turn]):
            call, count = calls[name], counts[name]
            if firsts[name] < _SHORT:
                call()
            seconds[name].append(time_calls(call, count) / count)
    return {
        name: Timing(firsts[name], statistics.median(found), min(found))
        for name, found in seconds.items()
    }


def time_calls(call: Callable[[], Any], count: int) -> float:
    """Seconds of so many calls."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - start


def _find_count(call: Callable[[], Any]) -> int:
    """How many calls a measurement takes."""
    one = time_calls(call, 1)
    if one < LEAST:  # a single short call tells little
        one = time_calls(call, _FEW) / _FEW
    return max(1, min(MOST_CALLS, int(LEAST / max(one, 1e-7))))
