"""Reductions over an index and the elementwise functions that SymPy lacks, as SymPy functions.

A reduction is written `softmax(e, j)`, `mean(e, i, j)`, and with a condition last,
`mean(e, j, m[b, j])`: entries where the condition fails are left out.

Each row of `ir.functions` that SymPy has no class for is one here, under its name; what is another
way to write its definition gives that definition.
"""

from __future__ import annotations

from dataclasses import replace
from operator import add, mul
from typing import TYPE_CHECKING, Any

import sympy
from sympy import And, Function, Idx, Piecewise, Rational, Sum, Symbol
from sympy.core.function import ArgumentIndexError

from derive.ir.functions import FUNCTIONS as TABLE
from derive.ir.functions import ROWS, Maker, bind, open_call, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from derive.ir.functions import Function as Row
    from derive.ir.functions import Reduction as ReductionRow


class Reduction(Function):  # type: ignore[misc]
    """A function of an expression over one or more of its indices, with an optional condition."""

    is_commutative = (
        True  # SymPy would ask the condition, get no answer, and go on to ask for zeros
    )

    @property
    def body(self) -> Any:
        """The expression that is reduced."""
        return self.args[0]

    @property
    def bound(self) -> tuple[Any, ...]:
        """The indices it runs over."""
        return tuple(a for a in self.args[1:] if isinstance(a, (Idx, Symbol)))

    @property
    def condition(self) -> Any:
        """Which entries take part, all conditions together; `true` where none was given."""
        rest = [a for a in self.args[1:] if not isinstance(a, (Idx, Symbol))]
        return And(*rest)


class Elementwise(Function):  # type: ignore[misc]
    """A function of the elements that SymPy has no class for."""

    def fdiff(self, argindex: int = 1) -> Any:
        """The derivative by an argument, as the row or its definition says."""
        row = TABLE[type(self).__name__]
        texts = row.derivative.split(";")
        if row.derivative and argindex <= min(len(texts), len(row.tensors)):
            return read(texts[argindex - 1].strip(), bind(row, self.args, SYMPY), SYMPY)
        if not 1 <= argindex <= len(self.args):
            raise ArgumentIndexError(self, argindex)
        places = [sympy.Dummy(real=True) for _ in self.args]
        slope = open_call(row.name, places, SYMPY).diff(places[argindex - 1])
        return slope.xreplace(dict(zip(places, self.args, strict=True)))


def _choose(condition: Any, then: Any, other: Any) -> Any:
    return Piecewise((then, condition), (other, True))


def _call(name: str, arguments: tuple[Any, ...]) -> Any:
    if name in ELEMENTWISE:
        return ELEMENTWISE[name](*arguments)
    return getattr(sympy, name) if name in {"pi", "I"} else open_call(name, arguments, SYMPY)


_COMPARE = {
    "<": sympy.Lt, "<=": sympy.Le, ">": sympy.Gt, ">=": sympy.Ge, "==": sympy.Eq, "!=": sympy.Ne,
}  # fmt: skip
SYMPY = Maker(
    lambda value: Rational(value.numerator, value.denominator),
    add,
    mul,
    pow,
    lambda relation, one, other: _COMPARE[relation](one, other),
    _choose,
    _call,
)


def _write(kind: type, row: Row | ReductionRow, name: str, call: str) -> Any:
    """The class of a row."""
    says = getattr(row, "says", "") or row.definition or "a primitive"
    place = {"__doc__": f"`{call}`: {says}.", "__module__": __name__}
    return type(name, (kind,), place)


def reduce_over(word: str, body: Any, bound: tuple[Any, ...], condition: Any = None) -> Any:
    """`word[bound, condition](body)` as SymPy has it."""
    rest = () if condition is None else (condition,)
    if word in REDUCTIONS:
        return REDUCTIONS[word](body, *bound, *rest)
    kept = body if condition is None else _choose(condition, body, 0)
    return Sum(kept, *((index, index.lower, index.upper) for index in bound))


def open_row(word: str, body: Any, make: Maker, reduce: Callable[[str, Any], Any]) -> Any:
    """A reduction that is another way to write its definition."""
    return read(ROWS[word].definition, {"x": body}, replace(make, reduce=reduce))


def _spell_function(name: str) -> Callable[..., Any]:
    return lambda *arguments: open_call(name, arguments, SYMPY)


def _spell_row(word: str) -> Callable[..., Any]:
    def act(body: Any, *rest: Any) -> Any:
        bound = tuple(a for a in rest if isinstance(a, (Idx, Symbol)))
        conditions = [a for a in rest if not isinstance(a, (Idx, Symbol))]
        condition = And(*conditions) if conditions else None
        return open_row(word, body, SYMPY, lambda w, e: reduce_over(w, e, bound, condition))

    return act


# The word of the notation: the class.
REDUCTIONS: dict[str, Any] = {
    row.name: _write(Reduction, row, row.sympy or row.name, f"{row.sympy or row.name}(x, j)")
    for row in ROWS.values()
    if row.is_kept and row.name not in {"sum", "prod"}
}
WORDS: dict[Any, str] = {kind: word for word, kind in REDUCTIONS.items()}
FUNCTIONS: dict[str, Any] = {
    row.name: _write(Elementwise, row, row.name, f"{row.name}({row.parameters})")
    for row in TABLE.values()
    if row.is_kept and not row.sympy
}
ELEMENTWISE: dict[str, Any] = {
    name: FUNCTIONS.get(name) or getattr(sympy, row.sympy)
    for name, row in TABLE.items()
    if row.is_kept and name not in {"pi", "I", "floordiv"}
}
_SPELLED = {name: _spell_function(name) for name, row in TABLE.items() if not row.is_kept} | {
    word: _spell_row(word) for word, row in ROWS.items() if not row.is_kept
}
globals().update(_SPELLED | FUNCTIONS | {kind.__name__: kind for kind in REDUCTIONS.values()})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A class or function by its word."""
