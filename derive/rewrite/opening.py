"""Inlining of equations: the parts of normalized rows, and wide sums that are contracted.

A normalized row may have named parts:

    e[i,j] = exp(s[i,j])     p[i,j] = e[i,j] / sum[k](e[i,k])

An exponential overflows where such a row does not. Equations with exponentials, logarithms or the
maximum of a row are inlined if the rules then find a normalized row or a logsumexp, and the system
has fewer exponentials, logarithms and reductions than before.

A wide sum may be named:

    keys[i,j,d] = k[j,d] + a[i,j,d]     s[i,j] = sum[d](q[i,d] * keys[i,j,d])

A sum with more indices than any of its terms is built only to be contracted. Inside the
contraction it can be distributed, and is never built.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import combinations

from derive.ir import nodes as ir
from derive.ir.functions import ROWS
from derive.ir.walk import (
    find_accesses,
    find_brackets,
    find_free,
    is_reading,
    rewrite_top_down,
    walk,
)
from derive.rewrite.rule import find_value, put_value
from derive.rewrite.rules.products import is_negative

Equations = tuple[ir.Equation, ...]
Counts = tuple[int, int, int, int]
MOST = 5  # names read by one equation of which every combination is tried
BARE = ("exp", "log")


def open_rows(
    equations: Equations, results: Sequence[ir.Tensor], rewrite: Callable[[ir.Expr], ir.Expr]
) -> Equations:
    """The equations with the parts of each normalized row inlined."""
    known = cache(rewrite)
    count = cache(lambda value: _count_rows(known(value)))

    def find_better(equations: Equations) -> Iterator[Equations]:
        """Yield the equations with some inlined, for each way that gives a normalized row."""
        parts = _find_parts(equations, results)
        reached = (_find_read_parts(reader, parts) for reader in equations if parts)
        chosen = (some for r in reached for k in range(len(r)) for some in combinations(r, k + 1))
        for some in dict.fromkeys(chosen):
            inlined = _inline_parts(equations, some, known)
            if inlined is not None and _is_better(inlined, equations, count):
                yield inlined

    found: Equations | None = equations
    while found is not None:
        equations, found = found, next(find_better(found), None)
    return equations


def _find_parts(equations: Equations, results: Sequence[ir.Tensor]) -> Equations:
    """The equations that may be part of a normalized row and are no results."""
    parts: dict[ir.Equation, None] = {}
    for equation in equations:
        indices = equation.target.places
        plain = all(isinstance(place, ir.Index) for place in indices)
        known = any(is_reading(equation.value, part.target.tensor) for part in parts)
        bare, rows, *_ = _count_rows(equation.value)
        if plain and equation.target.tensor not in results and (known or bare or rows):
            parts[equation] = None
    return tuple(parts)


def _find_read_parts(reader: ir.Equation, parts: Equations) -> Equations:
    """The parts that an equation reads, directly or through other parts, in order."""
    others = [part for part in parts if part is not reader]
    reached: dict[ir.Equation, None] = {}
    waiting = [reader]
    while waiting and len(reached) < MOST:
        here = waiting.pop(0)
        new = [p for p in others if p not in reached and is_reading(here.value, p.target.tensor)]
        reached |= dict.fromkeys(new)
        waiting += new
    return tuple(part for part in others if part in reached)


def _inline_parts(
    equations: Equations, chosen: Sequence[ir.Equation], rewrite: Callable[[ir.Expr], ir.Expr]
) -> Equations | None:
    """The equations with some inlined; None if one has a bracket or is read at a computed place.

    A bracket guards the factors of its own product alone, so it is not inlined into another.
    """
    found = list(equations)
    for each in chosen:
        equation = next(e for e in found if e.target is each.target)
        equation = ir.Equation(equation.target, rewrite(equation.value))
        if find_brackets(equation.value):
            return None
        found = [
            ir.Equation(e.target, put_value(e.value, equation))
            for e in found
            if e.target is not equation.target
        ]
        if any(is_reading(e.value, equation.target.tensor) for e in found):
            return None
    return tuple(found)


def _is_better(
    inlined: Equations, equations: Equations, count: Callable[[ir.Expr], Counts]
) -> bool:
    """Whether inlining gives more normalized rows in fewer passes, or without more rows."""
    more = [count(each.value) for each in inlined]
    less = [count(each.value) for each in equations]
    before, after = (map(sum, zip(*each, strict=True)) for each in (less, more))
    bare, rows, sums, soft = (new - old for new, old in zip(after, before, strict=True))
    passes: int = bare + rows + sums
    gains = bare < 0 or rows < 0 or soft > 0
    return gains and max(bare, rows + sums, passes) <= 0 and (passes < 0 or rows <= 0)


def _count_rows(value: ir.Expr) -> Counts:
    """The numbers of (exp and log; softmax, max and logsumexp; other reductions; softmax)."""
    parts = list(walk(value))
    bare = sum(isinstance(part, ir.Call) and part.function in BARE for part in parts)
    soft = sum(isinstance(part, ir.Along) and ROWS[part.kind].ignores_shift for part in parts)
    reductions = [part.kind for part in parts if isinstance(part, ir.Reduce)]
    rows = sum(kind in {"max", "logsumexp"} for kind in reductions)
    return bare, soft + rows, len(reductions) - rows, soft


def open_wide_sums(equations: Equations, results: Sequence[ir.Tensor]) -> Equations:
    """The equations with every wide sum inlined if one contraction reads it, or it has a delta."""
    found = list(equations)
    for tensor in [each.target.tensor for each in equations]:
        equation = next(each for each in found if each.target.tensor is tensor)
        if tensor in results or not _is_wide_sum(equation):
            continue
        reads = [e for e in found for a in find_accesses(e.value) if a.tensor is tensor]
        if len(reads) != 1 and not any(map(_is_delta, ir.split_sum(equation.value))):
            continue
        inlined = {each: _contract(each.value, equation) for each in reads}
        if not any(is_reading(new, tensor) for new in inlined.values()):
            found = [ir.Equation(e.target, inlined.get(e, e.value)) for e in found]
            found = [each for each in found if each.target.tensor is not tensor]
    return tuple(found)


def _is_delta(term: ir.Expr) -> bool:
    """Whether the term is 1 where two indices are equal, else 0."""
    match term:
        case ir.Where(ir.Compare("==", ir.Index(_, one), ir.Index(_, other)), ir.ONE, ir.ZERO):
            return one is other
    return False


def _is_wide_sum(equation: ir.Equation) -> bool:
    value, places = equation.value, equation.target.places
    if not isinstance(value, ir.Add) or not all(isinstance(place, ir.Index) for place in places):
        return False
    rest = [term for term in value.terms if not _is_delta(term)]
    narrow = len(rest) < len(value.terms) or all(len(find_free(t)) < len(places) for t in rest)
    return narrow and not any(map(is_negative, rest))


def _contract(value: ir.Expr, equation: ir.Equation) -> ir.Expr:
    """The value with the sum inlined where it is a factor of a contraction."""

    def act(here: ir.Expr) -> ir.Expr:
        if not isinstance(here, ir.Reduce) or here.kind != "sum":
            return here
        factors = ir.split_product(here.body)
        put = tuple(find_value(factor, equation) or factor for factor in factors)
        return ir.Reduce(here.kind, here.bound, here.condition, ir.product_of(put))

    return rewrite_top_down(value, act)
