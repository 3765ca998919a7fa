"""Formulas of SymPy objects: their notation, the order of their parts, and their meaning."""

import pytest
import sympy
import torch
from sympy import (
    Dummy,
    Eq,
    Float,
    IndexedBase,
    KroneckerDelta,
    Max,
    Mod,
    Mul,
    Piecewise,
    Product,
    Sum,
    Symbol,
    oo,
    sqrt,
)
from texts import read_rows

from derive import Formula, build, parse, show, softmax
from derive.analysis.names import find_mistakes
from derive.errors import DeriveError
from derive.frontend.from_sympy import from_sympy
from derive.ir.nodes import SizeInput
from derive.judge.loops import evaluate_loops
from derive.judge.samples import choose_sizes, draw_inputs
from derive.notation import words
from derive.notation.words import indices, sizes, tensors

B, S, H, D, N, M, V = sizes("B S H D N M V")
b, h = indices("b", B), indices("h", H)
i, j, k = indices("i j k", N)
d, e = indices("d e", D)
x, y = tensors("x y", N)
A, C = tensors("A C", N, N)
m = tensors("m", N, N, dtype="bool")
tok = tensors("tok", N, dtype="int", below=V)
E = tensors("E", V, D)


z, q, out = tensors("z q out")
n, t, p = (Symbol(name, integer=True) for name in "ntp")


def right(expr, **given):
    """Return the right side of `z[i] = expr` in the notation."""
    return show(Formula(Eq(z[i], expr, evaluate=False), **given)).splitlines()[-1][7:]


def relative_attention():
    s, r = indices("i j", S)
    X = tensors("X", B, S, H, D)
    W_Q, W_K, W_V = tensors("W_Q W_K W_V", H, D, D)
    A_K, A_V = tensors("A_K A_V", S, S, H, D)
    u, v, w, alpha, result = tensors("q k v alpha z")
    score = Sum(u[b, s, h, e] * (v[b, r, h, e] + A_K[s, r, h, e]), e) / sqrt(D)
    return Formula(
        Eq(u[b, s, h, e], Sum(X[b, s, h, d] * W_Q[h, d, e], d)),
        Eq(v[b, r, h, e], Sum(X[b, r, h, d] * W_K[h, d, e], d)),
        Eq(w[b, r, h, e], Sum(X[b, r, h, d] * W_V[h, d, e], d)),
        Eq(alpha[b, s, r, h], softmax(score, r)),
        Eq(result[b, s, h, e], Sum(alpha[b, s, r, h] * (w[b, r, h, e] + A_V[s, r, h, e]), r)),
    )


@pytest.mark.parametrize(("expr", "text"), read_rows(__file__, "sympy.txt"))
def test_an_expression_is_shown_as_its_text_in_the_table(expr, text):
    names = {**vars(sympy), **vars(words), **globals()}
    formula = Formula(Eq(z[i], eval(expr, names), evaluate=False))
    assert show(formula).splitlines()[-1] == f"z[i] = {text}"
    assert show(parse(show(formula))) == show(formula)


def test_minus_infinity_in_three_forms():
    forms = (-oo, Mul(-1, oo, evaluate=False), sympy.S.NegativeInfinity)
    shown = {right(Piecewise((form, m[i, i]), (x[i], True))) for form in forms}
    assert shown == {"where(m[i,i], -oo, x[i])"}


def test_a_float_is_its_shortest_decimal():
    assert right(0.1 * x[i]) == "x[i] / 10"
    assert right(Float(1 / 3) * x[i]) == "0.3333333333333333 * x[i]"
    assert right(Float("0.25", 40) * x[i]) == "x[i] / 4"


# --- names ----------------------------------------------------------------------------------------


def test_plain_symbols_are_indices_sizes_and_scalars_by_use():
    u = IndexedBase("u", shape=(n,))
    formula = Formula(Eq(IndexedBase("r")[t], Sum(u[p] * u[t], (p, 0, n - 1)) * Symbol("c")),
                      scalars="c")  # fmt: skip
    assert show(formula) == "u[n]; scalar c\nr[t] = c * sum[p](u[p] * u[t])"
    bounded = Formula(Eq(IndexedBase("r")[t], Sum(u[t] * p, (p, 0, N - 1))), scalars="N")
    assert show(bounded) == "u[n]; scalar N\nindex p < N\nr[t] = sum[p](u[t] * p)"


def test_indexed_bases_without_shape_take_it_from_ranges():
    u, r = IndexedBase("u"), IndexedBase("r")
    assert show(Formula(Eq(r[i], Sum(u[i, d], d)))) == "u[N, D]\nr[i] = sum[d](u[i,d])"


def test_a_result_without_places_may_be_a_symbol_or_a_base():
    for name in (Symbol("L"), IndexedBase("L"), tensors("L")):
        formula = Formula(Eq(name, Sum(x[i], i)), Eq(z[i], x[i] / name))
        assert show(formula) == "x[N]\nL = sum[i](x[i])\nz[i] = x[i] / L"


def test_a_size_that_no_shape_determines_becomes_an_argument():
    heads = Formula(Eq(out[h, d], Sum(tensors("W", H * D)[h * D + d] * x[i], i)))
    system = from_sympy(heads)
    assert system.sizes == (SizeInput("D"),)
    assert not [*find_mistakes(system)]


def test_a_cache_does_not_mix_tensors_of_one_name():
    first = tensors("same", N, dtype="int", below=V)
    second = tensors("same", N, dtype="int", below=M)
    shown = [show(Formula(Eq(z[i], 2 * base[i] * x[i]))) for base in (first, second)]
    assert ["< V" in text for text in shown] == [True, False]


# --- meaning --------------------------------------------------------------------------------------


MEANT = [
    relative_attention(),
    Formula(Eq(z[i], Sum(x[j], (j, 0, i)) - Sum(x[j] * y[j], (j, i, N - 1)) / 3)),
    Formula(Eq(z[i], Sum(x[j], k, j) + Sum(x[k], (k, 0, i - 1)))),
    Formula(Eq(z[i, j], softmax(Piecewise((A[i, j] - C[j, i], j <= i), (-oo, True)), j))),
    Formula(Eq(z[i], Product(1 + x[j] ** 2, (j, 0, i)) * Max(x[i], y[i], 0))),
    Formula(Eq(z[i], Sum(KroneckerDelta(i, j) * (x[j] - 2 * y[i]), j) * (N - i))),
    Formula(Eq(z[i], Sum(Piecewise((A[i, j], m[j, i]), (0, True)) * Mod(j, 3), j))),
    Formula(Eq(Symbol("L"), Sum(A[i, j] * x[j] * y[i], j, i) / Sum(x[i] ** 2, i))),
]


@pytest.mark.parametrize("formula", MEANT, ids=range(len(MEANT)))
def test_the_text_has_the_values_of_the_sympy_formula(formula):
    system = from_sympy(formula)
    assert not [*find_mistakes(system)]
    again = parse(show(formula))
    for drawn in choose_sizes(system, count=2):
        given = draw_inputs(system, drawn, seed=1)
        one, other = evaluate_loops(formula, given), evaluate_loops(again, given)
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"name": "for"}, "formula-name"),
        ({"name": "a b"}, "formula-name"),
        ({"outputs": []}, "outputs-form"),
        ({"outputs": ["z", "z"]}, "outputs-form"),
        ({"outputs": 5}, "outputs-form"),
        ({"scalars": 5}, "scalars-form"),
    ],
)
def test_arguments_of_the_wrong_form_are_refused(given, code):
    with pytest.raises(DeriveError) as refused:
        Formula(**given)
    assert refused.value.diagnostic.code == code


def test_outputs_are_names_or_tensors():
    z = IndexedBase("z")
    assert Formula(outputs=[z]).outputs == Formula(outputs=z).outputs == ("z",)
    assert Formula(outputs="z alpha").outputs == ("z", "alpha")


def test_dummies_of_one_name_stay_distinct():
    one, other = Dummy("k", integer=True), Dummy("k", integer=True)
    formula = Formula(Eq(z, Sum(x[one] * x[other], (one, 0, N - 1), (other, 0, N - 1))))
    values = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    assert float(evaluate_loops(formula, {"x": values})) == 49
    assert float(build(formula).function(values)) == 49


def test_equations_may_fill_a_tensor_in_parts():
    T, P = sizes("T P")
    t, p = indices("t", T), indices("p", P)
    x, c = tensors("x", T, 2 * P), tensors("c", T, P)
    y = tensors("y")
    formula = Formula(
        Eq(y[t, 2 * p], x[t, 2 * p] * c[t, p]),
        Eq(y[t, 2 * p + 1], x[t, 2 * p + 1] * sympy.exp(c[t, p])),
        name="pairs",
    )
    assert build(formula).judge().agrees
    assert show(formula).count("\n") == 2
