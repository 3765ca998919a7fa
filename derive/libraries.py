"""The door of torch, which is loaded when something of it is first used: it takes seconds."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch as torch  # noqa: PLC0414 - whoever reads it here gets its types
else:

    class _Library:
        """A library by its name; what is read of it is read of the library at that time."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, name: str) -> Any:
            return getattr(sys.modules.get(self._name) or import_module(self._name), name)

    torch = _Library("torch")


@contextmanager
def by_default(dtype: Any) -> Iterator[None]:
    """Floats for which no type is asked are of this type in here."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def make_mode(act: Callable[[Any, Any, Any], Any]) -> Any:
    """A mode of torch in which `act`, of a function and its arguments, makes each call."""
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return act(function, args, dict(kwargs or {}))

    return Mode()
