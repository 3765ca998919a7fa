"""The same attention by broadcasting: multiply, then sum over the width."""

import torch

FORMULA = "relative_attention"


def attend_with_pairs(x, w_query, w_key, w_value, pair_key, pair_value):
    width = x.size(-1)
    queries = torch.einsum("nlhc,hcf->nlhf", x, w_query)
    keys = torch.einsum("nlhc,hcf->nlhf", x, w_key)
    values = torch.einsum("nlhc,hcf->nlhf", x, w_value)

    shifted = keys[:, None] + pair_key
    numerator = (queries[:, :, None] * shifted).sum(4)
    energy = numerator / torch.tensor(width, dtype=torch.float32).sqrt()
    weights = energy.softmax(dim=2)
    return torch.einsum("nlmh,nlmhf->nlhf", weights, values[:, None] + pair_value)
