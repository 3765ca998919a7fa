"""Every generated function against its formula, exactly, over random fields."""

from pathlib import Path

import pytest
from exactness import assert_exact

from derive.formulas import find_families, find_formula

GENERATED = Path(__file__).resolve().parents[2] / "generated"
NAMES = sorted(path.stem for path in GENERATED.glob("*.py") if not path.stem.startswith("_"))


# One of each family at once, all with the slow tests.
FIRST = {find_families()[name]: name for name in reversed(NAMES)}.values()
EACH = [pytest.param(n, marks=[] if n in FIRST else [pytest.mark.slow]) for n in NAMES]


@pytest.mark.parametrize("name", EACH)
def test_a_generated_function_is_identical_to_its_formula(name):
    assert_exact(GENERATED / f"{name}.py", find_formula(name))
