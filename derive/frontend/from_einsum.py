"""From an einsum string to a formula, by way of the text notation.

    equation = operand ("," operand)* ["->" letters]      blanks mean nothing
    operand  = letters                                    none for a number

    ij,jk->ik      A[I, J]; B[J, K]
                   Z[i,k] = sum[j](A[i,j] * B[j,k])

Laws:
- Each letter is an index of its own name. Its extent is a size named by the upper-case letter, `b`
  has extent `B`; where that is an index itself, `N_b`.
- The operands are A, B, C, .. in order, and the result Z, all but those names that a size or an
  index has; where the alphabet does not suffice they are T1, T2, .. An operand without letters is
  a scalar.
- A letter repeated in an operand takes the diagonal, A[i,i]; a letter that is not in the output is
  summed. Without `->` the output is the letters that occur once, in alphabetical order.
"""

from __future__ import annotations

from itertools import groupby
from string import ascii_letters, ascii_uppercase
from typing import TYPE_CHECKING

from derive.errors import Mark, refuse
from derive.frontend.from_text import parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from derive.errors import DeriveError
    from derive.notation.formula import Formula

_WIDEST = 160  # columns of the equation that a mark shows


def from_einsum(equation: str, name: str = "contraction") -> Formula:
    """The formula of an einsum string; DeriveError says what is wrong in the string."""
    text = to_notation(equation)
    return parse(text, name, title=f'einsum "{"".join(equation.split())}"')


def to_notation(equation: str) -> str:
    """The text formula of an einsum string."""
    if not isinstance(equation, str):
        raise refuse("text-wanted", f"an einsum string is text, not {type(equation).__name__}")
    operands, output = _split(equation)
    letters = "".join(dict.fromkeys("".join(operands)))
    sizes = _name_sizes(letters)
    taken = {*letters, *sizes.values()}
    names = _name_operands(len(operands), taken)
    result = next(n for n in ("Z", "Y", "R", "result") if n not in {*taken, *names})
    accesses = (_write_access(n, operand) for n, operand in zip(names, operands, strict=True))
    value = " * ".join(accesses)
    summed = [letter for letter in letters if letter not in output]
    if summed:
        value = f"sum[{', '.join(summed)}]({value})"
    declarations = "; ".join(_declare(names, operands, sizes))
    return f"{declarations}\n{_write_access(result, output)} = {value}"


def _declare(
    names: Sequence[str], operands: Sequence[str], sizes: Mapping[str, str]
) -> Iterator[str]:
    """The statements that declare the operands, neighbours of one shape together."""
    for operand, group in groupby(zip(operands, names, strict=True), key=lambda pair: pair[0]):
        together = ", ".join(name for _, name in group)
        shape = ", ".join(sizes[letter] for letter in operand)
        yield f"{together}[{shape}]" if operand else f"scalar {together}"


def _split(equation: str) -> tuple[list[str], str]:
    """The letters of each operand, and of the output."""
    _check_characters(equation)
    sides = equation.split("->")
    if len(sides) > 2:
        at = equation.rindex("->")
        says, advice = "there is more than one ->", "write the operands, one ->, and the output"
        raise _refuse(equation, "einsum-form", says, at, at + 2, help=advice)
    if not equation.strip():
        raise refuse(
            "einsum-form",
            "the einsum string is empty",
            help='write it like "ij,jk->ik", or "->" for a number',
        )
    operands = ["".join(operand.split()) for operand in sides[0].split(",")]
    if len(sides) == 1:
        every = "".join(operands)
        return operands, "".join(
            sorted(letter for letter in set(every) if every.count(letter) == 1)
        )
    _check_output(equation, sides[0], sides[1])
    return operands, "".join(sides[1].split())


def _check_characters(equation: str) -> None:
    for at, character in enumerate(equation):
        if equation[at : at + 3] == "...":
            raise _refuse(
                equation,
                "einsum-ellipsis",
                "an ellipsis leaves open how many indices there are",
                at,
                at + 3,
                help=f"give each of them a letter, {_without_ellipsis(equation)}",
            )
        arrow = equation[at : at + 2] == "->" or equation[max(at - 1, 0) : at + 1] == "->"
        if character.isspace() or character in ascii_letters or character == "," or arrow:
            continue
        shown = character if character.isprintable() else ascii(character)[1:-1]
        says = f"{shown} is neither a letter nor a comma nor ->"
        advice = "write ->" if character in "-=>→" else "the letters are a to z and A to Z"
        raise _refuse(equation, "einsum-character", says, at, at + 1, help=advice)


def _without_ellipsis(equation: str) -> str:
    fresh = next((c for c in ascii_letters if c not in equation), "")
    return "".join(equation.replace("...", fresh).split())[:_WIDEST]


def _check_output(equation: str, left: str, right: str) -> None:
    seen: dict[str, int] = {}
    for at, letter in enumerate(right, len(left) + 2):
        if letter.isspace():
            continue
        if letter == ",":
            says = "the output is one group of letters"
            raise _refuse(equation, "einsum-output", says, at, at + 1, help="take the comma out")
        if letter not in left:
            raise _refuse(
                equation,
                "einsum-output",
                f"{letter} is in the output and in no operand",
                at,
                at + 1,
                facts=[f"the operands have {', '.join(_find_letters(left)) or 'no letters'}"],
                help=f"give {letter} to an operand, or take it out of the output",
            )
        if letter in seen:
            raise _refuse(
                equation,
                "einsum-output",
                f"{letter} is in the output twice",
                at,
                at + 1,
                help="an output has each letter once; build a diagonal with delta(i, j) in text",
            )
        seen[letter] = at


def _find_letters(left: str) -> list[str]:
    return [c for c in dict.fromkeys(left) if c in ascii_letters]


def _refuse(  # noqa: PLR0913 - a diagnostic has that many parts
    equation: str,
    code: str,
    says: str,
    start: int,
    end: int,
    *,
    facts: Sequence[str] = (),
    help: str = "",
) -> DeriveError:
    shown = "".join(c if c.isprintable() else " " for c in equation)
    lead = max(0, start - _WIDEST // 2) if end > _WIDEST else 0
    mark = Mark(shown[lead : lead + _WIDEST].rstrip(), start - lead, end - lead)
    return refuse(code, says, marks=[mark], facts=facts, help=help)


def _name_sizes(letters: str) -> dict[str, str]:
    """The size of each letter: its capital, unless that is an index or has a lower-case twin."""
    return {c: f"N_{c}" if c.upper() in letters else c.upper() for c in letters}


def _name_operands(count: int, taken: set[str]) -> list[str]:
    free = [name for name in ascii_uppercase[:-1] if name not in taken]
    if count <= len(free):
        return free[:count]
    return [f"T{k}" for k in range(1, count + 1)]


def _write_access(tensor: str, letters: str) -> str:
    return f"{tensor}[{','.join(letters)}]" if letters else tensor
