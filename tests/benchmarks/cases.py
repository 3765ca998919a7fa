"""Read the benchmark cases: formulas, sizes, and code by hand.

A file of `library/*.txt` covers a family of the library; `corpus.txt` has formulas beyond it, as
docstrings. Sizes are those of a model, as far as one thread can run them. Above a function are its
source where it is not the obvious one, and entries:

    # The authors' way.
    # sizes: N=512, D=64        a good implementation takes 1 to 100 ms; each further line is a case
    # small: W, V               inputs drawn at the scale of weights; optional
    # empty row: zeros          empty-row mode of the formula; optional

A function takes its arguments by name. Functions without entries are helpers.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from derive import Formula, parse
from derive.formulas import find_formula
from derive.frontend.from_sympy import to_system
from derive.judge.compare import compare_values
from derive.judge.loops import evaluate_loops
from derive.judge.samples import choose_sizes, draw_inputs

HERE = Path(__file__).resolve().parent
CASE = re.compile(
    r'^((?:# [^\n]*\n)+)def (\w+)\([^)]*\):\n(?:    """\n(.*?)    """\n)?', re.DOTALL | re.MULTILINE
)
DRAWS = 3  # draws of sizes and inputs; draw 1 has a size 1, draw 2 an empty row of each mask
WEIGHT = 0.05  # the scale of weights when training starts, so that logits are of order 1


@dataclass(frozen=True)
class Case:
    """A formula, its sizes, the inputs at the scale of weights, and its code by hand."""

    name: str
    sizes: Mapping[str, int]
    small: tuple[str, ...]
    text: str | None  # None: the library formula of this name
    code: str
    empty_row: str = "nan"

    @property
    def formula(self) -> Formula:
        """The formula of the corpus or of the library."""
        if self.text is None:
            return find_formula(self.name)
        return parse(self.text, name=self.name, empty_row=self.empty_row)

    @property
    def by_hand(self) -> Callable[..., Any]:
        """The function by hand, executed with the helpers of its file."""
        names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "math": math}
        exec(compile(self.code, self.name, "exec"), names)
        return names[self.name]

    @property
    def title(self) -> str:
        """The sizes on one line."""
        return " ".join(f"{size}={number}" for size, number in self.sizes.items())


@cache
def load_cases(*, corpus: bool = False) -> tuple[Case, ...]:
    """Read the cases of the library, in the order of its files, or of the corpus."""
    paths = [HERE / "corpus.txt"] if corpus else sorted((HERE / "library").glob("*.txt"))
    return tuple(case for path in paths for case in _read_file(path))


def _read_file(path: Path) -> Iterator[Case]:
    code = path.read_text(encoding="utf-8")
    for above, name, formula in CASE.findall(code):
        lines = re.findall(r"# ([a-z ]+): (.+)\n", above)
        entries = dict(lines)
        small = tuple(re.findall(r"\w+", entries.get("small", "")))
        texts = (formula or None, code, entries.get("empty row", "nan"))
        for numbers in (value for key, value in lines if key == "sizes"):
            sizes = {size: int(number) for size, number in re.findall(r"(\w+)=(\d+)", numbers)}
            yield Case(name, sizes, small, *texts)


@cache
def load_by_hand() -> dict[str, Callable[..., Any]]:
    """The function by hand of every library formula, by name."""
    return {case.name: case.by_hand for case in load_cases()}


def find_cases(names: tuple[str, ...] = (), *, corpus: bool = False) -> tuple[Case, ...]:
    """The cases of the named formulas, or all; KeyError for a name without a case."""
    cases = load_cases(corpus=corpus)
    for name in names:
        if all(case.name != name for case in cases):
            raise KeyError(name)
    return tuple(case for case in cases if not names or case.name in names)


def find_difference(function: Callable[..., Any], formula: Formula) -> str:
    """The first difference between a function and the formula's loops in float64, or empty."""
    system = to_system(formula)
    names = [tensor.name for tensor in system.results]
    for number, sizes in enumerate(choose_sizes(system, count=DRAWS)):
        inputs = draw_inputs(system, sizes, number, empty_row=number == DRAWS - 1)
        found, expected = to_tuple(function(**inputs)), to_tuple(evaluate_loops(formula, inputs))
        if len(found) != len(expected):
            return f"{len(found)} results for {len(expected)}"
        for name, one, other in zip(names, found, expected, strict=True):
            where = compare_values(name, one, other)[1]
            if where:
                return f"{where}, at {sizes}"
    return ""


def to_tuple(results: Any) -> tuple[Any, ...]:
    """Wrap a single result into a tuple."""
    return results if isinstance(results, tuple) else (results,)
