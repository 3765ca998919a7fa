"""Edits of formulas and code: each operator repairs its example, and shown edits are right."""

from pathlib import Path

import pytest
from explain_cases import explain_code
from texts import read_parts

from derive import check
from derive.checker.edits.operators import OPERATORS

MENDED = read_parts(Path(__file__).with_name("edits.txt"))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", MENDED)
def test_an_operator_repairs_its_example_as_a_person_would(name, tmp_path):
    formula, code, mended = MENDED[name]
    found = explain_code(formula, code, tmp_path)
    assert found.edit
    assert [mended in text for _, text in found.corrected] == [True], found.corrected


def test_a_script_and_a_module_are_corrected():
    module = """import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 3.0

    def forward(self, x):
        return x * self.scale"""
    verdict = check(module, "x[N]; y[i] = 2 * x[i]")
    assert verdict.line in {6, 9}
    assert verdict.corrected
    script = "import torch\nx = torch.randn(4, 5)\ny = x.softmax(0)\nz = y @ y.T\nw = z @ x\n"
    formula = """x[N, M]; index k < N
    y[i, j] = softmax[j](x[i, j]); z[i, k] = sum[j](y[i, j] * y[k, j])
    w[i, j] = sum[k](z[i, k] * x[k, j])"""
    verdict = check(script, formula)
    assert verdict.line == 3, str(verdict)
    assert "softmax(1)" in verdict.corrected[0][1] or "softmax(-1)" in verdict.corrected[0][1]


def test_a_line_is_annotated_with_a_term_that_it_contains(tmp_path):
    formula = "x[N, D]; y[n, d] = exp(x[n, d]) + 1; z[n] = sum[d](y[n, d])"
    code = "y = (torch.exp(x) + 2) / 3\nreturn y.sum(1)"
    said = dict(explain_code(formula, code, tmp_path).annotations)
    assert said[7] == "contains exp(x[n,d])"


@pytest.mark.slow
def test_a_number_is_no_size_of_equal_value(tmp_path):
    formula = "x[N, D]; y[n] = sum[d](x[n, d])"
    found = explain_code(formula, "t = x.sum(1) * 5\nreturn t + 1", tmp_path)
    assert dict(found.annotations)[7] in {"y[n] * 5", "contains y[n]"}


FAR = "x[N]; y[i] = sin(cos(tanh(exp(x[i]) + 2) * 3) + 5)**3"


@pytest.mark.slow
def test_the_number_of_edits_is_reported_if_none_is_right(tmp_path):
    found = explain_code(FAR, "return torch.frac(x)", tmp_path)
    assert not found.edit
    assert "no single edit makes it right" in found.tried


@pytest.mark.slow
@pytest.mark.processes
def test_an_edit_that_does_not_end_is_not_the_code(tmp_path):
    code = """import time
import torch

def f(x, n=2):
    if n != 2:
        time.sleep(60)
    return x * torch.tensor([1.0, 2.0, 4.0])[n]"""
    verdict = check(code, "x[N]; y[i] = 2 * x[i]", seconds=6)
    assert verdict.same is False
    assert verdict.line == 7
    assert not any("did not finish: the code" in reason for reason in verdict.reasons)


def test_operators_have_names_of_their_own():
    names = [each.name for each in OPERATORS]
    assert len(set(names)) == len(names)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda each: each.name)
def test_the_example_of_an_operator_is_repaired(operator, tmp_path):
    found = explain_code(operator.formula, operator.code, tmp_path)
    assert found.difference
    assert operator.words in found.edit.lower()
    assert found.edited is not None
