"""Explanations of wrong code: the difference, the line, the edit, annotations of lines."""

from dataclasses import replace

import pytest
import torch
from explain_cases import HEADS, HEADS_CODE, RIGHT, explain_code, find_line, make_case, read_wrong

from derive import check
from derive.checker.edits.search import Judge
from derive.checker.explain import explain
from derive.checker.runs.trace import Example

WRONG = list(read_wrong())


@pytest.mark.sampled(14)
@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_wrong_code_is_given_its_edit_and_its_line(wrong, tmp_path):
    """The edited formula computes the values of the code."""
    case = make_case(wrong.formula, wrong.code, tmp_path)
    found = explain(case)
    assert found.difference
    assert wrong.words in found.edit.lower()
    if wrong.part:
        assert found.line == find_line(wrong.code, wrong.part)
    if found.edited is None:  # a superfluous operation is corrected in the code
        assert found.corrected
        return
    for seed in (11, 12):
        values = replace(case.samples[0], seed=seed).make_inputs()
        judge = Judge(
            case.system, [Example(values, case.program.run(values, case.sizes).results, case.sizes)]
        )
        assert judge.is_reproduced(found.edited)
        assert not judge.is_reproduced(case.system)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [name for name in RIGHT if name != "REPEATED"])
def test_right_code_is_given_no_edit(name, tmp_path):
    found = explain_code(*RIGHT[name], tmp_path)
    assert found.difference == found.edit == ""
    assert found.line is None
    assert found.annotations


def test_lines_are_annotated_with_their_nodes(tmp_path):
    found = explain_code(HEADS, HEADS_CODE, tmp_path)
    said = dict(found.annotations)
    assert said[find_line(HEADS_CODE, "scores = ")] == ("sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D)")
    assert said[find_line(HEADS_CODE, "p = scores")] == "p[b,h,i,j]"
    assert said[find_line(HEADS_CODE, "out = ")] == "merged[b,i,h*D + d]"


def test_annotations_contain_a_factor_and_a_permutation(tmp_path):
    formula = "x[N, D]; y[M, D]; s[i, j] = sum[d](x[i, d] * y[j, d])"
    code = "half = (y @ x.T) / 2\nreturn half.T * 3"
    found = explain_code(formula, code, tmp_path, dict(N=3, M=5, D=7))
    assert dict(found.annotations)[find_line(code, "half = ")] == "s[i,j] * 1/2, as [j, i]"


def test_a_transposed_square_weight_is_explained(tmp_path):
    code = HEADS_CODE.replace("out @ W_o", "out @ W_o.T")
    found = explain_code(HEADS, code, tmp_path, dict(B=2, S=5, H=3, D=4, E=12))
    assert "transpose w_o" in found.edit.lower()
    assert found.line == find_line(code, "return")


def test_the_first_element_that_differs_is_shown(tmp_path):
    found = explain_code("x[N]; y[i] = 2 * x[i]", "x[1] += 1\nreturn 2 * x", tmp_path)
    assert found.difference.startswith("y[1] is ")
    assert "the formula says" in found.difference


def test_shapes_that_differ_are_shown_with_indices(tmp_path):
    found = explain_code("x[N, D]; y[i] = sum[d](x[i, d])", "return x", tmp_path, dict(N=3, D=4))
    assert found.difference == "y has shape [3, 4], the formula has y[i=3], at N=3 D=4"
    assert "survives: sum over it is missing" in found.edit.lower()
    assert "d" in found.edit.split()


def test_a_result_in_another_order_is_transposed(tmp_path):
    formula = "x[A, B, C]; y[i, j, k] = x[i, j, k]"
    found = explain_code(formula, "return x.permute(2, 0, 1)", tmp_path)
    assert "transpose the result: .permute(1, 2, 0)" in found.edit.lower()


@pytest.mark.slow
def test_an_index_that_a_matrix_product_keeps_is_named(tmp_path):
    formula = """X[B, S, H, D]; A[S, S, H, D]
    e[b,i,j,h] = sum[d](X[b,i,h,d] * (X[b,j,h,d] + A[i,j,h,d])) / sqrt(D)
    p[b,i,j,h] = softmax[j](e[b,i,j,h])
    z[b,i,h,d] = sum[j](p[b,i,j,h] * X[b,j,h,d])"""
    code = """e = X.unsqueeze(2) @ (X.unsqueeze(1) + A).transpose(-1, -2)
e = e / math.sqrt(D)
p = e.softmax(2)
return torch.einsum('bshij,bshjd->bshid', p, X.unsqueeze(1) + 0 * A)"""
    found = explain_code(formula, code, tmp_path)
    assert found.line == find_line(code, "e = X")
    assert "index h survives twice" in found.edit.lower()
    assert "sum over d" in found.edit.lower()


@pytest.mark.slow
def test_unexplained_code_has_a_line_and_no_edit(tmp_path):
    code = "y = torch.sin(x * 3 + 1)\nz = y * 2\nreturn z.cumsum(0)"
    found = explain_code("x[N]; y[i] = exp(x[i])", code, tmp_path)
    assert found.difference
    assert found.edit == ""
    assert found.line == find_line(code, "y = ")


def test_no_edit_is_searched_without_steps(tmp_path):
    found = explain_code(HEADS, "return x + 1", tmp_path, steps=0)
    assert found.difference
    assert found.edit == ""


def test_code_that_raises_explains_nothing(tmp_path):
    assert explain_code("x[N]; y[i] = x[i]", "raise ValueError(x)", tmp_path).edit == ""


def test_a_difference_at_some_sizes_only_is_explained_there(tmp_path):
    formula = "x[N, M]; y[i, j] = softmax[j](x[i, j])"
    code = "return x.softmax(-1) if N < M else x.softmax(0)"
    found = explain_code(formula, code, tmp_path)
    assert found.difference
    assert found.edited is None  # no single formula describes the code at all sizes
    assert "softmax over axis 1, not 0" in found.edit.lower()


def test_a_wrong_gradient_points_at_no_line():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 3 * grad * ctx.saved_tensors[0]

    verdict = check(Square.apply, "x[N]; y[n] = x[n]**2", backward=True, bind="argument_1=x")
    assert verdict.same is False
    assert verdict.line is None
    assert "gradient" in verdict.difference


@pytest.mark.slow
def test_code_that_is_not_given_a_tensor_has_no_edit():
    """No edit is tried without the argument; an unused argument has an edit."""
    formula = "x, w[N]; y[i] = x[i] * w[i]"
    lacks = check("def f(x):\n    return 2 * x\n", formula)
    assert lacks.same is False
    assert lacks.reasons == ("no edit of the code makes it right: it does not take w",)
    assert not lacks.edit
    given = check("def f(x, w):\n    return x\n", formula)
    assert "w" in given.edit
    assert not given.reasons


def test_code_that_is_not_given_a_tensor_may_be_another_formula():
    """An edit of the formula is shown if it reads only arguments of the code."""
    verdict = check(
        "def f(q, v):\n    return q @ v.T\n", "q[N,D]; k, v[M,D]; s[i,j] = sum[d](q[i,d] * k[j,d])"
    )
    assert "USE k, not v" in verdict.edit, verdict
