"""`derive lint` on the command line: choices, JSON, exit codes."""

import json
import re
from pathlib import Path

import pytest
from cli_runs import Answer
from texts import Expressions

from derive.linter.rules import RULES

ROWS = Expressions(__file__, "lint_cli_rows.txt")

FILE = """\
import torch

def f(q, k, W, x):
    y = torch.einsum("dd,bxcd->bxcd", W, x)
    z = torch.einsum("bid,bjd->bij", q, k)
    return torch.einsum("ij,jk->il", y, z)
"""
TEXT = """\
file.py:4:24: DE101 warning: W: the repeated d takes the diagonal of dd
    y = torch.einsum("dd,bxcd->bxcd", W, x)
                       ^
  help: give the two indices two letters, unless the diagonal is meant
file.py:5:23: DE201 info: the same as q @ k.mT
    z = torch.einsum("bid,bjd->bij", q, k)
                      ^^^^^^^^^^^^
  help: write it so, unless the letters tell more
file.py:6:34: DE002 error: l is in the output and in no operand
    return torch.einsum("ij,jk->il", y, z)
                                 ^
  the operands have i, j, k
  help: give l to an operand, or take it out of the output
1 error, 1 warning, 1 info; 3 einsums in 1 file
"""


@pytest.fixture
def lint(run, tmp_path):
    """Run `derive lint` in a folder with FILE and a file without findings."""
    (tmp_path / "file.py").write_text(FILE)
    (tmp_path / "clean.py").write_text("import torch\n")
    return lambda *arguments: run("lint", *arguments)


def test_the_report_shows_the_findings_and_their_number(lint):
    assert lint("file.py") == Answer(1, TEXT, "")
    assert lint(".").out == TEXT.replace("1 file", "2 files")


def test_a_file_without_einsums_has_no_findings(lint):
    assert lint("clean.py") == Answer(0, "0 errors, 0 warnings, 0 infos; 0 einsums in 1 file\n", "")


@pytest.mark.parametrize(("options", "codes", "code"), ROWS["choices"])
def test_options_choose_codes(lint, options, codes, code):
    answer = lint("file.py", "--json", *options)
    assert [f["code"] for f in json.loads(answer.out)["findings"]] == codes
    assert answer.code == code


def test_findings_are_written_as_json(lint):
    answer = lint("file.py", "--json")
    data = json.loads(answer.out)
    assert (data["files"], data["einsums"]) == (1, 3)
    assert data["findings"][0] == {
        "path": "file.py",
        "cell": None,
        "line": 4,
        "column": 24,
        "end_line": 4,
        "end_column": 25,
        "code": "DE101",
        "name": "repeated-letter",
        "severity": "warning",
        "message": "W: the repeated d takes the diagonal of dd",
        "facts": [],
        "help": "give the two indices two letters, unless the diagonal is meant",
    }


def test_findings_are_in_the_order_of_their_places(lint, tmp_path):
    for name in ("b.py", "a.py"):
        (tmp_path / name).write_text(FILE)
    places = re.findall(r"^(\w+\.py:\d+):", lint("b.py", "file.py", "a.py").out, re.MULTILINE)
    assert places == [f"{n}.py:{line}" for n in ("a", "b", "file") for line in (4, 5, 6)]


def test_all_codes_are_listed(lint):
    lines = lint("--list").out.splitlines()
    assert [line.split()[0] for line in lines] == ["code", *(rule.code for rule in RULES)]
    assert [rule["code"] for rule in json.loads(lint("--list", "--json").out)] == [
        rule.code for rule in RULES
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_each_code_is_explained(lint, rule):
    answer = lint("--explain", rule.code)
    assert answer.code == 0
    assert answer.out.startswith(f"{rule.code} {rule.name} ({rule.severity})\n{rule.title}\n")
    assert all(f"    {line}\n" in answer.out for line in rule.hurts.splitlines())
    assert lint("--explain", rule.name) == answer


MISTAKES = dict(ROWS["MISTAKES"])


@pytest.mark.parametrize("case", MISTAKES)
def test_wrong_options_are_refused(lint, case):
    arguments, says = MISTAKES[case]
    assert lint(*arguments) == Answer(2, "", says)


def test_a_file_that_cannot_be_used_is_a_finding(lint):
    Path("broken.py").write_text("x = torch.einsum(\n")
    answer = lint("broken.py")
    assert answer.code == 1
    assert answer.out.startswith("broken.py:1:17: DE901 error: '(' was never closed\n")


def test_a_rule_that_is_off_by_default_applies_on_request(run, tmp_path):
    (tmp_path / "file.py").write_text("import torch\nx = torch.einsum('bid,jd->bij', q, q)\n")
    assert "DE103" not in run("lint", "file.py").out
    assert run("lint", "file.py").code == 0
    for options in (("--all",), ("--select", "DE103")):
        answer = run("lint", "file.py", *options)
        assert (answer.code, "DE103" in answer.out) == (1, True)
    assert "DE103" not in run("lint", "file.py", "--all", "--ignore", "DE103").out
