"""Python's own functions of numbers while code is lifted: they hear which sizes they are given.

`math.sqrt(D)` keeps what the size carries; for `math.gcd(S, 4)` and `range(H)`, which read a plain
number out of a subclass of int and tell nobody, the size counts as lost: it becomes a number.
"""

from __future__ import annotations

import builtins
import math
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from derive.frontend.torch_exprs import power
from derive.frontend.torch_numbers import SymbolicFloat, SymbolicInt, plain, to_expr
from derive.ir.nodes import Call, Number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_KEEPING = ("sqrt", "exp", "log", "sin", "cos", "tanh")
_ASKING = ("ceil", "floor", "trunc", "prod")  # they call the number's own methods


def take_function(name: str, value: Any, *rest: Any, plain_function: Callable[..., Any]) -> Any:
    """`math.sqrt` and its like of a number; what a symbolic one carries goes on."""
    if rest:
        return lose_numbers(plain_function, value, *rest)
    number = plain_function(plain(value))
    if not isinstance(value, (SymbolicInt, SymbolicFloat)):
        return number
    expr = to_expr(value)
    root = power(expr, Number(Fraction(1, 2))) if name == "sqrt" else Call(name, (expr,))
    return SymbolicFloat(number, root, value.watch)


def lose_numbers(plain_function: Callable[..., Any], *values: Any, **named: Any) -> Any:
    """A function that reads plain numbers; what symbolic ones carry is lost."""
    for value in (*values, *named.values()):
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(each, (SymbolicInt, SymbolicFloat)):
                each.watch.lose(to_expr(each))
    return plain_function(*map(plain, values), **named)


@contextmanager
def heard_numbers() -> Iterator[None]:
    """In here the functions of `math`, and `range`, hear which sizes they are given."""
    before = {name: act for name, act in vars(math).items() if callable(act)}
    for name, act in before.items():
        if name in _KEEPING:
            setattr(math, name, partial(take_function, name, plain_function=act))
        elif name not in _ASKING and not name.startswith("_"):
            setattr(math, name, partial(lose_numbers, act))
    counting = builtins.range
    builtins.range = HeardRange  # type: ignore[misc]
    try:
        yield
    finally:
        builtins.range = counting  # type: ignore[misc]
        for name, act in before.items():
            setattr(math, name, act)


_counting = range


class _RangeMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _counting)


class HeardRange(metaclass=_RangeMeta):
    """`range` while code is lifted: Python never asks a subclass of int for its plain number."""

    def __new__(cls, *bounds: Any) -> Any:
        """A plain range; sizes in its bounds count as lost."""
        for bound in bounds:
            if isinstance(bound, SymbolicInt):
                bound.watch.lose(to_expr(bound))
        return _counting(*map(plain, bounds))
