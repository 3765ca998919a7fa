"""Loops over blocks: what they name hides nothing that the formula names."""

import pytest
import torch

from derive import build, parse
from derive.backend.to_module import Header, to_module
from derive.compiler import Built
from derive.frontend.from_sympy import to_system
from derive.judge.loops import evaluate_loops
from derive.judge.samples import draw_inputs
from derive.plan.blocks import find_body, find_indices, find_region, make_tiled
from derive.plan.build import make_plan


def test_rows_and_columns_of_one_tensor_are_not_both_at_hand_in_a_block():
    text = "a[N]; b[N]\nx[i,j] = tanh(a[i] * b[j])\ny[i,j] = exp(x[i,j] * sin(x[j,i]))"
    built = build(parse(text), sizes=dict(N=4096))
    inside = [step.name for tile in built.plan.tiles for step in built.plan.steps[tile.first :]]
    assert inside != ["x", "y"]
    built.judge()


def test_a_loop_in_a_loop_joins_what_both_leave():
    """The scores are returned, so that both loops join their blocks."""
    text = "q[B, N, D]; k[B, M, D]\ns[b,i,j] = sum[d](tanh(q[b,i,d] + k[b,j,d]))\n"
    text += "z[b,i] = max[j](s[b,i,j])\nreturn z, s"
    system = to_system(parse(text))
    plan = make_plan(system, dict.fromkeys("BNMD", 64))
    for name in "bi":
        (index,) = [i for i in find_indices(plan) if i.name == name]
        plan = make_tiled(
            plan, find_body(find_region(plan), index, is_summed=False, longest=True), 2
        )
    assert [len(tile.joined) for tile in plan.tiles] == [2, 2]
    source = to_module(plan, "scores", Header("", "", "a formula", "derive build"))
    Built("scores", parse(text), system, plan, source).judge(2)


def test_a_tensor_is_not_cut_into_slivers():
    """A loop over rows is faster than a loop over the entries of a row."""
    text = """
        h[N, N]; D[N, N]; v[N, N, N, N]
        F[m,n] = h[m,n] + sum[r, s](D[r,s] * (v[m,n,r,s] - v[m,r,n,s]/2))
    """
    passes = build(text, sizes={"N": 48}, backward=True).passes
    assert passes.backward.tile.index.name not in ("r", "s")


def test_what_a_block_repeats_is_as_long_as_the_block_even_the_last():
    """One weight a head is repeated over the samples of a block."""
    formula = parse("""
        p, o[B, H, N, N]; v[B, H, N, D]; w[H]
        z[b,h,i,e] = sum[j]((softmax[j](p[b,h,i,j]) - w[h] * softmax[j](o[b,h,i,j])) * v[b,h,j,e])
    """)
    built = build(formula, sizes=dict(B=4, H=8, N=384, D=64))
    assert "expand(" in built.source
    built.judge(2)
    inputs = draw_inputs(built.system, dict(B=5, H=3, N=4, D=2), 0)
    torch.testing.assert_close(
        built.function(**inputs, block=2), evaluate_loops(formula, inputs), rtol=1e-9, atol=1e-9
    )


def test_a_loop_has_the_functions_that_its_blocks_are_cut_with():
    text = (
        "x[L]; w[K]; size S; index l < L; index k < K\n"
        "y[l] = max[k, S*l + k < L](abs(x[S*l + k] - w[k]))"
    )
    built = build(parse(text), sizes=dict(L=65536, K=512, S=2))
    assert built.plan.tiles
    assert built.judge(2).agrees


def test_a_convolution_without_channels_keeps_the_place_of_its_call_in_a_loop():
    text = """
        A[H, W]; B[3, 3]; index i < H - 2; index j < W - 2
        C[i,j] = sum[k, l](A[i + k,j + l] * B[k,l]); O[i,j] = {}; return O
    """
    for value in ("relu(C[i,j])", "softmax[j](C[i,j])", "C[i,j]**2 + i"):
        for sizes in (dict(H=9, W=8), dict(H=1030, W=1022)):
            build(text.format(value), sizes=sizes, memory="16MiB").judge()


SHIFTS = {
    "one offset": (
        "x[B, C, L + 8]; y[B, C, L]; index k < 9; z[b,k,t] = sum[c](y[b,c,t] * x[b,c,t + k])",
        dict(B=8, C=32, L=1024),
    ),
    "two offsets, of which one is a view": (
        "x[C, H + 6, W + 6]; y[C, H, W]; index u, v < 7\n"
        "z[u,v,h,w] = sum[c](y[c,h,w] * x[c,h + u,w + v])",
        dict(C=64, H=32, W=32),
    ),
    "places far apart": (
        "x[B, C, 2*L + 8]; y[B, C, L]; index k < 9\n"
        "z[b,t] = sum[k](exp(-sum[c](abs(y[b,c,t] - x[b,c,2*t + k]))))",
        dict(B=8, C=32, L=1024),
    ),
}


@pytest.mark.parametrize(("text", "sizes"), SHIFTS.values(), ids=SHIFTS)
def test_a_loop_over_the_positions_in_windows_is_given_slices(text, sizes):
    built = build(parse(text), sizes=sizes)
    assert "in _split_windows(" in built.source
    built.judge(2)
    small = draw_inputs(built.system, dict.fromkeys(sizes, 3), 0)
    whole = build(parse(text), cells=False).function
    leaves = [value.requires_grad_() for value in small.values()]
    wanted = torch.autograd.grad(whole(**small).square().sum(), leaves)
    for block in (1, 2, 4, 100):
        found = torch.autograd.grad(built.function(**small, block=block).square().sum(), leaves)
        torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)
