"""The whole generated file: header, function, and the check of the shapes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from derive.backend.lines import INDENT, WIDTH, fit_assignment, fit_call, fit_signature
from derive.backend.to_checks import (
    CHECK,
    RANGE_CHECK,
    list_arguments,
    name_validate,
    write_check,
    write_ranges,
)
from derive.backend.to_docstring import Header, write_docstring, write_header
from derive.backend.to_loop import write_loop, write_step
from derive.backend.to_python import to_python
from derive.backend.to_torch import Printer
from derive.ir.nodes import Call, Expr, Pow, Scalar, ScalarInput, Tensor
from derive.ir.walk import walk
from derive.plan.lower.number import find_positive
from derive.plan.ops import Fill, Num, NumTensor
from derive.plan.steps import find_letters, walk_ops

if TYPE_CHECKING:
    from derive.plan.steps import Plan, Regime, Step

__all__ = ["Header", "to_module"]


def to_module(plan: Plan, name: str, header: Header, *, dispatch: bool = False) -> str:
    """The text of the file; the same plan and header give the same bytes.

    With `dispatch` the orders for other sizes are functions of their own, which the first one calls
    where one of them takes fewer operations.
    """
    system = plan.system
    others = [(_name_regime(name, each), each) for each in plan.regimes] if dispatch else []
    calls = [line for other, each in others for line in _call_regime(other, each, plan)]
    validate = name_validate(plan)
    ranges = write_ranges(system, validate)
    bodies = [
        [*ranges, *calls, *_write_body(plan)],
        *(_write_body(each.plan) for _, each in others),
    ]
    code = "\n".join(line for body in bodies for line in body if not line.startswith("#"))
    plans = [plan, *(each.plan for _, each in others)]
    sizes, check = write_check(
        system,
        lambda size: re.search(rf"\b{size}\b", code) is not None,
        sorted({size for each in plans for size in find_positive(each)}),
    )
    if check:
        arguments = [argument for argument, _ in list_arguments(system)]
        head = fit_call(CHECK, ", ".join(sizes), arguments)
        bodies = [[*head, *body] for body in bodies]
    imports = "import torch\n" if "torch." in code + check else ""
    texts = ["\n".join(f"{INDENT}{line}" for line in body) for body in bodies]
    functions = [f"{_sign(plan, name, validate)}\n{write_docstring(plan, header)}\n{texts[0]}\n"]
    for (other, each), text in zip(others, texts[1:], strict=True):
        words = f'{INDENT}"""The same in the order of contraction for {each}."""'
        functions.append(f"{_sign(each.plan, other)}\n{words}\n{text}\n")
    head_text = f"{write_header(system, name, header)}\n{imports}from torch import Tensor\n"
    checks = [text for text in (check, RANGE_CHECK if ranges else "") if text]
    return "\n\n".join([head_text, *functions, *checks])


def _name_regime(name: str, regime: Regime) -> str:
    """`_attention_where_S_below_16`."""
    side = "below" if regime.is_below else "above"
    return f"_{name}_where_{regime.size}_{side}_{regime.number}"


def _call_regime(name: str, regime: Regime, plan: Plan) -> list[str]:
    """The lines that leave the work to another order."""
    given = [entry.name for entry in plan.system.inputs]
    required = [a.split(":")[0] for a in map(_argument, plan.system.inputs) if " = " not in a]
    optional = [each for each in given if each not in required]
    sizes = [f"{size.name}={size.name}" for size in plan.system.sizes]
    call = f"{name}({', '.join([*required, *optional, *sizes])})"
    return [
        f"if {regime}:",
        *(f"{INDENT}{line}" for line in fit_assignment("", call, WIDTH - 2 * len(INDENT))),
    ]


def _write_body(plan: Plan) -> list[str]:
    """A comment and a line for each step; a lone last result is returned without a name."""
    printer = _make_printer(plan)
    body = _write_scalars(printer)
    last = _find_returned(plan)
    at = plan.tile
    before = plan.steps if at is None else plan.steps[: at.first]
    for step in before:
        body += write_step(step, printer, "" if step is last else step.name)
    if at is not None:
        body += write_loop(plan, printer, last)
        for step in plan.steps[at.last + 1 :]:
            body += write_step(step, printer, "" if step is last else step.name)
    if last is None:
        body += fit_assignment("", ", ".join(printer.text(op) for op in plan.results))
    return body


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


def _make_printer(plan: Plan) -> Printer:
    """New tensors are made like the first argument; the dtype is that of the first real one."""
    names = find_letters(plan.steps), _find_tensor_scalars(plan)
    inputs = plan.system.inputs
    tensors = [t for t in inputs if isinstance(t, Tensor)]
    real = [t for t in tensors if t.kind == "real"]
    if real:
        return Printer(real[0].name, f"{real[0].name}.dtype", *names)
    if tensors:
        return Printer(tensors[0].name, "torch.get_default_dtype()", *names)
    if inputs:
        return Printer(inputs[0].name, f"{inputs[0].name}.dtype", *names)
    return Printer("torch.empty(())", "torch.get_default_dtype()", *names)


def _sign(plan: Plan, name: str, validate: str = "") -> str:
    """The line that begins the function: tensors and numbers, then sizes and others by keyword."""
    system, results = plan.system, len(plan.results)
    given = [_argument(entry) for entry in system.inputs]
    required = [a for a in given if " = " not in a]
    optional = [a for a in given if " = " in a]
    sizes = [
        f"{s.name}: int" + (f" = {s.default}" if s.default is not None else "")
        for s in system.sizes
    ]
    sizes += [f"{tile.block}: int | None = None" for tile in plan.tiles]
    sizes += [f"{validate}: bool = False"] if validate else []
    keywords = ["*", *sizes] if sizes else []
    returns = "Tensor" if results == 1 else f"tuple[{', '.join(['Tensor'] * results)}]"
    return fit_signature(name, [*required, *optional, *keywords], returns)


def _argument(entry: Tensor | ScalarInput) -> str:
    if isinstance(entry, Tensor):
        return f"{entry.name}: Tensor"
    default = f" = {to_python(entry.default)}" if entry.default is not None else ""
    return f"{entry.name}: float | Tensor{default}"
