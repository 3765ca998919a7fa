"""Each rule does what its example says, leaves alone what it must, and keeps values."""

import pytest
import torch
from derivations import settle
from hypothesis import given
from strategies import formulas

from derive.frontend.from_sympy import from_sympy
from derive.frontend.from_text import parse
from derive.ir.nodes import Index, Reduce, Tensor
from derive.ir.text import to_lines, to_text
from derive.ir.walk import walk
from derive.judge.loops import evaluate_loops
from derive.judge.samples import choose_sizes
from derive.judge.samples import draw_inputs as draw_samples
from derive.rewrite.recipes import RULES, prepare
from derive.rewrite.rule import apply_rules

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
        if tensor.kind == "int":
            values = torch.randint(-2, 5, shape, generator=generator)
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


# What a fresh index must not be: a tensor, a size, a scalar, an index of another extent or scope.
TAKEN = (
    "x, l[N]; y = sum[k](x[k]) * sum[k](l[k])",
    "x[N]; size l = 2; y[i] = sum[k](x[k] * l) * sum[k](x[k]) * x[i]",
    "x[N]; scalar l, m; y = sum[k](x[k]) * sum[k](l * x[k] * m)",
    "x[N]; v[M]; y = sum[k](x[k]) * sum[k](x[k]) + sum[l](v[l])",
    "x[N]; v[M]; y = sum[k](x[k] * max[l](x[k] * v[l])) * sum[k](x[k])",
    "x[N]; l[i] = 2 * x[i]; y = sum[k](l[k]) * sum[k](x[k])",
)


def find_indices(system):
    """Every index of the system with its extents, those on the left and those bound inside."""
    indices = {}
    for equation in system.equations:
        parts = [part for value in (equation.target, equation.value) for part in walk(value)]
        found = [part for part in parts if isinstance(part, Index)]
        found += [i for part in parts if isinstance(part, Reduce) for i in part.bound]
        for index in found:
            indices.setdefault(index.name, set()).add(index.extent)
    return indices


@pytest.mark.parametrize("text", TAKEN)
def test_fresh_indices_have_no_other_meaning(text):
    """What the rules leave has one meaning for each name, can be read, and has the same values."""
    formula = parse(text)
    system = from_sympy(formula)
    prepared, _ = prepare(system)
    indices = find_indices(prepared)
    names = {entry.name for entry in (*system.inputs, *system.sizes)}
    names |= {equation.target.tensor.name for equation in system.equations}
    assert not names & set(indices)
    assert all(len(extents) == 1 for extents in indices.values())
    after = "\n".join(to_lines(settle(prepared)))
    for seed, sizes in enumerate(choose_sizes(system, count=2)):
        inputs = draw_samples(system, sizes, seed)
        expected = evaluate_loops(formula, inputs)
        torch.testing.assert_close(evaluate_loops(parse(after), inputs), expected)


def test_fresh_indices_of_two_equations_have_one_extent():
    text = "x[N]; v[M]; y = sum[j](x[j]) * sum[j](x[j]); z = sum[J](v[J]) * sum[J](v[J])"
    prepared, _ = prepare(read(text))
    extents = {}
    for equation in prepared.equations:
        for index in equation.value.bound:
            assert extents.setdefault(index.name, index.extent) is index.extent
    assert list(extents) == ["j", "k", "J", "l"]


@given(formulas(depth=4, equations=3))
def test_what_the_rules_leave_can_be_read_back(drawn):
    prepared = settle(prepare(from_sympy(parse(drawn.text, empty_row=drawn.empty_row)))[0])
    again = from_sympy(parse("\n".join(to_lines(prepared)), empty_row=drawn.empty_row))
    assert [e.target for e in again.equations] == [e.target for e in prepared.equations]
