"""One operation of torch's on tensors over a tower: its tower, and arguments turned into parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import torch

from derive.judge.fields import algebra
from derive.judge.fields.constants import to_fraction
from derive.judge.fields.parts import (
    FINITE,
    NotModelledError,
    Parts,
    Usage,
    build,
    fill,
    find_small,
)
from derive.judge.fields.tensor import FieldTensor, to_parts

if TYPE_CHECKING:
    from derive.judge.fields.tower import Tower

Handler = Callable[..., Any]  # of a Run and the arguments that torch gives: Parts, or what it says


@dataclass(frozen=True)
class Run:
    """The tower in force, and what the run rests on so far."""

    tower: Tower
    usage: Usage
    name: str

    def parts(self, value: Any) -> Parts:
        """The parts of an argument."""
        return to_parts(self.tower, value)

    def number(self, value: Fraction | int) -> Parts:
        """One rational number."""
        return fill(self.tower, (), self.tower.embed(value))

    def add(self, one: Parts, other: Parts) -> Parts:
        """The sum."""
        return algebra.add(self.tower, one, other)

    def subtract(self, one: Parts, other: Parts) -> Parts:
        """The difference."""
        return algebra.add(self.tower, one, algebra.negate(self.tower, other))

    def multiply(self, one: Parts, other: Parts) -> Parts:
        """The product."""
        return algebra.multiply(self.tower, one, other)

    def scale(self, parts: Parts, value: Any) -> Parts:
        """The element times a number or tensor; a number leaves logarithms what they are."""
        if isinstance(value, FieldTensor):
            return self.multiply(parts, value.parts)
        if isinstance(value, (int, float, Fraction)) and not isinstance(value, bool):
            quotient = to_fraction(value)
            if quotient is not None and not self.parts(value).state.any():
                return algebra.scale(self.tower, parts, quotient)
        number = strip(self.parts(value))
        return algebra.multiply(self.tower, parts, number, find_number_signs(value))

    def divide(self, parts: Parts, value: Any) -> Parts:
        """The quotient by a number or tensor; a number leaves logarithms what they are."""
        if isinstance(value, FieldTensor):
            return algebra.divide(self.tower, parts, value.parts)
        if isinstance(value, (int, float, Fraction)) and not isinstance(value, bool):
            quotient = to_fraction(value)
            if quotient:
                return algebra.scale(self.tower, parts, 1 / quotient)
        below = algebra.invert(self.tower, self.parts(value))
        signs = find_number_signs(value)
        return algebra.multiply(self.tower, parts, below, signs.masked_fill(signs == 0, 1))

    def sum(self, parts: Parts, dims: Any = (), keepdim: bool = False) -> Parts:
        """The sum over dimensions."""
        return algebra.reduce_sum(self.tower, parts, list_dims(dims), keepdim)

    def mean(self, parts: Parts, dims: Any = (), keepdim: bool = False) -> Parts:
        """The mean over dimensions."""
        count = count_elements(parts, list_dims(dims))
        if not count:
            return fill(
                self.tower, self.sum(parts, dims, keepdim).shape, (0,) * self.tower.levels, 3
            )
        return algebra.scale(self.tower, self.sum(parts, dims, keepdim), Fraction(1, count))

    def is_nonzero(self, parts: Parts) -> torch.Tensor:
        """The truth values; those of random residues rest on chance."""
        if bool(((parts.state == FINITE) & ~find_small(self.tower, parts)[1]).any()):
            self.usage.ordered = True
        return (parts.residues[0] != 0) | (parts.state != FINITE)

    def read_integers(self, parts: Parts) -> torch.Tensor:
        """The elements as integers; refused where they are none."""
        value, small = find_small(self.tower, parts)
        if not bool(small.all()):
            raise NotModelledError(f"{self.name}: a number out of the data")
        return value


def strip(parts: Parts) -> Parts:
    """The element without what it is the logarithm of: as a factor it is a number."""
    return build(parts.residues, parts.state) if parts.has_companions else parts


def find_number_signs(value: Any) -> torch.Tensor:
    """The signs of ordinary numbers."""
    found = torch.as_tensor(value if isinstance(value, torch.Tensor) else float(value)).double()
    return torch.where(found.isnan(), 0, found.sign()).long()


def wrap(tower: Tower, found: Any) -> Any:
    """Parts as tensors, also in tuples and lists."""
    if isinstance(found, Parts):
        return FieldTensor(tower, found)
    if isinstance(found, (tuple, list)):
        return type(found)(wrap(tower, each) for each in found)
    return found


def list_dims(dims: Any) -> tuple[int, ...]:
    """Dimensions as a tuple; none for all."""
    if dims is None:
        return ()
    return (dims,) if isinstance(dims, int) else tuple(dims)


def count_elements(parts: Parts, dims: tuple[int, ...]) -> int:
    """How many elements a reduction over dimensions takes together."""
    count = 1
    for dim in dims or range(parts.state.dim()):
        count *= parts.shape[dim] if parts.state.dim() else 1
    return count
