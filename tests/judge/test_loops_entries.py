"""Single entries by the loops are those of the whole loop nest, and take what they need alone."""

from itertools import product

import pytest
import torch

from derive import evaluate_loops, parse
from derive.errors import DeriveError
from derive.formulas import find_formula
from derive.frontend.system import to_system
from derive.judge.loops import evaluate_entries
from derive.judge.samples import choose_sizes, draw_inputs

TEXTS = {
    "merged": """
        x[B, H*D]
        size H
        index h < H
        index g < H
        index d, e < D
        z[b, h, d] = softmax[d](x[b, h*D + d])
        y[b, d*H + h] = z[b, h, d] / sum[g, e](x[b, g*D + e])
    """,
    "number": """
        x[N, D]
        L = sum[n](max[d](x[n, d])) / N
        y[n] = x[n, 0] - L
        return L, y
    """,
    "gathered": """
        E[V, D]; int tok[N] < V
        y[n, d] = E[tok[n], d] - mean[e](E[tok[n], e])
    """,
    "guarded": """
        x[N]
        index j < N
        y[i] = sum[j](x[i - j] * [i >= j]) + cumsum[i](x[i])
    """,
}
NAMES = ("relative_attention", "masked_multi_head_attention", "layer_norm", "cosine_matrix")


@pytest.mark.parametrize("name", [*TEXTS, *NAMES])
def test_entries_are_those_of_the_loop_nest(name):
    formula = parse(TEXTS[name]) if name in TEXTS else find_formula(name)
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
