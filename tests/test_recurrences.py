"""Recurrences: chunked scans, several indices, refusals, and recurrent torch modules."""

from __future__ import annotations

import re
from itertools import takewhile
from pathlib import Path

import pytest
import torch
from texts import Expressions, read_parts

from derive import DeriveError, build, evaluate_loops, from_torch, gradient, parse, show
from derive.frontend.from_sympy import to_system
from derive.ir.text import to_text
from derive.judge.samples import choose_sizes, draw_inputs

ROWS = Expressions(Path(__file__).with_name("recurrences_rows.txt"), globals())

LINEAR = "a, x[T]; scalar h0\nh[-1] = h0\nh[t] = a[t] * h[t - 1] + x[t]"


def test_gradients_go_through_a_built_recurrence():
    built = build(LINEAR)
    a, x = (torch.rand(4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, x: built.function(a, x, 0.5), (a, x))


@pytest.mark.slow
def test_factors_that_may_be_large_are_traced_place_after_place():
    function = build(LINEAR).function
    traced = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
    for length in (3, 20):
        a, x = torch.randn(2, length, dtype=torch.float64)
        torch.testing.assert_close(traced(a, x, 0.5), function(a, x, 0.5))


def test_factors_that_may_be_large_are_batched_and_have_shapes_place_after_place():
    function = build(LINEAR).function
    a, x = torch.randn(2, 3, 20, dtype=torch.float64)
    found = torch.vmap(lambda a, x: function(a, x, 0.5))(a, x)
    each = [function(*pair, 0.5) for pair in zip(a, x, strict=True)]
    torch.testing.assert_close(found, torch.stack(each))
    assert function(a[0].to("meta"), x[0].to("meta"), 0.5).shape == (20,)


EXTREMES = dict(ROWS["extremes"])


@pytest.mark.parametrize("kind", EXTREMES)
def test_chunks_are_finite_where_the_loop_is_finite(kind):
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


# (decay, result, default chunk length) of states that are read in sums only; 0 without chunks.
STATES = dict(ROWS["STATES"])


@pytest.mark.sampled(3)
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


def test_decays_within_bounds_are_divided_in_short_floats_too():
    """All decays may have the least value: 1/2 over a chunk of 16 positions."""
    function = build(
        "q, k[T,I]; v[T,J]; 0.5 <= d[T,I] <= 1; S[-1,i,j] = 0\n"
        "S[t,i,j] = d[t,i] * S[t - 1,i,j] + k[t,i] * v[t,j]; o[t,j] = sum[i](q[t,i] * S[t,i,j])"
    ).function
    torch.manual_seed(0)
    for least in (0.0, 0.25, 0.5):
        q, k, v = torch.randn(3, 37, 5, dtype=torch.float64)
        d = 0.5 + least * torch.rand(37, 5, dtype=torch.float64)
        each, state = [], torch.zeros(5, 5, dtype=torch.float64)
        for t in range(37):
            state = d[t, :, None] * state + k[t, :, None] * v[t]
            each.append(q[t] @ state)
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            found = function(*(x.to(dtype) for x in (q, k, v, d))).double()
            off = (found - torch.stack(each)).abs().max() / torch.stack(each).abs().max()
            assert off < 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("place", ["", "[D]", "[B]"])
def test_a_decay_that_is_the_same_at_all_places_is_kept_once(place):
    decay = f"a{place.lower()}"
    built = build(
        f"x[B,T,D]; {'scalar a' if not place else f'a{place}'}; h[b,-1,d] = 0\n"
        f"h[b,t,d] = {decay}*h[b,t - 1,d] + x[b,t,d]"
    )
    assert built.judge().agrees
    shape = {"": (), "[D]": (3,), "[B]": (2,)}[place]
    for value in (0.9, 1e-30, 0.0, -0.7, -1.5, 1.25, 1e30):
        for length in (0, 1, 2, 17, 65):
            x = torch.randn(2, length, 3, dtype=torch.float64)
            a = torch.full(shape, value, dtype=torch.float64) if place else value
            found = built.function(x=x, a=a)
            h, each = torch.zeros(2, 3, dtype=torch.float64), []
            for t in range(length):
                each.append(h := value * h + x[:, t])
            assert found.shape == x.shape
            near = torch.stack([x[:, 0], *each], 1)[:, 1:] if length else x
            kept = near.abs() < 1e200
            torch.testing.assert_close(found[kept], near[kept])


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
    ("text", "agrees"), ROWS["recurrences from the last place and with guards"]
)
def test_recurrences_from_the_last_place_and_with_guards(text, agrees):
    if agrees:
        assert build(text).judge().agrees
    else:
        with pytest.raises(DeriveError, match="may read outside"):
            build(text)


@pytest.mark.parametrize(
    ("text", "means"), ROWS["places with equations of their own begin or end a recurrence"]
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


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", WAVES)
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


# The number of torch.where calls in a turn: none where border values are padded to the data.
CHOICES = {
    "before": 0,
    "first": 0,
    "soft": 0,
    "soft by cases": 0,
    "a transducer": 1,
    "a transducer by cases": 1,
    "of batches": 0,
    "largest on the way": 1,
    "borders that are data": 1,
    "another gap on the border": 4,
}


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


@pytest.mark.parametrize("text", ROWS["what has one place more is read by a shorter index"])
def test_a_longer_table_is_read_by_a_shorter_index(text):
    assert build(text).judge().agrees


@pytest.mark.parametrize(("text", "says"), ROWS["what does not recur place after place is refused"])
def test_other_cyclic_definitions_are_refused(text, says):
    with pytest.raises(DeriveError) as caught:
        build(parse(text))
    assert says in caught.value.diagnostic.says


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("module", "inputs"), ROWS["MODULES"])
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


@pytest.mark.parametrize(("module", "inputs", "says"), ROWS["other recurrent modules are refused"])
def test_other_recurrent_modules_are_refused(module, inputs, says):
    with pytest.raises(DeriveError, match=says):
        from_torch(eval(module, {"nn": torch.nn}), inputs)


@pytest.mark.parametrize(("text", "call"), ROWS["what sums up is one call"])
def test_running_sums_are_one_call(text, call):
    declared = "x[T, D]; g[D]\n" if "g[" in text else "x[T, D]\n"
    built = build(parse(declared + text))
    assert call in built.source
    assert ("_recur(" in built.source) is (call == "_recur(")
    inputs = draw_inputs(built.system, {"T": 6, "D": 3})
    expected = evaluate_loops(built.formula, inputs)
    torch.testing.assert_close(built.function(**inputs), torch.as_tensor(expected))


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


@pytest.mark.parametrize("text", ROWS["recurrences that read one another's places before"])
def test_recurrences_that_read_one_anothers_places_before(text):
    built = build(text)
    for length in (1, 2, 3, 6):
        inputs = draw_inputs(built.system, {"T": length, "B": 2})
        expected = evaluate_loops(built.formula, inputs)
        for one, other in zip(built.function(**inputs), expected, strict=True):
            torch.testing.assert_close(one, torch.as_tensor(other))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("text", "kept"), ROWS["only states that more than sums and the last place read are kept"]
)
def test_only_states_that_more_than_sums_and_the_last_place_read_are_kept(text, kept):
    built = build(text, sizes={"T": 5, "B": 512 if "S[" in text else 3})
    stacked = re.findall(r"(\w+) = torch\.stack\((\w+_each)", built.source.replace("(\n", "("))
    assert [name for name, _ in stacked] == [kept] * bool(kept)
    assert_right_at_every_length(built)


@pytest.mark.parametrize(
    ("text", "choices"), ROWS["conditions on the place of a turn are decided before the loop"]
)
def test_conditions_on_the_place_of_a_turn_are_decided_before_the_loop(text, choices):
    built = build(text)
    turn = built.source.partition("\n    for ")[2].partition("return ")[0]
    assert turn.count("torch.where(") == choices
    assert built.judge().agrees
    assert_right_at_every_length(built)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "text", ROWS["recurrences at every length, also those shorter than what they begin with"]
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
