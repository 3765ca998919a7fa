"""Functions of one element, and of the order of elements, as torch's operations."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial, reduce
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import torch

from derive.ir.definitions import Maker, bind, open_call, read
from derive.ir.functions import FUNCTIONS, find_call, find_spelt
from derive.judge.fields import algebra, functions
from derive.judge.fields.algebra import (
    FINITE,
    NAN,
    NotModelledError,
    Parts,
    build,
    fill,
    find_small,
    join,
)
from derive.judge.fields.constants import embed_logarithm, to_fraction
from derive.judge.fields.tensor import list_dims
from derive.judge.fields.tower import raise_each

if TYPE_CHECKING:
    from collections.abc import Callable

    from derive.judge.fields.tensor import Handler, Run

_OPAQUE = "erfinv ceil round fmod remainder lgamma digamma floor_divide i0 sinc heaviside copysign"
_RELATIONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}
Value = Parts | Fraction | float


def _opaque(name: str) -> Handler:
    def act(run: Run, *given: Any, **named: Any) -> Parts:
        if any(value is not None for value in named.values()):
            raise NotModelledError(name)
        return functions.opaque(run, name, *(run.parts(each) for each in given))

    return act


def _unary(act: Callable[[Run, Parts], Parts]) -> Handler:
    return lambda run, value: act(run, run.parts(value))


def _sign(run: Run, parts: Parts) -> Parts:
    ranks = functions.find_ranks(run, parts)
    return run.parts(ranks.sign().masked_fill(parts.state == NAN, 0))  # as torch has it


def _find_end(run: Run, given: tuple[Parts, ...], *, least: bool) -> Parts:
    return reduce(partial(functions.find_larger, run, least=least), given)


_PRIMITIVES: dict[str, Callable[..., Parts]] = {
    "exp": functions.exp,
    "log": functions.log,
    "abs": functions.find_size,
    "sign": _sign,
    "max": lambda run, *parts: _find_end(run, parts, least=False),
    "min": lambda run, *parts: _find_end(run, parts, least=True),
}


def make_parts(run: Run) -> Maker:
    """The parts of a definition over a tower; numbers stay numbers as long as they can."""

    def to_parts(value: Value) -> Parts:
        if isinstance(value, Parts):
            return value
        return run.number(value) if isinstance(value, Fraction) else run.parts(value)

    def add(one: Value, other: Value) -> Value:
        if isinstance(one, Parts) or isinstance(other, Parts):
            return run.add(to_parts(one), to_parts(other))
        return one + other

    def multiply(one: Value, other: Value) -> Value:
        if isinstance(one, Parts) and isinstance(other, Parts):
            return run.multiply(one, other)
        if isinstance(other, Parts):
            return run.scale(other, one)
        return run.scale(one, other) if isinstance(one, Parts) else one * other

    def power(base: Value, exponent: Value) -> Value:
        if isinstance(exponent, Parts):
            assert isinstance(base, Fraction)
            return raise_number(run, base, exponent)
        if not isinstance(base, Parts):
            return base**exponent
        if exponent == -1:
            return algebra.invert(run.tower, base)
        return functions.power(run, base, Fraction(exponent))

    def compare(relation: str, one: Value, other: Value) -> torch.Tensor:
        sides = to_parts(one), to_parts(other)
        return functions.compare(run, _RELATIONS[relation], *sides)

    def call(name: str, given: tuple[Value, ...]) -> Value:
        if name == "pi":
            return math.pi
        if FUNCTIONS[name].definition:
            found: Value = open_call(name, given, make)
            return found
        parts = [to_parts(each) for each in given]
        if name in _PRIMITIVES:
            return _PRIMITIVES[name](run, *parts)
        return functions.opaque(run, name, *parts)

    make = Maker(
        lambda value: value,
        add,
        multiply,
        power,
        compare,
        lambda condition, one, other: functions.choose(condition, to_parts(one), to_parts(other)),
        call,
    )
    return make


def _row(spelling: str, *, is_slope: bool = False) -> Handler:
    """A function by its definition; or its derivative, times a gradient."""

    def act(run: Run, *given: Any, **named: Any) -> Parts:
        row = find_spelt(spelling, named)
        assert row is not None
        grad, given = (given[0], given[1:]) if is_slope else (None, given)
        names, count = (*row.tensors, *row.defaults), len(row.tensors)
        known = find_call(row.name)
        words = dict(known.keywords) if known else {}
        limits = zip(given[len(names) :], row.least.values(), strict=False)
        if any(value < least for value, least in limits) or any(
            value not in {None, "none", words.get(name)}
            for name, value in named.items()
            if name not in names
        ):
            raise NotModelledError(f"{spelling} with such arguments")
        make = make_parts(run)
        elements = [run.parts(each) for each in given[: None if row.is_variadic else count]]
        if row.is_variadic or not row.definition:
            found: Parts = make.call(row.name, tuple(elements))
            return found
        numbers = [_to_number(each) for each in given[count : len(names)]]
        values = bind(row, [*elements, *numbers], make)
        values |= {name: _to_number(named[name]) for name in row.defaults if name in named}
        found = read(row.derivative if is_slope else row.definition, values, make)
        return run.multiply(run.parts(grad), found) if is_slope else found

    return act


def _to_number(value: Any) -> Value:
    return to_fraction(value) or float(value)


def raise_number(run: Run, base: Fraction, parts: Parts) -> Parts:
    """A positive rational to every power; small integers are powers as they are."""
    found = functions.exp(run, run.multiply(parts, _log_number(run, base)))
    value, small = find_small(run.tower, parts)
    count = torch.where(small, value, 0)
    whole = [
        raise_each(torch.full_like(count, each), count, prime)
        for each, prime in zip(run.tower.embed(base), run.tower.primes, strict=True)
    ]
    return functions.choose(small, build(whole), found)


def _log_number(run: Run, number: Fraction | int) -> Parts:
    return fill(run.tower, (), embed_logarithm(run.tower, Fraction(number)))


def _times_log(run: Run, one: Any, other: Any) -> Parts:
    """A number times a logarithm, which is 0 where the number is."""
    here, there = run.parts(one), run.parts(other)
    zero = (here.residues[0] == 0) & (here.state == FINITE) & (there.state != NAN)
    safe = functions.choose(zero, run.number(1), there)
    return run.multiply(here, functions.log(run, safe))


def _log_sigmoid(run: Run, value: Any) -> tuple[Parts, Parts]:
    return _row("logsigmoid")(run, value), run.parts(value)


def _larger(run: Run, one: Any, other: Any, *, least: bool) -> Parts:
    return functions.find_larger(run, run.parts(one), run.parts(other), least=least)


def _clamp(run: Run, value: Any, low: Any = None, high: Any = None) -> Parts:
    parts = run.parts(value)
    for bound, least in ((low, False), (high, True)):
        if bound is not None:
            parts = functions.find_larger(run, parts, run.parts(bound), least=least)
    return parts


def _extreme(
    run: Run, value: Any, dims: Any, keepdim: bool, least: bool
) -> tuple[Parts, torch.Tensor]:
    parts, chosen = run.parts(value), list_dims(dims)
    found, place = functions.reduce_order(run, parts, chosen, least=least)
    if not keepdim and parts.state.dim():
        rank = parts.state.dim()
        gone = tuple(dim % rank for dim in chosen) or tuple(range(rank))
        found, place = found.map(lambda part: part.squeeze(gone)), place.squeeze(gone)
    return found, place


def _amax(least: bool) -> Handler:
    def act(run: Run, value: Any, dims: Any = (), keepdim: bool = False) -> Parts:
        return _extreme(run, value, dims, keepdim, least)[0]

    return act


def _max(least: bool) -> Handler:
    def act(run: Run, value: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return _extreme(run, value, (), False, least)[0]
        if isinstance(dim, torch.Tensor):
            return _larger(run, value, dim, least=least)
        return _extreme(run, value, (dim,), keepdim, least)

    return act


def _argmax(least: bool) -> Handler:
    def act(run: Run, value: Any, dim: Any = None, keepdim: bool = False) -> torch.Tensor:
        return _extreme(run, value, dim, keepdim, least)[1]

    return act


def _sort(
    run: Run, value: Any, dim: int = -1, descending: bool = False, **_: Any
) -> tuple[Parts, torch.Tensor]:
    parts = run.parts(value)
    ranks = functions.find_ranks(run, parts)
    places = torch.sort(ranks, dim=dim, descending=descending, stable=True).indices
    return parts.map(lambda part: part.gather(dim, places)), places


def _cumulate_product(run: Run, value: Any, dim: int, **_: Any) -> Parts:
    parts = run.parts(value)
    if not parts.state.dim():
        return parts
    slices: list[Parts] = []
    for place in range(parts.shape[dim]):
        here = parts.map(methodcaller("narrow", dim, place, 1))
        slices.append(run.multiply(slices[-1], here) if slices else here)
    return join(slices, dim) if slices else parts


def _compare(relation: str) -> Handler:
    return lambda run, one, other: functions.compare(
        run, relation, run.parts(one), run.parts(other)
    )


_SPELLINGS = {name: None for row in FUNCTIONS.values() for name in row.spellings.split()}

POINTWISE: dict[str, Handler] = {
    **{name: _opaque(name) for name in _OPAQUE.split()},
    **{name: _row(name) for name in _SPELLINGS},
    **{row.backward: _row(row.name, is_slope=True) for row in FUNCTIONS.values() if row.backward},
    **{name: _compare(name) for name in _RELATIONS.values()},
    "neg": _unary(lambda run, parts: algebra.negate(run.tower, parts)),
    "xlogy": _times_log,
    "log_sigmoid_forward": _log_sigmoid,
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": lambda run, value, high: _clamp(run, value, None, high),
    "amax": _amax(False),
    "amin": _amax(True),
    "max": _max(False),
    "min": _max(True),
    "argmax": _argmax(False),
    "argmin": _argmax(True),
    "sort": _sort,
    "cumprod": _cumulate_product,
}
