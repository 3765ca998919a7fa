"""The user's code: names of torch's functions, places of calls, and copies that keep sizes.

`q @ k` and `Tensor.__matmul__` have one name, `matmul`. The place of a call is its line and the
variable to which its result is assigned.

The code is run as a copy with its own globals, in which numbers keep the sizes they are made of:

    math.sqrt(D)  len(x)  float(D)  int(S)  np.sqrt(D)    keep the symbolic value
    1.0 / S                                               too: a literal calls the size's method
    math.gcd(S, 4)  range(H)                              read the plain number of a subclass of
                                                          int: the size becomes a number

The functions and classes of the user's file, and objects of these classes, are copied; the copies
read a copy of the file's globals. The user's objects, Python and torch are not changed.
"""

import builtins
import dis
import importlib
import inspect
import linecache
import math
import os
import sys
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from types import CellType, CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any

from derive.errors import Mark
from derive.frontend.torch.exprs import power
from derive.frontend.torch.numbers import SymbolicFloat, SymbolicInt, is_symbolic, plain, to_expr
from derive.ir import nodes as ir
from derive.libraries import NUMPY, torch

_OPERATORS = "add sub mul truediv div floordiv mod pow matmul and or xor"
_OTHERS = "neg abs eq ne lt le gt ge invert"
_NAMES = {
    "truediv": "div",
    "floordiv": "floor_divide",
    "mod": "remainder",
    **{name: f"bitwise_{name}" for name in ("and", "or", "xor")},
    "invert": "bitwise_not",
}
_COMMUTING = ("add", "mul", "bitwise_and", "bitwise_or", "bitwise_xor")
_DUNDERS = {f"__{word}__": _NAMES.get(word, word) for word in _OTHERS.split()}
for _word in _OPERATORS.split():
    _name = _NAMES.get(_word, _word)
    _DUNDERS[f"__{_word}__"], _DUNDERS[f"__i{_word}__"] = _name, f"{_name}_"
    _DUNDERS[f"__r{_word}__"] = _name if _name in _COMMUTING else f"r{_name}"
# a tensor has another method of that name, or the arguments in another order
_HOMONYMS = {"torch.nn.functional.unfold": "im2col", "torch.Tensor.where": "where_of_tensor"}


@lru_cache(maxsize=4096)
def name_of(function: Any) -> str:
    """The last part of a function's name in torch, `shape` for the getter of a property."""
    from torch.overrides import resolve_name

    whole = resolve_name(function) or ""
    own = getattr(function, "__name__", "") or ""
    parts = whole.split(".") if whole else [own]
    if parts[-1] in {"__get__", "__set__", "__delete__"}:
        name = parts[-2] if parts[-1] == "__get__" else f"{parts[-2]}:{parts[-1].strip('_')}"
    elif own in {"__get__", "__set__"}:
        owner = getattr(function, "__self__", None)
        name = getattr(owner, "__name__", own)
    else:
        name = parts[-1] if own in {"", parts[-1]} or own.startswith("__") else own
    return _HOMONYMS.get(whole) or _DUNDERS.get(name, name)


_STORES = {"STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR"}


@dataclass(frozen=True)
class Spot:
    """The place of a call in the user's code, and the variable to which its result is assigned."""

    path: str = ""
    line: int = 0
    name: str = ""
    site: int = 0
    op: str = ""


def find_spot(path: str, op: str, runner: CodeType) -> Spot:
    """Return the innermost place of the call in the user's code, or in the file `path` if given.

    Frames outside `runner`, which runs the code, belong to the caller of the lifter.
    """
    frame: FrameType | None = sys._getframe(1)
    found: FrameType | None = None
    while frame is not None and frame.f_code is not runner:
        file = frame.f_code.co_filename
        if found is None and not is_foreign(file):
            found = frame
        if path and file == path:
            found = frame
            break
        frame = frame.f_back
    if found is None:
        return Spot(op=op)
    name = _find_stores(found.f_code).get(found.f_lasti, "")
    return Spot(found.f_code.co_filename, found.f_lineno or 0, name, found.f_lasti, op)


@lru_cache(maxsize=512)
def _find_stores(code: CodeType) -> dict[int, str]:
    """Return the variable in which an instruction's result is stored, by the instruction's offsets.

    `f_lasti` is the end of the instruction while it runs a Python function, and its begin while
    it runs any other function.
    """
    found: dict[int, str] = {}
    begin = 0
    for instruction in dis.get_instructions(code):
        if instruction.opname in _STORES:
            name = str(instruction.argval)
            found |= dict.fromkeys(range(begin, instruction.offset), name)
        begin = instruction.offset
    return found


@lru_cache(maxsize=512)
def is_foreign(file: str) -> bool:
    """Whether a file belongs to torch, to Python, or to this package."""
    own = str(Path(__file__).resolve().parents[2])
    roots = (os.path.dirname(torch.__file__), own, sysconfig.get_paths()["stdlib"])
    if file.startswith("<frozen"):
        return True
    if os.sep + "site-packages" + os.sep in file:
        return file.startswith(roots[0])
    return any(os.path.abspath(file).startswith(root + os.sep) for root in roots)


def mark_spot(spot: Spot) -> list[Mark]:
    """Return a mark of the whole line of the code, if it can be read."""
    line = linecache.getline(spot.path, spot.line).rstrip("\n") if spot.line else ""
    text = line.strip()
    return [Mark(text, 0, len(text))] if text else []


_KEEPING = ("sqrt", "exp", "log", "sin", "cos", "tanh")
_ASKING = ("ceil", "floor", "trunc", "prod")  # functions that call the number's own methods


def keep_sizes(target: Any, path: str = "") -> Any:
    """Return a copy of a function, class or module whose numbers keep sizes; `path` is its file."""
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
    """The copies of the objects of one file, by their originals."""

    def __init__(self, names: dict[str, Any], path: str) -> None:
        self.path, self.home = path, names.get("__name__")
        self.made: list[tuple[Any, Any]] = []  # a list, since originals may be unhashable
        self.names = dict(names)
        found = [n for n in ("math", "numpy", NUMPY) if n in sys.modules]
        modules: dict[str, ModuleType] = {name: _open_module(name) for name in found}
        for name, module in modules.items():
            self.made.append((sys.modules[name], module))
            pairs = ((act, vars(module)[key]) for key, act in vars(sys.modules[name]).items())
            self.made += [(act, new) for act, new in pairs if act is not new]
        self.names["__builtins__"] = {
            **vars(builtins),
            "range": PlainRange,
            "__import__": lambda name, *rest, **named: (
                modules.get(name) or importlib.__import__(name, *rest, **named)
            ),
        }
        self.names |= {new: names.get(old, _BUILTINS[old]) for old, new in _RENAMED.items()}
        for name, value in names.items():
            if type(value) is float:
                self.names[name] = LiteralFloat(value)
            elif name != "__builtins__":
                self.names[name] = self.copy(value)

    def copy(self, value: Any) -> Any:
        """Return the copy of an object that the file defines, and any other object itself."""
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
        is_container = isinstance(value, torch.nn.Module) and bool(value._modules)
        return self._copy_object(value) if self._is_own(type(value)) or is_container else value

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
        if not changed:  # a foreign function whose closure has nothing of the user's
            self.made.remove((function, made))
            return function
        made.__defaults__, made.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
        if is_own:
            made.__defaults__ = made.__defaults__ and tuple(map(_keep_literal, made.__defaults__))
            others = made.__kwdefaults__ or {}
            made.__kwdefaults__ = {name: _keep_literal(each) for name, each in others.items()}
        made.__dict__.update({name: self.copy(v) for name, v in vars(function).items()})
        made.__qualname__, made.__module__ = function.__qualname__, function.__module__
        made.__doc__ = function.__doc__
        return made

    def _copy_class(self, kind: type) -> type:
        """Return a subclass with copies of the methods, or the class itself if it is final."""
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
            holds_parts = type(each) is dict and any(
                isinstance(part, torch.nn.Module) for part in each.values()
            )
            parts = {key: self.copy(part) for key, part in each.items()} if holds_parts else each
            made.__dict__[name] = self.copy(parts)
        return made


def _rewrite(code: CodeType) -> CodeType:
    """Return the code with LiteralFloat for its floats, and with its own names for `_BUILTINS`."""
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
    """A float literal of the code; with a symbolic operand, that operand's method computes."""

    __slots__ = ()


def _yield_to_sizes(name: str) -> Callable[[Any, Any], Any]:
    plain_method = getattr(float, name)

    def act(self: float, other: Any) -> Any:
        if is_symbolic(other):
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
    if len(given) != 1 or not is_symbolic(given[0]):
        return LiteralFloat(*given)
    return SymbolicFloat(float(plain(given[0])), to_expr(given[0]), given[0].watch)


def _to_int(*given: Any, **named: Any) -> int:
    is_size = len(given) == 1 and is_symbolic(given[0])
    return math.trunc(given[0]) if is_size else int(*given, **named)


_BUILTINS: dict[str, Callable[..., Any]] = {"len": _find_length, "float": _to_float, "int": _to_int}
_RENAMED = {name: f"_{name}_of_sizes" for name in _BUILTINS}


class _RangeMeta(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, range)


class PlainRange(metaclass=_RangeMeta):
    """`range` of plain numbers, since Python's own reads a subclass of int without a call."""

    def __new__(cls, *bounds: Any) -> Any:
        """Return a plain range; sizes in its bounds become numbers."""
        return _use_plainly(range, *bounds)


def _use_plainly(function: Callable[..., Any], *values: Any, **named: Any) -> Any:
    """Call a function that reads plain numbers; sizes in its arguments become numbers."""
    for value in (*values, *named.values()):
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if is_symbolic(each):
                each.watch.fix(to_expr(each))
    return function(*map(plain, values), **named)


def apply_to(name: str, function: Callable[..., Any], value: Any, *rest: Any, **named: Any) -> Any:
    """Apply a function such as `math.sqrt`; the result of a symbolic number is symbolic."""
    if rest or named:
        return _use_plainly(function, value, *rest, **named)
    if not is_symbolic(value):
        return function(value)
    expr = to_expr(value)
    root = power(expr, ir.Number(Fraction(1, 2))) if name == "sqrt" else ir.Call(name, (expr,))
    return SymbolicFloat(function(plain(value)), root, value.watch)


def _raise_to(act: Callable[..., Any], one: Any, two: Any) -> Any:
    return one**two if is_symbolic(one) or is_symbolic(two) else act(one, two)


def _open_module(name: str) -> ModuleType:
    """Return a copy of `math` or `numpy` whose functions keep sizes or turn them into numbers."""
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
