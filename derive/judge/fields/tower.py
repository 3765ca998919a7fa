"""Random towers of prime fields p0 > p1 > ..., where p_{k+1} divides p_k - 1.

An element w_k of order p_{k+1} modulo p_k makes `exp` exact: level k of exp(x) is w_k to the power
of level k+1 of x, so that exp(a + b) = exp(a) exp(b) in every entry, with no rounding. Every prime
is 3 modulo 4, so that a root of a square is a power of it, and small primes are squares modulo it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from random import Random

TOP = 1 << 31  # products of two residues fit into 64 bits
_BITS = {1: 20, 2: 11, 3: 8}  # of the smallest prime, by depth
_SQUARES = {
    1: (2, 3, 5, 7, 11, 13),
    2: (2, 3, 5, 7),
    3: (2, 3),
}  # primes that have a root at every level
DEEPEST = max(_BITS)


@dataclass(frozen=True)
class Tower:
    """Primes from the largest down, the bases of the exponentials, and a key for hashes."""

    primes: tuple[int, ...]
    bases: tuple[int, ...]
    squares: tuple[int, ...]
    key: int  # of hashes; odd for every other seed

    @property
    def depth(self) -> int:
        """How deep exponentials may nest."""
        return len(self.bases)

    @property
    def levels(self) -> int:
        """The number of primes."""
        return len(self.primes)

    def embed(self, value: Fraction | int) -> tuple[int, ...]:
        """The residues of a rational, level by level; -1 where it has none."""
        found = []
        for prime in self.primes:
            below = value.denominator % prime
            found.append(value.numerator * pow(below, -1, prime) % prime if below else -1)
        return tuple(found)


@lru_cache(maxsize=64)
def draw_tower(seed: int, depth: int = 1) -> Tower:
    """The tower of a seed; `depth` exponentials, 1 to DEEPEST, may nest in it."""
    dice = Random(1_000_003 * depth + seed)
    squares = _SQUARES[depth]
    primes = None
    while primes is None:
        primes = _draw_primes(dice, depth, squares)
    bases = tuple(_draw_base(dice, p, q) for p, q in pairwise(primes))
    return Tower(primes, bases, squares, dice.getrandbits(60) << 1 | seed & 1)


def _draw_primes(dice: Random, depth: int, squares: tuple[int, ...]) -> tuple[int, ...] | None:
    bits = _BITS[depth]
    prime = dice.randrange(1 << bits, 1 << (bits + 1)) | 3
    while not _is_good(prime, squares):
        prime += 4
    primes = [prime]
    for left in range(depth, 0, -1):
        limit = TOP // primes[-1] if left == 1 else int((TOP / primes[-1]) ** (1 / left) * 2)
        factor = 2 * dice.randrange(1, max(2, limit // 4))
        while not _is_good(factor * primes[-1] + 1, squares):
            factor += 2
            if factor > limit:
                return None
        primes.append(factor * primes[-1] + 1)
    return tuple(reversed(primes)) if primes[-1] < TOP else None


def _is_good(number: int, squares: tuple[int, ...]) -> bool:
    """A prime that is 3 modulo 4, modulo which the small primes are squares."""
    if number % 4 != 3 or any(pow(s, (number - 1) // 2, number) != 1 for s in squares):
        return False
    return is_prime(number)


def is_prime(number: int) -> bool:
    """Miller and Rabin; the witnesses 2, 3, 5, 7 decide below 3.2e9."""
    small = (2, 3, 5, 7)
    if number < 11 or any(number % each == 0 for each in small):
        return number in small
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for witness in small:
        power = pow(witness, odd, number)
        if power in {1, number - 1}:
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def _draw_base(dice: Random, prime: int, order: int) -> int:
    """An element of this order."""
    while True:
        found = pow(dice.randrange(2, prime), (prime - 1) // order, prime)
        if found != 1:
            return found
