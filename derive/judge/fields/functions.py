"""Functions of elements over a tower, and the order of elements, as torch operations.

exp and log are exact, roots are of squares, composites are computed by their definitions, and all
other functions are hashes.

The order is random, except for infinities and small integers: an equation that holds for every
order of values holds for this one. Squares are positive, so that signs multiply, and roots and
exponentials are positive. The absolute value of an element is a hash of any magnitude; small
integers have their own order.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial, reduce
from math import prod
from typing import Any

import torch

from derive.ir.definitions import Maker, bind, expand_call, read_definition
from derive.ir.functions import FUNCTIONS, find_by_torch_name, find_call
from derive.judge.fields import algebra, elements
from derive.judge.fields import tower as modular
from derive.judge.fields.tensor import Handler, Run
from derive.judge.fields.tower import UNKNOWN, hash_residues


def exp(run: Run, parts: algebra.Parts) -> algebra.Parts:
    """The exponential: a power of the base, or the companion; TooDeepError if all are unknown."""
    run.usage.soft_mask |= bool(parts.has_state(algebra.LOW, algebra.HIGH).any())
    zero = parts.has_state(algebra.BELOW, algebra.LOW)
    one = (parts.residues[0] == 0) & (parts.state == algebra.FINITE) & algebra.find_small(parts)[1]
    last = torch.full_like(parts.residues[0], UNKNOWN)
    raised = (*algebra.exponentiate(parts), last)
    residues = [each.masked_fill(zero, 0).masked_fill(one, 1) for each in raised]
    if residues[0].numel() and bool((residues[0] < 0).all()):
        raise algebra.TooDeepError
    above = parts.has_state(algebra.ABOVE, algebra.HIGH)
    return parts.make(
        residues, torch.where(above, algebra.ABOVE, algebra.NAN * (parts.state == algebra.NAN))
    )


def log(run: Run, parts: algebra.Parts) -> algebra.Parts:
    """The logarithm, known from level 1 on, with its argument as companion."""
    plain = parts.state == algebra.FINITE
    value, small = algebra.find_small(parts)
    zero = plain & (parts.residues[0] == 0)
    one, negative = (small & (value == 1), small & (value < 0))
    below = [
        modular.take_logarithm(parts.residues[level], run.tower, level)
        for level in range(run.tower.depth)
    ]
    first = torch.full_like(parts.residues[0], UNKNOWN)
    residues = [each.masked_fill(one, 0) for each in (first, *below)]
    off = ~plain | zero | one | negative
    companions = [
        torch.where(each > 0, each, UNKNOWN).masked_fill(off, 0) for each in parts.residues[:-1]
    ]
    above = torch.where(parts.state == algebra.ABOVE, algebra.ABOVE, algebra.FINITE)
    state = torch.where(zero, algebra.BELOW, above)
    nan = parts.has_state(algebra.NAN, algebra.BELOW) | negative
    return parts.make(residues, torch.where(nan, algebra.NAN, state), companions)


def root(run: Run, parts: algebra.Parts) -> algebra.Parts:
    """The root that is a square itself; for a nonsquare a root with an arbitrary sign.

    In both cases the root of a product is the product of the roots. The root of -1 is 1 in some
    towers and -1 in others, so that sqrt(-x) is neither sqrt(x) nor its negative. Square integers
    have the positive root.
    """
    value, small = algebra.find_small(parts)
    whole = value.clamp(min=0).double().sqrt().round().long()
    square = small & (whole * whole == value)
    residues = []
    for level, (each, prime) in enumerate(zip(parts.residues, run.tower.primes, strict=True)):
        found = modular.take_power(each, (prime + 1) // 4, prime)
        other = (found * found % prime != each) & (each >= 0)
        if not level:
            run.usage.rooted |= bool((other & (parts.state == algebra.FINITE)).any())
        if run.tower.key % 2:
            found = torch.where(other, prime - found, found)
        residues.append(torch.where(square, whole % prime, found))
    below = parts.has_state(algebra.BELOW, algebra.LOW) | (small & (value < 0))
    return parts.make(residues, torch.where(below, algebra.NAN, parts.state))


def power(run: Run, parts: algebra.Parts, number: Fraction) -> algebra.Parts:
    """The tensor to a rational power, element by element."""
    if number == 1:
        return parts
    if number.denominator == 1:
        count = abs(int(number))
        residues = parts.by_level(lambda each, prime: modular.take_power(each, count, prime))
        found = parts.make(residues, _raise_states(parts, count))
        return algebra.invert(found) if number < 0 else found
    if number.denominator % 2 == 0:
        return power(run, root(run, parts), 2 * number)
    if parts.is_plain:
        pairs = zip(parts.residues, run.tower.primes, strict=True)
        raised = [algebra.raise_rational(each, number, prime) for each, prime in pairs]
        known = [each for each in raised if each is not None]
        if len(known) == len(raised):
            return parts.make(known)
    return apply_opaque(run, f"power {number}", parts)


def _raise_states(parts: algebra.Parts, count: int) -> torch.Tensor | None:
    if parts.is_plain or count == 1:
        return parts.state
    if not count:
        return None
    negative = (algebra.find_signs(parts) < 0) & bool(count % 2)
    found = parts.state.long()
    for low, high in ((algebra.BELOW, algebra.ABOVE), (algebra.LOW, algebra.HIGH)):
        raised = torch.where(negative, low, high)
        found = torch.where(parts.has_state(low, high), raised, found)
    return found


def apply_opaque(run: Run, name: str, *given: algebra.Parts) -> algebra.Parts:
    """A fixed random function of the elements, another for each `name`, odd or even as that is."""
    run.usage.opaque[name] = None
    given = algebra.broadcast(*given)
    firsts = [each.residues[0] for each in given]
    sign: torch.Tensor | None = None
    # erfinv is odd, and not a function of the notation
    parity = FUNCTIONS[name].parity if name in FUNCTIONS else "odd" if name == "erfinv" else ""
    if len(given) == 1 and parity:
        centered = modular.center(firsts[0], run.tower.primes[0])
        sign, firsts = centered.sign(), [centered.abs()]
    states = [each.state.long() for each in given]
    number = sum(ord(index) * 131**place for place, index in enumerate(name)) % (1 << 61)
    residues = []
    for level, prime in enumerate(run.tower.primes):
        found = hash_residues(run.tower.key ^ (number + level), *firsts, *states) % prime
        if sign is not None and parity == "odd":
            found = sign * found % prime
        residues.append(modular.keep_unknown(found, *(each.residues[0] for each in given)))
    state = torch.zeros_like(given[0].state)
    for each in given:
        state = torch.where(each.state == algebra.NAN, algebra.NAN, state)
    return given[0].make(residues, state)


def normalize(run: Run, parts: algebra.Parts, dim: int) -> algebra.Parts:
    """The softmax over a dimension; a row masked by finite numbers alone is an ordinary row."""
    parts = unmask_full_rows(run, parts, dim)
    raised = exp(run, parts)
    found = raised / algebra.reduce_sum(raised, dim, True)
    endless = (parts.state == algebra.ABOVE).any(dim, keepdim=True)
    return found.make(found.residues, found.state.masked_fill(endless, algebra.NAN))


def unmask_full_rows(run: Run, parts: algebra.Parts, dim: int) -> algebra.Parts:
    """The parts with ordinary numbers in rows whose entries are all masked by a finite number.

    NotModelledError where a large number is used as plus infinity.
    """
    if bool((parts.state == algebra.HIGH).any()):
        raise algebra.NotModelledError("exponentials of large numbers")
    soft = parts.state == algebra.LOW
    if not bool(soft.any()):
        return parts
    run.usage.soft_mask = True
    whole = parts.has_state(algebra.LOW, algebra.BELOW).all(dim, keepdim=True) & soft
    return parts.make(
        parts.residues, torch.where(whole, algebra.FINITE, parts.state), parts.companions
    )


def log_sum_exp(run: Run, parts: algebra.Parts, dims: Any, keepdim: bool) -> algebra.Parts:
    """The logarithm of the sum of exponentials; NotModelledError if an entry is very large."""
    if bool((parts.state == algebra.HIGH).any()):
        raise algebra.NotModelledError("exponentials of large numbers")
    return log(run, algebra.reduce_sum(exp(run, parts), dims, keepdim))


_OFFSETS = {
    algebra.BELOW: -(1 << 60),
    algebra.LOW: -(1 << 56),
    algebra.HIGH: 1 << 56,
    algebra.ABOVE: 1 << 60,
    algebra.NAN: 1 << 61,
}
_ONE = 40  # the rank of 1 is 2**40
_LEAST, _SPREAD = 30, 21  # absolute ranks of random elements are 2**30 to 2**51


def find_ranks(run: Run, parts: algebra.Parts) -> torch.Tensor:
    """A rank for each element in the tower's random order; nan has the largest, as in torch.max."""
    prime, first = run.tower.primes[0], parts.residues[0]
    if bool((first < 0).any()):
        raise algebra.NotModelledError("the order of logarithms")
    value, small = algebra.find_small(parts)
    run.usage.ordered |= bool(((parts.state == algebra.FINITE) & ~small).any())
    sign = algebra.find_signs(parts)
    mixed = hash_residues(run.tower.key, torch.where(sign < 0, prime - first, first))
    size = ((mixed & ((1 << _LEAST) - 1)) + (1 << _LEAST)) << ((mixed >> _LEAST) % _SPREAD)
    ranks = torch.where(small, value << _ONE, sign * size)
    for state, offset in _OFFSETS.items():
        start = ranks if state in {algebra.LOW, algebra.HIGH} else 0
        ranks = torch.where(parts.state == state, start + offset, ranks)
    return ranks


def find_larger(
    run: Run, one: algebra.Parts, other: algebra.Parts, *, least: bool
) -> algebra.Parts:
    """The larger of two elements, or the smaller with `least`; nan if one is nan."""
    one, other = algebra.broadcast(one, other)
    ranks = find_ranks(run, one), find_ranks(run, other)
    first = ranks[0] <= ranks[1] if least else ranks[0] >= ranks[1]
    first = (first & (other.state != algebra.NAN)) | (one.state == algebra.NAN)
    return algebra.choose(first, one, other)


def take_abs(run: Run, parts: algebra.Parts) -> algebra.Parts:
    """The absolute value."""
    return algebra.choose(find_ranks(run, parts) < 0, -parts, parts)


def reduce_order(
    run: Run, parts: algebra.Parts, dims: Any, keepdim: bool, *, least: bool
) -> tuple[algebra.Parts, torch.Tensor]:
    """The largest or smallest element over dimensions, and its position in them, flattened."""
    if not parts.rank:
        return parts, torch.zeros((), dtype=torch.int64)
    chosen = algebra.list_dims(parts, dims)
    rest = [dim for dim in range(parts.rank) if dim not in chosen]
    shape = [parts.shape[dim] for dim in rest]
    count = prod(parts.shape[dim] for dim in chosen)
    flat = parts.map(lambda part: part.permute(*rest, *chosen).reshape(*shape, count))
    ranks = find_ranks(run, flat)
    if least:
        ranks = torch.where(flat.state == algebra.NAN, -ranks, ranks)
    place = (ranks.argmin(-1, True) if least else ranks.argmax(-1, True)).long()
    kept = [1 if dim in chosen else n for dim, n in enumerate(parts.shape)] if keepdim else shape
    found = flat.map(lambda part: part.gather(-1, place).reshape(kept).contiguous())
    return found, place.reshape(kept)


def compare(run: Run, relation: str, one: algebra.Parts, other: algebra.Parts) -> torch.Tensor:
    """The truth values of a relation, element by element; with nan only `ne` holds."""
    one, other = algebra.broadcast(one, other)
    nan = (one.state == algebra.NAN) | (other.state == algebra.NAN)
    if relation in {"eq", "ne"}:
        same = one.state == other.state  # and equal residues, where both are known
        for a, b in zip(one.residues, other.residues, strict=True):
            same = same & ((a == b) | (a < 0) | (b < 0))
        run.usage.ordered |= bool(((one.state == 0) & (other.state == 0)).any()) and not bool(
            (algebra.find_small(one)[1] & algebra.find_small(other)[1]).all()
        )
        return ~same | nan if relation == "ne" else same & ~nan
    left, right = find_ranks(run, one), find_ranks(run, other)
    found: torch.Tensor = getattr(torch, relation)(left, right)
    return found & ~nan


# Torch operations by name; functions of the notation by their definitions or derivatives.

_OPAQUE = "erfinv ceil round fmod remainder lgamma digamma floor_divide i0 sinc heaviside copysign"
_RELATIONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
Value = algebra.Parts | Fraction | float


def _opaque(name: str) -> Handler:
    def act(run: Run, *given: Any, **named: Any) -> algebra.Parts:
        if any(value is not None for value in named.values()):
            raise algebra.NotModelledError(name)
        return apply_opaque(run, name, *(run.parts(each) for each in given))

    return act


def _find_end(run: Run, *given: algebra.Parts, least: bool) -> algebra.Parts:
    return reduce(partial(find_larger, run, least=least), given)


def find_sign(run: Run, parts: algebra.Parts) -> algebra.Parts:
    """The signs of the elements in the random order; 0 for nan, as in torch."""
    signs = find_ranks(run, parts).sign()
    return run.parts(signs.masked_fill(parts.state == algebra.NAN, 0))


_PRIMITIVES: dict[str, Callable[..., algebra.Parts]] = {
    "exp": exp,
    "log": log,
    "abs": take_abs,
    "sign": find_sign,
    "conj": lambda run, parts: parts,  # all numbers are real
    "re": lambda run, parts: parts,
    "max": partial(_find_end, least=False),
    "min": partial(_find_end, least=True),
}


def make_parts(run: Run) -> Maker:
    """The constructors of a definition's values over a tower; numbers are kept unconverted."""

    def to_parts(value: Value) -> algebra.Parts:
        return value if isinstance(value, algebra.Parts) else run.parts(value)

    def add_values(one: Value, other: Value) -> Value:
        if isinstance(one, algebra.Parts) or isinstance(other, algebra.Parts):
            return to_parts(one) + to_parts(other)
        return one + other

    def multiply(one: Value, other: Value) -> Value:
        if isinstance(one, algebra.Parts) and isinstance(other, algebra.Parts):
            return one * other
        if isinstance(other, algebra.Parts):
            return run.scale(other, one)
        return run.scale(one, other) if isinstance(one, algebra.Parts) else one * other

    def raise_to(base: Value, exponent: Value) -> Value:
        if isinstance(exponent, algebra.Parts):
            assert isinstance(base, Fraction)
            return raise_number(run, base, exponent)
        if not isinstance(base, algebra.Parts):
            return base**exponent
        return algebra.invert(base) if exponent == -1 else power(run, base, Fraction(exponent))

    def call(name: str, given: tuple[Value, ...]) -> Value:
        if name == "pi":
            return math.pi
        if FUNCTIONS[name].definition:
            found: Value = expand_call(name, given, make)
            return found
        act = _PRIMITIVES.get(name) or (lambda run, *parts: apply_opaque(run, name, *parts))
        return act(run, *map(to_parts, given))

    make = Maker(
        lambda value: value,
        add_values,
        multiply,
        raise_to,
        lambda sign, one, other: compare(run, _RELATIONS[sign], to_parts(one), to_parts(other)),
        lambda condition, one, other: algebra.choose(condition, to_parts(one), to_parts(other)),
        call,
    )
    return make


def _row(spelling: str, *, is_slope: bool = False) -> Handler:
    """The handler of a function by its definition, or of its derivative times a gradient."""

    def act(run: Run, *given: Any, **named: Any) -> algebra.Parts:
        row = find_by_torch_name(spelling, named)
        assert row is not None
        grad, given = (given[0], given[1:]) if is_slope else (None, given)
        names, count = (*row.tensors, *row.defaults), len(row.tensors)
        known = find_call(row.name)
        words = dict(known.keywords) if known else {}
        limits = zip(given[len(names) :], row.least.values(), strict=False)
        if any(value < least for value, least in limits) or any(
            value not in {None, "none", words.get(name)}
            for name, value in named.items()
            if name not in names
        ):
            raise algebra.NotModelledError(f"{spelling} with such arguments")
        make = make_parts(run)
        elements = [run.parts(each) for each in given[: None if row.is_variadic else count]]
        if row.is_variadic or not row.definition:
            found: algebra.Parts = make.call(row.name, tuple(elements))
            return found
        numbers = [_to_number(each) for each in given[count : len(names)]]
        values = bind(row, [*elements, *numbers], make)
        values |= {name: _to_number(named[name]) for name in row.defaults if name in named}
        found = read_definition(row.derivative if is_slope else row.definition, values, make)
        return run.parts(grad) * found if is_slope else found

    return act


def _to_number(value: Any) -> Value:
    return elements.to_fraction(value) or float(value)


def raise_number(run: Run, base: Fraction, parts: algebra.Parts) -> algebra.Parts:
    """A positive rational to the powers of elements, exact for small integers."""
    logarithm = algebra.fill(run.tower, (), elements.embed_logarithm(run.tower, base))
    found = exp(run, parts * logarithm)
    value, small = algebra.find_small(parts)
    count = torch.where(small, value, 0)
    pairs = zip(run.tower.embed(base), run.tower.primes, strict=True)
    whole = [modular.raise_each(torch.full_like(count, each), count, p) for each, p in pairs]
    return algebra.choose(small, parts.make(whole), found)


def _times_log(run: Run, one: Any, other: Any) -> algebra.Parts:
    """The product x * log(y), 0 where x is 0."""
    here, there = run.parts(one), run.parts(other)
    zero = (here.residues[0] == 0) & (here.state == algebra.FINITE) & (there.state != algebra.NAN)
    return here * log(run, algebra.choose(zero, run.parts(1), there))


def _clamp(run: Run, value: Any, low: Any = None, high: Any = None) -> algebra.Parts:
    parts = run.parts(value)
    for bound, least in ((low, False), (high, True)):
        if bound is not None:
            parts = find_larger(run, parts, run.parts(bound), least=least)
    return parts


def _max(run: Run, value: Any, dim: Any = None, keepdim: bool = False, *, least: bool) -> Any:
    if isinstance(dim, torch.Tensor):
        return find_larger(run, run.parts(value), run.parts(dim), least=least)
    found = reduce_order(run, run.parts(value), dim, keepdim, least=least)
    return found[0] if dim is None else found


def _reduce(number: int) -> Handler:
    """The handler that returns the largest or `least` value (number 0), or its position (1)."""
    return lambda run, value, dims=None, keepdim=False, *, least: reduce_order(
        run, run.parts(value), dims, keepdim, least=least
    )[number]


def _sort(
    run: Run, value: Any, dim: int = -1, descending: bool = False, **_: Any
) -> tuple[algebra.Parts, torch.Tensor]:
    parts = run.parts(value)
    ranks = find_ranks(run, parts)
    places = torch.sort(ranks, dim=dim, descending=descending, stable=True).indices
    return parts.map(lambda part: part.gather(dim, places)), places


def _search(
    run: Run, ascending: Any, values: Any, *, right: bool = False, **_: Any
) -> torch.Tensor:
    ranks = (find_ranks(run, run.parts(each)) for each in (ascending, values))
    return torch.searchsorted(*ranks, right=right)


def _cumulate_extreme(
    run: Run, value: Any, dim: int, *, least: bool
) -> tuple[algebra.Parts, torch.Tensor]:
    parts = run.parts(value)
    ranks = find_ranks(run, parts)
    places = (ranks.cummin(dim) if least else ranks.cummax(dim)).indices
    return parts.map(lambda part: part.gather(dim, places)), places


def _compare(relation: str) -> Handler:
    return lambda run, one, other: compare(run, relation, run.parts(one), run.parts(other))


_EXTREMES = {"": _max, "a": _reduce(0), "arg": _reduce(1), "cum": _cumulate_extreme}

POINTWISE: dict[str, Handler] = {
    **{name: _opaque(name) for name in _OPAQUE.split()},
    **{name: _row(name) for row in FUNCTIONS.values() for name in row.spellings.split()},
    **{row.backward: _row(row.name, is_slope=True) for row in FUNCTIONS.values() if row.backward},
    **{name: _compare(name) for name in _RELATIONS.values()},
    **{f"{word}max": partial(act, least=False) for word, act in _EXTREMES.items()},
    **{f"{word}min": partial(act, least=True) for word, act in _EXTREMES.items()},
    "neg": lambda run, value: -run.parts(value),
    "xlogy": _times_log,
    "log_sigmoid_forward": lambda run, value: (_row("logsigmoid")(run, value), run.parts(value)),
    "clamp": _clamp,
    "sort": _sort,
    "searchsorted": _search,
}
