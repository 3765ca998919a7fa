"""The output of the verbs: lines, tables with cells of several lines, JSON; without colours."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

from derive.backend import to_data
from derive.options import Options, to_word

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from derive.compiler import Built
    from derive.plan.plan import Plan

Item = TypeVar("Item")

GAP = "  "
VERSION = 1  # version of the JSON: keys may be added, none is removed or changes its meaning
_CLEARED = "\r\x1b[K"  # the start of the line, which becomes empty


@contextmanager
def show_progress(title: str) -> Iterator[Callable[[str], None]]:
    """Within the context: a function that shows the stage on standard error if a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    try:
        yield lambda says: print(f"{_CLEARED}{title}: {says}", end="", file=sys.stderr, flush=True)
    finally:
        print(_CLEARED, end="", file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Print a value as JSON; each top-level object has the version of its keys."""
    if isinstance(value, dict):
        value = {"version": VERSION, **value}
    elif isinstance(value, list):
        value = [{"version": VERSION, **e} if isinstance(e, dict) else e for e in value]
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_text(text: str) -> None:
    """Print a sentence, indented."""
    print(f"{GAP}{text}" if text else "")


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: str = "") -> None:
    """Print a table; `numbers` names the right-aligned columns, separated by blanks."""
    right = [head in numbers.split() for head in heads]
    print(to_columns([tuple(heads), *rows], right))


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print pairs of a label and a text, a line each."""
    lines = to_columns(pairs, (False, False)).split("\n")
    print("\n".join(f"{GAP}{line}" for line in lines))


def to_columns(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """The rows as aligned columns; no line ends in a blank."""
    widths = [
        max((len(line) for cell in column for line in cell.split("\n")), default=0)
        for column in zip(*rows, strict=True)
    ]
    return "\n".join(line for row in rows for line in _align(row, widths, right))


def track(items: Sequence[Item], label: str) -> Iterator[Item]:
    """Yield the items one by one; on a terminal, show the number of several items."""
    with show_progress(label) as show:
        for number, item in enumerate(items, 1):
            if len(items) > 1:
                show(f"{number} of {len(items)}")
            yield item


def to_time(seconds: float) -> str:
    """A time with three digits: 1.23 ms."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def to_ratio(ratio: float) -> str:
    """A ratio with two decimals, or with two significant digits if it is below 0.1: 0.0034."""
    return f"{ratio:.2f}" if ratio >= 0.1 or not ratio else f"{ratio:.2g}"


def _align(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    """The lines of one row."""
    for parts in zip_longest(*(cell.split("\n") for cell in row), fillvalue=""):
        placed = (
            part.rjust(width) if is_number else part.ljust(width)
            for part, width, is_number in zip(parts, widths, right, strict=True)
        )
        yield GAP.join(placed).rstrip()


SOURCES = {"given": "", "typical": " (typical)", "default": " (default)"}


def print_roles(data: Sequence[to_data.Data]) -> None:
    """Print a row for each index."""
    heads = to_data.ROLE_HEADS
    if data:
        print_table(heads, to_data.to_role_rows(data), "number")


def print_steps(data: to_data.Data) -> None:
    """Print the steps in order: einsum strings, shape, operations at the plan's sizes."""
    heads = to_data.STEP_HEADS
    print_table(heads, to_data.to_step_rows(data), "flops")


def print_costs(data: to_data.Data, plan: Plan) -> None:
    """Print operations and memory as polynomials in sizes and as numbers, and the blocks."""
    if data["sizes"]:
        print(f"at {say_at(data['sizes'])}:")
    print_pairs(to_data.to_cost_pairs(data, plan))


def say_at(sizes: Mapping[str, int]) -> str:
    """The sizes as text: `N=64 D=64`."""
    return to_word(sizes).replace(",", " ")


def say_sizes(built: Built, options: Options) -> str:
    """The sizes with their source, `at N=64 (default; choose with --sizes)`; "" without any."""
    groups: dict[str, dict[str, int]] = {source: {} for source in SOURCES}
    for name, number in built.plan.sizes.items():
        source = "typical" if name in built.formula.typical else "default"
        groups["given" if name in options.sizes else source][name] = number
    parts = [f"{say_at(sizes)}{SOURCES[source]}" for source, sizes in groups.items() if sizes]
    if not parts:
        return ""
    parts[-1] = parts[-1].replace(")", "; choose with --sizes)")
    return f"at {', '.join(parts)}"
