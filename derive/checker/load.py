"""The code to check: a function, a module or a class of modules, from a file or a text.

file.py:function   file.py:Class   file.py:Class.method   file.py:instance
file.py              one candidate, else a name is asked for
notebook.ipynb       its code cells as one file
"bij,bjk->bik"     an einsum string
text               Python with one function or class, or a script without any
"""

import ast
import inspect
import linecache
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from operator import add, floordiv, lshift, mul, sub, truediv
from pathlib import Path
from traceback import extract_tb
from types import CodeType, ModuleType
from typing import Any

from derive.checker.processes import CannotRunError, run_remotely
from derive.checker.reading import (
    Reading,
    Rename,
    Script,
    UnreadableError,
    find_member,
    find_unused,
    makes_tensor,
    read_notebook,
    read_python,
    read_script,
    say_line,
    to_function,
)
from derive.checker.slots import find_definition, parse_text, unwrap
from derive.errors import DeriveError, Diagnostic, refuse, suggest
from derive.frontend.notebooks import is_file, read_text
from derive.libraries import NUMPY, find_uncompiled, torch

STANDARD_INPUT = "standard input"
SUFFIXES = (".py", ".ipynb")
FEWEST_STATEMENTS = 3  # top-level computing statements of a script; fewer are a demonstration
_MEMBER = re.compile(r"(?P<path>.+\.(py|ipynb)):(?P<member>[^\W\d]\w*(\.[^\W\d]\w*)*)?")
_ODD_MEMBER = re.compile(r"(?P<path>[^\s:]+\.(py|ipynb)):(?P<member>.+)")
_EINSUM = re.compile(r"\s*[A-Za-z., ]*[A-Za-z.][A-Za-z., ]*(->[A-Za-z. ]*)?\s*")
# Imports that snippets leave out.
_PRELUDE = "import math\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


@dataclass(frozen=True)
class Code:
    """The code to judge, and the places of its lines."""

    name: str  # in reports: "attention.py:attend"
    target: Any  # a function, a torch module, a class of modules
    path: str = ""  # the file name of its frames
    source: str = ""  # the text of that file
    script: Script | None = None
    findings: tuple[Diagnostic, ...] = ()
    names: Mapping[str, Any] = field(default_factory=dict)  # globals of the file
    is_einsum: bool = False
    answer: str = ""  # the name of a script that is its result
    places: tuple[str, ...] = ()  # the cell and line to report for each line of a notebook
    rival: str = ""  # a result of the file that is computed with the function
    broken: int | None = None  # the line of the syntax error that was repaired

    def find_definitions(self) -> list[ast.stmt]:
        """The statements of the file that define the function or the class."""
        name = self.name.rpartition(":")[2].partition(".")[0].partition("(")[0]
        return [node for node in parse_text(self.source).body if getattr(node, "name", "") == name]


def load(given: Any, wanted: str = "", init: str = "", rename: Rename | None = None) -> Code:
    """The loaded code; `wanted`, the formula's name, decides between several candidates.

    `init` are the arguments of a class's constructor, Python over the file's names; `rename`
    replaces one name of the text by another.
    Raises DeriveError for input that is no code, CannotRunError for a file that does not run.
    """
    if init and (not isinstance(given, (str, Path)) or _is_einsum(str(given))):
        raise refuse("init-class", "--init makes an object of a class of a file or a text")
    if not isinstance(given, (str, Path)):
        return _from_object(given)
    text = str(given)
    if isinstance(given, str) and _is_einsum(text):
        return _from_einsum(text)
    path, member = split_member(text)
    if not path and "\n" not in text and (odd := _ODD_MEMBER.match(text)):
        says = f"{odd['member']!r} is no name of something in {Path(odd['path']).name}"
        raise refuse("code-missing", says, help="write FILE.py:NAME or FILE.py:Class.method")
    code = Code(STANDARD_INPUT, None, f"<{STANDARD_INPUT}>")
    read = partial(read_python, text)
    if path:
        code, read = Code(Path(path).name, None, path), partial(_read_path, Path(path))
    return _from_text(code, read, _Request(member, wanted, init, rename))


def split_member(text: str) -> tuple[str, str]:
    """The path and the name of FILE.py:NAME; two empty texts where there is no path."""
    found = _MEMBER.fullmatch(text)
    if found:
        return found["path"], found["member"] or ""
    if "\n" in text:
        return "", ""
    path, _, member = text.partition(":")
    if member.isidentifier() and is_file(path):
        return path, member
    return (text, "") if text.endswith(SUFFIXES) or is_file(text) else ("", "")


@dataclass(frozen=True)
class _Request:
    """A request: the member's or formula's name, constructor's arguments, a misspelling."""

    member: str = ""
    formula: str = ""
    init: str = ""
    rename: Rename | None = None


def _is_einsum(text: str) -> bool:
    alone = r"(?=\w*(\w)\w*\1)[a-z]{2,5}"  # one operand, with a letter twice
    is_plain = "->" in text or "," in text or re.fullmatch(alone, text)
    return bool(_EINSUM.fullmatch(text) and is_plain) and not is_file(text)


def _from_einsum(text: str) -> Code:
    equation, shown = text.replace(" ", ""), f'einsum "{text.strip()}"'
    names = ", ".join(f"operand_{number}" for number in range(1, equation.count(",") + 2))
    body = f"def contraction({names}):\n    return torch.einsum({equation!r}, {names})\n"
    read = partial(read_python, f"{_PRELUDE}\n{body}")
    code = _from_text(Code(shown, None, "<einsum>"), read, _Request("contraction"))
    return replace(code, name=shown, is_einsum=True)


def _from_object(code: Any) -> Code:
    code = find_uncompiled(code)
    if not isinstance(code, torch.nn.Module) and not callable(code):
        raise refuse(
            "code-kind",
            f"{type(code).__name__} is no code",
            help="give a function, a torch module, a path file.py:name, or the code as a text",
        )
    is_module = isinstance(code, torch.nn.Module) or hasattr(code, "forward")
    inner = code.forward if is_module else inspect.unwrap(code)
    inner = getattr(inner, "__func__", inner)
    path, source = getattr(getattr(inner, "__code__", None), "co_filename", ""), ""
    if path and Path(path).is_file():
        source = Path(path).read_text(encoding="utf-8", errors="replace")
    else:
        with suppress(OSError, TypeError):
            source = "".join(inspect.findsource(inner)[0])
    names = dict(getattr(inner, "__globals__", {}))
    with suppress(TypeError, ValueError):
        names |= inspect.getclosurevars(inner).nonlocals
    named = getattr(code if hasattr(code, "__name__") else type(code), "__name__", "the code")
    return Code(named, code, path, source, None, _find_unused_names(inner), names)


def _find_unused_names(function: Any, places: tuple[str, ...] = ()) -> tuple[Diagnostic, ...]:
    definition = find_definition(function)
    is_function = isinstance(definition, ast.FunctionDef)
    return _say_unused(find_unused(definition) if is_function and definition else (), places)


def _say_unused(
    found: Iterable[tuple[str, int]], places: tuple[str, ...]
) -> tuple[Diagnostic, ...]:
    says = "{} is made on {} and never used"
    return tuple(Diagnostic("unused", says.format(n, say_line(at, places))) for n, at in found)


def _read_path(path: Path) -> Reading:
    """The reading of a file; DeriveError where it cannot be read."""
    found = read_text(path, str(path), read_notebook if path.suffix == ".ipynb" else None)
    return read_python(found) if isinstance(found, str) else found


def _from_text(code: Code, read: Callable[[], Reading], asked: _Request) -> Code:
    """The code of a text, whose file name and name in messages are known."""
    try:
        reading = read()
    except UnreadableError as error:
        raise CannotRunError(f"{code.name}, {error}", error.line) from error
    if asked.rename is not None:
        reading = asked.rename.apply(reading)
    if reading.error is None:
        return _from_reading(code, reading, asked)
    try:
        repaired = replace(code, name=f"{code.name} as repaired")
        return replace(_from_reading(repaired, reading, asked), broken=reading.error.line)
    except CannotRunError as error:
        error.findings = reading.repairs
        raise
    except DeriveError as error:  # no single meaning, even after the repair
        says = f"{code.name}, {reading.error}"
        raise CannotRunError(says, reading.error.line, findings=reading.repairs) from error


def _from_reading(code: Code, reading: Reading, asked: _Request) -> Code:
    tree, member, shown = _name_lambda(reading.tree), asked.member, code.name
    code = replace(code, source=reading.text, findings=reading.repairs, places=reading.places)
    candidates = find_candidates(tree)
    if not candidates and not member:
        made = _from_script(code, tree)
        results = made.script.results if made.script is not None else ()
        values = [made.names.get(name) for name in results]
        is_last = bool(values) and isinstance(values[0], torch.nn.Module)
        if is_last and not any(isinstance(value, torch.Tensor) for value in values):
            return _from_reading(code, reading, replace(asked, member=results[0]))  # not called
        return made
    script = read_script(tree, member) if member else None
    if script is not None and member in script.results:
        made = _from_script(replace(code, name=f"{shown}:{member}"), tree, member)
        if not callable(made.names.get(member)):
            return made  # otherwise a function or an object made by the script
    lines = code.source.splitlines(keepends=True)
    linecache.cache[code.path] = (len(code.source), None, lines, code.path)  # also without a file
    names = run_tree(tree, code)
    known = [n for n in candidates if callable(names.get(n))]
    if asked.formula not in known:
        known = _find_outermost(tree, known)
    if not member and asked.formula not in known and len(known) != 1:
        raise refuse(
            "code-which",
            f"{shown} has {len(known)} functions and classes",
            facts=[f"they are {', '.join(known)}"] if known else (),
            help=f"write {shown}:{known[-1]}" if known else "",
        )
    name = member or (asked.formula if asked.formula in known else known[0])
    first = name.partition(".")[0]
    if first not in names or names[first] is None:
        raise refuse(
            "code-missing",
            f"{shown} has no function or class {first}",
            facts=[f"it has {', '.join(known)}"] if known else (),
            help=suggest(first, known),
        )
    with _run_by_user(code):
        target = find_member(names, name, asked.init, shown)
    inner = unwrap(getattr(target, "forward", target))
    findings = (*code.findings, *_find_unused_names(inner, code.places))
    given = f"({asked.init})" if asked.init else ""
    called = f"{shown}:{first}{given}{name[len(first) :]}"
    rival = "" if member else _find_rival(tree, name)
    code = replace(code, rival=rival and f"{shown}:{rival}", findings=findings, names=names)
    return replace(code, name=called, target=target)


def _name_lambda(tree: ast.Module) -> ast.Module:
    """The tree, with a name assigned to a lambda that is its last statement."""
    match tree.body:
        case [*above, ast.Expr(ast.Lambda() as value) as last]:
            named = ast.copy_location(ast.Assign([ast.Name("function", ast.Store())], value), last)
            return ast.fix_missing_locations(ast.Module([*above, named], []))
    return tree


def _find_rival(tree: ast.Module, function: str) -> str:
    """A name of the script that is assigned the function of computed values; "" for none."""
    computed: set[str] = set()
    for statement in tree.body:
        if not isinstance(statement, ast.Assign) or makes_tensor(statement.value):
            continue
        for node in ast.walk(statement.value):
            match node:
                case ast.Call(ast.Name(called), given) if called == function:
                    own = (e for e in given if isinstance(e, (ast.BinOp, ast.Call, ast.Name)))
                    for each in own:
                        is_known = isinstance(each, ast.Name) and each.id not in computed
                        if not is_known and not makes_tensor(each):
                            return ast.unparse(statement.targets[0])
        computed |= {each.id for each in statement.targets if isinstance(each, ast.Name)}
    return ""


def _find_outermost(tree: ast.Module, names: list[str]) -> list[str]:
    """The candidates that no other candidate uses; all of them where each is used."""
    read: set[str] = set()
    for node in tree.body:
        own = {getattr(node, "name", "")}
        own |= {e.id for e in getattr(node, "targets", ()) if isinstance(e, ast.Name)}
        if own & {*names}:
            read |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} - own
    return [name for name in names if name not in read] or names


def find_candidates(tree: ast.Module) -> list[str]:
    """Names of public functions, and of classes with a forward that is no step of autograd."""
    found: list[str] = []
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    work = 0  # statements that compute with tensors beyond creating one
    for node in tree.body:
        match node:
            case ast.ClassDef(name, [*bases], body=body):
                inside = {each.name for each in body if isinstance(each, ast.FunctionDef)}
                kinds = [ast.unparse(base) for base in bases]
                is_step = any(kind.endswith("Function") for kind in kinds)  # autograd.Function
                is_callable = bool({"forward", "__call__"} & inside) and not is_step
                found += [name] * (is_callable or any(kind.endswith("Module") for kind in kinds))
            case ast.FunctionDef(name):
                found.append(name)
            case ast.Assign(targets, value) if _is_function(value, functions, tree):
                found += [each.id for each in targets if isinstance(each, ast.Name)]
            case ast.Assign(_, value) if not makes_tensor(value):
                parts = [*ast.walk(value)]
                products = (part.op for part in parts if isinstance(part, ast.BinOp))
                is_product = any(isinstance(each, ast.MatMult) for each in products)
                work += is_product or any(isinstance(part, ast.Call) for part in parts)
    public = [name for name in found if not name.startswith("_")]
    if found and work >= FEWEST_STATEMENTS:
        return []  # the top-level statements do the work: a script
    return public or found


def _is_function(value: ast.expr, functions: Collection[str], tree: ast.Module) -> bool:
    """Whether the value is a lambda, or a call such as `vmap(f)` of no value the file computes."""
    match value:
        case ast.Lambda() | ast.Call(_, [ast.Lambda()]):
            return True
        case ast.Call(_, [ast.Name(name), *others], named) if name in functions:
            given = [*others, *(each.value for each in named)]
            read = {e.id for part in given for e in ast.walk(part) if isinstance(e, ast.Name)}
            made = (n for n in tree.body if isinstance(n, ast.Assign))
            computed = [n for n in made if not isinstance(n.value, ast.Constant)]
            targets = (e for n in computed for each in n.targets for e in ast.walk(each))
            return not any(isinstance(e, ast.Name) and e.id in read for e in targets)
    return False


def _from_script(code: Code, tree: ast.Module, chosen: str = "") -> Code:
    if not tree.body:
        raise refuse("code-missing", f"{code.name} is empty")
    script = read_script(tree, chosen)
    # A script without free names runs by itself, which gives shapes and numbers.
    names = {} if script.free else run_tree(script.tree, code)
    unused = [each for each in script.unused if each[0] not in {chosen, *script.results[:1]}]
    findings = (*code.findings, *_say_unused(unused, code.places))
    return replace(code, script=script, findings=findings, names=names)


@run_remotely
def finish_script(code: Code, arguments: tuple[str, ...], result: str) -> Code:
    """The script as a function that returns the result; DeriveError if it assigns no tensor."""
    assert code.script is not None
    if not result and not isinstance(code.script.tree.body[-1], ast.Expr):
        raise refuse("code-missing", f"{code.name} has no function, and assigns no tensor")
    names = run_tree(to_function(code.script, arguments, result), code)
    return replace(code, target=names["script"], answer=result)


def compile_script(code: Code, text: str) -> CodeType:
    """The compiled script with an edited text, with the same arguments and result."""
    inner = code.target.__code__
    arguments = inner.co_varnames[: inner.co_argcount]
    assert code.script is not None
    script = replace(code.script, tree=ast.parse(text))
    tree = to_function(script, arguments, code.answer)
    if "numpy" in text:
        return _compile(tree, code.path)
    return compile(tree, code.path, "exec", dont_inherit=True)


@lru_cache(maxsize=64)
def find_blocks(source: str) -> tuple[tuple[int, int], ...]:
    """The line range of each top-level statement; statements that share a line are merged."""
    found: list[tuple[int, int]] = []
    for node in ast.parse(source).body:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        if found and first <= found[-1][1]:
            first = found.pop()[0]
        found.append((first, node.end_lineno or 0))
    return tuple(found)


def _compile(tree: ast.Module, path: str) -> CodeType:
    """The compiled tree; imports of numpy alone are replaced by torch's version of numpy."""
    nodes = [*ast.walk(tree)]
    aliases = [each for node in nodes if isinstance(node, ast.Import) for each in node.names]
    froms = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    known = (*(alias.name for alias in aliases), *(str(node.module) for node in froms))
    heads = {name.partition(".")[0] for name in known}
    is_numpy = "numpy" in heads and not heads & _FRAMEWORKS
    for alias in aliases if is_numpy else ():
        if re.match(r"numpy\b", alias.name):
            alias.name, alias.asname = f"{NUMPY}{alias.name[5:]}", alias.asname or alias.name
    for node in froms if is_numpy else ():
        node.module = re.sub(r"^numpy\b", NUMPY, str(node.module))
    return compile(tree, path, "exec", dont_inherit=True)


_FRAMEWORKS = {"torch", "jax", "tensorflow", "cupy"}


def run_tree(tree: ast.Module, code: Code) -> dict[str, Any]:
    """The globals of a file after running it; CannotRunError with the line where it stops."""
    module = ModuleType("checked_code")
    module.__file__ = path = code.path
    prelude: dict[str, Any] = {}
    exec(compile(_PRELUDE, "<prelude>", "exec"), prelude)
    module.__dict__.update({k: v for k, v in prelude.items() if not k.startswith("__")})
    sys.modules[module.__name__] = module
    folder = str(Path(path).resolve().parent)
    sys.path.append(folder)
    try:
        with _run_by_user(code):
            exec(_compile(tree, path), module.__dict__)
    finally:
        sys.path.remove(folder)
    return module.__dict__


@contextmanager
def _run_by_user(code: Code) -> Iterator[None]:
    """Turn exceptions of the user's code into CannotRunError with their line."""
    try:
        yield
    except DeriveError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's file raises
        line = find_line(error, code.path)
        at = f", {say_line(line, code.places)}" if line else ""
        raise CannotRunError(f"{code.name}{at}: {to_line(error)}", line) from error


def find_line(error: BaseException, path: str) -> int | None:
    """The innermost line of the user's file in a traceback; None if it is not there."""
    lines = [f.lineno for f in extract_tb(error.__traceback__) if f.filename == path]
    return lines[-1] if lines else None


def to_line(error: BaseException) -> str:
    """The error on one line."""
    text = " ".join(str(error).split())
    if isinstance(error, AttributeError) and f"'{NUMPY}" in text:
        return f"numpy's {error.name} has no counterpart in torch: use a function that has one"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def find_literals(code: Code) -> list[float]:
    """The numbers in the code's text and in the globals it reads: lengths, caps, thresholds."""
    found: list[float] = []
    for part in ast.walk(parse_text(code.source)):
        match part:
            case ast.Constant() | ast.UnaryOp() | ast.BinOp():
                value = fold_number(part)
            case ast.Name(name, ast.Load()):
                value = code.names.get(name)
            case _:
                continue
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found.append(value)
    return list(dict.fromkeys(found))


def has_loops(code: Code) -> bool:
    """Whether the code has loops, so that larger sizes take longer."""
    parts = ast.walk(parse_text(code.source))
    return any(isinstance(part, (ast.For, ast.While, ast.comprehension)) for part in parts)


def fold_number(part: ast.expr) -> float | None:
    """The value of a constant expression: -5, 1 << 12, 64 * 64; None for any other."""
    match part:
        case ast.Constant(int() | float() as value):
            return value
        case ast.UnaryOp(ast.USub(), operand):
            inner = fold_number(operand)
            return None if inner is None else -inner
        case ast.BinOp(left, operator, right) if type(operator) in ARITHMETIC:
            one, two = fold_number(left), fold_number(right)
            grows = isinstance(operator, (ast.Pow, ast.LShift))
            if one is None or two is None or (grows and not 0 <= two <= _MOST_SHIFT):
                return None
            with suppress(ArithmeticError, TypeError):
                found: float = ARITHMETIC[type(operator)](one, two)
                return found
    return None


_MOST_SHIFT = 64  # largest exponent or shift to fold
ARITHMETIC: dict[type[ast.operator], Any] = {
    ast.Add: add,
    ast.Sub: sub,
    ast.Mult: mul,
    ast.Div: truediv,
    ast.FloorDiv: floordiv,
    ast.Pow: pow,
    ast.LShift: lshift,
}
