"""Rules that a search may try, and every system that one of them leads to.

All rules of the families that are in no recipe, so that a new one is known by standing in its file:

OPTIONS     lose nothing: a search may take them whenever they pay
LOSSY       round worse, by the rounding of what is added up: not where a root, a logarithm or a
            quotient reads the value, and nowhere where all digits are asked for

Such functions have no bounded slope at 0: a small difference that is rounded makes a large one, of
another sign or nan. Through sums, products and names a value is made of others; exp and its like
forgive what is small, and so does a quotient by 1 and more that is never negative, if rounding
leaves it so. A rule that keeps the sign may stand anywhere where speed is asked for before digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from derive.ir import nodes as ir
from derive.ir.walk import exchange, find_children, find_free, walk
from derive.rewrite import guards, naming, recipes
from derive.rewrite.rule import Rule, find_valid
from derive.rewrite.rules import (
    chains,
    deltas,
    expansion,
    masks,
    offsets,
    products,
    softmax,
    squares,
    sums,
)

_FAMILIES = (
    expansion,
    sums,
    softmax,
    deltas,
    squares,
    masks,
    chains,
    products,
    offsets,
)
_FOUND = dict.fromkeys(
    each
    for family in _FAMILIES
    for each in vars(family).values()
    if isinstance(each, Rule) and each not in recipes.RULES
)
OPTIONS: tuple[Rule, ...] = tuple(each for each in _FOUND if not each.loses)
LOSSY: tuple[Rule, ...] = tuple(each for each in _FOUND if each.loses)


@dataclass(frozen=True, slots=True)
class Rewriting:
    """One use of a rule: the whole new system, and which equation it changed."""

    rule: Rule
    system: ir.System
    equation: str
    before: ir.Expr
    after: ir.Expr


def find_rewritings(
    system: ir.System, rules: Sequence[Rule], *, fast_math: bool = False
) -> Iterator[Rewriting]:
    """Every system that one use of one rule leads to, each once: site by site, then rule by rule.

    Equal nodes of one equation are one site. Places and conditions are left as they are. Rules that
    do not hold for the system's empty rows are not tried. `fast_math`: where a value is sensitive,
    rules may lose digits that keep its sign.
    """
    seen = {system: None}
    indices = naming.IndexNames(system)
    rules = find_valid(rules, system.empty_row)
    inside = _find_in_equations(system, rules, indices, fast_math=fast_math)
    found = chain(inside, _find_across(system, rules, indices))
    for rewriting in found:
        if rewriting.system not in seen:
            seen[rewriting.system] = None
            yield rewriting


def _find_in_equations(
    system: ir.System, rules: Sequence[Rule], indices: naming.IndexNames, *, fast_math: bool
) -> Iterator[Rewriting]:
    nonfinite = guards.find_nonfinite(system)
    unmarked = {likeness: tensor for tensor, likeness in nonfinite.items()}
    names = guards.find_sensitive_names(system)
    for number, equation in enumerate(system.equations):
        value = guards.mark_tensors(equation.value, nonfinite)
        sensitive = guards.find_sensitive(ir.Equation(equation.target, value), names)
        for site in _walk_values(value):
            for rule in rules:
                is_free = not (rule.loses or rule.cancels) or (fast_math and rule.keeps_sign)
                if not is_free and site in sensitive[rule.keeps_sign]:
                    continue
                new = rule(site)
                if new is None or new is site:
                    continue
                after = indices.settle(
                    guards.mark_tensors(exchange(value, site, new, _find_values), unmarked),
                    equation,
                )
                if not _is_whole(after):
                    continue
                equations = list(system.equations)
                equations[number] = ir.Equation(equation.target, after)
                changed = replace(system, equations=tuple(equations))
                yield _tell(rule, changed, equation, after)


def _find_across(
    system: ir.System, rules: Sequence[Rule], indices: naming.IndexNames
) -> Iterator[Rewriting]:
    values = {equation.target: equation for equation in system.equations}
    for rule in rules:
        for new in rule.across(system) if rule.across is not None else ():
            equations = tuple(
                each
                if values.get(each.target) is each
                else ir.Equation(each.target, indices.settle(each.value, each))
                for each in new.equations
            )
            changed = next((e for e in equations if values.get(e.target, e) is not e), None)
            if changed is not None and _is_whole(changed.value):
                whole = replace(new, equations=equations)
                yield _tell(rule, whole, values[changed.target], changed.value)


def _is_whole(value: ir.Expr) -> bool:
    """Does every index have a say in what is reduced over it? A sum counts where it has none."""
    return all(
        set(part.indices) <= {*find_free(part.body), *find_free(part.condition)}
        for part in walk(value)
        if isinstance(part, (ir.Reduce, ir.Along)) and part.kind not in {"sum", "prod", "logsumexp"}
    )


def _tell(rule: Rule, system: ir.System, equation: ir.Equation, after: ir.Expr) -> Rewriting:
    return Rewriting(rule, system, equation.target.tensor.name, equation.value, after)


def _find_values(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """The parts of a node that are values: not its places and conditions."""
    match expr:
        case ir.Access() | ir.Compare() | ir.Call("floordiv" | "mod"):
            return ()
        case ir.Where(_, then, other):
            return (then, other)
        case ir.Reduce(_, _, _, body) | ir.Along(_, _, _, body):
            return (body,)
        case _:
            return find_children(expr)


def _walk_values(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The nodes that are values, outermost first, each once."""
    seen: dict[ir.Expr, None] = {}
    stack = [expr]
    while stack:
        here = stack.pop()
        if here not in seen:
            seen[here] = None
            yield here
            stack.extend(reversed(_find_values(here)))
