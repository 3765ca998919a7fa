"""A rule: equal in, equal out, with its law, an example that fits, and one that must be refused.

    @rule(
        law="x + where(c, 0, -oo) = where(c, x, -oo)",
        before="...", after="...",          # the same formula before and after, in the notation
        refuses="...",                      # a formula that looks alike and must be left alone
    )
    def merge_mask(expr: Expr) -> Expr | None: ...

A rule looks at one node and returns None where it does not fit. The examples are run by one
parametrised test, which also compares both sides' values on random tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from derive.ir.walk import rewrite_bottom_up

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from derive.ir.nodes import Expr


@dataclass(frozen=True, slots=True)
class Rule:
    """One law of the algebra and the function that applies it to a node."""

    name: str
    law: str
    before: str
    after: str
    refuses: str
    act: Callable[[Expr], Expr | None]

    def __call__(self, expr: Expr) -> Expr | None:
        """The node rewritten, or None where the rule does not fit."""
        return self.act(expr)


def rule(
    *, law: str, before: str, after: str, refuses: str
) -> Callable[[Callable[[Expr], Expr | None]], Rule]:
    """A function on one node as a Rule, with its law and its examples."""

    def wrap(act: Callable[[Expr], Expr | None]) -> Rule:
        return Rule(act.__name__, law, before, after, refuses, act)

    return wrap


def apply_rules(expr: Expr, rules: Sequence[Rule], used: list[Rule] | None = None) -> Expr:
    """The rules tried in order at every node, inner nodes first, until none fits.

    Rules that fitted are added to `used`, in the order of their use.
    """

    def settle(here: Expr) -> Expr:
        for each in rules:
            new = each(here)
            if new is not None and new is not here:
                if used is not None:
                    used.append(each)
                return rewrite_bottom_up(new, settle)
        return here

    return rewrite_bottom_up(expr, settle)
