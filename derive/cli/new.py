"""`derive new`: a commented formula file to start from, which builds unchanged."""

from pathlib import Path

from derive.errors import refuse
from derive.notation.formula import check_name
from derive.options import show_path

TEMPLATE = '''"""Formulas for derive: every module-level Formula is one, named by its variable.

    derive show {name}.py            the formula, its indices, steps and costs
    derive build {name}.py           a checked PyTorch function in generated/
"""

from sympy import Eq, Sum, sqrt

from derive import Formula, indices, sizes, softmax, tensors

# Sizes are symbols. Two places of the same size say so by the same symbol.
B, S, D = sizes("B S D")

# Index letters and how far they run: b = 0 .. B - 1. One letter has one extent.
b = indices("b", B)
i, j = indices("i j", S)
d = indices("d", D)

# The arguments, with a size for each place.
Q, K, V = tensors("Q K V", B, S, D)

# What the equations define; its sizes follow from them.
alpha, z = tensors("alpha z")

{name} = Formula(
    # Every index on the right is on the left too, or summed: nothing is summed unless it says so.
    Eq(alpha[b, i, j], softmax(Sum(Q[b, i, d] * K[b, j, d], d) / sqrt(D), j)),
    # The last equation is the result; outputs=["z", "alpha"] would return both.
    Eq(z[b, i, d], Sum(alpha[b, i, j] * V[b, j, d], j)),
    title="Attention, to be replaced by your own formula",
    source="the paper, and the number of the equation",
    typical=dict(B=8, S=512, D=64),  # the sizes for which the order of work is chosen
)
'''


def write_new(name: str, folder: Path) -> None:
    """Write NAME.py in the folder; DeriveError if there is such a file already."""
    check_name(name)
    path = folder / f"{name}.py"
    shown = show_path(path)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(TEMPLATE.format(name=name))
    except FileExistsError as error:
        raise refuse(
            "file-exists", f"{shown} is there already", help="choose another name or --out"
        ) from error
    print(f"{shown} is written; see it with: derive show {shown}")
