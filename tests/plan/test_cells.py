"""Cells are found in every spelling and nowhere else, and equal the operations they replace."""

from contextlib import nullcontext

import pytest
import torch
from cell_runs import (
    AVERAGE,
    CDIST,
    CLOSE,
    FOUND,
    IMPOSTORS,
    LAYER,
    LINEAR,
    PICK,
    PLACES,
    RMS,
    SEGMENTS,
    SO_FAR,
    SPELLINGS,
    TRANSPOSED,
    assert_same,
    draw,
    find_error,
    find_leaves,
    find_refusal,
    list_sizes,
    make,
    make_both,
    run,
    spread_out,
)
from torch.autograd import gradcheck, gradgradcheck

from derive.compiler import build
from derive.frontend.from_text import parse

FIRST = [(call, texts[0]) for call, texts in FOUND.items()]


@pytest.mark.parametrize(("call", "text"), SPELLINGS)
def test_a_cell_is_found_in_every_spelling(call, text):
    assert call in make(text).source
    assert call not in make(text, cells=False).source


@pytest.mark.parametrize(("call", "text"), IMPOSTORS)
def test_what_only_looks_like_a_cell_is_none(call, text):
    assert call not in make(text).source


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("call", "text"), SPELLINGS)
def test_a_cell_agrees_with_the_loops(call, text):
    judgement = make(text).judge()
    assert judgement.agrees
    assert len(judgement.sizes) == 3


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("call", "text"), SPELLINGS)
def test_values_and_gradients_are_those_of_the_operations(call, text):
    for number, sizes in enumerate(list_sizes(text)):
        functions, inputs = make_both(text), draw(text, sizes, number)
        refusals = [find_refusal(function, inputs) for function in functions]
        if any(refusals):  # the operations divide by a size, which a cell may do without
            leasts = ("at least 1", "an integer of at least 1")  # for a shape, for a keyword
            empty = {f"{name} must be {least}, got 0" for name in sizes for least in leasts}
            told = [each for each in refusals if "must have an extent of 1 at least" not in each]
            if is_window(call) or call == BAG:  # torch has none without channels, or entries
                assert {*told} <= {"", *empty}
            else:
                assert refusals[0] in {"", refusals[1]}
                assert refusals[1] in empty
        else:
            assert_same(functions, inputs, masked=call in {SEGMENTS, PLACES, AVERAGE})


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("call", "text"), SPELLINGS)
def test_inputs_may_lie_in_memory_in_any_order(call, text):
    inputs = draw(text, list_sizes(text)[0])
    spread = {name: spread_out(value) for name, value in inputs.items()}
    ours, theirs = (function(**spread) for function in make_both(text))
    torch.testing.assert_close(ours, theirs, equal_nan=True)
    torch.testing.assert_close(ours, make(text).function(**inputs), equal_nan=True)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("call", "text"), FIRST)
def test_first_and_second_derivatives_are_right(call, text):
    inputs = draw(text, list_sizes(text)[0])
    names = find_leaves(inputs)
    leaves = [inputs[name].clone().requires_grad_() for name in names]

    def call_function(*given):
        found = make(text).function(**{**inputs, **dict(zip(names, given, strict=True))})
        return found.masked_fill(~found.isfinite(), 0)  # the largest of nothing has no slope

    assert gradcheck(call_function, leaves)
    if call == BAG:
        with pytest.raises(NotImplementedError, match="embedding_bag"):
            gradgradcheck(call_function, leaves)
    else:
        assert gradgradcheck(call_function, leaves)


def is_window(call):
    """Whether a call is a convolution, a pool, a norm of channels, a sum or a copy of windows."""
    words = "conv _pool _windows batch_norm group_norm instance_norm"
    return any(word in call for word in words.split())


BAG = "functional.embedding_bag("

# Without convolutions, pools and bags, which torch accumulates in half precision, linear systems,
# which it does not solve in half precision, and maxima, of which more are equal there.
WIDE = [
    (call, text)
    for call, text in FIRST
    if not is_window(call) and call not in (BAG, "torch.linalg.solve(", ".cummax(")
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("call", "text"), WIDE)
def test_half_precision_rounds_no_worse_than_the_operations(call, text):
    names = list(list_sizes(text)[0])
    sizes = {**dict.fromkeys(names, 32), names[0]: 200}
    inputs = draw(text, sizes, dtype=torch.bfloat16)
    wide = {n: v.double() if n in find_leaves(inputs) else v for n, v in inputs.items()}
    with_cell, without = make_both(text)
    (exact,), exact_slopes = run(without, wide)
    (ours,), slopes = run(with_cell, inputs)
    (theirs,), other_slopes = run(without, inputs)
    assert ours.dtype is torch.bfloat16
    assert find_error(ours, exact) <= 1.02 * find_error(theirs, exact)
    for slope, other, best in zip(slopes, other_slopes, exact_slopes, strict=True):
        assert find_error(slope, best) <= 1.02 * find_error(other, best)


@pytest.mark.parametrize("text", [t for t in FOUND[LAYER] + FOUND[RMS] if "scalar" in t])
def test_a_number_under_the_root_may_be_a_tensor(text):
    inputs = draw(text, list_sizes(text)[0], seed=1)
    eps = torch.tensor(inputs["eps"], dtype=torch.float64, requires_grad=True)
    with_cell, without = make_both(text)
    for number in (inputs["eps"], 1, eps.detach()):
        torch.testing.assert_close(
            with_cell(**{**inputs, "eps": number}), without(**{**inputs, "eps": number})
        )
    ours, theirs = (
        torch.autograd.grad(function(**{**inputs, "eps": eps}).sum(), eps)
        for function in (with_cell, without)
    )
    torch.testing.assert_close(ours, theirs)
    many = torch.tensor([0.1, 0.2], dtype=torch.float64)
    each = torch.func.vmap(lambda one: with_cell(**{**inputs, "eps": one}))(many)
    torch.testing.assert_close(each[1], without(**{**inputs, "eps": 0.2}))


def test_a_constant_row_without_a_number_under_the_root_is_nan():
    text = "x[N, D]\ny[n,d] = (x[n,d] - mean[e](x[n,e])) / sqrt(var[e](x[n,e]))"
    assert LAYER in make(text).source
    assert_same(make_both(text), {"x": torch.ones(2, 3, dtype=torch.float64)})


def test_points_that_meet_have_the_slope_of_the_formula():
    own = "x[N, D]; index m < N\ns[n,m] = sqrt(sum[d]((x[n,d] - x[m,d])**2))"
    inputs = draw(own, {"N": 3, "D": 2})
    assert CDIST in make(own).source
    _, (slope,) = run(make(own).function, inputs)
    norm = run(lambda x: torch.linalg.vector_norm(x[:, None] - x, dim=-1), inputs)[1][0]
    torch.testing.assert_close(slope, norm)  # at 0 it is 0
    squared = own.replace("sqrt(", "(")
    exact = build(parse(squared), exact=True)
    assert CDIST in exact.source
    for function in (exact.function, make(squared).function):
        _, (slope,) = run(function, inputs)
        torch.testing.assert_close(slope, run(make(squared, cells=False).function, inputs)[1][0])


@pytest.mark.parametrize(
    ("text", "spelled"),
    [
        ("s[n,m] = c**2 / (3 * (r[n,m] + c**2)**2)**1.5", False),
        ("s[n] = sum[m](sqrt(r[n,m]) * [n != m])", False),
        ("s[n,m] = sqrt(r[n,m] / (r[n,m] + 1))", False),
        ("t[n,m] = 3 * r[n,m]; s[n,m] = t[n,m]**0.5 + log(r[n,m] + 1)", False),
        ("s[n] = sum[m]((2 * r[n,m])**0.25 * [n <= m])", True),
        ("t[n,m] = 3 * r[n,m]; s[n,m] = t[n,m]**0.25 + log(r[n,m] + 1)", True),
    ],
)
def test_the_distance_from_itself_is_spelled_where_a_root_is_taken_of_it(text, spelled):
    """Torch has a slope there, and the root has none; also with a point that is infinitely far."""
    lines = "x[N, D]; index m < N; scalar c = 0.5\nr[n,m] = sum[d]((x[n,d] - x[m,d])**2)\n" + text
    inputs = draw(lines, {"N": 5, "D": 3})
    made, plain = (build(parse(lines), exact=True, cells=cells) for cells in (True, False))
    assert CDIST in made.source
    assert ("(x - x)**2" in made.source) == spelled
    far = {**inputs, "x": torch.cat((inputs["x"][:4], torch.full_like(inputs["x"][4:], torch.inf)))}
    for given in (inputs, far) if spelled else (inputs,):
        both = (run(each.function, given) for each in (made, plain))
        (ours, slopes), (theirs, expected) = both
        torch.testing.assert_close(ours, theirs, equal_nan=True)
        torch.testing.assert_close(slopes, expected, equal_nan=True)


ROOT = "r[n,m] = sqrt(sum[d]((x[n,d] - y[m,d])**2))"


@pytest.mark.parametrize(
    ("text", "wide"),
    [
        ("s[n,m] = sum[d]((x[n,d] - y[m,d])**2)", False),
        ("s[n,m] = 1 / (1 + sum[d]((x[n,d] - y[m,d])**2))", False),
        ("s[n,m] = softmax[m](1 / sum[d]((x[n,d] - y[m,d])**2))", True),
        ("s[n,m] = 1 / (x[n,0] + sum[d]((x[n,d] - y[m,d])**2))", True),
        ("t[n,m] = sum[d]((x[n,d] - y[m,d])**2); s[n,m] = log(t[n,m])", True),
        ("scalar a = 2; s[n,m] = 1 / (1 + sum[d]((x[n,d] - y[m,d])**2) / a)", True),
    ],
)
def test_products_make_a_distance_where_nothing_magnifies_what_they_lose(text, wide):
    sizes = {"N": 200, "M": 210, "D": 64}
    made = build(parse(f"x[N, D]; y[M, D]; {text}"), sizes=sizes)
    by_products = ("expand_square", "drop_square", '"use_mm_for')
    assert any(word in made.source for word in by_products) != wide
    exact = build(parse(f"x[N, D]; y[M, D]; {text}"), sizes=sizes, exact=True)
    assert "square:" not in exact.source and by_products[-1] not in exact.source
    for offset, nearness in ((0, 1), (1000, 1), (1000, 1e-3)):
        x = torch.randn(60, 8)
        x, y = x + offset, x[torch.randperm(60)] + nearness * torch.randn(60, 8) + offset
        if "x[n,0] +" in text or "1 + x" in text:
            x, y = x.double(), y.double()
        expected = exact.function(x.double(), y.double())
        found = made.function(x, y)
        found, expected = (
            (one[0] if isinstance(one, tuple) else one).double() for one in (found, expected)
        )
        assert (
            (found - expected).abs().amax() <= 1e-5 * expected.abs().amax().clamp(min=1)
        ) or wide


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        (f"{ROOT}", True),
        (f"{ROOT} / 2; s[n,m] = (1 + r[n,m]) * exp(-r[n,m])", True),
        (f"{ROOT}; s[n,m] = max(0, 2 - r[n,m])", True),
        (f"{ROOT}; s[n,m] = x[n,0] / (0.01 + r[n,m])", False),
        (f"scalar c = 1; {ROOT}; s[n,m] = x[n,0] / (c + r[n,m])", False),
        (f"{ROOT}; s[n,m] = log(1.5 - (1 + r[n,m]) * exp(-r[n,m]))", False),
        (f"{ROOT}; s[n] = sum[m](r[n,m]); t[n] = 1 / s[n]", False),
    ],
)
def test_products_make_a_root_that_nothing_magnifies(text, fits):
    made, exact = (
        build(parse(f"x[N, D]; y[M, D]; {text}"), sizes={"N": 200, "M": 210, "D": 64}, exact=each)
        for each in (False, True)
    )
    assert ('"use_mm_for' in made.source) == fits
    few = build(parse(f"x[N, D]; y[M, D]; {text}"), sizes={"N": 10, "M": 12, "D": 3})
    assert all('"use_mm_for' not in each.source for each in (exact, few))


@pytest.mark.parametrize("scale", [1e-3, 1, 1e3])
@pytest.mark.parametrize(("offset", "nearness"), [(0, 1), (1000, 1), (1000, 1e-3)])
def test_the_square_of_a_root_by_products_rounds_as_the_largest_does(scale, offset, nearness):
    made, exact = (build(parse(f"x[N, D]; y[M, D]; {ROOT}"), exact=e) for e in (False, True))
    assert '"use_mm_for' in made.source
    x = torch.randn(60, 8)
    y = x[torch.randperm(60)] + nearness * torch.randn(60, 8)
    x, y = scale * (x + offset), scale * (y + offset)
    found, expected = made.function(x, y).double(), exact.function(x.double(), y.double())
    assert (found**2 - expected**2).abs().amax() <= 2e-6 * (expected**2).amax()


MET = """x, y[N, D]; A[D, D]; int k[N] < N; bool m[N]; index i < N - 1; index j < N - 1
u[n,d] = sum[e](x[n,e] * A[e,d]); v[n,d] = gelu(sum[e](y[n,e] * A[e,d]))
w[i,d] = sum[e](y[i + 1,e] * A[e,d])"""


@pytest.mark.parametrize(
    "text",
    [
        "s[n,m] = r[n,m]",
        "s[n] = min[m](r[n,m])",
        "s[m] = mean[n](r[n,m] * r[m,n] * x[n,0])",
        "t[n,m] = r[n,m] * x[n,0]; s[n,d] = sum[m](t[n,m] * x[m,d])",
    ],
)
def test_a_point_is_at_0_from_itself(text):
    lines = f"x[N, D]; index m < N; {ROOT.replace('y[', 'x[')}; {text}"
    made = build(parse(lines), sizes={"N": 200, "D": 64})
    assert '"use_mm_for' in made.source
    assert "diagonal_scatter" in made.source
    inputs = draw(lines, {"N": 40, "D": 3})
    ours, theirs = (run(build(parse(lines), exact=e).function, inputs) for e in (False, True))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("s[i,j] = sqrt(sum[d]((u[i,d] - v[j,d])**2))", True),
        ("s[i,j] = sqrt(sum[d]((u[i,d] - x[j,d])**2))", False),
        ("s[i,j] = sqrt(sum[d]((w[i,d] - v[j,d])**2))", False),
        ("s[i,j] = sqrt(sum[d]((w[i,d] - x[j,d])**2))", True),
        ("s[i,j] = sqrt(sum[d]((x[i + 1,d] - x[j,d])**2))", False),
        ("s[i,j] = sqrt(sum[d]((x[k[i],d] - x[k[j],d])**2))", False),
        ("s[i,j] = sqrt(sum[d]((relu(x[i,d]) - relu(y[j,d]))**2))", False),
        ("s[i,j] = sqrt(sum[d](([m[i]] * x[i,d] - y[j,d])**2))", False),
    ],
)
def test_points_that_may_meet_are_measured_by_differences(text, fits):
    lines = f"{MET}; {text}; return s"
    made = build(parse(lines), sizes={"N": 200, "D": 64})
    assert ('"use_mm_for' in made.source) == fits
    assert made.judge(4).agrees


def test_points_close_together_keep_their_digits():
    text = FOUND[CDIST][0]
    x = 1000 + torch.rand(40, 3)
    y = x + 1e-2 * torch.rand(40, 3)
    exact = make(text, cells=False).function(x.double(), y.double())
    found = build(parse(text), exact=True).function(x, y).double()
    assert ((found - exact).abs() / exact).max() < 1e-6


@pytest.mark.sampled(4)
@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize(("call", "text"), [*FIRST, (CDIST, FOUND[CDIST][1])])
def test_what_is_not_finite_spreads_as_in_the_operations(call, text, value):
    inputs = draw(text, list_sizes(text)[0])
    name = find_leaves(inputs)[0]
    inputs[name].view(-1)[1] = value
    functions = make_both(text)
    if call == CDIST:  # by products, infinite points give nan
        functions = (build(parse(text), exact=True).function, functions[1])
    ours, theirs = (function(**inputs) for function in functions)
    if call in {SEGMENTS, PLACES, PICK, TRANSPOSED}:  # a product with 0 spreads nan to all places
        assert not (ours.isfinite() < theirs.isfinite()).any()
        theirs = ours.where(~theirs.isfinite(), theirs)
    # Later entries in a chunk are multiplied by 0 (see the note); a row with oo is nan.
    if call in {SO_FAR, "torch.softmax("}:
        assert not (ours.isfinite() > theirs.isfinite()).any()
        ours = ours.where(ours.isfinite(), theirs)
    torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_a_segment_without_entries_is_zero_and_has_no_mean():
    x, seg = torch.ones(2, 2), torch.tensor([0, 2])
    total = make(FOUND[SEGMENTS][0]).function(x, seg, G=3)
    assert total.tolist() == [[1, 1], [0, 0], [1, 1]]
    mean = make(FOUND[SEGMENTS][2]).function(x, seg, G=3)
    assert mean[1].isnan().all()


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # vmap calls a bag one by one
@pytest.mark.parametrize(("call", "text"), FIRST)
def test_the_transforms_of_torch_apply(call, text):
    inputs = draw(text, list_sizes(text)[0])
    names = find_leaves(inputs)
    function = make(text).function

    def call_function(*given):
        return function(**{**inputs, **dict(zip(names, given, strict=True))})

    leaves = [inputs[name] for name in names]
    pairs = [torch.stack([leaf, 2 * leaf]) for leaf in leaves]
    batched = torch.func.vmap(call_function)(*pairs)[0]
    torch.testing.assert_close(batched, call_function(*leaves), equal_nan=True)
    meta = [torch.empty_like(leaf, device="meta") for leaf in leaves]
    moved = {n: v.to("meta") if isinstance(v, torch.Tensor) else v for n, v in inputs.items()}
    moved |= dict(zip(names, meta, strict=True))
    assert function(**moved).shape == call_function(*leaves).shape


def test_calls_that_lack_derivatives_are_named():
    exact = build(parse(FOUND[CDIST][0]), exact=True)
    assert "By torch.cdist: it may lack second and forward derivatives" in exact.source
    x, y = torch.rand(2, 3, 2, dtype=torch.float64)
    pair = (x.requires_grad_(), y.requires_grad_())
    try:
        has_second = gradgradcheck(torch.cdist, pair)
    except NotImplementedError:
        has_second = False
    refused = nullcontext() if has_second else pytest.raises(NotImplementedError, match="cdist")
    with refused:
        assert gradgradcheck(exact.function, pair)
    assert gradgradcheck(make(FOUND[CDIST][0], cells=False).function, pair)
    assert "--no-cells" not in make(FOUND[CDIST][0], cells=False).source
    assert "By torch" not in make(FOUND[LINEAR][0]).source


@pytest.mark.parametrize("text", [*FOUND["_reduce_below("], *FOUND["_count_below("]])
def test_reductions_in_an_order_know_equal_keys_and_those_without_one(text):
    functions = make_both(text)
    keys = draw(text, dict.fromkeys("BNMD", 12), 3)
    for name, odd in (("u", torch.nan), ("t", torch.nan), ("t", -torch.inf), ("q", torch.inf)):
        if name in keys and keys[name].is_floating_point():
            keys[name] = keys[name].mul(2).round()  # some are equal
            keys[name][..., ::5] = odd
    values = [function(**keys) for function in functions]
    torch.testing.assert_close(*values, equal_nan=True, **CLOSE)


@pytest.mark.parametrize(
    "text",
    [
        "x[T, B]; w[K]; index t < T - K + 1; y[t,b] = sum[k](w[k]*x[t + k,b])",
        "x[B, T]; w[K]; index t < T; y[b,t] = sum[k, k <= t](w[k]*x[b,t - k])",
        "x[B, C, T]; w[K]; index t < T - 2*K + 2; y[b,c,t] = sum[k](w[k]*x[b,c,t + 2*k])",
        "x[T, B, C]; w[K]; index t < T; y[t,b,c] = sum[k, t + k < T](w[k]*x[t + k,b,c])",
    ],
)
def test_filters_of_few_places_are_products_with_a_view(text):
    sizes = {"T": 500, "B": 32, "C": 8}
    for places in (5, 100):
        built = build(parse(text), {k: v for k, v in sizes.items() if k in text} | {"K": places})
        assert ("k,...kt->...t" in built.source) == (places == 5) and built.judge().agrees


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("P[A, S, Z]; v[Z]; q[s,a] = sum[z](P[a,s,z]*v[z])", "(P @ v).mT"),
        ("P[A, S, Z]; v[Z]; w[S, A]; q[s,a] = w[s,a] + sum[z](P[a,s,z]*v[z])", "(P @ v).mT"),
        ("P[S, A, Z]; v[Z]; q[s,a] = sum[z](P[s,a,z]*v[z])", "P @ v"),
    ],
)
def test_a_tensor_times_a_vector_is_made_as_the_tensor_is_stored(text, line):
    built = build(parse(text))
    assert line in built.source and built.judge().agrees


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("Y[N,M,K]; x[N]; y[n,m] = x[n] * sum[k](Y[n,m,k])", {"N": 256, "M": 256, "K": 8}),
        (
            "W[K,I]; X[K]; Y[K,I,B]; y[k,i] = W[k,i] * sum[b](X[k] * Y[k,i,b]) + 1",
            {"K": 256, "I": 256, "B": 8},
        ),
        (
            "X[N,K]; Y[K,M]; Z[N,M]; y[n,m] = Z[n,m] * sum[k](X[n,k] * Y[k,m])",
            {"N": 64, "M": 64, "K": 64},
        ),
    ],
)
def test_a_product_of_matrices_is_found_among_other_products(text, sizes):
    built = build(parse(text), sizes)
    assert " @ " in built.source or "einsum" in built.source
    assert all(each.judge().agrees for each in (built, build(parse(text), sizes, einsum=False)))


@pytest.mark.parametrize(
    "text",
    [
        "x[B,N]; w[N]; m[N]; v[K]; y[k] = sum[n,b, m[n] > 0](x[b,n] * w[n] * sin(k * n)) + v[k]",
        "X[N,K,B]; a, m[N]; b, c[K]; y[e] = sum[n,k, m[n] > c[k]](X[n,k,e] * a[n] * b[k])",
        "X[N,K,B]; a, m[N]; b, c[K]; y[e] = sum[n,k, m[n] > c[k]](X[n,k,e] * m[n] * a[n] * b[k])",
    ],
)
def test_a_condition_goes_to_the_product_of_any_number_of_factors(text):
    for sizes in ({"N": 2048, "K": 1024, "B": 1}, {"N": 64, "K": 64, "B": 64}):
        assert build(parse(text), sizes).judge().agrees


@pytest.mark.parametrize(
    ("text", "is_copied"),
    [
        ("A[N,N]; y[n,m] = [n != m] * A[n,m]", True),
        ("A[N,N]; f[N]; y[n,m] = A[n,m] + delta(n,m) * f[n]", True),
        ("A[N,N]; y[n,m] = softmax[m, n != m](A[n,m])", True),
        ("A[N]; h[N+N-1]; v[N]; y[k] = sum[n, n != k](A[n] * h[n+k]) * v[k]", True),
        ("A[N,N]; f[N]; y[n,m] = [n != m] * (A[n,m] * f[n])", False),
    ],
)
def test_a_diagonal_is_exchanged_where_entries_share_a_place_in_memory(text, is_copied):
    built = build(parse(text), {"N": 1024}, exact=True)  # no transform
    assert "torch.diagonal_scatter(" in built.source
    assert (".contiguous()" in built.source) == is_copied
    inputs, row = draw(text, {"N": 4}), torch.randn(7, dtype=torch.float64)
    for wide in (row.unfold(0, 4, 1), row[:4].expand(4, 4), row[:4, None].expand(4, 4)):
        shared = wide if inputs["A"].ndim == 2 else row[:4]
        given = built.function(**{**inputs, "A": shared})
        apart = built.function(**{**inputs, "A": shared.contiguous()})
        plain = make(text, cells=False).function(**{**inputs, "A": shared})
        torch.testing.assert_close(given, apart)
        torch.testing.assert_close(given, plain)


FORWARD = """A[K, K]; e[B, T, K]; p[K]
a[b,0,k] = p[k] + e[b,0,k]
a[b,t,k] = logsumexp[j](a[b,t - 1,j] + A[j,k]) + e[b,t,k]"""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("scales", [(1, 1), (1, 1e4), (30, 50), (60, 1), (1e4, 1), (1e4, 1e4)])
def test_exponentials_are_multiplied_where_none_is_lost(scales, dtype):
    """A large entry of the one matrix may meet the least of the other; none may leave a nan."""
    sizes = {"K": 5, "B": 8, "T": 6}
    built, plain = (build(FORWARD, sizes, cells=cells).function for cells in (True, False))
    given = draw(FORWARD, sizes)
    given = {**given, "A": given["A"] * scales[0], "e": given["e"] * scales[1]}
    for hole in (None, (given["A"], 1), (given["e"], -1)):
        for place in () if hole is None else (0, 2):
            hole[0].data.select(hole[1], place).copy_(-torch.inf)
        exact = plain(**{name: value.double() for name, value in given.items()})
        short = {name: value.to(dtype) for name, value in given.items()}
        found, other = built(**short), plain(**short)
        assert found.dtype is dtype
        assert torch.equal(found.isfinite(), other.isfinite())
        errors = [
            find_error(y.nan_to_num(neginf=0), exact.nan_to_num(neginf=0)) for y in (found, other)
        ]
        assert errors[0] <= 2 * errors[1] + torch.finfo(torch.float32).eps


def test_exponentials_of_what_stays_are_made_before_the_loop():
    source = build(FORWARD, {"K": 32, "B": 8, "T": 64}).source
    before, _, loop = source.partition("    for ")
    assert "_exponentiate(A)" in before
    assert "_exponentiate" not in loop.partition("return")[0]
    text = FORWARD.replace("A[j,k]", "A[j,k] * e[b,t,k]")
    assert "_log_product" not in build(text, {"K": 32, "B": 8, "T": 64}).source
