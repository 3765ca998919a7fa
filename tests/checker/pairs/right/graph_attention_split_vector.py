"""Graph attention with the pair vector concatenated, as the paper writes it."""

import torch
import torch.nn.functional as F

FORMULA = "graph_attention"
EMPTY_ROW = "zeros"


def gat_layer(h, W, a_1, a_2, A, slope=0.2):
    n = h.shape[0]
    g = h @ W
    pairs = torch.cat((g.repeat_interleave(n, dim=0), g.repeat(n, 1)), dim=1).view(n, n, -1)
    e = F.leaky_relu(pairs @ torch.cat((a_1, a_2)), slope)
    e = e.masked_fill(~A, float("-inf"))
    return F.elu(torch.softmax(e, dim=1) @ g)
