"""Which program and which draws: the first binding under which the code runs and fits."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from derive.checker.judge import MOST_STEPS, count_steps, find_expected
from derive.checker.load import CannotRunError
from derive.checker.ties import Failures, is_undefined
from derive.checker.tries import Attempt, Task, find_attempts
from derive.errors import Diagnostic
from derive.ir.nodes import ScalarInput, System
from derive.judge.compare import compare_values
from derive.judge.evaluate import evaluate_system

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from derive.checker.draws import Draw, Draws
    from derive.checker.load import Code
    from derive.checker.program import Program


@dataclass(frozen=True)
class Picked:
    """A program that runs at these draws, and what has to be said of it."""

    program: Program
    draws: tuple[Draw, ...]
    findings: tuple[Diagnostic, ...] = ()
    stops: tuple[tuple[Draw, CannotRunError], ...] = ()  # draws at which the code does not run
    shown: Draw | None = None  # a further draw, at which code and formula differ


def pick_program(
    code: Code, system: System, binds: Mapping[str, str], sizes: Mapping[str, int]
) -> Picked:
    """The likeliest program that runs; CannotRunError of the likeliest if none does.

    A program whose results have the formula's shapes is preferred to one that only runs, and among
    several ways to fill in integers the one that gives the formula's values.
    """
    failures = Failures()
    best = _Best()
    for attempt in find_attempts(Task(code, system, binds, sizes, failures)):
        if best.picked is not None and attempt.draws.first.sizes != best.picked.draws[0].sizes:
            break  # it runs at the sizes that were tried before
        if _try_attempt(attempt, best, failures):
            break
    if best.picked is None:
        raise failures.first or CannotRunError("no arguments could be found for it")
    return best.picked


@dataclass
class _Best:
    """The best program so far that runs."""

    picked: Picked | None = None
    fits: bool = False


def _try_attempt(attempt: Attempt, best: _Best, failures: Failures) -> bool:
    """Try the programs at the first draw; True where no better one will come."""
    for program in attempt.programs:
        if best.picked is not None and program.layout:
            continue  # it runs as it is
        first = _fix_scalars(program, attempt.draws.first)
        try:
            fits, agrees = _try_program(program, first)
        except CannotRunError as error:
            failures.add(error, counts=not program.layout)
            if is_undefined(error):
                return True  # whatever it is given
            continue
        if program.layout and not fits:
            continue
        if best.picked is None or agrees or (fits and not best.fits):
            best.picked = _pick(program, first, attempt.draws)
            if fits:
                best.picked = _pick_wider(best.picked, attempt.wider, agrees)
        best.fits |= fits
        if agrees or (fits and not program.guessed):
            return True
    return False


def _pick(program: Program, first: Draw, draws: Draws) -> Picked:
    """The program with the draws at which it runs, the first of which it does."""
    kept, stops = [first], []
    is_long = count_steps(first) > MOST_STEPS  # then once at the same sizes is enough
    for draw in draws.make_others():
        if is_long and draw.sizes == first.sizes:
            continue
        fixed = _fix_scalars(program, draw)
        try:
            program.run(fixed.make_inputs(), fixed.sizes)
            kept.append(fixed)
        except CannotRunError as error:
            stops.append((fixed, error))
    findings = explain_draws(kept, [draw for draw, _ in stops], draws.told)
    return Picked(program, tuple(kept), tuple(findings), tuple(stops))


def _pick_wider(own: Picked, wider: Iterable[Attempt], agrees: bool) -> Picked:
    """A script at other sizes too than its own, if it is the same there as it is at its own.

    Large ones of its own are left out of what follows; else one that differs is explained at its
    own sizes alone.
    """
    is_long = count_steps(own.draws[0]) > MOST_STEPS
    for attempt in wider if agrees or is_long else ():
        for program in attempt.programs:
            first = _fix_scalars(program, attempt.draws.first)
            with suppress(CannotRunError):
                if _try_program(program, first) == (True, agrees):
                    return _join(own, _pick(program, first, attempt.draws), is_long)
    return own


def _join(own: Picked, picked: Picked, is_long: bool) -> Picked:
    if not is_long:
        return replace(picked, draws=(own.draws[0], *picked.draws))
    at = " ".join(f"{name}={size}" for name, size in own.draws[0].sizes.items())
    says = f"what is said holds at the script's own sizes too, {at}"
    return replace(picked, findings=(*picked.findings, Diagnostic("own-sizes", says)))


def _fix_scalars(program: Program, draw: Draw) -> Draw:
    """The draw with the default of each scalar that the code does not take."""
    taken = set(program.arguments.values()) | set(program.constructor.values())
    scalars = [entry for entry in draw.system.inputs if isinstance(entry, ScalarInput)]
    untaken = [s.name for s in scalars if s.default is not None and s.name not in taken]
    return replace(draw, defaulted=tuple(untaken)) if untaken else draw


def _try_program(program: Program, draw: Draw) -> tuple[bool, bool]:
    """Do the results have the formula's shapes, and its values?"""
    values = draw.make_inputs()
    results = program.run(values, draw.sizes).results
    found = evaluate_system(draw.system, values, draw.sizes)
    wanted = find_expected(program, {t.name: found[t.name] for t in draw.system.results})
    if not results:
        return False, False
    pairs = list(zip(wanted, results, strict=False))
    fits = all(tuple(value.shape) == tuple(one.shape) for (_, value), one in pairs)
    agrees = fits and not any(compare_values(n, one, value)[1] for (n, value), one in pairs)
    return fits, agrees


def explain_draws(
    kept: Sequence[Draw], lost: Sequence[Draw], told: frozenset[str]
) -> Iterator[Diagnostic]:
    """What the draws do not show."""
    for draw in lost:
        ones = [n for n, size in draw.sizes.items() if size == 1 != kept[0].sizes[n]]
        if ones:
            yield Diagnostic("size-one", f"the code does not run where {', '.join(ones)} is 1")
            break
    classes = list(_find_equal(kept, lost, told))
    if classes:
        said = " and ".join(" = ".join(names) for names in classes)
        hidden = " and ".join(", ".join(names) for names in classes)
        yield Diagnostic(
            "equal-sizes",
            f"the code is judged only where {said}",
            facts=(f"equal sizes hide exchanges of indices of {hidden}",),
        )


def _find_equal(
    kept: Sequence[Draw], lost: Sequence[Draw], told: frozenset[str]
) -> Iterator[list[str]]:
    """Names of sizes that are equal in every draw, and not by chance alone.

    They are told, or tied, or the code does not run where they differ.
    """
    classes: dict[tuple[int, ...], list[str]] = {}
    for name in kept[0].sizes:
        classes.setdefault(tuple(draw.sizes[name] for draw in kept), []).append(name)
    for names in classes.values():
        asked = [name for name in names if name in told]
        apart = any(len({draw.sizes[name] for name in names}) > 1 for draw in lost)
        found = names if apart else asked
        if len(found) > 1:
            yield found
