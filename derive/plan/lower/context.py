"""State of lowering: extents at the plan's sizes, names, steps so far, and layouts.

A layout is the order in which the axes of an intermediate tensor are stored. The first product that
reads the tensor decides: its batch indices (shared with other operands and kept) come first, so
that the product is a batched matmul of views; the other axes keep the order of the formula. Three
exceptions:

- Products with data-dependent conditions do not count, nor tensors with a data-dependent place.
- A function along an index stores that index last.
- In a sum over the rows of two matrices, one of them intermediate, the columns of that one are
  stored last: its gradient then has the same layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from math import prod

from derive.analysis.extents import to_key
from derive.analysis.facts import Facts, is_never_negative
from derive.analysis.safety import is_finite, is_finite_where_defined
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, evaluate_extent
from derive.ir.walk import (
    find_accesses,
    find_all_indices,
    find_free,
    is_bracket,
    rewrite_bottom_up,
    substitute,
    walk,
)
from derive.plan import ops
from derive.plan.path import FLOPS, Order
from derive.plan.steps import Step, free_name, name_op
from derive.rewrite.guards import (
    Protector,
    find_needed,
    find_nonfinite,
    find_singular,
    mark_tensors,
)


@lru_cache(maxsize=1 << 8)
def find_layouts(system: ir.System) -> Mapping[str, tuple[int, ...]]:
    """Return the storage order of the axes of every tensor that an equation defines."""
    layouts = {}
    for n, equation in enumerate(system.equations):
        target = equation.target
        places = range(len(target.places))
        layouts[target.tensor.name] = tuple(places)
        if all(isinstance(place, ir.Index) for place in target.places):
            later = [e.value for e in system.equations[n + 1 :]]
            batch = next(_find_batch(target.tensor.name, later), None) or ()
            along = equation.value.indices if isinstance(equation.value, ir.Along) else ()
            columns = _find_columns(equation.value, set(layouts))
            layouts[target.tensor.name] = tuple(
                sorted(
                    places,
                    key=lambda k: (
                        _rank(target.places[k], along),
                        k not in batch,
                        target.places[k] in columns,
                    ),
                )
            )
    return layouts


def _rank(place: ir.Expr, along: tuple[ir.Index, ...]) -> int:
    """Return the position in `along`, indices that are stored last, or -1: a key to sort by."""
    return along.index(place) if isinstance(place, ir.Index) and place in along else -1


def _find_columns(value: ir.Expr, made: set[str]) -> tuple[ir.Index, ...]:
    """Return indices to store last, columns of a factor in `made` that is summed over rows; or ().

    As the left operand, its gradient would be a transposed matrix.
    """
    match value:
        case ir.Reduce("sum", (row,), _, ir.Mul((ir.Access() as one, ir.Access() as other))):
            pairs = [(one, other), (other, one)]
        case _:
            return ()
    for mine, its in pairs:
        is_only_made = mine.tensor.name in made and its.tensor.name not in made
        if is_only_made and row in mine.places[:-1] and row in its.places[:-1]:
            return tuple(i for i in find_free(mine) if i not in its.places)
    return ()


def _find_batch(name: str, values: list[ir.Expr]) -> Iterator[tuple[int, ...]]:
    """Yield the batch axes of the tensor in the products that read it, in order of appearance.

    Nothing is yielded if the tensor is read at a data-dependent place.
    """
    parts = [part for value in values for part in walk(value)]
    reads = (part for part in parts if isinstance(part, ir.Access) and part.tensor.name == name)
    if any(find_accesses(place) for read in reads for place in read.places):
        return
    for here in parts:
        match here:
            case ir.Reduce("sum", bound, condition, ir.Mul(factors)):
                brackets = (factor for factor in factors if is_bracket(factor))
                guards = (condition, *(bracket.condition for bracket in brackets))
                if not any(map(find_accesses, guards)):
                    yield from _find_shared(name, bound, factors)


def _find_shared(
    name: str, bound: tuple[ir.Index, ...], factors: tuple[ir.Expr, ...]
) -> Iterator[tuple[int, ...]]:
    for factor in factors:
        if isinstance(factor, ir.Access) and factor.tensor.name == name:
            others = {i for f in factors if f is not factor for i in find_free(f)}
            shared = others - set(bound)
            yield tuple(k for k, place in enumerate(factor.places) if place in shared)


@dataclass
class Context:
    """The state while one plan is lowered.

    `known` has the step and free indices of each expression by its key. `stored` has the indices
    that are merged in each place of a tensor.
    """

    system: ir.System
    sizes: Mapping[str, int]
    names: set[str]
    lower_in: Callable[[ir.Expr, Context, tuple[ir.Index, ...]], ops.Op]
    steps: list[Step] = field(default_factory=list)
    layouts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    known: dict[ir.Expr, tuple[ops.Source, tuple[ir.Index, ...]]] = field(default_factory=dict)
    stored: dict[str, tuple[tuple[ir.Index, ...], ...]] = field(default_factory=dict)
    integers: set[str] = field(default_factory=set)  # intermediate integer tensors
    notes: dict[str, None] = field(default_factory=dict)  # notes for the reader, without duplicates
    orders: list[Order] = field(default_factory=list)  # contractions with more than two factors
    extents: dict[ir.Index, int] = field(default_factory=dict)
    target: str = ""  # the tensor of the current equation, after which its steps are named
    minimize: str = FLOPS  # cost to minimize by contraction orders
    transforms: bool = False  # whether sums may be computed by fast Fourier transforms
    cells: bool = True  # whether one call of torch may replace several operations
    compare: Callable[[str, ir.Expr, ir.Expr, Context], ops.Op | None] | None = None  # `lower_rank`
    roundable: Set[ir.Expr] = frozenset()  # sums that may lose digits

    @cached_property
    def facts(self) -> Facts:
        """Return the extents that may be negative, such as L - K + 1; they are assumed >= 0."""
        extents = (Polynomial.of(index.extent) for index in find_all_indices(self.system))
        return tuple(dict.fromkeys(each for each in extents if not is_never_negative(each)))

    @cached_property
    def nonfinite(self) -> Mapping[ir.Tensor, ir.Tensor]:
        """Return the tensors that may be infinite or nan, each with a marked copy."""
        return find_nonfinite(self.system)

    @cached_property
    def singular(self) -> Set[str]:
        """Return the tensors that are infinite only where one of their divisors is 0."""
        return find_singular(self.system, self.nonfinite)

    def is_finite(self, expr: ir.Expr) -> bool:
        """Whether an expression is finite for all finite inputs."""
        return is_finite(mark_tensors(expr, self.nonfinite))

    def is_above(self, expr: ir.Expr) -> bool:
        """Whether an expression is never -oo for finite inputs, wherever it is defined."""
        return is_finite_where_defined(mark_tensors(expr, self.nonfinite))

    def lower(self, expr: ir.Expr, order: tuple[ir.Index, ...]) -> ops.Op:
        """Lower an inner expression; its expensive parts become steps."""
        return self.lower_in(expr, self, order)

    @cached_property
    def protector(self) -> Protector:
        """Return the rewriter that makes values finite where a condition excludes them."""
        return Protector(self.system.empty_row == "zeros", find_needed(self.system))

    def is_needed(self, expr: ir.Expr) -> bool:
        """Whether an expression is computed unconditionally somewhere."""
        return to_key(expr)[0] in self.protector.needed

    def protect(self, expr: ir.Expr, condition: ir.Expr, *, as_divisor: bool = False) -> ir.Expr:
        """Rewrite an expression, used where a condition holds, to be harmless elsewhere.

        With `as_divisor`, an expression whose definitions are harmless already is left unchanged.
        """
        make = partial(self.protector.protect, condition=condition, as_divisor=as_divisor)
        made = make(expr)
        if made is expr or not as_divisor:
            return made
        opened = self._inline_definitions(self._inline_definitions(expr))
        return expr if opened is not expr and make(opened) is opened else made

    def _inline_definitions(self, expr: ir.Expr) -> ir.Expr:

        def act(here: ir.Expr) -> ir.Expr:
            value = self.find_definition(here) if isinstance(here, ir.Access) else None
            return here if value is None else value

        return rewrite_bottom_up(expr, act)

    def find_definition(self, access: ir.Access) -> ir.Expr | None:
        """Return the definition of a name that is written and read at plain indices, else None."""
        for equation in self.system.equations:
            if equation.target.tensor.name != access.tensor.name:
                continue
            pairs = list(zip(equation.target.places, access.places, strict=True))
            if not all(isinstance(place, ir.Index) for pair in pairs for place in pair):
                return None
            try:
                return substitute(equation.value, dict(pairs))
            except ValueError:  # a row along an index that is read at another place
                return None
        return None

    def extent(self, index: ir.Index) -> int:
        """Return the extent of an index at the plan's sizes."""
        if index not in self.extents:
            self.extents[index] = evaluate_extent(index.extent, self.sizes)
        return self.extents[index]

    def count(self, indices: Iterable[ir.Index]) -> int:
        """Count the elements that the indices span."""
        return prod(self.extent(i) for i in dict.fromkeys(indices))

    def recall(self, expr: ir.Expr) -> ops.Source | None:
        """Return a read of the step with this expression, up to names of free indices, or None."""
        key, indices = to_key(expr)
        if key not in self.known:
            return None
        source, names = self.known[key]
        again = dict(zip(names, indices, strict=True))
        return ops.Source(source.name, tuple(again[i] for i in source.axes), source.kind)

    def name_step(self, expr: ir.Expr, op: ops.Op, name: str = "") -> ops.Source:
        """Add a step for an expression, which `recall` finds from then on."""
        key, indices = to_key(expr)
        source = self.add_step(op, free_name(name, self.names) if name else "")
        self.known[key] = (source, indices)
        return source

    def add_step(self, op: ops.Op, given: str = "") -> ops.Source:
        """Add a step for an operation, with the given name or a new one."""
        name = given or free_name(name_op(op, self.target), self.names)
        self.names.add(name)
        self.steps.append(Step(name, op))
        return ops.to_source(name, op)


def layout_of(tensor: ir.Tensor, context: Context) -> tuple[int, ...]:
    """Return the storage order of a tensor's axes."""
    return context.layouts.get(tensor.name, tuple(range(len(tensor.shape))))
