"""Small sizes and random inputs at which a formula is judged; the same seed draws the same.

Equal sizes hide mistakes (a transposed square matrix has the right shape), so the sizes of one draw
are pairwise distinct and, if possible, distinct from composite extents such as `H*D`. One draw has
a size 1. Every extent is a whole number and, if possible, at least 1. The order of the sizes varies
between draws. Sizes exceed the numbers in conditions, so that each clip or bracket has an effect
somewhere.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import prod
from random import Random
from typing import Any

from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_free, find_size_names, walk
from derive.ir.walk import find_sizes as walk_sizes
from derive.libraries import torch

MOST_WORK = 200_000  # elements that the loops evaluate for one draw
ATTEMPTS = 60
MANY = 8  # sizes; with more, every draw has repeats, and a few attempts are enough
LARGEST = (8, 12, 24, 48)  # sizes are drawn below these, the first that gives a draw

Sizes = dict[str, int]


@dataclass(frozen=True)
class Demands:
    """The constraints on sizes: valid extents, least extents, and a bound on the loops' work."""

    names: tuple[str, ...]
    extents: tuple[Polynomial, ...]
    least: tuple[tuple[Polynomial, int], ...]  # a fixed place x[3] asks for an extent of 4
    wanted: tuple[tuple[Polynomial, int], ...]  # a bracket [i < 3] has an effect from extent 5 on
    loops: tuple[Polynomial, ...]  # the distinct extents of the loops
    work: tuple[tuple[tuple[int, ...], int], ...]  # the loops around accesses, with counts
    fixed: Mapping[str, int] = field(default_factory=dict)  # sizes given by the caller
    inverted: ir.System | None = None  # the system, if it needs nonsingular matrices


@lru_cache(maxsize=16)
def find_sizes(system: ir.System) -> tuple[str, ...]:
    """The names of all sizes, including those that only bound the values of a tensor."""
    bounds = (bound for t in system.tensors for bound in (t.below, t.lower, t.upper))
    inside = find_size_names(*(bound for bound in bounds if bound is not None))
    return tuple(dict.fromkeys((*walk_sizes(system), *inside)))


def choose_sizes(
    system: ir.System, count: int = 3, seed: int = 0, fixed: Mapping[str, int] | None = None
) -> list[Sizes]:
    """`count` draws of all sizes, small and pairwise distinct; the second one has a size 1.

    Sizes in `fixed` keep their values.
    """
    demands = _find_demands(system)
    known = {name: size for name, size in (fixed or {}).items() if name in demands.names}
    given = {ir.Size(name) for name in known}
    free = tuple(each for each in demands.wanted if not set(each[0].atoms) <= given)
    demands = replace(demands, fixed=known, wanted=free)
    dice = Random(seed)
    draws: list[Sizes] = []
    for number in range(count):
        draws.append(_choose(demands, dice, draws, with_one=number == 1))
    return draws


def is_possible(system: ir.System, sizes: Mapping[str, int]) -> bool:
    """Whether at these sizes every extent is a positive integer and every fixed place in range."""
    return _measure(dict(sizes), _find_demands(system), with_one=True) < _EMPTY


def count_work(system: ir.System, sizes: Mapping[str, int]) -> float:
    """The elements that the loops read at these sizes."""
    return _add_up_work(sizes, _find_demands(system))


def _choose(demands: Demands, dice: Random, before: Sequence[Sizes], *, with_one: bool) -> Sizes:
    """The best of some random draws, as measured by `_measure`."""
    best: tuple[float, Sizes] | None = None
    for largest in LARGEST:
        for _ in range(ATTEMPTS if len(demands.names) <= MANY else ATTEMPTS // 6):
            sizes = _shrink(
                _draw_sizes(demands, dice, largest, with_one), demands, least=2 - with_one
            )
            badness = _measure(sizes, demands, with_one=with_one) + 5 * (sizes in before)
            badness += 0.1 * _count_same_orders(sizes, before)
            if (best is None or badness < best[0]) and _is_singular(demands.inverted, sizes):
                badness += _EMPTY
            if best is None or badness < best[0]:
                best = badness, sizes
            if badness == 0:
                return sizes
        if best is not None and best[0] < _IDLE:
            break
    assert best is not None
    return best[1]


def _is_singular(system: ir.System | None, sizes: Sizes) -> bool:
    """Whether a matrix is singular at these sizes, such as `sum[n](x[n,i] * x[n,j])` over few n."""
    from derive.judge.evaluate import evaluate_system

    if system is None or any(_evaluate(e, sizes) < 0 for e in _find_demands(system).extents):
        return False
    try:
        evaluate_system(system, draw_inputs(system, sizes), sizes, is_regular=True)
    except ArithmeticError:
        return True
    return False


_IDLE, _EMPTY, _INVALID = 1e3, 1e5, 1e8  # penalties of a draw


def _draw_sizes(demands: Demands, dice: Random, largest: int, with_one: bool) -> Sizes:
    names = [name for name in demands.names if name not in demands.fixed]
    known = {*demands.fixed.values()}
    top = max(largest, len(names) + 2) + len(known)
    pool = [size for size in range(2, top) if size not in known]
    sizes = dict(zip(names, dice.sample(pool, len(names)), strict=True))
    if with_one and names and dice.random() < 0.8:  # not every formula works at a size 1
        sizes[dice.choice(names)] = 1
    return {name: demands.fixed.get(name, sizes.get(name, 1)) for name in demands.names}


def _shrink(sizes: Sizes, demands: Demands, *, least: int) -> Sizes:
    """Shrink the sizes until the loops are short enough: the largest to the rarest smaller number.

    A loop of negative extent counts no work until its extent is filled, so both steps alternate.
    """
    free = [name for name in sizes if name not in demands.fixed]
    while True:
        sizes = dict(sizes)
        while any(sizes[name] > 1 for name in free) and _add_up_work(sizes, demands) > MOST_WORK:
            name = max(free, key=lambda size: sizes[size])
            times = Counter(sizes.values())
            sizes[name] = min(range(sizes[name] - 1, 1, -1), key=lambda n: times[n], default=1)
        filled = _fill_extents(dict(sizes), demands, least=least)
        if filled == sizes or all(filled[name] == 1 for name in free):
            return filled
        sizes = filled


def _fill_extents(sizes: Sizes, demands: Demands, *, least: int) -> Sizes:
    """Shrink subtracted sizes, such as K in L - K + 1, until every extent is large enough.

    The largest is shrunk first. A size becomes 1 only if the extent would be empty otherwise.
    """
    for extent in demands.extents:
        taken = [name for name in extent.find_decreasing(sizes) if name not in demands.fixed]
        for lowest, wanted in ((2, least), (1, 1)):
            while _evaluate(extent, sizes) < wanted:
                name = max(taken, key=lambda size: sizes[size], default=None)
                if name is None or sizes[name] <= lowest:
                    break
                sizes[name] -= 1
    return sizes


def _measure(sizes: Sizes, demands: Demands, *, with_one: bool) -> float:
    """The penalty of sizes: 0 if extents are valid, distinct, not 1 (`with_one`: one size is 1)."""
    values = [_evaluate(extent, sizes) for extent in demands.extents]
    badness = 0.0
    for value in values:
        badness += _INVALID * (value.denominator != 1 or value < 0) + _EMPTY * (value == 0)
    for extent, least in demands.least:
        badness += _INVALID * (_evaluate(extent, sizes) < least)
    if not with_one:
        badness += _IDLE * sum(_evaluate(e, sizes) < least for e, least in demands.wanted)
    badness += 10 * _count_repeats(sizes.values()) + _count_repeats(values)
    ones = sum(size == 1 for size in sizes.values())
    if not with_one:  # a window with one place does not test its step
        made = zip(demands.extents, values, strict=True)
        ones += sum(value == 1 for extent, value in made if not _find_size(extent))
    return badness + 40 * abs(ones - (with_one and bool(sizes)))


def _count_repeats(values: Any) -> int:
    return sum(times - 1 for times in Counter(values).values())


def _count_same_orders(sizes: Sizes, before: Sequence[Sizes]) -> int:
    """The number of pairs not yet drawn in both orders, < and >, to which this draw adds none."""
    count = 0
    for one, other in combinations(sizes, 2):
        seen = {_find_order(draw[one], draw[other]) for draw in before} - {0}
        here = _find_order(sizes[one], sizes[other])
        count += len(seen) < 2 and (here == 0 or here in seen)
    return count


def _find_order(one: int, other: int) -> int:
    """1 or -1 by which is larger; 0 where they differ by less than 2 or one is 1."""
    return 0 if abs(one - other) < 2 or 1 in {one, other} else 1 if one > other else -1


def _add_up_work(sizes: Mapping[str, int], demands: Demands) -> float:
    lengths = [max(0.0, float(_evaluate(extent, sizes))) for extent in demands.loops]
    return sum(times * prod([lengths[k] for k in loops]) for loops, times in demands.work)


def _find_size(extent: Polynomial) -> str:
    """The name of the size, where the extent is a single size; else ""."""
    match tuple(extent.terms.items()):
        case ((((ir.Size(name), 1),), 1),):
            return name
    return ""


def _evaluate(extent: Polynomial, sizes: Mapping[str, int]) -> Fraction | int:
    name = _find_size(extent)
    return sizes[name] if name else extent.at(sizes)


@lru_cache(maxsize=16)
def _find_demands(system: ir.System) -> Demands:
    tensors = (*system.tensors, *(e.target.tensor for e in system.equations))
    extents = [extent for tensor in tensors for extent in tensor.shape]
    extents += [tensor.below for tensor in tensors if tensor.below is not None]
    number_of: dict[Polynomial, int] = {}  # the loops' extents, numbered in order of occurrence
    work: Counter[tuple[int, ...]] = Counter()
    least: dict[tuple[Polynomial, int], None] = {}
    wanted: dict[tuple[Polynomial, int], None] = {}
    for equation in (*system.equations, *system.written):
        outside = find_free(equation.target)
        for expr, loops in ((equation.target, outside), *_find_loops(equation.value, outside)):
            extents += [index.extent for index in loops]
            around = (Polynomial.of(index.extent) for index in loops)
            work[tuple(number_of.setdefault(each, len(number_of)) for each in around)] += 1
            places = zip(expr.places, expr.tensor.shape, strict=False)
            fixed = ((p, extent) for p, extent in places if isinstance(p, ir.Number))
            least |= {(Polynomial.of(extent), int(p.value) + 1): None for p, extent in fixed}
        wanted |= dict.fromkeys(_find_wanted(equation.value))
    polynomials = tuple(dict.fromkeys(map(Polynomial.of, extents)))
    return Demands(
        find_sizes(system),
        polynomials,
        tuple(least),
        tuple(wanted),
        tuple(number_of),
        tuple(work.items()),
        inverted=system if any(map(_is_inverse, system.equations)) else None,
    )


def _is_inverse(equation: ir.Equation) -> bool:
    """Whether an equation takes the inverse, Cholesky factor or logdet of a matrix."""
    parts = (part for part in walk(equation.value) if isinstance(part, (ir.Along, ir.Reduce)))
    return any(part.kind in {"inverse", "cholesky", "logdet"} for part in parts)


def _find_loops(
    expr: ir.Expr, loops: tuple[ir.Index, ...]
) -> Iterator[tuple[ir.Access, tuple[ir.Index, ...]]]:
    """Yield pairs (access, indices of the loops around it, outermost first), for every access."""
    match expr:
        case ir.Access():
            yield expr, loops
        case ir.Reduce(_, bound, _, _):
            loops = (*loops, *bound)
        case ir.Along():
            loops = (*loops, *(index for index in expr.indices if index not in loops))
    for child in expr.children:
        yield from _find_loops(child, loops)


def _find_wanted(expr: ir.Expr) -> Iterator[tuple[Polynomial, int]]:
    """Yield pairs (extent, least value) at which conditions on an index and number go both ways.

    With two indices the extent must be so large that `j <= i` and `j < i` differ off the ends too.
    """
    for part in walk(expr):
        if isinstance(part, ir.Compare):
            inside = (*walk(part.left), *walk(part.right))
            numbers = [abs(int(here.value)) for here in inside if isinstance(here, ir.Number)]
            indices = dict.fromkeys(here for here in inside if isinstance(here, ir.Index))
            for index in indices:
                most = max(numbers, default=0) + min(1 + len(indices), 3)
                if Polynomial.of(index.extent).constant is None and most < LARGEST[-1]:
                    yield Polynomial.of(index.extent), most


def draw_inputs(
    system: ir.System,
    sizes: Mapping[str, int],
    seed: int = 0,
    dtype: Any = None,
    *,
    empty_row: bool = False,
) -> dict[str, Any]:
    """An argument for every name: tensors of `dtype` (float64) in their domain, scalars, sizes.

    Truth values are drawn so that every row holds a True and some place a False; with `empty_row`
    the last row holds no True. A scalar takes its default at seed 0, else another number.
    """
    generator = torch.Generator().manual_seed(seed)
    inputs: dict[str, Any] = {}
    definite = _find_definite(system)
    for entry in system.inputs:
        if isinstance(entry, ir.ScalarInput):
            inputs[entry.name] = _draw_scalar(entry, sizes, seed, generator)
        else:
            inputs[entry.name] = _draw_tensor(entry, sizes, generator, dtype, empty_row)
            for one, other in definite.get(entry.name, ()):
                diagonal = inputs[entry.name].diagonal(dim1=one, dim2=other)
                diagonal += 3 * diagonal.shape[-1]
    return inputs | {entry.name: sizes[entry.name] for entry in system.sizes}


@lru_cache(maxsize=16)
def _find_definite(system: ir.System) -> Mapping[str, tuple[tuple[int, int], ...]]:
    """The pairs of axes of square tensors that logdet or cholesky may read.

    A large diagonal makes them positive definite.
    """
    values = {e.target.tensor.name: e.value for e in system.equations}
    parts = [part for value in values.values() for part in walk(value)]
    kinds = {"cholesky", "logdet"}
    waiting = [p.body for p in parts if isinstance(p, (ir.Along, ir.Reduce)) and p.kind in kinds]
    names: dict[str, ir.Tensor] = {}
    while waiting:
        for part in walk(waiting.pop()):
            if isinstance(part, ir.Access) and part.tensor.name not in names:
                names[part.tensor.name] = part.tensor
                waiting += [values[name] for name in (part.tensor.name,) if name in values]
    return {
        name: tuple(
            (one, other)
            for one, other in combinations(range(len(tensor.shape)), 2)
            if tensor.kind == "real"
            and tensor.lower is tensor.upper is None
            and tensor.shape[one] is tensor.shape[other]
        )
        for name, tensor in names.items()
    }


def _draw_scalar(
    entry: ir.ScalarInput, sizes: Mapping[str, int], seed: int, generator: Any
) -> float | int:
    drawn = float(torch.rand((), generator=generator, dtype=torch.float64)) + 0.5
    default = _find_bound(entry.default, {})
    if default is not None and seed == 0:
        return default
    if not find_domain(entry, sizes).is_everything:
        return float(_draw_real(entry, (), sizes, generator))
    if default is None:
        return drawn
    return default + 1 if default == int(default) else default * drawn


def _draw_tensor(
    tensor: ir.Tensor, sizes: Mapping[str, int], generator: Any, dtype: Any, empty_row: bool
) -> Any:
    shape = tuple(int(_evaluate(Polynomial.of(extent), sizes)) for extent in tensor.shape)
    match tensor.kind:
        case "bool":
            return _draw_mask(shape, generator, empty_row)
        case "int":
            low, high = -4, 5
            if tensor.below is not None:
                low, high = 0, int(_evaluate(Polynomial.of(tensor.below), sizes))
            return torch.randint(low, max(high, low + 1), shape, generator=generator)
        case "complex":
            parts = (_draw_real(tensor, shape, sizes, generator) for _ in range(2))
            return torch.complex(*parts).to(
                torch.promote_types(dtype or torch.float64, torch.complex64)
            )
    return _draw_real(tensor, shape, sizes, generator).to(dtype or torch.float64)


@dataclass(frozen=True)
class Domain:
    """The interval of an argument's values; either bound may be missing."""

    low: float | None
    high: float | None
    strict: tuple[bool, bool]  # whether the bound itself is excluded

    @property
    def is_everything(self) -> bool:
        """Whether the domain has no bound."""
        return self.low is None and self.high is None

    def holds(self, value: float) -> bool:
        """Whether the value is in the domain."""
        above = self.low is None or value > self.low or (value == self.low and not self.strict[0])
        below = self.high is None or value < self.high
        return above and (below or (value == self.high and not self.strict[1]))


def find_domain(tensor: ir.Tensor | ir.ScalarInput, sizes: Mapping[str, int]) -> Domain:
    """The domain of an argument at these sizes; 0 .. below - 1 for positions."""
    if isinstance(tensor, ir.Tensor) and tensor.kind == "int" and tensor.below is not None:
        return Domain(0, int(_evaluate(Polynomial.of(tensor.below), sizes)) - 1, (False, False))
    bounds = _find_bound(tensor.lower, sizes), _find_bound(tensor.upper, sizes)
    return Domain(*bounds, tensor.strict)


def _draw_real(
    tensor: ir.Tensor | ir.ScalarInput,
    shape: tuple[int, ...],
    sizes: Mapping[str, int],
    generator: Any,
) -> Any:
    """Normal numbers, or uniform ones between two bounds; an excluded bound is avoided."""
    domain = find_domain(tensor, sizes)
    low, high = domain.low, domain.high
    if low is not None and high is not None:
        below, above = (1e-3 if strict else 0.0 for strict in tensor.strict)
        part = torch.rand(shape, generator=generator, dtype=torch.float64).clamp(below, 1 - above)
        return low + (high - low) * part
    drawn = torch.randn(shape, generator=generator, dtype=torch.float64)
    if low is not None:
        return low + drawn.abs() + (0.1 if tensor.strict[0] else 0.0)
    if high is not None:
        return high - drawn.abs() - (0.1 if tensor.strict[1] else 0.0)
    return drawn


def _find_bound(bound: ir.Expr | None, sizes: Mapping[str, int]) -> float | None:
    """The bound's value, or None where there is no finite constant bound."""
    if bound is None or any(
        isinstance(part, ir.Access | ir.Index | ir.Infinity) for part in walk(bound)
    ):
        return None
    value = _evaluate(Polynomial.of(bound), sizes)
    return int(value) if value.denominator == 1 else float(value)


def _draw_mask(shape: tuple[int, ...], generator: Any, empty_row: bool) -> Any:
    """Truth values with a True on every line of each axis (`empty_row`: but one) and a False."""
    drawn = torch.rand(shape, generator=generator) < 0.5
    places = torch.arange(drawn.numel()).reshape(shape)
    steps = [extent for extent in shape if extent > 1]
    turn = torch.zeros(shape, dtype=torch.int64)
    for number, extent in enumerate(shape):
        at = [1] * len(shape)
        at[number] = extent
        turn = turn + torch.arange(extent).reshape(at)
    kept = turn % min(steps, default=1) == 0
    free = places[~kept]
    drawn = drawn | kept
    if len(free) and bool(drawn.all()):
        pick = int(torch.randint(len(free), (), generator=generator))
        drawn.view(-1)[free[pick]] = False
    if empty_row and drawn.numel():
        drawn[(-1,) * (len(shape) - 1)] = False
    return drawn
