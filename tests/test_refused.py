"""Formulas that are refused when they are built."""

import pytest
from texts import read_rows

from derive import DeriveError, build, parse


@pytest.mark.parametrize(("code", "says", "text"), read_rows(__file__, "refused.txt"))
def test_malformed_formulas_are_refused_with_help(code, says, text):
    with pytest.raises(DeriveError) as caught:
        build(parse(text))
    found = caught.value.diagnostic
    assert found.code == code
    assert says in found.says
    assert found.help
