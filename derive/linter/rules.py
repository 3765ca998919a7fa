"""The rules of the linter in families, then all in the order of their codes.

DE0 the call cannot run, DE1 it may not mean what was meant, DE2 it could be said better, DE9 the
file itself. A person chooses among them by words parted by commas: a code, the start of codes
(`DE1`), or a name.
"""

from __future__ import annotations

import ast
import re
from itertools import combinations
from string import ascii_letters
from typing import TYPE_CHECKING

from derive.errors import refuse, suggest
from derive.frontend.from_einsum import DOTS
from derive.linter.calls import is_atom
from derive.linter.plain import find_plain
from derive.linter.rule import Remark, Rule, Severity, rule
from derive.linter.scopes import find_shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from derive.frontend.from_einsum import Spec, Token
    from derive.linter.calls import Call
    from derive.linter.scopes import Shape

_PREFIX = {"torch": "torch", "numpy": "np", "jax": "jnp"}  # whose plain calls are told
_PLACES = re.compile(r"\d|\.T\b|\.sum\(\)|torch\.")  # what a stack of matrices does not stand
_HEAVY = re.compile(r" \* .*\.sum\(|\)\.mT$")  # a product that is stored before it is added up
_NAIVE = ("numpy", "einsum")
_LONGEST = 40
_MOST = 5  # operands for which all orders are tried


# What the reader of strings and patterns refuses, by the kinds of its faults.
INVALID_STRING = Rule(
    "DE001",
    "invalid-string",
    Severity.ERROR,
    "The string is no einsum string.",
    "Letters, commas, one ->, and nothing else; a pattern of einops has names and brackets.",
    'torch.einsum("ij,j1->i", A, x)',
    'torch.einsum("ij,jk->ik", A, x)',
    faults=("form", "character", "output"),
)
UNKNOWN_OUTPUT = Rule(
    "DE002",
    "unknown-output-letter",
    Severity.ERROR,
    "A letter of the output is in no operand.",
    "A letter of the output has its extent from an operand, so it must stand in one.",
    'torch.einsum("ij,jk->il", A, B)',
    'torch.einsum("ij,jk->ik", A, B)',
    faults=("output-unknown",),
)
REPEATED_OUTPUT = Rule(
    "DE003",
    "repeated-output-letter",
    Severity.ERROR,
    "A letter is in the output twice.",
    "No library builds a diagonal by a letter that the output has twice.",
    'torch.einsum("i->ii", x)',
    'torch.einsum("ii->i", A)',
    faults=("output-twice",),
)
INVALID_ELLIPSIS = Rule(
    "DE004",
    "invalid-ellipsis",
    Severity.ERROR,
    "Dots that are no ellipsis, or an ellipsis where there can be none.",
    "An ellipsis is three dots, once in a term; it stands for any number of indices.",
    'torch.einsum("..ij,...jk->...ik", A, B)',
    'torch.einsum("...ij,...jk->...ik", A, B)',
    faults=("ellipsis",),
)
PATTERN_NAMES = Rule(
    "DE008",
    "pattern-names",
    Severity.ERROR,
    "A name of a pattern is on one side alone, or twice on one side.",
    "rearrange keeps all names, reduce drops some, repeat adds some; einops refuses the rest.",
    'rearrange(x, "b (h d) -> b h c", h=8)',
    'rearrange(x, "b (h d) -> b h d", h=8)',
    faults=("names",),
)
PATTERN_SIZES = Rule(
    "DE009",
    "pattern-sizes",
    Severity.ERROR,
    "A size of a pattern is missing, or is given for a name that is not there.",
    "A bracket is split only if all its sizes but one are given; a given size must be used.",
    'rearrange(x, "b (h d) -> b h d")',
    'rearrange(x, "b (h d) -> b h d", d=64)',
    faults=("sizes",),
)


@rule(
    code="DE005",
    name="operand-count",
    severity=Severity.ERROR,
    why="The string has one term for each operand, parted by commas.",
    hurts='torch.einsum("ij,jk->ik", A, B, C)',
    fine='torch.einsum("ij,jk,kl->il", A, B, C)',
)
def find_miscounts(call: Call, spec: Spec) -> Iterator[Remark]:
    """The string has another number of operands than the call."""
    if call.operands is None:
        return
    wanted, given = len(spec.operands), len(call.operands)
    if wanted != given:
        terms = "1 operand" if wanted == 1 else f"{wanted} operands"
        says = f"the string has {terms}, the call {given}"
        advice = "give each operand its letters, parted by commas"
        yield Remark(says, advice, 0, len(call.written))


@rule(
    code="DE006",
    name="rank-mismatch",
    severity=Severity.ERROR,
    why="A term has one letter for each index of its tensor.",
    hurts='A = torch.zeros(2, 3, 4)\nx = torch.einsum("ij->ji", A)',
    fine='A = torch.zeros(2, 3)\nx = torch.einsum("ij->ji", A)',
)
def find_wrong_ranks(call: Call, spec: Spec) -> Iterator[Remark]:
    """A tensor has another number of indices than its term has indices."""
    for name, operand, shape in _find_shapes(call, spec):
        indices = [index for index in operand if index.name != DOTS]
        is_open = len(indices) < len(operand)
        if len(indices) > len(shape) or (not is_open and len(indices) < len(shape)):
            start, end = (operand[0].start, operand[-1].end) if operand else (-1, -1)
            says = f"{name} has {len(shape)} indices, its term {len(indices)} letters"
            yield Remark(says, "give each index one letter", start, end)


@rule(
    code="DE007",
    name="extent-mismatch",
    severity=Severity.ERROR,
    why="A letter is one index: it has the same extent wherever it stands.",
    hurts='A = torch.zeros(2, 3)\nB = torch.zeros(4, 5)\nx = torch.einsum("ij,jk->ik", A, B)',
    fine='A = torch.zeros(2, 3)\nB = torch.zeros(3, 5)\nx = torch.einsum("ij,jk->ik", A, B)',
)
def find_wrong_extents(call: Call, spec: Spec) -> Iterator[Remark]:
    """An index stands for two different extents."""
    known: dict[str, tuple[int, str]] = {}
    for name, operand, shape in _find_shapes(call, spec):
        if len(operand) != len(shape) or any(index.name == DOTS for index in operand):
            continue
        for index, extent in zip(operand, shape, strict=True):
            if extent is None or extent == 1:
                continue  # an extent of 1 is stretched, in all libraries
            before, where = known.setdefault(index.name, (extent, name))
            if before != extent:
                says = f"{index.name} has extent {before} in {where} and {extent} in {name}"
                advice = "correct a letter, or a shape"
                yield Remark(says, advice, index.start, index.end)


def _find_shapes(call: Call, spec: Spec) -> Iterator[tuple[str, Sequence[Token], Shape]]:
    """The operands whose shape is known, with their terms."""
    given = call.operands
    if given is None or len(given) != len(spec.operands):
        return
    if call.function not in {"einsum", "contract"}:
        return
    for name, operand, expr in zip(call.names, spec.operands, given, strict=True):
        shape = find_shape(expr, call.scope)
        if shape is not None:
            yield name, operand, shape


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
def find_repeated_indices(call: Call, spec: Spec) -> Iterator[Remark]:
    """An index repeated in one of several operands takes a diagonal."""
    if len(spec.operands) < 2:
        return  # alone in the call, a diagonal or a trace is what the call is for
    for name, operand in zip(call.names, spec.operands, strict=True):
        seen: set[str] = set()
        for index in operand:
            if index.name in seen:
                says = f"{name}: the repeated {index.name} takes the diagonal of"
                advice = "give the two indices two letters, unless the diagonal is meant"
                yield _at(index, f"{says} {spec.write(operand)}", advice)
            seen.add(index.name)


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
def find_lone_indices(call: Call, spec: Spec) -> Iterator[Remark]:
    """An index is summed because the output lacks it, in one operand alone."""
    if len(spec.operands) < 2 or not spec.output_names:
        return  # where the result is a number, everything is summed on purpose
    for k, (name, operand) in enumerate(zip(call.names, spec.operands, strict=True)):
        others = {n for m, names in enumerate(spec.names) if m != k for n in names}
        for index in {c.name: c for c in operand if c.name != DOTS}.values():
            if index.name not in others and index.name not in spec.output_names:
                says = f"{index.name} is in {name} alone and not in the result"
                advice = f"put {index.name} into the result, or sum {name} over it before"
                yield _at(index, f"{says}: {name} is added up over it", advice)


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
def find_same_tensors(call: Call, spec: Spec) -> Iterator[Remark]:
    """The same tensor is passed twice, under different indices."""
    given = call.operands
    if given is None or not len(given) == len(spec.operands) == 2:
        return  # among more operands, a tensor on both sides is a quadratic form
    one, other = spec.names
    # over another index than the last it is a covariance, or the square of a matrix
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
def find_implicit_outputs(call: Call, spec: Spec) -> Iterator[Remark]:
    """The output is not written, so its indices are in alphabetical order."""
    if spec.has_arrow or len(spec.output_names) < 2 or call.text is None:
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
def find_indices_by_case(call: Call, spec: Spec) -> Iterator[Remark]:
    """Two indices differ only by their case."""
    if spec.has_words:
        return
    for name in spec.indices:
        twin = name.swapcase()
        if name.islower() and twin in spec.indices:
            index = next(c for o in spec.operands for c in o if c.name == twin)
            says = f"{name} and {twin} are different indices"
            yield _at(index, says, f"name one of them by another letter than {name}")


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
def find_lost_ellipses(call: Call, spec: Spec) -> Iterator[Remark]:
    """One operand has an ellipsis and the output has none."""
    if not spec.has_arrow or any(c.name == DOTS for c in spec.output):
        return
    indices = [c for o in spec.operands for c in o if c.name == DOTS]
    # an ellipsis that all operands share, or that stands alone in the call, is summed on purpose
    is_lone = len(indices) == 1 < len(spec.operands)
    if indices and (is_lone or call.library == "numpy"):
        index = indices[0]
        does = "numpy raises" if call.library == "numpy" else "they are summed"
        says = f"the output has no ellipsis: if it stands for indices, {does}"
        yield _at(index, says, "write ... into the output too")


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
def find_permuted_outputs(call: Call, spec: Spec) -> Iterator[Remark]:
    """The output is one operand's indices in another order, elementwise."""
    if not spec.has_arrow or not _is_elementwise(spec):
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
def find_outer_products(call: Call, spec: Spec) -> Iterator[Remark]:
    """An operand shares no index with the others: an outer product."""
    if all(len(operand) < 2 for operand in spec.operands):
        return  # of vectors alone it is what the call is for
    for k, (name, operand) in enumerate(zip(call.names, spec.operands, strict=True)):
        others = {c.name for m, o in enumerate(spec.operands) if m != k for c in o}
        own = {c.name for c in operand}
        if own and others and not own & others:
            says = f"{name} shares no letter with the rest: an outer product"
            advice = "nothing to do if that is meant"
            yield Remark(says, advice, operand[0].start, operand[-1].end)
            return


def _at(index: Token, says: str, help: str) -> Remark:
    return Remark(says, help, index.start, index.end)


def _is_elementwise(spec: Spec) -> bool:
    """Whether two or more operands are multiplied and nothing is summed."""
    return len(spec.operands) > 1 and set(spec.indices) == set(spec.output_names)


def _is_same(one: ast.expr, other: ast.expr) -> bool:
    """Whether two expressions are the same text and make no call, which may differ every time."""
    if not isinstance(one, ast.Name | ast.Attribute | ast.Subscript):
        return False
    return ast.dump(one) == ast.dump(other) and not any(
        isinstance(node, ast.Call) for node in ast.walk(one)
    )


def find_unused_results(call: Call) -> Iterator[Remark]:
    """A call that is a statement of its own."""
    if call.has_more_keywords or "out" in call.keywords or call.function.endswith("_path"):
        return
    left, _, right = call.written.partition("->")
    if call.is_bare and left.split() != right.split():  # x -> x checks a shape
        yield Remark("the result is not used", "assign it, or take the call out")


UNUSED_RESULT = Rule(
    "DE106",
    "unused-result",
    Severity.WARNING,
    "The result is not used.",
    "An einsum changes nothing in place: as a statement of its own its result is lost.",
    'torch.einsum("ij,jk->ik", A, B)',
    'C = torch.einsum("ij,jk->ik", A, B)',
    find_unused_results,  # of patterns too
)


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
def find_unoptimized(call: Call, spec: Spec) -> Iterator[Remark]:
    """Three or more operands in one loop nest, since no order is looked for."""
    if len(spec.operands) < 3 or (call.library, call.function) != _NAIVE:
        return
    if call.has_more_keywords or "optimize" in call.keywords:
        return
    terms = [frozenset(c.name for c in operand) for operand in spec.operands]
    output = frozenset(c.name for c in spec.output)
    indices = len(output.union(*terms))
    if find_widest(terms, output) < indices:
        says = f"{len(terms)} operands go through one loop nest over all {indices} letters"
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
def find_plain_calls(call: Call, spec: Spec) -> Iterator[Remark]:
    """The string says what a plain call says."""
    if call.library not in _PREFIX or call.function != "einsum":
        return
    if call.operands is None or len(call.operands) != len(spec.operands):
        return
    names = tuple(_write(expr, k) for k, expr in enumerate(call.operands))
    if len(names) > 2:
        return
    written = "".join(call.written.split())
    marks = ("\0", "\1")[: len(names)]  # in place of the names, which may hold anything
    plain = _find_stacked(call, spec) if DOTS in written else find_plain(written, marks)
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
def find_paths_each_call(call: Call, spec: Spec) -> Iterator[Remark]:
    """Three or more operands, whose order is looked for at every call."""
    if len(spec.operands) < 3 or call.library != "torch":
        return
    says = f"torch looks for the order of {len(spec.operands)} operands at every call"
    advice = "write the steps in pairs"
    if not spec.has_words and DOTS not in call.written:
        advice += f'; derive einsum "{"".join(call.written.split())}" prints them'
    yield Remark(says, advice, 0, len(call.written))


def find_widest(terms: Sequence[frozenset[str]], output: frozenset[str]) -> int:
    """The indices of the widest step, in the order of pairs that keeps it narrowest."""
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


def _find_stacked(call: Call, spec: Spec) -> str:
    """The plain call where all terms begin with an ellipsis; the places in it must not count."""
    if len(spec.operands) != 2:
        return ""
    terms = [*spec.operands, spec.output]
    if not all(t and t[0].name == DOTS and len(t) > 2 for t in terms) or not spec.has_arrow:
        return ""
    fresh = next((c for c in ascii_letters if c not in call.written), "")
    if not fresh:
        return ""
    plain = find_plain("".join(call.written.replace(DOTS, fresh).split()), ("\0", "\1"))
    return "" if _PLACES.search(plain) else plain


SYNTAX = Rule(
    "DE901",
    "syntax-error",
    Severity.ERROR,
    "The file, or a cell of a notebook, is no Python.",
    "What cannot be parsed cannot be read for einsums. Files that mention none are not parsed.",
    'x = torch.einsum("ij->ji", A',
    'x = torch.einsum("iij->ij", A)',
)
UNREADABLE = Rule(
    "DE902",
    "unreadable-file",
    Severity.ERROR,
    "The file cannot be read, or is neither text nor a notebook.",
    "A file that is skipped without a word would count as clean.",
    "# -*- coding: no-such -*-",
    "# -*- coding: utf-8 -*-",
)
UNUSED_IGNORE = Rule(
    "DE903",
    "unused-ignore",
    Severity.WARNING,
    "A comment silences nothing.",
    "A comment that outlives its finding would silence the next one that comes along.",
    'x = torch.einsum("bij,bkl->bijkl", A, B)  # derive: ignore[DE101]',
    'x = torch.einsum("dd,bxcd->bxcd", W, x)  # derive: ignore[DE101]',
)

CALL_RULES: tuple[Rule, ...] = (
    INVALID_STRING,
    UNKNOWN_OUTPUT,
    REPEATED_OUTPUT,
    INVALID_ELLIPSIS,
    find_miscounts,
    find_wrong_ranks,
    find_wrong_extents,
    PATTERN_NAMES,
    PATTERN_SIZES,
    find_repeated_indices,
    find_lone_indices,
    find_same_tensors,
    find_implicit_outputs,
    find_lost_ellipses,
    UNUSED_RESULT,
    find_unoptimized,
    find_plain_calls,
    find_paths_each_call,
    find_permuted_outputs,
    find_outer_products,
    find_indices_by_case,
)
RULES: tuple[Rule, ...] = (*CALL_RULES, SYNTAX, UNREADABLE, UNUSED_IGNORE)


def find_rule(word: str) -> Rule:
    """The rule of a code or a name; DeriveError where there is none."""
    for each in RULES:
        if word.upper() == each.code or word == each.name:
            return each
    raise _refuse(word)


def choose(words: Iterable[str]) -> frozenset[str]:
    """The codes that the words choose; DeriveError for a word that chooses none."""
    codes: frozenset[str] = frozenset()
    for word in (w.strip() for text in words for w in text.split(",")):
        if not word:
            continue
        found = {r.code for r in RULES if r.name == word or r.code.startswith(word.upper())}
        if not found:
            raise _refuse(word)
        codes |= found
    return codes


def is_known(word: str) -> bool:
    """Whether a word is a rule's code or name."""
    return any(word.upper() == rule.code or word == rule.name for rule in RULES)


def _refuse(word: str) -> Exception:
    # a code near to another is another rule; a name near to another is a slip
    advice = (
        suggest(word, [rule.name for rule in RULES])
        or "derive lint --list shows all codes and names"
    )
    return refuse("rule-unknown", f"there is no rule {word}", help=advice)
