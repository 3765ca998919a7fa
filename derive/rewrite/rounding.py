"""Sensitivity to rounding: the parts of values that a root, a logarithm or a quotient reads.

A root, a logarithm or a quotient of a positive difference is nan, or has another sign, where
rounding makes the difference negative. Sums, products and names pass sensitivity on to their parts;
exp and similar functions do not.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from fractions import Fraction
from functools import partial
from typing import TypeAlias

from derive.analysis import facts
from derive.analysis.affine import simplify_places
from derive.analysis.extents import is_always, to_key
from derive.ir import functions, polynomial
from derive.ir import nodes as ir
from derive.ir.walk import find_accesses, find_free, rewrite_bottom_up, substitute, walk
from derive.rewrite.guards import is_natural
from derive.rewrite.rule import put_value

# Parts sensitive to any rounding, to sign-keeping rounding; such tensors, and nonnegative ones.
Sensitive: TypeAlias = "tuple[set[ir.Expr], set[ir.Expr]]"
Names: TypeAlias = tuple[set[str], set[str], set[str]]


def find_sensitive_names(system: ir.System, spared: Collection[ir.Expr] = ()) -> Names:
    """The tensors that a root, a log or a divisor reads, directly or not, and the nonnegative ones.

    Reads in `spared` do not count.
    """
    names: Names = (set(), set(), set())
    for equation in system.equations:
        if _is_one_sided(equation.value, names[2]):
            names[2].add(equation.target.tensor.name)
    values = {equation.target: equation.value for equation in system.equations}
    for root in system.equations:
        if isinstance(root.value, ir.Pow) and root.value.exponent is HALF:  # a named norm
            values = {target: put_value(value, root) for target, value in values.items()}
    for equation in [ir.Equation(*each) for each in reversed(values.items())]:
        for found, kept in zip(find_sensitive(equation, names), names[:2], strict=True):
            reads = (site for site in found if isinstance(site, ir.Access) and site not in spared)
            kept |= {site.tensor.name for site in reads}
    return names


def find_sensitive(equation: ir.Equation, names: Names) -> Sensitive:
    """(parts of a value sensitive to any rounding, parts sensitive to sign-keeping rounding)."""
    name = equation.target.tensor.name
    rounding = _collect(equation.value, name in names[0], partial(_walk_parts, positive=None))
    signs = _collect(equation.value, name in names[1], partial(_walk_parts, positive=names[2]))
    return rounding, signs


def find_signed_names(system: ir.System) -> set[str]:
    """The results, and the tensors whose sign affects them other than through exp and its like."""
    names = {tensor.name for tensor in system.results}
    for equation in reversed(system.equations):
        found = find_signed(equation, names)
        names |= {site.tensor.name for site in found if isinstance(site, ir.Access)}
    return names


def find_signed(equation: ir.Equation, names: Collection[str]) -> set[ir.Expr]:
    """The parts of a value whose sign affects it, if the value's own sign matters.

    The sign of a term does not count in a sum that may be negative anyway. All parts under a
    condition count: a sign may show that no guard is needed.
    """
    value = equation.value
    masked = (p for p in walk(value) if getattr(p, "condition", ir.TRUE) is not ir.TRUE)
    found = _collect(value, equation.target.tensor.name in names, _walk_signed)
    return found.union(*map(walk, masked))


def _walk_signed(expr: ir.Expr, is_signed: bool) -> Iterator[tuple[ir.Expr, bool]]:
    match expr:
        case ir.Call(function) if functions.FUNCTIONS[function].is_smooth:
            is_signed = False
        case ir.Along(kind) | ir.Reduce(kind) if functions.ROWS[kind].is_slow or kind == "argmax":
            is_signed = False
        case ir.Add(terms):
            is_signed = is_signed and all(map(facts.is_never_negative, terms))
    yield from ((part, is_signed) for part in expr.children)


def find_roundable(system: ir.System) -> set[ir.Expr]:
    """The sums that no root, log or divisor reads, directly or not, and sums of squares.

    A sum of squares, as at lag 0 of sums of products, is its row's largest entry.
    """
    values = {equation.target.tensor.name: equation for equation in system.equations}
    reads = {access for each in system.equations for access in find_accesses(each.value)}
    spared = {a for a in reads if a.tensor.name in values and _is_square(a, values[a.tensor.name])}
    names = find_sensitive_names(system, spared)
    found: set[ir.Expr] = set()
    for equation in system.equations:
        sums = {part for part in walk(equation.value) if isinstance(part, ir.Reduce)}
        found |= sums - find_sensitive(equation, names)[0]
    return found


def _is_square(access: ir.Access, equation: ir.Equation) -> bool:
    """Whether a read at constant places, as lag 0, makes a sum of products one of squares."""
    new = dict(zip(equation.target.places, access.places, strict=True))
    fixed = {i: place for i, place in new.items() if not find_free(place)}
    match equation.value:
        case ir.Reduce("sum", bound, condition, body) if fixed:
            factors = [part for part in ir.split_product(body) if {*find_free(part)} & {*bound}]
        case _:
            return False
    moved = [factor for factor in factors if fixed.keys() & {*find_free(factor)}]
    there = [rewrite_bottom_up(substitute(factor, fixed), simplify_places) for factor in moved]
    read = [
        pair
        for part in there
        for a in find_accesses(part)
        for pair in zip(a.places, a.tensor.shape, strict=True)
    ]
    is_whole = all(
        isinstance(place, ir.Index) and polynomial.is_same_extent(place.extent, extent)
        for place, extent in read
        if {*find_free(place)} & {*bound}
    )
    is_equal = Counter(there) == Counter(factor for factor in factors if factor not in moved)
    guards = ir.split_and(substitute(condition, fixed))
    return is_whole and is_equal and all(map(is_always, guards))


def _collect(
    value: ir.Expr, flag: bool, walk_parts: Callable[..., Iterator[tuple[ir.Expr, int]]]
) -> set[ir.Expr]:
    """The parts with a true flag; `walk_parts(part, flag)` yields (part, flag) inside a part."""
    found: set[ir.Expr] = set()
    seen: set[tuple[ir.Expr, int]] = set()
    stack: list[tuple[ir.Expr, int]] = [(value, flag)]
    while stack:
        here = stack.pop()
        if here not in seen:
            seen.add(here)
            found |= {here[0]} if here[1] else set()
            stack.extend(walk_parts(*here))
    return found


def _is_far_from_zero(power: ir.Pow, positive: set[str]) -> bool:
    """Whether the base of a power is 1 or more: a number plus nonnegative terms.

    A root, or a power with a variable exponent, may also have scalars times nonnegative terms:
    where they are negative, the base is between 0 and 1 and rounds as 1 does.
    """
    exponent = power.exponent
    scalars = not isinstance(exponent, ir.Number) or exponent.value.denominator > 1
    terms = ir.split_sum(power.base)
    has_number = any(isinstance(term, ir.Number) and term.value >= 1 for term in terms)
    return has_number and all(_is_one_sided(t, positive, scalars=scalars) for t in terms)


def _is_one_sided(expr: ir.Expr, positive: set[str], *, scalars: bool = False) -> bool:
    """Whether the expression is nonnegative if these tensors are, up to `scalars` as factors."""
    match expr:
        case ir.Mul(parts) if scalars:
            return all(_is_one_sided(part, positive, scalars=True) for part in parts)
        case ir.Mul(parts) | ir.Add(parts) if all(_is_one_sided(p, positive) for p in parts):
            return True
        case ir.Reduce("sum" | "mean", _, _, body):
            return _is_one_sided(body, positive, scalars=scalars)
        case ir.Scalar() | ir.Pow(ir.Scalar()) if scalars:
            return True
        case ir.Access(tensor) if tensor.name in positive:
            return True
    return facts.is_never_negative(expr)


def _is_norm_of(divisor: ir.Pow, above: Collection[ir.Expr]) -> bool:
    """Whether the divisor is the norm of a vector, and the dividend is linear in its entries."""
    squared = [p.base for p in walk(divisor.base) if isinstance(p, ir.Pow) and p.exponent is TWO]
    entries = list(above)
    for each in entries:
        entries += ir.split_product(each.body) if isinstance(each, ir.Reduce) else ()
    keys = {to_key(each)[0] for each in entries}
    return divisor.exponent is not TWO and any(to_key(each)[0] in keys for each in squared)


TWO, HALF = ir.Number(Fraction(2)), ir.Number(Fraction(1, 2))
NORM = 2  # sensitive apart from squares: a norm rounds no worse than its argument


def _walk_parts(
    expr: ir.Expr, is_sensitive: int, positive: set[str] | None
) -> Iterator[tuple[ir.Expr, int]]:
    """The children of a node, each with its sensitivity: False, True or NORM.

    `positive`: the nonnegative tensors, if rounding keeps signs.
    """
    match expr:
        case ir.Pow(base, ir.Number(power)) if is_sensitive == NORM and power == 2:
            yield base, False
        case ir.Pow(base, exponent):
            is_unbounded = is_sensitive or not is_natural(exponent)
            is_far = positive is not None and _is_far_from_zero(expr, positive)
            is_norm = is_unbounded and exponent is HALF and is_sensitive in {False, NORM}
            yield base, NORM if is_norm else is_unbounded and not is_far
            yield exponent, is_sensitive
        case ir.Mul(factors) if not is_sensitive:
            above = [f for f in factors if not isinstance(f, ir.Pow)]
            for factor in factors:
                if isinstance(factor, ir.Pow) and _is_norm_of(factor, above):
                    yield factor.base, NORM
                else:
                    yield factor, False
        case ir.Call(function, arguments):
            row = functions.FUNCTIONS[function]
            inner = is_sensitive if not row.domain and not row.is_smooth else bool(row.domain)
            yield from ((argument, inner) for argument in arguments)
        case ir.Along(kind) | ir.Reduce("argmax" as kind) if (
            kind == "argmax" or functions.ROWS[kind].is_slow
        ):
            yield from ((part, False) for part in expr.children)
        case _:
            yield from ((part, is_sensitive) for part in expr.children)
