"""Values as bytes between processes: a JSON header, and tensors as they lie in memory.

    number | text | null                     themselves
    {"tuple": [..]}  {"dict": [[k, v], ..]}  {"fraction": "1/3"}
    {"node": 7}                              a node of the index language, by its place in a table
    {"make": "Slot", "of": [..]}             a record of one of the classes that are known here
    {"tensor": [type, shape, strides, buffer]}   {"field": [..]}
    {"kept": 3, "kind": "function"}          an object that stays where it lives

Nothing that is read is code: what a class may be is a closed list, and bytes that are not of this
form raise ValueError.
"""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from derive.errors import Diagnostic, Mark
from derive.ir import nodes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HEAD = struct.Struct("<QQ")  # the length of the header and of the tensors behind it
NODES: dict[str, type] = {
    name: each
    for name, each in vars(nodes).items()
    if isinstance(each, type) and is_dataclass(each)
}
LENGTH = 1 << 31  # bytes that one frame may have


@dataclass(frozen=True)
class Kept:
    """The number and the kind of an object that lives on the other side."""

    number: int
    kind: str


def name_classes(*classes: type) -> dict[str, type]:
    """Records that may cross, by name."""
    return {each.__name__: each for each in (Diagnostic, Mark, *classes)}


class Writer:
    """One value turned into a frame; what is no data is given to `keep`, which has a number."""

    def __init__(self, classes: dict[str, type], keep: Callable[[Any], Kept] | None = None) -> None:
        self.classes, self.keep = classes, keep
        self.buffers: list[bytes] = []
        self.nodes: list[Any] = []
        self.places: dict[Any, int] = {}

    def frame(self, value: Any) -> bytes:
        """The value, whole."""
        body = self.write(value)
        lengths = [len(each) for each in self.buffers]
        header = json.dumps([body, self.nodes, lengths]).encode()
        return b"".join([HEAD.pack(len(header), sum(lengths)), header, *self.buffers])

    def write(self, value: Any) -> Any:
        """The value as JSON."""
        match value:
            case None | bool() | str():
                return value
            case int():
                return int(value)
            case float():
                return float(value)
            case list():
                return [self.write(each) for each in value]
            case tuple():
                return {"tuple": [self.write(each) for each in value]}
            case dict():
                return {"dict": [[self.write(k), self.write(v)] for k, v in value.items()]}
            case Fraction():
                return {"fraction": str(value)}
            case Kept():
                return {"kept": value.number, "kind": value.kind}
        name = type(value).__name__
        if NODES.get(name) is type(value):
            return {"node": self._place(value, name)}
        if self.classes.get(name) is type(value):
            return {"make": name, "of": self._list_fields(value)}
        if hasattr(value, "untyped_storage"):
            return self._write_tensor(value)
        if isinstance(value, Mapping):
            return self.write(dict(value))
        if self.keep is None:
            raise TypeError(f"{name} does not cross between processes")
        return self.write(self.keep(value))

    def _list_fields(self, value: Any) -> list[Any]:
        return [self.write(getattr(value, each.name)) for each in fields(value)]

    def _place(self, value: Any, name: str) -> int:
        if value not in self.places:
            made = [name, *self._list_fields(value)]  # what it is made of has its place first
            self.places[value] = len(self.nodes)
            self.nodes.append(made)
        return self.places[value]

    def _write_tensor(self, value: Any) -> Any:
        import torch

        if hasattr(value, "parts"):
            parts = value.parts
            every = [self._write_tensor(each) for each in parts.every]
            return {"field": [len(parts.residues), every]}
        with torch.no_grad():
            dense = value.detach().to_dense() if value.layout != torch.strided else value.detach()
            dense = dense.resolve_conj().resolve_neg()
            short = str(dense.dtype).removeprefix("torch.")
            if dense.is_meta:
                return {"tensor": [short, list(dense.shape), None, None]}
            dense = dense.cpu()
        count = 1 + sum((n - 1) * s for n, s in zip(dense.shape, dense.stride(), strict=True))
        data = b""
        if dense.numel():
            data = ctypes.string_at(dense.data_ptr(), count * dense.element_size())
        self.buffers.append(data)
        return {
            "tensor": [short, list(dense.shape), list(dense.stride()), len(self.buffers) - 1],
        }


class Reader:
    """One frame turned into a value; `find` gives what lives here by its number."""

    def __init__(
        self, classes: dict[str, type], find: Callable[[Kept], Any], tower: Any = None
    ) -> None:
        self.classes, self.find, self.tower = classes, find, tower
        self.buffers: list[bytes] = []
        self.nodes: list[Any] = []

    def read_frame(self, header: bytes, data: bytes) -> Any:
        """The value of a header and the bytes behind it."""
        try:
            body, made, lengths = json.loads(header)
            start = 0
            for length in lengths:
                self.buffers.append(data[start : start + int(length)])
                start += int(length)
            for name, *given in made:
                self.nodes.append(NODES[name](*(self.read(each) for each in given)))
            return self.read(body)
        except (
            *(ArithmeticError, AttributeError, LookupError, RecursionError, RuntimeError),
            *(TypeError, ValueError),
        ) as error:
            raise ValueError(f"no answer can be read: {error}") from error

    def read(self, value: Any) -> Any:
        """The value of its JSON."""
        match value:
            case list():
                return [self.read(each) for each in value]
            case {"tuple": given}:
                return tuple(self.read(each) for each in given)
            case {"dict": given}:
                return {self.read(k): self.read(v) for k, v in given}
            case {"fraction": text}:
                return Fraction(text)
            case {"node": place}:
                return self.nodes[place]
            case {"make": name, "of": given}:
                made = self.classes[name](*(self.read(each) for each in given))
                self.tower = made if name == "Tower" and self.tower is None else self.tower
                return made
            case {"tensor": given}:
                return self._read_tensor(*given)
            case {"field": [levels, given]}:
                return self._read_field(levels, [self.read(each) for each in given])
            case {"kept": int() as number, "kind": str() as kind}:
                return self.find(Kept(number, kind))
            case None | bool() | int() | float() | str():
                return value
        raise ValueError("an unknown form")

    def _read_tensor(
        self, short: str, shape: Sequence[int], strides: Sequence[int] | None, place: int | None
    ) -> Any:
        import torch

        dtype = getattr(torch, short)
        if strides is None or place is None:
            return torch.empty(shape, dtype=dtype, device="meta")
        data = self.buffers[place]
        if not data:
            return torch.empty_strided(shape, strides, dtype=dtype)
        return torch.frombuffer(bytearray(data), dtype=dtype).as_strided(shape, strides)

    def _read_field(self, levels: int, every: Sequence[Any]) -> Any:
        from derive.judge.fields import FieldTensor
        from derive.judge.fields.parts import Parts

        if levels != self.tower.levels or len({each.shape for each in every}) != 1:
            raise ValueError("parts that are not of one tensor")
        return FieldTensor(
            self.tower, Parts(tuple(every[:levels]), tuple(every[levels:-1]), every[-1])
        )
