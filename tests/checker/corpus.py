"""The corpus of code and formula pairs in `pairs/*.md`, and their judgement by the loops alone.

A file holds formulas between ```formula marks, in the notation or a name of the library, and under
each the pairs that are judged against it:

    ## right: its_name                      or `wrong: its_name`; `right, slow:` where it takes long

    What the code does, in a sentence.

        verdict: proved                     right code: the least grade
        edit: scale|factor; 1/sqrt(d)       wrong code: words of the edit, `|` separates choices
        line: scores =                      wrong code: a part of the line at fault
        missed: edit, line                  the entries that are not found yet

    and the code between ```python marks. Entries for special cases:

        bind: heads=H, w.weight=W.T         values of arguments and parameters
        sizes: P=3                          sizes that the code needs; all others are free
        code: Heads                         the function or class, if there are several
        shown at: N=40, B=2                 sizes of a difference, hidden from the checker
        shown by: 20                        a factor of the inputs that shows a difference
        single: yes                         the code computes in float32
        empty row: 0                        the value of the formula for fully masked rows
        fields: no                          random fields do not model the code
        says: --bind mask=mask.T            a part of the report; may be repeated
"""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from texts import read_sections

from derive import Formula, evaluate_loops, parse
from derive.formulas import find_formula
from derive.frontend.from_sympy import from_sympy
from derive.ir.nodes import System
from derive.judge.samples import choose_sizes, draw_inputs

HERE = Path(__file__).resolve().parent / "pairs"
ENTRIES = {
    *("verdict", "edit", "line", "missed", "says", "bind", "sizes", "code", "fields"),
    *("shown at", "shown by", "single", "empty row"),
}
CLOSE = 1e-9  # relative to the largest element; wrong code differs by far more
CLOSE_IN_SINGLE = 1e-5
FAR = 1e-7


@dataclass(frozen=True)
class Pair:
    """Code, the formula that it should compute, and whether it does."""

    name: str
    right: bool
    slow: bool
    text: str  # the formula, or its name in the library
    source: str
    entries: Mapping[str, str] = field(hash=False)

    def __str__(self) -> str:
        return self.name

    @cached_property
    def formula(self) -> Formula:
        """The formula, parsed or from the library."""
        if "=" not in self.text:
            return find_formula(self.text)
        return parse(self.text, empty_row=self.entries.get("empty row", "nan"))

    @cached_property
    def system(self) -> System:
        """The formula as equations."""
        return from_sympy(self.formula)

    @property
    def bind(self) -> dict[str, str]:
        """The expressions bound to arguments and parameters."""
        return dict(read_binds(self.entries.get("bind", "")))

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes that the code needs."""
        return self.read_sizes("sizes")

    def read_sizes(self, key: str) -> dict[str, int]:
        """The sizes of an entry."""
        return {name: int(size) for name, size in read_binds(self.entries.get(key, ""))}

    @property
    def edit(self) -> tuple[str, ...]:
        """Words that the right edit has, in lower case."""
        words = self.entries.get("edit", "")
        return tuple(each.strip() for each in words.split(";") if each.strip())

    def is_edited_by(self, edit: str) -> bool:
        """Whether an edit contains all the words."""
        return all(any(each in edit.lower() for each in word.split("|")) for word in self.edit)

    @cached_property
    def line(self) -> int | None:
        """The number of the line at fault."""
        part = self.entries.get("line")
        rows = self.source.splitlines()
        found = [n for n, row in enumerate(rows, 1) if part is not None and part in row]
        assert part is None or len(found) == 1, f"{self}: {part!r} is on lines {found}"
        return found[0] if found else None

    def write_file(self, folder: Path) -> str:
        """Write the code to a file, and return its address for `derive check`."""
        path = folder / f"{self.name}.py"
        path.write_text(self.source, encoding="utf-8")
        return f"{path}:{self.entries['code']}" if "code" in self.entries else str(path)


@cache
def load_pairs(pattern: str = "*.md") -> tuple[Pair, ...]:
    """Return the pairs of all files, in the order of the text."""
    return tuple(pair for path in sorted(HERE.glob(pattern)) for pair in _read_pairs(path))


def _read_pairs(path: Path) -> Iterator[Pair]:
    formula = ""
    for section in read_sections(path):
        if section.kind == "formula":
            formula = section.text
            continue
        known = re.fullmatch(r"(right|wrong)(, slow)?: (\w+)", section.title)
        assert known, f"{path.name}: code under {section.title or 'no heading'}"
        assert section.story, f"{path.name}: {section.title} tells no story"
        assert {*section.entries} <= ENTRIES, f"{path.name}: {section.title}: {section.entries}"
        right, slow, name = known[1] == "right", bool(known[2]), known[3]
        yield Pair(name, right, slow, formula, section.text, section.entries)


def read_binds(bind: str) -> Iterator[tuple[str, str]]:
    """Yield the names and sources of `query=Q, key=cat((K, L))`."""
    depth, start = 0, 0
    for place, sign in enumerate(bind + ","):
        depth += (sign in "([") - (sign in ")]")
        if sign == "," and not depth:
            name, _, source = bind[start:place].partition("=")
            if name.strip():
                yield name.strip(), source.strip()
            start = place + 1


def is_equal_by_loops(pair: Pair) -> bool | None:
    """Whether the code agrees with direct loops over the formula, in float64.

    None if the difference is between CLOSE and FAR. Code that does not run or returns another
    shape differs. Code that runs only at equal sizes is judged at those.
    """
    ran = False
    for sizes in _find_sizes(pair):
        values = draw_inputs(pair.system, sizes, seed=1)
        if "shown by" in pair.entries:
            factor = float(pair.entries["shown by"])
            values = {name: value * factor for name, value in values.items()}
        wanted = evaluate_loops(pair.formula, values)
        try:
            found = call(pair, {**sizes, **values})
        except (RuntimeError, ValueError, IndexError, AssertionError, AttributeError):
            if pair.right:
                raise
            continue
        if max(sizes.values(), default=0) == min(sizes.values(), default=0) and ran:
            continue  # equal sizes count only if the code runs at no others
        ran = True
        off = find_distance(found, wanted if isinstance(wanted, tuple) else (wanted,))
        if off > (CLOSE_IN_SINGLE if "single" in pair.entries else CLOSE):
            return False if off > FAR else None
    return ran


def _find_sizes(pair: Pair) -> Iterator[dict[str, int]]:
    fixed = pair.sizes | pair.read_sizes("shown at")
    samples = choose_sizes(pair.system, 3, fixed=fixed)
    yield from (samples[0], samples[2])
    if not pair.right:
        yield dict.fromkeys(samples[0], 4) | fixed


def find_distance(found: tuple[Any, ...], wanted: tuple[Any, ...]) -> float:
    """The largest difference, relative to the largest element; infinite for another shape."""
    if len(found) < len(wanted):
        return float("inf")
    return max(map(_find_distance, found, wanted))


def _find_distance(found: Any, wanted: Any) -> float:
    found, wanted = (torch.as_tensor(each).double() for each in (found, wanted))
    if found.shape != wanted.shape or bool((found.isfinite() != wanted.isfinite()).any()):
        return float("inf")
    finite = wanted.isfinite()
    top = max(1e-3, float(wanted[finite].abs().max())) if bool(finite.any()) else 1.0
    off = (found - wanted)[finite].abs()
    return float(off.max()) / top if off.numel() else 0.0


def call(pair: Pair, values: Mapping[str, Any]) -> tuple[Any, ...]:
    """The results of the code for the formula's tensors, scalars and sizes."""
    names: dict[str, Any] = {"__name__": "checked"}
    tree = ast.parse(pair.source)
    target = find_target(tree, pair.entries.get("code"))
    given = {
        name: eval(source, {"cat": torch.cat, "stack": torch.stack}, dict(values))
        for name, source in pair.bind.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if target is None:
            return _run_script(tree, given)
        exec(compile(tree, pair.name, "exec"), names)
        if isinstance(names[target], type):
            return flatten(_run_module(pair, names[target], values, given))
        arguments = find_arguments(pair, names[target], values, given)
        return flatten(names[target](**arguments))


def find_target(tree: ast.Module, wanted: str | None = None) -> str | None:
    """The public function or class of a file; none in a script."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    found = [n.name for n in tree.body if isinstance(n, kinds) and not n.name.startswith("_")]
    if wanted is not None or not found:
        return wanted
    last = tree.body[-1]
    return found[-1] if isinstance(last, kinds) else None


def find_arguments(
    pair: Pair, function: Any, values: Mapping[str, Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the value of each argument: as bound, by name, by order, or its default."""
    asked = inspect.signature(function).parameters
    taken = {name for source in pair.bind.values() for name in values if name in _words(source)}
    left = [
        entry.name
        for entry in pair.system.inputs
        if entry.name not in asked and entry.name not in taken
    ]
    found = {}
    for name, parameter in asked.items():
        if name in given:
            found[name] = given[name]
        elif name in values:
            found[name] = values[name]
        elif parameter.default is parameter.empty:
            assert left, f"{pair}: nothing is left for {name}"
            found[name] = values[left.pop(0)]
    return {name: copy_value(value) for name, value in found.items()}


def _words(source: str) -> set[str]:
    return {n.id for n in ast.walk(ast.parse(source, mode="eval")) if isinstance(n, ast.Name)}


def copy_value(value: Any) -> Any:
    """Return a copy of a tensor, because code may change it in place."""
    return value.clone() if isinstance(value, torch.Tensor) else value


def _run_module(pair: Pair, kind: Any, values: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    made = inspect.signature(kind.__init__).parameters
    options = {
        name: (given | dict(values))[name] for name in made if name in given or name in values
    }
    module = kind(**options).double().eval()
    owned = [name for name, _ in module.named_parameters()]
    known = {**values, **given}
    parameters = {name: known[name].contiguous() for name in owned}
    arguments = find_arguments(pair, module.forward, values, given)
    return torch.func.functional_call(module, parameters, (), arguments)


def _run_script(tree: ast.Module, given: Mapping[str, Any]) -> tuple[Any, ...]:
    """The last name that a script assigns, with the bound names as they are given."""
    body, last = [], ""
    for node in tree.body:
        name = next((n.id for n in ast.walk(node) if _is_store(n)), "")
        if isinstance(node, ast.Assign) and name not in given:
            last = name
        if name not in given:
            body.append(node)
    names: dict[str, Any] = {name: copy_value(value) for name, value in given.items()}
    exec(compile(ast.Module(body, []), "<script>", "exec"), names)
    return (names[last],)


def _is_store(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def flatten(result: Any) -> tuple[Any, ...]:
    """The tensors and numbers of a result, in order."""
    if isinstance(result, (tuple, list)):
        return tuple(each for part in result for each in flatten(part))
    return (result,)
