"""Recipes: rules in order. `prepare` brings a system into the form from which a plan is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.ir.nodes import Equation, System
from derive.rewrite import rules_products, rules_softmax
from derive.rewrite.rule import Rule, apply_rules

if TYPE_CHECKING:
    from derive.ir.nodes import Expr

RULES: tuple[Rule, ...] = (
    rules_products.flatten_sum,
    rules_products.flatten_product,
    rules_softmax.merge_mask,
    rules_softmax.exponentiate_mask,
    rules_products.guard_product,
    rules_softmax.find_softmax,
    rules_softmax.find_masked_softmax,
    rules_softmax.find_logsumexp,
    rules_softmax.find_log_softmax,
    rules_softmax.restrict_softmax,
    rules_products.restrict_sum,
    rules_products.pull_sum_out,
    rules_products.merge_sums,
    rules_products.distribute_product,
    rules_products.count_unused,
)


def prepare(system: System) -> System:
    """The same system with every equation's value rewritten by the rules."""
    equations = tuple(Equation(e.target, prepare_value(e.value)) for e in system.equations)
    return System(
        system.name, system.inputs, system.sizes, equations, system.results, system.empty_row
    )


def prepare_value(value: Expr) -> Expr:
    """One expression rewritten by the rules."""
    return apply_rules(value, RULES)
