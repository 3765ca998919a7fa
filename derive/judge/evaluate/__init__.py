"""The value of every equation of a system, by plain torch operations over whole index ranges.

    evaluate_system(system, values, sizes) -> {name: tensor}

It serves two judges: on tensors over random fields it says what code must give exactly, and on
float64 tensors it gives the value of every node, which an explanation compares with a user's lines.
Only torch's public operations are used, so both kinds of tensor do, and autograd goes through.

A node's value is a `Grid`: a tensor with one axis for each of its indices, in an order of its own.
A guard selects, it does not multiply: where a condition is false the other factors may be nan. A
position outside its tensor is moved inside; the analysis has shown that a guard throws it away.
Nodes are interned, so each is evaluated once, however often it occurs.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from derive.ir.nodes import (
    ONE,
    Access,
    Add,
    Along,
    And,
    Call,
    Compare,
    Equation,
    Expr,
    Index,
    Infinity,
    Mul,
    Not,
    Number,
    Or,
    Pow,
    Reduce,
    Scalar,
    Size,
    System,
    Truth,
    Where,
)
from derive.ir.polynomial import evaluate_extent
from derive.judge.evaluate import calls, places, rows
from derive.judge.evaluate.grid import Grid, align, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_RELATIONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


def evaluate_system(
    system: System,
    values: Mapping[str, Any],
    sizes: Mapping[str, int],
    constant: Callable[[Fraction], Any] = float,
) -> dict[str, Any]:
    """The tensor of every equation by name; `values` has the inputs, `sizes` every size.

    `constant` turns an exact rational into a number that the tensors can be multiplied by.
    """
    evaluator = Evaluator(values, sizes, system.empty_row, constant)
    for equation in system.equations:
        evaluator.define(equation)
    return {e.target.tensor.name: evaluator.values[e.target.tensor.name] for e in system.equations}


class Evaluator:
    """The values of nodes for one set of inputs; what is evaluated once is kept."""

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
        self._known: dict[Expr, Grid] = {}
        self._exact: dict[Expr, Fraction | float | None] = {}
        self._extents: dict[Expr, int] = {}

    def define(self, equation: Equation) -> Any:
        """The tensor that an equation fills, from now on the value of its name."""
        target = equation.target
        found = places.fill(self, target, self.find(equation.value))
        self.values[target.tensor.name] = found
        return found

    def find(self, expr: Expr) -> Grid:
        """The value of a node for each value of its indices."""
        found = self._known.get(expr)
        if found is None:
            found = self._known[expr] = self._evaluate(expr)
        return found

    def recall(self, expr: Expr) -> Any:
        """The values of a node that were evaluated; None where it was not."""
        found = self._known.get(expr)
        return None if found is None else found.tensor

    def find_tensor(self, expr: Expr, indices: tuple[Index, ...]) -> Any:
        """The value of a node as a tensor over these indices, in this order."""
        return spread(self.find(expr), indices, self)

    def extent(self, extent: Expr) -> int:
        """The number that an extent is, kept."""
        number = self._extents.get(extent)
        if number is None:
            number = self._extents[extent] = evaluate_extent(extent, self.sizes)
        return number

    def condition(self, expr: Expr) -> Grid:
        """A condition as truth values."""
        found = self.find(expr)
        return Grid(found.tensor.bool(), found.indices)

    def number(self, expr: Expr) -> Fraction | float | None:
        """The number that a node is, if neither an index nor a tensor is in it."""
        if expr not in self._exact:
            self._exact[expr] = self._find_number(expr)
        return self._exact[expr]

    def _evaluate(self, expr: Expr) -> Grid:
        import torch

        number = self.number(expr)
        if number is not None:
            return self._constant(number)
        match expr:
            case Index():
                steps = torch.arange(self.extent(expr.extent), dtype=torch.float64)
                return Grid(steps, (expr,))
            case Scalar(name):
                value = self.values[name]
                return self._constant(value) if isinstance(value, (int, float)) else Grid(value, ())
            case Access():
                return places.read(self, expr)
            case Add(terms):
                parts, indices = align([self.find(term) for term in terms])
                return Grid(_fold(torch.add, parts), indices)
            case Mul(factors):
                return self._multiply(factors)
            case Pow(base, exponent):
                return calls.power(self, base, exponent)
            case Call(function, arguments):
                return calls.call(self, function, arguments)
            case Where(condition, then, other):
                grids = [self.condition(condition), self.find(then), self.find(other)]
                (mask, one, two), indices = align(grids)
                return Grid(torch.where(mask, one, two), indices)
            case Reduce():
                return rows.reduce(self, expr)
            case Along():
                return rows.along(self, expr)
            case Truth(value):
                return Grid(torch.tensor(value), ())
            case Compare(relation, left, right):
                grids = [places.integers(self, side) for side in (left, right)]
                (one, two), indices = align(grids)
                return Grid(getattr(torch, _RELATIONS[relation])(one, two), indices)
            case And(parts):
                return self._connect(torch.logical_and, parts)
            case Or(parts):
                return self._connect(torch.logical_or, parts)
            case Not(part):
                found = self.condition(part)
                return Grid(~found.tensor, found.indices)
        raise AssertionError(expr)

    def _connect(self, act: Any, parts: tuple[Expr, ...]) -> Grid:
        found, indices = align([self.condition(part) for part in parts])
        return Grid(_fold(act, found), indices)

    def _multiply(self, factors: tuple[Expr, ...]) -> Grid:
        import torch

        guards, others = rows.split_guards(factors)
        parts, indices = align([self.find(factor) for factor in others or (ONE,)])
        product = Grid(_fold(torch.mul, parts), indices)
        return self.guard(guards, product)

    def guard(self, guards: tuple[Expr, ...], product: Grid) -> Grid:
        """The product, and 0 where a guard is false."""
        import torch

        for guard in guards:
            (mask, value), indices = align([self.condition(guard), product])
            product = Grid(torch.where(mask, value, torch.zeros_like(value)), indices)
        return product

    def _constant(self, number: Fraction | float) -> Grid:
        import torch

        if isinstance(number, Fraction):
            made = self.constant(number)
            tensor = made if hasattr(made, "shape") else torch.tensor(made, dtype=torch.float64)
            return Grid(tensor, ())
        return Grid(torch.tensor(float(number), dtype=torch.float64), ())

    def _find_number(self, expr: Expr) -> Fraction | float | None:
        match expr:
            case Number(value):
                return value
            case Infinity(negative):
                return -math.inf if negative else math.inf
            case Size(name):
                return Fraction(self.sizes[name])
            case Scalar(name):
                value = self.values[name]
                return Fraction(repr(value)) if isinstance(value, (int, float)) else None
            case Add() | Mul() | Pow() | Call():
                return calls.fold_number(self, expr)
        return None


def _fold(act: Any, parts: list[Any]) -> Any:
    found = parts[0]
    for part in parts[1:]:
        found = act(found, part)
    return found
