"""Torch code run once on real numbers, every call seen before torch takes it apart.

Each call is answered by torch itself, in float64; beside it the table of ops says what the result
is as an expression. What is not known poisons its result: only where a result of the code depends
on it is it refused. Sizes are answered with integers that know their names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from derive.errors import DeriveError
from derive.frontend.torch_call import Call, Op
from derive.frontend.torch_names import name_of
from derive.frontend.torch_queries import answer_query, is_query
from derive.frontend.torch_reenter import is_open, open_functional
from derive.frontend.torch_shadow import Poison, Shadow, kind_of
from derive.frontend.torch_spots import find_spot
from derive.frontend.torch_table import find_op
from derive.frontend.torch_trace import PoisonedError, Trace
from derive.frontend.torch_writes import write

if TYPE_CHECKING:
    from collections.abc import Callable


def make_mode(trace: Trace, path: str) -> Any:
    """The mode under which code is lifted; `path` is the user's file, if it is known."""
    from torch.overrides import TorchFunctionMode

    class Lifting(TorchFunctionMode):
        def __torch_function__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            with _at(trace, path, name_of(function)):
                return _answer(self, trace, function, tuple(args), dict(kwargs or {}))

    return Lifting()


@contextmanager
def _at(trace: Trace, path: str, name: str) -> Iterator[None]:
    """While a call is answered, its place in the code is known."""
    outer, trace.spot = trace.spot, find_spot(path, name)
    try:
        yield
    finally:
        trace.spot = outer


def _answer(
    mode: Any, trace: Trace, function: Any, args: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    name = name_of(function)
    if is_query(name):
        return answer_query(trace, function, args, named)
    function, args, named = make_precise(name, function, args, named)
    known = find_op(name)
    if known is not None and known.definition is not None:
        with mode:
            return known.definition(*args, **named)
    if known is None and find_op(name.rstrip("_")) is None and is_open(function):
        with open_functional(), mode:
            return function(*args, **named)
    out = function(*args, **named)
    _tie_all(Call(trace, name, args, named, out), known)
    return out


def make_precise(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The call with every request for a shorter float turned into one for float64."""
    import torch

    short = (torch.float32, torch.float16, torch.bfloat16)
    if name in {"float", "half", "bfloat16"} and args:
        return torch.Tensor.double, args[:1], {}
    args = tuple(
        torch.float64 if isinstance(each, torch.dtype) and each in short else each for each in args
    )
    if isinstance(named.get("dtype"), torch.dtype) and named["dtype"] in short:
        named["dtype"] = torch.float64
    return function, args, named


def find_tensors(found: Any) -> Iterator[Any]:
    """The tensors in what torch gives back, in order."""
    import torch

    if isinstance(found, torch.Tensor):
        yield found
    elif isinstance(found, (tuple, list)):
        for each in found:
            yield from find_tensors(each)


def _tie_all(call: Call, known: Op | None) -> None:
    """Say of every tensor that came out what it is."""
    tensors = tuple(find_tensors(call.out))
    if not tensors and (known is None or not known.is_write):
        return
    trace = call.trace
    try:
        shadows = _compute(call, known)
        if tensors and shadows is not None:
            _tie(call, tensors, shadows, is_view=known is not None and known.is_view)
        return
    except PoisonedError as error:
        reason = error.error
    except DeriveError as error:
        reason = error
    except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
        says = f"{call.name} is called in a way that is not known"
        reason = trace.refuse("lift-op", f"{says} ({type(error).__name__}: {error})")
    _poison(call, tensors, known, reason)


def _compute(call: Call, known: Op | None) -> Any:
    trace = call.trace
    if any(tensor.is_complex() for tensor in find_tensors(call.out)):
        raise trace.refuse("lift-complex", "complex numbers are not known")
    if known is not None and known.act is not None:
        return known.act(call)
    base = find_op(call.name[:-1]) if call.name.endswith("_") else None
    if base is not None and base.act is not None:
        write(trace, trace.shadow(call.args[0]), base.act(call))
        return None
    if call.name in RANDOM or call.name.rstrip("_") in RANDOM:
        raise trace.refuse(
            "lift-random",
            f"{call.name} draws random numbers",
            help="give them as an argument; dropout is lifted in eval mode",
        )
    raise trace.refuse("lift-op", f"{call.name} is not known to the lifter")


RANDOM = frozenset(
    [
        "rand",
        "randn",
        "rand_like",
        "randn_like",
        "randint",
        "randint_like",
        "randperm",
        "bernoulli",
        "multinomial",
        "normal",
        "uniform",
        "dropout",
        "alpha_dropout",
        "feature_dropout",
        "kaiming_uniform",
        "xavier_uniform",
        "exponential",
        "poisson",
        "trunc_normal",
        "dropout1d",
        "dropout2d",
        "dropout3d",
        "native_dropout",
    ]
)


def _tie(call: Call, tensors: tuple[Any, ...], found: Any, *, is_view: bool) -> None:
    shadows = (found,) if isinstance(found, Shadow) else tuple(found)
    trace = call.trace
    if len(shadows) != len(tensors):
        raise trace.refuse("lift-unsure", f"{call.name} gives another number of tensors")
    for tensor, shadow in zip(tensors, shadows, strict=True):
        _check(call, tensor, shadow)
        if any(tensor is each for each in call.args):
            continue
        shared = not is_view or _is_shared(tensor, call.args[0])
        trace.tie(tensor, shadow if shared else shadow.snapshot())


def _check(call: Call, tensor: Any, shadow: Shadow) -> None:
    lengths = tuple(call.trace.number(extent) for extent in shadow.shape)
    if lengths != tuple(tensor.shape) or shadow.kind != kind_of(tensor):
        says = f"{call.name} gives shape {tuple(tensor.shape)} and not {lengths}"
        if lengths == tuple(tensor.shape):
            says = f"{call.name} gives {kind_of(tensor)} values and not {shadow.kind} ones"
        raise call.trace.refuse("lift-unsure", says)


def _is_shared(one: Any, other: Any) -> bool:
    """Do two tensors lie in the same memory?"""
    if not hasattr(other, "untyped_storage"):
        return True
    return bool(one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr())


def _poison(call: Call, tensors: tuple[Any, ...], known: Op | None, reason: DeriveError) -> None:
    trace = call.trace
    changes = call.name.endswith("_") or call.named.get("out") is not None
    if changes or (known is not None and known.is_write):
        for tensor in find_tensors((*call.args[:1], call.named.get("out"))):
            if trace.is_tied(tensor):
                try:
                    trace.shadow(tensor).buffer.poison = reason
                except PoisonedError:
                    continue
    for tensor in tensors:
        if not any(tensor is each for each in call.args):
            trace.tie(tensor, Poison(reason))
