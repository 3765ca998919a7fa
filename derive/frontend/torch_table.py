"""The table of ops: every function of torch that is lifted, by its name."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from derive.frontend import (
    torch_ops_getitem,
    torch_ops_index,
    torch_ops_losses,
    torch_ops_make,
    torch_ops_math,
    torch_ops_nn,
    torch_ops_parts,
    torch_ops_products,
    torch_ops_shapes,
    torch_ops_sums,
    torch_ops_views,
    torch_ops_writes,
)

if TYPE_CHECKING:
    from derive.frontend.torch_call import Op

OPS: tuple[Op, ...] = (
    *torch_ops_views.OPS,
    *torch_ops_shapes.OPS,
    *torch_ops_parts.OPS,
    *torch_ops_getitem.OPS,
    *torch_ops_index.OPS,
    *torch_ops_make.OPS,
    *torch_ops_math.OPS,
    *torch_ops_sums.OPS,
    *torch_ops_products.OPS,
    *torch_ops_nn.OPS,
    *torch_ops_losses.OPS,
    *torch_ops_writes.OPS,
)


@cache
def _list_names() -> dict[str, Op]:
    return {name: op for op in OPS for name in op.names.split()}


def find_op(name: str) -> Op | None:
    """The row of a function; None for one that is not known."""
    return _list_names().get(name)
