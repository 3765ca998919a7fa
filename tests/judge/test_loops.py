"""The direct loops against NumPy code written by hand, one formula at a time."""

from __future__ import annotations

import re
from ast import literal_eval
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from texts import read_parts

from derive.errors import DeriveError
from derive.frontend.from_text import parse
from derive.judge.loops import evaluate_loops, to_loops

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


def read_case(entry: str) -> tuple[str, Any, str]:
    """The text of a case, what it is given, and the same by hand."""
    text, given, by_hand = re.split(r"\n(?:given|by hand) ", entry)
    return text, eval(given, {"np": np}), by_hand


PARTS = read_parts(Path(__file__).with_name("loops.txt"))
CASES = {name: read_case(entry) for name, (entry,) in PARTS.items()}


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
    wanted = eval(by_hand, globals() | {"a": arrays})
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


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


REFUSALS = read_parts(Path(__file__).with_name("refusals.txt"))


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal(name: str) -> None:
    text, given, message = re.split(r"\ngiven (.*)\n", REFUSALS[name][0])
    with pytest.raises(DeriveError) as caught:
        evaluate_loops(parse(text), literal_eval(given))
    assert str(caught.value) == message
