"""Structures of sums in many spellings: the operations that a plan uses, and must not use."""

import re

import pytest
import torch
from texts import read_tables
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from derive import build, evaluate_loops, parse
from derive.frontend.from_sympy import to_system
from derive.ir.walk import find_size_names
from derive.judge.samples import choose_sizes, draw_inputs
from derive.plan import ops

TABLES = read_tables(__file__, "structures.txt")
GUARDS, WAVES, PLAIN = (
    {name: (text, int(number)) for name, text, number in TABLES[part]}
    for part in ("guards", "waves", "plain")
)
READERS, MESSAGES, BANDS, NEIGHBOURS, LABELS, NEAREST = (
    dict(TABLES[part])
    for part in ("readers", "messages", "bands", "neighbours", "labels", "nearest")
)
HEADS = "Q, K, V[B,S,D]; size W; s[b,i,j] = sum[d](Q[b,i,d]*K[b,j,d]); "


def _track(given: object) -> object:
    is_real = isinstance(given, torch.Tensor) and given.is_floating_point()
    return given.requires_grad_() if is_real else given  # type: ignore[attr-defined]


@pytest.mark.parametrize(("text", "power"), GUARDS.values(), ids=GUARDS.keys())
def test_a_guard_makes_no_sum_larger(text: str, power: int) -> None:
    built = build(text, sizes={"N": 64})
    assert max(sum(p for _, p in term) for term in built.plan.flops.terms) == power
    assert built.judge().agrees


@pytest.mark.parametrize("text", READERS.values(), ids=READERS.keys())
def test_a_product_that_sums_read_is_never_made(text: str) -> None:
    built = build(text, sizes=dict(D=64, W=128, K=16))
    assert built.plan.peak < 64 * 128 * 16
    assert built.judge().agrees


@pytest.mark.parametrize("text", MESSAGES.values(), ids=MESSAGES.keys())
def test_a_layer_comes_before_the_messages_that_it_makes_small(text: str) -> None:
    shapes = "h[N,F]; W[F,G]; int s, d[E] < N; index n < N; "
    built = build(shapes + text, sizes=dict(N=256, F=512, G=8, E=2048))
    assert built.plan.peak < 512 * 256
    assert built.judge().agrees


@pytest.mark.parametrize(("text", "count"), WAVES.values(), ids=WAVES.keys())
def test_every_wave_is_a_transform(text: str, count: int) -> None:
    sizes = {name: 600 for name in "NKM" if f"{name}]" in text or f"size {name}" in text}
    built = build(text, sizes={"B": 16, **sizes})
    assert built.source.count("_transform(") == count + 1
    assert built.judge().agrees


@pytest.mark.parametrize(("text", "most"), PLAIN.values(), ids=PLAIN.keys())
def test_a_plain_spelling_takes_no_pairs(text: str, most: int) -> None:
    sizes = {
        n: size for n, size in dict(N=4096, M=512, W=8).items() if re.search(rf"\b{n}\b", text)
    }
    built = build(text, sizes=sizes)
    assert built.plan.at_sizes(built.plan.flops) < most * 4096
    assert built.judge().agrees


@pytest.mark.parametrize("text", NEAREST.values(), ids=NEAREST.keys())
def test_the_nearest_is_found_by_one_product(text: str) -> None:
    built = build(f"x[N,D]; c[K,D]; {text}", sizes=dict(N=4096, D=16, K=64))
    assert built.source.count("@") + built.source.count("addmm") == 1
    assert "cdist" not in built.source
    assert built.judge().agrees


@pytest.mark.parametrize("text", LABELS.values(), ids=LABELS.keys())
def test_a_label_is_compared_with_no_class(text: str) -> None:
    built = build(f"x[N,K]; int t[N] < K; {text}", sizes=dict(N=256, K=64))
    parts = [part for step in built.plan.steps for part in ops.walk_ops(step.op)]
    assert not any(ops.is_boolean(part) for part in parts)
    assert built.judge().agrees


@pytest.mark.parametrize("text", BANDS.values(), ids=BANDS.keys())
def test_a_band_takes_as_many_operations_as_it_has_entries(text: str) -> None:
    sizes = dict(B=4, S=2048, D=32, W=64)
    built = build(HEADS + text, sizes=sizes)
    assert built.plan.at_sizes(built.plan.flops) < 4 * 2048 * 512 * 4 * 32
    assert built.judge().agrees


def test_a_band_in_blocks_has_no_nan_gradients_of_its_own() -> None:
    function = build(HEADS + BANDS["so far back"], sizes=dict(B=4, S=2048, D=32, W=64)).function
    for size, width in ((1, 1), (31, 40), (32, 3), (33, 1), (70, 80), (0, 2)):
        given = [torch.randn(2, size, 3, requires_grad=True) for _ in range(3)]
        function(*(1e3 * each for each in given), W=width).sum().backward()
        assert all(each.grad.isfinite().all() for each in given)


@pytest.mark.parametrize("text", NEIGHBOURS.values(), ids=NEIGHBOURS.keys())
def test_what_looks_alike_keeps_its_values_and_gradients(text: str) -> None:
    large = dict(N=512, S=2048, B=16, D=64, W=64)
    sizes = {n: size for n, size in large.items() if re.search(rf"\b{n}\b", text)}
    built = build(text, sizes=sizes)
    assert built.judge().agrees
    formula = parse(text)
    for number, drawn in enumerate(choose_sizes(to_system(formula), count=3)):
        given = draw_inputs(to_system(formula), drawn, number)
        tensors = [x for x in given.values() if torch.is_tensor(x) and x.is_floating_point()]
        total = built.function(**{n: _track(x) for n, x in given.items()})
        if total.requires_grad:
            grads = torch.autograd.grad(total.sum(), [x for x in tensors if x.requires_grad])
            assert all(each.isfinite().all() for each in grads)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("x[N]; size W; index i < N; y[i] = sum[j, j < i + W](x[j])", dict(N=4, W=0)),
        ("x[N]; size W; index i < N; y[i] = sum[j, j < W*(i + 1)](x[j])", dict(N=4, W=0)),
        ("x[N]; w[M]; index i < M; y[i] = w[i]*sum[j, j <= i](x[j])", dict(N=0, M=3)),
        ("x[N]; index i < N + 2; y[i] = sum[j, j <= i](x[j])", dict(N=0)),
    ],
)
def test_a_running_sum_that_a_size_of_0_leaves_empty(text: str, sizes: dict[str, int]) -> None:
    built = build(text, sizes=dict.fromkeys(sizes, 512))
    assert "running_sum" in built.source
    given = draw_inputs(to_system(parse(text)), sizes, 0)
    torch.testing.assert_close(built.function(**given), evaluate_loops(parse(text), given))


@pytest.mark.parametrize(
    "text",
    [
        "x[N]; z[M]; w[M]; y[i] = sum[j](w[j] * (x[i] - z[j])**2)",
        "x[N]; z[M]; u[K]; y[i] = sum[j,k]((x[i] - z[j] + u[k])**2)",
        "x[N,D]; z[M,D]; a[N,M]; y[i,d] = sum[j,e](a[i,j]*(x[i,d] - z[j,d])*(x[i,e] - z[j,e])**2)",
        "x[N,D]; z[M,D]; w[M]; y[i] = sum[j](w[j]*exp(-sum[d]((x[i,d] - z[j,d])**2)))",
        "x[N,D]; z[M,D]; w[M]; y[i] = sum[j](w[j]*exp(-sqrt(sum[d]((x[i,d] - z[j,d])**2))))",
    ],
)
def test_differences_from_nothing_are_zeros(text: str) -> None:
    system = to_system(parse(text))
    names = find_size_names(*(size for tensor in system.inputs for size in tensor.shape))
    built = build(parse(text), sizes={name: 16 if name == "D" else 500 for name in names})
    for name in ("M", "N"):
        sizes = dict.fromkeys(names, 3) | {name: 0}
        given = draw_inputs(system, sizes, 0)
        for tensor in given.values():
            tensor.requires_grad_()
        y = built.function(**given)
        assert y.shape[0] == sizes["N"] and not y.any()
        grads = torch.autograd.grad(y.sum(), [*given.values()], allow_unused=True)
        assert not any(grad is not None and grad.any() for grad in grads)


def test_a_share_of_nothing_is_nan() -> None:
    lines = "x[N,D]; bool m[N,D]; y[n,d] = where(m[n,d], exp(x[n,d]), 0)"
    share = build(f"{lines}/sum[k,l, m[k,l]](exp(x[k,l]))").function
    assert share(torch.randn(2, 3), torch.zeros(2, 3, dtype=torch.bool)).isnan().all()


@pytest.mark.parametrize("weight", ["v[k]", "1/v[k]"])
def test_a_mixture_is_finite_where_its_exponentials_are_not(weight: str) -> None:
    mixture = build(f"v[K] > 0; x[N,K]; f[i,k] = {weight}*exp(-x[i,k]); y[i] = log(sum[k](f[i,k]))")
    v, x = torch.rand(3) + 1, 1e4 + torch.randn(5, 3)
    weights = v if weight == "v[k]" else 1 / v
    torch.testing.assert_close(mixture.function(v, x), (weights.log() - x).logsumexp(-1))


def test_a_product_with_and_without_a_number_is_made_once() -> None:
    lines = "c[Q,A]; u[A,X]; scalar t = 0.3; "
    scaled = "y[q,x] = 3*sum[a](c[q,a]*u[a,x]) + exp(-t*sum[a](u[a,x]*c[q,a])**2)"
    other = "y[q,x] = 3*sum[a](c[q,a]*u[a,x]) + exp(-t*sum[a](u[a,x]**2*c[q,a]))"
    for text, count in ((scaled, 1), (other, 2)):
        built = build(lines + text, sizes=dict(Q=64, A=32, X=4096))
        body = built.source.rpartition("def _check_shapes")[0].rpartition('"""')[2]
        assert body.count(" @ ") + body.count("einsum(") + body.count("mm(") == count
        assert built.judge().agrees


def test_both_halves_of_a_scaled_square_are_one() -> None:
    text = "x[B,F]; v[F,K]; y[b] = sum[i,j, i < j](sum[f](v[i,f]*v[j,f])*x[b,i]*x[b,j])"
    built = build(text, sizes=dict(B=4096, F=64, K=16))
    assert built.source.count("x @ v") == 1
    assert built.judge().agrees


def test_a_merged_place_is_read_as_its_parts() -> None:
    lines = """
        x[B, G*M, N]; w, h[G*M]
        size G
        index g < G
        index m, k < M
        z[b,g*M + m,n] = x[b,g*M + m,n] - mean[k, l](x[b,g*M + k,l])
        v[b,g] = var[k, l](x[b,g*M + k,l])
        u[b,g*M + m,n] = z[b,g*M + m,n] / sqrt(v[b,g] + 1)
        y[b,c,n] = w[c] * u[b,c,n] + h[c]
    """
    built = build(lines, sizes=dict(B=8, G=4, M=8, N=256))
    assert "group_norm(x, G, w, h, 1)" in built.source
    assert built.judge().agrees


def test_a_scalar_may_be_an_argument_of_a_call() -> None:
    built = build("x[B,D]; scalar a = 1.5; y[b,d] = elu(x[b,d], a)")
    assert "torch.nn.functional.elu(x, a)" in built.source
    assert built.judge().agrees


def test_the_gradient_of_a_band_is_as_large_as_the_matrix() -> None:
    text = "s[B,S,S]; size W; m[b,i] = max[j, j <= i and i - j < W](s[b,i,j])"
    built = build(text, sizes=dict(B=4, S=512, W=32))
    assert ".diagonal(" not in built.source.split("def _unfold_rows")[0]
    assert built.judge().agrees
    s = torch.randn(2, 300, 300, requires_grad=True)
    made: list[int] = []

    class Sizes(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            found = func(*args, **(kwargs or {}))
            made.extend(t.numel() for t in pytree.tree_leaves(found) if isinstance(t, torch.Tensor))
            return found

    with Sizes():
        built.function(s, W=40).sum().backward()
    assert max(made) <= 2 * 300 * (300 + 40)


@pytest.mark.parametrize("value", ("x[i,d]/h", "x[i,d]*sqrt(h)", "x[i,d]*log(h)/h**2"), ids=str)
def test_a_scalar_is_harmless_where_the_condition_excludes_it(value: str) -> None:
    function = build(f"x[N,D]; scalar h; y[i] = sum[d, h > 0]({value})").function
    x, h = torch.rand(3, 4, requires_grad=True), torch.zeros((), requires_grad=True)
    found = function(x, h=h)
    assert torch.equal(found, torch.zeros(3))
    assert all(torch.equal(g, 0 * g) for g in torch.autograd.grad(found.sum(), (x, h)))
