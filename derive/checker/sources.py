"""What an argument of the code is given, as an expression over the formula's names.

    Q   W_Q.T   K.permute(0, 2, 1, 3)   K[b, j, h, d]   W_Q.reshape(H*D, E)   cat(W_Q, W_K)
    zeros(B, D)   not m   H   H*D   None   True   0.5   "causal"

It is read by Python's `ast` and never evaluated as code: names are tensors, scalars and sizes of
the formula; letters in brackets put a tensor's axes in that order.
"""

from __future__ import annotations

import ast
import operator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from derive.errors import Mark, refuse, suggest
from derive.ir.nodes import Index, System, Tensor
from derive.ir.walk import find_accesses

if TYPE_CHECKING:
    from collections.abc import Mapping

_METHODS = {
    "permute",
    "transpose",
    "reshape",
    "view",
    "flatten",
    "unflatten",
    "unsqueeze",
    "squeeze",
    "contiguous",
    "movedim",
    "double",
    "expand",
    "flip",
}
_ATTRIBUTES = ("T", "mT")
_OPERATORS: dict[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


def parse_binds(text: str) -> dict[str, str]:
    """`query=Q, W_q.weight=W_Q.T` as a dictionary; commas inside brackets are their own."""
    binds: dict[str, str] = {}
    for part in _split(text):
        name, equals, source = part.partition("=")
        if not equals or not name.strip() or not source.strip():
            raise refuse(
                "bind-form",
                f"{part.strip() or 'nothing'} binds nothing",
                marks=[Mark(text, text.find(part), text.find(part) + len(part))],
                help="write NAME=SOURCE, as in --bind query=Q,W_q.weight=W_Q.T",
            )
        if name.strip() in binds:
            raise refuse("bind-twice", f"{name.strip()} is bound twice")
        binds[name.strip()] = source.strip()
    return binds


def _split(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and not depth:
            parts.append(text[start:place])
            start = place + 1
    return [part for part in [*parts, text[start:]] if part.strip()]


@lru_cache(maxsize=16)
def find_letters(system: System) -> dict[str, tuple[str, ...]]:
    """The letters under which each tensor is read first with plain places."""
    letters: dict[str, tuple[str, ...]] = {}
    for equation in system.equations:
        for access in (*find_accesses(equation.value), equation.target):
            names = tuple(place.name for place in access.places if isinstance(place, Index))
            if len(names) == len(access.places):
                letters.setdefault(access.tensor.name, names)
    return letters


def find_names(source: str) -> tuple[str, ...]:
    """The names that a source reads, in order."""
    tree = _parse(source)
    return tuple(dict.fromkeys(n.id for n in ast.walk(tree) if isinstance(n, ast.Name)))


def evaluate_source(
    source: str,
    values: Mapping[str, Any],
    sizes: Mapping[str, Any],
    letters: Mapping[str, tuple[str, ...]],
) -> Any:
    """The argument that a source says; DeriveError where it says none."""
    return _Reader(source, values, sizes, letters).read(_parse(source))


def check_source(source: str, system: System, sizes: tuple[str, ...]) -> None:
    """Refuse a source that names nothing of the formula."""
    known = [entry.name for entry in system.inputs] + list(sizes)
    letters = {letter for names in find_letters(system).values() for letter in names}
    for name in find_names(source):
        if name not in known and name not in letters and name not in {"cat", "stack", "zeros"}:
            raise refuse(
                "bind-unknown",
                f"{name} is neither a tensor nor a scalar nor a size of the formula",
                facts=[f"its names are {', '.join(known)}"],
                help=suggest(name, known),
            )


def _parse(source: str) -> ast.expr:
    try:
        return ast.parse(source.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise refuse("bind-form", f"{source} cannot be read as a source") from error


class _Reader:
    """One source, and what its names are."""

    def __init__(
        self,
        source: str,
        values: Mapping[str, Any],
        sizes: Mapping[str, Any],
        letters: Mapping[str, tuple[str, ...]],
    ) -> None:
        self.source, self.values, self.sizes, self.letters = source, values, sizes, letters

    def read(self, node: ast.expr) -> Any:
        """The value of one part."""
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(id=name) if name in self.values:
                return self.values[name]
            case ast.Name(id=name) if name in self.sizes:
                return self.sizes[name]
            case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
                return ~self.read(operand)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.read(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self.read(left), self.read(right))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return tuple(self.read(part) for part in parts)
            case ast.Attribute(value=value, attr=name) if name in _ATTRIBUTES:
                return getattr(self.read(value), name)
            case ast.Subscript(value=value, slice=places):
                return self._index(value, places)
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=given) if (
                name in _METHODS
            ):
                return getattr(self.read(value), name)(*(self.read(each) for each in given))
            case ast.Call(func=ast.Name(id="zeros"), args=given):
                return self._make_zeros([self.read(each) for each in given])
            case ast.Call(func=ast.Name(id="cat" | "stack" as name), args=given):
                return self._join(name, given, node.keywords)
        raise refuse("bind-form", f"{self.source} cannot be read as a source")

    def _make_zeros(self, shape: list[int]) -> Any:
        import torch

        tensors = [each for each in self.values.values() if isinstance(each, torch.Tensor)]
        real = [each for each in tensors if each.is_floating_point()]
        return (real or [torch.zeros(0, dtype=torch.float64)])[0].new_zeros(shape)

    def _join(self, name: str, given: list[ast.expr], keywords: list[ast.keyword]) -> Any:
        import torch

        dim = next((self.read(each.value) for each in keywords if each.arg == "dim"), 0)
        parts = [self.read(each) for each in given]
        if len(parts) == 1 and isinstance(parts[0], tuple):
            parts = list(parts[0])
        return getattr(torch, name)(parts, dim=dim)

    def _index(self, value: ast.expr, places: ast.expr) -> Any:
        found = self.read(value)
        parts = places.elts if isinstance(places, ast.Tuple) else [places]
        if isinstance(value, ast.Name) and all(isinstance(part, ast.Name) for part in parts):
            own = self.letters.get(value.id, ())
            wanted = [part.id for part in parts if isinstance(part, ast.Name)]
            if sorted(own) != sorted(wanted):
                raise refuse(
                    "bind-letters",
                    f"{self.source} has other letters than {value.id}[{', '.join(own)}]",
                    help="write the letters of the formula in the order in which the code has them",
                )
            return found.permute([own.index(letter) for letter in wanted])
        return found[tuple(self._place(part) for part in parts)]

    def _place(self, part: ast.expr) -> Any:
        if isinstance(part, ast.Slice):
            ends = (part.lower, part.upper, part.step)
            return slice(*(None if end is None else self.read(end) for end in ends))
        return self.read(part)


def find_tensors(system: System) -> tuple[Tensor, ...]:
    """The tensors that the formula is given."""
    return tuple(entry for entry in system.inputs if isinstance(entry, Tensor))
