"""`derive bench`: the generated function against code by hand, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.bench import bench
from derive.cli.step_table import to_bytes
from derive.cli.tables import print_json, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.bench import Report
    from derive.cli.formulas import Found


def print_bench(  # noqa: PLR0913 - one for each option
    found: Found,
    against: str,
    sizes: Mapping[str, int],
    *,
    backward: bool,
    threads: int,
    runs: int,
    as_json: bool,
) -> None:
    """Measure, and print what was found."""
    report = bench(
        found.formula,
        against,
        sizes,
        name=found.name,
        backward=backward,
        threads=threads,
        runs=runs,
    )
    if as_json:
        print_json(report.to_data())
        return
    _print_table(report)


def _print_table(report: Report) -> None:
    at = " ".join(f"{name}={number}" for name, number in report.sizes.items())
    threads = "1 thread" if report.threads == 1 else f"{report.threads} threads"
    print_line(f"{report.name} at {at}, float32, {threads}")
    rows = [
        (
            row.name,
            to_time(row.forward),
            f"{report.find_ratio(row):.2f}",
            "" if row.backward is None else to_time(row.backward),
            "" if row.peak is None else to_bytes(row.peak),
        )
        for row in report.rows
    ]
    print_table(("", "forward", "ratio", "and backward", "memory"), rows, numbers="ratio")
    rate, width = report.roofline.flops / 1e9, report.roofline.bytes / 1e9
    share = report.rows[0].forward / report.bound
    print_line(
        f"this machine: {rate:.0f} GFLOP/s, {width:.1f} GB/s; its limit here is "
        f"{to_time(report.bound)}, the generated function takes {share:.1f} times that"
    )
    for reason in report.skipped:
        print_line(f"  without {reason}", "dim")


def to_time(seconds: float) -> str:
    """A time with three digits: 1.23 ms."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
