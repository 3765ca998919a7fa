"""Tensors over a tower, their sums, products and quotients.

    residues      one tensor for each prime, -1 where the residue is unknown at this level
    companions    level by level exp(x) of a logarithm x: log(y) has the companion y.
                  0 where exp(x) is a power of the base; -1 where it is unknown
    state         FINITE, -inf, inf, nan, or the sign of a finite number used as an infinity

Numbers that ordinary code computes are elements of a tower too: `elements` embeds them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import gcd
from operator import methodcaller
from typing import Any

import torch

from derive.judge.fields import tower as modular
from derive.judge.fields.tower import UNKNOWN, Tower, center, find_character

FINITE, BELOW, ABOVE, NAN, LOW, HIGH = range(6)  # BELOW is -inf; LOW and HIGH are finite
SIGNS = {BELOW: -1, ABOVE: 1, LOW: -1, HIGH: 1}
SMALL = 1000  # random residues are larger than this, so that a smaller one is an integer
_NEGATED = (FINITE, ABOVE, BELOW, NAN, HIGH, LOW)


class UnluckyError(Exception):
    """A residue is zero or unknown by accident; another tower may avoid it."""


class TooDeepError(Exception):
    """Exponentials nest deeper than the tower is high."""


class NotModelledError(Exception):
    """An operation that has no meaning over a field."""


@dataclass
class Usage:
    """The assumptions of a run beyond exact arithmetic."""

    opaque: dict[str, None] = field(default_factory=dict)  # functions and constants hashed
    guessed: bool = False  # an unrecognised number in a tensor was hashed
    ordered: bool = False  # a result depends on the random order of the elements
    rooted: bool = False  # the root of a nonsquare was taken, with an arbitrary sign
    soft_mask: bool = False  # a large finite number was used as minus infinity


@dataclass(frozen=True, eq=False)
class Parts:
    """The tensors that represent a tensor over a tower, all of the same shape."""

    tower: Tower
    residues: tuple[torch.Tensor, ...]
    companions: tuple[torch.Tensor, ...]
    state: torch.Tensor
    square: Parts | None = None  # the square of a norm, since the sign of a root is arbitrary

    @property
    def every(self) -> tuple[torch.Tensor, ...]:
        """The residues, the companions and the state, in this order."""
        return (*self.residues, *self.companions, self.state)

    def rebuild(self, every: Sequence[torch.Tensor]) -> Parts:
        """Parts over the same tower from tensors in the order of `every`."""
        levels = len(self.residues)
        return Parts(self.tower, tuple(every[:levels]), tuple(every[levels:-1]), every[-1])

    def map(self, act: Callable[[torch.Tensor], Any]) -> Parts:
        """Parts in which each tensor is replaced by `act(tensor)`."""
        return self.rebuild([act(each) for each in self.every])

    def by_level(self, act: Callable[..., torch.Tensor], *others: Parts) -> list[torch.Tensor]:
        """The results of `act(residues of self, residues of others, prime)`, level by level."""
        rows = (each.residues for each in (self, *others))
        return [act(*row) for row in zip(*rows, self.tower.primes, strict=True)]

    def make(
        self,
        residues: Sequence[torch.Tensor],
        state: torch.Tensor | None = None,
        companions: Sequence[torch.Tensor] | None = None,
    ) -> Parts:
        """Parts over the same tower, without infinities and logarithms unless they are given."""
        return build(self.tower, residues, state, companions)

    @property
    def shape(self) -> torch.Size:
        """The shape of the tensor."""
        return self.state.shape

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return self.state.dim()

    @property
    def is_plain(self) -> bool:
        """Whether every element is finite."""
        return not bool(self.state.any())

    @property
    def is_simple(self) -> bool:
        """Whether every element is finite, and none is a logarithm."""
        return self.is_plain and not self.has_companions

    @property
    def has_companions(self) -> bool:
        """Whether an element is a logarithm: companions are the exponentials of those."""
        return any(bool(each.any()) for each in self.companions)

    def has_state(self, *states: int) -> torch.Tensor:
        """The mask of elements in one of these states."""
        found = self.state == states[0]
        for each in states[1:]:
            found = found | (self.state == each)
        return found

    def __add__(self, other: Parts) -> Parts:
        """The sum; infinities of two signs are nan."""
        one, other = broadcast(self, other)
        state = companions = None
        if not (one.is_plain and other.is_plain):
            state = balance_states(lambda s: (one.state == s).long() + (other.state == s).long())
        if one.has_companions or other.has_companions:
            pairs = zip(exponentiate(one), exponentiate(other), self.tower.primes, strict=False)
            companions = [modular.multiply(*pair) for pair in pairs]
        return self.make(one.by_level(modular.add, other), state, companions)

    def __neg__(self) -> Parts:
        """The tensor with the other sign."""
        residues = self.by_level(lambda each, p: modular.keep_unknown((-each) % p, each))
        companions = [
            modular.invert(each, prime).masked_fill(each == 0, 0)
            for each, prime in zip(self.companions, self.tower.primes, strict=False)
        ]
        negated = torch.tensor(_NEGATED, dtype=torch.int8)
        return self.make(residues, negated[self.state.long()], companions)

    def __sub__(self, other: Parts) -> Parts:
        """The difference."""
        return self + -other

    def __mul__(self, other: Parts) -> Parts:
        """The product; zero times infinity is nan."""
        return multiply(self, other)

    def __truediv__(self, other: Parts) -> Parts:
        """The quotient."""
        return self * invert(other)


def build(
    tower: Tower,
    residues: Sequence[torch.Tensor],
    state: torch.Tensor | None = None,
    companions: Sequence[torch.Tensor] | None = None,
) -> Parts:
    """The parts of a tensor, by default finite and no logarithms; infinities, nan get residue 0."""
    if state is None:
        state = torch.zeros(residues[0].shape, dtype=torch.int8)
    elif bool(state.any()):
        endless = (state >= BELOW) & (state <= NAN)
        residues = [each.masked_fill(endless, 0) for each in residues]
    if companions is None:
        companions = [torch.zeros_like(state, dtype=torch.int64) for _ in residues[1:]]
    return Parts(
        tower,
        tuple(each.contiguous() for each in residues),
        tuple(each.contiguous() for each in companions),
        state.to(torch.int8).contiguous(),
    )


def fill(
    tower: Tower,
    shape: Sequence[int],
    residues: Sequence[int],
    state: int = FINITE,
    companions: Sequence[int] = (),
) -> Parts:
    """The parts of a tensor filled with one element."""
    shape = tuple(shape)
    numbers = (*residues, *(companions or (0,) * tower.depth))
    every = [torch.full(shape, each, dtype=torch.int64) for each in numbers]
    states = torch.full(shape, state, dtype=torch.int8)
    return Parts(tower, tuple(every[: tower.levels]), tuple(every[tower.levels :]), states)


def broadcast(*given: Parts) -> tuple[Parts, ...]:
    """The parts, broadcast to their common shape."""
    # The first call of torch.broadcast_shapes would load many modules.
    states = torch.broadcast_tensors(*(each.state for each in given))  # type: ignore[no-untyped-call]
    shape = states[0].shape
    return tuple(
        each if each.shape == shape else each.map(methodcaller("expand", shape)) for each in given
    )


def choose(condition: torch.Tensor, one: Parts, other: Parts) -> Parts:
    """The elements of `one` where the condition holds, else of `other`."""
    one, other = broadcast(one, other)
    pairs = zip(one.every, other.every, strict=True)
    return one.rebuild([torch.where(condition, a, b).contiguous() for a, b in pairs])


def find_small(parts: Parts) -> tuple[torch.Tensor, torch.Tensor]:
    """The centred residues, and whether each is an integer: small, and equal at all levels."""
    primes = parts.tower.primes
    value = center(parts.residues[0], primes[0])
    small = (value.abs() <= SMALL) & (parts.state == FINITE) & (parts.residues[0] >= 0)
    for prime, residues in zip(primes[1:], parts.residues[1:], strict=True):
        small &= (residues == UNKNOWN) | (residues == value % prime)
    return value, small


def find_signs(parts: Parts) -> torch.Tensor:
    """The signs -1, 0, 1: of small integers their own, of others 1 for squares, -1 for the rest."""
    value, small = find_small(parts)
    character = find_character(parts.residues[0], parts.tower.primes[0])
    found = torch.where(small, value.sign(), character)
    for state, sign in SIGNS.items():
        found = torch.where(parts.state == state, sign, found)
    return found


def exponentiate(parts: Parts) -> list[torch.Tensor]:
    """Exp at each level but the last: the companion, else a power of the base; -1 if unknown."""
    found = []
    for level, companion in enumerate(parts.companions):
        base, prime = parts.tower.bases[level], parts.tower.primes[level]
        below = parts.residues[level + 1]
        power = modular.keep_unknown(modular.raise_each(base, below.clamp(min=0), prime), below)
        found.append(torch.where(companion != 0, companion, power))
    return found


def multiply(one: Parts, other: Parts, signs: torch.Tensor | None = None) -> Parts:
    """The product; zero times infinity is nan. `signs` are the signs of `other`, if known."""
    one, other = broadcast(one, other)
    state = companions = None
    if not (one.is_plain and other.is_plain):
        for here, there in ((one, other), (other, one)):
            unknown = there.residues[0] < 0
            if bool(((here.state != FINITE) & unknown & (there.state != NAN)).any()):
                raise NotModelledError("an infinity times a logarithm")
        sign = find_signs(one) * (find_signs(other) if signs is None else signs)
        endless = one.has_state(BELOW, ABOVE) | other.has_state(BELOW, ABOVE)
        soft = one.has_state(LOW, HIGH) | other.has_state(LOW, HIGH)
        state = torch.where(soft, torch.where(sign < 0, LOW, HIGH) * (sign != 0), FINITE)
        state = torch.where(endless, torch.where(sign < 0, BELOW, ABOVE), state)
        nan = (one.state == NAN) | (other.state == NAN) | (endless & (sign == 0))
        state = torch.where(nan, NAN, state)
    if one.has_companions or other.has_companions:
        companions = _multiply_companions(one, other)
    return one.make(one.by_level(modular.multiply, other), state, companions)


def _multiply_companions(one: Parts, other: Parts) -> list[torch.Tensor]:
    """The companions of a product: c**n for c times a small integer n; otherwise unknown."""
    found = [torch.zeros_like(each) for each in one.companions]
    for here, there in ((one, other), (other, one)):
        value, small = find_small(there)
        count = torch.where(small, value, 0)
        for level, companion in enumerate(here.companions):
            raised = modular.raise_each(companion, count, one.tower.primes[level])
            kept = torch.where(small, raised, UNKNOWN)
            kept = kept.masked_fill((companion == 0) | (small & (value == 0)), 0)
            found[level] = torch.where(kept != 0, kept, found[level])
    return found


def scale(parts: Parts, number: Fraction) -> Parts:
    """The tensor times a rational; a logarithm keeps its companion where the root is unique."""
    constant = fill(parts.tower, (), parts.tower.embed(number))
    sign = torch.tensor((number > 0) - (number < 0))
    if not parts.has_companions or number == 1:
        return multiply(parts, constant, sign)
    product = multiply(strip(parts), constant, sign)
    companions = []
    for companion, prime in zip(parts.companions, parts.tower.primes, strict=False):
        raised = raise_rational(companion, number, prime)
        if raised is None:
            raised = torch.full_like(companion, UNKNOWN)
        companions.append(raised.masked_fill(companion == 0, 0))
    return parts.make(product.residues, product.state, companions)


def strip(parts: Parts) -> Parts:
    """The tensor without the companions of logarithms."""
    return parts.make(parts.residues, parts.state) if parts.has_companions else parts


def raise_rational(residues: torch.Tensor, number: Fraction, prime: int) -> torch.Tensor | None:
    """Residues to a rational power; None where roots of residues are not unique."""
    below = number.denominator
    if gcd(below, prime - 1) != 1:
        return None
    exponent = number.numerator * pow(below, -1, prime - 1) % (prime - 1)
    raised: torch.Tensor = modular.take_power(residues, exponent, prime)
    return raised


def invert(parts: Parts) -> Parts:
    """The reciprocals, infinity for zero; UnluckyError where only the first residue is zero."""
    zero = (parts.residues[0] == 0) & (parts.state == FINITE)
    if any(bool((zero & (other > 0)).any()) for other in parts.residues[1:]):
        raise UnluckyError
    off = zero | parts.has_state(BELOW, ABOVE)
    residues = parts.by_level(lambda each, prime: modular.invert(each, prime).masked_fill(off, 0))
    return parts.make(residues, torch.where(zero, ABOVE, NAN * (parts.state == NAN)))


def matmul(one: Parts, other: Parts) -> Parts:
    """The matrix product over the last two dimensions."""
    if not (one.is_simple and other.is_simple):
        wide = one.map(methodcaller("unsqueeze", -1))
        return reduce_sum(wide * other.map(methodcaller("unsqueeze", -3)), (-2,))
    return one.make(one.by_level(modular.matmul, other))


def list_dims(parts: Parts, dims: int | Sequence[int] | None) -> list[int]:
    """The dimensions in order; all of them if none are given."""
    given = [dims] if isinstance(dims, int) else dims or range(parts.rank)
    return sorted({dim % max(parts.rank, 1) for dim in given}) if parts.rank else []


def reduce_sum(
    parts: Parts, dims: int | Sequence[int] | None = None, keepdim: bool = False
) -> Parts:
    """The sum over dimensions; over all of them if none are given."""
    chosen = list_dims(parts, dims)
    if not chosen:
        return parts

    def total(each: torch.Tensor) -> torch.Tensor:
        return each.sum(chosen, keepdim=keepdim)

    residues = parts.by_level(
        lambda each, p: (total(each.clamp(min=0)) % p).masked_fill(total(each < 0) > 0, UNKNOWN)
    )
    state = companions = None
    if not parts.is_plain:
        state = balance_states(lambda which: total(parts.state == which))
    if parts.has_companions:
        companions = exponentiate(parts)
        for dim in reversed(chosen):
            pairs = zip(companions, parts.tower.primes, strict=False)
            companions = [modular.reduce_product(each, dim, p, keepdim) for each, p in pairs]
    return parts.make(residues, state, companions)


def balance_states(count: Callable[[int], torch.Tensor]) -> torch.Tensor:
    """The states of sums; `count` maps a state to the number of summands in it."""
    below, above, nan = count(BELOW) > 0, count(ABOVE) > 0, count(NAN) > 0
    balance = count(HIGH) - count(LOW)
    found = torch.where(balance > 0, HIGH, torch.where(balance < 0, LOW, FINITE))
    found = torch.where(below, BELOW, torch.where(above, ABOVE, found))
    return torch.where(nan | (below & above), NAN, found)


def accumulate(parts: Parts, dim: int) -> Parts:
    """The inclusive prefix sums along a dimension."""
    if parts.is_simple:
        return parts.make(
            parts.by_level(
                lambda each, prime: (each.clamp(min=0).cumsum(dim) % prime).masked_fill(
                    (each < 0).cumsum(dim) > 0, UNKNOWN
                )
            )
        )
    length = parts.shape[dim] if parts.rank else 1
    starts = (parts.map(methodcaller("narrow", dim, 0, n + 1)) for n in range(length))
    totals = [reduce_sum(start, dim, True) for start in starts]
    every = zip(*(total.every for total in totals), strict=True)
    return totals[0].rebuild([torch.cat(pieces, dim) for pieces in every]) if totals else parts


def eliminate(parts: Parts, *, singular: bool = False) -> tuple[Parts, Parts]:
    """The inverses and determinants; UnluckyError at a singular matrix, unless `singular`."""
    if not parts.is_plain:
        raise NotModelledError("a matrix with an infinity")
    shape, size = parts.shape, parts.shape[-1]
    inverses, determinants = [], []
    for residues, prime in zip(parts.residues, parts.tower.primes, strict=True):
        known = [_eliminate(rows, prime) for rows in residues.reshape(-1, size, size).tolist()]
        if not singular and any(number == 0 for _, number in known):
            raise UnluckyError("a matrix is singular")
        rows = torch.tensor([inverse for inverse, _ in known], dtype=torch.int64)
        inverses.append(rows.reshape(shape))
        numbers = torch.tensor([number for _, number in known], dtype=torch.int64)
        determinants.append(numbers.reshape(shape[:-2]))
    return parts.make(inverses), parts.make(determinants)


def _eliminate(rows: list[list[int]], prime: int) -> tuple[list[list[int]], int]:
    """The inverse (unknown if singular) and the determinant; both unknown if an entry is."""
    size = len(rows)
    nothing = [[UNKNOWN] * size for _ in rows]
    if any(value < 0 for row in rows for value in row):
        return nothing, UNKNOWN
    whole = [[*row, *(int(n == k) for n in range(size))] for k, row in enumerate(rows)]
    found = 1
    for place in range(size):
        best = next((row for row in range(place, size) if whole[row][place]), None)
        if best is None:
            return nothing, 0
        if best != place:
            whole[place], whole[best], found = whole[best], whole[place], -found
        found = found * whole[place][place] % prime
        inverse = pow(whole[place][place], -1, prime)
        top = whole[place] = [value * inverse % prime for value in whole[place]]
        for row in range(size):
            factor = whole[row][place]
            if row != place and factor:
                pairs = zip(whole[row], top, strict=True)
                whole[row] = [(a - factor * b) % prime for a, b in pairs]
    return [row[size:] for row in whole], found % prime
