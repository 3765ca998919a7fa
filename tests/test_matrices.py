"""Functions of matrices: values and generated code."""

import pytest
import torch

from derive import build, check, evaluate_loops, parse


@pytest.mark.parametrize("size", [0, 1])
def test_matrices_of_size_0_and_1_have_values(size: int) -> None:
    """The determinant of a 0x0 matrix is 1; an inverse of a 1x1 matrix is a quotient."""
    A = torch.full((2, size, size), 4.0, dtype=torch.float64)
    texts = {"det[i, j](A[b,i,j])": 4.0**size, "sum[i, j](inverse[i, j](A[b,i,j]))": size / 4}
    texts["sum[i, j](cholesky[i, j](A[b,i,j]))"] = 2.0 * size
    for text, wanted in texts.items():
        formula = parse(f"A[B, N, N]\ny[b] = {text}", "formula")
        for found in (evaluate_loops(formula, {"A": A}), build(formula).function(A)):
            torch.testing.assert_close(found, torch.full((2,), wanted, dtype=torch.float64))


@pytest.mark.parametrize(
    "body", ["B[j,b] * sin(i)", "B[i,b] + j + 6*delta(i, j)", "exp(B[i,b] - j)"]
)
def test_the_indices_of_a_matrix_stay_last(body: str) -> None:
    """The batch has the size of the matrix, so shapes alone do not distinguish the axes."""
    formula = parse(f"B[N, N]\nindex i, j, b < N\ny[b] = det[i, j]({body})", "formula")
    B = torch.randn(3, 3, dtype=torch.float64)
    torch.testing.assert_close(build(formula).function(B), evaluate_loops(formula, {"B": B}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("inverse[i, j](A[i,j])", "inverse[i, j](A[j,i])"),
        ("cholesky[i, j](A[i,j])", "cholesky[j, i](A[i,j])"),
        ("sum[k](inverse[i, k](A[i,k]) * A[k,j])", "sum[k](inverse[i, k](A[i,k]) * A[j,k])"),
        ("A[i,j] * det[k, l](A[k,l])", "A[i,j] * det[k, l](2*A[k,l])"),
    ],
)
def test_code_of_another_formula_is_different(one: str, other: str) -> None:
    """The generated code of another formula is judged different."""
    formula, another = (parse(f"A[N, N]\ny[i,j] = {each}", "formula") for each in (one, other))
    verdict = check(build(another).source, formula)
    assert verdict.same is False


@pytest.mark.parametrize(
    ("text", "calls"),
    [  # equations with one matrix, and the calls that solve them
        ("x[i] = sum[j](A1[i,j] * b[j]); y[i,m] = sum[j](A1[i,j] * c[j,m])", 1),
        ("x[i,m,l] = sum[j](A1[i,j] * c[j,m] * e[l,m]); y[i] = sum[j](A1[i,j] * d[j])", 1),
        ("x[q,i] = sum[j](B1[q,i,j] * b[j]); y[q,i,m] = sum[j](B1[q,i,j] * c[j,m])", 1),
        ("x = sum[i,j](b[i] * A1[i,j] * b[j]); y[m] = sum[i,j](c[i,m] * A1[i,j] * c[j,m])", 1),
        ("x[i] = sum[j](A1[i,j] * b[j]); y = sum[i,j](d[i] * A1[i,j] * b[j])", 1),
        ("x[i] = sum[j](A1[i,j] * b[j]); y[i] = sum[j](A1[i,j] * x[j])", 2),
        ("x[j] = sum[i](A1[i,j] * b[i]); y[i,m] = sum[j](A1[i,j] * c[j,m])", 2),
    ],
)
def test_systems_of_one_matrix_are_solved_at_once(text: str, calls: int) -> None:
    """Systems stay apart where one needs the solution of another or a transposed matrix."""
    declared = "A[N, N]; B[Q, N, N]; b, d[N]; c[N, M]; e[L, M]\n"
    text = text.replace("A1[i,j]", "inverse[i, j](A[i,j])")
    text = text.replace("B1[q,i,j]", "inverse[i, j](B[q,i,j])")
    built = build(parse(f"{declared}{text}; return x, y", "formula"))
    assert built.source.count("torch.linalg.solve(") == calls
    assert built.judge().agrees
