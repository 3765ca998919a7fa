"""Norms, losses, activations and moves: two ways that are the same, and one with a mistake in it.

A case is the shapes of its tensors, a digit an extent, `+` where all is positive, and functions.
"""

import math

import torch
import torch.nn.functional as fn

LABELS = torch.tensor([2, 0, 1, 2, 4])


def centre(x, dim=-1):
    """Without the mean."""
    return x - x.mean(dim, keepdim=True)


def pick(x):
    """The entry of each row that the label tells."""
    return x.gather(-1, LABELS[:, None]).squeeze(-1)


def bound(x):
    """The norm, not too small a one; no gradient knows of the bound."""
    norm = x.norm(dim=-1, keepdim=True)
    return norm + (norm.clamp_min(1e-8) - norm).detach()


NORMS = {
    "layer norm": (
        "35 5 5",
        lambda x, w, b: fn.layer_norm(x, (5,), w, b),
        lambda x, w, b: centre(x) * (x.var(-1, correction=0, keepdim=True) + 1e-5).rsqrt() * w + b,
        lambda x, w, b: centre(x) * (x.var(-1, keepdim=True) + 1e-5).rsqrt() * w + b,
    ),
    "layer norm of moments": (
        "35",
        lambda x: fn.layer_norm(x, (5,), eps=0.25),
        lambda x: centre(x) / ((x**2).mean(-1, True) - x.mean(-1, True) ** 2 + 0.25).sqrt(),
        lambda x: centre(x) / (((x**2).mean(-1, True) - x.mean(-1, True) ** 2).sqrt() + 0.25),
    ),
    "rms norm": (
        "35 5",
        lambda x, w: fn.rms_norm(x, (5,), w, eps=1e-6),
        lambda x, w: x / torch.sqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w,
        lambda x, w: x / torch.sqrt(x.square().sum(-1, keepdim=True) + 1e-6) * w,
    ),
    "group norm": (
        "243 4 4",
        lambda x, w, b: fn.group_norm(x, 2, w, b),
        lambda x, w, b: (
            fn.layer_norm(x.view(2, 2, 6), (6,)).view(2, 4, 3) * w[:, None] + b[:, None]
        ),
        lambda x, w, b: (
            fn.layer_norm(x.view(2, 2, 2, 3).transpose(1, 2).reshape(2, 2, 6), (6,)).view(2, 4, 3)
            * w[:, None]
            + b[:, None]
        ),
    ),
    "batch norm": (
        "52",
        lambda x: fn.batch_norm(x, None, None, training=True),
        lambda x: centre(x, 0) / torch.sqrt(centre(x, 0).pow(2).mean(0) + 1e-5),
        lambda x: centre(x) / torch.sqrt(centre(x).pow(2).mean(-1, keepdim=True) + 1e-5),
    ),
    "batch norm of running values": (
        "52 2 2+",
        lambda x, m, v: fn.batch_norm(x, m.detach(), v.detach(), eps=0.25),
        lambda x, m, v: (x - m.detach()) * (v.detach() + 0.25) ** -0.5,
        lambda x, m, v: (x - m) * v**-0.5,
    ),
    "instance norm": (
        "234",
        fn.instance_norm,
        lambda x: fn.layer_norm(x, (4,)),
        lambda x: fn.layer_norm(x, (3, 4)),
    ),
    "variance": (
        "35",
        lambda x: x.var(-1),
        lambda x: centre(x).square().sum(-1) / 4,
        lambda x: centre(x).square().mean(-1),
    ),
    "variance of moments": (
        "35",
        lambda x: torch.var_mean(x, 0, correction=0)[0],
        lambda x: x.square().mean(0) - x.mean(0).square(),
        lambda x: x.mean(0).square() - x.square().mean(0),
    ),
    "deviation": (
        "35",
        lambda x: x.std(-1),
        lambda x: x.var(-1).sqrt(),
        lambda x: x.var(-1, correction=0).sqrt(),
    ),
    "cosine similarity": (
        "35 35",
        fn.cosine_similarity,
        lambda x, y: (x / bound(x) * y / bound(y)).sum(-1),
        lambda x, y: (x / bound(x) * y).sum(-1),
    ),
    "normalize": (
        "35",
        lambda x: fn.normalize(x, eps=1e-12),
        lambda x: x / x.square().sum(1, keepdim=True).sqrt().clamp(min=1e-12),
        lambda x: x / x.square().sum(0, keepdim=True).sqrt().clamp(min=1e-12),
    ),
}

LOSSES = {
    "log softmax": (
        "35",
        lambda x: x.log_softmax(-1),
        lambda x: x - x.exp().sum(-1, keepdim=True).log(),
        lambda x: x - x.exp().sum().log(),
    ),
    "softmax by exponentials": (
        "35",
        lambda x: x.softmax(-1),
        lambda x: (x - x.amax(-1, True)).exp() / (x - x.amax(-1, True)).exp().sum(-1, True),
        lambda x: (x - x.amax(-1, True)).exp() / (x - x.amax(0)).exp().sum(-1, True),
    ),
    "shifted softmax": (
        "35",
        lambda x: x.softmax(-1),
        lambda x: (x + 3.5).softmax(-1),
        lambda x: (x * 3.5).softmax(-1),
    ),
    "cross entropy": (
        "55",
        lambda x: fn.cross_entropy(x, LABELS),
        lambda x: fn.nll_loss(x.log_softmax(-1), LABELS),
        lambda x: fn.nll_loss(x.log_softmax(-1), LABELS, reduction="sum"),
    ),
    "cross entropy picked": (
        "55",
        lambda x: fn.cross_entropy(x, LABELS),
        lambda x: (x.logsumexp(-1) - pick(x)).mean(),
        lambda x: (x.logsumexp(-1) - pick(x.T)).mean(),
    ),
    "cross entropy of one hot": (
        "55",
        lambda x: fn.cross_entropy(x, LABELS, reduction="none"),
        lambda x: -(fn.one_hot(LABELS, 5) * x.log_softmax(-1)).sum(-1),
        lambda x: -(fn.one_hot(LABELS, 5) * x.log_softmax(-1)).mean(-1),
    ),
    "label smoothing": (
        "55",
        lambda x: fn.cross_entropy(x, LABELS, label_smoothing=0.1),
        lambda x: -(((fn.one_hot(LABELS, 5) * 0.9 + 0.02) * x.log_softmax(-1)).sum(-1)).mean(),
        lambda x: -(((fn.one_hot(LABELS, 5) * 0.9 + 0.025) * x.log_softmax(-1)).sum(-1)).mean(),
    ),
    "binary cross entropy": (
        "35 35",
        fn.binary_cross_entropy_with_logits,
        lambda x, y: (fn.softplus(x) - x * y).mean(),
        lambda x, y: (fn.softplus(x) + x * y).mean(),
    ),
    "kl": (
        "35 35",
        lambda x, y: fn.kl_div(
            x.log_softmax(-1), y.log_softmax(-1), reduction="sum", log_target=True
        ),
        lambda x, y: (y.softmax(-1) * (y.log_softmax(-1) - x.log_softmax(-1))).sum(),
        lambda x, y: (x.softmax(-1) * (x.log_softmax(-1) - y.log_softmax(-1))).sum(),
    ),
    "kl of probabilities": (
        "35 35",
        lambda x, y: fn.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
        lambda x, y: (y.softmax(-1) * (y.log_softmax(-1) - x.log_softmax(-1))).sum() / 3,
        lambda x, y: (y.softmax(-1) * (y.log_softmax(-1) - x.log_softmax(-1))).sum() / 15,
    ),
    "entropy": (
        "35",
        lambda x: -(x.softmax(-1) * x.log_softmax(-1)).sum(-1),
        lambda x: x.logsumexp(-1) - (x.softmax(-1) * x).sum(-1),
        lambda x: x.logsumexp(-1) - (x.softmax(-1) * x).mean(-1),
    ),
    "binary cross entropy of probabilities": (
        "35 35",
        lambda x, y: fn.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
        lambda x, y: fn.binary_cross_entropy_with_logits(x, y.sigmoid()),
        lambda x, y: fn.binary_cross_entropy_with_logits(y, x.sigmoid()),
    ),
    "squared error": (
        "35 35",
        fn.mse_loss,
        lambda x, y: ((x - y) ** 2).sum() / 15,
        lambda x, y: ((x - y) ** 2).sum() / 5,
    ),
    "smooth l1": (
        "35 35",
        fn.smooth_l1_loss,
        lambda x, y: torch.where((x - y).abs() < 1, 0.5 * (x - y) ** 2, (x - y).abs() - 0.5).mean(),
        lambda x, y: torch.where((x - y).abs() < 1, (x - y) ** 2, (x - y).abs() - 0.5).mean(),
    ),
    "mean of exponentials": (
        "35",
        lambda x: x.exp().mean(-1).log(),
        lambda x: x.logsumexp(-1) - math.log(5),
        lambda x: x.logsumexp(-1) + math.log(5),
    ),
    "pairwise logsumexp": (
        "35 35",
        torch.logaddexp,
        lambda x, y: y + fn.softplus(x - y),
        lambda x, y: x + fn.softplus(x - y),
    ),
    "log of a product": (
        "35+ 35+",
        lambda x, y: (x * y).log(),
        lambda x, y: x.log() + y.log(),
        lambda x, y: x.log() - y.log(),
    ),
}

ACTIVATIONS = {
    "gelu": (
        "35",
        fn.gelu,
        lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))),
        lambda x: fn.gelu(x, approximate="tanh"),
    ),
    "gelu of tanh": (
        "35",
        lambda x: fn.gelu(x, approximate="tanh"),
        lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.44715 * x**3))),
    ),
    "silu": (
        "35",
        fn.silu,
        lambda x: x / (1 + (-x).exp()),
        lambda x: x / (1 + x.exp()),
    ),
    "softplus": (
        "35",
        fn.softplus,
        lambda x: torch.log1p(x.exp()),
        lambda x: torch.log1p(-x.exp()),
    ),
    "softplus of a factor": (
        "35",
        lambda x: fn.softplus(x, beta=3),
        lambda x: (1 + (3 * x).exp()).log() / 3,
        lambda x: (1 + (3 * x).exp()).log(),
    ),
    "logsigmoid": (
        "35",
        fn.logsigmoid,
        lambda x: -fn.softplus(-x),
        lambda x: fn.softplus(-x),
    ),
    "logit": (
        "35",
        lambda x: torch.logit(x.sigmoid()) * 1,
        lambda x: x.sigmoid().log() - (1 - x.sigmoid()).log(),
        lambda x: x.sigmoid().log() + (1 - x.sigmoid()).log(),
    ),
    "decay": (
        "35",
        lambda x: (fn.logsigmoid(x) * torch.arange(5.0)).exp(),
        lambda x: x.sigmoid() ** torch.arange(5),
        lambda x: x.sigmoid() ** torch.arange(1, 6),
    ),
    "decay of a segment": (
        "35",
        lambda x: (fn.logsigmoid(x).cumsum(-1)[:, 3] - fn.logsigmoid(x).cumsum(-1)[:, 1]).exp(),
        lambda x: x[:, 2:4].sigmoid().prod(-1),
        lambda x: x[:, 1:4].sigmoid().prod(-1),
    ),
    "tanh": (
        "35",
        torch.tanh,
        lambda x: 2 * torch.sigmoid(2 * x) - 1,
        lambda x: 2 * torch.sigmoid(x) - 1,
    ),
    "sinh over cosh": (
        "35",
        torch.tanh,
        lambda x: x.sinh() / x.cosh(),
        lambda x: x.cosh() / x.sinh(),
    ),
    "relu": (
        "35",
        torch.relu,
        lambda x: (x + x.abs()) / 2,
        lambda x: (x - x.abs()) / 2,
    ),
    "relu of a scale": (
        "35",
        lambda x: 6 * x.relu(),
        lambda x: (x * 6).clamp_min(0),
        lambda x: (x * -6).clamp_min(0),
    ),
    "leaky": (
        "35",
        lambda x: fn.leaky_relu(x, 0.1),
        lambda x: torch.where(x > 0, x, 0.1 * x),
        lambda x: torch.where(x < 0, x, 0.1 * x),
    ),
    "elu": (
        "35",
        fn.elu,
        lambda x: torch.where(x > 0, x, torch.expm1(x)),
        lambda x: torch.where(x > 0, x, torch.exp(x)),
    ),
    "glu": (
        "36",
        fn.glu,
        lambda x: x[:, :3] * torch.sigmoid(x[:, 3:]),
        lambda x: x[:, 3:] * torch.sigmoid(x[:, :3]),
    ),
    "mish": (
        "35",
        fn.mish,
        lambda x: x * (1 - 2 / ((1 + x.exp()) ** 2 + 1)),
        lambda x: x * (1 - 1 / ((1 + x.exp()) ** 2 + 1)),
    ),
    "clipped": (
        "55",
        fn.hardtanh,
        lambda x: torch.minimum(torch.maximum(x, -torch.ones(())), torch.ones(())),
        lambda x: x.clamp(-1, 2),
    ),
    "threshold": (
        "55",
        lambda x: fn.threshold(x, 1, 0),
        lambda x: x * (x > 1),
        lambda x: x * (x > 0),
    ),
}
IDENTITIES = NORMS | LOSSES | ACTIVATIONS
