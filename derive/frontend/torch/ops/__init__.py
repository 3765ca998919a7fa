"""What each torch operation means, one file a family; each row carries its examples."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from derive.frontend.torch.ops import index, make, math, nn, products, sums, views, windows

if TYPE_CHECKING:
    from derive.frontend.torch.call import Op

OPS: tuple[Op, ...] = (
    *views.OPS,
    *index.OPS,
    *make.OPS,
    *math.OPS,
    *sums.OPS,
    *products.OPS,
    *nn.OPS,
    *windows.OPS,
)


@cache
def _list_names() -> dict[str, Op]:
    return {name: op for op in OPS for name in op.names.split()}


def find_op(name: str) -> Op | None:
    """The row of a function; None for one that is not known."""
    return _list_names().get(name)
