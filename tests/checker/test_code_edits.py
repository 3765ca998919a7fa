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
    ("a slice moved", "x[N]; index i < N - 2; y[i] = x[i + 2] - x[i]",
     "return x[1:-1] - x[:-2]", "x[2:] - x[:-2]"),
    ("what runs, not a number", "x[N, D]; g[D]; y[n] = sum[d](x[n, d] * g[d])",
     "y = 0\nfor k in range(len(g)):\n    y = y + x[:, k] * g[0]\nreturn y", "x[:, k] * g[k]"),
    ("turned round", "x[N]; index i < N; y[i] = sum[j, j >= i](x[j])",
     "y, last = [], 0\nfor k in reversed(range(len(x))):\n    last = last + x[k]\n"
     "    y.append(last)\nreturn torch.stack(y)", "torch.stack(y[::-1])"),
    ("a term at other places", "x[N, C, D]; b[C]; y[n, c, d] = exp(x[n, c, d]) + b[c]",
     "y = torch.exp(x)\nreturn y", " + b[:, None]"),
    ("what stands unused", "a, b, c[N, N]; y[i, j] = sum[k](a[i, k] * b[k, j]) + c[i, j]",
     "return a @ a + c", "a @ b + c"),
    ("a product with what stands unused",
     "a[N, M]; b[M, K]; y[n, k] = sum[m](tanh(a[n, m]) * b[m, k])",
     "h = torch.tanh(a)\nreturn h", "@ b"),
    ("a factor before brackets", "a, b, c[N]; y[i] = a[i] * b[i] + c[i]",
     "return a * (b + c)", "return a * b + c"),
    ("a function of both", "a, b[N]; index i, j < N; y[i, j] = softmax[j](leaky_relu(a[i] + b[j]))",
     "return (F.leaky_relu(a[:, None]) + F.leaky_relu(b[None])).softmax(1)",
     "F.leaky_relu(a[:, None] + b[None])"),
    ("minus infinity", "x[N, M]; bool m[N, M]; y[i, j] = softmax[j, m[i, j]](x[i, j])",
     "return x.masked_fill(~m, 0.0).softmax(-1)", 'masked_fill(~m, float("-inf"))'),
    ("another block",
     "x[N, 3*E]; index e < E; y[n, e] = exp(x[n, e]) + x[n, E + e] * tanh(x[n, 2*E + e])",
     "c = x[:, E:2 * E].tanh()\nreturn x[:, :E].exp() + x[:, E:2 * E] * c", "x[:, 2 * E:].tanh()"),
    ("the last block for the first",
     "x[N, 2*E]; index e < E; y[n, e] = exp(x[n, e]) + x[n, E + e]",
     "return x[:, E:].exp() + x[:, E:]", "return x[:, :E].exp() + x[:, E:]"),
    ("a number that a function is told", "x[N]; y[i] = leaky_relu(x[i], 0.2) + 1",
     "return F.leaky_relu(x) + 1", "F.leaky_relu(x, negative_slope=0.2)"),
    ("a number that a module is told", "x[N]; y[i] = elu(x[i], 0.3) + 1",
     "return torch.nn.ELU()(x) + 1", "torch.nn.ELU(alpha=0.3)(x)"),
    ("another order", "a, b, r[N, N]; y[i, j] = tanh(r[i, j] * sum[k](a[i, k] * b[k, j]))",
     "return torch.tanh((r * a) @ b)", "torch.tanh(r * (a @ b))"),
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


LIKELIER = (
    # of edits that are right alike, the one whose values are parts of the formula, as people write
    ("a, b, c[N]; y[n] = a[n] * b[n] - c[n]", "return a * b + c", "return a * b - c"),
    ("a, b[N]; m[i] = a[i] - b[i]; y[i] = exp(m[i]) + m[i]",
     "m = b - a\nreturn torch.exp(m) + m", "m = a - b"),
    ("x[N, D]; m[n] = mean[d](x[n, d]); y[n] = mean[d]((x[n, d] - m[n])**2)",
     "c = x - x.mean(1, keepdim=True)\nreturn (x * x).mean(1)", "return (c * c).mean(1)"),
    ("x, s[N]; y[i] = 2 * x[i] + s[i]", "return 2 * x + 2 * s", "return 2 * x + s"),
    ("p, r[N]; bool m[N, N]; e[i, j] = p[i] + r[j]; a[i, j] = softmax[j, m[i, j]](e[i, j])",
     "e = p.unsqueeze(0) + r.unsqueeze(1)\nreturn e.masked_fill(~m, -torch.inf).softmax(1)",
     "e = r.unsqueeze(0) + p.unsqueeze(1)"),
    ("x[N, D]; y[n] = max[d](x[n, d]) + D*log(2*pi)",
     "c = math.log(2 * math.pi)\nreturn x.amax(1) + c", "c = "),
)  # fmt: skip
SAID = (
    ("s[N]; y[i] = exp(-s[i]) * 2", "return torch.exp(s) * 2", "the SIGN of s[i] is to be turned"),
    ("x[N, D]; m[n] = mean[d](x[n, d]); y[n] = mean[d]((x[n, d] - m[n])**2)",
     "c = x - x.mean(1, keepdim=True)\nreturn x.pow(2).mean(1)", "USE c, not x"),
)  # fmt: skip


@pytest.mark.parametrize("formula, code, words", SAID)
def test_the_words_are_those_of_the_smaller_slip(formula, code, words, tmp_path):
    assert explain_code(formula, code, tmp_path).edit == words


def test_an_edit_may_leave_rows_empty_where_the_formula_has_such():
    code = """import torch

def f(e, p):
    keep = torch.ones(len(e), len(e), dtype=torch.bool).tril() | p
    return e.masked_fill(~keep, -torch.inf).softmax(-1)"""
    formula = "e[N, N]; bool p[N]; a[i, j] = softmax[j, p[j] and j <= i](e[i, j])"
    assert "tril() & p" in check(code, formula).corrected[0][1]


@pytest.mark.parametrize("formula, code, mended", LIKELIER)
def test_the_edit_is_one_that_a_person_would_make(formula, code, mended, tmp_path):
    found = explain_code(formula, code, tmp_path)
    assert [mended in text for _, text in found.corrected] == [True], found.corrected


def test_what_is_shown_as_corrected_is_all_of_it(tmp_path):
    formula = "x, w[N]; a[i] = exp(x[i]); b[i] = tanh(w[i]); y[i] = a[i] + b[i] * a[i]"
    code = "a = torch.exp(-x)\nb = torch.frac(w)\nreturn a + b * a"
    found = explain_code(formula, code, tmp_path)
    assert "; and" in found.edit
    assert len(found.corrected) in {0, 2}, found


FAR = "x[N]; y[i] = sin(cos(tanh(exp(x[i]) + 2) * 3) + 5)**3"


def test_what_was_tried_is_told_where_no_edit_is_found(tmp_path):
    found = explain_code(FAR, "return torch.frac(x)", tmp_path)
    assert not found.edit
    assert "edits of the code that were tried" in found.tried


def test_an_edit_that_does_not_end_is_not_the_code(tmp_path):
    code = """import time
import torch

def f(x, n=2):
    if n != 2:
        time.sleep(60)
    return x * torch.tensor([1.0, 2.0, 4.0])[n]"""
    verdict = check(code, "x[N]; y[i] = 2 * x[i]", seconds=6)
    assert verdict.same is False
    assert verdict.line == 7
    assert not any("did not finish: the code" in reason for reason in verdict.reasons)
