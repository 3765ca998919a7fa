"""Edge cases of the loops: guards, empty rows, IEEE, any SymPy tree."""

import re
from typing import Any

import numpy as np
import pytest
import sympy as sp
import torch
from sympy import Eq, Idx, IndexedBase, KroneckerDelta, Mul, Piecewise, Pow, Sum, Symbol
from texts import read_rows

from derive.errors import DeriveError
from derive.frontend.from_text import parse
from derive.judge.loops import evaluate_loops
from derive.notation import words as f
from derive.notation.formula import Formula
from derive.notation.words import indices, sizes, tensors

N, M = sizes("N M")
i, j = indices("i j", N)
k = indices("k", M)
x, A, y, z = tensors("x", N), tensors("A", N, M), tensors("y"), tensors("z")
INF, NAN = float("inf"), float("nan")


def evaluate(right: Any, left: Any = None, **values: Any) -> Any:
    """The value of one equation, by default y[i] = right."""
    return evaluate_loops(
        Formula(Eq(y[i] if left is None else left, right, evaluate=False)), values
    )


def same(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, rtol=1e-14, atol=0)


# Guards


def bracket(condition: Any) -> Any:
    return Piecewise((1, condition), (0, True))


@pytest.mark.parametrize(
    "right",
    [
        x[i - 1] * bracket(i >= 1),
        Mul(bracket(i >= 1), Mul(2, x[i - 1], evaluate=False), evaluate=False) / 2,
        Mul(x[i - 1], Mul(3, bracket(i >= 1), evaluate=False), sp.Rational(1, 3), evaluate=False),
        x[i - 1] * Pow(bracket(i >= 1), 2, evaluate=False),
        -(-bracket(i >= 1) * x[i - 1]),
        Piecewise((x[i - 1], i >= 1), (0, True)),
        Piecewise((0, i < 1), (x[i - 1], True)),
        Sum(x[j] * KroneckerDelta(j, i - 1), j),
        Sum(x[j - 1] * bracket(sp.And(j >= 1, Eq(i, j))), j),
        Sum(Piecewise((x[i - 1], i >= 1), (0, True)), j) / N,
        Sum(x[i - 1], j) * bracket(i >= 1) / N,
        sp.Max(0, x[i - 1] * bracket(i >= 1)),
        f.mean(x[i - 1] * bracket(i >= 1), j),
        f.amax(x[j - 1], j, sp.And(j >= 1, j <= i, Eq(i, j))) * bracket(i >= 1),
        f.mean(x[j - 1], j, sp.And(j >= 1, Eq(i, j))) * bracket(i >= 1),
    ],
)
def test_what_a_guard_leaves_out_is_not_read(right: Any) -> None:
    same(evaluate(right, x=[3.0, 5.0, 7.0]), [0.0, 3.0, 5.0])


def test_a_false_bracket_is_zero_beside_anything() -> None:
    same(evaluate(bracket(i < 1) * x[i], x=[1.0, INF, NAN]), [1.0, 0.0, 0.0])
    same(evaluate(bracket(i < 1) / x[i], x=[4.0, 0.0, NAN]), [0.25, 0.0, 0.0])
    same(evaluate(bracket(i < 1) + x[i], x=[4.0, 0.0, NAN]), [5.0, 0.0, NAN])


def test_a_bracket_below_the_line_guards_nothing() -> None:
    assert evaluate(x[i] / bracket(i < 1), x=[4.0, 2.0, -1.0]) == [4.0, INF, -INF]


def test_conditions_over_tensors_wait_for_those_over_indices() -> None:
    m = tensors("m", N, dtype="bool")
    right = Sum(bracket(sp.And(m[i - j], i >= j)) * x[j], j)
    same(evaluate(right, x=[1.0, 2.0, 4.0], m=[True, False, True]), [1.0, 2.0, 5.0])
    right = bracket(sp.Or(i < 1, m[i - 1])) * x[i]
    same(evaluate(right, x=[1.0, 2.0, 4.0], m=[True, False, True]), [1.0, 2.0, 0.0])


def test_an_unguarded_read_is_refused() -> None:
    with pytest.raises(DeriveError, match="reads-outside"):
        evaluate(x[i - 1] + bracket(i >= 1), x=[1.0, 2.0])


# Rows with nothing left


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("sum", 0.0),
        ("prod", 1.0),
        ("max", -INF),
        ("min", INF),
        ("mean", NAN),
        ("var", NAN),
        ("logsumexp", -INF),
    ],
)
def test_a_reduction_of_nothing(word: str, expected: float) -> None:
    formula = parse(f"x[N]; bool m[N]\ny = {word}[i, m[i]](x[i])")
    same(evaluate_loops(formula, {"x": [1.0, 2.0], "m": [False, False]}), expected)


def test_left_out_entries() -> None:
    values = {"x": [1.0, INF, 3.0], "m": [True, False, True]}
    two = parse(
        "x[N]; bool m[N]\ny[i] = softmax[i, m[i]](x[i])\nz[i] = log_softmax[i, m[i]](x[i])"
        "\nw[i] = cumsum[i, m[i]](x[i])\nk = argmax[i, m[i]](x[i])"
        "\nv = var[i, m[i]](x[i], correction=1)\nreturn y, z, w, k, v"
    )
    p, logs, sums, best, spread = evaluate_loops(two, values)
    kept = np.exp([1.0, 3.0]) / np.exp([1.0, 3.0]).sum()
    same(p, [kept[0], 0.0, kept[1]])
    same(logs, [np.log(kept[0]), -INF, np.log(kept[1])])
    assert (sums, best, spread) == ([1.0, 1.0, 4.0], 2, 2.0)


# IEEE, as torch has it


EXTREMES = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 20.0, -40.0, 1e4, -1e4, 1e308, INF, -INF, NAN]
ROWS = [
    [1e4, -1e4, 1e4 - 1.0],
    [-1e4, -1e4, -1e4],
    [INF, 0.0, 1.0],
    [-INF, 0.0, 1.0],
    [-INF, -INF, -INF],
    [NAN, 0.0, 1.0],
    [1e308, 1e308, -1e308],
]
TORCH = read_rows(__file__, "extremes.txt")


@pytest.mark.parametrize(("text", "wanted"), TORCH)
def test_extremes(text: str, wanted: str) -> None:
    is_row = "[j]" in text
    values = torch.tensor(ROWS if is_row else EXTREMES, dtype=torch.float64)
    shape = "B, N" if is_row else "N"
    places = ("b,j" if re.match("(log_)?softmax|cumsum", text) else "b") if is_row else "i"
    formula = parse(f"x[{shape}]; {'' if is_row else 'index i < N'}\ny[{places}] = {text}")
    torch.testing.assert_close(
        evaluate_loops(formula, {"x": values}),
        eval(wanted, {"torch": torch, "t": values}),
        rtol=1e-12 if is_row else 1e-10,
        atol=0 if is_row else 1e-300,
        equal_nan=True,
    )


# SymPy trees of any make


def test_plain_symbols_and_bare_idx() -> None:
    n, a, b = Symbol("n"), Symbol("a"), Idx("b")
    B = IndexedBase("B", shape=(n, n))
    w = IndexedBase("w")
    formula = Formula(Eq(w[a, b], B[b, a] * sp.sqrt(2 * n) + a))
    same(evaluate_loops(formula, {"B": [[1, 2], [3, 4]]}), [[2, 6], [5, 9]])


def test_sums_with_bounds() -> None:
    same(evaluate(Sum(x[j], (j, 0, i)), x=[1.0, 2.0, 4.0]), [1.0, 3.0, 7.0])
    same(evaluate(Sum(x[j], (j, i, N - 1)), x=[1.0, 2.0, 4.0]), [7.0, 6.0, 4.0])
    same(evaluate(Sum(x[j], (j, 1, i - 1)), x=[1.0, 2.0, 4.0]), [0.0, 0.0, 2.0])
    same(evaluate(sp.Product(x[j], (j, 0, i)), x=[1.0, 2.0, 4.0]), [1.0, 2.0, 8.0])
    a = Symbol("a", integer=True)
    same(evaluate(Sum(a * x[i], (a, 1, 3)), x=[1.0, 2.0]), [6.0, 12.0])
    inner = Sum(x[a] * x[j], (a, 0, j), (j, 0, i))
    same(evaluate(inner, x=[1.0, 2.0, 4.0]), [1.0, 7.0, 35.0])
    with pytest.raises(DeriveError, match="reads-outside"):
        evaluate(Sum(x[a], (a, 0, N)), y, x=[1.0])


def test_multiplicity_and_shadowing() -> None:
    same(evaluate(Sum(x[i], k) + A[0, 0] - 1, x=[1.0, 2.0], A=np.ones((2, 3))), [3.0, 6.0])
    same(evaluate(Sum(1, k) * A[i, 0], A=np.ones((2, 3))), [3.0, 3.0])
    same(evaluate(Sum(x[i] * Sum(x[i], i), i), y, x=[1.0, 2.0]), 9.0)
    same(evaluate(x[i] * Sum(x[i] * Sum(x[i], i), i), x=[1.0, 2.0]), [9.0, 18.0])
    same(evaluate(x[i] + Sum(f.mean(x[j], j) * x[i], i), x=[1.0, 2.0]), [5.5, 6.5])


def test_names_that_python_or_the_text_uses() -> None:
    words = ["sum", "range", "lambda", "softmax", "tensor", "divide_", "inf", "N", "exp_"]
    bases = [IndexedBase(word, shape=(M,)) for word in words if word != "N"]
    formula = Formula(Eq(IndexedBase("mean")[k], sum(base[k] for base in bases) + sp.exp(0 * M)))
    values = {str(base.label): [1.0, 2.0] for base in bases}
    same(evaluate_loops(formula, values), [9.0, 17.0])


def test_parts_on_the_left() -> None:
    p = indices("p", M)
    w = tensors("w", M)
    parts = Formula(Eq(y[2 * p], w[p]), Eq(y[2 * p + 1], -w[p]))
    same(evaluate_loops(parts, {"w": [1.0, 2.0]}), [1.0, -1.0, 2.0, -2.0])
    merged = Formula(Eq(y[i * M + k], A[i, k]))
    same(evaluate_loops(merged, {"A": [[1, 2, 3], [4, 5, 6]]}), [1, 2, 3, 4, 5, 6])
    fixed = Formula(Eq(z[0, i], x[i]), Eq(z[1, i], x[i] ** 2))
    same(evaluate_loops(fixed, {"x": [2.0, 3.0]}), [[2, 3], [4, 9]])
    with pytest.raises(DeriveError, match=r"place-filled-twice: y\[0\] is defined twice"):
        evaluate_loops(Formula(Eq(y[2 * p], w[p]), Eq(y[3 * p], w[p])), {"w": [1.0, 2.0]})
    with pytest.raises(DeriveError, match=r"place-not-filled: no equation gives y\[1\] a value"):
        evaluate_loops(Formula(Eq(y[2 * p], w[p])), {"w": [1.0, 2.0]})
    with pytest.raises(DeriveError, match=r"place-not-filled: y\[0\] depends on itself"):
        evaluate_loops(Formula(Eq(y[i], Sum(y[j], j) + x[i])), {"x": [1.0, 2.0]})


def test_truth_values_as_results_and_as_numbers() -> None:
    m, w = tensors("m", dtype="bool"), tensors("w", N, N, dtype="bool")
    formula = Formula(Eq(m[i, j], i <= j), Eq(y[i], Sum(w[i, j] * x[j], j)), outputs=("m", "y"))
    found, sums = evaluate_loops(formula, {"x": torch.ones(2), "w": torch.eye(2).bool()})
    assert found.dtype == torch.bool
    assert found.tolist() == [[True, True], [False, True]]
    assert sums.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    "values",
    [
        torch.tensor([1.5, 2.0], dtype=torch.bfloat16, requires_grad=True),
        torch.tensor([[1.5, 0.0], [2.0, 0.0]])[:, 0],
        np.array([1.5, 2.0], dtype=np.float16),
        (1.5, 2),
    ],
)
def test_whatever_holds_numbers(values: Any) -> None:
    assert list(evaluate(2 * x[i], x=values)) == [3.0, 4.0]


def test_more_indices_than_python_nests() -> None:
    indices = sp.symbols("a:z", integer=True)
    B, w = IndexedBase("B", shape=(1,) * 26), IndexedBase("out")
    total = Sum(w[indices], *((index, 0, 0) for index in indices))
    formula = Formula(Eq(w[indices], B[indices]), Eq(Symbol("total"), total))
    assert evaluate_loops(formula, {"B": torch.full((1,) * 26, 3.0)}) == 3.0


def test_integers_beyond_floats() -> None:
    with pytest.raises(DeriveError, match="number-too-large"):
        evaluate(x[i] * 10**400, x=[0.5])
