"""The update is scaled by the rank where it should be divided by it."""

FORMULA = """
    x[N, I]; W_0[O, I]; A[R, I]; B[O, R]
    scalar alpha = 16
    u[n,r] = sum[i](x[n,i] * A[r,i])
    y[n,o] = sum[i](x[n,i] * W_0[o,i]) + alpha / R * sum[r](u[n,r] * B[o,r])
"""
EDIT = ("scale", "r**2|r^2|alpha")
LINE = "update = "


def lora_linear(x, W_0, A, B, alpha=16.0):
    rank = A.shape[0]
    low = x @ A.T
    update = low @ B.T * alpha * rank
    return x @ W_0.T + update
