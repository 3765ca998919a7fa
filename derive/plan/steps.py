"""A plan: the steps of a generated function in order, what they cost, and the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from derive.ir.polynomial import Polynomial, add_all, evaluate_atom
from derive.plan.costs import find_flops, find_kept
from derive.plan.ops import Einsum, Op, args_of, axes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from derive.ir.nodes import Index, System


@dataclass(frozen=True, slots=True)
class Step:
    """One line of the generated function: a name and the operation that gives it."""

    name: str
    op: Op

    @property
    def axes(self) -> tuple[Index, ...]:
        """The indices of the result, in order."""
        return axes_of(self.op)


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps in order, the operations that give the results, and the sizes it was made for."""

    system: System
    steps: tuple[Step, ...]
    results: tuple[Op, ...]
    sizes: Mapping[str, int]
    notes: tuple[str, ...] = ()

    @property
    def einsums(self) -> tuple[str, ...]:
        """The einsum strings over the user's letters, in order of the steps."""
        return tuple(
            to_equation(op)
            for step in self.steps
            for op in walk_ops(step.op)
            if isinstance(op, Einsum)
        )

    @property
    def flops(self) -> Polynomial:
        """Multiplications, additions and function values, as a polynomial over sizes."""
        return add_all(find_flops(op) for s in self.steps for op in walk_ops(s.op))

    @property
    def peak_elements(self) -> Polynomial:
        """Elements of all intermediates that are alive together at the end, results included."""
        return add_all(find_kept(step.op) for step in self.steps)

    def at_sizes(self, polynomial: Polynomial, sizes: Mapping[str, int] | None = None) -> int:
        """A cost as a number, at these sizes or at those of the plan."""
        known = sizes or self.sizes
        return int(polynomial.evaluate(lambda atom: evaluate_atom(atom, known)))


def walk_ops(op: Op) -> Iterator[Op]:
    """The operation and all it works on, innermost first."""
    for arg in args_of(op):
        yield from walk_ops(arg)
    yield op


def assign_letters(op: Einsum) -> dict[Index, str]:
    """A letter for each index of an einsum: its own where it is one letter, else a free one."""
    indices = dict.fromkeys(i for arg in op.args for i in axes_of(arg)) | dict.fromkeys(op.axes)
    letters = {
        i: i.name for i in indices if len(i.name) == 1 and i.name.isascii() and i.name.isalpha()
    }
    free = [
        c
        for c in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
        if c not in letters.values()
    ]
    for index in indices:
        if index not in letters:
            wish = [c for c in index.name if c in free]
            letters[index] = wish[0] if wish else free[0]
            free.remove(letters[index])
    return letters


def to_equation(op: Einsum) -> str:
    """The einsum string."""
    letters = assign_letters(op)
    inputs = ",".join("".join(letters[i] for i in axes_of(arg)) for arg in op.args)
    return f"{inputs}->{''.join(letters[i] for i in op.axes)}"
