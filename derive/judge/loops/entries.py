"""The equations of a formula as functions of places, and the conversion of values to elements.

Each element is computed at its first read, and cached, so the equations may be in any order.

The sizes follow from the shapes of the given tensors: from an extent `S` directly, from `2*S - 1`
or `H*D` by solving for the only unknown size. A value that does not fit is an error.

The equations are evaluated in floats, or in mpmath with as many digits as an entry needs. There
decimals are rounded to doubles, as in code, so that comparisons with them have the same truth as in
code.
"""

import math
import sys
from collections import ChainMap, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from math import inf, prod
from operator import itemgetter, mul
from typing import Any

from sympy import Symbol, expand

from derive.errors import DeriveError, refuse, suggest
from derive.ir.functions import FUNCTIONS
from derive.judge.loops.names import (
    Names,
    find_indices,
    label_of,
    name_of_left,
    places_of_left,
    read_names,
)
from derive.judge.loops.rows import ONE, Scope, extend, gather, make
from derive.judge.loops.runtime import (
    INF,
    NAN,
    Place,
    Tensor,
    Value,
    divide,
    make_functions,
    read_deeply,
)
from derive.notation.formula import Formula


def bind_values(
    formula: Formula,
    names: Names,
    given: Mapping[str, Any],
    to_element: Callable[[Value], Value] = lambda element: element,
) -> dict[str, Any]:
    """The value of every tensor, size and scalar; `to_element` converts those of real tensors."""
    _check_names(names, given)
    scalars = {name: _find_scalar(name, names, given) for name in names.scalars}
    tensors = {name: _read_tensor(name, names, given[name], to_element) for name in names.inputs}
    sizes = _find_sizes(formula, names, given, tensors)
    return {**sizes, **scalars, **tensors}


def _check_names(names: Names, given: Mapping[str, Any]) -> None:
    known = (*names.inputs, *names.scalars, *names.sizes)
    for name in given:
        if name not in known:
            role = "a result, no argument" if name in names.defined else "no name of the formula"
            raise refuse(
                "argument-unknown",
                f"{name} is {role}",
                facts=[f"the arguments are {', '.join(known)}"],
                help=suggest(name, known),
            )
    for name in names.inputs:
        if name not in given:
            shape = names.shapes.get(name)
            facts = [f"its shape is [{', '.join(map(str, shape))}]"] if shape else []
            raise refuse("tensor-missing", f"tensor {name} is not given", facts=facts)


def _find_scalar(name: str, names: Names, given: Mapping[str, Any]) -> Any:
    value = given.get(name, names.scalars[name])
    if value is None:
        raise refuse(
            "scalar-missing",
            f"scalar {name} is not given and has no default",
            help=f"pass {name}=...",
        )
    shape, elements = _list_elements(name, value)
    if shape:
        raise refuse("rank-differs", f"{name} is a number, and what was given has shape {shape}")
    return _convert(name, "real", elements[0])


def _read_tensor(name: str, names: Names, value: Any, to_element: Callable[[Value], Value]) -> Any:
    """A given tensor, its elements converted when read, or number; DeriveError for another rank."""
    shape, elements = _list_elements(name, value)
    kind = getattr(names.bases[name], "kind", "real")
    rank = len(names.shapes.get(name, ()))
    if len(shape) != rank:
        wanted = ", ".join(map(str, names.shapes.get(name, ())))
        raise refuse(
            "rank-differs",
            f"{name} has {rank} indices, [{wanted}], and what was given has shape {shape}",
        )
    if not rank:
        return _convert(name, kind, elements[0])
    tensor, strides = Tensor(name, shape, set()), [prod(shape[k + 1 :]) for k in range(rank)]

    def find_key(place: Place) -> list[int]:
        return [sum(map(mul, place, strides))]

    def compute(keys: Sequence[int]) -> Iterator[Value]:
        return (to_element(_convert(name, kind, elements[key])) for key in keys)

    tensor.ways.append((find_key, compute))
    return tensor


def _list_elements(name: str, value: Any) -> tuple[tuple[int, ...], list[Any]]:
    """The shape of a value and its elements row by row as numbers; DeriveError if ragged."""
    if hasattr(value, "detach"):
        value = value.detach().resolve_conj().resolve_neg()
        if value.is_floating_point():
            value = value.double()  # tolist would round the elements of float16
        return tuple(value.shape), value.reshape(-1).tolist()
    if hasattr(value, "tolist") and hasattr(value, "shape"):
        return tuple(value.shape), value.reshape(-1).tolist()
    if isinstance(value, (list, tuple)):
        parts = [_list_elements(name, part) for part in value]
        shapes = {shape for shape, _ in parts}
        if len(shapes) > 1:
            raise refuse("tensor-ragged", f"the rows of {name} differ in length")
        inner = shapes.pop() if shapes else ()
        return (len(parts), *inner), [element for _, part in parts for element in part]
    return (), [value]


def _convert(name: str, kind: str, element: Any) -> Any:
    """An element as bool, int, complex or float; DeriveError for one that is not of this kind."""
    if kind == "bool":
        if element not in {0, 1}:
            raise refuse("tensor-not-boolean", f"{name} holds truth values, not {element!r}")
        return bool(element)
    if kind == "int":
        if isinstance(element, (bool, float)):
            raise refuse(
                "tensor-not-whole",
                f"{name} holds integers, not {element!r}",
                help=f"give it as integers: {name}.long()",
            )
        number = _to_number(name, element)
        if number != number or number in {inf, -inf} or number != int(number):
            raise refuse("tensor-not-whole", f"{name} holds integers, not {element!r}")
        return int(element)
    if kind == "complex":
        return _to_number(name, element, complex)
    if isinstance(element, complex):
        message = f"{name} is complex, and real by its declaration"
        raise refuse("tensor-complex", message, help="declare it: complex z[N]")
    return _to_number(name, element)


def _to_number(name: str, element: Any, kind: type = float) -> Any:
    try:
        return kind(element)
    except (TypeError, ValueError):
        raise refuse("tensor-not-number", f"{name} holds numbers, not {element!r}") from None


def _find_sizes(
    formula: Formula, names: Names, given: Mapping[str, Any], tensors: Mapping[str, Any]
) -> dict[str, int]:
    """The sizes from keywords, shapes and defaults, which must agree; DeriveError for another."""
    sizes = {name: _to_size(name, given[name]) for name in names.sizes if name in given}
    facts = [
        (name, place, extent, found)
        for name, tensor in tensors.items()
        for place, (extent, found) in enumerate(
            zip(names.shapes.get(name, ()), getattr(tensor, "shape", ()), strict=True)
        )
    ]
    _solve_sizes(facts, sizes)
    declared = formula.declarations.sizes if formula.declarations else ()
    defaults = {label_of(symbol): default for symbol, default in declared}
    for name in names.sizes:
        default = defaults.get(name)
        if name not in sizes and default is not None:
            sizes[name] = int(default)
    _solve_sizes(facts, sizes)
    for name in names.sizes:
        if name not in sizes:
            raise refuse(
                "size-unknown",
                f"no shape determines the size {name}",
                help=f"pass it as a keyword, {name}=...",
            )
    return sizes


def _solve_sizes(facts: list[tuple[str, int, Any, int]], sizes: dict[str, int]) -> None:
    """Solve or check the facts (tensor, axis, extent, found length) until none is left to solve."""
    count = len(facts) + 1
    while len(facts) < count:
        count, facts = len(facts), [fact for fact in facts if not _solve_extent(*fact, sizes)]


@lru_cache(maxsize=1 << 10)
def _put_sizes(extent: Any, sizes: tuple[tuple[str, int], ...]) -> Any:
    """The extent at these sizes, expanded."""
    known = dict(sizes)
    return expand(extent.subs({s: known[s.name] for s in extent.free_symbols if s.name in known}))


def _solve_extent(name: str, place: int, extent: Any, found: int, sizes: dict[str, int]) -> bool:
    """Check an extent or solve it for its only size; False if neither, DeriveError if wrong."""
    rest = _put_sizes(extent, tuple(sizes.items()))
    says = f"place {place} of {name} has extent {extent}"
    if rest.is_number:
        if rest != found:
            raise refuse("extent-differs", f"{says} = {rest}, and {found} was given")
        return True
    unknown = [symbol for symbol in rest.free_symbols if isinstance(symbol, Symbol)]
    if len(unknown) != 1:
        return False
    (size,) = unknown
    slope = rest.coeff(size)
    start = expand(rest - slope * size)
    if not (slope and slope.is_Rational and start.is_Rational):
        return False
    value = (found - start) / slope
    if not value.is_Integer or value < 0:
        fact = f"no size {size} makes that true"
        raise refuse("extent-differs", f"{says}, and {found} was given", facts=[fact])
    sizes[size.name] = int(value)
    return True


def _to_size(name: str, value: Any) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise refuse("size-not-whole", f"size {name} is a whole number, not {value!r}")
    if int(value) < 0:
        raise refuse("size-not-whole", f"size {name} is not negative, but {value!r} was given")
    return int(value)


def to_result(tensor: Tensor, given: Mapping[str, Any], as_number: type) -> Any:
    """A result in the type of the given tensors: torch, NumPy, or nested lists."""
    shape, elements = tensor.shape, [tensor[at] for at in tensor.list_places()]
    if all(isinstance(element, bool) for element in elements) and elements:
        numbers, kind = elements, "bool"
    else:
        if as_number is int and any(abs(e) >= 2**63 for e in elements):
            as_number = float
        kind = {int: "int64", float: "float64", complex: "complex128"}[as_number]
        numbers = [as_number(e) for e in elements]
    torch = sys.modules.get("torch")
    if torch is not None and any(isinstance(v, torch.Tensor) for v in given.values()):
        return torch.tensor(numbers, dtype=getattr(torch, kind)).reshape(shape)
    numpy = sys.modules.get("numpy")
    if numpy is not None and any(isinstance(v, numpy.ndarray) for v in given.values()):
        return numpy.array(numbers, dtype=kind).reshape(shape)
    return _nest(numbers, shape)


def _nest(elements: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return elements[0]
    step = len(elements) // shape[0] if shape[0] else 0
    return [_nest(elements[k * step : (k + 1) * step], shape[1:]) for k in range(shape[0])]


class StepsOverError(Exception):
    """The loops have taken their limit of steps."""


def add_equation(tensor: Tensor, equation: Any, scope: Scope) -> None:
    """Add to the tensor a way to compute the elements that an equation fills.

    Each place on the left, such as `h*D + d`, gets a table of the index values at each position.
    """
    row, tables = make(equation.rhs, scope), []
    for axis, place in enumerate(places_of_left(equation)):
        inside, points = [*find_indices(place, scope.names)], ONE
        for index in inside:
            extent = scope.read_extent(scope.names.indices[index])
            points = extend(points, index, [range(extent)] * len(points[""]))
        table: dict[int, list[dict[str, int]]] = defaultdict(list)
        for position, *values in gather(points, [make(place, scope), *map(itemgetter, inside)]):
            table[position].append(dict(zip(inside, values, strict=True)))
        for position in table:
            if not -tensor.before[axis] <= position < tensor.shape[axis]:
                raise tensor.refuse_place(
                    tuple(position if k == axis else 0 for k in range(len(tensor.shape)))
                )
        tables.append(table)

    def find_keys(place: Place) -> list[dict[str, int]]:
        found: list[dict[str, int]] = [{}]
        for table, at in zip(tables, place, strict=True):
            found = [
                one | other
                for one in found
                for other in table.get(at, ())
                if all(one.get(index, value) == value for index, value in other.items())
            ]
        return found

    def compute(keys: Sequence[dict[str, int]]) -> Iterable[Value]:
        return row({"": range(len(keys))} | {name: [key[name] for key in keys] for name in keys[0]})

    tensor.ways.append((find_keys, compute))


def open_formula(
    formula: Formula,
    names: Names,
    values: Mapping[str, Any],
    steps: float = inf,
    functions: dict[str, Any] | None = None,
) -> dict[str, Tensor]:
    """The results of the formula, which compute their elements when these are read.

    `functions` replace those on floats. After `steps` steps of loops StepsOverError is raised.
    """
    left = steps

    def count_down(taken: int) -> None:
        nonlocal left
        left -= taken
        if left < 0:
            raise StepsOverError

    made: dict[str, Tensor] = {}
    both, places = ChainMap(made, {**values}), set[Any]()
    scope = Scope(names, both, make_functions(functions or {}), count_down, formula.empty_row)
    for name, equation in names.defined.items():
        shape = names.shapes[name] if places_of_left(equation) else ()
        before = names.before.get(name, ())
        made[name] = Tensor(name, map(scope.read_extent, shape), places, before)
    for equation in formula.equations:
        add_equation(made[name_of_left(equation)], equation, scope)
    return made


DIGITS = (300, 1500)  # the second number is tried where small summands were lost with the first
MOST_STEPS = 20_000  # steps of loops for one entry
_MOST_EXPONENT = 1e7  # exponentials beyond it are infinite or 0


def prepare_entry(formula: Formula, name: str) -> Callable[..., float | None]:
    """A function of inputs and a place that returns an element of a result, rounded once.

    It returns inf or nan where the formula does, and None where digits or steps are exhausted.
    `most` is the number of precisions from DIGITS that are tried.
    """
    names = read_names(formula)

    def compute(tensors: Mapping[str, Any], place: Place, arithmetic: _Digits) -> float | None:
        convert = arithmetic.convert
        bound = bind_values(formula, names, tensors, convert)
        values = {name: convert(value) for name, value in bound.items()}
        try:
            made = open_formula(formula, names, values, MOST_STEPS, arithmetic.make_functions())
            return float(read_deeply(partial(made[name].__getitem__, place)))
        except (DeriveError, StepsOverError, ArithmeticError, ValueError, RecursionError):
            return None

    def evaluate(tensors: Mapping[str, Any], place: Place, most: int = len(DIGITS)) -> float | None:
        for digits in DIGITS[:most]:
            arithmetic = _Digits(digits)
            rounded = compute(tensors, place, arithmetic)
            if rounded is None or not arithmetic.strained:
                return rounded
            if rounded == compute(tensors, place, _Digits(digits, is_bounded=True)):
                return rounded  # the lost summands do not change the rounded value
        return None

    return evaluate


@lru_cache
def _make_context(digits: int) -> Any:
    """The arithmetic of mpmath with this number of digits."""
    import mpmath

    context = mpmath.mp.clone()
    context.dps = digits
    return context


class _Digits:
    """Arithmetic with a number of digits; `strained` is set when a summand is lost.

    With `is_bounded` exponents are clamped, so that the summand is small but not lost.
    """

    def __init__(self, digits: int, is_bounded: bool = False) -> None:
        self.context = _make_context(digits)
        self.is_bounded = is_bounded
        self.strained = False

    def convert(self, value: Any) -> Any:
        """A float as a number of many digits; any other value unchanged."""
        return self.context.mpf(value) if isinstance(value, float) else value

    def make_functions(self) -> dict[str, Any]:
        """The functions by name, in many digits, that replace those on floats."""
        mp = self.context

        def elementwise(name: str) -> Callable[..., Value]:
            return lambda *values: self._real(getattr(mp, name)(*values))

        return {
            "divide": self.divide,
            "power": self.power,
            "sqrt": lambda value: self.power(value, 0.5),
            **{name: elementwise(name) for name, row in FUNCTIONS.items() if row.value == name},
            "exp": self.exp,
            "log": self.log,
            "floor": lambda value: int(mp.floor(value)) if math.isfinite(value) else value,
            "pi": mp.pi,
        }

    def exp(self, value: Value) -> Value:
        """The exponential; sets `strained` where 1 + exp(value) would lose one of the two."""
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
        """`over / under`, as in IEEE at 0; an integer where integers divide exactly."""
        if under == 0 or over != over or under != under:
            return divide(over, under)
        if isinstance(over, int) and isinstance(under, int) and over % under == 0:
            return over // under
        return self.context.mpf(over) / under

    def power(self, base: Value, exponent: Value) -> Value:
        """`base ** exponent`, as torch.pow computes it."""
        if base == 0 and exponent < 0:
            return self.divide(1, self.power(base, -exponent))
        return self._real(self.context.mpf(base) ** exponent)

    def _real(self, value: Value) -> Value:
        return NAN if isinstance(value, self.context.mpc) else value
