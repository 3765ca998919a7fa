"""Every generated function against its formula, exactly, over random fields."""

from pathlib import Path

import pytest

from derive import check

GENERATED = Path(__file__).resolve().parents[2] / "generated"
NAMES = sorted(path.stem for path in GENERATED.glob("*.py") if not path.stem.startswith("_"))


@pytest.mark.parametrize("name", NAMES)
def test_a_generated_function_is_identical_to_its_formula(name):
    verdict = check(f"{GENERATED / name}.py:{name}", name)
    assert verdict.same is True
    assert verdict.grade in {"proved", "identical"}, str(verdict)
