"""Polynomials under sums: multiplied out they mean the same, and keep their digits."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from derive import build, parse
from derive.frontend.from_sympy import to_system
from derive.judge.evaluate import evaluate_system
from derive.rewrite.recipes import OPTIONS, find_rewritings, prepare

SHAPES = "a, b[N]; c, d[M]; A, B[N, M]; U, V[N, K]; W[M, K]; x[N, K]; "
SIZES = dict(N=4, M=3, K=2)
RULES = [rule for rule in OPTIONS if rule.name.startswith(("expand_", "factor_"))]
ATOMS = [
    *("a[i]", "b[i]", "c[j]", "d[j]", "A[i,j]", "B[i,j]", "U[i,k]", "V[i,k]", "W[j,k]", "[j == 0]"),
    *(
        "2",
        "1 / 3",
        "[i <= j]",
        "sum[l](U[i,l] * W[j,l])",
        "mean[l](W[j,l])",
        "exp(a[i])",
        "a[i]**2",
    ),
]


def combine(parts):
    """Two polynomials added, subtracted or multiplied, or one squared."""
    one, other, sign = parts
    return f"({one})**2" if sign == "**" else f"({one} {sign} {other})"


polynomials = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: st.tuples(inner, inner, st.sampled_from(["+", "-", "*", "*", "**"])).map(combine),
    max_leaves=7,
)
sums = st.sampled_from(
    [
        *("y[k] = sum[i, j]", "y[k] = sum[i, j, i <= j]", "y[j,k] = mean[i]", "y[i,k] = sum[j]"),
        *("y = mean[i, j, k]", "y[i,j] = sum[k]"),
    ]
)


def draw_inputs(system, sizes=SIZES, seed=0):
    torch.manual_seed(seed)
    return {
        tensor.name: torch.randn([sizes[e.name] for e in tensor.shape], dtype=torch.float64)
        for tensor in system.inputs
    }


@given(polynomials, polynomials, sums)
def test_every_form_of_a_polynomial_has_its_value(polynomial, other, around):
    system = to_system(parse(f"{SHAPES}{around}({polynomial} * {other} + A[i,j] * U[i,k])"))
    inputs = draw_inputs(system)
    expected = evaluate_system(system, inputs, SIZES)
    for found in find_rewritings(prepare(system)[0], RULES):
        value = evaluate_system(found.system, inputs, SIZES)
        torch.testing.assert_close(value["y"], expected["y"], rtol=1e-9, atol=1e-9)


def by_products(x, y, P):
    squares = [((each @ P) * each).sum(1) for each in (x, y)]
    return squares[0][:, None] + squares[1] - x @ (P + P.T) @ y.T


# (formula, the code that a competent person writes for it)
BY_HAND = {
    "x[N, K]; w[N, N]; y[i,k] = sum[j]((x[i,k] - x[j,k]) * w[i,j])": (
        lambda x, w: x * w.sum(1, keepdim=True) - w @ x
    ),
    "x[N, K]; S[k,l] = sum[i, j]((x[i,k] - x[j,k]) * (x[i,l] - x[j,l]))": (
        lambda x: 2 * len(x) * (x - x.mean(0)).T @ (x - x.mean(0))
    ),
    "w[N, N]; x[N, K]; E = sum[i, j, k](w[i,j] * (x[i,k] - x[j,k])**2)": (
        lambda w, x: (
            ((w.sum(1) + w.sum(0)) @ (x - x.mean(0)).square()).sum()
            - 2 * ((x - x.mean(0)) * (w @ (x - x.mean(0)))).sum()
        )
    ),
    "a, b, c, d[N, K]; y[i,j] = sum[k](a[i,k] * c[j,k] - b[i,k] * d[j,k])": (
        lambda a, b, c, d: a @ c.T - b @ d.T
    ),
    "x, z[N, K]; P[K, K]; s[i,j] = sum[k, l]((x[i,k] - z[j,k]) * P[k,l] * (x[i,l] - z[j,l]))": (
        lambda x, z, P: by_products(x - z.mean(0), z - z.mean(0), P)
    ),
    "x[N, K]; v[k] = sum[i]((x[i,k] - mean[j](x[j,k]))**2)": (
        lambda x: (x - x.mean(0)).square().sum(0)
    ),
}


@pytest.mark.parametrize("offset", [0, 10, 1e3])
@pytest.mark.parametrize("text", BY_HAND)
def test_digits_are_those_of_the_code_by_hand(text, offset):
    """Points whose distance from zero is large against their spread."""
    formula = parse(text)
    sizes = dict(N=256, K=16)
    inputs = {
        name: value + offset if name in {"x", "z"} else value.abs()
        for name, value in draw_inputs(to_system(formula), sizes).items()
    }
    exact = build(formula, sizes=sizes, cells=False).function(**inputs)
    low = {name: value.float() for name, value in inputs.items()}
    exact_low = BY_HAND[text](**{name: value.double() for name, value in low.items()})
    torch.testing.assert_close(exact_low, exact, rtol=1e-2, atol=1e-2 * float(exact.abs().max()))

    def lose(value):
        return float((value.double() - exact_low).abs().max() / exact_low.abs().max())

    ours = lose(build(formula, sizes=sizes, cells=False).function(**low))
    assert ours <= 4 * lose(BY_HAND[text](**low)) + 1e-6


def test_a_long_body_is_one_form():
    """Thirty terms, each contracted by itself, those with a factor in common together."""
    terms = " + ".join(f"a{k}[i,e] * b{k % 5}[j,e]" for k in range(30))
    shapes = ", ".join(f"a{k}" for k in range(30)) + "[N, E]; b0, b1, b2, b3, b4[M, E]; "
    built = build(parse(f"{shapes}y[i,j] = sum[e]({terms})"), sizes=dict(N=512, M=512, E=64))
    assert len(built.plan.einsums) == 5
