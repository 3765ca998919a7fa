"""The machine's limit: operations over the rate of a product, bytes over that of a copy.

Williams, Waterman, Patterson 2009, "Roofline: an insightful visual performance model".

It is an estimate. A rate is the best of several runs, since others may work on the machine, and of
a small and a large product, since only the large one is slowed down by what is beyond the caches.
Code that finds its inputs in the cache, or moves while it multiplies, can be faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from derive.bench.measure import find_timings
from derive.checker.runs import flatten_results

if TYPE_CHECKING:
    from collections.abc import Callable

    from derive.bench.candidate import Candidate

SIDE = 1024  # of the matrices
SMALL = 256  # of matrices that stay in the cache
_COPIED = 1 << 26  # bytes of the copy, beyond the caches
_RUNS = 5


@dataclass(frozen=True, slots=True)
class Roofline:
    """Operations and bytes in a second."""

    flops: float
    bytes: float

    def find_seconds(self, flops: int, moved: int) -> float:
        """An estimate of the least time for so many operations and bytes."""
        return flops / self.flops + moved / self.bytes


def measure_roofline(dtype: Any = None) -> Roofline:
    """Both rates for numbers of a type (float32), here and now, with the threads in force."""
    import torch

    dtype = dtype or torch.float32
    products = {f"product {side}": to_product(dtype, side) for side in (SMALL, SIDE)}
    found = find_timings({**products, "copy": to_copy(dtype)}, _RUNS)
    rates = (2 * side**3 / found[f"product {side}"].least for side in (SMALL, SIDE))
    return Roofline(max(rates), 2 * _COPIED / found["copy"].least)


def to_product(dtype: Any, side: int = SIDE) -> Callable[[], Any]:
    """A product of two matrices of `side` rows and columns."""
    import torch

    one, other = torch.randn(2, side, side).to(dtype)
    return lambda: torch.mm(one, other)


def to_copy(dtype: Any) -> Callable[[], Any]:
    """A copy of `_COPIED` bytes, which are read and written."""
    import torch

    source = torch.zeros(_COPIED // dtype.itemsize, dtype=dtype)
    target = torch.zeros_like(source)
    return lambda: target.copy_(source)


def find_bound(roofline: Roofline, flops: int, candidate: Candidate) -> float:
    """The same for so many operations and for what a candidate reads and writes."""
    return roofline.find_seconds(flops, count_moved(candidate))


def count_moved(candidate: Candidate) -> int:
    """Bytes: each input read and each result written once."""
    import torch

    with torch.no_grad():
        made = flatten_results(candidate.call())
    return sum(each.numel() * each.element_size() for each in (*candidate.inputs, *made))
