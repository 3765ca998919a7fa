"""Whether the left sides of equations fill every position of a tensor exactly once.

    y[h*D + d]                one place that covers every position: an index, merged indices, a
                              reversed index
    y[2*p], y[2*p + 1]        several equations with disjoint positions, whose counts add up to
    y[p], y[p + H]            the number of positions
    y[0], y[i + 1]

`join_parts` merges several equations into one, with a choice by position.

    y[2*p] = a; y[2*p + 1] = b     y[2*p + i] = where(i <= 0, a, b)
    y[p] = a[p]; y[p + H] = b[p]   y[k] = where(k < H, a[k], b[k - H])
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import islice, product
from math import gcd

from derive.analysis.affine import simplify_place
from derive.analysis.facts import Facts, find_range, is_never_negative, is_positive
from derive.errors import Diagnostic, refuse
from derive.ir import nodes as ir
from derive.ir.polynomial import ONE, Polynomial, evaluate_extent, is_same_extent, split_steps
from derive.ir.text import find_marks, write_extent
from derive.ir.walk import (
    Names,
    find_all_indices,
    find_free,
    find_sizes,
    find_start,
    rewrite_bottom_up,
    substitute,
    walk,
)


def fills_once(place: ir.Expr, extent: ir.Expr) -> bool:
    """Whether one place of a left side covers every position of its axis exactly once."""
    return bool(split_merged(place, extent)) or find_reversed(place, extent) is not None


def find_reversed(place: ir.Expr, extent: ir.Expr) -> ir.Index | None:
    """The index n of a place N - 1 - n, which runs from the last position to the first; or None."""
    indices = () if isinstance(place, ir.Index) else find_free(place)
    if len(indices) != 1 or Polynomial.of(indices[0].extent) != Polynomial.of(extent):
        return None
    last = Polynomial.of(extent) - ONE
    return indices[0] if Polynomial.of(place) == last - Polynomial.of(indices[0]) else None


@lru_cache(maxsize=1 << 12)
def split_merged(place: ir.Expr, extent: ir.Expr) -> tuple[ir.Index, ...]:
    """The indices of a merged place, slowest first: (h, d) of `h*D + d`; () for other places.

    d must have extent D and the axis extent H*D, so that every position occurs once.
    """
    steps, rest = split_steps(Polynomial.of(place))
    ordered: list[ir.Index] = []
    stride = ONE
    for _ in () if rest.terms else steps:
        index = next((i for i, step in steps.items() if step == stride and i not in ordered), None)
        if not isinstance(index, ir.Index):
            return ()
        ordered.insert(0, index)
        stride = stride * Polynomial.of(index.extent)
    pair = (simplify_place(stride.to_expr()), simplify_place(extent))  # (1 + H)//2 is (H + 1)//2
    return tuple(ordered) if not rest.terms and is_same_extent(*pair) else ()


def merge_place(parts: tuple[ir.Index, ...]) -> ir.Expr:
    """The place `h*D + d` of these indices on their merged axis, slowest first."""
    terms: list[ir.Expr] = []
    for k, index in enumerate(parts):
        strides = tuple(p.extent for p in parts[k + 1 :])
        terms.append(ir.Mul((index, *strides)) if strides else index)
    return ir.sum_of(terms)


@dataclass(frozen=True)
class Run:
    """The positions of one place: `low + apart * core`; the core takes 0, 1, .. once each."""

    low: Polynomial
    high: Polynomial
    apart: int
    core: ir.Expr

    @property
    def count(self) -> Polynomial:
        """The number of positions."""
        return (self.high - self.low) * Polynomial.of(Fraction(1, self.apart)) + ONE


def find_run(place: ir.Expr) -> Run | None:
    """The run of positions of a place; None where they are not recognised as a run."""
    value = Polynomial.of(place)
    inside = find_range(value)
    if inside.low is None or inside.high is None:
        return None
    above = value - inside.low
    numbers = above.terms.values()
    whole = all(number.denominator == 1 for number in numbers)
    apart = gcd(*(abs(int(number)) for number in numbers)) if whole and above.terms else 1
    # the terms of 2*(N - 1) - 2*n are multiples of 2; a step of 1 covers merged places
    for step in (apart, 1):
        core = (above * Polynomial.of(Fraction(1, step))).to_expr()
        run = Run(inside.low, inside.high, step, core)
        if not above.terms or fills_once(core, run.count.to_expr()):
            return run
    return None


def is_apart(one: Run, other: Run, facts: Facts) -> bool:
    """Whether two runs are shown to be disjoint, for all sizes for which the facts are >= 0."""
    if is_positive(other.low - one.high, facts) or is_positive(one.low - other.high, facts):
        return True
    shared, gap = gcd(one.apart, other.apart), other.low - one.low
    last = gap.terms.get((), Fraction(0))
    return last % shared != 0 and all(n % shared == 0 for m, n in gap.terms.items() if m)


def group_parts(system: ir.System) -> dict[ir.Tensor, list[ir.Equation]]:
    """The equations that define each tensor, in order."""
    found: dict[ir.Tensor, list[ir.Equation]] = {}
    for equation in system.equations:
        found.setdefault(equation.target.tensor, []).append(equation)
    return found


def find_cover_mistakes(system: ir.System) -> Iterator[Diagnostic]:
    """The errors for tensors that their equations do not fill exactly once."""
    for tensor, each in group_parts(system).items():
        parts = [part for part in each if not find_start(part.target)]
        if not parts:
            yield _report_unfilled(tensor, parts, system)
            continue
        is_fixed = any(not find_free(p) for part in parts for p in part.target.places)
        if (len(parts) > 1 or is_fixed) and not _is_filled_once(tensor, parts):
            yield _report_unfilled(tensor, parts, system)


def _is_filled_once(tensor: ir.Tensor, parts: Sequence[ir.Equation]) -> bool:
    """Whether the positions of the parts are disjoint, in range, and together all of a tensor."""
    runs: list[tuple[Run, ...]] = []
    facts, left = _find_facts(parts), Polynomial.of(ir.product_of(tensor.shape))
    for part in parts:
        found = [find_run(place) for place in part.target.places]
        own = tuple(run for run in found if run is not None)
        if len(own) < len(tensor.shape):
            return False
        count = ONE
        for run, extent in zip(own, tensor.shape, strict=True):
            above = Polynomial.of(extent) - ONE - run.high
            if not (is_never_negative(run.low, facts) and is_never_negative(above, facts)):
                return False
            count = count * run.count
        for other in runs:
            if not any(is_apart(*pair, facts) for pair in zip(own, other, strict=True)):
                return False
        runs.append(own)
        left = left - count
    return not left.terms


def _find_facts(parts: Sequence[ir.Equation]) -> Facts:
    """The extents of the indices on the left sides, as facts: they are >= 0."""
    indices = (i for part in parts for i in find_free(part.target))
    return tuple(dict.fromkeys(Polynomial.of(index.extent) for index in indices))


MOST_TRIED = 4096  # most positions of a tensor that are enumerated for an error message


def _report_unfilled(
    tensor: ir.Tensor, parts: Sequence[ir.Equation], system: ir.System
) -> Diagnostic:
    """The error with the first position that is not filled exactly once, at small sizes."""
    names = find_sizes(system)
    marks = tuple(mark for part in parts for mark in find_marks(part, part.target))
    for start in range(1, 6):
        sizes = {name: start + k for k, name in enumerate(names)}
        at = ", ".join(f"{name}={size}" for name, size in sizes.items())
        extents = [index.extent for index in find_all_indices(system)]
        if any(evaluate_extent(extent, sizes) < 0 for extent in extents):
            continue
        found = _find_unfilled(tensor, parts, sizes)
        if found is None:
            continue
        place, count = found
        where = f"{tensor.name}[{', '.join(map(str, place))}]"
        if not count:
            return Diagnostic(
                "place-not-filled",
                f"no equation gives {where} a value" + (f", at {at}" if at else ""),
                marks,
                (f"{tensor.name} has shape [{write_extent(*tensor.shape)}]",),
                "the equations of one tensor fill each of its places once: add the lacking one",
            )
        return Diagnostic(
            "place-filled-twice",
            f"{where} is defined twice" + (f", at {at}" if at else ""),
            marks,
            help="the equations of one tensor fill each of its places once: shift one of them, "
            "or shorten its index",
        )
    return Diagnostic(
        "places-unclear",
        f"whether the equations of {tensor.name} fill each of its places once is not clear",
        marks,
        help="write places like 2*p + 1, p + H, h*D + d or 0",
    )


def _find_unfilled(
    tensor: ir.Tensor, parts: Sequence[ir.Equation], sizes: dict[str, int]
) -> tuple[tuple[int, ...], int] | None:
    """The pair (first position not filled exactly once, number of its equations); or None."""
    shape = [evaluate_extent(extent, sizes) for extent in tensor.shape]
    filled: dict[tuple[int, ...], int] = {}
    for part in parts:
        indices = find_free(part.target)
        extents = [range(evaluate_extent(index.extent, sizes)) for index in indices]
        for values in islice(product(*extents), MOST_TRIED):
            here: dict[ir.Expr, ir.Expr] = {
                i: ir.Number(Fraction(value)) for i, value in zip(indices, values, strict=True)
            }
            place = tuple(evaluate_extent(substitute(p, here), sizes) for p in part.target.places)
            filled[place] = filled.get(place, 0) + 1
    every = [*islice(product(*map(range, shape)), MOST_TRIED), *filled]
    return next(((p, filled.get(p, 0)) for p in every if filled.get(p, 0) != 1), None)


def join_parts(system: ir.System) -> ir.System:
    """The system with one equation for each tensor; `written` keeps the user's equations."""
    groups = group_parts(system)
    if all(len(parts) == 1 and not _is_fixed(parts[0]) for parts in groups.values()):
        return system
    names = Names.of(system)
    equations: list[ir.Equation] = []
    indices: dict[tuple[str, ir.Expr], ir.Index] = {}
    for tensor, parts in groups.items():
        if len(parts) == 1 and not _is_fixed(parts[0]):
            equations += parts
        else:
            equations += _Joiner(tensor, names, indices, {*groups}).join_equations(parts)
    # a joined equation takes the position of its last part, a split-off part that of its reader
    order = {part.target.tensor: k for k, part in enumerate(system.equations)}
    ranks = [order.get(e.target.tensor, -1) for e in equations]
    for k in reversed(range(len(equations) - 1)):
        ranks[k] = ranks[k + 1] if ranks[k] < 0 else ranks[k]
    written = system.written or system.equations
    ordered = sorted(zip(ranks, range(len(ranks)), equations, strict=True), key=lambda t: t[:2])
    return replace(system, equations=tuple(e for _, _, e in ordered), written=written)


def _is_fixed(part: ir.Equation) -> bool:
    return any(not find_free(place) for place in part.target.places)


# a part of a tensor: its runs by axis, and its value over the indices of the joined equation
Leaf = tuple[dict[int, Run], "ir.Expr"]


@dataclass
class _Joiner:
    """The merging of the equations that fill one tensor into one equation."""

    tensor: ir.Tensor
    names: Names
    indices: dict[tuple[str, ir.Expr], ir.Index]  # of all tensors, which may read one another
    defined: set[ir.Tensor]

    def __post_init__(self) -> None:
        """Set the state of the merging, which `join_equations` fills."""
        self.alike = {each for each in self.defined if each.shape == self.tensor.shape}
        self.made: list[ir.Equation] = []  # equations of parts that cannot be inlined
        self.axes: list[ir.Expr] = []  # the places of the joined left side
        self.facts: Facts = ()
        self.split: dict[int, ir.Index] = {}  # the new index of each axis in which parts differ

    def join_equations(self, parts: Sequence[ir.Equation]) -> list[ir.Equation]:
        """The joined equation, after the equations of parts that cannot be inlined."""
        self.facts = _find_facts(parts)
        targets = [[*part.target.places] for part in parts]
        shape = [*self.tensor.shape]
        woven = {k: self._interleave(targets, shape, k) for k in range(len(shape))}
        for number, extent in enumerate(shape):
            column = [target[number] for target in targets]
            if all(_is_alike(column[0], other) for other in column):
                self.axes.append(column[0])
                continue
            name = next((i.name for place in column for i in find_free(place)), "i")
            self.split[number] = self._name_axis(name, extent)
            self.axes.append(self.split[number])
        leaves = [
            self._find_leaf(target, part.value) for target, part in zip(targets, parts, strict=True)
        ]
        places = [
            place if turn is None else ir.Add((ir.Mul((shape[turn], place)), self.axes[turn]))
            for place, turn in zip(self.axes, woven.values(), strict=False)
        ]
        value = self._choose_part(leaves)
        return [*self.made, ir.Equation(ir.Access(self.tensor, tuple(places)), value)]

    def _name_axis(self, name: str, extent: ir.Expr) -> ir.Index:
        named = self.indices.get((name, extent))
        if named is None or named in self.split.values():
            named = self.indices[name, extent] = self.names.take_index(ir.Index(name, extent))
        return named

    def _interleave(
        self, targets: list[list[ir.Expr]], shape: list[ir.Expr], number: int
    ) -> int | None:
        """Split an axis of interleaved parts, 2*p and 2*p + 1, into p and a new axis of extent 2.

        Return the number of the new axis, or None for parts that do not interleave. `targets` and
        `shape` are updated in place.
        """
        runs = [run for target in targets if (run := find_run(target[number])) is not None]
        count = len({run.low for run in runs})
        turns = {run.low.constant for run in runs} == set(range(count))
        alike = all(_is_alike(runs[0].core, run.core) for run in runs)
        if count == 1 or not (turns and alike and all(run.apart == count for run in runs)):
            return None
        for target, run in zip(targets, runs, strict=True):
            target[number] = run.core
            target.append(run.low.to_expr())
        shape[number] = runs[0].count.to_expr()
        shape.append(ir.Number(Fraction(count)))
        return len(shape) - 1

    def _find_leaf(self, target: Sequence[ir.Expr], value: ir.Expr) -> Leaf:
        """The runs of a part, and its value over the indices of the joined equation.

        A part with a reduction becomes an equation of its own, read by the joined equation.
        """
        runs: dict[int, Run] = {}
        new: dict[ir.Expr, ir.Expr] = {}
        own: list[tuple[ir.Expr, ir.Expr]] = []  # places and extents of an equation of its own
        reads: list[ir.Expr] = []
        is_plain = not any(isinstance(part, (ir.Reduce, ir.Along)) for part in walk(value))
        for number, place in enumerate(target):
            run = find_run(place)
            assert run is not None  # the parts are known to fill the tensor once
            position = self.axes[number]
            if number in self.split:
                runs[number] = run
                position = _divide(Polynomial.of(position) - run.low, run.apart)
                count = run.count.to_expr()
                back = find_reversed(run.core, count)
                if isinstance(run.core, ir.Index):
                    new[run.core] = position
                elif back is not None:
                    new[back] = (run.count - ONE - Polynomial.of(position)).to_expr()
                elif find_free(place):
                    is_plain = False
            else:
                new |= zip(find_free(place), find_free(position), strict=True)
            if find_free(place):
                own.append((run.core, run.count.to_expr()))
                reads.append(position)
        recurs = any(isinstance(p, ir.Access) and p.tensor is self.tensor for p in walk(value))
        if is_plain or (recurs and set(new) >= {i for p in target for i in find_free(p)}):

            def simplify(expr: ir.Expr) -> ir.Expr:
                """The read with simplified places: axis + gap on an axis with one position."""
                if not isinstance(expr, ir.Access):
                    return expr
                places = [*map(simplify_place, expr.places)]
                for number, run in runs.items() if expr.tensor in self.alike else ():
                    is_new = number >= len(places)  # the axis of an interleaving
                    gap = None if is_new else (Polynomial.of(places[number]) - run.low).constant
                    if run.count == ONE and gap is not None and gap.denominator == 1:
                        here = Polynomial.of(self.axes[number]) + Polynomial.of(gap)
                        places[number] = here.to_expr()
                return ir.Access(expr.tensor, tuple(places))

            try:
                return runs, rewrite_bottom_up(substitute(value, new), simplify)
            except ValueError:  # an Along over the replaced index
                raise refuse(
                    "not-yet",
                    f"a part of {self.tensor.name} goes along its index and recurs",
                    help="give what goes along the index an equation of its own",
                ) from None
        numbered = (f"{self.tensor.name}_{k}" for k in range(1, len(self.names) + 2))
        name = next(name for name in numbered if name not in self.names)
        self.names.add(name)
        alone = ir.Tensor(name, tuple(n for _, n in own), self.tensor.kind, self.tensor.below)
        self.made.append(ir.Equation(ir.Access(alone, tuple(place for place, _ in own)), value))
        return runs, ir.Access(alone, tuple(reads))

    def _choose_part(self, leaves: Sequence[Leaf]) -> ir.Expr:
        """The value at a position: choices between parts by edges; DeriveError without such."""
        if len(leaves) == 1:
            return leaves[0][1]
        for number, index in self.split.items():
            ordered = self._order_parts(leaves, number)
            for k in range(1, len(ordered)):
                before, after = ordered[:k], ordered[k:]
                edge = after[0][0][number].low
                below = (edge - ONE - runs[number].high for runs, _ in before)
                above = (runs[number].low - edge for runs, _ in after)
                if all(is_never_negative(gap, self.facts) for gap in (*below, *above)):
                    condition = ir.Compare("<", index, edge.to_expr())
                    return ir.Where(condition, self._choose_part(before), self._choose_part(after))
            apart = gcd(*(runs[number].apart for runs, _ in leaves))
            turns: dict[ir.Expr, list[Leaf]] = {}
            for leaf in leaves:
                low = leaf[0][number].low
                rest = {m: n % apart for m, n in low.terms.items() if n % apart}
                turns.setdefault(Polynomial(rest).to_expr(), []).append(leaf)
            if len(turns) > 1 and all(isinstance(turn, ir.Number) for turn in turns):
                turn, *others = turns
                met = ir.Compare("==", ir.Call("mod", (index, ir.Number(Fraction(apart)))), turn)
                left = [leaf for each in others for leaf in turns[each]]
                return ir.Where(met, self._choose_part(turns[turn]), self._choose_part(left))
        raise refuse(
            "not-yet",
            f"the equations of {self.tensor.name} fill it in a way that cannot be cut apart yet",
            help="write one equation for all places, with where(..)",
        )

    def _order_parts(self, leaves: Sequence[Leaf], number: int) -> list[Leaf]:
        """The parts in ascending order of their positions on an axis, as far as it is shown."""
        ordered: list[Leaf] = []
        for leaf in leaves:
            high = leaf[0][number].high
            gaps = (runs[number].low - high for runs, _ in ordered)
            later = (k for k, gap in enumerate(gaps) if is_positive(gap, self.facts))
            ordered.insert(next(later, len(ordered)), leaf)
        return ordered


def _is_alike(one: ir.Expr, other: ir.Expr) -> bool:
    """Whether two places are equal up to the names of their indices."""
    names, others = find_free(one), find_free(other)
    if len(names) != len(others) or not names:
        return False
    if not all(is_same_extent(a.extent, b.extent) for a, b in zip(names, others, strict=True)):
        return False
    new: dict[ir.Expr, ir.Expr] = dict(zip(others, names, strict=True))
    return Polynomial.of(one) == Polynomial.of(substitute(other, new))


def _divide(value: Polynomial, by: int) -> ir.Expr:
    expr = simplify_place(value.to_expr())
    return expr if by == 1 else ir.Call("floordiv", (expr, ir.Number(Fraction(by))))
