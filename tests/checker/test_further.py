"""Code runs at special sizes and inputs, so that a single wrong size or number is found."""

import re

import pytest
import torch
from judged import judge
from texts import Expressions, read_rows, read_tables

from derive import check, parse
from derive.checker.judge.inputs import SCALES, vary_inputs
from derive.checker.load import find_literals, load
from derive.checker.runs import modes
from derive.checker.samples import find_other_sides, make_sample, vary_sizes
from derive.frontend.from_sympy import to_system
from derive.ir.nodes import Call, Compare, Number, Size

ROWS = Expressions(__file__, "further_rows.txt", globals())

TWICE = "x[B, S]; y[b,s] = 2*x[b,s]"
ITSELF = "x[N]; y[i] = x[i]"
TABLE = "int t[N] < V; E[V, D]; y[n,d] = E[t[n],d]"
SHOWN = r"[pry] is|[pry]\[[\d, ]+\] is .*, the formula says .*, .*at \w+=\d+"

VERDICTS = read_tables(__file__, "verdicts.txt")
BODIES = [
    pytest.param((formula, *getattr(row, "values", row)), marks=getattr(row, "marks", ()))
    for formula, rows in VERDICTS.items()
    for row in rows
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize("row", BODIES, ids=lambda row: row[2][:50])
def test_a_body_gets_the_verdict_of_the_table(row):
    formula, expected, body, *said = row
    verdict = judge(body.replace("\\n", "\n"), formula)
    grade, *findings = expected.split()
    assert grade in {"same" if verdict.same else "", verdict.grade}, str(verdict)
    assert verdict.difference or grade != "different"
    for finding in findings:
        found = [f for f in verdict.findings if f.code.startswith(finding[1:])]
        assert bool(found) is (finding[0] == "+"), str(verdict)
        assert all("at " in each.facts[0] for each in found if each.code.startswith("digits"))
    assert all(part in str(verdict) for words in said for part in words.split(" && "))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("condition", ROWS["sizes on the other side are tried"])
def test_sizes_on_the_other_side_are_tried(condition):
    wrong = judge(f"return 3 * x if {condition} else 2 * x", TWICE)
    assert wrong.same is False, str(wrong)
    assert re.search(SHOWN, wrong.difference)
    assert judge(f"return x + x if {condition} else 2 * x", TWICE).same is True


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("text", "wrong", "right"), read_rows(__file__, "sides.txt"))
def test_special_numbers_whole_tensors_and_ties_are_tried(text, wrong, right):
    verdict = judge(wrong.replace("\\n", "\n"), text)
    assert verdict.same is False, str(verdict)
    assert re.search(SHOWN, verdict.difference)
    assert judge(right.replace("\\n", "\n"), text).same is True


def make_first(text):
    return make_sample(to_system(parse(text)), {})


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


def test_samples_reach_the_other_side_of_a_condition():
    first = make_first(TWICE)
    remainder = Compare("!=", Call("mod", (Size("S"), Number(24))), Number(0))
    found = [sample for _, sample in find_other_sides(first, [remainder])]
    assert found[0].sizes == {**first.sizes, "S": 24}
    assert {24, 48, 72, 96} <= {sample.sizes["S"] for sample in found}
    assert all(sample.sizes["S"] % 24 == 0 for sample in found)
    never = Compare(">=", Size("S"), Number(1))
    assert not list(find_other_sides(first, [never]))


def test_literals_and_constant_expressions_are_numbers_of_the_code():
    code = load("W = 77\ndef f(x):\n    return x[: 1 << 12] * -0.5 + 64 * 3 + W + True\n")
    found = find_literals(code)
    assert {4096, -0.5, 192, 77} <= set(found)
    assert not any(isinstance(number, bool) for number in found)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("wrong", "right", "said"), ROWS["circumstances of a call are tried"])
def test_circumstances_of_a_call_are_tried(wrong, right, said):
    verdict = judge(f"return {wrong}", TWICE)
    assert verdict.same is False
    assert re.search(said, verdict.difference), verdict.difference
    assert judge(f"return {right}", TWICE).same is True


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


@pytest.mark.parametrize(("body", "same"), ROWS["one object is called again"])
def test_one_object_is_called_again(body, same):
    verdict = check(KEEPING.format(body=body), parse(TWICE))
    assert verdict.same is same, str(verdict)


PREFIX = "x[N]; index i < N; y[i] = sum[j, j<=i](x[j])"
ROUNDS = "for k in {}:\n  x = x + torch.nn.functional.pad(x, (2**k, 0))[:len(x)]\nreturn x"
NAMED = "out = 0 * x\nfor c, i in zip({}, range(len(x))):\n  out[i] = x[i]\nreturn out"
NESTED = (
    "out = 0 * x.sum()\nfor i in range({0} * {0}):\n  if i < len(x): out = out + x[i]\nreturn out"
)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("given", "body", "wrong", "right", "least"), ROWS["sizes beyond computed limits are tried"]
)
def test_sizes_beyond_computed_limits_are_tried(given, body, wrong, right, least):
    verdict = judge(body.format(wrong), given)
    assert verdict.same is False
    assert least in verdict.difference
    verdict = judge(body.format(right), given)
    assert verdict.same is True, str(verdict)


@pytest.mark.slow
def test_the_largest_size_of_long_code_is_reported(monkeypatch):
    monkeypatch.setattr("derive.checker.stages.MOST_LINES", 2_000)
    body = "out = 0 * x.sum()\nfor a in x:\n  for b in x:\n    out = out + a * b\nreturn out"
    verdict = judge(body, "x[N]; index j < N; y = sum[i,j](x[i]*x[j])")
    assert verdict.same is True
    assert any("not tried beyond N=5:" in reason for reason in verdict.reasons)


@pytest.mark.parametrize("code", ["torch.where(x > 0, x, 1.0)", "x"])
def test_the_gradient_of_a_branch_that_is_not_taken_is_0(code):
    body = f"def f(x):\n    return torch.where(x > 0, {code}.sqrt(), 0.0)\n"
    text = parse("x[N]; y[i] = where(x[i] > 0, sqrt(x[i]), 0)")
    assert check(f"import torch\n{body}", text, backward=True).same is (code != "x")


def test_uninitialized_numbers_are_not_recorded():
    def empty_like(x):
        return x * 1e300

    def mul(x):
        return x * 1e300

    for call, reaches in ((empty_like, False), (mul, True)):
        recorder = modes.Recorder(__file__, is_asked=False)
        recorder.record_call(call, (torch.full((2,), 2.0, dtype=torch.float64),), {})
        assert (recorder.reach.get("float64", (0, 0))[1] > 1) is reaches
