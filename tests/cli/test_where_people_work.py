"""JSON with a version, a shell's completion, hooks for pre-commit, notebooks, pytest."""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from contextlib import suppress

import pytest
from cli_runs import MATMUL, run_process
from house import ROOT

from derive import DeriveError, Formula, load_ipython_extension, parse
from derive.cli.notebook import build_cell


@pytest.mark.parametrize(
    "command",
    ["list", f"show {MATMUL!r}", "einsum ij,jk->ik", "lint .", "lint --list", "show nothing"],
)
def test_json_has_a_version(run, command):
    data = json.loads(run(*shlex.split(command), "--json").out)
    assert all(each["version"] == 1 for each in (data if isinstance(data, list) else [data]))


def complete_words(*words):
    environment = {"_DERIVE_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words)}
    environment["COMP_CWORD"] = str(len(words) - 1)
    return run_process(cwd=ROOT, env=environment).stdout.split()


@pytest.mark.slow
def test_a_shell_completes_verbs_options_and_formulas():
    assert complete_words("derive", "show", "relative_") == [
        "relative_attention",
        "relative_key_attention",
    ]
    assert "derive" in run_process("--show-completion", "bash", cwd=ROOT).stdout
    assert re.match(r"derive \d|derive, from a checkout", run_process("--version", cwd=ROOT).stdout)


def test_hooks_for_pre_commit_are_commands_that_exist(run):
    hooks = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    entries = re.findall(r"^  entry: derive (.+)$", hooks, re.MULTILINE)
    assert len(entries) == hooks.count("- id: ") == 2
    for entry in entries:
        assert run(*shlex.split(entry), "--help").code == 0


class Shell:
    """The part of the IPython shell that an extension uses."""

    def __init__(self):
        self.user_ns, self.magics = {}, {}

    def register_magic_function(self, function, kind, name):
        self.magics[kind, name] = function


def test_a_cell_of_a_notebook_is_a_formula():
    shell = Shell()
    load_ipython_extension(shell)
    magic = shell.magics["cell", "derive"]
    built = magic("mm --sizes I=4,K=5,J=6 --exact", MATMUL)
    assert (built.plan.sizes, built.options.exact) == ({"I": 4, "K": 5, "J": 6}, True)
    assert shell.user_ns["mm"] is built.function
    assert magic("--help", MATMUL) is None
    with pytest.raises(DeriveError) as refused:
        magic("mm", "C[i,j] = A[i,j]")
    (text,) = refused.value._render_traceback_()
    assert text == str(refused.value)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "magic-words: a cell has one name"),
        ("mm --out here", "magic-words: --out is no option here"),
        ("mm --sizes I=x", "sizes-form: I=x is no size"),
        ("mm --nothing", "magic-words: No such option: --nothing"),
        ("'", "magic-words: No closing quotation"),
    ],
)
def test_bad_options_of_a_cell_are_refused(line, says):
    with pytest.raises(DeriveError) as refused:
        build_cell(line, MATMUL)
    assert str(refused.value).startswith(says)


def test_formulas_are_shown_as_mathematics_in_a_notebook():
    assert parse(MATMUL)._repr_latex_().startswith("$$\\begin{aligned}\nC_{i,j} &= ")
    assert Formula(1)._repr_latex_() is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["check", "import", "write"])
def test_the_example_notebooks_run(name, tmp_path):
    command = [sys.executable, "-m", "IPython", f"tests/examples/{name}.ipynb"]
    environment = os.environ | {"IPYTHONDIR": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


IN_PYTEST = f"""
from derive import check
from derive.testing import assert_computes

def mm(a, b):
    return 2 * a @ b

def test_by_function():
    assert_computes(mm, {MATMUL!r})

def test_by_assert():
    assert check(mm, {MATMUL!r})
"""


@pytest.mark.slow
def test_a_failure_is_readable_under_pytest(tmp_path):
    (tmp_path / "test_it.py").write_text(IN_PYTEST)
    command = [sys.executable, "-m", "pytest", "-q", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    output = done.stdout
    assert "2 failed" in output, done.stderr
    assert "E       AssertionError: different: mm against formula" in output
    assert re.search(r"E +> +6 \|     return 2 \* a @ b", output)
    assert "assert <different: mm against formula, line 6: " in output


@pytest.mark.slow
@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_check_shows_its_stages_on_a_terminal_alone(tmp_path, is_terminal):
    (tmp_path / "code.py").write_text("def f(x):\n    return 2 * x\n")
    shown, end = pty.openpty() if is_terminal else os.pipe()
    command = [sys.executable, "-m", "derive", "check", "code.py", "-f", "x[N]; y[i] = 2*x[i]"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=end, cwd=tmp_path, check=True)
    os.close(end)
    text = b""
    with suppress(OSError):  # a closed terminal raises OSError instead of an end of file
        while part := os.read(shown, 1 << 16):
            text += part
    os.close(shown)
    assert done.stdout.startswith(b"same, proved")
    assert (b"code.py: the proof" in text) is is_terminal
    assert bool(text) is is_terminal
