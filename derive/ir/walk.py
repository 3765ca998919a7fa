"""Walking the index language: children, rebuilding, free indices, substitution.

A node's children are the expressions in it. The extent of an index and the shape of a tensor are no
children: they say what an index or a tensor is, and never hold indices.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.ir.nodes import (
    Access,
    Add,
    Along,
    And,
    Call,
    Compare,
    Expr,
    Index,
    Infinity,
    Mul,
    Not,
    Number,
    Or,
    Pow,
    Reduce,
    Scalar,
    Size,
    Truth,
    Where,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def find_children(expr: Expr) -> tuple[Expr, ...]:
    """The expressions directly inside, in reading order; bound indices are not among them."""
    match expr:
        case Access(_, places):
            return places
        case Add(parts) | Mul(parts) | And(parts) | Or(parts):
            return parts
        case Pow(base, exponent):
            return (base, exponent)
        case Call(_, arguments):
            return arguments
        case Where(condition, then, other):
            return (condition, then, other)
        case Reduce(_, _, condition, body) | Along(_, _, condition, body):
            return (condition, body)
        case Compare(_, left, right):
            return (left, right)
        case Not(part):
            return (part,)
        case Number() | Infinity() | Size() | Scalar() | Index() | Truth():
            return ()


def map_children(expr: Expr, act: Callable[[Expr], Expr]) -> Expr:
    """The same node over changed children."""
    match expr:
        case Access(tensor, places):
            return Access(tensor, tuple(map(act, places)))
        case Add(parts) | Mul(parts) | And(parts) | Or(parts):
            return type(expr)(tuple(map(act, parts)))
        case Pow(base, exponent):
            return Pow(act(base), act(exponent))
        case Call(function, arguments):
            return Call(function, tuple(map(act, arguments)))
        case Where(condition, then, other):
            return Where(act(condition), act(then), act(other))
        case Reduce(kind, bound, condition, body):
            return Reduce(kind, bound, act(condition), act(body))
        case Along(kind, index, condition, body):
            return Along(kind, index, act(condition), act(body))
        case Compare(relation, left, right):
            return Compare(relation, act(left), act(right))
        case Not(part):
            return Not(act(part))
        case Number() | Infinity() | Size() | Scalar() | Index() | Truth():
            return expr


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all inside it, outermost first, each shared node once."""
    seen: set[Expr] = set()
    stack = [expr]
    while stack:
        here = stack.pop()
        if here not in seen:
            seen.add(here)
            yield here
            stack.extend(reversed(find_children(here)))


def rewrite_bottom_up(expr: Expr, act: Callable[[Expr], Expr]) -> Expr:
    """`act` applied to every node, inner ones first, each shared node once."""
    done: dict[Expr, Expr] = {}

    def visit(here: Expr) -> Expr:
        if here not in done:
            done[here] = act(map_children(here, visit))
        return done[here]

    return visit(expr)


def find_bound(expr: Expr) -> tuple[Index, ...]:
    """The indices that this node itself binds; Along binds its index inside and frees it outside."""
    match expr:
        case Reduce(_, bound, _, _):
            return bound
        case _:
            return ()


def find_free(expr: Expr) -> tuple[Index, ...]:
    """The free indices, in order of first appearance."""
    return _find_free(expr, {})


def _find_free(expr: Expr, known: dict[Expr, tuple[Index, ...]]) -> tuple[Index, ...]:
    if expr not in known:
        found: dict[Index, None] = {}
        if isinstance(expr, Index):
            found[expr] = None
        for child in find_children(expr):
            found |= dict.fromkeys(_find_free(child, known))
        if isinstance(expr, Along):
            found[expr.index] = None
        for index in find_bound(expr):
            found.pop(index, None)
        known[expr] = tuple(found)
    return known[expr]


def find_accesses(expr: Expr) -> tuple[Access, ...]:
    """Every access inside, in reading order, each once."""
    return tuple(here for here in walk(expr) if isinstance(here, Access))


def substitute(expr: Expr, new: Mapping[Expr, Expr]) -> Expr:
    """The expression with free nodes exchanged; a replacement that would be captured is renamed apart.

    A key that is an index is left alone where that index is bound.
    """
    if not new:
        return expr
    match expr:
        case Reduce(kind, bound, condition, body):
            bound, inner = _enter(bound, new, expr)
            return Reduce(kind, bound, substitute(condition, inner), substitute(body, inner))
        case Along(kind, index, condition, body) if index not in new:
            (kept,), inner = _enter((index,), new, expr)
            if kept is not index:
                raise ValueError(f"{index.name} would be captured by {kind}[{index.name}]")
            return Along(kind, index, substitute(condition, inner), substitute(body, inner))
        case Along(kind, index, condition, body):
            fresh = new[index]
            assert isinstance(fresh, Index), "an index that is kept can only become another index"
            return Along(kind, fresh, substitute(condition, new), substitute(body, new))
        case _ if expr in new:
            return new[expr]
        case _:
            return map_children(expr, lambda child: substitute(child, new))


def _enter(
    bound: tuple[Index, ...], new: Mapping[Expr, Expr], expr: Expr
) -> tuple[tuple[Index, ...], dict[Expr, Expr]]:
    """The bound indices renamed apart from what comes in, and the substitution for the inside."""
    inner = {old: fresh for old, fresh in new.items() if old not in bound}
    free = find_free(expr)
    coming = {i.name for old, e in inner.items() if old in free or not isinstance(old, Index) for i in find_free(e)}
    taken = coming | {i.name for i in free} | {i.name for i in bound}
    renamed = []
    for index in bound:
        if index.name in coming:
            fresh = rename_apart(index, taken)
            taken.add(fresh.name)
            inner[index] = fresh
            renamed.append(fresh)
        else:
            renamed.append(index)
    return tuple(renamed), inner


def rename_apart(index: Index, taken: set[str]) -> Index:
    """The same extent under a letter not taken: the letter itself, a free letter, else a numbered one."""
    if index.name not in taken:
        return index
    letters = (chr(ord("a") + (ord(index.name[0].lower()) - ord("a") + k) % 26) for k in range(1, 26))
    numbered = (f"{index.name}{k}" for k in range(1, len(taken) + 2))
    return next(Index(name, index.extent) for name in (*letters, *numbered) if name not in taken)
