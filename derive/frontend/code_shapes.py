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


def find_shapes(source: str, name: str, arguments: Sequence[str]) -> dict[str, str]:
    """The declarations `q[B, S, D]` of the arguments whose shapes are told; others are absent."""
    function = _find_function(source, name)
    if function is None:
        return {}
    told = _read_annotations(function)
    text = "\n".join(_list_words(source, function))
    for argument in arguments:
        if argument not in told:
            shape = _find_in_words(text, argument)
            if shape is not None:
                told[argument] = f"{argument}[{shape}]"
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


def _read_annotations(function: ast.FunctionDef) -> dict[str, str]:
    """`Float[Tensor, "b s d"]`, the letters as names of sizes."""
    told = {}
    for argument in (*function.args.args, *function.args.kwonlyargs):
        match argument.annotation:
            case ast.Subscript(
                value=ast.Name(kind) | ast.Attribute(attr=kind),
                slice=ast.Tuple(elts=[_, ast.Constant(str(shape))]),
            ):
                sizes = shape.split()
                if sizes and all(_SIZE.fullmatch(size) for size in sizes):
                    told[argument.arg] = f"{_KINDS.get(kind, '')}{argument.arg}[{_join(sizes)}]"
    return told


def _list_words(source: str, function: ast.FunctionDef) -> list[str]:
    """The docstring, and the comments from the head on."""
    lines = source.splitlines()[function.lineno - 1 : function.end_lineno]
    comments = [line.partition("#")[2] for line in lines if "#" in line]
    return [ast.get_docstring(function) or "", *comments]


def _find_in_words(text: str, argument: str) -> str | None:
    between = r"[^\w\n\[(]*(?:of shape|shape|is|Tensor|tensor|float|bool|int|[:=(,\s])*\s*"
    found = re.search(rf"(?<!\w){re.escape(argument)}(?!\w){between}[\[(]([^\[\]()]*)[\])]", text)
    if found is None:
        return None
    sizes = [size.strip() for size in found[1].split(",") if size.strip()]
    return _join(sizes) if sizes and all(_SIZE.fullmatch(size) for size in sizes) else None


def _join(sizes: Sequence[str]) -> str:
    """Sizes are written large: small letters are those of indices."""
    return ", ".join(size[0].upper() + size[1:] for size in sizes)
