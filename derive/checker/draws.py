"""The sizes and inputs at which code is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from derive.checker.ties import Failures, Ties, find_likely_ties, guess_ties, set_sizes
from derive.ir.nodes import Mul, ScalarInput, Size, System, Tensor
from derive.judge.samples import choose_sizes, draw_inputs, find_sizes, is_possible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MOST_TIES = 3  # that are guessed one after the other
MOST_GUESSED = 16  # draws that follow from what failed
MOST_LIKELY = 60  # draws that are tried without a clue
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


def find_draws(
    system: System,
    fixed: Mapping[str, int],
    numbers: Sequence[Mapping[str, int]],
    failures: Failures,
) -> Iterator[Draws]:
    """Draws to try in turn: free ones, the code's numbers, E = H*D, equal sizes.

    Whoever tries them adds to the failures; what they tell is tried next.
    """
    failures.start()
    free = make_draws(system, fixed)
    yield free
    failures.end()
    pending = _guess(failures, free.first.sizes, (), fixed)
    for told in numbers:
        if any(name not in fixed for name in told):
            yield make_draws(system, {**told, **fixed})
    names = [name for name in find_sizes(system) if name not in fixed]
    likely = islice(find_likely_ties(names, _find_merged(system)), MOST_LIKELY)
    seen: set[frozenset[tuple[str, frozenset[str]]]] = set()
    guesses = 0
    while not failures.is_hopeless:
        if pending and guesses < MOST_GUESSED:
            ties, guesses = pending.pop(0), guesses + 1
        else:
            ties = next(likely, ())
        if not ties:
            return
        key = frozenset((name, frozenset(product)) for name, product in ties)
        draws = None if key in seen else _make_tied(system, fixed, ties)
        seen.add(key)
        if draws is not None:
            failures.start()
            yield draws
            failures.end()
            pending += _guess(failures, draws.first.sizes, ties, fixed)


def _guess(
    failures: Failures, sizes: Mapping[str, int], ties: Ties, fixed: Mapping[str, int]
) -> list[Ties]:
    found = guess_ties(failures.clashes, sizes, ties, fixed)
    return [(*ties, tie) for tie in found if len(ties) < MOST_TIES]


def _find_merged(system: System) -> list[tuple[str, ...]]:
    """The products of sizes that are extents of the formula."""
    tensors = [entry for entry in system.inputs if isinstance(entry, Tensor)]
    tensors += [equation.target.tensor for equation in system.equations]
    extents = (extent for tensor in tensors for extent in tensor.shape)
    merged = (extent.factors for extent in extents if isinstance(extent, Mul))
    names = (tuple(f.name for f in factors if isinstance(f, Size)) for factors in merged)
    return list(dict.fromkeys(tuple(sorted(each)) for each in names if len(each) == 2))


def make_draws(system: System, fixed: Mapping[str, int]) -> Draws:
    """Draws at sizes that are free but for the fixed ones."""

    def make(count: int) -> list[Draw]:
        sizes = choose_sizes(system, count, fixed=fixed)
        return [Draw(system, each, number, fixed=fixed) for number, each in enumerate(sizes)]

    return Draws(make(1)[0], lambda: make(COUNT)[1:], frozenset(fixed))


def _make_tied(system: System, fixed: Mapping[str, int], ties: Ties) -> Draws | None:
    """Draws at which some sizes are tied to others; None where the formula has no such sizes."""
    tied = {name for name, _ in ties}
    merged = [name for _, product in ties if len(product) > 1 for name in product]
    roots = list(dict.fromkeys(name for name in merged if name not in tied and name not in fixed))

    def make(number: int) -> Draw:
        told = {**dict(zip(roots, FACTORS[number], strict=False)), **fixed}
        if roots:
            known = set_sizes({**dict.fromkeys(find_sizes(system), 1), **told}, ties)
            told |= {name: known[name] for name, product in ties if {*product} <= {*told}}
            free = choose_sizes(system, 1, seed=number, fixed=told)[0]
        else:
            free = choose_sizes(system, number + 1, fixed=fixed)[number]
        return Draw(system, set_sizes(free, ties), number, fixed=fixed, ties=ties)

    first = make(0)
    if not is_possible(system, first.sizes):
        return None

    def make_others() -> list[Draw]:
        return [d for d in map(make, range(1, COUNT)) if is_possible(system, d.sizes)]

    equal = {name for tie in ties if len(tie[1]) == 1 for name in (tie[0], *tie[1])}
    return Draws(first, make_others, frozenset({*fixed, *equal}))
