"""Multi-head attention from a text about it: one attribute is read that was never set.

Behind that the mask, [B, N, M], meets scores of [B, H, N, M] as if its batch were the heads.
"""

import math

from torch import nn

FORMULA = "masked_multi_head_attention"
CODE = "ManyHeads"
BIND = {
    "model_width": "D",
    "heads": "H",
    "to_queries.weight": "W_q.T",
    "to_keys.weight": "W_k.T",
    "to_values.weight": "W_v.T",
    "to_output.weight": "W_O.T",
}
SIZES = {"H": 3, "C": 4, "E": 4, "D": 12}
LINE = "self.to_values(source).view"


def dot_attention(queries, keys, values, mask=None):
    width = queries.shape[-1]
    logits = queries @ keys.transpose(-1, -2) / math.sqrt(width)
    if mask is not None:
        logits = logits.masked_fill(mask == 0, -math.inf)
    weights = logits.softmax(-1)
    return weights @ values, weights


class ManyHeads(nn.Module):
    def __init__(self, model_width, heads):
        super().__init__()
        self.heads = heads
        self.head_width = model_width // heads
        self.to_queries = nn.Linear(model_width, model_width, bias=False)
        self.to_keys = nn.Linear(model_width, model_width, bias=False)
        self.to_values = nn.Linear(model_width, model_width, bias=False)
        self.to_output = nn.Linear(model_width, model_width, bias=False)

    def forward(self, query, key, value, mask=None):
        target, source, n = query, value, len(query)
        q = self.to_queries(target).view(n, -1, self.heads, self.head_width).transpose(1, 2)
        k = self.to_keys(key).view(n, -1, self.heads, self.head_width).transpose(1, 2)
        v = self.to_values(source).view(n, -1, self.heads, self.value_width).transpose(1, 2)
        out, weights = dot_attention(q, k, v, mask)
        out = out.transpose(1, 2).contiguous().view(n, -1, self.heads * self.head_width)
        return self.to_output(out), weights
