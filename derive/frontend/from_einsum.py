"""The meaning of an einsum string: its parts, and its formula.

    equation = operand ("," operand)* ["->" output]       blanks mean nothing
    operand  = indices                                    one an index; none for a number
             | words                                      of einops, with blanks between them
    "..." in an operand or in the output stands for any number of indices

    ij,jk->ik      A[I, J]; B[J, K]
                   Z[i,k] = sum[j](A[i,j] * B[j,k])

Laws of the formula:
- Each letter of a to z and A to Z is an index of its own name. Of more than 26 indices others may
  be any characters: the third index is `i3` then.
- Its extent is a size named by the upper-case index, `b` has extent `B`; where that is an index
  itself, `N_b`.
- The operands are A, B, C, .. in order, and the result Z, all but those names that a size or an
  index has; where the alphabet does not suffice they are T1, T2, .. An operand without indices is
  a scalar.
- An index repeated in an operand takes the diagonal, A[i,i]; an index that is not in the output is
  summed. Without `->` the output is the indices that occur once, in alphabetical order.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from string import ascii_letters, ascii_lowercase, ascii_uppercase

from derive.errors import DeriveError, refuse
from derive.frontend.text.tokens import Source
from derive.notation.formula import Formula

DOTS = "..."
_INDICES = re.compile(r"\.\.\.|\S")
_WORDS = re.compile(r"\S+")
_WIDEST = 160  # columns of the equation shown by a mark


@dataclass(frozen=True, slots=True)
class Token:
    """An index, or an ellipsis, at its columns in the string; -1 where it is not written."""

    name: str
    start: int = -1
    end: int = -1


@dataclass(frozen=True, slots=True)
class Spec:
    """A valid einsum string: the indices of each operand and of the output."""

    operands: tuple[tuple[Token, ...], ...]
    output: tuple[Token, ...]
    has_arrow: bool
    has_words: bool = False

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The indices of each operand, without the ellipsis."""
        return tuple(tuple(t.name for t in o if t.name != DOTS) for o in self.operands)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The indices of the output, without the ellipsis."""
        return tuple(token.name for token in self.output if token.name != DOTS)

    @property
    def indices(self) -> tuple[str, ...]:
        """All indices in the order of their first use."""
        return tuple(dict.fromkeys(name for names in self.names for name in names))

    @property
    def has_dots(self) -> bool:
        """Whether an operand or the output has an ellipsis."""
        return any(t.name == DOTS for part in (*self.operands, self.output) for t in part)

    @property
    def named(self) -> "Spec":
        """The spec with names for indices that are no letters: `i3` for the third index."""
        known = {c: c if c in ascii_letters else f"i{k}" for k, c in enumerate(self.indices, 1)}

        def name(part: Sequence[Token]) -> tuple[Token, ...]:
            return tuple(replace(t, name=known.get(t.name, t.name)) for t in part)

        return replace(self, operands=tuple(map(name, self.operands)), output=name(self.output))

    def write(self, part: Sequence[Token]) -> str:
        """The text of an operand or of the output."""
        return (" " if self.has_words else "").join(token.name for token in part)

    def expand(self, ranks: Sequence[int]) -> tuple[list[list[str]], list[str]]:
        """The pair (indices of each operand, indices of the output) for operands of these ranks.

        The indices of an ellipsis are called .0, .1, .., and aligned at the last.
        """
        own = [
            rank - len(operand) + 1 if DOTS in (t.name for t in operand) else 0
            for rank, operand in zip(ranks, self.operands, strict=True)
        ]
        most = max(own, default=0)

        def spell(part: Sequence[Token], count: int) -> list[str]:
            dots = [f".{k}" for k in range(most - count, most)]
            return [name for t in part for name in (dots if t.name == DOTS else [t.name])]

        return list(map(spell, self.operands, own)), spell(self.output, most)


@dataclass(frozen=True, slots=True)
class Fault:
    """An error in an einsum string."""

    kind: str  # form | character | ellipsis | output | output-unknown | output-twice
    says: str
    start: int = -1  # columns; -1 for the whole string
    end: int = -1
    help: str = ""
    facts: tuple[str, ...] = ()


def read_einsum(text: str, *, has_words: bool = False, any_index: bool = False) -> Spec | Fault:
    """The parsed string, or its first error.

    `has_words`: a pattern of einops.einsum, whose indices are words. `any_index`: accept letters
    of every alphabet, and any characters if there are more than 26 indices.
    """
    left, arrow, right = text.partition("->")
    how = "write the operands, one ->, and the output"
    how = 'write it like "b i d, b j d -> b i j"' if has_words else how
    if "->" in right:
        at = text.rindex("->")
        return Fault("form", "there is more than one ->", at, at + 2, how)
    if has_words and not arrow:
        return Fault("form", "the pattern has no ->", help=how)
    operands, start = [], 0
    for part in left.split(","):
        operands.append(_tokenize(part, start, has_words))
        start += len(part) + 1
    output = _tokenize(right, len(left) + 2, has_words)
    is_many = _is_many(left)

    def is_index(name: str) -> bool:
        if has_words:
            return name == "_" or (name.isidentifier() and name.strip("_") == name)
        is_other = any_index and (name.isalpha() or (is_many and name not in "-=>→.,"))
        return name in ascii_letters or is_other

    for term in (*operands, output):
        for place, token in enumerate(term):
            if token.name == DOTS:
                if DOTS in (before.name for before in term[:place]):
                    says = "there is more than one ellipsis in one term"
                    return Fault("ellipsis", says, token.start, token.end, "leave one of them")
            elif not is_index(token.name):
                return _find_fault(token, has_words, term is output)
    if not arrow:
        every = [t.name for operand in operands for t in operand if t.name != DOTS]
        dots = [Token(DOTS)] if DOTS in text else []
        once = sorted(name for name in set(every) if every.count(name) == 1)
        return Spec(tuple(operands), (*dots, *map(Token, once)), False)
    spec = Spec(tuple(operands), output, True, has_words)
    return _find_output_fault(spec) or spec


def _is_many(text: str) -> bool:
    """Whether a text has more indices than there are letters from a to z."""
    return len({*text} - {*",->. "}) > len(ascii_lowercase)


def _tokenize(part: str, start: int, has_words: bool) -> tuple[Token, ...]:
    found = (_WORDS if has_words else _INDICES).finditer(part)
    return tuple(Token(m[0], start + m.start(), start + m.end()) for m in found)


def _find_fault(token: Token, has_words: bool, is_output: bool) -> Fault:
    """The error of a token that is no index."""
    name, start, end = token.name, token.start, token.end
    if has_words:
        advice = "names are like those of Python"
        if set(name) & set("()"):
            advice = "einops.einsum has no brackets: rearrange before or after it"
        return Fault("character", f"{name} is no name of an index", start, end, advice)
    if name == ".":
        says = "an ellipsis is three dots, and nothing else has a dot"
        return Fault("ellipsis", says, start, end, "write ... or a letter")
    if name == "," and is_output:
        says = "the output is one group of letters"
        return Fault("output", says, start, end, "take the comma out")
    shown = name if name.isprintable() else ascii(name)[1:-1]
    says = f"{shown} is neither a letter nor a comma nor ->"
    advice = "write ->" if name in "-=>→" else "the letters are a to z and A to Z"
    return Fault("character", says, start, end, advice)


def _find_output_fault(spec: Spec) -> Fault | None:
    """The error of an output index in no operand, or twice in the output; None if all fit."""
    word = "name" if spec.has_words else "letter"
    known = {t.name for operand in spec.operands for t in operand}
    known |= set() if spec.has_words else {DOTS}  # einops requires an ellipsis on both sides
    seen: set[str] = set()
    for token in spec.output:
        name, start, end = token.name, token.start, token.end
        if name not in known:
            says = f"{name} is in the output and in no operand"
            advice = f"give {name} to an operand, or take it out of the output"
            facts = (f"the operands have {', '.join(spec.indices) or f'no {word}s'}",)
            return Fault("output-unknown", says, start, end, advice, facts)
        if name in seen:
            says, advice = f"{name} is in the output twice", f"an output has each {word} once"
            return Fault("output-twice", says, start, end, advice)
        seen.add(name)
    return None


def write_sublists(terms: Sequence[Sequence[int | None]], *, has_output: bool) -> str:
    """The einsum string of sublists, of numbers and None for an ellipsis; DeriveError for too many.

    Letters are in the order of the numbers, so that an output that is not written stays the same.
    """
    numbers = sorted({n for term in terms for n in term if n is not None})
    is_short = len(numbers) <= len(ascii_lowercase)
    alphabet = ascii_lowercase if is_short else ascii_uppercase + ascii_lowercase
    if len(numbers) > len(alphabet):
        raise refuse("einsum-form", f"there are {len(numbers)} indices, and 52 letters")
    indices = dict(zip(numbers, alphabet, strict=False))
    words = ["".join(DOTS if n is None else indices[n] for n in term) for term in terms]
    left = ",".join(words[:-1] if has_output else words)
    return f"{left}->{words[-1]}" if has_output else left


def from_einsum(equation: str, name: str = "contraction") -> Formula:
    """The formula of an einsum string; DeriveError if the string is invalid."""
    from derive.frontend.from_text import parse

    text = to_notation(equation)
    return parse(text, name, title=f'einsum "{"".join(equation.split())}"')


def to_notation(equation: str) -> str:
    """The formula of an einsum string as a text in the notation; DeriveError if it is invalid."""
    spec = read_fixed(equation).named
    indices = spec.indices
    sizes = {i: f"N_{i}" if i.upper() in indices else i.upper() for i in indices}
    taken = {*indices, *sizes.values()}
    names = _name_operands(len(spec.operands), taken)
    result = next(n for n in ("Z", "Y", "R", "result") if n not in {*taken, *names})
    value = " * ".join(map(_write_access, names, spec.names))
    summed = [index for index in indices if index not in spec.output_names]
    if summed:
        value = f"sum[{', '.join(summed)}]({value})"
    declarations = "; ".join(_declare(names, spec.names, sizes))
    return f"{declarations}\n{_write_access(result, spec.output_names)} = {value}"


def read_fixed(equation: str) -> Spec:
    """The parsed string, without ellipsis; DeriveError if it is invalid."""
    if not isinstance(equation, str):
        raise refuse("text-wanted", f"an einsum string is text, not {type(equation).__name__}")
    if not equation.strip():
        raise refuse(
            "einsum-form",
            "the einsum string is empty",
            help='write it like "ij,jk->ik", or "->" for a number',
        )
    found = read_einsum(equation, any_index=_is_many(equation))
    if isinstance(found, Spec) and found.has_dots:
        at = equation.index(DOTS)
        fresh = next((c for c in ascii_letters if c not in equation), "")
        indices = "".join(equation.replace(DOTS, fresh).split())[:_WIDEST]
        says = "an ellipsis leaves open how many indices there are"
        found = Fault("ellipsis", says, at, at + 3, f"give each of them a letter, {indices}")
    if isinstance(found, Fault):
        raise _refuse(equation, found)
    return found


def _refuse(equation: str, fault: Fault) -> DeriveError:
    code = f"einsum-{fault.kind.partition('-')[0]}"
    help = fault.help
    if fault.kind == "output-twice":
        help += "; build a diagonal with delta(i, j) in text"
    span = fault.start, fault.end
    return Source(equation).refuse(code, fault.says, span, facts=fault.facts, help=help)


def _declare(
    names: Sequence[str], operands: Sequence[Sequence[str]], sizes: Mapping[str, str]
) -> Iterator[str]:
    """The declarations of the operands; neighbours of one shape share one, `A, B[I, J]`."""
    for operand, group in groupby(zip(operands, names, strict=True), key=lambda pair: pair[0]):
        together = ", ".join(name for _, name in group)
        shape = ", ".join(sizes[index] for index in operand)
        yield f"{together}[{shape}]" if operand else f"scalar {together}"


def _name_operands(count: int, taken: set[str]) -> list[str]:
    free = [name for name in ascii_uppercase[:-1] if name not in taken]
    if count <= len(free):
        return free[:count]
    return [f"T{k}" for k in range(1, count + 1)]


def _write_access(tensor: str, indices: Sequence[str]) -> str:
    return f"{tensor}[{','.join(indices)}]" if indices else tensor
