"""The functions that a generated file has beside its own, for what torch has no call of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.backend.to_torch import RECUR
from derive.plan.cells.segments import RUNNING
from derive.plan.ops import Cell, Recur, TorchCall, walk_ops

if TYPE_CHECKING:
    from collections.abc import Sequence

    from derive.plan.plan import Plan

_RECUR = '''def {name}(a: Tensor, x: Tensor, h: Tensor, dim: int, chunk: int) -> Tensor:
    """The values of h = a*h + x at each place along dim, a negative one.

    Chunks of places run side by side: from 0, for what each ends with; then, as that tells what
    each begins with, from there.
    """
    chunk, whole = max(chunk, 2), 0
    found = h.unsqueeze(dim).narrow(dim, 0, 0)
    if x.shape[dim] > chunk:
        count = x.shape[dim] // chunk
        parts = (p.narrow(dim, 0, count * chunk).unflatten(dim, (count, chunk)) for p in (a, x))
        turns = list(zip(*(part.unbind(dim) for part in parts), strict=True))
        factor, end = turns[0]
        for a_t, x_t in turns[1:]:
            factor, end = a_t * factor, torch.addcmul(x_t, a_t, end)
        ends = {name}(factor, end, h, dim, chunk)
        {whole}
    if whole:
        start = torch.cat([h.unsqueeze(dim), ends.narrow(dim, 0, count - 1)], dim)
        each = [start := torch.addcmul(x_t, a_t, start) for a_t, x_t in turns]
        found = torch.stack(each, dim).flatten(dim - 1, dim)
        h = found.select(dim, -1)
    rest = (part.narrow(dim, whole, x.shape[dim] - whole).unbind(dim) for part in (a, x))
    last = [h := torch.addcmul(x_t, a_t, h) for a_t, x_t in zip(*rest, strict=True)]
    return torch.cat([found, torch.stack(last, dim)], dim) if last else found
'''
_SO_FAR = '''def {name}(q: Tensor, k: Tensor, v: Tensor, diagonal: int, chunk: int) -> Tensor:
    """The sum of (q_i . k_j) v_j over the places j up to i plus the diagonal, by chunks."""
    places, dtype = q.shape[-2], q.dtype
    count = -(-places // chunk) or 1
    more = (0, 0, 0, count * chunk - places)
    q, k, v = (x.to(torch.promote_types(dtype, torch.float32)) for x in (q, k, v))
    q, k, v = (torch.nn.functional.pad(x, more).unflatten(-2, (count, chunk)) for x in (q, k, v))
    total = (k.mT @ v).cumsum(-3).narrow(-3, 0, count - 1)
    before = torch.nn.functional.pad(total, (0, 0, 0, 0, 1, 0))
    found = (q @ k.mT).tril(diagonal) @ v + q @ before
    return found.flatten(-3, -2).narrow(-2, 0, places).to(dtype)
'''
_WHOLE = "whole = count * chunk"
_CHECKED = f"""# a product of factors may be too large where no value is
        {_WHOLE} if ends.isfinite().all() else 0"""


def write_helpers(plans: Sequence[Plan]) -> list[str]:
    """The functions that linear recurrences and running sums of products call, if any do."""
    steps = [step.op for plan in plans for step in plan.steps if isinstance(step.op, Recur)]
    whole = _WHOLE if all(op.is_bounded for op in steps) else _CHECKED
    found = [_RECUR.format(name=RECUR, whole=whole)] if steps else []
    cells = (op for plan in plans for step in plan.steps for op in walk_ops(step.op))
    calls = [cell.call for cell in cells if isinstance(cell, Cell)]
    if any(isinstance(call, TorchCall) and call.function == RUNNING for call in calls):
        found.append(_SO_FAR.format(name=RUNNING))
    return found
