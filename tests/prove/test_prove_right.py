"""Formulas written in two ways are proved equal, for all sizes."""

import pytest
from prove_cases import read_cases

from derive.compiler import to_system
from derive.frontend.from_text import parse
from derive.prove import prove

PAIRS = read_cases("right")


@pytest.mark.parametrize("name", PAIRS)
def test_it_is_proved(name):
    declared, one, other = PAIRS[name]
    systems = [to_system(parse(f"{declared}\n{text}")) for text in (one, other)]
    for code, formula in (systems, systems[::-1]):
        proof = prove(code, formula)
        assert proof is not None
        assert proof.every_size
