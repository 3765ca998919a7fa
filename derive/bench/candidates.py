"""The ways to compute a formula that are compared, as calls without arguments.

The user's code is loaded once, and its arguments are matched as a check matches them. Code under
torch.compile is compiled at its first call, which no row counts.

Inputs are of the order that they have in a network: sums over many normal numbers grow, and
exponentials of logits far below the largest are numbers so small that a processor multiplies them
many times slower than others.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any

from derive.bench.timing import Candidate, say_failure
from derive.checker import pick, processes, runs
from derive.checker.load import load
from derive.checker.program import Program, find_expected
from derive.compiler import Built
from derive.errors import refuse
from derive.ir import nodes as ir
from derive.judge.samples import draw_inputs
from derive.libraries import internals, torch


@dataclass(frozen=True)
class Hand:
    """Code by hand: its name on the command line, and the tensor of each argument."""

    name: str
    program: Program

    def bind(self, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> Candidate:
        """The call of the code on these inputs, with its module made and its parameters set."""
        program = self.program
        found = program.find_given(inputs, sizes)
        given, parameters, made = (  # leaves of their own, whatever they are views of
            {n: v.detach() if isinstance(v, torch.Tensor) else v for n, v in part.items()}
            for part in (found.arguments, found.parameters, found.constructor)
        )
        target = program.code.target
        if isinstance(target, type) and issubclass(target, torch.nn.Module):
            target = target(**made).eval()
        if isinstance(target, torch.nn.Module):
            target.to(runs.find_dtype((*parameters.values(), *given.values())) or torch.float32)
            parameters = {n: _set_tensor(target, n, value) for n, value in parameters.items()}
        positional, named = _find_arguments(target, given)
        read = (*given.values(), *parameters.values())
        tensors = tuple(each for each in read if isinstance(each, torch.Tensor))
        return Candidate(self.name, partial(target, *positional, **named), tensors)


def load_hand(against: str, system: ir.System) -> Hand:
    """The code that FILE.py:FUNCTION names, with its bindings; DeriveError if it does not run."""
    try:
        return Hand(against, pick.pick_program(load(against, system.name), system, {}, {}).program)
    except processes.CannotRunError as error:
        raise refuse("bench-code", f"{against} does not run: {error}") from error


def _set_tensor(module: Any, name: str, value: Any) -> Any:
    """Make a tensor the module's parameter or buffer of this name; return what was set."""
    path, _, last = name.rpartition(".")
    owner = module.get_submodule(path)
    is_buffer = last in owner._buffers
    given = value if is_buffer else torch.nn.Parameter(value, requires_grad=False)
    setattr(owner, last, given)
    return given


def _find_arguments(
    target: Any, given: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as a check passes them, by position and by name."""
    inner = target.forward if isinstance(target, torch.nn.Module) else target

    @wraps(inner)
    def catch(*positional: Any, **named: Any) -> Any:
        return positional, named

    found: tuple[tuple[Any, ...], dict[str, Any]] = runs.call_target(catch, given, {}, {})
    return found


GENERATED = "generated"
FAR = 1e-2  # of the largest element: other values, not another rounding


def draw_moderate(system: ir.System, sizes: Mapping[str, int], dtype: Any) -> dict[str, Any]:
    """Random inputs by name; a real tensor without a domain is scaled by its last extent ** -1/4.

    A product of two of them over that extent is then of order 1.
    """
    drawn = draw_inputs(system, sizes, seed=0, dtype=dtype)
    for entry in system.inputs:
        is_free = getattr(entry, "lower", None) is getattr(entry, "upper", None) is None
        if getattr(entry, "kind", "") == "real" and is_free and getattr(entry, "shape", ()):
            value = drawn[entry.name]
            drawn[entry.name] = value * max(1, value.shape[-1]) ** -0.25
    return drawn


def find_candidates(built: Built, hand: Hand | None, inputs: Mapping[str, Any]) -> list[Candidate]:
    """The generated function, then code by hand; DeriveError where that gives other values."""
    tensors = tuple(value for value in inputs.values() if hasattr(value, "is_floating_point"))
    first = Candidate(GENERATED, partial(built.function, **inputs), tensors)
    wanted = _run_code(first, f"{built.name} does not run at these sizes")
    if hand is None:
        return [first]
    try:
        candidate = hand.bind(inputs, built.plan.sizes)
    except (Exception, SystemExit) as error:  # a class of modules is made in there
        raise refuse("bench-code", f"{hand.name} does not run: {say_failure(error)}") from error
    names = [tensor.name for tensor in built.system.results]
    named = dict(zip(names, wanted, strict=True))
    _check(candidate, tuple(value for _, value in find_expected(hand.program, named)))
    return [first, candidate]


def compile_candidate(candidate: Candidate) -> Candidate:
    """The candidate under torch.compile; DeriveError where that gives other values."""
    torch.compiler.reset()  # graphs compiled for other sizes count against a limit
    call = candidate.call
    compiled = partial(torch.compile(call.func, dynamic=False), *call.args, **call.keywords)
    made = replace(candidate, name=f"{candidate.name}, compiled", call=compiled)
    _check(made, _run_code(candidate, f"{candidate.name} does not run"))
    return made


@contextmanager
def compile_quietly() -> Iterator[None]:
    """Have torch.compile work in this process and without warnings, within the context."""
    with warnings.catch_warnings(), internals.inductor.patch(compile_threads=1):
        warnings.simplefilter("ignore")
        yield


def _run_code(candidate: Candidate, says: str) -> tuple[Any, ...]:
    """The results; DeriveError for any exception of the code."""
    try:
        with torch.no_grad():
            return runs.flatten_results(candidate.call())
    except (Exception, SystemExit) as error:
        raise refuse("bench-code", f"{says}: {say_failure(error)}") from error


def _check(candidate: Candidate, wanted: Sequence[Any]) -> None:
    """Refuse code that writes into its inputs, or whose results differ by more than rounding.

    Further results are not compared.
    """
    before = [tensor._version for tensor in candidate.inputs]
    made = _run_code(candidate, f"{candidate.name} does not run")
    if [tensor._version for tensor in candidate.inputs] != before:
        raise refuse(
            "bench-writes",
            f"{candidate.name} writes into what it is given",
            help="let it work on a copy: each call has to find the same inputs",
        )
    if len(made) < len(wanted):
        says = f"{candidate.name} gives {len(made)} of the formula's {len(wanted)} results"
        raise refuse("bench-differs", says)
    if not all(map(is_near, made, wanted)):
        says = f"{candidate.name} gives other values than the formula"
        raise refuse("bench-differs", says, help="derive check says where")


def is_near(one: Any, other: Any) -> bool:
    """Whether shapes and elements are equal, up to FAR times the largest finite element."""
    if one.shape != other.shape:
        return False
    one, other = one.detach().double(), other.detach().double()
    finite = other[other.isfinite()]
    top = float(finite.abs().max()) if finite.numel() else 0.0
    return bool(torch.allclose(one, other, rtol=0, atol=FAR * top + FAR**3, equal_nan=True))
