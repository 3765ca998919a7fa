"""Formulas of papers and textbooks outside of the library are built and judged."""

from pathlib import Path

import pytest

from derive import build, parse

_, *BLOCKS = (Path(__file__).parent / "papers.txt").read_text(encoding="utf-8").split("\n\n")
FORMULAS = dict(block.strip().split("\n", 1) for block in BLOCKS)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_of_a_paper_is_built(name):
    assert build(parse(FORMULAS[name], name)).judge(2).agrees
