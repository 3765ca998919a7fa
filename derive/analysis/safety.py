"""Whether a value can be computed without a guard: it is finite, and its reads are in range.

    is_finite(expression)                  for all finite inputs
    is_finite_where_defined(expression)    no infinity and no reduction over nothing;
                                           a quotient may still divide by 0
    is_readable(expression)                every read is in range by its own guards
    is_safe(expression)                    readable and finite

Inputs are finite. A tensor that an equation defines may not be: `find_nonfinite` finds those.
During a rewriting `mark_tensors` replaces them by tensors with an upper bound of oo, and with a
lower bound of -oo if they are not even finite where they are defined.

Sound, not complete: False means "not shown".
"""

from collections.abc import Iterator
from functools import partial
from itertools import chain

from derive.analysis.facts import Facts, find_facts, is_never_negative, is_positive
from derive.ir import nodes as ir
from derive.ir.functions import FUNCTIONS, ROWS, is_complex
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.walk import find_brackets, find_free

Guards = tuple[ir.Expr, ...]


def find_guarded(expr: ir.Expr, facts: Facts) -> Iterator[tuple[ir.Access, Facts]]:
    """Pairs (access, facts that hold there): those given, and those of the guards around it."""
    for access, guards in find_reads(expr):
        yield access, (*facts, *chain.from_iterable(map(find_facts, guards)))


def find_reads(expr: ir.Expr, guards: Guards = ()) -> Iterator[tuple[ir.Access, Guards]]:
    """Pairs (access, guards around it); the guards given are those around the expression."""
    match expr:
        case ir.Access(_, places):
            yield expr, guards
            for place in places:
                yield from find_reads(place, guards)
        case ir.Where(condition, then, other):
            yield from find_reads(condition, guards)
            yield from find_reads(then, (*guards, condition))
            yield from find_reads(other, (*guards, ir.negate(condition)))
        case ir.Reduce(_, _, condition, body) | ir.Along(_, _, condition, body):
            # The body is evaluated for all values of the index: no outer guard on it holds there.
            bound = {*(expr.indices)}
            around = tuple(guard for guard in guards if not bound & {*find_free(guard)})
            yield from find_reads(condition, around)
            yield from find_reads(body, around if condition is ir.TRUE else (*around, condition))
        case ir.And(parts) | ir.Or(parts):
            before = parts if isinstance(expr, ir.And) else tuple(map(ir.negate, parts))
            for number, part in enumerate(parts):
                yield from find_reads(part, (*guards, *before[:number]))
        case ir.Mul(factors):
            brackets = [bracket for factor in factors for bracket in find_brackets(factor)]
            for factor in factors:
                own = find_brackets(factor)
                around = tuple(each.condition for each in brackets if each not in own)
                yield from find_reads(factor, (*guards, *around))
        case _:
            for child in expr.children:
                yield from find_reads(child, guards)


_EMPTY = {word for word, row in ROWS.items() if row.nothing not in {"0", "1"}}


def is_readable(expr: ir.Expr) -> bool:
    """Whether every read is shown to be in range without guards around the expression."""
    return all(_is_inside(access, facts) for access, facts in find_guarded(expr, ()))


def _is_inside(access: ir.Access, facts: Facts) -> bool:
    for place, extent in zip(access.places, access.tensor.shape, strict=True):
        if isinstance(place, ir.Index) and is_same_extent(place.extent, extent):
            continue
        if not is_in_range(place, extent, facts):
            return False
    return True


def is_in_range(place: ir.Expr, extent: ir.Expr, facts: Facts) -> bool:
    """Whether a place is shown to be from 0 to the extent minus 1 where the facts hold."""
    value, length = Polynomial.of(place), Polynomial.of(extent)
    return is_never_negative(value, facts) and is_positive(length - value, facts)


def _is_imaginary(value: ir.Expr) -> bool:
    """Whether the value is a real number times the imaginary unit."""
    found = Polynomial.of(value).split_linear(ir.Call("I", ())) if is_complex(value) else None
    return found is not None and not found[1].terms and not is_complex(found[0].to_expr())


def is_finite_where_defined(expr: ir.Expr) -> bool:
    """Whether the value is shown finite wherever its quotients, roots and logs are defined."""
    return is_finite(expr, strict=False)


def is_safe(expr: ir.Expr) -> bool:
    """Whether all reads are shown in range, and the value finite for all finite inputs."""
    return is_finite(expr) and is_readable(expr)


def is_finite(expr: ir.Expr, *, strict: bool = True, zeros: bool = False) -> bool:
    """Whether the value is shown to be finite for all finite inputs.

    `strict`: quotients, roots and logarithms may fail, so that they need a proof. `zeros`: the
    normalized weights of an empty row are 0, else nan.
    """
    ask = partial(is_finite, strict=strict, zeros=zeros)
    match expr:
        case ir.Infinity():
            return False
        case ir.Access(tensor, _):
            return not isinstance(tensor.upper if strict else tensor.lower, ir.Infinity)
        case ir.Pow(base, exponent):
            is_defined = not strict or is_positive(base)
            if isinstance(exponent, ir.Number) and exponent.value.denominator == 1:
                is_defined = is_defined or exponent.value >= 0
            return is_defined and ask(base) and ask(exponent)
        case ir.Call("exp", (power,)) if (  # at most 1 in absolute value
            is_never_negative(ir.change_sign(power)) or _is_imaginary(power)
        ):
            return ask(power)
        case ir.Call("log", (value,)) if is_positive(value):
            return ask(value)
        case ir.Call(function, arguments):
            row = FUNCTIONS.get(function)
            known = row is not None and not (strict and row.is_partial)
            return (known and all(map(ask, arguments))) or set(arguments) == {ir.ONE}
        case ir.Reduce(kind, _, condition, body):
            is_full = condition is ir.TRUE or kind not in _EMPTY
            counted = kind not in {"sample_var", "logdet"} or not strict
            return is_full and counted and ask(condition) and ask(body)
        case ir.Along(kind, _, condition, body):
            along = ROWS[kind]
            if None not in along.range and not strict:
                return True  # within its range, or nan
            if along.is_matrix and strict:
                return False  # infinite for a singular matrix
            is_full = condition is ir.TRUE or kind not in _EMPTY or (along.normalizes and zeros)
            return is_full and ask(condition) and ask(body)
    return all(map(ask, expr.children))
