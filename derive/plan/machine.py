"""The machine that a plan is made for: rates and latencies of one thread in float32, and memory.

The defaults were measured on a server core (AMD EPYC, 1 MiB of L2 and 32 MiB of L3, a virtual
machine), by sums of two tensors of 128 KiB to 128 MiB: medians over interleaved runs, less the time
of the smallest operation. The output for a formula is the same on every machine.
"""

import re
from math import log2

from derive.errors import refuse

WIDTH = 4  # bytes of a float32
KEPT = 1 << 25  # bytes from which malloc returns a tensor; half of its trim threshold

EACH = 2  # bytes from cache that take as long as one operation of a call on an element
NARROW = 16  # rows or columns below which a matrix product does not reach the full rate
# The unit of the following costs is one value of exp: a strided read (STRIDED), a choice by an
# elementwise mask (MASKED) or by a mask of rows (PICKED), a comparison or a cast of a truth value
# (COMPARED), the start of a row of a reduction (ROW), a number in a call that walks two rows for
# each entry of its result (SINGLE), and the start of such an entry in numbers (BEGUN). The last two
# were measured by torch.cdist of 3 to 128 dimensions: 0.4 to 0.9 ns a number.
STRIDED, MASKED, PICKED, COMPARED, ROW, SINGLE, BEGUN = 1, 2, 0.6, 0.5, 4, 0.45, 4
# The start of an inner loop of an elementwise operation: 2 to 2.5 ns.
RUN = 2
# One indexed position of a non-contiguous tensor (65 to 110 ns), one contiguous run of entries of a
# contiguous tensor (2 to 4 ns), and one entry of torch.gather (0.7 ns).
TAKEN, PLACED, GATHERED = 70, 2, 0.6
# One value of a linear recurrence (3 to 7 ns), and the launches of its chunks (0.15 ms): measured
# from 256 rows of 256 positions to 64 rows of 4096.
RECURRED, CHUNKED = 4, 40


# Rates per second, latencies in seconds, and amounts in bytes.
FLOPS = 9e10  # operations of a large matrix product; a multiply-add counts two
MEMORY = 2e10  # bytes read or written beyond the caches
CACHED = 3e10  # bytes read or written within the cache, by chains over blocks
AGAIN = 2  # rate of rereading recently read entries, over that of the cache
CACHE = 1 << 24  # bytes of cache for one core
LAUNCH = 3e-6  # least seconds of one operation
PRODUCT = 3e-7  # least seconds of one matrix in a batched product
EXPONENTIALS = 8e8  # values of exp, log, tanh and their like
PAGES = 2e9  # bytes of fresh pages, for tensors from `KEPT` on
TRANSFORMS = 1e10  # real numbers * log2(length) by Fourier transforms
# A prime factor p >= 11 of the length slows a transform down by 1 + p / FACTOR, with p at most
# LARGEST: 2 times with 17, 4 with 61, 8 with 127 and with 509.
FACTOR, LARGEST = 20, 150


def time_moved(moved: int, again: int = 1) -> float:
    """The time to read and write so many bytes, from cache if they fit: at `again` its rate."""
    return moved / (again * CACHED if moved <= CACHE else MEMORY)


def time_pages(made: int) -> float:
    """The time of the page faults of a new tensor of so many bytes."""
    return made / PAGES if made >= KEPT else 0.0


def time_returned(alive: int) -> float:
    """The time of page faults for memory that malloc returns to the system after each run.

    Malloc trims free memory above twice the largest tensor below `KEPT` so far, which in a running
    process is between half of `KEPT` and `KEPT`. Measured by page faults of 1 to 6 tensors of 2 to
    40 MiB: none below the threshold, one for each page above it.
    """
    return min(alive, max(0, 2 * (alive - KEPT))) / PAGES


def time_transform(count: int, length: int, kind: str, *, is_padded: bool) -> float:
    """The time of Fourier transforms of `count` numbers in total; real ones take half the steps.

    The launch takes as long as that of three operations; padding is a copy.
    """
    left = length
    for prime in (2, 3, 5, 7):
        while left > 1 and left % prime == 0:
            left //= prime
    slower = 1 + min(left, LARGEST) / FACTOR if left > 1 else 1
    steps = (1 if "r" in kind else 2) * max(1, log2(max(1, length))) * slower
    padding = LAUNCH + time_moved(2 * WIDTH * count) if is_padded else 0.0
    return 2 * LAUNCH + count * steps / TRANSFORMS + padding


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
    """An amount of memory with a unit, to be read."""
    value = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"


def round_up(count: int) -> str:
    """An amount of memory rounded up, to be typed as an option."""
    unit, size = next((u, s) for u, s in _ROUND if count >= s)
    return f"{-(-count // size)}{unit}"


_ROUND = (("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))
