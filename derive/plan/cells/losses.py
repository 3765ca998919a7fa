"""-sum_c p log_softmax_c(x) is torch's cross_entropy against probabilities.

And logsumexp_c(x) - x[c] is the one against classes: those of the diagonal, of a contrastive loss.
Its sum or its mean over the rows goes with it; the rows are those of one index. The mean of squared
differences is mse_loss.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from derive.ir.nodes import Number
from derive.plan.cells.matching import CellRule, is_same, strip
from derive.plan.ops import (
    Along,
    Apply,
    Cell,
    Diagonal,
    Given,
    Local,
    Num,
    Op,
    Operand,
    Reduction,
    TorchCall,
    args_of,
    arrange,
    axes_of,
    is_boolean,
    is_integral,
    rename_indices,
    walk_ops,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.ir.nodes import Index
    from derive.plan.cells.matching import Definitions

NAME = "torch.nn.functional.cross_entropy"


def match_cross_entropy(op: Op, definitions: Definitions) -> Op | None:
    """The loss of each row, or of all, where nothing else reads the logarithms."""
    if (
        not isinstance(op, (Apply, Reduction))
        or len(axes_of(op)) > 1
        or not definitions.is_alone(op)
    ):
        return None
    whole = definitions.spell(op)
    cell = _match_diagonal(whole, axes_of(op))
    if cell is not None:
        return cell
    for logarithms, along in _find_logarithms(whole, definitions):
        rows = tuple(i for i in axes_of(along) if i is not along.index)
        if len(rows) != 1 or not set(axes_of(op)) <= set(rows):
            continue
        for given in _find_given(whole, logarithms, along):
            for end, loss in _list_losses(given, logarithms, rows, along.index):
                if axes_of(loss) == axes_of(op) and is_same(whole, loss):
                    return _make_cell(end, along, given, rows)
    return None


def _find_logarithms(whole: Op, definitions: Definitions) -> Iterator[tuple[Op, Along]]:
    """What stands for a log_softmax, and that log_softmax."""
    for part in dict.fromkeys(walk_ops(whole)):
        opened = definitions.open(part)
        if isinstance(opened, Along) and opened.kind == "log_softmax":
            yield part, opened


def _find_given(whole: Op, logarithms: Op, along: Along) -> Iterator[Op]:
    """What may be the probabilities: operations with the indices of the logarithms."""
    for part in dict.fromkeys(map(strip, walk_ops(whole))):
        is_wide = set(axes_of(part)) == set(axes_of(along))
        is_real = not is_integral(part) and not is_boolean(
            part
        )  # torch takes no other probabilities
        if is_wide and is_real and all(inner is not logarithms for inner in walk_ops(part)):
            yield part


def _list_losses(
    given: Op, logarithms: Op, rows: tuple[Index, ...], index: Index
) -> Iterator[tuple[str, Op]]:
    """What is made of the losses of the rows, and the losses."""
    axes = (*rows, index)
    pair = (arrange(given, axes), arrange(logarithms, axes))
    each = Reduction("sum", Apply("*", pair, axes), (index,))
    for end, loss in _list_ends(each, rows):
        yield end, Apply("neg", (loss,), axes_of(loss))


def _list_ends(each: Op, rows: tuple[Index, ...]) -> Iterator[tuple[str, Op]]:
    yield "none", each
    yield "sum", Reduction("sum", each, rows)
    yield "mean", Reduction("mean", each, rows)


def _match_diagonal(whole: Op, axes: tuple[Index, ...]) -> Cell | None:
    """The loss of logits whose row i is of class i."""
    for part in dict.fromkeys(walk_ops(whole)):
        if not isinstance(part, Reduction) or part.kind != "logsumexp":
            continue
        if len(axes_of(part)) != 1 or len(part.over) != 1:
            continue
        (row,), (column,) = axes_of(part), part.over
        if row.extent != column.extent or _binds(part.arg, (row, column)):
            continue
        logits = arrange(strip(part.arg), (row, column))
        own = rename_indices(Diagonal(logits, 0, 1), {column: row})
        each = Apply("-", (Reduction("logsumexp", logits, (column,)), own), (row,))
        for end, loss in _list_ends(each, (row,)):
            if axes_of(loss) == axes and is_same(whole, loss):
                classes = TorchCall("torch.arange", (Given(1),), (("device", Local("device")),))
                call = _make_call(classes, "" if end == "mean" else end)
                scratch = ((row, column),)
                return Cell(call, (logits, Num(row.extent)), loss, axes, scratch=scratch)
    return None


def _binds(op: Op, indices: tuple[Index, ...]) -> bool:
    """Does a part of it sum over one of them?"""
    return any(
        index in axes_of(arg) and index not in axes_of(part)
        for part in walk_ops(op)
        for arg in args_of(part)
        for index in indices
    )


def _make_cell(end: str, along: Along, given: Op, rows: tuple[Index, ...]) -> Cell:
    axes = (*rows, along.index)
    logits, target = arrange(strip(along.arg), axes), arrange(given, axes)
    losses = dict(_list_losses(target, Along(along.kind, logits, along.index), rows, along.index))
    # Without classes torch's own mean is nan, that of the rows is 0.
    each = _make_call(Given(1), "none" if end == "mean" else end)
    call = TorchCall(".mean", (each,)) if end == "mean" else each
    scratch = (axes, axes)  # the logarithms, and their product with the probabilities
    return Cell(call, (logits, target), losses[end], axes_of(losses[end]), scratch=scratch)


def _make_call(target: Operand, reduction: str) -> TorchCall:
    keywords = (("reduction", reduction),) if reduction else ()
    return TorchCall(NAME, (Given(0), target), keywords)


def match_squared_loss(op: Op, definitions: Definitions) -> Op | None:
    """The mean of the squared differences of two tensors over all their indices."""
    is_number = isinstance(op, (Apply, Reduction)) and not axes_of(op)
    if not is_number or not definitions.is_alone(op):
        return None
    whole = definitions.spell(op)
    for part in dict.fromkeys(walk_ops(whole)):
        if not isinstance(part, Apply) or part.function != "-":
            continue
        axes = part.axes
        pair = tuple(arrange(strip(arg), axes) for arg in part.args)
        if any(set(axes_of(arg)) != set(axes) or is_integral(arg) for arg in map(strip, part.args)):
            continue  # torch would warn of sizes that broadcast, and takes no integers
        difference = Apply("-", pair, axes)
        square = Apply("pow", (difference, Num(Number(Fraction(2)))), axes)
        mean = Reduction("mean", square, axes)
        if is_same(whole, mean):
            call = TorchCall("torch.nn.functional.mse_loss", (Given(0), Given(1)))
            return Cell(call, pair, mean, (), scratch=(axes,))
    return None


CELLS = (
    CellRule(
        call=NAME,
        computes="x[N, C]; p[N, C]\nL = -mean[n](sum[c](p[n,c] * log_softmax[c](x[n,c])))",
        refuses="x[N, C]; p[N, C]\nL = mean[n](sum[c](p[n,c] * log_softmax[c](x[n,c])))",
        match=match_cross_entropy,
    ),
    CellRule(
        call="torch.nn.functional.mse_loss",
        computes="x, y[N, D]\nL = mean[n,d]((x[n,d] - y[n,d])**2)",
        refuses="x, y[N, D]\nL = mean[n,d]((x[n,d] - y[n,d])**2 * x[n,d])",
        match=match_squared_loss,
    ),
)
