"""LaTeX input: its meaning, its refusals, and the round trip of LaTeX output."""

import re

import pytest
from built import every_formula
from hypothesis import given
from strategies import formulas
from texts import read_parts, read_text
from torch.testing import assert_close

from derive.backend.to_latex import to_align
from derive.errors import DeriveError
from derive.formulas import find_formula
from derive.frontend.from_latex import from_latex, to_notation
from derive.frontend.from_sympy import to_system
from derive.frontend.from_text import parse
from derive.ir.recurrences import find_groups
from derive.ir.text import to_lines
from derive.judge.loops import evaluate_loops
from derive.judge.samples import choose_sizes, draw_inputs
from derive.prove import prove

CASES = read_text(__file__, "latex.txt").split("\n\n")[1:]

SEED = r"""
$e_{ij} = \frac{X_i W^Q (X_j W^K + A^K_{ij})}{\sqrt{D_z}}$ are the energies,
$\alpha_{ij} = softmax(e_{ij})$
$z_{i} = \sum_j \alpha_{ij} (X_j W^V + A^V_{ij})$

X: [B, S, H,D]
each W: [H,D,D]
each A: [S, S, H,D]
"""


@pytest.mark.parametrize("case", CASES, ids=[case.strip().splitlines()[-1] for case in CASES])
def test_latex_is_read_or_refused(case):
    text, _, refusal = case.strip().partition("\n! ")
    latex, _, notation = text.partition("\n    ")
    if notation:
        assert to_notation(latex) == notation.replace("\n    ", "\n")
    if refusal:
        with pytest.raises(DeriveError) as caught:
            to_system(from_latex(latex))
        assert str(caught.value).startswith(refusal), caught.value
    else:
        assert to_system(from_latex(latex))


def test_matrix_products_and_implicit_indices_are_read():
    found = to_system(from_latex(SEED))
    assert [tensor.name for tensor in found.inputs] == ["X", "W_Q", "W_K", "W_V", "A_K", "A_V"]
    assert prove(found, to_system(find_formula("relative_attention"))) is not None
    for slip in (("\\sqrt{D_z}", "D_z"), ("X_j W^K", "X_j W^Q"), ("X_i W^Q", "X_i W^V")):
        assert prove(to_system(from_latex(SEED.replace(*slip))), found) is None


def read_back(system):
    """Return the formula read from a system's LaTeX and the declarations that LaTeX lacks."""
    lines = "; ".join(to_lines(system)).split("; ")
    stated = [line for line in lines if not re.match(r"\w+(\[[^;]*?\])? = |return ", line)]
    stated.append("return " + ", ".join(result.name for result in system.results))
    return from_latex(to_align(system), "; ".join(stated), empty_row=system.empty_row)


# Formulas in which every sign matters, except the neutral ones.
DENSE = [
    r"m_i = \max_{j=1}^{N} x_{ij}^2 - \frac{1}{N} \sum_{j=1}^{N} w^{(2)}_j x_{ij}",
    r"y_t = \sum_{s=1}^{t} a'_s e^{-\lambda_s / 2} [ b_{s} > 0 ] + R_{11} R_{ts}",
    r"z_i = \begin{cases} x_i & x_i > c_i \\ -\alpha_i & \text{otherwise} \end{cases}, u_i = |z_i|",
    r"p_{ij} = \mathrm{softmax}_{j \leq i}(q[i] k(i, j)), \quad s = \log_2 v \sin^{2} v; scalar v",
]
NEUTRAL = re.compile(r"[{}(),&.]|\\(?:quad|text|begin|end|left|right)|otherwise|cases")
SIGN = re.compile(r"\\[A-Za-z]+|\\.|otherwise|cases|\d|[A-Za-z]|\S")


def read_or_refuse(latex, stated):
    try:
        return to_notation(latex, stated)
    except DeriveError:
        return None


@pytest.mark.parametrize("latex", DENSE)
def test_no_sign_is_ignored(latex):
    latex, _, stated = latex.partition("; ")
    whole = to_notation(latex, stated)
    for sign in SIGN.finditer(latex):
        if not NEUTRAL.fullmatch(sign[0]):
            less = read_or_refuse(f"{latex[: sign.start()]} {latex[sign.end() :]}", stated)
            assert less is None or less != whole, (sign[0], sign.start())


@pytest.mark.sampled(9, 4)
@every_formula
def test_the_latex_of_a_formula_is_read_back(name):
    system = to_system(find_formula(name))
    found = to_system(read_back(system))
    assert to_align(found) == to_align(system)
    if find_groups(system):  # recurrences cannot be proved equal
        assert to_lines(found) == to_lines(system)
    else:
        assert prove(found, system) is not None


@pytest.mark.parametrize("text", read_parts(__file__, "round_trips.txt")["texts"])
def test_the_latex_of_a_text_is_read_back(text):
    formula = parse(text)
    system = to_system(formula)
    found = read_back(system)
    assert to_align(to_system(found)) == to_align(system)
    values = draw_inputs(system, choose_sizes(system, 1)[0], seed=0)
    assert_close(evaluate_loops(found, values), evaluate_loops(formula, values), equal_nan=True)


@given(formulas())
def test_the_latex_of_random_formulas_is_read_back(drawn):
    system = to_system(parse(drawn.text, empty_row=drawn.empty_row))
    assert to_align(to_system(read_back(system))) == to_align(system)


def test_the_command_line_reads_latex(tmp_path, capsys):
    from derive.cli import main

    (tmp_path / "paper.tex").write_text(SEED, encoding="utf-8")
    for where in (str(tmp_path / "paper.tex"), r"y_i = \sum_j A_{ij} x_j"):
        with pytest.raises(SystemExit) as ended:
            main(["show", where])
        assert ended.value.code == 0
    assert "y[i] = sum[j](A[i,j] * x[j])" in capsys.readouterr().out


QUESTIONS = [
    ("y_i = x_i^2 + x^{(2)}_i", "x_i", "is a power"),
    ("y_i = x^{(2)}_i; x: [N]", "x^", "this has none"),
]


@pytest.mark.parametrize(("latex", "sign", "says"), QUESTIONS)
def test_a_question_marks_the_ambiguous_sign(latex, sign, says):
    with pytest.raises(DeriveError) as caught:
        to_notation(latex)
    (mark,) = caught.value.diagnostic.marks
    assert says in caught.value.diagnostic.says
    assert mark.line[mark.start :].startswith(sign)
