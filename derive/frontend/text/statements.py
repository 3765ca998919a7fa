"""What each statement of the text is: a declaration, an equation, a function or the results.

X[B, S] · W_Q, W_K[H, D, D] · x[N] > 0 · 0 <= u[N] < 1     TensorLine
int tok[B, S] < V · bool m[B, S]                           TensorLine
scalar eps = 1e-5, tau                                     ScalarLine
size W · size Z = 2                                        SizeLine
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
class ScalarLine:
    """Number arguments, each with its default."""

    entries: tuple[tuple[Token, ast.expr | None], ...]


@dataclass(frozen=True, slots=True)
class SizeLine:
    """Sizes that no shape tells, each with its default."""

    entries: tuple[tuple[Token, ast.expr | None], ...]


@dataclass(frozen=True, slots=True)
class IndexLine:
    """Index indices and their extent."""

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
    body: ast.expr


@dataclass(frozen=True, slots=True)
class ReturnLine:
    """The results in order."""

    names: tuple[Token, ...]


Line: TypeAlias = (
    TensorLine | ScalarLine | SizeLine | IndexLine | EquationLine | FunctionLine | ReturnLine
)


def read_statement(source: Source, tokens: Sequence[Token]) -> Line:
    """One statement by its form."""
    first = tokens[0]
    if first.text == "return":
        return ReturnLine(_read_names(source, first, tokens[1:], "return z, alpha"))
    if len(tokens) > 1 and first.kind == tokens[1].kind == "name" and tokens[1].text not in _BINARY:
        return _read_declaring(source, first, tokens[1:])
    signs, sides = split_at(tokens, "=", "+=", "-=", "*=", "/=", "//=", "**=", "%=", ":=")
    if signs:
        return _read_equation(source, tokens, signs, sides)
    return _read_tensors(source, "real", tokens)


_BINARY = {"and", "or"}


def _read_declaring(source: Source, word: Token, rest: Sequence[Token]) -> Line:
    match word.text:
        case "int" | "bool":
            return _read_tensors(source, word.text, rest)
        case "scalar":
            return ScalarLine(_read_entries(source, word, rest, "scalar eps = 1e-5, tau"))
        case "size":
            return SizeLine(_read_entries(source, word, rest, "size W or size Z = 2"))
        case "index":
            return _read_index(source, word, rest)
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


def _read_index(source: Source, word: Token, rest: Sequence[Token]) -> IndexLine:
    example = "index t < T - K + 1"
    signs, sides = split_at(rest, *_RELATIONS, "=")
    if [sign.text for sign in signs] != ["<"]:
        raise _form(source, [word, *rest], "an index line gives the extent after <", example)
    if len(split_at(sides[1], ",")[1]) > 1:
        raise _form(source, sides[1], "an index line gives one extent", "index t < T; index k < K")
    return IndexLine(
        _read_names(source, word, sides[0], example), read_expression(source, sides[1])
    )


def _read_names(
    source: Source, word: Token, tokens: Sequence[Token], example: str
) -> tuple[Token, ...]:
    names = []
    for piece in split_at(tokens, ",")[1]:
        if len(piece) != 1 or piece[0].kind != "name":
            place = piece or [word]
            raise _form(source, place, f"after {word.text} stand names", example)
        names.append(piece[0])
    return tuple(names)


def _read_entries(
    source: Source, word: Token, tokens: Sequence[Token], example: str
) -> tuple[tuple[Token, ast.expr | None], ...]:
    entries = []
    for piece in split_at(tokens, ",")[1]:
        signs, sides = split_at(piece, "=")
        if len(signs) > 1 or len(sides[0]) != 1 or sides[0][0].kind != "name":
            says = f"after {word.text} stand names, each with a default or without"
            raise _form(source, piece, says, example)
        entries.append((sides[0][0], read_expression(source, sides[1]) if signs else None))
    return tuple(entries)


def _read_tensors(source: Source, kind: str, tokens: Sequence[Token]) -> TensorLine:
    signs, pieces = split_at(tokens, *_RELATIONS, "=", "+=")
    if any(sign.text in {"==", "!="} for sign in signs):
        raise _equation_sign(source, signs)
    if any(sign.text not in _REVERSED for sign in signs):
        raise _form(source, tokens, "an equation begins with no word", "y[b, i] = x[b, i]")
    middle = next((k for k, piece in enumerate(pieces) if _is_declared(piece)), None)
    if middle is None or len(signs) > 2 or (len(signs) == 2 and middle != 1):
        raise _no_statement(source, kind, tokens)
    names, shape = _read_shape(source, pieces[middle])
    bounds = []
    for k, sign in enumerate(signs):
        bound = read_expression(source, pieces[k] if k < middle else pieces[k + 1])
        bounds.append((_REVERSED[sign.text] if k < middle else sign.text, bound))
    return TensorLine(kind, names, shape, tuple(bounds))


def _is_declared(piece: Sequence[Token]) -> bool:
    """Does it read `names[...]`?"""
    named = bool(piece) and piece[0].kind == "name" and piece[-1].text == "]"
    return named and not split_at(piece, "+", "-", "*", "/", "//", "%", "**")[0]


def _read_shape(
    source: Source, piece: Sequence[Token]
) -> tuple[tuple[Token, ...], tuple[ast.expr, ...]]:
    opening = next(k for k, token in enumerate(piece) if token.text == "[")
    if len(split_at(piece[opening:], ",")[1]) > 1:
        says = "one declaration has one shape, at its end"
        raise _form(source, piece, says, "X[B, S]; Y[S, D]  or  W_Q, W_K[H, D, D]")
    if not _is_one_bracket(piece[opening:]):
        raise _form(source, piece, "a declaration is names and one shape", "W_Q, W_K[H, D]")
    names = []
    for item in split_at(piece[:opening], ",")[1]:
        if len(item) != 1 or item[0].kind != "name":
            raise _form(source, item or piece, "a declaration begins with names", "W_Q, W_K[H, D]")
        names.append(item[0])
    inside = split_at(piece[opening + 1 : -1], ",")[1]
    return tuple(names), tuple(read_expression(source, part) for part in inside)


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
            return FunctionLine(left[0], _read_parameters(source, left[0], inside), value)
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


def _read_parameters(
    source: Source, name: Token, pieces: Sequence[Sequence[Token]]
) -> tuple[Token, ...]:
    parameters: list[Token] = []
    for piece in pieces:
        if len(piece) != 1 or piece[0].kind != "name":
            place = piece or [name]
            raise _form(source, place, f"the parameters of {name.text} are names", "phi(x, y) = ..")
        if any(piece[0].text == known.text for known in parameters):
            raise _form(source, piece, f"{piece[0].text} is a parameter twice", "phi(x, y) = ..")
        parameters.append(piece[0])
    return tuple(parameters)


def _form(source: Source, tokens: Sequence[Token], says: str, example: str) -> DeriveError:
    return source.refuse("statement-form", says, find_span(tokens), help=f"write it like {example}")


def _equation_sign(source: Source, signs: Sequence[Token]) -> DeriveError:
    sign = next(s for s in signs if s.text in {"==", "!="})
    advice = "write = instead" if sign.text == "==" else ""
    says = f"an equation is written with =, and {sign.text} only compares"
    return source.refuse("equation-sign", says, sign.span, help=advice)


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
