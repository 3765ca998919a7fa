"""What operations cost on a machine: rates and latencies of one thread in float32.

The defaults are those of an ordinary server core. A plan depends on them, so other constants come
only from a file that is named: `derive bench --calibrate FILE` measures and writes it, `derive
build --machine FILE` reads it. Without one a formula gives the same bytes everywhere.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from derive.errors import refuse

WIDTH = 4  # bytes of a float32


@dataclass(frozen=True, slots=True)
class Machine:
    """Rates in one second, seconds, and bytes."""

    flops: float = 9e10  # operations of a large matrix product; a multiply-add counts two
    memory: float = 6e9  # bytes read or written beyond the caches
    near: float = 2.5e10  # bytes read or written within the cache
    cache: int = 1 << 25  # bytes that stay near one core
    launch: float = 3e-6  # seconds that one operation takes at the least
    product: float = 3e-7  # seconds that one matrix of a batched product takes at the least
    exponentials: float = 8e8  # values of exp, log, tanh and their like


DEFAULT = Machine()


def read_machine(path: str | Path) -> Machine:
    """The constants in a file that `derive bench --calibrate` wrote; DeriveError for others."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise refuse("machine-file", f"{path} cannot be read: {error}") from error
    known = {field.name for field in fields(Machine)}
    fits = isinstance(data, dict) and set(data) == known
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
