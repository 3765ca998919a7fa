"""The judge of a generated file: its text is executed and its results compared with the loops.

Two elements agree if their difference is at most 1e-9 of their own size or of the largest finite
element of the tensor, or within the rounding error of the formula there. nan agrees with nan, and
inf with the same inf. At least one draw must hold more than nan. A file that does not import,
raises, changes its arguments, or returns another shape does not agree.

Errors that floats cannot tell from rounding (one part in 1e10, a term that is nearly 0) change a
residue over a random tower of prime fields. A difference is ignored if a random order, the random
sign of a root or an unknown number may have caused it: exp(-i) of positions is a number to the code
and a function to the formula. Functions that are not modelled are not judged this way.
"""

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from hashlib import sha256
from inspect import signature
from math import inf
from types import ModuleType
from typing import Any, TypeAlias, TypeVar

from derive.errors import refuse
from derive.ir import nodes as ir
from derive.ir.polynomial import Polynomial
from derive.ir.walk import walk
from derive.judge import evaluate, loops, rounding, samples
from derive.libraries import by_default, torch
from derive.notation.formula import Formula

MANY = 8  # numbers: a product of more of them, in eighths, may be rounded
_REDRAWS = 5  # attempts after an UnluckyError
# Hashed functions whose differences prove nothing: applied to positions they are numbers to the
# formula and functions to the code, or a plan may split their argument.
_LOOSE = {"floor_divide", "remainder", "cos", "sin"}

Found = TypeVar("Found")
Calls: TypeAlias = "Sequence[Callable[[Mapping[str, Any]], Sequence[Any]]]"


def judge_exactly(
    calls: Calls, system: ir.System, values: Mapping[str, Any], sizes: Mapping[str, int], seed: int
) -> str:
    """The first element in which a call differs from the formula over fields, in words; or ""."""
    from derive.judge import fields

    def judge(tower: Any, usage: Any, how: tuple[int, int]) -> str:
        given = draw_over(tower, system, values, how[0])
        found = evaluate_over(tower, system, given, sizes)
        calling = (call(copy_values(given)) for call in calls)
        pairs = (pair for each in calling for pair in zip(system.results, each, strict=True))
        differences = (find_difference(t.name, result, found[t.name]) for t, result in pairs)
        first = next(filter(None, differences), "")
        chance = usage.ordered or usage.rooted or usage.guessed
        return "" if chance or _LOOSE & usage.opaque.keys() else first

    try:
        return use_tower(seed, judge)
    except (fields.TooDeepError, fields.NotModelledError):
        return ""


def use_tower(seed: int, act: Callable[[Any, Any, tuple[int, int]], Found]) -> Found:
    """The result of `act` over a random tower, as deep as the exponentials nest.

    `act` gets the tower, the record of its usage, and its seed and depth. After an UnluckyError it
    is called again with another tower. TooDeepError where no tower is deep enough.
    """
    from derive.judge import fields

    for depth in range(1, fields.DEEPEST + 1):
        for attempt in range(_REDRAWS):
            own = seed + 1000 * attempt
            tower = fields.draw_tower(own, depth)
            try:
                with warnings.catch_warnings(), fields.exact(tower) as usage:
                    warnings.simplefilter("ignore")
                    return act(tower, usage, (own, depth))
            except fields.UnluckyError:
                continue
            except fields.TooDeepError:
                break
    raise fields.TooDeepError


def evaluate_over(
    tower: Any, system: ir.System, values: Mapping[str, Any], sizes: Mapping[str, int]
) -> dict[str, Any]:
    """The formula's tensors over a tower."""
    from derive.judge.fields import to_field

    return evaluate.evaluate_system(system, values, sizes, constant=partial(to_field, tower))


def draw_over(
    tower: Any, system: ir.System, values: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """The inputs over a tower, real tensors random; NotModelledError for complex ones."""
    from derive.judge.fields import NotModelledError, draw_field

    drawn = dict(values)
    positive = [t.name for t in system.inputs if getattr(t, "lower", None) is not None]
    for number, (name, value) in enumerate(values.items()):
        if hasattr(value, "is_complex") and value.is_complex():
            raise NotModelledError("complex numbers")
        if hasattr(value, "is_floating_point") and value.is_floating_point():
            own = 31 * seed + number
            drawn[name] = draw_field(tower, tuple(value.shape), own, positive=name in positive)
    return drawn


def copy_values(values: Mapping[str, Any], *, slopes: bool = False) -> dict[str, Any]:
    """The values with each tensor cloned, since code may write into its arguments.

    With `slopes` the real tensors require gradients.
    """
    copies = {k: v.clone() if _is_tensor(v) else v for k, v in values.items()}
    for value in copies.values():
        if slopes and _is_tensor(value) and value.is_floating_point():
            value.requires_grad_()
    return copies


def find_difference(name: str, found: Any, value: Any) -> str:
    """A description of the first element that differs from the formula's; else ""."""
    from derive.judge.fields import FieldTensor, find_differences, show_value

    if tuple(found.shape) != tuple(value.shape):
        return f"{name} has shape {list(found.shape)}, the formula {list(value.shape)}"
    if not isinstance(found, FieldTensor) and not isinstance(value, FieldTensor):
        return ""  # no tensor of reals in it: float64 has judged it
    differs = find_differences(found, value)
    if not bool(differs.any()):
        return ""
    place = tuple(int(k) for k in differs.nonzero()[0])
    at = _name_element(name, place)
    here, there = show_value(found, place), show_value(value, place)
    return f"{at} is {here} over a field, the formula says {there}"


def _name_element(name: str, place: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, place))}]" if place else name


TOLERANCE = 1e-9
FLOOR = 1e-12  # rounding error where inputs of order 1 cancel
VAGUE = 1e-3  # relative rounding error beyond which a draw does not judge the file

NOTHING = "every element is nan by the formula"


@dataclass(frozen=True)
class Judgement:
    """Whether a file computes its formula, the judged sizes, and the worst error."""

    agrees: bool
    sizes: tuple[Mapping[str, int], ...]
    worst: float  # the largest relative difference
    where: str = ""  # a description of the first difference


@dataclass(frozen=True)
class BackwardCase:
    """The names of gradients in a file with a backward of its own, and its scalars."""

    given: Mapping[str, str]  # the name of the incoming gradient, by result
    made: Mapping[str, str]  # the name of the computed gradient, by argument
    numbers: Mapping[str, float] = field(default_factory=dict)  # scalars gradients do not read


def write_sizes(sizes: Mapping[str, Any], between: str = ", ") -> str:
    """The sizes as text: `B=2, S=3`."""
    return between.join(f"{name}={number}" for name, number in sizes.items())


def load_function(source: str, name: str) -> Callable[..., Any]:
    """The function of this name in the text of a generated file.

    Its module gets a unique name in sys.modules, since torch.compile imports modules by name.
    """
    digest = sha256(source.encode()).hexdigest()[:12]
    called = f"derive_built_{digest}"
    module = sys.modules.get(called)
    if module is None:
        module = ModuleType(called)
        exec(compile(source, f"<{name}.py>", "exec"), module.__dict__)  # our own generated text
        sys.modules[called] = module
    found: Callable[..., Any] = getattr(module, name)
    return found


def judge_source(  # noqa: PLR0913 - the last one is for functions with a loop
    source: str,
    name: str,
    formula: Formula,
    system: ir.System,
    draws: Sequence[Mapping[str, int]],
    *,
    variants: Sequence[Mapping[str, Any]] = ({},),
    pull: BackwardCase | None = None,
) -> Judgement:
    """The judgement of a file's text at the drawn sizes; the last draw has a row masked out.

    Every draw is called with the keywords of every variant, such as several block lengths. With
    `pull` the formula is that of the file's gradients.
    """
    try:
        function = load_function(source, name)
        function = function if pull is None else partial(_pull_back, function, pull)
    except Exception as error:  # whatever a broken file raises is its judgement
        return Judgement(False, (), inf, f"the file cannot be run: {_describe_error(error)}")
    worst, is_empty, vague = 0.0, True, dict[int, str]()
    judged: list[Mapping[str, int]] = []
    for number, sizes in enumerate(draws):
        judged.append(dict(sizes))
        empty_row = number > 0 and number == len(draws) - 1
        inputs = samples.draw_inputs(system, sizes, number, empty_row=empty_row)
        expected = loops.evaluate_loops(formula, inputs)
        values = map(torch.as_tensor, to_tuple(expected))
        is_empty = is_empty and all(bool(each.isnan().all()) for each in values)
        names = tuple(tensor.name for tensor in system.results)
        divides = _divides_by_zero(system, sizes)
        for variant in variants:
            call = partial(function, **variant)
            # a file may branch where gradients are required: every second draw requires them
            judge = partial(_judge_call, call, inputs, slopes=number % 2 == 1, is_undefined=divides)
            off, where = judge(names, expected)
            if where:
                at = write_sizes({**sizes, **variant})
                where = f"{where}, at {at}" if at else where
                runs = rounding.evaluate_rounded(system, inputs, sizes)
                if judge(names, expected, runs)[1]:
                    return Judgement(False, tuple(judged), max(worst, off), where)
                vague |= {number: where} if off > VAGUE else {}
            else:
                worst = max(worst, off)
    if draws and len(vague) == len(draws):
        return Judgement(False, tuple(judged), inf, vague[0])
    if draws and is_empty:
        return Judgement(False, tuple(judged), inf, NOTHING)
    difference = _judge_fields(function, system, draws, variants)
    return Judgement(not difference, tuple(judged), inf if difference else worst, difference)


def _divides_by_zero(system: ir.System, sizes: Mapping[str, int]) -> bool:
    """Whether a divisor made of sizes alone is 0 at these sizes, such as N - 1 at N = 1."""
    for equation in system.equations:
        for part in walk(equation.value):
            match part:
                case ir.Pow(base, ir.Number(exponent)) if exponent < 0:
                    number = Polynomial.of(base)
                    is_size = all(isinstance(atom, ir.Size) for atom in number.atoms)
                    if is_size and number.at(sizes) == 0:
                        return True
    return False


def _pull_back(
    function: Callable[..., Any], pull: BackwardCase, *, one_by_one: bool = False, **values: Any
) -> tuple[Any, ...]:
    """The gradients that the file's own backward gives; with `one_by_one` each by its own call."""
    from derive.judge.fields import to_field

    names = list(pull.made)
    if one_by_one:
        alone = [replace(pull, made={name: pull.made[name]}) for name in names]
        return tuple(found for each in alone for found in _pull_back(function, each, **values))
    own = {name: value for name, value in values.items() if name not in pull.given.values()}
    fields = [value for value in own.values() if hasattr(value, "tower")]
    for name in names:
        leaf = own.get(name, 1.0)
        if not _is_tensor(leaf):
            leaf = torch.tensor(float(leaf), dtype=torch.float64)
            leaf = to_field(fields[0].tower, leaf) if fields else leaf
        own[name] = leaf.detach().requires_grad_()
    own |= {name: value for name, value in pull.numbers.items() if name not in own}
    results = to_tuple(function(**rename_arguments(function, own)))
    pairs = [
        (result, torch.as_tensor(values[seed], dtype=result.dtype))
        for result, seed in zip(results, pull.given.values(), strict=True)
        if seed in values and result.requires_grad
    ]
    ends, seeds = zip(*pairs, strict=True)
    found: tuple[Any, ...] = torch.autograd.grad(ends, [own[name] for name in names], seeds)
    return found


def _judge_fields(
    function: Callable[..., Any],
    system: ir.System,
    draws: Sequence[Mapping[str, int]],
    variants: Sequence[Mapping[str, int]],
) -> str:
    """The first difference over a random tower in words, at the sizes of the first draw; or ""."""
    if not draws or not any(getattr(entry, "kind", "") == "real" for entry in system.inputs):
        return ""
    sizes = draws[0]
    values = samples.draw_inputs(system, sizes, 0)
    numbers = [name for name, value in values.items() if isinstance(value, float)]
    for k, name in enumerate(numbers):  # choose floats that are exact in a field
        if len(numbers) > MANY:
            values[name] = 2.0 ** (k % 3 - 1)
        elif Fraction(value := values[name]).limit_denominator(100) != value:
            values[name] = (round(8 * value) or 1) / 8

    def call_variant(variant: Mapping[str, int], given: Mapping[str, Any]) -> tuple[Any, ...]:
        return to_tuple(function(**rename_arguments(function, given), **variant))

    calls = [partial(call_variant, variant) for variant in variants]
    difference = judge_exactly(calls, system, values, sizes, seed=1)
    return f"{difference}, at {write_sizes(sizes)}" if difference else ""


def raise_unless_agrees(judgement: Judgement, name: str = "the file") -> None:
    """Raise `gate-failed` where a file does not agree, `always-nan` where all elements are nan."""
    if judgement.where == NOTHING:
        raise refuse(
            "always-nan",
            f"every element of {name} is nan by its formula, so that nothing can be compared",
            facts=[f"at {write_sizes(judgement.sizes[0])}"],
            help="say what values are usual, x[N] > 0, scalar a = 0.5, or guard what has none",
        )
    if not judgement.agrees:
        raise refuse(
            "gate-failed",
            f"{name} does not compute what the formula says",
            facts=[judgement.where],
            help="the fault is in derive, not in the formula: report the formula and this line",
        )


def compare_values(
    name: str, found: Any, expected: Any, runs: Sequence[Any] = (), *, is_undefined: bool = False
) -> tuple[float, str]:
    """The worst error of a result, and a description of the first element that differs.

    The error is relative to the element, or to the largest finite element of the result. Errors
    within the spread of `runs`, the results under random rounding, are allowed. Integers must be
    equal. With `is_undefined` (the formula divides by 0) an infinity agrees with nan.
    """
    if not isinstance(found, torch.Tensor):
        return inf, f"{name} is {type(found).__name__}, no tensor"
    with by_default(torch.float64):
        expected = torch.as_tensor(expected)
    is_complex = expected.is_complex()
    is_exact = not any(each.is_floating_point() or each.is_complex() for each in (found, expected))
    kind = torch.complex128 if is_complex else torch.int64 if is_exact else torch.float64
    expected = expected.to(kind)
    if found.shape != expected.shape:
        return inf, f"{name} has shape {list(found.shape)}, the formula {list(expected.shape)}"
    if found.is_complex() and not is_complex:
        return inf, f"{name} is complex"
    if not expected.numel():
        return 0.0, ""
    found = found.detach().to("cpu", kind)
    same = (found == expected) | (found.isnan() & expected.isnan())
    same |= is_undefined & expected.isnan() & found.isinf()
    finite = expected.isfinite()
    size = expected.abs()
    top = size[finite].max() if bool(finite.any()) else torch.zeros((), dtype=torch.float64)
    scale = torch.maximum(size, top) + FLOOR / TOLERANCE
    off = torch.where(same, 0.0, ((found - expected).abs() / scale).nan_to_num(inf, inf))
    wrong = ~same & ~(finite & found.isfinite() & (off <= TOLERANCE) & (not is_exact))
    if runs and bool(wrong.any()):
        wrong &= ~rounding.is_within(found, expected, [run.to(kind) for run in runs])
    off = torch.where(wrong & ~(finite & found.isfinite()), inf, off)
    if not bool(wrong.any()):
        return float(off.max()), ""
    place = tuple(int(k) for k in wrong.nonzero()[0])
    element = _name_element(name, place)
    values = f"{found[place].item()!r}, the formula says {expected[place].item()!r}"
    return float(off.max()), f"{element} is {values}"


def _judge_call(  # noqa: PLR0913 - a call, and what is expected of it
    function: Callable[..., Any],
    inputs: Mapping[str, Any],
    names: tuple[str, ...],
    expected: Any,
    runs: Sequence[tuple[Any, ...]] = (),
    *,
    slopes: bool = False,
    is_undefined: bool = False,
) -> tuple[float, str]:
    """The worst error of a call with clones of the inputs, and its first difference in words."""
    given = copy_values(inputs, slopes=slopes)
    try:
        # the function of an integer formula computes in torch's default type
        with warnings.catch_warnings(), by_default(torch.float64):
            warnings.simplefilter("ignore")  # a variance of one entry is nan, and torch warns
            found = function(**rename_arguments(function, given))
    except Exception as error:  # whatever it raises is its judgement
        return inf, f"the call raises {_describe_error(error)}"
    for name, value in inputs.items():
        if _is_tensor(value) and not bool((value == given[name]).all()):
            return inf, f"the call changes its argument {name}"
    results = tuple(each.detach() if _is_tensor(each) else each for each in to_tuple(found))
    wanted = to_tuple(expected)
    if len(results) != len(wanted):
        return inf, f"the call returns {len(results)} results, the formula has {len(wanted)}"
    worst = 0.0
    for k, (name, one, other) in enumerate(zip(names, results, wanted, strict=True)):
        each = [run[k] for run in runs]
        off, where = compare_values(name, one, other, each, is_undefined=is_undefined)
        worst = max(worst, off)
        if where:
            return worst, where
    return worst, ""


def rename_arguments(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments under the function's parameter names: `lambda` is passed as `lambda_`."""
    known = signature(function).parameters
    return {
        f"{name}_" if name not in known and f"{name}_" in known else name: value
        for name, value in given.items()
    }


def to_tuple(found: Any) -> tuple[Any, ...]:
    """The results of a function as a tuple, also where it returns only one."""
    return found if isinstance(found, tuple) else (found,)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "clone")


def _describe_error(error: Exception) -> str:
    """The error on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
