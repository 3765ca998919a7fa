"""Sizes that code ties together are found from the numbers that clash, in a few tries."""

import math

import pytest
import torch
from torch import nn

from derive import parse
from derive.checker import pick
from derive.checker.load import CannotRunError, load
from derive.checker.pick import pick_program
from derive.checker.ties import compare_shapes, guess_ties, read_clashes, set_sizes
from derive.frontend.system import to_system

SIZES = {"B": 2, "S": 7, "E": 13, "H": 3, "D": 5}


def make(*shape):
    return torch.zeros(shape)


@pytest.mark.parametrize(
    ("act", "numbers"),
    [
        (lambda: make(2, 3) + make(2, 5), (3, 5)),
        (lambda: make(2, 3) @ make(4, 5), (3, 4)),
        (lambda: make(2, 3) @ make(5), (3, 5)),
        (lambda: make(3) @ make(5, 2), (3, 5)),
        (lambda: torch.tensordot(make(2, 3), make(4, 5), 1), (3, 4)),
        (lambda: torch.stack([make(2), make(3)]), (2, 3)),
        (lambda: make(2)[make(3).bool()], (2, 3)),
        (lambda: make(7, 2, 3) @ make(7, 4, 5), (3, 4)),
        (lambda: torch.einsum("ij,jk->ik", make(2, 3), make(4, 5)), (3, 4)),
        (lambda: torch.cat([make(2, 3), make(4, 5)], 0), (3, 5)),
        (lambda: make(3).expand(2, 5), (5, 3)),
        (lambda: make(2, 3, 5).view(2, 3, 7), (42, 30)),
        (lambda: nn.LayerNorm(6)(make(2, 5)), (6, 5)),
        (lambda: nn.Linear(6, 2)(make(2, 5)), (5, 6)),
    ],
)
def test_the_numbers_that_clash_are_read(act, numbers):
    with pytest.raises((RuntimeError, ValueError, IndexError)) as caught:
        act()
    assert sorted(numbers) in [sorted(each) for each in read_clashes(str(caught.value))]


def test_what_says_no_numbers_tells_nothing():
    assert not list(read_clashes("embed_dim must be divisible by num_heads"))
    assert not list(compare_shapes((3, 5), (5, 3)))
    assert list(compare_shapes((13, 13), (13, 15))) == [(13, 15)]


def test_a_clash_names_a_tie():
    assert guess_ties([(13, 15)], SIZES, (), ()) == [("E", ("H", "D"))]
    assert guess_ties([(182, 210)], SIZES, (), ()) == [("E", ("H", "D"))]  # B*S*E and B*S*H*D
    assert guess_ties([(3, 5)], SIZES, (), ()) == [("D", ("H",))]
    assert guess_ties([(3, 5)], SIZES, (), ("D",)) == [("H", ("D",))]
    assert guess_ties([(3, 5)], SIZES, (), ("H", "D")) == []
    assert guess_ties([(13, 15)], SIZES, (), ("E",)) == []
    assert guess_ties([(11, 17)], SIZES, (), ()) == []


def test_a_tie_holds_after_another():
    ties = (("E", ("H", "D")), ("D", ("S",)))
    assert set_sizes(SIZES, ties) == {"B": 2, "S": 7, "E": 21, "H": 3, "D": 7}


class Scrambled(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.heads = num_heads
        self.q_proj = nn.Linear(d_model, d_model, bias=False)
        self.k_proj = nn.Linear(d_model, d_model, bias=False)
        self.v_proj = nn.Linear(d_model, d_model, bias=False)
        self.out_proj = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x):
        b, s, e = x.shape
        q, k, v = (
            layer(x).view(b, self.heads, s, e // self.heads)
            for layer in (self.q_proj, self.k_proj, self.v_proj)
        )
        p = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)
        return self.out_proj((p @ v).transpose(1, 2).reshape(x.shape))


HEADS = """
x[B, S, E]; W_q, W_k, W_v[E, H*D]; W_o[H*D, E]
size H
index h < H
index d < D
q[b,h,i,d] = sum[e](x[b,i,e] * W_q[e,h*D + d])
k[b,h,j,d] = sum[e](x[b,j,e] * W_k[e,h*D + d])
v[b,h,j,d] = sum[e](x[b,j,e] * W_v[e,h*D + d])
p[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
y[b,i,e] = sum[h, d](sum[j](p[b,h,i,j] * v[b,h,j,d]) * W_o[h*D + d,e])
"""


def count_draws(monkeypatch, code, text, seen):
    """What is picked; the sizes at which it was tried are added."""
    system = to_system(parse(text))
    find = pick.find_attempts

    def look(task):
        for attempt in find(task):
            seen.append(attempt.draws.first.sizes)
            yield attempt

    monkeypatch.setattr(pick, "find_attempts", look)
    return pick_program(load(code), system, {}, {})


def test_a_class_with_a_product_takes_two_draws(monkeypatch):
    seen = []
    picked = count_draws(monkeypatch, Scrambled, HEADS, seen)
    assert len(seen) <= 3  # free ones, those that run, and the next ones, which are not tried
    assert all(d.sizes["E"] == d.sizes["H"] * d.sizes["D"] for d in picked.draws)
    assert len(picked.draws) == 3


def test_a_product_of_the_code_alone_is_found(monkeypatch):
    def merge(x, w):
        split = x.view(x.shape[0], x.shape[1], w.shape[0], w.shape[1])
        return torch.einsum("bsnk,nkl->bsl", split, w)

    text = "x[B, S, E]; w[N, K, L]; size E\ny[b,s,l] = sum[n, k](x[b,s,(n*K + k) % E] * w[n,k,l])"
    seen = []
    picked = count_draws(monkeypatch, merge, text, seen)
    assert len(seen) <= 3
    assert all(d.sizes["E"] == d.sizes["N"] * d.sizes["K"] for d in picked.draws)


def test_equal_sizes_are_found_and_said(monkeypatch):
    def hide(x, w, u):
        return (x * w) @ u

    text = "x[N, M]; w[N]; u[K, L]; index m < M\ny[n, l] = sum[k](x[n, k % M] * w[n] * u[k, l])"
    seen = []
    picked = count_draws(monkeypatch, hide, text, seen)
    assert len(seen) <= 6
    says = [finding.says for finding in picked.findings]
    assert any("only where N = M = K" in each for each in says), says


def test_what_never_runs_says_its_first_error():
    def broken(x):
        return x.view(3, 1000, -1)

    with pytest.raises(CannotRunError, match="is invalid for input of size"):
        pick_program(load(broken), to_system(parse("x[N]; y[n] = 2*x[n]")), {}, {})


def test_no_sizes_are_tried_for_what_no_sizes_cure(monkeypatch):
    class Unmade(Scrambled):
        def forward(self, x):
            return self.out(x)

    def lost(x, *weights):
        return x.lost()

    for code, most in ((Unmade, 12), (lost, 1)):
        seen = []
        with pytest.raises(CannotRunError, match="has no attribute"):
            count_draws(monkeypatch, code, HEADS, seen)
        assert 0 < len(seen) <= most
        monkeypatch.undo()
