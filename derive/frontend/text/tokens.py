"""Into which tokens and statements a text is split.

    text      = statement ((newline | ";") statement)*
    statement = token+           over lines inside an open bracket, and where an operator ends a
                                 line or begins the next one, which is indented
    token     = name | number | operator | bracket
    comment   = "#" up to the end of the line

It refuses unknown characters, keywords of Python, unbalanced brackets, and missing or surplus
operators. Almost all token sequences that pass are expressions of Python.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from keyword import kwlist
from typing import Any
from unicodedata import normalize

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
CLOSING = {"(": ")", "[": "]"}
_WORDS = {"and", "or", "not"}
_OPERATORS = {"**", "//", "==", "<=", ">=", "!=", *"+-*/%<>=,"}
_CALCULATING = _OPERATORS - {"=", ","}
REVERSED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
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
    """A token of the text and its positions there."""

    kind: str  # name | number | op
    text: str
    start: int
    end: int

    @property
    def span(self) -> tuple[int, int]:
        """The positions (start, end) in the whole text."""
        return self.start, self.end


@dataclass(frozen=True, slots=True)
class Source:
    """The whole text, from which errors quote lines."""

    text: str

    def mark(self, start: int, end: int) -> Mark:
        """Return the line at `start`, marked up to `end` or to the end of the line."""
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
    """Return the positions (start of the first token, end of the last one)."""
    return tokens[0].start, tokens[-1].end


def split_statements(source: Source) -> list[tuple[Token, ...]]:
    """Return the tokens of each statement, without empty ones; DeriveError for misplaced tokens."""
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
        if not is_rows_line(statement):
            _check_neighbours(source, statement)
    return statements


def is_rows_line(statement: Sequence[Token]) -> bool:
    """Whether the statement begins with `empty rows`."""
    return [token.text for token in statement[:2]] == ["empty", "rows"]


def is_declaring(tokens: Sequence[Token]) -> bool:
    """Whether a statement is a word before a name or a bound: `scalar eps`, `int 0 <= n[N] < S`."""
    first, *rest = tokens
    is_bounded = first.text in {"scalar", "int"} and any(t.text in REVERSED for t in rest)
    return (
        bool(rest)
        and _is_name(first)
        and (_is_name(rest[0]) or (is_bounded and _is_value(rest[0], "-")))
    )


def split_at(tokens: Sequence[Token], *texts: str) -> tuple[list[Token], list[list[Token]]]:
    """Return (separators, pieces between them); a separator is outside brackets, one of `texts`."""
    depth, found, pieces = 0, [], [[]]  # type: ignore[var-annotated]
    for token in tokens:
        if token.kind == "op" and token.text in texts and depth == 0:
            found.append(token)
            pieces.append([])
            continue
        if token.kind == "op":
            depth += (token.text in CLOSING) - (token.text in CLOSING.values())
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
    if token.text in CLOSING:
        opened.append(token)
        if len(opened) > DEEPEST:
            says, advice = f"more than {DEEPEST} brackets are open at once", "its own equation"
            raise source.refuse("too-deep", says, token.span, help=f"give a part {advice}")
    elif token.text in CLOSING.values():
        if not opened:
            says, advice = f"this {token.text} closes nothing", "take it out, or open a bracket"
            raise source.refuse("bracket-unopened", says, token.span, help=f"{advice} before it")
        start = opened.pop()
        if CLOSING[start.text] != token.text:
            says, advice = f"{start.text} is closed by {token.text}", CLOSING[start.text]
            spans = start.span, token.span
            raise source.refuse("bracket-mismatch", says, *spans, help=f"write {advice} there")
    elif token.text == "=" and opened and "\n" in source.text[opened[-1].start : token.start]:
        raise _refuse_unclosed(source, opened[-1])


def _refuse_unclosed(source: Source, token: Token) -> DeriveError:
    says, advice = f"this {token.text} is never closed", f"close it with {CLOSING[token.text]}"
    return source.refuse("bracket-unclosed", says, token.span, help=advice)


def _check_words(source: Source, statement: tuple[Token, ...]) -> None:
    """Raise DeriveError for a misplaced `return`, `not` or `=`."""
    depth = 0
    for k, token in enumerate(statement):
        if token.text == "return" and k:
            says = "return begins a line and stands nowhere else"
            raise source.refuse("python-keyword", says, token.span, help="write return_")
        if token.text == "not" and k and statement[k - 1].text in _CALCULATING:
            says = f"not cannot stand behind {statement[k - 1].text}"
            raise source.refuse("syntax", says, token.span, help="put it into a bracket: [not ..]")
        depth += (token.text in CLOSING) - (token.text in CLOSING.values())
        # whether a keyword argument `f(.., name=` begins here
        is_named = k > 1 and statement[k - 1].kind == "name" and statement[k - 2].text in {"(", ","}
        if token.text == "=" and depth > 0 and not is_named:
            says = "inside a bracket = says nothing"
            raise source.refuse("equation-sign", says, token.span, help="write == to compare")


def _check_neighbours(source: Source, statement: tuple[Token, ...]) -> None:
    """Raise DeriveError for two values without an operator, and an operator without its values."""
    tokens = (None, *(statement[1:] if is_declaring(statement) else statement), None)
    empty = {"()"} if any(token.text == "=" for token in statement) else {"()", "[]"}
    for here, after in pairwise(tokens):
        if here is not None and after is not None and _lacks_operator(here, after):
            raise _refuse_missing_operator(source, here, after, statement)
        if not _is_value(here, CLOSING.values()) and not _is_value(after, {*CLOSING, *_UNARY}):
            if here is not None and after is not None and here.text + after.text in empty:
                continue
            raise _refuse_missing_value(source, here, after)


def _is_value(token: Token | None, signs: Iterable[str]) -> bool:
    """Whether the token is a number, a name, or one of these signs."""
    return token is not None and (token.kind == "number" or token.text in signs or _is_name(token))


def _is_name(token: Token) -> bool:
    return token.kind == "name" and token.text not in _WORDS


def _lacks_operator(here: Token, after: Token) -> bool:
    if not _is_value(here, CLOSING.values()) or after.text in CLOSING.values():
        return False
    if after.text in CLOSING:  # f(..), x[..] and sum[..](..) are fine
        return not (_is_name(here) or (here.text, after.text) == ("]", "("))
    return after.kind == "number" or _is_name(after) or after.text == "not"


def _refuse_missing_operator(
    source: Source, here: Token, after: Token, statement: Sequence[Token]
) -> DeriveError:
    advice = "write * between them to multiply"
    if (here.text, after.text) == ("]", "["):
        advice = "write all places in one bracket, x[i, j], or * before an Iverson bracket"
    elif statement[0].text in _LISTING or all(token.text != "=" for token in statement):
        advice = "write a comma between two, or * to multiply them"
    return source.refuse(
        "missing-operator",
        f"between {here.text} and {after.text} an operator is missing",
        (here.start, after.end),
        help=advice,
    )


def _refuse_missing_value(source: Source, here: Token | None, after: Token | None) -> DeriveError:
    """Return the error of an operator, a closing bracket or the end in place of a value."""
    tokens = [token for token in (here, after) if token is not None]
    side = "between" if len(tokens) > 1 else "before" if after else "after"
    says = f"something is missing {side} {' and '.join(token.text for token in tokens)}"
    advice = "put a value there, or take out what stands beside it"
    return source.refuse("missing-value", says, (tokens[0].start, tokens[-1].end), help=advice)
