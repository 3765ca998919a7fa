"""Functions that torch writes in Python, opened: their own calls are seen in their place.

A `torch.nn.functional` function hands itself to the mode as a whole while it finds one in force.
With that question answered by no, its body runs, and every call in it comes to the mode.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_QUESTIONS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


def is_open(function: Any) -> bool:
    """Is it one of the functions with a body in Python?"""
    code = getattr(function, "__code__", None)
    module = getattr(function, "__module__", "") or ""
    return code is not None and module in {
        "torch.nn.functional",
        "torch.functional",
        "torch._tensor",
    }


@contextmanager
def open_functional() -> Iterator[None]:
    """In here no function of torch's hands itself over as a whole."""
    import torch

    homes = (torch.nn.functional, torch.functional, torch._tensor)
    before = [
        (home, name, getattr(home, name))
        for home in homes
        for name in _QUESTIONS
        if hasattr(home, name)
    ]
    for home, name, _ in before:
        setattr(home, name, _answer_no)
    try:
        yield
    finally:
        for home, name, old in before:
            setattr(home, name, old)


def _answer_no(*tensors: Any) -> bool:
    return False
