"""Format rows as a screen table and as Markdown, with means and medians of the columns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median

from rich.table import Table

from tests.benchmarks.run import Pair, Row

LEAST = 0.95  # a ratio below is a loss, not the noise of a shared machine
NUMBERS = 2  # index of the first right-aligned column


@dataclass(frozen=True)
class Column:
    """A column: its head, the number that a row has in it, and the format of the number.

    Below a column of ratios are the means and the number of losses.
    """

    head: str
    find: Callable[[Row], float | None]
    form: str = ".3g"
    is_ratio: bool = False

    def format_number(self, number: float | None) -> str:
        """Format a number, or a dash for None."""
        return "-" if number is None else format(number, self.form)


def find_ratio(name: str) -> Callable[[Row], float | None]:
    """Return a function that reads the ratio of the pair of that name from a row."""

    def read_ratio(row: Row) -> float | None:
        pair: Pair | None = getattr(row, name)
        return pair and pair.ratio

    return read_ratio


TIMES = (
    Column("generated ms", lambda row: row.forward.generated * 1e3),
    Column("by hand ms", lambda row: row.forward.by_hand * 1e3),
    Column("forward", find_ratio("forward"), ".2f", True),
)
USUAL = (*TIMES, Column("memory", find_ratio("peak"), ".2f", True))
TRAINED = (
    *TIMES,
    Column("autograd", find_ratio("autograd"), ".2f", True),
    Column("memory", find_ratio("autograd_peak"), ".2f", True),
    Column("--backward", find_ratio("backward"), ".2f", True),
    Column("memory", find_ratio("backward_peak"), ".2f", True),
)


def to_table(rows: Sequence[Row], columns: Sequence[Column] = USUAL) -> Table:
    """Format the rows as a table for the screen."""
    table = Table(title="by hand / generated: times faster, times less memory")
    for place, head in enumerate(_list_heads(columns)):
        is_number = place >= NUMBERS
        table.add_column(head, justify="right" if is_number else "left", no_wrap=not is_number)
    for row in rows:
        table.add_row(*_to_cells(row, columns))
    table.add_section()
    for line in _to_middles(rows, columns):
        table.add_row(*line)
    return table


def to_markdown(rows: Sequence[Row], columns: Sequence[Column] = USUAL) -> str:
    """Format the rows as a Markdown table."""
    heads = _list_heads(columns)
    rule = ["---"] * NUMBERS + ["---:"] * (len(heads) - NUMBERS)
    cells = [_to_cells(row, columns) for row in rows]
    lines = (heads, rule, *cells, *_to_middles(rows, columns))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _list_heads(columns: Sequence[Column]) -> tuple[str, ...]:
    return ("formula", "sizes", *(column.head for column in columns))


def _to_cells(row: Row, columns: Sequence[Column]) -> tuple[str, ...]:
    numbers = (column.format_number(column.find(row)) for column in columns)
    return (row.case.name, row.case.title, *numbers)


def _to_middles(rows: Sequence[Row], columns: Sequence[Column]) -> list[tuple[str, ...]]:
    """The last lines: geometric mean, median and number of losses of each ratio."""
    lines: list[list[str]] = [["geometric mean", ""], ["median", ""], [f"below {LEAST}", ""]]
    for column in columns:
        found = [number for row in rows if (number := column.find(row)) is not None]
        cells = [
            column.format_number(find(found) if found else None)
            for find in (geometric_mean, median)
        ]
        cells.append(str(sum(ratio < LEAST for ratio in found)) if found else "-")
        for line, cell in zip(lines, cells if column.is_ratio else [""] * 3, strict=True):
            line.append(cell)
    return [tuple(line) for line in lines]
