"""`derive build`: formulas to files, each judged against the loops before it is written.

`derive build --check` builds in memory and compares bytes. A file is

    fresh      what derive writes
    stale      made from another formula, or by another command; its header differs. Without options
               here, those that the header names are used
    edited     its header is right, its code is not what derive writes
    missing    not there
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shlex import quote
from textwrap import fill
from typing import TYPE_CHECKING

from derive.backend.to_data import Data, to_plan_data, to_short
from derive.cli import tables
from derive.cli.formulas import Found, build_found, find_formulas, find_library
from derive.cli.options import ReadWords, check_sizes, find_header, find_made, read_made
from derive.errors import DeriveError, refuse
from derive.options import NONE, Options, show_path, to_word

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from derive.compiler import Built

DEFAULT_OUT = Path("generated")
DRAWS = 3  # sets of sizes at which a file is judged
BUILT = ("formula", "arguments", "einsums", "flops", "elements", "equal to the loops at", "file")


@dataclass(frozen=True, slots=True)
class Order:
    """An order to build: formulas, folder, options."""

    found: tuple[Found, ...]
    out: Path
    options: Options = NONE

    @property
    def out_option(self) -> str:
        """The option that names the folder; "" for the default, and an absolute path elsewhere."""
        elsewhere = self.out.is_absolute() and not self.out.is_relative_to(Path.cwd())
        is_named = self.out != DEFAULT_OUT and not elsewhere
        return f" --out {quote(show_path(self.out))}" if is_named else ""

    def find_path(self, found: Found) -> Path:
        """The path of a formula's file."""
        return self.out / f"{found.name}.py"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one formula: its file, the file's state, and the built or refused code."""

    found: Found
    path: Path
    state: str
    built: Built | None = None
    options: Options = NONE  # with the sizes of this formula only
    refused: DeriveError | None = None

    def to_data(self) -> Data:
        """The outcome as --json prints it, and the table."""
        data: Data = {"name": self.found.name, "file": show_path(self.path), "state": self.state}
        if self.built is not None:
            from derive.judge.samples import choose_sizes

            draws = choose_sizes(self.built.system, count=DRAWS)
            data["arguments"] = [entry.name for entry in self.built.system.inputs]
            data |= to_plan_data(self.built.plan) | {"checked_at": list(map(dict, draws))}
        if self.refused is not None:
            data["refused"] = str(self.refused)
        return data


def find_order(arguments: Sequence[str], out: Path, name: str | None, options: Options) -> Order:
    """A request to build the named formulas; without arguments, all of the library."""
    if name is not None and len(arguments) != 1:
        says = "--name names a single formula"
        raise refuse("name-many", says, help="name one formula to build beside it")
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
    return Order(found, out, options)


def write_all(order: Order, as_json: bool) -> int:
    """Build, judge and write every formula; return 2 if one is refused, else 0."""
    outcomes = _work(order, _write_file, "building")
    if as_json:
        tables.print_json([outcome.to_data() for outcome in outcomes])
    else:
        _print_built([outcome for outcome in outcomes if outcome.built is not None])
    return _end(outcomes)


def check_all(order: Order, as_json: bool, read: ReadWords) -> int:
    """Compare each file with a fresh build; return 0 if all are fresh, 2 for a refusal, else 1."""
    outcomes = _work(order, partial(_compare, read=read), "checking")
    files = [{"file": show_path(o.path), "state": o.state} for o in outcomes]
    if as_json:
        tables.print_json(files)
    else:
        to_do = [f"{o.found.rebuild}{order.out_option}{o.options.to_text()}" for o in outcomes]
        rows = [
            (*file.values(), advice)
            for file, advice in zip(files, to_do, strict=True)
            if file["state"] not in {"fresh", "refused"}
        ]
        if rows:
            tables.print_table(("file", "state", "what to do"), rows)
        fresh = sum(outcome.state == "fresh" for outcome in outcomes)
        print(f"{fresh} of {len(outcomes)} files are what derive writes")
    return _end(outcomes) or int(any(file["state"] != "fresh" for file in files))


def _work(
    order: Order, work: Callable[[Found, Order, Options], Outcome], label: str
) -> tuple[Outcome, ...]:
    """The outcome of every formula; a refused one does not stop the others."""
    known = _share_sizes(order)
    outcomes = []
    for found in tables.track(order.found, label):
        try:
            outcomes.append(work(found, order, order.options.at(known[found.name])))
        except DeriveError as error:
            outcomes.append(Outcome(found, order.find_path(found), "refused", refused=error))
    return tuple(outcomes)


def _share_sizes(order: Order) -> Mapping[str, Mapping[str, int]]:
    """The given sizes that each formula has, by formula; a size that none has is refused."""
    given = order.options.sizes
    if not given:
        return {found.name: {} for found in order.found}
    from derive.frontend.from_sympy import to_system
    from derive.ir.walk import find_sizes

    shares: dict[str, dict[str, int]] = {}
    every: list[str] = []
    for found in order.found:
        own = find_sizes(to_system(found.formula))
        every += (*own, *found.fixed)
        shares[found.name] = {name: n for name, n in given.items() if name in own}
    check_sizes(given, every)
    return shares


def _write_file(found: Found, order: Order, options: Options) -> Outcome:
    """Build and judge a formula, and write its file if it differs."""
    built = build_found(found, options, order.out_option)
    path = order.find_path(found)
    before = _read_file(path)
    if before is not None and find_made(before) is None:
        raise refuse(
            "file-foreign",
            f"{show_path(path)} was not made by derive, so it is not overwritten",
            help="move it away, or choose another --out or --name",
        )
    if before == built.source.encode():
        built.judge()
        return Outcome(found, path, "unchanged", built, options)
    built.write(order.out)
    return Outcome(found, path, "written", built, options)


def _compare(found: Found, order: Order, options: Options, read: ReadWords) -> Outcome:
    """The state of a file, compared with a build by the given options, else by its header's."""
    path = order.find_path(found)
    there = _read_file(path)
    made = None if there is None or order.options != NONE else read_made(there, read)
    try:
        options = options if made is None else made
        built = build_found(found, options, order.out_option)
    except DeriveError:
        if options == order.options:
            raise
        options = order.options  # the formula is not that of the header any more
        built = build_found(found, options, order.out_option)
    if there is None:
        state = "missing"
    elif there == built.source.encode():
        state = "fresh"
    else:
        state = "edited" if find_header(there) == find_header(built.source) else "stale"
    return Outcome(found, path, state, built, options)


def _read_file(path: Path) -> bytes | None:
    """The bytes of a file; None where there is none."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _print_built(outcomes: Sequence[Outcome]) -> None:
    """Print a row for each built file, and at which sizes flops and elements are counted."""
    if not outcomes:
        return
    rows = [
        (
            data["name"],
            fill(" ".join(data["arguments"]), 16, break_long_words=False),
            "\n".join(data["einsums"]),
            to_short(data["flops_at_sizes"]),
            to_short(data["peak_elements_at_sizes"]),
            "\n".join(map(to_word, data["checked_at"])),
            f"{data['file']} {data['state']}",
        )
        for data in (outcome.to_data() for outcome in outcomes)
    ]
    tables.print_table(BUILT, rows, numbers="flops elements")
    counted = "at the typical sizes of each formula; choose with --sizes"
    for outcome in outcomes if len(outcomes) == 1 else ():
        assert outcome.built is not None
        counted = tables.say_sizes(outcome.built, outcome.options)
    tables.print_text(f"flops and elements {counted}" if counted else "")


def _end(outcomes: Sequence[Outcome]) -> int:
    """Print the refusals on standard error; return 2 if there are any, else 0."""
    refused = [(o.found.name, o.refused.diagnostic) for o in outcomes if o.refused is not None]
    for name, diagnostic in refused:
        facts = diagnostic.facts
        if len(outcomes) > 1:
            facts = (*facts, f"in the formula {name}")
        print(replace(diagnostic, facts=facts), file=sys.stderr)
    return 2 if refused else 0
