"""Contractions as matrix products, which avoid the overhead of einsum."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from derive.ir import nodes as ir
from derive.plan import ops
from derive.plan.cost import find_true_axes


def find_matrices(args: Sequence[ops.Op], axes: tuple[ir.Index, ...]) -> tuple[ops.Op, ...]:
    """Both operands as `@` takes them, if the contraction is a matrix product; else ().

    The right operand is a matrix or a vector; the left one has the summed index last. Einsum calls
    bmm with a batch of one instead, which takes a tenth more time than mm, and several times as
    long as mv for small operands.
    """
    if len(args) != 2 or any({*find_true_axes(op)} != {*op.axes} for op in args):
        return ()
    for left, right in (args, args[::-1]):
        column = tuple(i for i in axes[-1:] if i in right.axes)
        rows = axes[: len(axes) - len(column)]
        summed = tuple(i for i in right.axes if i not in column)
        is_matrix = len(summed) == 1 and summed[0] not in axes and bool(rows or not column)
        if not is_matrix or set(left.axes) != {*rows, *summed}:
            continue
        if len(rows) == 1 and not column and left.axes == (*summed, *rows):
            return right, left  # the gradient then has the layout of the matrix
        if len(rows) == 1 or left.axes == (*rows, *summed):
            return ops.arrange(left, (*rows, *summed)), ops.arrange(right, (*summed, *column))
    return ()


def is_batched(args: Sequence[ops.Op], axes: tuple[ir.Index, ...]) -> bool:
    """Whether the contraction is a bmm of the operands without permutations.

    Einsum passes views to bmm, so gradients are views. If a tensor is read twice, torch cannot
    accumulate its gradients into a view in place.
    """
    if len(args) != 2 or any(len(find_true_axes(op)) != 3 for op in args):
        return False
    (one, row, summed), (other, again, column) = (arg.axes for arg in args)
    return one == other and summed == again and axes == (one, row, column)


def to_matmul(op: ops.Einsum) -> ops.Op:
    """A contraction as a matrix product, batched over indices of both operands and the result.

    Rows, columns and summed indices are merged into one axis each. Where a group is missing, the
    contraction may become a sum or an elementwise product.
    """
    args = [_sum_alone(arg, op, k) for k, arg in enumerate(op.args)]
    if len(args) == 1:
        return ops.arrange(args[0], op.axes)
    left, right = args
    if op.axes and op.axes[-1] in left.axes and op.axes[-1] not in right.axes:
        left, right = right, left
    both = [i for i in left.axes if i in right.axes]
    batch = tuple(i for i in op.axes if i in both)
    summed = tuple(i for i in right.axes if i in both and i not in batch)
    rows = tuple(i for i in op.axes if i in left.axes and i not in both)
    columns = tuple(i for i in op.axes if i in right.axes and i not in both)
    made: ops.Op
    if not summed:
        return ops.Apply("*", (ops.arrange(left, op.axes), ops.arrange(right, op.axes)), op.axes)
    if batch and not rows and not columns:
        axes = (*batch, *summed)
        made = ops.Apply("*", (ops.arrange(left, axes), ops.arrange(right, axes)), axes)
        return ops.arrange(ops.Reduction("sum", made, summed), op.axes)
    # without a batch, `@` also takes vectors, and several axes of rows
    unit = (ir.Index("1", ir.Number(Fraction(1))),) if batch else ()
    each = [(i,) for i in (batch or rows)]
    left = ops.merge(left, [*each, rows or unit, summed] if batch else [*each, summed])
    right = ops.merge(right, [*((i,) for i in batch), summed, columns or unit])
    axes = (*left.axes[:-1], *right.axes[len(batch) + 1 :])
    made = ops.Apply("@", (left, right), axes)
    for place, parts in ((len(axes) - 1, columns), (len(batch), rows if batch else unit)):
        if len(parts) > 1:
            made = ops.Unflatten(made, place, parts)
        elif not parts and unit:
            made = ops.Select(made, place, ir.Number(Fraction(0)))
    return ops.arrange(made, op.axes)


def _sum_alone(arg: ops.Op, op: ops.Einsum, number: int) -> ops.Op:
    """Operand `number` of `op`, without axes of size 1, summed over indices that only it has."""
    known = find_true_axes(arg)
    for place, index in reversed(list(enumerate(arg.axes))):
        if index not in known:
            arg = ops.Select(arg, place, ir.Number(Fraction(0)))
    others = {i for k, other in enumerate(op.args) if k != number for i in find_true_axes(other)}
    alone = tuple(i for i in arg.axes if i not in others and i not in op.axes)
    return ops.Reduction("sum", arg, alone) if alone else arg
