"""(x - mean x) / sqrt(var x + eps) is torch's layer_norm, x / sqrt(mean x**2 + eps) its rms_norm.

Ba, Kiros, Hinton 2016, eq. 4; Zhang, Sennrich 2019, eq. 4. A weight and a bias over the indices
that are normalised go with it. Both compute in float32 what they are given in half precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from derive.ir.nodes import ZERO, Expr, Number, Scalar
from derive.ir.polynomial import Polynomial
from derive.plan.cells.matching import (
    CellRule,
    Factors,
    Signed,
    divide,
    is_same,
    join_product,
    join_sum,
    split_product,
    split_sum,
    strip,
)
from derive.plan.cost import find_strides
from derive.plan.ops import (
    Apply,
    Cell,
    Condition,
    Given,
    Num,
    Op,
    Operand,
    Reduction,
    Source,
    TorchCall,
    arrange,
    axes_of,
    combine,
    walk_ops,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from derive.ir.nodes import Index
    from derive.plan.cells.matching import Definitions

LAYER = "torch.nn.functional.layer_norm"
RMS = "torch.nn.functional.rms_norm"
SIGNS = {"weight": "*", "bias": "+"}
TWO = Number(Fraction(2))


@dataclass(frozen=True, slots=True)
class Norm:
    """What is normalised, over which indices, and the number under the root."""

    call: str
    arg: Op
    over: tuple[Index, ...]
    eps: Expr


def match_norm(op: Op, definitions: Definitions) -> Op | None:
    """A product with a normalised factor, and what is added to it."""
    if not isinstance(op, Apply) or op.function not in {"+", "-", "*", "/", "neg"}:
        return None
    terms = split_sum(op, definitions.unwrap)
    for place, term in enumerate(terms):
        factors = split_product(term.op, lambda part: definitions.unwrap_small(part, op.axes))
        norm = _find_norm(factors, definitions)
        if norm is not None:
            others = [*terms[:place], *terms[place + 1 :]]
            factors.negative ^= term.negative
            return _make_cell(norm, factors, others, op.axes)
    return None


def _find_norm(factors: Factors, definitions: Definitions) -> Norm | None:
    """The norm in a product; its two factors go out of it."""
    for root in factors.under:
        if not isinstance(root, Apply) or root.function != "sqrt":
            continue
        spread, eps = _split_number(root.args[0], definitions)
        if eps is None:
            continue
        for factor in factors.over:
            over = tuple(i for i in axes_of(factor) if i not in axes_of(spread))
            if not over or len(axes_of(factor)) != len(over) + len(axes_of(spread)):
                continue
            norm = _name_norm(factor, spread, over, eps, definitions)
            if norm is not None:
                factors.over.remove(factor)
                factors.under.remove(root)
                return norm
    return None


def _split_number(op: Op, definitions: Definitions) -> tuple[Op, Expr | None]:
    """(what stands under the root, the number that is added to it), None for other numbers."""
    terms = split_sum(op, lambda part: definitions.look(strip(part)))
    numbers = [term for term in terms if isinstance(term.op, Num)]
    others = [term for term in terms if not isinstance(term.op, Num)]
    if not others:
        return op, None
    rest = join_sum(others, axes_of(op))
    match numbers:
        case []:
            return rest, ZERO
        case [Signed(Num(Scalar() as value), False)]:
            return rest, value
        case [Signed(Num(value), False)] if (constant := Polynomial.of(value).constant) is not None:
            return rest, Number(constant)
        case _:
            return rest, None


def _name_norm(
    factor: Op, spread: Op, over: tuple[Index, ...], eps: Expr, definitions: Definitions
) -> Norm | None:
    """The norm, if the factor is x - mean x and what is spread var x; or x and mean x**2."""
    candidates = list(dict.fromkeys(_find_tensors(factor, axes_of(factor), definitions)))
    for arg in candidates:
        kept = {arg.name}
        centred, deviation = definitions.spell(factor, kept), definitions.spell(spread, kept)
        mean = Reduction("mean", arg, over)
        if is_same(deviation, Reduction("var", arg, over)) and is_same(
            centred, combine("-", (arg, mean), arg.axes)
        ):
            return Norm(LAYER, arg, over, eps)
    for arg in candidates:
        square = Apply("pow", (arg, Num(TWO)), arg.axes)
        kept = {arg.name}
        deviation = definitions.spell(spread, kept)
        is_norm = is_same(deviation, Reduction("mean", square, over))
        if (
            is_norm
            and _is_dense(arg, over, definitions)
            and is_same(definitions.spell(factor, kept), arg)
        ):
            return Norm(RMS, arg, over, eps)
    return None


def _find_tensors(op: Op, axes: tuple[Index, ...], definitions: Definitions) -> Iterator[Source]:
    """The tensors with all of the axes that it is made from, the first ones first."""
    for part in walk_ops(op):
        if isinstance(part, Source) and part.kind == "real" and set(part.axes) == set(axes):
            step = definitions.look(part)
            if step is not part:
                yield from _find_tensors(step, axes, definitions)
            yield part


def _is_dense(arg: Op, over: tuple[Index, ...], definitions: Definitions) -> bool:
    """Do its entries along these indices lie side by side?"""
    strides = dict(zip(axes_of(arg), find_strides(arg, definitions.memory), strict=True))
    closest = sorted(strides, key=lambda index: strides[index])[: len(over)]
    return set(closest) == set(over)


def _make_cell(
    norm: Norm, factors: Factors, others: Sequence[Signed], order: tuple[Index, ...]
) -> Op:
    """The call with the weight and the bias that fit it, and what is left around it."""
    kept = tuple(i for i in axes_of(norm.arg) if i not in norm.over)
    axes = (*kept, *norm.over)
    weight = _take(factors.over, norm.over)
    is_bare = not factors.over and not factors.under and not factors.negative
    bias = None
    rest = list(others)
    if is_bare and norm.call == LAYER:
        able = [t for t in rest if not t.negative and set(axes_of(t.op)) == set(norm.over)]
        if able:
            bias = able[0].op
            rest.remove(able[0])
    result: Op = _write_call(norm, axes, weight, bias)
    over = join_product(factors.over, order)
    if over is not None:
        result = combine("*", (result, over), order)
    result = divide(result, factors.under, order)
    return arrange(join_sum([Signed(result, factors.negative), *rest], order), order)


def _take(factors: list[Op], over: tuple[Index, ...]) -> Op | None:
    """The factor with exactly these indices; it goes out of the list."""
    for factor in factors:
        if set(axes_of(factor)) == set(over):
            factors.remove(factor)
            return factor
    return None


def _write_call(norm: Norm, axes: tuple[Index, ...], weight: Op | None, bias: Op | None) -> Cell:
    """The call on tensors whose normalised indices stand last."""
    affine = {"weight": weight, "bias": bias}
    given = {name: arrange(part, norm.over) for name, part in affine.items() if part is not None}
    args: list[Op] = [arrange(norm.arg, axes), *(Num(index.extent) for index in norm.over)]
    plain: tuple[Operand, ...] = (Given(0), tuple(Given(k) for k in range(1, len(args))))
    places = {name: Given(len(args) + k) for k, name in enumerate(given)}
    eps = Given(len(args) + len(given))
    args += [*given.values(), Num(norm.eps)]
    whole = _join_affine(_spell(norm, args[0], axes), given, axes)
    when: tuple[Condition, ...] = (eps,) if isinstance(norm.eps, Scalar) else ()
    if given and norm.call == LAYER:
        # On a CPU torch adds up the gradients of weight and bias in their own dtype, which is too
        # narrow if that is half precision: there they come after the call.
        call = TorchCall(norm.call, plain, (("eps", eps),))
        for name, place in places.items():
            call = TorchCall(SIGNS[name], (call, place))
        whole = Cell(call, tuple(args), whole, axes, when)
        when = (*when, "wide")
    call = TorchCall(norm.call, plain, (*places.items(), ("eps", eps)))
    scratch = (axes,) if norm.call == RMS else ()
    return Cell(call, tuple(args), whole, axes, when, scratch=scratch)


def _join_affine(op: Op, given: dict[str, Op], axes: tuple[Index, ...]) -> Op:
    """The operation times the weight and plus the bias."""
    for name, part in given.items():
        op = combine(SIGNS[name], (op, part), axes)
    return op


def _spell(norm: Norm, arg: Op, axes: tuple[Index, ...]) -> Op:
    """The operations that the call stands for, without weight and bias."""
    if norm.call == LAYER:
        above: Op = combine("-", (arg, Reduction("mean", arg, norm.over)), axes)
        below: Op = Reduction("var", arg, norm.over)
    else:
        square = Apply("pow", (arg, Num(TWO)), axes)
        above, below = arg, Reduction("mean", square, norm.over)
    if norm.eps is not ZERO:
        below = Apply("+", (below, Num(norm.eps)), axes_of(below))
    root = Apply("sqrt", (below,), axes_of(below))
    return combine("/", (above, root), axes)


CELLS = (
    CellRule(
        call=LAYER,
        computes=(
            "x[B, S, D]; gamma, beta[D]\ny[b,s,d] = gamma[d] * (x[b,s,d] - mean[e](x[b,s,e]))"
            " / sqrt(var[e](x[b,s,e]) + 1e-5) + beta[d]"
        ),
        refuses=(
            "x[B, D]\n"
            "y[b,d] = (x[b,d] - mean[c](x[b,c])) / sqrt(var[c](x[b,c], correction=1) + 1e-5)"
        ),
        match=match_norm,
    ),
    CellRule(
        call=RMS,
        computes="x[N, D]; g[D]\ny[n,d] = g[d] * x[n,d] / sqrt(mean[e](x[n,e]**2) + 1e-6)",
        refuses="x[B, D]\ny[b,d] = x[b,d] / (mean[c](x[b,c]**2) + 1e-6)",
        match=match_norm,
    ),
)
