"""Only one side is normalised."""

FORMULA = """
    x[N, D]; y[M, D]
    nx[i] = sqrt(sum[d](x[i,d]**2))
    ny[j] = sqrt(sum[d](y[j,d]**2))
    c[i,j] = sum[d](x[i,d] * y[j,d]) / (nx[i] * ny[j])
"""
EDIT = ("factor ny[j]",)
LINE = "return x @"


def cosine(x, y):
    x = x / x.norm(dim=1, keepdim=True)
    return x @ y.T
