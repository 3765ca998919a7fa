"""What a process that runs somebody's code can reach, made as little as the system allows.

    user, process and network namespaces   it sees no process but its own, and no network
    a session of its own, a subreaper      where there are none: what it starts ends with it
    limits                                 memory, no core files
    descriptors                            none but those that are named
    a fresh folder                         where it runs; imports find what they found before

What the system refuses is left out; `isolate` says what was had.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

_PARENT_DEATH, _DUMPABLE, _SUBREAPER = 1, 4, 36  # of prctl
_USER, _PROCESSES, _NETWORK = 0x10000000, 0x20000000, 0x40000000  # of unshare
NAMESPACES = {"processes": _PROCESSES, "network": _NETWORK}


def set_process(option: int, value: int) -> None:
    """One option of this process, where the system knows it."""
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def end_with_parent() -> None:
    """This process is killed when the one that made it ends."""
    set_process(_PARENT_DEATH, signal.SIGKILL)


def guard() -> None:
    """Nobody may read this process's memory or descriptors; what its children leave is its own."""
    set_process(_DUMPABLE, 0)
    set_process(_SUBREAPER, 1)


def isolate() -> tuple[str, ...]:
    """The namespaces that were had; the process ids begin with the next child."""
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
    """Every child of this process is killed, and what those leave behind."""
    for _ in range(1000):
        for child in _list_children():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, 0)[0]:
                pass
        except ChildProcessError:
            return


def _list_children() -> list[int]:
    found: list[int] = []
    for path in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, path.read_text(encoding="ascii").split())
    return found


def close_others(*kept: int) -> None:
    """Close every descriptor but the first three and those that are named."""
    last = 3
    for one in sorted({*kept}):
        os.closerange(last, one)
        last = max(last, one + 1)
    os.closerange(last, os.sysconf("SC_OPEN_MAX"))


def be_quiet() -> None:
    """What is printed goes nowhere, and what is read is empty."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    sys.stdout = sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
    sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 - until the end


def limit_memory(most: int) -> None:
    """Bytes that this process may take beyond what it has; it leaves no core file."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + most, now + most))


def enter(folder: str) -> None:
    """Run in a folder; relative places to import from stay what they were."""
    sys.path[:] = [os.path.abspath(place) for place in sys.path]
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.chdir(folder)
