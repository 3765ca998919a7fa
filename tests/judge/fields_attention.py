"""Ways to compute attention: for each, two that are the same and one with a mistake in it.

A case is the shapes of its tensors, a digit an extent, `+` where all is positive, and functions.
"""

import math

import torch
import torch.nn.functional as fn

from derive.judge.fields.tensor import pause

INF = float("inf")
CAUSAL = torch.ones(4, 4, dtype=torch.bool).tril()
SOME = torch.tensor([[1, 1, 0, 0], [0, 1, 1, 0], [1, 0, 0, 1], [1, 1, 1, 1]], dtype=torch.bool)
SDPA = fn.scaled_dot_product_attention
QKV = "2243 2243 2243"


def attend(q, k, v, scale=None, mask=None):
    """By hand, with a mask that is added."""
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return torch.softmax(scores if mask is None else scores + mask, -1) @ v


def add_up_online(q, k, v, rescale=True):
    """Key after key, with the largest score so far."""
    total = torch.zeros_like(v[..., :1, :]).expand_as(v).clone()
    below, top = torch.zeros_like(q[..., :1]), torch.full_like(q[..., :1], -INF)
    for place in range(k.shape[-2]):
        score = (q * k[..., place : place + 1, :]).sum(-1, keepdim=True) / math.sqrt(q.shape[-1])
        now = torch.maximum(top, score)
        shrink, weight = (top - now).exp() if rescale else 1.0, (score - now).exp()
        total = total * shrink + weight * v[..., place : place + 1, :]
        below, top = below * shrink + weight, now
    return total / below


def attend_blocks(q, k, v, weigh=True):
    """Two blocks of keys, joined by their sums of exponentials."""
    scores = q @ k.transpose(-1, -2)
    parts = [(scores[..., :2], v[..., :2, :]), (scores[..., 2:], v[..., 2:, :])]
    logs = [each.logsumexp(-1, keepdim=True) for each, _ in parts]
    total = torch.logaddexp(*logs)
    shares = [(each - total).exp() if weigh else 0.5 for each in logs]
    return sum(
        share * (torch.softmax(s, -1) @ w) for share, (s, w) in zip(shares, parts, strict=True)
    )


def multiply_mask(q, k, v, renormalise=True):
    """The mask as a factor of the exponentials."""
    raised = (q @ k.transpose(-1, -2) / math.sqrt(3)).exp()
    raised = raised * torch.ones(4, 4).tril() if renormalise else raised
    weights = raised / raised.sum(-1, keepdim=True)
    return (weights if renormalise else weights * CAUSAL) @ v


def share_heads(q, k, v, repeat):
    """Two queries for each key."""
    return SDPA(q, repeat(k), repeat(v))


def split_heads(x, w, right=True):
    """Three heads of two, out of one matrix."""
    parts = (x @ w).chunk(3, -1)
    q, k, v = (
        each.view(2, 4, 3, 2).transpose(1, 2) if right else each.reshape(2, 3, 4, 2)
        for each in parts
    )
    return SDPA(q, k, v).transpose(1, 2).reshape(2, 4, 6)


def loop_heads(x, w):
    """Head after head."""
    wq, wk, wv = w.split(6, dim=1)
    found = []
    for head in range(3):
        own = slice(2 * head, 2 * head + 2)
        found.append(attend(x @ wq[:, own], x @ wk[:, own], x @ wv[:, own]))
    return torch.cat(found, dim=-1)


def run_module(x, w, b, out, over):
    """Torch's module."""
    with pause():
        module = torch.nn.MultiheadAttention(6, 2, batch_first=True).double()
    names = ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
    given = dict(zip(names, (w, b, out, over), strict=True))
    return torch.func.functional_call(module, given, (x, x, x))[0]


def run_module_by_hand(x, w, b, out, over):
    """The same of matrices."""
    split = ((x @ w.T + b).unflatten(-1, (3, 2, 3))).permute(2, 0, 3, 1, 4)
    return attend(*split).transpose(1, 2).flatten(2) @ out.T + over


def attend_linearly(q, k, v, shift=0):
    """Causal, by running sums."""
    q, k = q.exp(), k.exp()
    states = torch.cumsum(k[..., :, None] * v[..., None, :], dim=-3)
    below = torch.cumsum(k, dim=-2).roll(shift, -2)
    return (q[..., None] * states).sum(-2) / (q * below).sum(-1, keepdim=True)


def attend_linearly_masked(q, k, v):
    """Causal, by a mask."""
    weights = (q.exp() @ k.exp().transpose(-1, -2)).masked_fill(~CAUSAL, 0.0)
    return weights / weights.sum(-1, keepdim=True) @ v


def turn_halves(x, sign=1.0):
    """Rotary positions by halves."""
    angles = torch.arange(4.0)[:, None] * torch.tensor([1.0, 0.1])
    cos, sin = torch.cat([angles.cos()] * 2, -1), torch.cat([angles.sin()] * 2, -1)
    one, two = x.chunk(2, -1)
    return x * cos + torch.cat([-sign * two, one], -1) * sin


def turn_pairs(x):
    """Rotary positions entry by entry, into a new tensor."""
    out = torch.empty_like(x)
    for place in range(4):
        for at, speed in enumerate((1.0, 0.1)):
            angle = torch.tensor(place * speed)
            one, two = x[..., place, at], x[..., place, at + 2]
            out[..., place, at] = one * angle.cos() - two * angle.sin()
            out[..., place, at + 2] = two * angle.cos() + one * angle.sin()
    return out


def fill_rows(q, k, v, upto=1):
    """Causal, by prefixes written into place."""
    out = v.new_zeros(v.shape)
    for row in range(4):
        seen = slice(None, row + upto)
        out[..., row, :] = attend(q[..., row : row + 1, :], k[..., seen, :], v[..., seen, :])[
            ..., 0, :
        ]
    return out


ATTENTION = {
    "einsum": (
        QKV,
        attend,
        lambda q, k, v: torch.einsum(
            "bhij,bhjd->bhid",
            torch.einsum("bhid,bhjd->bhij", q, k).div(math.sqrt(3)).softmax(-1),
            v,
        ),
        lambda q, k, v: torch.softmax(q @ k.mT, -1) @ v,
    ),
    "scale first": (
        QKV,
        SDPA,
        lambda q, k, v: attend(q / 3**0.25, k * 3**-0.25, v, 1.0),
        lambda q, k, v: attend(q / 3**0.5, k, v),
    ),
    "K for V": (QKV, SDPA, attend, lambda q, k, v: attend(q, k, k)),
    "keys and queries swapped": (QKV, SDPA, attend, lambda q, k, v: attend(k, q, v)),
    "softmax over the wrong dim": (
        QKV,
        SDPA,
        attend,
        lambda q, k, v: torch.softmax(q @ k.mT / math.sqrt(3), -2) @ v,
    ),
    "late division": (
        QKV,
        lambda q, k, v: attend(q, k, v, 1),
        lambda q, k, v: (q @ k.mT).exp() @ v / (q @ k.mT).exp().sum(-1, keepdim=True),
        lambda q, k, v: (q @ k.mT).exp() @ v / (q @ k.mT).exp().sum(-2).unsqueeze(-1),
    ),
    "online": (QKV, SDPA, add_up_online, lambda *qkv: add_up_online(*qkv, rescale=False)),
    "blocks": (
        QKV,
        lambda q, k, v: SDPA(q, k, v, scale=1.0),
        attend_blocks,
        lambda *qkv: attend_blocks(*qkv, weigh=False),
    ),
    "causal": (
        QKV,
        lambda *qkv: SDPA(*qkv, is_causal=True),
        lambda *qkv: attend(*qkv, mask=torch.full((4, 4), -INF).triu(1)),
        lambda *qkv: attend(*qkv, mask=torch.full((4, 4), -INF).triu(2)),
    ),
    "prefixes": (
        QKV,
        lambda *qkv: SDPA(*qkv, is_causal=True),
        fill_rows,
        lambda *qkv: fill_rows(*qkv, 2),
    ),
    "mask as a factor": (
        QKV,
        lambda *qkv: SDPA(*qkv, is_causal=True),
        multiply_mask,
        lambda *qkv: multiply_mask(*qkv, renormalise=False),
    ),
    "bool mask": (
        QKV,
        lambda *qkv: SDPA(*qkv, attn_mask=SOME),
        lambda *qkv: attend(*qkv, mask=torch.zeros(4, 4).masked_fill(~SOME, -INF)),
        lambda *qkv: attend(*qkv, mask=torch.zeros(4, 4).masked_fill(SOME, -INF)),
    ),
    "mask by where": (
        "44",
        lambda s: s.masked_fill(~SOME, -INF).softmax(-1),
        lambda s: torch.where(SOME, s, torch.tensor(-INF)).softmax(-1),
        lambda s: torch.where(SOME, s, torch.tensor(0.0)).softmax(-1),
    ),
    "mask before the scale": (
        "44",
        lambda s: (s / math.sqrt(11)).masked_fill(~SOME, -INF).softmax(-1),
        lambda s: (s.masked_fill(~SOME, -INF) / math.sqrt(11)).softmax(-1),
        lambda s: (s.masked_fill(~SOME, -INF) * math.sqrt(11)).softmax(-1),
    ),
    "finite mask": (
        "44",
        lambda s: s.masked_fill(~SOME, -INF).softmax(-1),
        lambda s: ((s + (~SOME).double() * -1e9) / math.sqrt(13) * math.sqrt(13)).softmax(-1),
        lambda s: (s + SOME.double() * -1e9).softmax(-1),
    ),
    "smallest float for a mask": (
        "44",
        lambda s: s.masked_fill(~SOME, -INF).log_softmax(-1).exp(),
        lambda s: s.masked_fill(~SOME, torch.finfo(s.dtype).min).log_softmax(-1).exp(),
        lambda s: s.masked_fill(~SOME.T, torch.finfo(s.dtype).min).log_softmax(-1).exp(),
    ),
    "float mask": (
        QKV + " 44",
        lambda q, k, v, m: SDPA(q, k, v, attn_mask=m),
        lambda q, k, v, m: attend(q, k, v, mask=m),
        lambda q, k, v, m: attend(q, k, v, mask=m.T),
    ),
    "scale given": (
        QKV,
        lambda *qkv: SDPA(*qkv, scale=0.3),
        lambda *qkv: attend(*qkv, scale=0.3),
        lambda *qkv: attend(*qkv, scale=1 / 0.3),
    ),
    "grouped heads": (
        "2443 2243 2243",
        lambda *qkv: SDPA(*qkv, enable_gqa=True),
        lambda *qkv: share_heads(*qkv, lambda each: each.repeat_interleave(2, 1)),
        lambda *qkv: share_heads(*qkv, lambda each: each.repeat(1, 2, 1, 1)),
    ),
    "heads": ("246 6(18)", split_heads, loop_heads, lambda x, w: split_heads(x, w, right=False)),
    "module": (
        "246 (18)6 (18) 66 6",
        run_module,
        run_module_by_hand,
        lambda x, w, b, out, over: run_module_by_hand(x, w, b, out, over - over),
    ),
    "key bias": (
        QKV + " 3",
        lambda q, k, v, b: attend(q, k, v),
        lambda q, k, v, b: attend(q, k + b, v),
        lambda q, k, v, b: attend(q + b, k, v),
    ),
    "linear": (
        "243 243 243",
        attend_linearly,
        attend_linearly_masked,
        lambda *qkv: attend_linearly(*qkv, shift=1),
    ),
    "window": (
        "44",
        lambda s: s.masked_fill(torch.ones(4, 4).tril(-2).bool(), -INF).softmax(-1),
        lambda s: (s + torch.full((4, 4), -INF).tril(-2)).softmax(-1),
        lambda s: (s + torch.full((4, 4), -INF).tril(-1)).softmax(-1),
    ),
    "rotary": ("244", turn_halves, turn_pairs, lambda x: turn_halves(x, -1.0)),
}
