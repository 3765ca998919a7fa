"""Random towers of prime fields p0 > p1 > ..., where p_{k+1} divides p_k - 1, and their arithmetic.

An element w_k of order p_{k+1} modulo p_k makes `exp` exact: level k of exp(x) is w_k to the power
of level k+1 of x, so that exp(a + b) = exp(a) exp(b) in every entry, without rounding. Every prime
is 3 modulo 4, so that a root of a square is a power of it, and small primes are squares modulo it.
Residues are int64 tensors; -1 marks an unknown residue.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial, reduce
from itertools import pairwise
from math import isqrt
from random import Random
from typing import Any

import torch

TOP = 1 << 31  # products of two residues fit into 64 bits
_BITS = {1: 20, 2: 11, 3: 8}  # bits of the smallest prime, by depth
# Primes with a square root at every level.
_SQUARES: dict[int, tuple[int, ...]] = {1: (2, 3, 5, 7, 11, 13), 2: (2, 3, 5, 7), 3: (2, 3)}
DEEPEST = max(_BITS)


@dataclass(frozen=True)
class Tower:
    """The primes in descending order, the bases of the exponentials, and a key for hashes."""

    primes: tuple[int, ...]
    bases: tuple[int, ...]
    squares: tuple[int, ...]  # small primes that are squares modulo all primes
    key: int  # the key of hashes; odd for odd seeds

    @property
    def depth(self) -> int:
        """The largest depth of nested exponentials."""
        return len(self.bases)

    @property
    def levels(self) -> int:
        """The number of primes."""
        return len(self.primes)

    def embed(self, value: Fraction | int) -> tuple[int, ...]:
        """The residues of a rational, level by level; -1 where its denominator is 0."""
        found = []
        for prime in self.primes:
            below = value.denominator % prime
            found.append(value.numerator * pow(below, -1, prime) % prime if below else -1)
        return tuple(found)


@lru_cache(maxsize=64)
def draw_tower(seed: int, depth: int = 1) -> Tower:
    """The tower of a seed, for up to `depth` nested exponentials, 1 to DEEPEST."""
    dice = Random(1_000_003 * depth + seed)
    squares = _SQUARES[depth]
    primes = None
    while primes is None:
        primes = _draw_primes(dice, depth, squares)
    bases = []
    for prime, order in pairwise(primes):
        base = 1
        while base == 1:
            base = pow(dice.randrange(2, prime), (prime - 1) // order, prime)
        bases.append(base)
    return Tower(primes, tuple(bases), squares, dice.getrandbits(60) << 1 | seed & 1)


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
    """Whether a number is a prime, 3 modulo 4, modulo which the `squares` are squares."""
    return (
        number % 4 == 3
        and all(pow(s, number // 2, number) == 1 for s in squares)
        and is_prime(number)
    )


def is_prime(number: int) -> bool:
    """Whether a number is prime, by division."""
    return number > 1 and all(number % k for k in range(2, isqrt(number) + 1))


UNKNOWN = -1
_MIX = (-7046029254386353131, -4658895280553007687, -7723592293110705685)  # odd, 64 bits
_MOST_SUMMANDS = 1 << 14
_FIRST = 1 << 13  # the number of tabulated powers of a base and the length of a giant step


def keep_unknown(found: Any, *given: Any) -> Any:
    """The results, unknown where one of the operands is unknown."""
    for each in given:
        if bool((each < 0).any()):
            found = found.masked_fill(each.expand_as(found) < 0, UNKNOWN)
    return found


def multiply(one: Any, other: Any, prime: int) -> Any:
    """The product; zero times an unknown residue is unknown."""
    return keep_unknown(one * other % prime, one, other)


def add(one: Any, other: Any, prime: int) -> Any:
    """The sum of residues."""
    return keep_unknown((one + other) % prime, one, other)


def take_power(base: Any, exponent: int, prime: int) -> Any:
    """The residues to the power of `exponent`, which is >= 0."""
    found, square, left = torch.ones_like(base), base, exponent
    while left:
        if left & 1:
            found = found * square % prime
        square, left = square * square % prime, left >> 1
    return keep_unknown(found, base)


def raise_each(bases: Any, exponents: Any, prime: int) -> Any:
    """Residues, or one number, to elementwise exponents of either sign."""
    bases = torch.as_tensor(bases)
    if bool((exponents < 0).any()):
        bases = torch.where(exponents < 0, invert(bases, prime), bases)
    found, square, left = torch.ones_like(exponents), bases.clamp(min=0), exponents.abs()
    while bool((left > 0).any()):
        found = torch.where((left & 1).bool(), found * square % prime, found)
        square, left = square * square % prime, left >> 1
    return keep_unknown(found, bases)


def invert(residues: Any, prime: int) -> Any:
    """The reciprocals; unknown where the residue is zero."""
    found = take_power(residues, prime - 2, prime)
    return found.masked_fill(residues <= 0, UNKNOWN)


def matmul(one: Any, other: Any, prime: int) -> Any:
    """The matrix product of residues, the factors split so that no sum overflows."""
    if one.shape[-1] > _MOST_SUMMANDS:
        raise OverflowError("too many summands")
    low, high = one & 0xFFFF, one >> 16
    found = ((high @ other % prime) * 65536 + low @ other) % prime
    missing = (one < 0).any(-1), (other < 0).any(-2)
    if bool(missing[0].any()) or bool(missing[1].any()):
        found = found.masked_fill(missing[0].unsqueeze(-1) | missing[1].unsqueeze(-2), UNKNOWN)
    return found


def reduce_product(residues: Any, dim: int, prime: int, keepdim: bool = False) -> Any:
    """The product of residues along one dimension."""
    one = residues.new_ones(residues.sum(dim, keepdim=keepdim).shape)
    parts = residues.split(1, dim) if residues.shape[dim] else ()
    each = (part if keepdim else part.squeeze(dim) for part in parts)
    return reduce(partial(multiply, prime=prime), each, one)


def find_character(residues: Any, prime: int) -> Any:
    """The quadratic character: 1 for squares, -1 for nonsquares, 0 for zero and unknown."""
    found = take_power(residues.clamp(min=0), (prime - 1) // 2, prime)
    return found - prime * (found > 1)


def center(residues: Any, prime: int) -> Any:
    """The residues between -p/2 and p/2."""
    return residues - prime * (residues > prime // 2)


def hash_residues(key: int, *parts: Any) -> Any:
    """A fixed random function of the parts, with 62 bits."""
    state = torch.full_like(parts[0], key)
    for part in parts:
        mixed = state ^ (part * _MIX[0])
        mixed = (mixed ^ ((mixed >> 30) & ((1 << 34) - 1))) * _MIX[1]
        mixed = (mixed ^ ((mixed >> 27) & ((1 << 37) - 1))) * _MIX[2]
        state = mixed ^ ((mixed >> 31) & ((1 << 33) - 1))
    return state & ((1 << 62) - 1)


def take_logarithm(residues: Any, tower: Tower, level: int) -> Any:
    """The discrete logarithm at level + 1, by baby steps and giant steps.

    The residue is projected to the group that the base generates. So the logarithm is a
    homomorphism of all nonzero residues, and inverts the powers of the base.
    """
    prime, order = tower.primes[level], tower.primes[level + 1]
    rest = (prime - 1) // order
    projected = take_power(residues.clamp(min=1), rest * pow(rest, -1, order), prime)
    powers, exponents, steps = _list_powers(tower, level)
    tried = projected.unsqueeze(-1) * steps % prime  # one of them is a tabulated power
    place = torch.searchsorted(powers, tried).clamp(max=len(powers) - 1)
    step = (powers[place] == tried).long().argmax(-1, keepdim=True)
    first = exponents[place.gather(-1, step)]
    found = ((step * _FIRST + first) % order).squeeze(-1)
    return found.masked_fill(residues <= 0, UNKNOWN)


@lru_cache(maxsize=64)
def _list_powers(tower: Tower, level: int) -> tuple[Any, Any, Any]:
    """The first powers of a base, sorted, their exponents, and the factors of giant steps."""
    prime, order, base = tower.primes[level], tower.primes[level + 1], tower.bases[level]
    powers, exponents = torch.sort(_list_first(base, min(_FIRST, order), prime))
    back = pow(base, -_FIRST, prime)
    return powers.contiguous(), exponents, _list_first(back, order // _FIRST + 1, prime)


def _list_first(base: int, count: int, prime: int) -> Any:
    found, value = [], 1
    for _ in range(count):
        found.append(value)
        value = value * base % prime
    return torch.tensor(found, dtype=torch.int64)
