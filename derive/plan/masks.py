"""Data-dependent masks as factors and reciprocals, which are faster than torch's choices.

    where(m, x, 0) = x * m
    exp(where(m, x, -oo)) / sum = exp(x + 1 - 1 / m) / sum

If truth values follow no pattern, where() takes 4 ns an entry because branches mispredict, and a
product 0.7 ns; exp(-oo) and log(0) take 5 to 8. As 0 * inf is nan, the rewrite needs a value that
is finite for all finite arguments. It also needs that no single entry of an argument is masked out
of the result: each argument lacks an index of the mask, so its entries are used elsewhere too. A
normalized row without any entry left, which should be zeros, is computed unmasked and multiplied by
0, so that its gradient is finite.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from derive.analysis.safety import is_finite
from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.ir.walk import is_number, rewrite_bottom_up
from derive.plan import ops
from derive.plan.cells.matching import strip
from derive.plan.cost import find_true_axes
from derive.plan.meaning import to_expr
from derive.plan.steps import Step
from derive.rewrite.guards import mark_tensors

Reads = frozenset[frozenset[ir.Index]]  # the indices of the reads of each argument
PLAIN = (ops.Apply, ops.Einsum, ops.Reduction, ops.Along, ops.Fill, ops.Choose, ops.Cast)
ORDERS = (ops.Arrange, ops.Expand)
KEPT = (ops.Num, ops.NumTensor, ops.Iota, ops.Triangle)


@dataclass(slots=True)
class Known:
    """Facts about the steps so far: reads, dependence on data, infinite values."""

    reads: dict[str, tuple[tuple[ir.Index, ...], Reads]] = field(default_factory=dict)
    dependent: set[str] = field(default_factory=set)  # steps that depend on data
    # Steps that may be infinite, each with a copy that has an infinite bound.
    infinite: dict[ir.Tensor, ir.Tensor] = field(default_factory=dict)

    def find_reads(self, op: ops.Op) -> Reads:
        """For each argument read, the set of indices it is read at, without summed ones."""
        axes = frozenset(op.axes)
        match op:
            case ops.Source(name, own):
                if name not in self.reads:
                    return frozenset((axes,))
                before, reads = self.reads[name]
                new = dict(zip(before, own, strict=True))
                return frozenset(frozenset(new[i] for i in each) for each in reads)
            case ops.Cell(whole=whole):
                return frozenset(each & axes for each in self.find_reads(whole))
            case _ if isinstance(op, KEPT):
                return frozenset()
            case _ if isinstance(op, (*PLAIN, *ORDERS)):
                inner = (each for arg in op.args for each in self.find_reads(arg))
                return frozenset(each & axes for each in inner)
        return frozenset((axes,))

    def is_data_dependent(self, mask: ops.Op) -> bool:
        """Whether a mask depends on data, not on positions alone or on infinite values."""
        parts = list(ops.walk_ops(mask))
        if any(isinstance(p, ops.Num) and isinstance(p.value, ir.Infinity) for p in parts):
            return False
        names = {part.name for part in parts if isinstance(part, ops.Source)}
        return bool(names & self.dependent) or not names <= {*self.reads}

    def is_arithmetic(self, arg: ops.Op, mask: ops.Op) -> bool:
        """Whether the mask may become a factor of the operand or be added to it."""
        if not self.is_data_dependent(mask) or ops.is_boolean(arg) or ops.is_integral(arg):
            return False
        own = frozenset(find_true_axes(mask))
        if any(own <= each for each in self.find_reads(arg)) or ops.is_complex(arg):
            return False
        return self.is_finite(arg)

    def is_finite(self, op: ops.Op) -> bool:
        """Whether the value is finite for all finite arguments and nonzero scalar divisors."""

        def invert_power(here: ir.Expr) -> ir.Expr:
            match here:
                case ir.Pow(base, ir.Number(power)) if power < 0 and is_number(base):
                    return ir.Pow(base, ir.Number(-power))
            return here

        return is_finite(rewrite_bottom_up(mark_tensors(to_expr(op), self.infinite), invert_power))

    def find_mask(self, soft: ops.Op) -> ops.Op | None:
        """The mask of a normalized row if it may become a factor or a summand, else None."""
        match soft:
            case ops.Along(kind, ops.Fill(arg, mask, ops.Num(value), False), index):
                is_row = ROWS[kind].normalizes and value is ir.MINUS_INFINITY
                is_row = is_row and index in find_true_axes(mask)
                return mask if is_row and self.is_arithmetic(arg, mask) else None
        return None

    def note_step(self, step: Step) -> None:
        """Record the reads, the data dependence and the finiteness of a step."""
        axes = step.op.axes
        self.reads[step.name] = axes, self.find_reads(step.op)
        if self.is_data_dependent(step.op):
            self.dependent.add(step.name)
        tensor = ir.Tensor(
            step.name, tuple(i.extent for i in axes), ops.to_source("", step.op).kind
        )
        recurs = any(isinstance(part, ops.Recur) for part in ops.walk_ops(step.op))
        if recurs or not self.is_finite(step.op):
            self.infinite[tensor] = replace(tensor, upper=ir.Infinity(False))


def use_factors(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The steps with data-dependent masks as factors or summands."""
    known, done = Known(), list[Step]()
    for step in steps:
        done.append(Step(step.name, _use_factor(step.op, known)))
        known.note_step(step)
    return tuple(done)


def _use_factor(op: ops.Op, known: Known) -> ops.Op:
    here = ops.with_args(op, tuple(_use_factor(arg, known) for arg in op.args))
    match op:
        case ops.Fill(arg, mask, ops.Num(value), where) if value is ir.ZERO:
            assert isinstance(here, ops.Fill)
            if known.is_arithmetic(arg, mask):
                kept = ops.Cast(ops.Apply("not", (mask,), mask.axes) if where else mask)
                return ops.Apply("*", (here.arg, kept), op.axes)
            if isinstance(arg, ops.Along) and known.find_mask(arg) is mask and not where:
                row, axes = ops.Cast(_find_rows(mask, arg.index)), op.axes
                made = _fill_empty_rows(here.arg, mask)
                return ops.Apply("*", (made, ops.arrange(row, axes)), axes)
    return here


def _find_rows(mask: ops.Op, index: ir.Index) -> ops.Op:
    """A mask of the rows in which a mask is True at some entry."""
    return ops.Reduction("max", strip(mask), (index,))


def _fill_empty_rows(soft: ops.Op, mask: ops.Op) -> ops.Op:
    """The normalized row with the mask all True in empty rows, which the caller sets to 0."""
    assert isinstance(soft, ops.Along) and isinstance(soft.arg, ops.Fill)
    rows, bare, axes = _find_rows(mask, soft.index), strip(mask), soft.axes
    empty = ops.Apply("not", (rows,), rows.axes)
    kept = ops.combine("or", (bare, empty), bare.axes)
    inverse = ops.Apply("pow", (ops.Cast(kept), ops.Num(ir.MINUS_ONE)), kept.axes)
    added = ops.Apply("-", (ops.Num(ir.ONE), inverse), inverse.axes)
    logits = ops.Apply("+", (soft.arg.arg, ops.arrange(added, axes)), axes)
    return ops.Along(soft.kind, logits, soft.index, soft.columns)
