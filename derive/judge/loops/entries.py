"""Single entries of a formula's results by the direct loops, where all of them would take too long.

    q = entries_(B, S, H, D)
    row_1 = keep_(lambda b, i, h: softmax([... q[b, i, h, e] ... for j in range(S)]))
    fill_(alpha, lambda b, i, j, h: row_1(b, i, h)[j], (B, S, S, H), ...)

The text has the same expressions as the loop nest of `loops`; each element is computed when it is
read first, and kept.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache, partial
from itertools import product
from math import prod
from operator import mul
from typing import TYPE_CHECKING, Any

from derive.judge.loops.names import find_indices, name_of_left, places_of_left
from derive.judge.loops.runtime import (
    FilledTwiceError,
    OutsideError,
    Tensor,
    count,
    make_namespace,
    to_extent,
)
from derive.judge.loops.text import Scope, find_row_indices, find_rows, put, write_reduction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from derive.judge.loops.names import Names
    from derive.judge.loops.numbers import Value
    from derive.notation.formula import Formula


class StepsOverError(Exception):
    """The loops have taken as many steps as they were given."""


class Entries(Tensor):
    """A tensor whose elements are computed when they are read."""

    def __init__(self, *shape: Value) -> None:
        super().__init__(*shape)
        self.ways: list[Callable[[tuple[int, ...]], list[Callable[[], Value]]]] = []

    def __missing__(self, place: Any) -> Value:
        places = place if isinstance(place, tuple) else (place,)
        if len(places) != len(self.shape) or any(
            not 0 <= p < n or p != int(p) for p, n in zip(places, self.shape, strict=True)
        ):
            raise OutsideError(self, place)
        found = [compute for way in self.ways for compute in way(tuple(map(int, places)))]
        if len(found) != 1:
            raise (FilledTwiceError if found else OutsideError)(self, place)
        value = found[0]()
        dict.__setitem__(self, place, value)
        return value


def open_entries(
    shape: tuple[int, ...], elements: Sequence[Any], convert: Callable[[Any], Value]
) -> Entries:
    """A given tensor, its elements in row-major order."""
    tensor = Entries(*shape)
    strides = [prod(shape[k + 1 :]) for k in range(len(shape))]

    def find(place: tuple[int, ...]) -> list[Callable[[], Value]]:
        return [lambda: convert(elements[sum(map(mul, place, strides))])]

    tensor.ways.append(find)
    return tensor


def fill(
    tensor: Entries,
    compute: Callable[..., Value],
    extents: tuple[Value, ...],
    *places: tuple[tuple[int, ...], Callable[..., int]],
) -> None:
    """An equation of the tensor: its right side, its indices' extents, and each of its places.

    A place is the numbers of the indices in it and what it is of them, `h*D + d`; a table says
    which indices give which place.
    """
    lengths = [to_extent(extent) for extent in extents]
    tables = []
    for indices, find in places:
        table: dict[int, list[dict[int, int]]] = defaultdict(list)
        for values in product(*(range(lengths[index]) for index in indices)):
            table[find(*values)].append(dict(zip(indices, values, strict=True)))
        tables.append(table)

    def find_ways(at: tuple[int, ...]) -> list[Callable[[], Value]]:
        found: list[dict[int, int]] = [{}]
        for table, place in zip(tables, at, strict=True):
            found = [
                one | other
                for one in found
                for other in table.get(place, ())
                if all(one.get(index, value) == value for index, value in other.items())
            ]
        return [partial(compute, *(way[k] for k in range(len(lengths)))) for way in found]

    tensor.ways.append(find_ways)


def write_entries(formula: Formula, names: Names) -> str:
    """The equations as functions of their indices, in Python."""
    lines: list[str] = []
    taken = {*names.python.values(), *make_entry_namespace(0)}
    fresh = (name for name in map("row_{}".format, range(1, 10**9)) if name not in taken)
    begun: set[str] = set()
    for equation in formula.equations:
        name, places = name_of_left(equation), places_of_left(equation)
        left = names.python[name]
        indices = tuple(dict.fromkeys(k for place in places for k in find_indices(place, names)))
        scope = Scope(names, frozenset(indices), empty_row=formula.empty_row)
        for row in find_rows(equation.rhs, frozenset(indices), names):
            needs = [k for k in indices if k in find_row_indices(row, names)]
            called, given = next(fresh), _spell(needs, names)
            lines.append(f"{called} = keep_(lambda {given}: {write_reduction(row, scope)})")
            scope.rows[row] = f"{called}({given})"
        value = put(equation.rhs, scope)
        if not places:
            lines.append(f"{left} = {value}")
            continue
        if name not in begun:
            lines.append(
                f"{left} = entries_({', '.join(put(n, scope) for n in names.shapes[name])})"
            )
            begun.add(name)
        extents = "".join(f"{put(names.indices[k], scope)}, " for k in indices)
        parts = ", ".join(_write_place(place, indices, names, scope) for place in places)
        way = f"lambda {_spell(indices, names)}: {value}"
        lines.append(f"fill_({left}, {way}, ({extents}), {parts})")
    return "\n".join(lines) + "\n"


def _spell(indices: Any, names: Names) -> str:
    return ", ".join(names.python[index] for index in indices)


def _write_place(place: Any, indices: tuple[str, ...], names: Names, scope: Scope) -> str:
    inside = tuple(find_indices(place, names))
    numbers = "".join(f"{indices.index(index)}, " for index in inside)
    return f"(({numbers}), lambda {_spell(inside, names)}: {put(place, scope)})"


def make_entry_namespace(steps: int) -> dict[str, Any]:
    """All that the text may call; a loop that goes beyond the steps raises StepsOverError."""
    left = steps

    def count_down(*bounds: Value) -> range:
        nonlocal left
        found = count(*bounds)
        left -= len(found)
        if left < 0:
            raise StepsOverError
        return found

    namespace = make_namespace(exact=False)
    return namespace | {"entries_": Entries, "fill_": fill, "keep_": cache, "range": count_down}
