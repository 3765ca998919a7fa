"""Arithmetic on numbers, sizes and scalars as Python text: `D**-0.5`."""

from fractions import Fraction

from derive.errors import refuse
from derive.ir import nodes as ir

INTEGERS = 2**63  # torch takes no larger ones
OR, AND, COMPARE, ADD, MUL, SIGN, POWER, ATOM = range(8)


def to_python(expr: ir.Expr, precedence: int = OR) -> str:
    """The expression in Python, in parentheses if it binds less tightly than `precedence`."""
    text, own = write_number(expr)
    return text if own >= precedence else f"({text})"


def write_number(expr: ir.Expr) -> tuple[str, int]:
    """The pair (expression in Python, its precedence)."""
    match expr:
        case ir.Number(value):
            return _write_rational(value)
        case ir.Infinity(negative):
            return ("-torch.inf", SIGN) if negative else ("torch.inf", ATOM)
        case ir.Size(name) | ir.Scalar(name):
            return name, ATOM
        case ir.Add(terms):
            return _write_terms(terms), ADD
        case ir.Mul(factors):
            return _write_factors(factors)
        case ir.Pow(ir.Pow(base, ir.Number(inner)), ir.Number(outer)) if outer.denominator == 1:
            return write_number(ir.Pow(base, ir.Number(inner * outer)))
        case ir.Pow(ir.Number(base), ir.Number(power)) if power.denominator == 1 and base:
            return _write_rational(base ** int(power))
        case ir.Pow(base, exponent):
            return f"{to_python(base, ATOM)}**{to_python(exponent, SIGN)}", POWER
        case ir.Call("pi", ()):
            return "torch.pi", ATOM
        case ir.Call("I", ()):
            return "1j", ATOM
        case ir.Call("floordiv", (left, right)):
            return f"{to_python(left, MUL)} // {to_python(right, SIGN)}", MUL
        case ir.Call("mod", (left, right)):
            return f"{to_python(left, MUL)} % {to_python(right, SIGN)}", MUL
        case ir.Call("clip", (inside, low, high)):
            return write_number(ir.Call("min", (ir.Call("max", (inside, low)), high)))
        case ir.Call("max" | "min" | "abs" as function, arguments):
            return f"{function}({', '.join(map(to_python, arguments))})", ATOM
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
    if value.denominator == 1 or Fraction(repr(decimal)) == value:
        return repr(decimal), ATOM if value >= 0 else SIGN
    return f"{value.numerator} / {value.denominator}", MUL


def _write_terms(terms: tuple[ir.Expr, ...]) -> str:
    """The sum with a positive term first: L - K + 1 instead of -K + L + 1."""
    if to_python(terms[0], ADD).startswith("-"):
        first = next((k for k, t in enumerate(terms) if to_python(t)[:1] not in {"-", "("}), 0)
        terms = (terms[first], *terms[:first], *terms[first + 1 :])
    text = to_python(terms[0], ADD)
    for term in terms[1:]:
        piece = to_python(term, MUL)
        text += f" - {piece[1:]}" if piece.startswith("-") else f" + {piece}"
    return text


def _write_factors(factors: tuple[ir.Expr, ...]) -> tuple[str, int]:
    """The pair (text, precedence) of a product, as a quotient of factors and divisors."""
    over: list[ir.Expr] = []
    under: list[ir.Expr] = []
    negative = False
    for factor in factors:
        match factor:
            case ir.Number(value):
                negative ^= value < 0
                over += _unless_one(abs(value.numerator))
                under += _unless_one(value.denominator)
            case ir.Pow(base, ir.Number(power)) if power == -1:
                under.append(base)
            case ir.Pow(ir.Pow(base, ir.Number(inner)), ir.Number(power)) if power == -1:
                under.append(ir.Pow(base, ir.Number(inner)))
            case _:
                over.append(factor)
    sign = "-" if negative else ""
    if not under and len(over) == 1:
        text, precedence = write_number(over[0])
        return (f"-{to_python(over[0], SIGN)}", SIGN) if negative else (text, precedence)
    text = " * ".join(to_python(f, SIGN) for f in over) or "1"
    if under:
        below = " * ".join(to_python(f, SIGN) for f in under)
        text += f" / ({below})" if len(under) > 1 else f" / {to_python(under[0], SIGN)}"
    return f"{sign}{text}", MUL if over or under else ATOM


def _unless_one(value: int) -> list[ir.Expr]:
    return [] if value == 1 else [ir.Number(Fraction(value))]
