"""Guards: what a condition leaves out is not read, in value and in gradient."""

import re

import pytest
import torch
from texts import Expressions

from derive import build, evaluate_loops, parse

ROWS = Expressions(__file__, "guards_rows.txt")

GUARDED = dict(ROWS["GUARDED"])


@pytest.mark.parametrize("text", GUARDED.values(), ids=GUARDED.keys())
def test_values_and_gradients_are_finite(text: str) -> None:
    formula = parse(text)
    x = torch.tensor([0.5, -1.5, 2.0, 800.0], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0.0, -1.0, 2.0, 0.5], dtype=torch.float64, requires_grad=True)
    found = build(formula).function(x, y)
    expected = evaluate_loops(formula, {"x": x.detach(), "y": y.detach()})
    torch.testing.assert_close(found.detach(), expected, rtol=1e-9, atol=1e-12)
    gradients = torch.autograd.grad(found.sum(), (x, y), allow_unused=True)
    assert all(g is None or bool(g.isfinite().all()) for g in gradients)


@pytest.mark.parametrize(("value", "given"), ROWS["SCALAR_GUARDS"])
def test_a_guard_by_a_scalar_keeps_gradients_finite(value: str, given: float) -> None:
    function = build(parse(f"x[N]; scalar a; z[i] = {value}")).function
    x = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
    a = torch.tensor(given, dtype=torch.float64, requires_grad=True)
    found = function(x, a)
    torch.testing.assert_close(found, x)
    torch.testing.assert_close(function(x, given), x)
    gradients = torch.autograd.grad(found.sum(), (x, a))
    torch.testing.assert_close(gradients, (torch.ones_like(x), torch.zeros_like(a)))


@pytest.mark.parametrize(("text", "calls"), ROWS["calls of where"])
def test_what_is_a_number_wherever_it_is_read_has_no_guard(text: str, calls: int) -> None:
    source = build(parse(text)).source
    assert source.count("torch.where(") + source.count("torch.diagonal_scatter(") == calls


def test_a_power_of_an_exponent_is_guarded() -> None:
    function = build(parse("x[N]; scalar p; z[i] = where(x[i] > 0, x[i]**p, 0)")).function
    x = torch.tensor([0.0, -1.0, 4.0], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(function(x, 0.5).sum(), x)
    torch.testing.assert_close(gradient, torch.tensor([0.0, 0.0, 0.25]).double())


NAMED_STEPS = tuple(ROWS["NAMED_STEPS"])


@pytest.mark.parametrize("lines", NAMED_STEPS)
def test_guards_reach_the_steps_that_they_read(lines: str) -> None:
    declared = "x[N, D]; bool m[N]; s[i,j] = sum[d]((x[i,d] - x[j,d])**2)"
    formula = parse(f"{declared}; {lines}")
    x = torch.tensor([[1.0, 2.0], [3.0, 5.0], [0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    inputs = {"x": x, "m": torch.tensor([True, True, False])}
    names = [entry.name for entry in build(formula).system.inputs]
    found = build(formula).function(*(inputs[name] for name in names))
    torch.testing.assert_close(found, evaluate_loops(formula, inputs))
    (gradient,) = torch.autograd.grad(found, x)
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize(
    ("other", "is_guarded"),
    (("not (x[i] > 0)", False), ("not (x[i] > 0) and y[i] > 0", True), ("y[i] > 0", True)),
)
def test_what_both_branches_read_is_read_everywhere(other: str, is_guarded: bool) -> None:
    built = build(
        "x, y, w[N]; a[i] = w[i] / y[i]\n"
        f"z[i] = where(x[i] > 0, a[i] * x[i], 0) + where({other}, a[i] * 2, 0)\nreturn z"
    )
    assert ("a = w / y\n" not in built.source) is is_guarded


def test_a_row_that_is_read_whole_is_not_guarded() -> None:
    whole = build(parse("x[N]; r[i] = sqrt(x[i]); z = sum[i, i <= 0](softmax[i](r[i]))"))
    assert "torch.sqrt(x)" in whole.source
    both = build(parse("x[N]; r[i] = sqrt(x[i]); z = sum[i, i > 0](r[i]) + max[i](r[i])"))
    assert "torch.sqrt(x)" in both.source
    returned = build(parse("x[N]; r[i] = sqrt(x[i]); z = sum[i, i > 0](r[i]); return z, r"))
    assert "torch.sqrt(x)" in returned.source


def test_exponentials_of_the_branch_not_taken_do_not_reach_the_gradient() -> None:
    elu = build(parse("x[N]; y[i] = where(x[i] > 0, x[i], exp(x[i]) - 1)")).function
    x = torch.tensor([1e4, -1.0], dtype=torch.float64, requires_grad=True)
    elu(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.tensor([1.0, -1.0]).exp().where(x < 0, 1.0).double())


OF_SIZES = ROWS["of sizes"]


@pytest.mark.parametrize("value", OF_SIZES)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_numbers_of_sizes_compute_as_tensors_do(value: str, size: int) -> None:
    formula = parse(f"x[N]; z[i] = {value}")
    x = torch.linspace(-1.5, 1, size, dtype=torch.float64)
    found = build(formula).function(x)
    torch.testing.assert_close(found, evaluate_loops(formula, {"x": x}), equal_nan=True)
    assert build(formula).function(x.half()).dtype == torch.float16


def test_numbers_of_sizes_are_computed_in_full() -> None:
    scaled = build(parse("x[N]; z = sum[i](x[i]) / sqrt(N - 1); y = sqrt(N - 1); return z, y"))
    z, y = scaled.function(torch.full((100_001,), 0.001).half())
    torch.testing.assert_close(
        (z.float(), y.float()), (torch.tensor(0.3162), torch.tensor(316.2)), rtol=1e-3, atol=0
    )
    assert (z.dtype, y.dtype) == (torch.float16, torch.float16)
    steady = build(parse("x[N, M, K, L]; z = sum[i, j, k, l](x[i,j,k,l]) / sqrt(2*N*M*K*L - 1)"))
    assert "new_full" not in steady.source


def test_numbers_beyond_integers_are_floats() -> None:
    times = build(parse("x[N]; y[i] = x[i] * 10**30")).function
    torch.testing.assert_close(times(torch.ones(2)), torch.full((2,), 1e30))


@pytest.mark.parametrize(("text", "kept"), ROWS["positions are exact in every dtype"])
def test_positions_are_exact_in_every_dtype(text: str, kept: int) -> None:
    function = build(parse(text)).function
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        inputs = [torch.ones(1000, dtype=dtype)]
        inputs += [torch.ones(3, dtype=dtype)] if "y[M]" in text else []
        assert int(function(*inputs).count_nonzero()) == kept


SCALARS = {
    "scalar a; z = a * pi": 2 * torch.pi,
    "scalar a; z = sqrt(a)": 2**0.5,
    "scalar a; z = 1 / a": 0.5,
    "x[N]; scalar a; z = sum[i](x[i]) / 2 + 1 / (a - 2)": torch.inf,
    "x[N]; scalar a; z = sum[i](x[i]) + sqrt(-a)": torch.nan,
}


@pytest.mark.parametrize(("text", "value"), SCALARS.items())
@pytest.mark.parametrize("given", [2, 2.0, torch.tensor(2), torch.tensor(2.0)])
def test_scalars_compute_as_tensors_do(text: str, value: float, given: object) -> None:
    tensors = [torch.zeros(2)] if "x[N]" in text else []
    found = build(parse(text)).function(*tensors, given)
    torch.testing.assert_close(found, torch.tensor(value), equal_nan=True)


def test_a_mean_of_half_precision_products_does_not_overflow() -> None:
    mean = build(parse("x[N]; z = mean[i](x[i] * x[i])")).function
    assert bool(mean(torch.full((1000,), 10.0, dtype=torch.float16)).isfinite())


def test_fractions_are_not_cut_off_in_tensors_of_integers() -> None:
    function = build(parse("x[N]; z[i] = where(x[i] > 1, x[i], 0.5)")).function
    torch.testing.assert_close(function(torch.arange(1, 4)), torch.tensor([0.5, 2.0, 3.0]))


OUTSIDE = tuple(ROWS["OUTSIDE"])


@pytest.mark.parametrize("lines", OUTSIDE)
def test_gradients_are_those_of_finite_differences(lines: str) -> None:
    formula = parse(f"x[N, N]; v[N, D]; bool m[N, N]; index i, j < N; index d < D; {lines}")
    generator = torch.Generator().manual_seed(1)
    inputs = {
        "x": torch.randn(4, 4, generator=generator, dtype=torch.float64),
        "v": torch.randn(4, 2, generator=generator, dtype=torch.float64),
        "m": torch.tensor([[False] * 4, [True] * 4, [True, False, True, False], [False] * 4]),
    }
    function = build(formula).function
    names = [entry.name for entry in build(formula).system.inputs]
    given = {name: inputs[name].clone() for name in names}
    for value in given.values():
        value.requires_grad_(value.is_floating_point())
    found = function(**given)
    torch.testing.assert_close(found.detach(), evaluate_loops(formula, inputs))
    weights = torch.randn(found.shape, generator=generator, dtype=torch.float64)
    torch.autograd.backward(found, weights)
    for name, value in given.items():
        if value.grad is not None:
            for place in range(0, value.numel(), 3):
                slope = _find_slope(formula, inputs, name, place, weights)
                assert abs(float(value.grad.flatten()[place]) - slope) < 1e-6 * (1 + abs(slope))


def _find_slope(formula, inputs, name, place, weights):  # type: ignore[no-untyped-def]
    """By a central difference of the loops."""
    sides = []
    for step in (1e-5, -1e-5):
        moved = inputs[name].clone()
        moved.flatten()[place] += step
        sides.append(float((evaluate_loops(formula, {**inputs, name: moved}) * weights).sum()))
    return (sides[0] - sides[1]) / 2e-5


@pytest.mark.parametrize(
    "text",
    [
        "x[N]; y[i,j] = [j != i]*1/(x[i] - x[j])**2",
        "x[N]; y[i] = sum[j, j != i](1/(x[i] - x[j])**2)",
        "x[N, A]; y[i] = sum[j, j != i](1/sum[a]((x[i,a] - x[j,a])**2)**(3/2))",
        "x[N]; y[i,j] = [j < i]*sqrt(x[i] - x[j])",
        "x[N] > 0; index i, j < N; y[i,j] = [j <= i]*x[i]**(i - j)",
        "x[N] > 0; index n, m < 300; y[h,n,m] = where(n >= m, x[h]**(n - m), 0)",
    ],
)
def test_what_is_left_out_has_no_part_in_gradients(text: str) -> None:
    function = build(parse(text)).function
    x = torch.arange(1.0, 7)[:, None] * torch.tensor([0.15, 0.1, 0.13])
    x = x.clone() if "A]" in text else x[:, 0].clone()
    (gradient,) = torch.autograd.grad(function(x.requires_grad_(True)).sum(), x)
    assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("value", "guards"),
    [
        ("where(x[i] < 0, exp(y[i]), where(x[i] > 1, 2*exp(y[i]), exp(y[i])**2))", 0),
        ("where(x[i] < 0, sigmoid(exp(y[i])*x[i]), x[i]*exp(y[i]))", 0),
        ("where(x[i] < 0, exp(y[i]), where(x[i] > 1, 2*exp(y[i]), x[i]))", 2),
        ("where(x[i] < 0, sqrt(y[i]), where(x[i] > 1, log(y[i]), 0))", 1),
        ("where(x[i] > 0, where(y[i] > 0, log(x[i] + y[i]), 0), 0)", 1),
    ],
)
def test_what_all_branches_need_is_not_guarded_and_one_guard_does(value: str, guards: int) -> None:
    text = f"x, y[N]; z[i] = {value}"
    source = build(text).source
    assert len(re.findall(r"(exp|log)\(torch.where\(", source)) == guards
    assert "where(torch.where" not in source.replace("\n", "").replace(" ", "")
    x = torch.tensor([-1.0, 0.5, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([1.0, 2.0, 0.5, 0.25], dtype=torch.float64, requires_grad=True)
    found = build(text).function(x, y)
    torch.testing.assert_close(found.detach(), evaluate_loops(parse(text), {"x": x, "y": y}))
    gradients = torch.autograd.grad(found.sum(), (x, y), allow_unused=True)
    assert all(g is None or bool(g.isfinite().all()) for g in gradients)


def test_an_operand_is_guarded_over_its_own_indices() -> None:
    text = "x[N, D]; s[i] = sum[d](x[i,d]**2); z[i,d] = x[i,d]/sqrt(s[i])\n"
    text += "y[i] = min[j, abs(i - j) > 1](sqrt(max(2 - 2*sum[d](z[i,d]*z[j,d]), 0)))"
    built = build(text)
    assert any(len(one.split(",")) == 2 for one in built.plan.einsums)
    assert all(power <= 2 for term in built.plan.flops.terms for _, power in term)
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    found = built.function(x)
    torch.testing.assert_close(found.detach(), evaluate_loops(parse(text), {"x": x}))
    (gradient,) = torch.autograd.grad(found.sum(), x)
    assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("over", ["j", "i, j"])
def test_truth_values_are_counted_by_integers(over: str) -> None:
    free = "[i]" if over == "j" else ""
    text = f"x[N, M]; c{free} = sum[{over}]([x[i,j] > 0])*exp(-sum[{over}, x[i,j] > 1](1))"
    source = build(text).source
    assert ".to(x.dtype).sum(" not in source and ".to(x.dtype)" in source
    x = torch.randn(5, 3, dtype=torch.float64)
    torch.testing.assert_close(build(text).function(x), evaluate_loops(parse(text), {"x": x}))


def test_counts_are_exact_in_short_types() -> None:
    count = build("x[N]; n = sum[i]([x[i] > 0])/2").function(torch.ones(3000, dtype=torch.bfloat16))
    assert float(count) == float(torch.tensor(1500.0).bfloat16())


@pytest.mark.parametrize("size", (1, 2, 5, 7))
@pytest.mark.parametrize("text", ROWS["ranges that may be empty"])
def test_a_range_that_conditions_shorten_may_be_empty(text: str, size: int) -> None:
    formula, x = parse(text), torch.randn(size, dtype=torch.float64, requires_grad=True)
    found = build(formula).function(x)
    torch.testing.assert_close(found.detach(), evaluate_loops(formula, {"x": x.detach()}))
    (gradient,) = torch.autograd.grad(found.sum(), x)
    assert bool(gradient.isfinite().all())
