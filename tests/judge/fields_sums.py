"""Products, windows and moves: two ways that are the same, and one with a mistake in it.

A case is the shapes of its tensors, a digit an extent, `+` where all is positive, and functions.
"""

import math

import torch
import torch.nn.functional as fn

LABELS = torch.tensor([2, 0, 1, 2, 4])
PLACES = torch.tensor([0, 2, 2, 1, 0])


def write_rows(x, at):
    """A matrix filled row by row, and a view of it that is written to."""
    out = x.new_zeros(x.shape)
    for row in range(x.shape[0]):
        out[row] = x[row] * 2
    out.T[1] += x[:, at]
    return out


SUMS = {
    "linear layer": (
        "35 55 5",
        fn.linear,
        lambda x, w, b: x @ w.T + b,
        lambda x, w, b: x @ w + b,
    ),
    "bilinear": (
        "34 35 245 2",
        fn.bilinear,
        lambda x, y, w, b: torch.einsum("ni,oij,nj->no", x, w, y) + b,
        lambda x, y, w, b: torch.einsum("ni,oij,nj->no", x, w, y) - b,
    ),
    "chain": (
        "33 33 33",
        lambda x, y, z: torch.einsum("ij,kj,kl->il", x, y, z),
        lambda x, y, z: x @ y.T @ z,
        lambda x, y, z: x @ y @ z,
    ),
    "conv1d": (
        "237 432 4",
        fn.conv1d,
        lambda x, w, b: torch.einsum("bcpk,ock->bop", x.unfold(2, 2, 1), w) + b[:, None],
        lambda x, w, b: torch.einsum("bcpk,ock->bop", x.unfold(2, 2, 1), w.flip(2)) + b[:, None],
    ),
    "conv2d": (
        "2255 4222",
        lambda x, w: fn.conv2d(x, w, stride=2, padding=1),
        lambda x, w: (w.flatten(1) @ fn.unfold(x, 2, stride=2, padding=1)).view(2, 4, 3, 3),
        lambda x, w: (w.flatten(1) @ fn.unfold(x, 2, stride=2, padding=1)).view(2, 4, 3, 3).mT,
    ),
    "depthwise": (
        "237 312",
        lambda x, w: fn.conv1d(x, w, groups=3, dilation=2),
        lambda x, w: x[..., :-2] * w[:, 0, 0, None] + x[..., 2:] * w[:, 0, 1, None],
        lambda x, w: x[..., :-2] * w[:, 0, 0, None] + x[..., 1:-1] * w[:, 0, 1, None],
    ),
    "pooling": (
        "237",
        lambda x: fn.avg_pool1d(x, 3, stride=2),
        lambda x: x.unfold(-1, 3, 2).mean(-1),
        lambda x: x.unfold(-1, 3, 2).sum(-1),
    ),
    "largest of windows": (
        "237",
        lambda x: fn.max_pool1d(x, 2),
        lambda x: torch.maximum(x[..., :6:2], x[..., 1:6:2]),
        lambda x: torch.maximum(x[..., :6:2], x[..., 2::2]),
    ),
    "cumsum": (
        "45",
        lambda x: x.cumsum(0),
        lambda x: torch.ones(4, 4).tril() @ x,
        lambda x: torch.ones(4, 4).triu() @ x,
    ),
    "cumprod": (
        "35+",
        lambda x: x.cumprod(-1),
        lambda x: x.log().cumsum(-1).exp(),
        lambda x: x.log().sum(-1, keepdim=True).exp(),
    ),
    "embedding": (
        "53",
        lambda w: fn.embedding(LABELS, w),
        lambda w: fn.one_hot(LABELS, 5).to(w.dtype) @ w,
        lambda w: fn.one_hot(LABELS, 5).to(w.dtype).T @ w,
    ),
    "scattered": (
        "53",
        lambda x: x.new_zeros(3, 3).index_add(0, PLACES, x.exp()),
        lambda x: fn.one_hot(PLACES, 3).to(x.dtype).T @ x.exp(),
        lambda x: x.new_zeros(3, 3).index_copy(0, PLACES, x.exp()),
    ),
    "softmax of edges": (
        "5",
        lambda x: x.exp() / torch.zeros(3).scatter_add(0, PLACES, x.exp())[PLACES],
        lambda x: x.exp() / ((PLACES[:, None] == PLACES) * x.exp()).sum(-1),
        lambda x: x.exp() / torch.zeros(3).scatter_add(0, PLACES, x.exp())[PLACES.flip(0)],
    ),
    "index put": (
        "53 3",
        lambda x, y: x.index_put((PLACES[:2],), y, accumulate=True),
        lambda x, y: x + torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0])[:, None] * y,
        lambda x, y: x.index_put((PLACES[:2],), y),
    ),
    "roll": (
        "35",
        lambda x: x.roll(2, -1),
        lambda x: torch.cat([x[:, -2:], x[:, :-2]], -1),
        lambda x: torch.cat([x[:, 2:], x[:, :2]], -1),
    ),
    "flip": (
        "35",
        lambda x: x.flip(0),
        lambda x: x[torch.tensor([2, 1, 0])],
        lambda x: x.flip(1),
    ),
    "pad": (
        "35",
        lambda x: fn.pad(x, (1, 0)),
        lambda x: torch.cat([torch.zeros(3, 1), x], -1),
        lambda x: torch.cat([x, torch.zeros(3, 1)], -1),
    ),
    "in place": (
        "33",
        lambda x: write_rows(x, 1),
        lambda x: torch.stack([2 * x[:, 0], 3 * x[:, 1], 2 * x[:, 2]], -1),
        lambda x: write_rows(x, 0),
    ),
    "distances by norms": (
        "35 45",
        torch.cdist,
        lambda x, y: (x.square().sum(-1)[:, None] + y.square().sum(-1) - 2 * x @ y.T).sqrt(),
        lambda x, y: (x.square().sum(-1)[:, None] + y.square().sum(-1) - x @ y.T).abs().sqrt(),
    ),
    "distances": (
        "35 45",
        torch.cdist,
        lambda x, y: torch.linalg.vector_norm(x[:, None] - y, dim=-1),
        lambda x, y: (x[:, None] - y).square().sum(-1),
    ),
    "powers": (
        "35+",
        lambda x: x**-1.5,
        lambda x: x.rsqrt() / x,
        lambda x: x.rsqrt() * x,
    ),
    "powers of two": (
        "35",
        torch.exp2,
        lambda x: torch.exp(x * math.log(2)),
        lambda x: torch.exp(x / math.log(2)),
    ),
    "logarithms to a base": (
        "35+",
        torch.log2,
        lambda x: x.log() / math.log(2),
        lambda x: x.log() * math.log(2),
    ),
    "addmm": (
        "33 35 53",
        lambda x, y, z: torch.addmm(x, y, z, beta=0.5, alpha=2),
        lambda x, y, z: x / 2 + 2 * (y @ z),
        lambda x, y, z: 2 * x + (y @ z) / 2,
    ),
    "sum of products": (
        "33 233 233",
        torch.addbmm,
        lambda x, y, z: x + (y @ z).sum(0),
        lambda x, y, z: x + (y @ z).mean(0),
    ),
    "running logsumexp": (
        "35",
        lambda x: x.logcumsumexp(-1),
        lambda x: x.exp().cumsum(-1).log(),
        lambda x: x.cumsum(-1),
    ),
    "scatter reduced": (
        "5",
        lambda x: torch.zeros(3).scatter_reduce(0, PLACES, x.exp(), "sum"),
        lambda x: torch.zeros(3).scatter_add(0, PLACES, x.exp()),
        lambda x: torch.zeros(3).scatter(0, PLACES, x.exp()),
    ),
    "vector times matrix": (
        "3 34",
        lambda x, w: x @ w,
        lambda x, w: (x[:, None] * w).sum(0),
        lambda x, w: (x[:, None] * w).mean(0),
    ),
    "trace": (
        "44",
        torch.trace,
        lambda x: (x * torch.eye(4)).sum(),
        lambda x: (x * torch.eye(4).flip(0)).sum(),
    ),
}
