"""Measure one case: the generated function and the function by hand, in one process."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

import derive
from derive.bench.candidates import draw_moderate
from derive.bench.timing import Candidate, find_peak, find_timings, to_backward, to_forward
from tests.benchmarks.cases import WEIGHT, Case, to_tuple

RUNS = 3  # runs of each function in a round, interleaved; the round counts their median
ROUNDS = 3  # the least round counts: other load on the machine only adds time
FAR = 1e-3  # relative to the largest element; float32 rounding is smaller
GENERATED, OWN, BY_HAND = "generated", "generated with its own backward", "by hand"


@dataclass(frozen=True)
class Pair:
    """A measured quantity of the generated function and of the function by hand."""

    generated: float
    by_hand: float

    @property
    def ratio(self) -> float:
        """The quantity by hand over the generated one."""
        return self.by_hand / self.generated


@dataclass(frozen=True)
class Row:
    """Seconds and peak bytes of one case.

    `autograd` times gradients through the usual file, `backward` those of the `--backward` file.
    """

    case: Case
    forward: Pair
    peak: Pair | None  # None where it is not measured or zero
    autograd: Pair | None = None
    autograd_peak: Pair | None = None
    backward: Pair | None = None
    backward_peak: Pair | None = None

    def to_data(self) -> dict[str, Any]:
        """The row for JSON; times in seconds."""
        pairs = {
            "forward": self.forward,
            "autograd": self.autograd,
            "backward": self.backward,
            "peak_bytes": self.peak,
            "autograd_peak_bytes": self.autograd_peak,
            "backward_peak_bytes": self.backward_peak,
        }
        return {
            "name": self.case.name,
            "sizes": dict(self.case.sizes),
            **{
                name: pair and {"generated": pair.generated, "by_hand": pair.by_hand}
                for name, pair in pairs.items()
            },
        }


def measure(case: Case, runs: int = RUNS, *, backward: bool = True) -> Row:
    """Measure a case; AssertionError where the two functions give different values."""
    built = derive.build(case.formula, sizes=dict(case.sizes))
    inputs = draw_case(case, built)
    tensors = tuple(value for value in inputs.values() if isinstance(value, torch.Tensor))
    calls = {GENERATED: built.function, BY_HAND: case.by_hand}
    pair = [Candidate(name, partial(call, **inputs), tensors) for name, call in calls.items()]
    check(*(candidate.call for candidate in pair))
    (forward,) = measure_pairs(pair, runs)
    row = Row(case, forward, find_peaks([to_forward(each) for each in pair]))
    if not backward:
        return row
    own = derive.build(case.formula, sizes=dict(case.sizes), backward=True)
    passes = [Candidate(OWN, partial(own.function, **inputs), tensors), pair[1]]
    times = measure_pairs([*pair, *passes], runs, backward=True)
    peaks = [find_peaks([to_backward(each) for each in two]) for two in (pair, passes)]
    return replace(
        row, autograd=times[0], autograd_peak=peaks[0], backward=times[1], backward_peak=peaks[1]
    )


def find_peaks(calls: Sequence[Callable[[], Any]]) -> Pair | None:
    """Peak bytes of two calls; None where one is not measured or zero."""
    one, other = map(find_peak, calls)
    return Pair(float(one), float(other)) if one and other else None


def draw_case(case: Case, built: derive.compiler.Built) -> dict[str, Any]:
    """Draw inputs in float32, weights at the scale of an initialization."""
    inputs = draw_moderate(built.system, case.sizes, torch.float32)
    return {name: value * WEIGHT if name in case.small else value for name, value in inputs.items()}


def check(generated: Callable[[], Any], by_hand: Callable[[], Any]) -> None:
    """Assert that both functions give equal values up to rounding."""
    with torch.no_grad():
        pairs = zip(to_tuple(generated()), to_tuple(by_hand()), strict=True)
        for one, other in pairs:
            largest = float(other.abs().max())
            torch.testing.assert_close(one, other, rtol=FAR, atol=FAR * largest)


def measure_pairs(
    candidates: Sequence[Candidate], runs: int, *, backward: bool = False
) -> list[Pair]:
    """Seconds of consecutive pairs of candidates, each the least median of all rounds."""
    make = to_backward if backward else to_forward
    calls = {each.name: make(each) for each in candidates}
    rounds = [find_timings(calls, runs) for _ in range(ROUNDS)]
    least = [min(found[each.name] for found in rounds) for each in candidates]
    return [Pair(*two) for two in zip(least[::2], least[1::2], strict=True)]
