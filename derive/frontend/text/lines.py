"""The statement in a line of the text notation, and the positions of its parts.

An expression becomes Python's syntax tree, with positions in the source, and is never evaluated.
Which nodes are allowed is decided later, in text.expr and from_text. Statements, each with the
`word` of its Line:

    X[B, S] · W_Q, W_K[H, D, D] · x[N] > 0 · 0 <= u[N] < 1     real
    int tok[B, S] < V · int 0 <= n[B] <= S                     int
    bool m[B, S] · complex psi[N]                              bool, complex
    scalar eps = 1e-5, tau · size W · size Z = 2               scalar, size
    scalar s > 0 · scalar 0 < p < 1 = 0.5                      scalar
    index u, v < S                                             index
    y[b, i] = EXPRESSION · L = EXPRESSION                      equation
    phi(x) = EXPRESSION                                        function
    empty rows are zeros                                       rows
    return z, alpha                                            return
"""

import ast
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from derive.errors import DeriveError, suggest
from derive.frontend.text.tokens import (
    CLOSING,
    REVERSED,
    Source,
    Token,
    find_span,
    is_declaring,
    is_rows_line,
    split_at,
)


class Call(NamedTuple):
    """`word[places](arguments)` or, without brackets, `word(arguments)`."""

    word: str
    brackets: tuple[ast.expr, ...] | None
    arguments: tuple[ast.expr, ...]
    keywords: tuple[ast.keyword, ...]
    name: ast.Name


def read_expression(source: Source, tokens: Sequence[Token]) -> ast.expr:
    """Return the syntax tree, with columns in the whole text; DeriveError if it is none."""
    start, end = find_span(tokens)
    piece, at = "", start
    for token in tokens:  # blanks for comments and line ends keep the columns
        piece += " " * (token.start - at) + source.text[token.start : token.end]
        at = token.end
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(piece, mode="eval").body
    except SyntaxError as error:
        at = min(start + max((error.offset or 1) - 1, 0), end - 1)
        raise source.refuse(
            "syntax",
            "this is no expression",
            (at, at + 1),
            help="compare with: sum[j](A[i, j] * x[j])",
        ) from None
    except (RecursionError, MemoryError, ValueError, OverflowError):
        raise refuse_depth_at(source, start, end) from None
    _set_positions(tree, piece, start)
    return tree


def span(node: ast.expr | ast.keyword) -> tuple[int, int]:
    """Return the positions (start, end) of a node in the whole text."""
    return node.col_offset, node.end_col_offset or node.col_offset + 1


def refuse_depth_at(source: Source, start: int, end: int) -> DeriveError:
    """Return the error of an expression with too many levels or terms."""
    says = "this expression has more levels than can be followed"
    return source.refuse("too-deep", says, (start, end), help="give a part its own equation")


def read_elements(bracket: ast.expr) -> tuple[ast.expr, ...]:
    """Return the elements of a subscript: i and j of `[i, j]`, i of `[i]`."""
    return tuple(bracket.elts) if isinstance(bracket, ast.Tuple) else (bracket,)


def match_call(node: ast.expr) -> Call | None:
    """Return a node `word[..](..)` or `word(..)` as a Call; None for other nodes."""
    match node:
        case ast.Call(ast.Subscript(ast.Name(word) as name, bracket), arguments, keywords):
            return Call(word, read_elements(bracket), tuple(arguments), tuple(keywords), name)
        case ast.Call(ast.Name(word) as name, arguments, keywords):
            return Call(word, None, tuple(arguments), tuple(keywords), name)
    return None


def walk_in_order(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the node and its descendants in the order of the text, outer ones first."""
    found = [n for n in ast.walk(node) if isinstance(n, ast.expr)]
    return iter(sorted(found, key=lambda n: (n.col_offset, -(n.end_col_offset or 0))))


def find_places(tree: ast.expr) -> Iterator[tuple[str, int, ast.expr]]:
    """Yield (tensor, axis, place) for each place of each access, in the order of the text."""
    heads = {n.func for n in ast.walk(tree) if isinstance(n, ast.Call)}
    for node in walk_in_order(tree):
        match node:
            case ast.Subscript(ast.Name(tensor), bracket) if node not in heads:
                for number, place in enumerate(read_elements(bracket)):
                    yield tensor, number, place


def _set_positions(tree: ast.expr, piece: str, start: int) -> None:
    """Convert the tree's columns, which count UTF-8 bytes of a piece, to positions in the text."""
    place_of = [k for k, c in enumerate(piece) for _ in c.encode()] + [len(piece)]
    for node in ast.walk(tree):
        if isinstance(node, (ast.expr, ast.keyword)):
            node.col_offset = start + place_of[node.col_offset]
            node.end_col_offset = start + place_of[node.end_col_offset or 0]


DECLARING = ("int", "bool", "complex", "scalar", "size", "index")
_RELATIONS = ("<", "<=", ">", ">=", "!=", "==")


@dataclass(frozen=True, slots=True)
class Line:
    """A statement, or one scalar or size of it: its names, and the expressions beside them."""

    word: str  # real | int | bool | complex | scalar | size | index | equation | function | ..
    names: tuple[Token, ...]  # also the parameters of a function
    value: Any = None  # the right side, the default, or the extent
    places: tuple[ast.expr, ...] | None = None  # also the shape of tensors; None without brackets
    bounds: tuple[tuple[str, ast.expr], ...] = ()  # relations with the name on the left

    @property
    def name(self) -> Token:
        """The first name."""
        return self.names[0]

    @property
    def parameters(self) -> tuple[Token, ...]:
        """The parameters of a function."""
        return self.names[1:] if self.word == "function" else ()


def read_statement(source: Source, tokens: Sequence[Token]) -> list[Line]:
    """Return a line for each scalar or size that is declared, else one; DeriveError if wrong."""
    first = tokens[0]
    if first.text == "return":
        says = "after return stand names"
        return [Line("return", _read_names(source, first, tokens[1:], says, "return z, alpha"))]
    if is_rows_line(tokens):
        value = " ".join(token.text for token in tokens[2:]).removeprefix("are ")
        if len(tokens) != 4 or value not in {"zeros", "nan"}:
            says = "empty rows are zeros or nan"
            raise _refuse_form(source, tokens, says, "empty rows are zeros")
        return [Line("rows", tuple(tokens), value)]
    if is_declaring(tokens):
        return _read_declaring(source, first, tokens[1:])
    signs, sides = split_at(tokens, "=", "+=", "-=", "*=", "/=", "//=", "**=", "%=", ":=")
    if signs:
        return [_read_equation(source, signs, sides)]
    return [_read_tensors(source, "real", tokens)]


def _read_declaring(source: Source, word: Token, rest: Sequence[Token]) -> list[Line]:
    match word.text:
        case "int" | "bool" | "complex":
            return [_read_tensors(source, word.text, rest)]
        case "scalar" | "size" as kind:
            says = f"after {kind} stand names, each with a default or without"
            found: list[Line] = []
            for piece in split_at(rest, ",")[1]:
                signs, sides = split_at(piece, "=")
                relations, parts = split_at(sides[0], *_RELATIONS)
                named = [k for k, p in enumerate(parts) if len(p) == 1 and p[0].kind == "name"]
                name, bounds = _read_bounds(source, relations, parts, named)
                is_open = kind == "size" or not all(each.bounds for each in found)
                if len(signs) > 1 or name is None or (bounds and is_open):
                    example = "size W or size Z = 2"
                    if kind == "scalar":
                        is_bounded = any(split_at(side, *_RELATIONS)[0] for side in sides)
                        example = "scalar h > 0 = 1" if is_bounded else "scalar eps = 1e-5, tau"
                    raise _refuse_form(source, piece, says, example)
                default = read_expression(source, sides[1]) if signs else None
                found.append(Line(kind, (name[0],), default, None, bounds))
            return found
        case "index":
            example = "index t < T - K + 1"
            signs, sides = split_at(rest, *_RELATIONS, "=")
            if [sign.text for sign in signs] != ["<"]:
                says = "an index line gives the extent after <"
                raise _refuse_form(source, [word, *rest], says, example)
            if len(split_at(sides[1], ",")[1]) > 1:
                says = "an index line gives one extent"
                raise _refuse_form(source, sides[1], says, "index t < T; index k < K")
            names = _read_names(source, word, sides[0], "after index stand names", example)
            return [Line("index", names, read_expression(source, sides[1]))]
        case _:
            advice = suggest(word.text, (*DECLARING, "return"))
            if word.text in {"real", "float", "double", "tensor"}:
                advice = "declare a real tensor without a word: X[B, S]"
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
            raise _refuse_form(source, piece or [word], says, example)
        names.append(piece[0])
    return tuple(names)


def _read_tensors(source: Source, kind: str, tokens: Sequence[Token]) -> Line:
    signs, pieces = split_at(tokens, *_RELATIONS, "=", "+=")
    for sign in signs:
        if sign.text in {"==", "!="}:
            says = f"an equation is written with =, and {sign.text} only compares"
            advice = "write = instead" if sign.text == "==" else ""
            raise source.refuse("equation-sign", says, sign.span, help=advice)
    if any(sign.text not in REVERSED for sign in signs):
        raise _refuse_form(source, tokens, "an equation begins with no word", "y[b, i] = x[b, i]")
    named = (k for k, p in enumerate(pieces) if p and p[0].kind == "name" and p[-1].text == "]")
    plain = (k for k in named if not split_at(pieces[k], "+", "-", "*", "/", "//", "%", "**")[0])
    declared, bounds = _read_bounds(source, signs, pieces, [*plain])
    if declared is None:
        raise _refuse_statement(source, tokens)
    names, shape = _read_shape(source, declared)
    return Line(kind, names, None, shape, bounds)


def _read_bounds(
    source: Source, signs: Sequence[Token], pieces: list[list[Token]], plain: Sequence[int]
) -> tuple[list[Token] | None, tuple[tuple[str, ast.expr], ...]]:
    """Return the declared piece of `0 <= u[N] < 1` and its bounds; (None, ()) if there is none.

    `plain` holds the numbers of the pieces that can be declared, of which the first is.
    """
    middle = plain[0] if plain else None
    is_strange = any(sign.text not in REVERSED for sign in signs)
    if middle is None or is_strange or len(signs) > 2 or (len(signs) == 2 and middle != 1):
        return None, ()
    bounds = []
    for k, sign in enumerate(signs):
        bound = read_expression(source, pieces[k] if k < middle else pieces[k + 1])
        bounds.append((REVERSED[sign.text] if k < middle else sign.text, bound))
    return pieces[middle], tuple(bounds)


def _read_shape(
    source: Source, piece: Sequence[Token]
) -> tuple[tuple[Token, ...], tuple[ast.expr, ...]]:
    opening = next(k for k, token in enumerate(piece) if token.text == "[")
    if len(split_at(piece[opening:], ",")[1]) > 1:
        says = "one declaration has one shape, at its end"
        raise _refuse_form(source, piece, says, "X[B, S]; Y[S, D]  or  W_Q, W_K[H, D, D]")
    if not _is_one_bracket(piece[opening:]):
        raise _refuse_form(source, piece, "a declaration is names and one shape", "W_Q, W_K[H, D]")
    says = "a declaration begins with names"
    names = _read_names(source, piece[0], piece[:opening], says, "W_Q, W_K[H, D]")
    inside = split_at(piece[opening + 1 : -1], ",")[1] if piece[opening + 2 :] else []
    return names, tuple(read_expression(source, part) for part in inside)


def _read_equation(source: Source, signs: Sequence[Token], sides: list[list[Token]]) -> Line:
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
        return Line("equation", (left[0],), value)
    if len(left) > 2 and left[0].kind == "name" and _is_one_bracket(left[1:]):
        inside = split_at(left[2:-1], ",")[1]
        if left[1].text == "(":
            says, example = f"the parameters of {left[0].text} are names", "phi(x, y) = .."
            parameters = _read_names(source, left[0], left[2:-1], says, example)
            for k, token in enumerate(parameters):
                if any(token.text == known.text for known in parameters[:k]):
                    says = f"{token.text} is a parameter twice"
                    raise _refuse_form(source, [token], says, example)
            return Line("function", (left[0], *parameters), value)
        places = tuple(read_expression(source, part) for part in inside)
        return Line("equation", (left[0],), value, places)
    raise source.refuse(
        "left-side",
        "the left side of an equation is one tensor with its places",
        find_span(left),
        help="write y[b, i] = .., or y = .. for a result without indices",
    )


def _is_one_bracket(tokens: Sequence[Token]) -> bool:
    """Whether the first token opens a bracket that the last one closes."""
    depths = accumulate((t.text in CLOSING) - (t.text in CLOSING.values()) for t in tokens)
    return next((k for k, depth in enumerate(depths) if not depth), -1) == len(tokens) - 1


def _refuse_form(source: Source, tokens: Sequence[Token], says: str, example: str) -> DeriveError:
    return source.refuse("statement-form", says, find_span(tokens), help=f"write it like {example}")


def _refuse_statement(source: Source, tokens: Sequence[Token]) -> DeriveError:
    name = tokens[0].text
    advice = "declare a tensor, X[B, S], or name a result: y[b, i] = .."
    if len(tokens) == 1 and tokens[0].kind == "name" and name not in DECLARING:
        advice = f"write {name}[N] for a tensor, scalar {name} for a number, size {name} for a size"
    says = "this is neither a declaration nor an equation"
    return source.refuse("statement-form", says, find_span(tokens), help=advice)
