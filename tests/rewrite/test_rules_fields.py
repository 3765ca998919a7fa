"""Both sides of every rule mean the same, exactly, over random fields; a wrong sibling does not.

Each side is judged twice: by the plain evaluation of its own text, which knows no rules, and by the
function that is emitted for it. Nothing is compared with a tolerance, but the runs at huge logits.
"""

import pytest
import torch
from texts import read_tables

from derive.checker.runs import RunOptions, prepare
from derive.checker.samples import Sample
from derive.compiler import build
from derive.errors import DeriveError
from derive.frontend.from_sympy import from_sympy
from derive.frontend.from_text import parse
from derive.ir.text import to_lines
from derive.judge.compare import draw_over, evaluate_over, use_tower
from derive.judge.fields import find_differences
from derive.judge.loops import evaluate_loops
from derive.judge.samples import choose_sizes, draw_inputs
from derive.rewrite.recipes import ACROSS, LOSSY, OPTIONS, RULES, find_rewritings

RULE = {rule.name: rule for rule in (*RULES, *ACROSS, *OPTIONS, *LOSSY)}

TEXTS = read_tables(__file__, "rules.txt")
WRONG, MORE = dict(TEXTS["wrong"]), TEXTS["further"]

# Largest entries are chosen over a field by a random order, which no shift and no scale keeps.
# Nor is a clamp at zero: a field knows no sign.
BY_ORDER = (*("hoist_rising", "read_near", "expand_square", "find_logdet"),)


each_field_rule = pytest.mark.parametrize("name", [n for n in RULE if n not in BY_ORDER])


def test_every_rule_has_a_wrong_sibling():
    assert set(WRONG) == set(RULE)
    assert len(RULE) == len((*RULES, *ACROSS, *OPTIONS, *LOSSY))


def find_draws(text):
    """Pairwise distinct sizes, small, one draw with a size 1."""
    system = from_sympy(parse(text))
    return [Sample(system, sizes, seed) for seed, sizes in enumerate(choose_sizes(system, count=3))]


def find_meanings(text):
    """The two ways to the value of a text over a tower: evaluated, and by the emitted function.

    The first alone where a place is read that has a meaning but no code yet, as E[tok[l],d].
    """
    formula = parse(text)
    system = from_sympy(formula)

    def evaluate(tower, draw, values):
        found = evaluate_over(tower, draw.system, values, draw.sizes)
        return [found[result.name] for result in system.results]

    ways = [evaluate]
    try:
        function = build(formula, exact=True).function
    except DeriveError as refusal:
        assert refusal.diagnostic.code == "not-yet"
    else:
        ways.append(lambda tower, draw, values: list_results(function(**values)))
    return system, ways


def list_results(found):
    return [*found] if isinstance(found, tuple) else [found]


def are_equal(one, other):
    """Do all ways to both texts give the same, in every entry, at all sizes?"""
    meanings = [find_meanings(text) for text in (one, other)]
    return all(is_equal_at(meanings, draw) for draw in find_draws(one))


def is_equal_at(meanings, draw):
    """Whether all ways agree at the sizes of one draw; nested exponentials need deeper towers."""
    return use_tower(draw.seed, lambda tower, *_: is_equal_over(tower, meanings, draw))


def is_equal_over(tower, meanings, draw):
    with prepare(RunOptions()):
        values = draw_over(tower, draw.system, draw.make_inputs(), draw.seed)
        found = [
            way(tower, Sample(system, draw.sizes, draw.seed), values)
            for system, ways in meanings
            for way in ways
        ]
        first, *others = found
        return all(
            one.shape == another.shape and not bool(find_differences(one, another).any())
            for other in others
            for one, another in zip(first, other, strict=True)
        )


@pytest.mark.sampled(3)
@each_field_rule
def test_both_sides_are_the_same_over_fields(name):
    assert are_equal(RULE[name].before, RULE[name].after)


@pytest.mark.sampled(3)
@each_field_rule
def test_a_wrong_sibling_is_not(name):
    assert not are_equal(RULE[name].before, WRONG[name])


def draw_eighths(text, sizes, seed):
    """Small multiples of 1/8 for every tensor."""
    inputs = draw_inputs(from_sympy(parse(text)), sizes, seed)
    return {
        name: (value * 8).round() / 8 if isinstance(value, torch.Tensor) else value
        for name, value in inputs.items()
    }


def are_equal_in_loops(one, other):
    """Do the loops give the same of both, to fourteen digits?"""
    for seed, sizes in enumerate(choose_sizes(from_sympy(parse(one)), count=3)):
        values = draw_eighths(one, sizes, seed)
        found, same = (evaluate_loops(parse(text), values) for text in (one, other))
        if not torch.allclose(found, same, rtol=1e-14, atol=1e-14):
            return False
    return True


MAX = "f[M, N]; a[M]; y[i] = "
ORDERED = {
    "expand_square": [
        (RULE["expand_square"].before, RULE["expand_square"].after, WRONG["expand_square"])
    ],
    "hoist_rising": [
        (MAX + "max[j](relu(f[i,j]))", MAX + "relu(max[j](f[i,j]))", MAX + "max[j](f[i,j])"),
        (
            MAX + "min[j](max(a[i], f[i,j]))",
            MAX + "max(min[j](f[i,j]), a[i])",
            MAX + "max(max[j](f[i,j]), a[i])",
        ),
    ],
    "hoist_term": [
        (MAX + f"{kind}[j](f[i,j] + a[i])", MAX + f"a[i] + {kind}[j](f[i,j])", MAX + f"{wrong}")
        for kind, wrong in (
            ("max", "max[j](f[i,j])"),
            ("min", "a[i] + max[j](f[i,j])"),
            ("mean", "a[i] + sum[j](f[i,j])"),
        )
    ],
}


@pytest.mark.parametrize("name", ORDERED)
def test_both_sides_are_the_same_in_exact_fractions(name):
    """Rules that depend on an order are checked by the loops, in fractions."""
    for one, other, wrong in ORDERED[name]:
        assert are_equal_in_loops(one, other)
        assert not are_equal_in_loops(one, wrong)


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("name", "text"), MORE)
def test_further_forms_are_the_same_over_fields(name, text):
    found = list(find_rewritings(from_sympy(parse(text)), (RULE[name],)))
    assert found
    for rewriting in found:
        after = "\n".join(to_lines(rewriting.system))
        assert (are_equal_in_loops if name in BY_ORDER else are_equal)(text, after)
