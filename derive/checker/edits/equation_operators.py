"""Operators of edits of equations as a whole: other results, a kept index, layouts of pairs."""

from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from itertools import combinations, permutations, product

from derive.checker.edits.sites import (
    EXCHANGED,
    LACKING,
    MISPLACED,
    SEVERAL,
    Change,
    Site,
    exchange_nodes,
    operator,
    pair_indices,
    rewrite_value,
    show_node,
)
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import find_accesses, find_free, rewrite_bottom_up, walk

TWO = ir.Number(Fraction(2))


@operator(
    cost=LACKING,
    formula="q, k, v[N, D]; z[i, d] = sum[j](sum[e](q[i, e] * k[j, e]) * v[j, d])",
    code="return (q @ v.T) @ k",
    words="exchange k and v",
)
def exchange_tensors(site: Site) -> Iterator[Change]:
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
                yield site.change(rewrite_value(site.equation, turn), f"{words} in {site.name}")
            if site.number == 0:
                every = tuple(rewrite_value(each, turn) for each in equations)
                yield site.change(formula.with_equations(every), words)


@operator(
    cost=SEVERAL,
    formula="a, b[N, N, C]; t[i, j, c] = sum[k](a[i, k, c] * b[j, k, c])",
    code="return torch.einsum('kic,kjc->ijc', a, b)",
    words="exchange i and k of a and j and k of b",
)
def exchange_indices_twice(site: Site) -> Iterator[Change]:
    """Two indices exchanged in each of two accesses."""

    def replace_access(new: Mapping[ir.Expr, ir.Expr], expr: ir.Expr) -> ir.Expr:
        return new.get(expr, expr)

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
            new = rewrite_value(
                site.equation, partial(replace_access, {one: new_one, two: new_two})
            )
            yield site.change(new, f"EXCHANGE {what} and {other}")


@operator(
    cost=SEVERAL,
    formula="x[N, D]; W[D, D]; y[n, e] = sum[d](x[n, d] * W[d, e])\n"
    "z[n, e] = sum[d](y[n, d] * W[e, d])",
    code="y = x @ W\nreturn y",
    words="add the last step",
)
def return_others(site: Site) -> Iterator[Change]:
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
                step = show_node(system.equations[names.index(result.name)], result.name)
                words += f": ADD the last step, {step}"
            yield site.change(formula.with_equations(system.equations, results), words)
    words = f"EXCHANGE the results: return {', '.join(t.name for t in system.results)}"
    for order in permutations(system.results):
        if order != system.results:
            yield site.change(formula.with_equations(system.equations, order), words)


@operator(
    cost=MISPLACED,
    formula="x[B, N, D]; m[b, n] = mean[k](x[b, n, k]); y[b, n, d] = x[b, n, d] - m[b, n]",
    code="m = x.mean(1, keepdim=True)\nreturn x - m",
    words="mean over k, not n",
)
def reduce_other_index(site: Site) -> Iterator[Change]:
    """A reduction over an index that the equation should keep, in a new equation."""
    node, formula = site.node, site.formula
    if not isinstance(node, ir.Reduce) or not site.is_value:
        return
    free, target = find_free(node), site.equation.target
    for old, kept in product(node.bound, free):
        words = f"{node.kind.upper()} over {old.name}, not {kept.name}"
        if kept in target.places and formula.extent(old) != formula.extent(kept):
            bound = tuple(kept if index is old else index for index in node.bound)
            value = site.put_node(ir.Reduce(node.kind, bound, node.condition, node.body))
            yield from _keep_other_index(site, value, kept, old, words)


def _keep_other_index(
    site: Site, value: ir.Expr, kept: ir.Index, old: ir.Index, words: str
) -> Iterator[Change]:
    """The formula whose equation keeps another index, which later equations read by its extent."""
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
        equations.append(rewrite_value(equation, partial(act, scope)))
    results = tuple(tensor if t is target.tensor else t for t in formula.system.results)
    yield site.change(formula.with_equations(tuple(equations), results), words)


@operator(
    cost=EXCHANGED,
    formula="x[S, 2*D]; c[S, D]; index m < 2*D\n"
    "r[t, m] = where(m % 2 == 0, -x[t, 2*(m // 2) + 1], x[t, 2*(m // 2)])\n"
    "y[t, m] = x[t, m] * c[t, m // 2] + r[t, m]",
    code="a, b = x.chunk(2, -1)\nreturn torch.cat((a * c - b, b * c + a), -1)",
    words="interleaved, not halved",
    about="a place",
)
def read_other_layout(site: Site) -> Iterator[Change]:
    """Interleaved pairs instead of halves, or the reverse, in all places of the formula at once."""
    formula, equations = site.formula, site.formula.system.equations
    if site.number or site.parent is not None:
        return
    targets = [place for each in equations for place in each.target.places]
    indices = [place for place in targets if isinstance(place, ir.Index)]
    extents = dict.fromkeys(i.extent for i in indices if not formula.extent(i) % 2)
    for words, there, back in (
        ("INTERLEAVED, not halved", _halved_to_interleaved, _interleaved_to_halved),
        ("HALVED, not interleaved", _interleaved_to_halved, _halved_to_interleaved),
    ):
        for extent in extents:
            turned = tuple(_change_layout(each, extent, there, back) for each in equations)
            yield site.change(formula.with_equations(turned), words, 0.25)


def _change_layout(
    equation: ir.Equation,
    extent: ir.Expr,
    there: Callable[[ir.Expr, ir.Expr], ir.Expr],
    back: Callable[[ir.Expr, ir.Expr], ir.Expr],
) -> ir.Equation:
    """The equation with all axes of this extent in the other layout."""
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

        value = rewrite_bottom_up(exchange_nodes(value, {index: there(index, extent)}), act)
    return ir.Equation(equation.target, value)


def _halved_to_interleaved(place: ir.Expr, extent: ir.Expr) -> ir.Expr:
    """The position in interleaved pairs of a position in halves."""
    half = ir.Call("floordiv", (extent, TWO))
    return ir.Add(
        (ir.Mul((TWO, ir.Call("mod", (place, half)))), ir.Call("floordiv", (place, half)))
    )


def _interleaved_to_halved(place: ir.Expr, extent: ir.Expr) -> ir.Expr:
    """The position in halves of a position in interleaved pairs."""
    odd = ir.Mul((ir.Call("floordiv", (extent, TWO)), ir.Call("mod", (place, TWO))))
    return ir.Add((ir.Call("floordiv", (place, TWO)), odd))
