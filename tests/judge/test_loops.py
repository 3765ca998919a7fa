"""The direct loops against NumPy code written by hand, one formula at a time."""

import re
from ast import literal_eval
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from texts import read_parts

from derive.errors import DeriveError
from derive.formulas import find_formula
from derive.frontend.from_sympy import to_system
from derive.frontend.from_text import parse
from derive.judge.loops import evaluate_entries, evaluate_loops
from derive.judge.samples import choose_sizes, draw_inputs

Arrays = dict[str, Any]


def softmax(x: Any, axis: int) -> Any:
    with np.errstate(invalid="ignore"):
        grown = np.exp(x - x.max(axis, keepdims=True))
        return grown / grown.sum(axis, keepdims=True)


def attend_masked(a: Arrays) -> Any:
    scores = np.einsum("bid,bjd->bij", a["Q"], a["K"])
    scores = np.where(a["m"][:, None, :], scores, -np.inf)
    return np.einsum("bij,bje->bie", softmax(scores, 2), a["V"])


def pad_convolve(a: Arrays) -> Any:
    x, w = a["x"], a["w"]
    return np.convolve(x, w)[: len(x)]


def contrast(a: Arrays) -> Any:
    x, y = (t / np.sqrt((t * t).sum(1, keepdims=True)) for t in (a["x"], a["y"]))
    scores = x @ y.T / 0.1
    return -np.mean(np.diag(scores) - np.log(np.exp(scores).sum(1)))


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


PARTS = read_parts(__file__, "loops.txt")
CASES = {name: read_case(entry) for name, (entry,) in PARTS.items()}


def draw_arrays(shapes: dict[str, Any]) -> Arrays:
    random = np.random.default_rng(7)
    return {
        name: random.normal(size=shape) if isinstance(shape, tuple) else shape
        for name, shape in shapes.items()
    }


@pytest.mark.parametrize("name", CASES)
def test_equals_numpy(name: str) -> None:
    text, shapes, by_hand = CASES[name]
    arrays = draw_arrays(shapes)
    found = evaluate_loops(parse(text), arrays)
    wanted = eval(by_hand, globals() | {"a": arrays})
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


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


REFUSALS = read_parts(__file__, "refusals.txt")


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal(name: str) -> None:
    text, given, message = re.split(r"\ngiven (.*)\n", REFUSALS[name][0])
    with pytest.raises(DeriveError) as caught:
        evaluate_loops(parse(text), literal_eval(given))
    assert str(caught.value) == message


def test_long_recurrences_are_read_from_either_end() -> None:
    values = {"x": torch.ones(2000)}
    ahead = parse("x[T]; h[-1] = 0; h[t] = h[t - 1] + x[t]; y = h[T - 1]; return y, h")
    assert float(evaluate_loops(ahead, values)[0]) == 2000
    back = parse("x[T]; h[T] = 0; h[t] = h[t + 1] + x[t]; y = h[0]; return y")
    assert float(evaluate_loops(back, values)) == 2000


TEXTS = read_parts(__file__, "entries.txt")
NAMES = ("relative_attention", "masked_multi_head_attention", "layer_norm", "cosine_matrix")


@pytest.mark.parametrize("name", [*TEXTS, *NAMES])
def test_entries_are_those_of_the_loop_nest(name):
    formula = parse(*TEXTS[name]) if name in TEXTS else find_formula(name)
    system = to_system(formula)
    values = draw_inputs(system, choose_sizes(system, 1)[0])
    found = evaluate_loops(formula, values)
    whole = (
        dict(zip([t.name for t in system.results], found, strict=True))
        if isinstance(found, tuple)
        else {system.results[0].name: found}
    )
    places = {key: list(product(*map(range, each.shape))) for key, each in whole.items()}
    entries = evaluate_entries(formula, values, places, 10**7)
    for key, each in whole.items():
        assert list(entries[key]) == places[key]
        flat = torch.tensor(list(entries[key].values()), dtype=torch.float64)
        assert torch.equal(flat.nan_to_num(7.0), each.double().reshape(-1).nan_to_num(7.0))


def test_what_is_beyond_the_steps_is_left_out():
    formula = parse("A[N, K]; B[K, M]\nC[n,m] = sum[k](A[n,k]*B[k,m])")
    values = {"A": torch.ones(500, 400), "B": torch.ones(400, 500)}
    places = {"C": [(499, 0), (0, 499), (3, 3)]}
    assert evaluate_entries(formula, values, places, 1000) == {"C": {(499, 0): 400, (0, 499): 400}}


@pytest.mark.parametrize(
    ("text", "place", "code"),
    [
        ("x[N]\ny[i] = x[i]", (4,), "reads-outside"),
        ("x[2*P]\nindex p < P\ny[2*p] = x[2*p]", (1,), "place-not-filled"),
    ],
)
def test_entries_that_are_not_there_are_refused(text, place, code):
    with pytest.raises(DeriveError) as caught:
        evaluate_entries(parse(text), {"x": torch.ones(4)}, {"y": [place]}, 100)
    assert caught.value.diagnostic.code == code


LEAVES = ["x[i]", "A[i,j]", "c", "2", "0.5", "i", "N", "-1/3", "-x[i]**2", "(-x[j])**2", "2**-2"]
LEAVES += ["(i - 2) // 2", "-i // 2", "(i*j - 4) % 3", "N // 2 % 3", "-(i + 1) % (j + 2)"]
LEAVES += ["A[(i + j) // 2, (i - j) % N]", "abs(i - j)", "clip(i - j, -1, 1)"]


def fresh(text: str) -> str:
    """An index for one more sum around the text."""
    return next(index for index in "klopqrst" if f"[{index}" not in text)


rational = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        inner.map(lambda t: f"({t}) / (x[i]**2 + 1)"),
        inner.map(lambda t: f"({t}) * [i <= j]"),
        inner.map(lambda t: f"where(x[i] > c, {t}, j)"),
        inner.map(lambda t: f"where(not ({t} > 0 and i < j) or x[i] == c, {t}, 1)"),
        inner.map(lambda t: f"where(i != j, 2, {t})"),
        inner.map(lambda t: f"-({t})"),
        inner.map(lambda t: f"c - ({t}) / -2"),
        inner.map(lambda t: f"max({t}, A[i,j])"),
        inner.map(lambda t: "sum[k](A[i,k] + {})".replace("k", fresh(t)).format(t)),
        inner.map(lambda t: "mean[k, k <= i](x[k] * {})".replace("k", fresh(t)).format(t)),
    ),
    max_leaves=6,
)


@given(rational, st.integers(0, 1000))
def test_floats_agree_with_python(body: str, seed: int) -> None:
    """The notation's words given to Python itself: the same text, another reader."""
    formula = parse(f"x[N]; A[N, N]; scalar c; index i, j, k, l, o, p, q, r < N\ny[i,j] = {body}")
    random = np.random.default_rng(seed)
    values = {"x": random.normal(size=3), "A": random.normal(size=(3, 3)), "c": 0.5}
    wanted = [
        [_evaluate_text(body, values, {"i": a, "j": b, "N": 3}) for b in range(3)] for a in range(3)
    ]
    np.testing.assert_allclose(evaluate_loops(formula, values), wanted, rtol=1e-12, atol=1e-12)


def _evaluate_text(body: str, values: dict[str, Any], at: dict[str, int]) -> float:
    """The value of a text in Python, with sums and brackets written as calls of lambdas."""
    while True:
        start = re.search(r"(sum|mean)\[(\w)(, \w <= i)?\]\(", body)
        if start is None:
            break
        end, depth = start.end(), 1
        while depth:
            depth += {"(": 1, ")": -1}.get(body[end], 0)
            end += 1
        inside = body[start.end() : end - 1]
        name = f"{start[1]}_{'to_i' if start[3] else 'all'}"
        body = f"{body[: start.start()]}{name}(lambda {start[2]}: {inside}){body[end:]}"
    body = body.replace("[i <= j]", "(i <= j)")

    def all_k(g: Any) -> list[float]:
        return [g(k) for k in range(3)]

    scope = {
        **values,
        **at,
        "where": lambda c, a, b: a if c else b,
        "clip": lambda value, low, high: min(max(value, low), high),
        "sum_all": lambda g: sum(all_k(g)),
        "mean_to_i": lambda g: np.mean(all_k(g)[: at["i"] + 1]),
    }
    return float(eval(body, scope))
