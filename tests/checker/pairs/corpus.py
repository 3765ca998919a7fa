"""The corpus of code and formula pairs, read without importing it, and judged by the loops alone.

A pair is an ordinary module with one function, one module class or a script in it, and constants:

    FORMULA      text of the notation, or a name of the library
    CODE         the function or class that is meant, where the file has several
    BIND         what arguments and parameters are given, where names do not tell
    SIZES        sizes that the code needs; all others are free
    SHOWN_AT     of a wrong one: sizes at which it shows, which a checker is not told
    SHOWN_BY     of a wrong one: how large the inputs have to be
    SINGLE       of a right one: it computes in float32 along the way
    EMPTY_ROW    what the formula says of rows with nothing left
    EDIT, LINE   of a wrong one: words of the edit ("a|b": either), a part of the line at fault
"""

from __future__ import annotations

import ast
import inspect
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from derive import Formula, evaluate_loops, parse
from derive.formulas import find_formula
from derive.frontend.from_sympy import from_sympy
from derive.ir.nodes import System
from derive.judge.samples import choose_sizes, draw_inputs

HERE = Path(__file__).resolve().parent
CONSTANTS = (
    *("FORMULA", "CODE", "BIND", "SIZES", "EMPTY_ROW", "SHOWN_AT", "SHOWN_BY", "SINGLE"),
    *("EDIT", "LINE"),
)
CLOSE = 1e-9  # relative to the largest element; what is wrong is off by far more
CLOSE_IN_SINGLE = 1e-5
FAR = 1e-7


@dataclass(frozen=True)
class Pair:
    """Code, the formula that it should compute, and whether it does."""

    path: Path
    right: bool
    constants: Mapping[str, Any] = field(hash=False)

    def __str__(self) -> str:
        return self.path.stem

    @cached_property
    def source(self) -> str:
        """The module without the constants, every line at its place."""
        lines = self.path.read_text(encoding="utf-8").splitlines()
        for node in ast.parse("\n".join(lines)).body:
            if _find_constant(node) is not None:
                lines[node.lineno - 1 : node.end_lineno] = [""] * _count_lines(node)
        return "\n".join(lines) + "\n"

    @cached_property
    def formula(self) -> Formula:
        """The formula, parsed or from the library."""
        text = self.constants["FORMULA"]
        if "=" not in text:
            return find_formula(text)
        return parse(text, empty_row=self.constants.get("EMPTY_ROW", "nan"))

    @cached_property
    def system(self) -> System:
        """The formula as equations."""
        return from_sympy(self.formula)

    @property
    def bind(self) -> dict[str, str]:
        """What arguments and parameters are given."""
        return dict(self.constants.get("BIND", {}))

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes that the code needs."""
        return dict(self.constants.get("SIZES", {}))

    @property
    def edit(self) -> tuple[str, ...]:
        """Words that the right edit has, in lower case."""
        return tuple(self.constants.get("EDIT", ()))

    def is_edited_by(self, edit: str) -> bool:
        """Does an edit have all the words?"""
        return all(any(each in edit.lower() for each in word.split("|")) for word in self.edit)

    @cached_property
    def line(self) -> int | None:
        """The number of the line at fault."""
        part = self.constants.get("LINE")
        rows = self.source.splitlines()
        found = [n for n, row in enumerate(rows, 1) if part is not None and part in row]
        assert part is None or len(found) == 1, f"{self}: {part!r} stands on lines {found}"
        return found[0] if found else None

    def write(self, folder: Path) -> str:
        """The code as a file of its own, as `derive check` is given it."""
        path = folder / self.path.name
        path.write_text(self.source, encoding="utf-8")
        return f"{path}:{self.constants['CODE']}" if "CODE" in self.constants else str(path)


def load_pairs(*, right: bool) -> tuple[Pair, ...]:
    """All right or all wrong pairs, by name."""
    return tuple(map(read_pair, sorted((HERE / ("right" if right else "wrong")).glob("*.py"))))


def read_pair(path: Path) -> Pair:
    """One pair; its constants are read, never run."""
    return Pair(path, path.parent.name == "right", find_constants(path))


def find_constants(path: Path, names: tuple[str, ...] = CONSTANTS) -> dict[str, Any]:
    """The constants of a file, by name; the file has to tell its story."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), f"{path.name} tells no story"
    found = (_find_constant(node, names) for node in tree.body)
    return dict(constant for constant in found if constant is not None)


def _find_constant(node: ast.stmt, names: tuple[str, ...] = CONSTANTS) -> tuple[str, Any] | None:
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in names:
            return name, ast.literal_eval(value)
    return None


def _count_lines(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def is_equal_by_loops(pair: Pair) -> bool | None:
    """Does the code give what direct loops over the formula give, in float64?

    None if it lies between close and far. Code that does not run or gives another shape is
    different; code that runs at equal sizes only is judged at those.
    """
    ran = False
    for sizes in _find_sizes(pair):
        values = draw_inputs(pair.system, sizes, seed=1)
        if "SHOWN_BY" in pair.constants:
            values = {name: value * pair.constants["SHOWN_BY"] for name, value in values.items()}
        wanted = evaluate_loops(pair.formula, values)
        try:
            found = call(pair, {**sizes, **values})
        except (RuntimeError, ValueError, IndexError, AssertionError):
            if pair.right:
                raise
            continue
        if max(sizes.values(), default=0) == min(sizes.values(), default=0) and ran:
            continue  # equal sizes say something only where the code runs at no others
        ran = True
        off = find_distance(found, wanted if isinstance(wanted, tuple) else (wanted,))
        if off > (CLOSE_IN_SINGLE if pair.constants.get("SINGLE") else CLOSE):
            return False if off > FAR else None
    return ran


def _find_sizes(pair: Pair) -> Iterator[dict[str, int]]:
    told = pair.sizes | pair.constants.get("SHOWN_AT", {})
    draws = choose_sizes(pair.system, 3, fixed=told)
    yield from (draws[0], draws[2])
    if not pair.right:
        yield dict.fromkeys(draws[0], 4) | told


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
    target = find_target(tree, pair.constants.get("CODE"))
    given = {
        name: eval(source, {"cat": torch.cat, "stack": torch.stack}, dict(values))
        for name, source in pair.bind.items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if target is None:
            return _run_script(tree, given)
        exec(compile(tree, str(pair.path), "exec"), names)
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
    """What each argument is given: as bound, by name, by order; else its default."""
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
    return {name: copy(value) for name, value in found.items()}


def _words(source: str) -> set[str]:
    return {n.id for n in ast.walk(ast.parse(source, mode="eval")) if isinstance(n, ast.Name)}


def copy(value: Any) -> Any:
    """The value, for code that changes it in place."""
    return value.clone() if isinstance(value, torch.Tensor) else value


def _run_module(pair: Pair, kind: Any, values: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    made = inspect.signature(kind.__init__).parameters
    told = {name: (given | dict(values))[name] for name in made if name in given or name in values}
    module = kind(**told).double().eval()
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
    names: dict[str, Any] = {name: copy(value) for name, value in given.items()}
    exec(compile(ast.Module(body, []), "<script>", "exec"), names)
    return (names[last],)


def _is_store(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def flatten(result: Any) -> tuple[Any, ...]:
    """The tensors and numbers of a result, in order."""
    if isinstance(result, (tuple, list)):
        return tuple(each for part in result for each in flatten(part))
    return (result,)
