"""kl_div takes the logarithms of the second distribution first; here they go in by name order."""

import torch.nn.functional as F

FORMULA = "kl_of_logits"
EDIT = ("exchange logp and logq|exchange p and q",)
LINE = "return F.kl_div"


def divergence(p, q):
    log_p, log_q = F.log_softmax(p, dim=-1), F.log_softmax(q, dim=-1)
    return F.kl_div(log_p, log_q, reduction="batchmean", log_target=True)
