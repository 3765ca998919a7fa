"""Which node of a formula a tensor of the code is: up to order of axes, merged axes, and a factor.

Power sums, which no order of elements changes, tell what cannot match; what may is compared element
by element under each order of the indices.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import islice, permutations
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from derive.ir.nodes import Expr, Index

CLOSE = 1e-8
MOST_ORDERS = 120
_LARGEST = 64  # of the numbers in a factor


@dataclass(frozen=True, eq=False)
class Print:
    """A fingerprint: the same for every order of the elements and, but its size, every factor."""

    count: int
    finite: int
    ratios: tuple[float, float]
    size: float  # the root of the mean square

    def is_like(self, other: Print) -> bool:
        """May one be the other?"""
        return (
            self.count == other.count
            and self.finite == other.finite
            and all(abs(a - b) <= 1e-7 for a, b in zip(self.ratios, other.ratios, strict=True))
        )

    def is_same(self, other: Print) -> bool:
        """May one be the other, with no factor but a sign?"""
        return abs(self.size - other.size) <= 1e-7 * self.size and self.is_like(other)


def find_print(tensor: Any) -> Print | None:
    """The fingerprint of a tensor; None for one that is constant and so tells nothing."""
    flat = tensor.reshape(-1)
    total = float(flat.sum())
    if not math.isfinite(total):
        flat = flat[flat.isfinite()]
    if not flat.numel():
        return None
    size = flat.abs()
    square = size * size
    one, two, four = (float(each.mean()) for each in (size, square, square * square))
    if two <= 0 or not math.isfinite(four) or (one * one) / two > 1 - 1e-12:
        return None
    ratios = (one * one / two, two * two / max(four, 1e-300))
    return Print(tensor.numel(), flat.numel(), ratios, math.sqrt(two))


@dataclass(frozen=True, eq=False)
class Node:
    """A node of the formula with its value, an axis for each index."""

    expr: Expr
    name: str  # as it is shown
    value: Any
    indices: tuple[Index, ...]
    equation: int  # whose part it is; -1 for an input
    whole: bool  # is it the whole of an equation, or an input
    of: str  # the tensor that the equation defines, or the input

    @cached_property
    def print(self) -> Print | None:
        """The fingerprint."""
        return find_print(self.value)


@dataclass(frozen=True)
class Match:
    """A tensor of the code as a node of the formula: the order of the indices, the factor."""

    node: Node
    order: tuple[int, ...]
    factor: str  # "" for 1

    def __str__(self) -> str:
        text: str = self.node.name
        if self.factor:
            text = f"({text})" if " + " in text or " - " in text else text
            text = f"{text} * {self.factor}"
        if self.order != tuple(range(len(self.order))):
            text += f", as [{', '.join(self.node.indices[k].name for k in self.order)}]"
        return text


def find_match(
    value: Any, nodes: Iterable[Node], sizes: Mapping[str, int], mark: Print | None = None
) -> Match | None:
    """The node that a tensor is: one without a factor if there is one."""
    mark = mark or find_print(value)
    if mark is None:
        return None
    scaled: Match | None = None
    for node in nodes:
        if node.print is None or not mark.is_like(node.print):
            continue
        found = compare(value, node, sizes)
        if found is not None and not found.factor:
            return found
        scaled = scaled or found
    return scaled


def compare(value: Any, node: Node, sizes: Mapping[str, int]) -> Match | None:
    """The order and the factor under which a tensor is a node's value, if there are any."""
    flat = value.reshape(-1)
    finite = flat.isfinite()
    probe = int(flat.nan_to_num(0, 0, 0).abs().argmax())
    for order in islice(permutations(range(node.value.dim())), MOST_ORDERS):
        turned = node.value.permute(order)
        if not is_regrouped(turned.shape, value.shape):
            continue
        other = turned.reshape(-1)
        below, above = float(other[probe]), float(flat[probe])
        if not below or not math.isfinite(below):
            continue
        factor = above / below
        if not bool((other.isfinite() == finite).all()):
            continue
        off = (other[finite] * factor - flat[finite]).abs().max()
        if float(off) > CLOSE * abs(above):
            continue
        said = find_factor(factor, sizes)
        if said is not None:
            return Match(node, order, said)
    return None


def is_regrouped(one: Iterable[int], other: Iterable[int]) -> bool:
    """Are the axes of one the other's, some merged, some split, but none torn apart?"""
    left, right = ([n for n in shape if n != 1] for shape in (one, other))
    while left and right:
        taken, given = [left.pop(0)], [right.pop(0)]
        while math.prod(taken) != math.prod(given):
            short, rest = (taken, left) if math.prod(taken) < math.prod(given) else (given, right)
            if not rest:
                return False
            short.append(rest.pop(0))
        if len(taken) > 1 and len(given) > 1:
            return False
    return not left and not right


def find_factor(factor: float, sizes: Mapping[str, int]) -> str | None:
    """The factor in words, "" for 1: a fraction or a root of one, by sizes where they tell."""
    if abs(factor - 1) <= CLOSE:
        return ""
    sign, size = ("-" if factor < 0 else ""), abs(factor)
    for name, number in sizes.items():
        for value, text in (
            (number**-0.5, f"1/sqrt({name})"),
            (number**0.5, f"sqrt({name})"),
            (1 / number, f"1/{name}"),
            (float(number), name),
        ):
            if number > 1 and abs(value / size - 1) <= CLOSE:
                return sign + text
    for power, shown in ((1, "{}"), (2, "sqrt({})")):
        near = Fraction(size**power).limit_denominator(_LARGEST)
        if 0 < near.numerator <= _LARGEST and abs(float(near) / size**power - 1) <= CLOSE:
            return sign + shown.format(near) if near != 1 else sign + "1"
    return None
