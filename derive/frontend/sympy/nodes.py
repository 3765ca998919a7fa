"""The translation of each class of SymPy nodes into the index language.

    Indexed               Access                 Piecewise        Where, nested
    Idx, integer Symbol   Index                  KroneckerDelta   Where(i == j, 1, 0)
    Symbol                Size or Scalar         floor(i/r)       floordiv(i, r)
    Sum, Product          Reduce                 cumsum(e, i)     Along
    Sum with (j, 0, i)    its condition j <= i   -oo              Infinity(negative)

`Context` is the state of one formula: the roles of names, the tensors, the indices met so far, and
whether the order of arguments is that of a text or SymPy's own.

SymPy's own order is replaced by a readable one. A product is sorted as number, sizes and scalars,
tensors, sums, indices, brackets, divisors; a sum as tensors, indices, sizes, numbers. Tensors are
sorted by declaration, those that the formula defines before its arguments.

Limits of a sum other than the range of its index become its condition. A sum of `where(c, f, 0)` is
the sum of f over the entries where c holds; likewise a product of `where(c, f, 1)`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import singledispatch
from typing import Any, TypeAlias

import sympy
from sympy.core.relational import Relational

from derive.analysis.facts import is_never_negative
from derive.errors import refuse
from derive.frontend.names import Extents
from derive.ir import functions, pieces, polynomial, text
from derive.ir import nodes as ir
from derive.ir.walk import find_accesses
from derive.ir.walk import walk as walk_nodes
from derive.notation.words import ELEMENTWISE, WORDS, Reduction

Order: TypeAlias = Callable[[str], tuple[bool, int, str]]
Limits: TypeAlias = tuple[ir.Index, ir.Expr, ir.Expr]

_LARGEST_DIVISOR = 1000  # a fraction with a larger divisor is shown as a decimal

# ranks of factors in a product; a sum or a product as a factor has the next rank
_NUMBER, _BARE, _SIZE, _TENSOR, _SUM, _INDEX, _BRACKET, _DIVISOR = 0, 1, 2, 4, 6, 8, 10, 12


def to_readable_sum(terms: tuple[ir.Expr, ...], order: Order) -> tuple[ir.Expr, ...]:
    """Return the terms in readable order; the first has no minus sign, if any term has none."""
    parts = sorted(terms, key=lambda part: _rank_part(part, _find_kind(part), order))
    first = next((part for part in parts if not is_negative(part)), None)
    if first is not None and is_negative(parts[0]):
        parts.remove(first)
        parts.insert(0, first)
    return tuple(parts)


def is_negative(expr: ir.Expr) -> bool:
    """Whether the expression has a minus sign in the notation."""
    match expr:
        case ir.Number(value):
            return value < 0
        case ir.Mul((ir.Number(value), *_)):
            return value < 0
    return False


def _split_fraction(number: ir.Number) -> list[ir.Expr]:
    value = number.value
    if value.denominator == 1:
        return [number]
    sign: list[ir.Expr] = [ir.MINUS_ONE] if value < 0 else []
    if value.denominator > _LARGEST_DIVISOR:
        return [*sign, ir.Number(abs(value))]
    above, below = Fraction(abs(value.numerator)), Fraction(value.denominator)
    over = [ir.Number(above)] if above != 1 else []
    return [*sign, *over, ir.Pow(ir.Number(below), ir.MINUS_ONE)]


def _rank_part(part: ir.Expr, kind: int, order: Order) -> tuple[object, ...]:
    """Return the sort key of a term or factor: kind, first tensor, number of indices and sizes."""
    accesses = find_accesses(part)
    first = order(accesses[0].tensor.name) if accesses else (True, 1 << 30, "")
    inside = () if accesses else walk_nodes(part)
    degree = sum(isinstance(each, (ir.Index, ir.Size)) for each in inside)
    is_atom = not isinstance(part, (ir.Add, ir.Mul, ir.Reduce))
    return (kind, *first, -degree, is_negative(part), not is_atom, text.to_text(part))


def _find_kind(part: ir.Expr) -> int:
    """Return 0 for a term with tensors, else 1 with indices, 2 sizes, 3 scalars, 4 numbers only."""
    kinds, inside = (ir.Access, ir.Index, ir.Size, ir.Scalar), tuple(walk_nodes(part))
    return next((k for k, cls in enumerate(kinds) if any(isinstance(e, cls) for e in inside)), 4)


def _find_rank(part: ir.Expr, bare: bool) -> int:
    """Return the rank of a factor in a product, such as _TENSOR; `bare`: an index comes early."""
    match part:
        case ir.Number(value):
            return _NUMBER - (value < 0)
        case ir.Pow(_, ir.Number(value)) if value < 0:
            return _DIVISOR
        case ir.Where(_, then, other) if then is ir.ONE and other is ir.ZERO:
            return _BRACKET
        case ir.Reduce():
            return _SUM
        case ir.Index() if bare:
            return _BARE
    is_compound = isinstance(part, (ir.Add, ir.Mul))
    return (_TENSOR, _INDEX, _SIZE, _SIZE, _SIZE)[_find_kind(part)] + is_compound


def to_reduce(kind: str, limits: Iterable[Limits], body: ir.Expr, *, is_literal: bool) -> ir.Reduce:
    """Return a sum or product over (index, low, high); the limits become its condition.

    `is_literal`: DeriveError for limits outside the range of the index.
    """
    bound, conditions = [], []
    for index, low, high in limits:
        if is_literal:
            _check_limits(index, low, high)
        bound.append(index)
        conditions += _find_conditions(index, low, high)
    other = ir.ZERO if kind == "sum" else ir.ONE
    match body:
        case ir.Where(condition, then, last) if last is other and then is not ir.ONE:
            return ir.Reduce(kind, tuple(bound), ir.all_of(*conditions, condition), then)
    return ir.Reduce(kind, tuple(bound), ir.all_of(*conditions), body)


def _find_conditions(index: ir.Index, low: ir.Expr, high: ir.Expr) -> list[ir.Expr]:
    """Return the conditions `low <= index`, `index <= high` that its range does not imply."""
    gap = polynomial.Polynomial.of(index.extent) - polynomial.Polynomial.of(high)
    found: list[ir.Expr] = []
    if low is not ir.ZERO:
        found.append(ir.Compare("<=", low, index))
    match high:
        case _ if gap.constant == 1:
            pass
        case ir.Add((*terms, last)) if last is ir.MINUS_ONE:  # `j <= e - 1` as `j < e`
            end = ir.sum_of(terms)
            found.append(ir.Compare("<", index, end))
        case _:
            found.append(ir.Compare("<=", index, high))
    return found


def _check_limits(index: ir.Index, low: ir.Expr, high: ir.Expr) -> None:
    """Raise DeriveError for limits outside the range of the index, which SymPy allows."""
    last = polynomial.Polynomial.of(index.extent) - polynomial.Polynomial.of(1)
    starts = low is ir.ZERO or is_never_negative(polynomial.Polynomial.of(low))
    if starts and is_never_negative(last - polynomial.Polynomial.of(high)):
        return
    raise refuse(
        "limits-outside",
        f"the limits of {index.name}, {text.to_text(low)} to {text.to_text(high)}, "
        "may leave its range",
        facts=[f"{index.name} runs from 0 to {text.to_text(last.to_expr())}"],
        help="places count from 0; limits that depend on an index go into a condition, "
        f"Sum(Piecewise((x, {index.name} <= ...), (0, True)), {index.name})"
        if not isinstance(high, ir.Number)
        else "places count from 0",
    )


_FUNCTIONS = {kind: name for name, kind in ELEMENTWISE.items()}
_TURNED = {">": "<", ">=": "<="}


@dataclass
class Context:
    """The state of one formula's translation; insertion order is the order of appearance."""

    is_ordered: bool  # whether arguments keep their order
    # name: the IndexedBase, with a shape if any has one
    bases: dict[str, Any] = field(default_factory=dict)
    defined: dict[str, Any] = field(default_factory=dict)  # name: its first equation
    extents: dict[str, list[Any]] = field(default_factory=dict)  # extents of each index in SymPy
    plain: dict[str, list[tuple[str, int]]] = field(default_factory=dict)  # index: (tensor, place)
    sizes: dict[str, None] = field(default_factory=dict)
    scalars: dict[str, Any] = field(default_factory=dict)  # name: default
    domains: dict[str, Any] = field(default_factory=dict)  # scalar: lower, upper, strict
    resolved: Extents = field(default_factory=lambda: Extents({}, {}, {}, ()))
    tensors: dict[str, ir.Tensor] = field(default_factory=dict)
    indices: dict[str, list[ir.Index]] = field(default_factory=dict)
    complex: set[str] = field(default_factory=set)  # complex tensors

    def sort_key(self, name: str) -> tuple[bool, int, str]:
        """Return the sort key of a tensor in a readable line: results first, then as declared."""
        declared = getattr(self.bases.get(name), "declared", None)
        first_seen = list(self.bases).index(name) if name in self.bases else 0
        return (name not in self.defined, first_seen if declared is None else declared, name)


def find_label(value: Any) -> str:
    """Return the name of a Symbol, an Idx or an IndexedBase."""
    label = getattr(value, "label", value)
    return str(getattr(label, "name", label))


def find_extent(index: Any) -> Any:
    """Return the extent of an Idx, or DeriveError if not from 0; None if open, and for a Symbol."""
    if not isinstance(index, sympy.Idx) or index.upper is None:
        return None
    if index.lower != 0:
        name = find_label(index)
        says = f"index {name} starts at {index.lower}; places count from 0"
        raise refuse("index-start", says, help=f'write Idx("{name}", extent)')
    return index.upper + 1


def walk_sympy(value: Any) -> Iterator[Any]:
    """Yield the SymPy expression and its descendants, except inside tensors and index ranges."""
    yield value
    if not isinstance(value, (sympy.IndexedBase, sympy.Idx)):
        for child in getattr(value, "args", ()):
            yield from walk_sympy(child)


@singledispatch
def to_node(value: Any, context: Context) -> ir.Expr:
    """Return the expression of a SymPy object; DeriveError if it has no meaning."""
    raise refuse(
        "expression-unknown",
        f"{type(value).__name__} has no meaning in the notation: {value}",
        help="write it with sums, products, conditions and elementwise functions",
    )


def to_extent(value: Any, context: Context) -> ir.Expr:
    """Return the expression of an extent; terms ordered by SymPy get descending degrees."""
    made = to_node(value, context)
    return made if context.is_ordered else polynomial.Polynomial.of(made).to_expr()


def find_index(value: Any, context: Context) -> ir.Index:
    """Return the index node of an Idx or integer Symbol; one node for equal names and extents."""
    name = find_label(value)
    known = context.indices.setdefault(name, [])
    extent = find_extent(value)
    if extent is None:
        extent = next(iter(context.extents.get(name, ())), None)
    if extent is None:
        advice = f'give it an extent, {name} = Idx("{name}", S)'
        says = f"the extent of index {name} is unknown"
        raise refuse("extent-unknown", says, help=advice)
    # extents of the index's plain places in known tensors
    places = (each for each in context.plain.get(name, ()) if each[0] in context.tensors)
    shapes = ((context.tensors[tensor].shape, number) for tensor, number in places)
    written = [shape[number] for shape, number in shapes if number < len(shape)]
    whole = polynomial.Polynomial.of(to_node(extent, context)).to_expr()
    for index in known:
        if polynomial.is_same_extent(index.extent, whole):
            return index
    # spelled as in the first such tensor if equal
    made = next((each for each in written if polynomial.is_same_extent(each, whole)), whole)
    known.append(ir.Index(name, made))
    return known[-1]


def to_nodes(values: Iterable[Any], context: Context) -> tuple[ir.Expr, ...]:
    """Return the expressions of several SymPy objects."""
    return tuple(to_node(value, context) for value in values)


def _read_float(value: Any, context: Context) -> ir.Expr:
    double = 53  # bits of a double, whose shortest decimal is exact enough
    return pieces.to_exact(Fraction(repr(float(value)) if value._prec == double else str(value)))


_CONSTANTS: dict[Any, ir.Expr] = {  # singletons of their classes
    sympy.oo: ir.Infinity(False),
    -sympy.oo: ir.MINUS_INFINITY,
    sympy.pi: ir.Call("pi", ()),
    sympy.I: ir.Call("I", ()),
    sympy.E: ir.Call("exp", (ir.ONE,)),
    sympy.true: ir.TRUE,
    sympy.false: ir.FALSE,
}
_PLAIN: dict[Any, Callable[[Any, Context], ir.Expr]] = {
    sympy.Rational: lambda value, _: pieces.to_exact(Fraction(int(value.p), int(value.q))),
    sympy.Float: _read_float,
    sympy.Idx: find_index,
    sympy.IndexedBase: lambda value, context: ir.Access(context.tensors[find_label(value)], ()),
    sympy.Indexed: lambda value, context: ir.Access(
        context.tensors[find_label(value.base)], to_nodes(value.indices, context)
    ),
    sympy.KroneckerDelta: lambda value, context: ir.Where(
        ir.Compare("==", *to_nodes(value.args[:2], context)), ir.ONE, ir.ZERO
    ),
    sympy.Not: lambda value, context: ir.Not(*to_nodes(value.args, context)),
}
_PLAIN |= {type(each): lambda value, _: _CONSTANTS[value] for each in _CONSTANTS}
for _kind, _act in _PLAIN.items():
    to_node.register(_kind, _act)


@to_node.register(type(sympy.zoo))
@to_node.register(type(sympy.nan))
def _(value: Any, context: Context) -> ir.Expr:
    raise refuse(
        "number-unusable",
        f"SymPy has worked out a part of the formula to {value}",
        help="look for a division by zero",
    )


@to_node.register(sympy.Symbol)
def _(value: Any, context: Context) -> ir.Expr:
    name = value.name
    if name in context.extents:
        return find_index(value, context)
    if name in context.sizes:
        return ir.Size(name)
    if name in context.tensors:
        return ir.Access(context.tensors[name], ())
    return ir.Scalar(name, *context.domains.get(name, ()))


@to_node.register(sympy.Add)
def _(value: Any, context: Context) -> ir.Expr:
    terms = to_nodes(value.args, context)
    return ir.Add(terms if context.is_ordered else to_readable_sum(terms, context.sort_key))


@to_node.register(sympy.Mul)
def _(value: Any, context: Context) -> ir.Expr:
    factors = to_nodes(value.args, context)
    if factors[0] is ir.MINUS_ONE and len(factors) == 2 and factors[1] is ir.Infinity(False):
        return ir.MINUS_INFINITY
    while isinstance(factors[0], ir.Mul):
        factors = (*factors[0].factors, *factors[1:])
    if not context.is_ordered:  # split fractions into a number and a divisor
        parts: list[ir.Expr] = []
        for factor in factors:
            parts += _split_fraction(factor) if isinstance(factor, ir.Number) else [factor]
        bare = not any(find_accesses(part) for part in parts)
        ranks = {part: _find_rank(part, bare) for part in parts}
        factors = tuple(
            sorted(parts, key=lambda part: _rank_part(part, ranks[part], context.sort_key))
        )
    return ir.Mul(factors)


@to_node.register(sympy.Pow)
def _(value: Any, context: Context) -> ir.Expr:
    base, exponent = to_nodes(value.args, context)
    if isinstance(exponent, ir.Number) and exponent.value < 0 and exponent is not ir.MINUS_ONE:
        return ir.Pow(ir.Pow(base, ir.Number(-exponent.value)), ir.MINUS_ONE)
    return ir.Pow(base, exponent)


@to_node.register(sympy.Function)
@to_node.register(sympy.Max)
@to_node.register(sympy.Min)
def _(value: Any, context: Context) -> ir.Expr:
    name = _FUNCTIONS.get(value.func, str(value.func.__name__))
    args = value.args
    if name in {"max", "min"} and not context.is_ordered:  # numbers last
        args = tuple(sorted(args, key=lambda arg: bool(arg.is_number)))
    return ir.Call(name, to_nodes(args, context))


@to_node.register(sympy.floor)
def _(value: Any, context: Context) -> ir.Expr:
    """Return `i // r` for a floor of a quotient of integers, else a call of floor."""
    inside = value.args[0]
    if all(_fits_floordiv(part, context) for part in walk_sympy(inside)):
        over, under = _split_quotient(inside)
        if under != 1:
            return ir.Call("floordiv", (to_node(over, context), to_node(under, context)))
        if inside.has(sympy.Pow):  # N // 1
            return to_node(over, context)
    return ir.Call("floor", (to_node(inside, context),))


def _split_quotient(value: Any) -> tuple[Any, Any]:
    """Return (numerator, denominator); a quotient that is written as one is not simplified."""
    last = value.args[-1] if isinstance(value, sympy.Mul) else None
    if isinstance(last, sympy.Pow) and last.exp == -1 and last.base != 1:
        over = value.args[:-1]
        return (over[0] if len(over) == 1 else sympy.Mul(*over, evaluate=False)), last.base
    above, below = sympy.together(value).as_numer_denom()
    return above, below


def _fits_floordiv(value: Any, context: Context) -> bool:
    """Whether a floor over this node, as part of its argument, is a quotient of integers."""
    if isinstance(value, sympy.Indexed):
        return context.tensors[find_label(value.base)].kind == "int"
    if isinstance(value, sympy.Symbol):
        return value.name in context.extents or value.name in context.sizes
    if isinstance(value, sympy.Pow):
        return bool(value.exp.is_Integer)
    plain = sympy.Idx | sympy.IndexedBase | sympy.Rational
    return isinstance(value, plain | sympy.Add | sympy.Mul | sympy.floor | sympy.Mod)


@to_node.register(sympy.Piecewise)
def _(value: Any, context: Context) -> ir.Expr:
    *pairs, (last, otherwise) = [(pair.args[0], pair.args[1]) for pair in value.args]
    if otherwise != sympy.true:
        raise refuse(
            "piecewise-open",
            f"Piecewise says nothing where none of its conditions holds: {value}",
            help="close it with (value, True)",
        )
    made = to_node(last, context)
    for then, condition in reversed(pairs):
        made = ir.Where(to_node(condition, context), to_node(then, context), made)
    return made


@to_node.register(Relational)
def _(value: Any, context: Context) -> ir.Expr:
    left, right = to_nodes(value.args, context)
    if context.is_ordered or isinstance(right, ir.Number) or value.rel_op not in _TURNED:
        return ir.Compare(value.rel_op, left, right)
    # SymPy may have turned `j <= i` into `i >= j`
    return ir.Compare(_TURNED[value.rel_op], right, left)


@to_node.register(sympy.And)
@to_node.register(sympy.Or)
def _(value: Any, context: Context) -> ir.Expr:
    parts = to_nodes(value.args, context)
    if not context.is_ordered:
        parts = tuple(sorted(parts, key=lambda part: _rank_part(part, 0, context.sort_key)))
        match parts:  # a chain `0 <= t < T` stays together
            case (ir.Compare(_, left, _), ir.Compare(_, _, right)) if left is right:
                parts = parts[::-1]
    return ir.all_of(*parts) if isinstance(value, sympy.And) else ir.any_of(*parts)


@to_node.register(sympy.Sum)
@to_node.register(sympy.Product)
def _(value: Any, context: Context) -> ir.Expr:
    limits = []
    for bound, low, high in value.args[1:]:
        index = find_index(bound, context)
        limits.append((index, to_node(low, context), to_node(high, context)))
    kind = "sum" if isinstance(value, sympy.Sum) else "prod"
    body = to_node(value.args[0], context)
    return to_reduce(kind, limits, body, is_literal=not context.is_ordered)


@to_node.register(Reduction)
def _(value: Any, context: Context) -> ir.Expr:
    kind = WORDS[value.func]
    bound = tuple(find_index(index, context) for index in value.bound)
    if not bound:
        raise refuse(
            "index-wanted", f"{kind} names no index: {value}", help=f"write {kind}(expression, j)"
        )
    body, condition = to_node(value.body, context), to_node(value.condition, context)
    keeps = functions.ROWS[kind].keeps
    if functions.ROWS[kind].is_matrix and (len(bound) != 2 or bound[0] is bound[1]):
        raise refuse(
            "matrix-indices",
            f"{kind} names the rows and the columns of one matrix: {value}",
            help=f"write {kind}(A[i, j], i, j)",
        )
    if len(bound) > 1 and (keeps or kind == "argmax") and not functions.ROWS[kind].is_matrix:
        raise refuse(
            "not-yet",
            f"{kind} runs along one index, not {len(bound)}: {value}",
            help=f"name one index; exp(e) / Sum(exp(e), i, j) is the {kind} over both"
            if functions.ROWS[kind].normalizes
            else "name one index",
        )
    if keeps:
        return ir.Along(kind, bound[0], condition, body, *bound[1:])
    return ir.Reduce(kind, bound, condition, body)
