"""(x - mean x) / sqrt(var x + eps) is torch's layer_norm, x / sqrt(mean x**2 + eps) its rms_norm.

Ba, Kiros, Hinton 2016, eq. 4; Zhang, Sennrich 2019, eq. 4. A weight and a bias over the indices
that are normalised go with it. Both compute in float32 what they are given in half precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.plan import ops
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

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from derive.plan.cells.matching import Definitions

LAYER = "torch.nn.functional.layer_norm"
RMS = "torch.nn.functional.rms_norm"
SIGNS = {"weight": "*", "bias": "+"}
TWO = ir.Number(Fraction(2))


@dataclass(frozen=True, slots=True)
class Norm:
    """What is normalised, over which indices, and the number under the root."""

    call: str
    arg: ops.Op
    over: tuple[ir.Index, ...]
    eps: ir.Expr


def match_norm(op: ops.Op, definitions: Definitions) -> ops.Op | None:
    """A product with a normalised factor, and what is added to it."""
    if not isinstance(op, ops.Apply) or op.function not in {"+", "-", "*", "/", "neg"}:
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
        if not isinstance(root, ops.Apply) or root.function != "sqrt":
            continue
        spread, eps = _split_number(root.args[0], definitions)
        if eps is None:
            continue
        for factor in factors.over:
            over = tuple(i for i in ops.axes_of(factor) if i not in ops.axes_of(spread))
            if not over or len(ops.axes_of(factor)) != len(over) + len(ops.axes_of(spread)):
                continue
            norm = _name_norm(factor, spread, over, eps, definitions)
            if norm is not None:
                factors.over.remove(factor)
                factors.under.remove(root)
                return norm
    return None


def _split_number(op: ops.Op, definitions: Definitions) -> tuple[ops.Op, ir.Expr | None]:
    """(what stands under the root, the number that is added to it), None for other numbers."""
    terms = split_sum(op, lambda part: definitions.look(strip(part)))
    numbers = [term for term in terms if isinstance(term.op, ops.Num)]
    others = [term for term in terms if not isinstance(term.op, ops.Num)]
    if not others:
        return op, None
    rest = join_sum(others, ops.axes_of(op))
    match numbers:
        case []:
            return rest, ir.ZERO
        case [Signed(ops.Num(ir.Scalar() as value), False)]:
            return rest, value
        case [Signed(ops.Num(value), False)] if (
            constant := Polynomial.of(value).constant
        ) is not None:
            return rest, ir.Number(constant)
        case _:
            return rest, None


def _name_norm(
    factor: ops.Op,
    spread: ops.Op,
    over: tuple[ir.Index, ...],
    eps: ir.Expr,
    definitions: Definitions,
) -> Norm | None:
    """The norm, if the factor is x - mean x and what is spread var x; or x and mean x**2."""
    candidates = list(dict.fromkeys(_find_tensors(factor, ops.axes_of(factor), definitions)))
    for arg in candidates:
        kept = {arg.name}
        centred, deviation = definitions.spell(factor, kept), definitions.spell(spread, kept)
        mean = ops.Reduction("mean", arg, over)
        if is_same(deviation, ops.Reduction("var", arg, over)) and is_same(
            centred, ops.combine("-", (arg, mean), arg.axes)
        ):
            return Norm(LAYER, arg, over, eps)
    for arg in candidates:
        square = ops.Apply("pow", (arg, ops.Num(TWO)), arg.axes)
        kept = {arg.name}
        strides = dict(zip(arg.axes, find_strides(arg, definitions.memory), strict=True))
        closest = sorted(strides, key=lambda index: strides[index])[: len(over)]
        if (
            set(closest) == set(over)  # its entries along these indices lie side by side
            and is_same(definitions.spell(spread, kept), ops.Reduction("mean", square, over))
            and is_same(definitions.spell(factor, kept), arg)
        ):
            return Norm(RMS, arg, over, eps)
    return None


def _find_tensors(
    op: ops.Op, axes: tuple[ir.Index, ...], definitions: Definitions
) -> Iterator[ops.Source]:
    """The tensors with all of the axes that it is made from, the first ones first."""
    for part in ops.walk_ops(op):
        if isinstance(part, ops.Source) and part.kind == "real" and set(part.axes) == set(axes):
            step = definitions.look(part)
            if step is not part:
                yield from _find_tensors(step, axes, definitions)
            yield part


def _make_cell(
    norm: Norm, factors: Factors, others: Sequence[Signed], order: tuple[ir.Index, ...]
) -> ops.Op:
    """The call with the weight and the bias that fit it, and what is left around it."""
    kept = tuple(i for i in ops.axes_of(norm.arg) if i not in norm.over)
    axes = (*kept, *norm.over)
    fits = [factor for factor in factors.over if set(ops.axes_of(factor)) == set(norm.over)]
    weight = fits[0] if fits else None
    if weight is not None:
        factors.over.remove(weight)
    is_bare = not factors.over and not factors.under and not factors.negative
    bias = None
    rest = list(others)
    if is_bare and norm.call == LAYER:
        able = [t for t in rest if not t.negative and set(ops.axes_of(t.op)) == set(norm.over)]
        if able:
            bias = able[0].op
            rest.remove(able[0])
    result: ops.Op = _write_call(norm, axes, weight, bias)
    over = join_product(factors.over, order)
    if over is not None:
        result = ops.combine("*", (result, over), order)
    result = divide(result, factors.under, order)
    return ops.arrange(join_sum([Signed(result, factors.negative), *rest], order), order)


def _write_call(
    norm: Norm, axes: tuple[ir.Index, ...], weight: ops.Op | None, bias: ops.Op | None
) -> ops.Cell:
    """The call on tensors whose normalised indices stand last."""
    affine = {"weight": weight, "bias": bias}
    given = {
        name: ops.arrange(part, norm.over) for name, part in affine.items() if part is not None
    }
    args: list[ops.Op] = [
        ops.arrange(norm.arg, axes),
        *(ops.Num(index.extent) for index in norm.over),
    ]
    plain: tuple[ops.Operand, ...] = (
        ops.Given(0),
        tuple(ops.Given(k) for k in range(1, len(args))),
    )
    places = {name: ops.Given(len(args) + k) for k, name in enumerate(given)}
    eps = ops.Given(len(args) + len(given))
    args += [*given.values(), ops.Num(norm.eps)]
    whole = _spell(norm, args[0], axes)
    for name, part in given.items():
        whole = ops.combine(SIGNS[name], (whole, part), axes)
    when: tuple[ops.Condition, ...] = (eps,) if isinstance(norm.eps, ir.Scalar) else ()
    if given and norm.call == LAYER:
        # On a CPU torch adds up the gradients of weight and bias in their own dtype, which is too
        # narrow if that is half precision: there they come after the call.
        call = ops.TorchCall(norm.call, plain, (("eps", eps),))
        for name, place in places.items():
            call = ops.TorchCall(SIGNS[name], (call, place))
        whole = ops.Cell(call, tuple(args), whole, axes, when)
        when = (*when, "wide")
    call = ops.TorchCall(norm.call, plain, (*places.items(), ("eps", eps)))
    scratch = (axes,) if norm.call == RMS else ()
    return ops.Cell(call, tuple(args), whole, axes, when, scratch=scratch)


def _spell(norm: Norm, arg: ops.Op, axes: tuple[ir.Index, ...]) -> ops.Op:
    """The operations that the call stands for, without weight and bias."""
    if norm.call == LAYER:
        above: ops.Op = ops.combine("-", (arg, ops.Reduction("mean", arg, norm.over)), axes)
        below: ops.Op = ops.Reduction("var", arg, norm.over)
    else:
        square = ops.Apply("pow", (arg, ops.Num(TWO)), axes)
        above, below = arg, ops.Reduction("mean", square, norm.over)
    if norm.eps is not ir.ZERO:
        below = ops.Apply("+", (below, ops.Num(norm.eps)), ops.axes_of(below))
    root = ops.Apply("sqrt", (below,), ops.axes_of(below))
    return ops.combine("/", (above, root), axes)


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
