"""Layouts: in which order the places of an intermediate are stored.

The first product that reads it decides: indices it shares with other operands and keeps (its batch)
come first, so that the product is a batched matmul of views; the rest stays as the user wrote it. A
function along an index keeps that index last. A sum over the rows of two matrices, one of which an
equation defines, keeps the columns of that one last: its gradient then lies as it does itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from derive.ir.nodes import Access, Along, Expr, Index, Mul, Reduce, System
from derive.ir.walk import find_free, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@lru_cache(maxsize=1 << 8)
def find_layouts(system: System) -> Mapping[str, tuple[int, ...]]:
    """For every tensor that an equation defines, the order of its places in storage."""
    layouts = {}
    for n, equation in enumerate(system.equations):
        target = equation.target
        places = range(len(target.places))
        layouts[target.tensor.name] = tuple(places)
        if all(isinstance(place, Index) for place in target.places):
            later = [e.value for e in system.equations[n + 1 :]]
            batch = next(_find_batch(target.tensor.name, later), None) or ()
            last = _find_last(equation.value)
            columns = _find_columns(equation.value, set(layouts))
            layouts[target.tensor.name] = tuple(
                sorted(
                    places,
                    key=lambda k: (
                        target.places[k] is last,
                        k not in batch,
                        target.places[k] in columns,
                    ),
                )
            )
    return layouts


def _find_last(value: Expr) -> Index | None:
    """The index that a function along an index wants last."""
    return value.index if isinstance(value, Along) else None


def _find_columns(value: Expr, made: set[str]) -> tuple[Index, ...]:
    """What only the made one of two tensors has, where both are summed over an index before it.

    As the left operand its gradient would be a transposed matrix.
    """
    match value:
        case Reduce("sum", (row,), _, Mul((Access() as one, Access() as other))):
            pairs = [(one, other), (other, one)]
        case _:
            return ()
    for mine, its in pairs:
        is_lone = mine.tensor.name in made and its.tensor.name not in made
        if is_lone and row in mine.places[:-1] and row in its.places[:-1]:
            return tuple(i for i in find_free(mine) if i not in its.places)
    return ()


def _find_batch(name: str, values: list[Expr]) -> Iterator[tuple[int, ...]]:
    """The batch places of the tensor in the products that read it, in order of appearance."""
    for value in values:
        for here in walk(value):
            match here:
                case Reduce("sum", bound, _, Mul(factors)):
                    yield from _find_shared(name, bound, factors)
                case _:
                    continue


def _find_shared(
    name: str, bound: tuple[Index, ...], factors: tuple[Expr, ...]
) -> Iterator[tuple[int, ...]]:
    for factor in factors:
        match factor:
            case Access(tensor, places) if tensor.name == name:
                others = {i for f in factors if f is not factor for i in find_free(f)}
                shared = others - set(bound)
                yield tuple(k for k, place in enumerate(places) if place in shared)
            case _:
                continue
