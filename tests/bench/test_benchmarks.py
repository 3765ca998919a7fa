"""`python -m tests.benchmarks`: each formula has a function by hand that computes the same.

Times are measured here too, at tiny sizes, but nothing is asserted about them.
"""

from __future__ import annotations

import json
import math
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from derive.bench.measure import Roofline
from derive.compiler import build
from derive.formulas import find_families, find_formula
from derive.frontend.system import to_system
from derive.judge.samples import find_sizes, is_possible
from tests.benchmarks import __main__ as benchmarks
from tests.benchmarks.by_hand import find_difference, load_by_hand
from tests.benchmarks.cases import CASES, Case, find_cases, load_corpus
from tests.benchmarks.run import Pair, Row, check, measure
from tests.benchmarks.tables import to_markdown

NAMES = tuple(find_families())
BY_HAND = load_by_hand()
ROOFLINE = Roofline(1e11, 1e10)
LEAST_OF_CORPUS = 120
TINY = Case("luong_dot_attention", dict(B=2, T=3, S=4, D=5), ("s",))

every_formula = pytest.mark.parametrize("name", NAMES)


def test_every_formula_is_written_by_hand_and_nothing_else() -> None:
    assert sorted(BY_HAND) == sorted(NAMES)


@every_formula
def test_by_hand_it_takes_the_same_arguments_by_name(name: str) -> None:
    system = to_system(find_formula(name))
    arguments = signature(BY_HAND[name]).parameters
    wanted = [*(entry.name for entry in system.inputs), *(size.name for size in system.sizes)]
    assert sorted(arguments) == sorted(wanted)
    assert {one.kind for one in arguments.values()} == {Parameter.KEYWORD_ONLY}


@every_formula
def test_by_hand_it_says_whose_way_it_is(name: str) -> None:
    says = BY_HAND[name].__doc__
    assert says
    assert "\n" not in says


@pytest.mark.parametrize("case", load_corpus(), ids=lambda case: case.name)
def test_by_hand_it_computes_the_formula_of_the_corpus(case: Case) -> None:
    formula = case.formula
    system = to_system(formula)
    assert sorted(case.sizes) == sorted(find_sizes(system))
    assert is_possible(system, case.sizes)
    assert {*case.small} <= {entry.name for entry in system.inputs}
    assert not find_difference(case.by_hand, formula)


def test_the_corpus_is_beyond_the_library_and_large() -> None:
    names = [case.name for case in load_corpus()]
    assert len({*names, *NAMES}) == len(names) + len(NAMES)
    assert len(names) >= LEAST_OF_CORPUS


def attend_uniformly(*, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Any:
    """Empty rows are uniform, not zero."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~mask[:, None], -1e9).softmax(dim=-1)
    return weights @ value, weights


def of(name: str, change: Any) -> Any:
    """The function by hand, and what is made of its results."""
    return lambda **inputs: change(BY_HAND[name](**inputs))


@pytest.mark.parametrize(
    ("name", "wrong", "says"),
    [
        ("self_attention", of("self_attention", lambda made: (made[0] * 1.1, made[1])), "z["),
        ("self_attention", of("self_attention", lambda made: made[0]), "1 results for 2"),
        ("masked_attention", attend_uniformly, "z["),
        ("fock_matrix", of("fock_matrix", lambda made: made * (1 + 1e-8)), "F["),
        ("linear", of("linear", lambda made: made.T), "y has shape"),
    ],
)
def test_a_wrong_function_is_refused(name: str, wrong: Any, says: str) -> None:
    assert find_difference(wrong, find_formula(name)).startswith(says)


def test_empty_rows_alone_are_a_difference() -> None:
    """Without them the uniform rows would pass."""
    assert "p[" in find_difference(
        lambda **inputs: (BY_HAND["masked_attention"](**inputs)[0], attend_uniformly(**inputs)[1]),
        find_formula("masked_attention"),
    )


@every_formula
def test_it_is_timed_at_sizes_that_it_has(name: str) -> None:
    system = to_system(find_formula(name))
    found = find_cases((name,))
    assert found
    for case in found:
        assert sorted(case.sizes) == sorted(find_sizes(system))
        assert is_possible(system, case.sizes)
        assert {*case.small} <= {entry.name for entry in system.inputs}


def test_cases_are_of_the_library_alone() -> None:
    assert {case.name for case in CASES} == {*NAMES}
    assert len({(case.name, case.title) for case in CASES}) == len(CASES)
    with pytest.raises(KeyError, match="nothing"):
        find_cases(("nothing",))


def test_a_row_is_measured() -> None:
    row = measure(TINY, ROOFLINE, runs=1)
    assert row.backward is not None
    assert all(pair.ratio > 0 for pair in (row.forward, row.backward))
    plan = build(find_formula(TINY.name), sizes=dict(TINY.sizes)).plan
    moved = 4 * (2 * 3 * 5 + 2 * 4 * 5 + 2 * 3 * 5 + 2 * 3 * 4)  # s, h, c and a, once
    assert row.bound == pytest.approx(plan.at_sizes(plan.flops) / 1e11 + moved / 1e10)
    assert row.to_data()["sizes"] == TINY.sizes
    assert measure(TINY, ROOFLINE, runs=1, backward=False).backward is None


def test_other_values_are_not_timed() -> None:
    found = torch.arange(1.0, 5.0)
    check(lambda: found, lambda: found + 1e-6)
    with pytest.raises(AssertionError):
        check(lambda: found, lambda: found + 0.1)


def test_ratios_are_how_much_less_the_generated_function_takes() -> None:
    rows = [
        Row(TINY, Pair(0.001, 0.004), Pair(0.002, 0.001), None, 0.0005),
        Row(TINY, Pair(0.001, 0.001), None, Pair(10.0, 5.0), 0.001),
    ]
    *_, one, other, means, medians, losses = to_markdown(rows).splitlines()
    sizes = "B=2 T=3 S=4 D=5"
    assert one == f"| luong_dot_attention | {sizes} | 1 | 4 | 4.00 | 0.50 | - | 2.0 |"
    assert other == f"| luong_dot_attention | {sizes} | 1 | 1 | 1.00 | - | 0.50 | 1.0 |"
    assert means == "| geometric mean |  |  |  | 2.00 | 0.50 | 0.50 | 1.4 |"
    assert medians == "| median |  |  |  | 2.50 | 0.50 | 0.50 | 1.5 |"
    assert losses == "| below 0.95 |  |  |  | 0 | 1 | 1 |  |"


def test_the_command_writes_what_it_measures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(benchmarks, "find_cases", lambda names, corpus: (TINY,))
    monkeypatch.setattr(benchmarks, "measure_limits", lambda: ROOFLINE)
    data, text = tmp_path / "rows.json", tmp_path / "rows.md"
    benchmarks.main(["--runs", "1", "--json", str(data), "--markdown", str(text), TINY.name])
    assert json.loads(data.read_text(encoding="utf-8"))["rows"][0]["name"] == TINY.name
    assert text.read_text(encoding="utf-8").count(TINY.name) == 1
    assert TINY.name in capsys.readouterr().out


def test_an_unknown_name_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        benchmarks.main(["relative"])
    assert left.value.code == 2
    assert "relative has no case" in capsys.readouterr().err
