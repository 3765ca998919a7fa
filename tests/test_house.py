"""Structural rules of the project, applied to the whole tree; house.py defines them."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib

import pytest
from house import (
    ROOT,
    find_cycle,
    find_imports,
    find_long,
    find_private_torch,
    find_set_orders,
    find_skips,
    find_tracked,
    find_unstable,
    parse,
    read_modules,
)

import derive
from derive.ir.functions import PUBLIC

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DERIVE = read_modules("derive")
TESTS = read_modules("tests")
GENERATED = read_modules("generated")
ALL = DERIVE | TESTS | GENERATED

FOLDERS = {"derive", "generated", "tests"}
FILES = {"pyproject.toml", "README.md", "LICENSE", ".gitignore", ".ci", ".pre-commit-hooks.yaml"}

# Prefixes of the modules that may import each third-party library.
OF_TORCH = "derive.judge.fields"  # defines tensor subclasses; imported lazily
DOORS = {
    "sympy": ("derive.notation.", "derive.frontend.", "derive.formulas.", "derive.judge.loops"),
    "opt_einsum": ("derive.plan.path",),
    "typer": ("derive.cli",),
    "rich": (),
    "matplotlib": (),
    "mpmath": ("derive.judge.loops.entries",),
    "IPython": (),
    "numpy": (),
}

# Allowed sources of nondeterminism. notation.words counts declarations to order them. plan.path
# saves and restores the state of `random` around opt_einsum. processes compares the age of folders.
# The checker seeds `random` before it runs user code.
ALLOWED = {
    "derive.notation.words": "a counter of the whole module",
    "derive.plan.path": "state()",
    "derive.checker.processes": "time.time()",
    "derive.checker.runs": "random.seed()",
    "derive.checker.judge.circumstances": "random.",
}


def check(places):
    """Fail with one line for each place that breaks a rule."""
    assert not places, "\n".join(["broken at", *places])


def find_violations(law, modules):
    """The places of all modules that break a rule."""
    return [f"{name}:{place}" for name, source in modules.items() for place in law(source)]


def test_the_top_level_is_fixed():
    found = {path.relative_to(ROOT).parts[0] for path in find_tracked()}
    assert found == FOLDERS | FILES


def test_files_are_short():
    check(find_violations(find_long, DERIVE | TESTS))


def test_nothing_makes_two_runs_differ():
    found = find_violations(find_unstable, DERIVE)
    allowed = [place for place in found if ALLOWED.get(place.split(":")[0], "-") in place]
    check([place for place in found if place not in allowed])


def test_no_result_has_the_order_of_a_set():
    check(find_violations(find_set_orders, DERIVE))


def test_every_test_runs():
    check(find_violations(find_skips, TESTS))


def find_derive_imports(modules):
    """(module, imported module, line) of every import between modules of derive."""
    known = frozenset(modules)
    return [
        (name, target, line)
        for name, source in modules.items()
        if name != "derive"
        for target, _, line in find_imports(source, known)
        if target.split(".")[0] == "derive"
    ]


def test_only_formulas_import_the_package_and_only_its_notation():
    for name, target, line in find_derive_imports(DERIVE):
        if target != "derive":
            continue
        assert name.startswith("derive.formulas."), f"{name}:{line} reads the front page"
        for node in ast.walk(parse(DERIVE[name])):
            if isinstance(node, ast.ImportFrom) and node.module == "derive":
                homes = {derive._HOME_OF[alias.name] for alias in node.names}
                assert all(h.split(".")[1] in {"notation", "frontend"} for h in homes), name


def find_misplaced_imports(modules):
    """Imports of third-party libraries outside of their modules, and eager imports of torch."""
    found = []
    for name, source in modules.items():
        for target, at_once, line in find_imports(source):
            library = target.split(".")[0]
            if library in DOORS and not name.startswith(DOORS[library]):
                found.append(f"{name}:{line}: {target}")
            if library == "torch" and at_once and not name.startswith(OF_TORCH):
                found.append(f"{name}:{line}: torch is read through derive.libraries")
    return found


def test_third_party_libraries_are_imported_in_few_modules():
    check(find_misplaced_imports(DERIVE))


def test_private_names_of_torch_are_used_in_one_module():
    rest = {name: source for name, source in DERIVE.items() if name != "derive.libraries"}
    check(find_violations(find_private_torch, rest))


def test_modules_that_import_torch_are_imported_lazily():
    places = [
        f"{name}:{line}: {target}"
        for name, source in DERIVE.items()
        if not name.startswith(OF_TORCH)
        for target, at_once, line in find_imports(source, frozenset(DERIVE))
        if at_once and target.startswith(OF_TORCH)
    ]
    check(places)


def test_no_import_goes_in_circles():
    graph = {name: [] for name in DERIVE}
    for name, target, _ in find_derive_imports(DERIVE):
        if target != "derive":
            graph[name].append(target)
    check(find_cycle(graph))


def run_python(code, *, stderr=False):
    """Standard output of code in a new interpreter, or its standard error."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr if stderr else done.stdout


LOADED = "import sys; print(*sorted({name.split('.')[0] for name in sys.modules}))"


def test_import_derive_is_light():
    loaded = run_python(f"import derive; dir(derive); {LOADED}").split()
    heavy = {"torch", "sympy", "IPython", "numpy", "opt_einsum", "typer", "rich", "mpmath"}
    assert "derive" in loaded
    assert heavy.isdisjoint(loaded)


@pytest.mark.slow
def test_no_warning_about_missing_numpy():
    without = "import sys; sys.modules['numpy'] = None"
    warn = "import torch"
    assert "NumPy" in run_python(f"{without}; {warn}", stderr=True)
    assert not run_python(f"{without}; import derive; {warn}", stderr=True)


def test_generated_modules_import_torch_only():
    for name, source in GENERATED.items():
        libraries = {target.split(".")[0] for target, _, _ in find_imports(source)}
        assert libraries <= {"torch", "__future__"}, name
    names = ", ".join(name for name in GENERATED)
    loaded = run_python(f"import {names}; {LOADED}").split() if names else []
    assert "derive" not in loaded


def test_generated_modules_are_linted_too():
    ruff = PYPROJECT["tool"]["ruff"]
    assert "exclude" not in ruff | ruff["lint"]
    assert "extend-exclude" not in ruff | ruff["lint"]
    assert "F" not in ruff["lint"]["per-file-ignores"]["generated/**"]


def test_public_names_are_listed_once_and_found():
    tree = parse(DERIVE["derive"])
    for_types = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    made = {name: home for name, home in derive._HOME_OF.items() if name in PUBLIC}
    assert for_types | made == derive._HOME_OF
    assert set(made.values()) == {"derive.notation.words"}
    assert derive.__all__ == sorted(derive._HOME_OF)
    assert set(derive.__all__) <= set(dir(derive))
    for name, home in derive._HOME_OF.items():
        assert getattr(derive, name) is getattr(importlib.import_module(home), name)


def test_every_word_of_the_notation_is_public():
    from derive.notation.words import FUNCTIONS, REDUCTIONS

    words = {kind.__name__ for kind in (FUNCTIONS | REDUCTIONS).values()}
    assert words <= set(derive.__all__)


def test_an_unknown_name_is_refused_as_python_does():
    with pytest.raises(AttributeError, match="module 'derive' has no attribute 'sofmax'"):
        _ = derive.sofmax


def test_no_file_contains_a_machine_path():
    machine = re.compile(r"(?<![\w.])/(?:work|root|home|Users)/\w")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in find_tracked()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if machine.search(line)
    ]
    check(found)
    assert machine.search("see " + "/".join(["", "home", "me"]))


def test_the_readme_installs_the_tested_versions():
    install = 'pip install "torch==2.13.0" -e ".[test]"'
    assert install in (ROOT / "README.md").read_text(encoding="utf-8")
    assert install in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


PLANTED = [
    # (law, a text that breaks it, what is found)
    (find_long, "\n" * 601, ["1: 601 lines"]),
    (find_long, "\n" * 600, []),
    (find_long, "def f():" + "\n    x = 1" * 60, ["1: f is longer than 60 lines"]),
    (find_long, "def f():" + "\n    x = 1" * 59, []),
    (find_unstable, "key = id(x)", ["1: id()"]),
    (find_unstable, "def f():\n    global n", ["2: global n"]),
    (
        find_unstable,
        "from itertools import count\nn = count()",
        ["2: a counter of the whole module"],
    ),
    (find_unstable, "import datetime", ["1: import datetime"]),
    (find_unstable, "a = time.time()", ["1: time.time()"]),
    (find_unstable, "a = random.choice(x)", ["1: random.choice()"]),
    (find_unstable, "a = random.Random()", ["1: random.Random() without a seed"]),
    (find_unstable, "a = random.Random(0).choice(x)\nb = time.perf_counter()", []),
    (find_set_orders, "for a in {1, 2}: pass", ["1: {1, 2}"]),
    (find_set_orders, "a = list(set(x))", ["1: set(x)"]),
    (find_set_orders, "a = [b for b in {c for c in x}]", ["1: {c for c in x}"]),
    (find_set_orders, "def f(x: set[str]) -> str:\n    return ', '.join(x)", ["2: x"]),
    (find_set_orders, "def f(y):\n    x = set(y)\n    return tuple(x | {1})", ["3: x | {1}"]),
    (find_set_orders, "x = {1}\na = [*x]", ["2: x"]),
    (find_set_orders, "x = {1}\na = {*x, 2}\nb = sorted(x)\nc = sorted(n for n in x)", []),
    (find_set_orders, "x = {1}\na = any(n > 0 for n in x)\nb = {n + 1 for n in x}", []),
    (find_set_orders, "def f():\n    x = {1}\ndef g(x):\n    return list(x)", []),
    (find_private_torch, "a = torch._C.key", ["1: torch._C.key", "1: torch._C"]),
    (find_private_torch, "from torch.utils import _pytree", ["1: torch.utils._pytree"]),
    (find_private_torch, "import torch._dynamo", ["1: torch._dynamo"]),
    (find_private_torch, "home = 'torch._numpy'", ["1: torch._numpy"]),
    (find_private_torch, "import torch.nn\na = torch.nn.Module.__call__\nb = 'torch._x(y)'", []),
    (find_skips, "@pytest.mark.skipif(True)\ndef test(): pass", ["1: skipif"]),
]


@pytest.mark.parametrize(("law", "source", "found"), PLANTED)
def test_rules_find_planted_violations(law, source, found):
    assert law(source) == found


def test_imports_are_found_at_every_nesting():
    source = (
        "import torch\nfrom a import b\nif TYPE_CHECKING:\n    import c\n"
        "def f():\n    from d.e import g\n"
    )
    assert find_imports(source, frozenset({"a.b"})) == [
        ("torch", True, 1),
        ("a.b", True, 2),
        ("c", False, 4),
        ("d.e", False, 6),
    ]
    assert find_imports('def f():\n    import_module("derive.compiler")') == [
        ("derive.compiler", False, 2)
    ]


def test_misplaced_and_cyclic_imports_are_found():
    planted = {
        "derive.plan.path": "import opt_einsum\nimport torch\nfrom derive import errors, ir",
        "derive.plan.order": "from opt_einsum import paths\nif TYPE_CHECKING:\n    import torch",
        "derive.notation.words": "from sympy import Idx\nimport rich.table",
        "derive.errors": "import sympy.core\ndef f():\n    import torch",
        "derive.judge.fields.tensor": "import torch",
    }
    assert find_misplaced_imports(planted) == [
        "derive.plan.path:2: torch is read through derive.libraries",
        "derive.plan.order:1: opt_einsum",
        "derive.notation.words:2: rich.table",
        "derive.errors:1: sympy.core",
    ]
    assert find_cycle({"a": ["b"], "b": ["c"], "c": ["b"]}) == ["b", "c", "b"]
    assert find_cycle({"a": ["b", "c"], "b": ["c"], "c": ["elsewhere"]}) == []
