"""`derive bench`: what is compared, and that what computes something else is refused."""

import json

import pytest
import torch
from typer.testing import CliRunner

from derive import DeriveError, build, parse
from derive.bench import bench
from derive.bench.candidates import Candidate, to_einsum
from derive.bench.measure import measure_all
from derive.bench.memory import does_run, find_peak
from derive.cli import app
from derive.cli.bench import to_time

CHAIN = "A[N, M]; B[M, K]; C[K, P]; z[n,p] = sum[m,k](A[n,m] * B[m,k] * C[k,p])"
SIZES = {"N": 5, "M": 6, "K": 7, "P": 8}
CODE = """import torch


def right(A, B, C):
    return A @ B @ C


def wrong(A, B, C):
    return A @ (B - 0.1) @ C
"""


@pytest.fixture
def file(tmp_path):
    """A file of code by hand."""
    path = tmp_path / "hand.py"
    path.write_text(CODE, encoding="utf-8")
    return path


def test_the_generated_function_is_first_and_every_row_is_measured(file):
    report = bench(parse(CHAIN), f"{file}:right", SIZES, backward=True, runs=1)
    assert [row.name for row in report.rows] == [
        "generated",
        f"{file}:right",
        "torch.einsum",
        "without a path",
    ]
    assert all(row.forward > 0 and row.backward > row.forward * 0 for row in report.rows)
    assert report.find_ratio(report.rows[0]) == 1.0
    assert report.bound > 0
    assert report.roofline.flops > 1e8


def test_code_that_computes_something_else_is_refused(file):
    with pytest.raises(DeriveError) as refusal:
        bench(parse(CHAIN), f"{file}:wrong", SIZES, runs=1)
    assert refusal.value.diagnostic.code == "bench-differs"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CHAIN, ("ab,bc,cd->ad", ("A", "B", "C"))),
        ("x[N]; z = sum[n](x[n])", ("a->", ("x",))),
        ("x[N]; z[n] = exp(x[n])", None),
        ("x[N]; index n < N; z[n] = sum[m, m <= n](x[m])", None),
        ("x[N, N]; z[n] = x[n, 0]", None),
    ],
)
def test_one_einsum_where_the_formula_is_one_product(text, expected):
    assert to_einsum(build(parse(text))) == expected


def test_memory_is_what_a_call_takes_beyond_its_inputs():
    x = torch.zeros(4 << 20)  # 16 MiB
    found = find_peak(lambda: x + 1 + 1)
    if found is not None:
        assert 16 << 20 <= found < 64 << 20


def test_what_does_not_fit_is_left_out():
    assert does_run(lambda: None)
    assert not does_run(lambda: torch.empty(1 << 45))


def test_gradients_are_taken_by_real_inputs_alone():
    x, t = torch.randn(3), torch.tensor([0, 2])
    seen = []
    candidate = Candidate("c", lambda: seen.append(x.requires_grad) or x[t] * 2, (x, t))
    assert measure_all([candidate], 1, backward=True)["c"] > 0
    assert all(seen)
    assert not x.requires_grad


def test_the_command_prints_a_table_and_data(file):
    sizes = ",".join(f"{name}={number}" for name, number in SIZES.items())
    found = CliRunner().invoke(app, ["bench", CHAIN, "--sizes", sizes, "--runs", "1"])
    assert found.exit_code == 0
    assert "generated" in found.output and "its limit here is" in found.output
    found = CliRunner().invoke(app, ["bench", CHAIN, "--sizes", sizes, "--runs", "1", "--json"])
    assert json.loads(found.output)["rows"][0]["name"] == "generated"


def test_times_have_three_digits():
    assert [to_time(s) for s in (2.0, 0.01234, 5.6e-6, 3e-9)] == [
        "2 s",
        "12.3 ms",
        "5.6 us",
        "3 ns",
    ]
