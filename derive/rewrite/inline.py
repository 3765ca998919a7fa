"""Parts of a softmax that have names of their own, put where they are read.

    e[i,j] = exp(s[i,j])     p[i,j] = e[i,j] / sum[k](e[i,k])

An exponential overflows where a softmax does not. Equations that hold exponentials, logarithms or
the largest of a row are put where they are read, if there the rules then find a softmax, or a
logsumexp: when all is done with fewer exponentials, logarithms and reductions than before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from derive.ir import nodes as ir
from derive.ir.polynomial import is_same_extent
from derive.ir.walk import find_accesses, find_brackets, find_free, map_children, substitute, walk
from derive.rewrite.rules.products import is_bracket, is_negative

Equations = tuple[ir.Equation, ...]
MOST = 5  # names that one equation reads, and that are tried in every way
BARE = ("exp", "log")
ROWS = ("softmax", "log_softmax")


def open_rows(
    equations: Equations, results: Sequence[ir.Tensor], settle: Callable[[ir.Expr], ir.Expr]
) -> Equations:
    """The equations with the parts of each softmax put where they are read."""
    found: Equations | None = equations
    while found is not None:
        equations = found
        found = next(_find_better(equations, results, settle), None)
    return equations


def _find_better(
    equations: Equations, results: Sequence[ir.Tensor], settle: Callable[[ir.Expr], ir.Expr]
) -> Iterator[Equations]:
    """The equations with some of them opened, where that makes a softmax of them."""
    parts = _find_parts(equations, results)
    tried: dict[tuple[ir.Equation, ...], None] = {}
    for reader in equations if parts else ():
        near = _find_near(reader, parts)
        for count in range(1, len(near) + 1):
            for chosen in combinations(near, count):
                opened = None if chosen in tried else _open(equations, chosen, settle)
                tried[chosen] = None
                if opened is not None and _is_better(opened, equations, settle):
                    yield opened


def _find_parts(equations: Equations, results: Sequence[ir.Tensor]) -> Equations:
    """The equations that may be part of a softmax, and that nothing returns."""
    parts: dict[ir.Equation, None] = {}
    for equation in equations:
        indices = equation.target.places
        plain = all(isinstance(place, ir.Index) for place in indices)
        known = any(_reads(equation.value, part) for part in parts)
        if plain and equation.target.tensor not in results and (known or _holds(equation.value)):
            parts[equation] = None
    return tuple(parts)


def _holds(value: ir.Expr) -> bool:
    """Is there an exponential, a logarithm, or a row in it?"""
    return any(
        (isinstance(part, ir.Call) and part.function in BARE)
        or (isinstance(part, ir.Reduce) and part.kind in {"max", "logsumexp"})
        or (isinstance(part, ir.Along) and part.kind in ROWS)
        for part in walk(value)
    )


def _find_near(reader: ir.Equation, parts: Equations) -> Equations:
    """The parts that an equation reads, itself or through others of them, in their order."""
    near: dict[ir.Equation, None] = {}
    waiting = [reader]
    while waiting and len(near) < MOST:
        here = waiting.pop(0)
        for part in parts:
            if part is not reader and part not in near and _reads(here.value, part):
                near[part] = None
                waiting.append(part)
    return tuple(part for part in parts if part in near)


def _reads(value: ir.Expr, equation: ir.Equation) -> bool:
    return any(access.tensor is equation.target.tensor for access in find_accesses(value))


def _open(
    equations: Equations, chosen: Sequence[ir.Equation], settle: Callable[[ir.Expr], ir.Expr]
) -> Equations | None:
    """The equations with some put where they are read; None where one is not read at indices.

    A bracket guards what it is multiplied by, but not what its equation is read beside: where the
    rules leave one in a product, it stays under its name.
    """
    found = list(equations)
    for each in chosen:
        equation = next(e for e in found if e.target is each.target)
        equation = ir.Equation(equation.target, settle(equation.value))
        if find_brackets(equation.value):
            return None
        try:
            found = [
                ir.Equation(e.target, _put(e.value, equation))
                for e in found
                if e.target is not equation.target
            ]
        except ValueError:  # the index of a row cannot be renamed there
            return None
        if any(_reads(e.value, equation) for e in found):
            return None
    return tuple(found)


def _put(value: ir.Expr, equation: ir.Equation) -> ir.Expr:
    """The value with the equation's in place of each read of it at indices of its extents."""
    inside = map_children(value, lambda child: _put(child, equation))
    if not isinstance(inside, ir.Access) or inside.tensor is not equation.target.tensor:
        return inside
    new: dict[ir.Expr, ir.Expr] = {}
    for index, place in zip(equation.target.places, inside.places, strict=True):
        if not isinstance(place, ir.Index) or not isinstance(index, ir.Index):
            return inside
        if not is_same_extent(place.extent, index.extent):
            return inside
        new[index] = place
    return substitute(equation.value, new)


def _is_better(
    opened: Equations, equations: Equations, settle: Callable[[ir.Expr], ir.Expr]
) -> bool:
    """Is more of it a softmax, in fewer passes over the entries, or with no row more?"""
    before = _count([settle(each.value) for each in equations])
    after = _count([settle(each.value) for each in opened])
    bare, rows, sums, soft = (new - old for new, old in zip(after, before, strict=True))
    passes = bare + rows + sums
    gains = bare < 0 or rows < 0 or soft > 0
    return gains and max(bare, rows + sums, passes) <= 0 and (passes < 0 or rows <= 0)


def _count(values: Sequence[ir.Expr]) -> tuple[int, int, int, int]:
    """(bare functions, rows, other reductions, softmax rows), each value for itself."""
    parts = [part for value in values for part in walk(value)]
    bare = sum(isinstance(part, ir.Call) and part.function in BARE for part in parts)
    soft = sum(isinstance(part, ir.Along) and part.kind in ROWS for part in parts)
    reductions = [part.kind for part in parts if isinstance(part, ir.Reduce)]
    rows = sum(kind in {"max", "logsumexp"} for kind in reductions)
    return bare, soft + rows, len(reductions) - rows, soft


# Wide sums that have a name of their own, put where they are contracted.
#
#     keys[i,j,d] = k[j,d] + a[i,j,d]     s[i,j] = sum[d](q[i,d] * keys[i,j,d])
#
# A sum with more indices than any of its terms is built only to be contracted: put into the product
# it can be distributed, and is never built.


def open_wide_sums(
    equations: tuple[ir.Equation, ...], results: Sequence[ir.Tensor]
) -> tuple[ir.Equation, ...]:
    """The equations with every wide sum put into the one contraction that reads it."""
    found = list(equations)
    for tensor in [each.target.tensor for each in equations]:
        equation = next(each for each in found if each.target.tensor is tensor)
        if tensor in results or not _is_wide_sum(equation):
            continue
        readers = [each for each in found if _count_reads(each.value, tensor)]
        is_read_once = sum(_count_reads(each.value, tensor) for each in readers) == 1
        if not is_read_once and not _find_deltas(equation):
            continue
        opened = {each: _contract(each.value, equation) for each in readers}
        if all(new is not None and not _count_reads(new, tensor) for new in opened.values()):
            found = [ir.Equation(e.target, opened.get(e) or e.value) for e in found]
            found = [each for each in found if each.target.tensor is not tensor]
    return tuple(found)


def _find_deltas(equation: ir.Equation) -> list[ir.Expr]:
    """The terms that are 1 where two indices of the left side are equal, and else 0."""
    terms = equation.value.terms if isinstance(equation.value, ir.Add) else ()
    return [t for t in terms if is_bracket(t) and _is_delta(t.condition)]


def _is_delta(condition: ir.Expr) -> bool:
    match condition:
        case ir.Compare("==", ir.Index(_, one), ir.Index(_, other)):
            return one is other
        case _:
            return False


def _is_wide_sum(equation: ir.Equation) -> bool:
    value, places = equation.value, equation.target.places
    if not isinstance(value, ir.Add) or not all(isinstance(place, ir.Index) for place in places):
        return False
    deltas = _find_deltas(equation)
    rest = [term for term in value.terms if term not in deltas]
    narrow = bool(deltas) or all(len(find_free(term)) < len(places) for term in rest)
    return narrow and not any(map(is_negative, rest))


def _count_reads(value: ir.Expr, tensor: ir.Tensor) -> int:
    return sum(1 for access in find_accesses(value) if access.tensor is tensor)


def _contract(value: ir.Expr, equation: ir.Equation) -> ir.Expr | None:
    """The value with the sum in place of its name, if it is a factor of a contraction."""
    done = False

    def visit(here: ir.Expr) -> ir.Expr:
        nonlocal done
        if isinstance(here, ir.Reduce) and here.kind == "sum" and isinstance(here.body, ir.Mul):
            factors = tuple(_put_sum(factor, equation) for factor in here.body.factors)
            if factors != here.body.factors:
                done = True
                return ir.Reduce(here.kind, here.bound, here.condition, ir.Mul(factors))
        elif isinstance(here, ir.Reduce) and here.kind == "sum":
            body = _put_sum(here.body, equation)
            if body is not here.body:
                done = True
                return ir.Reduce(here.kind, here.bound, here.condition, body)
        return map_children(here, visit)

    new = visit(value)
    return new if done else None


def _put_sum(factor: ir.Expr, equation: ir.Equation) -> ir.Expr:
    """The sum for a read of it at indices alone."""
    if not isinstance(factor, ir.Access) or factor.tensor is not equation.target.tensor:
        return factor
    if not all(isinstance(place, ir.Index) for place in factor.places):
        return factor
    pairs = zip(equation.target.places, factor.places, strict=True)
    try:
        return substitute(equation.value, dict(pairs))
    except ValueError:  # an index of the reader is bound inside
        return factor
