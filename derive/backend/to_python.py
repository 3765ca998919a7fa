"""Numbers over sizes and scalars as Python expressions: `D**-0.5`, `2 * S - 1`."""

from __future__ import annotations

from fractions import Fraction

from derive.ir.nodes import Add, Call, Expr, Infinity, Mul, Number, Pow, Scalar, Size

OR, AND, COMPARE, ADD, MUL, SIGN, POWER, ATOM = range(8)


def to_python(expr: Expr, holds: int = OR) -> str:
    """The expression's text, in parentheses where its place asks for a tighter hold."""
    text, tightness = _write(expr)
    return text if tightness >= holds else f"({text})"


def _write(expr: Expr) -> tuple[str, int]:
    match expr:
        case Number(value):
            return _write_number(value)
        case Infinity(negative):
            return ("-torch.inf", SIGN) if negative else ("torch.inf", ATOM)
        case Size(name) | Scalar(name):
            return name, ATOM
        case Add(terms):
            return _write_terms(terms), ADD
        case Mul(factors):
            return _write_factors(factors)
        case Pow(Pow(base, Number(inner)), Number(outer)) if outer.denominator == 1:
            return _write(Pow(base, Number(inner * outer)))
        case Pow(base, exponent):
            return f"{to_python(base, ATOM)}**{to_python(exponent, SIGN)}", POWER
        case Call("pi", ()):
            return "torch.pi", ATOM
        case Call("floordiv", (left, right)):
            return f"{to_python(left, MUL)} // {to_python(right, SIGN)}", MUL
        case Call("mod", (left, right)):
            return f"{to_python(left, MUL)} % {to_python(right, SIGN)}", MUL
        case _:
            raise TypeError(f"{type(expr).__name__} is no number")


def _write_number(value: Fraction) -> tuple[str, int]:
    if value.denominator == 1:
        return str(value), ATOM if value >= 0 else SIGN
    decimal = float(value)
    if Fraction(repr(decimal)) == value:
        return repr(decimal), ATOM if value >= 0 else SIGN
    return f"{value.numerator} / {value.denominator}", MUL


def _write_terms(terms: tuple[Expr, ...]) -> str:
    text = to_python(terms[0], ADD)
    for term in terms[1:]:
        piece = to_python(term, MUL)
        text += f" - {piece[1:]}" if piece.startswith("-") else f" + {piece}"
    return text


def _write_factors(factors: tuple[Expr, ...]) -> tuple[str, int]:
    """Factors with `*`, inverse ones with `/`; ones are left out."""
    over = [f for f in factors if not _is_inverse(f) and f != Number(Fraction(1))]
    under = [f for f in factors if _is_inverse(f)]
    negative = [f for f in over if f == Number(Fraction(-1))]
    over = [f for f in over if f not in negative]
    if not under and len(over) == 1 and not negative:
        return _write(over[0])
    text = " * ".join(to_python(f, SIGN) for f in over) or "1"
    for factor in under:
        assert isinstance(factor, Pow)
        text += f" / {to_python(factor.base, SIGN)}"
    sign = "-" if len(negative) % 2 else ""
    holds = (ATOM if len(over) + len(under) <= 1 and not under else MUL) if not sign else MUL
    return f"{sign}{text}", holds


def _is_inverse(expr: Expr) -> bool:
    if not isinstance(expr, Pow) or isinstance(expr.base, Pow):
        return False
    return expr.exponent == Number(Fraction(-1))
