"""Reductions over bound indices, and functions along an index that stays free."""

from __future__ import annotations

from itertools import chain
from math import inf, prod
from typing import TYPE_CHECKING, Any

from derive.ir.functions import ROWS
from derive.ir.nodes import ONE, TRUE, ZERO, Along, Expr, Index, Mul, Reduce, Where
from derive.judge.evaluate.grid import Grid, align, place, spread

if TYPE_CHECKING:
    from derive.judge.evaluate.grid import Evaluator

_LEFT_OUT = {word: float(row.left_out.replace("oo", "inf") or 0) for word, row in ROWS.items()}


def reduce(evaluator: Evaluator, expr: Reduce) -> Grid:
    """The body reduced over its bound indices wherever the condition holds."""
    if expr.kind == "sum" and expr.condition == TRUE:
        return _sum(evaluator, expr.body, expr.bound)
    body, mask, free = _spread_rows(evaluator, expr.bound, expr.condition, expr.body)
    rows = tuple(range(len(free), len(free) + len(expr.bound)))
    if not expr.bound:
        rows = ()
    if expr.kind in {"mean", "var", "sample_var"}:
        return Grid(_find_moment(expr.kind, body, mask, rows), free)
    return Grid(_reduce_rows(expr.kind, body, mask, rows), free)


def _spread_rows(
    evaluator: Evaluator, bound: tuple[Index, ...], condition: Expr, body: Expr
) -> tuple[Any, Any, tuple[Index, ...]]:
    """The body and the mask, the bound indices last, and the indices before them."""
    grid, mask = evaluator.find(body), evaluator.condition(condition)
    free = tuple(dict.fromkeys(i for i in (*grid.indices, *mask.indices) if i not in bound))
    order = (*free, *bound)
    return spread(grid, order, evaluator), spread(mask, order, evaluator), free


def _reduce_rows(kind: str, body: Any, mask: Any, rows: tuple[int, ...]) -> Any:
    import torch

    if not bool(mask.all()):
        body = torch.where(mask, body, torch.full_like(body, _LEFT_OUT[kind]))
    match kind:
        case "sum":
            return body.sum(rows) if rows else body
        case "prod":
            for row in reversed(rows):
                body = body.prod(row)
            return body
        case "max":
            return body.amax(rows) if rows else body
        case "min":
            return body.amin(rows) if rows else body
        case "logsumexp":
            return torch.logsumexp(body, rows)
    flat = body.flatten(rows[0]) if len(rows) > 1 else body
    return torch.argmax(flat, rows[0])


def _find_moment(kind: str, body: Any, mask: Any, rows: tuple[int, ...]) -> Any:
    import torch

    count = mask.double().sum(rows)
    kept = torch.where(mask, body, torch.zeros_like(body))
    mean = kept.sum(rows) / count
    if kind == "mean":
        return mean
    for row in rows:
        mean = mean.unsqueeze(row)
    off = torch.where(mask, body - mean, torch.zeros_like(body))
    if kind == "sample_var":
        count = (count - 1).clamp(min=0)  # of nothing nan, as of one entry
    return (off * off).sum(rows) / count


def _sum(evaluator: Evaluator, body: Expr, bound: tuple[Index, ...]) -> Grid:
    """A sum of products, one index at a time, the one that leaves the smallest product first."""
    guards, factors = split_guards((body,))
    for factor in factors:
        if isinstance(factor, Mul):
            guards, factors = split_guards(factors)
    grids = [evaluator.find(factor) for factor in factors]
    if guards:
        whole = evaluator.guard(guards, multiply(evaluator, grids))
        return _sum_out(evaluator, [whole], bound)
    return _sum_out(evaluator, grids, bound)


def multiply(evaluator: Evaluator, grids: list[Grid]) -> Grid:
    """The product of the grids; 1 if there is none."""
    import torch

    if not grids:
        return Grid(torch.ones((), dtype=torch.float64), ())
    parts, indices = align(grids)
    found = parts[0]
    for part in parts[1:]:
        found = found * part
    return Grid(found, indices)


def _sum_out(evaluator: Evaluator, grids: list[Grid], bound: tuple[Index, ...]) -> Grid:
    left = list(bound)
    while left:
        index = min(left, key=lambda each: _count_elements(evaluator, grids, each))
        left.remove(index)
        inside = [grid for grid in grids if index in grid.indices]
        product = multiply(evaluator, inside)
        if not inside:  # a sum of equal terms, as many as the extent has
            product = Grid(product.tensor.expand(evaluator.extent(index.extent)), (index,))
        rest = tuple(other for other in product.indices if other != index)
        summed = Grid(place(product, (*rest, index)).sum(-1), rest)
        grids = [*(grid for grid in grids if index not in grid.indices), summed]
    return multiply(evaluator, grids)


def _count_elements(evaluator: Evaluator, grids: list[Grid], index: Index) -> int:
    inside = chain.from_iterable(grid.indices for grid in grids if index in grid.indices)
    return prod(evaluator.extent(each.extent) for each in dict.fromkeys(inside))


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


def along(evaluator: Evaluator, expr: Along) -> Grid:
    """softmax, log_softmax or cumsum along an index; entries left out have no part."""
    import torch

    body, mask, free = _spread_rows(evaluator, (expr.index,), expr.condition, expr.body)
    order = (*free, expr.index)
    if not body.is_floating_point():  # integers, of an argmax or of a tensor of them
        body = body.to(torch.float64)
    if expr.kind == "cumsum":
        return Grid(torch.where(mask, body, torch.zeros_like(body)).cumsum(-1), order)
    if expr.condition != TRUE:
        body = torch.where(mask, body, torch.full_like(body, -inf))
    if expr.kind == "log_softmax":
        return Grid(torch.log_softmax(body, -1), order)
    found = torch.softmax(body, -1)
    if evaluator.empty_row == "zeros":
        nothing = (body == -inf).all(-1, keepdim=True)
        found = torch.where(nothing, torch.zeros_like(found), found)
    return Grid(found, order)
