"""The index language: a node is a scalar expression for each value of its free indices.

    expr  = Number(value) | Infinity(negative) | Size(name) | Scalar(name) | Index(name, extent)
          | Access(tensor, places)                 A[i, h*D + d]
          | Add(terms) | Mul(factors) | Pow(base, exponent)
          | Call(function, arguments)              exp(x), floordiv(i, r), mod(i, n), clip(x, a, b)
          | Where(condition, then, other)          lazy: the other branch is not evaluated
          | Reduce(kind, bound, condition, body)   kind: a row of `functions`, sum or det
          | Along(kind, index, condition, body)    kind: cumsum, softmax, ..; the index stays free
          | Along(kind, rows, TRUE, body, columns) kind: inverse, cholesky; both stay free
    cond  = Truth(value) | Compare(relation, left, right) | Access(Boolean tensor, places)
          | And(parts) | Or(parts) | Not(part)

    Equation(target, value): target is an Access whose tensor the equation defines.
    System: the inputs and the equations of one formula, in order.

Laws:
- Nodes are values: immutable and interned. Equal nodes are the same object, so comparison and
  hashing take constant time.
- Constructors simplify nothing; `terms` and `factors` stay as they were written.
- The order of a tensor's axes is no property of an expression; it is chosen when code is planned.
- A place of an Access is an expression for a position on one axis; a plain place is an Index.
- As an expression an Index is its value, 0 <= value < extent; extents are expressions over sizes.
- A Where whose `other` is 0 is a guard: where it is false nothing inside is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields
from fractions import Fraction
from itertools import chain
from operator import eq, ge, gt, le, lt, ne
from typing import Any, TypeAlias, TypeVar, cast, dataclass_transform
from weakref import WeakValueDictionary

Class = TypeVar("Class", bound=type)

_interned: WeakValueDictionary[tuple[object, ...], Any] = WeakValueDictionary()


@dataclass_transform(frozen_default=True, eq_default=False)
def node(cls: Class) -> Class:
    """The class as a frozen dataclass whose equal instances are one object.

    `__new__` sets the fields of a new object, so there is no `__init__`. A method `complete`, if
    the class has one, computes further attributes from the fields.
    """
    make: Any = dataclass(init=False, frozen=True, eq=False, slots=True, weakref_slot=True)
    made = make(cls)
    defaults = {field.name: field.default for field in fields(made)}
    names = tuple(defaults)
    complete = getattr(made, "complete", None)

    def intern(klass: type, *args: Any, **named: Any) -> Any:
        values = args if len(args) == len(names) and not named else _bind(klass, args, named)
        key = (klass, *values)
        found = _interned.get(key)
        if found is None:
            found = object.__new__(klass)
            for name, value in zip(names, values, strict=True):
                object.__setattr__(found, name, value)
            if klass is Number and type(found.value) is not Fraction:
                object.__setattr__(found, "value", Fraction(found.value))  # a 2 is equal to 2/1
            if complete is not None:
                complete(found)
            _interned[key] = found
        return found

    def _bind(klass: type, args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        given = dict(zip(names, args, strict=False))
        strange = [name for name in named if name not in defaults or name in given]
        given = defaults | given | named
        lacking = [name for name, value in given.items() if value is MISSING]
        if len(args) > len(names) or strange or lacking:
            raise TypeError(f"{klass.__name__} takes {', '.join(names)}")
        return tuple(given[name] for name in names)

    made.__new__ = intern
    # Copying and pickling go through the constructor, so that copies are interned too.
    made.__reduce__ = lambda self: (type(self), tuple(getattr(self, name) for name in names))
    return cast("Class", made)


class Expression:
    """The base of all expressions; `children` are the direct subexpressions in reading order.

    Bound indices, the extent of an index and the shape of a tensor are no children.
    """

    __slots__ = ("children",)
    children: tuple[Expr, ...]
    inside: tuple[str, ...]  # the fields that hold the children

    def __init_subclass__(cls, inside: tuple[str, ...] | None = None) -> None:
        """Record `inside`; a class with slots is created twice, the second time without it."""
        if inside is not None:
            cls.inside = inside

    def complete(self) -> None:
        """Collect the children of a new node."""
        values = [getattr(self, name) for name in self.inside]
        parts = (value if isinstance(value, tuple) else (value,) for value in values)
        object.__setattr__(self, "children", tuple(chain.from_iterable(parts)))


@node
class Number(Expression, inside=()):
    """An exact rational."""

    value: Fraction


@node
class Infinity(Expression, inside=()):
    """Plus or minus infinity."""

    negative: bool = False


@node
class Size(Expression, inside=()):
    """A size symbol: an exact integer, taken from a shape or a keyword argument."""

    name: str


@node
class Scalar(Expression, inside=()):
    """A number argument of the formula, with the bounds of its value."""

    name: str
    lower: Expr | None = None  # bounds: as in Tensor
    upper: Expr | None = None
    strict: tuple[bool, bool] = (False, False)


@node
class Index(Expression, inside=()):
    """An index i with its extent N; as an expression it has the values 0 .. N - 1."""

    name: str
    extent: Expr


@node
class Tensor:
    """A named tensor: its extents, the kind of its elements and the bounds of their values."""

    name: str
    shape: tuple[Expr, ...]
    kind: str = "real"  # real | int | bool | complex
    below: Expr | None = None  # int: 0 <= value < below
    lower: Expr | None = None  # real: bounds of the values
    upper: Expr | None = None
    strict: tuple[bool, bool] = (False, False)  # whether the lower, the upper bound is excluded


@node
class Access(Expression, inside=("places",)):
    """One element of a tensor, `A[i, 2*k]`."""

    tensor: Tensor
    places: tuple[Expr, ...]


@node
class Add(Expression, inside=("terms",)):
    """A sum of terms."""

    terms: tuple[Expr, ...]


@node
class Mul(Expression, inside=("factors",)):
    """A product of factors."""

    factors: tuple[Expr, ...]


@node
class Pow(Expression, inside=("base", "exponent")):
    """A power; a quotient is written as a product with a power of -1."""

    base: Expr
    exponent: Expr


@node
class Call(Expression, inside=("arguments",)):
    """An elementwise function by its name in the notation."""

    function: str
    arguments: tuple[Expr, ...]


@node
class Where(Expression, inside=("condition", "then", "other")):
    """`then` where the condition holds, else `other`."""

    condition: Expr
    then: Expr
    other: Expr


@node
class Reduce(Expression, inside=("condition", "body")):
    """`kind[bound, condition](body)`, such as the sum of the body where the condition holds."""

    kind: str
    bound: tuple[Index, ...]
    condition: Expr
    body: Expr

    @property
    def indices(self) -> tuple[Index, ...]:
        """The indices reduced over."""
        return self.bound


@node
class Along(Expression, inside=("condition", "body")):
    """A function along an index that stays free; entries where the condition fails are left out.

    A function of a matrix has its rows along `index` and its columns along `columns`.
    """

    kind: str
    index: Index
    condition: Expr
    body: Expr
    columns: Index | None = None

    @property
    def indices(self) -> tuple[Index, ...]:
        """The index of the rows, and of the columns if there is one."""
        return (self.index,) if self.columns is None else (self.index, self.columns)


@node
class Truth(Expression, inside=()):
    """A condition that always holds, or never."""

    value: bool


@node
class Compare(Expression, inside=("left", "right")):
    """A relation: < <= > >= == != between two expressions."""

    relation: str
    left: Expr
    right: Expr


@node
class And(Expression, inside=("parts",)):
    """The condition that all parts hold."""

    parts: tuple[Expr, ...]


@node
class Or(Expression, inside=("parts",)):
    """The condition that some part holds."""

    parts: tuple[Expr, ...]


@node
class Not(Expression, inside=("part",)):
    """The condition that a part does not hold."""

    part: Expr


Expr: TypeAlias = (
    Number
    | Infinity
    | Size
    | Scalar
    | Index
    | Access
    | Add
    | Mul
    | Pow
    | Call
    | Where
    | Reduce
    | Along
    | Truth
    | Compare
    | And
    | Or
    | Not
)


@node
class Equation:
    """`target = value`, for all values of the free indices."""

    target: Access
    value: Expr


@node
class ScalarInput:
    """The declaration of a number argument: its name, optional default and bounds."""

    name: str
    default: Expr | None = None
    lower: Expr | None = None
    upper: Expr | None = None
    strict: tuple[bool, bool] = (False, False)


@node
class SizeInput:
    """A size given by a keyword argument, because no shape contains it."""

    name: str
    default: int | None = None


@node
class System:
    """One formula: the inputs in order of declaration, the equations in order, the results."""

    name: str
    inputs: tuple[Tensor | ScalarInput, ...]
    sizes: tuple[SizeInput, ...]
    equations: tuple[Equation, ...]
    results: tuple[Tensor, ...]
    empty_row: str = "nan"  # nan | zeros: the softmax of a row without entries
    declared: tuple[str, ...] = ()  # indices with an `index` line of their own
    written: tuple[Equation, ...] = ()  # the user's equations, where `equations` merged some
    # names of tensors proved to be finite wherever they are read
    finite: tuple[str, ...] = ()
    varying: tuple[str, ...] = ()  # names of tensors that change from turn to turn of a loop

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The input tensors."""
        return tuple(entry for entry in self.inputs if isinstance(entry, Tensor))

    @property
    def scalars(self) -> tuple[ScalarInput, ...]:
        """The input scalars."""
        return tuple(entry for entry in self.inputs if isinstance(entry, ScalarInput))


ZERO = Number(Fraction(0))
ONE = Number(Fraction(1))
MINUS_ONE = Number(Fraction(-1))
TRUE = Truth(True)
FALSE = Truth(False)
MINUS_INFINITY = Infinity(True)
NUMBERS: dict[str, Expr] = {"0": ZERO, "1": ONE, "-oo": MINUS_INFINITY, "oo": Infinity()}

# The nodes that are conditions, apart from reads of Boolean tensors.
TRUTHS = (Compare, And, Or, Not, Truth)
# The negation of each relation.
NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}
# The comparison function of each relation.
DECIDING = {"<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne}
# Each relation with its sides exchanged.
MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def name_axes(
    name: str, axes: Sequence[Index], kind: str = "real", below: Expr | None = None
) -> Access:
    """The access `name[axes]` of a new tensor, whose shape is the extents of these indices."""
    return Access(Tensor(name, tuple(i.extent for i in axes), kind, below), tuple(axes))


def negate(condition: Expr) -> Expr:
    """The negated condition: == and != are exchanged, any other one is put into a Not."""
    match condition:
        case Compare("==" | "!=" as relation, left, right):
            return Compare(NEGATED[relation], left, right)
    return Not(condition)


def change_sign(value: Expr) -> Expr:
    """The negated value, the minus inside terms, a factor or a sum's body where it fits."""
    match value:
        case Add(terms):
            return Add(tuple(map(change_sign, terms)))
        case Number(number):
            return Number(-number)
        case Reduce("sum" | "mean" as kind, bound, condition, body):
            return Reduce(kind, bound, condition, change_sign(body))
        case Mul(factors):
            signs = (k for k, f in enumerate(factors) if isinstance(f, Number) and f.value < 0)
            sums = (k for k, f in enumerate(factors) if isinstance(f, (Add, Reduce)))
            k = next(signs, next(sums, None))
            if k is not None:
                return Mul((*factors[:k], change_sign(factors[k]), *factors[k + 1 :]))
    return Mul((MINUS_ONE, value))


def sum_of(terms: Sequence[Expr]) -> Expr:
    """The sum of the terms; a single term itself, 0 for none."""
    return terms[0] if len(terms) == 1 else Add(tuple(terms)) if terms else ZERO


def product_of(factors: Sequence[Expr]) -> Expr:
    """The product of the factors; a single factor itself, 1 for none."""
    return factors[0] if len(factors) == 1 else Mul(tuple(factors)) if factors else ONE


def sum_over(bound: tuple[Index, ...], body: Expr, condition: Expr = TRUE) -> Expr:
    """The sum of the body where a condition holds; without indices `where(condition, body, 0)`."""
    if bound:
        return Reduce("sum", bound, condition, body)
    return body if condition is TRUE else Where(condition, body, ZERO)


def split_sum(expr: Expr) -> tuple[Expr, ...]:
    """The terms of a sum; any other expression as a single term."""
    return expr.terms if isinstance(expr, Add) else (expr,)


def split_product(expr: Expr) -> tuple[Expr, ...]:
    """The factors of a product; any other expression as a single factor."""
    return expr.factors if isinstance(expr, Mul) else (expr,)


def all_of(*conditions: Expr) -> Expr:
    """The conjunction, flattened, without repetitions and TRUE; FALSE if a part is FALSE."""
    kept = dict.fromkeys(part for each in conditions for part in split_and(each))
    kept.pop(TRUE, None)
    if FALSE in kept:
        return FALSE
    return And(tuple(kept)) if len(kept) > 1 else next(iter(kept), TRUE)


def any_of(*conditions: Expr) -> Expr:
    """The disjunction, flattened, without repetitions and FALSE; TRUE if a part is TRUE."""
    opened = (each.parts if isinstance(each, Or) else (each,) for each in conditions)
    kept = dict.fromkeys(part for parts in opened for part in parts)
    kept.pop(FALSE, None)
    if TRUE in kept:
        return TRUE
    return Or(tuple(kept)) if len(kept) > 1 else next(iter(kept), FALSE)


def split_and(condition: Expr) -> tuple[Expr, ...]:
    """The parts of a conjunction at any depth; any other condition as a single part."""
    if not isinstance(condition, And):
        return (condition,)
    return tuple(part for each in condition.parts for part in split_and(each))
