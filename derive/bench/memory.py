"""The most memory that one call holds beyond what was there before, found in a child process."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from derive.checker.child import run_in_child

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_STATUS = Path("/proc/self/status")
_SECONDS = 60


def does_run(call: Callable[[], Any]) -> bool:
    """Does a call end in time and in the memory that a child process is given?"""

    def work(send: Callable[[Any], None]) -> None:
        import torch

        with torch.no_grad():
            call()
        send(True)

    return run_in_child(work, _SECONDS)[0] is True


def find_peak(call: Callable[[], Any]) -> int | None:
    """Bytes; None where the system does not tell."""
    if not _STATUS.exists() or not hasattr(os, "fork"):
        return None

    def work(send: Callable[[Any], None]) -> None:
        import torch

        with torch.no_grad():
            call()  # what is loaded once is loaded
            _forget_peak()
            before = _read("VmRSS")
            call()
        send(max(0, _read("VmHWM") - before))

    found, _ = run_in_child(work, _SECONDS)
    return found if isinstance(found, int) else None


def _forget_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _read(name: str) -> int:
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0
