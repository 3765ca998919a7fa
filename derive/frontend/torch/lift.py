"""The equations of torch code, recorded from one run in which every call is intercepted.

    lift(attend, {"q": Tensor("q", (B, S, D)), ..}, {"B": 2, "S": 3, "D": 5})

The table of ops may be wrong, and code can do what no interception sees. So the equations are
compared with the code at the inputs of the run, at other numbers and at other sizes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from derive.analysis.names import find_complex_mistakes
from derive.errors import DeriveError, refuse
from derive.frontend.torch.call import find_fields, find_tensors
from derive.frontend.torch.code import keep_sizes, name_of
from derive.frontend.torch.collect import collect
from derive.frontend.torch.mode import make_lifting, make_precise
from derive.frontend.torch.numbers import SymbolicNumber, plain
from derive.frontend.torch.trace import RestartError, Shadow, Trace, at
from derive.ir import nodes as ir
from derive.judge import evaluate, samples
from derive.judge.compare import FLOOR
from derive.libraries import by_default, make_mode, torch

Argument = ir.Tensor | ir.ScalarInput | ir.Size

_MOST_RUNS = 8  # runs of the code, each with more sizes fixed to numbers
_SEED = 20240517


@dataclass(frozen=True)
class Lifted:
    """The equations of code, and the sizes for which they hold."""

    system: ir.System
    fixed: Mapping[str, int]  # sizes that the code uses as numbers, as in a loop over heads
    notes: tuple[ir.Compare, ...] = ()  # conditions on sizes that decided the code's branches


def lift(
    function: Callable[..., Any],
    arguments: Mapping[str, Argument],
    sizes: Mapping[str, int],
    *,
    path: str = "",
) -> Lifted:
    """Return the equations of a function, by a run at these sizes; `path` is its file, if known.

    DeriveError, with the line of the code, for branches on data, numbers read out of tensors,
    random numbers, unknown operations.
    """
    fixed: dict[str, None] = {}
    with keep_sizes(function, path):
        for _ in range(_MOST_RUNS + len(sizes)):
            trace = Trace(sizes, tuple(fixed))
            try:
                run = _run_code(trace, function, arguments, path)
            except RestartError as restart:
                fixed |= dict.fromkeys(restart.names)
                continue
            more = tuple(size for size in trace.watch.fixed if size not in fixed)
            if more:
                fixed |= dict.fromkeys(more)
                continue
            lifted = _finish(trace, run.shadows, arguments, tuple(fixed))
            more = _judge(lifted, function, arguments, run, sizes)
            if not more:
                return lifted
            fixed |= dict.fromkeys(more)
    raise refuse("lift-sizes", "the code runs another way each time that a size becomes a number")


def _finish(
    trace: Trace,
    results: Sequence[Shadow],
    arguments: Mapping[str, Argument],
    fixed: tuple[str, ...],
) -> Lifted:
    if trace.watch.branches:
        names = ", ".join(trace.watch.branches)
        raise refuse("lift-branch", f"the code takes another way for other values of {names}")
    inputs = [_fix(trace, a) for a in arguments.values() if not isinstance(a, ir.Size)]
    given = [a.name for a in arguments.values() if isinstance(a, ir.Size)]
    sizes = {size: size in given for size in trace.sizes if size not in fixed}
    system = collect(trace, results, inputs, sizes, "lifted")
    numbers = {size: trace.sizes[size] for size in fixed}
    for mistake in find_complex_mistakes(system):
        raise refuse("lift-complex", mistake.says, facts=mistake.facts, help=mistake.help)
    if len(trace.empty_rows) > 1:
        says = "an empty row is zeros in one place and nan in another"
        raise refuse("lift-rows", says)
    system = replace(system, empty_row="".join(trace.empty_rows) or "nan")
    return Lifted(system, numbers, tuple(trace.watch.notes))


def _fix(trace: Trace, entry: ir.Tensor | ir.ScalarInput) -> ir.Tensor | ir.ScalarInput:
    if isinstance(entry, ir.ScalarInput):
        return entry
    shape = tuple(trace.extent(extent) for extent in entry.shape)
    below = trace.extent(entry.below) if entry.below is not None else None
    return ir.Tensor(entry.name, shape, entry.kind, below, entry.lower, entry.upper, entry.strict)


def _judge(
    lifted: Lifted,
    function: Callable[..., Any],
    arguments: Mapping[str, Argument],
    run: Run,
    sizes: Mapping[str, int],
) -> tuple[str, ...]:
    """Return the sizes to fix so that the equations agree with the code, or raise DeriveError."""

    def compare(others: Mapping[str, int], values: Mapping[str, Any]) -> bool | None:
        try:
            given = {n: {**values, **others}[entry.name] for n, entry in arguments.items()}
            copies = {n: v.clone() if hasattr(v, "clone") else v for n, v in given.items()}
            with in_double(), make_double():
                found = function(**copies)
        except Exception:  # code may be made for certain sizes or numbers only
            return None
        return is_equal_at(lifted.system, values, list_tensors(found), others)

    here, *elsewhere = find_other_draws(lifted.system, sizes, lifted.fixed)
    equal = is_equal_at(lifted.system, run.values, run.tensors, sizes)
    if not equal or compare(*here) is False:
        says = "the equations that were lifted do not give what the code gives"
        raise refuse("lift-unsure", says)
    if all(compare(*draw) is not False for draw in elsewhere):
        return ()
    for name in sizes:  # one may be used as a number unseen: `1.0 / S` calls no method of S
        held = {**lifted.fixed, name: sizes[name]}
        _, *others = find_other_draws(lifted.system, sizes, held)
        verdicts = [compare(*draw) for draw in others if name not in lifted.fixed]
        if True in verdicts and False not in verdicts:
            return (name,)
    return tuple(sizes)


@dataclass(frozen=True)
class Run:
    """The tensors that the code returned, their shadows, and the inputs by name."""

    shadows: tuple[Shadow, ...]
    tensors: tuple[Any, ...]
    values: Mapping[str, Any]


def _run_code(
    trace: Trace, function: Callable[..., Any], arguments: Mapping[str, Argument], path: str
) -> Run:
    """Run the code while every call is recorded in the trace."""
    try:
        with in_double():
            torch.manual_seed(_SEED)
            given = {name: _make_argument(trace, entry) for name, entry in arguments.items()}
            named = {a.name: given[n] for n, a in arguments.items() if not isinstance(a, ir.Size)}
            values = {  # copied: code may write into them
                name: value.clone() if hasattr(value, "clone") else plain(value)
                for name, value in named.items()
            }
            with make_lifting(trace, path):
                found = function(**given)
    except DeriveError:
        raise
    except (Exception, SystemExit) as error:  # whatever the code raises
        says = f"the code stops: {type(error).__name__}: {error}"
        raise trace.failed or refuse("lift-run", says) from error
    if trace.failed is not None:
        raise trace.failed
    tensors = list_tensors(found)
    if not tensors:
        raise refuse("lift-result", "the code returns no tensor")
    return Run(tuple(map(trace.shadow, tensors)), tensors, values)


def list_tensors(found: Any) -> tuple[Any, ...]:
    """Return the tensors in a result of code, in order, also those in its fields."""
    fields = find_fields(found)
    return tuple(find_tensors(found if fields is None else list(fields.values())))


def _make_argument(trace: Trace, entry: Argument) -> Any:
    """Return an argument for the run, with its symbolic value attached."""
    if isinstance(entry, ir.Size):
        return trace.to_int(trace.extent(entry))
    if isinstance(entry, ir.ScalarInput):
        system = ir.System("", (entry,), (), (), ())
        drawn = samples.draw_inputs(system, trace.sizes, _SEED)[entry.name]
        is_free = entry.lower is entry.upper is None
        read = ir.Scalar(entry.name, entry.lower, entry.upper, entry.strict)
        return SymbolicNumber(1.375 if is_free else drawn, read, trace.watch)
    entry = _fix(trace, entry)
    assert isinstance(entry, ir.Tensor)
    lengths = tuple(trace.number(extent) for extent in entry.shape)
    if entry.kind == "bool":
        value = torch.rand(lengths) < 0.8
    elif entry.kind == "int":
        end = trace.number(entry.below) if entry.below is not None else 2
        value = torch.randint(0, max(end, 1), lengths)
    else:
        value = torch.rand(lengths, dtype=torch.float64) + 0.5
    if entry.kind == "complex":
        value = torch.complex(value, torch.rand(lengths, dtype=torch.float64) - 0.5)
    indices = tuple(trace.index(extent) for extent in entry.shape)
    whole = ir.Access(entry, tuple(map(at, indices)))
    trace.attach(value, Shadow.of(indices, whole, entry.kind))
    return value


_CLOSE = 1e-6  # relative to the largest element
_DRAW_SEED = 11
_TRIES, _VALUES = 4, 3  # draws at other sizes; distinct values of each size


def is_equal_at(
    system: ir.System, values: Mapping[str, Any], found: Sequence[Any], sizes: Mapping[str, int]
) -> bool:
    """Whether the equations give the tensors `found` at these inputs and sizes."""
    try:
        with torch.no_grad():
            known = evaluate.evaluate_system(system, values, sizes)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        return False
    wanted = [known[tensor.name] for tensor in system.results]
    if [tuple(each.shape) for each in wanted] != [tuple(each.shape) for each in found]:
        return False
    for pair in zip(found, wanted, strict=True):
        one, other = (each.detach().cdouble() for each in pair)
        finite = one[one.isfinite()].abs()
        far = max(_CLOSE * (float(finite.max()) if finite.numel() else 1.0), FLOOR)
        if not torch.allclose(one, other, rtol=0.0, atol=far, equal_nan=True):
            return False
    return True


def find_other_draws(
    system: ir.System, sizes: Mapping[str, int], fixed: Mapping[str, int]
) -> Iterator[tuple[dict[str, int], dict[str, Any]]]:
    """Yield (sizes, inputs by name): at the same sizes, then with other values of free sizes."""
    yield dict(sizes), samples.draw_inputs(system, sizes, _DRAW_SEED)
    if len(fixed) == len(sizes):
        return
    for whole in _choose_others(system, sizes, fixed):
        values = samples.draw_inputs(system, whole, _DRAW_SEED)
        positive = {
            name: value.abs() + 0.5
            if isinstance(value, torch.Tensor) and value.is_floating_point()
            else value
            for name, value in values.items()
        }
        yield whole, positive


def _choose_others(
    system: ir.System, sizes: Mapping[str, int], fixed: Mapping[str, int]
) -> list[dict[str, int]]:
    """Return other sizes, so that each that is not fixed takes three values, with the run's."""
    found = [dict(sizes)]
    for seed in range(_DRAW_SEED, _DRAW_SEED + _TRIES):
        try:
            others = samples.choose_sizes(system, 1, seed=seed)[0]
        except ArithmeticError:  # a quotient by a size that these sizes make zero
            continue
        found.append({name: fixed.get(name, others.get(name, n)) for name, n in sizes.items()})
        values = [{whole[name] for whole in found} for name in sizes if name not in fixed]
        if all(len(each) >= _VALUES for each in values):
            break
    return found[1:]


@contextmanager
def in_double() -> Iterator[None]:
    """A context of float64 without warnings and gradients, which restores torch's random state."""
    state = torch.get_rng_state()
    try:
        with by_default(torch.float64), warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_rng_state(state)


def make_double() -> Any:
    """Return a torch mode under which float64 replaces every narrower float type."""

    def act(function: Any, args: Any, named: Any) -> Any:
        function, args, named = make_precise(name_of(function), function, tuple(args), named)
        return function(*args, **named)

    return make_mode(act)
