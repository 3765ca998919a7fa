"""Where a formula can be edited, what an edit is, and the kinds of edits with their examples."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from derive.ir.nodes import (
    TRUE,
    Access,
    Along,
    Equation,
    Expr,
    Index,
    Reduce,
    Scalar,
    Size,
    System,
    Tensor,
)
from derive.ir.polynomial import evaluate_extent
from derive.ir.text import to_text
from derive.ir.walk import find_children, find_free, map_children, rename_apart, substitute, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Find = Callable[["World", int], Iterator["Change"]]

LONGEST = 60  # indices of a node that words quote whole


@dataclass(frozen=True)
class Site:
    """One occurrence of a node in an equation's value."""

    number: int  # the equation's
    node: Expr
    scope: tuple[Index, ...]  # the indices that may be read here
    above: tuple[Expr, ...]  # what it is part of, the whole value first
    put: Callable[[Expr], Expr]  # the whole value with another node in this place

    @property
    def parent(self) -> Expr | None:
        """What it is directly part of."""
        return self.above[-1] if self.above else None


@dataclass(frozen=True)
class Change:
    """A formula that differs in one respect, and what to do to code that computes it."""

    system: System
    words: str
    number: int  # the first equation that differs
    extra: float = 0.0  # how much less likely it is than others of its kind


@dataclass(frozen=True)
class World:
    """A formula at given sizes, and questions that all kinds of edits ask of it."""

    system: System
    sizes: Mapping[str, int]
    _extents: dict[Expr, int] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def sites(self) -> tuple[tuple[Site, ...], ...]:
        """The sites of every equation, outer ones first."""
        return tuple(
            tuple(find_sites(equation, number))
            for number, equation in enumerate(self.system.equations)
        )

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that the formula is given."""
        return tuple(entry for entry in self.system.inputs if isinstance(entry, Tensor))

    def extent(self, index: Index) -> int:
        """The number of values that an index has."""
        found = self._extents.get(index.extent)
        if found is None:
            found = self._extents[index.extent] = evaluate_extent(index.extent, self.sizes)
        return found

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """The numbers that a tensor's extents are."""
        return tuple(self.extent(Index("_", extent)) for extent in tensor.shape)

    def tensors(self, number: int) -> tuple[Tensor, ...]:
        """The tensors that an equation may read: the inputs, and those of equations before."""
        before = (equation.target.tensor for equation in self.system.equations[:number])
        return (*self.inputs, *dict.fromkeys(before))

    def name(self, number: int) -> str:
        """The name of the tensor that an equation defines."""
        return self.system.equations[number].target.tensor.name

    def with_value(self, number: int, value: Expr) -> System:
        """The formula with another value in one equation."""
        old = self.system.equations[number]
        return self.with_equation(number, Equation(old.target, value))

    def with_equation(self, number: int, *new: Equation) -> System:
        """The formula with other equations in place of one."""
        old = self.system.equations
        return self.with_equations((*old[:number], *new, *old[number + 1 :]))

    def with_equations(
        self, equations: tuple[Equation, ...], results: tuple[Tensor, ...] | None = None
    ) -> System:
        """The formula of other equations, perhaps with other results."""
        results = results or self.system.results
        return replace(self.system, equations=equations, results=results)

    def change(self, site: Site, node: Expr, words: str, extra: float = 0.0) -> Change:
        """The change that puts another node at a site."""
        system = self.with_value(site.number, site.put(node))
        return Change(system, words, site.number, extra)


def find_sites(equation: Equation, number: int) -> Iterator[Site]:
    """The occurrences of all nodes of an equation's value, outer ones first."""
    scope = tuple(dict.fromkeys(i for place in equation.target.places for i in find_free(place)))
    yield from _descend(Site(number, equation.value, scope, (), lambda new: new))


def _descend(site: Site) -> Iterator[Site]:
    yield site
    node, scope = site.node, site.scope
    if isinstance(node, Reduce):
        scope = (*scope, *node.bound)
    elif isinstance(node, Along):
        scope = tuple(dict.fromkeys((*scope, node.index)))
    for at, child in enumerate(find_children(node)):
        yield from _descend(
            Site(site.number, child, scope, (*site.above, node), _put_child(site, at))
        )


def _put_child(site: Site, at: int) -> Callable[[Expr], Expr]:
    return lambda new: site.put(replace_child(site.node, at, new))


def replace_child(node: Expr, at: int, new: Expr) -> Expr:
    """The node with another child at one place."""
    count = iter(range(len(find_children(node))))
    return map_children(node, lambda child: new if next(count) == at else child)


def exchange_nodes(expr: Expr, new: Mapping[Expr, Expr]) -> Expr:
    """The expression with free nodes exchanged; itself, where a softmax's index is in the way."""
    try:
        return substitute(expr, new)
    except ValueError:
        return expr


def is_value(site: Site) -> bool:
    """Is it a number of the formula, no position and no part of a condition?"""
    return not any(isinstance(node, Access) for node in site.above) and not is_condition(site)


def is_condition(site: Site) -> bool:
    """Does it stand in a condition?"""
    chain = (*site.above, site.node)
    for outer, inner in pairwise(chain):
        match outer:
            case Reduce(_, _, condition, _) | Along(_, _, condition, _) if (
                inner is condition and condition != TRUE
            ):
                return True
    return any(type(node).__name__ in {"Compare", "And", "Or", "Not"} for node in chain)


def find_indices(access: Access) -> tuple[Index, ...]:
    """The indices in the places of an access, in order."""
    return tuple(dict.fromkeys(i for place in access.places for i in find_free(place)))


def show(expr: Expr | Equation, name: str = "") -> str:
    """The node as words quote it; one that is too long goes by a name, if it has one."""
    text = to_text(expr)
    return text if len(text) <= LONGEST or not name else name


def find_fresh(index: Index, *exprs: Expr) -> Index:
    """The index under an index that occurs in none of the expressions."""
    taken: set[str] = set()
    for node in (node for expr in exprs for node in walk(expr)):
        match node:
            case Index(name) | Size(name) | Scalar(name) | Along(_, Index(name)):
                taken.add(name)
            case Access(tensor):
                taken.add(tensor.name)
            case Reduce(_, bound):
                taken |= {each.name for each in bound}
    taken |= {node.name for node in walk(index.extent) if isinstance(node, Size)}
    return rename_apart(index, taken)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of edit, with an example."""

    name: str
    formula: str
    code: str
    words: str
    cost: float
    find: Find

    def __call__(self, world: World, number: int) -> Iterator[Change]:
        """The changes of this kind in one equation."""
        return self.find(world, number)


def kind(*, formula: str, code: str, words: str, cost: float) -> Callable[[Find], Kind]:
    """A function on one equation as a Kind, with its example."""

    def wrap(find: Find) -> Kind:
        return Kind(find.__name__, formula, code, words, cost, find)

    return wrap
