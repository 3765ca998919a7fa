"""Files with an nn.Module: its parameters, its constructor, and parity with torch modules."""

import copy
import io
import pickle

import pytest
import torch
from fast_cases import slow_except
from torch import nn

from derive import DeriveError, build, from_torch, parse

ATTENTION = {
    "packed": """
        in_proj_weight[2*H*C + H*E, D]; out_proj.weight[D, H*E]
        index q < H*C
        index r < H*E
        W_q[d,q] = in_proj_weight[q,d]
        W_k[d,q] = in_proj_weight[H*C + q,d]
        W_v[d,r] = in_proj_weight[2*H*C + r,d]; W_O[r,d] = out_proj.weight[d,r]
    """,
    "apart": "q.weight=W_q.T, k.weight = W_k.T, layers.0.v=W_v, W_O",
    "mapping": {"q": "W_q", "k.inner.weight": "W_k.T", "v": "W_v", "out": "W_O"},
    "all": True,
}
SIZES = {"D": 16, "H": 4, "C": 4, "E": 4}


@pytest.mark.parametrize("kind", slow_except(ATTENTION, "packed", "mapping"))
def test_a_module_is_its_formula_under_any_names(kind):
    made = build("multi_head_attention", module=ATTENTION[kind], einsum=kind != "mapping")
    made.judge(1)
    names = set(made.module(**SIZES).state_dict())
    assert (
        names
        == {
            "packed": {"in_proj_weight", "out_proj.weight"},
            "apart": {"q.weight", "k.weight", "layers.0.v", "W_O"},
            "mapping": {"q", "k.inner.weight", "v", "out"},
            "all": {"W_q", "W_k", "W_v", "W_O"},
        }[kind]
    )


def test_a_module_goes_with_a_backward_of_its_own():
    made = build("masked_attention", module={"memory.value": "value"}, backward=True)
    made.judge(1)
    assert "memory.value" in made.module(**{**dict.fromkeys("BHM", 2), "E": 3}).state_dict()


def test_the_attention_module_loads_weights_of_torch():
    torch.manual_seed(0)
    made = build("multi_head_attention", module=ATTENTION["packed"]).module(**SIZES)
    own = nn.MultiheadAttention(16, 4, bias=False, batch_first=True)
    made.load_state_dict(own.state_dict())
    given = torch.randn(3, 5, 16), torch.randn(3, 7, 16), torch.randn(3, 7, 16)
    torch.testing.assert_close(made(*given), own(*given, average_attn_weights=False))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5, bias=False))
        self.inner[2].weight = self.inner[0].weight
        self.unread = nn.Parameter(torch.ones(3))
        self.register_buffer("scale", torch.linspace(0, 1, 5))
        self.register_buffer("shift", torch.full((5,), 2.0), persistent=False)

    def forward(self, x):
        return self.inner(x) * self.scale + self.shift


FROM = [
    ("nn.Linear(4, 6)", "input[B, I]", (2, 4)),
    ("nn.Conv2d(4, 6, 3, padding=1, groups=2)", "input[B, 4, H, W]", (2, 4, 7, 8)),
    ("nn.BatchNorm1d(4).eval()", "input[B, C, L]", (2, 4, 5)),
    ("nn.BatchNorm1d(4)", "input[B, C, L]", (2, 4, 5)),
    ("nn.GroupNorm(2, 6)", "input[B, C, L]", (2, 6, 5)),
    ("nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))", "input[B, I]", (2, 4)),
    ("nn.Softmax(dim=1)", "input[B, N]", (2, 4)),
    ("Tied()", "x[B, D]", (2, 5)),
    ("nn.Sequential(nn.Conv1d(4, 6, 1), nn.GLU(1))", "input[B, C, L]", (2, 4, 5)),
    (
        "nn.Sequential(nn.Flatten(1), nn.Unflatten(1, (3, 2)), nn.LayerNorm(2))",
        "input[B, D]",
        (4, 6),
    ),
    pytest.param(
        "nn.MultiheadAttention(8, 2, batch_first=True)",
        "query[B, N, E]; key, value[B, M, E]",
        (2, 5, 8),
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize(("text", "inputs", "shape"), FROM)
def test_a_lifted_module_is_rebuilt_as_itself(text, inputs, shape):
    torch.manual_seed(0)
    module = eval(text).double()
    with torch.no_grad():
        for value in module.parameters():
            value.add_(torch.randn_like(value))
    formula = from_torch(module, inputs, name="layer")
    built = build(formula, module=True)
    built.judge(1)
    made = built.module(dtype=torch.float64)
    made.load_state_dict(module.state_dict(), strict=True)
    names = [[name for name, _ in each.named_parameters()] for each in (module, made)]
    assert sorted(names[0]) == sorted(names[1])
    given = [torch.randn(shape, dtype=torch.float64)] * (3 if "key" in inputs else 1)
    torch.testing.assert_close(made(*given), module(*given))


NORM = """
    x[B, S, D]; gamma, beta[D]; W[D, E]; E_pos[V, D]
    int at[S] < V
    scalar eps = 1e-5
    scalar tau
    n[b,s,d] = (x[b,s,d] + E_pos[at[s],d]) / (1 + eps) * gamma[d] + beta[d]
    y[b,s,e] = tau * sum[d](n[b,s,d] * W[d,e])
"""


def make_norm(**options):
    return build(parse(NORM, "scaled"), module="gamma, beta, W, pos.weight=E_pos", **options)


def test_a_module_is_made_as_torch_makes_its_layers():
    kind = make_norm().module
    made = kind(6, 3, 9, eps=1e-3, device="meta", dtype=torch.bfloat16)
    assert {(p.device.type, p.dtype) for p in made.parameters()} == {("meta", torch.bfloat16)}
    assert made.extra_repr() == "D=6, E=3, V=9, eps=0.001"
    made = made.to_empty(device="cpu").to(torch.float64)
    made.reset_parameters()
    assert torch.equal(made.gamma, torch.ones(6, dtype=torch.float64))
    assert torch.equal(made.beta, torch.zeros(6, dtype=torch.float64))
    assert 0 < made.W.abs().max() <= 6**-0.5
    inner = "x[B, D]; V[O, D]; w[O]; y[b] = sum[o](w[o] * tanh(sum[d](x[b,d] * V[o,d])))"
    source = build(parse(inner), module="V, w").source
    assert "nn.init.uniform_(self.V, -(self.D**-0.5), self.D**-0.5)" in source
    assert "nn.init.uniform_(self.w, -(self.O**-0.5), self.O**-0.5)" in source
    given = torch.randn(2, 4, 6, dtype=torch.float64), torch.randint(0, 9, (4,)), 0.5
    wanted = made(*given)
    copies = [copy.deepcopy(made), pickle.loads(pickle.dumps(made)), kind(6, 3, 9, eps=1e-3)]
    stream = io.BytesIO()
    torch.save(made.state_dict(), stream)
    stream.seek(0)
    copies[2].double().load_state_dict(torch.load(stream, weights_only=True))
    copies.append(torch.compile(made, backend="eager", fullgraph=True))
    for each in copies:
        torch.testing.assert_close(each(*given), wanted)
    shapes = (
        {0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},
        {0: torch.export.Dim.AUTO},
        None,
    )
    program = torch.export.export(made, given, dynamic_shapes=shapes)
    torch.testing.assert_close(program.module()(*given), wanted)
    wanted.sum().backward()
    assert all(each.grad is not None for each in made.parameters())


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("sizes[B, N]; kind[N]; y[b,n] = sizes[b,n] * kind[n]", "kind"),
        (
            "x[B, N]; scalar tau; scalar eps = 1e-5; y[b,n] = x[b,n] * tau + eps",
            "tau, layer.eps=eps",
        ),
        ("x[B, N]; w[N] > 0; y[b,n] = x[b,n] * log(w[n])", "w"),
        ("int t[B] < V; E[V, D]; y[b,d] = E[t[b],d]", True),
        ("x[B, L]; w[K]; index t < L - K + 1; y[b,t] = sum[k](x[b,t + k] * w[k])", True),
        ("a, x[B, T]; w[T]; h0[B]\nh[b,-1] = h0[b]\nh[b,t] = a[b,t]*h[b,t - 1] + x[b,t]*w[t]", "w"),
    ],
)
def test_any_formula_may_be_a_module(text, asked):
    build(text, module=asked).judge(2)


REFUSED = [
    ("mean_squared_error", True, "module-which"),
    ("relative_attention", "W_x", "module-unknown"),
    ("relative_attention", "W_Q.T", "module-form"),
    ("relative_attention", "W_Q W_K", "module-form"),
    ("relative_attention", "forward=W_Q", "module-name"),
    ("relative_attention", "a=W_Q, a.b=W_K", "module-name"),
    ("relative_attention", "a=W_Q, a=W_K", "module-name"),
    ("masked_attention", "mask", "module-kind"),
    ("relative_attention", "P[H, D, D]; Z[h,d,e] = P[h,d,e]", "module-unknown"),
    ("self[B, N]; w[N]; y[b,n] = self[b,n] * w[n]", "w", "module-name"),
    ("x[B, dtype]; w[dtype]; y[b,n] = x[b,n] * w[n]", "w", "module-name"),
    ("x[B, N]; scalar half = 1; w[N]; y[b,n] = half * x[b,n] * w[n]", "w", "module-name"),
]


@pytest.mark.parametrize(("name", "asked", "code"), REFUSED)
def test_ambiguous_modules_are_refused(name, asked, code):
    with pytest.raises(DeriveError) as refused:
        build(name, module=asked)
    assert refused.value.diagnostic.code == code
