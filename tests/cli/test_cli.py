"""The command line: output of the verbs, exit codes, and messages for mistakes."""

import json
import os
import shlex
import subprocess
import sys
from importlib import metadata
from io import StringIO
from pathlib import Path

import pytest
from cli_runs import MATMUL, TWO, Answer, run_process
from house import ROOT
from texts import read_parts

# Help, version, imported modules, and exits.


def test_help_names_every_verb(run):
    answer = run("--help")
    verbs = [line.split()[0] for line in answer.out.split("Commands:\n")[1].splitlines() if line]
    assert answer.code == 0
    assert verbs == ["list", "show", "build", "new", "einsum", "check", "bench", "help", "lint"]


@pytest.mark.parametrize("verb", ["list", "show", "build", "new", "einsum", "check", "lint"])
def test_every_verb_has_help(run, verb):
    assert run(verb, "--help").out.startswith(f"Usage: derive {verb} [OPTIONS]")


def test_the_version_is_that_of_the_distribution(run, monkeypatch):
    monkeypatch.setattr(metadata, "version", lambda name: {"derive-torch": "1.2.3"}[name])
    assert run("--version") == Answer(0, "derive 1.2.3\n", "")


def test_help_loads_neither_torch_nor_sympy(tmp_path):
    code = (
        "import sys\nfrom derive.cli import main\n"
        "try: main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('torch', 'sympy', 'opt_einsum', 'rich.console') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nonsense"], "Error: No such command 'nonsense'"),
        (["show"], "Error: Missing argument 'NAME|FILE|FILE.py:NAME|TEXT'."),
        (["build", "--zzz"], "Error: No such option: --zzz"),
        (["new"], "Error: Missing argument 'NAME'"),
        (["einsum", "ij,jk", "kl"], "Error: Got unexpected extra argument"),
    ],
)
def test_usage_errors(run, arguments, says):
    answer = run(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.splitlines()[-1].startswith(says)


def test_an_interrupt_is_no_traceback(run, monkeypatch):
    def interrupt(as_json):
        raise KeyboardInterrupt

    monkeypatch.setattr("derive.cli.list.print_list", interrupt)
    assert run("list") == Answer(130, "", "")


def test_a_reader_who_leaves_is_no_traceback(tmp_path):
    command = f"{sys.executable} -m derive list | head -1"
    done = subprocess.run(
        command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout.split()[0], done.stderr) == ("family", "")


def test_an_output_that_is_closed_is_no_traceback():
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "derive", "show", "nothing", "--json"],
        cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    os.close(writing)
    assert "Traceback" not in done.stderr


def test_a_title_that_the_output_cannot_write_is_escaped(tmp_path):
    text = 'from derive import parse\nf = parse("x[N]; y[n] = x[n]", title="Schrödinger")\n'
    (tmp_path / "f.py").write_text(text, encoding="utf-8")
    done = run_process("show", "f.py", cwd=tmp_path, env={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "# f: Schr\\xf6dinger")


# derive list


def test_list(run):
    answer = run("list")
    lines = answer.out.splitlines()
    assert answer.code == 0
    assert lines[0].split() == ["family", "formula", "title", "arguments"]
    assert lines[1].split("  ")[-1] == "X W_Q W_K W_V A_K A_V"
    assert lines[-1] == f"{len(lines) - 2} formulas; see one with: derive show NAME"
    assert all(line == line.rstrip() for line in lines)


def test_list_as_json(run):
    entries = json.loads(run("list", "--json").out)
    assert entries[0] == {
        "version": 1,
        "family": "attention",
        "name": "relative_attention",
        "title": "Self-attention with relative position representations",
        "arguments": ["X", "W_Q", "W_K", "W_V", "A_K", "A_V"],
    }


# derive new


def test_a_new_file_builds_and_shows_as_it_stands(run, tmp_path):
    answer = run("new", "mine")
    assert answer == Answer(0, "mine.py is written; see it with: derive show mine.py\n", "")
    assert run("show", "mine.py").code == 0
    assert run("build", "mine.py").code == 0
    assert run("build", "mine.py", "--check").code == 0


def test_a_new_file_overwrites_nothing(run, tmp_path):
    (tmp_path / "mine.py").write_text("precious")
    answer = run("new", "mine")
    assert answer.code == 2
    assert answer.err.splitlines()[0] == "file-exists: mine.py is there already"
    assert (tmp_path / "mine.py").read_text() == "precious"


@pytest.mark.parametrize("name", ["z", "Q", "sympy", "derive", "Formula", "B"])
def test_a_new_file_may_have_any_name(run, name):
    assert run("new", name, "--out", "formulas").code == 0
    answer = run("show", f"formulas/{name}.py", "--json")
    assert json.loads(answer.out)["name"] == name


@pytest.mark.parametrize("name", ["2d", "a-b", "lambda", "a/b", ""])
def test_a_new_file_is_named_like_a_function(run, tmp_path, name):
    answer = run("new", name)
    says = f"formula-name: a formula is named like a Python function, not {name!r}"
    assert (answer.code, answer.err.splitlines()[0]) == (2, says)
    assert list(tmp_path.iterdir()) == []


# Forms of an argument.


def test_text_and_file_and_input_are_the_same_formula(run, tmp_path, monkeypatch):
    (tmp_path / "matmul.txt").write_text(MATMUL.replace("; C", "\nC"))
    texts = [run("show", MATMUL, "--latex").out, run("show", "matmul.txt", "--latex").out]
    monkeypatch.setattr(sys, "stdin", StringIO((tmp_path / "matmul.txt").read_text()))
    texts.append(run("show", "-", "--latex").out)
    assert "C_{i,j}" in texts[0]
    assert texts == texts[:1] * 3


def test_one_formula_of_a_file(run, tmp_path):
    (tmp_path / "two.py").write_text(TWO)
    assert json.loads(run("show", "two.py:two", "--json").out)["formula"][1] == "y[n] = 3 * x[n]"
    answer = run("show", "two.py")
    assert answer.err == (
        "formula-which: two.py has 2 formulas\n  they are one, two\n  help: write two.py:one\n"
    )


def test_output_of_a_file_is_not_part_of_the_answer(run, tmp_path):
    (tmp_path / "loud.py").write_text('print("hello")\n' + TWO)
    answer = run("show", "loud.py:one", "--json")
    assert json.loads(answer.out)["name"] == "one"
    assert answer.err == "hello\n"


def test_a_file_finds_its_neighbours(run, tmp_path):
    folder = tmp_path / "formulas"
    folder.mkdir()
    (folder / "neighbour.py").write_text('TEXT = "x[N]; y[n] = 2 * x[n]"\n')
    (folder / "f.py").write_text(
        "from derive import parse\nfrom neighbour import TEXT\nf = parse(TEXT)\n"
    )
    before = list(sys.path)
    assert run("show", "formulas/f.py").code == 0
    assert sys.path == before
    del sys.modules["neighbour"]


MISTAKES = read_parts(__file__, "mistakes.txt")


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes(run, tmp_path, case):
    files = {
        "syntax.py": "x = 1\ny = (1\n",
        "refused.py": 'import derive\nf = derive.Formula(empty_row="ones")\n',
        "typical.py": 'import derive\nf = derive.Formula(typical={"N": "many"})\n',
        "nothing.py": "x = 1\n",
        "two.py": TWO,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    command, expected = MISTAKES[case][0].split("\n", 1)
    answer = run(*shlex.split(command)[2:])
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == f"{expected}\n"
    assert not Path("generated").exists()


@pytest.mark.parametrize(
    ("text", "name"),
    [("def f(x):\n    return 1 / x\n\nf(0)\n", "ZeroDivisionError"),
     ("\nraise SystemExit(3)\n", "SystemExit")],
)  # fmt: skip
def test_what_a_file_raises_is_shown_with_its_line(run, tmp_path, text, name):
    (tmp_path / "raises.py").write_text(text)
    answer = run("build", "raises.py")
    first, place, *_, last = answer.err.splitlines()
    assert (answer.code, first) == (2, f"file-raises: raises.py raises {name}")
    assert place.startswith('    File "raises.py", line 2, in ')
    assert last.startswith(f"  {name}: ")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("list", "--nonsense"), "usage"),
        (("check",), "usage"),
        (("show", "no_such_formula"), "formula-unknown"),
        (("build", "x[N]; y[i] = "), "missing-value"),
        (("lint", "no/such/path"), "path-missing"),
    ],
)
def test_a_refusal_as_json(run, arguments, code):
    answer = run(*arguments, "--json")
    assert answer.code == 2
    assert json.loads(answer.out)["error"]["code"] == code
    assert answer.err
    assert not run(*arguments).out
