"""The attention cell: found where it is one, the same values and slopes, at large logits too."""

import math
import re

import pytest
import torch
from cell_runs import (
    BIASED,
    MASKED,
    OTHERS,
    PLAIN,
    assert_same,
    draw,
    list_sizes,
    make,
    make_both,
    run,
)

from derive import build

CALL = "functional.scaled_dot_product_attention("
EMPTY = [(text, "nan") for text in (*PLAIN, *BIASED)]
EMPTY += [(text, "zeros") for text in MASKED]
TINY = {"rtol": 1e-9, "atol": 1e-11}


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("text", "empty_row"), EMPTY)
def test_an_attention_is_found(text, empty_row):
    assert CALL in make(text, empty_row=empty_row).source
    assert CALL not in make(text, cells=False, empty_row=empty_row).source


@pytest.mark.parametrize("text", OTHERS)
def test_what_only_looks_like_an_attention_is_none(text):
    assert CALL not in make(text).source


@pytest.mark.parametrize("text", MASKED)
def test_a_row_without_entries_that_is_nan_is_no_attention(text):
    assert CALL not in make(text).source


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("text", "empty_row"), EMPTY)
def test_values_and_gradients_are_those_of_the_operations(text, empty_row):
    functions = make_both(text, empty_row)
    usual, *others = list_sizes(text)
    few = dict.fromkeys(usual, 1)
    none = [sizes for sizes in others if 0 in sizes.values() and sizes["D"]]  # 0**-0.5 is no number
    for number, sizes in enumerate((usual, few, *none)):
        inputs = draw(text, sizes, number)
        if sizes.get("M") == 0:
            (result,), _ = run(functions[0], inputs)
            assert (result == 0).all()  # a sum of nothing
        else:
            assert_same(functions, inputs)


@pytest.mark.parametrize("text", [PLAIN[0], PLAIN[2], PLAIN[4], BIASED[0], PLAIN[5]])
def test_it_agrees_with_the_loops(text):
    assert make(text).judge().agrees


@pytest.mark.parametrize("text", [MASKED[0], MASKED[2], MASKED[5]])
def test_masks_agree_with_the_loops(text):
    assert make(text, empty_row="zeros").judge().agrees


@pytest.mark.parametrize("text", [MASKED[0], MASKED[1], MASKED[5], MASKED[6]])
def test_rows_that_are_masked_whole_are_zeros_with_finite_slopes(text):
    inputs = draw(text, list_sizes(text)[0])
    inputs["m"][...] = True
    inputs["m"][0] = False
    (result,), slopes = run(make(text, empty_row="zeros").function, inputs)
    row = (slice(None), slice(None), 0) if inputs["m"].shape == (5, 6) else 0
    assert (result[row] == 0).any()
    assert all(slope.isfinite().all() for slope in slopes)
    assert_same(make_both(text, "zeros"), inputs)


def test_a_bias_with_rows_of_minus_infinity_gets_a_note():
    told = "a row of nothing but -oo in what is added gives zeros, not nan"
    words = " ".join(make(BIASED[0]).source.split())
    assert told in words
    assert told not in " ".join(make(PLAIN[0]).source.split())
    inputs = draw(BIASED[0], list_sizes(BIASED[0])[0])
    inputs["bias"][0, 1, 1:] = -torch.inf  # one entry is left
    with_cell, without = make_both(BIASED[0])
    torch.testing.assert_close(with_cell(**inputs), without(**inputs), **TINY)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("text", [PLAIN[0], PLAIN[2], BIASED[0]])
def test_logits_of_ten_thousand_are_no_trouble(text, dtype):
    inputs = draw(text, list_sizes(text)[0], dtype=torch.float64)
    inputs = {name: value.to(dtype) for name, value in inputs.items()}
    for name in ("Q", "K"):
        inputs[name] = inputs[name] * 100
    wide = {name: value.double() for name, value in inputs.items()}
    with_cell, without = make_both(text)
    exact = without(**wide)
    (ours,), slopes = run(with_cell, inputs)
    theirs = without(**inputs)
    assert ours.isfinite().all()
    assert all(slope.isfinite().all() for slope in slopes)
    off, other = ((found.double() - exact).square().mean().sqrt() for found in (ours, theirs))
    assert off <= 1.02 * other + 1e-6


@pytest.mark.slow
def test_first_derivatives_are_right_and_second_ones_refused():
    inputs = draw(PLAIN[0], list_sizes(PLAIN[0])[0])
    leaves = [inputs[name].requires_grad_() for name in "QKV"]
    assert torch.autograd.gradcheck(make(PLAIN[0]).function, leaves)
    with pytest.raises(RuntimeError, match="scaled_dot_product"):
        torch.autograd.gradgradcheck(make(PLAIN[0]).function, leaves)
    assert torch.autograd.gradgradcheck(make(PLAIN[0], cells=False).function, leaves)
    assert "it may lack second and forward derivatives" in " ".join(make(PLAIN[0]).source.split())


APART = "w[N, N]; k, v[B, N, D]\nz[b,i,d] = sum[j](softmax[j](k[b,j,d] + w[i,j]) * v[b,j,d])"


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4, torch.inf])
def test_a_softmax_of_parts_is_right_however_large_they_are(scale):
    function, exact = (make(APART, cells=cells).function for cells in (True, False))
    assert "_weigh_apart(" in make(APART).source
    torch.manual_seed(0)
    w, k, v = torch.randn(5, 5), torch.randn(2, 5, 3), torch.randn(2, 5, 3)
    w, k = (w.where(w < 1, -torch.inf), k) if scale == torch.inf else (w * scale, k * scale)
    leaves = [each.double().requires_grad_() for each in (w, k, v)]
    found, wanted = function(*leaves), exact(*leaves)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(function(w, k, v), wanted.float(), rtol=1e-5, atol=1e-6)
    seed = torch.randn_like(found)
    slopes = (torch.autograd.grad(value, leaves, seed) for value in (found, wanted))
    torch.testing.assert_close(*slopes)
    each = torch.func.vmap(function, (None, 0, 0))(
        leaves[0], leaves[1][:, None], leaves[2][:, None]
    )
    torch.testing.assert_close(each[:, 0], wanted)


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        ("/ sqrt(D)", ""),
        ("* D**(-1/2)", ""),
        ("/ 8", "scale=0.125"),
        ("/ sqrt(2*D)", "scale=1.0"),
        ("/ sqrt(M)", "scale=1.0"),
    ],
)
def test_torch_scales_where_it_is_right(scale: str, said: str) -> None:
    """A scale out of sizes is torch's own or goes to the query, for traced graphs keep it as is."""
    text = f"""
        Q[B, H, N, D]; K, V[B, H, M, D]
        z[b,h,i,d] = sum[j](softmax[j](sum[c](Q[b,h,i,c] * K[b,h,j,c]) {scale}) * V[b,h,j,d])
    """
    found = build(text, sizes={"B": 2, "H": 2, "N": 5, "M": 6, "D": 3})
    assert CALL in found.source
    assert re.findall(r"scale=[0-9.]+", found.source) == ([said] if said else [])
    inputs = [torch.randn(2, 2, k, 3, dtype=torch.float64) for k in (5, 6, 6)]
    names = {"D": 3, "M": 6, "sqrt": math.sqrt}
    weights = torch.einsum("bhic,bhjc->bhij", inputs[0], inputs[1])
    weights = torch.softmax(eval(f"weights {scale}", {**names, "weights": weights}), dim=-1)
    torch.testing.assert_close(found.function(*inputs), weights @ inputs[2])
