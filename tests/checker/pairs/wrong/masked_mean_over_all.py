"""The padded steps are zeroed, and the sum is divided by the whole length."""

FORMULA = """
    x[B, T, D]; bool mask[B, T]
    n[b] = sum[t]([mask[b,t]])
    y[b,d] = sum[t, mask[b,t]](x[b,t,d]) / n[b]
"""
EDIT = ("add the mask",)
LINE = "return "


def masked_mean(x, mask):
    kept = x * mask[..., None]
    return kept.mean(dim=1)
