"""Code as equations: proved equal to its formula for all sizes, readable, refused where unsure."""

import math
from types import SimpleNamespace

import pytest
import torch
from lifting import draw_sizes, find_gap, lift_example
from torch.nn import functional

from derive.frontend.from_text import parse
from derive.frontend.system import to_system
from derive.ir.text import to_lines
from derive.prove import prove

ATTENTION = """Q[B, H, S, D]; K, V[B, H, T, D]
index i < S; index j < T
A[b,h,i,j] = softmax[j](sum[d](Q[b,h,i,d] * K[b,h,j,d]) / sqrt(D))
O[b,h,i,d] = sum[j](A[b,h,i,j] * V[b,h,j,d])"""

CAUSAL = """Q, K, V[B, H, S, D]
index i, j < S
A[b,h,i,j] = softmax[j, j <= i](sum[d](Q[b,h,i,d] * K[b,h,j,d]) / sqrt(D))
O[b,h,i,d] = sum[j](A[b,h,i,j] * V[b,h,j,d])"""

MULTI_HEAD = """X[B, S, E]; W_q, W_k, W_v[E, H*D]; W_o[H*D, E]
size H; size D
index i, j < S; index h < H; index d < D
q[b,h,i,d] = sum[e](X[b,i,e] * W_q[e,h*D+d])
k[b,h,j,d] = sum[e](X[b,j,e] * W_k[e,h*D+d])
v[b,h,j,d] = sum[e](X[b,j,e] * W_v[e,h*D+d])
a[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
o[b,h,i,d] = sum[j](a[b,h,i,j] * v[b,h,j,d])
Z[b,i,y] = sum[h,d](o[b,h,i,d] * W_o[h*D+d,y])"""


def by_einsum(Q, K, V):
    scores = torch.einsum("bhid,bhjd->bhij", Q, K) / math.sqrt(Q.shape[-1])
    A = torch.softmax(scores, dim=-1)
    return torch.einsum("bhij,bhjd->bhid", A, V)


def by_bmm(Q, K, V):
    B, H, S, D = Q.shape
    T = K.shape[2]
    q, k, v = Q.reshape(B * H, S, D), K.reshape(B * H, T, D), V.reshape(B * H, T, D)
    weights = functional.softmax(torch.bmm(q, k.transpose(1, 2)) * D**-0.5, -1)
    return torch.bmm(weights, v).view(B, H, S, D)


def by_matmul(Q, K, V):
    scores = Q @ K.transpose(-2, -1) / Q.size(-1) ** 0.5
    return scores.softmax(-1) @ V


def by_sums(Q, K, V):
    scores = (Q.unsqueeze(3) * K.unsqueeze(2)).sum(-1) / math.sqrt(Q.shape[-1])
    scores = scores - scores.max(-1, keepdim=True).values
    e = scores.exp()
    a = e / e.sum(-1, keepdim=True)
    return (a.unsqueeze(-1) * V.unsqueeze(2)).sum(-2)


def by_torch(Q, K, V):
    return functional.scaled_dot_product_attention(Q, K, V)


def over_heads(Q, K, V):
    outs = []
    for h in range(Q.shape[1]):
        weights = torch.softmax(Q[:, h] @ K[:, h].mT / math.sqrt(Q.shape[-1]), -1)
        outs.append(weights @ V[:, h])
    return torch.stack(outs, 1)


def over_heads_in_place(Q, K, V):
    out = torch.empty_like(Q)
    for h in range(Q.shape[1]):
        weights = torch.softmax(Q[:, h] @ K[:, h].mT / math.sqrt(Q.shape[-1]), -1)
        out[:, h] = weights @ V[:, h]
    return out


def causal_filled(Q, K, V):
    S = Q.shape[2]
    mask = torch.triu(torch.ones(S, S, dtype=torch.bool), diagonal=1)
    scores = Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1])
    scores = scores.masked_fill(mask, float("-inf"))
    return torch.softmax(scores, -1) @ V


def causal_filled_in_place(Q, K, V):
    S = Q.shape[2]
    scores = Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1])
    scores.masked_fill_(torch.tril(torch.ones(S, S)) == 0, -torch.inf)
    return torch.softmax(scores, -1) @ V


def causal_added(Q, K, V):
    S = Q.shape[2]
    scores = Q @ K.transpose(-1, -2) / math.sqrt(Q.shape[-1])
    scores += torch.full((S, S), float("-inf")).triu(1)
    return torch.softmax(scores, -1) @ V


def causal_chosen(Q, K, V):
    i = torch.arange(Q.shape[2])
    scores = torch.einsum("...id,...jd->...ij", Q, K) * Q.shape[-1] ** -0.5
    scores = torch.where(i[:, None] >= i[None, :], scores, torch.tensor(float("-inf")))
    return torch.softmax(scores, -1) @ V


def causal_by_torch(Q, K, V):
    return functional.scaled_dot_product_attention(Q, K, V, is_causal=True)


def heads_by_view(X, W_q, W_k, W_v, W_o, *, H, D):
    B, S, _ = X.shape
    q = (X @ W_q).view(B, S, H, D).transpose(1, 2)
    k = (X @ W_k).view(B, S, H, D).transpose(1, 2)
    v = (X @ W_v).view(B, S, H, -1).transpose(1, 2)
    a = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(D), -1)
    out = (a @ v).transpose(1, 2).contiguous().view(B, S, H * D)
    return out @ W_o


def heads_by_chunk(X, W_q, W_k, W_v, W_o, *, H, D):
    B, S, _ = X.shape
    qkv = X @ torch.cat((W_q, W_k, W_v), 1)
    q, k, v = (t.reshape(B, S, H, -1).transpose(1, 2) for t in qkv.chunk(3, dim=-1))
    return functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2) @ W_o


def heads_in_the_batch(X, W_q, W_k, W_v, W_o, *, H, D):
    B, S, _ = X.shape
    q, k, v = (
        functional.linear(X, w.T).reshape(B, S, H, D).permute(0, 2, 1, 3).reshape(B * H, S, D)
        for w in (W_q, W_k, W_v)
    )
    a = torch.bmm(q, k.transpose(1, 2)).div_(D**0.5).softmax(2)
    o = torch.bmm(a, v).view(B, H, S, D).permute(0, 2, 1, 3).reshape(B, S, H * D)
    return functional.linear(o, W_o.t())


def heads_by_split(X, W_q, W_k, W_v, W_o, *, H, D):
    q, k, v = (torch.stack((X @ w).split(D, -1), 1) for w in (W_q, W_k, W_v))
    a = torch.softmax(q @ k.mT / math.sqrt(D), -1)
    return torch.cat((a @ v).unbind(1), -1) @ W_o


SAME = {
    ATTENTION: (by_einsum, by_bmm, by_matmul, by_sums, by_torch),
    CAUSAL: (causal_filled, causal_filled_in_place, causal_added, causal_chosen, causal_by_torch),
    MULTI_HEAD: (heads_by_view, heads_by_chunk, heads_in_the_batch),
}
LOOPS = ((over_heads, ATTENTION), (over_heads_in_place, ATTENTION), (heads_by_split, MULTI_HEAD))

PAIRS = [(function, text) for text, functions in SAME.items() for function in functions]


def lift_against(function, text):
    """The formula's system, and the function lifted at its inputs."""
    formula = to_system(parse(text))
    return formula, lift_example(function, formula, draw_sizes(formula, 1)[0])


@pytest.mark.parametrize(("function", "text"), PAIRS)
def test_code_is_proved_equal_to_its_formula_for_all_sizes(function, text):
    formula, lifted = lift_against(function, text)
    assert lifted.every_size
    assert not lifted.notes
    proof = prove(lifted.system, formula, lifted.fixed)
    assert proof is not None
    assert proof.every_size
    for number, sizes in enumerate(draw_sizes(formula, 3)):
        assert find_gap(function, formula, sizes, lifted, number) < 1e-9


@pytest.mark.parametrize(("function", "text"), LOOPS)
def test_a_loop_over_heads_holds_for_its_number_of_heads(function, text):
    formula, lifted = lift_against(function, text)
    assert list(lifted.fixed) == ["H"]
    assert not lifted.every_size
    assert prove(lifted.system, formula, lifted.fixed) is not None


READABLE = [
    (
        by_einsum,
        ATTENTION,
        """scores[b,h,s,t] = sum[d](Q[b,h,s,d] * K[b,h,t,d]) / sqrt(D)
A[b,h,s,t] = softmax[t](scores[b,h,s,t])
out[b,h,s,d] = sum[t](A[b,h,s,t] * V[b,h,t,d])""",
    ),
    (
        causal_filled_in_place,
        CAUSAL,
        """scores[b,h,s,t] = sum[d](Q[b,h,s,d] * K[b,h,t,d]) / sqrt(D)
out[b,h,s,d] = sum[t](softmax[t](where(t > s, -oo, scores[b,h,s,t])) * V[b,h,t,d])""",
    ),
    (
        heads_by_view,
        MULTI_HEAD,
        """q[b,h,s,d] = sum[e](X[b,s,e] * W_q[e,D*h + d])
k[b,h,s,d] = sum[e](X[b,s,e] * W_k[e,D*h + d])
v[b,h,s,d] = sum[e](X[b,s,e] * W_v[e,D*h + d])
a[b,h,s,t] = softmax[t](sum[d](q[b,h,s,d] * k[b,h,t,d]) / sqrt(D))
out[b,h,s,d] = sum[t](a[b,h,s,t] * v[b,h,t,d])
out_2[b,s,e] = sum[h, d](out[b,h,s,d] * W_o[D*h + d,e])""",
    ),
    (
        heads_in_the_batch,
        MULTI_HEAD,
        """a[b,h,s,t] = softmax[t](sum[d](sum[e](X[b,s,e] * W_q[e,D*h + d]) * \
sum[f](X[b,t,f] * W_k[f,D*h + d])) / sqrt(D))
o[b,h,s,d] = sum[t](a[b,h,s,t] * sum[e](X[b,t,e] * W_v[e,D*h + d]))
out[b,s,e] = sum[h, d](o[b,h,s,d] * W_o[D*h + d,e])""",
    ),
]


@pytest.mark.parametrize(("function", "text", "lines"), READABLE)
def test_the_equations_read_as_a_person_would_write_them(function, text, lines):
    _, lifted = lift_against(function, text)
    found = [line for line in to_lines(lifted.system) if " = " in line]
    assert found == lines.split("\n")


def test_a_size_that_is_used_unheard_is_the_only_one_that_becomes_a_number():
    unheard = SimpleNamespace(one=1.0)

    def scale(Q, K, V):
        scores = Q @ K.transpose(-2, -1) * (unheard.one / Q.shape[-1]) * Q.shape[-1] ** 0.5
        return scores.softmax(-1) @ V

    formula, lifted = lift_against(scale, ATTENTION)
    assert list(lifted.fixed) == ["D"]
    assert prove(lifted.system, formula, lifted.fixed) is not None
