"""The right side of an equation: from Python's syntax tree to SymPy, unevaluated.

    number    = arithmetic | name | access | call | [condition]
    condition = comparison, chained or not | and | or | not | True | False
              | access of a Boolean tensor
    access    = tensor[number, ...]
    call      = function(number, ...) | where(condition, number, number)
              | word[index, ..., condition](number)
              | det[rows, columns](number) | logdet, inverse, cholesky of the same form
              | solve[rows, columns](number, number)

The number after the bracket is the entry of a square matrix in a row and a column. `inverse[i, j]`
is the entry of the inverse in row i and column j, so sum[j](A[i, j] * Y[j, k]) = [i == k] of
Y[i, j] = inverse[i, j](A[i, j]); `cholesky[i, j]` that of the lower triangle. Both keep their two
indices, `det` and `logdet` bind them. `solve[i, j](A[i, j], b[i])` is the x[j] of
sum[j](A[i, j] * x[j]) = b[i], `solve[i, j](A[i, j], b[j])` the same x numbered by i.

A user's function is inlined at each call. An index bound inside its own scope is refused.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from string import ascii_lowercase
from typing import Any

from sympy import And, Idx, Not, Or, S, expand

from derive.analysis.names import to_article
from derive.errors import DeriveError, suggest
from derive.frontend.names import Claim, Extents, Span
from derive.frontend.text import build, lines, tokens
from derive.frontend.text.build import BINDING, ELEMENTWISE, KEEPING, is_matrix
from derive.ir.definitions import RELATIONS
from derive.ir.functions import FUNCTIONS
from derive.ir.text import to_count
from derive.notation import words
from derive.notation.words import CONSTANTS, BooleanElement

FUNCTION_WORDS = (*ELEMENTWISE, "where", *BINDING, *KEEPING)
_OTHER = {"ln": "log", "pow": "**"}
_ORDERING = {"sort", "argsort", "median", "quantile", "topk", "kthvalue", "mode"}
MOST_NAMES = 16  # most names that a message lists


@dataclass
class Names:
    """The names of one text in order of appearance: their claims (kinds), and their meanings."""

    source: tokens.Source
    claims: dict[str, Claim] = field(default_factory=dict)
    arguments: dict[str, Any] = field(default_factory=dict)  # name: IndexedBase or Symbol
    defaults: dict[str, Any] = field(default_factory=dict)  # scalar: exact number or None
    domains: dict[str, Any] = field(default_factory=dict)  # tensors with the bounds of scalars
    sizes: dict[str, int | None] = field(default_factory=dict)  # sizes on size lines
    shapes: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # shapes of declared tensors
    ranges: dict[str, Any] = field(default_factory=dict)  # index: the extent its line gives
    functions: dict[str, lines.Line] = field(default_factory=dict)
    equations: dict[str, list[lines.Line]] = field(default_factory=dict)
    bases: dict[str, Any] = field(default_factory=dict)
    extents: Extents = field(default_factory=lambda: Extents({}, {}, {}, ()))

    def kind(self, name: str) -> str:
        """The kind of the name; "" if it is free."""
        return self.claims[name].kind if name in self.claims else ""

    def claim(self, name: str, kind: str, how: str, place: Span | None = None) -> None:
        """Record a name's kind, with `how` it has it, for errors; DeriveError if it has another."""
        known = self.claims.setdefault(name, Claim(kind, how, place))
        if known.kind != kind:
            one, other = to_article(known.kind), to_article(kind)
            raise self.source.refuse(
                "name-clash",
                f"{name} is {one} and {other}",
                known.span,
                place,
                facts=[f"{name} is {one}: {known.how}", f"{name} is {other}: {how}"],
                help="give one of them another name",
            )

    def index(self, name: str, place: tuple[int, int]) -> Any:
        """Return the index of this name; DeriveError at `place` if its extent is unknown."""
        if name in self.extents.known:
            return build.to_index(name, self.extents.known[name])
        sizes = ", ".join(n for n, claim in self.claims.items() if claim.kind == "size")
        advice = f"say how far it runs: index {name} < .., with the extent that is meant"
        advice += f", {sizes}" if sizes else ""
        found = (n for n, claim in self.claims.items() if claim.kind == "index" and n != name)
        others = [n for n in found if n not in self.extents.known]
        raise self.source.refuse(
            "extent-unknown",
            f"the extent of index {name} is unknown",
            place,
            facts=[
                f"{name} never stands alone in a place of a tensor whose shape is known",
                *([f"unknown too: the extent of {', '.join(others)}"] if others else []),
            ],
            help=advice,
        )


@dataclass(frozen=True)
class Scope:
    """The context in which a node of an equation is translated."""

    names: Names
    bound: Mapping[str, tuple[int, int]]  # indices in scope, and the position that binds each
    moved: Mapping[str, Any] = field(default_factory=dict)  # t + 1 for t, in a recurrence
    parameters: Mapping[str, Any] = field(default_factory=dict)  # of an inlined function: arguments
    # functions being inlined, and the spans of their calls
    calls: tuple[tuple[str, tuple[int, int]], ...] = ()
    depth: int = 0
    measures: dict[Any, tuple[int, int]] = field(default_factory=dict)  # expression: depth, nodes

    def refuse(self, code: str, says: str, *nodes: ast.expr, **more: Any) -> DeriveError:
        """Return an error that marks these nodes, and the call of the function being inlined."""
        places = [lines.span(node) for node in nodes] + [place for _, place in self.calls[-1:]]
        return self.names.source.refuse(code, says, *places, **more)


def find_rank(names: Names, name: str) -> int:
    """Return the number of places of a tensor, as declared or in its first equation."""
    if name in names.shapes:
        return len(names.shapes[name])
    return len(names.equations[name][0].places or ())


def check_count(call: lines.Call, node: ast.expr, scope: Scope, fewest: int, most: int) -> None:
    """Raise DeriveError for a call with fewer or more arguments than allowed."""
    given = len(call.arguments)
    starred = any(isinstance(argument, ast.Starred) for argument in call.arguments)
    if fewest <= given <= most and not starred:
        return
    wanted = to_count(fewest, "argument") if fewest == most else f"{fewest} to {most} arguments"
    says = f"{call.word} takes {wanted}, not {given}"
    raise scope.refuse("argument-count", says, node, help=f"write {_write_call(call.word, scope)}")


def _write_call(word: str, scope: Scope) -> str:
    """Return an example of a function's call."""
    if word in scope.names.functions:
        parameters = [token.text for token in scope.names.functions[word].parameters]
        return f"{word}({', '.join(parameters)})"
    if is_matrix(word):
        return f"{word}[i, j](A[i, j]{', b[i]' if word == 'solve' else ''})"
    if word in {*BINDING, *KEEPING}:
        return f"{word}[j](x[j])"
    row = FUNCTIONS.get(word)
    if row is not None:
        return f"{word}({'a, b' if row.is_variadic else ', '.join(row.tensors)})"
    return f"{word}({'i, j' if word == 'delta' else 'condition, a, b'})"


def check_free(index: ast.Name, scope: Scope, bound: Mapping[str, Any]) -> None:
    """Raise DeriveError for an index that is bound inside its own scope."""
    if index.id not in bound:
        return
    later = ascii_lowercase.partition(index.id)[2] + ascii_lowercase
    fresh = next((letter for letter in later if letter not in scope.names.claims), f"{index.id}_2")
    raise scope.names.source.refuse(
        "index-bound-again",
        f"index {index.id} is bound again where it already has a meaning",
        lines.span(index),
        bound[index.id],
        *(place for _, place in scope.calls[-1:]),
        help=f"take a fresh name here, {fresh}",
    )


def refuse_unknown_name(name: str, node: ast.expr, scope: Scope) -> DeriveError:
    """Return the error of an undeclared name."""
    known = [n for n, claim in scope.names.claims.items() if claim.kind != "function"]
    if name in FUNCTION_WORDS:
        says, advice = f"{name} is a function and needs its arguments", f"write {name}(..)"
        return scope.refuse("function-bare", says, node, help=advice)
    return scope.refuse(
        "unknown-name",
        f"{name} is not declared",
        node,
        facts=_list_known("known are", known),
        help=suggest(name, [*known, *scope.parameters, *CONSTANTS])
        or f"declare it: scalar {name} for a number, size {name} for a size",
    )


def _list_known(says: str, known: list[str]) -> tuple[str, ...]:
    """Return the fact that lists known names, at most MOST_NAMES; () if there are none."""
    more = ", .." if len(known) > MOST_NAMES else ""
    return (f"{says} {', '.join(known[:MOST_NAMES])}{more}",) if known else ()


def refuse_no_tensor(
    name: str, places: tuple[ast.expr, ...], node: ast.expr, scope: Scope
) -> DeriveError:
    """Return the error of a name with places that is no tensor."""
    names = scope.names
    kind = names.kind(name)
    if kind:
        says = f"{name} is {to_article(kind)} and has no places"
        places_of = (lines.span(node), names.claims[name].span)
        return names.source.refuse("not-a-tensor", says, *places_of, help=f"write {name} alone")
    if name in FUNCTION_WORDS:
        advice = f"write {name}[j](..)" if name in {*BINDING, *KEEPING} else f"write {name}(..)"
        return scope.refuse("function-bare", f"{name} needs its arguments", node, help=advice)
    known = [n for n, claim in names.claims.items() if claim.kind == "tensor"]
    written = ", ".join(".." for _ in places)
    return scope.refuse(
        "unknown-name",
        f"{name} is not declared",
        node,
        facts=_list_known("tensors are", known),
        help=suggest(name, known) or f"declare it: {name}[{written}]",
    )


def refuse_unknown_function(call: lines.Call, node: ast.expr, scope: Scope) -> DeriveError:
    """Return the error of an unknown function, or of a call in the wrong form."""
    word, names = call.word, scope.names
    if call.brackets is not None and word in {*ELEMENTWISE, "where", *names.functions}:
        says, advice = f"{word} binds no index", f"write {word}(..)"
        return scope.refuse("function-form", says, node, help=advice)
    if word in {*BINDING, *KEEPING}:
        says, advice = f"{word} must name its index", f"write {word}[j](..)"
        return scope.refuse("reduction-form", says, node, help=advice)
    if word in scope.parameters or names.kind(word):
        kind = "parameter" if word in scope.parameters else names.kind(word)
        says = f"{word} is {to_article(kind)} and cannot be called"
        advice = f"write {word}[..]" if kind == "tensor" else f"write {word} * (..)"
        return scope.refuse("not-a-function", says, node, help=advice)
    known = [*FUNCTION_WORDS, *names.functions]
    advice = f"write {_OTHER[word]}" if word in _OTHER else suggest(word, known)
    if word in _ORDERING:
        advice = f"nothing puts elements in order: declare what {word} gives as a tensor"
    return scope.refuse(
        "unknown-function",
        f"there is no function {word}",
        call.name,
        help=advice or f"define it on a line before: {word}(x) = ..",
    )


def refuse_syntax(node: ast.expr, scope: Scope) -> DeriveError:
    """Return the error of Python syntax outside the notation."""
    advice = {
        ast.Tuple: "write one expression, without commas",
        ast.List: "an Iverson bracket holds one condition: [i == j and m[i]]",
        ast.Call: "write * between two factors",
        ast.Compare: "compare with < <= > >= == !=",
    }.get(type(node), "")
    return scope.refuse("not-notation", "this is no part of the notation", node, help=advice)


DEEPEST = 60  # levels of one expression, inlined functions included
LONGEST_ADVICE = 60  # characters of the text quoted in an advice
LARGEST = 50_000  # most nodes of an expression, beside TYPED for each character of the text
TYPED = 10  # an index has several nodes: its range


def to_number(node: ast.expr, scope: Scope) -> Any:
    """Return the value of a node that must be a number; DeriveError for a condition."""
    value = to_value(node, scope)
    if not build.is_condition(value):
        return value
    start, end = lines.span(node)
    written = " ".join(scope.names.source.text[start:end].split())
    raise scope.refuse(
        "condition-as-number",
        "a truth value stands where a number is needed",
        node,
        help=f"write [{written if len(written) <= LONGEST_ADVICE else '..'}] for 1 or 0",
    )


def to_condition(node: ast.expr, scope: Scope) -> Any:
    """Return the value of a node that must be a condition; DeriveError for a number."""
    value = to_value(node, scope)
    if build.is_condition(value):
        return value
    says = "a number stands where a condition is needed"
    advice = "compare it, x[i] > 0, or declare a tensor of truth values: bool m[B, S]"
    raise scope.refuse("mask-not-boolean", says, node, help=advice)


def to_value(node: ast.expr, scope: Scope) -> Any:
    """Return the SymPy value of a node, a number or a condition; DeriveError if it is too deep."""
    scope = replace(scope, depth=scope.depth + 1)
    if scope.depth > DEEPEST:
        raise lines.refuse_depth_at(scope.names.source, *lines.span(node))
    value = _translate(node, scope)
    _measure(value, node, scope)
    return value


def _translate(node: ast.expr, scope: Scope) -> Any:
    if build.is_arithmetic(node):
        return build.read_arithmetic(scope.names.source, node, lambda part: to_number(part, scope))
    call = lines.match_call(node)
    if call is not None:
        return _read_call(call, node, scope)
    match node:
        case ast.Name(name):
            return _read_name(name, node, scope)
        case ast.Constant(bool() as value):
            return S.true if value else S.false
        case ast.Subscript(ast.Name(name), bracket):
            return _read_access(name, lines.read_elements(bracket), node, scope)
        case ast.List([condition]):
            return words.choose(to_condition(condition, scope), S.One, S.Zero)
        case ast.Compare():
            sides = [to_number(side, scope) for side in (node.left, *node.comparators)]
            parts = []
            for op, (left, right) in zip(node.ops, pairwise(sides), strict=True):
                if type(op) not in RELATIONS:
                    raise refuse_syntax(node, scope)
                parts.append(words.compare(RELATIONS[type(op)], left, right))
            return build.join_conditions(And, parts)
        case ast.BoolOp(op, parts):
            kind = And if isinstance(op, ast.And) else Or
            return build.join_conditions(kind, [to_condition(part, scope) for part in parts])
        case ast.UnaryOp(ast.Not(), part):
            return Not(to_condition(part, scope), evaluate=False)
        case _:
            raise refuse_syntax(node, scope)


def _measure(value: Any, node: ast.expr, scope: Scope) -> None:
    """Raise DeriveError for an expression that inlined functions make too large."""
    known = scope.measures
    pending = [value]
    while pending:
        here = pending[-1]
        inside = [part for part in here.args if part not in known]
        if here in known or not inside:
            pending.pop()
            parts = [known[part] for part in here.args]
            depth = 1 + max((d for d, _ in parts), default=0)
            known[here] = (depth, 1 + sum(n for _, n in parts))
            continue
        pending += inside
    depth, nodes = known[value]
    source = scope.names.source
    if depth > 2 * DEEPEST or nodes > LARGEST + TYPED * len(source.text):
        raise lines.refuse_depth_at(source, *lines.span(node))


def _read_name(name: str, node: ast.expr, scope: Scope) -> Any:
    names = scope.names
    if name in scope.parameters:
        return scope.parameters[name]
    match names.kind(name):
        case "size":
            return build.to_size(name)
        case "scalar":
            return names.arguments[name]
        case "index":
            moved = scope.moved.get(name)
            return scope.names.index(name, lines.span(node)) if moved is None else moved
        case "tensor" if name not in CONSTANTS:
            return _read_bare(name, node, scope)
        case "function":
            says, advice = f"{name} is a function and needs its arguments", _write_call(name, scope)
            raise scope.refuse("function-bare", says, node, help=f"write {advice}")
        case _ if name in CONSTANTS:
            return CONSTANTS[name]
        case _:
            raise refuse_unknown_name(name, node, scope)


def _read_bare(name: str, node: ast.expr, scope: Scope) -> Any:
    rank = find_rank(scope.names, name)
    if rank:
        raise scope.refuse(
            "places-missing",
            f"{name} stands without its {to_count(rank, 'place')}",
            node,
            help=f"write {name}[..], an index for each place",
        )
    base = scope.names.bases[name]
    return BooleanElement(base) if getattr(base, "kind", "") == "bool" else base


def _read_access(name: str, places: tuple[ast.expr, ...], node: ast.expr, scope: Scope) -> Any:
    names = scope.names
    if name in scope.parameters:
        says = f"{name} is a parameter here, one number without places"
        raise scope.refuse("parameter-places", says, node, help=f"write {name}")
    if names.kind(name) != "tensor":
        raise refuse_no_tensor(name, places, node, scope)
    rank = find_rank(names, name)
    if rank != len(places):
        raise names.source.refuse(
            "wrong-rank",
            f"{name} has {to_count(rank, 'place')}, not {len(places)}",
            lines.span(node),
            names.claims[name].span,
            *(place for _, place in scope.calls[-1:]),
            help=f"write {name} alone" if not rank else f"give {name} {to_count(rank, 'place')}",
        )
    return names.bases[name][tuple(to_place(place, scope) for place in places)]


def to_place(node: ast.expr, scope: Scope) -> Any:
    """Return one place of a tensor as a SymPy expression."""
    place = to_number(node, scope)
    build.check_expandable(scope.names.source, node, place)
    return expand(place.doit()) if scope.moved else place


def _read_call(call: lines.Call, node: ast.expr, scope: Scope) -> Any:
    word, names = call.word, scope.names
    if call.brackets is not None:
        return _read_reduction(call, node, scope)
    if call.keywords:
        says = f"{word} takes its arguments in order, without names"
        raise scope.refuse("function-form", says, node, help=f"write {word}(a, b)")
    if word in names.functions and word not in scope.parameters:
        return _inline(call, node, scope)
    if word == "where":
        check_count(call, node, scope, 3, 3)
        condition, then, other = call.arguments
        return words.choose(
            to_condition(condition, scope), to_number(then, scope), to_number(other, scope)
        )
    if word in ELEMENTWISE and not (len(call.arguments) == 1 and word in {"max", "min"}):
        fewest, most, make = ELEMENTWISE[word]
        check_count(call, node, scope, fewest, most)
        return make(*(to_number(argument, scope) for argument in call.arguments))
    raise refuse_unknown_function(call, node, scope)


def _inline(call: lines.Call, node: ast.expr, scope: Scope) -> Any:
    """Return a user's function with arguments for parameters; DeriveError if it calls itself."""
    line = scope.names.functions[call.word]
    if any(call.word == word for word, _ in scope.calls):
        says = f"{call.word} is defined by itself"
        raise scope.refuse("function-recursive", says, node, help="write it out, without itself")
    check_count(call, node, scope, len(line.parameters), len(line.parameters))
    values = [to_value(argument, scope) for argument in call.arguments]
    # the body must not bind the indices of the arguments
    given = sorted({str(i.label) for value in values for i in value.atoms(Idx)})
    inner = replace(
        scope,
        parameters={p.text: value for p, value in zip(line.parameters, values, strict=True)},
        calls=(*scope.calls, (call.word, lines.span(node))),
        bound={**dict.fromkeys(given, lines.span(node)), **scope.bound},
    )
    return to_value(line.value, inner)


def _read_reduction(call: lines.Call, node: ast.expr, scope: Scope) -> Any:
    word = call.word
    if word not in {*BINDING, *KEEPING}:
        raise refuse_unknown_function(call, node, scope)
    given, conditions = _split_bracket(call, node, scope)
    if word == "solve":
        return _read_solve(call, node, given, scope)
    word = _read_correction(call, node, scope)
    bound = dict(scope.bound)
    for index in given:
        if call.word in BINDING:
            check_free(index, scope, bound)
        bound[index.id] = lines.span(index)
    inner = replace(scope, bound=bound)
    if any(index.id not in scope.names.extents.known for index in given):
        for part in ast.walk(node):  # an undeclared tensor is the cause of an unknown extent
            match part:
                case ast.Subscript(ast.Name(name)) if not scope.names.kind(name):
                    if name not in {*scope.parameters, *FUNCTION_WORDS}:
                        raise refuse_no_tensor(name, lines.read_elements(part.slice), part, inner)
    indices = [scope.names.index(index.id, lines.span(index)) for index in given]
    parts = [to_condition(condition, inner) for condition in conditions]
    body = to_number(call.arguments[0], inner)
    condition = build.join_conditions(And, parts) if parts else None
    return words.reduce_over(word, body, indices, condition)


def _split_bracket(
    call: lines.Call, node: ast.expr, scope: Scope
) -> tuple[list[ast.Name], list[ast.expr]]:
    """Return (indices, conditions) of a bracket such as `[i, j, j <= i]`, or raise DeriveError."""
    indices: list[ast.Name] = []
    conditions: list[ast.expr] = []
    for part in call.brackets or ():
        if not isinstance(part, ast.Name):
            conditions.append(part)
        elif conditions:
            says = "the indices come first, then the conditions"
            raise scope.refuse(
                "reduction-form", says, part, help=f"write {call.word}[i, j, j <= i]"
            )
        elif part.id in scope.parameters:
            says = f"{part.id} is a parameter here and cannot be bound"
            raise scope.refuse("reduction-form", says, part, help="take another name")
        else:
            indices.append(part)
    if not indices:
        says = f"{call.word}[..] names no index"
        raise scope.refuse("reduction-form", says, node, help=f"write {call.word}[j](..)")
    if is_matrix(call.word):
        if len(indices) != 2 or indices[0].id == indices[1].id:
            says = f"{call.word} runs over two indices, the rows and the columns of a matrix"
            advice = f"write {_write_call(call.word, scope)}"
            raise scope.refuse("reduction-form", says, node, help=advice)
    elif call.word in {*KEEPING, "argmax"} and len(indices) > 1:
        says = f"{call.word} runs along one index"
        advice = f"write {call.word}[j](..)"
        raise scope.refuse("reduction-form", says, indices[1], help=advice)
    return indices, conditions


def _read_correction(call: lines.Call, node: ast.expr, scope: Scope) -> str:
    """Return the word of a reduction; that of `var[..](.., correction=1)` is `sample_var`."""
    check_count(call, node, scope, 1, 1)
    match call.keywords:
        case []:
            return call.word
        case [ast.keyword("correction", ast.Constant(0 | 1 as correction))] if call.word == "var":
            return "sample_var" if correction else "var"
    advice = f"write {call.word}[j](..)"
    advice = "write var[j](x[j], correction=1)" if call.word == "var" else advice
    says = f"{call.word} takes one expression"
    raise scope.refuse("function-form", says, node, help=advice)


def _read_solve(call: lines.Call, node: ast.expr, given: list[ast.Name], scope: Scope) -> Any:
    """Return the x[j] of `sum[j](A[i, j] * x[j]) = b[i]`, as the product of inverse and b.

    b has one of the two indices, and x the other.
    """
    check_count(call, node, scope, 2, 2)
    if len(call.brackets or ()) > 2:
        says, advice = "solve takes no condition", f"write {_write_call('solve', scope)}"
        raise scope.refuse("reduction-form", says, node, help=advice)
    inner = replace(
        scope, bound={**scope.bound, **{index.id: lines.span(index) for index in given}}
    )
    one, other = (scope.names.index(index.id, lines.span(index)) for index in given)
    matrix, right = (to_number(argument, inner) for argument in call.arguments)
    summed, kept = (one, other) if right.has(one) else (other, one)
    if not right.has(summed) or right.has(kept):
        says = f"the right side of solve has one of {given[0].id} and {given[1].id}, and not both"
        raise scope.refuse(
            "solve-right-side", says, call.arguments[1], help="write solve[i, j](A[i, j], b[i])"
        )
    check_free(given[0] if summed is one else given[1], scope, scope.bound)
    if summed is one:
        matrix = matrix.xreplace({one: other, other: one})
    inverse = words.reduce_over("inverse", matrix, [kept, summed], None)
    return words.reduce_over("sum", words.multiply(inverse, right), [summed], None)
