"""What may surprise in an einsum string, and the plainer call that it may be the same as."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.frontend.from_einsum import DOTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from derive.frontend.from_einsum import Spec, Token


def find_remarks(spec: Spec, names: Sequence[str]) -> Iterator[str]:
    """What a reader of a string without an ellipsis may not expect, one sentence each."""
    output = spec.output_names
    if not spec.has_arrow:
        yield (
            "without -> the result has the letters that occur once, in alphabetical order:"
            f" ->{spec.write(spec.output)}"
        )
    for find in (find_diagonals, find_lone, find_outer):
        yield from (each[-1] for each in find(spec, names))
    for k, (name, operand) in enumerate(zip(names, spec.names, strict=True)):
        others = {index for m, each in enumerate(spec.names) if m != k for index in each}
        lacking = [index for index in output if index not in operand]
        if set(operand) <= set(output) and others.intersection(operand) and lacking:
            yield f"{name} is repeated along {', '.join(lacking)}"
    if len(spec.operands) > 2:
        yield (
            f"torch.einsum looks for the order of {len(spec.operands)} operands at every call;"
            " the steps here are in pairs"
        )


def find_diagonals(spec: Spec, names: Sequence[str]) -> Iterator[tuple[Token, str]]:
    """The indices that an operand has once more, and what that means."""
    for name, operand in zip(names, spec.operands, strict=True):
        for place, token in enumerate(operand):
            if sum(before.name == token.name for before in operand[:place]) == 1:
                says = f"{name}: the repeated {token.name} takes the diagonal of"
                yield token, f"{says} {spec.write(operand)}"


def find_lone(spec: Spec, names: Sequence[str]) -> Iterator[tuple[Token, str, str]]:
    """The indices that are summed in one operand alone, its name, and what that means."""
    for k, (name, operand) in enumerate(zip(names, spec.operands, strict=True)):
        others = {n for m, each in enumerate(spec.names) if m != k for n in each}
        where = f"in {name} alone and " if len(names) > 1 else ""
        for token in {each.name: each for each in operand if each.name != DOTS}.values():
            if token.name not in others and token.name not in spec.output_names:
                says = f"{token.name} is {where}not in the result: {name} is added up over it"
                yield token, name, says


def find_outer(spec: Spec, names: Sequence[str]) -> Iterator[tuple[tuple[Token, ...], str]]:
    """The operands that share no index with the others, and what that means."""
    own = [{token.name for token in operand} for operand in spec.operands]
    for k, (name, operand) in enumerate(zip(names, spec.operands, strict=True)):
        others = set().union(*own[:k], *own[k + 1 :])
        if own[k] and others and not own[k] & others:
            yield operand, f"{name} shares no letter with the rest: an outer product"


def find_plain(spec: Spec, names: Sequence[str]) -> str:
    """A call without einsum that gives the same; nothing where there is no simple one.

    An ellipsis counts as one index, which stands first.
    """
    operands, output = ["".join(o) for o in spec.names], "".join(spec.output_names)
    if spec.has_dots:
        *operands, output = (f".{part}" for part in (*operands, output))
    match operands:
        case [operand]:
            return _find_single(operand, output, names[0])
        case [first, second] if not any(map(_has_twice, operands)):
            given = (first, second, output, names[0], names[1])
            return _find_matmul(*given) or _find_product(*given)
        case _:
            return ""


def _has_twice(operand: str) -> bool:
    return len(set(operand)) < len(operand)


def _find_single(operand: str, output: str, name: str) -> str:
    """One operand: itself, a diagonal, a trace, a sum, a transposition."""
    if len(operand) == 2 and len(set(operand)) == 1:
        return f"torch.diagonal({name})" if output else f"torch.trace({name})"
    if _has_twice(operand):
        return ""
    kept = "".join(index for index in operand if index in output)
    summed = _sum(name, operand, kept)
    if kept == output:
        return summed
    order = ", ".join(str(kept.index(index)) for index in output)
    return f"{summed}.T" if len(kept) == 2 else f"{summed}.permute({order})"


def _find_product(first: str, second: str, output: str, one: str, other: str) -> str:
    """Two operands side by side: elementwise, perhaps added up; or an outer product."""
    long, short = (first, second) if len(first) >= len(second) else (second, first)
    if long.endswith(short):
        kept = "".join(index for index in long if index in output)
        if kept != output:
            return ""
        return f"{one} * {other}" if kept == long else _sum(f"({one} * {other})", long, kept)
    if len(first) == len(second) == 1 and output == first + second:
        return f"torch.outer({one}, {other})"
    return ""


def _find_matmul(first: str, second: str, output: str, one: str, other: str) -> str:
    """A matrix product over one index, with the same indices in front of all three, or without."""
    summed = [index for index in first if index in second and index not in output]
    if len(summed) != 1 or set(first + second) != {*output, *summed}:
        return ""
    (over,) = summed
    lead = 0
    while first[lead : lead + 1] == second[lead : lead + 1] == output[lead : lead + 1] != "":
        lead += 1
    left, right, output = first[lead:], second[lead:], output[lead:]
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
