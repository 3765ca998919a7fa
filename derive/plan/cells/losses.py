"""-sum_c p log_softmax_c(x) is torch's cross_entropy against probabilities.

And logsumexp_c(x) - x[c] is the one against classes: those of the diagonal, of a contrastive loss.
Its sum or its mean over the rows goes with it; the rows are those of one index. The mean of squared
differences is mse_loss.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from derive.ir.nodes import MINUS_ONE, TRUE, Add, Mul, Number, Reduce
from derive.ir.walk import substitute
from derive.plan.cells.matching import PLAIN, CellRule, is_equal, is_same, strip
from derive.plan.meaning import to_expr
from derive.plan.ops import (
    Along,
    Apply,
    Cell,
    Diagonal,
    Given,
    Iota,
    Local,
    Num,
    Op,
    Operand,
    Reduction,
    Source,
    Take,
    TorchCall,
    args_of,
    arrange,
    axes_of,
    is_boolean,
    is_integral,
    rename_indices,
    walk_ops,
    with_args,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.ir.nodes import Expr, Index
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


def match_labels(op: Op, definitions: Definitions) -> Op | None:
    """The loss of logits against the class that an integer tensor has for each row."""
    if not isinstance(op, (Apply, Reduction)):
        return None
    whole = _open_entries(op, definitions)
    parts = dict.fromkeys(walk_ops(whole))
    takes = [part for part in parts if isinstance(part, Take) and not is_integral(part)]
    for part in parts if takes else ():
        each: tuple[Expr, ...]
        match definitions.open(part):
            case Reduction("logsumexp", logits, (index,)) as opened if opened is part:
                each = (to_expr(part), Mul((MINUS_ONE, to_expr(logits))))
            case Along("log_softmax", logits, index) if isinstance(part, Source):
                each = (Mul((MINUS_ONE, to_expr(part))),)
            case _:
                continue
        rows = tuple(i for i in axes_of(logits) if i is not index)
        for labels in dict.fromkeys(strip(by) for take in takes for by in take.by):
            if not isinstance(labels, Source) or not rows or set(labels.axes) != set(rows):
                continue
            row = Add(tuple(substitute(term, {index: to_expr(labels)}) for term in each))
            ends: dict[str, Expr] = {"none": row, "sum": Reduce("sum", rows, TRUE, row)}
            ends["mean"] = Reduce("mean", rows, TRUE, row)
            for end, loss in ends.items():
                made = rows if end == "none" else ()
                if set(made) == set(axes_of(op)) and is_equal(to_expr(whole), loss):
                    order = (rows[0], index, *rows[1:])  # torch has the classes second
                    args = (arrange(strip(logits), order), arrange(labels, rows))
                    call = _make_call(Given(1), "" if end == "mean" else end)
                    cell = Cell(call, args, arrange(whole, made), made, scratch=(order,))
                    return arrange(cell, axes_of(op))
    return None


def _open_entries(op: Op, definitions: Definitions) -> Op:
    """The operation with steps that it alone reads written out, and positions wherever they are."""
    if isinstance(op, Source):
        inside = definitions.look(op)
        opened = inside if isinstance(inside, Iota) else definitions.open(op)
        is_opened = opened is not op and isinstance(opened, (*PLAIN, Take, Iota))
        return _open_entries(opened, definitions) if is_opened else op
    args = args_of(op)
    return with_args(op, tuple(_open_entries(arg, definitions) for arg in args)) if args else op


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
        computes="x[N, C]; int t[N] < C\nL = mean[n](logsumexp[c](x[n,c]) - x[n,t[n]])",
        refuses="x[N, C]; int t[N] < C\nL = mean[n](x[n,t[n]] - logsumexp[c](x[n,c]))",
        match=match_labels,
    ),
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
