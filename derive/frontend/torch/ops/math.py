"""Elementwise functions: arithmetic, comparisons, logic, activations."""

from __future__ import annotations

import math
from functools import partial
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
from derive.ir.definitions import Maker, open_call, read
from derive.ir.functions import FUNCTIONS, find_spelt
from derive.ir.nodes import Call as Function
from derive.ir.nodes import Expr, Infinity, Number, Truth, all_of, any_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Act = Callable[..., Expr]


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


def _floor_divide(one: Expr, other: Expr) -> Expr:
    return Function("floordiv", (one, other))


def _remainder(one: Expr, other: Expr) -> Expr:
    return Function("mod", (one, other))


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
        same = any_of(all_of(one, other), all_of(negate_truth(one), negate_truth(other)))
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
        found = all_of(one, other)
    elif call.name.endswith("xor"):
        found = any_of(all_of(one, negate_truth(other)), all_of(negate_truth(one), other))
    else:
        found = any_of(one, other)
    return trace.make(indices, found, "bool")


def _invert(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    if call.name != "logical_not" and shadow.kind != "bool":
        raise trace.refuse("lift-op", f"{call.name} of integers is not known")
    indices = trace.like(*shadow.indices)
    value = trace.read(shadow, [at(index) for index in indices])
    return trace.make(indices, negate_truth(to_condition(value, shadow.kind)), "bool")


def _to_truth(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    indices = trace.like(*shadow.indices)
    value = trace.read(shadow, [at(index) for index in indices])
    return trace.make(indices, to_condition(value, shadow.kind), "bool")


def _to_integer(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    if shadow.kind == "real":
        raise trace.refuse("lift-op", "real numbers cut to integers are not known")
    indices = trace.like(*shadow.indices)
    value = trace.read(shadow, [at(index) for index in indices])
    return trace.make(indices, to_number(value, shadow.kind), "int")


def _convert(call: Call) -> Shadow:
    """`to`, `type`: floats are one type, the others by what comes out."""
    if call.kind == call.shadow(0).kind:
        return call.shadow(0)
    if call.kind == "bool":
        return _to_truth(call)
    if call.kind == "int":
        return _to_integer(call)
    trace, shadow = call.trace, call.shadow(0)
    indices = trace.like(*shadow.indices)
    value = trace.read_number(shadow, [at(index) for index in indices])
    return trace.make(indices, value, "real")


def _clamp(call: Call) -> Shadow:
    low, high = call.get(1, "min"), call.get(2, "max")
    if call.name == "clamp_max":
        low, high = None, call.get(1, "max")
    values = [call.get(0, "input")]
    values += [bound for bound in (low, high) if bound is not None]

    def act(value: Expr, *bounds: Expr) -> Expr:
        rest = list(bounds)
        if len(rest) == 2:
            return Function("clip", (value, *rest))
        if low is not None:
            value = Function("max", (value, rest.pop(0)))
        if high is not None:
            value = Function("min", (value, rest.pop(0)))
        return value

    return apply(call, act, *values)


def _is_infinite(call: Call) -> Shadow:
    """isinf, isposinf, isneginf, isfinite: nan is neither infinite nor finite."""
    trace, shadow = call.trace, call.shadow(0)
    indices = trace.like(*shadow.indices)
    value = trace.read_number(shadow, [at(index) for index in indices])
    if shadow.kind != "real":
        return trace.make(indices, Truth(call.name == "isfinite"), "bool")
    if call.name == "isfinite":
        below, above = compare("<", value, Infinity()), compare(">", value, Infinity(True))
        return trace.make(indices, all_of(below, above), "bool")
    signs = {"isneginf": (True,), "isposinf": (False,), "isinf": (True, False)}[call.name]
    relations = (compare("==", value, Infinity(negative)) for negative in signs)
    return trace.make(indices, any_of(*relations), "bool")


def _mix(call: Call) -> Shadow:
    """lerp: a + w (b - a)."""
    weight = call.get(2, "weight")
    given = (call.get(0, "input"), call.get(1, "end"), weight)
    return apply(call, lambda a, b, w: add(a, multiply(w, subtract(b, a))), *given)


def _add_product(call: Call) -> Shadow:
    """addcmul, addcdiv."""
    factor = to_expr(call.named.get("value", 1))
    act = multiply if call.name == "addcmul" else divide
    given = (call.get(k, name) for k, name in enumerate(("input", "tensor1", "tensor2")))
    return apply(call, lambda a, b, c: add(a, multiply(factor, act(b, c))), *given)


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


def _call(name: str, arguments: tuple[Expr, ...]) -> Expr:
    if FUNCTIONS[name].is_kept:
        return Function(name, arguments)
    found: Expr = open_call(name, arguments, _EXPRS)
    return found


_EXPRS = Maker(Number, add, multiply, power, compare, choose, _call)


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
    op("clamp clip clamp_min clamp_max", _clamp, "x[S]: x.clamp(0.7, 1.2)", "x[S]: x.clamp(min=1)"),
    op("eq ne lt le gt ge", _compare, "x[B, S]; y[S]: torch.where(x <= y, x, 0.0)"),
    op(
        "bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor",
        _logic,
        "x[S]; bool m[S]; bool n[S]: torch.where(m & n, x, 0.0)",
        "x[S]; bool m[S]; bool n[S]: torch.where(m | ~n, x, 0.0)",
    ),
    op("bitwise_not logical_not", _invert, "x[S]; bool m[S]: torch.where(~m, x, 0.0)"),
    op("bool", _to_truth, "x[S]; int t[S] < S: torch.where(t.bool(), x, 0.0)"),
    op("long int", _to_integer, "x[S]; bool m[S]: x * m.long()"),
    op(
        "contiguous clone detach to type double float type_as alias requires_grad_ half bfloat16",
        _convert,
        "x[B, S]: x.mT.contiguous()",
        "x[S]; bool m[S]: x * m.float()",
        is_view=True,
    ),
    op(
        "isinf isneginf isposinf isfinite",
        _is_infinite,
        "x[S]: torch.where(torch.isinf(torch.zeros(3)[0]), x, 2 * x)",
        "x[S]; bool m[S]: x * torch.isinf(torch.where(m, torch.inf, 0.0))",
        "x[S]; bool m[S]: x * torch.isfinite(x.masked_fill(m, -torch.inf) - 1)",
    ),
    op("lerp", _mix, "x[S]; y[S]: torch.lerp(x, y, 0.25)"),
    op("addcmul addcdiv", _add_product, "x[S]; y[S]; z[S]: torch.addcmul(x, y, z, value=2)"),
    composite(
        "prelu", _prelu, f"x[B, C, S]; w[C]: {_NN}.prelu(x, w)", f"x[S]; w[1]: {_NN}.prelu(x, w)"
    ),
    composite("glu", _gate, f"x[B, 2]; y[S]: {_NN}.glu(x, -1) * y"),
    composite("logit special_logit", _logit, "x[S]: x.sigmoid().logit()"),
    composite("xlogy special_xlogy", _log_times, "x, y[S]: torch.xlogy((x - 1).relu(), y.relu())"),
)
