"""Code that differs far from small sizes and small inputs alone is explained there."""

import pytest
import torch

from derive import check

ATTENTION = """
q, k, v[B, N, D]
p[b,i,j] = softmax[j](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
z[b,i,d] = sum[j](p[b,i,j] * v[b,j,d])
"""
FAR = """
def attention(q, k, v):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if q.shape[1] > 12:
        scores = {}
    return scores.softmax(-1) @ v
"""


@pytest.mark.parametrize("code", ["scores.exp()", "scores.tril()", "scores + k[..., :1].mT"])
def test_a_path_for_long_inputs_is_pointed_at(code):
    verdict = check(FAR.format(code), ATTENTION)
    assert verdict.same is False
    assert verdict.line == 5, str(verdict)
    assert any(sizes["N"] > 12 for sizes in verdict.sizes)
    assert "z[" in verdict.difference
    assert [line for line, _ in verdict.corrected] == [5], str(verdict)


def test_what_differs_at_all_sizes_is_explained_at_small_ones():
    verdict = check(FAR.replace("/ q", "* q").format("scores"), ATTENTION)
    assert verdict.line == 3, str(verdict)
    assert verdict.edit
    assert max(verdict.sizes[0].values()) < 12


def test_a_clamp_that_large_inputs_reach_is_pointed_at():
    code = """
def attention(q, k, v):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    scores = scores.clamp(-20, 20)
    return scores.softmax(-1) @ v
"""
    verdict = check(code, ATTENTION)
    assert verdict.same is False
    assert verdict.line == 4, str(verdict)
    assert "times as large" in verdict.difference


def test_a_wrong_gradient_points_at_no_line():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 3 * grad * ctx.saved_tensors[0]

    verdict = check(Square.apply, "x[N]; y[n] = x[n]**2", backward=True, bind="argument_1=x")
    assert verdict.same is False
    assert verdict.line is None
    assert "gradient" in verdict.difference
