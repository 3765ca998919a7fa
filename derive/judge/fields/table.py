"""Every operation of torch's on tensors over a tower, found by its name or taken apart by torch."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._mode_utils import no_dispatch

from derive.judge.fields.attention import ATTENTION
from derive.judge.fields.handlers import ARITHMETIC
from derive.judge.fields.parts import NotModelledError, Parts
from derive.judge.fields.pointwise import POINTWISE
from derive.judge.fields.run import Run, wrap
from derive.judge.fields.tensor import (
    FACTORIES,
    FieldTensor,
    find_running,
    find_usage,
    iterate,
)
from derive.judge.fields.views import MOVES, VIEWS, make_like, move
from derive.judge.fields.windows import WINDOWS

if TYPE_CHECKING:
    from derive.judge.fields.run import Handler
    from derive.judge.fields.tower import Tower

TABLE: dict[str, Handler] = {**ARITHMETIC, **ATTENTION, **POINTWISE, **VIEWS, **WINDOWS}


def dispatch(func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """One operation; NotModelledError where it has no meaning over a field."""
    tower = _find_tower(args, named)
    name = func.overloadpacket.__name__
    run = Run(tower, find_usage(), name)
    if torch.Tag.nondeterministic_seeded in func.tags and name not in TABLE:
        raise NotModelledError(f"{name}, which is random,")
    if name in MOVES:
        return wrap(tower, move(run, func, args, named))
    if name in TABLE:
        found = TABLE[name](run, *args, **_drop_types(name, named))
        return wrap(tower, _own(found, args))
    if name in FACTORIES:
        return wrap(tower, make_like(run, func, args, named))
    if name.endswith("_") and name[:-1] in TABLE:
        return _write(run, args[0], TABLE[name[:-1]](run, *args, **named))
    if torch.Tag.inplace_view in func.tags and name[:-1] in MOVES:
        return _turn(func, *args, **named)
    return _take_apart(run, func, args, named)


def _own(found: Any, args: tuple[Any, ...]) -> Any:
    """What is computed has memory of its own, also where it is what was given."""
    if isinstance(found, tuple):
        return tuple(_own(each, args) for each in found)
    if not isinstance(found, Parts):
        return found
    given = (each.parts.every for each in iterate(args) if isinstance(each, FieldTensor))
    taken = {part.data_ptr() for every in given for part in every}
    shares = any(part.data_ptr() in taken for part in found.every)
    return found.map(torch.clone) if shares else found


def _drop_types(name: str, named: dict[str, Any]) -> dict[str, Any]:
    """Floats of every width are one field."""
    if name == "_to_copy":
        return named
    return {key: value for key, value in named.items() if key != "dtype"}


def _find_tower(args: tuple[Any, ...], named: dict[str, Any]) -> Tower:
    for each in iterate(args, named):
        if isinstance(each, FieldTensor):
            return each.tower
    raise NotModelledError("an operation without a tower")


def _write(run: Run, target: Any, found: Any) -> Any:
    """The result into the memory of the target."""
    if not isinstance(target, FieldTensor) or not isinstance(found, Parts):
        raise NotModelledError(f"{run.name} into an ordinary tensor")
    for old, new in zip(target.parts.every, found.every, strict=True):
        old.copy_(new.expand(old.shape))
    return target


def _turn(func: Any, target: FieldTensor, *args: Any, **named: Any) -> Any:
    """The same memory in another shape: of the parts, and of the wrapper, which has none."""
    target.parts = target.parts.map(lambda part: func(part.detach(), *args, **named))
    with no_dispatch():
        return func(target, *args, **named)


def _take_apart(run: Run, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """By torch's own decomposition, whose operations come here again."""
    with find_running() or nullcontext():
        known = _list_decompositions().get(func)
        found = (known or func.decompose)(*args, **named)
    if found is NotImplemented:
        raise NotModelledError(run.name)
    return found


@cache
def _list_decompositions() -> dict[Any, Any]:
    import torch._decomp

    return dict(torch._decomp.decomposition_table)


FieldTensor.answer = staticmethod(dispatch)
