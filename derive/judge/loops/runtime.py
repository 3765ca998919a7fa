"""The functions of the loops on numbers, and tensors whose elements are computed when read.

Where Python raises, the functions return the values of the hardware: 1 / 0 is inf, 0 / 0 is nan,
exp overflows to inf, log(0) is -inf, log(-1) is nan.
"""

from __future__ import annotations

import cmath
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial, reduce
from itertools import accumulate, chain, product
from operator import attrgetter, methodcaller
from typing import Any, TypeAlias

from derive.errors import DeriveError, refuse
from derive.ir.functions import FUNCTIONS

Value: TypeAlias = Any  # int, float or complex; bool where a truth value is used as a number
Place: TypeAlias = tuple[int, ...]

INF, NAN = math.inf, math.nan


def divide(over: Value, under: Value) -> Value:
    """`over / under`; an integer where integers divide exactly, so that positions stay exact."""
    if under != under or over != over:
        return NAN
    if isinstance(over, complex) or isinstance(under, complex):
        return over / under if under != 0 else complex(NAN, NAN)
    if under == 0:
        sign = math.copysign(1.0, under) * (1 if over > 0 else -1)
        return NAN if over == 0 else INF * sign
    if isinstance(over, int) and isinstance(under, int):
        return over // under if over % under == 0 else over / under
    return over / under


def divide_down(over: Value, under: Value) -> Value:
    """`over // under`; nan or inf where Python raises."""
    if under == 0 or not is_finite(over) or not is_finite(under):
        return floor(divide(over, under))
    return over // under


def find_remainder(over: Value, under: Value) -> Value:
    """`over % under`, with the sign of `under`; nan where Python raises."""
    if under == 0 or not is_finite(over) or under != under:
        return NAN
    return over % under


def raise_power(base: Value, exponent: Value) -> Value:
    """`base ** exponent`, as torch.pow computes it."""
    if exponent == 0.5:
        return root(base)
    if exponent < 0 and base == 0:
        return divide(1, raise_power(base, -exponent))
    try:
        found = base**exponent
    except OverflowError:
        odd = exponent == int(exponent) and int(exponent) % 2 == 1
        return -INF if base < 0 and odd else INF
    is_root = isinstance(found, complex) and not isinstance(base, complex)
    return NAN if is_root else found


def is_finite(value: Value) -> bool:
    """Whether a value is neither inf nor nan."""
    return not isinstance(value, float) or math.isfinite(value)


def floor(value: Value) -> Value:
    """The largest integer <= value; inf and nan unchanged."""
    return math.floor(value) if is_finite(value) else value


def root(value: Value) -> float:
    """The square root; nan below 0."""
    return NAN if value != value or value < 0 else math.sqrt(value)


def exp(value: Value) -> Value:
    """The exponential; inf where it overflows."""
    try:
        if isinstance(value, complex):
            return cmath.exp(value)
        return math.exp(value)
    except OverflowError:
        return INF if value.real > 0 else 0.0


def log(value: Value) -> float:
    """The natural logarithm; -inf at 0, nan below."""
    if value == 0:
        return -INF
    return math.log(value) if value > 0 else NAN


def log1p(value: Value) -> float:
    """`log(1 + x)` without loss of digits near 0; -inf at -1, nan below."""
    return math.log1p(value) if value > -1 else -INF if value == -1 else NAN


def sign(value: Value) -> Value:
    """1, 0 or -1; nan unchanged."""
    return value if value != value else (value > 0) - (value < 0)


def largest(values: Iterable[Value]) -> Value:
    """The largest value; nan if one is nan, -inf without values."""
    entries = list(values)
    return NAN if any(map(operator.ne, entries, entries)) else max(entries, default=-INF)


def smallest(values: Iterable[Value]) -> Value:
    """The smallest value; nan if one is nan, inf without values."""
    entries = list(values)
    return NAN if any(map(operator.ne, entries, entries)) else min(entries, default=INF)


def guard_domain(function: Callable[..., float]) -> Callable[..., float]:
    """A function of `math`, with nan outside its domain and inf where it overflows."""

    def answer(*values: Value) -> float:
        try:
            return function(*values)
        except ValueError:
            return NAN
        except OverflowError:
            return INF if values[0] > 0 or function is math.cosh else -INF

    return answer


class DeepError(Exception):
    """The error of reads nested too deep; `read_deeply` computes this entry and tries again."""

    def __init__(self, tensor: Tensor, place: Place) -> None:
        super().__init__()
        self.tensor = tensor
        self.place = place


_DEEPEST = 20  # elements that are computed inside one another
_TOGETHER = 1000  # elements that are computed at once, which bounds the memory

Compute: TypeAlias = Callable[[Sequence[Any]], Iterable[Value]]  # the values for several keys
Way: TypeAlias = tuple[Callable[[Place], Sequence[Any]], Compute]  # the keys for a place


class Tensor(dict[Place, Value]):
    """A tensor whose elements are computed at their first read."""

    def __init__(
        self, name: str, shape: Iterable[int], open_places: set[Any], before: Place = ()
    ) -> None:
        """`before`: the number of negative places along each axis, for initial values."""
        super().__init__()
        self.name = name
        self.shape = tuple(shape)
        self.before = before or (0,) * len(self.shape)
        self.ways: list[Way] = []
        self.open = open_places  # names and places that are being computed, of all tensors

    def list_places(self) -> Iterator[Place]:
        """The places, the last index fastest."""
        return product(*map(range, self.shape))

    def refuse_place(
        self, place: Place, reason: str = "no equation gives {} a value"
    ) -> DeriveError:
        """The error for an element that does not exist; `reason` is that of one in range."""
        name, shape = self.name, self.shape
        element = f"{name}[{', '.join(map(str, place))}]"
        for number, (at, extent) in enumerate(zip(place, shape, strict=True)):
            if not 0 <= at < extent:
                return refuse(
                    "reads-outside",
                    f"{element} lies outside of {name}: place {number} is {at}, "
                    f"and its extent is {extent}",
                    help=f"guard it with a condition, {name}[..] * [0 <= .. < {extent}]",
                )
        code = "place-filled-twice" if "twice" in reason else "place-not-filled"
        return refuse(code, reason.format(element))

    def find_way(self, place: Place) -> tuple[Compute, Any]:
        """The function of the only equation that fills the place, and its key there."""
        bounds = zip(place, self.before, self.shape, strict=True)
        if not all(-k <= at < n for at, k, n in bounds):
            raise self.refuse_place(place)
        at = tuple(map(int, place))
        found = [(compute, key) for find, compute in self.ways for key in find(at)]
        if len(found) != 1:
            raise self.refuse_place(place, *["{} is defined twice"][: len(found)])
        return found[0]

    def __missing__(self, place: Place) -> Value:
        compute, way = self.find_way(place)
        key = self.name, place
        if key in self.open:
            raise self.refuse_place(place, "{} depends on itself")
        if len(self.open) == _DEEPEST:
            raise DeepError(self, place)
        self.open.add(key)
        try:
            (self[place],) = compute([way])
        finally:
            self.open.remove(key)
        return self[place]

    def fill(self) -> None:
        """Compute all elements; those of an equation together."""
        waiting: dict[Compute, list[tuple[Place, Any]]] = {}
        for place in self.list_places():
            if place not in self:
                compute, key = self.find_way(place)
                waiting.setdefault(compute, []).append((place, key))
        for compute, pairs in waiting.items():
            for start in range(0, len(pairs), _TOGETHER):
                places, keys = zip(*pairs[start : start + _TOGETHER], strict=True)
                self.update(zip(places, compute(keys), strict=True))


def read_deeply(read: Callable[[], Value]) -> Value:
    """The result of a read, without deep recursion: elements below many others are read first."""
    waiting: dict[Any, Callable[[], Value]] = {None: read}
    while waiting:
        try:
            value = list(waiting.values())[-1]()
        except DeepError as error:
            key = error.tensor.name, error.place
            if key in waiting:
                raise error.tensor.refuse_place(error.place, "{} depends on itself") from None
            waiting[key] = partial(error.tensor.__getitem__, error.place)
        else:
            waiting.popitem()
    return value


def to_extent(value: Value) -> int:
    """The value as an integer; DeriveError if it is none."""
    if value != value or value in {INF, -INF} or value != int(value):
        raise refuse("extent-not-whole", f"an extent of {value} is no whole number")
    return int(value)


@lru_cache
def make_range(*bounds: Value) -> range:
    """The `range` of bounds that must be integers."""
    return range(*map(to_extent, bounds))


def add_all(values: Iterable[Value]) -> Value:
    """The sum; 0 without values."""
    return reduce(operator.add, values, 0)  # Python's `sum` compensates rounding errors


def multiply_all(values: Iterable[Value]) -> Value:
    """The product; 1 without values."""
    return reduce(operator.mul, values, 1)


def argmax(row: Iterable[Value]) -> int:
    """The position of the first largest entry, nan above all; DeriveError without entries."""
    entries = list(row)
    if not entries:
        raise refuse("argmax-empty", "argmax of a row without entries has no value")
    undefined = (place for place, value in enumerate(entries) if value != value)
    return next(undefined, max(range(len(entries)), key=entries.__getitem__))


def cumsum(row: Iterable[Value]) -> list[Value]:
    """The inclusive prefix sums of a row."""
    return [*accumulate(row, initial=0)][1:]


def _nest(flat: Iterable[Value]) -> list[list[Value]]:
    """The rows of a square matrix whose entries are given row by row."""
    entries = list(flat)
    size = math.isqrt(len(entries))
    return [entries[row * size : (row + 1) * size] for row in range(size)]


def _eliminate(rows: list[list[Value]], beside: list[list[Value]]) -> tuple[Value, Any]:
    """The determinant, and the inverse times `beside`, or nan if the matrix is singular."""
    size, whole = len(rows), [[*row, *more] for row, more in zip(rows, beside, strict=True)]
    found: Value = 1
    for place in range(size):
        best = max(range(place, size), key=lambda row: abs(whole[row][place]))
        if best != place:
            whole[place], whole[best], found = whole[best], whole[place], -found
        pivot = whole[place][place]
        found = found * pivot
        if pivot == 0:
            return found, [[NAN] * len(row) for row in beside]
        top = whole[place] = [divide(value, pivot) for value in whole[place]]
        for row in (row for row in range(size) if row != place):
            factor = whole[row][place]
            whole[row] = [a - factor * b for a, b in zip(whole[row], top, strict=True)]
    return found, [row[size:] for row in whole]


def invert_matrix(flat: Iterable[Value]) -> Iterable[Value]:
    """The inverse of a square matrix; both are lists of entries, row by row."""
    rows = _nest(flat)
    places = range(len(rows))
    return chain(*_eliminate(rows, [[int(row == at) for at in places] for row in places])[1])


def find_determinant(flat: Iterable[Value]) -> Value:
    """The determinant of a square matrix that is given row by row."""
    rows = _nest(flat)
    return _eliminate(rows, [[] for _ in rows])[0]


def find_cholesky(flat: Iterable[Value]) -> Iterable[Value]:
    """The lower triangle L of L L^T; entries above the diagonal are not read."""
    rows = _nest(flat)
    found: list[list[Value]] = [[0] * len(rows) for _ in rows]
    for row in range(len(rows)):
        for column in range(row + 1):
            pairs = zip(found[row][:column], found[column][:column], strict=True)
            rest = rows[row][column] - add_all(a * b for a, b in pairs)
            is_last = row == column
            found[row][column] = root(rest) if is_last else divide(rest, found[column][column])
    return chain(*found)


def make_functions(own: dict[str, Any]) -> dict[str, Any]:
    """The functions by their words; `own` replace those on floats."""
    known = _FLOATS | own
    return known | _make_rows(*(known[word] for word in ("exp", "log", "divide", "floor")))


def _make_rows(
    exp: Callable[[Value], Value],
    log: Callable[[Value], Value],
    divide: Callable[[Value, Value], Value],
    floor: Callable[[Value], Value],
) -> dict[str, Any]:
    """The functions that are computed from these four."""

    def softmax(row: Iterable[Value], empty: float = NAN) -> list[Value]:
        """`exp(x) / sum(exp(x))` of a row minus its maximum; `empty` if all entries are -inf."""
        entries = list(row)
        top = largest(entries)
        if top == -INF:
            return [empty] * len(entries)
        grown = [exp(value - top) for value in entries]
        total = add_all(grown)
        return [divide(value, total) for value in grown]

    def log_softmax(row: Iterable[Value]) -> list[Value]:
        """`x - log(sum(exp(x)))` of a row."""
        entries = list(row)
        top = largest(entries)
        shifted = [value - top for value in entries]
        total = log(add_all(exp(value) for value in shifted))
        return [value - total for value in shifted]

    def logsumexp(values: Iterable[Value]) -> Value:
        """`log(sum(exp(x)))`, finite for large entries; -inf without entries."""
        entries = list(values)
        top = largest(entries)
        if not math.isfinite(top):
            return top
        return top + log(add_all(exp(value - top) for value in entries))

    def mean(values: Iterable[Value]) -> Value:
        entries = list(values)
        return divide(add_all(entries), len(entries))

    def spread(values: Iterable[Value], correction: int) -> Value:
        entries = list(values)
        center = mean(entries)
        return divide(
            add_all((value - center) * (value - center) for value in entries),
            max(len(entries) - correction, 0),
        )

    return {
        "softmax": softmax,
        "log_softmax": log_softmax,
        "logsumexp": logsumexp,
        "mean": mean,
        "var": lambda values: spread(values, 0),
        "sample_var": lambda values: spread(values, 1),
        "ceiling": lambda value: -floor(-value),
    }


_FLOATS: dict[str, Any] = {
    "sum": add_all,
    "prod": multiply_all,
    "max": largest,
    "min": smallest,
    "argmax": argmax,
    "cumsum": cumsum,
    "abs": abs,
    "conj": methodcaller("conjugate"),
    "re": attrgetter("real"),
    "im": attrgetter("imag"),
    "arg": cmath.phase,
    "sign": sign,
    "floor": floor,
    "pi": math.pi,
    "sqrt": root,
    **{
        name: guard_domain(getattr(math, name))
        for name, row in FUNCTIONS.items()
        if row.value == name
    },
    "exp": exp,
    "log": log,
    "log1p": log1p,
    "inverse": invert_matrix,
    "det": find_determinant,
    "logdet": lambda flat: log(find_determinant(flat)),
    "cholesky": find_cholesky,
    "divide": divide,
    "power": raise_power,
    "floordiv": divide_down,
    "mod": find_remainder,
}
