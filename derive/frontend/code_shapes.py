"""The shapes of a function's arguments, as its own text tells them.

def attend(q, k):  # q: (B, S, D), k: (B, T, D)         a comment
\"\"\"q [B, S, D] the queries\"\"\"                            a docstring
def attend(q: Float[Tensor, "b s d"])                     an annotation in the jaxtyping form
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_SIZE = re.compile(r"[A-Za-z]\w*|\d+")
_KINDS = {"Int": "int ", "Bool": "bool "}
_NO_SIZES = frozenset(("Tensor", "Optional", "None", "True", "False", "Any"))
_TOLD = re.compile(
    r"(?<![\w.])(\w+(?:\s*,\s*\w+)*)"  # the names, one or several
    r"\s*(?:\([A-Za-z. ]*\))?\s*"  # a type, as in `x (Tensor): ..`
    r"(?:(?:of|with|has|shape|tensor|Tensor|float|bool)\b\s*|[:=]\s*(?:[^\[\]()\n]*?\s)?)*"
    r"[\[(]([^\[\]()]*)[\])]"
)


def find_shapes(source: str, name: str, arguments: Sequence[str]) -> dict[str, str]:
    """The declarations `q[B, S, D]` of the arguments whose shapes are told; others are absent."""
    function = _find_function(source, name)
    if function is None:
        return {}
    told = {**_read_words(source, function), **_read_annotations(function)}
    return {argument: told[argument] for argument in arguments if argument in told}


def _find_function(source: str, name: str) -> ast.FunctionDef | None:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    return None


def _list_arguments(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _read_annotations(function: ast.FunctionDef) -> dict[str, str]:
    """`Float[Tensor, "b s d"]` and `"(B, S, D)"`, the letters as names of sizes."""
    told = {}
    for argument in _list_arguments(function):
        kind, shape = "", ""
        match argument.annotation:
            case ast.Subscript(
                value=ast.Name(word) | ast.Attribute(attr=word),
                slice=ast.Tuple(elts=[_, ast.Constant(str(shape))]),
            ):
                kind = _KINDS.get(word, "")
            case ast.Constant(str(shape)):
                pass
        sizes = _split(re.sub(r"[\[\](),]", " ", shape).split())
        if sizes:
            told[argument.arg] = f"{kind}{argument.arg}[{sizes}]"
    return told


def _read_words(source: str, function: ast.FunctionDef) -> dict[str, str]:
    """What the docstring and the comments say; a comment beside an argument is about it."""
    known = [argument.arg for argument in _list_arguments(function)]
    lines = source.splitlines()
    words = (ast.get_docstring(function) or "").splitlines()
    for argument in _list_arguments(function):
        comment = lines[argument.lineno - 1].partition("#")[2].strip()
        if comment.startswith(("(", "[")):
            words.append(f"{argument.arg}: {comment}")
    own = lines[function.lineno - 1 : function.end_lineno]
    words += [line.partition("#")[2] for line in own if "#" in line]
    told: dict[str, str] = {}
    for line in words:
        for names, shape in _TOLD.findall(line):
            sizes = _split([size.strip() for size in shape.split(",")])
            kind = "bool " if re.search(r"\bbool\b", line) else ""
            for name in re.split(r"\s*,\s*", names) if sizes else ():
                if name in known:
                    told.setdefault(name, f"{kind}{name}[{sizes}]")
    return told


def _split(sizes: Sequence[str]) -> str:
    """Sizes in the notation, large: small letters are those of indices. "" for other words."""
    if not sizes or not all(_SIZE.fullmatch(size) for size in sizes):
        return ""
    if any(size in _NO_SIZES for size in sizes) or all(size.isdigit() for size in sizes):
        return ""
    if len(sizes) == 1 and len(sizes[0]) > 2 and sizes[0][0].islower():
        return ""  # a word in brackets
    return ", ".join(size[0].upper() + size[1:] for size in sizes)
