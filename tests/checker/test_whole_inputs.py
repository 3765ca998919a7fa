"""Ways that code takes at whole inputs of one kind, in a state of torch, beyond a number."""

import pytest

from derive import check


def judge(tmp_path, code, formula):
    path = tmp_path / "code.py"
    path.write_text(f"import torch\n{code}", encoding="utf-8")
    return check(f"{path}:f", formula)


@pytest.mark.parametrize(
    ("code", "formula"),
    [
        ("x.cumsum(0)", "x[N]; index i < N; y[i] = sum[j, j <= i and j > i - 64](x[j])"),
        ("x.clone()", "x[N]; y[i] = where(i < 100, x[i], 0)"),
        (
            "(lambda i: (i[:, None] - i).to(x.dtype))(torch.arange(len(x)))",
            "x[S, D]; index i, j < S; y[i, j] = clip(i - j, -200, 200)*1.0",
        ),
    ],
)
def test_sizes_go_beyond_the_numbers_of_the_formula(tmp_path, code, formula):
    verdict = judge(tmp_path, f"f = lambda x: {code}", formula)
    assert verdict.same is False


@pytest.mark.parametrize(
    "condition",
    [
        "not x.any()",
        "(x < 0).all()",
        "(x == x[0, 0]).all() and x.numel() > 1",
        "x.max() <= -100",
        "not x.is_contiguous()",
        "x.stride()[0] < x.stride()[1]",
        "x.requires_grad",
        "not torch.is_grad_enabled()",
    ],
)
def test_another_way_at_whole_inputs_or_in_a_state_is_found(tmp_path, condition):
    code = f"def f(x):\n    return 3*x + 1 if {condition} else 2*x"
    assert judge(tmp_path, code, "x[N, M]; y[n, m] = 2*x[n, m]").same is False


def test_another_way_without_a_true_entry_is_found(tmp_path):
    code = "def f(s, m):\n    r = torch.where(m, s, 0.0)\n    return r if m.any() else r + 1"
    formula = "s[N, M]; bool m[N, M]; y[n, j] = where(m[n, j], s[n, j], 0)"
    assert judge(tmp_path, code, formula).same is False


@pytest.mark.parametrize(
    ("code", "same"), [("x.argmax(-1)", True), ("len(x[0]) - 1 - x.flip(-1).argmax(-1)", False)]
)
def test_the_first_of_equal_values_is_the_largest(tmp_path, code, same):
    verdict = judge(tmp_path, f"f = lambda x: {code}", "x[N, D]; y[n] = argmax[d](x[n, d])")
    assert verdict.same is same


STATES = {
    "a cache": ("{}", "return self.kept.setdefault(x.shape, x.sum(1))"),
    "a count": ("[]", "self.kept.append(1)\n        return x.sum(1) * (1 + (len(self.kept) > 3))"),
}


@pytest.mark.parametrize("state", STATES)
def test_what_a_class_keeps_between_calls_is_seen(tmp_path, state):
    start, forward = STATES[state]
    code = f"""
class f(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {start}

    def forward(self, x):
        {forward}
"""
    assert not judge(tmp_path, code, "x[N, D]; y[n] = sum[d](x[n, d])")


def test_chance_and_time_rule_out_a_proof(tmp_path):
    code = "import random\ndef f(x):\n    {}"
    formula = "x[N]; y[n] = 2*x[n]"
    hangs = "return 2*x if random.random() > 1e-6 else x"
    assert judge(tmp_path, code.format(hangs), formula).grade == "unknown"
    verdict = judge(tmp_path, code.format("random.random(); return 2*x"), formula)
    assert verdict.grade == "agrees"
    assert "outside" in [finding.code for finding in verdict.findings]


@pytest.mark.parametrize(
    ("code", "same"),
    [
        ("s.masked_fill(~m, -1e9)", True),
        ("s + (1.0 - m.to(s.dtype)) * -1e4", True),
        ("s * m - 1e4 * (1 - m.to(s.dtype))", True),
        ("torch.where(m, s, torch.finfo(s.dtype).min)", True),
        ("s.masked_fill(~m, -50.0)", False),
        ("s + (1.0 - m.to(s.dtype)) * -40.0", False),
        ("s.clamp(-1e5, 1e5).masked_fill(~m, -1e9)", False),
    ],
)
def test_a_finite_mask_is_told_however_it_is_written(tmp_path, code, same):
    formula = "s[N, M]; bool m[N, M]; p[i, j] = softmax[j, m[i, j]](s[i, j])"
    verdict = judge(tmp_path, f"f = lambda s, m: torch.softmax({code}, -1)", formula)
    assert verdict.same is same
    told = "finite-mask" in [finding.code for finding in verdict.findings]
    assert told or not same
