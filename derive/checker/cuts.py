"""Where a gradient ends: calls that take values with a gradient and give values without one."""

from __future__ import annotations

import sys
from typing import Any

from derive.frontend.torch.memory import find_tensors
from derive.frontend.torch.spots import name_of

_READING = frozenset(["item", "tolist", "numpy", "__array__", "__float__"])


def make_watch(path: str) -> Any:
    """A mode whose `cuts` are the lines of the user's file and the calls that end a gradient."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Watch(TorchFunctionMode):
        def __init__(self) -> None:
            super().__init__()
            self.cuts: dict[tuple[int, str], None] = {}

        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            given = [*find_tensors(args), *find_tensors(list((kwargs or {}).values()))]
            held = any(each.requires_grad for each in given)
            found = function(*args, **(kwargs or {}))
            name = name_of(function)
            if held and not name.endswith("_like") and not name.startswith("new_"):
                reals = [each for each in find_tensors(found) if each.is_floating_point()]
                lost = bool(reals) and not any(each.requires_grad for each in reals)
                if lost or name in _READING:
                    self.cuts[
                        find_line_now(path) or 0, name if torch.is_grad_enabled() else "no_grad"
                    ] = None
            return found

    return Watch()


def find_line_now(path: str) -> int | None:
    """The line of the innermost frame that is in the user's file."""
    frame: Any = sys._getframe()
    while frame is not None and frame.f_code.co_filename != path:
        frame = frame.f_back
    return None if frame is None else int(frame.f_lineno)
