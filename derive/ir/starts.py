"""Initial values of recurrences: equations at places before the first one.

    h[-1,i] = h0[i]                                the initial value, at place -1
    h[t,i] = a[t] * h[t - 1,i] + x[t,i]

`inline_starts` inlines the initial values into the reads:

    h[t,i] = a[t] * where(t - 1 < 0, h0[i], h[t - 1,i]) + x[t,i]

A value that is not a number or one element becomes a tensor of its own, `h_start`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from typing import TypeAlias

from derive.errors import Diagnostic
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.text import find_marks
from derive.ir.walk import Names, find_accesses, find_start, rewrite_bottom_up, substitute

Fixed: TypeAlias = tuple[tuple[int, int], ...]  # pairs (axis, negative place)

MOST_BACK = 16  # number of initial places needed for a read at a distance that is not fixed


def find_lowest(system: ir.System) -> dict[tuple[ir.Tensor, int], int]:
    """The lowest negative place of initial values by (tensor, axis): -2 of h[-1], h[-2]."""
    lowest: dict[tuple[ir.Tensor, int], int] = {}
    for equation in system.equations:
        for number, at in find_start(equation.target).items():
            key = (equation.target.tensor, number)
            lowest[key] = min(lowest.get(key, 0), at)
    return lowest


def find_start_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """The errors in initial values: other places than plain indices, repeated and missing ones."""
    met: dict[ir.Tensor, dict[Fixed, ir.Equation]] = {}
    for equation in system.equations:
        start = find_start(equation.target)
        if not start:
            continue
        tensor = equation.target.tensor
        others = [p for k, p in enumerate(equation.target.places) if k not in start]
        before = met.setdefault(tensor, {})
        plain = all(isinstance(place, ir.Index) for place in others)
        if tuple(start.items()) in before or not plain or len({*others}) < len(others):
            yield Diagnostic(
                "start-form",
                f"what stands before the first place of {tensor.name} is written over plain "
                "indices, each place once",
                find_marks(equation, equation.target),
                help=f"write {tensor.name}[-1,i] = .. for one place, -2 for another before it",
            )
        before[tuple(start.items())] = equation
    lowest = find_lowest(system)
    for tensor, starts in met.items():
        axes = range(len(tensor.shape))
        depths = {k: -lowest[tensor, k] for k in axes if (tensor, k) in lowest}
        wanted: list[Fixed] = [
            ((k, -back),) for k, depth in depths.items() for back in range(1, depth + 1)
        ]
        for equation in system.equations:
            own = (a for a in find_accesses(equation.value) if a.tensor is tensor)
            for access in own if len(depths) > 1 else ():
                backs = {k: _find_back(equation, access, k) for k in depths}
                sides = (
                    [None, *((k, -n) for n in range(1, 1 + min(depths[k], backs[k])))]
                    for k in depths
                )
                wanted += [tuple(filter(None, side)) for side in product(*sides)]
        lacking = next((each for each in wanted if each and each not in starts), None)
        if lacking is not None:
            first = starts[min(starts)]
            where = ",".join(str(dict(lacking).get(k, ":")) for k in range(len(tensor.shape)))
            yield Diagnostic(
                "place-not-filled",
                f"no equation gives {tensor.name} a value at {where}",
                find_marks(first, first.target),
                help="places before the first one are counted back from -1"
                + (", the corner too" if len(lacking) > 1 else ""),
            )


def _find_back(equation: ir.Equation, access: ir.Access, number: int) -> int:
    """The number of initial places along an axis that an access may reach back: 2 of `h[t - 2]`."""
    place, target = access.places[number], equation.target
    here = target.places[number] if target.tensor is access.tensor else ir.ZERO
    if isinstance(place, ir.Index):
        return 0
    lag = (Polynomial.of(here) - Polynomial.of(place)).constant
    return MOST_BACK if lag is None else max(0, int(lag))


def inline_starts(system: ir.System) -> ir.System:
    """The system with initial values inlined into the reads, or read from tensors of their own."""
    starts: dict[ir.Tensor, dict[Fixed, ir.Equation]] = {}
    for equation in system.equations:
        if found := find_start(equation.target):
            starts.setdefault(equation.target.tensor, {})[tuple(found.items())] = equation
    if not starts:
        return system
    names = Names.of(system)
    alone = {
        start: _separate_start(start, fixed, names)
        for each in starts.values()
        for fixed, start in each.items()
    }
    separated = {
        tensor: {fixed: alone[start] for fixed, start in each.items()}
        for tensor, each in starts.items()
    }
    inliner = _Inliner(separated, find_lowest(system))
    equations = []
    for written in system.equations:
        new_one = alone.get(written, written)
        value = rewrite_bottom_up(new_one.value, inliner.inline_start)
        equations.append(ir.Equation(new_one.target, value))
    read = {a.tensor for e in equations for a in find_accesses(e.value)}
    kept = tuple(
        new
        for old, new in zip(system.equations, equations, strict=True)
        if old not in alone or new.target.tensor in read
    )
    return replace(system, equations=kept, written=system.written or system.equations)


def _separate_start(start: ir.Equation, fixed: Fixed, names: Names) -> ir.Equation:
    """The equation h[-1,i] = .. of an initial value as h_start[i] = .., without the fixed axes."""
    tensor = start.target.tensor
    left = tuple(p for k, p in enumerate(start.target.places) if k not in dict(fixed))
    shape = tuple(place.extent for place in left if isinstance(place, ir.Index))
    made = ir.Tensor(names.take(f"{tensor.name}_start"), shape, tensor.kind, tensor.below)
    target = ir.Access(made, left)
    return ir.Equation(target, start.value)


@dataclass(frozen=True, slots=True)
class _Inliner:
    """The initial values by tensor and fixed places, and the lowest initial place of each axis."""

    starts: Mapping[ir.Tensor, Mapping[Fixed, ir.Equation]]
    lowest: Mapping[tuple[ir.Tensor, int], int]

    def inline_start(self, expr: ir.Expr) -> ir.Expr:
        """The expression; for a read that may reach initial values, a choice between them."""
        if not isinstance(expr, ir.Access) or expr.tensor not in self.starts:
            return expr
        before = [
            k
            for k, place in enumerate(expr.places)
            if (expr.tensor, k) in self.lowest
            and not isinstance(place, ir.Index)
            and not (isinstance(place, ir.Number) and place.value >= 0)
        ]
        return self._choose(expr, before, ()) or expr

    def _choose(self, access: ir.Access, numbers: Sequence[int], fixed: Fixed) -> ir.Expr | None:
        """The value of an access: a choice for each axis in `numbers`, whose place may be < 0.

        `fixed` holds the negative places that earlier choices decided on. None: no equation gives
        an initial value there.
        """
        if not numbers:
            return self._read_start(access, fixed) if fixed else access
        number, *rest = numbers
        place, value = access.places[number], None
        if isinstance(place, ir.Number):
            return self._choose(access, rest, (*fixed, (number, int(place.value))))
        for at in range(self.lowest[access.tensor, number], 0):
            read = self._choose(access, rest, (*fixed, (number, at)))
            below = ir.Compare("<", place, ir.Number(Fraction(at)))
            value = ir.Where(below, value, read) if value and read else value or read
        inside = self._choose(access, rest, fixed)
        if value is None or inside is None:
            return value or inside
        return ir.Where(ir.Compare("<", place, ir.ZERO), value, inside)

    def _read_start(self, access: ir.Access, fixed: Fixed) -> ir.Expr | None:
        """The initial value at fixed places; None where no equation gives it."""
        start = self.starts[access.tensor].get(fixed)
        if start is None:
            return None
        others = tuple(p for k, p in enumerate(access.places) if k not in dict(fixed))
        new: dict[ir.Expr, ir.Expr] = dict(zip(start.target.places, others, strict=True))
        is_atom = isinstance(start.value, (ir.Number, ir.Infinity, ir.Scalar, ir.Access))
        inner = getattr(start.value, "places", ())
        if is_atom and all(isinstance(place, ir.Index) for place in inner):
            return substitute(start.value, new)
        return ir.Access(start.target.tensor, others)
