"""Numbers over sizes and scalars as Python expressions: `D**-0.5`, `2 * S - 1`."""

from __future__ import annotations

from fractions import Fraction

from derive.errors import refuse
from derive.ir.nodes import Add, Call, Expr, Infinity, Mul, Number, Pow, Scalar, Size

INTEGERS = 2**63  # torch takes no larger ones
OR, AND, COMPARE, ADD, MUL, SIGN, POWER, ATOM = range(8)


def to_python(expr: Expr, holds: int = OR) -> str:
    """The expression's text, in parentheses where its place asks for a tighter hold."""
    text, tightness = write_number(expr)
    return text if tightness >= holds else f"({text})"


def write_number(expr: Expr) -> tuple[str, int]:
    """The expression's text, and how tightly it holds together."""
    match expr:
        case Number(value):
            return _write_rational(value)
        case Infinity(negative):
            return ("-torch.inf", SIGN) if negative else ("torch.inf", ATOM)
        case Size(name) | Scalar(name):
            return name, ATOM
        case Add(terms):
            return _write_terms(terms), ADD
        case Mul(factors):
            return _write_factors(factors)
        case Pow(Pow(base, Number(inner)), Number(outer)) if outer.denominator == 1:
            return write_number(Pow(base, Number(inner * outer)))
        case Pow(Number(base), Number(power)) if power.denominator == 1 and base:
            return _write_rational(base ** int(power))
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


def _write_rational(value: Fraction) -> tuple[str, int]:
    if value.denominator == 1 and abs(value) < INTEGERS:
        return str(value), ATOM if value >= 0 else SIGN
    try:
        decimal = float(value)
    except OverflowError:
        raise refuse(
            "number-too-large",
            f"a number of {len(str(int(value)))} digits has no floating-point value",
            help="write the formula with numbers below 1e308",
        ) from None
    if value.denominator == 1:
        return repr(decimal), ATOM if value >= 0 else SIGN
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
    """A quotient: the sign first, powers of -1 and denominators below the line."""
    over: list[Expr] = []
    under: list[Expr] = []
    negative = False
    for factor in factors:
        match factor:
            case Number(value):
                negative ^= value < 0
                over += _unless_one(abs(value.numerator))
                under += _unless_one(value.denominator)
            case Pow(base, Number(power)) if power == -1:
                under.append(base)
            case Pow(Pow(base, Number(inner)), Number(power)) if power == -1:
                under.append(Pow(base, Number(inner)))
            case _:
                over.append(factor)
    sign = "-" if negative else ""
    if not under and len(over) == 1:
        text, holds = write_number(over[0])
        return (f"-{to_python(over[0], MUL)}", SIGN) if negative else (text, holds)
    text = " * ".join(to_python(f, SIGN) for f in over) or "1"
    if under:
        below = " * ".join(to_python(f, SIGN) for f in under)
        text += f" / ({below})" if len(under) > 1 else f" / {to_python(under[0], SIGN)}"
    return f"{sign}{text}", MUL if over or under else ATOM


def _unless_one(value: int) -> list[Expr]:
    return [] if value == 1 else [Number(Fraction(value))]
