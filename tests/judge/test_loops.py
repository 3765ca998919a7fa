"""The direct loops against NumPy code written by hand, one formula at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from derive.frontend.from_text import parse
from derive.judge.loops import evaluate_loops, to_loops

if TYPE_CHECKING:
    from collections.abc import Callable

Arrays = dict[str, Any]


def softmax(x: Any, axis: int) -> Any:
    with np.errstate(invalid="ignore"):
        grown = np.exp(x - x.max(axis, keepdims=True))
        return grown / grown.sum(axis, keepdims=True)


def attend(a: Arrays) -> Any:
    scores = np.einsum("bid,bjd->bij", a["Q"], a["K"]) / np.sqrt(a["Q"].shape[-1])
    return np.einsum("bij,bje->bie", softmax(scores, 2), a["V"])


def attend_masked(a: Arrays) -> Any:
    scores = np.einsum("bid,bjd->bij", a["Q"], a["K"])
    scores = np.where(a["m"][:, None, :], scores, -np.inf)
    return np.einsum("bij,bje->bie", softmax(scores, 2), a["V"])


def split_heads(a: Arrays) -> Any:
    b, n, _ = a["x"].shape
    h = a["H"]
    q, k, v = ((a["x"] @ a[w]).reshape(b, n, h, -1).swapaxes(1, 2) for w in ("W_q", "W_k", "W_v"))
    y = softmax(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]), 3) @ v
    return y.swapaxes(1, 2).reshape(b, n, -1) @ a["W_o"]


def convolve(a: Arrays) -> Any:
    x, w = a["x"], a["w"]
    return np.stack([np.convolve(row, w[::-1], mode="valid") for row in x])


def pad_convolve(a: Arrays) -> Any:
    x, w = a["x"], a["w"]
    return np.convolve(x, w)[: len(x)]


def normalise(a: Arrays) -> Any:
    x = a["x"]
    center, spread = x.mean(1, keepdims=True), x.var(1, keepdims=True)
    return (x - center) / np.sqrt(spread + 1e-5) * a["g"] + a["c"]


def contrast(a: Arrays) -> Any:
    x, y = (t / np.sqrt((t * t).sum(1, keepdims=True)) for t in (a["x"], a["y"]))
    scores = x @ y.T / 0.1
    return -np.mean(np.diag(scores) - np.log(np.exp(scores).sum(1)))


def gate(a: Arrays) -> Any:
    def silu(t: Any) -> Any:
        return t / (1 + np.exp(-t))

    return (silu(a["x"] @ a["W"]) * (a["x"] @ a["V"])) @ a["O"]


def attend_graph(a: Arrays) -> Any:
    s = a["h"] @ a["a"]
    t = s[:, None] + s[None, :]
    t = np.where(t > 0, t, 0.2 * t)
    return softmax(np.where(a["A"], t, -np.inf), 1) @ a["h"]


def place_relative(a: Arrays) -> Any:
    s = len(a["q"])
    at = np.clip(np.arange(s)[None, :] - np.arange(s)[:, None], -2, 2) + 2
    return np.einsum("id,ijd->ij", a["q"], a["R"][at])


def window_max(a: Arrays) -> Any:
    x = a["x"]
    return np.array([x[2 * t : 2 * t + 3].max() for t in range((len(x) - 3) // 2 + 1)])


def near(a: Arrays) -> Any:
    s = len(a["x"])
    keep = np.abs(np.subtract.outer(np.arange(s), np.arange(s))) <= 1
    return np.array([a["x"][row].var() for row in keep])


def elementwise(a: Arrays) -> Any:
    x, y = torch.tensor(a["x"]), torch.tensor(a["y"])
    f = torch.nn.functional
    total = f.gelu(x) + f.silu(y) + f.softplus(x) + f.elu(y) + f.leaky_relu(x) - torch.erf(y)
    total = total + torch.sigmoid(x) * torch.tanh(y) + x.abs() ** 1.5 * torch.sign(y) + x.floor()
    return (total + torch.maximum(x, y) / torch.pi - y.clip(-0.5, 0.25)).numpy()


# text, the shapes of its arguments (a number is passed as it is), and the same by hand
CASES: dict[str, tuple[str, dict[str, Any], Callable[[Arrays], Any]]] = {
    "matrix product": (
        "A[M, K]; B[K, N]\nC[i, j] = sum[k](A[i, k] * B[k, j])",
        {"A": (2, 3), "B": (3, 4)},
        lambda a: a["A"] @ a["B"],
    ),
    "diagonal": ("A[N, N]\nd[i] = A[i, i]", {"A": (3, 3)}, lambda a: np.diag(a["A"])),
    "trace": ("A[N, N]\nt = sum[i](A[i, i])", {"A": (3, 3)}, lambda a: np.trace(a["A"])),
    "multiplicity": (
        "x[N]; y[M]\nz[i] = sum[j](x[i]) + sum[j](y[j])",
        {"x": (3,), "y": (4,)},
        lambda a: 4 * a["x"] + a["y"].sum(),
    ),
    "attention": (
        "Q, K[B, S, D]; V[B, S, E]\n"
        "z[b,i,e] = sum[j](softmax[j](sum[d](Q[b,i,d] * K[b,j,d]) / sqrt(D)) * V[b,j,e])",
        {"Q": (2, 3, 4), "K": (2, 3, 4), "V": (2, 3, 5)},
        attend,
    ),
    "masked attention": (
        "Q, K[B, S, D]; V[B, S, E]; bool m[B, S]\n"
        "a[b,i,j] = softmax[j, m[b,j]](sum[d](Q[b,i,d] * K[b,j,d]))\n"
        "z[b,i,e] = sum[j](a[b,i,j] * V[b,j,e])",
        {
            "Q": (3, 4, 2),
            "K": (3, 4, 2),
            "V": (3, 4, 5),
            "m": np.array([[1, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 0]], bool),
        },
        attend_masked,
    ),
    "heads": (
        "x[B, N, M]; W_q, W_k, W_v[M, H*D]; W_o[H*D, M]; size H; index h < H; index d < D\n"
        "q[b,h,n,d] = sum[p](x[b,n,p] * W_q[p, h*D + d])\n"
        "k[b,h,n,d] = sum[p](x[b,n,p] * W_k[p, h*D + d])\n"
        "v[b,h,n,d] = sum[p](x[b,n,p] * W_v[p, h*D + d])\n"
        "a[b,h,n,t] = softmax[t](sum[d](q[b,h,n,d] * k[b,h,t,d]) / sqrt(D))\n"
        "y[b, n, h*D + d] = sum[t](a[b,h,n,t] * v[b,h,t,d])\n"
        "z[b,n,p] = sum[c](y[b,n,c] * W_o[c,p])",
        {"x": (2, 3, 5), "W_q": (5, 8), "W_k": (5, 8), "W_v": (5, 8), "W_o": (8, 5), "H": 4},
        split_heads,
    ),
    "layer norm": (
        "x[B, N]; g, c[N]; scalar eps = 1e-5\n"
        "y[b,i] = (x[b,i] - mean[j](x[b,j])) / sqrt(var[j](x[b,j]) + eps) * g[i] + c[i]",
        {"x": (3, 5), "g": (5,), "c": (5,)},
        normalise,
    ),
    "sample variance": (
        "x[B, N]\ny[b] = var[j](x[b,j], correction=1)",
        {"x": (3, 5)},
        lambda a: a["x"].var(1, ddof=1),
    ),
    "contrastive loss": (
        "x, y[N, D]; scalar tau = 1/10\n"
        "u[i,d] = x[i,d] / sqrt(sum[c](x[i,c]**2))\n"
        "w[i,d] = y[i,d] / sqrt(sum[c](y[i,c]**2))\n"
        "L = -mean[i](sum[j](log_softmax[j](sum[d](u[i,d] * w[j,d]) / tau) * [i == j]))",
        {"x": (4, 3), "y": (4, 3)},
        contrast,
    ),
    "gated layer": (
        "x[B, D]; W, V[D, F]; O[F, D]\n"
        "h[b,f] = silu(sum[d](x[b,d] * W[d,f])) * sum[d](x[b,d] * V[d,f])\n"
        "y[b,d] = sum[f](h[b,f] * O[f,d])",
        {"x": (2, 3), "W": (3, 5), "V": (3, 5), "O": (5, 3)},
        gate,
    ),
    "graph attention": (
        "h[N, D]; a[D]; bool A[N, N]\ns[i] = sum[d](h[i,d] * a[d])\n"
        "w[i,j] = softmax[j, A[i,j]](leaky_relu(s[i] + s[j], 0.2))\n"
        "y[i,d] = sum[j](w[i,j] * h[j,d])",
        {
            "h": (4, 3),
            "a": (3,),
            "A": np.array([[1, 1, 0, 0], [0, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 1]], bool),
        },
        attend_graph,
    ),
    "prefix sums": (
        "x[S]; index i < S\ny[i] = sum[j, j <= i](x[j])",
        {"x": (5,)},
        lambda a: np.cumsum(a["x"]),
    ),
    "cumsum": ("x[B, S]\ny[b,i] = cumsum[i](x[b,i])", {"x": (2, 5)}, lambda a: a["x"].cumsum(1)),
    "gathered": (
        "int tok[B, S] < V; E[V, D]\ny[b,s,d] = E[tok[b,s], d]",
        {"tok": np.array([[2, 0], [1, 1], [0, 2]]), "E": (3, 4)},
        lambda a: a["E"][a["tok"]],
    ),
    "segments": (
        "size G; x[N]; int seg[N] < G; index g < G\ny[g] = sum[n](x[n] * [seg[n] == g])",
        {"x": (5,), "seg": np.array([0, 3, 3, 1, 0]), "G": 4},
        lambda a: np.bincount(a["seg"], a["x"], minlength=4),
    ),
    "valid windows": (
        "x[B, T]; w[K]; index t < T - K + 1\ny[b,t] = sum[k](x[b, t + k] * w[k])",
        {"x": (2, 6), "w": (3,)},
        convolve,
    ),
    "guarded windows": (
        "x[T]; w[K]; index t < T\ny[t] = sum[k](x[t - k] * w[k] * [0 <= t - k < T])",
        {"x": (5,), "w": (3,)},
        pad_convolve,
    ),
    "strided maximum": (
        "x[T]; size K = 3; index t < (T - K)//2 + 1; index k < K\ny[t] = max[k](x[2*t + k])",
        {"x": (8,)},
        window_max,
    ),
    "upsampling": (
        "x[T]; size r = 2; index t < T*r\ny[t] = x[t // r] - x[t % T]",
        {"x": (4,), "r": 3},
        lambda a: np.repeat(a["x"], 3) - np.tile(a["x"], 3),
    ),
    "reversal and fixed places": (
        "x[T]; index t < T\ny[t] = x[T - 1 - t] * x[0]",
        {"x": (4,)},
        lambda a: a["x"][::-1] * a["x"][0],
    ),
    "clipped relative places": (
        "q[S, D]; R[2*C + 1, D]; index i, j < S\n"
        "s[i,j] = sum[d](q[i,d] * R[clip(j - i, -C, C) + C, d])",
        {"q": (5, 2), "R": (5, 2)},
        place_relative,
    ),
    "relative table": (
        "R[2*S - 1]; index i, j < S\ny[i,j] = R[j - i + S - 1]",
        {"R": (7,)},
        lambda a: a["R"][np.arange(4)[None, :] - np.arange(4)[:, None] + 3],
    ),
    "band variance": (
        "x[S]; index i < S\ny[i] = var[j, abs(i - j) <= 1](x[j])",
        {"x": (5,)},
        near,
    ),
    "linear bias": (
        "s[H, S, S]; m[H]\ny[h,i,j] = s[h,i,j] + m[h] * (j - i)",
        {"s": (2, 3, 3), "m": (2,)},
        lambda a: a["s"] + a["m"][:, None, None] * (np.arange(3)[None, :] - np.arange(3)[:, None]),
    ),
    "best place": (
        "x[B, N]\nk[b] = argmax[j](x[b,j])",
        {"x": (4, 5)},
        lambda a: a["x"].argmax(1),
    ),
    "distances": (
        "x[N, D]; y[M, D]\nd[i,j] = sum[c]((x[i,c] - y[j,c])**2)",
        {"x": (3, 2), "y": (4, 2)},
        lambda a: ((a["x"][:, None] - a["y"][None]) ** 2).sum(2),
    ),
    "products and extrema": (
        "x[B, N]\ny[b] = prod[j](x[b,j]) + max[j](x[b,j]) * min[j](x[b,j])",
        {"x": (3, 4)},
        lambda a: a["x"].prod(1) + a["x"].max(1) * a["x"].min(1),
    ),
    "elementwise": (
        "x, y[N]\nz[i] = gelu(x[i]) + silu(y[i]) + softplus(x[i]) + elu(y[i]) + leaky_relu(x[i])"
        " - erf(y[i]) + sigmoid(x[i])*tanh(y[i]) + abs(x[i])**(3/2)*sign(y[i]) + floor(x[i])"
        " + max(x[i], y[i])/pi - clip(y[i], -0.5, 0.25)",
        {"x": (9,), "y": (9,)},
        elementwise,
    ),
}


def draw(shapes: dict[str, Any]) -> Arrays:
    random = np.random.default_rng(7)
    return {
        name: random.normal(size=shape) if isinstance(shape, tuple) else shape
        for name, shape in shapes.items()
    }


@pytest.mark.parametrize("name", CASES)
def test_equals_numpy(name: str) -> None:
    text, shapes, by_hand = CASES[name]
    arrays = draw(shapes)
    found = evaluate_loops(parse(text), arrays)
    np.testing.assert_allclose(found, by_hand(arrays), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_line_length(name: str) -> None:
    assert max(map(len, to_loops(parse(CASES[name][0])).splitlines())) <= 96


def test_the_text_is_what_people_read() -> None:
    text = to_loops(parse(CASES["masked attention"][0]))
    assert text == (
        "a = tensor(B, S, S)\n"
        "for b in range(B):\n"
        "    for i in range(S):\n"
        "        row = softmax(\n"
        "            [\n"
        "                sum(Q[b, i, d] * K[b, j, d] for d in range(D)) if m[b, j] else -inf\n"
        "                for j in range(S)\n"
        "            ]\n"
        "        )\n"
        "        for j in range(S):\n"
        "            a[b, i, j] = row[j]\n"
        "z = tensor(B, S, E)\n"
        "for b in range(B):\n"
        "    for i in range(S):\n"
        "        for e in range(E):\n"
        "            z[b, i, e] = sum(a[b, i, j] * V[b, j, e] for j in range(S))\n"
    )


def test_results_in_order_and_in_kind() -> None:
    formula = parse("x[N]\ny[i] = 2*x[i]\nk = argmax[i](x[i])\ns = sum[i](x[i])\nreturn s, k, y")
    s, k, y = evaluate_loops(formula, {"x": torch.tensor([1.0, 5.0, 2.0])})
    assert (s.dtype, k.dtype, y.dtype) == (torch.float64, torch.int64, torch.float64)
    assert (s.shape, k.shape, y.shape) == ((), (), (3,))
    assert (float(s), int(k), y.tolist()) == (8.0, 1, [2.0, 10.0, 4.0])
    assert evaluate_loops(formula, {"x": [1, 5, 2]}) == (8.0, 1, [2.0, 10.0, 4.0])
    assert isinstance(evaluate_loops(formula, {"x": np.ones(3)})[2], np.ndarray)


def test_empty_shapes() -> None:
    formula = parse("x[B, N]\ny[b] = sum[j](x[b,j])\nz[b,j] = softmax[j](x[b,j])\nreturn y, z")
    y, z = evaluate_loops(formula, {"x": torch.zeros(2, 0)})
    assert y.tolist() == [0.0, 0.0]
    assert z.shape == (2, 0)
    y, z = evaluate_loops(formula, {"x": torch.zeros(0, 3)})
    assert (y.shape, z.shape) == ((0,), (0, 3))
