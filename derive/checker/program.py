"""Code with everything that it is given: called with the formula's tensors, it returns results."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from derive.checker.load import CannotRunError, Code, find_line, say
from derive.checker.sources import evaluate_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MOST_PARTS = 64  # of a result that is a nest of tuples and dictionaries


@dataclass(frozen=True)
class Program:
    """Code and the source of each of its arguments, parameters and constructor's arguments."""

    code: Code
    arguments: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    constructor: Mapping[str, str] = field(default_factory=dict)
    letters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    results: Mapping[str, str] = field(default_factory=dict)  # where a result has another layout
    guessed: bool = False  # was an integer filled in that no name tells?
    layout: bool = False  # is a tensor given in another layout than the formula's?

    def run(self, values: Mapping[str, Any], sizes: Mapping[str, Any]) -> tuple[Any, ...]:
        """The results for inputs of the formula; CannotRunError with the line where it stops."""
        try:
            return flatten_results(self.call(values, sizes))
        except RecursionError as error:
            raise CannotRunError("it calls itself without an end", self._line(error)) from error

    def call(self, values: Mapping[str, Any], sizes: Mapping[str, Any]) -> Any:
        """What the code returns; exceptions of our own judges pass, the user's get their line."""

        def read(source: str) -> Any:
            return evaluate_source(source, values, sizes, self.letters)

        given = {name: read(source) for name, source in self.arguments.items()}
        parameters = {name: read(source) for name, source in self.parameters.items()}
        made = {name: read(source) for name, source in self.constructor.items()}
        return call_target(self.code.target, given, parameters, made)

    def describe(self) -> tuple[str, ...]:
        """The arguments whose source is not their own name, as reports say them."""
        everything = {**self.constructor, **self.arguments, **self.parameters}
        said = [f"{name} = {source}" for name, source in everything.items() if name != source]
        return tuple(said + [f"{name} as {source}" for name, source in self.results.items()])

    def _line(self, error: BaseException) -> int | None:
        return find_line(error, self.code.path)

    def cannot_run(self, error: BaseException) -> CannotRunError:
        """The error of the user's code, with its line."""
        line = self._line(error)
        at = f"line {line}: " if line else ""
        return CannotRunError(f"{at}{say(error)}", line)


def call_target(
    target: Any, given: Mapping[str, Any], parameters: Mapping[str, Any], made: Mapping[str, Any]
) -> Any:
    """The function called, or the module with these parameters; a class is made first."""
    import torch

    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        from derive.judge.fields.tensor import pause

        with pause():
            target = target(**made).eval()
    if isinstance(target, torch.nn.Module):
        positional, named = _order(target.forward, given)
        with convert_buffers(target, find_dtype((*parameters.values(), *given.values()))):
            return torch.func.functional_call(target, dict(parameters), tuple(positional), named)
    positional, named = _order(target, given)
    return target(*positional, **named)


def find_dtype(values: Iterable[Any]) -> Any:
    """The type of the first real tensor."""
    import torch

    tensors = (value for value in values if isinstance(value, torch.Tensor))
    return next((value.dtype for value in tensors if value.is_floating_point()), None)


@contextmanager
def convert_buffers(module: Any, dtype: Any) -> Iterator[None]:
    """In here the real buffers of a module have this type, as its parameters have.

    A buffer that the module has changed stays changed: that it keeps a state has to be seen.
    """
    from derive.judge.fields.tensor import pause

    swapped = []
    for part in module.modules() if dtype is not None else ():
        for name, old in part._buffers.items():
            if old is not None and old.is_floating_point() and old.dtype != dtype:
                with pause():
                    new = old.to(dtype)
                swapped.append((part._buffers, name, old, new, new._version))
    for buffers, name, _, new, _ in swapped:
        buffers[name] = new
    try:
        yield
    finally:
        for buffers, name, old, new, version in swapped:
            if buffers.get(name) is new and new._version == version:
                buffers[name] = old


def _order(function: Any, given: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by position as long as none is left out, the others by name."""
    try:
        known = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return list(given.values()), {}
    if not any(name in known for name in given) and any(
        each.kind is each.VAR_POSITIONAL for each in known.values()
    ):
        return list(given.values()), {}
    positional: list[Any] = []
    left = dict(given)
    for name, parameter in known.items():
        if name not in left or parameter.kind is parameter.KEYWORD_ONLY:
            break
        positional.append(left.pop(name))
    return positional, left


def flatten_results(found: Any) -> tuple[Any, ...]:
    """The tensors in what the code returned, in order."""
    import torch

    if isinstance(found, torch.Tensor):
        return (found,)
    if isinstance(found, (int, float, bool)):
        return (torch.tensor(found),)
    if type(found).__module__ == "numpy" and hasattr(found, "dtype"):
        return (torch.as_tensor(found),)
    if isinstance(found, Mapping):
        found = list(found.values())
    if isinstance(found, (tuple, list)):
        return tuple(part for each in found[:MOST_PARTS] for part in flatten_results(each))
    return ()


@contextmanager
def precisely() -> Iterator[None]:
    """Single precision that the code asks for by name is double precision in here."""
    import torch

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with make_precise():
            yield
    finally:
        torch.set_default_dtype(before)
        torch.backends.mha.set_fastpath_enabled(fast)


def make_precise() -> Any:
    """A mode in which every request for a shorter float is one for float64."""
    import torch
    from torch.overrides import TorchFunctionMode

    short = {torch.float32, torch.float16, torch.bfloat16}

    class Precise(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            named = dict(kwargs or {})
            if getattr(function, "__name__", "") in {"float", "half", "bfloat16"} and args:
                return args[0].double() if isinstance(args[0], torch.Tensor) else args[0]
            if isinstance(named.get("dtype"), torch.dtype) and named["dtype"] in short:
                named["dtype"] = torch.float64
            args = tuple(
                torch.float64 if isinstance(each, torch.dtype) and each in short else each
                for each in args
            )
            return function(*args, **named)

    return Precise()
