"""Modules of torch and transformers compute our formulas of them, and no wrong formula."""

import pytest
import torch
from judged import read_binds
from real_modules import Real, call, load_reals

from derive.checker import Verdict, check
from derive.checker.judge import judge_fields
from derive.checker.load import load
from derive.checker.pick import pick_program
from derive.frontend.from_sympy import from_sympy
from derive.frontend.from_text import parse
from derive.judge.loops import evaluate_loops
from derive.judge.samples import draw_inputs

REALS = load_reals()
MISTAKES = [
    pytest.param(real, mistake, id=f"{real}: {mistake[1]}")
    for real in REALS
    for mistake in real.mistakes
]
FIRST = [pytest.param(real, real.mistakes[0], id=str(real)) for real in REALS[::6]]  # long each

# Modules that are identical to their formula for any function in place of erf.
WITH_ERF = {"BertLayer under the model's mask of padded keys"}

# Modules with a branch for half precision: float64 alone does not show all they compute.
WITH_BRANCH = {"T5LayerNorm"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.processes,  # libraries change the process that runs them
    # An attention over masked rows warns of a prototype; the warning is not about its values.
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning"),
]


def compare(real: Real, text: str) -> float:
    """Return the largest relative difference between the module and the loops over a formula."""
    formula = parse(text, "real", empty_row=real.empty_row)
    values = draw_inputs(from_sympy(formula), real.sizes, seed=1)
    expected = evaluate_loops(formula, values)
    expected = expected if isinstance(expected, tuple) else (expected,)
    found = call(real.make(), real.bind, {**real.sizes, **values})
    assert len(found) >= len(expected)
    worst = 0.0
    for one, other in zip(found, expected, strict=False):
        assert one.shape == other.shape
        assert torch.isfinite(one).all()
        off = (one - other).abs().nan_to_num(nan=torch.inf)  # a wrong formula may give nan
        worst = max(worst, float(off.max() / one.abs().max()))
    return worst


def judge(real: Real, text: str) -> Verdict:
    """Return the verdict of `check` on the module and a formula."""
    formula = parse(text, "real", empty_row=real.empty_row)
    return check(real.make(), formula, bind=real.bind, sizes=real.fixed)


@pytest.mark.parametrize("real", REALS, ids=str)
def test_the_module_computes_the_loops_of_its_formula(real):
    assert compare(real, real.text) < (1e-5 if real.single else 1e-12)


@pytest.mark.parametrize(("real", "mistake"), MISTAKES)
def test_the_loops_and_fields_of_a_wrong_formula_differ(real, mistake):
    assert compare(real, real.plant(mistake)) > 1e-4
    formula = parse(real.plant(mistake), "real", empty_row=real.empty_row)
    system = from_sympy(formula)
    bind = dict(read_binds(real.bind))
    choice = pick_program(load(real.make(), "real"), system, bind, real.fixed)
    assert judge_fields(choice.program, choice.samples).same is not True


@pytest.mark.parametrize("real", REALS, ids=str)
def test_the_module_is_identical_to_its_formula_or_proved(real):
    verdict = judge(real, real.text)
    assert verdict.same is True, str(verdict)
    if real.name in WITH_BRANCH:
        assert verdict.grade == "agrees"
        assert "type-branch" in {finding.code for finding in verdict.findings}
        return
    if real.single and verdict.grade == "agrees":  # float64 arguments lose digits there
        assert "lower-precision" in {finding.code for finding in verdict.findings}
        return
    assert verdict.grade in {"proved", "identical"}, str(verdict)
    if verdict.grade == "identical":
        rests = ("whatever erf may be",) if real.name in WITH_ERF else ()
        assert verdict.reasons[: len(rests)] == rests
        rest = verdict.reasons[len(rests) :]  # sizes that were too large to try
        assert all(reason.startswith("not tried beyond") for reason in rest)


@pytest.mark.parametrize(("real", "mistake"), FIRST)
def test_the_module_is_different_from_a_wrong_formula(real, mistake):
    verdict = judge(real, real.plant(mistake))
    assert verdict.same is False, str(verdict)
    assert verdict.grade == "different"
