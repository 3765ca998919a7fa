"""Equal sizes are named where every sample has them and they could not be otherwise."""

import torch

from derive import parse
from derive.checker.load import load
from derive.checker.pick import explain_samples, pick_program
from derive.checker.samples import Sample
from derive.frontend.system import to_system


def find_said(code, text, sizes=None):
    """What is said of equal sizes."""
    choice = pick_program(load(code), to_system(parse(text)), {}, sizes or {})
    return [each.says for each in choice.findings if each.code == "equal-sizes"]


PRODUCT = "A[I, J]; C[J, K]; x[B]; y[b, i, k] = sum[j](A[i, j] * C[j, k]) + x[b]"


def multiply(a, c, x):
    return (a @ c) + x[:, None, None]


def test_free_sizes_are_not_spoken_of():
    assert find_said(multiply, PRODUCT) == []


def test_sizes_that_are_told_are_named_in_classes():
    told = dict(I=2, K=2, J=1)
    assert find_said(multiply, PRODUCT, told) == ["the code is judged only where I = K"]
    told = dict(I=2, K=2, J=3, B=3)
    said = find_said(multiply, PRODUCT, told)
    assert said == ["the code is judged only where I = K and J = B"]


def test_a_size_that_meets_another_by_chance_is_not_named():
    system = to_system(parse(PRODUCT))
    fives, ones = (Sample(system, dict(I=3, J=1, K=2, B=b), 0) for b in (5, 1))
    told = frozenset("J")
    assert [each.code for each in explain_samples([fives, ones], [], told)] == []
    assert [each.code for each in explain_samples([ones], [], told)] == []
    runs_not = [each.code for each in explain_samples([ones], [fives], told)]
    assert runs_not == ["equal-sizes"]  # it was tried, and the code does not run elsewhere


def test_sizes_that_the_code_needs_equal_are_named():
    text = "x[N, M]; w[N]; index m < M\ny[n, m] = x[n, m] * w[n]"
    assert find_said(lambda x, w: x * w, text) == ["the code is judged only where N = M"]


def test_sizes_that_a_module_has_are_named():
    text = "x[N, I]; W[O, I]; c[O]; y[n, o] = sum[i](x[n, i] * W[o, i]) + c[o]"
    assert find_said(torch.nn.Linear(3, 3), text) == ["the code is judged only where I = O"]
    assert find_said(torch.nn.Linear(3, 4), text) == []
    assert find_said(torch.nn.Linear, text) == []
