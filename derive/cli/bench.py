"""`derive bench`: what is given, read and refused before anything is measured; what was found.

A report is data, which --json prints, and the same data as tables.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeAlias

from derive.backend.to_data import Data
from derive.bench import bench, run, sweep
from derive.cli import formulas, tables
from derive.cli.options import ReadWords, Timed, refuse_part
from derive.errors import DeriveError, refuse
from derive.options import Options
from derive.plan.machine import to_bytes

MOST_THREADS = 1024
MOST_VALUES = 64
_OVER = re.compile(r"\s*(?P<name>[^\W\d]\w*)\s*=(?P<values>.*)", re.DOTALL)
_RANGE = re.compile(r"\s*(?P<first>[0-9][0-9_]*)\s*\.\.\s*(?P<last>[0-9][0-9_]*)\s*")
_NUMBER = re.compile("[0-9]{1,30}(_[0-9]{1,30}){0,9}")
_TOO_LARGE = 10**18
_HOW = "write --over S=64..1024, which doubles from 64 on, or --over S=64,128,256"
# The columns of a table: the head, the key in its data, and how a value is written.
Columns: TypeAlias = "tuple[tuple[str, str, Callable[[Any], str]], ...]"
COLUMNS: Columns = (
    ("", "name", str),
    ("forward", "forward", tables.to_time),
    ("ratio", "ratio", tables.to_ratio),
    ("memory", "peak_bytes", to_bytes),
)
BACKWARD: Columns = (
    ("and backward", "backward", tables.to_time),
    ("ratio", "backward_ratio", tables.to_ratio),
    ("memory", "backward_peak_bytes", to_bytes),
)
CAPTION = "ratio: the time over that of the generated function; memory: beyond the inputs"
BACKWARD_CAPTION = "and backward: forward and gradients by all real inputs together"
SLOPE_CAPTION = "slope: k where the time grows like {size}**k, by the straight line through all"


def print_bench(where: str, options: Options, timed: Timed, as_json: bool, read: ReadWords) -> None:
    """Measure the formula that is named, and print what was found."""
    wishes = run.Wishes(
        timed.backward, timed.compiled, parse_threads(timed.threads or ()), timed.runs, timed.dtype
    )
    run.find_dtype(wishes.dtype)
    over = parse_over(timed.over) if timed.over else None
    if over is not None and over.size in options.sizes:
        raise refuse(
            "sizes-twice",
            f"{over.size} is given with --sizes and with --over",
            help="leave one of them out",
        )
    found, options = formulas.find_asked(where, options, read)
    known = {n: size for n, size in options.sizes.items() if over is None or n != over.size}
    wishes = replace(wishes, options=options)
    given = found.formula, timed.against, known
    try:
        if over is None:
            _print_report(bench(*given, name=found.name, wishes=wishes), as_json)
            return
        made = sweep(
            found.formula,
            over,
            timed.against,
            known,
            name=found.name,
            wishes=wishes,
            track=lambda points: tables.track(points, "measuring"),
        )
    except DeriveError as error:
        raise formulas.say_memory(error, options.memory) from error
    _print_sweep(made, as_json)


def _print_report(report: run.Report, as_json: bool) -> None:
    data = report.to_data()
    if as_json:
        tables.print_json(data)
        return
    title = _to_title(report.name, report.sizes, report.dtype)
    for table in data["tables"]:
        _print_table(title, table)
    _print_compiling([data])
    _print_skipped(data["skipped"])


def _print_table(title: str, table: Data) -> None:
    tables.print_line(f"{title}, {_to_threads(table['threads'])}")
    rows, roofline = table["rows"], table["roofline"]
    both = any(row["backward"] is not None for row in rows)
    columns = COLUMNS + (BACKWARD if both else ())
    cells = [["" if row[key] is None else say(row[key]) for _, key, say in columns] for row in rows]
    tables.print_table([head for head, *_ in columns], cells, numbers="ratio")
    for line in (CAPTION, *((BACKWARD_CAPTION,) if both else ())):
        tables.print_text(line, "dim")
    flops, moved = roofline["flops_per_second"] / 1e9, roofline["bytes_per_second"] / 1e9
    bound = roofline["seconds"]
    tables.print_text(
        f"this machine: {flops:.3g} GFLOP/s, {moved:.3g} GB/s; by them the estimate of its limit "
        f"is {tables.to_time(bound)}, the generated function takes "
        f"{tables.to_ratio(rows[0]['forward'] / bound)} times that"
    )


def _to_title(name: str, sizes: Mapping[str, int], dtype: str) -> str:
    return f"{name} at {tables.say_at(sizes)}, {dtype}" if sizes else f"{name}, {dtype}"


def _to_threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"


def _print_compiling(reports: Iterable[Data]) -> None:
    """The compile times of torch.compile, which are in no row."""
    seconds: dict[str, float] = {}
    for report in reports:
        for name, took in report["compile_seconds"].items():
            seconds[name] = seconds.get(name, 0.0) + took
    for name, took in seconds.items():
        tables.print_line(f"  {name}: {took:.3g} s of compiling are not counted", "dim")


def _print_skipped(reasons: Iterable[str]) -> None:
    for reason in reasons:
        tables.print_line(f"  without {reason}", "dim")


def _print_sweep(made: run.Sweep, as_json: bool) -> None:
    data = made.to_data()
    if as_json:
        tables.print_json(data)
        return
    for threads in made.threads:
        for kind in made.kinds:
            _print_lines(made, data, threads, kind)
    _print_compiling(data["reports"])
    if not made.is_one_text:
        tables.print_line(f"  the function is planned for each {made.over.size} by itself", "dim")
    _print_skipped(made.find_skipped())


def _print_lines(made: run.Sweep, data: Data, threads: int, kind: str) -> None:
    """Seconds at each value, and how they grow."""
    title = _to_title(data["name"], made.others, data["dtype"])
    tables.print_line(f"{title}, {_to_threads(threads)}, {run.TITLES[kind]}")
    lines = [each for each in data["lines"] if (each["threads"], each["kind"]) == (threads, kind)]
    columns = [["" if s is None else tables.to_time(s) for s in line["seconds"]] for line in lines]
    rows = [(str(value), *cells) for value, *cells in zip(data["values"], *columns, strict=True)]
    slopes = ("" if line["slope"] is None else f"{line['slope']:.2f}" for line in lines)
    size = data["over"]
    heads = (size, *(line["name"] for line in lines))
    tables.print_table(heads, [*rows, ("slope", *slopes)], numbers=size)
    tables.print_text(SLOPE_CAPTION.format(size=size), "dim")


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


def parse_over(text: str) -> run.Over:
    """`S=64..1024` or `S=64,128,256`: the size and two values or more, from small to large."""
    found = _OVER.fullmatch(text)
    if found is None:
        raise _refuse(text, "no size stands before =")
    words = found["values"]
    between = _RANGE.fullmatch(words)
    if between is None:
        values = [_read_code(text, word) for word in words.split(",")]
    else:
        first, last = _read_code(text, between["first"]), _read_code(text, between["last"])
        doubled = [first << k for k in range(last.bit_length()) if first << k < last]
        values = [*(doubled or [first]), last]
    if any(one >= other for one, other in pairwise(values)):
        raise _refuse(text, "the values do not grow")
    if not 2 <= len(values) <= MOST_VALUES:
        raise _refuse(text, f"a line has from 2 to {MOST_VALUES} values, not {len(values)}")
    return run.Over(found["name"], tuple(values))


def _read_code(text: str, word: str) -> int:
    """One value, a whole number above 0."""
    if not _NUMBER.fullmatch(word.strip()):
        raise _refuse(text, f"{word.strip() or 'nothing'} is no value")
    if not 1 <= int(word) < _TOO_LARGE:
        raise _refuse(text, f"{word.strip()} is no size of anything")
    return int(word)


def _refuse(text: str, says: str) -> DeriveError:
    return refuse_part("over-form", says, text, None, _HOW)
