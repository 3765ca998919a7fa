"""Losses: logsumexp_c(x) - x[c] is torch's cross_entropy with integer classes.

The class of row i may be i, as in a contrastive loss. A sum or mean over the rows is part of the
call.
"""

from itertools import product
from typing import Any

from derive.ir import nodes as ir
from derive.ir.walk import substitute
from derive.plan import ops
from derive.plan.cells.matching import PLAIN, Definitions, is_equal, strip
from derive.plan.lower.contraction import negate_op
from derive.plan.lower.patterns import make_cell
from derive.plan.meaning import to_expr


def match_labels(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """The cross-entropy of logits with one class per row as cross_entropy, or None."""
    if not isinstance(op, (ops.Apply, ops.Reduction)):
        return None
    whole = _inline_entries(op, definitions)
    parts = dict.fromkeys(ops.walk_ops(whole))
    takes = [part for part in parts if isinstance(part, ops.Take) and not ops.is_integral(part)]
    has_diagonal = any(isinstance(part, ops.Diagonal) for part in parts)
    for part in parts if takes or has_diagonal else ():
        match definitions.inline_single_use(part):
            case ops.Reduction("logsumexp", logits, (index,)) as opened if opened is part:
                each = (to_expr(part), ir.Mul((ir.MINUS_ONE, to_expr(logits))))
            case ops.Along("log_softmax", logits, index) if isinstance(part, ops.Source):
                each = (ir.ZERO, ir.Mul((ir.MINUS_ONE, to_expr(part))))
            case _:
                continue
        rows = tuple(i for i in logits.axes if i is not index)
        classes: list[ops.Op | ir.Index] = [strip(by) for take in takes for by in take.by]
        classes = [c for c in classes if isinstance(c, ops.Source) and set(c.axes) == set(rows)]
        if has_diagonal and len(rows) == 1 and rows[0].extent == index.extent:
            classes.append(rows[0])  # row i has class i
        for labels in dict.fromkeys(classes) if rows else ():
            label = labels if isinstance(labels, ir.Index) else to_expr(labels)
            row = ir.Add(tuple(substitute(term, {index: label}) for term in each))
            losses: dict[str, ir.Expr] = {"none": row} if {*op.axes} == {*rows} else {}
            if not op.axes:
                losses = {end: ir.Reduce(end, rows, ir.TRUE, row) for end in ("sum", "mean")}
            for (end, loss), value in product(losses.items(), (whole, negate_op(whole))):
                if is_equal(to_expr(value), loss):
                    order = (rows[0], index, *rows[1:])  # torch has the classes second
                    given: dict[str, Any] = {"x": ops.arrange(strip(logits), order)}
                    text = "torch.arange(t, device=device)"
                    if isinstance(labels, ir.Index):
                        given["t"] = ops.Num(labels.extent)
                    else:
                        text = "t.long()"  # torch requires int64
                        given["t"] = ops.arrange(labels, rows)
                    given["end"] = None if end == "mean" else end
                    text = f"torch.nn.functional.cross_entropy(x, {text}, reduction=end)"
                    made = rows if op.axes else ()
                    bare = ops.arrange(value, made)
                    cell: ops.Op = make_cell(text, given, bare, made, scratch=(order,))
                    cell = cell if value is whole else ops.Apply("neg", (cell,), made)
                    return ops.arrange(cell, op.axes)
    return None


def _inline_entries(op: ops.Op, definitions: Definitions) -> ops.Op:
    """Inline plain steps and gathers with a single reader, and `Iota` steps with any number."""
    if isinstance(op, ops.Source):
        inside = definitions.definition_of(op)
        opened = inside if isinstance(inside, ops.Iota) else definitions.inline_single_use(op)
        is_opened = opened is not op and isinstance(opened, (*PLAIN, ops.Take, ops.Iota))
        return _inline_entries(opened, definitions) if is_opened else op
    return ops.with_args(op, tuple(_inline_entries(arg, definitions) for arg in op.args))
