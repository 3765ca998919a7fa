"""Gradients in the notation equal those of torch.autograd, for random upstream gradients."""

import pytest
import torch
from texts import Expressions, read_rows

from derive import build, evaluate_loops, gradient, parse
from derive.errors import DeriveError
from derive.formulas import find_families, find_formula
from derive.frontend.from_sympy import to_system
from derive.ir.nodes import Tensor
from derive.judge.evaluate import evaluate_system
from derive.judge.samples import choose_sizes, draw_inputs

ROWS = Expressions(__file__, "gradient_rows.txt")

CASES = dict(read_rows(__file__, "gradients.txt"))


def compare_with_autograd(formula):
    """Compare every gradient with autograd through the evaluated system, at two sets of sizes.

    An integer result has no gradient. An argument without a gradient in autograd is refused.
    """
    system = to_system(formula)
    names = [e.name for e in system.inputs if isinstance(e, Tensor) and e.kind == "real"]
    for seed, sizes in enumerate(choose_sizes(system, 2)):
        values = draw_inputs(system, sizes, seed)
        real = {n: v.requires_grad_() if n in names else v for n, v in values.items()}
        found = evaluate_system(system, real, sizes)
        results = [found[tensor.name] for tensor in system.results]
        torch.manual_seed(seed)
        upstream = [torch.randn(r.shape, dtype=torch.float64) for r in results]
        if len(results) == 1 and not results[0].shape:
            upstream = [torch.ones_like(results[0])]
        pairs = zip(results, upstream, strict=True)
        smooth, flows = zip(*(p for p in pairs if p[0].is_floating_point()), strict=True)
        found = torch.autograd.grad(smooth, [real[n] for n in names], flows, allow_unused=True)
        wanted = {n: right for n, right in zip(names, found, strict=True) if right is not None}
        for name in (n for n in names if n not in wanted):
            with pytest.raises(DeriveError, match="gradient-none"):
                gradient(formula, name)
        made = to_system(gradient(formula, [*wanted]))
        given = {n: v.detach() if n in names else v for n, v in real.items()}
        new = [entry.name for entry in made.inputs if entry.name not in given]
        given |= dict(zip(new, flows, strict=False))
        found = evaluate_system(made, given, sizes)
        for tensor, right in zip(made.results, wanted.values(), strict=True):
            torch.testing.assert_close(
                found[tensor.name], right, rtol=1e-10, atol=1e-10, equal_nan=True
            )


@pytest.mark.parametrize("text", CASES.values(), ids=CASES.keys())
def test_the_gradients_are_those_of_autograd(text):
    compare_with_autograd(parse(text))


GUARDED = pytest.mark.parametrize(("text", "x"), ROWS["entries outside a guard have no gradient"])


def find_differences(formula, x):
    """The gradient of the sum of a result by central differences of the loops."""
    found = torch.zeros_like(x)
    for k in range(x.numel()):
        for step in (1e-6, -1e-6):
            moved = x.clone()
            moved.view(-1)[k] += step
            found.view(-1)[k] += evaluate_loops(formula, {"x": moved}).sum() / (2 * step)
    return found


@GUARDED
def test_entries_outside_a_guard_have_no_gradient(text, x):
    """Also if the excluded entries have an infinite slope."""
    formula, x = parse(text), torch.tensor(x, dtype=torch.float64)
    slope, flow = gradient(formula, "x"), torch.ones_like(evaluate_loops(formula, {"x": x}))
    given = {"x": x, **{entry.name: flow for entry in to_system(slope).inputs[1:]}}
    found = evaluate_loops(slope, given)
    torch.testing.assert_close(found, find_differences(formula, x), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@GUARDED
@pytest.mark.parametrize("backward", [False, True])
def test_entries_outside_a_guard_have_no_gradient_in_a_file(text, x, backward):
    formula, x = parse(text), torch.tensor(x, dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    (found,) = torch.autograd.grad(build(formula, backward=backward).function(leaf).sum(), leaf)
    torch.testing.assert_close(found, find_differences(formula, x), rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [*find_families()])
def test_the_gradients_of_the_library(name):
    compare_with_autograd(find_formula(name))


@pytest.mark.parametrize("case", ["a product", "moments", "a softmax under a mask", "a window"])
def test_gradients_have_gradients(case):
    compare_with_autograd(gradient(parse(CASES[case])))


@pytest.mark.parametrize(("text", "wrt", "code"), ROWS["a result without a gradient is refused"])
def test_a_result_without_a_gradient_is_refused(text, wrt, code):
    with pytest.raises(DeriveError, match=code):
        gradient(parse(text), wrt)
