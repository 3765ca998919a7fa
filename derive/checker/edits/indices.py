"""Edits of letters: two indices exchanged, another index read, a letter summed too early."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING

from derive.checker.edits.kind import kind
from derive.checker.edits.sites import (
    Change,
    Site,
    World,
    exchange_nodes,
    find_fresh,
    find_indices,
    is_condition,
    is_value,
    show,
)
from derive.ir.nodes import TRUE, Access, Expr, Index, Reduce
from derive.ir.walk import find_free, rewrite_bottom_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from derive.ir.nodes import Equation


def find_access_sites(world: World, number: int) -> Iterator[tuple[Site, Access]]:
    """The sites of all accesses of an equation, in conditions too, not those inside of places."""
    for site in world.sites[number]:
        if isinstance(site.node, Access) and not any(isinstance(n, Access) for n in site.above):
            yield site, site.node


@kind(
    formula="x[N, D]; A[N, N]; y[i, d] = sum[j](A[i, j] * x[j, d])",
    code="return torch.einsum('ji,jd->id', A, x)",
    words="exchange i and j of a",
    cost=1,
)
def find_exchanged_indices(world: World, number: int) -> Iterator[Change]:
    """Two letters of one extent exchanged in one access."""
    for site, access in find_access_sites(world, number):
        for one, two in combinations(find_indices(access), 2):
            if world.extent(one) != world.extent(two):
                continue
            new = exchange_nodes(access, {one: two, two: one})
            yield world.change(site, new, _say_exchange(world, site, access, one, two))


def _say_exchange(world: World, site: Site, access: Access, one: Index, two: Index) -> str:
    """What to say: a matrix with one letter that is summed away is called transposed."""
    name = access.tensor.name
    pair = f"EXCHANGE {show_pair(one, two)} of {name}"
    if is_condition(site) and access.tensor.kind == "bool":
        return f"TRANSPOSE the mask: {pair}"
    is_plain = access.tensor in world.inputs and {one, two} <= {*access.places}
    kept = find_kept(world.system.equations[site.number])
    if is_plain and (one in kept) != (two in kept):
        return f"TRANSPOSE {name}: {pair}"
    return pair


def show_pair(one: Index, two: Index) -> str:
    """Two letters as words name them."""
    first, second = sorted((one.name, two.name))
    return f"{first} and {second}"


def find_kept(equation: Equation) -> tuple[Index, ...]:
    """The indices of an equation's target."""
    return tuple(dict.fromkeys(i for place in equation.target.places for i in find_free(place)))


@kind(
    formula="a, b[N, N, C]; t[i, j, c] = sum[k](a[i, k, c] * b[j, k, c])",
    code="return torch.einsum('kic,kjc->ijc', a, b)",
    words="exchange i and k of a and j and k of b",
    cost=1.6,
)
def find_exchanged_twice(world: World, number: int) -> Iterator[Change]:
    """Two places exchanged in each of two tensors."""
    accesses = dict.fromkeys(access for _, access in find_access_sites(world, number))
    turned = [pair for access in accesses for pair in _find_turned(world, access)]
    for (one, new_one, what), (two, new_two, other) in combinations(turned, 2):
        if one is not two:
            old = world.system.equations[number].value
            value = rewrite_bottom_up(old, partial(_replace, {one: new_one, two: new_two}))
            words = f"EXCHANGE {what} and {other}"
            yield Change(world.with_value(number, value), words, number)


def _replace(new: Mapping[Expr, Expr], expr: Expr) -> Expr:
    return new.get(expr, expr)


def _find_turned(world: World, access: Access) -> Iterator[tuple[Expr, Expr, str]]:
    for one, two in combinations(find_indices(access), 2):
        if world.extent(one) == world.extent(two):
            what = f"{show_pair(one, two)} of {access.tensor.name}"
            yield access, exchange_nodes(access, {one: two, two: one}), what


@kind(
    formula="x[N, H*D]; W[H*D, H*D]; index h, g < H; index d, e < D; size H = 2\n"
    "y[n, g, e] = sum[h, d](x[n, h*D + d] * W[h*D + d, g*D + e])",
    code="return (x @ W.T).reshape(x.shape[0], H, -1)",
    words="transpose w",
    cost=1.1,
)
def find_exchanged_places(world: World, number: int) -> Iterator[Change]:
    """Two places of one access exchanged, where not both are letters."""
    for site, access in find_access_sites(world, number):
        places, shape = access.places, world.shape(access.tensor)
        for one, two in combinations(range(len(places)), 2):
            plain = isinstance(places[one], Index) and isinstance(places[two], Index)
            if plain or shape[one] != shape[two]:
                continue
            new = list(places)
            new[one], new[two] = new[two], new[one]
            words = f"TRANSPOSE {access.tensor.name}: places {one} and {two} of {show(access)}"
            yield world.change(site, Access(access.tensor, tuple(new)), words)


@kind(
    formula="q, k[N, D]; s[i, j] = sum[d](q[i, d] * k[j, d])",
    code="return (q * k).sum(-1)[:, None].expand(-1, q.shape[0])",
    words="read j, not i, in k",
    cost=1.5,
)
def find_other_indices(world: World, number: int) -> Iterator[Change]:
    """Another letter of the same extent in one place of one access."""
    for site, access in find_access_sites(world, number):
        mine = find_indices(access)
        for old in mine:
            for new in site.scope:
                if new is old or world.extent(new) != world.extent(old):
                    continue
                other = exchange_nodes(access, {old: new})
                yield world.change(site, other, _say_other(access, other, old, new, mine))


def _say_other(access: Access, other: Expr, old: Index, new: Index, mine: tuple[Index, ...]) -> str:
    wrong = f"{show(access)}, not {show(other)}"
    if new in mine:
        return f"a repeated letter: {new.name} stands twice, the formula reads {wrong}"
    return f"READ {old.name}, not {new.name}, in {access.tensor.name}: {wrong}"


@kind(
    formula="x[N, N]; y[i] = sum[j](x[i, j])",
    code="return x.diagonal()",
    words="sum over j",
    cost=1.6,
)
def find_diagonals(world: World, number: int) -> Iterator[Change]:
    """A sum left out, its letter set to another one: a diagonal where a sum was meant."""
    for site in world.sites[number]:
        node = site.node
        if not (isinstance(node, Reduce) and node.kind == "sum" and node.condition == TRUE):
            continue
        for old in node.bound:
            rest = tuple(index for index in node.bound if index is not old)
            for new in (*site.scope, *rest):
                if new is old or world.extent(new) != world.extent(old):
                    continue
                body = exchange_nodes(node.body, {old: new})
                made = Reduce("sum", rest, TRUE, body) if rest else body
                words = f"SUM over {old.name}; a repeated letter, {new.name}, takes a diagonal"
                yield world.change(site, made, words)


@kind(
    formula="q, k[N, D]; s[i, j] = sum[d](q[i, d] * k[j, d])",
    code="return torch.einsum('id,je->ij', q, k)",
    words="the letter d is summed separately in",
    cost=2,
)
def find_separate_sums(world: World, number: int) -> Iterator[Change]:
    """A letter of one operand summed by itself, not together with the others."""
    for site, access in find_access_sites(world, number):
        if not is_value(site):
            continue
        for index in find_indices(access):
            if index not in find_bound_above(site):
                continue
            fresh = find_fresh(index, *site.above[:1], access)
            alone = Reduce("sum", (fresh,), TRUE, exchange_nodes(access, {index: fresh}))
            name = access.tensor.name
            words = f"the letter {index.name} is summed separately in {name}: give it one letter"
            yield world.change(site, alone, words)


def find_bound_above(site: Site) -> tuple[Index, ...]:
    """The indices that sums around a site bind."""
    return tuple(
        index
        for node in site.above
        if isinstance(node, Reduce) and node.kind == "sum"
        for index in node.bound
    )
