"""Every generated function equals its formula over random finite fields."""

import re
from pathlib import Path

import pytest
from exactness import assert_exact
from fast_cases import slow_except

from derive import check
from derive.formulas import find_formula

GENERATED = Path(__file__).resolve().parents[2] / "generated"
NAMES = sorted(path.stem for path in GENERATED.glob("*.py") if not path.stem.startswith("_"))


NESTED = "exponentials nest deeper than random fields allow"
EXTREME = "scatter with the reduction amax is not modelled over fields"
FLOOR = "a number out of the data is not modelled over fields"
BEYOND = {  # reasons in verdicts for functions that finite fields do not have
    **dict.fromkeys(("histogram", "uniform_interpolation"), FLOOR),
    **dict.fromkeys(("autocorrelation", "circulant_product", "s4d"), "is not modelled over fields"),
    **dict.fromkeys(("dpo_loss", "gru", "lstm", "sinkhorn_step"), NESTED),
    **dict.fromkeys(("principal_neighbourhood_aggregation", "sparse_graph_attention"), EXTREME),
    **dict.fromkeys(("ctc_loss", "forward_algorithm"), "the order of logarithms is not modelled"),
}


EACH = slow_except(
    NAMES,
    *("conv1d", "kalman_filter_step", "linear", "sparse_graph_convolution"),
    *("spherical_tensor_product", "triangle_multiplication"),
)


@pytest.mark.parametrize("name", EACH)
def test_a_generated_function_is_identical_to_its_formula(name, tmp_path):
    """A clamp at 0 of a sum of squares, which only guards against rounding, is skipped."""
    file, text = GENERATED / f"{name}.py", (GENERATED / f"{name}.py").read_text(encoding="utf-8")
    plain = re.sub(r"torch\.clamp\((.*), min=0\)$", r"\1", text, flags=re.MULTILINE)
    if plain != text:
        assert check(f"{file}:{name}", find_formula(name)).same
        file = tmp_path / f"{name}.py"
        file.write_text(plain, encoding="utf-8")
    assert_exact(file, find_formula(name), beyond=BEYOND.get(name, ""))
