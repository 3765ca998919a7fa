"""Contractions fused with an addition: torch's linear, addmm and baddbmm; linear systems.

    linear    sum_d x[.., d] W[o, d] + b[o]
    addmm     beta c[n, m] + alpha sum_k A[n, k] B[k, m]
    baddbmm   beta c[b, n, m] + alpha sum_k A[b, n, k] B[b, k, m]
    solve     sum_j inverse(A)[i, j] b[j], and sum_i b[i] inverse(A)[i, j]
    logs      logsumexp_k(x[n, k] + y[k, m]), the logarithm of a product of exponentials

Torch adds while it multiplies, which saves a pass over the result. A system is solved by
elimination, at a third of the cost of an inverse, and with fewer digits lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import rename_apart
from derive.plan import ops
from derive.plan.calls import TorchCall
from derive.plan.cells.matching import (
    Signed,
    join_sum,
    list_pairs,
    rename_free_indices,
    split_scale,
    split_sum,
    strip,
)
from derive.plan.cost import find_copied, find_true_axes
from derive.plan.lower.condition import concatenate_parts, expand
from derive.plan.lower.patterns import make_cell, make_op, split_axes
from derive.plan.steps import Step, free_name, name_op

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from fractions import Fraction

    from derive.plan.cells.matching import Definitions

LOGS, WEIGHTS = "_log_product", "_exponentiate"  # functions of the file
FEW, MANY = 4, 1 << 11  # least rows, or least entries of a loop-invariant matrix, for logs to pay


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """A contraction over one index, of two matrices or of two batches of matrices."""

    one: ops.Op
    other: ops.Op
    batch: tuple[ir.Index, ...]
    rows: tuple[ir.Index, ...]
    summed: ir.Index
    columns: tuple[ir.Index, ...]

    @property
    def axes(self) -> tuple[ir.Index, ...]:
        """Return the indices of the result, in torch's order."""
        return (*self.batch, *self.rows, *self.columns)


def match_linear(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A contraction plus a term as linear, addmm or baddbmm, with any other terms; or None."""
    if not isinstance(op, ops.Apply) or op.function not in {"+", "-"} or op in definitions.refused:
        return None
    terms = split_sum(op, definitions.unwrap)
    for place, term in enumerate(terms):
        product, alpha = _read_product(term, op.axes, definitions)
        if product is None:
            continue
        others = [*terms[:place], *terms[place + 1 :]]
        for other in others:
            found = {*find_true_axes(other.op)}
            rest = [each for each in others if each is not other]
            near = []  # terms over the same indices as a small one are added to it first
            if found < {*op.axes}:
                near = [each for each in rest if {*find_true_axes(each.op)} <= found]
                rest = [each for each in rest if each not in near]
            added = Signed(join_sum([other, *near], op.axes)) if near else other
            cell = _write_fused_sum(product, alpha, added, definitions)
            if cell is not None:
                return ops.arrange(join_sum([Signed(cell), *rest], op.axes), op.axes)
    definitions.refused.update(_find_nested_sums(op, op.axes))
    return None


def match_log_product(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """logsumexp_k(x[n, k] + y[k, m]) as the logarithm of a product of exponentials, or None.

    In a loop, the exponential of a loop-invariant matrix is computed once.
    """
    match op:
        case ops.Reduction("logsumexp", arg, (index,)):
            terms = _split_logits(arg, definitions)
        case _:
            return None
    count, order = definitions.memory.count, (*op.axes, index)

    def rank_term(term: Signed) -> tuple[bool, int, bool]:
        axes = find_true_axes(term.op)
        return definitions.is_varying(term.op), count(axes), not {*op.axes[-1:]} <= {*axes}

    for base in sorted(terms, key=rank_term):
        own, varies = {*find_true_axes(base.op)}, definitions.is_varying(base.op)
        mine = [t for t in terms if {*find_true_axes(t.op)} <= own and rank_term(t)[0] <= varies]
        others = [t for t in terms if t not in mine]
        rows = {i for t in others for i in find_true_axes(t.op)}
        columns = tuple(i for i in find_true_axes(base.op) if i is not index)
        is_apart = index in own and rows & own == {index} and len(columns) == 1
        if not is_apart or {*op.axes} != {*columns, *rows} - {index}:
            continue
        kept = tuple(i for i in op.axes if i in rows)
        is_fixed = bool(definitions.varying) and not varies
        if count(kept) < FEW and not (is_fixed and count(tuple(own)) >= MANY):
            continue
        x = ops.arrange(join_sum(others, order), (*kept, index))
        y = ops.arrange(join_sum(mine, order), (index, *columns))
        given, wide = {"x": x, "y": y}, (*kept, index, *columns)
        if is_fixed:
            given["p"] = make_cell(f"{WEIGHTS}(y)", {"y": y}, ops.Apply("exp", (y,), y.axes))
        text = f"{LOGS}(x, y, {'p' if is_fixed else f'{WEIGHTS}(y)'})"
        whole = make_op("logsumexp[over](x + y)", wide, x=x, y=y, over=(index,))
        cell = make_cell(text, given, whole, volume=wide, scratch=(wide,))
        return ops.arrange(cell, op.axes)
    return None


def _split_logits(arg: ops.Op, definitions: Definitions) -> tuple[Signed, ...]:
    """Return the terms of a sum; a number that scales the sum is distributed over them."""
    match definitions.unwrap(arg):
        case ops.Apply("*" | "/" as function, (inner, number)) if not number.axes:
            terms = split_sum(inner, definitions.unwrap)
            scaled = (ops.Apply(function, (t.op, number), t.op.axes) for t in terms)
            return tuple(map(Signed, scaled, (t.negative for t in terms)))
    return split_sum(arg, definitions.unwrap)


def is_exponentials(op: ops.Op) -> bool:
    """Whether the operation is the exponential that `match_log_product` hoists out of a loop."""
    call = op.call if isinstance(op, ops.Cell) else None
    return isinstance(call, TorchCall) and call.function == WEIGHTS


def _find_nested_sums(op: ops.Op, order: tuple[ir.Index, ...]) -> Iterator[ops.Op]:
    """Yield the operands, at any depth, of a sum or difference whose axes are in this order."""
    for arg in op.args if isinstance(op, ops.Apply) and op.function in {"+", "-", "neg"} else ():
        if arg.axes == tuple(i for i in order if i in arg.axes):
            yield arg
            yield from _find_nested_sums(arg, order)


def _read_product(
    term: Signed, order: tuple[ir.Index, ...], definitions: Definitions
) -> tuple[MatrixProduct | None, Fraction]:
    """Return (the contraction that the term is, or None; the number that scales it)."""
    inner, alpha = split_scale(term, definitions)
    if not isinstance(inner, ops.Einsum) or len(inner.args) != 2:
        return None, alpha
    (one, first), (two, second) = (split_scale(Signed(arg)) for arg in inner.args)
    return _find_matrix_product(one, two, inner.axes, order), alpha * first * second


def _write_fused_sum(
    product: MatrixProduct, alpha: Fraction, other: Signed, definitions: Definitions
) -> ops.Op | None:
    """Return the call for a contraction plus a term; None if none fits, or it copies an operand."""
    addend, beta = split_scale(other)
    found, axes, summed = {*find_true_axes(addend)}, product.axes, product.summed
    x = ops.arrange(product.one, (*product.batch, *product.rows, summed))
    if alpha == beta == 1 and not product.batch and found == {*product.columns}:
        plain = ops.Einsum((product.one, product.other), axes)
        if len(product.rows) > 1 and product.one in find_copied(plain, definitions.memory):
            return None
        weight = ops.arrange(product.other, (*product.columns, summed))
        whole = ops.combine("+", (ops.Einsum((x, weight), axes), addend), axes)
        given = {"x": x, "weight": weight, "bias": addend}
        return make_cell("torch.nn.functional.linear(x, weight, bias)", given, whole)
    if len(product.batch) > 1 or len(product.rows) != 1 or not found or not found <= {*axes}:
        return None
    y = ops.arrange(product.other, (*product.batch, summed, *product.columns))
    added: dict[str, ops.Op | None] = {"c": ops.arrange(addend, axes), "x": x, "y": y}
    terms = []
    for name, op, number in (("beta", addend, beta), ("alpha", ops.Einsum((x, y), axes), alpha)):
        added[name] = None if number == 1 else ops.Num(ir.Number(number))
        size = ops.Num(ir.Number(abs(number)))
        scaled = op if abs(number) == 1 else ops.Apply("*", (op, size), op.axes)
        terms.append(Signed(scaled, number < 0))
    text = f"torch.{'baddbmm' if product.batch else 'addmm'}(c, x, y, beta=beta, alpha=alpha)"
    return make_cell(text, added, join_sum(terms, axes), axes)


def _find_matrix_product(
    left: ops.Op, right: ops.Op, axes: tuple[ir.Index, ...], order: tuple[ir.Index, ...]
) -> MatrixProduct | None:
    """Return a contraction by its indices' roles if one operand is a matrix or batch; else None."""
    for one, other in ((left, right), (right, left)):
        first, second = one.axes, other.axes
        shared = [i for i in first if i in second]
        summed = [i for i in shared if i not in axes]
        batch = tuple(i for i in order if i in shared and i in axes)
        rows = tuple(i for i in order if i in first and i not in second)
        columns = tuple(i for i in order if i in second and i not in first)
        kept = len(batch) + len(rows) + len(columns)
        is_alone = len(first) + len(second) != kept + len(batch) + 2  # summed in one operand only
        if len(summed) != 1 or len(columns) != 1 or kept != len(axes) or is_alone:
            continue
        if len(rows) != 1 or order.index(rows[0]) < order.index(columns[0]):
            return MatrixProduct(one, other, batch, rows, summed[0], columns)
    return None


SOLVE = "torch.linalg.solve"
MOST_SYSTEMS = 3  # systems with one matrix; for more, an inverse is cheaper


def match_solve(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A product with an inverse as solve; None if more than MOST_SYSTEMS contractions read it."""
    for one, other in list_pairs(op):
        found = _find_inverse(one, other, op.axes, definitions)
        if found is not None:
            return _write_solve(*found, other, op.axes)
    return None


def _find_inverse(
    one: ops.Op, other: ops.Op, axes: tuple[ir.Index, ...], definitions: Definitions
) -> tuple[ops.Along, ir.Index] | None:
    """Return (the inverse that `one` is, its summed index), if only that index is summed."""
    source = strip(one)
    matrix = strip(definitions.definition_of(source))
    if not isinstance(matrix, ops.Along) or matrix.kind != "inverse" or matrix.columns is None:
        return None
    inside = (matrix.index, matrix.columns)
    summed = [index for index in matrix.axes if index not in axes]
    if len(summed) != 1 or summed[0] not in inside or len(set(matrix.axes)) < 2:
        return None
    kept = inside[1] if summed[0] is inside[0] else inside[0]
    if summed[0] not in other.axes or kept in other.axes:
        return None
    if set(other.axes) - {summed[0]} - set(axes):
        return None
    if isinstance(source, ops.Source) and not _is_only_contracted(source, definitions):
        return None
    return matrix, summed[0]


def _is_only_contracted(source: ops.Source, definitions: Definitions) -> bool:
    """Whether all readers of the inverse contract one of its indices, and are few enough."""
    reads = [
        (arg, others)
        for step in definitions.steps.values()
        for part in ops.walk_ops(step.op)
        for arg, others in list_pairs(part)
        if isinstance(strip(arg), ops.Source)
        and strip(arg).name == source.name  # type: ignore[union-attr]
        and len(set(arg.axes) - set(part.axes)) == 1
        and len(set(arg.axes[-2:]) & set(others.axes)) == 1
    ]
    return len(reads) == definitions.count_reads(source.name) <= MOST_SYSTEMS


def _write_solve(
    matrix: ops.Along, summed: ir.Index, right: ops.Op, axes: tuple[ir.Index, ...]
) -> ops.Op:
    """Return the call of solve; several indices of right-hand sides are flattened to columns."""
    rows, columns = matrix.index, matrix.columns
    assert columns is not None
    batch = matrix.axes[:-2]
    own = tuple(i for i in axes if i in right.axes and i not in batch)
    from_right = summed is rows and len(own) == 1
    square = matrix.arg
    if summed is rows and not from_right:  # solve with the transpose
        rows, columns = columns, rows
        square = ops.arrange(square, (*batch, rows, columns))
    order = (*batch, *own, summed) if from_right else (*batch, summed, *own)
    right = ops.arrange(right, order) if own else expand(right, order)
    right = ops.Arrange(right, order) if right.axes != order else right
    merged = own
    if len(own) > 1:
        right = ops.flatten(right, len(batch) + 1, len(order) - 1)
        merged = right.axes[-1:]
    made = (*batch, *own, columns) if from_right else (*batch, rows, *merged)
    whole = ops.Einsum((ops.Along("inverse", square, rows, columns), right), made)
    given = {"a": square, "b": right, "left": False if from_right else None}
    cell = make_cell(f"{SOLVE}(a, b, left=left)", given, whole)
    groups = [(i,) for i in made] if from_right else [*((i,) for i in (*batch, rows)), own]
    return ops.arrange(split_axes(cell, groups), axes)


def join_systems(steps: tuple[Step, ...], taken: Collection[str]) -> tuple[Step, ...]:
    """Solve the systems of each matrix by one call, with concatenated right-hand sides."""
    found: dict[ops.Op, dict[ops.Cell, None]] = {}
    for step in steps:
        for part in ops.walk_ops(step.op):
            match part:
                case ops.Cell(TorchCall(name, _, ()), (square, _)) if name == SOLVE:
                    marks = (ir.Index(f"@{k}", i.extent) for k, i in enumerate(square.axes))
                    new = dict(zip(square.axes, marks, strict=True))
                    found.setdefault(ops.rename_indices(square, new), {})[part] = None
    for cells in found.values():
        alone = [cell for cell in cells if not _find_needed(cell, steps, cells)[1]]
        if len(alone) > 1:
            steps = _join_cells(steps, alone, taken)
    return steps


def _find_needed(
    cell: ops.Cell, steps: Sequence[Step], cells: Collection[ops.Op]
) -> tuple[set[str], bool]:
    """Return (the steps that a call depends on, whether they contain one of the cells)."""
    needed = {name for arg in cell.args for name in ops.find_reads(arg)}
    for step in reversed(steps):
        needed |= ops.find_reads(step.op) if step.name in needed else set()
    own = (part for s in steps if s.name in needed for part in ops.walk_ops(s.op))
    return needed, any(part in cells for part in own)


def _join_cells(
    steps: tuple[Step, ...], cells: Sequence[ops.Cell], taken: Collection[str]
) -> tuple[Step, ...]:
    """Replace independent calls of solve with one matrix by a single call."""
    square = cells[0].args[0]
    *batch, rows, summed = axes = square.axes
    parts, count, needed = list[tuple[Polynomial, ir.Index, ops.Op]](), Polynomial.of(0), set[str]()
    for cell in cells:
        needed |= _find_needed(cell, steps, ())[0]
        own = [i for i in cell.axes if i not in cell.args[0].axes]
        column = own[0] if own else ir.Index("@", ir.ONE)
        column = ir.Index(f"{column.name}@{len(parts)}", column.extent)
        new = dict(zip((*cell.args[0].axes, *own), (*axes, column), strict=False))
        parts.append((count, column, rename_free_indices(strip(cell.args[1]), new)))
        count += Polynomial.of(column.extent)
    names = {i.name for cell in cells for arg in cell.args for i in arg.axes}
    index = rename_apart(ir.Index("k", count.to_expr()), names)
    right = concatenate_parts(index, parts, (*batch, summed, index))
    whole = ops.Einsum((ops.Along("inverse", square, rows, summed), right), (*batch, rows, index))
    made = make_cell(f"{SOLVE}(a, b)", {"a": square, "b": right}, whole)
    name = free_name(name_op(made, steps[-1].name), {*taken, *(step.name for step in steps)})
    reads: dict[ops.Op, ops.Op] = {}
    for cell, (low, _, _) in zip(cells, parts, strict=True):
        *others, _ = cell.args[0].axes
        source, own = ops.Source(name, (*others, index)), [i for i in cell.axes if i not in others]
        at, start = (source, len(others)), low.to_expr()
        read = ops.Slice(*at, own[0], start) if own else ops.Select(*at, start)
        reads[cell] = ops.arrange(read, cell.axes)
    early = tuple(step for step in steps if step.name in needed)
    late = (Step(s.name, ops.exchange(s.op, reads)) for s in steps if s not in early)
    return (*early, Step(name, made), *late)
