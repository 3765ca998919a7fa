"""SymPy expressions as they were written: every node is built without evaluation.

Laws:
- A product or a sum keeps its parts in the order of the text; one level is one n-ary node.
- A quotient is a product with a power of -1; a difference is a sum with a negated term.
- Constructors of SymPy that sort, fold or compare are passed by (Max, Piecewise, And, Sum).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sympy import (
    Add,
    And,
    Eq,
    Ge,
    Gt,
    Idx,
    KroneckerDelta,
    Le,
    Lt,
    Mod,
    Mul,
    Ne,
    Not,
    Or,
    Piecewise,
    Pow,
    Product,
    Rational,
    S,
    Sum,
    Symbol,
    floor,
)
from sympy.core.basic import Basic
from sympy.core.containers import Tuple
from sympy.core.expr import Expr
from sympy.core.relational import Relational
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.logic.boolalg import BooleanAtom

from derive.ir.definitions import Maker, open_call
from derive.ir.functions import FUNCTIONS, ROWS
from derive.notation import functions
from derive.notation.words import BooleanElement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from fractions import Fraction

RELATIONS: dict[str, Any] = {"<": Lt, "<=": Le, ">": Gt, ">=": Ge, "==": Eq, "!=": Ne}

# Words with `[..](..)`: those that bind their indices, and those that keep their one index.
BINDING = tuple(word for word, row in ROWS.items() if not row.keeps and word != "sample_var")
KEEPING = tuple(word for word, row in ROWS.items() if row.keeps)


def to_size(name: str) -> Any:
    """The symbol of a size, equal to the one that `notation.words.sizes` makes."""
    return Symbol(name, integer=True, positive=True)


def to_index(name: str, extent: Any) -> Any:
    """The index letter over 0 .. extent - 1."""
    return Idx(Symbol(name, integer=True), (S.Zero, extent - 1))


def add(terms: Sequence[Any]) -> Any:
    """The sum of the terms in their order."""
    return Add(*terms, evaluate=False) if len(terms) != 1 else terms[0]


def multiply(factors: Sequence[Any]) -> Any:
    """The product of the factors in their order; a leading 1 over something is that power alone."""
    leads = len(factors) > 1 and factors[0] is S.One and _is_divisor(factors[1])
    kept = factors[1:] if leads else factors
    return Mul(*kept, evaluate=False) if len(kept) != 1 else kept[0]


def invert(base: Any) -> Any:
    """One over the base."""
    return Pow(base, S.NegativeOne, evaluate=False)


def negate(term: Any) -> Any:
    """The term with its sign changed: in its leading number, else by a factor of -1."""
    if term.is_Rational or term in (S.Infinity, S.NegativeInfinity):
        return -term
    if not isinstance(term, Mul):
        return Mul(S.NegativeOne, term, evaluate=False)
    first, *rest = term.args
    if first.is_Rational and first > 0 and first is not S.One:
        return Mul(-first, *rest, evaluate=False)
    return Mul(S.NegativeOne, *term.args, evaluate=False)


def power(base: Any, exponent: Any) -> Any:
    """The base to the exponent."""
    return Pow(base, exponent, evaluate=False)


def divide_floor(left: Any, right: Any) -> Any:
    """`left // right`."""
    return floor(multiply((left, invert(right))), evaluate=False)


def remainder(left: Any, right: Any) -> Any:
    """`left % right`."""
    return Mod(left, right, evaluate=False)


def compare(relation: str, left: Any, right: Any) -> Any:
    """A relation that stays as it is, even where its sides decide it."""
    return RELATIONS[relation](left, right, evaluate=False)


def all_of(parts: Sequence[Any]) -> Any:
    """The conjunction in the order of the text; SymPy's own constructor sorts."""
    return _logical(And, parts)


def any_of(parts: Sequence[Any]) -> Any:
    """The disjunction in the order of the text."""
    return _logical(Or, parts)


def contrary(part: Any) -> Any:
    """The negation."""
    return Not(part, evaluate=False)


def choose(condition: Any, then: Any, other: Any) -> Any:
    """`where(condition, then, other)`; SymPy's own constructor folds and drops branches."""
    pairs = ((then, condition), (other, S.true))
    return Basic.__new__(Piecewise, *(Tuple.__new__(ExprCondPair, *pair) for pair in pairs))


def reduce_over(word: str, body: Any, bound: Sequence[Any], condition: Any | None) -> Any:
    """`word[bound, condition](body)` for any word of the notation."""
    if not ROWS[word].is_kept:
        return functions.open_row(
            word, body, MAKER, lambda other, inner: reduce_over(other, inner, bound, condition)
        )
    if word not in {"sum", "prod"}:
        rest = () if condition is None else (condition,)
        return functions.REDUCTIONS[word](body, *bound, *rest, evaluate=False)
    kind, other = (Sum, S.Zero) if word == "sum" else (Product, S.One)
    limits = [Tuple(index, index.lower, index.upper) for index in bound]
    if condition is not None and _is_triangular(condition, bound):
        limits = [Tuple(bound[0], S.Zero, condition.args[1])]
    elif condition is not None:
        body = choose(condition, body, other)
    made = Expr.__new__(kind, body, *limits)
    made.is_commutative = True  # the constructor, passed by since it folds Piecewise, sets this
    return made


def is_condition(value: Any) -> bool:
    """Is it a truth value? To SymPy every Symbol could be one."""
    kinds = (And, Or, Not, Relational, BooleanAtom, BooleanElement)
    return isinstance(value, kinds)


def _is_triangular(condition: Any, bound: Sequence[Any]) -> bool:
    """Is it `j <= i`, with both of one extent and j the only index bound?"""
    return (
        len(bound) == 1
        and isinstance(condition, Le)
        and condition.args[0] == bound[0]
        and isinstance(condition.args[1], Idx)
        and condition.args[1] != bound[0]
        and condition.args[1].upper == bound[0].upper
    )


def _is_divisor(factor: Any) -> bool:
    return isinstance(factor, Pow) and factor.exp is S.NegativeOne


def _logical(kind: Any, parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    made = Basic.__new__(kind, *parts)
    made._argset = frozenset(parts)
    return made


def to_rational(value: Fraction | int) -> Any:
    """An exact number."""
    return Rational(value.numerator, value.denominator)


def _call(name: str, arguments: Sequence[Any]) -> Any:
    """An elementwise function of the notation."""
    if name in CONSTANTS:
        return CONSTANTS[name]
    if not FUNCTIONS[name].is_kept:
        return open_call(name, arguments, MAKER)
    kind = functions.ELEMENTWISE[name]
    if name in {"max", "min"}:  # in the order of the text
        made = Expr.__new__(kind, *arguments)
        made._argset = frozenset(arguments)
        return made
    return kind(*arguments, evaluate=False)


def _builder(name: str) -> Callable[..., Any]:
    return lambda *arguments: _call(name, arguments)


CONSTANTS: dict[str, Any] = {"pi": S.Pi, "oo": S.Infinity}
MAKER = Maker(
    to_rational,
    lambda *terms: add(terms),
    lambda *factors: multiply(factors),
    power,
    compare,
    choose,
    _call,
)
# name: (fewest arguments, most arguments, builder); `//` and `%` are no words
ELEMENTWISE: dict[str, tuple[int, int, Callable[..., Any]]] = {
    name: (max(row.counts[0], 2 if name in {"max", "min"} else 1), row.counts[1], _builder(name))
    for name, row in FUNCTIONS.items()
    if name not in {"pi", "floordiv", "mod"}
} | {"delta": (2, 2, lambda *places: KroneckerDelta(*places, evaluate=False))}
