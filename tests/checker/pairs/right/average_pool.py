"""Average pooling by torch against a mean over neighbours."""

import torch.nn.functional as F

FORMULA = """
    x[B, C, 3*T]
    index t < T
    y[b,c,t] = (x[b,c,3*t] + x[b,c,3*t + 1] + x[b,c,3*t + 2]) / 3
"""


def pool(x):
    return F.avg_pool1d(x, kernel_size=3, stride=3)
