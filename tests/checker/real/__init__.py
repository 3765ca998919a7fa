"""Modules that others wrote, each with a formula of ours for what it computes.

A `Real` says how the module is made, which of its arguments and parameters is which tensor of the
formula, and at which small sizes. Its mistakes are edits of the formula that a reader could make;
the module must not be taken for any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch

ROOMS = ("torch_attention", "torch_layers", "torch_cells", "bert", "gpt2", "t5", "llama", "swin")


@dataclass(frozen=True)
class Real:
    """A module or function, the formula that it should compute, and mistakes in that formula."""

    name: str
    make: Callable[[], Any]
    text: str
    bind: str
    sizes: Mapping[str, int]
    mistakes: tuple[tuple[str, str], ...]  # a part of the formula's text, and what is put there
    empty_row: str = "nan"
    free: str = field(default="B S", kw_only=True)  # sizes that the module is not made for
    single: bool = field(default=False, kw_only=True)  # it computes in float32 along the way

    def __str__(self) -> str:
        return self.name

    @property
    def fixed(self) -> dict[str, int]:
        """The sizes that the module is made for."""
        return {name: size for name, size in self.sizes.items() if name not in self.free.split()}

    def plant(self, mistake: tuple[str, str]) -> str:
        """The formula's text with a mistake in it."""
        right, wrong = mistake
        assert self.text.count(right) == 1, f"{self.name}: {right!r} is not there once"
        return self.text.replace(right, wrong)


def load_reals() -> tuple[Real, ...]:
    """All of them; a library that is not installed is an ImportError when a module is made."""
    return tuple(real for room in ROOMS for real in import_module(f"real.{room}").REALS)


def read_binds(bind: str) -> Iterator[tuple[str, str]]:
    """The names and sources of `query=Q, key=cat((K, L))`."""
    depth, start = 0, 0
    for place, sign in enumerate(bind + ","):
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and not depth:
            name, _, source = bind[start:place].partition("=")
            yield name.strip(), source.strip()
            start = place + 1


def call(code: Any, bind: str, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """The tensors that the code returns for the formula's tensors and sizes in `values`."""
    names = {**values, "cat": torch.cat}
    given = {name: eval(source, {}, names) for name, source in read_binds(bind)}
    if not isinstance(code, torch.nn.Module):
        return flatten(code(**given))
    owned = dict(code.named_parameters())
    parameters = {name: value for name, value in given.items() if name in owned}
    assert set(parameters) == set(owned), f"not bound: {sorted(set(owned) - set(parameters))}"
    arguments = {name: value for name, value in given.items() if name not in owned}
    return flatten(torch.func.functional_call(code, parameters, (), arguments))


def flatten(result: Any) -> tuple[Any, ...]:
    """The tensors of a nest of tuples, in order."""
    if isinstance(result, torch.Tensor):
        return (result,)
    parts = result if isinstance(result, (tuple, list)) else ()
    return tuple(tensor for part in parts for tensor in flatten(part))
