"""The loop over a recurrence: order of equations, kept states, conditions, library calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from texts import read_parts

from derive import DeriveError, build, evaluate_loops, parse
from derive.judge.samples import choose_sizes, draw_inputs

TURN = ["u[t] = tanh(v[t] + w[t])", "v[t] = w[t] * x[t] + u[t - 1]", "w[t] = w[t - 1] + v[t - 1]"]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (2, 1, 0)])
@pytest.mark.parametrize("is_begun_first", [True, False])
def test_equations_of_a_turn_come_in_any_order(order, is_begun_first):
    begin = ["u[-1] = 1; v[-1] = 0; w[-1] = 2"]
    turn = [TURN[k] for k in order]
    lines = [*begin, *turn] if is_begun_first else [*turn, *begin]
    formula = parse("\n".join(["x[T]", *lines, "return u, v, w"]))
    inputs = {"x": torch.randn(4, dtype=torch.float64)}
    found = build(formula).function(**inputs)
    for one, other in zip(found, evaluate_loops(formula, inputs), strict=True):
        torch.testing.assert_close(one, torch.as_tensor(other))


def test_equations_that_read_one_another_in_one_turn_are_refused():
    with pytest.raises(DeriveError, match="not place after place"):
        build(parse("x[T]\nu[-1] = 0\nu[t] = v[t] + u[t - 1]\nv[t] = u[t] * x[t]"))


@pytest.mark.parametrize(
    "text",
    [
        (
            "z[T]; h[-1] = 0; g[-1] = 0; h[t] = h[t - 1] + z[t]; "
            "g[t] = max(g[t - 1], h[t - 1]); return h, g"
        ),
        (
            "z[T]; h[0] = 1; g[0] = 0; h[t] = h[t - 1] ** 2 + z[t]; "
            "g[t] = max(g[t - 1], h[t - 1]); return h, g"
        ),
        (
            "x, w[T]; h[-1] = 0; g[-1] = 0.5; h[t] = tanh(h[t - 1]) + x[t]; "
            "g[t] = g[t - 1] + min(h[t - 1], g[t - 1]); return h, g"
        ),
        (
            "x, w[B,T]; a[B]; h[b,T] = a[b]; g[b,T] = 1; "
            "h[b,t] = logaddexp(h[b,t + 1], w[b,t]); "
            "g[b,t] = tanh(g[b,t + 1]) * h[b,t + 1] + x[b,t]; return h, g"
        ),
        (
            "x, w[T]; h[-1] = 0; g[-1] = 0; q[-1] = 1; h[t] = min(h[t - 1] - w[t], x[t]); "
            "g[t] = max(g[t - 1], x[t] + w[t]) + h[t - 1]; q[t] = q[t - 1] * (x[t] + 1); "
            "return h, g, q"
        ),
        "x, w[T]; h[t] = h[t + 1] * x[t] + w[t]; h[T] = 1",
        (
            "x, w[T]; h[T] = 0; h[t] = h[t + 1] + min(h[t + 1], g[t + 1]); "
            "g[t] = g[t + 1] * w[t]; g[T] = 1; return h, g"
        ),
        (
            "x, w[T]; h[t] = h[t - 1] * w[t] + x[t]; h[0] = x[0]; q[-1] = 1; "
            "q[t] = h[t] - 0.5 * q[t - 1]; return h, q"
        ),
        (
            "x, w[T]; h[-1] = 1; g[-1] = 2; q[-1] = 0; h[t] = h[t - 1] * x[t] + q[t - 1]; "
            "g[t] = g[t - 1] * x[t]; q[t] = min(q[t - 1], h[t] * g[t]); return h, g, q"
        ),
    ],
)
def test_recurrences_that_read_one_anothers_places_before(text):
    built = build(text)
    for length in (1, 2, 3, 6):
        inputs = draw_inputs(built.system, {"T": length, "B": 2})
        expected = evaluate_loops(built.formula, inputs)
        for one, other in zip(built.function(**inputs), expected, strict=True):
            torch.testing.assert_close(one, torch.as_tensor(other))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (
            (
                "x[T,B]; h0[B]; h[-1,b] = h0[b]; h[t,b] = tanh(h[t - 1,b] + x[t,b]); "
                "y[b] = h[T - 1,b]"
            ),
            "",
        ),
        (
            (
                "x[T,B]; h[-2,b] = 3; h[-1,b] = 1; "
                "h[t,b] = sin(x[t,b] * h[t - 1,b]) - h[t - 2,b]; y = h[T - 1,0]**2"
            ),
            "",
        ),
        (
            (
                "x[T]; int n[B] < T + 1; h[-1] = 2; "
                "h[t] = where(t < n[0], tanh(x[t] + h[t - 1]), h[t - 1]); y = h[T - 1]"
            ),
            "",
        ),
        (
            (
                "q, k[T,B]; S[-1,b,i] = 0; S[t,b,i] = tanh(S[t - 1,b,i] + k[t,b]*k[t,i]); "
                "o[t,i] = sum[b](q[t,b]*S[t,b,i])"
            ),
            "o",
        ),
        (
            (
                "q, k[T,B]; S[-1,b,i] = 0; S[t,b,i] = sin(S[t - 1,b,i]) + k[t,b]*k[t,i]; "
                "g[t] = exp(q[t,0]) * max[b,i](S[t,b,i]) + q[t,0]; y[b] = sum[i](S[T - 1,b,i]); "
                "return g, y"
            ),
            "S_max",
        ),
        (
            (
                "q, k[T,B]; S[-1,b,i] = 0; S[t,b,i] = sin(S[t - 1,b,i]) + k[t,b]*k[t,i]; "
                "u[t,i] = q[t,i]**2; o[t,i] = sum[b](u[t,b]*S[t,b,i]); p[t] = sum[b](o[t,b]*u[t,b])"
            ),
            "o",
        ),
        (
            (
                "q, k[T,B]; S[-1,b,i] = 0; S[t,b,i] = sin(S[t - 1,b,i]) + k[t,b]*k[t,i]; "
                "o[t,i] = sum[b](q[t,b]*S[t,b,i]); p[b] = sum[t](S[t,b,b]); return o, p"
            ),
            "S",
        ),
        (
            (
                "q, k[T,B]; S[-1,b,i] = 0; S[t,b,i] = sin(S[t - 1,b,i]) + k[t,b]*k[t,i]; "
                "o[t,i] = sum[b](q[t,b]*S[t,b,i]); return o, S"
            ),
            "S",
        ),
    ],
)
def test_only_states_that_more_than_sums_and_the_last_place_read_are_kept(text, kept):
    built = build(text, sizes={"T": 5, "B": 512 if "S[" in text else 3})
    stacked = re.findall(r"(\w+) = torch\.stack\((\w+_each)", built.source.replace("(\n", "("))
    assert [name for name, _ in stacked] == [kept] * bool(kept)
    assert_right_at_every_length(built)


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        (
            (
                "x[T,B]; V[t,b] = where(t == T - 1, x[t,b], where(b <= t, max(x[t,b], V[t + "
                "1,min(b + 1, B - 1)]), 0)); y[b] = V[0,b]"
            ),
            1,
        ),
        ("x[T,B]; W[B,B]; h[t,b] = tanh(x[t,b] + [t >= 1] * sum[c](W[b,c] * h[t - 1,c]))", 0),
        (
            (
                "x[T,B]; h[t,b] = sin(x[t,b] + where(t != 0, 2 * h[t - 1,b] + x[t,b] * h[t - "
                "1,b], 0))"
            ),
            0,
        ),
        (
            (
                "x[T,B]; h0[B]; h[t,b] = sin(x[t,b] + where(t == 0, h0[b], h[t - 1,b])) - "
                "where(t == 0, h0[b], h[t - 1,b])"
            ),
            0,
        ),
        ("x[T,B]; h[t,b] = sin(x[t,b] + where(t == T - 1, 0, x[t,b] * h[t + 1,b]))", 0),
        ("x[T,B]; h[t,b] = sin(x[t,b] + [t >= 1] * x[max(t - 1, 0),b] / x[t,b] * h[t - 1,b])", 0),
        (
            (
                "x[T,B]; a[-1,b] = 1; a[t,b] = where(t == 0, b, sin(a[t - 1,b]) + c[t - 1,b]); "
                "c[t,b] = where(t == 0, a[t,b], c[t - 1,b]) * x[t,b]; return a, c"
            ),
            0,
        ),
        (
            (
                "x[T,B]; int n[B] < T; h[-1,b] = 1; "
                "h[t,b] = where(t < n[b], sin(h[t - 1,b] + x[t,b]), h[t - 1,b])"
            ),
            1,
        ),
    ],
)
def test_conditions_on_the_place_of_a_turn_are_decided_before_the_loop(text, choices):
    built = build(text)
    turn = built.source.partition("\n    for ")[2].partition("return ")[0]
    assert turn.count("torch.where(") == choices
    assert built.judge().agrees
    assert_right_at_every_length(built)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "text",
    [
        "x[T]; h[t] = where(t < 1, x[t], tanh(h[t - 1]*0.5 + x[t]))",
        "x[T]; h[t] = where(t < 2, x[t], h[t - 1] * h[t - 2])",
        ("x[B,T]; h[b,t] = where(t < 3, x[b,t]**2, h[b,t - 1] / (h[b,t - 2]**2 + 2) + h[b,t - 3])"),
        ("x, f[T]; h[0] = f[0]; h[1] = f[1]; h[t] = x[t]*h[t - 1] + h[t - 2]*f[t]; y[t] = h[t]**2"),
        ("x[T]; index t < T; h[0] = 2; h[1] = x[0]; h[2] = x[1]; h[t] = sin(h[t - 1]) / h[t - 3]"),
        "x[T]; h[-2] = 3; h[-1] = 1; h[t] = x[t] * h[t - 1] - 0.5*h[t - 2]",
        "r[T]; R[T - 1] = 3; R[t] = tanh(r[t] * R[t + 1])",
        (
            "u, w[B]; size T; index t < T; q[0,b] = u[b]; q[1,b] = u[b] + w[b]; "
            "q[t,b] = 2*q[t - 1,b] - q[t - 2,b] + (q[t - 1,(b + 1) % B] - 2*q[t - 1,b] + "
            "q[t - 1,(b - 1) % B]) / 4"
        ),
        (
            "u, w[B]; size T; index t < T; q[0,b] = u[b]; p[0,b] = w[b]; "
            "p[t,b] = p[t - 1,b] - sin(q[t - 1,b]) / 8; q[t,b] = q[t - 1,b] + p[t,b] / 8; "
            "return q, p"
        ),
        (
            "x[T,B]; h[-1,b] = b; "
            "h[t,b] = x[t,b] + max(h[t - 1,b], where(b >= 1, h[t - 1,b - 1] + x[t,0], -oo), "
            "where(b + 2 < B, h[t - 1,b + 2], 1/2))"
        ),
    ],
)
def test_recurrences_at_every_length(text):
    built = build(text)
    assert built.judge().agrees
    assert_right_at_every_length(built)


def assert_right_at_every_length(built):
    for length in (0, 1, 2, 3, 5):
        inputs = draw_inputs(built.system, {"T": length, "B": 3})
        try:
            expected = evaluate_loops(built.formula, inputs)
        except DeriveError as error:  # an equation fills a position outside of the tensor
            assert error.diagnostic.code == "reads-outside"
            with pytest.raises(ValueError, match="is not there"):
                built.function(**inputs)
            continue
        results = built.function(**inputs)
        results, expected = (
            [torch.as_tensor(each) for each in (found if isinstance(found, tuple) else (found,))]
            for found in (results, expected)
        )
        for one, other in zip(results, expected, strict=True):
            torch.testing.assert_close(one, other, check_dtype=False)
        real = (n for n, v in inputs.items() if torch.is_tensor(v) and v.is_floating_point())
        names = [*real] * bool(length)
        values = [inputs.pop(name).double().requires_grad_() for name in names]

        def call(*given, names=names, sizes=inputs):
            return built.function(**dict(zip(names, given, strict=True)), **sizes)

        assert not values or torch.autograd.gradcheck(call, values)


# The first word of a title is the torch call that the recurrence becomes.
GATED = read_parts(Path(__file__).with_name("gates.txt"))


@pytest.mark.parametrize("title", GATED)
def test_recurrences_with_gates_are_one_call_of_torch(title):
    built, plain = (build(GATED[title][0], cells=cells) for cells in (True, False))
    called = [name for name in ("lstm", "gru") if f"torch.{name}(" in built.source]
    assert called == [word for word in [title.split(":")[0]] if word != "none"]
    assert built.judge().agrees
    values = draw_inputs(built.system, choose_sizes(built.system)[0])
    leaves = {k: v.requires_grad_() for k, v in values.items() if torch.is_tensor(v)}
    results = [each.function(**{**values, **leaves}) for each in (built, plain)]
    totals = [sum(each.sum() for each in r) if isinstance(r, tuple) else r.sum() for r in results]
    slopes = [torch.autograd.grad(total, [*leaves.values()]) for total in totals]
    for one, other in zip(*slopes, strict=True):
        torch.testing.assert_close(one, other)


PATHS = "w[N,N]; D[0,i,j] = w[i,j]; D[k+1,i,j] = min(D[k,i,j], D[k,i,k] + D[k,k,j]); index k < N; "
MOVING = {
    "shortest paths": f"{PATHS}index i < N; index j < N; y[i,j] = D[N,i,j]",
    "elimination": (
        "A[N,N]; L[0,i,j] = A[i,j] + 9 * [i == j]; index k < N - 1; index i < N; index j < N; "
        "L[k+1,i,j] = where(i > k and j > k, L[k,i,j] - L[k,i,k] * L[k,k,j] / L[k,k,k], L[k,i,j])"
    ),
    "a knapsack": (
        "v[I]; int c[I] < W; size W; index w < W; index i < I; V[0,w] = 0 * v[0]; "
        "V[i+1,w] = max(V[i,w], where(w >= c[i], V[i,w - c[i]] + v[i], 0))"
    ),
    "before the first place": (
        "x[T,N]; index n < N; index t < T - 1; h[0,n] = x[0,n]; "
        "h[t+1,n] = where(n >= t, h[t,n - t], 0) + x[t,n]"
    ),
    "behind the last place": (
        "x[T,N]; h[t,n] = where(t > 0 and n + t < N, h[t - 1,n + t], 0) + x[t,n]"
    ),
    "around": "x[T,N]; h[t,n] = where(t > 0, h[t - 1,(n + t) % N], 0) + x[t,n]",
    "two places": (
        "x[T,N,M]; h[t,n,m] = where(t > 0, h[t - 1,t % N,m] + h[t - 1,n,t // 2 % M], 0) + x[t,n,m]"
    ),
    "at data": "x[T,N]; int p[T] < N; h[t,n] = where(t > 0, h[t - 1,p[t]] / 2, 0) + x[t,n]",
}


@pytest.mark.parametrize("text", MOVING.values(), ids=MOVING)
def test_a_turn_reads_the_state_at_places_that_move(text):
    build(text).judge()


def test_a_place_that_the_turn_names_is_a_view():
    source = build(MOVING["shortest paths"], {"N": 64}).source
    assert "D_before[:, l_2][:, None] + D_before[l_2]" in source
