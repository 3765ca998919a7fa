"""Elementwise functions: arithmetic, comparisons, logic, activations."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from derive.frontend.torch.call import Call, op
from derive.frontend.torch.exprs import (
    HALF,
    add,
    all_of,
    any_of,
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
from derive.frontend.torch.numbers import SymbolicFloat, to_expr
from derive.frontend.torch.trace import Shadow, at
from derive.ir.nodes import MINUS_ONE, ONE, ZERO, Expr, Infinity, Number, Truth
from derive.ir.nodes import Call as Function

if TYPE_CHECKING:
    from collections.abc import Callable

    Act = Callable[..., Expr]

_TWO = Number(Fraction(2))


def apply(call: Call, act: Act, *values: Any) -> Shadow:
    """A function of the elements of tensors and numbers, under broadcasting, as numbers."""
    trace = call.trace
    shadows = [trace.shadow(value) for value in values]
    letters = trace.broadcast(*shadows)
    elements = [to_number(trace.spread(s, letters), s.kind) for s in shadows]
    found = act(*elements)
    return trace.make(letters, found, call.kind)


def _map(act: Act, count: int = 1) -> Callable[[Call], Shadow]:
    names = ("input", "other")

    def run(call: Call) -> Shadow:
        return apply(call, act, *(call.get(k, names[k]) for k in range(count)))

    return run


def _function(name: str) -> Callable[[Call], Shadow]:
    return _map(lambda value: Function(name, (value,)))


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
    letters = trace.broadcast(*shadows)
    parts = [(trace.spread(s, letters), s.kind) for s in shadows]
    kinds = {kind for _, kind in parts}
    if kinds == {"bool"} and relation in {"==", "!="}:
        one, other = parts[0][0], parts[1][0]
        same = any_of(all_of(one, other), all_of(negate_truth(one), negate_truth(other)))
        return trace.make(letters, same if relation == "==" else negate_truth(same), "bool")
    values = [to_number(*part) for part in parts]
    return trace.make(letters, compare(relation, *values), "bool")


def _logic(call: Call) -> Shadow:
    """and, or, xor of truth values; bits of integers are not known."""
    trace = call.trace
    shadows = [trace.shadow(call.get(k, name)) for k, name in enumerate(("input", "other"))]
    if not call.name.startswith("logical") and any(s.kind != "bool" for s in shadows):
        raise trace.refuse("lift-op", f"{call.name} of integers is not known")
    letters = trace.broadcast(*shadows)
    one, other = (to_condition(trace.spread(s, letters), s.kind) for s in shadows)
    if call.name.endswith("and"):
        found = all_of(one, other)
    elif call.name.endswith("xor"):
        found = any_of(all_of(one, negate_truth(other)), all_of(negate_truth(one), other))
    else:
        found = any_of(one, other)
    return trace.make(letters, found, "bool")


def _invert(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    if call.name != "logical_not" and shadow.kind != "bool":
        raise trace.refuse("lift-op", f"{call.name} of integers is not known")
    letters = trace.like(*shadow.letters)
    value = trace.read(shadow, [at(letter) for letter in letters])
    return trace.make(letters, negate_truth(to_condition(value, shadow.kind)), "bool")


def _to_truth(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    letters = trace.like(*shadow.letters)
    value = trace.read(shadow, [at(letter) for letter in letters])
    return trace.make(letters, to_condition(value, shadow.kind), "bool")


def _to_integer(call: Call) -> Shadow:
    trace, shadow = call.trace, call.shadow(0)
    if shadow.kind == "real":
        raise trace.refuse("lift-op", "real numbers cut to integers are not known")
    letters = trace.like(*shadow.letters)
    value = trace.read(shadow, [at(letter) for letter in letters])
    return trace.make(letters, to_number(value, shadow.kind), "int")


def _convert(call: Call) -> Shadow:
    """`to`, `type`: floats are one type, the others by what comes out."""
    if call.kind == call.shadow(0).kind:
        return call.shadow(0)
    if call.kind == "bool":
        return _to_truth(call)
    if call.kind == "int":
        return _to_integer(call)
    trace, shadow = call.trace, call.shadow(0)
    letters = trace.like(*shadow.letters)
    value = trace.read_number(shadow, [at(letter) for letter in letters])
    return trace.make(letters, value, "real")


def _sigmoid(value: Expr) -> Expr:
    return Function("sigmoid", (value,))


def _gelu(call: Call) -> Shadow:
    if call.get(99, "approximate", "none") == "none":
        return _function("gelu")(call)

    def act(value: Expr) -> Expr:
        cube = multiply(Number(Fraction("0.044715")), power(value, Number(Fraction(3))))
        root = power(multiply(_TWO, power(to_expr(3.141592653589793), MINUS_ONE)), HALF)
        inner = Function("tanh", (multiply(root, add(value, cube)),))
        return multiply(HALF, value, add(ONE, inner))

    return _map(act)(call)


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


def _slope(call: Call, name: str, default: float) -> Shadow:
    slope = call.get(1, name, default)
    if not isinstance(slope, SymbolicFloat) and slope == default:
        return _function(call.name.rstrip("_"))(call)
    factor = to_expr(slope)

    def act(value: Expr) -> Expr:
        if call.name == "elu":
            other = multiply(factor, subtract(Function("exp", (value,)), ONE))
        else:
            other = multiply(factor, value)
        return choose(compare(">", value, ZERO), value, other)

    return _map(act)(call)


def _softplus(call: Call) -> Shadow:
    """Torch gives x itself where beta * x is above its threshold; at 20 nothing is lost by that."""
    beta, threshold = call.get(1, "beta", 1), call.get(2, "threshold", 20)
    if threshold < 20:
        raise call.trace.refuse("lift-op", "softplus with a threshold below 20 is not known")
    if not isinstance(beta, SymbolicFloat) and beta == 1:
        return _function("softplus")(call)
    factor = to_expr(beta)
    return _map(lambda v: divide(Function("softplus", (multiply(factor, v),)), factor))(call)


def _is_infinite(call: Call) -> Shadow:
    """isinf, isposinf, isneginf, isfinite: nan is neither infinite nor finite."""
    trace, shadow = call.trace, call.shadow(0)
    letters = trace.like(*shadow.letters)
    value = trace.read_number(shadow, [at(letter) for letter in letters])
    if shadow.kind != "real":
        return trace.make(letters, Truth(call.name == "isfinite"), "bool")
    if call.name == "isfinite":
        below, above = compare("<", value, Infinity()), compare(">", value, Infinity(True))
        return trace.make(letters, all_of(below, above), "bool")
    signs = {"isneginf": (True,), "isposinf": (False,), "isinf": (True, False)}[call.name]
    relations = (compare("==", value, Infinity(negative)) for negative in signs)
    return trace.make(letters, any_of(*relations), "bool")


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


def _exp2(value: Expr) -> Expr:
    return power(_TWO, value)


def _inverse_root(value: Expr) -> Expr:
    return power(value, Number(Fraction(-1, 2)))


def _shifted_exp(value: Expr) -> Expr:
    return subtract(Function("exp", (value,)), ONE)


def _shifted_log(value: Expr) -> Expr:
    return Function("log", (add(ONE, value),))


def _sum_of_exps(one: Expr, other: Expr) -> Expr:
    return Function("log", (add(Function("exp", (one,)), Function("exp", (other,))),))


def _pair(name: str) -> Callable[[Call], Shadow]:
    return _map(lambda one, other: Function(name, (one, other)), 2)


OPS = (
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
    op("abs absolute", _function("abs"), "x[S]: x.abs()"),
    op("square", _map(lambda v: power(v, _TWO)), "x[S]: x.square()"),
    op("reciprocal", _map(lambda v: power(v, MINUS_ONE)), "x[S]: x.reciprocal()"),
    op("sqrt", _map(lambda v: power(v, HALF)), "x[S]: x.sqrt()"),
    op("rsqrt", _map(_inverse_root), "x[S]: x.rsqrt()"),
    op("exp", _function("exp"), "x[S]: x.exp()"),
    op("expm1", _map(_shifted_exp), "x[S]: x.expm1()"),
    op("exp2", _map(_exp2), "x[S]: x.exp2()"),
    op("log", _function("log"), "x[S]: x.log()"),
    op("log1p", _map(_shifted_log), "x[S]: x.log1p()"),
    op("logaddexp", _map(_sum_of_exps, 2), "x[S]; y[S]: torch.logaddexp(x, y)"),
    op("sin", _function("sin"), "x[S]: x.sin()"),
    op("cos", _function("cos"), "x[S]: x.cos()"),
    op("tanh", _function("tanh"), "x[S]: x.tanh()"),
    op("erf", _function("erf"), "x[S]: x.erf()"),
    op("sign sgn", _function("sign"), "x[S]: x.sign()"),
    op("floor", _function("floor"), "x[S]: (3 * x).floor()"),
    op("sigmoid", _map(_sigmoid), "x[S]: x.sigmoid()"),
    op("relu", _function("relu"), "x[S]: (x - 1).relu()"),
    op("silu swish", _function("silu"), "x[S]: torch.nn.functional.silu(x)"),
    op(
        "gelu",
        _gelu,
        "x[S]: torch.nn.functional.gelu(x)",
        "x[S]: torch.nn.functional.gelu(x, approximate='tanh')",
    ),
    op(
        "softplus",
        _softplus,
        "x[S]: torch.nn.functional.softplus(x)",
        "x[S]: torch.nn.functional.softplus(x, 2.0)",
    ),
    op(
        "leaky_relu",
        partial(_slope, name="negative_slope", default=0.01),
        "x[S]: torch.nn.functional.leaky_relu(x - 1, 0.2)",
        "x[S]: torch.nn.functional.leaky_relu(x - 1)",
    ),
    op(
        "elu",
        partial(_slope, name="alpha", default=1.0),
        "x[S]: torch.nn.functional.elu(x - 1)",
    ),
    op("clamp clip clamp_min clamp_max", _clamp, "x[S]: x.clamp(0.7, 1.2)", "x[S]: x.clamp(min=1)"),
    op("maximum", _pair("max"), "x[B, S]; y[S]: torch.maximum(x, y)"),
    op("minimum", _pair("min"), "x[B, S]; y[S]: torch.minimum(x, y)"),
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
)
