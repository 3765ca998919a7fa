"""The table of torch operations: in each file, functions under `@op(..)`, and the list ROWS."""

from derive.frontend.torch.call import Op
from derive.frontend.torch.ops import arithmetic, composites, nn, views, windows

OPS: tuple[Op, ...] = tuple(
    row
    for family in (views, arithmetic, windows, composites, nn)
    for row in (*vars(family).values(), *getattr(family, "ROWS", ()))
    if isinstance(row, Op)
)

_BY_NAME = {name: op for op in OPS for name in op.names.split()}


def find_op(name: str) -> tuple[Op | None, bool]:
    """Return (row of a torch function, None if unknown; whether it is in place, as `add_`)."""
    is_in_place = name.endswith("_") and name not in _BY_NAME
    return _BY_NAME.get(name[:-1] if is_in_place else name), is_in_place
