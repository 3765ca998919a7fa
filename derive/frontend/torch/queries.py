"""Questions that code asks a tensor and whose answer is no tensor: its sizes, and its values.

Sizes are answered with numbers that know their names. A value of the data is no constant: code
that branches on one, or reads one out, is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from derive.frontend.torch.names import name_of
from derive.frontend.torch.numbers import SymbolicFloat, make_int
from derive.frontend.torch.shadow import Shadow
from derive.frontend.torch.trace import PoisonedError
from derive.ir.nodes import Access, Expr, Index, Number, Scalar, Size, Truth
from derive.ir.polynomial import Polynomial
from derive.ir.walk import walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from derive.frontend.torch.trace import Trace

_SIZES = frozenset(["shape", "size", "numel", "nelement", "stride", "__len__", "dim_size"])
_VALUES = frozenset(
    [
        "item",
        "__bool__",
        "__float__",
        "__int__",
        "__index__",
        "tolist",
        "numpy",
        "__array__",
        "is_nonzero",
        "equal",
        "allclose",
        "__contains__",
        "__complex__",
        "data:set",
        "set_",
        "is_same_size_as",
    ]
)


def is_query(name: str) -> bool:
    """Is the answer a size or a value, and no tensor?"""
    return name in _SIZES or name in _VALUES


def answer_query(
    trace: Trace, function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """The answer; a size knows its name."""
    tensor, name = args[0], name_of(function)
    out = function(*args, **named)
    if not trace.is_tied(tensor):
        return out
    if name in _SIZES:
        asked = named.get("dim", args[1] if len(args) > 1 else None)
        try:
            return _answer_size(trace, name, tensor, asked)
        except PoisonedError:
            return out
    return _answer_value(trace, name, tensor, out)


def _answer_size(trace: Trace, name: str, tensor: Any, asked: Any) -> Any:
    import torch

    shadow = trace.shadow(tensor)
    lengths = tuple(trace.to_int(extent) for extent in shadow.shape)
    if name in {"numel", "nelement"}:
        return _multiply(trace, shadow, 0)
    if name == "__len__":
        trace.watch.lose(shadow.shape[0])  # `len(x)` hands a plain number on
        return lengths[0]
    if name == "stride":
        if not tensor.is_contiguous():
            trace.watch.lose(*shadow.shape)
            return tensor.stride() if asked is None else tensor.stride(asked)
        lengths = tuple(_multiply(trace, shadow, k + 1) for k in range(shadow.rank))
        return lengths if asked is None else lengths[asked]
    return torch.Size(lengths) if asked is None or name == "shape" else lengths[asked]


def _multiply(trace: Trace, shadow: Shadow, first: int) -> int:
    form = Polynomial.of(1)
    number = 1
    for extent in shadow.shape[first:]:
        form = form * Polynomial.of(extent)
        number *= trace.number(extent)
    return make_int(number, form, trace.watch)


def _answer_value(trace: Trace, name: str, tensor: Any, out: Any) -> Any:
    """A value that depends on no data: a size, a scalar, or a condition that is decided."""
    try:
        shadow = trace.shadow(tensor)
    except PoisonedError as error:
        raise _fail(trace, error.error) from None
    value = trace.read(shadow, shadow.letters) if not shadow.rank else None
    if isinstance(value, (Number, Truth)):
        return out
    if value is not None and not _is_data(value):
        if name == "item" and shadow.kind == "real":
            return SymbolicFloat(out, value, trace.watch)
        if name == "item" and shadow.kind == "int":
            return make_int(out, Polynomial.of(value), trace.watch)
        trace.watch.lose(value)
        return out
    if shadow.rank and shadow.kind != "bool" and name in {"tolist", "numpy", "__array__"}:
        inside = trace.read(shadow, shadow.letters)
        if not _is_data(inside):  # positions or constants: numbers that hold in this run
            trace.watch.lose(*shadow.shape, inside)
            return out
    raise _fail(
        trace,
        trace.refuse(
            "lift-branch",
            f"{name.strip('_')} takes a number out of the data",
            help="a formula has no branches over data: use torch.where, or give it as an argument",
        ),
    )


def _fail(trace: Trace, error: Exception) -> Exception:
    trace.failed = trace.failed or error
    return error


def _is_data(value: Expr) -> bool:
    return any(
        isinstance(part, Access) or (isinstance(part, Index) and not _is_known(part))
        for part in walk(value)
        if not isinstance(part, (Size, Scalar))
    )


def _is_known(index: Index) -> bool:
    return "~" in index.name
