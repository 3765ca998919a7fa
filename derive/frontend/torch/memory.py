"""Memory that tensors share: what a call writes into, and who else lies there.

A write through a tensor of which nothing is known spoils every buffer in its memory; so does one
that reads what it overwrites, since then the result hangs on the order in which torch walks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.errors import DeriveError
    from derive.frontend.torch.shadow import Buffer


def find_address(tensor: Any) -> int:
    """Where the memory of a tensor begins; 0 where it has none."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (AttributeError, NotImplementedError, RuntimeError):
        return 0


class Memory:
    """The buffers that are known to lie in each piece of memory."""

    def __init__(self) -> None:
        self._buffers: dict[int, dict[Buffer, None]] = {}
        self._kept: list[Any] = []  # no address is given out twice in one run

    def note(self, tensor: Any, buffer: Buffer) -> None:
        """A buffer lies in the memory of this tensor."""
        self._buffers.setdefault(find_address(tensor), {})[buffer] = None
        self._kept.append(tensor.detach())

    def poison(self, tensor: Any, reason: DeriveError, but: Buffer | None = None) -> None:
        """Something was written into this memory that the buffers in it do not tell."""
        for buffer in self._buffers.get(find_address(tensor), {}):
            if buffer is not but:
                buffer.poison = reason


def find_fields(found: Any) -> dict[str, Any] | None:
    """What a dictionary, a dataclass, a named tuple or a namespace holds, by name."""
    if isinstance(found, Mapping):
        return {str(name): value for name, value in found.items()}
    if is_dataclass(found) and not isinstance(found, type):
        return {each.name: getattr(found, each.name, None) for each in fields(found)}
    if isinstance(found, tuple) and hasattr(found, "_asdict"):
        return dict(found._asdict())
    return dict(vars(found)) if isinstance(found, SimpleNamespace) else None


def find_tensors(found: Any) -> Iterator[Any]:
    """The tensors in what torch takes or gives back, in order."""
    import torch

    if isinstance(found, torch.Tensor):
        yield found
    elif isinstance(found, (tuple, list)):
        for each in found:
            yield from find_tensors(each)


def find_written(
    name: str, is_write: bool | None, args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, ...]:
    """The tensors that a call writes into; of one that is not known, as far as its name tells."""
    in_place = is_write or (is_write is None and name.endswith("_") and not name.endswith("__"))
    own = tuple(find_tensors(args[:1])) if in_place else ()
    return (*own, *find_tensors(named.get("out")))


def is_reading_what_it_writes(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Does a call read elements that it overwrites, other than each in its own place?"""
    import torch

    out = tuple(find_tensors(named.get("out")))
    if out:
        elementwise = hasattr(torch.Tensor, f"{name}_")
        return any(
            is_overlapping(one, other) or (_is_shared(one, other) and not elementwise)
            for one in out
            for other in find_tensors(args)
        )
    target = args[0]
    if name == "__setitem__":
        region = args[0][args[1]]
        target = region if _is_shared(region, args[0]) else args[0]
    return any(is_overlapping(target, other) for other in find_tensors(args[1:]))


def _is_shared(one: Any, other: Any) -> bool:
    return find_address(one) == find_address(other) != 0


def is_overlapping(one: Any, other: Any) -> bool:
    """Do two tensors have elements in common, and not each at the same place?"""
    import torch

    if not _is_shared(one, other):
        return False
    layouts = [(t.storage_offset(), tuple(t.shape), t.stride(), t.dtype) for t in (one, other)]
    if layouts[0] == layouts[1]:
        return False
    if one.dtype != other.dtype:
        return True
    length = one.untyped_storage().nbytes() // one.element_size()
    counted = torch.arange(length)
    places = [
        counted.as_strided(t.shape, t.stride(), t.storage_offset()).flatten() for t in (one, other)
    ]
    return bool(torch.isin(*places).any())
