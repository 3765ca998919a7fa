"""torch.compile of what is compared: two more candidates, where there is a compiler that can.

Compiled code holds for one number of threads and for gradients or none; torch compiles it again
when one of these changes, at the first call. That time is found and told, and in no row.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from derive.bench.candidate import Candidate, to_backward, to_forward
from derive.bench.candidates import is_near
from derive.bench.measure import time_calls
from derive.bench.memory import say_failure
from derive.checker.runs import flatten_results
from derive.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

FAR = {"float64": 1e-6, "float32": 1e-2, "bfloat16": 1e-1}  # of the largest element


@contextmanager
def quietly() -> Iterator[None]:
    """In here the compiler works in this process, and its warnings are its own affair."""
    import torch._inductor.config as settings

    with warnings.catch_warnings(), settings.patch(compile_threads=1):
        warnings.simplefilter("ignore")
        yield


def find_compiled(
    candidates: Sequence[Candidate], dtype: str, backward: Collection[str]
) -> tuple[list[Candidate], dict[str, float], list[str]]:
    """The candidates compiled, the seconds that took, and why one is left out.

    Those whose names are in `backward` are compiled for gradients too.
    """
    import torch

    found: list[Candidate] = []
    seconds: dict[str, float] = {}
    skipped: list[str] = []
    torch.compiler.reset()  # what was compiled for other sizes counts against a limit
    for candidate in candidates:
        name = to_compiled_name(candidate.name)
        try:
            with quietly():
                made = _compile(candidate, name)
                calls = [to_forward(made)]
                calls += [to_backward(made)] if candidate.name in backward else []
                took = sum(map(_warm_up, calls))
                if not _agrees(candidate, made, FAR[dtype]):
                    raise refuse("bench-differs", "it gives other values than as it stands")
        except Exception as error:  # a missing compiler, or code that it cannot take
            skipped.append(f"{name}: {say_failure(error)}")
        else:
            found.append(made)
            seconds[name] = took
    return found, seconds, skipped


def to_compiled_name(name: str) -> str:
    """What the row of the compiled code is called."""
    return f"{name}, compiled"


def _compile(candidate: Candidate, name: str) -> Candidate:
    import torch

    call = candidate.call
    function: Callable[..., Any] = torch.compile(call.func, dynamic=False)
    return Candidate(name, partial(function, *call.args, **call.keywords), candidate.inputs)


def _warm_up(call: Callable[[], Any]) -> float:
    """What the first call takes longer than the second."""
    first = time_calls(call, 1)
    return max(0.0, first - time_calls(call, 1))


def _agrees(candidate: Candidate, compiled: Candidate, far: float) -> bool:
    import torch

    with torch.no_grad():
        wanted, made = flatten_results(candidate.call()), flatten_results(compiled.call())
    pairs = zip(made, wanted, strict=True)
    return len(made) == len(wanted) and all(is_near(one, other, far) for one, other in pairs)
