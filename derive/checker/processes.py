"""Processes that run untrusted code: containment, and the messages between them.

contain   user, process and network namespaces; its own session and subreaper, so that its
children end with it; memory limits; no descriptors but those named; a fresh folder.
Namespaces that the system refuses are left out; `isolate` returns those granted.
child     a fork that sends its results so far. Where the system cannot fork, the work is done in
this process.
link      requests to the process that holds an object; functions marked `run_remotely` run
there. Messages are `frames`.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from derive.checker.frames import Channel, Kept
from derive.errors import DeriveError, Diagnostic, Mark
from derive.libraries import torch

Send = Callable[[Any], None]

_PARENT_DEATH, _DUMPABLE, _SUBREAPER = 1, 4, 36  # options of prctl
_USER, _PROCESSES, _NETWORK = 0x10000000, 0x20000000, 0x40000000  # flags of unshare
NAMESPACES = {"processes": _PROCESSES, "network": _NETWORK}

NO_COMPILER = "TORCHDYNAMO_DISABLE"  # environment variable that disables torch.compile


def set_process(option: int, value: int) -> None:
    """Set a prctl option of this process, where supported."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def end_with_parent() -> None:
    """Have this process killed when its parent ends."""
    set_process(_PARENT_DEATH, signal.SIGKILL)


def harden_process() -> None:
    """Deny others this process's memory and descriptors, and adopt its orphaned descendants."""
    set_process(_DUMPABLE, 0)
    set_process(_SUBREAPER, 1)


def isolate() -> tuple[str, ...]:
    """Enter new namespaces and return those granted; process ids are new from the next child on."""
    user, group = os.getuid(), os.getgid()
    try:
        unshare = ctypes.CDLL(None).unshare
    except (OSError, AttributeError, TypeError):
        return ()
    if unshare(_USER):
        return ()
    with suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    return tuple(name for name, flag in NAMESPACES.items() if not unshare(flag))


def end_children() -> None:
    """Kill all children of this process, and their orphans."""
    for _ in range(1000):
        children: list[int] = []
        for path in Path("/proc/self/task").glob("*/children"):
            with suppress(OSError):
                children += map(int, path.read_text(encoding="ascii").split())
        for child in children:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, 0)[0]:
                pass
        except ChildProcessError:
            return


def redirect_standard_streams() -> None:
    """Redirect the standard streams to the null device."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - until the end


def limit_memory(most: int) -> None:
    """Limit this process to so many bytes of data beyond those it has, and to no core file.

    Data are private pages that can be written. Pages of files, such as the gigabytes of libraries
    that torch maps for a GPU, do not count.
    """
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/self/statm", encoding="ascii") as file:
            data = int(file.read().split()[5]) * resource.getpagesize()
        limit = data + most
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


def describe_crash(error: BaseException) -> str:
    """An exception of the checker in words: type, message, innermost line of derive."""
    package = Path(__file__).parents[1]
    places = [(Path(f.filename), f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    own = [
        f"{path.relative_to(package.parent)}:{n}" for path, n in places if package in path.parents
    ]
    said = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return f"{said} ({own[-1]})" if own else said


def enter_folder(folder: str) -> None:
    """Change to a folder, also for temporary files; make import paths absolute, do not compile."""
    sys.path[:] = [os.path.abspath(place) for place in sys.path]
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.environ[NO_COMPILER] = "1"  # code is judged uncompiled
    os.chdir(folder)


@dataclass(frozen=True)
class Note:
    """A progress message of a child, not a result."""

    says: str


def name_classes(*classes: type) -> dict[str, type]:
    """The dataclasses allowed in frames, by name."""
    known = (Diagnostic, Mark, CannotRunError, Failure, Note, *classes)
    return {each.__name__: each for each in known}


MOST_MEMORY = 3 << 30  # bytes of data allowed to a child beyond the parent's


def run_in_child(
    work: Callable[[Send], None],
    seconds: float | None = None,
    memory: int = MOST_MEMORY,
    classes: Sequence[type] = (),
    show: Callable[[str], None] = lambda _: None,
) -> tuple[Any, str]:
    """The last value a child sent, why it ended early ("", "time", a crash); `show` gets notes."""
    if not hasattr(os, "fork"):
        words: list[Any] = []
        work(lambda word: show(word.says) if isinstance(word, Note) else words.append(word))
        return (words[-1] if words else None), ""
    sys.stdout.flush()
    sys.stderr.flush()
    source, sink = socket.socketpair()
    known = name_classes(*classes)
    child = os.fork()
    if child == 0:
        source.close()
        _work_and_leave(work, Channel(sink, known).send, memory)
    sink.close()
    status = 0
    try:
        last, crash, in_time = _listen(Channel(source, known), seconds, show)
    finally:
        source.close()
        ended = wait_for(child)  # a child that closed the channel is about to exit
        if ended is None:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1] if ended is None else ended
    if isinstance(last, Diagnostic):
        raise DeriveError(last)
    if not in_time:
        return last, "time"
    code = os.waitstatus_to_exitcode(status)
    return last, crash or ("" if code == 0 else f"ended with {describe_exit_code(code)}")


def wait_for(child: int, seconds: float = 1.0) -> int | None:
    """The exit status of a child within some seconds; None if it still runs."""
    for _ in range(int(seconds / 0.005)):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.005)
    return None


def describe_exit_code(code: int) -> str:
    """An exit code in words; for a negative one, the name of the signal."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _listen(
    source: Channel, seconds: float | None, show: Callable[[str], None]
) -> tuple[Any, str, bool]:
    """The triple (last value sent, crash in words or "", whether the child ended in time)."""
    last, crash, end = None, "", time.monotonic() + (seconds or 0.0)
    find_left = None if seconds is None else lambda: end - time.monotonic()
    while True:
        try:
            match source.receive(find_left):
                case Failure(says=says):
                    crash = f"crashed: {says}"
                case Note(says=says):
                    show(says)
                case value:
                    last = value
        except TimeoutError:
            return last, crash, False
        except ConnectionError:
            return last, crash, True


def _work_and_leave(work: Callable[[Send], None], send: Send, memory: int) -> NoReturn:
    """Do the work in the child and exit, without the parent's cleanup."""
    code = 1
    try:
        end_with_parent()
        redirect_standard_streams()
        limit_memory(memory)
        work(send)
        code = 0
    except DeriveError as error:
        send(error.diagnostic)
        code = 0
    except BaseException as error:  # report the crash, then exit
        send(Failure(type(error).__name__, describe_crash(error)))
    finally:
        os._exit(code)


Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(eq=False)
class CannotRunError(Exception):
    """The error that the code does not run; it can cross between processes."""

    says: str
    line: int | None = None  # line of the user's file, if known
    is_incurable: bool = False  # whether it fails at all sizes
    findings: tuple[Diagnostic, ...] = ()  # findings on the code
    bindings: tuple[str, ...] = ()  # of the program that does not run
    statements: tuple[Any, ...] = ()  # the failing line's statements of sizes
    is_beyond: bool = False  # whether a limit of memory or lines was exceeded
    refusal: str = ""  # the code's own assert or raise that stopped it

    @property
    def is_of_one(self) -> bool:
        """Whether torch refuses to normalise a single element, where a formula has a value."""
        return "Expected more than 1 " in self.says

    def __str__(self) -> str:
        """The message."""
        return self.says


CRASH = "crash"  # the kind of a failure that ends the process


class EndedError(BaseException):
    """The end of the process that runs the code; no `except Exception` may catch it."""


@dataclass(frozen=True)
class Remote(Kept):
    """A handle with its link to the other process."""

    link: Link = field(repr=False, compare=False)


OF_RESIDUES = ("NotModelledError", "TooDeepError", "UnluckyError")


@dataclass(frozen=True)
class Failure:
    """An exception of the other process that is not the code's: a refusal, or of the fields."""

    kind: str
    says: str = ""
    diagnostic: Diagnostic | None = None


class Link:
    """The connection to the process that runs the code, with its time limit per stage."""

    def __init__(self, end: socket.socket, classes: dict[str, type], seconds: float) -> None:
        self.channel = Channel(end, classes, find=lambda kept: Remote(kept.number, kept.kind, self))
        self.seconds = self.left = seconds
        self.each = False  # whether the limit is per request
        self.why = ""
        self.find_end: Callable[[], str] = str

    def ask(self, name: str, *args: Any, **named: Any) -> Any:
        """Call a function of the other process; EndedError without an answer."""
        from derive.judge.fields.tower import draw_tower

        if self.why:
            raise EndedError(self.why)
        if self.each:
            self.left = self.seconds
        begun = time.monotonic()
        seeds = (getattr(each, "tower", None) for each in args)  # for runs over a field tower
        tower = next((draw_tower(*seed) for seed in seeds if seed is not None), None)

        def find_left() -> float:
            return self.left - (time.monotonic() - begun)

        try:
            self.channel.end.settimeout(max(find_left(), 1e-3))
            with suppress(BrokenPipeError):  # the runner may have said why it ended
                self.channel.send((name, tower, args, named))
            found = self.channel.receive(find_left, tower)
        except TimeoutError:
            self._end(f"the code was still running after {self.seconds:g} s")
        except ValueError as error:
            self._end(f"the process that ran the code sent an unreadable answer: {error}")
        except OSError:
            self._end(self.find_end())
        finally:
            self.left -= time.monotonic() - begun
        if isinstance(found, CannotRunError):
            raise found
        if isinstance(found, Failure):
            from derive.judge import fields

            if found.kind == CRASH:
                self._end(f"the process that ran the code crashed: {found.says}")
            if found.diagnostic is not None:
                raise DeriveError(found.diagnostic)
            if found.kind in OF_RESIDUES:
                raise getattr(fields, found.kind)(found.says)
            raise CannotRunError(found.says)
        return found

    def restart(self, each: bool = False) -> None:
        """Reset the time limit for a new stage, or with `each` for every request."""
        self.left, self.each = self.seconds, each

    def _end(self, why: str) -> None:
        self.why = why
        raise EndedError(why)


def run_remotely(function: Function) -> Function:
    """Wrap a function to run in the process that holds its first argument."""

    @wraps(function)
    def act(target: Any, *args: Any, **named: Any) -> Any:
        remote = target  # the argument, its code's target, or its script's tree
        while remote is not None and not isinstance(remote, Remote):
            holds = (getattr(remote, name, None) for name in ("code", "target", "script", "tree"))
            remote = next((inner for inner in holds if inner is not None), None)
        if remote is None:
            return function(target, *args, **named)
        return remote.link.ask(function.__name__, target, *args, **named)

    return cast("Function", act)


def find_kind(target: Any) -> str:
    """The kind of a target: "class", "module", or else "function"; a handle knows its own."""
    if isinstance(target, Kept):
        return target.kind
    if isinstance(target, type):
        return "class"
    return "module" if isinstance(target, torch.nn.Module) else "function"
