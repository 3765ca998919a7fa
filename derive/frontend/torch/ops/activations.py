"""Activations and other functions of one element, each as a few lines of other ops."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from derive.frontend.torch.call import composite
from derive.frontend.torch.carry import apply_to

if TYPE_CHECKING:
    from collections.abc import Callable

_SELU = (1.0507009873554804934193349852946, 1.6732632423543772848170429916717)


def _finish(input: Any, found: Any, inplace: bool) -> Any:
    return input.copy_(found) if inplace else found


def _elementwise(act: Callable[[Any], Any]) -> Callable[..., Any]:
    def run(input: Any, inplace: bool = False) -> Any:
        return _finish(input, act(input), inplace)

    return run


def _hardtanh(
    input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Any:
    return _finish(input, input.clamp(min_val, max_val), inplace)


def _hardsigmoid(input: Any) -> Any:
    return (input + 3).clamp(0, 6) / 6


def _mish(input: Any) -> Any:
    import torch

    return input * torch.nn.functional.softplus(input).tanh()


def _selu(input: Any) -> Any:
    import torch

    scale, alpha = _SELU
    return scale * torch.where(input > 0, input, alpha * (input.exp() - 1))


def _celu(input: Any, alpha: float = 1.0, inplace: bool = False) -> Any:
    import torch

    found = torch.where(input > 0, input, alpha * ((input / alpha).exp() - 1))
    return _finish(input, found, inplace)


def _softshrink(input: Any, lambd: float = 0.5) -> Any:
    import torch

    low = torch.where(input < -lambd, input + lambd, 0.0)
    return torch.where(input > lambd, input - lambd, low)


def _hardshrink(input: Any, lambd: float = 0.5) -> Any:
    import torch

    return torch.where(input.abs() <= lambd, 0.0, input)


def _threshold(input: Any, threshold: float, value: float, inplace: bool = False) -> Any:
    import torch

    return _finish(input, torch.where(input <= threshold, value, input), inplace)


def _prelu(input: Any, weight: Any) -> Any:
    import torch

    slope = weight
    if weight.dim() == 1 and input.dim() > 1:
        slope = weight.reshape(-1, *([1] * (input.dim() - 2)))
    return torch.where(input > 0, input, slope * input)


def _gate(input: Any, dim: int = -1) -> Any:
    one, other = input.chunk(2, dim)
    return one * other.sigmoid()


def _trunc(input: Any) -> Any:
    return input.sign() * input.abs().floor()


def _log_of(base: float) -> Callable[[Any], Any]:
    def run(input: Any) -> Any:
        return input.log() / math.log(base)

    return run


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
    composite("relu6", _elementwise(lambda x: x.clamp(0, 6)), f"x[S]: {_NN}.relu6(5 * x)"),
    composite("hardtanh", _hardtanh, f"x[S]: {_NN}.hardtanh(x)"),
    composite("hardsigmoid", _elementwise(_hardsigmoid), f"x[S]: {_NN}.hardsigmoid(x)"),
    composite(
        "hardswish",
        _elementwise(lambda x: x * _hardsigmoid(x)),
        f"x[S]: {_NN}.hardswish(x)",
        f"x[S]: y = x + 1; {_NN}.hardswish(y, inplace=True); y",
    ),
    composite("mish", _elementwise(_mish), f"x[S]: {_NN}.mish(x)"),
    composite("selu", _elementwise(_selu), f"x[S]: {_NN}.selu(x - 1)"),
    composite("celu", _celu, f"x[S]: {_NN}.celu(x - 1, 2.0)"),
    composite("softshrink", _softshrink, f"x[S]: {_NN}.softshrink(x)"),
    composite("hardshrink", _hardshrink, f"x[S]: {_NN}.hardshrink(x)"),
    composite("threshold", _threshold, f"x[S]: {_NN}.threshold(x, 1.0, 0.5)"),
    composite(
        "prelu", _prelu, f"x[B, C, S]; w[C]: {_NN}.prelu(x, w)", f"x[S]; w[1]: {_NN}.prelu(x, w)"
    ),
    composite("glu", _gate, f"x[B, 2]; y[S]: {_NN}.glu(x, -1) * y"),
    composite("erfc special_erfc", lambda input: 1 - input.erf(), "x[S]: x.erfc()"),
    composite("tan", lambda input: input.sin() / input.cos(), "x[S]: x.tan()"),
    composite("sinh", lambda input: (input.exp() - (-input).exp()) / 2, "x[S]: x.sinh()"),
    composite("cosh", lambda input: (input.exp() + (-input).exp()) / 2, "x[S]: x.cosh()"),
    composite("log2", _log_of(2), "x[S]: x.abs().log2()"),
    composite("log10", _log_of(10), "x[S]: x.abs().log10()"),
    composite("ceil", lambda input: -(-input).floor(), "x[S]: (3 * x).ceil()"),
    composite("trunc fix", _trunc, "x[S]: (3 * x).trunc()"),
    composite("frac", lambda input: input - _trunc(input), "x[S]: (3 * x).frac()"),
    composite("hypot", lambda input, other: (input**2 + other**2).sqrt(), "x, y[S]: x.hypot(y)"),
    composite("special_expit", lambda input: input.sigmoid(), "x[S]: torch.special.expit(x)"),
    composite("logit special_logit", _logit, "x[S]: x.sigmoid().logit()"),
    composite("xlogy special_xlogy", _log_times, "x, y[S]: torch.xlogy((x - 1).relu(), y.relu())"),
)
