"""The operators of edits of a formula, each with an example.

exchange    another index, tensor, position, kind, number or scale; two of them for each other
leave out   a term, a factor, a function, a condition, a sum
move        a condition, a small number, a scale to where it does not belong
rearrange   equations as a whole: what is returned, which index is kept, how pairs lie

A change is what the code may be taken to compute; its words say what to do to the code.
"""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from itertools import combinations, permutations, product

from derive.checker.edits import sites
from derive.ir import nodes as ir
from derive.ir.functions import EXPONENTIALS, FUNCTIONS, ROWS, find_confused
from derive.ir.polynomial import Polynomial
from derive.ir.walk import (
    find_accesses,
    find_free,
    find_names,
    rename_apart,
    rewrite_bottom_up,
    walk,
)

HALF, TWO = ir.Number(Fraction(1, 2)), ir.Number(Fraction(2))
_KINDS = ("sum", "mean", "max", "min", "prod", "logsumexp")
_LOOSER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_FILLED = ("0", "1", "-1", "1e-9", "-1e-9", "1e9", "-10", "-100", "-1e4")


@sites.operator(
    cost=sites.EXCHANGED,
    formula="x[N, D]; A[N, N]; y[i, d] = sum[j](A[i, j] * x[j, d])",
    code="return torch.einsum('ji,jd->id', A, x)",
    words="exchange i and j of a",
)
def exchange_indices(site: sites.Site) -> Iterator[sites.Change]:
    """Two indices exchanged in one access or in a condition."""
    node, access = site.node, site.access
    if access is None and not (site.is_clause and isinstance(node, (ir.Compare, ir.And, ir.Or))):
        return
    for one, two, names in sites.pair_indices(site.formula, node):
        new = sites.exchange_nodes(node, {one: two, two: one})
        if access is None:
            yield site.change(new, f"TRANSPOSE the mask: {sites.show(node)}, not {sites.show(new)}")
            continue
        kept, words = find_free(site.equation.target), f"EXCHANGE {names} of {access.tensor.name}"
        is_plain = access.tensor in site.formula.system.tensors and {one, two} <= {*access.places}
        if site.is_conditional and access.tensor.kind == "bool":
            words = f"TRANSPOSE the mask: {words}"
        elif is_plain and (one in kept) != (two in kept):  # one is summed away: a matrix
            words = f"TRANSPOSE {access.tensor.name}: {words}"
        yield site.change(new, words)


@sites.operator(
    cost=sites.SEVERAL,
    formula="q, k[N, D]; s[i, j] = sum[d](q[i, d] * k[j, d])",
    code="return (q * k).sum(-1)[:, None].expand(-1, q.shape[0])",
    words="read j, not i, in k",
    about="an index",
)
def read_other_index(site: sites.Site) -> Iterator[sites.Change]:
    """Another index of the same extent in one access; one that is summed by itself there."""
    access = site.access
    if access is None:
        return
    name, mine = access.tensor.name, find_free(access)
    sums = (n for n in site.above if isinstance(n, ir.Reduce) and n.kind == "sum")
    summed = {index for node in sums for index in node.bound}
    for old in mine:
        for new in site.scope:
            if new is old or site.formula.extent(new) != site.formula.extent(old):
                continue
            other = sites.exchange_nodes(access, {old: new})
            wrong = f"{sites.show(access)}, not {sites.show(other)}"
            words = f"READ {old.name}, not {new.name}, in {name}: {wrong}"
            if new in mine:
                words = f"a repeated index: {new.name} stands twice, the formula reads {wrong}"
            yield site.change(other, words)
        if old in summed and site.is_value:
            fresh = rename_apart(old, find_names((*site.above, access)[0]))
            alone = ir.Reduce("sum", (fresh,), ir.TRUE, sites.exchange_nodes(access, {old: fresh}))
            words = f"the index {old.name} is summed separately in {name}: give it one name"
            yield site.change(alone, words, 0.4)


@sites.operator(
    cost=sites.EXCHANGED,
    formula="x[N, D]; W_Q, W_K[D, D]\n"
    "q[i, e] = sum[d](x[i, d] * W_Q[d, e])\nk[j, e] = sum[d](x[j, d] * W_K[d, e])\n"
    "s[i, j] = sum[e](q[i, e] * k[j, e])",
    code="q = x @ W_Q\nk = x @ W_Q\nreturn q @ k.T",
    words="use w_k, not w_q, in k",
)
def read_other_tensor(site: sites.Site) -> Iterator[sites.Change]:
    """Another tensor of the same shape and kind in one place."""
    access = site.access
    for other in site.formula.tensors(site.number) if access is not None else ():
        if access is not None and site.formula.is_alike(other, access.tensor):
            words = f"USE {access.tensor.name}, not {other.name}, in {site.name}"
            yield site.change(ir.Access(other, access.places), words)


@sites.operator(
    cost=sites.MISPLACED,
    formula="x[B, T]; w[K]; index t < T; y[b, t] = sum[k, k <= t](x[b, t - k] * w[k])",
    code="x = F.pad(x, (0, w.shape[0] - 1))\nreturn F.conv1d(x[:, None], w.view(1, 1, -1))[:, 0]",
    words="read x[b,t - k], not x[b,t + k]",
    about="a place",
)
def move_place(site: sites.Site) -> Iterator[sites.Change]:
    """A position on the other side, by one, by a block, or around the end; outside is nothing."""
    access = site.access
    for at, place in enumerate(access.places if access is not None else ()):
        assert access is not None
        extent = access.tensor.shape[at]
        for new, extra in _find_moves(site.formula, place, extent):
            places = (*access.places[:at], new, *access.places[at + 1 :])
            other = ir.Access(access.tensor, places)
            words = f"READ {sites.show(access)}, not {sites.show(other)}"
            yield site.change(other, words, extra)

            def act(
                expr: ir.Expr, place: ir.Expr = place, new: ir.Expr = new, to: ir.Expr = other
            ) -> ir.Expr:
                if isinstance(expr, ir.Compare):
                    return sites.exchange_nodes(expr, {place: new})
                return to if expr is access else expr

            yield site.change(sites.rewrite_value(site.equation, act), words, extra + 0.005)
            inside = ir.all_of(ir.Compare("<=", ir.ZERO, new), ir.Compare("<", new, extent))
            guarded = ir.Where(inside, other, ir.ZERO)
            yield site.change(guarded, words, extra + 0.01)
            free = sites.drop_conditions(site.put(guarded), guarded)
            yield site.change(ir.Equation(site.equation.target, free), words, extra + 0.02)


def _find_moves(
    formula: sites.SizedFormula, place: ir.Expr, extent: ir.Expr
) -> Iterator[tuple[ir.Expr, float]]:
    """Other positions, and how much less likely each is."""
    indices, plain = find_free(place), isinstance(place, ir.Index)
    for index in indices if len(indices) > 1 else ():
        yield sites.tidy(sites.exchange_nodes(place, {index: ir.Mul((ir.MINUS_ONE, index))})), 0.0
        yield sites.tidy(sites.exchange_nodes(place, {index: ir.Mul((TWO, index))})), 0.2
    for step in (1, -1, 2, -2) if indices else ():
        moved = sites.tidy(ir.Add((place, ir.Number(Fraction(step)))))
        extra = (0.4 if plain else 0.1) + 0.1 * (abs(step) > 1)
        yield moved, extra
        yield ir.Call("mod", (moved, extent)), extra + 0.1
    whole = formula.extent(ir.Index("_", extent))
    for index in indices:  # by as much as it runs over: another block
        blocks = whole // max(formula.extent(index), 1)
        for count in range(1, min(blocks, sites.MOST_BLOCKS)):
            for sign in (1, -1) if len(indices) == 1 else ():
                step_by = ir.Mul((ir.Number(Fraction(sign * count)), index.extent))
                yield sites.tidy(ir.Add((place, step_by))), 0.1 * count
    if indices and not plain:
        yield ir.Call("mod", (place, extent)), 0.1
        yield ir.Call("clip", (place, ir.ZERO, ir.Add((extent, ir.MINUS_ONE)))), 0.1


@sites.operator(
    cost=sites.EXCHANGED,
    formula="e[N, N]; y[i] = sum[j, j <= i](e[i, j])",
    code="return e.tril(1).sum(-1)",
    words="shift the mask by one",
)
def change_condition(site: sites.Site) -> Iterator[sites.Change]:
    """A condition left out, in part too, inverted, shifted, or joined otherwise."""
    node = site.node
    if site.is_condition:
        words = f"ADD the mask {sites.show(node, 'that is missing')}"
        yield site.change(ir.TRUE, words)
        yield site.change(ir.FALSE, words, 0.3)
    if not site.is_clause:
        return
    inner = node.part if isinstance(node, ir.Not) else ir.Not(node)
    yield site.change(inner, f"INVERT the mask: keep where {sites.show(node, 'it holds')}")
    if isinstance(node, (ir.And, ir.Or)):
        turned = ir.Or(node.parts) if isinstance(node, ir.And) else ir.And(node.parts)
        says = "AND, not or" if isinstance(node, ir.And) else "OR, not and"
        yield site.change(turned, f"{says}, in {sites.show(node, 'the condition')}", 0.1)
        for at, part in enumerate(node.parts):
            yield site.change(sites.leave_out(node, at), f"ADD the mask {sites.show(part)}")
    if not isinstance(node, ir.Compare):
        return
    relation, left, right = node.relation, node.left, node.right
    for new, says, extra in _find_comparisons(site.formula, relation, left, right):
        yield site.change(new, f"{says} {sites.show(node)}, not {sites.show(new)}", extra)


def _find_comparisons(
    formula: sites.SizedFormula, relation: str, left: ir.Expr, right: ir.Expr
) -> Iterator[tuple[ir.Compare, str, float]]:
    """Other comparisons of the same sides, in words, and how much less likely each is."""
    by_one, shift = "SHIFT the mask by one:", "SHIFT the mask:"
    if relation in _LOOSER:
        yield ir.Compare(_LOOSER[relation], left, right), by_one, 0.0
    else:
        for other in ("<=", ">=", "!=" if relation == "==" else "=="):
            yield ir.Compare(other, left, right), "COMPARE", 0.0
    for at, side in enumerate((left, right)):  # what is added to an index left out
        for place, term in enumerate(side.terms if isinstance(side, ir.Add) else ()):
            if not find_free(term):
                rest = sites.leave_out(side, place)
                yield ir.Compare(relation, *((left, rest) if at else (rest, right))), shift, 0.1
    for step in (1, -1, 2, -2):
        words, extra = (by_one, 0.1) if abs(step) == 1 else (shift, 0.3)
        yield ir.Compare(relation, left, ir.Add((right, ir.Number(Fraction(step))))), words, extra
    for one, two in product(formula.sizes, repeat=2):
        if one != two:
            moved = ir.Add((right, ir.Size(one), ir.Mul((ir.MINUS_ONE, ir.Size(two)))))
            yield ir.Compare(relation, left, moved), shift, 0.4


@sites.operator(
    cost=sites.LACKING,
    formula="x[N, D]; W[D, E]; c[E]; y[n, e] = sum[d](x[n, d] * W[d, e]) + c[e]",
    code="return x @ W",
    words="add the term c[e]",
    about="a part",
)
def leave_out_part(site: sites.Site) -> Iterator[sites.Change]:
    """A term, a factor, a function or a power left out."""
    node, name = site.node, site.name
    if not site.is_value or not (find_accesses(node) or isinstance(node, ir.Add)):
        return
    match node:
        case ir.Add(terms):
            where = name if site.parent is None else f"{sites.show(node, 'a part')} in {name}"
            for at, term in enumerate(terms):
                words = f"ADD the term {sites.show(term, f'of {name}')} to {where}"
                rest = sites.leave_out(node, at)
                if all(map(sites.is_number, terms)):
                    words = f"USE {sites.show(node)}, not {sites.show(rest)}, in {name}"
                yield site.change(rest, words)
        case ir.Mul(factors):
            for at, factor in enumerate(factors):
                if sites.is_bracket(factor):
                    assert isinstance(factor, ir.Where)
                    words = f"ADD the mask [{sites.show(factor.condition)}] to {name}"
                else:
                    shown = sites.show(factor, "that is missing")
                    words = f"ADD the factor {shown}: MULTIPLY by it in {name}"
                    if isinstance(factor, ir.Pow) and factor.exponent == ir.MINUS_ONE:
                        words = f"DIVIDE by {sites.show(factor.base, 'what is missing')} in {name}"
                if not sites.is_number(factor):  # that is a matter of scale
                    yield site.change(sites.leave_out(node, at), words, 0.1)
        case ir.Call(function, (inner, *_)) if find_accesses(inner):
            yield site.change(inner, f"APPLY {function} to {sites.show(inner, name)}", 0.2)
        case ir.Pow(base, exponent):
            says: dict[ir.Expr, str] = {
                TWO: f"SQUARE {sites.show(base)}",
                HALF: f"ROOT of {sites.show(base)} is missing",
            }
            words = says.get(exponent, f"RAISE {sites.show(base)} to {sites.show(exponent)}")
            yield site.change(base, words, 0.2)


@sites.operator(
    cost=sites.EXCHANGED,
    formula="x[N, D]; y[n, d] = gelu(x[n, d])",
    code="return torch.relu(x)",
    words="gelu, not relu",
)
def exchange_kind(site: sites.Site) -> Iterator[sites.Change]:
    """Another function, another reduction, a row along another index."""
    node = site.node
    match node:
        case ir.Call(name, arguments) if site.is_value and find_accesses(node):
            others = {"max": "min", "min": "max"}.get(name, "").split()
            inner = arguments[0]
            match inner:
                case ir.Reduce("sum", bound, condition, ir.Call("exp", (body,))) if name == "log":
                    says = f"LOGSUMEXP over {', '.join(index.name for index in bound)}"
                    for other in ("sum", "mean", "max", "min"):
                        total = ir.Reduce(other, bound, condition, body)
                        yield site.change(total, f"{says}, not {other}", 0.1)
            for other in (*find_confused(name), *others):
                taken = arguments if others else arguments[: len(FUNCTIONS[name].tensors)]
                if FUNCTIONS[other].counts[0] <= len(taken) <= FUNCTIONS[other].counts[1]:
                    yield site.change(ir.Call(other, taken), f"{name.upper()}, not {other}", 0.4)
        case ir.Reduce(kind, bound, condition, body) if site.is_value:
            indices = ", ".join(index.name for index in bound)
            for other in _KINDS if kind in _KINDS else ():
                words = f"{kind.upper()} over {indices}, not {other}"
                extra = 0.1 if {kind, other} == {"sum", "mean"} else 0.5
                yield site.change(ir.Reduce(other, bound, condition, body), words, extra)
            for index in bound if len(bound) > 1 and kind == "sum" else ():
                part = ir.Mul((node, ir.Pow(index.extent, ir.MINUS_ONE)))
                yield site.change(part, f"SUM over {index.name}, not mean", 0.15)
            if kind in {"var", "sample_var"}:
                other = "sample_var" if kind == "var" else "var"
                says = "BIASED variance (correction=0)" if kind == "var" else "UNBIASED variance"
                words = f"{says} of {sites.show(body)}"
                yield site.change(ir.Reduce(other, bound, condition, body), words)
            if kind == "mean" and len(bound) == 1 and condition == ir.TRUE:
                extent = bound[0].extent
                less = ir.Pow(ir.Add((extent, ir.MINUS_ONE)), ir.MINUS_ONE)
                says = f"divide by {sites.show(extent)}, not less 1"
                sums = ir.Mul((ir.Reduce("sum", bound, condition, body), less))
                yield site.change(sums, f"BIASED variance (correction=0): {says}", 0.5)
        case ir.Along(kind, own, condition, body, None):
            says = f"{kind.upper()} over {own.name}"
            for index in dict.fromkeys((*find_free(body), *find_free(condition))):
                words = f"{says}, not {index.name}"
                if index is not own:
                    yield site.change(ir.Along(kind, index, condition, body), words)
            if other := ROWS[kind].logarithm or EXPONENTIALS.get(kind, ""):
                new = ir.Along(other, own, condition, body)
                yield site.change(new, f"{says}, not {other}", 0.1)


@sites.operator(
    cost=sites.SEVERAL,
    formula="x[N, H, D]; y[n, d] = sum[h](x[n, h, d]**2)",
    code="for h in range(x.shape[1]):\n    y = x[:, h] ** 2\nreturn y",
    words="sum over h",
)
def leave_out_reduction(site: sites.Site) -> Iterator[sites.Change]:
    """Only the first or the last entry of a sum, or a diagonal; no row, or not all of it."""
    match site.node:
        case ir.Reduce(kind, bound, condition, body) if site.is_value:
            for old in bound:
                rest = tuple(index for index in bound if index is not old)
                says = f"{kind.upper()} over {old.name}"
                alone = ", ".join(index.name for index in rest)
                less = f" too, not over {alone} alone, at {{}}" if rest else ""
                less = less or "; a repeated index, {}, takes a diagonal"
                places: list[tuple[ir.Expr, str, float]] = [
                    (new, says + less.format(new.name), 0.0)
                    for new in (*site.scope, *rest)
                    if new is not old and site.formula.extent(new) == site.formula.extent(old)
                    if kind == "sum" and condition == ir.TRUE
                ]
                last = ir.Add((old.extent, ir.MINUS_ONE))
                places += [
                    (last, f"{says}: only the last is kept", 0.4),
                    (ir.ZERO, f"{says}: only the first is kept", 0.4),
                ]
                for place, words, extra in places:
                    kept, new = (sites.exchange_nodes(p, {old: place}) for p in (condition, body))
                    yield site.change(
                        ir.Reduce(kind, rest, kept, new) if rest else new, words, extra
                    )
        case ir.Along(kind, _, condition, body):
            indices = ", ".join(each.name for each in site.node.indices)
            says = f"{kind.upper()} over {indices}"
            yield site.change(body, f"{says} is missing", 0.4)
            if ROWS[kind].normalizes:
                kept = ir.Where(condition, ir.ONE, ir.ZERO)
                over = ir.Mul((kept, ir.Call("exp", (body,))))
                yield site.change(over, f"{says} is missing: divide exp by its sum", 0.6)


@sites.operator(
    cost=sites.EXCHANGED,
    formula="q, k[N, D]; e[i, j] = sum[d](q[i, d] * k[j, d]) / sqrt(D)",
    code="return q @ k.T",
    words="scale e by 1/sqrt(d)",
)
def rescale(site: sites.Site) -> Iterator[sites.Change]:
    """A factor of sizes and numbers more or less, or the contrary sign, where it matters."""
    if not site.is_value or sites.is_number(site.node):
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
            name = sites.show(site.node, f"a part of {site.name}")
        case _:
            return
    own = sites.find_scale(site.node)
    bare = name.removeprefix("-") if name == sites.show(site.node) else name
    yield site.change(ir.Mul((ir.MINUS_ONE, site.node)), f"the SIGN of {bare} is to be turned", 0.2)
    for factor, extra in sites.find_factors(own, [ir.Size(name) for name in site.formula.sizes]):
        new = ir.Mul((site.node, factor.to_expr()))
        yield site.change(new, sites.say_scale(name, own, factor), extra + 0.2)


@sites.operator(
    cost=sites.EXCHANGED,
    formula="x, y[N]; z[i] = y[i] / sqrt(x[i]**2 + 1/100000)",
    code="return y / (x ** 2 + 1e-6).sqrt()",
    words="add 1/100000, not 1/1000000",
)
def exchange_number(site: sites.Site) -> Iterator[sites.Change]:
    """Another small number added, or other bounds of a clip."""
    node = site.node
    match node:
        case ir.Call("clip", (inner, low, high)):
            for step in (-1, 1, -2, 2):
                by = ir.Number(Fraction(step))
                less, more = ir.Add((low, ir.Mul((ir.MINUS_ONE, by)))), ir.Add((high, by))
                for bounds in ((less, more), (low, more), (less, high)):
                    shown = f"{sites.show(bounds[0])} and {sites.show(bounds[1])}"
                    words = f"CLIP to {sites.show(low)} and {sites.show(high)}, not to {shown}"
                    yield site.change(ir.Call("clip", (inner, *bounds)), words, 0.3)
        case _ if isinstance(site.parent, ir.Add) and site.is_value and sites.is_number(node):
            value = Polynomial.of(node).constant
            for power in range(1, 13) if value and 0 < value < Fraction(1, 50) else ():
                other = ir.Number(Fraction(1, 10**power))
                words = f"ADD {sites.show(node).replace(' / ', '/')}, not {other.value}"
                yield site.change(other, words, 0.3)


@sites.operator(
    cost=sites.LACKING,
    formula="x, y[N]; scalar eps = 0.1; z[i] = y[i] / sqrt(x[i]**2 + eps)",
    code="return y / (x.abs() + eps)",
    words="eps inside the root",
)
def move_number(site: sites.Site) -> Iterator[sites.Change]:
    """A number that is added beside the root instead of under it."""
    match site.node if site.is_value else None:
        case ir.Pow(ir.Add(terms), ir.Number(power)) if abs(power) == Fraction(1, 2):
            for at, eps in enumerate(terms):
                if isinstance(eps, (ir.Number, ir.Scalar)):
                    rest = sites.leave_out(ir.Add(terms), at)
                    new: ir.Expr = ir.Add((ir.Pow(rest, HALF), eps))
                    shown = sites.show(rest, "what is under the root")
                    words = f"{sites.show(eps).upper()} inside the root: ADD it to {shown}"
                    yield site.change(ir.Pow(new, ir.MINUS_ONE) if power < 0 else new, words, 0.1)


@sites.operator(
    cost=sites.LACKING,
    formula="e[N, M]; bool m[N, M]; p[i, j] = log_softmax[j, m[i, j]](e[i, j])",
    code="return e.log_softmax(-1) * m",
    words="mask before log_softmax",
)
def move_condition(site: sites.Site) -> Iterator[sites.Change]:
    """A mask put on the result of a row, or on its argument as a number or as an addend."""
    if not isinstance(row := site.node, ir.Along):
        return
    mask, body = row.condition, row.body
    match row.body:  # however the mask is written
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
    says = f"MASK before {row.kind}, by -inf where not {sites.show(mask, 'the mask')}"

    def along(body: ir.Expr) -> ir.Along:
        return ir.Along(row.kind, row.index, ir.TRUE, body)

    inside, outside = ir.Where(mask, ir.ONE, ir.ZERO), ir.Where(mask, ir.ZERO, ir.ONE)
    for side in (inside, outside):
        yield site.change(ir.Mul((side, along(body))), f"{says}: no product behind it")
    for other in (ir.Number(Fraction(number)) for number in _FILLED):
        by = f"{says}: not by {'a number' if abs(other.value) >= 10 else sites.show(other)}"
        yield site.change(along(ir.Where(mask, body, other)), by, 0.1)
        yield site.change(along(ir.Where(mask, other, body)), f"{by}, inverted", 0.3)
    for addend in (inside, outside, ir.Where(mask, ir.ZERO, ir.MINUS_ONE)):
        words = f"{says}: it is not added as 0 and 1"
        yield site.change(along(ir.Add((body, addend))), words, 0.2)
    inverted = along(ir.Where(mask, ir.MINUS_INFINITY, body))
    yield site.change(inverted, f"INVERT the mask: keep where {sites.show(mask)}", 0.1)


@sites.operator(
    cost=sites.LACKING,
    formula="q, k, v[N, D]; z[i, d] = sum[j](sum[e](q[i, e] * k[j, e]) * v[j, d])",
    code="return (q @ v.T) @ k",
    words="exchange k and v",
)
def exchange_tensors(site: sites.Site) -> Iterator[sites.Change]:
    """Two tensors exchanged in one equation, and two inputs everywhere."""

    def act(pair: Mapping[ir.Tensor, ir.Tensor], expr: ir.Expr) -> ir.Expr:
        if isinstance(expr, ir.Access) and expr.tensor in pair:
            return ir.Access(pair[expr.tensor], expr.places)
        return expr

    if site.parent is not None:
        return
    formula, equations = site.formula, site.formula.system.equations
    here = {access.tensor for access in find_accesses(site.node)}
    readable = formula.tensors(site.number)
    for one, two in combinations(formula.tensors(len(equations)), 2):
        if formula.is_alike(one, two):
            words, turn = f"EXCHANGE {one.name} and {two.name}", partial(act, {one: two, two: one})
            if {one, two} <= here and {one, two} <= {*readable}:
                yield site.change(
                    sites.rewrite_value(site.equation, turn), f"{words} in {site.name}"
                )
            if site.number == 0:
                every = tuple(sites.rewrite_value(each, turn) for each in equations)
                yield site.change(formula.with_equations(every), words)


@sites.operator(
    cost=sites.SEVERAL,
    formula="a, b[N, N, C]; t[i, j, c] = sum[k](a[i, k, c] * b[j, k, c])",
    code="return torch.einsum('kic,kjc->ijc', a, b)",
    words="exchange i and k of a and j and k of b",
)
def exchange_indices_twice(site: sites.Site) -> Iterator[sites.Change]:
    """Two indices exchanged in each of two accesses."""

    def put(new: Mapping[ir.Expr, ir.Expr], expr: ir.Expr) -> ir.Expr:
        return new.get(expr, expr)

    if site.parent is not None:
        return
    accesses = dict.fromkeys(each.access for each in site.formula.sites[site.number] if each.access)
    turned = [
        (
            access,
            sites.exchange_nodes(access, {one: two, two: one}),
            f"{names} of {access.tensor.name}",
        )
        for access in accesses
        for one, two, names in sites.pair_indices(site.formula, access)
    ]
    for (one, new_one, what), (two, new_two, other) in combinations(turned, 2):
        if one is not two:
            new = sites.rewrite_value(site.equation, partial(put, {one: new_one, two: new_two}))
            yield site.change(new, f"EXCHANGE {what} and {other}")


@sites.operator(
    cost=sites.SEVERAL,
    formula="x[N, D]; W[D, D]; y[n, e] = sum[d](x[n, d] * W[d, e])\n"
    "z[n, e] = sum[d](y[n, d] * W[e, d])",
    code="y = x @ W\nreturn y",
    words="add the last step",
)
def return_others(site: sites.Site) -> Iterator[sites.Change]:
    """Results of other equations: the last steps left out, or two results exchanged."""
    formula, system = site.formula, site.formula.system
    if site.parent is not None or site.number != len(system.equations) - 1:
        return
    names = [equation.target.tensor.name for equation in system.equations]
    for at, result in enumerate(system.results):
        for other in formula.tensors(len(system.equations)):
            if other is result or other.kind != result.kind or other in system.tensors:
                continue
            results = (*system.results[:at], other, *system.results[at + 1 :])
            words = f"RETURN {result.name}, not {other.name}"
            if result.name in names[names.index(other.name) + 1 :]:
                step = sites.show(system.equations[names.index(result.name)], result.name)
                words += f": ADD the last step, {step}"
            yield site.change(formula.with_equations(system.equations, results), words)
    words = f"EXCHANGE the results: return {', '.join(t.name for t in system.results)}"
    for order in permutations(system.results):
        if order != system.results:
            yield site.change(formula.with_equations(system.equations, order), words)


@sites.operator(
    cost=sites.MISPLACED,
    formula="x[B, N, D]; m[b, n] = mean[k](x[b, n, k]); y[b, n, d] = x[b, n, d] - m[b, n]",
    code="m = x.mean(1, keepdim=True)\nreturn x - m",
    words="mean over k, not n",
)
def reduce_other_index(site: sites.Site) -> Iterator[sites.Change]:
    """A reduction over an index that it should have kept, as an equation of its own."""
    node, formula = site.node, site.formula
    if not isinstance(node, ir.Reduce) or not site.is_value:
        return
    free, target = find_free(node), site.equation.target
    for old, kept in product(node.bound, free):
        words = f"{node.kind.upper()} over {old.name}, not {kept.name}"
        if kept in target.places and formula.extent(old) != formula.extent(kept):
            bound = tuple(kept if index is old else index for index in node.bound)
            value = site.put(ir.Reduce(node.kind, bound, node.condition, node.body))
            yield from _keep_other_index(site, value, kept, old, words)


def _keep_other_index(
    site: sites.Site, value: ir.Expr, kept: ir.Index, old: ir.Index, words: str
) -> Iterator[sites.Change]:
    """An equation that keeps another index, which is read by its extent in all that follow."""
    formula, target = site.formula, site.equation.target
    indices = tuple(old if place is kept else place for place in target.places)
    if not all(isinstance(index, ir.Index) for index in indices):
        return
    extents = tuple(index.extent for index in indices if isinstance(index, ir.Index))
    tensor = ir.Tensor(target.tensor.name, extents, target.tensor.kind)

    def act(scope: tuple[ir.Index, ...], expr: ir.Expr) -> ir.Expr:
        if not isinstance(expr, ir.Access) or expr.tensor is not target.tensor:
            return expr
        instead = next((i for i in scope if formula.extent(i) == formula.extent(old)), None)
        pairs = zip(target.places, expr.places, strict=True)
        places = tuple(instead if was is kept and instead else there for was, there in pairs)
        return ir.Access(tensor, places)

    equations = [
        *formula.system.equations[: site.number],
        ir.Equation(ir.Access(tensor, indices), value),
    ]
    for equation in formula.system.equations[site.number + 1 :]:
        scope = tuple(node for node in walk(equation.value) if isinstance(node, ir.Index))
        equations.append(sites.rewrite_value(equation, partial(act, scope)))
    results = tuple(tensor if t is target.tensor else t for t in formula.system.results)
    yield site.change(formula.with_equations(tuple(equations), results), words)


@sites.operator(
    cost=sites.EXCHANGED,
    formula="x[S, 2*D]; c[S, D]; index m < 2*D\n"
    "r[t, m] = where(m % 2 == 0, -x[t, 2*(m // 2) + 1], x[t, 2*(m // 2)])\n"
    "y[t, m] = x[t, m] * c[t, m // 2] + r[t, m]",
    code="a, b = x.chunk(2, -1)\nreturn torch.cat((a * c - b, b * c + a), -1)",
    words="interleaved, not halved",
    about="a place",
)
def read_other_layout(site: sites.Site) -> Iterator[sites.Change]:
    """Pairs of neighbours for pairs of halves, in all places of the formula at once."""
    formula, equations = site.formula, site.formula.system.equations
    if site.number or site.parent is not None:
        return
    targets = [place for each in equations for place in each.target.places]
    indices = [place for place in targets if isinstance(place, ir.Index)]
    extents = dict.fromkeys(i.extent for i in indices if not formula.extent(i) % 2)
    for words, there, back in (
        ("INTERLEAVED, not halved", _join, _part),
        ("HALVED, not interleaved", _part, _join),
    ):
        for extent in extents:
            turned = tuple(_turn(each, extent, there, back) for each in equations)
            yield site.change(formula.with_equations(turned), words, 0.25)


def _turn(
    equation: ir.Equation,
    extent: ir.Expr,
    there: Callable[[ir.Expr, ir.Expr], ir.Expr],
    back: Callable[[ir.Expr, ir.Expr], ir.Expr],
) -> ir.Equation:
    """The equation in the other layout of all that has this extent."""
    value, whole = equation.value, Polynomial.of(extent)
    for index in equation.target.places:
        if not isinstance(index, ir.Index) or index.extent != extent:
            continue

        def act(expr: ir.Expr, index: ir.Index = index) -> ir.Expr:
            if not isinstance(expr, ir.Access):
                return expr
            places = tuple(
                back(place, n) if index in find_free(place) and Polynomial.of(n) == whole else place
                for place, n in zip(expr.places, expr.tensor.shape, strict=True)
            )
            return ir.Access(expr.tensor, places)

        value = rewrite_bottom_up(sites.exchange_nodes(value, {index: there(index, extent)}), act)
    return ir.Equation(equation.target, value)


def _join(place: ir.Expr, extent: ir.Expr) -> ir.Expr:
    """Where pairs of neighbours have what lies here in halves."""
    half = ir.Call("floordiv", (extent, TWO))
    return ir.Add(
        (ir.Mul((TWO, ir.Call("mod", (place, half)))), ir.Call("floordiv", (place, half)))
    )


def _part(place: ir.Expr, extent: ir.Expr) -> ir.Expr:
    """Where halves have what lies here in pairs of neighbours."""
    odd = ir.Mul((ir.Call("floordiv", (extent, TWO)), ir.Call("mod", (place, TWO))))
    return ir.Add((ir.Call("floordiv", (place, TWO)), odd))


OPERATORS = (
    *(exchange_indices, read_other_tensor, exchange_kind, change_condition, rescale),
    *(exchange_number, leave_out_part, move_number, move_condition, move_place),
    *(read_other_index, leave_out_reduction),
    *(exchange_tensors, reduce_other_index, read_other_layout),
    *(return_others, exchange_indices_twice),
)
