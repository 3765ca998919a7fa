r"""The equations and the declarations among the lines of a LaTeX text; prose is skipped.

An equation is inside `$..$`, `\[..\]` or an environment, or the text has no such delimiters. A
declaration is a shape `X: [B, S]` or `W \in \mathbb{R}^{D \times E}`, a line of the notation, or a
remark such as `vectors are columns`.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from keyword import iskeyword

from derive.errors import Mark, refuse
from derive.frontend.latex import nodes as tex
from derive.frontend.latex.names import Shapes, write_extent
from derive.frontend.latex.nodes import Name
from derive.frontend.latex.tree import Reader
from derive.frontend.text import lines as statements
from derive.frontend.text.tokens import Source, split_statements

_ENVIRONMENT = (
    r"(?:align|aligned|equation|gather|gathered|multline|eqnarray|split|displaymath|math)\*?"
)
_SEGMENT = re.compile(
    r"\$\$(.+?)\$\$|\$(.+?)\$|\\\[(.+?)\\\]|\\\((.+?)\\\)"
    rf"|\\begin\{{{_ENVIRONMENT}\}}(.+?)\\end\{{{_ENVIRONMENT}\}}",
    re.DOTALL,
)
_ROW = re.compile(r"(\\\\(?:\[[^\]]*\])?|\n|^)((?:(?!\\\\|\n).)*)")
_IGNORED = re.compile(r"\\(?:label|tag)\{[^{}]*\}|\\(?:begin|end)\{(?:aligned|split|gathered)\}")
_NAMED = (
    r"(?=[\\\w])(?:\\[A-Za-z]+\s*)?(?:\{[^{}]*\}|[^\W\d]\w*(?:(?<!_)|(?![{\\])))?'*"
    r"(?:[_^](?:\{[^{}]*\}|\\[A-Za-z]+|\w))*'*"
)
_SHAPE = re.compile(
    rf"\s*(?P<each>(?:each|every|all)\s+)?(?P<names>{_NAMED}(?:\s*,\s*{_NAMED})*)\s*"
    r"(?::\s*(?:shape\s*)?[\[(](?P<extents>[^\[\]]*)[\])]"
    r"|\\in\s*\\mathbb\s*\{?\s*R\s*\}?\s*"
    r"\^\s*(?:\{(?P<power>(?:[^{}]|\{[^{}]*\})*)\}|(?P<single>\w)))\s*(?:$|[,.;]\s*(?:and\s+)?|and\s+)"
)
_SIGN = r"(?:[-+*/]|\\(?:cdot|times|odot|wedge|vee|land|lor)(?![A-Za-z]))"
# a line of names and separators only
_MENTIONED = re.compile(rf"[\s(]*{_NAMED}(?:\s*[,(]\s*{_NAMED})*[\s),.;]*$")
_BEGINS = re.compile(rf"^\s*{_NAMED}\s*(?:\([^()=]*\)\s*)?&?=(?!=)")
_COUNTED = re.compile(r"(?:\s*&\s*\\text\{)?\s*(?:indices|places) count from ([01])[\s}]*$")
_VECTORS = re.compile(r"\s*vectors are (rows|columns)\s*$")
NOTATION = re.compile(
    r"^\s*(?:int|bool|complex|scalar|size|index|return)\b|^\s*(?:&\s*\\text\{)?empty rows are\b"
    r"|^\s*(?:[\d./-]+\s*[<>]=?\s*)?\w+(?:\s*,\s*\w+)*\[[^\]]*\]\s*(?:[<>]=?.*)?$"
)


def split_text(text: str) -> tuple[list[str], list[str]]:
    """Return the pair (lines of equations, lines of declarations)."""
    text = re.sub(r"(?<!\\)%.*", "", text)
    is_marked = _SEGMENT.search(text) is not None
    lines: list[str] = []
    stated: list[str] = []
    for segment, is_prose in split_prose(text):
        if is_prose:
            stated += (each for line in segment.split("\n") for each in split_stated(line))
            continue
        first = len(lines)
        parts: list[tuple[str, str]] = []
        for ends, part in _ROW.findall(_IGNORED.sub("", segment)):
            before = parts[-1][1] if parts else ""
            if before.count("\\begin{cases}") > before.count("\\end{cases}"):
                parts[-1] = (parts[-1][0], f"{before}{ends}{part}")
            else:
                pieces = part.split(";")  # shapes after the equation in one line
                parts += [(ends, e) for e in (pieces if any(map(split_stated, pieces)) else [part])]
        for ends, part in parts:
            line = " ".join(part.split())
            if declared := split_stated(line):
                stated += declared
            elif "=" in line:
                lines.append(line)
            elif len(lines) > first and (
                (is_marked and ends == "\n") or is_continued(lines[-1], line)
            ):
                lines[-1] += f" {line}"
            elif line.strip(" &,.") and (not is_marked or not _MENTIONED.match(line)):
                is_shape = re.match(rf"\s*{_NAMED}(?:\s*,\s*{_NAMED})*\s*:", line) is not None
                says = "this declares nothing" if is_shape else "there is no = in this line"
                advice = "an equation is y_i = ..; the shape of a tensor is X: [B, S, D]"
                advice += "; a remark stands outside of the signs for formulas" if is_marked else ""
                raise tex.refuse_at(says, line, advice)
    return lines, stated


def is_continued(line: str, more: str) -> bool:
    """Whether an equation continues in the next line: at an operator, or in open brackets."""
    is_open = sum(map(line.count, "([{")) > sum(map(line.count, ")]}"))
    sign = re.search(rf"(?:{_SIGN}|=)[\s&]*\n|\n(?:[\s&]|\\qq?uad)*{_SIGN}", f"{line}\n{more}")
    return is_open or sign is not None


def split_prose(text: str) -> Iterator[tuple[str, bool]]:
    """Yield pairs (part of a text, whether it is prose: outside math delimiters).

    A part outside in which a line begins like an equation is no prose.
    """
    end, found = 0, [*_SEGMENT.finditer(text)]
    for each in found:
        between = text[end : each.start()]
        yield between, not any(map(_BEGINS.match, between.split("\n")))
        yield next(filter(None, each.groups())), False
        end = each.end()
    rest = text[end:]
    yield rest, bool(found) and not any(map(_BEGINS.match, rest.split("\n")))


def split_stated(line: str) -> list[str]:
    """Return the declarations in the line: the whole line, or its shapes; [] for other lines."""
    if any(form.match(line) for form in (NOTATION, _VECTORS, _COUNTED)):
        return [line]
    parts, end = list[str](), 0
    while found := _SHAPE.match(line, end):
        parts.append(found[0])
        end = found.end()
    return parts if end == len(line) else []


def read_shapes(stated: Sequence[str]) -> Shapes:
    """Return the shapes and other facts that lines of declarations give."""
    tensors: dict[str, tuple[str, ...]] = {}
    families: dict[str, tuple[str, ...]] = {}
    scalars: set[str] = set()
    indices: dict[str, str] = {}
    has_rows: bool | None = None
    counted: int | None = None
    kept, returned = list[str](), list[str]()
    for line in map(to_plain, stated):
        if kind := _VECTORS.match(line):
            has_rows = kind[1] == "rows"
            continue
        if kind := _COUNTED.match(line):
            counted = int(kind[1])
            continue
        shape = _SHAPE.match(line)
        if shape is None and not NOTATION.match(line):
            advice = "write X: [B, S, D], or a line of the notation"
            raise tex.refuse_at("this declares nothing", line, advice)
        if shape is None:
            source = Source(line.strip())
            stated_lines = statements.read_statement(source, next(iter(split_statements(source))))
            for each in stated_lines:
                words = [token.text for token in each.names]
                if each.word in {"scalar", "size"}:
                    scalars |= {*words}
                elif each.word == "index":
                    indices |= dict.fromkeys(words, ast.unparse(each.value))
                elif each.places is not None:
                    tensors |= dict.fromkeys(words, tuple(map(ast.unparse, each.places)))
            (returned if stated_lines[0].word == "return" else kept).append(line.strip())
            continue
        if shape["extents"] is not None:
            extents = tuple(map(read_extent, filter(str.strip, shape["extents"].split(","))))
        else:
            power = shape["single"] or shape["power"]
            extents = tuple(map(read_extent, filter(str.strip, re.split(r"\\times|,", power))))
        for each in re.findall(_NAMED, shape["names"]):
            word = read_word(each)
            (families if shape["each"] else tensors)[word] = extents
    return Shapes(tensors, families, scalars, indices, kept, returned, has_rows, counted)


def to_plain(line: str) -> str:
    r"""Return a line such as `int \mu: [N] < C` in the notation; other lines unchanged."""
    if rows := re.search(r"\bempty rows are \w+", line):
        return rows[0]
    found = re.match(r"\s*(int|bool|complex|scalar|size|index)\b(.*)$", line)
    if found is None:
        return line
    names = re.sub(rf"(?<![\w\\]){_NAMED}", lambda each: read_word(each[0]), found[2])
    return found[1] + re.sub(r"\s*:\s*[\[(](.*?)[\])]", r"[\1]", names)


def read_word(text: str) -> str:
    """Return a name of a declaration as in the notation: W_Q of `W^Q`."""
    tree = Reader(text).read_factor() if re.search(r"[\\^{']", text) else None
    if not isinstance(tree, Name):
        return f"{text.strip()}_" if iskeyword(text.strip()) else text.strip()
    return tex.write_name(tree)[0]


def read_extent(text: str) -> str:
    """Return an extent in the notation, D_z of `D_{z}`; DeriveError for other than + and -."""
    extent = write_extent(Reader(text).read_sum())
    if not extent:
        says = "an extent is made of sizes, numbers and + -"
        raise refuse("extent-form", says, marks=[Mark(text, 0, len(text))])
    return extent
