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
from derive.judge.fields import tower as modular
from derive.judge.fields.algebra import (
    ABOVE,
    BELOW,
    FINITE,
    HIGH,
    LOW,
    NAN,
    NotModelledError,
    Parts,
    TooDeepError,
    broadcast,
    build,
    find_signs,
    find_small,
)
from derive.judge.fields.tower import UNKNOWN, hash_residues

if TYPE_CHECKING:
    from collections.abc import Sequence

    from derive.judge.fields.tensor import Run


_PARITIES = {"erfinv": "odd"}  # of what the notation has no word for


def exp(run: Run, parts: Parts) -> Parts:
    """exp: level by level a power of the base, or the companion; TooDeepError at no level."""
    soft = (parts.state == LOW) | (parts.state == HIGH)
    if bool(soft.any()):
        run.usage.soft_mask = True
    zero = (parts.state == BELOW) | (parts.state == LOW)
    small = (parts.residues[0] == 0) & (parts.state == FINITE) & find_small(run.tower, parts)[1]
    residues = []
    for each in (*algebra.exponentiate(run.tower, parts), None):
        found = torch.full_like(parts.residues[0], UNKNOWN) if each is None else each
        residues.append(found.masked_fill(zero, 0).masked_fill(small, 1))
    if residues[0].numel() and bool((residues[0] < 0).all()):
        raise TooDeepError
    above = (parts.state == ABOVE) | (parts.state == HIGH)
    state = torch.where(above, ABOVE, torch.where(parts.state == NAN, NAN, FINITE))
    return build(residues, state.to(torch.int8))


def log(run: Run, parts: Parts) -> Parts:
    """log: known from level 1 on; what it is the logarithm of goes beside it."""
    run.usage.logs = True
    plain = parts.state == FINITE
    value, small = find_small(run.tower, parts)
    zero = plain & (parts.residues[0] == 0)
    one, negative = (small & (value == 1), small & (value < 0))
    residues = [torch.full_like(parts.residues[0], UNKNOWN)]
    for level in range(run.tower.depth):
        residues.append(modular.take_logarithm(parts.residues[level], run.tower, level))
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


def root(run: Run, parts: Parts) -> Parts:
    """The root that is a square itself; of what is no square, one with an arbitrary sign.

    Either way the root of a product is the product of the roots. The root of -1 is 1 in one tower
    and -1 in another: so that sqrt(-x) is neither sqrt(x) nor its negative.
    """
    residues = []
    for level, (each, prime) in enumerate(zip(parts.residues, run.tower.primes, strict=True)):
        found = modular.take_power(each, (prime + 1) // 4, prime)
        other = (found * found % prime != each) & (each >= 0)
        if not level:
            run.usage.rooted |= bool((other & (parts.state == FINITE)).any())
        if run.tower.key % 2:
            found = torch.where(other, prime - found, found)
        residues.append(found)
    residues = _take_small_roots(run, parts, residues)
    value, small = find_small(run.tower, parts)
    below = (parts.state == BELOW) | (parts.state == LOW) | (small & (value < 0))
    state = torch.where(below, NAN, parts.state)
    return build(residues, state.to(torch.int8))


def _take_small_roots(run: Run, parts: Parts, residues: list[torch.Tensor]) -> list[torch.Tensor]:
    """Square numbers have the positive root."""
    value, small = find_small(run.tower, parts)
    if not bool(small.any()):
        return residues
    whole = value.clamp(min=0).double().sqrt().round().long()
    square = small & (whole * whole == value)
    return [
        torch.where(square, whole % prime, each)
        for each, prime in zip(residues, run.tower.primes, strict=True)
    ]


def power(run: Run, parts: Parts, number: Fraction) -> Parts:
    """The element to a rational power."""
    if number == 1:
        return parts
    if number.denominator == 1:
        count = abs(int(number))
        residues = [
            modular.take_power(each, count, prime)
            for each, prime in zip(parts.residues, run.tower.primes, strict=True)
        ]
        found = build(residues, _raise_states(run, parts, count))
        return algebra.invert(run.tower, found) if number < 0 else found
    if number.denominator % 2 == 0:
        return power(run, root(run, parts), 2 * number)
    if (
        all(gcd(number.denominator, prime - 1) == 1 for prime in run.tower.primes)
        and parts.is_plain
    ):
        raised = [
            algebra.raise_rational(each, number, prime)
            for each, prime in zip(parts.residues, run.tower.primes, strict=True)
        ]
        return build([each for each in raised if each is not None])
    return opaque(run, f"power {number}", parts)


def _raise_states(run: Run, parts: Parts, count: int) -> torch.Tensor | None:
    if parts.is_plain or count == 1:
        return parts.state
    if not count:
        return None
    signs = find_signs(run.tower, parts)
    negative = (signs < 0) & bool(count % 2)
    state = parts.state
    endless = (state == BELOW) | (state == ABOVE)
    soft = (state == LOW) | (state == HIGH)
    found = torch.where(endless, torch.where(negative, BELOW, ABOVE), state.long())
    return torch.where(soft, torch.where(negative, LOW, HIGH), found).to(torch.int8)


def opaque(run: Run, name: str, *given: Parts) -> Parts:
    """A fixed random function of the elements; odd and even functions are such."""
    run.usage.opaque[name] = None
    given = broadcast(*given)
    firsts = [each.residues[0] for each in given]
    sign: torch.Tensor | None = None
    parity = FUNCTIONS[name].parity if name in FUNCTIONS else _PARITIES.get(name, "")
    if len(given) == 1 and parity:
        centered = modular.center(firsts[0], run.tower.primes[0])
        sign, firsts = centered.sign(), [centered.abs()]
    states = [each.state.long() for each in given]
    number = sum(ord(index) * 131**place for place, index in enumerate(name)) % (1 << 61)
    residues = []
    for level, prime in enumerate(run.tower.primes):
        found = modular.hash_residues(run.tower.key ^ (number + level), *firsts, *states) % prime
        if sign is not None and parity == "odd":
            found = sign * found % prime
        residues.append(modular.keep_unknown(found, *(each.residues[0] for each in given)))
    state = torch.zeros_like(given[0].state)
    for each in given:
        state = torch.where(each.state == NAN, NAN, state)
    return build(residues, state.to(torch.int8))


def softmax(run: Run, parts: Parts, dim: int) -> Parts:
    """exp(x) over its sum; a row of nothing but finite masks is a row of finite numbers."""
    parts = soften(run, parts, dim)
    raised = exp(run, parts)
    found = algebra.divide(run.tower, raised, algebra.reduce_sum(run.tower, raised, (dim,), True))
    endless = (parts.state == ABOVE).any(dim, keepdim=True)
    return build(found.residues, found.state.masked_fill(endless, NAN)) if endless.any() else found


def soften(run: Run, parts: Parts, dim: int) -> Parts:
    """Where every entry of a row is masked by a finite number, what was added to it counts.

    NotModelledError where one stands for plus infinity: what is left then is a matter of sizes.
    """
    if bool((parts.state == HIGH).any()):
        raise NotModelledError("a softmax of large numbers")
    soft = parts.state == LOW
    if not bool(soft.any()):
        return parts
    run.usage.soft_mask = True
    whole = (soft | (parts.state == BELOW)).all(dim, keepdim=True) & soft
    state = torch.where(whole, FINITE, parts.state).to(torch.int8)
    return Parts(parts.residues, parts.companions, state)


def log_sum_exp(run: Run, parts: Parts, dims: tuple[int, ...], keepdim: bool) -> Parts:
    """The logarithm of the sum of exponentials."""
    if bool((parts.state == HIGH).any()):
        raise NotModelledError("a softmax of large numbers")
    total = algebra.reduce_sum(run.tower, exp(run, parts), dims, keepdim)
    return log(run, total)


_OFFSETS = {BELOW: -(1 << 60), LOW: -(1 << 56), HIGH: 1 << 56, ABOVE: 1 << 60, NAN: 1 << 61}
_ONE = 40  # the rank of 1 is 2**40
_LEAST, _SPREAD = 30, 21  # ranks of random elements are 2**30 to 2**51


def find_ranks(run: Run, parts: Parts) -> torch.Tensor:
    """The places of elements in the order; nan is the largest, as for torch's max."""
    prime = run.tower.primes[0]
    first = parts.residues[0]
    if bool((first < 0).any()):
        raise NotModelledError("the order of logarithms")
    value, small = find_small(run.tower, parts)
    finite = (parts.state == 0) & ~small
    run.usage.ordered |= bool(finite.any())
    sign = find_signs(run.tower, parts)
    mixed = hash_residues(run.tower.key, torch.where(sign < 0, prime - first, first))
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


def find_larger(run: Run, one: Parts, other: Parts, *, least: bool) -> Parts:
    """The larger of two, or the smaller; nan if one is."""
    one, other = broadcast(one, other)
    ranks = find_ranks(run, one), find_ranks(run, other)
    first = ranks[0] <= ranks[1] if least else ranks[0] >= ranks[1]
    first = (first | (one.state == NAN)) & ~((other.state == NAN) & (one.state != NAN))
    return choose(first, one, other)


def find_size(run: Run, parts: Parts) -> Parts:
    """The element without its sign."""
    negative = find_ranks(run, parts) < 0
    return choose(negative, algebra.negate(run.tower, parts), parts)


def reduce_order(
    run: Run, parts: Parts, dims: Sequence[int], *, least: bool
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
    ranks = find_ranks(run, flat)
    if least:
        ranks = torch.where(flat.state == NAN, -ranks, ranks)
    place = (ranks.argmin(-1, True) if least else ranks.argmax(-1, True)).long()
    kept = [1 if dim in chosen else parts.state.shape[dim] for dim in range(rank)]
    found = flat.map(lambda part: part.gather(-1, place).reshape(kept).contiguous())
    return found, place.reshape(kept)


def compare(run: Run, relation: str, one: Parts, other: Parts) -> torch.Tensor:
    """A relation, element by element; nan is in none but `ne`."""
    one, other = broadcast(one, other)
    nan = (one.state == NAN) | (other.state == NAN)
    if relation in {"eq", "ne"}:
        same = is_equal(one, other)
        run.usage.ordered |= bool(((one.state == 0) & (other.state == 0)).any()) and not bool(
            (find_small(run.tower, one)[1] & find_small(run.tower, other)[1]).all()
        )
        return ~same | nan if relation == "ne" else same & ~nan
    left, right = find_ranks(run, one), find_ranks(run, other)
    found = {"lt": left < right, "le": left <= right, "gt": left > right, "ge": left >= right}
    return found[relation] & ~nan


def is_equal(one: Parts, other: Parts) -> torch.Tensor:
    """Is no residue another, where both are known, and the state the same?"""
    same = one.state == other.state
    for a, b in zip(one.residues, other.residues, strict=True):
        same = same & ((a == b) | (a < 0) | (b < 0))
    return same
