"""Find docstrings, comments and function names that are hard to read.

A docstring or comment is marked where it opens with a question word or pronoun instead of a noun
or verb, where a relative clause replaces a noun ("of what is read"), or where an everyday verb
replaces the technical term. A function name is marked where it is a verb without an object, or
contains one of these everyday words. The lists are samples: unmarked prose can be unclear too.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
DOCUMENTED = (ast.Module, ast.ClassDef, *FUNCTION)

# Openings that leave the subject of a sentence open.
OPENING = re.compile(
    r"(what|which|how|who|where|when|whose|whatever|the same|(of|by|with) (what|which)"
    r"|those|it|its|their|such|that)\b",
    re.IGNORECASE,
)
COMMENT_OPENING = re.compile(r"(of|by|that|what|which|whose|else|it|its|those|the same)\b")
# Relative clauses in place of a noun.
CLAUSE = re.compile(
    r"\b(of|by|to|from|in|with|for|at|on|than|as|and|but|is|are)"
    r" (what|whatever|which it|those that|that which)\b",
    re.IGNORECASE,
)
# Everyday words in place of technical terms: implied, described, arranged, normalized, denotes.
EVERYDAY = re.compile(
    r"\b(told|tells?|says|laid|anew|lets? go|heard|unheard|settles?d?|stands? for"
    r"|stands? (in|before|behind|by|alone|still)|lies? (apart|side by side)|where it lives|likeness"
    r"|mere|no matter|nobody|somebody|everybody|lest|thereof|therein|unsaid)\b",
    re.IGNORECASE,
)
VERBS = re.compile(
    r"(read|write|turn|look|take|open|spell|split|find|make|give|hold|lay|share|settle|say|tell|show"
    r"|note|match|visit|walk|add|join|put|get|go|try|draw|name|order|place|move|cut|fold|count|run"
    r"|own|keep|let|meet|part|pull|push|pick|part_of)"
)
EVERYDAY_PARTS = re.compile(
    r"(?<![^_])(told|said|says|tell|unsaid|unheard|heard|steep|steepest|tame|wild|world|lay|laid"
    r"|settle|soften|poison|contrary|wish|anew|mender|lone)(?![^_])"
)


@dataclass(frozen=True)
class Remark:
    """A piece of prose: its kind, line, text, and whether it is marked."""

    kind: str
    line: int
    text: str
    is_marked: bool


def find_prose(source: str) -> Iterator[Remark]:
    """Yield the docstrings, function names and comments of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node)):
            line = docstring.splitlines()[0]
            is_marked = bool(OPENING.match(line) or CLAUSE.search(line) or EVERYDAY.search(line))
            yield Remark("docstrings", getattr(node, "lineno", 1), line, is_marked)
        if isinstance(node, FUNCTION):
            name = node.name.strip("_")
            is_marked = bool(VERBS.fullmatch(name) or EVERYDAY_PARTS.search(name))
            yield Remark("names", node.lineno, node.name, is_marked)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = token.string[1:].strip()
        if (
            token.type == tokenize.COMMENT
            and text
            and not text.startswith(("noqa", "type:", "fmt:"))
        ):
            opens = COMMENT_OPENING.match(text)
            is_marked = bool(opens or CLAUSE.search(text) or EVERYDAY.search(text))
            yield Remark("comments", token.start[0], text, is_marked)
