"""Boundary values of tables of recurrences over two indices, found in choices by position.

where(i - 1 < 0, top[j], D[i - 1,j])          D[-1,j] is top[j]
where(i >= 1, D[i - 1,j] + e[i,j], -oo)       D[-1,j] is -oo, and e is 0 there

A small table shows whether gradients through these values are finite.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import product

from derive.analysis.names import is_condition
from derive.ir import nodes as ir
from derive.ir.functions import FUNCTIONS
from derive.ir.polynomial import evaluate_extent
from derive.ir.recurrences import Recurrence
from derive.ir.walk import find_accesses, find_free, find_size_names, walk

Place = tuple[ir.Tensor, int, int]  # a tensor and a position, which may be outside
Depths = tuple[int, int]  # the distance before the first position of each index; 0 inside

MOST = 8  # the largest number in a condition for which a small table is tried
COUNTED = (ir.Add, ir.Mul, ir.Index, ir.Size, ir.Number)
RELATIONS: Mapping[str, Callable[[Fraction], bool]] = {
    "<": lambda gap: gap < 0,
    "<=": lambda gap: gap <= 0,
    ">": lambda gap: gap > 0,
    ">=": lambda gap: gap >= 0,
    "==": lambda gap: gap == 0,
    "!=": lambda gap: gap != 0,
}


@dataclass(frozen=True, slots=True)
class Grid:
    """A small table: its extents, and the sizes that lead to them."""

    indices: tuple[ir.Index, ir.Index]
    outer: int
    inner: int
    sizes: Mapping[str, int]

    @staticmethod
    def of(system: ir.System, recurrence: Recurrence) -> Grid | None:
        """A small table of a recurrence; None where conditions have large numbers."""
        loops = recurrence.loops
        values = [equation.value for equation in recurrence.equations]
        conditions = [p for value in values for p in walk(value) if isinstance(p, ir.Compare)]
        numbers = [n for each in conditions for n in walk(each) if isinstance(n, ir.Number)]
        most = max((abs(number.value) for number in numbers), default=Fraction(0))
        if most > MOST:
            return None
        extents = [loop.index.extent for loop in loops]
        names = [name for part in (*extents, *conditions) for name in find_size_names(part)]
        sizes = {name: int(most) + 4 + k for k, name in enumerate(dict.fromkeys(names))}
        outer, inner = (evaluate_extent(extent, sizes) for extent in extents)
        one, other = (loop.index for loop in loops)
        return Grid((one, other), outer, inner, sizes) if min(outer, inner) > most else None

    def decides(self, condition: ir.Expr) -> bool:
        """Whether positions and sizes alone decide a condition."""
        if not isinstance(condition, (ir.Compare, ir.And, ir.Or, ir.Not, ir.Truth)):
            return False
        free = {*find_free(condition)}
        plain = (*COUNTED, ir.Compare, ir.And, ir.Or, ir.Not, ir.Truth)
        known = all(isinstance(part, plain) for part in walk(condition))
        return known and free <= {*self.indices} and {*find_size_names(condition)} <= {*self.sizes}

    def holds(self, condition: ir.Expr, place: tuple[int, int]) -> bool:
        """Whether a condition on positions holds at a position."""
        match condition:
            case ir.Truth(value):
                return value
            case ir.Not(part):
                return not self.holds(part, place)
            case ir.And(parts):
                return all(self.holds(part, place) for part in parts)
            case ir.Or(parts):
                return any(self.holds(part, place) for part in parts)
            case ir.Compare(relation, left, right):
                sides = (self._evaluate_number(side, place) for side in (left, right))
                return RELATIONS[relation](next(sides) - next(sides))
        raise TypeError(f"{type(condition).__name__} is no condition of places")

    def _evaluate_number(self, expr: ir.Expr, place: tuple[int, int]) -> Fraction:
        match expr:
            case ir.Number(value):
                return value
            case ir.Size(name):
                return Fraction(self.sizes[name])
            case ir.Add(terms):
                return sum((self._evaluate_number(term, place) for term in terms), Fraction(0))
            case ir.Mul(factors):
                total = Fraction(1)
                for factor in factors:
                    total *= self._evaluate_number(factor, place)
                return total
        return Fraction(place[self.indices.index(expr)])

    def find_leaves(self, expr: ir.Expr) -> dict[tuple[int, int], ir.Expr]:
        """The branch that nested choices take at each position."""
        return {
            place: self.pick_branch(expr, place)
            for place in product(range(self.outer), range(self.inner))
        }

    def pick_branch(self, expr: ir.Expr, place: tuple[int, int]) -> ir.Expr:
        """The branch that nested choices take at a position."""
        while isinstance(expr, ir.Where) and self.decides(expr.condition):
            expr = expr.then if self.holds(expr.condition, place) else expr.other
        return expr


def is_infinite(expr: ir.Expr) -> bool:
    """Whether a value is infinite, with either sign."""
    if isinstance(expr, ir.Where):
        return is_infinite(expr.then) and is_infinite(expr.other)
    return any(isinstance(factor, ir.Infinity) for factor in ir.split_product(expr))


def has_infinity(expr: ir.Expr) -> bool:
    """Whether an infinity is among the parts of a value."""
    return any(isinstance(part, ir.Infinity) for part in walk(expr))


def push_guard(expr: ir.Expr, reads: Callable[[ir.Expr], bool]) -> ir.Expr:
    """A choice between a number and a sum or product, moved to the one read inside."""
    if isinstance(expr, ir.Mul):
        guards = [factor for factor in expr.factors if is_condition(factor)]
        rest = [factor for factor in expr.factors if factor not in guards]
        if guards and any(map(reads, rest)) and not any(map(find_accesses, guards)):
            return push_guard(ir.Where(ir.all_of(*guards), ir.product_of(rest), ir.ZERO), reads)
        return expr
    if not isinstance(expr, ir.Where) or find_accesses(expr.condition):
        return expr
    condition, then, other = expr.condition, expr.then, expr.other
    if reads(other) and not reads(then):
        condition, then, other = ir.negate(condition), other, then
    if not reads(then) or not isinstance(other, (ir.Number, ir.Infinity)):
        return expr
    parts: tuple[ir.Expr, ...] = ()
    if isinstance(then, ir.Add):
        parts = then.terms
    elif isinstance(then, ir.Mul) and other is ir.ZERO:
        parts = then.factors
    own = [part for part in parts if reads(part)]
    if len(own) != 1:
        return expr
    rest = [part for part in parts if part is not own[0]]
    inner = push_guard(ir.Where(condition, own[0], other), reads)
    guarded = (ir.Where(condition, part, ir.ZERO) if find_accesses(part) else part for part in rest)
    if isinstance(then, ir.Add):  # where the read is replaced, all other terms are 0
        guarded = (ir.Where(condition, part, ir.ZERO) for part in rest)
    whole = (inner, *guarded)
    return ir.Add(whole) if isinstance(then, ir.Add) else ir.Mul(whole)


class HarmfulError(Exception):
    """A value or a slope that may be nan, or of which too little is known."""


# Classes of values: finite, finite and positive, 0, oo, -oo, or infinite with unknown sign.
FINITE, POSITIVE, ZERO = "finite", "positive", "zero"
ABOVE, BELOW, INFINITE = "above", "below", "infinite"
UNBOUNDED = {ABOVE, BELOW, INFINITE}


def classify(expr: ir.Expr, read: Callable[[ir.Expr], str | None], guarded: set[ir.Expr]) -> str:
    """The class of a value with finite slopes, else HarmfulError; `read` gives it for reads.

    A scalar times an infinite value counts as infinite: with a factor 0 the result is nan anyway.
    A logaddexp whose arguments may both be -oo is added to `guarded`.
    """
    ask = partial(classify, read=read, guarded=guarded)
    known = read(expr)
    if known is not None:
        return known
    match expr:
        case ir.Infinity(negative):
            return BELOW if negative else ABOVE
        case ir.Number(value):
            return POSITIVE if value > 0 else FINITE if value else ZERO
        case ir.Add(terms):
            return _classify_sum([ask(term) for term in terms])
        case ir.Mul(factors):
            return _classify_product(factors, [ask(factor) for factor in factors])
        case ir.Pow(base, ir.Number(value)) if value > 0 and value.denominator == 1:
            kind = ask(base)
            if kind in UNBOUNDED:
                raise HarmfulError
            return kind
        case ir.Call("logaddexp", (one, other)) if {ask(one), ask(other)} <= {BELOW, INFINITE}:
            guarded.add(expr)
            return BELOW
        case ir.Call(function, arguments):
            return _classify_call(function, [ask(each) for each in arguments])
        case ir.Where(_, then, other):
            kinds = {ask(then), ask(other)}
            if len(kinds) == 1:
                return kinds.pop()
            if not kinds & UNBOUNDED:
                return FINITE
            if kinds <= UNBOUNDED:
                return INFINITE
        case ir.Reduce(kind, _, ir.Truth(True), body) if kind in {"sum", "logsumexp", "max", "min"}:
            inner = ask(body)
            if inner not in UNBOUNDED:
                return FINITE
            if kind in {"max", "min"}:
                return inner
    if not any(isinstance(part, (ir.Reduce, ir.Along)) for part in walk(expr)) and all(
        read(part) is None and not isinstance(part, (ir.Access, ir.Infinity)) for part in walk(expr)
    ):
        return FINITE  # only scalars and positions
    raise HarmfulError


def _classify_sum(kinds: list[str]) -> str:
    infinite = {kind for kind in kinds if kind in UNBOUNDED}
    if infinite:
        if len(infinite) > 1 or (INFINITE in infinite and kinds.count(INFINITE) > 1):
            raise HarmfulError
        return infinite.pop()
    left = {kind for kind in kinds if kind != ZERO}
    return FINITE if FINITE in left else POSITIVE if left else ZERO


def _classify_product(factors: tuple[ir.Expr, ...], kinds: list[str]) -> str:
    infinite = [kind for kind in kinds if kind in UNBOUNDED]
    if not infinite:
        every = {*kinds}
        return ZERO if ZERO in every else POSITIVE if every == {POSITIVE} else FINITE
    rest = [factor for factor, kind in zip(factors, kinds, strict=True) if kind not in UNBOUNDED]
    if len(infinite) > 1 or any(find_accesses(factor) for factor in rest) or ZERO in kinds:
        raise HarmfulError
    if not all(isinstance(factor, ir.Number) for factor in rest):
        return INFINITE
    is_turned = sum(factor.value < 0 for factor in rest if isinstance(factor, ir.Number)) % 2
    turned = {ABOVE: BELOW, BELOW: ABOVE, INFINITE: INFINITE}
    return turned[infinite[0]] if is_turned else infinite[0]


def _classify_call(function: str, kinds: list[str]) -> str:
    every = {*kinds}
    match function:
        case "max" | "min":
            if INFINITE in every:
                raise HarmfulError
            order = [BELOW, FINITE, ABOVE] if function == "min" else [ABOVE, FINITE, BELOW]
            bounded = {kind if kind in UNBOUNDED else FINITE for kind in every}
            return next(kind for kind in order if kind in bounded)
        case "logaddexp" if ABOVE not in every and every - UNBOUNDED:
            return FINITE
        case "exp" if every <= {BELOW, INFINITE}:
            return ZERO
        case "exp" if not every & UNBOUNDED:
            return POSITIVE
        case "log" if every == {POSITIVE}:
            return FINITE
        case "log":
            raise HarmfulError
        case _ if not every & UNBOUNDED and not FUNCTIONS[function].domain:
            return FINITE
    raise HarmfulError


@dataclass(frozen=True, slots=True)
class SmallTable:
    """A recurrence on a small grid, whose values and slopes are classified.

    `fixed` are cases that do not read the table, each with its condition on positions. `infinite`
    are tensors before the table that may be infinite.
    """

    grid: Grid
    weight: int  # waves per step of the outer index
    values: Mapping[ir.Tensor, ir.Expr]
    fixed: Mapping[ir.Tensor, Sequence[tuple[ir.Expr, ir.Expr]]]
    lags: Mapping[ir.Access, Depths]
    starts: Mapping[ir.Tensor, Mapping[Depths, ir.Expr]]
    infinite: Collection[ir.Tensor]

    def is_harmless(self, fill: Callable[[ir.Tensor], ir.Expr], guarded: set[ir.Expr]) -> bool:
        """Whether the table, its unused entries filled, has no nan gradient and no infinity inside.

        A logaddexp whose arguments may both be -oo is added to `guarded`.
        """
        grid, known = self.grid, dict[Place, str]()

        def classify_read(expr: ir.Expr) -> str | None:
            """The class of a read at the current position; None for other expressions."""
            if not isinstance(expr, ir.Access):
                return None
            if expr not in self.lags:
                if expr.tensor in self.infinite:
                    raise HarmfulError
                return FINITE
            one, other = self.lags[expr]
            place = expr.tensor, i - one, j - other
            return known[place] if place in known else self._classify_border(place, fill, guarded)

        last = self.weight * (grid.outer - 1) + grid.inner
        try:
            for wave, i in product(range(last), range(grid.outer)):
                j = wave - self.weight * i
                for tensor, value in self.values.items():
                    cases = (v for c, v in self.fixed[tensor] if grid.holds(c, (i, j)))
                    case = next(cases, None)
                    kind = classify(value, classify_read, guarded)
                    if 0 <= j < grid.inner:
                        if case is not None:
                            kind = classify(case, classify_read, guarded)
                        if kind in UNBOUNDED:
                            return False
                        known[tensor, i, j] = kind
        except HarmfulError:
            return False
        return True

    def _classify_border(
        self, place: Place, fill: Callable[[ir.Tensor], ir.Expr], guarded: set[ir.Expr]
    ) -> str:
        """The class of a value outside of the grid."""
        tensor, i, j = place
        if not self.is_needed(tensor, self.weight * i + j):
            return FINITE
        start = self.starts[tensor].get((max(0, -i), max(0, -j)), fill(tensor))
        start = fill(tensor) if i >= 0 <= j else self.grid.pick_branch(start, (i, j))
        if has_infinity(start):
            if not is_infinite(start):
                raise HarmfulError
            return classify(start, lambda _: None, guarded)
        return FINITE

    def is_needed(self, tensor: ir.Tensor, wave: int) -> bool:
        """Whether a value on a wave is needed: on one before the first, only if it is read."""
        if wave >= 0:
            return True
        grid = self.grid
        for target, value in self.values.items():
            reads = [a for a in find_accesses(value) if a in self.lags and a.tensor is tensor]
            steps = {self.weight * self.lags[a][0] + self.lags[a][1] for a in reads}
            for i, j in product(range(grid.outer), range(grid.inner)):
                is_read = self.weight * i + j - wave in steps
                if is_read and not any(grid.holds(c, (i, j)) for c, _ in self.fixed[target]):
                    return True
        return False
