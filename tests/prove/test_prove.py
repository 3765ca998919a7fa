"""Proofs: what they rest on, what they refuse, and random evidence that they are never wrong."""

from dataclasses import replace
from random import Random

import pytest
from fast_cases import slow_except
from hypothesis import given, seed
from hypothesis import strategies as st
from prove_mutants import find_difference, find_mutants
from strategies import formulas, half_as_many
from texts import read_blocks, read_rows

from derive.compiler import to_system
from derive.formulas import find_families, find_formula
from derive.frontend.from_text import parse
from derive.ir import nodes as ir
from derive.ir.recurrences import find_groups
from derive.ir.walk import map_children, substitute
from derive.prove import Proof, prove

PAIRS, WRONG, BY_ACCIDENT = read_blocks(__file__, "cases.txt").values()
ATTENTION = """q[b,h,i,d] = sum[x](Q[b,i,x] * W_q[x,h,d])
k[b,h,j,d] = sum[x](K[b,j,x] * W_k[x,h,d])
v[b,h,j,d] = sum[x](V[b,j,x] * W_v[x,h,d])
a[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
o[b,h,i,d] = sum[j](a[b,h,i,j] * v[b,h,j,d])
z[b,i,y] = sum[h, d](o[b,h,i,d] * W_o[y, h*D + d]) + c[y]"""
DECLARED = "Q, K, V[B, N, E]; W_q, W_k, W_v[E, H, D]; W_o[E, H*D]; c[E]"

SLIPS = read_rows(__file__, "slips.txt")

CASES = {
    **{name: (DECLARED, ATTENTION, ATTENTION.replace(*slip)) for name, *slip in SLIPS},
    **WRONG,
}


@pytest.mark.parametrize("name", PAIRS)
def test_it_is_proved(name):
    declared, one, other = PAIRS[name]
    systems = [to_system(parse(f"{declared}\n{text}")) for text in (one, other)]
    for code, formula in (systems, systems[::-1]):
        proof = prove(code, formula)
        assert proof is not None
        assert proof.every_size


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_it_is_not_proved(name):
    declared, right, wrong = CASES[name]
    systems = [to_system(parse(f"{declared}\n{text}")) for text in (wrong, right)]
    assert wrong != right
    difference = find_difference(*systems)
    assert difference is not None, "the case itself is wrong: both agree"
    for code, formula in (systems, systems[::-1]):
        assert prove(code, formula) is None


@pytest.mark.parametrize("name", BY_ACCIDENT)
def test_what_is_finite_elsewhere_is_not_proved(name):
    declared, right, wrong = BY_ACCIDENT[name]
    systems = [to_system(parse(f"{declared}\n{text}")) for text in (wrong, right)]
    for code, formula in (systems, systems[::-1]):
        assert prove(code, formula) is None


ONE_LAYER = """X[B, N, E]; W_q, W_k, W_v[E, H, D]; W_o[H*D, E]; g, c[E]; U[E, F]; V[F, E]
scalar eps
index i, j < N; index x, y < E
q[b,h,i,d] = sum[x](X[b,i,x] * W_q[x,h,d])
k[b,h,j,d] = sum[x](X[b,j,x] * W_k[x,h,d])
v[b,h,j,d] = sum[x](X[b,j,x] * W_v[x,h,d])
a[b,h,i,j] = softmax[j, j <= i](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
o[b,i,h,d] = sum[j](a[b,h,i,j] * v[b,h,j,d])
r[b,i,y] = X[b,i,y] + sum[h, d](o[b,i,h,d] * W_o[h*D + d, y])
m[b,i] = mean[y](r[b,i,y])
l[b,i,y] = (r[b,i,y] - m[b,i]) / sqrt(var[x](r[b,i,x]) + eps) * g[y] + c[y]
f[b,i,z] = gelu(sum[y](l[b,i,y] * U[y,z]))
Z[b,i,y] = l[b,i,y] + sum[z](f[b,i,z] * V[z,y])"""

AS_CODED = """X[B, N, E]; W_q, W_k, W_v[E, H, D]; W_o[H*D, E]; g, c[E]; U[E, F]; V[F, E]
scalar eps
index i, j, t, u < N; index w < H*D; index x, y < E
q[b,h,i,d] = sum[x](W_q[x,h,d] * X[b,i,x]) / sqrt(D)
k[b,h,j,d] = sum[x](X[b,j,x] * W_k[x,h,d])
v[b,h,j,d] = sum[x](X[b,j,x] * W_v[x,h,d])
s[b,h,i,j] = where(j > i, -oo, sum[d](q[b,h,i,d] * k[b,h,j,d]))
e[b,h,i,j] = exp(s[b,h,i,j] - max[t](s[b,h,i,t]))
a[b,i,j,h] = e[b,h,i,j] / sum[u](e[b,h,i,u])
o[b,i,w] = sum[j](a[b,i,j,w // D] * v[b,w // D,j,w % D])
r[b,i,y] = sum[w](o[b,i,w] * W_o[w,y]) + X[b,i,y]
m[b,i] = sum[y](r[b,i,y]) / E
n[b,i] = mean[y]((r[b,i,y] - m[b,i])**2)
l[b,i,y] = (r[b,i,y] - m[b,i]) * (n[b,i] + eps)**(-1/2) * g[y] + c[y]
p[b,i,z] = sum[y](l[b,i,y] * U[y,z])
f[b,i,z] = p[b,i,z] / 2 * (1 + erf(p[b,i,z] / sqrt(2)))
Z[b,i,y] = l[b,i,y] + sum[z](f[b,i,z] * V[z,y])"""


def system(text, **more):
    return to_system(parse(text, **more))


def test_a_layer_of_a_transformer():
    proof = prove(system(AS_CODED), system(ONE_LAYER))
    assert proof is not None
    assert proof.every_size


@pytest.mark.parametrize(
    "name",
    slow_except(
        find_families(),
        *("latent_attention", "personalized_page_rank", "rwkv", "sink_attention"),
        *("relative_attention", "space_to_depth", "barlow_twins", "uniform_interpolation"),
        *("rotary_half_attention", "random_feature_attention", "grouped_conv2d", "avg_pool2d"),
    ),
)
def test_every_formula_of_the_library_equals_itself(name):
    whole = to_system(find_formula(name))
    proof = prove(_rename(whole), whole)
    if find_groups(whole):  # recurrences have no proofs
        assert proof is None
        return
    assert proof is not None and proof.every_size


def _rename(whole):
    """The system under other indices, its sums and products turned round."""

    def reverse_terms(expr: ir.Expr) -> ir.Expr:
        expr = map_children(expr, reverse_terms)
        match expr:
            case ir.Add(terms):
                return ir.Add(terms[::-1])
            case ir.Mul(factors):
                return ir.Mul(factors[::-1])
            case ir.Reduce(kind, bound, condition, body) if kind != "argmax":
                new = {index: ir.Index(f"{index.name}0", index.extent) for index in bound}
                parts = (substitute(part, new) for part in (condition, body))
                return ir.Reduce(kind, tuple(new.values())[::-1], *parts)
        return expr

    equations = (ir.Equation(e.target, reverse_terms(e.value)) for e in whole.equations)
    return replace(whole, equations=tuple(equations))


def test_numbers_in_place_of_sizes_are_no_proof_for_all_sizes():
    formula = system("x[N, D]; z[n] = sum[d](x[n,d]) / D")
    code = system("x[4, 7]; z[n] = mean[d](x[n,d])")
    assert prove(code, formula) == Proof(False)
    assert prove(system("x[4, 7]; z[n] = sum[d](x[n,d]) / 4"), formula) is None


def test_shapes_that_differ_are_not_proved():
    formula = system("x[N, M]; z[i,j] = x[i,j]")
    assert prove(system("x[N, M]; z[j,i] = x[i,j]"), formula) is None
    assert prove(system("x[M, N]; z[i,j] = x[i,j]"), formula) is None
    assert prove(system("x[N, M]; z[i,j] = x[i,j]; y = x[0,0]; return z, y"), formula) is None


def test_results_are_compared_in_order():
    formula = system("x[N]; a[i] = 2*x[i]; b[i] = x[i]; return a, b")
    assert prove(system("x[N]; p[i] = x[i]; q[i] = x[i] + p[i]; return q, p"), formula)
    assert prove(system("x[N]; p[i] = x[i]; q[i] = x[i] + p[i]; return p, q"), formula) is None


def test_empty_rows_count():
    text = "s[N, M]; bool m[N, M]; p[i,j] = softmax[j, m[i,j]](s[i,j])"
    assert prove(system(text, empty_row="zeros"), system(text, empty_row="zeros"))
    assert prove(system(text), system(text))
    assert prove(system(text, empty_row="zeros"), system(text)) is None


def test_empty_rows_do_not_matter_where_there_are_none():
    text = "s[N, N]; p[i,j] = softmax[j, j <= i](s[i,j])"
    assert prove(system(text, empty_row="zeros"), system(text))


def test_domains_are_used():
    positive = "x, y[N] > 0; "
    same = ("z[i] = log(x[i] * y[i])", "z[i] = log(x[i]) + log(y[i])")
    assert prove(*(system(positive + text) for text in same))
    roots = ("z[i] = sqrt(x[i] * y[i])", "z[i] = sqrt(y[i]) * sqrt(x[i])")
    assert prove(*(system(positive + text) for text in roots))
    assert prove(*(system("x, y[N]; " + text) for text in roots)) is None


@half_as_many
@given(formulas(), st.integers(0, 10**6))
@seed(0)
def test_mutants_of_random_formulas_are_proved_only_where_they_agree(formula, number):
    whole = system(formula.text, empty_row=formula.empty_row)
    again = prove(_rename(whole), whole)
    assert again is None or again.every_size
    sizes = [dict(formula.sizes), {**dict(formula.sizes), "N": 1}, {**dict(formula.sizes), "D": 1}]
    for mutant in find_mutants(whole, Random(number), 2):
        if prove(mutant, whole) is not None:
            assert find_difference(mutant, whole, sizes=sizes) is None


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PAIRS)
def test_mutants_of_right_formulas_are_proved_only_where_they_agree(name):
    declared, one, other = PAIRS[name]
    formula, code = (system(f"{declared}\n{text}") for text in (one, other))
    for mutant in find_mutants(code, Random(name), 4):
        if prove(mutant, formula) is not None:
            assert find_difference(mutant, formula) is None
