"""What somebody's code computes on its way: every tensor of numbers or truth values, by its line.

The code runs unmodified under a torch function mode, which sees each call before it is taken apart.
A call that is made elsewhere belongs to the line of the user's file that led to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from derive.checker.program import Program
from derive.checker.runs.modes import find_line_now
from derive.checker.runs.processes import where_it_lives

MOST_EVENTS = 600
MOST_ELEMENTS = 1 << 20


@dataclass(frozen=True, eq=False)
class Event:
    """A tensor that a line of the code has made."""

    number: int
    line: int
    value: Any  # in float64, as it was then
    reads: tuple[int, ...]  # the events whose tensors it is made of


@dataclass
class Trace:
    """The events in order, and those that the results are."""

    events: list[Event] = field(default_factory=list)
    results: tuple[Any, ...] = ()
    error: str = ""


class _Recorder:
    """The bookkeeping of one run: which tensor object, and which memory, is of which event."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.events: list[Event] = []
        self._by_tensor: dict[Any, int] = {}  # a tensor's hash is its identity
        self._by_memory: dict[int, int] = {}

    def record(self, function: Any, args: Any, named: Any, found: Any) -> None:
        """The events of one call."""
        line = find_line_now(self.path)
        if line is None or len(self.events) >= MOST_EVENTS:
            return
        read = list(_find_tensors((args, named)))
        reads = tuple(dict.fromkeys(n for t in read for n in self._find_events(t)))
        name = getattr(function, "__name__", "")
        made = list(_find_tensors(found))
        in_place = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        if in_place and read:
            base = getattr(read[0], "_base", None)
            made = [read[0] if base is None else base]
        for tensor in made:
            self._add(tensor, line, reads, in_place)

    def _find_events(self, tensor: Any) -> Iterable[int]:
        found = (self._by_tensor.get(tensor), self._by_memory.get(_find_memory(tensor)))
        return (number for number in found if number is not None)

    def _add(self, tensor: Any, line: int, reads: tuple[int, ...], in_place: bool) -> None:
        import torch

        told = tensor.is_floating_point() or tensor.dtype == torch.bool
        if not told or not 0 < tensor.numel() <= MOST_ELEMENTS:
            return
        number = len(self.events)
        value = tensor.detach().double()
        value = value.clone() if value.data_ptr() == tensor.data_ptr() else value
        self.events.append(Event(number, line, value, reads))
        self._by_tensor[tensor] = number
        if in_place:
            self._by_memory[_find_memory(tensor)] = number


def record(run: Callable[[Mapping[str, Any]], tuple[Any, ...]], values: Any, path: str) -> Trace:
    """The trace of one run of the code on these inputs."""
    import torch
    from torch.overrides import TorchFunctionMode

    recorder = _Recorder(path)

    class Recording(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            found = function(*args, **(kwargs or {}))
            recorder.record(function, args, kwargs, found)
            return found

    trace = Trace(recorder.events)
    try:
        with torch.no_grad(), Recording():
            trace.results = tuple(run(values))
    except Exception as error:  # what was seen before it stopped is of use
        trace.error = str(error)
    return trace


@where_it_lives
def record_program(program: Program, values: Mapping[str, Any], sizes: Mapping[str, int]) -> Trace:
    """The trace of one run of a program on inputs of the formula."""
    return record(lambda given: program.run(given, sizes).results, values, program.code.path)


def _find_tensors(value: Any) -> Iterable[Any]:
    """The tensors in arguments or results, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _find_tensors(each)
    elif isinstance(value, (tuple, list)) and not isinstance(value, torch.Size):
        for each in value:
            yield from _find_tensors(each)


def _find_memory(tensor: Any) -> int:
    try:
        return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return -1
