"""The whole generated file: header, function with its docstring and loops, check of the shapes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from derive.backend.lines import (
    INDENT,
    WIDTH,
    fit_append,
    fit_assignment,
    fit_call,
    fit_for,
    fit_signature,
    wrap_text,
)
from derive.backend.to_checks import (
    CHECK,
    RANGE_CHECK,
    list_arguments,
    name_validate,
    show_access,
    write_check,
    write_ranges,
)
from derive.backend.to_torch import ATOM, RECUR, Printer, to_python
from derive.ir.nodes import (
    Along,
    Call,
    Expr,
    Number,
    Pow,
    Scalar,
    ScalarInput,
    Size,
    System,
    Tensor,
)
from derive.ir.text import to_declaration, to_lines, to_text
from derive.ir.walk import walk
from derive.plan.cells.segments import RUNNING
from derive.plan.cost import Storage, find_copies
from derive.plan.lower.number import find_counted, find_positive
from derive.plan.meaning import to_step_equation
from derive.plan.ops import (
    VIEWS,
    Cell,
    Fill,
    Num,
    NumTensor,
    Recur,
    Source,
    TorchCall,
    axes_of,
    find_reads,
    walk_ops,
)
from derive.plan.plan import find_subscripts

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from derive.ir.nodes import Index
    from derive.plan.plan import Plan, Regime
    from derive.plan.steps import Scan, Step, Tile

OUTER = WIDTH - len(INDENT)  # columns of a line of the function
WIDE = ("zero", "one", "empty", "lowest")  # the starts of running sums and of what scales them
INNER = WIDTH - 2 * len(INDENT)  # and of its loop
FILL = "_fill"
FILL_BLOCK = '''def _fill(
    whole: Tensor | None, part: Tensor, start: int, extent: int, dim: int
) -> Tensor:
    """The whole with one more block of it written; it is made like the first one."""
    if part.shape[dim] == extent:
        return part
    if whole is None:
        whole = part.new_empty([*part.shape[:dim], extent, *part.shape[dim + 1 :]])
    whole.narrow(dim, start, part.shape[dim]).copy_(part)
    return whole
'''
REASONS = {  # of a start that is not what one expects
    "lowest": "# not -inf: a block of nothing but -inf has weights of 0 then, not nan",
    "empty": "# 0 / 1 where there is nothing to sum",
}


_RECUR = '''def {name}(a: Tensor, x: Tensor, h: Tensor, dim: int, chunk: int) -> Tensor:
    """The values of h = a*h + x at each place along dim, a negative one.

    Chunks of places run side by side: from 0, for what each ends with; then, as that tells what
    each begins with, from there.
    """
    chunk, whole = max(chunk, 2), 0
    found = h.unsqueeze(dim).narrow(dim, 0, 0)
    if x.shape[dim] > chunk:
        count = x.shape[dim] // chunk
        parts = (p.narrow(dim, 0, count * chunk).unflatten(dim, (count, chunk)) for p in (a, x))
        turns = list(zip(*(part.unbind(dim) for part in parts), strict=True))
        factor, end = turns[0]
        for a_t, x_t in turns[1:]:
            factor, end = a_t * factor, torch.addcmul(x_t, a_t, end)
        ends = {name}(factor, end, h, dim, chunk)
        {whole}
    if whole:
        start = torch.cat([h.unsqueeze(dim), ends.narrow(dim, 0, count - 1)], dim)
        each = [start := torch.addcmul(x_t, a_t, start) for a_t, x_t in turns]
        found = torch.stack(each, dim).flatten(dim - 1, dim)
        h = found.select(dim, -1)
    rest = (part.narrow(dim, whole, x.shape[dim] - whole).unbind(dim) for part in (a, x))
    last = [h := torch.addcmul(x_t, a_t, h) for a_t, x_t in zip(*rest, strict=True)]
    return torch.cat([found, torch.stack(last, dim)], dim) if last else found
'''
_SO_FAR = '''def {name}(q: Tensor, k: Tensor, v: Tensor, diagonal: int, chunk: int) -> Tensor:
    """The sum of (q_i . k_j) v_j over the places j up to i plus the diagonal, by chunks."""
    places, dtype = q.shape[-2], q.dtype
    count = -(-places // chunk) or 1
    more = (0, 0, 0, count * chunk - places)
    q, k, v = (x.to(torch.promote_types(dtype, torch.float32)) for x in (q, k, v))
    q, k, v = (torch.nn.functional.pad(x, more).unflatten(-2, (count, chunk)) for x in (q, k, v))
    total = (k.mT @ v).cumsum(-3).narrow(-3, 0, count - 1)
    before = torch.nn.functional.pad(total, (0, 0, 0, 0, 1, 0))
    found = (q @ k.mT).tril(diagonal) @ v + q @ before
    return found.flatten(-3, -2).narrow(-2, 0, places).to(dtype)
'''
_WHOLE = "whole = count * chunk"
_CHECKED = f"""# a product of factors may be too large where no value is
        {_WHOLE} if ends.isfinite().all() else 0"""

Row: TypeAlias = tuple[str, str, str, str]  # of the table of arguments


@dataclass(frozen=True, slots=True)
class Header:
    """What the file says of where it comes from."""

    title: str
    source: str
    origin: str  # the file or formula it is generated from
    rebuild: str  # the command that makes it again


@dataclass(frozen=True, slots=True)
class More:
    """What else a file holds: functions, the lines that import for them, and their plans."""

    texts: Sequence[str] = ()
    imports: Sequence[str] = ()
    plans: Sequence[Plan] = ()

    def write(self, *own: str) -> list[str]:
        """All lines that import, beside those that the file has of its `own`."""
        words = {"Tensor", *(["nn"] if any("(nn.Module)" in text for text in self.texts) else [])}
        lines = [f"from torch import {', '.join(sorted(words))}", *self.imports, *own]
        return sorted(dict.fromkeys(lines), key=lambda line: (line.startswith("from"), line))


def write_header(system: System, name: str, header: Header, gradients: Sequence[str] = ()) -> str:
    """The module docstring: title, equations, gradients, source, and how to rebuild."""
    title = header.title or name.replace("_", " ").capitalize()
    lines = [line for text in to_lines(system) for line in wrap_text(text, INDENT, INDENT * 2)]
    if gradients:
        lines += ["", "The gradients, out of those by the results:", ""]
        lines += [line for text in gradients for line in wrap_text(text, INDENT, INDENT * 2)]
    source = [*wrap_text(f"Source: {header.source}.")] if header.source else []
    made = f"Generated by derive from {header.origin}; rebuild with: {header.rebuild}"
    made_lines = wrap_text(made)
    return "\n".join([f'"""{to_sentence(title)}', "", *lines, "", *source, *made_lines, '"""', ""])


def to_sentence(text: str) -> str:
    """The text with a full stop."""
    return text if text.endswith(".") else f"{text}."


def write_docstring(
    plan: Plan, header: Header, rows: Sequence[Row] = (), remarks: Sequence[str] = ()
) -> str:
    """What the function computes, its arguments by index, its results, errors and cost.

    `rows` are of further arguments, `remarks` further sentences.
    """
    system = plan.system
    title = header.title or system.name.replace("_", " ").capitalize()
    targets = {each.target.tensor: to_text(each.target) for each in system.equations}
    results = ", ".join(f"{targets[tensor]} {write_shape(tensor)}" for tensor in system.results)
    lines = [to_sentence(title), "", *_list_arguments(plan, rows), ""]
    lines += wrap_text(f"Returns {results}.", later="    ", width=OUTER)
    if any(isinstance(entry, Tensor) for entry in system.inputs):
        lines.append("Raises ValueError where the shapes do not fit together.")
    parts = [here for each in system.equations for here in walk(each.value)]
    kinds = {here.kind for here in parts if isinstance(here, Along)}
    reasons = {"inverse": "is singular", "cholesky": "is not positive definite"}
    if fails := " or ".join(says for kind, says in reasons.items() if kind in kinds):
        lines.append(f"Raises torch.linalg.LinAlgError where a matrix {fails}.")
    if "cholesky" in kinds:
        lines.append("What stands above the diagonal of a matrix for cholesky is not read.")
    if views := _find_views(plan):
        lines.append(f"The result is a view of {views}: writing to it writes to {views}.")
    sentences = []
    longer = {i.name: c for i, c in find_subscripts(plan.steps).items() if i.name != c}
    if longer and not plan.is_matmul:
        pairs = ", ".join(f"{index} for {name}" for name, index in longer.items())
        sentences.append(f"Letters in the einsum strings: {pairs}.")
    flops, peak = (
        to_python(p.to_expr()).replace(" * ", "*") for p in (plan.flops, plan.peak_elements)
    )
    sentences.append(f"Cost: {flops} operations; {peak} elements alive at once.")
    sentences += [*remarks, *(f"By {note}." for note in plan.notes)]
    if plan.regimes:
        at = ", ".join(f"{size}={number}" for size, number in plan.sizes.items())
        where = ", ".join(map(str, plan.regimes))
        sentences.append(f"Planned for {at}; another order takes fewer operations where {where}.")
    for sentence in sentences:
        lines += wrap_text(sentence, later="    ", width=OUTER)
    text = "\n".join(f"{INDENT}{line}" if line else "" for line in lines)
    return f'{INDENT}"""{text.lstrip()}\n{INDENT}"""'


def _list_arguments(plan: Plan, more: Sequence[Row]) -> list[str]:
    """A line for each: its name, its indices, its extents, and what it holds."""
    system = plan.system
    rows: list[Row] = []
    for entry in system.inputs:
        if isinstance(entry, Tensor):
            indices = show_access(entry, system).removeprefix(entry.name)
            holds = {"real": "", "int": "integers", "bool": "truth values"}[entry.kind]
            if entry.kind == "int" and entry.below is not None:  # the caller's promise
                holds += f", 0 <= {entry.name} < {to_text(entry.below)}"
            rows.append((entry.name, indices, write_shape(entry), holds))
        else:
            rows.append((entry.name, "", "number", ""))
    rows += [(size.name, "", "size", "keyword") for size in system.sizes]
    for tile in plan.tiles:
        rows.append((tile.block, "", "int", f"keyword: positions of {tile.index.name} at a time"))
    for chunk, (index, _) in plan.chunks.items():
        rows.append((chunk, "", "int", f"keyword: positions of {index.name} in a chunk"))
    rows += more
    if validate := name_validate(plan):
        meaning = "keyword: check the ranges of integers, else taken for granted"
        rows.append((validate, "", "bool", meaning))
    return pad_rows(rows)


def pad_rows(rows: Sequence[Row]) -> list[str]:
    """The rows as lines, their columns below each other."""
    widths = [*(max(len(row[k]) for row in rows) for k in range(3)), 0] if rows else []
    padded = ([c.ljust(w) for c, w in zip(row, widths, strict=True)] for row in rows)
    return ["  ".join(row).rstrip() for row in padded]


def write_shape(tensor: Tensor) -> str:
    """Its extents in brackets."""
    return to_declaration(Tensor("", tensor.shape)) if tensor.shape else "[]"


def _find_views(plan: Plan) -> str:
    """The arguments that a result is a view of: whoever writes to it writes to them."""
    made = {step.name: step.op for step in plan.steps}
    memory = Storage(plan.complete(plan.sizes))
    memory.note(made.items())
    found: dict[str, None] = {}
    stacked = {each.name for scan in plan.scans for each in scan.carried}
    waiting = [op for op in plan.results if isinstance(op, VIEWS)]
    while waiting:
        op = waiting.pop()
        if find_copies(op, memory) or not stacked.isdisjoint(find_reads(op)):
            continue
        if isinstance(op, Source) and op.name not in made:
            found[op.name] = None
            continue
        inner = made[op.name] if isinstance(op, Source) else op.arg
        waiting += [inner] if isinstance(inner, VIEWS) else []
    return ", ".join(found)


def write_step(step: Step, printer: Printer, name: str, room: int = OUTER) -> list[str]:
    """The comment and the line of a step; without a name it is returned."""
    return [*write_comment(step, room), *fit_assignment(name, printer.text(step.op), room)]


def write_comment(step: Step, room: int = INNER) -> list[str]:
    """What the line computes, and its shape."""
    text = to_text(to_step_equation(step))
    shape = f"[{', '.join(to_python(i.extent) for i in step.axes)}]".replace(" * ", "*")
    lines = wrap_text(f"# {text}", later="#     ", width=room)
    if len(lines[-1]) + 2 + len(shape) <= room:
        return [*lines[:-1], f"{lines[-1]}  {shape}"]
    return [*lines, f"#     {shape}"]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a loop stands: the tensors and columns at hand there, and the loop around it."""

    plan: Plan
    printer: Printer
    room: int = OUTER
    around: Tile | None = None


def write_loop(plan: Plan, printer: Printer, last: Step | None) -> list[str]:
    """The loop over blocks, with those inside it; a lone last result is returned."""
    choices = [line for tile in plan.tiles for line in _choose_block(tile)]
    outer, *_ = plan.tiles
    for tile in plan.tiles:
        if tile.wide and any(each.start in WIDE for each in tile.running):
            choices.append("# half precision has too few digits for running sums")
            choices.append(f"{tile.wide} = torch.promote_types({printer.dtype}, torch.float32)")
    return [*choices, *_write_tile(outer, _Place(plan, printer), last)]


def _write_tile(tile: Tile, place: _Place, last: Step | None = None) -> list[str]:
    """What a loop begins with, its lines, and the blocks of each result joined."""
    blocks = [
        f"{place.printer.text(op, ATOM)}.split({tile.block}, {axes_of(op).index(tile.index)})"
        for _, op in tile.sliced
    ]
    names = [name for name, _ in tile.sliced]
    lines = _write_starts(tile, place)
    if tile.start:
        whole = to_python(tile.index.extent)
        names, blocks = [tile.start, *names], [f"range(0, {whole} or 1, {tile.block})", *blocks]
        lines += [f"{name} = None" for _, name, _ in tile.joined]
    else:
        lines += [f"{name} = []" for _, name, _ in tile.joined]
    lines += fit_for(names, blocks, place.room, _write_end(tile))
    lines += [f"{INDENT}{line}" for line in _write_turn(tile, place)]
    parts = []
    for made, name, where in tile.joined:
        is_returned = last is not None and made == last.name
        joined = name if tile.start else f"torch.cat({name}, dim={where})"
        line = fit_assignment("" if is_returned else made, joined, place.room)
        parts.append((place.printer.wanted.get(made, ""), line))
    return lines + _join_wanted(parts)


def _write_turn(tile: Tile, place: _Place) -> list[str]:
    """The lines of one turn of a loop."""
    printer = replace(place.printer, blocks=(*place.printer.blocks, tile.block))
    lists = {made: blocks for made, blocks, _ in tile.joined}
    places = {made: where for made, _, where in tile.joined}
    steps = place.plan.steps
    ops = [step.op for step in steps[tile.first : tile.last + 1]]
    ops += [] if tile.inner is None else [op for _, op in tile.inner.sliced]
    read = {name for op in ops for name in find_reads(op)}
    parts: list[tuple[str, list[str]]] = []
    number = tile.first
    while number <= tile.last:
        step, number = steps[number], number + 1
        made = [step.name]
        wanted = printer.wanted.get(step.name, "")
        room = place.room - len(INDENT) * (2 if wanted else 1)
        lines: list[str] = []
        if tile.inner is not None and number - 1 == tile.inner.first:
            wanted, room = "", place.room - len(INDENT)
            lines += _write_tile(tile.inner, _Place(place.plan, printer, room, tile))
            number = tile.inner.last + 1
            made = [name for name, _, _ in tile.inner.joined]
        elif step.name in lists and step.name not in read and not tile.start:
            text = printer.text(step.op)
            lines += [*write_comment(step, room), *fit_append(lists[step.name], text, room)]
            made = []
        elif isinstance(step.op, Source):
            lines.append(f"{step.name} = {step.op.name}")
        else:
            lines += write_step(step, printer, step.name, room)
        for name in [name for name in made if name in lists]:
            if tile.start:
                whole = to_python(tile.index.extent), str(places[name])
                given = [lists[name], name, tile.start, *whole]
                lines += fit_call(FILL, lists[name], given, room)
            else:
                lines.append(f"{lists[name]}.append({name})")
        parts.append((wanted, lines))
    return _join_wanted(parts)


def _join_wanted(parts: Iterable[tuple[str, list[str]]]) -> list[str]:
    """The lines, those that are not always wanted under their condition."""
    found: list[str] = []
    for condition, group in groupby(parts, key=itemgetter(0)):
        lines = [line for _, each in group for line in each]
        if condition:
            head = [f"if {condition}:"]
            if len(head[0]) > INNER:
                head = ["if (", *wrap_text(condition, INDENT, INDENT, INNER), "):"]
            found += [*head, *(f"{INDENT}{line}" for line in lines)]
        else:
            found += lines
    return found


def _write_starts(tile: Tile, place: _Place) -> list[str]:
    """The running values before the first block."""
    if not tile.running:
        return []
    some = to_python(tile.index.extent)
    like, dtype = place.printer.like, place.printer.dtype
    own = "" if dtype == f"{like}.dtype" else f", dtype={dtype}"
    starts = {
        "zero": f"new_zeros({{}}, dtype={tile.wide})",
        "one": f"new_ones({{}}, dtype={tile.wide})",
        "empty": f"new_full({{}}, 0 if {some} else 1, dtype={tile.wide})",
        "lowest": f"new_full({{}}, torch.finfo({tile.wide}).min, dtype={tile.wide})",
        "-oo": f"new_full({{}}, -torch.inf{own})",
        "oo": f"new_full({{}}, torch.inf{own})",
    }
    lines = []
    for each in tile.running:
        sizes = [_write_extent(index, place.around) for index in each.axes]
        shape = f"({', '.join(sizes)}{',' * (len(sizes) == 1)})"
        lines += [REASONS[each.start]] if each.start in REASONS else []
        start = starts[each.start].format(shape)
        lines += fit_assignment(each.name, f"{like}.{start}", place.room)
    return lines


def _write_extent(index: Index, around: Tile | None) -> str:
    """An extent; a block of the loop around has the length of those cut with it."""
    if around is None or index.extent != Size(around.block):
        return to_python(index.extent)
    name, op = around.sliced[0]
    return f"{name}.shape[{axes_of(op).index(around.index)}]"


def _write_end(tile: Tile) -> str:
    """The end of the line that begins a loop: where nothing is summed, no block has a largest."""
    is_sure = isinstance(tile.index.extent, Number)
    if is_sure or not any(each.start in {"lowest", "-oo", "oo"} for each in tile.running):
        return ":"
    return f" if {to_python(tile.index.extent)} else ():"


def _choose_block(tile: Tile) -> list[str]:
    """The length of a block: the argument, or as many positions as keep its tensors small.

    A compiler would unroll the loop and be bound to the sizes; it gets one block.
    """
    unit, whole = to_python(tile.unit.to_expr()), to_python(tile.index.extent)
    first = [
        f"if {tile.block} is None and torch.compiler.is_compiling():  # it would unroll the loop"
    ]
    if tile.start:  # in parts, what is written into would be copied for each
        is_whole = "torch.compiler.is_compiling() or torch.is_grad_enabled()"
        first = [f"if {tile.block} is None and ({is_whole}):  # in one block"]
    return [
        *first,
        f"{INDENT}{tile.block} = {whole} or 1",
        f"elif {tile.block} is None:",
        f"{INDENT}{tile.block} = {tile.target} // ({unit} or 1) or 1",
        f"elif {tile.block} < 1:",
        f'{INDENT}raise ValueError(f"{tile.block} must be at least 1, got {{{tile.block}}}")',
    ]


def to_module(
    plan: Plan, name: str, header: Header, *, dispatch: bool = False, more: More | None = None
) -> str:
    """The text of the file; the same plan and header give the same bytes.

    With `dispatch` the orders for other sizes are functions of their own, which the first one calls
    where one of them takes fewer operations. `more` stands behind the function.
    """
    more = more or More()
    system = plan.system
    others = [(_name_regime(name, each), each) for each in plan.regimes] if dispatch else []
    calls = [line for other, each in others for line in _call_regime(other, each, plan)]
    validate = name_validate(plan)
    ranges = write_ranges(system, validate)
    bodies = [
        [*ranges, *calls, *write_body(plan)],
        *(write_body(each.plan) for _, each in others),
    ]
    code = "\n".join(line for body in bodies for line in body if not line.startswith("#"))
    plans = [plan, *(each.plan for _, each in others)]
    sizes, check = write_check(
        system,
        lambda size: re.search(rf"\b{size}\b", code) is not None,
        sorted({size for each in plans for size in find_positive(each)}),
        find_counted(plans),
    )
    if check:
        arguments = [argument for argument, _ in list_arguments(system)]
        head = fit_call(CHECK, ", ".join(sizes), arguments)
        bodies = [[*head, *body] for body in bodies]
    helpers = write_helpers([*plans, *more.plans])
    is_read = "torch." in "".join((code, check, *helpers, *more.texts))
    lines = more.write(*(["import torch"] if is_read else []))
    texts = ["\n".join(f"{INDENT}{line}" for line in body) for body in bodies]
    functions = [f"{sign(plan, name, validate)}\n{write_docstring(plan, header)}\n{texts[0]}\n"]
    for (other, each), text in zip(others, texts[1:], strict=True):
        words = f'{INDENT}"""The same in the order of contraction for {each}."""'
        functions.append(f"{sign(each.plan, other)}\n{words}\n{text}\n")
    head_text = "\n".join((write_header(system, name, header), *lines, ""))
    checks = [text for text in (check, RANGE_CHECK if ranges else "", *helpers) if text]
    return "\n\n".join([head_text, *functions, *more.texts, *checks])


def write_helpers(plans: Sequence[Plan]) -> list[str]:
    """The functions that linear recurrences and running sums of products call, if any do."""
    steps = [step.op for plan in plans for step in plan.steps if isinstance(step.op, Recur)]
    whole = _WHOLE if all(op.is_bounded for op in steps) else _CHECKED
    found = [_RECUR.format(name=RECUR, whole=whole)] if steps else []
    cells = (op for plan in plans for step in plan.steps for op in walk_ops(step.op))
    calls = [cell.call for cell in cells if isinstance(cell, Cell)]
    if any(isinstance(call, TorchCall) and call.function == RUNNING for call in calls):
        found.append(_SO_FAR.format(name=RUNNING))
    return found


def _name_regime(name: str, regime: Regime) -> str:
    """`_attention_where_S_below_16`."""
    side = "below" if regime.is_below else "above"
    return f"_{name}_where_{regime.size}_{side}_{regime.number}"


def _call_regime(name: str, regime: Regime, plan: Plan) -> list[str]:
    """The lines that leave the work to another order."""
    given = [entry.name for entry in order_inputs(plan.system)]
    sizes = [f"{size.name}={size.name}" for size in plan.system.sizes]
    call = f"{name}({', '.join([*given, *sizes])})"
    return [
        f"if {regime}:",
        *(f"{INDENT}{line}" for line in fit_assignment("", call, WIDTH - 2 * len(INDENT))),
    ]


def write_body(
    plan: Plan, wanted: Mapping[str, str] = MappingProxyType({}), *, returns: bool = True
) -> list[str]:
    """A comment and a line for each step; a lone last result is returned without a name.

    The steps that are `wanted` under a condition stand behind it.
    """
    printer = replace(make_printer(plan), wanted=wanted)
    last = _find_returned(plan) if returns else None

    def write(steps: Iterable[Step]) -> list[str]:
        parts = []
        for step in steps:
            condition = wanted.get(step.name, "")
            room = OUTER - len(INDENT) * bool(condition)
            name = "" if step is last else step.name
            parts.append((condition, write_step(step, printer, name, room)))
        return _join_wanted(parts)

    body, at, done = _write_scalars(printer), plan.tile, 0
    for chunk in plan.lengths:
        body.append(f"if {chunk} < 1:")
        says = f'f"{chunk} must be at least 1, got {{{chunk}}}"'
        body.append(f"{INDENT}raise ValueError({says})")
    for scan in plan.scans:
        body += [*write(plan.steps[done : scan.first]), *_write_scan(scan, plan, printer)]
        done = scan.last + 1
    body += write(plan.steps[done:] if at is None else plan.steps[: at.first])
    if at is not None:
        body += [*write_loop(plan, printer, last), *write(plan.steps[at.last + 1 :])]
    if last is None and returns:
        body += fit_assignment("", ", ".join(printer.text(op) for op in plan.results))
    return body


def _write_scan(scan: Scan, plan: Plan, printer: Printer) -> list[str]:
    """The loop of a recurrence, and what it leaves behind."""
    lines: list[str] = []
    for each in scan.carried:
        values = ", ".join(map(printer.text, each.first))
        lines += fit_assignment(each.each, f"[{values}]", OUTER)
    names = [name for name, _, _ in scan.sliced]
    slices = [f"{printer.text(op, ATOM)}.unbind({axis})" for _, op, axis in scan.sliced]
    if names:
        lines += fit_for(names, slices, OUTER, ":")
    else:
        lines.append(f"for _ in range({to_python(scan.index.extent)}):")
    room = OUTER - len(INDENT)
    turn = [f"{name} = {each.each}[-{lag}]" for each in scan.carried for name, lag in each.before]
    for step in plan.steps[scan.first : scan.last + 1]:
        turn += write_step(step, printer, step.name, room)
    for each in scan.carried:
        turn += fit_append(each.each, printer.text(each.made), room)
    lines += [f"{INDENT}{line}" for line in turn]
    for each in scan.carried:
        kept = f"{each.each}[{each.skipped}:]" if each.skipped else each.each
        stacked = f"torch.stack({kept}, dim={each.axis})"
        if each.skipped or not each.first:  # torch stacks no empty list
            shape = ", ".join(to_python(extent) for extent in each.shape)
            own = "" if printer.dtype == f"{printer.like}.dtype" else f", dtype={printer.dtype}"
            empty = f"{printer.like}.new_empty(({shape}{',' * (len(each.shape) == 1)}){own})"
            stacked += f" if {to_python(scan.index.extent)} else {empty}"
        lines += fit_assignment(each.name, stacked, OUTER)
    return lines


def _write_scalars(printer: Printer) -> list[str]:
    """Scalars as tensors where Python's arithmetic is not torch's, and where torch takes no number.

    A negative number to a fractional power is complex in Python, and 1 / 0 an error.
    """
    lines = []
    for name in printer.scalars:
        if name == printer.like:
            lines.append(f"{name} = torch.as_tensor({name}) * 1.0")
        else:
            where = f"dtype={printer.dtype}, device={printer.like}.device"
            lines.append(f"{name} = torch.as_tensor({name}, {where})")
    return lines


def _find_tensor_scalars(plan: Plan) -> tuple[str, ...]:
    """The scalars inside powers, quotients and remainders of numbers, or that stand for tensors.

    In a formula of scalars alone the first of them tells the dtype.
    """
    parts = [part for step in plan.steps for part in walk_ops(step.op)]
    values = [p.value for p in parts if isinstance(p, (Num, NumTensor))]
    values += [p.value.value for p in parts if isinstance(p, Fill)]
    inside: list[Expr] = [p.value for p in parts if isinstance(p, NumTensor)]
    inside += [p for value in values for p in walk(value) if isinstance(p, (Pow, Call))]
    found = {s.name for part in inside for s in walk(part) if isinstance(s, Scalar)}
    inputs = plan.system.inputs
    if inputs and all(isinstance(entry, ScalarInput) for entry in inputs):
        found.add(inputs[0].name)
    return tuple(entry.name for entry in inputs if entry.name in found)


def _find_returned(plan: Plan) -> Step | None:
    """The last step, where it is the one result as it stands."""
    step = plan.steps[-1]
    match plan.results:
        case (op,) if getattr(op, "name", None) == step.name:
            return step
        case _:
            return None


def make_printer(plan: Plan) -> Printer:
    """New tensors are made like the first argument; the dtype is that of the first real one."""
    inputs = plan.system.inputs
    tensors = [t for t in inputs if isinstance(t, Tensor)]
    real = [t for t in tensors if t.kind == "real"]
    like, dtype = "torch.empty(())", "torch.get_default_dtype()"
    if real or (inputs and not tensors):
        like = (real or inputs)[0].name
        dtype = f"{like}.dtype"
    elif tensors:
        like = tensors[0].name
    scalars = _find_tensor_scalars(plan)
    return Printer(like, dtype, find_subscripts(plan.steps), scalars, is_matmul=plan.is_matmul)


def sign(
    plan: Plan,
    name: str,
    validate: str = "",
    more: Sequence[str] = (),
    optional: Container[str] = (),
) -> str:
    """The line that begins the function: tensors and numbers, then sizes and others by keyword.

    `more` are keywords, and what is `optional` may be None.
    """
    system, results = plan.system, len(plan.results)
    given = [
        f"{entry.name}: Tensor | None" if entry.name in optional else write_argument(entry)
        for entry in order_inputs(system)
    ]
    keywords = [
        f"{s.name}: int" + (f" = {s.default}" if s.default is not None else "")
        for s in system.sizes
    ]
    keywords += [f"{tile.block}: int | None = None" for tile in plan.tiles]
    keywords += [f"{chunk}: int = {usual}" for chunk, (_, usual) in plan.chunks.items()]
    keywords += [*more, *([f"{validate}: bool = False"] if validate else [])]
    given += ["*", *keywords] if keywords else []
    returns = "Tensor" if results == 1 else f"tuple[{', '.join(['Tensor'] * results)}]"
    returns = "tuple[Tensor | None, ...]" if optional else returns
    return fit_signature(name, given, returns)


def order_inputs(system: System) -> list[Tensor | ScalarInput]:
    """The arguments as the function takes them: those with a default come last."""
    return sorted(system.inputs, key=lambda entry: " = " in write_argument(entry))


def write_argument(entry: Tensor | ScalarInput) -> str:
    """An argument with its type, and its default if it has one."""
    if isinstance(entry, Tensor):
        return f"{entry.name}: Tensor"
    default = f" = {to_python(entry.default)}" if entry.default is not None else ""
    return f"{entry.name}: float | Tensor{default}"
