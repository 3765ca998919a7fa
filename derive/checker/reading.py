"""Python text to check: repairs of pasted text, scripts as functions, and members by name.

    def f(x)               a missing colon is added               }     unmatched: left out
    assert n % h == 0,     a final comma is left out              “a”   typographic signs are ASCII

Only errors with a single possible repair are repaired; each repair is reported with its line. The
cells of a notebook are one script; reports name its lines by cell. An undefined name may be a
misspelling, `Rename`: running the code decides which. A script without functions becomes one
function of the tensors that it creates and of its undefined names. Buffers that are created empty
and filled later are no arguments:

    x = torch.randn(1, 4, n)           a tensor made from nothing: an argument, its shape noted
    nn.init.normal_(x)                 part of its creation
    k = x @ w_q                        what follows is the body
    print(k.shape)                     its last assignment is the result
    attend(q, k, mask=torch.ones(..))  a mask made in a call is an argument too, and the call's
                                       value is a result named after the function
"""

import ast
import builtins
import inspect
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache, wraps
from itertools import chain
from textwrap import dedent
from typing import Any

from derive.errors import Diagnostic, Mark, refuse, suggest
from derive.frontend.notebooks import blank_magics, is_pasted, read_cells, read_pasted
from derive.ir.functions import ROWS
from derive.libraries import torch

MOST_RENAMES = 12  # replacements tried for a name
_UNKNOWN = re.compile(
    r"NameError: name '(?P<name>\w+)' is not defined"
    r"|AttributeError: '(?P<owner>\w+)' object has no attribute '(?P<attribute>\w+)'"
)
MOST_REPAIRS = 7  # repairs of one text
_SIGNS = str.maketrans(
    {"“": '"', "”": '"', "‘": "'", "’": "'", "−": "-", "–": "-", "×": "*", "\xa0": " "}
    | dict.fromkeys("\u200b\u200c\u200d\ufeff", "")
)
_COMMENT = re.compile(r"""^((?:[^#"']|"[^"]*"|'[^']*')*?)(\s*(?:#.*)?)$""")


class UnreadableError(Exception):
    """The error of a text that is no Python and has no single repair, with its line."""

    def __init__(self, says: str, line: int | None, text: str) -> None:
        super().__init__(says)
        self.line = line
        self.text = text


@dataclass(frozen=True)
class Reading:
    """The tree and the text to judge, its repairs, and the places of its lines in reports."""

    tree: ast.Module
    text: str
    repairs: tuple[Diagnostic, ...] = ()
    places: tuple[str, ...] = ()
    error: UnreadableError | None = None  # the syntax error before the repairs


@dataclass(frozen=True)
class Rename:
    """An undefined name or attribute of self, and its replacement."""

    old: str
    new: str
    line: int

    def apply(self, reading: Reading) -> Reading:
        """The reading with the name replaced."""
        text = re.sub(rf"(?<![\w.]){re.escape(self.old)}\b", self.new, reading.text)
        where = say_line(self.line, reading.places)
        says = f"{where}: {self.old} is defined nowhere: {self.new} is read instead"
        repairs = (*reading.repairs, Diagnostic("renamed", says))
        return replace(reading, tree=_parse(text), text=text, repairs=repairs)


def find_renames(text: str, error: str, line: int | None) -> list[Rename]:
    """Replacements for the undefined name in an error, most similar first; [] for other errors."""
    found = _UNKNOWN.search(error)
    try:
        tree = _parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    if found is None or line is None:
        return []
    owner, name = found["owner"], found["name"] or found["attribute"]
    every = [*ast.walk(tree)]
    functions = [n for n in every if isinstance(n, ast.FunctionDef)]
    holders: list[Any] = [n for n in every if isinstance(n, ast.ClassDef) and n.name == owner]
    if not owner:
        holders = [n for n in functions if n.lineno <= line <= (n.end_lineno or 0)]
    names: dict[str, None] = {}
    calls = (n.func for n in every if isinstance(n, ast.Call))
    is_called = not owner and any(isinstance(f, ast.Name) and f.id == name for f in calls)
    if is_called:  # a called name is a function
        names |= dict.fromkeys(n.name for n in functions)
    for node in (part for holder in holders for part in ast.walk(holder) if not is_called):
        match node:
            case ast.Attribute(ast.Name("self"), attr, ast.Store()) if owner:
                names[f"self.{attr}"] = None
            case ast.Name(stored, ast.Store()) | ast.arg(stored) if not owner and stored != "self":
                names[stored] = None
    old = f"self.{name}" if owner else name
    alike = sorted(names, key=lambda each: -SequenceMatcher(None, old, each).ratio())
    return [Rename(old, each, line) for each in alike[:MOST_RENAMES] if each != old]


def say_line(line: int, places: tuple[str, ...] = ()) -> str:
    """A line as reports name it: by number in a file, by cell in a notebook."""
    return places[line - 1] if 0 < line <= len(places) else f"line {line}"


def read_python(text: str) -> Reading:
    """The reading of a text, with repairs; UnreadableError where no repair is found."""
    if not is_pasted(text):
        return _repair_text(blank_magics(text), ())
    cells = read_pasted(text)
    return _repair_text(cells.text, cells.name_lines())


def read_notebook(data: bytes) -> Reading:
    """The code cells of a notebook as one script; ValueError for other data."""
    cells = read_cells(data, keep_broken=True)
    return _repair_text(cells.text, cells.name_lines())


def _repair_text(text: str, places: tuple[str, ...]) -> Reading:
    repairs: list[tuple[int, str]] = []
    first: UnreadableError | None = None
    found = _try_parse(text)
    while isinstance(found, Exception):
        stop = _make_unreadable(found, text, places)
        first = first or stop
        where = say_line(stop.line, places) if stop.line else "the text"
        for mended, what in _list_repairs(found, text) if len(repairs) < MOST_REPAIRS else ():
            after = _try_parse(mended)
            if _find_stop(after) != stop.line:
                repairs.append((stop.line or 0, f"{where}: {what}"))
                text, found = mended, after
                break
        else:
            if str(stop) != str(first):
                raise UnreadableError(f"{first}; behind that, {stop}", first.line, text)
            raise first
    repairs.sort(key=lambda repair: repair[0])
    said = tuple(Diagnostic("repaired", says) for _, says in repairs)
    return Reading(found, text, said, places, first)


def _parse(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes such as "\d"
        return ast.parse(text)


def _try_parse(text: str) -> ast.Module | Exception:
    """The tree, or the error of a text that is no Python."""
    try:
        return _parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return error


def _find_stop(found: ast.Module | Exception) -> float:
    """The line of the first syntax error; infinity for none."""
    return getattr(found, "lineno", 0) or 0 if isinstance(found, Exception) else float("inf")


def _make_unreadable(error: Exception, text: str, places: tuple[str, ...]) -> UnreadableError:
    line = getattr(error, "lineno", None)
    at = f"{say_line(line, places)} " if line else "it "
    rows = text.splitlines()
    what = f": {rows[line - 1].strip()}" if line and line <= len(rows) else ""
    says = f"{at}is no Python, {getattr(error, 'msg', error)}{what}"
    if isinstance(error, IndentationError) and not any(row[:1].isspace() for row in rows):
        says += " (no line is indented: paste it with its indentation)"
    return UnreadableError(says, line, text)


def _list_repairs(error: Exception, text: str) -> Iterator[tuple[str, str]]:
    """Yield the text with its first error repaired, and the repair in words."""
    rows, line = text.split("\n"), getattr(error, "lineno", None) or 0
    if isinstance(error, IndentationError) and "unexpected indent" in error.msg:
        whole = dedent(text)
        if whole != text and _find_stop(_try_parse(whole)) > line:
            yield whole, "the indentation that all lines have is left out"
    if isinstance(error, SyntaxError) and 0 < line <= len(rows):
        for row, what in _edit_line(error, rows[line - 1]):
            yield "\n".join([*rows[: line - 1], row, *rows[line:]]), what


def _edit_line(error: SyntaxError, row: str) -> Iterator[tuple[str, str]]:
    """Yield the repaired line and the repair in words."""
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
    """The value of a dotted name of a file; DeriveError if it is no code or not there."""
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
        target = _take_member(target, name, f"{shown}:{first}")
    if isinstance(target, type) and not _is_module(target) and "__call__" in vars(target):
        target = make_object(target, "", names)
    if isinstance(target, type) and not _is_module(target):
        methods = [n for n, each in vars(target).items() if inspect.isfunction(each)]
        public = [name for name in methods if not name.startswith("_")]
        help = f"name a method: {shown}:{member}.{public[0]}" if public else ""
        raise refuse("code-class", f"{shown}:{member} is a class without a forward", help=help)
    if not callable(target):
        raise refuse("code-kind", f"{shown}:{member} is {type(target).__name__}, which is no code")
    return target


def _is_module(target: type) -> bool:
    return issubclass(target, torch.nn.Module)


def make_object(target: type, init: str, names: Mapping[str, Any]) -> Any:
    """An object of the class; `init` is its arguments or itself, DeriveError if unreadable."""
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


def _take_member(owner: Any, name: str, shown: str) -> Any:
    """An attribute; a method of a module replaces its forward, of another class is bound."""
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
    """The required arguments of a class's constructor; [] for one without a signature."""
    try:
        known = inspect.signature(kind).parameters.values()
    except (TypeError, ValueError):
        return []
    variable = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return [each.name for each in known if each.default is each.empty and each.kind not in variable]


def _stand_for_forward(kind: type, name: str, method: Any) -> type:
    """A subclass whose `forward` is the method; inside the method it is the original."""

    @wraps(method)
    def forward(self: Any, *given: Any, **named: Any) -> Any:
        self.__class__ = kind
        try:
            return getattr(self, name)(*given, **named)
        finally:
            self.__class__ = made

    made = type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})
    return made


_LIBRARIES = ("torch", "np", "numpy", "F", "nn", "math", "einsum", "einops", "rearrange")
_MAKERS = {
    *("randn", "rand", "randint", "empty", "zeros", "ones", "full", "normal", "arange", "linspace"),
    *("tensor", "as_tensor", "from_numpy", "random", "uniform", "standard_normal", "Parameter"),
}
# Names of functions that fill a tensor, in nn.init and among the methods of tensors.
_DRAWS = re.compile(
    r"((trunc_|log_)?normal|(xavier|kaiming)_(uniform|normal)|uniform|constant|ones|zeros?|eye|dirac"
    r"|orthogonal|sparse|random|bernoulli|exponential|cauchy|geometric|fill)_"
)


@dataclass(frozen=True)
class Script:
    """A script with its possible arguments and results."""

    tree: ast.Module
    arguments: tuple[str, ...]
    made: tuple[str, ...]  # arguments that the script itself creates
    results: tuple[str, ...]  # assigned names, last first: candidates for the result
    unused: tuple[tuple[str, int], ...]  # names never read, and their lines
    free: Mapping[str, int]  # undefined names, and the lines that first read them
    filled: tuple[str, ...]  # free names whose entries are assigned
    called: tuple[str, ...]  # free names that are only called
    sources: Mapping[str, tuple[str, ...]]  # the names that each result depends on
    shapes: Mapping[str, tuple[str, ...]]  # names of extents of created tensors, "" for others
    numbers: tuple[str, ...]  # names that are whole numbers
    chosen: str = ""  # the requested result

    def find_sources(self, result: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """The names that a result depends on, of "a, b" those of both; `default` if unknown."""
        each = (self.sources.get(name, default) for name in result.split(", "))
        return tuple(dict.fromkeys(chain(*each)))


def read_script(tree: ast.Module, chosen: str = "") -> Script:
    """The possible arguments and results of a script; `chosen` is the requested result."""
    tree = _flatten(tree)
    entries = dict(_find_names(tree, "filled"))
    all_made: dict[str, ast.expr] = {}  # created tensors, with masks
    numbers: dict[str, bool] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign([ast.Name(name)], value):
                if makes_tensor(value) or ("mask" in name and makes_mask(value)):
                    all_made.setdefault(name, value)
                is_whole = isinstance(value, ast.Constant) and type(value.value) is int
                numbers[name] = numbers.get(name, True) and is_whole
    made = tuple(
        name  # a buffer created without random numbers and filled later is no argument
        for name, value in all_made.items()
        if name not in entries or ast.unparse(value).rpartition("(")[0].split(".")[-1] == "randn"
    )
    results = dict.fromkeys(name for name, _ in reversed(_find_made(tree, "made", "filled")))
    loads = _find_names(tree, "read")
    known = {*dir(builtins), *_LIBRARIES, *dict(_find_names(tree, "made"))}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names) | ast.ImportFrom(names=names):
                known |= {(each.asname or each.name).split(".")[0] for each in names}
            case ast.FunctionDef(name) | ast.ClassDef(name) | ast.arg(name):
                known.add(name)
    free = tuple(dict.fromkeys(name for name, _ in loads if name not in known))
    functions = [n.func for n in ast.walk(tree) if isinstance(n, ast.Call)]
    called = Counter(each.id for each in functions if isinstance(each, ast.Name))
    valued = Counter(name for name, _ in loads) - called
    return Script(
        tree,
        (*free, *made),
        made,
        tuple(name for name in results if name not in made),
        find_unused(tree),
        {name: min(line for other, line in loads if other == name) for name in free},
        tuple(name for name in free if name in entries),
        tuple(name for name in free if name not in valued),
        {n: _find_sources(tree, n) for n in (*(r for r in results if r not in made), *entries)},
        {name: _find_shape(value) for name, value in all_made.items()},
        tuple(name for name, is_whole in numbers.items() if is_whole),
        chosen,
    )


def to_function(script: Script, arguments: tuple[str, ...], result: str) -> ast.Module:
    """A module with the imports and one function `script` of these arguments."""
    kept = (*script.find_sources(result, script.made), *arguments)
    left = [name for name in script.made if name not in kept]  # and their dependents, added below
    imports: list[ast.stmt] = []
    body: list[ast.stmt] = []
    for statement in _flatten(script.tree).body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            imports.append(statement)
        elif not isinstance(statement, (ast.FunctionDef, ast.ClassDef)) and any(
            name in left for name, _ in _find_names(statement, "read")
        ):
            left += [name for name, _ in _find_made(ast.Module([statement], []), "made")]
        elif not _is_making(statement, (*arguments, *left)) and not _is_shown(statement):
            body.append(statement)
    last = script.tree.body[-1]
    answer = ast.parse(result or "None", mode="eval").body
    if not result and isinstance(last, ast.Expr):
        answer = last.value
        body = body[: -1 if body and body[-1] is last else None]
    end: ast.stmt = ast.copy_location(ast.Return(answer), last)
    empty = ast.arguments([], [ast.arg(name) for name in arguments], None, [], [], None, [])
    function = ast.FunctionDef("script", empty, [end], [], None, lineno=1, col_offset=0)
    ast.fix_missing_locations(function).body = [*body, end]  # the body has locations already
    return ast.Module([*imports, function], [])


def _flatten(tree: ast.Module) -> ast.Module:
    """The script with the block of `__main__` at its top level, and one tensor an assignment."""
    body: list[ast.stmt] = []
    for statement in tree.body:
        match statement:
            case ast.If(ast.Compare(ast.Name("__name__")), inner):
                body += _flatten(ast.Module(inner, [])).body
            case ast.Assign([ast.Tuple(targets)], value) if parts := _split_made(value, targets):
                pairs = zip(targets, parts, strict=True)
                made = (ast.copy_location(ast.Assign([n], part), statement) for n, part in pairs)
                body += map(ast.fix_missing_locations, made)
            case _:
                body.append(statement)
    return ast.Module(body, [])


def _split_made(value: ast.expr, targets: Sequence[ast.expr]) -> list[ast.expr]:
    """The creation of each tensor that is unpacked; none for other values."""
    if not all(isinstance(target, ast.Name) for target in targets):
        return []
    parts: list[ast.expr] = []
    match value:
        case ast.Tuple(elts) if len(elts) == len(targets):
            parts = elts
        case ast.GeneratorExp(inner) | ast.ListComp(inner):
            parts = [inner for _ in targets]
        case ast.Call():
            own = (ast.Constant(place) for place in range(len(targets)))
            parts = [ast.Subscript(value, each, ast.Load()) for each in own]
    return parts if all(map(makes_tensor, parts)) else []


def _is_shown(statement: ast.stmt) -> bool:
    """Whether the statement only shows a value or a comparison."""
    match statement:
        case ast.Expr(ast.Call(ast.Name("print" | "display"))):
            return True
        case ast.Expr(ast.Call(ast.Attribute(attr="allclose" | "equal"))):
            return True
    return isinstance(statement, ast.Expr) and not any(
        isinstance(node, (ast.Call, ast.Await, ast.Yield)) for node in ast.walk(statement)
    )


def _is_making(statement: ast.stmt, arguments: tuple[str, ...]) -> bool:
    """Whether the statement only creates, fills or sets one of the arguments."""
    match statement:
        case ast.Assign([ast.Name(name)], value) if name in arguments:
            return makes_tensor(value) or makes_mask(value) or isinstance(value, ast.Constant)
        case ast.Expr(ast.Call(ast.Attribute(base, way), given)) if _DRAWS.fullmatch(way):
            drawn = given[0] if given and ast.unparse(base).endswith("init") else base
            if isinstance(drawn, ast.Attribute) and drawn.attr == "data":
                drawn = drawn.value
            return isinstance(drawn, ast.Name) and drawn.id in arguments
    return False


def _find_sources(tree: ast.Module, result: str) -> tuple[str, ...]:
    """The names that a result depends on, through assignments and filled entries."""
    needed = dict.fromkeys([result])
    size = 0
    while size != len(needed):
        size = len(needed)
        for statement in reversed(tree.body):
            stored = {name for name, _ in _find_names(statement, "made", "deleted", "filled")}
            if isinstance(statement, ast.FunctionDef):
                stored = {statement.name}
            if not stored.isdisjoint(needed):
                needed |= dict(_find_names(statement, "read"))
    return tuple(needed)


def _find_shape(value: ast.expr) -> tuple[str, ...]:
    """The length names of a created tensor: ("", "n") for `torch.zeros(2, n)`; () for none."""
    if isinstance(value, ast.Subscript):
        return _find_shape(value.value)[1:]
    while isinstance(value, ast.BinOp):
        value = value.left if makes_tensor(value.left) else value.right
    given = value.args if isinstance(value, ast.Call) else []
    if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)):
        given = given[0].elts
    return tuple(each.id if isinstance(each, ast.Name) else "" for each in given)


def find_unused(tree: ast.AST) -> tuple[tuple[str, int], ...]:
    """Names that are assigned and never read, with their lines; loop targets may stay unread."""
    loads = {name for name, _ in _find_names(tree, "read")}
    for node in ast.walk(tree):
        match node:
            case ast.Global(names):
                loads |= {*names}
            case ast.For(target) | ast.AsyncFor(target) | ast.comprehension(target):
                loads |= {name for name, _ in _find_names(target)}  # need not be read
    for node in ast.walk(tree):  # nor all names of a tuple assignment
        if isinstance(node, (ast.Tuple, ast.List)) and isinstance(node.ctx, ast.Store):
            every = {name for name, _ in _find_names(node)}
            loads |= every if every & loads else set()
    made = dict(reversed(_find_made(tree, "made"))).items()
    return tuple((n, line) for n, line in made if n not in loads and not n.startswith("_"))


@lru_cache(maxsize=1 << 13)
def _find_uses(node: ast.AST) -> tuple[tuple[str, str, int], ...]:
    """The names in a node: name, use (read, made, deleted, or filled by `x[0] = ..`), line."""
    uses = {ast.Load: "read", ast.Store: "made", ast.Del: "deleted"}
    found = []
    for each in ast.walk(node):
        match each:
            case ast.Name(name, context):
                found.append((name, uses[type(context)], each.lineno))
            case ast.Subscript(ast.Name(name), _, ast.Store()):
                found.append((name, "filled", each.lineno))
    return tuple(found)


def _find_names(node: ast.AST, *uses: str) -> list[tuple[str, int]]:
    """The names in a node with their lines: of some uses, or all."""
    return [(name, line) for name, use, line in _find_uses(node) if use in uses or not uses]


def _find_made(tree: ast.AST, *uses: str) -> list[tuple[str, int]]:
    """Pairs (name, line) of these uses in top-level statements but definitions and texts."""
    found = []
    for statement in getattr(tree, "body", []):
        match statement:
            case ast.FunctionDef() | ast.ClassDef() | ast.Assign(value=ast.Constant(str())):
                continue
        found += _find_names(statement, *uses)
    return found


def makes_mask(value: ast.expr) -> bool:
    """Whether the value creates a mask: a call, comparison or negation with a factory."""
    calls = [n.func for n in ast.walk(value) if isinstance(n, ast.Call)]
    made = any(isinstance(f, ast.Attribute) and f.attr in _MAKERS for f in calls)
    return made and isinstance(value, (ast.Call, ast.UnaryOp, ast.Compare))


def makes_tensor(value: ast.expr) -> bool:
    """Whether the value creates a tensor, perhaps scaled or shifted."""
    match value:
        case ast.Call(ast.Attribute(inner, name)):
            is_made = name not in ROWS and makes_tensor(inner)
            return name in _MAKERS or is_made
        case ast.Call(ast.Name(name)):
            return name in _MAKERS
        case ast.Subscript(inner, ast.Constant(int())):
            return makes_tensor(inner)
        case ast.BinOp(left, _, right):
            numbers = (ast.Constant, ast.Name, ast.BinOp)
            sides = ((left, right), (right, left))
            return any(makes_tensor(a) and isinstance(b, numbers) for a, b in sides)
    return False
