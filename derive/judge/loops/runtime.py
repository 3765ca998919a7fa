"""The functions that the text of a formula may call, and the compilation of that text.

    tensor("x", B, S)             a tensor; a read out of range is an error, without wrapping
    sum(...) prod(...) max(...)   over the values of a generator; max(a, b) of its arguments
    softmax([...])[j]             a function of one row, given as a list; -inf leaves an entry out
    x / y, x ** y, x // y, x % y  as in IEEE

The text is compiled with its operators replaced by the functions below. Where Python raises, these
return the values of the hardware: 1 / 0 is inf, 0 / 0 is nan, exp overflows to inf, log(0) is -inf,
log(-1) is nan.
"""

from __future__ import annotations

import ast
import cmath
import math
import operator
from collections.abc import Callable, Iterable, Iterator
from functools import cache, reduce
from itertools import accumulate, product
from operator import attrgetter, gt, lt, methodcaller
from types import CodeType
from typing import Any, TypeAlias

from derive.errors import refuse
from derive.ir.functions import FUNCTIONS

Value: TypeAlias = Any  # int, float or complex; bool where a truth value is used as a number

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


def ceiling(value: Value) -> Value:
    """The smallest integer >= value; inf and nan unchanged."""
    return math.ceil(value) if is_finite(value) else value


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


def largest(values: Any, best: Value = -INF, is_better: Callable[..., bool] = gt) -> Value:
    """The largest value; nan if one is nan, -inf without values."""
    for value in values:
        if value != value:
            return NAN
        if is_better(value, best):
            best = value
    return best


def smallest(values: Any) -> Value:
    """The smallest value; nan if one is nan, inf without values."""
    return largest(values, INF, lt)


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


class OutsideError(Exception):
    """A read of an element that does not exist; `evaluate_loops` turns it into a message."""

    def __init__(self, tensor: Tensor, place: Any, reason: str = "no equation gives {} a value"):
        super().__init__()
        self.tensor = tensor
        self.place = place
        self.reason = reason  # of an element in range


class Tensor(dict[Any, Value]):
    """A tensor whose elements are computed at their first read."""

    def __init__(self, name: str, *shape: Value, before: tuple[int, ...] = ()) -> None:
        """`before`: the number of negative places along each axis, for initial values."""
        super().__init__()
        self.name = name
        self.shape = tuple(to_extent(extent) for extent in shape)
        self.before = before or (0,) * len(shape)
        self.ways: list[Callable[[tuple[int, ...]], list[Callable[[], Value]]]] = []
        self.open: set[Any] = set()  # the places that are being computed

    def is_inside(self, places: tuple[Any, ...]) -> bool:
        """Whether the places are in range, negative places of initial values included."""
        bounds = zip(places, self.before, self.shape, strict=False)
        return len(places) == len(self.shape) and all(-k <= p < n for p, k, n in bounds)

    def list_places(self) -> Iterator[Any]:
        """The places as keys, the last index fastest."""
        (first, *rest) = map(range, self.shape)
        return product(first, *rest) if rest else iter(first)

    def __missing__(self, place: Any) -> Value:
        places = place if isinstance(place, tuple) else (place,)
        if not self.is_inside(places) or any(p != int(p) for p in places):
            raise OutsideError(self, place)
        found = [compute for way in self.ways for compute in way(tuple(map(int, places)))]
        if len(found) > 1:
            raise OutsideError(self, place, "{} is defined twice")
        if not found or place in self.open:
            raise OutsideError(self, place, *(["{} depends on itself"] if found else []))
        self.open.add(place)
        try:
            self[place] = value = found[0]()
        finally:
            self.open.remove(place)
        return value


def to_extent(value: Value) -> int:
    """The value as an integer, else an error."""
    if value != value or value in {INF, -INF} or value != int(value):
        raise refuse("extent-not-whole", f"an extent of {value} is no whole number")
    return int(value)


def make_range(*bounds: Value) -> range:
    """The `range` of bounds that must be integers."""
    return range(*map(to_extent, bounds))


def add_all(values: Iterable[Value]) -> Value:
    """The sum; 0 without values."""
    return reduce(operator.add, values, 0)  # Python's `sum` compensates rounding errors


def multiply_all(values: Iterable[Value]) -> Value:
    """The product; 1 without values."""
    return reduce(operator.mul, values, 1)


def _one_or_many(reduce: Callable[[Any], Value]) -> Callable[..., Value]:
    """A function that takes either an iterable or several arguments, as Python's max does."""
    return lambda *given: reduce(
        given[0] if len(given) == 1 and isinstance(given[0], Iterable) else given
    )


def argmax(row: Iterable[Value]) -> int:
    """The position of the first largest entry; nan is larger than all numbers."""
    entries = list(row)
    if not entries:
        raise refuse("argmax-empty", "argmax of a row without entries has no value")
    best = 0
    for place, value in enumerate(entries):
        if value != value:
            return place
        if value > entries[best]:
            best = place
    return best


def make_rows(
    exp: Callable[[Value], Value],
    log: Callable[[Value], Value],
    divide: Callable[[Value, Value], Value],
) -> dict[str, Any]:
    """softmax, log_softmax and logsumexp over an exponential, a logarithm and a division."""

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

    return {"softmax": softmax, "log_softmax": log_softmax, "logsumexp": logsumexp}


def cumsum(row: Iterable[Value]) -> list[Value]:
    """The inclusive prefix sums of a row."""
    return [*accumulate(row, initial=0)][1:]


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


def invert_matrix(rows: list[list[Value]]) -> Any:
    """The inverse of a matrix, given as the list of its rows."""
    places = range(len(rows))
    return _eliminate(rows, [[int(row == column) for column in places] for row in places])[1]


def find_determinant(rows: list[list[Value]]) -> Value:
    """The determinant of a matrix."""
    return _eliminate(rows, [[] for _ in rows])[0]


def find_cholesky(rows: list[list[Value]]) -> list[list[Value]]:
    """The lower triangle L of L L^T; entries above the diagonal are not read."""
    found: list[list[Value]] = [[0] * len(rows) for _ in rows]
    for row in range(len(rows)):
        for column in range(row + 1):
            pairs = zip(found[row][:column], found[column][:column], strict=True)
            rest = rows[row][column] - add_all(a * b for a, b in pairs)
            is_last = row == column
            found[row][column] = root(rest) if is_last else divide(rest, found[column][column])
    return found


def make_moments(divide: Callable[[Value, Value], Value]) -> dict[str, Any]:
    """mean, var and sample_var over a division."""

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
        "mean": mean,
        "var": lambda values: spread(values, 0),
        "sample_var": lambda values: spread(values, 1),
    }


def make_namespace() -> dict[str, Any]:
    """The functions and constants that the text may use, by name."""
    namespace: dict[str, Any] = {
        "tensor": Tensor,
        "range": make_range,
        "sum": add_all,
        "prod": multiply_all,
        "max": _one_or_many(largest),
        "min": _one_or_many(smallest),
        "argmax": argmax,
        "cumsum": cumsum,
        "abs": abs,
        "conj": methodcaller("conjugate"),
        "re": attrgetter("real"),
        "im": attrgetter("imag"),
        "arg": cmath.phase,
        "sign": sign,
        "floor": floor,
        "ceiling": ceiling,
        "inf": INF,
        "nan": NAN,
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
        "logdet": lambda rows: log(find_determinant(rows)),
        "cholesky": find_cholesky,
        "divide_": divide,
        "power_": raise_power,
        "floordiv_": divide_down,
        "mod_": find_remainder,
        **make_rows(exp, log, divide),
        **make_moments(divide),
    }
    define_functions(namespace)
    return namespace


def define_functions(namespace: dict[str, Any]) -> None:
    """Add the functions that the table defines by texts over other functions."""
    exec(_compile_functions(), namespace)  # our own text


@cache
def _compile_functions() -> CodeType:
    rows = [row for row in FUNCTIONS.values() if row.text and row.is_kept]
    lines = (f"{row.name} = lambda {row.parameters}: {row.text}" for row in rows)
    return compile_text("\n".join(lines))


def find_names() -> frozenset[str]:
    """The names of the runtime, which no name of a formula may have in the text."""
    return frozenset(make_namespace()) | {"fill_", "keep_"}


def compile_text(text: str) -> CodeType:
    """The code of a text, with operators replaced by functions."""
    tree = _Operators().visit(ast.parse(text))
    return compile(ast.fix_missing_locations(tree), "<loops>", "exec")


_CALLS = {ast.Div: "divide_", ast.Pow: "power_", ast.FloorDiv: "floordiv_", ast.Mod: "mod_"}


class _Operators(ast.NodeTransformer):
    """The replacement of operators that differ between Python and IEEE by calls."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """A call in place of / ** // %; iterative along left operands, which may nest deeply."""
        chain = [node]
        while isinstance(chain[-1].left, ast.BinOp):
            chain.append(chain[-1].left)
        done = self.visit(chain[-1].left)
        for each in reversed(chain):
            right, name = self.visit(each.right), _CALLS.get(type(each.op))
            whole = ast.BinOp(done, each.op, right) if name is None else _call(name, done, right)
            done = ast.copy_location(whole, each)
        assert isinstance(done, ast.AST)
        return done

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A conditional expression in place of `where`, which evaluates one branch alone."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "where":
            return ast.copy_location(ast.IfExp(*node.args), node)
        return node


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])
