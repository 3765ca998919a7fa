"""Cases for explanations, from texts of code and formula; tables of right and wrong code."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from texts import read_rows, read_sections

from derive.checker.explain import STEPS, Case, explain
from derive.checker.load import Code
from derive.checker.program import Program
from derive.checker.samples import Sample
from derive.compiler import to_system
from derive.frontend.from_text import parse
from derive.judge.samples import choose_sizes

HEAD = "import math\nimport torch\nimport torch.nn.functional as F\n\n\n"


def make_case(formula, code, folder, sizes=None):
    """Make a case of a function's body: its arguments are the inputs and sizes of the formula."""
    system = to_system(parse(formula))
    all_sizes = [dict(sizes)] if sizes else choose_sizes(system, 3)
    names = [entry.name for entry in system.inputs]
    names += [name for name in all_sizes[0] if name not in names]
    body = "".join(f"    {line}\n" for line in code.splitlines())
    path = folder / "code.py"
    path.write_text(f"{HEAD}def code({', '.join(names)}):\n{body}", encoding="utf-8")
    spec = importlib.util.spec_from_file_location("code_of_a_case", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    code = Code("code", module.code, str(path), path.read_text(encoding="utf-8"))
    program = Program(code, {name: name for name in names})

    return Case(program, tuple(Sample(system, sizes, 0) for sizes in all_sizes))


def explain_code(formula, code, folder, sizes=None, steps=STEPS):
    """The explanation of a function's body against a formula."""
    return explain(make_case(formula, code, folder, sizes), steps)


def find_line(code, part):
    """The number of the line of the file that holds this part of the code."""
    lines = code.splitlines()
    return len(HEAD.splitlines()) + 2 + next(n for n, line in enumerate(lines) if part in line)


@dataclass(frozen=True)
class Wrong:
    """Wrong code, and the words and line of its explanation."""

    name: str
    formula: str
    code: str
    words: str
    part: str  # a part of the line at fault


def read_right():
    """The formulas of explain.md and right code of each, by name."""
    sections = list(read_sections(Path(__file__).with_name("explain.md")))
    return {
        formula.title: (formula.text, code.text)
        for formula, code in zip(sections[::2], sections[1::2], strict=True)
    }


RIGHT = read_right()
HEADS, HEADS_CODE = RIGHT["HEADS"]


def read_wrong():
    """The wrong codes of explain_wrong.txt."""
    for name, which, old, new, words, part in read_rows(
        Path(__file__).with_name("explain_wrong.txt")
    ):
        formula, code = RIGHT[which]
        assert old in code, f"{name}: the code has no {old}"
        yield Wrong(name, formula, code.replace(old, new), words, part)
