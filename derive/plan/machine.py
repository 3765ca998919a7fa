"""The machine that a plan is made for: rates and latencies of one thread in float32, and memory.

The defaults are those of an ordinary server core (AMD EPYC, 1 MiB of L2 and 32 MiB of L3, a virtual
machine), measured by sums of two tensors of 128 KiB to 128 MiB. A plan depends on them, so other
constants come only from a file that is named: `derive bench --calibrate FILE` measures and writes
it, `derive build --machine FILE` reads it. Without one a formula gives the same bytes everywhere.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from derive.errors import refuse

WIDTH = 4  # bytes of a float32
KEPT = 1 << 25  # bytes of a tensor from which malloc gives it back, as what is free beyond twice


@dataclass(frozen=True, slots=True)
class Machine:
    """Rates in one second, seconds, and bytes."""

    flops: float = 9e10  # operations of a large matrix product; a multiply-add counts two
    memory: float = 2e10  # bytes read or written beyond the caches
    cached: float = 3e10  # bytes read or written within the cache, by chains over blocks
    cache: int = 1 << 24  # bytes that stay near one core
    launch: float = 3e-6  # seconds that one operation takes at the least
    product: float = 3e-7  # seconds that one matrix of a batched product takes at the least
    exponentials: float = 8e8  # values of exp, log, tanh and their like
    pages: float = 2e9  # bytes of a tensor from `KEPT` on that the system gives out and clears


DEFAULT = Machine()


def read_machine(path: str | Path) -> Machine:
    """The constants in a file that `derive bench --calibrate` wrote; DeriveError for others."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise refuse("machine-file", f"{path} cannot be read: {error}") from error
    known = {field.name for field in fields(Machine)}
    fits = isinstance(data, dict) and set(data) | {"pages"} == known
    if not fits or not all(type(n) in (int, float) and n > 0 for n in data.values()):
        raise refuse(
            "machine-file",
            f"{path} does not hold the constants of a machine",
            facts=(f"wanted: {', '.join(sorted(known))}, numbers above 0",),
            help="make one with: derive bench --calibrate FILE",
        )
    return Machine(**{**data, "cache": int(data["cache"])})


def to_json(machine: Machine) -> str:
    """The text of such a file."""
    return json.dumps(asdict(machine), indent=2) + "\n"


UNITS = {"": 1, "B": 1, "K": 10**3, "KB": 10**3, "M": 10**6, "MB": 10**6, "G": 10**9, "GB": 10**9}
UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}


def parse_memory(memory: int | str) -> int:
    """The bytes of 256MiB, 2GB or a plain number; DeriveError for anything else."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(memory))
    unit = UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None or isinstance(memory, bool) or float(found[1]) <= 0:
        raise refuse(
            "memory-amount",
            f"{memory} is no amount of memory",
            help="write a number of bytes, or one with a unit: 256MiB, 2GB",
        )
    return int(float(found[1]) * unit)


def to_bytes(count: int) -> str:
    """An amount of memory as a person reads it."""
    value = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"


def round_up(count: int) -> str:
    """An amount that is enough, as it is typed."""
    unit, size = next((u, s) for u, s in _ROUND if count >= s)
    return f"{-(-count // size)}{unit}"


_ROUND = (("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))
