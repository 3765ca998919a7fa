"""The order of a contraction: which two operands meet next, found by opt_einsum at given sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from derive.ir.nodes import Index

EXHAUSTIVE = 7  # operands up to which the optimal search takes milliseconds


def find_path(
    operands: Sequence[Sequence[Index]], output: Sequence[Index], extents: Mapping[Index, int]
) -> tuple[tuple[int, ...], ...]:
    """Pairs of positions to contract, in order; the result of each goes to the end of the list."""
    if len(operands) < 3:
        return (tuple(range(len(operands))),)
    import opt_einsum

    letters: dict[Index, str] = {}
    for index in (*(i for axes in operands for i in axes), *output):
        letters.setdefault(index, opt_einsum.get_symbol(len(letters)))
    inputs = ",".join("".join(letters[i] for i in axes) for axes in operands)
    shapes = [tuple(max(1, extents[i]) for i in axes) for axes in operands]
    path, _ = opt_einsum.contract_path(
        f"{inputs}->{''.join(letters[i] for i in output)}",
        *shapes,
        shapes=True,
        optimize="optimal" if len(operands) <= EXHAUSTIVE else "dp",
    )
    return tuple(tuple(sorted(step)) for step in path)
