"""Numbers that a class is made with: defaults stand unless a name or a shape says otherwise."""

from textwrap import dedent

import pytest

from derive import check

PRELUDE = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def judge(tmp_path, code, formula, **told):
    path = tmp_path / "code.py"
    path.write_text(PRELUDE + dedent(code), encoding="utf-8")
    return check(f"{path}:M", dedent(formula), **told)


def write_power(default):
    return f"""
    class M(nn.Module):
        def __init__(self, gamma_neg={default}, beta=2, eps=1e-8):
            super().__init__()
            self.gamma, self.beta, self.eps = gamma_neg, beta, eps

        def forward(self, x):
            return ((x + self.eps) / self.beta) ** self.gamma
    """


@pytest.mark.parametrize(("default", "same"), [(4, True), (3, False)])
def test_a_default_that_no_name_says_stands(tmp_path, default, same):
    formula = "x[B, N] > 0; scalar tau = 2\ny[b, n] = ((x[b, n] + 1e-8)/2)**4"
    assert judge(tmp_path, write_power(default), formula).same is same


@pytest.mark.parametrize(("default", "same"), [(1e-6, True), (1e-3, True)])
def test_a_default_of_a_scalars_name_is_that_scalar(tmp_path, default, same):
    code = f"""
    class M(nn.Module):
        def __init__(self, eps={default}):
            super().__init__()
            self.eps = eps

        def forward(self, x):
            return torch.rsqrt(x.pow(2).mean(-1) + self.eps)
    """
    formula = "x[B, D]; scalar eps = 1e-5\ny[b] = 1/sqrt(mean[d](x[b, d]**2) + eps)"
    assert judge(tmp_path, code, formula).same is same


@pytest.mark.parametrize("told", [None, {"bias": "c", "linear.weight": "W"}])
def test_a_truth_value_is_a_flag_and_no_tensor(tmp_path, told):
    code = """
    class M(nn.Module):
        def __init__(self, ins, outs, bias=True):
            super().__init__()
            self.linear = nn.Linear(ins, outs, bias=False)
            self.bias = nn.Parameter(torch.zeros(outs)) if bias else None

        def forward(self, x):
            return self.linear(x) + self.bias
    """
    name = "c" if told else "bias"
    formula = f"x[N, I]; W[O, I]; {name}[O]\ny[n, o] = sum[i](W[o, i]*x[n, i]) + {name}[o]"
    assert judge(tmp_path, code, formula, bind=told).same


@pytest.mark.parametrize(
    "use",
    [
        "self.layer = nn.Dropout(p)",
        "self.p = p\n            self.layer = lambda x: F.dropout(x, self.p, self.training)",
        "self.layer = nn.Sequential(nn.Dropout(p=p))",
    ],
)
def test_a_probability_of_dropout_is_nothing(tmp_path, use):
    code = f"""
    class M(nn.Module):
        def __init__(self, width, p):
            super().__init__()
            self.linear = nn.Linear(width, width, bias=False)
            {use}

        def forward(self, x):
            return self.layer(self.linear(x))
    """
    formula = "x[N, P]; W[P, P]\ny[n, o] = sum[i](W[o, i]*x[n, i])"
    assert judge(tmp_path, code, formula).grade == "proved"


@pytest.mark.parametrize(
    ("init", "same"), [("{'ins': I, 'outs': O}", True), ("dict(ins=I, outs=O, scale=2)", False)]
)
def test_the_arguments_that_are_told_read_the_formulas_sizes(tmp_path, init, same):
    code = """
    class M(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.linear = nn.Linear(config["ins"], config["outs"], bias=False)
            self.scale = config.get("scale", 1)

        def forward(self, x):
            return self.linear(x) * self.scale
    """
    formula = "x[N, I]; W[O, I]\ny[n, o] = sum[i](W[o, i]*x[n, i])"
    verdict = judge(tmp_path, code, formula, init=init)
    assert verdict.same is same
    assert len({sizes["I"] for sizes in verdict.sizes}) > 1


def test_sizes_that_agree_with_a_number_by_chance_are_no_tie(tmp_path):
    code = """
    class M(nn.Module):
        def forward(self, x):
            n, e = x.shape
            return x.view(n, 4, -1).sum(1)
    """
    formula = "x[S, E]; size D\nindex d < D\nindex h < 4\ny[s, d] = sum[h](x[s, h*D + d])"
    verdict = judge(tmp_path, code, formula.replace("x[S, E]; size D", "size D\nx[S, 4*D]"))
    assert verdict.same
    assert not verdict.findings
