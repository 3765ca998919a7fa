"""The evaluator by torch operations against the direct loops, on the library and on odd places."""

from pathlib import Path

import pytest
import torch
from fast_cases import slow_except
from texts import read_literals

from derive import DeriveError, evaluate_loops, parse
from derive.formulas import find_families, find_formula
from derive.frontend.from_sympy import from_sympy, to_system
from derive.judge.compare import compare_values
from derive.judge.evaluate import Evaluator, evaluate_system
from derive.judge.samples import choose_sizes, draw_inputs

ROWS = read_literals(Path(__file__).with_name("evaluate_rows.txt"))

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


def test_gradients_are_those_of_differences() -> None:
    system = to_system(parse("x[N, M]; w[M]; y[i] = logsumexp[j](x[i, j] * w[j])"))
    sizes = {"N": 3, "M": 4}
    inputs = draw_inputs(system, sizes)
    inputs["w"].requires_grad_()

    def total(w: torch.Tensor) -> torch.Tensor:
        return evaluate_system(system, inputs | {"w": w}, sizes)["y"]

    assert torch.autograd.gradcheck(total, inputs["w"])


def test_an_empty_row_is_nan_or_zeros_by_the_formula() -> None:
    text = "x[N, M]; bool m[M]; y[i, j] = softmax[j, m[j]](x[i, j])"
    for empty_row in ("nan", "zeros"):
        system = to_system(parse(text, empty_row=empty_row))
        values = {"x": torch.ones(2, 3, dtype=torch.float64), "m": torch.zeros(3, dtype=torch.bool)}
        found = evaluate_system(system, values, {"N": 2, "M": 3})["y"]
        assert bool((found.isnan() if empty_row == "nan" else found == 0).all())


def test_what_is_shared_is_evaluated_once() -> None:
    system = to_system(parse("x[N]; y[i] = exp(x[i]) + exp(x[i])**2"))
    values = {"x": torch.ones(3, dtype=torch.float64)}
    evaluator = Evaluator(values, {"N": 3})
    first = evaluator.evaluate_node(system.equations[0].value)
    assert evaluator.evaluate_node(system.equations[0].value) is first


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
