"""A plan: the steps of a generated function in order, what they cost, and the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from derive.errors import refuse
from derive.ir.polynomial import Polynomial, add_all, evaluate_atom
from derive.plan.costs import find_flops, find_held, find_kept
from derive.plan.ops import Einsum, Op, args_of, axes_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from derive.ir.nodes import Index, System


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


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
        return tuple(string for step in self.steps for string in self.find_einsums(step))

    def find_einsums(self, step: Step) -> tuple[str, ...]:
        """The einsum strings of one step, innermost first."""
        letters = find_letters(self.steps)
        parts = (op for op in walk_ops(step.op) if isinstance(op, Einsum))
        return tuple(to_equation(op, letters) for op in parts)

    @property
    def flops(self) -> Polynomial:
        """Multiplications, additions and function values, as a polynomial over sizes."""
        return add_all(find_flops(op) for s in self.steps for op in walk_ops(s.op))

    @property
    def peak_elements(self) -> Polynomial:
        """Elements alive together at the fullest moment, at the sizes of the plan.

        All named steps stay alive to the end; within a line, an operation's result and what it
        works on. Views and the arguments count for nothing.
        """
        moments = []
        before = Polynomial({})
        for step in self.steps:
            moments += [before + find_held(op) for op in walk_ops(step.op)]
            before = before + find_kept(step.op)
        return max([*moments, before], key=self.at_sizes)

    def at_sizes(self, polynomial: Polynomial, sizes: Mapping[str, int] | None = None) -> int:
        """A cost as a number, at these sizes or at those of the plan."""
        known = sizes or self.sizes
        return int(polynomial.evaluate(lambda atom: evaluate_atom(atom, known)))


def walk_ops(op: Op) -> Iterator[Op]:
    """The operation and all it works on, innermost first."""
    for arg in args_of(op):
        yield from walk_ops(arg)
    yield op


def find_letters(steps: Iterable[Step]) -> dict[Index, str]:
    """A letter for each index of the einsums: its own where it is one letter, else a free one.

    One letter means one index throughout, as long as there are letters enough.
    """
    einsums = [op for step in steps for op in walk_ops(step.op) if isinstance(op, Einsum)]
    return _assign_letters(tuple(dict.fromkeys(i for op in einsums for i in _indices_of(op))))


def _indices_of(op: Einsum) -> tuple[Index, ...]:
    return tuple(dict.fromkeys(i for arg in op.args for i in axes_of(arg)))


def _assign_letters(indices: tuple[Index, ...]) -> dict[Index, str]:
    letters = {i: i.name for i in indices if len(i.name) == 1 and i.name in LETTERS}
    free = [c for c in LETTERS if c not in letters.values()]
    for index in indices:
        if index not in letters and free:
            letters[index] = next((c for c in index.name if c in free), free[0])
            free.remove(letters[index])
    return letters


def to_equation(op: Einsum, letters: Mapping[Index, str]) -> str:
    """The einsum string; letters of its own where there are not enough for the whole plan."""
    indices = _indices_of(op)
    if any(index not in letters for index in indices):
        letters = _assign_letters(indices)
    if any(index not in letters for index in indices):
        raise refuse(
            "too-many-letters",
            f"one contraction has {len(indices)} indices, and torch {len(LETTERS)} letters",
            help="merge indices, or contract in equations of their own",
        )
    inputs = ",".join("".join(letters[i] for i in axes_of(arg)) for arg in op.args)
    return f"{inputs}->{''.join(letters[i] for i in op.axes)}"
