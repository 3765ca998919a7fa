"""Signs and finiteness: what a law may move to where no guard reaches, or multiply by 0.

readable                    no read leaves its tensor, whatever the guards around it
finite where it is defined  no infinity stands in it, and no reduction over nothing; a quotient may
                            still fail
safe                        readable, and finite for all finite inputs

Inputs are finite. A tensor that an equation defines may not be: `find_nonfinite` finds those, and
`mark_tensors` puts likenesses for them for the length of a rewriting: with an upper bound of oo,
and a lower bound of -oo if they are not even finite where they are defined.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from derive.analysis.facts import Facts, is_nonnegative
from derive.analysis.reads import find_guarded
from derive.ir import nodes as ir
from derive.ir.functions import FUNCTIONS, ROWS
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.walk import find_accesses, rewrite_bottom_up

if TYPE_CHECKING:
    from collections.abc import Mapping

_ONE = Polynomial.of(1)
_EMPTY = {word for word, row in ROWS.items() if row.nothing not in {"0", "1"}}


def is_readable(expr: ir.Expr) -> bool:
    """Does every read stay in its tensor without a guard from outside?"""
    return all(_is_inside(access, facts) for access, facts in find_guarded(expr, ()))


def is_finite_where_defined(expr: ir.Expr) -> bool:
    """Is it finite wherever its quotients, roots and logarithms are?"""
    return _Finite(strict=False).ask(expr)


def is_safe(expr: ir.Expr) -> bool:
    """Can it be read at all indices, and is it finite for all finite inputs?"""
    return is_finite(expr) and is_readable(expr)


def is_finite(expr: ir.Expr, *, zeros: bool = False) -> bool:
    """Is it finite for all finite inputs? `zeros`: the softmax of nothing is 0, not nan."""
    return _Finite(strict=True, zeros=zeros).ask(expr)


def is_positive(expr: ir.Expr) -> bool:
    """Is it > 0 for all sizes, and all inputs in their domain?"""
    match expr:
        case ir.Number(value):
            return value > 0
        case ir.Size() | ir.Call("pi", ()):
            return True
        case ir.Access(ir.Tensor(lower=ir.Number(value), strict=(is_strict, _))):
            return value > 0 or (value == 0 and is_strict)
        case ir.Mul(parts) if all(map(is_positive, parts)):
            return True
        case ir.Add(parts) if any(map(is_positive, parts)) and all(map(is_never_negative, parts)):
            return True
        case ir.Pow(base, ir.Number()):
            return is_positive(base)
        case ir.Access():
            return False
    return is_nonnegative(Polynomial.of(expr) - _ONE)


def is_never_negative(expr: ir.Expr) -> bool:
    """Is it >= 0, or nan, for all sizes, and all inputs in their domain?"""
    match expr:
        case ir.Number(value):
            return value >= 0
        case ir.Access(ir.Tensor(lower=ir.Number(value))):
            return value >= 0
        case ir.Add(parts) | ir.Mul(parts) if all(map(is_never_negative, parts)):
            return True
        case ir.Pow(_, ir.Number(value)) if value.denominator == 1 and value.numerator % 2 == 0:
            return True
        case ir.Pow(base, _):
            return is_never_negative(base)
        case ir.Where(_, then, other):
            return is_never_negative(then) and is_never_negative(other)
        case ir.Reduce("var" | "sample_var"):
            return True
        case ir.Reduce("sum" | "mean" | "prod" | "max" | "min", _, _, body):
            return is_never_negative(body)
        case ir.Along("softmax"):
            return True
        case ir.Call(function, arguments):
            is_end = function == "max" and any(map(is_never_negative, arguments))
            return is_end or FUNCTIONS[function].is_never_negative
    return is_positive(expr)


def _is_inside(access: ir.Access, facts: Facts) -> bool:
    for place, extent in zip(access.places, access.tensor.shape, strict=True):
        if isinstance(place, ir.Index) and is_same_extent(place.extent, extent):
            continue
        value, length = Polynomial.of(place), Polynomial.of(extent)
        if not (is_nonnegative(value, facts) and is_nonnegative(length - _ONE - value, facts)):
            return False
    return True


@dataclass(frozen=True, slots=True)
class _Finite:
    """The question whether an expression is finite; `strict`: its quotients too."""

    strict: bool
    zeros: bool = False

    def ask(self, expr: ir.Expr) -> bool:
        """Is it finite?"""
        match expr:
            case ir.Number() | ir.Size() | ir.Scalar() | ir.Index() | ir.Truth():
                return True
            case ir.Infinity():
                return False
            case ir.Access(tensor, _):
                return not isinstance(tensor.upper if self.strict else tensor.lower, ir.Infinity)
            case ir.Add(parts) | ir.Mul(parts) | ir.And(parts) | ir.Or(parts):
                return all(map(self.ask, parts))
            case ir.Pow(base, exponent):
                return self._ask_power(base, exponent)
            case ir.Call(function, arguments):
                row = FUNCTIONS.get(function)
                known = row is not None and not (self.strict and row.is_partial)
                return (known and all(map(self.ask, arguments))) or set(arguments) == {ir.ONE}
            case ir.Where(condition, then, other):
                return all(map(self.ask, (condition, then, other)))
            case ir.Reduce(kind, _, condition, body):
                is_full = condition is ir.TRUE or kind not in _EMPTY
                counted = kind not in {"sample_var", "logdet"} or not self.strict
                return is_full and counted and self.ask(condition) and self.ask(body)
            case ir.Along(kind, _, condition, body):
                is_full = condition is ir.TRUE or kind == "cumsum"
                is_full = is_full or (kind == "softmax" and self.zeros)
                if kind == "softmax" and not self.strict:
                    return True  # between 0 and 1, or nan
                if ROWS[kind].is_matrix and self.strict:
                    return False  # where it is singular
                return is_full and self.ask(condition) and self.ask(body)
            case ir.Compare(_, left, right):
                return self.ask(left) and self.ask(right)
            case ir.Not(part):
                return self.ask(part)

    def _ask_power(self, base: ir.Expr, exponent: ir.Expr) -> bool:
        if is_positive(base):
            return self.ask(exponent)
        if not self.strict:
            return self.ask(base) and self.ask(exponent)
        match exponent:
            case ir.Number(value):
                return value >= 0 and value.denominator == 1 and self.ask(base)
        return False


def find_nonfinite(system: ir.System) -> dict[ir.Tensor, ir.Tensor]:
    """The tensors that an equation does not make finite for sure, each with its marked likeness."""
    nonfinite: dict[ir.Tensor, ir.Tensor] = {}
    for equation in system.equations:
        value, tensor = mark_tensors(equation.value, nonfinite), equation.target.tensor
        if _Finite(strict=True).ask(value):
            continue
        lower = None if is_finite_where_defined(value) else ir.MINUS_INFINITY
        kept = (tensor.name, tensor.shape, tensor.kind, tensor.below)
        nonfinite[tensor] = ir.Tensor(*kept, lower, ir.Infinity(False))
    return nonfinite


def mark_tensors(expr: ir.Expr, likeness: Mapping[ir.Tensor, ir.Tensor]) -> ir.Expr:
    """The expression with tensors exchanged; with the contrary mapping, unmarked again."""
    if not any(access.tensor in likeness for access in find_accesses(expr)):
        return expr

    def exchange(here: ir.Expr) -> ir.Expr:
        if isinstance(here, ir.Access) and here.tensor in likeness:
            return ir.Access(likeness[here.tensor], here.places)
        return here

    return rewrite_bottom_up(expr, exchange)
