"""The formula that a name, a text or an object means; the library, one file per family.

A family is a module whose variables are formulas, each written `name = parse(..)` or `Formula(..)`
and called like its variable. To add one, write it into the file of its family; a new family goes
into FAMILIES too.
"""

import re
from functools import cache
from importlib import import_module
from pkgutil import get_data
from types import ModuleType

from derive.errors import refuse, suggest
from derive.notation.formula import Formula, check_formula

FAMILIES = (
    "attention",
    "attention_variants",
    "attention_patterns",
    "positions",
    "sets",
    "layers",
    "convolutions",
    "norms",
    "distances",
    "losses",
    "graphs",
    "message_passing",
    "proteins",
    "chemistry",
    "mechanics",
    "tensor_networks",
    "physics",
    "geometry",
    "inference",
    "indexing",
    "recurrences",
)

UNNAMED = (None, "formula")  # the names of formulas whose author gave none
_WRITTEN = re.compile(rb"^([A-Za-z]\w*) = (?:parse|Formula)\(", re.MULTILINE)


def find_families() -> dict[str, str]:
    """The family of each formula of the library, by name; found by reading files, without a run."""
    return {name: family for family in FAMILIES for name in _find_written(family)}


@cache
def _find_written(family: str) -> tuple[str, ...]:
    """The names of the formulas in a family's file."""
    source = get_data(__name__, f"{family}.py") or b""
    return tuple(name.decode() for name in _WRITTEN.findall(source))


def load_formulas() -> dict[str, Formula]:
    """All formulas of the library by name, family by family."""
    return {name: formula for family in FAMILIES for name, formula in load_family(family).items()}


@cache
def load_family(family: str) -> dict[str, Formula]:
    """The formulas of one family, in the order of its file."""
    return find_in_module(import_module(f"derive.formulas.{family}"))


def find_in_module(module: ModuleType) -> dict[str, Formula]:
    """The formulas in a module's variables, by name; an unnamed one is named by its variable."""
    found = {}
    for variable, value in vars(module).items():
        if isinstance(value, Formula) and not variable.startswith("_"):
            value.name = variable if value.name in UNNAMED else value.name
            found[value.name] = value
    return found


def find_formula(name: str) -> Formula:
    """The formula of this name; DeriveError, with the nearest name, where there is none."""
    return load_family(family_of(name))[name]


def family_of(name: str) -> str:
    """The family with the formula of this name; DeriveError where the library has none."""
    families = find_families()
    if name in families:
        return families[name]
    raise refuse(
        "formula-unknown",
        f"the library has no formula {name}",
        help=suggest(name, families) or "derive list shows what there is",
    )


def read_formula(formula: Formula | str) -> Formula:
    """The formula itself, the parsed one of a text with an =, or the library's of that name."""
    if not isinstance(formula, str):
        return check_formula(formula)
    return read_notation(formula) if "=" in formula else find_formula(formula)


def read_notation(text: str, name: str = "formula", *, is_latex: bool | None = None) -> Formula:
    r"""The formula of a text; without `is_latex`, signs such as \frac, _{ or $ mean LaTeX."""
    if is_latex is None:
        is_latex = bool(re.search(r"\\|[_^]\{|\$", re.sub(r"#.*", "", text)))
    if is_latex:
        from derive.frontend.from_latex import from_latex

        return from_latex(text, name=name)
    from derive.frontend.from_text import parse

    return parse(text, name)
