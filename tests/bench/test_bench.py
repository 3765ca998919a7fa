"""`derive.bench` times equal functions and refuses code that computes other values."""

import math
import shutil

import pytest
import torch
from cli_runs import run_process
from texts import read_text

from derive import DeriveError, build, parse
from derive.bench import bench
from derive.bench.candidates import is_near, load_hand
from derive.bench.timing import Candidate, find_peak, find_timings, to_backward
from derive.options import Options

pytestmark = pytest.mark.processes  # measuring forks
CHAIN = "A[N, M]; B[M, K]; C[K, P]; z[n,p] = sum[m,k](A[n,m] * B[m,k] * C[k,p])"
SIZES = {"N": 5, "M": 6, "K": 7, "P": 8}
ONCE = {"runs": 1, "options": Options(sizes=SIZES)}
CODE = read_text(__file__, "hand.txt")


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
    report = bench(parse(CHAIN), f"{file}:right", backward=True, **ONCE)
    assert [row.name for row in report.rows] == ["generated", f"{file}:right"]
    assert all(row.forward > 0 and row.backward > 0 for row in report.rows)
    first = report.to_data()["rows"][0]
    assert first["ratio"] == first["backward_ratio"] == 1.0
    assert report.skipped == ()


def test_code_by_hand_may_be_an_einsum_string():
    (_, row) = bench(parse(CHAIN), "ab,bc,cd->ad", **ONCE).rows
    assert row.forward > 0


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
    at = Options(sizes=SIZES | {"N": 64})
    found = find_refusal(lambda: bench(parse(CHAIN), f"{file}:{function}", options=at))
    assert found.code == code
    assert says in found.says


def test_code_that_gives_fewer_results_is_refused(tmp_path):
    path = tmp_path / "one.py"
    path.write_text("def one(x):\n    return 2 * x\n")
    two = parse("x[N]; a[n] = 2 * x[n]; b[n] = 3 * x[n]; return a, b")
    found = find_refusal(lambda: bench(two, f"{path}:one", options=Options(sizes={"N": 4})))
    assert found.code == "bench-differs"
    assert "gives 1 of the formula's 2 results" in found.says


def test_sizes_that_do_not_fit_are_refused_before_anything_is_made():
    found = find_refusal(lambda: bench(parse(CHAIN), options=Options(sizes=SIZES | {"N": 10**14})))
    assert found.code == "bench-memory"
    impossible = parse("x[L - 4]; y[i] = 2 * x[i]")
    found = find_refusal(lambda: bench(impossible, options=Options(sizes={"L": 2})))
    assert found.code == "sizes-impossible"
    assert len(bench(impossible, options=Options(sizes={"L": 6}), runs=1).rows) == 1


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
    report = bench(parse(CHAIN), f"{file}:Layer", backward=True, **ONCE)
    assert report.rows[1].backward > 0


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
    assert is_near(torch.tensor(one), torch.tensor(other)) is expected


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


def test_gradients_are_taken_by_real_inputs_alone():
    x, t = torch.randn(3), torch.tensor([0, 2])
    seen = []
    candidate = Candidate("c", lambda: seen.append(x.requires_grad) or x[t] * 2, (x, t))
    assert find_timings({"c": to_backward(candidate)}, 1)["c"] > 0
    assert all(seen)
    assert not x.requires_grad


def test_code_without_gradients_keeps_its_row(file):
    report = bench(parse(CHAIN), f"{file}:by_numbers", backward=True, **ONCE)
    first, second = report.rows
    assert first.backward > 0
    assert (second.backward, second.backward_peak_bytes) == (None, None)
    assert report.to_data()["rows"][1]["backward_ratio"] is None
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


def compile_to(change):
    """Replace torch.compile by a given function."""

    def compile_it(function, dynamic):
        assert dynamic is False
        return lambda *args, **named: change(function(*args, **named))

    return compile_it


def test_compiled_rows_stand_behind_the_others(file, monkeypatch):
    monkeypatch.setattr(torch, "compile", compile_to(lambda made: made))
    report = bench(parse(CHAIN), f"{file}:right", backward=True, compiled=True, **ONCE)
    added = ["generated, compiled", f"{file}:right, compiled"]
    assert [row.name for row in report.rows][-2:] == added
    assert all(row.backward > 0 for row in report.rows)


def test_compiled_code_that_gives_other_values_is_left_out(monkeypatch):
    monkeypatch.setattr(torch, "compile", compile_to(lambda made: made + 1))
    report = bench(parse(CHAIN), compiled=True, **ONCE)
    assert [row.name for row in report.rows] == ["generated"]
    says = "generated, compiled gives other values than the formula"
    assert report.skipped == (f"generated, compiled: {says}",)


def test_code_that_does_not_compile_is_left_out(monkeypatch):
    def fail(function, dynamic):
        raise RuntimeError("no compiler\n\nset something")

    monkeypatch.setattr(torch, "compile", fail)
    report = bench(parse(CHAIN), compiled=True, **ONCE)
    assert report.skipped == ("generated, compiled: RuntimeError: no compiler",)


@pytest.mark.slow
def test_torch_compile_is_measured_where_there_is_a_compiler(file, tmp_path):
    text = "x[N]; y[n] = exp(x[n]) + sin(x[n])"
    command = ("bench", text, "--compile", "--backward", "--runs", "1", "--sizes", "N=999")
    fresh = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    if shutil.which("g++"):
        answer = run_process(*command, cwd=tmp_path, env=fresh)
        assert (answer.returncode, answer.stderr) == (0, "")
        assert "without generated, compiled" not in answer.stdout
    answer = run_process(*command, cwd=tmp_path, env={**fresh, "CXX": "/no/such/compiler"})
    assert answer.returncode == 0
    assert "without generated, compiled: " in answer.stdout
