"""Python's own numbers and functions of them while code is lifted: they hear the sizes they meet.

math.sqrt(D)  len(x)  float(D)  int(S)  np.sqrt(D)     keep what the size carries
1.0 / S                                                too: a literal of the code leaves
                                                       the work to the size
math.gcd(S, 4)  range(H)                               read a plain number out of a subclass of
                                                       int and tell nobody: the size is lost,
                                                       it becomes a number
"""

from __future__ import annotations

import builtins
import dis
import inspect
import math
import sys
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from functools import partial
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from derive.frontend.torch.exprs import power
from derive.frontend.torch.numbers import SymbolicFloat, SymbolicInt, plain, to_expr
from derive.ir.nodes import Call, Number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_KEEPING = ("sqrt", "exp", "log", "sin", "cos", "tanh")
_ASKING = ("ceil", "floor", "trunc", "prod")  # they call the number's own methods


def take_function(
    name: str, value: Any, *rest: Any, plain_function: Callable[..., Any], **named: Any
) -> Any:
    """`math.sqrt` and its like of a number; what a symbolic one carries goes on."""
    if rest or named:
        return lose_numbers(plain_function, value, *rest, **named)
    if not isinstance(value, (SymbolicInt, SymbolicFloat)):
        return plain_function(value)
    number = plain_function(plain(value))
    expr = to_expr(value)
    root = power(expr, Number(Fraction(1, 2))) if name == "sqrt" else Call(name, (expr,))
    return SymbolicFloat(number, root, value.watch)


def _raise_to(one: Any, two: Any, *, plain_function: Callable[..., Any]) -> Any:
    """`math.pow` of two numbers."""
    symbolic = isinstance(one, SymbolicInt | SymbolicFloat), isinstance(two, SymbolicInt)
    return one**two if any(symbolic) else plain_function(one, two)


def lose_numbers(plain_function: Callable[..., Any], *values: Any, **named: Any) -> Any:
    """A function that reads plain numbers; what symbolic ones carry is lost."""
    for value in (*values, *named.values()):
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(each, (SymbolicInt, SymbolicFloat)):
                each.watch.lose(to_expr(each))
    return plain_function(*map(plain, values), **named)


@contextmanager
def heard_numbers(function: Callable[..., Any]) -> Iterator[None]:
    """In here the function, and what its file defines, work with numbers that hear sizes."""
    inner: Any = inspect.unwrap(function)
    inner = getattr(inner, "forward", inner)
    inner = getattr(inner, "__func__", inner)
    names = getattr(inner, "__globals__", {})
    functions = _find_functions(inner, names)
    with ExitStack() as stack:
        for module in (math, sys.modules.get("numpy")):
            if isinstance(module, ModuleType):
                stack.enter_context(_heard_functions(vars(module), names))
        for each in functions:
            stack.enter_context(_heard_literals(each))
        numbers = {n: HeardFloat(value) for n, value in names.items() if type(value) is float}
        told = {new: names.get(old, _BUILTINS[old]) for old, new in _RENAMED.items()}
        stack.enter_context(_put_in(names, {**numbers, **told}))
        stack.enter_context(_put_in(vars(builtins), {"range": HeardRange}))
        yield


@contextmanager
def _put_in(names: dict[str, Any], new: dict[str, Any]) -> Iterator[None]:
    """In here the names have these values."""
    before = {name: names[name] for name in new if name in names}
    names.update(new)
    try:
        yield
    finally:
        for name in new:
            del names[name]
        names.update(before)


def _find_functions(function: Any, names: dict[str, Any]) -> list[FunctionType]:
    """The function and all others of its file that it may call."""
    path = getattr(getattr(function, "__code__", None), "co_filename", None)
    found: dict[FunctionType | type, None] = {}
    todo = [function, *names.values()]
    while todo:
        value = todo.pop()
        value = getattr(value, "__func__", getattr(value, "fget", value))
        if not isinstance(value, (FunctionType, type)) or value in found:
            continue
        if isinstance(value, type) and value.__module__ == names.get("__name__"):
            found[value] = None
            todo += vars(value).values()
        elif isinstance(value, FunctionType) and value.__code__.co_filename == path:
            found[value] = None
            todo += [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
            todo.append(getattr(value, "__wrapped__", None))
    return [each for each in found if isinstance(each, FunctionType)]


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


class HeardFloat(float):
    """A literal of the code: with a symbolic number it leaves the work to that one."""

    __slots__ = ()


def _yield_to_sizes(name: str) -> Callable[[Any, Any], Any]:
    plain_method = getattr(float, name)

    def act(self: float, other: Any) -> Any:
        if isinstance(other, (SymbolicInt, SymbolicFloat)):
            return NotImplemented
        found = plain_method(self, other)
        return HeardFloat(found) if type(found) is float else found

    return act


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    for _method in (f"__{_name}__", f"__r{_name}__"):
        setattr(HeardFloat, _method, _yield_to_sizes(_method))
for _method in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
    setattr(HeardFloat, _method, _yield_to_sizes(_method))
HeardFloat.__neg__ = lambda self: HeardFloat(float.__neg__(self))  # type: ignore[method-assign]
HeardFloat.__hash__ = float.__hash__  # type: ignore[method-assign]


@contextmanager
def _heard_literals(function: FunctionType) -> Iterator[None]:
    """In here the decimal numbers in a function's code hear sizes."""
    before = function.__code__, function.__defaults__, function.__kwdefaults__
    function.__code__ = _hear_code(before[0])
    function.__defaults__ = before[1] and tuple(map(_hear_literal, before[1]))
    function.__kwdefaults__ = before[2] and {n: _hear_literal(v) for n, v in before[2].items()}
    try:
        yield
    finally:
        function.__code__, function.__defaults__, function.__kwdefaults__ = before


def _hear_code(code: CodeType) -> CodeType:
    """The code with literals that hear sizes; builtins that it only calls go by other names."""
    others = {
        str(step.argval)
        for step in dis.get_instructions(code)
        if step.opname != "LOAD_GLOBAL" or step.arg is None or not step.arg & 1
    }
    return code.replace(
        co_consts=tuple(map(_hear_literal, code.co_consts)),
        co_names=tuple(n if n in others else _RENAMED.get(n, n) for n in code.co_names),
    )


def _hear_literal(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _hear_code(value)
    return HeardFloat(value) if type(value) is float else value


def _hear_length(value: Any) -> int:
    shape: Any = getattr(value, "shape", None)
    known = shape[0] if shape and hasattr(value, "new_empty") else None
    return known if isinstance(known, SymbolicInt) else len(value)


def _hear_float(*given: Any) -> float:
    if len(given) == 1 and isinstance(given[0], SymbolicInt):
        return SymbolicFloat(float(plain(given[0])), to_expr(given[0]), given[0].watch)
    if len(given) == 1 and isinstance(given[0], SymbolicFloat):
        return given[0]
    return HeardFloat(*given)


def _hear_int(*given: Any, **named: Any) -> int:
    if len(given) == 1 and isinstance(given[0], (SymbolicInt, SymbolicFloat)):
        return math.trunc(given[0])
    return int(*given, **named)


_BUILTINS: dict[str, Callable[..., Any]] = {
    "len": _hear_length,
    "float": _hear_float,
    "int": _hear_int,
}
_RENAMED = {name: f"_heard_{name}" for name in _BUILTINS}


@contextmanager
def _heard_functions(home: dict[str, Any], names: dict[str, Any]) -> Iterator[None]:
    """In here the functions of a module hear sizes, also where the user's file took them out."""
    is_math = home is vars(math)
    before = {n: act for n, act in home.items() if callable(act) and (is_math or n in _KEEPING)}
    heard = {name: _hear(name, act) for name, act in before.items()}
    taken = {name: act for name, act in names.items() if _is_of(act, before)}
    with _put_in(home, heard), _put_in(names, {n: heard[a.__name__] for n, a in taken.items()}):
        yield


def _hear(name: str, act: Callable[..., Any]) -> Callable[..., Any]:
    if name in _KEEPING:
        return partial(take_function, name, plain_function=act)
    if name == "pow":
        return partial(_raise_to, plain_function=act)
    return act if name in _ASKING or name.startswith("_") else partial(lose_numbers, act)


def _is_of(value: Any, home: dict[str, Any]) -> bool:
    known = isinstance(value, BuiltinFunctionType) or type(value).__name__ == "ufunc"
    return known and home.get(value.__name__) is value


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
