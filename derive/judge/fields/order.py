"""The order of elements over a tower: a random one, but for infinities and small integers.

What holds for every order of the values holds for theirs. A square is positive, so that signs
multiply and roots and exponentials are positive; an element's size is a hash, of any magnitude, and
small integers are ranked as they are.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import torch

from derive.judge.fields import algebra
from derive.judge.fields.numbers import hash_residues
from derive.judge.fields.parts import (
    ABOVE,
    BELOW,
    HIGH,
    LOW,
    NAN,
    NotModelledError,
    Parts,
    Usage,
    broadcast,
    find_signs,
    find_small,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from derive.judge.fields.tower import Tower

_OFFSETS = {BELOW: -(1 << 60), LOW: -(1 << 56), HIGH: 1 << 56, ABOVE: 1 << 60, NAN: 1 << 61}
_ONE = 40  # the rank of 1 is 2**40
_LEAST, _SPREAD = 30, 21  # ranks of random elements are 2**30 to 2**51


def find_ranks(tower: Tower, usage: Usage, parts: Parts) -> torch.Tensor:
    """The places of elements in the order; nan is the largest, as for torch's max."""
    prime = tower.primes[0]
    first = parts.residues[0]
    if bool((first < 0).any()):
        raise NotModelledError("the order of logarithms")
    value, small = find_small(tower, parts)
    finite = (parts.state == 0) & ~small
    usage.ordered |= bool(finite.any())
    sign = find_signs(tower, parts)
    mixed = hash_residues(tower.key, torch.where(sign < 0, prime - first, first))
    size = ((mixed & ((1 << _LEAST) - 1)) + (1 << _LEAST)) << ((mixed >> _LEAST) % _SPREAD)
    ranks = torch.where(small, value << _ONE, sign * size)
    for state, offset in _OFFSETS.items():
        if state in {LOW, HIGH}:
            ranks = torch.where(parts.state == state, ranks + offset, ranks)
        else:
            ranks = torch.where(parts.state == state, offset, ranks)
    return ranks


def choose(condition: torch.Tensor, one: Parts, other: Parts) -> Parts:
    """One element or the other."""
    one, other = broadcast(one, other)
    return one.rebuild(
        [
            torch.where(condition, a, b).contiguous()
            for a, b in zip(one.every, other.every, strict=True)
        ]
    )


def find_larger(tower: Tower, usage: Usage, one: Parts, other: Parts, *, least: bool) -> Parts:
    """The larger of two, or the smaller; nan if one is."""
    one, other = broadcast(one, other)
    ranks = find_ranks(tower, usage, one), find_ranks(tower, usage, other)
    first = ranks[0] <= ranks[1] if least else ranks[0] >= ranks[1]
    first = (first | (one.state == NAN)) & ~((other.state == NAN) & (one.state != NAN))
    return choose(first, one, other)


def find_size(tower: Tower, usage: Usage, parts: Parts) -> Parts:
    """The element without its sign."""
    negative = find_ranks(tower, usage, parts) < 0
    return choose(negative, algebra.negate(tower, parts), parts)


def reduce_order(
    tower: Tower, usage: Usage, parts: Parts, dims: Sequence[int], *, least: bool
) -> tuple[Parts, torch.Tensor]:
    """The largest or smallest over dimensions, which are kept, and where it lies along them."""
    rank = parts.state.dim()
    chosen = sorted({dim % max(rank, 1) for dim in dims} if dims else range(rank))
    if not rank:
        return parts, torch.zeros((), dtype=torch.int64)
    rest = [dim for dim in range(rank) if dim not in chosen]
    shape = [parts.state.shape[dim] for dim in rest]
    count = prod(parts.state.shape[dim] for dim in chosen)
    flat = parts.map(lambda part: part.permute(*rest, *chosen).reshape(*shape, count))
    ranks = find_ranks(tower, usage, flat)
    if least:
        ranks = torch.where(flat.state == NAN, -ranks, ranks)
    place = (ranks.argmin(-1, True) if least else ranks.argmax(-1, True)).long()
    kept = [1 if dim in chosen else parts.state.shape[dim] for dim in range(rank)]
    found = flat.map(lambda part: part.gather(-1, place).reshape(kept).contiguous())
    return found, place.reshape(kept)


def compare(tower: Tower, usage: Usage, relation: str, one: Parts, other: Parts) -> torch.Tensor:
    """A relation, element by element; nan is in none but `ne`."""
    one, other = broadcast(one, other)
    nan = (one.state == NAN) | (other.state == NAN)
    if relation in {"eq", "ne"}:
        same = is_equal(one, other)
        usage.ordered |= bool(((one.state == 0) & (other.state == 0)).any()) and not bool(
            (find_small(tower, one)[1] & find_small(tower, other)[1]).all()
        )
        return ~same | nan if relation == "ne" else same & ~nan
    left, right = find_ranks(tower, usage, one), find_ranks(tower, usage, other)
    found = {"lt": left < right, "le": left <= right, "gt": left > right, "ge": left >= right}
    return found[relation] & ~nan


def is_equal(one: Parts, other: Parts) -> torch.Tensor:
    """Is no residue another, where both are known, and the state the same?"""
    same = one.state == other.state
    for a, b in zip(one.residues, other.residues, strict=True):
        same = same & ((a == b) | (a < 0) | (b < 0))
    return same
