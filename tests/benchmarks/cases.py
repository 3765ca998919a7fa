"""At which sizes each formula is timed: those of a model, as far as one thread bears them.

A file of `library/*.md` holds a family of the library, one of `corpus/*.md` other formulas of one
subject, and under the name of each a sentence with its source, its entries, the formula, where it
is not of the library, and the code by hand:

    ## its_name

    What it is (Author year).

        sizes: N=512, D=64                  at which a good implementation takes 1 to 100 ms;
                                            of another line is another case
        small: W, V                         inputs drawn as weights are; may be missing
        empty row: zeros                    what the formula says of rows with nothing left

with the formula between ```formula marks and, between ```python marks, a function of that name that
takes its arguments by name and finds `torch`, `math` and, as `F`, `torch.nn.functional`.
"""

from __future__ import annotations

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
    r"^## (?P<name>\w+)\n\n(?P<story>\S.*?)\n\n(?P<entries>(?:    [a-z ]+: [^\n]+\n)+)\n"
    r"(?:```formula\n(?P<formula>.*?)```\n\n)?```python\n(?P<code>.*?)```$",
    re.DOTALL | re.MULTILINE,
)
DRAWS = 3  # of sizes and inputs; the second has a size 1, the last an empty row of each mask
WEIGHT = 0.05  # the scale of weights when training starts, so that logits are of order 1


@dataclass(frozen=True)
class Case:
    """A formula, its sizes, the inputs that are drawn small, and its texts."""

    name: str
    sizes: Mapping[str, int]
    small: tuple[str, ...]
    text: str | None  # of the library where there is none
    code: str
    empty_row: str = "nan"

    @property
    def formula(self) -> Formula:
        """The formula, of the corpus or of the library."""
        if self.text is None:
            return find_formula(self.name)
        return parse(self.text, name=self.name, empty_row=self.empty_row)

    @property
    def by_hand(self) -> Callable[..., Any]:
        """The function by hand."""
        names: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "math": math}
        exec(compile(self.code, self.name, "exec"), names)
        return names[self.name]

    @property
    def title(self) -> str:
        """The sizes on one line."""
        return " ".join(f"{size}={number}" for size, number in self.sizes.items())


@cache
def load_cases(folder: str = "library") -> tuple[Case, ...]:
    """The cases of a folder, file by file in the order in which they stand there."""
    return tuple(case for path in sorted((HERE / folder).glob("*.md")) for case in _read(path))


def _read(path: Path) -> Iterator[Case]:
    text = path.read_text(encoding="utf-8")
    found = list(CASE.finditer(text))
    told = [case["name"] for case in found]
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == told, f"{path.name}: read were {told}"
    for case in found:
        lines = re.findall(r"    ([a-z ]+): (.+)\n", case["entries"])
        entries = dict(lines)
        small = tuple(re.findall(r"\w+", entries.get("small", "")))
        texts = (case["formula"], case["code"], entries.get("empty row", "nan"))
        for numbers in (value for key, value in lines if key == "sizes"):
            sizes = {name: int(size) for name, size in re.findall(r"(\w+)=(\d+)", numbers)}
            yield Case(case["name"], sizes, small, *texts)


@cache
def load_by_hand() -> dict[str, Callable[..., Any]]:
    """The code by hand of every formula of the library, by its name."""
    return {case.name: case.by_hand for case in load_cases()}


def find_cases(names: tuple[str, ...] = (), *, corpus: bool = False) -> tuple[Case, ...]:
    """The cases of these formulas, all without names; KeyError names what has none."""
    cases = load_cases("corpus" if corpus else "library")
    for name in names:
        if all(case.name != name for case in cases):
            raise KeyError(name)
    return tuple(case for case in cases if not names or case.name in names)


def find_difference(function: Callable[..., Any], formula: Formula) -> str:
    """Where a function first differs from the formula's loops in float64, or nothing."""
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
    """All results, one too."""
    return results if isinstance(results, tuple) else (results,)
