"""Generated functions under torch's own machinery: autograd, vmap, compile, export, fakes."""

import importlib
import sys

import pytest
import torch
from examples import CAUSAL, EXAMPLES, LAYER_NORM, MASKED_ZEROS, MULTI_HEAD, RELATIVE
from torch.func import functional_call, grad, hessian, jvp, vjp, vmap

from derive.compiler import build
from derive.frontend.from_text import parse

# torch.func and forward derivatives load decompositions that torch itself still scripts
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")

CORE = (RELATIVE, MASKED_ZEROS, MULTI_HEAD, CAUSAL)
SMALL = {
    RELATIVE: dict(B=2, S=3, H=2, D=2),
    MASKED_ZEROS: dict(B=2, H=1, S=3, C=2, E=2),
    MULTI_HEAD: dict(B=1, S=3, E=2, H=2, D=2, F=2),
    CAUSAL: dict(B=1, H=2, N=3, D=2),
}
# The sizes of a few calls; those within one call differ, so that none is taken for another.
LATER = (2, 3, 5, 7, 11, 13, 17), (19, 23, 3, 5, 7, 2, 11), (4, 9, 6, 8, 5, 3, 7)


def each(examples, *slow):
    """A test of each example, of those named last with the slow tests."""
    marks = {example: [pytest.mark.slow] for example in slow}
    cases = [pytest.param(example, marks=marks.get(example, [])) for example in examples]
    return pytest.mark.parametrize("example", cases, ids=str)


each_core, each_example = each(CORE), each(EXAMPLES)


def split_inputs(example, *, cells=True, **draw):
    """(function of the floating inputs alone, those inputs)."""
    tensors, sizes = example.draw(**draw)
    names = [n for n, v in tensors.items() if v.is_floating_point()]
    fixed = {n: v for n, v in tensors.items() if n not in names}
    function = example.build(cells=cells).function

    def call(*values):
        return function(**dict(zip(names, values, strict=True)), **fixed, **sizes)

    return call, [tensors[n] for n in names]


def check_calls(function, example, fixed):
    """Right at several sizes."""
    for seed, extents in enumerate(LATER):
        sizes = {**dict(zip(example.sizes, extents, strict=False)), **fixed}
        tensors, _ = example.draw(sizes, torch.float32, seed)
        expected = example.reference(**tensors, **fixed)
        torch.testing.assert_close(function(*tensors.values()), expected, rtol=1e-4, atol=1e-4)


@each_core
def test_gradients_are_right(example):
    call, values = split_inputs(example, sizes=SMALL[example])
    leaves = [v.requires_grad_() for v in values]
    assert torch.autograd.gradcheck(call, leaves)


@each(CORE, RELATIVE)
def test_forward_and_batched_gradients_are_right(example):
    call, values = split_inputs(example, cells=False, sizes=SMALL[example])
    leaves = [v.requires_grad_() for v in values]
    assert torch.autograd.gradcheck(
        call,
        leaves,
        check_forward_ad=True,
        check_batched_grad=True,
        check_batched_forward_grad=True,
    )


@pytest.mark.slow
@each_core
def test_second_gradients_are_right(example):
    call, values = split_inputs(example, cells=False, sizes=SMALL[example])
    leaves = [v.requires_grad_() for v in values]
    assert torch.autograd.gradgradcheck(call, leaves)


@each_example
def test_gradients_equal_those_of_hand_written_code(example):
    tensors, sizes = example.draw()
    found = []
    for function in (example.build().function, example.reference):
        leaves = {n: v.clone() for n, v in tensors.items()}
        wanted = [v.requires_grad_() for v in leaves.values() if v.is_floating_point()]
        value = function(**leaves, **sizes)
        weights = torch.linspace(-1, 1, value.numel(), dtype=value.dtype).reshape(value.shape)
        masked = torch.where(value.isnan(), 0, value)
        found.append(torch.autograd.grad((masked * weights).sum(), wanted))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9, equal_nan=True)


@each_core
def test_vmap(example):
    """Over every floating input in turn, the others shared."""
    call, values = split_inputs(example, cells=False)
    for k, value in enumerate(values):
        stack = torch.stack([value, 2 * value, value - 1])
        places = [0 if n == k else None for n in range(len(values))]
        batched = vmap(call, tuple(places))(*values[:k], stack, *values[k + 1 :])
        single = [call(*values[:k], one, *values[k + 1 :]) for one in stack]
        torch.testing.assert_close(batched, torch.stack(single), rtol=1e-10, atol=1e-12)


def test_vmap_over_a_mask():
    tensors, _ = MASKED_ZEROS.draw()
    masks = torch.stack([tensors["m"], ~tensors["m"]])
    function = MASKED_ZEROS.build(cells=False).function
    q, k, v = (tensors[n] for n in "qkv")
    batched = vmap(lambda m: function(q, k, v, m))(masks)
    torch.testing.assert_close(batched, torch.stack([function(q, k, v, m) for m in masks]))


@each_core
def test_func_transforms_agree_with_each_other(example):
    call, values = split_inputs(example, cells=False, sizes=SMALL[example])
    generator = torch.Generator().manual_seed(1)
    tangents = tuple(torch.randn(v.shape, generator=generator, dtype=v.dtype) for v in values)
    value, forward = jvp(call, tuple(values), tangents)
    again, pull = vjp(call, *values)
    torch.testing.assert_close(value, again)
    weights = torch.randn(value.shape, generator=generator, dtype=value.dtype)
    backward = sum((g * t).sum() for g, t in zip(pull(weights), tangents, strict=True))
    torch.testing.assert_close((weights * forward).sum(), backward)
    direct = grad(lambda *given: (call(*given) * weights).sum())(*values)
    torch.testing.assert_close(direct, pull(weights)[0])


def test_per_sample_gradients():
    """The gradient for every sample, the way people get it: vmap of grad."""
    call, (X, *others) = split_inputs(RELATIVE)
    samples = vmap(grad(lambda w, x: call(x[None], w, *others[1:]).sum()), in_dims=(None, 0))(
        others[0], X
    )
    single = [grad(lambda w, x=x: call(x[None], w, *others[1:]).sum())(others[0]) for x in X]
    torch.testing.assert_close(samples, torch.stack(single))


def test_hessian_is_symmetric():
    call, values = split_inputs(CAUSAL, cells=False, sizes=SMALL[CAUSAL])
    second = hessian(lambda q: call(q, *values[1:]).pow(2).sum())(values[0])
    n = values[0].numel()
    matrix = second.reshape(n, n)
    torch.testing.assert_close(matrix, matrix.mT)
    assert matrix.abs().sum() > 0


@each(EXAMPLES, RELATIVE, MULTI_HEAD)  # which are exported at once
def test_fake_tensors_with_symbolic_sizes(example):
    """Nothing looks at a value, and no size is fixed on the way."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    tensors, sizes = example.draw()
    expected = example.reference(**tensors, **sizes)
    environment = ShapeEnv()
    mode = FakeTensorMode(shape_env=environment)
    fakes = {n: mode.from_tensor(v, static_shapes=False) for n, v in tensors.items()}
    with mode:
        value = example.build().function(**fakes, **sizes)
    assert tuple(map(int, value.shape)) == tuple(expected.shape)
    assert value.dtype == expected.dtype


@each(CORE, RELATIVE, MULTI_HEAD)
def test_a_traced_graph_holds_at_other_sizes(example):
    from torch.fx.experimental.proxy_tensor import make_fx

    call, values = split_inputs(example)
    if any(v.dtype == torch.bool for v in example.draw()[0].values()):
        tensors, sizes = example.draw()
        function = example.build().function
        traced = make_fx(lambda *t: function(*t, **sizes), tracing_mode="symbolic")(
            *tensors.values()
        )
        tensors, _ = example.draw(dict(zip("BHSCE", (3, 2, 7, 5, 4), strict=True)))
        torch.testing.assert_close(traced(*tensors.values()), function(*tensors.values()))
        return
    traced = make_fx(call, tracing_mode="symbolic")(*values)
    _, others = split_inputs(example, sizes={next(iter(example.sizes)): 3, **_longer(example)})
    torch.testing.assert_close(traced(*others), call(*others))


def _longer(example):
    return {name: 7 for name in ("S", "N") if name in example.sizes}


class Layer(torch.nn.Module):
    """The function as a person puts it into a model."""

    def __init__(self, example, dtype=torch.float32):
        super().__init__()
        tensors, self.sizes = example.draw(dtype=dtype)
        self.function = example.build().function
        first, *others = tensors
        self.first = first
        for name in others:
            self.register_parameter(name, torch.nn.Parameter(tensors[name]))
        self.names = others

    def forward(self, x):
        weights = {name: getattr(self, name) for name in self.names}
        return self.function(**{self.first: x}, **weights, **self.sizes)


@pytest.mark.parametrize("example", [RELATIVE, MULTI_HEAD, LAYER_NORM], ids=str)
def test_a_module_trains(example):
    layer = Layer(example, torch.float64)
    x = example.draw()[0][layer.first]
    target = layer(x).detach() + 0.1
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-3)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = (layer(x) - target).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(p.grad.isfinite().all() for p in layer.parameters())
    parameters = {n: p.detach() for n, p in layer.named_parameters()}
    torch.testing.assert_close(functional_call(layer, parameters, (x,)), layer(x))


class Program(torch.nn.Module):
    """The function as torch.export takes it, with its keyword sizes settled."""

    def __init__(self, function, sizes):
        super().__init__()
        self.function = function
        self.sizes = sizes

    def forward(self, *tensors):
        return self.function(*tensors, **self.sizes)


@each_core
def test_export_with_dynamic_sizes(example):
    """One program for all sizes: every place of every tensor is dynamic."""
    tensors, sizes = example.draw(dtype=torch.float32)
    shapes = tuple(dict.fromkeys(range(v.ndim), torch.export.Dim.AUTO) for v in tensors.values())
    program = torch.export.export(
        Program(example.build().function, sizes), tuple(tensors.values()), dynamic_shapes=(shapes,)
    )
    check_calls(program.module(), example, sizes)


@pytest.fixture
def load(tmp_path, monkeypatch):
    """The function of an example out of a file, imported as a person imports it."""
    monkeypatch.syspath_prepend(tmp_path)
    torch.compiler.reset()

    def load_example(example):
        name = f"written_{example}"
        built = build(parse(example.text, name, empty_row=example.empty_row))
        (tmp_path / f"{name}.py").write_text(built.source, encoding="utf-8")
        monkeypatch.delitem(sys.modules, name, raising=False)
        return getattr(importlib.import_module(name), name)

    return load_example


@pytest.mark.slow
@each_core
def test_compile_with_dynamic_sizes(example, load):
    """One graph without a break, for all sizes; a wrong shape is still refused."""
    _, sizes = example.draw()
    from torch._dynamo.testing import CompileCounterWithBackend

    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(
        Program(load(example), sizes), fullgraph=True, dynamic=True, backend=counter
    )
    check_calls(compiled, example, sizes)
    assert counter.frame_count == 1
    tensors, _ = example.draw(dtype=torch.float32)
    first, *others = tensors.values()
    # torch wraps the ValueError of a graph that must not break, and quotes it
    with pytest.raises(RuntimeError, match="must be"):
        compiled(first, *(v[:, :1] for v in others))


@pytest.mark.slow
@each_core
def test_built_function_is_compiled_as_it_is(example, load):
    _, sizes = example.draw()
    compiled = torch.compile(example.build().function, fullgraph=True, dynamic=True)
    check_calls(lambda *given: compiled(*given, **sizes), example, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("example", [RELATIVE, MULTI_HEAD], ids=str)
def test_compiled_gradients(example, load):
    tensors, sizes = example.draw(dtype=torch.float32)
    program = Program(load(example), sizes)
    found = []
    for function in (torch.compile(program, fullgraph=True, dynamic=True), program):
        leaves = [v.clone().requires_grad_() for v in tensors.values()]
        function(*leaves).pow(2).sum().backward()
        found.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-3)
