"""Each kind of edit mends its example."""

import pytest
from explain_cases import explain_code

from derive.checker.edits import KINDS


def test_kinds_have_names_of_their_own():
    names = [kind.name for kind in KINDS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_example_of_a_kind_is_mended(kind, tmp_path):
    found = explain_code(kind.formula, kind.code, tmp_path)
    assert found.difference
    assert kind.words in found.edit.lower()
    assert found.edited is not None
