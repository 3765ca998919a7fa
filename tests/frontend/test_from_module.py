"""Modules as formulas: tensors by their dotted names, equal sizes under one name."""

import warnings
from pathlib import Path

import pytest
import torch
from texts import Expressions, read_parts
from torch import nn

from derive import DeriveError, check, from_torch, parse
from derive.frontend.from_sympy import to_system
from derive.ir.nodes import Size
from derive.ir.polynomial import evaluate_extent
from derive.ir.text import to_lines
from derive.ir.walk import walk
from derive.judge.evaluate import evaluate_system

ROWS = Expressions(Path(__file__).with_name("from_module_rows.txt"), globals())


class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4, bias=False) for _ in range(2))
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x, bias=None):
        for layer in self.layers:
            x = torch.tanh(layer(x)) * self.scale
        return x if bias is None else x + bias


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Conv1d(4, 4, 3, padding=1, bias=False)

    def forward(self, x):
        return x + self.one(x)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(6, 18, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 3).permute(2, 0, 3, 1, 4)
        return (q @ k.mT).softmax(-1) @ v


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("shift", torch.tensor(3.0))

    def forward(self, x):
        return x * self.gain + torch.exp(self.shift)


class Skip(nn.Module):
    def forward(self, x):
        return x + nn.functional.interpolate(nn.functional.avg_pool1d(x, 2), scale_factor=2)


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.D = nn.Parameter(torch.ones(8))
        self.qkv = nn.Linear(8, 24, bias=False)

    def forward(self, x):
        B, S, D = x.shape
        q, k, v = self.qkv(x).reshape(B, S, 3, 2, D // 2).permute(2, 0, 3, 1, 4).unbind(0)
        return ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).reshape(B, S, D) + self.D * x


PARTS = read_parts(Path(__file__).with_name("modules.txt"))
READABLE = [(*title.split(": "), text) for title, (text,) in PARTS.items()]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("module", "inputs", "text"), READABLE)
def test_a_module_reads_as_a_person_would_write_it_and_is_read_back(module, inputs, text):
    module = eval(module)
    formula = from_torch(module, inputs)
    lines = to_lines(to_system(formula))
    assert "\n".join(lines) == text
    assert to_lines(to_system(parse(text))) == lines
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    assert all(dotted in tensors and name in text for dotted, name in formula.parameters.items())


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("module", "inputs", "text"), READABLE)
def test_the_formula_computes_the_module_and_leaves_its_tensors_unchanged(module, inputs, text):
    module = eval(module).double()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    formula = from_torch(module, inputs)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    sizes = {"B": 3, "S": 5, "D": 4, "C": 4, "L": 7, "H": 9, "W": 8, "V": 9, "N": 6, "L_2": 3}
    sizes |= {"C": 3} if "3, 4" in str(module) else {"C": 6} if "GroupNorm" in str(module) else {}
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    system = to_system(formula)
    shapes = {entry.name: entry for entry in system.inputs}
    values = {name: tensors[dotted].detach() for dotted, name in formula.parameters.items()}
    for dotted, name in formula.parameters.items():
        extents = getattr(shapes[name], "shape", ())  # a scalar has none
        lengths = zip(extents, tensors[dotted].shape, strict=True)
        for extent, length in lengths:
            for size in (part.name for part in walk(extent) if isinstance(part, Size)):
                sizes[size] = next(
                    n for n in range(99) if evaluate_extent(extent, {size: n}) == length
                )
    (argument,) = (name for name in shapes if name not in values)
    lengths = [evaluate_extent(extent, sizes) for extent in shapes[argument].shape]
    given = torch.randn(lengths, dtype=torch.float64)
    if shapes[argument].kind == "int":
        given = torch.randint(0, sizes["V"], lengths)
    with torch.no_grad():
        wanted = module(given)
    found = evaluate_system(system, {**values, argument: given}, sizes)[system.results[0].name]
    assert torch.allclose(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_all_sizes_that_a_module_fixes_are_found():
    module = nn.MultiheadAttention(8, 2, kdim=5, vdim=6, batch_first=True)
    formula = from_torch(module, "query[B, N, D]; key[B, M, E]; value[B, M, F]")
    assert to_lines(to_system(formula))[0].startswith(
        "query[B, N, 8]; key[B, M, E]; value[B, M, F]; q_proj_weight[8, 8]; k_proj_weight[8, E];"
    )


def test_numbers_of_the_module_are_numbers_of_its_formula():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # no warning: the numbers belong to the module, not to a run
        formula = from_torch(Heads(), "x[B, S, D]")
    assert "x[B, S, D]; qkv_weight[18, D]" in to_lines(to_system(formula))
    assert check(Heads(), formula).grade == "proved"


@pytest.mark.slow
def test_a_buffer_is_bound_by_its_name_and_another_statistic_is_different():
    module = nn.BatchNorm1d(4).eval()
    formula = from_torch(module, "input[B, C]")
    assert check(module, formula).same
    text = "\n".join(to_lines(to_system(formula)))
    wrong = text.replace("running_var[c] + 1e-5", "running_var[c] + 1e-3")
    assert check(module, wrong).same is False


REFUSED = ROWS["refused"]


@pytest.mark.parametrize(("module", "inputs", "code"), REFUSED)
def test_a_module_without_a_formula_is_refused(module, inputs, code):
    with pytest.raises(DeriveError) as refused:
        from_torch(module, inputs)
    assert refused.value.diagnostic.code == code
