"""The effect of rounding on a formula's results, estimated by runs with random last digits.

Source: Vignes, A stochastic arithmetic for reliable scientific computation, 1993.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from derive.ir import nodes as ir
from derive.judge.evaluate import evaluate_system
from derive.libraries import make_mode, torch

RUNS = 8
MORE = 32  # allowed error in spreads of the runs, for other orders of operations
_ELEMENTWISE = {"add", "sub", "mul", "div", "pow", "sqrt", "reciprocal", "exp", "log"}
_ADDING = {"sum", "mean", "cumsum", "prod", "mm", "bmm", "mv", "dot"}  # terms may cancel


def _make_rounding_mode(seed: int) -> Any:
    """A mode that perturbs results of arithmetic, and terms of sums, by one unit in last place."""
    generator = torch.Generator().manual_seed(seed)

    def shake(value: Any) -> Any:
        """The tensor, each number changed by -1, 0 or 1 units in the last place."""
        if not isinstance(value, torch.Tensor) or not value.dtype.is_floating_point:
            return value
        signs = torch.randint(-1, 2, value.shape, generator=generator).to(value.dtype)
        return value * (1 + signs * torch.finfo(value.dtype).eps)

    def act(function: Any, args: Any, named: Any) -> Any:
        name = function.overloadpacket.__name__
        made = function(*(map(shake, args) if name in _ADDING else args), **named)
        return shake(made) if name in _ELEMENTWISE else made

    return make_mode(act, of_operations=True)


def evaluate_rounded(
    system: ir.System, values: Mapping[str, Any], sizes: Mapping[str, int]
) -> list[tuple[Any, ...]]:
    """The results of several runs; in each, results of arithmetic change in the last place."""

    def evaluate_once(seed: int) -> tuple[Any, ...]:
        with _make_rounding_mode(seed):
            made = evaluate_system(system, values, sizes)
        return tuple(made[tensor.name] for tensor in system.results)

    return [evaluate_once(seed) for seed in range(RUNS)]


def is_within(found: Any, expected: Any, runs: Sequence[Any]) -> Any:
    """The mask of values within the spread of the runs, or where the runs disagree on nan, inf."""
    every = torch.stack(list(runs))
    is_same = ((every == every[0]) | (every.isnan() & every[0].isnan())).all(0)
    spread = MORE * (every - every[0]).abs().amax(0)
    return torch.where(every.isfinite().all(0), (found - expected).abs() <= spread, ~is_same)
