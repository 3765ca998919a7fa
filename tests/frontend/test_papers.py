"""Formulas of papers and textbooks outside of the library are built and judged."""

import pytest
from texts import read_named

from derive import build, parse

FORMULAS = read_named(__file__, "papers.txt")


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_of_a_paper_is_built(name):
    assert build(parse(FORMULAS[name], name)).judge(2).agrees
