"""The user's code: names of torch's functions, places of calls, and numbers that keep sizes.

`q @ k` and `Tensor.__matmul__` have one name, `matmul`. The place of a call is its line and the
variable to which its result is assigned.

While the code runs, numbers keep the sizes they are made of:

    math.sqrt(D)  len(x)  float(D)  int(S)  np.sqrt(D)    keep the symbolic value
    1.0 / S                                               too: a literal calls the size's method
    math.gcd(S, 4)  range(H)                              read the plain number of a subclass of
                                                          int: the size becomes a number

For this the functions of the file, its globals, `math` and `numpy` are changed, and changed back
afterwards.
"""

import dis
import inspect
import linecache
import math
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType, MethodType
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


@contextmanager
def keep_sizes(target: Any, path: str = "") -> Iterator[None]:
    """Let the numbers of the file of a function, class or module keep sizes; `path` is the file."""
    inner = inspect.unwrap(target) if callable(target) else target
    inner = getattr(inner, "forward", inner)
    inner = getattr(inner, "__func__", inner)
    file = getattr(getattr(inner, "__code__", None), "co_filename", "")
    names = getattr(inner, "__globals__", None)
    if names is None or is_foreign(file) or (path and file != path):
        yield
        return
    changes = [*_find_changes(names)]
    known = [(home, name, home.get(name, _ABSENT)) for home, name, _ in changes]
    functions = _find_functions([target, inner, *names.values()], names.get("__name__"), file)
    parts = [(each, each.__code__, each.__defaults__, each.__kwdefaults__) for each in functions]
    try:
        for home, name, new in changes:
            home[name] = new
        for each, code, defaults, named in parts:
            each.__code__ = _rewrite(code)
            each.__defaults__ = defaults and tuple(map(_keep_literal, defaults))
            each.__kwdefaults__ = named and {n: _keep_literal(value) for n, value in named.items()}
        yield
    finally:
        for each, code, defaults, named in parts:
            each.__code__, each.__defaults__, each.__kwdefaults__ = code, defaults, named
        for home, name, old in known:
            if old is _ABSENT:
                del home[name]
            else:
                home[name] = old


def _find_changes(names: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Yield (namespace, name, value) for `math`, `numpy`, and the globals of the file."""
    made: list[tuple[Any, Any]] = []
    for module in ("math", "numpy", NUMPY):
        home = vars(sys.modules[module]) if module in sys.modules else {}
        for name, act in home.items():
            new = _keep_size(module, name, act)
            if new is not act:
                made.append((act, new))
                yield home, name, new
    for name, value in names.items():
        new = next((new for act, new in made if act is value), value)
        new = LiteralFloat(new) if type(new) is float and name != "__builtins__" else new
        if new is not value:
            yield names, name, new
    for old, name in _RENAMED.items():
        yield names, name, names.get(old, _BUILTINS[old])


def _find_functions(values: Iterable[Any], home: str | None, file: str) -> list[FunctionType]:
    """Return the functions of a file that these values are or hold."""
    found, seen, todo = list[FunctionType](), list[Any](), list(values)
    while todo:
        value = todo.pop()
        if isinstance(value, FunctionType | type) and any(value is each for each in seen):
            continue
        match value:
            case FunctionType():
                seen.append(value)
                if value.__code__.co_filename == file:
                    found.append(value)
                for cell in value.__closure__ or ():
                    with suppress(ValueError):  # a cell that is not filled yet
                        todo.append(cell.cell_contents)
                todo += vars(value).values()
            case MethodType():
                todo += value.__func__, value.__self__
            case staticmethod() | classmethod():
                todo.append(value.__func__)
            case property():
                todo += value.fget, value.fset, value.fdel
            case partial():
                todo.append(value.func)
            case type() if value.__module__ == home:
                seen.append(value)
                todo += (each for base in value.__mro__ for each in vars(base).values())
            case torch.nn.Module():
                todo += map(type, value.modules())
            case _ if type(value).__module__ == home:
                todo.append(type(value))
    return found


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


def _keep_size(module: str, name: str, act: Any) -> Any:
    """Return a function of `math` or `numpy` that keeps sizes, or turns them into numbers."""
    if name in _KEEPING:
        return partial(apply_to, name, act)
    if module != "math" or not callable(act) or name in _ASKING or name.startswith("_"):
        return act
    return partial(_raise_to if name == "pow" else _use_plainly, act)


_BUILTINS: dict[str, Callable[..., Any]] = {"len": _find_length, "float": _to_float, "int": _to_int}
_BUILTINS["range"] = partial(_use_plainly, range)
_RENAMED = {name: f"_{name}_of_sizes" for name in _BUILTINS}
_ABSENT = object()
