"""Somebody's code over names of its own, in which numbers keep the sizes that go into them.

    math.sqrt(D)  len(x)  float(D)  int(S)  np.sqrt(D)    keep what the size carries
    1.0 / S                                               too: a literal leaves it to the size
    math.gcd(S, 4)  range(H)                              read a plain number out of a subclass of
                                                          int: the size becomes a number

The functions and classes of the user's file, and objects of these classes, are copied; the copies
read a copy of the file's names. Nothing of the user's, of Python's or of torch's is changed.
"""

from __future__ import annotations

import builtins
import dis
import importlib
import inspect
import math
import sys
from contextlib import suppress
from fractions import Fraction
from functools import partial
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from derive.frontend.torch.exprs import power
from derive.frontend.torch.numbers import SymbolicFloat, SymbolicInt, plain, to_expr
from derive.frontend.torch.spots import is_foreign
from derive.ir import nodes as ir

if TYPE_CHECKING:
    from collections.abc import Callable

_KEEPING = ("sqrt", "exp", "log", "sin", "cos", "tanh")
_ASKING = ("ceil", "floor", "trunc", "prod")  # they call the number's own methods


def keep_sizes(target: Any, path: str = "") -> Any:
    """A copy of a function, class or module, whose numbers keep sizes; `path` is its file."""
    inner = inspect.unwrap(target) if callable(target) else target
    inner = getattr(inner, "forward", inner)
    inner = getattr(inner, "__func__", inner)
    code = getattr(inner, "__code__", None)
    names = getattr(inner, "__globals__", None)
    file = code.co_filename if code is not None else ""
    if names is None or is_foreign(file) or (path and file != path):
        return target
    return _Copies(names, file).copy(target)


class _Copies:
    """The copies that were made, by what they are copies of."""

    def __init__(self, names: dict[str, Any], path: str) -> None:
        self.path, self.home = path, names.get("__name__")
        self.made: list[tuple[Any, Any]] = []  # what is copied may have no hash
        self.names = dict(names)
        found = [name for name in ("math", "numpy") if name in sys.modules]
        modules: dict[str, ModuleType] = {name: _open_module(name) for name in found}
        for name, module in modules.items():
            self.made.append((sys.modules[name], module))
            pairs = ((act, vars(module)[key]) for key, act in vars(sys.modules[name]).items())
            self.made += [(act, new) for act, new in pairs if act is not new]
        self.names["__builtins__"] = {
            **vars(builtins),
            "range": PlainRange,
            "__import__": partial(_import, modules),
        }
        self.names |= {new: names.get(old, _BUILTINS[old]) for old, new in _RENAMED.items()}
        for name, value in names.items():
            if type(value) is float:
                self.names[name] = LiteralFloat(value)
            elif name != "__builtins__":
                self.names[name] = self.copy(value)

    def copy(self, value: Any) -> Any:
        """The copy of what the file defines; all else is itself."""
        for known, made in self.made:
            if known is value:
                return made
        match value:
            case FunctionType():
                return self._copy_function(value)
            case MethodType():
                return MethodType(self.copy(value.__func__), self.copy(value.__self__))
            case staticmethod() | classmethod():
                return type(value)(self.copy(value.__func__))
            case property():
                get, set_, delete = map(self.copy, (value.fget, value.fset, value.fdel))
                return property(get, set_, delete, value.__doc__)
            case partial():
                return partial(self.copy(value.func), *value.args, **value.keywords)
            case type() if self._is_own(value):
                return self._copy_class(value)
        if self._is_own(type(value)) or _is_container(value):
            return self._copy_object(value)
        return value

    def _is_own(self, kind: type) -> bool:
        return kind.__module__ == self.home and not hasattr(kind, "__slots__")

    def _copy_function(self, function: FunctionType) -> FunctionType:
        is_own = function.__code__.co_filename == self.path
        code = _rewrite(function.__code__) if is_own else function.__code__
        cells = tuple(CellType() for _ in function.__closure__ or ())
        names = self.names if is_own else function.__globals__
        made = FunctionType(code, names, function.__name__, None, cells or None)
        self.made.append((function, made))
        changed = is_own
        named = function.__code__.co_freevars
        for name, cell, old in zip(named, cells, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # a cell that is not filled yet
                # `super()` goes on from the class itself, which the copy inherits from.
                is_class = name == "__class__"
                cell.cell_contents = old.cell_contents if is_class else self.copy(old.cell_contents)
                changed |= cell.cell_contents is not old.cell_contents
        if not changed:  # somebody else's, and it holds nothing of the user's
            self.made.remove((function, made))
            return function
        keep = _keep_literal if is_own else _keep_as_it_is
        made.__defaults__ = function.__defaults__ and tuple(map(keep, function.__defaults__))
        defaults = function.__kwdefaults__
        made.__kwdefaults__ = defaults and {name: keep(each) for name, each in defaults.items()}
        made.__dict__.update({name: self.copy(v) for name, v in vars(function).items()})
        made.__qualname__, made.__module__ = function.__qualname__, function.__module__
        made.__doc__ = function.__doc__
        return made

    def _copy_class(self, kind: type) -> type:
        """A subclass with copies of the methods; the class itself where it lets nobody inherit."""
        try:
            made = type(kind)(kind.__name__, (kind,), {"__module__": kind.__module__})
        except TypeError:
            return kind
        self.made.append((kind, made))
        for base in filter(self._is_own, kind.__mro__):
            for name, value in vars(base).items():
                is_method = isinstance(value, FunctionType | staticmethod | classmethod | property)
                if is_method and inspect.getattr_static(kind, name) is value:
                    setattr(made, name, self.copy(value))
        return made

    def _copy_object(self, value: Any) -> Any:
        try:
            made = object.__new__(self.copy(type(value)))
            own = vars(value)
        except TypeError:  # an object that only its own class can make
            return value
        self.made.append((value, made))
        for name, each in own.items():
            parts = (
                {key: self.copy(part) for key, part in each.items()} if _is_parts(each) else each
            )
            made.__dict__[name] = self.copy(parts)
        return made


def _keep_as_it_is(value: Any) -> Any:
    return value


def _is_container(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module) and bool(value._modules)


def _is_parts(value: Any) -> bool:
    """Is it the dictionary in which a module holds its parts?"""
    torch = sys.modules.get("torch")
    return (
        torch is not None
        and type(value) is dict
        and any(isinstance(part, torch.nn.Module) for part in value.values())
    )


def _rewrite(code: CodeType) -> CodeType:
    """The code with literals that yield to sizes; builtins that it only calls by other names."""
    others = {
        str(step.argval)
        for step in dis.get_instructions(code)
        if step.opname != "LOAD_GLOBAL" or step.arg is None or not step.arg & 1
    }
    return code.replace(
        co_consts=tuple(map(_keep_literal, code.co_consts)),
        co_names=tuple(n if n in others else _RENAMED.get(n, n) for n in code.co_names),
    )


def _keep_literal(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _rewrite(value)
    return LiteralFloat(value) if type(value) is float else value


class LiteralFloat(float):
    """A literal of the code: with a symbolic number it leaves the work to that one."""

    __slots__ = ()


def _yield_to_sizes(name: str) -> Callable[[Any, Any], Any]:
    plain_method = getattr(float, name)

    def act(self: float, other: Any) -> Any:
        if isinstance(other, (SymbolicInt, SymbolicFloat)):
            return NotImplemented
        found = plain_method(self, other)
        return LiteralFloat(found) if type(found) is float else found

    return act


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    for _method in (f"__{_name}__", f"__r{_name}__"):
        setattr(LiteralFloat, _method, _yield_to_sizes(_method))
for _method in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
    setattr(LiteralFloat, _method, _yield_to_sizes(_method))
LiteralFloat.__neg__ = lambda self: LiteralFloat(float.__neg__(self))  # type: ignore[method-assign]
LiteralFloat.__hash__ = float.__hash__  # type: ignore[method-assign]


def _find_length(value: Any) -> int:
    shape: Any = getattr(value, "shape", None)
    known = shape[0] if shape and hasattr(value, "new_empty") else None
    return known if isinstance(known, SymbolicInt) else len(value)


def _to_float(*given: Any) -> float:
    if len(given) == 1 and isinstance(given[0], SymbolicInt):
        return SymbolicFloat(float(plain(given[0])), to_expr(given[0]), given[0].watch)
    if len(given) == 1 and isinstance(given[0], SymbolicFloat):
        return given[0]
    return LiteralFloat(*given)


def _to_int(*given: Any, **named: Any) -> int:
    if len(given) == 1 and isinstance(given[0], (SymbolicInt, SymbolicFloat)):
        return math.trunc(given[0])
    return int(*given, **named)


_BUILTINS: dict[str, Callable[..., Any]] = {"len": _find_length, "float": _to_float, "int": _to_int}
_RENAMED = {name: f"_{name}_of_sizes" for name in _BUILTINS}


class _RangeMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, range)


class PlainRange(metaclass=_RangeMeta):
    """`range` of plain numbers: Python never asks a subclass of int for its plain number."""

    def __new__(cls, *bounds: Any) -> Any:
        """A plain range; sizes in its bounds become numbers."""
        return _use_plainly(range, *bounds)


def _use_plainly(function: Callable[..., Any], *values: Any, **named: Any) -> Any:
    """A function that reads plain numbers: sizes in them become numbers."""
    for value in (*values, *named.values()):
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(each, (SymbolicInt, SymbolicFloat)):
                each.watch.fix(to_expr(each))
    return function(*map(plain, values), **named)


def apply_to(name: str, function: Callable[..., Any], value: Any, *rest: Any, **named: Any) -> Any:
    """`math.sqrt` and its like of a number; what a symbolic one carries goes on."""
    if rest or named:
        return _use_plainly(function, value, *rest, **named)
    if not isinstance(value, (SymbolicInt, SymbolicFloat)):
        return function(value)
    expr = to_expr(value)
    root = power(expr, ir.Number(Fraction(1, 2))) if name == "sqrt" else ir.Call(name, (expr,))
    return SymbolicFloat(function(plain(value)), root, value.watch)


def _raise_to(function: Callable[..., Any], one: Any, two: Any) -> Any:
    """`math.pow` of two numbers."""
    is_symbolic = isinstance(one, SymbolicInt | SymbolicFloat) or isinstance(two, SymbolicInt)
    return one**two if is_symbolic else function(one, two)


def _open_module(name: str) -> ModuleType:
    """`math` or `numpy` with functions that keep sizes, or make numbers of them."""
    home = vars(sys.modules[name])
    found = ModuleType(name)
    vars(found).update(home)
    for key, act in home.items():
        if key in _KEEPING:
            setattr(found, key, partial(apply_to, key, act))
        elif name == "math" and key == "pow":
            setattr(found, key, partial(_raise_to, act))
        elif name == "math" and callable(act) and key not in _ASKING and not key.startswith("_"):
            setattr(found, key, partial(_use_plainly, act))
    return found


def _import(modules: dict[str, ModuleType], name: str, *rest: Any, **named: Any) -> Any:
    return modules.get(name) or importlib.__import__(name, *rest, **named)
