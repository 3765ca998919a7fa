"""A script without functions, read as one function of the tensors that it makes up at random.

    x = torch.randn(1, 4, 8)           a tensor made from nothing: an argument, its shape noted
    k = x @ w_q                        what follows is the body
    print(k.shape)                     its last assignment is the result

Names that are used and never made are arguments too.
"""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass

_MAKERS = frozenset(
    [
        "randn",
        "rand",
        "randint",
        "empty",
        "zeros",
        "ones",
        "full",
        "normal",
        "arange",
        "linspace",
        "tensor",
        "as_tensor",
        "from_numpy",
        "random",
        "uniform",
        "standard_normal",
        "Parameter",
    ]
)


@dataclass(frozen=True)
class Script:
    """The statements as a function `script`, what it is given, what it returns."""

    tree: ast.Module
    arguments: tuple[str, ...]
    made: tuple[str, ...]  # those of the arguments that the script itself makes from nothing
    results: tuple[str, ...]  # what it assigns, last first: candidates for the result
    unused: tuple[tuple[str, int], ...]  # names that are made and never read, and their lines


def read_script(tree: ast.Module) -> Script:
    """The script as a function; the line numbers stay those of the file."""
    made = _find_made(tree)
    assigned = list(dict.fromkeys(name for name, _ in _find_stores(tree)))
    free = _find_free(tree, assigned)
    return Script(tree, (*free, *made), made, tuple(reversed(assigned)), find_unused(tree))


def to_function(script: Script, arguments: tuple[str, ...], result: str) -> ast.Module:
    """A module with the imports and one function `script` of these arguments."""
    imports: list[ast.stmt] = []
    body: list[ast.stmt] = []
    for statement in script.tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            imports.append(statement)
        elif not (_find_target(statement) in arguments and _is_made(statement)):
            body.append(statement)
    last = script.tree.body[-1]
    answer: ast.expr = ast.Name(result, ast.Load())
    if not result and body and isinstance(last, ast.Expr):
        answer = last.value
        body = body[:-1]
    body.append(ast.copy_location(ast.Return(answer), last))
    empty = ast.arguments([], [ast.arg(name) for name in arguments], None, [], [], None, [])
    function = ast.FunctionDef("script", empty, body, [], None, lineno=1, col_offset=0)
    return ast.fix_missing_locations(ast.Module([*imports, function], []))


def find_unused(tree: ast.AST) -> tuple[tuple[str, int], ...]:
    """Names that are assigned and never read afterwards, with their lines."""
    loads = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and _is_load(n)}
    loads |= {name for n in ast.walk(tree) if isinstance(n, ast.Global) for name in n.names}
    return tuple(
        (name, line)
        for name, line in dict(reversed(_find_stores(tree))).items()
        if name not in loads and not name.startswith("_")
    )


def _is_load(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _find_stores(tree: ast.AST) -> list[tuple[str, int]]:
    """What the statements of the outermost level assign."""
    found = []
    for statement in getattr(tree, "body", []):
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)) or _is_text(statement):
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.append((node.id, node.lineno))
    return found


def _is_text(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(value=ast.Constant(value=str())):
            return True
    return False


def _find_target(statement: ast.stmt) -> str:
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return ""


def _is_made(statement: ast.stmt) -> bool:
    """Is it a tensor made from nothing, `x = torch.randn(...)`, perhaps scaled?"""
    match statement:
        case ast.Assign(value=value):
            return makes_tensor(value)
    return False


def makes_tensor(value: ast.expr) -> bool:
    """Is the value a tensor made from nothing?"""
    match value:
        case ast.Call(func=ast.Attribute(value=inner, attr=name)):
            return name in _MAKERS or (
                makes_tensor(inner) and name not in {"softmax", "sum", "mean"}
            )
        case ast.Call(func=ast.Name(id=name)):
            return name in _MAKERS
        case ast.BinOp(left=left, right=right):
            numbers = (ast.Constant, ast.Name, ast.BinOp)
            return (makes_tensor(left) and isinstance(right, numbers)) or (
                makes_tensor(right) and isinstance(left, numbers)
            )
    return False


def _find_made(tree: ast.Module) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(_find_target(s) for s in tree.body if _is_made(s) and _find_target(s))
    )


def _find_free(tree: ast.Module, assigned: list[str]) -> tuple[str, ...]:
    """Names that are read at the outermost level and made nowhere."""
    known = {*assigned, *dir(builtins)}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                known |= {(each.asname or each.name).split(".")[0] for each in names}
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                known.add(name)
            case ast.arg(arg=name):
                known.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                known.add(name)
    reads = (n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and _is_load(n))
    common = {"torch", "np", "numpy", "F", "nn", "math", "einsum", "einops", "rearrange"}
    return tuple(dict.fromkeys(name for name in reads if name not in known | common))
