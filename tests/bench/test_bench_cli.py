"""`derive bench` on the command line: tables, JSON, constants, refusals."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest
from texts import read_rows

from derive.cli.bench import count_cores, parse_over, parse_threads
from derive.cli.tables import to_time

pytestmark = pytest.mark.processes  # measuring forks
CHAIN = "A[N, M]; B[M, K]; C[K, P]; z[n,p] = sum[m,k](A[n,m] * B[m,k] * C[k,p])"
SMALL = ("--sizes", "N=5,M=6,K=7,P=8", "--runs", "1")
OVER = ("--over", "N=4..16", "--sizes", "M=6,K=7,P=8", "--runs", "1")
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
    title, heads, *rows, caption, limit = answer.out.splitlines()
    assert title == "formula at N=5 M=6 K=7 P=8, float32, 1 thread"
    assert heads.split() == ["forward", "ratio", "memory"]
    assert [split_columns(row)[0] for row in rows] == [
        "generated",
        hand,
        "torch.einsum",
        "without a path",
    ]
    assert split_columns(rows[0])[2] == "1.00"
    assert caption.startswith("  ratio: ")
    assert limit.startswith("  this machine: ") and "the estimate of its limit is" in limit


def test_the_table_with_gradients(run):
    answer = run("bench", CHAIN, "--backward", *SMALL)
    heads = split_columns(answer.out.splitlines()[1])
    assert heads == ["forward", "ratio", "memory", "and backward", "ratio", "memory"]
    assert split_columns(answer.out.splitlines()[2])[5] == "1.00"


@pytest.mark.parametrize("words", [("--threads", "1,2"), ("--threads", "1", "--threads", "2")])
def test_a_table_for_each_number_of_threads(run, words):
    answer = run("bench", CHAIN, *SMALL, *words)
    titles = [line for line in answer.out.splitlines() if line.startswith("formula at")]
    assert [title.split(", ")[-1] for title in titles] == ["1 thread", "2 threads"]


def test_data(run, hand):
    answer = run("bench", CHAIN, "--against", hand, "--dtype", "float64", "--json", *SMALL)
    data = json.loads(answer.out)
    assert list(data) == [
        "version",
        "name",
        "sizes",
        "dtype",
        "tables",
        "compile_seconds",
        "skipped",
    ]
    assert (data["sizes"], data["dtype"]) == ({"N": 5, "M": 6, "K": 7, "P": 8}, "float64")
    (table,) = data["tables"]
    assert table["threads"] == 1
    assert list(table["roofline"]) == [
        "flops_per_second", "bytes_per_second", "flops", "bytes", "seconds",
    ]  # fmt: skip
    first, second, *_ = table["rows"]
    assert (first["name"], first["ratio"], first["backward"]) == ("generated", 1.0, None)
    assert second["ratio"] == second["forward"] / first["forward"]


def test_a_sweep_as_tables(run, hand):
    answer = run("bench", CHAIN, "--against", hand, *OVER, "--backward")
    assert (answer.code, answer.err) == (0, "")
    title, heads, *rows = answer.out.splitlines()
    assert title == "formula at M=6 K=7 P=8, float32, 1 thread, forward"
    names = ["generated", hand, "torch.einsum", "without a path"]
    assert split_columns(heads) == ["N", *names, "estimated limit"]
    assert [split_columns(row)[0] for row in rows[:4]] == ["4", "8", "16", "slope"]
    assert all(re.fullmatch(r"-?\d+\.\d\d", cell) for cell in split_columns(rows[3])[1:])
    assert rows[4].startswith("  slope: ") and "N**k" in rows[4]
    assert rows[5] == "formula at M=6 K=7 P=8, float32, 1 thread, forward and backward"
    assert split_columns(rows[6]) == ["N", *names]


def test_the_data_of_a_sweep(run):
    data = json.loads(run("bench", CHAIN, *OVER, "--json").out)
    assert (data["over"], data["values"], data["sizes"]) == (
        "N",
        [4, 8, 16],
        {"M": 6, "K": 7, "P": 8},
    )
    assert [line["name"] for line in data["lines"]] == [
        "generated", "torch.einsum", "without a path", "estimated limit",
    ]  # fmt: skip
    assert all(len(line["seconds"]) == 3 for line in data["lines"])
    assert [report["sizes"]["N"] for report in data["reports"]] == [4, 8, 16]


REFUSED = read_rows(Path(__file__).with_name("refused.txt"))


@pytest.mark.parametrize(("says", "words"), REFUSED, ids=[row[0] for row in REFUSED])
def test_bad_options_are_refused_before_anything_is_written(run, tmp_path, words, says):
    (tmp_path / "folder.svg").mkdir()
    named = {"CHAIN": (CHAIN,), "OVER": OVER}
    answer = run(
        "bench", *(part for word in shlex.split(words) for part in named.get(word, (word,)))
    )
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith(says)
    assert os.listdir(tmp_path) == ["folder.svg"]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("S=64..1024", (64, 128, 256, 512, 1024)),
        ("S=3..20", (3, 6, 12, 20)),
        (" S = 1 .. 2 ", (1, 2)),
        ("S=5,7,1_000", (5, 7, 1000)),
    ],
)
def test_values_of_a_sweep_double_or_are_listed(text, values):
    over = parse_over(text)
    assert (over.size, over.values) == ("S", values)


@pytest.mark.parametrize(
    ("words", "threads"),
    [((), (1,)), (("3",), (3,)), (("2,1", "2"), (2, 1)), (("all",), (count_cores(),))],
)
def test_numbers_of_threads(words, threads):
    assert parse_threads(words) == threads
    assert parse_threads(("all", str(count_cores()))) == (count_cores(),)


def test_times_have_three_digits():
    assert [to_time(s) for s in (2.0, 0.01234, 5.6e-6, 3e-9)] == [
        "2 s",
        "12.3 ms",
        "5.6 us",
        "3 ns",
    ]
