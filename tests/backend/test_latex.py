"""Formulas as LaTeX."""

import re

import pytest
from built import LIBRARY, read
from fast_cases import slow_except
from texts import read_named

from derive.backend.to_latex import escape, to_align, to_latex, to_name
from derive.formulas import find_formula
from derive.frontend.from_sympy import to_system

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


KNOWN = {  # commands of LaTeX and amsmath
    *("begin", "end", "intertext", "text", "texttt", "mathrm", "operatorname", "left", "right"),
    *("textbackslash", "textasciicircum", "textasciitilde", "sum", "prod", "frac", "sqrt", "to"),
    *("exp", "log", "sin", "cos", "tanh", "max", "min", "infty", "pi", "lfloor", "rfloor"),
    *("bmod", "leq", "geq", "neq", "wedge", "vee", "neg", "cdot", "det"),
    *("alpha", "beta", "gamma", "delta", "lambda", "mu", "nu", "omega", "rho", "sigma"),
    *("tau", "theta"),
}


def check_latex(text):
    """Check that braces, brackets and environments balance and each row has one alignment mark."""
    plain = re.sub(r"\\[\\{}_$&#%,:]", " ", text)
    depth = 0
    for sign in plain:
        depth += (sign == "{") - (sign == "}")
        assert depth >= 0, text
    assert depth == 0, text
    stack = []
    for word, name in re.findall(r"\\(begin|end|left|right)\b(?:\{(\w+\*?)\})?", plain):
        if word in {"begin", "left"}:
            stack.append((word, name))
        else:
            opened = {"end": "begin", "right": "left"}[word]
            assert stack.pop() == (opened, name if word == "end" else ""), text
    assert not stack, text
    assert set(re.findall(r"\\([a-zA-Z]+)", plain)) <= KNOWN, text
    lines = text.split("\n")
    assert (lines[0], lines[-1]) == (r"\begin{align*}", r"\end{align*}")
    rows = [line for line in lines[1:-1] if not line.startswith(r"\intertext{")]
    assert all(row.endswith(r" \\") for row in rows[:-1])
    assert not rows[-1].endswith(r"\\")
    for row in rows:
        outside = re.sub(r"\\begin\{cases\}.*\\end\{cases\}", "", row).replace(r"\&", "")
        assert outside.count("&") == 1, row


FAST = slow_except(
    LIBRARY,
    *("self_attention", "differential_attention", "linear", "capsule_routing", "pixel_shuffle"),
    *("batch_norm_inference", "edit_distance", "triplet_loss", "graph_attention", "ao_to_mo"),
    *("heat_step", "viterbi", "histogram", "delta_net"),
)


@pytest.mark.parametrize("name", FAST)
def test_latex_is_balanced(name):
    check_latex(to_align(to_system(find_formula(name))))
