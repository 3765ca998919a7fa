"""torch's own layer norm, with the arguments of the function handed through."""

import torch.nn.functional as F

FORMULA = "layer_norm"


def layer_norm(x, gamma, beta, eps=1e-5):
    return F.layer_norm(x, x.shape[-1:], weight=gamma, bias=beta, eps=eps)
