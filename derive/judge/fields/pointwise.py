"""Functions of one element, and of the order of elements, as torch's operations."""

from __future__ import annotations

from fractions import Fraction
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import torch

from derive.judge.fields import algebra, functions, order
from derive.judge.fields.constants import embed_logarithm
from derive.judge.fields.numbers import raise_each
from derive.judge.fields.parts import (
    FINITE,
    NAN,
    NotModelledError,
    Parts,
    build,
    fill,
    find_small,
    join,
)
from derive.judge.fields.run import list_dims

if TYPE_CHECKING:
    from collections.abc import Callable

    from derive.judge.fields.run import Handler, Run

_HALF = Fraction(1, 2)
_LEAST_THRESHOLD = 20
_OPAQUE = (
    "erf erfinv sin cos tan asin acos atan asinh acosh atanh atan2 floor ceil "
    "round trunc frac fmod remainder lgamma digamma floor_divide i0 sinc heaviside hypot copysign"
)


def _exp(run: Run, parts: Parts) -> Parts:
    return functions.exp(run.tower, run.usage, parts)


def _log(run: Run, parts: Parts) -> Parts:
    return functions.log(run.tower, run.usage, parts)


def _root(run: Run, parts: Parts) -> Parts:
    return functions.root(run.tower, run.usage, parts)


def _invert(run: Run, parts: Parts) -> Parts:
    return algebra.invert(run.tower, parts)


def _sigmoid(run: Run, parts: Parts) -> Parts:
    return functions.sigmoid(run.tower, run.usage, parts)


def _tanh(run: Run, parts: Parts) -> Parts:
    return functions.tanh(run.tower, run.usage, parts)


def _opaque(name: str) -> Handler:
    def act(run: Run, *given: Any, **named: Any) -> Parts:
        if any(value is not None for value in named.values()):
            raise NotModelledError(name)
        return functions.opaque(run.tower, run.usage, name, *(run.parts(each) for each in given))

    return act


def _unary(act: Callable[[Run, Parts], Parts]) -> Handler:
    return lambda run, value: act(run, run.parts(value))


def _sinh(sign: int) -> Callable[[Run, Parts], Parts]:
    return lambda run, parts: functions.sinh(run.tower, run.usage, parts, sign)


def _erfc(run: Run, parts: Parts) -> Parts:
    return run.subtract(run.number(1), functions.opaque(run.tower, run.usage, "erf", parts))


def _silu(run: Run, parts: Parts) -> Parts:
    return run.multiply(parts, _sigmoid(run, parts))


def _gelu(run: Run, value: Any, *, approximate: str = "none") -> Parts:
    parts = run.parts(value)
    if approximate == "none":
        inner = functions.opaque(
            run.tower, run.usage, "erf", run.multiply(parts, run.parts(0.5**0.5))
        )
    else:
        cube = functions.power(run.tower, run.usage, parts, Fraction(3))
        outer = run.add(parts, run.multiply(cube, run.parts(0.044715)))
        two_over_pi = (2 / 3.141592653589793) ** 0.5
        inner = _tanh(run, run.multiply(outer, run.parts(two_over_pi)))
    return run.scale(run.multiply(parts, run.add(inner, run.number(1))), _HALF)


def _softplus(run: Run, value: Any, beta: Any = 1, threshold: Any = 20) -> Parts:
    """Beyond the threshold torch takes it for its argument, which rounding does not tell."""
    if threshold < _LEAST_THRESHOLD:
        raise NotModelledError("softplus with a small threshold")
    inner = run.scale(run.parts(value), beta)
    found = _log(run, run.add(_exp(run, inner), run.number(1)))
    return run.divide(found, beta)


def _log_of_shifted(run: Run, parts: Parts) -> Parts:
    return _log(run, run.add(parts, run.number(1)))


def _exp_of_two(run: Run, parts: Parts) -> Parts:
    return raise_number(run, Fraction(2), parts)


def raise_number(run: Run, base: Fraction, parts: Parts) -> Parts:
    """A positive rational to every power; small integers are powers as they are."""
    found = _exp(run, run.multiply(parts, _log_number(run, base)))
    value, small = find_small(run.tower, parts)
    count = torch.where(small, value, 0)
    whole = [
        raise_each(torch.full_like(count, each), count, prime)
        for each, prime in zip(run.tower.embed(base), run.tower.primes, strict=True)
    ]
    return order.choose(small, build(whole), found)


def _log_number(run: Run, number: Fraction | int) -> Parts:
    return fill(run.tower, (), embed_logarithm(run.tower, Fraction(number)))


def _log_to_base(base: int) -> Callable[[Run, Parts], Parts]:
    return lambda run, parts: algebra.divide(run.tower, _log(run, parts), _log_number(run, base))


def _log_of_two(run: Run, one: Any, other: Any) -> Parts:
    return _log(run, run.add(_exp(run, run.parts(one)), _exp(run, run.parts(other))))


def _log_of_sums(run: Run, value: Any, dim: int) -> Parts:
    return _log(run, algebra.accumulate(run.tower, _exp(run, run.parts(value)), dim))


def _times_log(run: Run, one: Any, other: Any) -> Parts:
    """A number times a logarithm, which is 0 where the number is."""
    here, there = run.parts(one), run.parts(other)
    zero = (here.residues[0] == 0) & (here.state == FINITE) & (there.state != NAN)
    safe = order.choose(zero, run.number(1), there)
    return run.multiply(here, _log(run, safe))


def _logit(run: Run, value: Any, eps: Any = None) -> Parts:
    if eps is not None:
        raise NotModelledError("logit with an epsilon")
    parts = run.parts(value)
    below = run.subtract(run.number(1), parts)
    return _log(run, algebra.divide(run.tower, parts, below))


def _logit_backward(run: Run, grad: Any, value: Any, eps: Any = None) -> Parts:
    if eps is not None:
        raise NotModelledError("logit with an epsilon")
    parts = run.parts(value)
    below = run.multiply(parts, run.subtract(run.number(1), parts))
    return algebra.divide(run.tower, run.parts(grad), below)


def _log_sigmoid(run: Run, value: Any) -> tuple[Parts, Parts]:
    parts = run.parts(value)
    below = run.add(run.number(1), _exp(run, algebra.negate(run.tower, parts)))
    return algebra.negate(run.tower, _log(run, below)), parts


def _larger(run: Run, one: Any, other: Any, *, least: bool) -> Parts:
    return order.find_larger(run.tower, run.usage, run.parts(one), run.parts(other), least=least)


def _clamp(run: Run, value: Any, low: Any = None, high: Any = None) -> Parts:
    parts = run.parts(value)
    for bound, least in ((low, False), (high, True)):
        if bound is not None:
            parts = order.find_larger(run.tower, run.usage, parts, run.parts(bound), least=least)
    return parts


def _rectify(run: Run, parts: Parts) -> Parts:
    return order.find_larger(run.tower, run.usage, parts, run.number(0), least=False)


def _leaky(run: Run, value: Any, slope: Any = 0.01) -> Parts:
    parts = run.parts(value)
    negative = order.find_ranks(run.tower, run.usage, parts) <= 0
    return order.choose(negative, run.scale(parts, slope), parts)


def _sign(run: Run, parts: Parts) -> Parts:
    ranks = order.find_ranks(run.tower, run.usage, parts)
    return run.parts(ranks.sign().masked_fill(parts.state == NAN, 0))  # as torch has it


def _elu(run: Run, value: Any, alpha: Any = 1, scale: Any = 1, inner: Any = 1) -> Parts:
    parts = run.parts(value)
    positive = order.find_ranks(run.tower, run.usage, parts) > 0
    curved = run.subtract(_exp(run, run.scale(parts, inner)), run.number(1))
    return run.scale(order.choose(positive, parts, run.scale(curved, alpha)), scale)


def _extreme(
    run: Run, value: Any, dims: Any, keepdim: bool, least: bool
) -> tuple[Parts, torch.Tensor]:
    parts, chosen = run.parts(value), list_dims(dims)
    found, place = order.reduce_order(run.tower, run.usage, parts, chosen, least=least)
    if not keepdim and parts.state.dim():
        rank = parts.state.dim()
        gone = tuple(dim % rank for dim in chosen) or tuple(range(rank))
        found, place = found.map(lambda part: part.squeeze(gone)), place.squeeze(gone)
    return found, place


def _amax(least: bool) -> Handler:
    def act(run: Run, value: Any, dims: Any = (), keepdim: bool = False) -> Parts:
        return _extreme(run, value, dims, keepdim, least)[0]

    return act


def _max(least: bool) -> Handler:
    def act(run: Run, value: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return _extreme(run, value, (), False, least)[0]
        if isinstance(dim, torch.Tensor):
            return _larger(run, value, dim, least=least)
        return _extreme(run, value, (dim,), keepdim, least)

    return act


def _argmax(least: bool) -> Handler:
    def act(run: Run, value: Any, dim: Any = None, keepdim: bool = False) -> torch.Tensor:
        return _extreme(run, value, dim, keepdim, least)[1]

    return act


def _sort(
    run: Run, value: Any, dim: int = -1, descending: bool = False, **_: Any
) -> tuple[Parts, torch.Tensor]:
    parts = run.parts(value)
    ranks = order.find_ranks(run.tower, run.usage, parts)
    places = torch.sort(ranks, dim=dim, descending=descending, stable=True).indices
    return parts.map(lambda part: part.gather(dim, places)), places


def _topk(
    run: Run, value: Any, k: int, dim: int = -1, largest: bool = True, *_: Any
) -> tuple[Parts, torch.Tensor]:
    found, places = _sort(run, value, dim, largest)
    if not places.dim():
        return found, places
    return found.map(lambda part: part.narrow(dim, 0, k)), places.narrow(dim, 0, k)


def _cumulate_product(run: Run, value: Any, dim: int, **_: Any) -> Parts:
    parts = run.parts(value)
    if not parts.state.dim():
        return parts
    slices: list[Parts] = []
    for place in range(parts.shape[dim]):
        here = parts.map(methodcaller("narrow", dim, place, 1))
        slices.append(run.multiply(slices[-1], here) if slices else here)
    return join(slices, dim) if slices else parts


def _compare(relation: str) -> Handler:
    return lambda run, one, other: order.compare(
        run.tower, run.usage, relation, run.parts(one), run.parts(other)
    )


POINTWISE: dict[str, Handler] = {
    **{name: _opaque(name) for name in _OPAQUE.split()},
    **{name: _compare(name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "neg": _unary(lambda run, parts: algebra.negate(run.tower, parts)),
    "reciprocal": _unary(_invert),
    "exp": _unary(_exp),
    "expm1": _unary(lambda run, parts: run.subtract(_exp(run, parts), run.number(1))),
    "exp2": _unary(_exp_of_two),
    "log": _unary(_log),
    "log2": _unary(_log_to_base(2)),
    "log10": _unary(_log_to_base(10)),
    "logaddexp": _log_of_two,
    "logcumsumexp": _log_of_sums,
    "logit": _logit,
    "logit_backward": _logit_backward,
    "xlogy": _times_log,
    "log1p": _unary(_log_of_shifted),
    "sqrt": _unary(_root),
    "rsqrt": _unary(lambda run, parts: _invert(run, _root(run, parts))),
    "square": _unary(lambda run, parts: run.multiply(parts, parts)),
    "tanh": _unary(_tanh),
    "sinh": _unary(_sinh(-1)),
    "cosh": _unary(_sinh(1)),
    "erfc": _unary(_erfc),
    "sigmoid": _unary(_sigmoid),
    "silu": _unary(_silu),
    "gelu": _gelu,
    "softplus": _softplus,
    "log_sigmoid_forward": _log_sigmoid,
    "relu": _unary(_rectify),
    "leaky_relu": _leaky,
    "elu": _elu,
    "abs": _unary(lambda run, parts: order.find_size(run.tower, run.usage, parts)),
    "sign": _unary(_sign),
    "sgn": _unary(_sign),
    "maximum": lambda run, one, other: _larger(run, one, other, least=False),
    "minimum": lambda run, one, other: _larger(run, one, other, least=True),
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": lambda run, value, high: _clamp(run, value, None, high),
    "amax": _amax(False),
    "amin": _amax(True),
    "max": _max(False),
    "min": _max(True),
    "argmax": _argmax(False),
    "argmin": _argmax(True),
    "sort": _sort,
    "topk": _topk,
    "cumprod": _cumulate_product,
}
