"""The interception of every call of torch while the user's code runs once, on actual numbers.

Torch computes the result of each call, in float64; the table of ops gives its expression. The
result of an unknown call is unknown, and the code is refused only if one of its results depends on
it. The calls inside a function that torch writes in Python are intercepted too. Sizes are symbolic
integers. Code that branches on an element of a tensor, or reads one as a number, is refused.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from inspect import signature
from typing import Any

from derive.errors import DeriveError
from derive.frontend.torch import code, numbers, ops
from derive.frontend.torch.call import (
    Call,
    Op,
    find_tensors,
    is_reading_what_it_writes,
    write_through,
)
from derive.frontend.torch.trace import Shadow, Trace, find_address, kind_of
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import walk
from derive.libraries import BODIES, make_mode, open_functional, torch

_ASKED = "shape size numel nelement stride __len__ dim_size"
_READ = (
    "item __bool__ __float__ __int__ __index__ tolist numpy __array__ is_nonzero equal allclose "
    "__contains__ __complex__ data:set set_ is_same_size_as"
)
_SIZES, _VALUES = frozenset(_ASKED.split()), frozenset(_READ.split())


def _answer_size(trace: Trace, name: str, tensor: Any, asked: Any) -> Any:
    """Return what `shape`, `size()`, `numel()` give; `len()` and `stride()` fix the sizes."""
    shadow = trace.shadow(tensor)
    lengths = tuple(trace.to_int(extent) for extent in shadow.shape)
    if name in {"numel", "nelement"}:
        return trace.to_int(ir.product_of(shadow.shape))
    if name == "__len__":
        trace.watch.fix(shadow.shape[0])  # `len(x)` hands a plain number on
        return lengths[0]
    if name == "stride":
        trace.watch.fix(*shadow.shape)
        return tensor.stride() if asked is None else tensor.stride(asked)
    return torch.Size(lengths) if asked is None or name == "shape" else lengths[asked]


def _answer_value(trace: Trace, name: str, tensor: Any, out: Any) -> Any:
    """Return what `item()`, `bool()` and the like give; DeriveError if that depends on data."""
    try:
        shadow = trace.shadow(tensor)
    except DeriveError as error:
        trace.failed = trace.failed or error
        raise
    value = trace.read_element(shadow, shadow.indices)
    is_data = any(
        isinstance(part, ir.Access) or (isinstance(part, ir.Index) and "~" not in part.name)
        for part in walk(value)
        if not isinstance(part, (ir.Size, ir.Scalar))
    )
    if not shadow.rank and isinstance(value, (ir.Number, ir.Truth)):
        return out
    if not shadow.rank and not is_data:
        if name == "item" and shadow.kind == "real":
            return numbers.SymbolicNumber(out, value, trace.watch)
        if name == "item" and shadow.kind == "int":
            return numbers.make_int(out, Polynomial.of(value), trace.watch)
        trace.watch.fix(value)
        return out
    says = f"{name.strip('_')} takes a number out of the data"
    advice = "a formula has no branches over data: use torch.where, or give it as an argument"
    refusal = trace.refuse("lift-branch", says, help=advice)
    trace.failed = trace.failed or refusal
    raise refusal


def make_lifting(trace: Trace, path: str) -> Any:
    """Return the mode under which code is lifted; `path` is the user's file, if it is known."""
    runner = sys._getframe(1).f_code

    def act(function: Any, args: Any, named: Any) -> Any:
        outer, spot = trace.spot, code.find_spot(path, code.name_of(function), runner)
        trace.spot = replace(spot, name="") if trace.depth else spot
        try:
            return _answer(mode, trace, function, tuple(args), named)
        finally:
            trace.spot = outer

    mode = make_mode(act)
    return mode


def _answer(
    mode: Any, trace: Trace, function: Any, args: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    name = code.name_of(function)
    if name in _SIZES | _VALUES:
        out = function(*args, **named)
        if not trace.is_known(args[0]):
            return out
        if name in _VALUES:
            return _answer_value(trace, name, args[0], out)
        try:
            asked = named.get("dim", args[1] if len(args) > 1 else None)
            return _answer_size(trace, name, args[0], asked)
        except DeriveError:
            return out
    function, args, named = make_precise(name, function, args, named)
    row, is_in_place = ops.find_op(name)
    if row is not None and row.definition is not None:
        return _define(mode, trace, row, function, args, named)
    if row is None and hasattr(function, "__code__") and function.__module__ in BODIES:
        with open_functional(), mode, trace.inside():
            return trace.note_result(function(*args, **named))
    # the tensors that the call writes into; for an unknown op the trailing underscore decides
    is_write = row.is_write if row and not is_in_place else is_in_place and name[-2:] != "__"
    own = tuple(find_tensors(args[:1])) if is_write else ()
    written = (*own, *find_tensors(named.get("out")))
    problem = _prepare(trace, name, written, args, named) if written else None
    out = function(*_strip(args), **_strip(named))  # the op reads the symbolic numbers
    call = Call(trace, name, args, named, out)
    tensors = tuple(find_tensors(out))
    try:
        if problem is not None:
            raise problem
        if tensors or written:
            _attach_results(call, row, tensors, written)
        return out
    except DeriveError as error:
        reason = error
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        says = f"{name} is called in a way that is not known"
        reason = trace.refuse("lift-op", f"{says} ({type(error).__name__}: {error})")
    # The results are unknown, and so is the memory that was written into.
    for tensor in (*written, *tensors):
        if any(tensor is each for each in (*written, *args)):
            trace.mark_unknown(tensor, reason)
        else:
            trace.attach(tensor, reason)
    return out


def _define(  # noqa: PLR0913, PLR0917 - a call, and what answers it
    mode: Any, trace: Trace, row: Op, function: Any, args: tuple[Any, ...], named: dict[str, Any]
) -> Any:
    """Return a composite's result; DeriveError if its shape or kind differs from torch's."""
    definition = row.definition
    assert definition is not None
    name = code.name_of(function)
    is_unknown = f"{name} is called in a way that is not known"
    is_in_place = name not in row.names.split()
    is_write = name.endswith("_") or named.get("out") is not None
    # run first, so that an error of torch is raised
    real = None if is_write else function(*_strip(args), **_strip(named))
    into = args[0] if is_in_place else named.pop("out", None)
    try:
        bound = signature(definition).bind(*args, **named)
        with mode, trace.inside():
            found = definition(*bound.args, **bound.kwargs)
            found = found if into is None else into.copy_(found)
            trace.note_result(found)
    except TypeError as error:
        raise trace.refuse("lift-op", f"{is_unknown} ({error})") from None
    except DeriveError as error:
        diagnostic = error.diagnostic
        raise (
            error
            if diagnostic.facts
            else trace.refuse(diagnostic.code, diagnostic.says, diagnostic.help)
        ) from None
    forms = [[(t.shape, kind_of(t)) for t in find_tensors(each)] for each in (real, found)]
    if not is_write and forms[0] != forms[1]:
        raise trace.refuse("lift-unsure", is_unknown)
    return found


def _strip(value: Any) -> Any:
    """Return a value or nested values with plain numbers for symbolic ones."""
    if type(value) in {tuple, list, torch.Size}:
        return type(value)(map(_strip, value))
    if type(value) is slice:
        return slice(*map(_strip, (value.start, value.stop, value.step)))
    if type(value) is dict:
        return {name: _strip(each) for name, each in value.items()}
    return numbers.plain(value)


def _prepare(
    trace: Trace, name: str, written: tuple[Any, ...], args: tuple[Any, ...], named: dict[str, Any]
) -> DeriveError | None:
    """Attach a Shadow to each written tensor; return the error of an unsupported write, or None."""
    for tensor in written:
        if not trace.is_known(tensor):
            try:
                trace.attach(tensor, trace.shadow(tensor))
            except DeriveError as error:
                trace.attach(tensor, error)
    if len(written) > 1:
        return trace.refuse("lift-write", f"{name} writes into several tensors")
    if is_reading_what_it_writes(name, _strip(args), named):
        says = f"{name} overwrites elements that it reads at other places"
        return trace.refuse("lift-write", says, help="read a copy: .clone()")
    return None


def make_precise(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Return (function, args, named) of the call with float64 for every narrower float type."""
    wide = dict.fromkeys((torch.float32, torch.float16, torch.bfloat16), torch.float64)
    wide[torch.complex64] = torch.complex128
    if name in {"float", "half", "bfloat16", "cfloat"} and args:
        return getattr(torch.Tensor, "cdouble" if name == "cfloat" else "double"), args[:1], {}
    args = tuple(wide.get(each, each) if isinstance(each, torch.dtype) else each for each in args)
    if isinstance(named.get("dtype"), torch.dtype):
        named["dtype"] = wide.get(named["dtype"], named["dtype"])
    return function, args, named


def _attach_results(
    call: Call, row: Op | None, tensors: tuple[Any, ...], written: tuple[Any, ...]
) -> None:
    """Attach a Shadow to every tensor that was returned or written into."""
    trace = call.trace
    shadows = _compute(call, row)
    if tensors and shadows is not None:
        _attach(call, tensors, shadows, is_view=row is not None and row.is_view)
    for tensor in written:
        _mark_overwritten(trace, tensor)
    for tensor in (*tensors, *written):  # integers overflow silently
        if kind_of(tensor) != "int":
            continue
        if trace.is_known(tensor):
            most = trace.bound_integers(trace.shadow(tensor))
            if most > torch.iinfo(tensor.dtype).max:
                says = f"{call.name} makes integers that may not fit into {str(tensor.dtype)[6:]}"
                raise trace.refuse("lift-narrow", says, help="use real numbers, or torch.int64")


def _mark_overwritten(trace: Trace, tensor: Any) -> None:
    """Mark the other buffers in the memory of a written tensor as unknown."""
    reason = trace.refuse("lift-write", "memory is written that another tensor reads unseen")
    trace.mark_unknown(tensor, reason, trace.shadow(tensor).buffer)


def _compute(call: Call, row: Op | None) -> Any:
    """Return the Shadows of the results; None if they were written into a tensor of the call."""
    trace, is_in_place = call.trace, ops.find_op(call.name)[1]
    if call.name.rstrip("_") in RANDOM and row is None:
        says = f"{call.name} draws random numbers"
        advice = "give them as an argument; dropout is lifted in eval mode"
        raise trace.refuse("lift-random", says, help=advice)
    if row is None or row.act is None:
        raise trace.refuse("lift-op", f"{call.name} is not known to the lifter")
    found = row.act(replace(call, name=call.name[:-1]) if is_in_place else call)
    into = call.args[0] if is_in_place else call.named.get("out")
    if is_in_place and row.is_view:
        _check(call, into, found)
        trace.attach(into, found)
    elif into is not None:
        write_through(trace, trace.shadow(into), found)
    return found if into is None else None


_RANDOM = (
    "rand randn rand_like randn_like randint randint_like randperm bernoulli multinomial normal "
    "uniform dropout alpha_dropout feature_dropout kaiming_uniform xavier_uniform exponential "
    "poisson trunc_normal dropout1d dropout2d dropout3d native_dropout"
)
RANDOM = frozenset(_RANDOM.split())


def _attach(call: Call, tensors: tuple[Any, ...], found: Any, *, is_view: bool) -> None:
    shadows = (found,) if isinstance(found, Shadow) else tuple(found)
    trace = call.trace
    if len(shadows) != len(tensors):
        raise trace.refuse("lift-unsure", f"{call.name} gives another number of tensors")
    for tensor, shadow in zip(tensors, shadows, strict=True):
        _check(call, tensor, shadow)
        if any(tensor is each for each in call.args):
            if not is_view and trace.shadow(tensor) is not shadow:
                write_through(trace, trace.shadow(tensor), shadow)  # `inplace=True`
                _mark_overwritten(trace, tensor)
            continue
        own = call.args[0] if call.args else None
        has_memory = is_view and hasattr(own, "untyped_storage")
        shared = not has_memory or find_address(tensor) == find_address(own)
        trace.attach(tensor, shadow if shared else trace.copy(shadow))
        if is_view:
            trace.note_view(shadow)


def _check(call: Call, tensor: Any, shadow: Shadow) -> None:
    lengths = tuple(call.trace.number(extent) for extent in shadow.shape)
    if lengths != tuple(tensor.shape) or shadow.kind != kind_of(tensor):
        says = f"{call.name} gives shape {tuple(tensor.shape)} and not {lengths}"
        if lengths == tuple(tensor.shape):
            says = f"{call.name} gives {kind_of(tensor)} values and not {shadow.kind} ones"
        raise call.trace.refuse("lift-unsure", says)
