"""Edits of what is read: other indices or tensors, two of them exchanged, results exchanged."""

from __future__ import annotations

from functools import partial
from itertools import combinations, permutations
from typing import TYPE_CHECKING

from derive.checker.edits.sites import (
    Change,
    Site,
    World,
    exchange_nodes,
    find_fresh,
    find_indices,
    is_condition,
    is_value,
    kind,
    show,
)
from derive.ir.nodes import TRUE, Access, Equation, Expr, Index, Reduce, Tensor
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
    """Two indices of one extent exchanged in one access."""
    for site, access in find_access_sites(world, number):
        for one, two in combinations(find_indices(access), 2):
            if world.extent(one) != world.extent(two):
                continue
            new = exchange_nodes(access, {one: two, two: one})
            yield world.change(site, new, _say_exchange(world, site, access, one, two))


def _say_exchange(world: World, site: Site, access: Access, one: Index, two: Index) -> str:
    """What to say: a matrix with one index that is summed away is called transposed."""
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
    """Two indices as words name them."""
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
    formula="q, k[N, D]; s[i, j] = sum[d](q[i, d] * k[j, d])",
    code="return (q * k).sum(-1)[:, None].expand(-1, q.shape[0])",
    words="read j, not i, in k",
    cost=1.5,
)
def find_other_indices(world: World, number: int) -> Iterator[Change]:
    """Another index of the same extent in one place of one access."""
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
        return f"a repeated index: {new.name} stands twice, the formula reads {wrong}"
    return f"READ {old.name}, not {new.name}, in {access.tensor.name}: {wrong}"


@kind(
    formula="x[N, N]; y[i] = sum[j](x[i, j])",
    code="return x.diagonal()",
    words="sum over j",
    cost=1.6,
)
def find_diagonals(world: World, number: int) -> Iterator[Change]:
    """A sum left out, its index set to another one: a diagonal where a sum was meant."""
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
                words = f"SUM over {old.name}; a repeated index, {new.name}, takes a diagonal"
                yield world.change(site, made, words)


@kind(
    formula="q, k[N, D]; s[i, j] = sum[d](q[i, d] * k[j, d])",
    code="return torch.einsum('id,je->ij', q, k)",
    words="the index d is summed separately in",
    cost=2,
)
def find_separate_sums(world: World, number: int) -> Iterator[Change]:
    """An index of one operand summed by itself, not together with the others."""
    for site, access in find_access_sites(world, number):
        if not is_value(site):
            continue
        for index in find_indices(access):
            if index not in find_bound_above(site):
                continue
            fresh = find_fresh(index, *site.above[:1], access)
            alone = Reduce("sum", (fresh,), TRUE, exchange_nodes(access, {index: fresh}))
            name = access.tensor.name
            words = f"the index {index.name} is summed separately in {name}: give it one name"
            yield world.change(site, alone, words)


def find_bound_above(site: Site) -> tuple[Index, ...]:
    """The indices that sums around a site bind."""
    return tuple(
        index
        for node in site.above
        if isinstance(node, Reduce) and node.kind == "sum"
        for index in node.bound
    )


@kind(
    formula="x[N, D]; W_Q, W_K[D, D]\n"
    "q[i, e] = sum[d](x[i, d] * W_Q[d, e])\nk[j, e] = sum[d](x[j, d] * W_K[d, e])\n"
    "s[i, j] = sum[e](q[i, e] * k[j, e])",
    code="q = x @ W_Q\nk = x @ W_Q\nreturn q @ k.T",
    words="use w_k, not w_q, in k",
    cost=1,
)
def find_other_tensors(world: World, number: int) -> Iterator[Change]:
    """Another tensor of the same shape and kind in one place."""
    name = world.name(number)
    for site, access in find_access_sites(world, number):
        for other in world.tensors(number):
            if other is access.tensor or not is_alike(world, other, access.tensor):
                continue
            words = f"USE {access.tensor.name}, not {other.name}, in {name}"
            yield world.change(site, Access(other, access.places), words)


def is_alike(world: World, one: Tensor, other: Tensor) -> bool:
    """Can one tensor stand where the other does?"""
    return one.kind == other.kind and world.shape(one) == world.shape(other)


@kind(
    formula="q, k, v[N, D]; z[i, d] = sum[j](sum[e](q[i, e] * k[j, e]) * v[j, d])",
    code="return (q @ v.T) @ k",
    words="exchange k and v",
    cost=1.2,
)
def find_exchanged_tensors(world: World, number: int) -> Iterator[Change]:
    """Two tensors exchanged in one equation, and at the first one, two inputs everywhere."""
    here = {access.tensor for _, access in find_access_sites(world, number)}
    readable = [tensor for tensor in world.tensors(number) if tensor in here]
    for one, two in combinations(readable, 2):
        if is_alike(world, one, two):
            new = exchange(world.system.equations[number], {one: two, two: one})
            words = f"EXCHANGE {one.name} and {two.name} in {world.name(number)}"
            yield Change(world.with_equation(number, new), words, number)
    if number == 0:
        for one, two in combinations(world.tensors(len(world.system.equations)), 2):
            if is_alike(world, one, two):
                pair = {one: two, two: one}
                new_ones = tuple(exchange(each, pair) for each in world.system.equations)
                words = f"EXCHANGE {one.name} and {two.name}"
                yield Change(world.with_equations(new_ones), words, number)


def exchange(equation: Equation, new: Mapping[Tensor, Tensor]) -> Equation:
    """The equation with other tensors read."""

    def act(expr: Expr) -> Expr:
        if isinstance(expr, Access) and expr.tensor in new:
            return Access(new[expr.tensor], expr.places)
        return expr

    return Equation(equation.target, rewrite_bottom_up(equation.value, act))


@kind(
    formula="x[N, D]; W[D, D]; y[n, e] = sum[d](x[n, d] * W[d, e])\n"
    "z[n, e] = sum[d](y[n, d] * W[e, d])",
    code="y = x @ W\nreturn y",
    words="add the last step",
    cost=1.5,
)
def find_other_results(world: World, number: int) -> Iterator[Change]:
    """Results of other equations: the last steps left out, or two results exchanged."""
    system = world.system
    if number != len(system.equations) - 1:
        return
    known = world.tensors(len(system.equations))
    for at, result in enumerate(system.results):
        for other in known:
            if other is result or other.kind != result.kind or other in world.inputs:
                continue
            results = (*system.results[:at], other, *system.results[at + 1 :])
            made = world.with_equations(system.equations, results)
            yield Change(made, _say_result(world, result, other), number)
    for order in permutations(system.results):
        if order != system.results:
            words = f"EXCHANGE the results: return {', '.join(t.name for t in system.results)}"
            yield Change(world.with_equations(system.equations, order), words, number)


def _say_result(world: World, result: Tensor, other: Tensor) -> str:
    """The steps between what is returned and what should be."""
    names = [equation.target.tensor.name for equation in world.system.equations]
    first = names.index(other.name) + 1 if other.name in names else 0
    steps = [show(e, e.target.tensor.name) for e in world.system.equations[first:]]
    after = dict(zip(names[first:], steps, strict=True))
    words = f"RETURN {result.name}, not {other.name}"
    return f"{words}: ADD the last step, {after[result.name]}" if result.name in after else words
