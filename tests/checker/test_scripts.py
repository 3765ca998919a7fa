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


HEADS = "x[B, S, C]; w[H, C, F]; q[b,h,i,f] = sum[c](x[b,i,c] * w[h,c,f])"
LOOP = "w = torch.zeros((heads, C, width))\nfor i in range(heads):\n    q[{}] = x @ w[i, ...]\n"


@pytest.mark.parametrize(
    ("text", "formula", "same", "said"),
    [
        (LOOP.format(":, i"), HEADS, True, "heads is not made: it is read as H"),
        (LOOP.format("i, ..."), HEADS, False, "heads is not made: it is read as H"),
        (LOOP.format("i, ..."), HEADS, False, "say --bind q=zeros(H, B, S, F),return=q.permute(1"),
        # what a number is, by the tensor that is made with it and against its name
        ("w = torch.randn(n, b)\ny = x @ w.view(n, b)", "x[B, N]; w[N, M]; "
         "y[b,m] = sum[n](x[b,n] * w[n,m])", True, "b is not made: it is read as M"),
        # by its name alone
        ("y = x.softmax(-1) / d_k**0.5", "x[N, D]; y[n,d] = softmax[d](x[n,d]) / sqrt(D)", True,
         "d_k is not made: it is read as D"),
        # nobody says: one extent alone fits
        ("y = x * t.view(1, other)", "x[P, Q]; t[Q]; y[p,q] = x[p,q] * t[q]",
         True, "other is not made: it is read as Q"),
        # nobody says: several would do
        ("y = x / count", "x[P, Q]; y[p,q] = x[p,q] / Q", None, "--bind count=Q"),
        ("y = x / count", "x[P, Q]; y[p,q] = 2*x[p,q] / Q", False, ""),
    ],
)  # fmt: skip
def test_a_number_that_is_never_made_is_bound_where_it_is_told(text, formula, same, said):
    verdict = check(f"{text}\n", formula)
    assert verdict.same is same, str(verdict)
    assert said in str(verdict)


MADE = (
    "import torch\nx = torch.randn(3, 4)\nw = torch.randn(4, 5)\nv = torch.randn(4, 5)\nu = x @ v\n"
)


@pytest.mark.parametrize(
    ("end", "name", "same", "said"),
    [
        ("y = x @ w\nz = y + u\n", "y", True, "proved"),
        ("", "u", None, "made from v, which the script draws at random"),
    ],
)
def test_what_the_result_is_not_made_from_is_left_out(tmp_path, end, name, same, said):
    path = tmp_path / "script.py"
    path.write_text(f"import torch\n{MADE}{end}", encoding="utf-8")
    verdict = check(f"{path}:{name}", "x[N, C]; w[C, F]; y[n,f] = sum[c](x[n,c] * w[c,f])")
    assert verdict.same is same, str(verdict)
    assert said in str(verdict)
