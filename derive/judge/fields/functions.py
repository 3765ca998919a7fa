"""Functions of tensors over a tower, and the order of its elements.

exp and log are exact, roots are of squares, the rest are hashes.

The order is a random one, but for infinities and small integers. What holds for every order of the
values holds for theirs. A square is positive, so that signs multiply and roots and exponentials are
positive; an element's size is a hash, of any magnitude, and small integers are ranked as they are.
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd, prod
from typing import TYPE_CHECKING

import torch

from derive.ir.functions import FUNCTIONS
from derive.judge.fields import algebra
from derive.judge.fields import numbers as modular
from derive.judge.fields.numbers import UNKNOWN, hash_residues
from derive.judge.fields.parts import (
    ABOVE,
    BELOW,
    FINITE,
    HIGH,
    LOW,
    NAN,
    NotModelledError,
    Parts,
    TooDeepError,
    Usage,
    broadcast,
    build,
    find_signs,
    find_small,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from derive.judge.fields.tower import Tower


_PARITIES = {"erfinv": "odd"}  # of what the notation has no word for


def exp(tower: Tower, usage: Usage, parts: Parts) -> Parts:
    """exp: level by level a power of the base, or the companion; TooDeepError at no level."""
    soft = (parts.state == LOW) | (parts.state == HIGH)
    if bool(soft.any()):
        usage.soft_mask = True
    zero = (parts.state == BELOW) | (parts.state == LOW)
    small = (parts.residues[0] == 0) & (parts.state == FINITE) & find_small(tower, parts)[1]
    residues = []
    for each in (*algebra.exponentiate(tower, parts), None):
        found = torch.full_like(parts.residues[0], UNKNOWN) if each is None else each
        residues.append(found.masked_fill(zero, 0).masked_fill(small, 1))
    if residues[0].numel() and bool((residues[0] < 0).all()):
        raise TooDeepError
    above = (parts.state == ABOVE) | (parts.state == HIGH)
    state = torch.where(above, ABOVE, torch.where(parts.state == NAN, NAN, FINITE))
    return build(residues, state.to(torch.int8))


def log(tower: Tower, usage: Usage, parts: Parts) -> Parts:
    """log: known from level 1 on; what it is the logarithm of goes beside it."""
    usage.logs = True
    plain = parts.state == FINITE
    value, small = find_small(tower, parts)
    zero = plain & (parts.residues[0] == 0)
    one, negative = (small & (value == 1), small & (value < 0))
    residues = [torch.full_like(parts.residues[0], UNKNOWN)]
    for level in range(tower.depth):
        residues.append(modular.take_logarithm(parts.residues[level], tower, level))
    residues = [each.masked_fill(one, 0) for each in residues]
    off = ~plain | zero
    companions = [
        torch.where(each > 0, each, UNKNOWN).masked_fill(off | one, 0)
        for each in parts.residues[:-1]
    ]
    state = torch.where(zero, BELOW, torch.where(parts.state == ABOVE, ABOVE, FINITE))
    nan = (parts.state == NAN) | (parts.state == BELOW) | negative
    companions = [each.masked_fill(negative, 0) for each in companions]
    return build(residues, torch.where(nan, NAN, state).to(torch.int8), companions)


def root(tower: Tower, usage: Usage, parts: Parts) -> Parts:
    """The root that is a square itself; of what is no square, one with an arbitrary sign.

    Either way the root of a product is the product of the roots. The root of -1 is 1 in one tower
    and -1 in another: so that sqrt(-x) is neither sqrt(x) nor its negative.
    """
    residues = []
    for level, (each, prime) in enumerate(zip(parts.residues, tower.primes, strict=True)):
        found = modular.take_power(each, (prime + 1) // 4, prime)
        other = (found * found % prime != each) & (each >= 0)
        if not level:
            usage.rooted |= bool((other & (parts.state == FINITE)).any())
        if tower.key % 2:
            found = torch.where(other, prime - found, found)
        residues.append(found)
    residues = _take_small_roots(tower, parts, residues)
    value, small = find_small(tower, parts)
    below = (parts.state == BELOW) | (parts.state == LOW) | (small & (value < 0))
    state = torch.where(below, NAN, parts.state)
    return build(residues, state.to(torch.int8))


def _take_small_roots(
    tower: Tower, parts: Parts, residues: list[torch.Tensor]
) -> list[torch.Tensor]:
    """Square numbers have the positive root."""
    value, small = find_small(tower, parts)
    if not bool(small.any()):
        return residues
    whole = value.clamp(min=0).double().sqrt().round().long()
    square = small & (whole * whole == value)
    return [
        torch.where(square, whole % prime, each)
        for each, prime in zip(residues, tower.primes, strict=True)
    ]


def power(tower: Tower, usage: Usage, parts: Parts, number: Fraction) -> Parts:
    """The element to a rational power."""
    if number == 1:
        return parts
    if number.denominator == 1:
        count = abs(int(number))
        residues = [
            modular.take_power(each, count, prime)
            for each, prime in zip(parts.residues, tower.primes, strict=True)
        ]
        found = build(residues, _raise_states(tower, parts, count))
        return algebra.invert(tower, found) if number < 0 else found
    if number.denominator % 2 == 0:
        return power(tower, usage, root(tower, usage, parts), 2 * number)
    if all(gcd(number.denominator, prime - 1) == 1 for prime in tower.primes) and parts.is_plain:
        raised = [
            algebra.raise_rational(each, number, prime)
            for each, prime in zip(parts.residues, tower.primes, strict=True)
        ]
        return build([each for each in raised if each is not None])
    return opaque(tower, usage, f"power {number}", parts)


def _raise_states(tower: Tower, parts: Parts, count: int) -> torch.Tensor | None:
    if parts.is_plain or count == 1:
        return parts.state
    if not count:
        return None
    signs = find_signs(tower, parts)
    negative = (signs < 0) & bool(count % 2)
    state = parts.state
    endless = (state == BELOW) | (state == ABOVE)
    soft = (state == LOW) | (state == HIGH)
    found = torch.where(endless, torch.where(negative, BELOW, ABOVE), state.long())
    return torch.where(soft, torch.where(negative, LOW, HIGH), found).to(torch.int8)


def opaque(tower: Tower, usage: Usage, name: str, *given: Parts) -> Parts:
    """A fixed random function of the elements; odd and even functions are such."""
    usage.opaque[name] = None
    given = broadcast(*given)
    firsts = [each.residues[0] for each in given]
    sign: torch.Tensor | None = None
    parity = FUNCTIONS[name].parity if name in FUNCTIONS else _PARITIES.get(name, "")
    if len(given) == 1 and parity:
        centered = modular.center(firsts[0], tower.primes[0])
        sign, firsts = centered.sign(), [centered.abs()]
    states = [each.state.long() for each in given]
    number = sum(ord(index) * 131**place for place, index in enumerate(name)) % (1 << 61)
    residues = []
    for level, prime in enumerate(tower.primes):
        found = modular.hash_residues(tower.key ^ (number + level), *firsts, *states) % prime
        if sign is not None and parity == "odd":
            found = sign * found % prime
        residues.append(modular.keep_unknown(found, *(each.residues[0] for each in given)))
    state = torch.zeros_like(given[0].state)
    for each in given:
        state = torch.where(each.state == NAN, NAN, state)
    return build(residues, state.to(torch.int8))


def softmax(tower: Tower, usage: Usage, parts: Parts, dim: int) -> Parts:
    """exp(x) over its sum; a row of nothing but finite masks is a row of finite numbers."""
    parts = soften(usage, parts, dim)
    raised = exp(tower, usage, parts)
    found = algebra.divide(tower, raised, algebra.reduce_sum(tower, raised, (dim,), True))
    endless = (parts.state == ABOVE).any(dim, keepdim=True)
    return build(found.residues, found.state.masked_fill(endless, NAN)) if endless.any() else found


def soften(usage: Usage, parts: Parts, dim: int) -> Parts:
    """Where every entry of a row is masked by a finite number, what was added to it counts.

    NotModelledError where one stands for plus infinity: what is left then is a matter of sizes.
    """
    if bool((parts.state == HIGH).any()):
        raise NotModelledError("a softmax of large numbers")
    soft = parts.state == LOW
    if not bool(soft.any()):
        return parts
    usage.soft_mask = True
    whole = (soft | (parts.state == BELOW)).all(dim, keepdim=True) & soft
    state = torch.where(whole, FINITE, parts.state).to(torch.int8)
    return Parts(parts.residues, parts.companions, state)


def log_sum_exp(
    tower: Tower, usage: Usage, parts: Parts, dims: tuple[int, ...], keepdim: bool
) -> Parts:
    """The logarithm of the sum of exponentials."""
    if bool((parts.state == HIGH).any()):
        raise NotModelledError("a softmax of large numbers")
    total = algebra.reduce_sum(tower, exp(tower, usage, parts), dims, keepdim)
    return log(tower, usage, total)


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
