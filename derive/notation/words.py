"""The words of a formula written in Python: sizes, indices, tensors and functions for SymPy.

`Symbol`, `Idx` and `IndexedBase` written by hand work just as well for real tensors. Integer and
Boolean tensors, and tensors whose values have known bounds, need `tensors(..., dtype=...)`, since
SymPy has no place to say so.

A reduction is written `cumsum(e, j)`, `mean(e, i, j)`, and with a condition last,
`mean(e, j, m[b, j])`: entries where the condition fails are left out. Each row of `ir.functions`
that SymPy has no class for is a function here, under its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import sympy
from sympy import (
    Abs,
    And,
    Expr,
    Function,
    Idx,
    Indexed,
    IndexedBase,
    Piecewise,
    S,
    Symbol,
    arg,
    im,
    re,
    sympify,
)
from sympy.core.containers import Tuple
from sympy.core.function import ArgumentIndexError
from sympy.core.symbol import Str
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.logic.boolalg import Boolean

from derive.errors import refuse
from derive.ir.definitions import Maker, bind, expand_call, read_definition
from derive.ir.functions import FUNCTIONS as TABLE
from derive.ir.functions import ROWS

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    from derive.ir.functions import Function as Row
    from derive.ir.functions import Reduction as ReductionRow


DTYPES = ("real", "int", "bool", "complex")
# Other spellings of the dtypes.
SPELT = {"float": "real", float: "real", int: "int", bool: "bool", complex: "complex"}

_order = count()  # orders tensors by declaration; no output depends on it


class TensorBase(IndexedBase):  # type: ignore[misc]
    """An `IndexedBase` with the kind of its elements, and the bounds of integers or reals."""

    def __new__(
        cls,
        label: Any,
        shape: Any = None,
        kind: Any = "real",
        below: Any = None,
        domain: Any = None,
    ) -> TensorBase:
        """The tensor of this name, which SymPy must not evaluate: `S` is a name here."""
        base: TensorBase = IndexedBase.__new__(
            cls, label if isinstance(label, str) else str(label), shape=tuple(shape or ()) or None
        )
        base._tensor = (
            Str(str(kind)),
            sympify(below) if below is not None else S.NaN,
            Tuple(*domain) if domain is not None else Tuple(),
        )
        base.declared = next(_order)
        return base

    kind = property(lambda self: str(self._tensor[0]))
    below = property(lambda self: None if self._tensor[1] is S.NaN else self._tensor[1])
    domain = property(lambda self: tuple(self._tensor[2]))

    def _hashable_content(self) -> tuple[Any, ...]:
        """The parts by which SymPy compares tensors: two of one name differ if these do."""
        return (*super()._hashable_content(), *self._tensor, self.declared)

    def __getitem__(self, places: Any, **assumptions: Any) -> Any:
        places = places if isinstance(places, (tuple, list, Tuple)) else (places,)
        if self.kind == "bool":
            return BooleanElement(self, *places)
        if self.shape is not None and len(self.shape) != len(places):
            name, rank, given = str(self.label), len(self.shape), len(places)
            says = f"{name} has {rank} place{'s' * (rank != 1)}, not {given}"
            fact = f"{name} is declared with the shape {', '.join(map(str, self.shape))}"
            raise refuse("wrong-rank", says, facts=[fact], help="write an index for each place")
        return super().__getitem__(tuple(places), **assumptions)


class BooleanElement(Indexed, Boolean):  # type: ignore[misc]
    """An element of a Boolean tensor, which SymPy accepts as a condition."""

    def __new__(cls, base: TensorBase, *places: Any) -> BooleanElement:
        """The element at these places; without places the only one of a tensor of rank 0."""
        make = super().__new__ if places else Expr.__new__
        element: BooleanElement = make(cls, base, *places)
        return element


def find_complex(equations: Sequence[Any]) -> set[str]:
    """The names of the tensors that are declared complex or computed from complex values."""
    lefts = [str(getattr(left := e.lhs, "base", left)) for e in equations]
    bases = {base for equation in equations for base in equation.atoms(IndexedBase)}
    found = {str(b.label) for b in bases if getattr(b, "kind", "") == "complex"} - {*lefts}

    def is_complex(value: Any) -> bool:
        if isinstance(value, (Indexed, IndexedBase, Symbol)):
            return str(getattr(value, "base", value)) in found
        if isinstance(value, (re, im, Abs, arg, Boolean)):
            return False
        return value is S.ImaginaryUnit or any(map(is_complex, value.args))

    count = -1
    while count < len(found):
        count = len(found)
        found |= {n for n, e in zip(lefts, equations, strict=True) if is_complex(e.rhs)}
    return found


def sizes(names: str) -> Any:
    """Size symbols, one for each name: `B, S = sizes("B S")`."""
    return _make_each(names, lambda name: Symbol(name, integer=True, positive=True))


def indices(names: str, extent: Any) -> Any:
    """Indices that run over 0 .. extent - 1: `i, j = indices("i j", S)`.

    The extent is a size, an expression over sizes or a number; a name stands for the size.
    """
    extent = _to_extent(extent)
    whole = isinstance(extent, int) and not isinstance(extent, bool) and extent > 0
    if not whole and not isinstance(extent, Expr):
        raise refuse(
            "extent-form",
            f"an extent is a size or a whole number above 0, not {extent!r}",
            help='make one with sizes("N")',
        )
    return _make_each(names, lambda name: Idx(name, sympify(extent)))


def tensors(
    names: str,
    *shape: Any,
    dtype: str | type = "real",
    below: Any = None,
    domain: tuple[Any, ...] | None = None,
) -> Any:
    """Tensors of one shape: `W_Q, W_K = tensors("W_Q W_K", H, D, D)`.

    A tensor without a shape is one that an equation defines. A name in the shape stands for the
    size. `dtype` is "real" or "float", "int" (with `below=V` for values 0..V-1), "bool" or
    "complex". `domain=(low, high)` says that `low <= value <= high`; `domain=(low, high, "<", "<")`
    excludes the bounds; None leaves a side open.
    """
    kind = SPELT.get(dtype, dtype)
    if kind not in DTYPES:
        raise refuse(
            "dtype-unknown",
            f"a tensor is {', '.join(DTYPES)}; there is no dtype {dtype!r}",
            help="of real tensors the dtype is that of what the function is given",
        )
    extents, bound = tuple(map(_to_extent, shape)), _to_extent(below)
    limits = _read_domain(domain)
    return _make_each(names, lambda name: TensorBase(name, extents, kind, bound, limits))


def _to_extent(value: Any) -> Any:
    """The size of this name, if the value is a name; any other value unchanged."""
    return sizes(value) if isinstance(value, str) and value.isidentifier() else value


def _read_domain(domain: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    """The domain as SymPy objects: low, high, and the relations < or <= of both; None for none."""
    if domain is None:
        return None
    if not isinstance(domain, tuple) or not 2 <= len(domain) <= 4:
        raise refuse(
            "domain-form",
            f"a domain is a low and a high bound, not {domain!r}",
            help="write domain=(0, None), or domain=(0, 1, '<', '<=')",
        )
    low, high, *relations = domain
    relations = [*relations, "<=", "<="][:2] if len(relations) < 2 else relations
    return (
        S.NegativeInfinity if low is None else sympify(low),
        S.Infinity if high is None else sympify(high),
        *map(Str, relations),
    )


def _make_each(names: str, make: Any) -> Any:
    """`make(name)` for each of the names, as a tuple; alone for one; DeriveError if no text."""
    if not isinstance(names, str):
        raise refuse(
            "names-form", f"names are one text, not {names!r}", help='write them like "B S"'
        )
    made = tuple(make(name) for name in names.replace(",", " ").split())
    return made[0] if len(made) == 1 else made


class Reduction(Function):  # type: ignore[misc]
    """A function of an expression over one or more of its indices, with an optional condition."""

    is_commutative = True  # SymPy would ask the arguments, and a condition has no answer

    @property
    def body(self) -> Any:
        """The expression that is reduced."""
        return self.args[0]

    @property
    def bound(self) -> tuple[Any, ...]:
        """The indices that it binds or goes along."""
        return tuple(a for a in self.args[1:] if isinstance(a, (Idx, Symbol)))

    @property
    def condition(self) -> Any:
        """The conjunction of the conditions on the entries; `true` where there is none."""
        rest = [a for a in self.args[1:] if not isinstance(a, (Idx, Symbol))]
        return And(*rest)


class Elementwise(Function):  # type: ignore[misc]
    """An elementwise function that SymPy has no class for."""

    def fdiff(self, argindex: int = 1) -> Any:
        """The derivative by an argument (counted from 1), as its row gives it or its definition."""
        row = TABLE[type(self).__name__]
        texts = row.derivative.split(";")
        if row.derivative and argindex <= min(len(texts), len(row.tensors)):
            return read_definition(texts[argindex - 1].strip(), bind(row, self.args, MAKER), MAKER)
        if not 1 <= argindex <= len(self.args):
            raise ArgumentIndexError(self, argindex)
        places = [sympy.Dummy(real=True) for _ in self.args]
        slope = expand_call(row.name, places, MAKER).diff(places[argindex - 1])
        return slope.xreplace(dict(zip(places, self.args, strict=True)))


# Constructors without evaluation: SymPy's own would sort, fold and compare their arguments.
_RELATIONS: dict[str, Any] = {
    "<": sympy.Lt,
    "<=": sympy.Le,
    ">": sympy.Gt,
    ">=": sympy.Ge,
    "==": sympy.Eq,
    "!=": sympy.Ne,
}


def add(*terms: Any) -> Any:
    """Return the sum of the terms in their order."""
    return sympy.Add(*terms, evaluate=False) if len(terms) != 1 else terms[0]


def multiply(*factors: Any) -> Any:
    """Return the product of the factors in their order; `1 / x` is the power alone."""
    match factors:
        case [first, sympy.Pow(exp=exponent), *_] if (
            first is sympy.S.One and exponent is sympy.S.NegativeOne
        ):
            factors = factors[1:]
    return sympy.Mul(*factors, evaluate=False) if len(factors) != 1 else factors[0]


def power(base: Any, exponent: Any) -> Any:
    """Return base**exponent, unevaluated."""
    return sympy.Pow(base, exponent, evaluate=False)


def compare(relation: str, left: Any, right: Any) -> Any:
    """Return a relation, unevaluated even if its sides decide it."""
    return _RELATIONS[relation](left, right, evaluate=False)


def choose(condition: Any, then: Any, other: Any) -> Any:
    """Return `where(condition, then, other)`; SymPy's own constructor drops branches."""
    pairs = ((then, condition), (other, sympy.S.true))
    return sympy.Basic.__new__(Piecewise, *(Tuple.__new__(ExprCondPair, *pair) for pair in pairs))


def reduce_over(word: str, body: Any, bound: Sequence[Any], condition: Any | None) -> Any:
    """Return `word[bound, condition](body)` for a word such as sum, softmax or norm."""
    if not ROWS[word].is_kept:
        make = replace(MAKER, reduce=lambda w, inner: reduce_over(w, inner, bound, condition))
        return read_definition(ROWS[word].definition, {"x": body}, make)
    if word not in {"sum", "prod"}:
        rest = () if condition is None else (condition,)
        return REDUCTIONS[word](body, *bound, *rest, evaluate=False)
    kind, other = (sympy.Sum, sympy.S.Zero) if word == "sum" else (sympy.Product, sympy.S.One)
    limits = [Tuple(index, index.lower, index.upper) for index in bound]
    if condition is not None:
        body = choose(condition, body, other)
    made = Expr.__new__(kind, body, *limits)
    made.is_commutative = True  # as the bypassed constructor does
    return made


def to_rational(value: Fraction | int) -> Any:
    """Return an exact number as SymPy's."""
    return sympy.Rational(value.numerator, value.denominator)


def call_function(name: str, *arguments: Any) -> Any:
    """Return the call of an elementwise function; a constant such as pi without arguments."""
    if name in CONSTANTS:
        return CONSTANTS[name]
    if not TABLE[name].is_kept:
        return expand_call(name, arguments, MAKER)
    kind = ELEMENTWISE[name]
    if name in {"max", "min"}:  # in the order of the text
        made = Expr.__new__(kind, *arguments)
        made._argset = frozenset(arguments)
        return made
    return kind(*arguments, evaluate=False)


CONSTANTS: dict[str, Any] = {"pi": sympy.S.Pi, "I": sympy.S.ImaginaryUnit, "oo": sympy.S.Infinity}
MAKER = Maker(
    to_rational,
    add,
    multiply,
    power,
    compare,
    choose,
    lambda name, arguments: call_function(name, *arguments),
)


def _make_class(kind: type, row: Row | ReductionRow, name: str, call: str) -> Any:
    """The subclass of `kind` for a row, under this name; `call` shows its use in the docstring."""
    says = getattr(row, "says", "") or row.definition or "a primitive"
    place = {"__doc__": f"`{call}`: {says}.", "__module__": __name__}
    return type(name, (kind,), place)


def _make_function(name: str) -> Callable[..., Any]:
    """The function of a row with a definition: it returns the definition at its arguments."""
    return lambda *arguments: expand_call(name, arguments, MAKER)


def _make_reduction(word: str) -> Callable[..., Any]:
    """The function of a reduction with a definition, such as norm: it returns the definition."""

    def act(body: Any, *rest: Any) -> Any:
        bound = tuple(a for a in rest if isinstance(a, (Idx, Symbol)))
        conditions = [a for a in rest if not isinstance(a, (Idx, Symbol))]
        condition = And(*conditions) if conditions else None
        return reduce_over(word, body, bound, condition)

    return act


# The class of each word of the notation.
REDUCTIONS: dict[str, Any] = {
    row.name: _make_class(Reduction, row, row.sympy or row.name, f"{row.sympy or row.name}(x, j)")
    for row in ROWS.values()
    if row.is_kept and row.name not in {"sum", "prod"}
}
WORDS: dict[Any, str] = {kind: word for word, kind in REDUCTIONS.items()}
FUNCTIONS: dict[str, Any] = {
    row.name: _make_class(Elementwise, row, row.name, f"{row.name}({row.parameters})")
    for row in TABLE.values()
    if row.is_kept and not row.sympy
}
ELEMENTWISE: dict[str, Any] = {
    name: FUNCTIONS.get(name) or getattr(sympy, row.sympy)
    for name, row in TABLE.items()
    if row.is_kept and name not in {"pi", "I", "floordiv"}
}
_DEFINED = {name: _make_function(name) for name, row in TABLE.items() if not row.is_kept} | {
    word: _make_reduction(word) for word, row in ROWS.items() if not row.is_kept
}
globals().update(_DEFINED | FUNCTIONS | {kind.__name__: kind for kind in REDUCTIONS.values()})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The class or function of a word, for type checkers: `globals` has them at run time."""
