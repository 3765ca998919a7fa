"""The lines of a recurrence's loop in a generated function, and of single steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from string import ascii_lowercase

from derive.backend import to_checks
from derive.backend.arithmetic import ADD, ATOM, to_python
from derive.backend.lines import (
    INDENT,
    WIDTH,
    fit_append,
    fit_assignment,
    fit_for,
    indent,
    to_tuple,
    wrap_text,
)
from derive.backend.to_torch import Printer
from derive.ir import nodes as ir
from derive.ir.text import to_text
from derive.ir.walk import Names, substitute, walk
from derive.plan import cost, ops
from derive.plan.calls import TorchCall
from derive.plan.lower.patterns import make_cell
from derive.plan.matrices import find_matrices, is_batched, to_matmul
from derive.plan.meaning import to_step_equation
from derive.plan.plan import Plan
from derive.plan.steps import Carried, Scan, Step, free_name, name_op

OUTER = WIDTH - len(INDENT)  # columns of a line of the function
INNER = WIDTH - 2 * len(INDENT)  # columns of a line of its loop


def write_step(step: Step, printer: Printer, name: str, room: int = OUTER) -> list[str]:
    """The comment and the line `name = ..` of a step; `return ..` for an empty name."""
    return [*write_comment(step, room), *fit_assignment(name, printer.text(step.op), room)]


def write_comment(step: Step, room: int = INNER) -> list[str]:
    """The comment lines with a step's equation and shape; unnamed indices get letters."""
    equation = to_step_equation(step)
    parts = (part for side in (equation.target, equation.value) for part in walk(side))
    indices = dict.fromkeys(part for part in parts if isinstance(part, ir.Index))
    letters = (each for each in ascii_lowercase if each not in {i.name for i in indices})
    new = dict[ir.Expr, ir.Expr]()
    new |= {i: ir.Index(next(letters), i.extent) for i in indices if "#" in i.name}
    target, value = (substitute(side, new) for side in (equation.target, equation.value))
    text = f"{to_text(target)} = {to_text(value)}"
    text = f"the positions of {value.name}" if isinstance(value, ir.Index) else text
    shape = f"[{', '.join(to_python(i.extent) for i in step.axes)}]".replace(" * ", "*")
    lines = wrap_text(f"# {text}", later="#     ", width=room)
    if len(lines[-1]) + 2 + len(shape) <= room:
        return [*lines[:-1], f"{lines[-1]}  {shape}"]
    return [*lines, f"#     {shape}"]


def find_begun(plan: Plan) -> dict[str, str]:
    """The conditions, by step, of steps that only initial values of recurrences read: `T > 1`."""
    always = ("", 0)
    needed: dict[str, set[tuple[str, int]]] = {}

    def note(op: ops.Op, places: set[tuple[str, int]]) -> None:
        for name in ops.find_reads(op):
            needed.setdefault(name, set()).update(places)

    turns = {step for scan in plan.scans for step in plan.steps[scan.first : scan.last + 1]}
    rest = [*plan.results, *(op for tile in plan.tiles for _, op in tile.sliced)]
    rest += [op for scan in plan.scans for _, op, _ in scan.sliced]
    for op in rest:
        note(op, {always})
    for each in (each for scan in plan.scans for each in scan.carried):
        note(each.made, {always})
        for place, op in enumerate(each.first):
            extent = _find_doubtful(each, place, plan)
            note(op, {(extent, place) if extent else always})
    for step in reversed(plan.steps):
        note(step.op, {always} if step in turns else needed.get(step.name, {always}))
    found: dict[str, str] = {}
    for step in plan.steps:
        places = needed.get(step.name, {always})
        if always not in places and step not in turns:
            least = dict(sorted(places, reverse=True))
            found[step.name] = " or ".join(f"{n} > {place}" for n, place in sorted(least.items()))
    return found


def _find_doubtful(each: Carried, place: int, plan: Plan) -> str:
    """The text of a recurrence's extent, if it may be too short for a place; else ""."""
    extent = each.shape[each.axis]
    is_sure = each.skipped or to_checks.has_places(plan.system, extent, place + 1)
    return "" if is_sure else to_python(extent, ADD)


def write_scan(scan: Scan, plan: Plan, printer: Printer) -> list[str]:
    """The lines of a recurrence: the values before the loop, the loop, and its results."""
    listed = [each for each in scan.carried if not _is_named(each, plan)]
    named = [each for each in scan.carried if each not in listed]
    turn = _Turn(scan, plan, printer)
    room = OUTER - len(INDENT)
    rows = [f"{name} = {each.each}[-{lag}]" for each in listed for name, lag in each.before]
    for step, op in turn.steps:
        rows += [*write_comment(step, room), *fit_assignment(step.name, printer.text(op), room)]
    for each in listed:
        rows += fit_append(each.each, printer.text(each.made), room)
    rows += _carry_on(named, printer, room)
    lines = [line for step in turn.before for line in write_step(step, printer, step.name)]
    lines += [line for each in listed for line in _begin_list(each, plan, printer)]
    for each in named:
        for name, lag in each.before:
            lines += fit_assignment(name, printer.text(each.first[-lag]), OUTER)
    names = [name for name, _, _ in turn.sliced]
    slices = [f"{printer.text(op, ATOM)}.unbind({axis})" for _, op, axis in turn.sliced]
    if scan.turn:
        names.insert(0, scan.turn)
        slices.insert(0, f"range({to_python(scan.index.extent)})")
    if names:
        lines += fit_for(names, slices, OUTER, ":")
    else:
        lines.append(f"for _ in range({to_python(scan.index.extent)}):")
    lines += indent(rows)
    for each in scan.carried:
        if each.last:
            before = {lag: name for name, lag in each.before}
            lines.append(f"{each.last} = {before[1] if each in named else f'{each.each}[-1]'}")
        elif each.is_kept:
            lines += _stack_values(each, plan, printer)
    return lines


class _Turn:
    """The steps of a turn as printed: loop-invariant parts and permutations go before the loop.

    Contractions become products of matrices, which start faster than einsum.
    """

    def __init__(self, scan: Scan, plan: Plan, printer: Printer) -> None:
        self.printer, self.index = printer, scan.index
        self.parts = {name: (op, axis) for name, op, axis in scan.sliced}
        steps = plan.steps[scan.first : scan.last + 1]
        self.inside = {*self.parts, *(step.name for step in steps)}
        self.inside |= {name for each in scan.carried for name, _ in each.before}
        self.taken = {step.name for step in plan.steps} | self.inside
        self.taken |= {name for step in plan.steps for name in ops.find_reads(step.op)}
        self.taken |= {part for each in scan.carried for part in (each.name, each.each, each.last)}
        self.taken |= Names.of(plan.system)
        self.before: list[Step] = []
        self.views: dict[ops.Arrange, ops.Source] = {}
        self.invariant: dict[ops.Op, ops.Source] = {}
        laid = [(step, self._move_before_loop(step.op, step.name)) for step in steps]
        made = [each.made for each in scan.carried]
        read = {name for op in (*(op for _, op in laid), *made) for name in ops.find_reads(op)}
        self.sliced = [each for each in scan.sliced if each[0] in read]
        new: dict[ops.Op, ops.Op] = {}
        for view, source in self.views.items():
            assert isinstance(view.arg, ops.Source)
            own, (whole, axis) = view.arg.name, self.parts[view.arg.name]
            is_only = own not in read and sum(v.arg is view.arg for v in self.views) == 1
            name = own if is_only else source.name
            new[source] = replace(source, name=name)
            here = whole.axes
            others = (*here[:axis], *here[axis + 1 :])
            whole = ops.rename_indices(whole, dict(zip(others, view.arg.axes, strict=True)))
            place = min(axis, len(view.axes))
            axes = (*view.axes[:place], here[axis], *view.axes[place:])
            self.sliced.append((name, ops.arrange(whole, axes), place))
        self.steps = [(step, ops.exchange(op, new)) for step, op in laid]

    def _move_before_loop(self, op: ops.Op, target: str) -> ops.Op:
        """The operation of step `target`, with views and invariant parts made before the loop."""
        if op in self.invariant:
            return self.invariant[op]
        if isinstance(op, (ops.Source, ops.Cell)) and not op.args:
            return op
        if self.inside.isdisjoint(ops.find_reads(op)):
            return self._hoist(op, target)
        if isinstance(op, ops.Einsum) and not self.printer.is_matmul:
            op = _multiply(op)
        if isinstance(op, ops.Cell) and _is_spread(op):
            op = op.whole
        if isinstance(op, ops.Expand) and (whole := _find_spread(op)) is not None:
            return whole
        if isinstance(op, ops.Arrange) and isinstance(op.arg, ops.Source) and self._is_part(op):
            if op not in self.views:
                name = free_name(f"{op.arg.name}_view", self.taken)
                self.taken.add(name)
                self.views[op] = replace(op.arg, name=name, axes=op.axes)
            return self.views[op]
        args = op.args
        laid = tuple(self._move_before_loop(arg, target) for arg in args)
        if laid == args:
            return op
        return ops.with_args(op, laid, dict(zip(args, laid, strict=True)))

    def _is_part(self, view: ops.Arrange) -> bool:
        """Whether a view permutes one turn's part of a tensor that the loop runs over."""
        return isinstance(view.arg, ops.Source) and view.arg.name in self.parts

    def _hoist(self, op: ops.Op, target: str) -> ops.Op:
        """A loop-invariant operation as a read of a step before the loop; names, numbers as is."""
        if isinstance(op, ops.Num):
            scalars = {part.name for part in walk(op.value) if isinstance(part, ir.Scalar)}
            if isinstance(op.value, ir.Scalar) or scalars.isdisjoint(self.printer.scalars):
                return op
        if isinstance(op, ops.Source):
            return op
        wanted = name_op(op, target)
        (*read,) = ops.find_reads(op)
        name = free_name(f"{wanted}_view" if [wanted] == read else wanted, self.taken)
        self.taken.add(name)
        self.before.append(Step(name, op))
        self.invariant[op] = ops.to_source(name, op)
        return self.invariant[op]


def _find_spread(op: ops.Expand) -> ops.Op | None:
    """The operand of a view that selects one place and repeats it along that axis; else None."""
    if not isinstance(op.arg, ops.Select):
        return None
    whole, axis = op.arg.arg, op.arg.place
    here = list(whole.axes)
    is_one = here[axis].extent is ir.ONE and op.axes[axis : axis + 1] != ()
    others = [i for k, i in enumerate(op.axes) if k != axis]
    is_same = len(op.axes) == len(here) and others == here[:axis] + here[axis + 1 :]
    return whole if is_one and is_same and op.axes[axis].extent is ir.ONE else None


def _is_spread(op: ops.Cell) -> bool:
    """Whether an operation is addcmul with expanded operands, which is slower than two calls."""
    is_called = isinstance(op.call, TorchCall) and op.call.function == "torch.addcmul"
    return is_called and any(isinstance(arg, ops.Expand) for arg in op.args)


def _multiply(op: ops.Einsum) -> ops.Op:
    """A contraction as matrix products, with `torch.bmm` where it fits; unchanged if it is one."""
    if find_matrices(op.args, op.axes) or is_batched(op.args, op.axes):
        return op

    def call_bmm(part: ops.Op) -> ops.Op:
        args = tuple(map(call_bmm, part.args))
        made = ops.with_args(part, args)
        if not isinstance(made, ops.Apply) or made.function != "@":
            return made
        true = [cost.find_true_axes(arg) for arg in args]
        batch = made.axes[0]
        is_bmm = all(len(arg.axes) == 3 for arg in args) and len(made.axes) == 3
        if not is_bmm or not all(batch in axes for axes in true):
            return made
        return make_cell("torch.bmm(x, y)", dict(zip("xy", args, strict=True)), made)

    return call_bmm(to_matmul(op))


def _is_named(each: Carried, plan: Plan) -> bool:
    """Whether only the values of the last turns are kept, as variables and not in a list."""
    lags = sorted(lag for _, lag in each.before)
    is_sure = all(not _find_doubtful(each, place, plan) for place in range(len(each.first)))
    is_short = 0 < len(lags) <= len(each.first)
    return not each.is_kept and is_sure and is_short and lags == list(range(1, len(lags) + 1))


def _carry_on(named: Sequence[Carried], printer: Printer, room: int) -> list[str]:
    """The lines that assign this turn's values to the variables of the turn before."""
    pairs: list[tuple[str, ops.Op]] = []
    for each in named:
        at = {lag: name for name, lag in each.before}
        for lag in range(len(at), 1, -1):
            pairs.append((at[lag], ops.Source(at[lag - 1], ())))
        pairs.append((at[1], each.made))
    texts = [printer.text(op) for _, op in pairs]
    reads = [ops.find_reads(op) for _, op in pairs]
    if any(name in read for k, (name, _) in enumerate(pairs) for read in reads[k + 1 :]):
        return fit_assignment(", ".join(name for name, _ in pairs), ", ".join(texts), room)
    lines = (fit_assignment(n, text, room) for (n, _), text in zip(pairs, texts, strict=True))
    return [line for each in lines for line in each]


def _begin_list(each: Carried, plan: Plan, printer: Printer) -> list[str]:
    """The lines that begin the list of a recurrence's values with its initial ones.

    A recurrence that may be shorter takes only as many as it has places.
    """
    lines: list[str] = []
    some = [_find_doubtful(each, place, plan) for place in range(len(each.first))]
    sure = [printer.text(op) for op, extent in zip(each.first, some, strict=True) if not extent]
    if sure or not any(some):
        lines += fit_assignment(each.each, f"[{', '.join(sure)}]", OUTER)
    for place, (op, extent) in enumerate(zip(each.first, some, strict=True)):
        text, sign = printer.text(op), "=" if place == 0 else "+="
        if extent:
            lines.append(f"{each.each} {sign} [{text}] if {extent} > {place} else []")
    return lines


def _stack_values(each: Carried, plan: Plan, printer: Printer) -> list[str]:
    """The lines that stack the list of a recurrence's values into a tensor."""
    kept = f"{each.each}[{each.skipped}:]" if each.skipped else each.each
    stacked = f"torch.stack({kept}, dim={each.axis})"
    is_sure = each.first and not _find_doubtful(each, 0, plan)
    if each.skipped or not is_sure:  # torch stacks no empty list
        shape = to_tuple([to_python(extent) for extent in each.shape])
        dtype = "torch.int64" if ops.is_integral(each.made) else printer.dtype
        own = "" if dtype == f"{printer.like}.dtype" else f", dtype={dtype}"
        empty = f"{printer.like}.new_empty({shape}{own})"
        stacked += f" if {to_python(each.shape[each.axis])} else {empty}"
    return fit_assignment(each.name, stacked, OUTER)
