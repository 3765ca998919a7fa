"""Reductions as generators and rows, and which of them are computed on a line before.

A reduction that an equation would compute again and again (a softmax row for each of its entries, a
mean for each element) gets a line of its own in the loop where its letters are known. It stays
where it is under a guard, in a condition, or where its letters run inside the expression.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sympy
from sympy import Idx, Indexed, IndexedBase, KroneckerDelta, Mul, Piecewise, S, Symbol

from derive.judge.loops.names import Names, find_letters, is_kept, label_of
from derive.judge.loops.text import (
    ATOM,
    OR,
    SIGN,
    Scope,
    Text,
    put,
    split_guards,
    write,
    write_all,
)
from derive.notation.functions import Reduction, argmax

if TYPE_CHECKING:
    from collections.abc import Iterator

_WORDS = {"amax": "max", "amin": "min"}
_LEFT_OUT = {"cumsum": "0", "softmax": "-inf", "log_softmax": "-inf", "argmax": "-inf"}


@write.register(sympy.Sum)
def _(value: Any, scope: Scope) -> Text:
    return _write_or_recall(value, scope)


@write.register(sympy.Product)
def _(value: Any, scope: Scope) -> Text:
    return _write_or_recall(value, scope)


@write.register(Reduction)
def _(value: Any, scope: Scope) -> Text:
    text = _write_or_recall(value, scope)[0]
    if not is_kept(value):
        return text, ATOM
    first, *rest = value.bound
    place = put(first, scope)
    for index in rest:
        place = f"({place})" if rest[0] is not index else place
        extent = put(scope.names.letters[label_of(index)], scope, SIGN)
        place = f"{place} * {extent} + {put(index, scope)}"
    return f"{text}[{place}]", ATOM


def find_row_letters(value: Any, names: Names) -> dict[str, None]:
    """The free letters of a reduction's row: for softmax(e, j) those besides j."""
    free = find_letters(value, names)
    if isinstance(value, Reduction):
        for index in value.bound:
            free.pop(label_of(index), None)
    return free


def _write_or_recall(value: Any, scope: Scope) -> Text:
    name = scope.rows.get(value)
    if name is not None and not scope.inner & set(find_row_letters(value, scope.names)):
        return name, ATOM
    return write_reduction(value, scope), ATOM


def write_reduction(value: Any, scope: Scope) -> str:
    """The text of a reduction over its loops."""
    if not isinstance(value, Reduction):
        return _write_sum(value, scope)
    kind = type(value).__name__
    loops = "".join(
        f" for {scope.names.python[label_of(index)]} in "
        f"range({put(scope.names.letters[label_of(index)], scope)})"
        for index in value.bound
    )
    inside = scope.enter(label_of(index) for index in value.bound)
    body, tail = put(value.body, inside), ""
    if value.condition != sympy.true:
        if kind in _LEFT_OUT:
            body = put(value.body, inside, OR)
            body += f" if {put(value.condition, inside, OR)} else {_LEFT_OUT[kind]}"
        else:
            tail = f" if {put(value.condition, inside, OR)}"
    if not is_kept(value):
        return f"{_WORDS.get(kind, kind)}({body}{loops}{tail})"
    empty = ", empty=0" if kind == "softmax" and scope.empty_row == "zeros" else ""
    return f"{kind}([{body}{loops}{tail}]{empty})"


def _write_sum(value: Any, scope: Scope) -> str:
    body, *bound = value.args
    is_sum = isinstance(value, sympy.Sum)
    letters = [label_of(limits[0]) for limits in bound]
    if any(set(letters) & set(find_letters(part, scope.names)) for k in bound for part in k[1:]):
        bound = bound[::-1]  # SymPy writes the innermost first; it shows where one bounds another
    loops = ""
    for limits in bound:
        letter = label_of(limits[0])
        loops += f" for {scope.names.python[letter]} in {_write_range(limits, scope)}"
        scope = scope.enter([letter])
    body, conditions = peel(body, S.Zero if is_sum else S.One)
    text = put(body, scope)
    tail = f" if {write_all(conditions, scope)}" if conditions else ""
    return f"{'sum' if is_sum else 'prod'}({text}{loops}{tail})"


def peel(body: Any, neutral: Any) -> tuple[Any, list[Any]]:
    """The body of a sum without the conditions where it is 0 (of a product, where it is 1)."""
    if isinstance(body, Piecewise) and len(body.args) == 2:
        (then, condition), (other, rest) = (pair.args for pair in body.args)
        if other == neutral and rest == sympy.true:
            inner, conditions = peel(then, neutral)
            return inner, [condition, *conditions]
    if neutral == 0 and isinstance(body, (Mul, KroneckerDelta)):
        factors, conditions = split_guards(body)
        if conditions:
            return Mul(*factors, evaluate=False) if len(factors) != 1 else factors[0], conditions
    return body, []


def _write_range(limits: Any, scope: Scope) -> str:
    index, *ends = limits
    if not ends:
        return f"range({put(scope.names.letters[label_of(index)], scope)})"
    low, high = ends
    stop = put(high + 1, scope)
    return f"range({stop})" if low == 0 else f"range({put(low, scope)}, {stop})"


def find_rows(value: Any, target: frozenset[str], names: Names) -> dict[Any, None]:
    """The reductions of an equation that get a line of their own, those inside others first."""
    return dict.fromkeys(_find_rows(value, target, names, frozenset(), False))


def _find_rows(
    value: Any, target: frozenset[str], names: Names, inner: frozenset[str], lazy: bool
) -> Iterator[Any]:
    if isinstance(value, (Idx, Symbol, IndexedBase)):
        return
    if isinstance(value, (sympy.Sum, sympy.Product, Reduction)):
        yield from _find_rows_inside(value, target, names, inner, lazy)
        if not lazy and _is_worth(value, target, names, inner):
            yield value
        return
    lazy = lazy or isinstance(value, (Piecewise, sympy.logic.boolalg.Boolean))
    lazy = lazy or (isinstance(value, Mul) and bool(split_guards(value)[1]))
    for part in value.args:
        yield from _find_rows(part, target, names, inner, lazy)


def _find_rows_inside(
    value: Any, target: frozenset[str], names: Names, inner: frozenset[str], lazy: bool
) -> Iterator[Any]:
    if isinstance(value, Reduction):
        bound, lazy = value.bound, lazy or value.condition != sympy.true
    else:
        bound = tuple(limits[0] for limits in value.args[1:])
    inside = inner | {label_of(index) for index in bound}
    for part in value.args:
        if not isinstance(part, (sympy.Tuple, Idx, Symbol)):
            yield from _find_rows(part, target, names, inside, lazy)


def _is_worth(value: Any, target: frozenset[str], names: Names, inner: frozenset[str]) -> bool:
    """Would it be computed more than once, and can it be computed before?"""
    free = frozenset(find_row_letters(value, names))
    if free & inner or not free <= target:
        return False
    if inner:  # the loop around it may have no steps, and then nothing may be read
        return _is_harmless(value, names)
    return free < target


def _is_harmless(value: Any, names: Names) -> bool:
    """Can it not fail, however short the loops are?"""
    if value.has(argmax):
        return False
    places = [place for read in value.atoms(Indexed) for place in read.indices]
    return all(
        isinstance(place, (Idx, Symbol)) and label_of(place) in names.letters for place in places
    )
