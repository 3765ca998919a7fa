"""What may surprise in an einsum string, and the plainer call that it may be the same as."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from derive.frontend.from_einsum import read_fixed

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Parts:
    """A valid einsum string taken apart, and a name for each operand."""

    operands: tuple[str, ...]
    output: str
    names: tuple[str, ...]
    has_arrow: bool = True

    @staticmethod
    def of(equation: str, names: tuple[str, ...]) -> Parts:
        """The parts of a valid string without an ellipsis."""
        spec = read_fixed(equation)
        operands = tuple("".join(operand) for operand in spec.names)
        return Parts(operands, "".join(spec.output_names), names, spec.has_arrow)

    def __str__(self) -> str:
        """The string in explicit form."""
        return f"{','.join(self.operands)}->{self.output}"


def find_remarks(parts: Parts) -> Iterator[str]:
    """What a reader of the string may not expect, one sentence each."""
    if not parts.has_arrow:
        yield (
            "without -> the result has the letters that occur once, in alphabetical order:"
            f" ->{parts.output}"
        )
    operands, output = parts.operands, parts.output
    every = "".join(operands)
    terms = [
        (name, operand, "".join(operands[:k] + operands[k + 1 :]))
        for k, (name, operand) in enumerate(zip(parts.names, operands, strict=True))
    ]
    for name, operand, _ in terms:
        for index in _find_twice(operand):
            yield f"{name}: the repeated {index} takes the diagonal of {operand}"
    for name, operand, _ in terms:
        for index in dict.fromkeys(operand):
            if every.count(index) == operand.count(index) and index not in output:
                where = "" if len(operands) == 1 else f"in {name} alone and "
                yield f"{index} is {where}not in the result: {name} is added up over it"
    for name, operand, others in terms:
        if operand and others and not set(operand) & set(others):
            yield f"{name} shares no letter with the rest: an outer product"
    for name, operand, others in terms:
        lacking = [index for index in output if index not in operand]
        if set(operand) <= set(output) and set(operand) & set(others) and lacking:
            yield f"{name} is repeated along {', '.join(lacking)}"
    if len(operands) > 2:
        yield (
            f"torch.einsum looks for the order of {len(operands)} operands at every call;"
            " the steps here are in pairs"
        )


def find_plain(equation: str, names: tuple[str, ...]) -> str:
    """A call without einsum that gives the same as a valid string, for operands of these names."""
    return find_call(Parts.of(equation, names))


def find_call(parts: Parts) -> str:
    """A call without einsum that gives the same; nothing where there is no simple one."""
    match parts.operands:
        case (operand,):
            return _find_single(operand, parts.output, parts.names[0])
        case (first, second) if not any(map(_find_twice, (first, second))):
            return _find_matmul(first, second, parts) or _find_product(first, second, parts)
        case _:
            return ""


def _find_twice(operand: str) -> list[str]:
    return [index for index in dict.fromkeys(operand) if operand.count(index) > 1]


def _find_single(operand: str, output: str, name: str) -> str:
    """One operand: itself, a diagonal, a trace, a sum, a transposition."""
    if len(operand) == 2 and len(set(operand)) == 1:
        return f"torch.diagonal({name})" if output else f"torch.trace({name})"
    if _find_twice(operand):
        return ""
    kept = "".join(index for index in operand if index in output)
    return _transpose(_sum(name, operand, kept), kept, output)


def _find_product(first: str, second: str, parts: Parts) -> str:
    """Two operands side by side: elementwise, perhaps added up; or an outer product."""
    one, other = parts.names
    long, short = (first, second) if len(first) >= len(second) else (second, first)
    if long.endswith(short):
        kept = "".join(index for index in long if index in parts.output)
        if kept != parts.output:
            return ""
        return f"{one} * {other}" if kept == long else _sum(f"({one} * {other})", long, kept)
    if len(first) == len(second) == 1 and parts.output == first + second:
        return f"torch.outer({one}, {other})"
    return ""


def _find_matmul(first: str, second: str, parts: Parts) -> str:
    """A matrix product over one index, with the same indices in front of all three, or without."""
    one, other = parts.names
    summed = [index for index in first if index in second and index not in parts.output]
    if len(summed) != 1 or set(first + second) != {*parts.output, *summed}:
        return ""
    (over,) = summed
    lead = 0
    while first[lead : lead + 1] == second[lead : lead + 1] == parts.output[lead : lead + 1] != "":
        lead += 1
    left, right, output = first[lead:], second[lead:], parts.output[lead:]
    if set(left) & set(right) != {over} or (lead and (len(left), len(right)) != (2, 2)):
        return ""
    if len(right) == 1 and left == output + over:
        return f"{one} @ {other}"
    if len(left) == 1 and len(right) == 2:
        return f"{one} @ {other}" if right[0] == over else f"{other} @ {one}"
    if len(right) != 2 or len(left) < 2 or (len(left) > 2 and left[-1] != over):
        return ""
    rows, column = left.replace(over, ""), right.replace(over, "")
    matrix = one if left[-1] == over else f"{one}.mT"
    product = f"{matrix} @ {other if right[0] == over else f'{other}.mT'}"
    if output == rows + column:
        return product
    return f"({product}).mT" if len(rows) == 1 and output == column + rows else ""


def _sum(name: str, indices: str, kept: str) -> str:
    """The call that adds up all indices but the kept ones."""
    places = [str(k) for k, index in enumerate(indices) if index not in kept]
    if not places:
        return name
    if not kept:
        return f"{name}.sum()"
    return f"{name}.sum({places[0]})" if len(places) == 1 else f"{name}.sum(({', '.join(places)}))"


def _transpose(name: str, indices: str, wanted: str) -> str:
    if indices == wanted:
        return name
    if len(indices) == 2:
        return f"{name}.T"
    return f"{name}.permute({', '.join(str(indices.index(index)) for index in wanted)})"
