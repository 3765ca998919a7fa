"""Torch's operations over a tower, by name or by torch's own decompositions.

Operations that only move elements are applied to every part.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf, nan
from operator import methodcaller
from typing import Any

import torch

from derive.judge.fields import algebra, functions, layers
from derive.judge.fields.elements import to_fraction
from derive.judge.fields.tensor import (
    FACTORIES,
    FieldTensor,
    Handler,
    Run,
    find_running,
    find_usage,
    iterate,
    wrap,
)
from derive.judge.fields.tower import UNKNOWN
from derive.libraries import internals

_MOVES = (
    "view _unsafe_view reshape _reshape_alias permute transpose t expand slice select unsqueeze "
    "squeeze clone detach alias as_strided index gather flip unfold contiguous roll diagonal "
    "split split_with_sizes unsafe_split unsafe_split_with_sizes unsafe_chunk unbind chunk "
    "index_select tril triu select_backward slice_backward diagonal_backward cat stack repeat "
    "narrow movedim lift_fresh lift_fresh_copy take embedding repeat_interleave tile rot90 "
    "slice_scatter select_scatter diagonal_scatter as_strided_scatter select_copy slice_copy "
    "view_copy permute_copy transpose_copy expand_copy unsqueeze_copy t_copy index_copy "
    "_unsafe_index"
)
MOVES = frozenset(_MOVES.split())
_IGNORED = ("dtype", "layout", "device", "pin_memory")


def apply_to_parts(run: Run, func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """The results of an operation on the residues, companions and states, one by one."""
    named = {key: value for key, value in named.items() if key not in _IGNORED}
    like = next(each.parts for each in iterate(args) if isinstance(each, FieldTensor))
    is_joined = run.name in {"cat", "stack"}  # integers are positions elsewhere

    def take_part(value: Any, number: int) -> Any:
        if isinstance(value, FieldTensor):
            return value.parts.every[number]
        if isinstance(value, torch.Tensor) and (is_joined or value.is_floating_point()):
            return run.parts(value).every[number]
        if isinstance(value, (list, tuple)):
            return [take_part(each, number) for each in value]
        return value

    count = len(like.every)
    found = [func(*(take_part(each, n) for each in args), **named) for n in range(count)]
    if isinstance(found[0], torch.Tensor):
        return like.rebuild(found)
    return [like.rebuild(each) for each in zip(*found, strict=True)]


def make_like(run: Run, func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """A new tensor for zeros_like, new_full and the other factories."""
    name = func.overloadpacket.__name__
    first, *rest = args
    shape = first.shape if name.endswith("_like") else rest.pop(0)
    value = 0.0 if "zeros" in name else 1.0 if "ones" in name else float("nan")
    value = rest[0] if "full" in name else value
    dtype = named.get("dtype")
    if dtype is not None and not dtype.is_floating_point:
        return torch.full(tuple(shape), 0 if value != value else value, dtype=dtype)
    return _fill(run, shape, value)


def convert(run: Run, value: FieldTensor, **named: Any) -> Any:
    """The conversion to a dtype: floats are unchanged, integers and truth values are checked."""
    dtype = named.get("dtype")
    if dtype is None or dtype.is_floating_point:
        return value.parts.map(torch.clone)
    if dtype.is_complex:
        raise algebra.NotModelledError("complex numbers")
    if dtype is torch.bool:
        return run.is_nonzero(value.parts)
    return run.read_integers(value.parts).to(dtype)


def where(run: Run, condition: Any, one: Any, other: Any) -> algebra.Parts:
    """The elements of `one` where the condition holds, else of `other`."""
    if isinstance(condition, FieldTensor):
        condition = run.is_nonzero(condition.parts)
    return algebra.choose(condition, run.parts(one), run.parts(other))


def pad(run: Run, value: Any, widths: Any, number: Any = 0) -> algebra.Parts:
    """The value padded with a number."""
    parts = run.parts(value)
    inside = torch.ones(parts.shape, dtype=torch.bool)
    inside = torch.nn.functional.pad(inside, list(widths), value=False)
    wide = parts.map(lambda part: torch.nn.functional.pad(part, list(widths)))
    return algebra.choose(inside, wide, run.parts(number))


def index_put(
    run: Run, value: Any, places: Any, new: Any, *rest: Any, **named: Any
) -> algebra.Parts:
    """The value with elements written at places, or added to them."""
    accumulate = bool(named.get("accumulate", rest[0] if rest else False))

    def act(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.ops.aten.index_put(one, list(places), other, accumulate)
        return found

    return (_add_up if accumulate else _write_over)(act, run.parts(value), run.parts(new))


def scatter(run: Run, value: Any, dim: int, places: Any, new: Any, **named: Any) -> algebra.Parts:
    """The value with elements written along a dimension; NotModelledError for a reduction."""
    if named:
        raise algebra.NotModelledError("scatter with a reduction")
    source = run.parts(new)
    source = source if source.rank else source.map(methodcaller("expand", places.shape))
    return _write_over(lambda one, other: one.scatter(dim, places, other), run.parts(value), source)


def scatter_add(run: Run, value: Any, dim: int, places: Any, new: Any) -> algebra.Parts:
    """The value with elements added along a dimension."""
    parts = run.parts(value), run.parts(new)
    return _add_up(lambda one, other: one.scatter_add(dim, places, other), *parts)


def scatter_reduce(run: Run, value: Any, *how: Any, **named: Any) -> algebra.Parts:
    """The value with elements added along a dimension; NotModelledError for other reductions."""
    dim, places, new, reduction = how
    if reduction != "sum" or not named.get("include_self", True):
        raise algebra.NotModelledError(f"scatter with the reduction {reduction}")
    return scatter_add(run, value, dim, places, new)


def _write_over(
    act: Callable[..., torch.Tensor], target: algebra.Parts, source: algebra.Parts
) -> algebra.Parts:
    """The target after `act`, a function that writes elements of the source into it."""
    return target.rebuild([act(*pair) for pair in zip(target.every, source.every, strict=True)])


def _add_up(
    act: Callable[..., torch.Tensor], target: algebra.Parts, source: algebra.Parts
) -> algebra.Parts:
    """The target after `act`, a function that adds elements of the source to it.

    A sum is unknown if a summand is. The companion of a sum of logarithms is unknown.
    """

    def count_true(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return act(one.long(), other.long())

    residues = target.by_level(
        lambda a, b, prime: (act(a.clamp(min=0), b.clamp(min=0)) % prime).masked_fill(
            count_true(a < 0, b < 0) > 0, UNKNOWN
        ),
        source,
    )
    state = algebra.balance_states(lambda s: count_true(target.state == s, source.state == s))
    pairs = zip(target.companions, source.companions, strict=True)
    companions = [-(count_true(a != 0, b != 0) > 0).long() for a, b in pairs]
    return target.make(residues, state, companions)


def fill_with(run: Run, value: Any, new: Any = 0, _: bool = False) -> algebra.Parts:
    """A number or a tensor expanded to the shape of the first argument."""
    return _fill(run, value.shape, new)


def _fill(run: Run, shape: Any, new: Any) -> algebra.Parts:
    return run.parts(new).map(lambda part: part.expand(tuple(shape)).contiguous())


VIEWS: dict[str, Handler] = {
    "_to_copy": convert,
    "where": where,
    "constant_pad_nd": pad,
    "index_put": index_put,
    "_index_put_impl": index_put,
    "_unsafe_index_put": index_put,
    "scatter": scatter,
    "scatter_add": scatter_add,
    "scatter_reduce": scatter_reduce,
    "fill": fill_with,
    "zero": fill_with,
    "copy": fill_with,
}


def _add_scaled(run: Run, one: Any, other: Any, alpha: Any = 1) -> algebra.Parts:
    return run.parts(one) + run.scale(run.parts(other), alpha)


def _subtract(run: Run, one: Any, other: Any, alpha: Any = 1) -> algebra.Parts:
    return run.parts(one) - run.scale(run.parts(other), alpha)


def _multiply(run: Run, one: Any, other: Any) -> algebra.Parts:
    if not isinstance(one, FieldTensor):
        one, other = other, one
    return run.scale(run.parts(one), other)


def _divide(run: Run, one: Any, other: Any, *, rounding_mode: str | None = None) -> algebra.Parts:
    found = run.divide(run.parts(one), other)
    return found if rounding_mode is None else functions.apply_opaque(run, rounding_mode, found)


def _power(run: Run, base: Any, exponent: Any) -> algebra.Parts:
    is_plain = isinstance(exponent, torch.Tensor) and not isinstance(exponent, FieldTensor)
    if is_plain and not exponent.dim():
        exponent = exponent.item()
    quotient = to_fraction(exponent) if isinstance(exponent, (int, float)) else None
    if quotient is not None:
        parts = run.parts(base)
        if parts.square is not None and quotient % 2 == 0:  # avoids the arbitrary sign of a root
            parts, quotient = parts.square, quotient / 2
        return functions.power(run, parts, quotient)
    number = to_fraction(base) if isinstance(base, (int, float)) else None
    if number is not None and number > 0:
        return functions.raise_number(run, number, run.parts(exponent))
    if not is_plain or not exponent.numel():
        return functions.apply_opaque(run, "pow", run.parts(base), run.parts(exponent))
    found = run.parts(base)
    for value in torch.unique(exponent).tolist():
        found = algebra.choose(exponent == value, _power(run, base, value), found)
    return found


def _norm(
    run: Run, value: Any, power: Any = 2, dims: Any = None, keepdim: bool = False, **_: Any
) -> algebra.Parts:
    parts = run.parts(value)
    if power == 2:
        square = algebra.reduce_sum(parts * parts, dims, keepdim)
        return replace(functions.root(run, square), square=square)
    if power == 1:
        return algebra.reduce_sum(functions.take_abs(run, parts), dims, keepdim)
    raise algebra.NotModelledError(f"a norm of order {power}")


def _log_softmax(run: Run, value: Any, dim: int, *_: Any) -> algebra.Parts:
    parts = functions.unmask_full_rows(run, run.parts(value), dim)
    total = functions.log_sum_exp(run, parts, dim, True)
    return algebra.choose(total.state == algebra.ABOVE, run.parts(nan), parts - total)


def _read_number(run: Run, value: Any) -> float:
    parts = run.parts(value)
    endless = {algebra.BELOW: -inf, algebra.ABOVE: inf, algebra.NAN: nan}
    found = endless.get(int(parts.state))
    return float(run.read_integers(parts)) if found is None else found


def _invert_matrix(run: Run, value: Any, *_: Any, **__: Any) -> Any:
    found = algebra.eliminate(run.parts(value))[0]
    return found, torch.zeros(found.shape[:-2], dtype=torch.int32)


def _find_determinant(run: Run, value: Any) -> Any:
    found = algebra.eliminate(run.parts(value), singular=True)[1]
    return found, found, torch.zeros(found.shape, dtype=torch.int32)


def _multiply_matrices(run: Run, one: Any, other: Any) -> algebra.Parts:
    return algebra.matmul(run.parts(one), run.parts(other))


ARITHMETIC: dict[str, Handler] = {
    "linalg_inv_ex": _invert_matrix,
    "_linalg_det": _find_determinant,
    "add": _add_scaled,
    "sub": _subtract,
    "mul": _multiply,
    "div": _divide,
    "pow": _power,
    "mm": _multiply_matrices,
    "bmm": _multiply_matrices,
    "sum": lambda run, value, dims=(), keepdim=False, **_: algebra.reduce_sum(
        run.parts(value), dims, keepdim
    ),
    "cumsum": lambda run, value, dim, **_: algebra.accumulate(run.parts(value), dim),
    "linalg_vector_norm": _norm,
    "_softmax": lambda run, value, dim, *_: functions.normalize(run, run.parts(value), dim),
    "_log_softmax": _log_softmax,
    "logsumexp": lambda run, value, dims, keepdim=False: functions.log_sum_exp(
        run, run.parts(value), dims, keepdim
    ),
    "isinf": lambda run, value: run.parts(value).has_state(algebra.BELOW, algebra.ABOVE),
    "isnan": lambda run, value: run.parts(value).has_state(algebra.NAN),
    "_local_scalar_dense": _read_number,
    "logical_not": lambda run, value: ~run.is_nonzero(run.parts(value)),
    "any": lambda run, value, *args, **named: run.is_nonzero(run.parts(value)).any(*args, **named),
    "all": lambda run, value, *args, **named: run.is_nonzero(run.parts(value)).all(*args, **named),
}

TABLE: dict[str, Handler] = {**ARITHMETIC, **functions.POINTWISE, **VIEWS}


def dispatch(func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The result of an operation; NotModelledError where it has no meaning over a field."""
    name = func.overloadpacket.__name__
    towers = (each.tower for each in iterate(args, named) if isinstance(each, FieldTensor))
    tower = next(towers, None)
    if tower is None:
        raise algebra.NotModelledError("an operation without a tower")
    run = Run(tower, find_usage(), name)
    own = name[:-1] if name.endswith("_") else ""
    is_known = name in TABLE or name in layers.DEFINITIONS
    if torch.Tag.nondeterministic_seeded in func.tags and not is_known:
        raise algebra.NotModelledError(f"{name}, which is random,")
    if name in MOVES:
        return wrap(apply_to_parts(run, func, args, named))
    if name in TABLE:
        return wrap(_copy_shared(TABLE[name](run, *args, **_drop_types(name, named)), args))
    if name in layers.DEFINITIONS:
        return _apply_definition(name, args, named)
    if name in FACTORIES:
        return wrap(make_like(run, func, args, named))
    if own in TABLE:
        return _write_into(run, args[0], TABLE[own](run, *args, **named))
    if own in layers.DEFINITIONS:
        return _write_into(run, args[0], run.parts(_apply_definition(own, args, named)))
    if torch.Tag.inplace_view in func.tags and own in MOVES:
        return _reshape_inplace(func, *args, **named)
    with find_running():  # the operations of the decomposition are dispatched in turn
        found = internals.decompositions.get(func, func.decompose)(*args, **named)
    if found is NotImplemented:
        raise algebra.NotModelledError(run.name)
    return found


def _apply_definition(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    with find_running():
        return layers.DEFINITIONS[name](*args, **_drop_types(name, named))


def _copy_shared(found: Any, args: tuple[Any, ...]) -> Any:
    """The result, cloned if it shares memory with an argument."""
    if isinstance(found, tuple):
        return tuple(_copy_shared(each, args) for each in found)
    if not isinstance(found, algebra.Parts):
        return found
    given = (each.parts.every for each in iterate(args) if isinstance(each, FieldTensor))
    taken = {part.data_ptr() for every in given for part in every}
    shares = any(part.data_ptr() in taken for part in found.every)
    return found.map(torch.clone) if shares else found


def _drop_types(name: str, named: dict[str, Any]) -> dict[str, Any]:
    """The keywords without dtype, since floats of every width are one field."""
    if name == "_to_copy":
        return named
    return {key: value for key, value in named.items() if key != "dtype"}


def _write_into(run: Run, target: Any, found: Any) -> Any:
    """Copy the result into the target's memory; NotModelledError for an ordinary tensor."""
    if not isinstance(target, FieldTensor) or not isinstance(found, algebra.Parts):
        raise algebra.NotModelledError(f"{run.name} into an ordinary tensor")
    for old, new in zip(target.parts.every, found.every, strict=True):
        old.copy_(new.expand(old.shape))
    return target


def _reshape_inplace(func: Any, target: FieldTensor, *args: Any, **named: Any) -> Any:
    """Apply an in-place view to the parts and to the wrapper, which has no memory of its own."""
    target.parts = target.parts.map(lambda part: func(part.detach(), *args, **named))
    with internals.no_dispatch():
        return func(target, *args, **named)


FieldTensor.answer = staticmethod(dispatch)
