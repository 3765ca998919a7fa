"""Reading tensors at places of every kind, and filling the places of an equation's target."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from derive.ir.nodes import Access, Add, Call, Expr, Index, Mul, Number, Size
from derive.judge.evaluate.grid import Grid, align, spread

if TYPE_CHECKING:
    from derive.judge.evaluate.grid import Evaluator


def read(evaluator: Evaluator, access: Access) -> Grid:
    """The tensor's elements at the places; truth values and integers become numbers."""
    found = _read_raw(evaluator, access)
    if access.tensor.kind == "real":
        return found
    return Grid(found.tensor.double(), found.indices)


def _read_raw(evaluator: Evaluator, access: Access) -> Grid:
    tensor = evaluator.values[access.tensor.name]
    places = access.places
    indices = tuple(place for place in places if isinstance(place, Index))
    if len(set(indices)) == len(places) and all(
        evaluator.extent(index.extent) == length
        for index, length in zip(indices, tensor.shape, strict=True)
    ):
        return Grid(tensor, indices)
    if not places:
        return Grid(tensor, ())
    parts, order = align([integers(evaluator, place) for place in places])
    inside = tuple(
        part.long().clamp(0, max(length - 1, 0))
        for part, length in zip(parts, tensor.shape, strict=True)
    )
    if 0 in tensor.shape:  # nothing to read: every read is thrown away by a guard
        return _read_nothing(evaluator, tensor, order)
    return Grid(tensor[inside], order)


def _read_nothing(evaluator: Evaluator, tensor: Any, order: tuple[Index, ...]) -> Grid:
    return Grid(tensor.new_zeros([evaluator.extent(index.extent) for index in order]), order)


def integers(evaluator: Evaluator, expr: Expr) -> Grid:
    """A position, or a side of a comparison: in integers where it is one."""
    import torch

    match expr:
        case Number(value) if value.denominator == 1:
            return Grid(torch.tensor(int(value)), ())
        case Size(name):
            return Grid(torch.tensor(evaluator.sizes[name]), ())
        case Index():
            return Grid(torch.arange(evaluator.extent(expr.extent)), (expr,))
        case Access() if expr.tensor.kind != "real":
            return _read_raw(evaluator, expr)
        case Add(terms):
            return _combine(evaluator, torch.add, terms)
        case Mul(factors) if all(_is_integer(evaluator, factor) for factor in factors):
            return _combine(evaluator, torch.mul, factors)
        case Call("floordiv" | "mod" | "clip" | "abs" | "max" | "min" as function, arguments):
            parts, indices = align([integers(evaluator, a) for a in arguments])
            return Grid(_ON_INTEGERS[function](*parts), indices)
    number = evaluator.number(expr)
    if isinstance(number, Fraction) and number.denominator == 1:
        return Grid(torch.tensor(int(number)), ())
    return evaluator.find(expr)


def _combine(evaluator: Evaluator, act: Any, parts: tuple[Expr, ...]) -> Grid:
    grids, indices = align([integers(evaluator, part) for part in parts])
    found = grids[0]
    for grid in grids[1:]:
        found = act(found, grid)
    return Grid(found, indices)


def _is_integer(evaluator: Evaluator, expr: Expr) -> bool:
    return not integers(evaluator, expr).tensor.is_floating_point()


def _divide_down(over: Any, under: Any) -> Any:
    import torch

    return torch.div(over, under, rounding_mode="floor")


def _clip(value: Any, low: Any, high: Any) -> Any:
    import torch

    return torch.minimum(torch.maximum(value, low), high)


def _extreme(name: str) -> Any:
    def act(*parts: Any) -> Any:
        import torch

        found = parts[0]
        for part in parts[1:]:
            found = getattr(torch, name)(found, part)
        return found

    return act


_ON_INTEGERS: dict[str, Any] = {
    "floordiv": _divide_down,
    "mod": lambda over, under: over - under * _divide_down(over, under),
    "clip": _clip,
    "abs": lambda value: value.abs(),
    "max": _extreme("maximum"),
    "min": _extreme("minimum"),
}


def fill(evaluator: Evaluator, target: Access, value: Grid) -> Any:
    """The target's tensor: its axes in order, merged places put where they belong."""
    shape = [evaluator.extent(extent) for extent in target.tensor.shape]
    places = target.places
    if all(isinstance(place, Index) for place in places):
        order = tuple(place for place in places if isinstance(place, Index))
        found = _fit(evaluator, spread(value, order, evaluator), target)
        if list(found.shape) == shape:
            return found
    parts, order = align([integers(evaluator, place) for place in places])
    spaces = [evaluator.extent(index.extent) for index in order]
    positions = tuple(part.expand(spaces) for part in parts)
    source = _fit(evaluator, spread(value, order, evaluator), target)
    return source.new_zeros(shape).index_put(positions, source)


def _fit(evaluator: Evaluator, found: Any, target: Access) -> Any:
    """Integers and truth values as such, for an equation that defines a tensor of them."""
    if target.tensor.kind == "int":
        return found.long()
    return found.bool() if target.tensor.kind == "bool" else found
