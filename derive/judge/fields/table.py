"""What torch's operations mean over a tower, found by name or taken apart by torch.

Operations that move elements and compute nothing are done to every part alike.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from functools import cache
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._mode_utils import no_dispatch

from derive.judge.fields import algebra, functions
from derive.judge.fields.algebra import (
    ABOVE,
    BELOW,
    NAN,
    NotModelledError,
    Parts,
    balance_states,
    build,
    fill,
)
from derive.judge.fields.constants import to_fraction
from derive.judge.fields.functions import choose
from derive.judge.fields.layers import DEFINITIONS
from derive.judge.fields.pointwise import POINTWISE, raise_number
from derive.judge.fields.tensor import (
    FACTORIES,
    FieldTensor,
    Run,
    count_elements,
    find_running,
    find_usage,
    iterate,
    list_dims,
    wrap,
)
from derive.judge.fields.tower import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from derive.judge.fields.tensor import Handler
    from derive.judge.fields.tower import Tower


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


def move(run: Run, func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """The operation done to residues, companions and states one by one."""
    named = {key: value for key, value in named.items() if key not in _IGNORED}
    count = 2 * run.tower.depth + 2

    def convert(value: Any) -> Any:
        if isinstance(value, FieldTensor):
            return value.parts
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return run.parts(value)
        if isinstance(value, (list, tuple)):
            return [convert(each) for each in value]
        return value

    def pick(value: Any, number: int) -> Any:
        if isinstance(value, Parts):
            return value.every[number]
        if isinstance(value, list):
            return [pick(each, number) for each in value]
        return value

    given = [convert(each) for each in args]
    found = [func(*(pick(each, n) for each in given), **named) for n in range(count)]
    if isinstance(found[0], torch.Tensor):
        return _regroup(run, found)
    return [_regroup(run, each) for each in zip(*found, strict=True)]


def _regroup(run: Run, every: Any) -> Parts:
    levels = run.tower.levels
    return Parts(tuple(every[:levels]), tuple(every[levels:-1]), every[-1])


def make_like(run: Run, func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """zeros_like, new_full and their like."""
    name = func.overloadpacket.__name__
    first = args[0]
    rest = args[1:]
    shape = first.shape if name.endswith("_like") else rest[0]
    rest = rest if name.endswith("_like") else rest[1:]
    value = 0.0 if "zeros" in name else 1.0 if "ones" in name else float("nan")
    if "full" in name:
        value = rest[0]
    dtype = named.get("dtype")
    if dtype is not None and not dtype.is_floating_point:
        return torch.full(tuple(shape), 0 if value != value else value, dtype=dtype)
    made = run.parts(value)
    levels = tuple(int(each) for each in made.residues)
    return fill(run.tower, tuple(shape), levels, int(made.state))


def convert(run: Run, value: FieldTensor, **named: Any) -> Any:
    """Another type: floats stay exact, integers and truth values have to be such."""
    dtype = named.get("dtype")
    if dtype is None or dtype.is_floating_point:
        return value.parts.map(torch.clone)
    if dtype.is_complex:
        raise NotModelledError("complex numbers")
    if dtype is torch.bool:
        return run.is_nonzero(value.parts)
    return run.read_integers(value.parts).to(dtype)


def where(run: Run, condition: Any, one: Any, other: Any) -> Parts:
    """One or the other."""
    if isinstance(condition, FieldTensor):
        condition = run.is_nonzero(condition.parts)
    return choose(condition, run.parts(one), run.parts(other))


def pad(run: Run, value: Any, widths: Any, number: Any = 0) -> Parts:
    """A border of one number."""
    parts = run.parts(value)
    inside = torch.ones(parts.shape, dtype=torch.bool)
    inside = torch.nn.functional.pad(inside, list(widths), value=False)
    wide = parts.map(lambda part: torch.nn.functional.pad(part, list(widths)))
    return choose(inside, wide, run.parts(number))


def index_put(run: Run, value: Any, places: Any, new: Any, *rest: Any, **named: Any) -> Parts:
    """Elements written at places, or added there."""
    accumulate = bool(named.get("accumulate", rest[0] if rest else False))

    def act(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.ops.aten.index_put(one, list(places), other, accumulate)
        return found

    return _gather_up(run, act, run.parts(value), run.parts(new), accumulate)


def scatter(run: Run, value: Any, dim: int, places: Any, new: Any, **named: Any) -> Parts:
    """Elements written along a dimension."""
    if named:
        raise NotModelledError("scatter with a reduction")
    source = run.parts(new)
    if not source.state.dim():
        source = source.map(lambda part: part.expand(places.shape))

    def act(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one.scatter(dim, places, other)

    return _gather_up(run, act, run.parts(value), source, False)


def scatter_add(run: Run, value: Any, dim: int, places: Any, new: Any) -> Parts:
    """Elements added along a dimension."""
    parts = run.parts(value), run.parts(new)
    return _gather_up(run, lambda one, other: one.scatter_add(dim, places, other), *parts, True)


def scatter_reduce(run: Run, value: Any, *how: Any, **named: Any) -> Parts:
    """Elements added along a dimension; what is there already counts."""
    dim, places, new, reduction = how
    if reduction != "sum" or not named.get("include_self", True):
        raise NotModelledError(f"scatter with the reduction {reduction}")
    return scatter_add(run, value, dim, places, new)


def index_add(run: Run, value: Any, dim: int, *rest: Any, alpha: Any = 1) -> Parts:
    """Slices added at places along a dimension."""
    places, new = rest
    parts = run.parts(value), run.scale(run.parts(new), alpha)
    return _gather_up(run, lambda one, other: one.index_add(dim, places, other), *parts, True)


def _gather_up(
    run: Run,
    act: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    target: Parts,
    source: Parts,
    accumulate: bool,
) -> Parts:
    """Elements written or added, where `act` does so to numbers.

    A sum is known where all in it are; what exp of a sum of logarithms is, is not.
    """
    if not accumulate:
        return target.rebuild([act(a, b) for a, b in zip(target.every, source.every, strict=True)])
    residues = []
    for a, b, prime in zip(target.residues, source.residues, run.tower.primes, strict=True):
        lost = act((a < 0).long(), (b < 0).long()) > 0
        residues.append((act(a.clamp(min=0), b.clamp(min=0)) % prime).masked_fill(lost, UNKNOWN))

    def count(which: int) -> torch.Tensor:
        return act((target.state == which).long(), (source.state == which).long())

    state = None
    if not (target.is_plain and source.is_plain):
        state = balance_states(count)
    companions = [
        -(act((a != 0).long(), (b != 0).long()) > 0).long()
        for a, b in zip(target.companions, source.companions, strict=True)
    ]
    return build(residues, state, companions)


def fill_with(run: Run, value: Any, new: Any = 0, _: bool = False) -> Parts:
    """A number or a tensor in the shape of the first."""
    return run.parts(new).map(lambda part: part.expand(value.shape).contiguous())


VIEWS: dict[str, Handler] = {
    "_to_copy": convert,
    "where": where,
    "masked_fill": lambda run, value, mask, number: where(run, mask, number, value),
    "constant_pad_nd": pad,
    "index_put": index_put,
    "_index_put_impl": index_put,
    "_unsafe_index_put": index_put,
    "scatter": scatter,
    "scatter_add": scatter_add,
    "scatter_reduce": scatter_reduce,
    "index_add": index_add,
    "fill": fill_with,
    "zero": fill_with,
    "copy": fill_with,
}


def _subtract(run: Run, one: Any, other: Any, alpha: Any = 1) -> Parts:
    return run.subtract(run.parts(one), run.scale(run.parts(other), alpha))


def _multiply(run: Run, one: Any, other: Any) -> Parts:
    if not isinstance(one, FieldTensor):
        one, other = other, one
    return run.scale(run.parts(one), other)


def _divide(run: Run, one: Any, other: Any, *, rounding_mode: str | None = None) -> Parts:
    found = run.divide(run.parts(one), other)
    if rounding_mode is None:
        return found
    return functions.opaque(run, rounding_mode, found)


def _power(run: Run, base: Any, exponent: Any) -> Parts:
    if isinstance(exponent, torch.Tensor) and not exponent.dim() and not _is_field(exponent):
        exponent = exponent.item()
    if isinstance(exponent, (int, float)):
        quotient = to_fraction(exponent)
        if quotient is not None:
            return _raise(run, run.parts(base), quotient)
    if isinstance(base, (int, float)) and base > 0 and to_fraction(base):
        return raise_number(run, to_fraction(base) or Fraction(1), run.parts(exponent))
    if isinstance(exponent, torch.Tensor) and not _is_field(exponent):
        return _take_powers(run, run.parts(base), exponent)
    return functions.opaque(run, "pow", run.parts(base), run.parts(exponent))


def _raise(run: Run, base: Parts, exponent: Fraction) -> Parts:
    """The power by a number; an even power of a norm needs no root, whose sign is arbitrary."""
    if base.square is not None and exponent % 2 == 0:
        base, exponent = base.square, exponent / 2
    return functions.power(run, base, exponent)


def _take_powers(run: Run, base: Parts, exponents: torch.Tensor) -> Parts:
    """A tensor of exponents: each value by itself."""
    found: Parts | None = None
    for value in torch.unique(exponents).tolist():
        raised = _power(run, FieldTensor(run.tower, base), value)
        found = raised if found is None else functions.choose(exponents == value, raised, found)
    return base if found is None else found


def _is_field(value: Any) -> bool:
    return isinstance(value, FieldTensor)


def _product(run: Run, value: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Parts:
    parts = run.parts(value)
    if not parts.state.dim():
        return parts
    if dim is None:
        parts, dim = parts.map(lambda part: part.reshape(-1)), 0
    found = run.number(1)
    for place in range(parts.shape[dim]):
        found = run.multiply(found, parts.map(methodcaller("select", dim, place)))
    if not parts.shape[dim]:
        shape = parts.state.select(dim, 0).shape if parts.shape[dim] else parts.state.sum(dim).shape
        found = found.map(lambda part: part.expand(shape))
    return found.map(lambda part: part.unsqueeze(dim)) if keepdim else found


def _variance(run: Run, value: Any, *args: Any, **named: Any) -> Parts:
    """Torch's spellings: (dims, correction=, keepdim=), (dims, unbiased, keepdim), (unbiased)."""
    parts = run.parts(value)
    dims, correction, keepdim = _read_spread(*args, **named)
    off = run.subtract(parts, run.mean(parts, dims, keepdim=bool(parts.state.dim())))
    square = run.sum(run.multiply(off, off), dims, keepdim)
    count = count_elements(parts, list_dims(dims)) - correction
    return run.scale(square, 1 / count) if count > 0 else run.scale(square, float("nan"))


def _read_spread(*args: Any, **named: Any) -> tuple[Any, Fraction, bool]:
    if args and isinstance(args[0], bool):
        return None, Fraction(args[0]), False
    dims = args[0] if args else named.get("dim")
    correction = args[1] if len(args) > 1 else named.get("correction", named.get("unbiased", 1))
    keepdim = args[2] if len(args) > 2 else named.get("keepdim", False)
    correction = 1 if correction is None else correction
    return dims, to_fraction(correction) or Fraction(correction), bool(keepdim)


def _variance_and_mean(run: Run, value: Any, *args: Any, **named: Any) -> tuple[Parts, Parts]:
    dims, _, keepdim = _read_spread(*args, **named)
    mean = run.mean(run.parts(value), dims, keepdim)
    return _variance(run, value, *args, **named), mean


def _norm(
    run: Run, value: Any, power: Any = 2, dims: Any = None, keepdim: bool = False, **_: Any
) -> Parts:
    parts = run.parts(value)
    if power == 2:
        square = run.sum(run.multiply(parts, parts), dims, keepdim)
        return replace(functions.root(run, square), square=square)
    if power == 1:
        return run.sum(functions.find_size(run, parts), dims, keepdim)
    raise NotModelledError(f"a norm of order {power}")


def _safe_softmax(run: Run, value: Any, dim: int, *_: Any) -> Parts:
    parts = run.parts(value)
    empty = (parts.state == BELOW).all(dim, keepdim=True)
    found = functions.softmax(run, parts, dim)
    return functions.choose(empty, run.number(0), found)


def _log_softmax(run: Run, value: Any, dim: int, *_: Any) -> Parts:
    parts = functions.soften(run, run.parts(value), dim)
    total = functions.log_sum_exp(run, parts, (dim,), True)
    found = run.subtract(parts, total)
    return functions.choose(total.state == ABOVE, run.parts(float("nan")), found)


def _distances_backward(run: Run, grad: Any, *given: Any) -> Parts:
    """The direction of every difference, none where there is no difference."""
    one, other, power, found = given
    if power != 2:
        raise NotModelledError(f"distances of order {power}")
    rows = run.parts(one).map(methodcaller("unsqueeze", -2))
    columns = run.parts(other).map(methodcaller("unsqueeze", -3))
    known = run.parts(found)
    share = algebra.divide(run.tower, run.parts(grad), known)
    share = functions.choose(known.residues[0] == 0, run.number(0), share)
    wide = share.map(methodcaller("unsqueeze", -1))
    return run.sum(run.multiply(run.subtract(rows, columns), wide), (-2,))


def _is_state(*states: int) -> Handler:
    def act(run: Run, value: Any) -> torch.Tensor:
        state = run.parts(value).state
        found = torch.zeros_like(state, dtype=torch.bool)
        for each in states:
            found |= state == each
        return found

    return act


def _read_number(run: Run, value: Any) -> float:
    parts = run.parts(value)
    state = int(parts.state)
    if state in {BELOW, ABOVE, NAN}:
        return {BELOW: -float("inf"), ABOVE: float("inf"), NAN: float("nan")}[state]
    return float(run.read_integers(parts))


def _is_all_equal(run: Run, one: Any, other: Any) -> bool:
    if one.shape != other.shape:
        return False
    return bool(functions.compare(run, "eq", run.parts(one), run.parts(other)).all())


def _invert_matrix(run: Run, value: Any, *_: Any, **__: Any) -> Any:
    found = algebra.eliminate(run.tower, run.parts(value))[0]
    return found, torch.zeros(found.shape[:-2], dtype=torch.int32)


def _find_determinant(run: Run, value: Any) -> Any:
    found = algebra.eliminate(run.tower, run.parts(value), singular=True)[1]
    return found, found, torch.zeros(found.shape, dtype=torch.int32)


def _solve(run: Run, value: Any, right: Any, left: bool = True, **_: Any) -> Any:
    """Torch's solve: one vector, a vector for each matrix, or matrices that broadcast."""
    matrix, beside = run.parts(value), run.parts(right)
    is_vector = len(beside.shape) == 1 or (
        len(beside.shape) == len(matrix.shape) - 1 and beside.shape == matrix.shape[:-1]
    )
    if not left:
        raise NotModelledError("a system solved from the right")
    if is_vector:
        beside = beside.map(lambda part: part.unsqueeze(-1))
    inverse = algebra.eliminate(run.tower, matrix)[0]
    product = run.multiply(
        inverse.map(lambda each: each.unsqueeze(-1)), beside.map(lambda each: each.unsqueeze(-3))
    )
    found = run.sum(product, (-2,))
    found = found.map(lambda part: part.squeeze(-1)) if is_vector else found
    return found, inverse, matrix, torch.zeros(found.shape[:-2], dtype=torch.int32)


ARITHMETIC: dict[str, Handler] = {
    "linalg_inv_ex": _invert_matrix,
    "_linalg_det": _find_determinant,
    "_linalg_solve_ex": _solve,
    "add": lambda run, one, other, alpha=1: run.add(
        run.parts(one), run.scale(run.parts(other), alpha)
    ),
    "sub": _subtract,
    "rsub": lambda run, one, other, alpha=1: _subtract(run, other, one, alpha),
    "mul": _multiply,
    "div": _divide,
    "pow": _power,
    **dict.fromkeys(
        ("mm", "bmm"),
        lambda run, one, other: algebra.matmul(run.tower, run.parts(one), run.parts(other)),
    ),
    "sum": lambda run, value, dims=(), keepdim=False, **_: run.sum(run.parts(value), dims, keepdim),
    "mean": lambda run, value, dims=(), keepdim=False, **_: run.mean(
        run.parts(value), dims, keepdim
    ),
    "prod": _product,
    "cumsum": lambda run, value, dim, **_: algebra.accumulate(run.tower, run.parts(value), dim),
    "var": _variance,
    "var_mean": _variance_and_mean,
    "linalg_vector_norm": _norm,
    "norm": _norm,
    "_softmax": lambda run, value, dim, *_: functions.softmax(run, run.parts(value), dim),
    "_safe_softmax": _safe_softmax,
    "_log_softmax": _log_softmax,
    "logsumexp": lambda run, value, dims, keepdim=False: functions.log_sum_exp(
        run, run.parts(value), list_dims(dims), keepdim
    ),
    "_cdist_backward": _distances_backward,
    "isinf": _is_state(BELOW, ABOVE),
    "isnan": _is_state(NAN),
    "isneginf": _is_state(BELOW),
    "isposinf": _is_state(ABOVE),
    "_local_scalar_dense": _read_number,
    "equal": _is_all_equal,
    "logical_not": lambda run, value: ~run.is_nonzero(run.parts(value)),
    "any": lambda run, value, *args, **named: run.is_nonzero(run.parts(value)).any(*args, **named),
    "all": lambda run, value, *args, **named: run.is_nonzero(run.parts(value)).all(*args, **named),
}


TABLE: dict[str, Handler] = {**ARITHMETIC, **POINTWISE, **VIEWS}


def dispatch(func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """One operation; NotModelledError where it has no meaning over a field."""
    tower = _find_tower(args, named)
    name = func.overloadpacket.__name__
    run = Run(tower, find_usage(), name)
    own = name[:-1] if name.endswith("_") else ""
    known = {*TABLE, *DEFINITIONS}
    if torch.Tag.nondeterministic_seeded in func.tags and name not in known:
        raise NotModelledError(f"{name}, which is random,")
    if name in MOVES:
        return wrap(tower, move(run, func, args, named))
    if name in TABLE:
        found = TABLE[name](run, *args, **_drop_types(name, named))
        return wrap(tower, _own(found, args))
    if name in DEFINITIONS:
        return _define(name, args, named)
    if name in FACTORIES:
        return wrap(tower, make_like(run, func, args, named))
    if own in TABLE:
        return _write(run, args[0], TABLE[own](run, *args, **named))
    if own in DEFINITIONS:
        return _write(run, args[0], run.parts(_define(own, args, named)))
    if torch.Tag.inplace_view in func.tags and own in MOVES:
        return _turn(func, *args, **named)
    return _take_apart(run, func, args, named)


def _define(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    with find_running() or nullcontext():
        return DEFINITIONS[name](*args, **_drop_types(name, named))


def _own(found: Any, args: tuple[Any, ...]) -> Any:
    """What is computed has memory of its own, also where it is what was given."""
    if isinstance(found, tuple):
        return tuple(_own(each, args) for each in found)
    if not isinstance(found, Parts):
        return found
    given = (each.parts.every for each in iterate(args) if isinstance(each, FieldTensor))
    taken = {part.data_ptr() for every in given for part in every}
    shares = any(part.data_ptr() in taken for part in found.every)
    return found.map(torch.clone) if shares else found


def _drop_types(name: str, named: dict[str, Any]) -> dict[str, Any]:
    """Floats of every width are one field."""
    if name == "_to_copy":
        return named
    return {key: value for key, value in named.items() if key != "dtype"}


def _find_tower(args: tuple[Any, ...], named: dict[str, Any]) -> Tower:
    for each in iterate(args, named):
        if isinstance(each, FieldTensor):
            return each.tower
    raise NotModelledError("an operation without a tower")


def _write(run: Run, target: Any, found: Any) -> Any:
    """The result into the memory of the target."""
    if not isinstance(target, FieldTensor) or not isinstance(found, Parts):
        raise NotModelledError(f"{run.name} into an ordinary tensor")
    for old, new in zip(target.parts.every, found.every, strict=True):
        old.copy_(new.expand(old.shape))
    return target


def _turn(func: Any, target: FieldTensor, *args: Any, **named: Any) -> Any:
    """The same memory in another shape: of the parts, and of the wrapper, which has none."""
    target.parts = target.parts.map(lambda part: func(part.detach(), *args, **named))
    with no_dispatch():
        return func(target, *args, **named)


def _take_apart(run: Run, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """By torch's own decomposition, whose operations come here again."""
    with find_running() or nullcontext():
        known = _list_decompositions().get(func)
        found = (known or func.decompose)(*args, **named)
    if found is NotImplemented:
        raise NotModelledError(run.name)
    return found


@cache
def _list_decompositions() -> dict[Any, Any]:
    import torch._decomp

    return dict(torch._decomp.decomposition_table)


FieldTensor.answer = staticmethod(dispatch)
