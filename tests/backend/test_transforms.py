"""Generated functions under the transforms of torch: every library formula, every transform.

Further tests compare with code by hand or train a model: exact gradients, training, one graph for
all sizes.
"""

import importlib
import random
import sys
import warnings
from functools import cache

import pytest
import torch
from built import FIRST, LIBRARY, built
from examples import CAUSAL, MASKED_ZEROS, MULTI_HEAD, RELATIVE
from torch.func import grad, jvp, vmap

from derive import build, parse
from derive.backend.to_torch import Printer
from derive.formulas import find_formula
from derive.frontend.from_sympy import to_system
from derive.ir.nodes import Index, Size
from derive.ir.polynomial import evaluate_extent
from derive.ir.recurrences import find_groups
from derive.judge.compare import rename_arguments
from derive.judge.samples import choose_sizes, draw_inputs
from derive.plan.ops import Cell, Einsum, Gated, Recur, Source, arrange, walk_ops

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning"),
    pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning"),
]

FEW = ("relative_attention", "layer_norm")

# The error of torch for a pad by a symbolic size outside of torch.compile.
SYMBOL = "SymIntArrayRef expected to contain only concrete integers"
PADDED = "s4d mamba2 causal_conv1d autocorrelation edit_distance"
REFUSED = {  # (formula, transform): error of torch
    **dict.fromkeys([(name, "fake") for name in PADDED.split()], SYMBOL),
    # the repeated row of the last strides makes the matrix singular
    ("kalman_filter_step", "strides"): "the input matrix is singular",
}


@cache
class Case(torch.nn.Module):
    """A generated function with its non-tensor inputs fixed, and draws of its tensors."""

    def __init__(self, name, **options):
        super().__init__()
        self.name = name
        formula = find_formula(name)
        self.system = to_system(formula)
        made = built(name, **options)
        self.function, self.plan = made.function, made.plan
        first = choose_sizes(self.system, 1)[0]
        given = {size.name: first[size.name] for size in self.system.sizes}
        draws = choose_sizes(self.system, 40, fixed=given)
        self.sizes = sorted(draws, key=lambda draw: 1 in draw.values())[:3]
        first = draw_inputs(self.system, self.sizes[0], 0)
        self.fixed = {n: v for n, v in first.items() if not torch.is_tensor(v)}
        self.names = [n for n in first if n not in self.fixed]

    def find_turns(self, number=0):
        """Trip counts of the unrolled loops, which are constant in each graph."""
        sizes = {k: n for k, (_, n) in self.plan.chunks.items()} | self.sizes[number]
        made = [op for step in self.plan.steps for op in walk_ops(step.op)]
        turns = [op.index for op in made if isinstance(op, Recur)]
        turns += [op.axes[1] for op in made if isinstance(op, Cell) and isinstance(op.whole, Gated)]
        turns += [scan.index for scan in self.plan.scans]
        return tuple(evaluate_extent(index.extent, sizes) for index in turns)

    def draw_tensors(self, number=0, dtype=torch.float64):
        values = draw_inputs(self.system, self.sizes[number], number)
        return [
            values[n].to(dtype) if values[n].is_floating_point() else values[n] for n in self.names
        ]

    def forward(self, *tensors):
        given = dict(zip(self.names, tensors, strict=True))
        found = self.function(**rename_arguments(self.function, {**given, **self.fixed}))
        return found if isinstance(found, tuple) else (found,)

    def bind_other_inputs(self, number=0):
        """Return the function of the real tensors only, and those tensors."""
        values = self.draw_tensors(number)
        places = [k for k, value in enumerate(values) if value.is_floating_point()]

        def call(*given):
            whole = [*values]
            for place, value in zip(places, given, strict=True):
                whole[place] = value
            return self(*whole)

        return call, [values[k] for k in places]


def alike(found, wanted, **how):
    how = how or dict(rtol=1e-9, atol=1e-9)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, **how)


def weigh(results):
    """A weighted sum of all differentiable results."""
    total = 0.0
    for number, each in enumerate(results):
        if each.requires_grad or each.is_floating_point():
            total = total + (each * each.detach().cos()).sum() * (number + 1)
    return total


def find_slopes(number, leaves):
    """Gradients of a number; zeros for leaves that it does not depend on."""
    return torch.autograd.grad(number, leaves, allow_unused=True, materialize_grads=True)


def compiled(name):
    from torch._dynamo.testing import CompileCounterWithBackend

    torch.compiler.reset()
    case = Case(name)
    # The full aot_eager backend runs for the first formula of each family only.
    counter = CompileCounterWithBackend("aot_eager" if name in FIRST else "eager")
    program = torch.compile(case, fullgraph=True, dynamic=True, backend=counter)
    with torch.fx.experimental._config.patch(
        use_duck_shape=False
    ):  # do not unify sizes that happen to be equal
        alike(program(*case.draw_tensors()), case(*case.draw_tensors()))
    once = counter.frame_count  # 2 where a number is among the arguments
    for number in range(1, len(case.sizes)):
        alike(program(*case.draw_tensors(number)), case(*case.draw_tensors(number)))
    lengths = {case.find_turns(number) for number in range(len(case.sizes))}
    assert counter.frame_count == once + len(lengths) - 1


def name_arguments(case):
    """Wrap a module to name each tensor argument: guards of torch 2.9 do not support `*tensors`."""
    names = ", ".join(case.names)
    made = {}
    exec(f"def forward(self, {names}): return self.case({names})", made)
    module = type("Named", (torch.nn.Module,), made)()
    module.case = case
    return module


def exported(name):
    case = Case(name)
    values = case.draw_tensors()
    shapes = tuple(dict.fromkeys(range(v.ndim), torch.export.Dim.AUTO) for v in values)
    program = torch.export.export(name_arguments(case), tuple(values), dynamic_shapes=shapes)
    program = program.module()
    turns = case.find_turns()
    lengths = "|".join(map(str, turns))
    for number in range(len(case.sizes)):
        if case.find_turns(number) == turns:
            alike(program(*case.draw_tensors(number)), case(*case.draw_tensors(number)))
        else:
            with pytest.raises(AssertionError, match=rf"Guard failed: .*\] == ({lengths})$"):
                program(*case.draw_tensors(number))


def batched(name):
    case = Case(name)
    call, values = case.bind_other_inputs()
    for k, value in enumerate(values):
        stack = torch.stack([value, value * 1.25, value * 0.5])
        places = tuple(0 if n == k else None for n in range(len(values)))
        found = vmap(call, places)(*values[:k], stack, *values[k + 1 :])
        single = [call(*values[:k], one, *values[k + 1 :]) for one in stack]
        alike(found, [torch.stack(each) for each in zip(*single, strict=True)])


def differentiated(name):
    call, values = Case(name).bind_other_inputs()
    found = grad(lambda *v: weigh(call(*v)), tuple(range(len(values))))(*values)
    leaves = [v.clone().requires_grad_() for v in values]
    alike(found, find_slopes(weigh(call(*leaves)), leaves))


def pushed_forward(name):
    call, values = Case(name, cells=False).bind_other_inputs()
    tangents = tuple(torch.linspace(-1, 1, v.numel(), dtype=v.dtype).view(v.shape) for v in values)
    primal, forward = jvp(lambda *v: weigh(call(*v)), tuple(values), tangents)
    leaves = [v.clone().requires_grad_() for v in values]
    slopes = find_slopes(weigh(call(*leaves)), leaves)
    backward = sum((s * t).sum() for s, t in zip(slopes, tangents, strict=True))
    alike([primal, forward], [weigh(call(*values)), backward])


def under_autocast(name):
    case = Case(name)
    # bfloat16 swaps nearly equal scores of the first draw
    number = int(name == "top_k_gating")
    values = case.draw_tensors(number, dtype=torch.float32)
    leaves = [v.requires_grad_() if v.is_floating_point() else v for v in values]
    with torch.autocast("cpu", torch.bfloat16):
        found = case(*leaves)
    weigh([each.float() for each in found]).backward()
    for one, other in zip(found, case(*case.draw_tensors(number)), strict=True):
        scale = max(1.0, float(other.abs().nan_to_num(0, 0, 0).max()))
        torch.testing.assert_close(one.double() / scale, other.double() / scale, rtol=0.2, atol=0.1)


def on_meta(name):
    case = Case(name)
    found = case(*(v.to("meta") for v in case.draw_tensors()))
    for one, other in zip(found, case(*case.draw_tensors()), strict=True):
        assert (one.device.type, one.shape, one.dtype) == ("meta", other.shape, other.dtype)


def on_fakes(name):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    case = Case(name)
    mode = FakeTensorMode(shape_env=ShapeEnv())
    fakes = [mode.from_tensor(v, static_shapes=False) for v in case.draw_tensors()]
    with mode:
        found = case(*fakes)
    for one, other in zip(found, case(*case.draw_tensors()), strict=True):
        assert (tuple(map(int, one.shape)), one.dtype) == (tuple(other.shape), other.dtype)


def in_other_strides(name):
    """Reversed axis order in memory, every second element, and one repeated entry."""
    case = Case(name)
    values = case.draw_tensors()
    wanted = case(*values)
    back = [v.permute(*reversed(range(v.ndim))).contiguous() for v in values]
    alike(case(*(v.permute(*reversed(range(v.ndim))) for v in back)), wanted)
    wide = [v.repeat_interleave(2, -1)[..., ::2] if v.ndim else v for v in values]
    alike(case(*wide), wanted)
    flat = [v[:1].expand(v.shape) if v.ndim else v for v in values]
    alike(case(*flat), case(*(v.contiguous() for v in flat)))


def in_float32(name):
    case = Case(name)
    found = case(*case.draw_tensors(dtype=torch.float32))
    wanted = case(*case.draw_tensors())
    floating = [each.dtype for each in found if each.is_floating_point()]
    assert floating == [torch.float32 for each in wanted if each.is_floating_point()]
    alike(
        [each.double() for each in found], [each.double() for each in wanted], rtol=1e-3, atol=1e-3
    )


def exported_to_onnx(name):
    """The file without einsum is exported and run by onnxruntime at other sizes."""
    import onnxruntime

    case = Case(name, einsum=False)
    draws = [case.draw_tensors(number, torch.float32) for number in range(len(case.sizes))]
    shapes = (tuple(dict.fromkeys(range(v.ndim), torch.export.Dim.AUTO) for v in draws[0]),)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the exporter of torch
        program = torch.onnx.export(case, tuple(draws[0]), dynamic_shapes=shapes, verbose=False)
    assert "Einsum" not in {node.op_type for node in program.model.graph}
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    for values in draws:
        fed = zip(session.get_inputs(), values, strict=True)
        found = session.run(None, {entry.name: value.numpy() for entry, value in fed})
        alike(map(torch.from_numpy, found), case(*values), rtol=1e-3, atol=1e-4)


def without_einsum(name):
    made = built(name, einsum=False)
    assert "einsum(" not in made.source
    assert not made.plan.tiles
    made.judge()


TRANSFORMS = {
    "compile": compiled,
    "export": exported,
    "vmap": batched,
    "grad": differentiated,
    "jvp": pushed_forward,
    "autocast": under_autocast,
    "meta": on_meta,
    "fake": on_fakes,
    "strides": in_other_strides,
    "float32": in_float32,
    "no_einsum": without_einsum,
}
LONG = {"compile", "export"}  # transforms that take seconds
KINDS = tuple(TRANSFORMS)
TABLE = [  # every pair, ordered so that formulas take turns through the transforms
    pytest.param(name, kind, id=f"{name}-{kind}", marks=() if name in FEW else pytest.mark.slow)
    for turn in range(len(KINDS))
    for number, name in enumerate(LIBRARY)
    for kind in [KINDS[(number + turn) % len(KINDS)]]
]
TABLE.sort(
    key=lambda case: case.values[1] in LONG and case.values[0] not in FIRST
)  # slow pairs last


@pytest.mark.parametrize(("name", "kind"), TABLE)
def test_a_formula_under_a_transform(name, kind):
    if (name, kind) in REFUSED:
        with pytest.raises(RuntimeError, match=REFUSED[name, kind]):
            TRANSFORMS[kind](name)
    else:
        TRANSFORMS[kind](name)


@cache
def find_loopless():
    return [name for name in LIBRARY if not find_groups(to_system(find_formula(name)))]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(7))  # each takes seconds
def test_onnx_runs_the_form_without_einsum(number):
    exported_to_onnx(find_loopless()[24 * number])


@pytest.mark.parametrize(
    "seed", [*range(50), *(pytest.param(k, marks=pytest.mark.slow) for k in range(50, 200))]
)
def test_any_contraction_is_a_product_of_matrices(seed):
    """Contractions of one or two operands, with any index order and some sizes 1."""
    drawn = random.Random(seed)
    sizes = dict(zip("abcdefg", (2, 3, 4, 5, 6, 7, 8), strict=True))
    index = {name: Index(name, Size(name.upper())) for name in sizes}
    names = [
        drawn.sample(list(sizes), drawn.randint(not k, 5)) for k in range(drawn.choice((1, 2, 2)))
    ]
    values = {name.upper(): size for name, size in sizes.items()}
    union = list(dict.fromkeys(name for each in names for name in each))
    args = []
    for label, own in zip("xy", names, strict=False):
        values[label] = torch.randn([sizes[n] for n in own], dtype=torch.float64)
        wide = own[:1] + drawn.sample(union, len(union)) if drawn.random() < 0.3 else own
        axes = tuple(index[n] for n in dict.fromkeys(wide) if own)
        args.append(arrange(Source(label, tuple(index[n] for n in own)), axes))
    axes = drawn.sample(union, drawn.randint(0, min(len(union), 5)))
    op = Einsum(tuple(args), tuple(index[n] for n in axes))
    text = Printer("x", "x.dtype", {}, is_matmul=True).text(op)
    found = eval(text, {"torch": torch, **values})
    string = f"{','.join(map(''.join, names))}->{''.join(axes)}"
    wanted = torch.einsum(string, *(values[label] for label, _ in zip("xy", names, strict=False)))
    torch.testing.assert_close(found, wanted)


# Comparisons with code by hand, and training.

CORE = (RELATIVE, MASKED_ZEROS, MULTI_HEAD, CAUSAL)
SMALL = {
    RELATIVE: dict(B=2, S=3, H=2, D=2),
    MASKED_ZEROS: dict(B=2, H=1, S=3, C=2, E=2),
    MULTI_HEAD: dict(B=1, S=3, E=2, H=2, D=2, F=2),
    CAUSAL: dict(B=1, H=2, N=3, D=2),
}
# Sizes of several calls; the sizes of one call are pairwise distinct.
LATER = (2, 3, 5, 7, 11, 13, 17), (19, 23, 3, 5, 7, 2, 11), (4, 9, 6, 8, 5, 3, 7)


each_core = pytest.mark.parametrize("example", CORE, ids=str)


def split_inputs(example, **draw):
    """Return the function of the floating-point inputs only, and those inputs."""
    tensors, sizes = example.draw(**draw)
    names = [n for n, v in tensors.items() if v.is_floating_point()]
    fixed = {n: v for n, v in tensors.items() if n not in names}
    function = example.build(cells=False).function

    def call(*values):
        return function(**dict(zip(names, values, strict=True)), **fixed, **sizes)

    return call, [tensors[n] for n in names]


def check_calls(function, example, fixed):
    """Compare a function with the reference at several sizes."""
    for seed, extents in enumerate(LATER):
        sizes = {**dict(zip(example.sizes, extents, strict=False)), **fixed}
        tensors, _ = example.draw(sizes, torch.float32, seed)
        expected = example.reference(**tensors, **fixed)
        torch.testing.assert_close(function(*tensors.values()), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@each_core
def test_forward_batched_and_second_gradients_are_right(example):
    call, values = split_inputs(example, sizes=SMALL[example])
    leaves = [v.requires_grad_() for v in values]
    ways = ("check_forward_ad", "check_batched_grad", "check_batched_forward_grad")
    assert torch.autograd.gradcheck(call, leaves, **dict.fromkeys(ways, True))
    assert torch.autograd.gradgradcheck(call, leaves)


class Program(torch.nn.Module):
    """A module for torch.export that fixes the keyword sizes of a function."""

    def __init__(self, function, sizes):
        super().__init__()
        self.function = function
        self.sizes = sizes

    def forward(self, *tensors):
        return self.function(*tensors, **self.sizes)


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Return a function that builds an example, writes its file and imports it."""
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
    """torch.compile makes one graph for all sizes; a wrong shape is refused."""
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
    # with fullgraph torch wraps the ValueError and quotes it
    with pytest.raises(RuntimeError, match="must be"):
        compiled(first, *(v[:, :1] for v in others))


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
