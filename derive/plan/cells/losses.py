"""Losses: logsumexp_c(x) - x[c] is torch's cross_entropy with integer classes.

The class of row i may be i, as in a contrastive loss. A sum or mean over the rows is part of the
call. The other losses are elementwise:

    binary_cross_entropy_with_logits    y softplus(-x) + (1 - y) softplus(x)
    huber_loss                          d**2/2 where |d| < c, else c (|d| - c/2)
    smooth_l1_loss                      huber_loss / c
"""

from collections.abc import Iterable
from fractions import Fraction

from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import substitute
from derive.plan import ops
from derive.plan.calls import CellArgument, Condition, LocalName, Operand, TorchCall
from derive.plan.cells.matching import (
    PLAIN,
    CellRule,
    Definitions,
    Signed,
    expand_stored,
    is_equal,
    is_same,
    join_product,
    join_sum,
    split_product,
    split_sum,
    strip,
)
from derive.plan.cost import find_true_axes
from derive.plan.lower.contraction import negate
from derive.plan.meaning import to_expr

_NN = "torch.nn.functional"
NAME = f"{_NN}.cross_entropy"
ENTROPY, LOGARITHM = f"{_NN}.binary_cross_entropy_with_logits", f"{_NN}.logsigmoid"
SMOOTH, HUBER = f"{_NN}.smooth_l1_loss", f"{_NN}.huber_loss"
LACKS = "a logit of -oo makes it nan, and what is near 0 has the digits of the logit"
NONE = ("reduction", "none")
GIVEN = tuple(map(CellArgument, range(3)))
TWO = ir.Number(Fraction(2))


def match_labels(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """Match the cross-entropy of logits with one class per row."""
    if not isinstance(op, (ops.Apply, ops.Reduction)):
        return None
    whole = _inline_entries(op, definitions)
    parts = dict.fromkeys(ops.walk_ops(whole))
    takes = [part for part in parts if isinstance(part, ops.Take) and not ops.is_integral(part)]
    has_diagonal = any(isinstance(part, ops.Diagonal) for part in parts)
    for part in parts if takes or has_diagonal else ():
        each: tuple[ir.Expr, ...]
        match definitions.inline_single_use(part):
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
            classes.append(rows[0])  # row i has class i
        for labels in dict.fromkeys(classes) if rows else ():
            label = labels if isinstance(labels, ir.Index) else to_expr(labels)
            row = ir.Add(tuple(substitute(term, {index: label}) for term in each))
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
                    target: Operand = CellArgument(1)
                    if isinstance(labels, ir.Index):
                        device = (("device", LocalName("device")),)
                        target = TorchCall("torch.arange", (target,), device)
                        args.append(ops.Num(labels.extent))
                    else:
                        target = TorchCall(".long", (target,))  # torch requires int64
                        args.append(ops.arrange(labels, rows))
                    call = _write_call(target, "" if end == "mean" else end)
                    bare = ops.arrange(whole, made)
                    bare = bare if sign else negate(bare)
                    cell: ops.Op = ops.Cell(call, tuple(args), bare, made, scratch=(order,))
                    cell = cell if sign else ops.Apply("neg", (cell,), made)
                    return ops.arrange(cell, ops.axes_of(op))
    return None


def _inline_entries(op: ops.Op, definitions: Definitions) -> ops.Op:
    """Inline plain steps with a single reader, and positions whoever reads them."""
    if isinstance(op, ops.Source):
        inside = definitions.definition_of(op)
        opened = inside if isinstance(inside, ops.Iota) else definitions.inline_single_use(op)
        is_opened = opened is not op and isinstance(opened, (*PLAIN, ops.Take, ops.Iota))
        return _inline_entries(opened, definitions) if is_opened else op
    return ops.with_args(op, tuple(_inline_entries(arg, definitions) for arg in ops.args_of(op)))


def _write_call(target: Operand, reduction: str) -> TorchCall:
    keywords = (("reduction", reduction),) if reduction else ()
    return TorchCall(NAME, (CellArgument(0), target), keywords)


def match_binary_entropy(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """Match the cross-entropy of two classes, or p softplus(-x) + q softplus(x) with any p and q.

    The latter is q x + (p + q) softplus(-x), with one logarithm; half precision has too few digits
    for that form. Torch's loss has no gradients by weights, so it is used for p + q = 1 only.
    """
    if not isinstance(op, ops.Apply) or definitions.exact:
        return None
    if op.function not in {"+", "-", "neg"}:
        return None
    match definitions.unwrap(op.args[0]):
        case ops.Reduction("sum" | "mean" as kind, arg, over) if op.function == "neg":
            entropy = match_binary_entropy(ops.Apply("neg", (arg,), ops.axes_of(arg)), definitions)
            return entropy and ops.arrange(ops.Reduction(kind, entropy, over), op.axes)
    terms = split_sum(op, definitions.unwrap)
    if len(terms) != 2:
        return None
    for first, second in (terms, terms[::-1]):
        found, left = (_split_softplus(term.op, definitions) for term in (first, second))
        if found is None or left is None:
            continue
        is_negative = first.negative is not found[2]
        if is_negative is not (second.negative is not left[2]):
            continue
        logits, (one, other) = left[0], (join_product(each[1], op.axes) for each in (found, left))
        if one is None or other is None or not _are_real((logits, one, other)):
            continue
        if not is_same(ops.Apply("neg", (logits,), ops.axes_of(logits)), found[0]):
            continue
        if {*find_true_axes(logits)} != {*op.axes}:
            continue
        args = tuple(expand_stored(each, op.axes) for each in (logits, one, other))
        soft = TorchCall(LOGARITHM, GIVEN[:1])
        parts = TorchCall("*", GIVEN[::2]), TorchCall("+", GIVEN[1:]), soft
        name, call = LOGARITHM, TorchCall("torch.addcmul", parts, (("value", -1),))
        if is_equal(to_expr(ops.combine("+", (one, other), op.axes)), ir.ONE):
            name, call, args = ENTROPY, TorchCall(ENTROPY, GIVEN[:2], (NONE,)), args[:2]
        turned = ops.Apply("neg", (args[0],), op.axes)
        pairs = zip((one, other), (turned, args[0]), strict=True)
        products = [
            ops.combine("*", (each, ops.Apply("softplus", (arg,), op.axes)), op.axes)
            for each, arg in pairs
        ]
        whole = join_sum([Signed(each) for each in products], op.axes)
        when: tuple[Condition, ...] = ("wide",) if name is LOGARITHM else ()
        note = f"{name}: {LACKS}"
        cell = ops.Cell(call, args, whole, op.axes, when, note=note)
        return ops.Apply("neg", (cell,), op.axes) if is_negative else cell
    return None


def _split_softplus(
    op: ops.Op, definitions: Definitions
) -> tuple[ops.Op, list[ops.Op], bool] | None:
    """Return (the argument of a softplus in a product, the other factors, is it negative)."""
    factors = split_product(op, definitions.unwrap)
    for k, factor in enumerate(factors.over if not factors.under else ()):
        others = [*factors.over[:k], *factors.over[k + 1 :]]
        match factor:
            case ops.Apply("softplus", (arg,)):
                return arg, others, factors.negative
            case ops.Apply("logsigmoid", (arg,), axes):
                terms = split_sum(arg, definitions.unwrap)
                is_turned = len(terms) == 1 and terms[0].negative
                turned = terms[0].op if is_turned else ops.Apply("neg", (arg,), axes)
                return ops.arrange(turned, axes), others, not factors.negative
    return None


def match_huber(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """Match half the square of a difference, continued linearly beyond a bound."""
    match op:
        case ops.Choose(condition, then, other, axes) if definitions.is_only_reader(op):
            pass
        case _:
            return None
    match definitions.inline_elementwise(definitions.definition_of(strip(condition))):
        case ops.Apply("<" | "<=", (ops.Apply("abs", (difference,)) as size, ops.Num(value))):
            bound = Polynomial.of(value).constant
        case _:
            return None
    match difference:
        case ops.Apply("-", parts) if bound and bound > 0 and _are_real(parts):
            number = ops.Num(ir.Number(bound))
        case _:
            return None
    square = ops.Apply("pow", (difference, ops.Num(TWO)), difference.axes)
    half = ops.Apply("*", (square, ops.Num(ir.Number(Fraction(1, 2)))), difference.axes)
    line = ops.Apply("-", (size, ops.Num(ir.Number(bound / 2))), difference.axes)
    scaled = ops.Apply("/", (half, number), axes), ops.Apply("*", (line, number), axes)
    given = definitions.inline_elementwise(then), definitions.inline_elementwise(other)
    name, keyword = SMOOTH, "beta"
    if not (is_same(given[0], scaled[0]) and is_same(given[1], line)):
        name, keyword = HUBER, "delta"
        if not (is_same(given[0], half) and is_same(given[1], scaled[1])):
            return None
    keywords = (NONE,) if bound == 1 else (NONE, (keyword, CellArgument(2)))
    call = TorchCall(name, (CellArgument(0), CellArgument(1)), keywords)
    args = tuple(expand_stored(part, axes) for part in parts)
    whole = ops.Choose(ops.Apply("<", (size, number), axes), *given, axes)
    return ops.Cell(call, args if bound == 1 else (*args, number), whole, axes)


def _are_real(parts: Iterable[ops.Op]) -> bool:
    """Whether all operands are real tensors."""
    return not any(
        isinstance(p, ops.Num) or ops.is_boolean(p) or ops.is_integral(p) or ops.is_complex(p)
        for p in parts
    )


CELLS = (
    CellRule(
        call=ENTROPY,
        computes="x, y[B, C]\n"
        "L = mean[b, c](y[b,c] * softplus(-x[b,c]) + (1 - y[b,c]) * softplus(x[b,c]))",
        refuses="x, y[B, C]; w[C]\n"
        "L = mean[b, c](w[c] * y[b,c] * softplus(-x[b,c]) + (1 - y[b,c]) * softplus(x[b,c]))",
        match=match_binary_entropy,
        lacks=LACKS,
    ),
    CellRule(
        call=LOGARITHM,
        computes="x, y[B, C]; w[C]\n"
        "z[b,c] = w[c] * y[b,c] * softplus(-x[b,c]) + (1 - y[b,c]) * softplus(x[b,c])",
        refuses="x, y[B, C]; w[C]\n"
        "z[b,c] = w[c] * y[b,c] * softplus(-x[b,c]) - (1 - y[b,c]) * softplus(x[b,c])",
        match=match_binary_entropy,
        lacks=LACKS,
    ),
    CellRule(
        call=SMOOTH,
        computes="x[N, D]; y[D]\nr[n,d] = abs(x[n,d] - y[d])\n"
        "L = mean[n, d](where(r[n,d] <= 1/2, r[n,d]**2, r[n,d] - 1/4))",
        refuses="x[N, D]; y[D]\nr[n,d] = abs(x[n,d] - y[d])\n"
        "L = mean[n, d](where(r[n,d] <= 1/2, r[n,d]**2, r[n,d] - 1/2))",
        match=match_huber,
    ),
    CellRule(
        call=HUBER,
        computes="x, y[N]\n"
        "z[n] = where(abs(x[n] - y[n]) < 2, (x[n] - y[n])**2 / 2, 2 * abs(x[n] - y[n]) - 2)",
        refuses="x, y[N]; scalar c = 2\n"
        "z[n] = where(abs(x[n] - y[n]) < c, (x[n] - y[n])**2 / 2, c * abs(x[n] - y[n]) - c**2 / 2)",
        match=match_huber,
    ),
    CellRule(
        call=NAME,
        computes="x[N, C]; int t[N] < C\nl[n,c] = log_softmax[c](x[n,c])\nL[n] = -l[n,t[n]]",
        refuses="x[N, C]; int t[N] < C\nL = mean[n](x[n,t[n]] + logsumexp[c](x[n,c]))",
        match=match_labels,
    ),
)
