"""Scripts as people paste them: at their own sizes, with their own mistakes."""

import pytest

from derive import check

FORMULA = """
    x[B, N, C]; w_a, w_b[C, F]; r[N, N, F]
    a[b,i,f] = sum[c](x[b,i,c] * w_a[c,f])
    k[b,j,f] = sum[c](x[b,j,c] * w_b[c,f])
    p[b,i,j] = softmax[j](sum[f](a[b,i,f] * (k[b,j,f] + r[i,j,f])) / sqrt(F))
    y[b,i,f] = sum[j](p[b,i,j] * k[b,j,f])
"""
MAKERS = """
x = torch.randn((12, 30, 48))
w_a = torch.randn(48, 56)
w_b = torch.randn(48, 56)
r = torch.randn(30, 30, 56)
"""
FREE = """
a, k = x @ w_a, x @ w_b
s = (a[:, :, None] * (k[:, None] + r)).sum(-1) / a.shape[-1] ** 0.5
y = s.softmax({axis}) @ k
"""
LITERAL = """
a, k = (x.view(360, 48) @ w_a).view(12, 30, 56), (x.view(360, 48) @ w_b).view(12, 30, 56)
s = (a @ k.mT + torch.einsum("bif,ijf->bij", a, r)) / 56**0.5
y = s.softmax({axis}) @ k
"""


@pytest.mark.parametrize("body", [FREE, LITERAL], ids=["free", "literal"])
def test_a_script_of_large_tensors_is_judged(body):
    right = check("import torch\n" + MAKERS + body.format(axis=-1), FORMULA, seconds=120)
    assert right.grade == ("proved" if body is FREE else "identical"), str(right)
    own = {"B": 12, "N": 30, "C": 48, "F": 56}
    assert (body is FREE) == ("own-sizes" in [finding.code for finding in right.findings])
    assert (body is FREE) != (right.sizes == (own,))


def test_a_script_that_holds_at_its_own_sizes_alone_is_judged_there():
    text = "import torch\n" + MAKERS + FREE.format(axis=-1)
    verdict = check(text.replace("a.shape[-1]", "56"), FORMULA, seconds=120)
    assert verdict.same is True, str(verdict)
    assert all(each["F"] == 56 for each in verdict.sizes)


def test_a_script_of_large_tensors_is_explained():
    verdict = check("import torch\n" + MAKERS + FREE.format(axis=1), FORMULA, seconds=120)
    assert verdict.same is False, str(verdict)
    assert "SOFTMAX over j, not i" in verdict.edit
