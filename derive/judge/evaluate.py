"""The value of every equation of a system, by plain torch operations over whole index ranges.

    evaluate_system(system, values, sizes) -> {name: tensor}

It has two uses. On tensors over random fields it gives the exact results that code must return. On
float64 tensors it gives the value of every node, which an explanation compares with a user's lines.
Only torch's public operations are used, so both kinds of tensor work, and so does autograd.

A node's value is a `Grid`: a tensor with one axis for each of its indices, in any order. A guard
selects, it does not multiply: where a condition is false the other factors may be nan. A position
outside its tensor is clamped; the analysis has shown that a guard discards it. Nodes are interned,
so each is evaluated once, however often it occurs. Constant nodes stay exact as long as possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import chain, product
from math import inf, nan, prod
from operator import attrgetter
from typing import Any

from derive.errors import refuse
from derive.ir import nodes as ir
from derive.ir import polynomial, recurrences
from derive.ir.definitions import unfold_call
from derive.ir.functions import FUNCTIONS, ROWS, find_call
from derive.ir.walk import find_accesses, split_guards, substitute, walk
from derive.judge.constants import fold_number
from derive.libraries import torch


@dataclass(frozen=True, slots=True)
class Grid:
    """A tensor with one axis for each index, in this order."""

    tensor: Any
    indices: tuple[ir.Index, ...]


def align(grids: Sequence[Grid]) -> tuple[list[Any], tuple[ir.Index, ...]]:
    """The tensors with the same axes, of length 1 where a grid lacks an index, and the indices."""
    indices = tuple(dict.fromkeys(index for grid in grids for index in grid.indices))
    return [align_grid(grid, indices) for grid in grids], indices


def align_grid(grid: Grid, indices: tuple[ir.Index, ...]) -> Any:
    """The tensor with an axis for each of these indices, of length 1 where the grid lacks it."""
    order = [grid.indices.index(index) for index in indices if index in grid.indices]
    found = grid.tensor
    if order != list(range(len(order))):
        found = found.permute(order)
    for number, index in enumerate(indices):
        if index not in grid.indices:
            found = found.unsqueeze(number)
    return found


def spread_grid(grid: Grid, indices: tuple[ir.Index, ...], evaluator: Evaluator) -> Any:
    """The tensor over exactly these indices, each axis at its full extent."""
    shape = [evaluator.extent(index.extent) for index in indices]
    return align_grid(grid, indices).expand(shape)


_SHORT = 4  # largest item size in bytes for which every node is rounded


def evaluate_system(
    system: ir.System, values: Mapping[str, Any], sizes: Mapping[str, int], **options: Any
) -> dict[str, Any]:
    """The tensor of every equation by name, with the options of `evaluate_formula`."""
    found = evaluate_formula(system, values, sizes, **options).values
    return {e.target.tensor.name: found[e.target.tensor.name] for e in system.equations}


def evaluate_formula(
    system: ir.System,
    values: Mapping[str, Any],
    sizes: Mapping[str, int],
    constant: Callable[[Fraction], Any] = float,
    *,
    is_regular: bool = False,
) -> Evaluator:
    """The evaluator of all equations; `values` has the inputs, `sizes` every size.

    With `is_regular`, raises ArithmeticError where a matrix has no inverse. `constant` converts an
    exact rational to a number that the tensors can be multiplied by.
    """
    evaluator = Evaluator(values, sizes, system.empty_row, constant)
    evaluator.is_regular = is_regular
    for equation in system.equations:
        evaluator.define(equation)
    return evaluator


class Evaluator:
    """The values of nodes for one set of inputs, cached.

    If a real input is a shorter float, every real node is rounded to it, as in code.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        sizes: Mapping[str, int],
        empty_row: str = "nan",
        constant: Callable[[Fraction], Any] = float,
    ) -> None:
        self.values = dict(values)
        self.sizes = dict(sizes)
        self.empty_row = empty_row
        self.constant = constant
        self.is_regular = False
        kinds = [v.dtype for v in values.values() if getattr(v, "is_floating_point", bool)()]
        self.short = next((each for each in kinds if each.itemsize <= _SHORT), None)
        self._waiting: list[ir.Equation] = []  # recurring equations that lack others
        self._owners: dict[str, ir.Equation] = {}
        self.known: dict[ir.Expr, Grid] = {}
        self._plain: Evaluator | None = None  # of nodes without real numbers
        self._exact: dict[ir.Expr, Fraction | float | None] = {}
        self._extents: dict[ir.Expr, int] = {}

    def define(self, equation: ir.Equation) -> Any:
        """Evaluate the tensor that an equation fills and store it under its name.

        Mutually recurrent tensors are filled together, at the last of their equations. DeriveError
        where another equation fills the tensor too: `to_system` joins them.
        """
        target = equation.target
        if self._owners.setdefault(target.tensor.name, equation) is not equation:
            raise refuse(
                "place-filled-twice",
                f"several equations fill {target.tensor.name}, or its initial values",
                help="evaluate the checked system of the formula, in which one equation does",
            )
        self._waiting.append(equation)
        known = {*self.values, *(each.target.tensor.name for each in self._waiting)}
        read = [access.tensor for each in self._waiting for access in find_accesses(each.value)]
        if any(tensor.name not in known for tensor in read):
            return None
        waiting, self._waiting = self._waiting, []
        if len(waiting) > 1 or any(tensor is target.tensor for tensor in read):
            recurrence = recurrences.find_recurrence(waiting)
            assert recurrence is not None  # as the checks of the formula say
            self._recur(recurrence)
        else:
            found = self.evaluate_node(equation.value)
            self.values[target.tensor.name] = _fill_target(self, target, found)
        return self.values[target.tensor.name]

    def _recur(self, recurrence: recurrences.Recurrence) -> None:
        """Fill the tensors of recurrent equations, place after place."""
        made: dict[ir.Tensor, Any] = dict.fromkeys(e.target.tensor for e in recurrence.equations)
        for tensor in made:
            shape = [self.extent(extent) for extent in tensor.shape]
            self.values[tensor.name] = torch.zeros(shape, dtype=torch.float64)
        turns = []
        for loop in recurrence.loops:
            every = range(self.extent(loop.index.extent))
            turns.append([*reversed(every)] if loop.is_downward else [*every])
        for turn in product(*turns):
            here: dict[ir.Expr, ir.Expr] = {
                loop.index: ir.Number(Fraction(at))
                for loop, at in zip(recurrence.loops, turn, strict=True)
            }
            for equation in recurrence.equations:
                tensor, places = equation.target.tensor, equation.target.places
                target = ir.Access(tensor, tuple(substitute(place, here) for place in places))
                found = self.evaluate_node(substitute(equation.value, here))
                made[tensor] = _fill_target(self, target, found, made[tensor])
                self.values[tensor.name] = made[tensor]

    def evaluate_node(self, expr: ir.Expr) -> Grid:
        """The value of a node for each value of its indices."""
        found = self.known.get(expr)
        if found is None:
            found = self._evaluate(expr)
            if self.short is not None and found.tensor.dtype is torch.float64:
                found = Grid(found.tensor.to(self.short), found.indices)
            self.known[expr] = found
        return found

    def evaluate_place(self, expr: ir.Expr) -> Grid:
        """The value of a position or a side of a comparison, in plain float64 if it is plain."""
        if not self.is_plain(expr):
            return self.evaluate_node(expr)
        if self._plain is None:
            self._plain = Evaluator({}, self.sizes, self.empty_row)
            self._plain.values, self._plain._plain = self.values, self._plain
        return self._plain.evaluate_node(expr)

    def is_plain(self, expr: ir.Expr) -> bool:
        """Whether a node is made of indices, sizes, numbers, integers and truth values."""
        return not any(
            hasattr(self.values[part.name], "shape")
            if isinstance(part, ir.Scalar)
            else isinstance(part, ir.Access) and part.tensor.kind not in {"int", "bool"}
            for part in walk(expr)
        )

    def extent(self, extent: ir.Expr) -> int:
        """The value of an extent, cached."""
        number = self._extents.get(extent)
        if number is None:
            number = self._extents[extent] = polynomial.evaluate_extent(extent, self.sizes)
        return number

    def condition(self, expr: ir.Expr) -> Grid:
        """The truth values of a condition."""
        found = self.evaluate_node(expr)
        return Grid(found.tensor.bool(), found.indices)

    def number(self, expr: ir.Expr) -> Fraction | float | None:
        """The value of a node without indices and tensors; None for other nodes."""
        if expr not in self._exact:
            self._exact[expr] = self._find_number(expr)
        return self._exact[expr]

    def _evaluate(self, expr: ir.Expr) -> Grid:
        number = self.number(expr)
        if number is not None:
            return self._constant(number)
        match expr:
            case ir.Call("I"):
                return Grid(torch.tensor(1j, dtype=torch.complex128), ())
            case ir.Index():
                steps = torch.arange(self.extent(expr.extent), dtype=torch.float64)
                return Grid(steps, (expr,))
            case ir.Scalar(name):
                value = self.values[name]
                return self._constant(value) if isinstance(value, (int, float)) else Grid(value, ())
            case ir.Access():
                return _read_access(self, expr)
            case ir.Add(terms):
                parts, indices = align([self.evaluate_node(term) for term in terms])
                return Grid(reduce(torch.add, parts), indices)
            case ir.Mul(factors):
                guards, others = split_guards(factors)
                grids = [self.evaluate_node(factor) for factor in others or (ir.ONE,)]
                return self.guard(guards, _multiply_grids(grids))
            case ir.Pow(base, exponent):
                return _evaluate_power(self, base, exponent)
            case ir.Call(function, arguments):
                return _apply_function(self, function, arguments)
            case ir.Where(condition, then, other):
                branches = map(self.evaluate_node, (then, other))
                (mask, one, two), indices = align([self.condition(condition), *branches])
                return Grid(torch.where(mask, one, two), indices)
            case ir.Reduce():
                return _evaluate_reduce(self, expr)
            case ir.Along():
                return _evaluate_along(self, expr)
            case ir.Truth(value):
                return Grid(torch.tensor(value), ())
            case ir.Compare(relation, left, right):
                (one, two), indices = align([self.evaluate_place(each) for each in (left, right)])
                return Grid(ir.DECIDING[relation](one, two), indices)
            case ir.And(parts):
                return self._connect(torch.logical_and, parts)
            case ir.Or(parts):
                return self._connect(torch.logical_or, parts)
            case ir.Not(part):
                found = self.condition(part)
                return Grid(~found.tensor, found.indices)
        raise AssertionError(expr)

    def _connect(self, act: Any, parts: tuple[ir.Expr, ...]) -> Grid:
        found, indices = align([self.condition(part) for part in parts])
        return Grid(reduce(act, found), indices)

    def guard(self, guards: tuple[ir.Expr, ...], product: Grid) -> Grid:
        """The product, and 0 where a guard is false."""
        for guard in guards:
            (mask, value), indices = align([self.condition(guard), product])
            product = Grid(torch.where(mask, value, torch.zeros_like(value)), indices)
        return product

    def _constant(self, number: Fraction | float) -> Grid:
        made = self.constant(number) if isinstance(number, Fraction) else float(number)
        is_made = hasattr(made, "shape")
        return Grid(made if is_made else torch.tensor(made, dtype=torch.float64), ())

    def _find_number(self, expr: ir.Expr) -> Fraction | float | None:
        match expr:
            case ir.Number(value):
                return value
            case ir.Infinity(negative):
                return -math.inf if negative else math.inf
            case ir.Size(name):
                return Fraction(self.sizes[name])
            case ir.Scalar(name):
                value = self.values[name]
                return Fraction(repr(value)) if isinstance(value, (int, float)) else None
            case ir.Add() | ir.Mul() | ir.Pow() | ir.Call():
                numbers = [self.number(part) for part in expr.children]
                known = [number for number in numbers if number is not None]
                return fold_number(expr, known) if len(known) == len(numbers) else None
        return None


def _read_access(evaluator: Evaluator, access: ir.Access) -> Grid:
    """The tensor's elements at the places; truth values and integers converted to floats."""
    tensor, places = evaluator.values[access.tensor.name], access.places
    if access.tensor.kind in {"int", "bool"}:
        tensor = tensor.double()
    indices = tuple(place for place in places if isinstance(place, ir.Index))
    if len(set(indices)) == len(places) and all(
        evaluator.extent(index.extent) == length
        for index, length in zip(indices, tensor.shape, strict=True)
    ):
        return Grid(tensor, indices)
    parts, order = align([evaluator.evaluate_place(place) for place in places])
    if 0 in tensor.shape:  # nothing to read: guards discard every read
        return Grid(tensor.new_zeros([evaluator.extent(index.extent) for index in order]), order)
    inside = tuple(
        part.long().clamp(0, max(length - 1, 0))
        for part, length in zip(parts, tensor.shape, strict=True)
    )
    return Grid(tensor[inside], order)


def _fill_target(evaluator: Evaluator, target: ir.Access, value: Grid, into: Any = None) -> Any:
    """The target's tensor, filled with the value at its places; DeriveError for places outside."""
    shape = [evaluator.extent(extent) for extent in target.tensor.shape]
    places = target.places
    if all(isinstance(place, ir.Index) for place in places):
        order = tuple(place for place in places if isinstance(place, ir.Index))
        found = _fit(spread_grid(value, order, evaluator), target)
        if list(found.shape) == shape:
            return found
    parts, order = align([evaluator.evaluate_place(place) for place in places])
    spaces = [evaluator.extent(index.extent) for index in order]
    positions = tuple(part.long().expand(spaces) for part in parts)
    for position, length in zip(positions, shape, strict=True):
        if bool(((position < 0) | (position >= length)).any()):
            raise refuse(
                "place-outside",
                f"{target.tensor.name} is filled outside of its places",
                help="evaluate the checked system of the formula, in which starts are opened",
            )
    source = _fit(spread_grid(value, order, evaluator), target)
    whole = source.new_zeros(shape) if into is None else into
    return whole.index_put(positions, source)


def _fit(found: Any, target: ir.Access) -> Any:
    """The value in the target's type: integers, truth values, or unchanged."""
    if target.tensor.kind == "int":
        return found.long()
    return found.bool() if target.tensor.kind == "bool" else found


def _evaluate_power(evaluator: Evaluator, base: ir.Expr, exponent: ir.Expr) -> Grid:
    """The value of a power; exponents n and n + 1/2 use products, quotients and square roots."""
    under, number = evaluator.evaluate_node(base), evaluator.number(exponent)
    if isinstance(number, Fraction) and (2 * number).denominator == 1 and abs(number) <= 8:
        found, whole = under.tensor, int(abs(number))
        parts = [found if whole == 1 else torch.pow(found, whole)] if whole else []
        parts += [torch.sqrt(found)] if number.denominator == 2 else []
        made = reduce(torch.mul, parts) if parts else torch.ones_like(found)
        return Grid(torch.reciprocal(made) if number < 0 else made, under.indices)
    if isinstance(number, Fraction):
        return Grid(torch.pow(under.tensor, float(number)), under.indices)
    powers, base_number = evaluator.evaluate_place(exponent), evaluator.number(base)
    if isinstance(base_number, Fraction) and not evaluator.is_plain(exponent):
        return Grid(torch.pow(float(base_number), powers.tensor), powers.indices)
    (one, two), indices = align([under, powers])
    return Grid(torch.pow(one, two), indices)


def _apply_function(evaluator: Evaluator, function: str, arguments: tuple[ir.Expr, ...]) -> Grid:
    """The value of an elementwise function of the notation."""
    if function in {"floordiv", "mod"}:
        (over, under), indices = align([evaluator.evaluate_place(each) for each in arguments])
        is_undefined = under == 0  # nan: every comparison with it is false
        found = torch.div(over, torch.where(is_undefined, 1, under), rounding_mode="floor")
        found = over - under * found if function == "mod" else found
        return Grid(torch.where(is_undefined, nan, found) if is_undefined.any() else found, indices)
    row, known = FUNCTIONS[function], find_call(function)
    count = len(arguments) if row.is_variadic else len(row.tensors)
    numbers = [evaluator.number(argument) for argument in arguments[count:]]
    values = [float(number) for number in numbers if number is not None]
    if known is None or len(values) < len(numbers) or len(values) > len(known.parameters) - 1:
        return evaluator.evaluate_node(unfold_call(function, arguments))
    parts, indices = align([evaluator.evaluate_node(argument) for argument in arguments[:count]])
    act = attrgetter(known.path.removeprefix("torch."))(torch)
    if row.is_variadic:
        return Grid(reduce(act, parts), indices)
    return Grid(act(*parts, *values, **known.keywords), indices)


# the value that replaces an entry where the condition is false
_LEFT_OUT = {word: float(row.left_out.replace("oo", "inf") or 0) for word, row in ROWS.items()}


def _evaluate_reduce(evaluator: Evaluator, expr: ir.Reduce) -> Grid:
    """The value of a reduction of the body over bound indices, where the condition holds."""
    if ROWS[expr.kind].is_matrix:
        return _apply_to_matrix(evaluator, expr, expr.bound)
    if expr.kind == "sum" and expr.condition == ir.TRUE:
        return _evaluate_sum(evaluator, expr.body, expr.bound)
    body, mask, free = _spread_rows(evaluator, expr.bound, expr.condition, expr.body)
    rows = tuple(range(len(free), len(free) + len(expr.bound)))
    is_moment = expr.kind in {"mean", "var", "sample_var"}
    return Grid((_find_moment if is_moment else _reduce_rows)(expr.kind, body, mask, rows), free)


def _spread_rows(
    evaluator: Evaluator, bound: tuple[ir.Index, ...], condition: ir.Expr, body: ir.Expr
) -> tuple[Any, Any, tuple[ir.Index, ...]]:
    """The body and the mask with the bound indices last, and the free indices before them."""
    grid, mask = evaluator.evaluate_node(body), evaluator.condition(condition)
    free = tuple(dict.fromkeys(i for i in (*grid.indices, *mask.indices) if i not in bound))
    order = (*free, *bound)
    spread = spread_grid(grid, order, evaluator)
    if not (spread.is_floating_point() or spread.is_complex()):  # an argmax
        spread = spread.double()
    return spread, spread_grid(mask, order, evaluator), free


def _reduce_rows(kind: str, body: Any, mask: Any, rows: tuple[int, ...]) -> Any:
    if not bool(mask.all()):
        body = torch.where(mask, body, torch.full_like(body, _LEFT_OUT[kind]))
    match kind:
        case "sum" | "max" | "min":
            act = {"sum": body.sum, "max": body.amax, "min": body.amin}[kind]
            return act(rows) if rows else body
        case "prod":
            for row in reversed(rows):
                body = body.prod(row)
            return body
        case "logsumexp":
            return torch.logsumexp(body, rows)
    flat = body.flatten(rows[0]) if len(rows) > 1 else body
    return torch.argmax(flat, rows[0])


def _find_moment(kind: str, body: Any, mask: Any, rows: tuple[int, ...]) -> Any:
    count = mask.double().sum(rows)
    kept = torch.where(mask, body, torch.zeros_like(body))
    if kind == "mean":
        return kept.sum(rows) / count
    mean = kept.sum(rows, keepdim=True) / mask.double().sum(rows, keepdim=True)
    off = torch.where(mask, body - mean, torch.zeros_like(body))
    if kind == "sample_var":
        count = (count - 1).clamp(min=0)  # nan for an empty row, as for one entry
    return (off * off).sum(rows) / count


def _evaluate_sum(evaluator: Evaluator, body: ir.Expr, bound: tuple[ir.Index, ...]) -> Grid:
    """The value of a sum of products, over one index at a time, smallest product first."""
    guards, factors = split_guards((body,))
    grids = [evaluator.evaluate_node(factor) for factor in factors]
    if guards:
        grids = [evaluator.guard(guards, _multiply_grids(grids))]
    return _sum_out(evaluator, grids, bound)


def _multiply_grids(grids: list[Grid]) -> Grid:
    """The product of the grids; 1 if there is none."""
    parts, indices = align(grids)
    return Grid(reduce(torch.mul, parts or [torch.ones((), dtype=torch.float64)]), indices)


def _sum_out(evaluator: Evaluator, grids: list[Grid], bound: tuple[ir.Index, ...]) -> Grid:
    def count_elements(index: ir.Index) -> int:
        """The number of elements in the product of all grids with the index."""
        inside = chain.from_iterable(grid.indices for grid in grids if index in grid.indices)
        return prod(evaluator.extent(each.extent) for each in dict.fromkeys(inside))

    left = list(bound)
    while left:
        index = min(left, key=count_elements)
        left.remove(index)
        inside = [grid for grid in grids if index in grid.indices]
        product = _multiply_grids(inside)
        if not inside:  # a sum of equal terms
            product = Grid(product.tensor.expand(evaluator.extent(index.extent)), (index,))
        rest = tuple(other for other in product.indices if other != index)
        summed = Grid(align_grid(product, (*rest, index)).sum(-1), rest)
        grids = [*(grid for grid in grids if index not in grid.indices), summed]
    return _multiply_grids(grids)


LEAST_PART = 1e-9  # least ratio of singular values; below it half of the digits are lost


def _apply_to_matrix(
    evaluator: Evaluator, expr: ir.Reduce | ir.Along, indices: tuple[ir.Index, ...]
) -> Grid:
    """The value of a matrix function of the body over its row and column indices.

    In floats it is nan where the matrix is numerically singular or has no Cholesky factor.
    """
    body, _, free = _spread_rows(evaluator, indices, ir.TRUE, expr.body)
    act = attrgetter(ROWS[expr.kind].torch)(torch)
    order = (*free, *indices) if isinstance(expr, ir.Along) else free
    if type(body) is not torch.Tensor:  # fields have no singular values and no sign
        found = torch.linalg.det(body).log() if expr.kind == "logdet" else act(body)
        return Grid(found, order)
    if expr.kind == "det" or not body.numel():
        return Grid(act(body), order)
    with torch.no_grad():
        one = torch.eye(body.shape[-1], dtype=body.dtype)
        regular = body.isfinite().all(-1).all(-1)
        parts = torch.linalg.svdvals(torch.where(regular[..., None, None], body, one))
        regular &= parts[..., -1] > LEAST_PART * parts[..., 0]
        if expr.kind == "cholesky":
            regular &= torch.linalg.cholesky_ex(body).info == 0
    if evaluator.is_regular and not bool(regular.all()):
        raise ArithmeticError(f"a matrix has no {expr.kind}, or loses its digits in it")
    found = act(torch.where(regular[..., None, None], body, one))
    shown = regular[..., None, None] if isinstance(expr, ir.Along) else regular
    return Grid(torch.where(shown, found, math.nan), order)


def _evaluate_along(evaluator: Evaluator, expr: ir.Along) -> Grid:
    """The value of a function along an index, without entries where the condition is false."""
    if expr.columns is not None:
        return _apply_to_matrix(evaluator, expr, expr.indices)
    body, mask, free = _spread_rows(evaluator, (expr.index,), expr.condition, expr.body)
    order = (*free, expr.index)
    if ROWS[expr.kind].is_linear:
        return Grid(torch.where(mask, body, torch.zeros_like(body)).cumsum(-1), order)
    if expr.condition != ir.TRUE:
        body = torch.where(mask, body, torch.full_like(body, -inf))
    found = getattr(torch, expr.kind)(body, -1)
    if ROWS[expr.kind].normalizes and evaluator.empty_row == "zeros":
        nothing = (body == -inf).all(-1, keepdim=True)
        found = torch.where(nothing, torch.zeros_like(found), found)
    return Grid(found, order)
