"""The door of torch, which is loaded when something of it is first used: it takes seconds."""

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
            return getattr(import_module(self._name), name)

    torch = _Library("torch")
