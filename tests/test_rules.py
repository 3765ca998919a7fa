"""Each rule does what its example says, leaves alone what it must, and keeps values."""

import pytest
import torch

from derive.frontend.from_sympy import from_sympy
from derive.frontend.from_text import parse
from derive.ir.nodes import Tensor
from derive.ir.text import to_lines, to_text
from derive.rewrite.recipes import RULES, prepare
from derive.rewrite.rule import apply_rules
from derive.verify.loops import evaluate_loops

SIZES = (dict(M=3, N=4, D=2), dict(M=4, N=2, D=3), dict(M=2, N=1, D=4), dict(M=1, N=3, D=1))


def read(text):
    """The system of an example; its comment is for the reader."""
    return from_sympy(parse(text))


def rewrite(system, rules):
    """The values of a system's equations, rewritten by these rules alone."""
    return [apply_rules(equation.value, rules) for equation in system.equations]


def show(values):
    return [to_text(value) for value in values]


def draw_inputs(system, sizes, seed):
    """Random tensors for the inputs; the examples' extents are plain sizes."""
    generator = torch.Generator().manual_seed(seed)
    inputs = {}
    for tensor in system.inputs:
        assert isinstance(tensor, Tensor), "the examples have no scalars"
        shape = [sizes[extent.name] for extent in tensor.shape]
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        inputs[tensor.name] = values > 0 if tensor.kind == "bool" else values
    return inputs


def check_values(one, other, system):
    """Both texts have the same values at several sizes."""
    for seed, sizes in enumerate(SIZES):
        inputs = draw_inputs(system, sizes, seed)
        expected = evaluate_loops(parse(one), inputs)
        value = evaluate_loops(parse(other), inputs)
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_rules_have_names_of_their_own():
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)


each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


@each_rule
def test_example_is_rewritten(rule):
    before, after = read(rule.before), read(rule.after)
    rewritten = rewrite(before, (rule,))
    wanted = [equation.value for equation in after.equations]
    assert show(rewritten) == show(wanted)
    assert all(one is other for one, other in zip(rewritten, wanted, strict=True))
    assert rewritten != [equation.value for equation in before.equations], "nothing happened"


@each_rule
def test_example_is_settled_after_once(rule):
    once = rewrite(read(rule.before), (rule,))
    twice = [apply_rules(value, (rule,)) for value in once]
    assert show(twice) == show(once)


@each_rule
def test_refusal_is_left_alone(rule):
    system = read(rule.refuses)
    values = [equation.value for equation in system.equations]
    assert show(rewrite(system, (rule,))) == show(values)


@each_rule
def test_both_sides_have_equal_values(rule):
    check_values(rule.before, rule.after, read(rule.before))


@each_rule
def test_refusal_keeps_its_values_under_all_rules(rule):
    system = read(rule.refuses)
    prepared, _ = prepare(system)
    check_values(rule.refuses, "\n".join(to_lines(prepared)), system)


@each_rule
def test_example_keeps_its_values_under_all_rules(rule):
    system = read(rule.before)
    prepared, _ = prepare(system)
    check_values(rule.before, "\n".join(to_lines(prepared)), system)
