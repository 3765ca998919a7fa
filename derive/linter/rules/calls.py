"""Rules on how a call stands in the code: what becomes of it, what it costs, what it could be."""

from __future__ import annotations

import ast
import re
from itertools import combinations
from typing import TYPE_CHECKING

from derive.linter.calls import is_atom
from derive.linter.finding import Remark, Severity
from derive.linter.rule import rule
from derive.linter.spec import DOTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from derive.linter.calls import Call

_PREFIX = {"torch": "torch", "numpy": "np", "jax": "jnp"}  # whose plain calls are told
_PLACES = re.compile(r"\d|\.T\b|\.sum\(\)|torch\.")  # what a stack of matrices does not stand
_HEAVY = re.compile(r" \* .*\.sum\(|\)\.mT$")  # a product that is stored before it is added up
_NAIVE = ("numpy", "einsum")
_LONGEST = 40
_MOST = 5  # operands for which all orders are tried


@rule(
    code="DE106",
    name="unused-result",
    severity=Severity.WARNING,
    why="An einsum changes nothing in place: as a statement of its own its result is lost.",
    hurts='torch.einsum("ij,jk->ik", A, B)',
    fine='C = torch.einsum("ij,jk->ik", A, B)',
)
def find_unused_results(call: Call) -> Iterator[Remark]:
    """The result is not used."""
    if call.has_more_keywords or "out" in call.keywords or call.function.endswith("_path"):
        return
    left, _, right = call.written.partition("->")
    if call.is_bare and left.split() != right.split():  # x -> x checks a shape
        yield Remark("the result is not used", "assign it, or take the call out")


@rule(
    code="DE107",
    name="unoptimized",
    severity=Severity.WARNING,
    why=(
        "numpy.einsum multiplies all operands in one loop nest over all letters unless it is told"
        " to look for an order, which may be slower by whole powers of a size. opt_einsum, jax and"
        " torch look for an order by themselves."
    ),
    hurts='x = np.einsum("ij,jk,kl->il", A, B, C)',
    fine='x = np.einsum("ij,jk,kl->il", A, B, C, optimize=True)',
)
def find_unoptimized(call: Call) -> Iterator[Remark]:
    """Three or more operands in one loop nest, since no order is looked for."""
    spec = call.spec
    if spec is None or len(spec.operands) < 3 or (call.library, call.function) != _NAIVE:
        return
    if call.has_more_keywords or "optimize" in call.keywords:
        return
    terms = [frozenset(c.name for c in operand) for operand in spec.operands]
    output = frozenset(c.name for c in spec.output)
    letters = len(output.union(*terms))
    if find_widest(terms, output) < letters:
        says = f"{len(terms)} operands go through one loop nest over all {letters} letters"
        advice = "pass optimize=True"
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
    if not plain or _HEAVY.search(plain):
        return
    plain = plain.replace("torch.", f"{_PREFIX[call.library]}.")
    if call.library != "torch":
        plain = plain.replace(".permute(", ".transpose(")
    for mark, name in zip(marks, names, strict=True):
        plain = plain.replace(mark, name)
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


def find_widest(terms: Sequence[frozenset[str]], output: frozenset[str]) -> int:
    """The letters of the widest step, in the order of pairs that keeps it narrowest."""
    if len(terms) < 2:
        return max((len(term) for term in terms), default=0)
    pairs = list(combinations(range(len(terms)), 2))
    widths = []
    for k, m in pairs if len(terms) <= _MOST else pairs[:1]:
        rest = [term for n, term in enumerate(terms) if n not in (k, m)]
        both = terms[k] | terms[m]
        kept = both & output.union(*rest)
        widths.append(max(len(both), find_widest([*rest, kept], output)))
    return min(widths)


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
