"""Roots that are norms or standard deviations, and sums that are multiplied-out squares.

At 0 a root has no derivative, but that of a norm is 0, as in torch. In `sqrt(sum[i](x[i]**2))` the
order of the zero of x**2 is 2; a norm has order * (1/2) >= 1.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import isqrt

from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial

# reductions whose value is a sum, with the power that the reduction itself applies to its entries
_SUMS = {"sum": None, "mean": None, "var": Fraction(2), "sample_var": Fraction(2)}


def is_norm(expr: ir.Expr, known: Mapping[str, ir.Expr]) -> bool:
    """Whether the expression is a root of a sum of powers, with slope 0 at 0 like torch's norms.

    The powers may be weighted, masked or read from another tensor, and the sum may be a mean or a
    variance. Each power must vanish so fast that its own root has a bounded slope. A clamp at 0
    around the sum is ignored. `known` holds the values of tensors by name.
    """
    match expr:
        case ir.Pow(base, ir.Number(root)) if 0 < root < 1:
            order, is_summed = _find_order(base, known)
            return is_summed and order * root >= 1
    return False


def _find_order(expr: ir.Expr, known: Mapping[str, ir.Expr]) -> tuple[Fraction, bool]:
    """The pair (order of the zero at 0, 1 of x + x**2; whether a term is a sum over indices)."""
    match expr:
        case ir.Reduce(kind, _, _, body) if kind in _SUMS:
            return _SUMS[kind] or _find_order(body, known)[0], True
        case ir.Add(terms):
            least, summed = zip(*(_find_order(term, known) for term in terms), strict=True)
            return min(least), any(summed)
    powers: dict[ir.Expr, Fraction] = {}
    for base, power in _list_powers(expr, known):
        powers[base] = powers.get(base, Fraction(0)) + power
    orders, are_summed = [Fraction(0)], [False]
    for base, power in powers.items():
        is_sum = isinstance(base, ir.Add) or getattr(base, "kind", "") in _SUMS
        order, is_summed = _find_order(base, known) if is_sum else (Fraction(1), False)
        orders.append(power * order)
        are_summed.append(is_summed)
    return max(orders), any(are_summed)


def _list_powers(expr: ir.Expr, known: Mapping[str, ir.Expr]) -> Iterator[tuple[ir.Expr, Fraction]]:
    """Yield pairs (factor, power) of a product but numbers, also inside conditions and clamps."""
    match expr:
        case ir.Access(tensor) if tensor.name in known:
            yield from _list_powers(known[tensor.name], known)
        case ir.Mul(factors):
            for factor in factors:
                yield from _list_powers(factor, known)
        case ir.Pow(base, ir.Number(power)):
            yield from ((each, power * own) for each, own in _list_powers(base, known))
        case ir.Call("max", (value, ir.ZERO)) | ir.Call("max", (ir.ZERO, value)):
            yield from _list_powers(value, known)
        case ir.Where(_, value, ir.Number()) | ir.Where(_, ir.Number(), value):
            yield from _list_powers(value, known)
        case _ if not isinstance(expr, (ir.Number, ir.Size, ir.Scalar)):
            yield expr, Fraction(1)


def is_square(terms: Sequence[ir.Expr]) -> bool:
    """Whether the terms add up to a square: `sum[i](a**2) - 2*sum[i](a*b) + sum[i](b**2)`."""
    whole, ranges = Polynomial.of(0), set[ir.Expr]()
    for term in terms:
        factors = ir.split_product(term)
        match [f for f in factors if not isinstance(f, ir.Number)]:
            case [ir.Reduce("sum" | "mean", _, _, body) as total]:
                ranges.add(ir.Reduce(total.kind, total.bound, total.condition, ir.ONE))
                numbers = (f for f in factors if f is not total)
                whole = whole + Polynomial.of(ir.Mul((*numbers, body)))
            case _:
                return False
    root, first = Polynomial.of(0), None
    for monomial, number in whole.terms.items():
        sizes = isqrt(number.numerator) if number > 0 else 0, isqrt(number.denominator)
        if len(monomial) == 1 and monomial[0][1] == 2 and Fraction(*sizes) ** 2 == number:
            atom = monomial[0][0]
            first = first or atom
            ((mixed, _),) = (Polynomial.atom(first) * Polynomial.atom(atom)).terms.items()
            sign = -1 if whole.terms.get(mixed, number) < 0 else 1
            root = root + Polynomial.atom(atom) * Polynomial.of(sign * Fraction(*sizes))
    return len(ranges) == 1 and root * root == whole
