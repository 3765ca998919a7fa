"""From the record of a run to a system of equations that a person can read.

prune     what no result rests on goes
copies    a tensor that is another one is that one
views     `q = (x @ w).view(B, S, H, D)` is an equation of q[b,s,h,d]
inline    a step without a name of its own that is used once stands where it is used
split     an index i that is read as i//D and i%D is two, h and d
rename    tensors by the variables of the code, letters by their sizes, each letter one extent
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.frontend.torch.draft import Draft, count_accesses, is_reading, prune, put_in
from derive.frontend.torch.named import drop_copies, name_views, split_letters, split_sums
from derive.frontend.torch.places import count_nodes
from derive.frontend.torch.rename import rename
from derive.ir.nodes import Access, Expr, ScalarInput, System, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from derive.frontend.torch.shadow import Shadow
    from derive.frontend.torch.trace import Trace

_MOST_NODES = 40  # of an equation into which another is put


def collect(
    trace: Trace,
    results: Sequence[Shadow],
    inputs: Sequence[Tensor | ScalarInput],
    sizes: Sequence[str],
    name: str,
) -> tuple[System, dict[str, int]]:
    """The system that computes the results, and the line of each of its equations."""
    draft = _draft(trace, results)
    prune(draft)
    drop_copies(draft)
    name_views(trace.views, draft)
    _inline(draft)
    prune(draft)
    split_letters(trace, draft)
    split_sums(trace, draft)
    return rename(draft, tuple(inputs), tuple(sizes), name)


def _draft(trace: Trace, results: Sequence[Shadow]) -> Draft:
    """Every result as an equation of its own."""
    found: list[Tensor] = []
    for shadow in results:
        value = trace.read_number(shadow, shadow.letters)
        known = _find_step(trace, shadow, value)
        if known is None or known in found:
            made = trace.define(
                shadow.letters, value, "real" if shadow.kind == "bool" else shadow.kind
            )
            known = trace.steps[-1].tensor
            assert made.rank == shadow.rank
        found.append(known)
    steps = {step.tensor: step for step in trace.steps}
    return Draft(steps, {tensor: step.value for tensor, step in steps.items()}, found)


def _find_step(trace: Trace, shadow: Shadow, value: Expr) -> Tensor | None:
    """The step whose tensor the result is as it stands."""
    if not isinstance(value, Access) or value.places != shadow.letters:
        return None
    if any(step.tensor is value.tensor for step in trace.steps):
        return value.tensor
    return None


def _inline(draft: Draft) -> None:
    """Steps without a name that are read once, put where they are read."""
    uses: dict[Tensor, int] = {}
    for value in draft.values.values():
        for access in count_accesses(value):
            uses[access.tensor] = uses.get(access.tensor, 0) + 1
    for tensor in list(draft.values):
        step = draft.steps[tensor]
        if step.spot.name or tensor in draft.results or uses.get(tensor) != 1:
            continue
        value = draft.values[tensor]
        reader = next(t for t, v in draft.values.items() if is_reading(v, tensor))
        try:
            whole = put_in(draft.values[reader], tensor, step.letters, value)
        except ValueError:  # a softmax that is read at a computed place, or on its diagonal
            continue
        if count_nodes(whole) <= _MOST_NODES:
            draft.values[reader] = whole
            del draft.values[tensor]
