"""Code that returns fewer results than the formula has: judged and explained by what it returns."""

import pytest
import torch

from derive import check, parse

TWO = parse("x[N, D]; w[D, K]; h[n,k] = sum[d](x[n,d] * w[d,k]); y[n,k] = exp(h[n,k]); return y, h")

ONE = parse("x[N, D]; w[D, K]; y[n,k] = exp(sum[d](x[n,d] * w[d,k]))")


def compute(x, w):
    return torch.exp(x @ w)


def compute_twice(x, w):
    return torch.exp(x @ w * 2)


def stop_gradient(x, w):
    return torch.exp(x.detach() @ w)


def branch(A, B):
    return A @ B if A.shape[0] < 100 else A @ B + 1


def test_what_is_not_returned_differs_and_says_what_to_do():
    verdict = check(compute, TWO)
    assert verdict.same is False
    assert verdict.difference == (
        "the code does not return h; if that is meant, end the formula with: return y"
    )
    assert check(compute, ONE).same is True


def test_gradients_are_of_what_is_returned():
    assert check(compute, ONE, backward=True).same is True
    assert check(stop_gradient, ONE, backward=True).same is False


@pytest.mark.slow
def test_a_mistake_is_explained_by_what_is_returned():
    verdict = check(compute_twice, TWO)
    assert verdict.same is False
    assert verdict.difference.startswith("y[0, 0] is")
    assert "DROP the factor 2" in verdict.edit


@pytest.mark.slow
def test_a_branch_at_a_hundred_is_reached():
    verdict = check(branch, parse("A[M, K]; B[K, N]; C[i,j] = sum[k](A[i,k] * B[k,j])"))
    assert verdict.same is False
    assert verdict.sizes[-1]["M"] > 100
