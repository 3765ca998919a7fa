"""Edits of names: one tensor used for another, two tensors exchanged, results of other names."""

from __future__ import annotations

from itertools import combinations, permutations
from typing import TYPE_CHECKING

from derive.checker.edits.indices import find_access_sites
from derive.checker.edits.kind import kind
from derive.checker.edits.sites import Change, World, show
from derive.ir.nodes import Access, Equation, Expr, Tensor
from derive.ir.walk import rewrite_bottom_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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
