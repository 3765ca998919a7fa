"""SymPy expressions as Python expressions over index values, with a function per class of node.

    Sum(f, (j, 0, S - 1))             sum(f for j in range(S))
    Sum(Piecewise((f, c), (0, True))) sum(f for j in range(S) if c)
    cumsum(f, j)                      cumsum([f for j in range(S)])[j]
    Piecewise((a, c), (b, True))      a if c else b
    [c] * f, with [c] 1 or 0          f if c else 0

A bracket among the factors of a product or quotient, at any depth of nested products, guards all
other factors: they are not evaluated where it is false. A Kronecker delta is such a bracket.

A reduction is a function of its free indices on a line of its own, whose values are kept: a row is
evaluated once for all of its entries, and a mean once for all elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any

import sympy
from sympy import Idx, Indexed, IndexedBase, KroneckerDelta, Mul, Piecewise, Pow, S, Symbol
from sympy.core.relational import Relational
from sympy.logic.boolalg import BooleanFalse, BooleanTrue

from derive.ir.functions import ROWS
from derive.judge.loops.names import (
    Names,
    find_indices,
    is_kept,
    label_of,
    name_of_left,
    places_of_left,
    read_names,
)
from derive.notation.formula import Formula
from derive.notation.words import ELEMENTWISE, REDUCTIONS, WORDS, Reduction, argmax

_FUNCTIONS = {kind.__name__: name for name, kind in ELEMENTWISE.items()} | {"ceiling": "ceiling"}


@dataclass(frozen=True)
class Scope:
    """The names available to an expression."""

    names: Names
    empty_row: str = "nan"
    lines: list[str] = field(default_factory=list)  # of the text
    rows: dict[Any, str] = field(default_factory=dict)  # a reduction: its function


def write_shape(name: str, scope: Scope) -> str:
    """The arguments of `tensor(..)` for a result: extents, and the counts of negative places."""
    parts = [write_node(extent, scope) for extent in scope.names.shapes[name]]
    before = scope.names.before.get(name, ())
    return ", ".join([*parts, f"before={before}"] if any(before) else parts)


@singledispatch
def write_node(value: Any, scope: Scope) -> str:
    """The text of an expression, in parentheses unless it is one name, number or call."""
    arguments = ", ".join(write_node(argument, scope) for argument in value.args)
    return f"{_FUNCTIONS[type(value).__name__]}({arguments})"


@write_node.register(Symbol)
@write_node.register(Idx)
def _(value: Any, scope: Scope) -> str:
    return _write_name(label_of(value), scope)


@write_node.register(IndexedBase)
def _(value: Any, scope: Scope) -> str:
    return _write_name(label_of(value), scope)


@write_node.register(Indexed)
def _(value: Any, scope: Scope) -> str:
    places = ", ".join(write_node(place, scope) for place in value.indices)
    name = label_of(value.base)
    return f"{scope.names.python[name]}[{places}]" if places else _write_name(name, scope)


def _write_name(name: str, scope: Scope) -> str:
    """The value of a name; a result without indices is a function, called when it is read."""
    equation = scope.names.defined.get(name)
    is_number = equation is not None and not places_of_left(equation)
    return scope.names.python[name] + ("()" if is_number else "")


@write_node.register(sympy.Rational)
def _(value: Any, scope: Scope) -> str:
    if value.q == 1:
        return str(value) if value >= 0 else f"({value})"
    if 10**8 % value.q == 0 and abs(value.p) < 10**7:  # the decimal is short and exact
        return f"({int(value.p) / int(value.q)!r})"
    return f"({value.p} / {value.q})"


@write_node.register(sympy.Float)
@write_node.register(sympy.core.numbers.NumberSymbol)
def _(value: Any, scope: Scope) -> str:
    known = {sympy.pi: "pi", sympy.E: "exp(1)"}
    return known.get(value) or f"({float(value)!r})"


@write_node.register(sympy.core.numbers.ImaginaryUnit)
def _(value: Any, scope: Scope) -> str:
    return "1j"


@write_node.register(sympy.core.numbers.Infinity)
@write_node.register(sympy.core.numbers.ComplexInfinity)  # SymPy's value of 1/0
@write_node.register(sympy.core.numbers.NegativeInfinity)
@write_node.register(sympy.core.numbers.NaN)
def _(value: Any, scope: Scope) -> str:
    return "(-inf)" if value is S.NegativeInfinity else "nan" if value is S.NaN else "inf"


@write_node.register(sympy.Add)
def _(value: Any, scope: Scope) -> str:
    return f"({' + '.join(write_node(term, scope) for term in value.args)})"


@write_node.register(Mul)
def _(value: Any, scope: Scope) -> str:
    factors, conditions = split_guards(value)
    text = _write_product(factors, scope)
    return f"({text} if {write_all(conditions, scope)} else 0)" if conditions else text


def split_guards(value: Any) -> tuple[list[Any], list[Any]]:
    """The factors of nested products, and the conditions of the brackets among them."""
    factors: list[Any] = []
    conditions: list[Any] = []
    for factor in value.args if isinstance(value, Mul) else (value,):
        if isinstance(factor, Mul):
            inner, guards = split_guards(factor)
            factors += inner
            conditions += guards
        elif (condition := _find_bracket(factor)) is not None:
            conditions.append(condition)
        else:
            factors.append(factor)
    return factors, conditions


def _find_bracket(factor: Any) -> Any:
    """The condition of a factor that is 1 where it holds and else 0; None of other factors."""
    if isinstance(factor, Pow) and factor.exp.is_Number and factor.exp.is_positive:
        return _find_bracket(factor.base)
    if isinstance(factor, KroneckerDelta):
        return sympy.Eq(*factor.args[:2], evaluate=False)
    if isinstance(factor, Piecewise) and len(factor.args) == 2:
        (one, condition), (other, rest) = (pair.args for pair in factor.args)
        if one == 1 and other == 0 and rest == sympy.true:
            return condition
    return None


def _write_product(factors: Sequence[Any], scope: Scope) -> str:
    """The factors joined by *, and divisors by /; the first factor is not a divisor."""
    negative = False
    parts: list[tuple[str, Any]] = []
    for factor in factors:
        if factor.is_Rational:
            negative ^= factor < 0
            above, below = abs(factor.p), factor.q
            parts += [("*", sympy.Integer(above))] if above != 1 else []
            parts += [("/", sympy.Integer(below))] if below != 1 else []
        elif (under := _find_divisor(factor)) is not None:
            parts.append(("/", under))
        else:
            parts.append(("*", factor))
    first = next((k for k, (sign, _) in enumerate(parts) if sign == "*"), None)
    text = write_node(S.One if first is None else parts.pop(first)[1], scope)
    text += "".join(f" {sign} {write_node(factor, scope)}" for sign, factor in parts)
    return f"(-{text})" if negative else f"({text})" if parts else text


def _find_divisor(factor: Any) -> Any:
    """The divisor of a factor with a negative power, else None."""
    if not isinstance(factor, Pow) or not factor.exp.is_Rational or factor.exp >= 0:
        return None
    return factor.base if factor.exp == -1 else Pow(factor.base, -factor.exp, evaluate=False)


@write_node.register(Pow)
def _(value: Any, scope: Scope) -> str:
    base, exponent = value.args
    if base == sympy.E:
        return f"exp({write_node(exponent, scope)})"
    if exponent == S.Half:
        return f"sqrt({write_node(base, scope)})"
    if _find_divisor(value) is not None:
        return _write_product((value,), scope)
    return f"({write_node(base, scope)} ** {write_node(exponent, scope)})"


@write_node.register(sympy.floor)
def _(value: Any, scope: Scope) -> str:
    (inside,) = value.args
    above, below = _find_fraction(inside)
    if is_whole(above, scope.names) and is_whole(below, scope.names):
        if below == 1:
            return write_node(above, scope)
        return f"({write_node(above, scope)} // {write_node(below, scope)})"
    return f"floor({write_node(inside, scope)})"


def _find_fraction(value: Any) -> tuple[Any, Any]:
    """The numerator and denominator; of a sum over a common denominator."""
    if isinstance(value, Mul) and len(value.args) == 2:
        under = _find_divisor(value.args[1])
        if under is not None:
            return value.args[0], under
    above, below = sympy.fraction(sympy.together(value))
    return above, below


def is_whole(value: Any, names: Names) -> bool:
    """Whether a value is an integer by its form."""
    if isinstance(value, (Idx, Symbol, Indexed, IndexedBase)):
        label = label_of(getattr(value, "base", value))
        known = {*names.indices, *names.sizes} if isinstance(value, (Idx, Symbol)) else ()
        return label in known or names.is_whole_tensor(label)
    if isinstance(value, Pow):
        return value.exp.is_Integer and value.exp >= 0 and is_whole(value.base, names)
    if isinstance(value, (sympy.floor, argmax, KroneckerDelta)):
        return True
    if isinstance(value, Reduction):
        kind = WORDS[type(value)]
        is_full = value.condition == S.true and kind in {"max", "min"}
        return (is_full or kind == "cumsum") and is_whole(value.body, names)
    kinds = (sympy.Add, Mul, sympy.Mod, sympy.Abs, sympy.Max, sympy.Min, ELEMENTWISE["clip"])
    if isinstance(value, (*kinds, Piecewise, sympy.Sum, sympy.Product, sympy.sign)):
        return all(is_whole(part, names) for part in _find_parts(value))
    return bool(getattr(value, "is_Integer", False))


def _find_parts(value: Any) -> tuple[Any, ...]:
    """The direct subexpressions whose values enter the value, without conditions and positions."""
    if isinstance(value, (Idx, Symbol, Indexed, KroneckerDelta, argmax)):
        return ()
    if isinstance(value, (sympy.Sum, sympy.Product)):
        return (value.function,)
    if isinstance(value, Reduction):
        return (value.body,)
    return tuple(part.expr if isinstance(value, Piecewise) else part for part in value.args)


def read_whole_names(formula: Formula) -> Names:
    """The roles of all names, with results marked whole if their values are integers."""
    names = read_names(formula)
    values: dict[str, list[Any]] = {}
    for equation in formula.equations:
        parts = values.setdefault(name_of_left(equation), [])
        parts.append(equation.rhs)
    found = {name: _list_parts(each) for name, each in values.items()}
    rows = (Idx, argmax, sympy.Sum, REDUCTIONS["cumsum"])
    for name, parts in (*found.items(), *found.items()):  # twice, for mutual recurrences
        reads = (label_of(getattr(p, "base", p)) for p in parts if not p.args or p.is_Indexed)
        is_made = any(names.is_whole_tensor(read) or read in names.indices for read in reads)
        if is_made or any(isinstance(part, rows) for part in parts):
            names.whole[name] = True
    while wrong := [n for n in names.whole if not _is_exact(values[n], found[n], names)]:
        names.whole = {name: True for name in names.whole if name not in wrong}
    return names


def _list_parts(values: list[Any]) -> list[Any]:
    return values + [part for value in values for part in _list_parts([*_find_parts(value)])]


def _is_exact(values: list[Any], parts: list[Any], names: Names) -> bool:
    """Whether values are integers, with floor and sign of quotients of integers alone."""
    rounded = (p for p in parts if isinstance(p, (sympy.floor, sympy.sign)))
    sides = (side for part in rounded for side in _find_fraction(part.args[0]))
    return all(is_whole(each, names) for each in (*values, *sides))


@write_node.register(sympy.Mod)
def _(value: Any, scope: Scope) -> str:
    return f"({write_node(value.args[0], scope)} % {write_node(value.args[1], scope)})"


@write_node.register(KroneckerDelta)
def _(value: Any, scope: Scope) -> str:
    return f"(1 if {write_all([_find_bracket(value)], scope)} else 0)"


@write_node.register(Piecewise)
def _(value: Any, scope: Scope) -> str:
    text = ""
    for then, condition in (pair.args for pair in value.args):
        if condition == sympy.true:
            return f"({text}{write_node(then, scope)})"
        text += f"{write_node(then, scope)} if {write_node(condition, scope)} else "
    return f"({text}nan)"


@write_node.register(BooleanTrue)
@write_node.register(BooleanFalse)
def _(value: Any, scope: Scope) -> str:
    return str(bool(value))


@write_node.register(Relational)
def _(value: Any, scope: Scope) -> str:
    left, right = (write_node(side, scope) for side in value.args)
    return f"({left} {value.rel_op} {right})"


@write_node.register(sympy.Not)
def _(value: Any, scope: Scope) -> str:
    return f"(not {write_node(value.args[0], scope)})"


@write_node.register(sympy.And)
def _(value: Any, scope: Scope) -> str:
    return f"({write_all(value.args, scope)})"


@write_node.register(sympy.Or)
def _(value: Any, scope: Scope) -> str:
    parts = sorted(value.args, key=lambda part: part.has(Indexed))
    return f"({' or '.join(write_node(part, scope) for part in parts)})"


def write_all(conditions: Iterable[Any], scope: Scope) -> str:
    """The conditions joined by `and`; those without reads come first and guard the others."""
    parts: list[Any] = []
    for condition in conditions:
        parts += condition.args if isinstance(condition, sympy.And) else [condition]
    parts.sort(key=lambda part: part.has(Indexed))
    return " and ".join(write_node(part, scope) for part in parts)


@write_node.register(sympy.Sum)
@write_node.register(sympy.Product)
def _(value: Any, scope: Scope) -> str:
    return _call_row(value, scope)


@write_node.register(Reduction)
def _(value: Any, scope: Scope) -> str:
    text = _call_row(value, scope)
    if not is_kept(value):
        return text
    if ROWS[WORDS[type(value)]].is_matrix:
        return text + "".join(f"[{write_node(index, scope)}]" for index in value.bound)
    first, *rest = value.bound
    place = write_node(first, scope)
    for index in rest:
        extent = write_node(scope.names.indices[label_of(index)], scope)
        place = f"({place} * {extent} + {write_node(index, scope)})"
    return f"{text}[{place}]"


def _call_row(value: Any, scope: Scope) -> str:
    """The call of a reduction's function, which gets a line of the text at its first use."""
    free = find_indices(value, scope.names)
    if isinstance(value, Reduction):  # the row of cumsum(e, j) has no free j
        for index in value.bound:
            free.pop(label_of(index), None)
    given = ", ".join(_write_name(name, scope) for name in free)
    if value not in scope.rows:
        is_row = isinstance(value, Reduction)
        text = _write_row(value, scope) if is_row else _write_sum(value, scope)
        scope.rows[value] = f"row_{len(scope.lines)}"
        scope.lines.append(f"{scope.rows[value]} = keep_(lambda {given}: {text})")
    return f"{scope.rows[value]}({given})"


def _write_row(value: Reduction, scope: Scope) -> str:
    """The text of a reduction over its loops."""
    kind = WORDS[type(value)]
    row = ROWS[kind]
    names = [label_of(index) for index in value.bound]
    loops = [f" for {scope.names.python[n]} in {_write_range((n,), scope)}" for n in names]
    body, tail = write_node(value.body, scope), ""
    if row.is_matrix:
        return f"{kind}([[{body}{loops[1]}]{loops[0]}])"
    if value.condition != sympy.true:
        condition = write_node(value.condition, scope)
        if row.keeps or kind == "argmax":  # the result is indexed by places of the whole row
            left_out = row.left_out.replace("oo", "inf")
            body = f"{body} if {condition} else {left_out}"
        else:
            tail = f" if {condition}"
    text = f"{body}{''.join(loops)}{tail}"
    if not is_kept(value):
        return f"{kind}({text})"
    empty = ", empty=0" if row.normalizes and scope.empty_row == "zeros" else ""
    return f"{kind}([{text}]{empty})"


def _write_sum(value: Any, scope: Scope) -> str:
    body, *bound = value.args
    is_sum = isinstance(value, sympy.Sum)
    indices = [label_of(limits[0]) for limits in bound]
    if any(set(indices) & set(find_indices(part, scope.names)) for k in bound for part in k[1:]):
        bound = bound[::-1]  # SymPy writes the innermost loop first, whose limits need the outer
    loops = ""
    for limits in bound:
        index = label_of(limits[0])
        loops += f" for {scope.names.python[index]} in {_write_range(limits, scope)}"
    body, conditions = split_conditions(body, S.Zero if is_sum else S.One)
    text = write_node(body, scope)
    tail = f" if {write_all(conditions, scope)}" if conditions else ""
    return f"{'sum' if is_sum else 'prod'}({text}{loops}{tail})"


def split_conditions(body: Any, neutral: Any) -> tuple[Any, list[Any]]:
    """The body of a sum or product without its guards, and their conditions.

    A guard is a condition where the body has a value, with the neutral number elsewhere.
    """
    if isinstance(body, Piecewise) and len(body.args) == 2:
        (then, condition), (other, rest) = (pair.args for pair in body.args)
        if other == neutral and rest == sympy.true:
            inner, conditions = split_conditions(then, neutral)
            return inner, [condition, *conditions]
    if neutral == 0 and isinstance(body, (Mul, KroneckerDelta)):
        factors, conditions = split_guards(body)
        if conditions:
            return Mul(*factors, evaluate=False) if len(factors) != 1 else factors[0], conditions
    return body, []


def _write_range(limits: Any, scope: Scope) -> str:
    index, *ends = limits
    if not ends:
        return f"range({write_node(scope.names.indices[label_of(index)], scope)})"
    low, high = ends
    stop = write_node(high + 1, scope)
    return f"range({stop})" if low == 0 else f"range({write_node(low, scope)}, {stop})"
