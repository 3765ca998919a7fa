"""One choice of sizes, measured: what there is to compare, then a table for each thread count.

Values and memory are looked at on one thread; both are the same on any number of them.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from derive.bench.candidate import to_backward, to_forward
from derive.bench.candidates import find_candidates
from derive.bench.compiled import find_compiled, quietly, to_compiled_name
from derive.bench.draws import draw_moderate
from derive.bench.measure import find_timings
from derive.bench.memory import find_peak, say_failure, say_no_peak
from derive.bench.report import Report, Row, Table
from derive.bench.roofline import count_moved, measure_roofline
from derive.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from derive.bench.candidates import Found
    from derive.bench.hand import Hand
    from derive.compiler import Built

    Calls = Mapping[str, Callable[[], Any]]

RUNS = 7
DTYPES = ("float32", "bfloat16", "float64")


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is measured of each candidate, and how."""

    backward: bool = False  # gradients by every real input too
    compiled: bool = False  # torch.compile too
    threads: tuple[int, ...] = (1,)  # a table for each
    runs: int = RUNS
    dtype: str = "float32"
    plan: Mapping[str, Any] = field(default_factory=dict)  # further arguments of derive.build


def find_dtype(name: str) -> Any:
    """The type of torch that has this name; DeriveError for one that is not measured."""
    import torch

    if name not in DTYPES:
        raise refuse(
            "bench-dtype",
            f"{name} is no type that is measured",
            facts=(f"the types are {', '.join(DTYPES)}",),
        )
    return getattr(torch, name)


def measure(built: Built, hand: Hand | None, wishes: Wishes) -> Report:
    """Everything that is wished for; DeriveError for code that gives other values."""
    with on_threads(1):
        found = _find_checked(built, hand, wishes)
        backward = _find_backward(found) if wishes.backward else {}
        compiling = _add_compiled(found, hand, wishes, backward) if wishes.compiled else {}
        forward = {each.name: to_forward(each) for each in found.candidates}
        peaks = {name: find_peak(call) for name, call in forward.items()}
        backward_peaks = {name: find_peak(call) for name, call in backward.items()}
        found.skipped.extend(_find_unknown(peaks, backward_peaks))
    tables = []
    flops, moved = built.plan.at_sizes(built.plan.flops), count_moved(found.candidates[0])
    for threads in wishes.threads:
        with on_threads(threads), quietly() if wishes.compiled else nullcontext():
            alone = find_timings(forward, wishes.runs)
            both = find_timings(backward, wishes.runs)
            roofline = measure_roofline(find_dtype(wishes.dtype))
        rows = tuple(
            Row(
                name,
                alone[name].median,
                both[name].median if name in both else None,
                peaks[name],
                backward_peaks.get(name),
            )
            for name in forward
        )
        if threads != 1:  # it was compiled again
            for name in compiling:
                compiling[name] += sum(of[name].warming for of in (alone, both) if name in of)
        tables.append(Table(threads, rows, roofline, flops, moved))
    skipped = tuple(found.skipped)
    sizes = dict(built.plan.sizes)
    return Report(built.name, sizes, wishes.dtype, tuple(tables), compiling, skipped)


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """In here torch works on so many threads."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _find_checked(built: Built, hand: Hand | None, wishes: Wishes) -> Found:
    """The candidates for inputs of the wished type, once they have agreed.

    In bfloat16 rounding hides mistakes, so values are compared in float32 there.
    """
    import torch

    dtype = find_dtype(wishes.dtype)
    precise = torch.float32 if dtype is torch.bfloat16 else dtype
    inputs = draw_moderate(built.system, built.plan.sizes, precise)
    found = find_candidates(built, hand, inputs, backward=wishes.backward)
    if dtype is precise:
        return found
    inputs = draw_moderate(built.system, built.plan.sizes, dtype)
    return find_candidates(built, hand, inputs, backward=wishes.backward, judge=False)


def _find_unknown(*peaks: Mapping[str, int | None]) -> list[str]:
    """The rows without bytes, and why."""
    names = dict.fromkeys(name for each in peaks for name, peak in each.items() if peak is None)
    return [f"the memory of {name}: {say_no_peak()}" for name in names]


def _find_backward(found: Found) -> dict[str, Callable[[], Any]]:
    """The calls with gradients of all candidates that have some."""
    calls = {}
    for candidate in found.candidates:
        call = to_backward(candidate)
        try:
            call()
        except Exception as error:  # whatever the code raises
            found.skipped.append(f"gradients of {candidate.name}: {say_failure(error)}")
        else:
            calls[candidate.name] = call
    return calls


def _add_compiled(
    found: Found, hand: Hand | None, wishes: Wishes, backward: dict[str, Callable[[], Any]]
) -> dict[str, float]:
    """Add what torch.compile makes of the generated function and of code by hand; the seconds."""
    count = 1 if hand is None else 2
    sources = found.candidates[:count]
    made, seconds, skipped = find_compiled(sources, wishes.dtype, backward)
    by_name = {each.name: each for each in made}
    for source in sources:
        candidate = by_name.get(to_compiled_name(source.name))
        if candidate is not None and source.name in backward:
            backward[candidate.name] = to_backward(candidate)
    found.candidates.extend(made)
    found.skipped.extend(skipped)
    return seconds
