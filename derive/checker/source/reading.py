"""Python text as people have it, and which part of it is meant.

    def f(x)               a colon that lacks is put there        }     a lone bracket goes
    assert n % h == 0,     so does a comma at the end             “a”   typographic signs are ASCII

Only slips that can be mended in one way are mended; every one is told, with its line. The cells of
a notebook are one script, its lines are told by cell. A name that nothing sets may be another one,
`Rename`: whoever runs the code tells which.

    attend           a function, a lambda, an object, a class
    Block.project    a method; of a class of torch modules it stands for `forward`, of another class
                     an object is made first, without arguments or with those that --init gives
    block.proj       a part of an object
"""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import wraps
from textwrap import dedent
from typing import TYPE_CHECKING, Any

from derive.errors import Diagnostic, Mark, refuse, suggest
from derive.frontend.notebooks import is_pasted, read_cells, read_pasted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


MOST_RENAMES = 12  # names that are tried in the place of one
_UNKNOWN = re.compile(
    r"NameError: name '(?P<name>\w+)' is not defined"
    r"|AttributeError: '(?P<owner>\w+)' object has no attribute '(?P<attribute>\w+)'"
)
MOST_REPAIRS = 8  # of one text; one with more is no slip of pasting
_SIGNS = str.maketrans(
    {"“": '"', "”": '"', "‘": "'", "’": "'", "−": "-", "–": "-", "×": "*", "\xa0": " "}
    | dict.fromkeys("\u200b\u200c\u200d\ufeff", "")
)
_COMMENT = re.compile(r"""^((?:[^#"']|"[^"]*"|'[^']*')*?)(\s*(?:#.*)?)$""")


class UnreadableError(Exception):
    """The text is no Python, and what is wrong cannot be mended; `line` is where."""

    def __init__(self, says: str, line: int | None, text: str) -> None:
        super().__init__(says)
        self.line = line
        self.text = text


@dataclass(frozen=True)
class Reading:
    """The tree and the text that is judged, what was mended, and where each line is told to be."""

    tree: ast.Module
    text: str
    repairs: tuple[Diagnostic, ...] = ()
    places: tuple[str, ...] = ()
    error: UnreadableError | None = None  # why it is no Python before it is mended


@dataclass(frozen=True)
class Rename:
    """A name, or an attribute of self, that is read and set nowhere, and one to read instead."""

    old: str
    new: str
    line: int

    def apply(self, reading: Reading) -> Reading:
        """The text with the other name."""
        text = re.sub(rf"(?<![\w.]){re.escape(self.old)}\b", self.new, reading.text)
        where = say_line(self.line, reading.places)
        says = f"{where}: {self.old} is set nowhere: {self.new} is read instead"
        repairs = (*reading.repairs, Diagnostic("renamed", says))
        return replace(reading, tree=_parse(text), text=text, repairs=repairs)


def find_renames(text: str, error: str, line: int | None) -> list[Rename]:
    """Names of the text that an error about one that is not known may mean, most alike first."""
    found = _UNKNOWN.search(error)
    try:
        tree = _parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    if found is None or line is None:
        return []
    owner, name = found["owner"], found["name"] or found["attribute"]
    kinds = (ast.ClassDef,) if owner else (ast.FunctionDef,)
    holders = [n for n in ast.walk(tree) if isinstance(n, kinds) and _holds(n, line, owner)]
    names: dict[str, None] = {}
    is_called = not owner and any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
        for node in ast.walk(tree)
    )
    if is_called:  # as a function, which no tensor is
        names |= dict.fromkeys(n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))
    for node in (part for holder in holders for part in ast.walk(holder) if not is_called):
        match node:
            case ast.Attribute(ast.Name("self"), attr, ast.Store()) if owner:
                names[f"self.{attr}"] = None
            case ast.Name(stored, ast.Store()) | ast.arg(stored) if not owner and stored != "self":
                names[stored] = None
    old = f"self.{name}" if owner else name
    alike = sorted(names, key=lambda each: -SequenceMatcher(None, old, each).ratio())
    return [Rename(old, each, line) for each in alike[:MOST_RENAMES] if each != old]


def _holds(node: ast.ClassDef | ast.FunctionDef, line: int, owner: str | None) -> bool:
    return node.name == owner if owner else node.lineno <= line <= (node.end_lineno or 0)


def say_line(line: int, places: tuple[str, ...] = ()) -> str:
    """A line as it is told: of a file by number, of a notebook by cell."""
    return places[line - 1] if 0 < line <= len(places) else f"line {line}"


def read_python(text: str) -> Reading:
    """The text as Python, slips of pasting mended; UnreadableError where that cannot be done."""
    cells = read_pasted(text) if is_pasted(text) else None
    return _read(text, ()) if cells is None else _read(cells.text, cells.name_lines())


def read_notebook(data: bytes) -> Reading:
    """The code cells of a notebook as one script; ValueError where it is no notebook."""
    cells = read_cells(data, keep_broken=True)
    return _read(cells.text, cells.name_lines())


def _read(text: str, places: tuple[str, ...]) -> Reading:
    repairs: list[tuple[int, str]] = []
    first: UnreadableError | None = None
    for _ in range(MOST_REPAIRS):
        try:
            repairs.sort(key=lambda repair: repair[0])
            said = tuple(Diagnostic("repaired", says) for _, says in repairs)
            return Reading(_parse(text), text, said, places, first)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            stop = _describe(error, text, places)
            first = first or stop
            mended = _mend(error, text) if isinstance(error, SyntaxError) else None
        if mended is None:
            break
        text, what = mended
        where = say_line(stop.line, places) if stop.line else "the text"
        repairs.append((stop.line or 0, f"{where}: {what}"))
    assert first is not None
    if str(stop) != str(first):
        raise UnreadableError(f"{first}; behind that, {stop}", first.line, text)
    raise first


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes such as "\d", which are no concern here
        return ast.parse(text)


def _describe(error: Exception, text: str, places: tuple[str, ...]) -> UnreadableError:
    line = getattr(error, "lineno", None)
    at = f"{say_line(line, places)} " if line else "it "
    rows = text.splitlines()
    what = f": {rows[line - 1].strip()}" if line and line <= len(rows) else ""
    says = f"{at}is no Python, {getattr(error, 'msg', error)}{what}"
    if isinstance(error, IndentationError) and not any(row[:1].isspace() for row in rows):
        says += " (no line is indented: paste it with its indentation)"
    return UnreadableError(says, line, text)


def _mend(error: SyntaxError, text: str) -> tuple[str, str] | None:
    """The text without its first slip, and what was done; None where that is not plain."""
    if isinstance(error, IndentationError) and "unexpected indent" in error.msg:
        whole = dedent(text)
        if whole != text and _find_stop(whole) > (error.lineno or 0):
            return whole, "the indentation that all lines have is left out"
    rows = text.split("\n")
    line = error.lineno or 0
    if not 0 < line <= len(rows):
        return None
    for row, what in _edit_line(error, rows[line - 1]):
        mended = "\n".join([*rows[: line - 1], row, *rows[line:]])
        if _find_stop(mended) != line:
            return mended, what
    return None


def _find_stop(text: str) -> float:
    """The line at which the text stops being Python."""
    try:
        _parse(text)
    except SyntaxError as error:
        return error.lineno or 0
    except (ValueError, RecursionError, MemoryError):
        return 0
    return float("inf")


def _edit_line(error: SyntaxError, row: str) -> Iterator[tuple[str, str]]:
    """The line as it may have been meant."""
    split = _COMMENT.match(row)
    code, rest = split.groups() if split else (row, "")
    at = (error.offset or 1) - 1
    if error.msg == "expected ':'":
        yield f"{code}:{rest}", "a colon is put at the end"
    elif error.msg.startswith("unmatched ") and row[at : at + 1] in {")", "]", "}"}:
        yield row[:at] + row[at + 1 :], f"the unmatched {row[at]} is left out"
    elif error.msg.startswith(("invalid character", "invalid non-printable")):
        yield row.translate(_SIGNS), "typographic signs are read as ASCII"
    elif code.startswith("```"):
        yield "", "the mark of a block of code is left out"
    elif code.endswith(","):
        yield f"{code[:-1]}{rest}", "the comma at the end is left out"


_CALLED = "_called_with"


def find_member(names: Mapping[str, Any], member: str, init: str, shown: str) -> Any:
    """What a dotted name of a file is; whatever the user's constructor raises passes."""
    first, *rest = member.split(".")
    target = names[first]
    if init:
        if not isinstance(target, type):
            raise refuse("init-class", f"{shown}:{first} is no class, so --init makes nothing")
        target = make_object(target, init, names)
    for name in rest:
        if inspect.getattr_static(target, name, None) is None and not hasattr(target, name):
            public = [each for each in dir(target) if not each.startswith("_")]
            help = suggest(name, public)
            raise refuse("code-missing", f"{shown}:{first} has no {name}", help=help)
        target = _take(target, name, f"{shown}:{first}")
    if isinstance(target, type) and not _is_module(target):
        methods = [n for n, each in vars(target).items() if inspect.isfunction(each)]
        public = [name for name in methods if not name.startswith("_")]
        help = f"name a method: {shown}:{member}.{public[0]}" if public else ""
        raise refuse("code-class", f"{shown}:{member} is a class without a forward", help=help)
    if not callable(target):
        raise refuse("code-kind", f"{shown}:{member} is {type(target).__name__}, which is no code")
    return target


def _is_module(target: type) -> bool:
    import torch

    return issubclass(target, torch.nn.Module)


def make_object(target: type, init: str, names: Mapping[str, Any]) -> Any:
    """An object of the class: `init` are the constructor's arguments, or makes it itself."""
    try:
        call = compile(ast.parse(f"{_CALLED}({init}\n)", mode="eval"), "<--init>", "eval")
    except (SyntaxError, ValueError) as error:
        raise refuse(
            "init-form",
            f"--init cannot be read as arguments of {target.__name__}",
            marks=[Mark(init, 0, len(init))],
            help='write them as in a call: --init "Config(n_head=2)", --init "8, heads=2"',
        ) from error
    given, named = eval(call, {**names, _CALLED: lambda *given, **named: (given, named)})
    is_made = len(given) == 1 and isinstance(given[0], target)
    made: Any = given[0] if is_made else target(*given, **named)
    return made.eval() if _is_module(target) else made


def _take(owner: Any, name: str, shown: str) -> Any:
    """An attribute; a method as something to call with its own arguments."""
    kind = owner if isinstance(owner, type) else type(owner)
    method = inspect.getattr_static(kind, name, None)
    if not inspect.isfunction(method):
        return getattr(owner, name)
    if _is_module(kind):
        if name == "forward":
            return owner
        made = _stand_for_forward(kind, name, method)
        if owner is kind:
            return made
        owner.__class__ = made
        return owner
    if owner is kind:
        if list_needed(kind):
            raise refuse(
                "code-init",
                f"{shown} is made with arguments",
                facts=[f"it takes {inspect.signature(owner)}"],
                help='give them as in a call: --init "8, heads=2"',
            )
        owner = owner()
    return getattr(owner, name)


def list_needed(kind: type) -> list[str]:
    """The arguments without which no object of a class is made."""
    return [parameter.name for parameter in _list_parameters(kind) if _is_open(parameter)]


def _list_parameters(function: Any) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def _is_open(parameter: inspect.Parameter) -> bool:
    variable = {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
    return parameter.default is parameter.empty and parameter.kind not in variable


def _stand_for_forward(kind: type, name: str, method: Any) -> type:
    """The class of modules whose `forward` is the method, but for what the method itself calls."""

    @wraps(method)
    def forward(self: Any, *given: Any, **named: Any) -> Any:
        self.__class__ = kind
        try:
            return getattr(self, name)(*given, **named)
        finally:
            self.__class__ = made

    made = type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
    return made
