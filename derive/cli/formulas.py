"""What a person names on the command line, as formulas: a name, a file, or a text.

    -              the notation on standard input
    FILE.py        the formulas of a Python file        FILE.py:NAME   one of them
    FILE           a file of another kind holds one formula in the notation
    TEXT           the notation itself; it has an `=`
    NAME           a formula of the library

A path is shown as it was given, so that the header of a generated file names no machine.
"""

from __future__ import annotations

import ast
import shlex
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from derive.cli.files import read_text, run_file, show_path
from derive.cli.header import Made, read_made
from derive.cli.options import NONE, Options
from derive.errors import DeriveError, refuse, suggest
from derive.frontend.notebooks import read_cells
from derive.notation.formula import check_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.compiler import Built
    from derive.notation.formula import Formula

LIBRARY = "derive/formulas"
FROM_TEXT = "a formula in the notation"
NOTEBOOK = ".ipynb"
_SHORT = 60  # columns up to which a text stands in the command that rebuilds it


@dataclass(frozen=True, slots=True)
class Found:
    """A formula, its name, and what the header of its file says: `origin` and `rebuild`."""

    name: str
    formula: Formula
    origin: str
    rebuild: str  # the command without its options
    given: str = ""  # what the command needs besides
    family: str = ""  # of the library
    notes: tuple[str, ...] = ()  # what a formula out of code rests on
    fixed: Mapping[str, int] = field(default_factory=dict)  # sizes that are numbers in that code


def find_library() -> dict[str, Found]:
    """The library's formulas by name, family by family."""
    from derive.formulas import FAMILIES, load_family

    return {
        name: _to_found(name, formula, family)
        for family in FAMILIES
        for name, formula in load_family(family).items()
    }


def find_formulas(argument: str, name: str | None = None) -> tuple[Found, ...]:
    """The formulas that one argument names; `name` renames a single one."""
    found = _find(argument, name)
    for each in found:
        check_name(name or each.name)
    if name is None:
        return found
    if len(found) > 1:
        raise refuse(
            "name-many",
            f"{argument} has {len(found)} formulas, and --name names one",
            facts=[f"they are {', '.join(each.name for each in found)}"],
            help=f"write {argument}:{found[0].name}",
        )
    return tuple(
        replace(each, name=name, rebuild=f"{each.rebuild} --name {name}") for each in found
    )


def find_one(argument: str) -> Found:
    """The one formula that an argument names."""
    found = find_formulas(argument)
    if len(found) > 1:
        raise refuse(
            "formula-which",
            f"{argument} has {len(found)} formulas",
            facts=[f"they are {', '.join(each.name for each in found)}"],
            help=f"write {argument}:{found[0].name}",
        )
    return found[0]


def find_asked(argument: str, options: Options) -> tuple[Found, Options]:
    """The one formula that an argument names, and the options for it.

    A file that derive wrote stands for the formula and, where no options are given, for the options
    that its header names. A file of Python that it names is not run, since nobody asked for that.
    """
    made = _read_made(argument)
    if made is None or not made.is_text:
        return find_one(argument), options
    (found,) = find_formulas(made.formula, made.name)
    return found, made.options if options == NONE else options


def build_found(found: Found, options: Options = NONE, out: str = "") -> Built:
    """The formula's file, which names its origin and the command that makes it again."""
    from derive.compiler import build

    told = options.at({**found.fixed, **options.sizes})
    try:
        return build(
            found.formula,
            sizes=dict(options.sizes) or None,
            name=found.name,
            origin=found.origin,
            rebuild=f"{found.rebuild}{out}{told.to_text()}{found.given}",
            **options.to_arguments(),
        )
    except DeriveError as error:
        raise say_memory(error, options.memory) from error


def say_memory(error: DeriveError, memory: str) -> DeriveError:
    """A refusal with the amount of memory as it was typed."""
    if error.diagnostic.code != "memory-short":
        return error
    says = f"{error.diagnostic.says.partition(' keeps to ')[0]} keeps to --memory {memory}"
    return DeriveError(replace(error.diagnostic, says=says))


def _find(argument: str, name: str | None) -> tuple[Found, ...]:
    path, _, member = argument.rpartition(":")
    if argument == "-":
        return (_from_text(_read_input(), name),)
    if path.endswith(".py"):
        return (_find_member(Path(path), member),)
    if _is_file(argument) and not argument.isidentifier():
        return _from_file(Path(argument))
    if "=" in argument:
        return (_from_text(argument, name),)
    if any(sign in argument for sign in "./\\"):
        return _from_file(Path(argument))
    return (_from_library(argument),)


def _read_made(argument: str) -> Made | None:
    """The header of a file that derive wrote; None where the argument names none."""
    if not argument.endswith(".py") or not _is_file(argument):
        return None
    return read_made(Path(argument).read_bytes())


def _is_file(argument: str) -> bool:
    try:
        return Path(argument).is_file()
    except (OSError, ValueError):  # too long for a path, or it holds what no path may
        return False


def _read_input() -> str:
    """All of standard input."""
    try:
        return sys.stdin.read() if sys.stdin is not None else ""
    except UnicodeDecodeError as error:
        raise refuse("file-unreadable", "standard input is not UTF-8 text") from error


def _from_file(path: Path) -> tuple[Found, ...]:
    shown = show_path(path)
    if path.suffix == NOTEBOOK:
        functions = list_functions(path)
        help = f"write {shown}:{functions[0]}" if functions else "name a file of formulas"
        raise refuse("file-empty", f"{shown} is a notebook, and holds no formula", help=help)
    if path.suffix != ".py":
        from derive.frontend.from_text import parse

        name = path.stem if path.stem.isidentifier() else "formula"
        formula = parse(read_text(path, shown), name)
        return (Found(name, formula, shown, _to_command(shown)),)
    made = _read_made(str(path))
    if made is not None:
        raise _refuse_made(shown, made)
    try:
        formulas = run_file(path, shown)
    except DeriveError as error:
        functions = list_functions(path)
        if error.diagnostic.code != "file-empty" or not functions:
            raise
        says = f"{shown} has functions and no formula"
        raise refuse("file-empty", says, help=_say_lift(path, functions[0])) from error
    alone = len(formulas) == 1
    return tuple(
        Found(name, formula, shown, _to_command(shown if alone else f"{shown}:{name}"))
        for name, formula in formulas.items()
    )


def _find_member(path: Path, member: str) -> Found:
    shown = show_path(path)
    try:
        found = {each.name: each for each in _from_file(path)}
    except DeriveError as error:
        functions = list_functions(path)
        if error.diagnostic.code != "file-empty" or not functions:
            raise
        if member in functions:
            says = f"{shown}:{member} is code, and a formula is wanted"
            raise refuse("formula-code", says, help=_say_lift(path, member)) from error
        raise refuse(
            "formula-unknown",
            f"{shown} has no formula and no function {member or 'without a name'}",
            facts=[f"its functions are {', '.join(functions)}"],
            help=suggest(member, functions) or f"write {shown}:{functions[0]}",
        ) from error
    if member not in found:
        raise refuse(
            "formula-unknown",
            f"{shown} has no formula {member or 'without a name'}",
            facts=[f"it has {', '.join(found)}"],
            help=suggest(member, found),
        )
    return found[member]


def _say_lift(path: Path, member: str) -> str:
    """How code is made into a formula, its arguments declared."""
    shown = shlex.quote(f"{show_path(path)}:{member}")
    first = next(iter(_list_arguments(path, member)), "x")
    return f"lift it with: derive build --from {shown} --inputs '{first}[N, D]; ..'"


def _refuse_made(shown: str, made: Made) -> DeriveError:
    return refuse(
        "file-made",
        f"{shown} was written by derive, and is no formula",
        facts=[f"it is from {made.origin}"],
        help=f"name that, or rebuild it with: {made.command}",
    )


def _list_arguments(path: Path, member: str) -> list[str]:
    """The arguments of a function of a file; none of a class."""
    for node in _read_body(path):
        if isinstance(node, ast.FunctionDef) and node.name == member:
            return [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    return []


def list_functions(path: Path) -> list[str]:
    """The functions and classes that a Python file or a notebook defines."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    return [node.name for node in _read_body(path) if isinstance(node, kinds)]


def _read_body(path: Path) -> list[ast.stmt]:
    try:
        if path.suffix == NOTEBOOK:
            return ast.parse(read_cells(path.read_bytes()).text).body
        return ast.parse(path.read_text(encoding="utf-8-sig")).body
    except (OSError, SyntaxError, ValueError):
        return []


def _from_library(name: str) -> Found:
    from derive.formulas import family_of, find_formula

    try:
        return _to_found(name, find_formula(name), family_of(name))
    except DeriveError as error:
        file = Path(f"{name}.py")
        if error.diagnostic.code != "formula-unknown" or not file.is_file():
            raise
        says = error.diagnostic.says
        raise refuse("formula-unknown", says, help=f"write {file} for the file here") from error


def _to_found(name: str, formula: Formula, family: str) -> Found:
    origin = f"{LIBRARY}/{family}.py"
    return Found(name, formula, origin, _to_command(name), family=family)


def _from_text(text: str, name: str | None) -> Found:
    from derive.frontend.from_text import parse

    called = name or "formula"
    formula = parse(text, called)
    line = text.strip()
    if len(line) <= _SHORT and line.isprintable():
        return Found(called, formula, FROM_TEXT, _to_command(line))
    return Found(called, formula, FROM_TEXT, "derive build -", ", the lines above as its input")


def _to_command(argument: str) -> str:
    return f"derive build {shlex.quote(argument)}"
