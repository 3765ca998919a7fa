"""Every einsum of a module as a `Call`: library, string, operands, as far as the text tells.

    library.einsum("ij,jk->ik", A, B)           the string first; torch takes [A, B] as well
    einops.einsum(A, B, "i j, j k -> i k")      the string last
    library.einsum(A, [0, 1], B, [1, 2], [0, 2])   sublists, read as the string ab,bc->ac
    rearrange(x, "b (h d) -> b h d", h=8)       a pattern, see patterns.py
    partial(library.einsum, "ij,jk->ik")        the operands come later

A call whose string is not known is no `Call`; nor is one that a test expects to fail.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from string import ascii_letters
from typing import TYPE_CHECKING

from derive.linter.literals import Text, find_texts
from derive.linter.patterns import find_fault
from derive.linter.scopes import find_calls, find_dotted
from derive.linter.spec import DOTS, Fault, Spec, read_letters, read_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from derive.linter.scopes import Scope, Seen

    # what a string may be written as, without einsum; the names are those of its operands
    FindPlain = Callable[[str, tuple[str, ...]], str]

# The functions that take a string and operands, by their full names.
_EINSUMS = {
    "torch.einsum": "torch",
    "torch.functional.einsum": "torch",
    "torch.ops.aten.einsum": "torch",
    "numpy.einsum": "numpy",
    "numpy.einsum_path": "numpy",
    "jax.numpy.einsum": "jax",
    "jax.numpy.einsum_path": "jax",
    "opt_einsum.contract": "opt_einsum",
    "opt_einsum.contract_path": "opt_einsum",
    "opt_einsum.contract_expression": "opt_einsum",
    "tensorflow.einsum": "tensorflow",
    "tensorflow.linalg.einsum": "tensorflow",
    "keras.ops.einsum": "keras",
    "cupy.einsum": "cupy",
    "dask.array.einsum": "dask",
    "mlx.core.einsum": "mlx",
    "paddle.einsum": "paddle",
    "autograd.numpy.einsum": "numpy",
    "einops.einsum": "einops",
    "einops.einops.einsum": "einops",
}
_PATTERNS = ("rearrange", "reduce", "repeat")
_ANY_LETTER = ("opt_einsum", "jax")  # libraries that take every alphabet
_TAKES_LISTS = ("torch", "paddle", "")  # all operands may come in one argument
_STRING_KEYWORDS = {"einops": "pattern", "torch": "equation", "tensorflow": "equation"}
_LONGEST_NAME = 24


@dataclass(frozen=True, slots=True)
class Call:
    """One einsum in a file; `spec` or `fault`, whichever the string gives, neither for a pattern.

    `operands` is None where it is not known which they are; `library` is empty where the called
    name may be of several.
    """

    node: ast.Call
    library: str
    function: str
    text: Text | None
    written: str
    operands: tuple[ast.expr, ...] | None
    keywords: Mapping[str, ast.expr]
    has_more_keywords: bool
    scope: Scope
    is_bare: bool
    find_plain: FindPlain
    spec: Spec | None = None
    fault: Fault | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each operand: as it is written, where that is short, else its number."""
        count = len(self.spec.operands) if self.spec else 0
        given = self.operands or ()
        if len(given) != count:
            return tuple(f"operand {k}" for k in range(1, count + 1))
        return tuple(_name(expr, k) for k, expr in enumerate(given, 1))


def read_calls(tree: ast.Module, find_plain: FindPlain) -> Iterator[Call]:
    """The einsums of a module, in the order of their places."""
    for seen in find_calls(tree):
        if seen.is_expected_to_fail or not (seen.node.args or seen.node.keywords):
            continue
        yield from _read(seen, find_plain)


def is_atom(expr: ast.expr) -> bool:
    """Whether the expression binds tighter than any operator."""
    return isinstance(expr, ast.Name | ast.Attribute | ast.Subscript | ast.Call)


def _read(seen: Seen, find_plain: FindPlain) -> Iterator[Call]:
    targets = find_dotted(seen.node.func, seen.scope)
    arguments = list(seen.node.args)
    is_whole = True
    if targets & {"functools.partial"} and arguments:
        targets, is_whole = find_dotted(arguments[0], seen.scope), False
        arguments = arguments[1:]
    known = sorted({found for target in targets if (found := _find_function(target))})
    if not known:
        return
    library, function = known[0]
    kinds = {(name == "einops", what in _PATTERNS) for name, what in known}
    if len(kinds) > 1:
        return
    asked = _Asked(
        seen=seen,
        arguments=arguments,
        library=library if len(known) == len(targets) == 1 else "",
        function=function,
        is_einops=library == "einops",
        is_whole=is_whole,
        keywords={k.arg: k.value for k in seen.node.keywords if k.arg},
        find_plain=find_plain,
    )
    yield from _read_pattern(asked) if function in _PATTERNS else _read_einsum(asked)


def _find_function(target: str) -> tuple[str, str] | None:
    """The library and the function of a dotted name, if it is one of ours."""
    for start in ("tensorflow.compat.v1.", "tensorflow.compat.v2."):
        target = target.replace(start, "tensorflow.", 1)
    home, _, last = target.rpartition(".")
    if target in _EINSUMS:
        return _EINSUMS[target], last
    if home in {"einops", "einops.einops", "einops.array_api"} and last in _PATTERNS:
        return "einops", last
    if home.startswith("einops.layers.") and last in {"Rearrange", "Reduce"}:
        return "einops", last.lower()
    return None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call of a known function, its string not yet found."""

    seen: Seen
    arguments: list[ast.expr]
    library: str
    function: str
    is_einops: bool
    is_whole: bool
    keywords: Mapping[str, ast.expr]
    find_plain: FindPlain

    def to_call(
        self,
        text: Text | None,
        written: str,
        operands: tuple[ast.expr, ...] | None,
        read: Spec | Fault | None,
    ) -> Call:
        return Call(
            node=self.seen.node,
            library=self.library,
            function=self.function,
            text=text,
            written=written,
            operands=operands,
            keywords=self.keywords,
            has_more_keywords=any(k.arg is None for k in self.seen.node.keywords),
            scope=self.seen.scope,
            is_bare=self.seen.is_bare,
            find_plain=self.find_plain,
            spec=read if isinstance(read, Spec) else None,
            fault=read if isinstance(read, Fault) else None,
        )


def _read_einsum(asked: _Asked) -> Iterator[Call]:
    keyword = _STRING_KEYWORDS.get("einops" if asked.is_einops else asked.library, "")
    arguments = asked.arguments
    if keyword and keyword in asked.keywords:
        string, rest = asked.keywords[keyword], arguments
    elif not arguments:
        return
    elif asked.is_einops:
        string, rest = arguments[-1], arguments[:-1]
    else:
        string, rest = arguments[0], arguments[1:]
    texts = find_texts(string, asked.seen.scope)
    if asked.is_einops and not texts and keyword not in asked.keywords:
        for text in find_texts(arguments[0], asked.seen.scope):
            end, advice = len(text.value), "put it behind the tensors"
            fault = Fault("invalid-string", "einops takes the string last", 0, end, advice)
            yield asked.to_call(text, text.value, None, fault)
    if not texts and not asked.is_einops:
        yield from _read_sublists(asked)
    operands = _find_operands(rest, asked)
    for text in texts:
        if asked.is_einops:
            read = read_words(text.value)
        else:
            read = read_letters(text.value, asked.library in _ANY_LETTER or not asked.library)
        yield asked.to_call(text, text.value, _settle(operands, rest, read, asked), read)


def _read_pattern(asked: _Asked) -> Iterator[Call]:
    given = asked.arguments
    is_layer = isinstance(asked.seen.node.func, ast.Attribute | ast.Name) and any(
        name.rpartition(".")[2] in {"Rearrange", "Reduce"}
        for name in find_dotted(asked.seen.node.func, asked.seen.scope)
    )
    place = 0 if is_layer or not asked.is_whole else 1
    string = given[place] if len(given) > place else asked.keywords.get("pattern")
    if string is None or any(isinstance(a, ast.Starred) for a in given[: place + 1]):
        return
    operands = None if place == 0 else (given[0],) if given else None
    has_more = any(k.arg is None for k in asked.seen.node.keywords) or not asked.is_whole
    sizes = dict(asked.keywords)
    if is_layer:  # those of flax take their sizes in one argument
        count = 2 if asked.function == "reduce" else 1
        has_more = has_more or len(given) > count or sizes.pop("sizes", None) is not None
    for text in find_texts(string, asked.seen.scope):
        fault = find_fault(text.value, asked.function, tuple(sizes), has_more)
        yield asked.to_call(text, text.value, operands, fault)


def _find_operands(rest: list[ast.expr], asked: _Asked) -> tuple[ast.expr, ...] | None:
    """The operands one by one; None where they come later, or in something that holds them."""
    if not asked.is_whole or asked.function == "contract_expression":
        return None
    if len(rest) == 1 and asked.library in _TAKES_LISTS:
        # they may all be in one argument
        (only,) = rest
        if isinstance(only, ast.List | ast.Tuple):
            rest = only.elts
        elif not isinstance(only, ast.Starred):
            return (only,)
    if any(isinstance(a, ast.Starred) for a in rest):
        return None
    if not rest and any(k.arg is None for k in asked.seen.node.keywords):
        return None
    return tuple(rest)


def _settle(
    operands: tuple[ast.expr, ...] | None,
    rest: list[ast.expr],
    read: Spec | Fault,
    asked: _Asked,
) -> tuple[ast.expr, ...] | None:
    """The operands, unless a lone argument may be the list of several."""
    is_lone = operands is not None and len(operands) == len(rest) == 1 and operands[0] is rest[0]
    several = isinstance(read, Spec) and len(read.operands) > 1
    return None if is_lone and several and asked.library in _TAKES_LISTS else operands


def _read_sublists(asked: _Asked) -> Iterator[Call]:
    """Operands and sublists by turns, perhaps an output behind them."""
    given = asked.arguments
    lists = given[1::2] + ([given[-1]] if len(given) % 2 else [])
    if len(given) < 2 or asked.is_whole is False:
        return
    terms = [_read_sublist(a) for a in lists]
    if any(term is None for term in terms):
        return
    numbers = sorted({n for term in terms for n in term or () if n is not None})
    if len(numbers) > len(ascii_letters):
        return
    letters = dict(zip(numbers, ascii_letters, strict=False))
    words = ["".join(DOTS if n is None else letters[n] for n in term or ()) for term in terms]
    has_output = len(given) % 2 == 1
    written = ",".join(words[:-1] if has_output else words)
    written += f"->{words[-1]}" if has_output else ""
    operands = tuple(given[0 : len(given) - has_output : 2])
    yield asked.to_call(None, written, operands, read_letters(written))


def _read_sublist(node: ast.expr) -> list[int | None] | None:
    """The numbers of a sublist, None for an ellipsis."""
    if not isinstance(node, ast.List | ast.Tuple):
        return None
    found: list[int | None] = []
    for element in node.elts:
        match element:
            case ast.Constant(value=bool()):
                return None
            case ast.Constant(value=int(number)):
                found.append(number)
            case ast.Constant(value=value) if value is ...:
                found.append(None)
            case _:
                return None
    return found


def _name(expr: ast.expr, number: int) -> str:
    if not isinstance(expr, ast.Name | ast.Attribute | ast.Subscript):
        return f"operand {number}"
    text = ast.unparse(expr)
    return text if len(text) <= _LONGEST_NAME else f"operand {number}"
