"""The pages of `derive help`: each is the docstring of a package."""

import ast
from importlib.util import find_spec
from pathlib import Path
from textwrap import fill

from derive.errors import refuse, suggest
from derive.ir.functions import NAMED

PAGES = {
    "notation": "derive.notation",
    "check": "derive.checker",
    "plan": "derive.plan",
    "latex": "derive.frontend.from_latex",
    "code": "derive.frontend.from_code",
    "lint": "derive.linter",
    "bench": "derive.bench",
}
_INSIDE = "\n\nModules"  # the rest is for those who change the package


def print_page(topic: str) -> None:
    """Print one page, or the topics; DeriveError where no page has this topic."""
    if topic and topic not in PAGES:
        raise refuse(
            "topic-unknown",
            f"no page is about {topic}",
            facts=[f"the pages are {', '.join(PAGES)}"],
            help=suggest(topic, PAGES),
        )
    print(read_page(topic) if topic else "\n".join(map(_to_entry, PAGES)))


def read_page(topic: str) -> str:
    """The docstring of the page's module, read without importing it."""
    spec = find_spec(PAGES[topic])
    text = Path(spec.origin or "").read_text(encoding="utf-8") if spec else ""
    page = (ast.get_docstring(ast.parse(text)) or "").partition(_INSIDE)[0]
    if topic == "notation":
        words = fill(" ".join(NAMED), 100, initial_indent="    ", subsequent_indent="    ")
        page += f"\n\nFunctions of numbers\n{words}"
    return page


def _to_entry(topic: str) -> str:
    return f"derive help {topic:10} {read_page(topic).splitlines()[0]}"
