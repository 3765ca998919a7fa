"""The files of a source tree, and the text of each as Python: a file, or a notebook's code cells.

A folder is searched without what is hidden, kept by tools (`__pycache__`, `node_modules`) or a
virtual environment; a file or folder that is named is read whatever it is called. Only files that
mention an einsum are parsed, since others cannot hold one.
"""

from __future__ import annotations

import ast
import os
import re
import warnings
from dataclasses import dataclass
from fnmatch import fnmatch
from io import BytesIO
from pathlib import Path, PurePath
from tokenize import detect_encoding
from typing import TYPE_CHECKING

from derive.errors import refuse
from derive.frontend.notebooks import Cells, read_cells

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_KEPT_BY_TOOLS = ("__pycache__", "node_modules")
_SUFFIXES = (".py", ".ipynb")
_MENTIONS = re.compile(rb"einsum|einops")


class UnreadableError(Exception):
    """A file that is no text, or no notebook."""


class UnparsableError(Exception):
    """A text that is no Python; `line` and `column` count from 1, 0 where it is not known."""

    def __init__(self, says: str, line: int = 0, column: int = 0) -> None:
        super().__init__(says)
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Source:
    """One file's Python, its lines, and for a notebook the cells they come from."""

    path: str
    text: str
    lines: tuple[str, ...]
    cells: Cells | None = None

    @staticmethod
    def of(path: str, data: bytes) -> Source:
        """The source of a file's bytes; UnreadableError says why there is none."""
        if path.endswith(".ipynb"):
            try:
                cells = read_cells(data)
            except ValueError as error:
                raise UnreadableError(str(error)) from error
            return Source(path, cells.text, tuple(cells.text.split("\n")), cells)
        text = _decode(data)
        return Source(path, text, tuple(text.split("\n")))

    def parse(self) -> ast.Module:
        """The syntax tree; UnparsableError says why there is none."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter(
                    "ignore"
                )  # of escapes such as "\d", which are no concern here
                return ast.parse(self.text)
        except SyntaxError as error:
            raise UnparsableError(error.msg, error.lineno or 0, error.offset or 0) from error
        except (ValueError, RecursionError, MemoryError) as error:
            raise UnparsableError(str(error) or "it is nested too deeply") from error


def mentions_einsum(data: bytes) -> bool:
    """Whether a file's bytes may hold an einsum: its import or its call says the word."""
    return _MENTIONS.search(data) is not None


def find_files(paths: Sequence[str], exclude: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """The files below the paths, each once, in order; and whether the file itself was named.

    A folder that cannot be listed is among them, so that reading it tells why. DeriveError where a
    path is not there.
    """
    for path in paths:
        if not os.path.lexists(path):
            says = f"there is no file or folder {path}"
            raise refuse("path-missing", says, help="correct the path, or leave it out")
    found: dict[str, tuple[str, bool]] = {}
    for path in paths:
        named = not os.path.isdir(path)
        for name in [path] if named else _walk(path):
            shown = PurePath(os.path.normpath(name)).as_posix()
            if not _is_excluded(shown, exclude):
                key = os.path.abspath(name)
                found[key] = (shown, named or found.get(key, ("", False))[1])
    yield from sorted(found.values())


def read(path: str) -> bytes:
    """The bytes of a file; UnreadableError where there are none."""
    try:
        if not os.path.isdir(path) and not os.path.isfile(path) and not os.path.islink(path):
            raise UnreadableError("it is no regular file")
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise UnreadableError(getattr(error, "strerror", None) or str(error)) from error


def _walk(folder: str) -> Iterator[str]:
    refused: list[str] = []
    for here, folders, files in os.walk(folder, onerror=lambda e: refused.append(str(e.filename))):
        folders[:] = sorted(f for f in folders if not _is_left_out(here, f))
        for name in sorted(files):
            path = os.path.join(here, name)
            # sockets and pipes are no sources; a broken link is told of
            is_file = os.path.isfile(path) or os.path.islink(path)
            if name.endswith(_SUFFIXES) and not name.startswith(".") and is_file:
                yield path
    yield from refused


def _is_left_out(here: str, folder: str) -> bool:
    if folder.startswith(".") or folder in _KEPT_BY_TOOLS:
        return True
    return os.path.exists(os.path.join(here, folder, "pyvenv.cfg"))


def _is_excluded(shown: str, exclude: Sequence[str]) -> bool:
    """Whether a pattern fits the path, or the file's name, or a folder above it."""
    parts = PurePath(shown).parts
    for pattern in exclude:
        wanted = pattern.rstrip("/").removeprefix("./")
        wholes = ["/".join(parts[:k]) for k in range(1, len(parts) + 1)]
        if any(fnmatch(name, wanted) for name in (*parts, *wholes)):
            return True
    return False


def _decode(data: bytes) -> str:
    """The text as Python reads it: by its mark or its coding line, UTF-8 without."""
    try:
        encoding, _ = detect_encoding(BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError) as error:
        says = "it is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)
        raise UnreadableError(says) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
