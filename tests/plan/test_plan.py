"""The plan: what is contracted with what, in which layout, and what never comes into being."""

import random
import re
import subprocess
import sys
from fractions import Fraction

import pytest
import torch
from texts import Expressions

from derive import evaluate_loops, parse
from derive.compiler import build
from derive.formulas import find_formula
from derive.ir import nodes as ir
from derive.ir.text import to_text
from derive.plan import ops
from derive.plan.cost import Storage, find_strides, find_true_axes
from derive.plan.ops import walk_ops

ROWS = Expressions(__file__, "plan_rows.txt")

CHAIN = (
    "A[K, L]; B[L, M]; C[M, N]; D[N, P]; y[k,p] = sum[l, m, n](A[k,l] * B[l,m] * C[m,n] * D[n,p])"
)


def test_relative_attention_never_spans_all_five_indices() -> None:
    plan = build(find_formula("relative_attention")).plan
    for step in plan.steps:
        for op in walk_ops(step.op):
            indices = {index.name for index in op.axes}
            assert not {"b", "i", "j", "h"} < indices, to_text(op.axes[0])


@pytest.mark.parametrize("power", ["4", "6", "7", "-3", "-5", "3/2", "5/2", "-3/2"])
@pytest.mark.parametrize("domain", ["", " > 0"])
def test_powers_are_products_with_the_slopes_of_powers(power: str, domain: str) -> None:
    made = build(parse(f"x[N]{domain}; y[n] = x[n]**({power})"))
    is_product = bool(domain) or "/" not in power or power[0] == "-"
    written = re.search(r"x\*\*(\(?-|[4-9]|\d\.5)", made.source.partition("\n    return")[2])
    assert (written is None) == is_product
    values = [1e-3, 0.5, 1.0, 3.0] if domain else [-2.0, 0.0, 1e-3, 3.0]
    x = torch.tensor(values, dtype=torch.float64, requires_grad=True)
    expected = x ** eval(power)
    torch.testing.assert_close(made.function(x), expected, equal_nan=True)
    slopes = [torch.autograd.grad(y.sum(), x)[0] for y in (made.function(x), expected)]
    finite = slopes[1].isfinite()
    torch.testing.assert_close(slopes[0][finite], slopes[1][finite])


@pytest.mark.parametrize(("sizes", "first"), ROWS["order follows the sizes"])
def test_order_follows_the_sizes(sizes: dict[str, int], first: str) -> None:
    assert build(parse(CHAIN), sizes=sizes).plan.einsums[0].startswith(first)


@pytest.mark.slow
def test_same_bytes_under_every_hash_seed() -> None:
    """Of the first of each family; files are compared with what is committed under another seed."""
    code = (
        "from derive.formulas import FAMILIES, load_family; from derive.compiler import build;"
        "print(*(build(next(iter(load_family(f).values()))).source for f in FAMILIES))"
    )
    prints = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(prints) == 1


def test_elementwise_results_lie_as_torch_lays_them() -> None:
    draw, counted = random.Random(0), 0
    for _ in range(200):
        extents = [draw.choice((2, 3, 5)) for _ in range(draw.choice((2, 3, 4)))]
        axes = tuple(ir.Index(f"i{k}", ir.Number(Fraction(n))) for k, n in enumerate(extents))
        memory, args, given = Storage({}), [], []
        for name in "xy":
            own = [i for i in axes if draw.random() < 0.8]
            stored = draw.sample(own, len(own))
            x = torch.zeros([memory.extent(i) for i in stored])
            x = x.permute([stored.index(i) for i in own])
            memory.strides[name] = x.stride()
            args.append(ops.arrange(ops.Source(name, tuple(own), "real"), axes))
            given.append(x[tuple(slice(None) if i in own else None for i in axes)])
        op = ops.Apply("+", tuple(args), axes)
        if set(find_true_axes(op)) == set(axes):
            counted += 1
            assert find_strides(op, memory) == (given[0] + given[1]).stride()
    assert counted > 50


@pytest.mark.parametrize(("text", "line"), ROWS["a product of matrices lies as its readers do"])
def test_a_product_of_matrices_lies_as_its_readers_do(text: str, line: str) -> None:
    built = build(text, sizes=dict.fromkeys(set(re.findall("[NMKDE]", text)), 512))
    assert line in built.source
    built.judge()


@pytest.mark.parametrize("number", [64, 1024])
def test_large_names_are_let_go_of_before_what_is_as_large_is_made(number: int) -> None:
    text = "A, B[N, N]\nC[i,k] = sum[j](A[i,j] * B[j,k])\nz[i,k] = exp(C[i,k]) * sin(C[i,k])\n"
    text += "D[i,l] = sum[k](z[i,k] * A[k,l])\nL = sum[i, l](D[i,l]**3)"
    built = build(text, sizes={"N": number})
    assert re.findall(r"^    del (.*)$", built.source, re.MULTILINE) == (
        ["C", "z"] if number > 512 else []
    )
    built.judge()


@pytest.mark.parametrize(("value", "line"), ROWS["a sign goes to a number or to what is small"])
def test_a_sign_goes_to_a_number_or_to_what_is_small(value: str, line: str) -> None:
    built = build(f"x[N, K]; c[K]\nindex k < K\ny[n,k] = {value}")
    assert f"return {line}\n" in built.source
    built.judge()


@pytest.mark.parametrize(("value", "call"), ROWS["a batch of products as they lie is one call"])
def test_a_batch_of_products_as_they_lie_is_one_call(value: str, call: str) -> None:
    assert call in build(f"A, C[N, N, N]\nz[b,i,j] = sum[k]({value})").source


@pytest.mark.parametrize("text", ROWS["what the formula makes infinite is left out"])
def test_what_the_formula_makes_infinite_is_left_out(text: str) -> None:
    formula = parse(f"x[B, T]; bool m[T]; {text}")
    x = torch.tensor([[1.0, 2, 3, 4]], dtype=torch.float64)
    inputs = dict(x=x, m=torch.tensor([True, False, True, True]))
    found = build(formula).function(**inputs)
    torch.testing.assert_close(found, evaluate_loops(formula, inputs))


@pytest.mark.parametrize(
    ("text", "is_factor"), ROWS["a mask of a sum is a factor beside a quotient under a name"]
)
def test_a_mask_of_a_sum_is_a_factor_beside_a_quotient(text: str, is_factor: int) -> None:
    built = build(f"a[U, J]; s[I, J]; t[J]; index i < I; {text}", sizes=dict(U=64, I=64, J=64))
    assert (built.plan.at_sizes(built.plan.peak_elements) < 64**3) == bool(is_factor)
    built.judge()


@pytest.mark.parametrize("value", ROWS["truth values add up as numbers"])
def test_truth_values_add_up_as_numbers(value: str) -> None:
    formula = parse(f"x, w[N]; y[n] = {value}")
    x, w = torch.tensor([[1.0, 2, -1, 3, -2], [1, 3, 0.5, -1, -2]], dtype=torch.float64)
    found = build(formula).function(x, w)
    torch.testing.assert_close(found, evaluate_loops(formula, dict(x=x, w=w)))


COUNTED = {
    "a": [16777217, -(2**53) - 1, 5, 2**31 + 1],
    "b": [2**31, 2**31 + 1, 5, 2**31 - 1],
    "s": [3, 1, 4, 2],
    "p": [1, 0, 70, 1],
    "m": [True, False, True, True],
    "x": [0.5, 2.0, 3.0, 1.0],
    "z": [1.0, 1.0, 2.0, 3.0],
    "r": [2.0**31, 2.0**31, 5.5, 2.0**31],
}
INTEGERS = ROWS["integers are counted to the last"]
MEETINGS = ROWS["integers are exact until they meet a real"]


def draw_counted(built, dtype):
    given = {}
    for entry in built.system.inputs:
        kind = {"int": torch.int64, "bool": torch.bool}.get(entry.kind, dtype)
        given[entry.name] = torch.tensor(COUNTED[entry.name], dtype=kind)
    return given | {entry.name: 99 for entry in built.system.sizes}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize(("text", "value"), INTEGERS)
def test_integers_are_counted_to_the_last(text, value, dtype):
    built = build(parse(text))
    found = built.function(**(given := draw_counted(built, dtype)))
    expected = torch.tensor(eval(value, dict(COUNTED)), dtype=torch.int64)
    assert found.dtype == torch.int64 and torch.equal(found, expected)
    loops = evaluate_loops(built.formula, given)
    assert loops.dtype == torch.int64 and torch.equal(loops, expected)
    assert "in int64" in built.source


@pytest.mark.parametrize(("text", "value"), [*INTEGERS, *MEETINGS])
def test_integers_of_32_bits_are_counted_as_those_of_64(text, value):
    built = build(parse(text))
    given = draw_counted(built, torch.float32)
    for name, tensor in given.items():
        if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.int64:
            given[name] = tensor.clamp(-(2**31), 2**31 - 1).int()
    wide = {k: v.long() if getattr(v, "dtype", 0) == torch.int32 else v for k, v in given.items()}
    found, expected = built.function(**given), built.function(**wide)
    assert found.dtype == expected.dtype and torch.equal(found, expected)


@pytest.mark.parametrize(("text", "value"), MEETINGS)
def test_integers_are_exact_until_they_meet_a_real(text, value):
    built = build(parse(text))
    for dtype in (torch.float32, torch.float64):
        found = built.function(**draw_counted(built, dtype))
        expected = torch.tensor(eval(value, dict(COUNTED)), dtype=torch.float64)
        torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=0)
    assert built.judge(count=2).agrees


@pytest.mark.parametrize(
    "relation", ["a[i] < s[i]", "a[i] < i + 1", "a[i] < N*N", "x[i] < z[i]", "x[i] < N / 3"]
)
def test_integers_alone_and_reals_alone_are_compared_as_they_are(relation):
    built = build(parse(f"x, z[N]; int a, s[N]; y[i] = [{relation}]*x[i]*z[i]*s[i]*a[i]"))
    assert ".double()" not in built.source


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kinds", ["int b[K, N]; r, w[K, M]", "b[K, N]; int r[K, M]; w[K, M]"])
def test_integers_that_are_sorted_meet_reals_in_float64(kinds, dtype):
    text = f"{kinds}; y[k,m] = w[k,m]*sum[n]([b[k,n] <= r[k,m]])"
    built = build(parse(text), sizes=dict(K=64, N=2048, M=2048))
    assert "_count_below(" in built.source and ".double()" in built.source
    real, whole = torch.tensor(COUNTED["r"], dtype=dtype), torch.tensor(COUNTED["b"])
    b, r = (whole, real) if kinds.startswith("int") else (real, whole)
    found = built.function(b=b[None], r=r[None], w=torch.ones(1, 4, dtype=dtype))
    expected = [[sum(v <= w for v in b.tolist()) for w in r.tolist()]]
    assert found.tolist() == expected


def test_what_is_rounded_or_a_choice_of_numbers_is_real():
    for value in ("floor(x[i])", "sign(x[i])", "where(x[i] > 0, 1, 2)", "[x[i] > 0]", "a[i] / N"):
        text = f"x[N]; int a[N]; y[i] = {value}; z = sum[i](x[i]*a[i]); return y, z"
        built = build(parse(text))
        assert built.function(**draw_counted(built, torch.float32))[0].dtype.is_floating_point


FOUR = """
X[B, S, F]; W_Q, W_K[H, F, D]
s[b,h,i,j] = sum[d, f, g](X[b,i,f] * W_Q[h,f,d] * W_K[h,g,d] * X[b,j,g])
"""
TYPICAL = dict(B=8, S=256, F=512, D=64, H=8)


def make_scores():
    return build(parse(FOUR, "scores"), sizes=TYPICAL)


def count_flops(plan, **sizes):
    return plan.at_sizes(plan.flops, {**plan.sizes, **sizes})


def test_a_regime_begins_where_its_order_takes_fewer_operations() -> None:
    plan = make_scores().plan
    assert [str(each) for each in plan.regimes] == ["F < 79", "D > 341"]
    for each in plan.regimes:
        last, first = each.number, each.number + (-1 if each.is_below else 1)
        assert count_flops(each.plan, **{each.size: last}) >= count_flops(plan, **{each.size: last})
        assert count_flops(each.plan, **{each.size: first}) < count_flops(
            plan, **{each.size: first}
        )


def test_the_docstring_tells_of_them() -> None:
    words = " ".join(make_scores().source.split())
    assert "another order takes fewer operations where F < 79, D > 341." in words


def test_a_plan_prints_its_steps_and_costs() -> None:
    plan = build("x[I,J]; w[J,K]; y[i,k] = sum[j](x[i,j] * w[j,k])", dict(I=2, J=3, K=4)).plan
    assert str(plan) == (
        "formula at I=2 J=3 K=4: y\n"
        "    y[I, K]    ij,jk->ik    48 flops\n"
        "flops: 2*I*J*K = 48\n"
        "peak elements: I*K = 8"
    )
    assert repr(plan) == "<Plan formula at I=2 J=3 K=4: y>"
    assert str(plan.flops) == "2*I*J*K"


def test_a_built_file_prints_its_equations_and_its_plan() -> None:
    built = build("x[N]; y[i] = x[i] + 1", dict(N=5))
    assert str(built).startswith("x[N]\ny[i] = x[i] + 1\n\nformula at N=5: y\n")
    assert repr(built) == "<Built formula at N=5: y>"
