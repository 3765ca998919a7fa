"""A rule: equal in, equal out, with its law, an example that fits, and one that must be refused.

    @rule(
        law="x + where(c, 0, -oo) = where(c, x, -oo)",
        before="...", after="...",          # the same formula before and after, in the notation
        refuses="...",                      # a formula that looks alike and must be left alone
    )
    def merge_mask(expr: Expr) -> Expr | None: ...

A rule looks at one node and returns None where it does not fit. The examples are run by one
parametrised test, which also compares both sides' values on random tensors.

A law that spans equations is a rule too, with `@system_rule` on a function of a system: it gives
each system that applying the law once can lead to. At a single node it never fits.

Laws hold for real numbers. A rule whose right side rounds worse than its left side says in `loses`
what is lost: no more than the rounding of what it adds up. It is used where nothing magnifies that,
see `recipes`, and not where `exact` is asked for. With `keeps_sign` no rounding makes a value
negative that is not.

A rule with `nan_rows` takes a softmax row of nothing for 0/0, which is nan; it is not used in a
formula that asks for zeros there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from derive.ir import nodes as ir
from derive.ir.walk import rewrite_bottom_up


@dataclass(frozen=True, slots=True)
class Rule:
    """One law of the algebra and the function that applies it to a node."""

    name: str
    act: Callable[[ir.Expr], ir.Expr | None]
    law: str
    before: str
    after: str
    refuses: str
    loses: str = ""  # what is rounded worse than before; nothing where it is empty
    across: Callable[[ir.System], Iterator[ir.System]] | None = None  # a law that spans equations
    nan_rows: bool = False  # it holds where an empty row of a softmax is nan, not where it is zeros
    cancels: bool = False  # it takes a difference apart: not where its sign is of matter
    keeps_sign: bool = False  # what is >= 0 for sure stays so, however it is rounded

    def __call__(self, expr: ir.Expr) -> ir.Expr | None:
        """The node rewritten, or None where the rule does not fit."""
        return self.act(expr)


def rule(**told: Any) -> Callable[[Callable[[ir.Expr], ir.Expr | None]], Rule]:
    """A function on one node as a Rule, with its law, its examples and what else is told of it."""
    return lambda act: Rule(act.__name__, act, **told)


def system_rule(**told: Any) -> Callable[[Callable[[ir.System], Iterator[ir.System]]], Rule]:
    """A function on a system as a Rule."""
    return lambda across: Rule(across.__name__, lambda _: None, across=across, **told)


def find_valid(rules: Sequence[Rule], empty_row: str) -> tuple[Rule, ...]:
    """Those that hold in a formula with this mode for empty rows."""
    return tuple(each for each in rules if empty_row == "nan" or not each.nan_rows)


def apply_rules(
    expr: ir.Expr, rules: Sequence[Rule], used: list[tuple[Rule, ir.Expr, ir.Expr]] | None = None
) -> ir.Expr:
    """The rules tried in order at every node, inner nodes first, until none fits.

    Each rule that fitted is added to `used`, with the node before and after.
    """

    def settle(here: ir.Expr) -> ir.Expr:
        for each in rules:
            new = each(here)
            if new is not None and new is not here:
                if used is not None:
                    used.append((each, here, new))
                return rewrite_bottom_up(new, settle)
        return here

    return rewrite_bottom_up(expr, settle)
