"""The relative keys are read as A_K[j, i]: each pair gets the embedding of its mirror image."""

import torch

FORMULA = "relative_attention"
EDIT = ("exchange i and j of a_k",)
LINE = "bias = torch.einsum"


def relative_self_attention(X, W_Q, W_K, W_V, A_K, A_V):
    q = torch.einsum("bshd,hde->bhse", X, W_Q)
    k = torch.einsum("bshd,hde->bhse", X, W_K)
    v = torch.einsum("bshd,hde->bhse", X, W_V)
    content = q @ k.transpose(-1, -2)
    bias = torch.einsum("bhie,jihe->bhij", q, A_K)
    attn = torch.softmax((content + bias) / q.shape[-1] ** 0.5, dim=-1)
    z = torch.einsum("bhij,bhje->bihe", attn, v)
    return z + torch.einsum("bhij,ijhe->bihe", attn, A_V)
