"""Precision is part of the code: shorter floats, narrow integers, another way for another type."""

import numpy as np
import pytest
import torch
from judged import find_codes, judge

from derive import DeriveError, check, from_torch, parse

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
