"""A batched matrix product without any matrix product."""

FORMULA = "A[B, I, K]; C[B, K, J]; Z[b,i,j] = sum[k](A[b,i,k] * C[b,k,j])"


def product(A, C):
    return (A.unsqueeze(-1) * C.unsqueeze(1)).sum(dim=2)
