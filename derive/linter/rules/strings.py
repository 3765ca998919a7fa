"""Rules on what cannot run: the string, the number of operands, the patterns of einops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.linter.finding import Remark, Severity
from derive.linter.rule import rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.linter.calls import Call


@rule(
    code="DE001",
    name="invalid-string",
    severity=Severity.ERROR,
    why="Letters, commas, one ->, and nothing else; a pattern of einops has names and brackets.",
    hurts='torch.einsum("ij,j1->i", A, x)',
    fine='torch.einsum("ij,jk->ik", A, x)',
)
def find_invalid_strings(call: Call) -> Iterator[Remark]:
    """The string is no einsum string."""
    yield from _tell(call, "invalid-string")


@rule(
    code="DE002",
    name="unknown-output-letter",
    severity=Severity.ERROR,
    why="A letter of the output has its extent from an operand, so it must stand in one.",
    hurts='torch.einsum("ij,jk->il", A, B)',
    fine='torch.einsum("ij,jk->ik", A, B)',
)
def find_unknown_output_letters(call: Call) -> Iterator[Remark]:
    """A letter of the output is in no operand."""
    yield from _tell(call, "unknown-output-letter")


@rule(
    code="DE003",
    name="repeated-output-letter",
    severity=Severity.ERROR,
    why="No library builds a diagonal by a letter that the output has twice.",
    hurts='torch.einsum("i->ii", x)',
    fine='torch.einsum("ii->i", A)',
)
def find_repeated_output_letters(call: Call) -> Iterator[Remark]:
    """A letter is in the output twice."""
    yield from _tell(call, "repeated-output-letter")


@rule(
    code="DE004",
    name="invalid-ellipsis",
    severity=Severity.ERROR,
    why="An ellipsis is three dots, once in a term; it stands for any number of indices.",
    hurts='torch.einsum("..ij,...jk->...ik", A, B)',
    fine='torch.einsum("...ij,...jk->...ik", A, B)',
)
def find_invalid_ellipses(call: Call) -> Iterator[Remark]:
    """Dots that are no ellipsis, or an ellipsis where there can be none."""
    yield from _tell(call, "invalid-ellipsis")


@rule(
    code="DE005",
    name="operand-count",
    severity=Severity.ERROR,
    why="The string has one term for each operand, parted by commas.",
    hurts='torch.einsum("ij,jk->ik", A, B, C)',
    fine='torch.einsum("ij,jk,kl->il", A, B, C)',
)
def find_miscounts(call: Call) -> Iterator[Remark]:
    """The string has another number of operands than the call."""
    if call.spec is None or call.operands is None:
        return
    wanted, given = len(call.spec.operands), len(call.operands)
    if wanted != given:
        terms = "1 operand" if wanted == 1 else f"{wanted} operands"
        says = f"the string has {terms}, the call {given}"
        advice = "give each operand its letters, parted by commas"
        yield Remark(says, advice, 0, len(call.written))


@rule(
    code="DE008",
    name="pattern-names",
    severity=Severity.ERROR,
    why="rearrange keeps all names, reduce drops some, repeat adds some; einops refuses the rest.",
    hurts='rearrange(x, "b (h d) -> b h c", h=8)',
    fine='rearrange(x, "b (h d) -> b h d", h=8)',
)
def find_pattern_names(call: Call) -> Iterator[Remark]:
    """A name of a pattern is on one side alone, or twice on one side."""
    yield from _tell(call, "pattern-names")


@rule(
    code="DE009",
    name="pattern-sizes",
    severity=Severity.ERROR,
    why="A bracket is split only if all its sizes but one are given; a given size must be used.",
    hurts='rearrange(x, "b (h d) -> b h d")',
    fine='rearrange(x, "b (h d) -> b h d", d=64)',
)
def find_pattern_sizes(call: Call) -> Iterator[Remark]:
    """A size of a pattern is missing, or is given for a name that is not there."""
    yield from _tell(call, "pattern-sizes")


def _tell(call: Call, kind: str) -> Iterator[Remark]:
    fault = call.fault
    if fault is not None and fault.kind == kind:
        is_whole = fault.start < 0
        start, end = (0, len(call.written)) if is_whole else (fault.start, fault.end)
        yield Remark(fault.says, fault.help, start, end, fault.facts)
