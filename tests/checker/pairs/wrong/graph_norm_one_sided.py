"""Only the rows are normalised; the degree of the neighbour is left out."""

import torch

FORMULA = """
    A[N, N] >= 0; X[N, F]; W[F, G]
    index i, j < N
    hat[i,j] = A[i,j] + delta(i, j)
    degree[i] = sum[j](hat[i,j])
    S[i,j] = hat[i,j] / sqrt(degree[i]) / sqrt(degree[j])
    Y[i,g] = relu(sum[j, f](S[i,j] * X[j,f] * W[f,g]))
"""
EDIT = ("factor", "degree[j]")
LINE = "S = "


def gcn_layer(A, X, W):
    hat = A + torch.eye(A.shape[0], dtype=A.dtype)
    degree = hat.sum(1)
    S = hat / degree.sqrt()[:, None]
    return torch.relu(S @ X @ W)
