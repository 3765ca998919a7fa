"""Recurrences: a table of formulas with code by hand, shown, evaluated, built and checked."""

from __future__ import annotations

import pytest
import torch

from derive import DeriveError, build, check, evaluate_loops, from_torch, gradient, parse, show
from derive.frontend.system import to_system
from derive.ir.text import to_text
from derive.judge.samples import choose_sizes, draw_inputs

GATES = {
    "i": "sigmoid(sum[d](W_i[e,d] * x[n,t,d]) + sum[k](U_i[e,k] * h[n,t - 1,k]))",
    "f": "sigmoid(sum[d](W_f[e,d] * x[n,t,d]) + sum[k](U_f[e,k] * h[n,t - 1,k]))",
    "g": "tanh(sum[d](W_g[e,d] * x[n,t,d]) + sum[k](U_g[e,k] * h[n,t - 1,k]))",
    "o": "sigmoid(sum[d](W_o[e,d] * x[n,t,d]) + sum[k](U_o[e,k] * h[n,t - 1,k]))",
}
LSTM = "\n".join(
    [
        "x[B, T, D]; W_i, W_f, W_g, W_o[E, D]; U_i, U_f, U_g, U_o[E, E]",
        "h[n,-1,e] = 0; c[n,-1,e] = 0",
        *(f"{gate}[n,t,e] = {value}" for gate, value in GATES.items()),
        "c[n,t,e] = f[n,t,e] * c[n,t - 1,e] + i[n,t,e] * g[n,t,e]",
        "h[n,t,e] = o[n,t,e] * tanh(c[n,t,e])",
        "return h, c",
    ]
)


def linear(a, x, h0):
    """A linear recurrence of numbers."""
    out, h = [], h0
    for t in range(len(x)):
        h = a[t] * h + x[t]
        out.append(h)
    return torch.stack(out)


def linear_late(a, x, h0):
    """The same one turn late."""
    out, h = [], h0
    for t in range(len(x)):
        out.append(h * 1.0)
        h = a[t] * h + x[t]
    return torch.stack(out)


def lstm(x, *weights):
    """A cell with four gates, by torch's own module."""
    steps, states, h = [], [], x.new_zeros(x.shape[0], weights[0].shape[0])
    c = h
    for t in range(x.shape[1]):
        i, f, g, o = (x[:, t] @ weights[k].T + h @ weights[k + 4].T for k in range(4))
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        steps.append(h)
        states.append(c)
    return torch.stack(steps, 1), torch.stack(states, 1)


def delta(q, k, v, beta):
    """A memory that is corrected by what it does not know yet."""
    state, out = q.new_zeros(k.shape[1], v.shape[1]), []
    for t in range(len(q)):
        state = state + torch.outer(k[t], beta[t] * (v[t] - k[t] @ state))
        out.append(q[t] @ state)
    return torch.stack(out)


def viterbi(e, a, p):
    """The best score of a path."""
    best = p + e[0]
    for t in range(1, e.shape[0]):
        best = (best[:, None] + a).amax(0) + e[t]
    return best.max()


def masked(x, m, h0):
    """Steps that a mask leaves out."""
    out, h = [], h0
    for t in range(x.shape[1]):
        h = torch.where(m[:, t, None], torch.tanh(x[:, t] + h), h)
        out.append(h)
    return torch.stack(out, 1)


def filtered(y, q, r):
    """A filter of one number."""
    out, m, p = [], 0.0, 1.0
    for each in y:
        before = p + q
        gain = before / (before + r)
        m = m + gain * (each - m)
        p = (1 - gain) * before
        out.append(m)
    return torch.stack(out)


def two_back(x):
    """Two places back."""
    out = [torch.zeros(()), torch.ones(())]
    for each in x:
        out.append(out[-1] + out[-2] + each)
    return torch.stack(out[2:])


def guarded(a, x):
    """Nothing stands before the first place."""
    out = [x[0]]
    for t in range(1, len(x)):
        out.append(a[t] * out[-1] + x[t])
    return torch.stack(out)


def waves(u0, k):
    """Four steps of the heat equation on a ring."""
    out, u = [], u0
    for _ in range(4):
        u = u + k * (u.roll(-1) - 2 * u + u.roll(1))
        out.append(u)
    return torch.stack(out)


# formula, code by hand, shapes of the arguments
TABLE = {
    "linear": (
        "a, x[T]; scalar h0\nh[-1] = h0\nh[t] = a[t] * h[t - 1] + x[t]",
        linear,
        [(4,), (4,), ()],
    ),
    "begun in the tensor": (
        "a, x[T]\nindex s < T - 1\nh[0] = x[0]\nh[s + 1] = a[s + 1] * h[s] + x[s + 1]",
        guarded,
        [(4,), (4,)],
    ),
    "guarded": ("a, x[T]\nh[t] = a[t] * h[t - 1] * [t >= 1] + x[t]", guarded, [(4,), (4,)]),
    "lstm": (LSTM, lstm, [(2, 4, 3), *[(5, 3)] * 4, *[(5, 5)] * 4]),
    "delta rule": (
        """q, k[T, K]; v[T, V]; beta[T]
        S[-1,i,j] = 0
        u[t,j] = beta[t] * (v[t,j] - sum[i](S[t - 1,i,j] * k[t,i]))
        S[t,i,j] = S[t - 1,i,j] + k[t,i] * u[t,j]
        o[t,j] = sum[i](S[t,i,j] * q[t,i])""",
        delta,
        [(4, 3), (4, 3), (4, 2), (4,)],
    ),
    "viterbi": (
        """e[T, S]; A[S, S]; p[S]; index t < T - 1
        d[0,s] = p[s] + e[0,s]
        d[t + 1,s] = max[r](d[t,r] + A[r,s]) + e[t + 1,s]
        best = max[s](d[T - 1,s])""",
        viterbi,
        [(4, 3), (3, 3), (3,)],
    ),
    "masked": (
        """x[B, T, D]; bool m[B, T]; h0[B, D]
        h[b,-1,d] = h0[b,d]
        h[b,t,d] = where(m[b,t], tanh(x[b,t,d] + h[b,t - 1,d]), h[b,t - 1,d])""",
        masked,
        [(2, 4, 3), (2, 4), (2, 3)],
    ),
    "filter": (
        """y[T]; scalar q = 0.5, r = 0.25
        m[-1] = 0; P[-1] = 1
        before[t] = P[t - 1] + q
        K[t] = before[t] / (before[t] + r)
        m[t] = m[t - 1] + K[t] * (y[t] - m[t - 1])
        P[t] = (1 - K[t]) * before[t]
        return m""",
        filtered,
        [(4,), (), ()],
    ),
    "two places back": (
        "x[T]; h[-1] = 1; h[-2] = 0; h[t] = h[t - 1] + h[t - 2] + x[t]",
        two_back,
        [(4,)],
    ),
    "on a ring": (
        """u0[N]; scalar k; index i < N; index t < 4
        u[-1,i] = u0[i]
        u[t,i] = u[t - 1,i] + k * (u[t - 1,(i + 1) % N] - 2 * u[t - 1,i] + u[t - 1,(i - 1) % N])""",
        waves,
        [(5,), ()],
    ),
}


@pytest.mark.parametrize("name", TABLE)
def test_recurrences_are_shown_evaluated_and_built(name):
    text, by_hand, shapes = TABLE[name]
    formula = parse(text)
    assert show(parse(show(formula))) == show(formula)
    built = build(formula)
    assert built.judge().agrees
    assert " in " in built.source and "torch.stack(" in built.source
    assert build(formula, cells=False).judge().agrees
    torch.manual_seed(0)
    values = {}
    for entry, shape in zip(built.system.inputs, shapes, strict=True):
        value = torch.rand(shape, dtype=torch.float64) + 0.25
        values[entry.name] = value > 0.75 if getattr(entry, "kind", "") == "bool" else value
        if not shape:
            values[entry.name] = float(value)
    expected = by_hand(*values.values())
    found = evaluate_loops(formula, values)
    torch.testing.assert_close(found, expected, check_dtype=False)
    torch.testing.assert_close(built.function(**values), expected, check_dtype=False)


def test_gradients_go_through_a_built_recurrence():
    built = build(TABLE["linear"][0])
    a, x = (torch.rand(4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, x: built.function(a, x, 0.5), (a, x))


@pytest.mark.parametrize("name", TABLE)
def test_the_gradient_of_a_recurrence_recurs_the_other_way(name):
    text = TABLE[name][0]
    built, back = build(text), build(gradient(parse(text)))
    assert back.judge().agrees
    assert build(text, backward=True).judge().agrees
    sizes = choose_sizes(built.system, count=1)[0]
    values = draw_inputs(built.system, sizes, 1)
    leaves = {
        key: value.double().requires_grad_()
        for key, value in values.items()
        if torch.is_tensor(value) and value.is_floating_point()
    }
    values |= leaves
    results = built.function(**values)
    results = results if isinstance(results, tuple) else (results,)
    torch.manual_seed(0)
    seeds = [torch.randn_like(each) if each.ndim else each.new_ones(()) for each in results]
    expected = torch.autograd.grad(results, [*leaves.values()], seeds)
    given = dict(zip((f"d{t.name}" for t in built.system.results), seeds, strict=True))
    names = [entry.name for entry in back.system.inputs]
    found = back.function(**{k: v for k, v in (values | given).items() if k in names})
    found = found if isinstance(found, tuple) else (found,)
    torch.testing.assert_close(found, expected)


EXTREMES = {
    "gates": lambda a: a.sigmoid(),
    "negative": lambda a: -a.sigmoid(),
    "zeros": lambda a: a.clamp(min=0),
    "large": lambda a: a * 1e30,
    "tiny": lambda a: a * 1e-30,
    "both": lambda a: a * 10.0 ** torch.randint(-8, 8, a.shape),
}


@pytest.mark.parametrize("kind", EXTREMES)
def test_chunks_are_finite_where_the_loop_is(kind):
    function = build(
        "a, x[B,T,D]; h0[B,D]; h[b,-1,d] = h0[b,d]; h[b,t,d] = a[b,t,d]*h[b,t - 1,d] + x[b,t,d]"
    ).function
    torch.manual_seed(0)
    for length in (0, 1, 2, 17, 65):
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            a, x = torch.randn(2, 2, length, 3, dtype=torch.float64)
            a, x, h = EXTREMES[kind](a).to(dtype), x.to(dtype), torch.zeros(2, 3, dtype=dtype)
            steps, sums, before, bound = [], [], h, h.double()
            for t in range(length):
                before = torch.addcmul(x[:, t], a[:, t], before)
                bound = a[:, t].double().abs() * bound + x[:, t].double().abs()
                steps.append(before)
                sums.append(bound)
            found = function(a, x, h)
            assert found.shape == x.shape
            if length:
                expected, most = torch.stack(steps, 1), torch.stack(sums, 1)
                near = most < torch.finfo(dtype).max / 2
                assert found[near].isfinite().all()
                off = (found.double() - expected.double()).abs() / most.clamp(min=1e-300)
                assert (off[near] < 64 * torch.finfo(dtype).eps).all()


# A state that is read in sums alone; how long its chunks are by default, 0 where it is kept.
STATES = {
    "scalar decay": ("a[t] *", "o[t,j] = sum[i](q[t,i] * S[t,i,j])", 64),
    "no decay": ("", "o[t,j] = sum[i](q[t,i] * S[t,i,j])", 64),
    "constant decay": ("0.5 *", "o[t,j] = sum[i](q[t,i] * S[t,i,j])", 64),
    "decay for each row": ("sigmoid(k[t,i]) *", "o[t,j] = sum[i](q[t,i] * S[t,i,j])", 16),
    "a full decay": ("q[t,i] * v[t,j] *", "o[t,j] = sum[i](q[t,i] * S[t,i,j])", 8),
    "within a function": ("a[t] *", "o[t,j] = tanh(v[t,j] + sum[i](q[t,i] * S[t,i,j])) / 2", 64),
    "two sums": ("a[t] *", "o[t] = sum[i,j](q[t,i] * S[t,i,j]) + sum[i,j](S[t,i,j])", 64),
    "read alone": ("a[t] *", "o[j] = sum[i](q[0,i] * S[T - 1,i,j])", 8),
}


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("is_begun", [True, False])
def test_sums_over_a_state_are_computed_in_chunks(name, is_begun):
    decay, output, length = STATES[name]
    start = "S0[i,j]" if is_begun else "0"
    built = build(
        f"a[T]; q, k[T,I]; v[T,J]; S0[I,J]; S[-1,i,j] = {start}\n"
        f"S[t,i,j] = {decay} S[t - 1,i,j] + k[t,i] * v[t,j]\n{output}"
    )
    assert built.plan.chunks["t_chunk"][1] == length
    assert built.judge().agrees  # with chunks of 2 and 3 too
    shapes = {"T": 0, "I": 2, "J": 3}
    empty = [[shapes[to_text(e)] for e in entry.shape] for entry in built.system.inputs]
    if name != "read alone":
        assert built.function(*map(torch.zeros, empty)).shape[0] == 0


def test_a_state_that_recurs_from_the_last_place_is_summed_in_chunks_too():
    built = build(
        "a[T]; q, k[T,I]; v[T,J]; S[t,i,j] = a[t] * where(t + 1 < T, S[t + 1,i,j], 0) "
        "+ k[t,i] * v[t,j]; o[t,j] = sum[i](q[t,i] * S[t,i,j])"
    )
    assert built.plan.chunks["t_chunk"][1] == 64
    assert built.judge().agrees
    with pytest.raises(ValueError, match="t_chunk must be at least 1"):
        built.function(*map(torch.ones, ((2,), (2, 3), (2, 3), (2, 4))), t_chunk=0)


@pytest.mark.parametrize(
    ("text", "agrees"),
    [
        ("r[T]; scalar g; G[t] = r[t] + g * G[t + 1] * [t + 1 < T]", True),
        ("x[T]; G[t] = tanh(x[t] + where(t == T - 1, 0, G[t + 1]))", True),
        ("x[T]; h[t] = where(t < 2, x[t], h[t - 1] + h[t - 2])", True),
        ("x[T]; h[t] = where(t - 1 < 0, 1, h[t - 1]) * x[t] + where(t - 1 < 0, 2, h[t - 1])", True),
        ("w[T]; h[t] = max(h[t - 1] * [t >= 1], tanh(softmax[t](w[t])))", True),
        ("w[T]; h[t] = tanh(h[t + 1] * [t + 1 < T] - cumsum[t](w[t])) + cumsum[t](w[t])", True),
        ("w, x[T]; h[0] = x[0]; h[t + 1] = h[t] * softmax[t](w[t])", True),
        ("x[T]; m[t] = tanh(x[t] - m[t + 1])", False),
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
            "x[T]; u[0] = 1; v[0] = 2; u[t] = u[t - 1] + v[t - 1]; v[t] = x[t] - u[t]",
            "x[T]; u[t] = where(t < 1, 1, u[t-1] + v[t-1]); v[t] = where(t < 1, 2, x[t] - u[t])",
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


def test_code_is_checked_against_a_recurrence():
    assert check(linear, TABLE["linear"][0]).same is True
    assert check(linear_late, TABLE["linear"][0]).same is False


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x[T]; g[t] = h[t] + x[t]; h[t] = x[t]", "h is used before it is defined"),
        ("x[T]; h[t] = h[t] + x[t]", "is defined by itself, and not place after place"),
        ("x[T]; h[t] = h[t - 1] + x[t]", "may read outside h"),
        ("x[T]; h[1] = 0; h[t] = h[t - 1] + x[t]", "may read outside h"),
        ("x[T]; w[0] = 1; w[t] = x[t]", "w[0] is defined twice"),
        ("x[T]; h[-1] = 0; h[t] = h[t - 2] + x[t]", "may read outside h"),
        ("x[T]; h[-1] = 0; h[t] = h[t + 1] + x[t]", "may read outside h"),
        ("x[T]; h[-2] = 0; h[t] = h[t - 2] + x[t]", "no equation gives h a value at -1"),
        ("x[T]; h[-1] = 0; h[-1] = 1; h[t] = h[t - 1] + x[t]", "each place once"),
        (
            "x[T]; h[0] = 1; h[t + 1] = x[t] * softmax[t](h[t])",
            "a part of h goes along its index",
        ),
        ("w[T]; h[-1] = 1; h[t] = softmax[t](w[t] * h[t - 1])", "not place after place"),
        ("x[T]; g[t] = h[t] + x[t]; h[t] = g[t]", "g, h are defined by one another"),
        ("d[N, N]; y[-1,j] = 0; y[i,j] = d[i,j] + y[i - 1,j] + y[i,j - 1] * [j >= 1]", "place"),
    ],
)
def test_what_does_not_recur_place_after_place_is_refused(text, says):
    with pytest.raises(DeriveError) as caught:
        build(parse(text))
    assert says in caught.value.diagnostic.says


MODULES = [
    ("nn.LSTM(3, 4, batch_first=True)", "x[B,T,D]"),
    ("nn.LSTM(3, 4, 2, bidirectional=True)", "x[T,B,D]; h0[4,B,H]; c0[4,B,H]"),
    ("nn.GRU(3, 4, 2, bidirectional=True)", "x[T,B,D]"),
    ("nn.GRU(3, 4, bias=False)", "x[T,D]; h0[1,H]"),
    ("nn.RNN(3, 4, nonlinearity='relu')", "x[T,D]"),
    ("nn.LSTMCell(3, 4)", "x[B,D]; h0[B,H]; c0[B,H]"),
    ("nn.GRUCell(3, 4)", "x[B,D]; h0[B,H]"),
    ("nn.RNNCell(3, 4)", "x[B,D]"),
]


@pytest.mark.parametrize(("module", "inputs"), MODULES)
def test_recurrent_modules_are_formulas(module, inputs):
    torch.manual_seed(0)
    module = eval(module, {"nn": torch.nn}).double()
    formula = from_torch(module, inputs)
    own = {name: value.detach() for name, value in module.named_parameters()}
    assert set(formula.parameters) == set(own)
    sizes = {"B": 2, "T": 5, "D": 3, "H": 4}
    given = {}
    for entry in build(formula).system.inputs:
        if entry.name not in own:
            extents = map(to_text, entry.shape)
            shape = [sizes[e] if e in sizes else int(e) for e in extents]
            given[entry.name] = torch.randn(shape, dtype=torch.float64)
    x, *begin = given.values()
    with torch.no_grad():
        expected = module(x, *([tuple(begin)] if len(begin) > 1 else begin))
    expected = (expected,) if torch.is_tensor(expected) else expected
    flat = [part for each in expected for part in ([each] if torch.is_tensor(each) else each)]
    found = build(formula).function(**own, **given)
    found = found if isinstance(found, tuple) else (found,)
    torch.testing.assert_close(list(found), flat)


@pytest.mark.parametrize(
    ("module", "inputs", "says"),
    [
        ("nn.LSTM(3, 4, proj_size=2)", "x[B,T,D]", "projects its values"),
        ("nn.GRU(3, 4, 2, dropout=0.5)", "x[B,T,D]", "leaves out values at random"),
        ("nn.LSTM(3, 4)", "x[B,T,D]; h0[1,B,H]", "that it begins with or none"),
        ("nn.GRUCell(3, 4)", "x[B,T,D]", "takes input"),
    ],
)
def test_other_recurrent_modules_are_refused(module, inputs, says):
    with pytest.raises(DeriveError, match=says):
        from_torch(eval(module, {"nn": torch.nn}), inputs)
