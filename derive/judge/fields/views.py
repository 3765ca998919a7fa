"""Operations of torch's that move elements and compute nothing: done to every part alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from derive.judge.fields.algebra import balance_states
from derive.judge.fields.functions import choose
from derive.judge.fields.numbers import UNKNOWN
from derive.judge.fields.parts import NotModelledError, Parts, build, fill
from derive.judge.fields.tensor import FieldTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from derive.judge.fields.tensor import Handler, Run

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


def masked_fill(run: Run, value: Any, mask: Any, number: Any) -> Parts:
    """The number where the mask holds."""
    found = where(run, mask, number, value)
    return found


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

    def act(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one.scatter_add(dim, places, other)

    return _gather_up(run, act, run.parts(value), run.parts(new), True)


def scatter_reduce(run: Run, value: Any, *how: Any, **named: Any) -> Parts:
    """Elements added along a dimension; what is there already counts."""
    dim, places, new, reduction = how
    if reduction != "sum" or not named.get("include_self", True):
        raise NotModelledError(f"scatter with the reduction {reduction}")
    return scatter_add(run, value, dim, places, new)


def index_add(run: Run, value: Any, dim: int, *rest: Any, **named: Any) -> Parts:
    """Slices added at places along a dimension."""
    places, new = rest

    def act(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return one.index_add(dim, places, other)

    return _gather_up(
        run, act, run.parts(value), run.scale(run.parts(new), named.get("alpha", 1)), True
    )


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


def fill_with(run: Run, value: Any, number: Any = 0) -> Parts:
    """One number everywhere."""
    return run.parts(number).map(lambda part: part.expand(value.shape).contiguous())


VIEWS: dict[str, Handler] = {
    "_to_copy": convert,
    "where": where,
    "masked_fill": masked_fill,
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
    "copy": lambda run, value, new, _=False: run.parts(new).map(
        lambda part: part.expand(value.shape).contiguous()
    ),
}
