"""The output of the verbs: lines, tables, diagnostics, JSON; plain text outside a terminal.

A cell may have several lines. On a terminal rich lays tables out and colours them; into a pipe go
aligned columns, no frame and no escape code, the same bytes on every machine.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from derive.backend import to_data
from derive.errors import Diagnostic
from derive.options import Options, to_word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rich.console import Console

    from derive.compiler import Built
    from derive.plan.plan import Plan

Item = TypeVar("Item")

GAP = "  "
VERSION = 1  # of the JSON: keys may be added, none is removed or changes its meaning
_FORCED = {"FORCE_COLOR", "TTY_COMPATIBLE"}  # with these rich treats a pipe as a terminal


@contextmanager
def show_progress(title: str) -> Iterator[Callable[[str], None]]:
    """Progress on standard error, where that is a terminal: the current stage."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    # No thread refreshes it, because the process forks meanwhile.
    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield lambda says: live.update(Text(f"{title}\n  now: {says}"), refresh=True)


def print_line(text: str = "", style: str = "") -> None:
    """One line, or several, as they are; `style` is rich's, for terminals."""
    console = _find_console(sys.stdout)
    if console is None:
        print(text)
        return
    from rich.text import Text

    console.print(Text(text, style=style), soft_wrap=True)


def print_heading(text: str) -> None:
    """A line over what follows."""
    print_line(text, "bold")


def print_json(value: Any) -> None:
    """The value as JSON; each top-level object has the version of its keys."""
    if isinstance(value, dict):
        value = {"version": VERSION, **value}
    elif isinstance(value, list):
        value = [{"version": VERSION, **e} if isinstance(e, dict) else e for e in value]
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_diagnostic(diagnostic: Diagnostic) -> None:
    """A refusal on standard error."""
    text = str(diagnostic)
    console = _find_console(sys.stderr)
    if console is None:
        print(text, file=sys.stderr)
        return
    from rich.text import Text

    shown = Text(text)
    shown.stylize("bold red", 0, len(diagnostic.code) + 1)
    shown.highlight_regex(r"(?m)^ *\^+$", "red")
    shown.highlight_regex(r"(?m)^  help:", "bold green")
    console.print(shown, soft_wrap=True)


def print_text(text: str, style: str = "") -> None:
    """A sentence, set in."""
    print_line(f"{GAP}{text}" if text else "", style)


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: str = "") -> None:
    """A table; `numbers` names the columns, parted by blanks, that are set to the right."""
    rows = [tuple(row) for row in rows]
    right = [head in numbers.split() for head in heads]
    console = _find_console(sys.stdout)
    if console is None:
        print(to_columns([tuple(heads), *rows], right))
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    gap = (0, len(GAP) - 1, 0, 0)  # and the column's divider, a blank
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=gap, show_edge=False, header_style="bold cyan"
    )
    for head, is_number in zip(heads, right, strict=True):
        table.add_column(Text(head), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Labels with a text beside each."""
    lines = to_columns(pairs, (False, False)).split("\n")
    print_line("\n".join(f"{GAP}{line}" for line in lines))


def to_columns(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """The rows as aligned columns; no line ends in a blank."""
    widths = [
        max((len(line) for cell in column for line in cell.split("\n")), default=0)
        for column in zip(*rows, strict=True)
    ]
    return "\n".join(line for row in rows for line in _align(row, widths, right))


def track(items: Sequence[Item], label: str) -> Iterator[Item]:
    """The items one after the other, with a progress bar on a terminal where they are many."""
    console = _find_console(sys.stderr)
    if console is None or len(items) < 2:
        yield from items
        return
    from rich.progress import track as track_on_terminal

    yield from track_on_terminal(items, label, console=console, transient=True)


def to_time(seconds: float) -> str:
    """A time with three digits: 1.23 ms."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def to_ratio(ratio: float) -> str:
    """A ratio with two digits behind the point, or more where that would leave but one: 0.0034."""
    return f"{ratio:.2f}" if ratio >= 0.1 or not ratio else f"{ratio:.2g}"


def _align(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    """The lines of one row."""
    for parts in zip_longest(*(cell.split("\n") for cell in row), fillvalue=""):
        placed = (
            part.rjust(width) if is_number else part.ljust(width)
            for part, width, is_number in zip(parts, widths, right, strict=True)
        )
        yield GAP.join(placed).rstrip()


def _find_console(stream: TextIO) -> Console | None:
    """The terminal behind a stream; None for a pipe, a file, or a terminal that cannot do more."""
    if not _FORCED & os.environ.keys() and (stream.closed or not stream.isatty()):
        return None  # as rich would find, which need not be loaded for it
    from rich.console import Console

    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    return console if console.is_terminal and not console.is_dumb_terminal else None


SOURCES = {"given": "", "typical": " (typical)", "default": " (default)"}


def print_roles(data: Sequence[to_data.Data]) -> None:
    """A row for each index."""
    heads = to_data.ROLE_HEADS
    if data:
        print_table(heads, to_data.to_role_rows(data), "number")


def print_steps(data: to_data.Data) -> None:
    """The steps in order: einsum strings, shape, operations at the plan's sizes."""
    heads = to_data.STEP_HEADS
    print_table(heads, to_data.to_step_rows(data), "flops")


def print_costs(data: to_data.Data, plan: Plan) -> None:
    """Operations and memory over sizes, and as numbers; what is done block by block."""
    if data["sizes"]:
        print_line(f"at {say_at(data['sizes'])}:")
    print_pairs(to_data.to_cost_pairs(data, plan))


def say_at(sizes: Mapping[str, int]) -> str:
    """`N=64 D=64`."""
    return to_word(sizes).replace(",", " ")


def say_sizes(built: Built, options: Options) -> str:
    """`at N=64 D=64 (default; choose with --sizes)`: the sizes, and who chose them."""
    groups: dict[str, dict[str, int]] = {source: {} for source in SOURCES}
    for name, number in built.plan.sizes.items():
        source = "typical" if name in built.formula.typical else "default"
        groups["given" if name in options.sizes else source][name] = number
    parts = [f"{say_at(sizes)}{SOURCES[source]}" for source, sizes in groups.items() if sizes]
    if not parts:
        return ""
    parts[-1] = parts[-1].replace(")", "; choose with --sizes)")
    return f"at {', '.join(parts)}"
