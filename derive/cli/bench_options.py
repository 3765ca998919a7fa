"""What is given to `derive bench`, read and refused before anything is measured."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from derive.bench.run import Wishes, find_dtype
from derive.bench.sweep import Over
from derive.errors import Mark, refuse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from derive.cli.options import Options
    from derive.errors import DeriveError

MOST_THREADS = 1024
MOST_VALUES = 64
_OVER = re.compile(r"\s*(?P<name>[^\W\d]\w*)\s*=(?P<values>.*)", re.DOTALL)
_RANGE = re.compile(r"\s*(?P<first>[0-9][0-9_]*)\s*\.\.\s*(?P<last>[0-9][0-9_]*)\s*")
_NUMBER = re.compile("[0-9]{1,30}(_[0-9]{1,30}){0,9}")
_TOO_LARGE = 10**18
_HOW = "write --over S=64..1024, which doubles from 64 on, or --over S=64,128,256"


@dataclass(frozen=True, slots=True)
class Order:
    """What is measured, and what becomes of it."""

    against: str
    options: Options
    over: Over | None
    plot: Path | None
    wishes: Wishes

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes that stay what they are."""
        return self.options.sizes


def read_order(
    against: str, options: Options, over: str, plot: Path | None, wishes: Wishes
) -> Order:
    """The order; DeriveError for what cannot be done together or not at all."""
    find_dtype(wishes.dtype)
    values = parse_over(over) if over else None
    if values is not None and values.size in options.sizes:
        raise refuse(
            "sizes-twice",
            f"{values.size} is given with --sizes and with --over",
            help="leave one of them out",
        )
    if plot is not None:
        from derive.bench.plot import check_plot

        if values is None:
            raise refuse("plot-over", "a plot needs a size that grows", help=_HOW)
        check_plot(plot)
    return Order(against, options, values, plot, wishes)


def ask_plan(order: Order, options: Options) -> Order:
    """The order with what is asked of the plan; `--over` alone chooses its size."""
    over = order.over.size if order.over is not None else ""
    sizes = {name: number for name, number in options.sizes.items() if name != over}
    wishes = replace(order.wishes, plan=options.to_arguments())
    return replace(order, options=options.at(sizes), wishes=wishes)


def parse_threads(words: Sequence[str]) -> tuple[int, ...]:
    """`1`, `1,all`, or several of them: each number once, in order; 1 where nothing is said."""
    found = []
    for word in (part.strip() for each in words or ("1",) for part in each.split(",")):
        if word == "all":
            found.append(count_cores())
            continue
        if not re.fullmatch("[0-9]{1,9}", word) or not 1 <= int(word) <= MOST_THREADS:
            raise refuse(
                "threads-form",
                f"{word or 'nothing'} is no number of threads",
                facts=(f"it is from 1 to {MOST_THREADS}, or all for the cores of this machine",),
                help="write --threads 1,all",
            )
        found.append(int(word))
    return tuple(dict.fromkeys(found))


def count_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parse_over(text: str) -> Over:
    """`S=64..1024` or `S=64,128,256`: the size and two values or more, from small to large."""
    found = _OVER.fullmatch(text)
    if found is None:
        raise _refuse(text, "no size stands before =")
    words = found["values"]
    between = _RANGE.fullmatch(words)
    if between is None:
        values = [_read(text, word) for word in words.split(",")]
    else:
        first, last = _read(text, between["first"]), _read(text, between["last"])
        doubled = [first << k for k in range(last.bit_length()) if first << k < last]
        values = [*(doubled or [first]), last]
    if any(one >= other for one, other in pairwise(values)):
        raise _refuse(text, "the values do not grow")
    if not 2 <= len(values) <= MOST_VALUES:
        raise _refuse(text, f"a line has from 2 to {MOST_VALUES} values, not {len(values)}")
    return Over(found["name"], tuple(values))


def _read(text: str, word: str) -> int:
    """One value, a whole number above 0."""
    if not _NUMBER.fullmatch(word.strip()):
        raise _refuse(text, f"{word.strip() or 'nothing'} is no value")
    if not 1 <= int(word) < _TOO_LARGE:
        raise _refuse(text, f"{word.strip()} is no size of anything")
    return int(word)


def _refuse(text: str, says: str) -> DeriveError:
    line = "".join(c if c.isprintable() else " " for c in text)
    return refuse("over-form", says, marks=[Mark(line, 0, len(line))], help=_HOW)
