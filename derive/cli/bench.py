"""`derive bench`: the generated function against code by hand, as tables, data, and a plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.bench import bench, sweep
from derive.bench.sweep import KINDS
from derive.cli.bench_options import ask_plan
from derive.cli.formulas import find_asked, say_memory
from derive.cli.tables import (
    print_json,
    print_line,
    print_table,
    print_text,
    to_ratio,
    to_time,
    track,
)
from derive.errors import DeriveError, refuse
from derive.plan.memory import to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from derive.bench.report import Report, Row, Table
    from derive.bench.sweep import Sweep
    from derive.cli.bench_options import Order
    from derive.cli.formulas import Found
    from derive.plan.machine import Machine

HEADS = ("", "forward", "ratio", "memory")
BACKWARD_HEADS = ("and backward", "ratio", "memory")
TITLES = {KINDS[0]: "forward", KINDS[1]: "forward and backward"}
CAPTION = "ratio: the time over that of the generated function; memory: beyond the inputs"
BACKWARD_CAPTION = "and backward: forward and gradients by all real inputs together"
SLOPE_CAPTION = "slope: k where the time grows like {size}**k, by the straight line through all"


def find_timed(where: str | None, order: Order) -> tuple[Found, Order]:
    """The formula, and the order with its options; DeriveError where none is named."""
    if where is None:
        raise refuse(
            "formula-missing",
            "no formula is named",
            help="name one, or measure the machine itself with --calibrate FILE",
        )
    found, options = find_asked(where, order.options)
    return found, ask_plan(order, options)


def print_bench(found: Found, order: Order, as_json: bool) -> None:
    """Measure, and print what was found."""
    try:
        _print_measured(found, order, as_json)
    except DeriveError as error:
        raise say_memory(error, order.options.memory) from error


def _print_measured(found: Found, order: Order, as_json: bool) -> None:
    if order.over is not None:
        _print_sweep(found, order, as_json)
        return
    report = bench(found.formula, order.against, order.sizes, name=found.name, wishes=order.wishes)
    if as_json:
        print_json(report.to_data())
        return
    for table in report.tables:
        _print_table(report, table)
    _print_compiling([report])
    _print_skipped(report.skipped)


def _print_table(report: Report, table: Table) -> None:
    print_line(f"{_to_title(report.name, report.sizes, report.dtype)}, {_to_threads(table)}")
    both = any(row.backward is not None for row in table.rows)
    heads = (*HEADS, *(BACKWARD_HEADS if both else ()))
    rows = [
        (*_to_cells(table, row), *(_to_backward(table, row) if both else ())) for row in table.rows
    ]
    print_table(heads, rows, numbers="ratio")
    for line in (CAPTION, *((BACKWARD_CAPTION,) if both else ())):
        print_text(line, "dim")
    rate, width = table.roofline.flops / 1e9, table.roofline.bytes / 1e9
    share = table.rows[0].forward / table.bound
    print_text(
        f"this machine: {rate:.3g} GFLOP/s, {width:.3g} GB/s; by them the estimate of its limit is "
        f"{to_time(table.bound)}, the generated function takes {to_ratio(share)} times that",
    )


def _to_title(name: str, sizes: Mapping[str, int], dtype: str) -> str:
    at = " ".join(f"{size}={number}" for size, number in sizes.items())
    return f"{name} at {at}, {dtype}" if at else f"{name}, {dtype}"


def _to_threads(table: Table) -> str:
    return "1 thread" if table.threads == 1 else f"{table.threads} threads"


def _to_cells(table: Table, row: Row) -> tuple[str, ...]:
    memory = "" if row.peak is None else to_bytes(row.peak)
    return row.name, to_time(row.forward), to_ratio(table.find_ratio(row)), memory


def _to_backward(table: Table, row: Row) -> tuple[str, ...]:
    """The cells about gradients; empty where there are none."""
    ratio = table.find_backward_ratio(row)
    return (
        "" if row.backward is None else to_time(row.backward),
        "" if ratio is None else to_ratio(ratio),
        "" if row.backward_peak is None else to_bytes(row.backward_peak),
    )


def _print_compiling(reports: Iterable[Report]) -> None:
    """How long torch.compile took, which is in no row."""
    seconds: dict[str, float] = {}
    for report in reports:
        for name, took in report.compiling.items():
            seconds[name] = seconds.get(name, 0.0) + took
    for name, took in seconds.items():
        print_line(f"  {name}: {took:.3g} s of compiling are not counted", "dim")


def _print_skipped(reasons: Iterable[str]) -> None:
    for reason in reasons:
        print_line(f"  without {reason}", "dim")


def _print_sweep(found: Found, order: Order, as_json: bool) -> None:
    assert order.over is not None
    made = sweep(
        found.formula,
        order.over,
        order.against,
        order.sizes,
        name=found.name,
        wishes=order.wishes,
        track=lambda points: track(points, "measuring"),
    )
    if order.plot is not None:
        from derive.bench.plot import plot

        plot(made, order.plot)
    if as_json:
        print_json(made.to_data())
        return
    for table in made.reports[0].tables:
        for kind in made.kinds:
            _print_lines(made, table, kind)
    _print_compiling(made.reports)
    if not made.is_one_text:
        print_line(f"  the function is planned for each {order.over.size} by itself", "dim")
    _print_skipped(made.find_skipped())
    if order.plot is not None:
        print_line(f"{order.plot} is written")


def _print_lines(made: Sweep, table: Table, kind: str) -> None:
    """Seconds at each value, and how they grow."""
    report = made.reports[0]
    title = _to_title(report.name, made.others, report.dtype)
    print_line(f"{title}, {_to_threads(table)}, {TITLES[kind]}")
    lines = made.find_lines(table.threads, kind)
    cells = [["" if s is None else to_time(s) for s in line.seconds] for line in lines]
    rows = [
        (str(value), *(column[place] for column in cells))
        for place, value in enumerate(made.over.values)
    ]
    slopes = ("" if line.slope is None else f"{line.slope:.2f}" for line in lines)
    size = made.over.size
    print_table((size, *(line.name for line in lines)), [*rows, ("slope", *slopes)], numbers=size)
    print_text(SLOPE_CAPTION.format(size=size), "dim")


def print_calibration(path: Path, where: str | None, as_json: bool) -> None:
    """Measure this machine's constants, write them, and print them beside the defaults."""
    from dataclasses import asdict

    from derive.bench.calibrate import calibrate
    from derive.plan.machine import DEFAULT

    if where is not None:
        raise refuse(
            "calibrate-alone",
            "--calibrate measures the machine and takes no formula",
            help=f"leave {where} out, or --calibrate",
        )
    machine = calibrate(path)
    if as_json:
        print_json({"file": str(path), "machine": asdict(machine), "default": asdict(DEFAULT)})
        return
    rows = zip(_CONSTANTS, _show(machine), _show(DEFAULT), strict=True)
    print_table(("", "here", "default"), rows)
    print_line(f"{path} is written; plan for it with: derive build NAME --machine {path}")


_CONSTANTS = (
    "operations of a large product",
    "memory far from it",
    "memory near the core",
    "bytes that stay near it",
    "one operation at the least",
    "one matrix of a batch",
    "values of exp",
)


def _show(machine: Machine) -> tuple[str, ...]:
    return (
        f"{machine.flops / 1e9:.3g} GFLOP/s",
        f"{machine.memory / 1e9:.3g} GB/s",
        f"{machine.near / 1e9:.3g} GB/s",
        to_bytes(machine.cache),
        to_time(machine.launch),
        to_time(machine.product),
        f"{machine.exponentials / 1e6:.3g} M/s",
    )
