"""What the operations of a plan cost, as polynomials over sizes."""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import TYPE_CHECKING

from derive.ir.polynomial import Polynomial, add_all
from derive.plan.numbers import is_whole
from derive.plan.ops import (
    VIEWS,
    Along,
    Apply,
    Arrange,
    Cast,
    Cell,
    Choose,
    Einsum,
    Fill,
    Num,
    Op,
    Reduction,
    Source,
    args_of,
    axes_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from derive.ir.nodes import Index

SOFTMAX_FLOPS = 5  # a maximum, a difference, an exponential, a sum, a quotient for each element


def count_elements(indices: Iterable[Index]) -> Polynomial:
    """The product of the extents."""
    extents = (Polynomial.of(index.extent) for index in dict.fromkeys(indices))
    return reduce(Polynomial.__mul__, extents, Polynomial.of(1))


def find_flops(op: Op) -> Polynomial:
    """Operations on numbers that one tensor operation makes, views and masks for nothing."""
    match op:
        case Einsum(args, axes):
            spanned = dict.fromkeys(i for arg in args for i in axes_of(arg))
            each = 2 if len(args) > 1 and set(spanned) != set(axes) else 1
            return count_elements(spanned) * Polynomial.of(each)
        case Along():
            return count_elements(axes_of(op)) * Polynomial.of(SOFTMAX_FLOPS)
        case Reduction(kind, arg, _):
            each = {"logsumexp": 4, "var": 3, "sample_var": 3}.get(kind, 1)
            return count_elements(axes_of(arg)) * Polynomial.of(each)
        case Apply() | Choose() | Fill() | Cast():
            return count_elements(find_true_axes(op))
        case Cell(volume=volume) if volume:
            return count_elements(volume)
        case Cell(_, args, whole):
            return add_all(map(find_flops, find_inner(whole, args)))
        case _:
            return Polynomial({})


def find_inner(whole: Op, given: tuple[Op, ...]) -> tuple[Op, ...]:
    """The operations of a cell, each once, without what it is given."""
    return tuple(dict.fromkeys(_walk_inner(whole, given)))


def _walk_inner(whole: Op, given: tuple[Op, ...]) -> Iterator[Op]:
    if whole not in given:
        yield whole
        for arg in args_of(whole):
            yield from _walk_inner(arg, given)


@lru_cache(maxsize=1 << 14)
def find_true_axes(op: Op) -> tuple[Index, ...]:
    """The axes without those that have size 1 for alignment."""
    match op:
        case Arrange(arg, _):
            return find_true_axes(arg)
        case Apply() | Choose() | Fill():
            parts = (i for arg in args_of(op) for i in find_true_axes(arg))
            return tuple(dict.fromkeys(parts))
        case _:
            return axes_of(op)


@lru_cache(maxsize=1 << 14)
def find_kept(op: Op) -> Polynomial:
    """Elements that the result keeps alive: none where it is a view.

    An integer is as long as two. Numbers that are cast from a wider dtype, to spare half precision,
    are in float32 what they are.
    """
    if isinstance(op, (*VIEWS, Num)) or (isinstance(op, Cast) and _is_wide(op.arg)):
        return Polynomial({})
    each = 2 if is_whole(op) else 1
    return count_elements(find_true_axes(op)) * Polynomial.of(each)


def _is_wide(op: Op) -> bool:
    """Does it read a running value?"""
    if isinstance(op, Source):
        return op.kind == "wide"
    return any(map(_is_wide, args_of(op)))


def find_scratch(op: Op) -> tuple[tuple[Index, ...], ...]:
    """The indices of each tensor that torch makes for itself, beside the result and copies."""
    match op:
        case Cell():
            return op.scratch
        case Reduction("logsumexp", arg, _):
            return (find_true_axes(arg),)
        case Reduction("prod", arg, over):  # one index after the other, the last one first
            axes = axes_of(arg)
            last = max(axes.index(i) for i in over)
            return ((*axes[:last], *axes[last + 1 :]),) if len(over) > 1 else ()
        case Apply("/", (Num(), under)):  # the reciprocal, times the number
            return (find_true_axes(under),)
        case _:
            return ()
