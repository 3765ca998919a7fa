"""Code that returns fewer results than the formula has: judged and explained by what it returns."""

import pytest
from judged import judge

EXP = "x[N, D]; w[D, K]; y[n,k] = exp(sum[d](x[n,d] * w[d,k]))"
TWO = "x[N, D]; w[D, K]; h[n,k] = sum[d](x[n,d] * w[d,k]); y[n,k] = exp(h[n,k]); return y, h"
PRODUCT = "A[M, K]; B[K, N]; C[i,j] = sum[k](A[i,k] * B[k,j])"


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
    verdict = judge("A @ B if A.shape[0] < 100 else A @ B + 1", PRODUCT)
    assert verdict.same is False
    assert verdict.sizes[-1]["M"] > 100
