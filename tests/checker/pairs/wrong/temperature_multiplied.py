"""The temperature multiplies the logits."""

import torch
import torch.nn.functional as F

FORMULA = "infonce"
EDIT = ("scale logit by 1/tau",)
LINE = "logits = "


def info_nce(q, k, tau=0.07):
    logits = torch.matmul(q, k.T) * tau
    return F.cross_entropy(logits, torch.arange(len(q)))
