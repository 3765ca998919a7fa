"""Code against formula: in float64 against the loops, and exactly over random prime fields."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from derive.checker.load import CannotRunError
from derive.checker.program import precisely
from derive.errors import DeriveError
from derive.verify.compare import compare_values
from derive.verify.evaluate import evaluate_system
from derive.verify.loops import evaluate_loops

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from derive.checker.draws import Draw
    from derive.checker.program import Program
    from derive.notation.formula import Formula

CLEAR = 1e-6  # a relative difference in float64 that no rounding explains
TOWERS = 2  # random towers at each draw
ORDERED_TOWERS = 8  # where a random order decides, each tower is but one trial
_REDRAWS = 6  # after a division by a residue that is zero by accident
_DEPTHS = (2, 3, 5)


@dataclass
class Outcome:
    """What one judge found."""

    same: bool | None
    difference: str = ""
    off: float = 0.0  # the largest relative difference
    reasons: list[str] = field(default_factory=list)
    opaque: tuple[str, ...] = ()
    ordered: bool = False
    soft_mask: bool = False


def find_expected(program: Program, found: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The formula's results by name, in the layout that the code has."""
    from derive.checker.sources import evaluate_source

    return tuple(
        (name, evaluate_source(program.results.get(name, name), {name: value}, {}, {}))
        for name, value in found.items()
    )


def run_quietly(program: Program, values: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """The results in float64; CannotRunError for whatever the code raises."""
    given = {k: v.clone() if hasattr(v, "clone") else v for k, v in values.items()}
    try:
        with warnings.catch_warnings(), precisely():
            warnings.simplefilter("ignore")
            return program.run(given, sizes), given
    except (CannotRunError, DeriveError):
        raise
    except (Exception, SystemExit) as error:
        raise program.cannot_run(error) from error


def judge_floats(
    program: Program, formula: Formula, draw: Draw, *, empty_row: bool = False
) -> Outcome:
    """float64 against the direct loops at one draw."""
    values = draw.make_inputs(empty_row=empty_row)
    expected = evaluate_loops(formula, values)
    results, given = run_quietly(program, values, draw.sizes)
    names = [tensor.name for tensor in draw.system.results]
    wanted = expected if isinstance(expected, tuple) else (expected,)
    outcome = compare_results(program, results, dict(zip(names, wanted, strict=True)))
    changed = [name for name, value in values.items() if _is_changed(value, given[name])]
    outcome.reasons = [f"changes {name}" for name in changed]
    return outcome


def _is_changed(before: Any, after: Any) -> bool:
    import torch

    if not isinstance(before, torch.Tensor):
        return False
    same = (before == after) | (before != before)
    return not bool(same.all())


def compare_results(program: Program, results: Sequence[Any], wanted: dict[str, Any]) -> Outcome:
    """The results one by one; what the code returns beyond the formula's is left alone."""
    if not results:
        return Outcome(False, "the code returns no tensor", float("inf"))
    worst, said = 0.0, ""
    for (name, value), found in zip(find_expected(program, wanted), results, strict=False):
        off, where = compare_values(name, found, value)
        worst = max(worst, off)
        said = said or where
    return Outcome(not said, said, worst)


def judge_fields(program: Program, draws: Sequence[Draw], *, backward: bool = False) -> Outcome:
    """The code and the formula over random towers at every draw, in every entry."""
    total = Outcome(True)
    opaque: dict[str, None] = {}
    for draw in draws:
        towers, number = TOWERS, 0
        while number < towers:
            one = _judge_tower(program, draw, 97 * draw.seed + number, backward=backward)
            opaque |= dict.fromkeys(one.opaque)
            total.ordered |= one.ordered
            total.soft_mask |= one.soft_mask
            if one.ordered:
                towers = ORDERED_TOWERS
            if one.same is not True:
                total.same, total.difference, total.reasons = one.same, one.difference, one.reasons
                total.opaque = tuple(opaque)
                return total
            number += 1
    total.opaque = tuple(opaque)
    return total


def _judge_tower(program: Program, draw: Draw, seed: int, *, backward: bool) -> Outcome:
    """One draw over one tower; deeper towers where exponentials nest deeper."""
    try:
        from derive.verify.fields import NotModelled, TooDeep, Unlucky
    except ImportError:
        return Outcome(None, reasons=["no fields yet"])

    said = ""
    for depth in _DEPTHS:
        for attempt in range(_REDRAWS):
            try:
                return _run_tower(program, draw, seed + 1000 * attempt, depth, backward)
            except Unlucky:
                said = "a residue was zero by accident, again and again"
                continue
            except TooDeep:
                said = "exponentials nest deeper than the towers"
                break
            except NotModelled as error:
                return Outcome(None, reasons=[f"{error} is not modelled over fields"])
            except CannotRunError as error:
                return Outcome(None, reasons=[f"over fields the code stops: {error}"])
            except DeriveError:
                raise
            except (Exception, SystemExit) as error:
                said = str(program.cannot_run(error))
                return Outcome(None, reasons=[f"over fields the code stops: {said}"])
    return Outcome(None, reasons=[said])


def _run_tower(program: Program, draw: Draw, seed: int, depth: int, backward: bool) -> Outcome:
    from derive.verify.fields import draw_tower, exact

    tower = draw_tower(seed, depth)
    with warnings.catch_warnings(), exact(tower) as usage:
        warnings.simplefilter("ignore")
        values = draw_fields(tower, draw, seed)
        found = evaluate_fields(tower, draw, values)
        results = program.run(_detach(values), draw.sizes)
        wanted = {tensor.name: found[tensor.name] for tensor in draw.system.results}
        outcome = _compare_fields(program, results, wanted)
        if backward and outcome.same:
            outcome = _compare_gradients(program, draw, tower, values, seed)
    outcome.opaque = tuple(usage.opaque)
    outcome.ordered, outcome.soft_mask = usage.ordered, usage.soft_mask
    return outcome


def evaluate_fields(tower: Any, draw: Draw, values: Mapping[str, Any]) -> dict[str, Any]:
    """The formula's tensors over a tower."""
    from derive.verify.fields import to_field

    def constant(number: Any) -> Any:
        return to_field(tower, number)

    return evaluate_system(draw.system, values, draw.sizes, constant)


def draw_fields(tower: Any, draw: Draw, seed: int) -> dict[str, Any]:
    """Inputs by name: real tensors are random residues, the others what they are."""
    from derive.verify.fields import draw_field

    values = draw.make_inputs()
    positive = {
        tensor.name: tensor.lower is not None
        for tensor in draw.system.inputs
        if hasattr(tensor, "lower")
    }
    for number, (name, value) in enumerate(values.items()):
        if hasattr(value, "is_floating_point") and value.is_floating_point():
            values[name] = draw_field(
                tower, tuple(value.shape), 31 * seed + number, positive=positive.get(name, False)
            )
    return values


def _detach(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.clone() if hasattr(v, "clone") else v for k, v in values.items()}


def _compare_fields(program: Program, results: Sequence[Any], wanted: dict[str, Any]) -> Outcome:
    from derive.verify.fields import find_differences, show_value

    if not results:
        return Outcome(False, "the code returns no tensor")
    for (name, value), found in zip(find_expected(program, wanted), results, strict=False):
        if tuple(found.shape) != tuple(value.shape):
            shapes = f"{list(found.shape)}, the formula {list(value.shape)}"
            return Outcome(False, f"{name} has shape {shapes}")
        differs = find_differences(found, value)
        if bool(differs.any()):
            place = tuple(int(k) for k in differs.nonzero()[0])
            at = f"{name}[{', '.join(map(str, place))}]" if place else name
            here, there = show_value(found, place), show_value(value, place)
            return Outcome(False, f"{at} is {here} over a field, the formula says {there}")
    return Outcome(True)


def _compare_gradients(
    program: Program, draw: Draw, tower: Any, values: Mapping[str, Any], seed: int
) -> Outcome:
    """The gradients of the results, weighted at random, by every real tensor."""
    import torch

    from derive.verify.fields import draw_field, find_differences

    names = [n for n, v in values.items() if isinstance(v, torch.Tensor) and v.is_floating_point()]

    def differentiate(of_code: bool) -> tuple[Any, ...]:
        leaves = _detach(values)
        for name in names:
            leaves[name] = leaves[name].detach().requires_grad_()
        if of_code:
            results = program.run(dict(leaves), draw.sizes)
        else:
            found = evaluate_fields(tower, draw, leaves)
            wanted = {tensor.name: found[tensor.name] for tensor in draw.system.results}
            results = tuple(value for _, value in find_expected(program, wanted))
        total: Any = None
        for number, result in enumerate(results[: len(draw.system.results)]):
            weight = draw_field(tower, tuple(result.shape), 7 * seed + number)
            part = (result * weight).sum()
            total = part if total is None else total + part
        return torch.autograd.grad(total, [leaves[name] for name in names], allow_unused=True)

    for name, one, other in zip(names, differentiate(True), differentiate(False), strict=True):
        if one is None and other is None:
            continue
        nothing = torch.zeros((one if one is not None else other).shape, dtype=torch.float64)
        here, there = (nothing if grad is None else grad for grad in (one, other))
        if bool(find_differences(here, there).any()):
            return Outcome(False, f"the gradient by {name} differs from the formula's")
    return Outcome(True)
