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


RESULT = ("ruleId", "ruleIndex", "level", "message", "locations")


def check_sarif(log):
    """Check a log against SARIF 2.1.0 and the fields that code hosts read; return its results."""
    assert (log["version"], log["$schema"][-10:]) == ("2.1.0", "2.1.0.json")
    (run,) = log["runs"]
    assert run["columnKind"] in {"utf16CodeUnits", "unicodeCodePoints"}
    driver = run["tool"]["driver"]
    assert driver["name"] == "derive"
    for result in run["results"]:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert set(result) <= {*RESULT, "kind", "fixes"}
        assert result["level"] in {"error", "warning", "note", "none"}
        assert result["message"]["text"]
        # the level is "none" exactly where the kind is not "fail"
        assert (result["level"] == "none") == (result.get("kind", "fail") != "fail")
        for location in result["locations"]:
            assert set(location) <= {"physicalLocation", "logicalLocations"}
            place = location["physicalLocation"]
            assert place["artifactLocation"]["uri"]
            assert set(place) <= {"artifactLocation", "region"}
            region = place.get("region", {})
            assert set(region) <= {"startLine", "startColumn", "endLine", "endColumn"}
            assert all(isinstance(number, int) and number >= 1 for number in region.values())
        for fix in result.get("fixes", ()):
            (change,) = fix["artifactChanges"]
            assert change["artifactLocation"]["uri"]
            assert all("deletedRegion" in each for each in change["replacements"])
    return run["results"]
