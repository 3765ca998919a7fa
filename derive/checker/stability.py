"""Right in exact arithmetic is not yet finite in float32: runs at logits of 1 and of 1e4.

The formula itself is evaluated in float64 at the same inputs; where it is finite and within the
range of the shorter type, the code has to be finite too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from derive.checker.further import scale
from derive.checker.judge import find_expected
from derive.checker.load import CannotRunError
from derive.checker.runs import How
from derive.errors import Diagnostic
from derive.ir.nodes import Along, Call, Expr, Reduce
from derive.ir.walk import walk
from derive.judge.evaluate import Evaluator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.checker.draws import Draw
    from derive.checker.program import Program

LARGE = 1e4  # the size of a logit that float32 holds easily and whose exponential it does not
_SCALES = (1.0, 10.0, 100.0, 1000.0, 10_000.0)


def find_unstable(program: Program, draw: Draw) -> tuple[Diagnostic, ...]:
    """A finding for each type in which the code is not finite where the formula is."""
    import torch

    found = []
    for dtype in (torch.float32, torch.bfloat16):
        for factor in dict.fromkeys((1.0, _find_scale(draw))):
            what = _find_loss(program, draw, dtype, factor)
            if what:
                found.append(what)
                break
    return tuple(found)


def _find_scale(draw: Draw) -> float:
    """The factor of the inputs at which the logits reach 1e4; 1 where there are none."""
    bodies = list(_find_logits(draw))
    if not bodies:
        return 1.0
    for factor in _SCALES:
        evaluator = Evaluator(scale(draw, factor).make_inputs(), draw.sizes, draw.system.empty_row)
        largest = 0.0
        for equation in draw.system.equations:
            evaluator.define(equation)
        for body in bodies:
            values = evaluator.find(body).tensor
            finite = values[values.isfinite()] if values.numel() else values
            largest = max(largest, float(finite.abs().max()) if finite.numel() else 0.0)
        if largest >= LARGE:
            return factor
    return 1.0


def _find_logits(draw: Draw) -> Iterator[Expr]:
    """What is exponentiated, as far as it is open to view."""
    for equation in draw.system.equations:
        for part in walk(equation.value):
            match part:
                case Along("softmax" | "log_softmax", _, _, body) | Reduce("logsumexp", _, _, body):
                    yield body
                case Call("exp", (body,)):
                    yield body


def _find_loss(program: Program, draw: Draw, dtype: Any, factor: float) -> Diagnostic | None:
    import torch

    values = scale(draw, factor).make_inputs()
    given = {
        name: value.to(dtype)
        if hasattr(value, "is_floating_point") and value.is_floating_point()
        else value
        for name, value in values.items()
    }
    rounded = {
        name: value.double() if hasattr(value, "to") and value.is_floating_point() else value
        for name, value in given.items()
    }
    evaluator = Evaluator(rounded, draw.sizes, draw.system.empty_row)
    for equation in draw.system.equations:
        evaluator.define(equation)
    wanted = {t.name: evaluator.values[t.name] for t in draw.system.results}
    short = str(dtype).removeprefix("torch.")
    try:
        results = program.run(given, draw.sizes, How(double=False)).results
    except CannotRunError as error:  # a type that the code cannot run in is a remark of its own
        if dtype is torch.float32:
            text = " ".join(str(error).split())
            return Diagnostic("not-in-float32", f"the code does not run in float32: {text}")
        return None
    top = torch.finfo(dtype).max / 4
    for (name, value), result in zip(find_expected(program, wanted), results, strict=False):
        if not result.is_floating_point() or result.shape != value.shape:
            continue
        lost = value.isfinite() & (value.abs() < top) & ~result.double().isfinite()
        if bool(lost.any()):
            size = "1" if factor == 1.0 else "1e4"
            place = ", ".join(str(int(k)) for k in lost.nonzero()[0])
            return Diagnostic(
                "unstable",
                f"right in exact arithmetic, not finite in {short} at logits of {size}",
                facts=(
                    f"{name}[{place}] is {float(result[tuple(lost.nonzero()[0])])}, "
                    f"the formula says {float(value[tuple(lost.nonzero()[0])]):.6g}",
                ),
                help="subtract the maximum before exp, or use torch.softmax or torch.logsumexp",
            )
    return None
