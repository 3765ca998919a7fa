"""Multi-head attention, repaired: it runs, and the values have the width of the heads.

The mask stays [B, N, M] as the text says, so that it has to be given with a place for the heads.
"""

import math

from torch import nn

FORMULA = "masked_multi_head_attention"
CODE = "ManyHeads"
BIND = {
    "model_width": "D",
    "heads": "H",
    "mask": "mask.unsqueeze(1)",
    "to_queries.weight": "W_q.T",
    "to_keys.weight": "W_k.T",
    "to_values.weight": "W_v.T",
    "to_output.weight": "W_O.T",
}
SIZES = {"H": 3, "C": 4, "E": 4, "D": 12}


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

    def _split(self, t):
        return t.view(t.shape[0], -1, self.heads, self.head_width).transpose(1, 2)

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            self._split(self.to_queries(query)),
            self._split(self.to_keys(key)),
            self._split(self.to_values(value)),
        )
        out, weights = dot_attention(q, k, v, mask)
        out = out.transpose(1, 2).contiguous().flatten(2)
        return self.to_output(out), weights
