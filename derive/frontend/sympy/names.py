"""What the names in SymPy equations stand for: tensors, indices, sizes, scalars.

SymPy has one class, `Symbol`, for four roles. The role is found by use:
- size: in a tensor's shape, in the range of an index, or declared as one
- index: an `Idx`, or a `Symbol` that a sum binds, that an equation's left side holds, or that
  stands alone in a place
- scalar: named in `Formula.scalars`, or declared as one
- tensor: an `IndexedBase`, or the bare left side of an equation
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sympy import Equality, Idx, Indexed, IndexedBase, Product, Sum, Symbol
from sympy.logic.boolalg import BooleanAtom

from derive.errors import refuse
from derive.notation.functions import Reduction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.notation.formula import Formula


@dataclass
class Names:
    """The roles of all names in one formula; insertion order is the order of appearance."""

    bases: dict[str, Any] = field(default_factory=dict)  # name: the IndexedBase that says most
    defined: dict[str, Any] = field(default_factory=dict)  # name: its first equation
    indices: dict[str, list[Any]] = field(default_factory=dict)  # index: its extents, in SymPy
    plain: dict[str, list[tuple[str, int]]] = field(default_factory=dict)  # index: (tensor, place)
    sizes: dict[str, None] = field(default_factory=dict)
    scalars: dict[str, Any] = field(default_factory=dict)  # name: default


def find_names(formula: Formula) -> Names:
    """The role of every name in the formula."""
    names = Names()
    check_equations(formula)
    _declare(formula, names)
    for equation in formula.equations:
        name = find_label(equation.lhs.base if isinstance(equation.lhs, Indexed) else equation.lhs)
        names.defined.setdefault(name, equation)
        for value in walk(equation):
            _note(value, names)
        for place in getattr(equation.lhs, "indices", ()):
            for index in walk(place):
                if isinstance(index, Symbol) and _is_open(index, names):
                    names.indices.setdefault(index.name, [])
    _note_limits(formula, names)
    _check_roles(names)
    return names


def check_equations(formula: Formula) -> None:
    """Refuse what is no equation, and equations that SymPy has decided already."""
    if not formula.equations:
        raise refuse(
            "formula-empty",
            "the formula has no equation",
            help="write at least one, y[i] = sum[j](A[i,j] * x[j])",
        )
    for number, equation in enumerate(formula.equations, 1):
        if isinstance(equation, (bool, BooleanAtom)):
            raise refuse(
                "equation-decided",
                f"equation {number} is {equation}: SymPy has compared its sides already",
                help="give the result a name of its own, or write Eq(left, right, evaluate=False)",
            )
        if not isinstance(equation, Equality):
            raise refuse(
                "equation-wanted",
                f"equation {number} is no equation: {equation}",
                help="write Eq(y[i], ...)",
            )
        if not isinstance(equation.lhs, (Indexed, IndexedBase, Symbol)):
            raise refuse(
                "left-side",
                f"the left side of equation {number} is no element of a tensor: {equation.lhs}",
                help="write the result alone on the left, Eq(y[i], ...)",
            )


def find_label(value: Any) -> str:
    """The name of a Symbol, an Idx or an IndexedBase."""
    label = getattr(value, "label", value)
    return str(getattr(label, "name", label))


def find_extent(index: Any) -> Any:
    """The extent an Idx carries, or None."""
    if not isinstance(index, Idx) or index.upper is None:
        return None
    if index.lower != 0:
        raise refuse(
            "index-start",
            f"index {find_label(index)} starts at {index.lower}; places count from 0",
            help=f'write Idx("{find_label(index)}", extent)',
        )
    return index.upper + 1


def walk(value: Any) -> Iterator[Any]:
    """The SymPy expression and all inside it, but not inside tensors and index ranges."""
    yield value
    if not isinstance(value, (IndexedBase, Idx)):
        for child in getattr(value, "args", ()):
            yield from walk(child)


def find_order(names: Names, name: str) -> tuple[bool, int, str]:
    """Where a tensor stands in a readable line: results of the formula first, then as declared."""
    base = names.bases.get(name)
    declared = getattr(base, "declared", None)
    first_seen = list(names.bases).index(name) if name in names.bases else 0
    return (name not in names.defined, first_seen if declared is None else declared, name)


def _declare(formula: Formula, names: Names) -> None:
    """Enter what the formula declares besides its equations."""
    names.scalars.update({str(name): default for name, default in formula.scalars.items()})
    if formula.declarations is not None:
        for argument in formula.declarations.arguments:
            if isinstance(argument, IndexedBase):
                _note(argument, names)
            else:
                names.scalars.setdefault(find_label(argument), None)
        names.sizes.update(dict.fromkeys(find_label(s) for s, _ in formula.declarations.sizes))
    for equation in formula.equations:
        for value in walk(equation):
            if isinstance(value, (IndexedBase, Idx)):
                names.sizes.update(dict.fromkeys(_find_sizes(value)))


def _find_sizes(value: Any) -> Iterator[str]:
    """The symbols in the shape and bounds of a tensor, or in the range of an index."""
    if isinstance(value, Idx):
        parts = [part for part in (value.lower, value.upper) if part is not None]
    else:
        parts = [*(value.shape or ()), getattr(value, "below", None), *getattr(value, "domain", ())]
    for part in parts:
        yield from sorted(
            s.name for s in getattr(part, "free_symbols", ()) if isinstance(s, Symbol)
        )


def _note(value: Any, names: Names) -> None:
    """Enter one node of an equation."""
    if isinstance(value, IndexedBase):
        _note_base(value, names)
    elif isinstance(value, Idx):
        _note_extent(value, find_extent(value), names)
    elif isinstance(value, Reduction):
        for index in value.bound:
            names.indices.setdefault(find_label(index), [])
    elif isinstance(value, (Sum, Product)):
        for limits in value.args[1:]:
            names.indices.setdefault(find_label(limits[0]), [])
    elif isinstance(value, Indexed):
        for number, place in enumerate(value.indices):
            if isinstance(place, Idx) or (isinstance(place, Symbol) and _is_open(place, names)):
                name = find_label(place)
                names.indices.setdefault(name, [])
                names.plain.setdefault(name, []).append((find_label(value.base), number))


def _is_open(place: Any, names: Names) -> bool:
    return place.name not in names.sizes and place.name not in names.scalars


def _note_base(base: Any, names: Names) -> None:
    name = find_label(base)
    names.sizes.update(dict.fromkeys(_find_sizes(base)))
    known = names.bases.get(name)
    if known is None or (known.shape is None and base.shape is not None):
        names.bases[name] = base
    elif base.shape is not None and tuple(base.shape) != tuple(known.shape):
        raise refuse(
            "name-clash",
            f"{name} names two tensors",
            facts=[f"one of shape {_shape(known)}", f"one of shape {_shape(base)}"],
            help="give one of them another name",
        )


def _note_extent(index: Any, extent: Any, names: Names) -> None:
    extents = names.indices.setdefault(find_label(index), [])
    if extent is not None and extent not in extents:
        extents.append(extent)


def _shape(base: Any) -> str:
    return "[" + ", ".join(map(str, base.shape)) + "]"


def _note_limits(formula: Formula, names: Names) -> None:
    """An index without a range takes its extent from the limits of its sum, if they start at 0."""
    for equation in formula.equations:
        for value in walk(equation):
            if not isinstance(value, (Sum, Product)):
                continue
            for limits in value.args[1:]:
                if len(limits) == 3 and limits[1] == 0:
                    _note_limit(limits, names)


def _note_limit(limits: Any, names: Names) -> None:
    indices = {find_label(s) for s in limits[2].free_symbols}
    if indices & set(names.indices) or names.indices[find_label(limits[0])]:
        return
    names.sizes.update(dict.fromkeys(sorted(indices - set(names.scalars))))
    names.indices[find_label(limits[0])].append(limits[2] + 1)


def _check_roles(names: Names) -> None:
    """One name, one role."""
    roles = {
        "a tensor": {**names.bases, **names.defined},
        "an index": names.indices,
        "a size": names.sizes,
        "a scalar": names.scalars,
    }
    taken: dict[str, str] = {}
    for role, members in roles.items():
        for name in members:
            if name in taken:
                raise refuse(
                    "name-clash",
                    f"{name} is {taken[name]} and {role}",
                    help="give one of them another name",
                )
            taken[name] = role
