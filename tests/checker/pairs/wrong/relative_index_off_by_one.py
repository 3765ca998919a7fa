"""The cut after pad and reshape starts one column early: every distance is one too small."""

import torch.nn.functional as F

FORMULA = """
    q[B, H, S, D]; R[2*S - 1, D]
    index i, j < S
    s[b,h,i,j] = sum[d](q[b,h,i,d] * R[j - i + S - 1,d])
    p[b,h,i,j] = softmax[j](s[b,h,i,j])
"""
EDIT = ("r[j - i + s - 1",)
LINE = "scores = x[..., "


def relative_attention_map(q, R):
    b, h, n, _ = q.shape
    x = F.pad(q @ R.mT, (0, 1)).flatten(2)
    x = F.pad(x, (0, n - 1)).view(b, h, n + 1, 2 * n - 1)
    scores = x[..., :n, n - 2 : 2 * n - 2]
    return scores.softmax(dim=-1)
