"""Work is done in a child process, which says in JSON what it has found so far.

The child is a fork, so that functions of the caller need no pickling. Each word is sealed with a
key that the child takes up when it says the first one: what was forked from it before has neither
the key nor the way. Where the system cannot fork, the work is done in this process.
"""

from __future__ import annotations

import hmac
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from derive.checker.contain import be_quiet, end_with_parent, limit_memory
from derive.checker.wire import HEAD, Reader, Writer, name_classes
from derive.errors import DeriveError, Diagnostic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Send = Callable[[Any], None]

MOST_MEMORY = 3 << 30  # bytes that a child may take beyond what its parent has
_SEAL = 32


def run_in_child(
    work: Callable[[Send], None],
    seconds: float | None = None,
    memory: int = MOST_MEMORY,
    classes: Sequence[type] = (),
) -> tuple[Any, str]:
    """The last thing that the work sent, and why it ended early: "", "time", or a crash in words.

    What is sent is data, or a record of the classes. A DeriveError of the work is raised here.
    """
    if not hasattr(os, "fork"):
        return _run_here(work)
    sys.stdout.flush()
    sys.stderr.flush()
    key = os.urandom(_SEAL)
    source, sink = os.pipe()
    lock, opener = os.pipe()
    os.write(opener, key)
    child = os.fork()
    if child == 0:
        os.close(source)
        os.close(opener)
        _work_and_leave(work, _Sealed(sink, lock, name_classes(*classes)), memory)
    for end in (sink, lock, opener):
        os.close(end)
    status = 0
    try:
        last, in_time = _listen(source, key, name_classes(*classes), seconds)
    finally:
        os.close(source)
        status = _end(child)
    if isinstance(last, Diagnostic):
        raise DeriveError(last)
    if not in_time:
        return last, "time"
    code = os.waitstatus_to_exitcode(status)
    return last, "" if code == 0 else f"ended with {name_exit(code)}"


def _end(child: int) -> int:
    """The status of the child, which has left or is made to."""
    for _ in range(200):  # whoever has closed the pipe is about to leave
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.005)
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def name_exit(code: int) -> str:
    """How a process ended, in words."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _run_here(work: Callable[[Send], None]) -> tuple[Any, str]:
    words: list[Any] = []
    work(words.append)
    return (words[-1] if words else None), ""


def _listen(
    source: int, key: bytes, classes: dict[str, type], seconds: float | None
) -> tuple[Any, bool]:
    """The last word until the child ends or the time is over, and whether it ended."""
    last, data = None, b""
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        ready, _, _ = select.select([source], [], [], left)
        if not ready:
            return last, False
        part = os.read(source, 1 << 16)
        if not part:
            return last, True
        data += part
        while len(data) >= _SEAL + HEAD.size:
            seal, behind = data[:_SEAL], data[_SEAL:]
            length, _ = HEAD.unpack(behind[: HEAD.size])
            if len(behind) < HEAD.size + length:
                break
            frame, data = behind[: HEAD.size + length], behind[HEAD.size + length :]
            if not hmac.compare_digest(seal, hmac.digest(key, frame, "sha256")):
                return last, True  # nobody but the child has the key
            last = Reader(classes, _refuse_kept).read_frame(frame[HEAD.size :], b"")


def _refuse_kept(kept: Any) -> Any:
    raise ValueError(f"{kept} is no data")


class _Sealed:
    """The way out of the child; the key is read from the lock when it is used first."""

    def __init__(self, sink: int, lock: int, classes: dict[str, type]) -> None:
        self.sink, self.lock, self.classes = sink, lock, classes
        self.key = b""

    def send(self, word: Any) -> None:
        """One word, sealed."""
        if not self.key:
            self.key = os.read(self.lock, _SEAL)
            os.close(self.lock)
        frame = Writer(self.classes).frame(word)
        left = memoryview(hmac.digest(self.key, frame, "sha256") + frame)
        while left:
            left = left[os.write(self.sink, left) :]


def _work_and_leave(work: Callable[[Send], None], way: _Sealed, memory: int) -> NoReturn:
    """The child's whole life; nothing of the parent is flushed or unwound twice."""
    code = 1
    try:
        end_with_parent()
        be_quiet()
        limit_memory(memory)
        work(way.send)
        code = 0
    except DeriveError as error:
        way.send(error.diagnostic)
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
