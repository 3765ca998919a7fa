"""Representative formulas, each with reference code written by hand."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import torch
from texts import read_sections

from derive.compiler import build
from derive.frontend.from_text import parse
from derive.ir.polynomial import evaluate_extent


@dataclass(frozen=True)
class Example:
    """A formula, its default sizes, and its reference in hand-written torch."""

    name: str
    text: str
    sizes: dict
    reference: Callable
    empty_row: str = "nan"
    divisors: tuple = field(default=())  # sizes in a denominator, or that solve a shape for a size
    free: tuple = field(default=())  # (tensor, axis) whose extent no other axis fixes

    def __str__(self):
        return self.name

    def build(self, *, cells=True):
        return _build(self, cells)

    def draw(self, sizes=None, dtype=torch.float64, seed=0):
        """Random inputs in order of declaration, and the keyword sizes."""
        chosen = {**self.sizes, **(sizes or {})}
        system = self.build().system
        generator = torch.Generator().manual_seed(seed)
        tensors = {}
        for tensor in system.inputs:
            shape = [evaluate_extent(extent, chosen) for extent in tensor.shape]
            values = torch.randn(shape, generator=generator, dtype=torch.float64)
            tensors[tensor.name] = values > 0 if tensor.kind == "bool" else values.to(dtype)
        return tensors, {size.name: chosen[size.name] for size in system.sizes}

    def __hash__(self):
        return hash(self.name)


@cache
def _build(example, cells):
    return build(parse(example.text, example.name, empty_row=example.empty_row), cells=cells)


def read_examples():
    """Read the examples of examples.txt."""
    text = ""
    for section in read_sections(__file__, "examples.txt"):
        if section.title == "formula":
            text = section.text
            continue
        entries, names = section.entries, {"torch": torch}
        exec(compile(section.text, section.title, "exec"), names)
        yield Example(
            section.title,
            text,
            {size: int(extent) for size, extent in re.findall(r"(\w+)=(\d+)", entries["sizes"])},
            names["f"],
            entries.get("empty row", "nan"),
            tuple(entries.get("divisors", "").split()),
            tuple((t, int(k)) for t, k in re.findall(r"(\w+)\.(\d)", entries.get("free", ""))),
        )


EXAMPLES = tuple(read_examples())
RELATIVE, MASKED, MASKED_ZEROS, CAUSAL, MULTI_HEAD, LAYER_NORM, LOGSUMEXP, DISTANCES = EXAMPLES
