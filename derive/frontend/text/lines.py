"""Tokenizer and statement parser of the text notation; every part keeps its position.

    text      = statement ((newline | ";") statement)*
    statement = token+           over lines inside an open bracket, and where an operator ends a
                                 line or begins the next one, which is indented
    token     = name | number | operator | bracket
    comment   = "#" up to the end of the line

The tokenizer refuses unknown characters, keywords of Python, unbalanced brackets, and missing or
surplus operators. Almost all token sequences that pass are expressions of Python.

An expression becomes Python's syntax tree, with positions in the source, and is never evaluated.
The allowed nodes and their meaning are defined by the readers (text.expr, from_text). A statement
is a declaration, an equation, a function or the results:

    X[B, S] · W_Q, W_K[H, D, D] · x[N] > 0 · 0 <= u[N] < 1     TensorLine
    int tok[B, S] < V · int 0 <= n[B] <= S                     TensorLine
    bool m[B, S] · complex psi[N]                              TensorLine
    scalar eps = 1e-5, tau · size W · size Z = 2               NumberLine
    scalar s > 0 · scalar 0 < p < 1 = 0.5                      NumberLine
    scalar h = 1, h > 0                                        NumberLine
    index u, v < S                                             IndexLine
    y[b, i] = EXPRESSION · L = EXPRESSION                      EquationLine
    phi(x) = EXPRESSION                                        FunctionLine
    empty rows are zeros                                       RowsLine
    return z, alpha                                            ReturnLine
"""

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from keyword import kwlist
from typing import Any, NamedTuple, TypeAlias
from unicodedata import normalize

from derive import errors
from derive.errors import DeriveError, Mark, refuse
from derive.ir.pieces import MAKE_SCALAR, TOO_LONG, is_readable

WIDEST = 160  # columns of a line in a mark
DEEPEST = 100  # nested brackets; below the limit of Python's parser

_TOKEN = re.compile(
    r"""(?P<blank>(?:(?<=[-+*/%<>=,])|(?<=\band)|(?<=\bor))[^\S\n]*\n[^\S\n]+
        |[^\S\n]*\n[^\S\n]+(?=[-+*/%<>=!,]|and\b|or\b)|[^\S\n]+|\#[^\n]*)
    |(?P<newline>\n)
    |(?P<number>(?:[0-9]+(?:_[0-9]+)*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<name>[^\W\d]\w*)
    |(?P<op>\*\*=|//=|\*\*|//|==|<=|>=|!=|:=|[-+*/%]=|[-+*/%<>=()\[\],;])""",
    re.VERBOSE,
)
_CLOSING = {"(": ")", "[": "]"}
_WORDS = {"and", "or", "not"}
_OPERATORS = {"**", "//", "==", "<=", ">=", "!=", *"+-*/%<>=,"}
_CALCULATING = _OPERATORS - {"=", ","}
_LISTING = {"scalar", "size", "index", "int", "bool", "complex", "return"}
_UNARY = {"+", "-", "not"}
_INSTEAD = {
    "≤": "<=", "≥": ">=", "≠": "!=", "−": "-", "–": "-", "·": "*", "×": "*", "∗": "*", "÷": "/",
    "∑": "sum[i](..)", "∏": "prod[i](..)", "√": "sqrt(..)", "∞": "oo", "^": "**",
    "²": "**2", "³": "**3",
    "&": "and", "|": "or", "~": "not", "!": "not", "∧": "and", "∨": "or", "¬": "not",
    "@": "sum[k](A[i, k] * B[k, j])", "{": "( or [", "}": ") or ]",
    ":": "an index, in a shape an extent: x[N, D]", "?": "where(condition, a, b)",
    ".": "x[j, i] for a transpose, since nothing has attributes", "'": "another name, x2",
}  # fmt: skip
_KEYWORD_INSTEAD = {
    "if": "where(condition, a, b)", "else": "where(condition, a, b)", "is": "==",
    "for": "sum[i](..)", "in": "a comparison", "None": "0, or leave it out",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the text and its position."""

    kind: str  # name | number | op
    text: str
    start: int
    end: int

    @property
    def span(self) -> tuple[int, int]:
        """The start and the end in the whole text."""
        return self.start, self.end


@dataclass(frozen=True, slots=True)
class Source:
    """The whole text, for marks."""

    text: str

    def mark(self, start: int, end: int) -> Mark:
        """Return the line at `start` with the span marked; of several lines only the first."""
        begin = self.text.rfind("\n", 0, start) + 1
        stop = self.text.find("\n", start)
        line = self.text[begin : stop if stop >= 0 else len(self.text)]
        shown = "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in line)
        first, last = start - begin, min(end - begin, len(line))
        lead = min(first, len(shown) - len(shown.lstrip()))
        if first >= lead + WIDEST:
            lead = first - WIDEST // 2
        window = shown[lead : lead + WIDEST].rstrip()
        return Mark(window, first - lead, max(first + 1, min(last, lead + WIDEST)) - lead)

    def refuse(
        self, code: str, says: str, *spans: tuple[int, int] | None, **more: Any
    ) -> DeriveError:
        """Return an error with marks at these spans."""
        places = dict.fromkeys(span for span in spans if span is not None)
        return refuse(code, says, marks=[self.mark(*span) for span in places], **more)


def find_span(tokens: Sequence[Token]) -> tuple[int, int]:
    """Return the first token's start and the last token's end."""
    return tokens[0].start, tokens[-1].end


def split_statements(source: Source) -> list[tuple[Token, ...]]:
    """Return the statements in order, without empty ones."""
    statements: list[tuple[Token, ...]] = []
    current: list[Token] = []
    opened: list[Token] = []
    for token in _tokenize(source):
        ends = token.kind == "newline" or token.text == ";"
        if ends and token.kind == "op" and opened:
            raise _refuse_unclosed(source, opened[-1])
        if not ends:
            _follow_brackets(source, token, opened)
            current.append(token)
        elif not opened and current:
            statements.append(tuple(current))
            current = []
    if opened:
        raise _refuse_unclosed(source, opened[-1])
    if current:
        statements.append(tuple(current))
    for statement in statements:
        _check_words(source, statement)
        if not _is_rows_line(statement):
            _check_neighbours(source, statement)
    return statements


def _is_rows_line(statement: Sequence[Token]) -> bool:
    """Whether the statement begins with `empty rows`."""
    return [token.text for token in statement[:2]] == ["empty", "rows"]


def split_at(tokens: Sequence[Token], *texts: str) -> tuple[list[Token], list[list[Token]]]:
    """Return the tokens outside of brackets with these texts, and the pieces between them."""
    depth, found, pieces = 0, [], [[]]  # type: ignore[var-annotated]
    for token in tokens:
        if token.kind == "op" and token.text in texts and depth == 0:
            found.append(token)
            pieces.append([])
            continue
        if token.kind == "op":
            depth += (token.text in _CLOSING) - (token.text in _CLOSING.values())
        pieces[-1].append(token)
    return found, pieces


def _tokenize(source: Source) -> Iterable[Token]:
    at = 0
    while at < len(source.text):
        match = _TOKEN.match(source.text, at)
        if match is None or not match.lastgroup:
            raise _refuse_character(source, at)
        start, at = match.span()
        kind, text = match.lastgroup, match.group()
        if kind == "blank":
            continue
        if kind == "name":
            text = normalize("NFKC", text)  # Python normalizes names in the same way
            if not text.isidentifier():
                bad = (k for k, c in enumerate(match.group()) if not f"a{c}".isidentifier())
                raise _refuse_character(source, start + next(bad, 0))
            _check_word(source, text, start, at)
        if kind == "number":
            _check_number(source, text, start, at)
        yield Token(kind, text, start, at)


def _refuse_character(source: Source, at: int) -> DeriveError:
    character = source.text[at]
    shown = character if character.isprintable() else ascii(character)[1:-1]
    instead = _INSTEAD.get(character, "")
    return source.refuse(
        "strange-character",
        f"{shown} is no character of the notation",
        (at, at + 1),
        help=f"write {instead}" if instead else "",
    )


def _check_word(source: Source, name: str, start: int, end: int) -> None:
    if name in kwlist and name not in {*_WORDS, "return", "True", "False"}:
        instead, free = _KEYWORD_INSTEAD.get(name), f"{name}_"
        while re.search(rf"\b{free}\b", source.text):
            free += "_"
        why = "and no part of the notation" if instead else "and cannot name anything in the code"
        says, advice = f"{name} is a word of Python {why}", f"write {instead or free}"
        raise source.refuse("python-keyword", says, (start, end), help=advice)


def _check_number(source: Source, text: str, start: int, end: int) -> None:
    if not is_readable(text):
        raise source.refuse("number-too-long", TOO_LONG, (start, end), help=MAKE_SCALAR)
    digits, _, _ = text.lower().partition("e")
    if len(digits) > 1 and digits.isdigit() and digits[0] == "0":
        says, advice = "a whole number does not start with 0", digits.lstrip("0") or "0"
        raise source.refuse("number-form", says, (start, end), help=f"write {advice}")


def _follow_brackets(source: Source, token: Token, opened: list[Token]) -> None:
    if token.kind != "op":
        return
    if token.text in _CLOSING:
        opened.append(token)
        if len(opened) > DEEPEST:
            says, advice = f"more than {DEEPEST} brackets are open at once", "its own equation"
            raise source.refuse("too-deep", says, token.span, help=f"give a part {advice}")
    elif token.text in _CLOSING.values():
        if not opened:
            says, advice = f"this {token.text} closes nothing", "take it out, or open a bracket"
            raise source.refuse("bracket-unopened", says, token.span, help=f"{advice} before it")
        start = opened.pop()
        if _CLOSING[start.text] != token.text:
            says, advice = f"{start.text} is closed by {token.text}", _CLOSING[start.text]
            spans = start.span, token.span
            raise source.refuse("bracket-mismatch", says, *spans, help=f"write {advice} there")
    elif token.text == "=" and opened and "\n" in source.text[opened[-1].start : token.start]:
        raise _refuse_unclosed(source, opened[-1])


def _refuse_unclosed(source: Source, token: Token) -> DeriveError:
    says, advice = f"this {token.text} is never closed", f"close it with {_CLOSING[token.text]}"
    return source.refuse("bracket-unclosed", says, token.span, help=advice)


def _check_words(source: Source, statement: tuple[Token, ...]) -> None:
    """Refuse misplaced `return`, `not` and `=`."""
    depth = 0
    for k, token in enumerate(statement):
        if token.text == "return" and k:
            says = "return begins a line and stands nowhere else"
            raise source.refuse("python-keyword", says, token.span, help="write return_")
        if token.text == "not" and k and statement[k - 1].text in _CALCULATING:
            says = f"not cannot stand behind {statement[k - 1].text}"
            raise source.refuse("syntax", says, token.span, help="put it into a bracket: [not ..]")
        depth += (token.text in _CLOSING) - (token.text in _CLOSING.values())
        # `f(.., name` up to here
        is_named = k > 1 and statement[k - 1].kind == "name" and statement[k - 2].text in {"(", ","}
        if token.text == "=" and depth > 0 and not is_named:
            says = "inside a bracket = says nothing"
            raise source.refuse("equation-sign", says, token.span, help="write == to compare")


def _check_neighbours(source: Source, statement: tuple[Token, ...]) -> None:
    """Refuse two values without an operator between them, and an operator without its values."""
    tokens = (None, *(statement[1:] if _is_declaring(statement) else statement), None)
    empty = {"()"} if any(token.text == "=" for token in statement) else {"()", "[]"}
    for here, after in pairwise(tokens):
        if here is not None and after is not None and _lacks_operator(here, after):
            raise _missing_operator(source, here, after, statement)
        if not _is_value(here, _CLOSING.values()) and not _is_value(after, {*_CLOSING, *_UNARY}):
            if here is not None and after is not None and here.text + after.text in empty:
                continue
            raise _missing_value(source, here, after)


def _is_value(token: Token | None, signs: Iterable[str]) -> bool:
    """Whether the token is a number, a name, or one of these signs."""
    return token is not None and (token.kind == "number" or token.text in signs or _is_name(token))


def _is_name(token: Token) -> bool:
    return token.kind == "name" and token.text not in _WORDS


def _lacks_operator(here: Token, after: Token) -> bool:
    if not _is_value(here, _CLOSING.values()) or after.text in _CLOSING.values():
        return False
    if after.text in _CLOSING:  # f(..), x[..] and sum[..](..) are fine
        return not (_is_name(here) or (here.text, after.text) == ("]", "("))
    return after.kind == "number" or _is_name(after) or after.text == "not"


def _missing_operator(
    source: Source, here: Token, after: Token, statement: Sequence[Token]
) -> DeriveError:
    if (here.text, after.text) == ("]", "["):
        advice = "write all places in one bracket, x[i, j], or * before an Iverson bracket"
    elif (here.text, after.text) == (")", "["):
        advice = "give what stands before [ a name by an equation of its own, p[i] = .., and read "
        advice += "p there; or write * before an Iverson bracket"
    elif statement[0].text in _LISTING:
        advice = f"write names with a comma between two: {statement[0].text} a, b"
    elif all(token.text != "=" for token in statement):
        advice = "write a comma between two extents, * to multiply them"
    else:
        advice = "write * between them to multiply"
    return source.refuse(
        "missing-operator",
        f"between {here.text} and {after.text} an operator is missing",
        (here.start, after.end),
        help=advice,
    )


def _missing_value(source: Source, here: Token | None, after: Token | None) -> DeriveError:
    """Return the error of an operator, a closing bracket or the end in place of a value."""
    if here is not None and after is not None and here.text == "=" and after.text == "=":
        return source.refuse(
            "equation-sign", "= and = apart are no sign", (here.start, after.end), help="write ="
        )
    if here is None or after is None:
        (token,) = filter(None, (here, after))
        says = f"something is missing {'before' if after else 'after'} {token.text}"
        span, advice = token.span, "put a value there, or take it out"
        if after is None:
            advice = "an equation goes on over a line's end where the next line is indented"
    else:
        says = f"something is missing between {here.text} and {after.text}"
        span, advice = (here.start, after.end), "put a value there, or take one of them out"
        if (here.text, after.text) == ("[", "]"):
            advice = "write an index for each place, or no bracket at all"
    return source.refuse("missing-value", says, span, help=advice)


class Call(NamedTuple):
    """`word[places](arguments)` or, without brackets, `word(arguments)`."""

    word: str
    brackets: tuple[ast.expr, ...] | None
    arguments: tuple[ast.expr, ...]
    keywords: tuple[ast.keyword, ...]
    name: ast.Name


def read_expression(source: Source, tokens: Sequence[Token]) -> ast.expr:
    """Return the tokens' tree; `col_offset` and `end_col_offset` are positions in the source."""
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
    """Return the start and the end of a node in the source."""
    return node.col_offset, node.end_col_offset or node.col_offset + 1


def refuse_depth_at(source: Source, start: int, end: int) -> DeriveError:
    """Return the error of an expression with too many levels or terms."""
    says = "this expression has more levels than can be followed"
    return source.refuse("too-deep", says, (start, end), help="give a part its own equation")


def read_elements(bracket: ast.expr) -> tuple[ast.expr, ...]:
    """Return the elements of a subscript."""
    return tuple(bracket.elts) if isinstance(bracket, ast.Tuple) else (bracket,)


def match_call(node: ast.expr) -> Call | None:
    """Return the node as a call of a word; None for other nodes."""
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
    """Convert columns, which count UTF-8 bytes of the piece, to positions in the source."""
    place_of = [k for k, c in enumerate(piece) for _ in c.encode()] + [len(piece)]
    for node in ast.walk(tree):
        if isinstance(node, (ast.expr, ast.keyword)):
            node.col_offset = start + place_of[node.col_offset]
            node.end_col_offset = start + place_of[node.end_col_offset or 0]


DECLARING = ("int", "bool", "complex", "scalar", "size", "index")
_RELATIONS = ("<", "<=", ">", ">=", "!=", "==")
_REVERSED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class TensorLine:
    """Tensors of one shape; a bound (relation, expression) has the tensor on its left."""

    kind: str  # real | int | bool | complex
    names: tuple[Token, ...]
    shape: tuple[ast.expr, ...]
    bounds: tuple[tuple[str, ast.expr], ...]


@dataclass(frozen=True, slots=True)
class NumberLine:
    """Scalars, or sizes that occur in no shape: name, default and bounds of each."""

    kind: str  # scalar | size
    entries: tuple[tuple[Token, ast.expr | None, tuple[tuple[str, ast.expr], ...]], ...]


@dataclass(frozen=True, slots=True)
class IndexLine:
    """Indices with one extent."""

    names: tuple[Token, ...]
    extent: ast.expr


@dataclass(frozen=True, slots=True)
class EquationLine:
    """An equation: tensor, places (None without brackets), value, and the span of its left side."""

    name: Token
    places: tuple[ast.expr, ...] | None
    value: ast.expr
    left: tuple[int, int]


@dataclass(frozen=True, slots=True)
class FunctionLine:
    """A user's function."""

    name: Token
    parameters: tuple[Token, ...]
    value: ast.expr


@dataclass(frozen=True, slots=True)
class ReturnLine:
    """The results in order."""

    names: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class RowsLine:
    """The weights of a fully masked row: zeros or nan."""

    value: str
    place: tuple[int, int]


Line: TypeAlias = (
    TensorLine | NumberLine | IndexLine | EquationLine | FunctionLine | RowsLine | ReturnLine
)


def read_statement(source: Source, tokens: Sequence[Token]) -> Line:
    """Parse one statement."""
    first = tokens[0]
    if first.text == "return":
        says = "after return stand names"
        return ReturnLine(_read_names(source, first, tokens[1:], says, "return z, alpha"))
    if _is_rows_line(tokens):
        value = " ".join(token.text for token in tokens[2:]).removeprefix("are ")
        if len(tokens) != 4 or value not in {"zeros", "nan"}:
            says = "empty rows are zeros or nan"
            raise _refuse_form(source, tokens, says, "empty rows are zeros")
        return RowsLine(value, find_span(tokens))
    if _is_declaring(tokens):
        return _read_declaring(source, first, tokens[1:])
    signs, sides = split_at(tokens, "=", "+=", "-=", "*=", "/=", "//=", "**=", "%=", ":=")
    if signs:
        return _read_equation(source, signs, sides)
    return _read_tensors(source, "real", tokens)


def _is_declaring(tokens: Sequence[Token]) -> bool:
    """Whether the statement is a word and a name, or a word and the lower bound of a number."""
    first, *rest = tokens
    is_bounded = first.text in {"scalar", "int"} and any(t.text in _REVERSED for t in rest)
    return (
        bool(rest)
        and _is_name(first)
        and (_is_name(rest[0]) or (is_bounded and _is_value(rest[0], "-")))
    )


def _read_declaring(source: Source, word: Token, rest: Sequence[Token]) -> Line:
    match word.text:
        case "int" | "bool" | "complex":
            return _read_tensors(source, word.text, rest)
        case "scalar" | "size" as kind:
            says = f"after {kind} stand names, each with a default or without"
            entries: list[tuple[Token, ast.expr | None, tuple[tuple[str, ast.expr], ...]]] = []
            for piece in split_at(rest, ",")[1]:
                signs, sides = split_at(piece, "=")
                relations, parts = split_at(sides[0], *_RELATIONS)
                named = [k for k, p in enumerate(parts) if len(p) == 1 and p[0].kind == "name"]
                name, bounds = _read_bounds(source, relations, parts, named)
                earlier = [
                    k for k, each in enumerate(entries) if name and each[0].text == name[0].text
                ]
                if kind == "scalar" and bounds and earlier and not signs:  # h = 1, h > 0
                    first, known, others = entries[earlier[0]]
                    entries[earlier[0]] = (first, known, (*others, *bounds))
                    continue
                is_open = kind == "size" or not all(known for *_, known in entries)
                if len(signs) > 1 or name is None or (bounds and is_open):
                    example = "size W or size Z = 2"
                    if kind == "scalar":
                        is_bounded = any(split_at(side, *_RELATIONS)[0] for side in sides)
                        example = "scalar h > 0 = 1" if is_bounded else "scalar eps = 1e-5, tau"
                    raise _refuse_form(source, piece, says, example)
                default = read_expression(source, sides[1]) if signs else None
                entries.append((name[0], default, bounds))
            return NumberLine(kind, tuple(entries))
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
            return IndexLine(names, read_expression(source, sides[1]))
        case _:
            advice = errors.suggest(word.text, (*DECLARING, "return"))
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


def _read_tensors(source: Source, kind: str, tokens: Sequence[Token]) -> TensorLine:
    signs, pieces = split_at(tokens, *_RELATIONS, "=", "+=")
    for sign in signs:
        if sign.text in {"==", "!="}:
            says = f"an equation is written with =, and {sign.text} only compares"
            advice = "write = instead" if sign.text == "==" else ""
            raise source.refuse("equation-sign", says, sign.span, help=advice)
    if any(sign.text not in _REVERSED for sign in signs):
        raise _refuse_form(source, tokens, "an equation begins with no word", "y[b, i] = x[b, i]")
    named = (k for k, p in enumerate(pieces) if p and p[0].kind == "name" and p[-1].text == "]")
    plain = (k for k in named if not split_at(pieces[k], "+", "-", "*", "/", "//", "%", "**")[0])
    declared, bounds = _read_bounds(source, signs, pieces, [*plain])
    if declared is None:
        raise _no_statement(source, kind, tokens)
    return TensorLine(kind, *_read_shape(source, declared), bounds)


def _read_bounds(
    source: Source, signs: Sequence[Token], pieces: list[list[Token]], plain: Sequence[int]
) -> tuple[list[Token] | None, tuple[tuple[str, ast.expr], ...]]:
    """Return the first of the `plain` pieces, the declared one, and its bounds; else (None, ())."""
    middle = plain[0] if plain else None
    is_strange = any(sign.text not in _REVERSED for sign in signs)
    if middle is None or is_strange or len(signs) > 2 or (len(signs) == 2 and middle != 1):
        return None, ()
    bounds = []
    for k, sign in enumerate(signs):
        bound = read_expression(source, pieces[k] if k < middle else pieces[k + 1])
        bounds.append((_REVERSED[sign.text] if k < middle else sign.text, bound))
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


def _read_equation(
    source: Source, signs: Sequence[Token], sides: list[list[Token]]
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
                    raise _refuse_form(source, [token], says, example)
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
    """Whether the first token opens a bracket that the last one closes."""
    depths = accumulate((t.text in _CLOSING) - (t.text in _CLOSING.values()) for t in tokens)
    return next((k for k, depth in enumerate(depths) if not depth), -1) == len(tokens) - 1


def _refuse_form(
    source: Source, tokens: Sequence[Token], says: str, example: str
) -> errors.DeriveError:
    return source.refuse("statement-form", says, find_span(tokens), help=f"write it like {example}")


def _no_statement(source: Source, kind: str, tokens: Sequence[Token]) -> errors.DeriveError:
    name = tokens[0].text
    if len(tokens) > 1 and tokens[0].kind == "name" and tokens[1].text in _REVERSED:
        advice = f"write scalar {source.text[tokens[0].start : tokens[-1].end]} for a number"
    elif len(tokens) == 1 and tokens[0].kind == "name" and name not in DECLARING:
        advice = f"write {name}[N] for a tensor, scalar {name} for a number, size {name} for a size"
    elif kind != "real":
        advice = "write it like int src, dst[E] < N  or  bool m[B, S]  or  complex z[N]"
    elif tokens[0].kind == "name" and tokens[-1].text == "]":
        advice = "write it like X[B, S]"
    else:
        advice = "name the result: y[b, i] = .."
    says = "this is neither a declaration nor an equation"
    return source.refuse("statement-form", says, find_span(tokens), help=advice)
