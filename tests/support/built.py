"""The formulas of the library, built once, and readers of texts."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from derive import build, parse
from derive.formulas import find_families, find_formula
from derive.frontend.from_sympy import from_sympy, to_system
from derive.ir.text import to_lines
from derive.rewrite.rule import IndexNames

LIBRARY = tuple(find_families())
FIRST = {*{find_families()[name]: name for name in reversed(LIBRARY)}.values()}  # of families

every_formula = pytest.mark.parametrize("name", LIBRARY)


def read(text, empty_row="nan"):
    return to_system(parse(text, empty_row=empty_row))


@cache
def built(name, **options):
    return build(find_formula(name), **options)


def read_unchecked(text, empty_row="nan"):
    """The system of a text, without checks."""
    return from_sympy(parse(text, empty_row=empty_row))


def write(system):
    """The text of a system."""
    return "\n".join(to_lines(system))


def rename_indices(system):
    """The system with index names that the notation allows."""
    equations = (IndexNames(system).rename_bound(e) for e in system.equations)
    return replace(system, equations=tuple(equations))


def as_tensors(found):
    """All results as tensors of float64, a number too."""
    parts = found if isinstance(found, tuple) else (found,)
    return tuple(torch.as_tensor(part, dtype=torch.float64) for part in parts)
