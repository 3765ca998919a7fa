"""Edits of softmax, sums and means: over another index, of another kind, left out."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from derive.checker.edits.sites import (
    Change,
    Site,
    World,
    exchange_nodes,
    find_fresh,
    is_value,
    kind,
    show,
)
from derive.ir.nodes import (
    MINUS_ONE,
    ONE,
    TRUE,
    ZERO,
    Access,
    Add,
    Along,
    Call,
    Equation,
    Expr,
    Index,
    Mul,
    Pow,
    Reduce,
    Size,
    Tensor,
    Where,
)
from derive.ir.walk import find_free, rewrite_bottom_up, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS = ("sum", "mean", "max", "min", "prod", "logsumexp")


def find_rows(world: World, number: int) -> Iterator[tuple[Site, Along]]:
    """The sites of functions along an index."""
    for site in world.sites[number]:
        if isinstance(site.node, Along):
            yield site, site.node


def find_reductions(world: World, number: int) -> Iterator[tuple[Site, Reduce]]:
    """The sites of sums, means and the like."""
    for site in world.sites[number]:
        if isinstance(site.node, Reduce) and is_value(site):
            yield site, site.node


@kind(
    formula="e[B, N, H]; p[b, n, h] = softmax[n](e[b, n, h])",
    code="return e.softmax(-1)",
    words="softmax over n, not h",
    cost=1,
)
def find_other_rows(world: World, number: int) -> Iterator[Change]:
    """A softmax or a cumulative sum along another index."""
    for site, node in find_rows(world, number):
        for index in dict.fromkeys((*find_free(node.body), *find_free(node.condition))):
            if index is not node.index:
                new = Along(node.kind, index, node.condition, node.body)
                words = f"{node.kind.upper()} over {node.index.name}, not {index.name}"
                yield world.change(site, new, words)
        indices = find_free(node.body)
        if len(indices) > 1 and node.kind == "softmax":
            total = Reduce("sum", indices, node.condition, Call("exp", (node.body,)))
            new_one = Mul((Call("exp", (node.body,)), Pow(total, MINUS_ONE)))
            words = f"SOFTMAX over {node.index.name} alone, not over all indices"
            yield world.change(site, new_one, words, 0.5)


@kind(
    formula="x[B, N, D]; y[b, n, d] = x[b, n, d] - mean[k](x[b, n, k])",
    code="return x - x.mean(1, keepdim=True)",
    words="mean over k, not n",
    cost=1.3,
)
def find_other_bound(world: World, number: int) -> Iterator[Change]:
    """A reduction over an index that it should have kept, beside what it is part of."""
    for site, node in find_reductions(world, number):
        for old, kept in product(node.bound, find_free(node)):
            beside = [i for i in site.scope if world.extent(i) == world.extent(old)]
            for free in beside:
                fresh = find_fresh(kept, node, *site.above[:1])
                if free in find_free(node) and free is not kept:
                    continue
                bound = tuple(fresh if index is old else index for index in node.bound)
                pair: dict[Expr, Expr] = {old: free, kept: fresh}
                condition, body = (exchange_nodes(p, pair) for p in (node.condition, node.body))
                words = f"{node.kind.upper()} over {old.name}, not {kept.name}"
                yield world.change(site, Reduce(node.kind, bound, condition, body), words)


@kind(
    formula="x[B, N, D]; m[b, n] = mean[k](x[b, n, k]); y[b, n, d] = x[b, n, d] - m[b, n]",
    code="m = x.mean(1, keepdim=True)\nreturn x - m",
    words="mean over k, not n",
    cost=1.4,
)
def find_other_bound_of_equations(world: World, number: int) -> Iterator[Change]:
    """The same where the reduction has an equation of its own, which keeps another index then."""
    equation = world.system.equations[number]
    places = equation.target.places
    indices = [place for place in places if isinstance(place, Index)]
    if len(indices) != len(places):
        return
    for site, node in find_reductions(world, number):
        for old, kept in product(node.bound, indices):
            if kept not in find_free(node) or world.extent(old) == world.extent(kept):
                continue
            bound = tuple(kept if index is old else index for index in node.bound)
            value = site.put(Reduce(node.kind, bound, node.condition, node.body))
            new = tuple(old if index is kept else index for index in indices)
            words = f"{node.kind.upper()} over {old.name}, not {kept.name}"
            made = _move_target(world, number, new, value)
            if made is not None:
                yield Change(made.system, words, number)


def _move_target(
    world: World, number: int, indices: tuple[Index, ...], value: Expr
) -> Change | None:
    """The formula in which an equation keeps other indices, read by their extents later on."""
    old = world.system.equations[number].target
    tensor = Tensor(old.tensor.name, tuple(i.extent for i in indices), old.tensor.kind)
    made = [*world.system.equations[:number], Equation(Access(tensor, indices), value)]
    for equation in world.system.equations[number + 1 :]:
        scope = tuple(node for node in walk(equation.value) if isinstance(node, Index))

        def act(expr: Expr, scope: tuple[Index, ...] = scope) -> Expr:
            if isinstance(expr, Access) and expr.tensor is old.tensor:
                pairs = zip(old.places, indices, expr.places, strict=True)
                places = (
                    there
                    if was is now
                    else next((i for i in scope if world.extent(i) == world.extent(now)), there)
                    for was, now, there in pairs
                )
                return Access(tensor, tuple(places))
            return expr

        made.append(Equation(equation.target, rewrite_bottom_up(equation.value, act)))
    results = tuple(tensor if t is old.tensor else t for t in world.system.results)
    return Change(world.with_equations(tuple(made), results), "", number)


@kind(
    formula="x[N, D]; y[n] = var[d](x[n, d])",
    code="return x.var(-1)",
    words="biased variance (correction=0)",
    cost=1,
)
def find_other_variance(world: World, number: int) -> Iterator[Change]:
    """A variance divided by N - 1, or the contrary."""
    for site, node in find_reductions(world, number):
        if node.kind in {"var", "sample_var"}:
            biased = node.kind == "var"
            other = Reduce("sample_var" if biased else "var", *_get_rest(node))
            words = "BIASED variance (correction=0)" if biased else "UNBIASED variance"
            yield world.change(site, other, f"{words} of {show(node.body)}")
        if node.kind == "mean" and len(node.bound) == 1 and node.condition == TRUE:
            (index,) = node.bound
            less = Pow(Add((index.extent, MINUS_ONE)), MINUS_ONE)
            new = Mul((Reduce("sum", *_get_rest(node)), less))
            words = f"BIASED variance (correction=0): divide by {show(index.extent)}, not less 1"
            yield world.change(site, new, words, 0.5)


def _get_rest(node: Reduce) -> tuple[tuple[Index, ...], Expr, Expr]:
    return (node.bound, node.condition, node.body)


@kind(
    formula="x[N, D]; y[n] = max[d](x[n, d])",
    code="return x.mean(-1)",
    words="max over d, not mean",
    cost=1.1,
)
def find_other_kinds(world: World, number: int) -> Iterator[Change]:
    """A sum where a mean is meant, a log-softmax where a softmax is, and so on."""
    for site, node in find_reductions(world, number):
        indices = ", ".join(index.name for index in node.bound)
        for other in _KINDS if node.kind in _KINDS else ():
            if other != node.kind:
                words = f"{node.kind.upper()} over {indices}, not {other}"
                extra = 0.0 if {node.kind, other} == {"sum", "mean"} else 0.4
                yield world.change(site, Reduce(other, *_get_rest(node)), words, extra)
        for index in node.bound if len(node.bound) > 1 and node.kind == "sum" else ():
            part = Mul((node, Pow(index.extent, MINUS_ONE)))
            yield world.change(site, part, f"SUM over {index.name}, not mean", 0.05)
    for along_site, row in find_rows(world, number):
        if row.kind in {"softmax", "log_softmax"}:
            kind_ = "log_softmax" if row.kind == "softmax" else "softmax"
            new = Along(kind_, row.index, row.condition, row.body)
            words = f"{row.kind.upper()} over {row.index.name}, not {kind_}"
            yield world.change(along_site, new, words)


@kind(
    formula="e[N, M]; v[M, D]; z[n, d] = sum[m](softmax[m](e[n, m]) * v[m, d])",
    code="return e @ v",
    words="softmax over m is missing",
    cost=2,
)
def find_missing_rows(world: World, number: int) -> Iterator[Change]:
    """No softmax at all, or one that is not normalised."""
    for site, node in find_rows(world, number):
        says = f"{node.kind.upper()} over {node.index.name}"
        yield world.change(site, node.body, f"{says} is missing")
        if node.kind == "softmax":
            over: Expr = Call("exp", (node.body,))
            if node.condition != TRUE:
                over = Mul((Where(node.condition, ONE, ZERO), over))
            yield world.change(site, over, f"{says} is missing: divide exp by its sum", 0.2)
        if node.kind == "cumsum" and node.condition == TRUE:
            whole = Reduce("sum", (node.index,), TRUE, node.body)
            yield world.change(site, whole, f"{says}, not its whole sum", 0.2)


@kind(
    formula="x[N, M]; bool m[M]; y[n] = mean[j, m[j]](x[n, j])",
    code="return (x * m).mean(-1)",
    words="divide by the count",
    cost=2,
)
def find_other_counts(world: World, number: int) -> Iterator[Change]:
    """A mean under a condition that is divided by the whole extent; a mean of several indices."""
    for site, node in find_reductions(world, number):
        if node.kind != "mean":
            continue
        total = Reduce("sum", *_get_rest(node))
        if node.condition != TRUE:
            whole = tuple(Pow(index.extent, MINUS_ONE) for index in node.bound)
            words = f"DIVIDE by the count of {show(node.condition)}, not by all"
            yield world.change(site, Mul((total, *whole)), words)
        if len(node.bound) > 1:
            for index in node.bound:
                if isinstance(index.extent, Size):
                    part = Mul((total, Pow(index.extent, MINUS_ONE)))
                    yield world.change(site, part, "MEAN over all of its indices")


@kind(
    formula="x[N, H, D]; y[n, d] = sum[h](x[n, h, d]**2)",
    code="for h in range(x.shape[1]):\n    y = x[:, h] ** 2\nreturn y",
    words="sum over h",
    cost=2,
)
def find_missing_sums(world: World, number: int) -> Iterator[Change]:
    """Only the last entry of a sum, or the first."""
    for site, node in find_reductions(world, number):
        for old in node.bound:
            rest = tuple(index for index in node.bound if index is not old)
            last = Add((old.extent, MINUS_ONE))
            for place, which in ((last, "last"), (ZERO, "first")):
                condition, body = (
                    exchange_nodes(p, {old: place}) for p in (node.condition, node.body)
                )
                made = Reduce(node.kind, rest, condition, body) if rest else body
                words = f"{node.kind.upper()} over {old.name}: only the {which} is kept"
                yield world.change(site, made, words)
