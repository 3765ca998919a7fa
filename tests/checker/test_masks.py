"""Finite numbers that stand for -inf in a mask: one finding, however they are written."""

import pytest
from judged import find_codes, judge

ROWS = "s[N, M]; bool m[N, M]; p[i,j] = softmax[j, m[i,j]](s[i,j])"
CAUSAL = "s[S, S]; p[i,j] = softmax[j, j <= i](s[i,j])"
HEADS = """
    q, k, v[B, S, D]; bool m[B, S, S]
    p[b,i,j] = softmax[j, m[b,i,j]](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
    z[b,i,d] = sum[j](p[b,i,j] * v[b,j,d])
"""
FINITE = {
    "filled": (ROWS, "s.masked_fill(~m, -1e9).softmax(-1)"),
    "compared": (ROWS, "torch.softmax(s.masked_fill(m == 0, -1e30), 1)"),
    "added": (ROWS, "torch.softmax(s + (1.0 - m.to(s)) * -10000.0, -1)"),
    "the least number": (ROWS, "torch.where(m, s, torch.finfo(s.dtype).min).softmax(-1)"),
    "causal": (CAUSAL, "s.masked_fill(torch.ones_like(s).triu(1).bool(), -1e9).softmax(-1)"),
    "by products": (
        CAUSAL,
        "(s * s.new_ones(s.shape).tril() - 1e4 * s.new_ones(s.shape).triu(1)).softmax(-1)",
    ),
    "by hand": (ROWS, "(lambda e: e / e.sum(-1, keepdim=True))(s.masked_fill(~m, -1e7).exp())"),
    "divided later": (
        HEADS,
        "((q @ k.mT).masked_fill(~m, -1e9) / k.size(-1)**0.5).softmax(-1) @ v",
    ),
    "given to torch": (HEADS, "F.scaled_dot_product_attention(q, k, v, (~m).to(q) * -1e6)"),
}
OTHER = {
    "inverted": (ROWS, "s.masked_fill(m, -1e9).softmax(-1)"),
    "along the other index": (ROWS, "s.masked_fill(~m, -1e9).softmax(0)"),
    "after it": (ROWS, "s.softmax(-1).masked_fill(~m, 0)"),
    "by 0": (ROWS, "(s * m).softmax(-1)"),
    "capped too": (ROWS, "s.clamp(-1e4, 1e4).masked_fill(~m, -1e9).softmax(-1)"),
    "by a large number": (ROWS, "s.masked_fill(~m, 1e9).softmax(-1)"),
    "scaled twice": (HEADS, "((q @ k.mT).masked_fill(~m, -1e9) / k.size(-1)).softmax(-1) @ v"),
}


@pytest.mark.parametrize("name", FINITE)
def test_a_finite_number_in_a_mask_is_a_finding_beside_the_grade(name):
    formula, body = FINITE[name]
    verdict = judge(body, formula)
    assert verdict.same, str(verdict)
    assert "finite-mask" in find_codes(verdict)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n == "capped too" else []) for n in OTHER]
)
def test_another_mask_is_another_function(name):
    formula, body = OTHER[name]
    assert judge(body, formula).same is False
