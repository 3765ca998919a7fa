"""Tensors over a tower, their sums, products and quotients.

residues      one tensor for each prime, -1 where nothing is known at this level
companions    level by level exp(x), kept beside a logarithm x: log(y) has the companion y.
0 where there is none: exp(x) is a power of the base; -1 where it is lost
state         FINITE, -inf, inf, nan, or the sign of a finite number that stands for infinity
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import torch

from derive.judge.fields import tower as modular
from derive.judge.fields.tower import UNKNOWN, center, find_character

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction

    from derive.judge.fields.tower import Tower


FINITE, BELOW, ABOVE, NAN, LOW, HIGH = range(6)
SIGNS = {BELOW: -1, ABOVE: 1, LOW: -1, HIGH: 1}
SMALL = 1000  # an integer no larger than this is no random residue


class UnluckyError(Exception):
    """A residue is zero, or not known, by accident: another tower may do."""


class TooDeepError(Exception):
    """Exponentials nest deeper than the tower is high."""


class NotModelledError(Exception):
    """An operation that has no meaning over a field."""


@dataclass
class Usage:
    """What a run rested on beyond arithmetic."""

    opaque: dict[str, None] = field(default_factory=dict)  # functions and constants hashed
    guessed: bool = False  # a number in a tensor was not recognised; it is an unknown one
    ordered: bool = False  # the order of values decided something; it is a random order
    rooted: bool = False  # a root was taken of what is no square: its sign is arbitrary
    soft_mask: bool = False  # a finite number stood for minus infinity
    logs: bool = False  # there are companions


@dataclass(frozen=True, eq=False)
class Parts:
    """What a tensor over a tower is made of; all have its shape."""

    residues: tuple[torch.Tensor, ...]
    companions: tuple[torch.Tensor, ...]
    state: torch.Tensor
    square: Parts | None = None  # of a norm: the sum of squares that it is the root of

    @property
    def every(self) -> tuple[torch.Tensor, ...]:
        """All of them, in order."""
        return (*self.residues, *self.companions, self.state)

    def rebuild(self, every: Sequence[torch.Tensor]) -> Parts:
        """The same from other tensors, in order."""
        levels = len(self.residues)
        return Parts(tuple(every[:levels]), tuple(every[levels:-1]), every[-1])

    def map(self, act: Callable[[torch.Tensor], Any]) -> Parts:
        """The same of every one."""
        return self.rebuild([act(each) for each in self.every])

    @property
    def shape(self) -> torch.Size:
        """The shape."""
        return self.state.shape

    @property
    def is_plain(self) -> bool:
        """Is everything finite?"""
        return not bool(self.state.any())

    @property
    def is_simple(self) -> bool:
        """Is everything finite, and nothing a logarithm?"""
        return self.is_plain and not self.has_companions

    @property
    def has_companions(self) -> bool:
        """Is there a logarithm somewhere?"""
        return any(bool(each.any()) for each in self.companions)


def build(
    residues: Sequence[torch.Tensor],
    state: torch.Tensor | None = None,
    companions: Sequence[torch.Tensor] | None = None,
) -> Parts:
    """Parts; what is not given is finite and no logarithm. An infinity has residue 0."""
    if state is None:
        state = torch.zeros(residues[0].shape, dtype=torch.int8)
    elif bool(state.any()):
        endless = (state >= BELOW) & (state <= NAN)
        residues = [each.masked_fill(endless, 0) for each in residues]
    if companions is None:
        companions = [torch.zeros_like(state, dtype=torch.int64) for _ in residues[1:]]
    return Parts(
        tuple(each.contiguous() for each in residues),
        tuple(each.contiguous() for each in companions),
        state.contiguous(),
    )


def fill(
    tower: Tower,
    shape: Sequence[int],
    residues: Sequence[int],
    state: int = FINITE,
    companions: Sequence[int] = (),
) -> Parts:
    """One element everywhere."""
    shape = tuple(shape)
    return Parts(
        tuple(torch.full(shape, each, dtype=torch.int64) for each in residues),
        tuple(
            torch.full(shape, each, dtype=torch.int64) for each in companions or (0,) * tower.depth
        ),
        torch.full(shape, state, dtype=torch.int8),
    )


def broadcast(*given: Parts) -> tuple[Parts, ...]:
    """All in their common shape."""
    # Not torch.broadcast_shapes, which loads a compiler's worth of modules when it is first called.
    states = torch.broadcast_tensors(*(each.state for each in given))  # type: ignore[no-untyped-call]
    shape = states[0].shape
    return tuple(
        each if each.shape == shape else each.map(lambda part: part.expand(shape)) for each in given
    )


def join(given: Sequence[Parts], dim: int) -> Parts:
    """Slices put side by side."""
    every = zip(*(each.every for each in given), strict=True)
    return given[0].rebuild([torch.cat(parts, dim) for parts in every])


def find_small(tower: Tower, parts: Parts) -> tuple[torch.Tensor, torch.Tensor]:
    """The element as an integer, and whether it is surely one: small, and the same everywhere."""
    value = center(parts.residues[0], tower.primes[0])
    small = (value.abs() <= SMALL) & (parts.state == FINITE) & (parts.residues[0] >= 0)
    for prime, residues in zip(tower.primes[1:], parts.residues[1:], strict=True):
        small &= (residues == UNKNOWN) | (residues == value % prime)
    return value, small


def find_signs(tower: Tower, parts: Parts) -> torch.Tensor:
    """-1, 0, 1: squares are positive, so that roots, powers of a base and products of them are."""
    value, small = find_small(tower, parts)
    found = torch.where(small, value.sign(), find_character(parts.residues[0], tower.primes[0]))
    for state, sign in SIGNS.items():
        found = torch.where(parts.state == state, sign, found)
    return found


_NEGATED = (FINITE, ABOVE, BELOW, NAN, HIGH, LOW)


def _add_states(one: int, other: int) -> int:
    given = {one, other}
    if NAN in given or given == {BELOW, ABOVE}:
        return NAN
    for endless in (BELOW, ABOVE):
        if endless in given:
            return endless
    if given == {LOW, HIGH}:
        return FINITE
    return max(given)


_SUMS = [_add_states(one, other) for one in range(6) for other in range(6)]


def add(tower: Tower, one: Parts, other: Parts) -> Parts:
    """The sum; infinities of two signs are nan."""
    one, other = broadcast(one, other)
    residues = [
        modular.add(a, b, p)
        for a, b, p in zip(one.residues, other.residues, tower.primes, strict=True)
    ]
    state = None
    if not (one.is_plain and other.is_plain):
        state = torch.tensor(_SUMS, dtype=torch.int8)[one.state.long() * 6 + other.state.long()]
    companions = None
    if one.has_companions or other.has_companions:
        companions = [
            modular.multiply(a, b, p)
            for a, b, p in zip(
                exponentiate(tower, one), exponentiate(tower, other), tower.primes[:-1], strict=True
            )
        ]
    return build(residues, state, companions)


def exponentiate(tower: Tower, parts: Parts) -> list[torch.Tensor]:
    """Exp at every level but the last: the companion, else a power of the base; -1 if not known."""
    found = []
    for level, companion in enumerate(parts.companions):
        power = modular.raise_base(
            tower.bases[level], parts.residues[level + 1], tower.primes[level]
        )
        found.append(torch.where(companion != 0, companion, power))
    return found


def negate(tower: Tower, parts: Parts) -> Parts:
    """The element with the other sign."""
    residues = [
        modular.keep_unknown((-each) % prime, each)
        for each, prime in zip(parts.residues, tower.primes, strict=True)
    ]
    companions = [
        modular.invert(each, prime).masked_fill(each == 0, 0)
        for each, prime in zip(parts.companions, tower.primes[:-1], strict=True)
    ]
    return build(residues, torch.tensor(_NEGATED, dtype=torch.int8)[parts.state.long()], companions)


def multiply(tower: Tower, one: Parts, other: Parts, signs: torch.Tensor | None = None) -> Parts:
    """The product; zero times infinity is nan. `signs` are the other's, where they are known."""
    one, other = broadcast(one, other)
    residues = [
        modular.multiply(a, b, p)
        for a, b, p in zip(one.residues, other.residues, tower.primes, strict=True)
    ]
    state = None
    if not (one.is_plain and other.is_plain):
        state = _multiply_states(tower, one, other, signs)
    companions = None
    if one.has_companions or other.has_companions:
        companions = _multiply_companions(tower, one, other)
    return build(residues, state, companions)


def _multiply_states(
    tower: Tower, one: Parts, other: Parts, signs: torch.Tensor | None
) -> torch.Tensor:
    for here, there in ((one, other), (other, one)):
        if bool(((here.state != FINITE) & (there.residues[0] < 0) & (there.state != NAN)).any()):
            raise NotModelledError("an infinity times a logarithm")
    signs = find_signs(tower, one) * (find_signs(tower, other) if signs is None else signs)
    nan = (one.state == NAN) | (other.state == NAN)
    endless = _is_endless(one.state) | _is_endless(other.state)
    soft = (one.state >= LOW) | (other.state >= LOW)
    found = torch.where(soft, torch.where(signs < 0, LOW, HIGH) * (signs != 0), FINITE)
    found = torch.where(endless, torch.where(signs < 0, BELOW, ABOVE), found)
    found = torch.where(nan | (endless & (signs == 0)), NAN, found)
    return found.to(torch.int8)


def _is_endless(state: torch.Tensor) -> torch.Tensor:
    return (state == BELOW) | (state == ABOVE)


def _multiply_companions(tower: Tower, one: Parts, other: Parts) -> list[torch.Tensor]:
    """Powers for a factor that is a small integer, lost for others."""
    found = [torch.zeros_like(each) for each in one.companions]
    for here, there in ((one, other), (other, one)):
        value, small = find_small(tower, there)
        count = torch.where(small, value, 0)
        for level, (companion, prime) in enumerate(
            zip(here.companions, tower.primes[:-1], strict=True)
        ):
            kept = torch.where(small, modular.raise_each(companion, count, prime), UNKNOWN)
            kept = kept.masked_fill((companion == 0) | (small & (value == 0)), 0)
            found[level] = torch.where(kept != 0, kept, found[level])
    return found


def scale(tower: Tower, parts: Parts, number: Fraction) -> Parts:
    """The element times a rational number; a logarithm stays one where roots allow it."""
    constant = fill(tower, (), tower.embed(number))
    sign = torch.tensor((number > 0) - (number < 0))
    if not parts.has_companions or number == 1:
        return multiply(tower, parts, constant, sign)
    product = multiply(tower, build(parts.residues, parts.state), constant, sign)
    companions = []
    for companion, prime in zip(parts.companions, tower.primes[:-1], strict=True):
        raised = raise_rational(companion, number, prime)
        if raised is None:
            raised = torch.full_like(companion, UNKNOWN)
        companions.append(raised.masked_fill(companion == 0, 0))
    return build(product.residues, product.state, companions)


def raise_rational(residues: torch.Tensor, number: Fraction, prime: int) -> torch.Tensor | None:
    """Residues to a rational power where each has one root; None where roots are not unique."""
    below = number.denominator
    if gcd(below, prime - 1) != 1:
        return None
    exponent = number.numerator * pow(below, -1, prime - 1) % (prime - 1)
    raised: torch.Tensor = modular.take_power(residues, exponent, prime)
    return raised


def invert(tower: Tower, parts: Parts) -> Parts:
    """The reciprocal; that of zero is infinity.

    UnluckyError where the first residue alone is zero.
    """
    zero = (parts.residues[0] == 0) & (parts.state == FINITE)
    for other in parts.residues[1:]:
        if bool((zero & (other > 0)).any()):
            raise UnluckyError
    residues = [
        modular.invert(each, prime).masked_fill(zero, 0)
        for each, prime in zip(parts.residues, tower.primes, strict=True)
    ]
    endless = _is_endless(parts.state)
    residues = [each.masked_fill(endless, 0) for each in residues]
    state = torch.where(zero, ABOVE, torch.where(parts.state == NAN, NAN, FINITE))
    return build(residues, state.to(torch.int8))


def divide(tower: Tower, over: Parts, under: Parts) -> Parts:
    """The quotient."""
    return multiply(tower, over, invert(tower, under))


def matmul(tower: Tower, one: Parts, other: Parts) -> Parts:
    """The matrix product over the last two dimensions."""
    if not (one.is_simple and other.is_simple):
        wide = one.map(lambda part: part.unsqueeze(-1))
        product = multiply(tower, wide, other.map(lambda part: part.unsqueeze(-3)))
        return reduce_sum(tower, product, (-2,))
    residues = [
        modular.matmul(a, b, p)
        for a, b, p in zip(one.residues, other.residues, tower.primes, strict=True)
    ]
    return build(residues)


def reduce_sum(tower: Tower, parts: Parts, dims: Sequence[int], keepdim: bool = False) -> Parts:
    """The sum over dimensions; all of them where none are told."""
    rank = parts.state.dim()
    dims = sorted({dim % max(rank, 1) for dim in dims} if dims else range(rank), reverse=True)
    if not rank:
        return parts
    residues = []
    for each, prime in zip(parts.residues, tower.primes, strict=True):
        total = each.clamp(min=0).sum(dims, keepdim=keepdim) % prime
        residues.append(total.masked_fill((each < 0).sum(dims, keepdim=keepdim) > 0, UNKNOWN))
    state = None if parts.is_plain else _sum_states(parts.state, dims, keepdim)
    companions = _sum_companions(tower, parts, dims, keepdim) if parts.has_companions else None
    return build(residues, state, companions)


def _sum_states(state: torch.Tensor, dims: Sequence[int], keepdim: bool) -> torch.Tensor:
    def count(which: int) -> torch.Tensor:
        return (state == which).sum(list(dims), keepdim=keepdim)

    return balance_states(count)


def balance_states(count: Callable[[int], torch.Tensor]) -> torch.Tensor:
    """The states of sums; `count` says how many summands are in a state."""
    below, above, nan = count(BELOW) > 0, count(ABOVE) > 0, count(NAN) > 0
    balance = count(HIGH) - count(LOW)
    found = torch.where(balance > 0, HIGH, torch.where(balance < 0, LOW, FINITE))
    found = torch.where(below, BELOW, torch.where(above, ABOVE, found))
    return torch.where(nan | (below & above), NAN, found).to(torch.int8)


def _sum_companions(
    tower: Tower, parts: Parts, dims: Sequence[int], keepdim: bool
) -> list[torch.Tensor]:
    found = []
    for each, prime in zip(exponentiate(tower, parts), tower.primes[:-1], strict=True):
        product = each
        for dim in dims:  # from the last on
            product = modular.reduce_product(product, dim, prime)
            product = product.unsqueeze(dim) if keepdim else product
        found.append(product)
    return found


def accumulate(tower: Tower, parts: Parts, dim: int) -> Parts:
    """The sums of the first elements along a dimension."""
    if not parts.is_plain or parts.has_companions:
        length = parts.shape[dim] if parts.state.dim() else 1
        starts = [parts.map(methodcaller("narrow", dim, 0, n + 1)) for n in range(length)]
        totals = [reduce_sum(tower, start, (dim,), True) for start in starts]
        return join(totals, dim) if totals else parts
    residues = []
    for each, prime in zip(parts.residues, tower.primes, strict=True):
        lost = (each < 0).cumsum(dim) > 0
        residues.append((each.clamp(min=0).cumsum(dim) % prime).masked_fill(lost, UNKNOWN))
    return build(residues)


def eliminate(tower: Tower, parts: Parts, *, singular: bool = False) -> tuple[Parts, Parts]:
    """The inverses and the determinants of square matrices, by elimination at every level."""
    if not parts.is_plain:
        raise NotModelledError("a matrix with an infinity")
    shape, size = parts.shape, parts.shape[-1]
    inverses, determinants = [], []
    for residues, prime in zip(parts.residues, tower.primes, strict=True):
        known = [_eliminate(rows, prime) for rows in residues.reshape(-1, size, size).tolist()]
        if not singular and any(number == 0 for _, number in known):
            raise UnluckyError("a matrix is singular")
        rows = [inverse for inverse, _ in known]
        inverses.append(torch.tensor(rows, dtype=torch.int64).reshape(shape))
        numbers = [number for _, number in known]
        determinants.append(torch.tensor(numbers, dtype=torch.int64).reshape(shape[:-2]))
    return build(inverses), build(determinants)


def _eliminate(rows: list[list[int]], prime: int) -> tuple[list[list[int]], int]:
    """The inverse of a matrix and its determinant; both unknown where an entry is."""
    size = len(rows)
    if any(value < 0 for row in rows for value in row):
        return [[UNKNOWN] * size for _ in rows], UNKNOWN
    whole = [[*row, *(int(n == k) for n in range(size))] for k, row in enumerate(rows)]
    found = 1
    for place in range(size):
        best = next((row for row in range(place, size) if whole[row][place]), None)
        if best is None:
            return [[UNKNOWN] * size for _ in rows], 0
        if best != place:
            whole[place], whole[best], found = whole[best], whole[place], -found
        found = found * whole[place][place] % prime
        share = pow(whole[place][place], -1, prime)
        top = whole[place] = [value * share % prime for value in whole[place]]
        for row in range(size):
            if row != place and whole[row][place]:
                factor = whole[row][place]
                whole[row] = [
                    (a - factor * b) % prime for a, b in zip(whole[row], top, strict=True)
                ]
    return [row[size:] for row in whole], found % prime
