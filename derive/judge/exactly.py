"""A function against its formula over one random tower of prime fields, without rounding.

What floats cannot tell from rounding, an error of one part in 1e10 or a term that is nearly 0, is
another residue here. Differences that a random order, the random sign of a root or an unknown
number may have made say nothing: exp(-i) of positions is a number to the code and a function to
the formula. Nor does a function that is not modelled.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from derive.judge.evaluate import evaluate_system

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from derive.ir.nodes import System

_REDRAWS = 5  # after an accident
_COUNTS = {"floor_divide", "remainder"}  # of positions: numbers to the formula, functions to code


def judge_exactly(
    calls: Sequence[Callable[[Mapping[str, Any]], Sequence[Any]]],
    system: System,
    values: Mapping[str, Any],
    sizes: Mapping[str, int],
    seed: int,
) -> str:
    """The first element in which a call differs from the formula, in words; else nothing."""
    from derive.judge.fields import DEEPEST, NotModelledError, TooDeepError, UnluckyError

    for depth in range(1, DEEPEST + 1):
        for attempt in range(_REDRAWS):
            how = (seed + 1000 * attempt, depth)
            try:
                return _judge_tower(calls, system, values, sizes, how)
            except UnluckyError:
                continue
            except TooDeepError:
                break
            except NotModelledError:
                return ""
    return ""


def _judge_tower(
    calls: Sequence[Callable[[Mapping[str, Any]], Sequence[Any]]],
    system: System,
    values: Mapping[str, Any],
    sizes: Mapping[str, int],
    how: tuple[int, int],
) -> str:
    from derive.judge.fields import draw_tower, exact

    tower = draw_tower(*how)
    with warnings.catch_warnings(), exact(tower) as usage:
        warnings.simplefilter("ignore")
        given = draw_over(tower, system, values, how[0])
        found = evaluate_over(tower, system, given, sizes)
        wanted = {tensor.name: found[tensor.name] for tensor in system.results}
        for call in calls:
            results = call(copy_values(given))
            for (name, value), result in zip(wanted.items(), results, strict=True):
                said = find_difference(name, result, value)
                if said and not (usage.ordered or usage.rooted or usage.guessed):
                    return "" if _COUNTS & usage.opaque.keys() else said
    return ""


def evaluate_over(
    tower: Any, system: System, values: Mapping[str, Any], sizes: Mapping[str, int]
) -> dict[str, Any]:
    """The formula's tensors over a tower."""
    from derive.judge.fields import to_field

    def constant(number: Any) -> Any:
        return to_field(tower, number)

    return evaluate_system(system, values, sizes, constant)


def draw_over(tower: Any, system: System, values: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The inputs over a tower: real tensors are random residues, the others what they are."""
    from derive.judge.fields import draw_field

    drawn = dict(values)
    positive = [t.name for t in system.inputs if getattr(t, "lower", None) is not None]
    for number, (name, value) in enumerate(values.items()):
        if hasattr(value, "is_floating_point") and value.is_floating_point():
            own = 31 * seed + number
            drawn[name] = draw_field(tower, tuple(value.shape), own, positive=name in positive)
    return drawn


def copy_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same, each tensor anew: code may write into what it is given."""
    return {k: v.clone() if hasattr(v, "clone") else v for k, v in values.items()}


def find_difference(name: str, found: Any, value: Any) -> str:
    """The first element in which a result differs from the formula's, in words; else nothing."""
    from derive.judge.fields import FieldTensor, find_differences, show_value

    if tuple(found.shape) != tuple(value.shape):
        return f"{name} has shape {list(found.shape)}, the formula {list(value.shape)}"
    if not isinstance(found, FieldTensor) and not isinstance(value, FieldTensor):
        return ""  # no tensor of reals in it: float64 has judged it
    differs = find_differences(found, value)
    if not bool(differs.any()):
        return ""
    place = tuple(int(k) for k in differs.nonzero()[0])
    at = f"{name}[{', '.join(map(str, place))}]" if place else name
    here, there = show_value(found, place), show_value(value, place)
    return f"{at} is {here} over a field, the formula says {there}"
