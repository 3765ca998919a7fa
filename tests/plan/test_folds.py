"""Folds: loops that sum compute the same, whatever the blocks, the logits and the dtype."""

from dataclasses import replace

import pytest
import torch
from texts import read_rows

from derive import build, parse
from derive.backend.to_module import Header, to_module
from derive.compiler import Built
from derive.errors import DeriveError
from derive.frontend.from_sympy import to_system
from derive.ir.walk import find_sizes
from derive.judge.samples import draw_inputs
from derive.plan.blocks import find_body, find_indices, find_region, make_tiled
from derive.plan.build import make_plan

ROWS = read_rows(__file__, "folds.txt")
FOLDS = {name: (text, wanted) for name, wanted, text in ROWS}
ADDITIVE = """
    q[B, N, D]; k[B, M, D]; v[B, M, E]; bias[N, M]
    s[b,i,j] = sum[d](tanh(q[b,i,d] + k[b,j,d])) + bias[i,j]
    z[b,i,e] = sum[j](softmax[j](s[b,i,j]) * v[b,j,e])
"""
LONG = dict(B=1, N=2, M=1 << 16, D=64, E=4)  # one row of scores is 256 KiB, with tanh 16 MiB
MANY = dict(B=2, N=1 << 10, M=1 << 12, D=64, E=64)  # the result, twice, is 1 MiB


MASKED = ("masked", "softmax-under-its-own-guard")  # the third draw_qkv leaves a row empty


def build_loops(text, indices, length=2):
    """Build with a loop over the first index, and nested loops over the others: "i", "j*".

    A loop over an index with a star sums over it.
    """
    formula = parse(text)
    system = to_system(formula)
    plan = make_plan(system, dict.fromkeys(find_sizes(system), 64))
    for index in indices:
        scope = find_region(plan)
        (each,) = [i for i in find_indices(plan) if i.name == index.removesuffix("*")]
        group = find_body(scope, each, is_summed=index.endswith("*"), longest=True)
        plan = make_tiled(plan, group, length)
    source = to_module(plan, system.name, Header("", "", "a formula", "derive build"))
    return Built(system.name, formula, system, plan, source)


def find_folds(text):
    """Return the indices that a loop can sum over, each with the number of its peaks."""
    system = to_system(parse(text))
    plan = make_plan(system, dict.fromkeys(find_sizes(system), 64))
    found = {}
    for index in find_indices(plan):
        group = find_body(find_region(plan), index, is_summed=True, longest=True)
        if group is not None and make_tiled(plan, group, 2) is not None:
            peaks = sum(each.start == "lowest" for each in group.running)
            found[index.name] = f"{index.name}*{peaks}" if peaks else index.name
    return found


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", FOLDS)
def test_each_sum_in_blocks_computes_its_formula(name):
    text, wanted = FOLDS[name]
    found = find_folds(text)
    assert sorted(found.values()) == wanted.split()
    for index in found:
        built = build_loops(text, [f"{index}*"])
        assert built.plan.tile.running
        built.judge(3 if name in MASKED else 2)


@pytest.mark.parametrize(
    ("name", "around"),
    [
        *(("sum", "i"), ("max", "i")),
        pytest.param("masked", "i", marks=pytest.mark.slow),
        pytest.param("relative", "h", marks=pytest.mark.slow),
        pytest.param("talking-before", "g", marks=pytest.mark.slow),
    ],
)
def test_a_sum_in_blocks_inside_a_loop_computes_its_formula(name, around):
    built = build_loops(FOLDS[name][0], [around, "j*"])
    outer, inner = built.plan.tiles
    assert not outer.running
    assert inner.running
    built.judge(3 if name in MASKED else 2)


@pytest.mark.parametrize(
    ("sizes", "memory", "loops"), [(LONG, "900KiB", "j*"), (MANY, "1030KiB", "i j*")]
)
def test_a_budget_that_a_row_does_not_keep_to_is_kept_by_running_values(sizes, memory, loops):
    built = build(parse(ADDITIVE), sizes, memory=memory)
    assert " ".join(t.index.name + "*" * bool(t.running) for t in built.plan.tiles) == loops
    assert (
        4 * built.plan.at_sizes(built.plan.peak_elements) <= int(memory.removesuffix("KiB")) << 10
    )
    built.judge()


def softmax_in_whole(q, k, v, bias):
    scores = torch.tanh(q[:, :, None] + k[:, None]).sum(-1) + bias
    return torch.einsum("bij,bje->bie", torch.softmax(scores, dim=-1), v)


def draw_qkv(dtype, size=1.0, places=7):
    torch.manual_seed(0)
    shapes = ((2, 3, 5), (2, places, 5), (2, places, 4), (3, places))
    q, k, v, bias = (torch.randn(shape, dtype=dtype) for shape in shapes)
    return [q, k, v, bias * size]


@pytest.fixture(scope="module")
def additive():
    return build_loops(ADDITIVE, ["j*"])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [1.0, 1e4])
@pytest.mark.parametrize(
    ("dtype", "near"), [(torch.float64, 1e-9), (torch.float32, 1e-4), (torch.bfloat16, 2e-2)]
)
@pytest.mark.parametrize("block", [1, 2, 5, 50])
def test_logits_of_any_size_in_any_dtype(additive, dtype, near, size, block):
    given = draw_qkv(dtype, size)
    given[3][0, :4] = -torch.inf  # whole blocks of a row
    given[3][1, 2] = -torch.inf
    found = additive.function(*given, block=block)
    wanted = softmax_in_whole(*(each.double() for each in given))
    assert found.dtype == dtype
    assert bool(wanted.isfinite().all())
    assert float((found - wanted).abs().max()) < near


def test_many_blocks_in_half_precision_lose_no_digits(additive):
    """Ten thousand blocks of one: sums in bfloat16 itself would stop growing at 256."""
    given = draw_qkv(torch.bfloat16, places=10_000)
    found = additive.function(*given, block=1)
    wanted = softmax_in_whole(*(each.double() for each in given))
    assert float((found - wanted).abs().max() / wanted.abs().max()) < 0.05


def test_a_row_of_nothing_is_nan(additive):
    given = draw_qkv(torch.float32)
    given[3][1] = -torch.inf
    assert bool(additive.function(*given, block=2)[:, 1].isnan().all())


def test_nothing_to_sum_is_zero(additive):
    found = additive.function(*draw_qkv(torch.float32, places=0))
    assert found.shape == (2, 3, 4)
    assert bool((found == 0).all())


def test_gradients_are_those_of_the_whole(additive):
    given = [each.requires_grad_() for each in draw_qkv(torch.float64)]
    given[3].data[0, :4] = -torch.inf
    for block in (1, 3):
        found = torch.autograd.grad(additive.function(*given, block=block).pow(2).sum(), given)
        wanted = torch.autograd.grad(softmax_in_whole(*given).pow(2).sum(), given)
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other)
    smooth = [each.requires_grad_() for each in draw_qkv(torch.float64, places=4)]
    assert torch.autograd.gradgradcheck(lambda *args: additive.function(*args, block=3), smooth)


def test_a_compiler_gets_one_block(additive):
    given = draw_qkv(torch.float32)
    compiled = torch.compile(additive.function, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*given, block=1), softmax_in_whole(*given))


@pytest.mark.parametrize("score", [0.0, torch.inf, -torch.inf, 1e4])
def test_the_logarithm_of_a_sum_of_exponentials_is_torchs(score):
    built = build_loops("x[N, M]\nz[i] = logsumexp[j](2 * x[i,j])", ["j*"])
    x = torch.full((3, 7), score)
    x[0, 0] = 1.0
    for block in (1, 2, 7):
        torch.testing.assert_close(built.function(x, block=block), torch.logsumexp(2 * x, -1))


# Mistakes in a generated file: (old text, new text) by name.
MISTAKES = {
    "no rescale": ("rescale = torch.exp(peak - higher)", "rescale = torch.ones_like(peak)"),
    "rescale upside down": ("torch.exp(peak - higher)", "torch.exp(higher - peak)"),
    "the sums alone": ("total = total * rescale + ", "total = total + "),
    "the values alone": ("z_sum = z_sum * rescale[:, None] + ", "z_sum = z_sum + "),
    "no guard": ("torch.finfo(wide).min", "-torch.inf"),
    "no peak so far": ("torch.maximum(peak, ", "(lambda _, now: now)(peak, "),
    "not divided": (" / total[:, None]", ""),
    "the last block alone": ("peak = higher", "peak = higher; z_sum = z_sum * 0"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_gate_refuses(mistake):
    right = build_loops(FOLDS["masked"][0], ["j*"])
    right.judge()
    old, new = MISTAKES[mistake]
    wrong = replace(right, source=right.source.replace(old, new))
    assert wrong.source != right.source
    with pytest.raises(DeriveError, match="gate-failed"):
        wrong.judge()


@pytest.mark.parametrize("names", [["j*"], ["i", "j*"]])
@pytest.mark.parametrize("length", [0, -1, -7])
def test_a_block_of_no_positions_is_refused(names, length):
    built = build_loops(ADDITIVE, names)
    for tiled in built.plan.tiles:
        with pytest.raises(ValueError, match=f"{tiled.block} must be at least 1, got {length}"):
            built.function(*draw_qkv(torch.float32), **{tiled.block: length})


def find_allocated(call):
    """The most bytes that torch's own allocator has given out at once during a call."""
    call()
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as profile:
        kept = call()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    now, most = 0, 0
    for event in sorted(events, key=lambda each: each.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most if kept is not None else 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "sizes", "memory"),
    [
        (ADDITIVE, LONG, "900KiB"),
        (ADDITIVE, {**MANY, "N": 64, "B": 1}, "70KiB"),
        (FOLDS["sum"][0], dict(N=2, M=1 << 16, D=64), "1MiB"),
    ],
)
def test_the_elements_counted_are_those_that_torch_allocates(text, sizes, memory):
    built = build(parse(text), sizes, memory=memory)
    assert any(each.running for each in built.plan.tiles)
    given = {name: x.float() for name, x in draw_inputs(built.system, sizes, 0).items()}
    with torch.no_grad():
        found = find_allocated(lambda: built.function(**given))
    counted = 4 * built.plan.at_sizes(built.plan.peak_elements)
    assert 0.75 * counted < found < 1.25 * counted
