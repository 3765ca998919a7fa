"""Formulas named on the command line: a name, a file, or a text.

    -              the notation on standard input
    FILE.py        the formulas of a Python file        FILE.py:NAME   one of them
    FILE           a file of another kind holds one formula in the notation
    TEXT           the notation itself; it has an `=`
    NAME           a formula of the library

A path is shown as it was given, so that the header of a generated file names no machine.
A Python file is run, since the user named it; its errors are shown with the line
of the file, never as a traceback of derive. A function or a class of a file is lifted.
"""

from __future__ import annotations

import ast
import shlex
import sys
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from traceback import extract_tb, format_exception_only, format_list
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

from derive.cli.options import find_made
from derive.errors import DeriveError, refuse, suggest
from derive.frontend.notebooks import is_file, read_text
from derive.notation.formula import Formula, check_name
from derive.options import NONE, Options, show_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from derive.compiler import Built

LIBRARY = "derive/formulas"
FROM_TEXT = "a formula in the notation"
_SHORT = 60  # most columns of a text in the command that rebuilds its file


@dataclass(frozen=True, slots=True)
class Found:
    """A formula, its name, and two lines of its file's header: `origin` and `rebuild`."""

    name: str
    formula: Formula
    origin: str
    rebuild: str  # the command without its options
    given: str = ""  # further words of the command
    family: str = ""  # whether it is from the library
    notes: tuple[str, ...] = ()  # assumptions of a formula that was lifted from code
    fixed: Mapping[str, int] = field(default_factory=dict)  # sizes that are numbers in that code


def find_library() -> dict[str, Found]:
    """The library's formulas by name, family by family."""
    from derive.formulas import load_formulas

    return {name: _to_found(name, formula) for name, formula in load_formulas().items()}


def find_formulas(argument: str, name: str | None = None) -> tuple[Found, ...]:
    """The formulas that one argument names; `name` renames a single one."""
    found = _find_formula(argument, name)
    for each in found:
        check_name(name or each.name)
    if name is None:
        return found
    if len(found) > 1:
        raise _refuse_many("name-many", argument, found, ", and --name names one")
    (only,) = found
    return (replace(only, name=name, rebuild=f"{only.rebuild} --name {name}"),)


def find_one(argument: str) -> Found:
    """The one formula that an argument names; DeriveError if it names several."""
    found = find_formulas(argument)
    if len(found) > 1:
        raise _refuse_many("formula-which", argument, found, "")
    return found[0]


def _refuse_many(code: str, argument: str, found: Sequence[Found], says: str) -> DeriveError:
    return refuse(
        code,
        f"{argument} has {len(found)} formulas{says}",
        facts=[f"they are {', '.join(each.name for each in found)}"],
        help=f"write {argument}:{found[0].name}",
    )


def differentiate(found: Found, wrt: str, name: str | None = None) -> Found:
    """The formula of the gradients by the arguments that are named `X,Y`, or by `all`."""
    from derive.frontend.gradient import gradient

    names = [] if wrt == "all" else [each.strip() for each in wrt.split(",")]
    made = name or f"{found.name}_gradient"
    # the file of a typed formula shows the gradient, which is the input of a rebuild
    rebuild = f"{found.rebuild} --gradient {shlex.quote(wrt)}"
    rebuild = f"derive build - --name {made}" if found.given else rebuild
    return replace(found, name=made, formula=gradient(found.formula, names, made), rebuild=rebuild)


def build_found(found: Found, options: Options = NONE, out: str = "") -> Built:
    """The formula's file, which names its origin and the command that makes it again."""
    from derive.compiler import build_file

    told = options.at({**found.fixed, **options.sizes})
    command = f"{found.rebuild}{out}{told.to_text()}{found.given}"
    return build_file(found.formula, options, found.name, found.origin, command)


def _find_formula(argument: str, name: str | None) -> tuple[Found, ...]:
    from derive.formulas import find_formula

    path, _, member = argument.rpartition(":")
    if argument == "-":
        return (_from_text(read_input(), name),)
    if path.endswith(".py"):
        return (_find_member(Path(path), member),)
    if is_file(argument) and not argument.isidentifier():
        return _from_file(Path(argument))
    if "=" in argument:
        return (_from_text(argument, name),)
    if any(sign in argument for sign in "./\\"):
        return _from_file(Path(argument))
    return (_to_found(argument, find_formula(argument)),)


def read_input() -> str:
    """All of standard input; DeriveError if it is not UTF-8."""
    try:
        return sys.stdin.read() if sys.stdin is not None else ""
    except UnicodeDecodeError as error:
        raise refuse("file-unreadable", "standard input is not UTF-8 text") from error


def _from_file(path: Path, member: str = "") -> tuple[Found, ...]:
    """The formulas of a file; without any, the refusal may name the `member`."""
    shown = show_path(path)
    if path.suffix == ".ipynb":
        says = f"{shown} is a notebook, and holds no formula"
        raise refuse("file-empty", says, help="name a file of formulas")
    if path.suffix != ".py":
        from derive.formulas import read_notation

        name = path.stem if path.stem.isidentifier() else "formula"
        is_latex = True if path.suffix == ".tex" else None
        formula = read_notation(read_text(path, shown), name, is_latex=is_latex)
        return (Found(name, formula, shown, _to_command(shown)),)
    made = find_made(path.read_bytes()) if is_file(str(path)) else None
    if made is not None:
        origin, command = made
        raise refuse(
            "file-made",
            f"{shown} was written by derive, and is no formula",
            facts=[f"it is from {origin}"],
            help=f"name that, or rebuild it with: derive build {command}",
        )
    formulas = run_file(path, shown)
    if not formulas:
        raise _refuse_empty(path, shown, member)
    alone = len(formulas) == 1
    return tuple(
        Found(name, formula, shown, _to_command(shown if alone else f"{shown}:{name}"))
        for name, formula in formulas.items()
    )


def _refuse_empty(path: Path, shown: str, member: str) -> DeriveError:
    """The refusal of a file without a formula, which may have functions to lift."""
    functions = list_functions(path)
    if not functions:
        return refuse("file-empty", f"{shown} has no formula", help=START)
    if not member:
        says = f"{shown} has functions and no formula"
        return refuse("file-empty", says, help=_say_lift(path, functions[0]))
    if member in functions:
        says = f"{shown}:{member} is code, and a formula is wanted"
        return refuse("formula-code", says, help=_say_lift(path, member))
    return refuse(
        "formula-unknown",
        f"{shown} has no formula and no function {member}",
        facts=[f"its functions are {', '.join(functions)}"],
        help=suggest(member, functions) or f"write {shown}:{functions[0]}",
    )


def _find_member(path: Path, member: str) -> Found:
    shown = show_path(path)
    found = {each.name: each for each in _from_file(path, member)}
    if member not in found:
        raise refuse(
            "formula-unknown",
            f"{shown} has no formula {member or 'without a name'}",
            facts=[f"it has {', '.join(found)}"],
            help=suggest(member, found),
        )
    return found[member]


def _say_lift(path: Path, member: str) -> str:
    """The command that lifts code."""
    shown = shlex.quote(f"{show_path(path)}:{member}")
    return f"lift it with: derive build --from {shown} --inputs 'x[N, D]; ..'"


def list_functions(path: Path) -> list[str]:
    """The functions and classes at the top of a Python file; empty if it cannot be read."""
    try:
        body = ast.parse(path.read_text(encoding="utf-8-sig")).body
    except (OSError, SyntaxError, ValueError):
        return []
    return [node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef))]


def _to_found(name: str, formula: Formula) -> Found:
    from derive.formulas import family_of

    family = family_of(name)
    return Found(name, formula, f"{LIBRARY}/{family}.py", _to_command(name), family=family)


def _from_text(text: str, name: str | None) -> Found:
    from derive.formulas import read_notation

    called = name or "formula"
    formula = read_notation(text, called)
    line = text.strip()
    if len(line) <= _SHORT and line.isprintable():
        return Found(called, formula, FROM_TEXT, _to_command(line))
    return Found(called, formula, FROM_TEXT, "derive build -", ", the lines above as its input")


def _to_command(argument: str) -> str:
    return f"derive build {shlex.quote(argument)}"


MODULE = "formula_file"  # the name under which a file runs; it hides no module of that file's name
START = 'write one as a module-level variable, or start from "derive new NAME"'


def run_file(path: Path, shown: str) -> dict[str, Formula]:
    """The formulas of a Python file by name, in the file's order.

    A formula without a name takes that of its first variable; variables that start with `_` are the
    file's own. `shown` is the path as messages have it.
    """
    from derive.formulas import UNNAMED

    names = _run_file(path, shown, read_text(path, shown))
    formulas: dict[str, Formula] = {}
    for variable, value in names.items():
        if not isinstance(value, Formula) or variable.startswith("_"):
            continue
        if any(value is other for other in formulas.values()):
            continue
        name = variable if value.name in UNNAMED else value.name
        if name in formulas:
            says = f"{shown} has two formulas of the name {name}"
            raise refuse("formula-twice", says, help="give one of them another name")
        formulas[name] = value
    return formulas


def _run_file(path: Path, shown: str, text: str) -> dict[str, Any]:
    """The names that the file defines; its errors are refused with Python's message."""
    module = ModuleType(MODULE)
    module.__file__ = str(path)
    try:
        code = compile(text, str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        facts = "".join(format_exception_only(error)).splitlines()
        raise refuse("file-syntax", f"{shown} is no Python", facts=facts) from error
    try:
        with _registered(module, path.parent), redirect_stdout(sys.stderr):
            exec(code, module.__dict__)
    except (Exception, SystemExit) as error:
        here = [f for f in extract_tb(error.__traceback__) if f.filename == str(path)][-1:]
        if isinstance(error, DeriveError):
            places = [f"in {shown}, line {frame.lineno}" for frame in here]
            facts = [*error.diagnostic.facts, *(places or [f"in {shown}"])]
            raise DeriveError(replace(error.diagnostic, facts=tuple(facts))) from error
        text = "".join([*format_list(here), *format_exception_only(error)])
        says = f"{shown} raises {type(error).__name__}"
        raise refuse("file-raises", says, facts=text.splitlines()) from error
    return module.__dict__


@contextmanager
def _registered(module: ModuleType, folder: Path) -> Iterator[None]:
    """Within the context, let the file be imported, and its neighbours after installed modules."""
    before = list(sys.path)
    sys.modules[MODULE] = module
    sys.path.append(str(folder.resolve()))
    try:
        yield
    finally:
        sys.path[:] = before
        del sys.modules[MODULE]


def is_code(argument: str) -> bool:
    """Whether it is FILE.py:NAME, where NAME is a function or class at the top of the file."""
    path, _, member = argument.rpartition(":")
    return path.endswith(".py") and member in list_functions(Path(path))


def find_code(
    argument: str,
    inputs: str,
    name: str | None = None,
    sizes: Mapping[str, int] = MappingProxyType({}),
) -> Found:
    """The formula of a function, with arguments declared in the notation or in its own text.

    A size that the code takes as a number is the one of `sizes`.
    """
    from derive.checker.load import load
    from derive.checker.processes import CannotRunError
    from derive.frontend.from_code import lift_code

    path, _, member = argument.rpartition(":")
    try:
        with redirect_stdout(StringIO()):  # output of a file while it is loaded
            code = load(argument)
        if code.script is not None or isinstance(code.target, type):
            raise refuse(
                "lift-code" if code.script is not None else "lift-class",
                f"{argument} is no function",
                help="write a function that takes its tensors as arguments",
            )
        found = lift_code(code.target, inputs, name=name)
        told = {size: sizes[size] for size in found.fixed if size in sizes}
        if told:
            found = lift_code(code.target, inputs, name=name, sizes=told)
    except CannotRunError as error:
        raise refuse("lift-run", f"{argument} does not load: {error}") from error
    shown = f"{show_path(Path(path))}:{member}"
    rebuild = f"derive build --from {shlex.quote(shown)}"
    rebuild += f" --inputs {shlex.quote(inputs)}" if inputs else ""
    return Found(
        found.formula.name or member,
        found.formula,
        shown,
        rebuild,
        notes=found.describe_assumptions(),
        fixed=dict(found.fixed),
    )


def find_checked(
    argument: str,
    inputs: str,
    name: str | None,
    sizes: Mapping[str, int],
    others: Sequence[str] = (),
) -> Found:
    """The formula lifted from code; DeriveError unless a check finds that the code computes it."""
    from derive.checker import check

    if others:
        raise refuse("build-from", f"--from builds one function, and {others[0]} was named too")
    found = find_code(argument, inputs, name, sizes)
    frozen = [size for size in found.fixed if size not in sizes]
    if frozen:
        names = ", ".join(frozen)
        raise refuse(
            "lift-frozen",
            f"{argument} takes {names} as a number, so its formula holds for one {names} alone",
            help=f"choose it, --sizes {','.join(f'{name}=64' for name in frozen)}, or write the "
            "code with the size itself, as in x.shape[-1] ** -0.5",
        )
    verdict = check(argument, found.formula)
    if not verdict:
        raise refuse(
            "lift-differs",
            f"the formula out of {argument} was not found to be the code's",
            facts=str(verdict).splitlines(),
        )
    print(f"{argument} is the formula, {verdict.grade}: {'; '.join(verdict.reasons)}")
    for says in (*found.notes, *(finding.says for finding in verdict.findings)):
        print(f"  {says}")
    return found
