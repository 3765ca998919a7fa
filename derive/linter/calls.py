"""Every einsum of a module as a `Call`: library, string, operands, as far as the text shows.

    library.einsum("ij,jk->ik", A, B)           the string first; torch takes [A, B] as well
    einops.einsum(A, B, "i j, j k -> i k")      the string last
    library.einsum(A, [0, 1], B, [1, 2], [0, 2])   sublists, read as the string ab,bc->ac

A call with an unknown string is left out, and so is a call that a test expects to fail. The last
functions find surprises in a string, and an equivalent plainer call.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product, takewhile
from string import ascii_letters

from derive.frontend.from_einsum import DOTS, Fault, Spec, Token, read_einsum, write_sublists
from derive.linter.scopes import Scope, Text, find_calls, find_dotted, find_texts

# the modules of each library that have einsums
_HOMES = {
    "torch": "torch torch.functional torch.ops.aten",
    "numpy": "numpy autograd.numpy",
    "jax": "jax.numpy",
    "opt_einsum": "opt_einsum",
    "tensorflow": "tensorflow tensorflow.linalg tensorflow.compat.v1 tensorflow.compat.v1.linalg"
    " tensorflow.compat.v2 tensorflow.compat.v2.linalg",
    "keras": "keras.ops",
    "cupy": "cupy",
    "dask": "dask.array",
    "mlx": "mlx.core",
    "paddle": "paddle",
    "einops": "einops einops.einops",
}
_LIBRARY_OF = {home: library for library, homes in _HOMES.items() for home in homes.split()}
_FUNCTIONS = {"opt_einsum": "contract contract_path contract_expression"}
_ANY_INDEX = ("opt_einsum", "jax")  # libraries with indices of any alphabet
_TAKES_LISTS = ("torch", "paddle", "")  # libraries that accept all operands in one list
_EQUATION = ("torch", "tensorflow")  # libraries with a keyword `equation`
_LONGEST_NAME = 24


@dataclass(frozen=True, slots=True)
class Call:
    """One einsum in a file; `spec` or `fault` is its string.

    `operands` is None if they are unknown; `library` is empty if the called name may belong to
    several libraries.
    """

    node: ast.Call
    library: str
    function: str
    keywords: Mapping[str, ast.expr]
    has_more_keywords: bool  # whether it has **keywords
    scope: Scope
    is_bare: bool  # whether it is a statement of its own
    text: Text | None = None
    written: str = ""  # the string, or the one that sublists stand for
    operands: tuple[ast.expr, ...] | None = None
    spec: Spec | None = None
    fault: Fault | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """A short name for each operand as written, else its number."""
        count = len(self.spec.operands) if self.spec else 0
        given = self.operands or ()
        if len(given) != count:
            return tuple(f"operand {k}" for k in range(1, count + 1))
        return tuple(_name_operand(expr, k) for k, expr in enumerate(given, 1))

    def with_string(
        self, text: Text | None, operands: tuple[ast.expr, ...] | None, found: Spec | Fault | None
    ) -> Call:
        """A copy with a string and its operands; `found` becomes its `spec` or its `fault`."""
        spec = found if isinstance(found, Spec) else None
        fault = found if isinstance(found, Fault) else None
        written = self.written if text is None else text.value
        return replace(self, text=text, written=written, operands=operands, spec=spec, fault=fault)


def read_calls(tree: ast.Module) -> Iterator[Call]:
    """The einsums of a module, in the order of their places."""
    for node, scope, is_bare in find_calls(tree):
        targets = find_dotted(node.func, scope) if node.args or node.keywords else ()
        known = sorted({found for target in targets if (found := _find_function(target))})
        if len({name == "einops" for name, _ in known}) == 1:
            library, function = known[0]
            call = Call(
                node=node,
                library=library if len(known) == len(targets) == 1 else "",
                function=function,
                keywords={k.arg: k.value for k in node.keywords if k.arg},
                has_more_keywords=any(k.arg is None for k in node.keywords),
                scope=scope,
                is_bare=is_bare,
            )
            yield from _read_strings(call, node.args, has_words=library == "einops")


def _find_function(target: str) -> tuple[str, str] | None:
    """The library and the function of a dotted name; None if it is no einsum."""
    home, _, function = target.rpartition(".")
    library = _LIBRARY_OF.get(home, "")
    names = _FUNCTIONS.get(library, "einsum einsum_path").split()
    return (library, function) if library and function in names else None


def _read_strings(call: Call, arguments: list[ast.expr], *, has_words: bool) -> Iterator[Call]:
    """Yield a call for each possible string: a keyword, or the last (einops) or first argument."""
    keyword = "pattern" if has_words else "equation" if call.library in _EQUATION else ""
    string, rest = call.keywords.get(keyword), list(arguments)
    is_named = string is not None
    if string is None and not arguments:
        return
    string = string or rest.pop(-1 if has_words else 0)
    texts = find_texts(string, call.scope)
    for text in texts:
        any_index = not has_words and (call.library in _ANY_INDEX or not call.library)
        found = read_einsum(text.value, has_words=has_words, any_index=any_index)
        yield call.with_string(text, _find_operands(call, rest, found), found)
    if not texts and has_words and not is_named:
        for text in find_texts(arguments[0], call.scope):
            says, advice = "einops takes the string last", "put it behind the tensors"
            yield call.with_string(text, None, Fault("form", says, 0, len(text.value), advice))
    elif not texts and not has_words:
        yield from _read_sublists(call, arguments)


def _find_operands(
    call: Call, rest: list[ast.expr], found: Spec | Fault
) -> tuple[ast.expr, ...] | None:
    """The operands; None if a later call gives them, or a list or star of unknown length."""
    if call.function == "contract_expression":
        return None
    if len(rest) == 1 and call.library in _TAKES_LISTS:  # perhaps the list of all operands
        (only,) = rest
        several = isinstance(found, Spec) and len(found.operands) > 1
        if isinstance(only, ast.List | ast.Tuple):
            rest = only.elts
        elif not isinstance(only, ast.Starred):
            return None if several else (only,)
    if any(isinstance(a, ast.Starred) for a in rest) or (not rest and call.has_more_keywords):
        return None
    return tuple(rest)


def _read_sublists(call: Call, given: list[ast.expr]) -> Iterator[Call]:
    """Yield the call with alternating operands and sublists, perhaps an output; else nothing."""
    has_output = len(given) % 2 == 1
    terms = [_read_sublist(each) for each in given[1::2] + ([given[-1]] if has_output else [])]
    known = [term for term in terms if term is not None]
    if len(given) < 2 or len(known) < len(terms):
        return
    if len({n for term in known for n in term if n is not None}) > len(ascii_letters):
        return
    written = write_sublists(known, has_output=has_output)
    operands = tuple(given[0 : len(given) - has_output : 2])
    yield replace(call, written=written).with_string(None, operands, read_einsum(written))


def _read_sublist(node: ast.expr) -> list[int | None] | None:
    """The numbers of a sublist, None for an ellipsis in it; None for any other expression."""
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


def _name_operand(expr: ast.expr, number: int) -> str:
    if not isinstance(expr, ast.Name | ast.Attribute | ast.Subscript):
        return f"operand {number}"
    text = ast.unparse(expr)
    return text if len(text) <= _LONGEST_NAME else f"operand {number}"


def find_remarks(spec: Spec, names: Sequence[str]) -> Iterator[str]:
    """Remarks on a string without an ellipsis, one sentence each."""
    output = spec.output_names
    if not spec.has_arrow:
        yield (
            "without -> the result has the letters that occur once, in alphabetical order:"
            f" ->{spec.write(spec.output)}"
        )
    for find in (find_diagonals, find_lone_letters, find_outer):
        yield from (each[-1] for each in find(spec, names))
    for k, (name, operand) in enumerate(zip(names, spec.names, strict=True)):
        others = {index for m, each in enumerate(spec.names) if m != k for index in each}
        lacking = [index for index in output if index not in operand]
        if set(operand) <= set(output) and others.intersection(operand) and lacking:
            yield f"{name} is repeated along {', '.join(lacking)}"
    if len(spec.operands) > 2:
        yield (
            f"torch.einsum looks for the order of {len(spec.operands)} operands at every call;"
            " the steps here are in pairs"
        )


def find_diagonals(spec: Spec, names: Sequence[str]) -> Iterator[tuple[Token, str]]:
    """Yield pairs (repeated index, effect in words), for each operand that repeats one."""
    for name, operand in zip(names, spec.operands, strict=True):
        for place, token in enumerate(operand):
            if sum(before.name == token.name for before in operand[:place]) == 1:
                says = f"{name}: the repeated {token.name} takes the diagonal of"
                yield token, f"{says} {spec.write(operand)}"


def find_lone_letters(spec: Spec, names: Sequence[str]) -> Iterator[tuple[Token, str, str]]:
    """The indices that are summed in one operand only, with its name and the effect in words."""
    for k, (name, operand) in enumerate(zip(names, spec.operands, strict=True)):
        others = {n for m, each in enumerate(spec.names) if m != k for n in each}
        where = f"in {name} alone and " if len(names) > 1 else ""
        for token in {each.name: each for each in operand if each.name != DOTS}.values():
            if token.name not in others and token.name not in spec.output_names:
                says = f"{token.name} is {where}not in the result: {name} is added up over it"
                yield token, name, says


def find_outer(spec: Spec, names: Sequence[str]) -> Iterator[tuple[tuple[Token, ...], str]]:
    """Yield pairs (operand without a letter of the others, effect in words)."""
    own = [{token.name for token in operand} for operand in spec.operands]
    for k, (name, operand) in enumerate(zip(names, spec.operands, strict=True)):
        others = set().union(*own[:k], *own[k + 1 :])
        if own[k] and others and not own[k] & others:
            yield operand, f"{name} shares no letter with the rest: an outer product"


def find_plain(spec: Spec, names: Sequence[str]) -> str:
    """An equivalent call without einsum; "" if there is no simple one.

    An ellipsis counts as one index, the first.
    """
    operands, output = ["".join(o) for o in spec.names], "".join(spec.output_names)
    if spec.has_dots:
        *operands, output = (f".{part}" for part in (*operands, output))
    match operands:
        case [operand]:
            return _find_single(operand, output, names[0])
        case [first, second] if not any(map(_has_twice, operands)):
            given = (first, second, output, names[0], names[1])
            return _find_matmul(*given) or _find_product(*given)
    return ""


def _has_twice(operand: str) -> bool:
    return len(set(operand)) < len(operand)


def _find_single(operand: str, output: str, name: str) -> str:
    """A call for one operand: itself, a diagonal, a trace, a sum, a transposition; or ""."""
    if len(operand) == 2 and len(set(operand)) == 1:
        return f"torch.diagonal({name})" if output else f"torch.trace({name})"
    if _has_twice(operand):
        return ""
    kept = "".join(index for index in operand if index in output)
    summed = _sum(name, operand, kept)
    if kept == output:
        return summed
    order = ", ".join(str(kept.index(index)) for index in output)
    return f"{summed}.T" if len(kept) == 2 else f"{summed}.permute({order})"


def _find_product(first: str, second: str, output: str, one: str, other: str) -> str:
    """A call for two operands: an elementwise product, perhaps summed, or an outer one; or ""."""
    long, short = (first, second) if len(first) >= len(second) else (second, first)
    if long.endswith(short):
        kept = "".join(index for index in long if index in output)
        if kept != output:
            return ""
        return f"{one} * {other}" if kept == long else _sum(f"({one} * {other})", long, kept)
    if len(first) == len(second) == 1 and output == first + second:
        return f"torch.outer({one}, {other})"
    return ""


def _find_matmul(first: str, second: str, output: str, one: str, other: str) -> str:
    """A matrix product over one index, perhaps with batch indices in front; or ""."""
    rows = zip(first, second, output, strict=False)
    lead = len([*takewhile(lambda each: len({*each}) == 1, rows)])
    left, right, output = first[lead:], second[lead:], output[lead:]
    over = "".join(index for index in left if index in right)
    ranks = len(left), len(right)
    is_sum = len(over) == 1 and over not in output and {*left, *right} == {*output, over}
    if not is_sum or (lead and ranks != (2, 2)):
        return ""
    if ranks == (1, 2) and right[1] == over:
        return f"{other} @ {one}"
    lefts = [(left, one), *([(left[::-1], f"{one}.mT")] if ranks == (2, 2) else [])]
    turns = ranks[0] > 1 and ranks[1] == 2
    rights = [(right, other), *([(right[::-1], f"{other}.mT")] if turns else [])]
    for (left, a), (right, b) in product(lefts, rights):
        if left[-1] == right[0] and len(right) < 3:
            if left[:-1] + right[1:] == output:
                return f"{a} @ {b}"
            if ranks == (2, 2) and right[1] + left[0] == output:
                return f"({a} @ {b}).mT"
    return ""


def _sum(name: str, indices: str, kept: str) -> str:
    """The call that sums all indices except the kept ones; the name itself if it keeps all."""
    places = [str(k) for k, index in enumerate(indices) if index not in kept]
    if not places:
        return name
    if not kept:
        return f"{name}.sum()"
    return f"{name}.sum({places[0]})" if len(places) == 1 else f"{name}.sum(({', '.join(places)}))"
