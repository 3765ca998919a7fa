"""Somebody's code runs in a child process: bounded in time and memory, silent, and its own state.

The child is a fork, so that functions of the caller need no pickling. It sends what it has found so
far, again and again; when the time is over, the last word counts. Where the system cannot fork, the
work is done in this process, without limits.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from derive.errors import DeriveError, Diagnostic

if TYPE_CHECKING:
    from collections.abc import Callable

    Send = Callable[[Any], None]

MOST_MEMORY = 3 << 30  # bytes that the child may take beyond what the parent has
_HEAD = struct.Struct("<Q")


def run_in_child(
    work: Callable[[Send], None], seconds: float, memory: int = MOST_MEMORY
) -> tuple[Any, str]:
    """The last thing that the work sent, and why it ended early: "", "time", or a crash in words.

    A DeriveError of the work is raised here.
    """
    if not hasattr(os, "fork"):
        return _run_here(work)
    sys.stdout.flush()
    sys.stderr.flush()
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(source)
        _work_and_leave(work, sink, memory)
    os.close(sink)
    try:
        last, in_time = _listen(source, time.monotonic() + seconds)
    finally:
        os.close(source)
        status = _end(child)
    if isinstance(last, Diagnostic):
        raise DeriveError(last)
    if not in_time:
        return last, "time"
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        return last, ""
    return last, f"the process that ran the code ended with {_name_exit(code)}"


def _end(child: int) -> int:
    """The status of the child, which has left or is made to."""
    for _ in range(50):  # whoever has closed the pipe is about to leave
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.002)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _name_exit(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _run_here(work: Callable[[Send], None]) -> tuple[Any, str]:
    words: list[Any] = []
    work(words.append)
    return (words[-1] if words else None), ""


def _listen(source: int, deadline: float) -> tuple[Any, bool]:
    """The last message until the child ends or the time is over, and whether it ended."""
    last, data = None, b""
    while True:
        left = deadline - time.monotonic()
        ready, _, _ = select.select([source], [], [], max(0.0, left))
        if not ready:
            return last, False
        part = os.read(source, 1 << 16)
        if not part:
            return last, True
        data += part
        while len(data) >= _HEAD.size:
            (length,) = _HEAD.unpack(data[: _HEAD.size])
            if len(data) < _HEAD.size + length:
                break
            last = pickle.loads(data[_HEAD.size : _HEAD.size + length])
            data = data[_HEAD.size + length :]


def _work_and_leave(work: Callable[[Send], None], sink: int, memory: int) -> NoReturn:
    """The child's whole life; nothing of the parent is flushed or unwound twice."""

    def send(word: Any) -> None:
        data = pickle.dumps(word)
        left = memoryview(_HEAD.pack(len(data)) + data)
        while left:
            left = left[os.write(sink, left) :]

    code = 1
    try:
        _be_quiet()
        _limit_memory(memory)
        work(send)
        code = 0
    except DeriveError as error:
        send(error.diagnostic)
        code = 0
    except BaseException as error:  # a last word, whatever it is
        log_error(error)
    finally:
        os._exit(code)


def log_error(error: BaseException) -> None:
    """For whoever debugs the checker: its own mistakes go to a file that is asked for."""
    wanted = os.environ.get("DERIVE_CHECK_LOG")
    if wanted:
        import traceback

        with open(wanted, "a", encoding="utf-8") as log:
            traceback.print_exception(error, file=log)


def _be_quiet() -> None:
    """What the code prints goes nowhere, and what it reads is empty."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - until the end


def _limit_memory(most: int) -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + most, now + most))
