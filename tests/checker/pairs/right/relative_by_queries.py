"""Relative attention as bmm over the queries: all batches and heads of one query at once."""

import torch

FORMULA = "relative_attention"


def relative_by_queries(X, W_Q, W_K, W_V, A_K, A_V):
    B, S, H, D = X.shape
    project = lambda W: torch.matmul(X.transpose(1, 2), W)  # noqa: E731
    q, k, v = project(W_Q), project(W_K), project(W_V)
    scores = torch.matmul(q, k.transpose(2, 3))
    per_query = q.permute(2, 1, 0, 3).reshape(S * H, B, D)
    keys = A_K.transpose(1, 2).reshape(S * H, S, D)
    extra = torch.bmm(per_query, keys.transpose(1, 2)).view(S, H, B, S)
    p = torch.softmax((scores + extra.permute(2, 1, 0, 3)) / D**0.5, dim=-1)
    values = A_V.transpose(1, 2).reshape(S * H, S, D)
    tail = torch.bmm(p.permute(2, 1, 0, 3).reshape(S * H, B, S), values).view(S, H, B, D)
    return torch.matmul(p, v).transpose(1, 2) + tail.permute(2, 0, 1, 3)
