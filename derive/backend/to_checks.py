"""The part of a generated file that reads the sizes from the shapes and refuses wrong ones.

Every size is read once: from a keyword argument, from a place whose extent is the size itself, or
by solving an extent with one unknown (`H*D_k` with H known). Every other place is compared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from derive.backend.lines import INDENT, WIDTH, fit_signature
from derive.backend.to_python import MUL, to_python
from derive.errors import refuse
from derive.ir.nodes import Expr, Size, System, Tensor
from derive.ir.polynomial import Polynomial
from derive.ir.text import to_text
from derive.ir.walk import find_accesses, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHECK = "_check_shapes"


@dataclass
class Reading:
    """What is known while the shapes are read, and the lines so far."""

    known: dict[str, str] = field(default_factory=dict)  # size -> where it was read
    lines: list[str] = field(default_factory=list)


def write_check(system: System, is_used: Callable[[str], bool]) -> tuple[list[str], str]:
    """(the sizes it returns, its text): those that are used, or nothing where nothing is to check.

    Raises DeriveError where no shape tells some size.
    """
    known, lines = _read_all(system)
    if not lines:
        return [], ""
    sizes = [size for size in known if is_used(size)]
    lines = _drop_idle(lines, sizes)
    arguments = [f"{t.name}: Tensor" for t in system.inputs if isinstance(t, Tensor)]
    arguments += [f"{s.name}: int" for s in system.sizes]
    several = f"tuple[{', '.join(['int'] * len(sizes))}]"
    returns = "None" if not sizes else "int" if len(sizes) == 1 else several
    ending = [f"return {', '.join(sizes)}"] if sizes else []
    words = "Read the sizes from the shapes, and compare" if sizes else "Compare the shapes"
    body = [f'"""{words}; ValueError where they do not fit."""', *lines, *ending]
    return sizes, "\n".join(
        [fit_signature(CHECK, arguments, returns), *(f"{INDENT}{row}" for row in body), ""]
    )


def _drop_idle(lines: list[str], sizes: list[str]) -> list[str]:
    """The lines without the reading of sizes that nothing is compared with."""

    def is_idle(line: str) -> bool:
        size, assigned, _ = line.partition(" = ")
        if not assigned or not size.isidentifier() or size in sizes:
            return False
        others = "\n".join(row for row in lines if row is not line)
        return re.search(rf"\b{size}\b", others) is None

    return [line for line in lines if not is_idle(line)]


def _read_all(system: System) -> tuple[tuple[str, ...], list[str]]:
    """(the sizes in order of reading, the lines that read and compare them)."""
    tensors = [t for t in system.inputs if isinstance(t, Tensor)]
    reading = Reading({s.name: "the argument" for s in system.sizes})
    waiting = list(tensors)
    while waiting:
        ready = next((t for t in waiting if _is_ready(t, reading.known)), None)
        if ready is None:
            raise _unknown(waiting, reading.known)
        waiting.remove(ready)
        _read_tensor(ready, system, reading)
    sizes = tuple(s for s in reading.known if s not in {k.name for k in system.sizes})
    return sizes, reading.lines


def _count_places(rank: int) -> str:
    """`1 place`, `3 places`."""
    return "1 place" if rank == 1 else f"{rank} places"


def _is_ready(tensor: Tensor, known: dict[str, str]) -> bool:
    """Can each of its extents be read or compared, given the sizes known so far?"""
    have = set(known)
    for extent in sorted(tensor.shape, key=lambda e: len(_sizes_in(e))):
        new = _sizes_in(extent) - have
        if new and not (isinstance(extent, Size) or _can_solve(extent, new)):
            return False
        have |= new
    return True


def _sizes_in(extent: Expr) -> set[str]:
    return {part.name for part in walk(extent) if isinstance(part, Size)}


def _can_solve(extent: Expr, new: set[str]) -> bool:
    if len(new) != 1:
        return False
    (name,) = new
    halves = Polynomial.of(extent).split(Size(name))
    return halves is not None and bool(halves[0].terms)


def _read_tensor(tensor: Tensor, system: System, reading: Reading) -> None:
    """The lines for one tensor: its rank, the sizes it tells, and the extents it must have."""
    name, rank = tensor.name, len(tensor.shape)
    shown = _show_access(tensor, system)
    lines = reading.lines
    places = [f"{name}.shape[{k}]" for k in range(rank)]
    new = [
        k for k, e in enumerate(tensor.shape) if isinstance(e, Size) and e.name not in reading.known
    ]
    new = [
        k for n, k in enumerate(new) if tensor.shape[k] not in [tensor.shape[m] for m in new[:n]]
    ]
    if new or any(_sizes_in(e) - set(reading.known) for e in tensor.shape):
        lines.append(f"if {name}.ndim != {rank}:")
        message = f"{shown} has {_count_places(rank)}, got {{list({name}.shape)}}"
        lines.append(f'{INDENT}raise ValueError(f"{message}")')
    if len(new) == rank and rank > 1:
        lines.append(f"{', '.join(to_python(e) for e in tensor.shape)} = {name}.shape")
    else:
        lines += [f"{to_python(tensor.shape[k])} = {places[k]}" for k in new]
    for k in new:
        reading.known[to_python(tensor.shape[k])] = name
    compare = len(new) < rank
    for k, extent in enumerate(tensor.shape):
        unknown = _sizes_in(extent) - set(reading.known)
        if unknown:
            (size,) = unknown
            _solve(extent, size, places[k], shown, reading)
            reading.known[size] = name
    if compare:
        _compare(tensor, shown, lines)


def _solve(extent: Expr, size: str, place: str, shown: str, reading: Reading) -> None:
    """`D_k = W.shape[1] // H`; what is left over is found by the comparison that follows."""
    halves = Polynomial.of(extent).split(Size(size))
    assert halves is not None
    coefficient, rest = halves
    over = place if not rest.terms else f"({place} - {to_python(rest.to_expr(), MUL)})"
    factor = coefficient.constant
    if factor != 1:
        divisor = to_python(coefficient.to_expr(), 6)
        over = f"{over} // {divisor}"
        if factor is None:
            reading.lines.append(f"if {to_python(coefficient.to_expr())} == 0:")
            zero = f"since {to_text(coefficient.to_expr())} is 0"
            message = f"{shown}: the extent {to_text(extent)} says nothing of {size}, {zero}"
            reading.lines.append(f'{INDENT}raise ValueError("{message}")')
    reading.lines.append(f"{size} = {over}")


def _compare(tensor: Tensor, shown: str, lines: list[str]) -> None:
    """The whole shape against what it must be."""
    extents = [to_python(e) for e in tensor.shape]
    wanted = f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"
    lines.append(f"if {tensor.name}.shape != {wanted}:")
    expected = ", ".join(_show_extent(e) for e in tensor.shape)
    message = f'f"{shown} must be [{expected}], got {{list({tensor.name}.shape)}}"'
    line = f"{INDENT}raise ValueError({message})"
    if len(INDENT) + len(line) <= WIDTH:
        lines.append(line)
        return
    lines.append(f"{INDENT}raise ValueError(")
    lines.append(f'{INDENT * 2}f"{shown} must be [{expected}], "')
    lines.append(f'{INDENT * 2}f"got {{list({tensor.name}.shape)}}"')
    lines.append(f"{INDENT})")


def _show_extent(extent: Expr) -> str:
    text = to_python(extent)
    return text if text.isdigit() else f"{text.replace(' * ', '*')}={{{text}}}"


def _show_access(tensor: Tensor, system: System) -> str:
    """The tensor as the formula first reads it: `W_Q[h,d,e]`."""
    for access in _accesses(system):
        if access.tensor is tensor:
            return to_text(access)
    return tensor.name


def _accesses(system: System) -> Iterator:  # type: ignore[type-arg]
    for equation in system.equations:
        yield from find_accesses(equation.value)


def _unknown(waiting: list[Tensor], known: dict[str, str]) -> Exception:
    """No shape tells some size."""
    tensor = waiting[0]
    extent = next(e for e in tensor.shape if _sizes_in(e) - set(known))
    names = sorted(_sizes_in(extent) - set(known))
    return refuse(
        "size-unknown",
        f"no shape tells {' and '.join(names)}",
        facts=(f"the extent {to_text(extent)} of {tensor.name} has {len(names)} unknown sizes",),
        help=f"write `size {names[0]}` to make it a keyword argument",
    )
