"""Offsets: differences and sums of two indices, such as i - j, as the places of a table.

To test that an expression depends on i and j only through i - j, i is replaced by u + j: j must be
gone then.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TypeAlias

from derive.analysis.extents import is_implied_by_facts
from derive.analysis.facts import find_facts, find_range, is_integer, is_never_negative
from derive.ir import nodes as ir
from derive.ir.polynomial import ONE, Polynomial, add_all
from derive.ir.walk import find_free, rewrite_bottom_up, substitute, walk
from derive.rewrite.rules.products import is_negative

Offset: TypeAlias = tuple[tuple[ir.Index, int], ...]  # two indices, each with its sign


def find_offsets(expr: ir.Expr) -> tuple[Offset, ...]:
    """The offsets in an expression, each once."""
    sums = (part for part in walk(expr) if isinstance(part, ir.Add) and len(find_free(part)) > 1)
    return tuple(dict.fromkeys(each for part in sums for each in _read_offsets(part)))


def _read_offsets(value: ir.Add) -> Iterator[Offset]:
    """The pairs of indices of a sum whose coefficients differ in sign at most."""
    whole, alike = Polynomial.of(value), dict[Polynomial, dict[ir.Index, Fraction]]()
    for index in (atom for atom in whole.atoms if isinstance(atom, ir.Index)):
        halves = whole.split_linear(index)
        if halves is not None and not any(isinstance(a, ir.Index) for a in halves[0].atoms):
            lead = next(iter(halves[0].terms.values()))
            alike.setdefault(halves[0] * Polynomial.of(1 / lead), {})[index] = lead
    for slopes in alike.values():
        if len(slopes) == 2 and len({*map(abs, slopes.values())}) == 1:
            (one, first), (other, second) = slopes.items()
            yield (one, 1), (other, int(second / first))


def to_polynomial(offset: Offset) -> Polynomial:
    """The offset's value."""
    return add_all(Polynomial.of(index) * Polynomial.of(sign) for index, sign in offset)


def _order_terms(value: Polynomial) -> ir.Expr:
    """The expression with its terms in the usual order: i - j + N - 1."""
    plain = value.to_expr()
    if not isinstance(plain, ir.Add):
        return plain
    rank = {t: (not find_free(t), isinstance(t, ir.Number), is_negative(t)) for t in plain.terms}
    return ir.Add(tuple(sorted(plain.terms, key=lambda term: rank[term])))


def depend_on(expr: ir.Expr, offset: Offset, value: Polynomial) -> ir.Expr | None:
    """The expression for a value of the offset; None if it depends on the indices otherwise."""
    (first, step), (second, _) = offset
    indices = {first, second}
    if not indices <= {*find_free(expr)}:
        return None
    rest = value - to_polynomial(offset) + Polynomial.of(first) * Polynomial.of(step)
    place = _order_terms(rest if step == 1 else -rest)
    try:
        put_in = substitute(expr, {first: place})
    except ValueError:  # a row along the index
        return None

    def replace_offset(here: ir.Expr) -> ir.Expr:
        if not indices & {*find_free(here)}:
            return here
        match here:
            case ir.Add() | ir.Mul():
                plain = _order_terms(Polynomial.of(here))
                return here if indices & {*find_free(plain)} else plain
            case ir.Compare(relation, left, right):
                sides = Polynomial.of(left), Polynomial.of(right)
                gap = _order_terms(sides[0] - sides[1])
                if all(map(is_integer, sides)) and not indices & {*find_free(gap)}:
                    return ir.Compare(relation, gap, ir.ZERO)
        return here

    new = rewrite_bottom_up(put_in, replace_offset)
    return None if indices & {*find_free(new)} else new


def find_run(
    value: Polynomial, guards: Sequence[ir.Expr]
) -> tuple[Polynomial | None, Polynomial | None, set[ir.Expr]]:
    """The least value of an offset, the number of values, and the guards that these imply."""
    whole, held = find_range(value), set[ir.Expr]()
    low, high = whole.low, whole.high
    if low is None or high is None:
        return None, None, held
    for guard in guards:
        is_held = is_implied_by_facts(guard)
        for fact in find_facts(guard):
            above, below = value - fact, fact + value
            is_tight = False
            if not _varies(above):
                is_tight = is_never_negative(above - low)
                low = above if is_tight else low
            elif not _varies(below):
                is_tight = is_never_negative(high - below)
                high = below if is_tight else high
            is_held = is_held and is_tight
        held |= {guard} if is_held else set()
    return low, high - low + ONE, held


def _varies(value: Polynomial) -> bool:
    """Whether the polynomial depends on an index or a tensor."""
    parts = (part for atom in value.atoms for part in walk(atom))
    return any(isinstance(part, (ir.Index, ir.Access)) for part in parts)
