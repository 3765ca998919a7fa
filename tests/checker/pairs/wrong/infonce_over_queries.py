"""The negatives are those of the key: the partition sum runs over the wrong side."""

import torch

FORMULA = """
    q, k[N, D]
    scalar tau = 0.07
    logit[i,j] = sum[d](q[i,d] * k[j,d]) / tau
    lse[i] = logsumexp[j](logit[i,j])
    loss = mean[i](lse[i] - logit[i,i])
"""
EDIT = ("logsumexp over j, not i|exchange i and j of logit",)
LINE = "lse = "


def contrastive_loss(q, k, tau=0.07):
    logits = q @ k.t() / tau
    lse = torch.logsumexp(logits, dim=0)
    return (lse - logits.diagonal()).mean()
