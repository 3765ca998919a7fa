"""Recipes: rules in order. `prepare` brings a system into the form from which a plan is made."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from derive.ir.nodes import Equation, System
from derive.rewrite.guards import carry_guards
from derive.rewrite.inline import open_rows, open_wide_sums
from derive.rewrite.letters import settle_system
from derive.rewrite.rule import Rule, apply_rules, find_valid
from derive.rewrite.rules import deltas, products, softmax
from derive.rewrite.tame import find_wild, mark_wild

if TYPE_CHECKING:
    from collections.abc import Callable

    from derive.ir.nodes import Expr

RULES: tuple[Rule, ...] = (
    products.flatten_sum,
    products.flatten_product,
    softmax.merge_mask,
    softmax.exponentiate_mask,
    products.guard_product,
    products.contract_mean,
    softmax.find_softmax,
    softmax.find_full_softmax,
    softmax.find_masked_softmax,
    softmax.find_weighted_softmax,
    softmax.find_logsumexp,
    softmax.find_log_softmax,
    softmax.exponentiate_row,
    softmax.restrict_softmax,
    softmax.drop_largest,
    softmax.return_shift,
    deltas.split_delta,
    deltas.sift_letter,
    products.restrict_sum,
    products.pull_sum_out,
    products.merge_sums,
    products.distribute_product,
    products.count_unused,
)


# First, so that a bracket is found beside all the factors that it guards.
FLAT = (products.flatten_product,)

# What a person who reads the generated file wants to know of; the others only tidy up.
TOLD = (
    products.distribute_product,
    deltas.split_delta,
    deltas.sift_letter,
    softmax.find_softmax,
    softmax.find_full_softmax,
    softmax.find_masked_softmax,
    softmax.find_weighted_softmax,
    softmax.find_logsumexp,
    softmax.find_log_softmax,
    softmax.exponentiate_row,
    softmax.drop_largest,
    softmax.return_shift,
)


def find_rules(system: System) -> tuple[Rule, ...]:
    """The rules of the recipe that hold for the system's empty rows."""
    return find_valid(RULES, system.empty_row)


def prepare(system: System) -> tuple[System, tuple[str, ...]]:
    """The same system with every value rewritten by the rules, and the laws worth telling of."""
    used: list[Rule] = []
    opened = open_wide_sums(system.equations, system.results)
    opened = open_parts(replace(system, equations=opened))
    settle = make_settler(replace(system, equations=opened), used)
    equations = tuple(Equation(each.target, settle(each.value)) for each in opened)
    guarded = carry_guards(replace(system, equations=equations))
    settled = settle_system(guarded, system)
    told = tuple(f"{each.name}: {each.law}" for each in TOLD if each in used)
    return settled, told


def open_parts(system: System) -> tuple[Equation, ...]:
    """The equations with the parts of each softmax put where they are read."""
    return open_rows(system.equations, system.results, make_settler(system))


def make_settler(system: System, used: list[Rule] | None = None) -> Callable[[Expr], Expr]:
    """What the rules make of a value of this system; those that fitted are added to `used`.

    The rules are told which tensors may hold more than finite numbers.
    """
    rules, wild = find_rules(system), find_wild(system)
    tame = {likeness: tensor for tensor, likeness in wild.items()}

    def settle(value: Expr) -> Expr:
        flat = apply_rules(mark_wild(value, wild), FLAT)
        return mark_wild(apply_rules(flat, rules, used), tame)

    return settle
