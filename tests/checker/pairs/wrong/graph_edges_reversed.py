"""Messages go from target to source: the adjacency matrix is transposed."""

import torch

FORMULA = """
    A[N, N]; X[N, F]; W[F, G]
    m[i,f] = sum[j](A[i,j] * X[j,f])
    Y[i,g] = relu(sum[f](m[i,f] * W[f,g]))
"""
EDIT = ("exchange i and j of a",)
LINE = "messages = "


def propagate(A, X, W):
    messages = torch.einsum("ij,if->jf", A, X)
    return torch.relu(messages @ W)
