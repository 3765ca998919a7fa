"""Walking the index language: children, rebuilding, free indices, substitution.

A node's children are the expressions in it. The extent of an index and the shape of a tensor are no
children: they say what an index or a tensor is, and never hold indices.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from derive.ir.nodes import (
    ONE,
    ZERO,
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
    System,
    Tensor,
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
        case Along(kind, index, condition, body, columns):
            return Along(kind, index, act(condition), act(body), columns)
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
    """The indices that this node itself binds; an Along's is free outside and no one of them."""
    match expr:
        case Reduce(_, bound, _, _):
            return bound
        case _:
            return ()


@lru_cache(maxsize=1 << 14)
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
            found |= dict.fromkeys(expr.indices)
        for index in find_bound(expr):
            found.pop(index, None)
        known[expr] = tuple(found)
    return known[expr]


def find_accesses(expr: Expr) -> tuple[Access, ...]:
    """Every access inside, in reading order, each once."""
    return tuple(here for here in walk(expr) if isinstance(here, Access))


def substitute(expr: Expr, new: Mapping[Expr, Expr]) -> Expr:
    """The expression with free nodes exchanged, all at once; bound indices give way to new ones.

    A key is left alone where one of its indices is bound. The index of an Along stands for itself
    inside and outside: it may become another index, which must not occur in the body already.

    Raises ValueError where the index of an Along would capture, or would become no index.
    """
    return _substitute(expr, new, {}) if new else expr


def _substitute(expr: Expr, new: Mapping[Expr, Expr], done: dict[Expr, Expr]) -> Expr:
    """`done` holds what is known under this very mapping, so that shared nodes are met once."""
    if expr in new:
        return new[expr]
    if expr not in done:
        match expr:
            case Reduce():
                done[expr] = _substitute_reduce(expr, new)
            case Along():
                done[expr] = _substitute_along(expr, new)
            case _:
                done[expr] = map_children(expr, lambda child: _substitute(child, new, done))
    return done[expr]


def _substitute_reduce(expr: Reduce, new: Mapping[Expr, Expr]) -> Expr:
    inner = _find_relevant(expr, new)
    if not inner:
        return expr
    coming = {index.name for fresh in inner.values() for index in find_free(fresh)}
    taken = _find_names(expr) | {name for fresh in inner.values() for name in _find_names(fresh)}
    bound = []
    for index in expr.bound:
        kept = rename_apart(index, taken) if index.name in coming else index
        if kept is not index:
            taken.add(kept.name)
            inner[index] = kept
        bound.append(kept)
    done: dict[Expr, Expr] = {}
    condition, body = (_substitute(part, inner, done) for part in (expr.condition, expr.body))
    return Reduce(expr.kind, tuple(bound), condition, body)


def _substitute_along(expr: Along, new: Mapping[Expr, Expr]) -> Expr:
    inner = _find_relevant(expr, new)
    coming = {index.name for fresh in inner.values() for index in find_free(fresh)}
    staying = {
        index.name
        for part in (expr.condition, expr.body)
        for index in find_free(part)
        if index not in expr.indices and index not in inner
    }
    along: list[Index] = []
    for index in expr.indices:
        kept = new.get(index, index)
        if not isinstance(kept, Index):
            raise ValueError(f"{index.name} of {expr.kind} can only become another index")
        is_taken = kept.name in coming or kept in along
        if is_taken or (kept is not index and kept.name in staying):
            raise ValueError(f"{kept.name} would be captured by {expr.kind}[{kept.name}]")
        along.append(kept)
        if kept is not index:
            inner[index] = kept
    if not inner:
        return expr
    done: dict[Expr, Expr] = {}
    condition, body = (_substitute(part, inner, done) for part in (expr.condition, expr.body))
    return Along(expr.kind, along[0], condition, body, *along[1:])


def _find_relevant(expr: Reduce | Along, new: Mapping[Expr, Expr]) -> dict[Expr, Expr]:
    """What of a substitution reaches into a binder: free there, and none of its indices bound."""
    bound = expr.bound if isinstance(expr, Reduce) else expr.indices
    free = {*find_free(expr.condition), *find_free(expr.body)}
    inside = {*walk(expr.condition), *walk(expr.body)}
    return {
        old: fresh
        for old, fresh in new.items()
        if old in (free if isinstance(old, Index) else inside)
        and not any(index in bound for index in find_free(old))
    }


def _find_names(expr: Expr) -> set[str]:
    """Every name inside, bound ones and those in extents too, since all share one namespace."""
    names: set[str] = set()
    for here in walk(expr):
        match here:
            case Size(name) | Scalar(name):
                names.add(name)
            case Index(name, extent):
                names |= {name} | _find_names(extent)
            case Access(Tensor(name)):
                names.add(name)
            case Reduce(_, bound):
                names |= {name for index in bound for name in _find_names(index)}
            case Along():
                names |= {name for index in here.indices for name in _find_names(index)}
    return names


def rename_apart(index: Index, taken: set[str]) -> Index:
    """The same extent under an index not taken: its own, the next free one, else a numbered one."""
    if index.name not in taken:
        return index
    first = ord(index.name[0].lower()) - ord("a")
    indices = (chr(ord("a") + (first + k) % 26) for k in range(1, 26))
    numbered = (f"{index.name}{k}" for k in range(1, len(taken) + 2))
    return next(Index(name, index.extent) for name in (*indices, *numbered) if name not in taken)


# The sizes of a system, in order of appearance.


def find_all_indices(system: System) -> tuple[Index, ...]:
    """Every index of the system, in order of appearance; an index with two extents comes twice."""
    found: dict[Index, None] = {}
    for equation in (*system.equations, *system.written):
        for place in equation.target.places:
            found |= dict.fromkeys(find_indices(place))
        found |= dict.fromkeys(find_indices(equation.value))
    return tuple(found)


def as_written(system: System) -> System:
    """The system with the equations that the user wrote, where several fill one tensor."""
    return replace(system, equations=system.written, written=()) if system.written else system


def find_indices(expr: Expr) -> tuple[Index, ...]:
    """The indices of one expression, bound ones with them; some more than once."""
    found: list[Index] = []
    for here in walk(expr):
        match here:
            case Index():
                found.append(here)
            case Reduce(_, bound, _, _):
                found += bound
            case Along():
                found += here.indices
    return tuple(found)


def find_sizes(system: System) -> tuple[str, ...]:
    """The names of all sizes: of arguments' shapes, of indices, and those in expressions."""
    return tuple(dict.fromkeys(size.name for size in _walk_sizes(system)))


def _walk_sizes(system: System) -> Iterator[Size]:
    for entry in system.inputs:
        if isinstance(entry, Tensor):
            for extent in entry.shape:
                yield from _sizes_in(extent)
    yield from (Size(entry.name) for entry in system.sizes)
    for equation in system.equations:
        yield from _sizes_in(equation.target)
        yield from _sizes_in(equation.value)


def _sizes_in(expr: Expr) -> Iterator[Size]:
    """Sizes in an expression, and in the extents of the indices it binds or reads."""
    for part in walk(expr):
        match part:
            case Size():
                yield part
            case Index(_, extent):
                yield from _sizes_in(extent)
            case Reduce(_, bound, _, _):
                yield from (size for index in bound for size in _sizes_in(index.extent))
            case Along():
                yield from (size for index in part.indices for size in _sizes_in(index.extent))
            case _:
                continue


def split_guards(factors: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """The conditions of a product's Iverson brackets at any depth, and its other factors."""
    guards: list[Expr] = []
    others: list[Expr] = []
    for factor in factors:
        match factor:
            case Where(condition, then, other) if then == ONE and other == ZERO:
                guards.append(condition)
            case Mul(inner):
                inside, left = split_guards(inner)
                guards += inside
                others += left
            case _:
                others.append(factor)
    return tuple(guards), tuple(others)
