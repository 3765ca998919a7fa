"""Lines of a generated file: at most WIDTH columns, broken where a reader expects it."""

from __future__ import annotations

import textwrap

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


def fit_signature(name: str, arguments: list[str], returns: str, room: int = WIDTH) -> str:
    """The line that begins a function, or as few lines as hold it."""
    line = f"def {name}({', '.join(arguments)}) -> {returns}:"
    if len(line) <= room:
        return line
    inner = f"{INDENT}{', '.join(arguments)}\n"
    rows = inner if len(inner) <= room else "".join(f"{INDENT}{a},\n" for a in arguments)
    return f"def {name}(\n{rows}) -> {returns}:"


def fit_assignment(name: str, value: str, room: int = WIDTH - len(INDENT)) -> list[str]:
    """`name = value`, or `return value`, over several lines in parentheses where it is too long."""
    head = f"{name} = " if name else "return "
    if len(head) + len(value) <= room:
        return [f"{head}{value}"]
    rows = _break(value, (WIDTH - room) // len(INDENT) - 1)
    is_call = rows[0].endswith("(") and all(row.startswith(INDENT) for row in rows[1:-1])
    if is_call and rows[-1].startswith(")"):
        return [f"{head}{rows[0]}", *rows[1:]]  # a call has brackets of its own
    return [f"{head}(", *(f"{INDENT}{row}" for row in rows), ")"]


def fit_append(name: str, value: str, room: int = WIDTH - 2 * len(INDENT)) -> list[str]:
    """`name.append(value)` inside a loop."""
    line = f"{name}.append({value})"
    if len(line) <= room:
        return [line]
    return [
        f"{name}.append(",
        *(f"{INDENT}{row}" for row in _break(value, (WIDTH - room) // len(INDENT) - 1)),
        ")",
    ]


def fit_for(
    names: list[str], iterables: list[str], room: int = WIDTH - len(INDENT), end: str = ":"
) -> list[str]:
    """The line that begins a loop over one thing, or over several side by side."""
    if len(names) == 1:
        return [f"for {names[0]} in {iterables[0]}{end}"]
    parts = [*iterables, "strict=True"]
    line = f"for {', '.join(names)} in zip({', '.join(parts)}){end}"
    if len(line) <= room:
        return [line]
    head = f"for {', '.join(names)} in zip("
    rows = (
        [head]
        if len(head) <= room
        else [
            "for (",
            *wrap_text(", ".join(names), INDENT, INDENT, room),
            ") in zip(",
        ]
    )
    return [*rows, *(f"{INDENT}{part}," for part in parts), f"){end}"]


def _break(value: str, depth: int = 0) -> list[str]:
    """A long expression, broken before the operators that stand outside all brackets.

    A choice is broken before its `if` and `else` alone, as far as they fit. A single call that is
    still too long is broken after its commas; `depth` is how far in it stands.
    """
    room = WIDTH - (2 + depth) * len(INDENT)
    parts = _split(value, (" if ", " else "), 0)
    if len(parts) > 1:
        return [row for part in parts for row in _fit(part, room, depth)]
    rows = _split(value, (" + ", " - ", " * ", " / ", " & ", " | ", " > ", " < "), 0)
    if len(rows) == 1 and len(value) > room and "(" in value:
        return _break_call(value, depth)
    return rows


def _break_call(value: str, depth: int) -> list[str]:
    """The arguments of the first call on a line of their own, or on one each."""
    start = value.index("(") + 1
    end = next(k for k in range(start, len(value)) if _is_closed(value[start - 1 : k + 1]))
    inner = value[start:end]
    room = WIDTH - (3 + depth) * len(INDENT)
    parts = [inner] if len(inner) <= room else _split(inner, (", ",), 0)
    rows = [row for part in parts for row in _fit(part, room, depth + 1)]
    return [value[:start], *(f"{INDENT}{row}" for row in rows), value[end:]]


def _fit(part: str, room: int, depth: int) -> list[str]:
    """A part on its line, or on as many as it needs."""
    return _hang(part, depth) if len(part) > room and "(" in part else [part]


def _is_closed(text: str) -> bool:
    """Are all its brackets closed?"""
    return sum(text.count(sign) for sign in "([") == sum(text.count(sign) for sign in ")]")


def _hang(value: str, depth: int) -> list[str]:
    """A long expression, its lines after the first further in."""
    first, *later = _break(value, depth)
    is_call = first.endswith("(")
    return [first, *later] if is_call else [first, *(f"{INDENT}{row}" for row in later)]


def _split(value: str, signs: tuple[str, ...], level: int) -> list[str]:
    """The text in pieces, parted at the signs at one level of brackets; a comma ends its piece."""
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
    """`targets = function(arguments)` over as many lines as it needs."""
    head = fit_targets(targets, room - len(function) - 1)
    line = f"{head[-1]}{function}({', '.join(arguments)})"
    if len(line) <= room:
        return [*head[:-1], line]
    inner = wrap_text(", ".join(arguments), width=room - len(INDENT))
    return [*head[:-1], f"{head[-1]}{function}(", *(f"{INDENT}{row}" for row in inner), ")"]


def fit_targets(targets: str, room: int) -> list[str]:
    """`targets = `, in parentheses over several lines where it is too long."""
    if not targets:
        return [""]
    if len(targets) + 3 <= room:
        return [f"{targets} = "]
    return ["(", *wrap_text(targets, INDENT, INDENT, room), ") = "]
