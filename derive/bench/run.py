"""One choice of sizes, or several values of one size, measured: rows, tables and lines as data.

Values and memory are looked at on one thread; both are the same on any number of them. Inputs are
of the order that they have in a network: sums over many normal numbers grow, and exponentials of
logits far below the largest are numbers so small that a processor multiplies them many times
slower than others. On logarithmic scales a time that grows like n**k is a straight line of slope k.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from math import log
from statistics import linear_regression, median
from typing import TYPE_CHECKING, Any

from derive.bench import timing
from derive.bench.candidates import find_candidates, find_compiled, quietly, to_compiled_name
from derive.errors import refuse
from derive.judge.samples import draw_inputs
from derive.libraries import torch
from derive.options import NONE, Options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from derive.bench.candidates import Found, Hand
    from derive.compiler import Built
    from derive.ir import nodes as ir

    Calls = Mapping[str, Callable[[], Any]]


RUNS = 7
DTYPES = ("float32", "bfloat16", "float64")
BOUND = "estimated limit"
TITLES = {"forward": "forward", "backward": "forward and backward"}  # the kinds of seconds in a row


@dataclass(frozen=True, slots=True)
class Row:
    """One way to compute the formula: median seconds, bytes beyond the inputs."""

    name: str
    forward: float
    backward: float | None = None  # forward and backward together
    peak_bytes: int | None = None
    backward_peak_bytes: int | None = None  # forward and backward together


@dataclass(frozen=True)
class Table:
    """The rows on so many threads, the generated function first, and the machine's limit."""

    threads: int
    rows: tuple[Row, ...]
    roofline: timing.Roofline
    flops: int
    moved: int  # bytes of the inputs and the results, each once

    @property
    def bound(self) -> float:
        """Seconds at the least for the operations and the moved bytes, estimated."""
        return self.roofline.find_seconds(self.flops, self.moved)

    def find_ratio(self, row: Row, kind: str = "forward") -> float | None:
        """The ratio of a row's time to the generated function's; None where one is missing."""
        own, first = getattr(row, kind), getattr(self.rows[0], kind)
        return None if own is None or first is None else own / first

    def to_data(self) -> dict[str, Any]:
        """The table for JSON; times in seconds."""
        return {
            "threads": self.threads,
            "roofline": {
                "flops_per_second": self.roofline.flops,
                "bytes_per_second": self.roofline.bytes,
                "flops": self.flops,
                "bytes": self.moved,
                "seconds": self.bound,
            },
            "rows": [
                {
                    **asdict(row),
                    "ratio": self.find_ratio(row),
                    "backward_ratio": self.find_ratio(row, "backward"),
                }
                for row in self.rows
            ],
        }


@dataclass(frozen=True)
class Report:
    """One formula at one choice of sizes."""

    name: str
    sizes: Mapping[str, int]
    dtype: str
    tables: tuple[Table, ...]
    compiling: Mapping[str, float] = field(default_factory=dict)  # seconds, in no row's time
    skipped: tuple[str, ...] = ()  # omitted candidates, and why

    def to_data(self) -> dict[str, Any]:
        """The report for JSON."""
        return {
            "name": self.name,
            "sizes": dict(self.sizes),
            "dtype": self.dtype,
            "tables": [table.to_data() for table in self.tables],
            "compile_seconds": dict(self.compiling),
            "skipped": list(self.skipped),
        }


@dataclass(frozen=True, slots=True)
class Over:
    """A size and its values, from small to large."""

    size: str
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds of one candidate at each value; None where it was left out."""

    name: str
    seconds: tuple[float | None, ...]
    slope: float | None


@dataclass(frozen=True)
class Sweep:
    """A report for each value of a size."""

    over: Over
    reports: tuple[Report, ...]
    is_one_text: bool = True  # is the generated function the same at all values?

    @property
    def threads(self) -> tuple[int, ...]:
        """The numbers of threads, which each report has a table for."""
        return tuple(table.threads for table in self.reports[0].tables)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Forward, and backward where some row has gradients."""
        rows = [row for report in self.reports for table in report.tables for row in table.rows]
        return tuple(k for k in TITLES if any(getattr(row, k) is not None for row in rows))

    @property
    def others(self) -> dict[str, int]:
        """The sizes that stay what they are."""
        sizes = self.reports[0].sizes
        return {name: number for name, number in sizes.items() if name != self.over.size}

    def find_lines(self, threads: int, kind: str) -> tuple[Line, ...]:
        """A line for each candidate, and forward the limit of the machine."""
        tables = [report.tables[self.threads.index(threads)] for report in self.reports]
        found: dict[str, list[float | None]] = {}
        for place, table in enumerate(tables):
            for row in table.rows:
                seconds = found.setdefault(row.name, [None] * len(tables))
                seconds[place] = getattr(row, kind)
        found = {name: seconds for name, seconds in found.items() if any(seconds)}
        if kind == "forward":  # one limit for all values, from the medians of the rates
            limits = [table.roofline for table in tables]
            limit = timing.Roofline(
                median(r.flops for r in limits), median(r.bytes for r in limits)
            )
            found[BOUND] = [limit.find_seconds(table.flops, table.moved) for table in tables]
        values = self.over.values
        return tuple(Line(n, tuple(each), fit_slope(values, each)) for n, each in found.items())

    def find_skipped(self) -> Iterator[str]:
        """The omitted candidates, with the values at which they were omitted."""
        reasons = dict.fromkeys(reason for report in self.reports for reason in report.skipped)
        pairs = list(zip(self.over.values, self.reports, strict=True))
        for reason in reasons:
            at = [str(value) for value, report in pairs if reason in report.skipped]
            is_all = len(at) == len(pairs)
            yield reason if is_all else f"{reason}, at {self.over.size}={', '.join(at)}"

    def to_data(self) -> dict[str, Any]:
        """The sweep for JSON: lines with their slopes, and each report."""
        return {
            "name": self.reports[0].name,
            "over": self.over.size,
            "values": list(self.over.values),
            "sizes": self.others,
            "dtype": self.reports[0].dtype,
            "lines": [
                {"threads": threads, "kind": kind, **asdict(line)}
                for threads in self.threads
                for kind in self.kinds
                for line in self.find_lines(threads, kind)
            ],
            "reports": [report.to_data() for report in self.reports],
        }


def fit_slope(values: Sequence[int], seconds: Sequence[float | None]) -> float | None:
    """The slope of the straight line nearest to the points on logarithmic scales.

    None for fewer than two points.
    """
    points = [(log(n), log(s)) for n, s in zip(values, seconds, strict=True) if s is not None]
    return linear_regression(*zip(*points, strict=True)).slope if len(points) > 1 else None


def draw_moderate(system: ir.System, sizes: Mapping[str, int], dtype: Any) -> dict[str, Any]:
    """Random inputs by name; a real tensor without a domain is scaled by its last extent ** -1/4.

    A product of two of them over that extent is then of order 1.
    """
    drawn = draw_inputs(system, sizes, seed=0, dtype=dtype)
    for entry in system.inputs:
        is_free = getattr(entry, "lower", None) is getattr(entry, "upper", None) is None
        if getattr(entry, "kind", "") == "real" and is_free and getattr(entry, "shape", ()):
            value = drawn[entry.name]
            drawn[entry.name] = value * max(1, value.shape[-1]) ** -0.25
    return drawn


@dataclass(frozen=True, slots=True)
class Wishes:
    """The settings of the measurements."""

    backward: bool = False  # gradients by every real input too
    compiled: bool = False  # torch.compile too
    threads: tuple[int, ...] = (1,)  # a table for each
    runs: int = RUNS
    dtype: str = "float32"
    options: Options = NONE


def find_dtype(name: str) -> Any:
    """The type of torch that has this name; DeriveError for one that is not measured."""
    if name not in DTYPES:
        raise refuse(
            "bench-dtype",
            f"{name} is no type that is measured",
            facts=(f"the types are {', '.join(DTYPES)}",),
        )
    return getattr(torch, name)


def measure(built: Built, hand: Hand | None, wishes: Wishes) -> Report:
    """Everything that is wished for; DeriveError for code that gives other values."""
    with timing.on_threads(1):
        found = _find_checked(built, hand, wishes)
        backward = _find_backward(found) if wishes.backward else {}
        compiling = _add_compiled(found, hand, wishes, backward) if wishes.compiled else {}
        forward = {each.name: timing.to_forward(each) for each in found.candidates}
        peaks = {name: timing.find_peak(call) for name, call in forward.items()}
        backward_peaks = {name: timing.find_peak(call) for name, call in backward.items()}
        every = [*peaks.items(), *backward_peaks.items()]
        unknown = dict.fromkeys(name for name, peak in every if peak is None)
        found.skipped += [f"the memory of {name}: {timing.say_no_peak()}" for name in unknown]
    tables = []
    flops, moved = built.plan.at_sizes(built.plan.flops), timing.count_moved(found.candidates[0])
    for threads in wishes.threads:
        with timing.on_threads(threads), quietly() if wishes.compiled else nullcontext():
            alone = timing.find_timings(forward, wishes.runs)
            both = timing.find_timings(backward, wishes.runs)
            roofline = timing.measure_roofline(find_dtype(wishes.dtype))
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
        if threads != 1:  # recompiled
            for name in compiling:
                compiling[name] += sum(of[name].warming for of in (alone, both) if name in of)
        tables.append(Table(threads, rows, roofline, flops, moved))
    skipped = tuple(found.skipped)
    sizes = dict(built.plan.sizes)
    return Report(built.name, sizes, wishes.dtype, tuple(tables), compiling, skipped)


def _find_checked(built: Built, hand: Hand | None, wishes: Wishes) -> Found:
    """The candidates for inputs of the wished type, once they have agreed.

    In bfloat16 rounding hides mistakes, so values are compared in float32 there.
    """
    dtype = find_dtype(wishes.dtype)
    precise = torch.float32 if dtype is torch.bfloat16 else dtype
    inputs = draw_moderate(built.system, built.plan.sizes, precise)
    found = find_candidates(built, hand, inputs, backward=wishes.backward)
    if dtype is precise:
        return found
    inputs = draw_moderate(built.system, built.plan.sizes, dtype)
    return find_candidates(built, hand, inputs, backward=wishes.backward, judge=False)


def _find_backward(found: Found) -> dict[str, Callable[[], Any]]:
    """The calls with gradients of all candidates that have some."""
    calls = {}
    for candidate in found.candidates:
        call = timing.to_backward(candidate)
        try:
            call()
        except Exception as error:  # whatever the code raises
            found.skipped.append(f"gradients of {candidate.name}: {timing.say_failure(error)}")
        else:
            calls[candidate.name] = call
    return calls


def _add_compiled(
    found: Found, hand: Hand | None, wishes: Wishes, backward: dict[str, Callable[[], Any]]
) -> dict[str, float]:
    """Add what torch.compile makes of the generated function and of code by hand; the seconds."""
    sources = found.candidates[: 1 if hand is None else 2]
    made, seconds, skipped = find_compiled(sources, wishes.dtype, backward)
    names = {to_compiled_name(name) for name in backward}
    backward |= {each.name: timing.to_backward(each) for each in made if each.name in names}
    found.candidates.extend(made)
    found.skipped.extend(skipped)
    return seconds
