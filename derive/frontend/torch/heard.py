"""Python's own functions of numbers while code is lifted: they hear which sizes they are given.

`math.sqrt(D)` keeps what the size carries; for `math.gcd(S, 4)` and `range(H)`, which read a plain
number out of a subclass of int and tell nobody, the size counts as lost: it becomes a number.
"""

from __future__ import annotations

import builtins
import inspect
import math
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

from derive.frontend.torch.exprs import power
from derive.frontend.torch.numbers import SymbolicFloat, SymbolicInt, plain, to_expr
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


def find_globals(function: Callable[..., Any]) -> dict[str, Any]:
    """The names that a function's file has: of a module, those of its `forward`."""
    inner: Any = inspect.unwrap(function)
    inner = getattr(inner, "forward", inner)
    found: dict[str, Any] = getattr(getattr(inner, "__func__", inner), "__globals__", {})
    return found


@contextmanager
def heard_numbers(names: dict[str, Any]) -> Iterator[None]:
    """In here `range` and the functions of `math` hear which sizes they are given.

    `names` are those of the user's file, which may have taken functions out of `math`.
    """
    before = {name: act for name, act in vars(math).items() if callable(act)}
    heard = {name: _hear(name, act) for name, act in before.items()}
    taken = {name: act for name, act in names.items() if _is_of_math(act, before)}
    vars(math).update(heard)
    names.update({name: heard[act.__name__] for name, act in taken.items()})
    counting = builtins.range
    builtins.range = HeardRange  # type: ignore[misc]
    try:
        yield
    finally:
        builtins.range = counting  # type: ignore[misc]
        vars(math).update(before)
        names.update(taken)


def _hear(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
    if name in _KEEPING:
        return partial(take_function, name, plain_function=act)
    return act if name in _ASKING or name.startswith("_") else partial(lose_numbers, act)


def _is_of_math(value: Any, before: dict[str, Any]) -> bool:
    return isinstance(value, BuiltinFunctionType) and before.get(value.__name__) is value


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
