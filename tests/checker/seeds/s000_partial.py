"""Attention with learned vectors for every pair of places, as somebody had it so far.

The scores are made by a matrix product over the heads instead of a sum over the width.
"""

import torch

FORMULA = "relative_attention"
LINE = "numerator = "


def attend_with_pairs(x, w_query, w_key, w_value, pair_key, pair_value):
    width = x.size(-1)
    queries = torch.einsum("nlhc,hcf->nlhf", x, w_query)
    keys = torch.einsum("nlhc,hcf->nlhf", x, w_key)
    values = torch.einsum("nlhc,hcf->nlhf", x, w_value)

    shifted = keys[:, None] + pair_key
    numerator = queries[:, :, None] @ shifted.transpose(3, 4)
    energy = numerator / width**0.5
    weights = energy.softmax(dim=2)
    return torch.einsum("nlmhg,nlmgf->nlhf", weights, values[:, None] + pair_value)
