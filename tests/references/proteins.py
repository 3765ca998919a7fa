"""Triangle updates: batched products of matrices, and torch's own attention."""

import torch
from torch import Tensor
from torch.nn import functional


def triangle_multiplication(a: Tensor, b: Tensor, g: Tensor) -> Tensor:
    edges = a.permute(2, 0, 1) @ b.permute(2, 0, 1).mT
    return g * edges.permute(1, 2, 0)


def triangle_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, gate: Tensor) -> Tensor:
    """Each starting node is a batch, and the bias is the same in all of them."""
    rows = (t.transpose(1, 2) for t in (q, k, v))  # [i, h, j or n, c]
    found = functional.scaled_dot_product_attention(*rows, attn_mask=bias.permute(2, 0, 1))
    return gate * found.transpose(1, 2)


def pair_bias_attention(
    *, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, bias: Tensor, mask: Tensor
) -> Tensor:
    """Each sequence by itself, and of it only the residues that are there."""
    rows = []
    for one_q, one_k, one_v, kept in zip(q, k, v, mask, strict=True):
        queries, keys, values = (t.transpose(0, 1) for t in (one_q, one_k[kept], one_v[kept]))
        scores = queries @ keys.mT / q.shape[-1] ** 0.5 + bias[:, :, kept]
        rows.append((torch.softmax(scores, dim=-1) @ values).transpose(0, 1))
    return gate * torch.stack(rows)


def outer_product_mean(a: Tensor, b: Tensor, W: Tensor) -> Tensor:
    """The outer products of each sequence, their mean, and one linear layer of all its entries."""
    outer = a[:, :, None, :, None] * b[:, None, :, None, :]  # [s, i, j, c, e]
    return outer.mean(dim=0).flatten(2) @ W.flatten(0, 1)
