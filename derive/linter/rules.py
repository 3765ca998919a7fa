"""The rules of the linter, each with a chapter: the finding, the reason, a bad and a good example.

DE0 the call cannot run, DE1 it is probably not intended, DE2 it could be written better, DE9 the
file itself. Words separated by commas select rules: a code, the start of codes (`DE1`), or a name.
A rule checks one call with a valid string, or reports faults of strings. One parametrised test
lints both examples of each rule, behind PRELUDE.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations, islice

from derive.errors import refuse, suggest
from derive.frontend.from_einsum import DOTS, Spec, Token
from derive.linter import scopes
from derive.linter.calls import Call, find_diagonals, find_lone_letters, find_outer, find_plain

# imports behind which the examples run
PRELUDE = """\
import torch
import numpy as np
import jax.numpy as jnp
import opt_einsum as oe
from einops import einsum
"""
_PREFIX = {"torch": "torch", "numpy": "np", "jax": "jnp"}  # libraries whose plain calls are named
# calls that do not apply to a stack of matrices
_PLACES = re.compile(r"\d|\.T\b|\.sum\(\)|torch\.")
_HEAVY = re.compile(r" \* .*\.sum\(|\)\.mT$")  # a product that is stored before its sum
_LONGEST = 40
_MOST = 5  # operands for which all orders are tried


class Severity(StrEnum):
    """The weight of a finding: code with infos only is clean."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


ERROR, WARNING, INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


@dataclass(frozen=True, slots=True)
class Remark:
    """A message about one call; columns are those of the einsum string, -1 for all of it."""

    says: str
    help: str = ""
    start: int = -1
    end: int = -1
    facts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule; `find` is None for faults of strings and for findings about a file."""

    code: str
    name: str
    severity: Severity
    title: str
    why: str
    hurts: str  # an example with the finding
    fine: str  # the example without it
    find: Callable[[Call], Iterable[Remark]] | None = None
    faults: tuple[str, ...] = ()  # kinds of faults of a string that the rule reports
    is_rare: bool = False  # mostly intended in code: off by default

    def find_remarks(self, call: Call) -> Iterable[Remark]:
        """The remarks on a call and on the fault of its string."""
        fault = call.fault
        if fault is None or fault.kind not in self.faults:
            return self.find(call) if self.find else ()
        help = fault.help
        if fault.kind == "output-twice":
            help += "; torch.diag_embed builds a diagonal"
        start, end = (0, len(call.written)) if fault.start < 0 else (fault.start, fault.end)
        return (Remark(fault.says, help, start, end, fault.facts),)


def _read_chapter(text: str) -> tuple[str, str, str, str]:
    """The tuple (title, reason, bad example, good one); a semicolon ends an example's line."""
    title, *why, hurts, fine = (line.strip() for line in text.strip().splitlines())
    one, other = (each.partition(": ")[2].replace("; ", "\n") for each in (hurts, fine))
    return title, " ".join(why).strip(), one, other


def rule(
    code: str, name: str, severity: Severity, *, is_rare: bool = False
) -> Callable[[Callable[[Call, Spec], Iterator[Remark]]], Rule]:
    """Make a function on a call and its string a rule, with its docstring as the chapter."""

    def wrap(find: Callable[[Call, Spec], Iterator[Remark]]) -> Rule:
        def check_call(call: Call) -> Iterable[Remark]:
            return find(call, call.spec) if call.spec is not None else ()

        chapter = _read_chapter(find.__doc__ or "")
        return Rule(code, name, severity, *chapter, check_call, is_rare=is_rare)

    return wrap


# Rules for faults of strings, by kind, and for files, with their severities.
_FAULT_CHAPTERS = """
DE001 invalid-string error form character output
    The string is no einsum string.
    Letters, commas, one ->, and nothing else; of einops names, with blanks between them.
    hurts: torch.einsum("ij,j1->i", A, x)
    fine: torch.einsum("ij,jk->ik", A, x)
DE002 unknown-output-letter error output-unknown
    A letter of the output is in no operand.
    A letter of the output has its extent from an operand, so it must be in one.
    hurts: torch.einsum("ij,jk->il", A, B)
    fine: torch.einsum("ij,jk->ik", A, B)
DE003 repeated-output-letter error output-twice
    A letter is in the output twice.
    No library builds a diagonal by a letter that the output has twice.
    hurts: torch.einsum("i->ii", x)
    fine: torch.einsum("ii->i", A)
DE004 invalid-ellipsis error ellipsis
    Dots that are no ellipsis, or an ellipsis where there can be none.
    An ellipsis is three dots, once in a term; it stands for any number of indices.
    hurts: torch.einsum("..ij,...jk->...ik", A, B)
    fine: torch.einsum("...ij,...jk->...ik", A, B)
DE901 syntax-error error
    The file, or a cell of a notebook, is no Python.
    What cannot be parsed cannot be read for einsums.
    hurts: x = torch.einsum("ij->ji", A
    fine: x = torch.einsum("iij->ij", A)
DE902 unreadable-file error
    The file cannot be read, or is neither text nor a notebook.
    A file that is skipped without a word would count as clean.
    hurts: # -*- coding: no-such -*-
    fine: # -*- coding: utf-8 -*-
DE903 unused-ignore warning
    A comment silences nothing.
    A comment that outlives its finding would silence the next one that comes along.
    hurts: x = torch.einsum("bij,bkl->bijkl", A, B)  # derive: ignore[DE101]
    fine: x = torch.einsum("dd,bxcd->bxcd", W, x)  # derive: ignore[DE101]
"""
FAULT_RULES = [
    Rule(code, name, Severity(severity), *_read_chapter(chapter), faults=tuple(faults))
    for head, chapter in re.findall(r"(DE.*)\n((?: .*\n?)*)", _FAULT_CHAPTERS)
    for code, name, severity, *faults in [head.split()]
]
SYNTAX, UNREADABLE, UNUSED_IGNORE = FAULT_RULES[-3:]


@rule("DE005", "operand-count", ERROR)
def find_miscounts(call: Call, spec: Spec) -> Iterator[Remark]:
    """The string has another number of operands than the call.

    The string has one term for each operand, separated by commas.
    hurts: torch.einsum("ij,jk->ik", A, B, C)
    fine: torch.einsum("ij,jk,kl->il", A, B, C)
    """
    if call.operands is None:
        return
    wanted, given = len(spec.operands), len(call.operands)
    if wanted != given:
        terms = "1 operand" if wanted == 1 else f"{wanted} operands"
        says = f"the string has {terms}, the call {given}"
        advice = "give each operand its letters, separated by commas"
        yield Remark(says, advice, 0, len(call.written))


@rule("DE006", "rank-mismatch", ERROR)
def find_wrong_ranks(call: Call, spec: Spec) -> Iterator[Remark]:
    """A tensor has another number of indices than its term has letters.

    A term has one letter for each index of its tensor.
    hurts: A = torch.zeros(2, 3, 4); x = torch.einsum("ij->ji", A)
    fine: A = torch.zeros(2, 3); x = torch.einsum("ij->ji", A)
    """
    for name, operand, shape in _find_shapes(call, spec):
        indices = [index for index in operand if index.name != DOTS]
        is_open = len(indices) < len(operand)
        if len(indices) > len(shape) or (not is_open and len(indices) < len(shape)):
            start, end = (operand[0].start, operand[-1].end) if operand else (-1, -1)
            says = f"{name} has {len(shape)} indices, its term {len(indices)} letters"
            yield Remark(says, "give each index one letter", start, end)


@rule("DE007", "extent-mismatch", ERROR)
def find_wrong_extents(call: Call, spec: Spec) -> Iterator[Remark]:
    """An index stands for two different extents.

    A letter is one index: it has the same extent wherever it stands.
    hurts: A = torch.zeros(2, 3); B = torch.zeros(4, 5); x = torch.einsum("ij,jk->ik", A, B)
    fine: A = torch.zeros(2, 3); B = torch.zeros(3, 5); x = torch.einsum("ij,jk->ik", A, B)
    """
    known: dict[str, tuple[int, str]] = {}
    for name, operand, shape in _find_shapes(call, spec):
        if len(operand) != len(shape) or any(index.name == DOTS for index in operand):
            continue
        for index, extent in zip(operand, shape, strict=True):
            if extent is None or extent == 1:
                continue  # all libraries broadcast an extent of 1
            before, where = known.setdefault(index.name, (extent, name))
            if before != extent:
                says = f"{index.name} has extent {before} in {where} and {extent} in {name}"
                advice = "correct a letter, or a shape"
                yield Remark(says, advice, index.start, index.end)


@rule("DE101", "repeated-letter", WARNING)
def find_repeated_indices(call: Call, spec: Spec) -> Iterator[Remark]:
    """An index repeated in one of several operands takes a diagonal.

    A letter that one operand has twice takes its diagonal: everything beside the diagonal is never
    read. Among several operands that is mostly a slip of the pen.
    hurts: torch.einsum("dd,bxcd->bxcd", W, x)
    fine: torch.einsum("dk,bxck->bxcd", W, x)
    """
    if len(spec.operands) > 1:  # alone in the call, a diagonal or a trace is intended
        for token, says in find_diagonals(spec, call.names):
            yield _remark_at(
                token, says, "give the two indices two letters, unless the diagonal is meant"
            )


@rule("DE102", "lone-letter", WARNING, is_rare=True)
def find_lone_indices(call: Call, spec: Spec) -> Iterator[Remark]:
    """An index is summed because the output lacks it, in one operand alone.

    A letter that is in one operand and not in the output is summed there, before anything is
    multiplied. A forgotten letter of the output looks the same.
    hurts: torch.einsum("bij,bk->bi", A, x)
    fine: torch.einsum("bij,bj->bi", A, x)
    """
    if len(spec.operands) < 2 or not spec.output_names:
        return  # a full sum is intended
    for token, name, says in find_lone_letters(spec, call.names):
        advice = f"put {token.name} into the result, or sum {name} over it before"
        yield _remark_at(token, says, advice)


@rule("DE103", "same-tensor-twice", WARNING, is_rare=True)
def find_same_tensors(call: Call, spec: Spec) -> Iterator[Remark]:
    """The same tensor is passed twice, under different indices.

    Queries multiplied with queries, where keys were meant, give numbers of the right shape.
    Reported are products summed over the last letter of both, not squares, outer products,
    covariances and quadratic forms.
    hurts: torch.einsum("bid,bjd->bij", q, q)
    fine: torch.einsum("bid,bjd->bij", q, k)
    """
    given = call.operands
    if given is None or not len(given) == len(spec.operands) == 2:
        return  # among more operands, a repeated tensor is a quadratic form
    one, other = spec.names
    # summed over another index, it is a covariance or the square of a matrix
    is_summed = one[-1:] == other[-1:] and not set(one[-1:]) <= set(spec.output_names)
    text = ast.dump(given[0])  # a call may return another tensor each time
    is_same = isinstance(given[0], ast.Name | ast.Attribute | ast.Subscript) and "Call(" not in text
    if one != other and is_summed and is_same and text == ast.dump(given[1]):
        first, second = spec.operands
        says = f"{call.names[0]} is passed twice, as {spec.write(first)} and as"
        advice = "is one of them meant to be another tensor?"
        yield Remark(f"{says} {spec.write(second)}", advice, second[0].start, second[-1].end)


@rule("DE104", "implicit-output", WARNING)
def find_implicit_outputs(call: Call, spec: Spec) -> Iterator[Remark]:
    """The output is not written, so its indices are in alphabetical order.

    Without -> the output has the letters that occur once, in alphabetical order: renaming a letter
    may transpose the result. "ba" alone is a transposition.
    hurts: np.einsum("ki,jk", A, B)
    fine: np.einsum("ki,jk->ij", A, B)
    """
    if spec.has_arrow or len(spec.output_names) < 2 or call.text is None:
        return
    output = spec.write(spec.output)
    says = f"without -> the result is in alphabetical order: ->{output}"
    advice = f'write "{call.written.strip()}->{output}"'
    yield Remark(says, advice, 0, len(call.written))


@rule("DE105", "lost-ellipsis", WARNING)
def find_lost_ellipses(call: Call, spec: Spec) -> Iterator[Remark]:
    """One operand has an ellipsis and the output has none.

    Where one of several operands has an ellipsis and the output has none, torch and opt_einsum sum
    over all that it stands for. numpy raises, with one operand too.
    hurts: torch.einsum("...ij,jk->ik", A, B)
    fine: torch.einsum("...ij,jk->...ik", A, B)
    """
    if not spec.has_arrow or any(c.name == DOTS for c in spec.output):
        return
    indices = [c for o in spec.operands for c in o if c.name == DOTS]
    # an ellipsis in all operands, or in the only operand, is summed on purpose
    is_lone = len(indices) == 1 < len(spec.operands)
    if indices and (is_lone or call.library == "numpy"):
        index = indices[0]
        does = "numpy raises" if call.library == "numpy" else "they are summed"
        says = f"the output has no ellipsis: if it stands for indices, {does}"
        yield _remark_at(index, says, "write ... into the output too")


@rule("DE106", "unused-result", WARNING)
def find_unused_results(call: Call, _: Spec) -> Iterator[Remark]:
    """The result is not used.

    An einsum changes nothing in place: as a statement of its own its result is lost.
    hurts: torch.einsum("ij,jk->ik", A, B)
    fine: C = torch.einsum("ij,jk->ik", A, B)
    """
    if call.has_more_keywords or "out" in call.keywords or call.function.endswith("_path"):
        return
    left, *right = call.written.split("->")
    if call.is_bare and left.split() != "".join(right).split():  # x -> x checks a shape
        yield Remark("the result is not used", "assign it, or take the call out")


@rule("DE107", "unoptimized", WARNING)
def find_unoptimized(call: Call, spec: Spec) -> Iterator[Remark]:
    """Three or more operands in one loop nest, since no order is looked for.

    numpy.einsum multiplies all operands in one loop nest over all letters unless it is told to look
    for an order, which may be slower by whole powers of a size. opt_einsum, jax and torch look for
    an order by themselves.
    hurts: x = np.einsum("ij,jk,kl->il", A, B, C)
    fine: x = np.einsum("ij,jk,kl->il", A, B, C, optimize=True)
    """
    if len(spec.operands) < 3 or (call.library, call.function) != ("numpy", "einsum"):
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


@rule("DE201", "plain-call", INFO)
def find_plain_calls(call: Call, spec: Spec) -> Iterator[Remark]:
    """The string says what a plain call says.

    A matrix product, a transposition, a sum or a trace has a name that all readers know.
    hurts: x = torch.einsum("bij,bjk->bik", A, B)
    fine: x = torch.einsum("bihd,bjhd->bhij", q, k)
    """
    if call.library not in _PREFIX or call.function != "einsum":
        return
    if call.operands is None or not len(call.operands) == len(spec.operands) < 3:
        return
    names = [_write_operand(expr, k) for k, expr in enumerate(call.operands)]
    marks = ("\0", "\1")[: len(names)]  # in place of the names, which may hold any text
    plain = find_plain(spec, marks)
    is_stack = len(names) == 2 and not _PLACES.search(plain)  # batches of matrix products
    is_stack &= all(len(t) > 2 and t[0].name == DOTS for t in (*spec.operands, spec.output))
    if not plain or _HEAVY.search(plain) or (spec.has_dots and not is_stack):
        return
    plain = plain.replace("torch.", f"{_PREFIX[call.library]}.")
    if call.library != "torch":
        plain = plain.replace(".permute(", ".transpose(")
    for mark, name in zip(marks, names, strict=True):
        plain = plain.replace(mark, name)
    advice = "write it so, unless the letters tell more"
    yield Remark(f"the same as {plain}", advice, 0, len(call.written))


@rule("DE202", "path-each-call", INFO)
def find_paths_each_call(call: Call, spec: Spec) -> Iterator[Remark]:
    """Three or more operands, whose order is looked for at every call.

    torch.einsum looks for the order of three or more operands at every call, or goes from left to
    right where opt_einsum is missing; torch.compile compiles anew for new sizes.
    hurts: x = torch.einsum("ij,jk,kl->il", A, B, C)
    fine: x = torch.einsum("ij,jk->ik", A, B)
    """
    if len(spec.operands) < 3 or call.library != "torch":
        return
    says = f"torch looks for the order of {len(spec.operands)} operands at every call"
    advice = "write the steps in pairs"
    if not spec.has_words and DOTS not in call.written:
        advice += f'; derive einsum "{"".join(call.written.split())}" prints them'
    yield Remark(says, advice, 0, len(call.written))


@rule("DE203", "permuted-output", INFO)
def find_permuted_outputs(call: Call, spec: Spec) -> Iterator[Remark]:
    """The output is one operand's indices in another order, elementwise.

    An operand's letters in another order: the call multiplies elementwise and transposes at once.
    That is right as often as not; it is only easy to overlook.
    hurts: torch.einsum("bhij,h->bijh", A, x)
    fine: torch.einsum("bhij,h->bhij", A, x)
    """
    is_elementwise = len(spec.operands) > 1 and set(spec.indices) == set(spec.output_names)
    if not spec.has_arrow or not is_elementwise or spec.output_names in spec.names:
        return
    wanted = sorted(spec.output_names)
    for name, operand, names in zip(call.names, spec.operands, spec.names, strict=True):
        if sorted(names) == wanted and len(names) > 1:
            start, end = spec.output[0].start, spec.output[-1].end
            says = f"{name} comes out transposed, from {spec.write(operand)}"
            says += f" to {spec.write(spec.output)}"
            yield Remark(says, "nothing to do if that is meant", start, end)
            return


@rule("DE204", "outer-product", INFO)
def find_outer_products(call: Call, spec: Spec) -> Iterator[Remark]:
    """An operand shares no index with the others: an outer product.

    No letter is shared, so every element meets every other: the result may be large.
    hurts: torch.einsum("bi,cj->bicj", x, y)
    fine: torch.einsum("bi,bj->bij", x, y)
    """
    if max(map(len, spec.operands)) > 1:  # an outer product of vectors is intended
        for operand, says in islice(find_outer(spec, call.names), 1):
            advice = "nothing to do if that is meant"
            yield Remark(says, advice, operand[0].start, operand[-1].end)


@rule("DE205", "letters-by-case", INFO)
def find_indices_by_case(call: Call, spec: Spec) -> Iterator[Remark]:
    """Two indices differ only by their case.

    i and I are two indices; where both are in one string, one is soon read for the other.
    hurts: torch.einsum("bnd,bNd->bnN", q, k)
    fine: torch.einsum("bnd,bmd->bnm", q, k)
    """
    if spec.has_words:
        return
    for name in spec.indices:
        twin = name.swapcase()
        if name.islower() and twin in spec.indices:
            index = next(c for o in spec.operands for c in o if c.name == twin)
            says = f"{name} and {twin} are different indices"
            yield _remark_at(index, says, f"name one of them by another letter than {name}")


def _find_shapes(call: Call, spec: Spec) -> Iterator[tuple[str, Sequence[Token], scopes.Shape]]:
    """Yield triples (name, term of the spec, shape) of the einsum operands of known shape."""
    given = call.operands
    if given is None or len(given) != len(spec.operands):
        return
    if call.function not in {"einsum", "contract"}:
        return
    for name, operand, expr in zip(call.names, spec.operands, given, strict=True):
        shape = scopes.find_shape(expr, call.scope)
        if shape is not None:
            yield name, operand, shape


def _remark_at(index: Token, says: str, help: str) -> Remark:
    return Remark(says, help, index.start, index.end)


def find_widest(terms: Sequence[frozenset[str]], output: frozenset[str]) -> int:
    """The number of indices of the widest step, in the order of pairs for which it is smallest."""
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


def _write_operand(expr: ast.expr, place: int) -> str:
    """The operand as written, in brackets if needed; an ordinal for a long one."""
    text = ast.unparse(expr)
    if len(text) > _LONGEST or "\n" in text:
        return ("first", "second", "third")[min(place, 2)]
    binds = isinstance(expr, ast.Name | ast.Attribute | ast.Subscript | ast.Call)
    return text if binds else f"({text})"


_BY_CODE = {each.code: each for each in (*FAULT_RULES, *vars().values()) if isinstance(each, Rule)}
RULES: tuple[Rule, ...] = tuple(_BY_CODE[code] for code in sorted(_BY_CODE))
CALL_RULES = tuple(rule for rule in RULES if rule.code < "DE9")


def find_rule(word: str) -> Rule:
    """The rule of a code or a name; raises DeriveError for an unknown one."""
    return _find_rules(word, word.upper())[0]


def choose_codes(words: Iterable[str]) -> frozenset[str]:
    """The codes that some words select; raises DeriveError for a word without a rule."""
    parts = [part.strip() for text in words for part in text.split(",") if part.strip()]
    starts = {part: {r.code for r in RULES if r.code.startswith(part.upper())} for part in parts}
    return frozenset(r.code for part in parts for r in _find_rules(part, *starts[part]))


def _find_rules(word: str, *codes: str) -> list[Rule]:
    """The rules with this name or one of the codes; DeriveError if there are none."""
    found = [rule for rule in RULES if rule.name == word or rule.code in codes]
    if not found:  # only names are compared: similar codes are different rules
        advice = suggest(word, [rule.name for rule in RULES])
        advice = advice or "derive lint --list shows all codes and names"
        raise refuse("rule-unknown", f"there is no rule {word}", help=advice)
    return found
