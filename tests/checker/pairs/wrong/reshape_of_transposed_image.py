"""An image cut into patches by reshape alone: the columns of a patch come from different rows."""

FORMULA = """
    x[B, N*P, M*P]
    size P
    index n < N
    index m < M
    index r < P*P
    y[b,n,m,r] = x[b,n*P + r // P,m*P + r % P]
"""
EDIT = ("transpose",)
LINE = "return x.reshape"
BIND = {"patch": "P"}
SIZES = {"P": 3}


def patches(x, patch):
    b, height, width = x.shape
    return x.reshape(b, height // patch, width // patch, patch * patch)
