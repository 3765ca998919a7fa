"""Precision is part of the code: shorter floats, narrow integers, another way for another type."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from derive import DeriveError, check, from_torch, parse

DOUBLE = "x[N]; y[n] = 2*x[n]"
PRODUCT = "A[M, K]; B[K, N]; C[i,j] = sum[k](A[i,k] * B[k,j])"
ENTRIES = "int t[S] < V; E[V, D]; y[s,d] = E[t[s],d]"
NORM = """
x[N, D]; g[D]; scalar eps = 1e-6
y[n,d] = x[n,d]*g[d]/sqrt(mean[c](x[n,c]**2) + eps)
"""


def halve(x):
    return (x.half() * 2).to(x.dtype)


def multiply_shortly(A, B):
    return (A.bfloat16() @ B.bfloat16()).float()


def multiply_by_autocast(A, B):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return A @ B


def triple_singles(x):
    return 3 * x if x.dtype == torch.float32 else 2 * x


def triple_bfloats(x):
    return 3 * x if x.dtype == torch.bfloat16 else 2 * x


def forget_halves(x):
    return x if str(x.dtype) == "torch.float16" else 2 * x


def look_at_bytes(x):
    return x * (2 if x.element_size() == 8 else 2.001)


def look_at_default(x):
    return x * (2 if torch.get_default_dtype() == torch.float64 else 2.001)


def round_by_numpy(x):
    return torch.from_numpy(x.detach().numpy().astype(np.float16).astype(np.float64)) * 2


def index_by_int8(t, E):
    return E[t.to(torch.int8).long()]


def count_in_int8(x):
    return 2 * x[torch.arange(x.shape[0], dtype=torch.int8).long()]


def count_in_uint8(x):
    return 2 * x[torch.arange(x.shape[0]).byte().long()]


def mask_in_uint8(x):
    return 2 * x * torch.ones(x.shape[0], dtype=torch.uint8)


def mask_in_single(x):
    return 2 * x * torch.ones(x.shape[0], dtype=torch.float32)


def normalize_in_single(x, g, eps=1e-6):
    h = x.float()
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * g


def widen_what_is_short(x, g, eps=1e-6):
    if x.dtype != torch.float64:
        x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * g


@pytest.mark.parametrize(
    ("code", "formula", "line"),
    [
        (halve, DOUBLE, "half computes in float16"),
        (multiply_shortly, PRODUCT, "bfloat16 computes in bfloat16"),
        (multiply_by_autocast, PRODUCT, "matmul computes in bfloat16"),
        (widen_what_is_short, NORM, "takes another way in"),
        (normalize_in_single, NORM, "float computes in float32"),
    ],
)
def test_what_is_right_but_for_its_type_agrees_and_is_named(code, formula, line):
    verdict = check(code, parse(formula))
    assert (verdict.same, verdict.grade) == (True, "agrees")
    assert line in str(verdict)


@pytest.mark.parametrize(
    ("code", "formula"),
    [
        *((code, DOUBLE) for code in (triple_singles, triple_bfloats, forget_halves)),
        *((code, DOUBLE) for code in (look_at_bytes, look_at_default, round_by_numpy)),
        *((code, DOUBLE) for code in (count_in_int8, count_in_uint8)),
        (index_by_int8, ENTRIES),
    ],
)
def test_another_value_in_another_type_is_different(code, formula):
    verdict = check(code, parse(formula))
    assert verdict.same is False
    assert verdict.difference


@pytest.mark.parametrize(
    ("code", "formula"),
    [(mask_in_uint8, DOUBLE), (mask_in_single, DOUBLE)],
)
def test_what_loses_nothing_is_proved(code, formula):
    verdict = check(code, parse(formula))
    assert (verdict.same, verdict.grade) == (True, "proved")


def test_narrow_integers_have_no_place_in_equations():
    assert from_torch(mask_in_uint8, "x[N]").name == "mask_in_uint8"
    with pytest.raises(DeriveError, match="lift-narrow"):
        from_torch(count_in_int8, "x[N]")


def halve_beyond(x):
    return (x.half() if x.shape[0] > 40 else x).to(x.dtype) * 2


def halve_ones(x):
    return (x.float() if x.shape[0] == 1 else x).to(x.dtype) * 2


def cut_far_out(x):
    return (x.bfloat16() if x.abs().max() > 50 else x).to(x.dtype) * 2


@pytest.mark.parametrize("code", [halve_beyond, halve_ones, cut_far_out])
def test_a_shorter_float_in_a_branch_is_named(code):
    verdict = check(code, parse(DOUBLE))
    assert (verdict.same, verdict.grade) == (True, "agrees"), str(verdict)
    assert "lower-precision" in {finding.code for finding in verdict.findings}


@pytest.mark.parametrize(
    ("code", "text", "same"),
    [
        ("p.clamp(min=1e-12).log()", "p[N] > 0; y[n] = log(p[n])", False),
        ("(1 / p).clamp(max=1e15)", "p[N] > 0; y[n] = 1/p[n]", False),
        ("p.clamp(min=1e-12).log()", "p[N] > 0; y[n] = log(max(p[n], 1e-12))", True),
        ("p.log().clamp(min=-100)", "p[N] > 0; y[n] = log(p[n])", True),
        ("torch.log(p)", "0 < p[N] < 1; y[n] = log(p[n])", True),
    ],
)
def test_numbers_above_0_are_tried_as_far_as_float32_holds_them(code, text, same):
    verdict = check(f"import torch\ndef f(p):\n    return {code}\n", text)
    assert verdict.same is same, str(verdict)
    assert ("far-below" in {finding.code for finding in verdict.findings}) is ("-100" in code)
