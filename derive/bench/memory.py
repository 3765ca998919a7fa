"""The most memory that one call holds beyond what was there before, found in a child process.

A child has one thread: those of the parent do not live on in it, and code that waits for them would
wait for ever. The results of a call and what it allocates are the same on any number of threads.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from derive.checker.runs.processes import MOST_MEMORY, run_in_child
from derive.errors import DeriveError, refuse
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from derive.compiler import Built

_STATUS = Path("/proc/self/status")
_MACHINE = Path("/proc/meminfo")
_SECONDS = 60
_FULL = "can't allocate memory"  # torch has no class of its own for it on a processor, but words
_LONGEST = 160  # characters of somebody else's error message


def find_failure(call: Callable[[], Any]) -> str:
    """Why a call does not end in the time and the memory that a child is given; "" if it does."""

    def work(send: Callable[[Any], None]) -> None:
        import torch

        torch.set_num_threads(1)
        try:
            call()
        except Exception as error:  # whatever the code raises
            send(say_failure(error))
        else:
            send("")

    found, ended = run_in_child(work, _SECONDS, _find_room())
    if isinstance(found, str):
        return found
    if ended == "time":
        return f"one call takes more than {_SECONDS} s"
    return ended and f"the process that ran the code {ended}"


def say_failure(error: BaseException) -> str:
    """An error in short; a lack of memory in our words."""
    if isinstance(error, DeriveError):
        return error.diagnostic.says
    if isinstance(error, MemoryError) or _FULL in str(error):
        return "one call takes too much memory"
    said = f"{type(error).__name__}: {str(error).strip()}".split("\n\n")[0]
    said = " ".join(said.removesuffix(": ").split())
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]} ..."


def say_no_peak() -> str:
    """Why there are no bytes, where there are none."""
    if not _STATUS.exists() or not hasattr(os, "fork"):
        return "this system does not tell"
    return (
        f"it is looked for in a child process, which has {_SECONDS} s and {_find_room() >> 30} GiB"
    )


def find_peak(call: Callable[[], Any]) -> int | None:
    """Bytes; None where the system does not tell."""
    if not _STATUS.exists() or not hasattr(os, "fork"):
        return None

    def work(send: Callable[[Any], None]) -> None:
        import torch

        torch.set_num_threads(1)
        call()  # what is loaded once is loaded
        _give_back()
        _forget_peak()
        before = _read(_STATUS, "VmRSS")
        call()
        send(max(0, _read(_STATUS, "VmHWM") - before))

    found, _ = run_in_child(work, _SECONDS, _find_room())
    return found if isinstance(found, int) else None


def refuse_too_large(built: Built, width: int) -> None:
    """Refuse sizes at which the inputs and steps, of so many bytes a number, do not fit at all."""
    plan = built.plan
    counts = [
        prod(plan.at_sizes(Polynomial.of(extent)) for extent in entry.shape)
        for entry in built.system.inputs
        if isinstance(entry, ir.Tensor)
    ]
    drawn = 8 * max(counts, default=0)  # one after the other in double precision
    wanted = width * (sum(counts) + plan.at_sizes(plan.peak_elements)) + drawn
    free = _read(_MACHINE, "MemAvailable") if _MACHINE.exists() else 0
    if free and wanted > free:
        at = ", ".join(f"{name}={number}" for name, number in plan.sizes.items())
        raise refuse(
            "bench-memory",
            f"{built.name} at {at} takes {wanted / 1e9:.3g} GB, {free / 1e9:.3g} GB are free",
            help="give smaller sizes with --sizes",
        )


def _find_room() -> int:
    """The bytes that a child may take."""
    free = _read(_MACHINE, "MemAvailable") if _MACHINE.exists() else 0
    return free or MOST_MEMORY


def _give_back() -> None:
    """What the first call has freed goes back to the system, so that it is counted once more."""
    with suppress(OSError, AttributeError, TypeError):  # not every C library can
        ctypes.CDLL(None).malloc_trim(0)


def _forget_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _read(path: Path, name: str) -> int:
    """A line of the system's, in bytes."""
    for line in path.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0
