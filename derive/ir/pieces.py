"""The text of an expression, and the columns of each node in it.

An expression gets parentheses where it binds less tightly than its position requires:

    or < and < not < comparison < sum < product < sign < power < atom

A number is written as a short decimal (0.25), in exponent form (1e-5), or as a quotient (1 / 3).
A number with more than 300 digits is an error.
"""

from fractions import Fraction
from functools import lru_cache

from derive.errors import refuse
from derive.ir import nodes as ir

LONGEST = 300  # most digits of a number, and the largest power of ten
TOO_LONG = f"numbers are kept exactly, so they end at {LONGEST} digits"
MAKE_SCALAR = "make it a scalar: scalar c"
_FEW = 20  # most digits in a row before a number gets an exponent
_MOST_BITS = 4 * 2 * LONGEST  # a bound on the bits of LONGEST digits times 10**LONGEST


def write_number(value: Fraction) -> str:
    """The text of a number: `0.25`, `1e-5`, `3e120`, `1 / 3`."""
    ended = _split_decimal(value)
    if ended is None:
        return _write_quotient(value)
    digits, power = ended
    sign = "-" if value < 0 else ""
    leading = len(digits) - 1 + power  # the power of ten of the first digit
    late = f"{sign}{digits[0]}{f'.{digits[1:]}' if digits[1:] else ''}e{leading}"
    if power >= 0:
        whole = f"{sign}{digits}{'0' * power}"
        return late if len(digits) + power > _FEW and len(late) < len(whole) else whole
    if -power < _FEW and leading >= -4:
        digits = digits.zfill(1 - power)
        return f"{sign}{digits[:power]}.{digits[power:]}"
    return late if -power < _FEW else min(late, _write_quotient(value), key=len)


def _write_quotient(value: Fraction) -> str:
    over, under = Fraction(value.numerator), Fraction(value.denominator)
    return f"{write_number(over)} / {write_number(under)}"


def to_exact(value: Fraction) -> ir.Number:
    """The number as a node; DeriveError where the notation cannot write it."""
    if not _is_writable(value):
        raise refuse("number-too-long", TOO_LONG, help=MAKE_SCALAR)
    return ir.Number(value)


def _is_writable(value: Fraction) -> bool:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _MOST_BITS:
        return False
    text = write_number(value).lstrip("-")
    return all(is_readable(part) for part in text.split(" / "))


def is_readable(text: str) -> bool:
    """Whether the text of an integer or a decimal keeps within LONGEST."""
    mantissa, _, exponent = text.lower().replace("_", "").partition("e")
    whole, _, rest = mantissa.partition(".")
    if len(whole) + len(rest) > LONGEST or len(exponent) > len(f"-{LONGEST}"):
        return False
    digits, power = (whole + rest).lstrip("0"), int(exponent or 0)
    leading = len(digits) - 1 - len(rest) + power
    return not digits or max(abs(power), abs(leading)) <= LONGEST


def _split_decimal(value: Fraction) -> tuple[str, int] | None:
    """The pair (digits, power of ten), ("25", -3) of 0.025; None for an infinite decimal, 1/3."""
    twos, rest = _divide_out(value.denominator, 2)
    fives, rest = _divide_out(rest, 5)
    if rest != 1:
        return None
    places = max(twos, fives)
    digits = str(abs(value.numerator) * 10**places // value.denominator)
    bare = digits.rstrip("0") or "0"
    return bare, len(digits) - len(bare) - places if bare != "0" else 0


def _divide_out(number: int, prime: int) -> tuple[int, int]:
    """The pair (times, rest) with number = prime**times * rest, and rest not divisible."""
    times = 0
    while number % prime == 0:
        number //= prime
        times += 1
    return times, number


OR, AND, NOT, COMPARE, SUM, PRODUCT, SIGN, POWER, ATOM = range(9)

_INFIX = {"floordiv": "//", "mod": "%"}

# Pieces are pairs (text, node). The joined texts are the line. Pairs ("", node) mark the start and
# the end of each node.
Pieces = list[tuple[str, "ir.Expr | None"]]


def to_text(expr: ir.Expr | ir.Equation) -> str:
    """The line of an expression or equation in the notation."""
    return "".join(piece for piece, _ in _pieces(expr))


def find_span(whole: ir.Expr | ir.Equation, part: ir.Expr) -> tuple[int, int] | None:
    """The columns (start, end) where `part` first occurs in the text of `whole`, or None."""
    return next(iter(find_spans(whole, part)), None)


def find_spans(whole: ir.Expr | ir.Equation, part: ir.Expr) -> tuple[tuple[int, int], ...]:
    """The columns (start, end) of every occurrence of `part` in the text of `whole`."""
    column = 0
    starts: list[int] = []
    spans: dict[tuple[int, int], None] = {}
    for piece, here in _pieces(whole):
        if here is part and piece == "":
            if starts and column > starts[-1]:
                spans[starts.pop(), column] = None
            else:
                starts.append(column)
        column += len(piece)
    return tuple(spans)


def _pieces(expr: ir.Expr | ir.Equation, holds: int = OR) -> Pieces:
    if isinstance(expr, ir.Equation):
        value = _pieces(expr.value)
        if expr.target.tensor.kind == "bool" and isinstance(expr.value, ir.TRUTHS):
            value = [("[", None), *value, ("]", None)]
        return [*_pieces(expr.target), (" = ", None), *value]
    inner, tightness = _write_node(expr)
    if tightness < holds:
        inner = [("(", None), *inner, (")", None)]
    return [("", expr), *inner, ("", expr)]


@lru_cache(maxsize=1 << 12)  # a product that begins with two signs is written twice
def _write_node(expr: ir.Expr) -> tuple[Pieces, int]:
    match expr:
        case ir.Number(value):
            return [(write_number(value), None)], _find_tightness(value)
        case ir.Infinity(negative):
            return [("-oo" if negative else "oo", None)], SIGN if negative else ATOM
        case ir.Size(name) | ir.Scalar(name) | ir.Index(name):
            return [(name, None)], ATOM
        case ir.Access(tensor, ()):
            return [(tensor.name, None)], ATOM
        case ir.Access(tensor, places):
            return [(tensor.name, None), *tighten(_bracket(places, ","))], ATOM
        case ir.Add(terms):
            return _write_sum(terms), SUM
        case ir.Mul(factors):
            return _write_product(factors)
        case ir.Pow(base, ir.Number(value)) if value == Fraction(1, 2):
            return [("sqrt(", None), *_pieces(base), (")", None)], ATOM
        case ir.Pow(_, ir.Number(value)) if value < 0:
            return _write_product((expr,))
        case ir.Pow(base, exponent):
            return [*_pieces(base, ATOM), ("**", None), *_pieces(exponent, ATOM)], POWER
        case ir.Call(function, (left, right)) if function in _INFIX:
            return _write_whole_quotient(left, f" {_INFIX[function]} ", right), PRODUCT
        case ir.Call(function, ()):
            return [(function, None)], ATOM
        case ir.Call(function, arguments):
            return [(function, None), *_parens(arguments)], ATOM
        case ir.Where(condition, then, other):
            if then is ir.ONE and other is ir.ZERO:
                return [("[", None), *_pieces(condition), ("]", None)], ATOM
            return [("where", None), *_parens((condition, then, other))], ATOM
        case ir.Reduce("sum", bound, condition, body) if (
            condition is not ir.TRUE and body is ir.ONE
        ):
            counted = ir.Where(condition, ir.ONE, ir.ZERO)
            return _write_node(ir.Reduce("sum", bound, ir.TRUE, counted))
        case ir.Reduce(kind, bound, condition, body):
            word, inside = kind, _parens((body,))
            if kind == "sample_var":
                word, inside = "var", [*inside[:-1], (", correction=1)", None)]
            return [(word, None), *_over(bound, condition), *inside], ATOM
        case ir.Along(kind, _, condition, body):
            return [(kind, None), *_over(expr.indices, condition), *_parens((body,))], ATOM
    return _write_condition(expr)


def _write_whole_quotient(left: ir.Expr, infix: str, right: ir.Expr) -> Pieces:
    over = _pieces(left, PRODUCT)
    if "".join(text for text, _ in over).startswith("-"):  # -(a // b) differs from (-a) // b
        over = [("(", None), *over, (")", None)]
    return [*over, (infix, None), *_pieces(right, SIGN)]


def _write_condition(expr: ir.Expr) -> tuple[Pieces, int]:
    match expr:
        case ir.Truth(value):
            return [("True" if value else "False", None)], ATOM
        case ir.Compare(relation, left, right):
            return [*_pieces(left, SUM), (f" {relation} ", None), *_pieces(right, SUM)], COMPARE
        case ir.And(parts):
            found: Pieces = []
            links = 0  # the number of relations chained to the one before, `0 <= i < S`
            for before, part in zip((None, *parts), parts, strict=False):
                match before, part:
                    case ir.Compare(first, _, middle), ir.Compare(relation, left, right) if (
                        left is middle and relation[0] == first[0]
                    ):
                        found += [(f" {relation} ", None), *_pieces(right, SUM)]
                        links += 1
                    case _:
                        found += [(" and ", None)] * bool(found) + _pieces(part, NOT)
            return found, COMPARE if links == len(parts) - 1 else AND
        case ir.Or(parts):
            return join_texts(parts, " or ", AND), OR
        case ir.Not(part):
            holds = ATOM if isinstance(part, ir.Compare) else NOT
            return [("not ", None), *_pieces(part, holds)], NOT
        case _:
            raise TypeError(f"no text for {type(expr).__name__}")


def _find_tightness(value: Fraction) -> int:
    if "/" in write_number(value):
        return PRODUCT if value > 0 else SUM
    return ATOM if value >= 0 else SIGN


def _write_sum(terms: tuple[ir.Expr, ...]) -> Pieces:
    out: Pieces = []
    for k, term in enumerate(terms):
        pieces, holds = _write_node(term)
        pieces = [("", term), *pieces, ("", term)]
        first = next((j for j, (text, _) in enumerate(pieces) if text), 0)
        is_sum = isinstance(term, ir.Add)
        if k and pieces[first][0].startswith("-") and holds >= SUM and not is_sum:
            out.append((" - ", None))
            pieces[first] = (pieces[first][0][1:], None)
        elif k:
            out.append((" + ", None))
        out += [("(", None), *pieces, (")", None)] if k and is_sum else pieces
    return out


def _write_product(factors: tuple[ir.Expr, ...], *, is_negated: bool = False) -> tuple[Pieces, int]:
    """Factors joined by `*`, or by `/` before a negative power; a leading -1 is a sign.

    A sign binds tighter than `//`, so that -(a // b) keeps its parentheses.
    """
    match factors:
        case (ir.Number(value), *_) if (
            value == -1 and len(factors) > 1 and find_divisor(factors[1]) is None
        ):
            rest, _ = _write_product(factors[1:], is_negated=True)
            start = next(text for text, _ in rest if text)
            if start != "0" and not start.startswith("-"):  # a reader would fold -0 and --1
                return [("-", None), *rest], SUM
    out: Pieces = []
    for k, factor in enumerate(factors):
        under = find_divisor(factor)
        if under is not None:
            out += [(" / " if k else "1 / ", None), *_pieces(under, POWER)]
            continue
        if k:
            out.append((" * ", None))
        out += _pieces(
            factor, SIGN if k or (is_negated and _is_whole_quotient(factor)) else PRODUCT
        )
    return out, PRODUCT


def _is_whole_quotient(factor: ir.Expr) -> bool:
    """Whether the text of a factor begins with `a // b` or `a % b`."""
    while isinstance(factor, ir.Mul):
        factor = factor.factors[0]
    return isinstance(factor, ir.Call) and factor.function in _INFIX


def find_divisor(factor: ir.Expr) -> ir.Expr | None:
    """The divisor, x**2 of x**-2; None for a factor without a negative power."""
    match factor:
        case ir.Pow(base, ir.Number(value)) if value < 0:
            return base if value == -1 else ir.Pow(base, ir.Number(-value))
    return None


def _over(bound: tuple[ir.Index, ...], condition: ir.Expr) -> Pieces:
    parts: tuple[ir.Expr, ...] = bound if condition is ir.TRUE else (*bound, condition)
    return _bracket(parts, ", ")


def _bracket(parts: tuple[ir.Expr, ...], comma: str) -> Pieces:
    return [("[", None), *join_texts(parts, comma, OR), ("]", None)]


def to_compact(*exprs: ir.Expr) -> str:
    """The text of extents, positions or costs, without blanks around products."""
    return "".join(piece for piece, _ in tighten(join_texts(exprs, ", ", OR)))


def tighten(pieces: Pieces) -> Pieces:
    """The pieces without blanks around products and divisions, as in places and shapes."""
    close = {" * ": "*", " / ": "/", " // ": "//", " % ": "%"}
    return [(close.get(text, text), here) for text, here in pieces]


def _parens(parts: tuple[ir.Expr, ...]) -> Pieces:
    return [("(", None), *join_texts(parts, ", ", OR), (")", None)]


def join_texts(parts: tuple[ir.Expr, ...], between: str, holds: int) -> Pieces:
    """The pieces of parts with a separator; a part that binds less than `holds` in parentheses."""
    out: Pieces = []
    for k, part in enumerate(parts):
        if k:
            out.append((between, None))
        out += _pieces(part, holds)
    return out
