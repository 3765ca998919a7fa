"""The measurements of one case: the generated function and the one by hand, in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

import derive
from derive.bench.candidates import find_compiled, quietly, to_compiled_name
from derive.bench.measure import (
    Candidate,
    Roofline,
    find_bound,
    find_peak,
    measure_all,
    measure_roofline,
    to_forward,
)
from derive.bench.run import draw_moderate
from tests.benchmarks.cases import WEIGHT, Case

RUNS = 3  # of each function in a round, interleaved; their median is the round's
ROUNDS = 3  # the least of which counts: whatever else the machine does only adds
FAR = 1e-3  # of the largest element, in float32: other values, not another rounding
GENERATED, BY_HAND = "generated", "by hand"


@dataclass(frozen=True)
class Pair:
    """What was measured of each of the two."""

    generated: float
    by_hand: float

    @property
    def ratio(self) -> float:
        """How many times the generated function's the other is."""
        return self.by_hand / self.generated


@dataclass(frozen=True)
class Row:
    """One case: seconds forward, forward and backward, bytes, and the least seconds there are."""

    case: Case
    forward: Pair
    backward: Pair | None
    peak: Pair | None  # None where the system does not tell, or one of the two takes nothing
    bound: float
    compiled: Pair | None = None  # what torch.compile makes of both, and the seconds that takes
    compiling: Pair | None = None

    @property
    def times_bound(self) -> float:
        """The generated function's seconds over the least that there are."""
        return self.forward.generated / self.bound

    def to_data(self) -> dict[str, Any]:
        """The row for JSON; times in seconds."""
        pairs = {
            "forward": self.forward,
            "backward": self.backward,
            "peak_bytes": self.peak,
            "compiled": self.compiled,
            "compile_seconds": self.compiling,
        }
        return {
            "name": self.case.name,
            "sizes": dict(self.case.sizes),
            **{
                name: pair and {"generated": pair.generated, "by_hand": pair.by_hand}
                for name, pair in pairs.items()
            },
            "bound": self.bound,
        }


def measure(
    case: Case,
    roofline: Roofline,
    runs: int = RUNS,
    *,
    backward: bool = True,
    compiled: bool = False,
) -> Row:
    """The row of a case; AssertionError where the two functions give different values."""
    built = derive.build(case.formula, sizes=dict(case.sizes))
    trained = derive.build(case.formula, sizes=dict(case.sizes), backward=backward)
    inputs = draw(case, built)
    tensors = tuple(value for value in inputs.values() if isinstance(value, torch.Tensor))
    calls = {GENERATED: built.function, BY_HAND: case.by_hand}
    pair = [Candidate(name, partial(call, **inputs), tensors) for name, call in calls.items()]
    check(*(candidate.call for candidate in pair))
    peaks = [find_peak(to_forward(candidate)) for candidate in pair]
    passes = [Candidate(GENERATED, partial(trained.function, **inputs), tensors), pair[1]]
    made, seconds, skipped = find_compiled(pair, "float32", ()) if compiled else ([], {}, [])
    if skipped:
        raise AssertionError("; ".join(skipped))
    with quietly() if compiled else nullcontext():
        forward, *others = measure_pairs([*pair, *made], runs)
    return Row(
        case,
        forward,
        measure_pairs(passes, runs, backward=True)[0] if backward else None,
        Pair(float(peaks[0]), float(peaks[1])) if peaks[0] and peaks[1] else None,
        find_bound(roofline, built.plan.at_sizes(built.plan.flops), pair[0]),
        next(iter(others), None),
        Pair(*(seconds[to_compiled_name(name)] for name in calls)) if made else None,
    )


def draw(case: Case, built: derive.compiler.Built) -> dict[str, Any]:
    """Inputs in float32, weights as small as where training starts."""
    inputs = draw_moderate(built.system, case.sizes, torch.float32)
    return {name: value * WEIGHT if name in case.small else value for name, value in inputs.items()}


def check(generated: Callable[[], Any], by_hand: Callable[[], Any]) -> None:
    """Both give the same values, but for rounding."""
    with torch.no_grad():
        pairs = zip(_to_tuple(generated()), _to_tuple(by_hand()), strict=True)
        for one, other in pairs:
            largest = float(other.abs().max())
            torch.testing.assert_close(one, other, rtol=FAR, atol=FAR * largest)


def _to_tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def measure_pairs(
    candidates: Sequence[Candidate], runs: int, *, backward: bool = False
) -> list[Pair]:
    """The seconds of two and two, each the least of the medians of all rounds."""
    rounds = [measure_all(candidates, runs, backward=backward) for _ in range(ROUNDS)]
    least = [min(medians[each.name] for medians in rounds) for each in candidates]
    return [Pair(*two) for two in zip(least[::2], least[1::2], strict=True)]


def measure_limits() -> Roofline:
    """The machine's rates, the best of all rounds."""
    rounds = [measure_roofline() for _ in range(ROUNDS)]
    return Roofline(max(each.flops for each in rounds), max(each.bytes for each in rounds))
