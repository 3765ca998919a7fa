"""Arguments of generated functions: wrong shapes, keyword sizes, and numbers."""

import re

import pytest
import torch
from examples import EXAMPLES, LOGSUMEXP, MULTI_HEAD
from texts import Expressions

from derive.compiler import build
from derive.frontend.from_text import parse
from derive.judge.loops import evaluate_loops

ROWS = Expressions(__file__, "arguments_rows.txt", globals())

each_example = pytest.mark.parametrize("example", EXAMPLES, ids=str)


def find_wrong_shapes(example, change):
    """Yield (tensor, extent, changed extent, inputs, sizes); one extent is changed at a time."""
    tensors, sizes = example.draw()
    for name, values in tensors.items():
        for place, extent in enumerate(values.shape):
            if (name, place) in example.free:
                continue
            shape = list(values.shape)
            shape[place] = change(extent)
            changed = values.new_zeros(shape)
            yield name, extent, shape[place], {**tensors, name: changed}, sizes


@each_example
@pytest.mark.parametrize(
    "change", [lambda n: n + 7, lambda n: 1, lambda n: 0], ids=["more", "1", "0"]
)
def test_every_wrong_extent_is_refused(example, change):
    """The message names a tensor and the wrong extent; an extent of 1 is not broadcast."""
    function = example.build().function
    count = 0
    for name, extent, now, tensors, sizes in find_wrong_shapes(example, change):
        with pytest.raises(ValueError) as caught:
            function(**tensors, **sizes)
        message = str(caught.value)
        assert any(f"{other}[" in message for other in tensors), (name, message)
        assert str(now) in message, (name, extent, now, message)
        count += 1
    assert count or example is LOGSUMEXP


@each_example
@pytest.mark.parametrize("change", [lambda v: v[0], lambda v: v[None]], ids=["less", "more"])
def test_every_wrong_rank_is_refused(example, change):
    tensors, sizes = example.draw()
    for name, values in tensors.items():
        wrong = {**tensors, name: change(values)}
        with pytest.raises(ValueError, match=rf"\b{name}\b"):
            example.build().function(**wrong, **sizes)


def test_sizes_without_a_shape_are_keyword_arguments():
    tensors, _ = MULTI_HEAD.draw()
    function = MULTI_HEAD.build().function
    with pytest.raises(TypeError, match="H"):
        function(**tensors)
    with pytest.raises(TypeError):
        function(*tensors.values(), 3)
    for heads in (5, 24, 7):  # 12 columns
        with pytest.raises(ValueError, match="W_q"):
            function(**tensors, H=heads)
    for heads in (1, 2, 12):
        torch.testing.assert_close(
            function(**tensors, H=heads), MULTI_HEAD.reference(**tensors, H=heads)
        )
    with pytest.raises(ValueError, match="H"):
        function(**tensors, H=0)


class TestScalars:
    """Numbers, 0-d tensors and defaults."""

    text = "x[M, N]\nscalar tau\nscalar eps = 1/4\ny[i,j] = softmax[j](x[i,j] / tau) + eps * tau"

    def reference(self, x, tau, eps=0.25):
        return torch.softmax(x / tau, dim=-1) + eps * tau

    @pytest.mark.parametrize("tau", [2, 0.5, torch.tensor(0.5, dtype=torch.float64)])
    def test_a_scalar_is_a_number_or_a_tensor(self, tau):
        x = torch.randn(3, 4, dtype=torch.float64)
        function = build(parse(self.text)).function
        torch.testing.assert_close(function(x, tau), self.reference(x, tau))
        torch.testing.assert_close(function(x, tau, 3), self.reference(x, tau, 3))
        torch.testing.assert_close(function(x, tau=tau, eps=2.5), self.reference(x, tau, 2.5))

    def test_tensors_are_differentiated(self):
        x = torch.randn(3, 4, dtype=torch.float64)
        tau, eps = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (0.5, 0.3))
        function = build(parse(self.text)).function
        assert torch.autograd.gradcheck(lambda t, e: function(x, t, e), (tau, eps))

    def test_a_number_keeps_the_dtype(self):
        function = build(parse(self.text)).function
        assert function(torch.randn(3, 4), 0.5).dtype == torch.float32
        assert function(torch.randn(3, 4).bfloat16(), 0.5).dtype == torch.bfloat16

    @pytest.mark.parametrize(
        "line", ["z = tau", "z = tau * eps", "z = exp(tau) / 2", "z = tau + 1"]
    )
    def test_formulas_of_scalars_alone_have_tensors_as_values(self, line):
        function = build(parse(f"scalar tau, eps\n{line}")).function
        tau = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
        expected = {"z = tau": tau, "z = tau * eps": tau * 3}.get(line)
        value = function(tau, 3)
        if expected is not None:
            torch.testing.assert_close(value, expected)
        assert value.dtype == torch.float64
        (gradient,) = torch.autograd.grad(value, tau)
        assert gradient.isfinite()
        assert isinstance(function(0.5, 3), torch.Tensor)


def test_a_scalar_is_a_tensor_without_axes_or_refused():
    """A tensor with axes would broadcast, and the file would compute another formula."""
    function = build(parse("x[N, M]; scalar c\nz[i,j] = x[i,j] * c")).function
    x = torch.randn(3, 4)
    assert torch.equal(function(x, torch.tensor(2.0)), 2 * x)
    for wrong in (torch.ones(4), torch.ones(1), torch.ones(3, 1)):
        with pytest.raises(ValueError, match="c is a scalar, got"):
            function(x, wrong)


@pytest.mark.parametrize(
    ("value", "is_refused"), ROWS["an infinite scalar agrees with the loops or is refused"]
)
def test_an_infinite_scalar_agrees_with_the_loops_or_is_refused(value, is_refused):
    """The value of 0 * inf depends on the order of operations, which a rewrite changes."""
    made = build(parse(f"x[N, M]; bool m[N, M]; scalar c\nz[i] = {value}"))
    used = {tensor.name for tensor in made.system.inputs}
    x = torch.randn(3, 4, dtype=torch.float64)
    given = {"x": x, "m": torch.eye(3, 4, dtype=torch.bool), "c": torch.inf}
    given = {name: each for name, each in given.items() if name in used}
    if is_refused:
        with pytest.raises(ValueError, match="c must be finite, got inf"):
            made.function(**given)
    else:
        expected = torch.as_tensor(evaluate_loops(made.formula, given), dtype=torch.float64)
        torch.testing.assert_close(made.function(**given), expected)


SEGMENTS = "size G; x[N]; int s[N] < G; index g < G; y[g] = sum[n](x[n]*[s[n] == g])"


@pytest.mark.parametrize(
    ("text", "given", "wrong", "message"),
    ROWS["integers out of their range are refused where asked"],
)
def test_integers_out_of_their_range_are_refused_where_asked(text, given, wrong, message):
    function = build(parse(text)).function
    keyword = "validate_2" if "validate" in given else "validate"
    inputs = {k: v if k.isupper() else torch.randn(v) for k, v in given.items()}
    right = inputs | {"s": torch.tensor(wrong).clamp(0, 3 if "V" not in text else 2)}
    assert torch.equal(function(**right, **{keyword: True}), function(**right))
    with pytest.raises(ValueError, match=re.escape(message)):
        function(**inputs, s=torch.tensor(wrong), **{keyword: True})


@pytest.mark.slow
def test_a_range_that_is_not_asked_for_leaves_one_graph():
    function = build(parse(SEGMENTS)).function
    inputs = {"x": torch.randn(5), "s": torch.tensor([0, 1, 1, 3, 2])}
    whole = torch.compile(function, fullgraph=True, backend="eager")
    assert torch.equal(whole(**inputs, G=4), function(**inputs, G=4))

    class Module(torch.nn.Module):
        def forward(self, x, s):
            return function(x, s, G=4)

    exported = torch.export.export(Module(), tuple(inputs.values())).module()
    assert torch.equal(exported(*inputs.values()), function(**inputs, G=4))
