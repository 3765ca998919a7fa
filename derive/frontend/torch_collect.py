"""From the record of a run to a system of equations that a person can read.

prune     what no result rests on goes
inline    a step without a name of its own that is used once stands where it is used
rename    tensors by the variables of the code, letters by their sizes, each letter one extent
"""

from __future__ import annotations

from dataclasses import dataclass, field
from keyword import iskeyword
from typing import TYPE_CHECKING

from derive.frontend.torch_places import count_nodes, put
from derive.frontend.torch_shadow import hint_of
from derive.ir.nodes import (
    Access,
    Along,
    Equation,
    Expr,
    Index,
    Reduce,
    Scalar,
    ScalarInput,
    Size,
    SizeInput,
    System,
    Tensor,
)
from derive.ir.walk import map_children, walk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from derive.frontend.torch_shadow import Shadow
    from derive.frontend.torch_trace import Step, Trace

_MOST_NODES = 40  # of an equation into which another is put
_WORDS = "sum prod max min mean var softmax cumsum exp log sqrt oo pi where delta index size"


@dataclass
class Draft:
    """The equations on the way: by tensor, in order, and the line that each comes from."""

    steps: dict[Tensor, Step]
    values: dict[Tensor, Expr]
    results: list[Tensor]
    lines: dict[str, int] = field(default_factory=dict)


def collect(
    trace: Trace,
    results: Sequence[Shadow],
    inputs: Sequence[Tensor | ScalarInput],
    sizes: Sequence[str],
    name: str,
) -> tuple[System, dict[str, int]]:
    """The system that computes the results, and the line of each of its equations."""
    draft = _draft(trace, results)
    _prune(draft)
    _inline(draft)
    _prune(draft)
    return _rename(draft, tuple(inputs), tuple(sizes), name)


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


def _prune(draft: Draft) -> None:
    """What no result rests on is left out."""
    needed: dict[Tensor, None] = {}
    todo = list(draft.results)
    while todo:
        tensor = todo.pop()
        if tensor in needed or tensor not in draft.values:
            continue
        needed[tensor] = None
        todo += [part.tensor for part in _accesses(draft.values[tensor])]
    draft.values = {tensor: value for tensor, value in draft.values.items() if tensor in needed}


def _accesses(value: Expr) -> Iterator[Access]:
    return (part for part in walk(value) if isinstance(part, Access))


def _inline(draft: Draft) -> None:
    """Steps without a name that are read once, put where they are read."""
    uses: dict[Tensor, int] = {}
    for value in draft.values.values():
        for access in _count_accesses(value):
            uses[access.tensor] = uses.get(access.tensor, 0) + 1
    for tensor in list(draft.values):
        step = draft.steps[tensor]
        if step.spot.name or tensor in draft.results or uses.get(tensor) != 1:
            continue
        value = draft.values[tensor]
        reader = next(t for t, v in draft.values.items() if _reads(v, tensor))
        try:
            whole = _put_in(draft.values[reader], tensor, step.letters, value)
        except ValueError:  # a softmax that is read at a computed place, or on its diagonal
            continue
        if count_nodes(whole) <= _MOST_NODES:
            draft.values[reader] = whole
            del draft.values[tensor]


def _count_accesses(value: Expr) -> Iterator[Access]:
    """Every place where a tensor is read, also where the same node stands twice."""
    match value:
        case Access(_, places):
            yield value
            for place in places:
                yield from _count_accesses(place)
        case _:
            for child in _children(value):
                yield from _count_accesses(child)


def _children(value: Expr) -> tuple[Expr, ...]:
    found: list[Expr] = []

    def note(child: Expr) -> Expr:
        found.append(child)
        return child

    map_children(value, note)
    return tuple(found)


def _reads(value: Expr, tensor: Tensor) -> bool:
    return any(access.tensor is tensor for access in _accesses(value))


def _put_in(value: Expr, tensor: Tensor, letters: Sequence[Index], inner: Expr) -> Expr:
    def visit(here: Expr) -> Expr:
        new = map_children(here, visit)
        if isinstance(new, Access) and new.tensor is tensor:
            return put(inner, tuple(letters), new.places)
        return new

    return visit(value)


class _Names:
    """One namespace: tensors, sizes, scalars, and letters, of which each has one extent."""

    def __init__(self, taken: Sequence[str]) -> None:
        self.taken = dict.fromkeys((*taken, *_WORDS.split()))
        self.extents: dict[str, Expr] = {}

    def make(self, wish: str) -> str:
        """A new name for a tensor."""
        wish = wish if wish.isidentifier() and not iskeyword(wish) else "t"
        wish = wish.lstrip("_") or "t"
        number, name = 1, wish
        while name in self.taken or name in self.extents:
            number += 1
            name = f"{wish}_{number}"
        self.taken[name] = None
        return name

    def letter(self, index: Index, used: Mapping[str, None]) -> str:
        """A letter for an index, not used in this equation, of the index's extent."""
        wish = hint_of(index) or _wish(index.extent)
        number, name = 0, wish
        while (
            name in used
            or name in self.taken
            or self.extents.get(name, index.extent) is not index.extent
        ):
            number += 1
            name = f"{wish}{number}"
        self.extents[name] = index.extent
        return name


def _wish(extent: Expr) -> str:
    if isinstance(extent, Size) and extent.name[0].lower() != extent.name[0]:
        return extent.name.lower()
    return "i"


def _rename(
    draft: Draft, inputs: tuple[Tensor | ScalarInput, ...], sizes: tuple[str, ...], name: str
) -> tuple[System, dict[str, int]]:
    names = _Names([*(entry.name for entry in inputs), *_list_names(draft), *sizes, name])
    tensors: dict[Tensor, Tensor] = {}
    equations, lines = [], {}
    for tensor, value in draft.values.items():
        step = draft.steps[tensor]
        wish = step.spot.name or ("out" if tensor in draft.results else "t")
        tensors[tensor] = Tensor(names.make(wish), tensor.shape, tensor.kind)
        lines[tensors[tensor].name] = step.spot.line
        equations.append(_rename_equation(names, tensors, tensor, step.letters, value))
    told = {
        a.name
        for e in inputs
        if isinstance(e, Tensor)
        for s in e.shape
        for a in walk(s)
        if isinstance(a, Size)
    }
    free = tuple(
        SizeInput(size) for size in sizes if size not in told and _is_used(equations, size)
    )
    results = tuple(tensors[tensor] for tensor in draft.results)
    return System(name, inputs, free, tuple(equations), results), lines


def _list_names(draft: Draft) -> list[str]:
    """Sizes and scalars that the equations read."""
    atoms = (part for value in draft.values.values() for part in walk(value))
    return [part.name for part in atoms if isinstance(part, (Size, Scalar))]


def _is_used(equations: Sequence[Equation], size: str) -> bool:
    return any(
        isinstance(part, Size) and part.name == size
        for equation in equations
        for side in (equation.target, equation.value)
        for part in walk(side)
    )


def _rename_equation(
    names: _Names,
    tensors: Mapping[Tensor, Tensor],
    tensor: Tensor,
    letters: Sequence[Index],
    value: Expr,
) -> Equation:
    new: dict[Index, Index] = {}
    used: dict[str, None] = {}

    def rename(index: Index) -> Index:
        if index not in new:
            letter = names.letter(index, used)
            used[letter] = None
            new[index] = Index(letter, index.extent)
        return new[index]

    def visit(here: Expr) -> Expr:
        match here:
            case Index():
                return rename(here)
            case Access(read, places):
                return Access(tensors.get(read, read), tuple(map(visit, places)))
            case Reduce(kind, bound, condition, body):
                return Reduce(kind, tuple(map(rename, bound)), visit(condition), visit(body))
            case Along(kind, index, condition, body):
                return Along(kind, rename(index), visit(condition), visit(body))
        return map_children(here, visit)

    target = Access(tensors[tensor], tuple(rename(letter) for letter in letters))
    return Equation(target, visit(value))
