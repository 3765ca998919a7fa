"""The table of torch operations: a file for each family, examples in each row."""

from derive.frontend.torch.call import Op
from derive.frontend.torch.ops import arithmetic, composites, nn, views, windows

OPS: tuple[Op, ...] = (
    *(
        each
        for home in (views, arithmetic, windows)
        for each in vars(home).values()
        if isinstance(each, Op)
    ),
    *arithmetic.ROWS,
    *windows.ROWS,
    *composites.OPS,
    *nn.OPS,
)


_BY_NAME = {name: op for op in OPS for name in op.names.split()}


def find_op(name: str) -> tuple[Op | None, bool]:
    """Return the row of a function, None if it is unknown, and whether it runs in place: `add_`."""
    is_in_place = name.endswith("_") and name not in _BY_NAME
    return _BY_NAME.get(name[:-1] if is_in_place else name), is_in_place
