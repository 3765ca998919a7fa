"""A sweep as a picture: seconds against a size, both logarithmic, one line for each candidate.

The only reader of matplotlib, which is an extra. The same sweep gives the same bytes, in a file
that is written whole or not at all.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from itertools import accumulate
from math import log
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from derive.bench.run import BOUND, TITLES, Line, Sweep
from derive.errors import DeriveError, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".svg", ".png")
# Okabe and Ito 2008: told apart by people who do not see all colours.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_GREY = "#666666"
_WIDTH, _HEIGHT = 6.4, 4.0  # inches of one panel, its labels among them
_MOST_TICKS = 10
_GAP = 0.075  # between two labels, in parts of the height
_SETTINGS: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 10.0,
    "text.parse_math": False,  # a path may hold any sign
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",  # indices stay indices, which can be searched
    "svg.hashsalt": "derive",
    "savefig.dpi": 150.0,
}


def check_plot(path: Path) -> None:
    """Refuse what could not be drawn in the end, before minutes of measuring."""
    if path.suffix.lower() not in FORMATS:
        raise refuse(
            "plot-format", f"{path} is no picture that is drawn", help="name a .svg or .png file"
        )
    if find_spec("matplotlib") is None:
        raise refuse(
            "plot-library",
            "matplotlib is not installed, which draws the plot",
            help='install the extra "plots": pip install "derive-torch[plots]"',
        )
    check_writable(path)


def plot(sweep: Sweep, path: Path) -> None:
    """Draw the sweep into the file: a panel for each number of threads, and one with gradients."""
    check_plot(path)
    import matplotlib

    kind = path.suffix.lower().removeprefix(".")
    strange = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    with matplotlib.rc_context(_SETTINGS):
        figure = _draw(sweep)
        write_whole(path, lambda beside: figure.savefig(beside, format=kind, metadata=strange))


def _draw(sweep: Sweep) -> Figure:
    from matplotlib.figure import Figure

    across, down = len(sweep.threads), len(sweep.kinds)
    figure = Figure(figsize=(_WIDTH * across, _HEIGHT * down), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False, sharey="row")
    report = sweep.reports[0]
    at = "".join(f" {name}={number}" for name, number in sweep.others.items())
    figure.suptitle(f"{report.name},{at and at + ','} {report.dtype}", x=0.01, ha="left")
    colours: dict[str, str] = {BOUND: _GREY}
    for kind, row in zip(sweep.kinds, panels, strict=True):
        for threads, axes in zip(sweep.threads, row, strict=True):
            lines = sweep.find_lines(threads, kind)
            for line in lines:
                colours.setdefault(line.name, _COLOURS[(len(colours) - 1) % len(_COLOURS)])
            several = "1 thread" if threads == 1 else f"{threads} threads"
            axes.set_title(f"{TITLES[kind]}, {several}", loc="left", fontsize=10)
            _draw_lines(axes, sweep, lines, colours)
        for threads, axes in zip(sweep.threads, row, strict=True):  # they share their heights
            _draw_scales(axes, sweep)
            _label_lines(axes, sweep, sweep.find_lines(threads, kind), colours)
    return figure


def _draw_lines(axes: Axes, sweep: Sweep, lines: Sequence[Line], colours: dict[str, str]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    for line in lines:
        style, marker = ("--", "") if line.name == BOUND else ("-", "o")
        pairs = zip(sweep.over.values, line.seconds, strict=True)
        points = zip(*((n, s) for n, s in pairs if s is not None), strict=True)
        axes.plot(*points, style, color=colours[line.name], marker=marker, markersize=4)


def _draw_scales(axes: Axes, sweep: Sweep) -> None:
    """Ticks at the values that were measured and at round seconds, and faint lines across."""
    from matplotlib.ticker import EngFormatter, FixedLocator, LogLocator, NullLocator

    values = sweep.over.values
    axes.xaxis.set_major_locator(FixedLocator(values[:: -(-len(values) // _MOST_TICKS)]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0f}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(EngFormatter(unit="s"))
    low, high = axes.get_ylim()
    few = high < low * 300  # powers of ten alone would be one tick or two
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if few else (1,)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(sweep.over.size)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)


def _label_lines(axes: Axes, sweep: Sweep, lines: Sequence[Line], colours: dict[str, str]) -> None:
    """Each line's name and slope to the right of its end, pushed apart where ends are close."""
    # the last place that was measured, its seconds, and these as a part of the panel's height
    ends = [[(n, s) for n, s in enumerate(line.seconds) if s is not None][-1] for line in lines]
    low, high = axes.get_ylim()
    heights = [log(seconds / low) / log(high / low) for _, seconds in ends]
    for line, (place, seconds), height in zip(lines, ends, spread(heights, _GAP), strict=True):
        slope = "" if line.slope is None else f"  {sweep.over.size}^{line.slope:.2f}"
        axes.annotate(
            f"{line.name}{slope}",
            xy=(sweep.over.values[place], seconds),
            xytext=(1.04, height),
            textcoords="axes fraction",
            color=colours[line.name],
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "relpos": (0, 0.5),  # to the left end of the words
                "color": colours[line.name],
                "lw": 0.5,
            },
        )


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Heights in the same order, at least `gap` apart, near where they were and from 0 to 1.

    Where so many do not fit they go on below 0.
    """
    order = sorted(range(len(heights)), key=lambda k: (heights[k], k))
    wanted = [heights[k] for k in order]
    up = accumulate(wanted, lambda low, height: max(height, low + gap))
    down = [*accumulate(wanted[::-1], lambda high, height: min(height, high - gap))][::-1]
    # Halfway between all pushed up and all pushed down they are as far apart, and in the middle.
    means = ((one + other) / 2 for one, other in zip(up, down, strict=True))
    middle = [max(height, k * gap) for k, height in enumerate(means)]
    for k in range(1, len(middle) + 1):
        middle[-k] = min(middle[-k], 1 - (k - 1) * gap)
    placed = dict(zip(order, middle, strict=True))
    return [placed[k] for k in range(len(heights))]


def check_writable(path: Path) -> None:
    """Refuse a path that could not be written, before minutes of measuring."""
    if path.is_dir():
        raise refuse("file-unwritable", f"{path} is a folder", help="name a file")
    try:
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise _refuse(path, error) from error


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make the file beside its place, and put it there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(beside)
        beside.replace(path)
    except OSError as error:
        raise _refuse(path, error) from error
    finally:
        beside.unlink(missing_ok=True)


def _refuse(path: Path, error: OSError) -> DeriveError:
    reason = error.strerror or str(error)
    return refuse("file-unwritable", f"cannot write {path}: {reason}", help="name another file")
