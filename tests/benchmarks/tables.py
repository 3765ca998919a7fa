"""The rows as a table on the screen and as one in markdown, and the middle of each column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import geometric_mean, median

from rich.table import Table

from tests.benchmarks.run import Pair, Row

HEADS = (
    "formula",
    "sizes",
    "generated ms",
    "by hand ms",
    "forward",
    "forward + backward",
    "memory",
    "x roofline",
)
LEAST = 0.95  # a ratio below is a loss, not the noise of a shared machine
NUMBERS = 2  # columns from here on stand at the right


def to_table(rows: Sequence[Row]) -> Table:
    """The table for the screen."""
    table = Table(title="by hand / generated: times faster, times less memory")
    for place, head in enumerate(HEADS):
        table.add_column(head, justify="left" if place < NUMBERS else "right", no_wrap=True)
    for row in rows:
        table.add_row(*_to_cells(row))
    table.add_section()
    for line in _to_middles(rows):
        table.add_row(*line)
    return table


def to_markdown(rows: Sequence[Row]) -> str:
    """The same table in markdown."""
    rule = ["---"] * NUMBERS + ["---:"] * (len(HEADS) - NUMBERS)
    lines = (HEADS, rule, *map(_to_cells, rows), *_to_middles(rows))
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _to_cells(row: Row) -> tuple[str, ...]:
    return (
        row.case.name,
        row.case.title,
        f"{row.forward.generated * 1e3:.3g}",
        f"{row.forward.by_hand * 1e3:.3g}",
        _to_ratio(row.forward),
        _to_ratio(row.backward),
        _to_ratio(row.peak),
        f"{row.times_bound:.1f}",
    )


def _to_ratio(pair: Pair | None) -> str:
    return f"{pair.ratio:.2f}" if pair else "-"


def _to_middles(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The last lines: the middle of each ratio over the rows that have it, and how many lose."""
    return [
        _to_middle("geometric mean", geometric_mean, rows),
        _to_middle("median", median, rows),
        (f"below {LEAST}", "", "", "", *map(_count_below, _to_columns(rows)), ""),
    ]


def _to_columns(rows: Sequence[Row]) -> tuple[list[float], ...]:
    """The three ratios, each of the rows that have it."""
    return (
        [row.forward.ratio for row in rows],
        [row.backward.ratio for row in rows if row.backward],
        [row.peak.ratio for row in rows if row.peak],
    )


def _count_below(column: Sequence[float]) -> str:
    return str(sum(ratio < LEAST for ratio in column)) if column else "-"


def _to_middle(
    name: str, find: Callable[[list[float]], float], rows: Sequence[Row]
) -> tuple[str, ...]:
    middles = [f"{find(column):.2f}" if column else "-" for column in _to_columns(rows)]
    bound = find([row.times_bound for row in rows])
    return (name, "", "", "", *middles, f"{bound:.1f}")
