"""Pairs of formulas in cases.txt: a section `== right ==`, and in it blocks of four lines each."""

from pathlib import Path

TEXT = Path(__file__).with_name("cases.txt").read_text(encoding="utf-8")


def read_cases(section):
    """name: declarations, one way, another way."""
    body = TEXT.split(f"== {section} ==")[1].split("== ")[0]
    blocks = (block.splitlines() for block in body.strip().split("\n\n"))
    return {name: tuple(rest) for name, *rest in blocks}
