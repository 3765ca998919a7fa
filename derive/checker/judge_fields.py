"""Code against formula over random towers of prime fields: exactly, in every entry."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from derive.checker.judge import MOST_STEPS, count_steps, find_expected
from derive.checker.load import CannotRunError
from derive.checker.runs import How, weigh_results
from derive.judge.exactly import copy_values, draw_over, evaluate_over, find_difference

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from derive.checker.draws import Draw
    from derive.checker.program import Program
    from derive.judge.fields import Usage

_TOWERS = 2  # random towers at each draw
_ORDERED_TOWERS = 8  # where a random order decides, each tower is but one trial
_REDRAWS = 5  # after an accident


@dataclass
class Exactness:
    """What the judge over fields found: the same, another value, or that it cannot tell."""

    same: bool | None = True
    difference: str = ""
    reason: str = ""
    opaque: dict[str, None] = field(default_factory=dict)
    is_chancy: bool = False  # an order or the sign of a root was random: a difference says nothing
    ordered: bool = False
    soft_mask: bool = False
    has_numbers: bool = False  # was anything compared that is finite?

    def take(self, usage: Usage) -> None:
        """What one run rested on."""
        self.opaque |= usage.opaque
        self.ordered |= usage.ordered
        self.soft_mask |= usage.soft_mask
        self.is_chancy |= usage.ordered or usage.rooted


def judge_fields(
    program: Program,
    draws: Sequence[Draw],
    *,
    backward: bool = False,
) -> Exactness:
    """The code and the formula over random towers at every draw."""
    total = Exactness()
    for draw in draws:
        number = 0
        towers = _TOWERS if count_steps(draw) <= MOST_STEPS else 1
        while number < (_ORDERED_TOWERS if total.ordered else towers):
            _judge_tower(total, program, draw, 97 * draw.seed + number, backward)
            if total.same is not True:
                return total
            number += 1
    if not total.has_numbers:
        total.same, total.reason = None, "no result is a finite number"
    return total


def _judge_tower(total: Exactness, program: Program, draw: Draw, seed: int, backward: bool) -> None:
    """One draw over one tower; deeper towers where exponentials nest deeper."""
    from derive.judge.fields import DEEPEST, NotModelledError, TooDeepError, UnluckyError

    total.reason = "exponentials nest deeper than random fields allow"
    for depth in range(1, DEEPEST + 1):
        for attempt in range(_REDRAWS):
            try:
                _run_tower(total, program, draw, (seed + 1000 * attempt, depth, backward))
            except UnluckyError:
                continue
            except TooDeepError:
                break
            except NotModelledError as error:
                total.reason = f"{error} is not modelled over fields"
            except CannotRunError as error:
                total.reason = f"over fields the code stops: {error}"
            else:
                return
            total.same = None
            return
    total.same = None


def _run_tower(total: Exactness, program: Program, draw: Draw, how: tuple[int, int, bool]) -> None:
    from derive.judge.fields import draw_tower, exact, has_finite

    seed, depth, backward = how
    tower = draw_tower(seed, depth)
    run = How(tower=(seed, depth), most=len(draw.system.results))
    with warnings.catch_warnings(), exact(tower) as usage:
        warnings.simplefilter("ignore")
        try:
            values = draw_over(tower, draw.system, draw.make_inputs(), seed)
            found = evaluate_over(tower, draw.system, values, draw.sizes)
            answer = program.run(values, draw.sizes, run)
            total.take(answer.usage or usage)
            wanted = {tensor.name: found[tensor.name] for tensor in draw.system.results}
            said = _compare_fields(program, answer.results, wanted)
            total.has_numbers |= any(has_finite(value) for value in wanted.values())
            if backward and not said:
                weighed = replace(run, weights=7 * draw.seed)
                said = _compare_gradients(program, draw, weighed, tower, values)
        finally:
            total.take(usage)
    total.same, total.difference, total.reason = not said, said, ""


def _compare_fields(program: Program, results: Sequence[Any], wanted: dict[str, Any]) -> str:
    """The first difference in words; "" where there is none."""
    if not results:
        return "the code returns no tensor"
    pairs = zip(find_expected(program, wanted), results, strict=False)
    said = (find_difference(name, found, value) for (name, value), found in pairs)
    return next(filter(None, said), "")


def _compare_gradients(
    program: Program, draw: Draw, how: How, tower: Any, values: Mapping[str, Any]
) -> str:
    """The gradients of the results, weighted at random, by every real tensor."""
    import torch

    from derive.judge.fields import FieldTensor, to_field

    names = [name for name, value in values.items() if isinstance(value, FieldTensor)]

    def make_leaves() -> dict[str, Any]:
        leaves = copy_values(values)
        for name in names:
            leaves[name] = leaves[name].detach().requires_grad_()
        return leaves

    answer, found = program.differentiate(make_leaves(), draw.sizes, how)
    leaves = make_leaves()
    known = evaluate_over(tower, draw.system, leaves, draw.sizes)
    wanted = {tensor.name: known[tensor.name] for tensor in draw.system.results}
    results = [value for _, value in find_expected(program, wanted)][: len(answer.results)]
    total = weigh_results(results, how)
    right: tuple[Any, ...] = torch.autograd.grad(
        total, [leaves[name] for name in names], allow_unused=True
    )
    for name, other in zip(names, right, strict=True):
        one: Any = found[name]
        if one is None and other is None:
            continue
        nothing = to_field(tower, torch.zeros((one if one is not None else other).shape))
        here, there = (nothing if grad is None else grad for grad in (one, other))
        said = find_difference(f"the gradient by {name}", here, there)
        if said:
            return said
    return ""
