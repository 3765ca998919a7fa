"""The sizes and inputs at which code is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from derive.checker.ties import Ties, set_sizes
from derive.ir.nodes import Mul, ScalarInput, Size, System, Tensor
from derive.judge.samples import choose_sizes, draw_inputs, find_sizes, is_possible

if TYPE_CHECKING:
    from collections.abc import Mapping

FACTORS = ((3, 2, 4, 5), (2, 4, 3, 5), (1, 5, 2, 3))  # sizes whose product is tied, by draw
COUNT = 3  # draws; the second has a size 1, if the code can bear it
_SCALARS = (1.5, 0.75, 1.25, 0.625, 2.5)  # small fractions, which fields have exactly


@dataclass(frozen=True)
class Draw:
    """Sizes, and inputs by seed.

    `change` is what is done to the inputs, `reason` what is special of it all; `resize` is the way
    to the same draw at other sizes.
    """

    system: System
    sizes: Mapping[str, int]
    seed: int
    defaulted: tuple[str, ...] = ()  # scalars that the code does not take keep their default
    fixed: Mapping[str, int] = field(default_factory=dict)  # sizes that cannot be otherwise
    ties: Ties = ()  # sizes that others make, E = H*D
    change: Callable[[Draw, dict[str, Any]], dict[str, Any]] | None = None
    reason: str = ""
    is_limit: bool = False  # are its sizes around a number of the code, which may be a limit of it?

    def resize(self, **sizes: int) -> Draw | None:
        """The draw at other sizes; None where they are fixed, tied, or none of the formula's."""
        if any(name in self.fixed or name in dict(self.ties) for name in sizes):
            return None
        moved = set_sizes({**self.sizes, **sizes}, self.ties)
        return replace(self, sizes=moved) if is_possible(self.system, moved) else None

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
        return values if self.change is None else self.change(self, values)

    def describe(self) -> str:
        """What is special about it, and its sizes."""
        sizes = " ".join(f"{name}={size}" for name, size in self.sizes.items())
        return ", ".join(filter(None, (self.reason, f"at {sizes}" if sizes else "")))


def _keep_rows(value: Any) -> Any:
    """A mask with an index of extent 1 is all true: else a row along that index would be empty."""
    import torch

    if isinstance(value, torch.Tensor) and value.dtype is torch.bool and 1 in value.shape:
        return torch.ones_like(value)
    return value


@dataclass(frozen=True)
class Draws:
    """The first of some draws; the others are made when they are asked for."""

    first: Draw
    make_others: Callable[[], list[Draw]]
    told: frozenset[str] = frozenset()  # sizes that cannot be otherwise


def find_merged(system: System) -> list[tuple[str, ...]]:
    """The products of sizes that are extents of the formula."""
    tensors = [entry for entry in system.inputs if isinstance(entry, Tensor)]
    tensors += [equation.target.tensor for equation in system.equations]
    extents = (extent for tensor in tensors for extent in tensor.shape)
    merged = (extent.factors for extent in extents if isinstance(extent, Mul))
    names = (tuple(f.name for f in factors if isinstance(f, Size)) for factors in merged)
    return list(dict.fromkeys(tuple(sorted(each)) for each in names if len(each) == 2))


def make_draws(system: System, fixed: Mapping[str, int], ties: Ties = ()) -> Draws | None:
    """Draws at sizes that are free but for those fixed and tied; None where there are none such."""
    tied = {name for name, _ in ties}
    merged = [n for _, product in ties if len(product) > 1 for n in product if isinstance(n, str)]
    roots = list(dict.fromkeys(name for name in merged if name not in tied and name not in fixed))

    def make(number: int) -> Draw:
        told = {**dict(zip(roots, FACTORS[number], strict=False)), **fixed}
        if roots:
            known = set_sizes({**dict.fromkeys(find_sizes(system), 1), **told}, ties)
            told |= {n: known[n] for n, made in ties if all(_is_told(m, told) for m in made)}
            free = choose_sizes(system, 1, seed=number, fixed=told)[0]
        else:
            free = choose_sizes(system, number + 1, fixed=fixed)[number]
        return Draw(system, set_sizes(free, ties), number, fixed=fixed, ties=ties)

    first = make(0)
    if not is_possible(system, first.sizes):
        return None

    def make_others() -> list[Draw]:
        return [d for d in map(make, range(1, COUNT)) if is_possible(system, d.sizes)]

    equal = {str(name) for tie in ties if len(tie[1]) == 1 for name in (tie[0], *tie[1])}
    return Draws(first, make_others, frozenset({*fixed, *equal}))


def _is_told(name: str | int, told: Mapping[str, int]) -> bool:
    return isinstance(name, int) or name in told
