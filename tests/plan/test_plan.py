"""The plan: what is contracted with what, in which layout, and what never comes into being."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import torch

from derive import parse
from derive.compiler import build
from derive.formulas import find_formula
from derive.ir.nodes import Index, Size
from derive.ir.text import to_text
from derive.plan.ops import Along, axes_of, walk_ops

CHAIN = (
    "A[K, L]; B[L, M]; C[M, N]; D[N, P]; y[k,p] = sum[l, m, n](A[k,l] * B[l,m] * C[m,n] * D[n,p])"
)


def steps_of(text: str, **sizes: int) -> list[str]:
    """The lines of a formula's function."""
    source = build(parse(text), sizes=sizes or None).source
    body = source[source.index("def formula(") : source.find("\n\n\ndef _check_shapes")]
    lines = [line.strip() for line in body.splitlines() if not line.strip().startswith("#")]
    end = lines.index('"""', 1) if '"""' in lines else 1
    return [line for line in lines[end + 1 :] if line and "_check_shapes(" not in line]


def test_relative_attention_never_spans_all_five_indices() -> None:
    plan = build(find_formula("relative_attention")).plan
    for step in plan.steps:
        for op in walk_ops(step.op):
            indices = {index.name for index in axes_of(op)}
            assert not {"b", "i", "j", "h"} < indices, to_text(axes_of(op)[0])


@pytest.mark.parametrize("power", ["4", "6", "7", "-3", "-5", "3/2", "5/2", "-3/2"])
@pytest.mark.parametrize("domain", ["", " > 0"])
def test_powers_are_products_with_the_slopes_of_powers(power: str, domain: str) -> None:
    made = build(parse(f"x[N]{domain}; y[n] = x[n]**({power})"))
    is_product = bool(domain) or "/" not in power or power[0] == "-"
    written = re.search(r"x\*\*(\(?-|[4-9]|\d\.5)", made.source.partition("\n    return")[2])
    assert (written is None) == is_product
    values = [1e-3, 0.5, 1.0, 3.0] if domain else [-2.0, 0.0, 1e-3, 3.0]
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    expected = x ** eval(power)
    torch.testing.assert_close(made.function(x), expected, equal_nan=True)
    slopes = [torch.autograd.grad(y.sum(), x)[0] for y in (made.function(x), expected)]
    finite = slopes[1].isfinite()
    torch.testing.assert_close(slopes[0][finite], slopes[1][finite])


def test_softmax_index_is_last() -> None:
    plan = build(find_formula("relative_attention")).plan
    (soft,) = [op for s in plan.steps for op in walk_ops(s.op) if isinstance(op, Along)]
    assert axes_of(soft)[-1] is soft.index


@pytest.mark.parametrize(
    ("sizes", "first"),
    [
        ({"K": 1000, "L": 1000, "M": 1000, "N": 1000, "P": 1}, "mn,np->"),
        ({"K": 1, "L": 1000, "M": 1000, "N": 1000, "P": 1000}, "kl,lm->"),
    ],
)
def test_order_follows_the_sizes(sizes: dict[str, int], first: str) -> None:
    assert build(parse(CHAIN), sizes=sizes).plan.einsums[0].startswith(first)


def test_scale_goes_to_the_smallest_operand() -> None:
    text = "q[N, D]; k[M, D]; s[i,j] = sum[d](q[i,d] * k[j,d]) / sqrt(D)"
    assert steps_of(text, N=8, M=512, D=4) == ["return (q * D**-0.5) @ k.mT"]
    assert steps_of(text, N=512, M=8, D=4) == ["return q @ (k * D**-0.5).mT"]
    assert steps_of(text, N=4, M=4, D=512) == ["return q @ k.mT * D**-0.5"]


def test_shared_parts_are_computed_once() -> None:
    lines = steps_of("x[N, M]; y[i,j] = exp(x[i,j]) / (1 + exp(x[i,j])) + exp(x[i,j])")
    assert sum(line.count("torch.exp") for line in lines) == 1


def test_a_contraction_is_found_again_under_other_indices() -> None:
    text = (
        "X[B, S, D]; W[D, E]; y[b,i,j] = sum[e](sum[d](X[b,i,d] * W[d,e])**2"
        " * sum[c](X[b,j,c] * W[c,e])**2)"
    )
    assert sum("X @ W" in line for line in steps_of(text)) == 1
    assert sum("einsum" in line for line in steps_of(text)) == 1


def test_what_no_result_needs_is_left_out() -> None:
    assert steps_of("x[N]; y[i] = exp(x[i]); z[i] = x[i] * 2; return z") == ["return x * 2"]


def test_costs_are_polynomials_over_sizes() -> None:
    plan = build(parse("A[M, K]; B[K, N]; C[i,j] = sum[k](A[i,k] * B[k,j])")).plan
    assert to_text(plan.flops.to_expr()) == "2 * K * M * N"
    assert to_text(plan.peak_elements.to_expr()) == "M * N"
    assert plan.at_sizes(plan.flops, {"M": 2, "K": 3, "N": 5}) == 60


def test_flops_of_a_chain_grow_as_the_algebra_says() -> None:
    plan = build(parse(CHAIN), sizes={"K": 1, "L": 64, "M": 64, "N": 64, "P": 64}).plan
    base = dict.fromkeys("KLMNP", 64) | {"K": 1}
    grown = base | {"L": 128, "M": 128, "N": 128, "P": 128}
    assert plan.at_sizes(plan.flops, grown) == 4 * plan.at_sizes(plan.flops, base)


@pytest.mark.slow
def test_same_bytes_under_every_hash_seed() -> None:
    code = (
        "import hashlib; from derive.formulas import load_formulas;"
        "from derive.compiler import build;"
        "print(hashlib.sha256(''.join(build(f).source for f in load_formulas().values())"
        ".encode()).hexdigest())"
    )
    prints = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(prints) == 1


def test_many_factors_on_the_same_indices_are_planned_at_once() -> None:
    from derive.plan.path import find_path

    a, b = Index("a", Size("A")), Index("b", Size("B"))
    path = find_path([(a, b)] * 61, (a,), {a: 3, b: 4})
    assert len(path) == 60
    assert all(len(step) == 2 for step in path)


SCORES = "X[N, D]; W, U[D, E]\nq[i,e] = sum[d](X[i,d] * W[d,e])\nk[i,e] = sum[d](X[i,d] * U[d,e])\n"
SCALED = SCORES + "s[i,j] = sum[e](q[i,e] * k[j,e]) / sqrt(E)"


def test_a_scale_goes_to_the_weights():
    """They are fewer than what they make, which nothing else reads."""
    built = build(parse(SCALED), sizes=dict(N=512, D=16, E=64))
    assert "W * E**-0.5" in built.source or "U * E**-0.5" in built.source
    built.judge()


@pytest.mark.parametrize(
    ("text", "sizes"),
    [(SCALED + "\nreturn s, q, k", dict(N=512, D=16, E=64)), (SCALED, dict(N=8, D=512, E=64))],
    ids=["read by others", "of more weights"],
)
def test_a_scale_stays_where_that_is_less(text, sizes):
    built = build(parse(text), sizes=sizes)
    assert "W * E**-0.5" not in built.source
    assert "U * E**-0.5" not in built.source
    built.judge()
