"""All rules in the order of their codes, and how a person chooses among them.

A choice is a list of words parted by commas: a code, the start of codes (`DE1`), or a name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from derive.errors import refuse, suggest
from derive.linter.finding import Severity
from derive.linter.rule import Rule
from derive.linter.rules import calls, letters, shapes, strings

if TYPE_CHECKING:
    from collections.abc import Iterable

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
    strings.find_invalid_strings,
    strings.find_unknown_output_letters,
    strings.find_repeated_output_letters,
    strings.find_invalid_ellipses,
    strings.find_miscounts,
    shapes.find_wrong_ranks,
    shapes.find_wrong_extents,
    strings.find_pattern_names,
    strings.find_pattern_sizes,
    letters.find_repeated_letters,
    letters.find_lone_letters,
    letters.find_same_tensors,
    letters.find_implicit_outputs,
    letters.find_lost_ellipses,
    calls.find_unused_results,
    calls.find_unoptimized,
    calls.find_plain_calls,
    calls.find_paths_each_call,
    letters.find_permuted_outputs,
    letters.find_outer_products,
    letters.find_letters_by_case,
)
RULES: tuple[Rule, ...] = (*CALL_RULES, SYNTAX, UNREADABLE, UNUSED_IGNORE)


def find_rule(word: str) -> Rule:
    """The rule of a code or a name; DeriveError where there is none."""
    for rule in RULES:
        if word.upper() == rule.code or word == rule.name:
            return rule
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
