"""However a row is written, the same calls of torch come of it, and no exponential overflows."""

import re
from functools import cache
from itertools import groupby

import pytest
import torch
from texts import Expressions, read_text

from derive.compiler import build
from derive.frontend.from_sympy import from_sympy
from derive.frontend.from_text import parse
from derive.ir.text import to_lines
from derive.judge.evaluate import evaluate_system
from derive.judge.loops import evaluate_loops
from derive.judge.samples import choose_sizes, draw_inputs
from derive.rewrite.recipes import LOSSY, OPTIONS, find_rewritings, prepare

ROWS = Expressions(__file__, "ways_rows.txt")

WAYS = read_text(__file__, "softmax_ways.txt").splitlines()
HUGE = 1e4
ALL = (*OPTIONS, *LOSSY)


def read_ways():
    """(group, the notation's form, another form) for each line of the table."""
    lines = [line for line in WAYS if not line.startswith("#")]
    for filled, block in groupby(lines, bool):
        if filled:
            group, first, *others = block
            yield from ((group, first.strip(), other.strip()) for other in others)


each_way = pytest.mark.parametrize(("group", "first", "other"), list(read_ways()))


@cache
def build_text(text):
    return build(parse(text))


def find_calls(built):
    """The calls in the body of a function, in order of name."""
    body = built.source.split("_check_shapes(", 1)[1].split("def _check_shapes")[0]
    code = [line for line in body.splitlines() if not line.strip().startswith("#")]
    return sorted(re.findall(r"torch\.[\w.]+|\.\w+(?=\()", "\n".join(code)))


@pytest.mark.sampled(3)
@each_way
def test_every_way_makes_the_same_calls(group, first, other):
    wanted, found = build_text(first), build_text(other)
    assert find_calls(found) == find_calls(wanted), found.source
    assert found.judge().agrees


@pytest.mark.sampled(3)
@each_way
def test_no_way_overflows(group, first, other):
    """The first way is stable; the others are no worse where exponentials overflow."""
    wanted, found = build_text(first), build_text(other)
    (sizes,) = choose_sizes(wanted.system, count=1)
    inputs = draw_inputs(wanted.system, sizes, 0)
    for name in ("x", "q"):
        if name in inputs:
            inputs[name] = HUGE * inputs[name]
    expected = wanted.function(**inputs)
    assert bool(expected.isnan().any()) is False
    torch.testing.assert_close(found.function(**inputs), expected)


# What is no part of one softmax alone, or would be done twice, keeps its name.


@pytest.mark.parametrize("text", ROWS["KEPT"])
def test_other_names_are_kept(text):
    system = from_sympy(parse(text))
    prepared, _ = prepare(system)
    assert [e.target for e in prepared.equations] == [e.target for e in system.equations]


def test_a_bracket_does_not_guard_what_its_name_stands_beside():
    """The quotient of an empty row is 0/0, not 0: the bracket is in the definition of e."""
    text = (
        "x[M, N]; bool m[M, N]; e[i,j] = [m[i,j]] * exp(x[i,j]); y[i,j] = e[i,j] / sum[k](e[i,k])"
    )
    prepared, _ = prepare(from_sympy(parse(text)))
    assert to_lines(prepared)[-1] == "y[i,j] = softmax[j, m[i,j]](x[i,j])"
    built = build(parse(text))
    value = built.function(x=torch.zeros(1, 2), m=torch.zeros(1, 2, dtype=torch.bool))
    assert bool(value.isnan().all())


# An empty row is 0/0 where it is written so, whatever a softmax of nothing is.
EMPTY = tuple(ROWS["EMPTY"])


@pytest.mark.parametrize("text", EMPTY)
@pytest.mark.parametrize("empty_row", ["nan", "zeros"])
def test_quotients_of_nothing_are_nan(text, empty_row):
    built = build(parse(text, empty_row=empty_row))
    assert built.judge().agrees
    inputs = draw_inputs(built.system, dict(M=3, N=4), 0)
    inputs["m"][1] = False
    value = built.function(**inputs)
    assert bool(value[1].isnan().all())
    assert bool(value[0].isfinite().all())


# (a formula whose first row is masked out, the value there): a factor must not move past a guard
# or into an empty sum.
GUARDED = tuple(ROWS["GUARDED"])


@pytest.mark.parametrize(("text", "wanted"), GUARDED)
def test_no_factor_moves_past_a_guard(text, wanted):
    """By the recipe, and by every option after it."""
    shapes = "x[M]; w[N]; A[M, N]; bool m[M, N]; bool q[M]; scalar c = 1; "
    formula = parse(shapes + text)
    system = from_sympy(formula)
    inputs = draw_inputs(system, dict(M=3, N=4), 0)
    inputs = {name: value.clone() for name, value in inputs.items() if name != "c"}
    for name in ("m", "q"):
        if name in inputs:
            inputs[name][:] = True
            inputs[name][0] = False
    if "x" in inputs:
        inputs["x"][:] = torch.tensor([-1.0, 1.0, 2.0], dtype=torch.float64)
    expected = evaluate_loops(formula, inputs)
    assert str(float(expected[0])) == str(float(wanted))
    prepared, _ = prepare(system)
    for form in (prepared, *(found.system for found in find_rewritings(prepared, ALL))):
        value = evaluate_system(form, {**inputs, "c": 1.0}, dict(M=3, N=4))["y"]
        torch.testing.assert_close(value, expected, equal_nan=True)
    torch.testing.assert_close(build(formula).function(**inputs), expected, equal_nan=True)


@pytest.mark.parametrize(
    "value",
    [
        "exp(x[i,j]) / sum[k, l](exp(x[k,l]))",
        "x[i,j] * log(exp(x[i,i]) / sum[k](exp(x[i,k])))",
        "where(j < i, exp(x[i,j]), 0) / sum[k, l, l < k](exp(x[l,k]))",
        "sum[l](x[j,l] * exp(x[i,l]) / sum[m, k](exp(x[m,k])))",
    ],
)
def test_a_share_of_exponentials_does_not_overflow(value: str) -> None:
    built = build(f"x[N, N]\ny[i,j] = {value}")
    x = torch.tensor([[500.0, 499.0], [1.0, -500.0]], requires_grad=True)
    found = built.function(x)
    (slope,) = torch.autograd.grad(found.sum(), x)
    assert found.isfinite().all() and slope.isfinite().all()
    assert built.judge(1).agrees
