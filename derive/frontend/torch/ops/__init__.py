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


def find_op(name: str) -> Op | None:
    """Return the row of a function; None if it is unknown."""
    return _BY_NAME.get(name)
