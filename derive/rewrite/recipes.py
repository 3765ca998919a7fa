"""Recipes: rules in order. `prepare` brings a system into the form from which a plan is made."""

from __future__ import annotations

from dataclasses import replace

from derive.ir.nodes import Equation, System
from derive.rewrite import rules_deltas, rules_products, rules_softmax
from derive.rewrite.guards import carry_guards
from derive.rewrite.open_sums import open_wide_sums
from derive.rewrite.rule import Rule, apply_rules

RULES: tuple[Rule, ...] = (
    rules_products.flatten_sum,
    rules_products.flatten_product,
    rules_softmax.merge_mask,
    rules_softmax.exponentiate_mask,
    rules_products.guard_product,
    rules_products.contract_mean,
    rules_softmax.find_softmax,
    rules_softmax.find_masked_softmax,
    rules_softmax.find_logsumexp,
    rules_softmax.find_log_softmax,
    rules_softmax.restrict_softmax,
    rules_deltas.split_delta,
    rules_deltas.sift_letter,
    rules_products.restrict_sum,
    rules_products.pull_sum_out,
    rules_products.merge_sums,
    rules_products.distribute_product,
    rules_products.count_unused,
)


# First, so that a bracket is found beside all the factors that it guards.
FLAT = (rules_products.flatten_product,)

# What a person who reads the generated file wants to know of; the others only tidy up.
TOLD = (
    rules_products.distribute_product,
    rules_deltas.split_delta,
    rules_deltas.sift_letter,
    rules_softmax.find_softmax,
    rules_softmax.find_masked_softmax,
    rules_softmax.find_logsumexp,
    rules_softmax.find_log_softmax,
)


def prepare(system: System) -> tuple[System, tuple[str, ...]]:
    """The same system with every value rewritten by the rules, and the laws worth telling of."""
    used: list[Rule] = []
    equations = tuple(
        Equation(e.target, apply_rules(apply_rules(e.value, FLAT), RULES, used))
        for e in open_wide_sums(system.equations, system.results)
    )
    equations = carry_guards(equations, system.results)
    told = tuple(f"{each.name}: {each.law}" for each in TOLD if each in used)
    return replace(system, equations=equations), told
