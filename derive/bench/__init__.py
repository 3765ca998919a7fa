"""Measuring: the generated function against code by hand and torch.compile.

    derive bench NAME|FILE
    --against FILE.py:FUNCTION      code by hand, or an einsum string; code that gives other values
                                    is refused
    --compile                       torch.compile of both
    --backward                      with gradients
    --dtype float32|float64, --threads N, --runs N

Seconds are medians over interleaved runs. Memory is measured in a child process. A ratio of medians
from one run means something on a busy machine; a time alone does not.

Modules
    candidates  the generated function, code by hand, torch.compile of both
    timing      medians, memory
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from derive.bench import timing
from derive.bench.candidates import (
    compile_candidate,
    compile_quietly,
    draw_moderate,
    find_candidates,
    load_hand,
)
from derive.compiler import build_file
from derive.errors import refuse
from derive.judge.samples import is_possible
from derive.libraries import torch
from derive.options import NONE, Options

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from derive.bench.timing import Candidate
    from derive.compiler import Built
    from derive.notation.formula import Formula

RUNS = 7
DTYPES = ("float32", "float64")


@dataclass(frozen=True, slots=True)
class Row:
    """One way to compute the formula: median seconds, bytes beyond the inputs."""

    name: str
    forward: float
    peak_bytes: int | None = None
    backward: float | None = None  # forward and backward together
    backward_peak_bytes: int | None = None  # forward and backward together

    def to_data(self, first: Row) -> dict[str, Any]:
        """The row for JSON; `ratio` and `backward_ratio` are its times over those of `first`."""
        ratio = self.backward / first.backward if self.backward and first.backward else None
        return {**asdict(self), "ratio": self.forward / first.forward, "backward_ratio": ratio}


@dataclass(frozen=True)
class Report:
    """One formula at one choice of sizes: the generated function in the first row."""

    name: str
    sizes: Mapping[str, int]
    dtype: str
    threads: int
    flops: int  # operations of the plan
    rows: tuple[Row, ...]
    skipped: tuple[str, ...] = ()  # what is not measured, and why

    def to_data(self) -> dict[str, Any]:
        """The report for JSON; times in seconds."""
        rows = [row.to_data(self.rows[0]) for row in self.rows]
        return {**vars(self), "sizes": dict(self.sizes), "rows": rows}


def bench(  # noqa: PLR0913 - the options, by name
    formula: Formula,
    against: str = "",
    *,
    name: str | None = None,
    options: Options = NONE,
    backward: bool = False,
    compiled: bool = False,
    threads: int = 1,
    runs: int = RUNS,
    dtype: str = "float32",
) -> Report:
    """The generated function timed against code by hand (`against`, FILE.py:FUNCTION).

    Values are compared and memory is measured on one thread. Raises DeriveError for code that gives
    other values.
    """
    built = _build(formula, options, name, dtype)
    hand = load_hand(against, built.system) if against else None
    inputs = draw_moderate(built.system, built.plan.sizes, getattr(torch, dtype))
    skipped: list[str] = []
    with compile_quietly() if compiled else nullcontext():
        with timing.on_threads(1):
            candidates = find_candidates(built, hand, inputs)
            candidates += _list_compiled(candidates, skipped) if compiled else []
            forward = {each.name: timing.to_forward(each) for each in candidates}
            both = _find_backward(candidates, skipped) if backward else {}
            peaks = {key: timing.find_peak(call) for key, call in forward.items()}
            both_peaks = {key: timing.find_peak(call) for key, call in both.items()}
        with timing.on_threads(threads):
            alone, together = (timing.find_timings(calls, runs) for calls in (forward, both))
    rows = tuple(
        Row(key, seconds, peaks[key], together.get(key), both_peaks.get(key))
        for key, seconds in alone.items()
    )
    flops = built.plan.at_sizes(built.plan.flops)
    return Report(built.name, built.plan.sizes, dtype, threads, flops, rows, tuple(skipped))


def _build(formula: Formula, options: Options, name: str | None, dtype: str) -> Built:
    """The built function; DeriveError for sizes that are impossible or need too much memory."""
    if dtype not in DTYPES:
        says, facts = f"{dtype} is no type that is measured", [f"the types are {', '.join(DTYPES)}"]
        raise refuse("bench-dtype", says, facts=facts)
    built = build_file(formula, options, name)
    if not is_possible(built.system, built.plan.sizes):
        at = ", ".join(f"{size}={number}" for size, number in built.plan.sizes.items())
        raise refuse(
            "sizes-impossible",
            f"{built.name} has no meaning at {at}",
            facts=("an extent is negative or no whole number, or a place is outside",),
            help="give other sizes with --sizes",
        )
    timing.refuse_too_large(built, getattr(torch, dtype).itemsize)
    return built


def _list_compiled(candidates: Sequence[Candidate], skipped: list[str]) -> list[Candidate]:
    """The candidates under torch.compile; those that do not compile are told in `skipped`."""
    made = []
    for each in candidates:
        try:
            made.append(compile_candidate(each))
        except Exception as error:  # no compiler, or code that it cannot compile
            skipped.append(f"{each.name}, compiled: {timing.say_failure(error)}")
    return made


def _find_backward(
    candidates: Sequence[Candidate], skipped: list[str]
) -> dict[str, Callable[[], Any]]:
    """The calls with gradients, by candidate; those that raise are told in `skipped`."""
    calls = {}
    for each in candidates:
        call = timing.to_backward(each)
        try:
            call()
        except Exception as error:  # whatever the code raises
            skipped.append(f"gradients of {each.name}: {timing.say_failure(error)}")
        else:
            calls[each.name] = call
    return calls
