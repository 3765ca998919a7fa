"""Frames: the messages between processes, a JSON header and the memory of tensors.

    number | text | null | list              themselves
    {"tuple": [..]}  {"dict": [[k, v], ..]}  {"fraction": "1/3"}
    {"part": 7}                    an entry of the table of parts, which come before what has them
    {"kept": [3, "function"]}      a handle of an object that stays in the other process
The table of parts has a row for each
    [class, field, ..]             node of the index language, or record of a known class
    ["tensor", type, shape, strides, buffer, offset]      ["field", levels, tensors]
Nodes and tensors have one row each, however often they occur. Frames carry no code: the classes are
a closed list, and malformed bytes raise ValueError.
"""

from __future__ import annotations

import ctypes
import json
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from typing import Any

from derive.ir import nodes
from derive.libraries import torch

_HEAD = struct.Struct("<QQ")  # lengths of the header and of the tensors after it
_NODES: dict[str, type] = {
    name: each
    for name, each in vars(nodes).items()
    if isinstance(each, type) and is_dataclass(each)
}
_LENGTH = 1 << 31  # largest frame in bytes
# the forms of values that are no JSON: how one is taken apart, and made
_FORMS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tuple": (tuple, list, tuple),
    "dict": (Mapping, lambda value: [[*pair] for pair in value.items()], dict),
    "fraction": (Fraction, str, Fraction),
}


@dataclass(frozen=True)
class Kept:
    """The handle of an object that stays in the other process: its number there, and its kind."""

    number: int
    kind: str


class Writer:
    """The encoder of one value; objects that are no data become handles made by `keep`."""

    def __init__(self, classes: dict[str, type], keep: Callable[[Any], Kept] | None = None) -> None:
        self.classes, self.keep = classes, keep
        self.buffers: list[bytes] = []
        self.parts: list[list[Any]] = []
        # Numbers of nodes, and of tensors by identity; of buffers by address, with their tensors.
        self.numbers: dict[Any, int] = {}
        self.memory: dict[int, tuple[int, Any]] = {}

    def frame(self, value: Any) -> bytes:
        """The bytes of a message with this value."""
        body = self.write(value)
        lengths = [len(each) for each in self.buffers]
        header = json.dumps([body, self.parts, lengths]).encode()
        return b"".join([_HEAD.pack(len(header), sum(lengths)), header, *self.buffers])

    def write(self, value: Any) -> Any:
        """The JSON of a value; nodes, records and tensors are added to the table of parts."""
        name = type(value).__name__
        if _NODES.get(name) is type(value) or hasattr(value, "untyped_storage"):
            if value not in self.numbers:
                self.numbers[value] = self._add_part(value)
            return {"part": self.numbers[value]}
        if self.classes.get(name) is type(value):
            return {"part": self._add_part(value)}
        match value:
            case None | bool() | str():
                return value
            case int():
                return int(value)
            case float():
                return float(value)
            case list():
                return [*map(self.write, value)]
            case Kept():
                return {"kept": [value.number, value.kind]}
        for tag, (kind, take_apart, _) in _FORMS.items():
            if isinstance(value, kind):
                return {tag: self.write(take_apart(value))}
        if self.keep is None:
            raise TypeError(f"{name} does not cross between processes")
        return self.write(self.keep(value))

    def _add_part(self, value: Any) -> int:
        """The number of the row of a node, a record or a tensor, behind those of its parts."""
        if is_dataclass(value):
            given = [type(value).__name__, *(getattr(value, each.name) for each in fields(value))]
        elif hasattr(value, "parts"):
            given = ["field", len(value.parts.residues), [*value.parts.every]]
        else:
            given = ["tensor", *self._write_memory(value)]
        self.parts.append([*map(self.write, given)])
        return len(self.parts) - 1

    def _write_memory(self, value: Any) -> list[Any]:
        """The type, shape and strides of a tensor, the number of its buffer, and its offset."""
        with torch.no_grad():
            dense = value.detach().to_dense() if value.layout != torch.strided else value.detach()
            dense = dense.resolve_conj().resolve_neg()
            short = str(dense.dtype).removeprefix("torch.")
            if dense.is_meta:
                return [short, list(dense.shape), None, None, 0]
            dense = dense.cpu()
        memory = dense.untyped_storage()
        address = memory.data_ptr() if dense.numel() else 0
        if address not in self.memory:
            self.memory[address] = len(self.buffers), dense
            self.buffers.append(ctypes.string_at(address, memory.nbytes()) if address else b"")
        place = self.memory[address][0]
        return [short, list(dense.shape), list(dense.stride()), place, dense.storage_offset()]


class Reader:
    """The decoder of one frame; `find` resolves handles."""

    def __init__(
        self, classes: dict[str, type], find: Callable[[Kept], Any] | None = None, tower: Any = None
    ) -> None:
        self.find, self.tower = find, tower
        own: dict[str, Any] = {"tensor": self._make_tensor, "field": self._make_field}
        self.makers = {**classes, **_NODES, **own}
        self.buffers: list[bytearray] = []
        self.parts: list[Any] = []

    def read_frame(self, header: bytes, data: bytes) -> Any:
        """The value of a header and the bytes after it; ValueError for a malformed one."""
        try:
            body, parts, lengths = json.loads(header)
            start = 0
            for length in lengths:
                self.buffers.append(bytearray(data[start : start + int(length)]))
                start += int(length)
            for name, *given in parts:
                self.parts.append(self.makers[name](*map(self.read, given)))
                if name == "Tower" and self.tower is None:
                    self.tower = self.parts[-1]
            return self.read(body)
        except (
            *(ArithmeticError, AttributeError, LookupError, RecursionError, RuntimeError),
            *(TypeError, ValueError),
        ) as error:
            raise ValueError(f"no answer can be read: {error}") from error

    def read(self, value: Any) -> Any:
        """The value of a piece of JSON."""
        match value:
            case None | bool() | int() | float() | str():
                return value
            case list():
                return [*map(self.read, value)]
            case {"part": place}:
                return self.parts[place]
            case {"kept": [int() as number, str() as kind]} if self.find is not None:
                return self.find(Kept(number, kind))
        ((tag, given),) = value.items()
        return _FORMS[tag][2](self.read(given))

    def _make_field(self, levels: int, every: list[Any]) -> Any:
        from derive.judge.fields import FieldTensor
        from derive.judge.fields.algebra import Parts

        if levels != self.tower.levels or len({each.shape for each in every}) != 1:
            raise ValueError("parts that are not of one tensor")
        residues, companions = tuple(every[:levels]), tuple(every[levels:-1])
        return FieldTensor(Parts(self.tower, residues, companions, every[-1]))

    def _make_tensor(
        self, short: str, shape: list[int], strides: list[int] | None, place: int, offset: int
    ) -> Any:
        dtype = getattr(torch, short)
        if strides is None:
            return torch.empty(shape, dtype=dtype, device="meta")
        data = self.buffers[place]
        if not data:
            return torch.empty_strided(shape, strides, dtype=dtype)
        count = len(data) // dtype.itemsize
        return torch.frombuffer(data, dtype=dtype, count=count).as_strided(shape, strides, offset)


class Channel:
    """A socket through which two processes send each other values."""

    def __init__(
        self,
        end: socket.socket,
        classes: dict[str, type],
        keep: Callable[[Any], Kept] | None = None,
        find: Callable[[Kept], Any] | None = None,
    ) -> None:
        self.end, self.classes, self.keep, self.find = end, classes, keep, find

    def send(self, value: Any) -> None:
        """Send a value to the other process."""
        self.end.sendall(Writer(self.classes, self.keep).frame(value))

    def receive(self, find_left: Callable[[], float] | None = None, tower: Any = None) -> Any:
        """The next value, within the seconds left.

        Raises TimeoutError, ConnectionError at the end of the stream, ValueError for another frame.
        """

        def take_bytes(count: int) -> bytes:
            parts = bytearray()
            while len(parts) < count:
                if find_left is not None:
                    self.end.settimeout(max(find_left(), 1e-3))
                part = self.end.recv(min(count - len(parts), 1 << 20))
                if not part:
                    raise ConnectionError
                parts += part
            return bytes(parts)

        lengths = _HEAD.unpack(take_bytes(_HEAD.size))
        if sum(lengths) > _LENGTH:
            raise ValueError("an answer of too many bytes")
        return Reader(self.classes, self.find, tower).read_frame(*map(take_bytes, lengths))
