"""Modules as formulas: their tensors by dotted names, sizes that are one written as one."""

import warnings

import pytest
import torch
from torch import nn

from derive import DeriveError, check, from_torch, parse
from derive.frontend.system import to_system
from derive.ir.text import to_lines
from derive.judge.evaluate import evaluate_system


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


READABLE = [
    (
        nn.Linear(4, 6),
        "input[B, S, D]",
        "input[B, S, D]; weight[O, D]; bias[O]\n"
        "out[b,s,o] = sum[d](input[b,s,d] * weight[o,d]) + bias[o]",
    ),
    (
        nn.Conv2d(3, 4, 5, stride=2, padding=2),
        "input[B, C, H, W]",
        "input[B, C, H, W]; weight[O, C, K, L]; bias[O]\n"
        "index h < (H - K)//2 + 3\nindex w < (W - L)//2 + 3\n"
        "out[b,o,h,w] = sum[c, k, l]([0 <= 2 * h + k - 2 < H and 0 <= 2 * w + l - 2 < W]"
        " * input[b,c,2*h + k - 2,2*w + l - 2] * weight[o,c,k,l]) + bias[o]",
    ),
    (
        nn.Conv1d(4, 6, 3, stride=3, groups=2, bias=False),
        "input[B, C, L]",
        "input[B, 4, L]; weight[6, 2, K]\n"
        "index g < 2\nindex o < 3\nindex l < (L - K)//3 + 1\n"
        "out[b,3*g + o,l] = sum[c, k](input[b,2*g + c,3*l + k] * weight[3*g + o,c,k])",
    ),
    (
        nn.Conv1d(4, 4, 3, groups=4, bias=False),
        "input[B, C, L]",
        "input[B, C, L]; weight[C, 1, K]\nindex l < L - K + 1\n"
        "out[b,c,l] = sum[k](input[b,c,l + k] * weight[c,0,k])",
    ),
    (
        nn.ConvTranspose1d(3, 4, 3, stride=2, padding=1, bias=False),
        "input[B, C, L]",
        "input[B, C, L]; weight[C, O, K]\nindex l < K + 2*L - 4\n"
        "out[b,o,l] = sum[c, k]([(l - k + 1) % 2 == 0 and 0 <= (l - k + 1) // 2 < L]"
        " * input[b,c,(l - k + 1)//2] * weight[c,o,k])",
    ),
    (
        nn.MaxPool1d(3, 2, 1),
        "input[B, C, L]",
        "input[B, C, L]\nindex l < (L + 1)//2\nindex k < 3\n"
        "out[b,c,l] = max[k, 0 <= 2 * l + k - 1 < L](input[b,c,2*l + k - 1])",
    ),
    (
        nn.AvgPool1d(4, 1, 2, count_include_pad=False),
        "input[B, C, L]",
        "input[B, C, L]\nindex l < L + 1\nindex k < 4\n"
        "out[b,c,l] = mean[k, 0 <= l + k - 2 < L](input[b,c,l + k - 2])",
    ),
    (
        nn.BatchNorm2d(4),
        "input[B, C, H, W]",
        "input[B, C, H, W]; weight, bias[C]\n"
        "mu[c] = mean[b, h, w](input[b,c,h,w])\nvariance[c] = var[b, h, w](input[b,c,h,w])\n"
        "out[b,c,h,w] = (input[b,c,h,w] - mu[c]) / sqrt(variance[c] + 1e-5)"
        " * weight[c] + bias[c]",
    ),
    (
        nn.BatchNorm1d(4, affine=False).eval(),
        "input[B, C]",
        "input[B, C]; running_mean[C]; running_var[C] >= 0\n"
        "out[b,c] = (input[b,c] - running_mean[c]) / sqrt(running_var[c] + 1e-5)",
    ),
    (
        nn.GroupNorm(2, 6),
        "input[B, C, L]",
        "input[B, 6, L]; weight, bias[6]\nindex i < 2\nindex j < 3\n"
        "mu[b,i] = mean[j, l](input[b,3*i + j,l])\nvariance[b,i] = var[j, l](input[b,3*i + j,l])\n"
        "out[b,3*g + j,l] = (input[b,3*g + j,l] - mu[b,g]) / sqrt(variance[b,g] + 1e-5)"
        " * weight[3*g + j] + bias[3*g + j]",
    ),
    (
        nn.LayerNorm((5, 4, 9)),
        "input[B, S, D, H]",
        "input[B, S, D, H]; weight, bias[S, D, H]\n"
        "mu[b] = mean[s, d, h](input[b,s,d,h])\nvariance[b] = var[s, d, h](input[b,s,d,h])\n"
        "out[b,s,d,h] = (input[b,s,d,h] - mu[b]) / sqrt(variance[b] + 1e-5)"
        " * weight[s,d,h] + bias[s,d,h]",
    ),
    (
        nn.Embedding(9, 4),
        "int input[B, S] < V",
        "int input[B, S] < V; weight[V, O]\nout[b,s,o] = weight[input[b,s],o]",
    ),
    (
        nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5, bias=False)),
        "input[B, D]",
        "input[B, D]; layer_0_weight[O, D]; layer_0_bias[O]; layer_2_weight[N, O]\n"
        "out[b,n] = sum[o](relu(sum[d](input[b,d] * layer_0_weight[o,d]) + layer_0_bias[o])"
        " * layer_2_weight[n,o])",
    ),
    (
        Gate(),
        "x[B, D]",
        "x[B, D]; layers_0_weight[O, D]; layers_1_weight[O, O]; scale[O]\n"
        "x_2[b,o] = tanh(sum[d](x[b,d] * layers_0_weight[o,d])) * scale[o]\n"
        "x_3[b,o] = tanh(sum[p](x_2[b,p] * layers_1_weight[o,p])) * scale[o]",
    ),
    (
        Residual(),
        "x[B, C, L]",
        "x[B, C, L]; one_weight[C, C, 3]\n"
        "out[b,c,l] = x[b,c,l] + "
        "sum[d, k]([0 <= l + k - 1 < L] * x[b,d,l + k - 1] * one_weight[c,d,k])",
    ),
]


@pytest.mark.parametrize(("module", "inputs", "text"), READABLE)
def test_a_module_reads_as_a_person_would_write_it_and_is_read_back(module, inputs, text):
    formula = from_torch(module, inputs)
    lines = to_lines(to_system(formula))
    assert "\n".join(lines) == text
    assert to_lines(to_system(parse(text))) == lines
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    assert all(dotted in tensors and name in text for dotted, name in formula.parameters.items())


@pytest.mark.parametrize(("module", "inputs", "text"), READABLE)
def test_it_is_the_module_at_its_own_tensors_and_leaves_them_as_they_are(module, inputs, text):
    module = module.double()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    formula = from_torch(module, inputs)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    sizes = {"B": 3, "S": 5, "D": 4, "C": 4, "L": 7, "H": 9, "W": 8, "V": 9}
    sizes |= {"C": 3} if "3, 4" in str(module) else {"C": 6} if "GroupNorm" in str(module) else {}
    tensors = dict(module.named_parameters()) | dict(module.named_buffers())
    system = to_system(formula)
    shapes = {entry.name: entry for entry in system.inputs}
    values = {name: tensors[dotted].detach() for dotted, name in formula.parameters.items()}
    for dotted, name in formula.parameters.items():
        lengths = zip(shapes[name].shape, tensors[dotted].shape, strict=True)
        sizes |= {extent.name: length for extent, length in lengths if hasattr(extent, "name")}
    (argument,) = (name for name in shapes if name not in values)
    lengths = [
        sizes[e.name] if hasattr(e, "name") else int(e.value) for e in shapes[argument].shape
    ]
    given = torch.randn(lengths, dtype=torch.float64)
    if shapes[argument].kind == "int":
        given = torch.randint(0, sizes["V"], lengths)
    with torch.no_grad():
        wanted = module(given)
    found = evaluate_system(system, {**values, argument: given}, sizes)[system.results[0].name]
    assert torch.allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_numbers_of_the_module_are_numbers_of_its_formula():
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # they are the module's, not those of one run
        formula = from_torch(Heads(), "x[B, S, D]")
    assert "x[B, S, D]; qkv_weight[18, D]" in to_lines(to_system(formula))
    assert check(Heads(), formula).grade == "proved"


def test_a_buffer_is_bound_by_its_name_and_another_statistic_is_different():
    module = nn.BatchNorm1d(4).eval()
    formula = from_torch(module, "input[B, C]")
    assert check(module, formula).same
    text = "\n".join(to_lines(to_system(formula)))
    wrong = text.replace("running_var[c] + 1e-5", "running_var[c] + 1e-3")
    assert check(module, wrong).same is False


REFUSED = [
    (nn.Dropout(0.5), "input[B]", "lift-random"),
    (nn.Linear(4, 6), "input[B, 5]", "lift-run"),
    (nn.Linear(4, 6), "x[B, D]", "lift-argument"),
    (nn.LSTM(4, 6), "input[S, B, D]", "lift-op"),
    (nn.MaxPool1d(2, return_indices=True), "input[B, C, L]", "lift-op"),
    (nn.MaxPool1d(3, 2, ceil_mode=True), "input[B, C, 8]", "lift-op"),
]


@pytest.mark.parametrize(("module", "inputs", "code"), REFUSED)
def test_what_no_formula_says_is_refused(module, inputs, code):
    with pytest.raises(DeriveError) as refused:
        from_torch(module, inputs)
    assert refused.value.diagnostic.code == code
