"""The roles of a formula's names, deduced from its SymPy equations for the loops alone.

A Symbol is a size if it occurs in a shape, in the range of an index or in the limits of a sum. It
is an index if a sum binds it, or if it occurs on a left side or alone in a place. Else it is a
scalar.

The extent of an index is its own range, or follows from the limits of its sum or from the place
that it reads. The extent of a result is the largest place on its left sides plus one.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import sympy
from sympy import (
    Idx,
    Indexed,
    IndexedBase,
    KroneckerDelta,
    Mul,
    Piecewise,
    Pow,
    Product,
    Sum,
    Symbol,
    expand,
)

from derive.ir.functions import ROWS
from derive.notation.formula import Formula
from derive.notation.words import ELEMENTWISE, REDUCTIONS, WORDS, Reduction, argmax


@dataclass
class Names:
    """The roles of all names, in order of appearance."""

    bases: dict[str, Any] = field(default_factory=dict)  # tensor: an IndexedBase, with shape if any
    shapes: dict[str, list[Any]] = field(default_factory=dict)  # tensor: extents
    defined: dict[str, Any] = field(default_factory=dict)  # result: its first equation
    before: dict[str, tuple[int, ...]] = field(default_factory=dict)  # result: count of places < 0
    indices: dict[str, Any] = field(default_factory=dict)  # index: extent, None unknown
    sizes: dict[str, None] = field(default_factory=dict)
    scalars: dict[str, Any] = field(default_factory=dict)  # name: default
    integers: dict[str, bool] = field(default_factory=dict)  # result: whether it holds integers

    @property
    def inputs(self) -> tuple[str, ...]:
        """The tensors that no equation defines."""
        return tuple(name for name in self.bases if name not in self.defined)

    def is_integer_tensor(self, name: str) -> bool:
        """Whether the tensor holds integers."""
        return name in self.integers or getattr(self.bases.get(name), "kind", "real") == "int"


def label_of(value: Any) -> str:
    """The name of a Symbol, an Idx or an IndexedBase."""
    label = getattr(value, "label", value)
    return str(getattr(label, "name", label))


def name_of_left(equation: Any) -> str:
    """The name of the tensor that an equation defines."""
    left = equation.lhs
    return label_of(left.base if isinstance(left, Indexed) else left)


def places_of_left(equation: Any) -> tuple[Any, ...]:
    """The places on the left side of an equation: `(i, 0)` for `y[i, 0]`."""
    return tuple(getattr(equation.lhs, "indices", ()))


def walk_nodes(value: Any) -> Iterator[Any]:
    """The expression and its subexpressions, without the inside of tensors and index ranges."""
    yield value
    if not isinstance(value, (IndexedBase, Idx)):
        for child in getattr(value, "args", ()):
            yield from walk_nodes(child)


def find_indices(value: Any, names: Names) -> dict[str, None]:
    """The free indices of an expression, in reading order."""
    if isinstance(value, (Idx, Symbol)):
        return {label_of(value): None} if label_of(value) in names.indices else {}
    if isinstance(value, IndexedBase):
        return {}
    if isinstance(value, (Sum, Product)):
        bound = {label_of(limits[0]) for limits in value.args[1:]}
        parts = [value.args[0], *(bound for limits in value.args[1:] for bound in limits[1:])]
        inside = union_indices(parts[:1], names)
        outside = union_indices(parts[1:], names)
        return {k: None for k in (*inside, *outside) if k not in bound}
    found = union_indices(getattr(value, "args", ()), names)
    if isinstance(value, Reduction):
        for index in value.bound:
            found.pop(label_of(index), None)
        if is_kept(value):
            found |= {label_of(index): None for index in value.bound}
    return found


def is_kept(value: Reduction) -> bool:
    """Whether the index of a reduction stays free."""
    return ROWS[WORDS[type(value)]].keeps


def union_indices(parts: Iterable[Any], names: Names) -> dict[str, None]:
    """The free indices of several expressions."""
    found: dict[str, None] = {}
    for part in parts:
        found |= find_indices(part, names)
    return found


def _collect_tensors(formula: Formula, nodes: list[Any], names: Names) -> None:
    """Collect tensors, results, sizes, and indices with ranges of their own."""
    declared = formula.declarations
    for value in (*(declared.arguments if declared else ()), *nodes):
        if isinstance(value, IndexedBase):
            known = names.bases.get(label_of(value))
            if known is None or (known.shape is None and value.shape is not None):
                names.bases[label_of(value)] = value
            _add_sizes(names, *(value.shape or ()))
        elif isinstance(value, Idx):
            _add_range(value, names)
    for name, base in names.bases.items():
        if base.shape is not None:
            names.shapes[name] = list(base.shape)
    for symbol, _ in declared.sizes if declared else ():
        _add_sizes(names, symbol)
    for equation in formula.equations:
        names.defined.setdefault(name_of_left(equation), equation)


def _add_sizes(names: Names, *extents: Any) -> None:
    for extent in extents:
        symbols = getattr(extent, "free_symbols", ())
        names.sizes |= dict.fromkeys(sorted(s.name for s in symbols if isinstance(s, Symbol)))


def _add_range(index: Any, names: Names) -> None:
    name = label_of(index)
    names.indices.setdefault(name, None)
    if index.upper is None:
        return
    extent = index.upper + 1
    _add_sizes(names, extent)
    names.indices[name] = extent


def _collect_indices(formula: Formula, nodes: list[Any], names: Names) -> None:
    """Collect indices that are plain symbols, and the sizes and extents in the limits of sums."""
    bound = [
        limits for node in nodes if isinstance(node, (Sum, Product)) for limits in node.args[1:]
    ]
    reduced = (index for node in nodes if isinstance(node, Reduction) for index in node.bound)
    for index in (*(limits[0] for limits in bound), *reduced):
        names.indices.setdefault(label_of(index), None)
    places = [place for node in nodes if isinstance(node, Indexed) for place in node.indices]
    sides = (place for equation in formula.equations for place in places_of_left(equation))
    left = [part for place in sides for part in walk_nodes(place)]
    for place in (*places, *left):
        if isinstance(place, Symbol) and _is_open(place.name, formula, names):
            names.indices.setdefault(place.name, None)
    for limits in bound:
        for limit in limits[1:]:
            for symbol in sorted(s.name for s in limit.free_symbols if isinstance(s, Symbol)):
                if _is_open(symbol, formula, names) and symbol not in names.indices:
                    names.sizes[symbol] = None
    for index, *ends in map(tuple, bound):
        is_range = len(ends) == 2 and ends[0] == 0 and not find_indices(ends[1], names)
        if is_range and names.indices[label_of(index)] is None:
            names.indices[label_of(index)] = ends[1] + 1


def _is_open(name: str, formula: Formula, names: Names) -> bool:
    """Whether a name has no role yet: no size, scalar, argument or tensor of an equation."""
    declared = formula.declarations.arguments if formula.declarations else ()
    taken = (names.sizes, formula.scalars, names.defined, {label_of(a) for a in declared})
    return not any(name in group for group in taken)


def _collect_scalars(formula: Formula, nodes: list[Any], names: Names) -> None:
    """Collect the symbols without another role, as scalars."""
    names.scalars |= formula.scalars
    declared = formula.declarations.arguments if formula.declarations else ()
    for value in (*declared, *nodes):
        name = label_of(value) if isinstance(value, Symbol) else None
        if name and not any(
            name in group for group in (names.sizes, names.indices, names.bases, names.defined)
        ):
            names.scalars.setdefault(name, None)


def _read_extents(nodes: list[Any], names: Names) -> None:
    """Give an index without a range the extent of a place that it fills alone."""
    for read in (node for node in nodes if isinstance(node, Indexed)):
        shape = names.shapes.get(label_of(read.base), [])
        for place, extent in zip(read.indices, shape, strict=False):
            index = label_of(place) if isinstance(place, (Idx, Symbol)) else ""
            if index in names.indices and names.indices[index] is None:
                names.indices[index] = extent


def _shape_results(formula: Formula, names: Names) -> bool:
    """Give shapes to results whose left sides have known extents; return whether any is new."""
    changed = False
    for name in names.defined:
        sides = [places_of_left(e) for e in formula.equations if name_of_left(e) == name]
        indices = {k for side in sides for place in side for k in find_indices(place, names)}
        if name in names.shapes or any(names.indices[index] is None for index in indices):
            continue
        reaches = [[_find_reach(place, names) for place in side] for side in sides]
        names.shapes[name] = [_find_longest(column) for column in zip(*reaches, strict=True)]
        columns = zip(*sides, strict=True)
        names.before[name] = tuple(  # the number of negative places of initial values, by axis
            max(int(-place) if place.is_Integer and place < 0 else 0 for place in column)
            for column in columns
        )
        changed = True
    return changed


def _find_reach(place: Any, names: Names) -> Any:
    """The length an axis needs for a place on the left: the largest value of the place plus 1."""
    whole = expand(place)
    ends = {}
    for atom in walk_nodes(whole):
        if isinstance(atom, (Idx, Symbol)) and label_of(atom) in names.indices:
            is_falling = whole.coeff(atom).is_negative
            ends[atom] = 0 if is_falling else names.indices[label_of(atom)] - 1
    return expand(whole.subs(ends, simultaneous=True) + 1)


def _find_longest(extents: Iterable[Any]) -> Any:
    every = list(extents)
    each = [extent for extent in every if not extent.is_Number] or every
    longest = (e for e in each if all((e - other).is_nonnegative for other in each))
    return next(longest, each[0])


def find_divisor(factor: Any) -> Any:
    """The divisor for a factor with a negative power, `x` for `x**-1`; None for any other."""
    if not isinstance(factor, Pow) or not factor.exp.is_Rational or factor.exp >= 0:
        return None
    return factor.base if factor.exp == -1 else Pow(factor.base, -factor.exp, evaluate=False)


def find_fraction(value: Any) -> tuple[Any, Any]:
    """The numerator and denominator of a value; a sum is put over its common denominator."""
    if isinstance(value, Mul) and len(value.args) == 2:
        under = find_divisor(value.args[1])
        if under is not None:
            return value.args[0], under
    above, below = sympy.fraction(sympy.together(value))
    return above, below


def is_integer(value: Any, names: Names) -> bool:
    """Whether a value's form shows it to be an integer: a size, a sum of indices, an argmax, .."""
    if isinstance(value, (Idx, Symbol, Indexed, IndexedBase)):
        label = label_of(getattr(value, "base", value))
        known = {*names.indices, *names.sizes} if isinstance(value, (Idx, Symbol)) else ()
        return label in known or names.is_integer_tensor(label)
    if isinstance(value, Pow):
        return value.exp.is_Integer and value.exp >= 0 and is_integer(value.base, names)
    if isinstance(value, (sympy.floor, argmax, KroneckerDelta)):
        return True
    if isinstance(value, Reduction):
        kind = WORDS[type(value)]
        is_full = value.condition == sympy.true and kind in {"max", "min"}
        return (is_full or kind == "cumsum") and is_integer(value.body, names)
    kinds = (sympy.Add, Mul, sympy.Mod, sympy.Abs, sympy.Max, sympy.Min, ELEMENTWISE["clip"])
    if isinstance(value, (*kinds, Piecewise, Sum, Product, sympy.sign)):
        return all(is_integer(part, names) for part in _find_parts(value))
    return bool(getattr(value, "is_Integer", False))


def _find_parts(value: Any) -> tuple[Any, ...]:
    """The direct subexpressions whose values enter the value, without conditions and positions."""
    if isinstance(value, (Idx, Symbol, Indexed, KroneckerDelta, argmax)):
        return ()
    if isinstance(value, (Sum, Product)):
        return (value.function,)
    if isinstance(value, Reduction):
        return (value.body,)
    return tuple(part.expr if isinstance(value, Piecewise) else part for part in value.args)


def read_names(formula: Formula) -> Names:
    """The roles of all names with extents and shapes, and the results that hold integers."""
    names = Names()
    nodes = [node for equation in formula.equations for node in walk_nodes(equation)]
    _collect_tensors(formula, nodes, names)
    _collect_indices(formula, nodes, names)
    _collect_scalars(formula, nodes, names)
    _read_extents(nodes, names)
    while _shape_results(formula, names):
        _read_extents(nodes, names)
    values: dict[str, list[Any]] = {}
    for equation in formula.equations:
        parts = values.setdefault(name_of_left(equation), [])
        parts.append(equation.rhs)
    found = {name: _list_parts(each) for name, each in values.items()}
    rows = (Idx, argmax, Sum, REDUCTIONS["cumsum"])
    for name, parts in (*found.items(), *found.items()):  # twice, for mutual recurrences
        reads = (label_of(getattr(p, "base", p)) for p in parts if not p.args or p.is_Indexed)
        is_made = any(names.is_integer_tensor(read) or read in names.indices for read in reads)
        if is_made or any(isinstance(part, rows) for part in parts):
            names.integers[name] = True
    while wrong := [n for n in names.integers if not _is_exact(values[n], found[n], names)]:
        names.integers = {name: True for name in names.integers if name not in wrong}
    return names


def _list_parts(values: list[Any]) -> list[Any]:
    return values + [part for value in values for part in _list_parts([*_find_parts(value)])]


def _is_exact(values: list[Any], parts: list[Any], names: Names) -> bool:
    """Whether values are integers, and floor and sign in `parts` are of quotients of integers."""
    rounded = (p for p in parts if isinstance(p, (sympy.floor, sympy.sign)))
    sides = (side for part in rounded for side in find_fraction(part.args[0]))
    return all(is_integer(each, names) for each in (*values, *sides))
