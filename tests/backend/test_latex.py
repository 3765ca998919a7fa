"""Formulas as LaTeX."""

import pytest
from built import read
from texts import read_named

from derive.backend.to_latex import escape, to_latex, to_name

LATEX = read_named(__file__, "to_latex.txt")


@pytest.mark.parametrize("text", LATEX)
def test_an_expression_as_latex(text):
    (equation,) = read(text).equations
    assert to_latex(equation.value) == LATEX[text]


def test_names_and_text_as_latex():
    names = ["x", "alpha", "W_Q", "x1", "A_K_2", "_", "mu_0"]
    assert [to_name(name) for name in names] == [
        "x", r"\alpha", "W_{Q}", "x_{1}", r"A_{\mathrm{K\_2}}", r"\mathrm{\_}", r"\mu_{0}",
    ]  # fmt: skip
    assert escape("a_b {c}^2 \\ 5%") == (r"a\_b \{c\}\textasciicircum{}2 \textbackslash{} 5\%")
