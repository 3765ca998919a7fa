"""What a plan in the making knows: extents at its sizes, names, layouts, steps so far."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from derive.ir.polynomial import evaluate_extent
from derive.plan.naming import free_name, name_op
from derive.plan.ops import (
    Op,
    Source,
    axes_of,
    is_boolean,
    is_integral,
)
from derive.plan.path import FLOPS
from derive.plan.steps import Step
from derive.rewrite.guards import guard_unless_finite, is_variable, protect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from derive.ir.nodes import Expr, Index, System, Tensor
    from derive.plan.path import Order


@dataclass
class Context:
    """The state of one plan."""

    system: System
    sizes: Mapping[str, int]
    names: set[str]
    lower_in: Callable[[Expr, Context, tuple[Index, ...]], Op]
    steps: list[Step] = field(default_factory=list)
    layouts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    known: dict[Expr, tuple[Source, tuple[Index, ...]]] = field(default_factory=dict)
    stored: dict[str, tuple[tuple[Index, ...], ...]] = field(default_factory=dict)
    integers: set[str] = field(default_factory=set)  # tensors that equations make of integers
    notes: dict[str, None] = field(default_factory=dict)  # what the reader has to know, each once
    orders: list[Order] = field(default_factory=list)  # of contractions with more than two factors
    extents: dict[Index, int] = field(default_factory=dict)
    target: str = ""
    minimize: str = FLOPS  # by an order of contraction

    def lower(self, expr: Expr, order: tuple[Index, ...]) -> Op:
        """An inner expression as an operation, its heavy parts in steps of their own."""
        return self.lower_in(expr, self, order)

    def protect(self, expr: Expr, condition: Expr, *, whole: bool = False) -> Expr:
        """An expression that is read where a condition holds, made harmless elsewhere."""
        return protect(expr, condition, whole=whole, zeros=self.system.empty_row == "zeros")

    def protect_factors(self, factors: Sequence[Expr], condition: Expr) -> list[Expr]:
        """The factors of a product that is read where a condition holds."""
        zeros = self.system.empty_row == "zeros"
        found = [self.protect(factor, condition) for factor in factors]
        if sum(map(is_variable, found)) < 2:
            return found
        return [guard_unless_finite(factor, condition, zeros=zeros) for factor in found]

    def extent(self, index: Index) -> int:
        """The extent at the sizes the plan is made for."""
        if index not in self.extents:
            self.extents[index] = evaluate_extent(index.extent, self.sizes)
        return self.extents[index]

    def count(self, indices: Iterable[Index]) -> int:
        """How many elements these indices span."""
        return prod(self.extent(i) for i in dict.fromkeys(indices))

    def add_step(self, op: Op, given: str = "") -> Source:
        """A step of its own for an operation, by the name that the formula gives or a free one."""
        kind = "bool" if is_boolean(op) else "int" if is_integral(op) else "real"
        name = given or free_name(name_op(op, self.target), self.names)
        self.names.add(name)
        self.steps.append(Step(name, op))
        return Source(name, axes_of(op), kind)


def layout_of(tensor: Tensor, context: Context) -> tuple[int, ...]:
    """In which order a tensor's places are stored."""
    return context.layouts.get(tensor.name, tuple(range(len(tensor.shape))))
