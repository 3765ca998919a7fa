"""Edits of the code: each operator mends an example, and only what is right everywhere is shown."""

import pytest
from explain_cases import explain_code

from derive import check

ROWS = "x[N, D]; y[n, d] = softmax[d](x[n, d] / sqrt(D))"
NORM = """x[N, D]; scalar eps = 1e-5
m[n] = mean[d](x[n, d]); s[n] = mean[d]((x[n, d] - m[n])**2)
y[n, d] = (x[n, d] - m[n]) / sqrt(s[n] + eps)"""
NORM_CODE = """m = x.mean(1, keepdim=True)
s = ((x - m) ** 2).mean(1, keepdim=True)
return (x - m) / torch.sqrt(s + eps)"""
TWICE = "a, b, c[N]; y[n] = a[n] * b[n] - c[n]"
MENDED = (
    ("another number", ROWS, "return (x / D**0.5).softmax(0)", "(x / D**0.5).softmax(1)"),
    ("another name", TWICE, "t = a * b\nreturn t - b", "return t - c"),
    ("another operator", TWICE, "return a * b + c", "return a * b - c"),
    ("another function", ROWS, "return F.log_softmax(x / D**0.5, 1)", "F.softmax(x / D**0.5, 1)"),
    ("exchanged parts", TWICE, "t = a * b\nreturn c - t", "return t - c"),
    ("exchanged names", TWICE, "return a * c - b", "return a * b - c"),
    ("a part too many", TWICE, "return a * b.abs() - c", "return a * b - c"),
    ("a factor missing", ROWS, "return x.softmax(1)", "(x * D ** -0.5).softmax(1)"),
    ("a term missing", NORM, NORM_CODE.replace("((x - m)", "((x)"), "x - m"),
    ("a function missing", ROWS, "return x / D**0.5", "torch.softmax(x / D**0.5, dim=-1)"),
    ("a part moved", NORM, NORM_CODE.replace("(s + eps)", "(s) + eps"), "torch.sqrt(s + eps)"),
    ("letters", "a[N, M]; b[M, K]; y[n, k] = sum[m](a[n, m] * b[m, k])",
     "return torch.einsum('nm,mk->kn', a, b)", "torch.einsum('nm,mk->nk', a, b)"),
    ("a keyword", "x[N, D]; y[n] = var[d](x[n, d])", "return x.var(1)", "x.var(1, correction=0)"),
    ("transposed", "x[N, D]; W[D, D]; y[n, e] = sum[d](x[n, d] * W[d, e])",
     "return x @ W.T", "return x @ W"),
    ("a slice", "x[N]; index i < N - 1; y[i] = x[i + 1]", "return x[:-1]", "return x[1:]"),
    ("all places alike", "a, b[N]; y[i] = exp(a[i]) + exp(b[i])",
     "return torch.log(a) + torch.log(b)", "return torch.exp(a) + torch.exp(b)"),
)  # fmt: skip


@pytest.mark.parametrize("what, formula, code, mended", MENDED, ids=lambda each: str(each)[:20])
def test_an_operator_mends_its_example(what, formula, code, mended, tmp_path):
    found = explain_code(formula, code, tmp_path)
    assert found.edit
    assert len(found.corrected) == 1
    assert mended in found.corrected[0][1], found.corrected


def test_two_faults_give_two_edits(tmp_path):
    code = NORM_CODE.replace("mean(1, keepdim=True)\nr", "sum(1, keepdim=True)\nr")
    found = explain_code(NORM, code.replace(" + eps", ""), tmp_path)
    assert "; and line" in found.edit
    texts = [text.strip() for _, text in found.corrected]
    assert texts == NORM_CODE.splitlines()[1:]


def test_a_bound_that_is_only_farther_out_is_no_edit():
    code = """import torch

def f(x):
    at = torch.arange(x.shape[0]).clamp(max=5)
    return x * at"""
    verdict = check(code, "x[N]; y[i] = x[i] * i")
    assert verdict.same is False
    assert [text.strip() for _, text in verdict.corrected] == ["at = torch.arange(x.shape[0])"]


def test_an_edit_that_avoids_a_branch_is_none():
    code = """import torch

def f(x):
    n = x.shape[0]
    if n > 12:
        x = x.exp()
    return x * 2"""
    verdict = check(code, "x[N, M]; y[i, j] = 2 * x[i, j]")
    assert [line for line, _ in verdict.corrected] == [6], str(verdict)


def test_a_script_and_a_module_are_corrected():
    module = """import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 3.0

    def forward(self, x):
        return x * self.scale"""
    verdict = check(module, "x[N]; y[i] = 2 * x[i]")
    assert verdict.line in {6, 9}
    assert verdict.corrected
    script = "import torch\nx = torch.randn(4, 5)\ny = x.softmax(0)\nz = y @ y.T\nw = z @ x\n"
    formula = """x[N, M]; index k < N
    y[i, j] = softmax[j](x[i, j]); z[i, k] = sum[j](y[i, j] * y[k, j])
    w[i, j] = sum[k](z[i, k] * x[k, j])"""
    verdict = check(script, formula)
    assert verdict.line == 3, str(verdict)
    assert "softmax(1)" in verdict.corrected[0][1] or "softmax(-1)" in verdict.corrected[0][1]


def test_a_line_is_what_its_value_is_or_contains_it(tmp_path):
    formula = "x[N, D]; y[n, d] = exp(x[n, d]) + 1; z[n] = sum[d](y[n, d])"
    code = "y = (torch.exp(x) + 2) / 3\nreturn y.sum(1)"
    said = dict(explain_code(formula, code, tmp_path).annotations)
    assert said[7] == "contains exp(x[n,d])"


def test_a_number_is_no_size_that_happens_to_equal_it(tmp_path):
    formula = "x[N, D]; y[n] = sum[d](x[n, d])"
    found = explain_code(formula, "t = x.sum(1) * 5\nreturn t + 1", tmp_path)
    assert dict(found.annotations)[7] in {"y[n] * 5", "contains y[n]"}
