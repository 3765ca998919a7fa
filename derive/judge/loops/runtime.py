"""What the text of a loop nest may call, and how that text is run.

    tensor(B, S)                  an empty tensor; reading outside of it is refused, no wrapping
    sum(...) prod(...) max(...)   over the values of a generator; max(a, b) of its arguments
    softmax([...])[j]             a function of one row, given as a list; -inf leaves an entry out
    x / y, x ** y, x // y, x % y  as IEEE has them, or exact

The text is compiled as it stands, with its operators and decimals replaced by the functions above.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable
from fractions import Fraction
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

from derive.errors import refuse
from derive.ir.functions import FUNCTIONS, is_rational
from derive.judge.loops import numbers
from derive.judge.loops.numbers import INF, NAN, Value, divide, divide_exactly, exp, log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType

FILE = "<loops>"


class OutsideError(Exception):
    """An element was asked for that is not there; `evaluate_loops` says where."""

    def __init__(self, tensor: Tensor, place: Any) -> None:
        super().__init__()
        self.tensor = tensor
        self.place = place


class FilledTwiceError(OutsideError):
    """An element was computed by two equations, or twice by one."""


class Tensor(dict[Any, Value]):
    """Elements by their places; the dictionary is what makes each read fast and checked."""

    def __init__(self, *shape: Value) -> None:
        super().__init__()
        self.shape = tuple(to_extent(extent) for extent in shape)

    def __setitem__(self, place: Any, value: Value) -> None:
        places = place if isinstance(place, tuple) else (place,)
        if any(not 0 <= p < n for p, n in zip(places, self.shape, strict=True)):
            raise OutsideError(self, place)
        if place in self:
            raise FilledTwiceError(self, place)
        super().__setitem__(place, value)

    def __missing__(self, place: Any) -> Value:
        raise OutsideError(self, place)


def to_extent(value: Value) -> int:
    """A whole number of steps."""
    if value != value or value in {INF, -INF} or value != int(value):
        raise refuse("extent-not-whole", f"an extent of {value} is no whole number")
    return int(value)


def count(*bounds: Value) -> range:
    """`range` of whole numbers."""
    return range(*map(to_extent, bounds))


def places(*extents: Value) -> Iterator[tuple[int, ...]]:
    """All index values of several loops in one, the last running fastest."""
    return product(*map(count, extents))


def add(values: Iterable[Value]) -> Value:
    """The sum; 0 of nothing."""
    total: Value = 0
    for value in values:
        total = total + value
    return total


def multiply(values: Iterable[Value]) -> Value:
    """The product; 1 of nothing."""
    total: Value = 1
    for value in values:
        total = total * value
    return total


def _one_or_many(reduce: Callable[[Any], Value]) -> Callable[..., Value]:
    """`max(values)` and `max(a, b)` under one name."""
    return lambda *given: reduce(
        given[0] if len(given) == 1 and isinstance(given[0], Iterable) else given
    )


def argmax(row: Iterable[Value]) -> int:
    """The place of the largest entry, the first of several; nan is larger than all."""
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
        """`exp(x) / sum(exp(x))` of a row, shifted by its largest; `empty` where all are -inf."""
        entries = list(row)
        top = numbers.largest(entries)
        if top == -INF:
            return [empty] * len(entries)
        grown = [exp(value - top) for value in entries]
        total = add(grown)
        return [divide(value, total) for value in grown]

    def log_softmax(row: Iterable[Value]) -> list[Value]:
        """`x - log(sum(exp(x)))` of a row."""
        entries = list(row)
        top = numbers.largest(entries)
        shifted = [value - top for value in entries]
        total = log(add(exp(value) for value in shifted))
        return [value - total for value in shifted]

    def logsumexp(values: Iterable[Value]) -> Value:
        """`log(sum(exp(x)))`, finite for large entries; -inf of nothing."""
        entries = list(values)
        top = numbers.largest(entries)
        if not math.isfinite(top):
            return top
        return top + log(add(exp(value - top) for value in entries))

    return {"softmax": softmax, "log_softmax": log_softmax, "logsumexp": logsumexp}


def cumsum(row: Iterable[Value]) -> list[Value]:
    """The sums up to and with each entry."""
    total: Value = 0
    sums = []
    for value in row:
        total = total + value
        sums.append(total)
    return sums


def make_moments(divide: Callable[[Value, Value], Value]) -> dict[str, Any]:
    """mean, var and sample_var over a division."""

    def mean(values: Iterable[Value]) -> Value:
        entries = list(values)
        return divide(add(entries), len(entries))

    def spread(values: Iterable[Value], correction: int) -> Value:
        entries = list(values)
        center = mean(entries)
        return divide(
            add((value - center) * (value - center) for value in entries),
            max(len(entries) - correction, 0),
        )

    return {
        "mean": mean,
        "var": lambda values: spread(values, 0),
        "sample_var": lambda values: spread(values, 1),
    }


def make_namespace(exact: bool) -> dict[str, Any]:
    """All that the text may call, by name."""
    rational: dict[str, Any] = {
        "tensor": Tensor,
        "range": count,
        "places": places,
        "sum": add,
        "prod": multiply,
        "max": _one_or_many(numbers.largest),
        "min": _one_or_many(numbers.smallest),
        "argmax": argmax,
        "cumsum": cumsum,
        "abs": abs,
        "sign": numbers.sign,
        "floor": numbers.floor,
        "ceiling": numbers.ceiling,
        "inf": INF,
        "nan": NAN,
        "sqrt": numbers.root_exactly if exact else numbers.root,
        "divide_": divide_exactly if exact else divide,
        "power_": numbers.raise_power_exactly if exact else numbers.raise_power,
        "floordiv_": numbers.divide_down,
        "mod_": numbers.find_remainder,
        "decimal_": Fraction if exact else float,
        **make_moments(divide_exactly if exact else divide),
    }
    namespace = rational | {
        name: numbers.refuse_exactly(name) if exact else value for name, value in IRRATIONAL.items()
    }
    define_functions(namespace, exact)
    return namespace


def define_functions(namespace: dict[str, Any], exact: bool) -> None:
    """The functions that are worked out by others, as their rows say."""
    exec(_compile_functions(exact), namespace)  # our own text
    for name, row in FUNCTIONS.items():
        if exact and row.text and not is_rational(name):
            namespace[name] = numbers.refuse_exactly(name)


@cache
def _compile_functions(exact: bool) -> CodeType:
    rows = [row for row in FUNCTIONS.values() if row.text and row.is_kept]
    lines = [f"{row.name} = lambda {row.parameters}: {row.text}" for row in rows]
    return compile_text("\n".join(lines), exact)


IRRATIONAL: dict[str, Any] = {
    **{
        name: numbers.guard_domain(getattr(math, name))
        for name, row in FUNCTIONS.items()
        if row.value == name
    },
    "exp": exp,
    "log": log,
    "log1p": numbers.log1p,
    **make_rows(exp, log, divide),
    "pi": math.pi,
}


def find_names() -> frozenset[str]:
    """The names that the text uses itself, which no tensor can have in it."""
    return frozenset(make_namespace(exact=False)) | {"entries_", "fill_", "keep_"}


def compile_text(text: str, exact: bool) -> CodeType:
    """The code of a loop nest, its operators and decimals replaced."""
    tree = _Operators(exact).visit(ast.parse(text, FILE))
    return compile(ast.fix_missing_locations(tree), FILE, "exec")


_CALLS = {ast.Div: "divide_", ast.Pow: "power_", ast.FloorDiv: "floordiv_", ast.Mod: "mod_"}


class _Operators(ast.NodeTransformer):
    """Each operator that Python and IEEE disagree on becomes a call."""

    def __init__(self, exact: bool) -> None:
        self.exact = exact

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """A call in place of / ** // %."""
        self.generic_visit(node)
        name = _CALLS.get(type(node.op))
        if name is None:
            return node
        return ast.copy_location(_call(name, node.left, node.right), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A choice in place of `where`, so that one side alone is computed."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id == "where":
            return ast.copy_location(ast.IfExp(*node.args), node)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        """A fraction in place of a decimal."""
        if self.exact and isinstance(node.value, float):
            return ast.copy_location(_call("decimal_", ast.Constant(repr(node.value))), node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Constants that are no fractions are refused when they are read."""
        if self.exact and node.id == "pi":
            return ast.copy_location(_call("pi"), node)
        return node


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def find_locals(error: BaseException) -> Iterator[tuple[str, Value]]:
    """The indices and their values in the loops that an error came from, outermost first."""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_code.co_filename == FILE:
            yield from frame.f_locals.items()
        trace = trace.tb_next
