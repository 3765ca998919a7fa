"""The equations of a run on their way to a system: by tensor, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from derive.frontend.torch.places import put
from derive.ir.nodes import Access, Expr, Index, Tensor
from derive.ir.walk import map_children, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from derive.frontend.torch.trace import Step


@dataclass
class Draft:
    """The equations on the way: the step and the value of each tensor, in order."""

    steps: dict[Tensor, Step]
    values: dict[Tensor, Expr]
    results: list[Tensor]


def prune(draft: Draft) -> None:
    """What no result rests on is left out."""
    needed: dict[Tensor, None] = {}
    todo = list(draft.results)
    while todo:
        tensor = todo.pop()
        if tensor in needed or tensor not in draft.values:
            continue
        needed[tensor] = None
        todo += [part.tensor for part in find_accesses(draft.values[tensor])]
    draft.values = {tensor: value for tensor, value in draft.values.items() if tensor in needed}


def find_accesses(value: Expr) -> Iterator[Access]:
    """What a value reads."""
    return (part for part in walk(value) if isinstance(part, Access))


def count_accesses(value: Expr) -> Iterator[Access]:
    """Every place where a tensor is read, also where the same node stands twice."""
    match value:
        case Access(_, places):
            yield value
            for place in places:
                yield from count_accesses(place)
        case _:
            for child in _children(value):
                yield from count_accesses(child)


def _children(value: Expr) -> tuple[Expr, ...]:
    found: list[Expr] = []

    def note(child: Expr) -> Expr:
        found.append(child)
        return child

    map_children(value, note)
    return tuple(found)


def is_reading(value: Expr, tensor: Tensor) -> bool:
    """Does a value read the tensor?"""
    return any(access.tensor is tensor for access in find_accesses(value))


def put_in(value: Expr, tensor: Tensor, letters: Sequence[Index], inner: Expr) -> Expr:
    """The value with the tensor's own value in place of the tensor."""

    def meet(access: Access) -> Expr:
        return put(inner, tuple(letters), access.places)

    return map_reads(value, tensor, meet)


def map_reads(value: Expr, tensor: Tensor, meet: Callable[[Access], Expr]) -> Expr:
    """The value with what `meet` gives for every access of the tensor."""

    def visit(here: Expr) -> Expr:
        new = map_children(here, visit)
        if isinstance(new, Access) and new.tensor is tensor:
            return meet(new)
        return new

    return visit(value)
