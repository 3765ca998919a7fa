"""The time and memory of a call: medians over interleaved runs.

The runs are interleaved, so that a slow phase of the machine slows all calls alike. The order
changes from run to run. A short call is made once before it is timed, to fill the caches.

The peak memory of a call, beyond that in use before, is measured in a child process with one
thread: a fork has none of its parent's other threads, and code that waits for them would hang.
"""

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from statistics import median
from timeit import timeit
from typing import Any

from derive import compiler, errors
from derive.checker.processes import MOST_MEMORY, run_in_child
from derive.checker.runs import flatten_results
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.libraries import torch

LEAST = 2e-3  # seconds of one measurement; shorter calls are repeated within it
MOST_CALLS = 2000
_FEW = 10
_SHORT = 0.05  # seconds, below which caches count


@dataclass(frozen=True)
class Candidate:
    """A name, a call, and the tensors that it reads; gradients are taken by the real ones."""

    name: str
    call: partial[Any]
    inputs: tuple[Any, ...]

    @property
    def leaves(self) -> tuple[Any, ...]:
        """The real tensors."""
        return tuple(each for each in self.inputs if each.is_floating_point())


def to_forward(candidate: Candidate) -> Callable[[], Any]:
    """The function that calls a candidate without gradients."""
    return torch.no_grad()(candidate.call)


def to_backward(candidate: Candidate) -> Callable[[], Any]:
    """The function that computes a candidate's gradients; DeriveError if it has none."""
    ones: list[Any] = []

    def run() -> None:
        for leaf in candidate.leaves:
            leaf.requires_grad_()
        try:
            made = [one for one in flatten_results(candidate.call()) if one.requires_grad]
            if not made:
                raise errors.refuse("bench-gradients", "no result depends on a real input")
            if not ones:  # the incoming gradient is contiguous, as within a network
                ones.extend(map(torch.ones_like, made))
            torch.autograd.grad(made, candidate.leaves, ones, allow_unused=True)
        finally:
            for leaf in candidate.leaves:
                leaf.requires_grad_(False)

    return run


def find_timings(calls: Mapping[str, Callable[[], Any]], runs: int) -> dict[str, float]:
    """The median seconds of each call."""
    firsts = {name: timeit(call, number=1) for name, call in calls.items()}
    counts = {name: _find_count(call) for name, call in calls.items()}
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for run in range(runs):
        turn = run % max(1, len(names))
        for name in (*names[turn:], *names[:turn]):
            call, count = calls[name], counts[name]
            if firsts[name] < _SHORT:
                call()
            seconds[name].append(timeit(call, number=count) / count)
    return {name: median(found) for name, found in seconds.items()}


def _find_count(call: Callable[[], Any]) -> int:
    """The number of calls that make a measurement long enough."""
    one = timeit(call, number=1)
    if one < LEAST:  # one short call is too noisy
        one = timeit(call, number=_FEW) / _FEW
    return max(1, min(MOST_CALLS, int(LEAST / max(one, 1e-7))))


_STATUS = Path("/proc/self/status")
_MACHINE = Path("/proc/meminfo")
_SECONDS = 60
_FULL = "can't allocate memory"  # torch's words; on a processor it raises no class of its own
_LONGEST = 160  # most characters of a foreign error message


def say_failure(error: BaseException) -> str:
    """An error on one short line; a lack of memory in derive's words."""
    if isinstance(error, errors.DeriveError):
        return error.diagnostic.says
    if isinstance(error, MemoryError) or _FULL in str(error):
        return "one call takes too much memory"
    said = f"{type(error).__name__}: {str(error).strip()}".split("\n\n")[0]
    said = " ".join(said.removesuffix(": ").split())
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]} ..."


_GRAIN = 1 << 16  # bytes; the system counts pages in batches, and reports some late


def find_peak(call: Callable[[], Any]) -> int | None:
    """The peak memory of a call, in bytes; None where the system does not report it."""
    if not _STATUS.exists() or not hasattr(os, "fork"):
        return None

    def work(send: Callable[[Any], None]) -> None:
        torch.set_num_threads(1)
        call()  # load modules before the measurement
        # freed memory returns to the system, so that it is counted again
        with suppress(OSError, AttributeError, TypeError):  # not every C library can
            ctypes.CDLL(None).malloc_trim(0)
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        before = _read_bytes(_STATUS, "VmRSS")
        call()
        grown = _read_bytes(_STATUS, "VmHWM") - before
        send(max(0, round(grown / _GRAIN) * _GRAIN))

    found, _ = run_in_child(work, _SECONDS, _read_bytes(_MACHINE, "MemAvailable") or MOST_MEMORY)
    return found if isinstance(found, int) else None


def refuse_too_large(built: compiler.Built, width: int) -> None:
    """Refuse sizes at which inputs and steps, `width` bytes a number, exceed the free memory."""
    plan = built.plan
    counts = [
        prod(plan.at_sizes(Polynomial.of(extent)) for extent in entry.shape)
        for entry in built.system.inputs
        if isinstance(entry, ir.Tensor)
    ]
    drawn = 8 * max(counts, default=0)  # one after the other in double precision
    wanted = width * (sum(counts) + plan.at_sizes(plan.peak_elements)) + drawn
    free = _read_bytes(_MACHINE, "MemAvailable")
    if free and wanted > free:
        at = ", ".join(f"{name}={number}" for name, number in plan.sizes.items())
        raise errors.refuse(
            "bench-memory",
            f"{built.name} at {at} takes {wanted / 1e9:.3g} GB, {free / 1e9:.3g} GB are free",
            help="give smaller sizes with --sizes",
        )


def _read_bytes(path: Path, name: str) -> int:
    """The value of a line `NAME: N kB` in bytes; 0 without such a line or file."""
    text = path.read_text(encoding="ascii", errors="replace") if path.exists() else ""
    for line in text.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Set the number of torch's threads within the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
