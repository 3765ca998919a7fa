"""Generated functions with empty, strided, huge, masked and malformed inputs."""

import re

import pytest
import torch
from examples import (
    CAUSAL,
    DISTANCES,
    EXAMPLES,
    LAYER_NORM,
    MASKED,
    MASKED_ZEROS,
    MULTI_HEAD,
    RELATIVE,
)
from texts import Expressions

from derive.compiler import build
from derive.errors import DeriveError
from derive.frontend.from_text import parse
from derive.judge.loops import evaluate_loops
from derive.judge.samples import draw_inputs

ROWS = Expressions(__file__, "awkward_rows.txt", globals())

REFUSAL = (
    RuntimeError,
    TypeError,
    NotImplementedError,
)  # errors that torch raises for an unsupported dtype
each_example = pytest.mark.parametrize("example", EXAMPLES, ids=str)


def check_reference(example, tensors, sizes, **tolerance):
    value = example.build().function(**tensors, **sizes)
    expected = example.reference(**tensors, **sizes)
    assert (value.dtype, value.device) == (expected.dtype, expected.device)
    torch.testing.assert_close(value, expected, equal_nan=True, **tolerance)
    return value


@pytest.mark.filterwarnings("ignore:var")  # torch's, for a variance of nothing
@each_example
def test_zero_sizes_agree_with_the_loops(example):
    built = example.build()
    for empty in example.sizes:
        if empty in example.divisors:
            continue
        tensors, sizes = example.draw({empty: 0})
        expected = evaluate_loops(built.formula, {**tensors, **sizes})
        torch.testing.assert_close(built.function(**tensors, **sizes), expected, equal_nan=True)


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.divisors], ids=str)
def test_a_zero_size_in_a_denominator_is_refused(example):
    """D**-0.5 is undefined at D = 0, and D cannot be solved from H*D = 0."""
    for empty in example.divisors:
        tensors, sizes = example.draw({empty: 0})
        with pytest.raises((ZeroDivisionError, ValueError)):
            example.build().function(**tensors, **sizes)


@pytest.mark.parametrize(
    "text",
    [
        "x[N]; index i < N; y[i] = sum[j, j >= 2*i](x[j])",
        "x[N]; index i < N; y[i] = sum[j, j >= 3*i + 1](x[j])",
        "x[N]; index i < N; y[i] = sum[j, j < N - 2*i](x[j])",
        "x[N]; z[M]; index i < M; y[i] = z[i]*sum[j, j >= i + 1](x[j])",
        "x[N]; z[M]; index i < M; y[i] = z[i]*sum[j, j >= 2*i](x[j])",
        "x[N]; z[M]; index i < M; y[i] = z[i]*x[2*i - 1]*[i >= 1 and 2*i - 1 < N]",
        "x[N]; z[M]; index i < M; y[i] = z[i]*x[N - 2 - i]*[i < N - 1]",
        "x[N]; index i < N; y[i] = x[2*i - 1]*[i >= 1 and 2*i - 1 < N]",
        "x[N]; index i < N; y[i] = x[3*i - 2]*[0 <= 3*i - 2 < N]",
        "x[N]; z[N]; index i < N; y[i] = sum[j](x[N - 1 - i - j]*[i + j < N]*z[j])",
    ],
)
def test_truncated_ranges_are_right_at_every_size(text):
    built = build(text)
    for sizes in ({"N": n, "M": m} for n in range(5) for m in range(4)):
        tensors = draw_inputs(built.system, sizes)
        expected = torch.as_tensor(evaluate_loops(built.formula, tensors))
        torch.testing.assert_close(built.function(**tensors), expected)


@each_example
def test_sizes_of_one_agree_with_hand_written_code(example):
    for single in example.sizes:
        check_reference(example, *example.draw({single: 1}), rtol=1e-12, atol=1e-12)
    check_reference(example, *example.draw(dict.fromkeys(example.sizes, 1)), rtol=1e-12, atol=1e-12)


@each_example
def test_inputs_are_left_as_they_are(example):
    tensors, sizes = example.draw()
    before = {name: values.clone() for name, values in tensors.items()}
    versions = [values._version for values in tensors.values()]
    value = example.build().function(**tensors, **sizes)
    value.add_(1)  # the result does not share memory with the inputs
    assert [values._version for values in tensors.values()] == versions
    for name, values in tensors.items():
        assert torch.equal(values, before[name])


@each_example
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_dtype_is_kept(example, dtype):
    tensors, sizes = example.draw(dtype=dtype)
    value = example.build().function(**tensors, **sizes)
    exact = {n: v.double() if v.is_floating_point() else v for n, v in tensors.items()}
    expected = example.reference(**exact, **sizes)
    assert value.dtype == dtype
    # distances and norms of random numbers accumulate about ten rounding errors
    tolerance = 30 * torch.finfo(dtype).eps
    torch.testing.assert_close(
        value.double(), expected, rtol=tolerance, atol=tolerance, equal_nan=True
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("text", ROWS["positions are counted in integers"])
def test_positions_are_counted_in_integers(text, dtype):
    formula, sizes = parse(text), {"N": 611, "M": 601}
    built = build(formula)
    inputs = draw_inputs(built.system, sizes, 0)
    inputs = {n: 40 * v if v.is_floating_point() else v for n, v in inputs.items()}
    inputs = {n: v.to(dtype) if v.is_floating_point() else v for n, v in inputs.items()}
    exact = {n: v.double() if v.is_floating_point() else v for n, v in inputs.items()}
    value, wanted = built.function(**inputs), evaluate_loops(formula, exact)
    torch.testing.assert_close(value.double(), wanted, rtol=8e-3, atol=8e-3)


@pytest.mark.parametrize("example", [DISTANCES], ids=str)
def test_integers_stay_integers_where_torch_keeps_them(example):
    tensors = {n: (3 * v).round().long() for n, v in example.draw()[0].items()}
    exact = build(
        parse(example.text), exact=True
    )  # without exact=True means are subtracted before products
    assert torch.equal(exact.function(**tensors), example.reference(**tensors))


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64, torch.complex128, torch.bool])
def test_contractions_equal_torch_einsum(dtype):
    """Results equal torch.einsum; dtypes that it refuses are refused."""
    function = build(parse("A[M, N]; B[N, D]; y[i,d] = sum[j](A[i,j] * B[j,d])")).function
    A, B = (3 * torch.randn(3, 4)).to(dtype), (3 * torch.randn(4, 2)).to(dtype)
    try:
        expected = torch.einsum("ij,jd->id", A, B)
    except REFUSAL:
        with pytest.raises(REFUSAL):
            function(A, B)
        return
    torch.testing.assert_close(function(A, B), expected)


def test_mixed_dtypes_are_refused():
    tensors, _ = RELATIVE.draw()
    with pytest.raises(REFUSAL):
        RELATIVE.build().function(**{**tensors, "A_K": tensors["A_K"].float()})


@pytest.mark.parametrize("kind", [torch.float64, torch.int64, torch.uint8])
@pytest.mark.parametrize("example", [MASKED, MASKED_ZEROS], ids=str)
def test_masks_must_be_truth_values(example, kind):
    tensors, _ = example.draw()
    with pytest.raises(ValueError, match=r"m\[.*\] must hold truth values, got torch"):
        example.build().function(**{**tensors, "m": tensors["m"].to(kind)})


@pytest.mark.parametrize("kind", [torch.float32, torch.bool, torch.uint8, torch.complex64])
def test_integers_must_be_integers(kind):
    function = build(parse("int t[N]; x[N]; z[i] = t[i] * x[i]")).function
    with pytest.raises(ValueError, match=r"t\[i\] must hold int64 or int32, got torch"):
        function(torch.tensor([1, 0]).to(kind), torch.ones(2))
    for fitting in (torch.int32, torch.int64):
        z = function(torch.tensor([3, 4]).to(fitting), torch.ones(2))
        torch.testing.assert_close(z, torch.tensor([3.0, 4.0]))


@pytest.mark.parametrize(
    ("text", "shapes", "there"),
    [
        ("x[N]; z = x[0]", [(0,)], "x[0] is not there, as N=0"),
        ("x[N]; z = x[N - 1]", [(0,)], "x[N - 1] is not there, as N=0"),
        ("x[N, M]; z[i] = x[i,0]", [(2, 0)], "x[i,0] is not there, as M=0"),
        ("x[N]; y[i] = 2 * x[i]; z = y[0]", [(0,)], "y[0] is not there, as N=0"),
        ("x[N + M]; y[N]; z = x[M] + sum[i](y[i])", [(3,), (0,)], "x[M] is not there"),
    ],
)
def test_a_fixed_place_must_be_there(text, shapes, there):
    built = build(parse(text))
    built.judge()
    with pytest.raises(ValueError, match=re.escape(there)):
        built.function(*map(torch.ones, shapes))


@pytest.mark.parametrize(("example", "filled"), [(MASKED, torch.nan), (MASKED_ZEROS, 0)], ids=str)
def test_empty_rows_are_nan_or_zeros_with_finite_gradients(example, filled):
    tensors, sizes = example.draw()
    tensors["m"][0, 0] = tensors["m"][1, 2] = False
    tensors["m"][0, 1] = True
    wanted = [tensors[n].requires_grad_() for n in "qkv"]
    value = check_reference(example, tensors, sizes, rtol=1e-12, atol=1e-12)
    gone = (~tensors["m"].any(-1))[:, None].expand(value.shape[:3])
    empty = torch.full_like(value[gone], filled)
    torch.testing.assert_close(value[gone], empty, rtol=0, atol=0, equal_nan=True)
    assert value[~gone].isfinite().all()
    if example is MASKED_ZEROS:
        value.pow(2).sum().backward()
        assert all(w.grad.isfinite().all() for w in wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("example", [RELATIVE, MASKED_ZEROS, CAUSAL, MULTI_HEAD], ids=str)
def test_huge_logits_stay_finite(example, dtype):
    """Logits of 1e4: unshifted exponentials overflow float32 from 89 on."""
    tensors, sizes = example.draw(dtype=dtype)
    first = next(iter(tensors))
    tensors[first] = tensors[first] * (100 if example in (RELATIVE, MULTI_HEAD) else 1e4)
    leaves = [v.requires_grad_() for v in tensors.values() if v.is_floating_point()]
    value = example.build().function(**tensors, **sizes)
    assert value.isfinite().all()
    value.float().sum().backward()
    assert all(leaf.grad is None or leaf.grad.isfinite().all() for leaf in leaves)


def test_layer_norm_of_large_offsets():
    """The variance of numbers around 1e4 is not computed as a difference of squares."""
    tensors, _ = LAYER_NORM.draw(dtype=torch.float32)
    tensors["x"] = tensors["x"] + 1e4
    exact = LAYER_NORM.reference(**{n: v.double() for n, v in tensors.items()}).float()
    torch.testing.assert_close(LAYER_NORM.build().function(**tensors), exact, rtol=1e-2, atol=1e-2)


def test_small_distances_of_large_vectors():
    """Squares are not expanded by default, because a small distance would lose all digits."""
    x = torch.full((2, 5), 1e4) + torch.arange(10.0).reshape(2, 5) / 8
    torch.testing.assert_close(
        DISTANCES.build().function(x, x), DISTANCES.reference(x, x), rtol=1e-5, atol=0
    )


def test_guards_protect_values_and_gradients():
    """The branch that is not taken affects neither the value nor the gradient."""
    function = build(
        parse("x[N]; y[i] = where(x[i] > 0, log(x[i]) + 1/x[i] + sqrt(x[i]), 0)")
    ).function
    x = torch.tensor([-1.0, 0.0, 4.0], dtype=torch.float64, requires_grad=True)
    value = function(x)
    torch.testing.assert_close(
        value, torch.tensor([0, 0, torch.tensor(4.0).log() + 2.25], dtype=torch.float64)
    )
    value.sum().backward()
    torch.testing.assert_close(
        x.grad, torch.tensor([0, 0, 1 / 4 - 1 / 16 + 1 / 4], dtype=torch.float64)
    )


@pytest.mark.parametrize("bound", [0.75, 2, -1.5, float("inf"), float("-inf")])
@pytest.mark.parametrize("condition", ["j <= i + s", "i - j < s", "j >= i - s/2", "2*j < i + s"])
def test_a_scalar_bound_need_not_be_whole(condition, bound):
    formula = parse(
        f"x[N,M]; scalar s; index i < N; index j < M; z[i] = sum[j, {condition}](x[i,j])"
    )
    x = torch.arange(20, dtype=torch.float64).reshape(4, 5)
    found = build(formula).function(x, bound)
    torch.testing.assert_close(found, evaluate_loops(formula, {"x": x, "s": bound}))


@pytest.mark.parametrize("given", [3, 1.5, 1, 1.0, -1.0, torch.tensor(3.0), torch.tensor(1.0)])
@pytest.mark.parametrize("exponent", ["2/(m - 1)", "1/(1 - m)", "m/(m - 1) + 1/(m + 1)"])
def test_an_exponent_divides_as_tensors_do(exponent, given):
    function = build(parse(f"x[N] > 0; scalar m; y[n] = x[n]**({exponent})")).function
    x = torch.tensor([0.25, 1.0, 3.0, 7.0])
    expected = x ** eval(exponent, {"m": torch.as_tensor(given, dtype=x.dtype)})
    torch.testing.assert_close(function(x, given), expected, equal_nan=True)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("x[N,D]; y[M,D]; z[i,j] = sum[d](x[i,d] * y[j,d]) / sqrt(D)", "D"),
        ("x[N,D]; z[i] = max[d](x[i,d])", "D"),
        ("x[N,D]; z[i] = argmax[d](x[i,d])", "D"),
        ("x[N,D]; y[M,D]; z[i,j] = sum[d](x[i,d] * y[j,d]) / D", "D"),
        ("x[N,D]; z[i,d] = x[i,d] * (N // D)", "D"),
    ],
)
def test_a_size_that_must_not_be_zero_is_named(text, size):
    built = build(parse(text))
    shapes = {"x": (3, 0), "y": (2, 0)}
    given = [torch.ones(shapes[entry.name]) for entry in built.system.inputs]
    with pytest.raises(ValueError, match=f"{size} must be at least 1, got 0"):
        built.function(*given)


KEYWORDS = ROWS["keywords"]


WRONG = (-3, 2.5, float("nan"), True, "2", None, torch.tensor(2))


@pytest.mark.parametrize(("text", "size", "right", "least"), KEYWORDS)
def test_a_size_keyword_that_is_no_count_is_named(text, size, right, least):
    function, x = build(parse(text)).function, torch.ones(12)
    function(x, **{size: right})
    for wrong in (least - 1, *WRONG):
        words = re.escape(f"{size} must be an integer of at least {least}, got {wrong!r}")
        with pytest.raises(ValueError, match=words):
            function(x, **{size: wrong})


@pytest.mark.slow
@pytest.mark.parametrize(("text", "size", "right", "least"), KEYWORDS)
def test_a_size_keyword_is_checked_in_a_compiled_function(text, size, right, least):
    function, x = build(parse(text)).function, torch.ones(12)
    traced = torch.compile(function, backend="eager", dynamic=True)
    for count in (right, right + 1):
        assert torch.equal(traced(x, **{size: count}), function(x, **{size: count}))
    for wrong in (least - 1, *WRONG):
        with pytest.raises(ValueError, match=f"{size} must be an integer of at least {least}"):
            traced(x, **{size: wrong})


@pytest.mark.filterwarnings("ignore:var")
@pytest.mark.parametrize(
    "text",
    [
        "x[N,M]; z[i] = sign(var[j](x[i,j], correction=1))",
        "x[N,M]; z[i] = var[j, j < i](x[i,j], correction=1)",
        "x[N,M]; z[j] = sum[i](x[i,j]) / (N - 1)",
        "x[N,M]; z[i,j] = x[i,j] * (i % (M - 1))",
        "x[N,M]; z[i] = logsumexp[j, j < i](x[i,j])",
    ],
)
def test_undefined_places_are_those_of_the_notation(text):
    formula = parse(text)
    built = build(formula)
    built.judge(4)
    x = torch.tensor([[1.5], [-2.0], [0.5]], dtype=torch.float64)
    for given in (x, x.mT.contiguous(), x[:, :0]):
        expected = evaluate_loops(formula, {"x": given})
        torch.testing.assert_close(built.function(given), expected, equal_nan=True)


@pytest.mark.parametrize(
    ("text", "views"),
    [
        ("x[N]\ny[i] = x[i]", "x"),
        ("x[N, M]\ny[j,i] = x[i,j]", "x"),
        ("x[N, N]; w[N]\ny[i] = x[i,i]\nz[i] = w[i]\nreturn y, z", "z, x|x, w|w, x"),
        ("x[N]\ny[i] = 2 * x[i]", ""),
        ("x[N, M]\ny[i] = sum[j](x[i,j])", ""),
    ],
)
def test_a_result_that_is_a_view_is_documented(text, views):
    source = build(parse(text)).source
    assert ("is a view of" in source) == bool(views)
    assert not views or any(f"a view of {names}:" in source for names in views.split("|"))


@pytest.mark.parametrize("text", ["x[{}]\ny[i] = x[i]", "x[N]\nindex i < {}\ny[i] = 2 * i"])
def test_extents_beyond_64_bits_are_refused(text):
    with pytest.raises(DeriveError, match="is no extent of a tensor"):
        build(parse(text.format(1 << 63)))
    build(parse(text.format((1 << 63) - 1)))


@pytest.mark.parametrize(
    "text",
    [
        "x[N, C]; int t[N] < C; L = mean[n](logsumexp[c](x[n,c]) - x[n,t[n]])",
        "x[N, C]; int t[N] < C; p[n,c] = log_softmax[c](x[n,c]); L[n] = -p[n,t[n]]",
        "x[N, C]; int t[N] < C; p[n,c] = softmax[c](x[n,c]); L[n] = p[n,t[n]] * x[n,0]",
        "x[N, C]; int t[M] < N; y[m,c] = x[t[m],c]",
        "x[M, C]; int t[M] < N; size N; index n < N; y[n,c] = sum[m]([t[m] == n] * x[m,c])",
        "x[M]; int t[M] < N; size N; y[m] = sum[k]([t[k] == t[m]] * x[k])",
        "x[M]; int t[M] < N; size N; y[m] = x[m] * t[m] + sum[k, t[k] < t[m]](x[k])",
    ],
)
def test_integers_may_have_32_bits(text):
    built = build(text)
    inputs = draw_inputs(built.system, {"N": 5, "M": 7, "C": 3})
    short = {n: v.int() if n == "t" else v for n, v in inputs.items()}
    torch.testing.assert_close(built.function(**short), built.function(**inputs))


@pytest.mark.parametrize(
    "text",
    [
        "u[X]; y[x] = u[x] + [x + 1 < X] * u[x + 1]",
        "u[X]; index x < X; y[x] = where(x >= 2, u[x - 2], 1)",
        "u[X, Y]; z[x,y] = u[x,y] - u[x - 1,y] * [x >= 1] + u[x,y + 3] * [y + 3 < Y]",
    ],
)
def test_a_shift_may_be_longer_than_the_tensor(text):
    built = build(text)
    for length in range(4):
        inputs = draw_inputs(built.system, {"X": length, "Y": 3 - length})
        expected = torch.as_tensor(evaluate_loops(built.formula, inputs))
        torch.testing.assert_close(built.function(**inputs), expected.reshape(inputs["u"].shape))
