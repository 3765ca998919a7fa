"""Hostile code is never the same, and the verdict has the reason."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
import torch
from texts import Expressions

from derive import check, parse

ROWS = Expressions(Path(__file__).with_name("checker_hostile_rows.txt"), globals())

pytestmark = pytest.mark.processes
DOUBLE = "x[N]; y[n] = 2*x[n]"


def loop_forever(x):
    while True:
        pass


def sleep_long(x):
    time.sleep(3600)


def raise_always(x):
    raise ValueError("no\nsuch luck")


def leave(x):
    sys.exit(3)


def leave_at_once(x):
    os._exit(7)


def recurse(x):
    return recurse(x)


def allocate(x):
    return torch.ones(1 << 40).sum() + x


def use_item(x):
    return 2 * x if x[0].item() > 0 else 2.0 * x + 0


def use_numpy(x):
    return torch.from_numpy(x.detach().numpy() * 2)


def return_nothing(x):
    print("I was here")


def sample(x):
    return 2 * x + torch.rand(())


def branch_on_data(x):
    return x + x if bool(x.sum() > 0) else 3 * x


@pytest.mark.parametrize("code", [loop_forever, sleep_long])
def test_endless_code_is_stopped(code):
    verdict = check(code, parse(DOUBLE), seconds=2)
    assert verdict.same is None
    assert "still running after 2 s" in str(verdict)


@pytest.mark.parametrize(("code", "said"), ROWS["the reason of a stop is named"])
def test_the_reason_of_a_stop_is_named(code, said):
    verdict = check(code, parse(DOUBLE))
    assert verdict.same is None
    assert verdict.grade == "unknown"
    assert said in str(verdict)


def test_the_line_that_raises_is_reported():
    verdict = check(raise_always, parse(DOUBLE))
    text = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert verdict.line is not None
    assert "raise ValueError" in text[verdict.line - 1]


def test_nothing_returned_is_not_the_same():
    assert check(return_nothing, parse(DOUBLE)).same is False


@pytest.mark.parametrize("code", [use_item, use_numpy])
def test_code_that_fields_cannot_run_is_judged_in_floats(code):
    verdict = check(code, parse(DOUBLE))
    assert (verdict.same, verdict.grade) == (True, "agrees")


@pytest.mark.slow
def test_a_branch_on_data_is_never_the_same():
    assert check(branch_on_data, parse(DOUBLE)).same is not True


def test_output_and_changes_of_code_stay_in_its_process(capfd):
    kept = []

    def noisy(x):
        print("noise")
        os.write(1, b"more noise")
        kept.append(1)
        torch.set_default_dtype(torch.float16)
        return 2 * x

    verdict = check(noisy, parse(DOUBLE))
    assert verdict.same is True
    assert kept == []
    assert torch.get_default_dtype() is torch.float32
    assert capfd.readouterr() == ("", "")


def test_an_argument_that_is_changed_is_a_finding():
    def in_place(x):
        return x.mul_(2)

    verdict = check(in_place, parse(DOUBLE))
    assert verdict.same is True
    assert "changes-argument" in [finding.code for finding in verdict.findings]


def test_a_syntax_error_is_reported_with_its_line(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("import torch\ndef f(x)\n    return 2 * x\n", encoding="utf-8")
    verdict = check(str(path), parse(DOUBLE))
    assert verdict.same is None
    assert verdict.line == 2
    assert "line 2: a colon is put at the end" in str(verdict)


def test_an_error_at_import_is_reported_with_its_line(tmp_path):
    path = tmp_path / "broken.py"
    path.write_text("import torch\nN = missing\ndef f(x):\n    return 2 * x\n", encoding="utf-8")
    verdict = check(str(path), parse(DOUBLE))
    assert verdict.same is None
    assert verdict.line == 2
    assert "NameError" in str(verdict)
