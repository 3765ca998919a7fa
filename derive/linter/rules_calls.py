"""Rules on how a call stands in the code: what becomes of it, what it costs, what it could be."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from derive.linter.calls import is_atom
from derive.linter.finding import Remark, Severity
from derive.linter.rule import rule
from derive.linter.spec import DOTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from derive.linter.calls import Call

_PREFIX = {"torch": "torch", "numpy": "np", "jax": "jnp"}  # whose plain calls are told
_PLACES = re.compile(r"\d|\.T\b|\.sum\(\)|torch\.")  # what a stack of matrices does not stand
_LONGEST = 40


@rule(
    code="DE107",
    name="unused-result",
    severity=Severity.WARNING,
    why="An einsum changes nothing in place: as a statement of its own its result is lost.",
    hurts='torch.einsum("ij,jk->ik", A, B)',
    fine='C = torch.einsum("ij,jk->ik", A, B)',
)
def find_unused_results(call: Call) -> Iterator[Remark]:
    """The result is not used."""
    if call.is_bare and "out" not in call.keywords and not call.has_more_keywords:
        yield Remark("the result is not used", "assign it, or take the call out")


@rule(
    code="DE108",
    name="unoptimized",
    severity=Severity.WARNING,
    why=(
        "numpy.einsum multiplies all operands in one loop nest over all letters unless it is told"
        " to look for an order: for three and more that is slower by whole powers of a size."
    ),
    hurts='x = np.einsum("ij,jk,kl->il", A, B, C)',
    fine='x = np.einsum("ij,jk,kl->il", A, B, C, optimize=True)',
)
def find_unoptimized(call: Call) -> Iterator[Remark]:
    """Three or more operands in one loop nest, since no order is looked for."""
    spec = call.spec
    if spec is None or len(spec.operands) < 3 or call.has_more_keywords:
        return
    if call.function not in {"einsum", "contract"} or call.library not in {"numpy", "opt_einsum"}:
        return
    summed = set(spec.letters) - set(spec.output_names)
    asked = call.keywords.get("optimize")
    is_off = isinstance(asked, ast.Constant) and asked.value in (False, None)
    if summed and (is_off or (asked is None and call.library == "numpy")):
        says = f"{len(spec.operands)} operands go through one loop nest over all letters"
        advice = "pass optimize=True" if call.library == "numpy" else "leave optimize out"
        yield Remark(says, advice, 0, len(call.written))


@rule(
    code="DE201",
    name="plain-call",
    severity=Severity.INFO,
    why="A matrix product, a transposition, a sum or a trace has a name that all readers know.",
    hurts='x = torch.einsum("bij,bjk->bik", A, B)',
    fine='x = torch.einsum("bihd,bjhd->bhij", q, k)',
)
def find_plain_calls(call: Call) -> Iterator[Remark]:
    """The string says what a plain call says."""
    spec = call.spec
    if spec is None or call.library not in _PREFIX or call.function != "einsum":
        return
    if call.operands is None or len(call.operands) != len(spec.operands):
        return
    names = tuple(_write(expr, k) for k, expr in enumerate(call.operands))
    if len(names) > 2:
        return
    written = "".join(call.written.split())
    marks = ("\0", "\1")[: len(names)]  # in place of the names, which may hold anything
    plain = _find_stacked(call) if DOTS in written else call.find_plain(written, marks)
    plain = plain.replace("torch.", f"{_PREFIX[call.library]}.")
    if call.library != "torch":
        plain = plain.replace(".permute(", ".transpose(")
    for mark, name in zip(marks, names, strict=True):
        plain = plain.replace(mark, name)
    if plain:
        advice = "write it so, unless the letters tell more"
        yield Remark(f"the same as {plain}", advice, 0, len(call.written))


@rule(
    code="DE202",
    name="path-each-call",
    severity=Severity.INFO,
    why=(
        "torch.einsum looks for the order of three or more operands at every call, or goes from"
        " left to right where opt_einsum is missing; torch.compile compiles anew for new sizes."
    ),
    hurts='x = torch.einsum("ij,jk,kl->il", A, B, C)',
    fine='x = torch.einsum("ij,jk->ik", A, B)',
)
def find_paths_each_call(call: Call) -> Iterator[Remark]:
    """Three or more operands, whose order is looked for at every call."""
    spec = call.spec
    if spec is None or len(spec.operands) < 3 or call.library != "torch":
        return
    says = f"torch looks for the order of {len(spec.operands)} operands at every call"
    advice = "write the steps in pairs"
    if not spec.has_words and DOTS not in call.written:
        advice += f'; derive einsum "{"".join(call.written.split())}" prints them'
    yield Remark(says, advice, 0, len(call.written))


def _write(expr: ast.expr, place: int) -> str:
    """The operand as it is written, in brackets where it must be; a word where it is long."""
    text = ast.unparse(expr)
    if len(text) > _LONGEST or "\n" in text:
        return ("first", "second", "third")[min(place, 2)]
    return text if is_atom(expr) else f"({text})"


def _find_stacked(call: Call) -> str:
    """The plain call where all terms begin with an ellipsis; the places in it must not count."""
    spec = call.spec
    if spec is None or len(spec.operands) != 2:
        return ""
    terms = [*spec.operands, spec.output]
    if not all(t and t[0].name == DOTS and len(t) > 2 for t in terms) or not spec.has_arrow:
        return ""
    fresh = next((c for c in "zyxwvutsrq" if c not in call.written), "")
    if not fresh:
        return ""
    plain = call.find_plain("".join(call.written.replace(DOTS, fresh).split()), ("\0", "\1"))
    return "" if _PLACES.search(plain) else plain
