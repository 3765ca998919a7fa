"""Private parts of torch that derive uses: each behaves as derive expects."""

import pytest
import torch

from derive import libraries
from derive.ir.functions import FUNCTIONS
from derive.judge.fields.table import MOVES, TABLE
from derive.libraries import INTERNALS, enable_autograd, find_uncompiled, internals, open_functional

PAIR = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


def count_functions(run_calls):
    """The number of torch functions that a mode intercepts."""
    seen = []
    with libraries.make_mode(lambda f, args, named: (seen.append(f), f(*args, **named))[1]):
        run_calls()
    return len(seen)


def disable_modes():
    def run_calls():
        with internals.DisableTorchFunction():
            torch.neg(PAIR)

    return count_functions(run_calls) == 0 < count_functions(lambda: torch.neg(PAIR))


def see_operations():
    seen = []

    class Mode(internals.DispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    with Mode():
        torch.einsum("ij,jk->ik", PAIR, PAIR)
        before = len(seen)
        with internals.no_dispatch():
            torch.neg(PAIR)
    return "bmm" in seen and len(seen) == before


def wrap_without_memory():
    class Wrapper(torch.Tensor):
        __torch_function__ = internals.no_torch_function

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return PAIR

    made = internals.make_wrapper(Wrapper, (2, 3), strides=(3, 1), dtype=torch.float64)
    return made.shape == (2, 3) and made.stride() == (3, 1) and torch.neg(made) is PAIR


def unwrap_batched_tensor():
    def check_row(row):
        assert internals.is_wrapped(row)
        assert internals.unwrap(row).shape == (2, 2)
        return row

    return torch.equal(torch.vmap(check_row)(PAIR), PAIR) and not internals.is_wrapped(PAIR)


def differentiate_in_an_operation():
    class Square(torch.Tensor):
        __torch_function__ = internals.no_torch_function

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            with enable_autograd():
                leaf = PAIR.clone().requires_grad_()
                return torch.autograd.grad((leaf**2).sum(), leaf)[0]

    made = internals.make_wrapper(Square, (2, 2))
    return torch.equal(torch.neg(made), 2 * PAIR)


def decompose_silu_backward():
    found = internals.decompositions[torch.ops.aten.silu_backward.default](PAIR, PAIR)
    return found.shape == PAIR.shape


EXAMPLES = {
    "DisableTorchFunction": disable_modes,
    "DispatchMode no_dispatch": see_operations,
    "no_torch_function make_wrapper": wrap_without_memory,
    "is_wrapped unwrap": unwrap_batched_tensor,
    "NormBase": lambda: isinstance(torch.nn.BatchNorm1d(2), internals.NormBase),
    "safe_softmax": lambda: not internals.safe_softmax(PAIR - torch.inf, -1).any(),
    "decompositions": decompose_silu_backward,
    "keys": differentiate_in_an_operation,
    "pytree": lambda: internals.pytree.tree_leaves({"a": [1, (2, 3)]}) == [1, 2, 3],
    "numpy": lambda: isinstance(internals.numpy.ones(2), internals.numpy.ndarray),
    "inductor": lambda: internals.inductor.compile_threads > 0,
}


def test_each_internal_has_an_example():
    assert " ".join(EXAMPLES).split() == sorted(INTERNALS, key=" ".join(EXAMPLES).split().index)


@pytest.mark.parametrize(
    "names", [pytest.param(n, marks=[pytest.mark.slow] * ("dynamo" in n)) for n in EXAMPLES]
)
def test_an_internal_behaves_as_expected(names):
    assert EXAMPLES[names]()


def test_a_missing_internal_is_named(monkeypatch):
    monkeypatch.setitem(INTERNALS, "pytree", ("torch.utils:_shrub.tree", "nested containers"))
    with pytest.raises(
        RuntimeError, match=r"lacks torch\.utils:_shrub\.tree, .*: nested containers"
    ):
        internals.pytree  # noqa: B018 - the access raises


def test_open_functional_intercepts_inner_calls():
    def run_calls():
        torch.nn.functional.normalize(PAIR)

    closed = count_functions(run_calls)
    with open_functional():
        assert count_functions(run_calls) > closed == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # raised by the first torch.compile
def test_the_function_under_torch_compile_is_found():
    def double(x):
        return 2 * x

    module = torch.nn.Identity()
    assert find_uncompiled(torch.compile(double)) is double
    assert find_uncompiled(torch.compile(module)) is module
    assert find_uncompiled(double) is double


def test_operations_over_fields_exist_in_torch():
    spelled = {word for row in FUNCTIONS.values() for word in row.spellings.split()}
    assert [
        n for n in (*TABLE, *MOVES) if n not in spelled and not hasattr(torch.ops.aten, n)
    ] == []
