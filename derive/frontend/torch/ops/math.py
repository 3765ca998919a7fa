"""Elementwise functions: arithmetic, comparisons, logic, activations."""

from __future__ import annotations

import math
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from derive.frontend.torch.call import Call, composite, op
from derive.frontend.torch.carry import apply_to
from derive.frontend.torch.exprs import (
    add,
    choose,
    compare,
    divide,
    flip_sign,
    multiply,
    negate_truth,
    power,
    subtract,
    to_condition,
    to_number,
)
from derive.frontend.torch.numbers import to_expr
from derive.frontend.torch.trace import Shadow, at
from derive.ir import nodes as ir
from derive.ir.definitions import Maker, open_call, read
from derive.ir.functions import FUNCTIONS, find_spelt

if TYPE_CHECKING:
    from collections.abc import Callable

    Act = Callable[..., ir.Expr]


def apply(call: Call, act: Act, *values: Any) -> Shadow:
    """A function of the elements of tensors and numbers, under broadcasting, as numbers."""
    trace = call.trace
    shadows = [trace.shadow(value) for value in values]
    indices = trace.broadcast(*shadows)
    elements = [to_number(trace.spread(s, indices), s.kind) for s in shadows]
    found = act(*elements)
    return trace.make(indices, found, call.kind)


def _map(act: Act, count: int = 1) -> Callable[[Call], Shadow]:
    names = ("input", "other")

    def run(call: Call) -> Shadow:
        return apply(call, act, *(call.get(k, names[k]) for k in range(count)))

    return run


def _scaled(call: Call, act: Act, backward: bool = False) -> Shadow:
    """Sums and differences with alpha; `rsub` takes its first from its second."""
    alpha = call.named.get("alpha", 1)
    one, other = call.get(0, "input"), call.get(1, "other")
    if backward:
        one, other = other, one
    factor = to_expr(alpha)
    return apply(call, lambda a, b: act(a, multiply(factor, b)), one, other)


def _divide(call: Call) -> Shadow:
    mode = call.named.get("rounding_mode")
    if mode == "floor":
        return _map(_floor_divide, 2)(call)
    if mode is not None:
        raise call.trace.refuse("lift-op", f"rounding_mode={mode!r} is not known")
    return _map(divide, 2)(call)


def _floor_divide(one: ir.Expr, other: ir.Expr) -> ir.Expr:
    return ir.Call("floordiv", (one, other))


def _remainder(one: ir.Expr, other: ir.Expr) -> ir.Expr:
    return ir.Call("mod", (one, other))


def _whole(call: Call) -> Shadow:
    """// and % of integers; of reals they are not known."""
    if call.kind != "int":
        raise call.trace.refuse("lift-op", f"{call.name} of real numbers is not known")
    return _map(_floor_divide if "floor" in call.name else _remainder, 2)(call)


def _compare(call: Call) -> Shadow:
    relation = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}[call.name]
    trace = call.trace
    shadows = [trace.shadow(call.get(k, name)) for k, name in enumerate(("input", "other"))]
    indices = trace.broadcast(*shadows)
    parts = [(trace.spread(s, indices), s.kind) for s in shadows]
    kinds = {kind for _, kind in parts}
    if kinds == {"bool"} and relation in {"==", "!="}:
        one, other = parts[0][0], parts[1][0]
        same = ir.any_of(ir.all_of(one, other), ir.all_of(negate_truth(one), negate_truth(other)))
        return trace.make(indices, same if relation == "==" else negate_truth(same), "bool")
    values = [to_number(*part) for part in parts]
    return trace.make(indices, compare(relation, *values), "bool")


def _logic(call: Call) -> Shadow:
    """and, or, xor of truth values; bits of integers are not known."""
    trace = call.trace
    shadows = [trace.shadow(call.get(k, name)) for k, name in enumerate(("input", "other"))]
    if not call.name.startswith("logical") and any(s.kind != "bool" for s in shadows):
        raise trace.refuse("lift-op", f"{call.name} of integers is not known")
    indices = trace.broadcast(*shadows)
    one, other = (to_condition(trace.spread(s, indices), s.kind) for s in shadows)
    if call.name.endswith("and"):
        found = ir.all_of(one, other)
    elif call.name.endswith("xor"):
        found = ir.any_of(ir.all_of(one, negate_truth(other)), ir.all_of(negate_truth(one), other))
    else:
        found = ir.any_of(one, other)
    return trace.make(indices, found, "bool")


def _invert(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    if call.name != "logical_not" and shadow.kind != "bool":
        raise trace.refuse("lift-op", f"{call.name} of integers is not known")
    indices = trace.like(*shadow.indices)
    value = trace.read(shadow, [at(index) for index in indices])
    return trace.make(indices, negate_truth(to_condition(value, shadow.kind)), "bool")


def _convert(call: Call) -> Shadow:
    """`to`, `type`, `bool`: floats are one type, the others by what comes out."""
    trace, shadow = call.trace, call.shadow(0)
    if call.kind == shadow.kind:
        return shadow
    if call.kind == "int" and shadow.kind == "real":
        raise trace.refuse("lift-op", "real numbers cut to integers are not known")
    indices = trace.like(*shadow.indices)
    value = trace.read(shadow, [at(index) for index in indices])
    change = to_condition if call.kind == "bool" else to_number
    return trace.make(indices, change(value, shadow.kind), call.kind)


def _clamp(call: Call) -> Shadow:
    low, high = call.get(1, "min"), call.get(2, "max")
    if low is not None and high is not None:
        return apply(call, lambda *values: ir.Call("clip", values), call.get(0, "input"), low, high)
    name, bound = ("max", low) if high is None else ("min", high)
    return apply(call, lambda *values: ir.Call(name, values), call.get(0, "input"), bound)


def _is_infinite(*signs: float) -> Callable[..., Any]:
    """isinf, isposinf, isneginf: nan is not infinite."""

    def run(input: Any) -> Any:
        import torch

        if not input.is_floating_point():
            return torch.zeros_like(input, dtype=torch.bool)
        return reduce(or_, (input == sign * math.inf for sign in signs))

    return run


def _is_finite(input: Any) -> Any:
    import torch

    if not input.is_floating_point():
        return torch.ones_like(input, dtype=torch.bool)
    return (input < math.inf) & (input > -math.inf)


def _elementwise(call: Call) -> Shadow:
    """A function of the notation, under a name that torch has for it."""
    row = find_spelt(call.name, call.named)
    assert row is not None
    names = ("input", "other") if row.is_variadic or len(row.tensors) == 2 else row.tensors
    elements = [call.get(k, word if k else "input") for k, word in enumerate(names)]
    told = [call.get(len(names) + k, word) for k, word in enumerate(row.defaults)]
    numbers = [read(text, {}, _EXPRS) for text in row.defaults.values()]
    for k, (word, least) in enumerate(row.least.items(), len(names) + len(told)):
        if call.get(k, word, least) < least:
            says = f"{call.name} with a {word} below {least} is not known"
            raise call.trace.refuse("lift-op", says)
    pairs = zip(told, numbers, strict=True)
    given = [default if value is None else to_expr(value) for value, default in pairs]
    while given and given[-1] is numbers[len(given) - 1]:
        given.pop()
    return apply(call, lambda *values: _EXPRS.call(row.name, (*values, *given)), *elements)


def _call(name: str, arguments: tuple[ir.Expr, ...]) -> ir.Expr:
    if FUNCTIONS[name].is_kept:
        return ir.Call(name, arguments)
    found: ir.Expr = open_call(name, arguments, _EXPRS)
    return found


_EXPRS = Maker(ir.Number, add, multiply, power, compare, choose, _call)


def _prelu(input: Any, weight: Any) -> Any:
    import torch

    slope = weight
    if weight.dim() == 1 and input.dim() > 1:
        slope = weight.reshape(-1, *([1] * (input.dim() - 2)))
    return torch.where(input > 0, input, slope * input)


def _gate(input: Any, dim: int = -1) -> Any:
    one, other = input.chunk(2, dim)
    return one * other.sigmoid()


def _log_times(input: Any, other: Any) -> Any:
    """0 where the input is 0, whatever the other is, but for nan."""
    import torch

    if not hasattr(other, "log"):
        return input * apply_to("log", math.log, other)
    if not hasattr(input, "dim"):
        return input * other.log() if input else torch.where(other == other, 0.0, other)
    whole = input * other.log()
    return torch.where((input == 0) & (other == other), 0.0, whole)


def _logit(input: Any, eps: float | None = None) -> Any:
    if eps is not None:
        input = input.clamp(eps, 1 - eps)
    return (input / (1 - input)).log()


_NN = "torch.nn.functional"

OPS = (
    *(
        op(row.spellings, _elementwise, *row.examples)
        for row in FUNCTIONS.values()
        if row.spellings
    ),
    op("add", partial(_scaled, act=add), "x[B, S]; y[S]: x + y", "x[S]: 1 + x"),
    op("sub subtract", partial(_scaled, act=subtract), "x[B, S]; y[S]: x - y"),
    op(
        "rsub",
        partial(_scaled, act=subtract, backward=True),
        "x[S]: 1 - x",
        "x, y[S]: torch.rsub(x, y, alpha=2)",
    ),
    op("mul multiply", _map(multiply, 2), "x[B, S]; y[S]: x * y"),
    op("div divide true_divide", _divide, "x[B, S]; y[S]: x / y"),
    op("rdiv", _map(lambda a, b: divide(b, a), 2), "x[S]: 1 / x"),
    op("pow", _map(power, 2), "x[S]: x ** 2", "x[S]: x ** -0.5", "x[S]: 2.0 ** x"),
    op("rpow", _map(lambda a, b: power(b, a), 2), "x[S]: 3.0 ** x"),
    op("floor_divide remainder", _whole, "x[S]: x[torch.arange(x.shape[0]) // 2]"),
    op("neg negative", _map(flip_sign), "x[S]: -x"),
    op("clamp clip", _clamp, "x[S]: x.clamp(0.7, 1.2)", "x[S]: x.clamp(min=1)"),
    composite("clamp_min", lambda input, min: input.clamp(min=min), "x[S]: x.clamp_min(1)"),
    composite("clamp_max", lambda input, max: input.clamp(max=max), "x[S]: x.clamp_max(1)"),
    op("eq ne lt le gt ge", _compare, "x[B, S]; y[S]: torch.where(x <= y, x, 0.0)"),
    op(
        "bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor",
        _logic,
        "x[S]; bool m[S]; bool n[S]: torch.where(m & n, x, 0.0)",
        "x[S]; bool m[S]; bool n[S]: torch.where(m | ~n, x, 0.0)",
    ),
    op("bitwise_not logical_not", _invert, "x[S]; bool m[S]: torch.where(~m, x, 0.0)"),
    op(
        "contiguous clone detach to type double float type_as alias requires_grad_ half bfloat16 "
        "bool long int",
        _convert,
        "x[S]; int t[S] < S: torch.where(t.bool(), x, 0.0)",
        "x[S]; bool m[S]: x * m.long()",
        "x[B, S]: x.mT.contiguous()",
        "x[S]; bool m[S]: x * m.float()",
        is_view=True,
    ),
    composite(
        "isinf",
        _is_infinite(-1, 1),
        "x[S]: torch.where(torch.isinf(torch.zeros(3)[0]), x, 2 * x)",
        "x[S]; bool m[S]: x * torch.isinf(torch.where(m, torch.inf, 0.0))",
    ),
    composite(
        "isneginf",
        _is_infinite(-1),
        "x[S]; bool m[S]: x * torch.where(m, -torch.inf, 0.0).isneginf()",
    ),
    composite(
        "isposinf",
        _is_infinite(1),
        "x[S]; bool m[S]: x * torch.where(m, torch.inf, 0.0).isposinf()",
    ),
    composite(
        "isfinite",
        _is_finite,
        "x[S]; bool m[S]: x * torch.isfinite(x.masked_fill(m, -torch.inf) - 1)",
    ),
    composite(
        "lerp",
        lambda input, end, weight: input + weight * (end - input),
        "x[S]; y[S]: torch.lerp(x, y, 0.25)",
    ),
    composite(
        "addcmul",
        lambda input, tensor1, tensor2, *, value=1: input + value * tensor1 * tensor2,
        "x[S]; y[S]; z[S]: torch.addcmul(x, y, z, value=2)",
    ),
    composite(
        "addcdiv",
        lambda input, tensor1, tensor2, *, value=1: input + value * tensor1 / tensor2,
        "x[S]; y[S]; z[S]: torch.addcdiv(x, y, z)",
    ),
    composite(
        "prelu", _prelu, f"x[B, C, S]; w[C]: {_NN}.prelu(x, w)", f"x[S]; w[1]: {_NN}.prelu(x, w)"
    ),
    composite("glu", _gate, f"x[B, 2]; y[S]: {_NN}.glu(x, -1) * y"),
    composite("logit special_logit", _logit, "x[S]: x.sigmoid().logit()"),
    composite("xlogy special_xlogy", _log_times, "x, y[S]: torch.xlogy((x - 1).relu(), y.relu())"),
)
