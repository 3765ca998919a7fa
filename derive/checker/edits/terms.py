"""Edits of terms and factors: one that is missing, and one too many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.checker.edits.kind import kind
from derive.checker.edits.scales import is_number
from derive.checker.edits.sites import Change, Site, World, is_value, show
from derive.ir.nodes import (
    ONE,
    ZERO,
    Add,
    Expr,
    Mul,
    Tensor,
    Where,
)
from derive.ir.walk import find_accesses, rewrite_bottom_up

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_WAYS = 4  # in which a tensor's places are given letters


@kind(
    formula="x[N, D]; W[D, E]; c[E]; y[n, e] = sum[d](x[n, d] * W[d, e]) + c[e]",
    code="return x @ W",
    words="add the term c[e]",
    cost=1.1,
)
def find_missing_terms(world: World, number: int) -> Iterator[Change]:
    """A sum without one of its terms."""
    for site in world.sites[number]:
        node = site.node
        if not isinstance(node, Add) or not is_value(site):
            continue
        for at, term in enumerate(node.terms):
            rest = (*node.terms[:at], *node.terms[at + 1 :])
            new = rest[0] if len(rest) == 1 else Add(rest)
            words = f"ADD the term {show(term, f'of {world.name(number)}')} to {_name(world, site)}"
            if all(map(is_number, node.terms)):
                words = f"USE {show(node)}, not {show(new)}, in {world.name(number)}"
            yield world.change(site, new, words)
    for tensor in world.tensors(number):
        found = drop_terms(world, number, tensor)
        if found is not None:
            new_value, first = found
            words = f"ADD the term {show(first)} wherever {world.name(number)} has it"
            yield Change(world.with_value(number, new_value), words, number, 0.05)


def drop_terms(world: World, number: int, tensor: Tensor) -> tuple[Expr, Expr] | None:
    """The value without all the terms that read a tensor, and the first of them; if several."""
    dropped: list[Expr] = []

    def act(expr: Expr) -> Expr:
        if not isinstance(expr, Add):
            return expr
        kept = tuple(t for t in expr.terms if all(a.tensor is not tensor for a in find_accesses(t)))
        if not kept or len(kept) == len(expr.terms):
            return expr
        dropped.extend(term for term in expr.terms if term not in kept)
        return kept[0] if len(kept) == 1 else Add(kept)

    old = world.system.equations[number].value
    new = rewrite_bottom_up(old, act)
    return (new, dropped[0]) if dropped else None


def _name(world: World, site: Site) -> str:
    """The equation, and whether it is only a part of it."""
    name = world.name(site.number)
    return name if site.parent is None else f"{show(site.node, 'a part')} in {name}"


@kind(
    formula="x[N, D]; g[D]; y[n, d] = x[n, d] * g[d]",
    code="return x",
    words="add the factor g[d]",
    cost=1.3,
)
def find_missing_factors(world: World, number: int) -> Iterator[Change]:
    """A product without one of its factors."""
    for site in world.sites[number]:
        node = site.node
        if not isinstance(node, Mul) or not is_value(site):
            continue
        for at, factor in enumerate(node.factors):
            if is_number(factor):
                continue  # that is a matter of scale
            rest = (*node.factors[:at], *node.factors[at + 1 :])
            new = rest[0] if len(rest) == 1 else Mul(rest)
            yield world.change(site, new, _say_factor(world, number, factor))


def _say_factor(world: World, number: int, factor: Expr) -> str:
    match factor:
        case Where(condition, then, other) if (then, other) == (ONE, ZERO):
            return f"ADD the mask [{show(condition)}] to {world.name(number)}"
    shown = show(factor, "that is missing")
    return f"ADD the factor {shown}: MULTIPLY by it in {world.name(number)}"
