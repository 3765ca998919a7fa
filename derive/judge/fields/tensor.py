"""Tensors that torch code takes for float64 ones, and that are exact over a tower of fields."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from derive.judge.fields.constants import embed_tensor, find_element, note_hashed
from derive.judge.fields.parts import Parts, Usage, fill

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
