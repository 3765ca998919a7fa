"""Run the command line for tests, in this process or in a new one."""

import os
import subprocess
import sys
from dataclasses import dataclass

import pytest
from house import ROOT

from derive import cli

COLOURS = ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "PY_COLORS")
MATMUL = "A[I, K]; B[K, J]; C[i,j] = sum[k](A[i,k] * B[k,j])"
TWO = """
from derive import parse
one = parse("x[N]; y[n] = 2 * x[n]")
two = parse("x[N]; y[n] = 3 * x[n]")
same = one
_own = parse("x[N]; y[n] = 4 * x[n]")
"""


@dataclass(frozen=True)
class Answer:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Return a function that runs a command in an empty folder and captures its output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    for name in COLOURS:
        monkeypatch.delenv(name, raising=False)

    def run_command(*arguments):
        with pytest.raises(SystemExit) as left:
            cli.main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Answer(left.value.code or 0, out, err)

    return run_command


def run_process(*arguments, cwd, **options):
    """Run `python -m derive` in a new process, as a user does."""
    inherited = {name: value for name, value in os.environ.items() if name not in COLOURS}
    environment = {**inherited, "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, "-m", "derive", *arguments],
        cwd=cwd, env=environment, capture_output=True, text=True, check=False, **options,
    )  # fmt: skip
