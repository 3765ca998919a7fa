"""SymPy expressions as functions that return the row of their values at many points.

    Sum(f, (j, 0, S - 1))            the sum of the row of f at the points with each j
    Piecewise((a, c), (b, True))     a at the points where c holds, b at the others
    [c] * f, with [c] 1 or 0         f at the points where c holds, 0 at the others
    cumsum(f, j)                     the cumulated row of f, read at j

Points are columns of index values by name. The column "" has the number of the row of each point.

A bracket among the factors of a product or quotient, at any depth of nested products, guards all
other factors: they are not evaluated where it is false. A Kronecker delta is such a bracket.

The values of a reduction are kept for each choice of its free indices: a row is evaluated once for
all of its entries, and a mean once for all elements.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce, singledispatch
from itertools import chain, compress, islice, repeat
from operator import getitem, itemgetter
from typing import Any, TypeAlias

import sympy
from sympy import Idx, Indexed, IndexedBase, KroneckerDelta, Mul, Piecewise, Pow, S, Symbol
from sympy.core.relational import Relational
from sympy.logic.boolalg import BooleanFalse, BooleanTrue

from derive.ir.definitions import bind, read_definition
from derive.ir.functions import FUNCTIONS, ROWS
from derive.judge.loops.names import (
    Names,
    find_divisor,
    find_fraction,
    find_indices,
    is_integer,
    is_kept,
    label_of,
)
from derive.judge.loops.runtime import Place, Tensor, Value, make_range, to_extent
from derive.notation.words import ELEMENTWISE, MAKER, WORDS, Reduction

Points: TypeAlias = Mapping[str, Sequence[Value]]  # a column for each index
Row: TypeAlias = Callable[[Points], Iterable[Value]]  # the values of an expression at points

ONE: Points = {"": (0,)}  # a point without indices
_AT = "'"  # the column with the number of the point; it is no name

_WORDS = {kind.__name__: word for word, kind in ELEMENTWISE.items()} | {"ceiling": "ceiling"}
_RELATIONS = {
    "==": operator.eq, "!=": operator.ne,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


@dataclass(frozen=True)
class Scope:
    """The names and functions available to an expression."""

    names: Names
    values: Mapping[str, Value]  # tensors and numbers; any other name is a column
    functions: Mapping[str, Any]
    count: Callable[[int], None] = lambda steps: None  # called with numbers of steps of loops
    empty_row: str = "nan"
    kept: dict[Any, Any] = field(default_factory=dict)  # reduction: known values, its function

    def apply(self, word: str, *arguments: Any) -> Row:
        """The row of a function, named by its word, of expressions."""
        return apply(self.functions[word], [make(argument, self) for argument in arguments])

    def read_extent(self, extent: Any) -> int:
        """The value of an extent, which has no indices."""
        (value,) = make(extent, self)(ONE)
        return to_extent(value)


def extend(points: Points, name: str, ranges: Sequence[range]) -> Points:
    """The points with a further index, each repeated for all values in its range."""
    counts = [*map(len, ranges)]
    wide = {
        key: [*chain.from_iterable(map(repeat, column, counts))] for key, column in points.items()
    }
    return wide | {name: [*chain.from_iterable(ranges)]}


def _keep(points: Points, mask: Iterable[Value]) -> Points:
    """The points where the mask is true."""
    each = [*mask]
    return {name: [*compress(column, each)] for name, column in points.items()}


def _select(points: Points, conditions: Iterable[Row]) -> Points:
    """The points where all conditions hold; each is evaluated where those before it hold."""
    for condition in conditions:
        points = _keep(points, condition(points))
    return points


def apply(act: Callable[..., Value], rows: Sequence[Row]) -> Row:
    """The row that applies a function to the values of other rows, point by point."""
    return lambda points: map(act, *(row(points) for row in rows))


def gather(points: Points, rows: Sequence[Row]) -> Iterable[tuple[Value, ...]]:
    """A tuple for each point: the values of all rows there."""
    return zip(*(row(points) for row in rows)) if rows else repeat((), len(points[""]))  # noqa: B905


def _fill(value: Value) -> Row:
    """The row that has the same value at every point."""
    return lambda points: repeat(value, len(points[""]))


def _choose(*branches: tuple[Sequence[Row], Row]) -> Row:
    """The row of the first branch whose conditions hold, each evaluated only at its points."""

    def evaluate(points: Points) -> Iterable[Value]:
        found: dict[int, Value] = {}
        every = range(len(points[""]))
        left: Points = {**points, _AT: every}
        for conditions, then in branches:
            inside = _select(left, conditions)
            found |= zip(inside[_AT], then(inside), strict=True)
            left = _keep(left, (at not in found for at in left[_AT]))
        return map(found.__getitem__, every)

    return evaluate


@singledispatch
def make(value: Any, scope: Scope) -> Row:
    """The row of an expression: the function from points (index values) to its values."""
    word = _WORDS[type(value).__name__]
    if word in scope.functions:
        if word in FUNCTIONS and FUNCTIONS[word].is_variadic:
            rows = [make(argument, scope) for argument in value.args]
            return lambda points: map(scope.functions[word], gather(points, rows))
        return scope.apply(word, *value.args)
    row = FUNCTIONS[word]
    given = {name: make(part, scope) for name, part in bind(row, value.args, MAKER).items()}
    definition = read_definition(row.text, {name: Symbol(name) for name in given}, MAKER)
    body = make(definition, Scope(Names(), {}, scope.functions))
    return lambda points: body({"": points[""]} | {n: [*part(points)] for n, part in given.items()})


@make.register(Symbol)
@make.register(Idx)
@make.register(IndexedBase)
@make.register(Indexed)
def _(value: Any, scope: Scope) -> Row:
    name = label_of(getattr(value, "base", value))
    is_column = isinstance(value, (Symbol, Idx)) and name in scope.names.indices
    if is_column or name not in scope.values:
        return itemgetter(name)
    found = scope.values[name]
    if not isinstance(found, Tensor):
        return _fill(found)
    places = [make(place, scope) for place in getattr(value, "indices", ())]
    return lambda points: map(found.__getitem__, gather(points, places))


@make.register(sympy.Number)
@make.register(sympy.core.numbers.NumberSymbol)
@make.register(sympy.core.numbers.ImaginaryUnit)
@make.register(sympy.core.numbers.ComplexInfinity)  # SymPy's value of 1/0
def _(value: Any, scope: Scope) -> Row:
    if value.is_Rational:
        over, under = int(value.p), int(value.q)
        is_decimal = 10**8 % under == 0 and abs(over) < 10**7  # short and exact
        is_float = is_decimal and under != 1
        return _fill(over / under if is_float else scope.functions["divide"](over, under))
    if value in {S.Pi, S.Exp1}:
        return _fill(scope.functions["pi"] if value is S.Pi else scope.functions["exp"](1))
    known = {S.ImaginaryUnit: 1j, S.ComplexInfinity: float("inf")}
    return _fill(known[value] if value in known else float(value))


@make.register(sympy.Add)
def _(value: Any, scope: Scope) -> Row:
    rows = [make(term, scope) for term in value.args]
    return lambda points: reduce(partial(map, operator.add), (row(points) for row in rows))


@make.register(Mul)
def _(value: Any, scope: Scope) -> Row:
    factors, conditions = _split_guards(value)
    row = _make_product(factors, scope)
    return _choose((_make_all(conditions, scope), row), ((), _fill(0))) if conditions else row


def _split_guards(value: Any) -> tuple[list[Any], list[Any]]:
    """The factors of nested products, without Iverson brackets, and the conditions of those."""
    factors: list[Any] = []
    conditions: list[Any] = []
    for factor in value.args if isinstance(value, Mul) else (value,):
        if isinstance(factor, Mul):
            inner, guards = _split_guards(factor)
            factors += inner
            conditions += guards
        elif (condition := _find_bracket(factor)) is not None:
            conditions.append(condition)
        else:
            factors.append(factor)
    return factors, conditions


def _find_bracket(factor: Any) -> Any:
    """The condition of a factor that is 1 where it holds and else 0; None of other factors."""
    if isinstance(factor, Pow) and factor.exp.is_Number and factor.exp.is_positive:
        return _find_bracket(factor.base)
    if isinstance(factor, KroneckerDelta):
        return sympy.Eq(*factor.args[:2], evaluate=False)
    if isinstance(factor, Piecewise) and len(factor.args) == 2:
        (one, condition), (other, rest) = (pair.args for pair in factor.args)
        if one == 1 and other == 0 and rest == sympy.true:
            return condition
    return None


def _make_product(factors: Sequence[Any], scope: Scope) -> Row:
    """The factors multiplied or divided in their order; the first one is not a divisor."""
    is_negative, divide = False, scope.functions["divide"]
    parts: list[tuple[Any, Any]] = []
    for factor in factors:
        if factor.is_Rational:
            is_negative ^= factor < 0
            sides = (operator.mul, abs(factor.p)), (divide, factor.q)
            parts += [(act, sympy.Integer(side)) for act, side in sides if side != 1]
        elif (under := find_divisor(factor)) is not None:
            parts.append((divide, under))
        else:
            parts.append((operator.mul, factor))
    first = next((k for k, (act, _) in enumerate(parts) if act is operator.mul), None)
    start = make(S.One if first is None else parts.pop(first)[1], scope)
    rest = [(act, make(factor, scope)) for act, factor in parts]

    def evaluate(points: Points) -> Iterable[Value]:
        row = start(points)
        for act, part in rest:
            row = map(act, row, part(points))
        return map(operator.neg, row) if is_negative else row

    return evaluate


@make.register(Pow)
def _(value: Any, scope: Scope) -> Row:
    base, exponent = value.args
    if base == sympy.E:
        return scope.apply("exp", exponent)
    if exponent == S.Half:
        return scope.apply("sqrt", base)
    if find_divisor(value) is not None:
        return _make_product((value,), scope)
    return scope.apply("power", base, exponent)


@make.register(sympy.floor)
def _(value: Any, scope: Scope) -> Row:
    above, below = find_fraction(value.args[0])
    if not (is_integer(above, scope.names) and is_integer(below, scope.names)):
        return scope.apply("floor", value.args[0])
    return make(above, scope) if below == 1 else scope.apply("floordiv", above, below)


@make.register(KroneckerDelta)
def _(value: Any, scope: Scope) -> Row:
    return _choose((_make_all([_find_bracket(value)], scope), _fill(1)), ((), _fill(0)))


@make.register(Piecewise)
def _(value: Any, scope: Scope) -> Row:
    pairs = [([make(pair.cond, scope)], make(pair.expr, scope)) for pair in value.args]
    return _choose(*pairs, ((), _fill(float("nan"))))


@make.register(BooleanTrue)
@make.register(BooleanFalse)
def _(value: Any, scope: Scope) -> Row:
    return _fill(bool(value))


@make.register(Relational)
def _(value: Any, scope: Scope) -> Row:
    return apply(_RELATIONS[value.rel_op], [make(side, scope) for side in value.args])


@make.register(sympy.Not)
def _(value: Any, scope: Scope) -> Row:
    return apply(operator.not_, [make(value.args[0], scope)])


@make.register(sympy.And)
def _(value: Any, scope: Scope) -> Row:
    return _choose((_make_all(value.args, scope), _fill(True)), ((), _fill(False)))


@make.register(sympy.Or)
def _(value: Any, scope: Scope) -> Row:
    parts = sorted(value.args, key=lambda part: part.has(Indexed))
    branches = [([make(part, scope)], _fill(True)) for part in parts]
    return _choose(*branches, ((), _fill(False)))


def _make_all(conditions: Iterable[Any], scope: Scope) -> list[Row]:
    """The rows of conditions; those without reads come first and guard the others."""
    parts: list[Any] = []
    for condition in conditions:
        parts += condition.args if isinstance(condition, sympy.And) else [condition]
    plain = [make(part, scope) for part in parts if not part.has(Indexed)]
    reads = [make(part, scope) for part in parts if part.has(Indexed)]
    first = [lambda points: map(all, gather(points, plain))] if len(plain) > 1 else plain
    return [*first, *reads]


@make.register(sympy.Sum)
@make.register(sympy.Product)
@make.register(Reduction)
def _(value: Any, scope: Scope) -> Row:
    bound = [label_of(index) for index in value.bound] if isinstance(value, Reduction) else []
    free = [name for name in find_indices(value, scope.names) if name not in bound]
    if value not in scope.kept:
        scope.kept[value] = {}, _make_reduction(value, free, scope)
    known, evaluate = scope.kept[value]
    columns = [itemgetter(name) for name in free]

    def find(points: Points) -> Iterable[Any]:
        """The values for the free indices; those that are not known are evaluated together."""
        keys = [*gather(points, columns)]
        new = [key for key in dict.fromkeys(keys) if key not in known]
        known.update(zip(new, evaluate(new), strict=True))
        return map(known.__getitem__, keys)

    if not bound or not is_kept(value):
        return find
    places = [itemgetter(name) for name in bound]
    return lambda points: map(getitem, find(points), gather(points, places))


_MOST_POINTS = 10_000  # of several rows together, which bounds the memory


def _make_reduction(
    value: Any, free: list[str], scope: Scope
) -> Callable[[Sequence[Place]], list[Any]]:
    """The function from keys, values of the free indices, to results; a row is a dictionary."""
    kind, body, conditions, limits = _split_reduction(value, scope)
    act, row, places = scope.functions[kind], make(body, scope), []
    if conditions and (ROWS[kind].keeps or kind == "argmax"):  # results are places of the whole row
        left_out = make(sympy.sympify(ROWS[kind].left_out), scope)
        row, conditions = _choose((_make_all(conditions, scope), row), ((), left_out)), []
    if ROWS[kind].keeps:
        places = [itemgetter(label_of(index)) for index in value.bound]
    if ROWS[kind].normalizes and scope.empty_row == "zeros":
        act = partial(act, empty=0)
    guards = _make_all(conditions, scope)
    loops = [(label_of(index), make(low, scope), make(stop, scope)) for index, low, stop in limits]

    def evaluate(keys: Sequence[Place]) -> list[Any]:
        taken, numbers = 0, range(len(keys))
        columns = {name: [key[k] for key in keys] for k, name in enumerate(free)}
        points: Points = {"": numbers, **columns}
        for name, low, stop in loops:
            ranges = [*map(make_range, low(points), stop(points))]
            steps = sum(map(len, ranges))
            if steps > _MOST_POINTS and len(keys) > 1:
                scope.count(-taken)
                half = len(keys) // 2
                return evaluate(keys[:half]) + evaluate(keys[half:])
            scope.count(steps)
            taken += steps
            points = extend(points, name, ranges)
        points = _select(points, guards)
        counts, values = Counter(points[""]), iter(row(points))
        found = [act([*islice(values, counts[number])]) for number in numbers]
        if not places:
            return found
        at = iter(gather(points, places))
        return [dict(zip(islice(at, counts[k]), found[k], strict=True)) for k in numbers]

    return evaluate


def _split_reduction(value: Any, scope: Scope) -> tuple[str, Any, list[Any], list[Any]]:
    """The tuple (word such as "sum", body, conditions, (index, first, end) of each loop)."""
    if isinstance(value, Reduction):
        conditions = [value.condition] if value.condition != sympy.true else []
        loops = [_find_ends((index,), scope) for index in value.bound]
        return WORDS[type(value)], value.body, conditions, loops
    body, *limits = value.args
    loops, waiting = [], limits
    while waiting:  # a loop is inside those whose indices its ends contain; SymPy allows any order
        inner = {label_of(each[0]) for each in waiting}
        ends = [{label_of(s) for end in each[1:] for s in end.free_symbols} for each in waiting]
        first = next((k for k, names in enumerate(ends) if not names & inner), 0)
        loops.append(_find_ends(waiting[first], scope))
        waiting = [*waiting[:first], *waiting[first + 1 :]]
    return "sum" if isinstance(value, sympy.Sum) else "prod", body, [], loops


def _find_ends(limits: Any, scope: Scope) -> tuple[Any, Any, Any]:
    """The triple (index, its first value, the number after its last value)."""
    index, *ends = limits
    if not ends:
        return index, S.Zero, scope.names.indices[label_of(index)]
    return index, ends[0], ends[1] + 1
