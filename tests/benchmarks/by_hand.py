"""The functions by hand, found by the formula's name, and the judge of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from inspect import getmembers, isfunction
from typing import Any

from derive.frontend.system import to_system
from derive.judge.compare import compare_values
from derive.judge.loops import evaluate_loops
from derive.judge.samples import choose_sizes, draw_inputs
from derive.notation.formula import Formula
from tests.benchmarks import by_hand_attention, by_hand_layers, by_hand_pairs, by_hand_science

FAMILIES = (by_hand_attention, by_hand_layers, by_hand_pairs, by_hand_science)
DRAWS = 3  # of sizes and inputs; the second has a size 1, the last an empty row of each mask

Function = Callable[..., Any]


@cache
def load_by_hand() -> dict[str, Function]:
    """Every public function of the families by its name."""
    found: dict[str, Function] = {}
    for family in FAMILIES:
        for name, function in getmembers(family, isfunction):
            if function.__module__ == family.__name__ and not name.startswith("_"):
                assert name not in found, f"{name} is written twice"
                found[name] = function
    return found


def find_difference(function: Function, formula: Formula) -> str:
    """Where a function first differs from the formula's loops in float64, or nothing."""
    system = to_system(formula)
    names = [tensor.name for tensor in system.results]
    for number, sizes in enumerate(choose_sizes(system, count=DRAWS)):
        inputs = draw_inputs(system, sizes, number, empty_row=number == DRAWS - 1)
        found, expected = _to_tuple(function(**inputs)), _to_tuple(evaluate_loops(formula, inputs))
        if len(found) != len(expected):
            return f"{len(found)} results for {len(expected)}"
        for name, one, other in zip(names, found, expected, strict=True):
            where = compare_values(name, one, other)[1]
            if where:
                return f"{where}, at {sizes}"
    return ""


def _to_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)
