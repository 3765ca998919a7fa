"""-sum_c p log_softmax_c(x) is torch's cross_entropy against probabilities.

And logsumexp_c(x) - x[c] is the one against classes: those of the diagonal, of a contrastive loss.
Its sum or its mean over the rows goes with it; the rows are those of one index.
"""

from __future__ import annotations

from derive.ir import nodes as ir
from derive.ir.walk import substitute
from derive.plan import ops
from derive.plan.cells.matching import PLAIN, CellRule, Definitions, is_equal, is_same, strip
from derive.plan.meaning import to_expr

NAME = "torch.nn.functional.cross_entropy"


def match_cross_entropy(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """The loss of each row, or of all, where nothing else reads the logarithms."""
    if (
        not isinstance(op, (ops.Apply, ops.Reduction))
        or len(ops.axes_of(op)) > 1
        or not definitions.is_alone(op)
    ):
        return None
    whole = definitions.spell(op)
    parts = dict.fromkeys(ops.walk_ops(whole))
    for logarithms in parts:
        along = definitions.open(logarithms)
        if not isinstance(along, ops.Along) or along.kind != "log_softmax":
            continue
        rows = tuple(i for i in ops.axes_of(along) if i is not along.index)
        if len(rows) != 1:
            continue
        axes = (*rows, along.index)
        logits = ops.arrange(strip(along.arg), axes)
        for given in dict.fromkeys(map(strip, parts)):  # what may be the probabilities
            if set(ops.axes_of(given)) != set(axes) or any(
                part is logarithms for part in ops.walk_ops(given)
            ):
                continue
            if ops.is_integral(given) or ops.is_boolean(given):
                continue  # torch takes no other probabilities
            for end in ("none", "sum", "mean"):
                loss = _spell(given, logarithms, rows, along.index, end)
                if ops.axes_of(loss) == ops.axes_of(op) and is_same(whole, loss):
                    # Without classes torch's own mean is nan, that of the rows is 0.
                    call = _make_call(ops.Given(1), "none" if end == "mean" else end)
                    call = ops.TorchCall(".mean", (call,)) if end == "mean" else call
                    args = logits, ops.arrange(given, axes)
                    plain = ops.Along(along.kind, logits, along.index)
                    bare = _spell(args[1], plain, rows, along.index, end)
                    # the logarithms, and their product with the probabilities
                    return ops.Cell(call, args, bare, ops.axes_of(bare), scratch=(axes, axes))
    return None


def _spell(
    given: ops.Op, logarithms: ops.Op, rows: tuple[ir.Index, ...], index: ir.Index, end: str
) -> ops.Op:
    """The losses of the rows, or their sum or mean."""
    axes = (*rows, index)
    pair = (ops.arrange(given, axes), ops.arrange(logarithms, axes))
    loss: ops.Op = ops.Reduction("sum", ops.Apply("*", pair, axes), (index,))
    loss = loss if end == "none" else ops.Reduction(end, loss, rows)
    return ops.Apply("neg", (loss,), ops.axes_of(loss))


def match_labels(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """The loss of logits against the class that an integer tensor has for each row."""
    if not isinstance(op, (ops.Apply, ops.Reduction)):
        return None
    whole = _open_entries(op, definitions)
    parts = dict.fromkeys(ops.walk_ops(whole))
    takes = [part for part in parts if isinstance(part, ops.Take) and not ops.is_integral(part)]
    has_diagonal = any(isinstance(part, ops.Diagonal) for part in parts)
    for part in parts if takes or has_diagonal else ():
        each: tuple[ir.Expr, ...]
        match definitions.open(part):
            case ops.Reduction("logsumexp", logits, (index,)) as opened if opened is part:
                each = (to_expr(part), ir.Mul((ir.MINUS_ONE, to_expr(logits))))
            case ops.Along("log_softmax", logits, index) if isinstance(part, ops.Source):
                each = (ir.Mul((ir.MINUS_ONE, to_expr(part))),)
            case _:
                continue
        rows = tuple(i for i in ops.axes_of(logits) if i is not index)
        classes: list[ops.Op | ir.Index] = [strip(by) for take in takes for by in take.by]
        classes = [c for c in classes if isinstance(c, ops.Source) and set(c.axes) == set(rows)]
        if has_diagonal and len(rows) == 1 and rows[0].extent == index.extent:
            classes.append(rows[0])  # row i is of class i
        for labels in dict.fromkeys(classes) if rows else ():
            told = labels if isinstance(labels, ir.Index) else to_expr(labels)
            row = ir.Add(tuple(substitute(term, {index: told}) for term in each))
            ends: dict[str, ir.Expr] = {"none": row, "sum": ir.Reduce("sum", rows, ir.TRUE, row)}
            ends["mean"] = ir.Reduce("mean", rows, ir.TRUE, row)
            for end, loss in ends.items():
                made = rows if end == "none" else ()
                if set(made) != set(ops.axes_of(op)):
                    continue
                signed = {True: to_expr(whole), False: ir.Mul((ir.MINUS_ONE, to_expr(whole)))}
                sign = next((s for s, value in signed.items() if is_equal(value, loss)), None)
                if sign is not None:
                    order = (rows[0], index, *rows[1:])  # torch has the classes second
                    args = [ops.arrange(strip(logits), order)]
                    target: ops.Operand = ops.Given(1)
                    if isinstance(labels, ir.Index):
                        device = (("device", ops.Local("device")),)
                        target = ops.TorchCall("torch.arange", (target,), device)
                        args.append(ops.Num(labels.extent))
                    else:
                        target = ops.TorchCall(".long", (target,))  # torch takes no others
                        args.append(ops.arrange(labels, rows))
                    call = _make_call(target, "" if end == "mean" else end)
                    bare = ops.arrange(whole, made)
                    bare = bare if sign else _negate(bare)
                    cell: ops.Op = ops.Cell(call, tuple(args), bare, made, scratch=(order,))
                    cell = cell if sign else ops.Apply("neg", (cell,), made)
                    return ops.arrange(cell, ops.axes_of(op))
    return None


def _negate(op: ops.Op) -> ops.Op:
    match op:
        case ops.Apply("-", (one, other), axes):
            return ops.Apply("-", (other, one), axes)
        case ops.Reduction("sum" | "mean" as kind, arg, over):
            return ops.Reduction(kind, _negate(arg), over)
        case _:
            return ops.Apply("neg", (op,), ops.axes_of(op))


def _open_entries(op: ops.Op, definitions: Definitions) -> ops.Op:
    """The operation with steps that it alone reads written out, and positions wherever they are."""
    if isinstance(op, ops.Source):
        inside = definitions.look(op)
        opened = inside if isinstance(inside, ops.Iota) else definitions.open(op)
        is_opened = opened is not op and isinstance(opened, (*PLAIN, ops.Take, ops.Iota))
        return _open_entries(opened, definitions) if is_opened else op
    args = ops.args_of(op)
    return ops.with_args(op, tuple(_open_entries(arg, definitions) for arg in args)) if args else op


def _make_call(target: ops.Operand, reduction: str) -> ops.TorchCall:
    keywords = (("reduction", reduction),) if reduction else ()
    return ops.TorchCall(NAME, (ops.Given(0), target), keywords)


CELLS = (
    CellRule(
        call=NAME,
        computes="x[N, C]; int t[N] < C\nL = mean[n](logsumexp[c](x[n,c]) - x[n,t[n]])",
        refuses="x[N, C]; int t[N] < C\nL = mean[n](x[n,t[n]] + logsumexp[c](x[n,c]))",
        match=match_labels,
    ),
    CellRule(
        call=NAME,
        computes="x[N, C]; p[N, C]\nL = -mean[n](sum[c](p[n,c] * log_softmax[c](x[n,c])))",
        refuses="x[N, C]; p[N, C]\nL = mean[n](sum[c](p[n,c] * log_softmax[c](x[n,c])))",
        match=match_cross_entropy,
    ),
)
