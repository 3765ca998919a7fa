"""Sizes and inputs that judge a formula: distinct, valid, bounded, in their domain, repeatable."""

from fractions import Fraction
from math import prod
from typing import Any

import pytest
import torch

from derive.frontend.from_einsum import from_einsum
from derive.frontend.from_sympy import from_sympy
from derive.frontend.from_text import parse
from derive.ir import nodes as ir
from derive.judge.loops import evaluate_loops
from derive.judge.samples import choose_sizes, draw_inputs

ATTENTION = (
    "Q, K[B, S, D]; V[B, S, E]; bool m[B, S]\n"
    "a[b,i,j] = softmax[j, m[b,j]](sum[d](Q[b,i,d] * K[b,j,d]))\n"
    "z[b,i,e] = sum[j](a[b,i,j] * V[b,j,e])"
)


def system(text: str) -> ir.System:
    return from_sympy(parse(text))


def shape(tensor: ir.Tensor, sizes: dict[str, int]) -> tuple[int, ...]:
    """The extents by Python itself, from the text of the sizes."""
    from derive.ir.text import to_text

    return tuple(eval(to_text(extent), dict(sizes)) for extent in tensor.shape)


@pytest.mark.parametrize("seed", range(5))
def test_sizes_are_small_and_distinct(seed: int) -> None:
    draws = choose_sizes(system(ATTENTION), count=4, seed=seed)
    assert len({tuple(draw.items()) for draw in draws}) == 4
    for number, draw in enumerate(draws):
        assert sorted(draw) == ["B", "D", "E", "S"]
        assert len(set(draw.values())) == 4
        assert all(2 <= size <= 7 or (size == 1 and number == 1) for size in draw.values())
        assert (1 in draw.values()) == (number == 1)


@pytest.mark.parametrize("seed", range(5))
def test_composite_extents_do_not_coincide(seed: int) -> None:
    formula = "x[B, H*D]; size H; index h < H; index d < D\ny[b,d,h] = x[b, h*D + d]"
    for draw in choose_sizes(system(formula), seed=seed)[::2]:
        assert len({*draw.values(), draw["H"] * draw["D"]}) == 4


@pytest.mark.parametrize(
    "text",
    [
        "R[2*S - 1]; index i, j < S\ny[i,j] = R[j - i + S - 1]",
        "x[S]; index t < S - 4\ny[t] = x[t + 4] + x[5]",
        "x[S]; index t < S - 9\ny[t] = x[t + 9]",
        "x[H, W]; index h < (H - 3)//2 + 1; index w < (W - 3)//2 + 1; index k, l < 3\n"
        "y[h,w] = max[k, l](x[2*h + k,2*w + l])",
        "x[H, W]; w[K, L]; size S, Z; index h < (H - (K - 1)*Z - 1)//S + 1\n"
        "index v < (W - (L - 1)*Z - 1)//S + 1\n"
        "y[h,v] = sum[k, l](x[S*h + Z*k,S*v + Z*l] * w[k,l])",
        "x[S]; size W; index t < S - 2*W; index k < 2*W + 1\ny[t] = sum[k, k <= 2*W](x[t + k])",
    ],
)
def test_extents_are_valid(text: str) -> None:
    formula = parse(text)
    made = from_sympy(formula)
    for seed in range(3):
        for number, draw in enumerate(choose_sizes(made, seed=seed)):
            inputs = draw_inputs(made, draw, number)
            for tensor in made.inputs:
                assert isinstance(tensor, ir.Tensor)
                assert tuple(inputs[tensor.name].shape) == shape(tensor, draw)
                assert min(inputs[tensor.name].shape) >= 1
            named = {size.name: draw[size.name] for size in made.sizes}
            value = evaluate_loops(formula, inputs | named)
            assert min(value.shape) >= (1 if number == 1 else 2)


@pytest.mark.parametrize(
    "einsum", ["ab,bc,cd,de,ef,fg,gh->ah", "abcdefghijklmnopq,a->q", "ij,jk->ik"]
)
def test_work_is_bounded(einsum: str) -> None:
    made = from_sympy(from_einsum(einsum))
    for draw in choose_sizes(made):
        reads = einsum.partition("->")[0].count(",") + 1
        assert prod(draw.values()) * reads <= 200_000
        assert max(draw.values()) <= 8


def test_conditions_have_a_say() -> None:
    banded = system("x[S]; index i < S\ny[i] = sum[j, abs(i - j) <= 5](x[j])")
    assert all(draw["S"] >= 7 for draw in choose_sizes(banded)[::2])
    clipped = system("R[2*C + 1]; size S; index i, j < S\ny[i,j] = R[clip(j - i, -C, C) + C]")
    for seed in range(8):
        draws = choose_sizes(clipped, seed=seed)
        assert any(1 < draw["C"] < draw["S"] - 1 for draw in draws)


DOMAINS: dict[str, Any] = {
    "x[N] > 0": lambda t: (t > 0).all(),
    "x[N] >= 2": lambda t: (t >= 2).all(),
    "x[N] < -1": lambda t: (t < -1).all(),
    "0 < x[N] < 1": lambda t: ((t > 0) & (t < 1)).all(),
    "-1/2 <= x[N] <= 1/2": lambda t: (t.abs() <= 0.5).all() and bool((t < 0).any()),
    "x[N]": lambda t: (t < 0).any() and (t > 0).any(),
}


@pytest.mark.parametrize("declaration", DOMAINS)
def test_domains(declaration: str) -> None:
    made = system(f"{declaration}\ny[i] = x[i]")
    drawn = draw_inputs(made, {"N": 400}, 1)["x"]
    assert drawn.dtype == torch.float64
    assert DOMAINS[declaration](drawn)
    assert draw_inputs(made, {"N": 4}, 1, torch.float32)["x"].dtype == torch.float32


@pytest.mark.parametrize(
    ("bounds", "holds"),
    [
        ("s > 0", lambda s: s > 0),
        ("s <= -2", lambda s: s <= -2),
        ("2 < s < 3", lambda s: 2 < s < 3),
        ("s > N", lambda s: s > 4),
        ("s > 0 = 0.25", lambda s: s > 0),
    ],
)
def test_scalars_keep_their_bounds(bounds: str, holds: Any) -> None:
    made = system(f"x[N]; scalar {bounds}\ny[i] = s * x[i]")
    drawn = [draw_inputs(made, {"N": 4}, seed)["s"] for seed in range(20)]
    assert all(map(holds, drawn))
    assert len({*drawn}) > 10
    assert (drawn[0] == Fraction(1, 4)) == bounds.endswith("= 0.25")


def test_integers_scalars_and_keyword_sizes() -> None:
    made = system("int t[N] < V; E[V]; scalar a, c = 1/4; size W\ny[i] = a * c * E[t[i]] + W")
    sizes = {"N": 200, "V": 3, "W": 5}
    even, odd = draw_inputs(made, sizes, 0), draw_inputs(made, sizes, 1)
    assert sorted(set(even["t"].tolist())) == [0, 1, 2]
    assert even["t"].dtype == torch.int64
    assert 0.5 <= even["a"] <= 1.5
    assert (even["c"], even["W"]) == (Fraction(1, 4), 5)
    assert odd["c"] not in {even["c"], 0}


@pytest.mark.parametrize("seed", range(3))
def test_masks(seed: int) -> None:
    made = system(
        "bool m[B, S]; bool k[N]; x[N]\ny[b,s] = [m[b,s]]\nz[n] = [k[n]] * x[n]\nreturn y, z"
    )
    mask = draw_inputs(made, {"B": 3, "S": 5, "N": 4}, seed)["m"]
    assert mask.dtype == torch.bool
    assert mask.any(0).all()
    assert mask.any(1).all()
    assert not mask.all()
    inputs = draw_inputs(made, {"B": 3, "S": 5, "N": 4}, seed, empty_row=True)
    assert not inputs["m"][-1].any()
    assert inputs["m"][:-1].any(1).all()
    assert not inputs["k"].any()
    assert draw_inputs(made, {"B": 1, "S": 1, "N": 1}, seed)["m"].all()
    assert draw_inputs(made, {"B": 2, "S": 0, "N": 1}, seed)["m"].shape == (2, 0)


@pytest.mark.parametrize(
    ("condition", "least"), [("j <= i", 3), ("i - j <= 2", 5), ("j == i", 3), ("j < 2", 4)]
)
def test_indices_that_are_compared_have_room(condition: str, least: int) -> None:
    made = system(f"x[B, S, M]; y[b,i] = sum[j, {condition}](x[b,i,j])")
    for seed in range(8):
        first, _, last = choose_sizes(made, seed=seed)
        for draw in (first, last):
            assert draw["M"] >= least
            assert draw["S"] >= least or condition == "j < 2"
