"""`derive bench` on the command line: tables, JSON, constants, refusals."""

import json
import os
import re
import shlex

import pytest

from derive.cli.tables import to_time

pytestmark = pytest.mark.processes  # measuring forks
CHAIN = "A[N, M]; B[M, K]; C[K, P]; z[n,p] = sum[m,k](A[n,m] * B[m,k] * C[k,p])"
SMALL = ("--sizes", "N=5,M=6,K=7,P=8", "--runs", "1")
HAND = "def chain(A, B, C):\n    return A @ B @ C\n"


@pytest.fixture
def hand(tmp_path):
    """Write a file with code by hand into the working directory."""
    (tmp_path / "hand.py").write_text(HAND)
    return "hand.py:chain"


def split_columns(line):
    return re.split(r"  +", line.strip())


def test_the_table(run, hand):
    answer = run("bench", CHAIN, "--against", hand, *SMALL)
    assert (answer.code, answer.err) == (0, "")
    title, heads, *rows, caption = answer.out.splitlines()
    assert title == "formula at N=5 M=6 K=7 P=8, float32, 1 thread"
    assert heads.split() == ["forward", "ratio", "memory"]
    assert [split_columns(row)[0] for row in rows] == ["generated", hand]
    assert split_columns(rows[0])[2] == "1.00"
    assert caption.startswith("  ratio: ")


def test_the_table_with_gradients(run):
    answer = run("bench", CHAIN, "--backward", *SMALL)
    heads = split_columns(answer.out.splitlines()[1])
    assert heads == ["forward", "ratio", "memory", "and backward", "ratio", "memory"]
    assert split_columns(answer.out.splitlines()[2])[5] == "1.00"


def test_the_number_of_threads(run):
    answer = run("bench", CHAIN, *SMALL, "--threads", "2")
    assert answer.out.splitlines()[0].endswith(", 2 threads")


def test_data(run, hand):
    answer = run("bench", CHAIN, "--against", hand, "--dtype", "float64", "--json", *SMALL)
    data = json.loads(answer.out)
    assert list(data) == [
        "version",
        "name",
        "sizes",
        "dtype",
        "threads",
        "flops",
        "rows",
        "skipped",
    ]
    assert (data["sizes"], data["dtype"]) == ({"N": 5, "M": 6, "K": 7, "P": 8}, "float64")
    first, second = data["rows"]
    assert (first["name"], first["ratio"], first["backward"]) == ("generated", 1.0, None)
    assert second["ratio"] == second["forward"] / first["forward"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("no_such_formula", "formula-unknown:"),
        ("CHAIN --sizes N=0", "sizes-range: N has to be 1 or more"),
        ("CHAIN --sizes X=3", "size-unknown: X is no size of formula"),
        ("CHAIN --dtype float16", "bench-dtype: float16 is no type that is measured"),
        ("CHAIN --against none.py:f", "file-unreadable: cannot read none.py"),
    ],
)
def test_bad_options_are_refused_before_anything_is_written(run, tmp_path, words, says):
    (tmp_path / "folder.svg").mkdir()
    answer = run("bench", *(CHAIN if word == "CHAIN" else word for word in shlex.split(words)))
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(says)
    assert os.listdir(tmp_path) == ["folder.svg"]


def test_times_have_three_digits():
    assert [to_time(s) for s in (2.0, 0.01234, 5.6e-6, 3e-9)] == [
        "2 s",
        "12.3 ms",
        "5.6 us",
        "3 ns",
    ]
