"""The name and the line of a call in the user's code; functions that keep sizes symbolic.

`q @ k` and `Tensor.__matmul__` have one name, `matmul`. The place of a call is its line and the
variable to which its result is assigned.

While the code runs, some functions are exchanged for functions that keep sizes:

    math.sqrt(D)  len(x)  np.sqrt(D)
"""

import dis
import inspect
import linecache
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

from derive.errors import Mark
from derive.frontend.torch.exprs import power
from derive.frontend.torch.numbers import SymbolicNumber, is_symbolic, plain, to_expr
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
# names of ops for torch functions that share a name with a method of other arguments
_HOMONYMS = {"torch.nn.functional.unfold": "im2col", "torch.Tensor.where": "where_of_tensor"}


@lru_cache(maxsize=4096)
def name_of(function: Any) -> str:
    """The name of a torch function in the table of ops: `matmul`, or `shape` for a property."""
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
    op: str = ""


def find_spot(path: str, op: str, runner: CodeType) -> Spot:
    """Return the current call's innermost line in `path`, else in any user's file; or no line.

    Frames outside `runner`, the function that runs the code, belong to the lifter's caller.
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
    return Spot(found.f_code.co_filename, found.f_lineno or 0, name, op)


@lru_cache(maxsize=512)
def _find_stores(code: CodeType) -> dict[int, str]:
    """Return the variable to which each instruction's result is assigned, by bytecode offset.

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
    """Return the mark of the whole line of the code; [] if it cannot be read."""
    line = linecache.getline(spot.path, spot.line).rstrip("\n") if spot.line else ""
    text = line.strip()
    return [Mark(text, 0, len(text))] if text else []


_KEEPING = ("sqrt", "exp", "log", "sin", "cos", "tanh")


@contextmanager
def keep_sizes(target: Any, path: str = "") -> Iterator[None]:
    """A context in which math.sqrt, np.exp, len and the like keep sizes symbolic in a function.

    `target` is the function or module; in a file other than `path`, if that is given, nothing is
    exchanged.
    """
    inner = inspect.unwrap(target) if callable(target) else target
    inner = getattr(inner, "forward", inner)
    inner = getattr(inner, "__func__", inner)
    file = getattr(getattr(inner, "__code__", None), "co_filename", "")
    names = getattr(inner, "__globals__", None)
    if names is None or is_foreign(file) or (path and file != path):
        yield
        return
    own = {"len": _find_length, **names}
    with ExitStack() as stack:
        for home in filter(None, map(sys.modules.get, ("math", "numpy", NUMPY))):
            acts = {name: vars(home)[name] for name in _KEEPING}
            new = {name: partial(_apply_to, name, act) for name, act in acts.items()}
            own |= {n: new[k] for n, value in names.items() for k in new if value is acts[k]}
            stack.enter_context(patch.dict(vars(home), new))
        stack.enter_context(patch.dict(names, own))
        yield


def _find_length(value: Any) -> int:
    shape: Any = getattr(value, "shape", None)
    known: Any = shape[0] if shape and hasattr(value, "new_empty") else None
    return known if is_symbolic(known) else len(value)


def _apply_to(name: str, function: Callable[..., Any], value: Any, *rest: Any, **named: Any) -> Any:
    """The result of a function such as `math.sqrt`, symbolic for a symbolic number."""
    if rest or named or not is_symbolic(value):
        return function(value, *rest, **named)
    expr = to_expr(value)
    root = power(expr, ir.Number(Fraction(1, 2))) if name == "sqrt" else ir.Call(name, (expr,))
    return SymbolicNumber(function(plain(value)), root, value.watch)
