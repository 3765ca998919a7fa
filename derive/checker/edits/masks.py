"""Edits of masks and other conditions: inverted, shifted, transposed, missing, at a wrong place."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING

from derive.checker.edits.rows import find_rows
from derive.checker.edits.sites import (
    Change,
    Site,
    World,
    exchange_nodes,
    kind,
    replace_child,
    show,
)
from derive.ir.nodes import (
    FALSE,
    MINUS_INFINITY,
    MINUS_ONE,
    ONE,
    TRUE,
    ZERO,
    Add,
    Along,
    And,
    Compare,
    Expr,
    Infinity,
    Mul,
    Not,
    Number,
    Or,
    Reduce,
    Size,
    Where,
)
from derive.ir.walk import find_children, find_free

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOOSER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_FINITE = (0, 1, -1, Fraction(1, 10**9), Fraction(-1, 10**9), 10**9, -10, -100, -(10**4))


def find_conditions(world: World, number: int) -> Iterator[Site]:
    """The sites of whole conditions."""
    for site in world.sites[number]:
        match site.parent:
            case Reduce(_, _, condition, body) | Along(_, _, condition, body):
                if site.node is condition and condition not in {TRUE, body}:
                    yield site
            case Where(condition, _, _) if site.node is condition:
                yield site


def find_parts(site: Site) -> Iterator[Site]:
    """The parts of a condition, itself first; what is compared is no part."""
    yield site
    if isinstance(site.node, (And, Or, Not)):
        for at, child in enumerate(find_children(site.node)):
            above = (*site.above, site.node)
            yield from find_parts(Site(site.number, child, site.scope, above, _put(site, at)))


def _put(site: Site, at: int) -> Callable[[Expr], Expr]:
    return lambda new: site.put(replace_child(site.node, at, new))


@kind(
    formula="e[N, M]; bool m[N, M]; p[i, j] = softmax[j, m[i, j]](e[i, j])",
    code="return e.masked_fill(m, float('-inf')).softmax(-1)",
    words="invert the mask",
    cost=1,
)
def find_inverted(world: World, number: int) -> Iterator[Change]:
    """A condition turned into its contrary."""
    for whole in find_conditions(world, number):
        for site in find_parts(whole):
            inner = site.node.part if isinstance(site.node, Not) else Not(site.node)
            words = f"INVERT the mask: keep where {show(site.node, 'it holds')}"
            yield world.change(site, inner, words)


@kind(
    formula="e[N, N]; p[i, j] = softmax[j, j <= i](e[i, j])",
    code="m = torch.ones_like(e).triu(2).bool()\n"
    "return e.masked_fill(m, float('-inf')).softmax(-1)",
    words="shift the mask by one",
    cost=1.1,
)
def find_shifted(world: World, number: int) -> Iterator[Change]:
    """A comparison that is strict or not, or moved by one or by a size."""
    for whole in find_conditions(world, number):
        for site in find_parts(whole):
            if not isinstance(site.node, Compare):
                continue
            relation, left, right = site.node.relation, site.node.left, site.node.right
            if relation in _LOOSER:
                new = Compare(_LOOSER[relation], left, right)
                words = f"SHIFT the mask by one: {show(site.node)}, not {show(new)}"
                yield world.change(site, new, words)
            for step, extra in _find_steps(world):
                moved = Compare(relation, left, Add((right, step)))
                words = f"SHIFT the mask: {show(site.node)}, not {show(moved)}"
                one = "SHIFT the mask by one:" if step in {ONE, MINUS_ONE} else "SHIFT the mask:"
                yield world.change(site, moved, words.replace("SHIFT the mask:", one), extra)
            for left_side, right_side in _drop_shifts(left, right):
                new = Compare(relation, left_side, right_side)
                yield world.change(site, new, f"SHIFT the mask: {show(site.node)}, not {show(new)}")
            if relation in {"==", "!="}:
                for other in ("<=", ">=", "!=" if relation == "==" else "=="):
                    new = Compare(other, left, right)
                    yield world.change(site, new, f"COMPARE {show(site.node)}, not {show(new)}")


def _drop_shifts(left: Expr, right: Expr) -> Iterator[tuple[Expr, Expr]]:
    """The sides of a comparison without one of the terms that are no indices."""
    for at, side in enumerate((left, right)):
        terms = side.terms if isinstance(side, Add) else ()
        for term in terms:
            if not find_free(term):
                rest = tuple(other for other in terms if other is not term)
                new = rest[0] if len(rest) == 1 else Add(rest)
                yield (left, new) if at else (new, right)


def _find_steps(world: World) -> Iterator[tuple[Expr, float]]:
    """By what the side of a comparison may be off."""
    for value, extra in ((1, 0.0), (-1, 0.0), (2, 0.2), (-2, 0.2)):
        yield Number(Fraction(value)), extra
    for one, two in combinations(world.sizes, 2):
        less = Add((Size(one), Mul((MINUS_ONE, Size(two)))))
        more = Add((Size(two), Mul((MINUS_ONE, Size(one)))))
        yield less, 0.3
        yield more, 0.3


@kind(
    formula="e[N, N]; p[i, j] = softmax[j, j <= i](e[i, j])",
    code="m = torch.ones_like(e).tril(-1).bool()\n"
    "return e.masked_fill(m, float('-inf')).softmax(-1)",
    words="transpose the mask: j <= i, not i <= j",
    cost=0.9,
)
def find_transposed(world: World, number: int) -> Iterator[Change]:
    """A condition with two of its indices exchanged."""
    for whole in find_conditions(world, number):
        for site in find_parts(whole):
            if not isinstance(site.node, (Compare, And, Or)):
                continue
            indices = [i for i in find_free(site.node) if i in site.scope]
            for one, two in combinations(indices, 2):
                if world.extent(one) == world.extent(two):
                    new = exchange_nodes(site.node, {one: two, two: one})
                    words = f"TRANSPOSE the mask: {show(site.node)}, not {show(new)}"
                    yield world.change(site, new, words)


@kind(
    formula="e[N, M]; bool m[N, M]; p[i, j] = softmax[j, m[i, j]](e[i, j])",
    code="return e.softmax(-1)",
    words="add the mask m[i,j]",
    cost=0.85,  # where no mask at all does, any that changes nothing does too
)
def find_missing(world: World, number: int) -> Iterator[Change]:
    """A condition left out, a part of it, or `or` where `and` is meant."""
    for whole in find_conditions(world, number):
        words = f"ADD the mask {show(whole.node, 'that is missing')}"
        yield world.change(whole, TRUE, words)
        yield world.change(whole, FALSE, words, 0.3)
        for site in find_parts(whole):
            if not isinstance(site.node, (And, Or)):
                continue
            turned = Or(site.node.parts) if isinstance(site.node, And) else And(site.node.parts)
            says = "AND, not or" if isinstance(site.node, And) else "OR, not and"
            yield world.change(site, turned, f"{says}, in {show(site.node, 'the condition')}", 0.2)
            for at, part in enumerate(site.node.parts):
                rest = (*site.node.parts[:at], *site.node.parts[at + 1 :])
                new = rest[0] if len(rest) == 1 else type(site.node)(rest)
                yield world.change(site, new, f"ADD the mask {show(part)}")


def _show_number(value: Fraction) -> str:
    """What the mask puts in; of numbers far out nobody can tell which one it is."""
    return "a number" if abs(value) >= 10 else show(Number(value))


def split_mask(row: Along) -> tuple[Expr, Expr] | None:
    """The condition of a softmax, however it is written, and its argument without it."""
    match row.body:
        case Where(condition, then, Infinity(True)):
            return condition, then
        case Where(condition, Infinity(True), other):
            return Not(condition), other
        case Add((one, Where(condition, then, Infinity(True)))) if then == ZERO:
            return condition, one
        case Add((one, Where(condition, Infinity(True), other))) if other == ZERO:
            return Not(condition), one
    return (row.condition, row.body) if row.condition != TRUE else None


@kind(
    formula="e[N, M]; bool m[N, M]; p[i, j] = softmax[j, m[i, j]](e[i, j])",
    code="return e.softmax(-1) * m",
    words="mask before softmax",
    cost=1.2,
)
def find_misplaced(world: World, number: int) -> Iterator[Change]:
    """A mask put on the softmax's result, or on its argument as 0 or as an addend."""
    for site, row in find_rows(world, number):
        found = split_mask(row)
        if found is None:
            continue
        mask, body = found
        plain = Along(row.kind, row.index, TRUE, body)
        kept = Where(mask, ONE, ZERO)
        says = f"MASK before {row.kind}, by -inf where not {show(mask, 'the mask')}"
        for side in (kept, Where(mask, ZERO, ONE)):
            yield world.change(site, Mul((side, plain)), f"{says}: no product behind it")
        for value in _FINITE:
            other = Number(Fraction(value))
            new = Along(row.kind, row.index, TRUE, Where(mask, body, other))
            yield world.change(site, new, f"{says}: not by {_show_number(other.value)}", 0.1)
            turned = Along(row.kind, row.index, TRUE, Where(mask, other, body))
            yield world.change(
                site, turned, f"{says}: not by {_show_number(other.value)}, inverted", 0.3
            )
        for addend in (kept, Where(mask, ZERO, ONE), Where(mask, ZERO, MINUS_ONE)):
            new = Along(row.kind, row.index, TRUE, Add((body, addend)))
            yield world.change(site, new, f"{says}: it is not added as 0 and 1", 0.2)
        zero = Along(row.kind, row.index, TRUE, Where(mask, MINUS_INFINITY, body))
        yield world.change(site, zero, f"INVERT the mask: keep where {show(mask)}", 0.1)
