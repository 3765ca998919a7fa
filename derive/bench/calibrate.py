"""The constants of `derive.plan.machine`, measured on one thread in float32, here and now.

Each operation makes its result anew, as those of a generated function do: a result that malloc does
not keep costs more than its bytes, since the system has to give and clear the memory.
"""

from collections.abc import Callable, Mapping
from math import log2, sqrt
from pathlib import Path
from statistics import median
from typing import Any

from derive.bench import plot, run
from derive.bench.measure import SIDE, find_timings, to_product
from derive.plan.machine import KEPT, Machine, to_json

SETS = tuple(1 << k for k in range(18, 27))  # bytes that a sum reads and writes
_EXPONENTIALS = 1 << 16
_BATCH, _SMALL = 256, 8  # matrices, and their rows and columns
_ROWS, _LENGTH = 64, 1024  # of what is transformed
_RUNS = 9
_DIGITS = 3  # that a second measurement gives again


def calibrate(path: Path) -> Machine:
    """Measure this machine and write its constants; DeriveError where that cannot be written."""
    plot.check_writable(path)
    machine = measure_machine()
    text = to_json(machine)
    plot.write_whole(path, lambda beside: beside.write_text(text, encoding="utf-8"))
    return machine


def measure_machine() -> Machine:
    """The constants: medians over interleaved runs."""
    import torch

    calls = {**_to_calls(), **{f"{count} bytes": _to_sum(count) for count in SETS}}
    calls["pages"] = _to_sum(6 * KEPT)  # of which the result is a third
    with run.on_threads(1), torch.no_grad():
        found = find_timings(calls, _RUNS)
    launch = found["launch"].median
    # Without the time that any operation takes, which is little here but for a busy moment.
    seconds = {name: max(t.median - launch, t.median / 2) for name, t in found.items()}
    cache, cached, memory = find_knee({count: count / seconds[f"{count} bytes"] for count in SETS})
    pages = max(seconds["pages"] - 6 * KEPT / memory, seconds["pages"] / 8)
    return Machine(
        flops=_round(2 * SIDE**3 / seconds["product"]),
        memory=_round(memory),
        cached=_round(cached),
        cache=cache,
        launch=_round(launch),
        product=_round(seconds["batch"] / _BATCH),
        exponentials=_round(_EXPONENTIALS / seconds["exp"]),
        pages=_round(2 * KEPT / pages),
        transforms=_round(_ROWS * _LENGTH * log2(_LENGTH) / seconds["transform"]),
    )


def find_knee(rates: Mapping[int, float]) -> tuple[int, float, float]:
    """The bytes up to which the rate is nearer to the best one than to the last, and two rates.

    Those are the median up to there, and the last, of the most bytes.
    """
    counts = sorted(rates)
    last = rates[counts[-1]]
    between = sqrt(max(rates.values()) * last)
    best = max(counts, key=lambda count: rates[count])
    inside = [count for count in counts if count <= best]
    for count in counts[len(inside) :]:
        if rates[count] < between:
            break
        inside.append(count)
    return inside[-1], median(rates[count] for count in inside), last


def _to_calls() -> dict[str, Callable[[], Any]]:
    """An operation on one number, and large and small ones that compute."""
    import torch

    one, many = torch.ones(1), torch.randn(_EXPONENTIALS)
    left, right = torch.randn(2, _BATCH, _SMALL, _SMALL)
    rows = torch.randn(_ROWS, _LENGTH)
    return {
        "launch": lambda: torch.add(one, one),
        "exp": lambda: torch.exp(many),
        "batch": lambda: torch.bmm(left, right),
        "transform": lambda: torch.fft.rfft(rows),
        "product": to_product(torch.float32),
    }


def _to_sum(count: int) -> Callable[[], Any]:
    """A sum of two tensors that reads and writes so many bytes."""
    import torch

    left, right = torch.zeros(2, count // 12)
    return lambda: torch.add(left, right)


def _round(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
