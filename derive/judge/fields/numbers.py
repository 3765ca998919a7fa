"""Arithmetic modulo a prime on int64 tensors of residues; -1 stands for a residue not known."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from derive.judge.fields.tower import Tower

UNKNOWN = -1
_MIX = (-7046029254386353131, -4658895280553007687, -7723592293110705685)  # odd, 64 bits
_MOST_SUMMANDS = 1 << 14
_FIRST = 1 << 13  # powers of a base that are listed


def keep_unknown(found: Any, *given: Any) -> Any:
    """The residues found; not known where one of those given is not."""
    for each in given:
        if bool((each < 0).any()):
            found = found.masked_fill(each.expand_as(found) < 0, UNKNOWN)
    return found


def multiply(one: Any, other: Any, prime: int) -> Any:
    """The product; zero times what is not known is not known."""
    return keep_unknown(one * other % prime, one, other)


def add(one: Any, other: Any, prime: int) -> Any:
    """The sum."""
    return keep_unknown((one + other) % prime, one, other)


def take_power(base: Any, exponent: int, prime: int) -> Any:
    """Residues to one power that is not negative."""
    import torch

    found, square, left = torch.ones_like(base), base, exponent
    while left:
        if left & 1:
            found = found * square % prime
        square, left = square * square % prime, left >> 1
    return keep_unknown(found, base)


def raise_each(bases: Any, exponents: Any, prime: int) -> Any:
    """Every residue to the power that stands beside it, negative ones too."""
    import torch

    bases = torch.where(exponents < 0, invert(bases, prime), bases)
    found, square, left = torch.ones_like(bases), bases.clamp(min=0), exponents.abs()
    while bool((left > 0).any()):
        found = torch.where((left & 1).bool(), found * square % prime, found)
        square, left = square * square % prime, left >> 1
    return keep_unknown(found, bases)


def raise_base(base: int, exponents: Any, prime: int) -> Any:
    """One number to every power of a tensor."""
    import torch

    found, square, left = torch.ones_like(exponents), base % prime, exponents.clamp(min=0)
    while bool((left > 0).any()):
        found = torch.where((left & 1).bool(), found * square % prime, found)
        square, left = square * square % prime, left >> 1
    return keep_unknown(found, exponents)


def invert(residues: Any, prime: int) -> Any:
    """The reciprocals; not known where the residue is zero."""
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


def reduce_product(residues: Any, dim: int, prime: int) -> Any:
    """The product along one dimension."""
    parts = residues.unbind(dim)
    if not parts:
        return residues.new_ones(residues.sum(dim).shape)
    found = parts[0]
    for part in parts[1:]:
        found = multiply(found, part, prime)
    return found


def find_character(residues: Any, prime: int) -> Any:
    """1 for squares, -1 for others, 0 for zero and what is not known: as signs multiply."""
    found = take_power(residues.clamp(min=0), (prime - 1) // 2, prime)
    return found - prime * (found > 1)


def center(residues: Any, prime: int) -> Any:
    """The residues between -p/2 and p/2."""
    return residues - prime * (residues > prime // 2)


def hash_residues(key: int, *parts: Any) -> Any:
    """A fixed random function of the parts, with 62 bits."""
    import torch

    state = torch.full_like(parts[0], key)
    for part in parts:
        mixed = state ^ (part * _MIX[0])
        mixed = (mixed ^ ((mixed >> 30) & ((1 << 34) - 1))) * _MIX[1]
        mixed = (mixed ^ ((mixed >> 27) & ((1 << 37) - 1))) * _MIX[2]
        state = mixed ^ ((mixed >> 31) & ((1 << 33) - 1))
    return state & ((1 << 62) - 1)


def take_logarithm(residues: Any, tower: Tower, level: int) -> Any:
    """At level + 1: the exponent of the base in the part of the residue whose order is its own.

    A homomorphism of all residues that are not zero; it undoes the powers of the base.
    """
    import torch

    prime, order = tower.primes[level], tower.primes[level + 1]
    rest = (prime - 1) // order
    projected = take_power(residues.clamp(min=1), rest * pow(rest, -1, order), prime)
    powers, exponents, steps = _list_powers(tower, level)
    tried = projected.unsqueeze(-1) * steps % prime  # one of them is among the first powers
    place = torch.searchsorted(powers, tried).clamp(max=len(powers) - 1)
    step = (powers[place] == tried).long().argmax(-1, keepdim=True)
    first = exponents[place.gather(-1, step)]
    found = ((step * _FIRST + first) % order).squeeze(-1)
    return found.masked_fill(residues <= 0, UNKNOWN)


@lru_cache(maxsize=64)
def _list_powers(tower: Tower, level: int) -> tuple[Any, Any, Any]:
    """The first powers of a base in order, their exponents, and what takes the others to them."""
    import torch

    prime, order, base = tower.primes[level], tower.primes[level + 1], tower.bases[level]
    powers, exponents = torch.sort(_list_first(base, min(_FIRST, order), prime))
    back = pow(base, -_FIRST, prime)
    return powers.contiguous(), exponents, _list_first(back, order // _FIRST + 1, prime)


def _list_first(base: int, count: int, prime: int) -> Any:
    import torch

    found, value = [], 1
    for _ in range(count):
        found.append(value)
        value = value * base % prime
    return torch.tensor(found, dtype=torch.int64)
