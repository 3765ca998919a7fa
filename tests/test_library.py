"""Every formula of the library against the code by hand of tests/benchmarks.

The loop interpreter and the built function are both compared with the reference: at pairwise
distinct sizes, with one size 1, and with empty rows of masks.
"""

import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from built import LIBRARY as NAMES
from built import built, every_formula
from fast_cases import slow_except

import derive.formulas
from derive.errors import DeriveError
from derive.formulas import FAMILIES, family_of, find_formula, find_in_module
from derive.frontend.from_sympy import from_sympy, show, to_system
from derive.frontend.from_text import parse
from derive.judge.loops import evaluate_loops
from derive.judge.samples import choose_sizes, draw_inputs, find_sizes
from derive.notation.formula import Formula
from tests.benchmarks.cases import load_by_hand, to_tuple

WRITTEN = {
    name: text
    for path in Path(derive.formulas.__file__).parent.glob("*.py")
    for name, text in re.findall(r"^(\w+) = (\w+\($.*?^\))$", path.read_text(), re.M | re.S)
}
SOFTMAX = [name for name in NAMES if re.search("softmax|logsumexp", WRITTEN[name])]
EMPTY = [name for name in NAMES if 'empty_row="zeros"' in WRITTEN[name]]
MASKED = [name for name in EMPTY if "bool " in WRITTEN[name]]
BY_HAND = load_by_hand()
DRAWS = range(3)  # draw 1 has a size 1, draw 2 an empty row of each mask

# Each formula runs at one draw in the fast tests and at the other draws in the slow ones.
EACH = [
    pytest.param(name, (number + turn) % len(DRAWS), marks=[pytest.mark.slow] * bool(turn))
    for turn in DRAWS
    for number, name in enumerate(NAMES)
]

one_sample = pytest.mark.filterwarnings(
    r"ignore:cov\(\)"
)  # the covariance of one sample is nan, and torch warns


def draw_from(name: str, draw: int, *, empty_row: bool = False) -> dict[str, Any]:
    system = built(name).system
    sizes = choose_sizes(system, count=len(DRAWS))[draw]
    return draw_inputs(system, sizes, draw, empty_row=empty_row)


def assert_equal(found: Any, expected: Any, tolerance: float = 1e-9) -> None:
    """Assert equal count, shapes and values; the tolerance is relative to the largest entry.

    The largest entry counts as at least 1e-3, for results that vanish at inputs of order 1.
    """
    assert len(to_tuple(found)) == len(to_tuple(expected))
    for one, other in zip(to_tuple(found), to_tuple(expected), strict=True):
        finite = other[other.isfinite()]
        largest = max([1e-3, *finite.abs().flatten().tolist()])
        torch.testing.assert_close(
            one, other, rtol=tolerance, atol=tolerance * largest, equal_nan=True
        )


def find_gradients(function: Any, inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """Gradients of a weighted sum of all results with respect to every real tensor.

    The gradient of an unused tensor is zero: a recurrence of length 1 does not read its decay.
    """
    leaves = {
        name: value.clone().requires_grad_()
        for name, value in inputs.items()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }
    total = torch.zeros((), dtype=torch.float64)
    for result in to_tuple(function(**inputs | leaves)):
        weights = torch.arange(1.0, result.numel() + 1, dtype=torch.float64).sin()
        total = total + (result * weights.reshape(result.shape)).sum()
    return torch.autograd.grad(
        total, list(leaves.values()), allow_unused=True, materialize_grads=True
    )


@one_sample
@pytest.mark.parametrize(("name", "draw"), EACH)
def test_loops_function_and_gradients_are_those_of_code_by_hand(name: str, draw: int) -> None:
    inputs, function = draw_from(name, draw), built(name).function
    expected = BY_HAND[name](**inputs)
    assert_equal(evaluate_loops(find_formula(name), inputs), expected)
    assert_equal(function(**inputs), expected)
    slopes = find_gradients(BY_HAND[name], inputs)
    assert_equal(find_gradients(function, inputs), slopes, 1e-8)


@pytest.mark.parametrize(
    "name",  # fast for some scalars: the comparison with the reference covers tensors
    slow_except(NAMES, "personalized_page_rank", "group_norm", "dpo_loss", "batch_norm", "film"),
)
def test_gradients_equal_finite_differences(name: str) -> None:
    """Scalars are passed as tensors, so that they have gradients too."""
    inputs = draw_from(name, 0)
    scalars = {scalar: torch.tensor(float(inputs[scalar])) for scalar in find_formula(name).scalars}
    leaves = {
        argument: value.double().requires_grad_()
        for argument, value in (inputs | scalars).items()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
    }

    def of_leaves(*values: torch.Tensor) -> Any:
        return built(name).function(**inputs | dict(zip(leaves, values, strict=True)))

    assert torch.autograd.gradcheck(of_leaves, tuple(leaves.values()))


LARGE = slow_except(
    NAMES,
    *("self_attention", "grouped_query_attention", "tucker", "capsule_routing", "dpo_loss"),
    *("depthwise_conv2d", "sparse_graph_attention", "segment_mean", "s4d", "histogram"),
    *("circulant_product", "geodesic_acceleration"),
)


@pytest.mark.parametrize("name", LARGE)
def test_large_inputs_give_finite_results(name: str) -> None:
    """Results at logits above 1e4 are finite wherever code by hand is, and right.

    Each entry equals that of the code by hand or of the loops: either may lose digits there.
    """
    inputs = {
        argument: value * 100
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
        for argument, value in draw_from(name, 0).items()
    }
    found, loops, by_hand = (
        to_tuple(results)
        for results in (
            built(name).function(**inputs),
            evaluate_loops(find_formula(name), inputs),
            BY_HAND[name](**inputs),
        )
    )
    for one, known, other in zip(found, loops, by_hand, strict=True):
        assert bool(other.isfinite().any())
        largest = max(1e-3, float(other[other.isfinite()].abs().max()))
        near = [torch.isclose(one, right, 1e-9, 1e-9 * largest) for right in (other, known)]
        assert bool((near[0] | near[1] | ~other.isfinite()).all())


LARGE_LOGITS = slow_except(
    SOFTMAX,
    *("relative_attention", "masked_attention", "sliding_window_attention", "graph_attention"),
    *("capsule_routing", "cross_entropy", "ctc_loss", "forward_algorithm"),
)


@pytest.mark.parametrize("name", LARGE_LOGITS)
def test_large_logits_in_single_precision(name: str) -> None:
    """Results and gradients are finite although exp(1e4) overflows float32."""
    inputs = {
        argument: (value * 100).float().requires_grad_()
        if isinstance(value, torch.Tensor) and value.is_floating_point()
        else value
        for argument, value in draw_from(name, 0).items()
    }
    results = to_tuple(built(name).function(**inputs))
    assert all(result.dtype == torch.float32 for result in results)
    assert all(bool(result.isfinite().all()) for result in results)
    leaves = [v for v in inputs.values() if isinstance(v, torch.Tensor) and v.requires_grad]
    gradients = torch.autograd.grad(sum(result.sum() for result in results), leaves)
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)


@pytest.mark.parametrize("name", ["masked_attention", "masked_multi_head_attention"])
@pytest.mark.parametrize(("B", "H"), [(2, 3), (3, 3)])
def test_a_mask_belongs_to_its_sequence_whatever_the_heads(name: str, B: int, H: int) -> None:
    """At B = H a mask that is broadcast over heads by mistake has the right shape too."""
    system = built(name).system
    numbers = dict(B=B, H=H, N=5, M=7, C=2, E=4, D=6)
    inputs = draw_inputs(system, {size: numbers[size] for size in find_sizes(system)}, 0)
    mask = (torch.arange(7) % B == torch.arange(B)[:, None]).unsqueeze(1).repeat(1, 5, 1)
    _, weights = built(name).function(**inputs | {"mask": mask})
    assert torch.equal(weights > 0, torch.stack([mask] * H, dim=1))


@pytest.mark.parametrize("name", MASKED)
def test_an_empty_row(name: str) -> None:
    inputs = draw_from(name, 2, empty_row=True)
    (mask,) = (v for v in inputs.values() if isinstance(v, torch.Tensor) and v.dtype == torch.bool)
    assert not bool(mask.any(dim=-1).all())
    assert bool(mask.any(dim=-1).any())
    reference, function = BY_HAND[name], built(name).function
    expected = reference(**inputs)
    assert_equal(evaluate_loops(find_formula(name), inputs), expected)
    assert_equal(function(**inputs), expected)
    gradients = find_gradients(function, inputs)
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    assert_equal(gradients, find_gradients(reference, inputs), 1e-8)


@pytest.mark.parametrize("name", MASKED)
def test_nothing_but_empty_rows(name: str) -> None:
    inputs = {
        argument: torch.zeros_like(value)
        if isinstance(value, torch.Tensor) and value.dtype == torch.bool
        else value
        for argument, value in draw_from(name, 0).items()
    }
    for result in to_tuple(built(name).function(**inputs)):
        assert not bool(result.any())


@every_formula
def test_a_formula_has_a_title_and_a_source(name: str) -> None:
    formula = find_formula(name)
    assert formula.name == name
    for words in (formula.title, formula.source):
        assert words
        assert words == words.strip().rstrip(".")
        assert "\n" not in words
    assert set(formula.typical) == set(find_sizes(to_system(formula)))
    made = Path(__file__).parents[1] / "generated" / f"{name}.py"
    assert not re.search(r"#\d", made.read_text())  # internal index names do not appear


@every_formula
def test_the_shown_text_parses_to_itself(name: str) -> None:
    formula = find_formula(name)
    text = show(formula)
    again = parse(text, name, empty_row=formula.empty_row)
    assert show(again) == text
    assert from_sympy(again) is from_sympy(formula)
    made = Path(__file__).parents[1] / "generated" / f"{name}.py"
    lines = (line for line in made.read_text().split('"""')[1].split("\n"))
    header = "\n".join(line for line in lines if line.startswith("    "))  # long lines are wrapped
    assert show(parse(header, name)) == show(parse(text, name))


def test_families_are_the_files() -> None:
    here = Path(derive.formulas.__file__).parent
    assert sorted(FAMILIES) == sorted(p.stem for p in here.glob("*.py") if p.stem != "__init__")


@pytest.mark.parametrize(
    ("name", "help_line"),
    [("layernorm", "did you mean layer_norm?"), ("zzz", "derive list shows what there is")],
)
def test_an_unknown_name(name: str, help_line: str) -> None:
    for find in (find_formula, family_of):
        with pytest.raises(DeriveError) as caught:
            find(name)
        says = f"formula-unknown: the library has no formula {name}\n  help: {help_line}"
        assert str(caught.value) == says


def test_a_formula_is_named_by_its_variable() -> None:
    module = ModuleType("family")
    module.product = parse("A[M]; y[i] = A[i]")
    module.other = parse("A[M]; y[i] = A[i]", "chosen")
    module.raw = Formula(*module.product.equations)
    module._hidden = parse("A[M]; y[i] = A[i]")
    module.number = 1
    found = find_in_module(module)
    assert {name: formula.name for name, formula in found.items()} == {
        "product": "product",
        "chosen": "chosen",
        "raw": "raw",
    }
