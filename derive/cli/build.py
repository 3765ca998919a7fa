"""`derive build`: formulas to files, each judged against the loops before it is written.

`derive build --check` builds in memory and compares bytes. A file is

    fresh      what derive writes
    stale      made from another formula, or by another command; its header differs. Options that
               the header names are no other command, unless some are given here
    edited     its header is right, its code is not what derive writes
    missing    not there
    left over  made from the same place as the others by derive, but its formula is gone
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from derive.cli.files import show_path
from derive.cli.formulas import LIBRARY, build_found, find_formulas, find_library
from derive.cli.header import find_header, find_origin, read_made
from derive.cli.options import NONE, Options
from derive.cli.remarks import find_remarks, say_sizes
from derive.cli.sizes import check_sizes, to_option
from derive.cli.step_table import to_plan_data
from derive.cli.tables import (
    print_diagnostic,
    print_json,
    print_line,
    print_table,
    print_text,
    to_short,
    track,
)
from derive.errors import DeriveError, refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from derive.cli.formulas import Found
    from derive.compiler import Built
    from derive.ir.nodes import System

DEFAULT_OUT = Path("generated")
BUILT = ("formula", "arguments", "einsums", "flops", "elements", "equal to the loops at", "file")
DRAWS = 3  # sets of sizes at which a file is judged


@dataclass(frozen=True, slots=True)
class Order:
    """What to build, where to, and at which sizes."""

    found: tuple[Found, ...]
    out: Path
    options: Options = NONE
    whole: tuple[str, ...] = ()  # origins whose formulas are all here


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one formula: its file, the state of it, and what was built or refused."""

    found: Found
    path: Path
    state: str
    built: Built | None = None
    options: Options = NONE  # as far as they are this formula's
    refused: DeriveError | None = None


def find_order(
    arguments: Sequence[str],
    out: Path,
    name: str | None,
    options: Options,
) -> Order:
    """The formulas of the command line; without arguments those of the library."""
    if name is not None and len(arguments) != 1:
        says = "--name names a single formula"
        raise refuse("name-many", says, help="name one formula to build beside it")
    whole = [show_path(Path(argument)) for argument in arguments] or [f"{LIBRARY}/"]
    if arguments:
        found = tuple(f for argument in arguments for f in find_formulas(argument, name))
    else:
        found = tuple(find_library().values())
    taken: dict[str, Found] = {}
    for each in found:
        if each.name in taken:
            raise refuse(
                "formula-twice",
                f"two formulas would be written to {each.name}.py",
                facts=[f"from {taken[each.name].origin}", f"from {each.origin}"],
                help="build one of them with --name, or into another --out",
            )
        taken[each.name] = each
    return Order(found, out, options, tuple(whole))


def write_all(order: Order, as_json: bool) -> int:
    """Build, judge and write every formula; the exit code."""
    outcomes = _work(order, _write, "building")
    if as_json:
        print_json([_to_data(outcome) for outcome in outcomes])
    else:
        _print_built(outcomes)
    return _end(outcomes)


def check_all(order: Order, as_json: bool) -> int:
    """Compare every formula's file with what derive writes; the exit code."""
    outcomes = _work(order, _compare, "checking")
    left = _find_left(order)
    if as_json:
        files = [{"file": show_path(o.path), "state": o.state} for o in outcomes]
        print_json([*files, *({"file": show_path(p), "state": "left over"} for p in left)])
    else:
        _print_checked(outcomes, left, _to_out(order))
    wrong = left or any(outcome.state != "fresh" for outcome in outcomes)
    return _end(outcomes) or int(bool(wrong))


def to_checked(system: System) -> list[dict[str, int]]:
    """The sizes at which a file is judged."""
    from derive.judge.samples import choose_sizes

    return [dict(draw) for draw in choose_sizes(system, count=DRAWS)]


def _work(
    order: Order, work: Callable[[Found, Order, Options], Outcome], label: str
) -> tuple[Outcome, ...]:
    """The outcome of every formula; one that is refused does not keep the others."""
    known = _share_sizes(order)
    outcomes = []
    for found in track(order.found, label):
        try:
            outcomes.append(work(found, order, order.options.at(known[found.name])))
        except DeriveError as error:
            path = order.out / f"{found.name}.py"
            outcomes.append(Outcome(found, path, "refused", refused=error))
    return tuple(outcomes)


def _share_sizes(order: Order) -> dict[str, dict[str, int]]:
    """Of the sizes that were given, those that each formula has; one that none has is refused."""
    given = order.options.sizes
    if not given:
        return {found.name: {} for found in order.found}
    from derive.frontend.system import to_system
    from derive.ir.walk import find_sizes

    shares: dict[str, dict[str, int]] = {}
    every: list[str] = []
    for found in order.found:
        own = find_sizes(to_system(found.formula))
        every += (*own, *found.fixed)
        shares[found.name] = {name: n for name, n in given.items() if name in own}
    check_sizes(given, every)
    return shares


def _to_out(order: Order) -> str:
    """The option that names the folder, where it is not the usual one."""
    is_named = order.out != DEFAULT_OUT and not _is_elsewhere(order.out)
    return f" --out {quote(show_path(order.out))}" if is_named else ""


def _is_elsewhere(folder: Path) -> bool:
    """Is it a folder that only this machine has? A header does not name it."""
    return folder.is_absolute() and not folder.is_relative_to(Path.cwd())


def _write(found: Found, order: Order, options: Options) -> Outcome:
    built = build_found(found, options, _to_out(order))
    path = order.out / f"{found.name}.py"
    before = _read(path)
    if before is not None and find_origin(before) is None:
        raise refuse(
            "file-foreign",
            f"{show_path(path)} was not made by derive, so it is not overwritten",
            help="move it away, or choose another --out or --name",
        )
    if before == built.source.encode():
        built.judge(DRAWS)
        return Outcome(found, path, "unchanged", built, options)
    built.write(order.out)
    return Outcome(found, path, "written", built, options)


def _compare(found: Found, order: Order, options: Options) -> Outcome:
    """The state of a file; without options it is to be what its own header asks for."""
    path = order.out / f"{found.name}.py"
    there = _read(path)
    made = None if there is None or order.options != NONE else read_made(there)
    try:
        if made is not None:
            options = made.options
        built = build_found(found, options, _to_out(order))
    except DeriveError:
        if options == order.options:
            raise
        options = order.options  # the formula is not that of the header any more
        built = build_found(found, options, _to_out(order))
    if there is None:
        state = "missing"
    elif there == built.source.encode():
        state = "fresh"
    else:
        state = "edited" if find_header(there) == find_header(built.source) else "stale"
    return Outcome(found, path, state, built, options)


def _read(path: Path) -> bytes | None:
    """The bytes of a file; None where there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _find_left(order: Order) -> tuple[Path, ...]:
    """Generated files that come from where these formulas do, and have no formula any more."""
    names = {found.name for found in order.found}
    others = (path for path in sorted(order.out.glob("*.py")) if path.stem not in names)
    return tuple(path for path in others if _is_of(find_origin(path.read_bytes()), order.whole))


def _is_of(origin: str | None, whole: Iterable[str]) -> bool:
    """Is it one of these origins, or inside one that ends in a slash?"""
    return origin is not None and any(
        origin == each or (each.endswith("/") and origin.startswith(each)) for each in whole
    )


def _print_built(outcomes: Sequence[Outcome]) -> None:
    rows = []
    for outcome in outcomes:
        if outcome.built is not None:
            plan = outcome.built.plan
            flops, peak = plan.at_sizes(plan.flops), plan.at_sizes(plan.peak_elements)
            rows.append(
                (
                    outcome.found.name,
                    _fold([entry.name for entry in plan.system.inputs]),
                    "\n".join(plan.einsums),
                    to_short(flops),
                    to_short(peak),
                    "\n".join(to_option(draw) for draw in to_checked(outcome.built.system)),
                    f"{show_path(outcome.path)} {outcome.state}",
                )
            )
    if not rows:
        return
    print_table(BUILT, rows, numbers="flops elements", prose=(BUILT[1],))
    print_text(_say_counted(outcomes))
    for outcome in outcomes:
        for remark in () if outcome.built is None else find_remarks(outcome.built, outcome.options):
            print_text(remark if len(outcomes) == 1 else f"{outcome.found.name}: {remark}")


def _say_counted(outcomes: Sequence[Outcome]) -> str:
    """The sizes at which operations and elements are counted."""
    built = [(outcome.built, outcome.options) for outcome in outcomes if outcome.built is not None]
    if len(built) > 1:
        return "flops and elements at the typical sizes of each formula; choose with --sizes"
    return f"flops and elements {say_sizes(*built[0])}" if built[0][0].plan.sizes else ""


def _fold(words: Sequence[str], width: int = 16) -> str:
    """The words over lines of about this width."""
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def _to_command(outcome: Outcome, out: str) -> str:
    return f"{outcome.found.rebuild}{out}{outcome.options.to_text()}"


def _print_checked(outcomes: Sequence[Outcome], left: Sequence[Path], out: str) -> None:
    rows = [
        (show_path(outcome.path), outcome.state, _to_command(outcome, out))
        for outcome in outcomes
        if outcome.state not in {"fresh", "refused"}
    ]
    rows += [(show_path(path), "left over", "remove it, or give back its formula") for path in left]
    if rows:
        print_table(("file", "state", "what to do"), rows)
    fresh = sum(outcome.state == "fresh" for outcome in outcomes)
    print_line(f"{fresh} of {len(outcomes)} files are what derive writes")


def _end(outcomes: Sequence[Outcome]) -> int:
    """Show what was refused; the exit code for it."""
    refused = [(o.found.name, o.refused.diagnostic) for o in outcomes if o.refused is not None]
    for name, diagnostic in refused:
        facts = diagnostic.facts
        if len(outcomes) > 1:
            facts = (*facts, f"in the formula {name}")
        print_diagnostic(replace(diagnostic, facts=facts))
    return 2 if refused else 0


def _to_data(outcome: Outcome) -> dict[str, Any]:
    """One outcome for --json."""
    data: dict[str, Any] = {"name": outcome.found.name, "file": show_path(outcome.path)}
    data["state"] = outcome.state
    if outcome.built is not None:
        system = outcome.built.system
        data["arguments"] = [entry.name for entry in system.inputs]
        data |= to_plan_data(outcome.built.plan)
        data["checked_at"] = to_checked(system)
    if outcome.refused is not None:
        data["refused"] = str(outcome.refused)
    return data
