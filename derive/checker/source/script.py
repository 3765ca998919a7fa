"""A script without functions, read as one function of the tensors that it makes up at random.

    x = torch.randn(1, 4, n)           a tensor made from nothing: an argument, its shape noted
    nn.init.normal_(x)                 part of its making
    k = x @ w_q                        what follows is the body
    print(k.shape)                     its last assignment is the result
    attend(q, k, mask=torch.ones(..))  a mask made in a call is an argument too; so is the call's
                                       value a result, by the function's name

Names that are used and never made are arguments too; what is made empty and then filled is none.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAKERS = {
    *("randn", "rand", "randint", "empty", "zeros", "ones", "full", "normal", "arange", "linspace"),
    *("tensor", "as_tensor", "from_numpy", "random", "uniform", "standard_normal", "Parameter"),
}
# The endings of what draws a tensor's entries anew, as in nn.init and in the methods of a tensor.
_DRAWS = re.compile(
    r"((trunc_|log_)?normal|(xavier|kaiming)_(uniform|normal)|uniform|constant|ones|zeros?|eye|dirac"
    r"|orthogonal|sparse|random|bernoulli|exponential|cauchy|geometric|fill)_"
)


@dataclass(frozen=True)
class Script:
    """The statements as a function `script`, what it is given, what it returns."""

    tree: ast.Module
    arguments: tuple[str, ...]
    made: tuple[str, ...]  # those of the arguments that the script itself makes from nothing
    results: tuple[str, ...]  # what it assigns, last first: candidates for the result
    unused: tuple[tuple[str, int], ...]  # names that are made and never read, and their lines
    free: Mapping[str, int]  # names that are never made, and the lines that need them first
    filled: tuple[str, ...]  # those of them whose entries are assigned
    called: tuple[str, ...]  # those of them that are only called
    sources: Mapping[str, tuple[str, ...]]  # what each result is made from
    shapes: Mapping[str, tuple[str, ...]]  # the names of extents of what is made, "" for others
    numbers: tuple[str, ...]  # names that are whole numbers
    chosen: str = ""  # the result that is asked for


def read_script(tree: ast.Module, chosen: str = "") -> Script:
    """The script as a function; the line numbers stay those of the file."""
    unused = find_unused(tree)
    tree = name_calls(tree)
    entries = _find_filled(tree)
    made = tuple(
        name  # what is made without drawing numbers and filled later is none
        for name, value in _find_made(tree)
        if name not in entries or ast.unparse(value).rpartition("(")[0].split(".")[-1] == "randn"
    )
    assigned = list(dict.fromkeys(name for name, _ in _find_stores(tree)))
    results = list(dict.fromkeys(name for name, _ in reversed(_find_stores(tree, entries=True))))
    results = [name for name in results if name not in made]
    free = _find_free(tree, assigned)
    loads = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and _is_load(n)]
    functions = [n.func for n in ast.walk(tree) if isinstance(n, ast.Call)]
    called = Counter(each.id for each in functions if isinstance(each, ast.Name))
    valued = Counter(n.id for n in loads) - called
    return Script(
        tree,
        (*free, *made),
        made,
        tuple(results),
        unused,
        {name: min(n.lineno for n in loads if n.id == name) for name in free},
        tuple(name for name in free if name in entries),
        tuple(name for name in free if name not in valued),
        {name: _find_sources(tree, name) for name in (*results, *entries)},
        {name: _find_shape(value) for name, value in _find_made(tree)},
        _find_numbers(tree),
        chosen,
    )


def name_calls(tree: ast.Module) -> ast.Module:
    """The script in which the value of a call of its own functions has the function's name.

    A mask that is made in the call has that of its parameter.
    """
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    taken = {name for name, _ in _find_stores(tree)}
    body: list[ast.stmt] = []
    for statement in tree.body:
        match statement:  # that shows or assigns what a function gives
            case (
                ast.Expr(
                    value=ast.Attribute(
                        value=ast.Call(func=ast.Name(id=name)) as call, attr="shape"
                    )
                )
                | ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call)
                | ast.Assign(value=ast.Call(func=ast.Name(id=name)) as call, targets=[ast.Name()])
            ) if name in functions:
                function = functions[name]
            case _:
                body.append(statement)
                continue
        named = [(arg.arg, each) for arg, each in zip(function.args.args, call.args, strict=False)]
        named += [(word.arg, word.value) for word in call.keywords if word.arg]
        masks = {name: value for name, value in named if "mask" in name and makes_mask(value)}
        masks = {name: value for name, value in masks.items() if name not in taken}
        taken |= {*masks}
        for name, value in masks.items():
            body.append(_assign(name, value, statement))
        call = ast.Call(
            call.func,
            [_recall(each, masks) for each in call.args],
            [ast.keyword(word.arg, _recall(word.value, masks)) for word in call.keywords],
        )
        target = name_call(function.name)
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            target = statement.targets[0].id
        body.append(_assign(target, call, statement))
    return ast.Module(body, [])


def name_call(function: str) -> str:
    """The name of the value of a script's call of a function."""
    return f"{function}_called"


def _recall(value: ast.expr, masks: Mapping[str, ast.expr]) -> ast.expr:
    name = next((name for name, each in masks.items() if each is value), None)
    return value if name is None else ast.copy_location(ast.Name(name, ast.Load()), value)


def _assign(name: str, value: ast.expr, at: ast.stmt) -> ast.stmt:
    made = ast.Assign([ast.Name(name, ast.Store())], value)
    return ast.fix_missing_locations(ast.copy_location(made, at))


def to_function(script: Script, arguments: tuple[str, ...], result: str) -> ast.Module:
    """A module with the imports and one function `script` of these arguments.

    Tensors that are made up and that the result is not made from are left out, and what is made
    from them.
    """
    sources = script.sources.get(result)
    kept = (*(sources if sources is not None else script.made), *arguments)
    left = [name for name in script.made if name not in kept]
    imports: list[ast.stmt] = []
    body: list[ast.stmt] = []
    for statement in script.tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            imports.append(statement)
        elif _reads(statement, set(left)):
            left += [name for name, _ in _find_stores(ast.Module([statement], []))]
        elif not _is_making(statement, (*arguments, *left)) and not _is_shown(statement):
            body.append(statement)
    last = script.tree.body[-1]
    answer: ast.expr = ast.Name(result, ast.Load())
    if not result and isinstance(last, ast.Expr):
        answer = last.value
        body = body[: -1 if body and body[-1] is last else None]
    body.append(ast.copy_location(ast.Return(answer), last))
    empty = ast.arguments([], [ast.arg(name) for name in arguments], None, [], [], None, [])
    function = ast.FunctionDef("script", empty, body, [], None, lineno=1, col_offset=0)
    return ast.fix_missing_locations(ast.Module([*imports, function], []))


def _is_shown(statement: ast.stmt) -> bool:
    """Does it do nothing but show a value, or that two are equal?"""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Name(id="print" | "display"))):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="allclose" | "equal"))):
            return True
    return isinstance(statement, ast.Expr) and not any(
        isinstance(node, (ast.Call, ast.Await, ast.Yield)) for node in ast.walk(statement)
    )


def _is_making(statement: ast.stmt, arguments: tuple[str, ...]) -> bool:
    """Does the statement only make or draw one of the arguments, or give a number that is one?"""
    match statement:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in arguments:
            return makes_tensor(value) or makes_mask(value) or isinstance(value, ast.Constant)
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=base, attr=way), args=given)):
            if not _DRAWS.fullmatch(way):
                return False
            drawn = given[0] if given and ast.unparse(base).endswith("init") else base
            if isinstance(drawn, ast.Attribute) and drawn.attr == "data":
                drawn = drawn.value
            return isinstance(drawn, ast.Name) and drawn.id in arguments
    return False


def _find_sources(tree: ast.Module, result: str) -> tuple[str, ...]:
    """The names that a result is made from, through whatever is assigned or filled."""
    needed = dict.fromkeys([result])
    size = 0
    while size != len(needed):
        size = len(needed)
        for statement in reversed(tree.body):
            names = [n for n in ast.walk(statement) if isinstance(n, ast.Name)]
            stored = {n.id for n in names if not _is_load(n)} | {*_find_filled(statement)}
            if isinstance(statement, ast.FunctionDef):
                stored = {statement.name}
            if any(name in needed for name in stored):
                needed |= dict.fromkeys(n.id for n in names if _is_load(n))
    return tuple(needed)


def _find_shape(value: ast.expr) -> tuple[str, ...]:
    """The names of the extents of a tensor that is made so, "" where one has none."""
    while isinstance(value, ast.BinOp):
        value = value.left if makes_tensor(value.left) else value.right
    given = value.args if isinstance(value, ast.Call) else []
    if len(given) == 1 and isinstance(given[0], (ast.Tuple, ast.List)):
        given = given[0].elts
    return tuple(each.id if isinstance(each, ast.Name) else "" for each in given)


def _find_numbers(tree: ast.Module) -> tuple[str, ...]:
    """The names to which the script assigns nothing but whole numbers."""
    numbers: dict[str, bool] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                is_whole = isinstance(value, ast.Constant) and type(value.value) is int
                numbers[name] = numbers.get(name, True) and is_whole
    return tuple(name for name, is_whole in numbers.items() if is_whole)


def find_unused(tree: ast.AST) -> tuple[tuple[str, int], ...]:
    """Names that are assigned and never read afterwards, with their lines.

    What counts a loop need not be read, nor each of several names that are assigned together.
    """
    nodes = list(ast.walk(tree))
    loads = {n.id for n in nodes if isinstance(n, ast.Name) and _is_load(n)}
    loads |= {name for n in nodes if isinstance(n, ast.Global) for name in n.names}
    for node in nodes:
        if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            loads |= _find_names(node.target)
    for node in nodes:
        if isinstance(node, (ast.Tuple, ast.List)) and isinstance(node.ctx, ast.Store):
            names = _find_names(node)
            loads |= names if names & loads else set()
    return tuple(
        (name, line)
        for name, line in dict(reversed(_find_stores(tree))).items()
        if name not in loads and not name.startswith("_")
    )


def _reads(statement: ast.stmt, names: set[str]) -> bool:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return False
    return any(
        isinstance(n, ast.Name) and n.id in names and _is_load(n) for n in ast.walk(statement)
    )


def _find_names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _is_load(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Load)


def _find_stores(tree: ast.AST, *, entries: bool = False) -> list[tuple[str, int]]:
    """What the statements of the outermost level assign, or assign entries of."""
    found = []
    for statement in getattr(tree, "body", []):
        match statement:
            case ast.FunctionDef() | ast.ClassDef() | ast.Assign(value=ast.Constant(value=str())):
                continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.append((node.id, node.lineno))
            if entries and isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                found += [(name, node.lineno) for name in _find_filled(node)]
    return found


def _find_filled(tree: ast.AST) -> dict[str, None]:
    """The names whose entries are assigned."""
    places = (n for n in ast.walk(tree) if isinstance(n, ast.Subscript))
    bases = (n.value for n in places if isinstance(n.ctx, ast.Store))
    return dict.fromkeys(base.id for base in bases if isinstance(base, ast.Name))


def makes_mask(value: ast.expr) -> bool:
    """Is it made from nothing, of numbers and functions of torch alone: a causal mask?"""
    calls = [n.func for n in ast.walk(value) if isinstance(n, ast.Call)]
    made = any(isinstance(f, ast.Attribute) and f.attr in _MAKERS for f in calls)
    return made and isinstance(value, (ast.Call, ast.UnaryOp, ast.Compare))


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


def _find_made(tree: ast.Module) -> list[tuple[str, ast.expr]]:
    """The tensors that are made from nothing, masks among them, and how."""
    found: dict[str, ast.expr] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if makes_tensor(value) or ("mask" in name and makes_mask(value)):
                    found.setdefault(name, value)
    return list(found.items())


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
