"""Tensors over a tower as a torch.Tensor subclass, and the context of one operation on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from derive.judge.fields import algebra, elements
from derive.judge.fields.tower import Tower
from derive.libraries import internals, make_mode

FACTORIES = frozenset(
    f"{prefix}{name}{suffix}"
    for name in ("zeros", "ones", "full", "empty")
    for prefix, suffix in (("", ""), ("new_", ""), ("", "_like"))
) | {"empty_strided", "new_empty_strided"}


class FieldTensor(torch.Tensor):
    """A wrapper around the parts; every torch operation is dispatched to `answer`."""

    parts: algebra.Parts
    answer: ClassVar[Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]]

    @staticmethod
    def __new__(cls: type[FieldTensor], parts: algebra.Parts) -> FieldTensor:
        """A tensor that shares the memory of its parts."""
        first = parts.residues[0]
        made: FieldTensor = internals.make_wrapper(
            cls,
            first.shape,
            strides=first.stride(),
            storage_offset=first.storage_offset(),
            dtype=torch.float64,
        )
        return made

    def __init__(self, parts: algebra.Parts) -> None:
        self.parts = parts

    @property
    def tower(self) -> Tower:
        """The tower of the parts."""
        return self.parts.tower

    __torch_function__ = internals.no_torch_function

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """The result of an operation with at least one tensor over a tower."""
        return cls.answer(func, args, kwargs or {})

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"FieldTensor{tuple(self.shape)}"


class Exact:
    """A mode in which tensors created by zeros, ones, full or empty are over the tower."""

    def __init__(self, tower: Tower) -> None:
        self.tower = tower
        self.usage = algebra.Usage()
        self.paused = False
        self.mode = make_mode(self.answer, of_operations=True)

    def answer(self, func: Any, args: Any, named: Any) -> Any:
        """The result of an operation on tensors over the tower, or of ordinary ones."""
        if self.paused:
            return func(*args, **named)
        if any(isinstance(each, FieldTensor) for each in iterate(args, named)):
            return FieldTensor.answer(func, args, named)
        made = func(*args, **named)
        if isinstance(made, FieldTensor):
            return made  # converted by an outer mode
        name = func.overloadpacket.__name__
        if name in FACTORIES and isinstance(made, torch.Tensor) and made.is_floating_point():
            if "empty" in name:
                made.fill_(float("nan"))
            return FieldTensor(elements.embed_tensor(self.tower, self.usage, made))
        return made


_RUNNING: list[Exact] = []


@contextmanager
def exact(tower: Tower) -> Iterator[algebra.Usage]:
    """A context in which torch code computes over the tower; yields the record of its usage."""
    run = Exact(tower)
    _RUNNING.append(run)
    try:
        with sdpa_kernel(SDPBackend.MATH), run.mode:  # attention by products and a softmax
            yield run.usage
    finally:
        _RUNNING.pop()


def find_usage() -> algebra.Usage:
    """The record of the innermost running context; outside of all contexts a new record."""
    return _RUNNING[-1].usage if _RUNNING else algebra.Usage()


@contextmanager
def pause() -> Iterator[None]:
    """A context in which created tensors are ordinary ones, as constructors of modules need."""
    before = [(mode, mode.paused) for mode in _RUNNING]
    for mode in _RUNNING:
        mode.paused = True
    try:
        yield
    finally:
        for mode, paused in before:
            mode.paused = paused


def find_running() -> Any:
    """The innermost running mode, which may be entered again."""
    return _RUNNING[-1].mode if _RUNNING else nullcontext()


def iterate(*given: Any) -> Iterator[Any]:
    """The leaves of nested lists, tuples and dictionaries."""
    for each in given:
        if isinstance(each, (list, tuple)):
            yield from iterate(*each)
        elif isinstance(each, dict):
            yield from iterate(*each.values())
        else:
            yield each


def to_parts(tower: Tower, value: Any) -> algebra.Parts:
    """The parts of a tensor or a number: residues, companions, states."""
    if isinstance(value, FieldTensor):
        return value.parts
    usage = find_usage()
    if isinstance(value, torch.Tensor):
        return elements.embed_tensor(tower, usage, value)
    if isinstance(value, bool) or not isinstance(value, (int, float, Fraction)):
        value = float(value)
    found = elements.find_element(tower, value)
    elements.record_hashed(usage, [found.hashed] if found.hashed else [])
    return algebra.fill(tower, (), found.residues, found.state, found.companions)


def to_field(tower: Tower, value: Any) -> FieldTensor:
    """A number, a Fraction or an ordinary tensor converted to a tensor over the tower."""
    return FieldTensor(to_parts(tower, value))


Handler = Callable[..., Any]  # from a Run and torch's arguments to Parts or ordinary values


@dataclass(frozen=True)
class Run:
    """The context of one operation: the tower, the record of usage, the operation's name."""

    tower: Tower
    usage: algebra.Usage
    name: str

    def parts(self, value: Any) -> algebra.Parts:
        """The parts of an argument."""
        return to_parts(self.tower, value)

    def scale(self, parts: algebra.Parts, value: Any) -> algebra.Parts:
        """The product with a tensor or number; rational numbers keep the elements' logarithms."""
        if isinstance(value, FieldTensor):
            return parts * value.parts
        quotient = _read_quotient(value)
        if quotient is not None and not self.parts(value).state.any():
            return algebra.scale(parts, quotient)
        return algebra.multiply(parts, algebra.strip(self.parts(value)), _find_number_signs(value))

    def divide(self, parts: algebra.Parts, value: Any) -> algebra.Parts:
        """The quotient by a tensor or number; rational numbers keep the elements' logarithms."""
        if isinstance(value, FieldTensor):
            return parts / value.parts
        quotient = _read_quotient(value)
        if quotient:
            return algebra.scale(parts, 1 / quotient)
        signs = _find_number_signs(value)
        below = algebra.invert(self.parts(value))
        return algebra.multiply(parts, below, signs.masked_fill(signs == 0, 1))

    def is_nonzero(self, parts: algebra.Parts) -> torch.Tensor:
        """The truth values of the elements; for random residues they depend on chance."""
        self.usage.ordered |= bool(
            ((parts.state == algebra.FINITE) & ~algebra.find_small(parts)[1]).any()
        )
        return (parts.residues[0] != 0) | (parts.state != algebra.FINITE)

    def read_integers(self, parts: algebra.Parts) -> torch.Tensor:
        """The elements as integers; NotModelledError where an element is not a small integer."""
        value, small = algebra.find_small(parts)
        if not bool(small.all()):
            raise algebra.NotModelledError(f"{self.name}: a number out of the data")
        return value


def _read_quotient(value: Any) -> Fraction | None:
    is_number = isinstance(value, (int, float, Fraction)) and not isinstance(value, bool)
    return elements.to_fraction(value) if is_number else None


def _find_number_signs(value: Any) -> torch.Tensor:
    """The signs -1, 0, 1 of ordinary numbers; 0 for nan."""
    found = torch.as_tensor(value if isinstance(value, torch.Tensor) else float(value)).double()
    return torch.where(found.isnan(), 0, found.sign()).long()


def wrap(found: Any) -> Any:
    """The result with all Parts, also in tuples and lists, as FieldTensors."""
    if isinstance(found, algebra.Parts):
        return FieldTensor(found)
    if isinstance(found, (tuple, list)):
        return type(found)(map(wrap, found))
    return found
