"""Explanations of wrong code: the difference, the line, the edit, annotations of lines.

Each operator of edits repairs its example; shown edits are right.
"""

import importlib.util
from dataclasses import dataclass, replace

import pytest
import torch
from texts import read_rows, read_sections

from derive import check
from derive.checker.edits.formula_edits import FORMULA_EDITS
from derive.checker.edits.search import Judge
from derive.checker.explain import STEPS, Case, explain
from derive.checker.load import Code
from derive.checker.program import Program
from derive.checker.runs.trace import Example
from derive.checker.samples import Sample
from derive.compiler import to_system
from derive.frontend.from_text import parse
from derive.judge.samples import choose_sizes

HEAD = "import math\nimport torch\nimport torch.nn.functional as F\n\n\n"


def make_case(formula, code, folder, sizes=None):
    """Make a case of a function's body: its arguments are the inputs and sizes of the formula."""
    system = to_system(parse(formula))
    all_sizes = [dict(sizes)] if sizes else choose_sizes(system, 3)
    names = [entry.name for entry in system.inputs]
    names += [name for name in all_sizes[0] if name not in names]
    body = "".join(f"    {line}\n" for line in code.splitlines())
    path = folder / "code.py"
    path.write_text(f"{HEAD}def code({', '.join(names)}):\n{body}", encoding="utf-8")
    spec = importlib.util.spec_from_file_location("code_of_a_case", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    code = Code("code", module.code, str(path), path.read_text(encoding="utf-8"))
    program = Program(code, {name: name for name in names})

    return Case(program, tuple(Sample(system, sizes, 0) for sizes in all_sizes))


def explain_code(formula, code, folder, sizes=None, steps=STEPS):
    """The explanation of a function's body against a formula."""
    return explain(make_case(formula, code, folder, sizes), steps)


def find_line(code, part):
    """The number of the line of the file that holds this part of the code."""
    lines = code.splitlines()
    return len(HEAD.splitlines()) + 2 + next(n for n, line in enumerate(lines) if part in line)


@dataclass(frozen=True)
class Wrong:
    """Wrong code, and the words and line of its explanation."""

    name: str
    formula: str
    code: str
    words: str
    part: str  # a part of the line at fault


def read_right():
    """The formulas of explain.txt and right code of each, by name."""
    sections = list(read_sections(__file__, "explain.txt"))
    return {
        formula.title: (formula.text, code.text)
        for formula, code in zip(sections[::2], sections[1::2], strict=True)
    }


RIGHT = read_right()
HEADS, HEADS_CODE = RIGHT["HEADS"]


def read_wrong():
    """The wrong codes of explain_wrong.txt."""
    for name, which, old, new, words, part in read_rows(__file__, "explain_wrong.txt"):
        formula, code = RIGHT[which]
        assert old in code, f"{name}: the code has no {old}"
        yield Wrong(name, formula, code.replace(old, new), words, part)


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
@pytest.mark.parametrize("name", RIGHT)
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


MENDED = {case.title: case for case in read_sections(__file__, "edits.txt")}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", MENDED)
def test_an_operator_repairs_its_example_as_a_person_would(name, tmp_path):
    formula, mended = (MENDED[name].entries[entry] for entry in ("formula", "mended"))
    found = explain_code(formula, MENDED[name].text, tmp_path)
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


@pytest.mark.sampled(4)
@pytest.mark.parametrize("operator", FORMULA_EDITS, ids=lambda each: each.name)
def test_the_example_of_an_operator_is_repaired(operator, tmp_path):
    found = explain_code(operator.formula, operator.code, tmp_path)
    assert found.difference
    assert operator.words in found.edit.lower()
    assert found.edited is not None
