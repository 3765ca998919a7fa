"""Sizes are tied together only where the code ties them, in a view or an assertion."""

import pytest
import torch
from judged import HEADS, Heads, ScrambledHeads
from texts import Expressions
from torch import nn  # noqa: F401 - the rows name it

from derive import parse
from derive.checker import pick, subjects
from derive.checker.load import load
from derive.checker.pick import pick_program
from derive.checker.processes import CannotRunError
from derive.checker.relations import Statement, guess_relations
from derive.checker.runs import describe_error
from derive.checker.runs.modes import watch_failures
from derive.frontend.from_sympy import to_system

ROWS = Expressions(__file__, "relations_rows.txt", globals())

SIZES = {"B": 2, "S": 7, "E": 13, "H": 3, "D": 5}


def assert_product(x, h, d):
    assert x.shape[-1] == h * d, "heads"


def refuse_shapes(x, y):
    if x.shape != y.shape:
        raise ValueError("shapes")


def refuse_remainder(x, h):
    if x.shape[-1] % h or h < 0:
        raise ValueError("heads")


def make_zeros(*shape):
    return torch.zeros(shape)


def find_statements(act):
    failed = []
    with (
        pytest.raises((RuntimeError, ValueError, AssertionError)) as caught,
        watch_failures(failed),
    ):
        act()
    error = describe_error(caught.value, __file__, failed[-1] if failed else None)
    return list(error.statements)


@pytest.mark.parametrize(("act", "said"), ROWS["statements of code about sizes are read"])
def test_statements_of_code_about_sizes_are_read(act, said):
    assert find_statements(act) == [said]


@pytest.mark.parametrize("act", ROWS["operands that do not fit state nothing"])
def test_operands_that_do_not_fit_state_nothing(act):
    assert find_statements(act) == []


@pytest.mark.parametrize(("together", "fixed", "relations"), ROWS["statements name relations"])
def test_statements_name_relations(together, fixed, relations):
    found = guess_relations([together], SIZES, (), fixed)
    assert [{*each} for each in found] == ([{*relations}] if relations else [])


def test_the_fewest_ties_come_first_and_products_are_those_of_the_formula():
    one, two = [Statement(3, 5)], [Statement(13, 15), Statement(7, 2)]
    assert [len(relations) for relations in guess_relations([two, one], SIZES, (), ())] == [1, 2]
    multiple = [[Statement(13, 3, is_multiple=True)]]
    assert guess_relations(multiple, SIZES, (), (), [("D", "H")])[0] == (("E", ("D", "H")),)


def count_samples(monkeypatch, code, text, seen):
    """Pick a program, and add the sizes of every try to `seen`."""
    make_sample = pick.make_sample

    def record_sample(*arguments):
        sample = make_sample(*arguments)
        seen.append(sample.sizes)
        return sample

    monkeypatch.setattr(pick, "make_sample", record_sample)
    return pick_program(load(code), to_system(parse(text)), {}, {})


def test_a_class_with_a_product_takes_few_draws(monkeypatch):
    seen = []
    choice = count_samples(monkeypatch, ScrambledHeads, HEADS, seen)
    assert len(seen) <= 6
    assert all(d.sizes["E"] == d.sizes["H"] * d.sizes["D"] for d in choice.samples)
    assert len(choice.samples) == 3


class Named(Heads):
    """Heads with other argument names: weights show the width, and not the number of heads."""

    def __init__(self, width, heads):
        super().__init__(width, heads)


class Unnamed(Heads):
    def __init__(self, a, n):
        super().__init__(a, n)


class CalledBatch(Heads):
    def __init__(self, width, batch):
        super().__init__(width, batch)


class RunsOnSquares(Named):
    def forward(self, x):
        return super().forward(x) + x.new_zeros(x.shape[1], 1, 1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("code", "hint", "raises"), ROWS["numbers of a class are found by names and shapes"]
)
def test_numbers_of_a_class_are_found_by_names_and_shapes(monkeypatch, code, hint, raises):
    """Numbers that neither determines are asked for, and no size is tied because of them."""
    made, ran = [], []
    make_all, run = subjects.construct_all, pick._try_program

    def construct_all(target, given, path):
        made.extend(tuple(each.values()) for each in given)
        return make_all(target, given, path)

    def try_program(program, sample):
        ran.append(sample.relations)
        return run(program, sample)

    monkeypatch.setattr(subjects, "construct_all", construct_all)
    monkeypatch.setattr(pick, "_try_program", try_program)
    choice = pick_program(load(code), to_system(parse(HEADS)), {}, {})
    assert choice.is_open is bool(hint)
    if hint:
        assert f"--bind {hint}" in choice.same_if.help
    if raises:
        assert raises in str(choice.failure)
        assert "the same only where S = B" in choice.same_if.says
    else:
        assert choice.failure is None
        assert {name for name, _ in choice.samples[0].relations} == {"E"}
        assert next(iter(choice.program.constructor.values())) == "E"
    assert len(made) == len({*made})  # none twice
    assert len(ran) <= 300


def test_a_product_that_only_the_code_has_is_found(monkeypatch):
    def merge(x, w):
        split = x.view(x.shape[0], x.shape[1], w.shape[0], w.shape[1])
        return torch.einsum("bsnk,nkl->bsl", split, w)

    text = "x[B, S, E]; w[N, K, L]; size E\ny[b,s,l] = sum[n, k](x[b,s,(n*K + k) % E] * w[n,k,l])"
    seen = []
    choice = count_samples(monkeypatch, merge, text, seen)
    assert len(seen) <= 3
    assert all(d.sizes["E"] == d.sizes["N"] * d.sizes["K"] for d in choice.samples)
    assert [finding.code for finding in choice.findings] == ["stated-sizes"]


SQUARE = "x[N, M]; w[N]; index m < M\ny[n, m] = x[n, m] * w[n]"


def multiply(x, w):
    return x * w


def multiply_squares(x, w):
    assert x.shape[0] == x.shape[1]
    return x * w[:, None]


def test_sizes_are_equal_only_where_the_code_asserts_it():
    said = pick_program(load(multiply_squares), to_system(parse(SQUARE)), {}, {})
    assert said.failure is None
    assert "the code is judged only where N = M" in [each.says for each in said.findings]
    silent = pick_program(load(multiply), to_system(parse(SQUARE)), {}, {})
    assert "must match the size" in str(silent.failure)
    assert silent.failed_at["N"] != silent.failed_at["M"]


def test_code_that_never_runs_raises_its_first_error():
    def broken(x):
        return x.view(3, 7, 11)

    with pytest.raises(CannotRunError, match="is invalid for input of size"):
        pick_program(load(broken), to_system(parse("x[N]; y[n] = 2*x[n]")), {}, {})


def test_few_sizes_are_tried_for_an_error_at_all_sizes(monkeypatch):
    class Unmade(ScrambledHeads):
        def forward(self, x):
            return self.out(x)

    def lost(x, *weights):
        return torch.lost(x)

    for code, most in ((Unmade, 12), (lost, 1)):
        seen = []
        with pytest.raises(CannotRunError, match="has no attribute"):
            count_samples(monkeypatch, code, HEADS, seen)
        assert 0 < len(seen) <= most
        monkeypatch.undo()
