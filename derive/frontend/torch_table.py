"""The table of ops: every function of torch that is lifted, by its name."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from derive.frontend.torch_call import Op

MODULES = ("views", "getitem", "index", "make", "math", "sums", "products", "nn", "writes")


@cache
def list_ops() -> tuple[Op, ...]:
    """All rows, module by module."""
    found: list[Op] = []
    for name in MODULES:
        if find_spec(f"derive.frontend.torch_ops_{name}"):
            found += import_module(f"derive.frontend.torch_ops_{name}").OPS
    return tuple(found)


@cache
def _by_name() -> dict[str, Op]:
    return {name: op for op in list_ops() for name in op.names.split()}


def find_op(name: str) -> Op | None:
    """The row of a function; None for one that is not known."""
    return _by_name().get(name)
