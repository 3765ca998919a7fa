"""Modes of torch under which code runs: they record its calls, or replace values in them.

watch       the calls that end a gradient; the call that failed
recorder    all calls, with their numbers, shorter types, and overflows of whole numbers
precise     float64 for every shorter float that is requested
masks       -inf for finite numbers that mask an entry: their weight is 0 in float32 in a run at
            ordinary inputs
"""

from __future__ import annotations

import inspect
import math
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from derive.frontend.torch.call import find_tensors
from derive.frontend.torch.code import name_of
from derive.ir.functions import FUNCTIONS, REDUCTIONS, VANISHING
from derive.libraries import internals, make_mode, torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from derive.judge.fields.algebra import Usage


_READING = frozenset(["item", "tolist", "numpy", "__array__", "__float__"])


def watch_gradients(path: str, cuts: dict[tuple[int, str], None]) -> Any:
    """A mode that adds to `cuts` each line of the user's file and call that ends a gradient."""

    def act(function: Any, args: Any, named: Any) -> Any:
        held = any(each.requires_grad for each in find_tensors([*args, *named.values()]))
        found = function(*args, **named)
        name = name_of(function)
        if held and not name.endswith("_like") and not name.startswith("new_"):
            reals = [each for each in find_tensors(found) if each.is_floating_point()]
            is_lost = bool(reals) and not any(each.requires_grad for each in reals)
            if (is_lost or name in _READING) and not _is_in_own_function():
                call = name if torch.is_grad_enabled() else "no_grad"
                cuts[find_site_now(path)[0] or 0, call] = None
        return found

    return make_mode(act)


def _is_in_own_function() -> bool:
    """Whether the forward of an autograd.Function runs, which has a backward of its own."""
    kinds = [torch.autograd.Function]
    for kind in kinds:
        kinds += kind.__subclasses__()
    bodies = {getattr(inspect.unwrap(kind.forward), "__code__", None) for kind in kinds[1:]}
    frame: Any = sys._getframe()
    while frame is not None and frame.f_code not in bodies:
        frame = frame.f_back
    return frame is not None


def find_site_now(path: str) -> tuple[int | None, int]:
    """The pair (line, bytecode offset) in the file that runs now; (None, -1) without one."""
    frame: Any = sys._getframe()
    while frame is not None and frame.f_code.co_filename != path:
        frame = frame.f_back
    return (None, -1) if frame is None else (int(frame.f_lineno), int(frame.f_lasti))


class StoppedError(BaseException):
    """The code exceeded a limit; no `except Exception` of the code catches this."""


def watch_failures(failed: list[tuple[str, Any, Any]], most: int = 0) -> Any:
    """A mode that adds to `failed` the name and the arguments of each torch function that raises.

    It stops the code at a tensor of more elements than `most`, if that is not 0.
    """

    def act(function: Any, args: Any, named: Any) -> Any:
        try:
            found = function(*args, **named)
        except Exception:
            failed.append((getattr(function, "__name__", ""), args, named))
            raise
        if most and any(each.numel() > most for each in find_tensors(found)):
            raise StoppedError(f"it makes a tensor of more than {most} elements")
        return found

    return make_mode(act)


MOST_CALLS = 4000  # calls that are recorded in one run
_LARGE = 700.0  # the exponential of more than this is infinite in float64
_NORMALIZED = {w for row in REDUCTIONS if row.normalizes for w in row.spellings.split()}
_POLES = _NORMALIZED | {
    *("div", "truediv", "rtruediv", "divide", "true_divide", "reciprocal", "rsqrt", "log", "log2"),
    *("log10", "log1p", "where", "where_of_tensor", "fill", "full", "masked_fill"),
}
_VANISHING = _NORMALIZED | {"exp2"}
_VANISHING |= {word for name in VANISHING for word in FUNCTIONS[name].spellings.split()}
_FACTORS = {"mul", "multiply", "pow", "square", "div", "truediv", "divide", "prod", "cumprod"}
_CASTS = {"to", "type", "type_as", "long", "int", "short", "char", "byte"}


@dataclass(frozen=True)
class Lowering:
    """A call whose result has a shorter float type, or a narrow integer type."""

    dtype: str
    line: int | None
    call: str

    @property
    def is_float(self) -> bool:
        """Whether the type is a float type."""
        return "float" in self.dtype


@dataclass
class Recorder:
    """A record of each call of torch: its line, its numbers, its shorter types.

    `reach` maps a type to the least magnitude above 0 and the largest one. It covers float64, whole
    numbers in an integer type, and tensors of only whole numbers in a shorter float type.
    """

    path: str  # of the user's file
    is_asked: bool  # whether the default type is float64, so that float32 is a shorter one
    calls: list[tuple[str, int]] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    lowered: dict[Lowering, None] = field(default_factory=dict)
    full: dict[Lowering, None] = field(default_factory=dict)
    cuts_to: dict[str, None] = field(default_factory=dict)
    reach: dict[str, tuple[float, float]] = field(default_factory=dict)
    left_range: bool = False

    def record_call(self, function: Any, args: Any, named: Any) -> Any:
        """Make a call of torch, record it, and return its result."""
        line, _ = find_site_now(self.path)  # None for calls outside the user's file
        if line is None or len(self.calls) >= MOST_CALLS:
            return function(*args, **named)
        wide = _widen(function, args, named)
        found = function(*args, **named)
        name = getattr(function, "__name__", "")
        self.calls.append((name, line))
        given = (*args, *named.values())
        with internals.DisableTorchFunction():  # without the modes around this one
            is_empty = "empty" in name  # uninitialized memory differs from run to run
            self.left_range |= not is_empty and _leaves_range(name, args, found)
            self.numbers += [float(each) for each in given if isinstance(each, (int, float))]
            read = [*find_tensors(given)]
            made = [*find_tensors(found)]
            if name == "__setitem__" and isinstance(args[2], torch.Tensor):
                made, wide = [args[0][args[1]]], args[2].real.double()
            for tensor in made:
                what = Lowering(str(tensor.dtype).removeprefix("torch."), line, name)
                values = find_values(tensor)
                self._record_result(
                    what, torch.zeros_like(values) if is_empty else values, read, wide
                )
        return found

    def _record_result(self, what: Lowering, made: Any, read: list[Any], wide: Any) -> None:
        usual = (torch.float64 if self.is_asked else torch.float32).itemsize
        is_float = made.dtype.is_floating_point
        is_lower = is_float and made.dtype.itemsize < usual
        if made.dtype in {torch.int8, torch.uint8, torch.int16}:
            is_lower = bool(((made != 0) & (made != 1)).any())
        if is_lower and not any(each.dtype == made.dtype for each in read):
            self.lowered[what] = None
        if made.dtype is torch.bool or made.dtype.is_complex or not made.numel():
            return
        if not is_float and what.call in _CASTS and any(e.dtype.is_floating_point for e in read):
            self.cuts_to[what.dtype] = None
        values = made.abs() if is_float else made.double().abs()
        is_short = is_float and made.dtype.itemsize < usual
        if is_short and not bool((values == values.floor()).all()):  # or infinite or nan
            return
        least, most = map(float, values.aminmax())
        is_wide = isinstance(wide, torch.Tensor) and wide.shape == made.shape and not is_float
        is_beyond = (
            is_wide
            and wide.is_floating_point()
            and (what.dtype != "int64" or not any(each.is_floating_point() for each in read))
            and float(wide.abs().max()) > find_limit(made.dtype)
        )
        if (is_short and most >= find_limit(made.dtype)) or is_beyond:
            self.full[what] = None
        if what.call == "__setitem__":  # recorded by the call that made them
            return
        if is_float and not is_short and not 0 < least <= most < math.inf:
            values = values[values.isfinite() & (values > 0)]
            if not values.numel():
                return
            least, most = map(float, values.aminmax())
        low, high = self.reach.get(what.dtype, (most, most))
        self.reach[what.dtype] = min(low, least), max(high, most)


def find_limit(dtype: Any) -> float:
    """The largest number up to which a type holds all whole numbers."""
    if dtype.is_floating_point:
        return 2 / float(torch.finfo(dtype).eps)
    return float(torch.iinfo(dtype).max)


def _widen(function: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """The float64 result of a call on integers, or the operand of a cast; None for other calls."""
    given = list(find_tensors(args))
    name = name_of(function).strip("_").removeprefix("bitwise_")
    if given and name in _CASTS and not given[0].is_complex():
        return given[0].double()
    if not given or any(each.is_floating_point() or each.is_complex() for each in given):
        return None
    if all(each.dtype is torch.bool for each in given):
        return None
    wide = [each.double() if isinstance(each, torch.Tensor) else each for each in args]
    try:
        if name.endswith("_") or name in {"and", "or", "xor", "not"}:
            return None
        return function(*wide, **{n: v for n, v in kwargs.items() if n not in {"dtype", "out"}})
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return None


@dataclass
class State:
    """The usage of field arithmetic in a run, and the requests for shorter floats."""

    usage: Usage | None = None
    shorter: dict[Lowering, None] = field(default_factory=dict)
    # least and largest magnitude, by type, of requested tensors that hold only whole numbers
    whole: dict[str, tuple[float, float]] = field(default_factory=dict)


def make_precise(state: State, path: str) -> Any:
    """A mode that runs every request for a shorter float as float64, and records the request."""
    by_name = {"float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16}
    short = {*by_name.values()}
    kind, double, is_lowered = torch.dtype, torch.float64, torch.is_autocast_enabled

    def lengthen(value: Any) -> Any:
        return double if isinstance(value, kind) and value in short else value

    def act(function: Any, args: Any, named: Any) -> Any:
        name = getattr(function, "__name__", "")
        given = [each for each in (*args, *named.values()) if isinstance(each, kind)]
        given += [torch.bfloat16] if is_lowered("cpu") else []
        if name in by_name and args:
            given.append(by_name[name])
            found = args[0].double() if isinstance(args[0], torch.Tensor) else args[0]
        else:
            named |= {"dtype": lengthen(named["dtype"])} if "dtype" in named else {}
            found = function(*map(lengthen, args), **named)
        for dtype in (each for each in given if each in short):
            requested = str(dtype).removeprefix("torch.")
            state.shorter[Lowering(requested, find_site_now(path)[0], name)] = None
            if type(found) is not torch.Tensor or not found.is_floating_point():
                continue
            values = find_values(found)
            if values.numel() and bool((values % 1 == 0).all()):
                low, high = state.whole.get(requested, (math.inf, 0.0))
                most = float(values.abs().max())
                state.whole[requested] = min(low, most), max(high, most)
        return found

    return make_mode(act)


def _leaves_range(name: str, args: Sequence[Any], result: Any) -> bool:
    """Whether a call on finite numbers overflows, or gives 0 for a number other than 0."""
    name = name.strip("_")
    given = [each for each in args if isinstance(each, torch.Tensor) and each.is_floating_point()]
    if not given or not isinstance(result, torch.Tensor) or not result.is_floating_point():
        return False
    result = find_values(result)
    has_zero = bool((result == 0).any())
    if not has_zero and bool(result.isfinite().all()):
        return False
    given = list(map(find_values, given))
    if not all(bool(each.isfinite().all()) for each in given):
        return False
    largest = max(float(each.abs().max()) if each.numel() else 0.0 for each in given)
    overflows = name not in _POLES and largest > _LARGE and bool(result.isinf().any())
    if overflows or not has_zero:
        return overflows
    factors = all(bool((each != 0).all()) for each in given)
    return name in _VANISHING or (factors and name.strip("_r") in _FACTORS)


_VANISHES = -104.0  # exp of less is 0 in float32, whose smallest number is 2**-149
_EXPONENTIALS = ("exp", "sigmoid")  # functions of one score; _ROWS compare the scores of a row
_ROWS = {"max", *(w for row in REDUCTIONS if row.left_out == "-oo" for w in row.spellings.split())}
_WITH_MASK = "scaled_dot_product_attention"  # receives its mask as a separate argument


def watch_masks(places: list[tuple[Any, float | None]]) -> Any:
    """A mode that appends (mask of scores with exp 0, their largest or None) for each call."""

    def note_vanishing(scores: Any, is_relative: bool) -> Any:
        values = find_values(scores)
        is_finite = values.isfinite()
        top = values[is_finite].max() if is_relative and bool(is_finite.any()) else 0.0
        vanishes = is_finite & (values - top < _VANISHES)
        places.append((vanishes, float(values[vanishes].max()) if bool(vanishes.any()) else None))
        return scores

    return _intercept_scores(note_vanishing)


def put_infinity(places: Sequence[tuple[Any, float | None]]) -> Any:
    """A mode that replaces the scores at `places`, call by call, by -inf."""
    left = iter(places)

    def fill_scores(scores: Any, is_relative: bool) -> Any:
        vanishes, _ = next(left, (None, None))
        if vanishes is None or vanishes.shape != find_values(scores).shape:
            return scores
        return scores.masked_fill(vanishes, float("-inf"))

    return _intercept_scores(fill_scores)


def _intercept_scores(replace_scores: Callable[[Any, bool], Any]) -> Any:
    """A mode that passes the scores of a row or of an exponential through a function."""

    def act(function: Any, args: Any, named: Any) -> Any:
        name = getattr(function, "__name__", "")
        if name == _WITH_MASK:
            mask = named.get("attn_mask", args[3] if len(args) > 3 else None)
            if isinstance(mask, torch.Tensor) and mask.is_floating_point():
                args, rest = args[:3], args[4:]
                named |= dict(zip(("dropout_p", "is_causal"), rest, strict=False))
                named["attn_mask"] = replace_scores(mask, True)
        elif name in _EXPONENTIALS or name in _ROWS:
            scores, *rest = args or (named.pop("input"),)
            if isinstance(scores, torch.Tensor) and scores.is_floating_point():
                scores = replace_scores(scores, name in _ROWS)
            args = (scores, *rest)
        return function(*args, **named)

    return make_mode(act)


def find_values(tensor: Any) -> Any:
    """The tensor below the wrappers of torch.func."""
    while internals.is_wrapped(tensor):
        tensor = internals.unwrap(tensor)
    return tensor
