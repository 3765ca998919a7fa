"""Recurrences that are computed in chunks of positions."""

import pytest
import torch
from fast_cases import slow_except

from derive import build
from derive.ir.text import to_text

LINEAR = "a, x[T]; scalar h0\nh[-1] = h0\nh[t] = a[t] * h[t - 1] + x[t]"


def test_gradients_go_through_a_built_recurrence():
    built = build(LINEAR)
    a, x = (torch.rand(4, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, x: built.function(a, x, 0.5), (a, x))


@pytest.mark.slow
def test_factors_that_may_be_large_are_traced_place_after_place():
    function = build(LINEAR).function
    traced = torch.compile(function, fullgraph=True, dynamic=True, backend="aot_eager")
    for length in (3, 20):
        a, x = torch.randn(2, length, dtype=torch.float64)
        torch.testing.assert_close(traced(a, x, 0.5), function(a, x, 0.5))


def test_factors_that_may_be_large_are_batched_and_have_shapes_place_after_place():
    function = build(LINEAR).function
    a, x = torch.randn(2, 3, 20, dtype=torch.float64)
    found = torch.vmap(lambda a, x: function(a, x, 0.5))(a, x)
    each = [function(*pair, 0.5) for pair in zip(a, x, strict=True)]
    torch.testing.assert_close(found, torch.stack(each))
    assert function(a[0].to("meta"), x[0].to("meta"), 0.5).shape == (20,)


EXTREMES = {
    "gates": lambda a: a.sigmoid(),
    "negative": lambda a: -a.sigmoid(),
    "zeros": lambda a: a.clamp(min=0),
    "large": lambda a: a * 1e30,
    "tiny": lambda a: a * 1e-30,
    "both": lambda a: a * 10.0 ** torch.randint(-8, 8, a.shape),
}


@pytest.mark.parametrize("kind", EXTREMES)
def test_chunks_are_finite_where_the_loop_is_finite(kind):
    function = build(
        "a, x[B,T,D]; h0[B,D]; h[b,-1,d] = h0[b,d]; h[b,t,d] = a[b,t,d]*h[b,t - 1,d] + x[b,t,d]"
    ).function
    torch.manual_seed(0)
    for length in (0, 1, 2, 17, 65):
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            a, x = torch.randn(2, 2, length, 3, dtype=torch.float64)
            a, x, h = EXTREMES[kind](a).to(dtype), x.to(dtype), torch.zeros(2, 3, dtype=dtype)
            steps, sums, before, bound = [], [], h, h.double()
            for t in range(length):
                before = torch.addcmul(x[:, t], a[:, t], before)
                bound = a[:, t].double().abs() * bound + x[:, t].double().abs()
                steps.append(before)
                sums.append(bound)
            found = function(a, x, h)
            assert found.shape == x.shape
            if length:
                expected, most = torch.stack(steps, 1), torch.stack(sums, 1)
                near = most < torch.finfo(dtype).max / 2
                assert found[near].isfinite().all()
                off = (found.double() - expected.double()).abs() / most.clamp(min=1e-300)
                assert (off[near] < 64 * torch.finfo(dtype).eps).all()


# (decay, result, default chunk length) of states that are read in sums only; 0 without chunks.
STATES = {
    "scalar decay": ("a[t] *", "o[t,j] = sum[i](q[t,i] * S[t,i,j])", 64),
    "no decay": ("", "o[t,j] = sum[i](q[t,i] * S[t,i,j])", 64),
    "constant decay": ("0.5 *", "o[t,j] = sum[i](q[t,i] * S[t,i,j])", 64),
    "decay for each row": ("sigmoid(k[t,i]) *", "o[t,j] = sum[i](q[t,i] * S[t,i,j])", 16),
    "before it": ("a[t] *", "o[t,j] = sum[i](q[t,i] * S[t - 1,i,j])", 64),
    "before it, for each row": ("sigmoid(k[t,i]) *", "o[t,j] = sum[i](q[t,i] * S[t - 1,i,j])", 16),
    "before it, from elsewhere": (
        "a[t] *",
        "o[t,j] = sum[i](q[t,i] * where(t - 1 < 0, 2, S[t - 1,i,j]))",
        8,
    ),
    "a full decay": ("q[t,i] * v[t,j] *", "o[t,j] = sum[i](q[t,i] * S[t,i,j])", 8),
    "within a function": ("a[t] *", "o[t,j] = tanh(v[t,j] + sum[i](q[t,i] * S[t,i,j])) / 2", 64),
    "two sums": ("a[t] *", "o[t] = sum[i,j](q[t,i] * S[t,i,j]) + sum[i,j](S[t,i,j])", 64),
    "read alone": ("a[t] *", "o[j] = sum[i](q[0,i] * S[T - 1,i,j])", 8),
}


FAST = slow_except(
    STATES,
    *("scalar decay", "decay for each row", "before it, for each row"),
    *("within a function", "read alone"),
)


@pytest.mark.parametrize("name", FAST)
@pytest.mark.parametrize("is_begun", [True, False])
def test_sums_over_a_state_are_computed_in_chunks(name, is_begun):
    decay, output, length = STATES[name]
    start = "S0[i,j]" if is_begun else "0"
    built = build(
        f"a[T]; q, k[T,I]; v[T,J]; S0[I,J]; S[-1,i,j] = {start}\n"
        f"S[t,i,j] = {decay} S[t - 1,i,j] + k[t,i] * v[t,j]\n{output}"
    )
    assert built.plan.chunks["t_chunk"][1] == length
    assert built.judge().agrees  # with chunks of 2 and 3 too
    shapes = {"T": 0, "I": 2, "J": 3}
    empty = [[shapes[to_text(e)] for e in entry.shape] for entry in built.system.inputs]
    if name != "read alone":
        assert built.function(*map(torch.zeros, empty)).shape[0] == 0


@pytest.mark.parametrize("place", ["", "[D]", "[B]"])
def test_a_decay_that_is_the_same_at_all_places_is_kept_once(place):
    decay = f"a{place.lower()}"
    built = build(
        f"x[B,T,D]; {'scalar a' if not place else f'a{place}'}; h[b,-1,d] = 0\n"
        f"h[b,t,d] = {decay}*h[b,t - 1,d] + x[b,t,d]"
    )
    assert built.judge().agrees
    shape = {"": (), "[D]": (3,), "[B]": (2,)}[place]
    for value in (0.9, 1e-30, 0.0, -0.7, -1.5, 1.25, 1e30):
        for length in (0, 1, 2, 17, 65):
            x = torch.randn(2, length, 3, dtype=torch.float64)
            a = torch.full(shape, value, dtype=torch.float64) if place else value
            found = built.function(x=x, a=a)
            h, each = torch.zeros(2, 3, dtype=torch.float64), []
            for t in range(length):
                each.append(h := value * h + x[:, t])
            assert found.shape == x.shape
            near = torch.stack([x[:, 0], *each], 1)[:, 1:] if length else x
            kept = near.abs() < 1e200
            torch.testing.assert_close(found[kept], near[kept])
