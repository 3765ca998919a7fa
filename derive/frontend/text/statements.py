"""What each statement of the text is: a declaration, an equation, a function or the results.

X[B, S] · W_Q, W_K[H, D, D] · x[N] > 0 · 0 <= u[N] < 1     TensorLine
int tok[B, S] < V · bool m[B, S]                           TensorLine
scalar eps = 1e-5, tau · size W · size Z = 2               NumberLine
index u, v < S                                             IndexLine
y[b, i] = EXPRESSION · L = EXPRESSION                      EquationLine
phi(x) = EXPRESSION                                        FunctionLine
return z, alpha                                            ReturnLine
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from derive.errors import suggest
from derive.frontend.text.lines import find_span, read_expression, split_at

if TYPE_CHECKING:
    import ast
    from collections.abc import Sequence

    from derive.errors import DeriveError
    from derive.frontend.text.lines import Source, Token

DECLARING = ("int", "bool", "scalar", "size", "index")
_RELATIONS = ("<", "<=", ">", ">=", "!=", "==")
_REVERSED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class TensorLine:
    """Tensors of one shape; `bounds` are (relation, expression) as read from the tensor's side."""

    kind: str  # real | int | bool
    names: tuple[Token, ...]
    shape: tuple[ast.expr, ...]
    bounds: tuple[tuple[str, ast.expr], ...]


@dataclass(frozen=True, slots=True)
class NumberLine:
    """Number arguments, or sizes that no shape tells, each with its default."""

    kind: str  # scalar | size
    entries: tuple[tuple[Token, ast.expr | None], ...]


@dataclass(frozen=True, slots=True)
class IndexLine:
    """Indices and their extent."""

    names: tuple[Token, ...]
    extent: ast.expr


@dataclass(frozen=True, slots=True)
class EquationLine:
    """A tensor, the places of its left side (None where it is bare), and its value."""

    name: Token
    places: tuple[ast.expr, ...] | None
    value: ast.expr
    left: tuple[int, int]


@dataclass(frozen=True, slots=True)
class FunctionLine:
    """A function of the user's."""

    name: Token
    parameters: tuple[Token, ...]
    value: ast.expr


@dataclass(frozen=True, slots=True)
class ReturnLine:
    """The results in order."""

    names: tuple[Token, ...]


Line: TypeAlias = TensorLine | NumberLine | IndexLine | EquationLine | FunctionLine | ReturnLine


def read_statement(source: Source, tokens: Sequence[Token]) -> Line:
    """One statement by its form."""
    first = tokens[0]
    if first.text == "return":
        says = "after return stand names"
        return ReturnLine(_read_names(source, first, tokens[1:], says, "return z, alpha"))
    binary = {"and", "or"}
    if len(tokens) > 1 and first.kind == tokens[1].kind == "name" and tokens[1].text not in binary:
        return _read_declaring(source, first, tokens[1:])
    signs, sides = split_at(tokens, "=", "+=", "-=", "*=", "/=", "//=", "**=", "%=", ":=")
    if signs:
        return _read_equation(source, tokens, signs, sides)
    return _read_tensors(source, "real", tokens)


def _read_declaring(source: Source, word: Token, rest: Sequence[Token]) -> Line:
    match word.text:
        case "int" | "bool":
            return _read_tensors(source, word.text, rest)
        case "scalar" | "size":
            entries = []
            for piece in split_at(rest, ",")[1]:
                signs, sides = split_at(piece, "=")
                if len(signs) > 1 or len(sides[0]) != 1 or sides[0][0].kind != "name":
                    says = f"after {word.text} stand names, each with a default or without"
                    example = "size W or size Z = 2"
                    example = "scalar eps = 1e-5, tau" if word.text == "scalar" else example
                    raise _form(source, piece, says, example)
                entries.append((sides[0][0], read_expression(source, sides[1]) if signs else None))
            return NumberLine(word.text, tuple(entries))
        case "index":
            example = "index t < T - K + 1"
            signs, sides = split_at(rest, *_RELATIONS, "=")
            if [sign.text for sign in signs] != ["<"]:
                says = "an index line gives the extent after <"
                raise _form(source, [word, *rest], says, example)
            if len(split_at(sides[1], ",")[1]) > 1:
                says = "an index line gives one extent"
                raise _form(source, sides[1], says, "index t < T; index k < K")
            names = _read_names(source, word, sides[0], "after index stand names", example)
            return IndexLine(names, read_expression(source, sides[1]))
        case _:
            if word.text in {"real", "float", "double", "tensor", "complex"}:
                advice = "declare a real tensor without a word: X[B, S]"
            else:
                advice = suggest(word.text, (*DECLARING, "return"))
            raise source.refuse(
                "declaration-word",
                f"{word.text} is no word that begins a line",
                word.span,
                facts=[f"the words are {', '.join(DECLARING)} and return"],
                help=advice,
            )


def _read_names(
    source: Source, word: Token, tokens: Sequence[Token], says: str, example: str
) -> tuple[Token, ...]:
    names = []
    for piece in split_at(tokens, ",")[1]:
        if len(piece) != 1 or piece[0].kind != "name":
            raise _form(source, piece or [word], says, example)
        names.append(piece[0])
    return tuple(names)


def _read_tensors(source: Source, kind: str, tokens: Sequence[Token]) -> TensorLine:
    signs, pieces = split_at(tokens, *_RELATIONS, "=", "+=")
    for sign in signs:
        if sign.text in {"==", "!="}:
            says = f"an equation is written with =, and {sign.text} only compares"
            advice = "write = instead" if sign.text == "==" else ""
            raise source.refuse("equation-sign", says, sign.span, help=advice)
    if any(sign.text not in _REVERSED for sign in signs):
        raise _form(source, tokens, "an equation begins with no word", "y[b, i] = x[b, i]")
    middle = None
    for k, piece in enumerate(pieces):  # the first that reads `names[...]`
        named = bool(piece) and piece[0].kind == "name" and piece[-1].text == "]"
        if named and not split_at(piece, "+", "-", "*", "/", "//", "%", "**")[0]:
            middle = k
            break
    if middle is None or len(signs) > 2 or (len(signs) == 2 and middle != 1):
        raise _no_statement(source, kind, tokens)
    names, shape = _read_shape(source, pieces[middle])
    bounds = []
    for k, sign in enumerate(signs):
        bound = read_expression(source, pieces[k] if k < middle else pieces[k + 1])
        bounds.append((_REVERSED[sign.text] if k < middle else sign.text, bound))
    return TensorLine(kind, names, shape, tuple(bounds))


def _read_shape(
    source: Source, piece: Sequence[Token]
) -> tuple[tuple[Token, ...], tuple[ast.expr, ...]]:
    opening = next(k for k, token in enumerate(piece) if token.text == "[")
    if len(split_at(piece[opening:], ",")[1]) > 1:
        says = "one declaration has one shape, at its end"
        raise _form(source, piece, says, "X[B, S]; Y[S, D]  or  W_Q, W_K[H, D, D]")
    if not _is_one_bracket(piece[opening:]):
        raise _form(source, piece, "a declaration is names and one shape", "W_Q, W_K[H, D]")
    says = "a declaration begins with names"
    names = _read_names(source, piece[0], piece[:opening], says, "W_Q, W_K[H, D]")
    inside = split_at(piece[opening + 1 : -1], ",")[1]
    return names, tuple(read_expression(source, part) for part in inside)


def _read_equation(
    source: Source, tokens: Sequence[Token], signs: Sequence[Token], sides: list[list[Token]]
) -> EquationLine | FunctionLine:
    if len(signs) > 1 or signs[0].text != "=":
        place = signs[-1]
        raise source.refuse(
            "equation-sign",
            "an equation has one = and no other sign",
            place.span,
            help="write y[i] = .., and let a later equation use y",
        )
    left = sides[0]
    value = read_expression(source, sides[1])
    if len(left) == 1 and left[0].kind == "name":
        return EquationLine(left[0], None, value, find_span(left))
    if len(left) > 2 and left[0].kind == "name" and _is_one_bracket(left[1:]):
        inside = split_at(left[2:-1], ",")[1]
        if left[1].text == "(":
            says, example = f"the parameters of {left[0].text} are names", "phi(x, y) = .."
            parameters = _read_names(source, left[0], left[2:-1], says, example)
            for k, token in enumerate(parameters):
                if any(token.text == known.text for known in parameters[:k]):
                    says = f"{token.text} is a parameter twice"
                    raise _form(source, [token], says, example)
            return FunctionLine(left[0], parameters, value)
        places = tuple(read_expression(source, part) for part in inside)
        return EquationLine(left[0], places, value, find_span(left))
    raise source.refuse(
        "left-side",
        "the left side of an equation is one tensor with its places",
        find_span(left),
        help="write y[b, i] = .., or y = .. for a result without indices",
    )


def _is_one_bracket(tokens: Sequence[Token]) -> bool:
    """Is it one bracket from the first token to the last?"""
    depth = 0
    for k, token in enumerate(tokens):
        depth += (token.text in {"(", "["}) - (token.text in {")", "]"})
        if depth == 0:
            return k == len(tokens) - 1
    return False


def _form(source: Source, tokens: Sequence[Token], says: str, example: str) -> DeriveError:
    return source.refuse("statement-form", says, find_span(tokens), help=f"write it like {example}")


def _no_statement(source: Source, kind: str, tokens: Sequence[Token]) -> DeriveError:
    if len(tokens) == 1 and tokens[0].kind == "name":
        name = tokens[0].text
        advice = f"write {name}[N] for a tensor, scalar {name} for a number, size {name} for a size"
    elif kind != "real":
        advice = "write it like int tok[B, S] < V  or  bool m[B, S]"
    elif tokens[0].kind == "name" and tokens[-1].text == "]":
        advice = "write it like X[B, S]"
    else:
        advice = "name the result: y[b, i] = .."
    says = "this is neither a declaration nor an equation"
    return source.refuse("statement-form", says, find_span(tokens), help=advice)
