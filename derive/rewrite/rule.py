"""Rules: rewrites of one node to an equal one, each with its law and examples.

    @rule(
        law="x + where(c, 0, -oo) = where(c, x, -oo)",
        before="...", after="...",          # the same formula before and after, in the notation
        refuses="...",                      # a formula that looks alike and must be left alone
    )
    def merge_mask(expr: Expr) -> Expr | None: ...

A rule returns None at a node where it does not fit. It is tried at the kinds of nodes that its
parameter is annotated with, all for `ir.Expr`. One parametrised test runs the examples and
compares the values of both sides on random tensors.

A law that spans equations is a rule too, with `@system_rule` on a function of a system: it yields
each system that one application of the law can give. At a single node it never fits.

Laws hold for real numbers. A rule whose right side rounds worse than its left side states the loss
in `loses`: no more than the rounding of its summands. The rule is used where nothing magnifies
that, see `recipes`, and not with the option `exact`. With `keeps_sign`, rounding makes no
nonnegative value negative.

A rule with `nan_rows` assumes that an empty normalized row is 0/0, which is nan. It is not used in
a formula with zeros for empty rows.

A rule has access to the names in its own node alone. So indices are renamed after all rules: no
index has the name of a tensor, size, scalar or an index of another extent, and none is bound inside
its own scope.

    sum_k x_k * sum_k l_k   becomes   sum_{k,m} x_k * l_m:  l is a tensor, and m the next index
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args, get_type_hints

from derive.ir import nodes as ir
from derive.ir.polynomial import is_same_extent
from derive.ir.walk import (
    find_accesses,
    find_entry_names,
    find_free,
    find_indices,
    map_children,
    rename_apart,
    rewrite_bottom_up,
    substitute,
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One law of the algebra and the function that applies it to a node."""

    name: str
    act: Callable[[Any], ir.Expr | None]
    kinds: tuple[type, ...]
    law: str
    before: str
    after: str
    refuses: str
    loses: str = ""  # the loss of digits; empty for a rule that loses none
    # The systems that one application of a law that spans equations gives.
    across: Callable[[ir.System], Iterator[ir.System]] | None = None
    nan_rows: bool = False  # not valid where an empty row is zeros
    keeps_sign: bool = False  # rounding makes no nonnegative value negative

    def __call__(self, expr: ir.Expr) -> ir.Expr | None:
        """The node rewritten, or None where the rule does not fit."""
        return self.act(expr) if isinstance(expr, self.kinds) else None


def rule(**fields: Any) -> Callable[[Callable[[Any], ir.Expr | None]], Rule]:
    """A decorator: a function on one node as a Rule with these fields."""

    def make(act: Callable[[Any], ir.Expr | None]) -> Rule:
        kind = get_type_hints(act)["expr"]
        return Rule(act.__name__, act, get_args(kind) or (kind,), **fields)

    return make


def system_rule(**fields: Any) -> Callable[[Callable[[ir.System], Iterator[ir.System]]], Rule]:
    """A decorator: a function on a system as a Rule with these fields."""
    return lambda across: Rule(across.__name__, lambda _: None, (), across=across, **fields)


def find_valid(rules: Sequence[Rule], empty_row: str) -> tuple[Rule, ...]:
    """The rules that hold in a formula whose empty rows are "nan" or "zeros"."""
    return tuple(each for each in rules if empty_row == "nan" or not each.nan_rows)


def sort_rules(rules: Sequence[Rule]) -> dict[type, tuple[Rule, ...]]:
    """The rules that may fit at each kind of node, in order."""
    return {kind: tuple(r for r in rules if kind in r.kinds) for kind in get_args(ir.Expr)}


def apply_rules(expr: ir.Expr, rules: Sequence[Rule], used: set[Rule] | None = None) -> ir.Expr:
    """The expression rewritten by the rules at every node, inner nodes first, until none fits.

    At a node the first rule that fits is taken. Each rule that fitted is added to `used`.
    """
    at = sort_rules(rules)

    def rewrite_node(here: ir.Expr) -> ir.Expr:
        for each in at[type(here)]:
            new = each.act(here)
            if new is not None and new is not here:
                if used is not None:
                    used.add(each)
                return rewrite_bottom_up(new, rewrite_node)
        return here

    return rewrite_bottom_up(expr, rewrite_node)


def find_value(factor: ir.Expr, equation: ir.Equation) -> ir.Expr | None:
    """The value of a read of the equation's tensor at plain indices; None for other nodes."""
    target = equation.target
    if not isinstance(factor, ir.Access) or factor.tensor is not target.tensor:
        return None
    new: dict[ir.Expr, ir.Expr] = {}
    for index, place in zip(target.places, factor.places, strict=True):
        if not isinstance(place, ir.Index) or not isinstance(index, ir.Index):
            return None
        if not is_same_extent(place.extent, index.extent):
            return None
        new[index] = place
    try:
        return substitute(equation.value, new)
    except ValueError:  # a function along an index cannot be read on a diagonal
        return None


def put_value(value: ir.Expr, equation: ir.Equation) -> ir.Expr:
    """The value with each read of the equation's tensor at plain indices inlined."""
    return rewrite_bottom_up(value, lambda here: find_value(here, equation) or here)


def drop_unread(
    equations: Sequence[ir.Equation], results: Collection[ir.Tensor]
) -> tuple[ir.Equation, ...]:
    """The equations that the results depend on."""
    needed, kept = {*results}, list[ir.Equation]()
    for equation in reversed(equations):
        if equation.target.tensor in needed:
            needed |= {access.tensor for access in find_accesses(equation.value)}
            kept.insert(0, equation)
    return tuple(kept)


def rename_all(
    indices: Iterable[ir.Index], taken: set[str], letter: str = ""
) -> dict[ir.Expr, ir.Index]:
    """A map to new names (`letter`, if given) not in `taken`, to which these are added."""
    new: dict[ir.Expr, ir.Index] = {}
    for index in indices:
        new[index] = rename_apart(ir.Index(letter or index.name, index.extent), taken)
        taken.add(new[index].name)
    return new


def rename_clashes(system: ir.System, start: ir.System) -> ir.System:
    """The system with each index renamed that has the name of another thing in `start`."""
    indices = IndexNames(start)
    equations = []
    for equation in system.equations:
        renamed = indices.rename_bound(equation, shadows=True)
        indices.add_equation(renamed)
        equations.append(renamed)
    return replace(system, equations=tuple(equations))


class IndexNames:
    """Renames indices that a rule made apart from names of the system that mean something else."""

    def __init__(self, system: ir.System) -> None:
        self._names = find_entry_names(system)
        self._extents: dict[str, ir.Expr] = {}
        self._new: dict[str, ir.Expr] = {}  # extents by the new names of indices
        self._add_indices(place for each in system.equations for place in each.target.places)
        for equation in system.equations:
            self.add_equation(equation)

    def add_equation(self, equation: ir.Equation) -> None:
        """Record the extents of the indices in an equation."""
        self._add_indices((*equation.target.places, equation.value))

    def _add_indices(self, parts: Iterable[ir.Expr]) -> None:
        """Record the extents of indices; the first one of each name counts.

        The indices of all targets come first, because only bound indices are renamed.
        """
        for part in parts:
            for index in find_indices(part):
                self._extents.setdefault(index.name, index.extent)

    def rename_bound(self, equation: ir.Equation, *, shadows: bool = False) -> ir.Equation:
        """The equation with each index renamed that has a taken name.

        An index that is bound in its own scope is renamed too, unless `shadows` is true.
        """
        scope = None if shadows else {i.name for i in find_free(equation.target)}
        return replace(equation, value=self._rename_bound(equation.value, scope))

    def _rename_bound(self, expr: ir.Expr, scope: set[str] | None) -> ir.Expr:
        if not isinstance(expr, ir.Reduce):
            return map_children(expr, lambda part: self._rename_bound(part, scope))
        inner = {*(scope or ())}
        new: dict[ir.Expr, ir.Index] = {}
        for index in expr.bound:
            kept = index
            if index.name in inner or not self._is_free(index):
                inside = {i.name for i in find_indices(expr)}
                inside |= {n for n, e in self._new.items() if not is_same_extent(e, index.extent)}
                kept = rename_apart(index, {*inner, *self._names, *self._extents, *inside})
                self._new.setdefault(kept.name, kept.extent)
                new[index] = kept
            inner.add(kept.name)
        bound = tuple(new.get(i, i) for i in expr.bound)
        parts = (substitute(part, new) for part in (expr.condition, expr.body))
        around = None if scope is None else inner
        condition, body = (self._rename_bound(part, around) for part in parts)
        return ir.Reduce(expr.kind, bound, condition, body)

    def _is_free(self, index: ir.Index) -> bool:
        """Whether the name means nothing else in the system."""
        known = self._extents.get(index.name)
        is_alike = known is None or is_same_extent(known, index.extent)
        return is_alike and index.name not in self._names
