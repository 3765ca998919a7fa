"""Each operator of edits mends its example."""

import pytest
from explain_cases import explain_code

from derive.checker.edits import OPERATORS


def test_operators_have_names_of_their_own():
    names = [each.name for each in OPERATORS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda each: each.name)
def test_the_example_of_an_operator_is_mended(operator, tmp_path):
    found = explain_code(operator.formula, operator.code, tmp_path)
    assert found.difference
    assert operator.words in found.edit.lower()
    assert found.edited is not None
