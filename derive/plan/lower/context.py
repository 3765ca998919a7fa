"""What a plan in the making knows: extents at its sizes, names, steps so far, and layouts.

A layout is the order in which the places of an intermediate are stored. The first product that
reads it decides: indices it shares with other operands and keeps (its batch) come first, so that
the product is a batched matmul of views; the rest stays as the user wrote it. A sum over entries
that data choose is no product, and a place that data tell is read fastest where it was written. A
function along an index keeps that index last. A sum over the rows of two matrices, one of which an
equation defines, keeps the columns of that one last: its gradient then lies as it does itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from math import prod

from derive.analysis.extents import to_key
from derive.analysis.facts import Facts, is_finite, is_finite_where_defined, is_never_negative
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial, evaluate_extent
from derive.ir.walk import (
    find_accesses,
    find_all_indices,
    find_free,
    rewrite_bottom_up,
    substitute,
    walk,
)
from derive.plan import ops
from derive.plan.path import FLOPS, Order
from derive.plan.steps import Step, free_name, name_op
from derive.rewrite.guards import (
    find_needed,
    find_nonfinite,
    find_singular,
    guard_unless_finite,
    is_variable,
    mark_tensors,
    protect,
)
from derive.rewrite.rules.products import is_bracket


@lru_cache(maxsize=1 << 8)
def find_layouts(system: ir.System) -> Mapping[str, tuple[int, ...]]:
    """For every tensor that an equation defines, the order of its places in storage."""
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
    """How late a function along indices, which it wants last, wants a place."""
    return along.index(place) if isinstance(place, ir.Index) and place in along else -1


def _find_columns(value: ir.Expr, made: set[str]) -> tuple[ir.Index, ...]:
    """What only the made one of two tensors has, where both are summed over an index before it.

    As the left operand its gradient would be a transposed matrix.
    """
    match value:
        case ir.Reduce("sum", (row,), _, ir.Mul((ir.Access() as one, ir.Access() as other))):
            pairs = [(one, other), (other, one)]
        case _:
            return ()
    for mine, its in pairs:
        is_lone = mine.tensor.name in made and its.tensor.name not in made
        if is_lone and row in mine.places[:-1] and row in its.places[:-1]:
            return tuple(i for i in find_free(mine) if i not in its.places)
    return ()


def _find_batch(name: str, values: list[ir.Expr]) -> Iterator[tuple[int, ...]]:
    """The batch places of the tensor in the products that read it, in order of appearance.

    None where data tell a place of it.
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
    """The state of one plan."""

    system: ir.System
    sizes: Mapping[str, int]
    names: set[str]
    lower_in: Callable[[ir.Expr, Context, tuple[ir.Index, ...]], ops.Op]
    steps: list[Step] = field(default_factory=list)
    layouts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    known: dict[ir.Expr, tuple[ops.Source, tuple[ir.Index, ...]]] = field(default_factory=dict)
    stored: dict[str, tuple[tuple[ir.Index, ...], ...]] = field(default_factory=dict)
    integers: set[str] = field(default_factory=set)  # tensors that equations make of integers
    notes: dict[str, None] = field(default_factory=dict)  # what the reader has to know, each once
    orders: list[Order] = field(default_factory=list)  # of contractions with more than two factors
    extents: dict[ir.Index, int] = field(default_factory=dict)
    target: str = ""
    minimize: str = FLOPS  # by an order of contraction
    transforms: bool = False  # are sums to be computed by fast Fourier transforms?
    cells: bool = True  # are there calls of torch for several operations?
    compare: Callable[[str, ir.Expr, ir.Expr, Context], ops.Op | None] | None = None  # of cells
    roundable: Set[ir.Expr] = frozenset()  # sums that may lose digits

    @cached_property
    def facts(self) -> Facts:
        """What is >= 0 beyond doubt: extents, at all sizes for which there is a formula."""
        extents = (Polynomial.of(index.extent) for index in find_all_indices(self.system))
        return tuple(dict.fromkeys(each for each in extents if not is_never_negative(each)))

    @cached_property
    def nonfinite(self) -> Mapping[ir.Tensor, ir.Tensor]:
        """The tensors that may hold more than finite numbers, with likenesses that say so."""
        return find_nonfinite(self.system)

    @cached_property
    def singular(self) -> Set[str]:
        """The tensors that are infinite nowhere but where a divisor of theirs is 0."""
        return find_singular(self.system, self.nonfinite)

    def is_singular(self, expr: ir.Expr) -> bool:
        """Is it the value of such a tensor?"""
        return isinstance(expr, ir.Access) and expr.tensor.name in self.singular

    def is_finite(self, expr: ir.Expr) -> bool:
        """Is it finite for all finite inputs?"""
        return is_finite(mark_tensors(expr, self.nonfinite))

    def is_never_negative(self, expr: ir.Expr) -> bool:
        """Is it never below 0, wherever it is defined?"""
        return is_never_negative(mark_tensors(expr, find_nonfinite(self.system, signs=True)))

    def is_above(self, expr: ir.Expr) -> bool:
        """Is it never -oo for finite inputs, wherever it is defined?"""
        return is_finite_where_defined(mark_tensors(expr, self.nonfinite))

    def lower(self, expr: ir.Expr, order: tuple[ir.Index, ...]) -> ops.Op:
        """An inner expression as an operation, its heavy parts in steps of their own."""
        return self.lower_in(expr, self, order)

    @cached_property
    def needed(self) -> Set[ir.Expr]:
        """What no condition guards, under indices that no formula has."""
        return find_needed(self.system)

    def is_needed(self, expr: ir.Expr) -> bool:
        """Is it computed anyhow, under no condition?"""
        return to_key(expr)[0] in self.needed

    def protect(self, expr: ir.Expr, condition: ir.Expr, *, whole: bool = False) -> ir.Expr:
        """An expression that is read where a condition holds, made harmless elsewhere.

        A divisor stays as it is where the definitions of its names are harmless there already.
        """
        zeros = self.system.empty_row == "zeros"
        make = partial(protect, condition=condition, whole=whole, zeros=zeros, needed=self.needed)
        made = make(expr)
        if made is expr or not whole:
            return made
        opened = self._open_names(self._open_names(expr))
        return expr if opened is not expr and make(opened) is opened else made

    def _open_names(self, expr: ir.Expr) -> ir.Expr:
        """The expression with the value of each name in its place."""

        def act(here: ir.Expr) -> ir.Expr:
            value = self.find_definition(here) if isinstance(here, ir.Access) else None
            return here if value is None else value

        return rewrite_bottom_up(expr, act)

    def find_definition(self, access: ir.Access) -> ir.Expr | None:
        """The value that a name has in its equation, read at indices alone."""
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

    def protect_factors(
        self, factors: Sequence[ir.Expr], conditions: Sequence[ir.Expr]
    ) -> list[ir.Expr]:
        """The factors of a product, each read where its condition holds.

        A factor by itself that has all indices of its condition is left out with it.
        """
        zeros = self.system.empty_row == "zeros"
        found = list(map(self.protect, factors, conditions))
        is_lone = sum(map(is_variable, found)) < 2
        return [
            factor
            if is_lone and {*find_free(told)} <= {*find_free(factor)}
            else guard_unless_finite(factor, told, zeros=zeros, needed=self.needed)
            for factor, told in zip(found, conditions, strict=True)
        ]

    def extent(self, index: ir.Index) -> int:
        """The extent at the sizes the plan is made for."""
        if index not in self.extents:
            self.extents[index] = evaluate_extent(index.extent, self.sizes)
        return self.extents[index]

    def count(self, indices: Iterable[ir.Index]) -> int:
        """How many elements these indices span."""
        return prod(self.extent(i) for i in dict.fromkeys(indices))

    def recall(self, expr: ir.Expr) -> ops.Source | None:
        """The step that has the value of an expression, or of one with other free indices."""
        key, indices = to_key(expr)
        if key not in self.known:
            return None
        source, names = self.known[key]
        again = dict(zip(names, indices, strict=True))
        return ops.Source(source.name, tuple(again[i] for i in source.axes), source.kind)

    def keep(self, expr: ir.Expr, op: ops.Op, name: str = "") -> ops.Source:
        """A step for the value of an expression, which is recalled from now on."""
        key, indices = to_key(expr)
        source = self.add_step(op, free_name(name, self.names) if name else "")
        self.known[key] = (source, indices)
        return source

    def add_step(self, op: ops.Op, given: str = "") -> ops.Source:
        """A step of its own for an operation, by the name that the formula gives or a free one."""
        name = given or free_name(name_op(op, self.target), self.names)
        self.names.add(name)
        self.steps.append(Step(name, op))
        return ops.to_source(name, op)


def layout_of(tensor: ir.Tensor, context: Context) -> tuple[int, ...]:
    """In which order a tensor's places are stored."""
    return context.layouts.get(tensor.name, tuple(range(len(tensor.shape))))
