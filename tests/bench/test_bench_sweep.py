"""Sweeps over a size: slopes, lines, and the measured constants of a machine."""

import pytest

from derive import DeriveError, parse
from derive.bench import Over, Wishes, sweep
from derive.bench.run import BOUND, Report, Row, Sweep, Table, fit_slope
from derive.bench.timing import Roofline

VALUES = (64, 128, 256, 512)
MATMUL = "A[I, K]; B[K, J]; C[i,j] = sum[k](A[i,k] * B[k,j])"


def make_report(value, *, with_slow=True, backward=True):
    """A report with times that are powers of the value, on one thread and on two."""
    tables = []
    for threads in (1, 2):
        rows = [Row("generated", 1e-8 * value**2 / threads, 3e-8 * value**2 if backward else None)]
        if with_slow:
            rows.append(Row("$by $hand", 1e-9 * value**3, None))
        tables.append(Table(threads, tuple(rows), Roofline(1e10, 1e9), 2 * value**3, 0))
    skipped = () if with_slow else ("$by $hand: one call takes too much memory",)
    sizes = {"S": value, "D": 8}
    return Report("f", sizes, "float32", tuple(tables), {}, ("torch.einsum: two", *skipped))


@pytest.fixture
def swept():
    """A sweep with one line that ends before the last value."""
    return Sweep(Over("S", VALUES), tuple(make_report(n, with_slow=n < 512) for n in VALUES))


@pytest.mark.parametrize("power", [-1.0, 0.0, 0.5, 1.0, 2.0, 3.7])
def test_slopes_of_powers_are_exact(power):
    seconds = [3e-9 * value**power for value in (3, 64, 100, 4096)]
    assert fit_slope((3, 64, 100, 4096), seconds) == pytest.approx(power, abs=1e-12)


def test_a_slope_is_that_of_least_squares():
    # On logarithmic scales (0, 0), (1, 1), (2, 1), in steps of log 2: the slope is a half.
    assert fit_slope((1, 2, 4), (1.0, 2.0, 2.0)) == pytest.approx(0.5, abs=1e-12)
    assert fit_slope((1, 2, 4), (1.0, 2.0, None)) == pytest.approx(1.0, abs=1e-12)


def test_one_point_has_no_slope():
    assert fit_slope((8, 16), (1.0, None)) is None
    assert fit_slope((8, 16), (None, None)) is None


def test_lines_hold_what_was_measured(swept):
    assert (swept.threads, swept.kinds) == ((1, 2), ("forward", "backward"))
    assert swept.others == {"D": 8}
    generated, hand, bound = swept.find_lines(1, "forward")
    assert [line.name for line in (generated, hand, bound)] == ["generated", "$by $hand", BOUND]
    assert generated.slope == pytest.approx(2, abs=1e-12)
    assert hand.seconds == (1e-9 * 64**3, 1e-9 * 128**3, 1e-9 * 256**3, None)
    assert hand.slope == pytest.approx(3, abs=1e-12)
    assert bound.seconds == tuple(2 * n**3 / 1e10 for n in VALUES)
    assert swept.find_lines(2, "forward")[0].seconds[0] == generated.seconds[0] / 2
    assert [line.name for line in swept.find_lines(1, "backward")] == ["generated"]


def test_gradients_have_no_lines_where_there_are_none():
    reports = tuple(make_report(n, backward=False) for n in VALUES)
    assert Sweep(Over("S", VALUES), reports).kinds == ("forward",)


def test_skipped_rows_are_reported_once_with_their_values(swept):
    assert list(swept.find_skipped()) == [
        "torch.einsum: two",
        "$by $hand: one call takes too much memory, at S=512",
    ]


def test_the_data_of_a_sweep(swept):
    data = swept.to_data()
    assert (data["over"], data["values"], data["sizes"]) == ("S", list(VALUES), {"D": 8})
    kinds = [(line["threads"], line["kind"], line["name"]) for line in data["lines"]]
    assert kinds == [
        (threads, kind, name)
        for threads in (1, 2)
        for kind, names in (
            ("forward", ("generated", "$by $hand", BOUND)),
            ("backward", ("generated",)),
        )
        for name in names
    ]
    assert [len(line["seconds"]) for line in data["lines"]] == [4] * 8
    assert [report["sizes"]["S"] for report in data["reports"]] == list(VALUES)


def test_a_sweep_measures_each_value(tmp_path):
    path = tmp_path / "hand.py"
    path.write_text("def by_hand(A, B):\n    return A @ B\n")
    seen = []

    def track(points):
        for built in points:
            seen.append(built.plan.sizes["I"])
            yield built

    over, against = Over("I", (4, 9)), f"{path}:by_hand"
    wishes = Wishes(runs=1)
    made = sweep(parse(MATMUL), over, against, {"K": 5, "J": 6}, wishes=wishes, track=track)
    assert seen == [4, 9]
    assert [dict(report.sizes) for report in made.reports] == [
        {"I": 4, "K": 5, "J": 6},
        {"I": 9, "K": 5, "J": 6},
    ]
    names = [line.name for line in made.find_lines(1, "forward")]
    assert names == ["generated", against, "torch.einsum", "without a path", BOUND]
    assert made.is_one_text


def test_all_sizes_are_validated_before_the_first_measurement():
    with pytest.raises(DeriveError) as refusal:
        sweep(parse(MATMUL), Over("I", (4, 10**14)), track=pytest.fail)
    assert refusal.value.diagnostic.code == "bench-memory"
