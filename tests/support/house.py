"""Structural rules of the project as functions from source text to the lines that break them.

A result reads `line: finding`. test_house.py applies the rules to the whole tree and to planted
texts that break them. Docstrings, types and the layers of imports are checked by ruff, mypy and
import-linter.
"""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE = 600  # a module is one idea, usually 100 to 400 lines
MAX_FUNCTION = 60

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
# Functions whose result does not depend on the order of the elements.
ORDERLESS = {"sorted", "set", "frozenset", "any", "all", "len", "sum", "min", "max"}
ORDERED = {"list", "tuple", "enumerate", "iter", "zip", "map", "reversed", "fromkeys", "join"}


@cache
def parse(source: str) -> ast.Module:
    """The syntax tree of a text, cached: no rule changes it."""
    return ast.parse(source)


def find_tracked() -> list[Path]:
    """The files of the project: tracked and untracked ones of git, or all files without git."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listing.returncode == 0:
        found = [ROOT / name for name in listing.stdout.split("\0") if name]
    else:
        found = list(ROOT.rglob("*"))
    ignored = {"__pycache__", ".git", ".venv", "build", "dist"}
    caches = ("_cache", ".hypothesis", ".egg-info")
    return sorted(
        path
        for path in found
        if path.is_file()
        and not any(p in ignored or p.endswith(caches) for p in path.relative_to(ROOT).parts)
    )


def read_modules(folder: str) -> dict[str, str]:
    """The source of every module in a folder of the project, by its dotted name."""
    paths = [p for p in find_tracked() if p.suffix == ".py" and p.is_relative_to(ROOT / folder)]
    return {to_name(path): path.read_text(encoding="utf-8") for path in paths}


def to_name(path: Path) -> str:
    """The dotted name of a module of the project."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def find_long(source: str) -> list[str]:
    """Report a file that is too long, and functions that are."""
    lines = len(source.splitlines())
    found = [f"1: {lines} lines"] if lines > MAX_FILE else []
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno >= MAX_FUNCTION:
            found.append(f"{node.lineno}: {node.name} is longer than {MAX_FUNCTION} lines")
    return found


@cache
def find_imports(source: str, known: frozenset[str] = frozenset()) -> list[tuple[str, bool, int]]:
    """(module, is_eager, line) of every import; `known` are the names of modules."""
    found = []
    for node, at_once in _find_import_nodes(parse(source)):
        if isinstance(node, ast.Import):
            found += [(alias.name, at_once, node.lineno) for alias in node.names]
            continue
        for alias in node.names:
            inner = f"{node.module}.{alias.name}"
            name = inner if inner in known else node.module or ""
            found.append((name, at_once, node.lineno))
    return [*found, *_find_dynamic_imports(source)]


def _find_dynamic_imports(source: str) -> Iterator[tuple[str, bool, int]]:
    """Calls `import_module("name")`."""
    for node in ast.walk(parse(source)):
        match node:
            case ast.Call(
                func=ast.Name("import_module") | ast.Attribute(attr="import_module"),
                args=[ast.Constant(str(name))],
            ):
                yield name, False, node.lineno


def _find_import_nodes(
    tree: ast.AST, at_once: bool = True
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Import statements, each with whether it runs when the module is imported."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, at_once
        elif isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            is_late = isinstance(node, FUNCTION)
            is_late |= isinstance(node, ast.If) and _is_for_types(node.test)
            yield from _find_import_nodes(node, at_once and not is_late)


def _is_for_types(test: ast.expr) -> bool:
    return ast.unparse(test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}


def find_cycle(graph: dict[str, list[str]]) -> list[str]:
    """One cycle of a graph as a closed path, or nothing."""
    done: set[str] = set()

    def find_path(node: str, path: tuple[str, ...]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done or node not in graph:
            return []
        for after in graph[node]:
            if cycle := find_path(after, (*path, node)):
                return cycle
        done.add(node)
        return []

    return next((cycle for node in graph if (cycle := find_path(node, ()))), [])


def _to_dotted(called: ast.expr) -> str:
    """The dotted name of a called function; empty for other expressions."""
    match called:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{_to_dotted(value)}.{name}"
        case _:
            return ""


def find_unstable(source: str) -> list[str]:
    """Sources of nondeterminism: addresses, counters, clocks, dates, unseeded random numbers."""
    found = []
    tree = parse(source)
    for node in ast.walk(tree):
        text = _to_dotted(node.func) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Global):
            found.append(f"{node.lineno}: global {', '.join(node.names)}")
        elif text in {"id", "time.time", "time.ctime", "time.strftime", "uuid4", "uuid.uuid4"} or (
            text.startswith("random.") and not text.startswith("random.Random")
        ):
            found.append(f"{node.lineno}: {text}()")
        elif text == "random.Random" and not node.args:
            found.append(f"{node.lineno}: {text}() without a seed")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
            found += [f"{node.lineno}: import {n}" for n in names if n in {"datetime", "uuid"}]
    for node in tree.body:
        value = getattr(node, "value", None)
        if isinstance(value, ast.Call) and _to_dotted(value.func).split(".")[-1] == "count":
            found.append(f"{node.lineno}: a counter of the whole module")
    return found


def find_set_orders(source: str) -> list[str]:
    """Places where the iteration order of a set reaches a result."""
    tree = parse(source)
    found: list[str] = []
    for scope in ast.walk(tree):
        if isinstance(scope, (ast.Module, *FUNCTION)):
            found += _find_set_orders(scope)
    return sorted(set(found), key=lambda place: int(place.split(":")[0]))


def _find_set_orders(scope: ast.AST) -> list[str]:
    nodes = list(_walk_scope(scope))
    sets = {name for node in nodes for name in _find_set_names(node)}
    calm = {  # generators passed directly to an order-independent function
        argument
        for node in nodes
        if isinstance(node, ast.Call) and _to_dotted(node.func).split(".")[-1] in ORDERLESS
        for argument in node.args
    }
    found = []
    for node in nodes:
        match node:
            case ast.For(iter=over):
                asked = [over]
            case ast.ListComp() | ast.DictComp() | ast.GeneratorExp() if node not in calm:
                asked = [generator.iter for generator in node.generators]
            case ast.Call(func=func) if _to_dotted(func).split(".")[-1] in ORDERED:
                asked = [] if node in calm else node.args
            case ast.Starred(value=value, ctx=ast.Load()) if node not in calm:
                asked = [value]
            case _:
                continue
        found += [f"{node.lineno}: {ast.unparse(o)}" for o in asked if _is_set(o, sets)]
    into_sets = {e for n in nodes if isinstance(n, ast.Set) for e in n.elts}
    spread = {
        f"{e.lineno}: {ast.unparse(e.value)}" for e in into_sets if isinstance(e, ast.Starred)
    }
    return [place for place in found if place not in spread]


def _walk_scope(scope: ast.AST) -> list[ast.AST]:
    """The nodes of a function or module, without the functions inside it."""
    found, stack = [], list(ast.iter_child_nodes(scope))
    while stack:
        node = stack.pop()
        found.append(node)
        if not isinstance(node, FUNCTION):
            stack.extend(ast.iter_child_nodes(node))
    if isinstance(scope, FUNCTION):
        found.append(scope)
    return found


def _find_set_names(node: ast.AST) -> list[str]:
    """Names that a node declares as sets or assigns a set to."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_set(value, set()):
            return [name]
        case ast.AnnAssign(target=ast.Name(id=name), annotation=kind) if _is_set_type(kind):
            return [name]
        case ast.FunctionDef(args=arguments) | ast.AsyncFunctionDef(args=arguments):
            every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
            return [a.arg for a in every if a.annotation and _is_set_type(a.annotation)]
        case _:
            return []


def _is_set_type(kind: ast.expr) -> bool:
    head = ast.unparse(kind).split("[")[0]
    return head in {"set", "frozenset", "AbstractSet", "Set"}


def _is_set(value: ast.expr, names: set[str]) -> bool:
    match value:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Call(func=ast.Name(id="set" | "frozenset")):
            return True
        case ast.Name(id=name):
            return name in names
        case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub(), right=right):
            return _is_set(left, names) or _is_set(right, names)
        case _:
            return False


def find_skips(source: str) -> list[str]:
    """Uses of skip and xfail marks."""
    words = {"skip", "skipif", "importorskip", "xfail"}
    return [
        f"{node.lineno}: {node.attr}"
        for node in ast.walk(parse(source))
        if isinstance(node, ast.Attribute) and node.attr in words
    ]


def find_private_torch(source: str) -> list[str]:
    """Private names of torch in attributes, imports and string constants."""
    private = re.compile(r"torch(\.\w+)*\._(?!_)\w+(\.\w+)*")
    found = []
    for node in ast.walk(parse(source)):
        match node:
            case ast.Attribute():
                names = [ast.unparse(node)]
            case ast.ImportFrom(module=str(module)):
                names = [f"{module}.{alias.name}" for alias in node.names]
            case ast.Import():
                names = [alias.name for alias in node.names]
            case ast.Constant(value=str(text)):
                names = [text]
            case _:
                continue
        found += [f"{node.lineno}: {name}" for name in names if private.fullmatch(name)]
    return found
