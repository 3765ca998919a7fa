"""Code as text beside a formula as text, made a case for the explanation."""

import importlib.util

from derive.checker.explain import STEPS, Case, explain
from derive.checker.load import Code
from derive.checker.program import Program
from derive.compiler import to_system
from derive.frontend.from_text import parse
from derive.judge.samples import choose_sizes, draw_inputs

HEAD = "import math\nimport torch\nimport torch.nn.functional as F\n\n\n"


def make_case(formula, code, folder, sizes=None):
    """The case of a function's body: its arguments are the formula's inputs and its sizes."""
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

    def make(sizes, others=()):
        return Case(system, program, lambda seed: draw_inputs(system, sizes, seed), sizes, others)

    first, *others = all_sizes
    return make(first, tuple(make(other) for other in others))


def explain_code(formula, code, folder, sizes=None, steps=STEPS):
    """The explanation of a function's body against a formula."""
    return explain(make_case(formula, code, folder, sizes), steps)


def find_line(code, part):
    """The number of the line of the file that holds this part of the code."""
    lines = code.splitlines()
    return len(HEAD.splitlines()) + 2 + next(n for n, line in enumerate(lines) if part in line)
