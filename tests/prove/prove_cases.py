"""Pairs of formulas in cases.txt: a section `== right ==`, and in it blocks of four lines each."""

import re
from pathlib import Path

TEXT = Path(__file__).with_name("cases.txt").read_text(encoding="utf-8")
_, *PARTS = re.split(r"^== (.*) ==$", TEXT, flags=re.MULTILINE)
SECTIONS = dict(zip(PARTS[::2], PARTS[1::2], strict=True))


def read_cases(section):
    """name: declarations, one way, another way."""
    blocks = (block.splitlines() for block in SECTIONS[section].strip().split("\n\n"))
    return {name: tuple(rest) for name, *rest in blocks}
