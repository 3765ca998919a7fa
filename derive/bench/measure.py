"""Medians over interleaved runs: what slows the machine for a while slows all candidates alike."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from derive.bench.candidates import Candidate

LEAST = 2e-3  # seconds of one measurement; shorter calls are repeated within it
MOST_CALLS = 2000


def measure_all(
    candidates: Sequence[Candidate], runs: int, *, backward: bool = False
) -> dict[str, float]:
    """The median seconds of one call of each."""
    calls = {
        each.name: _with_gradients(each) if backward else _forward(each) for each in candidates
    }
    counts = {name: _find_count(call) for name, call in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(runs):
        for name, call in calls.items():
            seconds[name].append(_time(call, counts[name]) / counts[name])
    return {name: statistics.median(found) for name, found in seconds.items()}


def _forward(candidate: Candidate) -> Callable[[], Any]:
    import torch

    def run() -> None:
        with torch.no_grad():
            candidate.call()

    return run


def _with_gradients(candidate: Candidate) -> Callable[[], Any]:
    import torch

    def run() -> None:
        for leaf in candidate.leaves:
            leaf.requires_grad_()
        made = candidate.call()
        first = made[0] if isinstance(made, (tuple, list)) else made
        torch.autograd.grad(first.sum(), candidate.leaves, allow_unused=True)
        for leaf in candidate.leaves:
            leaf.requires_grad_(False)

    return run


def _find_count(call: Callable[[], Any]) -> int:
    """How many calls a measurement takes; the first call of all only warms up."""
    call()
    one = _time(call, 1)
    return max(1, min(MOST_CALLS, int(LEAST / max(one, 1e-7))))


def _time(call: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - start
