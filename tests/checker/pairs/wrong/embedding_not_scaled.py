"""Token and position embeddings are added; the root of the width is missing at the token's."""

import torch.nn.functional as F

FORMULA = """
    E[V, D]; P[S, D]; int tok[B, S] < V
    y[b,s,d] = E[tok[b,s],d] * sqrt(D) + P[s,d]
"""
EDIT = ("scale", "by sqrt(d)")
LINE = "return F.embedding"


def embed(tok, E, P):
    return F.embedding(tok, E) + P
