"""A budget of memory: plans keep to it, or are refused with what the leanest one takes."""

import weakref
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from strategies import formulas, half_as_many
from test_random_formulas import draw_inputs
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from derive import build, parse
from derive.errors import DeriveError
from derive.formulas import find_formula

SIZES = dict(B=8, S=256, H=8, D=64)
MIB = 1 << 20


def peak(built):
    return 4 * built.plan.at_sizes(built.plan.peak_elements)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mebibytes", [64, 32, 16, 15])
def test_a_plan_keeps_to_the_budget(mebibytes):
    built = build(find_formula("relative_attention"), SIZES, memory=f"{mebibytes}MiB")
    assert peak(built) <= mebibytes * MIB
    assert built.plan.tile is not None
    built.judge(count=2)


def test_names_are_let_go_of_before_there_is_a_loop():
    sizes = {"N": 64}
    free = build(parse(CHAIN + "return d"), sizes)
    kept = build(parse(CHAIN + "return d"), sizes, memory=peak(free) * 7 // 10)
    assert kept.plan.tile is None and "del " not in free.source
    assert measure(kept, sizes) <= peak(kept) <= peak(free) * 7 // 10
    kept.judge(count=1)


def test_a_budget_that_nothing_keeps_to_is_refused():
    with pytest.raises(DeriveError, match="memory-short") as refused:
        build(find_formula("relative_attention"), SIZES, memory=1 * MIB)
    assert "leanest" in str(refused.value)


@pytest.mark.parametrize(
    ("memory", "count"),
    [("256MiB", 256 * MIB), ("2GB", 2 * 10**9), (" 1.5 KiB ", 1536), (4096, 4096), ("10k", 10_000)],
)
def test_amounts(memory, count):
    from derive.plan.machine import parse_memory

    assert parse_memory(memory) == count


@pytest.mark.parametrize("memory", ["much", "", "12 parsecs", 0, -4, "1e9", True, "MiB"])
def test_no_amounts(memory):
    with pytest.raises(DeriveError, match="memory-amount"):
        build(parse("x[N]; y[i] = exp(x[i])"), memory=memory)


@pytest.mark.slow
@pytest.mark.parametrize("mebibytes", [12, 10])
def test_a_budget_too_small_for_one_loop_is_kept_by_a_loop_in_a_loop(mebibytes):
    built = build(find_formula("relative_attention"), SIZES, memory=f"{mebibytes}MiB")
    assert peak(built) <= mebibytes * MIB
    assert len(built.plan.tiles) == 2
    assert "inner_block: int | None = None" in built.source
    built.judge(count=2)


class Live(TorchDispatchMode):
    """The bytes of all storages that are alive at once, those given aside.

    Single numbers are not counted: torch makes a tensor of each number beside one.
    """

    def __init__(self, given):
        super().__init__()
        self.given = {_root(t) for t in tree_leaves(given) if torch.is_tensor(t)}
        self.alive, self.most = {}, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        for tensor in (t for t in tree_leaves(found) if torch.is_tensor(t)):
            key = _root(tensor)
            if key not in self.given and key not in self.alive:
                storage = tensor.untyped_storage()
                if storage.nbytes() == tensor.itemsize:
                    continue
                self.alive[key] = storage.nbytes()
                weakref.finalize(storage, self.alive.pop, key, None)
        self.most = max(self.most, sum(self.alive.values()))
        return found


def _root(tensor):
    return tensor.untyped_storage()._cdata


def measure(built, sizes):
    """The bytes of a call in float32."""
    inputs = draw_inputs(built.system, sizes)
    single = {
        name: value.float() if torch.is_tensor(value) and value.is_floating_point() else value
        for name, value in inputs.items()
    }
    with torch.no_grad(), Live(single) as live:
        built.function(**single)
    return live.most


CHAIN = "x[N,N]; " + " ".join(
    f"{new}[i,j] = sum[k]({old}[i,k] * sin({old}[j,k]));" for old, new in pairwise("xabcd")
)
COUNTED = {
    "operands that torch copies": "q[N,H,D]; x[N,D]; z[h] = sum[l,d](q[l,h,d] * x[l,d])",
    "one over": "x[N,M]; y[N,M]; z[i] = sum[j](1 / (2 + x[i,j]**2) * tanh(y[i,j]))",
    "whole numbers": "x[N,M]; z[i,j] = where(abs(i - j) % 3 == 1, x[i,j], -oo)",
    "the contrary of a mask": "x[N,M]; bool m[N,M]; z[i] = max[j, m[i,j]](exp(x[i,j]))",
    "a product over two": "x[N,M,D]; z[i] = prod[j,d](tanh(x[i,j,d]))",
    "one operand after the other": "x[N,M]; z[i,j] = exp(sin(x[i,j])) + exp(cos(x[i,j]**2) * 2)",
    "a loop": "x[N,D]; y[M,D]; z[i] = logsumexp[j](sum[d](abs(x[i,d] - y[j,d])))",
    "names that are let go of": CHAIN + "return d",
    "a view of one that is": CHAIN + "e[i,j] = d[j,i]; f[i,j] = exp(e[i,j]) + d[i,j]; return f",
    "a loop that joins": "x[N,D]; y[M,D]; z[i,j] = sum[d](tanh(x[i,d] - y[j,d]))",
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("text", COUNTED.values(), ids=COUNTED.keys())
@pytest.mark.parametrize("share", [1.0, 0.6, 0.3])
def test_a_call_takes_no_more_than_was_allowed(text, share):
    sizes = {"N": 24, "M": 20, "D": 6, "H": 10}
    sizes = {name: sizes[name] for name in build(parse(text)).plan.sizes}
    allowed = int(share * peak(build(parse(text), sizes)))
    try:
        built = build(parse(text), sizes, memory=allowed)
    except DeriveError as refused:
        assert refused.diagnostic.code == "memory-short"
    else:
        assert measure(built, sizes) <= allowed


@pytest.mark.slow
@half_as_many
@given(formulas())
def test_random_formulas_take_no_more_than_was_allowed(drawn):
    free = build(parse(drawn.text, empty_row=drawn.empty_row))
    sizes = {name: 4 * extent for name, extent in drawn.sizes if name in free.plan.sizes}
    for share in (1.0, 0.5):
        allowed = max(1024, int(share * peak(build(free.formula, sizes))))
        try:
            built = build(free.formula, sizes, memory=allowed)
        except DeriveError:
            continue
        assert measure(built, dict(drawn.sizes) | sizes) <= allowed, built.source
