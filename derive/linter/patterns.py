"""What is wrong in a pattern of einops' rearrange, reduce or repeat.

    pattern = side "->" side
    side    = (name | "1" | number | "..." | "(" name* ")")*

    rearrange   the same names on both sides
    reduce      the right side has no new names; what it lacks is reduced
    repeat      the left side's names are all on the right; new ones have a size, h=8 or a number

A bracket on the left may have one name whose size is not given.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from derive.linter.spec import DOTS, Fault, Letter, is_word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TOKEN = re.compile(r"[()]|[^\s()]+")
_NO_SIZES = ("pattern", "reduction", "tensor")  # keywords that are no size
_FORM = 'write it like "b (h d) -> b h d"'


def find_fault(
    pattern: str, function: str, keywords: Sequence[str], has_more: bool
) -> Fault | None:
    """The first mistake in a pattern, `has_more` where further sizes may be given."""
    if pattern.count("->") != 1:
        says = "there is more than one ->" if "->" in pattern else "the pattern has no ->"
        return Fault("invalid-string", says, help=_FORM)
    left_text, _, right_text = pattern.partition("->")
    left = tuple(_split(left_text, 0))
    right = tuple(_split(right_text, len(left_text) + 2))
    sizes = [name for name in keywords if name not in _NO_SIZES]
    faults = (
        *_find_form_faults(left),
        *_find_form_faults(right),
        *_find_dots_faults(left, right),
        *_find_one_sided(left, right, function),
        *_find_size_faults(left, right, sizes, has_more),
    )
    return next(iter(faults), None)


def _split(text: str, start: int) -> Iterator[Letter]:
    for match in _TOKEN.finditer(text):
        yield Letter(match[0], start + match.start(), start + match.end())


def _names(side: Sequence[Letter]) -> list[Letter]:
    """The names of a side; a 1 is none."""
    return [c for c in side if c.name not in {"(", ")", "1"}]


def _find_form_faults(side: Sequence[Letter]) -> Iterator[Fault]:
    opened: Letter | None = None
    seen: set[str] = set()
    for letter in side:
        start, end = letter.start, letter.end
        match letter.name:
            case "(" if opened:
                says = "a bracket stands inside a bracket"
                yield Fault("invalid-string", says, start, end, "einops has one level of brackets")
            case "(":
                opened = letter
            case ")" if opened is None:
                says = "this bracket was never opened"
                yield Fault("invalid-string", says, start, end, "open it with (, or take it out")
            case ")":
                opened = None
            case name if name in seen:
                says = f"{name} is on this side twice"
                yield Fault("pattern-names", says, start, end, "each name stands once on a side")
            case name if name != DOTS and not name.isdecimal() and not is_word(name):
                kind = "invalid-ellipsis" if "." in name else "invalid-string"
                says = f"{name} is no name of an index"
                advice = "an ellipsis is three dots, with blanks around it"
                if kind == "invalid-string":
                    advice = "names are like those of Python, without _ in front or behind"
                yield Fault(kind, says, start, end, advice)
            case name if not name.isdecimal():
                seen.add(name)
    if opened:
        says = "this bracket is never closed"
        yield Fault("invalid-string", says, opened.start, opened.end, "close it with )")


def _find_dots_faults(left: Sequence[Letter], right: Sequence[Letter]) -> Iterator[Fault]:
    is_inside = False
    for letter in left:
        is_inside = letter.name == "(" or (is_inside and letter.name != ")")
        if letter.name == DOTS and is_inside:
            says = "an ellipsis on the left stands in no bracket"
            yield Fault("invalid-ellipsis", says, letter.start, letter.end, "take it out")
    for letter in right:
        if letter.name == DOTS and DOTS not in {c.name for c in left}:
            says, advice = "the ellipsis is on the right alone", "give the left side one too"
            yield Fault("invalid-ellipsis", says, letter.start, letter.end, advice)


def _find_one_sided(
    left: Sequence[Letter], right: Sequence[Letter], function: str
) -> Iterator[Fault]:
    lefts, rights = _names(left), _names(right)
    for side, other, where in ((lefts, rights, "left"), (rights, lefts, "right")):
        if (function, where) in {("reduce", "left"), ("repeat", "right")}:
            continue
        known = {letter.name for letter in other}
        for letter in side:
            if letter.name not in known or letter.name.isdecimal():
                says = f"{letter.name} is on the {where} side alone"
                advice = {
                    "rearrange": "rearrange drops and adds nothing: use reduce, or repeat",
                    "reduce": f"reduce adds nothing: use repeat for {letter.name}",
                    "repeat": f"repeat drops nothing: use reduce for {letter.name}",
                }[function]
                yield Fault("pattern-names", says, letter.start, letter.end, advice)


def _find_size_faults(
    left: Sequence[Letter], right: Sequence[Letter], sizes: Sequence[str], has_more: bool
) -> Iterator[Fault]:
    known = {letter.name for letter in (*left, *right)}
    for name in sizes:
        if name not in known:
            says = f"{name} has a size and is not in the pattern"
            yield Fault("pattern-sizes", says, help=f"take {name}=.. out, or give {name} a place")
    if has_more:
        return
    for group in _find_groups(left):
        free = [c for c in group if not c.name.isdecimal() and c.name not in sizes]
        if len(free) > 1:
            names = " and ".join(letter.name for letter in free)
            says = f"the sizes of {names} cannot both be found"
            advice = f"give one of them, {free[0].name}=.."
            yield Fault("pattern-sizes", says, group[0].start, group[-1].end, advice)
    lefts = {letter.name for letter in left}
    for letter in _names(right):
        is_new = letter.name not in lefts and not letter.name.isdecimal()
        if is_new and letter.name not in sizes:
            says, advice = f"the new {letter.name} has no size", f"give it, {letter.name}=.."
            yield Fault("pattern-sizes", says, letter.start, letter.end, advice)


def _find_groups(side: Sequence[Letter]) -> Iterator[list[Letter]]:
    group: list[Letter] | None = None
    for letter in side:
        if letter.name == "(":
            group = []
        elif letter.name == ")":
            if group:
                yield group
            group = None
        elif group is not None:
            group.append(letter)
