"""Formulas with code by hand: tensors filled in parts, recurrences, functions of matrices.

by_hand.md holds formulas and under each the code, right or wrong, with what the file that is built
prints, what it lacks, whether there is a gradient, and how the code is checked (all but loops are).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from texts import read_sections

from derive import build, check, evaluate_loops, gradient, parse, show
from derive.judge.samples import choose_sizes, draw_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True)
class Case:
    """A formula, code, and whether it is the formula's."""

    name: str
    text: str
    code: str
    is_right: bool
    entries: Mapping[str, str]

    def run(self, *arguments: Any) -> Any:
        """What the code gives."""
        names: dict[str, Any] = {"torch": torch, "math": math}
        exec(compile(self.code, self.name, "exec"), names)
        return names["f"](*arguments)


def read_cases() -> Iterator[Case]:
    """The cases of by_hand.md."""
    formula = ""
    for section in read_sections(Path(__file__).with_name("by_hand.md")):
        if section.kind == "formula":
            formula = section.text
        else:
            kind, name = section.title.split(": ")
            yield Case(name, formula, section.text, kind == "right", section.entries)


CASES = list(read_cases())
RIGHT = [case for case in CASES if case.is_right]
SMOOTH = [case for case in RIGHT if "gradient" not in case.entries]

each_case = pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.name)
make = cache(build)


def draw(case: Case, number: int) -> dict[str, Any]:
    system = make(case.text).system
    found = draw_inputs(system, choose_sizes(system, 2)[number], seed=number + 3)
    return {k: v if isinstance(v, torch.Tensor) else float(v) for k, v in found.items()}


def as_tuple(found: Any) -> tuple[Any, ...]:
    return tuple(map(torch.as_tensor, found if isinstance(found, tuple) else (found,)))


def assert_close(one: Any, other: Any) -> None:
    for pair in zip(as_tuple(one), as_tuple(other), strict=True):
        torch.testing.assert_close(*pair, rtol=1e-7, atol=1e-7, check_dtype=False)


@pytest.mark.sampled(4)
@each_case
def test_it_is_shown_built_and_is_the_code_by_hand(case: Case) -> None:
    """By the loops, by the file with cells and without, and by hand: one value, and one text."""
    formula, built = parse(case.text), make(case.text)
    assert show(parse(show(formula))) == show(formula)
    assert case.entries.get("prints", "") in built.source
    assert "lacks" not in case.entries or case.entries["lacks"] not in built.source
    for number in (0, 1):
        inputs = draw(case, number)
        wanted = case.run(*inputs.values())
        assert_close(evaluate_loops(formula, inputs), wanted)
        assert_close(built.function(**inputs), wanted)
    assert built.judge().agrees
    assert build(formula, cells=False).judge().agrees


@pytest.mark.sampled(9)
@pytest.mark.parametrize("case", SMOOTH, ids=lambda case: case.name)
def test_its_gradient_is_that_of_the_code_by_hand(case: Case) -> None:
    inputs = draw(case, 0)
    real = {
        name: value.requires_grad_()
        for name, value in inputs.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }
    results = as_tuple(case.run(*inputs.values()))
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
def test_code_is_checked_against_it(case: Case) -> None:
    """So is the file that is built, or where that is said the code alone, or with its gradient."""
    source = f"import math\nimport torch\n\n\n{case.code}"
    assert check(source, case.text).same is case.is_right
    if case.is_right and "checked" not in case.entries:
        assert check(make(case.text).source, case.text).same
    if case.entries.get("checked") == "with gradient":
        assert check(source, case.text, backward=True).same
