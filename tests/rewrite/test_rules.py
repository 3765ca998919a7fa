"""Each rule rewrites its example, leaves its refusal alone, and keeps values."""

import pytest
import torch
from built import as_tensors, read_unchecked, rename_indices, write
from hypothesis import given
from strategies import formulas

from derive import build
from derive.frontend.from_sympy import from_sympy
from derive.frontend.from_text import parse
from derive.ir.text import to_text
from derive.ir.walk import find_all_indices
from derive.judge.loops import evaluate_loops
from derive.judge.samples import choose_sizes, draw_inputs
from derive.rewrite.recipes import ACROSS, LOSSY, OPTIONS, RULES, find_rewritings, prepare
from derive.rewrite.rule import apply_rules

ALL = (*RULES, *ACROSS, *OPTIONS, *LOSSY)
each_rule = pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.name)


def list_parts(system):
    return [(equation.target, equation.value) for equation in system.equations]


def apply(system, rule):
    """The equations of a system after all that one rule can do."""
    if rule.across is None:
        return [(e.target, apply_rules(e.value, (rule,))) for e in system.equations]
    while found := next(iter(find_rewritings(system, (rule,))), None):
        system = found.system
    return list_parts(system)


def check_values(one, other):
    """Both texts have the same values at pairwise distinct sizes, and at a size 1."""
    system = read_unchecked(one)
    for seed, sizes in enumerate(choose_sizes(system, count=4)):
        inputs = draw_inputs(system, sizes, seed)
        expected, found = (as_tensors(evaluate_loops(parse(each), inputs)) for each in (one, other))
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_what_loses_digits_is_no_option():
    assert not any(rule.loses for rule in (*RULES, *ACROSS, *OPTIONS))
    assert all(rule.loses for rule in LOSSY)


@each_rule
def test_example_is_rewritten(rule):
    before, after = read_unchecked(rule.before), read_unchecked(rule.after)
    found = apply(before, rule)
    parts = list_parts(after)
    assert [to_text(target) for target, _ in found] == [to_text(target) for target, _ in parts]
    assert [to_text(value) for _, value in found] == [to_text(value) for _, value in parts]
    is_made = any(t.tensor.below is not None for t, _ in found)  # a text has no bounds of places
    assert is_made or found == parts
    assert found != list_parts(before), "nothing happened"
    assert apply(after, rule) == parts, "the rule fits its own result"


@each_rule
def test_refusal_is_left_alone(rule):
    system = read_unchecked(rule.refuses)
    assert apply(system, rule) == list_parts(system)


@each_rule
def test_both_sides_have_equal_values(rule):
    check_values(rule.before, rule.after)


@each_rule
def test_all_keep_their_values_under_the_recipe(rule):
    for text in (rule.before, rule.refuses):
        check_values(text, write(prepare(read_unchecked(text))[0]))


# Names that a fresh index must not have: of a tensor, size, scalar or index of another extent.
TAKEN = (
    "x, l[N]; y = sum[k](x[k]) * sum[k](l[k])",
    "x[N]; size l = 2; y[i] = sum[k](x[k] * l) * sum[k](x[k]) * x[i]",
    "x[N]; scalar l, m; y = sum[k](x[k]) * sum[k](l * x[k] * m)",
    "x[N]; v[M]; y = sum[k](x[k]) * sum[k](x[k]) + sum[l](v[l])",
    "x[N]; v[M]; y = sum[k](x[k] * max[l](x[k] * v[l])) * sum[k](x[k])",
    "x[N]; l[i] = 2 * x[i]; y = sum[k](l[k]) * sum[k](x[k])",
)


@pytest.mark.parametrize("text", TAKEN)
def test_fresh_indices_have_no_other_meaning(text):
    """After all rules each name has one meaning, and the text has the same values."""
    formula = parse(text)
    system = from_sympy(formula)
    prepared, _ = prepare(system)
    indices = find_all_indices(prepared)
    extents = {index.name: index.extent for index in indices}
    names = {entry.name for entry in (*system.inputs, *system.sizes)}
    names |= {equation.target.tensor.name for equation in system.equations}
    assert not names & set(extents)
    assert all(extents[index.name] is index.extent for index in indices)
    after = write(rename_indices(prepared))
    for seed, sizes in enumerate(choose_sizes(system, count=2)):
        inputs = draw_inputs(system, sizes, seed)
        expected = evaluate_loops(formula, inputs)
        torch.testing.assert_close(evaluate_loops(parse(after), inputs), expected)


@given(formulas(depth=4, equations=3))
def test_what_the_rules_leave_can_be_read_back(drawn):
    prepared = rename_indices(prepare(from_sympy(parse(drawn.text, empty_row=drawn.empty_row)))[0])
    again = from_sympy(parse(write(prepared), empty_row=drawn.empty_row))
    assert [e.target for e in again.equations] == [e.target for e in prepared.equations]


def test_a_table_of_offsets_is_as_long_as_sizes_say():
    """The guard of a strided read bounds the offset by a quotient with an index inside."""
    text = """
        A[H, W]; index i < H//2; index j < W//2; index k < 2; index l < 2
        y[i,j] = mean[k, l](A[2*i + k,2*j + l]); z[i,j] = relu(y[i,j])*y[i,j]
    """
    build(parse(text), backward=True).judge()
