"""The machine's limit: operations over the rate of a large product, bytes over that of a copy.

Williams, Waterman, Patterson 2009, "Roofline: an insightful visual performance model".
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from derive.bench.candidates import Candidate

_SIDE = 1024  # of the matrices
_FLOATS = 1 << 24  # of the copy, beyond the caches
_RUNS = 5


@dataclass(frozen=True)
class Roofline:
    """Operations and bytes in a second, float32."""

    flops: float
    bytes: float


def measure_roofline() -> Roofline:
    """Both rates, now and on this machine, with the threads in force."""
    import torch

    one, other = torch.randn(_SIDE, _SIDE), torch.randn(_SIDE, _SIDE)
    source = torch.zeros(_FLOATS)
    target = torch.empty_like(source)
    product = _find_seconds(lambda: torch.mm(one, other))
    copy = _find_seconds(lambda: target.copy_(source))
    return Roofline(2 * _SIDE**3 / product, 2 * 4 * _FLOATS / copy)


def _find_seconds(call: Callable[[], object]) -> float:
    call()
    found = []
    for _ in range(_RUNS):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def find_bound(roofline: Roofline, flops: int, candidate: Candidate) -> float:
    """Seconds at the least: the operations, and each input read and each result written once."""
    import torch

    with torch.no_grad():
        made = candidate.call()
    results = made if isinstance(made, (tuple, list)) else (made,)
    moved: int = sum(each.numel() * each.element_size() for each in (*candidate.inputs, *results))
    return flops / roofline.flops + moved / roofline.bytes
