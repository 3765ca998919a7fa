"""From an equation in index notation to readable, checked PyTorch code.

The map of the house, from the door to the ground; each module imports only from floors below:

    cli/         the command line: one module a verb
    compiler.py  build: formula -> equations -> plan -> source, on one page
    checker/     check: code against formula -> verdict, on one page: pick, judge, explain; edits/
    linter/      einsum strings of a source tree
    bench/       generated code against code by hand
    formulas/    the library: one file per family, found by name
    frontend/    into the index language: from text, SymPy, LaTeX, torch code; gradient
    backend/     out of it: the text of the PyTorch function, of its file, of LaTeX
    plan/        the order of work, its cost: lower/, networks/, recurrences/, cells/, blocks/
    rewrite/     equations into equations with equal values: rules/
    prove/       whether two systems of equations have one normal form
    analysis/    what is known of equations: mistakes, extents, ranges, reads in range
    judge/       values to compare with: loops/ (direct evaluation), fields/ (exact), samples
    ir/          the index language: nodes, walk, text, polynomials; functions: one row each
    notation/    the words a formula is written in, as plain SymPy objects
    options.py   the settings of a generated file, from the command line to the judge
    errors.py    diagnostics; libraries.py: torch, loaded when it is first used

The public names are loaded when they are first used: `import derive` loads neither torch nor SymPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any
from warnings import filterwarnings

from derive.ir.functions import PUBLIC
from derive.notation import formula as _formula

if TYPE_CHECKING:
    from derive.checker import check
    from derive.checker.verdict import Verdict
    from derive.compiler import build, evaluate_loops
    from derive.errors import DeriveError, Diagnostic
    from derive.frontend.from_code import from_torch
    from derive.frontend.from_einsum import from_einsum
    from derive.frontend.from_latex import from_latex
    from derive.frontend.from_sympy import show
    from derive.frontend.from_text import parse
    from derive.frontend.gradient import gradient
    from derive.notation.formula import Formula
    from derive.notation.words import indices, sizes, tensors

# Torch warns at its import where NumPy is missing, which nothing here needs.
filterwarnings("ignore", "Failed to initialize NumPy", UserWarning)

__all__ = [
    "DeriveError",
    "Diagnostic",
    "Formula",
    "Verdict",
    "build",
    "check",
    "evaluate_loops",
    "from_einsum",
    "from_latex",
    "from_torch",
    "gradient",
    "indices",
    "parse",
    "show",
    "sizes",
    "tensors",
]
__all__ += list(PUBLIC)  # the functions of the notation
__all__.sort()

# The module of each public name. The imports above repeat it for editors and type checkers, except
# for the functions of the notation, whose names are computed.
_HOMES = {
    "derive.checker": "check",
    "derive.checker.verdict": "Verdict",
    "derive.compiler": "build evaluate_loops",
    "derive.errors": "DeriveError Diagnostic",
    "derive.frontend.from_code": "from_torch",
    "derive.frontend.from_einsum": "from_einsum",
    "derive.frontend.from_latex": "from_latex",
    "derive.frontend.from_sympy": "show",
    "derive.frontend.from_text": "parse",
    "derive.frontend.gradient": "gradient",
    "derive.notation.formula": "Formula",
    "derive.notation.words": " ".join(["indices", "sizes", "tensors", *PUBLIC]),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """The public object of this name, loaded at its first use; AttributeError for other names."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'derive' has no attribute {name!r}")
    found = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = found  # from now on Python finds it without this function
    return found


def _typeset(formula: Formula) -> str:
    """The display LaTeX of a formula; the printer is loaded at its first use by a notebook."""
    from derive.compiler import typeset

    return typeset(formula)


_formula.Formula.to_latex = staticmethod(_typeset)


def load_ipython_extension(shell: Any) -> None:
    """Register the magic `%%derive`, for `%load_ext derive`."""
    import_module("derive.cli.notebook").load(shell)


def __dir__() -> list[str]:
    """The names in this module and all public names, loaded or not."""
    return sorted({*globals(), *__all__})
