r"""Expressions of the index language as LaTeX; amsmath is enough.

    to_latex(expr)      an expression, or an equation with & before its =
    to_name(name)       `alpha` is \alpha, `W_Q` is W_{Q}, `scores` is \mathrm{scores}
    to_align(system)    the equations of a formula in an `align*`

A part that binds less tightly than its position requires gets parentheses. A sum sign applies to
all that follows it in a product, so it has no parentheses only as the last factor.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from derive.errors import refuse
from derive.ir import functions, walk
from derive.ir import nodes as ir
from derive.ir.pieces import find_divisor, write_number
from derive.ir.text import to_text, write_empty_row
from derive.ir.walk import is_bracket

ANY, MOD, SUM, SIGN, PRODUCT, POWER, ATOM = range(7)  # how tightly a text holds together

HALF = Fraction(1, 2)
BIG = ("sum", "prod")  # written before their body without parentheses
RELATIONS = {"<=": r"\leq", ">=": r"\geq", "==": "=", "!=": r"\neq"}
GREEK = {
    *("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"),
    *("lambda", "mu", "nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi"),
    *("omega", "Gamma", "Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi"),
    "Omega",
}
ESCAPES = {sign: f"\\{sign}" for sign in "{}$&#_%"} | {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
}

RIGHT = r" \right)"
_NUMERAL = re.compile(r"\{?\d|\\frac\{\d")  # words that would merge with an index before them


def to_latex(expr: ir.Expr | ir.Equation) -> str:
    """The line of an expression or equation, for math mode."""
    if isinstance(expr, ir.Equation):
        return f"{to_latex(expr.target)} &= {to_latex(expr.value)}"
    return _write_expr(expr)[0]


def to_name(name: str) -> str:
    """A name; the digits or the word after its first letter are a subscript, W_Q and x1."""
    found = re.fullmatch(r"([^\W\d_]+)(?:_?(\d+)|_([^\W\d_]\w*))", name)
    if found and (len(found[1]) == 1 or found[1] in GREEK):
        return f"{_write_word(found[1])}_{{{_write_word(found[2] or found[3])}}}"
    return _write_word(name)


def escape(text: str) -> str:
    """The text with LaTeX's special signs escaped."""
    return "".join(ESCAPES.get(sign, sign) for sign in text)


def _write_word(word: str) -> str:
    if word in GREEK or word == "lambda_":
        return f"\\{word.strip('_')}"
    if not word.isascii():
        return rf"\text{{{escape(word)}}}"
    if re.fullmatch(r"[A-Za-z]|\d+", word):
        return word
    return rf"\mathrm{{{escape(word)}}}"


def _write_fraction(value: Fraction) -> str:
    over, under = value.numerator, value.denominator
    return str(over) if under == 1 else rf"\frac{{{over}}}{{{under}}}"


def _write_within(expr: ir.Expr, precedence: int) -> str:
    """The text of a part, in parentheses if it binds less tightly than `precedence`."""
    text, own = _write_expr(expr)
    return text if own >= precedence else _wrap(text)


def _wrap(text: str) -> str:
    return rf"\left( {text}{RIGHT}"


def _write_expr(expr: ir.Expr) -> tuple[str, int]:
    """The pair (text, precedence) of an expression."""
    match expr:
        case ir.Number(value):
            text = write_number(abs(value))
            is_decimal = "/" not in text
            text = format(Decimal(text), "f") if is_decimal else _write_fraction(abs(value))
            if value < 0:
                return f"-{text}", SUM
            return text, ATOM if is_decimal else PRODUCT
        case ir.Infinity(negative):
            return (r"-\infty", SUM) if negative else (r"\infty", ATOM)
        case ir.Size(name) | ir.Scalar(name):
            return to_name(name), ATOM
        case ir.Index(name):
            return _write_word(name), ATOM
        case ir.Access():
            return _write_access(expr), ATOM
        case ir.Add(terms):
            return _write_sum(terms), SUM
        case ir.Mul(factors):
            return _write_product(factors)
        case ir.Pow(base, exponent):
            return _write_power(base, exponent)
        case ir.Call(function, arguments):
            return _write_call(function, arguments)
        case ir.Where(condition, then, other):
            if is_bracket(expr):
                return rf"\left[ {to_latex(condition)} \right]", ATOM
            rows = rf"{to_latex(then)} & \text{{if }} {to_latex(condition)} \\ {to_latex(other)}"
            return rf"\begin{{cases}} {rows} & \text{{otherwise}} \end{{cases}}", ATOM
        case ir.Reduce(kind, bound, condition, body) if kind in BIG:
            ends = kind == "prod" and isinstance(body, ir.Mul)  # before the second factor
            text = _write_within(body, POWER if ends else SIGN)
            return f"{functions.ROWS[kind].latex}{_write_under(bound, condition)} {text}", SIGN
        case ir.Reduce(kind, bound, condition, body):
            return _write_function(kind, bound, condition, body), ATOM
        case ir.Along(kind, _, condition, body):
            return _write_function(kind, expr.indices, condition, body), ATOM
        case ir.Truth(value):
            return rf"\text{{{'true' if value else 'false'}}}", ATOM
        case ir.Compare(relation, left, right):
            sign = RELATIONS.get(relation, relation)
            return f"{_write_within(left, MOD)} {sign} {_write_within(right, MOD)}", ANY
        case ir.And(parts):
            return r" \wedge ".join(_write_chains(parts)), ANY
        case ir.Or(parts):
            return r" \vee ".join(_write_within(part, ATOM) for part in parts), ANY
        case ir.Not(part):
            return rf"\neg {_write_within(part, ATOM)}", ANY
        case _:
            raise TypeError(f"no LaTeX for {type(expr).__name__}")


def _write_access(access: ir.Access) -> str:
    name = to_name(access.tensor.name)
    if not access.places:  # p_i may be a place i of p
        is_open = re.fullmatch(r"\w+_[a-z]", access.tensor.name)
        return _write_word(access.tensor.name) if is_open else name
    base = f"{{{name}}}" if "_" in name else name
    return f"{base}_{{{','.join(map(to_latex, access.places))}}}"


def _write_sum(terms: Sequence[ir.Expr]) -> str:
    text = ""
    for k, term in enumerate(terms):
        part = _write_within(term, SIGN if k and isinstance(term, ir.Add) else SUM)
        is_signed = part.startswith("-")
        text += part if not k else f" - {part[1:].lstrip()}" if is_signed else f" + {part}"
    return text


def _write_product(factors: Sequence[ir.Expr]) -> tuple[str, int]:
    """The pair (text, precedence) of a product, as a fraction if it has powers of -1."""
    match factors:
        case (ir.Number(value), _, *_) if value < 0:
            rest = factors[1:] if value == -1 else (ir.Number(-value), *factors[1:])
            text, own = _write_product(rest)
            return f"-{text if own >= SIGN else _wrap(text)}", SUM
    divisors = [find_divisor(factor) for factor in factors]
    over = [factor for factor, under in zip(factors, divisors, strict=True) if under is None]
    under = [each for each in divisors if each is not None]
    if not under:
        return _join_parts(over)
    above = _join_parts(over)[0] if over else "1"
    return rf"\frac{{{above}}}{{{_join_parts(under)[0]}}}", PRODUCT


def _join_parts(factors: Sequence[ir.Expr]) -> tuple[str, int]:
    r"""The pair (text, precedence) of adjacent factors, with \cdot before a number."""
    if len(factors) == 1:
        return _write_expr(factors[0])
    text, own = "", PRODUCT
    for k, factor in enumerate(factors):
        part, own = _write_expr(factor)
        is_grouped = k and isinstance(factor, ir.Mul) and not part.startswith(r"\frac")
        if is_grouped or own < (SIGN if k == len(factors) - 1 else PRODUCT):
            part, own = _wrap(part), ATOM
        text += part if not k else rf" \cdot {part}" if _NUMERAL.match(part) else f" {part}"
    return text, SIGN if own == SIGN else PRODUCT


def _write_power(base: ir.Expr, exponent: ir.Expr) -> tuple[str, int]:
    if isinstance(exponent, ir.Number):
        if exponent.value == HALF:
            return rf"\sqrt{{{to_latex(base)}}}", ATOM
        if exponent.value < 0:
            return _write_product((ir.Pow(base, exponent),))
    inside = _write_within(base, ATOM)
    if isinstance(base, (ir.Call, ir.Reduce, ir.Along)) and not inside.startswith(r"\left"):
        inside = _wrap(inside)  # the power is of the value, not of the function
    power = to_latex(exponent)
    if isinstance(exponent, ir.Number):
        power = _write_fraction(exponent.value)
    return f"{{{inside}}}^{{{power}}}", POWER


def _write_call(function: str, arguments: Sequence[ir.Expr]) -> tuple[str, int]:
    if function == "mod":
        left, right = (_write_within(argument, POWER) for argument in arguments)
        return rf"{left} \bmod {right}", MOD
    texts = [to_latex(argument) for argument in arguments]
    name = functions.FUNCTIONS[function].latex or _write_operator(function)
    if "{0}" in name:
        return name.format(*texts), ATOM
    return (rf"{name} \left( {', '.join(texts)} \right)" if texts else name), ATOM


def _write_operator(name: str) -> str:
    return rf"\operatorname{{{escape(name)}}}"


def _write_function(kind: str, bound: Sequence[ir.Index], condition: ir.Expr, body: ir.Expr) -> str:
    name = functions.ROWS[kind].latex or _write_operator(kind)
    return rf"{name}{_write_under(bound, condition)} {_wrap(to_latex(body))}"


def _write_under(bound: Sequence[ir.Index], condition: ir.Expr) -> str:
    indices = ",".join(_write_word(index.name) for index in bound)
    where = "" if condition is ir.TRUE else rf" \,:\, {to_latex(condition)}"
    return f"_{{{indices}{where}}}"


def _write_chains(parts: Sequence[ir.Expr]) -> list[str]:
    """The texts of the parts of an `and`; comparisons that share a side are chained: a < b < c."""
    chains: list[str] = []
    end: ir.Expr | None = None
    for part in parts:
        if isinstance(part, ir.Compare) and part.left is end:
            more = to_latex(part).removeprefix(_write_within(part.left, MOD))
            chains[-1] = chains[-1].removesuffix(RIGHT) + more + RIGHT
        else:
            chains.append(_write_within(part, ATOM))
        end = part.right if isinstance(part, ir.Compare) else None
    return chains


END = " \\\\\n"


def to_rows(system: ir.System) -> str:
    """The equations as the user wrote them, each on a line of an environment."""
    system = walk.as_written(system)
    refuse_alike(system)
    rows = [rf"& \text{{{line}}}" for line in write_empty_row(system)]
    if any(map(has_count, (side for e in system.equations for side in (e.target, e.value)))):
        rows.append(r"& \text{indices count from 0}")
    return END.join([*map(to_latex, system.equations), *rows])


def refuse_alike(system: ir.System) -> None:
    """Refuse names that look alike in LaTeX: x1 and x_1, a scalar x_i and the entry x[i]."""
    found = dict[str, str]()
    for part in (p for e in system.equations for s in (e.target, e.value) for p in walk.walk(s)):
        if isinstance(part, (ir.Access, ir.Size, ir.Scalar)):
            names = [part.tensor.name] if isinstance(part, ir.Access) else []
            pairs = [(to_latex(part), to_text(part)), *((to_name(name), name) for name in names)]
            for text, own in pairs:
                if (other := found.setdefault(text, own)) != own:
                    says = f"{other} and {own} look alike in LaTeX: {text}"
                    raise refuse("latex-name", says, help="give one of them another letter")


def has_count(expr: ir.Expr) -> bool:
    """Whether an index is used as a number or a number as a place, so that the base matters."""
    if isinstance(expr, ir.Access):
        places = (p for p in expr.places if not isinstance(p, ir.Index))
        return any(not (isinstance(p, ir.Access) and p.places) or has_count(p) for p in places)
    return any(isinstance(part, ir.Index) or has_count(part) for part in expr.children)


def to_align(system: ir.System) -> str:
    """The equations of a formula in an `align*`."""
    return f"\\begin{{align*}}\n{to_rows(system)}\n\\end{{align*}}"
