"""The ways to compute a formula that are compared: each is called without arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from derive.bench.memory import does_run
from derive.errors import refuse
from derive.ir.nodes import TRUE, Access, Index, Mul, Reduce

if TYPE_CHECKING:
    from derive.compiler import Built
    from derive.ir.nodes import Equation

FAR = 1e-2  # of the largest element, in float32: other values, not another rounding
_MOST_OPERANDS = 20


@dataclass(frozen=True)
class Candidate:
    """A name, a call, and the tensors that it reads, which gradients are taken by."""

    name: str
    call: Callable[[], Any]
    inputs: tuple[Any, ...]

    @property
    def leaves(self) -> tuple[Any, ...]:
        """The real tensors."""
        return tuple(each for each in self.inputs if each.is_floating_point())


def find_candidates(
    built: Built, against: str, inputs: Mapping[str, Any]
) -> tuple[list[Candidate], tuple[str, ...]]:
    """The generated function first; and what was left out, in words."""
    tensors = tuple(value for value in inputs.values() if hasattr(value, "is_floating_point"))
    found = [Candidate("generated", partial(built.function, **inputs), tensors)]
    skipped: list[str] = []
    if against:
        found.append(Candidate(against, _bind(built, against, inputs), tensors))
    equation = to_einsum(built)
    if equation is not None:
        string, names = equation
        operands = [inputs[name] for name in names]
        for title, is_planned in (("torch.einsum", True), ("without a path", False)):
            call = partial(_contract, string, operands, is_planned)
            candidate = Candidate(title, call, tensors)
            if does_run(candidate.call):
                found.append(candidate)
            else:
                skipped.append(f"{title}: one call takes too much memory or time")
    else:
        skipped.append("torch.einsum: the formula is more than one product")
    _check(found)
    return found, tuple(skipped)


def _contract(string: str, operands: list[Any], is_planned: bool) -> Any:
    import torch

    with torch.backends.opt_einsum.flags(enabled=is_planned):
        return torch.einsum(string, *operands)


def _bind(built: Built, against: str, inputs: Mapping[str, Any]) -> Callable[[], Any]:
    """A call of somebody's code; its arguments are matched as a check matches them."""
    from derive.checker.load import CannotRunError, load
    from derive.checker.pick import pick_program
    from derive.checker.sources import evaluate_source

    sizes = dict(built.plan.sizes)
    try:
        program = pick_program(load(against), built.system, {}, {}).program
    except CannotRunError as error:
        raise refuse("bench-code", f"{against} does not run: {error}") from error
    if isinstance(program.code.target, type) or program.parameters:
        return partial(program.call, inputs, sizes)
    given = {
        name: evaluate_source(source, inputs, sizes, program.letters)
        for name, source in program.arguments.items()
    }
    return partial(program.code.target, **given)


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


def _check(candidates: list[Candidate]) -> None:
    """All give the same values, but for rounding."""
    import torch

    def run(candidate: Candidate) -> tuple[Any, ...]:
        with torch.no_grad():
            made = candidate.call()
        return tuple(made) if isinstance(made, (tuple, list)) else (made,)

    wanted = run(candidates[0])
    for candidate in candidates[1:]:
        for one, other in zip(run(candidate), wanted, strict=False):
            if one.shape == other.shape:
                gap = (one - other).abs().nan_to_num().max() if one.numel() else 0.0
                top = other.abs().nan_to_num().max() if other.numel() else 1.0
                if float(gap) <= FAR * float(top) + FAR**3:
                    continue
            raise refuse(
                "bench-differs",
                f"{candidate.name} gives other values than the formula",
                help="derive check says where",
            )
