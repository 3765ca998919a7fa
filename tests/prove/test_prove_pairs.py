"""Formulas written in two ways are proved equal; with the mistakes that people make, never."""

import re
from pathlib import Path

import pytest
from prove_mutants import find_difference
from texts import read_rows

from derive.compiler import to_system
from derive.frontend.from_text import parse
from derive.prove import prove

# Sections `== right ==`, and in each blocks of four lines.
TEXT = Path(__file__).with_name("cases.txt").read_text(encoding="utf-8")
_, *PARTS = re.split(r"^== (.*) ==$", TEXT, flags=re.MULTILINE)
SECTIONS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))


def read_cases(section):
    """name: declarations, one way, another way."""
    blocks = (block.splitlines() for block in SECTIONS[section].strip().split("\n\n"))
    return {name: tuple(rest) for name, *rest in blocks}


PAIRS = read_cases("right")
ATTENTION = """q[b,h,i,d] = sum[x](Q[b,i,x] * W_q[x,h,d])
k[b,h,j,d] = sum[x](K[b,j,x] * W_k[x,h,d])
v[b,h,j,d] = sum[x](V[b,j,x] * W_v[x,h,d])
a[b,h,i,j] = softmax[j](sum[d](q[b,h,i,d] * k[b,h,j,d]) / sqrt(D))
o[b,h,i,d] = sum[j](a[b,h,i,j] * v[b,h,j,d])
z[b,i,y] = sum[h, d](o[b,h,i,d] * W_o[y, h*D + d]) + c[y]"""
DECLARED = "Q, K, V[B, N, E]; W_q, W_k, W_v[E, H, D]; W_o[E, H*D]; c[E]"

SLIPS = read_rows(Path(__file__).with_name("slips.txt"))

CASES = {
    **{name: (DECLARED, ATTENTION, ATTENTION.replace(*slip)) for name, *slip in SLIPS},
    **read_cases("wrong"),
}
BY_ACCIDENT = read_cases("wrong where inputs meet by accident")


@pytest.mark.parametrize("name", PAIRS)
def test_it_is_proved(name):
    declared, one, other = PAIRS[name]
    systems = [to_system(parse(f"{declared}\n{text}")) for text in (one, other)]
    for code, formula in (systems, systems[::-1]):
        proof = prove(code, formula)
        assert proof is not None
        assert proof.every_size


@pytest.mark.parametrize("name", CASES)
def test_it_is_not_proved(name):
    declared, right, wrong = CASES[name]
    systems = [to_system(parse(f"{declared}\n{text}")) for text in (wrong, right)]
    assert wrong != right
    difference = find_difference(*systems)
    assert difference is not None, "the case itself is wrong: both agree"
    for code, formula in (systems, systems[::-1]):
        assert prove(code, formula) is None


@pytest.mark.parametrize("name", BY_ACCIDENT)
def test_what_is_finite_elsewhere_is_not_proved(name):
    declared, right, wrong = BY_ACCIDENT[name]
    systems = [to_system(parse(f"{declared}\n{text}")) for text in (wrong, right)]
    for code, formula in (systems, systems[::-1]):
        assert prove(code, formula) is None
