"""Several values of one size: how the seconds grow, as lines and as slopes.

On logarithmic scales a time that grows like n**k is a straight line of slope k.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum, log
from statistics import median
from typing import TYPE_CHECKING, Any

from derive.bench.measure import Roofline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from derive.bench.run import Report, Table

BOUND = "estimated limit"
TITLES = {"forward": "forward", "backward": "forward and backward"}
KINDS = tuple(TITLES)


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
        return KINDS if any(row.backward is not None for row in rows) else KINDS[:1]

    @property
    def others(self) -> dict[str, int]:
        """The sizes that stay what they are."""
        sizes = self.reports[0].sizes
        return {name: number for name, number in sizes.items() if name != self.over.size}

    def find_lines(self, threads: int, kind: str) -> tuple[Line, ...]:
        """A line for each candidate, and forward the limit of the machine."""
        tables = [_find_table(report, threads) for report in self.reports]
        names = dict.fromkeys(row.name for table in tables for row in table.rows)
        found = [[_find_seconds(table, name, kind) for table in tables] for name in names]
        lines = [self._to_line(*pair) for pair in zip(names, found, strict=True) if any(pair[1])]
        if kind == KINDS[0]:
            limit = _find_middle([table.roofline for table in tables])
            bounds = [limit.find_seconds(table.flops, table.moved) for table in tables]
            lines.append(self._to_line(BOUND, bounds))
        return tuple(lines)

    def _to_line(self, name: str, seconds: Sequence[float | None]) -> Line:
        return Line(name, tuple(seconds), fit_slope(self.over.values, seconds))

    def find_skipped(self) -> Iterator[str]:
        """What was left out, with the values where that is not all of them."""
        reasons = dict.fromkeys(reason for report in self.reports for reason in report.skipped)
        pairs = list(zip(self.over.values, self.reports, strict=True))
        for reason in reasons:
            at = [value for value, report in pairs if reason in report.skipped]
            shown = ", ".join(map(str, at))
            yield reason if len(at) == len(pairs) else f"{reason}, at {self.over.size}={shown}"

    def to_data(self) -> dict[str, Any]:
        """The sweep for JSON: lines with their slopes, and each report."""
        return {
            "name": self.reports[0].name,
            "over": self.over.size,
            "values": list(self.over.values),
            "sizes": self.others,
            "dtype": self.reports[0].dtype,
            "lines": [
                {
                    "threads": threads,
                    "kind": kind,
                    "name": line.name,
                    "seconds": list(line.seconds),
                    "slope": line.slope,
                }
                for threads in self.threads
                for kind in self.kinds
                for line in self.find_lines(threads, kind)
            ],
            "reports": [report.to_data() for report in self.reports],
        }


def _find_table(report: Report, threads: int) -> Table:
    return next(table for table in report.tables if table.threads == threads)


def _find_middle(rooflines: Sequence[Roofline]) -> Roofline:
    """One limit for all values: the medians of what was measured beside each."""
    return Roofline(median(r.flops for r in rooflines), median(r.bytes for r in rooflines))


def _find_seconds(table: Table, name: str, kind: str) -> float | None:
    row = next((row for row in table.rows if row.name == name), None)
    if row is None:
        return None
    return row.forward if kind == KINDS[0] else row.backward


def fit_slope(values: Sequence[int], seconds: Sequence[float | None]) -> float | None:
    """The slope of the straight line nearest to the points on logarithmic scales (least squares).

    None for fewer than two points.
    """
    points = [(log(n), log(s)) for n, s in zip(values, seconds, strict=True) if s is not None]
    if len(points) < 2:
        return None
    middle = fsum(x for x, _ in points) / len(points)
    height = fsum(y for _, y in points) / len(points)
    spread = fsum((x - middle) ** 2 for x, _ in points)
    return fsum((x - middle) * (y - height) for x, y in points) / spread
