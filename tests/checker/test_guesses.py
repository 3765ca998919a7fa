"""Bindings by name, order and torch's layouts are judged; guesses are named, and never the same."""

import math  # noqa: F401 - the rows name it

import pytest
import torch
from texts import Expressions
from torch import nn

from derive import check, parse
from derive.checker.load import load
from derive.checker.pick import explain_samples, pick_program
from derive.checker.samples import Sample
from derive.frontend.from_sympy import to_system

ROWS = Expressions(__file__, "guesses_rows.txt", globals())

LINEAR = "x[N, I]; W[O, I]; y[n, o] = sum[i](x[n, i] * W[o, i])"
LINEAR_IN = "x[N, I]; W[I, O]; y[n, o] = sum[i](x[n, i] * W[i, o])"
OUT = "x[N, I]; Wo[O, I]; bo[O]; y[n, o] = sum[i](x[n, i] * Wo[o, i]) + bo[o]"
PARTS = "x[B, H*E]; co[H]; index h < H; index e < E\ny[n, h] = sum[e](x[n, h*E + e]) + co[h]"
PLACES = "x[B, T, D]; pe[T, D]; y[b, t, d] = x[b, t, d] + pe[t, d]"
MASKED = "s[B, H, N, M]; bool m[B, N, M]\np[b, h, n, k] = softmax[k, m[b, n, k]](s[b, h, n, k])\n"
SCORES = "q[B, H, T, D]; k[B, H, S, D]; s[b, h, t, u] = sum[d](q[b, h, t, d] * k[b, h, u, d])"
SPLIT = "x[B, T, H*D]; size H; index h < H; index d < D\ny[b, h, t, d] = x[b, t, h*D + d]"
CONVOLVED = (
    "x[N, C, L]; W[O, C, K]; index t < L - K + 1\n"
    "y[n, o, t] = sum[c, k](x[n, c, t + k] * W[o, c, k])"
)


class Free(nn.Module):
    """A weight whose layout is unknown."""

    def __init__(self, width, out, rate=1.0):
        super().__init__()
        self.s = rate
        self.W = nn.Parameter(torch.zeros(width, out))

    def forward(self, x):
        return x @ self.W * self.s


class Ordered(nn.Module):
    """Parameters whose ranks tell them apart, and names do not."""

    def __init__(self, width, out):
        super().__init__()
        self.out = nn.Parameter(torch.zeros(out))
        self.w = nn.Parameter(torch.zeros(out, width))

    def forward(self, x):
        return x @ self.w.T + self.out


class Stated(nn.Module):
    """A weight whose layout torch documents."""

    def __init__(this, width, out):  # noqa: N805 - whatever it is called
        super().__init__()
        this.projection = nn.Linear(width, out, bias=False)

    def forward(this, x):  # noqa: N805
        return this.projection(x)


class Split(nn.Module):
    """A number of heads that no parameter determines."""

    def __init__(self, n_heads):
        super().__init__()
        self.n_heads = n_heads

    def forward(self, x):
        b, t, e = x.shape
        return x.view(b, t, self.n_heads, e // self.n_heads).transpose(1, 2)


class Exchanged(Split):
    """Heads on the inner axis: right only if the number of heads is the width of a head."""

    def forward(self, x):
        return x.view(*x.shape[:2], -1, self.n_heads).transpose(1, 2)


class Slide(nn.Module):
    """A convolution."""

    def __init__(self, channels, out, kernel_size):
        super().__init__()
        self.conv = nn.Conv1d(channels, out, kernel_size, bias=False)

    def forward(self, x):
        return self.conv(x)


heads = 3


def split_by_name(x):
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)


def split_by_literal(x):
    return x.view(*x.shape[:2], 4, -1).transpose(1, 2)


def split_by_argument(x, n_heads):
    return x.view(*x.shape[:2], n_heads, -1).transpose(1, 2)


def exchange_by_argument(x, n_heads):
    return x.view(*x.shape[:2], -1, n_heads).transpose(1, 2)


SCALED = "x[N]; scalar c; y[n] = exp(c)*x[n]"
COOLED = "x[N]; scalar c = 1; y[n] = exp(x[n]/c)"


def pick_code(code, text, bind=None):
    return pick_program(load(code), to_system(parse(text)), bind or {}, {})


def agrees(choice):
    """Whether the program is certain, and right at its first sample."""
    if choice.failure is not None or choice.is_open:
        return False
    from derive.checker.pick import _try_program

    tried = _try_program(choice.program, choice.samples[0])
    return tried.fits and tried.agrees


@pytest.mark.parametrize(("code", "text", "bind", "if_"), ROWS["a guess is named and not judged"])
def test_a_guess_is_named_and_not_judged(code, text, bind, if_):
    choice = pick_code(code, text, bind)
    assert not agrees(choice)
    assert if_ in (choice.same_if.says if choice.same_if else "")


@pytest.mark.parametrize(("code", "text", "bind"), ROWS["a stated binding is judged"])
def test_a_stated_binding_is_judged(code, text, bind):
    choice = pick_code(code, text, bind)
    assert agrees(choice), (choice.failure, choice.same_if)


def test_sizes_that_the_code_fixes_are_reported():
    for code, text, sizes in (
        *((Split(3), SPLIT, "H = 3"), (split_by_literal, SPLIT, "H = 4")),
        *((Free(3, 5), LINEAR_IN, "O = 5"), (nn.LazyLinear(3, bias=False), LINEAR, "O = 3")),
    ):
        said = [each.says for each in pick_code(code, text).findings]
        assert any(each.startswith("judged for") and sizes in each for each in said), said


def test_the_report_has_the_error_and_the_binding_that_cures_it():
    verdict = check(lambda x, W: x @ W, parse(LINEAR))
    assert verdict.same is False
    assert "shapes cannot be multiplied" in verdict.difference
    assert verdict.line is not None
    assert "the same if W is given as W.T" in str(verdict)
    assert "give --bind W=W.T" in str(verdict)


def test_ambiguous_numbers_are_asked_for():
    def scale(x, a, b):
        return x * a / b

    verdict = check(scale, parse("x[N, M]; y[n, m] = x[n, m] * N / M"))
    assert verdict.same is None
    assert verdict.reasons == ("it is open what a and b are: give --bind",)
    assert "give --bind a=N,b=M" in str(verdict)
    assert check(scale, parse("x[N, M]; y[n, m] = x[n, m] * N / M"), bind="a=N,b=M").same is True


def test_a_scalar_is_judged_as_a_tensor_or_in_place_of_a_default():
    choice = pick_code(lambda x, heat=None: (x / (heat or 1)).exp(), COOLED)
    assert choice.program.describe() == ("heat = c",)
    choice = pick_code(lambda x, c: c.exp() * x, SCALED.replace("exp(c)", "exp(2*c)"))
    assert not agrees(choice)
    assert choice.program.describe() == ("c = tensor(c)",)


# Equal sizes are named if every sample has them and the code does not run without them.


def find_equal_sizes(code, text, sizes=None):
    """Return the findings about equal sizes."""
    choice = pick_program(load(code), to_system(parse(text)), {}, sizes or {})
    return [each.says for each in choice.findings if each.code == "equal-sizes"]


PRODUCT = "A[I, J]; C[J, K]; x[B]; y[b, i, k] = sum[j](A[i, j] * C[j, k]) + x[b]"


def multiply(a, c, x):
    return (a @ c) + x[:, None, None]


def test_free_sizes_are_not_reported():
    assert find_equal_sizes(multiply, PRODUCT) == []


def test_given_equal_sizes_are_named_in_classes():
    fixed = dict(I=2, K=2, J=1)
    assert find_equal_sizes(multiply, PRODUCT, fixed) == ["the code is judged only where I = K"]
    fixed = dict(I=2, K=2, J=3, B=3)
    said = find_equal_sizes(multiply, PRODUCT, fixed)
    assert said == ["the code is judged only where I = K and J = B"]


def test_a_size_that_meets_another_by_chance_is_not_named():
    system = to_system(parse(PRODUCT))
    sizes = (dict(I=3, J=1, K=2, B=b) for b in (5, 1))
    fives, ones = (Sample(system, each, 0, fixed={"J": 1}) for each in sizes)
    assert [each.code for each in explain_samples([fives, ones], [])] == []
    assert [each.code for each in explain_samples([ones], [])] == []
    runs_not = [each.code for each in explain_samples([ones], [fives])]
    assert runs_not == ["equal-sizes"]  # other sizes were tried, and the code does not run there


def test_sizes_that_a_module_has_are_named():
    text = "x[N, I]; W[O, I]; c[O]; y[n, o] = sum[i](x[n, i] * W[o, i]) + c[o]"
    assert find_equal_sizes(torch.nn.Linear(3, 3), text) == ["the code is judged only where I = O"]
    assert find_equal_sizes(torch.nn.Linear(3, 4), text) == []
    assert find_equal_sizes(torch.nn.Linear, text) == []
