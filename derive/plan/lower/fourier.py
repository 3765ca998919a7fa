"""Sums computed by fast Fourier transforms instead of a product for each pair of positions.

    sum_n x_n exp(-2 pi i k n / M)     one transform; likewise for cos and sin; n and k modulo M
    sum_n f_n g_(k - n)                a convolution: both are transformed, multiplied, and
    sum_n f_n g_(k + n)                transformed back; cyclic or zero-padded, in any dimension

The rounding errors of a convolution are relative to the largest values of its rows, and an entry
that is not finite makes its whole row nan. So it is used only where neither matters.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from math import gcd, lcm, log2

from derive.analysis.facts import find_range, is_integer, is_never_negative, is_positive, is_whole
from derive.ir import nodes as ir
from derive.ir.functions import holds_complex, is_complex
from derive.ir.polynomial import NOTHING, Polynomial, is_same_extent
from derive.ir.walk import (
    exchange,
    find_accesses,
    find_free,
    find_names,
    is_bracket,
    is_reading,
    rename_apart,
    rewrite_bottom_up,
    walk,
)
from derive.plan import ops
from derive.plan.lower.condition import expand_to_indices
from derive.plan.lower.context import Context
from derive.rewrite.rule import put_value
from derive.rewrite.rules.offsets import Offset, express_by, find_offsets, find_run, to_polynomial
from derive.rewrite.rules.sums import find_factors

WAVES = "transform_wave: sum_n x_n * exp(-2*pi*I*k*n/M) is a fast Fourier transform"
PRODUCTS = (
    "transform_product: sum_n f_n * g_(k - n) is a product of Fourier transforms, transformed back;"
    " it loses digits of what is small beside the largest values of its row, and a row with an"
    " entry that is not finite is nan"
)
STEP = 5  # products in the time of one of the log2(length) steps of a transform
WHOLE = 64  # multiple to which a free length is rounded up: large prime factors are slow
TWICE = ir.Number(Fraction(2))
ONE, TWO = Polynomial.of(1), Polynomial.of(2)
UNIT, PI = ir.Call("I", ()), ir.Call("pi", ())
TURN = TWO * Polynomial.of(PI)


def lower_transformed(
    total: ir.Reduce, context: Context, order: tuple[ir.Index, ...]
) -> ops.Op | None:
    """Lower a sum with a wave, or a long convolution, by transforms; None for other sums."""
    op = _lower_wave(total, context, order)
    if op is not None:
        context.notes[WAVES] = None
        return op
    found = find_convolution(total) if total in context.roundable else None
    if found is None or not all(map(context.is_finite, (found.one, found.table))):
        return None
    if not _is_faster(total, found, context):
        return None
    context.notes[PRODUCTS] = None
    return _lower_convolution(found, context, order)


# A wave: exp(i (c k + s) n + ..), or its real or imaginary part, with c = -2 pi / M or 2 pi / M.
# `part` is "re" or "im" for a real wave, "" for a complex one.


@dataclass(frozen=True, slots=True)
class Wave:
    """An angle c*k*n + slope*n + rest with |c| = 2 pi / M: the sign of c, M, slope and rest."""

    index: ir.Index
    frequency: ir.Index
    length: Polynomial
    sign: int
    slope: Polynomial
    rest: Polynomial


def _lower_wave(total: ir.Reduce, context: Context, order: tuple[ir.Index, ...]) -> ops.Op | None:
    factors = find_factors(total.body)
    for place, factor in enumerate(factors):
        angle, damping, part = _read_angle(factor)
        others = [*factors[:place], *factors[place + 1 :]]
        if isinstance(factor, ir.Add) and all(_has_wave(t, total.bound) for t in factor.terms):
            return context.lower(_distribute_terms(total, others, factor.terms), order)
        others += [ir.Call("exp", (damping.to_expr(),))] if damping.terms else []
        if part and any(map(is_complex, others)):
            continue
        for wave in _find_waves(angle, _sort_stored(total)):
            inside = [f for f in others if wave.index in find_free(f)]
            is_apart = not any(wave.frequency in find_free(f) for f in inside)
            is_free = wave.index not in find_free(total.condition)
            if not (is_apart and is_free and all(map(context.is_finite, inside))):
                continue
            if not _is_long(wave, context):
                continue
            added = wave.slope * Polynomial.of(wave.index) if wave.slope.terms else wave.rest
            is_late = {*total.bound} & {*wave.rest.atoms} and not wave.slope.terms
            if part and added.terms and not is_late:
                terms = _split_angle(part, angle - added, added)
                return context.lower(_distribute_terms(total, others, terms), order)
            outside = [f for f in others if f not in inside]
            return _write_wave(total, wave, part, (inside, outside), context, order)
    return None


def _sort_stored(total: ir.Reduce) -> list[ir.Index]:
    """Return the bound indices by decreasing position in their reads: contiguous ones first."""
    reads = [access for access in find_accesses(total.body) if len(access.places) > 1]
    last = {
        i: max([r.places.index(i) for r in reads if i in r.places], default=0) for i in total.bound
    }
    return sorted(total.bound, key=lambda index: -last[index])


def _has_wave(term: ir.Expr, bound: Sequence[ir.Index]) -> bool:
    angles = (_read_angle(factor)[0] for factor in find_factors(term))
    return any(True for angle in angles for _ in _find_waves(angle, bound))


def _distribute_terms(total: ir.Reduce, others: list[ir.Expr], terms: Sequence[ir.Expr]) -> ir.Expr:
    """Return `total`, a sum of `others` times a sum of `terms`, as a sum of a sum for each."""
    bodies = (ir.product_of([*others, *find_factors(term)]) for term in terms)
    return ir.Add(tuple(ir.Reduce("sum", total.bound, total.condition, b) for b in bodies))


def _split_angle(part: str, one: Polynomial, other: Polynomial) -> tuple[ir.Expr, ...]:
    """Return the two terms of cos(one + other), or of sin(one + other)."""
    kinds = (("cos", "cos"), ("sin", "sin")) if part == "re" else (("sin", "cos"), ("cos", "sin"))
    angles = one.to_expr(), other.to_expr()
    first, last = (
        tuple(ir.Call(f, (a,)) for f, a in zip(each, angles, strict=True)) for each in kinds
    )
    return ir.Mul(first), ir.Mul((*([ir.MINUS_ONE] if part == "re" else []), *last))


def _read_angle(factor: ir.Expr) -> tuple[Polynomial, Polynomial, str]:
    """Return (angle, damping, part) of exp(i angle + damping), or of its part re or im."""
    match factor:
        case ir.Call("cos" | "sin" as function, (angle,)):
            return Polynomial.of(angle), NOTHING, "re" if function == "cos" else "im"
        case ir.Call("exp", (exponent,)):
            found = Polynomial.of(exponent).split_linear(UNIT)
        case ir.Pow(ir.Call("exp", (exponent,)), power):
            found = (Polynomial.of(exponent) * Polynomial.of(power)).split_linear(UNIT)
        case _:
            found = None
    return (*found, "") if found else (NOTHING, NOTHING, "")


def reduce_angle(expr: ir.Expr, equations: Sequence[ir.Equation]) -> ir.Expr:
    """Replace 2*pi*p/q in a wave's angle, p and q integers, by 2*pi*(p % q)/q to keep digits."""
    wave, kinds = expr, (ir.Scalar, ir.Access, ir.Reduce, ir.Along)
    for equation in reversed(equations if isinstance(expr, (ir.Call, ir.Pow)) else ()):
        if is_reading(wave, equation.target.tensor):
            is_counted = not any(isinstance(part, kinds) for part in walk(equation.value))
            wave = put_value(wave, equation) if is_counted else wave
    angle, damping, part = _read_angle(wave)
    match wave:
        case ir.Call("tan" as part, (value,)):
            angle = Polynomial.of(value)
    turns, rest = angle.split_linear(PI) or (NOTHING, angle)
    quotients: dict[Polynomial, Polynomial] = {}
    for monomial, number in turns.terms.items():
        under, over = ONE, Polynomial.of(number)
        for atom, power in monomial:
            match atom:
                case ir.Pow(base, exponent) if exponent is ir.MINUS_ONE:
                    under *= Polynomial.of(ir.Pow(base, ir.Number(Fraction(power))))
                case _ if power < 0:
                    under *= Polynomial.atom(atom, -power)
                case _:
                    over *= Polynomial.atom(atom, power)
        quotients[under] = quotients.get(under, NOTHING) + over
    terms = [(_reduce_turns(over, under), over, under) for under, over in quotients.items()]
    if not any(each for each, _, _ in terms):
        return expr
    own = [e or ir.Mul((PI, p.to_expr(), ir.Pow(q.to_expr(), ir.MINUS_ONE))) for e, p, q in terms]
    own += [rest.to_expr()] if rest.terms else []
    if part:
        return ir.Call({"re": "cos", "im": "sin"}.get(part, part), (ir.sum_of(own),))
    own = [ir.product_of([UNIT, *find_factors(term)]) for term in own]
    return ir.Call("exp", (ir.sum_of([*own, *([damping.to_expr()] if damping.terms else [])]),))


def _reduce_turns(over: Polynomial, under: Polynomial) -> ir.Expr | None:
    """Return the angle pi * over / under modulo 2 pi; None if it is in that range anyway."""
    scale = Polynomial.of(lcm(*(number.denominator for number in over.terms.values())))
    whole, period = over * scale, TWO * scale * under
    numbers = (*whole.terms.values(), *period.terms.values())
    common = gcd(*(number.numerator for number in numbers))
    sign = -1 if all(number < 0 for number in whole.terms.values()) else 1
    whole *= Polynomial.of(Fraction(sign, common))
    period *= Polynomial.of(Fraction(1, common))
    ends = find_range(whole)
    is_short = ends.low is not None and is_never_negative(period + ends.low)
    is_short = is_short and ends.high is not None and is_never_negative(period - ends.high)
    if is_short or not (is_whole(whole) and is_whole(period) and is_positive(period)):
        return None
    turns, length = whole.to_expr(), period.to_expr()
    for atom in whole.atoms:
        slope, rest = whole.split_linear(atom) or (ONE, ONE)
        turns = turns if rest.terms else ir.product_of([atom, *find_factors(slope.to_expr())])
    for read in whole.atoms:  # prevents overflow of products of integers
        if isinstance(read, ir.Access) and turns is not read:
            turns = exchange(turns, read, ir.Call("mod", (read, length)))
    step = Polynomial.of(sign) * TURN * Polynomial.of(ir.Pow(length, ir.MINUS_ONE))
    return ir.Mul((*find_factors(step.to_expr()), ir.Call("mod", (turns, length))))


def _find_waves(angle: Polynomial, bound: Sequence[ir.Index]) -> Iterator[Wave]:
    for index in bound:
        halves = angle.split_linear(index)
        for frequency in halves[0].atoms if halves else ():
            parts = halves[0].split_linear(frequency) if halves else None
            if not isinstance(frequency, ir.Index) or parts is None or len(parts[0].terms) != 1:
                continue
            inverse = Polynomial.of(ir.Pow(parts[0].to_expr(), ir.MINUS_ONE)) * TURN
            sign = 1 if all(number > 0 for number in inverse.terms.values()) else -1
            length = inverse if sign > 0 else -inverse
            others = [a for each in (*parts, length) for a in each.atoms]
            is_whole = is_integer(length) and not any(
                isinstance(a, (ir.Index, ir.Access)) for a in others
            )
            if is_whole and halves and is_positive(length):
                yield Wave(index, frequency, length, sign, parts[1], halves[1])


def _is_long(wave: Wave, context: Context) -> bool:
    """Whether there are enough positions for a transform to be faster."""
    length = context.extent(ir.Index("", wave.length.to_expr()))
    there = [context.extent(wave.index), context.extent(wave.frequency)]
    return there[0] * there[1] > STEP * length * log2(max(2, length))


def _to_wave(angle: Polynomial) -> ir.Expr:
    return ir.Call("exp", ((Polynomial.of(UNIT) * angle).to_expr(),))


def _write_wave(  # noqa: PLR0913, PLR0917 - the sum, the wave, the other factors
    total: ir.Reduce,
    wave: Wave,
    part: str,
    factors: tuple[list[ir.Expr], list[ir.Expr]],
    context: Context,
    order: tuple[ir.Index, ...],
) -> ops.Op:
    """Add the transform of the first `factors` as a step; lower the sum of it times the second."""
    inside, outside = factors
    is_conjugate = bool(part) and wave.sign > 0  # use the conjugate wave, exp(-i angle)
    rest = -wave.rest if is_conjugate else wave.rest
    inside += [_to_wave(wave.slope * Polynomial.of(wave.index))] if wave.slope.terms else []
    body = ir.product_of(inside)
    is_real, is_forward = not is_complex(body), bool(part) or wave.sign < 0
    short = ONE + TWO * Polynomial.of(wave.frequency.extent)
    kind = "ifft" if not (is_forward or is_real) else "fft"
    if is_real and is_never_negative(wave.length + ONE + TWO - short):
        kind = "rfft"
    inner = (*(i for i in order if i not in total.bound), *total.bound)
    op = expand_to_indices(context.lower(body, inner), (wave.index,), (wave.index,))
    op = ops.arrange(op, (*(i for i in op.axes if i is not wave.index), wave.index))
    op, axis = transform(op, wave.index, wave.frequency, wave.length, kind)
    source = context.add_step(op)
    place: ir.Expr = wave.frequency
    if not is_never_negative(wave.length - Polynomial.of(wave.frequency.extent)):
        place = ir.Call("mod", (place, wave.length.to_expr()))
    places = tuple(place if i is axis else i for i in source.axes)
    tensor = ir.Tensor(source.name, tuple(i.extent for i in source.axes), "complex")
    read: ir.Expr = ir.Access(tensor, places)
    read = read if is_forward or not is_real else ir.Call("conj", (read,))
    read = ir.product_of([read, _to_wave(rest)]) if rest.terms else read
    left = tuple(i for i in total.bound if i is not wave.index)
    sign = [ir.MINUS_ONE] if is_conjugate and part == "im" else []
    if part and not rest.terms:
        read, part = ir.product_of([*sign, ir.Call(part, (read,))]), ""
        sign = []
    whole = ir.product_of([*outside, read])
    if left or total.condition is not ir.TRUE:
        whole = ir.Reduce("sum", left, total.condition, whole)
    whole = ir.product_of([*sign, ir.Call(part, (whole,))]) if part else whole
    found = context.lower(whole, order)
    if is_complex(whole) or holds_complex(total):
        return found
    match found:  # transforms of half precision are float32: cast back
        case ops.Apply("neg", (arg,), axes):
            return ops.Apply("neg", (ops.Cast(arg),), axes)
    return ops.Cast(found)


def transform(
    op: ops.Op, index: ir.Index, to: ir.Index, length: Polynomial, kind: str
) -> tuple[ops.Op, ir.Index]:
    """Return (the transform along an index, its index: `to`, or a new one of another extent)."""
    extent = length.to_expr()
    whole = ir.Add((ir.Call("floordiv", (extent, TWICE)), ir.ONE)) if kind == "rfft" else extent
    names = {i.name for i in op.axes} - {index.name}
    is_all = is_same_extent(whole, to.extent)
    axis = to if is_all else rename_apart(ir.Index("f", whole), {*names, to.name})
    return ops.Fourier(op, index, axis, extent, kind, kind == "ifft"), axis


# A convolution, as a product of transforms.


@dataclass(frozen=True, slots=True)
class Pair:
    """A summed and a kept index of a convolution; g depends on their sum or difference only.

    The table of g runs over `run`. `flipped` names the operand with reversed positions, whose
    transform is conjugated. `padding` zeros precede the operand that is read at negative positions.
    """

    summed: ir.Index
    kept: ir.Index
    run: ir.Index
    length: Polynomial  # of the transforms
    start: Polynomial  # the position in the cyclic result at which `kept` is 0
    flipped: str
    padding: Polynomial


@dataclass(frozen=True, slots=True)
class Convolution:
    """A sum of f, `one`, times g, `table`, times the factors outside of the sum."""

    pairs: tuple[Pair, ...]
    one: ir.Expr
    table: ir.Expr
    bound: tuple[ir.Index, ...]  # further summed indices
    outside: tuple[ir.Expr, ...]


def find_convolution(total: ir.Reduce) -> Convolution | None:
    """Return a sum as a convolution, or None, as where no factor depends on offsets alone."""
    if holds_complex(total):
        return None
    factors, taken = find_factors(total.body), find_names(total)
    values = [f for f in factors if not is_bracket(f)]
    guards = [c for c in ir.split_and(total.condition) if c is not ir.TRUE]
    guards += [c for f in factors if is_bracket(f) for c in ir.split_and(f.condition)]
    ends: dict[ir.Index, Offset] = {}
    summed: list[ir.Index] = []
    for offset in find_offsets(ir.product_of([*values])):
        indices = [i for i, _ in offset]
        mine = [i for i in indices if i in total.bound]
        is_pair = len(indices) == 2 and len(mine) == 1 and all(abs(n) == 1 for _, n in offset)
        if is_pair and not {*indices} & {*summed, *ends}:
            (kept,) = (i for i in indices if i not in mine)
            ends[kept], summed = offset, [*summed, *mine]
    both = [f for f in values if {*find_free(f)} & {*summed} and {*find_free(f)} & {*ends}]
    others = [f for f in values if f not in both]
    one = [f for f in others if {*find_free(f)} & {*total.bound}]
    outside = [f for f in others if f not in one]
    if not both or not {*summed} <= {i for f in one for i in find_free(f)}:
        return None
    table, pairs = ir.product_of(both), list[Pair]()
    left_guards = guards
    for kept, offset in ends.items():
        (index,) = (i for i, _ in offset if i is not kept)
        steps = offset, tuple((i, -n) for i, n in offset)
        ways = [_find_cycle(table, index, kept, each, taken) for each in steps]
        if not any(ways):
            is_up = dict(offset)[index] > 0 or dict(offset)[kept] > 0
            ways = [_find_line(table, index, kept, steps[not is_up], left_guards, taken)]
        found = next(filter(None, ways), None)
        if found is None:
            return None
        table, pair, gone = found
        left_guards = [g for g in left_guards if g not in gone]
        pairs.append(pair)
        taken = taken | {pair.run.name}
    left = [_to_bracket(g) for g in left_guards]
    if any({*find_free(g)} & {*ends} for g in left):
        return None
    one += [g for g in left if {*find_free(g)} & {*total.bound}]
    outside += [g for g in left if not {*find_free(g)} & {*total.bound}]
    bound = tuple(i for i in total.bound if i not in summed)
    if len({pair.flipped for pair in pairs}) > 1:
        return None
    return Convolution(tuple(pairs), ir.product_of(one), table, bound, tuple(outside))


def _to_bracket(condition: ir.Expr) -> ir.Expr:
    return ir.Where(condition, ir.ONE, ir.ZERO)


def _find_cycle(
    table: ir.Expr, index: ir.Index, kept: ir.Index, offset: Offset, taken: set[str]
) -> tuple[ir.Expr, Pair, set[ir.Expr]] | None:
    """Return (g over one period, the pair, set()); None if no offset is used modulo the period."""
    value, steps = to_polynomial(offset), dict(offset)
    cycles = {
        Polynomial.of(part.arguments[1])
        for part in walk(table)
        if isinstance(part, ir.Call)
        and part.function == "mod"
        and not find_free(part.arguments[1])
        and not {index, kept} & {*find_free((Polynomial.of(part.arguments[0]) - value).to_expr())}
    }
    if len(cycles) != 1 or (steps[index], steps[kept]) == (-1, -1):
        return None
    (length,) = cycles
    run = rename_apart(ir.Index("u", length.to_expr()), taken)
    whole = express_by(table, offset, Polynomial.of(run))
    if whole is None or not all(
        is_never_negative(length - Polynomial.of(i.extent)) for i in (index, kept)
    ):
        return None

    def fold_modulus(part: ir.Expr, *, gone: bool) -> ir.Expr:
        match part:
            case ir.Call("mod", (place, over)) if Polynomial.of(over) == length:
                is_plain = Polynomial.of(place) == Polynomial.of(run)
                return ir.ZERO if gone else run if is_plain else part
        return part

    if run in find_free(rewrite_bottom_up(whole, partial(fold_modulus, gone=True))):
        return None
    whole = rewrite_bottom_up(whole, partial(fold_modulus, gone=False))
    flipped = {(1, 1): "one", (-1, 1): "", (1, -1): "table"}[steps[index], steps[kept]]
    return whole, Pair(index, kept, run, length, NOTHING, flipped, NOTHING), set()


def _find_line(  # noqa: PLR0913, PLR0917 - a table, a pair of indices, and its guards
    table: ir.Expr,
    index: ir.Index,
    kept: ir.Index,
    offset: Offset,
    guards: Sequence[ir.Expr],
    taken: set[str],
) -> tuple[ir.Expr, Pair, set[ir.Expr]] | None:
    """Return (g over the offsets that are read, the pair, the conditions in g), or None."""
    value, steps = to_polynomial(offset), dict(offset)
    low, count, gone = find_run(value, guards)
    if low is None or count is None:
        return None
    run = rename_apart(ir.Index("u", count.to_expr()), taken)
    about = [g for g in guards if g not in gone and {index, kept} <= {*find_free(g)}]
    whole = ir.product_of([*find_factors(table), *map(_to_bracket, about)])
    whole = express_by(whole, offset, Polynomial.of(run) + low) or ir.ZERO
    if whole is ir.ZERO:
        return None
    own, other = (Polynomial.of(i.extent) for i in (index, kept))
    both = steps[index], steps[kept]
    flipped = {(1, 1): "one", (-1, 1): "", (1, -1): "table"}[both]
    first = low if flipped == "table" else -low
    last = first + other - ONE
    # The cyclic result is nonzero from `start` to `end`, modulo the length.
    start, end = {
        "one": (ONE - own, count - ONE),
        "": (NOTHING, own + count - TWO),
        "table": (ONE - count, own - ONE),
    }[flipped]
    padding = NOTHING if is_never_negative(first) else -first
    if not is_never_negative(padding):
        return None
    longer = own if flipped == "table" else count
    least = [
        end - first + ONE,
        last - start + ONE,
        last + padding + ONE,
        own,
        count,
        longer + padding,
        own + count + other + padding,
    ]
    facts = tuple(each - ONE for each in (own, other, count))  # extents of 0 need no result
    length = next(
        (e for e in least if all(is_never_negative(e - each, facts) for each in least[:-1])), None
    )
    if length is None:
        return None
    pair = Pair(index, kept, run, _round_up(length), first + padding, flipped, padding)
    return whole, pair, {*gone, *about}


def _round_up(length: Polynomial) -> Polynomial:
    """Return the next multiple of WHOLE."""
    number = ir.Number(Fraction(WHOLE))
    up = (length + Polynomial.of(WHOLE - 1)).to_expr()
    return Polynomial.of(number) * Polynomial.of(ir.Call("floordiv", (up, number)))


def _is_faster(total: ir.Reduce, found: Convolution, context: Context) -> bool:
    """Whether the steps of the transforms take less time than the products."""
    spanned = {*total.bound, *find_free(total)}
    steps = 0.0
    for free in (find_free(found.one), find_free(found.table), find_free(total)):
        own = {i for pair in found.pairs for i in (pair.summed, pair.run, pair.kept)}
        lengths = [context.extent(ir.Index("", pair.length.to_expr())) for pair in found.pairs]
        count = reduce(int.__mul__, lengths, context.count(i for i in free if i not in own))
        steps += count * sum(log2(max(2, length)) for length in lengths)
    return STEP * context.count(spanned) > steps


def _lower_convolution(found: Convolution, context: Context, order: tuple[ir.Index, ...]) -> ops.Op:
    taken = {i.name for i in order} | {p.run.name for p in found.pairs} | context.names
    frequencies, spectra = list[ir.Index](), list[ops.Op]()
    for number, pair in enumerate(found.pairs):
        half = number == len(found.pairs) - 1
        length = pair.length.to_expr()
        extent = ir.Add((ir.Call("floordiv", (length, TWICE)), ir.ONE)) if half else length
        frequencies.append(rename_apart(ir.Index("f", extent), taken))
        taken.add(frequencies[-1].name)
    for side, expr in (("one", found.one), ("table", found.table)):
        places = [pair.summed if side == "one" else pair.run for pair in found.pairs]
        op = context.lower(expr, (*(i for i in order if i not in places), *found.bound, *places))
        for index in places:
            op = expand_to_indices(op, (index,), (index,))
        op = ops.arrange(op, (*(i for i in op.axes if i not in places), *places))
        for pair, index, frequency in reversed(
            list(zip(found.pairs, places, frequencies, strict=True))
        ):
            kind = "rfft" if frequency is frequencies[-1] else "fft"
            if pair.padding.terms and side == ("one" if pair.flipped == "table" else "table"):
                op, index = _pad_front(op, index, pair.padding)  # noqa: PLW2901 - the padded index
            op, _ = transform(op, index, frequency, pair.length, kind)
        spectra.append(context.add_step(op))
    flipped = found.pairs[0].flipped
    if flipped:
        place = ("one", "table").index(flipped)
        spectra[place] = ops.Apply("conj", (spectra[place],), spectra[place].axes)
    union = dict.fromkeys(i for op in spectra for i in op.axes)
    batch = [i for i in union if i not in frequencies and i not in found.bound]
    axes = (*ops.sort_axes(batch, order), *frequencies)
    product: ops.Op = ops.Einsum(tuple(spectra), axes)
    if not found.bound:
        product = ops.combine("*", spectra, axes)
    for pair, frequency in zip(found.pairs, frequencies, strict=True):
        kind = "irfft" if frequency is frequencies[-1] else "ifft"
        length = pair.length.to_expr()
        axis = rename_apart(ir.Index("u", length), taken)
        is_whole = is_same_extent(length, pair.kept.extent) and not pair.start.terms
        axis = pair.kept if is_whole else axis
        product = ops.Fourier(product, frequency, axis, length, kind)
        place = product.axes.index(axis)
        if not is_whole:
            product = ops.Slice(product, place, pair.kept, pair.start.to_expr())
    result: ops.Op = ops.Cast(product)
    axes = ops.sort_axes(result.axes, order)
    if found.outside:
        source = context.add_step(ops.arrange(result, axes))
        whole = ir.product_of([*found.outside, ir.name_axes(source.name, source.axes)])
        return context.lower(whole, order)
    return ops.arrange(result, axes)


def _pad_front(op: ops.Op, index: ir.Index, padding: Polynomial) -> tuple[ops.Op, ir.Index]:
    """Return (the operation with zeros before the first position of an index, the longer index)."""
    extent = (Polynomial.of(index.extent) + padding).to_expr()
    longer = ir.Index(index.name, extent)
    place = op.axes.index(index)
    return ops.Pad(op, place, longer, padding.to_expr()), longer
