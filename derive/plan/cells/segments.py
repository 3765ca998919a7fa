"""Sums over parts of a range.

Rows of a table that integers name, summed over one of their two indices, are its embedding_bag.

prod_{j <= i} x_j is its cumprod, log sum_{j <= i} exp(x_j) its logcumsumexp, max_{j <= i} x_j the
values of its cummax, and from i on the same of what is read backwards. Up to i - c these are read
c places on, after as many neutral numbers.

sum_d q_id (sum_{j <= i} k_jd v_je) takes chunks of places: within one the scores of its own places,
before it one running sum, so that neither every k_jd v_je nor every score is kept.

sum_j [a_j <= b_i] v_j is the running sum of v in the order of a, read at the place of b_i there: a
sort and a search instead of all pairs. So are a largest entry, a product and a logsumexp, and the
number of entries, which is that place. Nothing is subtracted but whole numbers, so it rounds as a
running sum does. One order serves all bounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from derive.analysis.facts import is_never_negative
from derive.ir import nodes as ir
from derive.ir.functions import FOLDS
from derive.ir.polynomial import Polynomial, is_same_extent
from derive.ir.walk import rename_apart
from derive.plan import ops
from derive.plan.cells.matching import (
    LACKS,
    CellRule,
    Definitions,
    is_same,
    join_product,
    rename,
    strip,
)
from derive.plan.cost import find_true_axes
from derive.plan.lower.product import NEUTRAL
from derive.plan.steps import free_name

RUNNING = "_sum_so_far"  # a function of the file
LATER = "sums so far, in chunks: 0 * x = 0, so entries that come later must be finite"
RANKS, COUNT, BELOW = "_find_ranks", "_count_below", "_reduce_below"  # others
SO_FAR = {
    "prod": ".cumprod",
    "logsumexp": ".logcumsumexp",
    "max": ".cummax",  # and the places, which are left
    "min": ".cummin",
}
EQUAL = "of equal largest or smallest entries so far the last one alone has a derivative"
PAIRED = 64  # comparisons of an element in whose time it is sorted: fewer stay comparisons
# Operations in whose time one is ranked, found among others, or among its equals, and in which one
# is added to those before it; measured as the machine's defaults, with rows of 512 and of 2048.
SORTED, SOUGHT, TIED, SUMMED, LOGGED = 900, 1024, 120, 60, 500


def match_so_far(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A reduction over a triangle of what has the index that is bound alone."""
    match op:
        case ops.Reduction(kind, ops.Choose(mask, then, neutral, every), (bound,)):
            triangle, value = strip(definitions.look(strip(mask))), strip(then)
        case _:
            return None
    is_real = not (ops.is_integral(value) or ops.is_boolean(value))
    if kind not in SO_FAR or neutral != NEUTRAL[kind] or not is_real:
        return None
    if not isinstance(triangle, ops.Triangle):
        return None
    edges = [i for i in (triangle.rows, triangle.columns) if i is not bound]
    offset = Polynomial.of(triangle.offset) * Polynomial.of(1 if triangle.upper else -1)
    if len(edges) != 1 or not is_never_negative(offset) or bound not in ops.axes_of(value):
        return None
    (edge,) = edges
    if edge in ops.axes_of(value) or not is_same_extent(edge.extent, bound.extent):
        return None
    axes = tuple(edge if i is bound else i for i in ops.axes_of(value))
    if set(axes) != set(ops.axes_of(op)):
        return None
    is_backwards = triangle.upper == (bound is triangle.columns)
    place = axes.index(edge)
    is_extreme = kind in {"max", "min"}
    wide = ops.TorchCall("torch.promote_types", (ops.Local("dtype"), ops.Local("torch.float32")))
    call: ops.Operand = ops.TorchCall(".to", (ops.Given(0), wide))  # half has too few digits
    call = ops.TorchCall(".flip", (call, place)) if is_backwards else call
    call = ops.TorchCall(SO_FAR[kind], (call, place))
    call = ops.Pick(call, (0,)) if is_extreme else call
    args: tuple[ops.Op, ...] = (value,)
    if triangle.offset is not ir.ZERO:  # places so far on read what is there
        args = (value, ops.Num(offset.to_expr()), ops.Num(edge.extent))
        empty = {"prod": "1", "min": "torch.inf"}.get(kind, "-torch.inf")
        amounts: tuple[ops.Operand, ...] = (0,) * (2 * (len(axes) - place - 1)) + (ops.Given(1), 0)
        call = ops.TorchCall(
            "torch.nn.functional.pad", (call, amounts), (("value", ops.Local(empty)),)
        )
        call = ops.TorchCall(".narrow", (call, place, 0, ops.Given(2)))
    call = ops.TorchCall(".flip", (call, place)) if is_backwards else call
    call = ops.TorchCall(".to", (call, ops.Local("dtype")))
    shown, taken = ops.align((triangle, value), every)
    whole = ops.Reduction(kind, ops.Choose(shown, taken, neutral, every), (bound,))
    cell = ops.Cell(call, args, ops.arrange(whole, axes), axes, note=EQUAL if is_extreme else "")
    return ops.arrange(cell, ops.axes_of(op))


def match_running_product(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A contraction with the running sum of a product, perhaps without what each place adds."""
    match op:
        case ops.Einsum((one, other), axes) if definitions.chunks:
            pairs = ((one, other), (other, one))
        case _:
            return None
    for query, total in pairs:
        match strip(definitions.unwrap(total)):
            case ops.Apply("-", (left, own)):
                running, is_strict = strip(definitions.unwrap(left)), True
            case running:
                own, is_strict = running, False
        if not isinstance(running, ops.Along) or running.kind != "cumsum":
            continue
        added = definitions.look(strip(running.arg))
        chunk = free_name(f"{running.index.name}_chunk", definitions.names)
        if is_strict and not is_same(definitions.look(strip(own)), added):
            continue
        match strip(added):
            case ops.Apply("*", (key, value)):
                factors = (strip(key), strip(value))
                for pair in (factors, factors[::-1]):
                    taken = (strip(query), *pair)
                    found = _write_product(taken, (running.index, chunk), axes, is_strict)
                    if found is not None:
                        return found
    return None


def _write_product(
    factors: tuple[ops.Op, ops.Op, ops.Op],
    along: tuple[ir.Index, str],
    order: tuple[ir.Index, ...],
    is_strict: bool,
) -> ops.Op | None:
    """The call, where the query and the key have one index that the value and the result lack."""
    (query, key, value), (index, chunk) = factors, along
    summed = [
        i
        for i in ops.axes_of(query)
        if i in ops.axes_of(key) and i not in (*ops.axes_of(value), *order)
    ]
    made = [i for i in ops.axes_of(value) if i not in ops.axes_of(key)]
    if len(summed) != 1 or len(made) != 1:
        return None
    batch = tuple(i for i in order if i not in (index, *made))
    ends = ((query, summed), (key, summed), (value, made))
    if set(order) != {*batch, index, *made}:
        return None
    if any({*ops.axes_of(op)} != {*batch, index, *last} for op, last in ends):
        return None
    args = tuple(ops.arrange(op, (*batch, index, *last)) for op, last in ends)
    wide = (*batch, *summed, *made, index)
    product = ops.Apply("*", ops.align(args[1:], wide), wide)
    total: ops.Op = ops.Along("cumsum", product, index)
    if is_strict:
        total = ops.Apply("-", (total, product), wide)
    axes = (*batch, index, *made)
    call = ops.TorchCall(
        RUNNING, (*map(ops.Given, range(3)), -int(is_strict)), (("chunk", ops.Local(chunk)),)
    )
    scratch = (axes, ops.axes_of(args[0]))
    whole = ops.Einsum((args[0], total), axes)
    return ops.arrange(ops.Cell(call, args, whole, axes, (), wide, LATER, scratch), order)


@dataclass(frozen=True, slots=True)
class Sides:
    """key_j < bound_i, <= where it `is_equal`, or > and >= where it `is_above`.

    Where `is_equal` is None the bounds are the keys, and equal ones are in the order of the row.
    """

    key: ops.Op
    bound: ops.Op
    is_equal: bool | None
    is_above: bool


def match_below(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A reduction of the entries whose key is on one side of a bound, or their number."""
    parts: tuple[ops.Op, ...]
    match op:
        case ops.Reduction(kind, arg, over) if kind in {*FOLDS, "mean"}:
            parts = (definitions.unwrap(arg),)
        case ops.Einsum((_, _) as parts, axes):
            spanned = dict.fromkeys(i for part in parts for i in ops.axes_of(part))
            kind, over = "sum", tuple(i for i in spanned if i not in axes)
        case _:
            return None
    inner = "sum" if kind == "mean" else kind
    conditions, values = list[ops.Op](), list[ops.Op]()
    for part in parts:
        found = _find_guards(strip(part), inner, definitions)
        conditions += found[0]
        values += found[1]
    for index in sorted(over, key=lambda i: any(i in ops.axes_of(each) for each in values)):
        inside = [each for each in values if index in ops.axes_of(each)]
        value = join_product(inside, ops.axes_of(inside[0])) if inside else None
        made = _reduce(inner, conditions, value, index, definitions)
        if made is None:
            continue
        rest, own = tuple(i for i in over if i is not index), ops.axes_of(made)
        around = [each for each in values if each not in inside]
        if around and inner == "sum" and not (inside and _is_guarded(around, parts)):
            product = join_product([made, *around], ops.axes_of(made))
            assert product is not None
            if _is_guarded(around, parts):  # of no entries it is 0, whatever they are
                some, order = ops.Apply(">", (made, ops.Num(ir.ZERO)), own), ops.axes_of(product)
                product = ops.Choose(ops.arrange(some, order), product, ops.Num(ir.ZERO), order)
            made = product
        elif around:
            continue
        if {*ops.axes_of(made)} != {*ops.axes_of(op), *rest}:
            continue
        if kind == "mean":
            args, own = (made, ops.Num(index.extent)), ops.axes_of(made)
            call = ops.TorchCall("/", (ops.Given(0), ops.Given(1)))  # of nothing it is nan
            made = ops.Cell(call, args, ops.Apply("/", args, own), own, volume=own)
        made = ops.Reduction(kind, made, rest) if rest else made
        return ops.arrange(made, ops.axes_of(op))
    return None


def _is_guarded(values: Sequence[ops.Op], parts: Sequence[ops.Op]) -> bool:
    """Is one of them read only where the conditions hold? The parts of a product are not."""
    return not {*values} <= {*map(strip, parts)}


def _find_guards(
    op: ops.Op, kind: str, definitions: Definitions
) -> tuple[list[ops.Op], list[ops.Op]]:
    """(the conditions without which an entry has no part in a reduction, the factors of what has).

    None of them where a reader of one computes something for all pairs, which are compared then.
    """
    parts: tuple[ops.Op, ...] = ()
    match strip(definitions.look(op)):
        case ops.Cast(mask) if kind == "sum" and ops.is_boolean(mask):
            found = _split(mask, definitions)
        case ops.Choose(mask, then, ops.Num(other)) | ops.Fill(
            then, mask, ops.Num(other), False
        ) if other is NEUTRAL[kind].value and not isinstance(then, ops.Num):
            found, parts = _split(mask, definitions), (then,)
        case ops.Apply("*", parts) if kind == "sum":
            found, mask = [], op
        case _:
            return [], [op]
    if found and _spans_pairs(strip(mask), definitions):
        return [], [op]
    values: list[ops.Op] = []
    for part in parts:
        conditions, factors = _find_guards(strip(part), kind, definitions)
        found += conditions
        values += factors
    return (found, values) if found else ([], [op])


def _reduce(
    kind: str,
    conditions: Sequence[ops.Op],
    value: ops.Op | None,
    index: ir.Index,
    definitions: Definitions,
) -> ops.Op | None:
    """The reduction over one index; what is said of the entry or of the bound alone is apart.

    Between two bounds entries are counted; a sum there would be what is left of two sums.
    """
    sides, inside, outside = list[Sides](), list[ops.Op](), list[ops.Op]()
    for condition in conditions:
        found = _find_sides(condition, index, definitions)
        sides += found
        if not found:
            (inside if index in ops.axes_of(condition) else outside).append(condition)
    known = [*(side.key for side in sides), *inside, *((value,) if value is not None else ())]
    every = dict.fromkeys(i for side in sides for i in ops.axes_of(side.bound))
    owns = [i for i in every if all(i not in ops.axes_of(each) for each in known)]
    if not owns:
        return None
    own = max(owns, key=definitions.memory.extent)
    for condition in inside:
        if value is None:
            value = ops.Cast(condition)
        else:
            order = ops.axes_of(value)
            axes = ops.find_union((value, condition), order)
            mask, chosen = ops.align((condition, value), axes)
            value = ops.Choose(mask, chosen, NEUTRAL[kind], axes)
    if value is not None and (index not in ops.axes_of(value) or not _is_real(value)):
        return None
    first, *others = sorted(sides, key=lambda side: side.is_above)
    is_alone = value is None and not others  # no place but those of the bounds is asked for
    ranks = _write_ranks(first.key, index)
    made = _count(first, None if is_alone else ranks, index, own, definitions)
    if not others:
        made = ops.Cast(made) if value is None else _accumulate(kind, first, ranks, made, value)
    else:
        (low, *more), key = others, first.key
        if more or value is not None or low.key is not key or first.is_above or not low.is_above:
            return None
        left = _count(
            replace(low, is_above=False, is_equal=not low.is_equal), ranks, index, own, definitions
        )
        is_closed = first.is_equal and low.is_equal
        outside.append(ops.combine("<=" if is_closed else "<", (low.bound, first.bound), (own,)))
        made = ops.Cast(ops.combine("-", (made, left), ops.axes_of(made)))
    for condition in outside:
        axes = ops.find_union((made, condition), ops.axes_of(made))
        mask, chosen = ops.align((condition, made), axes)
        made = ops.Choose(mask, chosen, NEUTRAL[kind], axes)
    return made


def _is_real(op: ops.Op) -> bool:
    return not (ops.is_boolean(op) or ops.is_integral(op) or ops.is_complex(op))


def _split(mask: ops.Op, definitions: Definitions) -> list[ops.Op]:
    """The conditions that a mask joins."""
    match strip(definitions.look(strip(mask))):
        case ops.Apply("and", parts):
            return [each for part in parts for each in _split(part, definitions)]
        case condition:
            return [condition]


def _find_sides(condition: ops.Op, index: ir.Index, definitions: Definitions) -> list[Sides]:
    """What a condition compares, if only one of the two has the index, and the other many others.

    Equal are those that are neither below nor above.
    """
    ends: tuple[ir.Index, ir.Index] | None = None  # of equal ones, which is before which
    match condition:
        case ops.Apply("<" | "<=" | ">" | ">=" | "==" as relation, (left, right)):
            key, bound = strip(left), strip(right)
        case ops.Apply("or", (one, other)):
            match strip(definitions.look(strip(one))), _split(other, definitions):
                case (
                    ops.Apply("<" | ">" as relation, (left, right)),
                    [ops.Apply("==", same), ops.Triangle(rows, columns, offset, is_upper)],
                ) if {*map(strip, same)} == {strip(left), strip(right)}:
                    key, bound = strip(left), strip(right)
                    if offset is (ir.ONE if is_upper else ir.MINUS_ONE):
                        ends = (rows, columns) if is_upper else (columns, rows)
            if ends is None:
                return []
        case _:
            return []
    is_above = relation in {">", ">="}
    if index in ops.axes_of(bound):
        key, bound, is_above = bound, key, not is_above
    own = [i for i in ops.axes_of(bound) if i not in ops.axes_of(key)]
    if index not in ops.axes_of(key) or index in ops.axes_of(bound):
        return []
    sides = (key, bound)
    if min(map(definitions.memory.count, (own, (index,)))) < PAIRED:
        return []
    if any(isinstance(definitions.look(definitions.narrow(side)), ops.Iota) for side in sides):
        return []
    if ends is not None:
        other_end = ends[1] if ends[0] is index else ends[0]
        is_told = (ends[1] is index) == is_above
        is_same = ops.rename_indices(bound, {other_end: index}) is key
        return [Sides(*sides, None, is_above)] if is_told and is_same else []
    if relation == "==":
        return [Sides(key, bound, True, False), Sides(key, bound, True, True)]
    return [Sides(key, bound, "=" in relation, is_above)]


def _spans_pairs(mask: ops.Op, definitions: Definitions) -> bool:
    """Does a reader of this mask compute something for all pairs, so that all are compared?"""
    for step in definitions.steps.values() if isinstance(mask, ops.Source) else ():
        parts = list(ops.walk_ops(step.op))
        for read in parts:
            if isinstance(read, ops.Source) and read.name == mask.name:  # type: ignore[union-attr]
                wide = {*read.axes}
                if any(wide <= {*find_true_axes(p)} for p in parts if _is_work(p)):
                    return True
    return False


def _is_work(op: ops.Op) -> bool:
    """Is it computed of numbers, not of truth values?"""
    is_joined = isinstance(op, ops.Apply) and (
        op.function in ops.BOOLEANS or all(isinstance(strip(arg), ops.Cast) for arg in op.args)
    )
    return isinstance(op, ops.Apply) and not is_joined


def _write_ranks(key: ops.Op, index: ir.Index) -> ops.Cell:
    """The place of each key in their order."""
    axes = (*(i for i in ops.axes_of(key) if i is not index), index)
    other = rename_apart(index, {i.name for part in ops.walk_ops(key) for i in ops.axes_of(part)})
    given = ops.arrange(key, axes)
    mask = _write_order("<", rename(given, {index: other}), given, (other, index), (*axes, other))
    call = ops.TorchCall(RANKS, (ops.Given(0),))
    volume = (*axes, _count_each(SORTED))
    whole = _count_mask(mask, other)
    return ops.Cell(call, (given,), whole, axes, volume=volume, scratch=(axes,) * 4)


def _write_order(
    relation: str,
    key: ops.Op,
    bound: ops.Op,
    ends: tuple[ir.Index, ir.Index],
    wide: tuple[ir.Index, ...],
) -> ops.Op:
    """A key on one side of a bound, or equal to it and on that side in the row."""
    less, same = (ops.combine(sign, (key, bound), wide) for sign in (relation, "=="))
    iotas = (ops.Iota(ends[0]), ops.Iota(ends[1]))
    tied = ops.combine("and", (same, ops.combine(relation, iotas, wide)), wide)
    return ops.combine("or", (less, tied), wide)


def _count_each(number: int) -> ir.Index:
    """So many operations for each element."""
    return ir.Index("each", ir.Number(Fraction(number)))


def _count_mask(mask: ops.Op, index: ir.Index) -> ops.Op:
    ones = ops.Choose(mask, ops.Num(ir.ONE), ops.Num(ir.ZERO), ops.axes_of(mask))
    return ops.Reduction("sum", ones, (index,))


def _count(
    sides: Sides, ranks: ops.Cell | None, index: ir.Index, own: ir.Index, definitions: Definitions
) -> ops.Op:
    """The number of keys on one side of each bound; without ranks they are sorted for it."""
    key, bound = sides.key, sides.bound
    batch = dict.fromkeys(i for side in (key, bound) for i in ops.axes_of(side))
    axes = tuple(i for i in batch if i not in (index, own))
    is_own = ops.rename_indices(bound, {own: index}) is key
    ranks = ranks or (_write_ranks(key, index) if is_own else None)
    args = [ops.arrange(each, (*axes, index)) for each in (key, ranks) if each is not None]
    given: list[ops.Operand] = [ops.Given(place) for place in range(len(args))]
    if not is_own:
        given += [*((ops.Local("None"),) if ranks is None else ()), ops.Given(len(args))]
        args.append(ops.arrange(bound, (*axes, own)))
    relation = (">" if sides.is_above else "<") + ("=" if sides.is_equal else "")
    wide = (*axes, own, index)
    mask: ops.Op = ops.combine(relation, (key, bound), wide)
    if sides.is_equal is None:
        mask = _write_order(relation, key, bound, (index, own), wide)
    equal = ops.Local("None") if sides.is_equal is None else sides.is_equal
    options = (("equal", equal), ("above", sides.is_above))
    call = ops.TorchCall(COUNT, tuple(given), options)
    volume = (*axes, own, _count_each(TIED if is_own else SOUGHT))
    if ranks is None:
        volume = max(volume, (*axes, index, _count_each(SORTED)), key=definitions.memory.count)
    scratch = ((*axes, index),) * 4 + ((*axes, own),) * 4
    whole = _count_mask(mask, index)
    return ops.Cell(call, tuple(args), whole, (*axes, own), volume=volume, scratch=scratch)


def _accumulate(kind: str, sides: Sides, ranks: ops.Op, count: ops.Op, value: ops.Op) -> ops.Op:
    """The reduction of so many values in the order of their keys, from its start or its end."""
    index, own = ops.axes_of(ranks)[-1], ops.axes_of(count)[-1]
    batch = dict.fromkeys(i for op in (count, value) for i in ops.axes_of(op))
    axes = tuple(i for i in batch if i not in (index, own))
    ends = ((value, index), (ranks, index), (count, own), (sides.key, index))
    args = [ops.arrange(op, (*axes, last)) for op, last in ends[: 4 if sides.is_above else 3]]
    wide = (*axes, own, index)
    place: ops.Op = ranks
    if sides.is_above:
        place = ops.Apply("-", (ops.Num(index.extent), ranks), ops.axes_of(ranks))
    mask = ops.combine("<=" if sides.is_above else "<", (place, count), wide)
    shown, taken = ops.align((mask, value), wide)
    chosen = ops.Choose(shown, taken, NEUTRAL[kind], wide)
    call = ops.TorchCall(BELOW, tuple(map(ops.Given, range(len(args)))), (("kind", kind),))
    volume = (*axes, index, _count_each(LOGGED if kind == "logsumexp" else SUMMED))
    scratch = ((*axes, index),) * 4
    whole = ops.Reduction(kind, chosen, (index,))
    return ops.Cell(call, tuple(args), whole, (*axes, own), volume=volume, scratch=scratch)


BAG = "torch.nn.functional.embedding_bag"


def match_bag(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """The sum or the mean of rows of a table, those that the integers of each bag name."""
    weights: ops.Op | None = None
    match op:
        case ops.Reduction("sum" | "mean" as mode, arg, (index,)):
            rows = strip(definitions.open(strip(arg)))
        case ops.Einsum((one, other), axes) if len(axes) == 2:
            mode, pair = "sum", [strip(definitions.open(strip(each))) for each in (one, other)]
            pair.sort(key=lambda each: isinstance(each, ops.Take))
            weights, rows = pair
        case _:
            return None
    if not isinstance(rows, ops.Take) or rows.places != (0,) or len(ops.axes_of(rows.arg)) != 2:
        return None
    places, table = strip(rows.by[0]), rows.arg
    column = ops.axes_of(table)[1]
    if not isinstance(places, ops.Source) or len(set(places.axes)) != 2 or ops.is_integral(table):
        return None
    if weights is not None:
        summed = [i for i in ops.axes_of(rows) if i not in ops.axes_of(op)]
        if (
            len(summed) != 1
            or set(ops.axes_of(weights)) != set(places.axes)
            or ops.is_integral(weights)
        ):
            return None
        (index,) = summed
    if index not in places.axes or column in places.axes:
        return None
    (bag,) = (i for i in places.axes if i is not index)
    inner, made = (bag, index), (bag, column)
    if set(ops.axes_of(op)) != set(made):
        return None
    args = [ops.arrange(places, inner), table]
    keywords: list[tuple[str, ops.Operand]] = [("mode", mode)]
    if weights is not None:
        args.append(ops.arrange(weights, inner))
        keywords.append(("per_sample_weights", ops.Given(2)))
    call = ops.TorchCall(BAG, (ops.Given(0), ops.Given(1)), tuple(keywords))
    note, filled = f"{BAG}: {LACKS}", (index,)  # torch takes no bags without entries
    bare = (
        ops.Reduction(mode, rows, (index,))
        if weights is None
        else ops.Einsum((weights, rows), made)
    )
    cell = ops.Cell(call, tuple(args), ops.arrange(bare, made), made, note=note, filled=filled)
    return ops.arrange(cell, ops.axes_of(op))


CELLS = (
    CellRule(
        call=BELOW,
        computes="t, x[B, N]\nr[b,i] = logsumexp[j, t[b,j] >= t[b,i]](x[b,j])",
        refuses="t, x[B, N]\nr[b,i] = max[j, t[b,j] >= x[b,i] and t[b,j] > t[b,i]](x[b,j])",
        match=match_below,
    ),
    CellRule(
        call=COUNT,
        computes="x[B, N]; q[B, M]\nr[b,i] = q[b,i] * mean[j]([x[b,j] <= q[b,i]])",
        refuses="x[B, N]; q[B, M]\nr[b,i] = q[b,i] * mean[j]([x[b,j] != q[b,i]])",
        match=match_below,
    ),
    CellRule(
        call=BAG,
        computes="E[V, D]; int t[B, K] < V\ny[b,d] = sum[k](E[t[b,k],d])",
        refuses="E[V, D]; int t[B, K] < V\ny[b,d] = max[k](E[t[b,k],d])",
        match=match_bag,
        lacks=LACKS,
    ),
    CellRule(
        call=RUNNING,
        computes="q, k[N, D]; v[N, E]\nz[i,e] = sum[d](q[i,d] * cumsum[i](k[i,d] * v[i,e]))",
        refuses="q, k[N, D]; v[N, E]\nz[i,e] = sum[d](q[i,d] * exp(cumsum[i](k[i,d] * v[i,e])))",
        match=match_running_product,
    ),
    CellRule(
        call=".logcumsumexp",
        computes="x[B, N]; index i < N\ns[b,i] = logsumexp[j, j >= i](x[b,j])",
        refuses="x[B, N]; index i < N\ns[b,i] = logsumexp[j, j >= i - 1](x[b,j])",
        match=match_so_far,
    ),
)
