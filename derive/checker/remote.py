"""Objects that live in another process: whoever asks something of one asks that process.

The judge never runs somebody's code: to it a function or a module is a number. A function of such
an object is written as if the object were here, and marked `where_it_lives`.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar, cast

from derive.checker.wire import HEAD, LENGTH, Kept, Reader, Writer
from derive.errors import DeriveError, Diagnostic

Function = TypeVar("Function", bound=Callable[..., Any])


class CannotRunError(Exception):
    """The code does not run; `line` is the line of the user's file, if it is known.

    The findings are what was told of the code before, where it was not loaded; the statements what
    it says of its sizes where it stops.
    """

    def __init__(
        self,
        says: str,
        line: int | None = None,
        *,
        is_incurable: bool = False,
        findings: tuple[Diagnostic, ...] = (),
        statements: tuple[Any, ...] = (),
    ) -> None:
        super().__init__(says)
        self.line = line
        self.statements = statements
        self.findings = findings
        self.is_incurable = is_incurable  # would it fail at whatever sizes


class EndedError(BaseException):
    """The process that runs the code is no more; no `except Exception` may go on without it."""


@dataclass(frozen=True)
class Remote(Kept):
    """An object of the other process."""

    link: Link = field(repr=False, compare=False)


@dataclass(frozen=True)
class Failure:
    """An exception of the other process, in words."""

    kind: str
    says: str
    line: int | None = None
    is_incurable: bool = False
    statements: tuple[Any, ...] = ()
    diagnostic: Diagnostic | None = None
    findings: tuple[Diagnostic, ...] = ()


class Link:
    """The way to the process that runs the code, and the seconds that it may take in one stage."""

    def __init__(self, end: socket.socket, classes: dict[str, type], seconds: float) -> None:
        self.end, self.classes = end, classes
        self.seconds = self.left = seconds
        self.why = ""
        self.find_end: Callable[[], str] = str

    def ask(self, name: str, *args: Any, **named: Any) -> Any:
        """What a function of the other process gives; EndedError where nothing comes."""
        if self.why:
            raise EndedError(self.why)
        begun = time.monotonic()
        tower = _find_tower(args)
        try:
            frame = Writer(self.classes).frame((name, tower, args, named))
            self.end.settimeout(max(self.left, 1e-3))
            self.end.sendall(frame)
            length, behind = HEAD.unpack(self._receive(HEAD.size, begun))
            if length + behind > LENGTH:
                raise ValueError("an answer of too many bytes")
            header, data = self._receive(length, begun), self._receive(behind, begun)
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
        if isinstance(found, Failure):
            raise to_error(found)
        return found

    def restart(self) -> None:
        """Another stage is under way, which has all the seconds."""
        self.left = self.seconds

    def _end(self, why: str) -> None:
        self.why = why
        raise EndedError(why)

    def _receive(self, count: int, begun: float) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            self.end.settimeout(max(self.left - (time.monotonic() - begun), 1e-3))
            part = self.end.recv(min(count - len(parts), 1 << 20))
            if not part:
                raise ConnectionError
            parts += part
        return bytes(parts)


def to_failure(error: CannotRunError) -> Failure:
    """The error in words."""
    return Failure(
        "CannotRunError",
        str(error),
        error.line,
        error.is_incurable,
        findings=error.findings,
        statements=error.statements,
    )


def to_error(failure: Failure) -> Exception:
    """The exception that is said in these words."""
    from derive.judge.fields import NotModelledError, TooDeepError, UnluckyError

    if failure.diagnostic is not None:
        return DeriveError(failure.diagnostic)
    for kind in (NotModelledError, TooDeepError, UnluckyError):
        if kind.__name__ == failure.kind:
            return kind(failure.says)
    return CannotRunError(
        failure.says,
        failure.line,
        is_incurable=failure.is_incurable,
        statements=failure.statements,
        findings=failure.findings,
    )


def _find_tower(args: tuple[Any, ...]) -> Any:
    """The tower of the residues among the arguments, if a run over one is asked for."""
    from derive.judge.fields.tower import draw_tower

    seeds = (getattr(each, "tower", None) for each in args)
    return next((draw_tower(*seed) for seed in seeds if seed is not None), None)


def find_remote(target: Any) -> Remote | None:
    """What of an object lives elsewhere: itself, the target of code, the tree of a script."""
    while target is not None and not isinstance(target, Remote):
        holds = (getattr(target, name, None) for name in ("code", "target", "script", "tree"))
        target = next((inner for inner in holds if inner is not None), None)
    return target


def where_it_lives(function: Function) -> Function:
    """The function of an object, done in the process where the object lives."""

    @wraps(function)
    def act(target: Any, *args: Any, **named: Any) -> Any:
        remote = find_remote(target)
        if remote is None:
            return function(target, *args, **named)
        return remote.link.ask(function.__name__, target, *args, **named)

    return cast("Function", act)


def find_kind(target: Any) -> str:
    """Is it a class of modules, a module, or a function?"""
    if isinstance(target, Kept):
        return target.kind
    import torch

    if isinstance(target, type):
        return "class"
    return "module" if isinstance(target, torch.nn.Module) else "function"
