"""The way of `recipes.prepare`: one use of a law after the other, with the systems between.

    find_uses(system)   every use of a rule in the order of the recipe; the last system is exactly
                        the one that `prepare` gives

Rules are used one site at a time: the first node, inner ones first, that a rule fits, and all that
are equal to it. What a node becomes depends on the node alone, so this ends where rewriting all at
once does. Were it to end elsewhere, there is one use for each equation that is different.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from derive.ir.nodes import Equation, System
from derive.ir.walk import find_children, map_children
from derive.rewrite.guards import carry_guards
from derive.rewrite.inline import open_wide_sums
from derive.rewrite.letters import settle_system
from derive.rewrite.recipes import FLAT, find_rules, open_parts, prepare
from derive.rewrite.tame import find_wild, mark_wild

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from derive.ir.nodes import Expr, Tensor
    from derive.rewrite.rule import Rule

OPEN = ("open_wide_sum", "a wide sum that is only contracted stands where it is contracted")
ROWS = ("open_row", "the parts of a softmax stand where it is, and not under names of their own")
GUARD = ("carry_guard", "a tensor that is read only where c holds is computed only where c holds")
SETTLE = ("settle_letters", "a letter that is summed over may have another name")
WHOLE = ("prepare", "the rules of the recipe")


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a law: the whole new system, and which equation it changed."""

    name: str
    law: str
    system: System
    equation: str
    before: Expr
    after: Expr


def find_uses(system: System) -> tuple[Use, ...]:
    """Every use of a law on the way to `prepare(system)`, which the last one ends at."""
    goal, _ = prepare(system)
    uses = tuple(_follow(system))
    reached = uses[-1].system if uses else system
    return uses if reached is goal else tuple(_compare(system, goal))


def _follow(system: System) -> Iterator[Use]:
    start = system
    for part in (_open_sums, _open_rows, _rewrite_all, _carry_guards):
        for use in part(system):
            system = use.system
            yield use
    yield from _replace_each(*SETTLE, system, settle_system(system, start))


def _open_sums(system: System) -> Iterator[Use]:
    """Each wide sum by itself: the others are held back as if they were results."""
    tensors = [equation.target.tensor for equation in system.equations]
    for tensor in tensors:
        others = [*system.results, *(each for each in tensors if each is not tensor)]
        opened = open_wide_sums(system.equations, others)
        if opened != system.equations:
            for use in _replace_each(*OPEN, system, replace(system, equations=opened)):
                system = use.system
                yield use


def _open_rows(system: System) -> Iterator[Use]:
    opened = replace(system, equations=open_parts(system))
    yield from _replace_each(*ROWS, system, opened)


def _rewrite_all(system: System) -> Iterator[Use]:
    wild = find_wild(system)
    for number in range(len(system.equations)):
        for rules in (FLAT, find_rules(system)):
            for use in _rewrite(system, number, rules, wild):
                system = use.system
                yield use


def _carry_guards(system: System) -> Iterator[Use]:
    yield from _replace_each(*GUARD, system, carry_guards(system), backwards=True)


def _rewrite(
    system: System, number: int, rules: Sequence[Rule], wild: Mapping[Tensor, Tensor]
) -> Iterator[Use]:
    """One equation until no rule fits any of its nodes."""
    equations = list(system.equations)
    tame = {likeness: tensor for tensor, likeness in wild.items()}
    target, before = equations[number].target, equations[number].value
    value = mark_wild(before, wild)
    settled: dict[Expr, None] = {}
    while (found := _find_first(value, rules, settled)) is not None:
        rule, site, new = found
        value = _exchange(value, site, new)
        after = mark_wild(value, tame)
        equations[number] = Equation(target, after)
        system = replace(system, equations=tuple(equations))
        yield Use(rule.name, rule.law, system, target.tensor.name, before, after)
        before = after


def _find_first(
    expr: Expr, rules: Sequence[Rule], settled: dict[Expr, None]
) -> tuple[Rule, Expr, Expr] | None:
    """The rule that fits first, the node it fits, and what that becomes; inner nodes first.

    `settled` are the nodes that nothing fits, neither them nor what is inside.
    """
    if expr in settled:
        return None
    for child in find_children(expr):
        if (found := _find_first(child, rules, settled)) is not None:
            return found
    for rule in rules:
        new = rule(expr)
        if new is not None and new is not expr:
            return rule, expr, new
    settled[expr] = None
    return None


def _exchange(expr: Expr, site: Expr, new: Expr) -> Expr:
    """The expression with `new` wherever the site stands."""
    done: dict[Expr, Expr] = {site: new}

    def visit(here: Expr) -> Expr:
        if here not in done:
            done[here] = map_children(here, visit)
        return done[here]

    return visit(expr)


def _compare(system: System, goal: System) -> Iterator[Use]:
    """One use for each equation that is different, whatever has happened to it."""
    yield from _replace_each(*WHOLE, system, goal)


def _replace_each(
    name: str, law: str, system: System, goal: System, *, backwards: bool = False
) -> Iterator[Use]:
    """The equations of the goal put in place one by one; what it lacks is dropped with the last."""
    values = {equation.target: equation.value for equation in goal.equations}
    changed = [e for e in system.equations if values.get(e.target, e.value) is not e.value]
    equations = list(system.equations)
    for equation in reversed(changed) if backwards else changed:
        after = values[equation.target]
        equations[equations.index(equation)] = Equation(equation.target, after)
        is_last = equation is changed[0 if backwards else -1]
        whole = goal if is_last else replace(system, equations=tuple(equations))
        yield Use(name, law, whole, equation.target.tensor.name, equation.value, after)
