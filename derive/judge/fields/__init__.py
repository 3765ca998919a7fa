"""Ordinary torch code run exactly, over a random tower of prime fields.

    tower = draw_tower(seed)
    with exact(tower) as usage:
        q = draw_field(tower, (2, 3), seed)
        found = torch.exp(q @ q.T / 2)        no rounding: exp(a + b) = exp(a) exp(b)
    find_differences(found, expected).any()

Two expressions that are equal for all real numbers give equal elements; two that are not give
different ones, but by an accident as rare as the smallest prime is large (Schwartz 1980, Zippel
1979: a polynomial that is not zero has few zeros).
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
    """Random residues at every level; squares where they stand for positive numbers."""
    generator = torch.Generator().manual_seed(Random(seed).getrandbits(40))
    residues = []
    for prime in tower.primes:
        found = torch.randint(1, prime, tuple(shape), generator=generator)
        residues.append(found * found % prime if positive else found)
    return FieldTensor(build(tower, residues))


def find_differences(found: Any, expected: Any) -> torch.Tensor:
    """Where two tensors differ, element by element.

    TooDeepError where nothing is known of an element on both sides, UnluckyError where that
    befalls a few.
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
    """Is an element finite, so that a comparison says something?"""
    if not isinstance(tensor, FieldTensor):
        return bool(tensor.isfinite().any())
    state = tensor.parts.state
    return bool(((state == FINITE) | (state >= LOW)).any())


def show_value(tensor: Any, place: tuple[int, ...]) -> str:
    """An element in words: its first residue, centred."""
    if not isinstance(tensor, FieldTensor):
        return f"{tensor[place].item():g}"
    state = int(tensor.parts.state[place])
    if _STATES[state]:
        return _STATES[state]
    for residues, prime in zip(tensor.parts.residues, tensor.tower.primes, strict=True):
        if int(residues[place]) >= 0:
            return f"{int(center(residues[place], prime))} modulo {prime}"
    return "unknown"
