"""Files with a generated backward pass: `derive build --backward`."""

from functools import partial

import pytest
import torch
from built import every_formula
from fast_cases import slow_except
from texts import read_named
from torch.autograd import gradcheck, gradgradcheck
from torch.func import grad, vmap

from derive import DeriveError, build, parse
from derive.bench.candidates import draw_moderate
from derive.bench.timing import Candidate, find_peak, to_backward
from derive.formulas import find_formula
from derive.frontend.from_sympy import to_system
from derive.ir.walk import find_accesses, find_sizes
from derive.judge.samples import choose_sizes, draw_inputs
from derive.plan.machine import WIDTH

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")

CASES = read_named(__file__, "backward.txt")


@pytest.mark.parametrize(
    "name",
    slow_except(CASES, "a product", "a size that no shape tells", "a window with steps between"),
)
def test_the_backward_is_the_gradient(name):
    text = CASES[name]
    built = build(parse(text), backward=True)
    assert built.judge().agrees
    call, leaves = draw_leaves(built)
    assert gradcheck(call, leaves)
    assert gradgradcheck(call, leaves)


@pytest.mark.slow
@every_formula
def test_the_backward_of_the_library(name):
    built = build(find_formula(name), backward=True, cells=False)
    assert built.judge().agrees
    call, leaves = draw_leaves(built)
    assert gradcheck(call, leaves, fast_mode=True)
    assert gradgradcheck(call, leaves, fast_mode=True)


def draw_leaves(built, dtype=torch.float64):
    """Return a function of the floating-point inputs only, and those inputs, at small sizes."""
    system = to_system(built.formula)
    values = draw_inputs(system, choose_sizes(system, 1)[0], 1)
    kept = {n: v for n, v in values.items() if not hasattr(v, "clone") or not v.is_floating_point()}
    names = [n for n in values if n not in kept]
    kept = {n: torch.tensor(v, dtype=dtype) if isinstance(v, float) else v for n, v in kept.items()}

    def call(*given):
        spelled = {**dict(zip(names, given, strict=True)), **kept}
        known = built.function.__code__.co_varnames
        return built.function(**{n if n in known else f"{n}_": v for n, v in spelled.items()})

    return call, [values[n].to(dtype).requires_grad_() for n in names]


ATTENTION = """
    x[N, D]; W[D, D]; k, v[M, D]
    q[n,e] = sum[d](x[n,d] * W[d,e])
    p[n,m] = softmax[m](sum[e](q[n,e] * k[m,e]))
    z[n,e] = sum[m](p[n,m] * v[m,e])
"""


@pytest.fixture(scope="module")
def attention():
    built = build(parse(ATTENTION), sizes=dict(N=512, M=512, D=32), backward=True, cells=False)
    assert built.passes.kept == ("q", "z")  # neither the softmax nor its scores
    return built.function, build(parse(ATTENTION), cells=False).function


def leaves(dtype=torch.float32):
    torch.manual_seed(0)
    shapes = (5, 4), (4, 4), (3, 4), (3, 4)
    return [torch.randn(s, dtype=dtype).requires_grad_() for s in shapes]


def test_generated_backward_trains_under_autocast(attention):
    found = []
    for function in attention:
        given = leaves()
        with torch.autocast("cpu", torch.bfloat16):
            z = function(*given)
        assert z.dtype == torch.bfloat16
        z.float().pow(2).sum().backward()
        found.append([each.grad for each in given])
    for one, other in zip(*found, strict=True):
        assert one.dtype == torch.float32
        torch.testing.assert_close(one, other, rtol=0.1, atol=0.1)


def test_under_torch_func(attention):
    x, *others = leaves(torch.float64)
    xs = torch.stack([x, 2 * x, x - 1]).detach()
    others = [each.detach() for each in others]
    found = []
    for function in attention:

        def loss(W, x, function=function):
            return function(x, W, *others[1:]).pow(2).sum()

        found.append(vmap(grad(loss), in_dims=(None, 0))(others[0], xs))
        found.append(grad(lambda x: grad(loss)(others[0], x).pow(2).sum())(xs[0]))
    torch.testing.assert_close(found[0], found[2])
    torch.testing.assert_close(found[1], found[3])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_compiled_with_its_gradients(attention):
    given = leaves(torch.float64)
    found = []
    for function in (torch.compile(attention[0], fullgraph=True, dynamic=True), attention[1]):
        found.append(torch.autograd.grad(function(*given).pow(2).sum(), given))
    torch.testing.assert_close(*found)


def test_unrequested_gradients_are_not_computed(attention):
    function, _ = attention
    made = []

    class Count(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            made.append(func)
            return func(*args, **(kwargs or {}))

    counts = []
    for number in range(4):
        given = [each.detach() for each in leaves()]
        given[number].requires_grad_()
        z = function(*given)
        made.clear()
        with Count():
            z.sum().backward()
        counts.append(len(made))
        assert [each.grad is not None for each in given] == [k == number for k in range(4)]
    assert counts[3] < min(counts[:3])  # the values need no scores' gradient


def test_a_missing_output_gradient_is_zero():
    function = build(parse(CASES["two results, one unused"]), backward=True).function
    x = torch.randn(3, 4, requires_grad=True)
    function(x)[0].sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())


# Attention scores of shape S x S with every kind of term.
SCORES = {
    "a product": "sum[d](Q[i,d] * K[j,d])",
    "a table by pairs": "sum[d](Q[i,d] * K[j,d]) + T[i,j]",
    "keys by pairs": "sum[d](Q[i,d] * (K[j,d] + A[i,j,d])) / 8",
    "distances": "-sum[d]((Q[i,d] - K[j,d])**2)",
}
LONG = dict(S=4096, D=32)


def attend(scores):
    tables = {"T[": "T[S, S]; ", "A[": "A[S, S, D]; "}
    return build(
        parse(
            f"Q, K, V[S, D]; {''.join(t for name, t in tables.items() if name in scores)}"
            f"p[i,j] = softmax[j]({scores}); z[i,e] = sum[j](p[i,j] * V[j,e])"
        ),
        sizes=LONG,
        backward=True,
    )


@pytest.mark.parametrize("kind", slow_except(SCORES, "a product", "keys by pairs"))
def test_scores_are_never_stored_whole(kind):
    """Neither pass allocates or keeps an S x S tensor unless a table of scores needs a gradient."""
    passes = attend(SCORES[kind]).passes
    most = LONG["S"] ** 2
    assert passes.forward.peak < most
    assert min(part.peak for part in passes.backward.parts) < most
    assert not {"p"} & {*passes.kept}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("value", "is_short"),
    [
        ("sum[j](p[i,j] * V[j,e])", True),
        ("sum[j](p[i,j] * V[j,e] * Q[i,e]) + 2 * sum[j](p[i,j] * K[j,e])", True),
        ("Q[i,e] + sum[j](p[i,j] * V[j,e])", False),
        ("sum[j](p[i,j]**2 * V[j,e])", False),
        ("sum[j](p[j,i] * V[j,e])", False),
        ("sum[j](p[i,j] * V[j,e]) * p[i,e]", False),
    ],
)
def test_the_short_form_of_a_softmax(value, is_short):
    """A result linear in the softmax gives the row sum of its gradient as sum[e](dz * z)."""
    text = f"s[N, N]; Q, K, V[N, N]; p[i,j] = softmax[j](s[i,j]); z[i,e] = {value}"
    passes = build(parse(text), backward=True).passes
    reads = {a.tensor.name for e in passes.gradients.equations[2:] for a in find_accesses(e.value)}
    assert ("z" in reads) is is_short


# formula: (products kept by the forward pass, further products of the backward pass).
PRODUCTS = {
    (
        "x, y[N, D]; U, V[D, R]; W[R, O]; "
        "z[n,o] = sum[i,j,r](x[n,i] * U[i,r] * y[n,j] * V[j,r] * W[r,o])"
    ): (2, 6),
    "A[N, K]; B[K, M]; C[M, L]; z[n,l] = sum[k,m](A[n,k] * B[k,m] * C[m,l])": (1, 4),
    "A[N, K]; B[K, M]; z[n,m] = sum[k](A[n,k] * B[k,m])": (0, 2),
    # larger than its arguments
    "A, B[N, K]; z[n] = sum[m](sum[k](A[n,k] * B[m,k])**3)": (0, 3),
}


@pytest.mark.parametrize(("text", "counts"), PRODUCTS.items())
def test_a_product_is_made_once(text, counts):
    """Gradients that need the product in different axis orders share it."""
    sizes = dict(N=96, D=64, R=16, O=32, K=8, M=24, L=40)
    formula = parse(text)
    known = {size: sizes[size] for size in find_sizes(to_system(formula))}
    passes = build(formula, sizes=known, backward=True).passes
    kept = set(passes.kept) - {"z"}
    assert (len(kept), len(passes.backward.einsums)) == counts


@pytest.mark.slow
@pytest.mark.processes
def test_the_memory_of_a_training_step():
    """The peak memory of forward and backward is below the size of the scores."""
    built = attend(SCORES["a table by pairs"])
    given = draw_moderate(built.system, built.plan.sizes, torch.float32)
    call = partial(built.function, **given)
    peak = find_peak(to_backward(Candidate("", call, (given["Q"], given["K"], given["V"]))))
    assert peak is None or peak < WIDTH * LONG["S"] ** 2


@pytest.mark.parametrize(
    ("text", "is_own"),
    [
        # torch's call has a short backward of its own
        ("layer_norm", False),
        (
            "Q, K, V[S, D]; p[i,j] = softmax[j](sum[d](Q[i,d] * K[j,d])); "
            "z[i,e] = sum[j](p[i,j] * V[j,e])",
            True,
        ),
        ("A[N, K]; B[K, M]; z[n,m] = sum[k](A[n,k] * B[k,m])", True),
    ],
)
def test_a_backward_that_autograd_beats_is_not_written(text, is_own):
    own, plain = build(text, backward=True), build(text)
    assert (own.passes is not None) is is_own
    assert ("_Function" in own.source) is is_own
    if not is_own:
        (note,) = set(own.notes) - set(plain.notes)
        assert note.startswith("no backward of its own: ")
        assert "No backward of its own: " in own.source
        assert own.source.split('"""\n', 2)[-1] == plain.source.split('"""\n', 2)[-1]


@pytest.mark.parametrize("text", ["int t[N] < 5; y[n] = t[n] + 1", "x[N]; y[n] = x[n] % 2"])
def test_formulas_without_a_backward_are_refused(text):
    with pytest.raises(DeriveError, match="gradient-none"):
        build(parse(text), backward=True)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "value",
    [
        "min[j](sum[d]((q[i,d] - k[j,d])**2))",
        "max[j](sum[d](q[i,d] * k[j,d]))",
        "max[j](exp(-sum[d]((q[i,d] - k[j,d])**2)))",
        "max[j](max(sum[d](q[i,d] * k[j,d]), 0))",
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_maximum_has_a_gradient(value, dtype):
    """Comparing recomputed scores with the maximum could match none, because of rounding."""
    text = f"q[N, D]; k[M, D]\nz[i] = {value}"
    own = build(parse(text), sizes={"N": 256, "M": 128, "D": 64}, backward=True).function
    torch.manual_seed(0)
    q, k = (torch.randn(n, 6, dtype=dtype).requires_grad_() for n in (20, 15))
    with torch.autocast("cpu", dtype, enabled=dtype is torch.bfloat16):
        z = own(q, k)
    (slope,) = torch.autograd.grad(z.sum(), q)
    assert bool(((slope != 0).any(1) | (z <= 0)).all())
    if dtype is torch.float64:
        plain = build(parse(text)).function
        (wanted,) = torch.autograd.grad(plain(q, k).sum(), q)
        torch.testing.assert_close(slope, wanted)


def test_integers_are_validated_before_the_backward():
    own = build(parse("int t[N] < V; E[V, D]\ny[n,d] = E[t[n],d]"), backward=True).function
    table = torch.randn(3, 2)
    assert own(torch.tensor([0, 2]), table, validate=True).shape == (2, 2)
    with pytest.raises(ValueError, match="V=3 must hold, got 3"):
        own(torch.tensor([0, 3]), table, validate=True)


def test_the_slope_of_a_power_of_0_is_0_at_0():
    own = build(parse("g[D]; size T\nindex t < T\ny[d] = sum[t](g[d]**t)"), backward=True).function
    g = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(own(g, T=4).sum(), g)
    assert slope.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "text",
    [
        "x[N]; p[i] = softmax[i](x[i]); y[i] = p[i]",
        "x, y[N]; p[i] = softmax[i](x[i]); z = sum[i](p[i] * y[i]); q[i] = p[i]; return z, q",
        "x[N]; y[i] = sin(x[i]); z[i] = x[i]; w[i] = x[i]; v[i] = y[i]; return y, z, w, v",
        "x[N]; p[i] = softmax[i](x[i]); y[i] = re(p[i]); z[i] = p[i]; return y, z",
        "scalar c; x[N]; y[i] = c * x[i]; z = c; return y, z",
        "x[N]; y[i] = x[i]",
        "x[T]; scalar g = 0.9; h[-1] = 0; h[t] = x[t] + g*h[t - 1]",
    ],
)
def test_each_result_has_its_gradient(text):
    built = build(parse(text), backward=True)
    assert built.judge().agrees
    call, given = draw_leaves(built)
    results = call(*given)
    results = results if isinstance(results, tuple) else (results,)
    assert all(each.requires_grad for each in results)
    assert gradcheck(call, given)
    assert gradgradcheck(call, given)


@pytest.mark.parametrize(
    "value",
    [
        "norm[j](b[j])",
        "sum[i](sqrt(max(0, mean[j]((b[i] - b[j])**2))))",
        "sum[n](norm[j]([x[n,j] > 0] * b[j]))",
        "sum[j](abs(b[j])**3)**(1/3)",
        "sum[i](std[j](b[i] - b[j]))",
        "sum[n](sqrt(2 * sum[j]([x[n,j] > 0] * b[j] * b[j])))",
        "sum[n](sqrt(sum[j](exp(x[n,j]) * where(x[n,j] > 0, b[j], 0)**2) / M))",
        "sum[n](sqrt(sum[j](b[j]**2 * [x[n,j] > 0]) + var[j](b[j] * [x[n,j] > 0])))",
        "sum[n](mean[j]([x[n,j] > 0] * b[j]**4)**(1/4))",
    ],
)
@pytest.mark.parametrize("option", [{}, {"cells": False}, {"backward": True}])
def test_the_slope_of_a_norm_is_0_at_0(value, option):
    table = "x[N, M]; " if "x[" in value else ""
    own = build(parse(f"{table}b[M]\ns = {value}"), **option).function
    torch.manual_seed(0)
    b = torch.randn(4, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 4, dtype=torch.float64)
    x[1] = -1
    if table:
        (slope,) = torch.autograd.grad(own(x, b), b)
        (wanted,) = torch.autograd.grad(own(x[[0, 2]], b), b)
        torch.testing.assert_close(slope, wanted)
        assert slope.isfinite().all()
    (slope,) = torch.autograd.grad(own(*([x] if table else []), b * 0), b)
    assert slope.tolist() == [0] * 4
