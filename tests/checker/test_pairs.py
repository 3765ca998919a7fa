"""The corpus of pairs: judged by the loops alone, and then by the checker."""

import re
import tempfile
from functools import cache
from pathlib import Path

import pytest
from pairs.corpus import FAR, call, find_distance, is_equal_by_loops, load_pairs

from derive import check
from derive.judge.samples import choose_sizes, draw_inputs

RIGHT = load_pairs(right=True)
WRONG = load_pairs(right=False)
EXACT = {"proved", "identical"}
NAMES = {True: "right", False: "wrong"}
each_pair = pytest.mark.parametrize(
    "pair", [*RIGHT, *WRONG], ids=lambda pair: f"{NAMES[pair.right]}-{pair}"
)
each_right = pytest.mark.parametrize("pair", RIGHT, ids=str)
each_wrong = pytest.mark.parametrize("pair", WRONG, ids=str)


@cache
def judge(pair):
    """The verdict on a pair, found once for all tests."""
    with tempfile.TemporaryDirectory() as folder:
        code = pair.write(Path(folder))
        return check(code, pair.formula, bind=pair.bind, sizes=pair.sizes)


def test_there_are_enough_pairs():
    assert len(RIGHT) >= 40
    assert len(WRONG) >= 40


@each_pair
def test_the_loops_say_what_the_folder_says(pair):
    assert is_equal_by_loops(pair) is pair.right


@each_wrong
def test_a_wrong_pair_says_what_its_edit_is(pair):
    assert pair.edit
    assert all(word == word.lower() and len(word) > 0 for word in pair.edit)
    assert pair.line is not None


@each_wrong
def test_no_wrong_code_is_called_the_same(pair):
    verdict = judge(pair)
    assert verdict.same is not True, str(verdict)
    assert verdict.grade in {"different", "unknown"}


@each_right
def test_no_right_code_is_called_different(pair):
    verdict = judge(pair)
    assert verdict.same is not False, str(verdict)
    assert verdict.same is True or verdict.reasons


def test_right_code_is_called_the_same():
    unknown = [f"{pair}: {'; '.join(judge(pair).reasons)}" for pair in RIGHT if not judge(pair)]
    assert len(unknown) <= 0.05 * len(RIGHT), "\n".join(["not called the same:", *unknown])


def test_right_code_is_judged_exactly():
    weaker = [f"{pair}: {judge(pair)}" for pair in RIGHT if judge(pair).grade not in EXACT]
    assert len(weaker) <= 0.1 * len(RIGHT), "\n".join(["float64 alone:", *weaker])


def test_wrong_code_is_called_different():
    unknown = [str(pair) for pair in WRONG if judge(pair).same is None]
    assert len(unknown) <= 0.05 * len(WRONG), "\n".join(["not called different:", *unknown])


def test_the_edit_is_the_right_one():
    missed = [
        f"{pair}: {pair.edit} not in {judge(pair).edit!r}"
        for pair in WRONG
        if not pair.is_edited_by(judge(pair).edit)
    ]
    assert len(missed) <= 0.2 * len(WRONG), "\n".join(["other edits:", *missed])


def test_the_line_is_the_one_at_fault():
    missed = [
        f"{pair}: line {judge(pair).line}, not {pair.line}"
        for pair in WRONG
        if judge(pair).line != pair.line
    ]
    assert len(missed) <= 0.2 * len(WRONG), "\n".join(["other lines:", *missed])


def test_the_loops_would_notice():
    """A right pair whose result is moved by little is far from its formula."""
    pair = RIGHT[0]
    sizes = choose_sizes(pair.system, 1)[0]
    found = call(pair, {**sizes, **draw_inputs(pair.system, sizes)})
    assert find_distance(found, (found[0] * 1.001,)) > FAR
    assert find_distance(found, (found[0].flatten(),)) == float("inf")
    assert re.fullmatch(r"[a-z0-9_]+", str(pair))
