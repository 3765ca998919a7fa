"""Remarks on how code and formula were put together: what is not taken, what is not returned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.checker.reading import say_line
from derive.checker.remote import find_kind
from derive.checker.slots import Slot, find_slots
from derive.checker.sources import evaluate_source, find_names, find_tensors
from derive.checker.tries import construct
from derive.errors import Diagnostic
from derive.judge.evaluate import evaluate_system

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.checker.draws import Draw
    from derive.checker.pick import Picked
    from derive.checker.program import Program
    from derive.ir.nodes import System


def find_remarks(system: System, picked: Picked) -> Iterator[Diagnostic]:
    """What a reader of the verdict has to know about the call that was judged."""
    program = picked.program
    sources = {**program.arguments, **program.parameters}
    taken = {name for source in sources.values() for name in find_names(source)}
    for tensor in find_tensors(system):
        if tensor.name not in taken:
            yield Diagnostic(
                "not-taken",
                f"{tensor.name} of the formula is given to nothing in the code",
                help=f"bind it, as in --bind ARGUMENT={tensor.name}, if an argument stands for it",
            )
    for slot in find_unbound(program, picked.draws[0]):
        if slot.shape is not None:
            says = f"the code's parameter {slot.name} stands for nothing in the formula"
            advice = f"bind it, --bind {slot.name}=NAME, if it does"
            if slot.name.endswith("bias"):
                advice = f"make its layer with bias=False, or add it to the formula and {advice}"
            yield Diagnostic("not-given", says, help=advice)
    yield from _find_undefined(program)


def find_missing(system: System, picked: Picked) -> str:
    """The results of the formula that the code does not return, in words."""
    draw = picked.draws[0]
    results = picked.program.run(draw.make_inputs(), draw.sizes).results
    missing = [tensor.name for tensor in system.results[len(results) :]]
    if not missing:
        return ""
    kept = ", ".join(tensor.name for tensor in system.results[: len(results)])
    return f"the code does not return {', '.join(missing)}" + (
        f"; if that is meant, end the formula with: return {kept}" if kept else ""
    )


def find_stop(picked: Picked) -> str:
    """Sizes at which the code stops though the formula has a value there, in words."""
    for draw, error in picked.stops:
        found = evaluate_system(draw.system, draw.make_inputs(), draw.sizes)
        wanted = (found[tensor.name] for tensor in draw.system.results)
        if not any(bool((value != value).any()) for value in wanted):
            at = " ".join(f"{name}={size}" for name, size in draw.sizes.items())
            return f"at {at} the code stops, {error}, where the formula has a value"
    return ""


def find_loose_ends(system: System, program: Program, draw: Draw) -> str:
    """Why a difference may be one of bindings alone: both sides have names that nothing binds."""
    sources = {**program.arguments, **program.parameters}
    taken = {name for source in sources.values() for name in find_names(source)}
    tensors = [tensor.name for tensor in find_tensors(system) if tensor.name not in taken]
    slots = [slot.name for slot in find_unbound(program, draw)]
    if not tensors or not slots:
        return ""
    return (
        f"{', '.join(tensors)} of the formula and {', '.join(slots)} of the code are bound to "
        f"nothing; say what goes with what, --bind {slots[0]}={tensors[0]}"
    )


def find_unbound(program: Program, draw: Draw) -> list[Slot]:
    """The parameters of a module, and the arguments without a number as default, left unbound."""
    target = program.code.target
    if target is None:
        return []
    kind = find_kind(target)
    if kind == "class":
        made = {
            name: evaluate_source(source, draw.make_inputs(), draw.sizes, {})
            for name, source in program.constructor.items()
        }
        target, kind = construct(target, made, program.code.path), "module"
    arguments, parameters = find_slots(target)
    free = [slot for slot in arguments if slot.default is None and not slot.is_number]
    if kind != "module":
        parameters = []
    return [
        slot
        for slot in (*free, *parameters)
        if slot.name not in program.arguments and slot.name not in program.parameters
    ]


def _find_undefined(program: Program) -> Iterator[Diagnostic]:
    """What a script uses and never makes, and how it was read."""
    script = program.code.script
    for name, line in script.free.items() if script is not None else ():
        source = program.arguments.get(name)
        if source is not None:
            where = say_line(line, program.code.places)
            yield Diagnostic("undefined", f"{where}: {name} is not made: it is read as {source}")
