"""The tensors that code computes, recorded call by call.

The code runs unmodified under a torch function mode, which sees each call before decomposition:
every floating or boolean result is an event. A call inside a library belongs to the line of the
user's file that led to it. Fingerprints are power sums, which no permutation of the elements
changes: tensors with other fingerprints cannot match.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from derive.checker.processes import run_remotely
from derive.checker.program import Program
from derive.checker.runs.modes import find_site_now
from derive.errors import DeriveError
from derive.frontend.torch.call import find_tensors
from derive.frontend.torch.trace import find_address
from derive.libraries import make_mode, torch


@dataclass(frozen=True)
class Example:
    """Inputs with their sizes, and the results of code or formula for them."""

    values: Mapping[str, Any]
    results: tuple[Any, ...]
    sizes: Mapping[str, int]


Turn: TypeAlias = tuple[int, int]  # number of an iteration, and count of iterations

MOST_EVENTS = 600
_MOST_RECORDED = 1 << 20


@dataclass(frozen=True, eq=False)
class Event:
    """A tensor that a line of the code has made."""

    number: int
    line: int
    value: Any  # a float64 copy from the time of the call
    reads: tuple[int, ...]  # numbers of the events whose tensors are operands
    site: int = -1  # the bytecode instruction, the same in each iteration of a loop

    @cached_property
    def fingerprint(self) -> Fingerprint | None:
        """The fingerprint of the tensor; None if all its elements are equal."""
        return find_fingerprint(self.value)


@dataclass
class Trace:
    """The events in order, the results, and the error that ended the run."""

    events: list[Event] = field(default_factory=list)
    results: tuple[Any, ...] = ()
    error: str = ""

    def find_turns(self) -> dict[Event, Turn]:
        """The pair (turn, number of turns) of each event that an instruction of a loop repeats."""
        sites: dict[tuple[int, int], list[Event]] = {}
        for event in self.events:
            sites.setdefault((event.line, event.site), []).append(event)
        return {
            e: (n, len(same)) for same in sites.values() for n, e in enumerate(same) if same[1:]
        }


def record(run: Callable[[], tuple[Any, ...]], path: str) -> Trace:
    """The trace of one run of the code."""
    trace = Trace()
    by_tensor: dict[Any, int] = {}  # numbers of events; a tensor's hash is its identity
    by_memory: dict[int, int] = {}

    def act(function: Any, args: Any, named: Any) -> Any:
        found = function(*args, **named)
        line, site = find_site_now(path)
        if line is None or len(trace.events) >= MOST_EVENTS:
            return found
        read = list(find_tensors((args, *named.values())))
        known = (n for t in read for n in (by_tensor.get(t), by_memory.get(find_address(t))))
        reads = tuple(dict.fromkeys(n for n in known if n is not None))
        made = list(find_tensors(found))
        name = getattr(function, "__name__", "")
        in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        if in_place and read:
            base = getattr(read[0], "_base", None)
            made = [read[0] if base is None else base]
        for tensor in made:
            told = tensor.is_floating_point() or tensor.dtype == torch.bool
            if told and 0 < tensor.numel() <= _MOST_RECORDED:
                by_tensor[tensor] = number = len(trace.events)
                value = tensor.detach().double()
                value = value.clone() if value.data_ptr() == tensor.data_ptr() else value
                trace.events.append(Event(number, line, value, reads, site))
                if in_place:
                    by_memory[find_address(tensor)] = number
        return found

    try:
        with torch.no_grad(), make_mode(act):
            trace.results = tuple(run())
    except Exception as error:  # keep the events before the error
        trace.error = str(error)
    return trace


@run_remotely
def record_program(program: Program, values: Mapping[str, Any], sizes: Mapping[str, int]) -> Trace:
    """The trace of one run of a program on inputs of the formula."""
    return record(lambda: program.run(values, sizes).results, program.code.path)


TOLERANCE = 1e-9  # relative to the largest finite element
# Exceptions that an edited formula may raise; such an edit is dropped.
_OF_PYTHON = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)
ERRORS = (*_OF_PYTHON, DeriveError)


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """A fingerprint, invariant to permutations and to a factor."""

    count: int  # elements
    finite: int  # finite elements
    ratios: tuple[float, float]  # of powers of the means of |x|, x**2 and x**4

    def is_like(self, other: Fingerprint) -> bool:
        """Whether the tensors may be equal up to a permutation and a factor."""
        return (
            self.count == other.count
            and self.finite == other.finite
            and all(abs(a - b) <= 1e-7 for a, b in zip(self.ratios, other.ratios, strict=True))
        )


def find_fingerprint(tensor: Any) -> Fingerprint | None:
    """The fingerprint of a tensor; None if all elements are equal, which matches too much."""
    flat = tensor.reshape(-1)
    total = float(flat.sum())
    if not math.isfinite(total):
        flat = flat[flat.isfinite()]
    if not flat.numel():
        return None
    size = flat.abs()
    square = size * size
    one, two, four = (float(each.mean()) for each in (size, square, square * square))
    if two <= 0 or not math.isfinite(four) or (one * one) / two > 1 - 1e-12:
        return None
    ratios = (one * one / two, two * two / max(four, 1e-300))
    return Fingerprint(tensor.numel(), flat.numel(), ratios)


def are_close(found: Sequence[Any], wanted: Sequence[Any], *, finite: bool = True) -> bool:
    """Whether the results agree up to rounding; with `finite` each must have a finite number."""
    if not len(found) >= len(wanted) > 0:
        return False
    return all(is_close(a, b, finite=finite) for a, b in zip(found, wanted, strict=False))


def is_close(found: Any, wanted: Any, *, finite: bool = True) -> bool:
    """Whether two tensors agree up to rounding; with `finite`, not all may be non-finite."""
    if tuple(found.shape) != tuple(wanted.shape):
        return False
    one, other = found.cdouble(), wanted.cdouble()
    off = (one - other).abs()
    top = float(other.abs().max()) if other.numel() else 0.0
    if top < float("inf"):  # no nan and no infinity
        return bool(off.max() <= TOLERANCE * max(top, 1e-3)) if other.numel() else True
    told = other.isfinite()
    if not bool((told == one.isfinite()).all()) or (finite and not bool(told.any())):
        return False
    top = float(other[told].abs().max()) if bool(told.any()) else 0.0
    same = (one == other) | (one.isnan() & other.isnan()) | (off <= TOLERANCE * max(top, 1e-3))
    return bool(same.all())
