"""Code is tried at special sizes and inputs: one size or number at which it is wrong is found."""

import re
from pathlib import Path

import pytest
from judged import find_codes, judge
from texts import read_rows

from derive import check, parse
from derive.checker.load import find_literals, load
from derive.checker.samples import SCALES, find_other_sides, make_samples, vary_inputs, vary_sizes
from derive.frontend.system import to_system
from derive.frontend.torch.numbers import Condition
from derive.ir.nodes import Call, Number, Size

TWICE = "x[B, S]; y[b,s] = 2*x[b,s]"
SCORES = "q[B, D]; k[C, D]; r[i,j] = sum[d](q[i,d]*k[j,d])"
ITSELF = "x[N]; y[i] = x[i]"
LOG = "x[N] > 0; y[i] = log(x[i])"
TABLE = "int t[N] < V; E[V, D]; y[n,d] = E[t[n],d]"
SHOWN = r"[pry] is|[pry]\[[\d, ]+\] is .*, the formula says .*, .*at \w+=\d+"


@pytest.mark.parametrize(
    "condition",
    [
        "x.shape[0] == 1",
        "x.shape[1] % 16 == 0",
        "x.numel() > 4096",
        "x.shape[0] == x.shape[1]",
        "x.shape[0] * x.shape[1] >= 64 * 16",
        "sum(x.shape) % 23 == 0",
        "len(x) > 11 * x.shape[1]",
    ],
)
def test_sizes_on_the_other_side_are_tried(condition):
    wrong = judge(f"return 3 * x if {condition} else 2 * x", TWICE)
    assert wrong.same is False, str(wrong)
    assert re.search(SHOWN, wrong.difference)
    assert judge(f"return x + x if {condition} else 2 * x", TWICE).same is True


@pytest.mark.parametrize(
    ("text", "wrong", "right"), read_rows(Path(__file__).with_name("sides.txt"))
)
def test_special_numbers_whole_tensors_and_ties_are_tried(text, wrong, right):
    verdict = judge(wrong.replace("\\n", "\n"), text)
    assert verdict.same is False, str(verdict)
    assert re.search(SHOWN, verdict.difference)
    assert judge(right.replace("\\n", "\n"), text).same is True


def test_code_that_says_where_it_stops_is_the_same_elsewhere():
    verdict = judge("assert x.shape[1] != 1\nreturn 2 * x", TWICE)
    assert verdict.same is True
    assert "stops" in find_codes(verdict)
    assert judge("return 2 * x.view(-1, x.shape[1] - 1 and x.shape[1])", TWICE).same is False


def make_first(text):
    return make_samples(to_system(parse(text)), {}).first


def test_inputs_stay_in_their_domain():
    first = make_first("x[N] > 0; 0 <= u[N] < 1; int t[N] < V; E[V]; y[n] = x[n]*u[n]*E[t[n]]")
    reasons = set()
    for sample in vary_inputs([first], [0.25, -3.0, 7]):
        values = sample.make_inputs()
        assert bool((values["x"] > 0).all())
        assert bool(((values["u"] >= 0) & (values["u"] < 1)).all())
        assert bool(((values["t"] >= 0) & (values["t"] < sample.sizes["V"])).all())
        reasons.add(sample.reason)
    assert {f"inputs {factor:g} times as large" for factor in SCALES} <= reasons
    assert "inputs at and around 0.25" in reasons
    assert "integers at their largest" in reasons


def test_every_size_is_one_and_every_two_are_equal():
    first = make_first("x[B, S, D]; y[b,s,d] = x[b,s,d]")
    sizes = [sample.sizes for sample in vary_sizes(first, [100, 4096])]
    assert all(any(each[name] == 1 for each in sizes) for name in "BSD")
    pairs = (("B", "S"), ("B", "D"), ("S", "D"))
    assert all(any(each[one] == each[two] for each in sizes) for one, two in pairs)
    assert all(any(each[name] == n for each in sizes) for name in "BSD" for n in (99, 100, 101))
    assert any(each["B"] * each["S"] * each["D"] > 4096 for each in sizes)


def test_the_other_side_of_a_condition():
    first = make_first(TWICE)
    remainder = Condition(Call("mod", (Size("S"), Number(24))), "!=", Number(0))
    found = [sample for _, sample in find_other_sides(first, [remainder])]
    assert found[0].sizes == {**first.sizes, "S": 24}
    assert {24, 48, 72, 96} <= {sample.sizes["S"] for sample in found}
    assert all(sample.sizes["S"] % 24 == 0 for sample in found)
    never = Condition(Size("S"), ">=", Number(1))
    assert not list(find_other_sides(first, [never]))


def test_numbers_of_code():
    code = load("W = 77\ndef f(x):\n    return x[: 1 << 12] * -0.5 + 64 * 3 + W + True\n")
    found = find_literals(code)
    assert {4096, -0.5, 192, 77} <= set(found)
    assert not any(isinstance(number, bool) for number in found)


def test_a_number_that_no_size_goes_beyond_is_named():
    text = "m[N, N]; y[i,j] = where(j < i + 9000, m[i,j], 0)"
    verdict = judge("return m.clone()", text)
    assert verdict.grade == "agrees"
    assert "not-beyond" in find_codes(verdict)


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        ("3 * x if not x.is_contiguous() else 2 * x", "2 * x.contiguous()", "not contiguous"),
        (
            "3 * x if x.stride()[0] < x.stride()[1] else 2 * x",
            "2 * x.clone()",
            "not contiguous",
        ),
        ("3 * x if x.requires_grad else 2 * x", "x + x if x.requires_grad else 2 * x", "gradients"),
        ("2 * x if torch.is_grad_enabled() else 3 * x", "2 * x.detach()", "no_grad"),
        ("2 * x + x.storage_offset()", "2 * x.view(-1).view(x.shape)", "parts of longer"),
    ],
)
def test_circumstances_of_a_call_are_tried(wrong, right, said):
    verdict = judge(f"return {wrong}", TWICE)
    assert verdict.same is False
    assert re.search(said, verdict.difference), verdict.difference
    assert judge(f"return {right}", TWICE).same is True


@pytest.mark.parametrize(
    "condition", ["random.random() > 1e-3", "torch.rand(()) > 1e-4", "time.time() < 1.86e9"]
)
def test_what_hangs_on_chance_is_unknown(condition):
    verdict = judge(f"import random, time\nreturn 2 * x if {condition} else x", TWICE)
    assert verdict.grade == "unknown", str(verdict)


def test_chance_that_changes_nothing_rules_out_a_proof():
    code = "import random\ndef f(x):\n    random.random()\n    return 2 * x\n"
    verdict = check(code, parse(TWICE))
    assert verdict.grade == "agrees"
    assert "outside" in [finding.code for finding in verdict.findings]


KEEPING = """
import torch
class Keeping(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kept, self.calls = {{}}, 0
    def forward(self, x):
        key = tuple(x.shape)
        {body}
"""


@pytest.mark.parametrize(
    ("body", "same"),
    [
        ("return self.kept.setdefault(key, 2 * x)", False),
        ("self.calls += 1; return 2 * x + 1e-6 * (self.calls > 4)", False),
        ("return x * self.kept.setdefault('like', torch.full_like(x, 2.0))[:1]", False),
        ("return x * self.kept.setdefault(key, torch.full_like(x, 2.0))", True),
        ("self.calls += 1; return 2 * x", True),
    ],
)
def test_one_object_is_called_again(body, same):
    verdict = check(KEEPING.format(body=body), parse(TWICE))
    assert verdict.same is same, str(verdict)
    assert (verdict.grade == "agrees") == (body.startswith("self.calls") and same)


PREFIX = "x[N]; index i < N; y[i] = sum[j, j<=i](x[j])"
ROUNDS = "for k in {}:\n  x = x + torch.nn.functional.pad(x, (2**k, 0))[:len(x)]\nreturn x"
NAMED = "out = 0 * x\nfor c, i in zip({}, range(len(x))):\n  out[i] = x[i]\nreturn out"
NESTED = (
    "out = 0 * x.sum()\nfor i in range({0} * {0}):\n  if i < len(x): out = out + x[i]\nreturn out"
)


@pytest.mark.parametrize(
    ("given", "body", "wrong", "right", "least"),
    [
        (PREFIX, ROUNDS, "range(5)", "range(len(x).bit_length())", "N=33"),
        (ITSELF, NAMED, "__import__('string').ascii_lowercase", "x", "N=27"),
        ("x[N]; y = sum[i](x[i])", NESTED, "len('abcdefgh')", "len(x)", "N=65"),
        (TABLE, "return E[{}]", "(t & 15) + 16 * (t // 16 % 256)", "t", "V=4097"),
    ],
)
def test_sizes_beyond_what_no_number_says_are_tried(given, body, wrong, right, least):
    verdict = judge(body.format(wrong), given)
    assert verdict.same is False
    assert least in verdict.difference
    verdict = judge(body.format(right), given)
    assert verdict.same is True, str(verdict)


def test_beyond_which_size_long_code_was_not_run_is_said(monkeypatch):
    monkeypatch.setattr("derive.checker.stages.MOST_LINES", 2_000)
    body = "out = 0 * x.sum()\nfor a in x:\n  for b in x:\n    out = out + a * b\nreturn out"
    verdict = judge(body, "x[N]; index j < N; y = sum[i,j](x[i]*x[j])")
    assert verdict.same is True
    assert any("not tried beyond N=5:" in reason for reason in verdict.reasons)


GAUSS = "x[N]; m,s[N]; y[i] = -0.5*((x[i]-m[i])/exp(s[i]))**2 - s[i] - 0.5*log(2*pi)"
NORMAL = "return torch.distributions.Normal(m, {}).log_prob(x)"


def test_an_argument_check_of_torch_out_of_range_is_a_finding():
    right = judge(NORMAL.format("s.exp()"), GAUSS)
    assert right.same is True, str(right)
    assert "out-of-range" in find_codes(right)
    text = "x[N]; m[N]; y[i] = -0.5*(x[i]-m[i])**2 - 0.5*log(2*pi)"
    assert judge(NORMAL.format("1 - 2.0*(x.abs() > 300)"), text).same is False


LOGITS = "x[N, D]; y[n] = logsumexp[d](x[n,d])"
STABLE = "m = {}\nreturn (m + (x - m).exp().sum(-1, keepdim=True).log()).squeeze(-1)"


@pytest.mark.parametrize("is_unstable", [True, False])
def test_rows_of_logits_far_below_0_are_tried(is_unstable):
    maximum = f"x.amax(-1, keepdim=True){'.clamp(min=0)' * is_unstable}"
    verdict = judge(STABLE.format(maximum), LOGITS)
    assert verdict.same is True
    assert ("unstable" in find_codes(verdict)) is is_unstable


SCALARS = {
    "the default where it is 0": ("s = s or 2.0\n    return x * s", "x[n] * s"),
    "the size of a negative one": ("return x * abs(s)", "x[n] * s"),
    "a least value": ("return x / max(s, 1e-3)", "x[n] / s"),
    "a branch at a number": ("return x if s > 5 else x * s", "x[n] * s"),
    "a root out of a square": ("return x * s", "x[n] * sqrt(s**2)"),
}
OF_SCALARS = {
    "a quotient": ("return x / s", "x[n] / s"),
    "a slope": ("return F.leaky_relu(x, s)", "where(x[n] > 0, x[n], s * x[n])"),
    "a root": ("return torch.sqrt(x * x + s)", "sqrt(x[n]**2 + s)"),
}


@pytest.mark.parametrize("name", [*SCALARS, *OF_SCALARS])
def test_scalars_are_tried_at_0_of_either_sign_and_beyond_the_numbers_of_the_code(name):
    body, value = {**SCALARS, **OF_SCALARS}[name]
    code = f"import torch\nimport torch.nn.functional as F\ndef f(x, s):\n    {body}\n"
    assert check(code, f"x[N]; scalar s; y[n] = {value}").same is (name in OF_SCALARS)


OTHER_SIDES = {
    "a remainder beyond a bound": ("n > 6 and n % 2 == 0", "x[1:].sum()"),
    "the second multiple": ("n % 8 == 0", "x[:8].sum()"),
    "one more than the bound": ("n > 9", "x[:10].sum()"),
}


@pytest.mark.parametrize("name", OTHER_SIDES)
def test_more_than_one_size_is_tried_where_a_proof_does_not_hold(name):
    condition, other = OTHER_SIDES[name]
    code = f"def f(x):\n    n = x.shape[0]\n    return {other} if {condition} else x.sum()\n"
    assert check(code, "x[N]; y = sum[n](x[n])").same is False
    right = (
        f"def f(x):\n    n = x.shape[0]\n    return x.flip(0).sum() if {condition} else x.sum()\n"
    )
    assert check(right, "x[N]; y = sum[n](x[n])").same


WAYS = {
    "two remainders": ("len(x) % 3 == 0 and len(x) % 5 == 0", "x[N, M]"),
    "two sizes": ("x.shape[0] > 10 and x.shape[1] > 10", "x[N, M]"),
    "two sizes of 1": ("x.shape[0] == 1 and x.shape[1] == 1", "x[N, M]"),
}


@pytest.mark.parametrize("name", WAYS)
def test_each_way_that_code_takes_by_its_sizes_is_followed(name):
    condition, shape = WAYS[name]
    text = f"{shape}; y = sum[i,j](x[i,j])"
    assert judge(f"return 2 * x.sum() if {condition} else x.sum()", text).same is False
    assert judge(f"return x.sum(0).sum() if {condition} else x.sum()", text).grade == "proved"


@pytest.mark.parametrize("code", ["torch.where(x > 0, x, 1.0)", "x"])
def test_the_gradient_of_a_branch_that_is_not_taken_is_0(code):
    body = f"def f(x):\n    return torch.where(x > 0, {code}.sqrt(), 0.0)\n"
    text = parse("x[N]; y[i] = where(x[i] > 0, sqrt(x[i]), 0)")
    assert check(f"import torch\n{body}", text, backward=True).same is (code != "x")
