"""Processes that run untrusted code: containment, and the messages between them.

contain   user, process and network namespaces; its own session and subreaper, so that its
children end with it; memory limits; no descriptors but those named; a fresh folder. Namespaces
that the system refuses are left out; `isolate` returns those granted.
frames    a JSON header, and the memory of tensors:
number | text | null                     themselves
{"tuple": [..]}  {"dict": [[k, v], ..]}  {"fraction": "1/3"}
{"node": 7}                    a node of the index language, by its place
{"make": "Slot", "of": [..]}   a record of one of the classes that are known here
{"tensor": [type, shape, strides, buffer, offset]}   {"field": [..]}
{"again": 2}                   a tensor of the frame once more, by its number
{"kept": 3, "kind": "function"}   a handle of an object that stays in the other process
Frames carry no code: the classes are a closed list, and malformed bytes raise ValueError.
child     a fork that sends its results so far. Each message is authenticated with a key that
the child reads at its first message: processes forked from it earlier have neither the
key nor the descriptor. Where the system cannot fork, the work is done in this process.
link      requests to the process that holds an object; functions marked `where_it_lives` run
there.
"""

from __future__ import annotations

import ctypes
import hmac
import json
import os
import shutil
import signal
import socket
import stat
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from fractions import Fraction
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from derive.errors import DeriveError, Diagnostic, Mark
from derive.ir import nodes
from derive.libraries import torch

Send = Callable[[Any], None]

_PARENT_DEATH, _DUMPABLE, _SUBREAPER = 1, 4, 36  # options of prctl
_USER, _PROCESSES, _NETWORK = 0x10000000, 0x20000000, 0x40000000  # flags of unshare
NAMESPACES = {"processes": _PROCESSES, "network": _NETWORK}
_PREFIX = "derive-"  # folders in which code runs
_YOUNG = 600  # age in seconds below which an unlocked folder may still be in creation

NO_COMPILER = "TORCHDYNAMO_DISABLE"  # environment variable that disables torch.compile


def set_process(option: int, value: int) -> None:
    """Set a prctl option of this process, where supported."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def end_with_parent() -> None:
    """Have this process killed when its parent ends."""
    set_process(_PARENT_DEATH, signal.SIGKILL)


def guard() -> None:
    """Deny others this process's memory and descriptors, and adopt its orphaned descendants."""
    set_process(_DUMPABLE, 0)
    set_process(_SUBREAPER, 1)


def isolate() -> tuple[str, ...]:
    """Enter new namespaces; return those granted. Process ids are new from the next child on."""
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


def enter(folder: str) -> None:
    """Change to a folder; relative import paths are made absolute first."""
    sys.path[:] = [os.path.abspath(place) for place in sys.path]
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.environ[NO_COMPILER] = "1"  # code is judged uncompiled
    os.chdir(folder)


@contextmanager
def make_folder() -> Iterator[str]:
    """A fresh folder, locked while in use; folders of killed processes are removed."""
    _remove_left()
    folder = tempfile.mkdtemp(prefix=_PREFIX)
    lock = _lock(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _lock(folder: str) -> int | None:
    """The descriptor that locks a folder; None if locked elsewhere or without fcntl."""
    try:
        import fcntl
    except ImportError:
        return None
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _remove_left() -> None:
    """Remove this user's folders that no process uses."""
    if not hasattr(os, "getuid"):
        return
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            found = path.lstat()
            is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
            if not is_own or time.time() - found.st_mtime < _YOUNG:
                continue
            lock = _lock(str(path))
            if lock is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


HEAD = struct.Struct("<QQ")  # lengths of the header and of the tensors after it
NODES: dict[str, type] = {
    name: each
    for name, each in vars(nodes).items()
    if isinstance(each, type) and is_dataclass(each)
}
LENGTH = 1 << 31  # largest frame in bytes


@dataclass(frozen=True)
class Kept:
    """The handle of an object of the other process: its number and kind."""

    number: int
    kind: str


@dataclass(frozen=True)
class Note:
    """A progress message of a child, not a result."""

    says: str


def name_classes(*classes: type) -> dict[str, type]:
    """The dataclasses allowed in frames, by name."""
    known = (Diagnostic, Mark, CannotRunError, Failure, Note, *classes)
    return {each.__name__: each for each in known}


class Writer:
    """The encoder of one value; objects that are no data become handles made by `keep`."""

    def __init__(self, classes: dict[str, type], keep: Callable[[Any], Kept] | None = None) -> None:
        self.classes, self.keep = classes, keep
        self.buffers: list[bytes] = []
        self.nodes: list[Any] = []
        self.places: dict[Any, int] = {}
        # Numbers of tensors by identity, of buffers by address; references keep both valid.
        self.tensors: dict[Any, int] = {}
        self.memory: dict[int, tuple[int, Any]] = {}

    def frame(self, value: Any) -> bytes:
        """The frame of a value."""
        body = self.write(value)
        lengths = [len(each) for each in self.buffers]
        header = json.dumps([body, self.nodes, lengths]).encode()
        return b"".join([HEAD.pack(len(header), sum(lengths)), header, *self.buffers])

    def write(self, value: Any) -> Any:
        """The JSON of a value."""
        match value:
            case None | bool() | str():
                return value
            case int():
                return int(value)
            case float():
                return float(value)
            case list():
                return [self.write(each) for each in value]
            case tuple():
                return {"tuple": [self.write(each) for each in value]}
            case dict():
                return {"dict": [[self.write(k), self.write(v)] for k, v in value.items()]}
            case Fraction():
                return {"fraction": str(value)}
            case Kept():
                return {"kept": value.number, "kind": value.kind}
        name = type(value).__name__
        if NODES.get(name) is type(value):
            if value not in self.places:  # children before their parent
                made = [name, *self._list_fields(value)]
                self.places[value] = len(self.nodes)
                self.nodes.append(made)
            return {"node": self.places[value]}
        if self.classes.get(name) is type(value):
            return {"make": name, "of": self._list_fields(value)}
        if hasattr(value, "untyped_storage"):
            return self._write_tensor(value)
        if isinstance(value, Mapping):
            return self.write(dict(value))
        if self.keep is None:
            raise TypeError(f"{name} does not cross between processes")
        return self.write(self.keep(value))

    def _list_fields(self, value: Any) -> list[Any]:
        return [self.write(getattr(value, each.name)) for each in fields(value)]

    def _write_tensor(self, value: Any) -> Any:
        """The JSON of a tensor; repeats refer to the first, and buffers are shared."""
        if value in self.tensors:  # tensors are hashed by identity
            return {"again": self.tensors[value]}
        if hasattr(value, "parts"):
            parts = value.parts
            every = [self._write_tensor(each) for each in parts.every]
            made: Any = {"field": [len(parts.residues), every]}
        else:
            made = {"tensor": self._write_memory(value)}
        self.tensors[value] = len(self.tensors)
        return made

    def _write_memory(self, value: Any) -> list[Any]:
        with torch.no_grad():
            dense = value.detach().to_dense() if value.layout != torch.strided else value.detach()
            dense = dense.resolve_conj().resolve_neg()
            short = str(dense.dtype).removeprefix("torch.")
            if dense.is_meta:
                return [short, list(dense.shape), None, None, 0]
            dense = dense.cpu()
        memory = dense.untyped_storage()
        address = memory.data_ptr() if dense.numel() else 0
        if address not in self.memory:
            self.memory[address] = len(self.buffers), dense
            self.buffers.append(ctypes.string_at(address, memory.nbytes()) if address else b"")
        place = self.memory[address][0]
        return [short, list(dense.shape), list(dense.stride()), place, dense.storage_offset()]


class Reader:
    """The decoder of one frame; `find` resolves handles."""

    def __init__(
        self, classes: dict[str, type], find: Callable[[Kept], Any] | None = None, tower: Any = None
    ) -> None:
        self.classes, self.find, self.tower = classes, find, tower
        self.buffers: list[bytearray] = []
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []

    def read_frame(self, header: bytes, data: bytes) -> Any:
        """The value of a header and the bytes after it; ValueError for a malformed one."""
        try:
            body, made, lengths = json.loads(header)
            start = 0
            for length in lengths:
                self.buffers.append(bytearray(data[start : start + int(length)]))
                start += int(length)
            for name, *given in made:
                self.nodes.append(NODES[name](*(self.read(each) for each in given)))
            return self.read(body)
        except (
            *(ArithmeticError, AttributeError, LookupError, RecursionError, RuntimeError),
            *(TypeError, ValueError),
        ) as error:
            raise ValueError(f"no answer can be read: {error}") from error

    def read(self, value: Any) -> Any:
        """The value of a piece of JSON."""
        match value:
            case list():
                return [self.read(each) for each in value]
            case {"tuple": given}:
                return tuple(self.read(each) for each in given)
            case {"dict": given}:
                return {self.read(k): self.read(v) for k, v in given}
            case {"fraction": text}:
                return Fraction(text)
            case {"node": place}:
                return self.nodes[place]
            case {"make": name, "of": given}:
                made = self.classes[name](*(self.read(each) for each in given))
                self.tower = made if name == "Tower" and self.tower is None else self.tower
                return made
            case {"again": place}:
                return self.tensors[place]
            case {"tensor": given}:
                self.tensors.append(self._read_tensor(*given))
                return self.tensors[-1]
            case {"field": [levels, given]}:
                from derive.judge.fields import FieldTensor
                from derive.judge.fields.algebra import Parts

                every = [self.read(each) for each in given]
                if levels != self.tower.levels or len({each.shape for each in every}) != 1:
                    raise ValueError("parts that are not of one tensor")
                residues, companions = tuple(every[:levels]), tuple(every[levels:-1])
                self.tensors.append(FieldTensor(Parts(self.tower, residues, companions, every[-1])))
                return self.tensors[-1]
            case {"kept": int() as number, "kind": str() as kind} if self.find is not None:
                return self.find(Kept(number, kind))
            case None | bool() | int() | float() | str():
                return value
        raise ValueError("an unknown form")

    def _read_tensor(self, short: str, shape: Sequence[int], *lies: Any) -> Any:
        strides, place, offset = lies
        dtype = getattr(torch, short)
        if strides is None:
            return torch.empty(shape, dtype=dtype, device="meta")
        data = self.buffers[place]
        if not data:
            return torch.empty_strided(shape, strides, dtype=dtype)
        count = len(data) // dtype.itemsize
        return torch.frombuffer(data, dtype=dtype, count=count).as_strided(shape, strides, offset)


MOST_MEMORY = 3 << 30  # bytes of data allowed to a child beyond the parent's
_SEAL = 32


def run_in_child(
    work: Callable[[Send], None],
    seconds: float | None = None,
    memory: int = MOST_MEMORY,
    classes: Sequence[type] = (),
    show: Callable[[str], None] = lambda _: None,
) -> tuple[Any, str]:
    """The last value sent by a child, and why it ended early: "", "time", or a crash.

    Each note is shown when it comes.
    """
    if not hasattr(os, "fork"):
        words: list[Any] = []
        work(lambda word: show(word.says) if isinstance(word, Note) else words.append(word))
        return (words[-1] if words else None), ""
    sys.stdout.flush()
    sys.stderr.flush()
    key = os.urandom(_SEAL)
    source, sink = socket.socketpair()
    lock, opener = os.pipe()
    os.write(opener, key)
    child = os.fork()
    if child == 0:
        source.close()
        os.close(opener)
        _work_and_leave(work, _Sealed(sink.fileno(), lock, name_classes(*classes)), memory)
    sink.close()
    os.close(lock)
    os.close(opener)
    status = 0
    try:
        last, crash, in_time = _listen(source, key, name_classes(*classes), seconds, show)
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


def receive(end: socket.socket, count: int, find_left: Callable[[], float] | None = None) -> bytes:
    """Receive `count` bytes within the time left; ConnectionError at the end of the stream."""
    parts = bytearray()
    while len(parts) < count:
        if find_left is not None:
            end.settimeout(max(find_left(), 1e-3))
        part = end.recv(min(count - len(parts), 1 << 20))
        if not part:
            raise ConnectionError
        parts += part
    return bytes(parts)


def describe_exit_code(code: int) -> str:
    """An exit code in words, or the name of the signal."""
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _listen(
    source: socket.socket,
    key: bytes,
    classes: dict[str, type],
    seconds: float | None,
    show: Callable[[str], None],
) -> tuple[Any, str, bool]:
    """The last value sent, the crash in words, and whether the child ended in time."""
    last, crash, begun = None, "", time.monotonic()

    def find_left() -> float:
        return (seconds or 0.0) - (time.monotonic() - begun)

    def take_bytes(count: int) -> bytes:
        return receive(source, count, None if seconds is None else find_left)

    while True:
        try:
            seal, head = take_bytes(_SEAL), take_bytes(HEAD.size)
            frame = head + take_bytes(HEAD.unpack(head)[0])
        except TimeoutError:
            return last, crash, False
        except ConnectionError:
            return last, crash, True
        if not hmac.compare_digest(seal, hmac.digest(key, frame, "sha256")):
            return last, crash, True  # a frame not from the child
        match Reader(classes).read_frame(frame[HEAD.size :], b""):
            case Failure(says=says):
                crash = f"crashed: {says}"
            case Note(says=says):
                show(says)
            case value:
                last = value


class _Sealed:
    """The child's authenticated channel; the key is read at the first message."""

    def __init__(self, sink: int, lock: int, classes: dict[str, type]) -> None:
        self.sink, self.lock, self.classes = sink, lock, classes
        self.key = b""

    def send(self, word: Any) -> None:
        """Send one message with its digest."""
        if not self.key:
            self.key = os.read(self.lock, _SEAL)
            os.close(self.lock)
        frame = Writer(self.classes).frame(word)
        left = memoryview(hmac.digest(self.key, frame, "sha256") + frame)
        while left:
            left = left[os.write(self.sink, left) :]


def _work_and_leave(work: Callable[[Send], None], way: _Sealed, memory: int) -> NoReturn:
    """Do the work in the child and exit, without the parent's cleanup."""
    code = 1
    try:
        end_with_parent()
        redirect_standard_streams()
        limit_memory(memory)
        work(way.send)
        code = 0
    except DeriveError as error:
        way.send(error.diagnostic)
        code = 0
    except BaseException as error:  # report the crash, then exit
        log_error(error)
        way.send(Failure(type(error).__name__, describe_crash(error)))
    finally:
        os._exit(code)


def log_error(error: BaseException) -> None:
    """Append a traceback of the checker to the file named by DERIVE_CHECK_LOG."""
    wanted = os.environ.get("DERIVE_CHECK_LOG")
    if wanted:
        with open(wanted, "a", encoding="utf-8") as log:
            traceback.print_exception(error, file=log)


Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(eq=False)
class CannotRunError(Exception):
    """The error that the code does not run; it can cross between processes."""

    says: str
    line: int | None = None  # line of the user's file, if known
    is_incurable: bool = False  # whether it fails at all sizes
    findings: tuple[Diagnostic, ...] = ()  # findings on the code
    statements: tuple[Any, ...] = ()  # the failing line's statements of sizes
    is_beyond: bool = False  # whether a limit of memory or lines was exceeded
    refusal: str = ""  # the code's own assert or raise that stopped it

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
    """An exception of the other process not raised by the code: a refusal, or of residues."""

    kind: str
    says: str = ""
    diagnostic: Diagnostic | None = None


class Link:
    """The connection to the process that runs the code, with its time limit per stage."""

    def __init__(self, end: socket.socket, classes: dict[str, type], seconds: float) -> None:
        self.end, self.classes = end, classes
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
            frame = Writer(self.classes).frame((name, tower, args, named))
            self.end.settimeout(max(find_left(), 1e-3))
            with suppress(BrokenPipeError):  # the runner may have said why it ended
                self.end.sendall(frame)
            length, behind = HEAD.unpack(receive(self.end, HEAD.size, find_left))
            if length + behind > LENGTH:
                raise ValueError("an answer of too many bytes")
            header, data = (receive(self.end, n, find_left) for n in (length, behind))
            reader = Reader(self.classes, lambda kept: Remote(kept.number, kept.kind, self), tower)
            found = reader.read_frame(header, data)
        except TimeoutError:
            self._end(f"the code was still running after {self.seconds:g} s")
        except ValueError as error:
            self._end(f"the process that ran the code answered what cannot be read: {error}")
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


def where_it_lives(function: Function) -> Function:
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
    """The kind of a target: class, module or function."""
    if isinstance(target, Kept):
        return target.kind
    if isinstance(target, type):
        return "class"
    return "module" if isinstance(target, torch.nn.Module) else "function"
