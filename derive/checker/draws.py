"""The sizes and inputs at which code is judged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from math import prod
from typing import TYPE_CHECKING, Any

from derive.ir.nodes import ScalarInput, System
from derive.verify.samples import choose_sizes, draw_inputs, find_sizes, is_possible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MOST_ELEMENTS = 500_000  # of the product of all sizes, where a size is large
COUNT = 3  # draws; the second has a size 1, if the code can bear it
_SCALARS = (1.5, 0.75, 1.25, 0.625, 2.5)  # small fractions, which fields have exactly


@dataclass(frozen=True)
class Draw:
    """Sizes, and inputs by seed."""

    system: System
    sizes: Mapping[str, int]
    seed: int
    defaulted: tuple[str, ...] = ()  # scalars that the code does not take keep their default

    def make_inputs(self, dtype: Any = None, *, empty_row: bool = False) -> dict[str, Any]:
        """Inputs of the formula by name, new ones at every call."""
        values = draw_inputs(self.system, self.sizes, self.seed, dtype, empty_row=empty_row)
        plain = draw_inputs(self.system, self.sizes) if self.defaulted else {}
        values |= {name: plain[name] for name in self.defaulted}
        if not empty_row:
            values = {name: _keep_rows(value) for name, value in values.items()}
        scalars = [entry for entry in self.system.inputs if isinstance(entry, ScalarInput)]
        for number, entry in enumerate(scalars):
            if entry.name not in self.defaulted and (entry.default is None or self.seed):
                values[entry.name] = _SCALARS[(number + self.seed) % len(_SCALARS)]
        return values


def _keep_rows(value: Any) -> Any:
    """A mask with an index of extent 1 is all true: else a row along that index would be empty."""
    import torch

    if isinstance(value, torch.Tensor) and value.dtype is torch.bool and 1 in value.shape:
        return torch.ones_like(value)
    return value


def find_far_draws(draw: Draw, numbers: Sequence[int], fixed: Mapping[str, int]) -> Iterator[Draw]:
    """Draws in which one size at a time is beyond the numbers that stand in the code.

    A block of 16 has no say where every size is below 16. Sizes that are told stay what they are.
    """
    for number in sorted(set(numbers)):
        for name in draw.sizes:
            if name not in fixed and draw.sizes[name] <= number:
                beyond = {**draw.sizes, name: 2 * number + 1}
                if prod(beyond.values()) <= MOST_ELEMENTS and is_possible(draw.system, beyond):
                    yield replace(draw, sizes=beyond)


def find_draws(
    system: System, fixed: Mapping[str, int], numbers: Sequence[Mapping[str, int]]
) -> Iterator[tuple[list[Draw], str]]:
    """Draws to try in turn: free ones, the code's numbers, E = H*D, equal sizes.

    With each comes what has to be said if only those can be run.
    """
    yield _make_draws(system, fixed), ""
    for told in numbers:
        if any(name not in fixed for name in told):
            yield _make_draws(system, {**told, **fixed}), "numbers"
    names = [name for name in find_sizes(system) if name not in fixed]
    for whole, one, other in _find_merges(names):
        yield _make_merged(system, fixed, whole, one, other), "merged"
    for pair in ((one, other) for at, one in enumerate(names) for other in names[at + 1 :]):
        yield _make_equal(system, fixed, pair), "equal"
    if len(names) > 2:
        yield _make_equal(system, fixed, tuple(names)), "equal"


def _make_draws(system: System, fixed: Mapping[str, int]) -> list[Draw]:
    sizes = choose_sizes(system, COUNT, fixed=fixed)
    return [Draw(system, each, number) for number, each in enumerate(sizes)]


def _find_merges(names: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Sizes of which one may be the product of two others; E = H*D comes first."""
    usual = [("E", "H", "D"), ("M", "H", "D"), ("C", "H", "D"), ("T", "H", "D")]
    yield from (each for each in usual if all(name in names for name in each))
    for whole in names:
        rest = [name for name in names if name != whole]
        for one, other in combinations(rest, 2):
            if (whole, one, other) not in usual and (whole, other, one) not in usual:
                yield whole, one, other


def _make_merged(
    system: System, fixed: Mapping[str, int], whole: str, one: str, other: str
) -> list[Draw]:
    told = [{one: a, other: b, whole: a * b} for a, b in ((3, 2), (2, 4), (1, 5))]
    sizes = [choose_sizes(system, 1, seed=k, fixed={**fixed, **t})[0] for k, t in enumerate(told)]
    return [Draw(system, each, number) for number, each in enumerate(sizes)]


def _make_equal(system: System, fixed: Mapping[str, int], names: tuple[str, ...]) -> list[Draw]:
    return [
        draw
        for length, seed in ((4, 1), (3, 2))
        for draw in [Draw(system, {**_first(system, fixed), **dict.fromkeys(names, length)}, seed)]
    ]


def _first(system: System, fixed: Mapping[str, int]) -> dict[str, int]:
    return choose_sizes(system, 1, fixed=fixed)[0]
