"""Code against formula in float64: values against the loops, far draws and gradients too."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from random import Random
from typing import TYPE_CHECKING, Any

from derive.checker.load import CannotRunError
from derive.checker.runs import How, weigh_results
from derive.checker.sources import find_names
from derive.ir.nodes import Call, Index, Reduce
from derive.ir.polynomial import evaluate_extent
from derive.ir.walk import walk
from derive.judge.compare import compare_values
from derive.judge.evaluate import evaluate_system
from derive.judge.loops import evaluate_entries, evaluate_loops

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from derive.checker.draws import Draw
    from derive.checker.program import Program
    from derive.notation.formula import Formula

CLEAR = 1e-6  # a relative difference in float64 that no rounding explains
MOST_CUTS = 3  # of a gradient that are told
LARGE = 20.0  # a factor of the inputs at which clamps and caps have a say

MOST_STEPS = 300_000  # of the direct loops at one draw, about a second
MOST_ENTRIES = 64  # of each result that are computed by loops where all of them take longer


@dataclass
class Outcome:
    """What one judge found."""

    same: bool | None
    difference: str = ""
    off: float = 0.0  # the largest relative difference
    reasons: list[str] = field(default_factory=list)


def find_expected(program: Program, found: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """The formula's results by name, in the layout that the code has."""
    from derive.checker.sources import evaluate_source

    return tuple(
        (name, evaluate_source(program.results.get(name, name), {name: value}, {}, {}))
        for name, value in found.items()
    )


def judge_floats(
    program: Program, formula: Formula, draw: Draw, *, empty_row: bool = False
) -> Outcome:
    """float64 against the direct loops at one draw."""
    values = draw.make_inputs(empty_row=empty_row)
    answer = program.run(values, draw.sizes)
    outcome = compare_results(program, answer.results, find_wanted(formula, draw, values))
    sources = {**program.arguments, **program.parameters}
    given = [name for slot in answer.changed for name in find_names(sources[slot])]
    changed = [name for name in given if name in values]
    outcome.reasons = [f"changes {name}" for name in dict.fromkeys(changed)]
    return outcome


def find_wanted(formula: Formula, draw: Draw, values: Mapping[str, Any]) -> dict[str, Any]:
    """The formula's results by the loops; of long loops single entries, the others evaluated."""
    names = [tensor.name for tensor in draw.system.results]
    if count_steps(draw) <= MOST_STEPS:
        expected = evaluate_loops(formula, values)
        return dict(zip(names, expected if len(names) > 1 else (expected,), strict=True))
    found = evaluate_system(draw.system, values, draw.sizes)
    wanted = {name: found[name].clone() for name in names}
    chooser = Random(draw.seed)
    places = {
        name: [tuple(chooser.randrange(n) for n in value.shape) for _ in range(MOST_ENTRIES)]
        for name, value in wanted.items()
        if value.numel()
    }
    for name, entries in evaluate_entries(formula, values, places, MOST_STEPS).items():
        for place, entry in entries.items():
            wanted[name][place] = entry
    return wanted


def count_steps(draw: Draw) -> int:
    """How many steps the loops over all indices of each equation take."""
    total = 0
    for equation in draw.system.equations:
        nodes = (*walk(equation.value), *(i for p in equation.target.places for i in walk(p)))
        indices = dict.fromkeys(node for node in nodes if isinstance(node, Index))
        total += prod(evaluate_extent(index.extent, draw.sizes) for index in indices)
    return total


def compare_results(program: Program, results: Sequence[Any], wanted: dict[str, Any]) -> Outcome:
    """The results one by one; what the code returns beyond the formula's is left alone."""
    if not results:
        return Outcome(False, "the code returns no tensor", float("inf"))
    worst, said = 0.0, ""
    for (name, value), found in zip(find_expected(program, wanted), results, strict=False):
        off, where = compare_values(name, found, value)
        worst = max(worst, off)
        said = said or where
    return Outcome(not said, said, worst)


def judge_far(program: Program, draw: Draw, scale: float = 1.0) -> Outcome:
    """float64 against the evaluator, at sizes that loops would take long for, or at large inputs.

    Only a clear difference of finite values counts: large inputs lose digits, and may overflow.
    """
    values = draw.make_inputs()
    values = {name: scale_value(draw, name, value, scale) for name, value in values.items()}
    what = f" for inputs {scale:g} times as large" if scale != 1.0 else ""
    return _judge_at(program, draw, values, what)


def judge_whole(program: Program, draw: Draw) -> Outcome:
    """The same at small whole numbers: zeros, ones and equal values decide what `==` and `<` say.

    Not where a largest of equal values has to be chosen, or a number is rounded down.
    """
    import torch

    atoms = [part for each in draw.system.equations for part in walk(each.value)]
    if any(isinstance(a, Reduce) and a.kind.startswith("arg") for a in atoms):
        return Outcome(None)
    if any(isinstance(a, Call) and a.function in {"floor", "mod", "floordiv"} for a in atoms):
        return Outcome(None)
    generator = torch.Generator().manual_seed(draw.seed)
    values = draw.make_inputs()
    for name, value in values.items():
        if _is_free_real(draw, name, value):
            whole = torch.randint(-2, 3, value.shape, generator=generator)
            values[name] = whole.to(value.dtype)
    return _judge_at(program, draw, values, " for inputs that are whole numbers")


def _judge_at(program: Program, draw: Draw, values: Mapping[str, Any], what: str) -> Outcome:
    import torch

    found = evaluate_system(draw.system, values, draw.sizes)
    try:
        results = program.run(values, draw.sizes).results
    except CannotRunError:
        return Outcome(None)
    wanted = {tensor.name: found[tensor.name] for tensor in draw.system.results}
    for (name, value), result in zip(find_expected(program, wanted), results, strict=False):
        if tuple(result.shape) != tuple(value.shape):
            says = f"{name} has shape {list(result.shape)}, the formula {list(value.shape)}"
            return Outcome(False, says, float("inf"))
        one, other = result.detach().double(), value.double()
        finite = one.isfinite() & other.isfinite()
        one, other = (torch.where(finite, each, torch.zeros_like(each)) for each in (one, other))
        if not other.numel():
            continue
        size = torch.maximum(other.abs(), other.abs().max() * CLEAR)
        off = ((one - other).abs() / (size + CLEAR**2)).max()
        if float(off) > CLEAR:
            _, where = compare_values(name, one, other)
            return Outcome(False, f"{where}{what}", float(off))
    return Outcome(True)


def scale_value(draw: Draw, name: str, value: Any, scale: float) -> Any:
    """A real tensor without a domain, scaled; what has bounds or is no real tensor stays."""
    return value * scale if scale != 1.0 and _is_free_real(draw, name, value) else value


def _is_free_real(draw: Draw, name: str, value: Any) -> bool:
    """Is it a tensor of reals without a domain?"""
    bounded = [t.name for t in draw.system.inputs if getattr(t, "lower", None) is not None]
    bounded += [t.name for t in draw.system.inputs if getattr(t, "upper", None) is not None]
    real = hasattr(value, "is_floating_point") and value.is_floating_point()
    return bool(real) and name not in bounded


def judge_gradients(program: Program, draw: Draw) -> Outcome:
    """The gradients of the results, weighted at random, by every real tensor, in float64."""
    import torch

    values = draw.make_inputs()
    names = [n for n, v in values.items() if isinstance(v, torch.Tensor) and v.is_floating_point()]

    how = How(weights=draw.seed, most=len(draw.system.results))

    def make_leaves() -> dict[str, Any]:
        leaves = {k: v.clone() if hasattr(v, "clone") else v for k, v in values.items()}
        for name in names:
            leaves[name].requires_grad_()
        return leaves

    try:
        answer, here = program.differentiate(make_leaves(), draw.sizes, how)
    except CannotRunError as error:  # whatever the user's backward raises
        return Outcome(None, reasons=[f"no gradient: {error}"])
    leaves = make_leaves()
    found = evaluate_system(draw.system, leaves, draw.sizes)
    wanted = {tensor.name: found[tensor.name] for tensor in draw.system.results}
    results = [value for _, value in find_expected(program, wanted)][: len(answer.results)]
    total = weigh_results(results, how)
    there: tuple[Any, ...] = (None,) * len(names)
    if total.requires_grad:
        there = torch.autograd.grad(total, [leaves[name] for name in names], allow_unused=True)
    pairs = zip(names, (here[name] for name in names), there, strict=True)
    for name, one, other in pairs:
        if one is None and other is None:
            continue
        nothing = torch.zeros((one if one is not None else other).shape, dtype=torch.float64)
        own, right = (nothing if grad is None else grad for grad in (one, other))
        off, where = compare_values(f"gradient by {name}", own, right)
        if where:
            return Outcome(False, f"{where}{_say_cuts(answer.cuts)}", off)
    return Outcome(True)


def _say_cuts(cuts: Sequence[tuple[int, str]]) -> str:
    """Where the code lets go of gradients, as far as a line of its own does."""
    said = [f"at line {line} by {name}" for line, name in cuts if line]
    return f"; the code cuts the gradient {', '.join(said[:MOST_CUTS])}" if said else ""
