"""Findings on a program beside its values: bindings, missing results, defaults, random numbers."""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from derive.checker import subjects
from derive.checker.pick import Choice, show_default
from derive.checker.processes import CannotRunError, find_kind
from derive.checker.program import Program
from derive.checker.reading import say_line
from derive.checker.runs import has_dropout, is_same
from derive.checker.samples import Sample
from derive.checker.slots import Slot, find_slots, parse_text
from derive.errors import Diagnostic
from derive.ir import nodes as ir
from derive.ir.walk import find_accesses
from derive.judge.compare import write_sizes


def find_remarks(system: ir.System, choice: Choice) -> Iterator[Diagnostic]:
    """Yield findings on unbound tensors and parameters and on undefined names."""
    tensors, slots = find_unbound(system, choice.program, choice.samples[0])
    read = {each.tensor for equation in system.equations for each in find_accesses(equation.value)}
    for name in (tensor.name for tensor in tensors if tensor in read):
        yield Diagnostic(
            "not-taken",
            f"{name} of the formula is unused: no argument of the code takes it",
            help=f"bind it, as in --bind ARGUMENT={name}, if an argument holds it",
        )
    for slot in slots:
        if slot.shape is not None:
            says = f"the code's parameter {slot.name} has no counterpart in the formula"
            advice = f"bind it, --bind {slot.name}=NAME, if it does"
            if slot.name.endswith("bias"):
                advice = f"create its layer with bias=False, or add it to the formula and {advice}"
            yield Diagnostic("not-given", says, help=advice)
    yield from find_undefined(choice.program)


def find_unbound(
    system: ir.System, program: Program, sample: Sample
) -> tuple[list[ir.Tensor], list[Slot]]:
    """The unbound tensors, and the unbound parameters and arguments without a default."""
    taken, target = program.find_read(), program.code.target
    tensors = [tensor for tensor in system.tensors if tensor.name not in taken]
    if target is None:
        return tensors, []
    kind = find_kind(target)
    if kind == "class":
        made = program.find_given(sample.make_inputs(), sample.sizes).constructor
        target, kind = subjects.construct(target, made, program.code.path), "module"
    arguments, parameters = find_slots(target)
    free = [slot for slot in arguments if slot.default is None and not slot.is_number]
    every = (*free, *(parameters if kind == "module" else ()))
    return tensors, [slot for slot in every if slot.name not in program.sources]


def find_undefined(program: Program) -> Iterator[Diagnostic]:
    """Yield findings on undefined names of a script with their bindings."""
    script = program.code.script
    for name, line in script.free.items() if script is not None else ():
        source = program.arguments.get(name)
        if script and source is not None:
            where = say_line(line, program.code.places)
            meant = f"the formula's {source}" if source == name else source
            yield Diagnostic("undefined", f"{where}: {name} is undefined: it is taken as {meant}")


def find_lacking(system: ir.System, choice: Choice) -> str:
    """In words, the results not returned, or sizes at which only the code fails; "" for none."""
    sample = choice.samples[0]
    count = len(choice.program.run(sample.make_inputs(), sample.sizes).results)
    names = [tensor.name for tensor in system.results]
    if names[count:]:
        advice = f"; if that is meant, end the formula with: return {', '.join(names[:count])}"
        return f"the code does not return {', '.join(names[count:])}{advice if count else ''}"
    for sample, error in ((s, e) for s, e in choice.stops if not e.is_of_one):
        wanted = sample.evaluate(sample.make_inputs()).values()
        if not any(bool((value != value).any()) for value in wanted):
            at = write_sizes(sample.sizes, " ")
            return f"at {at} the code stops, {error}, where the formula has a value"
    return ""


def find_loose_ends(system: ir.System, program: Program, sample: Sample) -> str:
    """The reason why missing bindings may explain a difference; "" for none."""
    tensors, slots = find_unbound(system, program, sample)
    if not tensors or not slots:
        return ""
    return (
        f"{', '.join(each.name for each in tensors)} of the formula and "
        f"{', '.join(each.name for each in slots)} of the code are unbound: "
        f"bind them, as in --bind {slots[0].name}={tensors[0].name}"
    )


def find_nothing(system: ir.System, choice: Choice) -> str:
    """The reason why code without arguments and results is no answer; "" for other code."""
    program, sample = choice.program, choice.first
    if program.sources or program.run(sample.make_inputs(), sample.sizes).results:
        return ""
    wanted, made = (", ".join(e.name for e in every) for every in (system.inputs, system.results))
    advice = f"name another function, or let it take {wanted} and return {made}"
    return f"the code takes no argument and returns no tensor: {advice}"


def find_other_defaults(system: ir.System, program: Program, first: Sample) -> Iterator[Diagnostic]:
    """Yield findings on arguments whose default gives other results than the formula's default."""
    target = program.code.target
    slots = [] if target is None else find_slots(target)[0]
    taken = {program.numbers.get(slot.name): slot for slot in slots if not slot.required}
    for scalar in system.scalars:
        slot = taken.get(scalar.name) or taken.get(f"tensor({scalar.name})")
        if scalar.default is None or slot is None:
            continue
        parts = (program.arguments, program.constructor)
        arguments, made = ({n: s for n, s in part.items() if n != slot.name} for part in parts)
        without = replace(program, arguments=arguments, constructor=made)
        with suppress(CannotRunError):
            values = replace(first, seed=0).make_inputs()
            runs = (each.run(values, first.sizes) for each in (program, without))
            if not all(map(is_same, *(run.results for run in runs))):
                shown = show_default(scalar.default)
                says = f"{slot.name} is {slot.default!r} by default in the code"
                says = f"{says}, in the formula {scalar.name} is {shown}"
                fact = "judged with equal numbers: where none is given, the values differ"
                yield Diagnostic("scalar-default", says, facts=(fact,))


_DRAWS = re.compile(
    r"rand|normal|bernoulli|multinomial|dropout|poisson|uniform|shuffle|exponential_"
)


def _find_draws(program: Program) -> Iterator[ast.Call]:
    """Yield the calls that draw random numbers: in a function itself first, then in its file."""
    code = program.code
    for tree in (*code.find_definitions(), parse_text(code.source)):
        for node in ast.walk(tree):
            match node:
                case ast.Call(ast.Attribute(attr=name) | ast.Name(name)) if _DRAWS.search(name):
                    yield node


def explain_chance(program: Program) -> str:
    """The reason why results vary between calls, in words."""
    code = program.code
    if code.script is not None:
        needed = code.script.sources.get(code.answer, ())
        strange = [n for n in code.script.made if n in needed and n not in program.arguments]
        if strange:
            made = f"the result is made from {', '.join(strange)}, which the script draws at random"
            return f"{made} and which has no counterpart in the formula"
    drawn = next(_find_draws(program), None)
    if has_dropout(code.target) or (drawn is None and "dropout" in code.source.lower()):
        return "the code draws random numbers: dropout in training mode; call .eval()"
    if drawn is not None:
        says = f"{say_line(drawn.lineno, code.places)} draws random numbers at each call"
        way = "take them as an argument" if code.script is None else "assign x = torch.randn(..)"
        mend = "call .eval()" if "dropout" in ast.unparse(drawn) else way
        return f"{says}, {ast.unparse(drawn)}: {mend}"
    return "the code gives other results at each call: random numbers, or a kept state"
