"""What was measured, as data: one table of rows for each number of threads."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.bench.roofline import Roofline


@dataclass(frozen=True, slots=True)
class Row:
    """One way to compute the formula: median seconds, bytes beyond the inputs."""

    name: str
    forward: float
    backward: float | None = None  # forward and backward together
    peak: int | None = None
    backward_peak: int | None = None  # of forward and backward together


@dataclass(frozen=True)
class Table:
    """The rows on so many threads, the generated function first, and the machine's limit."""

    threads: int
    rows: tuple[Row, ...]
    roofline: Roofline
    flops: int
    moved: int  # bytes of the inputs and the results, each once

    @property
    def bound(self) -> float:
        """Seconds at the least for the operations and the moved bytes, estimated."""
        return self.roofline.find_seconds(self.flops, self.moved)

    def find_ratio(self, row: Row) -> float:
        """How many times the generated function's time a row takes, forward."""
        return row.forward / self.rows[0].forward

    def find_backward_ratio(self, row: Row) -> float | None:
        """The same with gradients; None where one of the two has none."""
        first = self.rows[0].backward
        return None if row.backward is None or first is None else row.backward / first

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
                    "name": row.name,
                    "forward": row.forward,
                    "ratio": self.find_ratio(row),
                    "peak_bytes": row.peak,
                    "backward": row.backward,
                    "backward_ratio": self.find_backward_ratio(row),
                    "backward_peak_bytes": row.backward_peak,
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
    skipped: tuple[str, ...] = ()  # what was left out and why

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
