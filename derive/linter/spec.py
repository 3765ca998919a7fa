"""An einsum string as letters with their columns: letters of one character, or einops' words.

    letters   "ij, jk -> ik"   "...ij,j"   one character each, "..." for any number of indices
    words     "b i d, b j d -> b i j"      Python names between blanks, "..." likewise, -> required

What is wrong in a string of letters is found by from_einsum, which does not know an ellipsis: it
gets blanks in place of the dots, so that its columns are ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import ascii_letters
from typing import TYPE_CHECKING

from derive.errors import DeriveError
from derive.frontend.from_einsum import to_notation

if TYPE_CHECKING:
    from collections.abc import Sequence

DOTS = "..."
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Letter:
    """An index, or an ellipsis, at its columns in the string; -1 where it is not written."""

    name: str
    start: int = -1
    end: int = -1


@dataclass(frozen=True, slots=True)
class Spec:
    """A valid string taken apart."""

    operands: tuple[tuple[Letter, ...], ...]
    output: tuple[Letter, ...]
    has_arrow: bool
    has_words: bool = False

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The letters of each operand, without the ellipsis."""
        return tuple(tuple(c.name for c in o if c.name != DOTS) for o in self.operands)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The letters of the output, without the ellipsis."""
        return tuple(letter.name for letter in self.output if letter.name != DOTS)

    @property
    def letters(self) -> tuple[str, ...]:
        """All letters in the order of their first use."""
        return tuple(dict.fromkeys(name for names in self.names for name in names))

    def write(self, part: Sequence[Letter]) -> str:
        """An operand or the output as it is written."""
        return (" " if self.has_words else "").join(letter.name for letter in part)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong in a string; `kind` is the name of the rule that tells of it."""

    kind: str
    says: str
    start: int = -1
    end: int = -1
    help: str = ""
    facts: tuple[str, ...] = ()


def read_letters(text: str, any_letter: bool = False) -> Spec | Fault:
    """A string of letters; `any_letter` where every alphabet is taken."""
    fault = _find_dots_fault(text)
    if fault:
        return fault
    plain = _to_ascii(text.replace(DOTS, "   ")) if any_letter else text.replace(DOTS, "   ")
    if text.strip():
        try:
            to_notation(plain if plain.strip() else plain + "->")
        except DeriveError as error:
            return _to_fault(error, text)
    left, arrow, right = text.partition("->")
    operands = []
    start = 0
    for part in left.split(","):
        operands.append(_read_letters(part, start))
        start += len(part) + 1
    if arrow:
        output = _read_letters(right, len(left) + 2)
    else:
        every = [c.name for operand in operands for c in operand if c.name != DOTS]
        dots = [Letter(DOTS)] if DOTS in text else []
        once = sorted(name for name in set(every) if every.count(name) == 1)
        output = (*dots, *map(Letter, once))
    return Spec(tuple(operands), output, bool(arrow))


def read_words(text: str) -> Spec | Fault:
    """A pattern of einops.einsum."""
    if text.count("->") != 1:
        says = "the pattern has no ->" if "->" not in text else "there is more than one ->"
        return Fault("invalid-string", says, help='write it like "b i d, b j d -> b i j"')
    left, _, right = text.partition("->")
    operands = []
    start = 0
    for part in left.split(","):
        operands.append(split_words(part, start))
        start += len(part) + 1
    output = split_words(right, len(left) + 2)
    for letter in (c for part in (*operands, output) for c in part):
        if letter.name != DOTS and not is_word(letter.name):
            says, advice = f"{letter.name} is no name of an index", "names are like those of Python"
            if set(letter.name) & set("()"):
                advice = "einops.einsum has no brackets: rearrange before or after it"
            return Fault("invalid-string", says, letter.start, letter.end, advice)
    return _find_words_fault(operands, output) or Spec(tuple(operands), output, True, True)


def split_words(text: str, start: int = 0) -> tuple[Letter, ...]:
    """The words of a part of a pattern that begins at a column."""
    return tuple(Letter(m[0], start + m.start(), start + m.end()) for m in _WORD.finditer(text))


def is_word(name: str) -> bool:
    """Whether einops.einsum takes a name for an index."""
    return name == "_" or (name.isidentifier() and not (name[0] == "_" or name[-1] == "_"))


def _read_letters(text: str, start: int) -> tuple[Letter, ...]:
    found = []
    at = 0
    while at < len(text):
        size = 3 if text.startswith(DOTS, at) else 1
        if not text[at].isspace():
            found.append(Letter(text[at : at + size], start + at, start + at + size))
        at += size
    return tuple(found)


def _find_dots_fault(text: str) -> Fault | None:
    start = 0
    for part in re.split(r"(,|->)", text):
        if part.replace(DOTS, "").count("."):
            at = start + re.sub(r"\.\.\.", "   ", part).index(".")
            says = "an ellipsis is three dots, and nothing else has a dot"
            return Fault("invalid-ellipsis", says, at, at + 1, "write ... or a letter")
        if part.count(DOTS) > 1:
            at = start + part.rindex(DOTS)
            says, advice = "there is more than one ellipsis in one term", "leave one of them"
            return Fault("invalid-ellipsis", says, at, at + 3, advice)
        start += len(part)
    return None


def _to_ascii(text: str) -> str:
    """The same string with letters of other alphabets replaced by free ones."""
    free = [c for c in ascii_letters if c not in text]
    foreign = [c for c in dict.fromkeys(text) if c.isalpha() and c not in ascii_letters]
    return text.translate({ord(c): f for c, f in zip(foreign, free, strict=False)})


def _to_fault(error: DeriveError, text: str) -> Fault:
    """The refusal of from_einsum as one of ours."""
    told = error.diagnostic
    start, end = -1, -1
    if told.marks and len(text) < len(told.marks[0].line) + 1:
        start, end = told.marks[0].start, told.marks[0].end
    kind, advice = "invalid-string", told.help
    if told.code == "einsum-output" and text[start:end] != ",":
        is_known = start >= 0 and text[start] in text.partition("->")[0]
        kind = "repeated-output-letter" if is_known else "unknown-output-letter"
        if is_known:
            advice = "an output has each letter once; torch.diag_embed builds a diagonal"
    return Fault(kind, told.says, start, end, advice, told.facts)


def _find_words_fault(
    operands: Sequence[Sequence[Letter]], output: Sequence[Letter]
) -> Fault | None:
    known = {letter.name for operand in operands for letter in operand}
    seen: set[str] = set()
    for part in (*operands, output):
        if sum(letter.name == DOTS for letter in part) > 1:
            says, advice = "there is more than one ellipsis in one term", "leave one of them"
            return Fault("invalid-ellipsis", says, part[0].start, part[-1].end, advice)
    for letter in output:
        if letter.name not in known:
            kind, says = (
                "unknown-output-letter",
                f"{letter.name} is in the output and in no operand",
            )
            advice = f"give {letter.name} to an operand, or take it out of the output"
            return Fault(kind, says, letter.start, letter.end, advice)
        if letter.name in seen:
            kind, says = "repeated-output-letter", f"{letter.name} is in the output twice"
            advice = "an output has each name once"
            return Fault(kind, says, letter.start, letter.end, advice)
        seen.add(letter.name)
    return None
