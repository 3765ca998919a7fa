"""cumsum runs along the channels instead of the time."""

FORMULA = "x[B, T, C]; y[b,t,c] = cumsum[t](x[b,t,c])"
EDIT = ("cumsum over t, not c",)
LINE = "x.cumsum"


def accumulate(x):
    return x.cumsum(-1)
