"""The scores are multiplied by the mask: what is masked scores 0 and still takes its share."""

import torch

FORMULA = """
    q, k[B, S, D]; bool mask[B, S]
    p[b,i,j] = softmax[j, mask[b,j]](sum[d](q[b,i,d] * k[b,j,d]) / sqrt(D))
"""
EDIT = ("mask before softmax",)
LINE = "scores * mask"


def attention_map(q, k, mask):
    scores = torch.einsum("bqd,bkd->bqk", q, k) / q.shape[-1] ** 0.5
    scores = scores * mask[:, None, :]
    return torch.softmax(scores, dim=-1)
