"""Modules of torch and transformers, each with our formula of its computation.

A text of this folder has entries for each module: the expression that makes it (`make`; the Python
file of the same name defines longer ones), the tensors of the formula for its arguments and
parameters (`bind`), small sizes (`sizes`; the module is made for all but the `free` ones), and
mistakes that a reader could make in the formula (`not: right part -> wrong part`): the module must
differ from each of them. The other entries are those of the corpus of pairs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from corpus import flatten, read_binds
from texts import read_sections


@dataclass(frozen=True)
class Real:
    """A module or function, the formula that it should compute, and mistakes in that formula."""

    name: str
    make: Callable[[], Any]
    text: str
    bind: str
    sizes: Mapping[str, int]
    mistakes: tuple[tuple[str, str], ...]  # a right part of the formula's text, and a wrong one
    empty_row: str
    free: str  # sizes that the module is not made for
    single: bool  # whether the module computes in float32

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
    """Load all modules; making one without its library installed raises an ImportError."""
    paths = sorted(Path(__file__).parent.glob("*.md"))
    return tuple(real for path in paths for real in _read_modules(path))


def _read_modules(path: Path) -> Iterator[Real]:
    words = {"torch": torch, "nn": torch.nn, "DOUBLE": torch.float64}
    if path.with_suffix(".py").exists():
        words |= vars(import_module(f"real.{path.stem}"))

    for section in read_sections(path):
        if section.kind != "formula":
            continue
        entries = section.entries
        yield Real(
            section.title,
            partial(eval, entries["make"], words),
            section.text,
            entries["bind"],
            {name: int(size) for name, size in read_binds(entries["sizes"])},
            tuple(re.findall("^(.*) ->(?: (.*))?$", entries["not"], re.MULTILINE)),
            entries.get("empty row", "nan"),
            entries.get("free", "B S"),
            "single" in entries,
        )


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
