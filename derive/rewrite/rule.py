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
negative that is not; with `keeps_digits` a value that is neither too large nor too small rounds as
before.

A rule with `nan_rows` takes a normalized row of nothing for 0/0, which is nan; it is not used in a
formula that asks for zeros there.

A rule looks at one node, and knows of no names but those in it. What it leaves is settled at the
end, when all names are known, those of tensors, sizes and scalars, and indices of other extents:
none is called like a name, or bound inside its own scope.

    sum_k x_k * sum_k l_k   becomes   sum_{k,m} x_k * l_m:  l is a tensor, and m the next index

An index of the user's that a rule drew into its own scope means what it did before; it gets another
name only where somebody is to read the text.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from derive.ir import nodes as ir
from derive.ir.polynomial import is_same_extent
from derive.ir.walk import (
    find_accesses,
    find_entry_names,
    find_free,
    find_indices,
    map_children,
    rename_apart,
    rewrite_bottom_up,
    substitute,
)


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
    nan_rows: bool = False  # it holds where an empty row is nan, not where it is zeros
    keeps_sign: bool = False  # what is >= 0 for sure stays so, however it is rounded
    keeps_digits: bool = False  # what it loses is the range of numbers alone

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


def find_value(factor: ir.Expr, equation: ir.Equation) -> ir.Expr | None:
    """The value that a read at indices alone has."""
    target = equation.target
    if not isinstance(factor, ir.Access) or factor.tensor is not target.tensor:
        return None
    new: dict[ir.Expr, ir.Expr] = {}
    for index, place in zip(target.places, factor.places, strict=True):
        if not isinstance(place, ir.Index) or not isinstance(index, ir.Index):
            return None
        if not is_same_extent(place.extent, index.extent):
            return None
        new[index] = place
    try:
        return substitute(equation.value, new)
    except ValueError:  # a diagonal of a row has no index for it
        return None


def put_value(value: ir.Expr, equation: ir.Equation) -> ir.Expr:
    """The value with the equation's in place of each read at indices."""
    return rewrite_bottom_up(value, lambda here: find_value(here, equation) or here)


def drop_unread(
    equations: Sequence[ir.Equation], results: Collection[ir.Tensor]
) -> tuple[ir.Equation, ...]:
    """The equations that the results need."""
    needed, kept = {*results}, list[ir.Equation]()
    for equation in reversed(equations):
        if equation.target.tensor in needed:
            needed |= {access.tensor for access in find_accesses(equation.value)}
            kept.insert(0, equation)
    return tuple(kept)


def rename_all(
    indices: Iterable[ir.Index], taken: set[str], letter: str = ""
) -> dict[ir.Expr, ir.Index]:
    """A free index for each of several, from `letter` on; their names are taken from now on."""
    new: dict[ir.Expr, ir.Index] = {}
    for index in indices:
        new[index] = rename_apart(ir.Index(letter or index.name, index.extent), taken)
        taken.add(new[index].name)
    return new


def rename_clashes(system: ir.System, start: ir.System) -> ir.System:
    """The system with no index called like something else in `start`, which it was made from."""
    indices = IndexNames(start)
    equations = []
    for equation in system.equations:
        settled = ir.Equation(equation.target, indices.tell_apart(equation.value))
        indices.meet(settled)
        equations.append(settled)
    return replace(system, equations=tuple(equations))


def settle_indices(equation: ir.Equation, system: ir.System) -> ir.Expr:
    """The value of an equation of a system, with no index called like something else in scope."""
    return IndexNames(system).settle(equation.value, equation)


class IndexNames:
    """The names of a system: what an index that a rule made must not be called."""

    def __init__(self, system: ir.System) -> None:
        self._names = find_entry_names(system)
        self._extents: dict[str, ir.Expr] = {}
        self._new: dict[str, ir.Expr] = {}  # of indices that got a name here: one each, wherever
        for equation in system.equations:
            self.meet(equation)

    def meet(self, equation: ir.Equation) -> None:
        """Take note of the indices of an equation: each keeps its extent from now on."""
        for part in (*equation.target.places, equation.value):
            for index in find_indices(part):
                self._extents.setdefault(index.name, index.extent)

    def settle(self, value: ir.Expr, equation: ir.Equation) -> ir.Expr:
        """The value with no index bound inside its own scope, or called like something else."""
        scope = dict.fromkeys(i.name for i in find_free(equation.target))
        return self._settle(value, scope)

    def tell_apart(self, value: ir.Expr) -> ir.Expr:
        """The value with no index called like something else; one may be bound in its scope."""
        return self._settle(value, None)

    def _settle(self, expr: ir.Expr, scope: Mapping[str, None] | None) -> ir.Expr:
        if not isinstance(expr, ir.Reduce):
            return map_children(expr, lambda part: self._settle(part, scope))
        inner = dict(scope or {})
        new: dict[ir.Expr, ir.Expr] = {}
        for index in expr.bound:
            kept = index
            if index.name in inner or not self._is_free(index):
                inside = {i.name for i in find_indices(expr)}
                inside |= {n for n, e in self._new.items() if not is_same_extent(e, index.extent)}
                kept = rename_apart(index, {*inner, *self._names, *self._extents, *inside})
                self._new.setdefault(kept.name, kept.extent)
                new[index] = kept
            inner[kept.name] = None
        bound_now = tuple(new.get(i, i) for i in expr.bound)
        parts = (substitute(part, new) for part in (expr.condition, expr.body))
        around = None if scope is None else inner
        condition, body = (self._settle(part, around) for part in parts)
        return ir.Reduce(expr.kind, bound_now, condition, body)  # type: ignore[arg-type]

    def _is_free(self, index: ir.Index) -> bool:
        """Does the name stand for nothing else in the system?"""
        known = self._extents.get(index.name)
        told = known is None or is_same_extent(known, index.extent)
        return told and index.name not in self._names
