"""`derive bench`: the measured seconds and bytes, as a table or as data."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from derive.bench import bench
from derive.cli import formulas, tables
from derive.plan.machine import to_bytes

if TYPE_CHECKING:
    from derive.cli.options import Timed
    from derive.options import Options

# The columns of a table: the head, the key in its data, and the format of a value.
COLUMNS = (
    ("", "name", str),
    ("forward", "forward", tables.to_time),
    ("ratio", "ratio", tables.to_ratio),
    ("memory", "peak_bytes", to_bytes),
)
BACKWARD = (
    ("and backward", "backward", tables.to_time),
    ("ratio", "backward_ratio", tables.to_ratio),
    ("memory", "backward_peak_bytes", to_bytes),
)
CAPTION = "ratio: the time over that of the generated function; memory: beyond the inputs"
BACKWARD_CAPTION = "and backward: forward and gradients by all real inputs together"


def print_bench(where: str, options: Options, timed: Timed, as_json: bool) -> None:
    """Measure the named formula, and print the report."""
    found = formulas.find_one(where)
    report = bench(found.formula, name=found.name, options=options, **asdict(timed))
    data = report.to_data()
    if as_json:
        tables.print_json(data)
        return
    at = f" at {tables.say_at(report.sizes)}" if report.sizes else ""
    threads = "1 thread" if report.threads == 1 else f"{report.threads} threads"
    print(f"{report.name}{at}, {report.dtype}, {threads}")
    columns = COLUMNS + (BACKWARD if timed.backward else ())
    cells = [
        ["" if r[key] is None else say(r[key]) for _, key, say in columns] for r in data["rows"]
    ]
    tables.print_table([head for head, *_ in columns], cells, numbers="ratio")
    for line in (CAPTION, *((BACKWARD_CAPTION,) if timed.backward else ())):
        tables.print_text(line)
    for reason in report.skipped:
        print(f"  without {reason}")
