"""The text of the index language: the notation that all stages print and `derive.parse` reads back.

`to_text` gives a line; `find_span` tells where in it a given node stands, for the carets of an
error; `to_lines` gives a whole system: declarations, sizes, index lines, equations, results.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from derive.ir.letters import find_untold
from derive.ir.nodes import Add, Expr, Mul, Number, ScalarInput, System, Tensor
from derive.ir.pieces import OR, find_span, join, tighten, to_text

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["find_span", "to_declaration", "to_lines", "to_text"]


def to_lines(system: System) -> tuple[str, ...]:
    """The declarations and equations of a system, a line each."""
    declarations = "; ".join(_declare(system))
    lines = [declarations] if declarations else []
    for size in system.sizes:
        lines.append(f"size {size.name}" + (f" = {size.default}" if size.default else ""))
    lines += _tell_extents(system)
    lines += [to_text(equation) for equation in system.equations]
    last = system.equations[-1].target.tensor if system.equations else None
    if system.results != (last,):
        lines.append("return " + ", ".join(tensor.name for tensor in system.results))
    return tuple(lines)


def to_declaration(tensor: Tensor) -> str:
    """The line that declares one tensor."""
    return _declaration((tensor,))


def _declare(system: System) -> Iterator[str]:
    """The inputs in order of declaration, neighbours that are alike in one statement."""
    for _, alike in groupby(system.inputs, key=_find_alike):
        group = tuple(alike)
        tensors = tuple(entry for entry in group if isinstance(entry, Tensor))
        scalars = [_write_scalar(entry) for entry in group if isinstance(entry, ScalarInput)]
        yield _declaration(tensors) if tensors else f"scalar {', '.join(scalars)}"


def _find_alike(entry: Tensor | ScalarInput) -> tuple[object, ...]:
    """What inputs have in common that one statement declares."""
    match entry:
        case Tensor(_, shape, kind, below, lower, upper, strict):
            return (shape, kind, below, lower, upper, strict)
        case ScalarInput():
            return ()


def _write_scalar(entry: ScalarInput) -> str:
    return entry.name + (f" = {to_text(entry.default)}" if entry.default is not None else "")


def _tell_extents(system: System) -> Iterator[str]:
    """The index lines, letters of one extent together."""
    for extent, group in groupby(find_untold(system), key=lambda index: index.extent):
        names = ", ".join(index.name for index in group)
        yield f"index {names} < {_write_extent(_to_readable(extent))}"


def _to_readable(extent: Expr) -> Expr:
    """The extent with what is taken off behind what is there, and numbers last."""
    match extent:
        case Add(terms):
            return Add(tuple(sorted(terms, key=lambda t: (isinstance(t, Number), _is_negative(t)))))
        case _:
            return extent


def _is_negative(term: Expr) -> bool:
    match term:
        case Mul((Number(value), *_)) | Number(value):
            return value < 0
        case _:
            return False


def _write_extent(*extents: Expr) -> str:
    return "".join(piece for piece, _ in tighten(join(extents, ", ", OR)))


def _declaration(group: tuple[Tensor, ...]) -> str:
    tensor = group[0]
    names = ", ".join(t.name for t in group)
    shape = _write_extent(*tensor.shape) if tensor.shape else "()"
    kind = "" if tensor.kind == "real" else f"{tensor.kind} "
    excluded = tensor.strict
    low = high = ""
    if tensor.upper is not None:
        high = f" {'<' if excluded[1] else '<='} {to_text(tensor.upper)}"
    if tensor.lower is not None and high:
        low = f"{to_text(tensor.lower)} {'<' if excluded[0] else '<='} "
    elif tensor.lower is not None:
        high = f" {'>' if excluded[0] else '>='} {to_text(tensor.lower)}"
    below = f" < {to_text(tensor.below)}" if tensor.below is not None else ""
    return f"{kind}{low}{names}[{shape}]{high}{below}"
