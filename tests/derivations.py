"""Helpers of the tests of derivations: the library, each formula built once."""

from dataclasses import replace
from functools import cache

import pytest
import torch

from derive import build, parse
from derive.formulas import find_families, find_formula
from derive.frontend.from_sympy import from_sympy, to_system
from derive.ir.text import to_lines
from derive.rewrite.rule import rename_equation_indices

LIBRARY = tuple(find_families())
FIRST = {
    *{find_families()[name]: name for name in reversed(LIBRARY)}.values()
}  # one formula per family
SOFTMAX = "x[M, N]; y[i,j] = exp(x[i,j]) / sum[k](exp(x[i,k]))"

every_formula = pytest.mark.parametrize("name", LIBRARY)


def read_system(text, empty_row="nan"):
    return to_system(parse(text, empty_row=empty_row))


@cache
def built(name, **options):
    return build(find_formula(name), **options)


def rename_indices(system):
    """Rename the indices of a system to names that the notation allows."""
    equations = (Equation(e.target, rename_equation_indices(e, system)) for e in system.equations)
    return replace(system, equations=tuple(equations))


def as_tensors(found):
    """Convert one result or a tuple of results to a tuple of float64 tensors."""
    parts = found if isinstance(found, tuple) else (found,)
    return tuple(torch.as_tensor(part, dtype=torch.float64) for part in parts)
