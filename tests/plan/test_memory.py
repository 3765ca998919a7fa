"""A budget of memory: plans keep to it, or are refused with what the leanest one takes."""

import pytest

from derive import build, parse
from derive.errors import DeriveError
from derive.formulas import find_formula

SIZES = dict(B=8, S=256, H=8, D=64)
MIB = 1 << 20


def peak(built):
    return 4 * built.plan.at_sizes(built.plan.peak_elements)


@pytest.mark.parametrize("mebibytes", [64, 32, 16, 15])
def test_a_plan_keeps_to_the_budget(mebibytes):
    built = build(find_formula("relative_attention"), SIZES, memory=f"{mebibytes}MiB")
    assert peak(built) <= mebibytes * MIB
    assert built.plan.tile is not None
    built.judge(count=2)


def test_a_budget_that_nothing_keeps_to_is_refused():
    with pytest.raises(DeriveError, match="memory-short") as refused:
        build(find_formula("relative_attention"), SIZES, memory=1 * MIB)
    assert "leanest" in str(refused.value)


def test_an_ample_budget_changes_nothing():
    free = build(find_formula("gaussian_kernel"), dict(N=64, M=64, D=8))
    kept = build(find_formula("gaussian_kernel"), dict(N=64, M=64, D=8), memory="1GiB")
    assert free.source == kept.source


@pytest.mark.parametrize(
    ("memory", "count"),
    [("256MiB", 256 * MIB), ("2GB", 2 * 10**9), (" 1.5 KiB ", 1536), (4096, 4096), ("10k", 10_000)],
)
def test_amounts(memory, count):
    from derive.plan.memory import parse_memory

    assert parse_memory(memory) == count


@pytest.mark.parametrize("memory", ["much", "", "12 parsecs", 0, -4, "1e9", True, "MiB"])
def test_no_amounts(memory):
    with pytest.raises(DeriveError, match="memory-amount"):
        build(parse("x[N]; y[i] = exp(x[i])"), memory=memory)


@pytest.mark.parametrize("mebibytes", [12, 10])
def test_a_budget_too_small_for_one_loop_is_kept_by_a_loop_in_a_loop(mebibytes):
    built = build(find_formula("relative_attention"), SIZES, memory=f"{mebibytes}MiB")
    assert peak(built) <= mebibytes * MIB
    assert len(built.plan.tiles) == 2
    assert "inner_block: int | None = None" in built.source
    built.judge(count=2)
