"""What can be seen at one place of an equation, and the refusals that need to know it."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from derive.errors import suggest
from derive.frontend.text.build import BINDING, CONSTANTS, ELEMENTWISE, KEEPING
from derive.frontend.text.names import FUNCTION_WORDS, RECURRENCE_INSTEAD
from derive.frontend.text.syntax import span
from derive.ir.functions import FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.errors import DeriveError
    from derive.frontend.text.extents import Letters
    from derive.frontend.text.names import Names
    from derive.frontend.text.syntax import Call

MOST_NAMES = 16  # that a message lists


@dataclass(frozen=True)
class Scope:
    """What can be seen at one place of an equation."""

    names: Names
    letters: Letters
    target: str  # the tensor that is being defined
    number: int  # the number of its equation
    bound: Mapping[str, tuple[int, int]]  # letters in scope, and where each one enters
    parameters: Mapping[str, Any] = field(default_factory=dict)
    calls: tuple[tuple[str, tuple[int, int]], ...] = ()  # functions being read, and their calls
    depth: int = 0
    measures: dict[Any, tuple[int, int]] = field(default_factory=dict)  # expression: depth, nodes

    def refuse(
        self,
        code: str,
        says: str,
        *nodes: ast.expr,
        facts: tuple[str, ...] = (),
        help: str = "",
    ) -> DeriveError:
        """The error at these nodes, and at the call that led into a user's function."""
        places = [span(node) for node in nodes] + [place for _, place in self.calls[-1:]]
        return self.names.source.refuse(code, says, *places, facts=facts, help=help)


def find_rank(names: Names, name: str) -> int:
    """The number of places of a tensor."""
    if name in names.shapes:
        return len(names.shapes[name])
    return len(names.equations[name][1].places or ())


def check_order(name: str, node: ast.expr, scope: Scope) -> None:
    """A tensor is used after the equation that defines it."""
    names = scope.names
    if name == scope.target:
        raise scope.refuse(
            "not-yet",
            f"a recurrence cannot be used yet: {name} is defined by itself",
            node,
            help=RECURRENCE_INSTEAD,
        )
    if name in names.equations and names.equations[name][0] > scope.number:
        raise names.source.refuse(
            "used-before-defined",
            f"{name} is used before it is defined",
            span(node),
            names.equations[name][1].left,
            help=f"move the equation of {name} up",
        )


def check_count(call: Call, node: ast.expr, scope: Scope, fewest: int, most: int) -> None:
    """Refuse a call with too few or too many arguments."""
    count = len(call.arguments)
    starred = any(isinstance(argument, ast.Starred) for argument in call.arguments)
    if fewest <= count <= most and not starred:
        return
    wanted = to_count(fewest, "argument") if fewest == most else f"{fewest} to {most} arguments"
    says = f"{call.word} takes {wanted}, not {count}"
    raise scope.refuse("argument-count", says, node, help=f"write {_write_call(call.word, scope)}")


def _write_call(word: str, scope: Scope) -> str:
    """How a function is called."""
    if word in scope.names.functions:
        parameters = [token.text for token in scope.names.functions[word].parameters]
        return f"{word}({', '.join(parameters)})"
    if word in {*BINDING, *KEEPING}:
        return f"{word}[j](x[j])"
    row = FUNCTIONS.get(word)
    if row is not None:
        return f"{word}({'a, b' if row.is_variadic else ', '.join(row.tensors)})"
    return f"{word}({'i, j' if word == 'delta' else 'condition, a, b'})"


def check_free(letter: ast.Name, scope: Scope, bound: Mapping[str, Any]) -> None:
    """A letter is not bound again inside its own scope."""
    if letter.id not in bound:
        return
    claims = scope.names.claims
    start = ord(letter.id[0].lower()) - ord("a")
    alphabet = [chr(ord("a") + (start + k) % 26) for k in range(1, 26)]
    numbered = (f"{letter.id}{k}" for k in range(2, len(claims) + 4))
    fresh = next(name for name in (*alphabet, *numbered) if name not in claims)
    raise scope.names.source.refuse(
        "index-bound-again",
        f"index {letter.id} is bound again where it already has a meaning",
        span(letter),
        bound[letter.id],
        *(place for _, place in scope.calls[-1:]),
        help=f"take a fresh letter here, {fresh}",
    )


def to_count(number: int, noun: str) -> str:
    """`1 place`, `2 places`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def unknown_name(name: str, node: ast.expr, scope: Scope) -> DeriveError:
    """A name that nothing claims."""
    known = [n for n, claim in scope.names.claims.items() if claim.kind != "function"]
    if name in FUNCTION_WORDS:
        says, advice = f"{name} is a function and needs its arguments", f"write {name}(..)"
        return scope.refuse("function-bare", says, node, help=advice)
    return scope.refuse(
        "unknown-name",
        f"{name} is not declared",
        node,
        facts=_tell_known("known are", known),
        help=suggest(name, [*known, *scope.parameters, *CONSTANTS])
        or f"declare it: scalar {name} for a number, size {name} for a size",
    )


def _tell_known(says: str, known: list[str]) -> tuple[str, ...]:
    """The names, as far as one line holds them."""
    more = ", .." if len(known) > MOST_NAMES else ""
    return (f"{says} {', '.join(known[:MOST_NAMES])}{more}",) if known else ()


def no_tensor(name: str, places: tuple[ast.expr, ...], node: ast.expr, scope: Scope) -> DeriveError:
    """A name with places that is no tensor."""
    names = scope.names
    kind = names.kind(name)
    if kind:
        says = f"{name} is {'an' if kind == 'index' else 'a'} {kind} and has no places"
        places_of = (span(node), names.claims[name].span)
        return names.source.refuse("not-a-tensor", says, *places_of, help=f"write {name} alone")
    if name in FUNCTION_WORDS:
        advice = f"write {name}[j](..)" if name in {*BINDING, *KEEPING} else f"write {name}(..)"
        return scope.refuse("function-bare", f"{name} needs its arguments", node, help=advice)
    known = [n for n, claim in names.claims.items() if claim.kind == "tensor"]
    return scope.refuse(
        "unknown-name",
        f"{name} is not declared",
        node,
        facts=_tell_known("tensors are", known),
        help=suggest(name, known) or f"declare it: {name}[{_write_shape(places, scope)}]",
    )


def _write_shape(places: tuple[ast.expr, ...], scope: Scope) -> str:
    """The extents a declaration would give, as far as the letters tell them."""
    extents = []
    for place in places:
        name = place.id if isinstance(place, ast.Name) else ""
        extents.append(scope.letters.write_extent(name) if scope.letters.is_known(name) else "..")
    return ", ".join(extents)


def unknown_function(call: Call, node: ast.expr, scope: Scope) -> DeriveError:
    """A call of what is no function, or not in this way."""
    word, names = call.word, scope.names
    if call.brackets is not None and word in {*ELEMENTWISE, "where", *names.functions}:
        says, advice = f"{word} binds no index", f"write {word}(..)"
        return scope.refuse("function-form", says, node, help=advice)
    if word in {*BINDING, *KEEPING}:
        letters = [part.id for part in call.arguments[1:] if isinstance(part, ast.Name)]
        if not letters:
            found = (p.id for a in call.arguments for p in ast.walk(a) if isinstance(p, ast.Name))
            letters = [n for n in dict.fromkeys(found) if _is_open(n, scope)]
        advice = f"write {word}[{', '.join(letters) or 'j'}](..)"
        return scope.refuse("reduction-form", f"{word} must name its index", node, help=advice)
    if word in scope.parameters or names.kind(word):
        kind = "parameter" if word in scope.parameters else names.kind(word)
        says = f"{word} is {'an' if kind == 'index' else 'a'} {kind} and cannot be called"
        advice = f"write {word}[..]" if kind == "tensor" else f"write {word} * (..)"
        return scope.refuse("not-a-function", says, node, help=advice)
    known = [*FUNCTION_WORDS, *names.functions]
    other = {"ln": "log", "pow": "**"}
    advice = f"write {other[word]}" if word in other else suggest(word, known)
    return scope.refuse(
        "unknown-function",
        f"there is no function {word}",
        call.name,
        help=advice or f"define it on a line before: {word}(x) = ..",
    )


def _is_open(name: str, scope: Scope) -> bool:
    return scope.names.kind(name) == "index" and name not in scope.bound


def not_notation(node: ast.expr, scope: Scope) -> DeriveError:
    """What Python's grammar allows and the notation does not."""
    advice = {
        ast.Tuple: "write one expression, without commas",
        ast.List: "an Iverson bracket holds one condition: [i == j and m[i]]",
        ast.Call: "write * between two factors",
        ast.Compare: "compare with < <= > >= == !=",
    }.get(type(node), "")
    return scope.refuse("not-notation", "this is no part of the notation", node, help=advice)
