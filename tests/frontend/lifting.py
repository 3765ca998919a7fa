"""Examples of the lifter's table: `x[B, S]: x.softmax(-1)`, tensors before the colon, then code."""

import ast
import re
from dataclasses import dataclass

import torch

from derive.checker.runs import RunOptions, prepare
from derive.frontend.from_sympy import to_system
from derive.frontend.from_text import parse
from derive.frontend.torch.lift import lift
from derive.ir.nodes import Size
from derive.judge.evaluate import evaluate_system
from derive.judge.samples import choose_sizes, draw_inputs


@dataclass(frozen=True)
class Example:
    """One example: the inputs as the notation declares them, and a function of them."""

    text: str

    @property
    def declarations(self):
        return self.text.partition(": ")[0]

    def find_system(self):
        return to_system(parse(f"{self.declarations}\nnothing_at_all = 0", "example"))

    def find_function(self):
        names = [entry.name for entry in self.find_system().inputs]
        *before, last = self.text.partition(": ")[2].split("; ")
        lines = [f"def example({', '.join(names)}):", *(f"    {line}" for line in before)]
        return execute_source("\n".join([*lines, f"    return {last}"]))["example"]


def execute_source(source):
    """Return the names that a source defines."""
    names = {"torch": torch, "functional": torch.nn.functional}
    exec(compile(ast.parse(source), "<example>", "exec"), names)
    return names


def lift_example(function, declared, sizes):
    """Lift a function that runs at the given sizes."""
    arguments = {entry.name: entry for entry in declared.inputs}
    arguments |= {size.name: Size(size.name) for size in declared.sizes}
    return lift(function, arguments, sizes)


def find_gap(function, declared, sizes, lifted, seed=0):
    """Return the largest difference of code and lifted system; assert that the shapes agree."""
    values = draw_inputs(declared, sizes, seed)
    with torch.no_grad(), prepare(RunOptions()):
        found = function(**{k: v.clone() if hasattr(v, "clone") else v for k, v in values.items()})
    found = list(found) if isinstance(found, (tuple, list)) else [found]
    known = evaluate_system(lifted.system, values, sizes)
    wanted = [known[tensor.name] for tensor in lifted.system.results]
    assert [tuple(a.shape) for a in found] == [tuple(b.shape) for b in wanted]
    gaps = [0.0]
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one.isnan(), other.isnan())
        gap = torch.view_as_real(one.cdouble() - other.cdouble()).nan_to_num(0.0, 0.0, 0.0).abs()
        gaps.append(float(gap.max()) if gap.numel() else 0.0)
    return max(gaps)


def draw_sizes(declared, count):
    """Return `count` assignments of sizes."""
    return choose_sizes(declared, count)


def is_for_every_size(text):
    """Whether an example has no operation that fixes a size: unbind, split, max, argmax."""
    return not re.search(r"unbind|split\(|\.max\(1\)|argmax", text)
