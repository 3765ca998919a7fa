"""Tensors over a tower as torch knows them, and one operation on them with its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from derive.judge.fields import algebra
from derive.judge.fields.algebra import (
    FINITE,
    NotModelledError,
    Parts,
    Usage,
    build,
    fill,
    find_small,
)
from derive.judge.fields.constants import embed_tensor, find_element, note_hashed, to_fraction

if TYPE_CHECKING:
    from derive.judge.fields.tower import Tower


FACTORIES = frozenset(
    f"{prefix}{name}{suffix}"
    for name in ("zeros", "ones", "full", "empty")
    for prefix, suffix in (("", ""), ("new_", ""), ("", "_like"))
) | {"empty_strided", "new_empty_strided"}


class FieldTensor(torch.Tensor):
    """A wrapper around the parts; every operation of torch's goes to `answer`."""

    tower: Tower
    parts: Parts
    answer: ClassVar[Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]]

    @staticmethod
    def __new__(
        cls: type[FieldTensor], tower: Tower, parts: Parts, requires_grad: bool = False
    ) -> FieldTensor:
        """A tensor that shares the memory of its parts."""
        first = parts.residues[0]
        return torch.Tensor._make_wrapper_subclass(
            cls,
            first.shape,
            strides=first.stride(),
            storage_offset=first.storage_offset(),
            dtype=torch.float64,
            requires_grad=requires_grad,
        )

    def __init__(self, tower: Tower, parts: Parts, requires_grad: bool = False) -> None:
        self.tower = tower
        self.parts = parts

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """One operation on tensors of which one at least is over a tower."""
        return cls.answer(func, args, kwargs or {})

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"FieldTensor{tuple(self.shape)}"


class Exact(TorchDispatchMode):
    """In here what code makes anew of zeros, ones or one number can hold elements of the tower."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tower = tower
        self.usage = Usage()
        self.paused = False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No: to say so loads all of torch's compiler, which takes longer than a check."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One operation on any tensors."""
        named = kwargs or {}
        if self.paused:
            return func(*args, **named)
        if any(isinstance(each, FieldTensor) for each in iterate(args, named)):
            return FieldTensor.answer(func, args, named)
        made = func(*args, **named)
        if isinstance(made, FieldTensor):
            return made  # by a run around this one
        name = func.overloadpacket.__name__
        if name in FACTORIES and isinstance(made, torch.Tensor) and made.is_floating_point():
            if "empty" in name:
                made.fill_(float("nan"))
            return FieldTensor(self.tower, embed_tensor(self.tower, self.usage, made))
        return made


_RUNNING: list[Exact] = []


@contextmanager
def exact(tower: Tower) -> Iterator[Usage]:
    """Ordinary code in here computes over the tower; what it rested on is told."""
    mode = Exact(tower)
    _RUNNING.append(mode)
    try:
        with mode:
            yield mode.usage
    finally:
        _RUNNING.pop()


def find_usage() -> Usage:
    """What the run in force rests on; a fresh record outside of any."""
    return _RUNNING[-1].usage if _RUNNING else Usage()


@contextmanager
def pause() -> Iterator[None]:
    """What code makes anew in here are ordinary tensors; a module is constructed so."""
    before = [(mode, mode.paused) for mode in _RUNNING]
    for mode in _RUNNING:
        mode.paused = True
    try:
        yield
    finally:
        for mode, paused in before:
            mode.paused = paused


def find_running() -> Exact | None:
    """The mode in force."""
    return _RUNNING[-1] if _RUNNING else None


def iterate(*given: Any) -> Iterator[Any]:
    """Everything in nested lists, tuples and dictionaries."""
    for each in given:
        if isinstance(each, (list, tuple)):
            yield from iterate(*each)
        elif isinstance(each, dict):
            yield from iterate(*each.values())
        else:
            yield each


def to_parts(tower: Tower, value: Any) -> Parts:
    """The parts of a tensor or number."""
    if isinstance(value, FieldTensor):
        return value.parts
    usage = find_usage()
    if isinstance(value, torch.Tensor):
        return embed_tensor(tower, usage, value)
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction)):
        value = float(value)
    found = find_element(tower, value)
    note_hashed(usage, [found.hashed] if found.hashed else [])
    return fill(tower, (), found.residues, found.state, found.companions)


def to_field(tower: Tower, value: Any) -> FieldTensor:
    """A number, a Fraction or an ordinary tensor over the tower, exactly."""
    return FieldTensor(tower, to_parts(tower, value))


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
