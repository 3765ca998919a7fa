"""`python -m tests.benchmarks`: each formula has an equal function by hand.

Times are measured at tiny sizes, and nothing is asserted about them.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fast_cases import slow_except
from torch import Tensor

from derive.formulas import find_families, find_formula
from derive.frontend.from_sympy import to_system
from derive.judge.samples import find_sizes, is_possible
from tests.benchmarks import __main__ as benchmarks
from tests.benchmarks.cases import Case, find_cases, find_difference, load_by_hand, load_cases
from tests.benchmarks.run import Pair, Row, check, measure
from tests.benchmarks.tables import USUAL, Column, find_ratio, to_markdown

NAMES = tuple(find_families())
BY_HAND = load_by_hand()
TINY = replace(find_cases(("luong_dot_attention",))[0], sizes=dict(B=2, T=3, S=4, D=5))


def test_every_formula_of_the_library_has_a_case_and_the_corpus_is_beyond_it() -> None:
    cases, names = load_cases(), [case.name for case in load_cases(corpus=True)]
    assert sorted(BY_HAND) == sorted(NAMES)
    assert len({(case.name, case.title) for case in cases}) == len(cases)
    assert len({*names, *NAMES}) == len(names) + len(NAMES)
    with pytest.raises(KeyError, match="nothing"):
        find_cases(("nothing",))


CASES = slow_except(
    [*load_cases(), *load_cases(corpus=True)],
    *("linear_attention", "max_pool2d", "matrix_chain", "forward_algorithm", "capsule_routing"),
    *("n_body_accelerations", "density_fitted_coulomb", "block_local_attention", "hausdorff"),
    *("softmax_backward", "triplet_all_pairs", "depthwise_causal_convolution", "mttkrp"),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_is_timed_at_sizes_that_it_has_and_computes_its_formula(case: Case) -> None:
    """Cases of the corpus only: test_library.py compares those of the library."""
    formula = case.formula
    system = to_system(formula)
    assert sorted(case.sizes) == sorted(find_sizes(system))
    assert is_possible(system, case.sizes)
    assert {*case.small} <= {entry.name for entry in system.inputs}
    assert case.text is None or not find_difference(case.by_hand, formula)


def attend_uniformly(*, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Any:
    """Masked attention with uniform weights in empty rows, instead of zeros."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = scores.masked_fill(~mask[:, None], -1e9).softmax(dim=-1)
    return weights @ value, weights


def change_results(name: str, change: Any) -> Any:
    """The function by hand with its results changed."""
    return lambda **inputs: change(BY_HAND[name](**inputs))


@pytest.mark.parametrize(
    ("name", "wrong", "says"),
    [
        (
            "self_attention",
            change_results("self_attention", lambda made: (made[0] * 1.1, made[1])),
            "z[",
        ),
        (
            "self_attention",
            change_results("self_attention", lambda made: made[0]),
            "1 results for 2",
        ),
        ("masked_attention", attend_uniformly, "z["),
        ("fock_matrix", change_results("fock_matrix", lambda made: made * (1 + 1e-8)), "F["),
        ("linear", change_results("linear", lambda made: made.T), "y has shape"),
    ],
)
def test_a_wrong_function_is_refused(name: str, wrong: Any, says: str) -> None:
    assert find_difference(wrong, find_formula(name)).startswith(says)


def test_a_row_is_measured() -> None:
    row = measure(TINY, runs=1)
    assert row.autograd is not None
    assert row.backward is not None
    assert all(pair.ratio > 0 for pair in (row.forward, row.autograd, row.backward))
    assert row.to_data()["sizes"] == TINY.sizes
    assert measure(TINY, runs=1, backward=False).backward is None


def test_other_values_are_not_timed() -> None:
    found = torch.arange(1.0, 5.0)
    check(lambda: found, lambda: found + 1e-6)
    with pytest.raises(AssertionError):
        check(lambda: found, lambda: found + 0.1)


def test_ratios_are_how_much_less_the_generated_function_takes() -> None:
    rows = [
        Row(TINY, Pair(0.001, 0.004), None, backward=Pair(0.002, 0.001)),
        Row(TINY, Pair(0.001, 0.001), Pair(10.0, 5.0)),
    ]
    columns = (*USUAL, Column("--backward", find_ratio("backward"), ".2f", True))
    *_, one, other, means, medians, losses = to_markdown(rows, columns).splitlines()
    sizes = "B=2 T=3 S=4 D=5"
    assert one == f"| luong_dot_attention | {sizes} | 1 | 4 | 4.00 | - | 0.50 |"
    assert other == f"| luong_dot_attention | {sizes} | 1 | 1 | 1.00 | 0.50 | - |"
    assert means == "| geometric mean |  |  |  | 2.00 | 0.50 | 0.50 |"
    assert medians == "| median |  |  |  | 2.50 | 0.50 | 0.50 |"
    assert losses == "| below 0.95 |  |  |  | 0 | 1 | 1 |"


@pytest.mark.parametrize(
    ("asked", "heads"), [((), ("forward", "memory")), (("--backward",), ("autograd", "--backward"))]
)
def test_the_command_writes_what_it_measures(
    asked: tuple[str, ...],
    heads: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(benchmarks, "find_cases", lambda names, corpus: (TINY,))
    data, text = tmp_path / "rows.json", tmp_path / "rows.md"
    files = ("--json", str(data), "--markdown", str(text))
    benchmarks.main([*asked, "--runs", "1", *files, TINY.name])
    said = text.read_text(encoding="utf-8")
    assert {*heads} <= {head.strip() for head in said.splitlines()[0].split("|")}
    assert json.loads(data.read_text(encoding="utf-8"))["rows"][0]["name"] == TINY.name
    assert said.count(TINY.name) == 1
    assert TINY.name in capsys.readouterr().out


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        benchmarks.main(["relative"])
    assert left.value.code == 2
    assert "relative has no case" in capsys.readouterr().err
