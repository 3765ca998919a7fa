"""The one name of a torch function: `q @ k`, `torch.bmm` and `Tensor.__matmul__` are told alike."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

_DUNDERS = {
    "__iadd__": "add_",
    "__isub__": "sub_",
    "__imul__": "mul_",
    "__itruediv__": "div_",
    "__idiv__": "div_",
    "__ifloordiv__": "floor_divide_",
    "__ipow__": "pow_",
    "__iand__": "bitwise_and_",
    "__ior__": "bitwise_or_",
    "__ixor__": "bitwise_xor_",
    "__add__": "add",
    "__sub__": "sub",
    "__mul__": "mul",
    "__truediv__": "div",
    "__div__": "div",
    "__floordiv__": "floor_divide",
    "__mod__": "remainder",
    "__pow__": "pow",
    "__matmul__": "matmul",
    "__and__": "bitwise_and",
    "__or__": "bitwise_or",
    "__xor__": "bitwise_xor",
    "__radd__": "add",
    "__rmul__": "mul",
    "__rand__": "bitwise_and",
    "__ror__": "bitwise_or",
    "__rsub__": "rsub",
    "__rtruediv__": "rdiv",
    "__rdiv__": "rdiv",
    "__rfloordiv__": "rfloor_divide",
    "__rmod__": "rremainder",
    "__rpow__": "rpow",
    "__rmatmul__": "rmatmul",
    "__invert__": "bitwise_not",
    "__neg__": "neg",
    "__abs__": "abs",
    "__eq__": "eq",
    "__ne__": "ne",
    "__lt__": "lt",
    "__le__": "le",
    "__gt__": "gt",
    "__ge__": "ge",
}


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
    return _DUNDERS.get(name, name)
