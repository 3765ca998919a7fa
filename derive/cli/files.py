"""Read a formula file: Python, run as such since the user named it, or text in the notation.

What goes wrong in the file is shown as the file's name, line and columns, never as our traceback.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any

from derive.errors import DeriveError, Mark, refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.notation.formula import Formula

MODULE = "formula_file"  # the name under which a file runs; it hides no module of that file's name
START = 'write one as a module-level variable, or start from "derive new NAME"'


def show_path(path: Path) -> str:
    """The path as it was given; an absolute one from where we stand, else its name alone."""
    if not path.is_absolute():
        return path.as_posix()
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name


def read_text(path: Path, shown: str) -> str:
    """The file's text; DeriveError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse("file-unreadable", f"{shown} is not UTF-8 text") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise refuse("file-unreadable", f"cannot read {shown}: {reason}") from error


def run_file(path: Path, shown: str) -> dict[str, Formula]:
    """The formulas of a Python file by name, in the file's order.

    A formula without a name takes that of its first variable; variables that start with `_` are the
    file's own. `shown` is the path as messages have it.
    """
    from derive.formulas import UNNAMED
    from derive.notation.formula import Formula

    names = _run(_File(path, shown, read_text(path, shown)))
    formulas: dict[str, Formula] = {}
    for variable, value in names.items():
        if not isinstance(value, Formula) or variable.startswith("_"):
            continue
        if any(value is other for other in formulas.values()):
            continue
        name = variable if value.name in UNNAMED else value.name
        if name in formulas:
            says = f"{shown} has two formulas of the name {name}"
            raise refuse("formula-twice", says, help="give one of them another name")
        formulas[name] = value
    if not formulas:
        raise refuse("file-empty", f"{shown} has no formula", help=START)
    return formulas


@dataclass(frozen=True, slots=True)
class _File:
    """A Python file, the path as messages have it, and its text."""

    path: Path
    shown: str
    text: str

    def find_place(self, error: BaseException) -> tuple[int, tuple[Mark, ...]] | None:
        """The number of the last line of the file that was running, and its columns."""
        frames = [f for f in extract_tb(error.__traceback__) if f.filename == str(self.path)]
        if not frames or not frames[-1].lineno:
            return None
        frame, number = frames[-1], frames[-1].lineno
        lines = self.text.split("\n")
        line = lines[number - 1] if number <= len(lines) else ""
        if not line.strip() or frame.colno is None or frame.end_colno is None:
            return number, ()
        start = _to_column(line, frame.colno)
        end = _to_column(line, frame.end_colno) if frame.end_lineno == number else len(line)
        return number, (_mark(line, start, end),)


def _run(file: _File) -> dict[str, Any]:
    """The names that the file defines."""
    try:
        code = compile(file.text, str(file.path), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise _from_syntax(error, file) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise refuse("file-syntax", f"{file.shown} is no Python: {error}") from error
    module = ModuleType(MODULE)
    module.__file__ = str(file.path)
    try:
        with _registered(module, file.path.parent), redirect_stdout(sys.stderr):
            exec(code, module.__dict__)
    except DeriveError as error:
        place = file.find_place(error)
        where = f"in {file.shown}, line {place[0]}" if place else f"in {file.shown}"
        facts = (*error.diagnostic.facts, where)
        raise DeriveError(replace(error.diagnostic, facts=facts)) from error
    except (Exception, SystemExit) as error:
        raise _from_exception(error, file) from error
    return module.__dict__


@contextmanager
def _registered(module: ModuleType, folder: Path) -> Iterator[None]:
    """While the file runs: it is a module, and finds its neighbours behind what is installed."""
    before = list(sys.path)
    sys.modules[MODULE] = module
    sys.path.append(str(folder.resolve()))
    try:
        yield
    finally:
        sys.path[:] = before
        del sys.modules[MODULE]


def _from_syntax(error: SyntaxError, file: _File) -> DeriveError:
    where = f"{file.shown}:{error.lineno}" if error.lineno else file.shown
    marks = []
    if error.text and error.lineno:
        line = error.text.rstrip("\n")
        start = max(0, (error.offset or 1) - 1)
        end = (error.end_offset or 0) - 1 if error.end_lineno == error.lineno else 0
        marks = [_mark(line, start, end)]
    return refuse("file-syntax", f"{where} is no Python: {error.msg}", marks=marks)


def _from_exception(error: BaseException, file: _File) -> DeriveError:
    first, *others = f"{type(error).__name__}: {error}".removesuffix(": ").splitlines()
    place = file.find_place(error)
    if place is None:
        return refuse("file-raises", f"{file.shown} raises {first}", facts=others)
    number, marks = place
    return refuse("file-raises", f"{file.shown}:{number} raises {first}", marks=marks, facts=others)


def _mark(line: str, start: int, end: int) -> Mark:
    """The line without its indentation, and the columns in it."""
    lead = len(line) - len(line.lstrip())
    first = max(0, start - lead)
    return Mark(line.strip(), first, max(first + 1, end - lead))


def _to_column(line: str, offset: int) -> int:
    """The column of an offset that Python counts in bytes."""
    return len(line.encode()[:offset].decode(errors="replace"))
