"""Where float64 differs far out, many digits say which side is right."""

import math

import numpy as np
import pytest
import torch
from judged import find_codes, judge

from derive import DeriveError, check, from_torch, parse
from derive.judge.loops import evaluate_loops
from derive.judge.loops.entries import prepare_entry

SLOW = pytest.mark.slow
LOSING = "x[N]; y[i] = -log(1 - sigmoid(x[i]))"
STABLE = "x[N]; y[i] = softplus(x[i])"
CROSS = (
    "x[N]; 0 <= t[N] <= 1\nr[i] = -(t[i]*log(sigmoid(x[i])) + (1 - t[i])*log(1 - sigmoid(x[i])))"
)
ROWS = "x[N, C]; y[i,c] = log(softmax[c](x[i,c]))"
SCALE = "x[N, D]; y[i,d] = x[i,d]/sqrt(sum[k](x[i,k]**2))"


@pytest.mark.parametrize(
    ("text", "body", "finding"),
    [
        (LOSING, "F.softplus(x)", "digits-formula"),
        (STABLE, "-torch.log(1 - torch.sigmoid(x))", "digits-code"),
        (STABLE, "torch.log1p(torch.exp(x))", "out-of-range"),
        (CROSS, "F.binary_cross_entropy_with_logits(x, t, reduction='none')", "digits"),
        (ROWS, "F.log_softmax(x, -1)", "digits-formula"),
        ("x[N]; y[i] = x[i]", "torch.atanh(torch.tanh(x))", "digits-code"),
        (SCALE, "F.normalize(x, dim=-1)", "undefined"),
    ],
)
def test_a_loss_of_digits_is_a_finding(text, body, finding):
    verdict = judge(body, text)
    assert verdict.same is True, str(verdict)
    found = [each for each in verdict.findings if each.code.startswith(finding)]
    assert found
    assert "at " in found[0].facts[0]


@pytest.mark.parametrize(
    ("text", "body"),
    [
        pytest.param(LOSING, "F.softplus(x.clamp(max=20))", marks=SLOW),
        pytest.param(LOSING, "torch.where(x > 20, x + 0.01, F.softplus(x))", marks=SLOW),
        pytest.param(STABLE, "-torch.log((1 - torch.sigmoid(x)).clamp(min=1e-7))", marks=SLOW),
        (ROWS, "torch.log(F.softmax(x, -1) + 1e-12)"),
        ("x[N]; y[i] = x[i]", "torch.atanh(torch.tanh(x).clamp(-0.999, 0.999))"),
        ("x[N]; y[i] = where(x[i] == 0, 1, sin(x[i])/x[i])", "torch.sin(x) / x"),
    ],
)
def test_another_function_far_out_is_different(text, body):
    verdict = judge(body, text)
    assert verdict.same is False, str(verdict)
    assert "the formula says" in verdict.difference
    assert "N=" in verdict.difference


TEXT = """
q[S, D]; k[T, D]; bool m[T]; x[B, H*D]; size H
index h < H
a[i,j] = softmax[j, m[j]](sum[d](q[i,d]*k[j,d])/sqrt(D))
u[h*D + d, b] = gelu(x[b,h*D+d])*0.1 + floor(3*x[b,h*D+d]) + tanh(x[b,h*D+d])
w[i] = logsumexp[d](q[i,d]) + var[d](q[i,d]) + max[d](q[i,d]) + elu(q[i,0])
return a, u, w
"""


def test_entries_with_many_digits_are_those_of_the_loops():
    formula = parse(TEXT)
    sample = torch.Generator().manual_seed(0)
    shapes = {"q": (2, 3), "k": (4, 3), "x": (2, 6)}
    values = {
        name: torch.randn(shape, generator=sample, dtype=torch.float64)
        for name, shape in shapes.items()
    }
    values |= {"H": 2, "m": torch.tensor([True, False, True, True])}
    for name, result in zip("auw", evaluate_loops(formula, values), strict=True):
        entry = prepare_entry(formula, name)
        for place in torch.ones(result.shape).nonzero().tolist():
            assert entry(values, tuple(place)) == pytest.approx(float(result[tuple(place)]))


@pytest.mark.parametrize(
    ("text", "x", "wanted"),
    [
        ("x[N]; y[i] = -log(1 - sigmoid(x[i]))", 60.0, 60.0),
        ("x[N]; y[i] = -log(1 - sigmoid(x[i]))", 3000.0, 3000.0),
        ("x[N]; y[i] = -log(1 - sigmoid(x[i]))", 1e6, None),
        ("x[N]; y[i] = (1 + x[i]) - 1", 1e-30, 1e-30),
        ("x[N]; y[i] = where(x[i] > 0.1, 1, 0)", 0.1, 0.0),
        ("x[N]; y[i] = 1/x[i]", 0.0, math.inf),
        ("x[N]; y[i] = log(x[i])", 0.0, -math.inf),
        ("x[N]; y[i] = sqrt(x[i])**2", 2.0, 2.0),
    ],
)
def test_as_many_digits_as_it_takes(text, x, wanted):
    entry = prepare_entry(parse(text), "y")
    assert entry({"x": torch.tensor([x], dtype=torch.float64)}, (0,)) == wanted


def test_what_has_no_value_is_nan():
    entry = prepare_entry(parse("x[N]; y[i] = sqrt(x[i]) + log(x[i])"), "y")
    assert math.isnan(entry({"x": torch.tensor([-1.0], dtype=torch.float64)}, (0,)))


# Precision is part of the code: shorter floats, narrow integers, another way for another type.

DOUBLE = "x[N]; y[n] = 2*x[n]"
PRODUCT = "A[M, K]; B[K, N]; C[i,j] = sum[k](A[i,k] * B[k,j])"
ENTRIES = "int t[S] < V; E[V, D]; y[s,d] = E[t[s],d]"
NORM = "x[N, D]; g[D]; scalar eps = 1e-6\ny[n,d] = x[n,d]*g[d]/sqrt(mean[c](x[n,c]**2) + eps)"
PREFIX = "x[N]; index i < N; y[i] = sum[j, j<=i](x[j])"
COUNT = "bool m[N, D]; y[n] = sum[d]([m[n,d]])"
SAME = "int t, s[N]; y[n] = where(t[n] == s[n], 1, 0)"
LOG = "p[N] > 0; y[n] = log(p[n])"
NORMALIZE = "h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)"
ADD_UP = (
    "i = torch.arange(x.shape[0], dtype=torch.{})\n(i[None] <= i[:, None]).to(x.dtype) @ x".format
)
SHORTER = [  # right but for its type
    ("(x.half() * 2).to(x.dtype)", DOUBLE, "half computes in float16"),
    ("(A.bfloat16() @ B.bfloat16()).float()", PRODUCT, "bfloat16 computes in bfloat16"),
    (
        'with torch.autocast("cpu", dtype=torch.bfloat16):\n    return A @ B',
        PRODUCT,
        "matmul computes in bfloat16",
    ),
    (
        f"h = x if x.dtype == torch.float64 else x.float()\n{NORMALIZE} * g",
        NORM,
        "takes another way in",
    ),
    (f"h = x.float()\n({NORMALIZE}).to(x.dtype) * g", NORM, "float computes in float32"),
    *(
        (f"(x.{call} if {where} else x).to(x.dtype) * 2", DOUBLE, "computes in")
        for call, where in (
            ("half()", "x.shape[0] > 40"),
            ("float()", "x.shape[0] == 1"),
            ("bfloat16()", "x.abs().max() > 50"),
        )
    ),
]
OTHER = [  # another value in another type, or where a type is full
    ("3 * x if x.dtype == torch.float32 else 2 * x", DOUBLE),
    ("3 * x if x.dtype == torch.bfloat16 else 2 * x", DOUBLE),
    ('x if str(x.dtype) == "torch.float16" else 2 * x', DOUBLE),
    ("x * (2 if x.element_size() == 8 else 2.001)", DOUBLE),
    ("x * (2 if torch.get_default_dtype() == torch.float64 else 2.001)", DOUBLE),
    ("2 * x[torch.arange(x.shape[0], dtype=torch.int8).long()]", DOUBLE),
    ("2 * x[torch.arange(x.shape[0]).byte().long()]", DOUBLE),
    ("E[t.to(torch.int8).long()]", ENTRIES),
    (ADD_UP("bfloat16"), PREFIX),
    (ADD_UP("float16"), PREFIX),
    (
        "x / torch.arange(1, len(x) + 1).cumprod(0)",
        "x[N]; index i < N; index j < N; y[i] = x[i]/prod[j, j<=i](j+1)",
    ),
    ("(x * 2 ** torch.arange(len(x))).sum()", "x[N]; y = sum[i](x[i]*2**i)"),
    (
        "x * torch.arange(len(x), dtype=torch.int32) ** 4",
        "x[N]; index i < N; y[i] = x[i]*i**4",
    ),
    ("m.short().sum(-1, dtype=torch.int16)", COUNT),
    ("(t.float() == s.float()).double()", SAME),
    ("x.floor().int().to(x.dtype)", "x[N]; y[n] = floor(x[n])"),
    ("(10 * x).round() / 10", "x[N]; y[n] = floor(10*x[n] + 0.5)/10"),
]
PROVED = [  # nothing is lost
    ("2 * x * torch.ones(x.shape[0], dtype=torch.uint8)", DOUBLE),
    ("2 * x * torch.ones(x.shape[0], dtype=torch.float32)", DOUBLE),
    (ADD_UP("int64"), PREFIX),
    (ADD_UP("float32"), PREFIX),
    ("x * (-1) ** torch.arange(len(x))", "x[N]; index i < N; y[i] = x[i]*(-1)**i"),
    ("m.int().sum(-1)", COUNT),
    ("(x + 0.5).floor()", "x[N]; y[n] = floor(x[n] + 0.5)"),
]


@pytest.mark.parametrize(("code", "formula", "line"), SHORTER)
def test_what_is_right_but_for_its_type_agrees_and_is_named(code, formula, line):
    verdict = judge(code, formula)
    assert (verdict.same, verdict.grade) == (True, "agrees"), str(verdict)
    assert line in str(verdict)
    assert {"lower-precision", "type-branch"} & find_codes(verdict)


@pytest.mark.parametrize(("code", "formula"), OTHER)
def test_another_value_in_a_type_is_different(code, formula):
    verdict = judge(code, formula)
    assert verdict.grade == "different", str(verdict)
    assert verdict.difference


def round_by_numpy(x):
    return torch.from_numpy(x.detach().numpy().astype(np.float16).astype(np.float64)) * 2


def test_what_numpy_rounds_is_different():
    assert check(round_by_numpy, parse(DOUBLE)).same is False


@pytest.mark.parametrize(("code", "formula"), PROVED)
def test_what_loses_nothing_is_proved(code, formula):
    assert judge(code, formula).grade == "proved"


def count_in_int8(x):
    return 2 * x[torch.arange(x.shape[0], dtype=torch.int8).long()]


def mask_in_uint8(x):
    return 2 * x * torch.ones(x.shape[0], dtype=torch.uint8)


def test_narrow_integers_have_no_place_in_equations():
    assert from_torch(mask_in_uint8, "x[N]").name == "mask_in_uint8"
    with pytest.raises(DeriveError, match="lift-narrow"):
        from_torch(count_in_int8, "x[N]")


@pytest.mark.parametrize(
    ("code", "text", "same"),
    [
        ("p.clamp(min=1e-12).log()", LOG, False),
        ("(1 / p).clamp(max=1e15)", "p[N] > 0; y[n] = 1/p[n]", False),
        ("p.clamp(min=1e-12).log()", "p[N] > 0; y[n] = log(max(p[n], 1e-12))", True),
        ("p.log().clamp(min=-100)", LOG, True),
        ("torch.log(p)", "0 < p[N] < 1; y[n] = log(p[n])", True),
    ],
)
def test_numbers_above_0_are_tried_as_far_as_float32_holds_them(code, text, same):
    verdict = judge(code, text)
    assert verdict.same is same, str(verdict)
    assert ("far-below" in find_codes(verdict)) is ("-100" in code)


@pytest.mark.parametrize(("factor", "finding"), [("0.5", "unstable"), ("1.0", "")])
def test_factors_that_leave_the_range_at_a_long_size_are_named(factor, finding):
    text = f"x[N]; index i < N; y[i] = sum[j, j<=i](x[j]*{factor}**(i-j))"
    code = f"c = {factor} ** torch.arange(len(x), dtype=x.dtype)\nc * torch.cumsum(x / c, 0)"
    verdict = judge(code, text)
    assert verdict.same
    assert [each.code for each in verdict.findings] == [finding] * bool(finding)


# Finite numbers that stand for -inf in a mask: one finding, however they are written.

MASKS_ROWS = "s[N, M]; bool m[N, M]; p[i,j] = softmax[j, m[i,j]](s[i,j])"
CAUSAL = "s[S, S]; p[i,j] = softmax[j, j <= i](s[i,j])"
HEADS = """
    q, k, v[B, S, D]; bool m[B, S, S]
    p[b,i,j] = softmax[j, m[b,i,j]](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
    z[b,i,d] = sum[j](p[b,i,j] * v[b,j,d])
"""
FINITE = {
    "filled": (MASKS_ROWS, "s.masked_fill(~m, -1e9).softmax(-1)"),
    "compared": (MASKS_ROWS, "torch.softmax(s.masked_fill(m == 0, -1e30), 1)"),
    "added": (MASKS_ROWS, "torch.softmax(s + (1.0 - m.to(s)) * -10000.0, -1)"),
    "the least number": (MASKS_ROWS, "torch.where(m, s, torch.finfo(s.dtype).min).softmax(-1)"),
    "causal": (CAUSAL, "s.masked_fill(torch.ones_like(s).triu(1).bool(), -1e9).softmax(-1)"),
    "by products": (
        CAUSAL,
        "(s * s.new_ones(s.shape).tril() - 1e4 * s.new_ones(s.shape).triu(1)).softmax(-1)",
    ),
    "by hand": (
        MASKS_ROWS,
        "(lambda e: e / e.sum(-1, keepdim=True))(s.masked_fill(~m, -1e7).exp())",
    ),
    "divided later": (
        HEADS,
        "((q @ k.mT).masked_fill(~m, -1e9) / k.size(-1)**0.5).softmax(-1) @ v",
    ),
    "given to torch": (HEADS, "F.scaled_dot_product_attention(q, k, v, (~m).to(q) * -1e6)"),
}
MASKS_OTHER = {
    "inverted": (MASKS_ROWS, "s.masked_fill(m, -1e9).softmax(-1)"),
    "along the other index": (MASKS_ROWS, "s.masked_fill(~m, -1e9).softmax(0)"),
    "after it": (MASKS_ROWS, "s.softmax(-1).masked_fill(~m, 0)"),
    "by 0": (MASKS_ROWS, "(s * m).softmax(-1)"),
    "capped too": (MASKS_ROWS, "s.clamp(-1e4, 1e4).masked_fill(~m, -1e9).softmax(-1)"),
    "by a large number": (MASKS_ROWS, "s.masked_fill(~m, 1e9).softmax(-1)"),
    "scaled twice": (HEADS, "((q @ k.mT).masked_fill(~m, -1e9) / k.size(-1)).softmax(-1) @ v"),
}


@pytest.mark.parametrize("name", FINITE)
def test_a_finite_number_in_a_mask_is_a_finding_beside_the_grade(name):
    formula, body = FINITE[name]
    verdict = judge(body, formula)
    assert verdict.same, str(verdict)
    assert "finite-mask" in find_codes(verdict)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] if n == "capped too" else []) for n in MASKS_OTHER],
)
def test_another_mask_is_another_function(name):
    formula, body = MASKS_OTHER[name]
    assert judge(body, formula).same is False


# Code that returns fewer results than the formula has: judged and explained by what it returns.

EXP = "x[N, D]; w[D, K]; y[n,k] = exp(sum[d](x[n,d] * w[d,k]))"
TWO = "x[N, D]; w[D, K]; h[n,k] = sum[d](x[n,d] * w[d,k]); y[n,k] = exp(h[n,k]); return y, h"
MISSING_PRODUCT = "A[M, K]; B[K, N]; C[i,j] = sum[k](A[i,k] * B[k,j])"


def test_what_is_not_returned_differs_and_says_what_to_do():
    verdict = judge("torch.exp(x @ w)", TWO)
    assert verdict.same is False
    assert verdict.difference == (
        "the code does not return h; if that is meant, end the formula with: return y"
    )
    assert judge("torch.exp(x @ w)", EXP).same is True


def test_gradients_are_of_what_is_returned():
    assert judge("torch.exp(x @ w)", EXP, backward=True).same is True
    assert judge("torch.exp(x.detach() @ w)", EXP, backward=True).same is False


@pytest.mark.slow
def test_a_mistake_is_explained_by_what_is_returned():
    verdict = judge("torch.exp(x @ w * 2)", TWO)
    assert verdict.same is False
    assert verdict.difference.startswith("y[0, 0] is")
    assert "DROP the factor 2" in verdict.edit


@pytest.mark.slow
def test_a_branch_at_a_hundred_is_reached():
    verdict = judge("A @ B if A.shape[0] < 100 else A @ B + 1", MISSING_PRODUCT)
    assert verdict.same is False
    assert verdict.sizes[-1]["M"] > 100
