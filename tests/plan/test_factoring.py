"""Lists of contractions: what their terms have in common is computed once; paths in semirings."""

from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from math import log2
from pathlib import Path

import pytest
import torch

from derive.compiler import Built, build
from derive.frontend.from_text import parse
from derive.judge.samples import draw_inputs
from tests.benchmarks.coupled_cluster import find_terms, write_equations

SHAPES = "x, y, z, w, A, B, C, D[N, N]"
# The pairs of a sum of products, r_ij = sum_k x_ik A_kj + .., and how many products are left.
PRODUCTS = {
    "xA xB xC yA yB yC zD": 2,
    "xA xB xC yA yB zD wC wD": 4,
    "xx yy zz ww AA BB CC": 7,
    "xA Ax yB By zC Cz wD Dw": 8,
}


@pytest.mark.parametrize("pairs", PRODUCTS)
def test_of_terms_with_factors_in_common_fewer_products_are_left(pairs: str) -> None:
    terms = " + ".join(f"sum[k]({one}[i,k] * {other}[k,j])" for one, other in pairs.split())
    made = build(parse(f"{SHAPES}\nr[i,j] = {terms}"), sizes={"N": 64})
    assert len(made.plan.einsums) == PRODUCTS[pairs]
    assert made.judge(count=1).agrees


@pytest.mark.parametrize("kind", ["sum", "mean"])
@pytest.mark.parametrize("value", ["exp(x[i,j])", "exp(sum[k, k <= j](x[i,k]))", "x[i,j]**2"])
def test_a_factor_leaves_the_sum_of_what_has_a_name(kind: str, value: str) -> None:
    lines = f"a, b[D]; x[N, M]; index j < M; s[d,i,j] = a[d] * {value}"
    lines += f"\ny[d,i] = {kind}[j](s[d,i,j]); z[d] = mean[i](max(y[d,i] - b[d], 0))"
    made = build(parse(lines), sizes=dict(D=32, N=500, M=100))
    assert all(len(term) < 3 for term in made.plan.flops.terms)
    assert made.judge(count=1).agrees


@pytest.mark.parametrize(
    "value",
    [
        "sum[j, j <= k](x[i,j])",
        "sum[j, j > k](x[i,j]**2)",
        "mean[j, j <= k](x[i,j])",
        "1 / (M - 1 - k) * sum[j, j > k](x[i,j]) - sum[j, j <= k](x[i,j])",
        "sum[j, j < 2*k + 3](exp(x[i,j]))",
    ],
)
def test_sums_up_to_places_of_another_extent_run_along_the_entries_once(value: str) -> None:
    made = build(parse(f"x[N, M]; index k < M - 1; y[i,k] = {value}"), sizes=dict(N=128, M=1000))
    assert all(sum(power for _, power in term) < 3 for term in made.plan.flops.terms)
    assert "cumsum" in made.source
    assert made.judge(count=1).agrees


def test_what_may_be_infinite_is_added_to_nothing() -> None:
    """(2 - 1) * oo is oo; 2 * oo - oo is nan."""
    lines = "m[i,j] = where(x[i,j] > 0, oo, y[i,j])"
    terms = " + ".join(f"sum[k]({each}[i,k] * m[k,j])" for each in "xyzwABCD")
    made = build(parse(f"{SHAPES}\n{lines}\nr[i,j] = {terms}"), sizes={"N": 64})
    assert len(made.plan.einsums) == 8


def test_a_part_is_another_one_with_its_indices_exchanged() -> None:
    """Both brackets of x_ik (A_kj + ..) and, transposed, (A_ki + ..) x_jk are one."""
    terms = [f"sum[k](x[i,k] * {each}[k,j]) - sum[k](x[j,k] * {each}[k,i])" for each in "ABCD"]
    made = build(parse(f"{SHAPES}\nr[i,j] = {' + '.join(terms)}"), sizes={"N": 64})
    assert len(made.plan.einsums) == 1
    assert made.judge(count=1).agrees


@pytest.mark.parametrize("indices", ["abcde", "abcdefghkl"])
def test_what_nothing_tells_apart_is_not_tried_in_every_order(indices: str) -> None:
    """A product of ten such rows has 10! spellings."""
    row = " * ".join(f"x[i,{index}]" for index in indices)
    terms = " + ".join(f"sum[{', '.join(indices)}]({row} * {t}[i,a])" for t in "yzwABCD")
    assert build(parse(f"{SHAPES}\nr[i] = {terms}"), sizes={"N": 2}).judge(count=1).agrees


def find_error(made: Built, levels: Sequence[int]) -> float:
    """How far the results are from the terms added up one by one, at tiny sizes."""
    inputs = draw_inputs(made.system, dict(O=3, V=4), dtype=torch.float64)
    results = made.function(**inputs)
    errors = []
    for level, result in zip(levels, results, strict=True):
        free, whole = "ijk"[:level] + "abc"[:level], torch.zeros_like(result)
        for (_, factors), weight in find_terms(level, max(levels)).items():
            string = ",".join(indices for _, indices in factors)
            whole += float(weight) * torch.einsum(
                f"{string}->{free}", *(inputs[n] for n, _ in factors)
            )
        errors.append(((result - whole).abs().max() / whole.abs().max()).item())
    return max(errors)


# Spin orbitals, occupied and virtual; operations at most. With the symmetry of v,
# which no shape tells, ring terms take one product less: 0.98e9 and 127e9.
CCSD = [(10, 40, 1.2e9), pytest.param(20, 100, 150e9, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("occupied", "virtual", "most"), CCSD)
def test_coupled_cluster_takes_few_operations(occupied: int, virtual: int, most: float) -> None:
    assert sum(len(find_terms(level, 2)) for level in (1, 2)) == 77
    sizes = dict(O=occupied, V=virtual)
    made = build(parse(write_equations((1, 2), 2)), sizes=sizes)
    assert made.plan.at_sizes(made.plan.flops) < most
    assert find_error(made, (1, 2)) < 1e-12


@pytest.mark.slow
def test_triples_have_a_plan_of_few_steps() -> None:
    """481 terms, of which one alone takes 2 O^3 V^5."""
    made = build(parse(write_equations((1, 2, 3), 3)), sizes=dict(O=10, V=40))
    assert len(made.plan.steps) < 200
    assert made.plan.at_sizes(made.plan.flops) < 1.64 * 2 * 10**3 * 40**5
    assert find_error(made, (1, 2, 3)) < 1e-12


@pytest.mark.slow
def test_water_has_the_energy_that_pyscf_finds(tmp_path: Path) -> None:
    from pyscf import ao2mo, cc, gto, scf

    molecule = gto.M(atom="O 0 0 0.1173; H 0 0.7572 -0.4692; H 0 -0.7572 -0.4692", verbose=0)
    field = scf.RHF(molecule).run(conv_tol=1e-13)
    theirs = cc.CCSD(field).run(conv_tol=1e-12, conv_tol_normt=1e-10)

    spatial = torch.from_numpy(
        ao2mo.restore(1, ao2mo.kernel(molecule, field.mo_coeff), len(field.mo_energy))
    )
    spin = torch.eye(2, dtype=spatial.dtype)
    # (pq|rs) over spin orbitals p = (orbital, spin), then <pq||rs> = (pr|qs) - (ps|qr)
    n = 2 * len(spatial)
    chemists = torch.einsum("pqrs,ab,cd->paqbrcsd", spatial, spin, spin).reshape(n, n, n, n)
    v = chemists.permute(0, 2, 1, 3) - chemists.permute(0, 2, 3, 1)
    energies = torch.from_numpy(field.mo_energy).repeat_interleave(2)
    occupied = molecule.nelectron
    parts = {"o": slice(occupied), "v": slice(occupied, None)}
    inputs = {f"f_{a}{b}": torch.diag(energies)[parts[a], parts[b]] for a in "ov" for b in "ov"}

    made = build(parse(write_equations((0, 1, 2), 2), name="ccsd"), sizes=dict(O=occupied, V=4))
    spec = spec_from_file_location("ccsd", made.write(tmp_path))
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    blocks = [each.name for each in made.system.inputs if each.name.startswith("v_")]
    inputs |= {name: v[tuple(parts[letter] for letter in name[2:])] for name in blocks}
    gap = energies[:occupied, None] - energies[occupied:]
    gaps = gap[:, None, :, None] + gap[None, :, None, :]
    t1, t2 = torch.zeros_like(gap), v[parts["o"], parts["o"], parts["v"], parts["v"]] / gaps
    for _ in range(100):
        energy, r1, r2 = module.ccsd(**inputs, t1=t1, t2=t2)
        t1, t2 = t1 + r1 / gap, t2 + r2 / gaps
    assert abs(energy.item() - theirs.e_corr) < 1e-10


CHAIN = "P[B, I]; Q[I, J]; R[J, K]; u[K]; s[b] = "
NET = "P[I, J]; Q[J, K]; R[K, I]; s[i] = "
# A formula, and the degree of its operations where all extents grow together.
PARTED = [
    (CHAIN + "max[i, j, k](P[b,i] + Q[i,j] - R[j,k] + 2*u[k])", 2),
    (CHAIN + "min[i, j, k](P[b,i] + Q[i,j] + R[j,k] + u[k] - 1)", 2),
    (CHAIN + "logsumexp[i, j, k](P[b,i] + Q[i,j] + R[j,k] + u[k])", 2),
    (CHAIN + "max[i, j, k](min(P[b,i], min(Q[i,j], min(R[j,k], u[k]))))", 2),
    (CHAIN + "min[i, j, k](max(min(P[b,i], Q[i,j]), R[j,k]))", 3),
    (CHAIN + "max[i, j, k](abs(P[b,i]) * sigmoid(Q[i,j]) * R[j,k]**2)", 2),
    (NET + "logsumexp[j, k](P[i,j] + Q[j,k] + R[k,i])", 3),
    ("P[I, J]; u[I]; s[i] = max[j](P[i,j] + u[i])", 2),
]
# What must stay one reduction, and why.
WHOLE = [
    CHAIN + "max[i, j](P[b,i] * Q[i,j])",
    CHAIN + "logsumexp[i, j, k](min(P[b,i], R[j,k]))",
    CHAIN + "logsumexp[i, j, j <= i](P[b,i] + Q[i,j] + P[b,i])",
    CHAIN + "max[i, j, k](log(P[b,i]) + Q[i,j] + R[j,k])",
    CHAIN + "sum[i, j](max(P[b,i], Q[i,j]))",
]


def count_degree(text: str) -> float:
    """The slope of the operations over the extents."""
    sizes = [{name: number for name in "BIJK" if name in text} for number in (1024, 2048)]
    flops = [(plan := build(text, sizes=each).plan).at_sizes(plan.flops) for each in sizes]
    return log2(flops[1] / flops[0])


@pytest.mark.parametrize(("text", "degree"), PARTED)
def test_one_index_at_a_time(text, degree):
    assert count_degree(text) == pytest.approx(degree, abs=0.02)
    build(text).judge(2)


@pytest.mark.parametrize("text", WHOLE)
def test_what_does_not_distribute_is_reduced_at_once(text):
    build(text).judge(2)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_slopes_and_huge_numbers(scale):
    text = CHAIN + "logsumexp[i, j, k](P[b,i] + Q[i,j] + R[j,k] + u[k])"
    given = [scale * torch.randn(3, 4), *(scale * torch.randn(4, 4) for _ in "QR")]
    given = [each.double().requires_grad_() for each in (*given, scale * torch.randn(4))]
    P, Q, R, u = given
    whole = (P[:, :, None, None] + Q[:, :, None] + R + u).logsumexp((1, 2, 3))
    found = build(text).function(*given)
    assert torch.allclose(found, whole)
    grads = [torch.autograd.grad(each.sum(), given) for each in (found, whole)]
    assert all(map(torch.allclose, *grads))
