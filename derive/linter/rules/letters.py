"""Rules on what the letters say: valid strings that may not mean what was meant."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from derive.linter.finding import Remark, Severity
from derive.linter.rule import rule
from derive.linter.spec import DOTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.linter.calls import Call
    from derive.linter.spec import Letter, Spec


@rule(
    code="DE101",
    name="repeated-letter",
    severity=Severity.WARNING,
    why=(
        "A letter that one operand has twice takes its diagonal: everything beside the diagonal"
        " is never read. Among several operands that is mostly a slip of the pen."
    ),
    hurts='torch.einsum("dd,bxcd->bxcd", W, x)',
    fine='torch.einsum("dk,bxck->bxcd", W, x)',
)
def find_repeated_letters(call: Call) -> Iterator[Remark]:
    """A letter repeated in one of several operands takes a diagonal."""
    spec = call.spec
    if spec is None or len(spec.operands) < 2:
        return  # alone in the call, a diagonal or a trace is what the call is for
    for name, operand in zip(call.names, spec.operands, strict=True):
        seen: set[str] = set()
        for letter in operand:
            if letter.name in seen:
                says = f"{name}: the repeated {letter.name} takes the diagonal of"
                advice = "give the two indices two letters, unless the diagonal is meant"
                yield _at(letter, f"{says} {spec.write(operand)}", advice)
            seen.add(letter.name)


@rule(
    code="DE102",
    name="lone-letter",
    severity=Severity.WARNING,
    why=(
        "A letter that stands in one operand and not in the output is summed there, before"
        " anything is multiplied. A forgotten letter of the output looks the same."
    ),
    is_rare=True,
    hurts='torch.einsum("bij,bk->bi", A, x)',
    fine='torch.einsum("bij,bj->bi", A, x)',
)
def find_lone_letters(call: Call) -> Iterator[Remark]:
    """A letter is summed because the output lacks it, in one operand alone."""
    spec = call.spec
    if spec is None or len(spec.operands) < 2 or not spec.output_names:
        return  # where the result is a number, everything is summed on purpose
    for k, (name, operand) in enumerate(zip(call.names, spec.operands, strict=True)):
        others = {n for m, names in enumerate(spec.names) if m != k for n in names}
        for letter in {c.name: c for c in operand if c.name != DOTS}.values():
            if letter.name not in others and letter.name not in spec.output_names:
                says = f"{letter.name} is in {name} alone and not in the result"
                advice = f"put {letter.name} into the result, or sum {name} over it before"
                yield _at(letter, f"{says}: {name} is added up over it", advice)


@rule(
    code="DE103",
    name="same-tensor-twice",
    severity=Severity.WARNING,
    why=(
        "Queries multiplied with queries, where keys were meant, give numbers of the right shape."
        " Told of are products summed over the last letter of both, not squares, outer products,"
        " covariances and quadratic forms."
    ),
    is_rare=True,
    hurts='torch.einsum("bid,bjd->bij", q, q)',
    fine='torch.einsum("bid,bjd->bij", q, k)',
)
def find_same_tensors(call: Call) -> Iterator[Remark]:
    """The same tensor is passed twice, under different letters."""
    spec, given = call.spec, call.operands
    if spec is None or given is None or not len(given) == len(spec.operands) == 2:
        return  # among more operands, a tensor on both sides is a quadratic form
    one, other = spec.names
    # over another letter than the last it is a covariance, or the square of a matrix
    is_summed = one[-1:] == other[-1:] and not set(one[-1:]) <= set(spec.output_names)
    if one != other and is_summed and _is_same(*given):
        first, second = spec.operands
        says = f"{call.names[0]} is passed twice, as {spec.write(first)} and as"
        advice = "is one of them meant to be another tensor?"
        yield Remark(f"{says} {spec.write(second)}", advice, second[0].start, second[-1].end)


@rule(
    code="DE104",
    name="implicit-output",
    severity=Severity.WARNING,
    why=(
        "Without -> the output has the letters that occur once, in alphabetical order: renaming a"
        ' letter may transpose the result. "ba" alone is a transposition.'
    ),
    hurts='np.einsum("ki,jk", A, B)',
    fine='np.einsum("ki,jk->ij", A, B)',
)
def find_implicit_outputs(call: Call) -> Iterator[Remark]:
    """The output is not written, so its letters are in alphabetical order."""
    spec = call.spec
    if spec is None or spec.has_arrow or len(spec.output_names) < 2 or call.text is None:
        return
    output = spec.write(spec.output)
    says = f"without -> the result is in alphabetical order: ->{output}"
    advice = f'write "{call.written.strip()}->{output}"'
    yield Remark(says, advice, 0, len(call.written))


@rule(
    code="DE205",
    name="letters-by-case",
    severity=Severity.INFO,
    why="i and I are two indices; where both stand in one string, one is soon read for the other.",
    hurts='torch.einsum("bnd,bNd->bnN", q, k)',
    fine='torch.einsum("bnd,bmd->bnm", q, k)',
)
def find_letters_by_case(call: Call) -> Iterator[Remark]:
    """Two letters differ only by their case."""
    spec = call.spec
    if spec is None or spec.has_words:
        return
    for name in spec.letters:
        twin = name.swapcase()
        if name.islower() and twin in spec.letters:
            letter = next(c for o in spec.operands for c in o if c.name == twin)
            says = f"{name} and {twin} are different indices"
            yield _at(letter, says, f"name one of them by another letter than {name}")


@rule(
    code="DE105",
    name="lost-ellipsis",
    severity=Severity.WARNING,
    why=(
        "Where one of several operands has an ellipsis and the output has none, torch and"
        " opt_einsum sum over all that it stands for. numpy raises, with one operand too."
    ),
    hurts='torch.einsum("...ij,jk->ik", A, B)',
    fine='torch.einsum("...ij,jk->...ik", A, B)',
)
def find_lost_ellipses(call: Call) -> Iterator[Remark]:
    """One operand has an ellipsis and the output has none."""
    spec = call.spec
    if spec is None or not spec.has_arrow or any(c.name == DOTS for c in spec.output):
        return
    letters = [c for o in spec.operands for c in o if c.name == DOTS]
    # an ellipsis that all operands share, or that stands alone in the call, is summed on purpose
    is_lone = len(letters) == 1 < len(spec.operands)
    if letters and (is_lone or call.library == "numpy"):
        letter = letters[0]
        does = "numpy raises" if call.library == "numpy" else "they are summed"
        says = f"the output has no ellipsis: if it stands for indices, {does}"
        yield _at(letter, says, "write ... into the output too")


@rule(
    code="DE203",
    name="permuted-output",
    severity=Severity.INFO,
    why=(
        "An operand's letters in another order: the call multiplies elementwise and transposes at"
        " once. That is right as often as not; it is only easy to overlook."
    ),
    hurts='torch.einsum("bhij,h->bijh", A, x)',
    fine='torch.einsum("bhij,h->bhij", A, x)',
)
def find_permuted_outputs(call: Call) -> Iterator[Remark]:
    """The output is one operand's letters in another order, elementwise."""
    spec = call.spec
    if spec is None or not spec.has_arrow or not _is_elementwise(spec):
        return
    wanted = sorted(spec.output_names)
    if any(names == spec.output_names for names in spec.names):
        return
    for name, operand, names in zip(call.names, spec.operands, spec.names, strict=True):
        if sorted(names) == wanted and len(names) > 1:
            start, end = spec.output[0].start, spec.output[-1].end
            says = f"{name} comes out transposed, from {spec.write(operand)}"
            says += f" to {spec.write(spec.output)}"
            yield Remark(says, "nothing to do if that is meant", start, end)
            return


@rule(
    code="DE204",
    name="outer-product",
    severity=Severity.INFO,
    why="No letter is shared, so every element meets every other: the result may be large.",
    hurts='torch.einsum("bi,cj->bicj", x, y)',
    fine='torch.einsum("bi,bj->bij", x, y)',
)
def find_outer_products(call: Call) -> Iterator[Remark]:
    """An operand shares no letter with the others: an outer product."""
    spec = call.spec
    if spec is None or all(len(operand) < 2 for operand in spec.operands):
        return  # of vectors alone it is what the call is for
    for k, (name, operand) in enumerate(zip(call.names, spec.operands, strict=True)):
        others = {c.name for m, o in enumerate(spec.operands) if m != k for c in o}
        own = {c.name for c in operand}
        if own and others and not own & others:
            says = f"{name} shares no letter with the rest: an outer product"
            advice = "nothing to do if that is meant"
            yield Remark(says, advice, operand[0].start, operand[-1].end)
            return


def _at(letter: Letter, says: str, help: str) -> Remark:
    return Remark(says, help, letter.start, letter.end)


def _is_elementwise(spec: Spec) -> bool:
    """Whether two or more operands are multiplied and nothing is summed."""
    return len(spec.operands) > 1 and set(spec.letters) == set(spec.output_names)


def _is_same(one: ast.expr, other: ast.expr) -> bool:
    """Whether two expressions are the same text and make no call, which may differ every time."""
    if not isinstance(one, ast.Name | ast.Attribute | ast.Subscript):
        return False
    return ast.dump(one) == ast.dump(other) and not any(
        isinstance(node, ast.Call) for node in ast.walk(one)
    )
