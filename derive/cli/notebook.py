"""`%%derive` in a notebook: the cell is a formula, and its name becomes a checked function.

    %load_ext derive

    %%derive attention --memory 256MiB
    Q, K, V[B, S, D]
    p[b,i,j] = softmax[j](sum[d](Q[b,i,d] * K[b,j,d]) / sqrt(D))
    z[b,i,d] = sum[j](p[b,i,j] * V[b,j,d])

The words behind it are those of `derive build`: the name, and the options that change the code.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import typer

from derive.cli import formulas, read_build
from derive.cli.options import OPTIONS, to_options
from derive.errors import DeriveError, refuse

if TYPE_CHECKING:
    from derive.compiler import Built


def load(shell: Any) -> None:
    """Register the magic in a shell of IPython."""

    def derive(line: str, cell: str) -> Built | None:
        """Build the cell's formula, None for --help; a DeriveError is shown as its text alone."""
        try:
            built = build_cell(line, cell)
        except typer.Exit:  # the help is printed
            return None
        except DeriveError as error:
            text = str(error)
            error.__dict__["_render_traceback_"] = lambda: [text]  # IPython asks errors for it
            raise
        shell.user_ns[built.name] = built.function
        return built

    derive.__doc__ = __doc__
    shell.register_magic_function(derive, "cell", "derive")


def build_cell(line: str, cell: str) -> Built:
    """The formula of a cell, built by the words of its first line, and judged."""
    try:
        given, plain = read_build(shlex.split(line)), read_build([])
    except ValueError as error:
        raise refuse("magic-words", str(error), help="write %%derive NAME, and options") from error
    names = [*(given["where"] or ()), *([given["name"]] if given["name"] else ())]
    options = to_options(given)
    changed = {word for word in given if given[word] != plain[word]}
    strange = sorted(changed - {"where", "name", "gradient", *OPTIONS})
    if strange or len(names) != 1:
        says = f"--{strange[0]} is no option here" if strange else "a cell has one name"
        raise refuse(
            "magic-words",
            says,
            facts=["options that change the code, and --gradient, are those of derive build"],
            help="write %%derive NAME, options, and the formula below",
        )
    (found,) = formulas.find_formulas(cell, names[0])
    if given["gradient"]:
        found = formulas.differentiate(found, given["gradient"], names[0])
    built = formulas.build_found(found, options)
    built.judge()
    return built
