"""Line breaks of a generated file; `fit_..` fit one statement into `room` columns."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files

WIDTH = 100
INDENT = "    "


def wrap_text(text: str, first: str = "", later: str = "", width: int = WIDTH) -> list[str]:
    """The text over lines of at most `width` columns, broken at blanks."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=later,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]


def indent(lines: Iterable[str], depth: int = 1) -> list[str]:
    """The lines indented by `depth` levels; empty lines stay empty."""
    return [f"{INDENT * depth}{line}" if line else "" for line in lines]


def quote(lines: Sequence[str]) -> list[str]:
    """The lines as a docstring."""
    return [f'"""{lines[0]}', *lines[1:], '"""'] if len(lines) > 1 else [f'"""{lines[0]}"""']


def write_function(head: str, *parts: Iterable[str], depth: int = 0) -> str:
    """The text of a function: its `def` line, and the indented lines of all parts."""
    body = [line for part in parts for line in indent(part)]
    return "\n".join([*indent([*head.split("\n"), *body], depth), ""])


@cache
def read_helpers() -> Mapping[str, str]:
    """The texts of the helper functions that a generated file may contain, by name."""
    text = files("derive.backend").joinpath("helpers.txt").read_text(encoding="utf-8")
    parts = re.split(r"^(?=def (\w+))", text, flags=re.MULTILINE)
    return {name: f"{part.rstrip()}\n" for name, part in zip(parts[1::2], parts[2::2], strict=True)}


def is_read(name: str, lines: Iterable[str]) -> bool:
    """Whether lines of code read a name; comments and strings do not count."""
    code = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    # Letters of a contraction are no names; expressions in braces may be.
    code = re.sub(r'(f?)"[^"]*"', lambda text: text[0] if text[1] else "", code)
    return re.search(rf"\b{name}\b", code) is not None


def to_tuple(names: Sequence[str]) -> str:
    """The text of a tuple: `(a, b)`, `(a,)`."""
    return f"({', '.join(names)}{',' * (len(names) == 1)})"


def fit_signature(name: str, arguments: list[str], returns: str, room: int = WIDTH) -> str:
    """The `def` line of a function, over several lines if it is too long."""
    line = f"def {name}({', '.join(arguments)}) -> {returns}:"
    if len(line) <= room:
        return line
    inner = f"{INDENT}{', '.join(arguments)}"
    rows = [inner] if len(inner) <= room else [f"{INDENT}{each}," for each in arguments]
    return "\n".join([f"def {name}(", *rows, f") -> {returns}:"])


def fit_assignment(name: str, value: str, room: int = WIDTH - len(INDENT)) -> list[str]:
    """`name = value`, or `return value` for an empty name, in parentheses if it is too long."""
    head = f"{name} = " if name else "return "
    if len(head) + len(value) <= room:
        return [f"{head}{value}"]
    depth = (WIDTH - room) // len(INDENT) - 1
    rows = _break(value, depth)
    if rows == [value] and (broken := _break_call(value, depth))[-1] == ")":
        rows = broken
    is_call = rows[0].endswith("(") and all(row.startswith(INDENT) for row in rows[1:-1])
    if is_call and rows[-1].startswith(")"):
        return [f"{head}{rows[0]}", *rows[1:]]  # a call has brackets of its own
    return [f"{head}(", *indent(rows), ")"]


def fit_append(name: str, value: str, room: int = WIDTH - 2 * len(INDENT)) -> list[str]:
    """`name.append(value)` inside a loop, over several lines if it is too long."""
    line = f"{name}.append({value})"
    if len(line) <= room:
        return [line]
    rows = _break(value, (WIDTH - room) // len(INDENT) - 1)
    return [f"{name}.append(", *indent(rows), ")"]


def fit_for(
    names: list[str], iterables: list[str], room: int = WIDTH - len(INDENT), end: str = ":"
) -> list[str]:
    """The `for` line of a loop over one iterable, or over several by `zip`."""
    if len(names) == 1:
        return [f"for {names[0]} in {iterables[0]}{end}"]
    parts = [*iterables, "strict=True"]
    line = f"for {', '.join(names)} in zip({', '.join(parts)}){end}"
    if len(line) <= room:
        return [line]
    head = [f"for {', '.join(names)} in zip("]
    if len(head[0]) > room:
        head = ["for (", *wrap_text(", ".join(names), INDENT, INDENT, room), ") in zip("]
    return [*head, *(f"{INDENT}{part}," for part in parts), f"){end}"]


def _break(value: str, depth: int = 0) -> list[str]:
    """The lines of an expression, broken before operators outside brackets.

    `a if c else b` is broken before `if` and `else`, a call after its commas. `depth` is the level
    of indentation.
    """
    room = WIDTH - (2 + depth) * len(INDENT)
    parts = _split_line(value, (" if ", " else "), 0)
    if len(parts) > 1:
        return [row for part in parts for row in _fit(part, room, depth)]
    rows = _split_line(value, (" + ", " - ", " * ", " / ", " & ", " | ", " > ", " < "), 0)
    if len(rows) == 1 and len(value) > room:
        return _break_call(value, depth)
    return rows


def _break_call(value: str, depth: int) -> list[str]:
    """The lines of an expression whose first call has its arguments on one line, or one on each."""
    if "(" not in value:
        return [value]
    start, opened = value.index("(") + 1, 1
    end = start
    while opened:
        opened += (value[end] in "([") - (value[end] in ")]")
        end += 1
    inner = value[start : end - 1]
    room = WIDTH - (3 + depth) * len(INDENT)
    parts = [inner] if len(inner) <= room else _split_line(inner, (", ",), 0)
    rows = [row for part in parts for row in _fit(part, room, depth + 1)]
    return [value[:start], *indent(rows), value[end - 1 :]]


def _fit(part: str, room: int, depth: int) -> list[str]:
    """The line of a part, or its lines, with those after the first indented."""
    if len(part) <= room or "(" not in part:
        return [part]
    first, *later = _break(part, depth)
    return [first, *(later if first.endswith("(") else indent(later))]


def _split_line(value: str, signs: tuple[str, ...], level: int) -> list[str]:
    """The pieces of a text between signs at one level of brackets; a comma stays in its piece."""
    depth, start = 0, 0
    pieces = []
    for k, sign in enumerate(value):
        depth += (sign in "([") - (sign in ")]")
        if depth == level and any(value.startswith(s, k) for s in signs):
            end = k + 1 if sign == "," else k
            pieces.append(value[start:end])
            start = end + 1
    return [*pieces, value[start:]]


def fit_call(
    function: str, targets: str, arguments: list[str], room: int = WIDTH - len(INDENT)
) -> list[str]:
    """`targets = function(arguments)`, over several lines if it is too long."""
    head = fit_targets(targets, room - len(function) - 1)
    line = f"{head[-1]}{function}({', '.join(arguments)})"
    if len(line) <= room:
        return [*head[:-1], line]
    inner = wrap_text(", ".join(arguments), width=room - len(INDENT))
    return [*head[:-1], f"{head[-1]}{function}(", *indent(inner), ")"]


def fit_targets(targets: str, room: int) -> list[str]:
    """`targets = `, over several lines in parentheses if it is too long; [""] without targets."""
    if not targets:
        return [""]
    if len(targets) + 3 <= room:
        return [f"{targets} = "]
    return ["(", *wrap_text(targets, INDENT, INDENT, room), ") = "]
