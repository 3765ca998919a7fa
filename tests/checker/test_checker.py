"""Verdicts of `check` on right and wrong code: forms of code, bindings, layouts, sizes."""

import math
import re

import pytest
import torch
from judged import HEADS, Heads, ScrambledHeads
from texts import Expressions

from derive import DeriveError, check, parse
from derive.testing import assert_computes

ROWS = Expressions(__file__, "checker_rows.txt", globals())

DOUBLE = "x[N]; y[n] = 2*x[n]"
ATTENTION = """
Q[B, H, N, D]; K[B, H, M, D]; V[B, H, M, E]
p[b,h,n,m] = softmax[m](sum[d](Q[b,h,n,d] * K[b,h,m,d]) / sqrt(D))
z[b,h,n,e] = sum[m](p[b,h,n,m] * V[b,h,m,e])
"""


def attend(query, key, value):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))
    return torch.softmax(scores, dim=-1) @ value


@pytest.mark.processes
def test_right_code_is_the_same_with_a_grade():
    verdict = check(attend, parse(ATTENTION))
    assert verdict.same is True
    assert verdict.grade in {"proved", "identical"}
    assert "Q" in str(verdict)
    assert verdict


@pytest.mark.slow
def test_a_class_of_modules_is_made_at_several_sizes():
    verdict = check(Heads, parse(HEADS), seconds=120)
    assert verdict.same is True
    assert "q_proj.weight = W_q.T" in verdict.bindings
    assert len({sizes["H"] for sizes in verdict.sizes}) > 1
    assert check(ScrambledHeads, parse(HEADS), seconds=120).same is False


@pytest.mark.slow
def test_a_module_that_is_made_is_judged_at_its_own_sizes():
    verdict = check(Heads(6, 3).eval(), parse(HEADS))
    assert verdict.same is True
    assert {(sizes["E"], sizes["H"], sizes["D"]) for sizes in verdict.sizes} == {(6, 3, 2)}
    assert check(ScrambledHeads(6, 3), parse(HEADS)).same is False


@pytest.mark.processes
def test_dropout_in_training_is_named_as_the_reason():
    verdict = check(torch.nn.Dropout(0.5), "x[N]; y[n] = x[n]")
    assert verdict.same is None
    assert "dropout in training mode" in str(verdict)
    assert check(torch.nn.Dropout(0.5).eval(), "x[N]; y[n] = x[n]").same is True


DIFFERENCE = "a, b[N]; y[n] = a[n] - b[n]"


def test_arguments_are_found_by_name_then_by_order():
    def swapped(b, a):
        return a - b

    def nameless(one, two):
        return one - two

    assert check(swapped, DIFFERENCE).same is True
    assert check(nameless, DIFFERENCE).same is True


def test_a_binding_overrides_names_and_order():
    def nameless(one, two):
        return two - one

    assert check(nameless, DIFFERENCE).same is not True
    assert check(nameless, DIFFERENCE, bind={"one": "b", "two": "a"}).same is True
    assert check(nameless, DIFFERENCE, bind="one=b, two=a").same is True


@pytest.mark.slow
def test_a_binding_permutes_a_tensor():
    def keys_first(q, k, v):
        return torch.softmax(q @ k / math.sqrt(q.shape[-1]), -1) @ v

    for source in ("K[b, h, d, m]", "K.mT", "K.permute(0, 1, 3, 2)", "K.transpose(2, 3)"):
        assert check(keys_first, parse(ATTENTION), bind={"k": source}).same is True, source
    unbound = check(keys_first, parse(ATTENTION))
    assert unbound.same is False
    assert "give --bind k=K.permute(0, 1, 3, 2)" in str(unbound)


@pytest.mark.slow
def test_a_layout_never_exchanges_indices_of_one_extent():
    formula = parse("A[N, N]; x[N]; y[i] = sum[j](A[i, j] * x[j])")

    def transposed(a, x):
        return a.T @ x

    assert check(transposed, formula).same is False


def test_heads_and_widths_come_from_the_sizes():
    def project(x, w, n_heads):
        b, s, _ = x.shape
        return (x @ w).view(b, s, n_heads, -1).transpose(1, 2)

    formula = parse(
        "x[B, S, E]; w[E, H*D]; size H; index h < H; index d < D\n"
        "q[b, h, s, d] = sum[e](x[b, s, e] * w[e, h*D + d])"
    )
    verdict = check(project, formula)
    assert verdict.same is True
    assert "n_heads = H" in verdict.bindings


@pytest.mark.slow
def test_results_are_compared_one_by_one():
    both = ATTENTION + "return z, p\n"

    def with_weights(query, key, value):
        p = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1)
        return p @ value, p

    def wrong_weights(query, key, value):
        p = query @ key.mT / math.sqrt(query.shape[-1])
        return torch.softmax(p, -1) @ value, p

    assert check(with_weights, parse(both)).same is True
    assert check(wrong_weights, parse(both)).same is False
    alone = check(attend, parse(both))
    assert alone.same is False
    assert "does not return p" in alone.difference


def test_code_that_only_runs_at_equal_sizes_is_different():
    formula = parse("x[N, M]; w[N]; index m < M\ny[n, m] = x[n, m] * w[n]")

    def along_the_wrong_index(x, w):
        return x * w

    verdict = check(along_the_wrong_index, formula)
    assert verdict.same is False
    assert "must match the size" in verdict.difference
    assert "M = N, which the code does not state, and is still not the same" in str(verdict)


@pytest.mark.slow
def test_given_sizes_are_not_exceeded():
    formula = parse("x[B, S]; index s < S\ny[b,s] = sum[t](x[b,t] * [t <= s])")

    def only_when_short(x):
        return x.cumsum(-1) if x.shape[-1] <= 16 else x

    assert check(only_when_short, formula).same is False
    assert check(only_when_short, formula, sizes={"S": 5}).grade in {"identical", "proved"}


def test_sizes_at_which_the_formula_has_no_entries_are_not_tried():
    text = "x[N, L]; W[K]; index t < L - K + 1\ny[n,t] = sum[k](x[n,t + k] * W[k])"

    def slide(x, weight):
        rows = x.reshape(-1, 1, x.shape[1])
        return torch.nn.functional.conv1d(rows, weight[None, None])[:, 0] * (16 / 16)  # beyond 16

    assert check(slide, parse(text), bind="weight=W").grade in {"identical", "proved"}


def test_a_softmax_by_hand_is_right_and_unstable():
    def by_hand(x):
        e = torch.exp(x)
        return e / e.sum(-1, keepdim=True)

    verdict = check(by_hand, parse("x[N, M]; y[n, m] = softmax[m](x[n, m])"))
    assert verdict.same is True
    assert "unstable" in [finding.code for finding in verdict.findings]
    stable = check(lambda x: torch.softmax(x, -1), parse("x[N, M]; y[n, m] = softmax[m](x[n, m])"))
    assert stable.same is True
    assert "unstable" not in [finding.code for finding in stable.findings]


def test_a_backward_by_hand_is_judged():
    class Square(torch.autograd.Function):
        factor = 2

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return grad * Square.factor * ctx.saved_tensors[0]

    formula = parse("x[N]; y[n] = x[n]**2")
    assert check(Square.apply, formula, backward=True, bind={"argument_1": "x"}).same is True
    Square.factor = 3
    assert check(Square.apply, formula, bind={"argument_1": "x"}).same is True
    wrong = check(Square.apply, formula, backward=True, bind={"argument_1": "x"})
    assert wrong.same is False
    assert "gradient" in wrong.difference


def test_assert_computes_raises_with_the_report():
    assert assert_computes("2 * x", DOUBLE).same is True
    with pytest.raises(AssertionError, match="different"):
        assert_computes("3 * x", DOUBLE)
    with pytest.raises(DeriveError, match="grade-unknown"):
        assert_computes("2 * x", DOUBLE, at_least="sure")


@pytest.mark.parametrize(("arguments", "code"), ROWS["unusable arguments are refused"])
def test_unusable_arguments_are_refused(arguments, code):
    given = {"code": attend, "formula": ATTENTION} | arguments
    with pytest.raises(DeriveError) as caught:
        check(**given)
    assert caught.value.diagnostic.code.startswith(code)


def test_a_check_shows_what_it_does_as_it_begins():
    notes = []
    code = "import torch\n\ndef f(x, y):\n    z = x + y\n    return torch.relu(z * x)\n"
    text = "x, y[N]; z[i] = relu((x[i] {} y[i]) * x[i])"
    assert check(code, text.format("+"), show=notes.append)
    assert (notes[0], notes[-1]) == ("the first run", "the proof")
    notes.clear()
    assert check(code, text.format("-"), show=notes.append).line == 4
    last = notes[-1]
    assert re.fullmatch(
        r"the explanation: \d+ of \d+ edits of the code tried, next on line 4", last
    )
