"""The lookup as a product with one-hot rows, then a masked mean over the tokens."""

import torch

FORMULA = """
    E[V, D]; int tok[B, S] < V; bool mask[B, S]
    x[b,s,d] = E[tok[b,s],d]
    y[b,d] = sum[s](x[b,s,d] * [mask[b,s]]) / sum[s]([mask[b,s]])
"""


def mean_embedding(E, tok, mask):
    hot = (tok[..., None] == torch.arange(E.shape[0])).to(E.dtype)
    weights = mask.to(E.dtype)
    counts = torch.einsum("bsv,bs->bv", hot, weights)
    return counts @ E / weights.sum(1, keepdim=True)
