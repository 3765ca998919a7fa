"""One run of the user's code: its inputs, the state of torch during the run, its results.

Runs in the process that loaded the code. An exception of the code becomes a CannotRunError with its
line and the relations between sizes that its message states. Exceptions of field arithmetic pass.
"""

from __future__ import annotations

import inspect
import random
import re
import sys
import warnings
from contextlib import ExitStack, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import lru_cache
from linecache import getline
from traceback import walk_tb
from types import ModuleType
from typing import TYPE_CHECKING, Any

from derive.checker import load, processes, relations, slots
from derive.checker.runs.modes import (
    Lowering,
    Recorder,
    State,
    StoppedError,
    make_precise,
    put_infinity,
    watch_failures,
    watch_gradients,
    watch_masks,
)
from derive.errors import DeriveError
from derive.frontend.torch.call import find_fields
from derive.libraries import NUMPY, by_default, internals, make_mode, torch

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from derive.judge.fields.algebra import Usage


_UNDEFINED = re.compile(
    r"NameError: |AttributeError: (?:module )?'([\w.]+)' (?:object )?has no attribute"
)
_BUILTIN = ("Tensor", "NoneType", "bool", "int", "float", "str", "tuple", "list", "dict")


def is_undefined(error: processes.CannotRunError) -> bool:
    """Whether the error is an undefined name, or an undefined attribute of a user's object."""
    found = _UNDEFINED.search(str(error))
    return found is not None and found[1] not in _BUILTIN


MOST_PARTS = 64  # flattened tensors of a nested result


@dataclass(frozen=True)
class Given:
    """The values of arguments, of parameters, and of the arguments of a constructor, by name."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    constructor: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RunOptions:
    """The state of torch in which code runs, and the records to make of the run."""

    double: bool = True  # run every shorter float that the code requests as float64
    asked: bool = False  # with double=False: default float64, but keep requested shorter floats
    from_whole: bool = False  # report float32 as a shorter float: it does not hold all of int64
    seed: int | None = None  # seed of torch's random numbers
    tower: tuple[int, int] | None = None  # seed and depth of the random fields, if run over fields
    weights: int | None = None  # seed of the weights in the differentiated sum of the results
    most: int = 0  # number of results in that sum
    names: tuple[str, ...] = ()  # names of the formula's results
    is_watched: bool = False  # record the calls of torch
    ordinary: Given | None = None  # inputs that show the masked entries, which become -inf
    most_lines: int = 0  # executed lines of the code after which the run is stopped; 0 for no limit
    most_elements: int = 0  # elements of one tensor beyond which the run is stopped; 0 for no limit


@dataclass(frozen=True)
class Answer:
    """The results of a run, and the records that were requested."""

    results: tuple[Any, ...]
    changed: tuple[str, ...] = ()  # arguments that the code changed in place
    gradients: Mapping[str, Any] = field(default_factory=dict)  # keyed by argument or parameter
    usage: Usage | None = None
    cuts: tuple[tuple[int, str], ...] = ()  # lines and calls at which a gradient ends
    calls: tuple[tuple[str, int], ...] = ()  # calls of torch, each with its line
    numbers: tuple[float, ...] = ()  # plain numbers among the arguments of those calls
    lowered: tuple[Lowering, ...] = ()
    shorter: tuple[Lowering, ...] = ()  # requests for shorter floats that ran as float64
    full: tuple[Lowering, ...] = ()  # calls whose whole numbers exceed the range of their type
    cuts_to: tuple[str, ...] = ()  # integer types to which the code casts real numbers
    reach: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # by type, see Recorder
    left_range: bool = False  # a call overflowed, or returned 0 for a number that is not 0
    masked: float | None = None  # the largest finite number that -inf replaced


_NO_MEMORY = re.compile(r"MemoryError|(allocate|not enough|out of) memory", re.IGNORECASE)


@contextmanager
def trace_lines(path: str, receive: Callable[[Any, str], None]) -> Iterator[None]:
    """Within the context, call `receive(frame, event)` in the user's file, except for "call"."""

    def trace_event(frame: Any, event: str, _: Any) -> Any:
        if frame.f_code.co_filename != path:
            return None
        if event != "call":
            receive(frame, event)
        return trace_event

    before = sys.gettrace()
    sys.settrace(trace_event)
    try:
        yield
    finally:
        sys.settrace(before)


@processes.run_remotely
def run_target(target: Any, given: Given, how: RunOptions, path: str) -> Answer:
    """The results and the records of one run; CannotRunError if the code raises."""
    if how.ordinary is not None:
        plain, places = replace(how, ordinary=None), list[tuple[Any, float | None]]()
        with watch_masks(places):
            run_target(target, how.ordinary, plain, path)
        with put_infinity(places):
            answer = run_target(target, given, plain, path)
        largest = (each for _, each in places if each is not None)
        return replace(answer, masked=max(largest, default=None))
    from derive.judge.fields import NotModelledError, TooDeepError, UnluckyError

    failed: list[tuple[str, Any, Any]] = []
    is_plain = how.tower is None and how.weights is None
    try:
        if how.is_watched and isinstance(target, type):
            with prepare(how, path):  # calls of the constructor are not recorded
                _make_module_once(target, given.constructor)
        watch = Recorder(path, how.asked or how.from_whole) if how.is_watched else None
        left = iter(range(how.most_lines))

        def count_line(frame: Any, event: str) -> None:
            if next(left, None) is None:
                raise StoppedError(f"it has not ended after {how.most_lines} of its lines")

        with ExitStack() as stack:
            if is_plain:
                stack.enter_context(watch_failures(failed, how.most_elements))
            state = stack.enter_context(prepare(how, path))
            if watch is not None:
                stack.enter_context(make_mode(watch.record_call))
            if how.most_lines:
                stack.enter_context(trace_lines(path, count_line))
            answer = _run_once(target, given, how, state.usage, path)
        answer = replace(answer, shorter=tuple(state.shorter))
        if watch is None:
            return answer
        recorded: dict[str, Any] = {
            name: tuple(getattr(watch, name))
            for name in ("calls", "numbers", "lowered", "full", "cuts_to")
        }
        reach = state.whole | watch.reach
        return replace(answer, **recorded, reach=reach, left_range=watch.left_range)
    except (processes.CannotRunError, DeriveError, NotModelledError, TooDeepError, UnluckyError):
        raise
    except StoppedError as error:
        raise processes.CannotRunError(str(error), is_beyond=True) from error
    except RecursionError as error:
        line = load.find_line(error, path)
        raise processes.CannotRunError("it calls itself without an end", line) from error
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # whatever the user's code raises
        raise describe_error(error, path, failed[-1] if failed else None) from error


def describe_error(error: BaseException, path: str, failed: Any = None) -> processes.CannotRunError:
    """The error of the user's code, with its line; `failed` is the torch function that raised."""
    line = load.find_line(error, path)
    at = f"line {line}: " if line else ""
    said = [*relations.read_view(*failed)] if failed is not None else []
    lacking = (NameError, AttributeError, ImportError, TypeError)  # at all sizes
    is_incurable = isinstance(error, lacking) and not isinstance(error, UnboundLocalError)
    every = walk_tb(error.__traceback__)
    frames = [(f, line) for f, line in every if f.f_code.co_filename == path]
    if failed is None and frames:
        said, reads_elements = relations.read_refusal(*frames[-1])
        is_incurable |= reads_elements
    says, lacks = (load.to_line(error), bool(_NO_MEMORY.search(load.to_line(error))))
    row = getline(path, line or 0).strip()
    is_own = row.lstrip("(").startswith(("raise", "assert")) or isinstance(error, AssertionError)
    return processes.CannotRunError(
        f"{at}{says}",
        line,
        is_incurable,
        statements=tuple(said),
        is_beyond=lacks,
        refusal=row if is_own else "",
    )


@contextmanager
def prepare(how: RunOptions, path: str = "") -> Iterator[State]:
    """Set torch's seeds, default type and field arithmetic for a run; yield the run's records."""
    from derive.judge.fields import draw_tower, exact

    state = State()
    with warnings.catch_warnings(), ExitStack() as stack:
        warnings.simplefilter("ignore")
        if how.seed is not None:
            torch.manual_seed(how.seed)
            random.seed(how.seed)
            if "numpy" in sys.modules:
                sys.modules["numpy"].random.seed(how.seed)
        if how.double or how.asked:
            stack.enter_context(by_default(torch.float64))
        fast = torch.backends.mha
        stack.callback(fast.set_fastpath_enabled, fast.get_fastpath_enabled())
        fast.set_fastpath_enabled(False)
        if how.double:
            stack.enter_context(make_precise(state, path))
        if how.tower:
            state.usage = stack.enter_context(exact(draw_tower(*how.tower)))
        yield state


def _run_once(target: Any, given: Given, how: RunOptions, usage: Usage | None, path: str) -> Answer:
    """The results, gradients and changed arguments of one call in the prepared state."""
    both = {**given.arguments, **given.parameters}
    tensors = {name: value for name, value in both.items() if isinstance(value, torch.Tensor)}
    before = {} if how.tower else {name: value.clone() for name, value in tensors.items()}
    reals = {v: n for n, v in reversed(tensors.items()) if v.is_floating_point()}
    leaves = {name: value for value, name in reals.items()}  # equal tensors: the first name
    if how.weights is not None:
        for value in leaves.values():
            value.requires_grad_()
    cuts: dict[tuple[int, str], None] = {}
    is_watched = how.weights is not None and not how.tower
    if how.tower is None and how.weights is None and isinstance(target, type):
        target = _make_module_once(target, given.constructor)
    with watch_gradients(path, cuts) if is_watched else nullcontext():
        found = call_target(target, given.arguments, given.parameters, given.constructor)
    results = flatten_results(pick_results(found, how.names))
    gradients: dict[str, Any] = {}
    if how.weights is not None:
        gradients = dict.fromkeys(leaves)
        total = weigh_results(results[: how.most], how)
        if getattr(total, "requires_grad", True):
            every = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
            gradients = dict(zip(leaves, every, strict=True))
    now = {**given.arguments, **given.parameters}
    changed = tuple(name for name, old in before.items() if not is_same(old, now[name]))
    return Answer(results, changed, gradients, usage, tuple(cuts))


def is_same(one: Any, other: Any) -> bool:
    """Whether two tensors have the same shape and values; where `one` is nan, any value will do."""
    return bool(one.shape == other.shape and ((one == other) | (one != one)).all())


def _make_module_once(target: type, made: Mapping[str, Any]) -> Any:
    """The module of a class, made once per arguments, so that a state kept between calls shows."""
    try:
        own = tuple((name, type(each), each) for name, each in made.items())
        return _make_cached(target, own, torch.get_default_dtype())
    except TypeError:  # arguments that have no hash
        return make_module(target, made)


@lru_cache(maxsize=64)
def _make_cached(target: type, made: tuple[tuple[str, type, Any], ...], _: Any) -> Any:
    return make_module(target, {name: each for name, _, each in made})


def weigh_results(results: Sequence[Any], how: RunOptions) -> Any:
    """The sum of all elements, each with a random weight."""
    from derive.judge.fields import draw_field, draw_tower, to_field

    assert how.weights is not None
    generator = torch.Generator().manual_seed(how.weights)
    tower = None if how.tower is None else draw_tower(*how.tower)
    total: Any = torch.zeros((), dtype=torch.float64) if tower is None else to_field(tower, 0)
    for number, result in enumerate(results):
        weight: Any
        if tower is None:
            weight = torch.randn(result.shape, generator=generator, dtype=torch.float64)
        else:
            weight = draw_field(tower, tuple(result.shape), how.weights + number)
        total = total + (result * weight).sum()
    return total


def call_target(
    target: Any, given: Mapping[str, Any], parameters: Mapping[str, Any], made: Mapping[str, Any]
) -> Any:
    """The results of a function or a module with these parameters; `made` constructs a class."""
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        from derive.judge.fields.tensor import pause

        with pause():
            target = make_module(target, made)
    if isinstance(target, torch.nn.Module):
        positional, named = _split_positional(target.forward, slots.gather(target.forward, given))
        target = _infer_shapes(target, (positional, named), parameters)
        dtype = find_dtype((*parameters.values(), *given.values()))
        every = {**_convert_others(target, parameters, dtype), **parameters}
        with convert_buffers(target, dtype):
            found = torch.func.functional_call(target, every, tuple(positional), named)
        if isinstance(parameters, dict):
            parameters.update(every)  # with the values that the call replaced
        return found
    positional, named = _split_positional(target, slots.gather(target, given))
    globals = getattr(inspect.unwrap(target), "__globals__", {})
    homes = [
        value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
        for value in globals.values()
    ]
    if not any(str(home).startswith(NUMPY) for home in homes):
        return target(*positional, **named)
    ndarray, map_only = internals.numpy.ndarray, internals.pytree.tree_map_only
    positional, named = map_only(torch.Tensor, ndarray, (positional, named))
    return map_only(ndarray, lambda array: array.tensor, target(*positional, **named))


def _infer_shapes(module: Any, given: Any, parameters: Mapping[str, Any]) -> Any:
    """The module, or a copy of a lazy one with the shapes that a call on zeros determines."""
    from torch.nn.parameter import is_lazy

    from derive.judge.fields.tensor import pause

    lazy = [each for each in (*module.parameters(), *module.buffers()) if is_lazy(each)]
    if not lazy:
        return module

    def to_zeros(value: Any) -> Any:
        is_real = value.is_floating_point()
        return torch.zeros(tuple(value.shape), dtype=lazy[0].dtype if is_real else value.dtype)

    with pause(), torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = deepcopy(module)
        positional, named = internals.pytree.tree_map_only(torch.Tensor, to_zeros, given)
        made(*positional, **named)
    for name, value in made.named_parameters():
        if name in parameters and value.shape != parameters[name].shape:
            shapes = (tuple(each.shape) for each in (value, parameters[name]))
            raise ValueError("{} has shape {}, its tensor {}".format(name, *shapes))
    return made


def _convert_others(module: Any, given: Collection[str], dtype: Any) -> dict[str, Any]:
    """The real parameters that are not `given`, cast to a type if theirs is another one."""
    from derive.judge.fields.tensor import pause

    others = [(n, p) for n, p in module.named_parameters() if n not in given]
    with pause():
        return {
            name: value.to(dtype)
            for name, value in others
            if dtype is not None and value.is_floating_point() and value.dtype != dtype
        }


def make_module(target: type, made: Mapping[str, Any]) -> Any:
    """A module in eval mode, made with these arguments of its constructor."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return target(**slots.gather(target, made)).eval()


def find_dtype(values: Iterable[Any]) -> Any:
    """The type of the first real tensor; None without one."""
    tensors = (value for value in values if isinstance(value, torch.Tensor))
    return next((value.dtype for value in tensors if value.is_floating_point()), None)


@contextmanager
def convert_buffers(module: Any, dtype: Any) -> Iterator[None]:
    """Cast the real buffers of a module to a type within the context."""
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


def _split_positional(function: Any, given: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The pair (positional arguments up to the first omitted one, the others by name)."""
    try:
        known = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        known = {}
    is_open = not known or any(each.kind is each.VAR_POSITIONAL for each in known.values())
    if is_open and not any(name.lstrip("*") in known for name in given):
        return list(given.values()), {}
    positional: list[Any] = []
    left = dict(given)
    for name, parameter in known.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += left.pop(f"*{name}", ())
        if name not in left or parameter.kind is parameter.KEYWORD_ONLY:
            break
        positional.append(left.pop(name))
    return positional, left


def flatten_results(found: Any) -> tuple[Any, ...]:
    """The tensors in the returned value, in order; numbers become tensors, () if it has none."""
    if isinstance(found, torch.Tensor):
        return (found,)
    if isinstance(found, (int, float, bool)):
        return (torch.tensor(found),)
    if type(found).__module__ == "numpy" and hasattr(found, "dtype"):
        return (torch.as_tensor(found),)
    fields = find_fields(found)
    parts = found if fields is None else list(fields.values())
    if isinstance(parts, (tuple, list)):
        return tuple(part for each in parts[:MOST_PARTS] for part in flatten_results(each))
    return ()


def pick_results(found: Any, names: Sequence[str]) -> Any:
    """The results in the formula's order, if any is returned under its name; else as returned."""
    fields = find_fields(found)
    if fields is None:
        return found
    known = {slots.fold_name(name): flatten_results(value) for name, value in fields.items()}
    named = [known.get(slots.fold_name(name), ()) for name in names]
    if not any(len(each) == 1 for each in named):
        return found
    wanted = {*map(slots.fold_name, names)}
    others = [part for name, each in known.items() if name not in wanted for part in each]
    picked: list[Any] = []
    for each in named:
        if len(each) != 1 and not others:
            break
        picked.append(each[0] if len(each) == 1 else others.pop(0))
    return tuple(picked)


@processes.run_remotely
def has_dropout(target: Any) -> bool:
    """Whether a module has active dropout."""
    parts = target.modules() if isinstance(target, torch.nn.Module) else ()
    return any(isinstance(p, torch.nn.Dropout) and p.training and p.p for p in parts)
