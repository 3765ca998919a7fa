"""Walking the index language: children, rebuilding, free indices, substitution.

The extents of indices and the shapes of tensors are no children of a node. They contain no indices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from functools import cache, lru_cache
from itertools import islice
from typing import Any, TypeGuard

from derive.ir import nodes as ir


def map_children(expr: ir.Expr, act: Callable[[ir.Expr], ir.Expr]) -> ir.Expr:
    """The node with each child replaced by `act(child)`."""
    new = tuple(map(act, expr.children))
    if new == expr.children:
        return expr
    parts = iter(new)

    def fill(name: str) -> Any:
        value = getattr(expr, name)
        if name not in expr.inside:
            return value
        return tuple(islice(parts, len(value))) if isinstance(value, tuple) else next(parts)

    return type(expr)(*map(fill, expr.__match_args__))


@lru_cache(maxsize=1 << 14)
def walk(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """The expression and all its subexpressions, outermost first, each shared node once."""
    found: dict[ir.Expr, None] = {}
    stack = [expr]
    while stack:
        here = stack.pop()
        if here not in found:
            found[here] = None
            stack.extend(reversed(here.children))
    return tuple(found)


def rewrite_bottom_up(expr: ir.Expr, act: Callable[[ir.Expr], ir.Expr]) -> ir.Expr:
    """The result of `act` on every node, inner ones first, each shared node once."""
    done: dict[ir.Expr, ir.Expr] = {}

    def rewrite(here: ir.Expr) -> ir.Expr:
        if here not in done:
            done[here] = act(map_children(here, rewrite))
        return done[here]

    return rewrite(expr)


def rewrite_top_down(expr: ir.Expr, act: Callable[[ir.Expr], ir.Expr]) -> ir.Expr:
    """The result of `act` on every node, outer ones first; changed nodes are not entered."""
    new = act(expr)
    return map_children(expr, lambda part: rewrite_top_down(part, act)) if new is expr else new


def exchange(
    expr: ir.Expr,
    site: ir.Expr,
    new: ir.Expr,
    inside: Callable[[ir.Expr], tuple[ir.Expr, ...]] = lambda here: here.children,
) -> ir.Expr:
    """The expression with `new` in place of `site`, searched in the children `inside(node)`."""
    done: dict[ir.Expr, ir.Expr] = {site: new}

    def replace_site(here: ir.Expr) -> ir.Expr:
        if here not in done:
            parts = inside(here)
            done[here] = map_children(here, lambda p: replace_site(p) if p in parts else p)
        return done[here]

    return replace_site(expr)


INTEGRAL = {"floordiv", "mod", "abs", "sign", "min", "max", "clip"}  # integers for integers


def is_whole(expr: ir.Expr) -> bool:
    """Whether the value is an integer by construction, from indices, sizes and integers alone."""
    match expr:
        case ir.Index() | ir.Size():
            return True
        case ir.Number(value):
            return value.denominator == 1
        case ir.Access(tensor, _):
            return tensor.kind == "int"
        case ir.Pow(base, ir.Number(power)):
            return power.denominator == 1 and power >= 0 and is_whole(base)
        case ir.Where(_, then, other):
            return is_whole(then) and is_whole(other)
        case ir.Add(parts) | ir.Mul(parts):
            return all(map(is_whole, parts))
        case ir.Call(function, arguments):
            return function in INTEGRAL and all(map(is_whole, arguments))
    return False


def is_number(expr: ir.Expr) -> bool:
    """Whether an expression is arithmetic on sizes, scalars and constants, without indices."""
    kinds = (ir.Number, ir.Infinity, ir.Size, ir.Scalar, ir.Add, ir.Mul, ir.Pow)
    calls = {"pi", "I", "floordiv", "mod"}
    return all(
        part.function in calls if isinstance(part, ir.Call) else isinstance(part, kinds)
        for part in walk(expr)
    )


@lru_cache(maxsize=1 << 14)
def find_free(expr: ir.Expr) -> tuple[ir.Index, ...]:
    """The free indices, in order of first appearance."""
    return _find_free(expr, {})


def _find_free(expr: ir.Expr, known: dict[ir.Expr, tuple[ir.Index, ...]]) -> tuple[ir.Index, ...]:
    if expr not in known:
        found: dict[ir.Index, None] = {}
        if isinstance(expr, ir.Index):
            found[expr] = None
        for child in expr.children:
            found |= dict.fromkeys(_find_free(child, known))
        if isinstance(expr, ir.Along):
            found |= dict.fromkeys(expr.indices)
        for index in expr.bound if isinstance(expr, ir.Reduce) else ():
            found.pop(index, None)
        known[expr] = tuple(found)
    return known[expr]


def find_start(target: ir.Access) -> dict[int, int]:
    """The negative places of a left side by axis, {0: -1} of `h[-1,i]`; empty if it has none."""
    return {
        number: int(place.value)
        for number, place in enumerate(target.places)
        if isinstance(place, ir.Number) and place.value < 0
    }


def find_broadcast(equation: ir.Equation) -> tuple[ir.Index, ...]:
    """The indices of the left side that are not free on the right: i of `y[n,i] = x[n]`."""
    free = find_free(equation.value)
    return tuple(index for index in find_free(equation.target) if index not in free)


def find_accesses(expr: ir.Expr) -> tuple[ir.Access, ...]:
    """The accesses of an expression in reading order, each once."""
    return tuple(here for here in walk(expr) if isinstance(here, ir.Access))


def is_reading(expr: ir.Expr, tensor: ir.Tensor) -> bool:
    """Whether an expression reads the tensor."""
    return any(access.tensor is tensor for access in find_accesses(expr))


def exchange_tensors(
    equations: Sequence[ir.Equation], new: Mapping[ir.Tensor, ir.Tensor]
) -> tuple[ir.Equation, ...]:
    """The equations with tensors replaced on both sides."""

    def retarget(here: ir.Access) -> ir.Access:
        return ir.Access(new.get(here.tensor, here.tensor), here.places)

    return tuple(ir.Equation(retarget(e.target), exchange_reads(e.value, new)) for e in equations)


def exchange_reads(expr: ir.Expr, new: Mapping[ir.Tensor, ir.Tensor]) -> ir.Expr:
    """The expression with each tensor of `new` replaced by its partner, at the same places."""

    def act(here: ir.Expr) -> ir.Expr:
        if isinstance(here, ir.Access) and here.tensor in new:
            return ir.Access(new[here.tensor], here.places)
        return here

    return rewrite_bottom_up(expr, act)


def substitute(expr: ir.Expr, new: Mapping[ir.Expr, ir.Expr]) -> ir.Expr:
    """The expression after a simultaneous, capture-avoiding substitution of free nodes.

    Bound indices are renamed where a new value would be captured. A key is not replaced where one
    of its indices is bound. The index of an Along is free: it may become another index that does
    not occur in the body.

    Raises ValueError where the index of an Along would capture another or become no index.
    """
    return _substitute(expr, new, {}) if new else expr


def _substitute(
    expr: ir.Expr, new: Mapping[ir.Expr, ir.Expr], done: dict[ir.Expr, ir.Expr]
) -> ir.Expr:
    """The substituted expression; `done` caches the results of this mapping by node."""
    if expr in new:
        return new[expr]
    if expr not in done:
        match expr:
            case ir.Reduce():
                done[expr] = _substitute_reduce(expr, new)
            case ir.Along():
                done[expr] = _substitute_along(expr, new)
            case _:
                done[expr] = map_children(expr, lambda child: _substitute(child, new, done))
    return done[expr]


def _substitute_reduce(expr: ir.Reduce, new: Mapping[ir.Expr, ir.Expr]) -> ir.Expr:
    inner = _find_relevant(expr, new)
    if not inner:
        return expr
    coming = {index.name for fresh in inner.values() for index in find_free(fresh)}
    taken = find_names(expr) | {name for fresh in inner.values() for name in find_names(fresh)}
    bound = []
    for index in expr.bound:
        kept = rename_apart(index, taken) if index.name in coming else index
        if kept is not index:
            taken.add(kept.name)
            inner[index] = kept
        bound.append(kept)
    done: dict[ir.Expr, ir.Expr] = {}
    condition, body = (_substitute(part, inner, done) for part in (expr.condition, expr.body))
    return ir.Reduce(expr.kind, tuple(bound), condition, body)


def _substitute_along(expr: ir.Along, new: Mapping[ir.Expr, ir.Expr]) -> ir.Expr:
    inner = _find_relevant(expr, new)
    coming = {index.name for fresh in inner.values() for index in find_free(fresh)}
    staying = {
        index.name
        for part in (expr.condition, expr.body)
        for index in find_free(part)
        if index not in expr.indices and index not in inner
    }
    along: list[ir.Index] = []
    for index in expr.indices:
        kept = new.get(index, index)
        if not isinstance(kept, ir.Index):
            raise ValueError(f"{index.name} of {expr.kind} can only become another index")
        is_taken = kept.name in coming or kept in along
        if is_taken or (kept is not index and kept.name in staying):
            raise ValueError(f"{kept.name} would be captured by {expr.kind}[{kept.name}]")
        along.append(kept)
        if kept is not index:
            inner[index] = kept
    if not inner:
        return expr
    done: dict[ir.Expr, ir.Expr] = {}
    condition, body = (_substitute(part, inner, done) for part in (expr.condition, expr.body))
    return ir.Along(expr.kind, along[0], condition, body, *along[1:])


def _find_relevant(
    expr: ir.Reduce | ir.Along, new: Mapping[ir.Expr, ir.Expr]
) -> dict[ir.Expr, ir.Expr]:
    """The entries of a substitution that occur in a reduction and contain none of its indices."""
    bound = expr.indices
    free = {*find_free(expr.condition), *find_free(expr.body)}
    inside = {*walk(expr.condition), *walk(expr.body)}
    return {
        old: fresh
        for old, fresh in new.items()
        if old in (free if isinstance(old, ir.Index) else inside)
        and not any(index in bound for index in find_free(old))
    }


def find_names(expr: ir.Expr) -> set[str]:
    """The names of sizes, scalars, indices and tensors in an expression, extents included."""
    named = (ir.Size, ir.Scalar, ir.Index)
    parts = tuple(_walk_extents(expr))
    names = {here.name for here in parts if isinstance(here, named)}
    return names | {here.tensor.name for here in parts if isinstance(here, ir.Access)}


def _walk_extents(expr: ir.Expr) -> Iterator[ir.Expr]:
    """The expression, its subexpressions, its bound indices and the extents of all indices."""
    for here in walk(expr):
        yield here
        match here:
            case ir.Index(_, extent):
                yield from walk(extent)
            case ir.Reduce() | ir.Along():
                for index in here.indices:
                    yield from (index, *walk(index.extent))


def rename_apart(index: ir.Index, taken: set[str]) -> ir.Index:
    """The index under a free name: its own, else the next free letter, else a numbered name."""
    if index.name not in taken:
        return index
    first = ord(index.name[0].lower()) - ord("a")
    indices = (chr(ord("a") + (first + k) % 26) for k in range(1, 26))
    numbered = (f"{index.name}{k}" for k in range(1, len(taken) + 2))
    return next(ir.Index(name, index.extent) for name in (*indices, *numbered) if name not in taken)


def find_entry_names(system: ir.System) -> set[str]:
    """The names of the system's arguments, sizes and tensors."""
    named = (*system.inputs, *system.sizes, *(each.target.tensor for each in system.equations))
    return {each.name for each in named} | {*find_sizes(system)}


class Names(set[str]):
    """The set of names used in a system, from which fresh names are chosen."""

    @classmethod
    def of(cls, system: ir.System) -> Names:
        """The names of the system's arguments, sizes, tensors and indices."""
        return cls(find_entry_names(system) | {i.name for i in find_all_indices(system)})

    def propose(self, wanted: str) -> str:
        """The name if no other has it, else a numbered one, x_2; the set is unchanged."""
        numbered = (wanted, *(f"{wanted}_{k}" for k in range(2, len(self) + 3)))
        return next(name for name in numbered if name not in self)

    def take(self, wanted: str) -> str:
        """The proposed name, added to the set."""
        found = self.propose(wanted)
        self.add(found)
        return found

    def take_index(self, wanted: ir.Index) -> ir.Index:
        """The index, renamed if its name is used; the name is added to the set."""
        found = rename_apart(wanted, self)
        self.add(found.name)
        return found


def find_size_names(*exprs: ir.Expr) -> tuple[str, ...]:
    """The names of the sizes in expressions, in order; extents of indices are not searched."""
    parts = (part for expr in exprs for part in walk(expr))
    return tuple(dict.fromkeys(part.name for part in parts if isinstance(part, ir.Size)))


def find_all_indices(system: ir.System) -> tuple[ir.Index, ...]:
    """The indices of the system in order of appearance; an index with two extents comes twice."""
    found: dict[ir.Index, None] = {}
    for equation in (*system.equations, *system.written):
        for place in equation.target.places:
            found |= dict.fromkeys(find_indices(place))
        found |= dict.fromkeys(find_indices(equation.value))
    return tuple(found)


def as_written(system: ir.System) -> ir.System:
    """The system with the equations as the user wrote them, before any were merged."""
    return replace(system, equations=system.written, written=()) if system.written else system


def find_indices(expr: ir.Expr) -> tuple[ir.Index, ...]:
    """The free and the bound indices of an expression, some more than once."""
    return tuple(here for here in _walk_extents(expr) if isinstance(here, ir.Index))


def find_sizes(system: ir.System) -> tuple[str, ...]:
    """The names of the sizes in order: in input shapes, keyword sizes, equations and extents."""
    shapes = (extent for tensor in system.tensors for extent in tensor.shape)
    equations = (side for e in system.equations for side in (e.target, e.value))
    parts = (*shapes, *(ir.Size(entry.name) for entry in system.sizes), *equations)
    inside = (here for part in parts for here in _walk_extents(part))
    return tuple(dict.fromkeys(here.name for here in inside if isinstance(here, ir.Size)))


def resize_system(
    system: ir.System, sizes: Mapping[ir.Expr, ir.Expr], simplify: Callable[[ir.Expr], ir.Expr]
) -> ir.System:
    """The system with sizes replaced by expressions, and `simplify` applied to all shapes."""

    @cache
    def resize(part: Any) -> Any:
        if isinstance(part, tuple):
            return tuple(map(resize, part))
        if part in sizes or not is_dataclass(part):
            return sizes.get(part, part)
        kind: Any = type(part)
        made = kind(*(resize(getattr(part, name)) for name in kind.__match_args__))
        is_tensor = isinstance(made, ir.Tensor)
        return replace(made, shape=tuple(map(simplify, made.shape))) if is_tensor else made

    resized: ir.System = resize(system)
    return resized


def split_guards(factors: tuple[ir.Expr, ...]) -> tuple[tuple[ir.Expr, ...], tuple[ir.Expr, ...]]:
    """The pair (conditions of the brackets [..], other factors) of nested products."""
    guards: list[ir.Expr] = []
    others: list[ir.Expr] = []
    for factor in factors:
        match factor:
            case ir.Where(condition, then, other) if then == ir.ONE and other == ir.ZERO:
                guards.append(condition)
            case ir.Mul(inner):
                inside, left = split_guards(inner)
                guards += inside
                others += left
            case _:
                others.append(factor)
    return tuple(guards), tuple(others)


def is_bracket(expr: ir.Expr) -> TypeGuard[ir.Where]:
    """Whether the expression is an Iverson bracket: 1 where a condition holds, else 0."""
    return isinstance(expr, ir.Where) and expr.then is ir.ONE and expr.other is ir.ZERO


def find_brackets(factor: ir.Expr) -> tuple[ir.Where, ...]:
    """The brackets [..] in a factor: itself, in nested products, in positive powers; else ()."""
    match factor:
        case ir.Where() if is_bracket(factor):
            return (factor,)
        case ir.Mul(factors):
            return tuple(bracket for part in factors for bracket in find_brackets(part))
        case ir.Pow(base, ir.Number(value)) if value > 0:
            return find_brackets(base)
    return ()
