"""The generated file with a backward of its own: a `torch.autograd.Function` around two plans.

    NAME         the public function: checks ranges, and applies the Function
    _Function    saves the tensors that the backward reads, and passes on which gradients are needed
    _forward     the plan of the results, and of the tensors kept for the backward
    _backward    the plan of the gradients; None for those that are not needed

For second derivatives the kept tensors are computed again from the arguments, under autograd.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from derive.backend import to_checks, to_module
from derive.backend.arithmetic import to_python
from derive.backend.lines import (
    INDENT,
    WIDTH,
    fit_assignment,
    fit_call,
    fit_signature,
    fit_targets,
    indent,
    write_function,
)
from derive.ir import nodes as ir
from derive.ir.text import to_text
from derive.plan import ops, steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from derive.plan.backward import Passes
    from derive.plan.plan import Plan

IMPORTS = (
    "import torch",
    "from torch import Tensor",
    "from torch.autograd.function import FunctionCtx",
)
ROOM = WIDTH - 2 * len(INDENT)  # columns of a line of a method
TWICE = "Second derivatives go through the backward; jvp needs the file without --backward."


def to_function(passes: Passes, system: ir.System, name: str, header: to_module.Header) -> str:
    """The text of a file with a backward; the same plans and header give the same bytes."""
    forward, backward = passes.forward, passes.backward
    results = len(system.results)
    shown = replace(forward, system=system, results=forward.results[:results])
    blocks = passes.blocks
    validate = to_checks.name_validate(shown)
    ranges = to_checks.write_ranges(system, validate)
    reading = to_checks.write_sizes(system, ranges) if ranges else []
    body = to_module.write_body(forward)
    checking, check = to_checks.write_check(system, body, forward)
    body = [*checking, *body]
    keywords = [f"{block}: int | None = None" for block in blocks.values()]
    rows = [
        (blocks[tile.block], "", "int", f"keyword: the same of {tile.index.name} in the backward")
        for tile in backward.tiles
    ]
    said = passes.describe_costs()
    remarks = (f"{said[0].upper()}{said[1:]}.", TWICE)
    given = [entry.name for entry in (*to_module.order_inputs(system), *system.sizes)]
    given += [*(tile.block for tile in forward.tiles), *blocks.values()]
    names = [tensor.name for tensor in forward.system.results]
    applied = fit_call("_Function.apply", "", given)
    if len(names) == results:
        call = ["return " + applied[0], *applied[1:]]
    else:
        targets = ", ".join([*names[:results], "*_"])
        call = [f"{targets} = {applied[0]}", *applied[1:], f"return {', '.join(names[:results])}"]
    own = {equation.target.tensor for equation in system.equations}
    gradients = [to_text(e) for e in passes.gradients.equations if e.target.tensor not in own]
    is_more = len(names) > results
    words = "The results, and what is kept for the backward." if is_more else "The results."
    functions = [
        "\n".join(
            (to_module.write_header(system, name, header, gradients, passes.given), *IMPORTS, "")
        ),
        write_function(
            to_module.sign(shown, name, validate, keywords),
            to_module.write_docstring(shown, header, rows, remarks),
            [*reading, *ranges, *call],
        ),
        _ClassWriter(passes, system, given).write(system.sizes),
        write_function(to_module.sign(forward, "_forward"), [f'"""{words}"""'], body),
        _write_backward(passes, given),
    ]
    helpers = to_checks.write_helpers((forward, backward), ranges=bool(ranges))
    checks = [check, *helpers] if check else helpers
    return "\n\n".join([*functions, *checks])


class _ClassWriter:
    """The text of the class `_Function`: what it saves, and the calls of the two plans.

    `more` are the results of `_forward` beside the formula's own. `saved` are the names of saved
    tensors, `numbers` those of saved sizes and block lengths.
    """

    def __init__(self, passes: Passes, system: ir.System, given: Sequence[str]) -> None:
        forward, backward = passes.forward, passes.backward
        self.passes, self.given = passes, given
        self.entries = {entry.name: entry for entry in to_module.order_inputs(system)}
        self.names = [tensor.name for tensor in forward.system.results]
        self.more = self.names[len(system.results) :]
        self.read = {entry.name for entry in backward.system.inputs}
        kept = [name for name in self.entries if self.more or name in self.read]
        self.saved = kept + list(passes.kept)
        self.scalars = [n for n in self.saved if isinstance(self.entries.get(n), ir.ScalarInput)]
        self.ahead = [f"{tile.block}={tile.block}" for tile in forward.tiles]
        self.ahead += [f"{size.name}={size.name}" for size in system.sizes]
        self.behind = [f"{s.name}={s.name}" for s in backward.system.sizes]
        self.behind += [f"{own}={public}" for own, public in passes.blocks.items()]
        keywords = (*(self.ahead if self.more else ()), *self.behind)
        numbers = [word.split("=")[1] for word in keywords]
        self.numbers = [name for name in given if name in numbers]
        taken = {*forward.names, *backward.names, *given}
        self.ctx, self.inputs, self.output = (
            steps.free_name(word, taken) for word in ("ctx", "inputs", "output")
        )

    def write(self, sizes: Sequence[ir.SizeInput]) -> str:
        """The class with its three methods."""
        typed = [
            *(
                f"{n}: {'' if isinstance(entry, ir.Tensor) else 'float | '}Tensor"
                for n, entry in self.entries.items()
            ),
            *(f"{size.name}: int" for size in sizes),
        ]
        typed += [f"{name}: int | None" for name in self.given[len(typed) :]]
        returns = "Tensor" if len(self.names) == 1 else "tuple[Tensor, ...]"
        context = f"{self.ctx}: FunctionCtx"
        setting = [context, f"{self.inputs}: tuple", f"{self.output}: {returns}"]
        seeds = [f"{name}: Tensor | None" for name in self.passes.given.values()]
        seeds += ["*_: None"] if self.more else []
        forward = _call_forward(self.passes.forward, [*self.entries, *self.ahead])
        gradients = "tuple[Tensor | None, ...]"
        methods = [
            ("forward", typed, returns, forward),
            ("setup_context", setting, "None", self._write_setup()),
            ("backward", [context, *seeds], gradients, self._write_backward()),
        ]
        texts = [
            "class _Function(torch.autograd.Function):\n"
            f'{INDENT}"""The results, with a backward that is planned like them."""\n\n'
            f"{INDENT}generate_vmap_rule = True\n"
        ]
        for method, parameters, result, lines in methods:
            head = fit_signature(method, parameters, result, WIDTH - len(INDENT))
            texts.append(write_function(f"@staticmethod\n{head}", lines, depth=1))
        return "\n".join(texts)

    def _write_setup(self) -> list[str]:
        """The lines that save tensors and numbers for the backward."""
        ctx, first = self.ctx, self.names[0]
        like = to_module.make_printer(self.passes.forward).like
        read = {*self.saved, *self.numbers, *([like] if self.scalars else [])}
        bound = [n if n in read else "_" for n in self.given]
        made = [n if n in {first, *self.passes.kept} else "_" for n in self.names]
        is_one = len(self.names) == 1
        return [
            *_unpack(bound, self.inputs),
            *([f"{first} = {self.output}"] if is_one else _unpack(made, self.output)),
            f"{ctx}.dtype = {first}.dtype",
            *([f"{ctx}.numbers = {_tuple(self.numbers)}"] if self.numbers else []),
            *([f"{ctx}.mark_non_differentiable({', '.join(self.more)})"] if self.more else []),
            f"{ctx}.set_materialize_grads(False)",
            *(
                f"{n} = {n} if torch.is_tensor({n}) else {like}.new_tensor({n})"
                for n in self.scalars
            ),
            *fit_call(f"{ctx}.save_for_backward", "", self.saved, ROOM),
        ]

    def _write_backward(self) -> list[str]:
        """The lines that read the saved values, and call `_backward`."""
        ctx, backward = self.ctx, self.passes.backward
        body = [
            *(_unpack(self.saved, f"{ctx}.saved_tensors") if self.saved else []),
            *(_unpack(self.numbers, f"{ctx}.numbers") if self.numbers else []),
        ]
        if self.more:
            kept = [n if n in self.passes.kept and n in self.more else "_" for n in self.names]
            again = [*self.entries, *self.ahead]
            body.append(
                "if torch.is_grad_enabled():  # second derivatives go through what is kept, too"
            )
            body += indent(fit_call("_forward", ", ".join(kept), again, ROOM - len(INDENT)))
        body += self._write_casts()
        needs = steps.free_name("needs", backward.names)
        passed = [entry.name for entry in to_module.order_inputs(backward.system)]
        wanted = f"{needs}={ctx}.needs_input_grad"
        return body + fit_call("return _backward", "", [*passed, *self.behind, wanted], ROOM)

    def _write_casts(self) -> list[str]:
        """The lines that cast saved real tensors to the dtype of the results."""
        given = [e for e in self.entries.values() if isinstance(e, ir.Tensor)]
        kinds = {e.name: e.kind for e in (*given, *self.passes.forward.system.results)}
        real = [
            n
            for n in self.saved
            if n in self.read and kinds.get(n, "real") == "real" and n not in self.scalars
        ]
        if not real:
            return []
        remark = "# under autocast the results have another dtype than the arguments"
        targets = ", ".join(real)
        if len(real) == 1:
            return [remark, f"{targets} = {targets}.to({self.ctx}.dtype)"]
        casts = f"each.to({self.ctx}.dtype) for each in ({targets})"
        return [remark, *fit_call("", targets, [casts], ROOM)]


def _call_forward(plan: Plan, arguments: list[str]) -> list[str]:
    """The lines that call `_forward`, and detach results that share a tensor with another one."""
    if not (alike := _find_alike(plan)):
        return fit_call("return _forward", "", arguments, ROOM)
    names = [tensor.name for tensor in plan.system.results]
    shown = [f"{name}.detach()" if name in alike else name for name in names]
    return [
        *fit_call("_forward", ", ".join(names), arguments, ROOM),
        "# autograd tells what is returned apart by the tensors",
        *fit_assignment("", ", ".join(shown), ROOM),
    ]


def _find_alike(plan: Plan) -> set[str]:
    """The names of results that may be the same tensor as an argument or an earlier result."""

    def find_root(op: ops.Op | None) -> str:
        root, made = "", {step.name: step.op for step in plan.steps}
        while True:
            match op:
                case ops.Source(name):
                    root, op = name, made.pop(name, None)
                case ops.Cast(arg) | ops.Apply("re" | "conj", (arg,)):
                    op = arg
                case ops.NumTensor(ir.Scalar(name)):
                    return name
                case _:
                    return root

    seen = {entry.name for entry in plan.system.inputs}
    alike: set[str] = set()
    for tensor, op in zip(plan.system.results, plan.results, strict=True):
        root = find_root(op)
        alike |= {tensor.name} if root in seen else set()
        seen |= {root} if root else set()
    return alike


def _tuple(names: Sequence[str]) -> str:
    return ", ".join(names) + "," * (len(names) == 1)


def _unpack(names: Sequence[str], value: str) -> list[str]:
    """The lines `a, b = value` in a method; `a, = value` for one name."""
    *lines, last = fit_targets(_tuple(names), ROOM - len(value))
    return [*lines, f"{last}{value}"]


def _write_backward(passes: Passes, given: Sequence[str]) -> str:
    """The text of `_backward`, which returns for each argument in `given` its gradient or None."""
    plan = passes.backward
    printer = to_module.make_printer(plan)
    needs = steps.free_name("needs", plan.names)
    flags = {name: steps.free_name(f"needs_{name}", plan.names) for name in passes.made}
    is_one = len(flags) == 1
    wanted = {} if is_one else _find_wanted(plan, list(flags.values()))
    body = to_module.write_body(plan, wanted, returns=False)
    seeds = [e for e in plan.system.inputs if e.name in passes.given.values()]
    fill: list[str] = []
    for entry in seeds:
        name = entry.name
        if isinstance(entry, ir.ScalarInput):
            fill.append(f"{name} = 0.0 if {name} is None else {name}")
        else:
            shape = "".join(f"{to_python(extent)}, " for extent in entry.shape).removesuffix(", ")
            zeros = f"{printer.like}.new_zeros({shape or '()'})"
            value = f"{zeros} if {name} is None else {name}.to({printer.dtype})"
            fill += fit_assignment(name, value)
    sure = [entry for entry in plan.system.inputs if entry not in seeds]  # seeds may be None
    given_system = replace(plan.system, inputs=tuple(sure))
    head = to_checks.write_sizes(given_system, [*fill, *body])
    if not is_one:
        places = [given.index(name) for name in flags]
        parts = ", ".join(flags.values())
        if places == list(range(len(places))):
            head += fit_assignment(f"{parts}, *_", needs)
        else:
            head += fit_assignment(parts, ", ".join(f"{needs}[{place}]" for place in places))
    texts = dict(zip(flags, (printer.text(op) for op in plan.results), strict=True))
    rows = [
        "None" if n not in texts else texts[n] if is_one else f"{texts[n]} if {flags[n]} else None"
        for n in given
    ]
    line = f"return {', '.join(rows)}{',' * (len(rows) == 1)}"
    back = (
        [line]
        if len(line) <= to_module.OUTER
        else ["return (", *indent(f"{row}," for row in rows), ")"]
    )
    signed = to_module.sign(
        plan, "_backward", "", [f"{needs}: tuple[bool, ...]"], passes.given.values()
    )
    words = "The gradients by the arguments that need one, out of those by the results."
    return write_function(signed, [f'"""{words}"""'], head, fill, body, back)


def _find_wanted(plan: Plan, flags: Sequence[str]) -> Mapping[str, str]:
    """The condition, over `flags`, under which a gradient needs a step; no entry: always.

    Operands of loops over blocks and of recurrences are always needed.
    """
    found: dict[str, set[int]] = {}
    every = set(range(len(flags)))
    for number, op in enumerate(plan.results):
        for name in ops.find_reads(op):
            found.setdefault(name, set()).add(number)
    for tile in plan.tiles:
        for _, op in tile.sliced:
            found.update((name, set(every)) for name in ops.find_reads(op))
    for scan in plan.scans:
        loop = plan.steps[scan.first : scan.last + 1]
        parts = [step.op for step in loop] + [op for _, op, _ in scan.sliced]
        parts += [op for each in scan.carried for op in (*each.first, each.made)]
        names = {step.name for step in loop}.union(*map(ops.find_reads, parts))
        found.update((name, set(every)) for name in names)
    before = None
    while before != found:
        before = {name: set(numbers) for name, numbers in found.items()}
        for step in reversed(plan.steps):
            for name in ops.find_reads(step.op):
                found.setdefault(name, set()).update(found.get(step.name, ()))
    conditions = {}
    for step in plan.steps:
        numbers = found.get(step.name, every)
        if numbers != every:
            conditions[step.name] = " or ".join(flags[k] for k in sorted(numbers))
    return conditions
