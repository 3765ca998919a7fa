"""Numbers of a run that keep their expression over sizes and scalars.

    x.shape[0]   len(x)   sqrt(D)   D ** -0.5   a scalar argument

To `isinstance`, torch's too, they are ints and floats; C code has to call a method to read the
plain number. A `Watch` records where that happens: `range(S)`, `int(S / 2)`, `S == T`; and the
conditions on sizes that decided branches of the run.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache, partial, partialmethod
from math import inf, prod
from typing import Any

from derive.analysis import affine, facts
from derive.frontend.torch.exprs import add, divide, from_float, multiply, power, subtract
from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.ir.polynomial import Polynomial, divide_wholly
from derive.ir.walk import is_whole, walk
from derive.libraries import torch


class Watch:
    """The sizes that became plain numbers in a run, and the conditions of its branches."""

    def __init__(self) -> None:
        self.fixed: dict[str, None] = {}
        self.notes: dict[ir.Compare, None] = {}
        self.branches: dict[str, None] = {}

    def fix(self, *exprs: ir.Expr) -> None:
        """Record that the sizes and scalars in these expressions became plain numbers."""
        for expr in exprs:
            for part in walk(expr):
                if isinstance(part, ir.Size):
                    self.fixed[part.name] = None
                elif isinstance(part, ir.Scalar):
                    self.branches[part.name] = None

    def assume(self, condition: ir.Compare) -> None:
        """Record a condition on the sizes that decided a branch."""
        self.notes[condition] = None


class SymbolicNumber:
    """A number with its expression; `isinstance` says int or float, C code cannot read it."""

    def __init__(self, value: Any, expr: ir.Expr, watch: Watch) -> None:
        self.value, self.expr, self.watch = value, expr, watch

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The type that `isinstance` sees."""
        kind: Any = type(self.value)
        return _find_face(kind)

    def fix(self) -> Any:
        """Return the plain number, and record that its sizes became numbers."""
        self.watch.fix(self.expr)
        return self.value

    def __getattr__(self, name: str) -> Any:
        getattr(self.value, name)  # AttributeError fixes no size
        return getattr(self.fix(), name)

    def __int__(self) -> int:
        return int(self.fix())

    def __index__(self) -> int:
        return operator.index(self.fix())

    def __float__(self) -> float:
        return float(self.fix())

    def __bool__(self) -> bool:
        return _decide(self, "!=", 0)

    def __neg__(self) -> Any:
        return compute("mul", -1, self)

    def __abs__(self) -> Any:
        if isinstance(self, int):
            return self if _decide(self, ">=", 0) else -self
        return SymbolicNumber(abs(self.value), ir.Call("abs", (self.expr,)), self.watch)

    def _return_self(self, _: Any = None) -> Any:
        return self

    __pos__ = __deepcopy__ = _return_self

    def __reduce__(self) -> Any:
        return type(self.value), (self.value,)


@lru_cache(maxsize=4)
def _find_face(kind: Any) -> type:
    """Return a type that is `kind` to Python and a symbolic number to torch."""
    return type(kind.__name__, (kind, torch.SymInt if kind is int else torch.SymFloat), {})


def to_expr(value: Any) -> ir.Expr:
    """Return the expression of a symbolic number, or a plain number as an exact constant."""
    return value.expr if is_symbolic(value) else from_float(value)


def to_form(value: Any) -> Polynomial:
    """Return a symbolic or plain integer as a polynomial over sizes."""
    return Polynomial.of(value.expr if is_symbolic(value) else int(value))


def make_int(value: int, form: Polynomial, watch: Watch) -> int:
    """Return a symbolic integer with this value and polynomial; a plain one if that is constant."""
    if form.constant is not None:
        return value
    return SymbolicNumber(value, form.to_expr(), watch)  # type: ignore[return-value]


def is_symbolic(value: Any) -> bool:
    """Whether a number is symbolic."""
    return isinstance(value, SymbolicNumber)


def plain(value: Any) -> Any:
    """Return the plain number of a symbolic one; the watch records nothing."""
    return value.value if is_symbolic(value) else value


def _round(value: SymbolicNumber, how: Callable[[float], int]) -> Any:
    """Return the rounded number: symbolic for an integer, else plain, and its sizes get fixed."""
    form = Polynomial.of(value.expr)
    if is_whole(form.to_expr()):
        return make_int(how(value.value), form, value.watch)
    return how(value.fix())


def _remainder(over: Polynomial, under: Polynomial) -> Polynomial:
    if divide_wholly(over, under) is not None:
        return Polynomial({})
    return Polynomial.of(ir.Call("mod", (over.to_expr(), under.to_expr())))


_WHOLE: dict[str, Callable[[Polynomial, Polynomial], Polynomial]] = {
    "add": Polynomial.__add__,
    "sub": Polynomial.__sub__,
    "mul": Polynomial.__mul__,
    "floordiv": affine.divide,
    "mod": _remainder,
}
_REAL: dict[str, Callable[[ir.Expr, ir.Expr], ir.Expr]] = {
    "add": add,
    "sub": subtract,
    "mul": multiply,
    "truediv": divide,
    "pow": power,
    "floordiv": lambda one, two: ir.Call("floor", (divide(one, two),)),
    "mod": lambda one, two: ir.Call("mod", (one, two)),
}
_PLAIN: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", *_WHOLE, "pow")
}


def compute(name: str, one: Any, two: Any) -> Any:
    """Return the result of a Python operator on two numbers, one of them symbolic."""
    watch = next(v.watch for v in (one, two) if is_symbolic(v))
    number = _PLAIN[name](plain(one), plain(two))
    both_whole = isinstance(one, int) and isinstance(two, int)
    if both_whole and name in _WHOLE:
        return make_int(number, _WHOLE[name](to_form(one), to_form(two)), watch)
    if both_whole and name == "pow" and not is_symbolic(two) and two >= 0:
        form = math.prod([to_form(one)] * two, start=Polynomial.of(1))
        return make_int(number, form, watch)
    if isinstance(number, complex) or not math.isfinite(number):
        watch.fix(to_expr(one), to_expr(two))
        return number
    return SymbolicNumber(number, _REAL[name](to_expr(one), to_expr(two)), watch)


def _decide(one: Any, relation: str, two: Any) -> bool:
    """Return whether a relation holds in this run.

    If it does not hold for all sizes, it is recorded as an assumption, or the sizes become fixed.
    """
    truth = bool(ir.DECIDING[relation](plain(one), plain(two)))
    watch = next(v.watch for v in (one, two) if is_symbolic(v))
    if not (isinstance(one, int) and isinstance(two, int)):
        watch.fix(to_expr(one), to_expr(two))
        return truth
    held = relation if truth else ir.NEGATED[relation]
    left, right = to_form(one), to_form(two)
    kind, subject, wanted = affine.relate(held, left, right)
    if affine.find_truth(kind, subject) is wanted:
        return truth
    match held, tuple(left.terms):
        case "==", (((ir.Call("mod"), 1),),):
            pass  # a size that has to be a multiple is a condition, not a coincidence
        case "==", _:
            watch.fix((right - left).to_expr())
            return truth
    if right.constant is not None:  # the number on the right: S >= 2, not S - 2 >= 0
        number = Polynomial.of(left.terms.get((), 0))
        left, right = left - number, right - number
    watch.assume(ir.Compare(held, left.to_expr(), right.to_expr()))
    return truth


def is_number(value: Any) -> bool:
    """Whether a value is a plain number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _forward(name: str, is_backward: bool = False) -> Callable[[Any, Any], Any]:
    def act(self: Any, other: Any) -> Any:
        if isinstance(other, complex):
            self.fix()
            return _PLAIN[name](*((other, self.value) if is_backward else (self.value, other)))
        if not isinstance(other, (int, float)):
            return NotImplemented
        return compute(name, other, self) if is_backward else compute(name, self, other)

    return act


def _relate(relation: str) -> Callable[[Any, Any], Any]:
    def act(self: Any, other: Any) -> Any:
        return _decide(self, relation, other) if is_number(other) else NotImplemented

    return act


def _fix_sizes(name: str) -> Callable[..., Any]:
    def act(self: Any, *others: Any) -> Any:
        return getattr(self.fix(), name)(*map(plain, others))

    return act


_FIXING = (
    "lshift rlshift rshift rrshift and rand or ror xor rxor invert divmod rdivmod "
    "hash str repr format round"
)
for _name in _FIXING.split():
    setattr(SymbolicNumber, f"__{_name}__", _fix_sizes(f"__{_name}__"))
for _name in ("trunc", "floor", "ceil"):
    setattr(SymbolicNumber, f"__{_name}__", partialmethod(_round, how=getattr(math, _name)))
for _name in _PLAIN:
    setattr(SymbolicNumber, f"__{_name}__", _forward(_name))
    setattr(SymbolicNumber, f"__r{_name}__", _forward(_name, is_backward=True))
for _name, _act in ir.DECIDING.items():
    setattr(SymbolicNumber, f"__{_act.__name__}__", _relate(_name))


# Bounds on the magnitude of integers.

LONGEST = 46_340  # the largest size: its square fits in 32 bits


def find_magnitude(expr: ir.Expr, known: Mapping[ir.Tensor, float]) -> float:
    """Return a bound on the magnitude of integers for sizes up to LONGEST; infinite if unknown.

    `known` bounds the entries of tensors.
    """
    ends = facts.find_range(expr)
    try:
        found = _find_growth(expr, known)
        if ends.low is None or ends.high is None:
            return found
        return min(found, max(_put_sizes(ends.high), _put_sizes(-ends.low)))
    except OverflowError:
        return inf


def _put_sizes(bound: Polynomial) -> float:
    total = 0.0
    for monomial, number in bound.terms.items():
        if not all(isinstance(atom, ir.Size) and power > 0 for atom, power in monomial):
            return inf
        degree = sum(power for _, power in monomial)
        total += float(number) * (float(LONGEST) ** degree if number > 0 else 1.0)
    return total


def _find_growth(expr: ir.Expr, known: Mapping[ir.Tensor, float]) -> float:
    """Return a bound on an expression from the bounds of its parts."""
    measure = partial(find_magnitude, known=known)
    match expr:
        case ir.Number(value):
            return abs(float(value))
        case ir.Size() | ir.Scalar():
            return float(LONGEST)
        case ir.Index(_, extent):
            return measure(extent) - 1
        case ir.Access(tensor, _):
            if tensor.kind == "bool":
                return 1.0
            below = known.get(tensor, float(LONGEST)) + 1
            return (below if tensor.below is None else measure(tensor.below)) - 1
        case ir.Truth() | ir.Compare() | ir.And() | ir.Or() | ir.Not() | ir.Call("sign"):
            return 1.0
        case ir.Add(terms):
            return sum(map(measure, terms))
        case ir.Mul(factors):
            return prod(map(measure, factors))
        case ir.Pow(base, exponent):
            inner, most = measure(base), measure(exponent)
            if isinstance(exponent, ir.Number) and exponent.value < 0:
                return 1.0  # a divisor
            return float(max(inner, 1.0) ** most)
        case ir.Where(_, then, other):
            return max(measure(then), measure(other))
        case ir.Call("mod", (_, under)):
            return measure(under)
        case ir.Call("floordiv" | "abs" | "floor" | "ceiling", (inside, *_)):
            return measure(inside)
        case ir.Call("max" | "min" | "clip", arguments):
            return max(map(measure, arguments))
        case ir.Reduce(kind, bound, _, body):
            count = prod(measure(index.extent) for index in bound)
            if kind.startswith("arg"):
                return count
            inner = measure(body)
            if kind == "prod":
                return float(max(inner, 1.0) ** count)
            return inner * count if kind == "sum" else inner if kind in _KEPT else inf
        case ir.Along(kind, index, _, body) if ROWS[kind].is_linear:
            return measure(body) * measure(index.extent)
        case ir.Along(kind) if None not in (ends := ROWS[kind].range):
            return max(abs(float(end or 0)) for end in ends)
    return inf


_KEPT = frozenset(["max", "min", "mean"])
