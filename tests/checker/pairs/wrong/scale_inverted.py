"""`/ d ** -0.5` multiplies by the root where it should divide by it."""

import torch

FORMULA = "causal_attention"
EDIT = ("scale the argument of softmax", "by 1/sqrt(d)")
LINE = "logits = torch.matmul"


def masked_attention(Q, K, V):
    d = Q.shape[-1]
    logits = torch.matmul(Q, K.transpose(2, 3)) / d**-0.5
    n = logits.shape[-1]
    keep = torch.tril(torch.ones(n, n)).bool()
    logits = torch.where(keep, logits, torch.tensor(float("-inf")).to(logits))
    return torch.matmul(torch.softmax(logits, dim=3), V)
