"""Somebody's code: loaded once, its arguments matched as a check matches them, bound to inputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from derive.bench.candidate import Candidate
from derive.checker.judge import find_expected
from derive.checker.load import CannotRunError, load
from derive.checker.pick import pick_program
from derive.checker.program import evaluate_source
from derive.checker.runs import call_target, find_dtype
from derive.errors import refuse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from derive.checker.program import Program
    from derive.ir.nodes import System


@dataclass(frozen=True)
class Hand:
    """Code by hand, as it was named, and what each of its arguments is."""

    name: str
    program: Program

    def bind(self, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> Candidate:
        """A call of the code itself; what a check would do around it is done here, once."""
        import torch

        program = self.program

        def find(source: str) -> Any:
            value = evaluate_source(source, inputs, sizes, program.letters)
            # A leaf of its own, whatever it is a view of.
            return value.detach() if isinstance(value, torch.Tensor) else value

        given = {name: find(source) for name, source in program.arguments.items()}
        parameters = {name: find(source) for name, source in program.parameters.items()}
        made = {name: find(source) for name, source in program.constructor.items()}
        target = program.code.target
        if isinstance(target, type) and issubclass(target, torch.nn.Module):
            target = target(**made).eval()
        if isinstance(target, torch.nn.Module):
            target.to(find_dtype((*parameters.values(), *given.values())) or torch.float32)
            parameters = {n: _give(target, n, value) for n, value in parameters.items()}
        positional, named = _find_arguments(target, given)
        read = (*given.values(), *parameters.values())
        tensors = tuple(each for each in read if isinstance(each, torch.Tensor))
        return Candidate(self.name, partial(target, *positional, **named), tensors)

    def lay_out(self, results: dict[str, Any]) -> tuple[Any, ...]:
        """The formula's results in the layout that the code has."""
        return tuple(value for _, value in find_expected(self.program, results))


def load_hand(against: str, system: System) -> Hand:
    """The code that FILE.py:FUNCTION names; DeriveError where it does not run."""
    try:
        return Hand(against, pick_program(load(against, system.name), system, {}, {}).program)
    except CannotRunError as error:
        raise refuse("bench-code", f"{against} does not run: {error}") from error


def _give(module: Any, name: str, value: Any) -> Any:
    """The module's parameter or buffer of this name is the tensor from now on."""
    import torch

    path, _, last = name.rpartition(".")
    owner = module.get_submodule(path)
    if last in owner._buffers:
        owner._buffers[last] = value
        return value
    parameter = torch.nn.Parameter(value, requires_grad=False)
    owner._parameters[last] = parameter
    return parameter


def _find_arguments(
    target: Any, given: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as a check passes them, by position and by name."""
    import torch

    inner = target.forward if isinstance(target, torch.nn.Module) else target

    @wraps(inner)
    def catch(*positional: Any, **named: Any) -> Any:
        return positional, named

    found: tuple[tuple[Any, ...], dict[str, Any]] = call_target(catch, given, {}, {})
    return found
