"""Recipes: rules in order. `prepare` brings a system into the form from which a plan is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from derive.ir import nodes as ir
from derive.ir.walk import map_children
from derive.rewrite import guards, inline, naming
from derive.rewrite.rule import Rule, apply_rules, find_valid
from derive.rewrite.rules import deltas, matrices, products, softmax

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
    matrices.find_logdet,
    softmax.exponentiate_row,
    softmax.restrict_softmax,
    softmax.drop_largest,
    softmax.return_shift,
    deltas.split_delta,
    deltas.sift_index,
    deltas.sift_label,
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
    deltas.sift_index,
    deltas.sift_label,
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


OPEN = ("open_wide_sum", "a wide sum that is only contracted stands where it is contracted")
ROWS = ("open_row", "the parts of a softmax stand where it is, and not under names of their own")
GUARD = ("carry_guard", "a tensor that is read only where c holds is computed only where c holds")
SETTLE = ("settle_indices", "an index that is summed over may have another name")


def find_rules(system: ir.System) -> tuple[Rule, ...]:
    """The rules of the recipe that hold for the system's empty rows."""
    return find_valid(RULES, system.empty_row)


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a law: the whole new system, and which equation it changed."""

    name: str
    law: str
    system: ir.System
    equation: str
    before: ir.Expr
    after: ir.Expr


def prepare(system: ir.System, log: list[Use] | None = None) -> tuple[ir.System, tuple[str, ...]]:
    """The same system with every value rewritten by the rules, and the laws worth telling of.

    Every use of a law is added to the `log`: one site at a time, and all that are equal to it. The
    last one ends at exactly the system that is given back.
    """
    told: set[Rule] = set()
    logged = _Log(system, log)
    opened = replace(system, equations=inline.open_wide_sums(system.equations, system.results))
    logged.replace_each(*OPEN, opened)
    settled = replace(opened, equations=open_parts(opened))
    logged.replace_each(*ROWS, settled)
    nonfinite = guards.find_nonfinite(settled)
    rewrite = _make_rewriter(settled, nonfinite)
    equations = list(settled.equations)
    for number, each in enumerate(settled.equations):
        used: list[tuple[Rule, ir.Expr, ir.Expr]] = []
        equations[number] = ir.Equation(each.target, rewrite(each.value, used))
        told.update(rule for rule, _, _ in used)
        logged.rewrite(number, used, nonfinite)
    rewritten = replace(settled, equations=tuple(equations))
    guarded = guards.carry_guards(rewritten)
    logged.replace_each(*GUARD, guarded, backwards=True)
    last = naming.rename_clashes(guarded, system)
    logged.replace_each(*SETTLE, last)
    return last, tuple(f"{each.name}: {each.law}" for each in TOLD if each in told)


def find_uses(system: ir.System) -> tuple[Use, ...]:
    """Every use of a law on the way to `prepare(system)`."""
    log: list[Use] = []
    prepare(system, log)
    return tuple(log)


def open_parts(system: ir.System) -> tuple[ir.Equation, ...]:
    """The equations with the parts of each softmax put where they are read."""
    rewrite = _make_rewriter(system, guards.find_nonfinite(system))
    return inline.open_rows(system.equations, system.results, rewrite)


def _make_rewriter(
    system: ir.System, nonfinite: Mapping[ir.Tensor, ir.Tensor]
) -> Callable[..., ir.Expr]:
    """What the rules make of a value of this system; those that fitted are added to a list.

    The rules are told which tensors may hold more than finite numbers.
    """
    rules = find_rules(system)
    unmarked = {likeness: tensor for tensor, likeness in nonfinite.items()}

    def rewrite(value: ir.Expr, used: list[tuple[Rule, ir.Expr, ir.Expr]] | None = None) -> ir.Expr:
        flat = apply_rules(guards.mark_tensors(value, nonfinite), FLAT, used)
        return guards.mark_tensors(apply_rules(flat, rules, used), unmarked)

    return rewrite


class _Log:
    """The uses of laws, and the system that the last of them leads to."""

    def __init__(self, system: ir.System, uses: list[Use] | None) -> None:
        self.system = system
        self.uses = uses

    def _add(
        self, name: str, law: str, system: ir.System, change: tuple[str, ir.Expr, ir.Expr]
    ) -> None:
        assert self.uses is not None
        self.uses.append(Use(name, law, system, *change))
        self.system = system

    def rewrite(
        self,
        number: int,
        used: Sequence[tuple[Rule, ir.Expr, ir.Expr]],
        nonfinite: Mapping[ir.Tensor, ir.Tensor],
    ) -> None:
        """The uses of rules in one equation."""
        if self.uses is None:
            return
        unmarked = {likeness: tensor for tensor, likeness in nonfinite.items()}
        target, here = self.system.equations[number].target, self.system.equations[number].value
        value = guards.mark_tensors(here, nonfinite)
        for rule, site, new in used:
            exchanged = exchange(value, site, new)
            if exchanged is value:
                continue  # it stood in what another use has taken away
            value = exchanged
            before, here = here, guards.mark_tensors(value, unmarked)
            equations = list(self.system.equations)
            equations[number] = ir.Equation(target, here)
            changed = replace(self.system, equations=tuple(equations))
            self._add(rule.name, rule.law, changed, (target.tensor.name, before, here))

    def replace_each(
        self, name: str, law: str, goal: ir.System, *, backwards: bool = False
    ) -> None:
        """A use for each equation of the goal that is new; what it lacks goes with the last."""
        if self.uses is None:
            return
        values = {equation.target: equation.value for equation in goal.equations}
        equations = list(self.system.equations)
        changed = [e for e in equations if values.get(e.target, e.value) is not e.value]
        ordered = changed[::-1] if backwards else changed
        for each in ordered:
            after = values[each.target]
            equations[equations.index(each)] = ir.Equation(each.target, after)
            whole = replace(self.system, equations=tuple(equations))
            whole = goal if each is ordered[-1] else whole
            self._add(name, law, whole, (each.target.tensor.name, each.value, after))
        self.system = goal


def exchange(expr: ir.Expr, site: ir.Expr, new: ir.Expr) -> ir.Expr:
    """The expression with `new` wherever the site stands."""
    done: dict[ir.Expr, ir.Expr] = {site: new}

    def visit(here: ir.Expr) -> ir.Expr:
        if here not in done:
            done[here] = map_children(here, visit)
        return done[here]

    return visit(expr)
