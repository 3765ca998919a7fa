"""Which program and which draws: the first binding under which the code runs and fits."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from derive.checker.bind import (
    Match,
    find_constructor,
    find_programs,
    match_slots,
)
from derive.checker.bind import (
    find_numbers as find_integers,
)
from derive.checker.draws import Draw, find_draws
from derive.checker.judge import find_expected, run_quietly
from derive.checker.load import CannotRunError, Code, finish_script
from derive.checker.program import Program
from derive.checker.shapes import find_sources, solve_sizes
from derive.checker.slots import Slot, find_slots, rank_sizes
from derive.checker.sources import find_letters, find_tensors
from derive.errors import Diagnostic
from derive.ir.nodes import ScalarInput, System
from derive.verify.compare import compare_values
from derive.verify.evaluate import evaluate_system
from derive.verify.samples import find_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MOST_SIZES = 12  # assignments of sizes that fit a module's shapes


@dataclass(frozen=True)
class Picked:
    """A program that runs at these draws, and what has to be said of it."""

    program: Program
    draws: tuple[Draw, ...]
    findings: tuple[Diagnostic, ...] = ()


def pick_program(
    code: Code, system: System, binds: Mapping[str, str], sizes: Mapping[str, int]
) -> Picked:
    """The likeliest program that runs; CannotRunError of the likeliest if none does.

    A program whose results have the formula's shapes is preferred to one that only runs, and among
    several ways to fill in integers the one that gives the formula's values.
    """
    first_error: CannotRunError | None = None
    runs: Picked | None = None
    has_fit = False
    for program, draws, why in _find_tries(code, system, binds, sizes):
        if runs is not None and draws[0].sizes != runs.draws[0].sizes:
            break  # it runs at the sizes that were tried before
        if runs is not None and program.layout:
            continue  # it runs as it is
        try:
            fits, agrees = _try_program(program, draws[0])
            if program.layout and not fits:
                continue
            kept, lost = _find_good(program, draws)
        except CannotRunError as error:
            first_error = first_error or error
            continue
        if runs is None or agrees or (fits and not has_fit):
            runs = Picked(program, tuple(kept), _explain_draws(why, kept, lost))
        has_fit |= fits
        if agrees or (fits and not program.guessed):
            break
    if runs is None:
        raise first_error or CannotRunError("no arguments could be found for it")
    return runs


def _try_program(program: Program, draw: Draw) -> tuple[bool, bool]:
    """Do the results have the formula's shapes, and its values?"""
    values = draw.make_inputs()
    results, _ = run_quietly(program, values, draw.sizes)
    found = evaluate_system(draw.system, values, draw.sizes)
    wanted = find_expected(program, {t.name: found[t.name] for t in draw.system.results})
    if not results:
        return False, False
    pairs = list(zip(wanted, results, strict=False))
    fits = all(tuple(value.shape) == tuple(one.shape) for (_, value), one in pairs)
    agrees = fits and not any(compare_values(n, one, value)[1] for (n, value), one in pairs)
    return fits, agrees


def _find_good(program: Program, draws: list[Draw]) -> tuple[list[Draw], list[Draw]]:
    """The draws at which the code runs, and those at which it does not; the first one does."""
    kept, lost = draws[:1], []
    for draw in draws[1:]:
        try:
            run_quietly(program, draw.make_inputs(), draw.sizes)
            kept.append(draw)
        except CannotRunError:
            lost.append(draw)
    return kept, lost


def _explain_draws(why: str, kept: list[Draw], lost: list[Draw]) -> tuple[Diagnostic, ...]:
    said = []
    ones = [draw for draw in lost if 1 in draw.sizes.values()]
    if ones:
        names = ", ".join(n for n, size in ones[0].sizes.items() if size == 1)
        said.append(Diagnostic("size-one", f"the code does not run where {names} is 1"))
    same = _find_equal(kept)
    if why == "equal" or (same and len(kept) > 0 and _all_equal(kept)):
        names = " = ".join(same)
        said.append(
            Diagnostic(
                "equal-sizes",
                f"the code is judged only where {names}",
                facts=(f"equal sizes hide exchanges of indices of {', '.join(same)}",),
            )
        )
    return tuple(said)


def _find_equal(draws: list[Draw]) -> list[str]:
    """Names of sizes that are equal in the first draw."""
    sizes = draws[0].sizes
    values = list(sizes.values())
    return [name for name, size in sizes.items() if values.count(size) > 1]


def _all_equal(draws: list[Draw]) -> bool:
    return all(_find_equal([draw]) for draw in draws)


def _find_tries(
    code: Code, system: System, binds: Mapping[str, str], sizes: Mapping[str, int]
) -> Iterator[tuple[Program, list[Draw], str]]:
    import torch

    if code.script is not None:
        yield from _try_script(code, system, binds, sizes)
    elif isinstance(code.target, type):
        yield from _try_class(code, system, binds, sizes)
    elif isinstance(code.target, torch.nn.Module):
        yield from _try_module(code, system, binds, sizes)
    else:
        yield from _try_function(code, system, binds, sizes)


def find_fixed(system: System, given: Mapping[str, int], program: Program) -> dict[str, int]:
    """Sizes that are told, and the defaults of keyword sizes that the code does not take."""
    taken = {*program.arguments.values(), *program.constructor.values()}
    defaults = {s.name: s.default for s in system.sizes if s.default and s.name not in taken}
    return {**defaults, **given}


def _try_function(
    code: Code, system: System, binds: Mapping[str, str], sizes: Mapping[str, int]
) -> Iterator[tuple[Program, list[Draw], str]]:
    programs = list(find_programs(code, system, binds))
    numbers = list(_name_numbers(code, system))
    told = find_fixed(system, sizes, programs[0])
    for number, (draws, why) in enumerate(find_draws(system, told, numbers)):
        for program in programs if number == 0 else programs[:12]:
            fixed = _fix_scalars(program, system, draws)
            yield program, fixed, why


def _fix_scalars(program: Program, system: System, draws: list[Draw]) -> list[Draw]:
    """Scalars with a default that the code does not take keep it."""
    taken = set(program.arguments.values()) | set(program.constructor.values())
    untaken = [
        s
        for s in system.inputs
        if isinstance(s, ScalarInput) and s.default is not None and s.name not in taken
    ]
    if not untaken:
        return draws
    return [
        Draw(draw.system, draw.sizes, draw.seed, tuple(s.name for s in untaken)) for draw in draws
    ]


def _name_numbers(code: Code, system: System) -> Iterator[dict[str, int]]:
    """Sizes as the code's own numbers have them, by their usual names."""
    numbers = find_numbers(code)
    names = list(find_sizes(system))
    told: dict[str, int] = {}
    for called, value in numbers.items():
        ranked = rank_sizes(called, names)
        if ranked and ranked[0] not in told and rank_sizes(called, ["?", ranked[0]])[0] != "?":
            told[ranked[0]] = value
    if told:
        yield told
    for name in names:
        for value in dict.fromkeys(numbers.values()):
            yield {name: value}


def find_numbers(code: Code) -> dict[str, int]:
    """Whole numbers that the file or the closure has by name."""
    return {
        name: value
        for name, value in code.names.items()
        if type(value) is int and 0 < value <= 4096 and not name.startswith("__")
    }


def _try_module(
    code: Code, system: System, binds: Mapping[str, str], sizes: Mapping[str, int]
) -> Iterator[tuple[Program, list[Draw], str]]:
    """A module that is made: its shapes say the sizes."""
    _, parameters = find_slots(code.target)
    numbers = _find_attributes(code.target)
    for program in find_programs(code, system, binds):
        given = {**program.parameters, **program.arguments}
        told = find_fixed(system, sizes, program)
        slots = [slot for slot in parameters if slot.name in program.parameters]
        untold = [slot for slot in slots if slot.name not in binds]  # what is told has its layout
        for solved in islice(solve_sizes(system, given, slots, numbers, told), MOST_SIZES):
            sources = find_sources(system, given, untold, solved)
            if sources is None:
                continue
            whole = _place(program, sources)
            draws = next(iter(find_draws(system, solved, ())))[0]
            yield whole, _fix_scalars(whole, system, draws), "numbers"


def _place(program: Program, sources: Mapping[str, str]) -> Program:
    return replace(program, parameters={**program.parameters, **sources})


def _find_attributes(module: Any) -> dict[str, int]:
    """Whole numbers that a module and its parts keep."""
    found: dict[str, int] = {}
    for part in module.modules():
        for name, value in vars(part).items():
            if type(value) is int and 0 < value <= 1 << 16:
                found.setdefault(name, value)
    return found


def _try_class(
    code: Code, system: System, binds: Mapping[str, str], sizes: Mapping[str, int]
) -> Iterator[tuple[Program, list[Draw], str]]:
    """A class of modules: made at the sizes of each draw, so that it is judged at several."""
    slots = find_constructor(code, binds)
    told = {slot.name: binds[slot.name] for slot in slots if slot.name in binds}
    open_slots = [slot for slot in slots if slot.name not in told]
    rest = {name: source for name, source in binds.items() if name not in told}
    match = Match({}, [], [s for s in system.inputs if isinstance(s, ScalarInput)])
    fixed = find_fixed(system, sizes, Program(code, constructor=told))
    for draws, why in find_draws(system, fixed, ()):
        for given in islice(find_integers(open_slots, match, system), 60):
            maker = Program(code, constructor={**told, **given})
            with suppress(Exception):  # integers that do not fit are not the ones that are meant
                for program in _make_modules(maker, draws[0], system, rest):
                    yield program, _fix_scalars(program, system, draws), why

    with suppress(Exception):  # a class that needs no arguments, with the sizes that it has in it
        module = code.target(**{n: _read_number(s, draws[0], maker) for n, s in told.items()})
        yield from _try_module(replace(code, target=module.eval()), system, rest, sizes)


def _make_modules(
    maker: Program, draw: Draw, system: System, binds: Mapping[str, str]
) -> Iterator[Program]:
    """The programs of a class that is made with these arguments."""
    made = {name: _read_number(s, draw, maker) for name, s in maker.constructor.items()}
    module = maker.code.target(**made)
    _, parameters = find_slots(module)
    for program in find_programs(replace(maker.code, target=module), system, binds):
        given = program.parameters
        chosen = [slot for slot in parameters if slot.name in given and slot.name not in binds]
        sources = find_sources(system, given, chosen, draw.sizes)
        if sources is not None:
            whole = _place(program, sources)
            yield replace(whole, code=maker.code, constructor=maker.constructor, guessed=True)


def _read_number(source: str, draw: Draw, program: Program) -> Any:
    from derive.checker.sources import evaluate_source

    return evaluate_source(source, draw.make_inputs(), draw.sizes, program.letters)


def _try_script(
    code: Code, system: System, binds: Mapping[str, str], sizes: Mapping[str, int]
) -> Iterator[tuple[Program, list[Draw], str]]:
    """A script: what it makes up at random, and what it lacks, are its arguments."""
    script = code.script
    assert script is not None
    slots = [_to_slot(code, name, name not in script.made) for name in script.arguments]
    match = Match(dict(binds), list(find_tensors(system)), [])
    match_slots(match, slots)
    if not any(s.required for s in slots):
        match_slots(match, [replace(slot, required=True) for slot in slots])
    names = tuple(name for name in match.arguments if name in script.arguments)
    for result in _find_results(code, system):
        finished = finish_script(code, names, result)
        program = Program(finished, match.arguments, letters=find_letters(system))
        shaped = [slot for slot in slots if slot.name in names and slot.shape is not None]
        told = find_fixed(system, sizes, program)
        numbers = find_numbers(code)
        if not shaped:
            for draws, why in find_draws(system, told, list(_name_numbers(code, system))):
                yield program, draws, why
        for solved in islice(
            solve_sizes(system, match.arguments, shaped, numbers, told), MOST_SIZES
        ):
            draws = next(iter(find_draws(system, solved, ())))[0]
            yield program, draws, "numbers"


def _to_slot(code: Code, name: str, required: bool) -> Slot:
    value: Any = code.names.get(name)
    shape = tuple(value.shape) if hasattr(value, "shape") else None
    return Slot(name, required=required, shape=shape)


def _find_results(code: Code, system: System) -> list[str]:
    """The names that may be the result: one of the formula's, else the last tensor assigned."""
    script = code.script
    assert script is not None
    wanted = {tensor.name.lower() for tensor in system.results}
    known = [
        name
        for name in script.results
        if name not in code.names or hasattr(code.names[name], "dtype")
    ]
    named = [name for name in known if name.lower() in wanted]
    return list(dict.fromkeys([*named[:1], *known[:1], *([] if known else [""])]))
