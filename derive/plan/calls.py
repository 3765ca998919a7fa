"""The operands of a call of torch in a cell: calls, arguments, subscripts, names and literals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from derive.ir import nodes as ir


@ir.node
class CellArgument:
    """An argument of a cell, by its number."""

    place: int


@ir.node
class LocalName:
    """A local variable of the generated function.

    `like` is the tensor whose dtype and device new tensors take, `device` its device, `dtype` the
    formula's dtype. A loop defines further ones.
    """

    name: str


@ir.node
class Subscript:
    """A subscript: ":" for a whole axis, None for a new axis, or a number, for each axis."""

    arg: Operand
    at: tuple[str | int | None, ...]


@ir.node
class Extents:
    """The extents of a range of axes, as separate arguments."""

    arg: Operand
    start: int
    stop: int | None


@ir.node
class DtypeLimit:
    """A limit of a dtype: `max`, the largest finite number, or `tiny`, the least normal one."""

    dtype: Operand
    word: str


@ir.node
class TorchCall:
    """A call of a torch function, of a method (".name"), or of an infix operator."""

    function: str
    args: tuple[Operand, ...]
    keywords: tuple[tuple[str, Operand], ...] = ()


Operand: TypeAlias = (
    "CellArgument | LocalName | Subscript | Extents | DtypeLimit | TorchCall | Literals"
)
# A text is printed in quotes; a tuple is one argument.
Literals: TypeAlias = "tuple[Operand, ...] | str | int | float"
# "wide": the formula's dtype is float32 or float64. "real": it is not complex. A CellArgument: the
# argument is not a tensor.
Condition: TypeAlias = Literal["wide", "real"] | CellArgument


def walk_call(call: Operand) -> Iterator[Operand]:
    """Yield a call and all its operands."""
    yield call
    fields = (getattr(call, name) for name in getattr(call, "__match_args__", ()))
    for part in call if isinstance(call, tuple) else fields:
        yield from walk_call(part)
