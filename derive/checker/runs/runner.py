"""The process that runs the user's code and answers the judge's requests.

    judge --- socket --- guardian, which makes the namespaces --- PID 1 in them --- runner

The code can change torch and this program in the runner only. The judge compares the values that
the runner returns in another process.
"""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from derive.checker import (
    frames,
    load,
    processes,
    program,
    reading,
    relations,
    runs,
    slots,
    subjects,
)
from derive.checker.edits import source
from derive.checker.judge import circumstances
from derive.checker.runs import modes, trace
from derive.checker.verdict import Job
from derive.errors import DeriveError
from derive.libraries import torch

_PATIENCE = 1.0  # seconds for a process that has closed its channel and is about to leave
# The functions that the judge may call, and the records that cross, by module.
_QUESTIONS = (
    (slots, "find_slots"),
    (subjects, "construct construct_all find_numbers_of"),
    (load, "finish_script"),
    (circumstances, "call_all"),
    (runs, "run_target has_dropout"),
    (program, "lift_program"),
    (trace, "record_program"),
    (source, "put_text watch_program find_passing"),
)
_RECORDS = (
    (load, "Code"),
    (reading, "Script Rename"),
    (program, "Program"),
    (slots, "Slot"),
    (processes, "Failure"),
    (runs, "Given RunOptions Answer"),
    (modes, "Lowering"),
    (trace, "Event Trace Example"),
    (relations, "Statement"),
    (source, "Rewrite"),
    (circumstances, "PlannedRun RunOutcome"),
)
SERVED: dict[str, Callable[..., Any]] = {
    name: getattr(room, name) for room, names in _QUESTIONS for name in names.split()
}


def list_classes() -> dict[str, type]:
    """The records that cross between judge and runner."""
    from derive.frontend.torch.lift import Lifted
    from derive.judge.fields.algebra import Usage
    from derive.judge.fields.tower import Tower

    records = (getattr(room, name) for room, names in _RECORDS for name in names.split())
    return processes.name_classes(*records, Lifted, Usage, Tower)


@contextmanager
def start_runner(job: Job, folder: str) -> Iterator[processes.Link]:
    """A link to a runner of the job's code; the runner and its children end with the context."""
    here, there = socket.socketpair()
    classes = list_classes()  # loads what both processes need
    processes.harden_process()
    guardian = os.fork()
    if guardian == 0:
        try:
            _run_guardian(there, job, folder)
        finally:
            os._exit(1)
    there.close()
    link = processes.Link(here, classes, job.seconds)
    link.find_end = partial(_describe_end, guardian)
    try:
        yield link
    finally:
        here.close()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(guardian, signal.SIGKILL)
        processes.end_children()


def _describe_end(guardian: int) -> str:
    """The way in which the runner ended, once its channel is closed."""
    status = processes.wait_for(guardian, _PATIENCE)
    if status is None:
        return "the process that ran the code closed its channel"
    how = processes.describe_exit_code(os.waitstatus_to_exitcode(status))
    return f"the process that ran the code ended with {how}"


def _run_guardian(end: socket.socket, job: Job, folder: str) -> NoReturn:
    """Make the namespaces and the runner in them, and exit with the runner's status."""
    os.setsid()
    processes.end_with_parent()
    os.closerange(3, end.fileno())  # all but the first three and the channel
    os.closerange(end.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    processes.redirect_standard_streams()
    contained = processes.isolate()
    # PID 1 of a namespace ignores signals sent from inside it, so the runner is the second process.
    for _ in range(2):
        child = os.fork()
        if child:
            end.close()
            _exit_like(child)
        processes.end_with_parent()
    code = 1
    try:
        processes.enter_folder(folder)
        processes.limit_memory(processes.MOST_MEMORY)
        serve(end, job, contained)
        code = 0
    except BaseException as error:  # the last word of this process
        crash = processes.Failure(processes.CRASH, processes.describe_crash(error))
        frames.Channel(end, list_classes()).send(crash)
    finally:
        os._exit(code)


def _exit_like(child: int) -> NoReturn:
    """Wait for a child and exit with its status; PID 1 reports a signal as 128 plus its number."""
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    number = -code if code < 0 else code - 128
    with suppress(OSError, ValueError):
        if number > 0:
            signal.signal(number, signal.SIG_DFL)
    with suppress(OSError):
        if number > 0:
            os.kill(os.getpid(), number)
    os._exit(128 + number if number > 0 else code)


def serve(end: socket.socket, job: Job, contained: tuple[str, ...]) -> None:
    """Answer requests until the judge closes the channel."""
    objects: list[Any] = []

    def keep_object(value: Any) -> frames.Kept:
        objects.append(value)
        return frames.Kept(len(objects) - 1, processes.find_kind(value))

    channel = frames.Channel(end, list_classes(), keep_object, lambda kept: objects[kept.number])
    own: dict[str, Callable[..., Any]] = {
        "load": partial(_load, job),
        "tell_contained": lambda: contained,
    }
    while True:
        try:
            name, _, args, named = channel.receive()
        except ConnectionError:
            return
        try:
            answer = {**SERVED, **own}[name](*args, **named)
        except DeriveError as error:
            answer = processes.Failure("DeriveError", diagnostic=error.diagnostic)
        except processes.CannotRunError as error:
            answer = error
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            name = type(error).__name__  # errors of field arithmetic keep their plain message
            says = str(error) if name in processes.OF_RESIDUES else load.to_line(error)
            answer = processes.Failure(name, says)
        channel.send(answer)


def _load(job: Job, rename: reading.Rename | None = None) -> load.Code:
    """The loaded code; of its globals only numbers, and tensors without values, are kept."""
    code = load.load(job.code, job.system.name, job.init, rename)
    names: dict[str, Any] = {}
    for name, value in code.names.items():
        if isinstance(value, (bool, int, float)):
            names[name] = value
        elif isinstance(getattr(value, "shape", None), tuple) and hasattr(value, "dtype"):
            names[name] = torch.empty(value.shape, device="meta")
    return replace(code, names=names)
