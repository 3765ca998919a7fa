"""Single entries of a formula's results by the direct loops, where all of them would take too long.

    q = entries_(B, S, H, D)
    row_1 = keep_(lambda b, i, h: softmax([... q[b, i, h, e] ... for j in range(S)]))
    fill_(alpha, lambda b, i, j, h: row_1(b, i, h)[j], (B, S, S, H), ...)

The text has the same expressions as the loop nest of `loops`; each element is computed when it is
read first, and kept. It is run in floats, or with as many digits as an entry takes: numbers are
mpmath's then, and decimals are the doubles that code has for them, so that a comparison at one is
decided as code decides it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cache, partial
from itertools import product
from math import prod
from operator import mul
from typing import TYPE_CHECKING, Any

from derive.errors import DeriveError
from derive.ir.functions import FUNCTIONS
from derive.judge.loops.names import find_indices, name_of_left, places_of_left, read_names
from derive.judge.loops.runtime import (
    INF,
    NAN,
    FilledTwiceError,
    OutsideError,
    Tensor,
    Value,
    compile_text,
    count,
    define_functions,
    divide,
    make_moments,
    make_namespace,
    make_rows,
    to_extent,
)
from derive.judge.loops.text import (
    Scope,
    find_row_indices,
    find_rows,
    put,
    write_reduction,
    write_shape,
)
from derive.judge.loops.values import bind
from derive.notation.formula import check_formula

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from derive.judge.loops.names import Names
    from derive.judge.loops.runtime import Value
    from derive.notation.formula import Formula


class StepsOverError(Exception):
    """The loops have taken as many steps as they were given."""


class Entries(Tensor):
    """A tensor whose elements are computed when they are read."""

    def __init__(self, *shape: Value, before: tuple[int, ...] = ()) -> None:
        super().__init__(*shape, before=before)
        self.ways: list[Callable[[tuple[int, ...]], list[Callable[[], Value]]]] = []

    def __missing__(self, place: Any) -> Value:
        places = place if isinstance(place, tuple) else (place,)
        if not self.is_inside(places) or any(p != int(p) for p in places):
            raise OutsideError(self, place)
        found = [compute for way in self.ways for compute in way(tuple(map(int, places)))]
        if len(found) != 1:
            raise (FilledTwiceError if found else OutsideError)(self, place)
        value = found[0]()
        dict.__setitem__(self, place, value)
        return value


def open_entries(
    shape: tuple[int, ...], elements: Sequence[Any], convert: Callable[[Any], Value]
) -> Entries:
    """A given tensor, its elements in row-major order."""
    tensor = Entries(*shape)
    strides = [prod(shape[k + 1 :]) for k in range(len(shape))]

    def find(place: tuple[int, ...]) -> list[Callable[[], Value]]:
        return [lambda: convert(elements[sum(map(mul, place, strides))])]

    tensor.ways.append(find)
    return tensor


def fill(
    tensor: Entries,
    compute: Callable[..., Value],
    extents: tuple[Value, ...],
    *places: tuple[tuple[int, ...], Callable[..., int]],
) -> None:
    """An equation of the tensor: its right side, its indices' extents, and each of its places.

    A place is the numbers of the indices in it and what it is of them, `h*D + d`; a table says
    which indices give which place.
    """
    lengths = [to_extent(extent) for extent in extents]
    tables = []
    for indices, find in places:
        table: dict[int, list[dict[int, int]]] = defaultdict(list)
        for values in product(*(range(lengths[index]) for index in indices)):
            table[find(*values)].append(dict(zip(indices, values, strict=True)))
        tables.append(table)

    def find_ways(at: tuple[int, ...]) -> list[Callable[[], Value]]:
        found: list[dict[int, int]] = [{}]
        for table, place in zip(tables, at, strict=True):
            found = [
                one | other
                for one in found
                for other in table.get(place, ())
                if all(one.get(index, value) == value for index, value in other.items())
            ]
        return [partial(compute, *(way[k] for k in range(len(lengths)))) for way in found]

    tensor.ways.append(find_ways)


def write_entries(formula: Formula, names: Names) -> str:
    """The equations as functions of their indices, in Python."""
    lines: list[str] = []
    taken = {*names.python.values(), *make_entry_namespace(0)}
    fresh = (name for name in map("row_{}".format, range(1, 10**9)) if name not in taken)
    begun: set[str] = set()
    for equation in formula.equations:
        name, places = name_of_left(equation), places_of_left(equation)
        left = names.python[name]
        indices = tuple(dict.fromkeys(k for place in places for k in find_indices(place, names)))
        scope = Scope(names, frozenset(indices), empty_row=formula.empty_row)
        for row in find_rows(equation.rhs, frozenset(indices), names):
            needs = [k for k in indices if k in find_row_indices(row, names)]
            called, given = next(fresh), _spell(needs, names)
            lines.append(f"{called} = keep_(lambda {given}: {write_reduction(row, scope)})")
            scope.rows[row] = f"{called}({given})"
        value = put(equation.rhs, scope)
        if not places:
            lines.append(f"{left} = {value}")
            continue
        if name not in begun:
            lines.append(f"{left} = entries_({write_shape(name, scope)})")
            begun.add(name)
        extents = "".join(f"{put(names.indices[k], scope)}, " for k in indices)
        parts = ", ".join(_write_place(place, indices, names, scope) for place in places)
        way = f"lambda {_spell(indices, names)}: {value}"
        lines.append(f"fill_({left}, {way}, ({extents}), {parts})")
    return "\n".join(lines) + "\n"


def _spell(indices: Any, names: Names) -> str:
    return ", ".join(names.python[index] for index in indices)


def _write_place(place: Any, indices: tuple[str, ...], names: Names, scope: Scope) -> str:
    inside = tuple(find_indices(place, names))
    numbers = "".join(f"{indices.index(index)}, " for index in inside)
    return f"(({numbers}), lambda {_spell(inside, names)}: {put(place, scope)})"


def make_entry_namespace(steps: int) -> dict[str, Any]:
    """All that the text may call; a loop that goes beyond the steps raises StepsOverError."""
    left = steps

    def count_down(*bounds: Value) -> range:
        nonlocal left
        found = count(*bounds)
        left -= len(found)
        if left < 0:
            raise StepsOverError
        return found

    namespace = make_namespace(exact=False)
    return namespace | {"entries_": Entries, "fill_": fill, "keep_": cache, "range": count_down}


DIGITS = (300, 1500)  # the second where the first leaves the small part of a sum out
MOST_STEPS = 20_000  # of the loops, for one entry
_MOST_EXPONENT = 1e7  # beyond it an exponential counts as infinite or 0


def prepare_entry(formula: Formula, name: str) -> Callable[..., float | None]:
    """What gives an element of a result for inputs and a place, rounded once.

    It gives inf or nan where the formula does, and None where digits or steps run out; `most` says
    how often the digits may become more.
    """
    names = read_names(check_formula(formula))
    code = compile_text(write_entries(formula, names), exact=False)

    def compute(
        tensors: Mapping[str, Any], place: tuple[int, ...], arithmetic: _Digits
    ) -> float | None:
        values = bind(formula, names, tensors, False, arithmetic.open)
        namespace = make_entry_namespace(MOST_STEPS) | arithmetic.make_namespace()
        define_functions(namespace, exact=False)
        namespace |= {names.python[key]: arithmetic.convert(v) for key, v in values.items()}
        try:
            exec(code, namespace)  # our own text
            found = namespace[names.python[name]]
            return float(found[place if len(place) > 1 else place[0]] if place else found)
        except (OutsideError, StepsOverError, ArithmeticError, RecursionError):
            return None
        except (DeriveError, ValueError):
            return None

    def evaluate(
        tensors: Mapping[str, Any], place: tuple[int, ...], most: int = len(DIGITS)
    ) -> float | None:
        for digits in DIGITS[:most]:
            arithmetic = _Digits(digits)
            rounded = compute(tensors, place, arithmetic)
            if rounded is None or not arithmetic.strained:
                return rounded
            if rounded == compute(tensors, place, _Digits(digits, is_bounded=True)):
                return rounded  # however small it is, what is lost has no part in it
        return None

    return evaluate


class _Digits:
    """Arithmetic with so many digits; `strained` once a part was too small to be kept.

    When it `is_bounded`, such a part is only so small that it is kept.
    """

    def __init__(self, digits: int, is_bounded: bool = False) -> None:
        import mpmath

        self.context = mpmath.mp.clone()
        self.context.dps = digits
        self.is_bounded = is_bounded
        self.strained = False

    def convert(self, value: Any) -> Any:
        """A float as a number of many digits; all else is what it is."""
        return self.context.mpf(value) if isinstance(value, float) else value

    def open(
        self, shape: tuple[int, ...], elements: Sequence[Any], convert: Callable[[Any], Value]
    ) -> Entries:
        """A given tensor, its elements converted when they are read."""
        return open_entries(shape, elements, lambda element: self.convert(convert(element)))

    def make_namespace(self) -> dict[str, Any]:
        """What replaces the functions on floats."""
        mp, exp = self.context, self.exp

        def elementwise(name: str) -> Callable[..., Value]:
            return lambda *values: self._real(getattr(mp, name)(*values))

        names = [name for name, row in FUNCTIONS.items() if row.value == name]
        return {
            "divide_": self.divide,
            "power_": self.power,
            "sqrt": lambda value: self.power(value, 0.5),
            "exp": exp,
            "log": self.log,
            **{name: elementwise(name) for name in names},
            "floor": self._round(mp.floor),
            "ceiling": self._round(mp.ceil),
            "pi": mp.pi,
            **make_rows(exp, self.log, self.divide),
            **make_moments(self.divide),
        }

    def exp(self, value: Value) -> Value:
        """The exponential; strained where 1 beside it would be lost, or it beside 1."""
        if value != value:
            return NAN
        most = self.context.dps
        if 2.3 * most < abs(value) < INF:
            self.strained = True
            if self.is_bounded:
                value = most if value > 0 else -most
        if abs(value) > _MOST_EXPONENT:
            return INF if value > 0 else self.context.mpf(0)
        return self.context.exp(value)

    def log(self, value: Value) -> Value:
        """The natural logarithm; -inf at 0, nan below."""
        if value == 0:
            return -INF
        return self.context.log(value) if value > 0 else NAN

    def divide(self, over: Value, under: Value) -> Value:
        """`over / under`, as IEEE has it at 0; integers that divide stay integers."""
        if under == 0 or over != over or under != under:
            return divide(over, under)
        if isinstance(over, int) and isinstance(under, int) and over % under == 0:
            return over // under
        return self.context.mpf(over) / under

    def power(self, base: Value, exponent: Value) -> Value:
        """`base ** exponent` as torch.pow has it."""
        if base == 0 and exponent < 0:
            return self.divide(1, self.power(base, -exponent))
        return self._real(self.context.mpf(base) ** exponent)

    def _real(self, value: Value) -> Value:
        return NAN if isinstance(value, self.context.mpc) else value

    def _round(self, function: Callable[[Value], Value]) -> Callable[[Value], Value]:
        def rounded(value: Value) -> Value:
            return int(function(value)) if math.isfinite(value) else value

        return rounded
