"""Rules that a search may try, and every system that one of them leads to.

OPTIONS     lose nothing: a search may take them whenever they pay
LOSSY       round worse: only where speed is asked for before digits

Rules of `recipes` bring a system into one form and always apply; these here lead to other forms, of
which now one is better and now another.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from derive.ir.nodes import (
    Access,
    Along,
    Call,
    Compare,
    Equation,
    Expr,
    Index,
    Reduce,
    Size,
    System,
    Tensor,
    Where,
)
from derive.ir.polynomial import is_same_extent
from derive.ir.walk import find_children, find_free, map_children, rename_apart, substitute, walk
from derive.rewrite import (
    rules_chains,
    rules_deltas,
    rules_masks,
    rules_shifts,
    rules_squares,
    rules_sums,
)
from derive.rewrite.rule import Rule
from derive.rewrite.tame import find_wild, mark_wild

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

OPTIONS: tuple[Rule, ...] = (
    rules_sums.factor_sum,
    rules_sums.hoist_factor,
    rules_sums.hoist_term,
    rules_sums.hoist_scale,
    rules_shifts.drop_shift,
    rules_shifts.delay_division,
    rules_deltas.sift_delta,
    rules_masks.prefix_sum,
    rules_chains.accumulate_chain,
    rules_chains.distribute_chain,
    rules_chains.inline_equation,
    rules_chains.inline_row,
)

LOSSY: tuple[Rule, ...] = (
    rules_squares.expand_square,
    rules_masks.strict_prefix_sum,
    rules_masks.suffix_sum,
    rules_masks.split_diagonal,
    rules_masks.pair_sum,
)


@dataclass(frozen=True, slots=True)
class Rewriting:
    """One use of a rule: the whole new system, and which equation it changed."""

    rule: Rule
    system: System
    equation: str
    before: Expr
    after: Expr


def find_rewritings(system: System, rules: Sequence[Rule]) -> Iterator[Rewriting]:
    """Every system that one use of one rule leads to, each once: site by site, then rule by rule.

    Equal nodes of one equation are one site. Places and conditions are left as they are.
    """
    seen = {system: None}
    letters = _Letters(system)
    found = (*_find_in_equations(system, rules, letters), *_find_across(system, rules, letters))
    for rewriting in found:
        if rewriting.system not in seen:
            seen[rewriting.system] = None
            yield rewriting


def _find_in_equations(
    system: System, rules: Sequence[Rule], letters: _Letters
) -> Iterator[Rewriting]:
    wild = find_wild(system)
    tame = {likeness: tensor for tensor, likeness in wild.items()}
    for number, equation in enumerate(system.equations):
        value = mark_wild(equation.value, wild)
        for site in _walk_values(value):
            for rule in rules:
                new = rule(site)
                if new is None or new is site:
                    continue
                after = letters.settle(mark_wild(_exchange(value, site, new), tame), equation)
                if not _is_whole(after):
                    continue
                equations = list(system.equations)
                equations[number] = Equation(equation.target, after)
                changed = replace(system, equations=tuple(equations))
                yield _tell(rule, changed, equation, after)


def _find_across(system: System, rules: Sequence[Rule], letters: _Letters) -> Iterator[Rewriting]:
    values = {equation.target: equation for equation in system.equations}
    for rule in rules:
        for new in rule.across(system) if rule.across is not None else ():
            equations = tuple(
                each
                if values[each.target] is each
                else Equation(each.target, letters.settle(each.value, each))
                for each in new.equations
            )
            changed = next(each for each in equations if values[each.target] is not each)
            if _is_whole(changed.value):
                whole = replace(new, equations=equations)
                yield _tell(rule, whole, values[changed.target], changed.value)


def _is_whole(value: Expr) -> bool:
    """Does every index have a say in what is reduced over it? A sum counts where it has none."""
    return all(
        set(_find_bound(part)) <= {*find_free(part.body), *find_free(part.condition)}
        for part in walk(value)
        if isinstance(part, (Reduce, Along)) and part.kind not in {"sum", "prod", "logsumexp"}
    )


def _find_bound(part: Reduce | Along) -> tuple[Index, ...]:
    return part.bound if isinstance(part, Reduce) else (part.index,)


def _tell(rule: Rule, system: System, equation: Equation, after: Expr) -> Rewriting:
    return Rewriting(rule, system, equation.target.tensor.name, equation.value, after)


def _find_values(expr: Expr) -> tuple[Expr, ...]:
    """The parts of a node that are values: not its places and conditions."""
    match expr:
        case Access() | Compare() | Call("floordiv" | "mod"):
            return ()
        case Where(_, then, other):
            return (then, other)
        case Reduce(_, _, _, body) | Along(_, _, _, body):
            return (body,)
        case _:
            return find_children(expr)


def _walk_values(expr: Expr) -> Iterator[Expr]:
    """The nodes that are values, outermost first, each once."""
    seen: dict[Expr, None] = {}
    stack = [expr]
    while stack:
        here = stack.pop()
        if here not in seen:
            seen[here] = None
            yield here
            stack.extend(reversed(_find_values(here)))


def _exchange(expr: Expr, site: Expr, new: Expr) -> Expr:
    """The value with `new` wherever the site stands as a value."""
    done: dict[Expr, Expr] = {site: new}

    def visit(here: Expr) -> Expr:
        if here not in done:
            values = _find_values(here)
            done[here] = map_children(here, lambda part: visit(part) if part in values else part)
        return done[here]

    return visit(expr)


class _Letters:
    """The names of a system: what a letter that a rule made must not be called."""

    def __init__(self, system: System) -> None:
        inputs = (*system.inputs, *system.sizes)
        names = [entry.name for entry in inputs]
        names += [equation.target.tensor.name for equation in system.equations]
        shapes = [t.shape for t in inputs if isinstance(t, Tensor)]
        sizes = (part for shape in shapes for extent in shape for part in walk(extent))
        names += [part.name for part in sizes if isinstance(part, Size)]
        self._names = dict.fromkeys(names)
        self._extents: dict[str, Expr] = {}
        for equation in system.equations:
            for index in _find_indices((*equation.target.places, equation.value)):
                self._extents.setdefault(index.name, index.extent)

    def settle(self, value: Expr, equation: Equation) -> Expr:
        """The value with no letter bound inside its own scope, or called like something else."""
        scope = {i.name: None for place in equation.target.places for i in find_free(place)}
        return self._settle(value, scope)

    def _settle(self, expr: Expr, scope: Mapping[str, None]) -> Expr:
        if not isinstance(expr, Reduce):
            return map_children(expr, lambda part: self._settle(part, scope))
        inner = dict(scope)
        new: dict[Expr, Expr] = {}
        for index in expr.bound:
            kept = index
            if index.name in inner or not self._is_free(index):
                inside = {i.name for i in _find_indices((expr.condition, expr.body))}
                bound = {i.name for i in expr.bound}
                kept = rename_apart(index, {*inner, *self._names, *self._extents, *inside, *bound})
                new[index] = kept
            inner[kept.name] = None
        bound_now = tuple(new.get(i, i) for i in expr.bound)
        parts = (substitute(part, new) for part in (expr.condition, expr.body))
        condition, body = (self._settle(part, inner) for part in parts)
        return Reduce(expr.kind, bound_now, condition, body)  # type: ignore[arg-type]

    def _is_free(self, index: Index) -> bool:
        """Does the name stand for nothing else in the system?"""
        known = self._extents.get(index.name)
        told = known is None or is_same_extent(known, index.extent)
        return told and index.name not in self._names


def settle_letters(equation: Equation, system: System) -> Expr:
    """The value of an equation, with no letter bound inside its own scope."""
    return _Letters(system).settle(equation.value, equation)


def _find_indices(exprs: Sequence[Expr]) -> Iterator[Index]:
    """The indices in order of appearance, bound ones with them."""
    for expr in exprs:
        for here in walk(expr):
            if isinstance(here, Index):
                yield here
            elif isinstance(here, (Reduce, Along)):
                yield from _find_bound(here)
