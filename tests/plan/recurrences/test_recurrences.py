"""Recurrences over one and several indices: values, refusals, recurrent torch modules."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest
import torch
from fast_cases import slow_except
from texts import read_parts

from derive import DeriveError, build, evaluate_loops, gradient, parse, show
from derive.frontend.from_sympy import to_system
from derive.judge.samples import choose_sizes, draw_inputs


@pytest.mark.parametrize(
    ("text", "agrees"),
    [
        ("r[T]; scalar g; G[t] = r[t] + g * G[t + 1] * [t + 1 < T]", True),
        ("x[T]; G[t] = tanh(x[t] + where(t == T - 1, 0, G[t + 1]))", True),
        ("x[T]; h[t] = where(t - 1 < 0, 1, h[t - 1]) * x[t] + where(t - 1 < 0, 2, h[t - 1])", True),
        ("w[T]; h[t] = max(h[t - 1] * [t >= 1], tanh(softmax[t](w[t])))", True),
        ("w[T]; h[t] = tanh(h[t + 1] * [t + 1 < T] - cumsum[t](w[t])) + cumsum[t](w[t])", True),
        ("w, x[T]; h[0] = x[0]; h[t + 1] = h[t] * softmax[t](w[t])", True),
        ("x[T]; m[t] = tanh(x[t] - m[t + 1])", False),
        (
            (
                "int a[T, N] < K; v[K]; s[-1,n] = 0; s[t,n] = (s[t - 1,n] + a[t,n]) % K; "
                "y[t,n] = v[s[t,n]]"
            ),
            True,
        ),
        (
            (
                "int move[Q, A] < Q; int w[T] < A; v[Q]; s[-1] = 0; s[t] = move[s[t - 1],w[t]]; "
                "y[t] = v[s[t]]"
            ),
            True,
        ),
        ("x[T]; p[0] = 0; p[t] = where(x[t] > x[p[t - 1]], t, p[t - 1]); y[t] = x[p[t]]", True),
        (
            (
                "x[T,F]; h0[F,F]; h[t,e] = tanh(sum[f](where(t - 1 < 0, h0[f,e], h[t - 1,f])) + "
                "x[t,e])"
            ),
            True,
        ),
        (
            (
                "x[T,F]; h0[F]; index k < 2; h[-1,e] = h0[e]; "
                "h[t,e] = x[t,e] + max[k, k <= e](tanh(h[t - 1,e - k]))"
            ),
            True,
        ),
        (
            (
                "h0[B,E]; a, c[T,B,E]; h[T,b,e] = h0[b,e]; g[t,b,e] = h[t + 1,b,e]*c[t,b,e]; "
                "h[t,b,e] = tanh(a[t,b,e]*h[t + 1,b,e] + g[t,b,e])"
            ),
            True,
        ),
        (
            (
                "x[T,D]; W[E,D]; U[E,E]; h[T,e] = 1; "
                "r[t,e] = sigmoid(sum[f](U[e,f]*h[t + 1,f])); "
                "n[t,e] = tanh(sum[d](W[e,d]*x[t,d]) + r[t,e]); "
                "h[t,e] = n[t,e]*r[t,e] + (1 - r[t,e])*h[t + 1,e]; y[t] = sum[e](r[t,e]*n[t,e])"
            ),
            True,
        ),
    ],
)
def test_recurrences_from_the_last_place_and_with_guards(text, agrees):
    if agrees:
        assert build(text).judge().agrees
    else:
        with pytest.raises(DeriveError, match="may read outside"):
            build(text)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        (
            "x[T]; scalar a; h[0] = x[0]; h[t] = a * h[t - 1] + x[t]; y[t] = h[t] * x[t]",
            "x[T]; scalar a; h[t] = where(t < 1, x[t], a * h[t - 1] + x[t]); y[t] = h[t] * x[t]",
        ),
        (
            "x[B, T]; h[b,0] = x[b,0]; h[b,t] = h[b,t - 1] * x[b,t] / t",
            "x[B, T]; h[b,t] = where(t < 1, x[b,t], h[b,t - 1] * x[b,t] / t)",
        ),
        (
            "size T; index t < T; h[0] = 2; h[1] = 1; h[t] = h[t - 1] + h[t - 2]",
            "size T; index t < T; h[t] = where(t < 1, 2, where(t < 2, 1, h[t - 1] + h[t - 2]))",
        ),
        (
            "r[T]; scalar g; R[T - 1] = 3; R[t] = r[t] + g * R[t + 1]",
            "r[T]; scalar g; R[t] = where(t < T - 1, r[t] + g * R[t + 1], 3)",
        ),
        (
            "r[T]; scalar g; R[T] = 3; R[t] = r[t] + g * R[t + 1]",
            "r[T]; scalar g; index t < T + 1; R[t] = where(t < T, r[t] + g * R[t + 1], 3)",
        ),
        (
            "x[T]; scalar p; h[-2] = p; h[-1] = h[-2]*2 + 1; h[t] = h[t - 1]*h[t - 2] + x[t]",
            "x[T]; scalar p; h[-2] = p; h[-1] = p*2 + 1; h[t] = h[t - 1]*h[t - 2] + x[t]",
        ),
        (
            (
                "x[T,D]; p[D]; h[-2,d] = p[d]; h[-1,d] = sum[e](h[-2,e]*p[e]) + d; "
                "h[t,d] = h[t - 1,d] + h[t - 2,d]*x[t,d]"
            ),
            (
                "x[T,D]; p[D]; h[-2,d] = p[d]; h[-1,d] = sum[e](p[e]**2) + d; "
                "h[t,d] = h[t - 1,d] + h[t - 2,d]*x[t,d]"
            ),
        ),
        (
            (
                "x[T]; scalar p; g[-1] = p; h[-1] = g[-1] + 1; h[t] = h[t - 1]*g[t - 1] + x[t]; "
                "g[t] = h[t] + g[t - 1]"
            ),
            (
                "x[T]; scalar p; g[-1] = p; h[-1] = p + 1; h[t] = h[t - 1]*g[t - 1] + x[t]; "
                "g[t] = h[t] + g[t - 1]"
            ),
        ),
        (
            "x[T]; h[-1] = 2; h[0] = h[-1]*x[0]; h[t] = h[t - 1]*h[t - 2] + x[t]",
            "x[T]; h[t] = where(t < 1, 2*x[t], h[t - 1]*where(t < 2, 2, h[t - 2]) + x[t])",
        ),
        (
            (
                "x[T + 2,D]; h[t,d] = h[t - 1,d] + h[t - 2,d]*x[t,d]; "
                "h[1,d] = sum[e](h[0,e])*x[1,d]; h[0,d] = x[0,d]"
            ),
            (
                "x[T + 2,D]; h[0,d] = x[0,d]; h[1,d] = sum[e](x[0,e])*x[1,d]; "
                "h[t,d] = h[t - 1,d] + h[t - 2,d]*x[t,d]"
            ),
        ),
        (
            "x[T + 2]; h[T + 1] = x[0]; h[T] = h[T + 1]*2; h[t] = h[t + 1]*h[t + 2] + x[t]",
            "x[T + 2]; h[T + 1] = x[0]; h[T] = 2*x[0]; h[t] = h[t + 1]*h[t + 2] + x[t]",
        ),
    ],
)
def test_places_with_equations_of_their_own_begin_or_end_a_recurrence(text, means):
    one, other = parse(text), parse(means)
    system = to_system(one)
    tensors = draw_inputs(system, choose_sizes(system)[0])
    values = (torch.as_tensor(evaluate_loops(each, tensors)) for each in (one, other))
    assert torch.equal(*values)
    assert build(one).judge().agrees


# Recurrences over two or more indices, by title.
PARTS = read_parts(Path(__file__).with_name("waves.txt"))
WAVES = {name: text for name, (text,) in PARTS.items()}


FAST = slow_except(
    WAVES,
    *("before", "a corner told twice", "one up, one down", "three", "soft"),
    *("a local alignment", "of later rows"),
)


@pytest.mark.parametrize("name", FAST)
def test_recurrences_over_several_indices_are_built_and_differentiated(name):
    formula = parse(f"c[I,J]; {WAVES[name]}")
    assert show(parse(show(formula))) == show(formula)
    built = build(formula)  # build() also compares the file with the loops over fields
    for sizes in choose_sizes(built.system)[:2]:
        values = draw_inputs(built.system, sizes, 1)
        found, expected = built.function(**values), evaluate_loops(formula, values)
        torch.testing.assert_close(found, expected, check_dtype=False, rtol=1e-4, atol=1e-5)
    names = [key for key, value in values.items() if torch.is_tensor(value)]

    def call(*given):
        found = built.function(**{**values, **dict(zip(names, given, strict=True))})
        found = found if isinstance(found, tuple) else (found,)
        return tuple(each.masked_fill(each.isinf(), 0) for each in found)

    leaves = [values[key].double().requires_grad_() for key in names]
    assert torch.autograd.gradcheck(call, leaves, fast_mode=True)
    if name in {"guards", "one up, one down"}:
        assert build(gradient(formula)).judge().agrees


# The number of torch.where calls in a turn.
CHOICES = {"before": 1, "of batches": 1, "borders that are data": 1}


@pytest.mark.parametrize("name", CHOICES)
def test_border_values_are_padded_or_selected(name):
    source = build(f"c[I,J]; {WAVES[name]}").source
    lines = source[source.index("for D_") :].splitlines()
    turn = takewhile(lambda line: not line.startswith("    D_"), lines)
    code = [line for line in turn if not line.lstrip().startswith("#")]
    assert sum(line.count("torch.where(") for line in code) == CHOICES[name]


def test_alignments_are_those_of_a_loop_in_a_loop():
    def align(c):
        rows = [[0.0] + [torch.inf] * c.shape[1]]
        for row in c:
            rows.append([torch.inf])
            for j, cost in enumerate(row):
                rows[-1].append(cost + min(rows[-2][j], rows[-2][j + 1], rows[-1][j]))
        return torch.stack([torch.stack(row[1:]) for row in rows[1:]])

    text = f"c[I,J]; {WAVES['before']}"
    torch.testing.assert_close(build(text).function(c := torch.rand(9, 4)), align(c))


@pytest.mark.parametrize(
    "text",
    [
        "x[T]; index s < T; R[0] = 0; R[s + 1] = R[s] + x[s]; y[t] = R[t] * x[t]",
        "r[T]; scalar g; R[T] = 3; R[t] = r[t] + g * R[t + 1]; y[t] = R[t] * r[t]",
        "x[T]; scalar g; R[T] = 0; R[t] = x[t] + g * R[t + 1]; y[t] = R[t] * exp(x[t])",
    ],
)
def test_a_longer_table_is_read_by_a_shorter_index(text):
    assert build(text).judge().agrees


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x[T]; g[t] = h[t] + x[t]; h[t] = x[t]", "h is used before it is defined"),
        ("x[T]; h[t] = h[t - 1] + x[t]", "may read outside h"),
        (
            "x[T]; w[T]; k[t] = 1 + floor(x[t]); y[t] = w[k[t] + floor(x[t])]",
            "w[k[t] + floor(x[t])] may read outside w",
        ),
        ("x[T]; w[0] = 1; w[t] = x[t]", "w[0] is defined twice"),
        ("x[T]; h[-1] = 0; h[t] = h[t - 2] + x[t]", "may read outside h"),
        ("x[T]; h[-2] = 0; h[t] = h[t - 2] + x[t]", "no equation gives h a value at -1"),
        ("x[T]; h[-1] = 0; h[-1] = 1; h[t] = h[t - 1] + x[t]", "each place once"),
        ("x[T]; h[0] = 1; h[t + 1] = x[t] * softmax[t](h[t])", "a part of h goes along its index"),
        ("w[T]; h[-1] = 1; h[t] = softmax[t](w[t] * h[t - 1])", "not place after place"),
        ("x[T]; g[t] = h[t] + x[t]; h[t] = g[t]", "g, h are defined by one another"),
        ("d[N, N]; y[-1,j] = 0; y[i,j] = d[i,j] + y[i - 1,j] + y[i + 1,j] * [i + 1 < N]", "place"),
        (
            (
                "x[N]; index t < 3; f[0,n] = x[n]; g[t,n] = x[n] - f[t,n]; "
                "f[t + 1,n] = x[n] * g[t,n]; y[n] = f[3,n]"
            ),
            "a place ahead",
        ),
        ("c[I,J]; D[0,j] = j; D[i,0] = 1; D[i,j] = c[i,j] + D[i - 1,j] + D[i,j - 1]", "twice"),
        (
            (
                "c[I,J]; W[J,J]; D[-1,j] = 0; D[i,-1] = 0; "
                "D[i,j] = c[i,j] + sum[k](W[j,k] * D[i - 1,k]) + D[i,j - 1]"
            ),
            "a loop in a loop",
        ),
        ("x[T]; h[-1] = 2*h[-1]; h[t] = h[t - 1] + x[t]", "h_start is defined by itself"),
        (
            "x[T + 2]; h[0] = h[1]; h[1] = 2*h[0]; h[t] = h[t - 1]*h[t - 2] + x[t]",
            "not place after place",
        ),
    ],
)
def test_other_cyclic_definitions_are_refused(text, says):
    with pytest.raises(DeriveError) as caught:
        build(parse(text))
    assert says in caught.value.diagnostic.says


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("h[-1,d] = g[d]\nh[t,d] = h[t - 1,d] - x[t,d]", ".cumsum("),
        ("h[t,d] = where(t < T - 1, h[t + 1,d], 0) + x[t,d]", ".cumsum("),
        ("h[-1,d] = 1\nh[t,d] = h[t - 1,d] * x[t,d] * 2", ".cumprod("),
        ("h[-1,d] = g[d]\nh[t,d] = min(x[t,d], h[t - 1,d], 2*x[t,d])", ".cummin("),
        ("h[-1,d] = -oo\nh[t,d] = logaddexp(h[t - 1,d], x[t,d])", ".logcumsumexp("),
        ("h[-1,d] = g[d]\nh[t,d] = log(exp(h[t - 1,d]) + exp(x[t,d]))", ".logcumsumexp("),
        ("h[-1,d] = g[d]\nh[t,d] = h[t - 1,d] + x[t,d] * [t >= 1]", ".cumsum("),
        ("h[t,d] = x[t,d] + h[t - 1,d] * [t >= 1 and t != 3]", "_recur("),
        ("h[-1,d] = g[d]\nh[t,d] = max(h[t - 1,d], h[t - 1,d] + x[t,d])", "h_before"),
        ("index d < D\nh[-1,d] = g[d]\nh[t,d] = h[t - 1,D - 1 - d] + x[t,d]", "h_before"),
    ],
)
def test_running_sums_are_one_call(text, call):
    declared = "x[T, D]; g[D]\n" if "g[" in text else "x[T, D]\n"
    built = build(parse(declared + text))
    assert call in built.source
    assert ("_recur(" in built.source) is (call == "_recur(")
    inputs = draw_inputs(built.system, {"T": 6, "D": 3})
    expected = evaluate_loops(built.formula, inputs)
    torch.testing.assert_close(built.function(**inputs), torch.as_tensor(expected))
