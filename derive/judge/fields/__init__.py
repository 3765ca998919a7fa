"""Ordinary torch code run exactly, over a random tower of prime fields.

    tower = draw_tower(seed)
    with exact(tower) as usage:
        q = draw_field(tower, (2, 3), seed)
        found = torch.exp(q @ q.T / 2)        no rounding: exp(a + b) = exp(a) exp(b)
    find_differences(found, expected).any()

Two expressions that are equal for all real numbers have equal elements. Two that are not have
different elements, except with a probability of about 1 / (the smallest prime) (Schwartz 1980,
Zippel 1979: a nonzero polynomial has few zeros).
"""

from collections.abc import Sequence
from random import Random
from typing import Any

import torch

from derive.judge.fields.algebra import (
    FINITE,
    LOW,
    NotModelledError,
    TooDeepError,
    UnluckyError,
    Usage,
    build,
)
from derive.judge.fields.table import dispatch
from derive.judge.fields.tensor import FieldTensor, exact, to_field
from derive.judge.fields.tower import DEEPEST, Tower, center, draw_tower

__all__ = [
    "DEEPEST",
    "FieldTensor",
    "NotModelledError",
    "TooDeepError",
    "Tower",
    "UnluckyError",
    "Usage",
    "dispatch",
    "draw_field",
    "draw_tower",
    "exact",
    "find_differences",
    "has_finite",
    "show_value",
    "to_field",
]
_STATES = ("", "-inf", "inf", "nan", "", "")


def draw_field(
    tower: Tower, shape: Sequence[int], seed: int, *, positive: bool = False
) -> FieldTensor:
    """A tensor of random residues at every level; with `positive`, of random squares."""
    generator = torch.Generator().manual_seed(Random(seed).getrandbits(40))
    residues = []
    for prime in tower.primes:
        found = torch.randint(1, prime, tuple(shape), generator=generator)
        residues.append(found * found % prime if positive else found)
    return FieldTensor(build(tower, residues))


def find_differences(found: Any, expected: Any) -> torch.Tensor:
    """The mask of elements in which two tensors differ.

    If none does: TooDeepError where all elements are unknown, UnluckyError where some are.
    """
    tower = next(each.tower for each in (found, expected) if isinstance(each, FieldTensor))
    one, other = (to_field(tower, each).parts for each in (found, expected))
    states = torch.where(one.state >= LOW, FINITE, one.state.long())
    differs = states != torch.where(other.state >= LOW, FINITE, other.state.long())
    for a, b in zip(one.companions, other.companions, strict=True):
        differs |= (a > 0) & (b > 0) & (a != b)
    known = states != FINITE
    for a, b in zip(one.residues, other.residues, strict=True):
        both = (a >= 0) & (b >= 0)
        differs |= both & (a != b)
        known |= both
    if bool(differs.any()) or bool(known.all()):
        return differs
    raise UnluckyError if bool(known.any()) else TooDeepError


def has_finite(tensor: Any) -> bool:
    """Whether some element is finite, so that a comparison is meaningful."""
    if not isinstance(tensor, FieldTensor):
        return bool(tensor.isfinite().any())
    state = tensor.parts.state
    return bool(((state == FINITE) | (state >= LOW)).any())


def show_value(tensor: Any, place: tuple[int, ...]) -> str:
    """The text of an element: its state, its first known residue (centred), or "unknown"."""
    if not isinstance(tensor, FieldTensor):
        return f"{tensor[place].item():g}"
    state = int(tensor.parts.state[place])
    if _STATES[state]:
        return _STATES[state]
    for residues, prime in zip(tensor.parts.residues, tensor.tower.primes, strict=True):
        if int(residues[place]) >= 0:
            return f"{int(center(residues[place], prime))} modulo {prime}"
    return "unknown"
