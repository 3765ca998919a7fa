"""Tensors over a tower: residues level by level, what is infinite or nan, and exact logarithms.

residues      one tensor for each prime, -1 where nothing is known at this level
companions    level by level exp(x), kept beside a logarithm x: log(y) has the companion y.
0 where there is none: exp(x) is a power of the base; -1 where it is lost
state         FINITE, -inf, inf, nan, or the sign of a finite number that stands for infinity
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from derive.judge.fields.numbers import UNKNOWN, center, find_character

if TYPE_CHECKING:
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
