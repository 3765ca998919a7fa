"""The ways to compute a formula that are compared: each is called without arguments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from derive.bench.candidate import Candidate, to_backward, to_forward
from derive.bench.memory import find_failure, say_failure
from derive.checker.runs import flatten_results
from derive.errors import refuse
from derive.ir.nodes import TRUE, Access, Index, Mul, Reduce

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from derive.bench.hand import Hand
    from derive.compiler import Built
    from derive.ir.nodes import Equation

GENERATED = "generated"
FAR = 1e-2  # of the largest element, in float32: other values, not another rounding
_MOST_OPERANDS = 20


@dataclass
class Found:
    """The candidates, the generated function first, and what was left out, in words."""

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
    """What there is to be compared for these inputs; DeriveError where code gives other values.

    With `judge=False` values are not compared. With `backward` gradients have to fit as well.
    """
    far = FAR if judge else math.inf
    tensors = tuple(value for value in inputs.values() if hasattr(value, "is_floating_point"))
    first = Candidate(GENERATED, partial(built.function, **inputs), tensors)
    wanted = _run(first, f"{built.name} does not run at these sizes")
    found = Found([first], [])
    if hand is not None:
        candidate = _bind(hand, built, inputs)
        named = dict(zip(_names(built), wanted, strict=True))
        _check(candidate, hand.lay_out(named), far)
        found.candidates.append(candidate)
    for candidate in _find_einsums(found.skipped, built, inputs, tensors, backward):
        _check(candidate, wanted, far)
        found.candidates.append(candidate)
    return found


def _names(built: Built) -> list[str]:
    return [tensor.name for tensor in built.system.results]


def _bind(hand: Hand, built: Built, inputs: Mapping[str, Any]) -> Candidate:
    try:
        return hand.bind(inputs, built.plan.sizes)
    except (Exception, SystemExit) as error:  # a class of modules is made in there
        raise refuse("bench-code", f"{hand.name} does not run: {say_failure(error)}") from error


def _run(candidate: Candidate, says: str) -> tuple[Any, ...]:
    """The results; DeriveError for whatever the code raises."""
    import torch

    try:
        with torch.no_grad():
            return flatten_results(candidate.call())
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
    import torch

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
    letters: dict[Index, str] = {}
    terms = []
    for factor in factors:
        if not isinstance(factor, Access) or factor.tensor.kind != "real":
            return None
        terms.append(_spell(factor.places, letters))
    out = _spell(equation.target.places, letters)
    if None in terms or out is None:
        return None
    return f"{','.join(str(t) for t in terms)}->{out}", tuple(
        factor.tensor.name for factor in factors if isinstance(factor, Access)
    )


def _find_factors(equation: Equation) -> tuple[Any, ...] | None:
    body = equation.value
    if isinstance(body, Reduce):
        if body.kind != "sum" or body.condition is not TRUE:
            return None
        body = body.body
    return body.factors if isinstance(body, Mul) else (body,)


def _spell(places: tuple[Any, ...], letters: dict[Index, str]) -> str | None:
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    if not all(isinstance(place, Index) for place in places):
        return None
    return "".join(letters.setdefault(place, alphabet[len(letters)]) for place in places)


def _check(candidate: Candidate, wanted: Sequence[Any], far: float) -> None:
    """Refuse code that writes into its inputs, and results that differ by more than rounding.

    What is returned besides is not judged.
    """
    before = [tensor._version for tensor in candidate.inputs]
    made = _run(candidate, f"{candidate.name} does not run")
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
    """The same shape and, but for `far` of the largest finite element, the same elements."""
    if one.shape != other.shape or far == math.inf:
        return bool(one.shape == other.shape)
    one, other = one.detach().double(), other.detach().double()
    finite = other[other.isfinite()]
    top = float(finite.abs().max()) if finite.numel() else 0.0
    same = (one == other) | (one.isnan() & other.isnan())
    return bool((same | ((one - other).abs() <= far * top + far**3)).all())
