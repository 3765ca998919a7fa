"""The machine that a plan is made for: rates and latencies of one thread in float32, and memory.

The defaults are those of an ordinary server core (AMD EPYC, 1 MiB of L2 and 32 MiB of L3, a virtual
machine), measured by sums of two tensors of 128 KiB to 128 MiB. A plan depends on them, so other
constants come only from a file that is named: `derive bench --calibrate FILE` measures and writes
it, `derive build --machine FILE` reads it. Without one a formula gives the same bytes everywhere.
"""

import json
import re
from dataclasses import asdict, dataclass, fields
from math import log2
from pathlib import Path

from derive.errors import refuse

WIDTH = 4  # bytes of a float32
KEPT = 1 << 25  # bytes of a tensor from which malloc gives it back, as what is free beyond twice

EACH = 2  # bytes of nearby memory in whose time a call does one operation on an element
AGAIN = 2  # times the rate of nearby memory at which what was just read is read again
NARROW = 16  # rows or columns below which a matrix product does not reach the full rate
# In whose time one value of exp is found: an element that does not lie beside the one before is
# read, one is picked by a mask of its own or by that of a row, two are compared or a truth value
# becomes a number, a row of a reduction is begun, or a call that goes through two rows for each
# entry of its result does a number of them; it is begun in that of `BEGUN` numbers. Measured as the
# machine's defaults, the last two by torch.cdist of 3 to 128 dimensions: 0.4 to 0.9 ns a number.
STRIDED, MASKED, PICKED, COMPARED, ROW, SINGLE, BEGUN = 1, 2, 0.6, 0.5, 4, 0.45, 4
# The same for a run of entries that an elementwise operation goes through at once: 2 to 2.5 ns.
RUN = 2
# The same for one position that is taken of what does not lie in one piece: 65 to 110 ns. Of what
# does, for the entries that lie together behind the place: 2 to 4 ns; by torch.gather 0.7 ns.
TAKEN, PLACED, GATHERED = 70, 2, 0.6
# The same for a value of a linear recurrence, and the launches of its chunks: 3 to 7 ns a value
# and 0.15 ms, from 256 rows of 256 places to 64 of 4096.
RECURRED, CHUNKED = 4, 40


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
    transforms: float = 1e10  # real numbers, times log2 of the length, by Fourier transforms


DEFAULT = Machine()


# A transform whose length has a factor of that many, 11 and more, takes so many times as long, and
# not longer than with a `LARGEST` one: 2 times with 17, 4 with 61, 8 with 127 and with 509.
FACTOR, LARGEST = 20, 150


def time_moved(moved: int, machine: Machine) -> float:
    """The time to read and write so many bytes, which stay near where they all can."""
    return moved / (machine.cached if moved <= machine.cache else machine.memory)


def time_pages(made: int, machine: Machine) -> float:
    """The time in which the system gives out the memory of a new tensor of so many bytes."""
    return made / machine.pages if made >= KEPT else 0.0


def time_returned(alive: int, machine: Machine) -> float:
    """The time to get back what malloc returns to the system when a plan is through.

    It returns all that is free where that is more than twice the largest tensor it has met so far,
    of those below `KEPT`: in a process that works, one of half of that, or of nearly all. Measured
    by the page faults of 1 to 6 tensors of 2 to 40 MiB: of less there are none, of more each page.
    """
    return min(alive, max(0, 2 * (alive - KEPT))) / machine.pages


def time_transform(
    count: int, length: int, kind: str, machine: Machine, *, is_padded: bool
) -> float:
    """The time of Fourier transforms over so many numbers in all: of real ones by half the steps.

    Torch begins one in the time of three operations; zeros after the entries are a copy.
    """
    left = length
    for prime in (2, 3, 5, 7):
        while left > 1 and left % prime == 0:
            left //= prime
    slower = 1 + min(left, LARGEST) / FACTOR if left > 1 else 1
    steps = (1 if "r" in kind else 2) * max(1, log2(max(1, length))) * slower
    padding = machine.launch + time_moved(2 * WIDTH * count, machine) if is_padded else 0.0
    return 2 * machine.launch + count * steps / machine.transforms + padding


def read_machine(path: str | Path) -> Machine:
    """The constants in a file that `derive bench --calibrate` wrote; DeriveError for others."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise refuse("machine-file", f"{path} cannot be read: {error}") from error
    known = {field.name for field in fields(Machine)}
    fits = isinstance(data, dict) and set(data) | {"pages", "transforms"} == known
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
