"""Code as equations: proved equal to its formula for all sizes, readable, refused where unsure."""

from types import SimpleNamespace

import pytest
from lift_code import (
    ATTENTION,
    CAUSAL,
    LOOPS,
    MULTI_HEAD,
    SAME,
    by_einsum,
    causal_filled_in_place,
    heads_by_view,
    heads_in_the_batch,
)
from lifting import draw_sizes, find_gap, lift_example

from derive.frontend.from_text import parse
from derive.frontend.system import to_system
from derive.ir.text import to_lines
from derive.prove import prove

PAIRS = [(function, text) for text, functions in SAME.items() for function in functions]


def lift_against(function, text):
    """The formula's system, and the function lifted at its inputs."""
    formula = to_system(parse(text))
    return formula, lift_example(function, formula, draw_sizes(formula, 1)[0])


@pytest.mark.parametrize(("function", "text"), PAIRS)
def test_code_is_proved_equal_to_its_formula_for_all_sizes(function, text):
    formula, lifted = lift_against(function, text)
    assert lifted.every_size
    assert not lifted.notes
    proof = prove(lifted.system, formula, lifted.fixed)
    assert proof is not None
    assert proof.every_size
    for number, sizes in enumerate(draw_sizes(formula, 3)):
        assert find_gap(function, formula, sizes, lifted, number) < 1e-9


@pytest.mark.parametrize(("function", "text"), LOOPS)
def test_a_loop_over_heads_holds_for_its_number_of_heads(function, text):
    formula, lifted = lift_against(function, text)
    assert list(lifted.fixed) == ["H"]
    assert not lifted.every_size
    assert prove(lifted.system, formula, lifted.fixed) is not None


READABLE = [
    (
        by_einsum,
        ATTENTION,
        """scores[b,h,s,t] = sum[d](Q[b,h,s,d] * K[b,h,t,d]) / sqrt(D)
A[b,h,s,t] = softmax[t](scores[b,h,s,t])
out[b,h,s,d] = sum[t](A[b,h,s,t] * V[b,h,t,d])""",
    ),
    (
        causal_filled_in_place,
        CAUSAL,
        """scores[b,h,s,t] = sum[d](Q[b,h,s,d] * K[b,h,t,d]) / sqrt(D)
out[b,h,s,d] = sum[t](softmax[t](where(t > s, -oo, scores[b,h,s,t])) * V[b,h,t,d])""",
    ),
    (
        heads_by_view,
        MULTI_HEAD,
        """q[b,h,s,d] = sum[e](X[b,s,e] * W_q[e,D*h + d])
k[b,h,s,d] = sum[e](X[b,s,e] * W_k[e,D*h + d])
v[b,h,s,d] = sum[e](X[b,s,e] * W_v[e,D*h + d])
a[b,h,s,t] = softmax[t](sum[d](q[b,h,s,d] * k[b,h,t,d]) / sqrt(D))
out[b,h,s,d] = sum[t](a[b,h,s,t] * v[b,h,t,d])
out_2[b,s,e] = sum[h, d](out[b,h,s,d] * W_o[D*h + d,e])""",
    ),
    (
        heads_in_the_batch,
        MULTI_HEAD,
        """a[b,h,s,t] = softmax[t](sum[d](sum[e](X[b,s,e] * W_q[e,D*h + d]) * \
sum[f](X[b,t,f] * W_k[f,D*h + d])) / sqrt(D))
o[b,h,s,d] = sum[t](a[b,h,s,t] * sum[e](X[b,t,e] * W_v[e,D*h + d]))
out[b,s,e] = sum[h, d](o[b,h,s,d] * W_o[D*h + d,e])""",
    ),
]


@pytest.mark.parametrize(("function", "text", "lines"), READABLE)
def test_the_equations_read_as_a_person_would_write_them(function, text, lines):
    _, lifted = lift_against(function, text)
    found = [line for line in to_lines(lifted.system) if " = " in line]
    assert found == lines.split("\n")


def test_a_size_that_is_used_unheard_is_the_only_one_that_becomes_a_number():
    unheard = SimpleNamespace(one=1.0)

    def scale(Q, K, V):
        scores = Q @ K.transpose(-2, -1) * (unheard.one / Q.shape[-1]) * Q.shape[-1] ** 0.5
        return scores.softmax(-1) @ V

    formula, lifted = lift_against(scale, ATTENTION)
    assert list(lifted.fixed) == ["D"]
    assert prove(lifted.system, formula, lifted.fixed) is not None
