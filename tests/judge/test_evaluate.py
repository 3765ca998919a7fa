"""The evaluator by torch operations against the direct loops, on the library and on odd places."""

import pytest
from fast_cases import slow_except
from texts import Expressions

from derive import DeriveError, evaluate_loops, parse
from derive.formulas import find_families, find_formula
from derive.frontend.from_sympy import from_sympy, to_system
from derive.judge.compare import compare_values
from derive.judge.evaluate import evaluate_system
from derive.judge.samples import choose_sizes, draw_inputs

ROWS = Expressions(__file__, "evaluate_rows.txt")

ODD = dict(ROWS["ODD"])


def judge(formula: object, number: int, sizes: dict[str, int]) -> None:
    system = to_system(formula)
    inputs = draw_inputs(system, sizes, number, empty_row=number == 2)
    found = evaluate_system(system, inputs, sizes)
    expected = evaluate_loops(formula, inputs)
    expected = expected if isinstance(expected, tuple) else (expected,)
    for result, value in zip(system.results, expected, strict=True):
        _, where = compare_values(result.name, found[result.name], value)
        assert not where, where


@pytest.mark.parametrize(
    "name",
    slow_except(
        find_families(),
        *("sink_attention", "gated_linear_attention", "barlow_twins", "avg_pool2d"),
        *("sparse_graph_convolution", "top_k_gating", "lattice_boltzmann_step"),
    ),
)
def test_the_library_as_the_loops_have_it(name: str) -> None:
    formula = find_formula(name)
    for number, sizes in enumerate(choose_sizes(to_system(formula))):
        judge(formula, number, sizes)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ODD)
def test_odd_places_and_conditions_as_the_loops_have_them(name: str) -> None:
    formula = parse(ODD[name])
    for number, sizes in enumerate(choose_sizes(to_system(formula))):
        judge(formula, number, sizes)


UNOPENED = {
    "place-outside": "a, x[T]; scalar s\nh[-1] = s\nh[t] = a[t]*h[t - 1] + x[t]",
    "place-filled-twice": "x, a[T]\nh[0] = x[0]\nh[t] = a[t]*h[t - 1] + x[t]",
}


@pytest.mark.parametrize("code", UNOPENED)
def test_a_system_that_is_not_checked_is_refused(code: str) -> None:
    formula = parse(UNOPENED[code])
    sizes = {"T": 4}
    inputs = draw_inputs(to_system(formula), sizes)
    with pytest.raises(DeriveError) as error:
        evaluate_system(from_sympy(formula), inputs, sizes)
    assert error.value.diagnostic.code == code
