"""`derive.bench` times equal functions and refuses code that computes other values."""

import math
import os
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from cli_runs import run_process
from texts import read_sections

from derive import DeriveError, build, parse
from derive.bench import Wishes, bench
from derive.bench.candidates import find_compiled, is_near, load_hand, to_einsum
from derive.bench.timing import (
    Candidate,
    Timing,
    find_failure,
    find_peak,
    find_timings,
    on_threads,
    to_backward,
)

pytestmark = pytest.mark.processes  # measuring forks
CHAIN = "A[N, M]; B[M, K]; C[K, P]; z[n,p] = sum[m,k](A[n,m] * B[m,k] * C[k,p])"
SIZES = {"N": 5, "M": 6, "K": 7, "P": 8}
ONCE = Wishes(runs=1)
(CODE,) = (section.text for section in read_sections(Path(__file__).with_name("hand.md")))


@pytest.fixture
def file(tmp_path):
    """The path of a file with code by hand."""
    path = tmp_path / "hand.py"
    path.write_text(CODE, encoding="utf-8")
    return path


def find_refusal(call):
    """The diagnostic of the DeriveError that a call raises."""
    with pytest.raises(DeriveError) as refusal:
        call()
    return refusal.value.diagnostic


def test_the_generated_function_is_first_and_every_row_is_measured(file):
    wishes = Wishes(backward=True, runs=1)
    report = bench(parse(CHAIN), f"{file}:right", SIZES, wishes=wishes)
    (table,) = report.tables
    assert [row.name for row in table.rows] == [
        "generated",
        f"{file}:right",
        "torch.einsum",
        "without a path",
    ]
    assert all(row.forward > 0 and row.backward > 0 for row in table.rows)
    assert table.find_ratio(table.rows[0]) == table.find_ratio(table.rows[0], "backward") == 1.0
    assert (report.skipped, report.compiling) == ((), {})


def test_the_limit_counts_the_operations_and_what_is_moved_once():
    dot = parse("x[N]; y[N]; z = sum[n](x[n] * y[n])")
    (table,) = bench(dot, "", {"N": 1000}, wishes=ONCE).tables
    assert table.moved == 4 * (1000 + 1000 + 1)
    plan = build(dot, sizes={"N": 1000}).plan
    assert table.flops == plan.at_sizes(plan.flops) >= 1000
    limit = table.roofline
    assert table.bound == table.flops / limit.flops + table.moved / limit.bytes
    assert min(limit.flops, limit.bytes) > 1e6


@pytest.mark.parametrize(
    ("function", "code", "says"),
    [
        ("wrong", "bench-differs", "other values than the formula"),
        ("writes", "bench-writes", "writes into what it is given"),
        ("small_only", "bench-code", "ValueError: too long for me"),
        ("nothing", "code-missing", "no function or class nothing"),
    ],
)
def test_code_that_cannot_be_compared_is_refused(file, function, code, says):
    sizes = SIZES | {"N": 64}
    found = find_refusal(lambda: bench(parse(CHAIN), f"{file}:{function}", sizes, wishes=ONCE))
    assert found.code == code
    assert says in found.says


def test_code_that_gives_fewer_results_is_refused(tmp_path):
    path = tmp_path / "one.py"
    path.write_text("def one(x):\n    return 2 * x\n")
    two = parse("x[N]; a[n] = 2 * x[n]; b[n] = 3 * x[n]; return a, b")
    found = find_refusal(lambda: bench(two, f"{path}:one", {"N": 4}, wishes=ONCE))
    assert found.code == "bench-differs"
    assert "gives 1 of the formula's 2 results" in found.says


def test_a_hundred_times_the_work_takes_longer(file):
    sizes = dict.fromkeys(SIZES, 128)
    (table,) = bench(parse(CHAIN), f"{file}:slow", sizes, wishes=Wishes(runs=3)).tables
    assert table.find_ratio(table.rows[1]) > 3


def test_a_table_for_each_number_of_threads(file):
    before = torch.get_num_threads()
    report = bench(parse(CHAIN), f"{file}:right", SIZES, wishes=Wishes(threads=(1, 2), runs=1))
    assert [table.threads for table in report.tables] == [1, 2]
    one, two = ([row.name for row in table.rows] for table in report.tables)
    assert one == two
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    "dtype", ["float64", pytest.param("bfloat16", marks=pytest.mark.slow), "float32"]
)
def test_numbers_of_each_type_are_measured(file, dtype):
    wishes = Wishes(backward=True, runs=1, dtype=dtype)
    report = bench(parse(CHAIN), f"{file}:right", SIZES, wishes=wishes)
    assert report.dtype == dtype
    width = getattr(torch, dtype).itemsize
    assert report.tables[0].moved == width * (5 * 6 + 6 * 7 + 7 * 8 + 5 * 8)


def test_code_runs_in_the_type_that_is_measured(file):
    against = f"{file}:single_only"
    assert bench(parse(CHAIN), against, SIZES, wishes=ONCE).tables[0].rows[1].forward > 0
    wishes = Wishes(runs=1, dtype="bfloat16")
    found = find_refusal(lambda: bench(parse(CHAIN), against, SIZES, wishes=wishes))
    assert (found.code, "no such type" in found.says) == ("bench-code", True)
    wishes = Wishes(runs=1, dtype="float16")
    assert find_refusal(lambda: bench(parse(CHAIN), "", SIZES, wishes=wishes)).code == "bench-dtype"


def test_a_wrong_function_is_found_in_bfloat16_too(file):
    wishes = Wishes(runs=1, dtype="bfloat16")
    found = find_refusal(lambda: bench(parse(CHAIN), f"{file}:wrong", SIZES, wishes=wishes))
    assert found.code == "bench-differs"


def test_sizes_that_do_not_fit_are_refused_before_anything_is_made():
    found = find_refusal(lambda: bench(parse(CHAIN), "", SIZES | {"N": 10**14}))
    assert found.code == "bench-memory"
    impossible = parse("x[L - 4]; y[i] = 2 * x[i]")
    found = find_refusal(lambda: bench(impossible, "", {"L": 2}))
    assert found.code == "sizes-impossible"
    assert bench(impossible, "", {"L": 6}, wishes=ONCE).tables[0].moved == 4 * 4


def test_a_module_is_made_once_and_has_the_formulas_tensors(file):
    built = build(parse(CHAIN), sizes=SIZES)
    hand = load_hand(f"{file}:Layer", built.system)
    inputs = {"A": torch.randn(5, 6), "B": torch.randn(6, 7), "C": torch.randn(7, 8)}
    made = hand.program.code.target.made
    candidate = hand.bind(inputs, SIZES)
    for _ in range(3):
        torch.testing.assert_close(candidate.call(), inputs["A"] @ inputs["B"] @ inputs["C"])
    assert hand.program.code.target.made == made + 1
    assert sorted(tuple(leaf.shape) for leaf in candidate.leaves) == [(5, 6), (6, 7), (7, 8)]
    to_backward(candidate)()
    wishes = Wishes(backward=True, runs=1)
    report = bench(parse(CHAIN), f"{file}:Layer", SIZES, wishes=wishes)
    assert report.tables[0].rows[1].backward > 0


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


NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        # a hundredth of the largest
        ([1.0, 100.0], [1.5, 100.0], True),
        ([1.0, 100.0], [3.0, 100.0], False),
        ([NAN, 1.0], [NAN, 1.0], True),
        ([NAN, 1.0], [2.0, 1.0], False),
        ([INF, 1.0], [INF, 1.0], True),
        # an infinite element does not make all others near
        ([INF, 1.0], [INF, 2.0], False),
        ([INF, 1.0], [-INF, 1.0], False),
        ([True, False], [True, False], True),
        ([True, False], [True, True], False),
        ([], [], True),
        ([1.0], [1.0, 1.0], False),
    ],
)
def test_is_near_compares_relative_to_the_largest_value(one, other, expected):
    assert is_near(torch.tensor(one), torch.tensor(other), 1e-2) is expected


def test_memory_is_what_a_call_takes_beyond_its_inputs():
    x = torch.zeros(4 << 20)  # 16 MiB
    found = find_peak(lambda: x + 1 + 1)
    if found is not None:
        assert 16 << 20 <= found < 64 << 20


def test_memory_that_was_used_before_counts():
    x = torch.zeros(1 << 20)  # 4 MiB, which the allocator keeps once they are freed
    for _ in range(3):
        del_me = [x + 1 for _ in range(8)]
        del del_me
    found = find_peak(lambda: x + 1)
    if found is not None:
        assert 4 << 20 <= found < 8 << 20


def test_a_child_does_not_wait_for_threads_that_stayed_behind():
    x = torch.randn(700, 700)
    with on_threads(2):
        torch.mm(x, x)
        assert find_failure(lambda: torch.mm(x, x)) == ""


def test_out_of_memory_and_errors_are_reported():
    def fail():
        raise RuntimeError("first words\n\nand an advice")

    assert find_failure(lambda: None) == ""
    assert find_failure(lambda: torch.empty(1 << 45)) == "one call takes too much memory"
    assert find_failure(fail) == "RuntimeError: first words"
    assert find_failure(lambda: os._exit(3)) == (
        "the process that ran the code ended with exit code 3"
    )


def test_gradients_are_taken_by_real_inputs_alone():
    x, t = torch.randn(3), torch.tensor([0, 2])
    seen = []
    candidate = Candidate("c", lambda: seen.append(x.requires_grad) or x[t] * 2, (x, t))
    assert find_timings({"c": to_backward(candidate)}, 1)["c"].median > 0
    assert all(seen)
    assert not x.requires_grad


def test_code_without_gradients_keeps_its_row(file):
    wishes = Wishes(backward=True, runs=1)
    report = bench(parse(CHAIN), f"{file}:by_numbers", SIZES, wishes=wishes)
    first, second, *_ = report.tables[0].rows
    assert first.backward > 0
    assert (second.backward, second.backward_peak_bytes) == (None, None)
    assert report.tables[0].find_ratio(second, "backward") is None
    said = f"gradients of {file}:by_numbers: no result depends on a real input"
    assert report.skipped == (said,)


def test_calls_are_timed_in_alternating_order():
    calls = []
    slept = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    found = find_timings(slept, 3)
    assert set(found) == {"a", "b"}
    order = [name for k, name in enumerate(calls) if k == 0 or calls[k - 1] != name]
    # once to warm up, once to count, three runs: ab, ba, ab
    assert order == ["a", "b"] * 4


def test_warming_up_is_what_the_first_call_takes_longer():
    assert Timing(first=3.0, median=1.0, least=1.0).warming == 2.0
    assert Timing(first=0.5, median=1.0, least=1.0).warming == 0.0


def compile_to(change):
    """Replace torch.compile by a given function."""

    def compile_it(function, dynamic):
        assert dynamic is False
        return lambda *args, **named: change(function(*args, **named))

    return compile_it


def test_compiled_rows_stand_behind_the_others(file, monkeypatch):
    monkeypatch.setattr(torch, "compile", compile_to(lambda made: made))
    wishes = Wishes(backward=True, compiled=True, threads=(1, 2), runs=1)
    report = bench(parse(CHAIN), f"{file}:right", SIZES, wishes=wishes)
    added = ["generated, compiled", f"{file}:right, compiled"]
    for table in report.tables:
        assert [row.name for row in table.rows][-2:] == added
        assert all(row.backward > 0 for row in table.rows)
    assert list(report.compiling) == added
    assert all(seconds >= 0 for seconds in report.compiling.values())


def test_compiled_code_that_gives_other_values_is_left_out(monkeypatch):
    monkeypatch.setattr(torch, "compile", compile_to(lambda made: made + 1))
    report = bench(parse(CHAIN), "", SIZES, wishes=Wishes(compiled=True, runs=1))
    assert "generated, compiled" not in [row.name for row in report.tables[0].rows]
    assert report.compiling == {}
    assert report.skipped == ("generated, compiled: it gives other values than as it stands",)


def test_code_that_does_not_compile_is_left_out(monkeypatch):
    def fail(function, dynamic):
        raise RuntimeError("no compiler\n\nset something")

    monkeypatch.setattr(torch, "compile", fail)
    x = torch.randn(3)
    candidate = Candidate("c", partial(torch.exp, x), (x,))
    assert find_compiled([candidate], "float32", ()) == (
        [],
        {},
        ["c, compiled: RuntimeError: no compiler"],
    )


@pytest.mark.slow
def test_torch_compile_is_measured_where_there_is_a_compiler(file, tmp_path):
    text = "x[N]; y[n] = exp(x[n]) + sin(x[n])"
    command = ("bench", text, "--compile", "--backward", "--runs", "1", "--sizes", "N=999")
    fresh = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    if shutil.which("g++"):
        answer = run_process(*command, cwd=tmp_path, env=fresh)
        assert (answer.returncode, answer.stderr) == (0, "")
        assert "s of compiling are not counted" in answer.stdout
        assert "without generated, compiled" not in answer.stdout
    answer = run_process(*command, cwd=tmp_path, env={**fresh, "CXX": "/no/such/compiler"})
    assert answer.returncode == 0
    assert "without generated, compiled: " in answer.stdout
    assert "s of compiling" not in answer.stdout
