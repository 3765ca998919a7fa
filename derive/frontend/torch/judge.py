"""What was lifted, judged by numbers: the equations have to give what the code gives.

The table of ops may be wrong, and code may do what no mode sees. So the equations are evaluated at
the inputs of the run, and at other numbers and other sizes, at which the code runs once more.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from derive.frontend.torch.mode import make_precise
from derive.frontend.torch.names import name_of
from derive.ir.nodes import Size
from derive.judge.evaluate import evaluate_system
from derive.judge.samples import choose_sizes, draw_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from derive.ir.nodes import ScalarInput, System, Tensor

_CLOSE = 1e-6  # of the largest element
_SEED = 11
_TRIES = 6  # at other sizes


def is_equal_at(
    system: System, values: Mapping[str, Any], found: Sequence[Any], sizes: Mapping[str, int]
) -> bool:
    """Do the equations give these results?"""
    import torch

    with torch.no_grad():
        known = evaluate_system(system, values, sizes)
    wanted = [known[tensor.name] for tensor in system.results]
    return len(wanted) == len(found) and all(map(_is_close, found, wanted))


def _is_close(one: Any, other: Any) -> bool:
    import torch

    one, other = one.detach().double(), other.detach().double()
    if one.shape != other.shape:
        return False
    finite = one[one.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 1.0
    return torch.allclose(one, other, rtol=0.0, atol=_CLOSE * max(scale, 1e-30), equal_nan=True)


def find_other_draws(
    system: System, sizes: Mapping[str, int], fixed: Mapping[str, int]
) -> Iterator[tuple[dict[str, int], dict[str, Any]]]:
    """Other numbers at the same sizes, then at other sizes where they are free."""
    import torch

    yield dict(sizes), draw_inputs(system, sizes, _SEED)
    if len(fixed) == len(sizes):
        return
    whole = _choose_others(system, sizes, fixed)
    values = draw_inputs(system, whole, _SEED)
    positive = {
        name: value.abs() + 0.5
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
        for name, value in values.items()
    }
    yield whole, positive


def _choose_others(
    system: System, sizes: Mapping[str, int], fixed: Mapping[str, int]
) -> dict[str, int]:
    """Other sizes, as many of those that are free as can be had unlike the ones of the run."""
    found = [dict(sizes)]
    for seed in range(_SEED, _SEED + _TRIES):
        try:
            others = choose_sizes(system, 1, seed=seed)[0]
        except ArithmeticError:  # a quotient by a size that these sizes make zero
            continue
        found.append({name: fixed.get(name, others.get(name, n)) for name, n in sizes.items()})
        if all(found[-1][name] != n for name, n in sizes.items() if name not in fixed):
            break
    return max(found, key=lambda whole: sum(whole[name] != n for name, n in sizes.items()))


def call_plainly(
    function: Callable[..., Any],
    arguments: Mapping[str, Tensor | ScalarInput | Size],
    values: Mapping[str, Any],
    sizes: Mapping[str, int],
) -> Any:
    """What the code gives at these inputs; they are copied, since it may write into them."""
    given = {}
    for name, entry in arguments.items():
        value = sizes[entry.name] if isinstance(entry, Size) else values[entry.name]
        given[name] = value.clone() if hasattr(value, "clone") else value
    return function(**given)


@contextmanager
def in_double() -> Iterator[None]:
    """Code runs in float64, quietly, without gradients, and leaves torch's state as it was."""
    import torch

    state, before = torch.get_rng_state(), torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_default_dtype(before)
        torch.set_rng_state(state)


def make_double() -> Any:
    """A mode in which every request for a shorter float is one for float64."""
    from torch.overrides import TorchFunctionMode

    class Double(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            named = dict(kwargs or {})
            function, args, named = make_precise(name_of(function), function, tuple(args), named)
            return function(*args, **named)

    return Double()
