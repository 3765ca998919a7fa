"""Formulas with code by hand: tensors filled in parts, recurrences, functions of matrices.

by_hand.txt lists formulas, and under each formula right and wrong code. Entries name text that the
generated file must contain (`prints`) or must not contain (`lacks`), whether it has a gradient, and
how the code is checked.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from fast_cases import slow_except
from texts import read_sections

from derive import build, check, evaluate_loops, gradient, parse, show
from derive.judge.samples import choose_sizes, draw_inputs


@dataclass(frozen=True)
class Case:
    """A formula and code, with whether the code computes the formula."""

    name: str
    text: str
    code: str
    is_right: bool
    entries: Mapping[str, str]

    def run_code(self, *arguments: Any) -> Any:
        """Execute the code and call its function f."""
        names: dict[str, Any] = {"torch": torch, "math": math}
        exec(compile(self.code, self.name, "exec"), names)
        return names["f"](*arguments)


def read_cases() -> Iterator[Case]:
    """Read the cases of by_hand.txt."""
    formula = ""
    for section in read_sections(__file__, "by_hand.txt"):
        if section.title == "formula":
            formula = section.text
        else:
            kind, name = section.title.split(": ")
            yield Case(name, formula, section.text, kind == "right", section.entries)


CASES = list(read_cases())
RIGHT = [case for case in CASES if case.is_right]
SMOOTH = [case for case in RIGHT if "gradient" not in case.entries]

FAST = slow_except(
    RIGHT,
    *("rotary, interleaved", "boundaries", "three in turn", "linear"),
    *("two places back", "many right sides", "det", "ridge regression", "cholesky"),
)
make = cache(build)


def draw_case(case: Case, number: int) -> dict[str, Any]:
    system = make(case.text).system
    found = draw_inputs(system, choose_sizes(system, 2)[number], seed=number + 3)
    return {k: v if isinstance(v, torch.Tensor) else float(v) for k, v in found.items()}


def as_tuple(found: Any) -> tuple[Any, ...]:
    return tuple(map(torch.as_tensor, found if isinstance(found, tuple) else (found,)))


def assert_close(one: Any, other: Any) -> None:
    for pair in zip(as_tuple(one), as_tuple(other), strict=True):
        torch.testing.assert_close(*pair, rtol=1e-7, atol=1e-7, check_dtype=False)


@pytest.mark.parametrize("case", FAST, ids=lambda case: case.name)
def test_loops_and_built_functions_equal_code_by_hand(case: Case) -> None:
    """Loops, generated files with and without cells, and code by hand agree."""
    formula, built = parse(case.text), make(case.text)
    assert show(parse(show(formula))) == show(formula)
    assert case.entries.get("prints", "") in built.source
    assert "lacks" not in case.entries or case.entries["lacks"] not in built.source
    for number in (0, 1):
        inputs = draw_case(case, number)
        wanted = case.run_code(*inputs.values())
        assert_close(evaluate_loops(formula, inputs), wanted)
        assert_close(built.function(**inputs), wanted)
    assert built.judge().agrees
    assert build(formula, cells=False).judge().agrees


@pytest.mark.parametrize(
    "case",
    slow_except(SMOOTH, "backwards", "masked", "inverse asked for itself"),
    ids=lambda case: case.name,
)
def test_gradients_equal_those_of_code_by_hand(case: Case) -> None:
    inputs = draw_case(case, 0)
    real = {
        name: value.requires_grad_()
        for name, value in inputs.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }
    results = as_tuple(case.run_code(*inputs.values()))
    back = build(gradient(parse(case.text)))
    assert back.judge().agrees
    if case.entries.get("backward") != "no":
        assert build(case.text, backward=True).judge().agrees
    new = [entry.name for entry in back.system.inputs if entry.name not in inputs]
    torch.manual_seed(1)
    seeds = [torch.randn_like(each) if new else torch.ones_like(each) for each in results]
    wanted = torch.autograd.grad(results, [*real.values()], seeds)
    given = {k: v.detach() if k in real else v for k, v in inputs.items()}
    given |= dict(zip(new, seeds, strict=False))
    names = [entry.name for entry in (*back.system.inputs, *back.system.sizes)]
    assert_close(back.function(**{name: given[name] for name in names}), wanted)


CHECKED = [case for case in CASES if case.entries.get("checked") != "no"]


@pytest.mark.slow
@pytest.mark.parametrize("case", CHECKED, ids=lambda case: case.name)
def test_check_accepts_right_code_and_refuses_wrong_code(case: Case) -> None:
    """The generated file is checked too, unless the case has an entry `checked`."""
    source = f"import math\nimport torch\n\n\n{case.code}"
    assert check(source, case.text).same is case.is_right
    if case.is_right and "checked" not in case.entries:
        assert check(make(case.text).source, case.text).same
    if case.entries.get("checked") == "with gradient":
        assert check(source, case.text, backward=True).same
