"""Kinds of edits of a formula, each with an example.

exchange    another index, tensor, position, kind, number or scale; two of them for each other
leave out   a term, a factor, a function, a condition, a sum
move        a condition, a small number, a scale to where it does not belong
rearrange   equations as a whole: tensors everywhere, the layout of pairs

A change is a formula that the code may compute; its words name the correction of the code.
"""

from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from typing import TypeAlias

from derive.checker.edits.sites import (
    EXCHANGED,
    LACKING,
    MISPLACED,
    SEVERAL,
    Edited,
    FormulaSite,
    drop_conditions,
    edit_kind,
    exchange_nodes,
    expand_position,
    find_factors,
    find_scale,
    is_number,
    leave_out,
    pair_indices,
    say_scale,
    scale_to_expr,
    show_node,
)
from derive.ir import nodes as ir
from derive.ir import walk
from derive.ir.functions import EXPONENTIALS, FUNCTIONS, ROWS, find_confused
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_accesses, find_free, rewrite_bottom_up

Edits: TypeAlias = Iterator[tuple[Edited, str, float]]

HALF, TWO = ir.Number(Fraction(1, 2)), ir.Number(Fraction(2))
_KINDS = ("sum", "mean", "max", "min", "prod", "logsumexp")
_LOOSER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_FILLED = ("0", "1", "-1", "1e-9", "-1e-9", "1e9", "-10", "-100", "-1e4")


@edit_kind(
    cost=EXCHANGED,
    formula="x[N, D]; A[N, N]; y[i, d] = sum[j](A[i, j] * x[j, d])",
    code="return torch.einsum('ji,jd->id', A, x)",
    words="exchange i and j of a",
)
def exchange_indices(site: FormulaSite) -> Edits:
    """Exchange two indices in one access or in a condition."""
    node, access = site.node, site.access
    if access is None and not (site.is_clause and isinstance(node, (ir.Compare, ir.And, ir.Or))):
        return
    for one, two, names in pair_indices(site.formula, node):
        new = exchange_nodes(node, {one: two, two: one})
        words = f"TRANSPOSE the mask: {show_node(node)}, not {show_node(new)}"
        if access is not None:
            kept, words = (
                find_free(site.equation.target),
                f"EXCHANGE {names} of {access.tensor.name}",
            )
            is_plain = access.tensor in site.formula.system.tensors and {one, two} <= {
                *access.places
            }
            if site.is_conditional and access.tensor.kind == "bool":
                words = f"TRANSPOSE the mask: {words}"
            elif is_plain and (one in kept) != (two in kept):  # one is summed away: a matrix
                words = f"TRANSPOSE {access.tensor.name}: {words}"
        yield new, words, 0.0


@edit_kind(
    cost=EXCHANGED,
    formula="x[N, D]; W_Q, W_K[D, D]\n"
    "q[i, e] = sum[d](x[i, d] * W_Q[d, e])\nk[j, e] = sum[d](x[j, d] * W_K[d, e])\n"
    "s[i, j] = sum[e](q[i, e] * k[j, e])",
    code="q = x @ W_Q\nk = x @ W_Q\nreturn q @ k.T",
    words="use w_k, not w_q, in k",
)
def read_other_tensor(site: FormulaSite) -> Edits:
    """Read another tensor of the same shape and kind in one place."""
    if (access := site.access) is not None:
        for other in site.formula.tensors(site.number):
            if site.formula.is_alike(other, access.tensor):
                words = f"USE {access.tensor.name}, not {other.name}, in {site.name}"
                yield ir.Access(other, access.places), words, 0.0


@edit_kind(
    cost=MISPLACED,
    formula="x[N]; index i < N - 1; y[i] = x[i + 1]",
    code="return x[:-1]",
    words="read x[i + 1], not x[i]",
    about="a place",
)
def move_place(site: FormulaSite) -> Edits:
    """Negate or shift a position, or make it cyclic; reads outside give 0."""
    if (access := site.access) is None:
        return
    for at, (place, extent) in enumerate(zip(access.places, access.tensor.shape, strict=True)):
        for new, extra in _find_moves(place, extent):
            places = (*access.places[:at], new, *access.places[at + 1 :])
            other = ir.Access(access.tensor, places)
            inside = ir.all_of(ir.Compare("<=", ir.ZERO, new), ir.Compare("<", new, extent))
            guarded = ir.Where(inside, other, ir.ZERO)
            free = site.with_value(drop_conditions(site.put_node(guarded), guarded))
            words = f"READ {show_node(access)}, not {show_node(other)}"
            every: tuple[Edited, ...] = (other, guarded, free)
            yield from ((edited, words, extra + k / 100) for k, edited in enumerate(every))


def _find_moves(place: ir.Expr, extent: ir.Expr) -> Iterator[tuple[ir.Expr, float]]:
    """Yield pairs (other position, extra cost): an index negated; steps of 1 and 2, also cyclic."""
    indices = find_free(place)
    for index in indices if len(indices) > 1 else ():
        yield expand_position(exchange_nodes(place, {index: ir.Mul((ir.MINUS_ONE, index))})), 0.0
    for step in (1, -1, 2, -2) if indices else ():
        moved = expand_position(ir.Add((place, ir.Number(Fraction(step)))))
        extra = (0.4 if isinstance(place, ir.Index) else 0.1) + 0.1 * (abs(step) > 1)
        yield moved, extra
        yield ir.Call("mod", (moved, extent)), extra + 0.1


@edit_kind(
    cost=EXCHANGED,
    formula="e[N, N]; y[i] = sum[j, j <= i](e[i, j])",
    code="return e.tril(1).sum(-1)",
    words="shift the mask by one",
)
def change_condition(site: FormulaSite) -> Edits:
    """Leave out a condition or one of its parts, invert it, or shift it."""
    node = site.node
    if site.is_condition:
        words = f"ADD the mask {show_node(node, 'that is missing')}"
        yield ir.TRUE, words, 0.0
        yield ir.FALSE, words, 0.3
    if not site.is_clause:
        return
    inner = node.part if isinstance(node, ir.Not) else ir.Not(node)
    yield inner, f"INVERT the mask: keep where {show_node(node, 'it holds')}", 0.0
    match node:
        case ir.And(parts) | ir.Or(parts):
            for at, part in enumerate(parts):
                yield leave_out(node, at), f"ADD the mask {show_node(part)}", 0.0
        case ir.Compare(relation, left, right):
            others = [(_LOOSER.get(relation, relation), left, right, " by one", 0.0)]
            for at, side in enumerate((left, right)):
                for place, term in enumerate(side.terms if isinstance(side, ir.Add) else ()):
                    if not find_free(term):  # the constant that is added to an index left out
                        rest = leave_out(side, place)
                        others.append((relation, *((left, rest) if at else (rest, right)), "", 0.1))
            for step in (1, -1):
                moved = ir.Add((right, ir.Number(Fraction(step))))
                others.append((relation, left, moved, " by one", 0.1))
            for sign, one, other, by, extra in others[relation not in _LOOSER :]:
                new = ir.Compare(sign, one, other)
                words = f"SHIFT the mask{by}: {show_node(node)}, not {show_node(new)}"
                yield new, words, extra


@edit_kind(
    cost=LACKING,
    formula="x[N, D]; W[D, E]; c[E]; y[n, e] = sum[d](x[n, d] * W[d, e]) + c[e]",
    code="return x @ W",
    words="add the term c[e]",
    about="a part",
)
def leave_out_part(site: FormulaSite) -> Edits:
    """Leave out a term, a factor, a function or a power."""
    node, name = site.node, site.name
    if not site.is_value or not (find_accesses(node) or isinstance(node, ir.Add)):
        return
    match node:
        case ir.Add(terms):
            where = name if site.parent is None else f"{show_node(node, 'a part')} in {name}"
            for at, term in enumerate(terms):
                words = f"ADD the term {show_node(term, f'of {name}')} to {where}"
                rest = leave_out(node, at)
                if all(map(is_number, terms)):
                    words = f"USE {show_node(node)}, not {show_node(rest)}, in {name}"
                yield rest, words, 0.0
        case ir.Mul(factors):
            for at, factor in enumerate(factors):
                if walk.is_bracket(factor):
                    assert isinstance(factor, ir.Where)
                    words = f"ADD the mask [{show_node(factor.condition)}] to {name}"
                else:
                    shown = show_node(factor, "that is missing")
                    words = f"ADD the factor {shown}: MULTIPLY by it in {name}"
                    if isinstance(factor, ir.Pow) and factor.exponent == ir.MINUS_ONE:
                        words = f"DIVIDE by {show_node(factor.base, 'what is missing')} in {name}"
                if not is_number(factor):  # `rescale` edits numbers
                    yield leave_out(node, at), words, 0.1
        case ir.Call(function, (inner, *_)) if find_accesses(inner):
            yield inner, f"APPLY {function} to {show_node(inner, name)}", 0.2
        case ir.Pow(base, exponent):
            says: dict[ir.Expr, str] = {
                TWO: f"SQUARE {show_node(base)}",
                HALF: f"ROOT of {show_node(base)} is missing",
            }
            words = says.get(exponent, f"RAISE {show_node(base)} to {show_node(exponent)}")
            yield base, words, 0.2


@edit_kind(
    cost=EXCHANGED,
    formula="x[N, D]; y[n, d] = gelu(x[n, d])",
    code="return torch.relu(x)",
    words="gelu, not relu",
)
def exchange_kind(site: FormulaSite) -> Edits:
    """Apply another function or reduction, or take a row along another index."""
    node = site.node
    match node:
        case ir.Call(name, arguments) if site.is_value and find_accesses(node):
            others = {"max": "min", "min": "max"}.get(name, "").split()
            for other in (*find_confused(name), *others):
                taken = arguments if others else arguments[: len(FUNCTIONS[name].tensors)]
                if FUNCTIONS[other].counts[0] <= len(taken) <= FUNCTIONS[other].counts[1]:
                    yield ir.Call(other, taken), f"{name.upper()}, not {other}", 0.4
        case ir.Reduce(kind, bound, condition, body) if site.is_value:
            indices = ", ".join(index.name for index in bound)
            for other in _KINDS if kind in _KINDS else ():
                words = f"{kind.upper()} over {indices}, not {other}"
                extra = 0.1 if {kind, other} == {"sum", "mean"} else 0.5
                yield ir.Reduce(other, bound, condition, body), words, extra
            for index in bound if len(bound) > 1 and kind == "sum" else ():
                part = ir.Mul((node, ir.Pow(index.extent, ir.MINUS_ONE)))
                yield part, f"SUM over {index.name}, not mean", 0.15
            if kind in {"var", "sample_var"}:
                other = "sample_var" if kind == "var" else "var"
                says = "BIASED variance (correction=0)" if kind == "var" else "UNBIASED variance"
                words = f"{says} of {show_node(body)}"
                yield ir.Reduce(other, bound, condition, body), words, 0.0
        case ir.Along(kind, own, condition, body, None):
            says = f"{kind.upper()} over {own.name}"  # as in "SOFTMAX over m, not n"
            for index in dict.fromkeys((*find_free(body), *find_free(condition))):
                words = f"{says}, not {index.name}"
                if index is not own:
                    yield ir.Along(kind, index, condition, body), words, 0.0
            if other := ROWS[kind].logarithm or EXPONENTIALS.get(kind, ""):
                new = ir.Along(other, own, condition, body)
                yield new, f"{says}, not {other}", 0.1


@edit_kind(
    cost=EXCHANGED,
    formula="q, k[N, D]; e[i, j] = sum[d](q[i, d] * k[j, d]) / sqrt(D)",
    code="return q @ k.T",
    words="scale e by 1/sqrt(d)",
)
def rescale(site: FormulaSite) -> Edits:
    """Multiply a right side, a term or an argument by -1, or by other sizes and numbers."""
    if not site.is_value or is_number(site.node):
        return
    match site.parent:
        case None:
            name = site.name
        case ir.Along(kind) as along:
            indices = ", ".join(each.name for each in along.indices)
            name = f"the argument of {kind} over {indices} in {site.name}"
        case ir.Reduce("sum" | "mean" | "max" | "min"):
            return
        case ir.Call() | ir.Add() | ir.Reduce():
            name = show_node(site.node, f"a part of {site.name}")
        case _:
            return
    own = find_scale(site.node)
    bare = name.removeprefix("-") if name == show_node(site.node) else name
    yield ir.Mul((ir.MINUS_ONE, site.node)), f"the SIGN of {bare} is to be turned", 0.2
    for factor, extra in find_factors(own, [ir.Size(name) for name in site.formula.sizes]):
        new = ir.Mul((site.node, scale_to_expr(factor)))
        yield new, say_scale(name, own, factor), extra + 0.2


@edit_kind(
    cost=EXCHANGED,
    formula="x, y[N]; z[i] = y[i] / sqrt(x[i]**2 + 1/100000)",
    code="return y / (x ** 2 + 1e-6).sqrt()",
    words="add 1/100000, not 1/1000000",
)
def exchange_number(site: FormulaSite) -> Edits:
    """Add another small number, or clip to other bounds."""
    node = site.node
    match node:
        case ir.Call("clip", (inner, low, high)):
            for step in (-1, 1, -2, 2):
                by = ir.Number(Fraction(step))
                less, more = ir.Add((low, ir.Mul((ir.MINUS_ONE, by)))), ir.Add((high, by))
                for bounds in ((less, more), (low, more), (less, high)):
                    shown = f"{show_node(bounds[0])} and {show_node(bounds[1])}"
                    wanted = f"{show_node(low)} and {show_node(high)}"
                    words = f"CLIP to {wanted}, not to {shown}"
                    yield ir.Call("clip", (inner, *bounds)), words, 0.3
        case _ if isinstance(site.parent, ir.Add) and site.is_value and is_number(node):
            value = Polynomial.of(node).constant
            for power in range(1, 13) if value and 0 < value < Fraction(1, 50) else ():
                other = ir.Number(Fraction(1, 10**power))
                words = f"ADD {show_node(node).replace(' / ', '/')}, not {other.value}"
                yield other, words, 0.3


@edit_kind(
    cost=LACKING,
    formula="x, y[N]; scalar eps = 0.1; z[i] = y[i] / sqrt(x[i]**2 + eps)",
    code="return y / (x.abs() + eps)",
    words="eps inside the root",
)
def move_number(site: FormulaSite) -> Edits:
    """Add a number beside the root instead of inside it."""
    match site.node if site.is_value else None:
        case ir.Pow(ir.Add(terms), ir.Number(power)) if abs(power) == Fraction(1, 2):
            for at, eps in enumerate(terms):
                if isinstance(eps, (ir.Number, ir.Scalar)):
                    rest = leave_out(ir.Add(terms), at)
                    new: ir.Expr = ir.Add((ir.Pow(rest, HALF), eps))
                    shown = show_node(rest, "what is under the root")
                    words = f"{show_node(eps).upper()} inside the root: ADD it to {shown}"
                    yield ir.Pow(new, ir.MINUS_ONE) if power < 0 else new, words, 0.1


@edit_kind(
    cost=LACKING,
    formula="e[N, M]; bool m[N, M]; p[i, j] = log_softmax[j, m[i, j]](e[i, j])",
    code="return e.log_softmax(-1) * m",
    words="mask before log_softmax",
)
def move_condition(site: FormulaSite) -> Edits:
    """Mask the result of a row operation, or its argument with a number instead of -inf."""
    if not isinstance(row := site.node, ir.Along):
        return
    mask, body = row.condition, row.body
    match row.body:  # all ways to write the mask
        case ir.Where(own, kept, ir.Infinity(True)) | ir.Add(
            (kept, ir.Where(own, ir.Number(0), ir.Infinity(True)))
        ):
            mask, body = own, kept
        case ir.Where(own, ir.Infinity(True), kept) | ir.Add(
            (kept, ir.Where(own, ir.Infinity(True), ir.Number(0)))
        ):
            mask, body = ir.Not(own), kept
    if mask == ir.TRUE:
        return
    says = f"MASK before {row.kind}, by -inf where not {show_node(mask, 'the mask')}"

    def along(body: ir.Expr) -> ir.Along:
        return ir.Along(row.kind, row.index, ir.TRUE, body)

    inside, outside = ir.Where(mask, ir.ONE, ir.ZERO), ir.Where(mask, ir.ZERO, ir.ONE)
    for side in (inside, outside):
        yield ir.Mul((side, along(body))), f"{says}: no product behind it", 0.0
    for other in (ir.Number(Fraction(number)) for number in _FILLED):
        by = f"{says}: not by {'a number' if abs(other.value) >= 10 else show_node(other)}"
        yield along(ir.Where(mask, body, other)), by, 0.1
        yield along(ir.Where(mask, other, body)), f"{by}, inverted", 0.3
    for addend in (inside, outside, ir.Where(mask, ir.ZERO, ir.MINUS_ONE)):
        words = f"{says}: it is not added as 0 and 1"
        yield along(ir.Add((body, addend))), words, 0.2
    inverted = along(ir.Where(mask, ir.MINUS_INFINITY, body))
    yield inverted, f"INVERT the mask: keep where {show_node(mask)}", 0.1


@edit_kind(
    cost=LACKING,
    formula="q, k, v[N, D]; z[i, d] = sum[j](sum[e](q[i, e] * k[j, e]) * v[j, d])",
    code="return (q @ v.T) @ k",
    words="exchange k and v",
)
def exchange_tensors(site: FormulaSite) -> Edits:
    """Exchange two tensors in one equation, or everywhere."""
    if site.parent is not None:
        return
    formula, equations = site.formula, site.formula.system.equations
    here = {access.tensor for access in find_accesses(site.node)}
    readable = formula.tensors(site.number)
    for one, two in combinations(formula.tensors(len(equations)), 2):
        if formula.is_alike(one, two):
            pair, words = {one: two, two: one}, f"EXCHANGE {one.name} and {two.name}"
            new = zip(equations, walk.exchange_tensors(equations, pair), strict=True)
            turned = tuple(ir.Equation(old.target, each.value) for old, each in new)
            if pair.keys() <= here and pair.keys() <= {*readable}:
                yield turned[site.number], f"{words} in {site.name}", 0.0
            if site.number == 0:
                yield turned, words, 0.0


@edit_kind(
    cost=SEVERAL,
    formula="a, b[N, N, C]; t[i, j, c] = sum[k](a[i, k, c] * b[j, k, c])",
    code="return torch.einsum('kic,kjc->ijc', a, b)",
    words="exchange i and k of a and j and k of b",
)
def exchange_indices_twice(site: FormulaSite) -> Edits:
    """Exchange two indices in each of two accesses."""
    if site.parent is not None:
        return
    accesses = dict.fromkeys(each.access for each in site.formula.sites[site.number] if each.access)
    turned = [
        (access, exchange_nodes(access, {one: two, two: one}), f"{names} of {access.tensor.name}")
        for access in accesses
        for one, two, names in pair_indices(site.formula, access)
    ]
    for (one, new_one, what), (two, new_two, other) in combinations(turned, 2):
        if one is not two:
            new: dict[ir.Expr, ir.Expr] = {one: new_one, two: new_two}
            value = rewrite_bottom_up(site.node, lambda expr, to=new: to.get(expr, expr))  # type: ignore[misc]
            yield value, f"EXCHANGE {what} and {other}", 0.0


@edit_kind(
    cost=EXCHANGED,
    formula="x[S, 2*D]; c[S, D]; index m < 2*D\n"
    "r[t, m] = where(m % 2 == 0, -x[t, 2*(m // 2) + 1], x[t, 2*(m // 2)])\n"
    "y[t, m] = x[t, m] * c[t, m // 2] + r[t, m]",
    code="a, b = x.chunk(2, -1)\nreturn torch.cat((a * c - b, b * c + a), -1)",
    words="interleaved, not halved",
    about="a place",
)
def read_other_layout(site: FormulaSite) -> Edits:
    """Read interleaved pairs instead of halves, or the reverse, everywhere in the formula."""
    formula, equations = site.formula, site.formula.system.equations
    if site.number or site.parent is not None:
        return
    targets = [place for each in equations for place in each.target.places]
    indices = [place for place in targets if isinstance(place, ir.Index)]
    extents = dict.fromkeys(i.extent for i in indices if not formula.extent(i) % 2)
    for extent in extents:
        for words, is_halved in (
            ("INTERLEAVED, not halved", True),
            ("HALVED, not interleaved", False),
        ):
            turned = tuple(_change_layout(each, extent, is_halved) for each in equations)
            yield turned, words, 0.25


def _change_layout(equation: ir.Equation, extent: ir.Expr, is_halved: bool) -> ir.Equation:
    """The equation with all axes of this extent in the other layout."""
    value, whole = equation.value, Polynomial.of(extent)
    for index in equation.target.places:
        if not isinstance(index, ir.Index) or index.extent != extent:
            continue

        def act(expr: ir.Expr, index: ir.Index = index) -> ir.Expr:
            if not isinstance(expr, ir.Access):
                return expr
            places = (
                _transpose(place, n, not is_halved)
                if index in find_free(place) and Polynomial.of(n) == whole
                else place
                for place, n in zip(expr.places, expr.tensor.shape, strict=True)
            )
            return ir.Access(expr.tensor, tuple(places))

        other = exchange_nodes(value, {index: _transpose(index, extent, is_halved)})
        value = rewrite_bottom_up(other, act)
    return ir.Equation(equation.target, value)


def _transpose(place: ir.Expr, extent: ir.Expr, is_halved: bool) -> ir.Expr:
    """With `is_halved` the place 2*(p % h) + p // h in pairs of a place p in halves; else back."""
    half = ir.Call("floordiv", (extent, TWO))
    rows, columns = (TWO, half) if is_halved else (half, TWO)
    inner = ir.Mul((rows, ir.Call("mod", (place, columns))))
    return ir.Add((inner, ir.Call("floordiv", (place, columns))))


FORMULA_EDITS = (
    *(exchange_indices, read_other_tensor, exchange_kind, change_condition, rescale),
    *(exchange_number, leave_out_part, move_number, move_condition, move_place),
    *(exchange_tensors, read_other_layout, exchange_indices_twice),
)
