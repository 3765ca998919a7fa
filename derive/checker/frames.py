"""Frames: the messages between processes, a JSON header and the memory of tensors.

    number | text | null                     themselves
    {"tuple": [..]}  {"dict": [[k, v], ..]}  {"fraction": "1/3"}
    {"node": 7}                    a node of the index language, by its place
    {"make": "Slot", "of": [..]}   a record of one of the classes that are known here
    {"tensor": [type, shape, strides, buffer, offset]}   {"field": [..]}
    {"again": 2}                   a tensor of the frame once more, by its number
    {"kept": 3, "kind": "function"}   a handle of an object that stays in the other process
Frames carry no code: the classes are a closed list, and malformed bytes raise ValueError.
"""

from __future__ import annotations

import ctypes
import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from fractions import Fraction
from typing import Any

from derive.ir import nodes
from derive.libraries import torch

HEAD = struct.Struct("<QQ")  # lengths of the header and of the tensors after it
NODES: dict[str, type] = {
    name: each
    for name, each in vars(nodes).items()
    if isinstance(each, type) and is_dataclass(each)
}
LENGTH = 1 << 31  # largest frame in bytes


@dataclass(frozen=True)
class Kept:
    """The handle of an object of the other process: its number and kind."""

    number: int
    kind: str


class Writer:
    """The encoder of one value; objects that are no data become handles made by `keep`."""

    def __init__(self, classes: dict[str, type], keep: Callable[[Any], Kept] | None = None) -> None:
        self.classes, self.keep = classes, keep
        self.buffers: list[bytes] = []
        self.nodes: list[Any] = []
        self.places: dict[Any, int] = {}
        # Numbers of tensors by identity, of buffers by address; references keep both valid.
        self.tensors: dict[Any, int] = {}
        self.memory: dict[int, tuple[int, Any]] = {}

    def frame(self, value: Any) -> bytes:
        """The frame of a value."""
        body = self.write(value)
        lengths = [len(each) for each in self.buffers]
        header = json.dumps([body, self.nodes, lengths]).encode()
        return b"".join([HEAD.pack(len(header), sum(lengths)), header, *self.buffers])

    def write(self, value: Any) -> Any:
        """The JSON of a value."""
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
            if value not in self.places:  # children before their parent
                made = [name, *self._list_fields(value)]
                self.places[value] = len(self.nodes)
                self.nodes.append(made)
            return {"node": self.places[value]}
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

    def _write_tensor(self, value: Any) -> Any:
        """The JSON of a tensor; repeats refer to the first, and buffers are shared."""
        if value in self.tensors:  # tensors are hashed by identity
            return {"again": self.tensors[value]}
        if hasattr(value, "parts"):
            parts = value.parts
            every = [self._write_tensor(each) for each in parts.every]
            made: Any = {"field": [len(parts.residues), every]}
        else:
            made = {"tensor": self._write_memory(value)}
        self.tensors[value] = len(self.tensors)
        return made

    def _write_memory(self, value: Any) -> list[Any]:
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
        self.classes, self.find, self.tower = classes, find, tower
        self.buffers: list[bytearray] = []
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []

    def read_frame(self, header: bytes, data: bytes) -> Any:
        """The value of a header and the bytes after it; ValueError for a malformed one."""
        try:
            body, made, lengths = json.loads(header)
            start = 0
            for length in lengths:
                self.buffers.append(bytearray(data[start : start + int(length)]))
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
        """The value of a piece of JSON."""
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
            case {"again": place}:
                return self.tensors[place]
            case {"tensor": given}:
                self.tensors.append(self._read_tensor(*given))
                return self.tensors[-1]
            case {"field": [levels, given]}:
                from derive.judge.fields import FieldTensor
                from derive.judge.fields.algebra import Parts

                every = [self.read(each) for each in given]
                if levels != self.tower.levels or len({each.shape for each in every}) != 1:
                    raise ValueError("parts that are not of one tensor")
                residues, companions = tuple(every[:levels]), tuple(every[levels:-1])
                self.tensors.append(FieldTensor(Parts(self.tower, residues, companions, every[-1])))
                return self.tensors[-1]
            case {"kept": int() as number, "kind": str() as kind} if self.find is not None:
                return self.find(Kept(number, kind))
            case None | bool() | int() | float() | str():
                return value
        raise ValueError("an unknown form")

    def _read_tensor(self, short: str, shape: Sequence[int], *lies: Any) -> Any:
        strides, place, offset = lies
        dtype = getattr(torch, short)
        if strides is None:
            return torch.empty(shape, dtype=dtype, device="meta")
        data = self.buffers[place]
        if not data:
            return torch.empty_strided(shape, strides, dtype=dtype)
        count = len(data) // dtype.itemsize
        return torch.frombuffer(data, dtype=dtype, count=count).as_strided(shape, strides, offset)
