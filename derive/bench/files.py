"""Files that are written whole or not at all: beside the place, then renamed."""

from __future__ import annotations

import os
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from derive.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from derive.errors import DeriveError


def check_writable(path: Path) -> None:
    """Refuse a path that could not be written, before minutes of measuring."""
    if path.is_dir():
        raise refuse("file-unwritable", f"{path} is a folder", help="name a file")
    try:
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise _refuse(path, error) from error


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make the file beside its place, and put it there."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write(beside)
        beside.replace(path)
    except OSError as error:
        raise _refuse(path, error) from error
    finally:
        beside.unlink(missing_ok=True)


def _refuse(path: Path, error: OSError) -> DeriveError:
    reason = error.strerror or str(error)
    return refuse("file-unwritable", f"cannot write {path}: {reason}", help="name another file")
