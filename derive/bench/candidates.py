"""The ways to compute a formula that are compared: each is called without arguments.

Somebody's code is loaded once, and its arguments matched as a check matches them. What
torch.compile makes of it holds for one number of threads and for gradients or none; torch compiles
it again when one of these changes, at the first call. That time is found and told, and in no row.
"""

import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from itertools import repeat
from string import ascii_letters
from timeit import timeit
from typing import Any

from derive.bench.timing import Candidate, find_failure, say_failure, to_backward, to_forward
from derive.checker import pick, processes, runs
from derive.checker.load import load
from derive.checker.program import Program, evaluate_source, find_expected
from derive.compiler import Built
from derive.errors import refuse
from derive.ir import nodes as ir
from derive.libraries import internals, torch


@dataclass(frozen=True)
class Hand:
    """Code by hand: its name on the command line, and the tensor of each argument."""

    name: str
    program: Program

    def bind(self, inputs: Mapping[str, Any], sizes: Mapping[str, int]) -> Candidate:
        """A call of the code itself; what a check would do around it is done here, once."""
        program = self.program

        def find(source: str) -> Any:
            value = evaluate_source(source, inputs, sizes, program.indices)
            # A leaf of its own, whatever it is a view of.
            return value.detach() if isinstance(value, torch.Tensor) else value

        given = {name: find(source) for name, source in program.arguments.items()}
        parameters = {name: find(source) for name, source in program.parameters.items()}
        made = {name: find(source) for name, source in program.constructor.items()}
        target = program.code.target
        if isinstance(target, type) and issubclass(target, torch.nn.Module):
            target = target(**made).eval()
        if isinstance(target, torch.nn.Module):
            target.to(runs.find_dtype((*parameters.values(), *given.values())) or torch.float32)
            parameters = {n: _order_arguments(target, n, value) for n, value in parameters.items()}
        positional, named = _find_arguments(target, given)
        read = (*given.values(), *parameters.values())
        tensors = tuple(each for each in read if isinstance(each, torch.Tensor))
        return Candidate(self.name, partial(target, *positional, **named), tensors)


def load_hand(against: str, system: ir.System) -> Hand:
    """The code that FILE.py:FUNCTION names; DeriveError where it does not run."""
    try:
        return Hand(against, pick.pick_program(load(against, system.name), system, {}, {}).program)
    except processes.CannotRunError as error:
        raise refuse("bench-code", f"{against} does not run: {error}") from error


def _order_arguments(module: Any, name: str, value: Any) -> Any:
    """The module's parameter or buffer of this name is the tensor from now on."""
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
# Of the largest element: other values, not another rounding.
FAR = {"float64": 1e-6, "float32": 1e-2, "bfloat16": 1e-1}
_MOST_OPERANDS = 20


@dataclass
class Found:
    """The candidates, the generated function first, and the omitted ones, in words."""

    candidates: list[Candidate]
    skipped: list[str]


def find_candidates(
    built: Built,
    hand: Hand | None,
    inputs: Mapping[str, Any],
    *,
    backward: bool = False,
    judge: bool = True,
) -> Found:
    """The candidates for these inputs; DeriveError where code gives other values.

    With `judge=False` values are not compared. With `backward` gradients have to fit as well.
    """
    far = FAR["float32"] if judge else math.inf
    tensors = tuple(value for value in inputs.values() if hasattr(value, "is_floating_point"))
    first = Candidate(GENERATED, partial(built.function, **inputs), tensors)
    wanted = _run_code(first, f"{built.name} does not run at these sizes")
    found = Found([first], [])
    if hand is not None:
        try:
            candidate = hand.bind(inputs, built.plan.sizes)
        except (Exception, SystemExit) as error:  # a class of modules is made in there
            raise refuse("bench-code", f"{hand.name} does not run: {say_failure(error)}") from error
        names = [tensor.name for tensor in built.system.results]
        named = dict(zip(names, wanted, strict=True))
        _check(candidate, tuple(value for _, value in find_expected(hand.program, named)), far)
        found.candidates.append(candidate)
    for candidate in _find_einsums(found.skipped, built, inputs, tensors, backward):
        _check(candidate, wanted, far)
        found.candidates.append(candidate)
    return found


def _run_code(candidate: Candidate, says: str) -> tuple[Any, ...]:
    """The results; DeriveError for any exception of the code."""
    try:
        with torch.no_grad():
            return runs.flatten_results(candidate.call())
    except (Exception, SystemExit) as error:
        raise refuse("bench-code", f"{says}: {say_failure(error)}") from error


def _find_einsums(
    skipped: list[str],
    built: Built,
    inputs: Mapping[str, Any],
    tensors: tuple[Any, ...],
    backward: bool,
) -> Iterator[Candidate]:
    """One call of torch.einsum, where the formula is one product, with and without a path."""
    equation = to_einsum(built)
    if equation is None:
        skipped.append("torch.einsum: the formula is more than one product")
        return
    string, names = equation
    operands = [inputs[name] for name in names]
    for title, is_planned in (("torch.einsum", True), ("without a path", False)):
        candidate = Candidate(title, partial(_contract, string, operands, is_planned), tensors)
        failure = find_failure(to_backward(candidate) if backward else to_forward(candidate))
        if failure:
            skipped.append(f"{title}: {failure}")
        else:
            yield candidate


def _contract(string: str, operands: list[Any], is_planned: bool) -> Any:
    with torch.backends.opt_einsum.flags(enabled=is_planned):
        return torch.einsum(string, *operands)


def to_einsum(built: Built) -> tuple[str, tuple[str, ...]] | None:
    """The string and the operands, where the formula is one sum of one product of plain reads."""
    if len(built.system.equations) != 1:
        return None
    (equation,) = built.system.equations
    factors = _find_factors(equation)
    if factors is None or not 1 <= len(factors) <= _MOST_OPERANDS:
        return None
    reads = [f for f in factors if isinstance(f, ir.Access) and f.tensor.kind == "real"]
    indices: dict[ir.Index, str] = {}
    *terms, out = (_write_call(each.places, indices) for each in (*reads, equation.target))
    if len(reads) < len(factors) or None in (*terms, out):
        return None
    return f"{','.join(map(str, terms))}->{out}", tuple(read.tensor.name for read in reads)


def _find_factors(equation: ir.Equation) -> tuple[Any, ...] | None:
    body = equation.value
    if isinstance(body, ir.Reduce):
        if body.kind != "sum" or body.condition is not ir.TRUE:
            return None
        body = body.body
    return ir.split_product(body)


def _write_call(places: tuple[Any, ...], indices: dict[ir.Index, str]) -> str | None:
    if not all(isinstance(place, ir.Index) for place in places):
        return None
    return "".join(indices.setdefault(place, ascii_letters[len(indices)]) for place in places)


def _check(candidate: Candidate, wanted: Sequence[Any], far: float) -> None:
    """Refuse code that writes into its inputs, and results that differ by more than rounding.

    What is returned besides is not judged.
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
        raise refuse(
            "bench-differs",
            f"{candidate.name} gives {len(made)} of the formula's {len(wanted)} results",
        )
    if not all(is_near(one, other, far) for one, other in zip(made, wanted, strict=False)):
        raise refuse(
            "bench-differs",
            f"{candidate.name} gives other values than the formula",
            help="derive check says where",
        )


def is_near(one: Any, other: Any, far: float) -> bool:
    """Whether shapes and elements are equal, up to `far` times the largest finite element."""
    if one.shape != other.shape or far == math.inf:
        return bool(one.shape == other.shape)
    one, other = one.detach().double(), other.detach().double()
    finite = other[other.isfinite()]
    top = float(finite.abs().max()) if finite.numel() else 0.0
    same = (one == other) | (one.isnan() & other.isnan())
    return bool((same | ((one - other).abs() <= far * top + far**3)).all())


@contextmanager
def quietly() -> Iterator[None]:
    """In here the compiler works in this process, and its warnings are its own affair."""
    with warnings.catch_warnings(), internals.inductor.patch(compile_threads=1):
        warnings.simplefilter("ignore")
        yield


def find_compiled(
    candidates: Sequence[Candidate], dtype: str, backward: Collection[str]
) -> tuple[list[Candidate], dict[str, float], list[str]]:
    """The candidates compiled, the seconds that took, and why one is left out.

    Those whose names are in `backward` are compiled for gradients too.
    """
    found: list[Candidate] = []
    seconds: dict[str, float] = {}
    skipped: list[str] = []
    torch.compiler.reset()  # graphs compiled for other sizes count against a limit
    for candidate in candidates:
        name = to_compiled_name(candidate.name)
        try:
            with quietly():
                call = candidate.call
                function: Callable[..., Any] = torch.compile(call.func, dynamic=False)
                compiled = partial(function, *call.args, **call.keywords)
                made = Candidate(name, compiled, candidate.inputs)
                calls = [to_forward(made)]
                calls += [to_backward(made)] if candidate.name in backward else []
                took = 0.0
                for each in calls:  # the first call less the second
                    first = timeit(each, number=1)
                    took += max(0.0, first - timeit(each, number=1))
                with torch.no_grad():
                    wanted, given = runs.flatten_results(call()), runs.flatten_results(compiled())
                if len(given) != len(wanted) or not all(
                    map(is_near, given, wanted, repeat(FAR[dtype]))
                ):
                    raise refuse("bench-differs", "it gives other values than as it stands")
        except Exception as error:  # a missing compiler, or code that it cannot take
            skipped.append(f"{name}: {say_failure(error)}")
        else:
            found.append(made)
            seconds[name] = took
    return found, seconds, skipped


def to_compiled_name(name: str) -> str:
    """The label of the row of the compiled code."""
    return f"{name}, compiled"
